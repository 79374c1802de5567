"""Replays of papers under way on this server: one run for each replay and number of seeds, whoever asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from trainyard.replays.report import Cell, Numbers, ReplayReport, Row
from trainyard.runs.disconnects import Leaving
from ui import attended
from ui.attended import ENDED, Attended, AttendedRuns

Key = tuple[str, int]
"""Name of a replay and number of seeds."""


class Run(attended.Run, Protocol):
    """What is needed of `trainyard.replays.run.ReplayRun`."""

    @property
    def of(self) -> int:
        """Parts in all."""
        ...

    def start(self) -> None:
        """Begin, in other processes."""
        ...

    def report(self) -> ReplayReport:
        """Return what is known so far."""
        ...

    def rows(self) -> tuple[Row, ...]:
        """Return the claims with what is known so far."""
        ...

    def numbers(self) -> dict[Cell, Numbers]:
        """Return what every run gave that is over."""
        ...


class Runs(AttendedRuns[Key, Run, Attended[Run]]):
    """The replays that sessions attend.

    Parameters
    ----------
    make : callable
        From name and number of seeds to a run that has not begun.
    leaving : Leaving
        Sessions that have gone and may still come back.
    """

    def __init__(self, make: Callable[[str, int], Run], leaving: Leaving) -> None:
        super().__init__(leaving)
        self._make = make

    def start(self, key: Key, watcher: str) -> None:
        """Begin a run, or attend the one that is going."""
        with self._lock:
            entry = self._entry(key)
            if entry.stopped or entry.run.state in ("failed", "cancelled"):
                entry = self._entries[key] = Attended(self._make(*key))
            if not entry.asked:
                entry.asked, entry.began_s = True, time.monotonic()
                entry.run.start()
            entry.watchers.add(watcher)

    def ended(self, key: Key) -> Run | None:
        """Return the run with this key if it has ended, on this server or, completely, before."""
        with self._lock:
            entry = self._entry(key)
            run = entry.run
            return run if run.state in ENDED or (run.state == "waiting" and not entry.asked and run.recall()) else None

    def is_going(self, key: Key) -> bool:
        """Tell whether it is under way, whoever attends it."""
        with self._lock:
            return self._entry(key).going

    def seconds_each(self, name: str) -> float:
        """Return the mean processor seconds of a simulation of this replay, from runs of it that have ended; 0 = there are none yet."""
        with self._lock:
            ended = [entry.run for (other, _), entry in self._entries.items() if other == name and entry.run.state in ENDED and entry.run.done]
        spent = [numbers["cell_cpu_s"] for run in ended for numbers in run.numbers().values()]
        return sum(spent) / len(spent) if spent else 0.0

    def size(self, key: Key) -> int:
        """Return how many simulations it takes."""
        with self._lock:
            return self._entry(key).run.of

    def _entry(self, key: Key) -> Attended[Run]:
        if key not in self._entries:
            self._entries[key] = Attended(self._make(*key))
        return self._entries[key]
