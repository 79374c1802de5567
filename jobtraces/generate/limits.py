"""What jobs like those of a trace have besides sizes and run times: time limits, outcomes and
virtual clusters, fitted and drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import pick
from sim.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS: Final = 5
"""Equal parts of the jobs by run time that have limits and outcomes of their own."""
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
"""Words that name nobody; other outcomes are left out."""
_MOST: Final = 20
_HOMES: Final = 40


@dataclass(frozen=True)
class Fitted:
    """Parameters of `jobtraces.generate.like.Like` of the same names."""

    limits: tuple[float, ...]
    limit_shares: tuple[float, ...]
    outcomes: str
    outcome_shares: tuple[float, ...]
    homes: tuple[float, ...]
    home_shares: tuple[float, ...]
    at_home: float
    users: tuple[float, ...]
    others: int


def fitted(trace: Trace, run_s: Floats, user: Ints, busy: Ints, few: int) -> dict[str, Any]:
    """Return the figures of a trace: each of at least `few` jobs, without names.

    Parameters
    ----------
    trace : Trace
        The jobs.
    run_s : array of shape (jobs,)
        Their run times in seconds.
    user, busy : array of shape (jobs,) and (users,)
        Number of the user of each job, and the users that are described one by one.
    few : int
        So many jobs a figure describes at least.
    """
    return (
        _limits(trace, run_s, few) | _outcomes(trace, run_s, few) | _homes(trace, user, busy, few)
    )


def drawn(like: Fitted, run_s: Floats, user: Ints, rng: np.random.Generator) -> dict[str, Any]:
    """Return columns of jobs with these run times and users."""
    columns: dict[str, Any] = {}
    if like.limits:
        columns["time_limit_s"] = _drawn_limits(like, run_s, rng)
    if like.outcomes:
        names = [*like.outcomes.split("+"), ""]
        columns["status"] = np.array(names, object)[_drawn(like.outcome_shares, run_s, rng)]
    if like.home_shares:
        columns["vc"] = _drawn_homes(like, user, rng)
    return columns


def _limits(trace: Trace, run_s: Floats, few: int) -> dict[str, Any]:
    """Return the limits that jobs have, 0 = none, and how many of each part by run time have each;
    a limit that fewer jobs have counts as the next longer one that is kept.
    """
    given = trace.numbers("time_limit_s")
    given = np.where(np.isfinite(given) & (given > 0), given, np.inf)
    if np.isfinite(given).sum() < few:
        return {}
    values, counts = np.unique(given, return_counts=True)
    frequent = np.sort(values[np.argsort(-counts, kind="stable")[:_MOST]])
    kept: list[float] = []
    held = 0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        held += count
        if held >= few and (value in frequent or value == values[-1]):
            kept.append(value)
            held = 0
    if not kept:
        return {}
    # Longer ones are too few for a figure of their own, and count as the longest that is kept.
    place = np.minimum(np.searchsorted(kept, given), len(kept) - 1)
    table = pd.crosstab(_part(run_s), place)
    table = table.reindex(index=range(PARTS), columns=range(len(kept)), fill_value=0)
    return {
        "limits": tuple(float(f"{one:.6g}") if math.isfinite(one) else 0.0 for one in kept),
        "limit_shares": tuple(table.where(table >= few, 0).to_numpy(np.float64).ravel().tolist()),
    }


def _drawn(shares: tuple[float, ...], run_s: Floats, rng: np.random.Generator) -> Ints:
    """Return a choice for each job by the shares of its part by run time; where the part has none,
    one more than there are.
    """
    table = np.array(shares).reshape(PARTS, -1)
    part, uniform = _part(run_s), rng.random(len(run_s))
    at = np.full(len(run_s), table.shape[1])
    for one, row in enumerate(table):
        if row.sum():
            at[part == one] = pick(row, uniform[part == one])
    return at


def _drawn_limits(like: Fitted, run_s: Floats, rng: np.random.Generator) -> Floats:
    """Return limits: within a part by run time the longer ones for the longer jobs, and where a run
    time exceeds its limit the next that it does not.
    """
    place, part = _drawn(like.limit_shares, run_s, rng), _part(run_s)
    place[np.lexsort((rng.random(len(run_s)), run_s, part))] = place[np.lexsort((place, part))]
    values = np.array([*(one or np.inf for one in like.limits), np.inf])
    found = values[np.maximum(place, np.searchsorted(values[:-1], run_s))]
    return np.where(np.isfinite(found), found, np.nan)


def _outcomes(trace: Trace, run_s: Floats, few: int) -> dict[str, Any]:
    """Return the outcomes that are known words, and how many jobs of each part by run time have
    each.
    """
    texts, part = pd.Series(trace.texts("status")).astype("str"), _part(run_s)
    table = pd.crosstab(part, texts).reindex(index=range(PARTS), fill_value=0)
    table = table[[name for name in table if name in OUTCOMES]]
    table = table.where(table >= few, 0)
    table = table.loc[:, table.sum() > 0]
    if table.empty or not table.size:
        return {}
    return {
        "outcomes": "+".join(map(str, table.columns)),
        "outcome_shares": tuple(table.to_numpy(np.float64).ravel().tolist()),
    }


def _part(run_s: Floats) -> Ints:
    rank = np.asarray(pd.Series(run_s).rank(), np.float64) - 0.5
    return np.minimum((rank / len(run_s) * PARTS).astype(np.int64), PARTS - 1)


def _homes(trace: Trace, user: Ints, busy: Ints, few: int) -> dict[str, Any]:
    """Return the virtual cluster of most jobs of each busy user, by number from the largest, the
    share of jobs that are there, and where all other jobs are.
    """
    texts = pd.Series(trace.texts("vc")).astype("str")
    counts = texts[texts != ""].value_counts()
    names = [str(name) for name in counts.index[counts >= few]][:_HOMES]
    if len(names) < 2:
        return {}
    place = texts.map({name: at for at, name in enumerate(names)}).fillna(-1).to_numpy(np.int64)
    home = np.full(int(user.max()) + 1, -1)
    for one in busy.tolist():
        own = place[(user == one) & (place >= 0)]
        home[one] = int(np.bincount(own).argmax()) if len(own) >= few else -1
    of_busy = (home[user] >= 0) & (place >= 0)
    there = of_busy & (place == home[user])
    rest = np.bincount(place[~there & (place >= 0)], minlength=len(names))
    rest = np.where(rest >= few, rest, 0)
    if not rest.sum():
        rest = np.bincount(place[place >= 0], minlength=len(names))
    share = float(there.sum() / of_busy.sum()) if of_busy.any() else 0.0
    return {
        "homes": tuple(home[busy].astype(float).tolist()) if trace.has("user") else (),
        "home_shares": tuple(rest.astype(float).tolist()),
        "at_home": round(share, 3),
    }


def _drawn_homes(like: Fitted, user: Ints, rng: np.random.Generator) -> NDArray[np.object_]:
    """Return the virtual cluster of each job, numbered from the largest of the trace: busy users
    are mostly at home, each of the others always in one place.
    """
    jobs, shares = len(user), np.array(like.home_shares)
    of_others = pick(shares, rng.random(max(like.others, 1)))
    of_busy = np.array(like.homes or [-1.0] * len(like.users), np.int64)
    home = np.concatenate((of_busy, of_others))
    own = home[user] if like.users or like.others else np.full(jobs, -1)
    stays = (own >= 0) & ((user >= len(of_busy)) | (rng.random(jobs) < like.at_home))
    place = np.where(stays, own, pick(shares, rng.random(jobs)))
    return np.array([f"vc {at + 1}" for at in range(len(shares))], object)[place]
