"""Arrival streams and closed formulas of queueing theory."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import factorial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.trace import Trace

Floats = NDArray[np.float64]


def stream(arrivals: Floats, sizes: Floats) -> Trace:
    """Build a trace of 1-GPU jobs."""
    frame = pd.DataFrame(
        {
            "job_id": np.arange(len(sizes)).astype(str),
            "submit_time_s": arrivals,
            "num_gpus": 1,
            "duration_s": sizes,
        }
    )
    return Trace.of(frame)


def erlang_c(servers: int, load: float) -> float:
    """Return the probability of waiting in M/M/c; `load` is the offered load in erlangs (Erlang
    1917; Kleinrock, Queueing Systems I, 3.4).
    """
    last = load**servers / factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / factorial(k) for k in range(servers)) + last)


def mmc_wait_s(servers: int, rate: float, mean_s: float) -> float:
    """Return the mean waiting time of M/M/c."""
    return erlang_c(servers, rate * mean_s) * mean_s / (servers - rate * mean_s)


def mg1_wait_s(rate: float, mean_s: float, second_moment: float) -> float:
    """Return the mean waiting time of M/G/1 (Pollaczek-Khinchine)."""
    return rate * second_moment / (2 * (1 - rate * mean_s))


def first_come_starts(
    arrivals: Sequence[float], sizes: Sequence[float], servers: int
) -> list[float]:
    """Return when each job starts, first come first served: the recursion of Kiefer and Wolfowitz
    (1955).
    """
    free = [0.0] * servers
    starts = []
    for arrival, size in zip(arrivals, sizes, strict=True):
        starts.append(max(arrival, heapq.heappop(free)))
        heapq.heappush(free, starts[-1] + size)
    return starts


def least_total_completion(jobs: Sequence[tuple[int, int]]) -> int:
    """Return the least sum of completion times that any preemptive schedule of (arrival, size) jobs
    reaches on one GPU, by trying all, slot by slot.
    """
    best: dict[tuple[int, tuple[int, ...]], int] = {}

    def rest(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        key = (now, left)
        if key not in best:
            ready = [at for at, (arrival, _) in enumerate(jobs) if arrival <= now and left[at]]
            options = [rest(now + 1, left)] if not ready else []
            for at in ready:
                after = (*left[:at], left[at] - 1, *left[at + 1 :])
                options.append((now + 1 if left[at] == 1 else 0) + rest(now + 1, after))
            best[key] = min(options)
        return best[key]

    return rest(0, tuple(size for _, size in jobs))
