"""Who runs when running jobs may be stopped for better ones: the walk down a priority order, kept up to date from what changed."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from allocators._ladders import Key, Ladders, Order, gpus_of
from allocators._making_room import Maker, Place
from allocators._tries import Entry, Queue, Tally
from allocators._upgrade import Upgrades
from sim.contract import ContractError, Grant, JobId, View

_ENDLESS: Final = 1000
"""Stops per active job at one decision that end a run: far more than an order can lead to in which no two jobs go before each other."""


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

    The walk is not made: a job that failed is looked at again only when `allocators._tries` says
    that enough came free since.

    Room that is left over then goes to upgrades, and what those give up to waiting jobs again.

    Attributes
    ----------
    begun, interfered : bool
        Whether there was anything to decide, and whether any running job was stopped or moved.
    """

    def __init__(self, order: Order, place: Place, *, block: bool, upgrades: Upgrades | None = None) -> None:
        self._order, self._block, self._upgrades = order, block, upgrades
        self.waiting: dict[JobId, Key] = {}
        self.running = Ladders(order)
        self.room = Maker(place, self.running)
        self._queues: dict[int, Queue] = {}
        self._filled: list[Queue] = []
        self._unlucky: list[Queue] = []
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
        number = 0 if self._block else id(demand)
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = Queue()
        if not queue.filled:
            queue.filled = True
            self._filled.append(queue)
        heappush(queue.heap, (key, job, gpus_of(demand), queue))
        if queue.heap[0][1] == job:
            queue.try_now()

    def worsen(self, job: JobId, tag: float, height: tuple[float, ...]) -> None:
        """Give a running job a worse rung, which may let waiting ones take its place."""
        if job in self.running.seats:
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
        runs = job in self.running.seats
        self._tally.free(self.running.remove(job).gpus if runs else gpus_of(view.demand(job)))
        if job in self.waiting:
            self._order.left(job, self.waiting.pop(job))

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
            key, job, need, queue = heappop(line)
            queue.in_line = False
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

    def _put_off(self, place: tuple[Key, JobId], need: int, queue: Queue) -> None:
        missing = self.room.missing
        if missing:
            told = place if self._one_pool or not self._block else None
            queue.put_off(told, need, missing, self._tally)
        else:
            queue.block()
            self._unlucky.append(queue)

    def _step_up(self, queue: Queue, line: list[Entry]) -> None:
        """Let the next job of a queue into the line."""
        if queue.heap:
            queue.try_now()
            queue.in_line = True
            heappush(line, queue.heap[0])
        else:
            queue.filled = False
            self._filled.remove(queue)

    def _admit(self, line: list[Entry]) -> None:
        """Let the first job of every queue into the line that is worth a try."""
        tally = self._tally
        if tally.stirred:
            for queue in self._unlucky:
                queue.try_now()
            self._unlucky.clear()
            tally.stirred = False
        freed = tally.freed
        found = [queue.heap[0] for queue in self._filled if queue.until <= freed and not queue.in_line]
        for entry in found:
            entry[3].in_line = True
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
            if self._stops > _ENDLESS * (len(self.waiting) + len(self.running.seats)):
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
        seats, changes = self.running.seats, self._changes
        holding = [(job, seat.grant) for job, seat in seats.items() if job not in changes]
        moves = upgrades(view, holding)
        for job, grant in moves:
            changes[job] = grant
            self._tally.free(self.running.relocate(view, job, grant))
        return bool(moves)
