"""Differences group by group: where each kind of job gains and where it loses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.axes import duration_text, log_duration
from charts.theme import BASELINE_COLOUR, LINE_PX, NARROW_PX, Style, figure, legend_px, literal

Trace = dict[str, Any]
Floats = NDArray[np.float64]


def dumbbell(table: pd.DataFrame, style: Style, baseline: str, title: str = "", axis: str = "mean JCT") -> go.Figure:
    """Draw one value per group and policy: the baseline's mark, joined to each other policy's, with the interval where there is one.

    Parameters
    ----------
    table : DataFrame
        `group` (drawn from top to bottom), `label`, `value`, `low` and `high` in seconds; NaN = no such job, or no interval. One row per group and policy.
    style : mapping
        From `policy_style`.
    baseline : str
        The policy that the others start from.
    title, axis : str
        The finding or the question; what the values are.
    """
    groups = list(dict.fromkeys(table["group"].astype(str)))
    labels = [label for label in style if label in set(table["label"])]
    others = [label for label in labels if label != baseline]
    shifts = dict(zip(others, np.linspace(-0.27, 0.27, len(others)) if len(others) > 1 else [0.0], strict=False))
    found = {label: _column(table, label, groups) for label in labels}
    base = found[baseline]["value"]
    traces = [_joints(label, base, found[label]["value"], style) | {"y": _thrice(len(groups), shifts[label])} for label in others]
    rows = np.arange(len(groups))
    if len(others) > 1:
        traces.append(_begins(base, rows, list(shifts.values())))
    traces += [_marks(label, found[label], groups, style, hollow=label == baseline) | {"y": rows + shifts.get(label, 0.0)} for label in [*others, baseline]]
    every = table[["value", "low", "high"]].to_numpy(np.float64).ravel()
    every = every[np.isfinite(every) & (every > 0)]
    low, high = (float(every.min()) / 1.3, float(every.max()) * 1.3) if len(every) else (60.0, 86_400.0)
    y_axis = {"tickvals": rows, "ticktext": [literal(group) for group in groups], "range": [len(groups) - 0.5, -0.5], "automargin": True}
    x_axis = {**log_duration(low, high), "title": {"text": f"{axis}, logarithmic"}}
    return figure(traces, title, 40 + max(48, 14 * len(others) + 20) * len(groups), legend_px=legend_px(labels, NARROW_PX), xaxis=x_axis, yaxis=y_axis)


def _column(table: pd.DataFrame, label: str, groups: list[str]) -> dict[str, Floats]:
    mine = table[(table["label"] == label).to_numpy()].set_index("group")[["value", "low", "high"]].reindex(groups)
    return {name: mine[name].to_numpy(np.float64) for name in ("value", "low", "high")}


def _thrice(rows: int, shift: float) -> Floats:
    """Return the height of each row for begin and end of its line and the gap behind it."""
    y = np.repeat(np.arange(rows) + shift, 3)
    y[2::3] = np.nan
    return y


def _joints(label: str, begin: Floats, end: Floats, style: Style) -> Trace:
    x, (colour, dash) = np.column_stack((begin, end, np.full(len(begin), np.nan))).ravel(), style[label]
    line = {"color": colour, "dash": dash, "width": LINE_PX}
    return {"type": "scatter", "mode": "lines", "name": literal(label), "line": line, "x": x, "hoverinfo": "skip", "showlegend": False, "legendgroup": label}


def _begins(base: Floats, rows: NDArray[np.int64], shifts: list[float]) -> Trace:
    """Return a tick where each line begins, because the baseline's mark is on the middle one only."""
    y = (rows[:, None] + np.array(shifts)).ravel()
    marker = {"symbol": "line-ns-open", "color": BASELINE_COLOUR, "size": 9, "line": {"width": LINE_PX}}
    return {"type": "scatter", "mode": "markers", "x": np.repeat(base, len(shifts)), "y": y, "marker": marker, "hoverinfo": "skip", "showlegend": False}


def _marks(label: str, of: dict[str, Floats], groups: list[str], style: Style, *, hollow: bool) -> Trace:
    value, colour = of["value"], style[label][0]
    texts = []
    for group, at, low, high in zip(groups, value, of["low"], of["high"], strict=True):
        interval = f" ({duration_text(low)} to {duration_text(high)})" if np.isfinite(low) else ""
        texts.append(f"{literal(group)}: {duration_text(at)}{interval}")
    marks: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": literal(label),
        "legendgroup": label,
        "x": value,
        "marker": {"color": colour, "size": 11, "symbol": "circle-open" if hollow else "circle", "line": {"width": 2, "color": colour}},
        "text": texts,
        "hovertemplate": f"%{{text}}<extra>{literal(label)}</extra>",
    }
    if np.isfinite(of["low"]).any():
        bounds = {"type": "data", "symmetric": False, "array": of["high"] - value, "arrayminus": value - of["low"]}
        marks["error_x"] = bounds | {"color": colour, "thickness": 1.5, "width": 5}
    return marks
