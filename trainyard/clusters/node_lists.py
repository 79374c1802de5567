"""Machines one by one become a cluster: equal ones are a row; read from Slurm's own descriptions, or from a table with a row per node or kind of node."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.errors import ClusterError, TraceError
from sim.limits import MOST_NODES
from sim.readers.capacity import LARGEST_BYTES
from sim.readers.format import ReadOptions
from sim.readers.source import ADVICE, open_source
from sim.readers.table import read_table
from trainyard.clusters.prices import known_like
from trainyard.text import plural

UNNAMED: Final = "gpu"
"""What GPUs are called of which nobody says what they are."""
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("name", "node", "nodename", "node_name", "hostname", "sn", "node_id"),
    "nodes": ("nodes", "count"),
    "gpus": ("gpus_per_node", "gpus", "gpu", "num_gpus", "gpu_capacity_num"),
    "gpu_type": ("gpu_type", "type", "model", "gpu_model"),
    "cpus": ("cores", "cpus", "cpu", "cpu_num", "cpu_milli"),
    "mem_gb": ("memory_gb", "mem_gb", "memory_mib", "memory_mb", "realmemory"),
    "rack": ("rack_size",),
    "partitions": ("partitions", "partition"),
    "price": ("price_per_node_hour", "price_per_hour"),
}
_SCALE: Final = {"cpu_milli": 1e-3, "memory_mib": 1 / 1024, "memory_mb": 1 / 1024, "realmemory": 1 / 1024}


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
    """

    cluster: Cluster
    notes: tuple[str, ...] = ()


def from_table(content: bytes, name: str) -> Imported | None:
    """Read a table with one row per node, or per kind of node if it has a column ``nodes``; None = it is no such table.

    Raises
    ------
    ClusterError
        If it is no table, or a cell cannot be used; names the row.
    """
    try:
        table, report = read_table(open_source(content, name, ReadOptions(max_bytes=LARGEST_BYTES)), ReadOptions())
    except TraceError as error:
        raise ClusterError(_of_machines(str(error))) from error
    columns = {key: next((column for column in names if column in table), "") for key, names in _COLUMNS.items()}
    found = {key: column for key, column in columns.items() if column}
    if "gpus" not in found or not ("gpu_type" in found or "nodes" in found):
        return None
    cells = table[list(found.values())].astype("str").to_dict("records")
    rows = [{key: str(row[column]).strip() for key, column in found.items()} for row in cells]
    machines = [_machine(row, found, f"{name}: row {at}") for at, row in zip(table.index, rows, strict=True)]
    lost = report.issues(table.index)["reason"].value_counts()
    notes = [f"{plural(int(count), 'row')} left out: {reason}." for reason, count in lost.items()]
    return grouped([machine for machine in machines if machine.nodes], name, notes)


def _of_machines(sentence: str) -> str:
    """Return what is wrong with a file as it is said of a file of machines: the same readers open traces."""
    return sentence.replace(f"not a trace. {ADVICE}", "not a description of machines. Use a CSV, JSON, or what Slurm prints.").replace(
        "table of jobs", "table of nodes"
    )


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
        raise ClusterError(f"{name}: {nodes:,} nodes; {MOST_NODES:,} is the most that is simulated. Leave some out.")
    groups: list[NodeGroup] = []
    for kind, found in alike.items():
        count = sum(machine.nodes for machine in found)
        prefix = _unique(_prefix([machine.name for machine in found]), [group.name for group in groups])
        groups.append(NodeGroup(count, kind.gpus, kind.gpu_type, kind.cpus, kind.mem_gb, kind.rack_size, kind.partitions, kind.price_per_hour, prefix))
    types, remarks = _types(dict.fromkeys(group.gpu_type for group in groups if group.gpus))
    return Imported(Cluster(tuple(groups), types, name=name), (*notes, *remarks))


def _types(names: Iterable[str]) -> tuple[tuple[GpuType, ...], list[str]]:
    types, remarks, unknown = [], [], []
    for name in names:
        like = known_like(name)
        types.append(replace(like, name=name) if like is not None else GpuType(name))
        if like is None:
            unknown.append(name)
        elif like.name != name:
            remarks.append(f"The GPU type {name} has the speed and price of {like.name}.")
    if unknown:
        kinds = f"{'type' if len(unknown) == 1 else 'types'} {', '.join(unknown)}"
        remarks.append(f"No speed or price is known of the GPU {kinds}: speed 1 and price 0 stand in the table until you enter your own.")
    return tuple(types), remarks


def _prefix(names: list[str]) -> str:
    first, last = min(names), max(names)
    shared = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), min(len(first), len(last)))
    return first[:shared].rstrip("0123456789-_.[")


def _unique(name: str, there: list[str]) -> str:
    return next(made for turn in range(1, len(there) + 2) if (made := name if turn == 1 else f"{name}-{turn}") not in there or not name)


def _machine(row: Mapping[str, str], columns: Mapping[str, str], where: str) -> Machine:
    def number(key: str, missing: float) -> float:
        text = _told(row, key)
        if not text:
            return missing
        column, made = columns[key], _float(text)
        if not 0 <= made < math.inf:
            raise ClusterError(f"{where}: {column} = {text[:40]} is not a number that is not negative. Correct the cell.")
        return made * _SCALE.get(column, 1.0)

    def whole(key: str, missing: int) -> int:
        made = number(key, missing)
        if made != int(made):
            raise ClusterError(f"{where}: {columns[key]} = {made:g} is not a whole number. Correct the cell.")
        return int(made)

    gpus, price = whole("gpus", 0), number("price", math.nan)
    return Machine(
        _told(row, "name"),
        gpus,
        plain_type(_told(row, "gpu_type")) if gpus else "",
        number("cpus", math.inf),
        number("mem_gb", math.inf),
        tuple(part.strip() for part in re.split(r"[,;|]", _told(row, "partitions")) if part.strip()),
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
    """Return the name of a GPU type as a cluster writes it: lower case, without spaces; GPUs without one are called `UNNAMED`."""
    return text.lower().replace(" ", "") or UNNAMED
