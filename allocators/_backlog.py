"""Queues that know what arrived and came back: shared by the policies that start waiting jobs in some order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from types import MappingProxyType
from typing import Any, Final

from allocators._denials import Denials
from allocators._patience import Patience
from allocators.placement import Placer
from sim.contract import Delta, Demand, Grant, JobId, View, param

Key = tuple[float, ...]
Entry = tuple[Any, ...]
"""A key and, last, the job."""
KeyOf = Callable[[View, JobId], Key]

_NOBODY: Final[Mapping[JobId, Grant | None]] = MappingProxyType({})


def head_param(default: str = "block") -> Any:
    """Declare the parameter ``head``."""
    return param(default, choices=("block", "skip"), help="block: the first job that has no room holds up those behind it. skip: they may pass.")


def backlog(head: str, key: KeyOf, patience: Patience | None = None) -> Backlog | Lanes:
    """Return the queue for a value of the parameter ``head``.

    Parameters
    ----------
    head : str
        "block" or "skip".
    key : callable
        (view, job) -> numbers; smaller goes first, ties go to the lower job id. Asked once, when the job begins to wait.
    patience : Patience
        How long jobs wait for the types that they prefer; None = they do not.
    """
    return (Backlog if head == "block" else Lanes)(key, patience)


def newly_waiting(delta: Delta) -> tuple[JobId, ...]:
    """Return the jobs that began to wait: arrivals, and those that lost their grant and were not given up."""
    if not delta.evicted:
        return delta.arrived
    return (*delta.arrived, *(eviction.job for eviction in delta.evicted if eviction.job not in delta.finished))


def only_arrivals(delta: Delta) -> bool:
    """Tell whether nothing can have become free: what had no room at the last call has none now."""
    return bool(delta.arrived) and not (delta.finished or delta.evicted or delta.nodes or delta.resized)


class Backlog:
    """Waiting jobs by falling urgency, of which the first that has no room holds up the others.

    Jobs that come in order, as they do in order of submission, stand in a line; only the others need a heap. A job that waits for its preferred type holds
    up the others as one that has no room.
    """

    def __init__(self, key: KeyOf, patience: Patience | None = None) -> None:
        self._key, self._patience = key, patience
        self._line: deque[Entry] = deque()
        self._heap: list[Entry] = []
        self._stuck = -1
        self.wake_at_s = inf

    def feed(self, view: View) -> None:
        """Take in the jobs that began to wait since the last call."""
        line = self._line
        for job in newly_waiting(view.delta):
            entry = (*self._key(view, job), job)
            if not line or entry > line[-1]:
                line.append(entry)
            else:
                heappush(self._heap, entry)

    def start(self, view: View, place: Placer) -> Mapping[JobId, Grant | None]:
        """Start jobs in order until the first that has no room, or waits until `wake_at_s` for a type that it prefers."""
        line, heap = self._line, self._heap
        started: dict[JobId, Grant | None] = {}
        while line or heap:
            queued = not heap or (bool(line) and line[0] < heap[0])
            job: JobId = (line[0] if queued else heap[0])[-1]
            if job == self._stuck and only_arrivals(view.delta) and view.now_s < self.wake_at_s:
                return started or _NOBODY
            grant = self._try(view, job, place, self._patience) if self._patience else place(view, view.demand(job))
            if grant is None:
                self._stuck = job
                return started or _NOBODY
            started[job] = grant
            if queued:
                line.popleft()
            else:
                heappop(heap)
        self.wake_at_s = inf
        return started or _NOBODY

    def _try(self, view: View, job: JobId, place: Placer, patience: Patience) -> Grant | None:
        until_s = patience.until_s(view, job)
        waits = until_s > view.now_s
        grant = (patience.place if waits else place)(view, view.demand(job))
        if grant is None:  # else the clock of the job that is stuck behind this one stays
            self.wake_at_s = until_s if waits else inf
        return grant


class Lanes:
    """Waiting jobs by falling urgency, which pass those that have no room.

    One queue for each demand: where its first job has no room, no other of that demand has any, until something becomes free. Those of a demand that wait for
    their preferred type stand in a queue of their own, with a negative number, until each of them has waited for long enough.
    """

    def __init__(self, key: KeyOf, patience: Patience | None = None) -> None:
        self._key, self._patience = key, patience
        self._lanes: dict[int, list[tuple[Key, JobId]]] = {}
        self._patient: dict[JobId, tuple[Key, int]] = {}
        self._deadlines: list[tuple[float, JobId]] = []
        self._full: set[int] = set()
        self._fed: set[int] = set()
        self._denials = Denials()
        self._held: dict[JobId, Grant] = {}
        self._begun = False

    def feed(self, view: View) -> None:
        """Take in the jobs that began to wait since the last call, and note what others gave back."""
        delta = view.delta
        if not self._begun:
            self._begun = True
            self._held.update(view.grants)
        if self._deadlines:
            self._lose_patience(view)
        for job in newly_waiting(delta):
            lane, key = id(view.demand(job)), self._key(view, job)
            if self._patience and (until_s := self._patience.until_s(view, job)) > view.now_s:
                lane = -lane
                self._patient[job] = key, lane
                heappush(self._deadlines, (until_s, job))
            heappush(self._lanes.setdefault(lane, []), (key, job))
            self._fed.add(lane)
        for job in (*delta.finished, *(eviction.job for eviction in delta.evicted)):
            if job in self._held:
                self._denials.give_back(self._held.pop(job))
        if delta.nodes:
            self._denials.renew(delta.nodes)
        for job in delta.resized:
            if job in self._held:
                self._denials.give_back(self._held[job])
                self._held[job] = view.grants[job]

    def _lose_patience(self, view: View) -> None:
        """Let those take any type that have waited for long enough."""
        lanes, deadlines = self._lanes, self._deadlines
        while deadlines and deadlines[0][0] <= view.now_s:
            job = heappop(deadlines)[1]
            if job not in self._patient:
                continue
            key, lane = self._patient.pop(job)
            lanes[lane].remove((key, job))
            heapify(lanes[lane])
            if not lanes[lane]:
                del lanes[lane]
                self._fed.discard(lane)
            heappush(lanes.setdefault(-lane, []), (key, job))
            self._fed.add(-lane)

    @property
    def wake_at_s(self) -> float:
        """When the next job has waited for long enough for a type that it prefers."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._patient:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else inf

    def start(self, view: View, place: Placer) -> Mapping[JobId, Grant]:
        """Start jobs in order, passing over those that have no room."""
        lanes, full = self._lanes, self._full
        if not only_arrivals(view.delta):
            full.clear()
            hopeful = list(lanes)
        else:
            hopeful = [lane for lane in self._fed if lane not in full]
        self._fed.clear()
        first = [(*lanes[lane][0], lane) for lane in hopeful]
        heapify(first)
        started: dict[JobId, Grant] = {}
        while first:
            _, job, lane = first[0]
            grant = self._place(view, view.demand(job), place, lane)
            if grant is None:
                full.add(lane)
                heappop(first)
                continue
            started[job] = grant
            queue = lanes[lane]
            heappop(queue)
            if queue:
                heapreplace(first, (*queue[0], lane))
            else:
                del lanes[lane]
                heappop(first)
        if started:
            self._held.update(started)
            for job in started if self._patient else ():
                self._patient.pop(job, None)
        return started

    def _place(self, view: View, demand: Demand, place: Placer, lane: int) -> Grant | None:
        ways = place.ways(view, demand)
        if ways.by_mask and lane > 0:
            return place(view, demand)
        for pools in ways.groups if lane > 0 else ways.groups[: ways.preferred]:
            if not self._denials.holds(view, demand, pools):
                grant = place.within(view, demand, pools)
                if grant is not None:
                    return grant
                self._denials.deny(view, demand, pools)
        return None
