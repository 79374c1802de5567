"""Colours, dashes and the frame of every figure: one policy has one colour and one dash on every page, in light and in dark."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

Style = Mapping[str, tuple[str, str]]
"""Label of a policy -> (colour, dash)."""

BASELINE_COLOUR: Final = "#7A818C"
NEUTRAL: Final = "#7A818C"
"""Grey that is readable on white and on near-black alike: text beside the data, outlines, capacity."""
GRID: Final = "rgba(128, 128, 128, 0.25)"
POLICY_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Okabe and Ito's palette without black and yellow, distinguishable with any common colour blindness."""
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
TYPE_COLOURS: Final = ("#44AA99", "#DDCC77", "#AA4499", "#88CCEE", "#999933", "#CC6677", "#6699CC", "#BBBBBB")
"""Paul Tol's muted palette, its darkest two replaced: GPU types never share a colour with a policy."""
TEXT_PX: Final = 14
LINE_PX: Final = 2
MOST_CHARACTERS: Final = 80
"""Of one name in a figure."""
_MOST_UNBROKEN: Final = 120
"""Of one word in a text: longer than any path or hash that is told."""
_LONG: Final = re.compile(rf"\S{{{_MOST_UNBROKEN + 1},}}")
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_TITLE_CHARACTERS: Final = 78
NARROW_PX: Final = 380
"""What a legend has of a window of 800 px beside the sidebar."""


def policy_style(labels: Sequence[str], baseline: str) -> dict[str, tuple[str, str]]:
    """Return colour and dash of every policy.

    Parameters
    ----------
    labels : sequence of str
        All policies of the study, always in the same order.
    baseline : str
        The one that the others are compared with; grey and solid.

    Returns
    -------
    dict
        label -> (colour, dash). It depends on the place of a label only: another baseline recolours two lines, not all. The first label is usually the
        baseline, so colours are counted from the second; the first, when it is not the baseline, takes the last colour. Up to 36 labels differ.
    """
    style: dict[str, tuple[str, str]] = {}
    for at, label in enumerate(labels):
        colour = POLICY_COLOURS[(at - 1) % len(POLICY_COLOURS)]
        style[label] = (colour, DASHES[(at + at // len(DASHES)) % len(DASHES)])
    if baseline in style:
        style[baseline] = (BASELINE_COLOUR, "solid")
    return style


def type_style(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of every GPU type, by its place in the cluster; nodes without GPUs ("") are grey."""
    style = {name: TYPE_COLOURS[at % len(TYPE_COLOURS)] for at, name in enumerate(name for name in names if name)}
    return style | {"": NEUTRAL}


def faded(colour: str, share: float) -> str:
    """Return a #RRGGBB colour with an opacity between 0 and 1."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {share:g})"


def visible(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text from outside on one line, with everything in it to be seen, and no longer than `most` characters.

    Notes
    -----
    Control characters become their pictures (NUL: ␀). Marks that turn the direction of writing, and what is no character, become �: they would make a name
    look like another one, or turn the words around it. A name of 10,000 characters within a sentence is shortened too.
    """
    words = _LONG.sub(lambda found: f"{found[0][: _MOST_UNBROKEN - 1]}…", " ".join(text.split()))
    line = _UNSEEN.sub(lambda found: chr(0x2400 + ord(found[0])) if found[0] < " " else "�", words)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def literal(text: str) -> str:
    """Return a name from outside such that Plotly shows it as it is: HTML would be markup, two ``$`` LaTeX, and ``%{`` in a hover label a variable."""
    return html.escape(visible(text), quote=False).replace("%{", "%&#123;").replace("$", "&#36;")


def image_config(name: str) -> dict[str, Any]:
    """Return what `st.plotly_chart` takes as `config`: a sharp PNG under this file name, no logo, no lasso."""
    return {
        "displaylogo": False,
        "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
        "toImageButtonOptions": {"format": "png", "scale": 2, "filename": name},
    }


def wrapped(title: str) -> tuple[str, int]:
    """Return a title broken into lines that fit 800 px, and the height it takes in pixels."""
    lines = textwrap.wrap(title, _TITLE_CHARACTERS)
    return "<br>".join(lines), 24 * len(lines)


def figure(traces: Sequence[Mapping[str, Any]], title: str, height: int, *, legend_px: int = 0, **layout: Any) -> go.Figure:
    """Return a figure with what all have in common: transparent, title at the left, legend in one band above the data, room for both.

    Parameters
    ----------
    traces : sequence of mapping
        Properties of the traces, `type` among them; plain mappings, because Plotly then checks everything once instead of at every step.
    title : str
        The finding or the question; may be empty.
    height : int, pixels
        Of the data, without title, legend and margins.
    legend_px : int, pixels
        Height of the legend band; 0 = no legend.
    **layout
        More layout properties.
    """
    text, title_px = wrapped(title)
    top, bottom = 16 + title_px + legend_px, 52
    total = height + top + bottom
    place = {"x": 0, "xanchor": "left", "yanchor": "top", "yref": "container"}
    common: dict[str, Any] = {
        "title": {"text": text, "y": 1 - 8 / total, "font": {"size": 16}, **place},
        "height": total,
        "margin": {"l": 64, "r": 16, "t": top, "b": bottom},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": TEXT_PX},
        "showlegend": legend_px > 0,
        "legend": {"orientation": "h", "y": 1 - (12 + title_px) / total, "font": {"size": TEXT_PX}, "bgcolor": "rgba(0,0,0,0)", "tracegroupgap": 0, **place},
        "hoverlabel": {"font": {"size": TEXT_PX}},
    }
    lines = {"gridcolor": GRID, "linecolor": GRID, "zeroline": False, "tickfont": {"size": TEXT_PX}}
    axes = {name: lines | value | _sized(value) for name, value in layout.items() if name.startswith(("xaxis", "yaxis"))}
    return go.Figure(list(traces), common | layout | axes)


def _sized(axis: Mapping[str, Any]) -> dict[str, Any]:
    return {"title": {"font": {"size": TEXT_PX}, **axis["title"]}} if "title" in axis else {}


def legend_px(labels: Sequence[str], width: int = 700) -> int:
    """Return the height that a horizontal legend of these labels takes in a figure of 800 px, in pixels."""
    rows, used = 1, 0
    for label in labels:
        entry = 56 + 8 * len(label)
        if used and used + entry > width:
            rows, used = rows + 1, 0
        used += entry
    return 24 * rows if labels else 0


def narrow_legend_px(labels: Sequence[str]) -> int:
    """Return the height that a horizontal legend of many labels takes beside an open sidebar: Plotly gives all entries the width of the longest, in pixels."""
    per_row = max(int(NARROW_PX / (44 + 6.5 * max(map(len, labels), default=0))), 1)
    return 24 * -(-len(labels) // per_row)


def legend_entry(name: str, mode: str, **look: Any) -> dict[str, Any]:
    """Return a trace without points, which gives a name in the legend to what is drawn otherwise; `mode` is "lines" or "markers"."""
    return {"type": "scatter", "x": [None], "y": [None], "mode": mode, "name": name, "hoverinfo": "skip", **look}
