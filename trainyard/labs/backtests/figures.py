"""Errors of simulated waits against recorded waits."""

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
    """Errors of waits against reference waits.

    Parameters
    ----------
    jobs : float
        Number of jobs with both waits.
    bias_s : float, seconds
        Mean wait minus mean reference wait.
    bias : float
        `bias_s` relative to the mean reference wait; NaN if that is 0.
    error_s, p90_s : float, seconds
        Median and 90th percentile of the absolute error of a job.
    within : float
        Share of the jobs within ten minutes.
    within_relative : float
        Share within ten minutes or 20 % of the reference wait, whichever is more.
    rank : float
        Spearman's rank correlation; NaN if one side is constant.
    distance : float
        Kolmogorov distance of the two distributions.
    explained : float
        1 - sum of absolute errors / sum of absolute deviations from `reference_s`, at least 0; NaN
        without a reference or a deviation.
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


def measure(waits: Floats, truth: Floats, reference_s: float = math.nan) -> Measures:
    """Return the errors of waits against true waits, job by job.

    Parameters
    ----------
    waits, truth : array, seconds
        Waits of the same jobs; jobs with a NaN are left out.
    reference_s : float, seconds
        Constant prediction to compare with.
    """
    has_both = np.isfinite(waits) & np.isfinite(truth)
    waits, truth = waits[has_both], truth[has_both]
    if not len(truth):
        return Measures(0.0, *[math.nan] * (len(NAMES) - 1))
    error = np.abs(waits - truth)
    mean_s = float(truth.mean())
    bias_s = float(waits.mean()) - mean_s
    spread = float(np.abs(truth - reference_s).sum())
    return Measures(
        jobs=float(len(truth)),
        bias_s=bias_s,
        bias=bias_s / mean_s if mean_s > 0 else math.nan,
        error_s=float(np.median(error)),
        p90_s=float(np.percentile(error, 90)),
        within=float(np.mean(error <= WITHIN_S)),
        within_relative=float(np.mean(error <= np.maximum(WITHIN_S, WITHIN * truth))),
        rank=_rank(waits, truth),
        distance=_distance(waits, truth),
        explained=max(0.0, 1 - float(error.sum()) / spread) if spread > 0 else math.nan,
    )


@dataclass(frozen=True)
class RepeatSpread:
    """Mean and range of each error over repeats.

    Parameters
    ----------
    mean, low, high : Measures
        Mean, minimum and maximum of each error.
    """

    mean: Measures
    low: Measures
    high: Measures


def summarize_repeats(repeats: Sequence[Measures]) -> RepeatSpread:
    """Return mean, minimum and maximum of each error over repeats, without NaN."""
    table = np.array([[getattr(one, name) for name in NAMES] for one in repeats])
    columns = [column[np.isfinite(column)] for column in table.T]

    def reduce_columns(reduce: Callable[[Floats], float]) -> Measures:
        """Return each error reduced over the repeats; NaN where no repeat has it."""
        # A figure that no repeat has stays NaN.
        return Measures(*(float(reduce(column)) if len(column) else math.nan for column in columns))

    return RepeatSpread(reduce_columns(np.mean), reduce_columns(np.min), reduce_columns(np.max))


def repeat_floor(waits: Sequence[Floats], chosen: Mask) -> Measures | None:
    """Return mean errors between consecutive repeats on `chosen` jobs; None for one repeat.

    Each repeat is the truth of the next. Biases are absolute values.
    """
    pairs = [measure(other[chosen], one[chosen]) for one, other in pairwise(waits)]
    # The order of two repeats is arbitrary, so their bias has no sign.
    pairs = [replace(one, bias_s=abs(one.bias_s), bias=abs(one.bias)) for one in pairs]
    return summarize_repeats(pairs).mean if pairs else None


def last_week_medians(record: RecordedJobs) -> Floats:
    """Return per job the median wait of jobs started in the week before its submission.

    The median is updated at each full hour; it predicts waits from the recording alone.
    NaN = no job was started in that week.
    """
    order = np.flatnonzero(record.started)
    order = order[np.argsort(record.start_s[order], kind="stable")]
    start_s, wait_s = record.start_s[order], record.wait_s[order]
    hours = np.floor(record.submit_s / _HOUR_S)
    predicted = np.full(len(hours), np.nan)
    for hour in np.unique(hours):
        until_s = hour * _HOUR_S
        low, high = np.searchsorted(start_s, (until_s - _WEEK_S, until_s))
        if high > low:
            predicted[hours == hour] = np.median(wait_s[low:high])
    return predicted


def binned_medians(record: RecordedJobs, waits: Sequence[Floats], chosen: Mask) -> pd.DataFrame:
    """Return the median wait of jobs submitted in each bin of six hours.

    Parameters
    ----------
    record : RecordedJobs
        The recorded jobs.
    waits : sequence of array
        Simulated waits, one array per repeat.
    chosen : bool array
        The jobs to include.

    Returns
    -------
    DataFrame
        `from_s`, `jobs`, `recorded_s`, `simulated_s` (mean over repeats of their medians), `low_s`,
        `high_s` (over repeats); bins without a job are missing.
    """
    is_counted = chosen & np.isfinite(np.sum(waits, axis=0))
    at = np.floor(record.submit_s[is_counted] / BIN_S).astype(np.int64)
    frame = pd.DataFrame({"recorded": record.wait_s[is_counted]})
    for turn, wait in enumerate(waits):
        frame[turn] = wait[is_counted]
    grouped = frame.groupby(at)
    by_bin, sizes = grouped.median(), grouped.size()
    simulated = by_bin[list(range(len(waits)))].to_numpy()
    return pd.DataFrame(
        {
            "from_s": by_bin.index.to_numpy() * BIN_S,
            "jobs": sizes.to_numpy(),
            "recorded_s": by_bin["recorded"].to_numpy(),
            "simulated_s": simulated.mean(axis=1),
            "low_s": simulated.min(axis=1),
            "high_s": simulated.max(axis=1),
        }
    )


def _rank(one: Floats, other: Floats) -> float:
    """Return Spearman's rank correlation; NaN if one side is constant."""
    a, b = (pd.Series(values).rank().to_numpy() for values in (one, other))
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0 else math.nan


def _distance(one: Floats, other: Floats) -> float:
    """Return the Kolmogorov distance of two samples."""
    one, other = np.sort(one), np.sort(other)
    at = np.concatenate((one, other))
    below = [np.searchsorted(values, at, side="right") / len(values) for values in (one, other)]
    return float(np.abs(below[0] - below[1]).max())
