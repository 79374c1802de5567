"""Future events: their instants, and their order within one instant."""

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
"""Like SimPy's start of processes: arrivals at second 0 come before the first tick."""
CHANGE: Final = 1
"""Arrivals and events of running jobs; like SimPy's normal priority. Smaller is earlier."""
OUTAGE: Final = 2
"""Nodes fail and return after job events: a job that finishes at this instant is not evicted."""
LANDING: Final = 3
"""A plan in flight takes effect after all other changes of the instant."""
DECISION: Final = 9
END: Final = 10
_VOID: Final = 64


Action = Callable[[], None]


class Agenda:
    """Queue of future actions; advances SimPy's clock from one instant to the next.

    Actions of one instant are called by their order, and within one order as they were added.

    Notes
    -----
    SimPy has only one event, the next instant. Its clock counts whole microseconds, so that delays
    add up exactly: seconds would miss an instant by a rounding error.

    Attributes
    ----------
    now_s : float, seconds
        The current instant.
    actions : list of (instant, order, number, action)
        Future actions, as a heap.
    """

    __slots__ = ("_callbacks", "_env", "_number", "actions", "now_s")

    def __init__(self) -> None:
        self._env = simpy.Environment()
        self._callbacks: list[Callable[[simpy.Event], None]] = [self._run_instant]
        self.actions: list[tuple[float, int, int, Action]] = []
        self._number = count().__next__
        self.now_s = 0.0

    def add_action(self, at_s: float, action: Action, order: int = CHANGE) -> None:
        """Add an action at an instant."""
        heappush(self.actions, (at_s, order, self._number(), action))

    def follow(self, instants: Iterator[float], order: int = CHANGE) -> None:
        """Advance a generator now, and again at each instant that it yields."""
        at_s = next(instants, None)
        if at_s is not None:
            self.add_action(at_s, partial(self.follow, instants, order), order)

    @property
    def planned_until_s(self) -> float:
        """Instant of the last planned job event, plan in flight or tick; 0 = none."""
        planned = (at_s for at_s, order, _, _ in self.actions if order in {CHANGE, LANDING})
        return max(planned, default=0.0)

    def run(self) -> None:
        """Call all actions until none is left."""
        event = self._env.event().succeed()
        event.callbacks = self._callbacks
        self._env.run()

    def stop(self) -> None:
        """Drop all future actions, which ends the run."""
        self.actions.clear()

    def _run_instant(self, event: simpy.Event) -> None:
        """Call the actions of this instant, then schedule SimPy's event at the next one."""
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
    """The wake-up that an allocator requested last.

    Most wake-ups are postponed many times. So the agenda has one entry that is no later than the
    wake-up, not one entry per request.

    Parameters
    ----------
    agenda : Agenda
        The agenda to use, with the order `CHANGE`.
    rings : callable
        Called at the wake-up.

    Attributes
    ----------
    requested_s, at_s : float, seconds
        The requested time, and its instant; inf = none.
    """

    __slots__ = ("_agenda", "_called_s", "_rings", "at_s", "requested_s")

    def __init__(self, agenda: Agenda, rings: Callable[[], None]) -> None:
        self._agenda, self._rings = agenda, rings
        self.requested_s = self.at_s = inf
        self._called_s = inf  # the first entry of the agenda

    def set(self, requested_s: float) -> None:
        """Replace the wake-up: at the next instant or later; after the clock's end, never."""
        self.requested_s = requested_s
        self.at_s = later(requested_s, self._agenda.now_s) if requested_s <= LATEST_S else inf
        self._schedule()

    @property
    def until_s(self) -> float:
        """The instant of the wake-up; 0 = none."""
        return self.at_s if self.at_s < inf else 0.0

    def _schedule(self) -> None:
        """Add an agenda entry if the wake-up is before the existing one."""
        if self.at_s < self._called_s:
            self._called_s = self.at_s
            self._agenda.add_action(self.at_s, self._on_entry)

    def _on_entry(self) -> None:
        """Clear the wake-up and call `rings` if it is now; else add a postponed entry."""
        now_s = self._agenda.now_s
        if now_s >= self._called_s:
            self._called_s = inf
        if now_s == self.at_s:
            self.requested_s = self.at_s = inf
            self._rings()
        else:
            self._schedule()


class Expected:
    """The next event of each running job, valid until a plan or an outage replaces it.

    Most of these events are replaced, so only the earliest of all jobs is on the agenda.

    Parameters
    ----------
    agenda : Agenda
        The agenda to use, with the order `CHANGE`.
    happens : callable
        Called with the job and its event, after the event is removed here.
    """

    __slots__ = ("_agenda", "_called_s", "_entries", "_happens", "_next", "_number")

    def __init__(self, agenda: Agenda, happens: Callable[[JobId, int], None]) -> None:
        self._agenda, self._happens = agenda, happens
        self._next: dict[JobId, tuple[float, int, JobId, int]] = {}
        self._entries: list[tuple[float, int, JobId, int]] = []  # with void entries, as a heap
        self._number = count().__next__
        self._called_s = inf  # the first entry of the agenda

    def replace(self, job: JobId, following: tuple[float, int]) -> None:
        """Replace the next event of a job, given as (when, what).

        With an event after the end of the clock the job has no next event.
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
            self._agenda.add_action(at_s, self._on_entry)
        if len(entries) > _VOID + 2 * len(expected):
            entries[:] = expected.values()
            heapify(entries)

    def drop(self, job: JobId) -> None:
        """Drop the next event of a job."""
        self._next.pop(job, None)

    @property
    def until_s(self) -> float:
        """The instant of the last expected event; 0 = none."""
        return max([entry[0] for entry in self._next.values()], default=0.0)

    def _on_entry(self) -> None:
        """Remove and fire the earliest event if it is due; put the following on the agenda."""
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
        # The next entry goes on the agenda before the event fires, so that the event can tell
        # whether it is the last of this instant.
        if entries and entries[0][0] < self._called_s:
            self._called_s = entries[0][0]
            self._agenda.add_action(self._called_s, self._on_entry)
        if due is not None:
            self._happens(due[2], due[3])
