"""Tells when a run gets no further although decisions go on.

The clock hardly moves, or no job comes closer to its end any more: pauses and lost work take all
that is gained, or nobody has any speed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import numpy as np

from sim.clock import STEP_S
from sim.columns import Columns, IdSet
from sim.contract import Floats, Ints, JobId

LOOK_EVERY: Final = 256
"""Decisions between two looks; a power of 2."""
_AT_LEAST: Final = 10_000
_PER_JOB: Final = 10
_STOPS: Final = 2_000
_TIMES_OVER: Final = 3
_MORE: Final = 1e-6
AT_ONCE: Final = 100_000
"""Decisions and questions to the performance model at one instant that end a run.

Far more than happens at one instant for a reason: all arrivals and ends of an instant make one
decision, and a job that loses its nodes 10,000 times has ended the run before, in other words.
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
        Counts how often each was stopped.

    Notes
    -----
    A job gets further when it has less work left than at any look before, by a millionth of its work. A run stands still when for 10,000 decisions, and ten
    more per active job, no job has ended or got further, and when that goes on until everything has happened that was to come by then and three times as
    long as the whole cluster would need for all active jobs. What is to come: the ends of jobs that nobody stops and of pauses, changes of speed, wake-ups,
    repairs and dated changes of the cluster. So a run is not cut off because it is slow, and every run ends: a job gets further a million times at most.

    It also stands still when 2,000 stops, and ten more per active job, have got nobody further, every
    running job has been among them, and the cluster stays as it is: turns of a millisecond would
    else go on for minutes.
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
        self._waiting, self._running, self._done, self._work, self._drain_s = waiting, running, done, work, drain_s
        self._least = work.copy()
        self._settled, self._since, self._until_s = -1, 0, inf
        self._stops = columns.array("preemptions")
        self._stops_before = self._stops
        self._at_once = 0, -1, 0.0

    def hurries(self, decisions: int, settled: int, now_s: float) -> bool:
        """Look, and tell whether decisions and questions go on while the clock does not.

        That is: for `AT_ONCE` of them, and ten more per active job, no job has ended, and the clock
        has moved by no more than one step each, as it does for a policy that is always woken at once.
        For the parameters see `found`.
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
        """Look, and tell whether the run stands still.

        Parameters
        ----------
        decisions, settled : int
            Decisions so far, counting also how often the performance model was asked at a break point, and jobs that have ended.
        now_s : float, seconds
            The clock.
        to_come_s : callable
            Returns the last instant for which something is planned.
        are_over : callable
            Tells whether nodes neither go nor come any more.
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
