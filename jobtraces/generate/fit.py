"""Figures of a trace from which jobs like its own can be drawn: aggregates of at least `FEW` jobs,
rounded, without names, ids and dates.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import HOUR_S, MOST_JOBS
from jobtraces.generate.like import BINS, SOON_S, WEEK_H, Like, rank_edges
from jobtraces.generate.limits import fitted
from jobtraces.generate.profiles import PROFILES
from jobtraces.generate.recurring import MODELS
from sim.cluster import KNOWN_TYPES
from sim.errors import TraceError
from sim.perf.profiles import EXAMPLES, plain
from sim.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEW: Final = 10
"""Every figure is made of at least so many jobs (a user's of twice as many)."""
LEAST_JOBS: Final = 50
_GROUP: Final = 4 * FEW
"""Jobs of a group of sizes with run times of its own."""
_GROUPS: Final = 30
_USERS: Final = 60
"""Busiest users that are described one by one."""
_MOST_NAMES: Final = 40
_DIGITS: Final = 4
"""A run time of 172,800 s, a common limit, must stay what it is."""
_STEP: Final = 1.25
"""Ratio of neighbouring classes of hourly counts, from where there are too many single ones."""
_SINGLE: Final = 8
_SOON: Final = 0.1
_CELLS: Final = 64
_FAR: Final = 3.0
"""A user all of whose jobs are among the smallest has this score, and not an endless one."""
_LEAST_SPREAD: Final = 0.05
_NORMAL: Final = NormalDist()


def figures(trace: Trace, *, load: float = 1.0, seed: int = 0, cluster: str = "") -> Like:
    """Fit a generator to a trace.

    Parameters
    ----------
    trace : Trace
        At least `LEAST_JOBS` jobs.
    load : float
        How many times the jobs are made in the same time; of a trace of more jobs than a workload
        may have, a shorter time is described.
    seed : int
        Seed of the jobs that are made.
    cluster : str
        Machines that the jobs come with, in the short form with ``+``; "" = those of `Like`.

    Returns
    -------
    Like
        Its parameters are the figures; ``make()`` draws the jobs.

    Raises
    ------
    TraceError
        If there are too few jobs.

    Notes
    -----
    Kept: sizes, run times by size (means of equal parts of the jobs, in ascending order, the last
    part halved again and again), the count of jobs of every hour as a distribution, hour of day and
    day of week, persistence of busy hours, jobs submitted in one second, shares of users with sizes
    and run times of their own, runs of jobs of one user that are alike, known GPU types and models
    by size, time limits by run time, outcomes by run time, and in which virtual cluster users are
    mostly. Scores are normal scores, so that ranks are coupled and distributions stay what they
    are (Cario and Nelson, Operations Research Letters 19 (1996): ARTA processes). Not kept: names,
    ids, dates, start times, deadlines, partitions, cores and memory, and which job follows which.
    """
    jobs = len(trace)
    if jobs < LEAST_JOBS:
        raise TraceError(
            f"{trace.name}: {jobs} jobs are too few to fit a generator: figures of fewer than"
            f" {LEAST_JOBS} would describe single jobs. Use a longer part of the trace."
        )
    gpus, run_s = trace.numbers("num_gpus"), np.maximum(trace.numbers("duration_s"), 1.0)
    user, _ = pd.factorize(trace.texts("user"))
    user = user.astype(np.int64)
    sizes, size_shares, pooled = _sizes(gpus)
    ends, group = _groups(pooled)
    tables = [_means(run_s[group == at]) for at in range(len(ends))]
    kept = min(jobs, int(MOST_JOBS / max(load, 1.0)))
    _, types, type_shares = _choices(trace, "gpu_type", group, len(ends))
    names, models, model_shares = _choices(trace, "model", group, len(ends))
    return Like(
        jobs=kept,
        days=_rounded(trace.span_s * kept / jobs / 86_400, 5),
        load=load,
        seed=seed,
        cluster=cluster or Like().cluster,
        **_arrivals(trace),
        **_users(trace, user, gpus, run_s, group),
        **fitted(trace, run_s, user, _busy(np.bincount(user)), FEW),
        sizes=sizes,
        size_shares=size_shares,
        groups=ends,
        points=tuple(float(len(table)) for table in tables),
        times=tuple(_rounded(value, _DIGITS) for table in tables for value in table),
        types="+".join(types),
        type_shares=type_shares,
        models="+".join(models),
        model_shares=model_shares,
        batches=_batches(trace, names),
    )


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _sizes(gpus: Floats) -> tuple[tuple[float, ...], tuple[float, ...], Floats]:
    """Return the sizes with their numbers of jobs, and the size of each job among them: sizes that
    fewer than `FEW` jobs have are taken together with their neighbours below.
    """
    values, counts = np.unique(gpus, return_counts=True)
    label, pool, total = values.copy(), [0] * 0, 0
    # From the largest down, so that what is left over joins the small sizes, which are common.
    for at in np.flatnonzero(counts < FEW)[::-1].tolist():
        pool.append(at)
        total += int(counts[at])
        if total >= FEW:
            label[pool] = round(float(np.average(values[pool], weights=counts[pool])))
            pool, total = [], 0
    if pool:
        others = np.setdiff1d(label, values[pool])
        for at in pool:
            label[at] = others[np.abs(others - values[at]).argmin()] if len(others) else values[0]
    pooled = label[np.searchsorted(values, gpus)]
    sizes, jobs = np.unique(pooled, return_counts=True)
    return tuple(sizes.tolist()), tuple(jobs.astype(float).tolist()), pooled


def _groups(pooled: Floats) -> tuple[tuple[float, ...], Ints]:
    """Return the largest size of each group, and the group of each job."""
    values, counts = np.unique(pooled, return_counts=True)
    power = np.ceil(np.log2(np.maximum(values, 0.5)))
    ends: list[float] = []
    held = 0
    for at, value in enumerate(values.tolist()):
        held += int(counts[at])
        # A group ends at a power of two, or where it holds a fair part of all jobs.
        whole = at + 1 == len(values) or power[at + 1] > power[at]
        if held >= _GROUP and (whole or held >= len(pooled) / _GROUPS):
            ends.append(value)
            held = 0
    if held and ends:
        ends[-1] = float(pooled.max())
    ends = ends or [float(pooled.max())]
    return tuple(ends), np.searchsorted(np.array(ends), pooled).astype(np.int64)


def _means(run_s: Floats) -> list[float]:
    """Return the mean run times of the parts of a group, each of at least `FEW` jobs."""
    ordered, jobs = np.sort(run_s), len(run_s)
    points = max(min(BINS, jobs // FEW), 1)
    while points >= BINS and 0.5 ** (points - BINS + 1) / BINS * jobs >= FEW:
        points += 1
    edges = np.rint(rank_edges(points) * jobs).astype(np.int64)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    means: list[float] = ((sums[edges[1:]] - sums[edges[:-1]]) / np.diff(edges)).tolist()
    return means


def _mid_ranks(values: Floats) -> Floats:
    """Return ranks from 0 to 1, equal values having the middle one of theirs."""
    return np.asarray((pd.Series(values).rank() - 0.5) / len(values), np.float64)


def _normal(ranks: Floats) -> Floats:
    found, place = np.unique(ranks, return_inverse=True)
    return np.array([_NORMAL.inv_cdf(min(max(one, 1e-9), 1 - 1e-9)) for one in found.tolist()])[
        place
    ]


def _score(value: float) -> float:
    return round(value, 2) + 0.0


def _follows(score: Floats, before: NDArray[np.bool_]) -> float:
    """Return the correlation of each number with the one before, where that counts."""
    late, early = score[1:][before], score[:-1][before]
    if len(late) < FEW or not late.std() or not early.std():
        return 0.0
    return _score(min(max(float(np.corrcoef(late, early)[0, 1]), -0.9), 0.95))


def _arrivals(trace: Trace) -> dict[str, Any]:
    submit = trace.numbers("submit_time_s")
    # Whole hours: a last one that is cut off would look quiet.
    hours = int(trace.span_s // HOUR_S)
    counts = np.bincount((submit // HOUR_S).astype(np.int64), minlength=hours + 1)
    counts, late = counts[:hours], int(counts[hours])
    start = pd.Timestamp(trace.epoch) if trace.epoch else None
    begins = 0.0 if start is None else start.weekday() * 24 + start.hour + start.minute / 60
    clock = (int(begins) + np.arange(hours)) % WEEK_H
    if hours < 2:
        return {"begins": round(begins, 1), "calendar": start is not None}
    score = _normal(_mid_ranks(counts.astype(np.float64)))
    of_hour, of_day = np.zeros(24), np.zeros(7)
    if hours >= 48:
        of_hour = _means_of(score, clock % 24, 24)
    rest = score - of_hour[clock % 24]
    if hours >= 2 * WEEK_H and start is not None:
        of_day = _means_of(rest, clock // 24, 7)
    rest = rest - of_day[clock // 24]
    rates, shares = _classes(counts)
    return {
        "begins": round(begins, 1),
        "calendar": start is not None,
        "hours": tuple(map(_score, of_hour.tolist())) if of_hour.any() else (),
        "weekdays": tuple(map(_score, of_day.tolist())) if of_day.any() else (),
        "noise": _score(float(rest.std())),
        "persistence": _follows(rest, np.ones(hours - 1, bool)),
        "rates": rates,
        "rate_shares": shares,
        "last": float(late) if late >= FEW else 0.0,
        **_gaps(
            np.diff(submit), counts[np.minimum(submit[:-1] // HOUR_S, hours - 1).astype(np.int64)]
        ),
    }


def _gaps(gaps: Floats, of_hour: Ints) -> dict[str, Any]:
    """Return the share of jobs that come much sooner after the one before than jobs that are spread
    evenly over their hour, and the mean gaps of equal parts of those.
    """
    even = np.clip(_SOON * HOUR_S / np.maximum(of_hour, 1), 1.0, SOON_S)
    soon = np.sort(gaps[gaps < even])
    parts = np.array_split(soon, min(max(len(soon) // FEW, 1), FEW))
    return {
        "together": _rounded(len(soon) / len(gaps), 3),
        "gaps": tuple(_rounded(float(part.mean()), 3) for part in parts if len(part)) or (0.0,),
    }


def _means_of(values: Floats, place: Ints, places: int) -> Floats:
    found = np.bincount(place, values, minlength=places) / np.maximum(
        np.bincount(place, minlength=places), 1
    )
    return np.asarray(found - found.mean(), np.float64)


def _classes(counts: Ints) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return classes of hours: jobs per hour, and hours that have so many. Single counts as long as
    they are small, then classes that are `_STEP` times as busy as those before.
    """
    large = np.log(np.maximum(counts, _SINGLE) / _SINGLE) / math.log(_STEP)
    of = np.where(counts <= _SINGLE, counts, _SINGLE + np.ceil(large)).astype(np.int64)
    _, place, hours = np.unique(of, return_inverse=True, return_counts=True)
    means = np.bincount(place, counts) / hours
    return (
        tuple(_rounded(one, _DIGITS) for one in means.tolist()),
        tuple(hours.astype(float).tolist()),
    )


def _users(trace: Trace, user: Ints, gpus: Floats, run_s: Floats, group: Ints) -> dict[str, Any]:
    size = _mid_ranks(gpus)
    time = np.empty(len(gpus))
    for at in np.unique(group):
        time[group == at] = _mid_ranks(run_s[group == at])
    counts = np.bincount(user)
    busy = _busy(counts)
    known = trace.has("user")
    rest = counts.sum() - counts[busy].sum()
    (sizes, of_size), (times, of_time) = (
        _of_users(ranks, user, counts, busy) if known else ((), 1.0) for ranks in (size, time)
    )
    same = np.diff(user) == 0
    shares = counts / counts.sum()
    chance = float((shares**2).sum())
    streak = (float(same.mean()) - chance) / (1 - chance) if known and chance < 1 else 0.0
    return {
        "users": tuple(_rounded(one, 3) for one in counts[busy].tolist()) if known else (),
        "user_sizes": sizes,
        "user_times": times,
        "user_spread": (of_size, of_time),
        "others": int(len(counts) - len(busy)) if known else 0,
        "others_share": float(rest) if known else 0.0,
        "streak": _rounded(min(max(streak, 0.0), 0.999), 3),
        "alike": tuple(
            _persistence(ranks, user, busy, of) for ranks, of in ((size, sizes), (time, times))
        ),
    }


def _busy(counts: Ints) -> Ints:
    """Return the users who are described one by one, the busiest first."""
    order = np.argsort(-counts, kind="stable")
    return order[: int(np.count_nonzero(counts[order[:_USERS]] >= 2 * FEW))]


def _of_users(
    ranks: Floats, user: Ints, counts: Ints, busy: Ints
) -> tuple[tuple[float, ...], float]:
    """Return the score of each of the busy users, and the spread of single jobs around them: the
    means of normal distributions that, cut where all jobs together have their values, give the jobs
    of each user the mean rank that they have.
    """
    every = np.bincount(user, ranks) / counts
    explained = float(every[user].var() / ranks.var()) if ranks.var() else 0.0
    spread = math.sqrt(max(_LEAST_SPREAD, 1 - explained))
    mean, weight = every[busy], counts[busy] / counts.sum()
    place = np.rint(ranks * _CELLS)
    values, jobs = np.unique(place, return_counts=True)
    middles = np.bincount(np.searchsorted(values, place), ranks) / jobs
    upto = np.cumsum(jobs)[:-1] / jobs.sum()
    grid = np.linspace(-2 * _FAR, 2 * _FAR, 16 * _CELLS + 1)
    below = np.array([_NORMAL.cdf(one / spread) for one in grid.tolist()])
    tried = np.linspace(-_FAR, _FAR, 2 * _CELLS + 1)
    found = np.zeros(len(busy))
    for _ in range(6):  # settles to two decimals
        mixed = (1 - weight.sum()) * below
        for one, part in zip(found.tolist(), weight.tolist(), strict=True):
            mixed = mixed + part * np.interp(grid - one, grid, below)
        cuts = np.interp(upto, mixed, grid)
        cells = np.interp(cuts[None, :] - tried[:, None], grid, below)
        found = np.interp(mean, np.diff(cells, axis=1, prepend=0.0, append=1.0) @ middles, tried)
    return tuple(map(_score, found.tolist())), _score(spread)


def _persistence(ranks: Floats, user: Ints, busy: Ints, of: tuple[float, ...]) -> float:
    """Return how much a job resembles the one before of its user, beyond what the user explains."""
    mean = np.zeros(int(user.max()) + 1)
    if of:
        mean[busy] = of
    order = np.argsort(user, kind="stable")
    rest = (_normal(ranks) - mean[user])[order]
    return _follows(rest, np.diff(user[order]) == 0)


def _public(column: str) -> dict[str, str]:
    """Return the names that say nothing of where a trace comes from, by their plain form."""
    models = (model for one in PROFILES.values() for model in one.models or ())
    names = KNOWN_TYPES if column == "gpu_type" else (*EXAMPLES, *MODELS, *models)
    return {plain(name): name for name in names}


def _choices(
    trace: Trace, column: str, group: Ints, groups: int
) -> tuple[list[str], list[str], tuple[float, ...]]:
    """Return the values of a column, what they are called, and how many jobs of each group have
    each. Models that are not public are numbered, such GPU types are left out, as is what fewer
    than `FEW` jobs of a group have.
    """
    if not trace.has(column):
        return [], [], ()
    public, texts = _public(column), pd.Series(trace.texts(column)).astype("str")
    counts = texts[texts != ""].value_counts()
    names = [str(name) for name in counts.index[counts >= FEW]][:_MOST_NAMES]
    if column == "gpu_type":
        names = [name for name in names if plain(name) in public]
    if not names:
        return [], [], ()
    shown = [public.get(plain(name), f"model {at + 1}") for at, name in enumerate(names)]
    table = pd.crosstab(group, texts).reindex(index=range(groups), columns=names, fill_value=0)
    kept = table.where(table >= FEW, 0).to_numpy(np.float64)
    return names, shown, tuple(kept.ravel().tolist())


def _batches(trace: Trace, models: list[str]) -> tuple[float, ...]:
    """Return the most frequent batch size of each model; 0 = fewer than `FEW` jobs state it."""
    texts, batch = pd.Series(trace.texts("model")).astype("str"), trace.numbers("batch_size")
    found = []
    for model in models:
        values, jobs = np.unique(batch[(texts == model) & (batch > 0)], return_counts=True)
        at = int(jobs.argmax()) if len(jobs) else -1
        found.append(float(values[at]) if at >= 0 and jobs[at] >= FEW else 0.0)
    return tuple(found)
