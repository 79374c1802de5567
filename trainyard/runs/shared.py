"""Batches of a server that several sessions may watch: equal ones are one, and each ends when only
sessions in their grace period are left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from trainyard.runs.batch import RunBatch
from trainyard.runs.disconnects import GracePeriod
from trainyard.runs.queue import ENDED

_MOST_KEPT: Final = 32
"""Batches that have ended, or were only looked up, and are still at hand."""
_LOOK_AGAIN_S: Final = 10.0
"""Numbers of other runs may have made a batch complete."""

K = TypeVar("K", bound=Hashable)
B = TypeVar("B", bound=RunBatch[Any])


@dataclass(eq=False)
class _Shared(Generic[B]):
    batch: B
    started: bool = False
    stopped: bool = False
    looked_s: float = 0.0

    @property
    def going(self) -> bool:
        """Whether it waits or goes on."""
        return self.started and self.batch.state not in ENDED


class SharedBatches(Generic[K, B]):
    """The batches that sessions watch, by a key that equal ones share.

    Parameters
    ----------
    grace : GracePeriod
        Sessions that have gone and may still come back.
    """

    def __init__(self, grace: GracePeriod) -> None:
        self._grace = grace
        self._lock = threading.RLock()
        self._entries: dict[K, _Shared[B]] = {}
        grace.on_expiry(self._gone)

    def known(self, key: K, make: Callable[[], B], *, look_up: bool = True) -> B:
        """Return a batch with what is known of it, without running anything.

        Parameters
        ----------
        key : hashable
            Of the batch.
        make : callable
            Makes it, not begun.
        look_up : bool
            Whether what is kept is looked up.

        Raises
        ------
        TrainyardError
            If a trace cannot be loaded, or the store cannot be read.
        """
        entry = self._entry(key, make)
        old = time.monotonic() - entry.looked_s > _LOOK_AGAIN_S
        if not entry.started and entry.batch.state != "done" and old:
            batch = make() if entry.looked_s else entry.batch
            if look_up:
                batch.recall()
            with self._lock:
                if not entry.started:
                    entry.batch, entry.looked_s = batch, time.monotonic()
        return entry.batch

    def start(self, key: K, make: Callable[[], B], watcher: str) -> B:
        """Begin a batch, or watch the equal one that goes on."""
        with self._lock:
            entry = self._entry(key, make)
            if entry.started and (not entry.going or entry.stopped):
                entry = self._entries[key] = _Shared(make())
            if entry.started:
                entry.batch.watchers |= {watcher}
            else:
                entry.started, entry.batch.watchers = True, frozenset({watcher})
                entry.batch.start()
            return entry.batch

    def watched(self, key: K, watcher: str) -> B | None:
        """Return the batch with this key if it goes on, and let this session watch it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not entry.going or entry.stopped:
                return None
            entry.batch.watchers |= {watcher}
            return entry.batch

    def is_stopping(self, key: K) -> bool:
        """Tell whether no session waits for it any more, so that it ends in a moment."""
        with self._lock:
            entry = self._entries.get(key)
            return entry is not None and entry.going and entry.stopped

    def ended(self) -> list[tuple[K, B]]:
        """Return the batches at hand that have ended, with their keys."""
        with self._lock:
            return [
                (key, entry.batch)
                for key, entry in self._entries.items()
                if entry.batch.state in ENDED
            ]

    def detach(self, key: K, watcher: str) -> None:
        """Watch a batch no longer; when only sessions in their grace period are left, it ends."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or watcher not in entry.batch.watchers:
                return
            entry.batch.watchers -= {watcher}
            # A session in its grace period is most often the same person before a reload.
            if entry.going and self._grace.all_disconnected(entry.batch.watchers):
                self._end(entry)

    def close(self) -> None:
        """End everything."""
        with self._lock:
            for entry in self._entries.values():
                if entry.going:
                    self._end(entry)

    def _end(self, entry: _Shared[B]) -> None:
        entry.stopped = True
        entry.batch.cancel()

    def _gone(self, watcher: str) -> None:
        with self._lock:
            for key in list(self._entries):
                self.detach(key, watcher)

    def _entry(self, key: K, make: Callable[[], B]) -> _Shared[B]:
        with self._lock:
            # The last one that was looked at comes last.
            entry = self._entries.pop(key) if key in self._entries else _Shared(make())
            self._entries[key] = entry
            idle = [
                other for other, one in self._entries.items() if not one.going and one is not entry
            ]
            for other in idle[: max(len(self._entries) - _MOST_KEPT, 0)]:
                del self._entries[other]
            return entry
