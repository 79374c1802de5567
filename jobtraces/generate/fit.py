"""Fit the figures of a trace, from which `jobtraces.generate.like` draws similar jobs.

Figures are rounded aggregates of at least `MIN_FIGURE_JOBS` jobs, without names, ids and dates.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import HOUR_S, MAX_JOBS
from jobtraces.generate.like import MAX_BURST_GAP_S, MAX_EQUAL_PARTS, WEEK_H, Like, rank_edges
from jobtraces.generate.limits import fit_limits
from jobtraces.generate.profiles import PROFILES
from jobtraces.generate.recurring import MODELS
from sim.cluster import KNOWN_TYPES
from sim.errors import TraceError
from sim.perf.profiles import EXAMPLES, plain
from sim.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_FIGURE_JOBS: Final = 10
"""Smallest number of jobs in any figure (twice as many for a user)."""
MIN_JOBS: Final = 50
_MIN_GROUP_JOBS: Final = 4 * MIN_FIGURE_JOBS
"""Smallest number of jobs in a size group with separate run times."""
_MAX_GROUPS: Final = 30
_MAX_BUSY_USERS: Final = 60
"""Largest number of users described individually."""
_MAX_NAMES: Final = 40
_TIME_DIGITS: Final = 4
"""Digits of a run time: 172,800 s, a common limit, must stay exact."""
_CLASS_RATIO: Final = 1.25
"""Ratio of neighboring classes of large hourly counts."""
_MAX_SINGLE_COUNT: Final = 8
_BURST_GAP_SHARE: Final = 0.1
_GRID_CELLS: Final = 64
_MAX_SCORE: Final = 3.0
"""Largest absolute score; bounds users whose jobs are all among the smallest."""
_MIN_SPREAD: Final = 0.05
_NORMAL: Final = NormalDist()


def figures(trace: Trace, *, load: float = 1.0, seed: int = 0, cluster: str = "") -> Like:
    """Fit a generator to a trace.

    Parameters
    ----------
    trace : Trace
        A trace of at least `MIN_JOBS` jobs.
    load : float
        Factor on the number of jobs in the same time. If a workload cannot have so many jobs, a
        shorter time is described.
    seed : int
        Seed of the generated jobs.
    cluster : str
        Cluster of the workload, in the short form with ``+``; "" = the default of `Like`.

    Returns
    -------
    Like
        The generator, with the figures as parameters; ``make()`` draws the jobs.

    Raises
    ------
    TraceError
        If there are too few jobs.

    Notes
    -----
    Kept: sizes, run times by size (means of equal parts of the jobs in ascending order, the last
    part halved repeatedly), the distribution of hourly counts, hour of day and day of week,
    persistence of busy hours, jobs submitted in one second, shares of users with their sizes and
    run times, runs of similar jobs of one user, known GPU types and models by size, time limits and
    outcomes by run time, and the main virtual cluster of users. Scores are normal scores: they
    couple ranks and keep distributions unchanged (Cario and Nelson, Operations Research Letters 19
    (1996): ARTA processes). Not kept: names,
    ids, dates, start times, deadlines, partitions, cores and memory, and the order and dependencies
    of jobs.
    """
    jobs = len(trace)
    if jobs < MIN_JOBS:
        raise TraceError(
            f"{trace.name}: {jobs} jobs are too few to fit a generator without describing single"
            f" jobs; {MIN_JOBS} are needed. Use a longer part of the trace."
        )
    gpus, run_s = trace.numbers("num_gpus"), np.maximum(trace.numbers("duration_s"), 1.0)
    user, _ = pd.factorize(trace.texts("user"))
    user = user.astype(np.int64)
    sizes, size_shares, pooled = _fit_sizes(gpus)
    ends, group = _fit_groups(pooled)
    tables = [_part_means(run_s[group == index]) for index in range(len(ends))]
    job_limit = min(jobs, int(MAX_JOBS / max(load, 1.0)))
    _, types, type_shares = _fit_choices(trace, "gpu_type", group, len(ends))
    names, models, model_shares = _fit_choices(trace, "model", group, len(ends))
    return Like(
        jobs=job_limit,
        days=_round_digits(trace.span_s * job_limit / jobs / 86_400, 5),
        load=load,
        seed=seed,
        cluster=cluster or Like().cluster,
        **_fit_arrivals(trace),
        **_fit_users(trace, user, gpus, run_s, group),
        **fit_limits(trace, run_s, user, _busy_users(np.bincount(user)), MIN_FIGURE_JOBS),
        sizes=sizes,
        size_shares=size_shares,
        groups=ends,
        points=tuple(float(len(table)) for table in tables),
        times=tuple(_round_digits(value, _TIME_DIGITS) for table in tables for value in table),
        types="+".join(types),
        type_shares=type_shares,
        models="+".join(models),
        model_shares=model_shares,
        batches=_fit_batches(trace, names),
    )


def _round_digits(value: float, digits: int) -> float:
    """Return a value rounded to significant digits."""
    return float(f"{value:.{digits}g}")


def _fit_sizes(gpus: Floats) -> tuple[tuple[float, ...], tuple[float, ...], Floats]:
    """Return sizes, their job counts, and the size of each job.

    Sizes of fewer than `MIN_FIGURE_JOBS` jobs are pooled from the largest down and replaced by
    their rounded mean; a remainder gets the nearest other size.
    """
    values, counts = np.unique(gpus, return_counts=True)
    label, pool, total = values.copy(), [0] * 0, 0
    # From the largest down: a remainder joins the small sizes, which are common.
    for index in np.flatnonzero(counts < MIN_FIGURE_JOBS)[::-1].tolist():
        pool.append(index)
        total += int(counts[index])
        if total >= MIN_FIGURE_JOBS:
            label[pool] = round(float(np.average(values[pool], weights=counts[pool])))
            pool, total = [], 0
    if pool:
        others = np.setdiff1d(label, values[pool])
        for index in pool:
            label[index] = (
                others[np.abs(others - values[index]).argmin()] if len(others) else values[0]
            )
    pooled = label[np.searchsorted(values, gpus)]
    sizes, jobs = np.unique(pooled, return_counts=True)
    return tuple(sizes.tolist()), tuple(jobs.astype(float).tolist()), pooled


def _fit_groups(pooled: Floats) -> tuple[tuple[float, ...], Ints]:
    """Return the largest size of each group, and the group of each job.

    A group has at least `_MIN_GROUP_JOBS` jobs, and ends at a power of two or at a fair share of
    all jobs.
    """
    values, counts = np.unique(pooled, return_counts=True)
    power = np.ceil(np.log2(np.maximum(values, 0.5)))
    ends: list[float] = []
    count = 0
    for index, value in enumerate(values.tolist()):
        count += int(counts[index])
        # A group ends at a power of two, or once it has a fair share of all jobs.
        ends_at_power = index + 1 == len(values) or power[index + 1] > power[index]
        if count >= _MIN_GROUP_JOBS and (ends_at_power or count >= len(pooled) / _MAX_GROUPS):
            ends.append(value)
            count = 0
    if count and ends:
        ends[-1] = float(pooled.max())
    ends = ends or [float(pooled.max())]
    return tuple(ends), np.searchsorted(np.array(ends), pooled).astype(np.int64)


def _part_means(run_s: Floats) -> list[float]:
    """Return the mean run times of parts of a group, ascending; see `rank_edges`.

    Each part has at least `MIN_FIGURE_JOBS` jobs, if the group has.
    """
    ordered, jobs = np.sort(run_s), len(run_s)
    points = max(min(MAX_EQUAL_PARTS, jobs // MIN_FIGURE_JOBS), 1)
    while (
        points >= MAX_EQUAL_PARTS
        and 0.5 ** (points - MAX_EQUAL_PARTS + 1) / MAX_EQUAL_PARTS * jobs >= MIN_FIGURE_JOBS
    ):
        points += 1
    edges = np.rint(rank_edges(points) * jobs).astype(np.int64)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    means: list[float] = ((sums[edges[1:]] - sums[edges[:-1]]) / np.diff(edges)).tolist()
    return means


def _mid_ranks(values: Floats) -> Floats:
    """Return ranks from 0 to 1; equal values share their mean rank."""
    return np.asarray((pd.Series(values).rank() - 0.5) / len(values), np.float64)


def _normal_scores(ranks: Floats) -> Floats:
    """Return the quantiles of the standard normal distribution at ranks from 0 to 1."""
    distinct_ranks, index = np.unique(ranks, return_inverse=True)
    return np.array(
        [_NORMAL.inv_cdf(min(max(rank, 1e-9), 1 - 1e-9)) for rank in distinct_ranks.tolist()]
    )[index]


def _round_score(value: float) -> float:
    """Return a score rounded to two decimals, without negative zero."""
    return round(value, 2) + 0.0


def _lag_correlation(score: Floats, has_previous: NDArray[np.bool_]) -> float:
    """Return the correlation of each score with the previous one, over selected pairs.

    Limited to -0.9 to 0.95; 0 with less than `MIN_FIGURE_JOBS` pairs or constant scores.
    """
    current, previous = score[1:][has_previous], score[:-1][has_previous]
    if len(current) < MIN_FIGURE_JOBS or not current.std() or not previous.std():
        return 0.0
    return _round_score(min(max(float(np.corrcoef(current, previous)[0, 1]), -0.9), 0.95))


def _fit_arrivals(trace: Trace) -> dict[str, Any]:
    """Return the parameters of `Like` about arrivals: rates, pattern of a week, and bursts.

    Without two full hours only the start and whether dates are known.
    """
    submit = trace.numbers("submit_time_s")
    # Full hours only: an incomplete last hour would look quiet.
    hours = int(trace.span_s // HOUR_S)
    counts = np.bincount((submit // HOUR_S).astype(np.int64), minlength=hours + 1)
    counts, late = counts[:hours], int(counts[hours])
    start = pd.Timestamp(trace.epoch) if trace.epoch else None
    begins = 0.0 if start is None else start.weekday() * 24 + start.hour + start.minute / 60
    clock = (int(begins) + np.arange(hours)) % WEEK_H
    if hours < 2:
        return {"begins": round(begins, 1), "calendar": start is not None}
    score = _normal_scores(_mid_ranks(counts.astype(np.float64)))
    of_hour, of_day = np.zeros(24), np.zeros(7)
    if hours >= 48:
        of_hour = _centered_means(score, clock % 24, 24)
    rest = score - of_hour[clock % 24]
    if hours >= 2 * WEEK_H and start is not None:
        of_day = _centered_means(rest, clock // 24, 7)
    rest = rest - of_day[clock // 24]
    rates, shares = _hour_classes(counts)
    return {
        "begins": round(begins, 1),
        "calendar": start is not None,
        "hours": tuple(map(_round_score, of_hour.tolist())) if of_hour.any() else (),
        "weekdays": tuple(map(_round_score, of_day.tolist())) if of_day.any() else (),
        "noise": _round_score(float(rest.std())),
        "persistence": _lag_correlation(rest, np.ones(hours - 1, bool)),
        "rates": rates,
        "rate_shares": shares,
        "last": float(late) if late >= MIN_FIGURE_JOBS else 0.0,
        **_fit_bursts(
            np.diff(submit), counts[np.minimum(submit[:-1] // HOUR_S, hours - 1).astype(np.int64)]
        ),
    }


def _fit_bursts(gaps: Floats, of_hour: Ints) -> dict[str, Any]:
    """Return the share of jobs in bursts, and the mean gaps of equal parts of them.

    They are the parameters `together` and `gaps` of `Like`. A job is in a burst if its gap is far
    below an even spread over its hour.
    """
    limit_s = np.clip(_BURST_GAP_SHARE * HOUR_S / np.maximum(of_hour, 1), 1.0, MAX_BURST_GAP_S)
    short_gaps = np.sort(gaps[gaps < limit_s])
    parts = np.array_split(
        short_gaps, min(max(len(short_gaps) // MIN_FIGURE_JOBS, 1), MIN_FIGURE_JOBS)
    )
    return {
        "together": _round_digits(len(short_gaps) / len(gaps), 3),
        "gaps": tuple(_round_digits(float(part.mean()), 3) for part in parts if len(part))
        or (0.0,),
    }


def _centered_means(values: Floats, index: Ints, count: int) -> Floats:
    """Return the mean of values per index, relative to the overall mean of these means."""
    means = np.bincount(index, values, minlength=count) / np.maximum(
        np.bincount(index, minlength=count), 1
    )
    return np.asarray(means - means.mean(), np.float64)


def _hour_classes(counts: Ints) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean jobs per hour, and number of hours, of each class of hours by count.

    Small counts are separate classes; larger classes grow by the factor `_CLASS_RATIO`.
    """
    large = np.log(np.maximum(counts, _MAX_SINGLE_COUNT) / _MAX_SINGLE_COUNT) / math.log(
        _CLASS_RATIO
    )
    class_of = np.where(
        counts <= _MAX_SINGLE_COUNT, counts, _MAX_SINGLE_COUNT + np.ceil(large)
    ).astype(np.int64)
    _, class_index, hours = np.unique(class_of, return_inverse=True, return_counts=True)
    means = np.bincount(class_index, counts) / hours
    return (
        tuple(_round_digits(mean, _TIME_DIGITS) for mean in means.tolist()),
        tuple(hours.astype(float).tolist()),
    )


def _fit_users(
    trace: Trace, user: Ints, gpus: Floats, run_s: Floats, group: Ints
) -> dict[str, Any]:
    """Return the parameters of `Like` about users: shares, sizes, run times, and streaks.

    Without users in the trace there are no shares and scores, only the correlation of jobs.
    """
    size = _mid_ranks(gpus)
    time = np.empty(len(gpus))
    for index in np.unique(group):
        time[group == index] = _mid_ranks(run_s[group == index])
    counts = np.bincount(user)
    busy = _busy_users(counts)
    has_users = trace.has("user")
    other_jobs = counts.sum() - counts[busy].sum()
    (sizes, of_size), (times, of_time) = (
        _fit_user_scores(ranks, user, counts, busy) if has_users else ((), 1.0)
        for ranks in (size, time)
    )
    is_same_user = np.diff(user) == 0
    shares = counts / counts.sum()
    chance = float((shares**2).sum())
    streak = (
        (float(is_same_user.mean()) - chance) / (1 - chance) if has_users and chance < 1 else 0.0
    )
    return {
        "users": tuple(_round_digits(count, 3) for count in counts[busy].tolist())
        if has_users
        else (),
        "user_sizes": sizes,
        "user_times": times,
        "user_spread": (of_size, of_time),
        "others": int(len(counts) - len(busy)) if has_users else 0,
        "others_share": float(other_jobs) if has_users else 0.0,
        "streak": _round_digits(min(max(streak, 0.0), 0.999), 3),
        "alike": tuple(
            _user_persistence(ranks, user, busy, scores)
            for ranks, scores in ((size, sizes), (time, times))
        ),
    }


def _busy_users(counts: Ints) -> Ints:
    """Return the users described individually, busiest first.

    Up to `_MAX_BUSY_USERS` users with at least twice `MIN_FIGURE_JOBS` jobs.
    """
    order = np.argsort(-counts, kind="stable")
    return order[: int(np.count_nonzero(counts[order[:_MAX_BUSY_USERS]] >= 2 * MIN_FIGURE_JOBS))]


def _fit_user_scores(
    ranks: Floats, user: Ints, counts: Ints, busy: Ints
) -> tuple[tuple[float, ...], float]:
    """Return the score of each busy user, and the spread of single jobs around it.

    Scores are means of normal distributions that reproduce the mean rank of each user's jobs, given
    the distribution of all jobs.
    """
    mean_rank = np.bincount(user, ranks) / counts
    explained = float(mean_rank[user].var() / ranks.var()) if ranks.var() else 0.0
    spread = math.sqrt(max(_MIN_SPREAD, 1 - explained))
    mean, weight = mean_rank[busy], counts[busy] / counts.sum()
    cell = np.rint(ranks * _GRID_CELLS)
    values, jobs = np.unique(cell, return_counts=True)
    middles = np.bincount(np.searchsorted(values, cell), ranks) / jobs
    cumulative = np.cumsum(jobs)[:-1] / jobs.sum()
    grid = np.linspace(-2 * _MAX_SCORE, 2 * _MAX_SCORE, 16 * _GRID_CELLS + 1)
    below = np.array([_NORMAL.cdf(value / spread) for value in grid.tolist()])
    candidates = np.linspace(-_MAX_SCORE, _MAX_SCORE, 2 * _GRID_CELLS + 1)
    scores = np.zeros(len(busy))
    for _ in range(6):  # converges to two decimals
        mixed = (1 - weight.sum()) * below
        for value, part in zip(scores.tolist(), weight.tolist(), strict=True):
            mixed = mixed + part * np.interp(grid - value, grid, below)
        cuts = np.interp(cumulative, mixed, grid)
        cells = np.interp(cuts[None, :] - candidates[:, None], grid, below)
        scores = np.interp(
            mean, np.diff(cells, axis=1, prepend=0.0, append=1.0) @ middles, candidates
        )
    return tuple(map(_round_score, scores.tolist())), _round_score(spread)


def _user_persistence(ranks: Floats, user: Ints, busy: Ints, scores: tuple[float, ...]) -> float:
    """Return the correlation of a job's score with that of the user's previous job.

    Scores are normal scores of the ranks, less the given score of a busy user.
    """
    mean = np.zeros(int(user.max()) + 1)
    if scores:
        mean[busy] = scores
    order = np.argsort(user, kind="stable")
    residual = (_normal_scores(ranks) - mean[user])[order]
    return _lag_correlation(residual, np.diff(user[order]) == 0)


def _public_names(column: str) -> dict[str, str]:
    """Return plain name -> public name of known GPU types or models."""
    models = (model for profile in PROFILES.values() for model in profile.models or ())
    names = KNOWN_TYPES if column == "gpu_type" else (*EXAMPLES, *MODELS, *models)
    return {plain(name): name for name in names}


def _fit_choices(
    trace: Trace, column: str, group: Ints, groups: int
) -> tuple[list[str], list[str], tuple[float, ...]]:
    """Return the values of a column, their public labels, and job counts per group.

    The counts are flat, group by group. Models that are not public are numbered. GPU types that are
    not public, and counts below `MIN_FIGURE_JOBS`, are left out.
    """
    if not trace.has(column):
        return [], [], ()
    public, texts = _public_names(column), pd.Series(trace.texts(column)).astype("str")
    counts = texts[texts != ""].value_counts()
    names = [str(name) for name in counts.index[counts >= MIN_FIGURE_JOBS]][:_MAX_NAMES]
    if column == "gpu_type":
        names = [name for name in names if plain(name) in public]
    if not names:
        return [], [], ()
    labels = [public.get(plain(name), f"model {index + 1}") for index, name in enumerate(names)]
    table = pd.crosstab(group, texts).reindex(index=range(groups), columns=names, fill_value=0)
    counts_kept = table.where(table >= MIN_FIGURE_JOBS, 0).to_numpy(np.float64)
    return names, labels, tuple(counts_kept.ravel().tolist())


def _fit_batches(trace: Trace, models: list[str]) -> tuple[float, ...]:
    """Return the most frequent batch size of each model; 0 = fewer than `MIN_FIGURE_JOBS` jobs."""
    texts, batch = pd.Series(trace.texts("model")).astype("str"), trace.numbers("batch_size")
    sizes = []
    for model in models:
        values, jobs = np.unique(batch[(texts == model) & (batch > 0)], return_counts=True)
        largest = int(jobs.argmax()) if len(jobs) else -1
        sizes.append(
            float(values[largest]) if largest >= 0 and jobs[largest] >= MIN_FIGURE_JOBS else 0.0
        )
    return tuple(sizes)
