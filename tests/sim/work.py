"""What processes of their own are asked to do in tests; imports next to nothing, because each of
those processes imports it anew.
"""

from __future__ import annotations

import os
import time
from pathlib import Path


def sleeping(seconds: float) -> None:
    time.sleep(seconds)


def spinning() -> None:
    while True:
        pass


def greedy(size: int) -> int:
    return len(bytearray(size))


def ending(code: int) -> None:
    os._exit(code)


def writing(place: str) -> str:
    try:
        Path(place).write_text("x" * 10, encoding="utf-8")
    except OSError as error:
        return type(error).__name__
    return "written"
