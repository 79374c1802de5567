"""Style of policy lines: baseline and highlighted policy strong, all others faint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainyard.views.charts.theme import GRID, NEUTRAL, TEXT, TEXT_PX, Trace, literal, with_opacity

Floats = NDArray[np.float64]
HEIGHT_PX: Final = 382
"""Height of the figures side by side on Compare."""
TOP_PX, BOTTOM_PX = 24, 316
"""Top and bottom of the data of the completion curve, aligned with figures over time."""
LEGEND_PX: Final = 56
"""Height of the legend of a figure without a ledger."""
HIGH_PX, BASE_PX, FAINT_PX = 2.6, 2.0, 1.2
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
        Whether there is no ledger below: then the figure has a legend and values on hover.
    dashes : mapping of str
        Title of a policy -> dash of its line, where two lines have one colour; else solid.
    earlier : frozenset of str
        Policies whose lines are of other settings than the rest.
    """

    colours: Mapping[str, str]
    baseline: str = ""
    high: str = ""
    alone: bool = False
    dashes: Mapping[str, str] = field(default_factory=dict)
    earlier: frozenset[str] = frozenset()

    @property
    def order(self) -> list[str]:
        """Titles from back to front: other policies, the baseline, the highlighted policy."""
        return sorted(self.colours, key=lambda one: (one == self.high, one == self.baseline))

    def line(self, title: str) -> Trace:
        """Return the style of a policy's line: strong if baseline or highlighted, else faint.

        Without a highlighted policy only the baseline is strong. Lines of `earlier` settings keep
        their width but are the palest.
        """
        strong = {self.high: HIGH_PX, self.baseline: BASE_PX}.get(title)
        return {
            "type": "scatter",
            "mode": "lines",
            "name": literal(title),
            "legendgroup": title,
            "opacity": EARLIER if title in self.earlier else FAINT if strong is None else 1.0,
            "line": {
                "color": self.colours[title],
                "width": strong or FAINT_PX,
                "dash": self.dashes.get(title, "solid"),
            },
            "hoverinfo": "y+name" if self.alone else "skip",
            "showlegend": False,
        }

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
        """Return the shared Plotly layout: title, margins, fonts, legend; `more` overrides."""
        above = LEGEND_PX if self.alone else 0
        place = {"x": 0, "xanchor": "left", "yanchor": "top", "yref": "container"}
        head = {"text": title, "y": 1 - 4 / (height + above), "font": {"size": 16}, **place}
        return {
            "title": head if self.alone else {"text": ""},
            # Plotly's default template would only add data.
            "template": {},
            "height": height + above,
            "margin": {"l": left, "r": 10, "t": above, "b": 0, "pad": 0},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 13, "color": NEUTRAL},
            "showlegend": self.alone,
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1,
                "yanchor": "bottom",
                "font": {"size": 13},
                "bgcolor": "rgba(0,0,0,0)",
            },
            "hovermode": "closest" if self.alone else False,
            **more,
        }

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


def points_per_value() -> int:
    """Return the number of points that `smooth` makes of one."""
    return _FINER
