"""A small example of a few jobs, as bars on GPUs: how one policy decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.allocation import INK, JOB_COLOURS
from charts.axes import TimeAxis, duration_text
from charts.theme import GRID, TEXT_PX, figure, literal

_LANE_PX: Final = 21


def example(bars: pd.DataFrame, jobs: pd.DataFrame, rows: Sequence[tuple[str, float]], until_s: float) -> go.Figure:
    """Draw who had which GPUs when; the same job has the same colour whatever the policy.

    Parameters
    ----------
    bars : DataFrame
        `job`, `lane` (lowest, from 0), `lanes` (height), `t0_s`, `t1_s`, `what` (for the label).
    jobs : DataFrame
        `job` and `submit_s`, in the order of their colours.
    rows : sequence of (str, float)
        Name and number of lanes of each node, from below.
    until_s : float, seconds
        Where the time axis ends.
    """
    axis = TimeAxis(0.0, until_s)
    unit_s, _ = axis.unit
    edges = np.cumsum([0.0, *(lanes for _, lanes in rows)])
    traces = [_job(bars[bars["job"] == job], str(job), colour, unit_s) for job, colour in zip(jobs["job"], JOB_COLOURS, strict=False)]
    y = {
        "tickvals": (edges[:-1] + edges[1:]) / 2,
        "ticktext": [literal(name) for name, _ in rows],
        "range": [0, edges[-1]],
        "showgrid": False,
    }
    drawn = figure(traces, "", round(_LANE_PX * edges[-1]) + 22, barmode="overlay", xaxis=axis.layout(), yaxis=y)
    drawn.update_layout(margin={"t": 30}, height=round(_LANE_PX * edges[-1]) + 22 + 30 + 46)
    for edge in edges[1:-1]:
        drawn.add_hline(y=float(edge), line={"color": GRID, "width": 1})
    for job, submit_s in zip(jobs["job"], jobs["submit_s"], strict=True):
        text = f"{literal(str(job))}<br>▾"
        drawn.add_annotation(x=submit_s / unit_s, y=1, yref="paper", yanchor="bottom", text=text, showarrow=False, font={"size": 12})
    return drawn


def _job(mine: pd.DataFrame, job: str, colour: str, unit_s: float) -> dict[str, Any]:
    t0, t1 = mine["t0_s"].to_numpy(np.float64), mine["t1_s"].to_numpy(np.float64)
    height = mine["lanes"].to_numpy(np.float64)
    # The letter stands once, on the largest piece.
    largest = np.arange(len(mine)) == np.argmax((t1 - t0) * np.minimum(height, 2)) if len(mine) else np.zeros(0, bool)
    return {
        "type": "bar",
        "orientation": "h",
        "base": t0 / unit_s,
        "x": (t1 - t0) / unit_s,
        "y": mine["lane"].to_numpy(np.float64) + height / 2,
        "width": height * 0.94,
        "name": literal(job),
        "marker": {"color": colour, "line": {"width": 0}},
        "text": [literal(job) if one else "" for one in largest],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": INK, "size": TEXT_PX},
        "customdata": [f"{literal(what)}, from {duration_text(start)} to {duration_text(end)}" for what, start, end in zip(mine["what"], t0, t1, strict=True)],
        "hovertemplate": f"job {literal(job)}: %{{customdata}}<extra></extra>",
    }
