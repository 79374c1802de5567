"""Formats numbers, durations, dates and nouns for users, and parses times of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean
from typing import Final

from sim.errors import ParameterError

MANY: Final = 3.0
"""Relative increase above which a change is written as a factor."""
_CAUSES: Final = {
    "oom": "out of memory ({role})",
    "interruption": "interrupted",
    "outage": "its node went down",
}
_DAY_S: Final = 86_400.0
_MAX_DAYS: Final = 1_000_000
"""Maximum days from the epoch; Python's calendar ends."""

_GPU_MODEL: Final = re.compile(r"[a-z]{1,4}[0-9]+[a-z0-9_-]*")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless 1."""
    many = f"{noun[:-1]}ies" if noun.endswith("cy") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def gpu_type(name: str) -> str:
    """Return a GPU model in capitals ("A100"), other names unchanged."""
    return name.upper() if _GPU_MODEL.fullmatch(name) else name


def in_sentence(title: str) -> str:
    """Return a title as part of a sentence: "average wait", but "GPUs busy"."""
    return title if title[:2].isupper() else f"{title[:1].lower()}{title[1:]}"


def increase_factor(change: float) -> str:
    """Return a relative increase as a factor: 3.3 is "4.3"."""
    return f"{1.0 + change:,.{1 if change < 9 else 0}f}"


def with_en_dash(name: str) -> str:
    """Return a range with an en dash: "2–4"."""
    return name.replace("-", "–")


def job_counts(jobs: Mapping[str, int], most: int = 5) -> str:
    """Return names with their job counts as text, most jobs first; "and N more" after `most`."""
    ordered = sorted(jobs.items(), key=lambda item: -item[1])
    text = ", ".join(f"{name[:40]} ({plural(count, 'job')})" for name, count in ordered[:most])
    return f"{text} and {len(ordered) - most} more" if len(ordered) > most else text


def why_failed(failed_by: Mapping[str, int]) -> str:
    """Return the reasons of failed jobs with counts, from "cause role" -> jobs; "" if none."""
    causes: dict[str, int] = {}
    for name, jobs in failed_by.items():
        cause, _, role = name.partition(" ")
        sentence = _CAUSES[cause].format(role=role)
        causes[sentence] = causes.get(sentence, 0) + jobs
    return ", ".join(
        f"{jobs:,} {sentence}"
        for sentence, jobs in sorted(causes.items(), key=lambda item: -item[1])
    )


@dataclass(frozen=True)
class RunClock:
    """Formats and parses times of a run.

    Parameters
    ----------
    epoch : str
        ISO time of second 0, to show calendar dates; "" = days since the first submission,
        counted from day 1.
    seconds : bool
        Whether to show seconds, for short runs.
    """

    epoch: str = ""
    seconds: bool = False

    def format(self, t_s: float) -> str:
        """Return a time with its day: "day 3, 14:20" or "Thu 5 Oct, 14:20"."""
        return f"{self.day(t_s)}, {self.time(t_s)}"

    def format_after(self, t_s: float, before_s: float) -> str:
        """Return a time, without its day if that is the day of the time before."""
        return self.time(t_s) if self.day(t_s) == self.day(before_s) else self.format(t_s)

    def span(self, t0_s: float, t1_s: float) -> str:
        """Return a time range: "day 6, 04:30–06:00"."""
        return f"{self.format(t0_s)}–{self.format_after(t1_s, t0_s)}"

    def day(self, t_s: float) -> str:
        """Return the day of a time: "day 3" or "Thu 5 Oct"."""
        days, _ = self._split_day(t_s)
        if not self._has_date(days):
            return f"day {days + 1:,d}"
        date = datetime.fromisoformat(self.epoch).date() + timedelta(days)
        return f"{date:%a} {date.day} {date:%b}"

    def time(self, t_s: float) -> str:
        """Return the time of day of a time: "14:20"."""
        _, second = self._split_day(t_s)
        hours = f"{second // 3600:02d}:{second // 60 % 60:02d}"
        return f"{hours}:{second % 60:02d}" if self.seconds else hours

    def read(self, words: str) -> float:
        """Return the seconds of a time in the format of `format`.

        Parameters
        ----------
        words : str
            "day 6, 04:30" or "Sat 6 Jan, 04:30"; without a time of day midnight. A date means its
            first occurrence from the first submission on.

        Raises
        ------
        ParameterError
            If the text does not have this format.
        """
        match = (_DATED if self.epoch else _COUNTED).fullmatch(words.strip())
        day = None if match is None else self._day_of(match)
        if match is None or day is None:
            raise ParameterError(
                f"“{words[:40]}” is not a time of the run. Write it like"
                f" “{self.format(5 * _DAY_S + 16_200)}”."
            )
        hours, minutes, seconds = (int(match[name] or 0) for name in ("h", "m", "s"))
        return day * _DAY_S + hours * 3600 + minutes * 60 + seconds - self._first_s

    @property
    def midnight_s(self) -> float:
        """Midnight before the first submission, in seconds."""
        return -self._first_s

    @property
    def _first_s(self) -> float:
        """Seconds from midnight to the first submission."""
        if not self.epoch:
            return 0.0
        first = datetime.fromisoformat(self.epoch)
        return first.hour * 3600.0 + first.minute * 60 + first.second + first.microsecond / 1e6

    def _split_day(self, t_s: float) -> tuple[int, int]:
        """Return the day (from 0) and the second of the day of a time.

        Counts from midnight; from the first submission if the date is out of range.
        """
        # Rounded, so that errors do not show the minute before.
        days, second = divmod(round(t_s, 3) + self._first_s, _DAY_S)
        if self.epoch and not self._has_date(int(days)):
            days, second = divmod(round(t_s, 3), _DAY_S)
        return int(days), int(second)

    def _has_date(self, days: int) -> bool:
        """Return True if a day has a calendar date."""
        return bool(self.epoch) and abs(days) < _MAX_DAYS

    def _day_of(self, match: re.Match[str]) -> int | None:
        """Return the day of a parsed time, 0 = first submission; None if there is no such date."""
        if not self.epoch:
            return int(match["day"].replace(",", "")) - 1
        first = datetime.fromisoformat(self.epoch).date()
        for year in range(first.year, first.year + 9):  # a leap day is eight years away at most
            try:
                date = datetime.strptime(f"{match['day']} {match['month']} {year}", "%d %b %Y")
            except ValueError:
                continue
            if date.date() >= first:
                return (date.date() - first).days
        return None


_TIME_OF_DAY: Final = r"(?:[ ,]+(?P<h>[01]?\d|2[0-3]):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d))?)?"
_COUNTED: Final = re.compile(rf"(?:day\s*)?(?P<day>[1-9][\d,]{{0,8}}){_TIME_OF_DAY}", re.IGNORECASE)
_DATED: Final = re.compile(
    rf"(?:[a-z]{{3}},?\s+)?(?P<day>\d{{1,2}})\s+(?P<month>[a-z]{{3}}){_TIME_OF_DAY}", re.IGNORECASE
)


def run_time(t_s: float, epoch: str = "") -> str:
    """Return a time of a run: "day 6, 04:30", or with an epoch "Sat 6 Jan, 04:30"."""
    return RunClock(epoch).format(t_s)


def relative_date(date: datetime, now: datetime) -> str:
    """Return a date relative to now: "today 14:20", "3 Nov 14:20", "3 Nov 2025".

    Both dates must have the same time zone.
    """
    days = (now.date() - date.date()).days
    if days in (0, 1):
        return f"{('today', 'yesterday')[days]} {date:%H:%M}"
    return f"{date.day} {date:%b %H:%M}" if date.year == now.year else f"{date.day} {date:%b %Y}"


_ONE: Final = {60.0: "1 min", 3600.0: "1 h", 86_400.0: "1 day"}

_UNITS: Final = ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (172_800.0, 3600.0, "h"))
"""(maximum seconds, seconds per unit, name) of the units of durations."""


def common_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """Return the unit that suits the mean of durations: its length in seconds, and its name.

    Durations of 0 or not finite are ignored.
    """
    finite = [abs(one) for one in seconds if one and math.isfinite(one)]
    mean_s = fmean(finite) if finite else 0.0
    return next(((size, unit) for limit, size, unit in _UNITS if mean_s < limit), (_DAY_S, "days"))


def duration(seconds: float) -> str:
    """Return seconds in a readable unit: "45 s", "27 min", "3.4 h", "2.5 days".

    Hours are used from 90 minutes to 48 hours.
    """
    if seconds in _ONE:
        return _ONE[seconds]
    size, unit = next(
        ((size, unit) for limit, size, unit in _UNITS if seconds < limit), (86_400.0, "days")
    )
    value = seconds / size
    if value.is_integer() or value >= _WHOLE[unit]:
        return f"{value:,.0f} {unit}"
    return f"{value:.1f} {unit}" if value >= 0.95 else f"{value:.2g} {unit}"


_WHOLE: Final = {"s": 9.95, "min": 9.95, "h": math.inf, "days": 99.95}
"""Value from which a unit has no decimals."""
NARROW: Final = "\u202f"
"""Narrow no-break space between a number and its percent sign."""
MISSING: Final = "–"
MIN_CHANGE: Final = 0.0005
"""Relative difference below which a change is written as none."""


def time(seconds: float) -> str:
    """Return seconds in a readable unit, `MISSING` if not finite."""
    return duration(seconds) if math.isfinite(seconds) else MISSING


def signed_duration(seconds: float) -> str:
    """Return a difference of times with + or −, `MISSING` if not finite."""
    if not math.isfinite(seconds):
        return MISSING
    return f"{'−' if seconds < 0 else '+'}{duration(abs(seconds))}"


def share(value: float) -> str:
    """Return a share as a percentage with one decimal."""
    return f"{100 * value:.1f} %" if math.isfinite(value) else MISSING


def factor(value: float) -> str:
    """Return a ratio with two decimals."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def money(usd: float) -> str:
    """Return US dollars, with cents only below 1000."""
    if not math.isfinite(usd):
        return MISSING
    return f"${usd:,.2f}" if usd < 1000 else f"${usd:,.0f}"


def count(value: float) -> str:
    """Return a whole number with separators."""
    return f"{value:,.0f}" if math.isfinite(value) else MISSING


def change(value: float) -> str:
    """Return a relative difference: "−41 %", "+9.5 %", or above `MANY` as "90 times"."""
    if not math.isfinite(value):
        return ""
    if abs(value) < MIN_CHANGE:
        return f"±0{NARROW}%"
    if value > MANY:
        return f"{increase_factor(value)} times"
    digits = 0 if abs(value) >= 0.1 else 1
    return f"{'+' if value > 0 else '−'}{abs(100 * value):,.{digits}f}{NARROW}%"


BY_UNIT: Final[Mapping[str, Callable[[float], str]]] = {
    "s": time,
    "1": share,
    "USD": money,
    "": count,
}
"""Unit of a metric -> function that formats its values."""
