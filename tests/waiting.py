"""What tests wait for: a state of the program, never a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], what: str, limit_s: float = 300.0) -> T:
    """Poll until the predicate is true and return its value.

    Only a fault reaches the limit, however busy the machine is.
    """
    end_s = time.monotonic() + limit_s
    while not (found := predicate()):
        assert time.monotonic() < end_s, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.01)
    return found
