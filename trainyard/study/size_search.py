"""Searches for the smallest cluster that meets a target, independent of machines and runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Protocol

from sim.errors import ParameterError

MAX_CHECKED: Final = 40
"""Number of tried sizes after which the check ends."""
FAR_IN_A_ROW: Final = 8
"""Number of adjacent sizes that miss the target by far, after which the check ends."""

Size = tuple[int, ...]
"""Number of nodes of each varying type."""


def max_tried_sizes(high: int, begin: int = 0) -> int:
    """Return the maximum number of sizes that a search tries.

    With `begin`, those of doubling, bisection and the check below the answer; otherwise
    `MAX_CHECKED`.
    """
    if not begin:
        return MAX_CHECKED
    doubled = math.ceil(math.log2(high / begin)) + 2
    return doubled + math.ceil(math.log2(high + 1)) + FAR_IN_A_ROW


class Search(Protocol):
    """A search that proposes sizes and records whether they meet the target."""

    @property
    def largest(self) -> tuple[Size, ...]:
        """Sizes to try first, where most jobs can run; other sizes are measured against them."""
        ...

    @property
    def next_sizes(self) -> tuple[Size, ...]:
        """Sizes to try next, most decisive first; empty = the search has ended."""
        ...

    @property
    def answer(self) -> Size | None:
        """Smallest size that met the target; None = none so far."""
        ...

    @property
    def assumed(self) -> str:
        """Assumption behind the answer, as one sentence."""
        ...

    def record(self, size: Size, *, holds: bool, far: bool = False) -> None:
        """Record whether a size meets the target, and if not, whether it misses it by far.

        A later record of the same size replaces an earlier one.
        """
        ...


class CountSearch:
    """Search for the fewest nodes of one type.

    Parameters
    ----------
    low, high : int
        The range, both ends included.
    check : bool
        Whether to try sizes below the result of bisection too, because more nodes sometimes do
        worse and a smaller size may meet the target.
    begin : int
        First size to try; sizes then double until one that is not the largest tried meets the
        target. 0 = try the end of the range first.

    Raises
    ------
    ParameterError
        If the range is empty, or does not include the first size.

    Notes
    -----
    Doubling goes one step beyond the first passing size, because only a larger cluster
    shows whether all jobs that can run did run.

    Bisection tries about log2 of the range, assuming that more nodes never do worse. For waits this
    is almost always true, but scheduling has anomalies (Graham, "Bounds on Multiprocessing Timing
    Anomalies", 1969). The check therefore tries sizes one by one below the answer, or below the end
    of the range if that fails; below a passing size it bisects again. It ends early after
    `FAR_IN_A_ROW` adjacent sizes that miss the target by far, or after `MAX_CHECKED` sizes, and
    `assumed` says so. The caller decides what is far; Graham's bound for the makespan of list
    schedules is a factor below two.
    """

    def __init__(self, low: int, high: int, *, check: bool = True, begin: int = 0) -> None:
        if begin and not low <= begin <= high:
            raise ParameterError(
                f"The search begins at {begin} nodes, which is not between {low} and {high}."
            )
        if not 0 <= low <= high:
            raise ParameterError(
                f"From {low} to {high} nodes is not a range. Start at 0 or above, and end at or"
                " above the start."
            )
        self._low, self._high, self._check = low, high, check
        self._begin = begin or high
        self._most = max_tried_sizes(high, begin)
        self._known: dict[int, bool] = {}
        self._far: set[int] = set()

    def record(self, size: Size, *, holds: bool, far: bool = False) -> None:
        """Record whether a size meets the target, and if not, whether it misses it by far."""
        self._known[size[0]] = holds
        if far and not holds:
            self._far.add(size[0])

    @property
    def tried(self) -> Mapping[int, bool]:
        """Tried size -> whether it meets the target."""
        return self._known

    @property
    def largest(self) -> tuple[Size, ...]:
        """End of the range, or the first size to try."""
        return ((self._begin,),)

    def _next_doubled_size(self) -> int | None:
        """Return the next size of doubling; None without doubling, or if it has ended."""
        size, passed = self._begin, False
        while size in self._known and size < self._high and not passed:
            passed, size = self._known[size], min(2 * size, self._high)
        return size if size not in self._known else None

    @property
    def _top(self) -> int:
        """Largest size that doubling has reached."""
        return max((size for size in self._known), default=self._begin)

    @property
    def next_sizes(self) -> tuple[Size, ...]:
        """Sizes to try next: by doubling, then by bisection, then below the answer.

        Only the last step gives more than one at a time; empty = finished.
        """
        if (doubled := self._next_doubled_size()) is not None:
            return ((doubled,),)
        if (answer := self.answer) is not None:
            fails = max(
                (size for size, holds in self._known.items() if size < answer[0] and not holds),
                default=self._low - 1,
            )
            if answer[0] - fails > 1:
                return (((fails + answer[0]) // 2,),)
        # At most as many as can end the check, so that many workers try no more than one does.
        batch = (
            min(self._most - len(self._known), FAR_IN_A_ROW - self._far_in_a_row())
            if self._check
            else 0
        )
        return tuple((size,) for size in self._untried_below()[: max(batch, 0)])

    def _untried_below(self) -> list[int]:
        """Return the untried sizes below the answer or the end of the range, largest first."""
        last = self.answer[0] if self.answer is not None else self._top
        return [size for size in range(last - 1, self._low - 1, -1) if size not in self._known]

    def _far_in_a_row(self) -> int:
        """Return how many adjacent sizes below the answer miss the target by far.

        Counts down from the answer, at most `FAR_IN_A_ROW`, to the first untried size; without an
        answer from the end of the range.
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
        """Smallest size that met the target, None if none did."""
        return min(((size,) for size, holds in self._known.items() if holds), default=None)

    @property
    def anomalies(self) -> tuple[int, ...]:
        """Sizes that miss the target although a smaller one meets it."""
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
        """Assumption behind the answer, as text: anomalies, untried sizes, why the check ended."""
        untried, below = self._top - self._low + 1 - len(self._known), len(self._untried_below())
        unchecked = (
            f" Assumption: none of the {below} untried smaller sizes meets the"
            f" target{self._why_ended()}."
            if below
            else ""
        )
        if self.anomalies:
            worse = ", ".join(map(str, self.anomalies))
            return (
                f"More nodes do not always do better here: {worse} miss the target although fewer"
                f" meet it.{unchecked}"
            )
        if not untried:
            return "Every size of the range was tried. No assumption is needed."
        if not self._check:
            return (
                f"Assumption: more nodes never do worse; {untried} of"
                f" {self._top - self._low + 1} sizes were not tried."
            )
        above = untried - below
        return (
            unchecked.strip()
            or f"Every size below the answer was tried; {above} above {'was' if above == 1 else 'were'} not."  # noqa: E501
        )

    def _why_ended(self) -> str:
        """Return why the check ended early, as a clause; "" if it did not."""
        if not self._check or self.next_sizes:
            return ""
        far = self._far_in_a_row() >= FAR_IN_A_ROW
        return (
            f" because {FAR_IN_A_ROW} sizes in a row above them miss it by far"
            if far
            else f" because the check ends after {self._most} sizes"
        )


class MixSearch:
    """Search for the cheapest mix of two node types.

    Parameters
    ----------
    low, high : (int, int)
        The range of each type, both ends included.
    prices : (float, float), per node and hour
        Price of a node of each type.
    budget : float, per hour
        Maximum price of a mix; inf = no limit.

    Raises
    ------
    ParameterError
        If a range is empty, or no mix is within the budget.

    Notes
    -----
    Follows the boundary between passing and failing mixes. It starts at the fewest
    nodes of the first type and the most of the second, removes one of the second after each passing
    mix, and adds one of the first after each failing mix. It assumes that more nodes of either type
    never do worse, and tries at most the sum of both ranges, not their product.
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
                f"From {low} to {high} nodes is not a range. Start each at 0 or above, and end at"
                " or above the start."
            )
        self._low, self._high, self._prices, self._budget = low, high, prices, budget
        if self.price(low) > budget:
            raise ParameterError(
                f"Even the smallest mix costs {self.price(low):g} per hour, which is more than"
                f" {budget:g}. Raise the budget."
            )
        first, second = (
            self._most_affordable(self._most_affordable(low, 0), 1),
            self._most_affordable(self._most_affordable(low, 1), 0),
        )
        between = self._most_affordable(((second[0] + first[0] + 1) // 2, low[1]), 1)
        self._ends: tuple[Size, ...] = tuple(dict.fromkeys((first, second, between)))
        self._known: dict[Size, bool] = {}

    def price(self, size: Size) -> float:
        """Return the price of a mix per hour."""
        return sum(count * price for count, price in zip(size, self._prices, strict=True))

    def record(self, size: Size, *, holds: bool, far: bool = False) -> None:
        """Record whether a mix meets the target; `far` is ignored."""
        del far
        self._known[size] = holds

    @property
    def largest(self) -> tuple[Size, ...]:
        """Largest mix; above the budget, three affordable mixes: most of each type, and between."""
        return self._ends

    def _most_affordable(self, size: Size, type_index: int) -> Size:
        """Return a mix with its count of one type raised as far as budget and range allow."""
        grown = (
            (*size[:type_index], count, *size[type_index + 1 :])
            for count in range(self._high[type_index], size[type_index], -1)
        )
        return next((mix for mix in grown if self.price(mix) <= self._budget), size)

    @property
    def next_sizes(self) -> tuple[Size, ...]:
        """Next mix to simulate within the budget, as a tuple of at most one; empty = finished."""
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
        """Cheapest mix that met the target; among equally cheap ones that with fewest nodes."""
        holding = [
            size
            for size, holds in self._known.items()
            if holds and self.price(size) <= self._budget
        ]
        return min(holding, key=lambda size: (self.price(size), sum(size), size), default=None)

    @property
    def assumed(self) -> str:
        """The assumption behind the answer and the number of tried mixes, as one sentence."""
        mixes = (self._high[0] - self._low[0] + 1) * (self._high[1] - self._low[1] + 1)
        return (
            f"Assumption: more nodes of either type never do worse; {len(self._known)} of"
            f" {mixes} mixes were tried."
        )
