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
STUCK: Final = "{} of the jobs can never start: nothing runs, nothing is to come, and the allocator leaves them waiting"
MOTIONLESS: Final = "{} of the jobs run at a speed of 0, and nothing is to come that would change that"
STANDSTILL: Final = (
    "{} of the jobs will never be done: again and again they get no further, as turns are no longer than pauses, stops lose all, or their speed is 0. "
    "Lower restart_s, let stopped jobs keep their work, or decide less often"
)
ROOMLESS: Final = "{} of the jobs can never start: nodes fail and are repaired again and again, but there is never room for any that the allocator would start"
_RARE: Final = 256
"""Decisions in a row without effect while nothing runs, after which a standstill is for want of room."""


def standstill(jobs: int, idle: int) -> str:
    """Return the sentence for so many jobs that get no further, after so many decisions in a row without effect while nothing ran."""
    return (ROOMLESS if idle >= _RARE else STANDSTILL).format(jobs)


def never_done(trace: Trace, job: JobId, evictions: float, cause: str) -> str:
    """Return the sentence for a job that loses its grant again and again, the last time for this cause."""
    name = f"Job {trace.frame['job_id'].iloc[job]}"
    if cause == "oom":
        way = "Correct its columns of memory, limit retries, or choose a policy that gives more after a failure."
        return f"{name} was evicted {evictions:,} times, at last for lack of memory: it asks for less than it needs. {way}"
    way = "Raise mtbf_h, save more often, or limit retries."
    return f"{name} lost its nodes {evictions:,} times and is not done: failures come faster than checkpoints. {way}"


def impossible_plan(allocator: Allocator, now_s: float, trace: Trace, job: JobId, what: str) -> str:
    """Return the sentence for a plan that cannot be carried out."""
    known = 0 <= job < len(trace)
    name = f"job {job} ({trace.frame['job_id'].iloc[job]})" if known else f"job {job}, which does not exist"
    return f"{type(allocator).__name__} made an impossible plan at {now_s:.3f} s for {name}: {what}. The run was stopped."
