"""Numbers, durations, shares, money and nouns as people read them, in sentences, tables and reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

MANY: Final = 3.0
"""A relative increase above this is told as a factor."""
_CAUSES: Final = {"oom": "out of memory ({role})", "interruption": "interrupted", "outage": "its node went down"}
_DAY_S: Final = 86_400.0
_MOST_DAYS: Final = 1_000_000
"""From the epoch; calendars end."""


def plural(number: int, noun: str) -> str:
    """Return a number with its noun."""
    many = f"{noun[:-1]}ies" if noun.endswith("cy") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def as_many(change: float) -> str:
    """Return a relative increase as the factor that it is: "4.3", "90"."""
    return f"{1.0 + change:,.{1 if change < 9 else 0}f}"


def numbers(name: str) -> str:
    """Return a class of numbers as people write it: "2–4"."""
    return name.replace("-", "–")


def counted(jobs: Mapping[str, int], most: int = 5) -> str:
    """Return names with the number of jobs of each, those of the most jobs first."""
    ordered = sorted(jobs.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name[:40]} ({plural(count, 'job')})" for name, count in ordered[:most])
    return f"{told} and {len(ordered) - most} more" if len(ordered) > most else told


def why_failed(failed_by: Mapping[str, int]) -> str:
    """Return why jobs failed, from cause and role ("oom server") with the number of jobs of each; "" = none did."""
    told: dict[str, int] = {}
    for name, jobs in failed_by.items():
        cause, _, role = name.partition(" ")
        sentence = _CAUSES[cause].format(role=role)
        told[sentence] = told.get(sentence, 0) + jobs
    return ", ".join(f"{jobs:,} {sentence}" for sentence, jobs in sorted(told.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Clock:
    """How instants of a run are written.

    Parameters
    ----------
    epoch : str
        ISO instant of second 0: the calendar is shown. "" = days since the first submission, day 1 being the first.
    seconds : bool
        Whether seconds are shown: for runs of minutes.
    """

    epoch: str = ""
    seconds: bool = False

    def at(self, t_s: float) -> str:
        """Return an instant: "day 3 14:20" or "2017-10-05 14:20"."""
        return " ".join(self._parts(t_s))

    def after(self, t_s: float, before_s: float) -> str:
        """Return an instant without its day, if that is the day of the one named before."""
        day, time = self._parts(t_s)
        return time if day == self._parts(before_s)[0] else f"{day} {time}"

    def _parts(self, t_s: float) -> tuple[str, str]:
        day, second = divmod(round(t_s, 3), _DAY_S)  # rounding errors must not fall back into the minute before
        if self.epoch and abs(day) < _MOST_DAYS:
            instant = datetime.fromisoformat(self.epoch) + timedelta(day, second)
            return f"{instant:%Y-%m-%d}", f"{instant:{'%H:%M:%S' if self.seconds else '%H:%M'}}"
        time = f"{second // 3600:02.0f}:{second // 60 % 60:02.0f}"
        return f"day {day + 1:,.0f}", f"{time}:{second // 1 % 60:02.0f}" if self.seconds else time


def moment(at: datetime, now: datetime) -> str:
    """Return an instant of the calendar as seen from another one of the same time zone: "today 14:20", "yesterday 14:20", "3 Nov 14:20", "3 Nov 2025"."""
    days = (now.date() - at.date()).days
    if days in (0, 1):
        return f"{('today', 'yesterday')[days]} {at:%H:%M}"
    return f"{at.day} {at:%b %H:%M}" if at.year == now.year else f"{at.day} {at:%b %Y}"


def length(seconds: float) -> str:
    """Return a duration in hours and minutes: "45 s", "1 min 30 s", "38 min", "2 h 38 min", "3 days 4 h"."""
    if seconds < 59.5:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == round(seconds) else f"{seconds:.1f} s"
    if seconds < 600:
        return _two(round(seconds), 60, ("min", "s"))
    if seconds < 48 * 3600:
        return _two(round(seconds / 60), 60, ("h", "min"))
    return _two(round(seconds / 3600), 24, ("days", "h"))


def _two(number: int, size: int, units: tuple[str, str]) -> str:
    whole, rest = divmod(number, size)
    return " ".join(f"{value:,} {unit}" for value, unit in zip((whole, rest), units, strict=True) if value)


_ONE: Final = {60.0: "1 min", 3600.0: "1 h", 86_400.0: "1 day"}

_UNITS: Final = ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (172_800.0, 3600.0, "h"))
"""Up to how many seconds a unit is used, how long it is, and its name."""


def duration(seconds: float) -> str:
    """Return seconds in the largest fitting unit, two digits: ``45 s``, ``12 min``, ``1 h``, ``3.4 h``, ``2.1 days``; as `charts.duration_text`."""
    if seconds in _ONE:
        return _ONE[seconds]
    size, unit = next(((size, unit) for limit, size, unit in _UNITS if seconds < limit), (86_400.0, "days"))
    value = seconds / size
    if value >= 10 or value.is_integer():
        return f"{value:,.0f} {unit}"
    return f"{value:.1f} {unit}" if value >= 1 else f"{value:.2g} {unit}"


MISSING: Final = "–"
SEEN: Final = 0.0005
"""Below, a relative difference is told as none."""


def time(seconds: float) -> str:
    """Return seconds in the unit a person would use."""
    return duration(seconds) if math.isfinite(seconds) else MISSING


def share(value: float) -> str:
    """Return a share as per cent with one decimal."""
    return f"{100 * value:.1f} %" if math.isfinite(value) else MISSING


def factor(value: float) -> str:
    """Return a ratio with two decimals."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def money(usd: float) -> str:
    """Return US dollars, cents below a thousand only."""
    if not math.isfinite(usd):
        return MISSING
    return f"$ {usd:,.2f}" if usd < 1000 else f"$ {usd:,.0f}"


def count(value: float) -> str:
    """Return a whole number with separators."""
    return f"{value:,.0f}" if math.isfinite(value) else MISSING


def change(value: float) -> str:
    """Return a relative difference with sign: "−41 %", "+9.5 %"; above `trainyard.text.MANY` as a factor: "90 times"."""
    if not math.isfinite(value):
        return ""
    if abs(value) < SEEN:
        return "±0 %"
    if value > MANY:
        return f"{as_many(value)} times"
    digits = 0 if abs(value) >= 0.1 else 1
    return f"{'+' if value > 0 else '−'}{abs(100 * value):,.{digits}f} %"


BY_UNIT: Final[Mapping[str, Callable[[float], str]]] = {"s": time, "1": share, "USD": money, "": count}
"""Unit of a metric -> how its value is written."""
