"""The order of Tiresias: queues by attained service, and where jobs stand within a queue."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, NamedTuple

from allocators.queue.running_index import EVERYBODY, NOBODY, Height, Key, Seat, gpus_of
from sim.contract import STEP_S, Demand, Grant, JobId, View, inf, instant

_BEFORE, _AMONG, _BEHIND = -1.0, 0.0, 1.0
_TAIL: Final = 1.0
_STOPPED: Final = 4
"""Length of the key of a job that was demoted and stopped at one decision."""


class Unit(NamedTuple):
    """How service is counted for a demand: limits in seconds at full size, and from which column.

    ``per_s`` is what a second adds to that column.
    """

    limits_s: tuple[float, ...]
    column: str
    per_s: float


class Attained:
    """Order by queue, then by list position or by submission: `allocators.queue.running_index.Order`.

    Parameters
    ----------
    limits : tuple of float, GPU-seconds or seconds
        Attained service at which a job leaves the first, second, ... queue; ascending.
    knob : float
        See `allocators.queue.las.Las.knob`.
    seconds : bool
        Whether service is the seconds in which a job held its GPUs, whatever their number.
    by_submission : bool
        Whether jobs stand in a queue as they were submitted, running or not.

    Notes
    -----
    Otherwise each queue is the list of the published simulator: running jobs, then waiting ones. At
    every decision newcomers and demoted jobs are appended; after it the jobs that wait move behind
    those that run, both keeping their order. Here running jobs have heights (decision at which they
    joined, `_BEFORE` jobs that start at that decision, `_AMONG` or `_BEHIND` them, count), and
    waiting jobs have keys: (queue, minus the decision at which it was stopped, its height then), or
    (queue, `_TAIL`, count) if it was not stopped or demoted at that decision.

    The queue of a job is kept, not computed: a job that holds its GPUs crosses its next limit at a
    known instant, and when that has come it is in the next queue. Crossings are kept in a heap per
    queue, where those of jobs stopped meanwhile are void.
    """

    def __init__(self, limits: tuple[float, ...], knob: float, *, seconds: bool, by_submission: bool) -> None:
        self.limits, self._knob = limits, knob
        self._seconds, self._by_submission = seconds, by_submission
        self.waiting = [0] * (len(limits) + 1)
        self._crossings: list[list[tuple[float, JobId]]] = [[] for _ in limits]
        self._crosses: dict[JobId, dict[int, float]] = {}
        self.promotions: list[tuple[float, JobId, Key]] = []
        self._queue: dict[JobId, int] = {}
        self._from_s: dict[JobId, float] = {}
        self._executed_s: dict[JobId, float] = {}
        self._height: dict[JobId, Height] = {}
        self._units: dict[int, Unit] = {}
        self._decision = self._count = 0
        self._punctual = False
        self.demoted_any = False

    # -- the order -------------------------------------------------------------------------------

    def key(self, view: View, job: JobId) -> Key:
        """Return the queue of a job, and its place there."""
        known = queue = self._queue.get(job, 0)
        if job in self._crosses or self._decision == 1:  # it has run, perhaps before this policy
            queue = self._reached(view, job)
        self._crosses.pop(job, None)
        self.waiting[queue] += 1
        height = self._height.pop(job, None)
        if self._by_submission:
            key: Key = (queue, job)
        elif height is None or queue != known:
            self._count += 1
            key = (queue, _TAIL, self._count)
        elif height[1] == _BEHIND and height[0] == self._decision:
            key = (queue, _TAIL, height[2], self._decision)
        else:
            key = (queue, -self._decision, *height)
        if self._knob and queue:
            patience_s = max(self._knob * self._executed_s.get(job, 0.0), STEP_S)
            heappush(self.promotions, (instant(view.now_s + patience_s), job, key))
        return key

    def rung(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return the queue of a job, and its place among those that run."""
        del grant
        queue = int(key[0])
        self.waiting[queue] -= 1
        if self._by_submission:
            height: Height = (job,)
        else:
            # Stopped at this very decision, which leaves it running after all: where it was.
            if key[1] == -self._decision:
                height = key[2:]
            elif len(key) == _STOPPED and key[3] == self._decision:
                height = (self._decision, _BEHIND, key[2])
            else:
                self._count += 1
                height = (self._decision, _AMONG, self._count)
            self._height[job] = height
        self._expect(view, job, queue, self._executed_s.get(job, 0.0))
        return key[0], height

    def moved(self, view: View, job: JobId, grant: Grant, seat: Seat) -> tuple[float, Height]:
        """Return the same place: service goes on as before."""
        del view, job, grant
        return seat.ladder.tag, seat.height

    def limit(self, ladder: float, key: Key, now_s: float) -> Height:
        """Return what lets all of later queues go, and of its own those that stand behind it."""
        del now_s
        if ladder != key[0]:
            return EVERYBODY if ladder > key[0] else NOBODY
        if self._by_submission:
            return key[1:]
        if len(key) == _STOPPED and key[3] == self._decision:
            return self._decision, _BEHIND, key[2]
        return self._decision, _AMONG, inf

    def rank(self, ladder: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return queue and place: the last of the last queue goes first."""
        del now_s
        return (ladder, *height)

    def outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Tell whether the job has moved to another queue since it was to be stopped."""
        return self._reached(view, job) != key[0]

    def landed(self, view: View, job: JobId) -> None:
        """Expect the crossings later if the job got its GPUs later than it was decided."""
        if self._punctual:
            return
        queue, crosses = self._queue.get(job, 0), self._crosses[job]
        if queue not in crosses:
            return
        executed_s, limits_s = self.executed_s(view, job), self._unit(view, job).limits_s
        if crosses[queue] < instant(view.now_s + limits_s[queue] - executed_s):
            self._expect(view, job, queue, executed_s)
        else:
            self._punctual = True  # decisions take time always or never

    def left(self, job: JobId, key: Key) -> None:
        """Count the job no longer among the waiting."""
        del job
        self.waiting[int(key[0])] -= 1

    # -- service ---------------------------------------------------------------------------------

    def executed_s(self, view: View, job: JobId) -> float:
        """Return the seconds at full size that a job's service since its last promotion is worth."""
        return self._executed_s_of(view, job, self._unit(view, job))

    def held_s(self, view: View, job: JobId) -> float:
        """Return the seconds at full size that all service of a job is worth."""
        unit = self._unit(view, job)
        return view.one(unit.column, job) / unit.per_s

    def begin(self) -> None:
        """Begin another decision."""
        self._decision += 1

    def demoted(self, view: View) -> list[tuple[JobId, float, Height]]:
        """Move running jobs whose crossing has come to the tail of their next queue.

        Returns
        -------
        list of tuples
            Job, ladder and height. What is due counts as reached: nothing is computed again.
        """
        found, now_s = [], view.now_s
        for queue, crossings in enumerate(self._crossings):
            while crossings and crossings[0][0] <= now_s:
                at_s, job = heappop(crossings)
                if self._is_valid(queue, at_s, job) and self._queue.get(job, 0) == queue:
                    found.append((job, queue + 1.0, self._demote(view, job, queue, at_s)))
        return found

    def promote(self, view: View, job: JobId) -> None:
        """Let the count of a waiting job begin anew, in the first queue."""
        self._from_s[job] = self.held_s(view, job)
        self._executed_s[job] = 0.0
        self._queue.pop(job, None)

    def forget(self, finished: tuple[JobId, ...]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in finished:
            self._height.pop(job, None)
            self._crosses.pop(job, None)
            self._queue.pop(job, None)
            if self._executed_s:
                self._executed_s.pop(job, None)
                self._from_s.pop(job, None)

    def next_crossing_s(self) -> float:
        """Return when a running job leaves a queue for the next while others wait in either."""
        next_s, crosses = inf, self._crosses
        for queue, crossings in enumerate(self._crossings):
            if self.waiting[queue] or self.waiting[queue + 1]:
                while crossings:
                    at_s, job = crossings[0]
                    if job in crosses and crosses[job].get(queue) == at_s:
                        next_s = min(next_s, at_s)
                        break
                    heappop(crossings)
        return next_s

    def _is_valid(self, queue: int, at_s: float, job: JobId) -> bool:
        return job in self._crosses and self._crosses[job].get(queue) == at_s

    def _demote(self, view: View, job: JobId, queue: int, at_s: float) -> Height:
        self._queue[job] = queue + 1
        self.demoted_any = True
        if self._by_submission:
            height: Height = (job,)
        else:
            # Had anybody waited to whom that matters, this would have been decided at the crossing.
            self._count += 1
            height = (self._decision, _BEHIND if at_s == view.now_s else _BEFORE, self._count)
            self._height[job] = height
        return height

    def _expect(self, view: View, job: JobId, queue: int, executed_s: float) -> None:
        """Note when a running job will reach the limits of its queue and of all later ones."""
        crosses: dict[int, float] = {}
        self._crosses[job] = crosses
        if queue == len(self.limits):
            return
        limits_s, now_s = self._unit(view, job).limits_s, view.now_s
        for at in range(queue, len(limits_s)):
            left_s = limits_s[at] - executed_s
            if left_s < inf:
                crosses[at] = at_s = instant(now_s + (left_s if left_s > STEP_S else STEP_S))
                heappush(self._crossings[at], (at_s, job))

    def _reached(self, view: View, job: JobId) -> int:
        """Return the queue of a job: that in which it is known to be, or a later one by service."""
        queue, unit = self._queue.get(job, 0), self._unit(view, job)
        executed_s = self._executed_s[job] = self._executed_s_of(view, job, unit)
        if executed_s:
            executed_s, limits_s = instant(executed_s), unit.limits_s
            while queue < len(limits_s) and instant(limits_s[queue]) <= executed_s:
                queue = self._queue[job] = queue + 1
                self.demoted_any = True
        return queue

    def _executed_s_of(self, view: View, job: JobId, unit: Unit) -> float:
        held_s = view.one(unit.column, job) / unit.per_s
        return held_s - self._from_s.get(job, 0.0) if self._from_s else held_s

    def _unit(self, view: View, job: JobId) -> Unit:
        demand = view.demand(job)
        known = self._units.get(id(demand))
        if known is None:
            known = self._units[id(demand)] = _unit_of(demand, self.limits, self._seconds)
        return known


def _unit_of(demand: Demand, limits: tuple[float, ...], seconds: bool) -> Unit:
    gpus = gpus_of(demand)
    if gpus:
        pace = 1 if seconds else gpus
        return Unit(tuple(limit / pace for limit in limits), "served_gpu_s", gpus)
    servers = demand.servers
    cores = demand.replicas * demand.cpus + (servers.replicas * servers.cpus if servers else 0.0)
    if seconds and cores:
        return Unit(limits, "served_cpu_s", cores)
    return Unit((inf,) * len(limits), "served_gpu_s", inf)
