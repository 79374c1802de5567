"""Water filling: max-min fairness of all jobs, then of all whose throughput can still grow, and so
on; with entities that own jobs, in two layers.
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
# what cannot grow by more is saturated: relative to the normalised throughput plus a tenth
_GAIN: Final = 1e-4
_LITTLE: Final = 0.1
_ROOM: Final = (
    1 - 1e-7
    # part of what was reached that is kept: exactly all of it might not fit again, for rounding
    # errors
)
_CLOSE: Final = 1e-6
_SHARE: Final = 1e-3  # of the mean gain
_IDLE: Final = 1e-6  # part of a type's GPUs that must be idle to count as room to grow


class Entities(NamedTuple):
    """Who owns the jobs.

    Parameters
    ----------
    owner : array (jobs,)
        Number of each job's entity.
    weights : array (entities,)
        Share of each entity, > 0.
    fifo : array (entities,)
        Whether an entity serves its jobs in order of arrival, that is of rows, instead of fairly.
    """

    owner: Ints
    weights: Floats
    fifo: Marks


class _Water(NamedTuple):
    problem: Problem
    market: FrontierMarket
    scale: Floats  # from relative to normalised throughput
    entities: Entities | None


def water_filling(problem: Problem, entities: Entities | None = None) -> Shares:
    """Raise all normalised throughputs together, in proportion to weights, until jobs are
    saturated; go on with the others until all are.

    Notes
    -----
    The value is the level that the first round came to, that of `max_min` without entities. An
    entity's weight is divided among its unsaturated jobs, by their own weights, or goes to the
    first of them. Upstream asks a mixed-integer program which jobs can still grow. Here a linear
    one maximises the sum of growth, what grows is set aside, and the rest is asked again, until
    nothing grows: the same set, because if each of two jobs can grow, both can at once.
    """
    market = FrontierMarket.of(problem)
    jobs = len(market.jobs)
    if not jobs:
        return Shares(np.zeros(problem.rates.shape))
    water = _Water(problem, market, market.fastest / normal_rates(problem)[market.jobs], entities)
    x, made, saturated = (
        np.zeros((jobs, len(market.types))),
        np.zeros(jobs),
        np.zeros(jobs, dtype=bool),
    )
    prices = market.usable(problem.hint)
    hint: list[Floats] = []
    prices_of_growth: list[Floats] = []
    first = np.nan
    while not saturated.all():
        growth = _weights(water, saturated) / market.gangs / water.scale
        x, made = x * _ROOM, made * _ROOM
        floor = made / water.scale

        def need(
            level: float, floor: Floats = floor, growth: Floats = growth
        ) -> tuple[Floats, Floats]:
            return floor + growth * level, growth

        grows = growth > 0
        most = float(((1 - floor[grows]) / growth[grows]).min())
        found = highest(market, Goal(need, most), Start(0.0, x), prices)
        if found.bound - found.level > _CLOSE * most:
            found = _solved(water, np.zeros(x.shape), floor, growth) or found
        first = found.level if np.isnan(first) else first
        hint = hint or found.prices
        x, prices, made = found.x, found.prices, need(found.level)[0] * water.scale
        full = ~_can_grow(water, x, made, grows, prices_of_growth, prices[0] if prices else None)
        if not full.any():
            break
        saturated |= full
    return Shares(tidy(problem, market.whole(x)), first, hint=hint)


def _weights(water: _Water, saturated: Marks) -> Floats:
    """Return the speed at which throughputs are to grow."""
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
    water: _Water, x: Floats, made: Floats, asked: Marks, prices: list[Floats], at: Floats | None
) -> Marks:
    """Tell which jobs' throughputs could be higher with no other's lower; those not asked about
    can, as far as the caller is concerned. ``at`` are the prices that prove the level, if any do.
    """
    market, left, grows = water.market, asked.copy(), ~asked
    x, made = x * _ROOM, made * _ROOM
    floor = made / water.scale
    worth = water.scale / (made + _LITTLE)
    if at is not None:
        can, cannot = _surely(water, x, floor, worth, asked, at)
        if (can | cannot)[asked].all():
            return grows | can
    while left.any():
        asks = np.where(left, worth, 0.0)
        found = fill(market, floor, asks, x, prices)
        prices[:] = found.prices
        if found.bound - found.level > _GAIN / 10:
            found = _solved(water, market.kinds[market.kind] * asks[:, None], floor, None) or found
        gained = ((found.x * market.kinds[market.kind]).sum(axis=1) - floor) * asks
        total = float(gained.sum())
        if total <= _GAIN:
            break
        more = left & (gained > total / int(left.sum()) * _SHARE)
        grows |= more
        left &= ~more
    return grows


def _surely(
    water: _Water, x: Floats, floor: Floats, worth: Floats, asked: Marks, prices: Floats
) -> tuple[Marks, Marks]:
    """Tell which of the jobs asked about surely can grow, and which surely cannot.

    Notes
    -----
    They can if moving time to the fastest type with idle GPUs, for all jobs at once, is enough.
    They cannot at full speed, or, by duality: at any prices of GPUs, no throughputs that fit cost
    more than all GPUs, those of the floor cost their cheapest mixes, and each unit above costs a
    job at least the slope of its frontier there.
    """
    market = water.market
    frontier = market.frontier(prices)
    mix = market.mix(frontier, floor)
    spare = max(float(prices @ (market.devices - market.used(mix))), 0.0)
    slope = market.gangs * frontier.slope[mix.start]
    most = np.divide(spare, slope, out=np.full(len(x), np.inf), where=slope > 0) * worth
    cannot = asked & (np.minimum((1 - floor) * worth, most) <= _GAIN / len(x))
    idle = np.maximum(market.devices - market.gangs @ x, 0.0)
    open_to = np.where(idle > _IDLE * market.devices, market.kinds, 0.0)
    gain = np.where(asked, open_to.max(axis=1)[market.kind] - floor, 0.0)
    best, gainers = open_to.argmax(axis=1)[market.kind], gain > 0
    wanted = np.bincount(best[gainers], market.gangs[gainers], len(idle))
    part = float(np.min(idle[wanted > 0] / wanted[wanted > 0], initial=1.0))
    can = asked & (part * gain * worth > _GAIN)
    rest = asked & ~cannot
    nobody = not can.any() and most.max(initial=0.0, where=rest) <= _GAIN
    return can, cannot | rest if nobody else cannot


def _solved(water: _Water, values: Floats, floor: Floats, growth: Floats | None) -> Mixture | None:
    """Return what the general solver finds; for the few problems that are so nearly degenerate that
    column generation gives up.
    """
    market = water.market
    within = water.problem._replace(rates=market.whole(market.kinds[market.kind]))
    every = np.zeros((2, len(within.rates)))
    every[0, market.jobs], every[1, market.jobs] = floor, growth if growth is not None else 0.0
    found = solve(
        within,
        LinearProgram(market.whole(values), every[0], every[1] if growth is not None else None),
    )
    if found is None:
        return None
    x = found.x[np.ix_(market.jobs, market.types)]
    level = found.level if growth is not None else float((values * x).sum())
    return Mixture(level, level, x, [])
