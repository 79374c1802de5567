"""When a run is given up, and in which words."""

from __future__ import annotations

from typing import Final

from sim.clock import LATEST_S, STEP_S
from sim.columns import Columns, IdSet
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
TIMELESS: Final = "{} of the jobs would still run when the clock ends, " + f"{LATEST_S:g} s (63 years) after the first submission"
STANDSTILL: Final = (
    "{} of the jobs will never be done: again and again they get no further, as turns are no longer than pauses, stops lose all, or their speed is 0. "
    "Lower restart_s, let stopped jobs keep their work, or decide less often"
)
ROOMLESS: Final = "{} of the jobs can never start: nodes fail and are repaired again and again, but there is never room for any that the allocator would start"
_RARE: Final = 256
"""Decisions in a row without effect while nothing runs, after which a standstill is for want of room."""


def eventless(columns: Columns, running: IdSet, waiting: IdSet) -> str:
    """Return the sentence for a run in which nothing is to come although jobs run or wait."""
    if not running:
        return STUCK.format(len(waiting))
    moving = int((columns.array("rate")[running.ids()] > 0).sum())
    return TIMELESS.format(moving) if moving else MOTIONLESS.format(len(running))


def at_once(allocator: Allocator, trace: Trace, asked: JobId | None, now_s: float) -> str:
    """Return the sentence for a clock that hardly moves; `asked` = whose speed was asked for last."""
    job = "" if asked is None else f" (the speed of job {trace.frame['job_id'].iloc[asked]} was asked for last)"
    return (
        f"{type(allocator).__name__} was asked again and again at {now_s:.6f} s without any job ending and with the clock"
        f" moving less than {STEP_S:g} s each time{job}. Policy or performance model never come to an end there"
    )


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
