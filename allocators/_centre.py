"""The analytic centre of all shares of time that keep a level: what an interior-point solver answers where the optimum leaves a choice."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from allocators._frontier import Market
from sim.contract import Floats

_INSIDE: Final = 1e-4  # how far, relatively, floors that are met exactly are lowered, so that there is an inside
_CLOSE: Final = 0.01  # of what a limit leaves x its price to 1; shares of time are then right to a third of a per cent
_MOST_STEPS: Final = 60
_BOUNDARY: Final = 0.95  # part of the way to the nearest limit that a step goes at most
_CHEAP: Final = 0.1  # first prices are those of limits that leave as much, or more


class _Jobs(NamedTuple):
    """What limits jobs; `rates` and `runs` are arrays (types, jobs)."""

    rates: Floats
    runs: Floats
    gangs: Floats
    floor: Floats
    devices: Floats


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
    so at once, which takes a quarter of the steps that climbing the product alone does. Jobs are coupled by the GPUs of types only, so that a step costs no
    more than some operations per job.
    Upstream's solvers end near this point, ours would at a corner of the choice: where GPUs are left over the two make schedules that differ by several per
    cent in the average completion time, and the centre is the one that reproduces the published code.
    """
    rates = market.kinds.T[:, market.kind]
    jobs = _Jobs(rates, (rates > 0).astype(float), market.gangs, floor * (1 - _INSIDE), market.devices)
    x = _inside(jobs, start.T)
    left = _limits(np.where(rates > 0, x, 1.0), 1 - x.sum(axis=0), (rates * x).sum(axis=0) - jobs.floor, jobs.devices - x @ jobs.gangs)
    prices = 1.0 / np.maximum(left, _CHEAP)
    for _ in range(_MOST_STEPS):
        step, more, dearer = _newton(jobs, left, prices)
        length = _length(left, more)
        x = x + length * step
        left = left + length * more
        prices = prices + _length(prices, dearer) * dearer
        if length == 1.0 and np.abs(left * prices - 1.0).max() < _CLOSE:
            break
    return x.T


def _inside(jobs: _Jobs, x: Floats) -> Floats:
    """Move shares that keep the limits to where they keep them all with something to spare, using up half of what is left."""
    more = jobs.runs * (np.maximum(1 - x.sum(axis=0), 0.0) / (len(x) + 1))
    gpus = np.maximum(jobs.devices - x @ jobs.gangs, 0.0)
    fits = 0.5 * gpus / np.maximum(more @ jobs.gangs, 0.5 * jobs.devices)
    little = jobs.runs * (np.minimum(1.0, jobs.devices / jobs.gangs.sum()) / len(x))[:, None]
    inside: Floats = (x + more * fits[:, None]) * (1 - _INSIDE / 2) + little * (_INSIDE / 4)
    return inside


def _limits(shares: Floats, time: Floats, speed: Floats, gpus: Floats) -> Floats:
    """Line up numbers of all limits: of shares, time and throughput of jobs, and of GPUs of types. Shares where a job does not run stay 1, which is none."""
    return np.concatenate((shares.ravel(), time, speed, gpus))


def _length(values: Floats, change: Floats) -> float:
    """Return the part of a step after which all values are still positive."""
    return min(1.0, _BOUNDARY / max(_BOUNDARY, -float((change / values).min())))


def _newton(jobs: _Jobs, left: Floats, prices: Floats) -> tuple[Floats, Floats, Floats]:
    """Return Newton's step: of shares, of what limits leave, and of prices.

    Notes
    -----
    Per job the matrix is a diagonal and two products of a vector with itself (time and throughput); over all jobs there is one more per type (GPUs), which
    the Woodbury identity takes care of.
    """
    types, count = jobs.rates.shape
    stiff, wanted = prices / left, 1.0 / left
    of_shares, (time, speed) = stiff[: types * count].reshape(types, count), stiff[types * count : -types].reshape(2, count)
    root = np.sqrt(jobs.runs / of_shares)
    inverse = _inverse(np.sqrt(time) * root, np.sqrt(speed) * jobs.rates * root)
    inverse *= root[:, None] * root
    pull = wanted[: types * count].reshape(types, count) - jobs.gangs * wanted[-types:, None]
    time, speed = wanted[types * count : -types].reshape(2, count)
    pull += jobs.rates * speed - time
    freely = np.einsum("ijm,jm->im", inverse, pull)
    inverse *= jobs.gangs
    coupled = inverse @ jobs.gangs
    coupled.flat[:: types + 1] += 1.0 / stiff[-types:]
    step = freely - np.einsum("ijm,j->im", inverse, np.linalg.solve(coupled, freely @ jobs.gangs))
    more = _limits(step, -step.sum(axis=0), (jobs.rates * step).sum(axis=0), -(step @ jobs.gangs))
    return step, more, wanted - prices - stiff * more


def _inverse(time: Floats, speed: Floats) -> Floats:
    """Return, for all jobs, the inverse of the identity + time x time + speed x speed; array (types, types, jobs).

    Notes
    -----
    With the products of both vectors crosswise, which stay exact where a job runs on one type all the time, so that both are long and all but parallel.
    """
    cross = time[:, None] * speed
    cross = cross - cross.swapaxes(0, 1)
    products = time[:, None] * time + speed[:, None] * speed
    crossed = np.einsum("ikm,jkm->ijm", cross, cross)
    size = 1.0 + np.einsum("iim->m", products) + 0.5 * np.einsum("iim->m", crossed)
    inverse: Floats = (products + crossed) / -size
    inverse.reshape(-1, time.shape[1])[:: len(time) + 1] += 1.0
    return inverse
