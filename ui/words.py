"""Text on pages: durations, shares, money and counts; Markdown escaping of outside text."""

from __future__ import annotations

import re
from typing import Final

from trainyard.formatting import (
    BY_UNIT,
    MISSING,
    change,
    count,
    duration,
    factor,
    in_sentence,
    money,
    plural,
    run_time,
    share,
    time,
)
from trainyard.views.charts import visible

__all__ = [
    "BY_UNIT",
    "ENGINES",
    "MISSING",
    "change",
    "count",
    "duration",
    "factor",
    "in_sentence",
    "money",
    "plain",
    "plural",
    "run_time",
    "share",
    "time",
]

ENGINES: Final = {
    "kernel": "general engine",
    "fast": "fast engine",
    "plain": "fast engine, uncompiled",
}
"""`sim.result.Timing.engine` -> name of the engine."""

_JOINER: Final = "\u2060"
"""A character without width."""
_MAX_TEXT: Final = 2000
"""Characters of a text."""
_ACTIVE: Final = re.compile(r"[\\`*\[\]<>$~&]|(?<!\w)_|_(?!\w)|:(?=[A-Za-z])")
_NAMED: Final = re.compile(r":(?=[\w+-]+(/\w+)?:)")
_SIGN: Final = re.compile(r"(?:(?<=\s)|^)(<->|->|<-|--|>=|<=|~=)(?=\s|$)")
_ADDRESS: Final = re.compile(r"(https?:|www|(?<=\w)@)(?=[/.]|(?<=@)\w)", re.IGNORECASE)
_BEGIN: Final = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


def plain(text: str) -> str:
    """Return outside text (file names, user names, quotes) as inert Markdown on one line.

    Notes
    -----
    Characters that begin Markdown, HTML, LaTeX or a Streamlit directive get a backslash. Streamlit
    replaces icon names, signs such as ``->`` and URLs afterwards, so a zero-width character splits
    them. Invisible characters become visible, and long texts are shortened, see `charts.visible`.
    """
    line = _SIGN.sub(lambda match: match[0][0] + _JOINER + match[0][1:], visible(text, _MAX_TEXT))
    line = _ADDRESS.sub(lambda match: f"{match[0]}{_JOINER}", line)
    line = _ACTIVE.sub(lambda match: f"\\{match[0]}", _NAMED.sub(f":{_JOINER}", line))
    return _BEGIN.sub(
        lambda match: f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}", line
    )
