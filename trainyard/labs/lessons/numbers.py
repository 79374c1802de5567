"""Numbers that a lesson quotes, computed from stored runs, and the frames of its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim import metrics
from sim.cluster import Cluster
from sim.metrics.registry import NUMBERS
from trainyard.formatting import duration
from trainyard.results.compare import SAME_S
from trainyard.results.groups import size_text
from trainyard.results.outcomes import StudyResults
from trainyard.store import StoredResult

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
GROUPS: Final = ("shorter half", "longest tenth")
"""Groups of jobs by rank of ideal run time; some of `LENGTHS`."""
SLOWER: Final = "slower"
"""Share of jobs that take longer than under another policy."""
IDLE: Final = "idle_waiting"
"""Share of GPU time that is free while a job waits to start."""
MEASURES: Final = (*NUMBERS, SLOWER, IDLE)
BY: Final[Mapping[str, str]] = {"length": "run time", "gpus": "requested GPUs"}
LENGTHS: Final = (
    (0.0, "shorter half"),
    (0.5, "next 30 %"),
    (0.8, "next 10 %"),
    (0.9, "longest tenth"),
)
"""Start of each group in the ranking by run time, and its name."""
TIMES: Final[Mapping[str, str]] = {"jct_mean_s": "finish_s", "queue_mean_s": "first_start_s"}
"""Metric available for groups of jobs -> column from which the submission is subtracted."""
_SHARES: Final = (SLOWER, IDLE, "utilisation", "utilisation_productive", "completion_rate")


@dataclass(frozen=True)
class Number:
    """A named number that texts of a lesson quote.

    Parameters
    ----------
    name, label : str
        For texts of the lesson; for the table of numbers.
    metric : str
        One of `MEASURES`; "" = computed from `parts`.
    policy, against : str
        Titles of policies; `against` for a metric that compares two.
    at : float or None
        Value of the axis; None = the last.
    of : str
        One of `GROUPS`: of these jobs only; "" = of all.
    parts : tuple of str
        Names of earlier numbers, for `how`.
    how : str
        One of `WAYS`; or for a metric one of `REACHES`.
    share : float
        For `REACHES`.
    unit : str
        One of `UNITS`; "" = that of the metric.
    """

    name: str
    label: str
    metric: str = ""
    policy: str = ""
    against: str = ""
    at: float | None = None
    of: str = ""
    parts: tuple[str, ...] = ()
    how: str = ""
    share: float = 0.0
    unit: str = ""

    @property
    def measured_in(self) -> str:
        """Key of `UNITS`: the number's own unit, or "s", "share" or "count" by its metric."""
        if self.unit:
            return self.unit
        return (
            "count"
            if not self.metric or self.how == REACHES[0]
            else (
                "s"
                if self.metric.endswith("_s")
                else "share"
                if self.metric in _SHARES
                else "count"
            )
        )


def _quotient(part: float, whole: float) -> float:
    """Return part / whole; NaN if the whole is 0."""
    return part / whole if whole else math.nan


REACHES: Final = ("reaches", "reached")
"""Axis value at which a metric first is at most `share` of its first value; and its value there."""
WAYS: Final[Mapping[str, tuple[int, Callable[..., float]]]] = {
    "ratio": (2, _quotient),
    "difference": (2, lambda first, second: first - second),
    "change": (2, lambda first, second: _quotient(first, second) - 1.0),
    # The part of the gain from first to second that the third keeps.
    "kept": (3, lambda first, second, third: _quotient(first - third, first - second)),
}
"""Way of computing a number from others -> their number and the function."""
UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "s": lambda value: f"{'−' if value < 0 else ''}{duration(abs(value))}",
    "share": lambda value: f"{100 * value:.0f} %".replace("-", "−"),
    "times": lambda value: f"{value:,.0f} times" if value >= 10 else f"{value:.1f} times",
    "more": lambda value: f"{100 * abs(value):.0f} % {'more' if value >= 0 else 'less'}",
    "longer": lambda value: f"{100 * abs(value):.0f} % {'longer' if value >= 0 else 'shorter'}",
    "count": lambda value: f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}",
}
"""Unit -> formatter of a number."""


def compute(
    numbers: Sequence[Number], values: Sequence[float], shown: Sequence[StudyResults]
) -> dict[str, float]:
    """Return the numbers of a lesson by name.

    Parameters
    ----------
    numbers : sequence of Number
        What is computed, in an order in which each knows its parts.
    values : sequence of float
        Values of the axis.
    shown : sequence of StudyResults
        The complete runs at each of them.

    Returns
    -------
    dict
        Name -> number in the unit of its metric; NaN = not to be had, e.g. a ratio to nothing.
    """
    by_name: dict[str, float] = {}
    for one in numbers:
        if one.parts:
            by_name[one.name] = WAYS[one.how][1](*(by_name[part] for part in one.parts))
        elif one.how in REACHES:
            along = [_value(one, place) for place in shown]
            by_name[one.name] = _first_reached(
                values if one.how == REACHES[0] else along, along, one.share
            )
        else:
            by_name[one.name] = _value(
                one, shown[values.index(one.at) if one.at is not None else len(values) - 1]
            )
    return by_name


def format_numbers(numbers: Sequence[Number], by_name: Mapping[str, float]) -> dict[str, str]:
    """Return the numbers as texts, by name."""
    return {
        one.name: (
            UNITS[one.measured_in](by_name[one.name])
            if math.isfinite(by_name[one.name])
            else "an unknown amount"
        )
        for one in numbers
    }


def curve(shown: Sequence[StudyResults], values: Sequence[float], metric: str) -> pd.DataFrame:
    """Return one metric of first repeats along the axis: `value`, `policy`, `number`.

    A missing number is NaN.
    """
    rows = [
        (value, title, _number(place.entries[at][0], metric))
        for value, place in zip(values, shown, strict=True)
        for at, title in enumerate(place.titles)
    ]
    return pd.DataFrame(rows, columns=["value", "policy", "number"])


def groups(shown: StudyResults, metric: str, by: str) -> pd.DataFrame:
    """Return the mean time of completed jobs by group and policy, for `charts.dumbbell`.

    First repeats only.

    Parameters
    ----------
    shown : StudyResults
        Complete runs.
    metric : str
        A mean time: of completion or to the first start.
    by : str
        One of `BY`: `LENGTHS` by run time alone, or classes of size.

    Returns
    -------
    DataFrame
        `group`, `label` (title of the policy), `value` in seconds, `low` and `high` (NaN: one run
        has no interval).
    """
    parts = []
    for title, entries in zip(shown.titles, shown.entries, strict=True):
        jobs = entries[0].jobs()
        labels = (
            pd.Series(metrics.size_class(jobs["gpus"].to_numpy()))
            if by == "gpus"
            else _length_groups(jobs["ideal_s"].to_numpy(np.float64))
        )
        done = np.asarray(jobs["outcome"] == "completed")
        frame = pd.DataFrame(
            {"group": labels[done].reset_index(drop=True), "value": _times(jobs, metric)[done]}
        )
        parts.append(
            frame.groupby("group", observed=True, sort=True)["value"]
            .mean()
            .reset_index()
            .assign(label=title)
        )
    table = pd.concat(parts, ignore_index=True)
    names = table["group"].astype(str)
    return table.assign(
        group=[size_text(name) for name in names] if by == "gpus" else names,
        low=math.nan,
        high=math.nan,
    )[["group", "label", "value", "low", "high"]]


def _value(one: Number, place: StudyResults) -> float:
    """Return a number's metric in the first repeats at one axis value, over its job group."""
    entry = _entry(place, one.policy)
    if one.metric == IDLE:
        return idle_while_waiting(entry, place.study.base.cluster)
    if not one.of and one.metric != SLOWER:
        return _number(entry, one.metric)
    jobs = entry.jobs()
    mask = np.asarray(jobs["outcome"] == "completed")
    if one.of:
        mask = mask & np.asarray(_length_groups(jobs["ideal_s"].to_numpy(np.float64)) == one.of)
    if one.metric == SLOWER:
        before = _entry(place, one.against).jobs()
        mask = mask & np.asarray(before["outcome"] == "completed")
        return _mean(_times(jobs, "jct_mean_s")[mask] > _times(before, "jct_mean_s")[mask] + SAME_S)
    return _mean(_times(jobs, one.metric)[mask])


def _mean(values: Floats | Mask) -> float:
    """Return the mean of values; NaN without any."""
    return float(values.mean()) if len(values) else math.nan


def _number(entry: StoredResult, metric: str) -> float:
    """Return a metric of a stored summary; NaN if missing."""
    value = entry.summary[metric]
    return math.nan if value is None else float(value)


def _entry(place: StudyResults, title: str) -> StoredResult:
    """Return the stored run of the policy with this title."""
    return place.entries[place.titles.index(title)][0]


def _times(jobs: pd.DataFrame, metric: str) -> Floats:
    """Return a time of each job since its submission, in seconds."""
    return np.asarray(
        jobs[TIMES[metric]].to_numpy(np.float64) - jobs["submit_s"].to_numpy(np.float64)
    )


def idle_while_waiting(entry: StoredResult, cluster: Cluster) -> float:
    """Return the share of GPU time that is free while a job waits; NaN if none waits.

    From the first to the last submission.

    Raises
    ------
    StoreError
        If the stored run was deleted.
    """
    result = entry.result()
    lines = [
        metrics.queue_series(result),
        metrics.utilisation_series(result, cluster),
        metrics.capacity_series(result, cluster),
    ]
    end = float(result.jobs["submit_s"].max())
    times = np.unique(
        np.concatenate([frame["t_s"].to_numpy(np.float64) for frame in lines] + [np.array([end])])
    )
    times = times[times <= end]
    waiting, busy, capacity = (
        _values_at(frame, column, times[:-1])
        for frame, column in zip(lines, ("waiting", "total", "total"), strict=True)
    )
    weight = np.diff(times) * (waiting > 0)
    return _quotient(float(((capacity - busy) * weight).sum()), float((capacity * weight).sum()))


def _values_at(frame: pd.DataFrame, column: str, times: Floats) -> Floats:
    """Return the values of a step series at some instants."""
    at = np.searchsorted(frame["t_s"].to_numpy(np.float64), times, side="right") - 1
    return np.asarray(frame[column].to_numpy(np.float64)[at])


def _length_groups(alone_s: Floats) -> pd.Series:
    """Return the group in `LENGTHS` of each job, by the rank of its run time alone."""
    place = np.argsort(np.argsort(alone_s, kind="stable"), kind="stable") / max(len(alone_s), 1)
    names = [name for _, name in LENGTHS]
    at = np.searchsorted([begin for begin, _ in LENGTHS], place, side="right") - 1
    return pd.Series(np.array(names)[at]).astype(pd.CategoricalDtype(names, ordered=True))


def _first_reached(values: Sequence[float], along: Sequence[float], share: float) -> float:
    """Return the first value at which a metric fell to a share of its first one; NaN = never."""
    return next(
        (value for value, one in zip(values, along, strict=True) if one <= share * along[0]),
        math.nan,
    )
