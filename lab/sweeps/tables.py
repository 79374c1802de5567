"""What the numbers of a sweep say: a curve with a band for every policy, paired differences against the baseline, and a sentence on who is ahead where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lab.compared import METRICS
from lab.sweeps.recipe import Sweep

Floats = NDArray[np.float64]
FEWEST: Final = 3
"""Repeats below which there is no band."""
_RESAMPLES: Final = 2000
_LEVEL: Final = (2.5, 97.5)
_LOWER: Final = {metric.name: metric.better != "higher" for metric in METRICS}


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
        The columns of the axes, `policy`, `value` (mean over repeats), `low`, `high` (95 % of 2,000 resamples of the repeats, percentile bootstrap from a
        fixed stream; NaN below three repeats), `runs`, `failed` (runs without numbers). Only what varies.
    """
    return pd.DataFrame(
        [
            place | _pooled(_numbers(group, metric)) | {"runs": int((group["error"] == "").sum()), "failed": int((group["error"] != "").sum())}
            for place, group in _groups(table, sweep)
        ],
        columns=[*(axis.path for axis in sweep.axes), "policy", "value", "low", "high", "runs", "failed"],
    )


def differences(table: pd.DataFrame, sweep: Sweep, metric: str, baseline: str) -> pd.DataFrame:
    """Return the relative change of a metric against the baseline at every point, repeat by repeat: both had the same jobs and the same bad luck.

    Parameters
    ----------
    table, sweep, metric
        As for `curves`.
    baseline : str
        Title of the policy that others are compared with.

    Returns
    -------
    DataFrame
        As `curves`, without the baseline: `value`, `low` and `high` of mean / mean of the baseline - 1, over the repeats that both have.
    """
    rows = []
    paths = [axis.path for axis in sweep.axes]
    base = table.loc[table["policy"] == baseline, ["point", "repeat", metric]] if metric in table else table.iloc[:0]
    for place, group in _groups(table[table["policy"] != baseline], sweep):
        both = group.merge(base, on=["point", "repeat"], suffixes=("", "_base")) if len(base) else group.iloc[:0]
        mine, other = _finite(both, metric), _finite(both, f"{metric}_base")
        kept = np.isfinite(mine) & np.isfinite(other) if len(both) else np.zeros(0, np.bool_)
        rows.append(place | _pooled(mine[kept], other[kept]) | {"runs": int(kept.sum()), "failed": int((group["error"] != "").sum())})
    return pd.DataFrame(rows, columns=[*paths, "policy", "value", "low", "high", "runs", "failed"])


def verdict(found: pd.DataFrame, sweep: Sweep, metric: str, title: str) -> str:
    """Return who is ahead at how many points, as one sentence; ties and overlapping bands are nobody's.

    Parameters
    ----------
    found : DataFrame
        `curves` of all policies.
    sweep, metric
        As for `curves`.
    title : str
        What the metric is called.
    """
    lower, won, unclear = _LOWER.get(metric, True), dict[str, int](), 0
    paths = [axis.path for axis in sweep.axes]
    points = [group for _, group in found.groupby(paths, sort=False, dropna=False) if group["value"].notna().sum() > 1]
    for group in points:
        ranked = group.dropna(subset=["value"]).sort_values("value", ascending=lower)
        first, second = ranked.iloc[0], ranked.iloc[1]
        ahead = first["high"] < second["low"] if lower else first["low"] > second["high"]
        clear = bool(ahead) if np.isfinite([first["low"], second["low"]]).all() else first["value"] != second["value"]
        if clear:
            won[str(first["policy"])] = won.get(str(first["policy"]), 0) + 1
        else:
            unclear += 1
    if not points:
        return "Nothing to compare yet."
    told = [f"{policy} at {count}" for policy, count in sorted(won.items(), key=lambda item: -item[1])]
    told += [f"no clear difference between the first two at {unclear}"] if unclear else []
    return f"{'Lowest' if lower else 'Highest'} {title}, of {len(points)} point{'' if len(points) == 1 else 's'}: {', '.join(told)}."


def _groups(table: pd.DataFrame, sweep: Sweep) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Walk (values of the axes and policy, its runs)."""
    paths = [axis.path for axis in sweep.axes]
    for (_, policy), group in table.groupby(["point", "policy"], sort=False):
        yield {path: group[path].iloc[0] for path in paths} | {"policy": policy}, group


def _numbers(group: pd.DataFrame, metric: str) -> Floats:
    values = _finite(group, metric)
    return values[np.isfinite(values)]


def _finite(group: pd.DataFrame, metric: str) -> Floats:
    return group[metric].to_numpy(np.float64, na_value=np.nan) if metric in group else np.zeros(0)


def _pooled(values: Floats, base: Floats | None = None) -> dict[str, float]:
    """Return a mean, or a ratio of means less one, with its interval."""
    nothing = {"value": np.nan, "low": np.nan, "high": np.nan}
    if not len(values) or (base is not None and base.mean() == 0):
        return nothing
    sides = [values] if base is None else [values, base]
    value = _statistic(sides)
    if len(values) < FEWEST:
        return nothing | {"value": value}
    pick = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.asarray(_statistic([side[pick] for side in sides]))
    low, high = np.percentile(drawn[np.isfinite(drawn)], _LEVEL)
    return {"value": float(value), "low": float(low), "high": float(high)}


def _statistic(sides: Sequence[Floats]) -> Any:
    means = [side.mean(axis=-1) for side in sides]
    return means[0] if len(means) == 1 else means[0] / means[1] - 1.0
