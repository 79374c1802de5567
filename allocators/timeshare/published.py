"""Objectives of Gavel as its published code hands them to its solver, and where that solver ends.

`allocators.timeshare.shares` finds the same optima. Where an optimum leaves a choice, it takes the centre of
the choice; these are the shares that upstream's solver takes, on which its figures hang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from allocators.timeshare import shares
from allocators.timeshare.interior import Columns, Cone, Rows, solve
from allocators.timeshare.problem import Floats, Ints, Problem, Shares, isolated, isolated_rates, normal_rates, per_job, progress, runs_somewhere, tidy

_IN_THE_CONE: Final = 2.0
"""``speed x wait >= 1`` is the cone ``|(speed - wait, 2)| <= speed + wait``."""


def max_min(problem: Problem) -> Shares:
    """Maximise a level that every job's weighted, normalised throughput reaches."""
    jobs = np.flatnonzero(runs_somewhere(problem) > 0)
    if not len(jobs):
        return Shares(np.zeros(problem.rates.shape), np.inf)
    scale = problem.gangs / per_job(problem, problem.weights)
    scale[jobs] /= normal_rates(problem)[jobs]
    worth = problem.rates * scale[:, None]
    rows, on_level, limit = _times(problem, jobs, 1, columns=0)
    types = problem.rates.shape[1]
    rows[:, -1, :types], on_level[:, -1] = -worth[jobs], 1.0
    cost = Columns(np.zeros(rows[:, 0].shape), -1.0)
    x = _answer(problem, jobs, Cone(rows, on_level, _taken(problem, jobs), cost, limit))
    return Shares(x, float((worth * x).sum(axis=1)[jobs].min()))


def max_sum_throughput(problem: Problem) -> Shares:
    """Maximise the sum of iterations per second."""
    jobs = np.flatnonzero(runs_somewhere(problem) > 0)
    if not len(jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    rows, on_level, limit = _times(problem, jobs, 0, columns=0)
    cost = Columns(-problem.rates[jobs], 0.0)
    x = _answer(problem, jobs, Cone(rows, on_level, _taken(problem, jobs), cost, limit))
    return Shares(x, float(progress(problem, x).sum()))


def cost(problem: Problem) -> Shares:
    """Maximise the sum of iterations per second, each divided by its type's price."""
    return max_sum_throughput(problem._replace(rates=problem.rates / problem.prices))


def finish_time_fairness(problem: Problem) -> Shares:
    """Minimise the largest ratio of completion time to that in isolation.

    Notes
    -----
    One more column per job stands for seconds per iteration, at least 1 / throughput. Of one job
    alone these are minimised themselves. Where the solver gives up, shares are those of isolation.
    """
    left, age_s, alone_s = (per_job(problem, values) for values in (problem.left, problem.age_s, problem.isolated_s))
    jobs = np.flatnonzero((runs_somewhere(problem) > 0) & (left > 0))
    if not len(jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    whole_s = alone_s[jobs] + left[jobs] / isolated_rates(problem)[jobs]
    types, several = problem.rates.shape[1], len(jobs) > 1
    rows, on_level, limit = _times(problem, jobs, 3 + several, columns=1)
    per_wait = left[jobs] / whole_s
    if several:
        rows[:, -4, types], on_level[:, -4] = per_wait, -1.0
        limit.own[:, -4] = -age_s[jobs] / whole_s
    for row, sign in ((-3, 1.0), (-2, -1.0)):
        rows[:, row, :types], rows[:, row, types] = -problem.rates[jobs], -sign
    limit.own[:, -1] = _IN_THE_CONE
    price = np.zeros((len(jobs), types + 1))
    price[:, types] = 0.0 if several else per_wait
    program = Cone(rows, on_level, _taken(problem, jobs), Columns(price, float(several)), limit, curved=True)
    x = _answer(problem, jobs, program)
    made = progress(problem, x)[jobs]
    if not (made > 0).all():
        x = isolated(problem).x
        made = progress(problem, x)[jobs]
    return Shares(x, float(((age_s[jobs] + left[jobs] / made) / whole_s).max()))


def makespan(problem: Problem) -> Shares:
    """Let all jobs be done within a time: the one at which upstream's bisection ends.

    Notes
    -----
    The program has nothing to optimise. Where its answer is lies on the solver's path alone.
    """
    left = per_job(problem, problem.left)
    within_s = shares.makespan(problem, bisection=True).value
    jobs = np.flatnonzero((runs_somewhere(problem) > 0) & (left > 0))
    if not len(jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    rows, on_level, limit = _times(problem, jobs, 1, columns=0)
    rows[:, -1] = -problem.rates[jobs]
    limit.own[:, -1] = -left[jobs] / within_s
    cost = Columns(np.zeros(rows[:, 0].shape), 0.0)
    x = _answer(problem, jobs, Cone(rows, on_level, _taken(problem, jobs), cost, limit))
    return Shares(x, within_s)


PUBLISHED: Final[Mapping[str, Callable[[Problem], Shares]]] = MappingProxyType(
    {
        "max_min": max_min,
        "finish_time_fairness": finish_time_fairness,
        "makespan": makespan,
        "max_sum_throughput": max_sum_throughput,
        "cost": cost,
    }
)
"""By objective; the others have one answer only, or are told apart in `allocators.gavel.objective`."""


def _times(problem: Problem, jobs: Ints, more: int, *, columns: int) -> tuple[Floats, Floats, Rows]:
    """Write down that shares are >= 0 and a job's at most 1 in all, with room for more rows."""
    count, types = len(jobs), problem.rates.shape[1]
    rows = np.zeros((count, types + 1 + more, types + columns))
    rows[:, range(types), range(types)] = -1.0
    rows[:, types, :types] = 1.0
    limit = np.zeros(rows.shape[:2])
    limit[:, types] = 1.0
    return rows, np.zeros(rows.shape[:2]), Rows(limit, problem.devices.astype(float))


def _taken(problem: Problem, jobs: Ints) -> Floats:
    gangs: Floats = problem.gangs[jobs].astype(np.float64)
    return np.tile(gangs.reshape(-1, 1), (1, problem.rates.shape[1]))


def _answer(problem: Problem, jobs: Ints, program: Cone) -> Floats:
    count, types = problem.rates.shape
    x = np.zeros((count, types))
    x[jobs] = solve(program)[:, :types]
    # Alike jobs are to tie whatever the machine: digits beyond single precision are noise.
    return tidy(problem, x.astype(np.float32).astype(np.float64))
