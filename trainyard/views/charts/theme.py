"""Colors and common layout of figures; a policy has one color everywhere."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

Trace = dict[str, Any]
"""Properties of a Plotly trace."""
Style = Mapping[str, tuple[str, str]]
"""Label of a policy -> (colour, dash)."""

BASELINE_COLOUR: Final = "#5F6875"
POLICY_COLOURS: Final = (
    "#1B4FD0",
    "#C24A00",
    "#0A8754",
    "#7B1885",
    "#3D2F00",
    "#DC1546",
    "#731139",
    "#8B5D9C",
    "#7516FC",
    "#2A009B",
    "#002E51",
)
"""Slots 1 to 11. Contrast of at least 4.5 : 1 on white. The first five are distinct under common
color blindness; the others are closer, because lines are named.
"""
TEXT: Final = "#1B2430"
NEUTRAL: Final = "#5A6472"
"""Second text: axes, notes, outlines, capacity."""
GRID: Final = "#E9EDF2"
PAPER: Final = "#FFFFFF"
"""Color of the page, behind names that overlap a line."""
BETTER: Final = "#005F94"
WORSE: Final = "#B34700"
AMBER: Final = "#8A4B00"
"""Warnings."""
MOST: Final = "#6F93C4"
_MORE: Final = "#D98B52"
SEQUENTIAL: Final = ((0.0, GRID), (1.0, MOST))
"""Least to most, from the grey of surfaces to a calm blue: `TEXT` is legible on all of it."""
DIVERGING: Final = ((0.0, MOST), (0.5, GRID), (1.0, _MORE))
"""Less, no difference, more; `TEXT` is legible on all of it."""
DARK: Final[Mapping[str, str]] = {
    BASELINE_COLOUR: "#A3ADB9",
    "#1B4FD0": "#4D86FF",
    "#C24A00": "#F0843E",
    "#0A8754": "#57EA9C",
    "#7B1885": "#F08CF0",
    "#3D2F00": "#FCE157",
    "#DC1546": "#EE395B",
    "#731139": "#D7FD8C",
    "#8B5D9C": "#9578A6",
    "#7516FC": "#EB0EF0",
    "#2A009B": "#B2FBE6",
    "#002E51": "#059F74",
    TEXT: "#E4E9EF",
    NEUTRAL: "#A9B4C0",
    GRID: "#26303B",
    BETTER: "#56B4E9",
    WORSE: "#FF9A5C",
    AMBER: "#E6B422",
    MOST: "#3B6299",
    _MORE: "#8F4F24",
}
"""Color on white -> color on the dark page; figures are built with the former."""
_DASHES: Final = (
    "8px,4px",
    "3px,3px",
    "8px,3px,3px,3px",
    "12px,4px",
    "12px,3px,3px,3px",
    "5px,2px",
    "16px,2px",
    "16px,2px,2px,2px",
    "8px,2px,2px,2px,2px,2px",
    "2px,6px",
    "12px,3px,5px,3px",
)
PRINTED: Final[Mapping[str, str]] = dict(zip(POLICY_COLOURS, _DASHES, strict=True))
"""Color of a line -> its dash in print, pixels drawn and left free; the baseline is solid."""
TYPE_COLOURS: Final = (
    "#44AA99",
    "#DDCC77",
    "#AA4499",
    "#88CCEE",
    "#999933",
    "#CC6677",
    "#6699CC",
    "#BBBBBB",
)
"""Paul Tol's muted palette, its darkest two replaced: GPU types never share a colour with a policy.
"""
JOB_COLOURS: Final = (
    "#66C2A5",
    "#FC8D62",
    "#8DA0CB",
    "#E78AC3",
    "#A6D854",
    "#FFD92F",
    "#B3835B",
    "#9C6FB0",
)
"""ColorBrewer's Set2, its tan and grey replaced: single jobs share no colour with a policy or a GPU
type.
"""
INK: Final = "#1A1A1A"
"""Text on one of the light colours of `JOB_COLOURS` and of GPU types, in light and in dark."""
TEXT_PX: Final = 14
LINE_PX: Final = 2
MAX_NAME_CHARS: Final = 80
"""Maximum length of a name in a figure."""
_MAX_WORD_CHARS: Final = 120
"""Maximum length of a word; longer than any path or hash shown."""
_LONG: Final = re.compile(rf"\S{{{_MAX_WORD_CHARS + 1},}}")
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_TITLE_CHARACTERS: Final = 78
_ROW_CHARACTERS: Final = 24
NARROW_PX: Final = 380
"""Width of a legend on a phone."""


def policy_colours(
    labels: Sequence[str], baseline: str, slots: Sequence[int] = (), *, dark: bool = False
) -> dict[str, str]:
    """Return the colour of every policy.

    Parameters
    ----------
    labels : sequence of str
        All policies of the study.
    baseline : str
        The one that the others are compared with: grey; "" = none is.
    slots : sequence of int
        The slot of each, see `trainyard.study.study`; () = 1, 2, ... for all but the baseline.
    dark : bool
        Of the dark theme.
    """
    if not slots:
        others = [label for label in labels if label != baseline]
        slots = [others.index(label) + 1 if label in others else 1 for label in labels]
    colours = {
        label: POLICY_COLOURS[(slot - 1) % len(POLICY_COLOURS)]
        for label, slot in zip(labels, slots, strict=True)
    }
    if baseline in colours:
        colours[baseline] = BASELINE_COLOUR
    return {label: DARK[colour] if dark else colour for label, colour in colours.items()}


def policy_style(
    labels: Sequence[str], baseline: str, slots: Sequence[int] = ()
) -> dict[str, tuple[str, str]]:
    """Return colour and dash of every policy in figures; parameters as in `policy_colours`.

    On a screen all lines are solid: width, opacity and a name at the line tell them apart.
    """
    colours = policy_colours(labels, baseline, slots)
    return {label: (colour, "solid") for label, colour in colours.items()}


def darken_figure(figure: go.Figure) -> go.Figure:
    """Return a copy of a figure in dark theme colors, for display only."""
    return _plain_figure(_darken_values(figure.to_dict()))


def enlarge_figure(figure: go.Figure, by: float) -> go.Figure:
    """Return a copy of a figure with larger text and lines, for projectors."""
    return _plain_figure(_scale_sizes(figure.to_dict(), by))


def _plain_figure(plain: Any) -> go.Figure:
    """Return a figure with these plain values as its `to_dict`, without Plotly's validation."""
    twin = go.Figure()
    twin.to_dict = lambda: plain
    return twin


def _scale_sizes(part: Any, by: float, of: str = "") -> Any:
    """Return a copy with text sizes, line widths, margins and shifts multiplied by `by`.

    `of` = path of the part within the figure, such as ".layout.font.size".
    """
    if isinstance(part, dict):
        return {name: _scale_sizes(value, by, f"{of}.{name}") for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_scale_sizes(value, by, of) for value in part]
    if isinstance(part, (int, float)) and of.endswith(_SIZES):
        return part * by
    return part


_SIZES: Final = ("font.size", "line.width", "margin.l", "margin.r", "margin.t", "margin.b", "shift")


def _darken_values(part: Any) -> Any:
    """Return a copy of a part of a figure, with the colors in its texts for the dark theme."""
    if isinstance(part, dict):
        # Arrays are long and hold no colors.
        return {
            key: value if key == "bdata" else _darken_values(value) for key, value in part.items()
        }
    if isinstance(part, (list, tuple)):
        return [_darken_values(value) for value in part]
    if not isinstance(part, str):
        return part
    return _COLOUR.sub(lambda match: RECOLOURED[match[0]], part)


def type_style(names: Sequence[str]) -> dict[str, str]:
    """Return the color of each GPU type by its place in the cluster; grey for no GPU."""
    style = {
        name: TYPE_COLOURS[at % len(TYPE_COLOURS)]
        for at, name in enumerate(name for name in names if name)
    }
    return style | {"": NEUTRAL}


def with_opacity(colour: str, share: float) -> str:
    """Return a #RRGGBB colour with an opacity between 0 and 1."""
    return f"{_channels(colour)}{share:g})"


def _channels(colour: str) -> str:
    """Return the beginning of a #RRGGBB color as rgba text: "rgba(r, g, b, "."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, "


RECOLOURED: Final[Mapping[str, str]] = {**DARK} | {
    _channels(light): _channels(dark) for light, dark in {**DARK, PAPER: "#10161D"}.items()
}
"""`DARK`, plus the rgba prefixes of its colors and of the page; plain white stays, as bar text."""
_COLOUR: Final = re.compile("|".join(map(re.escape, RECOLOURED)))
"""Colors in the text of a figure, including markup of direct labels."""


def visible(text: str, most: int = MAX_NAME_CHARS) -> str:
    """Return untrusted text on one line with all characters visible, shortened to `most`.

    Notes
    -----
    Control characters become their pictures (NUL: ␀). Marks that turn the direction of writing, and
    what is no character, become �: they would make a name look like another one, or turn the words
    around it. A name of 10,000 characters within a sentence is shortened too.
    """
    words = _LONG.sub(lambda match: f"{match[0][: _MAX_WORD_CHARS - 1]}…", " ".join(text.split()))
    line = _UNSEEN.sub(lambda match: chr(0x2400 + ord(match[0])) if match[0] < " " else "�", words)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def literal(text: str) -> str:
    """Return untrusted text escaped for Plotly, which interprets HTML, ``$`` and ``%{``."""
    return html.escape(visible(text), quote=False).replace("%{", "%&#123;").replace("$", "&#36;")


def image_config(name: str) -> dict[str, Any]:
    """Return the `config` of `st.plotly_chart`: sharp PNG with this name, no logo or lasso."""
    return {
        "displaylogo": False,
        "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
        "toImageButtonOptions": {"format": "png", "scale": 2, "filename": name},
    }


def wrap_title(title: str) -> tuple[str, int]:
    """Return a title broken into lines of 800 px, and its height in pixels."""
    lines = textwrap.wrap(title, _TITLE_CHARACTERS)
    return "<br>".join(lines), 24 * len(lines)


def figure(
    traces: Sequence[Mapping[str, Any]],
    title: str,
    height: int,
    *,
    legend_px: int = 0,
    **layout: Any,
) -> go.Figure:
    """Return a figure with the shared layout: transparent, title left, legend above.

    Parameters
    ----------
    traces : sequence of mapping
        Properties of the traces, `type` among them; plain mappings, because Plotly then checks
        everything once instead of at every step.
    title : str
        The finding or the question; may be empty.
    height : int, pixels
        Of the data, without title, legend and margins.
    legend_px : int, pixels
        Height of the legend band; 0 = no legend.
    **layout
        More layout properties.
    """
    text, title_px = wrap_title(title)
    top, bottom = 16 + title_px + legend_px, 52
    total = height + top + bottom
    place = {"x": 0, "xanchor": "left", "yanchor": "top", "yref": "container"}
    common: dict[str, Any] = {
        "title": {"text": text, "y": 1 - 8 / total, "font": {"size": 16}, **place},
        "height": total,
        "margin": {"l": 64, "r": 16, "t": top, "b": bottom},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": TEXT_PX, "color": TEXT},
        "showlegend": legend_px > 0,
        "legend": {
            "orientation": "h",
            "y": 1 - (12 + title_px) / total,
            "font": {"size": TEXT_PX},
            "bgcolor": "rgba(0,0,0,0)",
            "tracegroupgap": 0,
            **place,
        },
        "hoverlabel": {"font": {"size": TEXT_PX}},
    }
    lines = {"gridcolor": GRID, "linecolor": GRID, "zeroline": False}
    lines["tickfont"] = {"size": TEXT_PX, "color": NEUTRAL}
    axes = {
        name: lines | value | _axis_title(value)
        for name, value in layout.items()
        if name.startswith(("xaxis", "yaxis"))
    }
    return go.Figure(list(traces), common | layout | axes)


def _axis_title(axis: Mapping[str, Any]) -> dict[str, Any]:
    """Return the title of an axis in the shared font; {} for an axis without a title."""
    font = {"size": TEXT_PX, "color": NEUTRAL}
    return {"title": {"font": font, **axis["title"]}} if "title" in axis else {}


def policy_rows(titles: Sequence[str]) -> dict[str, Any]:
    """Return the vertical axis of a figure with one row per policy, the first at the top."""
    return {
        "tickvals": list(range(len(titles))),
        "ticktext": [_two_lines(title) for title in titles],
        "range": [len(titles) - 0.5, -0.5],
        "automargin": True,
        "showgrid": False,
    }


def _two_lines(title: str) -> str:
    """Return a title as at most two lines of markup, the second cut in the middle if long."""
    first, *rest = textwrap.wrap(title, _ROW_CHARACTERS) or [""]
    second = " ".join(rest)
    if len(second) > _ROW_CHARACTERS:
        second = f"{second[:8]}…{second[-14:]}"
    return "<br>".join(literal(line) for line in (first, second) if line)


def legend_px(labels: Sequence[str], width: int = 700) -> int:
    """Return the estimated height of a horizontal legend at a given width, in pixels."""
    rows, used = 1, 0
    for label in labels:
        entry = 56 + 8 * len(label)
        if used and used + entry > width:
            rows, used = rows + 1, 0
        used += entry
    return 24 * rows if labels else 0


def narrow_legend_px(labels: Sequence[str]) -> int:
    """Return the height of a legend in a narrow window, in pixels.

    Plotly gives all entries the width of the longest.
    """
    per_row = max(int(NARROW_PX / (44 + 6.5 * max(map(len, labels), default=0))), 1)
    return 24 * -(-len(labels) // per_row)


def legend_entry(name: str, mode: str, **look: Any) -> dict[str, Any]:
    """Return an empty trace that adds a name to the legend; `mode` "lines" or "markers"."""
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": mode,
        "name": name,
        "hoverinfo": "skip",
        **look,
    }
