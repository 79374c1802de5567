"""Queue length and GPU use over a time window: one run in detail, several on one grid.

Values of several runs are exact means over bins that begin at round clock times, or the exact steps
where there are few.
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
MAX_BINS: Final = 160
"""Maximum number of bins of a window, and of changes that are drawn unbinned."""
_DAY_S: Final = 86_400.0
_STEPS_S: Final = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * count for count in (1, 2, 5, 10, 15, 30, 60, 90)),
    *(3600.0 * count for count in (2, 3, 4, 6, 8, 12)),
    *(_DAY_S * count for count in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
"""Bin widths; those below a day divide it, so that bins begin at the same times every day."""
_KINDS: Final = ("queue", "utilisation", "capacity")
_LINKED_POINTS: Final = 18_000
"""Points of the linked figure, out of 32,000 per page; other figures over time take up to 6,000."""
MAX_BANDS: Final = 3
"""Policies up to which bands are drawn; more bands hide each other."""
_ALLOCATION_BINS: Final = 499
_RESOURCE_BINS: Final = 149


@dataclass(frozen=True, eq=False)
class Load:
    """Queue and GPU use of one run on the grid.

    Parameters
    ----------
    waiting, most : array
        Mean and largest number of waiting jobs per bin; NaN = after the end of the run.
    busy : array
        GPUs in use, in percent of the GPUs in service; NaN also where there are none.
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
    """Queue and GPU use of several runs on one grid.

    Parameters
    ----------
    edges_s : array, seconds
        Start of every bin, and the end of the last one.
    exact : bool
        Whether each bin lies between two consecutive changes.
    runs : mapping of Load
        Title of a policy -> its values.
    """

    edges_s: Floats
    exact: bool
    runs: Mapping[str, Load]


class _RunKey:
    """A stored run as a hashable cache key; `StoredResult` itself holds mappings."""

    def __init__(self, entry: StoredResult, cluster: Cluster) -> None:
        self.entry, self.cluster = entry, cluster

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RunKey) and other.entry.key == self.entry.key

    def __hash__(self) -> int:
        return hash(self.entry.key)


@lru_cache(maxsize=8)
def _series(run: _RunKey) -> dict[str, pd.DataFrame]:
    """Return the exact queue, GPU use and capacity series of a stored run by kind; cached."""
    # Opening a result is the most expensive step.
    result, own = run.entry.result(), run.entry.scenario
    # The run may belong to an earlier scenario.
    cluster = Cluster.from_json(own["cluster"]) if own else run.cluster
    return {name: SERIES[name](result, cluster) for name in _KINDS}


def loads(
    entries: Mapping[str, StoredResult],
    cluster: Cluster,
    window: Window | None = None,
    midnight_s: float = 0.0,
) -> Loads:
    """Return the queue and GPU use of several policies within a window, in time bins.

    One bin per interval between changes if these are at most `MAX_BINS`, otherwise bins at round
    clock times.

    Parameters
    ----------
    entries : mapping of StoredResult
        Title of a policy -> its first run.
    cluster : Cluster
        The machines.
    window : (float, float) or None, seconds
        None = from 0 to the end of the longest run.
    midnight_s : float, seconds
        Start of a day on the clock of the runs.

    Raises
    ------
    StoreError
        If a stored result was deleted.

    Notes
    -----
    Mean of a bin [a, b): (I(b) - I(a)) / (b - a), with I the integral of the exact steps. GPU use
    is the integral of held GPUs over that of the capacity. If a run ends within a bin, the part
    before its end counts.
    """
    steps = {title: _series(_RunKey(entry, cluster)) for title, entry in entries.items()}
    ends = {title: float(series["queue"]["t_s"].iloc[-1]) for title, series in steps.items()}
    t0, t1 = window or (0.0, max(*ends.values(), 1.0))
    edges = _change_instants(steps, t0, t1)
    exact = len(edges) - 1 < MAX_BINS
    if not exact:
        edges = clock_bins(t0, min(t1, max(ends.values())), midnight_s)
    return Loads(
        edges,
        exact,
        {
            title: _grid_load(series, edges, ends[title], (t0, t1))
            for title, series in steps.items()
        },
    )


def clock_bins(t0: float, t1: float, midnight_s: float = 0.0) -> Floats:
    """Return bin edges at round clock times that cover a window in at most `MAX_BINS` bins."""
    first, last = t0 - midnight_s, max(t1, t0 + 1.0) - midnight_s
    width = next(
        (step for step in _STEPS_S if np.ceil(last / step) - np.floor(first / step) <= MAX_BINS),
        _STEPS_S[-1] * np.ceil((last - first) / _STEPS_S[-1] / (MAX_BINS - 2)),
    )
    return np.arange(np.floor(first / width), np.ceil(last / width) + 1) * width + midnight_s


def _change_instants(
    steps: Mapping[str, Mapping[str, pd.DataFrame]], t0: float, t1: float
) -> Floats:
    """Return all instants in a window at which a run changes, with the window's ends."""
    instants = [
        times[(times > t0) & (times < t1)]
        for series in steps.values()
        for frame in series.values()
        for times in [frame["t_s"].to_numpy(np.float64)]
    ]
    return np.unique(np.concatenate([[t0, t1], *instants]))


def _grid_load(
    series: Mapping[str, pd.DataFrame], edges: Floats, end_s: float, window: Window
) -> Load:
    """Return one run's mean queue, largest queue and GPU use per bin, and its queue peak."""
    queue, held, capacity_steps = (series[name] for name in _KINDS)
    cut = np.minimum(edges, end_s)
    widths = np.diff(cut)
    lived = widths > 0
    waiting, busy = np.full(len(widths), np.nan), np.full(len(widths), np.nan)
    waiting[lived] = np.diff(_integral(queue, "waiting", cut))[lived] / widths[lived]
    capacity = np.diff(_integral(capacity_steps, "total", cut))
    has_capacity = lived & (capacity > 0)
    busy[has_capacity] = (
        100.0 * np.diff(_integral(held, "total", cut))[has_capacity] / capacity[has_capacity]
    )
    peak, peak_s = _queue_peak(queue, *window)
    most = np.where(lived, _max_waiting(queue, edges), np.nan)
    # Rounding errors must not leave the possible range.
    return Load(np.clip(waiting, 0.0, most), most, np.clip(busy, 0.0, 100.0), peak, peak_s)


def _max_waiting(queue: pd.DataFrame, edges: Floats) -> Floats:
    """Return the largest number of waiting jobs in each bin [a, b)."""
    t, v = queue["t_s"].to_numpy(np.float64), queue["waiting"].to_numpy(np.float64)
    # Insert every edge as a step with the value at that instant.
    steps = np.union1d(t, edges)
    held = np.where(steps < t[0], 0.0, v[np.maximum(np.searchsorted(t, steps, "right") - 1, 0)])
    first = np.searchsorted(steps, edges)
    return np.maximum.reduceat(held[: first[-1]], first[:-1])


def _integral(frame: pd.DataFrame, column: str, at: Floats) -> Floats:
    """Return the integral of a step series from its first point to each instant."""
    t, v = frame["t_s"].to_numpy(np.float64), frame[column].to_numpy(np.float64)
    running = np.concatenate(([0.0], np.cumsum(v[:-1] * np.diff(t))))
    last = running[-1] + v[-1] * np.maximum(at - t[-1], 0.0)
    return np.where(at > t[-1], last, np.interp(at, t, running))


def _queue_peak(queue: pd.DataFrame, t0: float, t1: float) -> tuple[float, float]:
    """Return the longest queue within a window [t0, t1), and its first instant."""
    t, v = queue["t_s"].to_numpy(np.float64), queue["waiting"].to_numpy(np.float64)
    first = max(int(np.searchsorted(t, t0, "right")) - 1, 0)
    inside = v[first : max(int(np.searchsorted(t, t1, "left")), first + 1)]
    at = int(inside.argmax())
    return float(inside[at]), float(max(t[first + at], t0))


def full_series(entry: StoredResult, cluster: Cluster) -> dict[str, pd.DataFrame]:
    """Return all unreduced series of a stored run, with its use of resources.

    Keep the result: opening a stored run is expensive.

    Raises
    ------
    StoreError
        If the result was deleted.
    """
    result = entry.result()
    return {name: make(result, cluster) for name, make in SERIES.items()} | {
        "resources": resource_series(result, cluster)
    }


def window_series(
    full: Mapping[str, pd.DataFrame], window: Window, policies: int
) -> dict[str, pd.DataFrame]:
    """Return the series of one run, reduced to the points that a figure of a window needs.

    Parameters
    ----------
    full : mapping of DataFrame
        From `full_series`.
    window : (float, float), seconds
        Begin and end.
    policies : int
        Number of runs drawn together; they share the points of the page.
    """
    bins = bins_for(_max_lines(policies, full["utilisation"]), _LINKED_POINTS)
    reduced = {
        name: reduce_frame(frame, *window, bins)
        for name, frame in full.items()
        if name != "resources"
    }
    used = full["resources"]
    return reduced | {
        "resources": reduce_frame(used, *window, _RESOURCE_BINS) if len(used) else used
    }


def _max_lines(policies: int, utilisation: pd.DataFrame) -> int:
    """Return the maximum number of lines of a linked figure with this many policies.

    Three rows, with bands for few policies; by GPU type; by state and capacity.
    """
    types = utilisation.shape[1] - 2
    return (
        max(policies, 1) * (3 * (3 if policies <= MAX_BANDS else 1) + types) + len(GPU_STATES) + 1
    )


def window_allocation(entry: StoredResult, window: Window) -> pd.DataFrame:
    """Return the GPUs held by job in a window, see `sim.metrics.allocation_series`.

    Raises
    ------
    StoreError
        If the result was deleted.
    """
    return allocation_series(entry.result(), window, _ALLOCATION_BINS)


def window_notes(entry: StoredResult, window: Window) -> pd.DataFrame:
    """Return the notes of an allocator in a window, see `sim.metrics.note_series`.

    Raises
    ------
    StoreError
        If the result was deleted.
    """
    return note_series(entry.result(), window=window)
