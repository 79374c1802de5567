"""Backfilling: reservation of the head, and the waiting jobs that may run before it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from allocators.placement import Placer, TypeWait
from sim.contract import Demand, FreeResources, Grant, JobId, View, instant, param


def order_param() -> Any:
    """Declare the policy parameter ``order``."""
    return param(
        "submit",
        title="Order of the queue",
        choices=("submit", "priority"),
        labels={"submit": "Submission", "priority": "Priority, then submission"},
        help="Order of the queue: submission, or priority first and submission within it.",
    )


def run_times_param() -> Any:
    """Declare the policy parameter ``run_times``."""
    return param(
        "estimate",
        choices=("estimate", "limit"),
        labels={"estimate": "As set in Run-time estimates", "limit": "Time limits in the trace"},
        help="Run times to use: estimates, or the time limits in the trace.",
        was="estimate",
        were={"estimate": "belief", "limit": "limit"},
    )


def depth_param() -> Any:
    """Declare the policy parameter ``depth``."""
    return param(
        500,
        title="Depth of backfilling",
        unit="jobs",
        low=0,
        high=1_000_000,
        help="Waiting jobs behind the first one that are considered.",
    )


class RunTimes:
    """Expected run times of jobs: estimates, or their time limits.

    Parameters
    ----------
    place : Placer
        Estimates the run times of waiting jobs.
    by_limit : bool
        Whether time limits count. A job without one counts with its estimate; a job that outlives
        its limit or estimate counts with twice that.
    """

    def __init__(self, place: Placer, *, by_limit: bool) -> None:
        self._place, self._by_limit = place, by_limit

    def waiting_s(self, view: View, job: JobId, at: int = 0) -> float:
        """Return a waiting job's time limit, or else its estimated run time in group `at`."""
        limit_s = self._limit_s(view, job)
        return limit_s if limit_s < inf else self._place.run_time_s(view, job, at)

    def remaining_s(self, view: View, job: JobId, grant: Grant) -> float:
        """Return a running job's remaining time, from its limit, else from its work and rate.

        A limit that has passed is doubled until it lies ahead.
        """
        limit_s = self._limit_s(view, job)
        if limit_s < inf:
            held = view.one("held_gpus", job)
            been_s = view.one("served_gpu_s", job) / held if held else 0.0
            while limit_s <= been_s:
                limit_s *= 2
            return limit_s - been_s
        rate = view.estimates.rate(job, grant)
        return view.one("remaining_work", job) / rate if rate > 0 else inf

    def end_s(self, view: View, job: JobId, grant: Grant) -> float:
        """Return the expected end of a running job with its grant, as an instant."""
        return instant(view.now_s + self.remaining_s(view, job, grant))

    def _limit_s(self, view: View, job: JobId) -> float:
        """Return the time limit of a job; inf without one, or if limits do not count."""
        limit_s = view.one("time_limit_s", job) if self._by_limit else 0.0
        return limit_s if limit_s > 0 else inf


End = tuple[float, JobId, Grant, tuple[tuple[int, int], ...]]
"""A running job: its expected end, its id, its grant, and GPUs by pool."""


class Ends:
    """The running jobs, sorted by expected end."""

    def __init__(self) -> None:
        self.order: list[End] = []
        self._at_s: dict[JobId, float] = {}
        self._pool_of: list[int] = []

    def __contains__(self, job: JobId) -> bool:
        return job in self._at_s

    def __getitem__(self, job: JobId) -> End:
        return self.order[bisect_left(self.order, (self._at_s[job], job))]

    def add(self, room: FreeResources, job: JobId, grant: Grant, at_s: float) -> None:
        """Add a running job."""
        self._at_s[job] = at_s
        insort(self.order, (at_s, job, grant, self.gpus_by_pool(room, grant)))

    def drop(self, job: JobId) -> End:
        """Remove and return the entry of a job that left its nodes; it must be present."""
        return self.order.pop(bisect_left(self.order, (self._at_s.pop(job), job)))

    def overdue(self, now_s: float) -> list[End]:
        """Remove and return the jobs that should have ended by now."""
        order = self.order
        until = 0
        while until < len(order) and order[until][0] <= now_s:
            del self._at_s[order[until][1]]
            until += 1
        late = order[:until]
        del order[:until]
        return late

    def gpus_by_pool(self, room: FreeResources, grant: Grant) -> tuple[tuple[int, int], ...]:
        """Return the GPUs of a grant as (pool, GPUs) pairs; pool -1 is the overflow node."""
        pool_of = self._pool_of or self._read_pools(room)
        gangs = grant.gangs
        nodes, count, gpus, _, _ = gangs[0].workers
        if len(gangs) == 1 and gangs[0].servers is None and len(nodes) == 1:
            return ((pool_of[nodes[0]], count[0] * gpus),)
        held: dict[int, int] = {}
        for part in (part for gang in gangs for part in gang if part is not None):
            for node, replicas in zip(part.nodes, part.count, strict=True):
                held[pool_of[node]] = held.get(pool_of[node], 0) + replicas * part.gpus
        return tuple(held.items())

    def _read_pools(self, room: FreeResources) -> list[int]:
        """Record and return the pool of every node; -1 for the overflow node at the end."""
        at = {node: pool for pool, nodes in enumerate(room.pools) for node in nodes.nodes}
        self._pool_of = [at[node] for node in range(len(at))] + [-1]
        return self._pool_of


@dataclass
class Reservation:
    """The expected start of the head of the queue and the resources reserved for it.

    Parameters
    ----------
    job : int
        The head.
    at_s : float, seconds
        The shadow time: its start if running jobs end as estimated.
    pools : frozenset of int
        Pools with its GPUs.
    extra : int
        GPUs of these pools that it leaves free at that time.
    slack : dict
        Used instead of a count if cores, memory or the shape of the gang matter: node -> (GPUs,
        cores, GB) that it leaves free on its nodes.
    """

    job: JobId
    at_s: float
    pools: frozenset[int] = frozenset()
    extra: int = 0
    slack: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def may_outlast(self, gpus: int, group: tuple[int, ...]) -> bool:
        """Return True if a job of this size might run past the shadow time in a group.

        `try_outlast` decides for its actual grant.
        """
        return bool(self.slack) or gpus <= self.extra or not self.pools.issuperset(group)

    def try_outlast(self, gpus: tuple[tuple[int, int], ...], grant: Grant) -> bool:
        """Return True if a grant may run past the shadow time; subtract its use from the spare."""
        if self.slack:
            return self._try_outlast_on_nodes(grant)
        wanted = sum(count for pool, count in gpus if pool in self.pools)
        if wanted > self.extra:
            return False
        self.extra -= wanted
        return True

    def _try_outlast_on_nodes(self, grant: Grant) -> bool:
        """Return True if a grant fits the slack of the reserved nodes; subtract it if so."""
        left: dict[int, tuple[float, float, float]] = {}
        for part in (part for gang in grant.gangs for part in gang if part is not None):
            for node, count in zip(part.nodes, part.count, strict=True):
                if node in self.slack:
                    gpus, cpus, mem_gb = left.get(node, self.slack[node])
                    left[node] = (
                        gpus - count * part.gpus,
                        cpus - count * part.cpus,
                        mem_gb - count * part.mem_gb,
                    )
        if any(min(free) < -1e-6 for free in left.values()):
            return False
        self.slack.update(left)
        return True


def reserve(
    view: View, placer: Placer, ends: Ends, job: JobId, patience: TypeWait | None
) -> Reservation:
    """Return the earliest reservation of a job that does not fit now.

    Parameters
    ----------
    view : View
        The view, with the jobs that start now already reserved.
    placer : Placer
        Places the job.
    ends : Ends
        The running jobs.
    job : int
        The head of the queue.
    patience : TypeWait or None
        Limits how long it waits for its preferred type.

    Notes
    -----
    If only GPUs limit the placement, they are counted for each group of pools that the job may use,
    and the group with the earliest start gets the reservation, the preferred one in a tie (our
    reading for mixed clusters). Otherwise running jobs are removed tentatively in order of their
    ends until the job can be placed, and its nodes are reserved.

    The end of a job's wait for its preferred type is inserted among the ends, as that of a job
    without resources.
    """
    demand, order, until_s = (
        view.demand(job),
        ends.order,
        patience.until_s(view, job) if patience else -inf,
    )
    if until_s > view.now_s:
        order = order.copy()
        insort(order, (until_s, -1, Grant(()), ()))
    if not placer.needs_only_gpus(view, demand):
        return _reserve_nodes(
            view, _Tentative(view, order, _Places(placer, patience, until_s)), job
        )
    best, (groups, _, preferred) = Reservation(job, inf), placer.options(view, demand)
    for at, group in enumerate(groups):
        need = demand.replicas, until_s if at >= preferred else -inf
        at_s, free = _free_at(order, frozenset(group), view.room.gpus_free(group), need, best.at_s)
        if at_s < best.at_s:
            best = Reservation(job, at_s, frozenset(group), free - demand.replicas)
    return best


def _free_at(
    order: list[End], pools: frozenset[int], free: int, need: tuple[int, float], before_s: float
) -> tuple[float, int]:
    """Return when enough GPUs are free in these pools, and how many are free then.

    The time is inf if it is not before `before_s`. `need` is (GPUs, earliest time).
    """
    gpus_needed, not_before_s = need
    found_s = inf
    for at_s, _, _, gpus in order:
        if at_s > found_s or at_s >= before_s:
            break
        for pool, count in gpus:
            if pool in pools:
                free += count
        if free >= gpus_needed and found_s == inf and at_s >= not_before_s:
            found_s = at_s
    return found_s, free


class _Places(NamedTuple):
    """Placement of the head at a given time, with its wait for the preferred type."""

    place: Placer
    patience: TypeWait | None
    until_s: float

    def __call__(self, view: View, demand: Demand, at_s: float) -> Grant | None:
        place = (
            self.patience.place_preferred if self.patience and at_s < self.until_s else self.place
        )
        return place(view, demand)


def _reserve_nodes(view: View, tentative: _Tentative, job: JobId) -> Reservation:
    """Return the earliest reservation of a job on named nodes, by bisection over the ends.

    Its time is inf if the job fits at none. All tentative releases are undone.
    """
    demand, order = view.demand(job), tentative.order
    low, high, step = 0, 1, 1
    while not tentative.has_room(demand, min(high, len(order))):
        if high >= len(order):
            tentative.show(0)
            return Reservation(job, inf)
        low, step = high, 2 * step
        high += step
    high = min(high, len(order))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tentative.has_room(demand, middle) else (middle, high)
    at_s, enough = order[high - 1][0], high
    while high < len(order) and order[high][0] <= at_s:
        high += 1
    # Servers are placed after the workers, so more free nodes may hurt: then jobs that end at the
    # same time as the last one needed are left out.
    grant = _first_grant(demand, tentative, (high, enough))
    free = view.free_gpus.tolist(), view.free_cpus.tolist(), view.free_mem_gb.tolist()
    slack = {
        node: (free[0][node], free[1][node], free[2][node])
        for part in grant.gangs[0]
        if part is not None
        for node in part.nodes
    }
    view.room.give(grant)
    tentative.show(0)
    return Reservation(job, at_s, slack=slack)


def _first_grant(demand: Demand, tentative: _Tentative, ended: tuple[int, ...]) -> Grant:
    """Reserve and return a demand's grant at the first number of ended jobs at which it fits."""
    for count in ended:
        grant = tentative.place(demand, count)
        if grant is not None:
            return grant
    raise AssertionError("the placement was possible a moment ago")


class _Tentative:
    """The free resources after the first jobs of a list have ended."""

    def __init__(self, view: View, order: list[End], places: _Places) -> None:
        self._view, self._places, self._ended = view, places, 0
        self.order = order

    def show(self, ended: int) -> None:
        """Release or reserve grants so that the first `ended` jobs have ended."""
        room, order = self._view.room, self.order
        while self._ended < ended:
            room.give(order[self._ended][2])
            self._ended += 1
        while self._ended > ended:
            self._ended -= 1
            room.take(order[self._ended][2])

    def place(self, demand: Demand, ended: int) -> Grant | None:
        """Reserve and return a grant after the first `ended` jobs have ended, or return None."""
        self.show(ended)
        at_s = self.order[ended - 1][0] if ended else -inf
        return self._places(self._view, demand, at_s)

    def has_room(self, demand: Demand, ended: int) -> bool:
        """Return True if a demand fits after the first `ended` jobs have ended."""
        grant = self.place(demand, ended)
        if grant is None:
            return False
        self._view.room.give(grant)
        return True


Entry = tuple[tuple[float, ...], JobId]
"""A waiting job: its key, then its id; smaller goes first."""


class Lane:
    """Waiting jobs of one demand, sorted by queue order and by estimated run time.

    Parameters
    ----------
    number : int
        Id of the lane.
    demand : Demand
        Request of all its jobs.
    groups : tuple of tuples of int
        Groups of pools that they may use, preferred first.
    limited : bool
        Whether more than free GPUs limits the placement.
    """

    __slots__ = (
        "_new",
        "_shortest",
        "_times_s",
        "demand",
        "gpus",
        "groups",
        "id",
        "limited",
        "order",
    )

    def __init__(
        self, number: int, demand: Demand, groups: tuple[tuple[int, ...], ...], *, limited: bool
    ) -> None:
        self.id = number
        self.demand, self.groups, self.limited = demand, groups, limited
        self.gpus = demand.replicas * demand.gpus
        self.order: list[Entry] = []
        self._shortest: list[list[tuple[float, Entry]]] = [[] for _ in groups]
        self._times_s: dict[JobId, tuple[float, ...]] = {}
        self._new: dict[JobId, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Add a job in queue order; its run times are computed when first needed."""
        order = self.order
        if order and entry < order[-1]:
            insort(order, entry)
        else:
            order.append(entry)
        self._new[entry[1]] = entry

    def remove(self, entry: Entry) -> None:
        """Remove a job from the queue order and from the orders by run time."""
        order = self.order
        del order[0 if order[0] is entry else bisect_left(order, entry)]
        if self._new.pop(entry[1], None) is None:
            for by_time, time_s in zip(self._shortest, self._times_s.pop(entry[1]), strict=True):
                del by_time[bisect_left(by_time, (time_s, entry))]

    def first_within(
        self, group: int, time_s: float, barred: set[JobId], times_s: TimesOf
    ) -> Entry | None:
        """Return the first job in queue order that takes at most `time_s` in a group.

        ``times_s`` is called once for each job; ``time_s`` must be rounded like its results. Jobs
        in `barred` are left out.
        """
        for entry in self._new.values():
            self._times_s[entry[1]] = job_times_s = times_s(self, entry)
            for by_time, own_s in zip(self._shortest, job_times_s, strict=True):
                insort(by_time, (own_s, entry))
        self._new.clear()
        by_time = self._shortest[group]
        if not by_time or by_time[0][0] > time_s:
            return None
        until = bisect_right(by_time, time_s, key=lambda item: item[0])
        return min((entry for _, entry in by_time[:until] if entry[1] not in barred), default=None)


TimesOf = Callable[[Lane, Entry], tuple[float, ...]]
"""(lane, job) -> estimated seconds in each group of the lane, rounded like event times."""


class BackfillWindow:
    """The first ``depth`` jobs behind the head, which may start before it."""

    def __init__(self, depth: int) -> None:
        self.lanes: dict[int, Lane] = {}
        self.size = 0
        self._depth = depth
        self._rest: list[Entry] = []
        self._where: dict[JobId, tuple[Entry, Lane]] = {}

    def first(self) -> Entry | None:
        """Return the first job of the window without removing it; None if it is empty."""
        return min([lane.order[0] for lane in self.lanes.values()], default=None)

    def goes_behind(self, entry: Entry) -> bool:
        """Put a job behind the window and return True, or False if it belongs in the window.

        On False the last job of a full window is moved behind it; the caller must add the job.
        """
        if self._rest and entry > self._rest[0]:
            heappush(self._rest, entry)
            return True
        if self.size < self._depth:
            return False
        last = max([lane.order[-1] for lane in self.lanes.values()], default=None)
        if last is None or entry > last:
            heappush(self._rest, entry)
            return True
        self.remove(last[1])
        heappush(self._rest, last)
        return False

    def pop_behind(self) -> Entry | None:
        """Remove and return the first job behind the window; None if there is none."""
        return heappop(self._rest) if self._rest else None

    def add(self, lane: Lane, entry: Entry) -> None:
        """Add a job to a lane of the window."""
        lane.add(entry)
        self._where[entry[1]] = entry, lane
        self.size += 1

    def __contains__(self, job: JobId) -> bool:
        return job in self._where

    def jobs_before(self, job: JobId) -> list[JobId]:
        """Return the jobs before a job, in queue order; empty if it is neither in nor behind it."""
        entries = sorted([*(entry for entry, _ in self._where.values()), *self._rest])
        jobs = [entry[1] for entry in entries]
        return jobs[: jobs.index(job)] if job in jobs else []

    def remove(self, job: JobId) -> Entry:
        """Remove a job, and its lane if that becomes empty; return the job's entry."""
        entry, lane = self._where.pop(job)
        lane.remove(entry)
        self.size -= 1
        if not lane.order:
            del self.lanes[lane.id]
        return entry


class BackfillScan:
    """State of one backfill scan: the next job of each lane, and lanes and jobs that failed.

    Parameters
    ----------
    promise : Reservation
        Reservation of the head.
    times_s : callable
        See `TimesOf`.
    """

    __slots__ = ("barred", "full", "line", "lined_up", "only_short", "promise", "starts", "times_s")

    def __init__(self, promise: Reservation, times_s: TimesOf) -> None:
        self.promise, self.times_s = promise, times_s
        self.line: list[tuple[Entry, int, int, Lane]] = []
        self.lined_up: set[int] = set()
        self.starts = 0
        self.full: set[tuple[int, int]] = set()
        """(lane, group) without room"""
        self.only_short: set[tuple[int, int]] = set()
        """(lane, group) where only jobs that end before the head can start may run"""
        self.barred: set[JobId] = set()
