"""Batches of runs that several sessions may watch; equal batches are shared.

A batch ends when all its sessions are in their grace period.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, TypeVar

from trainyard.runs.batch import RunBatch
from trainyard.runs.grace_period import GracePeriod
from trainyard.runs.queue import ENDED

_MAX_CACHED: Final = 32
"""Maximum number of idle batches to keep in memory."""
_LOOK_AGAIN_S: Final = 10.0
"""Seconds after which stored results are looked up again."""

K = TypeVar("K", bound=Hashable)
B = TypeVar("B", bound=RunBatch[Any])


@dataclass(eq=False)
class _SharedBatch(Generic[B]):
    """A batch with its state: started, told to stop, last look-up."""

    batch: B
    started: bool = False
    stopped: bool = False
    looked_s: float = -inf  # the clock may have begun at any time before

    @property
    def going(self) -> bool:
        """Whether the batch waits or runs."""
        return self.started and self.batch.state not in ENDED


class SharedBatches(Generic[K, B]):
    """Batches that sessions watch, by a key that equal batches share.

    Parameters
    ----------
    grace : GracePeriod
        Grace periods of disconnected sessions.
    """

    def __init__(self, grace: GracePeriod) -> None:
        self._grace = grace
        self._lock = threading.RLock()
        self._entries: dict[K, _SharedBatch[B]] = {}
        grace.on_expiry(self._detach_all)

    def get_batch(self, key: K, make: Callable[[], B], *, look_up: bool = True) -> B:
        """Return a batch with its stored results, without running anything.

        A batch without results is made anew if its last look-up is older than `_LOOK_AGAIN_S`.

        Parameters
        ----------
        key : hashable
            Key of the batch.
        make : callable
            Creates the batch without starting it.
        look_up : bool
            Whether to load stored results.

        Raises
        ------
        TrainyardError
            If a trace cannot be loaded, or the store cannot be read.
        """
        entry = self._entry(key, make)
        old = time.monotonic() - entry.looked_s > _LOOK_AGAIN_S
        if not entry.started and entry.batch.state != "done" and old:
            batch = entry.batch if entry.looked_s == -inf else make()
            if look_up:
                batch.recall()
            with self._lock:
                if not entry.started:
                    entry.batch, entry.looked_s = batch, time.monotonic()
        return entry.batch

    def start(self, key: K, make: Callable[[], B], watcher: str) -> B:
        """Start a batch, or watch the equal one that runs; one that ended is made anew."""
        with self._lock:
            entry = self._entry(key, make)
            if entry.started and (not entry.going or entry.stopped):
                entry = self._entries[key] = _SharedBatch(make())
            if entry.started:
                entry.batch.watchers |= {watcher}
            else:
                entry.started, entry.batch.watchers = True, frozenset({watcher})
                entry.batch.start()
            return entry.batch

    def watch(self, key: K, watcher: str) -> B | None:
        """Return the running batch with a key and let a session watch it, else None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not entry.going or entry.stopped:
                return None
            entry.batch.watchers |= {watcher}
            return entry.batch

    def is_stopping(self, key: K) -> bool:
        """Return True if no session waits for a batch, so that it is about to end."""
        with self._lock:
            entry = self._entries.get(key)
            return entry is not None and entry.going and entry.stopped

    def ended_batches(self) -> list[tuple[K, B]]:
        """Return the ended batches in memory, with their keys."""
        with self._lock:
            return [
                (key, entry.batch)
                for key, entry in self._entries.items()
                if entry.batch.state in ENDED
            ]

    def detach(self, key: K, watcher: str) -> None:
        """Detach a session from a batch; it is cancelled without a connected session."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or watcher not in entry.batch.watchers:
                return
            entry.batch.watchers -= {watcher}
            # A session in its grace period is usually the same person before a reload.
            if entry.going and self._grace.all_disconnected(entry.batch.watchers):
                self._end(entry)

    def close(self) -> None:
        """Cancel all running batches of all sessions."""
        with self._lock:
            for entry in self._entries.values():
                if entry.going:
                    self._end(entry)

    def _end(self, entry: _SharedBatch[B]) -> None:
        """Cancel a batch and mark it as told to stop."""
        entry.stopped = True
        entry.batch.cancel()

    def _detach_all(self, watcher: str) -> None:
        """Detach a session from all batches."""
        with self._lock:
            for key in list(self._entries):
                self.detach(key, watcher)

    def _entry(self, key: K, make: Callable[[], B]) -> _SharedBatch[B]:
        """Return the entry of a key, created if missing; drop the oldest idle entries."""
        with self._lock:
            # The most recently used entry comes last.
            entry = self._entries.pop(key) if key in self._entries else _SharedBatch(make())
            self._entries[key] = entry
            idle = [
                other for other, one in self._entries.items() if not one.going and one is not entry
            ]
            for other in idle[: max(len(self._entries) - _MAX_CACHED, 0)]:
                del self._entries[other]
            return entry
