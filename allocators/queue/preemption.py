"""Priority preemption: the walk down an order of all jobs that tests define by a walk,
kept up to date from what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple

from allocators.queue.running_index import Key, Priorities, RunningIndex, gpus_of
from allocators.queue.upgrade import Upgrades
from sim.contract import ContractError, Decided, Demand, Grant, JobId, View

_NOW: Final = 0.0


class Tally:
    """GPUs that came free since the start of the run, and what the present walk has taken.

    Attributes
    ----------
    freed : int
        GPUs come free, in all.
    spent : int
        GPUs that this walk has given to jobs, beyond what was stopped for them.
    stirred : bool
        Whether anything has changed for jobs that failed although there were enough GPUs.
    """

    __slots__ = ("_last", "freed", "spent", "stirred", "walk")

    def __init__(self) -> None:
        self.freed = self.spent = self.walk = 0
        self.stirred = False
        self._last: tuple[Key, JobId] = ((), -1)

    def free(self, gpus: int) -> None:
        """Count GPUs that came free."""
        self.freed += gpus
        self.stirred = True

    def begin(self) -> None:
        """Begin another walk."""
        self.walk += 1
        self.spent, self._last = 0, ((), -1)

    def start(self, place: tuple[Key, JobId], need: int, taken: int, *, one_pool: bool) -> None:
        """Count a start at this place in the order, for which running jobs gave up so many GPUs."""
        self._last = place
        if not one_pool:
            self.freed += taken  # from one pool, and what it needs perhaps from another
        elif taken > need:
            self.freed += taken - need
        else:
            self.spent += need - taken

    def spent_before(self, place: tuple[Key, JobId], bound: GpuBound) -> int:
        """Return what this walk gave to jobs before a place, beyond what a bound knows of."""
        if place <= self._last:
            return 0
        return self.spent - bound.seen if bound.walk == self.walk else self.spent


class GpuBound(NamedTuple):
    """What the jobs of one demand can get at most, known since one of them failed.

    Parameters
    ----------
    place : tuple
        Its place in the order; the bound is that of the job there and of all behind it.
    slack : int
        GPUs that they can get beyond `Tally.freed`,
    walk, seen : int
        less what better jobs took in the walk of this number beyond its first `seen` GPUs.
    """

    place: tuple[Key, JobId]
    slack: int
    walk: int
    seen: int


class DemandQueue:
    """Waiting jobs of one demand, as a heap.

    Attributes
    ----------
    until : float
        Count of `Tally.freed` at which its first job is worth a try; `_NOW` if nothing is known of
        it.
    bound : GpuBound or None
        What its jobs can get at most; None = nothing is known.
    """

    __slots__ = ("bound", "filled", "heap", "in_line", "until")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.filled = False
        self.in_line: Entry | None = None  # what stands for it in the line; others there are void
        self.forget()

    def __lt__(self, other: object) -> bool:
        # Heaps compare queues only in two entries of one job, of which one is out of date.
        return False

    def forget(self) -> None:
        """Know nothing of what its jobs could get."""
        self.bound: GpuBound | None = None
        self.until = _NOW

    def try_now(self) -> None:
        """Let its first job be tried at the next look."""
        self.until = _NOW

    def hopeless(self, place: tuple[Key, JobId], need: int, tally: Tally) -> bool:
        """Tell whether too little has come free for a job, as far as is known without looking; then
        the queue waits for more.
        """
        bound = self.bound
        if bound is None or place < bound.place:
            return False
        spent = tally.spent_before(place, bound) if tally.spent else 0
        until = need - bound.slack + spent
        if until <= tally.freed:
            return False
        # Jobs between the two places did not lose what better jobs than this one took.
        first = place if spent else bound.place
        self.bound = GpuBound(first, bound.slack - spent, tally.walk, tally.spent)
        self.until = until
        return True

    def put_off(
        self, place: tuple[Key, JobId] | None, need: int, missing: int, tally: Tally
    ) -> None:
        """Wait until more is free, as a job of this place (None: it says nothing of others) has
        just failed by so many GPUs.
        """
        slack = need - missing - tally.freed
        self.bound = None if place is None else GpuBound(place, slack, tally.walk, tally.spent)
        self.until = tally.freed + missing

    def block(self) -> None:
        """Wait until anything changes: its first job failed although there were enough GPUs."""
        self.until = inf


Entry = tuple[Key, JobId, int, DemandQueue]
"""Priority, job, GPUs of its gang, and where it waits."""


Place = Callable[[View, Demand], Grant | None]


@dataclass(slots=True)
class RoomMaker:
    """Finds nodes for a job, by stopping worse jobs where that is needed; all tentatively.

    Parameters
    ----------
    place : Place
        Finds nodes and reserves them tentatively.
    running : RunningIndex
        The jobs that may be stopped.
    """

    place: Place
    running: RunningIndex
    missing: int = 0
    """GPUs by which the last search failed; 0 = there were enough, but in the wrong places."""

    def fit(self, view: View, demand: Demand, key: Key) -> tuple[Grant, list[JobId]] | None:
        """Return a reserved grant and the jobs to be stopped for it, the worst first and as few as
        needed, or None.
        """
        room, running = view.room, self.running
        pools = demand.pools
        free = room.free[pools[0]] if len(pools) == 1 else room.gpus_free(pools)
        missing = gpus_of(demand) - free
        grant: Grant | None = None
        stopped: list[JobId] = []
        if missing > 0:
            stopped, held = running.worse(view, demand, key, missing)
            if held < missing:
                self.missing = missing - held
                return None
            for job in stopped:
                room.give(running.slots[job].grant)
        grant = self.place(view, demand)
        if grant is None:
            more = running.worse(view, demand, key, inf)[0][len(stopped) :]
            grant = self._clear(view, demand, stopped, more)
        if grant is None:
            for job in reversed(stopped):
                room.take(running.slots[job].grant)
            self.missing = 0
            return None
        return self._spare(view, demand, grant, stopped) if len(stopped) > 1 else (grant, stopped)

    def _clear(
        self, view: View, demand: Demand, stopped: list[JobId], more: list[JobId]
    ) -> Grant | None:
        """Stop, beyond those already stopped tentatively, as few of `more` as give the demand a
        place, in steps that double and are then halved.
        """
        room, slots = view.room, self.running.slots
        low = high = 0
        grant: Grant | None = None
        while grant is None and high < len(more):
            low, high = high, min(2 * high + 1, len(more))
            for job in more[low:high]:
                room.give(slots[job].grant)
            grant = self.place(view, demand)
        if grant is None:
            for job in reversed(more):
                room.take(slots[job].grant)
            return None
        while high - low > 1:
            middle = (low + high) // 2
            room.give(grant)
            for job in reversed(more[middle:high]):
                room.take(slots[job].grant)
            fewer = self.place(view, demand)
            if fewer is not None:
                grant, high = fewer, middle
                continue
            for job in more[middle:high]:
                room.give(slots[job].grant)
            low, grant = middle, self._again(view, demand)
        stopped += more[:high]
        return grant

    def _spare(
        self, view: View, demand: Demand, grant: Grant, stopped: list[JobId]
    ) -> tuple[Grant, list[JobId]]:
        """Let those run on, best first, whose room was not needed in the end; the last one's was,
        for without it there was no place.
        """
        room, mask = view.room, self.running.mask(demand)
        for job in stopped[-2::-1]:
            slot = self.running.slots[job]
            if slot.gpus > room.gpus_free(demand.pools) and not slot.group.pools & ~mask:
                continue
            room.give(grant)
            room.take(slot.grant)
            without = self.place(view, demand)
            if without is None:
                room.give(slot.grant)
                grant = self._again(view, demand)
            else:
                grant = without
                stopped.remove(job)
        return grant, stopped

    def _again(self, view: View, demand: Demand) -> Grant:
        grant = self.place(view, demand)
        assert grant is not None, "a place that was found a moment ago is gone"
        return grant


_ENDLESS: Final = 1000
"""Stops per active job at one decision that end a run: far more than an order can lead to in which
no two jobs go before each other.
"""


class PriorityPreemption:
    """Keeps the best jobs running.

    Parameters
    ----------
    order : Order
        The policy's priorities.
    place : Place
        Finds nodes and reserves them tentatively.
    block : bool
        Whether the first job for which no room can be made holds up all behind it.
    upgrades : Upgrades, optional
        Moves running jobs to faster GPU types; None = never.

    Notes
    -----
    The outcome is that of a walk over all active jobs, best first, in which running jobs keep their
    nodes unless a better job needs them. A waiting job is placed in free room, else in room made by
    stopping running jobs behind it: worst first until it fits, then those that turn out not to be
    needed are kept, best first. A stopped job waits, and is reached later in the same walk. Where
    GPUs are all that matters, this is exactly "from an empty cluster, give each job its gang if it
    fits, best first".

    The walk is not made: a job that failed is looked at again only when its `GpuBound` says that
    enough came free since.

    Room that is left over then goes to upgrades, and what those give up to waiting jobs again.

    Attributes
    ----------
    begun, interfered : bool
        Whether there was anything to decide, and whether any running job was stopped or moved.
    """

    def __init__(
        self, order: Priorities, place: Place, *, block: bool, upgrades: Upgrades | None = None
    ) -> None:
        self._order, self._block, self._upgrades = order, block, upgrades
        self.waiting: dict[JobId, Key] = {}
        self.running = RunningIndex(order)
        self.room = RoomMaker(place, self.running)
        self._queues: dict[int, DemandQueue] = {}
        self._filled: list[DemandQueue] = []
        self._unlucky: list[DemandQueue] = []
        self._tally = Tally()
        self._changes: dict[JobId, Grant | None] = {}
        self._stops = 0
        self.begun = self.interfered = self._one_pool = False

    # -- what happened ---------------------------------------------------------------------------

    def feed(self, view: View) -> None:
        """Take in what happened since the last call."""
        delta = view.delta
        if not self.begun:
            self._begin(view)
        if self._changes:
            self._check_landed(view)
        for job in delta.finished:
            self._gone(view, job)
        for eviction in delta.evicted:
            if eviction.job not in delta.finished:
                self._gone(view, eviction.job)
                self.wait(view, eviction.job)
        if delta.nodes:
            self._try_all()
        for job in delta.resized:
            self._resized(view, job)
        for job in delta.arrived:
            self.wait(view, job)

    def _try_all(self) -> None:
        for queue in self._queues.values():  # also the empty ones, which remember who failed
            queue.forget()

    def _resized(self, view: View, job: JobId) -> None:
        if job in self.waiting:
            self.wait(view, job)
        elif job in view.grants:
            self._gone(view, job)
            self.running.add(view, job, view.grants[job], self._order.key(view, job))
            self._try_all()  # of what it gave back nothing is known here

    def wait(self, view: View, job: JobId) -> None:
        """Put a job into its queue, or, if it waits already, to its new place there."""
        old = self.waiting.get(job)
        if old is not None:
            self._order.left(job, old)
        key = self.waiting[job] = self._order.key(view, job)
        demand = view.demand(job)
        number = 0 if self._block else demand.key
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = DemandQueue()
        if not queue.filled:
            queue.filled = True
            self._filled.append(queue)
        heappush(queue.heap, (key, job, gpus_of(demand), queue))
        if queue.heap[0][1] == job:
            queue.try_now()

    def worsen(self, job: JobId, tag: float, height: tuple[float, ...]) -> None:
        """Give a running job a worse place, which may let waiting ones take its place."""
        if job in self.running.slots:
            self._tally.free(self.running.move(job, tag, height))

    def _begin(self, view: View) -> None:
        self.begun = True
        self._one_pool = len(view.room.pools) == 1
        if self._upgrades is not None and not self._upgrades.possible(view):
            self._upgrades = None
        for job in sorted(view.grants):
            self.running.add(view, job, view.grants[job], self._order.key(view, job))

    def _check_landed(self, view: View) -> None:
        # A decision that takes time lands without the entries that became void meanwhile; a
        # stopped job may have run on until then, or lost its work.
        delta, grants = view.delta, view.grants
        for job, grant in self._changes.items():
            held = grants.get(job)
            if held is grant or held == grant:
                if grant is not None:
                    self._order.landed(view, job)
                elif job in self.waiting and self._order.outdated(view, job, self.waiting[job]):
                    self.wait(view, job)
                continue
            if job in delta.finished or any(job == eviction.job for eviction in delta.evicted):
                continue
            self._gone(view, job)
            if held is None:
                self.wait(view, job)
            else:
                self.running.add(view, job, held, self._order.key(view, job))
        self._changes = {}

    def _gone(self, view: View, job: JobId) -> None:
        runs = job in self.running.slots
        self._tally.free(self.running.remove(job).gpus if runs else gpus_of(view.demand(job)))
        if job in self.waiting:
            self._order.left(job, self.waiting.pop(job))

    # -- what is explained -----------------------------------------------------------------------

    def better(self, decided: Decided, job: JobId) -> list[JobId]:
        """Return the running jobs that are not stopped for a waiting one, those that started at
        this decision first.
        """
        key = self.waiting.get(job)
        if key is None:
            return []
        worse = set(self.running.worse(decided.view, decided.demand(job), key, inf)[0])
        new = set(decided.started)
        jobs = [one for one in decided.grants if one not in worse and decided.held_gpus(one)]
        return sorted(jobs, key=lambda one: (one not in new, one))

    # -- the walk --------------------------------------------------------------------------------

    def settle(self, view: View) -> Mapping[JobId, Grant | None]:
        """Return the changes that make the best jobs run."""
        self._changes, self._stops = {}, 0
        self._walk(view)
        if self._upgrades is not None:
            while any(view.room.free) and self._move_up(view, self._upgrades):
                self.interfered = True
                self._walk(view)
        if self._stops and not self.interfered:
            self.interfered = any(job in view.grants for job in self._changes)
        return self._changes

    def _walk(self, view: View) -> None:
        tally, waiting = self._tally, self.waiting
        tally.begin()
        line: list[Entry] = []
        self._admit(line)
        while line:
            entry = heappop(line)
            key, job, need, queue = entry
            if queue.in_line is not entry:
                continue
            queue.in_line = None
            heap = queue.heap
            if heap[0][0] is key:
                if waiting.get(job) is not key:
                    heappop(heap)
                elif (tally.spent or not queue.until) and queue.hopeless((key, job), need, tally):
                    continue
                else:
                    found = self.room.fit(view, view.demand(job), key)
                    if found is None:
                        self._put_off((key, job), need, queue)
                        continue
                    heappop(heap)
                    self._start(view, job, need, *found)
            self._step_up(queue, line)
            if tally.stirred:
                self._admit(line)

    def _put_off(self, place: tuple[Key, JobId], need: int, queue: DemandQueue) -> None:
        missing = self.room.missing
        if missing:
            told = place if self._one_pool or not self._block else None
            queue.put_off(told, need, missing, self._tally)
        else:
            queue.block()
            self._unlucky.append(queue)

    def _step_up(self, queue: DemandQueue, line: list[Entry]) -> None:
        """Let the next job of a queue into the line."""
        if queue.heap:
            queue.try_now()
            queue.in_line = queue.heap[0]
            heappush(line, queue.heap[0])
        else:
            queue.filled = False
            self._filled.remove(queue)

    def _admit(self, line: list[Entry]) -> None:
        """Add to the line the first job of every queue that may have room now."""
        tally = self._tally
        if tally.stirred:
            for queue in self._unlucky:
                queue.try_now()
            self._unlucky.clear()
            tally.stirred = False
        freed = tally.freed
        # A job that was stopped just now may go before the one that stands for its queue.
        found = [
            queue.heap[0]
            for queue in self._filled
            if queue.until <= freed and queue.in_line is not queue.heap[0]
        ]
        for entry in found:
            entry[3].in_line = entry
        line += found
        heapify(line)

    def _start(self, view: View, job: JobId, need: int, grant: Grant, stopped: list[JobId]) -> None:
        changes, grants = self._changes, view.grants
        if job in grants and grants[job] == grant:
            del changes[job]
        else:
            changes[job] = grant
        key = self.waiting.pop(job)
        self.running.add(view, job, grant, key)
        taken = 0
        for victim in stopped:
            self._stops += 1
            if self._stops > _ENDLESS * (len(self.waiting) + len(self.running.slots)):
                both = f"the jobs in rows {job} and {victim} go before each other"
                raise ContractError(f"{both}, so that each is stopped for the other")
            taken += self.running.remove(victim).gpus
            if victim in grants:
                changes[victim] = None
            else:
                del changes[victim]
            self.wait(view, victim)
            self._tally.stirred = True
        self._tally.start((key, job), need, taken, one_pool=self._one_pool)

    def _move_up(self, view: View, upgrades: Upgrades) -> bool:
        """Move running jobs to faster types on room that is left over; tell whether any moved."""
        slots, changes = self.running.slots, self._changes
        holding = [(job, slot.grant) for job, slot in slots.items() if job not in changes]
        moves = upgrades(view, holding)
        for job, grant in moves:
            changes[job] = grant
            self._tally.free(self.running.relocate(view, job, grant))
        return bool(moves)
