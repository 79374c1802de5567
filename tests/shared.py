"""What tests share: where the real traces and measured figures lie that the project does not ship,
and a clock that is set by hand.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainyard.store.rows import Clock

ROOT = Path(os.environ.get("TRAINYARD_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def shared(relative: str) -> Path:
    """Return the path of a shared file, or skip the calling test with a reason."""
    path = ROOT / relative
    if not path.exists():
        pytest.skip(
            f"{relative} is not beside this checkout; set TRAINYARD_SHARED to the folder that"
            " holds it"
        )
    return path


class SetClock(Clock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self._now_s, self._steady_s = 1_800_000_000.0, 0.0

    def now_s(self) -> float:
        return self._now_s

    def steady_s(self) -> float:
        return self._steady_s

    def go_on(self, days: float) -> None:
        """Let time pass."""
        self._now_s += days * 86_400
        self._steady_s += days * 86_400

    def set_wrong(self, days: float) -> None:
        """Set the clock on the wall ahead, or back if negative."""
        self._now_s += days * 86_400
