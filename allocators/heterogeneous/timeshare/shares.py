"""Shares of time for Gavel's objectives: fairness, makespan, throughput and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocators.heterogeneous.timeshare.frontier import FrontierMarket
from allocators.heterogeneous.timeshare.level import Goal, Start, fill, highest, is_full
from allocators.heterogeneous.timeshare.linear import LinearProgram, solve
from allocators.heterogeneous.timeshare.matching import fifo
from allocators.heterogeneous.timeshare.problem import (
    Floats,
    Problem,
    Shares,
    isolated_shares,
    normal_rates,
    per_job,
    progress,
    proportional,
    tidy,
)
from allocators.heterogeneous.timeshare.water_filling import water_filling

_INSIDE: Final = 1e-4  # relative reduction of the floors, so that the feasible set has an interior
# Tolerance of slack x price = 1; shares of time are then accurate to a third of a percent.
_CENTRED: Final = 0.01
_MAX_STEPS: Final = 60
_BOUNDARY: Final = 0.95  # largest part of the way to the nearest limit in one step
_CHEAP: Final = 0.1  # first prices are those of limits with at least this slack
_FEW: Final = 32  # up to so many jobs one dense matrix is faster than operations on columns

Balance = Callable[[Floats, Floats], Floats]
"""(slack per price, slack at price 0) of every limit -> prices of Newton's step."""


def analytic_center(market: FrontierMarket, floor: Floats, start: Floats) -> Floats:
    """Return the shares with the greatest product of all slacks and shares (analytic center).

    Parameters
    ----------
    market : FrontierMarket
        At least one job.
    floor : array (jobs,)
        Least relative throughputs, to within a ten-thousandth.
    start : array (jobs, types)
        Shares of time that meet the floor.

    Notes
    -----
    The primal-dual form of Newton's method: every limit has a price, and at the center the product
    of price and slack is 1. It takes a quarter of the steps of a purely primal ascent.

    Slacks add up: a job's shares of time and its idle time to 1; its loss on slower types or idle
    and its excess above the floor to 1 - floor; the GPUs of a type in use and its free GPUs to all
    of them. Prices follow from one price per such sum, the only unknowns of a step. Jobs are
    coupled by the GPUs of types only, so each job costs only a few operations.

    Upstream's solvers end near this point; a simplex method would end at a corner of the optimal
    set. If GPUs are left over, the two schedules differ by several percent in the mean completion
    time, and the center reproduces the published code.
    """
    rates = market.kinds.T[:, market.kind]
    runs = rates > 0
    x = _interior_point(market, runs, start.T)
    speed = np.add.reduce(rates * x) - floor * (1 - _INSIDE)
    left = np.concatenate((x[runs], 1 - np.add.reduce(x), speed, market.devices - x @ market.gangs))
    prices = 1.0 / np.maximum(left, _CHEAP)
    balance = (_dense_balance if len(floor) <= _FEW else _column_balance)(rates, runs, market.gangs)
    for _ in range(_MAX_STEPS):
        give, free = left / prices, 1.0 / prices
        new_prices = balance(give, free)
        more, dearer = free - give * new_prices, new_prices - prices
        length = _step_length(left, more)
        left = left + length * more
        prices = prices + _step_length(prices, dearer) * dearer
        if length == 1.0 and np.abs(left * prices - 1.0).max() < _CENTRED:
            break
    x[runs] = left[: np.count_nonzero(runs)]
    # Equal jobs must tie on every machine; digits beyond single precision are rounding errors.
    return x.T.astype(np.float32).astype(np.float64)


def _interior_point(market: FrontierMarket, runs: NDArray[np.bool_], x: Floats) -> Floats:
    """Return feasible shares moved inside by half of the slack, shape (types, jobs)."""
    more = runs * (np.maximum(1 - np.add.reduce(x), 0.0) / (len(x) + 1))
    gpus = np.maximum(market.devices - x @ market.gangs, 0.0)
    fits = 0.5 * gpus / np.maximum(more @ market.gangs, 0.5 * market.devices)
    little = runs * (np.minimum(1.0, market.devices / market.gangs.sum()) / len(x))[:, None]
    inside: Floats = (x + more * fits[:, None]) * (1 - _INSIDE / 2) + little * (_INSIDE / 4)
    return inside


def _step_length(values: Floats, change: Floats) -> float:
    """Return the part of a step, at most 1, after which all values are still positive."""
    return min(1.0, _BOUNDARY / max(_BOUNDARY, -float(np.minimum.reduce(change / values))))


def _dense_balance(rates: Floats, runs: NDArray[np.bool_], gangs: Floats) -> Balance:
    """Return a function that solves the price equations with one dense matrix."""
    # SciPy takes a quarter of a second to load, and only this function needs it.
    from scipy.linalg.lapack import dposv  # noqa: PLC0415

    types, jobs = rates.shape
    kind, job = np.nonzero(runs)
    share, every = np.arange(len(kind)), np.arange(jobs)
    sums = np.eye(2 * jobs + types, len(kind) + 2 * jobs + types, len(kind))
    sums[job, share] = 1.0
    sums[jobs + job, share] = 1.0 - rates[kind, job]
    sums[jobs + every, len(kind) + every] = 1.0
    sums[2 * jobs + kind, share] = gangs[job]

    def balance(give: Floats, free: Floats) -> Floats:
        """Return the prices of Newton's step; `give` and `free` have one number per slack."""
        prices: Floats = dposv((sums * give) @ sums.T, sums @ free)[1] @ sums
        return prices

    return balance


def _column_balance(rates: Floats, runs: NDArray[np.bool_], gangs: Floats) -> Balance:
    """Return a function that solves the price equations by elimination for all jobs at once.

    It eliminates the equations of time, then those of losses, and solves those of GPUs.
    """
    types, jobs = rates.shape
    used = np.vstack((runs, np.ones(jobs, dtype=bool)))  # idle time is one more type
    lost = np.vstack((1.0 - rates, np.ones(jobs)))
    ways = np.count_nonzero(used)

    def balance(give: Floats, free: Floats) -> Floats:
        """Return the prices of Newton's step; `give` and `free` have one number per slack."""
        time = np.zeros((2, *used.shape))
        time[:, used] = give[:ways], free[:ways]
        total = time.sum(axis=1)
        # Losses relative to a job's mean stay exact if it runs on one type all the time.
        apart = lost - (lost * time[0]).sum(axis=0) / total[0]
        moved = apart * time
        rows = np.empty((types + 1, 2, jobs))
        rows[:-1, 0], rows[:-1, 1] = gangs * time[0, :-1], gangs * moved[0, :-1]
        rows[-1] = total[1], free[ways:-types] + moved[1].sum(axis=0)
        scaled = (rows / (total[0], give[ways:-types] + (apart * moved[0]).sum(axis=0))).reshape(
            types + 1, 2 * jobs
        )
        taken = rows.reshape(types + 1, 2 * jobs) @ scaled.T
        coupled = np.diag(give[-types:] + rows[:-1, 0] @ gangs) - taken[:-1, :-1]
        of_gpus = np.linalg.solve(coupled, free[-types:] + time[1, :-1] @ gangs - taken[:-1, -1])
        of_time, of_speed = (scaled[-1] - of_gpus @ scaled[:-1]).reshape(2, jobs)
        of_ways = of_time + apart * of_speed
        of_ways[:-1] += of_gpus[:, None] * gangs
        return np.concatenate((of_ways[used], of_speed, of_gpus))

    return balance


NO_DEADLINES: Final = (
    "At times not all deadlines could be met; shares of time were then computed without any."
)
_GOOD: Final = 1e-4
_MIN_PERIOD_S, _MAX_PERIOD_S, _CLOSE = 100.0, 1e6, 1.05


def max_min(problem: Problem) -> Shares:
    """Return shares that maximize the least weighted throughput, relative to an equal share.

    Notes
    -----
    The value is the least ``gang * throughput / (weight * normal rate)``. A job that runs on no
    type gets nothing and does not count.
    """
    market = FrontierMarket.from_problem(problem)
    wanted = (per_job(problem, problem.weights) * normal_rates(problem) / problem.gangs)[
        market.jobs
    ]
    return _proportional_to(problem, market, wanted)


def makespan(problem: Problem, *, bisection: bool = False) -> Shares:
    """Return constant shares that minimize the end of the last active job.

    Parameters
    ----------
    problem : Problem
        Jobs and GPU types.
    bisection : bool
        Whether to return upstream's time, which its bisection from 100 s and 1e6 s finds to 5 %.

    Notes
    -----
    The value is that time in seconds. With the rate of completion 1/T as the level it is one
    program, not a sequence.
    """
    market = FrontierMarket.from_problem(problem)
    left = per_job(problem, problem.left)[market.jobs]
    if not left.any():
        return Shares(np.zeros(problem.rates.shape), 0.0)
    fastest = _proportional_to(
        problem, market, left, (lambda rate: 1.0 / _bisect_time(1.0 / rate)) if bisection else float
    )
    return fastest._replace(value=1.0 / fastest.value)


def finish_time_fairness(problem: Problem) -> Shares:
    """Return shares that minimize the largest ratio of completion time to that in isolation.

    Notes
    -----
    The value is the largest ``(age_s + left / throughput) / (isolated_s + left / isolated rate)``.
    Weights and jobs without work left do not count. No bisection is needed: the throughput for a
    ratio is a convex function of its inverse, which serves as the level. The start is
    `isolated_shares`, which is always feasible.
    """
    market = FrontierMarket.from_problem(problem)
    left, age_s, alone_s = (
        per_job(problem, column)[market.jobs]
        for column in (problem.left, problem.age_s, problem.isolated_s)
    )
    if not left.any():
        return Shares(np.zeros(problem.rates.shape), 0.0)
    counts, alone = left > 0, isolated_shares(problem).x
    start, rates = alone[market.jobs[:, None], market.types], progress(problem, alone)[market.jobs]
    whole_s = np.where(counts, alone_s + left / rates, 1.0)
    relative_left = left / market.fastest  # seconds on the fastest type

    def need(level: float) -> tuple[Floats, Floats]:
        """Return the throughputs for a level, and their derivatives."""
        # Cancellation may leave a nearly finished job no seconds: it needs full speed, not a
        # division by zero.
        left_s = (
            np.where(counts, np.maximum(whole_s / level - age_s, 1e-9), 1.0)
            if level > 0
            else np.full(len(left), inf)
        )
        needed = relative_left / left_s
        return needed, (
            needed * whole_s / left_s / level**2 if level > 0 else relative_left / whole_s
        )

    worst, best = (
        float(((age_s + left / rate) / whole_s)[counts].max()) for rate in (rates, market.fastest)
    )
    shares = _raise_level(
        problem, market, Goal(need, 1 / best, steep=True), Start(1 / worst, start)
    )
    return shares._replace(value=1 / shares.value)


def max_sum_throughput(problem: Problem) -> Shares:
    """Return shares that maximize the sum of iterations per second.

    Rates are not normalized, so models of many small iterations win.
    """
    market = FrontierMarket.from_problem(problem)
    if not len(market.jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    nothing = np.zeros((len(market.jobs), len(market.types)))
    mixture = fill(
        market,
        np.zeros(len(market.jobs)),
        market.fastest,
        nothing,
        market.usable_prices(problem.hint),
    )
    x = tidy(problem, market.to_problem(mixture.x))
    return Shares(x, float(progress(problem, x).sum()), hint=mixture.prices)


def cost(problem: Problem) -> Shares:
    """Return shares that maximize iterations per second, each over its type's price per hour.

    A linear approximation of throughput per dollar.
    """
    return max_sum_throughput(problem._replace(rates=problem.rates / problem.prices))


def cost_slo(problem: Problem) -> Shares:
    """Return shares as `cost`, but with every job fast enough for its deadline if possible.

    Notes
    -----
    If that is infeasible, no deadlines count, and a note says so. A missed deadline no longer
    counts. Jobs that run on no type have none.
    """
    values = problem.rates / problem.prices
    left, due_s = per_job(problem, problem.left), per_job(problem, problem.due_s)
    needed = np.zeros(len(left))
    np.divide(left, due_s, out=needed, where=due_s > 0)
    if not needed.any():
        return cost(problem)
    solution = solve(
        problem,
        LinearProgram(values / max(float(values.max(initial=0.0)), np.finfo(float).tiny), needed),
    )
    if solution is None:
        return cost(problem)._replace(note=NO_DEADLINES)
    return Shares(solution.x, float((values * solution.x).sum()))


OBJECTIVES: Final[Mapping[str, Callable[[Problem], Shares]]] = MappingProxyType(
    {
        "max_min": max_min,
        "finish_time_fairness": finish_time_fairness,
        "makespan": makespan,
        "max_sum_throughput": max_sum_throughput,
        "cost": cost,
        "cost_slo": cost_slo,
        "fifo": fifo,
        "isolated": isolated_shares,
        "proportional": proportional,
        "water_filling": water_filling,
    }
)
"""Objectives that need only the problem, by name. `fifo_any` and `allox` also need the types that
jobs hold.
"""


def _proportional_to(
    problem: Problem,
    market: FrontierMarket,
    wanted: Floats,
    content: Callable[[float], float] = float,
) -> Shares:
    """Return the shares of the highest level with throughputs of level x `wanted`.

    In iterations per second; `content` maps the highest level to the one to take.
    """
    if not len(market.jobs):
        return Shares(np.zeros(problem.rates.shape), inf)
    growth = wanted / market.fastest
    unit = 1.0 / float(growth.max())
    growth = growth * unit
    nothing = Start(0.0, np.zeros((len(market.jobs), len(market.types))))
    shares = _raise_level(
        problem,
        market,
        Goal(lambda level: (growth * level, growth), 1.0),
        nothing,
        lambda level: content(level * unit) / unit,
    )
    return shares._replace(value=shares.value * unit)


def _raise_level(
    problem: Problem,
    market: FrontierMarket,
    goal: Goal,
    start: Start,
    content: Callable[[float], float] = float,
) -> Shares:
    """Return the central shares of the highest level, or of the level that `content` returns."""
    mixture = highest(market, goal, start, market.usable_prices(problem.hint))
    level = content(mixture.level)
    x = mixture.x * (level / mixture.level)
    if not is_full(market, x):  # otherwise there is no choice
        x = analytic_center(market, np.minimum(goal.need(level)[0], 1.0), x)
    shares, gap = (
        Shares(tidy(problem, market.to_problem(x)), level, hint=mixture.prices),
        1 - mixture.level / mixture.bound,
    )
    return (
        shares
        if gap <= _GOOD
        else shares._replace(
            note=f"The search for the best shares was given up within {gap:.2g} of the optimum."
        )
    )


def _bisect_time(shortest_s: float) -> float:
    """Return the time at which upstream's bisection ends, given the shortest feasible time."""
    low, high, most, enough = _MIN_PERIOD_S, _MAX_PERIOD_S, _MAX_PERIOD_S, inf
    while enough == inf:
        while _CLOSE * low < high:
            middle = (low + high) / 2
            if middle >= shortest_s:
                high = enough = middle
            else:
                low = middle
        low, high, most = most, most * 10, most * 10
    return enough
