"""Style of policy lines: baseline and highlighted policy strong, all others faint, all named."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from trainyard.views.charts.theme import GRID, NEUTRAL, TEXT, TEXT_PX, Trace, literal, with_opacity

Floats = NDArray[np.float64]
HEIGHT_PX: Final = 382
"""Height of the figures side by side on Compare."""
TOP_PX, BOTTOM_PX = 24, 316
"""Top and bottom of the data of the completion curve, aligned with figures over time."""
TITLE_PX: Final = 28
"""Height of the title of a figure without a ledger."""
NAMES_TOP_PX: Final = 30
"""Top of the names of lines, below titles and the button that saves a figure."""
NAMES_PX: Final = 118
"""Width to the right of the data, with the names of the lines."""
MAX_LINES: Final = 12
"""Most lines in one figure: one for each color."""
MAX_BUSY: Final = 6
"""Most policies that are all drawn in the row of GPUs busy."""
PITCH_PX: Final = 18
"""Distance of two names below each other; their boxes are 17 px high."""
_APART_PX: Final = 4
"""Distance of a line's end from all others from which it is joined to its name."""
_NAME_CHARS: Final = 14
"""Maximum length of a name, also with a note."""
HIGH_PX, BASE_PX, FAINT_PX = 2.6, 2.0, 1.2
DOTTED: Final = "1.5px,4px"
"""Dash of results before a change."""
FAINT: Final = 0.55
"""Opacity of all lines but the baseline and the highlighted one."""
EARLIER: Final = 0.25
"""Opacity of lines of earlier settings."""
AREA: Final = 0.14
"""Opacity of the area between these two."""
BAND: Final = 0.22
"""Opacity of the band between the mean and the maximum of a line."""
_FINER: Final = 2
"""Points of a line per bin: a bin is 8 pixels wide."""


@dataclass(frozen=True)
class Look:
    """Style of the policies in one figure.

    Parameters
    ----------
    colours : mapping of str
        Title of a policy -> its colour, in the order of drawing.
    baseline, high : str
        Titles of the policies that are drawn strong; "" = none.
    alone : bool
        Whether there is no ledger below: then the figure has a title and values on hover.
    dashes : mapping of str
        Title of a policy -> dash of its line, where two lines have one colour; else solid.
    earlier : frozenset of str
        Policies whose lines are of other settings than the rest.
    before : mapping of str
        Name of a dotted line -> title of the policy, whose result before a change it shows.
    more : int
        Number of policies that only the table shows.
    scale : float
        Factor on the size of text, for which names are placed.
    source : str
        Trace and cluster, written below a saved or copied picture; "" = not known.
    """

    colours: Mapping[str, str]
    baseline: str = ""
    high: str = ""
    alone: bool = False
    dashes: Mapping[str, str] = field(default_factory=dict)
    earlier: frozenset[str] = frozenset()
    before: Mapping[str, str] = field(default_factory=dict)
    more: int = 0
    scale: float = 1.0
    source: str = ""

    @property
    def order(self) -> list[str]:
        """Titles from back to front: other policies, the baseline, the highlighted policy."""
        return sorted(self.colours, key=lambda one: (one == self.high, one == self.baseline))

    @property
    def more_note(self) -> str:
        """Text below the names, about policies that are not drawn; "" = all are."""
        return f"{self.more} more in the table" if self.more else ""

    def line(self, title: str, row: str) -> Trace:
        """Return the style of a policy's line: strong if baseline or highlighted, else faint.

        Without a highlighted policy only the baseline is strong. Lines of `earlier` settings keep
        their width but are the palest. The id is of the policy and `row`, so that a line keeps its
        element in the page while others come and go.
        """
        dotted = BASE_PX if title in self.before else None
        width = {self.high: HIGH_PX, self.baseline: BASE_PX}.get(title, dotted)
        return {
            "type": "scatter",
            "mode": "lines",
            "name": literal(title),
            "legendgroup": title,
            "uid": f"{row}-{crc32(title.encode('utf-8', 'replace')):x}",
            "opacity": EARLIER if title in self.earlier else FAINT if width is None else 1.0,
            "line": {
                "color": self.colours[title],
                "width": width or FAINT_PX,
                "dash": self._dash(title),
            },
            "hoverinfo": "y+name" if self.alone else "skip",
            "showlegend": False,
        }

    def _dash(self, title: str) -> str:
        """Return the dash of a line; dotted = the result before a change."""
        return DOTTED if title in self.before else self.dashes.get(title, "solid")

    def area(self) -> Trace:
        """Return the style of the filled area between the two strong lines."""
        return self.band(self.high, AREA)

    def band(self, title: str, opacity: float = BAND) -> Trace:
        """Return the style of the edges of an area in a policy's color."""
        return {
            "type": "scatter",
            "mode": "lines",
            "line": {"width": 0},
            "fillcolor": with_opacity(self.colours[title], opacity),
            "hoverinfo": "skip",
            "showlegend": False,
        }

    def axis(self, **more: Any) -> dict[str, Any]:
        """Return the common properties of axes."""
        return {
            "automargin": False,
            "fixedrange": True,
            "gridcolor": GRID,
            "linecolor": GRID,
            "zeroline": False,
            "ticks": "",
            "tickfont": {"size": 13, "color": NEUTRAL},
            **more,
        }

    def layout(self, height: int, left: int, title: str, **more: Any) -> dict[str, Any]:
        """Return the shared Plotly layout: title, margins, fonts; `more` overrides."""
        above = TITLE_PX if self.alone else 0
        place = {"x": 0, "xanchor": "left", "yanchor": "top", "yref": "container"}
        head = {"text": title, "y": 1 - 4 / (height + above), "font": {"size": 16}, **place}
        return {
            "title": head if self.alone else {"text": ""},
            "meta": {"source": literal(self.source)},
            # Plotly's default template would only add data.
            "template": {},
            "height": height + above,
            "margin": {"l": left, "r": NAMES_PX, "t": above, "b": 0, "pad": 0},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 13, "color": NEUTRAL},
            "showlegend": False,
            "hovermode": "closest" if self.alone else False,
            **more,
        }

    def names(
        self,
        ends_px: Mapping[str, float],
        row_px: tuple[float, float],
        height: int,
        notes: Mapping[str, str] = MappingProxyType({}),
        last: str = "",
    ) -> tuple[list[Trace], list[Trace]]:
        """Return annotations and shapes that name lines to the right of their ends.

        Parameters
        ----------
        ends_px : mapping of float
            Title of a policy -> height of its line's end, from the top of the figure.
        row_px : (float, float)
            Top and bottom of the names.
        height : int
            Height of the figure in pixels, without title.
        notes : mapping of str
            Title of a policy -> text after its name.
        last : str
            Text below all names, of no line; "" = none.
        """
        titles = sorted(ends_px, key=ends_px.__getitem__)
        shorts = short_names(titles)
        ends = [ends_px[title] for title in titles] + [row_px[1]] * bool(last)
        places = spread_names(ends, *row_px, self.scale)
        annotations, shapes = [], []
        if last:
            annotations.append(_text_annotation(literal(last), 8, places.pop(), height, NEUTRAL))
        for title, place in zip(titles, places, strict=True):
            colour, is_strong = self.colours[title], title in (self.baseline, self.high)
            text = literal(_with_note(shorts[title], notes.get(title, "")))
            text = f"<b>{text}</b>" if is_strong else text
            annotations.append(
                _text_annotation(text, 24, place, height, colour)
                | {"captureevents": True, "name": title}
            )
            width = 3 if is_strong else 2
            sample = _line_shape(title, colour, width, (10, 22), (place, place), height)
            sample["line"]["dash"] = self._dash(title)
            shapes.append(sample)
            end = ends_px[title]
            if all(abs(end - other) >= _APART_PX for one, other in ends_px.items() if one != title):
                shapes.append(_line_shape(title, colour, 1, (1, 9), (end, place), height))
        return annotations, shapes

    def title(self, text: str, y: float) -> dict[str, Any]:
        """Return the annotation of a row's title: markup at a height of 0 to 1 in the figure."""
        return {
            "text": text,
            "showarrow": False,
            "font": {"size": TEXT_PX, "color": TEXT},
            "xref": "paper",
            "yref": "paper",
            "x": 0,
            "y": y,
            "xanchor": "left",
            "xshift": -40,
            "yanchor": "bottom",
            "yshift": 2,
        }


def short_names(titles: Sequence[str]) -> dict[str, str]:
    """Return title -> short name for the end of a line, different for each policy.

    Brackets and the second of two words are left out ("LAS (Tiresias)", "EASY backfilling");
    longer names are cut at the end, or in the middle if they only differ there.
    """
    names = {}
    for title in titles:
        name = title.split(" (", maxsplit=1)[0]
        words = name.split(" ")
        name = words[0] if len(name) > _NAME_CHARS and len(words) == 2 else name
        names[title] = name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"
    counts = Counter(names.values())
    return {
        title: name if counts[name] == 1 else _cut_middle(title) for title, name in names.items()
    }


def _cut_middle(title: str) -> str:
    """Return a title without its middle if it is too long for a name."""
    half = _NAME_CHARS // 2
    return title if len(title) <= _NAME_CHARS else f"{title[: half - 1]}…{title[-half:]}"


def _with_note(name: str, note: str) -> str:
    """Return a name and the note after it, the name cut to leave room."""
    room = _NAME_CHARS - len(note) - 1
    if note and len(name) > room:
        name = f"{name[: max(room, 2) - 1]}…"
    return f"{name} {note}".strip()


def spread_names(
    ends_px: Sequence[float], top: float, bottom: float, scale: float = 1.0
) -> list[float]:
    """Return heights for names of lines, as near to their ends as possible without overlap.

    The order stays. Least squares, by isotonic regression of the heights without the distances.

    Parameters
    ----------
    ends_px : sequence of float
        Heights of the ends from the top, ascending.
    top, bottom : float, pixels
        Range of the names; they exceed it if they are too many.
    scale : float
        Factor on the size of text.
    """
    pitch = scale * PITCH_PX
    steps = pitch * np.arange(len(ends_px))
    free = _nearest_ascending(np.asarray(ends_px, np.float64) - steps)
    return list(np.clip(free, top, max(bottom - pitch * (len(ends_px) - 1), top)) + steps)


def _nearest_ascending(values: Floats) -> list[float]:
    """Return the ascending numbers nearest to `values` in least squares.

    Neighbors in the wrong order are replaced by their mean (pool adjacent violators).
    """
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, number = pools.pop()
            mean = (before * number + mean * count) / (number + count)
            count += number
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


def _text_annotation(text: str, left_px: float, y_px: float, height: int, colour: str) -> Trace:
    """Return markup to the right of the data as a Plotly annotation, `left_px` from there."""
    return {
        "text": text,
        "showarrow": False,
        "xref": "paper",
        "x": 1,
        "xanchor": "left",
        "xshift": left_px,
        "yanchor": "middle",
        "yref": "paper",
        "y": 1 - y_px / height,
        "font": {"size": 13, "color": colour},
    }


def _line_shape(
    title: str,
    colour: str,
    width: float,
    x_px: tuple[float, float],
    y_px: tuple[float, float],
    height: int,
) -> Trace:
    """Return a line to the right of the data as a Plotly shape, in pixels from there."""
    return {
        "type": "line",
        "name": title,
        "xref": "paper",
        "xsizemode": "pixel",
        "xanchor": 1,
        "x0": x_px[0],
        "x1": x_px[1],
        "yref": "paper",
        "y0": 1 - y_px[0] / height,
        "y1": 1 - y_px[1] / height,
        "line": {"color": colour, "width": width},
    }


def smooth(values: Floats) -> Floats:
    """Return a monotone cubic curve through equally spaced values, two points per step.

    Fewer than two values are returned unchanged.

    Notes
    -----
    Cubic between neighbours, with the harmonic mean of both slopes as the slope at a point, 0 where
    they have other signs (Fritsch and Carlson 1980): so it never leaves the range of two
    neighbours. NaN where one of them is NaN.
    """
    if len(values) < 2:
        return values
    slopes = np.diff(values)
    left, right = slopes[:-1], slopes[1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        inner = np.where(left * right > 0, 2 * left * right / (left + right), 0.0)
    tangents = np.concatenate(([0.0], inner, [0.0]))
    share = np.arange(_FINER) / _FINER
    first, last = values[:-1, None], values[1:, None]
    begin, end = tangents[:-1, None], tangents[1:, None]
    curve = (
        (2 * share**3 - 3 * share**2 + 1) * first
        + (share**3 - 2 * share**2 + share) * begin
        + (3 * share**2 - 2 * share**3) * last
        + (share**3 - share**2) * end
    )
    # NaN times 0 is NaN: a point itself stays what it is, also before an end.
    curve[:, 0] = values[:-1]
    return np.append(curve.ravel(), values[-1])


def round_to_pixels(values: Floats) -> list[float]:
    """Return values in steps of at most 1/500 of the largest: less than a pixel, and short JSON."""
    largest = float(np.nanmax(np.abs(values), initial=0.0))
    decimals = math.ceil(math.log10(500 / largest)) if largest else 0
    # Hover texts show whole numbers.
    rounded: list[float] = np.round(values, max(decimals, 0)).tolist()
    return rounded


def significant(values: Floats, digits: int) -> list[float]:
    """Return values rounded to a number of significant digits, for short JSON."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


def points_per_value() -> int:
    """Return the number of points that `smooth` makes of one."""
    return _FINER
