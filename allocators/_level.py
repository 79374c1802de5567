"""The highest level at which every job makes the throughput that the level asks for, and what to do with the GPUs that are left over then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from allocators._columns import Column, Mixture, generate
from allocators._frontier import Market, Mix
from sim.contract import Floats

Need = Callable[[float], tuple[Floats, Floats]]
"""From a level to the throughputs it asks for, relative to each job's fastest type, and to their derivatives. Convex, and never falling with the level."""

EXACT: Final = 1e-9  # of the level, relative
_BELOW: Final = 0.99
_FULL: Final = 1e-7
FILLED: Final = 1e-7
_ROUNDING: Final = 1e-13
_MOST_STEPS: Final = 200


class Goal(NamedTuple):
    """What a level means.

    Parameters
    ----------
    need : callable
        What it asks for.
    most : float
        The highest level at which no need is over 1: what the jobs could do if each were alone.
    steep : bool
        Whether needs may grow without limit just above the level sought. Then every second answer is one from a little below it, because those from above, of
        which none fits, make a poor mixture.
    """

    need: Need
    most: float
    steep: bool = False


class Start(NamedTuple):
    """A level that can be kept, with the shares of time that do it."""

    level: float
    x: Floats


class Found(NamedTuple):
    """The best level found, that no other can surpass, its shares of time, and prices to start from next time."""

    level: float
    bound: float
    x: Floats
    prices: list[Floats]


def highest(market: Market, goal: Goal, start: Start, prices: Sequence[Floats]) -> Found:
    """Raise the level as far as GPUs and hours allow.

    Parameters
    ----------
    market : Market
        At least one job.
    goal : Goal
        What a level means.
    start : Start
        Some level that can be kept.
    prices : sequence of arrays (types,)
        Prices of an earlier answer; they only save time.

    Notes
    -----
    At given prices of GPU time every job buys the cheapest mix of types that meets its need, and the level at which all of them together cost as much as
    all GPUs are worth is a bound: nobody can do better. The shares bought there are a column; the best mixture of columns that fits meets the needs of its
    mean level, because needs are convex. Both come together at the optimum (Dantzig-Wolfe decomposition), after some 10 prices, whatever the number of jobs.
    """
    high = goal.most

    def ask(tried: Floats, low: float) -> list[Column[Mix | Floats]]:
        nonlocal high
        high, mix, used = _bound(market, goal.need, high, tried)
        found: list[Column[Mix | Floats]] = [Column(high, used, high, mix)]
        if goal.steep:
            level = low + _BELOW * (high - low)
            mix = market.mix(mix.frontier, np.minimum(goal.need(level)[0], 1.0))
            found.append(Column(level, market.used(mix), np.inf, mix))
        return found

    first: Column[Mix | Floats] = Column(start.level, market.gangs @ start.x, np.inf, start.x)
    found = generate(ask, first, market.devices, prices or [_guess(market)], EXACT)
    return Found(found.value, found.bound, _shares(market, found), found.prices)


def _bound(market: Market, need: Need, high: float, prices: Floats) -> tuple[float, Mix, Floats]:
    """Return the level, at most `high`, at which what everybody needs costs as much as all GPUs, the cheapest mix there, and what it uses."""
    frontier = market.frontier(prices)
    for _ in range(_MOST_STEPS):  # Newton's method from above, on a convex function: it never steps over the level that is sought
        needed, growth = need(high)
        mix = market.mix(frontier, np.minimum(needed, 1.0))
        used = market.used(mix)
        over, slope = float(prices @ (used - market.devices)), market.slope(mix, growth)
        lower = high - over / slope if slope > 0 and over > _ROUNDING * float(prices @ market.devices) else high
        if lower >= high - abs(high) * 1e-15:
            break
        high = lower
    return high, mix, used


def fill(market: Market, floor: Floats, worth: Floats, start: Floats, prices: Sequence[Floats], tolerance: float = FILLED) -> Found:
    """Maximise the sum of what throughputs are worth, with a floor under every job's.

    Parameters
    ----------
    market : Market
        At least one job.
    floor : array (jobs,)
        Relative throughputs that must be kept.
    worth : array (jobs,)
        Of one relative throughput, >= 0.
    start : array (jobs, types)
        Shares of time that keep the floor.
    prices : sequence of arrays (types,)
        Prices of an earlier answer; they only save time.
    tolerance : float
        Of the sum, relative to what all jobs alone would come to.

    Notes
    -----
    The same method: at given prices every job buys as long as more throughput is worth its price.
    """

    def ask(tried: Floats, _: float) -> list[Column[Mix | Floats]]:
        frontier = market.frontier(tried)
        throughput = np.maximum(floor, market.worthwhile(frontier, worth))
        mix = market.mix(frontier, throughput)
        used, value = market.used(mix), float(worth @ throughput)
        return [Column(value, used, value + float(tried @ (market.devices - used)), mix)]

    made = float(worth @ (start * market.kinds[market.kind]).sum(axis=1))
    first: Column[Mix | Floats] = Column(made, market.gangs @ start, np.inf, start)
    found = generate(ask, first, market.devices, prices or [np.zeros(len(market.devices))], tolerance)
    return Found(found.value, found.bound, _shares(market, found), found.prices)


def is_full(market: Market, x: Floats) -> bool:
    """Tell whether all GPUs are in use all the time, so that nothing is left over."""
    return bool((market.gangs @ x >= market.devices * (1 - _FULL)).all())


def _guess(market: Market) -> Floats:
    prices: Floats = market.gangs @ market.kinds[market.kind]
    scaled: Floats = prices / prices.sum()
    return scaled


def _shares(market: Market, found: Mixture[Mix | Floats]) -> Floats:
    x = np.zeros((len(market.jobs), len(market.devices)))
    for weight, part in found.parts:
        x += weight * (market.shares(part) if isinstance(part, Mix) else part)
    return x
