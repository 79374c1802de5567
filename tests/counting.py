"""Cost as a number of steps, which is the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python this thread executes to do something once.

    Every turn of a loop counts; what a library does in C for a whole array is one step.
    """
    steps = 0

    def note(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps
