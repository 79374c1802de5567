"""What is behind the numbers: believed against true sizes of jobs, and cores and memory held and used over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.axes import TimeAxis, duration_text, log_duration
from charts.over_time import Row, linked_rows
from charts.theme import LINE_PX, NEUTRAL, Style, faded, figure, legend_entry, literal

Trace = dict[str, Any]
_MARGIN = 1.2


def predictions(points: pd.DataFrame, colour: str, title: str = "") -> go.Figure:
    """Draw believed over true sizes, one mark per job, both axes logarithmic and alike, with the diagonal and lines at twice and half of it.

    Parameters
    ----------
    points : DataFrame
        `job_id`, `ideal_s` and `believed_s`, at most 1,000 rows.
    colour : str
        Of the policy whose run it was.
    title : str
        The finding or the question.
    """
    true, believed = points["ideal_s"].to_numpy(np.float64), points["believed_s"].to_numpy(np.float64)
    both = np.concatenate((true, believed)) if len(points) else np.array([60.0, 86_400.0])
    low, high = float(both.min()) / _MARGIN, float(both.max()) * _MARGIN
    traces: list[Trace] = [_line(low, high, factor) for factor in (1.0, 2.0, 0.5)]
    told = [
        f"job {literal(str(job))}: believed {duration_text(told)}, true {duration_text(known)}"
        for job, known, told in zip(points["job_id"], true, believed, strict=True)
    ]
    marks = {"color": faded(colour, 0.45), "size": 7, "line": {"width": 0}}
    traces.append({"type": "scatter", "mode": "markers", "name": "jobs", "x": true, "y": believed, "marker": marks, "text": told, "hovertemplate": _TEXT})
    axis = log_duration(low, high)
    x, y = axis | {"title": {"text": "true ideal run time"}}, axis | {"title": {"text": "believed"}}
    return figure(traces, title, 360, legend_px=24, hovermode="closest", xaxis=x, yaxis=y)


def _line(low: float, high: float, factor: float) -> Trace:
    # Drawn to the edge of the figure and no further, or the axes would grow.
    begin, end = max(low, low / factor), min(high, high / factor)
    look = {"color": NEUTRAL, "width": 1, "dash": "solid" if factor == 1 else "dot"}
    name = "as long as it is" if factor == 1 else "twice or half of it"
    shown = {"name": name, "showlegend": factor >= 1, "hoverinfo": "skip", "line": look}
    return {"type": "scatter", "mode": "lines", "x": [begin, end], "y": [begin * factor, end * factor], **shown}


def resources(frames: Mapping[str, pd.DataFrame], style: Style, of: tuple[str, str], x: TimeAxis, title: str = "") -> go.Figure:
    """Draw what jobs hold of a resource and what of it they use, one row per policy.

    Parameters
    ----------
    frames : mapping of DataFrame
        Reduced series by policy: `t_s`, `held_*`, `used_*` and, where it is known, `there_*`.
    style : mapping
        From `policy_style`.
    of : (str, str)
        End of those names, "cpus" or "mem_gb", and the unit.
    x : TimeAxis
        The window.
    title : str
        The finding or the question.
    """
    name, unit = of
    rows = [Row(literal(label), _layers(label, frame, style, of, x), 120, {"rangemode": "tozero", "title": {"text": unit}}) for label, frame in frames.items()]
    entries = ["used", "held", *(["there"] if any(f"there_{name}" in frame for frame in frames.values()) else [])]
    drawn = linked_rows(rows, x, title, entries)
    looks = {"used": {"width": 8, "color": faded(NEUTRAL, 0.5)}, "held": {"width": LINE_PX, "color": NEUTRAL}, "there": _THERE}
    drawn.add_traces([go.Scatter(legend_entry(entry, "lines", line=looks[entry])) for entry in entries])
    return drawn.update_layout(showlegend=True)


def _layers(label: str, frame: pd.DataFrame, style: Style, of: tuple[str, str], x: TimeAxis) -> list[Trace]:
    (name, unit), colour, t = of, style[label][0], x.place(frame["t_s"].to_numpy(np.float64))
    looks: dict[str, Trace] = {
        "used": {"line": {"shape": "hv", "width": 0, "color": colour}, "fill": "tozeroy", "fillcolor": faded(colour, 0.5)},
        "held": {"line": {"shape": "hv", "width": LINE_PX, "color": colour}},
        "there": {"line": {"shape": "hv"} | _THERE, "hoverinfo": "skip"},
    }
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{kind} {literal(label)}",
            "showlegend": False,
            "x": t,
            "hovertemplate": f"%{{y:,.0f}} {unit} {kind}<extra>{literal(label)}</extra>",
        }
        | {"y": frame[f"{kind}_{name}"].to_numpy(np.float32)}
        | look
        for kind, look in looks.items()
        if f"{kind}_{name}" in frame
    ]


_TEXT = "%{text}<extra></extra>"
_THERE: Trace = {"width": 1, "color": NEUTRAL, "dash": "dot"}
