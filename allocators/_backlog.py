"""A queue that knows what arrived, left and came back: shared by the policies that start waiting jobs in some order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from sim.contract import Demand, Grant, JobId, View

Key = tuple[float, ...]
Place = Callable[[View, Demand], Grant | None]


class Backlog:
    """Waiting jobs by falling urgency, fed by ``view.delta``.

    Parameters
    ----------
    key : callable
        (view, job) -> numbers; smaller goes first, ties go to the lower job id. Asked once, when the job begins to wait.
    """

    def __init__(self, key: Callable[[View, JobId], Key]) -> None:
        self._key = key
        self._heap: list[tuple[Key, JobId]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def feed(self, view: View) -> None:
        """Take in the jobs that began to wait since the last call."""
        delta = view.delta
        for job in delta.arrived:
            heappush(self._heap, (self._key(view, job), job))
        for eviction in delta.evicted:
            if eviction.job not in delta.finished:
                heappush(self._heap, (self._key(view, eviction.job), eviction.job))

    def start(self, view: View, place: Place) -> dict[JobId, Grant]:
        """Start jobs in order until the first that has no room."""
        started: dict[JobId, Grant] = {}
        heap = self._heap
        while heap:
            job = heap[0][1]
            grant = place(view, view.demand(job))
            if grant is None:
                break
            started[job] = grant
            heappop(heap)
        return started

    def start_past(self, view: View, place: Place) -> dict[JobId, Grant]:
        """Start jobs in order, passing over those that have no room; of equal demands only the first is tried."""
        started: dict[JobId, Grant] = {}
        full: set[int] = set()
        kept: list[tuple[Key, JobId]] = []
        for key, job in sorted(self._heap):
            demand = view.demand(job)
            grant = None if id(demand) in full else place(view, demand)
            if grant is None:
                full.add(id(demand))
                kept.append((key, job))
            else:
                started[job] = grant
        if started:
            heapify(kept)
            self._heap = kept
        return started
