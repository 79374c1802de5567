"""A made history: when each job of a generated trace would have started in a plain cluster."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.errors import TraceError
from sim.generate.workload import gpus_by_type
from sim.trace import Trace

PATIENCE_S: Final = 3600.0  # once the first job in the queue has waited this long, none may pass it
DEPTH: Final = 100  # jobs behind the first that may pass it
DELAY_MEDIAN_S: Final = 4.0  # from the decision to the recorded start: containers, mounts, rendezvous
DELAY_SIGMA: Final = 1.0


@dataclass(slots=True)
class _Pool:
    """The GPUs of one type: how many are free, when held ones come back, who waits."""

    free: int
    back: list[tuple[float, int]] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)


def with_history(trace: Trace, cluster: Cluster, seed: int) -> Trace:
    """Add `start_time_s` and `end_time_s`: first come first served with backfilling by free GPU count and a lognormal dispatch delay.

    Parameters
    ----------
    trace : Trace
        Each job runs on the type its `gpu_type` names, at its recorded run time.
    cluster : Cluster
        Never more GPUs of a type are held than it has. Nodes are not looked at: a gang may lie across any nodes of its type.
    seed : int
        Seed of the dispatch delays (median 4 s, standard deviation of the logarithm 1); GPUs are held during the delay.

    Returns
    -------
    Trace
        The same jobs with the two columns.

    Raises
    ------
    TraceError
        If a job asks for more GPUs than the cluster has of its type.

    Notes
    -----
    Up to 100 jobs behind the first of the queue may pass it while it does not fit and has waited less than an hour; after that it blocks.
    """
    sizes = gpus_by_type(cluster)
    kinds = np.asarray(trace.texts("gpu_type")).astype(str)
    gpus = trace.frame["num_gpus"].to_numpy()
    for job, (kind, wanted) in enumerate(zip(kinds, gpus, strict=True)):
        if wanted > sizes.get(kind, 0):
            raise TraceError(f"{trace.name}: job {job + 1} asks for {wanted} GPUs of type {kind}, the cluster has {sizes.get(kind, 0)}. Use the cluster it was made for.")
    submit, duration = trace.numbers("submit_time_s"), trace.numbers("duration_s")
    delay = np.rint(DELAY_MEDIAN_S * np.exp(DELAY_SIGMA * np.random.default_rng(seed).standard_normal(len(trace))))
    start = np.empty(len(trace))
    for kind, count in sizes.items():
        mine = np.flatnonzero(kinds == kind)
        start[mine] = _starts(submit[mine], gpus[mine], duration[mine], delay[mine], count)
    frame = trace.frame.assign(start_time_s=start, end_time_s=start + duration)
    return Trace.of(frame, name=trace.name, epoch=trace.epoch)


def _starts(
    submit: NDArray[np.float64], gpus: NDArray[np.int64], duration: NDArray[np.float64], delay: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    pool = _Pool(count)
    start = np.empty(len(submit))
    arriving = 0
    while arriving < len(submit) or pool.queue:
        arrival = submit[arriving] if arriving < len(submit) else np.inf
        now = min(arrival, pool.back[0][0]) if pool.back else arrival
        while pool.back and pool.back[0][0] <= now:
            pool.free += heapq.heappop(pool.back)[1]
        while arriving < len(submit) and submit[arriving] <= now:
            pool.queue.append(arriving)
            arriving += 1
        for job in _startable(pool, now, submit, gpus):
            start[job] = now + delay[job]
            heapq.heappush(pool.back, (start[job] + duration[job], int(gpus[job])))
    return start


def _startable(pool: _Pool, now: float, submit: NDArray[np.float64], gpus: NDArray[np.int64]) -> list[int]:
    """Take the jobs that start now off the queue, and their GPUs."""
    chosen: list[int] = []
    while pool.queue and gpus[pool.queue[0]] <= pool.free:
        job = pool.queue.popleft()
        pool.free -= int(gpus[job])
        chosen.append(job)
    if not pool.queue or not pool.free or now - submit[pool.queue[0]] >= PATIENCE_S:
        return chosen
    for job in [pool.queue[at] for at in range(1, min(DEPTH, len(pool.queue)))]:
        if gpus[job] <= pool.free:
            pool.queue.remove(job)
            pool.free -= int(gpus[job])
            chosen.append(job)
    return chosen
