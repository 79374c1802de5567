"""Runs under way on this server that sessions attend, whoever began them: each ends when only sessions that are leaving are left."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from trainyard.runs.disconnects import Leaving

ENDED: Final = ("done", "failed", "cancelled")


class Run(Protocol):
    """What is needed of anything that takes a while."""

    @property
    def state(self) -> str:
        """Where it is: waiting, running, done, failed or cancelled."""
        ...

    @property
    def error(self) -> str:
        """Why it failed, as one sentence."""
        ...

    @property
    def done(self) -> int:
        """Parts that are over."""
        ...

    def recall(self) -> bool:
        """Take over what is kept from before; tell whether that is everything."""
        ...

    def cancel(self) -> None:
        """End it; what is done is kept."""
        ...


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Run)


@dataclass(eq=False)
class Attended(Generic[R]):
    """A run and who attends it.

    Parameters
    ----------
    run : Run
        What was made.
    asked : bool
        Whether somebody wants it to go on; else it was only looked up.
    watchers : set of str
        Sessions that attend it.
    stopped : bool
        Whether it was cancelled, because nobody attended it any more.
    began_s : float, seconds
        When it began, on the monotonic clock; 0 = not yet.
    """

    run: R
    asked: bool = False
    watchers: set[str] = field(default_factory=set)
    stopped: bool = False
    began_s: float = 0.0

    @property
    def going(self) -> bool:
        """Whether it waits or goes on."""
        return self.asked and self.run.state not in ENDED


E = TypeVar("E", bound=Attended[Any])


class AttendedRuns(Generic[K, R, E]):
    """The runs that sessions attend.

    Parameters
    ----------
    leaving : Leaving
        Sessions that have gone and may still come back.
    """

    def __init__(self, leaving: Leaving) -> None:
        self._leaving = leaving
        self._lock = threading.RLock()
        self._entries: dict[K, E] = {}
        leaving.then(self._left)

    def attend(self, key: K, watcher: str) -> R | None:
        """Return the run with this key if it waits or goes on, and keep it going while this session is there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not entry.going or entry.stopped:
                return None
            entry.watchers.add(watcher)
            run: R = entry.run
            return run

    def is_stopping(self, key: K) -> bool:
        """Tell whether it is under way for nobody any more, so that it ends in a moment."""
        with self._lock:
            entry = self._entries.get(key)
            return entry is not None and entry.going and entry.stopped

    def since(self, key: K) -> float:
        """Return for how many seconds it has been running; 0 = it has not begun."""
        with self._lock:
            entry = self._entries.get(key)
            return time.monotonic() - entry.began_s if entry is not None and entry.began_s else 0.0

    def detach(self, key: K, watcher: str) -> None:
        """Attend a run no longer; when only sessions that are leaving are left, it ends."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or watcher not in entry.watchers:
                return
            entry.watchers.discard(watcher)
            # Who is leaving is most often the same person before a reload.
            if entry.going and self._leaving.only(entry.watchers):
                self._stop(entry)

    def close(self) -> None:
        """End everything."""
        with self._lock:
            for entry in self._entries.values():
                if entry.going:
                    self._stop(entry)

    def _stop(self, entry: E) -> None:
        entry.stopped = True
        entry.run.cancel()

    def _left(self, watcher: str) -> None:
        with self._lock:
            keys = list(self._entries)
        for key in keys:
            self.detach(key, watcher)
