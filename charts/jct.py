"""How long jobs take: the distribution of completion times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.axes import duration_text, log_duration
from charts.theme import LINE_PX, NARROW_PX, NEUTRAL, TEXT_PX, Style, figure, legend_px, literal

Trace = dict[str, Any]


def jct_cdf(curves: Mapping[str, pd.DataFrame], style: Style, title: str = "", left_out: Mapping[str, int] | None = None) -> go.Figure:
    """Draw the share of jobs done within a time, log x.

    Parameters
    ----------
    curves : mapping of DataFrame
        By policy: `share` from 0 to 1 and `jct_s`, at most 400 points.
    style : mapping
        From `policy_style`.
    title : str
        The finding or the question.
    left_out : mapping or None
        By policy: measured jobs that are not in the curve because they were not completed; written under the figure where there are any.
    """
    traces = [_curve(label, curve["jct_s"].to_numpy(np.float64), curve["share"].to_numpy(np.float64), style) for label, curve in curves.items()]
    times = np.concatenate([trace["x"] for trace in traces]) if traces else np.zeros(0)
    low, high = (float(times.min()), float(times.max())) if len(times) else (60.0, 86_400.0)
    y = {"range": [0, 102], "ticksuffix": " %", "title": {"text": "jobs done within"}, "unifiedhovertitle": {"text": "%{y:.0f} % of jobs within"}}
    drawn = figure(traces, title, 320, legend_px=legend_px(list(curves), NARROW_PX), hovermode="y unified", xaxis=log_duration(low, high), yaxis=y)
    missing = ", ".join(f"{literal(label)} {count:,}" for label, count in (left_out or {}).items() if count)
    if missing:
        _footnote(drawn, f"Not completed, so not in the curve: {missing}")
    return drawn


def _line(label: str, style: Style) -> Trace:
    colour, dash = style[label]
    return {"type": "scatter", "name": literal(label), "mode": "lines", "line": {"shape": "hv", "color": colour, "dash": dash, "width": LINE_PX}}


def _curve(label: str, jct_s: NDArray[np.float64], share: NDArray[np.float64], style: Style) -> Trace:
    return {
        **_line(label, style),
        "x": jct_s,
        "y": (share * 100).astype(np.float32),
        "text": [duration_text(value) for value in jct_s],
        "hovertemplate": f"%{{text}}<extra>{literal(label)}</extra>",
    }


def _footnote(drawn: go.Figure, text: str) -> None:
    place = {"xref": "paper", "x": 1, "xanchor": "right", "yref": "paper", "y": 0, "yanchor": "bottom", "yshift": 4}
    drawn.add_annotation(text=text, showarrow=False, font={"size": TEXT_PX, "color": NEUTRAL}, **place)
