"""Two runs that are one up to an instant: who waits and how busy the GPUs are, with that instant marked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from charts.axes import TimeAxis
from charts.over_time import Frames, busy_row, linked_rows, waiting_row
from charts.theme import NEUTRAL, Style


def parted(frames: Mapping[str, Frames], style: Style, x: TimeAxis, at_s: float, title: str = "") -> go.Figure:
    """Return jobs waiting and GPUs busy of both runs in rows that share one axis, with a line where they part.

    Parameters
    ----------
    frames : mapping
        "queue", "utilisation" and "capacity" -> run -> reduced series, as for `timeline`; the first capacity is drawn. Without GPUs only the queue is.
    style : mapping
        From `policy_style`.
    x : TimeAxis
        The window.
    at_s : float, seconds
        Where they part.
    title : str
        The finding or the question.
    """
    rows = [waiting_row(frames["queue"], style, x)]
    if any((series["total"] > 0).any() for series in frames["utilisation"].values()):
        rows.append(busy_row(frames["utilisation"], style, x, frames["capacity"]))
    drawn = linked_rows(rows, x, title, list(frames["queue"]))
    at = float(x.place(np.array([at_s]))[0])
    drawn.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"color": NEUTRAL, "width": 2, "dash": "dash"})
    return drawn
