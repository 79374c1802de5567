"""What policies in rounds have in common: when a round begins, and the jobs without GPUs, which do not wait for one."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np

from allocators.placement import Placer
from sim.contract import Grant, Ints, JobId, View, inf, instant, param

USUAL_ROUND_S: Final = 360.0


def round_param() -> Any:
    """Declare the parameter ``round_s``."""
    return param(USUAL_ROUND_S, unit="s", low=10, high=86_400, help="Length of a round: jobs start, stop and move only between rounds.")


class Aside:
    """Jobs without GPUs: outside the rounds, started in order of id as soon as they have room; who has none is passed by others."""

    def __init__(self, place: Placer) -> None:
        self._place = place
        self._lanes: dict[int, list[JobId]] = {}  # by demand: where the first has no room, no other has
        self._waiting: set[JobId] = set()
        self._all: set[JobId] = set()
        self._begun = False

    def __contains__(self, job: JobId) -> bool:
        return job in self._all

    def feed(self, view: View) -> None:
        """Take in what happened; at the first call also what runs already."""
        delta = view.delta
        for job in delta.arrived:
            if not view.demand(job).gpus:
                self._all.add(job)
                self._wait(view, job)
        if not self._begun:
            self._begun = True
            self._all.update([job for job in view.grants if not view.demand(job).gpus])
        if self._all:
            for eviction in delta.evicted:
                if eviction.job in self._all:
                    self._wait(view, eviction.job)
            self._all.difference_update(delta.finished)
            self._waiting.difference_update(delta.finished)

    def _wait(self, view: View, job: JobId) -> None:
        self._waiting.add(job)
        heappush(self._lanes.setdefault(id(view.demand(job)), []), job)

    def start(self, view: View) -> dict[JobId, Grant | None]:
        """Start what has room."""
        started: dict[JobId, Grant | None] = {}
        heads = [(queue[0], lane) for lane, queue in self._lanes.items()] if self._waiting else []
        heapify(heads)
        while heads:
            job, lane = heappop(heads)
            queue = self._lanes[lane]
            if job in self._waiting:
                grant = self._place(view, view.demand(job))
                if grant is None:
                    continue
                started[job] = grant
                self._waiting.remove(job)
            heappop(queue)
            if queue:
                heappush(heads, (queue[0], lane))
            else:
                del self._lanes[lane]
        return started

    @property
    def running(self) -> int:
        """Number of those that run, as far as is known."""
        return len(self._all) - len(self._waiting)

    def others(self, ids: Ints) -> Ints:
        """Return the jobs with GPUs among these."""
        return ids[~np.isin(ids, list(self._all))] if self._all else ids

    def only(self, jobs: Iterable[JobId]) -> bool:
        """Tell whether all of these jobs have no GPUs."""
        return all(job in self._all for job in jobs)


class Clock:
    """When rounds begin: one after the other as long as a job with GPUs runs, else with the next news.

    Parameters
    ----------
    round_s : float, seconds
        Length of a round.

    Attributes
    ----------
    began_s, ends_s : float, seconds
        Begin and end of the round that goes on; inf = none does, before the first -inf.
    idle_s : float, seconds
        Time before the round in which none went on; 0 before the first.
    """

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self.began_s, self.ends_s, self.idle_s = 0.0, -inf, 0.0
        self._over_s: float | None = None

    def is_due(self, view: View, aside: Aside) -> bool:
        """Tell whether a round begins now."""
        return view.now_s >= self.ends_s or aside.only(view.grants)

    def begin(self, now_s: float, *, goes_on: bool) -> None:
        """Begin a round; `goes_on` = another follows it."""
        self.idle_s = 0.0 if self._over_s is None else now_s - self._over_s
        self._over_s = None if goes_on else now_s
        self.began_s, self.ends_s = now_s, instant(now_s + self._round_s) if goes_on else inf
