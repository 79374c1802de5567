"""The nodes of a Slurm cluster, from slurm.conf, from ``scontrol show node`` (also on one line each), or from ``scontrol show nodes --json``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sim.errors import ClusterError
from sim.limits import MOST_NODES
from sim.readers.slurm_fields import SCALE_GB
from trainyard.clusters.node_lists import Imported, Machine, grouped, plain_type
from trainyard.text import plural

Fields = dict[str, str]
"""Keyword in lower case -> value."""
_TOKEN: Final = re.compile(r'([A-Za-z][\w/:]*)=("[^"]*"|\S*)')
_RANGE: Final = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
_LONGEST: Final = 1000
"""Letters of one pattern of hosts."""
_MOST_NAMED: Final = 20 * MOST_NODES
"""Hosts of all lists together; one may be named on several lines, and belong to several partitions."""
_AWAY: Final = ("DOWN", "DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "POWER_DOWN", "POWERED_DOWN")
_ABSENT: Final = ("FUTURE",)


def is_slurm(text: str) -> bool:
    """Tell whether a text describes nodes as Slurm does."""
    return re.search(r"^\s*NodeName=", text, re.MULTILINE | re.IGNORECASE) is not None


def from_slurm(text: str, name: str) -> Imported:
    """Read what describes nodes in Slurm's own words.

    Parameters
    ----------
    text : str
        slurm.conf, or what ``scontrol show node`` prints.
    name : str
        Of the file.

    Raises
    ------
    ClusterError
        If a list of hosts or a number cannot be read, or there are no nodes.
    """
    shown = "CPUTot=" in text
    records = [{key.lower(): value.strip('"') for key, value in _TOKEN.findall(line)} for line in (_shown(text) if shown else _configured(text))]
    notes = [] if shown or not re.search(r"^\s*include\s", text, re.MULTILINE | re.IGNORECASE) else ["Files that it includes were not read."]
    nodes = _nodes(records, name)
    members = _members(records, list(nodes), name)
    machines = []
    for host, fields in nodes.items():
        own = fields.get("partitions", "")
        parts = tuple(part for part in own.split(",") if part) if own else tuple(part for part, hosts in members.items() if host in hosts)
        machines += _machines(host, fields, parts, name)
    return grouped(machines, name, [*notes, *_remarks(nodes)])


def from_slurm_json(data: Mapping[str, Any], name: str) -> Imported:
    """Read what ``scontrol show nodes --json`` prints.

    Raises
    ------
    ClusterError
        If it holds no nodes, or a number cannot be read.
    """
    nodes: dict[str, Fields] = {}
    machines = []
    for at, node in enumerate(data["nodes"]):
        if not isinstance(node, Mapping):
            raise ClusterError(f"{name}: node {at + 1} is no table. Use what scontrol show nodes --json prints.")
        state, parts = node.get("state", ()), node.get("partitions", ())
        fields = {key: str(node.get(key) or "") for key in ("cpus", "gres", "tres")} | {"realmemory": str(node.get("real_memory") or "")}
        fields |= {"cfgtres": fields["tres"], "state": "+".join(map(str, state)) if isinstance(state, list) else str(state)}
        host = str(node.get("name") or f"node{at + 1}")
        nodes[host] = fields
        machines += _machines(host, fields, tuple(map(str, parts)) if isinstance(parts, list) else (), name)
    return grouped(machines, name, _remarks(nodes))


def hosts_of(text: str, name: str) -> list[str]:
    """Return the hosts of a list such as ``gpu[001-016,020],login``; brackets may occur several times in a name.

    Raises
    ------
    ClusterError
        If it is no such list, or longer than any cluster.
    """
    hosts = [host for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text) for host in _unfolded(part.strip(), name)]
    if len(hosts) > MOST_NODES:
        raise ClusterError(f"{name}: {text[:60]} are {len(hosts):,} nodes; {MOST_NODES:,} is the most that is simulated. Leave some out.")
    return hosts


def _unfolded(part: str, name: str) -> list[str]:
    if len(part) > _LONGEST:
        raise ClusterError(f"{name}: '{part[:60]}' … has {len(part):,} letters, so it is no list of hosts. Correct it.")
    made = [""]
    for plain, inside in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
        ends = [plain] if plain else [number for piece in inside.split(",") for number in _numbers(piece.strip(), part, name)]
        if len(made) * len(ends) > MOST_NODES:
            raise ClusterError(f"{name}: {part[:60]} are more than {MOST_NODES:,} nodes, the most that is simulated. Leave some out.")
        made = [host + end for host in made for end in ends]
    if part.count("[") != part.count("]") or (not part and made == [""]):
        raise ClusterError(f"{name}: '{part[:60]}' is not a list of hosts such as gpu[001-016,020]. Correct it.")
    return made


def _numbers(piece: str, part: str, name: str) -> list[str]:
    found = _RANGE.fullmatch(piece)
    if found is None or (found[2] and not int(found[1]) <= int(found[2]) <= int(found[1]) + MOST_NODES):
        raise ClusterError(f"{name}: '{part[:60]}' is not a list of hosts such as gpu[001-016,020]. Correct it.")
    return [f"{at:0{len(found[1])}d}" for at in range(int(found[1]), int(found[2] or found[1]) + 1)]


def _shown(text: str) -> Iterator[str]:
    """Return one line per node, whether it was printed on one or on several."""
    blocks = re.split(r"^(?=\s*NodeName=)", text, flags=re.MULTILINE)
    return (" ".join(block.split()) for block in blocks if "NodeName=" in block)


def _configured(text: str) -> Iterator[str]:
    joined = re.sub(r"\\\r?\n", " ", text)
    return (line for raw in joined.splitlines() if (line := re.split(r"(?<!\\)#", raw)[0].strip()))


def _nodes(records: Iterable[Fields], name: str) -> dict[str, Fields]:
    """Return the hosts with what is said of them; lines of NodeName=DEFAULT count for those below."""
    found: dict[str, Fields] = {}
    default: Fields = {}
    named = 0
    for fields in records:
        if "nodename" not in fields:
            continue
        if fields["nodename"].upper() == "DEFAULT":
            default = {**default, **fields}
            continue
        complete = default | fields
        hosts = hosts_of(fields["nodename"], name)
        named = _counted(named + len(hosts), name)
        found |= dict.fromkeys(hosts, complete)
    return found


def _counted(named: int, name: str) -> int:
    if named > _MOST_NAMED:
        raise ClusterError(f"{name}: its lists name more than {_MOST_NAMED:,} nodes together. Leave some out.")
    return named


def _members(records: Iterable[Fields], hosts: list[str], name: str) -> dict[str, set[str]]:
    """Return the hosts of each partition."""
    made: dict[str, set[str]] = {}
    sets: dict[str, set[str]] = {}
    default: Fields = {}
    named = 0
    for fields in records:
        if "nodeset" in fields and "nodes" in fields:
            sets[fields["nodeset"]] = set(hosts_of(fields["nodes"], name))
        if (part := fields.get("partitionname", "")).upper() == "DEFAULT":
            default = {**default, **fields}
        elif part:
            text = fields.get("nodes", default.get("nodes", ""))
            chosen = hosts if text.upper() == "ALL" else hosts_of(text, name) if text else []
            made[part] = {host for one in chosen for host in sets.get(one, {one})}
            named = _counted(named + len(made[part]), name)
    return made


def _machines(host: str, fields: Fields, parts: tuple[str, ...], name: str) -> list[Machine]:
    """Return a node; one with GPUs of several types becomes several nodes that share its cores and memory by GPUs."""
    if _is(fields, _ABSENT):
        return []
    gpus = _gpus(fields.get("gres", "")) or _gpus(fields.get("cfgtres", "").replace("gres/", "").replace("=", ":"))
    cpus, mem_gb = _cpus(fields, host, name), _number(fields, "realmemory", host, name) * SCALE_GB["M"]
    total = sum(gpus.values())
    if not total:
        return [Machine(host, cpus=cpus or float("inf"), mem_gb=mem_gb or float("inf"), partitions=parts)]
    return [Machine(host, count, kind, (cpus or float("inf")) * count / total, (mem_gb or float("inf")) * count / total, parts) for kind, count in gpus.items()]


def _gpus(gres: str) -> dict[str, int]:
    """Return GPUs by type of a list such as ``gpu:a100:4(S:0-1),nvme:1``."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        kind, *rest = part.strip().split(":")
        if kind.lower() != "gpu":
            continue
        rest = [piece for piece in rest if piece.lower() != "no_consume"]
        # Ten digits are too many GPUs, however many more there are.
        count = int(rest.pop()[:10]) if rest and rest[-1].isdecimal() else 1
        named = plain_type("_".join(rest))
        found[named] = found.get(named, 0) + count
    # "gpu=4,gpu:a100=4" counts the same GPUs twice: as a sum, and by type.
    named_only = {kind: count for kind, count in found.items() if kind != plain_type("")}
    return {kind: count for kind, count in (named_only or found).items() if count}


def _cpus(fields: Fields, host: str, name: str) -> float:
    told = _number(fields, "cputot", host, name) or _number(fields, "cpus", host, name)
    if told:
        return told
    sockets = (_number(fields, "boards", host, name) or 1) * _number(fields, "socketsperboard", host, name) or _number(fields, "sockets", host, name)
    cores, threads = (_number(fields, key, host, name) or 1 for key in ("corespersocket", "threadspercore"))
    return sockets * cores * threads


def _number(fields: Fields, key: str, host: str, name: str) -> float:
    """Return a number, 0 where it is not given."""
    text = fields.get(key, "")
    if not text:
        return 0.0
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise ClusterError(f"{name}: node {host}: {key} = {text[:40]} is not a number. Correct it.")
    return float(text)


def _is(fields: Fields, states: Iterable[str]) -> bool:
    return any(state in fields.get("state", "").upper() for state in states)


def _remarks(nodes: Mapping[str, Fields]) -> list[str]:
    absent, away = (sum(_is(fields, states) for fields in nodes.values()) for states in (_ABSENT, _AWAY))
    several = sum(len(_gpus(fields.get("gres", ""))) > 1 for fields in nodes.values())
    told = [
        (absent, "in state FUTURE: left out, because there is no such machine yet"),
        (away, "down or drained: taken all the same, as if they worked"),
        (several, "with GPUs of several types: each becomes several nodes of one type, which share its cores and memory"),
    ]
    return [f"{plural(count, 'node')} {what}." for count, what in told if count]
