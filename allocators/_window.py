"""The waiting jobs that backfilling looks at: a head, the next few behind it sorted by demand, and the rest."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from heapq import heappop, heappush

from allocators._reservation import Reservation
from sim.contract import Demand, JobId

Entry = tuple[tuple[float, ...], JobId]
"""A waiting job: its key, then its id; smaller goes first."""


class Lane:
    """Jobs of one demand that may run at the same places, by place in the queue and, for each group of pools, by estimated run time.

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

    __slots__ = ("_new", "_shortest", "_times_s", "demand", "gpus", "groups", "id", "limited", "order")

    def __init__(self, number: int, demand: Demand, groups: tuple[tuple[int, ...], ...], *, limited: bool) -> None:
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

    def first_within(self, group: int, time_s: float, barred: set[JobId], times_s: TimesOf) -> Entry | None:
        """Return the first in the queue of those that take no longer than this in a group.

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


class Window:
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
        """Put a job behind the window and return True if that is its place; else make room for it in the window."""
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

    def remove(self, job: JobId) -> Entry:
        """Take a job out of its lane, and the lane away if it was the last; return its entry."""
        entry, lane = self._where.pop(job)
        lane.remove(entry)
        self.size -= 1
        if not lane.order:
            del self.lanes[lane.id]
        return entry


class Look:
    """One look at the queue: the first of each lane that may pass, in order, and what has been found out.

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
