"""Events at absolute instants, and the order of those that share an instant."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, Final

import simpy

from sim.clock import LATEST_S, later
from sim.grants import JobId

URGENT: Final = 0
"""As SimPy starts processes: arrivals at second 0 come before the first tick."""
CHANGE: Final = 1
"""Arrivals, and what running jobs do by themselves; as SimPy's own normal priority. Smaller numbers are processed first."""
OUTAGE: Final = 2
"""Nodes go and come after that: a job that has done its work at this instant is not evicted."""
LANDING: Final = 3
"""A plan that was in flight meets the jobs and nodes of this instant as they are by then."""
DECISION: Final = 9
END: Final = 10
_VOID: Final = 64


def planned_until_s(env: simpy.Environment) -> float:
    """Return the last instant for which jobs, plans in flight or the clock of the allocator have planned something; 0 = nothing."""
    return max((at_s for at_s, order, _, _ in env._queue if order in {CHANGE, LANDING}), default=0.0)


class At(simpy.Event):
    """An event at an absolute instant: a Timeout adds a delay to the clock and so misses the instant by a rounding error."""

    _ok = True

    def __init__(self, env: simpy.Environment, at_s: float, callback: Callable[[Any], None] | None, value: Any = None, order: int = CHANGE) -> None:
        self.callbacks = [callback] if callback else []
        self._value = value
        queue: Any = env._queue
        heappush(queue, (at_s, order, next(env._eid), self))


class Alarm:
    """The wake-up that an allocator asked for last.

    Most are put off again and again. So there is an event no later than the wake-up, not one for each.

    Parameters
    ----------
    env : simpy.Environment
        Where it happens, with the order `CHANGE`.
    rings : callable
        Called then.

    Attributes
    ----------
    asked_s, at_s : float, seconds
        What was asked for, and the instant of it; inf = none.
    """

    __slots__ = ("_called_s", "_env", "_rings", "asked_s", "at_s")

    def __init__(self, env: simpy.Environment, rings: Callable[[], None]) -> None:
        self._env, self._rings = env, rings
        self.asked_s = self.at_s = inf
        self._called_s = inf  # the first event in the environment

    def set(self, asked_s: float) -> None:
        """Wake up then, not when was asked for before; never, if the clock ends first."""
        self.asked_s = asked_s
        self.at_s = later(asked_s, self._env._now) if asked_s <= LATEST_S else inf
        self._call()

    @property
    def until_s(self) -> float:
        """Return the instant of the wake-up; 0 = none."""
        return self.at_s if self.at_s < inf else 0.0

    def _call(self) -> None:
        if self.at_s < self._called_s:
            self._called_s = self.at_s
            At(self._env, self.at_s, self._reach)

    def _reach(self, _: simpy.Event) -> None:
        now_s = self._env._now
        if now_s >= self._called_s:
            self._called_s = inf
        if now_s == self.at_s:
            self.asked_s = self.at_s = inf
            self._rings()
        else:
            self._call()


class Expected:
    """What will happen to running jobs if nobody interferes. Most of it never does, so only the first of all is an event of the environment.

    Parameters
    ----------
    env : simpy.Environment
        Where it happens, with the order `CHANGE`.
    happens : callable
        Told the job and what happens, which is expected no more then.
    """

    __slots__ = ("_called_s", "_entries", "_env", "_happens", "_next", "_numbers")

    def __init__(self, env: simpy.Environment, happens: Callable[[JobId, int], None]) -> None:
        self._env, self._happens = env, happens
        self._next: dict[JobId, tuple[float, int, JobId, int]] = {}
        self._entries: list[tuple[float, int, JobId, int]] = []  # those and void ones, as a heap
        self._numbers = count()
        self._called_s = inf  # the first event in the environment

    def put(self, job: JobId, following: tuple[float, int]) -> None:
        """Expect (when, what) for a job instead of anything before; never, if the clock ends first."""
        at_s, what = following
        if at_s > LATEST_S:
            self.drop(job)
            return
        entries, expected = self._entries, self._next
        entry = expected[job] = at_s, next(self._numbers), job, what
        heappush(entries, entry)
        if at_s < self._called_s:
            self._call(at_s)
        if len(entries) > _VOID + 2 * len(expected):
            entries[:] = expected.values()
            heapify(entries)

    def drop(self, job: JobId) -> None:
        """Expect nothing for a job."""
        self._next.pop(job, None)

    @property
    def until_s(self) -> float:
        """Return the last instant at which something is expected; 0 = nothing is."""
        return max([entry[0] for entry in self._next.values()], default=0.0)

    def _call(self, at_s: float) -> None:
        self._called_s = at_s
        At(self._env, at_s, self._reach)

    def _reach(self, _: simpy.Event) -> None:
        now_s, entries, expected = self._env._now, self._entries, self._next
        if now_s >= self._called_s:
            self._called_s = inf
        due = self._first()
        if due is not None and due[0] <= now_s:
            heappop(entries)
            del expected[due[2]]
        else:
            due = None
        following = entries[0] if entries else None
        if following is not None and expected.get(following[2]) is not following:
            following = self._first()
        # Whatever else happens at this instant is called before this happens, which so knows that it is not the last thing.
        if following is not None and following[0] < self._called_s:
            self._call(following[0])
        if due is not None:
            self._happens(due[2], due[3])

    def _first(self) -> tuple[float, int, JobId, int] | None:
        entries, expected = self._entries, self._next
        while entries:
            if expected.get(entries[0][2]) is entries[0]:
                return entries[0]
            heappop(entries)
        return None
