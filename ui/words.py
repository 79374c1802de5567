"""Words on a page: durations, shares, money and counts as tables and captions show them, and text from outside shown as it is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from lab.trust import duration
from lab.words import plural

__all__ = ["MISSING", "change", "count", "factor", "instant", "money", "plain", "plural", "share", "time"]

MISSING: Final = "–"
_JOINER: Final = "\u2060"
"""A character without width."""
_ACTIVE: Final = re.compile(r"[\\`*\[\]<>$~&]|(?<!\w)_|_(?!\w)|:(?=[A-Za-z])")
_NAMED: Final = re.compile(r":(?=[\w+-]+(/\w+)?:)")
_SIGN: Final = re.compile(r"(?:(?<=\s)|^)(<->|->|<-|--|>=|<=|~=)(?=\s|$)")
_BEGIN: Final = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


def time(seconds: float) -> str:
    """Return seconds in the unit a person would use."""
    return duration(seconds) if math.isfinite(seconds) else MISSING


def instant(t_s: float, epoch: str = "") -> str:
    """Return an instant of a run, in seconds since its begin: "day 3 14:20", or on the calendar if it is known when that was."""
    if epoch:
        return f"{datetime.fromisoformat(epoch) + timedelta(seconds=t_s):%Y-%m-%d %H:%M}"
    minutes = int(t_s // 60)
    return f"day {minutes // 1440 + 1} {minutes // 60 % 24:02d}:{minutes % 60:02d}"


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
    """Return a relative difference with sign."""
    if not math.isfinite(value):
        return ""
    if abs(value) < 0.0005:
        return "±0 %"
    digits = 0 if abs(value) >= 0.1 else 1
    return f"{'+' if value > 0 else '−'}{abs(100 * value):.{digits}f} %"


def plain(text: str) -> str:
    """Return Markdown that shows a text from outside (a file's name, a user's, a sentence that quotes them) as it is, on one line.

    Notes
    -----
    Characters that begin Markdown, HTML, LaTeX or one of Streamlit's directives get a backslash. Names of icons and signs such as ``->`` are replaced by
    Streamlit after that, in what is left, so a character without width is put into them.
    """
    line = _SIGN.sub(lambda found: found[0][0] + _JOINER + found[0][1:], " ".join(text.split()))
    line = _ACTIVE.sub(lambda found: f"\\{found[0]}", _NAMED.sub(f":{_JOINER}", line))
    return _BEGIN.sub(lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", line)


BY_UNIT: Final[Mapping[str, Callable[[float], str]]] = {"s": time, "1": share, "USD": money, "": count}
"""Unit of a metric -> how its value is written."""
