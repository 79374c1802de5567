"""Figures over time within a window: of one run from the full results, as finely as a screen shows
them; of several runs on one grid of instants, as exact means of bins that begin at round times of
the clock, or the exact steps where there are few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.metrics import (
    GPU_STATES,
    allocation_series,
    bins_for,
    note_series,
    reduce_frame,
    resource_series,
)
from trainyard.runs.frames import SERIES
from trainyard.store import StoredResult

Floats = NDArray[np.float64]
Window = tuple[float, float]
MOST_BINS: Final = 160
"""Bins of a window; also the most changes of it that are shown as they are."""
_DAY_S: Final = 86_400.0
_STEPS_S: Final = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * count for count in (1, 2, 5, 10, 15, 30, 60, 90)),
    *(3600.0 * count for count in (2, 3, 4, 6, 8, 12)),
    *(_DAY_S * count for count in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
"""Widths of a bin; those below a day divide it, so that bins begin at the same times every day."""
_KINDS: Final = ("queue", "utilisation", "capacity")
_LINKED_POINTS: Final = 18_000
"""What the linked figure may use of the 32,000 points of a page; at most 6,000 are of other figures
over time.
"""
MOST_BANDS: Final = 3
"""More bands than those of so many policies hide each other."""
_ALLOCATION_BINS: Final = 499
_RESOURCE_BINS: Final = 149


@dataclass(frozen=True, eq=False)
class Load:
    """One run on the grid.

    Parameters
    ----------
    waiting, most : array
        Mean and largest number of jobs waiting in each bin; NaN = the run has ended before.
    busy : array
        Per cent of the GPUs that the cluster has then; NaN as well where it has none.
    peak, peak_s : float, float (seconds)
        The longest queue within the window and its first instant, from the exact series.
    """

    waiting: Floats
    most: Floats
    busy: Floats
    peak: float
    peak_s: float


@dataclass(frozen=True, eq=False)
class Loads:
    """Several runs on one grid.

    Parameters
    ----------
    edges_s : array, seconds
        Begin of every bin, and the end of the last one.
    exact : bool
        Whether bins are the steps themselves, between any two changes.
    runs : mapping of Load
        Title of a policy -> its run.
    """

    edges_s: Floats
    exact: bool
    runs: Mapping[str, Load]


class _Opened:
    """A stored run as the key of a cache: `StoredResult` itself holds mappings."""

    def __init__(self, entry: StoredResult, cluster: Cluster) -> None:
        self.entry, self.cluster = entry, cluster

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opened) and other.entry.key == self.entry.key

    def __hash__(self) -> int:
        return hash(self.entry.key)


@lru_cache(maxsize=8)
def _series(run: _Opened) -> dict[str, pd.DataFrame]:
    # Opening a result costs more than all that is done with it here.
    result, own = run.entry.result(), run.entry.scenario
    # A run of an earlier scenario may stand beside the others.
    cluster = Cluster.from_json(own["cluster"]) if own else run.cluster
    return {name: SERIES[name](result, cluster) for name in _KINDS}


def loads(
    entries: Mapping[str, StoredResult],
    cluster: Cluster,
    window: Window | None = None,
    midnight_s: float = 0.0,
) -> Loads:
    """Return the runs of several policies within a window.

    Parameters
    ----------
    entries : mapping of Entry
        Title of a policy -> its run.
    cluster : Cluster
        The machines.
    window : (float, float) or None, seconds
        None = from 0 to the end of the longest run.
    midnight_s : float, seconds
        Where a day begins, on the clock of the runs.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile.

    Notes
    -----
    Mean of a bin [a, b): (I(b) - I(a)) / (b - a), with I the integral of the exact steps; GPUs busy
    are the integral of those held over that of the capacity. Of a run that ends within a bin the
    part before the end counts.
    """
    steps = {title: _series(_Opened(entry, cluster)) for title, entry in entries.items()}
    ends = {title: float(series["queue"]["t_s"].iloc[-1]) for title, series in steps.items()}
    t0, t1 = window or (0.0, max(*ends.values(), 1.0))
    edges = _changes(steps, t0, t1)
    exact = len(edges) - 1 < MOST_BINS
    if not exact:
        edges = clock_bins(t0, min(t1, max(ends.values())), midnight_s)
    return Loads(
        edges,
        exact,
        {title: _load(series, edges, ends[title], (t0, t1)) for title, series in steps.items()},
    )


def clock_bins(t0: float, t1: float, midnight_s: float = 0.0) -> Floats:
    """Return the edges of at most `MOST_BINS` bins of one round width that cover a window, each at
    a round time of the clock.
    """
    first, last = t0 - midnight_s, max(t1, t0 + 1.0) - midnight_s
    width = next(
        (step for step in _STEPS_S if np.ceil(last / step) - np.floor(first / step) <= MOST_BINS),
        _STEPS_S[-1] * np.ceil((last - first) / _STEPS_S[-1] / (MOST_BINS - 2)),
    )
    return np.arange(np.floor(first / width), np.ceil(last / width) + 1) * width + midnight_s


def _changes(steps: Mapping[str, Mapping[str, pd.DataFrame]], t0: float, t1: float) -> Floats:
    """Return the instants within a window at which anything of any run changes, and its ends."""
    found = [
        times[(times > t0) & (times < t1)]
        for series in steps.values()
        for frame in series.values()
        for times in [frame["t_s"].to_numpy(np.float64)]
    ]
    return np.unique(np.concatenate([[t0, t1], *found]))


def _load(series: Mapping[str, pd.DataFrame], edges: Floats, end_s: float, window: Window) -> Load:
    queue, held, there = (series[name] for name in _KINDS)
    cut = np.minimum(edges, end_s)
    widths = np.diff(cut)
    lived = widths > 0
    waiting, busy = np.full(len(widths), np.nan), np.full(len(widths), np.nan)
    waiting[lived] = np.diff(_integral(queue, "waiting", cut))[lived] / widths[lived]
    capacity = np.diff(_integral(there, "total", cut))
    some = lived & (capacity > 0)
    busy[some] = 100.0 * np.diff(_integral(held, "total", cut))[some] / capacity[some]
    peak, peak_s = _peak(queue, *window)
    most = np.where(lived, _most(queue, edges), np.nan)
    # Rounding of sums must show neither fewer jobs than none, nor more than the most, nor more than
    # all GPUs.
    return Load(np.clip(waiting, 0.0, most), most, np.clip(busy, 0.0, 100.0), peak, peak_s)


def _most(queue: pd.DataFrame, edges: Floats) -> Floats:
    """Return the most jobs waiting at any instant of each bin [a, b)."""
    t, v = queue["t_s"].to_numpy(np.float64), queue["waiting"].to_numpy(np.float64)
    # Each edge becomes a step of its own, with the value that holds there.
    steps = np.union1d(t, edges)
    held = np.where(steps < t[0], 0.0, v[np.maximum(np.searchsorted(t, steps, "right") - 1, 0)])
    first = np.searchsorted(steps, edges)
    return np.maximum.reduceat(held[: first[-1]], first[:-1])


def _integral(frame: pd.DataFrame, column: str, at: Floats) -> Floats:
    """Return the integral of a step series from its first point to each of some instants."""
    t, v = frame["t_s"].to_numpy(np.float64), frame[column].to_numpy(np.float64)
    running = np.concatenate(([0.0], np.cumsum(v[:-1] * np.diff(t))))
    last = running[-1] + v[-1] * np.maximum(at - t[-1], 0.0)
    return np.where(at > t[-1], last, np.interp(at, t, running))


def _peak(queue: pd.DataFrame, t0: float, t1: float) -> tuple[float, float]:
    t, v = queue["t_s"].to_numpy(np.float64), queue["waiting"].to_numpy(np.float64)
    first = max(int(np.searchsorted(t, t0, "right")) - 1, 0)
    inside = v[first : max(int(np.searchsorted(t, t1, "left")), first + 1)]
    at = int(inside.argmax())
    return float(inside[at]), float(max(t[first + at], t0))


def full_series(entry: StoredResult, cluster: Cluster) -> dict[str, pd.DataFrame]:
    """Return every series of `trainyard.runs.frames.SERIES` and ``resources`` of a stored run, not
    reduced; keep it, since opening a result costs the most.

    Raises
    ------
    StoreError
        If the result was removed meanwhile.
    """
    result = entry.result()
    return {name: make(result, cluster) for name, make in SERIES.items()} | {
        "resources": resource_series(result, cluster)
    }


def within(
    full: Mapping[str, pd.DataFrame], window: Window, policies: int
) -> dict[str, pd.DataFrame]:
    """Return the series of one run reduced to a window.

    Parameters
    ----------
    full : mapping of DataFrame
        From `full_series`.
    window : (float, float), seconds
        Begin and end.
    policies : int
        How many runs are drawn together: they share the points of the page.
    """
    bins = bins_for(_lines(policies, full["utilisation"]), _LINKED_POINTS)
    made = {
        name: reduce_frame(frame, *window, bins)
        for name, frame in full.items()
        if name != "resources"
    }
    used = full["resources"]
    return made | {"resources": reduce_frame(used, *window, _RESOURCE_BINS) if len(used) else used}


def _lines(policies: int, utilisation: pd.DataFrame) -> int:
    """Return how many lines a linked figure of so many runs has at most: in three rows, with bands
    where there are few; by type; by state and capacity.
    """
    types = utilisation.shape[1] - 2
    return (
        max(policies, 1) * (3 * (3 if policies <= MOST_BANDS else 1) + types) + len(GPU_STATES) + 1
    )


def allocation(entry: StoredResult, window: Window) -> pd.DataFrame:
    """Return which jobs hold the GPUs in a window, see `sim.metrics.allocation_series`.

    Raises
    ------
    StoreError
        If the result was removed meanwhile.
    """
    return allocation_series(entry.result(), window, _ALLOCATION_BINS)


def notes(entry: StoredResult, window: Window) -> pd.DataFrame:
    """Return what an allocator noted in a window, see `sim.metrics.note_series`.

    Raises
    ------
    StoreError
        If the result was removed meanwhile.
    """
    return note_series(entry.result(), window=window)
