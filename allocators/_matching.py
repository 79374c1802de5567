"""AlloX: jobs of one GPU matched to places in the queues of GPUs, so that the sum of completion times is least."""

from __future__ import annotations

import numpy as np

from allocators._problem import Problem, per_job
from allocators._queues import WAITS, queue
from sim.contract import ContractError, Floats, Ints


def allox(problem: Problem, held: Ints, alpha: float = 1.0) -> Ints:
    """Return the type of every job: what it holds, else that of the GPU on which the best matching lets it go first.

    Parameters
    ----------
    problem : Problem
        Jobs present, all of one GPU; their `left` and `age_s` count.
    held : array (jobs,)
        Column of the type given before, `WAITS` for none; kept until the job is done.
    alpha : float
        Part of the waiting jobs, in order of arrival, that is looked at; never fewer than there are free GPUs.

    Raises
    ------
    ContractError
        If a job has more than one GPU.

    Notes
    -----
    A job that is the k-th from last on a GPU delays k jobs, itself included, by its run time there: that is what the place costs. GPUs of one type cost the
    same, and a place is only taken if those after it are, so that a type of g free GPUs has g places of every k up to jobs / g. Jobs that do not run on
    any type with a free GPU wait.
    """
    if (problem.gangs != 1).any():
        raise ContractError("AlloX matches jobs of one GPU; some here have more")
    at = held.copy()
    free = problem.devices - np.bincount(held[held != WAITS], minlength=len(problem.devices))
    types = np.flatnonzero(free > 0)
    waiting = np.array([job for job in queue(problem) if held[job] == WAITS], dtype=np.int64)
    waiting = waiting[: max(int(alpha * len(waiting)), int(free.sum()))]
    waiting = waiting[(problem.rates[np.ix_(waiting, types)] > 0).any(axis=1)]
    if not len(waiting):
        return at
    runs_s = np.full((len(waiting), len(types)), np.inf)
    rates = problem.rates[np.ix_(waiting, types)]
    np.divide(per_job(problem, problem.left)[waiting][:, None], rates, out=runs_s, where=rates > 0)
    kind, rank, gpu = _places(free[types], len(waiting))
    place = _matched(runs_s, kind, rank)
    for column in range(len(types)):
        here = np.flatnonzero(kind[place] == column)
        # The first to run on each GPU is the one with the most behind it.
        order = here[np.lexsort((-rank[place[here]], gpu[place[here]]))]
        firsts = np.unique(gpu[place[order]], return_index=True)[1]
        at[waiting[order[firsts]]] = types[column]
    return at


def _places(free: Ints, jobs: int) -> tuple[Ints, Ints, Ints]:
    """Return type, rank from the last and GPU of every place."""
    places = [(np.full(-(-jobs // gpus) * gpus, column), np.arange(-(-jobs // gpus) * gpus)) for column, gpus in enumerate(free.tolist())]
    kind, number = (np.concatenate(part) for part in zip(*places, strict=True))
    return kind, number // free[kind] + 1, number % free[kind]


def _matched(runs_s: Floats, kind: Ints, rank: Ints) -> Ints:
    """Return the place of every job."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    if runs_s.shape[1] == 1:  # the shortest goes first
        place = np.empty(len(runs_s), dtype=np.int64)
        place[np.argsort(-runs_s[:, 0], kind="stable")] = np.arange(len(runs_s))
        return place
    return np.asarray(linear_sum_assignment(runs_s[:, kind] * rank)[1])
