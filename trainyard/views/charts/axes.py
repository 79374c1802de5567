"""Axes of time, in days since the first submission or by calendar, and of log durations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainyard.formatting import RunClock, duration

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
"""Distances between labels on the axis, in seconds."""
_MAX_TICKS: Final = 10
_SECONDS_BELOW: Final = 2 * 3600.0
"""Windows below this show seconds."""
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
_MIN_MARKS: Final = 3
_MAX_MARKS: Final = 10
"""Maximum number of labels at a width of 800 px."""
FEW_MARKS: Final = 7
"""Maximum number of labels in a narrow column or on a phone."""


@dataclass(frozen=True)
class TimeAxis:
    """Time axis of a run, shared by all figures of a page.

    Positions are in seconds since the first submission.

    Parameters
    ----------
    t0_s, t1_s : float, seconds
        The visible window.
    epoch : str
        ISO instant of second 0: the calendar is shown. "" = days since the first submission.
    """

    t0_s: float
    t1_s: float
    epoch: str = ""

    @property
    def clock(self) -> RunClock:
        """Formatter of instants within the window."""
        return RunClock(self.epoch, seconds=self.t1_s - self.t0_s < _SECONDS_BELOW)

    def place(self, t_s: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return the positions of instants on the axis."""
        return t_s.astype(np.float32)

    def heading(self, t_s: NDArray[np.float64]) -> dict[str, Any]:
        """Return an invisible trace that shows the instant at the top of the hover label."""
        return {
            "type": "scatter",
            "mode": "lines",
            "name": "",
            "showlegend": False,
            "legendrank": 1,  # a box of labels is in this order
            "x": self.place(t_s),
            "y": np.zeros(len(t_s), np.uint8),
            "line": {"width": 0},
            "text": [self.clock.format(float(at)) for at in t_s],
            "hovertemplate": "<b>%{text}</b><extra></extra>",
        }

    def layout(self) -> dict[str, Any]:
        """Return the Plotly x axis with up to 10 ticks: "day 6" at midnight, "12:00" between."""
        span = max(self.t1_s - self.t0_s, 1e-9)
        step = next((step for step in _STEPS if span / step <= _MAX_TICKS), _STEPS[-1])
        while span / step > _MAX_TICKS:
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
        """Return the label of a tick: the day at midnight, else the time; the first has both."""
        time = self.clock.time(at_s)
        if not time.replace("00", "").strip(":"):
            return self.clock.day(at_s)
        return f"{time}<br>{self.clock.day(at_s)}" if first else time


def duration_unit(longest_s: float) -> tuple[float, str]:
    """Return the seconds in one unit of an axis of durations, and its name."""
    return next((size, name) for limit, size, name in _UNITS if longest_s <= limit)


duration_text = duration
"""How durations are written in figures: as everywhere."""


def band_texts(width_s: float) -> tuple[str, str]:
    """Return the meaning of a band up to the maximum of bins, and the width of a bin."""
    return "pale band: highest value", f"in each {duration(width_s)}"


def mean_text(width_s: float) -> str:
    """Return the meaning of a line through means of bins: "1.5-h averages"."""
    return f"{duration(width_s).replace(' ', '-')} averages"


def _mark(seconds: float) -> str:
    """Return the label of a duration on an axis: three digits in its largest unit."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.3g} min"
    if seconds < 86_400:
        return f"{seconds / 3600:.3g} h"
    days = f"{seconds / 86_400:.3g}" if seconds < 1000 * 86_400 else f"{seconds / 86_400:,.0f}"
    return f"{days} day" if days == "1" else f"{days} days"


def log_duration(low_s: float, high_s: float, most: float = _MAX_MARKS) -> dict[str, Any]:
    """Return a Plotly log axis from `low_s` to `high_s` seconds, labeled with durations.

    Labels are at least one part of `most` of the axis apart.
    """
    low = max(low_s, 1e-3)
    high = max(high_s, low * 1.01)
    marks: list[float] = []
    for candidates in (_COARSE, _FINE, [float(at) for at in np.geomspace(low, high, 4)]):
        marks = [at for at in candidates if low / 1.001 <= at <= high * 1.001]
        if len(marks) >= _MIN_MARKS:
            break
    marks = _spaced_marks(marks, math.log(high / low) / most)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickmode": "array",
        "tickvals": marks,
        "ticktext": [_mark(at) for at in marks],
    }


def _spaced_marks(marks: list[float], least: float) -> list[float]:
    """Return the first mark, and later marks at a distance of at least `least` on a log scale."""
    kept: list[float] = []
    for mark in marks:
        if not kept or math.log(mark / kept[-1]) >= least:
            kept.append(mark)
    return kept
