"""Clusters for a trace: sized from what its virtual clusters used, or read from the node counts its
authors published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Change, Cluster, NodeGroup
from sim.errors import ClusterError, TraceError
from sim.limits import MOST_CHANGED, MOST_NODES, check_sizes
from sim.readers.cells import OFFSET, numbers, parsed, text
from sim.readers.format import ReadOptions
from sim.readers.sniff import plain
from sim.readers.source import open_source
from sim.readers.table import read_table
from sim.trace import Trace

ZONE: Final = "Asia/Shanghai"
LARGEST_BYTES: Final = 50_000_000
_UNNAMED: Final = re.compile(r"(column_|unnamed).*")
_HOMES: Final = ("vc", "vc_name", "virtual_cluster", "virtualcluster", "name", "queue", "partition")
_SIZES: Final = ("num", "nodes", "node_num", "num_nodes", "count")
"""What the columns of a table of virtual clusters are called; that of Philly and Lucid leaves the
first one without a name.
"""


@dataclass(frozen=True)
class NodeShape:
    """What every node of the built cluster looks like.

    Parameters
    ----------
    gpus : int
        GPUs per node.
    gpu_type : str
        Name of the type.
    """

    gpus: int = 8
    gpu_type: str = "v100"

    def __post_init__(self) -> None:
        """Refuse nodes without GPUs."""
        if self.gpus < 1 or not self.gpu_type:
            raise ClusterError(
                f"A node must have at least one GPU of a named type, not {self.gpus} of"
                f" {self.gpu_type!r}."
            )

    def group(self, count: int, home: str) -> NodeGroup:
        """Return `count` such nodes that belong to `home`; "" = to nobody in particular.

        Raises
        ------
        ClusterError
            If there are more than any cluster has.
        """
        if count > MOST_NODES:
            raise ClusterError(
                f"{home or 'The trace'} would need {count:,} nodes of {self.gpus} GPUs. Check the"
                " unit of the durations and the GPU counts."
            )
        return NodeGroup(
            count, self.gpus, self.gpu_type, partitions=(home,) if home else (), name=home
        )


def cluster_from_trace(
    trace: Trace,
    gpus_per_node: int = 8,
    gpu_type: str = "v100",
    *,
    types: Sequence[str] = (),
    by: str = "",
    load: float = 0.85,
) -> Cluster:
    """Build one node group for each virtual cluster (or partition) of a trace, and GPU type.

    Parameters
    ----------
    trace : Trace
        With recorded starts, every group holds the peak of GPUs in use at once; without, it has the
        size at which the offered work is `load` of it from the first to the last submission. In
        both cases the biggest job of the group fits.
    gpus_per_node : int
        GPUs of every node.
    gpu_type : str
        Type of every GPU.
    types : sequence of str
        GPU type of each job instead, as the groups shall have them.
    by : {"", "vc", "partition"}
        Which column makes groups; "" = vc where there is one, else partition, else one group for
        all.
    load : float
        Offered load where starts are not recorded; above 0.

    Raises
    ------
    ClusterError
        If the load or the node is impossible, or `by` is not a column that makes groups.
    """
    if not load > 0 or by not in ("", "vc", "partition"):
        raise ClusterError(
            f"A cluster cannot be built by {by!r} for load {load}. Group by vc or partition, with a"
            " load above 0."
        )
    home, homes = homes_of(trace, by)
    kind, kinds = (
        (np.zeros(len(trace), np.int64), [gpu_type])
        if not len(types)
        else _coded(pd.Series(list(types)))
    )
    gpus, run_s, start_s = (
        trace.numbers("num_gpus"),
        trace.numbers("duration_s"),
        trace.numbers("start_time_s"),
    )
    groups = []
    for (at, name), (of, kind_name) in product(enumerate(homes), enumerate(kinds)):
        mine = (home == at) & (kind == of)
        if not mine.any() or (len(kinds) > 1 and not gpus[mine].any()):
            continue
        started = mine & np.isfinite(start_s)
        if started.any():
            needed = peak_gpus(start_s[started], run_s[started], gpus[started])
        else:
            needed = float((gpus[mine] * run_s[mine]).sum()) / (
                load * max(trace.span_s, float(run_s[mine].max()))
            )
        most = max(needed, float(gpus[mine].max()), 1.0)
        shape = NodeShape(gpus_per_node, kind_name)
        group = shape.group(math.ceil(round(most / gpus_per_node, 9)), name)
        if name and len(kinds) > 1:
            group = replace(group, name=f"{name}-{kind_name}")
        groups.append(group)
    return Cluster(tuple(groups), name=f"from {trace.name}")


def homes_of(trace: Trace, by: str = "") -> tuple[NDArray[np.int64], list[str]]:
    """Return the number of the virtual cluster (or partition) of each job, and their names; one
    without a name where the trace knows none.
    """
    column = by or next((known for known in ("vc", "partition") if trace.has(known)), "vc")
    found = trace.texts(column)
    return np.asarray(found.codes, np.int64), [str(home) for home in found.categories]


def _coded(names: pd.Series) -> tuple[NDArray[np.int64], list[str]]:
    codes, kinds = pd.factorize(names)
    return np.asarray(codes, np.int64), [str(kind) for kind in kinds]


def peak_gpus(
    start_s: NDArray[np.float64], run_s: NDArray[np.float64], gpus: NDArray[np.float64]
) -> float:
    """Return the most GPUs in use at once, a job that ends at an instant making room for one that
    starts then.
    """
    at = np.concatenate([start_s, start_s + run_s])
    change = np.concatenate([gpus, -gpus])
    order = np.lexsort((change, at))
    return float(np.cumsum(change[order]).max(initial=0.0))


def cluster_from_vc_config(source: Path | bytes, *, epoch: str = "", name: str = "") -> Cluster:
    """Read the sizes of virtual clusters, of nodes with eight V100.

    Parameters
    ----------
    source : Path or bytes
        ``vc_config.csv`` or ``philly_vc.csv`` (first column the virtual cluster, second its nodes),
        or Helios ``cluster_gpu_number.csv`` (``date``, one column of GPUs for each virtual cluster,
        ``total``), which becomes dated changes.
    epoch : str
        Instant of the simulation's second 0, as `Trace.epoch` gives it, for daily sizes; "" =
        midnight of the first day.
    name : str
        What the user calls the file.

    Raises
    ------
    ClusterError
        If the file cannot be read or a size is not a whole number of nodes that is not negative.
    """
    shape = NodeShape()
    name = name or (source.name if isinstance(source, Path) else "the cluster file")
    options = ReadOptions(max_bytes=LARGEST_BYTES)
    try:
        content = open_source(source, name, options)
        table, _ = read_table(content, options)
    except TraceError as error:
        raise ClusterError(str(error)) from error
    if table.empty:
        raise ClusterError(f"{name}: every row has more fields than the header. Correct the table.")
    if "date" not in table:
        return _fixed(table, shape, name)
    # Names of virtual clusters keep their capitals, which plain column names lose.
    spelled = table.set_axis(
        [
            cell if plain(cell) not in ("date", "total") else plain(cell)
            for cell in content.sample.cells
        ],
        axis=1,
    )
    if spelled.columns.duplicated().any():
        raise ClusterError(
            f"{name}: column {spelled.columns[spelled.columns.duplicated()][0]!r} occurs twice."
            " Give every virtual cluster one column."
        )
    return _daily(spelled, shape, epoch, name)


def _fixed(table: pd.DataFrame, shape: NodeShape, name: str) -> Cluster:
    if table.shape[1] < 2:
        raise ClusterError(f"{name}: two columns are needed, the virtual cluster and its nodes.")
    first, second = (str(column) for column in table.columns[:2])
    if not (_UNNAMED.fullmatch(first) or first in _HOMES) or second not in _SIZES:
        found = ", ".join(map(str, table.columns[:8]))
        raise ClusterError(
            f"{name}: this is no description of machines. A table of nodes needs a column gpus and"
            " one gpu_type or nodes; one of virtual clusters begins with the columns vc and nodes."
            f" Columns found: {found}."
        )
    homes, nodes = text(table.iloc[:, 0]), numbers(table.iloc[:, 1])
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
        tuple(shape.group(int(count), home) for home, count in zip(homes, nodes, strict=True)),
        name=name,
    )


def _daily(table: pd.DataFrame, shape: NodeShape, epoch: str, name: str) -> Cluster:
    dates = text(table["date"])
    days = parsed(dates.where(~dates.str.contains(OFFSET))).dt.tz_localize(None)
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
    wanted = np.ceil(sizes.iloc[order].to_numpy() / shape.gpus)
    check_sizes(name, float(wanted.max(axis=0).sum()), 0)
    if np.abs(np.diff(wanted, axis=0)).sum() > MOST_CHANGED:
        raise ClusterError(
            f"{name}: nodes come and go more than {MOST_CHANGED:,} times. Leave some days out."
        )
    counts = wanted.astype(np.int64)
    most = counts.max(axis=0)
    groups = tuple(shape.group(int(count), home) for home, count in zip(homes, most, strict=True))
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
