"""When a run is given up, and in which words."""

from __future__ import annotations

from typing import Final

from sim.contract import Allocator, JobId
from sim.trace import Trace

PATIENCE: Final = 3
"""Decisions without effect after which nothing can happen any more."""
ENDLESS: Final = 100_000
"""The same for an allocator that goes on setting wake-ups."""
HOPELESS: Final = 10_000
"""Evictions of one job."""
TREADMILL: Final = 4096
"""Decisions, a multiple of 256, after which it is looked whether anybody has done any work since; so much time must have passed as well:"""
MANY_PAUSES: Final = 100
NEVER_DONE: Final = "Job {} lost its nodes {:,} times and is not done: failures come faster than checkpoints. Raise mtbf_h, save more often, or limit retries."
STUCK: Final = "{} of the jobs can never start: nothing runs, nothing is to come, and the allocator leaves them waiting"
STANDSTILL: Final = (
    "{} of the jobs will never be done: stopped and started again and again they get no further, as turns are no longer than pauses, or stops lose all"
)


def impossible_plan(allocator: Allocator, now_s: float, trace: Trace, job: JobId, what: str) -> str:
    """Return the sentence for a plan that cannot be carried out."""
    known = 0 <= job < len(trace)
    name = f"job {job} ({trace.frame['job_id'].iloc[job]})" if known else f"job {job}, which does not exist"
    return f"{type(allocator).__name__} made an impossible plan at {now_s:.3f} s for {name}: {what}. The run was stopped."
