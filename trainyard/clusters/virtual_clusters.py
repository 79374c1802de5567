"""Read the sizes of virtual clusters, and assign listed nodes to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.readers.cells import OFFSET, clean_text, numbers, parse_iso_times
from jobtraces.readers.content import Content, plain_name
from jobtraces.readers.options import Question, ReadOptions
from jobtraces.readers.table import read_table
from sim.cluster import Change, Cluster, NodeGroup
from sim.errors import ClusterError, TraceError
from sim.limits import MAX_CHANGED_NODES, MAX_NODES, check_sizes
from trainyard.clusters.node_lists import MAX_LIST_BYTES, ImportedCluster
from trainyard.formatting import plural

ZONE: Final = "Asia/Shanghai"
_NODE_GPUS, _GPU_TYPE = 8, "v100"
_UNNAMED: Final = re.compile(r"(column_|unnamed).*")
"""Names that readers give to a column without a header, as in the files of Philly and Lucid."""
_NAME_COLUMNS: Final = (
    "vc",
    "vc_name",
    "virtual_cluster",
    "virtualcluster",
    "name",
    "queue",
    "partition",
)
_SIZE_COLUMNS: Final = ("num", "nodes", "node_num", "num_nodes", "count")
"""Accepted headers of the two columns of a table of virtual clusters."""
GPUS_PER_NODE: Final = "gpus_per_node"
"""Id of the question that a list of virtual clusters and their numbers of nodes leaves open."""


def import_virtual_clusters(opened: Content, epoch: str) -> ImportedCluster:
    """Read a table of virtual clusters, with a note on assumed nodes and an open question.

    Parameters
    ----------
    opened, epoch
        See `read_virtual_clusters`.

    Raises
    ------
    ClusterError
        If the file cannot be read.
    """
    name, cluster = opened.name, read_virtual_clusters(opened, epoch)
    if cluster.changes or "date" in opened.sample.keys:
        return ImportedCluster(
            cluster, ("The file gives GPUs, not nodes: nodes of 8 V100 are assumed.",)
        )
    question = Question(
        GPUS_PER_NODE,
        f"{name} gives the number of nodes of each virtual cluster, not their type. How many GPUs"
        " does a node have?",
        {str(count): plural(count, "GPU") for count in (1, 2, 4, 8, 16)},
        "8",
    )
    return ImportedCluster(
        cluster, ("The file gives nodes without a type: 8 V100 each are assumed.",), (), (question,)
    )


def set_node_gpus(cluster: Cluster, gpus: int, gpu_type: str = "") -> Cluster:
    """Return the cluster with other GPUs in every node; type "" = unchanged."""
    groups = tuple(
        replace(group, gpus=gpus, gpu_type=gpu_type or group.gpu_type) for group in cluster.groups
    )
    return replace(cluster, groups=groups, types=() if gpu_type else cluster.types)


def has_sizes_only(imported: ImportedCluster) -> bool:
    """Return True if a file gives numbers of nodes per virtual cluster, without their type."""
    return any(question.id == GPUS_PER_NODE for question in imported.questions)


def assign_nodes(machines: ImportedCluster, sizes: ImportedCluster) -> ImportedCluster:
    """Return listed nodes, assigned to the virtual clusters of another file.

    Parameters
    ----------
    machines : ImportedCluster
        Nodes without partitions.
    sizes : ImportedCluster
        Virtual clusters; only their names and numbers of nodes are used.

    Raises
    ------
    ClusterError
        If there are fewer nodes than the virtual clusters have, or nodes have partitions already.

    Notes
    -----
    Our reading, because no file gives the virtual cluster of a node: each virtual cluster gets its
    share of every kind of node. The kinds are interleaved evenly, and nodes are assigned in the
    order of the file. All jobs may use the remaining nodes.
    """
    groups, virtual = machines.cluster.groups, sizes.cluster
    nodes, needed = len(machines.cluster.nodes), len(virtual.nodes)
    if needed > nodes or any(group.partitions for group in groups):
        conflict = (
            f"has {plural(nodes, 'node')}, but the virtual clusters of {virtual.name} need"
            f" {needed:,}"
            if needed > nodes
            else f"names the partitions of its nodes, and {virtual.name} too"
        )
        raise ClusterError(f"{machines.cluster.name} {conflict}. Use only one of the two files.")
    interleaved = sorted(
        ((index + 0.5) / group.count, number)
        for number, group in enumerate(groups)
        for index in range(group.count)
    )
    order = iter([number for _, number in interleaved])
    assigned = []
    for home in (*virtual.groups, None):
        counts = Counter(islice(order, home.count) if home is not None else order)
        for number in sorted(counts):
            group = groups[number]
            name = "-".join(filter(None, (home.name if home else "", group.name)))
            parts = home.partitions if home is not None else ()
            assigned.append(
                replace(group, count=counts[number], name=name, partitions=parts, hosts="")
            )
    spare = nodes - needed
    remaining = f"; all jobs may use the other {plural(spare, 'node')}" if spare else ""
    note = (
        f"The virtual cluster of each node is unknown: each of the"
        f" {plural(len(virtual.groups), 'virtual cluster')} of {virtual.name} gets a share of every"
        f" kind of node in {machines.cluster.name}{remaining}."
    )
    cluster = replace(machines.cluster, groups=tuple(assigned), name=virtual.name)
    return ImportedCluster(
        cluster, (*machines.notes, note), machines.unknown_types, machines.questions
    )


def read_virtual_clusters(opened: Content, epoch: str) -> Cluster:
    """Read the sizes of virtual clusters; nodes have eight V100.

    Parameters
    ----------
    opened : Content
        ``vc_config.csv`` or ``philly_vc.csv`` (first column the virtual cluster, second its nodes),
        or Helios ``cluster_gpu_number.csv`` (``date``, one column of GPUs per virtual cluster,
        ``total``), whose days become dated changes.
    epoch : str
        Instant of second 0 of the simulation, see `Trace.epoch`, for daily sizes; "" = midnight of
        the first day.

    Raises
    ------
    ClusterError
        If the file cannot be read, or a size is not a whole number of at least 0 nodes.
    """
    name = opened.name
    try:
        table, _ = read_table(opened, ReadOptions(max_bytes=MAX_LIST_BYTES))
    except TraceError as error:
        raise ClusterError(str(error)) from error
    if table.empty:
        raise ClusterError(f"{name}: every row has more fields than the header. Correct the table.")
    if "date" not in table:
        return _read_fixed_sizes(table, name)
    # Plain column names are in lower case, but virtual clusters keep their capitals.
    spelled = table.set_axis(
        [
            cell if plain_name(cell) not in ("date", "total") else plain_name(cell)
            for cell in opened.sample.cells
        ],
        axis=1,
    )
    if spelled.columns.duplicated().any():
        raise ClusterError(
            f"{name}: column {spelled.columns[spelled.columns.duplicated()][0]!r} occurs twice."
            " Give every virtual cluster one column."
        )
    return _read_daily_sizes(spelled, epoch, name)


def is_virtual_cluster_header(names: Sequence[str]) -> bool:
    """Return True if the header has two columns: a virtual cluster and its nodes."""
    if len(names) != 2:
        return False
    first, second = names
    return (
        not first or bool(_UNNAMED.fullmatch(first)) or first in _NAME_COLUMNS
    ) and second in _SIZE_COLUMNS


def _read_fixed_sizes(table: pd.DataFrame, name: str) -> Cluster:
    """Return the cluster of a table of virtual clusters and nodes; raise for an invalid row."""
    if table.shape[1] < 2:
        raise ClusterError(
            f"{name}: the table needs two columns: the virtual cluster and its nodes."
        )
    if not is_virtual_cluster_header([str(column) for column in table.columns[:2]]):
        columns = ", ".join(map(str, table.columns[:8]))
        raise ClusterError(
            f"{name}: not a description of machines (columns {columns}). Use columns gpus and"
            " gpu_type for nodes, or vc and nodes for virtual clusters."
        )
    homes, nodes = clean_text(table.iloc[:, 0]), numbers(table.iloc[:, 1])
    is_valid = (
        nodes.ge(0) & np.isfinite(nodes) & nodes.mod(1).eq(0) & homes.ne("") & ~homes.duplicated()
    )
    if not is_valid.all():
        row = int(np.flatnonzero(~is_valid.to_numpy())[0])
        raise ClusterError(
            f"{name}: row {row + 1} ({homes.iloc[row]!r}, {table.iloc[row, 1]!r}) is not a new"
            " virtual cluster with a whole number of nodes. Correct the row."
        )
    return Cluster(
        tuple(_node_group(int(count), home) for home, count in zip(homes, nodes, strict=True)),
        name=name,
    )


def _read_daily_sizes(table: pd.DataFrame, epoch: str, name: str) -> Cluster:
    """Return the cluster of a table of GPUs per day; changes from day to day are dated.

    Each virtual cluster has the nodes of its largest day.
    """
    dates = clean_text(table["date"])
    days = parse_iso_times(dates.where(~dates.str.contains(OFFSET))).dt.tz_localize(None)
    homes = [str(column) for column in table.columns if column not in ("date", "total")]
    sizes = pd.DataFrame({home: numbers(table[home]) for home in homes})
    is_invalid = days.isna() | ~sizes.ge(0).all(axis=1) | sizes.isin([np.inf]).any(axis=1)
    if is_invalid.any() or not homes:
        row = int(np.flatnonzero(is_invalid.to_numpy())[0]) + 1 if is_invalid.any() else 1
        raise ClusterError(
            f"{name}: row {row} is not a date and one GPU count per virtual cluster. Correct the"
            " row."
        )
    order = np.argsort(days.to_numpy(), kind="stable")
    # Daylight saving time: a local time may not exist, or may occur twice.
    local = days.iloc[order].dt.tz_localize(
        ZONE, nonexistent="shift_forward", ambiguous=np.zeros(len(order), bool)
    )
    try:
        zero = pd.Timestamp(epoch) if epoch else local.iloc[0]
    except ValueError as error:
        raise ClusterError(
            f"{name}: the epoch {epoch!r} is not an ISO time. Use a time such as"
            " 2020-09-01T00:00:00+08:00."
        ) from error
    zero = zero.tz_localize(ZONE) if zero.tz is None else zero
    at_s: NDArray[np.float64] = np.array((local - zero).dt.total_seconds(), np.float64)
    node_counts = np.ceil(sizes.iloc[order].to_numpy() / _NODE_GPUS)
    check_sizes(name, float(node_counts.max(axis=0).sum()), 0)
    if np.abs(np.diff(node_counts, axis=0)).sum() > MAX_CHANGED_NODES:
        raise ClusterError(
            f"{name}: nodes are added or removed more than {MAX_CHANGED_NODES:,} times. Leave some"
            " days out."
        )
    counts = node_counts.astype(np.int64)
    capacity = counts.max(axis=0)
    groups = tuple(
        _node_group(int(count), home) for home, count in zip(homes, capacity, strict=True)
    )
    return Cluster(groups, changes=_node_changes(at_s, counts, capacity), name=name)


def _node_changes(
    at_s: NDArray[np.float64], counts: NDArray[np.int64], capacity: NDArray[np.int64]
) -> tuple[Change, ...]:
    """Return the dated changes that follow daily counts of nodes per virtual cluster.

    Parameters
    ----------
    at_s : array of shape (days,)
        Instant of each day.
    counts : array of shape (days, virtual clusters)
        Nodes on each day.
    capacity : array of shape (virtual clusters,)
        Nodes in the cluster; of each virtual cluster, the first ones are present.
    """
    first_node = np.concatenate([[0], np.cumsum(capacity)[:-1]])
    # The last day before second 0 gives the nodes at the beginning, else the first day.
    begin = max(int(np.searchsorted(at_s, 0.0, side="right")) - 1, 0)
    current, changes = capacity, []
    for row in range(begin, len(at_s)):
        change_s = 0.0 if row == begin else float(at_s[row])
        for present in (False, True):
            spans = [
                range(first + min(old, new), first + max(old, new))
                for first, old, new in zip(first_node, current, counts[row], strict=True)
                if old != new and (new > old) == present
            ]
            nodes = tuple(int(node) for span in spans for node in span)
            if nodes:
                changes.append(Change(change_s, nodes, present))
        current = counts[row]
    return tuple(changes)


def _node_group(count: int, home: str) -> NodeGroup:
    """Return the nodes of one virtual cluster, of 8 V100 each; raise if there are too many."""
    if count > MAX_NODES:
        raise ClusterError(
            f"{home or 'The file'} has {count:,} nodes, more than the limit of {MAX_NODES:,}. Leave"
            " some out."
        )
    return NodeGroup(count, _NODE_GPUS, _GPU_TYPE, partitions=(home,) if home else (), name=home)
