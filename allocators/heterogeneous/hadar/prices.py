"""Hadar's utility of a finish time and price of a GPU on a partly used node."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sim.contract import Floats, Ints

UTILITIES: Final = ("auto", "effective_throughput_normalised", "raw", "jct", "makespan", "ftf")
MIN_RATIO: Final = 1e-12
"""Least ratio of the lowest to the highest price; the largest is a half."""


class QueueSizes(NamedTuple):
    """Sizes and speeds of the jobs, the input of utilities and prices.

    Parameters
    ----------
    gangs : array of int, shape (jobs,)
        GPUs that each job requests.
    arrival_s : array of shape (jobs,), seconds
        Submission.
    work, left : arrays of shape (jobs,)
        Estimated work when the job was first seen, and the work left.
    paces : array of shape (jobs, types)
        Estimated work per second of the complete gang on each type; 0 = does not run there. Every
        job runs on some type.
    """

    gangs: Ints
    arrival_s: Floats
    work: Floats
    left: Floats
    paces: Floats

    @property
    def best(self) -> Floats:
        """Return each job's work per second on its best type."""
        best: Floats = self.paces.max(axis=1)
        return best

    @property
    def worst(self) -> Floats:
        """Return each job's work per second on the slowest type on which it runs."""
        worst: Floats = np.where(self.paces > 0, self.paces, np.inf).min(axis=1)
        return worst


class PayoffFunction(NamedTuple):
    """Utility of every job by its finish: ``scale / (finish - origin)``.

    Parameters
    ----------
    scale, origin_s : arrays of shape (jobs,)
        Parameters of the function.
    shortest_s : array of shape (jobs,), seconds
        Least possible value of ``finish - origin``.
    """

    scale: Floats
    origin_s: Floats
    shortest_s: Floats

    def utilities(self, finish_s: Floats | float) -> Floats:
        """Return the utility of all jobs at these finishes."""
        return np.asarray(self.scale / np.maximum(finish_s - self.origin_s, 1e-9), np.float64)


def utility_functions(kind: str, queue: QueueSizes, now_s: float, devices: Ints) -> PayoffFunction:
    """Return the utility functions of all jobs.

    Parameters
    ----------
    kind : str
        One of `UTILITIES`. auto: effective throughput, normalized, if all jobs were submitted at
        the same time, else ftf. With ``a`` for submission, ``f`` for finish, ``w`` for work and
        ``v`` for the best rate: ``(w / v) / (f - a)``, the share of the best possible speed; ``w /
        (f - a)``, the effective throughput; ``1 / (f - a)``; for the makespan ``(left / v)^2 / (f -
        now)``, the share of the best possible speed from now on times the seconds that it takes, so
        that long jobs go first; for finish-time fairness the share of the best finish that is still
        possible times its ratio to the job's isolated time, so that jobs with the worst ratio go
        first.
    queue : QueueSizes
        The jobs.
    now_s : float, seconds
        The instant.
    devices : array of int, shape (types,)
        GPUs of each type, for the isolated time: that with one n-th of every type for each of n
        jobs.
    """
    if kind == "auto":
        is_batch = not np.ptp(queue.arrival_s)
        kind = "effective_throughput_normalised" if is_batch else "ftf"
    alone_s, rest_s = queue.work / queue.best, queue.left / queue.best
    if kind == "makespan":
        return PayoffFunction(rest_s**2, np.full(len(rest_s), now_s), rest_s)
    if kind == "ftf":
        soonest_s = now_s + rest_s - queue.arrival_s
        return PayoffFunction(soonest_s**2 / isolated_s(queue, devices), queue.arrival_s, alone_s)
    scale = {
        "effective_throughput_normalised": alone_s,
        "raw": queue.work,
        "jct": np.ones(len(alone_s)),
    }[kind]
    return PayoffFunction(scale, queue.arrival_s, alone_s)


def isolated_s(queue: QueueSizes, devices: Ints) -> Floats:
    """Return the seconds that each job would take with an equal part of every GPU type.

    The part is one n-th for each of n jobs; shares of time add up to at most 1.
    """
    shares = devices[None, :] / (len(queue.gangs) * queue.gangs[:, None])
    shares = np.where(queue.paces > 0, shares, 0.0)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    rate = (queue.paces * shares).sum(axis=1)
    return np.asarray(queue.work / np.where(rate > 0, rate, queue.worst), np.float64)


def price_bounds(
    queue: QueueSizes, utility: PayoffFunction, now_s: float, gpus: int, eta: float
) -> tuple[Floats, Floats]:
    """Return the lowest and the highest price of a GPU of each type; zeros without jobs.

    Parameters
    ----------
    queue, utility : QueueSizes, PayoffFunction
        The jobs.
    now_s : float, seconds
        The instant.
    gpus : int
        GPUs in service.
    eta : float
        Divides the lowest price.

    Notes
    -----
    ``Umax = max_j U_j(shortest) / W_j`` and ``Umin = min_j U_j(T) / (4 eta t_j W_j)`` over the jobs
    that run on the type, ``t_j`` the seconds (1 or more) of the whole job on its slowest type.
    ``T``, the horizon, is when all jobs would have ended on their slowest types: all GPU-seconds
    over all GPUs, then the longest job.
    """
    rest_s = queue.left / queue.worst
    horizon_s = now_s + float((rest_s * queue.gangs).sum()) / max(gpus, 1) + float(rest_s.max())
    runs = queue.paces > 0
    highest = utility.utilities(utility.origin_s + utility.shortest_s) / queue.gangs
    slowest_s = np.maximum(queue.work / queue.worst, 1.0)
    lowest = utility.utilities(horizon_s) / (4 * eta * slowest_s * queue.gangs)
    most = np.where(runs, highest[:, None], 0.0).max(axis=0)
    least = np.where(runs, lowest[:, None], np.inf).min(axis=0)
    return np.clip(np.where(np.isinf(least), 0.0, least), MIN_RATIO * most, most / 2), most


def price_steps(least: float, most: float, gpus: int) -> list[float]:
    """Return the total cost of the first 0, 1, 2, ... GPUs of an empty node.

    The one after ``g`` others costs ``least (most / least)^(g / gpus)``.
    """
    if most <= 0:
        return [0.0] * (gpus + 1)
    each = least * (most / least) ** (np.arange(gpus) / max(gpus, 1))
    return [0.0, *np.cumsum(each).tolist()]
