"""A made history: when each job of a generated trace would have started in a plain cluster."""

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

PATIENCE_S: Final = 3600.0  # once the first job in the queue has waited this long, none may pass it
DEPTH: Final = 100  # jobs behind the first that may pass it
DELAY_MEDIAN_S: Final = (
    4.0  # from the decision to the recorded start: containers, mounts, rendezvous
)
DELAY_SIGMA: Final = 1.0


@dataclass(slots=True)
class _Pool:
    """The whole cluster: how many GPUs of each type are free, when held ones come back, who
    waits.
    """

    free: list[int]
    back: list[tuple[float, int, int]] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)

    def take(self, gpus: int) -> int:
        """Take the GPUs from the type with the most free ones and return its number; -1 = no type
        has enough.
        """
        most = max(self.free)
        if gpus > most:
            return -1
        kind = self.free.index(most)
        self.free[kind] -= gpus
        return kind


def with_history(trace: Trace, cluster: Cluster, seed: int) -> Trace:
    """Add `start_time_s` and `end_time_s`: first come first served with backfilling by free GPU
    count and a lognormal dispatch delay.

    Parameters
    ----------
    trace : Trace
        Jobs run for their recorded duration.
    cluster : Cluster
        Never more GPUs of a type are held than it has. Nodes are not looked at: a gang may lie
        across any nodes, but of one type.
    seed : int
        Seed of the dispatch delays (median 4 s, standard deviation of the logarithm 1); GPUs are
        held during the delay.

    Returns
    -------
    Trace
        The same jobs with the two columns; `gpu_type` says where each ran, the type with the most
        free GPUs at that instant.

    Raises
    ------
    TraceError
        If a job asks for more GPUs than any type has.

    Notes
    -----
    Up to 100 jobs behind the first of the queue may pass it while it does not fit and has waited
    less than an hour; after that it blocks.
    """
    sizes = gpus_by_type(cluster)
    gpus = trace.frame["num_gpus"].to_numpy()
    most = max(sizes.values(), default=0)
    if gpus.max() > most:
        job = trace.frame["job_id"].iloc[int(gpus.argmax())]
        raise TraceError(
            f"{trace.name}: job {job} asks for {gpus.max()} GPUs, but no type of the cluster has"
            f" more than {most}. Use the cluster the jobs were made for."
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
    """Return when each job is given its GPUs, and of which type."""
    pool = _Pool(sizes)
    start, kinds = np.empty(len(submit)), np.empty(len(submit), np.int64)
    arriving = 0
    while arriving < len(submit) or pool.queue:
        arrival = submit[arriving] if arriving < len(submit) else np.inf
        now = min(arrival, pool.back[0][0]) if pool.back else arrival
        while pool.back and pool.back[0][0] <= now:
            _, kind, count = heapq.heappop(pool.back)
            pool.free[kind] += count
        while arriving < len(submit) and submit[arriving] <= now:
            pool.queue.append(arriving)
            arriving += 1
        for job, kind in _startable(pool, now, submit, gpus):
            start[job], kinds[job] = now, kind
            heapq.heappush(pool.back, (now + held_s[job], kind, int(gpus[job])))
    return start, kinds


def _startable(pool: _Pool, now: float, submit: Floats, gpus: Ints) -> list[tuple[int, int]]:
    """Take the jobs that start now off the queue, and their GPUs; return job and type."""
    chosen: list[tuple[int, int]] = []
    while pool.queue and (kind := pool.take(int(gpus[pool.queue[0]]))) >= 0:
        chosen.append((pool.queue.popleft(), kind))
    if not pool.queue or not any(pool.free) or now - submit[pool.queue[0]] >= PATIENCE_S:
        return chosen
    for job in list(islice(pool.queue, 1, DEPTH + 1)):
        if (kind := pool.take(int(gpus[job]))) >= 0:
            pool.queue.remove(job)
            chosen.append((job, kind))
    return chosen
