"""Virtual clusters and their nodes: read from a list of sizes, or dealt out of other machines."""

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
from trainyard.clusters.node_lists import LARGEST_BYTES, Imported
from trainyard.text import plural

ZONE: Final = "Asia/Shanghai"
_GPUS, _TYPE = 8, "v100"
_UNNAMED: Final = re.compile(r"(column_|unnamed).*")
_HOMES: Final = ("vc", "vc_name", "virtual_cluster", "virtualcluster", "name", "queue", "partition")
_SIZES: Final = ("num", "nodes", "node_num", "num_nodes", "count")
"""What the columns of a table of virtual clusters are called; that of Philly and Lucid leaves the
first one without a name.
"""
GPUS_PER_NODE: Final = "gpus_per_node"
"""What a list of virtual clusters and their nodes leaves open."""


def from_homes(opened: Content, epoch: str) -> Imported:
    """Read the sizes of virtual clusters; arguments as of `cluster_of_sizes`.

    Raises
    ------
    ClusterError
        If the file cannot be read.
    """
    name, cluster = opened.name, cluster_of_sizes(opened, epoch)
    if cluster.changes or "date" in opened.sample.keys:
        return Imported(cluster, ("It says GPUs, not nodes: they are taken as nodes of 8 V100.",))
    asked = Question(
        GPUS_PER_NODE,
        f"{name} says how many nodes each virtual cluster has, not what they are. How many GPUs has"
        " a node?",
        {str(count): plural(count, "GPU") for count in (1, 2, 4, 8, 16)},
        "8",
    )
    return Imported(
        cluster, ("It says nodes, not what they are: each has 8 V100 here.",), (), (asked,)
    )


def of_nodes(cluster: Cluster, gpus: int, gpu_type: str = "") -> Cluster:
    """Return a cluster whose nodes have so many GPUs each, of another type if one is named; for
    lists that say nodes alone.
    """
    groups = tuple(
        replace(group, gpus=gpus, gpu_type=gpu_type or group.gpu_type) for group in cluster.groups
    )
    return replace(cluster, groups=groups, types=() if gpu_type else cluster.types)


def says_sizes_alone(found: Imported) -> bool:
    """Tell whether a file says how many nodes each virtual cluster has, and not what they are."""
    return any(one.id == GPUS_PER_NODE for one in found.asked)


def dealt(machines: Imported, homes: Imported) -> Imported:
    """Return the nodes of a list of machines as those of virtual clusters.

    Parameters
    ----------
    machines : Imported
        Nodes that belong to nobody yet.
    homes : Imported
        Of which only the names and numbers of nodes count.

    Raises
    ------
    ClusterError
        If there are fewer nodes than the virtual clusters have, or some have their users already.

    Notes
    -----
    Our reading, because no file says which node is whose: each virtual cluster gets of every kind
    of node its share by number. The kinds are mixed evenly, as cards are, and the nodes dealt out
    in the order of the list. Those that are left belong to none: all jobs may use them.
    """
    groups, whose = machines.cluster.groups, homes.cluster
    nodes, wanted = len(machines.cluster.nodes), len(whose.nodes)
    if wanted > nodes or any(group.partitions for group in groups):
        why = (
            f"has {plural(nodes, 'node')}, and the virtual clusters of {whose.name} have {wanted:,}"
            if wanted > nodes
            else f"says itself who may use its nodes, and so does {whose.name}"
        )
        raise ClusterError(f"{machines.cluster.name} {why}. Drop the one that is meant.")
    mixed = sorted(
        ((at + 0.5) / group.count, number)
        for number, group in enumerate(groups)
        for at in range(group.count)
    )
    order = iter([number for _, number in mixed])
    made = []
    for home in (*whose.groups, None):
        counts = Counter(islice(order, home.count) if home is not None else order)
        for number in sorted(counts):
            group = groups[number]
            name = "-".join(filter(None, (home.name if home else "", group.name)))
            own = home.partitions if home is not None else ()
            made.append(replace(group, count=counts[number], name=name, partitions=own, hosts=""))
    left = nodes - wanted
    rest = f"; {plural(left, 'node')} left over may be used by all" if left else ""
    note = (
        f"No file says whose each node is: the nodes of {machines.cluster.name} are dealt out to"
        f" the {plural(len(whose.groups), 'virtual cluster')} of {whose.name}, of every kind its"
        f" share{rest}."
    )
    cluster = replace(machines.cluster, groups=tuple(made), name=whose.name)
    return Imported(cluster, (*machines.notes, note), machines.unknown, machines.asked)


def cluster_of_sizes(opened: Content, epoch: str) -> Cluster:
    """Read the sizes of virtual clusters, of nodes with eight V100.

    Parameters
    ----------
    opened : Content
        ``vc_config.csv`` or ``philly_vc.csv`` (first column the virtual cluster, second its nodes),
        or Helios ``cluster_gpu_number.csv`` (``date``, one column of GPUs for each virtual cluster,
        ``total``), which becomes dated changes.
    epoch : str
        Instant of the simulation's second 0, as `Trace.epoch` gives it, for daily sizes; "" =
        midnight of the first day.

    Raises
    ------
    ClusterError
        If the file cannot be read or a size is not a whole number of nodes that is not negative.
    """
    name = opened.name
    try:
        table, _ = read_table(opened, ReadOptions(max_bytes=LARGEST_BYTES))
    except TraceError as error:
        raise ClusterError(str(error)) from error
    if table.empty:
        raise ClusterError(f"{name}: every row has more fields than the header. Correct the table.")
    if "date" not in table:
        return _fixed(table, name)
    # Names of virtual clusters keep their capitals, which plain column names lose.
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
    return _daily(spelled, epoch, name)


def sizes_of_homes(names: Sequence[str]) -> bool:
    """Tell whether the names of two columns are those of virtual clusters and their nodes."""
    if len(names) != 2:
        return False
    first, second = names
    return (not first or bool(_UNNAMED.fullmatch(first)) or first in _HOMES) and second in _SIZES


def _fixed(table: pd.DataFrame, name: str) -> Cluster:
    if table.shape[1] < 2:
        raise ClusterError(f"{name}: two columns are needed, the virtual cluster and its nodes.")
    if not sizes_of_homes([str(column) for column in table.columns[:2]]):
        found = ", ".join(map(str, table.columns[:8]))
        raise ClusterError(
            f"{name}: this is no description of machines. A table of nodes needs a column gpus and"
            " one gpu_type or nodes; one of virtual clusters begins with the columns vc and nodes."
            f" Columns found: {found}."
        )
    homes, nodes = clean_text(table.iloc[:, 0]), numbers(table.iloc[:, 1])
    good = (
        nodes.ge(0) & np.isfinite(nodes) & nodes.mod(1).eq(0) & homes.ne("") & ~homes.duplicated()
    )
    if not good.all():
        row = int(np.flatnonzero(~good.to_numpy())[0])
        raise ClusterError(
            f"{name}: row {row + 1} ({homes.iloc[row]!r}, {table.iloc[row, 1]!r}) is not a new"
            " virtual cluster with a whole number of nodes."
        )
    return Cluster(
        tuple(_group(int(count), home) for home, count in zip(homes, nodes, strict=True)),
        name=name,
    )


def _daily(table: pd.DataFrame, epoch: str, name: str) -> Cluster:
    dates = clean_text(table["date"])
    days = parse_iso_times(dates.where(~dates.str.contains(OFFSET))).dt.tz_localize(None)
    homes = [str(column) for column in table.columns if column not in ("date", "total")]
    sizes = pd.DataFrame({home: numbers(table[home]) for home in homes})
    bad = days.isna() | ~sizes.ge(0).all(axis=1) | sizes.isin([np.inf]).any(axis=1)
    if bad.any() or not homes:
        row = int(np.flatnonzero(bad.to_numpy())[0]) + 1 if bad.any() else 1
        raise ClusterError(
            f"{name}: row {row} is not a date followed by one GPU count for each virtual cluster."
        )
    order = np.argsort(days.to_numpy(), kind="stable")
    # Clocks were set forward and back there too: a time that did not exist, or that came twice.
    local = days.iloc[order].dt.tz_localize(
        ZONE, nonexistent="shift_forward", ambiguous=np.zeros(len(order), bool)
    )
    try:
        zero = pd.Timestamp(epoch) if epoch else local.iloc[0]
    except ValueError as error:
        raise ClusterError(
            f"{name}: the epoch {epoch!r} is not an ISO time. Give one such as"
            " 2020-09-01T00:00:00+08:00."
        ) from error
    zero = zero.tz_localize(ZONE) if zero.tz is None else zero
    at_s: NDArray[np.float64] = np.array((local - zero).dt.total_seconds(), np.float64)
    wanted = np.ceil(sizes.iloc[order].to_numpy() / _GPUS)
    check_sizes(name, float(wanted.max(axis=0).sum()), 0)
    if np.abs(np.diff(wanted, axis=0)).sum() > MAX_CHANGED_NODES:
        raise ClusterError(
            f"{name}: nodes come and go more than {MAX_CHANGED_NODES:,} times. Leave some days out."
        )
    counts = wanted.astype(np.int64)
    most = counts.max(axis=0)
    groups = tuple(_group(int(count), home) for home, count in zip(homes, most, strict=True))
    return Cluster(groups, changes=_changes(at_s, counts, most), name=name)


def _changes(
    at_s: NDArray[np.float64], counts: NDArray[np.int64], most: NDArray[np.int64]
) -> tuple[Change, ...]:
    first_node = np.concatenate([[0], np.cumsum(most)[:-1]])
    # Days before second 0 only say what is there at the beginning; before the first day, its own
    # sizes hold.
    begin = max(int(np.searchsorted(at_s, 0.0, side="right")) - 1, 0)
    now, changes = most, []
    for row in range(begin, len(at_s)):
        when = 0.0 if row == begin else float(at_s[row])
        for present in (False, True):
            spans = [
                range(first + min(old, new), first + max(old, new))
                for first, old, new in zip(first_node, now, counts[row], strict=True)
                if old != new and (new > old) == present
            ]
            nodes = tuple(int(node) for span in spans for node in span)
            if nodes:
                changes.append(Change(when, nodes, present))
        now = counts[row]
    return tuple(changes)


def _group(count: int, home: str) -> NodeGroup:
    if count > MAX_NODES:
        raise ClusterError(
            f"{home or 'The file'} would have {count:,} nodes; {MAX_NODES:,} is the most that is"
            " simulated. Leave some out."
        )
    return NodeGroup(count, _GPUS, _TYPE, partitions=(home,) if home else (), name=home)
