"""Time on an axis: hours or days since the first submission, the calendar where it is known, and durations on a log scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_UNITS: Final = ((2 * 3600.0, 60.0, "minutes"), (4 * 86_400.0, 3600.0, "hours"), (math.inf, 86_400.0, "days"))
_COARSE: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)
_FINE: Final = tuple(count * unit for unit, counts in ((1, (1, 2, 5, 10, 20, 30)), (60, (1, 2, 5, 10, 20, 30))) for count in counts) + tuple(
    count * unit for unit, counts in ((3600, (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20)), (86_400, (1, 2, 3, 4, 5, 7, 14, 30, 60, 120, 365))) for count in counts
)
_ONE: Final = {60.0: "1 min", 3600.0: "1 h", 86_400.0: "1 day"}
_READ: Final = ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (172_800.0, 3600.0, "h"))
"""Up to how many seconds a unit is used in a text, how long it is, and its name."""
_FEWEST_MARKS: Final = 3
_MOST_MARKS: Final = 10
"""Labels that stand beside each other in a window of 800 px."""


@dataclass(frozen=True)
class TimeAxis:
    """How the time of a run is shown; the same for all figures of a page.

    Parameters
    ----------
    t0_s, t1_s : float, seconds
        The window that is seen.
    epoch : str
        ISO instant of second 0: the calendar is shown. "" = minutes, hours or days since the first submission, whichever suits the window.
    """

    t0_s: float
    t1_s: float
    epoch: str = ""

    @property
    def unit(self) -> tuple[float, str]:
        """Seconds in one unit, and its name."""
        span = self.t1_s - self.t0_s
        return next((seconds, name) for limit, seconds, name in _UNITS if span <= limit)

    def place(self, t_s: NDArray[np.float64]) -> NDArray[Any]:
        """Return where instants are on the axis: a number of units, or milliseconds of the calendar."""
        if self.epoch:
            return t_s * 1000.0 + self._epoch_ms
        return (t_s / self.unit[0]).astype(np.float32)

    @property
    def _epoch_ms(self) -> float:
        instant = datetime.fromisoformat(self.epoch)
        # A date axis has no zone: the wall clock of the trace is shown as it is.
        return instant.replace(tzinfo=UTC).timestamp() * 1000.0

    def layout(self) -> dict[str, Any]:
        """Return the properties of the x axis."""
        ends = np.array([self.t0_s, self.t1_s])
        if self.epoch:
            return {"type": "date", "range": [float(at) for at in self.place(ends)]}
        unit_s, name = self.unit
        header = f"%{{x:.2f}} {name}"
        return {"range": [float(at) for at in ends / unit_s], "title": {"text": f"{name} since the first submission"}, "unifiedhovertitle": {"text": header}}


def duration_text(seconds: float) -> str:
    """Return a duration with two digits in the unit a person would use, as tables write it: "45 s", "82 min", "1 h", "3.4 h", "2.1 days"."""
    if seconds in _ONE:
        return _ONE[seconds]
    size, unit = next(((size, unit) for limit, size, unit in _READ if seconds < limit), (86_400.0, "days"))
    value = seconds / size
    if value >= 9.95 or value.is_integer():
        return f"{value:,.0f} {unit}"
    return f"{value:.1f} {unit}" if value >= 1 else f"{value:.2g} {unit}"


def _mark(seconds: float) -> str:
    """Return the label of an axis, as exact as neighbours need to differ."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.3g} min"
    if seconds < 86_400:
        return f"{seconds / 3600:.3g} h"
    days = f"{seconds / 86_400:.3g}" if seconds < 1000 * 86_400 else f"{seconds / 86_400:,.0f}"
    return f"{days} day" if days == "1" else f"{days} days"


def log_duration(low_s: float, high_s: float) -> dict[str, Any]:
    """Return the properties of a log axis from `low_s` to `high_s` seconds, labelled in seconds, minutes, hours and days."""
    low = max(low_s, 1e-3)
    high = max(high_s, low * 1.01)
    marks: list[float] = []
    for candidates in (_COARSE, _FINE, [float(at) for at in np.geomspace(low, high, 4)]):
        marks = [at for at in candidates if low / 1.001 <= at <= high * 1.001]
        if len(marks) >= _FEWEST_MARKS:
            break
    marks = _apart(marks, math.log(high / low) / _MOST_MARKS)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickmode": "array",
        "tickvals": marks,
        "ticktext": [_mark(at) for at in marks],
    }


def _apart(marks: list[float], least: float) -> list[float]:
    """Return those marks that are far enough from the one before, in logarithms."""
    kept: list[float] = []
    for mark in marks:
        if not kept or math.log(mark / kept[-1]) >= least:
            kept.append(mark)
    return kept
