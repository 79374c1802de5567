"""Shares of time under the objectives of Gavel: fairness of throughputs or of finish times, the
shortest makespan, and the greatest sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from allocators.heterogeneous.timeshare.frontier import FrontierMarket
from allocators.heterogeneous.timeshare.level import Goal, Start, fill, highest, is_full
from allocators.heterogeneous.timeshare.linear import LinearProgram, solve
from allocators.heterogeneous.timeshare.matching import fifo
from allocators.heterogeneous.timeshare.problem import (
    Floats,
    Problem,
    Shares,
    isolated,
    normal_rates,
    per_job,
    progress,
    proportional,
    tidy,
)
from allocators.heterogeneous.timeshare.water import water_filling

_INSIDE: Final = (
    1e-4  # how far, relatively, floors that are met exactly are lowered, so that there is an inside
)
# of what a limit leaves x its price to 1; shares of time are then right to a third of a per cent
_CENTRED: Final = 0.01
_MOST_STEPS: Final = 60
_BOUNDARY: Final = 0.95  # part of the way to the nearest limit that a step goes at most
_CHEAP: Final = 0.1  # first prices are those of limits that leave as much, or more
_FEW: Final = (
    32  # jobs up to which one dense matrix takes less time than some forty operations on columns
)

Balance = Callable[[Floats, Floats], Floats]
"""From what one more of its price takes off what a limit leaves, and what it would leave for
nothing, to the prices that Newton's step leads to.
"""


def centre(market: FrontierMarket, floor: Floats, start: Floats) -> Floats:
    """Return the shares of time that are farthest from all limits at once: of the greatest product
    of all slacks and shares.

    Parameters
    ----------
    market : FrontierMarket
        At least one job.
    floor : array (jobs,)
        Relative throughputs that must be kept, but for a ten-thousandth.
    start : array (jobs, types)
        Shares of time that keep the floor.

    Notes
    -----
    The primal-dual form of Newton's method: every limit has a price, and at the centre its product
    with what the limit leaves is 1. Prices that must soar do so at once, which takes a quarter of
    the steps that climbing the product alone does.

    What limits leave adds up: a job's shares of time and its idle time to 1; what it loses on
    slower types or idle and what it has above its floor to 1 - floor; what jobs hold of a type and
    its free GPUs to all of them. Prices add up the same way, each from one price per such sum, and
    those are the only unknowns of a step. Jobs are coupled by the GPUs of types only, so that many
    jobs cost no more than some operations each.

    Upstream's solvers end near this point, ours would at a corner of the choice: where GPUs are
    left over the two make schedules that differ by several per cent in the average completion time,
    and the centre is the one that reproduces the published code.
    """
    rates = market.kinds.T[:, market.kind]
    runs = rates > 0
    x = _inside(market, runs, start.T)
    speed = np.add.reduce(rates * x) - floor * (1 - _INSIDE)
    left = np.concatenate((x[runs], 1 - np.add.reduce(x), speed, market.devices - x @ market.gangs))
    prices = 1.0 / np.maximum(left, _CHEAP)
    balance = (_dense if len(floor) <= _FEW else _by_columns)(rates, runs, market.gangs)
    for _ in range(_MOST_STEPS):
        give, free = left / prices, 1.0 / prices
        asked = balance(give, free)
        more, dearer = free - give * asked, asked - prices
        length = _length(left, more)
        left = left + length * more
        prices = prices + _length(prices, dearer) * dearer
        if length == 1.0 and np.abs(left * prices - 1.0).max() < _CENTRED:
            break
    x[runs] = left[: np.count_nonzero(runs)]
    # Alike jobs are to tie whatever the machine: digits beyond those of single precision are
    # rounding errors.
    return x.T.astype(np.float32).astype(np.float64)


def _inside(market: FrontierMarket, runs: NDArray[np.bool_], x: Floats) -> Floats:
    """Move shares that keep the limits to where they keep them all with something to spare, using
    up half of what is left; array (types, jobs).
    """
    more = runs * (np.maximum(1 - np.add.reduce(x), 0.0) / (len(x) + 1))
    gpus = np.maximum(market.devices - x @ market.gangs, 0.0)
    fits = 0.5 * gpus / np.maximum(more @ market.gangs, 0.5 * market.devices)
    little = runs * (np.minimum(1.0, market.devices / market.gangs.sum()) / len(x))[:, None]
    inside: Floats = (x + more * fits[:, None]) * (1 - _INSIDE / 2) + little * (_INSIDE / 4)
    return inside


def _length(values: Floats, change: Floats) -> float:
    """Return the part of a step after which all values are still positive."""
    return min(1.0, _BOUNDARY / max(_BOUNDARY, -float(np.minimum.reduce(change / values))))


def _dense(rates: Floats, runs: NDArray[np.bool_], gangs: Floats) -> Balance:
    """Write down which limits are in which sum, one sum a row."""
    types, jobs = rates.shape
    kind, job = np.nonzero(runs)
    share, every = np.arange(len(kind)), np.arange(jobs)
    sums = np.eye(2 * jobs + types, len(kind) + 2 * jobs + types, len(kind))
    sums[job, share] = 1.0
    sums[jobs + job, share] = 1.0 - rates[kind, job]
    sums[jobs + every, len(kind) + every] = 1.0
    sums[2 * jobs + kind, share] = gangs[job]

    def balance(give: Floats, free: Floats) -> Floats:
        asked: Floats = dposv((sums * give) @ sums.T, sums @ free)[1] @ sums
        return asked

    return balance


def _by_columns(rates: Floats, runs: NDArray[np.bool_], gangs: Floats) -> Balance:
    """Solve the same equations sum by sum, for all jobs at once: first those of time, then those of
    what is lost, last those of GPUs.
    """
    types, jobs = rates.shape
    used = np.vstack((runs, np.ones(jobs, dtype=bool)))  # idle time is one more type
    lost = np.vstack((1.0 - rates, np.ones(jobs)))
    ways = np.count_nonzero(used)

    def balance(give: Floats, free: Floats) -> Floats:
        time = np.zeros((2, *used.shape))
        time[:, used] = give[:ways], free[:ways]
        total = time.sum(axis=1)
        # Relative to a job's mean, losses stay exact where it runs on one type all the time.
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
_SHORTEST_S, _LONGEST_S, _CLOSE = 100.0, 1e6, 1.05


def max_min(problem: Problem) -> Shares:
    """Maximise the least of all jobs' weighted throughputs, each relative to what the job would do
    with its proportional share.

    Notes
    -----
    The value is the least ``gang * throughput / (weight * normal rate)``. A job that runs nowhere
    gets nothing and does not count.
    """
    market = FrontierMarket.of(problem)
    wanted = (per_job(problem, problem.weights) * normal_rates(problem) / problem.gangs)[
        market.jobs
    ]
    return _proportional_to(problem, market, wanted)


def makespan(problem: Problem, *, bisection: bool = False) -> Shares:
    """Minimise the time until the last of the jobs present is done, were the shares kept until
    then.

    Parameters
    ----------
    problem : Problem
        What to share.
    bisection : bool
        Whether to stop at a time up to 5 % longer, the one at which upstream's bisection from 100 s
        and 1e6 s stops.

    Notes
    -----
    The value is that time in seconds. With the rate of completion 1/T as the level it is one
    program, not a sequence.
    """
    market = FrontierMarket.of(problem)
    left = per_job(problem, problem.left)[market.jobs]
    if not left.any():
        return Shares(np.zeros(problem.rates.shape), 0.0)
    found = _proportional_to(
        problem, market, left, (lambda rate: 1.0 / _bisected(1.0 / rate)) if bisection else float
    )
    return found._replace(value=1.0 / found.value)


def finish_time_fairness(problem: Problem) -> Shares:
    """Minimise the largest of all jobs' ratios of the time they will have taken to the time that
    they would have taken in isolation.

    Notes
    -----
    The value is the largest ``(age_s + left / throughput) / (isolated_s + left / isolated rate)``.
    Weights do not count, nor do jobs with nothing left. No bisection is needed: the throughput that
    a ratio asks for is a convex function of its inverse, which so is a level like any other, and
    `isolated`, which can always be done, is where it starts.
    """
    market = FrontierMarket.of(problem)
    left, age_s, alone_s = (
        per_job(problem, column)[market.jobs]
        for column in (problem.left, problem.age_s, problem.isolated_s)
    )
    if not left.any():
        return Shares(np.zeros(problem.rates.shape), 0.0)
    counts, alone = left > 0, isolated(problem).x
    start, rates = alone[market.jobs[:, None], market.types], progress(problem, alone)[market.jobs]
    whole_s = np.where(counts, alone_s + left / rates, 1.0)
    relative_left = left / market.fastest  # seconds on the fastest type

    def need(level: float) -> tuple[Floats, Floats]:
        # A job that is all but done after a long time has no seconds left by cancellation: it needs
        # everything, not a division by zero.
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
    shares = _raised(problem, market, Goal(need, 1 / best, steep=True), Start(1 / worst, start))
    return shares._replace(value=1 / shares.value)


def max_sum_throughput(problem: Problem) -> Shares:
    """Maximise the sum of iterations per second. Nothing is normalised: models of many small
    iterations win.
    """
    market = FrontierMarket.of(problem)
    if not len(market.jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    nothing = np.zeros((len(market.jobs), len(market.types)))
    found = fill(
        market, np.zeros(len(market.jobs)), market.fastest, nothing, market.usable(problem.hint)
    )
    x = tidy(problem, market.whole(found.x))
    return Shares(x, float(progress(problem, x).sum()), hint=found.prices)


def cost(problem: Problem) -> Shares:
    """Maximise the sum of iterations per second, each divided by the hourly price of a GPU of the
    type: a linear stand-in for throughput per dollar.
    """
    return max_sum_throughput(problem._replace(rates=problem.rates / problem.prices))


def cost_slo(problem: Problem) -> Shares:
    """Do the same as `cost`, with every job fast enough for its deadline; if that cannot be,
    without any deadlines, and the note says so.

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
    found = solve(
        problem,
        LinearProgram(values / max(float(values.max(initial=0.0)), np.finfo(float).tiny), needed),
    )
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
"""Objectives that the problem is enough for, by name. `fifo_any` and `allox` also need to know who
holds what.
"""


def _proportional_to(
    problem: Problem,
    market: FrontierMarket,
    wanted: Floats,
    content: Callable[[float], float] = float,
) -> Shares:
    """Return shares of the highest level where throughputs are at least level x wanted, in
    iterations per second; `content` says with which part of it.
    """
    if not len(market.jobs):
        return Shares(np.zeros(problem.rates.shape), inf)
    growth = wanted / market.fastest
    unit = 1.0 / float(growth.max())
    growth = growth * unit
    nothing = Start(0.0, np.zeros((len(market.jobs), len(market.types))))
    shares = _raised(
        problem,
        market,
        Goal(lambda level: (growth * level, growth), 1.0),
        nothing,
        lambda level: content(level * unit) / unit,
    )
    return shares._replace(value=shares.value * unit)


def _raised(
    problem: Problem,
    market: FrontierMarket,
    goal: Goal,
    start: Start,
    content: Callable[[float], float] = float,
) -> Shares:
    """Return shares of the highest level, or one to be content with instead: of all that reach it
    the centre, as upstream's interior-point solvers do.
    """
    found = highest(market, goal, start, market.usable(problem.hint))
    level = content(found.level)
    x = found.x * (level / found.level)
    if not is_full(market, x):  # otherwise there is no choice
        x = centre(market, np.minimum(goal.need(level)[0], 1.0), x)
    shares, gap = (
        Shares(tidy(problem, market.whole(x)), level, hint=found.prices),
        1 - found.level / found.bound,
    )
    return (
        shares
        if gap <= _GOOD
        else shares._replace(
            note=f"The search for the best shares was given up within {gap:.2g} of the optimum."
        )
    )


def _bisected(shortest_s: float) -> float:
    """Return the time at which upstream's bisection ends: the same midpoints, with the question
    whether a time is enough answered by the shortest one.
    """
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
