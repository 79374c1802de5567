"""Priority preemption: keeps the jobs of highest priority running, updated from events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple

from allocators.queue.running_index import Key, Priorities, RunningIndex, gang_gpus
from allocators.queue.upgrade import Upgrades
from sim.contract import ContractError, Decided, Demand, Grant, JobId, View

_NOW: Final = 0.0


class Tally:
    """GPUs freed since the start of the run, and GPUs given out in the current pass.

    Attributes
    ----------
    freed : int
        GPUs freed in total.
    spent : int
        GPUs that this pass has given to jobs, beyond those of preempted jobs.
    is_dirty : bool
        Whether jobs that failed although enough GPUs were free may be tried again.
    """

    __slots__ = ("_last", "freed", "is_dirty", "spent", "walk")

    def __init__(self) -> None:
        self.freed = self.spent = self.walk = 0
        self.is_dirty = False
        self._last: tuple[Key, JobId] = ((), -1)

    def free(self, gpus: int) -> None:
        """Count freed GPUs, and allow jobs that failed with enough free GPUs another try."""
        self.freed += gpus
        self.is_dirty = True

    def begin(self) -> None:
        """Begin another pass: no GPUs are spent yet."""
        self.walk += 1
        self.spent, self._last = 0, ((), -1)

    def start(self, place: tuple[Key, JobId], need: int, taken: int, *, one_pool: bool) -> None:
        """Count the start of a job that took `taken` GPUs from running jobs and needs `need`.

        The difference counts as spent or freed; with several pools all taken GPUs count as freed.
        `place` is the place of the job in the priority order.
        """
        self._last = place
        if not one_pool:
            self.freed += taken  # may be in other pools than the job uses
        elif taken > need:
            self.freed += taken - need
        else:
            self.spent += need - taken

    def spent_before(self, place: tuple[Key, JobId], bound: GpuBound) -> int:
        """Return the GPUs that this pass gave to jobs before a place, less those in the bound."""
        if place <= self._last:
            return 0
        return self.spent - bound.seen if bound.walk == self.walk else self.spent


class GpuBound(NamedTuple):
    """Upper bound on the GPUs that the jobs of one demand can get, set when one failed.

    Parameters
    ----------
    place : tuple
        Place in the priority order of the job that failed; the bound holds for it and all behind.
    slack : int
        GPUs that they can get beyond `Tally.freed`,
    walk, seen : int
        less the GPUs that better jobs took in pass `walk` beyond its first `seen` GPUs.
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
        Value of `Tally.freed` at which its first job is worth a try; `_NOW` = at once.
    bound : GpuBound or None
        Upper bound on the GPUs for its jobs; None = unknown.
    """

    __slots__ = ("bound", "filled", "heap", "in_line", "until")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.filled = False
        self.in_line: Entry | None = None  # its valid entry in the line of the current pass
        self.forget()

    def __lt__(self, other: object) -> bool:
        # Heaps compare queues only for two entries of one job, one of which is outdated.
        return False

    def forget(self) -> None:
        """Discard the bound on the GPUs for its jobs and have the first one tried."""
        self.bound: GpuBound | None = None
        self.until = _NOW

    def try_now(self) -> None:
        """Have the first job tried at the next pass."""
        self.until = _NOW

    def cannot_start(self, place: tuple[Key, JobId], need: int, tally: Tally) -> bool:
        """Return True if the GPUs freed since a failure cannot fit a job of the queue.

        Then the queue waits until enough GPUs are freed, and the bound is updated.
        """
        bound = self.bound
        if bound is None or place < bound.place:
            return False
        spent = tally.spent_before(place, bound) if tally.spent else 0
        until = need - bound.slack + spent
        if until <= tally.freed:
            return False
        # Jobs between the two places did not lose the GPUs that jobs before this one took.
        first = place if spent else bound.place
        self.bound = GpuBound(first, bound.slack - spent, tally.walk, tally.spent)
        self.until = until
        return True

    def requeue(
        self, place: tuple[Key, JobId] | None, need: int, missing: int, tally: Tally
    ) -> None:
        """Have the queue wait until the GPUs missing for a failed job are freed; set its bound.

        `place` is its place in the order; None if the failure tells nothing about other jobs.
        """
        slack = need - missing - tally.freed
        self.bound = None if place is None else GpuBound(place, slack, tally.walk, tally.spent)
        self.until = tally.freed + missing

    def block(self) -> None:
        """Wait for any change: the first job failed although enough GPUs were free."""
        self.until = inf


Entry = tuple[Key, JobId, int, DemandQueue]
"""Priority, job, GPUs of its gang, and its queue."""


Place = Callable[[View, Demand], Grant | None]


@dataclass(slots=True)
class RoomMaker:
    """Finds nodes for a job and preempts worse jobs where needed; all tentatively.

    Parameters
    ----------
    place : Place
        Finds nodes and reserves them tentatively.
    running : RunningIndex
        The preemptible jobs.
    """

    place: Place
    running: RunningIndex
    missing: int = 0
    """GPUs missing in the last search; 0 = enough GPUs, but not where they fit together."""

    def fit(self, view: View, demand: Demand, key: Key) -> tuple[Grant, list[JobId]] | None:
        """Reserve a grant for a demand; return it with the jobs to preempt, or None.

        As few jobs as needed are preempted, the one of the lowest priority first.
        """
        room, running = view.room, self.running
        pools = demand.pools
        free = room.free[pools[0]] if len(pools) == 1 else room.gpus_free(pools)
        missing = gang_gpus(demand) - free
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
            grant = self._preempt_few(view, demand, stopped, more)
        if grant is None:
            for job in reversed(stopped):
                room.take(running.slots[job].grant)
            self.missing = 0
            return None
        return (
            self._keep_unneeded(view, demand, grant, stopped)
            if len(stopped) > 1
            else (grant, stopped)
        )

    def _preempt_few(
        self, view: View, demand: Demand, stopped: list[JobId], more: list[JobId]
    ) -> Grant | None:
        """Preempt as few of `more`, in order, as give a demand a place; return the grant, or None.

        The preempted jobs are appended to `stopped`; on failure nothing changes.

        The number doubles until it fits and is then bisected.
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
            low, grant = middle, self._place_again(view, demand)
        stopped += more[:high]
        return grant

    def _keep_unneeded(
        self, view: View, demand: Demand, grant: Grant, stopped: list[JobId]
    ) -> tuple[Grant, list[JobId]]:
        """Take back preemptions that a grant does not need, best job first; return grant and rest.

        The job that was preempted last is always needed.
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
                grant = self._place_again(view, demand)
            else:
                grant = without
                stopped.remove(job)
        return grant, stopped

    def _place_again(self, view: View, demand: Demand) -> Grant:
        """Repeat a placement that has just succeeded, and return the grant."""
        grant = self.place(view, demand)
        assert grant is not None, "the placement was possible a moment ago"
        return grant


_MAX_STOPS_PER_JOB: Final = 1000
"""Preemptions per active job in one decision that end a run; a consistent order needs far fewer."""


class PriorityPreemption:
    """Keeps the jobs of highest priority running.

    Parameters
    ----------
    order : Priorities
        The priority order of the policy.
    place : Place
        Finds nodes and reserves them tentatively.
    block : bool
        Whether the first job that cannot be placed blocks all jobs behind it.
    upgrades : Upgrades, optional
        Moves running jobs to faster GPU types; None = never.

    Notes
    -----
    The result is that of a pass over all active jobs, best first, in which running jobs keep their
    nodes unless a better job needs them. A waiting job is placed on free nodes; otherwise running
    jobs of lower priority are preempted, the lowest first, until it fits, and those that turn out
    not to be needed continue. A preempted job waits and is reached later in the same pass. If only
    GPUs limit placements, this equals "from an empty cluster, give each job its gang if it fits,
    best first".

    Not every job is visited: a job that failed is tried again only when enough GPUs were freed
    since by its `GpuBound`.

    Free resources then go to upgrades, and those that upgrades release to waiting jobs again.

    Attributes
    ----------
    begun, interfered : bool
        Whether a decision was made, and whether any running job was stopped or moved.
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
        self._misfits: list[DemandQueue] = []
        self._tally = Tally()
        self._changes: dict[JobId, Grant | None] = {}
        self._stops = 0
        self.begun = self.interfered = self._one_pool = False

    # -- what happened ---------------------------------------------------------------------------

    def feed(self, view: View) -> None:
        """Update queues and running jobs from the events since the last call."""
        delta = view.delta
        if not self.begun:
            self._begin(view)
        if self._changes:
            self._reconcile_grants(view)
        for job in delta.finished:
            self._release(view, job)
        for eviction in delta.evicted:
            if eviction.job not in delta.finished:
                self._release(view, eviction.job)
                self.wait(view, eviction.job)
        if delta.nodes:
            self._try_all()
        for job in delta.resized:
            self._resize(view, job)
        for job in delta.arrived:
            self.wait(view, job)

    def _try_all(self) -> None:
        """Discard all bounds, so that every queue is tried again."""
        for queue in self._queues.values():  # empty queues have bounds too
            queue.forget()

    def _resize(self, view: View, job: JobId) -> None:
        """Update a resized job: a waiting one queues anew, a running one is indexed anew."""
        if job in self.waiting:
            self.wait(view, job)
        elif job in view.grants:
            self._release(view, job)
            self.running.add(view, job, view.grants[job], self._order.key(view, job))
            self._try_all()  # the released resources are not known here

    def wait(self, view: View, job: JobId) -> None:
        """Add a job to its queue, or update its place if it waits already."""
        old = self.waiting.get(job)
        if old is not None:
            self._order.stop_waiting(job, old)
        key = self.waiting[job] = self._order.key(view, job)
        demand = view.demand(job)
        number = 0 if self._block else demand.key
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = DemandQueue()
        if not queue.filled:
            queue.filled = True
            self._filled.append(queue)
        heappush(queue.heap, (key, job, gang_gpus(demand), queue))
        if queue.heap[0][1] == job:
            queue.try_now()

    def demote(self, job: JobId, tag: float, height: tuple[float, ...]) -> None:
        """Lower the priority of a running job and count its GPUs as freed for waiting jobs."""
        if job in self.running.slots:
            self._tally.free(self.running.move(job, tag, height))

    def _begin(self, view: View) -> None:
        """Index the running jobs and check for upgrades, at the first call."""
        self.begun = True
        self._one_pool = len(view.room.pools) == 1
        if self._upgrades is not None and not self._upgrades.possible(view):
            self._upgrades = None
        for job in sorted(view.grants):
            self.running.add(view, job, view.grants[job], self._order.key(view, job))

    def _reconcile_grants(self, view: View) -> None:
        """Compare the last decision with the present grants; index or queue jobs that differ."""
        # A delayed decision is applied without the entries that became invalid in between. A
        # stopped job may have continued until then, or lost work.
        delta, grants = view.delta, view.grants
        for job, grant in self._changes.items():
            held = grants.get(job)
            if held is grant or held == grant:
                if grant is not None:
                    self._order.confirm_start(view, job)
                elif job in self.waiting and self._order.is_outdated(view, job, self.waiting[job]):
                    self.wait(view, job)
                continue
            if job in delta.finished or any(job == eviction.job for eviction in delta.evicted):
                continue
            self._release(view, job)
            if held is None:
                self.wait(view, job)
            else:
                self.running.add(view, job, held, self._order.key(view, job))
        self._changes = {}

    def _release(self, view: View, job: JobId) -> None:
        """Remove a job from the running or waiting jobs and count its GPUs as freed."""
        runs = job in self.running.slots
        self._tally.free(self.running.remove(job).gpus if runs else gang_gpus(view.demand(job)))
        if job in self.waiting:
            self._order.stop_waiting(job, self.waiting.pop(job))

    # -- what is explained -----------------------------------------------------------------------

    def better(self, decided: Decided, job: JobId) -> list[JobId]:
        """Return the jobs that hold GPUs and do not rank below a waiting one, new starts first.

        Empty if the job does not wait.
        """
        key = self.waiting.get(job)
        if key is None:
            return []
        worse = set(self.running.worse(decided.view, decided.demand(job), key, inf)[0])
        new = set(decided.started)
        jobs = [one for one in decided.grants if one not in worse and decided.held_gpus(one)]
        return sorted(jobs, key=lambda one: (one not in new, one))

    # -- the walk --------------------------------------------------------------------------------

    def allocate(self, view: View) -> Mapping[JobId, Grant | None]:
        """Start waiting jobs, preempting lower ones, and upgrade jobs; return the changes.

        While upgrades move jobs, waiting jobs are tried again. Sets `interfered` if a running job
        is stopped or moved. Priorities do not change here.
        """
        self._changes, self._stops = {}, 0
        self._try_waiting(view)
        if self._upgrades is not None:
            while any(view.room.free) and self._upgrade_jobs(view, self._upgrades):
                self.interfered = True
                self._try_waiting(view)
        if self._stops and not self.interfered:
            self.interfered = any(job in view.grants for job in self._changes)
        return self._changes

    def _try_waiting(self, view: View) -> None:
        """Start waiting jobs that may fit, in priority order, preempting worse jobs."""
        tally, waiting = self._tally, self.waiting
        tally.begin()
        line: list[Entry] = []
        self._enqueue_heads(line)
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
                elif (tally.spent or not queue.until) and queue.cannot_start(
                    (key, job), need, tally
                ):
                    continue
                else:
                    placement = self.room.fit(view, view.demand(job), key)
                    if placement is None:
                        self._requeue((key, job), need, queue)
                        continue
                    heappop(heap)
                    self._start(view, job, need, *placement)
            self._promote_next(queue, line)
            if tally.is_dirty:
                self._enqueue_heads(line)

    def _requeue(self, place: tuple[Key, JobId], need: int, queue: DemandQueue) -> None:
        """Have a queue wait until the GPUs missing for its failed job are freed.

        If enough were free, it waits for any change.
        """
        missing = self.room.missing
        if missing:
            bound_place = place if self._one_pool or not self._block else None
            queue.requeue(bound_place, need, missing, self._tally)
        else:
            queue.block()
            self._misfits.append(queue)

    def _promote_next(self, queue: DemandQueue, line: list[Entry]) -> None:
        """Add the next job of a queue to the line of this pass, or drop an empty queue."""
        if queue.heap:
            queue.try_now()
            queue.in_line = queue.heap[0]
            heappush(line, queue.heap[0])
        else:
            queue.filled = False
            self._filled.remove(queue)

    def _enqueue_heads(self, line: list[Entry]) -> None:
        """Add to the line the first job of every queue that may fit now."""
        tally = self._tally
        if tally.is_dirty:
            for queue in self._misfits:
                queue.try_now()
            self._misfits.clear()
            tally.is_dirty = False
        freed = tally.freed
        # A job that was just preempted may go before the present entry of its queue.
        entries = [
            queue.heap[0]
            for queue in self._filled
            if queue.until <= freed and queue.in_line is not queue.heap[0]
        ]
        for entry in entries:
            entry[3].in_line = entry
        line += entries
        heapify(line)

    def _start(self, view: View, job: JobId, need: int, grant: Grant, stopped: list[JobId]) -> None:
        """Record the start of a job; the jobs preempted for it stop and wait again."""
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
            if self._stops > _MAX_STOPS_PER_JOB * (len(self.waiting) + len(self.running.slots)):
                both = f"the jobs in rows {job} and {victim} go before each other"
                raise ContractError(f"{both}, so that each is stopped for the other")
            taken += self.running.remove(victim).gpus
            if victim in grants:
                changes[victim] = None
            else:
                del changes[victim]
            self.wait(view, victim)
            self._tally.is_dirty = True
        self._tally.start((key, job), need, taken, one_pool=self._one_pool)

    def _upgrade_jobs(self, view: View, upgrades: Upgrades) -> bool:
        """Move running jobs to faster GPU types on free nodes; return True if any moved."""
        slots, changes = self.running.slots, self._changes
        holding = [(job, slot.grant) for job, slot in slots.items() if job not in changes]
        moves = upgrades(view, holding)
        for job, grant in moves:
            changes[job] = grant
            self._tally.free(self.running.relocate(view, job, grant))
        return bool(moves)
