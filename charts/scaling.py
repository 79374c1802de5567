"""How jobs speed up with GPUs: one panel per class of jobs, one line per way to choose the batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.theme import LINE_PX, NEUTRAL, TEXT_PX, figure, legend_entry, literal, narrow_legend_px

ARMS: Final = (("#2A9D8F", "solid", "circle"), ("#AA4499", "dash", "square"), ("#999933", "dashdot", "diamond"), ("#6699CC", "longdash", "triangle-up"))
"""Colour, dash and mark of each way, in the order of the frame; none is a policy's."""
IDEAL: Final = "ideal"
_GAP: Final = 0.1
_PANEL_PX: Final = 190
_GAP_PX: Final = 62
Trace = dict[str, Any]


def speedup_figure(table: pd.DataFrame, title: str = "") -> go.Figure:
    """Draw speed-up over GPUs.

    Parameters
    ----------
    table : DataFrame
        One row per point: `class` (a panel each, two beside each other), `gpus`, `arm` (a line each), `speedup` (against one GPU at the best batch; NaN = the
        job cannot run so, which leaves a gap and a cross at the foot). An arm "ideal" is dotted; without one, speed-up = GPUs is drawn.
    title : str
        The finding or the question.
    """
    classes, arms = (list(dict.fromkeys(map(str, table[column]))) for column in ("class", "arm"))
    rows = max(-(-len(classes) // 2), 1)
    total = _PANEL_PX * rows + _GAP_PX * (rows - 1)
    traces, layout = list[Trace](), dict[str, Any]()
    top = float(np.nanmax(table["speedup"].to_numpy(np.float64), initial=1.0))
    for at, name in enumerate(classes):
        mine, number = table[table["class"].astype(str) == name], "" if at == 0 else str(at + 1)
        own = _panel(mine, arms, top)
        traces += [trace | {"xaxis": f"x{number}", "yaxis": f"y{number}", "showlegend": trace.get("showlegend", True) and at == 0} for trace in own]
        row, column = divmod(at, 2)
        high = 1 - row * (_PANEL_PX + _GAP_PX) / total
        left = column * (0.5 + _GAP / 2)
        place = {"domain": [max(high - _PANEL_PX / total, 0.0), high], "anchor": f"x{number}", "range": [-0.06 * top, 1.08 * top], "nticks": 6}
        layout[f"yaxis{number}"] = place | ({"title": {"text": "speed-up"}} if column == 0 else {})
        last = at + 2 >= len(classes)
        layout[f"xaxis{number}"] = {"domain": [left, left + 0.5 - _GAP / 2], "anchor": f"y{number}", **_ticks(mine["gpus"].to_numpy(), last=last)}
        layout.setdefault("annotations", []).append(_heading(name, left, high))
    traces.append(legend_entry(_IMPOSSIBLE, "markers", marker=_CROSS | {"line": {"color": NEUTRAL, "width": LINE_PX}}))
    names = [*[arm for arm in arms if arm != IDEAL], _IDEAL_NAME, _IMPOSSIBLE]
    return figure(traces, title, total, legend_px=narrow_legend_px(names) + 24, hovermode="x unified", **layout)


_IDEAL_NAME: Final = "as many times as GPUs"
_IMPOSSIBLE: Final = "cannot run so"
_CROSS: Final[Trace] = {"symbol": "x-thin", "size": 7}


def _panel(table: pd.DataFrame, arms: Sequence[str], top: float) -> list[Trace]:
    gpus = np.unique(table["gpus"].to_numpy(np.float64))
    traces = [_ideal(table, gpus)]
    for at, arm in enumerate(arm for arm in arms if arm != IDEAL):
        of = table[table["arm"].astype(str) == arm].sort_values("gpus")
        x, y = of["gpus"].to_numpy(np.float64), of["speedup"].to_numpy(np.float64)
        colour, dash, symbol = ARMS[at % len(ARMS)]
        name = literal(arm)
        line = {"color": colour, "dash": dash, "width": LINE_PX}
        common: Trace = {"type": "scatter", "name": name, "legendgroup": arm, "x": x}
        traces.append(
            common
            | {
                "mode": "lines+markers",
                "y": y,
                "connectgaps": False,
                "line": line,
                "marker": {"color": colour, "symbol": symbol, "size": 7},
                "hovertemplate": f"{name}: %{{y:.2f}} x<extra></extra>",
            }
        )
        if np.isnan(y).any():
            traces.append(_impossible(common, x[np.isnan(y)], colour, -0.03 * top))
    return traces


def _ideal(table: pd.DataFrame, gpus: NDArray[np.float64]) -> Trace:
    given = table[table["arm"].astype(str) == IDEAL].sort_values("gpus")
    x, y = (gpus, gpus) if given.empty else (given["gpus"].to_numpy(np.float64), given["speedup"].to_numpy(np.float64))
    line = {"color": NEUTRAL, "dash": "dot", "width": LINE_PX / 2}
    return {"type": "scatter", "name": _IDEAL_NAME, "legendgroup": IDEAL, "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip"}


def _impossible(common: Trace, x: NDArray[np.float64], colour: str, foot: float) -> Trace:
    marks = _CROSS | {"color": colour, "line": {"color": colour, "width": LINE_PX}}
    text = f"{common['name']}: {_IMPOSSIBLE}<extra></extra>"
    return common | {"mode": "markers", "x": x, "y": np.full(len(x), foot), "marker": marks, "showlegend": False, "hovertemplate": text}


def _ticks(gpus: NDArray[Any], *, last: bool) -> dict[str, Any]:
    low, high = float(np.min(gpus, initial=1)), float(np.max(gpus, initial=1))
    title = {"title": {"text": "GPUs"}} if last else {}
    return {"range": [low - 0.4, high + 0.4], "dtick": 1 if high <= 12 else None, "unifiedhovertitle": {"text": "%{x} GPUs"}, **title}


def _heading(name: str, left: float, high: float) -> dict[str, Any]:
    place = {"xref": "paper", "x": left, "xanchor": "left", "yref": "paper", "y": high, "yanchor": "bottom", "yshift": 4}
    return {"text": f"<b>{literal(name)}</b>", "showarrow": False, "font": {"size": TEXT_PX}, **place}
