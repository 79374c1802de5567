"""Tells when no job comes closer to its end any more, although decisions go on: pauses and lost work take all that is gained, or nobody has any speed."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import numpy as np

from sim.columns import IdSet
from sim.contract import Floats, Ints, JobId

LOOK_EVERY: Final = 256
"""Decisions between two looks; a power of 2."""
_AT_LEAST: Final = 10_000
_PER_JOB: Final = 10
_TIMES_OVER: Final = 3
_MORE: Final = 1e-6


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

    Notes
    -----
    A job gets further when it has less work left than at any look before, by a millionth of its work. A run stands still when for 10,000 decisions, and ten
    more per active job, no job has ended or got further, and when that goes on until everything has happened that was to come by then and three times as
    long as the whole cluster would need for all active jobs. What is to come: the ends of jobs that nobody stops and of pauses, changes of speed, wake-ups,
    repairs and dated changes of the cluster. So a run is not cut off because it is slow, and every run ends: a job gets further a million times at most.
    """

    def __init__(self, waiting: IdSet, running: IdSet, done: Callable[[JobId], float], work: Floats, drain_s: Floats) -> None:
        self._waiting, self._running, self._done, self._work, self._drain_s = waiting, running, done, work, drain_s
        self._least = work.copy()
        self._settled, self._since, self._until_s = -1, 0, inf

    def found(self, decisions: int, settled: int, now_s: float, to_come_s: Callable[[], float]) -> bool:
        """Look, and tell whether the run stands still.

        Parameters
        ----------
        decisions, settled : int
            Decisions so far, counting also how often the performance model was asked at a break point, and jobs that have ended.
        now_s : float, seconds
            The clock.
        to_come_s : callable
            Returns the last instant for which something is planned.
        """
        ids = np.concatenate((self._waiting.ids(), self._running.ids()))
        if settled != self._settled or self._further(ids):
            self._settled, self._since, self._until_s = settled, decisions, inf
        elif self._until_s < inf:
            return now_s > self._until_s
        elif decisions - self._since >= _AT_LEAST + _PER_JOB * len(ids):
            self._until_s = max(to_come_s(), now_s) + _TIMES_OVER * float(self._drain_s[ids].sum())
        return False

    def _further(self, ids: Ints) -> bool:
        work = self._work[ids]
        left = work - np.fromiter(map(self._done, ids.tolist()), np.float64, len(ids))
        further = left < self._least[ids] - _MORE * work
        self._least[ids[further]] = left[further]
        return bool(further.any())
