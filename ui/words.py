"""Words on a page: durations, shares, money and counts as tables and captions show them, and text
from outside shown as it is.
"""

from __future__ import annotations

import re
from typing import Final

from trainyard.text import (
    BY_UNIT,
    MISSING,
    change,
    count,
    duration,
    factor,
    instant,
    money,
    plural,
    share,
    time,
    within,
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
    "instant",
    "money",
    "plain",
    "plural",
    "share",
    "time",
    "within",
]

ENGINES: Final = {
    "kernel": "general engine",
    "fast": "fast engine",
    "plain": "fast engine, uncompiled",
}
"""`sim.result.Timing.engine` -> what made a run."""

_JOINER: Final = "\u2060"
"""A character without width."""
_MOST: Final = 2000
"""Characters of a text."""
_ACTIVE: Final = re.compile(r"[\\`*\[\]<>$~&]|(?<!\w)_|_(?!\w)|:(?=[A-Za-z])")
_NAMED: Final = re.compile(r":(?=[\w+-]+(/\w+)?:)")
_SIGN: Final = re.compile(r"(?:(?<=\s)|^)(<->|->|<-|--|>=|<=|~=)(?=\s|$)")
_ADDRESS: Final = re.compile(r"(https?:|www|(?<=\w)@)(?=[/.]|(?<=@)\w)", re.IGNORECASE)
_BEGIN: Final = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


def plain(text: str) -> str:
    """Return Markdown that shows a text from outside (a file's name, a user's, a sentence that
    quotes them) as it is, on one line.

    Notes
    -----
    Characters that begin Markdown, HTML, LaTeX or one of Streamlit's directives get a backslash.
    Names of icons, signs such as ``->`` and addresses are replaced by Streamlit after that, in what
    is left, so a character without width is put into them. Characters that cannot be seen are made
    visible, and very long names and texts shortened, see `charts.visible`.
    """
    line = _SIGN.sub(lambda found: found[0][0] + _JOINER + found[0][1:], visible(text, _MOST))
    line = _ADDRESS.sub(lambda found: f"{found[0]}{_JOINER}", line)
    line = _ACTIVE.sub(lambda found: f"\\{found[0]}", _NAMED.sub(f":{_JOINER}", line))
    return _BEGIN.sub(
        lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", line
    )
