"""Future events: at which instant they happen, and in which order at one instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final

import simpy

from sim.clock import LATEST_S, PER_S, WHOLE, later
from sim.grants import JobId

URGENT: Final = 0
"""As SimPy starts processes: arrivals at second 0 come before the first tick."""
CHANGE: Final = 1
"""Arrivals, and what running jobs do by themselves; as SimPy's own normal priority. Smaller numbers
are processed first.
"""
OUTAGE: Final = 2
"""Nodes go and come after that: a job that has done its work at this instant is not evicted."""
LANDING: Final = 3
"""A plan that was in flight meets the jobs and nodes of this instant as they are by then."""
DECISION: Final = 9
END: Final = 10
_VOID: Final = 64


Action = Callable[[], None]


class Agenda:
    """Actions at instants. SimPy's clock goes from one instant to the next.

    At an instant actions are called by their order, and those of one order as they were entered.

    Notes
    -----
    SimPy has one event, the next instant, and its clock counts whole microseconds, so that delays
    add up exactly: seconds would miss an instant by a rounding error.

    Attributes
    ----------
    now_s : float, seconds
        The instant.
    actions : list of (instant, order, number, action)
        What is to come, as a heap.
    """

    __slots__ = ("_callbacks", "_env", "_number", "actions", "now_s")

    def __init__(self) -> None:
        self._env = simpy.Environment()
        self._callbacks: list[Callable[[simpy.Event], None]] = [self._pass]
        self.actions: list[tuple[float, int, int, Action]] = []
        self._number = count().__next__
        self.now_s = 0.0

    def at(self, at_s: float, action: Action, order: int = CHANGE) -> None:
        """Enter an action."""
        heappush(self.actions, (at_s, order, self._number(), action))

    def follow(self, instants: Iterator[float], order: int = CHANGE) -> None:
        """Advance a generator now, and at each instant that it yields."""
        at_s = next(instants, None)
        if at_s is not None:
            self.at(at_s, partial(self.follow, instants, order), order)

    @property
    def planned_until_s(self) -> float:
        """Return the last instant for which jobs, plans in flight or the clock of the allocator
        have planned something; 0 = nothing.
        """
        planned = (at_s for at_s, order, _, _ in self.actions if order in {CHANGE, LANDING})
        return max(planned, default=0.0)

    def run(self) -> None:
        """Call all actions, until none is left."""
        event = self._env.event().succeed()
        event.callbacks = self._callbacks
        self._env.run()

    def stop(self) -> None:
        """Drop all entries."""
        self.actions.clear()

    def _pass(self, event: simpy.Event) -> None:
        actions, now_s = self.actions, self.now_s
        while actions:
            at_s = actions[0][0]
            if at_s > now_s:
                self.now_s = at_s
                event.callbacks = self._callbacks
                delay = (at_s * PER_S + WHOLE) - (now_s * PER_S + WHOLE)
                self._env.schedule(event, delay=delay)
                return
            heappop(actions)[3]()


class Alarm:
    """The wake-up that an allocator asked for last.

    Most wake-ups are postponed many times. So the agenda has one entry that is no later than the
    wake-up, not one entry for each.

    Parameters
    ----------
    agenda : Agenda
        Where it happens, with the order `CHANGE`.
    rings : callable
        Called at the wake-up.

    Attributes
    ----------
    asked_s, at_s : float, seconds
        The time asked for, and the instant of it; inf = none.
    """

    __slots__ = ("_agenda", "_called_s", "_rings", "asked_s", "at_s")

    def __init__(self, agenda: Agenda, rings: Callable[[], None]) -> None:
        self._agenda, self._rings = agenda, rings
        self.asked_s = self.at_s = inf
        self._called_s = inf  # the first entry of the agenda

    def set(self, asked_s: float) -> None:
        """Replace the wake-up; one after the end of the clock never happens."""
        self.asked_s = asked_s
        self.at_s = later(asked_s, self._agenda.now_s) if asked_s <= LATEST_S else inf
        self._call()

    @property
    def until_s(self) -> float:
        """Return the instant of the wake-up; 0 = none."""
        return self.at_s if self.at_s < inf else 0.0

    def _call(self) -> None:
        if self.at_s < self._called_s:
            self._called_s = self.at_s
            self._agenda.at(self.at_s, self._reach)

    def _reach(self) -> None:
        now_s = self._agenda.now_s
        if now_s >= self._called_s:
            self._called_s = inf
        if now_s == self.at_s:
            self.asked_s = self.at_s = inf
            self._rings()
        else:
            self._call()


class Expected:
    """The next event of each running job, valid until a plan or an outage replaces it. Most of
    these events are replaced, so only the earliest of all jobs is entered in the agenda.

    Parameters
    ----------
    agenda : Agenda
        Where it happens, with the order `CHANGE`.
    happens : callable
        Called with the job and its event, which is no longer expected then.
    """

    __slots__ = ("_agenda", "_called_s", "_entries", "_happens", "_next", "_number")

    def __init__(self, agenda: Agenda, happens: Callable[[JobId, int], None]) -> None:
        self._agenda, self._happens = agenda, happens
        self._next: dict[JobId, tuple[float, int, JobId, int]] = {}
        self._entries: list[tuple[float, int, JobId, int]] = []  # those and void ones, as a heap
        self._number = count().__next__
        self._called_s = inf  # the first entry of the agenda

    def put(self, job: JobId, following: tuple[float, int]) -> None:
        """Replace the expected event of a job by (when, what); one after the end of the clock is
        dropped.
        """
        at_s, what = following
        if at_s > LATEST_S:
            self.drop(job)
            return
        entries, expected = self._entries, self._next
        entry = expected[job] = at_s, self._number(), job, what
        heappush(entries, entry)
        if at_s < self._called_s:
            self._called_s = at_s
            self._agenda.at(at_s, self._reach)
        if len(entries) > _VOID + 2 * len(expected):
            entries[:] = expected.values()
            heapify(entries)

    def drop(self, job: JobId) -> None:
        """Drop the expected event of a job."""
        self._next.pop(job, None)

    @property
    def until_s(self) -> float:
        """Return the instant of the last expected event; 0 = none."""
        return max([entry[0] for entry in self._next.values()], default=0.0)

    def _reach(self) -> None:
        now_s, entries, expected = self._agenda.now_s, self._entries, self._next
        if now_s >= self._called_s:
            self._called_s = inf
        due = None
        while entries:
            first = entries[0]
            if expected.get(first[2]) is first:
                if due is not None or first[0] > now_s:
                    break
                due = first
                del expected[first[2]]
            heappop(entries)
        # Whatever else happens at this instant is called before this happens, which so knows that
        # it is not the last thing.
        if entries and entries[0][0] < self._called_s:
            self._called_s = entries[0][0]
            self._agenda.at(self._called_s, self._reach)
        if due is not None:
            self._happens(due[2], due[3])
