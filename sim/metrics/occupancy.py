"""Occupancy of the machines: GPUs in use per node, rack or type over time, and the jobs of one node
as bars.
"""

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
from sim.metrics.timeline import Timeline, first_places

Matrix = NDArray[np.float32]

ROWS_BY: Final = ("node", "rack", "type")
ORDERS: Final = ("cluster", "type", "rack", "load")
MOST_ROWS: Final = 128
MOST_BINS: Final = 1000
MOST_CELLS: Final = 130_000


@dataclass(frozen=True, eq=False)
class Occupancy:
    """How much of the machines is held over time.

    Parameters
    ----------
    t_s : array of shape (bins + 1,), seconds
        Edges of the bins, of equal width.
    rows : tuple of str
        Nodes, racks or types, in the order of the cluster.
    kinds, racks : tuple of str
        GPU type and rack of each row; "" where a row has several.
    size : array of shape (rows,)
        GPUs (cores, see `unit`) of each row.
    used : array of float32 of shape (rows, bins)
        GPUs held: the exact mean over the time of the bin.
    down : array of float32 of shape (rows, bins)
        Share of the row's GPUs that is down or absent, as a mean over the bin.
    unit : str
        "GPU", or "core" where the cluster has no GPUs.
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
    """The jobs on one node.

    Parameters
    ----------
    frame : DataFrame
        job (row of the trace), t0, t1, gpus (height of the bar), lane (the lowest of the lanes it
        covers), in order of time. A job on GPUs that do not lie side by side has several bars.
    left_out : int
        Bars of the window that are not in it, the shortest ones.
    """

    frame: pd.DataFrame
    left_out: int


def occupancy(
    line: Timeline, window: tuple[float, float], by: str = "node", within: str = ""
) -> Occupancy:
    """Return how much of each node, rack or type is held in a window.

    Parameters
    ----------
    line : Timeline
        The run.
    window : (float, float), seconds
        What to show, in at most 1,000 bins of equal width and 130,000 cells.
    by : str
        One of `ROWS_BY`.
    within : str
        A rack or a type: only its nodes. "" = all.

    Raises
    ------
    ParameterError
        If the window is empty, `by` is unknown, nothing is called `within`, or there are more than
        128 rows.

    Notes
    -----
    used = integral of the GPUs held over the bin / its width. A placement counts from its begin to
    its end, pauses included; what the recorded schedule holds beyond the cluster is on no row.
    """
    t0, t1 = window
    if not t1 > t0:
        raise ParameterError(
            f"Nothing can be shown from {t0} s to {t1} s. Choose a window that ends after it"
            " begins."
        )
    names, row = _rows(line, by, within)
    if len(names) > MOST_ROWS:
        raise ParameterError(
            f"There are {len(names):,} rows, and {MOST_ROWS} can be shown. Group the nodes by rack"
            " or by type, or choose one of these."
        )
    bins = max(1, min(MOST_BINS, MOST_CELLS // max(len(names), 1)))
    size = np.bincount(row[row >= 0], line.size[row >= 0], minlength=len(names)).astype(np.float64)
    mine = np.append(row, -1)[np.minimum(line.node, len(row))]
    keep = (mine >= 0) & (line.amount > 0) & (line.begin < t1) & (line.end > t0)
    shape = len(names), bins
    used = _means((mine[keep], line.begin[keep], line.end[keep], line.amount[keep]), window, shape)
    node, begin, end = line.down
    lost = (row[node] >= 0) & (begin < t1) & (end > t0)
    down = _means((row[node[lost]], begin[lost], end[lost], line.size[node[lost]]), window, shape)
    share = np.divide(down, size[:, None], out=np.zeros_like(down), where=size[:, None] > 0)
    used = np.clip(used, 0.0, size[:, None])
    at = [np.flatnonzero(row == place) for place in range(len(names))]
    return Occupancy(
        t_s=np.linspace(t0, t1, bins + 1),
        rows=names,
        kinds=tuple(_common(line.kinds, nodes) for nodes in at),
        racks=tuple(_common(line.racks, nodes) for nodes in at),
        size=size,
        used=used.astype(np.float32),
        down=np.clip(share, 0.0, 1.0).astype(np.float32),
        unit=line.unit,
    )


def fitting(line: Timeline, within: str = "") -> str:
    """Return the finest of `ROWS_BY` with at most 128 rows; types where none has."""
    return next((by for by in ROWS_BY if len(_rows(line, by, within)[0]) <= MOST_ROWS), ROWS_BY[-1])


def groups(line: Timeline, by: str) -> tuple[str, ...]:
    """Return the racks or types that can be opened, in the order of the cluster."""
    return _rows(line, by, "")[0]


def difference(policy: Occupancy, base: Occupancy) -> Matrix:
    """Return GPUs in use under one policy minus those under another, cell by cell.

    Raises
    ------
    ParameterError
        If the two do not show the same rows of machines at the same times.
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


def order(found: Occupancy, by: str = "cluster") -> list[int]:
    """Return the places of the rows in another order; equal ones stay in the order of the cluster.

    Parameters
    ----------
    found : Occupancy
        What is shown.
    by : str
        "cluster" (as described), "type", "rack" (by name), or "load" (mean share in use over the
        window, fullest first).

    Raises
    ------
    ParameterError
        If the order is unknown.
    """
    places = list(range(len(found.rows)))
    if by == "load":
        load = found.used.mean(axis=1, dtype=np.float64) / np.maximum(found.size, 1e-9)
        return [int(at) for at in np.argsort(-load, kind="stable")]
    if by not in ORDERS:
        raise ParameterError(f"Rows cannot be sorted by {by}. Choose one of {', '.join(ORDERS)}.")
    names = {"type": found.kinds, "rack": found.racks}.get(by)
    return places if names is None else sorted(places, key=names.__getitem__)


def bars(line: Timeline, node: int, window: tuple[float, float], most: int = 1500) -> Bars:
    """Return which jobs held the GPUs of one node when.

    Parameters
    ----------
    line : Timeline
        The run.
    node : int
        Its number.
    window : (float, float), seconds
        Bars that meet it, cut to it.
    most : int
        Bars at most; the longest ones stay.

    Notes
    -----
    Segments of a job that follow each other on as many GPUs are one bar. Which GPU of a node a job
    had is not recorded: lanes are given out in order of time, the lowest free ones first.
    """
    t0, t1 = window
    keep = (
        (line.node == node)
        & (line.amount > 0)
        & (line.begin < t1)
        & (line.end > t0)
        & (line.end > line.begin)
    )
    held = _joined(line.holder[keep], line.begin[keep], line.end[keep], line.amount[keep])
    seen_s = held["t1"].clip(upper=t1).to_numpy() - held["t0"].clip(lower=t0).to_numpy()
    shown = held.iloc[np.sort(np.argsort(-seen_s, kind="stable")[:most])]
    made = _laned(shown.sort_values(["t0", "t1", "job"], kind="stable"))
    frame = made.assign(t0=made["t0"].clip(lower=t0), t1=made["t1"].clip(upper=t1)).head(most)
    return Bars(frame, len(held) - len(shown) + len(made) - len(frame))


def _rows(line: Timeline, by: str, within: str) -> tuple[tuple[str, ...], Ints]:
    """Return the names of the rows, and the row of each node, -1 = none."""
    if by not in ROWS_BY:
        raise ParameterError(
            f"Machines cannot be grouped by {by}. Choose one of {', '.join(ROWS_BY)}."
        )
    names = {"node": line.names, "rack": line.racks, "type": line.kinds}[by]
    shown = line.size > 0
    if within:
        inside = np.array(
            [within in pair for pair in zip(line.racks, line.kinds, strict=True)], np.bool_
        )
        if not (inside & shown).any():
            raise ParameterError(
                f"No rack or type with {line.unit}s is called '{within[:60]}'. Choose one that is"
                " in the list."
            )
        shown &= inside
    places = first_places(name for name, there in zip(names, shown, strict=True) if there)
    row = np.array(
        [places.get(name, -1) if there else -1 for name, there in zip(names, shown, strict=True)],
        np.int64,
    )
    return tuple(places), row


def _common(names: Sequence[str], nodes: Ints) -> str:
    found = {names[node] for node in nodes.tolist()}
    return found.pop() if len(found) == 1 else ""


def _means(
    held: tuple[Ints, Floats, Floats, Floats], window: tuple[float, float], shape: tuple[int, int]
) -> Floats:
    """Return the mean of each row and bin, from row, begin, end and amount of what is held.

    Notes
    -----
    A change at x within bin j raises the mean of j by the part of the bin that is left, and all
    later bins by the whole: two counts and one running sum.
    """
    row, begin, end, amount = held
    (t0, t1), (rows, bins) = window, shape
    at = (np.concatenate((begin, end)) - t0) * (bins / (t1 - t0))
    at = np.maximum(at, 0.0)
    seen = at < bins
    at, change, row = at[seen], np.concatenate((amount, -amount))[seen], np.tile(row, 2)[seen]
    first = at.astype(np.int64)
    left = first + 1 - at
    cell = row * (bins + 1) + first
    length = rows * (bins + 1)
    part = np.bincount(cell, change * left, minlength=length).reshape(rows, bins + 1)
    whole = np.bincount(cell + 1, change, minlength=length + 1)[:length].reshape(rows, bins + 1)
    # Without any change both counts are whole numbers.
    return np.asarray((part + np.cumsum(whole, axis=1))[:, :bins], np.float64)


def _joined(job: Ints, t0: Floats, t1: Floats, amount: Floats) -> pd.DataFrame:
    """Add up what a job holds at once, and join what follows without a gap or a change."""
    frame = (
        pd.DataFrame({"job": job, "t0": t0, "t1": t1, "gpus": amount})
        .groupby(["job", "t0", "t1"], as_index=False, sort=True)
        .sum()
    )
    before = frame.shift()
    fresh = ~(
        (frame["job"] == before["job"])
        & (frame["t0"] == before["t1"])
        & (frame["gpus"] == before["gpus"])
    )
    joined = frame.groupby(fresh.cumsum(), sort=False).agg(
        {"job": "first", "t0": "first", "t1": "last", "gpus": "first"}
    )
    return joined.reset_index(drop=True)


def _laned(held: pd.DataFrame) -> pd.DataFrame:
    free: list[int] = []
    ends: list[tuple[float, int]] = []
    lanes, rows = 0, []
    for job, t0, t1, gpus in held.itertuples(index=False):
        while ends and ends[0][0] <= t0:
            insort(free, heappop(ends)[1])
        wanted = int(np.ceil(gpus))
        while len(free) < wanted:
            free.append(lanes)
            lanes += 1
        mine, free = free[:wanted], free[wanted:]
        for lane in mine:
            heappush(ends, (t1, lane))
        cuts = np.flatnonzero(np.diff(mine) > 1) + 1
        rows += [(job, t0, t1, len(run), int(run[0])) for run in np.split(np.array(mine), cuts)]
    made = pd.DataFrame(rows, columns=["job", "t0", "t1", "gpus", "lane"])
    return made.astype(
        {"job": np.int64, "t0": np.float64, "t1": np.float64, "gpus": np.int64, "lane": np.int64}
    )
