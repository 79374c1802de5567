"""The smallest cluster that meets a target: which sizes are to be tried next, and what the answers
come to. Knows neither machines nor runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Protocol

from sim.errors import ParameterError

MOST_CHECKED: Final = 40
"""Sizes tried in all, after which the check ends."""
FAR_IN_A_ROW: Final = 8
"""Sizes next to each other that miss the target by far, after which the check ends."""

Size = tuple[int, ...]
"""How many nodes of each type that may vary."""


def most_tried(high: int, begin: int = 0) -> int:
    """Return how many sizes are tried at most before the check ends; of a search that finds its
    range, those of doubling and bisection, and the next ones below the answer.
    """
    if not begin:
        return MOST_CHECKED
    doubled = math.ceil(math.log2(high / begin)) + 2
    return doubled + math.ceil(math.log2(high + 1)) + FAR_IN_A_ROW


class Search(Protocol):
    """What asks for sizes and is told how they do."""

    @property
    def largest(self) -> tuple[Size, ...]:
        """Sizes to be tried before all others: where most jobs can run, which is what other sizes
        are measured by.
        """
        ...

    @property
    def wanted(self) -> tuple[Size, ...]:
        """Sizes that are to be tried now, the decisive ones first; empty = the search is over."""
        ...

    @property
    def answer(self) -> Size | None:
        """The smallest size known to hold; None = none so far."""
        ...

    @property
    def assumed(self) -> str:
        """What the answer rests on beside the runs, as one sentence."""
        ...

    def tell(self, size: Size, *, holds: bool, far: bool = False) -> None:
        """Say whether a size meets the target, and if not, whether it misses it by far. What is
        told later of a size counts.
        """
        ...


class CountSearch:
    """The fewest nodes of one type.

    Parameters
    ----------
    low, high : int
        The range, both ends included.
    check : bool
        Whether sizes below what bisection finds are tried too, so that a smaller one that holds is
        not missed where more nodes sometimes do worse.
    begin : int
        The first size that is tried, after which sizes double until one holds that is not the
        largest tried; 0 = the end of the range is tried first.

    Raises
    ------
    ParameterError
        If the range is empty, or the first size is not in it.

    Notes
    -----
    Doubling goes one step beyond the first size that holds, because only a larger cluster shows
    whether all jobs that can ever run did so.

    Bisection needs about log2 of the range, and assumes that more nodes never do worse. That is
    nearly always so of waits, but scheduling has anomalies (Graham, "Bounds on Multiprocessing
    Timing Anomalies", 1969), so the check goes down from the answer, or from the end of the range
    if that does not hold, size by size; below a size that holds it bisects again. It ends early
    after `FAR_IN_A_ROW` neighbouring sizes that miss the target by far, or `MOST_CHECKED` sizes in
    all, and `assumed` says so. What is far is for the caller to say; Graham's bound for the
    makespan of lists is a factor below two.
    """

    def __init__(self, low: int, high: int, *, check: bool = True, begin: int = 0) -> None:
        if begin and not low <= begin <= high:
            raise ParameterError(
                f"The search begins at {begin} nodes, which is not between {low} and {high}."
            )
        if not 0 <= low <= high:
            raise ParameterError(
                f"From {low} to {high} nodes is no range. Let it begin at 0 or above, and not end"
                " before it begins."
            )
        self._low, self._high, self._check = low, high, check
        self._begin = begin or high
        self._most = most_tried(high, begin)
        self._known: dict[int, bool] = {}
        self._far: set[int] = set()

    def tell(self, size: Size, *, holds: bool, far: bool = False) -> None:
        """Say whether a size meets the target, and if not, whether it misses it by far."""
        self._known[size[0]] = holds
        if far and not holds:
            self._far.add(size[0])

    @property
    def known(self) -> Mapping[int, bool]:
        """Size -> whether it holds, of those that were tried."""
        return self._known

    @property
    def largest(self) -> tuple[Size, ...]:
        """The end of the range, or where the search begins."""
        return ((self._begin,),)

    def _doubled(self) -> int | None:
        """Return the size that doubling tries next; None = it has ended."""
        size, held = self._begin, False
        while size in self._known and size < self._high and not held:
            held, size = self._known[size], min(2 * size, self._high)
        return size if size not in self._known else None

    @property
    def _top(self) -> int:
        """The largest size that doubling has come to."""
        return max((size for size in self._known), default=self._begin)

    @property
    def wanted(self) -> tuple[Size, ...]:
        """The sizes of doubling, or the end of the range; then the middle of what is open below the
        smallest that holds; then, for the check, the next sizes below.
        """
        if (doubled := self._doubled()) is not None:
            return ((doubled,),)
        if (answer := self.answer) is not None:
            fails = max(
                (size for size, holds in self._known.items() if size < answer[0] and not holds),
                default=self._low - 1,
            )
            if answer[0] - fails > 1:
                return (((fails + answer[0]) // 2,),)
        # No more at once than it takes to know that the rest is far off: as many on many workers as
        # on one.
        batch = min(self._most - len(self._known), FAR_IN_A_ROW - self._row()) if self._check else 0
        return tuple((size,) for size in self._untried()[: max(batch, 0)])

    def _untried(self) -> list[int]:
        """Return the sizes below the answer, or below the end of the range, that were not tried,
        the largest first.
        """
        last = self.answer[0] if self.answer is not None else self._top
        return [size for size in range(last - 1, self._low - 1, -1) if size not in self._known]

    def _row(self) -> int:
        """Return how many sizes in a row miss by far, down to the first that was not tried, or to
        the end of the check.
        """
        row = 0
        for size in range(
            self.answer[0] - 1 if self.answer is not None else self._top, self._low - 1, -1
        ):
            if row == FAR_IN_A_ROW or size not in self._known:
                break
            row = row + 1 if size in self._far else 0
        return row

    @property
    def answer(self) -> Size | None:
        """The smallest size known to hold."""
        return min(((size,) for size, holds in self._known.items() if holds), default=None)

    @property
    def anomalies(self) -> tuple[int, ...]:
        """Sizes that do not hold although a smaller one does."""
        answer = self.answer
        return tuple(
            sorted(
                size
                for size, holds in self._known.items()
                if answer is not None and size > answer[0] and not holds
            )
        )

    @property
    def assumed(self) -> str:
        """What the answer rests on beside the runs."""
        left, below = self._top - self._low + 1 - len(self._known), len(self._untried())
        unchecked = (
            f" It is assumed that none of {below} smaller sizes holds, which were not"
            f" tried{self._ended()}."
            if below
            else ""
        )
        if self.anomalies:
            worse = ", ".join(map(str, self.anomalies))
            return (
                f"More nodes do not always do better here: {worse} do not hold although fewer"
                f" do.{unchecked}"
            )
        if not left:
            return "Every size of the range was tried, so nothing is assumed."
        if not self._check:
            return (
                f"It is assumed that more nodes never do worse: {left} of"
                f" {self._top - self._low + 1} sizes were not tried."
            )
        above = left - below
        return (
            unchecked.strip()
            or f"Every size below the answer was tried; {above} above {'was' if above == 1 else 'were'} not."  # noqa: E501
        )

    def _ended(self) -> str:
        """Return why the check ended early, as a clause; "" = it has not."""
        if not self._check or self.wanted:
            return ""
        far = self._row() >= FAR_IN_A_ROW
        return (
            f" since {FAR_IN_A_ROW} sizes in a row above them miss the target by far"
            if far
            else f" since the check ends after {self._most} sizes"
        )


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
    Walks the border between mixes that hold and mixes that do not: from the fewest of the first and
    the most of the second type, one of the second less after each that holds, one of the first more
    after each that does not. It assumes that more nodes of either type never do worse, and tries at
    most as many mixes as the two ranges have sizes together, where trying all would take their
    product.
    """

    def __init__(
        self,
        low: tuple[int, int],
        high: tuple[int, int],
        prices: tuple[float, float],
        budget: float = float("inf"),
    ) -> None:
        if any(not 0 <= first <= last for first, last in zip(low, high, strict=True)):
            raise ParameterError(
                f"From {low} to {high} nodes is no range. Let each begin at 0 or above, and not end"
                " before it begins."
            )
        self._low, self._high, self._prices, self._budget = low, high, prices, budget
        if self.price(low) > budget:
            raise ParameterError(
                f"Even the smallest mix costs {self.price(low):g} per hour, which is more than"
                f" {budget:g}. Raise the budget."
            )
        first, second = self._up(self._up(low, 0), 1), self._up(self._up(low, 1), 0)
        between = self._up(((second[0] + first[0] + 1) // 2, low[1]), 1)
        self._ends: tuple[Size, ...] = tuple(dict.fromkeys((first, second, between)))
        self._known: dict[Size, bool] = {}

    def price(self, size: Size) -> float:
        """Return what a mix costs per hour."""
        return sum(count * price for count, price in zip(size, self._prices, strict=True))

    def tell(self, size: Size, *, holds: bool, far: bool = False) -> None:
        """Say whether a mix meets the target; by how much it does not says nothing of the
        border.
        """
        del far
        self._known[size] = holds

    @property
    def largest(self) -> tuple[Size, ...]:
        """The most of both; over the budget instead the most of the first type and of the second,
        and a mix between, each with what is left for the other.
        """
        return self._ends

    def _up(self, size: Size, at: int) -> Size:
        """Return the mix with as many nodes of a type as the budget and its range allow."""
        grown = (
            (*size[:at], count, *size[at + 1 :]) for count in range(self._high[at], size[at], -1)
        )
        return next((mix for mix in grown if self.price(mix) <= self._budget), size)

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
        holding = [
            size
            for size, holds in self._known.items()
            if holds and self.price(size) <= self._budget
        ]
        return min(holding, key=lambda size: (self.price(size), sum(size), size), default=None)

    @property
    def assumed(self) -> str:
        """What the answer rests on beside the runs."""
        mixes = (self._high[0] - self._low[0] + 1) * (self._high[1] - self._low[1] + 1)
        return (
            f"It is assumed that more nodes of either type never do worse: {len(self._known)} of"
            f" {mixes} mixes were tried."
        )
