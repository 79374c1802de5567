"""Generate a workload from a profile: arrivals, repeats, users, sizes, run times."""

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

# every block of jobs has the published mix, so that workloads of any length are equally hard
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
    """Generate a trace that resembles a real one; equal arguments give equal traces.

    Parameters
    ----------
    profile : str
        A key of `PROFILES`.
    jobs : int
        Number of jobs, at least 2.
    seed : int
        Random seed, 0 or above.
    cluster : Cluster, optional
        Cluster that the jobs are for; None = the profile's. It limits the sizes, and defines GPU
        types and load.
    load : float or None
        GPU-seconds requested / (GPUs of the cluster x time from first to last submission), within
        0.1 %. None = no scaling.
    days : float, optional
        Time from first to last submission. Default: follows from the load, or without a load from
        the published rate. With both, run times are stretched by one factor to reach the load.

    Returns
    -------
    Trace
        With user, VC, status, GPU type, time limit and, if the profile has them, models and batch
        sizes.

    Raises
    ------
    ParameterError
        If an argument is out of range, the cluster has no GPU, or the load cannot be reached.

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
    chosen, machines = _check_arguments(profile, jobs, seed, cluster, load, days)
    # One stream per purpose: a change to one part does not change the draws of other parts.
    user_rng, job_rng, time_rng, frame_rng = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)
    )
    cron = round(chosen.cron * jobs) if jobs >= BLOCK else 0
    jobs_drawn = _draw_jobs(chosen, jobs - cron, machines, user_rng, job_rng)
    jobs_drawn = _join_jobs(jobs_drawn, _cron_jobs(chosen, cron, machines, job_rng))
    span_s = _scale_times(jobs_drawn, chosen, machines, load, days)
    submit = np.concatenate(
        (
            draw_arrivals(chosen, jobs_drawn["repeat"][: jobs - cron], span_s, time_rng),
            cron_times(cron, span_s, time_rng),
        )
    )
    order = np.argsort(submit, kind="stable")
    jobs_drawn = {name: values[order] for name, values in jobs_drawn.items()}
    frame = _jobs_frame(chosen, jobs_drawn, submit[order], machines, frame_rng)
    return Trace.of(frame, name=f"{profile}-like, {jobs:,} jobs, seed {seed}", epoch=chosen.epoch)


def _check_arguments(
    profile: str,
    jobs: int,
    seed: int,
    cluster: Cluster | None,
    load: float | None,
    days: float | None,
) -> tuple[WorkloadProfile, Cluster]:
    """Return profile and cluster after checking all arguments."""
    if profile not in PROFILES:
        raise ParameterError(
            f"There is no profile '{profile}'. Choose one of {', '.join(PROFILES)}."
        )
    if jobs < 2:
        raise ParameterError(f"jobs = {jobs}, but a workload needs at least 2 jobs.")
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


def _draw_jobs(
    profile: WorkloadProfile,
    jobs: int,
    cluster: Cluster,
    user_rng: np.random.Generator,
    job_rng: np.random.Generator,
) -> Jobs:
    """Return all columns but the submissions, for the jobs of ordinary users.

    Columns are arrays of indices and numbers. A repeat (1 in `repeat`) copies user, GPUs and state
    of the last job that is no repeat, with a similar run time.
    """
    shares = np.arange(1, profile.users + 1) ** -profile.zipf
    user = user_rng.choice(profile.users, jobs, p=shares / shares.sum())
    habit_size, habit_time = user_rng.standard_normal((2, profile.users))
    gpus, group, effective = _draw_sizes(
        profile,
        _stratified_uniform(job_rng, habit_size[user] + job_rng.standard_normal(jobs)),
        cluster,
    )
    rank = _run_time_ranks(
        profile, group, effective, habit_time[user] + job_rng.standard_normal(jobs), job_rng
    )
    duration = quantile(profile.durations, rank, profile.cap_s)
    failed, cancelled = _state_chances(
        profile, rank * share_below(profile.durations, profile.cap_s)
    )
    state_draw = job_rng.random(jobs)
    state = np.where(state_draw < failed, 1, np.where(state_draw < failed + cancelled, 2, 0))
    repeat = job_rng.random(jobs) < profile.repeats
    repeat[[0, -1]] = False
    leader = np.maximum.accumulate(np.where(repeat, 0, np.arange(jobs)))
    log_noise = np.where(repeat, 0.1 * job_rng.standard_normal(jobs), 0.0)
    gpus, duration = gpus[leader], vary_run_times(duration[leader], log_noise, profile.cap_s)
    return {
        "user": user[leader],
        "gpus": gpus,
        "duration": duration,
        "state": state[leader],
        "type": _assign_gpu_types(gpus, duration, profile, cluster),
        "repeat": repeat.astype(np.int64),
    }


def _cron_jobs(
    profile: WorkloadProfile, jobs: int, cluster: Cluster, job_rng: np.random.Generator
) -> Jobs:
    """Return all columns but the submissions, for the jobs of a script that runs regularly.

    They have one GPU, run times near `CRON_RUN_S`, and a user of their own; all complete.
    """
    ones = np.ones(jobs, np.int64)
    duration = CRON_RUN_S * np.exp(0.3 * job_rng.standard_normal(jobs))
    return {
        "user": ones * profile.users,
        "gpus": ones,
        "duration": duration,
        "state": 0 * ones,
        "type": _assign_gpu_types(ones, duration, profile, cluster),
        "repeat": 0 * ones,
    }


def _join_jobs(first: Jobs, second: Jobs) -> Jobs:
    """Return two sets of jobs as one."""
    return {name: np.concatenate((values, second[name])) for name, values in first.items()}


def _stratified_uniform(rng: np.random.Generator, key: Floats) -> Floats:
    """Return uniform numbers in the order of `key`; every block covers 0 to 1 evenly."""
    full_length = len(key) // BLOCK * BLOCK
    parts = [
        part
        for part in (key[:full_length].reshape(-1, BLOCK), key[full_length:].reshape(1, -1))
        if part.size
    ]
    ranks = [np.argsort(np.argsort(part, axis=1), axis=1) for part in parts]
    uniform = [((rank + rng.random(rank.shape)) / rank.shape[1]).ravel() for rank in ranks]
    return np.concatenate(uniform) if uniform else np.empty(0)


def _draw_sizes(
    profile: WorkloadProfile, uniform: Floats, cluster: Cluster
) -> tuple[Ints, Ints, Floats]:
    """Return GPUs and size group of each job, and the effective group shares.

    Sizes above the largest share of a GPU type that the profile allows are left out.
    """
    rows = [
        (gpus, index, group.jobs * weight / sum(group.split.values()))
        for index, group in enumerate(profile.sizes)
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
    row_index = np.minimum(np.searchsorted(np.cumsum(shares), uniform, side="right"), len(rows) - 1)
    effective = np.bincount(groups, shares, minlength=len(profile.sizes))
    return values[row_index], groups[row_index], np.asarray(effective, np.float64)


def _run_time_ranks(
    profile: WorkloadProfile, group: Ints, shares: Floats, key: Floats, rng: np.random.Generator
) -> Floats:
    """Return the rank of each job's run time among all jobs, 0 to 1, given its size group."""
    shifts = _solve_shifts(
        profile.durations,
        tuple(_group_means(profile)),
        profile.cap_s,
        tuple(part.jobs for part in profile.sizes),
    )
    rank = np.empty(len(group))
    for index in np.unique(group):
        members = np.flatnonzero(group == index)
        within = np.clip(_stratified_uniform(rng, key[members]), 1e-9, 1 - 1e-9)
        rank[members] = _mixture_rank(
            np.log(within / (1 - within)) + shifts[index], np.array(shifts), shares
        )
    return rank


def _mixture_rank(score: Floats, shifts: Floats, shares: Floats) -> Floats:
    """Return the rank of a score, 0 to 1, in the mixture of all size groups."""
    total = np.zeros(len(score))
    for shift, share in zip(shifts, shares, strict=True):
        if share:
            total += share / (1 + np.exp(shift - score))
    return np.asarray(total / shares.sum(), np.float64)


def _group_means(profile: WorkloadProfile) -> list[float]:
    """Return the relative mean run time of each size group, from its published shares.

    Share of GPU time over share of jobs and mean GPUs.
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
def _solve_shifts(
    durations: tuple[tuple[float, float], ...],
    target_means: tuple[float, ...],
    cap_s: float,
    jobs: tuple[float, ...],
) -> tuple[float, ...]:
    """Return a score shift per size group that gives its mean run time.

    The mixture of all groups keeps the published distribution. The first shift is 0.
    """
    ranks = (np.arange(1000) + 0.5) / 1000
    logit = np.log(ranks / (1 - ranks))
    shares = np.array(jobs) / sum(jobs)
    target = np.array(target_means) / np.dot(shares, target_means)
    shifts = np.zeros(len(target_means))
    for _ in range(50):  # the error falls to 0.1 % within ten rounds
        means = np.array(
            [
                quantile(durations, _mixture_rank(logit + shift, shifts, shares), cap_s).mean()
                for shift in shifts
            ]
        )
        shifts += 0.7 * np.log(target / (means / np.dot(shares, means)))
    return tuple(shifts - shifts[0])


def _state_chances(profile: WorkloadProfile, rank: Floats) -> tuple[Floats, Floats]:
    """Return the chances of failure and cancellation at the rank of a run time."""
    ranks, failed, cancelled = np.array(profile.states).T
    return np.interp(rank, ranks, failed), np.interp(rank, ranks, cancelled)


def gpus_by_type(cluster: Cluster) -> dict[str, int]:
    """Return the number of GPUs of each type."""
    counts: dict[str, int] = {}
    for group in cluster.groups:
        if group.gpus:
            counts[group.gpu_type] = counts.get(group.gpu_type, 0) + group.gpus * group.count
    return counts


def _assign_gpu_types(
    gpus: Ints, duration: Floats, profile: WorkloadProfile, cluster: Cluster
) -> Ints:
    """Return the index of each job's GPU type: large enough, with the least work per GPU.

    The type with the most GPUs if none is large enough. Jobs are assigned in order.
    """
    counts = list(gpus_by_type(cluster).values())
    if len(counts) == 1:
        return np.zeros(len(gpus), np.int64)
    limits = [max(1, int(count * profile.largest_share)) for count in counts]
    biggest = counts.index(max(counts))
    chosen = np.empty(len(gpus), np.int64)
    work = [0.0] * len(counts)
    indices = range(len(counts))
    for job, (job_gpus, run_s) in enumerate(zip(gpus.tolist(), duration.tolist(), strict=True)):
        kind = min(
            (index for index in indices if limits[index] >= job_gpus),
            key=work.__getitem__,
            default=biggest,
        )
        work[kind] += job_gpus * run_s / counts[kind]
        chosen[job] = kind
    return chosen


def _scale_times(
    jobs: Jobs, profile: WorkloadProfile, cluster: Cluster, load: float | None, days: float | None
) -> float:
    """Return the time span in seconds for the load or days, and round the run times.

    Changes the run times in `jobs`. With both load and days, they are stretched first. With
    neither, the span follows from the published rate.
    """
    if load is not None and days is not None:
        span_s = max(1.0, round(days * DAY_S))
        jobs["duration"] = stretch_run_times(
            jobs["duration"],
            jobs["gpus"],
            load * cluster.gpus * span_s,
            profile.durations,
            profile.cap_s,
        )
        return span_s
    jobs["duration"] = np.maximum(np.rint(jobs["duration"]), 1)
    if load is not None:
        return max(
            1.0, round(float(np.dot(jobs["gpus"], jobs["duration"])) / (load * cluster.gpus))
        )
    return max(
        1.0, round((days if days is not None else len(jobs["gpus"]) / profile.jobs_per_day) * DAY_S)
    )


def _draw_limits(duration: Floats, rng: np.random.Generator) -> Floats:
    """Return a round time limit per job, at least its run time; NaN = no limit.

    A multiple of the run time is drawn and rounded up to the next of `LIMITS_S`; a share `NO_LIMIT`
    has none.
    """
    share, ratio = np.array(LIMIT_RATIO).T
    requested_s = duration / np.exp(np.interp(rng.random(len(duration)), share, np.log(ratio)))
    ladder = np.array(LIMITS_S, np.float64)
    limit = ladder[np.minimum(np.searchsorted(ladder, requested_s), len(ladder) - 1)]
    return np.where(rng.random(len(duration)) < NO_LIMIT, np.nan, limit)


def _jobs_frame(
    profile: WorkloadProfile, jobs: Jobs, submit: Floats, cluster: Cluster, rng: np.random.Generator
) -> pd.DataFrame:
    """Return the table of jobs with users, VCs, states, types and limits.

    Draws a VC per user and a limit per job; models and batch sizes if the profile has them.
    """
    job_count = len(submit)
    user = jobs["user"].astype(np.int64)
    weights = np.array(list(profile.vcs.values()), np.float64)
    home = rng.choice(len(weights), profile.users + 1, p=weights / weights.sum())
    width = len(str(profile.users))
    names = [f"u{number:0{width}d}" for number in range(1, profile.users + 1)] + ["cron"]
    columns: dict[str, object] = {
        "job_id": pd.RangeIndex(1, job_count + 1).astype("str"),
        "submit_time_s": submit,
        "num_gpus": jobs["gpus"],
        "duration_s": jobs["duration"],
        "status": pd.Categorical.from_codes(jobs["state"].astype(np.int8), pd.Index(STATES)),
        "user": pd.Categorical.from_codes(user.astype(np.int32), pd.Index(names)),
        "vc": pd.Categorical.from_codes(home[user].astype(np.int16), pd.Index(list(profile.vcs))),
        "gpu_type": pd.Categorical.from_codes(
            jobs["type"].astype(np.int8), pd.Index(list(gpus_by_type(cluster)))
        ),
        "time_limit_s": _draw_limits(np.asarray(jobs["duration"], np.float64), rng),
    }
    if profile.models:
        columns |= _draw_models(profile, jobs, rng)
    return pd.DataFrame(columns)


def _draw_models(
    profile: WorkloadProfile, jobs: Jobs, rng: np.random.Generator
) -> dict[str, object]:
    """Return model and batch size per job: mostly the user's favorite that fits its GPUs.

    Other jobs draw any model that fits. The batch size is drawn from those of the model.
    """
    assert profile.models
    names = list(profile.models)
    max_gpus = np.array([limit for _, limit in profile.models.values()])
    order = np.argsort(-max_gpus, kind="stable")
    usable = np.searchsorted(-max_gpus[order], -jobs["gpus"], side="right")
    favourite = rng.integers(0, 1 << 30, profile.users + 1)[jobs["user"].astype(np.int64)]
    choices = np.where(
        rng.random(len(usable)) < 0.6, favourite, rng.integers(0, 1 << 30, len(usable))
    )
    model = order[choices % np.maximum(usable, 1)]
    sizes = [np.array(batches) for batches, _ in profile.models.values()]
    draws = rng.integers(0, 1 << 30, len(model))
    batch = np.empty(len(model))
    for index, batches in enumerate(sizes):
        batch[model == index] = batches[draws[model == index] % len(batches)]
    return {
        "model": pd.Categorical.from_codes(model.astype(np.int8), pd.Index(names)),
        "batch_size": batch,
    }


def draw_arrivals(
    profile: WorkloadProfile, repeat: NDArray[np.int64], span_s: float, rng: np.random.Generator
) -> Floats:
    """Return submission times in whole seconds.

    Parameters
    ----------
    profile : WorkloadProfile
        Profile with hours, weekdays and noise.
    repeat : array of shape (jobs,)
        1 = the job is submitted in the same second as the previous job; first and last are 0.
    span_s : float, seconds
        Time of the last submission; the first is at second 0.
    rng : Generator

    Returns
    -------
    array of shape (jobs,), seconds
        In ascending order.
    """
    intensity = _hourly_intensity(profile, int(np.ceil(span_s / HOUR_S)), rng)
    edges = np.minimum(np.arange(len(intensity) + 1) * HOUR_S, span_s)
    mass = np.concatenate(([0.0], np.cumsum(intensity * np.diff(edges))))
    uniform = np.sort(rng.random(np.count_nonzero(repeat == 0)))
    uniform[0], uniform[-1] = 0.0, 1.0
    times = np.rint(np.interp(uniform * mass[-1], mass, edges))
    return np.asarray(times[np.cumsum(repeat == 0) - 1], np.float64)


def _hourly_intensity(profile: WorkloadProfile, hours: int, rng: np.random.Generator) -> Floats:
    """Return the relative submission rate of each hour.

    Hour of the day times lognormal noise, scaled to the weekday's mean within each day.
    """
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
    """Return submissions at fixed intervals over `span_s`, with a jitter of one second."""
    regular = np.arange(jobs) * (span_s / max(jobs, 1))
    return np.asarray(np.clip(np.rint(regular + rng.uniform(-1, 1, jobs)), 0, span_s), np.float64)


Table = tuple[tuple[float, float], ...]

# start of the share below the first point of a table (run times that logs round to 0 or 1 s)
MIN_RUN_S: Final = 0.25
# a stretch never moves this point of the table beyond the cap: it would leave too few jobs
MIN_POINT_S: Final = 16.0
ROUNDS: Final = 30


def share_below(table: Table, run_s: Floats | float) -> Floats:
    """Return the share of run times of at most `run_s`, 0 to 1.

    Interpolates the table over the logarithm of time.
    """
    seconds, percent = _table_points(table)
    return (
        np.asarray(np.interp(np.log(np.maximum(run_s, MIN_RUN_S)), seconds, percent), np.float64)
        / 100
    )


def quantile(table: Table, rank: Floats, cap_s: float) -> Floats:
    """Return run times in seconds at ranks (0 to 1) among jobs of at most `cap_s`."""
    seconds, percent = _table_points(table)
    return np.asarray(
        np.exp(np.interp(rank * (100 * share_below(table, cap_s)), percent, seconds)), np.float64
    )


def vary_run_times(run_s: Floats, log_step: Floats, cap_s: float) -> Floats:
    """Return run times changed by the factor exp(`log_step`), or its inverse above the cap."""
    step = np.where(run_s * np.exp(log_step) > cap_s, -np.abs(log_step), log_step)
    return np.asarray(run_s * np.exp(step), np.float64)


def stretch_run_times(
    run_s: Floats, gpus: NDArray[np.int64], target_gpu_s: float, table: Table, cap_s: float
) -> Floats:
    """Return run times stretched by one factor, below the cap, to reach a total GPU time.

    Parameters
    ----------
    run_s : array of shape (jobs,), seconds
        Run times, at most `cap_s`; each keeps its rank among the jobs below the cap.
    gpus : array of shape (jobs,)
    target_gpu_s : float, GPU-seconds
    table : cumulative distribution of (seconds, %)
        Distribution of `run_s`.
    cap_s : float, seconds

    Returns
    -------
    array of shape (jobs,), seconds
        Whole numbers from 1 to `cap_s`.

    Raises
    ------
    ParameterError
        If no factor comes within 1 % of `target_gpu_s`.
    """
    rank = share_below(table, run_s) / share_below(table, cap_s)
    low, high = -np.log(cap_s), np.log(cap_s / MIN_POINT_S)
    for _ in range(ROUNDS):
        factor = np.exp((low + high) / 2)
        candidate_s = np.clip(np.rint(factor * quantile(table, rank, cap_s / factor)), 1, cap_s)
        ratio = float(np.dot(gpus, candidate_s)) / target_gpu_s
        low, high = (np.log(factor), high) if ratio < 1 else (low, np.log(factor))
    if abs(ratio - 1) > 0.01:
        raise ParameterError(
            f"{len(candidate_s)} jobs in these days reach at most {ratio:.2g} times the load asked"
            " for. Change days, load, jobs or the cluster."
        )
    return np.asarray(candidate_s, np.float64)


def _table_points(table: Table) -> tuple[Floats, Floats]:
    """Return log seconds and percentages of a table, starting at 0 %."""
    seconds, percent = np.array(((MIN_RUN_S, 0.0), *table)).T
    return np.log(seconds), percent
