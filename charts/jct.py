"""How long jobs take: the distribution of completion times, changes job by job, and differences group by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.axes import duration_text, log_duration
from charts.theme import LINE_PX, NEUTRAL, TEXT_PX, Style, figure, legend_px, literal

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
    drawn = figure(traces, title, 320, legend_px=legend_px(list(curves)), hovermode="y unified", xaxis=log_duration(low, high), yaxis=y)
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


def change_histogram(changes: Mapping[str, pd.DataFrame], style: Style, title: str = "") -> go.Figure:
    """Draw who wins and who loses against the baseline: jobs by (JCT of the policy / JCT of the baseline), log x, unchanged marked.

    Parameters
    ----------
    changes : mapping of DataFrame
        By policy other than the baseline: `low`, `high` (ratio), `jobs`.
    style : mapping
        From `policy_style`.
    title : str
        The finding or the question.
    """
    traces: list[Trace] = []
    for label, table in changes.items():
        jobs = table["jobs"].to_numpy(np.float32)
        traces.append(
            {
                **_line(label, style),
                "x": np.append(table["low"].to_numpy(np.float64), table["high"].iloc[-1]),
                "y": np.append(jobs, jobs[-1:]),
                "hovertemplate": f"%{{y:,.0f}} jobs at %{{x:.2f}} x<extra>{literal(label)}</extra>",
            }
        )
    marks = {"1/32": 1 / 32, "1/8": 1 / 8, "1/4": 1 / 4, "1/2": 1 / 2, "same": 1, "2 x": 2, "4 x": 4, "8 x": 8, "32 x": 32}
    x = {"type": "log", "tickvals": list(marks.values()), "ticktext": list(marks), "title": {"text": "completion time against the baseline"}}
    y = {"rangemode": "tozero", "title": {"text": "jobs"}}
    drawn = figure(traces, title, 260, legend_px=legend_px(list(changes)) + 24, xaxis=x, yaxis=y)
    drawn.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    for text, anchor, shift in (("← faster", "right", -8), ("slower →", "left", 8)):
        drawn.add_annotation(text=text, x=0, xref="x", xanchor=anchor, xshift=shift, y=1, yref="paper", yanchor="bottom", showarrow=False)
    return drawn


def dumbbell(table: pd.DataFrame, style: Style, baseline: str, title: str = "", axis: str = "mean completion time") -> go.Figure:
    """Draw one value per group and policy: the baseline's mark, joined to each other policy's.

    Parameters
    ----------
    table : DataFrame
        `group` (drawn from top to bottom) and one column per policy, in seconds; NaN = no such job.
    style : mapping
        From `policy_style`.
    baseline : str
        The column that the others start from.
    title, axis : str
        The finding or the question; what the values are.
    """
    groups = list(table["group"].astype(str))
    others = [label for label in table.columns if label not in {"group", baseline}]
    shifts = dict(zip(others, np.linspace(-0.24, 0.24, len(others)) if len(others) > 1 else [0.0], strict=False))
    base = table[baseline].to_numpy(np.float64)
    values = {label: table[label].to_numpy(np.float64) for label in [*others, baseline]}
    traces = [_joints(label, base, values[label], style) | {"y": _thrice(len(groups), shifts[label])} for label in others]
    for label, known in values.items():
        marks = _marks(label, known, groups, style) | {"y": np.arange(len(groups)) + shifts.get(label, 0.0)}
        traces.append(marks | {"marker": {**marks["marker"], "symbol": "circle-open" if label == baseline else "circle"}})
    every = np.concatenate(list(values.values()))
    every = every[np.isfinite(every) & (every > 0)]
    low, high = (float(every.min()) / 1.3, float(every.max()) * 1.3) if len(every) else (60.0, 86_400.0)
    y_axis = {"tickvals": np.arange(len(groups)), "ticktext": [literal(group) for group in groups], "range": [len(groups) - 0.5, -0.5]}
    x_axis = {**log_duration(low, high), "title": {"text": axis}}
    return figure(traces, title, 40 + 48 * len(groups), legend_px=legend_px(list(values)), xaxis=x_axis, yaxis=y_axis)


def _thrice(rows: int, shift: float) -> NDArray[np.float64]:
    """Return the height of each row for begin and end of its line and the gap behind it."""
    y = np.repeat(np.arange(rows) + shift, 3)
    y[2::3] = np.nan
    return y


def _joints(label: str, begin: NDArray[np.float64], end: NDArray[np.float64], style: Style) -> Trace:
    x = np.column_stack((begin, end, np.full(len(begin), np.nan))).ravel()
    return {**_line(label, style), "x": x, "hoverinfo": "skip", "showlegend": False, "legendgroup": label}


def _marks(label: str, values: NDArray[np.float64], groups: list[str], style: Style) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": literal(label),
        "legendgroup": label,
        "x": values,
        "marker": {"color": style[label][0], "size": 11, "line": {"width": 2, "color": style[label][0]}},
        "text": [f"{literal(group)}: {duration_text(value)}" for group, value in zip(groups, values, strict=True)],
        "hovertemplate": f"%{{text}}<extra>{literal(label)}</extra>",
    }
