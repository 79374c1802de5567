"""The analytic centre of all shares of time that keep a level: what an interior-point solver answers where the optimum leaves a choice."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators._frontier import Market, alike
from sim.contract import Floats

_INSIDE: Final = 1e-5  # how far, relatively, limits that are met exactly are moved away, so that there is an inside
_CLOSE: Final = 1e-6  # of Newton's decrement, per job
_MOST_STEPS: Final = 100
_BOUNDARY: Final = 0.95  # part of the way to the nearest limit that a step goes at most


class _Jobs(NamedTuple):
    """Jobs, of which those that are alike in everything are one that counts several `times`; arrays (types, jobs) where there are two dimensions."""

    rates: Floats
    runs: NDArray[np.bool_]
    gangs: Floats
    floor: Floats
    times: Floats
    devices: Floats


class _Slack(NamedTuple):
    """What is left of the time of jobs, of the GPUs of types, and of throughput above the floor."""

    time: Floats
    gpus: Floats
    speed: Floats


def centre(market: Market, floor: Floats, start: Floats) -> Floats:
    """Return the shares of time that are farthest from all limits at once: of the greatest product of all slacks and shares.

    Parameters
    ----------
    market : Market
        At least one job.
    floor : array (jobs,)
        Relative throughputs that must be kept.
    start : array (jobs, types)
        Shares of time that keep the floor.

    Notes
    -----
    Newton's method on the sum of logarithms. Jobs are coupled by the GPUs of types only, so that a step costs no more than some operations per job.
    Upstream's solvers end near this point, ours would at a corner of the choice: where GPUs are left over the two make schedules that differ by several per
    cent in the average completion time, and the centre is the one that reproduces the published code.
    """
    different, which = alike(np.column_stack((market.kind, market.gangs, floor)))
    count = np.bincount(which, minlength=len(different)).astype(float)
    rates = market.kinds[different[:, 0].astype(np.int64)].T
    jobs = _Jobs(rates, rates > 0, different[:, 1], different[:, 2] * (1 - _INSIDE), count, market.devices * 1.0)
    x = _inside(jobs, np.stack([np.bincount(which, column, len(different)) / count for column in start.T]))
    height = _height(jobs, x)
    for _ in range(_MOST_STEPS):
        step, decrement = _newton(jobs, x)
        if decrement < _CLOSE * float(count.sum()):
            break
        x, height, moved = _climb(jobs, x, step, height, decrement)
        if not moved:
            break
    shares: Floats = x.T[which]
    return shares


def _slack(jobs: _Jobs, x: Floats) -> _Slack:
    return _Slack(1 - x.sum(axis=0), jobs.devices - x @ (jobs.times * jobs.gangs), (jobs.rates * x).sum(axis=0) - jobs.floor)


def _inside(jobs: _Jobs, x: Floats) -> Floats:
    """Move shares that keep the limits to where they keep them all with something to spare, using up half of what is left."""
    left = _slack(jobs, x)
    more = np.where(jobs.runs, np.maximum(left.time, 0.0) / (len(x) + 1), 0.0)
    asked = more @ (jobs.times * jobs.gangs)
    fits = 0.5 * np.maximum(left.gpus, 0.0) / np.maximum(asked, 0.5 * jobs.devices)
    little = np.where(jobs.runs, np.minimum(1.0, jobs.devices / (jobs.times @ jobs.gangs))[:, None] / len(x), 0.0)
    inside: Floats = (x + more * fits[:, None]) * (1 - _INSIDE / 2) + little * (_INSIDE / 4)
    return inside


def _height(jobs: _Jobs, x: Floats) -> float:
    left = _slack(jobs, x)
    if min(part.min() for part in left) <= 0 or (jobs.runs & (x <= 0)).any():
        return -np.inf
    per_job = np.log(np.where(jobs.runs, x, 1.0)).sum(axis=0) + np.log(left.time) + np.log(left.speed)
    return float(jobs.times @ per_job + np.log(left.gpus).sum())


def _newton(jobs: _Jobs, x: Floats) -> tuple[Floats, float]:
    """Return Newton's step, relative to `x`, and the square of its length in the local metric.

    Notes
    -----
    Scaled so, the Hessian is, per job, the identity and two products of a vector with itself (time and speed), and over all jobs one more per type (GPUs),
    which the Woodbury identity takes care of.
    """
    left = _slack(jobs, x)
    time, speed, gpus = x / left.time, jobs.rates * x / left.speed, jobs.gangs * x / left.gpus[:, None]
    pull = jobs.runs - time + speed - gpus
    root = _inverse_root(time, speed)
    pulled, pushed = (root * pull).sum(axis=1), root * gpus
    coupled, asked = np.eye(len(x)), np.zeros(len(x))
    for row, by_row in zip(pushed, pulled, strict=True):
        weighted = row * jobs.times
        coupled += weighted @ row.T
        asked += weighted @ by_row
    whitened = pulled - np.einsum("kjm,j->km", pushed, np.linalg.solve(coupled, asked))
    step = (root * whitened[:, None]).sum(axis=0)
    return step, float(jobs.times @ (pull * step).sum(axis=0))


def _inverse_root(time: Floats, speed: Floats) -> Floats:
    """Return, for all jobs, the inverse of the lower triangular root of the identity + time x time + speed x speed; array (types, types, jobs).

    Notes
    -----
    Cholesky's method, which stays exact where a job runs on one type all the time, so that both vectors are long and all but parallel.
    """
    types, jobs = time.shape
    root, inverse = np.zeros((2, types, types, jobs))
    for i in range(types):
        for j in range(i):
            root[i, j] = (time[i] * time[j] + speed[i] * speed[j] - (root[i, :j] * root[j, :j]).sum(axis=0)) / root[j, j]
        root[i, i] = np.sqrt(np.maximum(1.0, 1.0 + time[i] ** 2 + speed[i] ** 2 - (root[i, :i] ** 2).sum(axis=0)))
        inverse[i, i] = 1.0 / root[i, i]
        for j in range(i):
            inverse[i, j] = -(root[i, j:i] * inverse[j:i, j]).sum(axis=0) * inverse[i, i]
    return inverse


def _climb(jobs: _Jobs, x: Floats, step: Floats, height: float, decrement: float) -> tuple[Floats, float, bool]:
    """Go along a step as far as it is allowed and pays; tell whether it went anywhere."""
    change, left = step * x, _slack(jobs, x)
    nears = (
        -step.min(),
        (change.sum(axis=0) / left.time).max(),
        (change @ (jobs.times * jobs.gangs) / left.gpus).max(),
        (-(jobs.rates * change).sum(axis=0) / left.speed).max(),
    )
    length = min(1.0, _BOUNDARY / max(*map(float, nears), _BOUNDARY))
    while length > 1e-9:
        there = x + length * change
        reached = _height(jobs, there)
        if reached > height + 0.01 * length * decrement:
            return there, reached, True
        length /= 2
    return x, height, False
