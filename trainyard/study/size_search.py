"""Search for the cheapest mix of nodes that meets a target, independent of machines and runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from sim.errors import ParameterError

MAX_TYPES: Final = 4
"""Maximum number of node types in a mix."""
MAX_TRIED: Final = 100
"""Number of mixes after which a search ends."""
MAX_CHECKED: Final = 40
"""Number of mixes after which the check ends."""
_NODE: Final = 1e-9
"""Price added per node, so that of two mixes at one price the smaller is cheaper."""
_SLACK: Final = 1e-3
"""Tolerance of the budget in USD per hour: it covers `_NODE` and rounding."""

Size = tuple[int, ...]
"""Number of nodes of each varying type: a mix."""


class MixSearch:
    """Search for the cheapest mix of node types that meets a target.

    Parameters
    ----------
    low, high : sequence of int
        The range of each type, both ends included.
    prices : sequence of float, per node and hour
        Price of a node of each type.
    budget : float, per hour
        Maximum price of a mix; inf = no limit.
    check : bool
        Whether to try mixes below a near miss too, because more nodes sometimes do worse.
    first : sequence of Size
        Mixes to try first; () = the largest mixes within the budget.

    Raises
    ------
    ParameterError
        If a range is empty, or no mix is within the budget.

    Notes
    -----
    Steps: each type alone, by doubling and bisection. Then the cheapest mix that no miss rules out,
    enlarged to half the price of the best mix so far: a pass lowers that price, a miss rules out
    all mixes with no more nodes of any type. It ends when all cheaper mixes are ruled out, so the
    answer is exact if more nodes of a type never do worse. For waits this is almost always true,
    but scheduling has anomalies (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969). The
    check therefore tries cheaper mixes one node below the answer and below near misses; only a miss
    by far rules out what is below it.
    """

    def __init__(
        self,
        low: Sequence[int],
        high: Sequence[int],
        prices: Sequence[float],
        budget: float = math.inf,
        *,
        check: bool = True,
        first: Sequence[Size] = (),
    ) -> None:
        if any(not 0 <= least <= most for least, most in zip(low, high, strict=True)):
            raise ParameterError(
                f"From {_mix_text(low)} to {_mix_text(high)} nodes is not a range. Start at 0 or"
                " above, and end at or above the start."
            )
        self._low, self._high, self._prices = tuple(low), tuple(high), tuple(prices)
        self._budget, self._check = budget + _SLACK, check
        if self.price(self._low) > self._budget:
            raise ParameterError(
                f"Even the fewest nodes make the cluster cost {self.price(self._low):g} USD per"
                f" hour, which is more than {budget:g}. Raise the budget."
            )
        self.largest = tuple(first) or self._largest_mixes()
        self._known: dict[Size, bool] = {}
        self._far: set[Size] = set()
        self._proposed: dict[Size, None] = {}
        self._next: tuple[Size, ...] | None = None

    def price(self, size: Size) -> float:
        """Return the price of a mix per hour, a trifle more with more nodes."""
        per_node = ((count, price + _NODE) for count, price in zip(size, self._prices, strict=True))
        return sum(count * price for count, price in per_node)

    def record(self, size: Size, *, holds: bool, far: bool = False) -> None:
        """Record whether a mix meets the target, and if not, whether it misses it by far.

        A later record of the same mix replaces an earlier one.
        """
        self._known = {**self._known, size: holds}  # pages read it while runs end
        (self._far.add if far and not holds else self._far.discard)(size)
        self._next = None

    @property
    def answer(self) -> Size | None:
        """Cheapest mix that met the target; None = none so far."""
        return min(
            (size for size, holds in self._known.items() if holds),
            key=lambda size: (self.price(size), size),
            default=None,
        )

    @property
    def answer_alone(self) -> Size | None:
        """Smallest mix that met the target with more nodes of the first type only; None = none."""
        return min(
            (size for size, holds in self._known.items() if holds and size[1:] == self._low[1:]),
            default=None,
        )

    @property
    def next_sizes(self) -> tuple[Size, ...]:
        """Mixes to try next, most decisive first; empty = the search has ended."""
        if self._next is None:
            self._next = tuple(self._candidates())
            self._proposed |= dict.fromkeys(self._next)
        return self._next

    def _candidates(self) -> Sequence[Size]:
        """Return the next mixes of the first step that is not finished."""
        if first := [size for size in self.largest if size not in self._known]:
            return first
        alone = dict.fromkeys(filter(None, map(self._next_alone, range(len(self._low)))))
        room = MAX_TRIED - len(self._proposed)
        if alone or room <= 0:
            return list(alone)[: max(room, 0)]
        if (mix := self._next_between()) is not None:
            return [mix]
        return self._sizes_to_check()[: max(MAX_CHECKED - len(self._proposed), 0)]

    @property
    def most_alone(self) -> Size:
        """Most nodes of each type that can be added to the smallest mix within the budget."""
        return tuple(
            self._grow(self._low, (at,), self._budget)[at] - low for at, low in enumerate(self._low)
        )

    def _next_alone(self, type_index: int) -> Size | None:
        """Return the next mix with one type above its least count, by doubling and bisection."""
        low, most = self._low[type_index], self.most_alone[type_index]
        results = {
            size[type_index] - low: holds
            for size, holds in self._known.items()
            if self._with_count(self._low, type_index, size[type_index]) == size
        }
        passing = min((count for count, holds in results.items() if holds), default=most + 1)
        failing = max(
            (count for count, holds in results.items() if not holds and count < passing), default=-1
        )
        count = (
            min(max(2 * failing, failing + 1), most)
            if passing > most
            else max((passing + failing) // 2, 0)
        )
        return None if count in results else self._with_count(self._low, type_index, low + count)

    def _next_between(self) -> Size | None:
        """Return a mix cheaper than the answer that no miss rules out; None = there is none."""
        answer = self.answer
        limit = self._budget if answer is None else self.price(answer) - _NODE / 2
        corner = min(self._corners(limit), key=lambda size: (self.price(size), size), default=None)
        if corner is None:
            return None
        if answer is not None:
            limit = (self.price(corner) + limit) / 2
        return self._grow(corner, range(len(corner)), limit)

    def _corners(self, limit: float) -> Collection[Size]:
        """Return the smallest mixes up to a price that are not within a mix that missed."""
        corners = {self._low}
        for miss in [size for size, holds in self._known.items() if not holds]:
            within = {corner for corner in corners if is_within(corner, miss)}
            raised = {
                self._with_count(corner, at, miss[at] + 1)
                for corner in within
                for at in range(len(miss))
                if miss[at] < self._high[at]
            }
            every = (corners - within) | {size for size in raised if self.price(size) <= limit}
            corners = {
                size
                for size in every
                if not any(is_within(other, size) for other in every if other != size)
            }
        return {corner for corner in corners if self.price(corner) <= limit}

    def _sizes_to_check(self) -> list[Size]:
        """Return untried cheaper mixes one node below the answer or a near miss, dearest first."""
        answer = self.answer
        limit = math.inf if answer is None else self.price(answer)
        above = [
            size
            for size, holds in self._known.items()
            if size == answer or (not holds and size not in self._far and self.price(size) < limit)
        ]
        below = {
            self._with_count(size, at, size[at] - 1)
            for size in above
            for at in range(len(size))
            if self._check and size[at] > self._low[at]
        }
        fresh = [
            size
            for size in below - self._known.keys()
            if not any(is_within(size, miss) for miss in self._far)
        ]
        return sorted(fresh, key=lambda size: (-self.price(size), size))

    def _grow(self, size: Size, types: Collection[int], limit: float) -> Size:
        """Return a mix with nodes of these types added up to a price, equal amounts of money."""
        while growing := [
            at
            for at in types
            if size[at] < self._high[at]
            and self.price(self._with_count(size, at, size[at] + 1)) <= limit
        ]:
            spent = {at: (size[at] - self._low[at]) * (self._prices[at] + _NODE) for at in growing}
            least = min(growing, key=lambda at: (spent[at], at))
            size = self._with_count(size, least, size[least] + 1)
        return size

    def _largest_mixes(self) -> tuple[Size, ...]:
        """Return the largest mix, or of those within the budget most of each type and a balance."""
        types = range(len(self._low))
        mixes = [
            self._grow(self._grow(self._low, (at,), self._budget), types, self._budget)
            for at in types
        ]
        return tuple(dict.fromkeys([*mixes, self._grow(self._low, types, self._budget)]))

    @staticmethod
    def _with_count(size: Size, type_index: int, count: int) -> Size:
        """Return a mix with another number of nodes of one type."""
        return (*size[:type_index], count, *size[type_index + 1 :])

    @property
    def anomalies(self) -> tuple[Size, ...]:
        """Mixes that miss the target although a mix within them meets it."""
        passing = [size for size, holds in self._known.items() if holds]
        return tuple(
            sorted(
                miss
                for miss, holds in self._known.items()
                if not holds and any(is_within(size, miss) for size in passing)
            )
        )

    @property
    def assumed(self) -> str:
        """Assumption behind the answer, as text: anomalies, and why cheaper mixes are untried."""
        worse = ", ".join(map(_mix_text, self.anomalies))
        worse_text = (
            f"More nodes do not always do better here: {worse} miss the target although fewer meet"
            " it. "
            if worse
            else ""
        )
        if len(self._proposed) >= MAX_TRIED:
            return (
                f"{worse_text}The search ended after {MAX_TRIED} mixes; cheaper ones are untried."
            )
        return (
            f"{worse_text}Assumption: fewer nodes of every type never do better than"
            f" {'a mix that misses the target by far' if self._check else 'a mix that misses'}."
        )


def is_within(size: Size, other: Size) -> bool:
    """Return True if a mix has no more nodes of any type than another."""
    return all(count <= most for count, most in zip(size, other, strict=True))


def _mix_text(size: Sequence[int]) -> str:
    """Return the numbers of a mix as text: "5", or "4 + 1"."""
    return " + ".join(map(str, size))
