"""Replays of papers under way on this server: one run for each replay and number of seeds, whoever asks; it ends when nobody attends it any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from lab.leaving import Leaving
from lab.replays.report import Cell, Numbers, ReplayReport, Row

ENDED: Final = ("done", "failed", "cancelled")
Key = tuple[str, int]
"""Name of a replay and number of seeds."""


class Run(Protocol):
    """What is needed of `lab.replays.run.ReplayRun`."""

    @property
    def done(self) -> int:
        """Parts that are over."""
        ...

    @property
    def of(self) -> int:
        """Parts in all."""
        ...

    @property
    def state(self) -> str:
        """Where it is: waiting, running, done, failed or cancelled."""
        ...

    @property
    def error(self) -> str:
        """Why it failed, as one sentence."""
        ...

    def start(self) -> None:
        """Begin, in other processes."""
        ...

    def recall(self) -> bool:
        """Take over what is kept from before; tell whether it has ended."""
        ...

    def cancel(self) -> None:
        """End those processes."""
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


@dataclass(eq=False)
class _Entry:
    run: Run
    watchers: set[str] = field(default_factory=set)
    began_s: float | None = None
    stopped: bool = False

    @property
    def going(self) -> bool:
        return self.began_s is not None and self.run.state not in ENDED


class Runs:
    """The runs that sessions attend.

    Parameters
    ----------
    make : callable
        From name and number of seeds to a run that has not begun.
    leaving : Leaving
        Sessions that have gone and may still come back.
    """

    def __init__(self, make: Callable[[str, int], Run], leaving: Leaving) -> None:
        self._make, self._leaving = make, leaving
        self._lock = threading.RLock()
        self._entries: dict[Key, _Entry] = {}
        leaving.then(self._left)

    def start(self, key: Key, watcher: str) -> None:
        """Begin a run, or attend the one that is going."""
        with self._lock:
            entry = self._entry(key)
            if entry.stopped or entry.run.state in ("failed", "cancelled"):
                entry = self._entries[key] = _Entry(self._make(*key))
            if entry.began_s is None:
                entry.began_s = time.monotonic()
                entry.run.start()
            entry.watchers.add(watcher)

    def attend(self, key: Key, watcher: str) -> Run | None:
        """Return the run with this key if it is going, and keep it going while this session is there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not entry.going or entry.stopped:
                return None
            entry.watchers.add(watcher)
            return entry.run

    def ended(self, key: Key) -> Run | None:
        """Return the run with this key if it has ended, on this server or, completely, before."""
        with self._lock:
            run = self._entry(key).run
            return run if run.state in ENDED or (run.state == "waiting" and self._entries[key].began_s is None and run.recall()) else None

    def is_going(self, key: Key) -> bool:
        """Tell whether it is under way, whoever attends it."""
        with self._lock:
            return self._entry(key).going

    def is_stopping(self, key: Key) -> bool:
        """Tell whether it is under way for nobody any more, so that it ends in a moment."""
        with self._lock:
            entry = self._entry(key)
            return entry.going and entry.stopped

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

    def since(self, key: Key) -> float:
        """Return for how many seconds it has been going."""
        with self._lock:
            began_s = self._entry(key).began_s
            return 0.0 if began_s is None else time.monotonic() - began_s

    def detach(self, key: Key, watcher: str) -> None:
        """Attend a run no longer; when only sessions that are leaving are left, it ends."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or watcher not in entry.watchers:
                return
            entry.watchers.discard(watcher)
            # Who is leaving is most often the same person before a reload.
            if entry.going and self._leaving.only(entry.watchers):
                entry.stopped = True
                entry.run.cancel()

    def close(self) -> None:
        """End everything."""
        with self._lock:
            for entry in self._entries.values():
                if entry.going:
                    entry.run.cancel()

    def _left(self, watcher: str) -> None:
        with self._lock:
            keys = list(self._entries)
        for key in keys:
            self.detach(key, watcher)

    def _entry(self, key: Key) -> _Entry:
        if key not in self._entries:
            self._entries[key] = _Entry(self._make(*key))
        return self._entries[key]
