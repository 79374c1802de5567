"""A place for one waiting job: in free room, or in room that running jobs behind it give up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from allocators._ladders import Key, Ladders, gpus_of
from sim.contract import Demand, Grant, JobId, View

Place = Callable[[View, Demand], Grant | None]


@dataclass(slots=True)
class Maker:
    """Makes room on the sketch.

    Parameters
    ----------
    place : Place
        Finds and reserves nodes on the sketch of free room.
    running : Ladders
        The jobs that may be stopped.
    """

    place: Place
    running: Ladders
    missing: int = 0
    """GPUs by which the last search failed; 0 = there were enough, but in the wrong places."""

    def fit(self, view: View, demand: Demand, key: Key) -> tuple[Grant, list[JobId]] | None:
        """Return a reserved grant and the jobs to be stopped for it, the worst first and as few as needed, or None."""
        room, running = view.room, self.running
        pools = demand.pools
        free = room.free[pools[0]] if len(pools) == 1 else room.gpus_free(pools)
        missing = gpus_of(demand) - free
        grant: Grant | None = None
        stopped: list[JobId] = []
        if missing > 0:
            stopped, held = running.worse(view, demand, key, missing)
            if held < missing:
                self.missing = missing - held
                return None
            for job in stopped:
                room.give(running.seats[job].grant)
        grant = self.place(view, demand)
        if grant is None:
            more = running.worse(view, demand, key, inf)[0][len(stopped) :]
            grant = self._clear(view, demand, stopped, more)
        if grant is None:
            for job in reversed(stopped):
                room.take(running.seats[job].grant)
            self.missing = 0
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
            grant = self.place(view, demand)
        if grant is None:
            for job in reversed(more):
                room.take(seats[job].grant)
            return None
        while high - low > 1:
            middle = (low + high) // 2
            room.give(grant)
            for job in reversed(more[middle:high]):
                room.take(seats[job].grant)
            fewer = self.place(view, demand)
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
            without = self.place(view, demand)
            if without is None:
                room.give(seat.grant)
                grant = self._again(view, demand)
            else:
                grant = without
                stopped.remove(job)
        return grant, stopped

    def _again(self, view: View, demand: Demand) -> Grant:
        grant = self.place(view, demand)
        assert grant is not None, "a place that was found a moment ago is gone"
        return grant
