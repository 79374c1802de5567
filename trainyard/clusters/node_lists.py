"""Read nodes from Slurm or from a table, and group equal nodes into a cluster."""

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
from sim.cloud_instances import closest_instance, find_instance
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.errors import ClusterError, TraceError
from sim.host_lists import compress_hosts, expand_hosts
from sim.limits import MAX_NODES
from trainyard.clusters.gres import add_gpu_types
from trainyard.clusters.prices import find_catalog_type, speed_source
from trainyard.formatting import plural
from trainyard.study import gpu_types

UNNAMED_TYPE: Final = "gpu"
"""GPU type of GPUs without a type."""
MAX_LIST_BYTES: Final = 50_000_000
"""Size limit for lists of machines."""
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
_UNIT_FACTORS: Final = {
    "cpu_milli": 1e-3,
    "memory_mib": 1 / 1024,
    "memory_mb": 1 / 1024,
    "realmemory": 1 / 1024,
}
_PAI_ROW: Final = re.compile(rb"[0-9a-f]{24},\w*,\d+,\d+,\d+\r?\n")
_PAI_HEADER: Final = b"name,gpu_type,cpus,memory_gb,gpus\n"
"""Header for Alibaba's pai_machine_spec, which has none."""


class Machine(NamedTuple):
    """A node, or several equal nodes.

    Parameters
    ----------
    name : str
        Name of the node.
    gpus : int
        GPUs per node.
    gpu_type : str
        GPU type as written by the site; "" without GPUs.
    cpus, mem_gb : float, cores and GB
        Resources per node; inf = not given.
    partitions : tuple of str
        Queues that may use the node; empty = all.
    nodes : int
        Number of equal nodes.
    rack_size : int, nodes
        Nodes per rack; 0 = all in one rack.
    price_per_hour : float or None, USD
        Price of a node; None = that of its GPUs.
    features : tuple of str
        Features that the constraint of a job may name.
    weight : int
        Nodes of lower weight are used first.
    gres : tuple of (str, int)
        Countable resources other than GPUs.
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


class ImportedCluster(NamedTuple):
    """A cluster read from a file, with notes and open questions.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    notes : tuple of str
        Sentences on assumptions and omissions.
    unknown_types : tuple of str
        GPU types of unknown speed; the cluster has placeholders for their figures.
    questions : tuple of Question
        Facts that the file does not give; the cluster uses their defaults.
    """

    cluster: Cluster
    notes: tuple[str, ...] = ()
    unknown_types: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()


def open_machine_table(content: bytes, name: str) -> Content:
    """Unpack a table of machines; PAI's table gets its missing header.

    Raises
    ------
    ClusterError
        If the table cannot be opened.
    """
    if _PAI_ROW.match(content):
        content = _PAI_HEADER + content
    try:
        return open_source(content, name, ReadOptions(max_bytes=MAX_LIST_BYTES))
    except TraceError as error:
        raise ClusterError(_machine_wording(str(error))) from error


def read_node_table(opened: Content) -> ImportedCluster | None:
    """Read a table with a row per node, or per kind of node; None for other tables.

    A table of kinds has a column ``nodes``; rows with 0 nodes are left out.

    Raises
    ------
    ClusterError
        If the file is not a table, or a cell is invalid; the message names the row.
    """
    name = opened.name
    try:
        table, report = read_table(opened, ReadOptions())
    except TraceError as error:
        raise ClusterError(_machine_wording(str(error))) from error
    columns = {
        key: next((column for column in names if column in table), "")
        for key, names in _COLUMNS.items()
    }
    present = {key: column for key, column in columns.items() if column}
    if "instance" not in present and (
        "gpus" not in present or not {"gpu_type", "nodes", "name", "racks"} & present.keys()
    ):
        return None
    cells = table[list(present.values())].astype("str").to_dict("records")
    rows = [{key: str(row[column]).strip() for key, column in present.items()} for row in cells]
    machines = [
        _parse_machine(row, present, f"{name}: row {number}")
        for number, row in zip(table.index, rows, strict=True)
    ]
    dropped = report.issues(table.index)["reason"].value_counts()
    notes = [
        f"{plural(int(count), 'row')} left out: {reason}." for reason, count in dropped.items()
    ]
    return group_machines([machine for machine in machines if machine.nodes], name, notes)


def is_machine_header(cells: Sequence[str]) -> bool:
    """Return True if the first row of a table fits only machines, not jobs.

    It has only columns of machines, or daily sizes of virtual clusters, or is a row of PAI's table.
    """
    machine_columns = {column for names in _COLUMNS.values() for column in names} | {""}
    names = [plain_name(cell) for cell in cells]
    return (
        (len(set(names)) == len(names) and len(names) > 2 and set(names) <= machine_columns)
        or (len(names) > 2 and names[0] == "date" and names[-1] == "total")
        or _PAI_ROW.match(",".join(cells).encode() + b"\n") is not None
    )


def _machine_wording(sentence: str) -> str:
    """Return a message of the trace readers, reworded for a file of machines."""
    return sentence.replace(
        f"not a trace. {ADVICE}",
        "not a description of machines. Use CSV, JSON, or the output of Slurm.",
    ).replace("table of jobs", "table of nodes")


def group_machines(
    machines: Iterable[Machine], name: str, notes: Iterable[str] = (), *, keep_names: bool = False
) -> ImportedCluster:
    """Return a cluster of machines, with notes; equal machines become one node group.

    With `keep_names`, nodes keep the names of the machines if these are unique.

    Raises
    ------
    ClusterError
        If there are no machines, or too many.
    """
    by_kind: dict[Machine, list[Machine]] = {}
    for machine in machines:
        by_kind.setdefault(machine._replace(name="", nodes=1), []).append(machine)
    if not by_kind:
        raise ClusterError(f"{name}: this describes no nodes. Use a file with at least one.")
    if (nodes := sum(machine.nodes for equal in by_kind.values() for machine in equal)) > MAX_NODES:
        raise ClusterError(
            f"{name}: {nodes:,} nodes are more than the limit of {MAX_NODES:,}. Leave some out."
        )
    names = [machine.name for equal in by_kind.values() for machine in equal]
    keep_names = keep_names and len(set(names)) == nodes
    groups: list[NodeGroup] = []
    for kind, equal in by_kind.items():
        count = sum(machine.nodes for machine in equal)
        prefix = _unique_name(
            _common_prefix([machine.name for machine in equal]), [group.name for group in groups]
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
                hosts=compress_hosts([machine.name for machine in equal]) if keep_names else "",
            )
        )
    types, type_notes = _known_types(
        dict.fromkeys(group.gpu_type for group in groups if group.gpus)
    )
    cluster = Cluster(tuple(groups), types, name=name)
    unknown = gpu_types.unknown_types(cluster, [kind.name for kind in types])
    if [kind.name for kind in cluster.types] == [UNNAMED_TYPE]:
        # Speeds are relative, so the speed of the only type does not matter.
        unknown = ()
        type_notes.append("The file gives no GPU type: all GPUs count as one type without a price.")
    return ImportedCluster(cluster, (*notes, *type_notes), unknown)


def _known_types(names: Iterable[str]) -> tuple[tuple[GpuType, ...], list[str]]:
    """Return the GPU types that are in the catalog, and notes on guessed or borrowed speeds."""
    types, notes = [], []
    for name in names:
        if (entry := find_catalog_type(name)) is None:
            continue
        types.append(replace(entry, name=name))
        source = speed_source(types[-1])
        if source.startswith("guessed"):
            notes.append(f"The speed of GPU type {name}, {entry.speed:.3g}, is {source}.")
        elif entry.name != name:
            notes.append(f"The GPU type {name} has the speed and price of {entry.name}.")
    return tuple(types), notes


def _common_prefix(names: list[str]) -> str:
    """Return the common prefix of names, without digits and separators at its end."""
    first, last = min(names), max(names)
    length = next(
        (index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b),
        min(len(first), len(last)),
    )
    return first[:length].rstrip("0123456789-_.[")


def _unique_name(name: str, used: list[str]) -> str:
    """Return a name, with a number appended if it is used already; "" stays."""
    return next(
        candidate
        for number in range(1, len(used) + 2)
        if (candidate := name if number == 1 else f"{name}-{number}") not in used or not name
    )


def _parse_machine(row: Mapping[str, str], columns: Mapping[str, str], where: str) -> Machine:
    """Return the machine of a table row, completed by its cloud instance; raise if invalid.

    `columns`: key of `_COLUMNS` -> column of the table. `where` names the row in messages.
    """

    def parse_number(key: str, default: float) -> float:
        """Return a cell in the unit of `Machine`; `default` if empty, an error if invalid."""
        text = _cell_text(row, key)
        if not text:
            return default
        column, value = columns[key], _parse_float(text)
        if not 0 <= value < math.inf:
            raise ClusterError(
                f"{where}: {column} = {text[:40]} is not a number of at least 0. Correct the cell."
            )
        return value * _UNIT_FACTORS.get(column, 1.0)

    def parse_integer(key: str, default: int) -> int:
        """Return a cell as a whole number; `default` if empty, an error if it is a fraction."""
        value = parse_number(key, default)
        if value != int(value):
            raise ClusterError(
                f"{where}: {columns[key]} = {value:g} is not a whole number. Correct the cell."
            )
        return int(value)

    instance_name = _cell_text(row, "instance")
    instance = find_instance(instance_name)
    if instance_name and instance is None and not _cell_text(row, "gpus"):
        near = closest_instance(instance_name)
        raise ClusterError(
            f"{where}: {instance_name[:40]} is not a known cloud instance with GPUs"
            f"{f'; {near} is' if near else ''}. Give its number of GPUs in a column gpus."
        )
    gpus, price = (
        parse_integer("gpus", instance.gpus if instance else 0),
        parse_number("price", math.nan),
    )
    kind = _cell_text(row, "gpu_type") or (instance.gpu_type if instance else "")
    return Machine(
        _cell_text(row, "name"),
        gpus,
        plain_gpu_type(kind) if gpus else "",
        parse_number("cpus", instance.cpus if instance else math.inf),
        parse_number("mem_gb", instance.mem_gb if instance else math.inf),
        tuple(
            part.strip()
            for part in re.split(r"[,;|]", _cell_text(row, "partitions"))
            if part.strip()
        ),
        parse_integer("racks", 1) * parse_integer("rack", 0)
        if "racks" in columns
        else parse_integer("nodes", 1),
        parse_integer("rack", 0),
        None if math.isnan(price) else price,
    )


def _cell_text(row: Mapping[str, str], key: str) -> str:
    """Return the text of a cell; "" if it is missing or a word such as "nan" or "null"."""
    text = row.get(key, "")
    return "" if text.lower() in ("nan", "none", "null", "<na>") else text


def _parse_float(text: str) -> float:
    """Return a text as a number, NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def plain_gpu_type(text: str) -> str:
    """Return a GPU type in lower case without spaces; "" becomes `UNNAMED_TYPE`."""
    return text.lower().replace(" ", "") or UNNAMED_TYPE


NodeFields = dict[str, str]
"""Keyword in lower case -> value."""
_TOKEN: Final = re.compile(r'([A-Za-z][\w/:]*)=("[^"]*"|\S*)')
_MAX_HOST_NAMES: Final = 20 * MAX_NODES
"""Limit on host names in all lists together; a host may occur on several lines."""
_DOWN_STATES: Final = ("DOWN", "DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "RESERVED")
"""Prefixes of node states that run no jobs; nodes powered off to save energy do."""
_FUTURE_STATES: Final = ("FUTURE",)
_SINFO_LINE: Final = re.compile(
    r"[^|\s]+\|[^|\s]*\|[^|]*\|\d+\+?\|\d+\+?\|(?i:idle|mix|alloc|comp|drain|down|fail|maint|resv"
    r"|reserved|planned|unk|future|power|inval|boot|reboot)[^|]*(\|[^|]*)?"
)


def is_slurm(text: str) -> bool:
    """Return True if a text describes nodes in Slurm's format."""
    return re.search(r"^\s*NodeName=", text, re.MULTILINE | re.IGNORECASE) is not None


def read_slurm(
    text: str, name: str, *, include_down: bool = False, gres: str = ""
) -> ImportedCluster:
    """Read nodes from ``slurm.conf`` or the output of ``scontrol show node``, with partitions.

    Parameters
    ----------
    text : str
        The file.
    name : str
        Name of the file.
    include_down : bool
        Whether to include nodes that are down, drained, failed, reserved or in maintenance.
    gres : str
        The text of ``gres.conf``, for GPU types that the file does not give; "" = none.

    Raises
    ------
    ClusterError
        If a list of hosts or a number is invalid, or there are no nodes.
    """
    is_output = "CPUTot=" in text
    records = [
        {key.lower(): value.strip('"') for key, value in _TOKEN.findall(line)}
        for line in (_split_node_blocks(text) if is_output else _split_conf_lines(text))
    ]
    notes = (
        []
        if is_output or not re.search(r"^\s*include\s", text, re.MULTILINE | re.IGNORECASE)
        else ["Included files were not read."]
    )
    nodes, type_notes = add_gpu_types(_fields_by_host(records, name), gres)
    members = _hosts_by_partition(records, list(nodes), name)
    machines = []
    for host, fields in _working_nodes(nodes, name, include_down=include_down).items():
        listed = fields.get("partitions", "")
        parts = (
            tuple(part for part in listed.split(",") if part)
            if listed
            else tuple(part for part, hosts in members.items() if host in hosts)
        )
        machines += _node_machines(host, fields, parts, name)
    all_notes = [*notes, *type_notes, *_state_notes(nodes, include_down=include_down)]
    return group_machines(machines, name, all_notes, keep_names=True)


def is_sinfo(text: str) -> bool:
    """Return True if a text is the output of ``sinfo -N -h -o "%N|%P|%G|%c|%m|%T|%f"``.

    The header and the features may be missing.
    """
    lines = [line for line in text.splitlines()[:21] if line.strip()]
    rows = lines[1:] if lines and lines[0].upper().startswith("NODELIST|") else lines
    return bool(rows) and all(_SINFO_LINE.fullmatch(line.strip()) for line in rows)


def read_sinfo(text: str, name: str, *, include_down: bool = False) -> ImportedCluster:
    """Read nodes from the output of ``sinfo -N -h -o "%N|%P|%G|%c|%m|%T|%f"``.

    It has a line per node and partition; the lines of a node are merged.

    Parameters
    ----------
    text, name, include_down
        See `read_slurm`.

    Raises
    ------
    ClusterError
        If a line is invalid, or no node remains.
    """
    nodes: dict[str, NodeFields] = {}
    parts: dict[str, dict[str, None]] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.upper().startswith("NODELIST|"):
            continue
        if not _SINFO_LINE.fullmatch(line):
            raise ClusterError(
                f'{name}: line {number} is not output of sinfo -N -h -o "%N|%P|%G|%c|%m|%T|%f".'
                " Export it again."
            )
        hosts, part, gres, cpus, memory, state, *_ = line.split("|")
        fields = {"gres": gres, "cpus": cpus.rstrip("+"), "realmemory": memory.rstrip("+")}
        for host in expand_hosts(hosts, name):
            nodes[host] = fields | {"state": state}
            parts.setdefault(host, {})[part.rstrip("*")] = None
    machines = [
        machine
        for host, fields in _working_nodes(nodes, name, include_down=include_down).items()
        for machine in _node_machines(host, fields, tuple(parts[host]), name)
    ]
    return group_machines(machines, name, _state_notes(nodes, include_down=include_down))


def read_slurm_json(
    data: Mapping[str, Any], name: str, *, include_down: bool = False
) -> ImportedCluster:
    """Read nodes from the output of ``scontrol show nodes --json`` or slurmrestd.

    Parameters
    ----------
    data : mapping
        The parsed JSON.
    name, include_down
        See `read_slurm`.

    Raises
    ------
    ClusterError
        If there are no nodes, or a number is invalid.
    """
    nodes: dict[str, NodeFields] = {}
    machines = []
    for number, node in enumerate(data["nodes"], 1):
        if not isinstance(node, Mapping):
            raise ClusterError(
                f"{name}: node {number} is not an object. Use the output of scontrol show nodes"
                " --json."
            )
        state, parts = node.get("state", ()), node.get("partitions", ())
        fields = {key: str(node.get(key) or "") for key in ("cpus", "gres", "tres")} | {
            "realmemory": str(node.get("real_memory") or "")
        }
        fields |= {
            "cfgtres": fields["tres"],
            "state": "+".join(map(str, state)) if isinstance(state, list) else str(state),
        }
        host = str(node.get("name") or f"node{number}")
        nodes[host] = fields
        if include_down or not _is_down(fields):
            machines += _node_machines(
                host, fields, tuple(map(str, parts)) if isinstance(parts, list) else (), name
            )
    _working_nodes(nodes, name, include_down=include_down)
    return group_machines(machines, name, _state_notes(nodes, include_down=include_down))


def _split_node_blocks(text: str) -> Iterator[str]:
    """Return an iterator over nodes, one line each, from ``scontrol show node``."""
    blocks = re.split(r"^(?=\s*NodeName=)", text, flags=re.MULTILINE)
    return (" ".join(block.split()) for block in blocks if "NodeName=" in block)


def _split_conf_lines(text: str) -> Iterator[str]:
    """Return an iterator over the logical lines of ``slurm.conf``, without comments."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return (line for raw in joined.splitlines() if (line := re.split(r"(?<!\\)#", raw)[0].strip()))


def _fields_by_host(records: Iterable[NodeFields], name: str) -> dict[str, NodeFields]:
    """Return host -> its fields; NodeName=DEFAULT gives defaults for later lines."""
    by_host: dict[str, NodeFields] = {}
    default: NodeFields = {}
    host_count = 0
    for fields in records:
        if "nodename" not in fields:
            continue
        if fields["nodename"].upper() == "DEFAULT":
            default = {**default, **fields}
            continue
        complete = default | fields
        hosts = expand_hosts(fields["nodename"], name)
        host_count = _check_host_count(host_count + len(hosts), name)
        by_host |= dict.fromkeys(hosts, complete)
    return by_host


def _check_host_count(host_count: int, name: str) -> int:
    """Return a number of host names; raise if it is above the limit."""
    if host_count > _MAX_HOST_NAMES:
        raise ClusterError(
            f"{name}: the lists name more than {_MAX_HOST_NAMES:,} nodes in total. Leave some out."
        )
    return host_count


def _hosts_by_partition(
    records: Iterable[NodeFields], hosts: list[str], name: str
) -> dict[str, set[str]]:
    """Return partition -> its hosts; ALL, node sets and PartitionName=DEFAULT are resolved."""
    by_partition: dict[str, set[str]] = {}
    node_sets: dict[str, set[str]] = {}
    default: NodeFields = {}
    host_count = 0
    for fields in records:
        if "nodeset" in fields and "nodes" in fields:
            node_sets[fields["nodeset"]] = set(expand_hosts(fields["nodes"], name))
        if (part := fields.get("partitionname", "")).upper() == "DEFAULT":
            default = {**default, **fields}
        elif part:
            text = fields.get("nodes", default.get("nodes", ""))
            members = hosts if text.upper() == "ALL" else expand_hosts(text, name) if text else []
            by_partition[part] = {
                host for member in members for host in node_sets.get(member, {member})
            }
            host_count = _check_host_count(host_count + len(by_partition[part]), name)
    return by_partition


def _node_machines(
    host: str, fields: NodeFields, parts: tuple[str, ...], name: str
) -> list[Machine]:
    """Return one machine of a host per GPU type, or one without GPUs; [] in state FUTURE.

    Several machines share the cores and memory of the host in proportion to their GPUs.
    """
    if _is_in_state(fields, _FUTURE_STATES):
        return []
    gpus = _parse_gpus(fields.get("gres", "")) or _parse_gpus(
        fields.get("cfgtres", "").replace("gres/", "").replace("=", ":")
    )
    cpus, mem_gb = (
        _node_cpus(fields, host, name),
        _number_field(fields, "realmemory", host, name) / 1024,
    )
    total = sum(gpus.values())
    without_gpus = Machine(
        host,
        cpus=cpus or float("inf"),
        mem_gb=mem_gb or float("inf"),
        partitions=parts,
        features=_node_features(fields),
        weight=int(_number_field(fields, "weight", host, name)) or 1,
        gres=tuple(sorted(_parse_other_gres(fields.get("gres", "")).items())),
    )
    if not total:
        return [without_gpus]
    return [
        without_gpus._replace(
            gpus=count,
            gpu_type=kind,
            cpus=without_gpus.cpus * count / total,
            mem_gb=without_gpus.mem_gb * count / total,
        )
        for kind, count in gpus.items()
    ]


def _parse_gpus(gres: str) -> dict[str, int]:
    """Return GPU type -> number from a list such as ``gpu:a100:4(S:0-1),nvme:1``.

    A total without a type is dropped if there are typed counts.
    """
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        kind, *rest = part.strip().split(":")
        if kind.lower() != "gpu":
            continue
        rest = [piece for piece in rest if piece.lower() != "no_consume"]
        # Ten digits already exceed the limit on GPUs.
        count = int(rest.pop()[:10]) if rest and rest[-1].isdecimal() else 1
        gpu_type = plain_gpu_type("_".join(rest))
        counts[gpu_type] = counts.get(gpu_type, 0) + count
    # "gpu=4,gpu:a100=4" counts the same GPUs twice: as a sum, and by type.
    typed = {kind: count for kind, count in counts.items() if kind != plain_gpu_type("")}
    return {kind: count for kind, count in (typed or counts).items() if count}


def _node_features(fields: NodeFields) -> tuple[str, ...]:
    """Return the features of a node, sorted; the active ones if they are listed."""
    for key in ("activefeatures", "availablefeatures", "features", "feature"):
        if text := fields.get(key, ""):
            return tuple(sorted({part for part in text.split(",") if part not in ("", "(null)")}))
    return ()


def _parse_other_gres(gres: str) -> dict[str, int]:
    """Return countable resource -> number, without GPUs; a type is part of the name."""
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        *words, last = part.strip().lower().split(":")
        if not words or words[0] == "gpu" or "no_consume" in words or not last.isdecimal():
            continue
        kind = ":".join(words)
        counts[kind] = counts.get(kind, 0) + int(last[:10])
    return counts


def _node_cpus(fields: NodeFields, host: str, name: str) -> float:
    """Return the CPUs of a node: their number, else sockets x cores x threads; 0 if unknown."""
    cpus = _number_field(fields, "cputot", host, name) or _number_field(fields, "cpus", host, name)
    if cpus:
        return cpus
    sockets = (_number_field(fields, "boards", host, name) or 1) * _number_field(
        fields, "socketsperboard", host, name
    ) or _number_field(fields, "sockets", host, name)
    cores, threads = (
        _number_field(fields, key, host, name) or 1 for key in ("corespersocket", "threadspercore")
    )
    return sockets * cores * threads


def _number_field(fields: NodeFields, key: str, host: str, name: str) -> float:
    """Return the number in a field; 0 if it is missing, an error if it is invalid."""
    text = fields.get(key, "")
    if not text:
        return 0.0
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise ClusterError(f"{name}: node {host}: {key} = {text[:40]} is not a number. Correct it.")
    return float(text)


def _is_in_state(fields: NodeFields, states: Iterable[str]) -> bool:
    """Return True if the state of a node contains one of some texts."""
    return any(state in fields.get("state", "").upper() for state in states)


def _is_down(fields: NodeFields) -> bool:
    """Return True if one of a node's states begins with one of `_DOWN_STATES`."""
    states = re.split(r"[+ ]", fields.get("state", "").upper())
    return any(state.startswith(_DOWN_STATES) for state in states)


def _working_nodes(
    nodes: Mapping[str, NodeFields], name: str, *, include_down: bool
) -> dict[str, NodeFields]:
    """Return the nodes that are not down, or all with `include_down`; raise if none remains."""
    working = {
        host: fields for host, fields in nodes.items() if include_down or not _is_down(fields)
    }
    if nodes and not working:
        raise ClusterError(
            f"{name}: no node is left of {plural(len(nodes), 'node')}: down, drained or reserved."
            " Include such nodes, or export them again."
        )
    return working


def _state_notes(nodes: Mapping[str, NodeFields], *, include_down: bool) -> list[str]:
    """Return sentences on nodes in state FUTURE, nodes down, and nodes split by GPU type."""
    future = sum(_is_in_state(fields, _FUTURE_STATES) for fields in nodes.values())
    down = sum(map(_is_down, nodes.values()))
    mixed = sum(len(_parse_gpus(fields.get("gres", ""))) > 1 for fields in nodes.values())
    counts = [
        (future, "in state FUTURE: left out, because the machines do not exist yet"),
        (
            down,
            "down, drained or reserved: " + ("included" if include_down else "left out"),
        ),
        (
            mixed,
            (
                "with several GPU types: each becomes one node per type, which share its cores and"
                " memory"
            ),
        ),
    ]
    return [f"{plural(count, 'node')} {what}." for count, what in counts if count]
