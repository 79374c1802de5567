"""Durations, shares, money and counts as people write them, in tables, captions and reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from lab.results.trust import duration
from lab.words import MANY, as_many

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
    """Return a relative difference with sign: "−41 %", "+9.5 %"; above `lab.words.MANY` as a factor: "90 times"."""
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
