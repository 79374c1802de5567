"""Fair shares of time: max-min fairness of throughputs, finish-time fairness, and the shortest makespan, which is max-min fairness of what is left."""

from __future__ import annotations

from math import inf
from typing import Final

import numpy as np

from allocators._centre import centre
from allocators._frontier import Market
from allocators._level import Goal, Start, fill, highest, is_full
from allocators._problem import Hint, Problem, Shares, isolated, isolated_rates, normal_rates, per_job, tidy
from sim.contract import Floats

CENTRE, THROUGHPUT, LEAVE = "centre", "throughput", "leave"
SPARE: Final = (CENTRE, THROUGHPUT, LEAVE)
"""What to do where the objective leaves a choice. centre: of all shares that reach the optimum the analytic centre, as upstream's interior-point solvers do.
throughput: use what is left over where it adds most to the sum of normalised throughputs. leave: the cheapest shares that reach the optimum, no more."""
_GOOD: Final = 1e-4
_SHORTEST_S, _LONGEST_S, _CLOSE = 100.0, 1e6, 1.05


def max_min(problem: Problem, *, spare: str = CENTRE) -> Shares:
    """Maximise the least of all jobs' weighted throughputs, each relative to what the job would do with its proportional share.

    Parameters
    ----------
    problem : Problem
        What to share.
    spare : str
        What becomes of GPU time that is left over: one of `SPARE`.

    Notes
    -----
    The value is the least ``gang * throughput / (weight * normal rate)``. A job that runs nowhere gets nothing and does not count.
    """
    market = Market.of(problem)
    wanted = (per_job(problem, problem.weights) * normal_rates(problem) / problem.gangs)[market.jobs]
    return _proportional_to(problem, market, wanted, spare=spare)


def makespan(problem: Problem, *, spare: str = CENTRE, bisection: bool = False) -> Shares:
    """Minimise the time until the last of the jobs present is done, were the shares kept until then.

    Parameters
    ----------
    problem : Problem
        What to share.
    spare : str
        What becomes of GPU time that is left over: one of `SPARE`.
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
    found = _proportional_to(problem, market, left, spare=LEAVE if bisection else spare)
    shortest_s = 1.0 / found.value
    if not bisection:
        return found._replace(value=shortest_s)
    allowed_s = _bisected(shortest_s)
    start = Start(1.0 / allowed_s, found.x[np.ix_(market.jobs, market.types)] * (shortest_s / allowed_s))
    return _finished(problem, market, left / allowed_s / market.fastest, start, found.hint, spare=spare)._replace(value=allowed_s)


def finish_time_fairness(problem: Problem, *, spare: str = CENTRE) -> Shares:
    """Minimise the largest of all jobs' ratios of the time they will have taken to the time that they would have taken in isolation.

    Parameters
    ----------
    problem : Problem
        What to share.
    spare : str
        What becomes of GPU time that is left over: one of `SPARE`.

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
    counts = left > 0
    start, rates = isolated(problem).x[np.ix_(market.jobs, market.types)], isolated_rates(problem)[market.jobs]
    whole_s = np.where(counts, alone_s + left / rates, 1.0)
    relative_left = left / market.fastest  # seconds on the fastest type

    def need(level: float) -> tuple[Floats, Floats]:
        # A job that is all but done after a long time has no seconds left by cancellation: it needs everything, not a division by zero.
        left_s = np.where(counts, np.maximum(whole_s / level - age_s, 1e-9), 1.0) if level > 0 else np.full(len(left), inf)
        needed = relative_left / left_s
        return needed, needed * whole_s / left_s / level**2 if level > 0 else relative_left / whole_s

    worst, best = (float(((age_s + left / rate) / whole_s)[counts].max()) for rate in (rates, market.fastest))
    shares = raised(problem, market, Goal(need, 1 / best, steep=True), Start(1 / worst, start), spare)
    return shares._replace(value=1 / shares.value)


def raised(problem: Problem, market: Market, goal: Goal, start: Start, spare: str) -> Shares:
    """Return shares at the highest level; if all GPUs are needed for it, there is nothing to spare."""
    hint = _usable(problem.hint, market)
    found = highest(market, goal, start, hint.level)
    shares = _finished(problem, market, np.minimum(goal.need(found.level)[0], 1.0), Start(found.level, found.x), Hint(found.prices, hint.fill), spare=spare)
    gap = 1 - found.level / found.bound
    return shares if gap <= _GOOD else shares._replace(note=f"The search for the best shares was given up within {gap:.2g} of the optimum.")


def _proportional_to(problem: Problem, market: Market, wanted: Floats, *, spare: str) -> Shares:
    """Return shares of the highest level where throughputs are at least level x wanted, in iterations per second."""
    if not len(market.jobs):
        return Shares(np.zeros(problem.rates.shape), inf)
    growth = wanted / market.fastest
    unit = 1.0 / float(growth.max())
    growth = growth * unit
    nothing = Start(0.0, np.zeros((len(market.jobs), len(market.types))))
    shares = raised(problem, market, Goal(lambda level: (growth * level, growth), 1.0), nothing, spare)
    return shares._replace(value=shares.value * unit)


def _finished(problem: Problem, market: Market, floor: Floats, start: Start, hint: Hint | None, *, spare: str) -> Shares:
    x, prices = start.x, hint or Hint([], [])
    if spare != LEAVE and not is_full(market, x):
        if spare == CENTRE:
            x = centre(market, floor, x)
        else:
            filled = fill(market, floor, market.fastest / normal_rates(problem)[market.jobs], x, prices.fill)
            x, prices = filled.x, prices._replace(fill=filled.prices)
    return Shares(tidy(problem, market.whole(x)), start.level, hint=prices)


def _usable(hint: Hint | None, market: Market) -> Hint:
    if hint is None:
        return Hint([], [])
    return Hint(*([prices for prices in part if len(prices) == len(market.types)] for part in hint))


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
