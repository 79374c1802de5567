"""Figures over time for a window of the runs: series recomputed from the full results, as finely as a screen shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from sim.cluster import Cluster
from sim.metrics import GPU_STATES, allocation_series, bins_for, note_series, reduce_frame, resource_series
from trainyard.runs.frames import SERIES
from trainyard.store import Entry

Window = tuple[float, float]
_STRIP_BINS: Final = 199
_LINKED_POINTS: Final = 18_000
"""What the linked figure may use of the 32,000 points of a page; at most 6,000 are of other figures over time."""
MOST_BANDS: Final = 3
"""More bands than those of so many policies hide each other."""
_ALLOCATION_BINS: Final = 499
_RESOURCE_BINS: Final = 149


def strip(frame: pd.DataFrame, end_s: float) -> pd.DataFrame:
    """Return a series as coarsely as a strip above the figures needs it, from 0 to `end_s` seconds."""
    columns = [name for name in ("t_s", "waiting", "total") if name in frame]
    return reduce_frame(frame[columns], 0.0, max(end_s, 1.0), _STRIP_BINS)


def full_series(entry: Entry, cluster: Cluster) -> dict[str, pd.DataFrame]:
    """Return every series of `trainyard.runs.frames.SERIES` and ``resources`` of a stored run, not reduced; keep it, since opening a result costs the most.

    Raises
    ------
    StoreError
        If the result was removed meanwhile.
    """
    result = entry.result()
    return {name: make(result, cluster) for name, make in SERIES.items()} | {"resources": resource_series(result, cluster)}


def within(full: Mapping[str, pd.DataFrame], window: Window, policies: int) -> dict[str, pd.DataFrame]:
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
    made = {name: reduce_frame(frame, *window, bins) for name, frame in full.items() if name != "resources"}
    used = full["resources"]
    return made | {"resources": reduce_frame(used, *window, _RESOURCE_BINS) if len(used) else used}


def _lines(policies: int, utilisation: pd.DataFrame) -> int:
    """Return how many lines a linked figure of so many runs has at most: in three rows, with bands where there are few; by type; by state and capacity."""
    types = utilisation.shape[1] - 2
    return max(policies, 1) * (3 * (3 if policies <= MOST_BANDS else 1) + types) + len(GPU_STATES) + 1


def allocation(entry: Entry, window: Window) -> pd.DataFrame:
    """Return which jobs hold the GPUs in a window, see `sim.metrics.allocation_series`.

    Raises
    ------
    StoreError
        If the result was removed meanwhile.
    """
    return allocation_series(entry.result(), window, _ALLOCATION_BINS)


def notes(entry: Entry, window: Window) -> pd.DataFrame:
    """Return what an allocator noted in a window, see `sim.metrics.note_series`.

    Raises
    ------
    StoreError
        If the result was removed meanwhile.
    """
    return note_series(entry.result(), window=window)
