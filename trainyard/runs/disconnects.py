"""The grace period of sessions that have gone: what they wait for ends after a while, unless they
come back before, because a tab was reloaded or a network blinked.
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
"""Bytes of a file whose memory is worth giving back to the system at once."""


class GracePeriod:
    """Sessions that have gone and may still come back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timers: dict[str, threading.Timer] = {}
        self._callbacks: list[Callable[[str], None]] = []

    def on_expiry(self, callback: Callable[[str], None]) -> None:
        """Call a function with the name of every session that has not come back in time."""
        self._callbacks.append(callback)

    def begin(self, watcher: str, after_s: float = GRACE_S) -> None:
        """Treat a session as gone after a while, unless it comes back before."""
        timer = threading.Timer(after_s, self._expired, (watcher,))
        timer.daemon = True
        self.end(watcher)
        with self._lock:
            self._timers[watcher] = timer
        timer.start()

    def end(self, watcher: str) -> None:
        """Note that a session is back."""
        with self._lock:
            timer = self._timers.pop(watcher, None)
        if timer is not None:
            timer.cancel()

    def all_gone(self, watchers: Iterable[str]) -> bool:
        """Tell whether none of these sessions is here; so it is where there are none."""
        with self._lock:
            return all(watcher in self._timers for watcher in watchers)

    def close(self) -> None:
        """Wait for no session any more; nothing is called."""
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _expired(self, watcher: str) -> None:
        with self._lock:
            if self._timers.pop(watcher, None) is None:
                # it came back, or everything was closed, in the moment in which the time was over
                return
        for callback in self._callbacks:
            callback(watcher)


def freeze_imports() -> None:
    """Exempt the loaded modules from garbage collection, which blocks all sessions."""
    gc.collect()
    gc.freeze()


def tidy(size: int) -> None:
    """Return free memory to the system after a file of `size` bytes; small files are ignored."""
    if size < _LARGE:
        return
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            # The allocator of the GNU library keeps what is free; others have no such call.
            ctypes.CDLL("libc.so.6").malloc_trim(0)
