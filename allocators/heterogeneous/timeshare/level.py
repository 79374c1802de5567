"""Optimal shares on several GPU types by column generation.

They reach the highest common level, or the greatest value above a floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from allocators.heterogeneous.timeshare.frontier import FrontierMarket, FrontierPoint
from allocators.heterogeneous.timeshare.problem import Floats, Ints

Need = Callable[[float], tuple[Floats, Floats]]
"""Level -> required throughputs, relative to each job's fastest type, and their derivatives. Convex
and non-decreasing in the level.
"""

_EXACT: Final = 1e-9  # distance of value and bound at which to stop, relative to the bound
_SMALL: Final = 1e-3  # that distance is relative to at least this part of the first bound
_MAX_ROUNDS: Final = 500
_BELOW: Final = 0.99
_FULL: Final = 1e-7
_ROUNDING: Final = 1e-13
_MAX_STEPS: Final = 200
_PIVOTS, _MAX_PIVOTS = 20, 200  # per round: by the best gain; in all
_NO_GAIN: Final = 1e-12
_NOISE: Final = 1e-14
_PIVOT: Final = 1e-9
_WRONG: Final = 1e-9


class Goal(NamedTuple):
    """Throughputs required for a level, and the highest level.

    Parameters
    ----------
    need : callable
        Level -> required throughputs.
    most : float
        The highest level with all needs at most 1, as if each job were alone.
    steep : bool
        Whether needs may grow without limit just above the best level. Then every second column is
        taken a little below it, because columns from above, none of which fits, mix poorly.
    """

    need: Need
    most: float
    steep: bool = False


class Start(NamedTuple):
    """A feasible level with its shares of time."""

    level: float
    x: Floats


class Mixture(NamedTuple):
    """The best level or value, its upper bound, the shares, and prices for a warm start.

    Prices are sorted, best first.
    """

    level: float
    bound: float
    x: Floats
    prices: list[Floats]


class _Column(NamedTuple):
    """The purchases at given prices: their value, the GPUs used, and the bound that they prove."""

    value: float
    used: Floats
    bound: float
    answer: FrontierPoint | Floats


def highest(market: FrontierMarket, goal: Goal, start: Start, prices: Sequence[Floats]) -> Mixture:
    """Return the mixture with the highest feasible level.

    Parameters
    ----------
    market : FrontierMarket
        At least one job.
    goal : Goal
        Required throughputs for a level.
    start : Start
        A feasible level.
    prices : sequence of arrays (types,)
        Prices of an earlier solution; they only save time.

    Notes
    -----
    At given prices of GPU time every job buys the cheapest mix of types that meets its need. The
    level at which all purchases cost as much as all GPUs is an upper bound. The shares bought there
    are a column; the best mixture of columns that fits meets the needs of its mean level, because
    needs are convex. Bound and mixture meet at the optimum (Dantzig-Wolfe decomposition), after
    some 10 prices, independent of the number of jobs.
    """
    high = goal.most

    def ask(tried: Floats, low: float) -> list[_Column]:
        """Return the columns bought at given prices, and lower the upper bound `high`."""
        nonlocal high
        high, mix, used = _find_affordable_level(market, goal.need, high, tried)
        columns = [_Column(high, used, high, mix)]
        if goal.steep:
            level = low + _BELOW * (high - low)
            mix = market.mix(mix.frontier, np.minimum(goal.need(level)[0], 1.0))
            columns.append(_Column(level, market.used(mix), np.inf, mix))
        return columns

    requested_gpus = market.gangs @ market.kinds[market.kind]
    return _generate(market, ask, start, prices or [requested_gpus / requested_gpus.sum()])


def _find_affordable_level(
    market: FrontierMarket, need: Need, high: float, prices: Floats
) -> tuple[float, FrontierPoint, Floats]:
    """Return the level at which all needs cost as much as all GPUs, its mix, and GPUs used.

    The level is at most `high`.
    """
    frontier = market.frontier(prices)
    for _ in range(
        _MAX_STEPS
        # Newton's method from above on a convex function never overshoots the root
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
    """Return the mixture with the greatest value of throughputs above a floor for every job.

    Parameters
    ----------
    market : FrontierMarket
        At least one job.
    floor : array (jobs,)
        Least relative throughputs.
    worth : array (jobs,)
        Value of one relative throughput, >= 0.
    start : array (jobs, types)
        Shares of time that meet the floor.
    prices : sequence of arrays (types,)
        Prices of an earlier solution; they only save time.

    Notes
    -----
    As in `highest`, but at given prices every job buys throughput while its value exceeds its
    price.
    """

    def ask(tried: Floats, _: float) -> list[_Column]:
        """Return the single column bought at given prices."""
        frontier = market.frontier(tried)
        throughput = np.maximum(floor, market.worthwhile(frontier, worth))
        mix = market.mix(frontier, throughput)
        used, value = market.used(mix), float(worth @ throughput)
        return [_Column(value, used, value + float(tried @ (market.devices - used)), mix)]

    start_value = float(worth @ (start * market.kinds[market.kind]).sum(axis=1))
    return _generate(
        market, ask, Start(start_value, start), prices or [np.zeros(len(market.devices))]
    )


def is_full(market: FrontierMarket, x: Floats) -> bool:
    """Return True if all GPUs are in use all the time."""
    return bool((market.gangs @ x >= market.devices * (1 - _FULL)).all())


def _generate(
    market: FrontierMarket,
    ask: Callable[[Floats, float], list[_Column]],
    start: Start,
    prices: Sequence[Floats],
) -> Mixture:
    """Return the best feasible mixture of a start and of columns at successive prices.

    The given prices are tried first.
    """
    master, todo = _Master(market.devices), list(prices)[::-1]
    columns = [_Column(start.level, market.gangs @ start.x, np.inf, start.x)]
    rounds: list[Floats] = []  # the prices tried
    round_of_column = [-1]  # the round of each column; -1 = the start
    master.add(columns[0])
    bound, value, least, best = np.inf, -np.inf, 0.0, 0
    for _ in range(_MAX_ROUNDS):
        tried = todo.pop()
        rounds.append(tried)
        new_columns = ask(tried, master.value)
        if (
            new_columns[0].value >= new_columns[0].bound
            and (new_columns[0].used <= market.devices).all()
        ):  # optimal on its own
            return Mixture(
                new_columns[0].value,
                new_columns[0].bound,
                _column_shares(market, new_columns[0]),
                [tried],
            )
        helped = new_columns[0].bound < bound
        if helped:
            bound, best = new_columns[0].bound, len(rounds) - 1
        for column in new_columns:
            columns.append(column)
            round_of_column.append(len(rounds) - 1)
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
        ):  # the same prices again: only rounding errors are left
            break
        todo = [master.prices]
    x = np.zeros((len(market.jobs), len(market.devices)))
    for at, weight in master.parts:
        if weight > 0:
            x += weight * _column_shares(market, columns[at])
    best_first = dict.fromkeys([best, *(round_of_column[at] for at, _ in master.parts if at)])
    return Mixture(master.value, bound, x, [rounds[at] for at in best_first])


def _column_shares(market: FrontierMarket, column: _Column) -> Floats:
    """Return the shares of time of a column, shape (jobs, types)."""
    return (
        market.shares(column.answer) if isinstance(column.answer, FrontierPoint) else column.answer
    )


class _Master:
    """The linear program of the best mixture, stored as a basis of the simplex method.

    It has a row for each type, in parts of its GPUs, and one for the sum of the weights.
    """

    def __init__(self, devices: Floats) -> None:
        self._devices = devices
        self._types = len(devices)
        self._matrix = np.eye(self._types + 1, 64)  # first idle GPUs
        self._values = np.zeros(64)
        self._count = self._types
        self._basis = np.arange(self._types + 1)
        self._inverse: Floats | None = None  # of the basis; None = not computed yet
        self._duals = np.zeros(self._types + 1)
        self._weights = (self._basis == self._types).astype(float)

    def add(self, column: _Column) -> None:
        """Add a column to the program."""
        if self._count == len(self._values):
            self._matrix = np.hstack((self._matrix, np.zeros_like(self._matrix)))
            self._values = np.append(self._values, np.zeros_like(self._values))
        self._matrix[:-1, self._count] = column.used / self._devices
        self._matrix[-1, self._count] = 1.0
        self._values[self._count] = column.value
        self._count += 1

    def solve(self) -> None:
        """Improve the basis by pivots, or keep it if the new one is too close to singular."""
        before = self._basis, self._inverse, self._weights
        self._pivot()
        wrong = np.abs(self._matrix[:, self._basis] @ self._weights - 1.0).max()
        if wrong > _WRONG or self._weights.min() < -_WRONG:
            self._basis, self._inverse, self._weights = before

    def _pivot(self) -> None:
        """Run simplex pivots from the present basis until none improves it.

        Also updates the inverse, weights and dual prices.
        """
        matrix, values = self._matrix[:, : self._count], self._values[: self._count]
        largest, basis = float(np.abs(values).max()), self._basis
        inverse = self._inverse
        for pivot in range(_MAX_PIVOTS):
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
            gains[basis] = 0.0  # exact, without rounding errors
            # Bland's rule (first instead of best) is slower but cannot cycle.
            enters = int(gains.argmax() if pivot < _PIVOTS else (gains > enough).argmax())
            if gains[enters] <= enough:
                return
            change = inverse @ matrix[:, enters]
            steps = np.full(len(change), np.inf)
            np.divide(np.maximum(self._weights, 0.0), change, out=steps, where=change > _PIVOT)
            nearest = np.flatnonzero(steps <= steps.min() + _NO_GAIN)
            if steps[nearest[0]] == np.inf:
                return
            # Among columns that leave at the same step, the largest pivot keeps the basis far from
            # singular.
            basis = basis.copy()
            basis[nearest[(change[nearest] if pivot < _PIVOTS else -basis[nearest]).argmax()]] = (
                enters
            )
            inverse = None

    @property
    def value(self) -> float:
        """Value of the best mixture."""
        return float(self._values[self._basis] @ self._weights)

    @property
    def prices(self) -> Floats:
        """Dual prices of a GPU of each type."""
        return np.maximum(self._duals[:-1], 0.0) / self._devices

    @property
    def parts(self) -> list[tuple[int, float]]:
        """Indices and weights of the columns in the basis."""
        at: Ints = self._basis - self._types
        return [
            (int(place), float(weight))
            for place, weight in zip(at, self._weights, strict=True)
            if place >= 0
        ]
