"""A look-alike workload, drawn from a profile with one seed: arrivals, repeats, users, sizes, and
run times below a cap.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.profiles import (
    DAY_S,
    HOUR_S,
    LIMIT_RATIO,
    LIMITS_S,
    NO_LIMIT,
    PROFILES,
    WorkloadProfile,
)
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Jobs = dict[str, NDArray[Any]]

# jobs that together hold the published mix, so that 10,000 and 1,000,000 jobs are equally hard
BLOCK: Final = 1000
STATES: Final = ("completed", "failed", "cancelled")
CRON_RUN_S: Final = (
    69.0  # median run time of the Philly VC 11cb48, whose script submits every 599-601 s
)


def generate(
    profile: str,
    *,
    jobs: int,
    seed: int,
    cluster: Cluster | None = None,
    load: float | None = 0.9,
    days: float | None = None,
) -> Trace:
    """Make a trace that looks like a real one; the same arguments give the same trace.

    Parameters
    ----------
    profile : str
        A key of `PROFILES`.
    jobs : int
        Number of jobs, at least 2.
    seed : int
        Seed of everything random, 0 or above.
    cluster : Cluster, optional
        The machines the jobs are for; None = the profile's. It bounds the sizes, names the GPU
        types and carries the load.
    load : float or None
        GPU-seconds asked for / (GPUs of the cluster x time from first to last submission); met to
        0.1 %. None = no scaling.
    days : float, optional
        Time from first to last submission. Without it the load decides; with neither, the published
        rate. With both, the distribution of run times is stretched by one factor so that the load
        is met within these days.

    Returns
    -------
    Trace
        With user, VC, status, GPU type, time limit and, where the profile names them, models and
        batch sizes.

    Raises
    ------
    ParameterError
        If an argument is out of range, the cluster has no GPU, or the load cannot be reached in
        these days.

    Notes
    -----
    Arrivals: hour of day x weekday x lognormal noise (lag-1 autocorrelation 0.5, scaled to mean 1
    within each day), repeats in the same second, one cron user. The variation within a day keeps
    its relative size when the rate is scaled. Run time given GPUs: ranks are coupled to the size by
    a shifted logistic so that the run times of all jobs keep the published distribution and each
    size its published share of GPU time. Ranks are stratified in blocks of 1,000 jobs. The
    published distribution is truncated at the `cap_s` of the profile: ranks are ranks among the
    jobs that are not longer, also after a stretch, and a repeat that would pass the cap is shorter
    than its leader instead of longer; no run time piles up at the cap.
    """
    chosen, machines = _checked(profile, jobs, seed, cluster, load, days)
    # Streams by purpose: a change to one part leaves the draws of the others alone.
    who, what, when, rest = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)
    )
    cron = round(chosen.cron * jobs) if jobs >= BLOCK else 0
    made = _draw(chosen, jobs - cron, machines, who, what)
    made = _append(made, _cron_jobs(chosen, cron, machines, what))
    span_s = _scale(made, chosen, machines, load, days)
    submit = np.concatenate(
        (
            arrivals(chosen, made["repeat"][: jobs - cron], span_s, when),
            cron_times(cron, span_s, when),
        )
    )
    order = np.argsort(submit, kind="stable")
    made = {name: values[order] for name, values in made.items()}
    frame = _frame(chosen, made, submit[order], machines, rest)
    return Trace.of(frame, name=f"{profile}-like, {jobs:,} jobs, seed {seed}", epoch=chosen.epoch)


def _checked(
    profile: str,
    jobs: int,
    seed: int,
    cluster: Cluster | None,
    load: float | None,
    days: float | None,
) -> tuple[WorkloadProfile, Cluster]:
    if profile not in PROFILES:
        raise ParameterError(
            f"There is no profile '{profile}'. Choose one of {', '.join(PROFILES)}."
        )
    if jobs < 2:
        raise ParameterError(f"jobs = {jobs}, but a workload has at least 2 jobs.")
    if seed < 0:
        raise ParameterError(f"seed = {seed}, but it must be 0 or above.")
    for name, value in (("load", load), ("days", days)):
        if value is not None and not 0 < value < np.inf:
            raise ParameterError(f"{name} = {value}, but it must be a finite number above 0.")
    machines = cluster or Cluster.parse(PROFILES[profile].cluster)
    if not machines.gpus:
        raise ParameterError(
            "The cluster has no GPUs, so no training job fits it. Add a row with GPUs."
        )
    return PROFILES[profile], machines


def _draw(
    profile: WorkloadProfile,
    jobs: int,
    cluster: Cluster,
    who: np.random.Generator,
    what: np.random.Generator,
) -> Jobs:
    """Draw everything but the times for the jobs of people."""
    shares = np.arange(1, profile.users + 1) ** -profile.zipf
    user = who.choice(profile.users, jobs, p=shares / shares.sum())
    habit_size, habit_time = who.standard_normal((2, profile.users))
    gpus, group, effective = _sizes(
        profile, _stratified(what, habit_size[user] + what.standard_normal(jobs)), cluster
    )
    rank = _ranks(profile, group, effective, habit_time[user] + what.standard_normal(jobs), what)
    duration = quantile(profile.durations, rank, profile.cap_s)
    failed, cancelled = _state_chances(
        profile, rank * share_below(profile.durations, profile.cap_s)
    )
    dice = what.random(jobs)
    state = np.where(dice < failed, 1, np.where(dice < failed + cancelled, 2, 0))
    repeat = what.random(jobs) < profile.repeats
    repeat[[0, -1]] = False
    leader = np.maximum.accumulate(np.where(repeat, 0, np.arange(jobs)))
    wobble = np.where(repeat, 0.1 * what.standard_normal(jobs), 0.0)
    gpus, duration = gpus[leader], repeated(duration[leader], wobble, profile.cap_s)
    return {
        "user": user[leader],
        "gpus": gpus,
        "duration": duration,
        "state": state[leader],
        "type": _types(gpus, duration, profile, cluster),
        "repeat": repeat.astype(np.int64),
    }


def _cron_jobs(
    profile: WorkloadProfile, jobs: int, cluster: Cluster, what: np.random.Generator
) -> Jobs:
    one = np.ones(jobs, np.int64)
    duration = CRON_RUN_S * np.exp(0.3 * what.standard_normal(jobs))
    return {
        "user": one * profile.users,
        "gpus": one,
        "duration": duration,
        "state": 0 * one,
        "type": _types(one, duration, profile, cluster),
        "repeat": 0 * one,
    }


def _append(first: Jobs, second: Jobs) -> Jobs:
    return {name: np.concatenate((values, second[name])) for name, values in first.items()}


def _stratified(rng: np.random.Generator, key: Floats) -> Floats:
    """Return uniform numbers in the order of `key` within each block, every block covering 0..1
    evenly.
    """
    whole = len(key) // BLOCK * BLOCK
    parts = [
        part for part in (key[:whole].reshape(-1, BLOCK), key[whole:].reshape(1, -1)) if part.size
    ]
    ranks = [np.argsort(np.argsort(part, axis=1), axis=1) for part in parts]
    even = [((rank + rng.random(rank.shape)) / rank.shape[1]).ravel() for rank in ranks]
    return np.concatenate(even) if even else np.empty(0)


def _sizes(
    profile: WorkloadProfile, uniform: Floats, cluster: Cluster
) -> tuple[Ints, Ints, Floats]:
    """Return GPUs and group of each job, and the groups' shares once jobs too big for the cluster
    are drawn again.
    """
    rows = [
        (gpus, at, group.jobs * weight / sum(group.split.values()))
        for at, group in enumerate(profile.sizes)
        for gpus, weight in group.split.items()
    ]
    limit = max(1, int(max(gpus_by_type(cluster).values()) * profile.largest_share))
    rows = [row for row in rows if row[0] <= limit]
    values, groups = (
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
    )
    shares = np.array([row[2] for row in rows])
    shares /= shares.sum()
    pick = np.minimum(np.searchsorted(np.cumsum(shares), uniform, side="right"), len(rows) - 1)
    effective = np.bincount(groups, shares, minlength=len(profile.sizes))
    return values[pick], groups[pick], np.asarray(effective, np.float64)


def _ranks(
    profile: WorkloadProfile, group: Ints, shares: Floats, key: Floats, rng: np.random.Generator
) -> Floats:
    """Return the rank of each job's run time among all jobs, 0..1, given the group of its size."""
    shifts = _shifts(
        profile.durations,
        tuple(_wanted(profile)),
        profile.cap_s,
        tuple(part.jobs for part in profile.sizes),
    )
    rank = np.empty(len(group))
    for at in np.unique(group):
        mine = np.flatnonzero(group == at)
        inner = np.clip(_stratified(rng, key[mine]), 1e-9, 1 - 1e-9)
        rank[mine] = _mixture(np.log(inner / (1 - inner)) + shifts[at], np.array(shifts), shares)
    return rank


def _mixture(score: Floats, shifts: Floats, shares: Floats) -> Floats:
    total = np.zeros(len(score))
    for shift, share in zip(shifts, shares, strict=True):
        if share:
            total += share / (1 + np.exp(shift - score))
    return np.asarray(total / shares.sum(), np.float64)


def _wanted(profile: WorkloadProfile) -> list[float]:
    """Return the mean run time of each size group, relative, from its shares of jobs and GPU
    time.
    """
    mean_gpus = [
        sum(gpus * weight for gpus, weight in group.split.items()) / sum(group.split.values())
        for group in profile.sizes
    ]
    return [
        group.gpu_time / group.jobs / mean
        for group, mean in zip(profile.sizes, mean_gpus, strict=True)
    ]


@lru_cache(maxsize=32)
def _shifts(
    durations: tuple[tuple[float, float], ...],
    wanted: tuple[float, ...],
    cap_s: float,
    jobs: tuple[float, ...],
) -> tuple[float, ...]:
    """Solve for the shift of each group that gives its wanted mean run time while the mixture keeps
    the published distribution.
    """
    inner = (np.arange(1000) + 0.5) / 1000
    logit = np.log(inner / (1 - inner))
    shares = np.array(jobs) / sum(jobs)
    aim = np.array(wanted) / np.dot(shares, wanted)
    shifts = np.zeros(len(wanted))
    for _ in range(50):  # the error falls to 0.1 % within ten rounds
        means = np.array(
            [
                quantile(durations, _mixture(logit + shift, shifts, shares), cap_s).mean()
                for shift in shifts
            ]
        )
        shifts += 0.7 * np.log(aim / (means / np.dot(shares, means)))
    return tuple(shifts - shifts[0])


def _state_chances(profile: WorkloadProfile, rank: Floats) -> tuple[Floats, Floats]:
    at, failed, cancelled = np.array(profile.states).T
    return np.interp(rank, at, failed), np.interp(rank, at, cancelled)


def gpus_by_type(cluster: Cluster) -> dict[str, int]:
    """Return the GPUs of each type."""
    found: dict[str, int] = {}
    for group in cluster.groups:
        if group.gpus:
            found[group.gpu_type] = found.get(group.gpu_type, 0) + group.gpus * group.count
    return found


def _types(gpus: Ints, duration: Floats, profile: WorkloadProfile, cluster: Cluster) -> Ints:
    """Return the type each job ran on: of those big enough for it the one with the least work per
    GPU so far, so that all carry the same load.
    """
    counts = list(gpus_by_type(cluster).values())
    if len(counts) == 1:
        return np.zeros(len(gpus), np.int64)
    limits = [max(1, int(count * profile.largest_share)) for count in counts]
    biggest = counts.index(max(counts))
    chosen = np.empty(len(gpus), np.int64)
    work = [0.0] * len(counts)
    every = range(len(counts))
    for job, (wanted, run_s) in enumerate(zip(gpus.tolist(), duration.tolist(), strict=True)):
        kind = min(
            (at for at in every if limits[at] >= wanted), key=work.__getitem__, default=biggest
        )
        work[kind] += wanted * run_s / counts[kind]
        chosen[job] = kind
    return chosen


def _scale(
    made: Jobs, profile: WorkloadProfile, cluster: Cluster, load: float | None, days: float | None
) -> float:
    """Fix the time from first to last submission and round the run times; with load and days both
    given, stretch them first. Returns seconds.
    """
    if load is not None and days is not None:
        span_s = max(1.0, round(days * DAY_S))
        made["duration"] = stretched(
            made["duration"],
            made["gpus"],
            load * cluster.gpus * span_s,
            profile.durations,
            profile.cap_s,
        )
        return span_s
    made["duration"] = np.maximum(np.rint(made["duration"]), 1)
    if load is not None:
        return max(
            1.0, round(float(np.dot(made["gpus"], made["duration"])) / (load * cluster.gpus))
        )
    return max(
        1.0, round((days if days is not None else len(made["gpus"]) / profile.jobs_per_day) * DAY_S)
    )


def _limits(duration: Floats, rng: np.random.Generator) -> Floats:
    """Return a round time limit for each job, not below its run time; NaN where the user gave
    none.
    """
    share, ratio = np.array(LIMIT_RATIO).T
    asked = duration / np.exp(np.interp(rng.random(len(duration)), share, np.log(ratio)))
    ladder = np.array(LIMITS_S, np.float64)
    limit = ladder[np.minimum(np.searchsorted(ladder, asked), len(ladder) - 1)]
    return np.where(rng.random(len(duration)) < NO_LIMIT, np.nan, limit)


def _frame(
    profile: WorkloadProfile, made: Jobs, submit: Floats, cluster: Cluster, rng: np.random.Generator
) -> pd.DataFrame:
    jobs = len(submit)
    user = made["user"].astype(np.int64)
    weights = np.array(list(profile.vcs.values()), np.float64)
    home = rng.choice(len(weights), profile.users + 1, p=weights / weights.sum())
    width = len(str(profile.users))
    names = [f"u{number:0{width}d}" for number in range(1, profile.users + 1)] + ["cron"]
    columns: dict[str, object] = {
        "job_id": pd.RangeIndex(1, jobs + 1).astype("str"),
        "submit_time_s": submit,
        "num_gpus": made["gpus"],
        "duration_s": made["duration"],
        "status": pd.Categorical.from_codes(made["state"].astype(np.int8), pd.Index(STATES)),
        "user": pd.Categorical.from_codes(user.astype(np.int32), pd.Index(names)),
        "vc": pd.Categorical.from_codes(home[user].astype(np.int16), pd.Index(list(profile.vcs))),
        "gpu_type": pd.Categorical.from_codes(
            made["type"].astype(np.int8), pd.Index(list(gpus_by_type(cluster)))
        ),
        "time_limit_s": _limits(np.asarray(made["duration"], np.float64), rng),
    }
    if profile.models:
        columns |= _models(profile, made, rng)
    return pd.DataFrame(columns)


def _models(profile: WorkloadProfile, made: Jobs, rng: np.random.Generator) -> dict[str, object]:
    """Give each job a model that runs on its number of GPUs: mostly its user's favourite."""
    assert profile.models
    names = list(profile.models)
    most = np.array([limit for _, limit in profile.models.values()])
    order = np.argsort(-most, kind="stable")
    usable = np.searchsorted(-most[order], -made["gpus"], side="right")
    favourite = rng.integers(0, 1 << 30, profile.users + 1)[made["user"].astype(np.int64)]
    drawn = np.where(
        rng.random(len(usable)) < 0.6, favourite, rng.integers(0, 1 << 30, len(usable))
    )
    model = order[drawn % np.maximum(usable, 1)]
    sizes = [np.array(batches) for batches, _ in profile.models.values()]
    dice = rng.integers(0, 1 << 30, len(model))
    batch = np.empty(len(model))
    for at, batches in enumerate(sizes):
        batch[model == at] = batches[dice[model == at] % len(batches)]
    return {
        "model": pd.Categorical.from_codes(model.astype(np.int8), pd.Index(names)),
        "batch_size": batch,
    }


def arrivals(
    profile: WorkloadProfile, repeat: NDArray[np.int64], span_s: float, rng: np.random.Generator
) -> Floats:
    """Draw submission times in whole seconds.

    Parameters
    ----------
    profile : WorkloadProfile
        Its hours, weekdays and noise.
    repeat : array of shape (jobs,)
        1 = the job is submitted in the second of the one before it; the first and the last are 0.
    span_s : float, seconds
        Time of the last submission; the first is at 0.
    rng : Generator

    Returns
    -------
    array of shape (jobs,), seconds
        In ascending order.
    """
    intensity = _intensity(profile, int(np.ceil(span_s / HOUR_S)), rng)
    edges = np.minimum(np.arange(len(intensity) + 1) * HOUR_S, span_s)
    mass = np.concatenate(([0.0], np.cumsum(intensity * np.diff(edges))))
    uniform = np.sort(rng.random(np.count_nonzero(repeat == 0)))
    uniform[0], uniform[-1] = 0.0, 1.0
    times = np.rint(np.interp(uniform * mass[-1], mass, edges))
    return np.asarray(times[np.cumsum(repeat == 0) - 1], np.float64)


def _intensity(profile: WorkloadProfile, hours: int, rng: np.random.Generator) -> Floats:
    """Return the relative rate of each hour."""
    length = -(-hours // 24) * 24
    noise = np.empty(length)
    level = 0.0
    for hour, step in enumerate(rng.standard_normal(length)):
        level = 0.5 * level + np.sqrt(0.75) * step
        noise[hour] = level
    clock = np.array(profile.hours) / np.mean(profile.hours)
    shape = np.exp(profile.noise * noise).reshape(-1, 24) * clock
    week = np.array(profile.weekdays) / np.mean(profile.weekdays)
    shape *= (week[np.arange(len(shape)) % 7] / shape.mean(axis=1))[:, None]
    return np.asarray(shape.ravel()[:hours], np.float64)


def cron_times(jobs: int, span_s: float, rng: np.random.Generator) -> Floats:
    """Return the submission times of a script that submits at fixed intervals, give or take a
    second, throughout `span_s`.
    """
    regular = np.arange(jobs) * (span_s / max(jobs, 1))
    return np.asarray(np.clip(np.rint(regular + rng.uniform(-1, 1, jobs)), 0, span_s), np.float64)


Table = tuple[tuple[float, float], ...]

# where the share below the first point of a table (run times that a log rounds to 0 or 1 s) begins
SHORTEST_S: Final = 0.25
# a stretch never moves this point of the table beyond the cap: below it the tables hold too few
# jobs
LEAST_POINT_S: Final = 16.0
ROUNDS: Final = 30


def share_below(table: Table, run_s: Floats | float) -> Floats:
    """Return the share of run times of at most `run_s`, 0..1, straight between the points of the
    table on a logarithmic axis of time.
    """
    seconds, percent = _points(table)
    return (
        np.asarray(np.interp(np.log(np.maximum(run_s, SHORTEST_S)), seconds, percent), np.float64)
        / 100
    )


def quantile(table: Table, rank: Floats, cap_s: float) -> Floats:
    """Return the run times in seconds at these ranks (0..1) among the jobs of at most `cap_s`."""
    seconds, percent = _points(table)
    return np.asarray(
        np.exp(np.interp(rank * (100 * share_below(table, cap_s)), percent, seconds)), np.float64
    )


def repeated(run_s: Floats, log_step: Floats, cap_s: float) -> Floats:
    """Return run times that differ from `run_s` by the factor exp(`log_step`); a step that would
    pass the cap goes the other way.
    """
    step = np.where(run_s * np.exp(log_step) > cap_s, -np.abs(log_step), log_step)
    return np.asarray(run_s * np.exp(step), np.float64)


def stretched(
    run_s: Floats, gpus: NDArray[np.int64], wanted_gpu_s: float, table: Table, cap_s: float
) -> Floats:
    """Stretch the whole distribution by one factor and cut it again at the cap, so that the jobs
    need `wanted_gpu_s` in all.

    Parameters
    ----------
    run_s : array of shape (jobs,), seconds
        At most `cap_s`. Each keeps its rank among the jobs below the cap.
    gpus : array of shape (jobs,)
    wanted_gpu_s : float, GPU-seconds
    table : cumulative distribution of (seconds, %)
        What `run_s` were drawn from.
    cap_s : float, seconds

    Returns
    -------
    array of shape (jobs,), seconds
        Whole numbers from 1 to `cap_s`.

    Raises
    ------
    ParameterError
        If no factor comes within 1 % of `wanted_gpu_s`.
    """
    rank = share_below(table, run_s) / share_below(table, cap_s)
    low, high = -np.log(cap_s), np.log(cap_s / LEAST_POINT_S)
    for _ in range(ROUNDS):
        factor = np.exp((low + high) / 2)
        tried = np.clip(np.rint(factor * quantile(table, rank, cap_s / factor)), 1, cap_s)
        reached = float(np.dot(gpus, tried)) / wanted_gpu_s
        low, high = (np.log(factor), high) if reached < 1 else (low, np.log(factor))
    if abs(reached - 1) > 0.01:
        raise ParameterError(
            f"{len(tried)} jobs in these days reach {reached:.2g} times the wanted load at most."
            " Change days, load, jobs or the cluster."
        )
    return np.asarray(tried, np.float64)


def _points(table: Table) -> tuple[Floats, Floats]:
    """Return the logarithms of the seconds and the percentages, from 0 % on."""
    seconds, percent = np.array(((SHORTEST_S, 0.0), *table)).T
    return np.log(seconds), percent
