"""Optimal shares on several GPU types, by column generation: the highest level that all jobs reach,
or the greatest value above a floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from allocators.heterogeneous.timeshare.frontier import FrontierMarket, FrontierPoint
from allocators.heterogeneous.timeshare.problem import Floats, Ints

Need = Callable[[float], tuple[Floats, Floats]]
"""From a level to the throughputs it asks for, relative to each job's fastest type, and to their
derivatives. Convex, and never falling with the level.
"""

_EXACT: Final = 1e-9  # distance of value and bound at which to stop, relative to the bound
_SMALL: Final = 1e-3  # of the first bound, to which it is relative at least
_MOST_ROUNDS: Final = 500
_BELOW: Final = 0.99
_FULL: Final = 1e-7
_ROUNDING: Final = 1e-13
_MOST_STEPS: Final = 200
_PIVOTS, _MOST_PIVOTS = 20, 200  # per round: by the best gain; in all
_NO_GAIN: Final = 1e-12
_NOISE: Final = 1e-14
_PIVOT: Final = 1e-9
_WRONG: Final = 1e-9


class Goal(NamedTuple):
    """What a level means.

    Parameters
    ----------
    need : callable
        What it asks for.
    most : float
        The highest level at which no need is over 1: what the jobs could do if each were alone.
    steep : bool
        Whether needs may grow without limit just above the level sought. Then every second answer
        is one from a little below it, because those from above, of which none fits, make a poor
        mixture.
    """

    need: Need
    most: float
    steep: bool = False


class Start(NamedTuple):
    """A level that can be kept, with the shares of time that do it."""

    level: float
    x: Floats


class Mixture(NamedTuple):
    """The best level or value found, its upper bound, the shares of time, and prices to start from
    next time, best first.
    """

    level: float
    bound: float
    x: Floats
    prices: list[Floats]


class _Column(NamedTuple):
    """An answer to prices: what it comes to, the GPUs of each type that it takes, and what no
    mixture that fits can surpass, as these prices prove.
    """

    value: float
    used: Floats
    bound: float
    answer: FrontierPoint | Floats


def highest(market: FrontierMarket, goal: Goal, start: Start, prices: Sequence[Floats]) -> Mixture:
    """Raise the level as far as GPUs and hours allow.

    Parameters
    ----------
    market : FrontierMarket
        At least one job.
    goal : Goal
        What a level means.
    start : Start
        Some level that can be kept.
    prices : sequence of arrays (types,)
        Prices of an earlier answer; they only save time.

    Notes
    -----
    At given prices of GPU time every job buys the cheapest mix of types that meets its need, and
    the level at which all of them together cost as much as all GPUs are worth is a bound: nobody
    can do better. The shares bought there are a column; the best mixture of columns that fits meets
    the needs of its mean level, because needs are convex. Both come together at the optimum
    (Dantzig-Wolfe decomposition), after some 10 prices, whatever the number of jobs.
    """
    high = goal.most

    def ask(tried: Floats, low: float) -> list[_Column]:
        nonlocal high
        high, mix, used = _bound(market, goal.need, high, tried)
        found = [_Column(high, used, high, mix)]
        if goal.steep:
            level = low + _BELOW * (high - low)
            mix = market.mix(mix.frontier, np.minimum(goal.need(level)[0], 1.0))
            found.append(_Column(level, market.used(mix), np.inf, mix))
        return found

    asked = market.gangs @ market.kinds[market.kind]
    return _generate(market, ask, start, prices or [asked / asked.sum()])


def _bound(
    market: FrontierMarket, need: Need, high: float, prices: Floats
) -> tuple[float, FrontierPoint, Floats]:
    """Return the level, at most `high`, at which the needs of all jobs cost as much as all GPUs,
    the cheapest mix there, and what it uses.
    """
    frontier = market.frontier(prices)
    for _ in range(
        _MOST_STEPS
        # Newton's method from above, on a convex function: it never steps over the level that is
        # sought
    ):
        needed, growth = need(high)
        mix = market.mix(frontier, np.minimum(needed, 1.0))
        used = market.used(mix)
        over, slope = float(prices @ (used - market.devices)), market.slope(mix, growth)
        lower = (
            high - over / slope
            if slope > 0 and over > _ROUNDING * float(prices @ market.devices)
            else high
        )
        if lower >= high - abs(high) * 1e-15:
            break
        high = lower
    return high, mix, used


def fill(
    market: FrontierMarket, floor: Floats, worth: Floats, start: Floats, prices: Sequence[Floats]
) -> Mixture:
    """Maximise the sum of the values of throughputs, with a floor for every job.

    Parameters
    ----------
    market : FrontierMarket
        At least one job.
    floor : array (jobs,)
        Relative throughputs that must be kept.
    worth : array (jobs,)
        Of one relative throughput, >= 0.
    start : array (jobs, types)
        Shares of time that keep the floor.
    prices : sequence of arrays (types,)
        Prices of an earlier answer; they only save time.

    Notes
    -----
    The same method: at given prices every job buys as long as more throughput is worth its price.
    """

    def ask(tried: Floats, _: float) -> list[_Column]:
        frontier = market.frontier(tried)
        throughput = np.maximum(floor, market.worthwhile(frontier, worth))
        mix = market.mix(frontier, throughput)
        used, value = market.used(mix), float(worth @ throughput)
        return [_Column(value, used, value + float(tried @ (market.devices - used)), mix)]

    made = float(worth @ (start * market.kinds[market.kind]).sum(axis=1))
    return _generate(market, ask, Start(made, start), prices or [np.zeros(len(market.devices))])


def is_full(market: FrontierMarket, x: Floats) -> bool:
    """Tell whether all GPUs are in use all the time, so that nothing is left over."""
    return bool((market.gangs @ x >= market.devices * (1 - _FULL)).all())


def _generate(
    market: FrontierMarket,
    ask: Callable[[Floats, float], list[_Column]],
    start: Start,
    prices: Sequence[Floats],
) -> Mixture:
    """Return the best mixture that fits of a start and of answers to prices, of which those given
    are asked about first.
    """
    master, todo = _Master(market.devices), list(prices)[::-1]
    columns = [_Column(start.level, market.gangs @ start.x, np.inf, start.x)]
    rounds: list[Floats] = []  # the prices asked about
    asked = [-1]  # for each column the round that it answers
    master.add(columns[0])
    bound, value, least, best = np.inf, -np.inf, 0.0, 0
    for _ in range(_MOST_ROUNDS):
        tried = todo.pop()
        rounds.append(tried)
        found = ask(tried, master.value)
        if (
            found[0].value >= found[0].bound and (found[0].used <= market.devices).all()
        ):  # nothing is better, alone or mixed
            return Mixture(found[0].value, found[0].bound, _bought(market, found[0]), [tried])
        helped = found[0].bound < bound
        if helped:
            bound, best = found[0].bound, len(rounds) - 1
        for column in found:
            columns.append(column)
            asked.append(len(rounds) - 1)
            master.add(column)
        if todo:
            continue
        master.solve()
        least = max(least, _SMALL * bound)
        if bound - master.value <= _EXACT * max(bound, least):
            break
        helped, value = helped or master.value > value, master.value
        if not helped and np.array_equal(
            tried, master.prices
        ):  # asked again, it would answer the same: rounding errors are all that is left
            break
        todo = [master.prices]
    x = np.zeros((len(market.jobs), len(market.devices)))
    for at, weight in master.parts:
        if weight > 0:
            x += weight * _bought(market, columns[at])
    best_first = dict.fromkeys([best, *(asked[at] for at, _ in master.parts if at)])
    return Mixture(master.value, bound, x, [rounds[at] for at in best_first])


def _bought(market: FrontierMarket, column: _Column) -> Floats:
    return (
        market.shares(column.answer) if isinstance(column.answer, FrontierPoint) else column.answer
    )


class _Master:
    """The linear program of the best mixture, kept as a basis: a row for the GPUs of each type, as
    parts of all there are, and one for the weights.
    """

    def __init__(self, devices: Floats) -> None:
        self._devices = devices
        self._types = len(devices)
        self._matrix = np.eye(self._types + 1, 64)  # first idle GPUs
        self._values = np.zeros(64)
        self._count = self._types
        self._basis = np.arange(self._types + 1)
        self._inverse: Floats | None = None  # of the basis; None = not known yet
        self._duals = np.zeros(self._types + 1)
        self._weights = (self._basis == self._types).astype(float)

    def add(self, column: _Column) -> None:
        if self._count == len(self._values):
            self._matrix = np.hstack((self._matrix, np.zeros_like(self._matrix)))
            self._values = np.append(self._values, np.zeros_like(self._values))
        self._matrix[:-1, self._count] = column.used / self._devices
        self._matrix[-1, self._count] = 1.0
        self._values[self._count] = column.value
        self._count += 1

    def solve(self) -> None:
        """Bring the best columns into the basis, unless that gets too near to a singular one for
        its weights to be what they should.
        """
        before = self._basis, self._inverse, self._weights
        self._pivot()
        wrong = np.abs(self._matrix[:, self._basis] @ self._weights - 1.0).max()
        if wrong > _WRONG or self._weights.min() < -_WRONG:
            self._basis, self._inverse, self._weights = before

    def _pivot(self) -> None:
        """Go from basis to basis, by the simplex method from where it was left."""
        matrix, values = self._matrix[:, : self._count], self._values[: self._count]
        largest, basis = float(np.abs(values).max()), self._basis
        inverse = self._inverse
        for pivot in range(_MOST_PIVOTS):
            if inverse is None:
                try:
                    inverse = np.asarray(np.linalg.inv(matrix[:, basis]), np.float64)
                except np.linalg.LinAlgError:
                    return
            self._basis, self._inverse = basis, inverse
            self._weights = inverse.sum(axis=1)  # of a right-hand side of ones
            self._duals = values[basis] @ inverse
            enough = _NO_GAIN * largest + _NOISE * float(np.abs(self._duals).max())
            gains = values - self._duals @ matrix
            gains[basis] = 0.0  # not to be taken for more by a rounding error
            # Bland's rule, the first instead of the best, is slower, but cannot go round in
            # circles.
            enters = int(gains.argmax() if pivot < _PIVOTS else (gains > enough).argmax())
            if gains[enters] <= enough:
                return
            change = inverse @ matrix[:, enters]
            steps = np.full(len(change), np.inf)
            np.divide(np.maximum(self._weights, 0.0), change, out=steps, where=change > _PIVOT)
            nearest = np.flatnonzero(steps <= steps.min() + _NO_GAIN)
            if steps[nearest[0]] == np.inf:
                return
            # Of those that leave at the same step, the one with the largest pivot keeps the basis
            # well apart from singular.
            basis = basis.copy()
            basis[nearest[(change[nearest] if pivot < _PIVOTS else -basis[nearest]).argmax()]] = (
                enters
            )
            inverse = None

    @property
    def value(self) -> float:
        return float(self._values[self._basis] @ self._weights)

    @property
    def prices(self) -> Floats:
        return np.maximum(self._duals[:-1], 0.0) / self._devices

    @property
    def parts(self) -> list[tuple[int, float]]:
        """Places and weights of the columns in the basis."""
        at: Ints = self._basis - self._types
        return [
            (int(place), float(weight))
            for place, weight in zip(at, self._weights, strict=True)
            if place >= 0
        ]
