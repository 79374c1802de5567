"""What the numbers of a sweep say: a curve with a band for every policy, paired differences against
the baseline, and a sentence on who is ahead where.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.metrics.registry import METRICS
from trainyard import text
from trainyard.results.bootstrap import Floats, interval
from trainyard.results.outcomes import titles
from trainyard.study import catalog
from trainyard.study.sweep import Sweep

_SAME: Final = 1e-9


def curves(table: pd.DataFrame, sweep: Sweep, metric: str) -> pd.DataFrame:
    """Return the mean of a metric at every point, for every policy.

    Parameters
    ----------
    table : DataFrame
        `SweepRun.table`, partial or complete.
    sweep : Sweep
        What was run.
    metric : str
        A number of the summary.

    Returns
    -------
    DataFrame
        `point` (place), the columns of the axes, `policy`, `value` (mean over repeats), `low`,
        `high` (NaN below three repeats), `runs`, `failed` (runs without numbers), `completed`
        (share of the jobs, of those with numbers).
    """
    rows = [
        place | _pooled(_numbers(group, metric)) | _counts(group) | {"completed": _completed(group)}
        for place, group in _groups(table, sweep)
    ]
    return pd.DataFrame(rows, columns=[*_columns(sweep), "completed"])


def differences(table: pd.DataFrame, sweep: Sweep, metric: str, baseline: str) -> pd.DataFrame:
    """Return the relative change of a metric against the baseline at every point, repeat by repeat:
    both had the same jobs and the same bad luck.

    Parameters
    ----------
    table, sweep, metric
        As for `curves`.
    baseline : str
        Title of the policy that others are compared with.

    Returns
    -------
    DataFrame
        As `curves`, without the baseline and `completed`: `value`, `low` and `high` of mean / mean
        of the baseline - 1, over the repeats that both have.
    """
    rows = []
    base = table[table["policy"] == baseline]
    for place, group in _groups(table[table["policy"] != baseline], sweep):
        mine, other = _paired(group, base, metric)
        rows.append(place | _pooled(mine, other) | _counts(group) | {"runs": len(mine)})
    return pd.DataFrame(rows, columns=_columns(sweep))


def verdict(found: pd.DataFrame, table: pd.DataFrame, sweep: Sweep, metric: str, title: str) -> str:
    """Return who is ahead at how many points, as one sentence; ties and differences that may be
    chance are nobody's.

    At each point only policies count that complete as many jobs as any other there, and none that
    repeats a recorded schedule: dropping jobs wins nothing. The first is ahead of the second if the
    95 % interval of their paired difference, repeat by repeat, does not hold 0.

    Parameters
    ----------
    found : DataFrame
        `curves` of all policies.
    table, sweep, metric
        As for `curves`.
    title : str
        What the metric is called.
    """
    lower, won, unclear = METRICS[metric].better != "higher", dict[str, int](), 0
    eligible = found[~found["policy"].isin(_replays(sweep))].dropna(subset=["value"])
    eligible = eligible[
        ~(eligible["completed"] < eligible.groupby("point")["completed"].transform("max") - _SAME)
    ]
    points = [
        (point, group) for point, group in eligible.groupby("point", sort=False) if len(group) > 1
    ]
    runs = dict(iter(table.groupby(["point", "policy"], sort=False)))
    for point, group in points:
        first, second = group.sort_values("value", ascending=lower)["policy"].iloc[:2]
        if _ahead(*_paired(runs[point, first], runs[point, second], metric), lower=lower):
            won[str(first)] = won.get(str(first), 0) + 1
        else:
            unclear += 1
    if not points:
        return "Nothing to compare yet."
    told = [
        f"{policy} at {count}" for policy, count in sorted(won.items(), key=lambda item: -item[1])
    ]
    told += [f"no clear difference between the first two at {unclear}"] if unclear else []
    return (
        f"{'Lowest' if lower else 'Highest'} {text.within(title)}, of {len(points)}"
        f" point{'' if len(points) == 1 else 's'}: {', '.join(told)}."
    )


def repeats_are_equal(table: pd.DataFrame, metric: str) -> bool:
    """Tell whether a metric came out the same in all repeats of every point and policy, so that
    they say nothing of chance; False below two repeats.
    """
    if metric not in table:
        return False
    numbers = table.dropna(subset=[metric]).groupby(["point", "policy"], sort=False)[metric]
    return bool((numbers.count() > 1).any() and (numbers.max() == numbers.min()).all())


def _ahead(first: Floats, second: Floats, *, lower: bool) -> bool:
    """Tell whether values are better than others, repeat by repeat; of fewer repeats than an
    interval takes, whether their mean is.
    """
    gain = second - first if lower else first - second
    if not len(gain):
        return False
    band = interval(gain)
    return bool((gain.mean() if band is None else band[0]) > 0)


def _paired(group: pd.DataFrame, base: pd.DataFrame, metric: str) -> tuple[Floats, Floats]:
    """Return the values of two policies in the repeats of each point that both have."""
    if metric not in group or metric not in base:
        return np.zeros(0), np.zeros(0)
    both = group.merge(
        base[["point", "repeat", metric]], on=["point", "repeat"], suffixes=("", "_base")
    )
    mine, other = _finite(both, metric), _finite(both, f"{metric}_base")
    kept = np.isfinite(mine) & np.isfinite(other)
    return mine[kept], other[kept]


def _groups(table: pd.DataFrame, sweep: Sweep) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Walk (values of the axes and policy, its runs)."""
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


def _columns(sweep: Sweep) -> list[str]:
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


def _counts(group: pd.DataFrame) -> dict[str, int]:
    failed = int((group["error"] != "").sum())
    return {"runs": len(group) - failed, "failed": failed}


def _completed(group: pd.DataFrame) -> float:
    """Return the share of jobs completed, over the runs with numbers; NaN = not known."""
    done, of = _numbers(group, "completed"), _numbers(group, "jobs")
    return float(done.sum() / of.sum()) if of.sum() > 0 else np.nan


def _replays(sweep: Sweep) -> list[str]:
    """Return the titles of policies that repeat a recorded schedule."""
    specs = sweep.study.allocators
    return [
        title
        for spec, title in zip(specs, titles(specs), strict=True)
        if "recorded_start" in catalog.allocator(spec).needs.reads
    ]


def _numbers(group: pd.DataFrame, metric: str) -> Floats:
    values = _finite(group, metric)
    return values[np.isfinite(values)]


def _finite(group: pd.DataFrame, metric: str) -> Floats:
    return group[metric].to_numpy(np.float64, na_value=np.nan) if metric in group else np.zeros(0)


def _pooled(values: Floats, base: Floats | None = None) -> dict[str, float]:
    """Return a mean, or a ratio of means less one, with its interval."""
    if not len(values) or (base is not None and base.mean() == 0):
        return {"value": np.nan, "low": np.nan, "high": np.nan}
    low, high = interval(values, base) or (np.nan, np.nan)
    return {
        "value": float(values.mean() if base is None else values.mean() / base.mean() - 1.0),
        "low": low,
        "high": high,
    }
