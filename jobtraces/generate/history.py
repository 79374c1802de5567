"""Generated history: start times of jobs on a plain first-come-first-served cluster."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np
import pandas as pd

from jobtraces.generate.workload import Floats, Ints, gpus_by_type
from sim.cluster import Cluster
from sim.errors import TraceError
from sim.trace import Trace

MAX_PASSED_WAIT_S: Final = 3600.0  # no job may pass the first job in the queue after this wait
BACKFILL_DEPTH: Final = 100  # number of jobs behind the first that may pass it
DELAY_MEDIAN_S: Final = 4.0  # delay from decision to recorded start: containers, mounts, rendezvous
DELAY_SIGMA: Final = 1.0


@dataclass(slots=True)
class _Pool:
    """The cluster as a whole: free GPUs per type, upcoming releases, and the queue."""

    free: list[int]
    back: list[tuple[float, int, int]] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)

    def take(self, gpus: int) -> int:
        """Take GPUs of the type with the most free ones and return its index, or -1."""
        max_free = max(self.free)
        if gpus > max_free:
            return -1
        kind = self.free.index(max_free)
        self.free[kind] -= gpus
        return kind


def with_history(trace: Trace, cluster: Cluster, seed: int) -> Trace:
    """Add start and end times of a first-come-first-served schedule with backfilling.

    Parameters
    ----------
    trace : Trace
        The jobs; they run for their recorded duration.
    cluster : Cluster
        Limits the GPUs in use per type. Nodes are ignored: a gang may span any nodes of one type.
    seed : int
        Seed of the lognormal dispatch delays (median 4 s, sigma 1); GPUs are in use during the
        delay.

    Returns
    -------
    Trace
        The jobs with `start_time_s`, `end_time_s` and `gpu_type`, the type with the most free GPUs
        at the start.

    Raises
    ------
    TraceError
        If a job requests more GPUs than any type has.

    Notes
    -----
    Up to 100 jobs behind the first job in the queue may pass it while it does not fit and has
    waited less than an hour; after that it blocks the queue.
    """
    sizes = gpus_by_type(cluster)
    gpus = trace.frame["num_gpus"].to_numpy()
    max_gpus = max(sizes.values(), default=0)
    if gpus.max() > max_gpus:
        job = trace.frame["job_id"].iloc[int(gpus.argmax())]
        raise TraceError(
            f"{trace.name}: job {job} requests {gpus.max()} GPUs, but no GPU type of the cluster"
            f" has more than {max_gpus}. Use the cluster the jobs were generated for."
        )
    submit, duration = trace.numbers("submit_time_s"), trace.numbers("duration_s")
    delay = np.rint(
        DELAY_MEDIAN_S
        * np.exp(DELAY_SIGMA * np.random.default_rng(seed).standard_normal(len(trace)))
    )
    start, kind = _schedule(submit, gpus, duration + delay, list(sizes.values()))
    start += delay
    types = pd.Categorical.from_codes(kind, pd.Index(list(sizes)))
    frame = trace.frame.assign(start_time_s=start, end_time_s=start + duration, gpu_type=types)
    return Trace.of(frame, **trace.about)


def _schedule(submit: Floats, gpus: Ints, held_s: Floats, sizes: list[int]) -> tuple[Floats, Ints]:
    """Return the instant each job gets its GPUs, and the index of their type.

    First come, first served, with backfilling; `held_s` is the time a job holds its GPUs.
    """
    pool = _Pool(sizes)
    start, kinds = np.empty(len(submit)), np.empty(len(submit), np.int64)
    next_job = 0
    while next_job < len(submit) or pool.queue:
        arrival = submit[next_job] if next_job < len(submit) else np.inf
        now = min(arrival, pool.back[0][0]) if pool.back else arrival
        while pool.back and pool.back[0][0] <= now:
            _, kind, count = heapq.heappop(pool.back)
            pool.free[kind] += count
        while next_job < len(submit) and submit[next_job] <= now:
            pool.queue.append(next_job)
            next_job += 1
        for job, kind in _take_startable(pool, now, submit, gpus):
            start[job], kinds[job] = now, kind
            heapq.heappush(pool.back, (now + held_s[job], kind, int(gpus[job])))
    return start, kinds


def _take_startable(pool: _Pool, now: float, submit: Floats, gpus: Ints) -> list[tuple[int, int]]:
    """Return (job, type) of the jobs that start now, removed from the queue.

    Their GPUs are taken. Up to `BACKFILL_DEPTH` jobs pass the first one if it does not fit and has
    waited less than `MAX_PASSED_WAIT_S`.
    """
    chosen: list[tuple[int, int]] = []
    while pool.queue and (kind := pool.take(int(gpus[pool.queue[0]]))) >= 0:
        chosen.append((pool.queue.popleft(), kind))
    if not pool.queue or not any(pool.free) or now - submit[pool.queue[0]] >= MAX_PASSED_WAIT_S:
        return chosen
    for job in list(islice(pool.queue, 1, BACKFILL_DEPTH + 1)):
        if (kind := pool.take(int(gpus[job]))) >= 0:
            pool.queue.remove(job)
            chosen.append((job, kind))
    return chosen
