"""Reasons to give up a run, and the sentences that report them.

A run is given up when no event is planned, when the clock hardly moves although decisions continue,
or when no job advances: pauses and lost work consume all progress, or all rates are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import numpy as np

from sim.clock import LATEST_S, STEP_S
from sim.contract import Allocator, Floats, Ints, JobId
from sim.engine.columns import Columns, IdSet
from sim.trace import Trace

PATIENCE: Final = 3
"""Decisions without effect after which the run is given up."""
ENDLESS: Final = 100_000
"""Same limit for an allocator that keeps setting wake-ups."""
MAX_EVICTIONS: Final = 10_000
"""Maximum evictions of one job."""
STUCK: Final = (
    "{} of the jobs can never start: nothing runs, nothing is to come, and the allocator leaves"
    " them waiting"
)
MOTIONLESS: Final = (
    "{} of the jobs run at a speed of 0, and nothing is to come that would change that"
)
TIMELESS: Final = (
    "{} of the jobs would still run when the clock ends, "
    + f"{LATEST_S:g} s (63 years) after the first submission"
)
STANDSTILL: Final = (
    "{} of the jobs will never be done: again and again they get no further, as turns are no longer"
    " than pauses, stops lose all, or their speed is 0. Lower restart_s, let stopped jobs keep"
    " their work, or decide less often"
)
ROOMLESS: Final = (
    "{} of the jobs can never start: nothing runs, and however often the allocator is asked, there"
    " is never room for any that it would start"
)
_LONG_IDLE: Final = 256
"""Consecutive idle decisions after which the sentence blames a lack of free resources."""


def no_event_reason(columns: Columns, running: IdSet, waiting: IdSet) -> str:
    """Return the sentence for a run without future events although jobs run or wait."""
    if not running:
        return STUCK.format(len(waiting))
    moving = int((columns.array("rate")[running.ids()] > 0).sum())
    return TIMELESS.format(moving) if moving else MOTIONLESS.format(len(running))


def slow_clock_reason(
    allocator: Allocator, trace: Trace, rate_job: JobId | None, now_s: float
) -> str:
    """Return the sentence for a clock that hardly moves.

    `rate_job` is the job whose rate was last requested from the performance model.
    """
    job = (
        ""
        if rate_job is None
        else f" (the speed of job {trace.frame['job_id'].iloc[rate_job]} was asked for last)"
    )
    return (
        f"{type(allocator).__name__} was asked again and again at {now_s:.6f} s without any job"
        f" ending and with the clock moving less than {STEP_S:g} s each time{job}. The policy"
        " or performance model loops there"
    )


def stalled_reason(jobs: int, idle: int) -> str:
    """Return the sentence for a run without progress of `jobs` jobs.

    `idle`: consecutive decisions without effect while nothing ran.
    """
    return (ROOMLESS if idle >= _LONG_IDLE else STANDSTILL).format(jobs)


def too_many_evictions_reason(trace: Trace, job: JobId, evictions: float, cause: str) -> str:
    """Return the sentence for a job that was evicted too often; `cause` is the last cause."""
    name = f"Job {trace.frame['job_id'].iloc[job]}"
    if cause == "oom":
        advice = (
            "Correct its columns of memory, limit retries, or choose a policy that gives more after"
            " a failure."
        )
        return (
            f"{name} was evicted {evictions:,} times, at last for lack of memory: it asks for less"
            f" than it needs. {advice}"
        )
    advice = "Raise mtbf_h, save more often, or limit retries."
    return (
        f"{name} lost its nodes {evictions:,} times and is not done: failures come faster than"
        f" checkpoints. {advice}"
    )


def infeasible_plan_reason(
    allocator: Allocator, now_s: float, trace: Trace, job: JobId, what: str
) -> str:
    """Return the sentence for a plan that cannot be applied."""
    exists = 0 <= job < len(trace)
    name = (
        f"job {job} ({trace.frame['job_id'].iloc[job]})"
        if exists
        else f"job {job}, which does not exist"
    )
    return (
        f"{type(allocator).__name__} made an impossible plan at {now_s:.3f} s for {name}: {what}."
        " The run was stopped."
    )


CHECK_EVERY: Final = 256
"""Decisions between two checks; a power of 2."""
_MIN_DECISIONS: Final = 10_000
_DECISIONS_PER_JOB: Final = 10
_MIN_STOPS: Final = 2_000
_DRAIN_FACTOR: Final = 3
_MIN_ADVANCE: Final = 1e-6
MAX_AT_ONE_INSTANT: Final = 100_000
"""Decisions and rate requests at one instant that end a run.

Far more than a sound run has at one instant: all arrivals and ends of an instant make one decision,
and a job that is evicted 10,000 times ends the run before.
"""


class Standstill:
    """Detects a run without progress: no job advances, or the clock does not move.

    Parameters
    ----------
    waiting, running : IdSet
        The active jobs.
    done : callable
        Job -> its work done by now.
    work : array of shape (jobs,)
        Total work of each job.
    drain_s : array of shape (jobs,)
        Seconds that the whole cluster needs for the work of each job.
    columns : Columns
        State of the jobs, with the number of stops per job.

    Notes
    -----
    A job advances when its remaining work is below its previous minimum by a millionth of its work.
    A run is stalled when no job has ended or advanced during 10,000 decisions plus ten per active
    job, and this lasts until all events planned by then have happened, and then for three times
    as long as the whole cluster would need for all active jobs. Planned events: ends of jobs and of
    pauses, changes of rate, wake-ups, repairs and dated changes of the cluster. So a slow run is
    not cut off, and every run ends: a job advances at most a million times.

    A run is also stalled when no job has advanced during 2,000 stops plus ten per active job,
    every running job has been stopped, and no node is about to come or go: otherwise time slices of
    a millisecond would continue for minutes.
    """

    def __init__(
        self,
        waiting: IdSet,
        running: IdSet,
        done: Callable[[JobId], float],
        work: Floats,
        drain_s: Floats,
        columns: Columns,
    ) -> None:
        self._waiting, self._running, self._done, self._work, self._drain_s = (
            waiting,
            running,
            done,
            work,
            drain_s,
        )
        self._least = work.copy()
        self._settled, self._since, self._until_s = -1, 0, inf
        self._stops = columns.array("preemptions")
        self._stops_before = self._stops
        self._at_once = 0, -1, 0.0

    def is_clock_stuck(self, decisions: int, settled: int, now_s: float) -> bool:
        """Return True if decisions and rate requests continue while the clock hardly moves.

        During `MAX_AT_ONE_INSTANT` of them plus ten per active job, no job has ended, and the clock
        has moved by at most one step for each, as under a policy that is always woken at once. For
        the parameters see `is_stalled`.
        """
        began, ended, began_s = self._at_once
        more = decisions - began
        if settled != ended or now_s - began_s > (more + 0.5) * STEP_S:
            self._at_once = decisions, settled, now_s
            return False
        return more >= MAX_AT_ONE_INSTANT + _DECISIONS_PER_JOB * (
            len(self._waiting) + len(self._running)
        )

    def is_stalled(
        self,
        decisions: int,
        settled: int,
        now_s: float,
        to_come_s: Callable[[], float],
        are_over: Callable[[float], bool],
    ) -> bool:
        """Return True if the run is stalled: no job ends or advances any more.

        Parameters
        ----------
        decisions, settled : int
            Decisions so far, including rate requests at break points, and jobs that have ended.
        now_s : float, seconds
            The clock.
        to_come_s : callable
            Returns the instant of the last planned event.
        are_over : callable
            Returns True if no node is known to come or go any more.
        """
        ids = np.concatenate((self._waiting.ids(), self._running.ids()))
        if settled != self._settled or self._has_advanced(ids):
            self._settled, self._since, self._until_s = settled, decisions, inf
            self._stops_before = self._stops.copy()
        elif self._stops_everything(len(ids)) and are_over(now_s):
            return True
        elif self._until_s < inf:
            return now_s > self._until_s
        elif decisions - self._since >= _MIN_DECISIONS + _DECISIONS_PER_JOB * len(ids):
            self._until_s = max(to_come_s(), now_s) + _DRAIN_FACTOR * float(
                self._drain_s[ids].sum()
            )
        return False

    def _stops_everything(self, jobs: int) -> bool:
        """Return True if all running jobs were stopped since the last advance, over the limit."""
        stops = self._stops - self._stops_before
        all_stopped = bool(stops[self._running.ids()].all())
        return all_stopped and int(stops.sum()) >= _MIN_STOPS + _DECISIONS_PER_JOB * jobs

    def _has_advanced(self, ids: Ints) -> bool:
        """Return True if a job advanced, and update the minimum work left of each."""
        work = self._work[ids]
        work_left = work - np.fromiter(map(self._done, ids.tolist()), np.float64, len(ids))
        further = work_left < self._least[ids] - _MIN_ADVANCE * work
        self._least[ids[further]] = work_left[further]
        return bool(further.any())
