"""What a site wrote down: ``slurm.conf``, ``topology.conf``, associations of ``sacctmgr``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from allocators.slurm.fairshare import Association
from sim.errors import ParameterError
from trainyard.clusters.node_lists import hosts_of

UNLIMITED: Final = frozenset({"unlimited", "infinite", "none", "-1", ""})
_PAIR: Final = re.compile(r"([\w.]+)\s*=\s*(\"[^\"]*\"|\S+)")
_OPTION: Final = re.compile(r"(?:^|[,=])\s*([a-z]\w*)(?:=([^,]*))?", re.IGNORECASE)
_HISTORIC: Final[Mapping[str, str]] = {"max_job_bf": "bf_max_job_test"}
_TOPOLOGIES: Final[Mapping[str, bool]] = {
    "": False,
    "topology/none": False,
    "topology/flat": False,
    "topology/default": False,
    "topology/tree": True,
}
_PRIORITIES: Final[Mapping[str, bool]] = {"priority/basic": False, "priority/multifactor": True}


class Line(NamedTuple):
    """One logical line: where it begins, and its text."""

    number: int
    text: str


def lines(text: str) -> Iterator[Line]:
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
            yield Line(begun, whole)
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
    """One node as configured: memory in MB, GPUs by type ("" = not said)."""

    name: str
    cpus: int
    mem_mb: float
    features: frozenset[str]
    gres: Mapping[str, int]
    weight: int
    up: bool


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
    """

    nodes: tuple[NodeEntry, ...]
    partitions: tuple[PartitionEntry, ...]
    values: Mapping[str, str]
    options: Mapping[str, str]
    where: Mapping[str, int] = field(default_factory=dict)

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
        return _one_of(self, "TopologyPlugin", "", _TOPOLOGIES)

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
    values: dict[str, str] = {}
    where: dict[str, int] = {}
    usual_node: dict[str, str] = {}
    usual_partition: dict[str, str] = {}
    nodes: dict[str, NodeEntry] = {}
    partitions: list[tuple[int, dict[str, str]]] = []
    for line in lines(text):
        pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line.text)}
        if not pairs:
            raise ParameterError(
                f"slurm.conf, line {line.number}: {line.text!r:.60} is no KEY=VALUE."
            )
        if "nodename" in pairs:
            name = pairs.pop("nodename")
            if name.upper() == "DEFAULT":
                usual_node |= pairs
                continue
            for entry in _nodes(name, usual_node | pairs, line.number):
                nodes[entry.name] = entry
        elif "partitionname" in pairs:
            if pairs["partitionname"].upper() == "DEFAULT":
                usual_partition |= pairs
            else:
                partitions.append((line.number, usual_partition | pairs))
        else:
            key, _, value = line.text.partition("=")
            values[key.strip().lower()] = value.strip().strip('"')
            where[key.strip().lower()] = line.number
    config = SlurmConfig(
        tuple(nodes.values()),
        tuple(_partition(pairs, nodes, number, values) for number, pairs in partitions),
        values,
        _options(values.get("schedulerparameters", "")),
        where,
    )
    if not config.partitions:
        raise ParameterError("slurm.conf: there is no partition; add a line PartitionName=...")
    return config


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
        )
    except ValueError as error:
        raise ParameterError(f"slurm.conf, line {number}: a number cannot be read.") from error
    for host in hosts(name):
        yield NodeEntry(
            host,
            entry.cpus,
            entry.mem_mb,
            entry.features,
            entry.gres,
            entry.weight,
            entry.up,
        )


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
        )
    except ValueError as error:
        raise ParameterError(f"slurm.conf, line {number}: a number cannot be read.") from error


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
        If a line is no switch.
    """
    found: list[Switch] = []
    for line in lines(text):
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.text)}
        if "switchname" not in pairs:
            raise ParameterError(f"topology.conf, line {line.number}: SwitchName= is missing.")
        found.append(
            Switch(
                pairs["switchname"],
                hosts(pairs.get("nodes", "")),
                hosts(pairs.get("switches", "")),
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class Associations:
    """Who may use the cluster, and the priorities of the qualities of service."""

    entries: tuple[Association, ...]
    qos: Mapping[str, int]


def read_associations(text: str) -> Associations:
    """Read what ``sacctmgr dump`` writes, or a script of ``sacctmgr`` commands.

    Raises
    ------
    ParameterError
        If a user or account names an account that is not there, or an account its own child.
    """
    entries: list[Association] = []
    qos: dict[str, int] = {}
    parent = "root"
    for line in lines(text):
        head, _, rest = line.text.partition(" - ")
        if rest and head.strip().lower() in {"cluster", "parent", "account", "user"}:
            kind, _, fields = head.strip().lower(), "", rest
            name, _, tail = fields.partition(":")
            name = name.strip().strip("'\"")
            pairs = {
                key.lower(): value.strip("'\"")
                for key, value in re.findall(r"(\w+)=('[^']*'|[^:]+)", tail)
            }
            if kind == "parent":
                parent = name
            elif kind == "account":
                entries.append(Association(name, "", parent, _shares(pairs, line.number)))
            elif kind == "user":
                entries.append(Association(parent, name, parent, _shares(pairs, line.number)))
            continue
        _command(line, entries, qos)
    known = {entry.account for entry in entries if not entry.user} | {"root"}
    for entry in entries:
        if entry.parent not in known:
            named = entry.user or entry.account
            raise ParameterError(
                f"sacctmgr: {named} belongs to the account {entry.parent}, which is not there."
            )
    _refuse_rings(entries)
    return Associations(tuple(entries), qos)


def _command(line: Line, entries: list[Association], qos: dict[str, int]) -> None:
    words = line.text.split()
    verb, what = words[0].lower(), words[1].lower() if len(words) > 1 else ""
    pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line.text)}
    if verb == "sacctmgr":
        _command(Line(line.number, " ".join(words[1:])), entries, qos)
    elif what == "qos":
        name = pairs.get("name") or next((w for w in words[2:] if "=" not in w), "")
        if "priority" in pairs and name.lower() not in {"set", "where"}:
            qos[name] = int(pairs["priority"])
    elif verb in {"add", "create"} and what == "account":
        parent = pairs.get("parent", "root")
        entries.append(Association(pairs.get("name", ""), "", parent, _shares(pairs, line.number)))
    elif verb in {"add", "create"} and what == "user":
        account = pairs.get("account", pairs.get("defaultaccount", "root"))
        entries.append(
            Association(account, pairs.get("name", ""), account, _shares(pairs, line.number))
        )


def _shares(pairs: Mapping[str, str], number: int) -> int | None:
    text = pairs.get("fairshare", pairs.get("shares", "1"))
    if text.lower() == "parent":
        return None
    if not text.isdigit():
        raise ParameterError(f"sacctmgr, line {number}: Fairshare={text!r:.30} is no number.")
    return int(text)


def _refuse_rings(entries: Sequence[Association]) -> None:
    above = {entry.account: entry.parent for entry in entries if not entry.user}
    for account, parent in above.items():
        seen, at = {account}, parent
        while at in above:
            if at in seen:
                raise ParameterError(f"sacctmgr: the account {at} is its own parent.")
            seen.add(at)
            at = above[at]
