"""First in, first out on GPUs of several types: each job the fastest free type, or any."""

from __future__ import annotations

import numpy as np

from allocators._problem import Problem, Shares, per_job
from sim.contract import Floats, Ints

WAITS = -1
"""In place of a type: the job has none."""


def fifo(problem: Problem) -> Shares:
    """Give jobs, in order of arrival, the fastest type that still has GPUs for them, and stop at the first that fits nowhere.

    Notes
    -----
    The order is that of ages, then of rows. A job that fits nowhere even on the empty cluster is skipped, because it would block the queue for ever.
    """
    free, at = problem.devices.copy(), np.full(len(problem.rates), WAITS)
    for job in queue(problem):
        fits = _fits(problem, job, free)
        if not len(fits):
            break
        at[job] = fits[np.argmax(problem.rates[job, fits])]
        free[at[job]] -= problem.gangs[job]
    return Shares(whole(at, len(free)))


def fifo_any(problem: Problem, held: Ints, rng: np.random.Generator) -> Ints:
    """Return the type of every job: what it holds, else in order of arrival a uniformly random one among those that fit, up to the first job that fits on none.

    Parameters
    ----------
    problem : Problem
        Jobs present.
    held : array (jobs,)
        Column of the type given before, `WAITS` for none; kept until the job is done.
    rng : numpy.random.Generator
        One draw per job that starts.

    Notes
    -----
    Upstream draws a type but then assigns another one, and may run its count of free GPUs below zero; this is what it says it does.
    """
    at = held.copy()
    free = problem.devices - np.bincount(held[held != WAITS], problem.gangs[held != WAITS], minlength=len(problem.devices)).astype(np.int64)
    for job in queue(problem):
        if at[job] != WAITS:
            continue
        fits = _fits(problem, job, free)
        if not len(fits):
            break
        at[job] = fits[rng.integers(len(fits))]
        free[at[job]] -= problem.gangs[job]
    return at


def whole(at: Ints, types: int) -> Floats:
    """Return shares of time of jobs that have one type, or none, all the time."""
    x = np.zeros((len(at), types))
    has = np.flatnonzero(at != WAITS)
    x[has, at[has]] = 1.0
    return x


def queue(problem: Problem) -> list[int]:
    """List jobs in order of arrival, leaving out those that fit on no type of the empty cluster."""
    could = np.any((problem.rates > 0) & (problem.gangs[:, None] <= problem.devices), axis=1).tolist()
    return [job for job in np.argsort(-per_job(problem, problem.age_s), kind="stable").tolist() if could[job]]


def _fits(problem: Problem, job: int, free: Ints) -> Ints:
    return np.flatnonzero((problem.rates[job] > 0) & (free >= problem.gangs[job]))
