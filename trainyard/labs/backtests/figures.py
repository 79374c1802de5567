"""Simulated against recorded waits, in figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from trainyard.labs.backtests.record import Floats, Mask, RecordedJobs

BIN_S: Final = 6 * 3600.0
WITHIN_S: Final = 600.0
WITHIN: Final = 0.2
_WEEK_S: Final = 7 * 86_400.0
_HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class Measures:
    """How near waits come to other waits.

    Parameters
    ----------
    jobs : float
        Jobs that have both.
    bias_s : float, seconds
        Mean wait less the mean of the others.
    bias : float
        The same, relative to the mean of the others; NaN = those are 0.
    error_s, p90_s : float, seconds
        Median and 90th percentile of the absolute error of a job.
    within : float
        Share of the jobs within ten minutes.
    within_relative : float
        Share within ten minutes or 20 % of the other wait, whichever is more.
    rank : float
        Spearman's rank correlation; NaN = one of them is constant.
    distance : float
        Kolmogorov's distance of the two distributions.
    explained : float
        1 - sum of absolute errors / sum of absolute deviations from `reference_s`, at least 0; NaN
        = there is no reference, or nothing deviates.
    """

    jobs: float
    bias_s: float
    bias: float
    error_s: float
    p90_s: float
    within: float
    within_relative: float
    rank: float
    distance: float
    explained: float


NAMES: Final = tuple(item.name for item in fields(Measures))


def measure(found: Floats, truth: Floats, reference_s: float = math.nan) -> Measures:
    """Compare waits job by job.

    Parameters
    ----------
    found, truth : array, seconds
        Of the same jobs; jobs in which one is NaN are left out.
    reference_s : float, seconds
        What would be said of every job without a simulation.
    """
    known = np.isfinite(found) & np.isfinite(truth)
    found, truth = found[known], truth[known]
    if not len(truth):
        return Measures(0.0, *[math.nan] * (len(NAMES) - 1))
    error = np.abs(found - truth)
    mean_s = float(truth.mean())
    bias_s = float(found.mean()) - mean_s
    spread = float(np.abs(truth - reference_s).sum())
    return Measures(
        jobs=float(len(truth)),
        bias_s=bias_s,
        bias=bias_s / mean_s if mean_s > 0 else math.nan,
        error_s=float(np.median(error)),
        p90_s=float(np.percentile(error, 90)),
        within=float(np.mean(error <= WITHIN_S)),
        within_relative=float(np.mean(error <= np.maximum(WITHIN_S, WITHIN * truth))),
        rank=_rank(found, truth),
        distance=_distance(found, truth),
        explained=max(0.0, 1 - float(error.sum()) / spread) if spread > 0 else math.nan,
    )


@dataclass(frozen=True)
class RepeatSpread:
    """Figures over repeats.

    Parameters
    ----------
    mean, low, high : Measures
        Each figure by itself.
    """

    mean: Measures
    low: Measures
    high: Measures


def over_repeats(found: Sequence[Measures]) -> RepeatSpread:
    """Return mean and range of each figure."""
    table = np.array([[getattr(one, name) for name in NAMES] for one in found])
    columns = [column[np.isfinite(column)] for column in table.T]

    def of(reduce: Callable[[Floats], float]) -> Measures:
        # A figure that no repeat has stays NaN.
        return Measures(*(float(reduce(column)) if len(column) else math.nan for column in columns))

    return RepeatSpread(of(np.mean), of(np.min), of(np.max))


def floor(waits: Sequence[Floats], chosen: Mask) -> Measures | None:
    """Return how near two repeats come to each other, the mean over neighbours; None = there is one
    repeat only.
    """
    pairs = [measure(other[chosen], one[chosen]) for one, other in pairwise(waits)]
    # Which of two repeats is the other one is arbitrary, so their bias has no sign.
    pairs = [replace(one, bias_s=abs(one.bias_s), bias=abs(one.bias)) for one in pairs]
    return over_repeats(pairs).mean if pairs else None


def last_week(record: RecordedJobs) -> Floats:
    """Return for each job the median wait of the jobs that started in the week before its
    submission, renewed at each full hour: what one would say who looks at the record only.
    """
    order = np.flatnonzero(record.started)
    order = order[np.argsort(record.start_s[order], kind="stable")]
    start_s, wait_s = record.start_s[order], record.wait_s[order]
    hours = np.floor(record.submit_s / _HOUR_S)
    found = np.full(len(hours), np.nan)
    for hour in np.unique(hours):
        until_s = hour * _HOUR_S
        low, high = np.searchsorted(start_s, (until_s - _WEEK_S, until_s))
        if high > low:
            found[hours == hour] = np.median(wait_s[low:high])
    return found


def medians(record: RecordedJobs, waits: Sequence[Floats], chosen: Mask) -> pd.DataFrame:
    """Return the median wait of the jobs submitted in each six hours.

    Parameters
    ----------
    record : Record
        What happened.
    waits : sequence of array
        Simulated waits, one array per repeat.
    chosen : bool array
        The jobs that count.

    Returns
    -------
    DataFrame
        `from_s`, `jobs`, `recorded_s`, `simulated_s` (mean over repeats of their medians), `low_s`,
        `high_s` (over repeats); hours without a job are not there.
    """
    known = chosen & np.isfinite(np.sum(waits, axis=0))
    at = np.floor(record.submit_s[known] / BIN_S).astype(np.int64)
    frame = pd.DataFrame({"recorded": record.wait_s[known]})
    for turn, wait in enumerate(waits):
        frame[turn] = wait[known]
    grouped = frame.groupby(at)
    found, sizes = grouped.median(), grouped.size()
    simulated = found[list(range(len(waits)))].to_numpy()
    return pd.DataFrame(
        {
            "from_s": found.index.to_numpy() * BIN_S,
            "jobs": sizes.to_numpy(),
            "recorded_s": found["recorded"].to_numpy(),
            "simulated_s": simulated.mean(axis=1),
            "low_s": simulated.min(axis=1),
            "high_s": simulated.max(axis=1),
        }
    )


def _rank(one: Floats, other: Floats) -> float:
    a, b = (pd.Series(values).rank().to_numpy() for values in (one, other))
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0 else math.nan


def _distance(one: Floats, other: Floats) -> float:
    one, other = np.sort(one), np.sort(other)
    at = np.concatenate((one, other))
    below = [np.searchsorted(values, at, side="right") / len(values) for values in (one, other)]
    return float(np.abs(below[0] - below[1]).max())
