"""Water filling: repeated max-min fairness among the jobs that can still grow.

Entities that own jobs add a second layer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators.heterogeneous.timeshare.frontier import FrontierMarket
from allocators.heterogeneous.timeshare.level import Goal, Mixture, Start, fill, highest
from allocators.heterogeneous.timeshare.linear import LinearProgram, solve
from allocators.heterogeneous.timeshare.problem import (
    Floats,
    Ints,
    Problem,
    Shares,
    normal_rates,
    per_job,
    tidy,
)

Marks = NDArray[np.bool_]
# A job that can grow by less is saturated; relative to the normalized throughput plus a tenth.
_GAIN: Final = 1e-4
_LITTLE: Final = 0.1
_ROOM: Final = 1 - 1e-7  # part of the level that is kept; all of it may not fit by rounding errors
_CLOSE: Final = 1e-6
_SHARE: Final = 1e-3  # of the mean gain
_IDLE: Final = 1e-6  # part of a type's GPUs that must be idle to count as room to grow


class Entities(NamedTuple):
    """The owners of jobs.

    Parameters
    ----------
    owner : array (jobs,)
        Index of each job's entity.
    weights : array (entities,)
        Share of each entity, > 0.
    fifo : array (entities,)
        Whether an entity serves its jobs in order of arrival (of rows) instead of fairly.
    """

    owner: Ints
    weights: Floats
    fifo: Marks


class _Water(NamedTuple):
    """A water-filling problem with its market, scale and entities."""

    problem: Problem
    market: FrontierMarket
    scale: Floats  # from relative to normalized throughput
    entities: Entities | None


def water_filling(problem: Problem, entities: Entities | None = None) -> Shares:
    """Raise all normalized throughputs in proportion to weights until every job is saturated.

    Notes
    -----
    The value is the level of the first round, which without entities is that of `max_min`. An
    entity's weight is divided among its unsaturated jobs by their own weights, or goes to the first
    of them. Upstream finds the jobs that can still grow by a mixed-integer program. Here a linear
    program maximizes the sum of growth; the jobs that grow are removed and the rest is solved
    again, until none grows: the same set, because if each of two jobs can grow, both can together.
    """
    market = FrontierMarket.from_problem(problem)
    jobs = len(market.jobs)
    if not jobs:
        return Shares(np.zeros(problem.rates.shape))
    water = _Water(problem, market, market.fastest / normal_rates(problem)[market.jobs], entities)
    x, rates, saturated = (
        np.zeros((jobs, len(market.types))),
        np.zeros(jobs),
        np.zeros(jobs, dtype=bool),
    )
    prices = market.usable_prices(problem.hint)
    hint: list[Floats] = []
    prices_of_growth: list[Floats] = []
    first = np.nan
    while not saturated.all():
        growth = _weights(water, saturated) / market.gangs / water.scale
        x, rates = x * _ROOM, rates * _ROOM
        floor = rates / water.scale

        def need(
            level: float, floor: Floats = floor, growth: Floats = growth
        ) -> tuple[Floats, Floats]:
            """Return the throughputs at a level, and their growth with the level."""
            return floor + growth * level, growth

        grows = growth > 0
        most = float(((1 - floor[grows]) / growth[grows]).min())
        mixture = highest(market, Goal(need, most), Start(0.0, x), prices)
        if mixture.bound - mixture.level > _CLOSE * most:
            mixture = _solve_generally(water, np.zeros(x.shape), floor, growth) or mixture
        first = mixture.level if np.isnan(first) else first
        hint = hint or mixture.prices
        x, prices, rates = mixture.x, mixture.prices, need(mixture.level)[0] * water.scale
        full = ~_can_grow(water, x, rates, grows, prices_of_growth, prices[0] if prices else None)
        if not full.any():
            break
        saturated |= full
    return Shares(tidy(problem, market.to_problem(x)), first, hint=hint)


def _weights(water: _Water, saturated: Marks) -> Floats:
    """Return the speed at which each job's throughput grows; 0 for saturated jobs.

    Without entities it is the job's weight. An entity divides its weight among its jobs that still
    grow, or with `fifo` gives it to the first of them.
    """
    weights = np.where(
        saturated, 0.0, per_job(water.problem, water.problem.weights)[water.market.jobs]
    )
    if water.entities is None:
        return weights
    owner = water.entities.owner[water.market.jobs]
    waiting = np.flatnonzero(~saturated)
    firsts = np.unique(owner[waiting], return_index=True)[1]
    by_turn = np.zeros(len(weights))
    by_turn[waiting[firsts]] = 1.0
    total = np.bincount(owner, weights, len(water.entities.weights))
    shares = np.divide(weights, total[owner], out=np.zeros(len(weights)), where=weights > 0)
    return water.entities.weights[owner] * np.where(water.entities.fifo[owner], by_turn, shares)


def _can_grow(
    water: _Water,
    x: Floats,
    rates: Floats,
    candidates: Marks,
    prices: list[Floats],
    at: Floats | None,
) -> Marks:
    """Return which jobs can grow without a loss to others; True for jobs outside `candidates`.

    `prices` are replaced by those of the last solution.

    ``at`` are the prices that prove the level, if any do.
    """
    market, left, grows = water.market, candidates.copy(), ~candidates
    x, rates = x * _ROOM, rates * _ROOM
    floor = rates / water.scale
    worth = water.scale / (rates + _LITTLE)
    if at is not None:
        can, cannot = _bound_growth(water, x, floor, worth, candidates, at)
        if (can | cannot)[candidates].all():
            return grows | can
    while left.any():
        asks = np.where(left, worth, 0.0)
        mixture = fill(market, floor, asks, x, prices)
        prices[:] = mixture.prices
        if mixture.bound - mixture.level > _GAIN / 10:
            mixture = (
                _solve_generally(water, market.kinds[market.kind] * asks[:, None], floor, None)
                or mixture
            )
        gained = ((mixture.x * market.kinds[market.kind]).sum(axis=1) - floor) * asks
        total = float(gained.sum())
        if total <= _GAIN:
            break
        more = left & (gained > total / int(left.sum()) * _SHARE)
        grows |= more
        left &= ~more
    return grows


def _bound_growth(
    water: _Water, x: Floats, floor: Floats, worth: Floats, candidates: Marks, prices: Floats
) -> tuple[Marks, Marks]:
    """Return which of the candidates certainly can grow, and which certainly cannot.

    Notes
    -----
    They can if moving time to the fastest type with idle GPUs, for all jobs together, is enough.
    They cannot at full speed, or by duality: at any prices of GPUs, no feasible throughputs cost
    more than all GPUs, those of the floor cost their cheapest mixes, and each unit above costs a
    job at least the slope of its frontier there.
    """
    market = water.market
    frontier = market.frontier(prices)
    mix = market.mix(frontier, floor)
    spare = max(float(prices @ (market.devices - market.used(mix))), 0.0)
    slope = market.gangs * frontier.slope[mix.start]
    most = np.divide(spare, slope, out=np.full(len(x), np.inf), where=slope > 0) * worth
    cannot = candidates & (np.minimum((1 - floor) * worth, most) <= _GAIN / len(x))
    idle = np.maximum(market.devices - market.gangs @ x, 0.0)
    open_to = np.where(idle > _IDLE * market.devices, market.kinds, 0.0)
    gain = np.where(candidates, open_to.max(axis=1)[market.kind] - floor, 0.0)
    best, gainers = open_to.argmax(axis=1)[market.kind], gain > 0
    wanted = np.bincount(best[gainers], market.gangs[gainers], len(idle))
    part = float(np.min(idle[wanted > 0] / wanted[wanted > 0], initial=1.0))
    can = candidates & (part * gain * worth > _GAIN)
    rest = candidates & ~cannot
    nobody = not can.any() and most.max(initial=0.0, where=rest) <= _GAIN
    return can, cannot | rest if nobody else cannot


def _solve_generally(
    water: _Water, values: Floats, floor: Floats, growth: Floats | None
) -> Mixture | None:
    """Return the mixture for a nearly degenerate problem by the general solver, or None.

    Without `growth` it maximizes the values above the floor, otherwise also the level. None if
    infeasible.
    """
    market = water.market
    within = water.problem._replace(rates=market.to_problem(market.kinds[market.kind]))
    every = np.zeros((2, len(within.rates)))
    every[0, market.jobs], every[1, market.jobs] = floor, growth if growth is not None else 0.0
    solution = solve(
        within,
        LinearProgram(
            market.to_problem(values), every[0], every[1] if growth is not None else None
        ),
    )
    if solution is None:
        return None
    x = solution.x[np.ix_(market.jobs, market.types)]
    level = solution.level if growth is not None else float((values * x).sum())
    return Mixture(level, level, x, [])
