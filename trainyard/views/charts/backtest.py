"""Charts of a backtest: recorded and simulated lines over time."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from trainyard.views.charts.axes import TimeAxis, duration_text, duration_unit
from trainyard.views.charts.theme import (
    NEUTRAL,
    TEXT_PX,
    Trace,
    figure,
    literal,
    narrow_legend_px,
    with_opacity,
)

RECORDED: Final = "Recorded"
_HEIGHT_PX: Final = 230
_WIDTH_PX: Final = 2.2
_NAMED_PX: Final = 18
"""Space above the lines for the label of the vertical line."""


class TwoLines(NamedTuple):
    """Policy of a backtest, the colors of both lines, and the start of the judged part.

    Parameters
    ----------
    policy, colour : str
        Title of the policy, and the color of its line.
    recorded : str
        Color of the recorded schedule.
    judged_s : float, seconds
        Start of the judged part.
    """

    policy: str
    colour: str
    recorded: str
    judged_s: float


def past_waits(medians: pd.DataFrame, about: TwoLines, x: TimeAxis, bin_s: float) -> go.Figure:
    """Draw recorded and simulated median waits as lines through bins, with a band of repeats.

    Parameters
    ----------
    medians : DataFrame
        `from_s`, `jobs`, `recorded_s`, `simulated_s`, and `low_s`, `high_s` over repeats.
    about : TwoLines
        The policy.
    x : TimeAxis
        The time that is drawn.
    bin_s : float, seconds
        Length of a bin.
    """
    middle = medians["from_s"].to_numpy(np.float64) + bin_s / 2
    columns = medians[["recorded_s", "simulated_s", "low_s", "high_s"]]
    most = float(columns.to_numpy(np.float64).max(initial=0.0))
    size, unit = duration_unit(most)
    when = [x.clock.span(at - bin_s / 2, at + bin_s / 2) for at in middle]
    band: list[Trace] = []
    low, high = (medians[name].to_numpy(np.float64) for name in ("low_s", "high_s"))
    if (high > low).any():
        band = [
            _edge(x, middle, low / size),
            _edge(x, middle, high / size)
            | {"fill": "tonexty", "fillcolor": with_opacity(about.colour, 0.2)},
        ]
    lines = [
        _line(x, middle, medians[name].to_numpy(np.float64), (title, colour, size))
        | {
            "text": [
                f"{at}<br>{literal(title)}: {duration_text(float(value))}, {jobs:,} jobs"
                for at, value, jobs in zip(when, medians[name], medians["jobs"], strict=True)
            ]
        }
        for name, title, colour in (
            ("recorded_s", RECORDED, about.recorded),
            ("simulated_s", about.policy, about.colour),
        )
    ]
    y = {"title": {"text": f"median wait, {unit}"}, "rangemode": "tozero"}
    return _backtest_figure([*band, *lines], "Median wait of each 6 hours", about, x, y)


def past_use(use: pd.DataFrame, about: TwoLines, x: TimeAxis, unit: str) -> go.Figure:
    """Draw recorded and simulated use of GPUs or cores as lines through the means of bins.

    Parameters
    ----------
    use : DataFrame
        `from_s`, `to_s`, `recorded`, `simulated`: means.
    about : TwoLines
        The policy.
    x : TimeAxis
        The time that is drawn.
    unit : str
        What is in use: "GPUs" or "cores".
    """
    middle = (use["from_s"].to_numpy(np.float64) + use["to_s"].to_numpy(np.float64)) / 2
    when = [
        x.clock.span(float(a), float(b)) for a, b in zip(use["from_s"], use["to_s"], strict=True)
    ]
    lines = [
        _line(x, middle, use[name].to_numpy(np.float64), (title, colour, 1.0))
        | {
            "text": [
                f"{at}<br>{literal(title)}: {value:,.0f} {unit}"
                for at, value in zip(when, use[name], strict=True)
            ]
        }
        for name, title, colour in (
            ("recorded", RECORDED, about.recorded),
            ("simulated", about.policy, about.colour),
        )
    ]
    y = {"title": {"text": f"{unit} in use"}, "rangemode": "tozero"}
    return _backtest_figure(lines, f"{unit} in use".replace("cores", "Cores"), about, x, y)


def _line(x: TimeAxis, at_s: Any, values: Any, look: tuple[str, str, float]) -> Trace:
    """Return a Plotly line of `values` / size; `look` = (title, color, size of the unit)."""
    title, colour, size = look
    return {
        "type": "scatter",
        "mode": "lines",
        "name": literal(title),
        "x": x.place(at_s),
        "y": values / size,
        "line": {"color": colour, "width": _WIDTH_PX},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _edge(x: TimeAxis, at_s: Any, values: Any) -> Trace:
    """Return an edge of the band over repeats."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x.place(at_s),
        "y": values,
        "line": {"width": 0},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _backtest_figure(
    traces: list[Trace], title: str, about: TwoLines, x: TimeAxis, y: dict[str, Any]
) -> go.Figure:
    """Return a figure of the lines, with a labeled vertical line where judging begins."""
    drawn = figure(
        traces,
        title,
        _HEIGHT_PX,
        legend_px=narrow_legend_px([RECORDED, about.policy]) + _NAMED_PX,
        hovermode="closest",
        xaxis=x.layout(),
        yaxis=y,
    )
    # A filled band would reverse the order of the names.
    drawn.update_layout(legend_traceorder="normal")
    if x.t0_s < about.judged_s < x.t1_s:
        drawn.add_vline(x=about.judged_s, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
        drawn.add_annotation(
            text="judged from here",
            x=about.judged_s,
            y=1,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            font={"size": TEXT_PX, "color": NEUTRAL},
        )
    return drawn
