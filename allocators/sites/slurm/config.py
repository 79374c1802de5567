"""Read ``slurm.conf`` and ``topology.conf``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, NamedTuple

from allocators.sites.slurm.keys import (
    MISSED,
    Finding,
    class_of_option,
    class_of_part,
    classify_key,
)
from sim.contract import ParameterError, expand_hosts

UNLIMITED: Final = frozenset({"unlimited", "infinite", "none", "-1", ""})
_PAIR: Final = re.compile(r"([\w.]+)\s*=\s*(\"[^\"]*\"|\S+)")
_OPTION: Final = re.compile(r"(?:^|[,=])\s*([a-z]\w*)(?:=([^,]*))?", re.IGNORECASE)
_WEIGHT: Final = re.compile(r"([\w/:.-]+)=([\d.]+)([KMGT]?)", re.IGNORECASE)
_HISTORIC: Final[Mapping[str, str]] = {"max_job_bf": "bf_max_job_test"}
_PRIORITIES: Final[Mapping[str, bool]] = {"priority/basic": False, "priority/multifactor": True}


class ConfigLine(NamedTuple):
    """A logical line of a file: the number of its first physical line, and its text."""

    number: int
    text: str


def logical_lines(text: str) -> Iterator[ConfigLine]:
    """Yield the logical lines without comments; a trailing backslash joins the next line."""
    first_number, joined = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        first_number = first_number or number
        if stripped.endswith("\\"):
            joined += stripped[:-1] + " "
            continue
        logical = (joined + stripped).strip()
        if logical:
            yield ConfigLine(first_number, logical)
        first_number, joined = 0, ""


def expand_host_list(text: str) -> tuple[str, ...]:
    """Expand a Slurm host list to node names.

    Raises
    ------
    ClusterError
        If it is none.
    """
    return tuple(expand_hosts(text, "slurm.conf")) if text else ()


def parse_time_s(text: str) -> float:
    """Parse a Slurm time, such as ``30``, ``1:30:00`` or ``1-12:00``, to seconds.

    Formats are minutes, ``m:s``, ``h:m:s``, ``d-h``, ``d-h:m`` and ``d-h:m:s``; no limit is inf.

    Raises
    ------
    ParameterError
        If the text has another format.
    """
    if text.strip().lower() in UNLIMITED:
        return inf
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        raise ParameterError(f"{text!r:.40} is no time; write it as 1-12:00:00, or in minutes.")
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match[1] is not None:
        return float(((days * 24 + first) * 60 + second) * 60 + third)
    if match[4] is not None:
        return float((first * 60 + second) * 60 + third)
    return float(first * 60 + second)


@dataclass(frozen=True)
class NodeEntry:
    """A node of ``slurm.conf``: memory in MB, GPUs by type, CPUs per core and per socket."""

    name: str
    cpus: int
    mem_mb: float
    features: frozenset[str]
    gres: Mapping[str, int]
    weight: int
    up: bool
    threads: int = 1
    per_socket: int = 1


@dataclass(frozen=True)
class PartitionEntry:
    """A partition of ``slurm.conf``: times in seconds, memory in MB (0 = no default)."""

    name: str
    nodes: tuple[str, ...]
    default: bool
    max_time_s: float
    default_time_s: float
    tier: int
    job_factor: int
    def_mem_per_cpu_mb: float
    def_mem_per_node_mb: float
    whole_nodes: bool
    max_nodes: float = inf
    min_nodes: int = 0
    max_mem_per_cpu_mb: float = inf
    max_mem_per_node_mb: float = inf
    qos: str = ""
    allow_accounts: frozenset[str] = frozenset()
    deny_accounts: frozenset[str] = frozenset()
    allow_qos: frozenset[str] = frozenset()
    deny_qos: frozenset[str] = frozenset()
    up: bool = True
    billing: tuple[tuple[str, float], ...] = ()
    preempt_mode: str = ""
    least_loaded: bool = False
    one_user: bool = False
    grace_s: float = 0.0


@dataclass(frozen=True)
class SlurmConfig:
    """A parsed ``slurm.conf``.

    Attributes
    ----------
    nodes, partitions : tuple
        In the order of the file.
    values : mapping
        Value of each other key, by the key in lower case.
    options : mapping
        Value of each option of ``SchedulerParameters``, by its name in lower case; "" = a flag.
    where : mapping
        Line number of each key, by the key in lower case.
    findings : tuple of Finding
        One per setting: used, without effect, or not simulated.
    """

    nodes: tuple[NodeEntry, ...]
    partitions: tuple[PartitionEntry, ...]
    values: Mapping[str, str]
    options: Mapping[str, str]
    where: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def number(self, key: str, usual: float) -> float:
        """Return the number set for a key, or Slurm's default."""
        return self._as_number(key, self.values.get(key.lower()), usual)

    def option(self, key: str, usual: float) -> float:
        """Return the number set for an option of ``SchedulerParameters``, or its default."""
        return self._as_number(key, self.options.get(key.lower()), usual)

    def time_s(self, key: str, usual: str) -> float:
        """Return the time set for a key, or Slurm's default, in seconds."""
        return parse_time_s(self.values.get(key.lower(), usual))

    @property
    def by_priority(self) -> bool:
        """True if priorities are computed; False if jobs are ordered by submission."""
        return _config_choice(self, "PriorityType", "priority/multifactor", _PRIORITIES)

    @property
    def by_switches(self) -> bool:
        """True if placement minimizes the switches of a job (topology/tree)."""
        return self.values.get("topologyplugin", "").strip().lower() == "topology/tree"

    def _as_number(self, key: str, text: str | None, usual: float) -> float:
        """Parse a number: empty text gives the default, "unlimited" inf; else raise."""
        if text is None or not text.strip():
            return usual
        if text.strip().lower() in UNLIMITED:
            return inf
        try:
            return float(text)
        except ValueError as error:
            line = self.where.get(key.lower(), self.where.get("schedulerparameters", 0))
            raise ParameterError(
                f"slurm.conf, line {line}: {key} = {text!r:.40} is no number."
            ) from error


def _config_choice(config: SlurmConfig, key: str, usual: str, flags: Mapping[str, bool]) -> bool:
    """Return the flag mapped to the value of a key; raise an error for other values."""
    value = config.values.get(key.lower(), usual).strip().lower()
    if value not in flags:
        raise ParameterError(
            f"slurm.conf, line {config.where.get(key.lower(), 0)}: {key}={value} cannot be"
            f" simulated; known are {', '.join(name for name in flags if name)}."
        )
    return flags[value]


def read_conf(text: str) -> SlurmConfig:
    """Parse a ``slurm.conf``; it must have a partition.

    Raises
    ------
    ParameterError
        If a line cannot be read, or a partition names a node without a NodeName line.
    """
    reader = _ConfigReader()
    for line in logical_lines(text):
        reader.read_line(line)
    config = reader.config()
    if not config.partitions:
        raise ParameterError("slurm.conf: there is no partition; add a line PartitionName=...")
    return config


class _ConfigReader:
    """Collects nodes, partitions and values from the lines of a ``slurm.conf``."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._where: dict[str, int] = {}
        self._findings: list[Finding] = []
        self._usual: dict[str, dict[str, str]] = {"node": {}, "partition": {}}
        self._nodes: dict[str, NodeEntry] = {}
        self._partitions: list[tuple[int, dict[str, str]]] = []

    def read_line(self, line: ConfigLine) -> None:
        """Add one line: a node, a partition, or a key with its value; record findings.

        An Include is only recorded.
        """
        key_values = _PAIR.findall(line.text)
        pairs = {key.lower(): value.strip('"') for key, value in key_values}
        kind = next((kind for kind in self._usual if f"{kind}name" in pairs), "")
        if line.text.split()[0].lower() == "include":
            self._findings.append(_make_finding(line.number, "Include", line.text[7:].strip()))
        elif not pairs:
            raise ParameterError(
                f"slurm.conf, line {line.number}: {line.text!r:.60} is no KEY=VALUE."
            )
        elif kind:
            self._findings += [
                Finding("slurm.conf", line.number, key, text, *class_of_part(kind, key, text))
                for key, value in key_values
                for text in (value.strip('"'),)
            ]
            self._add_entry(kind, pairs, line.number)
        else:
            self._set_value(line)

    def _add_entry(self, kind: str, pairs: dict[str, str], number: int) -> None:
        """Add the nodes or partition of a line, or update the defaults of its kind.

        A node described again replaces the earlier one, with a finding.
        """
        usual, name = self._usual[kind], pairs[f"{kind}name"]
        if name.upper() == "DEFAULT":
            usual |= pairs
        elif kind == "partition":
            self._partitions.append((number, usual | pairs))
        else:
            entries = {entry.name: entry for entry in _parse_nodes(name, usual | pairs, number)}
            if repeated := entries.keys() & self._nodes.keys():
                why = f"describes {min(repeated)} a second time: the last description counts"
                self._findings.append(Finding("slurm.conf", number, "NodeName", name, MISSED, why))
            self._nodes |= entries

    def _set_value(self, line: ConfigLine) -> None:
        """Store a key's value with its line and finding; a repeated key replaces it."""
        key, _, value = line.text.partition("=")
        key, value = key.strip(), value.strip().strip('"')
        if key.lower() in self._values:
            why = "is given a second time: the last one counts"
            self._findings.append(Finding("slurm.conf", line.number, key, value, MISSED, why))
        self._values[key.lower()], self._where[key.lower()] = value, line.number
        self._findings.append(_make_finding(line.number, key, value))

    def config(self) -> SlurmConfig:
        """Return the configuration of the lines read, with its findings."""
        values = self._values
        config = SlurmConfig(
            tuple(self._nodes.values()),
            tuple(
                _parse_partition(pairs, self._nodes, number, values)
                for number, pairs in self._partitions
            ),
            values,
            _parse_options(values.get("schedulerparameters", "")),
            self._where,
        )
        line_findings = [
            _mark_suspend_missed(one) if _is_suspend_under_qos(one, values) else one
            for one in self._findings
        ]
        return replace(config, findings=(*line_findings, *_option_findings(config)))


def _is_suspend_under_qos(finding: Finding, values: Mapping[str, str]) -> bool:
    """Return True for a finding on PreemptMode=SUSPEND under preempt/qos."""
    by_quality = values.get("preempttype", "").lower() == "preempt/qos"
    return (
        by_quality and finding.key.lower() == "preemptmode" and "suspend" in finding.value.lower()
    )


def _mark_suspend_missed(finding: Finding) -> Finding:
    """Return a finding changed to: suspension in a partition is not simulated."""
    why = "is not simulated between jobs of one partition: none is preempted"
    return finding._replace(kind=MISSED, why=why)


def _make_finding(line: int, key: str, value: str) -> Finding:
    """Return the finding for a key outside node and partition lines: its class and reason."""
    kind, why = classify_key(key, value)
    if key.lower() == "schedulerparameters" and value.startswith("="):
        why = "has a doubled =, which Slurm reads as a single one"
    return Finding("slurm.conf", line, key, value, kind, why)


def _option_findings(config: SlurmConfig) -> Iterator[Finding]:
    """Yield a finding for each option of ``SchedulerParameters``."""
    line = config.where.get("schedulerparameters", 0)
    for key, value in config.options.items():
        yield Finding("slurm.conf", line, key, value, *class_of_option(key, value))


def _parse_options(text: str) -> dict[str, str]:
    # Slurm searches the text for each option, so that a doubled "=" before the first one works.
    """Parse ``SchedulerParameters`` to a dict; historic names become the current ones.

    "" = an option without a value.
    """
    options = {key.lower(): value or "" for key, value in _OPTION.findall(text)}
    return {_HISTORIC.get(key, key): value for key, value in options.items()}


def _parse_nodes(name: str, pairs: Mapping[str, str], number: int) -> Iterator[NodeEntry]:
    """Yield one node entry per host of a NodeName line; `pairs` include the defaults."""
    try:
        cores = (
            int(pairs.get("boards", "1"))
            * int(pairs.get("sockets", "1"))
            * int(pairs.get("corespersocket", "1"))
        )
        cpus = int(
            pairs.get("cpus") or pairs.get("procs") or cores * int(pairs.get("threadspercore", "1"))
        )
        entry = NodeEntry(
            "",
            cpus,
            float(pairs.get("realmemory", "1")),
            frozenset(
                word for word in pairs.get("feature", pairs.get("features", "")).split(",") if word
            ),
            count_gpus_by_type(pairs.get("gres", "")),
            int(pairs.get("weight", "1")),
            re.match(r"(down|drain|fail|future)", pairs.get("state", ""), re.IGNORECASE) is None,
            int(pairs.get("threadspercore", "1")),
            max(cpus // (int(pairs.get("boards", "1")) * int(pairs.get("sockets", "1"))), 1),
        )
    except ValueError as error:
        raise ParameterError(f"slurm.conf, line {number}: a number cannot be read.") from error
    for host in expand_host_list(name):
        yield replace(entry, name=host)


def count_gpus_by_type(text: str) -> dict[str, int]:
    """Count the GPUs in a Gres list by type: ``gpu:a100:4(S:0-1)`` gives {"a100": 4}.

    GPUs without a type count for "". Other generic resources are skipped.
    """
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).lower().split(","):
        words = re.split(r"[:=]", part.removeprefix("gres/").removeprefix("gres:"))
        if words[0] != "gpu":
            continue
        count = int(words[-1]) if words[-1].isdigit() and len(words) > 1 else 1
        gpu_type = words[1] if len(words) > 1 and not words[1].isdigit() else ""
        counts[gpu_type] = counts.get(gpu_type, 0) + count
    return counts


def _parse_partition(
    pairs: Mapping[str, str], nodes: Mapping[str, NodeEntry], number: int, values: Mapping[str, str]
) -> PartitionEntry:
    """Return the partition of a PartitionName line; memory defaults come from `values`.

    A node that is not in `nodes` raises an error.
    """
    name, listed = pairs["partitionname"], pairs.get("nodes", "")
    members = tuple(nodes) if listed.upper() == "ALL" else expand_host_list(listed)
    for host in members:
        if host not in nodes:
            raise ParameterError(
                f"slurm.conf, line {number}: partition {name} names the node {host}, which no"
                " NodeName describes."
            )
    try:
        max_s = parse_time_s(pairs.get("maxtime", "UNLIMITED"))
        return PartitionEntry(
            name,
            members,
            pairs.get("default", "NO").upper() == "YES",
            max_s,
            parse_time_s(pairs["defaulttime"]) if "defaulttime" in pairs else max_s,
            int(pairs.get("prioritytier", pairs.get("priority", "1"))),
            int(pairs.get("priorityjobfactor", pairs.get("priority", "1"))),
            float(pairs.get("defmempercpu", values.get("defmempercpu", "0"))),
            float(pairs.get("defmempernode", values.get("defmempernode", "0"))),
            pairs.get("oversubscribe", pairs.get("shared", "NO")).upper() == "EXCLUSIVE",
            _parse_limit(pairs.get("maxnodes", "UNLIMITED")),
            int(pairs.get("minnodes", "0")),
            _parse_limit(pairs.get("maxmempercpu", values.get("maxmempercpu", "0"))) or inf,
            _parse_limit(pairs.get("maxmempernode", values.get("maxmempernode", "0"))) or inf,
            _qos_name(pairs.get("qos", "")),
            _parse_name_list(pairs.get("allowaccounts", "ALL")),
            _parse_name_list(pairs.get("denyaccounts", "")),
            _parse_name_list(pairs.get("allowqos", "ALL")),
            _parse_name_list(pairs.get("denyqos", "")),
            pairs.get("state", "UP").upper() in {"UP", "DRAIN"},
            tuple(weights_of(pairs.get("tresbillingweights", "")).items()),
            pairs.get("preemptmode", "").upper(),
            pairs.get("lln", "NO").upper() == "YES",
            pairs.get("exclusiveuser", "NO").upper() == "YES",
            float(max(int(pairs.get("gracetime", "0")), 0)),
        )
    except ValueError as error:
        raise ParameterError(f"slurm.conf, line {number}: a number cannot be read.") from error


def _parse_limit(text: str) -> float:
    """Parse a limit; unlimited gives inf."""
    return inf if text.strip().lower() in UNLIMITED else float(text)


def _qos_name(text: str) -> str:
    """Return a QOS name in lower case; "" for none."""
    return "" if text.strip().lower() in {"", "n/a", "none"} else text.strip().lower()


def _parse_name_list(text: str) -> frozenset[str]:
    """Return comma-separated names in lower case; a list with ALL gives the empty set."""
    names = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    return frozenset() if names & {"all", "(null)", "n/a"} else names


def weights_of(text: str) -> dict[str, float]:
    """Parse TRES weights such as ``CPU=1.0,Mem=0.25G,GRES/gpu=2`` to a dict; memory per MB."""
    weights: dict[str, float] = {}
    for key, number, unit in _WEIGHT.findall(text):
        scale = {"K": 1024.0, "M": 1.0, "G": 1 / 1024, "T": 1 / 1024**2}.get(unit.upper(), 1.0)
        weights[key.lower()] = float(number) * scale
    return weights


class Switch(NamedTuple):
    """A switch of ``topology.conf``: its nodes, or its child switches."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]


def read_topology(text: str) -> tuple[Switch, ...]:
    """Parse a ``topology.conf`` to its switches, in file order.

    Raises
    ------
    ParameterError
        If a line has no SwitchName, or switches form a cycle.
    """
    switches: list[Switch] = []
    where: dict[str, int] = {}
    for line in logical_lines(text):
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.text)}
        if "switchname" not in pairs:
            raise ParameterError(f"topology.conf, line {line.number}: SwitchName= is missing.")
        name = pairs["switchname"]
        where[name] = line.number
        below = expand_host_list(pairs.get("switches", ""))
        switches.append(Switch(name, expand_host_list(pairs.get("nodes", "")), below))
    above = {child: switch.name for switch in switches for child in switch.switches}
    for child, parent in above.items():
        seen, at = {child}, parent
        while at in above:
            if at in seen:
                raise ParameterError(
                    f"topology.conf, line {where.get(at, 0)}: the switch {at} is above itself."
                )
            seen.add(at)
            at = above[at]
    return tuple(switches)
