"""The core of a multiple-choice knapsack: the few sizes per job that a good choice can contain, found by a price per unit."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

import numpy as np

from sim.contract import Floats

_HALVINGS: Final = 24  # of the interval of prices; any price gives a valid bound, and this is near enough
_SLACK: Final = 1e-9  # of the sum of the largest values: what sums of floats may be off


def core(
    sizes: Sequence[Sequence[int]],
    values: Sequence[Sequence[float]],
    optional: Sequence[bool],
    capacity: int,
    reached: float | None = None,
) -> list[list[int]]:
    """Return, for every job, the places of sizes (-1 = nothing) that some choice worth at least `reached` can contain.

    Parameters
    ----------
    sizes, values, optional, capacity
        As for `allocators._knapsack.knapsack`.
    reached : float or None
        A value known to be possible; None = that of a choice found here, by price alone.

    Notes
    -----
    With a price ``y >= 0`` per unit no choice is worth more than ``y capacity + sum_i max_k (v_ik - y k)``, and none that contains size k of job i more than
    that less ``max_k' (v_ik' - y k') - (v_ik - y k)``: sizes for which this is below `reached` are in no such choice. The bound stays valid where further
    rules narrow the choice. Every list is empty if the least sizes of the obligatory jobs do not fit.
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
    price = _price(worth, units, capacity)
    net = worth - price * units
    best = net.max(axis=1)
    bound = price * capacity + best.sum()
    reached = _possible(worth, units, net, capacity) if reached is None else reached
    largest = np.where(worth > -inf, np.abs(worth), 0.0).max(axis=1).sum()
    keep = (worth > -inf) & (bound - (best[:, None] - net) >= reached - _SLACK * largest)
    return [(np.flatnonzero(row) - 1).tolist() for row in keep]


def _price(worth: Floats, units: Floats, capacity: int) -> float:
    """Find about the least price at which everybody's best size fits; of sizes that are equally good the smallest counts."""
    finite = worth[worth > -inf]
    low, high = 0.0, float(finite.max() - finite.min()) + 1.0
    if _used(worth, units, low) <= capacity:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _used(worth, units, middle) <= capacity else (middle, high)
    return high


def _used(worth: Floats, units: Floats, price: float) -> float:
    net = worth - price * units
    return float(np.where(net == net.max(axis=1)[:, None], units, inf).min(axis=1).sum())


def _possible(worth: Floats, units: Floats, net: Floats, capacity: int) -> float:
    """Return the worth of a choice that fits: everybody's best at the price, then larger sizes while units are left."""
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
