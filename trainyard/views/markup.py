"""Pieces of HTML: everything from outside is escaped here, and only here."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from trainyard.views.charts import visible

MOST_ROWS: Final = 200
"""Rows of one table; the exports of the app hold all."""
_MOST_CHARACTERS: Final = 2000
_CELL_CHARACTERS: Final = 120


def text(value: object, most: int = _MOST_CHARACTERS) -> str:
    """Return text from outside as HTML that shows it, on one line, also within an attribute."""
    return html.escape(visible(str(value), most))


def paragraph(sentence: str, kind: str = "") -> str:
    """Return a paragraph, of a class of the style sheet if it is named; "" where there is nothing
    to say.
    """
    return f"<p{_classed(kind)}>{text(sentence)}</p>" if sentence else ""


def listed(sentences: Sequence[str]) -> str:
    """Return a list; "" where there is nothing to say."""
    return f"<ul>{''.join(f'<li>{text(one)}</li>' for one in sentences)}</ul>" if sentences else ""


def described(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a list of names and what they are; those without a value are left out."""
    given = (f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs if value)
    return f"<dl>{''.join(given)}</dl>"


def folded(summary: str, inside: str) -> str:
    """Return something that is opened by a click, without scripts."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def verbatim(content: str) -> str:
    """Return a text with its lines as they are; the caller sees to it that nothing in it is
    invisible.
    """
    return f'<pre tabindex="0">{html.escape(content)}</pre>'


def section(title: str, inside: str) -> str:
    """Return a part of the report under its heading; "" where there is nothing in it."""
    return f"<section><h2>{text(title)}</h2>{inside}</section>" if inside else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table from cells that are HTML already; the first of each row names it."""
    top = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    rows_html = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll" tabindex="0"><table{_classed(kind)}>{rows_html}</table></div>'


def framed(head: str, body: str, *, dark: bool = False, caption: str = "", note: str = "") -> str:
    """Return a table in a frame of its own to scroll in, from rows that are HTML already.

    Parameters
    ----------
    head, body : str
        Rows.
    dark : bool
        Whether the viewer's theme is dark.
    caption : str
        Inside the frame; plain text.
    note : str
        Below the frame, as wide as the page; plain text.
    """
    above = f"<caption>{text(caption)}</caption>" if caption else ""
    below = f'<p class="ty-note">{text(note)}</p>' if note else ""
    return (
        f'<div class="ty-scroll" tabindex="0"><table class="ty {"dark" if dark else "light"}">'
        f"{above}<thead>{head}</thead><tbody>{body}</tbody></table></div>{below}"
    )


def rows_of(frame: pd.DataFrame) -> str:
    """Return a frame as a table; of long ones every n-th row, and it says so."""
    every = max(-(-len(frame) // MOST_ROWS), 1)
    some = frame.iloc[::every]
    # By place, because two columns may be named alike.
    columns = [[_cell(value) for value in some.iloc[:, at]] for at in range(len(some.columns))]
    note = f"{len(some):,} of {len(frame):,} rows, evenly spaced." if every > 1 else ""
    return table(
        [str(name) for name in some.columns], list(zip(*columns, strict=True))
    ) + paragraph(note, "note")


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return (
            "–"
            if math.isnan(number)
            else f"{number:,.4g}"
            if abs(number) < 1000
            else f"{number:,.0f}"
        )
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return text(value, _CELL_CHARACTERS)


def _classed(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
