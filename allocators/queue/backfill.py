"""Backfilling: when the head of a queue can start, what may run before it, and which waiting jobs
are considered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from allocators.placement import Patience, Placer
from sim.contract import Demand, FreeResources, Grant, JobId, View, instant, param


def order_param() -> Any:
    """Declare the parameter ``order``."""
    return param(
        "submit",
        title="Order of the queue",
        choices=("submit", "priority"),
        labels={"submit": "Submission", "priority": "Priority, then submission"},
        help="Order of the queue: submission, or priority first and submission within it.",
    )


def run_times_param() -> Any:
    """Declare the parameter ``run_times``."""
    return param(
        "estimate",
        choices=("estimate", "limit"),
        labels={"estimate": "Estimates", "limit": "Time limits in the trace"},
        help="Which run times are used: estimated ones, or the time limits in the trace.",
        was="estimate",
        were={"estimate": "belief", "limit": "limit"},
    )


def depth_param() -> Any:
    """Declare the parameter ``depth``."""
    return param(
        500,
        title="Depth of backfilling",
        unit="jobs",
        low=0,
        high=1_000_000,
        help="How many waiting jobs behind the first one are considered.",
    )


class RunTimes:
    """How long jobs are taken to run: as estimated, or for as long as their time limits allow.

    Parameters
    ----------
    place : Placer
        Knows the estimates of waiting jobs.
    by_limit : bool
        Whether limits count. A job without one counts with its estimate; a limit that is outlived
        counts twice, as estimates do.
    """

    def __init__(self, place: Placer, *, by_limit: bool) -> None:
        self._place, self._by_limit = place, by_limit

    def waiting_s(self, view: View, job: JobId, at: int = 0) -> float:
        """Return the seconds for which a waiting job will run in one of its groups of pools."""
        limit_s = self._limit_s(view, job)
        return limit_s if limit_s < inf else self._place.run_time_s(view, job, at)

    def left_s(self, view: View, job: JobId, grant: Grant) -> float:
        """Return the seconds for which a job will run on with what it holds."""
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
        """Return the instant at which a job will end with what it holds."""
        return instant(view.now_s + self.left_s(view, job, grant))

    def _limit_s(self, view: View, job: JobId) -> float:
        limit_s = view.one("time_limit_s", job) if self._by_limit else 0.0
        return limit_s if limit_s > 0 else inf


End = tuple[float, JobId, Grant, tuple[tuple[int, int], ...]]
"""A running job: when it is expected to leave its nodes, its id, what it holds, and GPUs of that by
pool.
"""


class Ends:
    """The running jobs, the one that is expected to end first in front."""

    def __init__(self) -> None:
        self.order: list[End] = []
        self._at_s: dict[JobId, float] = {}
        self._pool_of: list[int] = []

    def __contains__(self, job: JobId) -> bool:
        return job in self._at_s

    def add(self, room: FreeResources, job: JobId, grant: Grant, at_s: float) -> None:
        """Take in a job that starts now, or has been running."""
        self._at_s[job] = at_s
        insort(self.order, (at_s, job, grant, self.gpus_by_pool(room, grant)))

    def drop(self, job: JobId) -> End:
        """Forget a job that left its nodes."""
        return self.order.pop(bisect_left(self.order, (self._at_s.pop(job), job)))

    def overdue(self, now_s: float) -> list[End]:
        """Forget and return the jobs that should have left by now but have not."""
        order = self.order
        until = 0
        while until < len(order) and order[until][0] <= now_s:
            del self._at_s[order[until][1]]
            until += 1
        late = order[:until]
        del order[:until]
        return late

    def gpus_by_pool(self, room: FreeResources, grant: Grant) -> tuple[tuple[int, int], ...]:
        """Return (pool, GPUs) of what a grant holds; the overflow node belongs to no pool."""
        pool_of = self._pool_of or self._read(room)
        gangs = grant.gangs
        nodes, count, gpus, _, _ = gangs[0].workers
        if len(gangs) == 1 and gangs[0].servers is None and len(nodes) == 1:
            return ((pool_of[nodes[0]], count[0] * gpus),)
        held: dict[int, int] = {}
        for part in (part for gang in gangs for part in gang if part is not None):
            for node, replicas in zip(part.nodes, part.count, strict=True):
                held[pool_of[node]] = held.get(pool_of[node], 0) + replicas * part.gpus
        return tuple(held.items())

    def _read(self, room: FreeResources) -> list[int]:
        at = {node: pool for pool, nodes in enumerate(room.pools) for node in nodes.nodes}
        self._pool_of = [at[node] for node in range(len(at))] + [-1]
        return self._pool_of


@dataclass
class Reservation:
    """The promise to the head of the queue.

    Parameters
    ----------
    job : int
        The head.
    at_s : float, seconds
        The shadow time: when it can start if running jobs end as estimated.
    pools : frozenset of int
        Where its GPUs are counted.
    extra : int
        GPUs of these pools that it leaves free at that time.
    slack : dict
        Instead of a count, where cores, memory or the shape of the gang matter: node -> (GPUs,
        cores, GB) that it leaves free on its nodes.
    """

    job: JobId
    at_s: float
    pools: frozenset[int] = frozenset()
    extra: int = 0
    slack: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def may_spare(self, gpus: int, group: tuple[int, ...]) -> bool:
        """Tell whether a job that outlives the shadow time might run in this group; `spares` gives
        the verdict on its grant.
        """
        return bool(self.slack) or gpus <= self.extra or not self.pools.issuperset(group)

    def spares(self, gpus: tuple[tuple[int, int], ...], grant: Grant) -> bool:
        """Tell whether a grant may outlive the shadow time, and if so count it."""
        if self.slack:
            return self._spares_nodes(grant)
        wanted = sum(count for pool, count in gpus if pool in self.pools)
        if wanted > self.extra:
            return False
        self.extra -= wanted
        return True

    def _spares_nodes(self, grant: Grant) -> bool:
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
    view: View, placer: Placer, ends: Ends, job: JobId, patience: Patience | None
) -> Reservation:
    """Find out when a job that has no room now can start.

    Parameters
    ----------
    view : View
        Whose room already shows what starts at this instant.
    placer : Placer
        How the job would be placed.
    ends : Ends
        The running jobs.
    job : int
        The head of the queue.
    patience : Patience or None
        Until when it takes its preferred type only.

    Notes
    -----
    Where only counts of GPUs matter, they are counted for each group of pools that the job admits,
    and the group with the earliest start gets the reservation, the preferred one where equal (our
    reading for mixed clusters). Elsewhere running jobs are removed tentatively in
    order of their ends until the placement finds room, and the nodes found are reserved.

    The instant from which a job that waits for its preferred type takes any other stands among the
    ends, as one of a job that holds nothing.
    """
    demand, order, until_s = (
        view.demand(job),
        ends.order,
        patience.until_s(view, job) if patience else -inf,
    )
    if until_s > view.now_s:
        order = order.copy()
        insort(order, (until_s, -1, Grant(()), ()))
    if not placer.counts(view, demand):
        return _reserve_nodes(
            view, _Tentative(view, order, _Places(placer, patience, until_s)), job
        )
    best, (groups, _, preferred) = Reservation(job, inf), placer.ways(view, demand)
    for at, group in enumerate(groups):
        need = demand.replicas, until_s if at >= preferred else -inf
        at_s, free = _free_at(order, frozenset(group), view.room.gpus_free(group), need, best.at_s)
        if at_s < best.at_s:
            best = Reservation(job, at_s, frozenset(group), free - demand.replicas)
    return best


def _free_at(
    order: list[End], pools: frozenset[int], free: int, need: tuple[int, float], before_s: float
) -> tuple[float, int]:
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
    """How the head would be placed at an instant."""

    place: Placer
    patience: Patience | None
    until_s: float

    def __call__(self, view: View, demand: Demand, at_s: float) -> Grant | None:
        place = self.patience.place if self.patience and at_s < self.until_s else self.place
        return place(view, demand)


def _reserve_nodes(view: View, tentative: _Tentative, job: JobId) -> Reservation:
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
    # With servers to be placed after the workers, more free room may hurt: then what ends at the
    # same instant as the last one needed is left out.
    grant = _first_place(demand, tentative, (high, enough))
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


def _first_place(demand: Demand, tentative: _Tentative, ended: tuple[int, ...]) -> Grant:
    for count in ended:
        grant = tentative.place(demand, count)
        if grant is not None:
            return grant
    raise AssertionError("a place that was found a moment ago is gone")


class _Tentative:
    """The free room as it will be when the first so many jobs have ended."""

    def __init__(self, view: View, order: list[End], places: _Places) -> None:
        self._view, self._places, self._ended = view, places, 0
        self.order = order

    def show(self, ended: int) -> None:
        room, order = self._view.room, self.order
        while self._ended < ended:
            room.give(order[self._ended][2])
            self._ended += 1
        while self._ended > ended:
            self._ended -= 1
            room.take(order[self._ended][2])

    def place(self, demand: Demand, ended: int) -> Grant | None:
        self.show(ended)
        at_s = self.order[ended - 1][0] if ended else -inf
        return self._places(self._view, demand, at_s)

    def has_room(self, demand: Demand, ended: int) -> bool:
        grant = self.place(demand, ended)
        if grant is None:
            return False
        self._view.room.give(grant)
        return True


Entry = tuple[tuple[float, ...], JobId]
"""A waiting job: its key, then its id; smaller goes first."""


class Lane:
    """Jobs of one demand that may run at the same places, by place in the queue and, for each group
    of pools, by estimated run time.

    Parameters
    ----------
    number : int
        By which the lane is told from others.
    demand : Demand
        What all of them ask for.
    groups : tuple of tuples of int
        Where they may run, preferred first.
    limited : bool
        Whether more than free GPUs matters there.
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
        """Take in a job."""
        order = self.order
        if order and entry < order[-1]:
            insort(order, entry)
        else:
            order.append(entry)
        self._new[entry[1]] = entry

    def remove(self, entry: Entry) -> None:
        """Forget a job."""
        order = self.order
        del order[0 if order[0] is entry else bisect_left(order, entry)]
        if self._new.pop(entry[1], None) is None:
            for by_time, time_s in zip(self._shortest, self._times_s.pop(entry[1]), strict=True):
                del by_time[bisect_left(by_time, (time_s, entry))]

    def first_within(
        self, group: int, time_s: float, barred: set[JobId], times_s: TimesOf
    ) -> Entry | None:
        """Return the first job in the queue that takes no longer than this in a group.

        ``times_s`` is asked once for each job; ``time_s`` is rounded as its answers are.
        """
        for entry in self._new.values():
            self._times_s[entry[1]] = found = times_s(self, entry)
            for by_time, own_s in zip(self._shortest, found, strict=True):
                insort(by_time, (own_s, entry))
        self._new.clear()
        by_time = self._shortest[group]
        if not by_time or by_time[0][0] > time_s:
            return None
        until = bisect_right(by_time, time_s, key=lambda item: item[0])
        return min((entry for _, entry in by_time[:until] if entry[1] not in barred), default=None)


TimesOf = Callable[[Lane, Entry], tuple[float, ...]]
"""(lane, job) -> estimated seconds in each of the lane's groups, rounded as instants are."""


class BackfillWindow:
    """The jobs behind the head that may be started before it: the first ``depth`` of the queue."""

    def __init__(self, depth: int) -> None:
        self.lanes: dict[int, Lane] = {}
        self.size = 0
        self._depth = depth
        self._rest: list[Entry] = []
        self._where: dict[JobId, tuple[Entry, Lane]] = {}

    def first(self) -> Entry | None:
        """Return the job that goes first."""
        return min([lane.order[0] for lane in self.lanes.values()], default=None)

    def goes_behind(self, entry: Entry) -> bool:
        """Put a job behind the window and return True if that is its place; else make room for it
        in the window.
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

    def behind(self) -> Entry | None:
        """Take the first job behind the window."""
        return heappop(self._rest) if self._rest else None

    def add(self, lane: Lane, entry: Entry) -> None:
        """Put a job into its lane."""
        lane.add(entry)
        self._where[entry[1]] = entry, lane
        self.size += 1

    def __contains__(self, job: JobId) -> bool:
        return job in self._where

    def before(self, job: JobId) -> list[JobId]:
        """Return the jobs that go before one, the first of the queue first."""
        entries = sorted([*(entry for entry, _ in self._where.values()), *self._rest])
        jobs = [entry[1] for entry in entries]
        return jobs[: jobs.index(job)] if job in jobs else []

    def remove(self, job: JobId) -> Entry:
        """Take a job out of its lane, and the lane away if it was the last; return its entry."""
        entry, lane = self._where.pop(job)
        lane.remove(entry)
        self.size -= 1
        if not lane.order:
            del self.lanes[lane.id]
        return entry


class Outlook:
    """One pass over the queue: the first job of each lane that may pass, in order, and what has
    been learned.

    Parameters
    ----------
    promise : Reservation
        What the head was promised.
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
        """(lane, group) where only those may go that end before the head can start"""
        self.barred: set[JobId] = set()
