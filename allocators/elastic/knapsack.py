"""Multiple-choice knapsack: one size per job with the best total value, solved exactly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import frexp, fsum, inf
from typing import Final, NamedTuple

import numpy as np

from sim.contract import Floats

_HALVINGS: Final = 24  # of the price interval; any price gives a valid bound, and this is close
_SLACK: Final = 1e-9  # rounding error of a sum, relative to the sum of the largest values


def core(
    sizes: Sequence[Sequence[int]],
    values: Sequence[Sequence[float]],
    optional: Sequence[bool],
    capacity: int,
    reached: float | None = None,
) -> list[list[int]]:
    """Return the size indices of each job that a choice of value `reached` can contain.

    Index -1 stands for no size.

    Parameters
    ----------
    sizes, values, optional, capacity
        As for `allocators.elastic.knapsack.knapsack`.
    reached : float or None
        A value that is possible; None = compute one by price alone.

    Notes
    -----
    With a price ``y >= 0`` per unit no choice is worth more than ``y capacity + sum_i max_k (v_ik -
    y k)``, and none with size k for job i more than that less ``max_k' (v_ik' - y k') - (v_ik - y
    k)``: sizes with a bound below `reached` are in no such choice. The bound stays valid if further
    rules restrict the choice. Every list is empty if the least sizes of the obligatory jobs do not
    fit.
    """
    if not sizes:
        return []
    width = max(map(len, sizes)) + 1
    worth, units = np.full((len(sizes), width), -inf), np.zeros((len(sizes), width))
    worth[:, 0] = np.where(optional, 0.0, -inf)
    for at, (size, value) in enumerate(zip(sizes, values, strict=True)):
        worth[at, 1 : len(size) + 1], units[at, 1 : len(size) + 1] = value, size
    worth[units > capacity] = -inf
    least = np.where(worth > -inf, units, inf).min(axis=1, initial=inf)
    if not least.sum() <= capacity:
        return [[] for _ in sizes]
    price = _clearing_price(worth, units, capacity)
    net = worth - price * units
    best = net.max(axis=1)
    bound = price * capacity + best.sum()
    reached = _greedy_value(worth, units, net, capacity) if reached is None else reached
    largest = np.where(worth > -inf, np.abs(worth), 0.0).max(axis=1).sum()
    keep = (worth > -inf) & (bound - (best[:, None] - net) >= reached - _SLACK * largest)
    return [(np.flatnonzero(row) - 1).tolist() for row in keep]


def _clearing_price(worth: Floats, units: Floats, capacity: int) -> float:
    """Return approximately the lowest price at which the best sizes of all jobs fit.

    In a tie the smallest size counts.
    """
    finite = worth[worth > -inf]
    low, high = 0.0, float(finite.max() - finite.min()) + 1.0
    if _units_at_price(worth, units, low) <= capacity:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _units_at_price(worth, units, middle) <= capacity else (middle, high)
        )
    return high


def _units_at_price(worth: Floats, units: Floats, price: float) -> float:
    """Return the units used if every job takes its best size at this price; ties: smallest."""
    net = worth - price * units
    return float(np.where(net == net.max(axis=1)[:, None], units, inf).min(axis=1).sum())


def _greedy_value(worth: Floats, units: Floats, net: Floats, capacity: int) -> float:
    """Return the value of a choice that fits.

    Each job takes its best size at the price, then larger sizes while units are left.
    """
    chosen = np.where(net == net.max(axis=1)[:, None], units, inf).argmin(axis=1)
    rows = np.arange(len(worth))
    left = capacity - units[rows, chosen].sum()
    gain = worth - worth[rows, chosen][:, None]
    for at in np.argsort(-gain.max(axis=1), kind="stable"):
        more = units[at] - units[at, chosen[at]]
        fits = np.where(more <= left, gain[at], -inf)
        place = int(fits.argmax())
        if fits[place] > 0:
            left -= more[place]
            chosen[at] = place
    return float(worth[rows, chosen].sum())


Values = Sequence[Sequence[float]]
"""A number for every size of every job."""


class ChosenSizes(NamedTuple):
    """The chosen size of every job.

    Parameters
    ----------
    at : list of int
        Index of each job's size among its sizes; -1 = none.
    objective : float
        Sum of the values chosen.
    """

    at: list[int]
    objective: float


def knapsack(
    sizes: Sequence[Sequence[int]],
    values: Values,
    optional: Sequence[bool],
    capacity: int,
    ties: Sequence[Values] = (),
) -> ChosenSizes | None:
    """Return the choice of the greatest value, or None if obligatory jobs do not fit.

    Parameters
    ----------
    sizes : sequence of sequences of int
        For every job the numbers of units it may get, at least 1 each.
    values : sequence of sequences of float
        Value of each size, of any sign; -inf = not allowed.
    optional : sequence of bool
        Whether a job may get nothing, with value 0.
    capacity : int
        Units to divide; some may be left over.
    ties : sequence of values
        Among choices of the same value the greatest sum of the first of these decides, then that of
        the second, and so on.

    Notes
    -----
    Row ``i`` of the table holds the best value of the first ``i`` jobs within ``0, 1, ...,
    capacity`` units; time grows with jobs x sizes x capacity. Only sizes of the `core` are tried;
    jobs with a single such size need no row. Only a block of rows is stored at a time, and computed
    again on the way back.

    Values are rounded to a grid that is fine enough to miss the optimum by at most some 1e-12 of
    the objective, and coarse enough that all sums are exact. So equal choices compare as equal.
    Where `ties` do not decide, the last job gets nothing if that is as good, else the first of its
    sizes; then the job before it, and so on.
    """
    if capacity < 0:
        return None
    levels = [_round_to_grid(level) for level in (values, *ties)]
    allowed = core(sizes, levels[0], optional, capacity)
    if not all(allowed):
        return None
    chosen = [_best_place(levels, job, places) for job, places in enumerate(allowed)]
    if _used_units(sizes, chosen) <= capacity:
        return _chosen_sizes(values, chosen)
    for job in (several := [job for job, places in enumerate(allowed) if len(places) > 1]):
        chosen[job] = -1
    jobs = [_job_options(sizes[job], levels, job, allowed[job]) for job in several]
    best_places = _solve_table(jobs, capacity - _used_units(sizes, chosen), len(levels))
    for job, at in zip(several, best_places, strict=True):
        chosen[job] = at
    return _chosen_sizes(values, chosen)


_MIN_ROWS = 64
_MAX_CELLS = 16_000_000  # of a table, 128 MB


class _Job(NamedTuple):
    """Size indices of a job in order of preference, with units and values of every level."""

    places: list[int]
    units: list[int]
    values: list[tuple[float, ...]]


def _job_options(
    sizes: Sequence[int], levels: Sequence[Values], job: int, places: list[int]
) -> _Job:
    """Return a job's allowed size indices with their units and their values on every level."""
    units = [sizes[at] if at >= 0 else 0 for at in places]
    return _Job(places, units, [_size_values(levels, job, at) for at in places])


def _size_values(levels: Sequence[Values], job: int, at: int) -> tuple[float, ...]:
    """Return the values of a job's size on every level; zeros for no size."""
    return tuple([level[job][at] if at >= 0 else 0.0 for level in levels])


def _used_units(sizes: Sequence[Sequence[int]], chosen: Sequence[int]) -> int:
    """Return the units used by a choice of sizes."""
    return sum([size[at] for size, at in zip(sizes, chosen, strict=True) if at >= 0])


def _round_to_grid(values: Values) -> list[list[float]]:
    """Round values to a grid on which all sums are exact."""
    flat = np.array([value for row in values for value in row])
    grid = 2.0 ** (frexp(float(np.abs(flat[flat > -inf]).sum()))[1] - 52)
    rounded = iter((np.rint(flat / grid) * grid).tolist())
    return [list(islice(rounded, len(row))) for row in values]


def _best_place(levels: Sequence[Values], job: int, places: Sequence[int]) -> int:
    """Return the size index with the best values for a job, compared level by level."""
    return max(places, key=lambda at: _size_values(levels, job, at))


def _solve_table(jobs: Sequence[_Job], capacity: int, levels: int) -> list[int]:
    """Return the best size index per job within the capacity, by dynamic programming.

    The table is filled block by block and again on the way back.
    """
    block = max(_MIN_ROWS, _MAX_CELLS // (levels * (capacity + 1)))
    starts = range(0, len(jobs), block)
    firsts = [np.zeros((levels, capacity + 1))]
    for start in starts[:-1]:
        firsts.append(_fill_table(jobs[start : start + block], firsts[-1])[-1].copy())
    chosen, left = list[int](), capacity
    for start, first in zip(reversed(starts), reversed(firsts), strict=True):
        some = jobs[start : start + block]
        rows = _fill_table(some, first)
        for at in range(len(some) - 1, -1, -1):
            place, left = _step_back(some[at], rows[at], rows[at + 1], left)
            chosen.append(place)
    return chosen[::-1]


def _fill_table(jobs: Sequence[_Job], first: Floats) -> Floats:
    """Return a block of table rows: the best values by units used, on all levels.

    The next level decides between choices that are equal on one.
    """
    levels, width = first.shape
    rows = np.full((len(jobs) + 1, levels, width), -inf)
    rows[0] = first
    for before, row, job in zip(rows, rows[1:], jobs, strict=False):
        for size, values in zip(job.units, job.values, strict=True):
            room = width - size
            if room <= 0:
                continue
            there = row[:, size:]
            with_it = before[:, :room] + np.array(values)[:, None]
            if levels == 1:
                np.maximum(there, with_it, out=there)
                continue
            better, equal = with_it[0] > there[0], with_it[0] == there[0]
            for level in range(1, levels):
                better |= equal & (with_it[level] > there[level])
                equal &= with_it[level] == there[level]
            np.copyto(there, with_it, where=better)
    return rows


def _step_back(job: _Job, before: Floats, row: Floats, left: int) -> tuple[int, int]:
    """Return the size index that gave a job's table entry, and the units left before it."""
    goal = row[:, left]
    for place, size, values in zip(job.places, job.units, job.values, strict=True):
        # The same sum filled the table, so equality is exact.
        if size <= left and (before[:, left - size] + np.array(values) == goal).all():
            return place, left - size
    raise AssertionError("no option leads to the value in the table")


def _chosen_sizes(values: Values, chosen: list[int]) -> ChosenSizes:
    """Return the chosen sizes with their total value."""
    return ChosenSizes(
        chosen, fsum([value[at] for value, at in zip(values, chosen, strict=True) if at >= 0])
    )
