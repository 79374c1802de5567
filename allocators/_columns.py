"""Column generation over the GPUs of each type: answers to prices, of which the best mixture that fits is looked for, until none can be better."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from sim.contract import Floats, Ints

Answer = TypeVar("Answer")
_MOST_ROUNDS: Final = 500
_PIVOTS, _MOST_PIVOTS = 20, 200  # per round: by the best gain; in all
_NO_GAIN: Final = 1e-12
_NOISE: Final = 1e-14
_SMALL: Final = 1e-3
_PIVOT: Final = 1e-9
_WRONG: Final = 1e-9


class Column(NamedTuple, Generic[Answer]):
    """One answer to prices.

    Parameters
    ----------
    value : float
        What it comes to.
    used : array (types,)
        GPUs that it takes on average.
    bound : float
        What no mixture that fits can surpass, as these prices prove.
    answer : object
        Whatever it takes to carry it out.
    """

    value: float
    used: Floats
    bound: float
    answer: Answer


class Mixture(NamedTuple, Generic[Answer]):
    """The best that was found.

    Parameters
    ----------
    value : float
        What it comes to.
    bound : float
        What no other can surpass.
    parts : list of (float, object)
        Weights, which sum to 1, and answers.
    prices : list of arrays (types,)
        Prices behind the parts, best first: where to start next time on a problem that is much the same.
    """

    value: float
    bound: float
    parts: list[tuple[float, Answer]]
    prices: list[Floats]


def generate(
    ask: Callable[[Floats, float], list[Column[Answer]]], first: Column[Answer], devices: Floats, prices: Iterable[Floats], tolerance: float
) -> Mixture[Answer]:
    """Return the best mixture of answers that takes no more than the GPUs there are.

    Parameters
    ----------
    ask : callable
        Answers prices of a GPU of each type, told what has been reached; at least one answer.
    first : Column
        An answer that fits, to start from.
    devices : array (types,)
        GPUs of each type, > 0.
    prices : iterable of arrays (types,)
        Prices to try first, at least one, best first.
    tolerance : float
        Distance of value and bound at which to stop, relative to the bound, or to a thousandth of the first one if that is more.
    """
    master, todo = _Master(devices), list(prices)[::-1]
    master.add(first)
    columns, asked = [first], [np.zeros(len(devices))]
    bound, value, least, best = np.inf, -np.inf, 0.0, todo[-1]
    for _ in range(_MOST_ROUNDS):
        tried = todo.pop()
        found = ask(tried, master.value)
        helped = found[0].bound < bound
        if helped:
            bound, best = found[0].bound, tried
        for column in found:
            columns.append(column)
            asked.append(tried)
            master.add(column)
        if todo:
            continue
        master.solve()
        least = max(least, _SMALL * bound)
        if bound - master.value <= tolerance * max(bound, least):
            break
        helped, value = helped or master.value > value, master.value
        if not helped and np.array_equal(tried, master.prices):  # asked again, it would answer the same: rounding errors are all that is left
            break
        todo = [master.prices]
    parts = [(weight, at) for at, weight in master.parts if weight > 0]
    behind = {id(asked[at]): asked[at] for _, at in parts if at}
    return Mixture(master.value, bound, [(weight, columns[at].answer) for weight, at in parts], [best, *(it for it in behind.values() if it is not best)])


class _Master:
    """The linear program of the best mixture, kept as a basis: a row for the GPUs of each type, as parts of all there are, and one for the weights."""

    def __init__(self, devices: Floats) -> None:
        self._devices = devices
        self._types = len(devices)
        self._matrix = np.zeros((self._types + 1, 64))
        self._values = np.zeros(64)
        self._matrix[: self._types, : self._types] = np.eye(self._types)  # idle GPUs
        self._count = self._types
        self._basis = np.arange(self._types + 1)
        self._duals = np.zeros(self._types + 1)
        self._weights = np.eye(self._types + 1)[-1]

    def add(self, column: Column[Answer]) -> None:
        if self._count == len(self._values):
            self._matrix = np.hstack((self._matrix, np.zeros_like(self._matrix)))
            self._values = np.append(self._values, np.zeros_like(self._values))
        self._matrix[:-1, self._count] = column.used / self._devices
        self._matrix[-1, self._count] = 1.0
        self._values[self._count] = column.value
        self._count += 1

    def solve(self) -> None:
        """Bring the best columns into the basis, unless that gets too near to a singular one for its weights to be what they should."""
        before = self._basis, self._weights
        self._pivot()
        wrong = np.abs(self._matrix[:, self._basis] @ self._weights - 1.0).max()
        if wrong > _WRONG or self._weights.min() < -_WRONG:
            self._basis, self._weights = before

    def _pivot(self) -> None:
        """Go from basis to basis, by the simplex method from where it was left."""
        matrix, values = self._matrix[:, : self._count], self._values[: self._count]
        largest, basis = float(np.abs(values).max()), self._basis
        for pivot in range(_MOST_PIVOTS):
            try:
                inverse = np.linalg.inv(matrix[:, basis])
            except np.linalg.LinAlgError:
                return
            self._basis, self._weights = basis, inverse.sum(axis=1)  # of a right-hand side of ones
            self._duals = values[basis] @ inverse
            enough = _NO_GAIN * largest + _NOISE * float(np.abs(self._duals).max())
            gains = values - self._duals @ matrix
            gains[basis] = 0.0  # not to be taken for more by a rounding error
            # Bland's rule, the first instead of the best, is slower, but cannot go round in circles.
            enters = int(gains.argmax() if pivot < _PIVOTS else (gains > enough).argmax())
            if gains[enters] <= enough:
                return
            change = inverse @ matrix[:, enters]
            steps = np.full(len(change), np.inf)
            np.divide(np.maximum(self._weights, 0.0), change, out=steps, where=change > _PIVOT)
            nearest = np.flatnonzero(steps <= steps.min() + _NO_GAIN)
            if steps[nearest[0]] == np.inf:
                return
            # Of those that leave at the same step, the one with the largest pivot keeps the basis well apart from singular.
            basis = basis.copy()
            basis[nearest[(change[nearest] if pivot < _PIVOTS else -basis[nearest]).argmax()]] = enters

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
        return [(int(place), float(weight)) for place, weight in zip(at, self._weights, strict=True) if place >= 0]
