"""Queues that know what arrived and came back: shared by the policies that start waiting jobs in some order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType
from typing import Any, Final

from allocators._denials import Denials
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


def backlog(head: str, key: KeyOf) -> Backlog | Lanes:
    """Return the queue for a value of the parameter ``head``.

    Parameters
    ----------
    head : str
        "block" or "skip".
    key : callable
        (view, job) -> numbers; smaller goes first, ties go to the lower job id. Asked once, when the job begins to wait.
    """
    return Backlog(key) if head == "block" else Lanes(key)


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

    Jobs that come in order, as they do in order of submission, stand in a line; only the others need a heap.
    """

    def __init__(self, key: KeyOf) -> None:
        self._key = key
        self._line: deque[Entry] = deque()
        self._heap: list[Entry] = []
        self._stuck = -1

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
        """Start jobs in order until the first that has no room."""
        line, heap = self._line, self._heap
        started: dict[JobId, Grant | None] = {}
        while line or heap:
            queued = not heap or (bool(line) and line[0] < heap[0])
            job: JobId = (line[0] if queued else heap[0])[-1]
            if job == self._stuck and only_arrivals(view.delta):
                break
            grant = place(view, view.demand(job))
            if grant is None:
                self._stuck = job
                break
            started[job] = grant
            if queued:
                line.popleft()
            else:
                heappop(heap)
        return started or _NOBODY


class Lanes:
    """Waiting jobs by falling urgency, which pass those that have no room.

    One queue for each demand: where its first job has no room, no other of that demand has any, until something becomes free.
    """

    def __init__(self, key: KeyOf) -> None:
        self._key = key
        self._lanes: dict[int, list[tuple[Key, JobId]]] = {}
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
        for job in newly_waiting(delta):
            lane = id(view.demand(job))
            heappush(self._lanes.setdefault(lane, []), (self._key(view, job), job))
            self._fed.add(lane)
        for job in (*delta.finished, *(eviction.job for eviction in delta.evicted)):
            if job in self._held:
                self._denials.give_back(self._held.pop(job))
        self._denials.renew(delta.nodes)
        for job in delta.resized:
            if job in self._held:
                self._denials.give_back(self._held[job])
                self._held[job] = view.grants[job]

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
            grant = self._place(view, view.demand(job), place)
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
        return started

    def _place(self, view: View, demand: Demand, place: Placer) -> Grant | None:
        ways = place.ways(view, demand)
        if ways.by_mask:
            return place(view, demand)
        for pools in ways.groups:
            if not self._denials.holds(view, demand, pools):
                grant = place.within(view, demand, pools)
                if grant is not None:
                    return grant
                self._denials.deny(view, demand, pools)
        return None
