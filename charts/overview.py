"""The strip above the figures over time: the whole run in small, on which a window is chosen with a horizontal drag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.axes import TimeAxis
from charts.theme import NEUTRAL, Style, faded, figure, literal

_DATA_PX: Final = 56
_BELOW_PX: Final = 44
_ABOVE_PX: Final = 6
_WIDTHLESS: Final = {"shape": "hv", "width": 0, "color": NEUTRAL}
_VEIL: Final = faded(NEUTRAL, 0.35)
_BUTTONS: Final = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d", "select2d", "lasso2d"]


def overview(queue: Mapping[str, pd.DataFrame], busy: pd.DataFrame | None, style: Style, x: TimeAxis, window: tuple[float, float] | None = None) -> go.Figure:
    """Draw jobs waiting as lines and, behind them, GPUs busy as an area; what lies outside of the window is veiled.

    Parameters
    ----------
    queue : mapping of DataFrame
        By policy: reduced queue series, `t_s` and `waiting`.
    busy : DataFrame or None
        Reduced utilisation series of one policy: `t_s` and `total`. It has a scale of its own.
    style : mapping
        From `policy_style`.
    x : TimeAxis
        The whole run.
    window : (float, float) or None, seconds
        What has been chosen.

    Notes
    -----
    Lines without marks only: then the event of a drag carries the box and no points, whatever the length. A drag selects, and nothing zooms: zooming would
    hide what the strip is for.
    """
    traces: list[dict[str, Any]] = []
    if busy is not None:
        traces.append(_line(busy, "total", x) | {"name": "GPUs busy", "yaxis": "y2", "fill": "tozeroy", "fillcolor": faded(NEUTRAL, 0.3), "line": _WIDTHLESS})
    for label, series in queue.items():
        colour, dash = style[label]
        traces.append(_line(series, "waiting", x) | {"name": literal(label), "line": {"shape": "hv", "color": colour, "dash": dash, "width": 1}})
    still: dict[str, Any] = {"fixedrange": True, "showticklabels": False, "showgrid": False, "rangemode": "tozero"}
    layout: dict[str, Any] = {"dragmode": "select", "selectdirection": "h", "hovermode": False, "modebar": {"remove": _BUTTONS}}
    layout |= {"xaxis": x.layout() | {"fixedrange": True}, "yaxis": still, "yaxis2": still | {"overlaying": "y", "side": "right"}}
    drawn = figure(traces, "", _DATA_PX, **layout)
    drawn.update_layout(height=_ABOVE_PX + _DATA_PX + _BELOW_PX, margin={"l": 64, "r": 16, "t": _ABOVE_PX, "b": _BELOW_PX})
    for begin, end in _outside(x, window):
        place = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1, "x0": begin, "x1": end}
        drawn.add_shape(type="rect", fillcolor=_VEIL, line={"width": 0}, **place)
    return drawn


def _line(series: pd.DataFrame, column: str, x: TimeAxis) -> dict[str, Any]:
    y = series[column].to_numpy(np.float32)
    return {"type": "scatter", "mode": "lines", "x": x.place(series["t_s"].to_numpy(np.float64)), "y": y, "hoverinfo": "skip"}


def _outside(x: TimeAxis, window: tuple[float, float] | None) -> list[tuple[float, float]]:
    if window is None:
        return []
    whole = x.place(np.array([x.t0_s, x.t1_s]))
    chosen = x.place(np.array(window))
    return [(float(whole[0]), float(chosen[0])), (float(chosen[1]), float(whole[1]))]
