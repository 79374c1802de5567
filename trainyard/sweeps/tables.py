"""Results of a sweep: curves with bands, paired differences, and a summary sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.metrics.registry import METRICS
from trainyard import formatting
from trainyard.results.bootstrap import Floats, bootstrap_interval
from trainyard.results.outcomes import titles
from trainyard.study import catalog
from trainyard.study.sweep import Sweep

_SAME: Final = 1e-9


def curves(table: pd.DataFrame, sweep: Sweep, metric: str) -> pd.DataFrame:
    """Return the mean of a metric at every point for every policy.

    Parameters
    ----------
    table : DataFrame
        `SweepRun.table`, partial or complete.
    sweep : Sweep
        The sweep.
    metric : str
        Name of a summary number.

    Returns
    -------
    DataFrame
        `point` (index), the columns of the axes, `policy`, `value` (mean over repeats), `low`,
        `high` (NaN below three repeats), `runs`, `failed` (runs without numbers), `completed`
        (share of jobs, in runs with numbers).
    """
    rows = [
        place
        | _mean_with_interval(_finite_values(group, metric))
        | _count_runs(group)
        | {"completed": _completed_share(group)}
        for place, group in _group_runs(table, sweep)
    ]
    return pd.DataFrame(rows, columns=[*_curve_columns(sweep), "completed"])


def differences(table: pd.DataFrame, sweep: Sweep, metric: str, baseline: str) -> pd.DataFrame:
    """Return the relative change of a metric against the baseline at every point.

    Changes are paired by repeat, because a repeat has equal jobs and failures.

    Parameters
    ----------
    table, sweep, metric
        See `curves`.
    baseline : str
        Title of the baseline policy.

    Returns
    -------
    DataFrame
        As `curves`, without the baseline and `completed`: `value`, `low` and `high` of mean /
        baseline mean - 1, over common repeats.
    """
    rows = []
    base = table[table["policy"] == baseline]
    for place, group in _group_runs(table[table["policy"] != baseline], sweep):
        mine, other = _pair_values(group, base, metric)
        rows.append(
            place | _mean_with_interval(mine, other) | _count_runs(group) | {"runs": len(mine)}
        )
    return pd.DataFrame(rows, columns=_curve_columns(sweep))


def verdict(
    curve_table: pd.DataFrame, table: pd.DataFrame, sweep: Sweep, metric: str, title: str
) -> str:
    """Return a sentence on how many points each policy is best at.

    At each point only policies count that complete the most jobs and do not replay a recorded
    schedule. The best is ahead if the 95 % interval of its paired difference to the second excludes
    0; otherwise the point has no clear difference.

    Parameters
    ----------
    curve_table : DataFrame
        `curves` of all policies.
    table, sweep, metric
        See `curves`.
    title : str
        Title of the metric.
    """
    lower, won, unclear = METRICS[metric].better != "higher", dict[str, int](), 0
    eligible = curve_table[~curve_table["policy"].isin(_replay_titles(sweep))].dropna(
        subset=["value"]
    )
    eligible = eligible[
        ~(eligible["completed"] < eligible.groupby("point")["completed"].transform("max") - _SAME)
    ]
    points = [
        (point, group) for point, group in eligible.groupby("point", sort=False) if len(group) > 1
    ]
    runs = dict(iter(table.groupby(["point", "policy"], sort=False)))
    for point, group in points:
        first, second = group.sort_values("value", ascending=lower)["policy"].iloc[:2]
        if _is_ahead(*_pair_values(runs[point, first], runs[point, second], metric), lower=lower):
            won[str(first)] = won.get(str(first), 0) + 1
        else:
            unclear += 1
    if not points:
        return "Nothing to compare yet."
    parts = [
        f"{policy} at {count}" for policy, count in sorted(won.items(), key=lambda item: -item[1])
    ]
    parts += [f"no clear difference between the first two at {unclear}"] if unclear else []
    parts[0] += f" of {formatting.plural(len(points), 'point')}"
    return (
        f"{'Lowest' if lower else 'Highest'} {formatting.in_sentence(title)}: {', '.join(parts)}."
    )


def repeats_are_equal(table: pd.DataFrame, metric: str) -> bool:
    """Return True if a metric is equal in all runs of each point and policy.

    False below two repeats.
    """
    if metric not in table:
        return False
    numbers = table.dropna(subset=[metric]).groupby(["point", "policy"], sort=False)[metric]
    return bool((numbers.count() > 1).any() and (numbers.max() == numbers.min()).all())


def _is_ahead(first: Floats, second: Floats, *, lower: bool) -> bool:
    """Return True if the first values are better on average, beyond chance between repeats.

    Beyond chance = the interval of the paired gain excludes 0. With too few repeats for an
    interval, the mean decides.
    """
    gain = second - first if lower else first - second
    if not len(gain):
        return False
    band = bootstrap_interval(gain)
    return bool((gain.mean() if band is None else band[0]) > 0)


def _pair_values(group: pd.DataFrame, base: pd.DataFrame, metric: str) -> tuple[Floats, Floats]:
    """Return the values of two policies in common repeats of each point, both finite."""
    if metric not in group or metric not in base:
        return np.zeros(0), np.zeros(0)
    both = group.merge(
        base[["point", "repeat", metric]], on=["point", "repeat"], suffixes=("", "_base")
    )
    mine, other = _column_values(both, metric), _column_values(both, f"{metric}_base")
    both_finite = np.isfinite(mine) & np.isfinite(other)
    return mine[both_finite], other[both_finite]


def _group_runs(table: pd.DataFrame, sweep: Sweep) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield point, axis values and policy as a dict, with the rows of their runs."""
    paths = [axis.path for axis in sweep.axes]
    for (point, policy), group in table.groupby(["point", "policy"], sort=False):
        yield (
            {
                "point": point,
                **{path: group[path].iloc[0] for path in paths},
                "policy": policy,
            },
            group,
        )


def _curve_columns(sweep: Sweep) -> list[str]:
    return [
        "point",
        *(axis.path for axis in sweep.axes),
        "policy",
        "value",
        "low",
        "high",
        "runs",
        "failed",
    ]


def _count_runs(group: pd.DataFrame) -> dict[str, int]:
    """Return the number of runs with numbers, and of failed ones."""
    failed = int((group["error"] != "").sum())
    return {"runs": len(group) - failed, "failed": failed}


def _completed_share(group: pd.DataFrame) -> float:
    """Return the share of completed jobs over runs with numbers; NaN = unknown."""
    done, total = _finite_values(group, "completed"), _finite_values(group, "jobs")
    return float(done.sum() / total.sum()) if total.sum() > 0 else np.nan


def _replay_titles(sweep: Sweep) -> list[str]:
    """Return the titles of policies that replay a recorded schedule."""
    specs = sweep.study.allocators
    return [
        title
        for spec, title in zip(specs, titles(specs), strict=True)
        if "recorded_start" in catalog.allocator(spec).needs.reads
    ]


def _finite_values(group: pd.DataFrame, metric: str) -> Floats:
    """Return the finite values of a metric."""
    values = _column_values(group, metric)
    return values[np.isfinite(values)]


def _column_values(group: pd.DataFrame, metric: str) -> Floats:
    """Return the values of a metric as floats, empty if the column is missing."""
    return group[metric].to_numpy(np.float64, na_value=np.nan) if metric in group else np.zeros(0)


def _mean_with_interval(values: Floats, base: Floats | None = None) -> dict[str, float]:
    """Return "value", "low" and "high" of a mean, or of a ratio of means minus 1.

    NaN without values, if the base is 0, or for bounds with few repeats.
    """
    if not len(values) or (base is not None and base.mean() == 0):
        return {"value": np.nan, "low": np.nan, "high": np.nan}
    low, high = bootstrap_interval(values, base) or (np.nan, np.nan)
    return {
        "value": float(values.mean() if base is None else values.mean() / base.mean() - 1.0),
        "low": low,
        "high": high,
    }
