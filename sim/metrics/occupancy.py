"""Occupancy of the cluster: GPUs held per node, rack or type over time; bars of one node."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.errors import ParameterError
from sim.metrics.steps import Floats, Ints
from sim.metrics.timeline import Timeline, index_by_name

Matrix = NDArray[np.float32]

ROWS_BY: Final = ("node", "rack", "type")
ORDERS: Final = ("cluster", "type", "rack", "load")
MAX_ROWS: Final = 1024
MAX_BINS: Final = 1000
MAX_CELLS: Final = 130_000


@dataclass(frozen=True, eq=False)
class Occupancy:
    """GPUs held per row of machines over time.

    Parameters
    ----------
    t_s : array of shape (bins + 1,), seconds
        Edges of the bins, of equal width.
    rows : tuple of str
        Nodes, racks or types, in the order of the cluster.
    kinds, racks : tuple of str
        GPU type and rack of each row; "" if a row has several.
    size : array of shape (rows,)
        GPUs (cores, see `unit`) of each row.
    used : array of float32 of shape (rows, bins)
        GPUs held: the exact mean over the bin.
    down : array of float32 of shape (rows, bins)
        Share of the row's GPUs that are down or absent, as a mean over the bin.
    unit : str
        "GPU", or "core" if the cluster has no GPUs.
    """

    t_s: Floats
    rows: tuple[str, ...]
    kinds: tuple[str, ...]
    racks: tuple[str, ...]
    size: Floats
    used: Matrix
    down: Matrix
    unit: str = "GPU"


class Bars(NamedTuple):
    """Bars of the jobs on one node.

    Parameters
    ----------
    frame : DataFrame
        job (row of the trace), t0, t1, gpus (height of the bar), lane (lowest lane of the bar), in
        order of time. A job on GPUs that are not adjacent has several bars.
    left_out : int
        Number of bars of the window that are left out, the shortest ones.
    """

    frame: pd.DataFrame
    left_out: int


def occupancy(
    line: Timeline, window: tuple[float, float], by: str = "node", within: str = ""
) -> Occupancy:
    """Return the GPUs held on each node, rack or type in a window.

    Parameters
    ----------
    line : Timeline
        The run.
    window : (float, float), seconds
        Time range, divided into at most 1,000 bins of equal width and 130,000 cells.
    by : str
        Row grouping, one of `ROWS_BY`.
    within : str
        Name of a rack or type to limit the nodes to; "" = all.

    Raises
    ------
    ParameterError
        If the window is empty, `by` is unknown, no rack or type has the name `within`, or there are
        more than 1,024 rows.

    Notes
    -----
    used = integral of the GPUs held over the bin / its width. A placement counts from its begin to
    its end, pauses included. GPUs of the recorded schedule beyond the cluster are in no row.
    """
    t0, t1 = window
    if not t1 > t0:
        raise ParameterError(
            f"Nothing can be shown from {t0} s to {t1} s. Choose a window that ends after it"
            " begins."
        )
    names, row = _rows(line, by, within)
    if len(names) > MAX_ROWS:
        raise ParameterError(
            f"There are {len(names):,} rows, and {MAX_ROWS:,} can be shown. Group the nodes by rack"
            " or by type, or choose one of these."
        )
    bins = max(1, min(MAX_BINS, MAX_CELLS // max(len(names), 1)))
    size = np.bincount(row[row >= 0], line.size[row >= 0], minlength=len(names)).astype(np.float64)
    placement_row = np.append(row, -1)[np.minimum(line.node, len(row))]
    keep = (placement_row >= 0) & (line.amount > 0) & (line.begin < t1) & (line.end > t0)
    shape = len(names), bins
    used = _means(
        (placement_row[keep], line.begin[keep], line.end[keep], line.amount[keep]), window, shape
    )
    node, begin, end = line.down
    is_relevant_outage = (row[node] >= 0) & (begin < t1) & (end > t0)
    down = _means(
        (
            row[node[is_relevant_outage]],
            begin[is_relevant_outage],
            end[is_relevant_outage],
            line.size[node[is_relevant_outage]],
        ),
        window,
        shape,
    )
    share = np.divide(down, size[:, None], out=np.zeros_like(down), where=size[:, None] > 0)
    used = np.clip(used, 0.0, size[:, None])
    nodes_by_row = [np.flatnonzero(row == row_index) for row_index in range(len(names))]
    return Occupancy(
        t_s=np.linspace(t0, t1, bins + 1),
        rows=names,
        kinds=tuple(_common(line.kinds, nodes) for nodes in nodes_by_row),
        racks=tuple(_common(line.racks, nodes) for nodes in nodes_by_row),
        size=size,
        used=used.astype(np.float32),
        down=np.clip(share, 0.0, 1.0).astype(np.float32),
        unit=line.unit,
    )


def fitting(line: Timeline, within: str = "") -> str:
    """Return the finest of `ROWS_BY` with at most 1,024 rows, or "type" if none has."""
    return next((by for by in ROWS_BY if len(_rows(line, by, within)[0]) <= MAX_ROWS), ROWS_BY[-1])


def groups(line: Timeline, by: str) -> tuple[str, ...]:
    """Return the racks or types of the cluster that have machines, in cluster order."""
    return _rows(line, by, "")[0]


def difference(policy: Occupancy, base: Occupancy) -> Matrix:
    """Return GPUs in use under one policy minus those under another, cell by cell.

    Raises
    ------
    ParameterError
        If the two differ in rows or times.
    """
    if (
        policy.rows != base.rows
        or not np.array_equal(policy.t_s, base.t_s)
        or not np.array_equal(policy.size, base.size)
    ):
        raise ParameterError(
            "These two pictures do not show the same machines at the same times, so no difference"
            " can be taken."
        )
    return np.asarray(policy.used - base.used, np.float32)


def order(occupancy: Occupancy, by: str = "cluster") -> list[int]:
    """Return the indices of the rows in another order; ties stay in cluster order.

    Parameters
    ----------
    occupancy : Occupancy
        The rows to sort.
    by : str
        "cluster" (as described), "type", "rack" (by name), or "load" (mean share in use over the
        window, fullest first).

    Raises
    ------
    ParameterError
        If the order is unknown.
    """
    rows = list(range(len(occupancy.rows)))
    if by == "load":
        load = occupancy.used.mean(axis=1, dtype=np.float64) / np.maximum(occupancy.size, 1e-9)
        return [int(row) for row in np.argsort(-load, kind="stable")]
    if by not in ORDERS:
        raise ParameterError(f"Rows cannot be sorted by {by}. Choose one of {', '.join(ORDERS)}.")
    names = {"type": occupancy.kinds, "rack": occupancy.racks}.get(by)
    return rows if names is None else sorted(rows, key=names.__getitem__)


def bars(line: Timeline, node: int, window: tuple[float, float], most: int = 1500) -> Bars:
    """Return the bars of the jobs that held GPUs of one node in a window.

    Parameters
    ----------
    line : Timeline
        The run.
    node : int
        Number of the node.
    window : (float, float), seconds
        Time range; bars are cut to it.
    most : int
        Maximum number of bars; the longest ones are kept.

    Notes
    -----
    Consecutive segments of a job on equally many GPUs are one bar. The GPU numbers of jobs are not
    recorded: lanes are assigned in order of time, the lowest free ones first.
    """
    t0, t1 = window
    shown, left_out = holdings(line, [node], window, most)
    laned = _assign_lanes(shown.drop(columns="row"))
    frame = laned.assign(t0=laned["t0"].clip(lower=t0), t1=laned["t1"].clip(upper=t1)).head(most)
    return Bars(frame, left_out + len(laned) - len(frame))


def holdings(
    line: Timeline, nodes: Sequence[int], window: tuple[float, float], most: int = 200_000
) -> tuple[pd.DataFrame, int]:
    """Return the times that jobs held GPUs of nodes in a window, and the number left out.

    Parameters
    ----------
    line : Timeline
        The run.
    nodes : sequence of int
        Numbers of the nodes.
    window : (float, float), seconds
        Time range; holdings that reach into it are whole.
    most : int
        Maximum number of holdings; those longest within the window are kept.

    Returns
    -------
    (DataFrame, int)
        row (index into `nodes`), job (row of the trace), t0, t1 and gpus, in order of row and time.
        Consecutive segments of a job on equally many GPUs of a node are one holding.
    """
    t0, t1 = window
    row = _row_of_node(line, nodes)[np.minimum(line.node, len(line.size))]
    jobs = max(len(line.result.jobs), 1)
    key = row * jobs + line.holder
    is_held = (row >= 0) & (line.amount > 0) & (line.end > line.begin)
    is_inside = is_held & (line.begin < t1) & (line.end > t0)
    # Segments outside may continue those inside.
    keep = is_held & np.isin(key, key[is_inside])
    frame = _join_holdings(key[keep], line.begin[keep], line.end[keep], line.amount[keep])
    frame = frame[(frame["t0"] < t1) & (frame["t1"] > t0)]
    frame = frame.assign(row=frame["job"] // jobs, job=frame["job"] % jobs)
    in_window_s = frame["t1"].clip(upper=t1).to_numpy() - frame["t0"].clip(lower=t0).to_numpy()
    kept = np.argsort(-in_window_s, kind="stable")[:most]
    shown = frame.iloc[np.sort(kept)].sort_values(["row", "t0", "t1", "job"], kind="stable")
    return shown.reset_index(drop=True), len(frame) - len(shown)


def outages(line: Timeline, nodes: Sequence[int], window: tuple[float, float]) -> pd.DataFrame:
    """Return row (index into `nodes`), t0 and t1 (s) of the times without capacity in a window."""
    node, t0, t1 = line.down
    frame = pd.DataFrame({"row": _row_of_node(line, nodes)[node], "t0": t0, "t1": t1})
    return frame[(frame["row"] >= 0) & (frame["t0"] < window[1]) & (frame["t1"] > window[0])]


def _row_of_node(line: Timeline, nodes: Sequence[int]) -> Ints:
    """Return each node's index into `nodes`, -1 = none; the last entry is of no node."""
    row = np.full(len(line.size) + 1, -1)
    row[list(nodes)] = np.arange(len(nodes))
    return row


def _rows(line: Timeline, by: str, within: str) -> tuple[tuple[str, ...], Ints]:
    """Return the row names, and each node's row; -1 = outside `within`, or without GPUs."""
    if by not in ROWS_BY:
        raise ParameterError(
            f"Machines cannot be grouped by {by}. Choose one of {', '.join(ROWS_BY)}."
        )
    names = {"node": line.names, "rack": line.racks, "type": line.kinds}[by]
    is_shown = line.size > 0
    if within:
        is_inside = np.array(
            [within in pair for pair in zip(line.racks, line.kinds, strict=True)], np.bool_
        )
        if not (is_inside & is_shown).any():
            raise ParameterError(
                f"No rack or type with {line.unit}s is called '{within[:60]}'. Choose one that is"
                " in the list."
            )
        is_shown &= is_inside
    row_of_name = index_by_name(name for name, there in zip(names, is_shown, strict=True) if there)
    row = np.array(
        [
            row_of_name.get(name, -1) if there else -1
            for name, there in zip(names, is_shown, strict=True)
        ],
        np.int64,
    )
    return tuple(row_of_name), row


def _common(names: Sequence[str], nodes: Ints) -> str:
    """Return the name that all nodes share; "" if they differ."""
    distinct_names = {names[node] for node in nodes.tolist()}
    return distinct_names.pop() if len(distinct_names) == 1 else ""


def _means(
    held: tuple[Ints, Floats, Floats, Floats], window: tuple[float, float], shape: tuple[int, int]
) -> Floats:
    """Return the mean per row and bin, given row, begin, end and amount of each holding.

    Notes
    -----
    A change at x within bin j changes the mean of j by the remaining part of the bin, and all later
    bins fully: two counts and one running sum.
    """
    row, begin, end, amount = held
    (t0, t1), (rows, bins) = window, shape
    position = (np.concatenate((begin, end)) - t0) * (bins / (t1 - t0))
    position = np.maximum(position, 0.0)
    is_in_window = position < bins
    position, change, row = (
        position[is_in_window],
        np.concatenate((amount, -amount))[is_in_window],
        np.tile(row, 2)[is_in_window],
    )
    first = position.astype(np.int64)
    bin_rest = first + 1 - position
    cell = row * (bins + 1) + first
    length = rows * (bins + 1)
    partial = np.bincount(cell, change * bin_rest, minlength=length).reshape(rows, bins + 1)
    full = np.bincount(cell + 1, change, minlength=length + 1)[:length].reshape(rows, bins + 1)
    # Without any change both counts are whole numbers.
    return np.asarray((partial + np.cumsum(full, axis=1))[:, :bins], np.float64)


def _join_holdings(job: Ints, t0: Floats, t1: Floats, amount: Floats) -> pd.DataFrame:
    """Add up simultaneous holdings of a job, and join consecutive equal ones."""
    frame = (
        pd.DataFrame({"job": job, "t0": t0, "t1": t1, "gpus": amount})
        .groupby(["job", "t0", "t1"], as_index=False, sort=True)
        .sum()
    )
    previous = frame.shift()
    starts_new = ~(
        (frame["job"] == previous["job"])
        & (frame["t0"] == previous["t1"])
        & (frame["gpus"] == previous["gpus"])
    )
    joined = frame.groupby(starts_new.cumsum(), sort=False).agg(
        {"job": "first", "t0": "first", "t1": "last", "gpus": "first"}
    )
    return joined.reset_index(drop=True)


def _assign_lanes(held: pd.DataFrame) -> pd.DataFrame:
    """Assign holdings to the lowest free lanes, by time; one bar per run of adjacent lanes."""
    free: list[int] = []
    ends: list[tuple[float, int]] = []
    lanes, rows = 0, []
    for job, t0, t1, gpus in held.itertuples(index=False):
        while ends and ends[0][0] <= t0:
            insort(free, heappop(ends)[1])
        lane_count = int(np.ceil(gpus))
        while len(free) < lane_count:
            free.append(lanes)
            lanes += 1
        taken, free = free[:lane_count], free[lane_count:]
        for lane in taken:
            heappush(ends, (t1, lane))
        gaps = np.flatnonzero(np.diff(taken) > 1) + 1
        rows += [(job, t0, t1, len(run), int(run[0])) for run in np.split(np.array(taken), gaps)]
    bars = pd.DataFrame(rows, columns=["job", "t0", "t1", "gpus", "lane"])
    return bars.astype(
        {"job": np.int64, "t0": np.float64, "t1": np.float64, "gpus": np.int64, "lane": np.int64}
    )
