"""Grace periods of disconnected sessions, and release of memory.

Runs of a session end only if the session does not reconnect within its grace period.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import pyarrow as pa

GRACE_S: Final = 60.0
_LARGE: Final = 10_000_000
"""Size of a file in bytes above which its memory is returned to the system at once."""


class GracePeriod:
    """Disconnected sessions that may still reconnect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timers: dict[str, threading.Timer] = {}
        self._callbacks: list[Callable[[str], None]] = []

    def on_expiry(self, callback: Callable[[str], None]) -> None:
        """Register a function to call with each session at the end of its grace period."""
        self._callbacks.append(callback)

    def begin(self, watcher: str, after_s: float = GRACE_S) -> None:
        """Start, or restart, the grace period of a session that disconnected.

        After `after_s` seconds the registered functions are called with the session.
        """
        timer = threading.Timer(after_s, self._expire, (watcher,))
        timer.daemon = True
        self.end(watcher)
        with self._lock:
            self._timers[watcher] = timer
        timer.start()

    def end(self, watcher: str) -> None:
        """Cancel the grace period of a session that reconnected."""
        with self._lock:
            timer = self._timers.pop(watcher, None)
        if timer is not None:
            timer.cancel()

    def all_disconnected(self, watchers: Iterable[str]) -> bool:
        """Return True if all these sessions are in their grace period; True for none."""
        with self._lock:
            return all(watcher in self._timers for watcher in watchers)

    def close(self) -> None:
        """Cancel all grace periods without calling the registered functions."""
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _expire(self, watcher: str) -> None:
        """Call the registered functions unless the session has reconnected."""
        with self._lock:
            if self._timers.pop(watcher, None) is None:
                # it reconnected, or all was closed, just as the time ran out
                return
        for callback in self._callbacks:
            callback(watcher)


def freeze_imports() -> None:
    """Exempt loaded modules from garbage collection, which would block all sessions."""
    gc.collect()
    gc.freeze()


def release_memory(size: int) -> None:
    """Return free memory to the system after reading a file of `size` bytes, if large."""
    if size < _LARGE:
        return
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            # glibc keeps freed memory; other C libraries have no malloc_trim.
            ctypes.CDLL("libc.so.6").malloc_trim(0)
