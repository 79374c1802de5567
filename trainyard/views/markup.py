"""Pieces of HTML for pages and reports; all untrusted text is escaped here, and only here."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from trainyard.views.charts import visible

MAX_ROWS: Final = 200
"""Maximum number of rows of a table; exports contain all."""
_MAX_CHARS: Final = 2000
_CELL_CHARACTERS: Final = 120


def text(value: object, most: int = _MAX_CHARS) -> str:
    """Return untrusted text as HTML on one line, safe within attributes."""
    return html.escape(visible(str(value), most))


def paragraph(sentence: str, kind: str = "") -> str:
    """Return a paragraph, optionally of a CSS class; "" for an empty sentence."""
    return f"<p{_class_attribute(kind)}>{text(sentence)}</p>" if sentence else ""


def html_list(sentences: Sequence[str]) -> str:
    """Return an HTML list; "" without items."""
    return f"<ul>{''.join(f'<li>{text(one)}</li>' for one in sentences)}</ul>" if sentences else ""


def html_descriptions(pairs: Sequence[tuple[str, str]]) -> str:
    """Return an HTML description list, even if empty; pairs without a value are left out."""
    given = (f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs if value)
    return f"<dl>{''.join(given)}</dl>"


def html_details(summary: str, inside: str) -> str:
    """Return HTML content folded under a summary line, without scripts."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def verbatim(content: str) -> str:
    """Return preformatted text; the caller must make all characters visible."""
    return f'<pre tabindex="0">{html.escape(content)}</pre>'


def section(title: str, inside: str) -> str:
    """Return a section with its heading, also as "part-heading" its id; "" if `inside` is empty."""
    name = f"part-{title.lower().replace(' ', '-')}"
    return f'<section id="{text(name)}"><h2>{text(title)}</h2>{inside}</section>' if inside else ""


def html_contents(sections: Sequence[str]) -> str:
    """Return links to sections as made by `section`; empty ones are left out."""
    links = [
        f'<a href="#{name}">{title}</a>'
        for one in sections
        for name, title in re.findall(r'^<section id="([^"]*)"><h2>(.*?)</h2>', one)
    ]
    return f'<nav aria-label="Contents">{" · ".join(links)}</nav>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table from plain headings and HTML cells; the first cell of a row is its header."""
    top = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    rows_html = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return (
        f'<div class="scroll" tabindex="0"><table{_class_attribute(kind)}>{rows_html}</table></div>'
    )


def html_scroll_table(
    head: str, body: str, *, dark: bool = False, caption: str = "", note: str = ""
) -> str:
    """Return a table from HTML rows in a scrollable frame.

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


def html_frame(frame: pd.DataFrame) -> str:
    """Return a frame as an HTML table; a long one shows every n-th row and a note."""
    every = max(-(-len(frame) // MAX_ROWS), 1)
    some = frame.iloc[::every]
    # By place, because two columns may be named alike.
    columns = [[_cell(value) for value in some.iloc[:, at]] for at in range(len(some.columns))]
    note = f"{len(some):,} of {len(frame):,} rows, evenly spaced." if every > 1 else ""
    return table(
        [str(name) for name in some.columns], list(zip(*columns, strict=True))
    ) + paragraph(note, "note")


def _cell(value: Any) -> str:
    """Return a value as HTML: numbers with separators, NaN as a dash, long text shortened."""
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


def _class_attribute(kind: str) -> str:
    """Return the class attribute of an element; "" without a class."""
    return f' class="{kind}"' if kind else ""
