"""The smallest cluster that meets a target: which sizes are to be tried next, and what the answers come to. Knows neither machines nor runs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol

from sim.errors import ParameterError

Size = tuple[int, ...]
"""How many nodes of each type that may vary."""


class Search(Protocol):
    """What asks for sizes and is told how they do."""

    @property
    def wanted(self) -> tuple[Size, ...]:
        """Sizes that are to be tried now, the most telling first; empty = the search is over."""
        ...

    @property
    def answer(self) -> Size | None:
        """The smallest size known to hold; None = none so far."""
        ...

    @property
    def assumed(self) -> str:
        """What the answer rests on beside the runs, as one sentence."""
        ...

    def tell(self, size: Size, *, holds: bool) -> None:
        """Say whether a size meets the target."""
        ...


class CountSearch:
    """The fewest nodes of one type.

    Parameters
    ----------
    low, high : int
        The range, both ends included.
    check : bool
        Whether all sizes below what bisection finds are tried too, so that a smaller one that holds is not missed where more nodes sometimes do worse.

    Raises
    ------
    ParameterError
        If the range is empty.

    Notes
    -----
    Bisection needs about log2 of the range, and assumes that more nodes never do worse. That is nearly always so of waits, but scheduling has anomalies
    (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969): the check finds those below the answer.
    """

    def __init__(self, low: int, high: int, *, check: bool = True) -> None:
        if not 0 <= low <= high:
            raise ParameterError(f"From {low} to {high} nodes is no range. Let it begin at 0 or above, and not end before it begins.")
        self._low, self._high, self._check = low, high, check
        self._known: dict[int, bool] = {}

    def tell(self, size: Size, *, holds: bool) -> None:
        """Say whether a size meets the target."""
        self._known[size[0]] = holds

    @property
    def known(self) -> Mapping[int, bool]:
        """Size -> whether it holds, of those that were tried."""
        return self._known

    @property
    def wanted(self) -> tuple[Size, ...]:
        """The end of the range, then the middle of what is open, then, for the check, all that is left below the answer."""
        if self._high not in self._known:
            return ((self._high,),)
        fails, holds = self._bracket()
        if self._known[self._high] and holds - fails > 1:
            return (((fails + holds) // 2,),)
        last = self.answer[0] if self.answer is not None else self._high
        return tuple((size,) for size in range(last - 1, self._low - 1, -1) if size not in self._known) if self._check else ()

    def _bracket(self) -> tuple[int, int]:
        """Return the ends between which bisection goes on: what it takes to fail, and to hold."""
        fails, holds = self._low - 1, self._high
        while holds - fails > 1 and (middle := (fails + holds) // 2) in self._known:
            fails, holds = (fails, middle) if self._known[middle] else (middle, holds)
        return fails, holds

    @property
    def answer(self) -> Size | None:
        """The smallest size known to hold."""
        return min(((size,) for size, holds in self._known.items() if holds), default=None)

    @property
    def anomalies(self) -> tuple[int, ...]:
        """Sizes that do not hold although a smaller one does."""
        answer = self.answer
        return tuple(sorted(size for size, holds in self._known.items() if answer is not None and size > answer[0] and not holds))

    @property
    def assumed(self) -> str:
        """What the answer rests on beside the runs."""
        left = self._high - self._low + 1 - len(self._known)
        if self.anomalies:
            worse = ", ".join(map(str, self.anomalies))
            return f"More nodes do not always do better here: {worse} do not hold although fewer do."
        if not left:
            return "Every size of the range was tried, so nothing is assumed."
        if self._check:
            return f"Every size below the answer was tried; {left} above {'was' if left == 1 else 'were'} not."
        return f"It is assumed that more nodes never do worse: {left} of {self._high - self._low + 1} sizes were not tried."


class MixSearch:
    """The cheapest mix of two types of nodes.

    Parameters
    ----------
    low, high : (int, int)
        The range of each type, both ends included.
    prices : (float, float), per node and hour
        What a node of each type costs.
    budget : float, per hour
        Mixes that cost more are not tried; inf = all are.

    Raises
    ------
    ParameterError
        If a range is empty, or no mix is within the budget.

    Notes
    -----
    Walks the border between mixes that hold and mixes that do not: from the fewest of the first and the most of the second type, one of the second less after
    each that holds, one of the first more after each that does not. It assumes that more nodes of either type never do worse, and tries at most as many mixes
    as the two ranges have sizes together, where trying all would take their product.
    """

    def __init__(self, low: tuple[int, int], high: tuple[int, int], prices: tuple[float, float], budget: float = float("inf")) -> None:
        if any(not 0 <= first <= last for first, last in zip(low, high, strict=True)):
            raise ParameterError(f"From {low} to {high} nodes is no range. Let each begin at 0 or above, and not end before it begins.")
        self._low, self._high, self._prices, self._budget = low, high, prices, budget
        if self.price(low) > budget:
            raise ParameterError(f"Even the smallest mix costs {self.price(low):g} per hour, which is more than {budget:g}. Raise the budget.")
        self._known: dict[Size, bool] = {}

    def price(self, size: Size) -> float:
        """Return what a mix costs per hour."""
        return sum(count * price for count, price in zip(size, self._prices, strict=True))

    def tell(self, size: Size, *, holds: bool) -> None:
        """Say whether a mix meets the target."""
        self._known[size] = holds

    @property
    def wanted(self) -> tuple[Size, ...]:
        """The next mix on the border."""
        first, second = self._low[0], self._high[1]
        while first <= self._high[0] and second >= self._low[1]:
            if self.price((first, second)) > self._budget:
                second -= 1
            elif (first, second) not in self._known:
                return ((first, second),)
            elif self._known[first, second]:
                second -= 1
            else:
                first += 1
        return ()

    @property
    def answer(self) -> Size | None:
        """The cheapest mix known to hold; of equally cheap ones that with fewer nodes."""
        holding = [size for size, holds in self._known.items() if holds and self.price(size) <= self._budget]
        return min(holding, key=lambda size: (self.price(size), sum(size), size), default=None)

    @property
    def assumed(self) -> str:
        """What the answer rests on beside the runs."""
        mixes = (self._high[0] - self._low[0] + 1) * (self._high[1] - self._low[1] + 1)
        return f"It is assumed that more nodes of either type never do worse: {len(self._known)} of {mixes} mixes were tried."


def steps(values: Mapping[int, float]) -> dict[int, float]:
    """Return by how much each node more changed a value, of sizes that were tried next to each other: larger size -> change."""
    return {after: values[after] - values[before] for before, after in pairwise(sorted(values)) if after == before + 1}
