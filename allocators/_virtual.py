"""One imagined machine as fast as the whole cluster, which serves jobs preemptively, least work left first: what A-SRPT takes its order from."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf, isfinite

from sim.contract import JobId, instant


class VirtualMachine:
    """Preemptive SRPT on one machine; its clock follows that of the cluster.

    Jobs are complete at instants, as events of the cluster are, and what is left of the one served
    is rounded to a millionth, so that equal work is told as equal.

    Parameters
    ----------
    now_s : float
        Where its clock begins.
    speed : float
        Work per second.

    Notes
    -----
    Ties go to the lower job id. A job of infinite work has no place in an order: it completes as soon as it is the best that is left.
    """

    def __init__(self, now_s: float, speed: float) -> None:
        self.now_s, self.speed = now_s, speed
        # Only the work of the first one falls, so the heap stays a heap.
        self._left: list[tuple[float, JobId]] = []

    def __len__(self) -> int:
        """Return the number of jobs that are not complete."""
        return len(self._left)

    def add(self, job: JobId, work: float) -> None:
        """Take in a job at the present of the machine's clock."""
        heappush(self._left, (work, job))

    def advance(self, now_s: float) -> list[tuple[float, JobId]]:
        """Work until an instant and return (instant, job) for every job that is complete by then, in order of completion."""
        complete = []
        left = self._left
        while left:
            end_s = self._end_s()
            if end_s > now_s:
                break
            self.now_s = end_s
            complete.append((end_s, heappop(left)[1]))
        if now_s > self.now_s:
            if left:
                work, job = left[0]
                left[0] = instant(work - (now_s - self.now_s) * self.speed), job
            self.now_s = now_s
        return complete

    def next_s(self) -> float:
        """Return when the next job will be complete if none comes in; inf = never."""
        return self._end_s() if self._left else inf

    def _end_s(self) -> float:
        work = self._left[0][0]
        if not work or not isfinite(work):
            return self.now_s
        return instant(self.now_s + work / self.speed) if self.speed else inf
