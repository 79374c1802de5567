"""Fit and draw time limits, outcomes and virtual clusters of jobs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import pick_by_share
from sim.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RUN_TIME_PARTS: Final = 5
"""Number of equal parts of the jobs by run time, with separate limits and outcomes."""
OUTCOMES: Final = (
    "completed",
    "failed",
    "cancelled",
    "timeout",
    "preempted",
    "out_of_memory",
    "node_fail",
    "boot_fail",
    "deadline",
)
"""Generic outcomes; others are left out because they may identify the site."""
_MAX_LIMITS: Final = 20
_MAX_CLUSTERS: Final = 40


@dataclass(frozen=True)
class FittedLimits:
    """The parameters of `jobtraces.generate.like.Like` with these names."""

    limits: tuple[float, ...]
    limit_shares: tuple[float, ...]
    outcomes: str
    outcome_shares: tuple[float, ...]
    homes: tuple[float, ...]
    home_shares: tuple[float, ...]
    at_home: float
    users: tuple[float, ...]
    others: int


def fit_limits(trace: Trace, run_s: Floats, user: Ints, busy: Ints, few: int) -> dict[str, Any]:
    """Return the figures of a trace: limits, outcomes and virtual clusters, without names.

    Parameters
    ----------
    trace : Trace
        The jobs.
    run_s : array of shape (jobs,)
        Run times in seconds.
    user, busy : array of shape (jobs,) and (users,)
        User index of each job, and the users described individually.
    few : int
        Smallest number of jobs in a figure.
    """
    return (
        _fit_limits(trace, run_s, few)
        | _fit_outcomes(trace, run_s, few)
        | _fit_clusters(trace, user, busy, few)
    )


def draw_columns(
    like: FittedLimits, run_s: Floats, user: Ints, rng: np.random.Generator
) -> dict[str, Any]:
    """Return the columns of limits, outcomes and virtual clusters for generated jobs.

    Keys are `time_limit_s`, `status` and `vc`; a column without parameters is left out.
    """
    columns: dict[str, Any] = {}
    if like.limits:
        columns["time_limit_s"] = _draw_limits(like, run_s, rng)
    if like.outcomes:
        names = [*like.outcomes.split("+"), ""]
        columns["status"] = np.array(names, object)[_draw_choices(like.outcome_shares, run_s, rng)]
    if like.home_shares:
        columns["vc"] = _draw_clusters(like, user, rng)
    return columns


def _fit_limits(trace: Trace, run_s: Floats, few: int) -> dict[str, Any]:
    """Return the time limits (0 = none), and their job counts per part by run time.

    A limit of fewer than `few` jobs counts as the next longer one. {} if fewer than `few` jobs have
    a limit.
    """
    limit_s = trace.numbers("time_limit_s")
    limit_s = np.where(np.isfinite(limit_s) & (limit_s > 0), limit_s, np.inf)
    if np.isfinite(limit_s).sum() < few:
        return {}
    values, counts = np.unique(limit_s, return_counts=True)
    frequent = np.sort(values[np.argsort(-counts, kind="stable")[:_MAX_LIMITS]])
    limits: list[float] = []
    count_held = 0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        count_held += count
        if count_held >= few and (value in frequent or value == values[-1]):
            limits.append(value)
            count_held = 0
    if not limits:
        return {}
    # Longer limits are too rare and count as the longest one kept.
    index = np.minimum(np.searchsorted(limits, limit_s), len(limits) - 1)
    table = pd.crosstab(_run_time_quantile(run_s), index)
    table = table.reindex(index=range(RUN_TIME_PARTS), columns=range(len(limits)), fill_value=0)
    return {
        "limits": tuple(float(f"{limit:.6g}") if math.isfinite(limit) else 0.0 for limit in limits),
        "limit_shares": tuple(table.where(table >= few, 0).to_numpy(np.float64).ravel().tolist()),
    }


def _draw_choices(shares: tuple[float, ...], run_s: Floats, rng: np.random.Generator) -> Ints:
    """Return a choice per job by the shares of its part by run time.

    The number of choices = no choice.
    """
    table = np.array(shares).reshape(RUN_TIME_PARTS, -1)
    part, uniform = _run_time_quantile(run_s), rng.random(len(run_s))
    choices = np.full(len(run_s), table.shape[1])
    for index, row in enumerate(table):
        if row.sum():
            choices[part == index] = pick_by_share(row, uniform[part == index])
    return choices


def _draw_limits(like: FittedLimits, run_s: Floats, rng: np.random.Generator) -> Floats:
    """Return time limits, at least the run time; longer jobs of a part get longer limits.

    NaN = no limit.
    """
    choices, part = _draw_choices(like.limit_shares, run_s, rng), _run_time_quantile(run_s)
    choices[np.lexsort((rng.random(len(run_s)), run_s, part))] = choices[
        np.lexsort((choices, part))
    ]
    values = np.array([*(limit or np.inf for limit in like.limits), np.inf])
    limit_s = values[np.maximum(choices, np.searchsorted(values[:-1], run_s))]
    return np.where(np.isfinite(limit_s), limit_s, np.nan)


def _fit_outcomes(trace: Trace, run_s: Floats, few: int) -> dict[str, Any]:
    """Return the known outcomes, and their job counts per part by run time.

    Counts below `few` become 0; {} without an outcome.
    """
    texts, part = pd.Series(trace.texts("status")).astype("str"), _run_time_quantile(run_s)
    table = pd.crosstab(part, texts).reindex(index=range(RUN_TIME_PARTS), fill_value=0)
    table = table[[name for name in table if name in OUTCOMES]]
    table = table.where(table >= few, 0)
    table = table.loc[:, table.sum() > 0]
    if table.empty or not table.size:
        return {}
    return {
        "outcomes": "+".join(map(str, table.columns)),
        "outcome_shares": tuple(table.to_numpy(np.float64).ravel().tolist()),
    }


def _run_time_quantile(run_s: Floats) -> Ints:
    """Return each job's run-time quantile by rank, from 0 to `RUN_TIME_PARTS` - 1."""
    rank = np.asarray(pd.Series(run_s).rank(), np.float64) - 0.5
    return np.minimum((rank / len(run_s) * RUN_TIME_PARTS).astype(np.int64), RUN_TIME_PARTS - 1)


def _fit_clusters(trace: Trace, user: Ints, busy: Ints, few: int) -> dict[str, Any]:
    """Return the main virtual cluster of each busy user, and where other jobs run.

    Clusters are indices from the largest, -1 = none; also the share of busy users' jobs in their
    main cluster. {} with less than two clusters of `few` jobs.
    """
    texts = pd.Series(trace.texts("vc")).astype("str")
    counts = texts[texts != ""].value_counts()
    names = [str(name) for name in counts.index[counts >= few]][:_MAX_CLUSTERS]
    if len(names) < 2:
        return {}
    vc_index = (
        texts.map({name: index for index, name in enumerate(names)}).fillna(-1).to_numpy(np.int64)
    )
    home = np.full(int(user.max()) + 1, -1)
    for busy_user in busy.tolist():
        own_clusters = vc_index[(user == busy_user) & (vc_index >= 0)]
        home[busy_user] = (
            int(np.bincount(own_clusters).argmax()) if len(own_clusters) >= few else -1
        )
    is_busy = (home[user] >= 0) & (vc_index >= 0)
    is_home = is_busy & (vc_index == home[user])
    other_counts = np.bincount(vc_index[~is_home & (vc_index >= 0)], minlength=len(names))
    other_counts = np.where(other_counts >= few, other_counts, 0)
    if not other_counts.sum():
        other_counts = np.bincount(vc_index[vc_index >= 0], minlength=len(names))
    share = float(is_home.sum() / is_busy.sum()) if is_busy.any() else 0.0
    return {
        "homes": tuple(home[busy].astype(float).tolist()) if trace.has("user") else (),
        "home_shares": tuple(other_counts.astype(float).tolist()),
        "at_home": round(share, 3),
    }


def _draw_clusters(like: FittedLimits, user: Ints, rng: np.random.Generator) -> NDArray[np.object_]:
    """Return the virtual cluster of each job, numbered from the largest.

    Busy users are mostly in their main cluster; other users always in one.
    """
    jobs, shares = len(user), np.array(like.home_shares)
    other_homes = pick_by_share(shares, rng.random(max(like.others, 1)))
    busy_homes = np.array(like.homes or [-1.0] * len(like.users), np.int64)
    home = np.concatenate((busy_homes, other_homes))
    own_home = home[user] if like.users or like.others else np.full(jobs, -1)
    is_home = (own_home >= 0) & ((user >= len(busy_homes)) | (rng.random(jobs) < like.at_home))
    vc_index = np.where(is_home, own_home, pick_by_share(shares, rng.random(jobs)))
    return np.array([f"vc {index + 1}" for index in range(len(shares))], object)[vc_index]
