"""What a site wrote down: ``slurm.conf`` and ``topology.conf``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, NamedTuple

from allocators.sites.slurm.keys import MISSED, Finding, class_of, class_of_option, class_of_part
from sim.contract import ParameterError, hosts_of

UNLIMITED: Final = frozenset({"unlimited", "infinite", "none", "-1", ""})
_PAIR: Final = re.compile(r"([\w.]+)\s*=\s*(\"[^\"]*\"|\S+)")
_OPTION: Final = re.compile(r"(?:^|[,=])\s*([a-z]\w*)(?:=([^,]*))?", re.IGNORECASE)
_WEIGHT: Final = re.compile(r"([\w/:.-]+)=([\d.]+)([KMGT]?)", re.IGNORECASE)
_HISTORIC: Final[Mapping[str, str]] = {"max_job_bf": "bf_max_job_test"}
_PRIORITIES: Final[Mapping[str, bool]] = {"priority/basic": False, "priority/multifactor": True}


class ConfigLine(NamedTuple):
    """One logical line: where it begins, and its text."""

    number: int
    text: str


def lines(text: str) -> Iterator[ConfigLine]:
    """Yield the lines without comments; a backslash at the end joins the next one."""
    begun, held = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        bare = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        begun = begun or number
        if bare.endswith("\\"):
            held += bare[:-1] + " "
            continue
        whole = (held + bare).strip()
        if whole:
            yield ConfigLine(begun, whole)
        begun, held = 0, ""


def hosts(text: str) -> tuple[str, ...]:
    """Return the names behind a host list.

    Raises
    ------
    ClusterError
        If it is none.
    """
    return tuple(hosts_of(text, "slurm.conf")) if text else ()


def seconds(text: str) -> float:
    """Return the seconds of a time as Slurm writes limits and half-lives: minutes, ``m:s``,
    ``h:m:s``, ``d-h``, ``d-h:m`` and ``d-h:m:s``; inf where there is no limit.

    Raises
    ------
    ParameterError
        If it is none of these.
    """
    if text.strip().lower() in UNLIMITED:
        return inf
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if found is None:
        raise ParameterError(f"{text!r:.40} is no time; write it as 1-12:00:00, or in minutes.")
    days, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found[1] is not None:
        return float(((days * 24 + first) * 60 + second) * 60 + third)
    if found[4] is not None:
        return float((first * 60 + second) * 60 + third)
    return float(first * 60 + second)


@dataclass(frozen=True)
class NodeEntry:
    """One node as configured: memory in MB, GPUs by type ("" = not said), CPUs of a core and of a
    socket.
    """

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
    """One partition; times in seconds, memory in MB (0 = no default)."""

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
    """A ``slurm.conf``.

    Attributes
    ----------
    nodes, partitions : tuple
        In the order of the file.
    values : mapping
        Other keys in lower case -> value.
    options : mapping
        Of ``SchedulerParameters`` in lower case -> value, "" = a flag.
    where : mapping
        Key in lower case -> its line.
    findings : tuple of Finding
        What becomes of each setting.
    """

    nodes: tuple[NodeEntry, ...]
    partitions: tuple[PartitionEntry, ...]
    values: Mapping[str, str]
    options: Mapping[str, str]
    where: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def number(self, key: str, usual: float) -> float:
        """Return a number of the file, or what Slurm takes where it says nothing."""
        return self._as_number(key, self.values.get(key.lower()), usual)

    def option(self, key: str, usual: float) -> float:
        """Return a number of ``SchedulerParameters``."""
        return self._as_number(key, self.options.get(key.lower()), usual)

    def time_s(self, key: str, usual: str) -> float:
        """Return a time of the file in seconds."""
        return seconds(self.values.get(key.lower(), usual))

    @property
    def by_priority(self) -> bool:
        """Whether priorities are computed; else jobs go by submission."""
        return _one_of(self, "PriorityType", "priority/multifactor", _PRIORITIES)

    @property
    def by_switches(self) -> bool:
        """Whether jobs are kept under few switches."""
        return self.values.get("topologyplugin", "").strip().lower() == "topology/tree"

    def _as_number(self, key: str, text: str | None, usual: float) -> float:
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


def _one_of(config: SlurmConfig, key: str, usual: str, known: Mapping[str, bool]) -> bool:
    found = config.values.get(key.lower(), usual).strip().lower()
    if found not in known:
        raise ParameterError(
            f"slurm.conf, line {config.where.get(key.lower(), 0)}: {key}={found} cannot be"
            f" simulated; known are {', '.join(name for name in known if name)}."
        )
    return known[found]


def read_conf(text: str) -> SlurmConfig:
    """Read a ``slurm.conf``.

    Raises
    ------
    ParameterError
        If a line cannot be read, or a partition names a node that is nowhere described.
    """
    reading = _ConfigReader()
    for line in lines(text):
        reading.take(line)
    config = reading.config()
    if not config.partitions:
        raise ParameterError("slurm.conf: there is no partition; add a line PartitionName=...")
    return config


class _ConfigReader:
    """Lines become nodes, partitions and values, one after the other."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._where: dict[str, int] = {}
        self._findings: list[Finding] = []
        self._usual: dict[str, dict[str, str]] = {"node": {}, "partition": {}}
        self._nodes: dict[str, NodeEntry] = {}
        self._partitions: list[tuple[int, dict[str, str]]] = []

    def take(self, line: ConfigLine) -> None:
        """Read one line."""
        found = _PAIR.findall(line.text)
        pairs = {key.lower(): value.strip('"') for key, value in found}
        kind = next((kind for kind in self._usual if f"{kind}name" in pairs), "")
        if line.text.split()[0].lower() == "include":
            self._findings.append(_finding(line.number, "Include", line.text[7:].strip()))
        elif not pairs:
            raise ParameterError(
                f"slurm.conf, line {line.number}: {line.text!r:.60} is no KEY=VALUE."
            )
        elif kind:
            self._findings += [
                Finding("slurm.conf", line.number, key, text, *class_of_part(kind, key, text))
                for key, value in found
                for text in (value.strip('"'),)
            ]
            self._describe(kind, pairs, line.number)
        else:
            self._set(line)

    def _describe(self, kind: str, pairs: dict[str, str], number: int) -> None:
        usual, name = self._usual[kind], pairs[f"{kind}name"]
        if name.upper() == "DEFAULT":
            usual |= pairs
        elif kind == "partition":
            self._partitions.append((number, usual | pairs))
        else:
            made = {entry.name: entry for entry in _nodes(name, usual | pairs, number)}
            if twice := made.keys() & self._nodes.keys():
                why = f"describes {min(twice)} a second time: the last description counts"
                self._findings.append(Finding("slurm.conf", number, "NodeName", name, MISSED, why))
            self._nodes |= made

    def _set(self, line: ConfigLine) -> None:
        key, _, value = line.text.partition("=")
        key, value = key.strip(), value.strip().strip('"')
        if key.lower() in self._values:
            why = "is given a second time: the last one counts"
            self._findings.append(Finding("slurm.conf", line.number, key, value, MISSED, why))
        self._values[key.lower()], self._where[key.lower()] = value, line.number
        self._findings.append(_finding(line.number, key, value))

    def config(self) -> SlurmConfig:
        """Return what was read."""
        values = self._values
        config = SlurmConfig(
            tuple(self._nodes.values()),
            tuple(
                _partition(pairs, self._nodes, number, values) for number, pairs in self._partitions
            ),
            values,
            _options(values.get("schedulerparameters", "")),
            self._where,
        )
        found = [_with_turns(one) if _takes_turns(one, values) else one for one in self._findings]
        return replace(config, findings=(*found, *_of_options(config)))


def _takes_turns(one: Finding, values: Mapping[str, str]) -> bool:
    by_quality = values.get("preempttype", "").lower() == "preempt/qos"
    return by_quality and one.key.lower() == "preemptmode" and "suspend" in one.value.lower()


def _with_turns(one: Finding) -> Finding:
    why = "is not simulated between jobs of one partition: none is preempted"
    return one._replace(kind=MISSED, why=why)


def _finding(line: int, key: str, value: str) -> Finding:
    kind, why = class_of(key, value)
    if key.lower() == "schedulerparameters" and value.startswith("="):
        why = "has a doubled =, which Slurm reads as a single one"
    return Finding("slurm.conf", line, key, value, kind, why)


def _of_options(config: SlurmConfig) -> Iterator[Finding]:
    line = config.where.get("schedulerparameters", 0)
    for key, value in config.options.items():
        yield Finding("slurm.conf", line, key, value, *class_of_option(key, value))


def _options(text: str) -> dict[str, str]:
    # Slurm searches the text for each option, so that a doubled "=" before the first one works.
    found = {key.lower(): value or "" for key, value in _OPTION.findall(text)}
    return {_HISTORIC.get(key, key): value for key, value in found.items()}


def _nodes(name: str, pairs: Mapping[str, str], number: int) -> Iterator[NodeEntry]:
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
            gres_of(pairs.get("gres", "")),
            int(pairs.get("weight", "1")),
            re.match(r"(down|drain|fail|future)", pairs.get("state", ""), re.IGNORECASE) is None,
            int(pairs.get("threadspercore", "1")),
            max(cpus // (int(pairs.get("boards", "1")) * int(pairs.get("sockets", "1"))), 1),
        )
    except ValueError as error:
        raise ParameterError(f"slurm.conf, line {number}: a number cannot be read.") from error
    for host in hosts(name):
        yield replace(entry, name=host)


def gres_of(text: str) -> dict[str, int]:
    """Return the GPUs in a list of generic resources by type: ``gpu:a100:4(S:0-1)`` is 4 of a100.

    Other resources than GPUs do not count.
    """
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).lower().split(","):
        words = re.split(r"[:=]", part.removeprefix("gres/").removeprefix("gres:"))
        if words[0] != "gpu":
            continue
        count = int(words[-1]) if words[-1].isdigit() and len(words) > 1 else 1
        kind = words[1] if len(words) > 1 and not words[1].isdigit() else ""
        found[kind] = found.get(kind, 0) + count
    return found


def _partition(
    pairs: Mapping[str, str], nodes: Mapping[str, NodeEntry], number: int, values: Mapping[str, str]
) -> PartitionEntry:
    name, listed = pairs["partitionname"], pairs.get("nodes", "")
    members = tuple(nodes) if listed.upper() == "ALL" else hosts(listed)
    for host in members:
        if host not in nodes:
            raise ParameterError(
                f"slurm.conf, line {number}: partition {name} names the node {host}, which no"
                " NodeName describes."
            )
    try:
        max_s = seconds(pairs.get("maxtime", "UNLIMITED"))
        return PartitionEntry(
            name,
            members,
            pairs.get("default", "NO").upper() == "YES",
            max_s,
            seconds(pairs["defaulttime"]) if "defaulttime" in pairs else max_s,
            int(pairs.get("prioritytier", pairs.get("priority", "1"))),
            int(pairs.get("priorityjobfactor", pairs.get("priority", "1"))),
            float(pairs.get("defmempercpu", values.get("defmempercpu", "0"))),
            float(pairs.get("defmempernode", values.get("defmempernode", "0"))),
            pairs.get("oversubscribe", pairs.get("shared", "NO")).upper() == "EXCLUSIVE",
            _count(pairs.get("maxnodes", "UNLIMITED")),
            int(pairs.get("minnodes", "0")),
            _count(pairs.get("maxmempercpu", values.get("maxmempercpu", "0"))) or inf,
            _count(pairs.get("maxmempernode", values.get("maxmempernode", "0"))) or inf,
            _one_name(pairs.get("qos", "")),
            _some(pairs.get("allowaccounts", "ALL")),
            _some(pairs.get("denyaccounts", "")),
            _some(pairs.get("allowqos", "ALL")),
            _some(pairs.get("denyqos", "")),
            pairs.get("state", "UP").upper() in {"UP", "DRAIN"},
            tuple(weights_of(pairs.get("tresbillingweights", "")).items()),
            pairs.get("preemptmode", "").upper(),
            pairs.get("lln", "NO").upper() == "YES",
            pairs.get("exclusiveuser", "NO").upper() == "YES",
            float(max(int(pairs.get("gracetime", "0")), 0)),
        )
    except ValueError as error:
        raise ParameterError(f"slurm.conf, line {number}: a number cannot be read.") from error


def _count(text: str) -> float:
    return inf if text.strip().lower() in UNLIMITED else float(text)


def _one_name(text: str) -> str:
    return "" if text.strip().lower() in {"", "n/a", "none"} else text.strip().lower()


def _some(text: str) -> frozenset[str]:
    """Return names in lower case; all of them = none named."""
    names = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    return frozenset() if names & {"all", "(null)", "n/a"} else names


def weights_of(text: str) -> dict[str, float]:
    """Return weights per unit of a resource as Slurm writes them: ``CPU=1.0,Mem=0.25G,GRES/gpu=2``;
    memory per MB.
    """
    found: dict[str, float] = {}
    for key, number, unit in _WEIGHT.findall(text):
        scale = {"K": 1024.0, "M": 1.0, "G": 1 / 1024, "T": 1 / 1024**2}.get(unit.upper(), 1.0)
        found[key.lower()] = float(number) * scale
    return found


class Switch(NamedTuple):
    """A switch: its own nodes, or the switches below it."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]


def read_topology(text: str) -> tuple[Switch, ...]:
    """Read a ``topology.conf``, in its order.

    Raises
    ------
    ParameterError
        If a line is no switch, or switches form a ring.
    """
    found: list[Switch] = []
    where: dict[str, int] = {}
    for line in lines(text):
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.text)}
        if "switchname" not in pairs:
            raise ParameterError(f"topology.conf, line {line.number}: SwitchName= is missing.")
        name = pairs["switchname"]
        where[name] = line.number
        below = hosts(pairs.get("switches", ""))
        found.append(Switch(name, hosts(pairs.get("nodes", "")), below))
    above = {child: switch.name for switch in found for child in switch.switches}
    for child, parent in above.items():
        seen, at = {child}, parent
        while at in above:
            if at in seen:
                raise ParameterError(
                    f"topology.conf, line {where.get(at, 0)}: the switch {at} is above itself."
                )
            seen.add(at)
            at = above[at]
    return tuple(found)
