"""Step functions: running sums of changes, exact integrals, and reduction for charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.errors import ParameterError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_POINTS = 1000
"""Points per line that a browser redraws without delay: the bins and a closing point."""


class Steps(NamedTuple):
    """A reduced step function: `mean[i]` holds from `t_s[i]` to `t_s[i + 1]`.

    The last point only closes the line. `low` and `high` are the least and greatest value in the
    bin. `bin_s` is the width of a bin in seconds, 0 if nothing was reduced.
    """

    t_s: Floats
    mean: Floats
    low: Floats
    high: Floats
    bin_s: float


def accumulate(times: Floats, deltas: Iterable[Floats]) -> tuple[Floats, list[Floats]]:
    """Return the instants at which any running sum of changes takes a new value, and the sums.

    Parameters
    ----------
    times : array, seconds
        Instants of the changes, in any order.
    deltas : iterable of arrays of the same length
        Amounts of the changes; whole numbers stay exact.

    Notes
    -----
    v(t) = sum of the changes at or before t. All changes of one instant count as one, so a job that
    starts when it is submitted never counts as waiting.
    """
    instants, instant_index = np.unique(times, return_inverse=True)
    return changing(instants, [running(instant_index, delta, len(instants)) for delta in deltas])


def running(instant_index: Ints, changes: Floats, instants: int) -> Floats:
    """Return the running sum of changes, given the index of each change's instant."""
    return np.asarray(np.cumsum(np.bincount(instant_index, changes, instants)), np.float64)


def changing(t: Floats, values: Sequence[Floats]) -> tuple[Floats, list[Floats]]:
    """Return the first row of step functions and those where any takes a new value."""
    changed = np.zeros(len(t), np.bool_)
    changed[:1] = True
    for value in values:
        changed[1:] |= value[1:] != value[:-1]
    return t[changed], [value[changed] for value in values]


def merge_intervals(owner: Ints, t0: Floats, t1: Floats) -> tuple[Ints, Floats, Floats]:
    """Return the intervals of each owner without overlaps, covering the same instants.

    Notes
    -----
    Sorted by (owner, t0), each interval is cut at the latest end of those before it: [max(t0, max
    earlier t1), t1), empty ones dropped.
    """
    keep = t1 > t0
    owner, t0, t1 = owner[keep], t0[keep], t1[keep]
    order = np.lexsort((t0, owner))
    owner, t0, t1 = owner[order], t0[order], t1[order]
    same = owner[1:] == owner[:-1]
    if not (same & (t0[1:] < t1[:-1])).any():
        return owner, t0, t1
    latest_end = pd.Series(t1).groupby(owner, sort=False).cummax().to_numpy()
    cut = t0.copy()
    cut[1:] = np.where(same, np.maximum(t0[1:], latest_end[:-1]), t0[1:])
    keep = t1 > cut
    return owner[keep], cut[keep], t1[keep]


def integral(t: Floats, v: Floats, t0: float, t1: float) -> float:
    """Return the integral of a step function over a window.

    The function is 0 before its first point and constant after its last.

    Notes
    -----
    sum of v[i] x (min(t[i + 1], t1) - max(t[i], t0)) over the steps that meet the window.
    """
    if not len(t):
        return 0.0
    ends = np.append(t[1:], max(t1, t[-1]))
    return float((v * np.clip(np.minimum(ends, t1) - np.maximum(t, t0), 0.0, None)).sum())


def reduce_steps(t: Floats, v: Floats, t0: float, t1: float, bins: int = MAX_POINTS - 1) -> Steps:
    """Reduce a step function to at most `bins` bins with exact mean, minimum and maximum.

    Bins have equal width; the mean is weighted by time.

    Parameters
    ----------
    t : array, seconds
        Increasing; `v[i]` holds from `t[i]` to `t[i + 1]`; 0 before the first, constant after the
        last.
    v : array
        The values.
    t0, t1 : float, seconds
        The window; `t1` must be above `t0`.
    bins : int
        At least 1. A function with fewer steps in the window is returned unchanged.

    Returns
    -------
    Steps
        At most `bins + 1` points. sum(mean[:-1] x diff(t_s)) equals the integral over the window,
        up to rounding.

    Raises
    ------
    ParameterError
        If the window is empty or `bins` is below 1.

    Notes
    -----
    With I(x) the integral from the first point to x, a running sum, mean = (I(b) - I(a)) / (b - a)
    for the bin [a, b): O(n + bins log n).
    """
    return reduce_all(t, [v], t0, t1, bins)[0]


def reduce_all(
    t: Floats, columns: Sequence[Floats], t0: float, t1: float, bins: int
) -> list[Steps]:
    """Reduce several step functions over the same instants; see `reduce_steps`."""
    if not t1 > t0 or bins < 1:
        raise ParameterError(
            f"A series cannot be drawn from {t0} s to {t1} s in {bins} bins. Choose a window that"
            " ends after it begins."
        )
    if not len(t) or t[0] > t0:
        t = np.append(min(t0, t[0] if len(t) else t0), t)
        columns = [np.append(0.0, v) for v in columns]
    first, last = np.searchsorted(t, t0, "right") - 1, np.searchsorted(t, t1, "left")
    starts = np.maximum(t[first:last], t0)
    values_in_window = [np.asarray(v[first:last], np.float64) for v in columns]
    if len(starts) <= bins:
        ends = np.append(starts, t1)
        return [
            Steps(ends, mean, mean, mean, 0.0)
            for v in values_in_window
            for mean in [np.append(v, v[-1])]
        ]
    edges = np.linspace(t0, t1, bins + 1)
    start = np.searchsorted(starts, edges[:-1], "right") - 1
    stop = np.searchsorted(starts, edges[1:], "left")
    stop[-1] = len(starts)
    sample_index, widths, steps = np.append(start, len(starts) - 1), np.diff(edges), np.diff(starts)
    pairs = np.column_stack((start, stop)).ravel()
    reduced = []
    for values in values_in_window:
        running = np.concatenate(([0.0], np.cumsum(values[:-1] * steps)))
        mean = (
            np.diff(running[sample_index] + values[sample_index] * (edges - starts[sample_index]))
            / widths
        )
        low, high = _extremes(values, pairs)
        mean = np.clip(mean, low, high)  # rounding must not leave [low, high]
        mean, low, high = (np.append(column, column[-1]) for column in (mean, low, high))
        reduced.append(Steps(edges, mean, low, high, (t1 - t0) / bins))
    return reduced


def _extremes(values: Floats, pairs: Ints) -> tuple[Floats, Floats]:
    """Return the least and greatest value of each [start, stop), given as one flat array."""
    padded = np.append(values, values[-1])
    return np.minimum.reduceat(padded, pairs)[::2], np.maximum.reduceat(padded, pairs)[::2]


def reduce_frame(
    frame: pd.DataFrame, t0: float, t1: float, bins: int = MAX_POINTS - 1
) -> pd.DataFrame:
    """Reduce every column of a series table, for a chart.

    Parameters
    ----------
    frame : DataFrame
        `t_s` and step columns, as the series functions return them.
    t0, t1 : float, seconds
        The window.
    bins : int
        See `reduce_steps`.

    Returns
    -------
    DataFrame
        `t_s`, and for each column `x` its mean `x` with `x_low` and `x_high`; at most `bins + 1`
        rows; the last one closes the lines.
    """
    t = frame["t_s"].to_numpy(np.float64)
    columns: dict[str, Floats] = {}
    names = [name for name in frame.columns if name != "t_s"]
    given = [frame[name].to_numpy(np.float64) for name in names]
    for name, steps in zip(names, reduce_all(t, given, t0, t1, bins), strict=True):
        columns |= {
            "t_s": steps.t_s,
            name: steps.mean,
            f"{name}_low": steps.low,
            f"{name}_high": steps.high,
        }
    return pd.DataFrame(columns)


def bins_for(lines: int, budget: int = 24_000) -> int:
    """Return the bins per line so that `lines` lines together stay within `budget` points.

    Between 100 and 999. A page may send at most 32,000 points; the default leaves room for its
    other charts.
    """
    return max(100, min(MAX_POINTS - 1, budget // max(1, lines) - 1))
