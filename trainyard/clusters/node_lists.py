"""Machines one by one become a cluster: equal ones are a row; read from Slurm's own descriptions,
or from a table with a row per node or kind of node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from jobtraces.readers.content import Content, plain_name
from jobtraces.readers.files import ADVICE, open_source
from jobtraces.readers.options import Question, ReadOptions
from jobtraces.readers.table import read_table
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.errors import ClusterError, TraceError
from sim.hosts import compress_hosts, expand_hosts
from sim.instances import closest_instance, find_instance
from sim.limits import MAX_NODES
from trainyard.clusters.gres import with_types
from trainyard.clusters.prices import known_like, speed_from
from trainyard.study import gpu_types
from trainyard.text import plural

UNNAMED: Final = "gpu"
"""What GPUs are called of which nobody says what they are."""
LARGEST_BYTES: Final = 50_000_000
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("name", "node", "nodename", "node_name", "hostname", "sn", "node_id", "machineid"),
    "nodes": ("nodes", "count"),
    "gpus": (
        "gpus_per_node",
        "gpus",
        "gpu",
        "num_gpus",
        "gpu_capacity_num",
        "number_of_gpus",
        "num_gpu_p_node",
    ),
    "gpu_type": ("gpu_type", "type", "model", "gpu_model", "single_gpu_mem"),
    "cpus": ("cores", "cpus", "cpu", "cpu_num", "cpu_milli", "num_cpu_p_node"),
    "mem_gb": ("memory_gb", "mem_gb", "memory_mib", "memory_mb", "realmemory", "mem_p_node"),
    "rack": ("rack_size", "num_node_p_switch"),
    "racks": ("num_switch",),
    "partitions": ("partitions", "partition"),
    "price": ("price_per_node_hour", "price_per_hour"),
    "instance": ("instance", "instance_type", "machine_type", "vm_size"),
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
    features : tuple of str
        What jobs may ask for by a constraint.
    weight : int
        Lighter nodes are used first.
    gres : tuple of (str, int)
        Countable resources besides GPUs.
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
    features: tuple[str, ...] = ()
    weight: int = 1
    gres: tuple[tuple[str, int], ...] = ()


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
    asked : tuple of Question
        What the file leaves open, and how it was read all the same.
    """

    cluster: Cluster
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    asked: tuple[Question, ...] = ()


def open_machines(content: bytes, name: str) -> Content:
    """Unpack a table of machines; one of PAI gets the header that it lacks.

    Raises
    ------
    ClusterError
        If it cannot be opened.
    """
    if _PAI.match(content):
        content = _PAI_HEADER + content
    try:
        return open_source(content, name, ReadOptions(max_bytes=LARGEST_BYTES))
    except TraceError as error:
        raise ClusterError(_of_machines(str(error))) from error


def from_table(opened: Content) -> Imported | None:
    """Read a table with one row per node, or per kind of node if it has a column ``nodes``; None =
    it is no such table.

    Raises
    ------
    ClusterError
        If it is no table, or a cell cannot be used; names the row.
    """
    name = opened.name
    try:
        table, report = read_table(opened, ReadOptions())
    except TraceError as error:
        raise ClusterError(_of_machines(str(error))) from error
    columns = {
        key: next((column for column in names if column in table), "")
        for key, names in _COLUMNS.items()
    }
    found = {key: column for key, column in columns.items() if column}
    if "instance" not in found and (
        "gpus" not in found or not {"gpu_type", "nodes", "name", "racks"} & found.keys()
    ):
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
    columns, a day and virtual clusters, or one line of PAI's machines.
    """
    known = {column for names in _COLUMNS.values() for column in names} | {""}
    names = [plain_name(cell) for cell in cells]
    return (
        (len(set(names)) == len(names) and len(names) > 2 and set(names) <= known)
        or (len(names) > 2 and names[0] == "date" and names[-1] == "total")
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


def grouped(
    machines: Iterable[Machine], name: str, notes: Iterable[str] = (), *, keep_names: bool = False
) -> Imported:
    """Put equal machines together; with `keep_names` nodes have the names of the machines, where
    no two share one.

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
    if (nodes := sum(machine.nodes for found in alike.values() for machine in found)) > MAX_NODES:
        raise ClusterError(
            f"{name}: {nodes:,} nodes; {MAX_NODES:,} is the most that is simulated. Leave some out."
        )
    names = [machine.name for found in alike.values() for machine in found]
    keep_names = keep_names and len(set(names)) == nodes
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
                kind.features,
                kind.weight,
                gres=kind.gres,
                hosts=compress_hosts([machine.name for machine in found]) if keep_names else "",
            )
        )
    types, remarks = _types(dict.fromkeys(group.gpu_type for group in groups if group.gpus))
    cluster = Cluster(tuple(groups), types, name=name)
    unknown = gpu_types.unknown_types(cluster, [kind.name for kind in types])
    if [kind.name for kind in cluster.types] == [UNNAMED]:
        # Speeds are relative, so that of the only type there is does not matter.
        unknown = ()
        remarks.append("The file names no type of GPUs: all count as of one type, without a price.")
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

    called = _told(row, "instance")
    known = find_instance(called)
    if called and known is None and not _told(row, "gpus"):
        near = closest_instance(called)
        raise ClusterError(
            f"{where}: {called[:40]} is no cloud instance with GPUs that is known"
            f"{f' ({near} is)' if near else ''}. Say how many it has in a column gpus."
        )
    gpus, price = whole("gpus", known.gpus if known else 0), number("price", math.nan)
    kind = _told(row, "gpu_type") or (known.gpu_type if known else "")
    return Machine(
        _told(row, "name"),
        gpus,
        plain_type(kind) if gpus else "",
        number("cpus", known.cpus if known else math.inf),
        number("mem_gb", known.mem_gb if known else math.inf),
        tuple(
            part.strip() for part in re.split(r"[,;|]", _told(row, "partitions")) if part.strip()
        ),
        whole("racks", 1) * whole("rack", 0) if "racks" in columns else whole("nodes", 1),
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
_MOST_NAMED: Final = 20 * MAX_NODES
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


def from_slurm(text: str, name: str, *, away: bool = False, gres: str = "") -> Imported:
    """Read what describes nodes in Slurm's own words.

    Parameters
    ----------
    text : str
        slurm.conf, or what ``scontrol show node`` prints.
    name : str
        Of the file.
    away : bool
        Whether nodes count that are down, drained, failed, reserved or in maintenance.
    gres : str
        ``gres.conf``, for the types of GPUs that the text does not name; "" = there is none.

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
    nodes, typed = with_types(_nodes(records, name), gres)
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
    remarks = [*notes, *typed, *_remarks(nodes, away=away)]
    return grouped(machines, name, remarks, keep_names=True)


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
        for host in expand_hosts(hosts, name):
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
        hosts = expand_hosts(fields["nodename"], name)
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
            sets[fields["nodeset"]] = set(expand_hosts(fields["nodes"], name))
        if (part := fields.get("partitionname", "")).upper() == "DEFAULT":
            default = {**default, **fields}
        elif part:
            text = fields.get("nodes", default.get("nodes", ""))
            chosen = hosts if text.upper() == "ALL" else expand_hosts(text, name) if text else []
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
        _number(fields, "realmemory", host, name) / 1024,
    )
    total = sum(gpus.values())
    rest = Machine(
        host,
        cpus=cpus or float("inf"),
        mem_gb=mem_gb or float("inf"),
        partitions=parts,
        features=_features(fields),
        weight=int(_number(fields, "weight", host, name)) or 1,
        gres=tuple(sorted(_others(fields.get("gres", "")).items())),
    )
    if not total:
        return [rest]
    return [
        rest._replace(
            gpus=count,
            gpu_type=kind,
            cpus=rest.cpus * count / total,
            mem_gb=rest.mem_gb * count / total,
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


def _features(fields: Fields) -> tuple[str, ...]:
    for key in ("activefeatures", "availablefeatures", "features", "feature"):
        if found := fields.get(key, ""):
            return tuple(sorted({part for part in found.split(",") if part not in ("", "(null)")}))
    return ()


def _others(gres: str) -> dict[str, int]:
    """Return resources other than GPUs with their numbers; a type is part of the name."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        *words, last = part.strip().lower().split(":")
        if not words or words[0] == "gpu" or "no_consume" in words or not last.isdecimal():
            continue
        kind = ":".join(words)
        found[kind] = found.get(kind, 0) + int(last[:10])
    return found


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
