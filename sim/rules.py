"""What a policy may state of itself as a value: the rule of a queue, which a loop over arrays can
follow without asking the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

KEYS = ("arrival_s", "priority", "run_time_s", "gpu_time_s")
"""What jobs may be sorted by: submission, priority (the highest first), estimated run time at the
size asked for on the preferred type, and that times GPUs (at least one).
"""


@dataclass(frozen=True)
class QueueRule:
    """The rule of a policy with one queue of whole gangs, asked after every event.

    Parameters
    ----------
    key : tuple of str
        Of `KEYS`, as they are when a job begins to wait; smaller goes first. Ties go to the lower
        job id. With ``preemption = "attained"`` the order within a queue: ("arrival_s",) =
        submission, () = running jobs, then waiting ones, stopped jobs first.
    placement, types : str
        How nodes are chosen and which GPU types first, in the words of the parameters of that name.
    backfill : str
        "none": the first job without room holds up all behind it. "locked": it does so although a
        job with a smaller key arrives. "first_fit": it is skipped. "reservation": it is promised
        the earliest start that running jobs allow if they end as estimated, and others pass it that
        do not put that off.
    preemption : str
        "none"; "remaining": jobs run that are estimated to need the least time from now; equal ones
        stand as at the decision before; "attained": jobs run that are in the first of several
        queues, which they leave by the service that they have received. With both, other jobs are
        stopped for them, as few as needed.
    limits : tuple of float, GPU-seconds or seconds
        With "attained" the service at which a job leaves each queue but the last one.
    per_gpu : bool
        With "attained" whether each GPU counts, else seconds whatever the number of GPUs.
    depth : int
        With "reservation" how many jobs behind the first one may pass.
    spare : bool
        With "reservation" whether a job may outlast that start on GPUs that are left over then.
    by_limit : bool
        With "reservation" whether time limits count instead of estimates, where a job has one.
    unused : str
        What the policy remarks if no job has passed or stopped another one, or, with "attained",
        left the first queue.
    """

    key: tuple[str, ...] = ()
    placement: str = "fewest"
    types: str = "fastest"
    backfill: str = "none"
    preemption: str = "none"
    limits: tuple[float, ...] = ()
    per_gpu: bool = True
    depth: int = 0
    spare: bool = True
    by_limit: bool = False
    unused: str = ""
