"""Shares of time under the objectives of Gavel: fairness of throughputs or of finish times, the shortest makespan, and the greatest sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np

from allocators.timeshare.centre import centre
from allocators.timeshare.frontier import Market
from allocators.timeshare.level import Goal, Start, fill, highest, is_full
from allocators.timeshare.linear import Program, solve
from allocators.timeshare.matching import fifo
from allocators.timeshare.problem import Floats, Problem, Shares, isolated, normal_rates, per_job, progress, proportional, tidy
from allocators.timeshare.water import water_filling

NO_DEADLINES: Final = "At times not all deadlines could be met; shares of time were then computed without any."
_GOOD: Final = 1e-4
_SHORTEST_S, _LONGEST_S, _CLOSE = 100.0, 1e6, 1.05


def max_min(problem: Problem) -> Shares:
    """Maximise the least of all jobs' weighted throughputs, each relative to what the job would do with its proportional share.

    Notes
    -----
    The value is the least ``gang * throughput / (weight * normal rate)``. A job that runs nowhere gets nothing and does not count.
    """
    market = Market.of(problem)
    wanted = (per_job(problem, problem.weights) * normal_rates(problem) / problem.gangs)[market.jobs]
    return _proportional_to(problem, market, wanted)


def makespan(problem: Problem, *, bisection: bool = False) -> Shares:
    """Minimise the time until the last of the jobs present is done, were the shares kept until then.

    Parameters
    ----------
    problem : Problem
        What to share.
    bisection : bool
        Whether to stop at a time up to 5 % longer, the one at which upstream's bisection from 100 s and 1e6 s stops.

    Notes
    -----
    The value is that time in seconds. With the rate of completion 1/T as the level it is one program, not a sequence.
    """
    market = Market.of(problem)
    left = per_job(problem, problem.left)[market.jobs]
    if not left.any():
        return Shares(np.zeros(problem.rates.shape), 0.0)
    found = _proportional_to(problem, market, left, (lambda rate: 1.0 / _bisected(1.0 / rate)) if bisection else float)
    return found._replace(value=1.0 / found.value)


def finish_time_fairness(problem: Problem) -> Shares:
    """Minimise the largest of all jobs' ratios of the time they will have taken to the time that they would have taken in isolation.

    Notes
    -----
    The value is the largest ``(age_s + left / throughput) / (isolated_s + left / isolated rate)``. Weights do not count, nor do jobs with nothing left. No
    bisection is needed: the throughput that a ratio asks for is a convex function of its inverse, which so is a level like any other, and `isolated`, which
    can always be done, is where it starts.
    """
    market = Market.of(problem)
    left, age_s, alone_s = (per_job(problem, column)[market.jobs] for column in (problem.left, problem.age_s, problem.isolated_s))
    if not left.any():
        return Shares(np.zeros(problem.rates.shape), 0.0)
    counts, alone = left > 0, isolated(problem).x
    start, rates = alone[market.jobs[:, None], market.types], progress(problem, alone)[market.jobs]
    whole_s = np.where(counts, alone_s + left / rates, 1.0)
    relative_left = left / market.fastest  # seconds on the fastest type

    def need(level: float) -> tuple[Floats, Floats]:
        # A job that is all but done after a long time has no seconds left by cancellation: it needs everything, not a division by zero.
        left_s = np.where(counts, np.maximum(whole_s / level - age_s, 1e-9), 1.0) if level > 0 else np.full(len(left), inf)
        needed = relative_left / left_s
        return needed, needed * whole_s / left_s / level**2 if level > 0 else relative_left / whole_s

    worst, best = (float(((age_s + left / rate) / whole_s)[counts].max()) for rate in (rates, market.fastest))
    shares = _raised(problem, market, Goal(need, 1 / best, steep=True), Start(1 / worst, start))
    return shares._replace(value=1 / shares.value)


def max_sum_throughput(problem: Problem) -> Shares:
    """Maximise the sum of iterations per second. Nothing is normalised: models of many small iterations win."""
    market = Market.of(problem)
    if not len(market.jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    nothing = np.zeros((len(market.jobs), len(market.types)))
    found = fill(market, np.zeros(len(market.jobs)), market.fastest, nothing, _usable(problem, market))
    x = tidy(problem, market.whole(found.x))
    return Shares(x, float(progress(problem, x).sum()), hint=found.prices)


def cost(problem: Problem) -> Shares:
    """Maximise the sum of iterations per second, each divided by the hourly price of a GPU of the type: a linear stand-in for throughput per dollar."""
    return max_sum_throughput(problem._replace(rates=problem.rates / problem.prices))


def cost_slo(problem: Problem) -> Shares:
    """Do the same as `cost`, with every job fast enough for its deadline; if that cannot be, without any deadlines, and the note says so.

    Notes
    -----
    A deadline that has passed asks for nothing any more. Jobs that run nowhere have none.
    """
    values = problem.rates / problem.prices
    left, due_s = per_job(problem, problem.left), per_job(problem, problem.due_s)
    needed = np.zeros(len(left))
    np.divide(left, due_s, out=needed, where=due_s > 0)
    if not needed.any():
        return cost(problem)
    found = solve(problem, Program(values / max(float(values.max(initial=0.0)), np.finfo(float).tiny), needed))
    if found is None:
        return cost(problem)._replace(note=NO_DEADLINES)
    return Shares(found.x, float((values * found.x).sum()))


OBJECTIVES: Final[Mapping[str, Callable[[Problem], Shares]]] = MappingProxyType(
    {
        "max_min": max_min,
        "finish_time_fairness": finish_time_fairness,
        "makespan": makespan,
        "max_sum_throughput": max_sum_throughput,
        "cost": cost,
        "cost_slo": cost_slo,
        "fifo": fifo,
        "isolated": isolated,
        "proportional": proportional,
        "water_filling": water_filling,
    }
)
"""Objectives that the problem is enough for, by name. `fifo_any` and `allox` also need to know who holds what."""


def _proportional_to(problem: Problem, market: Market, wanted: Floats, content: Callable[[float], float] = float) -> Shares:
    """Return shares of the highest level where throughputs are at least level x wanted, in iterations per second; `content` says with which part of it."""
    if not len(market.jobs):
        return Shares(np.zeros(problem.rates.shape), inf)
    growth = wanted / market.fastest
    unit = 1.0 / float(growth.max())
    growth = growth * unit
    nothing = Start(0.0, np.zeros((len(market.jobs), len(market.types))))
    shares = _raised(problem, market, Goal(lambda level: (growth * level, growth), 1.0), nothing, lambda level: content(level * unit) / unit)
    return shares._replace(value=shares.value * unit)


def _raised(problem: Problem, market: Market, goal: Goal, start: Start, content: Callable[[float], float] = float) -> Shares:
    """Return shares of the highest level, or one to be content with instead: of all that reach it the centre, as upstream's interior-point solvers do."""
    found = highest(market, goal, start, _usable(problem, market))
    level = content(found.level)
    x = found.x * (level / found.level)
    if not is_full(market, x):  # otherwise there is no choice
        x = centre(market, np.minimum(goal.need(level)[0], 1.0), x)
    shares, gap = Shares(tidy(problem, market.whole(x)), level, hint=found.prices), 1 - found.level / found.bound
    return shares if gap <= _GOOD else shares._replace(note=f"The search for the best shares was given up within {gap:.2g} of the optimum.")


def _usable(problem: Problem, market: Market) -> list[Floats]:
    return [prices for prices in problem.hint or () if len(prices) == len(market.types)]


def _bisected(shortest_s: float) -> float:
    """Return the time at which upstream's bisection ends: the same midpoints, with the question whether a time is enough answered by the shortest one."""
    low, high, most, enough = _SHORTEST_S, _LONGEST_S, _LONGEST_S, inf
    while enough == inf:
        while _CLOSE * low < high:
            middle = (low + high) / 2
            if middle >= shortest_s:
                high = enough = middle
            else:
                low = middle
        low, high, most = most, most * 10, most * 10
    return enough
