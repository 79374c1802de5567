"""Machines one by one become a cluster: equal ones are a row; read from Slurm's own descriptions,
or from a table with a row per node or kind of node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.errors import ClusterError, TraceError
from sim.limits import MOST_NODES
from sim.readers.capacity import LARGEST_BYTES
from sim.readers.format import ReadOptions
from sim.readers.slurm_fields import SCALE_GB
from sim.readers.sniff import plain
from sim.readers.source import ADVICE, open_source
from sim.readers.table import read_table
from trainyard.clusters.prices import known_like, speed_from
from trainyard.study import gpu_types
from trainyard.text import plural

UNNAMED: Final = "gpu"
"""What GPUs are called of which nobody says what they are."""
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("name", "node", "nodename", "node_name", "hostname", "sn", "node_id", "machineid"),
    "nodes": ("nodes", "count"),
    "gpus": ("gpus_per_node", "gpus", "gpu", "num_gpus", "gpu_capacity_num", "number_of_gpus"),
    "gpu_type": ("gpu_type", "type", "model", "gpu_model", "single_gpu_mem"),
    "cpus": ("cores", "cpus", "cpu", "cpu_num", "cpu_milli"),
    "mem_gb": ("memory_gb", "mem_gb", "memory_mib", "memory_mb", "realmemory"),
    "rack": ("rack_size",),
    "partitions": ("partitions", "partition"),
    "price": ("price_per_node_hour", "price_per_hour"),
}
_SCALE: Final = {
    "cpu_milli": 1e-3,
    "memory_mib": 1 / 1024,
    "memory_mb": 1 / 1024,
    "realmemory": 1 / 1024,
}
_PAI: Final = re.compile(rb"[0-9a-f]{24},\w*,\d+,\d+,\d+\r?\n")
_PAI_HEADER: Final = b"name,gpu_type,cpus,memory_gb,gpus\n"
"""Alibaba's pai_machine_spec has no header."""


class Machine(NamedTuple):
    """One node, or several equal ones.

    Parameters
    ----------
    name : str
        Of the node.
    gpus : int
        GPUs of it.
    gpu_type : str
        Their type as its users write it; "" without GPUs.
    cpus, mem_gb : float, cores and GB
        inf = not said.
    partitions : tuple of str
        Queues that may use it; empty = all.
    nodes : int
        How many there are.
    rack_size : int, nodes
        0 = all in one rack.
    price_per_hour : float or None, USD
        None = that of its GPUs.
    """

    name: str
    gpus: int = 0
    gpu_type: str = ""
    cpus: float = math.inf
    mem_gb: float = math.inf
    partitions: tuple[str, ...] = ()
    nodes: int = 1
    rack_size: int = 0
    price_per_hour: float | None = None


class Imported(NamedTuple):
    """A cluster that was read, and what is to be said of that.

    Parameters
    ----------
    cluster : Cluster
        The machines.
    notes : tuple of str
        What was assumed or left out, as sentences.
    unknown : tuple of str
        GPU types of which no speed is known; the cluster has placeholders for their figures.
    """

    cluster: Cluster
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def from_table(content: bytes, name: str) -> Imported | None:
    """Read a table with one row per node, or per kind of node if it has a column ``nodes``; None =
    it is no such table.

    Raises
    ------
    ClusterError
        If it is no table, or a cell cannot be used; names the row.
    """
    if _PAI.match(content):
        content = _PAI_HEADER + content
    try:
        table, report = read_table(
            open_source(content, name, ReadOptions(max_bytes=LARGEST_BYTES)), ReadOptions()
        )
    except TraceError as error:
        raise ClusterError(_of_machines(str(error))) from error
    columns = {
        key: next((column for column in names if column in table), "")
        for key, names in _COLUMNS.items()
    }
    found = {key: column for key, column in columns.items() if column}
    if "gpus" not in found or not {"gpu_type", "nodes", "name"} & found.keys():
        return None
    cells = table[list(found.values())].astype("str").to_dict("records")
    rows = [{key: str(row[column]).strip() for key, column in found.items()} for row in cells]
    machines = [
        _machine(row, found, f"{name}: row {at}") for at, row in zip(table.index, rows, strict=True)
    ]
    lost = report.issues(table.index)["reason"].value_counts()
    notes = [f"{plural(int(count), 'row')} left out: {reason}." for reason, count in lost.items()]
    return grouped([machine for machine in machines if machine.nodes], name, notes)


def only_machines(cells: Sequence[str]) -> bool:
    """Tell whether the first row of a table names nothing but what is said of machines: their
    columns, a virtual cluster and its nodes, or one line of PAI's machines.
    """
    known = {column for names in _COLUMNS.values() for column in names} | {""}
    names = [plain(cell) for cell in cells]
    return (
        (len(set(names)) == len(names) and len(names) > 2 and set(names) <= known)
        or names in (["", "num"], ["vc", "node_num"], ["vc", "nodes"])
        or _PAI.match(",".join(cells).encode() + b"\n") is not None
    )


def _of_machines(sentence: str) -> str:
    """Return what is wrong with a file as it is said of a file of machines: the same readers open
    traces.
    """
    return sentence.replace(
        f"not a trace. {ADVICE}",
        "not a description of machines. Use a CSV, JSON, or what Slurm prints.",
    ).replace("table of jobs", "table of nodes")


def grouped(machines: Iterable[Machine], name: str, notes: Iterable[str] = ()) -> Imported:
    """Put equal machines together.

    Raises
    ------
    ClusterError
        If there are none, or too many.
    """
    alike: dict[Machine, list[Machine]] = {}
    for machine in machines:
        alike.setdefault(machine._replace(name="", nodes=1), []).append(machine)
    if not alike:
        raise ClusterError(f"{name}: this describes no nodes. Use a file with at least one.")
    if (nodes := sum(machine.nodes for found in alike.values() for machine in found)) > MOST_NODES:
        raise ClusterError(
            f"{name}: {nodes:,} nodes; {MOST_NODES:,} is the most that is simulated. Leave some"
            " out."
        )
    groups: list[NodeGroup] = []
    for kind, found in alike.items():
        count = sum(machine.nodes for machine in found)
        prefix = _unique(
            _prefix([machine.name for machine in found]), [group.name for group in groups]
        )
        groups.append(
            NodeGroup(
                count,
                kind.gpus,
                kind.gpu_type,
                kind.cpus,
                kind.mem_gb,
                kind.rack_size,
                kind.partitions,
                kind.price_per_hour,
                prefix,
            )
        )
    types, remarks = _types(dict.fromkeys(group.gpu_type for group in groups if group.gpus))
    cluster = Cluster(tuple(groups), types, name=name)
    unknown = gpu_types.unknown(cluster, [kind.name for kind in types])
    return Imported(cluster, (*notes, *remarks), unknown)


def _types(names: Iterable[str]) -> tuple[tuple[GpuType, ...], list[str]]:
    types, remarks = [], []
    for name in names:
        if (like := known_like(name)) is None:
            continue
        types.append(replace(like, name=name))
        told = speed_from(types[-1])
        if told.startswith("guessed"):
            remarks.append(f"The speed of GPU type {name}, {like.speed:.3g}, is {told}.")
        elif like.name != name:
            remarks.append(f"The GPU type {name} has the speed and price of {like.name}.")
    return tuple(types), remarks


def _prefix(names: list[str]) -> str:
    first, last = min(names), max(names)
    shared = next(
        (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other),
        min(len(first), len(last)),
    )
    return first[:shared].rstrip("0123456789-_.[")


def _unique(name: str, there: list[str]) -> str:
    return next(
        made
        for turn in range(1, len(there) + 2)
        if (made := name if turn == 1 else f"{name}-{turn}") not in there or not name
    )


def _machine(row: Mapping[str, str], columns: Mapping[str, str], where: str) -> Machine:
    def number(key: str, missing: float) -> float:
        text = _told(row, key)
        if not text:
            return missing
        column, made = columns[key], _float(text)
        if not 0 <= made < math.inf:
            raise ClusterError(
                f"{where}: {column} = {text[:40]} is not a number that is not negative. Correct the"
                " cell."
            )
        return made * _SCALE.get(column, 1.0)

    def whole(key: str, missing: int) -> int:
        made = number(key, missing)
        if made != int(made):
            raise ClusterError(
                f"{where}: {columns[key]} = {made:g} is not a whole number. Correct the cell."
            )
        return int(made)

    gpus, price = whole("gpus", 0), number("price", math.nan)
    return Machine(
        _told(row, "name"),
        gpus,
        plain_type(_told(row, "gpu_type")) if gpus else "",
        number("cpus", math.inf),
        number("mem_gb", math.inf),
        tuple(
            part.strip() for part in re.split(r"[,;|]", _told(row, "partitions")) if part.strip()
        ),
        whole("nodes", 1),
        whole("rack", 0),
        None if math.isnan(price) else price,
    )


def _told(row: Mapping[str, str], key: str) -> str:
    text = row.get(key, "")
    return "" if text.lower() in ("nan", "none", "null", "<na>") else text


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def plain_type(text: str) -> str:
    """Return the name of a GPU type as a cluster writes it: lower case, without spaces; GPUs
    without one are called `UNNAMED`.
    """
    return text.lower().replace(" ", "") or UNNAMED


Fields = dict[str, str]
"""Keyword in lower case -> value."""
_TOKEN: Final = re.compile(r'([A-Za-z][\w/:]*)=("[^"]*"|\S*)')
_RANGE: Final = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
_LONGEST: Final = 1000
"""Letters of one pattern of hosts."""
_MOST_NAMED: Final = 20 * MOST_NODES
"""Hosts of all lists together; one may be named on several lines, and belong to several partitions.
"""
_AWAY: Final = ("DOWN", "DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "RESERVED")
"""How states of nodes begin that run no jobs; nodes that are switched off to save power do."""
_ABSENT: Final = ("FUTURE",)
_SINFO: Final = re.compile(
    r"[^|\s]+\|[^|\s]*\|[^|]*\|\d+\+?\|\d+\+?\|(?i:idle|mix|alloc|comp|drain|down|fail|maint|resv"
    r"|reserved|planned|unk|future|power|inval|boot|reboot)[^|]*(\|[^|]*)?"
)


def is_slurm(text: str) -> bool:
    """Tell whether a text describes nodes as Slurm does."""
    return re.search(r"^\s*NodeName=", text, re.MULTILINE | re.IGNORECASE) is not None


def from_slurm(text: str, name: str, *, away: bool = False) -> Imported:
    """Read what describes nodes in Slurm's own words.

    Parameters
    ----------
    text : str
        slurm.conf, or what ``scontrol show node`` prints.
    name : str
        Of the file.
    away : bool
        Whether nodes count that are down, drained, failed, reserved or in maintenance.

    Raises
    ------
    ClusterError
        If a list of hosts or a number cannot be read, or there are no nodes.
    """
    shown = "CPUTot=" in text
    records = [
        {key.lower(): value.strip('"') for key, value in _TOKEN.findall(line)}
        for line in (_shown(text) if shown else _configured(text))
    ]
    notes = (
        []
        if shown or not re.search(r"^\s*include\s", text, re.MULTILINE | re.IGNORECASE)
        else ["Files that it includes were not read."]
    )
    nodes = _nodes(records, name)
    members = _members(records, list(nodes), name)
    machines = []
    for host, fields in _present(nodes, name, away=away).items():
        own = fields.get("partitions", "")
        parts = (
            tuple(part for part in own.split(",") if part)
            if own
            else tuple(part for part, hosts in members.items() if host in hosts)
        )
        machines += _machines(host, fields, parts, name)
    return grouped(machines, name, [*notes, *_remarks(nodes, away=away)])


def is_sinfo(text: str) -> bool:
    """Tell whether a text is what ``sinfo -N -h -o "%N|%P|%G|%c|%m|%T|%f"`` prints, with or without
    the line of titles and the features.
    """
    lines = [line for line in text.splitlines()[:21] if line.strip()]
    rows = lines[1:] if lines and lines[0].upper().startswith("NODELIST|") else lines
    return bool(rows) and all(_SINFO.fullmatch(line.strip()) for line in rows)


def from_sinfo(text: str, name: str, *, away: bool = False) -> Imported:
    """Read what ``sinfo -N -h -o "%N|%P|%G|%c|%m|%T|%f"`` prints: one line per node and partition,
    which become one node.

    Parameters
    ----------
    text, name, away
        As for `from_slurm`.

    Raises
    ------
    ClusterError
        If a line cannot be read, or no node is left.
    """
    nodes: dict[str, Fields] = {}
    parts: dict[str, dict[str, None]] = {}
    for at, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.upper().startswith("NODELIST|"):
            continue
        if not _SINFO.fullmatch(line):
            raise ClusterError(
                f'{name}: line {at} is not what sinfo -N -h -o "%N|%P|%G|%c|%m|%T|%f" prints.'
                " Export it again."
            )
        hosts, part, gres, cpus, memory, state, *_ = line.split("|")
        fields = {"gres": gres, "cpus": cpus.rstrip("+"), "realmemory": memory.rstrip("+")}
        for host in hosts_of(hosts, name):
            nodes[host] = fields | {"state": state}
            parts.setdefault(host, {})[part.rstrip("*")] = None
    machines = [
        machine
        for host, fields in _present(nodes, name, away=away).items()
        for machine in _machines(host, fields, tuple(parts[host]), name)
    ]
    return grouped(machines, name, _remarks(nodes, away=away))


def from_slurm_json(data: Mapping[str, Any], name: str, *, away: bool = False) -> Imported:
    """Read what ``scontrol show nodes --json`` and slurmrestd print; `away` as for `from_slurm`.

    Raises
    ------
    ClusterError
        If it holds no nodes, or a number cannot be read.
    """
    nodes: dict[str, Fields] = {}
    machines = []
    for at, node in enumerate(data["nodes"]):
        if not isinstance(node, Mapping):
            raise ClusterError(
                f"{name}: node {at + 1} is no table. Use what scontrol show nodes --json prints."
            )
        state, parts = node.get("state", ()), node.get("partitions", ())
        fields = {key: str(node.get(key) or "") for key in ("cpus", "gres", "tres")} | {
            "realmemory": str(node.get("real_memory") or "")
        }
        fields |= {
            "cfgtres": fields["tres"],
            "state": "+".join(map(str, state)) if isinstance(state, list) else str(state),
        }
        host = str(node.get("name") or f"node{at + 1}")
        nodes[host] = fields
        if away or not _is_away(fields):
            machines += _machines(
                host, fields, tuple(map(str, parts)) if isinstance(parts, list) else (), name
            )
    _present(nodes, name, away=away)
    return grouped(machines, name, _remarks(nodes, away=away))


def hosts_of(text: str, name: str) -> list[str]:
    """Return the hosts of a list such as ``gpu[001-016,020],login``; brackets may occur several
    times in a name.

    Raises
    ------
    ClusterError
        If it is no such list, or longer than any cluster.
    """
    hosts = [
        host
        for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text)
        for host in _unfolded(part.strip(), name)
    ]
    if len(hosts) > MOST_NODES:
        raise ClusterError(
            f"{name}: {text[:60]} are {len(hosts):,} nodes; {MOST_NODES:,} is the most that is"
            " simulated. Leave some out."
        )
    return hosts


def _unfolded(part: str, name: str) -> list[str]:
    if len(part) > _LONGEST:
        raise ClusterError(
            f"{name}: '{part[:60]}' … has {len(part):,} letters, so it is no list of hosts."
            " Correct it."
        )
    made = [""]
    for outside, inside in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
        ends = (
            [outside]
            if outside
            else [
                number
                for piece in inside.split(",")
                for number in _numbers(piece.strip(), part, name)
            ]
        )
        if len(made) * len(ends) > MOST_NODES:
            raise ClusterError(
                f"{name}: {part[:60]} are more than {MOST_NODES:,} nodes, the most that is"
                " simulated. Leave some out."
            )
        made = [host + end for host in made for end in ends]
    if part.count("[") != part.count("]") or (not part and made == [""]):
        raise ClusterError(
            f"{name}: '{part[:60]}' is not a list of hosts such as gpu[001-016,020]. Correct it."
        )
    return made


def _numbers(piece: str, part: str, name: str) -> list[str]:
    found = _RANGE.fullmatch(piece)
    if found is None or (
        found[2] and not int(found[1]) <= int(found[2]) <= int(found[1]) + MOST_NODES
    ):
        raise ClusterError(
            f"{name}: '{part[:60]}' is not a list of hosts such as gpu[001-016,020]. Correct it."
        )
    return [f"{at:0{len(found[1])}d}" for at in range(int(found[1]), int(found[2] or found[1]) + 1)]


def _shown(text: str) -> Iterator[str]:
    """Return one line per node, whether it was printed on one or on several."""
    blocks = re.split(r"^(?=\s*NodeName=)", text, flags=re.MULTILINE)
    return (" ".join(block.split()) for block in blocks if "NodeName=" in block)


def _configured(text: str) -> Iterator[str]:
    joined = re.sub(r"\\\r?\n", " ", text)
    return (line for raw in joined.splitlines() if (line := re.split(r"(?<!\\)#", raw)[0].strip()))


def _nodes(records: Iterable[Fields], name: str) -> dict[str, Fields]:
    """Return the hosts with what is said of them; lines of NodeName=DEFAULT count for those
    below.
    """
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
        raise ClusterError(
            f"{name}: its lists name more than {_MOST_NAMED:,} nodes together. Leave some out."
        )
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
    """Return a node; one with GPUs of several types becomes several nodes that share its cores and
    memory by GPUs.
    """
    if _is(fields, _ABSENT):
        return []
    gpus = _gpus(fields.get("gres", "")) or _gpus(
        fields.get("cfgtres", "").replace("gres/", "").replace("=", ":")
    )
    cpus, mem_gb = (
        _cpus(fields, host, name),
        _number(fields, "realmemory", host, name) * SCALE_GB["M"],
    )
    total = sum(gpus.values())
    if not total:
        return [
            Machine(
                host, cpus=cpus or float("inf"), mem_gb=mem_gb or float("inf"), partitions=parts
            )
        ]
    return [
        Machine(
            host,
            count,
            kind,
            (cpus or float("inf")) * count / total,
            (mem_gb or float("inf")) * count / total,
            parts,
        )
        for kind, count in gpus.items()
    ]


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
    cpus = _number(fields, "cputot", host, name) or _number(fields, "cpus", host, name)
    if cpus:
        return cpus
    sockets = (_number(fields, "boards", host, name) or 1) * _number(
        fields, "socketsperboard", host, name
    ) or _number(fields, "sockets", host, name)
    cores, threads = (
        _number(fields, key, host, name) or 1 for key in ("corespersocket", "threadspercore")
    )
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


def _is_away(fields: Fields) -> bool:
    states = re.split(r"[+ ]", fields.get("state", "").upper())
    return any(state.startswith(_AWAY) for state in states)


def _present(nodes: Mapping[str, Fields], name: str, *, away: bool) -> dict[str, Fields]:
    """Return the nodes that run jobs, and with `away` all."""
    found = {host: fields for host, fields in nodes.items() if away or not _is_away(fields)}
    if nodes and not found:
        raise ClusterError(
            f"{name}: all of its {plural(len(nodes), 'node')} are down, drained or reserved. Count"
            " such nodes too, or export them again."
        )
    return found


def _remarks(nodes: Mapping[str, Fields], *, away: bool) -> list[str]:
    absent = sum(_is(fields, _ABSENT) for fields in nodes.values())
    gone = sum(map(_is_away, nodes.values()))
    several = sum(len(_gpus(fields.get("gres", ""))) > 1 for fields in nodes.values())
    counts = [
        (absent, "in state FUTURE: left out, because there is no such machine yet"),
        (
            gone,
            "down, drained or reserved: "
            + ("counted all the same, as if they worked" if away else "left out"),
        ),
        (
            several,
            (
                "with GPUs of several types: each becomes several nodes of one type, which share"
                " its cores and memory"
            ),
        ),
    ]
    return [f"{plural(count, 'node')} {what}." for count, what in counts if count]
