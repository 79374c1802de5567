"""The curve of a lesson: one amount over what is varied, from zero, once as it was first and once as it was changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.axes import TimeAxis, duration_text
from charts.theme import LINE_PX, Style, figure, legend_px, literal

_HEIGHT_PX: Final = 380


def lesson_curve(tables: Mapping[str, pd.DataFrame], style: Style, axis: str, amount: str, title: str = "") -> go.Figure:
    """Draw a time in seconds over an axis, from zero.

    Parameters
    ----------
    tables : mapping of DataFrame
        By run, the first one first, "" if there is only one: `value` (of the axis), `policy`, `number` (seconds; NaN = not to be had).
    style : mapping
        From `policy_style`. A policy keeps its colour in every run; later runs are dotted, with open marks.
    axis, amount, title : str
        What is varied, with its unit; what is drawn; the question.
    """
    highest = max((float(np.nanmax(table["number"].to_numpy(np.float64), initial=0.0)) for table in tables.values()), default=0.0)
    unit_s, unit = TimeAxis(0.0, highest or 1.0).unit
    traces = [
        _line(of, f"{policy} · {run}" if run else policy, style[policy], changed=at > 0) | {"y": of["number"].to_numpy(np.float64) / unit_s}
        for at, (run, table) in enumerate(tables.items())
        for policy, of in ((str(name), rows) for name, rows in table.groupby("policy", sort=False))
    ]
    values = np.unique(np.concatenate([table["value"].to_numpy(np.float64) for table in tables.values()]))
    x = {"title": {"text": axis}, "tickvals": values, "ticktext": [f"{value:g}" for value in values]}
    y = {"title": {"text": f"{amount}, {unit}"}, "range": [0, 1.06 * (highest or 1.0) / unit_s]}
    names = [str(trace["name"]) for trace in traces]
    return figure(traces, title, _HEIGHT_PX, legend_px=legend_px(names) if len(names) > 1 else 0, hovermode="x unified", xaxis=x, yaxis=y)


def _line(of: pd.DataFrame, name: str, look: tuple[str, str], *, changed: bool) -> dict[str, Any]:
    colour, dash = look
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": literal(name),
        "x": of["value"].to_numpy(np.float64),
        "connectgaps": False,
        "line": {"color": colour, "dash": "dot" if changed else dash, "width": LINE_PX + 1},
        "marker": {"color": colour, "size": 10, "symbol": "circle-open" if changed else "circle", "line": {"width": 2, "color": colour}},
        "text": [duration_text(value) if np.isfinite(value) else "" for value in of["number"].to_numpy(np.float64)],
        "hovertemplate": f"%{{text}}<extra>{literal(name)}</extra>",
    }
