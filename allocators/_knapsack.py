"""The multiple-choice knapsack: one size for every job, the best sum of values that fits into the units there are; exact, by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import frexp, fsum, inf
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
    Row ``i`` of the table holds the best value of the first ``i`` jobs within ``0, 1, ..., capacity`` units; time grows with jobs x sizes x capacity. Only a
    block of rows is kept at a time, and computed again on the way back. Where everybody's best size fits at once nothing needs to be computed.

    Values are rounded to a grid that is so fine that the optimum is missed by no more than some 1e-12 of the objective, and so coarse that all sums are
    exact. Equal choices are then seen to be equal: of these a job, the last one first, gets nothing if that is as good, else the size named first among its
    sizes.
    """
    worth = _on_grid(values)
    best = [_best(value, may_skip) for value, may_skip in zip(worth, optional, strict=True)]
    if sum([size[at] for size, at in zip(sizes, best, strict=True) if at >= 0]) <= capacity:
        return _choice(values, best) if all(map(_has_one, best, optional)) else None
    if capacity < 0:
        return None
    jobs = _Jobs(sizes, worth, optional)
    block = max(_LEAST_ROWS, _MOST_CELLS // (capacity + 1))
    starts = range(0, len(sizes), block)
    firsts = [np.zeros(capacity + 1)]
    for start in starts[:-1]:
        firsts.append(_table(jobs, start, start + block, firsts[-1])[-1].copy())
    chosen, left = [-1] * len(sizes), capacity
    for start, first in zip(reversed(starts), reversed(firsts), strict=True):
        rows = _table(jobs, start, min(start + block, len(sizes)), first)
        if rows[-1, left] == -inf:
            return None
        left = _walk_back(rows, jobs, start, left, chosen)
    return _choice(values, chosen)


_LEAST_ROWS = 64
_MOST_CELLS = 16_000_000  # of a table: 128 MB


class _Jobs(NamedTuple):
    sizes: Sequence[Sequence[int]]
    values: Sequence[Sequence[float]]
    optional: Sequence[bool]


def _on_grid(values: Sequence[Sequence[float]]) -> list[list[float]]:
    flat = np.array([value for row in values for value in row])
    grid = 2.0 ** (frexp(float(np.abs(flat[flat > -inf]).sum()))[1] - 52)
    rounded = iter((np.rint(flat / grid) * grid).tolist())
    return [list(islice(rounded, len(row))) for row in values]


def _best(values: Sequence[float], may_skip: bool) -> int:
    most, at = (0.0, -1) if may_skip else (-inf, -1)
    for place, value in enumerate(values):
        if value > most:
            most, at = value, place
    return at


def _has_one(at: int, may_skip: bool) -> bool:
    return at >= 0 or may_skip


def _table(jobs: _Jobs, start: int, stop: int, first: Floats) -> Floats:
    capacity = len(first) - 1
    rows = np.empty((stop - start + 1, capacity + 1))
    rows[0] = first
    scratch = np.empty(capacity + 1)
    add, maximum = np.add, np.maximum
    for at in range(start, stop):
        before, row = rows[at - start], rows[at - start + 1]
        if jobs.optional[at]:
            row[:] = before
        else:
            row.fill(-inf)
        for size, value in zip(jobs.sizes[at], jobs.values[at], strict=True):
            if size <= capacity:
                room = capacity + 1 - size
                with_it, there = scratch[:room], row[size:]
                add(before[:room], value, out=with_it)
                maximum(there, with_it, out=there)
    return rows


def _walk_back(rows: Floats, jobs: _Jobs, start: int, left: int, chosen: list[int]) -> int:
    """Read the choices of a block off its table, the last one first, and return the units left for those before."""
    for at in range(start + len(rows) - 2, start - 1, -1):
        before, goal = rows[at - start], rows[at - start + 1, left]
        if jobs.optional[at] and before[left] == goal:
            continue
        for place, (size, value) in enumerate(zip(jobs.sizes[at], jobs.values[at], strict=True)):
            # The very sum that the table was filled with: equality is exact.
            if size <= left and before[left - size] + value == goal:
                chosen[at] = place
                left -= size
                break
    return left


def _choice(values: Sequence[Sequence[float]], chosen: list[int]) -> Choice:
    return Choice(chosen, fsum([value[at] for value, at in zip(values, chosen, strict=True) if at >= 0]))
