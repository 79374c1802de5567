"""Time on an axis: days since the first submission, or the calendar where it is known, and
durations on a log scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainyard.text import RunClock, duration

_DAY_S: Final = 86_400.0
_UNITS: Final = (
    (2 * 3600.0, 60.0, "minutes"),
    (4 * _DAY_S, 3600.0, "hours"),
    (math.inf, _DAY_S, "days"),
)
_STEPS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * hours for hours in (1, 2, 3, 6, 12)),
    *(_DAY_S * days for days in (1, 2, 5, 7, 14, 30, 60, 90, 180, 365)),
)
"""Distances of labels on the axis, in seconds."""
_MOST_TICKS: Final = 10
_SECONDS_BELOW: Final = 2 * 3600.0
"""Windows that are shorter are written with seconds."""
_COARSE: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)
_FINE: Final = tuple(
    count * unit
    for unit, counts in ((1, (1, 2, 5, 10, 20, 30)), (60, (1, 2, 5, 10, 20, 30)))
    for count in counts
) + tuple(
    count * unit
    for unit, counts in (
        (3600, (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20)),
        (86_400, (1, 2, 3, 4, 5, 7, 14, 30, 60, 120, 365)),
    )
    for count in counts
)
_FEWEST_MARKS: Final = 3
_MOST_MARKS: Final = 10
"""Labels that stand beside each other in a window of 800 px."""
FEW_MARKS: Final = 7
"""Labels that fit beside each other in a chart of a narrow column, or of a phone."""


@dataclass(frozen=True)
class TimeAxis:
    """How the time of a run is shown; the same for all figures of a page. A place on the axis is in
    seconds since the first submission.

    Parameters
    ----------
    t0_s, t1_s : float, seconds
        The window that is seen.
    epoch : str
        ISO instant of second 0: the calendar is shown. "" = days since the first submission.
    """

    t0_s: float
    t1_s: float
    epoch: str = ""

    @property
    def clock(self) -> RunClock:
        """How instants within the window are written."""
        return RunClock(self.epoch, seconds=self.t1_s - self.t0_s < _SECONDS_BELOW)

    def place(self, t_s: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return where instants are on the axis."""
        return t_s.astype(np.float32)

    def heading(self, t_s: NDArray[np.float64]) -> dict[str, Any]:
        """Return a trace that is not seen: where labels of all lines stand in one box, it says the
        instant first.
        """
        return {
            "type": "scatter",
            "mode": "lines",
            "name": "",
            "showlegend": False,
            "legendrank": 1,  # a box of labels is in this order
            "x": self.place(t_s),
            "y": np.zeros(len(t_s), np.uint8),
            "line": {"width": 0},
            "text": [self.clock.at(float(at)) for at in t_s],
            "hovertemplate": "<b>%{text}</b><extra></extra>",
        }

    def layout(self) -> dict[str, Any]:
        """Return the properties of the x axis: "day 6" at midnight, "12:00" between."""
        span = max(self.t1_s - self.t0_s, 1e-9)
        step = next((step for step in _STEPS if span / step <= _MOST_TICKS), _STEPS[-1])
        while span / step > _MOST_TICKS:
            step *= 2
        midnight = self.clock.midnight_s
        first = math.ceil((self.t0_s - midnight) / step - 1e-9)
        last = math.floor((self.t1_s - midnight) / step + 1e-9)
        ticks = [midnight + at * step for at in range(first, last + 1)]
        return {
            "range": [self.t0_s, self.t1_s],
            "tickvals": ticks,
            "ticktext": [self._tick(at, at == ticks[0] and step < _DAY_S) for at in ticks],
            # Of a box of labels; `heading` says the instant.
            "unifiedhovertitle": {"text": " "},
        }

    def _tick(self, at_s: float, first: bool) -> str:
        time = self.clock.time(at_s)
        if not time.replace("00", "").strip(":"):
            return self.clock.day(at_s)
        return f"{time}<br>{self.clock.day(at_s)}" if first else time


def duration_unit(longest_s: float) -> tuple[float, str]:
    """Return the seconds in one unit of an axis of durations, and its name."""
    return next((size, name) for limit, size, name in _UNITS if longest_s <= limit)


duration_text = duration
"""How durations are written in figures: as everywhere."""


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


def log_duration(low_s: float, high_s: float, most: float = _MOST_MARKS) -> dict[str, Any]:
    """Return the properties of a log axis from `low_s` to `high_s` seconds, labelled in seconds,
    minutes, hours and days; no two of the labels are nearer than one part of `most` of the axis.
    """
    low = max(low_s, 1e-3)
    high = max(high_s, low * 1.01)
    marks: list[float] = []
    for candidates in (_COARSE, _FINE, [float(at) for at in np.geomspace(low, high, 4)]):
        marks = [at for at in candidates if low / 1.001 <= at <= high * 1.001]
        if len(marks) >= _FEWEST_MARKS:
            break
    marks = _apart(marks, math.log(high / low) / most)
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
