"""Queue rules: a policy's queueing described as a value, for loops over arrays.

Such a loop follows the rule without calling the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

KEYS = ("arrival_s", "priority", "run_time_s", "gpu_time_s")
"""Sort keys of jobs: submission, priority (highest first), estimated run time at the requested size
on the preferred type, and that times GPUs (at least one).
"""


@dataclass(frozen=True)
class QueueRule:
    """The rule of a policy with one queue of whole gangs, applied after every event.

    Parameters
    ----------
    key : tuple of str
        Of `KEYS`, read when a job begins to wait; smaller first, ties by job id. With
        ``preemption = "attained"`` the order within a queue: ("arrival_s",) = submission, () =
        running jobs, then waiting ones, stopped jobs first.
    placement, types : str
        Values of the parameters of that name.
    backfill : str
        "none": the first job that does not fit blocks all jobs behind it. "locked": also later
        ones with a smaller key. "first_fit": it is skipped. "reservation": it gets the earliest
        start by the estimated ends of running jobs; jobs that do not delay it may pass.
    preemption : str
        "none". "remaining": the jobs with the least estimated remaining time run, by key in
        seconds or GPU-seconds; ties keep the previous order. "attained": the jobs in the first of
        several queues run; a job leaves a queue after enough service. Both preempt as few other
        jobs as needed.
    limits : tuple of float, GPU-seconds or seconds
        With "attained": the service at which a job leaves each queue except the last.
    per_gpu : bool
        With "attained": whether service is GPU-seconds, else seconds.
    moves : bool
        With preemption: whether running jobs move to a better type if that saves time.
    depth : int
        With "reservation": jobs behind the first one that may pass.
    spare : bool
        With "reservation": whether a job may outlast that start on GPUs spare then.
    by_limit : bool
        With "reservation": whether a job's time limit replaces the estimate.
    by : str
        "vc" or "partition": each has a queue and nodes of its own; "" = one queue.
    unused : str
        Remark for a run without a job that passed or preempted others, or left the first queue.
    """

    key: tuple[str, ...] = ()
    placement: str = "fewest"
    types: str = "fastest"
    backfill: str = "none"
    preemption: str = "none"
    limits: tuple[float, ...] = ()
    per_gpu: bool = True
    moves: bool = False
    depth: int = 0
    spare: bool = True
    by_limit: bool = False
    by: str = ""
    unused: str = ""
