"""The analytic centre of all shares of time that keep a level: what an interior-point solver answers where the optimum leaves a choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from allocators.timeshare.frontier import Market
from allocators.timeshare.problem import Floats

_INSIDE: Final = 1e-4  # how far, relatively, floors that are met exactly are lowered, so that there is an inside
_CLOSE: Final = 0.01  # of what a limit leaves x its price to 1; shares of time are then right to a third of a per cent
_MOST_STEPS: Final = 60
_BOUNDARY: Final = 0.95  # part of the way to the nearest limit that a step goes at most
_CHEAP: Final = 0.1  # first prices are those of limits that leave as much, or more
_FEW: Final = 32  # jobs up to which one dense matrix takes less time than some forty operations on columns

Balance = Callable[[Floats, Floats], Floats]
"""From what one more of its price takes off what a limit leaves, and what it would leave for nothing, to the prices that Newton's step leads to."""


def centre(market: Market, floor: Floats, start: Floats) -> Floats:
    """Return the shares of time that are farthest from all limits at once: of the greatest product of all slacks and shares.

    Parameters
    ----------
    market : Market
        At least one job.
    floor : array (jobs,)
        Relative throughputs that must be kept, but for a ten-thousandth.
    start : array (jobs, types)
        Shares of time that keep the floor.

    Notes
    -----
    The primal-dual form of Newton's method: every limit has a price, and at the centre its product with what the limit leaves is 1. Prices that must soar do
    so at once, which takes a quarter of the steps that climbing the product alone does.

    What limits leave adds up: a job's shares of time and its idle time to 1; what it loses on slower types or idle and what it has above its floor to
    1 - floor; what jobs hold of a type and its free GPUs to all of them. Prices add up the same way, each from one price per such sum, and those are the only
    unknowns of a step. Jobs are coupled by the GPUs of types only, so that many jobs cost no more than some operations each.

    Upstream's solvers end near this point, ours would at a corner of the choice: where GPUs are left over the two make schedules that differ by several per
    cent in the average completion time, and the centre is the one that reproduces the published code.
    """
    rates = market.kinds.T[:, market.kind]
    runs = rates > 0
    x = _inside(market, runs, start.T)
    speed = np.add.reduce(rates * x) - floor * (1 - _INSIDE)
    left = np.concatenate((x[runs], 1 - np.add.reduce(x), speed, market.devices - x @ market.gangs))
    prices = 1.0 / np.maximum(left, _CHEAP)
    balance = (_dense if len(floor) <= _FEW else _by_columns)(rates, runs, market.gangs)
    for _ in range(_MOST_STEPS):
        give, free = left / prices, 1.0 / prices
        asked = balance(give, free)
        more, dearer = free - give * asked, asked - prices
        length = _length(left, more)
        left = left + length * more
        prices = prices + _length(prices, dearer) * dearer
        if length == 1.0 and np.abs(left * prices - 1.0).max() < _CLOSE:
            break
    x[runs] = left[: np.count_nonzero(runs)]
    # Alike jobs are to tie whatever the machine: digits beyond those of single precision are rounding errors.
    return x.T.astype(np.float32).astype(np.float64)


def _inside(market: Market, runs: NDArray[np.bool_], x: Floats) -> Floats:
    """Move shares that keep the limits to where they keep them all with something to spare, using up half of what is left; array (types, jobs)."""
    more = runs * (np.maximum(1 - np.add.reduce(x), 0.0) / (len(x) + 1))
    gpus = np.maximum(market.devices - x @ market.gangs, 0.0)
    fits = 0.5 * gpus / np.maximum(more @ market.gangs, 0.5 * market.devices)
    little = runs * (np.minimum(1.0, market.devices / market.gangs.sum()) / len(x))[:, None]
    inside: Floats = (x + more * fits[:, None]) * (1 - _INSIDE / 2) + little * (_INSIDE / 4)
    return inside


def _length(values: Floats, change: Floats) -> float:
    """Return the part of a step after which all values are still positive."""
    return min(1.0, _BOUNDARY / max(_BOUNDARY, -float(np.minimum.reduce(change / values))))


def _dense(rates: Floats, runs: NDArray[np.bool_], gangs: Floats) -> Balance:
    """Write down which limits are in which sum, one sum a row."""
    types, jobs = rates.shape
    kind, job = np.nonzero(runs)
    share, every = np.arange(len(kind)), np.arange(jobs)
    sums = np.eye(2 * jobs + types, len(kind) + 2 * jobs + types, len(kind))
    sums[job, share] = 1.0
    sums[jobs + job, share] = 1.0 - rates[kind, job]
    sums[jobs + every, len(kind) + every] = 1.0
    sums[2 * jobs + kind, share] = gangs[job]

    def balance(give: Floats, free: Floats) -> Floats:
        asked: Floats = dposv((sums * give) @ sums.T, sums @ free)[1] @ sums
        return asked

    return balance


def _by_columns(rates: Floats, runs: NDArray[np.bool_], gangs: Floats) -> Balance:
    """Solve the same equations sum by sum, for all jobs at once: first those of time, then those of what is lost, last those of GPUs."""
    types, jobs = rates.shape
    used = np.vstack((runs, np.ones(jobs, dtype=bool)))  # idle time is one more type
    lost = np.vstack((1.0 - rates, np.ones(jobs)))
    ways = np.count_nonzero(used)

    def balance(give: Floats, free: Floats) -> Floats:
        time = np.zeros((2, *used.shape))
        time[:, used] = give[:ways], free[:ways]
        total = time.sum(axis=1)
        # Relative to a job's mean, losses stay exact where it runs on one type all the time.
        apart = lost - (lost * time[0]).sum(axis=0) / total[0]
        moved = apart * time
        rows = np.empty((types + 1, 2, jobs))
        rows[:-1, 0], rows[:-1, 1] = gangs * time[0, :-1], gangs * moved[0, :-1]
        rows[-1] = total[1], free[ways:-types] + moved[1].sum(axis=0)
        scaled = (rows / (total[0], give[ways:-types] + (apart * moved[0]).sum(axis=0))).reshape(types + 1, 2 * jobs)
        taken = rows.reshape(types + 1, 2 * jobs) @ scaled.T
        coupled = np.diag(give[-types:] + rows[:-1, 0] @ gangs) - taken[:-1, :-1]
        of_gpus = np.linalg.solve(coupled, free[-types:] + time[1, :-1] @ gangs - taken[:-1, -1])
        of_time, of_speed = (scaled[-1] - of_gpus @ scaled[:-1]).reshape(2, jobs)
        of_ways = of_time + apart * of_speed
        of_ways[:-1] += of_gpus[:, None] * gangs
        return np.concatenate((of_ways[used], of_speed, of_gpus))

    return balance
