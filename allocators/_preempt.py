"""Who runs when running jobs may be stopped for better ones: the walk down a priority order, kept up to date from what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from allocators._ladders import Key, Ladders, Order, gpus_of
from sim.contract import Demand, Grant, JobId, View

Place = Callable[[View, Demand], Grant | None]

_NOW: Final = 0.0


class Queue:
    """Waiting jobs of one demand, as a heap; ``until`` is the count of GPUs come free at which its first job is worth a try, `_NOW` if nothing is known of it.

    ``failed`` is a place in the order: a job there and all behind it could get at most ``slack`` GPUs plus those come free since the start of the run, less
    what better jobs took in walk number ``walk`` beyond the first ``seen`` GPUs.
    """

    __slots__ = ("failed", "filled", "heap", "in_line", "seen", "slack", "until", "walk")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.until = _NOW
        self.filled = self.in_line = False
        self.failed: tuple[Key, JobId] | None = None
        self.slack = self.walk = self.seen = 0

    def __lt__(self, other: object) -> bool:
        # Heaps compare queues only in two entries of one job, of which one is out of date.
        return False


Entry = tuple[Key, JobId, int, Queue]
"""Priority, job, GPUs of its gang, and where it waits."""


class Contest:
    """Keeps the best jobs running.

    Parameters
    ----------
    order : Order
        The policy's priorities.
    place : Place
        Finds and reserves nodes on the sketch of free room.
    block : bool
        Whether the first job for which no room can be made holds up all behind it.

    Notes
    -----
    The outcome is that of a walk over all active jobs, best first, in which running jobs keep their nodes unless a better job needs them. A waiting job is
    placed in free room, else in room made by stopping strictly worse running jobs: worst first until it fits, then those that turn out not to be needed are
    kept, best first. A stopped job waits, and is reached later in the same walk. Where GPUs are all that matters, this is exactly "from an empty cluster,
    give each job its gang if it fits, best first".

    The walk is not made. What a job could get is bounded by the free GPUs and those of worse running jobs, and that bound grows by no more than what finished
    jobs held, what stopped ones held beyond the need of the job they were stopped for, and what jobs hold that become worse. So the first job of a demand
    that failed is tried again only after enough of that, and the others of its demand, which are worse, not before it. One that failed although there were
    enough GPUs (by their place, by cores or memory) is tried again after any such change.
    """

    def __init__(self, order: Order, place: Place, *, block: bool) -> None:
        self._order, self._place, self._block = order, place, block
        self.waiting: dict[JobId, Key] = {}
        self.running = Ladders(order)
        self._queues: dict[int, Queue] = {}
        self._filled: list[Queue] = []
        self._unlucky: list[Queue] = []
        self._freed = self._missing = self._walk = self._spent = 0
        self._last: tuple[Key, JobId] = ((), -1)
        self._stirred = self._one_pool = False
        self._changes: dict[JobId, Grant | None] = {}
        self._begun = False

    # -- what happened -----------------------------------------------------------------------------------------------------------------------------------

    def feed(self, view: View) -> None:
        """Take in what happened since the last call."""
        delta = view.delta
        if not self._begun:
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
            queue.failed, queue.until = None, _NOW

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
        number = 0 if self._block else id(demand)
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = Queue()
        heap = queue.heap
        if not queue.filled:
            queue.filled = True
            self._filled.append(queue)
        heappush(heap, (key, job, gpus_of(demand), queue))
        if heap[0][1] == job:
            queue.until = _NOW

    def worsen(self, job: JobId, tag: float, height: float) -> None:
        """Give a running job a worse rung, which may let waiting ones take its place."""
        self._freed += self.running.move(job, tag, height)
        self._stirred = True

    def _begin(self, view: View) -> None:
        self._begun = True
        self._one_pool = len(view.room.pools) == 1
        for job in sorted(view.grants):
            self.running.add(view, job, view.grants[job], self._order.key(view, job))

    def _check_landed(self, view: View) -> None:
        # A decision that takes time lands without the entries that became void meanwhile; a stopped job may have run on until then, or lost its work.
        delta, grants = view.delta, view.grants
        for job, grant in self._changes.items():
            held = grants.get(job)
            if held is grant or held == grant:
                if grant is None and job in self.waiting and self._order.outdated(view, job, self.waiting[job]):
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
        gpus = self.running.remove(job).gpus if job in self.running.seats else gpus_of(view.demand(job))
        self._freed += gpus
        self._stirred = True
        if job in self.waiting:
            self._order.left(job, self.waiting.pop(job))

    # -- the walk ----------------------------------------------------------------------------------------------------------------------------------------

    def settle(self, view: View) -> Mapping[JobId, Grant | None]:
        """Return the changes that make the best jobs run."""
        changes: dict[JobId, Grant | None] = {}
        self._changes = changes
        line: list[Entry] = []
        self._walk += 1
        self._spent, self._last = 0, ((), -1)
        self._admit(line)
        while line:
            key, job, need, queue = heappop(line)
            queue.in_line = False
            if queue.heap[0][0] is key and self.waiting.get(job) is not key:
                heappop(queue.heap)
            elif queue.heap[0][0] is key:
                if (self._spent or not queue.until) and self._hopeless(key, job, need, queue):
                    continue
                found = self._fit(view, view.demand(job), key)
                if found is None:
                    self._put_off(key, job, need, queue)
                    continue
                heappop(queue.heap)
                self._last = key, job
                self._start(view, job, need, *found)
            self._step_up(queue, line)
            if self._stirred:
                self._admit(line)
        return changes

    def _step_up(self, queue: Queue, line: list[Entry]) -> None:
        """Let the next job of a queue into the line."""
        if queue.heap:
            queue.until = _NOW
            queue.in_line = True
            heappush(line, queue.heap[0])
        else:
            queue.filled = False
            self._filled.remove(queue)

    def _start(self, view: View, job: JobId, need: int, grant: Grant, stopped: list[JobId]) -> None:
        changes, grants = self._changes, view.grants
        if job in grants and grants[job] == grant:
            del changes[job]
        else:
            changes[job] = grant
        self.running.add(view, job, grant, self.waiting.pop(job))
        taken = 0
        for victim in stopped:
            taken += self.running.remove(victim).gpus
            if victim in grants:
                changes[victim] = None
            else:
                del changes[victim]
            self.wait(view, victim)
            self._stirred = True
        if not self._one_pool:
            self._freed += taken  # from one pool, and what it needs perhaps from another
        elif taken > need:
            self._freed += taken - need
        else:
            self._spent += need - taken

    def _admit(self, line: list[Entry]) -> None:
        """Let the first job of every queue into the line that is worth a try."""
        if self._stirred:
            for queue in self._unlucky:
                queue.until = _NOW
            self._unlucky.clear()
            self._stirred = False
        freed = self._freed
        found = [queue.heap[0] for queue in self._filled if queue.until <= freed and not queue.in_line]
        for entry in found:
            entry[3].in_line = True
        line += found
        heapify(line)

    def _hopeless(self, key: Key, job: JobId, need: int, queue: Queue) -> bool:
        """Tell whether too little has come free for a job, as far as is known without looking; then its queue waits for more."""
        place = key, job
        if queue.failed is None or place < queue.failed:
            return False
        spent = 0
        if self._spent and place > self._last:
            spent = self._spent - queue.seen if queue.walk == self._walk else self._spent
        until = need - queue.slack + spent
        if until <= self._freed:
            return False
        if spent:
            queue.failed = place  # those between did not lose what better jobs than this one took
            queue.slack -= spent
        queue.seen, queue.walk = self._spent, self._walk
        queue.until = until
        return True

    def _put_off(self, key: Key, job: JobId, need: int, queue: Queue) -> None:
        if not self._missing:
            queue.until = inf
            self._unlucky.append(queue)
            return
        queue.failed = (key, job) if self._one_pool or not self._block else None
        queue.slack = need - self._missing - self._freed
        queue.seen, queue.walk = self._spent, self._walk
        queue.until = self._freed + self._missing

    # -- making room -------------------------------------------------------------------------------------------------------------------------------------

    def _fit(self, view: View, demand: Demand, key: Key) -> tuple[Grant, list[JobId]] | None:
        room, running = view.room, self.running
        missing = gpus_of(demand) - room.gpus_free(demand.pools)
        grant: Grant | None = None
        stopped: list[JobId] = []
        if missing > 0:
            stopped, held = running.worse(view, demand, key, missing)
            if held < missing:
                self._missing = missing - held
                return None
            for job in stopped:
                room.give(running.seats[job].grant)
        grant = self._place(view, demand)
        if grant is None:
            grant = self._clear(view, demand, stopped, running.worse(view, demand, key, inf)[0][len(stopped) :])
        if grant is None:
            for job in reversed(stopped):
                room.take(running.seats[job].grant)
            self._missing = 0
            return None
        return self._spare(view, demand, grant, stopped) if len(stopped) > 1 else (grant, stopped)

    def _clear(self, view: View, demand: Demand, stopped: list[JobId], more: list[JobId]) -> Grant | None:
        """Stop, beyond those already stopped on the sketch, as few of `more` as give the demand a place, in steps that double and are then halved."""
        room, seats = view.room, self.running.seats
        low = high = 0
        grant: Grant | None = None
        while grant is None and high < len(more):
            low, high = high, min(2 * high + 1, len(more))
            for job in more[low:high]:
                room.give(seats[job].grant)
            grant = self._place(view, demand)
        if grant is None:
            for job in reversed(more):
                room.take(seats[job].grant)
            return None
        while high - low > 1:
            middle = (low + high) // 2
            room.give(grant)
            for job in reversed(more[middle:high]):
                room.take(seats[job].grant)
            fewer = self._place(view, demand)
            if fewer is not None:
                grant, high = fewer, middle
                continue
            for job in more[middle:high]:
                room.give(seats[job].grant)
            low, grant = middle, self._again(view, demand)
        stopped += more[:high]
        return grant

    def _spare(self, view: View, demand: Demand, grant: Grant, stopped: list[JobId]) -> tuple[Grant, list[JobId]]:
        """Let those run on, best first, whose room was not needed in the end; the last one's was, for without it there was no place."""
        room, mask = view.room, self.running.mask(demand)
        for job in stopped[-2::-1]:
            seat = self.running.seats[job]
            if seat.gpus > room.gpus_free(demand.pools) and not seat.ladder.pools & ~mask:
                continue
            room.give(grant)
            room.take(seat.grant)
            without = self._place(view, demand)
            if without is None:
                room.give(seat.grant)
                grant = self._again(view, demand)
            else:
                grant = without
                stopped.remove(job)
        return grant, stopped

    def _again(self, view: View, demand: Demand) -> Grant:
        grant = self._place(view, demand)
        assert grant is not None, "a place that was found a moment ago is gone"
        return grant
