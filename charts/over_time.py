"""Everything over time in one figure: rows above each other that share one x axis, so zoom and crosshair are common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.axes import TimeAxis, duration_text
from charts.theme import LINE_PX, NEUTRAL, TEXT_PX, Style, faded, figure, legend_px, literal

MOST_BANDS: Final = 3
"""Bands of more lines than that hide each other."""
_GAP_PX: Final = 40
Frames = Mapping[str, pd.DataFrame]
Trace = dict[str, Any]


@dataclass
class Row:
    """One row of the figure.

    Parameters
    ----------
    title : str
        Above the row.
    traces : list of dict
        Properties of lines; their axes are set by `linked_rows`.
    height : int, pixels
        Of the data.
    axis : dict
        Properties of the y axis.
    legend : sequence of str
        Names of a legend of its own, at the right above the row; empty = none.
    """

    title: str
    traces: list[Trace]
    height: int = 170
    axis: dict[str, Any] = field(default_factory=dict)
    legend: Sequence[str] = ()


def waiting_row(queue: Frames, style: Style, x: TimeAxis, *, legend: bool = True) -> Row:
    """Return the row "jobs waiting", from reduced queue series by policy."""
    return _lines("Jobs waiting", {label: (series, "waiting") for label, series in queue.items()}, style, x, (legend, "%{y:,.0f} waiting"))


def busy_row(busy: Frames, style: Style, x: TimeAxis, capacity: Mapping[str, pd.DataFrame] | None = None) -> Row:
    """Return the row "GPUs busy", from reduced utilisation series by policy; the capacity of the first policy is drawn above them."""
    row = _lines("GPUs busy", {label: (series, "total") for label, series in busy.items()}, style, x, (False, "%{y:,.0f} GPUs"))
    for series in list((capacity or {}).values())[:1]:
        row.traces.append(_capacity(series, "total", x, 1.0))
    return row


def fragmentation_row(fragmented: Frames, style: Style, x: TimeAxis) -> Row:
    """Return the row of GPUs that are free on partly used nodes, from reduced fragmentation series by policy."""
    lines = {label: (series, "fragmented") for label, series in fragmented.items()}
    return _lines("GPUs free on partly used nodes", lines, style, x, (False, "%{y:,.0f} fragmented"))


def type_row(label: str, busy: pd.DataFrame, types: Mapping[str, str], x: TimeAxis, capacity: pd.DataFrame | None = None) -> Row:
    """Return the utilisation of one policy, stacked by GPU type.

    Parameters
    ----------
    label : str
        The policy.
    busy : DataFrame
        Reduced utilisation series: GPUs per type.
    types : mapping
        GPU type -> colour, in the order of the stack.
    x : TimeAxis
        The window.
    capacity : DataFrame or None
        Reduced capacity series. 100 % is its greatest value, so that an outage shows as a lower ceiling and never as a higher utilisation. Without it
        GPUs are shown instead of per cent.
    """
    full = float(capacity["total"].max()) if capacity is not None else 0.0
    scale, unit = (100.0 / full, " %") if full else (1.0, " GPUs")
    traces = [
        {
            **_step(busy, name, x, scale),
            "name": literal(name),
            "legendgroup": f"type {name}",
            "legend": "legend2",
            "stackgroup": label,
            "line": {"shape": "hv", "width": 0.5, "color": colour},
            "fillcolor": faded(colour, 0.75),
            "hovertemplate": f"{literal(name)}: %{{y:,.1f}}{unit}<extra>{literal(label)}</extra>",
        }
        for name, colour in types.items()
        if name in busy
    ]
    axis: dict[str, Any] = {"rangemode": "tozero"}
    if capacity is not None and full:
        traces.append(_capacity(capacity, "total", x, scale))
        axis = {"range": [0, 104], "tickvals": [0, 50, 100], "ticktext": ["0 %", "50 %", "100 %"]}
    return Row(literal(label), traces, 96, axis, [literal(name) for name in types if name in busy])


def _lines(title: str, lines: Mapping[str, tuple[pd.DataFrame, str]], style: Style, x: TimeAxis, look: tuple[bool, str]) -> Row:
    legend, template = look
    traces: list[Trace] = []
    reduced = [(series["t_s"].iloc[1] - series["t_s"].iloc[0]) for series, column in lines.values() if _is_reduced(series, column)]
    if reduced and len(lines) <= MOST_BANDS:
        for label, (series, column) in lines.items():
            traces += _band(series, column, x, (label, style[label][0]))
    for label, (series, column) in lines.items():
        colour, dash = style[label]
        traces.append(
            {
                **_step(series, column, x),
                "name": literal(label),
                "legendgroup": label,
                "showlegend": legend,
                "mode": "lines",
                "line": {"shape": "hv", "color": colour, "dash": dash, "width": LINE_PX},
                "hovertemplate": f"{template}<extra>{literal(label)}</extra>",
            }
        )
    if reduced and legend:
        title += f" · each point = {duration_text(max(reduced))}, mean" + (", band = least to most" if len(lines) <= MOST_BANDS else "")
    return Row(title, traces, axis={"rangemode": "tozero"})


def _is_reduced(series: pd.DataFrame, column: str) -> bool:
    return f"{column}_low" in series and bool((series[f"{column}_low"] != series[f"{column}_high"]).any())


def _step(series: pd.DataFrame, column: str, x: TimeAxis, scale: float = 1.0) -> Trace:
    return {"type": "scatter", "x": x.place(series["t_s"].to_numpy(np.float64)), "y": (series[column].to_numpy(np.float64) * scale).astype(np.float32)}


def _band(series: pd.DataFrame, column: str, x: TimeAxis, of: tuple[str, str]) -> list[Trace]:
    label, colour = of
    common: Trace = {
        "name": literal(label),
        "legendgroup": label,
        "showlegend": False,
        "hoverinfo": "skip",
        "mode": "lines",
        "line": {"shape": "hv", "width": 0, "color": colour},
    }
    low, high = (_step(series, f"{column}_{edge}", x) | common for edge in ("low", "high"))
    return [low, high | {"fill": "tonexty", "fillcolor": faded(colour, 0.18)}]


def _capacity(series: pd.DataFrame, column: str, x: TimeAxis, scale: float) -> Trace:
    line = {"shape": "hv", "color": NEUTRAL, "width": 1, "dash": "dot"}
    return {**_step(series, column, x, scale), "name": "capacity", "showlegend": False, "hoverinfo": "skip", "mode": "lines", "line": line}


def linked_rows(rows: Sequence[Row], x: TimeAxis, title: str, legend: Sequence[str] = ()) -> go.Figure:
    """Put rows above each other on one x axis.

    Parameters
    ----------
    rows : sequence of Row
        From top to bottom, at least one.
    x : TimeAxis
        The window, which becomes the range of the axis.
    title : str
        The finding or the question.
    legend : sequence of str
        The names in the legend above the first row.

    Returns
    -------
    Figure
        All traces are on the axis "x", which is drawn under the lowest row; `hoversubplots` gives one label for all rows.
    """
    total = sum(row.height for row in rows) + _GAP_PX * (len(rows) - 1)
    top, placed, layout = float(total), list[Trace](), dict[str, Any]()
    for at, row in enumerate(rows, 1):
        number = "" if at == 1 else str(at)
        layout[f"yaxis{number}"] = {"domain": [max(top - row.height, 0.0) / total, top / total], "anchor": "x", "nticks": 5, **row.axis}
        placed += [{**trace, "xaxis": "x", "yaxis": f"y{number}"} for trace in _once(row, named=bool(layout.get("legend2")))]
        layout.setdefault("annotations", []).append(_note(row.title, top / total))
        if row.legend:
            layout.setdefault("legend2", _side_legend(top / total))
        top -= row.height + _GAP_PX
    axis = {"anchor": "y" if len(rows) == 1 else f"y{len(rows)}", **x.layout()}
    return figure(placed, title, total, legend_px=legend_px(legend) + 24, hovermode="x unified", hoversubplots="axis", xaxis=axis, **layout)


def _once(row: Row, *, named: bool) -> list[Trace]:
    """Return the traces of a row, without their legend entries if an earlier row has named the same ones already."""
    return [trace | {"showlegend": not named} if trace["name"] in row.legend else trace for trace in row.traces]


def _note(text: str, top: float) -> dict[str, Any]:
    place = {"xref": "paper", "x": 0, "xanchor": "left", "yref": "paper", "y": top, "yanchor": "bottom", "yshift": 2}
    return {"text": f"<b>{text}</b>", "showarrow": False, "font": {"size": TEXT_PX}, **place}


def _side_legend(top: float) -> dict[str, Any]:
    place = {"x": 1, "xanchor": "right", "y": top, "yanchor": "bottom", "yref": "paper"}
    return {"orientation": "h", "bgcolor": "rgba(0,0,0,0)", "font": {"size": TEXT_PX}, **place}


def timeline(queue: Frames, busy: Frames, looks: tuple[Style, Mapping[str, str]], x: TimeAxis, *, capacity: Frames | None = None, title: str = "") -> go.Figure:
    """Return the figure of Compare: jobs waiting, GPUs busy, and one row per policy with its utilisation stacked by GPU type.

    Parameters
    ----------
    queue, busy : mapping of DataFrame
        Reduced series by policy: `t_s`, `waiting` and its `_low` and `_high`; `t_s`, `total` and one column per GPU type. No `busy` = no GPUs.
    looks : (policy style, type style)
        From `policy_style` and `type_style`.
    x : TimeAxis
        The window.
    capacity : mapping of DataFrame or None
        Reduced capacity series by policy: `t_s`, `total`. Failures may differ with the length of a run, so each policy has its own.
    title : str
        The finding or the question.
    """
    style, types = looks
    shown = {name: colour for name, colour in types.items() if name}
    rows = [waiting_row(queue, style, x), *([busy_row(busy, style, x, capacity)] if busy else [])]
    rows += [type_row(label, series, shown, x, (capacity or {}).get(label)) for label, series in busy.items()]
    if len(rows) > 2:
        rows[2].title = f"By GPU type · {rows[2].title}"
    return linked_rows(rows, x, title, list(queue))
