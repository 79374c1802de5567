"""Sessions that have gone: what they watch ends after a while, unless they come back before, because a tab was reloaded or a network blinked."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import pyarrow as pa

LEAVE_AFTER_S: Final = 60.0
_LARGE: Final = 10_000_000
"""Bytes of a file whose memory is worth giving back to the system at once."""


class Leaving:
    """Watchers that have gone and may still come back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timers: dict[str, threading.Timer] = {}
        self._then: list[Callable[[str], None]] = []

    def then(self, left: Callable[[str], None]) -> None:
        """Call a function with the name of every watcher that has not come back in time."""
        self._then.append(left)

    def leave(self, watcher: str, after_s: float = LEAVE_AFTER_S) -> None:
        """Let a watcher be gone after a while, unless it comes `back` before."""
        timer = threading.Timer(after_s, self._left, (watcher,))
        timer.daemon = True
        self.back(watcher)
        with self._lock:
            self._timers[watcher] = timer
        timer.start()

    def back(self, watcher: str) -> None:
        """Take a `leave` back."""
        with self._lock:
            timer = self._timers.pop(watcher, None)
        if timer is not None:
            timer.cancel()

    def only(self, watchers: Iterable[str]) -> bool:
        """Tell whether all of these are leaving; so it is where there are none."""
        with self._lock:
            return all(watcher in self._timers for watcher in watchers)

    def close(self) -> None:
        """Wait for nobody any more; nothing is called."""
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _left(self, watcher: str) -> None:
        with self._lock:
            if self._timers.pop(watcher, None) is None:
                return  # it came back, or everything was closed, in the moment in which the time was over
        for left in self._then:
            left(watcher)


def tidy(size: int = _LARGE) -> None:
    """Give memory that is free back to the system, after a file of so many bytes was read or its jobs were let go of."""
    if size < _LARGE:
        return
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            # The allocator of the GNU library keeps what is free; others have no such call.
            ctypes.CDLL("libc.so.6").malloc_trim(0)
