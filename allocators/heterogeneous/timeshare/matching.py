"""Whole GPUs instead of shares of time: FIFO on several GPU types, and AlloX matching."""

from __future__ import annotations

from typing import Final

import numpy as np

from allocators.heterogeneous.timeshare.problem import (
    Floats,
    Ints,
    NoSharesError,
    Problem,
    Shares,
    per_job,
)

_STEPS: Final = 40
_SPARE: Final = 2
WAITS = -1
"""Marks a waiting job, in place of the column of its type."""


def fifo(problem: Problem) -> Shares:
    """Give jobs in order of arrival the fastest type with enough GPUs, until one does not fit.

    Returns a share of 1 on that type; 0 for jobs that wait.

    Notes
    -----
    The order is by age, then by row. A job that does not fit the empty cluster is skipped, because
    it would block the queue forever. A job that cannot run on any type with enough GPUs waits but
    lets others pass, as upstream does: blocking GPUs that it cannot use would help no job.
    """
    free, at = problem.devices.copy(), np.full(len(problem.rates), WAITS)
    for job in arrival_order(problem):
        fits = np.flatnonzero(free >= problem.gangs[job])
        if not len(fits):
            break
        best = fits[np.argmax(problem.rates[job, fits])]
        if problem.rates[job, best] > 0:
            at[job] = best
            free[best] -= problem.gangs[job]
    return Shares(whole_shares(at, len(free)))


def fifo_any(problem: Problem, held: Ints, rng: np.random.Generator) -> Ints:
    """Return each job's type: its present one, or in order of arrival a random one that fits.

    It stops at the first job that fits on no type.

    Parameters
    ----------
    problem : Problem
        The active jobs.
    held : array (jobs,)
        Column of the type assigned before, `WAITS` for none; kept until the job ends.
    rng : numpy.random.Generator
        One draw per job that starts.

    Notes
    -----
    Upstream draws a type but then assigns another one, and its count of free GPUs may fall below
    zero; this follows its documentation.
    """
    at = held.copy()
    free = problem.devices - np.bincount(
        held[held != WAITS], problem.gangs[held != WAITS], minlength=len(problem.devices)
    ).astype(np.int64)
    for job in arrival_order(problem):
        if at[job] != WAITS:
            continue
        fits = _fitting_types(problem, job, free)
        if not len(fits):
            break
        at[job] = fits[rng.integers(len(fits))]
        free[at[job]] -= problem.gangs[job]
    return at


def whole_shares(at: Ints, types: int) -> Floats:
    """Return shares of time, 1 on the given type column of each job; 0 for jobs that wait."""
    x = np.zeros((len(at), types))
    has = np.flatnonzero(at != WAITS)
    x[has, at[has]] = 1.0
    return x


def arrival_order(problem: Problem) -> list[int]:
    """Return the rows of jobs in order of arrival, without jobs that fit no type when empty."""
    could = np.any(
        (problem.rates > 0) & (problem.gangs[:, None] <= problem.devices), axis=1
    ).tolist()
    return [
        job
        for job in np.argsort(-per_job(problem, problem.age_s), kind="stable").tolist()
        if could[job]
    ]


def _fitting_types(problem: Problem, job: int, free: Ints) -> Ints:
    """Return the columns of types on which a job runs and enough GPUs are free."""
    return np.flatnonzero((problem.rates[job] > 0) & (free >= problem.gangs[job]))


def allox(problem: Problem, held: Ints, alpha: float = 1.0) -> Ints:
    """Return each job's type: its present one, or that of the best matching of jobs to GPUs.

    Parameters
    ----------
    problem : Problem
        The active jobs, all of one GPU, with `left` and `age_s`.
    held : array (jobs,)
        Column of the type assigned before, `WAITS` for none; kept until the job ends.
    alpha : float
        Part of the waiting jobs, in order of arrival, that is matched; at least as many as there
        are free GPUs.

    Raises
    ------
    NoSharesError
        If a job has more than one GPU.

    Notes
    -----
    A job that is the k-th from last on a GPU delays k jobs, itself included, by its run time there:
    this is the cost of the place. Only the first job on each free GPU starts. Jobs that do not run
    on any type with a free GPU wait.
    """
    if (problem.gangs != 1).any():
        raise NoSharesError("AlloX matches jobs of one GPU; some here have more")
    at = held.copy()
    free = problem.devices - np.bincount(held[held != WAITS], minlength=len(problem.devices))
    types = np.flatnonzero(free > 0)
    waiting = np.array(
        [job for job in arrival_order(problem) if held[job] == WAITS], dtype=np.int64
    )
    waiting = waiting[: max(int(alpha * len(waiting)), int(free.sum()))]
    waiting = waiting[(problem.rates[np.ix_(waiting, types)] > 0).any(axis=1)]
    if not len(waiting):
        return at
    runs_s = np.full((len(waiting), len(types)), np.inf)
    rates = problem.rates[np.ix_(waiting, types)]
    np.divide(per_job(problem, problem.left)[waiting][:, None], rates, out=runs_s, where=rates > 0)
    column, rank, gpu = _match_jobs(runs_s, free[types])
    for chosen in range(len(types)):
        here = np.flatnonzero(column == chosen)
        # The first job on each GPU is the one with the highest rank from the last.
        order = here[np.lexsort((-rank[here], gpu[here]))]
        firsts = np.unique(gpu[order], return_index=True)[1]
        at[waiting[order[firsts]]] = types[chosen]
    return at


def _match_jobs(runs_s: Floats, gpus: Ints) -> tuple[Ints, Ints, Ints]:
    """Return column, rank from the last and GPU of every job in a matching of least cost.

    Notes
    -----
    Scipy's algorithm is fast if nearly every job finds a place of its own among the cheapest. So
    the relaxed problem is solved first: its masses tell how many places are needed, and its prices
    are added to the costs of places. Dummy jobs without costs fill all places, so that this does
    not change the result. If the last rank of a type is used, more places are tried; otherwise more
    could not help, because a place of higher rank costs every job more.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    jobs, types = runs_s.shape
    if types == 1:  # the shortest job goes first
        number = np.empty(jobs, dtype=np.int64)
        number[np.argsort(-runs_s[:, 0], kind="stable")] = np.arange(jobs)
        return np.zeros(jobs, dtype=np.int64), number // gpus[0] + 1, number % gpus[0]
    most = -(-jobs // gpus)
    ranks, pushed = _relax_matching(runs_s, gpus)
    enough = np.minimum(np.ceil(ranks[-1]).astype(np.int64) + _SPARE, most)
    while True:
        column, rank, gpu = (
            np.concatenate(part)
            for part in zip(
                *map(_places, range(types), gpus.tolist(), enough.tolist()), strict=True
            )
        )
        price = np.concatenate(
            [np.interp(rank[column == it], ranks[:, it], pushed[:, it]) for it in range(types)]
        )
        costs = np.tile(price, (len(column), 1))
        costs[:jobs] += runs_s[:, column] * rank
        place = linear_sum_assignment(costs)[1][:jobs]
        lacks = np.array(
            [(rank[place[column[place] == it]] == enough[it]).any() for it in range(types)]
        ) & (enough < most)
        if not lacks.any():
            return column[place], rank[place], gpu[place]
        enough = np.where(lacks, np.minimum(enough + enough // 4 + _SPARE, most), enough)


def _places(column: int, gpus: int, ranks: int) -> tuple[Ints, Ints, Ints]:
    """Return column, rank from the last and GPU of all places of a type."""
    number = np.arange(gpus * ranks)
    return np.full(len(number), column), number // gpus + 1, number % gpus


def _relax_matching(runs_s: Floats, gpus: Ints) -> tuple[Floats, Floats]:
    """Return fractional ranks of jobs on each type, and the run time of jobs they delay.

    Rows are in order from the longest to the shortest job.

    Notes
    -----
    Jobs may be divided among types: a convex program, solved approximately by the Frank-Wolfe
    method. A job costs its rank x run time, and delays all shorter ones.
    """
    jobs, types = runs_s.shape
    runs = np.isfinite(runs_s)
    finite_s = np.where(runs, runs_s, 0.0)
    order = np.argsort(-finite_s, axis=0, kind="stable")
    sorted_s, every = np.take_along_axis(finite_s, order, 0), np.arange(jobs)
    part = runs / runs.sum(axis=1, keepdims=True)
    costs = np.empty((jobs, types))
    for step in range(_STEPS):
        rank, pushed = _ranks_and_delays(part, order, sorted_s, gpus)
        np.put_along_axis(costs, order, sorted_s * rank + pushed, 0)
        best = np.where(runs, costs, np.inf).argmin(axis=1)
        part *= 1 - 2 / (step + 2)
        part[every, best] += 2 / (step + 2)
    return _ranks_and_delays(part, order, sorted_s, gpus)


def _ranks_and_delays(
    part: Floats, order: Ints, sorted_s: Floats, gpus: Ints
) -> tuple[Floats, Floats]:
    """Return the ranks of divided jobs on each type, and the total run time of higher ranks."""
    mass = np.take_along_axis(part, order, 0) / gpus
    pushed = np.cumsum(mass * sorted_s, axis=0)
    return np.cumsum(mass, axis=0), pushed[-1] - pushed
