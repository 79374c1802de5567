"""The multiple-choice knapsack: one size for every job, the best sum of values that fits into the units there are; exact, by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf
from typing import NamedTuple

import numpy as np

from sim.contract import Floats


class Choice(NamedTuple):
    """What to give to whom.

    Parameters
    ----------
    at : list of int
        For every job the place of its size among its sizes; -1 = nothing.
    objective : float
        Sum of the values chosen.
    """

    at: list[int]
    objective: float


def knapsack(sizes: Sequence[Sequence[int]], values: Sequence[Sequence[float]], optional: Sequence[bool], capacity: int) -> Choice | None:
    """Return the choice of the greatest value, or None if those that must get something do not fit together.

    Parameters
    ----------
    sizes : sequence of sequences of int
        For every job the numbers of units it may get, at least 1 each.
    values : sequence of sequences of float
        What each of them is worth, of any sign; -inf = not this one.
    optional : sequence of bool
        Whether a job may get nothing, which is worth 0.
    capacity : int
        Units to divide; some may be left over.

    Notes
    -----
    Row ``i`` of the table holds the best value of the first ``i`` jobs within ``0, 1, ..., capacity`` units. Time and memory grow with jobs x capacity.
    Of equal choices the one is taken that uses the fewest units; among those a job, the last one first, gets nothing if that is as good, else the size named
    first among its sizes. Where everybody's best size fits at once nothing needs to be computed.
    """
    best = [_best(size, value, may_skip) for size, value, may_skip in zip(sizes, values, optional, strict=True)]
    if sum([size[at] for size, at in zip(sizes, best, strict=True) if at >= 0]) <= capacity and all(map(_has_one, best, optional)):
        return _choice(values, best)
    if capacity < 0:
        return None
    rows = _table(sizes, values, optional, capacity)
    if rows[-1, capacity] == -inf:
        return None
    return _choice(values, _walk_back(rows, sizes, values, optional))


def _best(sizes: Sequence[int], values: Sequence[float], may_skip: bool) -> int:
    most, at, least = (0.0, -1, 0) if may_skip else (-inf, -1, 0)
    for place, (size, value) in enumerate(zip(sizes, values, strict=True)):
        if value > most or (value == most and size < least):
            most, at, least = value, place, size
    return at


def _has_one(at: int, may_skip: bool) -> bool:
    return at >= 0 or may_skip


def _table(sizes: Sequence[Sequence[int]], values: Sequence[Sequence[float]], optional: Sequence[bool], capacity: int) -> Floats:
    rows = np.empty((len(sizes) + 1, capacity + 1))
    rows[0] = 0.0
    scratch = np.empty(capacity + 1)
    add, maximum = np.add, np.maximum
    for at, may_skip in enumerate(optional):
        before, row = rows[at], rows[at + 1]
        if may_skip:
            row[:] = before
        else:
            row.fill(-inf)
        for size, value in zip(sizes[at], values[at], strict=True):
            if size <= capacity:
                room = capacity + 1 - size
                with_it, there = scratch[:room], row[size:]
                add(before[:room], value, out=with_it)
                maximum(there, with_it, out=there)
    return rows


def _walk_back(rows: Floats, sizes: Sequence[Sequence[int]], values: Sequence[Sequence[float]], optional: Sequence[bool]) -> list[int]:
    left = int(np.searchsorted(rows[-1], rows[-1, -1]))
    chosen = [-1] * len(sizes)
    for at in range(len(sizes) - 1, -1, -1):
        before, goal = rows[at], rows[at + 1, left]
        if optional[at] and before[left] == goal:
            continue
        for place, (size, value) in enumerate(zip(sizes[at], values[at], strict=True)):
            # The very sum that the table was filled with: equality is exact.
            if size <= left and before[left - size] + value == goal:
                chosen[at] = place
                left -= size
                break
    return chosen


def _choice(values: Sequence[Sequence[float]], chosen: list[int]) -> Choice:
    return Choice(chosen, fsum([value[at] for value, at in zip(values, chosen, strict=True) if at >= 0]))
