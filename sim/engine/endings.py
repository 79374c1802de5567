"""When a run is given up, and the sentence that says why.

A run is given up when no event is planned, when the clock hardly moves although decisions go on, or
when no job advances any more: pauses and lost work take all progress, or all speeds are 0.
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
"""The same for an allocator that goes on setting wake-ups."""
HOPELESS: Final = 10_000
"""Evictions of one job."""
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
_RARE: Final = 256
"""Decisions in a row without effect while nothing runs, after which a standstill is put down to a
lack of free resources.
"""


def eventless(columns: Columns, running: IdSet, waiting: IdSet) -> str:
    """Return the sentence for a run without future events although jobs run or wait."""
    if not running:
        return STUCK.format(len(waiting))
    moving = int((columns.array("rate")[running.ids()] > 0).sum())
    return TIMELESS.format(moving) if moving else MOTIONLESS.format(len(running))


def at_once(allocator: Allocator, trace: Trace, asked: JobId | None, now_s: float) -> str:
    """Return the sentence for a clock that hardly moves; `asked` is the job whose speed the model
    was asked for last.
    """
    job = (
        ""
        if asked is None
        else f" (the speed of job {trace.frame['job_id'].iloc[asked]} was asked for last)"
    )
    return (
        f"{type(allocator).__name__} was asked again and again at {now_s:.6f} s without any job"
        f" ending and with the clock moving less than {STEP_S:g} s each time{job}. Policy or"
        " performance model never come to an end there"
    )


def standstill(jobs: int, idle: int) -> str:
    """Return the sentence for a number of jobs that do not advance, after a number of decisions in
    a row without effect while nothing ran.
    """
    return (ROOMLESS if idle >= _RARE else STANDSTILL).format(jobs)


def never_done(trace: Trace, job: JobId, evictions: float, cause: str) -> str:
    """Return the sentence for a job that was evicted too often, the last time for this cause."""
    name = f"Job {trace.frame['job_id'].iloc[job]}"
    if cause == "oom":
        way = (
            "Correct its columns of memory, limit retries, or choose a policy that gives more after"
            " a failure."
        )
        return (
            f"{name} was evicted {evictions:,} times, at last for lack of memory: it asks for less"
            f" than it needs. {way}"
        )
    way = "Raise mtbf_h, save more often, or limit retries."
    return (
        f"{name} lost its nodes {evictions:,} times and is not done: failures come faster than"
        f" checkpoints. {way}"
    )


def infeasible_plan(allocator: Allocator, now_s: float, trace: Trace, job: JobId, what: str) -> str:
    """Return the sentence for a plan that cannot be carried out."""
    known = 0 <= job < len(trace)
    name = (
        f"job {job} ({trace.frame['job_id'].iloc[job]})"
        if known
        else f"job {job}, which does not exist"
    )
    return (
        f"{type(allocator).__name__} made an impossible plan at {now_s:.3f} s for {name}: {what}."
        " The run was stopped."
    )


LOOK_EVERY: Final = 256
"""Decisions between two looks; a power of 2."""
_AT_LEAST: Final = 10_000
_PER_JOB: Final = 10
_STOPS: Final = 2_000
_TIMES_OVER: Final = 3
_MORE: Final = 1e-6
AT_ONCE: Final = 100_000
"""Decisions and questions to the performance model at one instant that end a run.

Far more than a sound run has at one instant: all arrivals and ends of an instant make one decision,
and a job that is evicted 10,000 times ends the run before.
"""


class Standstill:
    """Watches the active jobs of a run.

    Parameters
    ----------
    waiting, running : IdSet
        The active jobs.
    done : callable
        Job -> the work that it has done by now.
    work : array of shape (jobs,)
        Their total work.
    drain_s : array of shape (jobs,)
        Seconds in which the whole cluster could do the work of each.
    columns : Columns
        Count how often each job was stopped.

    Notes
    -----
    A job advances when its remaining work is below its previous minimum by a millionth of its work.
    A run stands still when during 10,000 decisions, and ten more per active job, no job has ended
    or advanced, and when that lasts until all events planned by then have happened, and three times
    as long as the whole cluster would need for all active jobs. Planned events: ends of jobs and of
    pauses, changes of speed, wake-ups, repairs and dated changes of the cluster. So a slow run is
    not cut off, and every run ends: a job advances a million times at most.

    It also stands still when no job has advanced during 2,000 stops, and ten more per active job,
    every running job has been stopped, and no node is about to come or go: otherwise time slices of
    a millisecond would go on for minutes.
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

    def hurries(self, decisions: int, settled: int, now_s: float) -> bool:
        """Return whether decisions and questions go on while the clock stands still.

        That is: during `AT_ONCE` of them, and ten more per active job, no job has ended, and the
        clock has moved by at most one step for each, as under a policy that is always woken at
        once. For the parameters see `found`.
        """
        began, ended, began_s = self._at_once
        more = decisions - began
        if settled != ended or now_s - began_s > (more + 0.5) * STEP_S:
            self._at_once = decisions, settled, now_s
            return False
        return more >= AT_ONCE + _PER_JOB * (len(self._waiting) + len(self._running))

    def found(
        self,
        decisions: int,
        settled: int,
        now_s: float,
        to_come_s: Callable[[], float],
        are_over: Callable[[float], bool],
    ) -> bool:
        """Return whether the run stands still.

        Parameters
        ----------
        decisions, settled : int
            Decisions so far, counting also how often the performance model was asked at a break
            point, and jobs that have ended.
        now_s : float, seconds
            The clock.
        to_come_s : callable
            Returns the last instant for which something is planned.
        are_over : callable
            Returns whether no node is known to come or go any more.
        """
        ids = np.concatenate((self._waiting.ids(), self._running.ids()))
        if settled != self._settled or self._further(ids):
            self._settled, self._since, self._until_s = settled, decisions, inf
            self._stops_before = self._stops.copy()
        elif self._stops_all(len(ids)) and are_over(now_s):
            return True
        elif self._until_s < inf:
            return now_s > self._until_s
        elif decisions - self._since >= _AT_LEAST + _PER_JOB * len(ids):
            self._until_s = max(to_come_s(), now_s) + _TIMES_OVER * float(self._drain_s[ids].sum())
        return False

    def _stops_all(self, jobs: int) -> bool:
        stops = self._stops - self._stops_before
        spares_none = bool(stops[self._running.ids()].all())
        return spares_none and int(stops.sum()) >= _STOPS + _PER_JOB * jobs

    def _further(self, ids: Ints) -> bool:
        work = self._work[ids]
        left = work - np.fromiter(map(self._done, ids.tolist()), np.float64, len(ids))
        further = left < self._least[ids] - _MORE * work
        self._least[ids[further]] = left[further]
        return bool(further.any())
