"""Linked figures over time: rows on one shared time axis, with common zoom and crosshair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from trainyard.views.charts.axes import TimeAxis, duration_text
from trainyard.views.charts.theme import (
    LINE_PX,
    NARROW_PX,
    NEUTRAL,
    TEXT_PX,
    Style,
    Trace,
    figure,
    legend_px,
    literal,
    narrow_legend_px,
    with_opacity,
)

Frames = Mapping[str, pd.DataFrame]


MAX_BANDS: Final = 3
"""Number of lines above which bands hide each other."""


_GAP_PX: Final = 40


class GpuState(NamedTuple):
    """A state of GPUs: column, legend name, color with strength, hatching and meaning."""

    column: str
    name: str
    fill: str
    hatch: str
    meaning: str


STATES: Final = (
    GpuState("busy", "working", with_opacity("#6FB5AE", 0.85), "", "held, job makes progress"),
    GpuState(
        "paused",
        "pauses",
        with_opacity("#A47FC0", 0.85),
        "x",
        "held without progress: lost to starts, restarts and changes of size",
    ),
    GpuState(
        "fragmented",
        "fragmented",
        with_opacity("#E3B76B", 0.85),
        "/",
        "free on a node of which other GPUs are held",
    ),
    GpuState("idle", "idle", with_opacity(NEUTRAL, 0.18), "", "on a node that is wholly free"),
    GpuState("down", "down", with_opacity(NEUTRAL, 0.7), "\\", "in an outage, or not there yet"),
)
"""From bottom to top of the stack; hatched as well, in colors used nowhere else."""


@dataclass
class LinkedRow:
    """One row of a linked figure.

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
        Names of a legend of its own, between the title and the row; empty = none. Rows that share
        names share the first one's.
    """

    title: str
    traces: list[Trace]
    height: int = 170
    axis: dict[str, Any] = field(default_factory=dict)
    legend: Sequence[str] = ()


def waiting_row(queue: Frames, style: Style, x: TimeAxis) -> LinkedRow:
    """Return the row "Jobs waiting" with a step line per policy, from reduced queue series."""
    return _lines(
        "Jobs waiting",
        {label: (series, "waiting") for label, series in queue.items()},
        style,
        x,
        (True, "%{y:,.0f} waiting"),
    )


def busy_row(
    busy: Frames, style: Style, x: TimeAxis, capacity: Mapping[str, pd.DataFrame] | None = None
) -> LinkedRow:
    """Return the row "GPUs busy" with a step line per policy, from utilization series.

    The dotted line is the capacity of the first policy in `capacity`, if given.
    """
    row = _lines(
        "GPUs busy",
        {label: (series, "total") for label, series in busy.items()},
        style,
        x,
        (False, "%{y:,.0f} GPUs"),
    )
    for series in list((capacity or {}).values())[:1]:
        row.traces.append(_capacity(series, "total", x, 1.0))
    return row


def state_row(label: str, states: pd.DataFrame, x: TimeAxis) -> LinkedRow:
    """Return the row of GPUs by state under one policy, as stacked steps.

    States that do not occur are left out.

    The frame has `t_s` and a column per state of `STATES`.
    """
    states_present = [state for state in STATES if (states[state.column] > 0).any()]
    traces = [
        {
            **_step(states, state.column, x),
            "name": state.name,
            "legend": "legend2",
            "stackgroup": "states",
            "line": {"shape": "hv", "width": 0, "color": NEUTRAL},
            "fillcolor": state.fill,
            "hovertemplate": f"%{{y:,.0f}} {state.name}<extra>{literal(label)}</extra>",
            **(
                {
                    "fillpattern": {
                        "shape": state.hatch,
                        "fgcolor": NEUTRAL,
                        "bgcolor": state.fill,
                        "size": 6,
                        "solidity": 0.2,
                    }
                }
                if state.hatch
                else {}
            ),
        }
        for state in states_present
    ]
    return LinkedRow(
        f"GPUs under {literal(label)}",
        traces,
        axis={"rangemode": "tozero"},
        legend=[state.name for state in states_present],
    )


def _lines(
    title: str,
    lines: Mapping[str, tuple[pd.DataFrame, str]],
    style: Style,
    x: TimeAxis,
    look: tuple[bool, str],
) -> LinkedRow:
    """Return a row of step lines; bin means of up to 3 policies get a band from low to high.

    `lines`: policy -> (frame, column); `look` = (whether in the legend, hover template).
    """
    legend, template = look
    traces: list[Trace] = []
    reduced = [
        (series["t_s"].iloc[1] - series["t_s"].iloc[0])
        for series, column in lines.values()
        if _is_reduced(series, column)
    ]
    if reduced and len(lines) <= MAX_BANDS:
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
        title += f" · mean of each {duration_text(max(reduced))}" + (
            "; pale band: lowest to highest" if len(lines) <= MAX_BANDS else ""
        )
    return LinkedRow(title, traces, axis={"rangemode": "tozero"})


def _is_reduced(series: pd.DataFrame, column: str) -> bool:
    """Return True if a series consists of bin means."""
    return f"{column}_low" in series and bool(
        (series[f"{column}_low"] != series[f"{column}_high"]).any()
    )


def _step(series: pd.DataFrame, column: str, x: TimeAxis, scale: float = 1.0) -> Trace:
    """Return the points of a step line: instants, and the column's values times `scale`."""
    return {
        "type": "scatter",
        "x": x.place(series["t_s"].to_numpy(np.float64)),
        "y": (series[column].to_numpy(np.float64) * scale).astype(np.float32),
    }


def _band(series: pd.DataFrame, column: str, x: TimeAxis, of: tuple[str, str]) -> list[Trace]:
    """Return the two edges of the band from `<column>_low` to `<column>_high` of a policy."""
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
    return [low, high | {"fill": "tonexty", "fillcolor": with_opacity(colour, 0.18)}]


def _capacity(series: pd.DataFrame, column: str, x: TimeAxis, scale: float) -> Trace:
    """Return the dotted line of the capacity, without a legend entry."""
    line = {"shape": "hv", "color": NEUTRAL, "width": 1, "dash": "dot"}
    return {
        **_step(series, column, x, scale),
        "name": "capacity",
        "showlegend": False,
        "hoverinfo": "skip",
        "mode": "lines",
        "line": line,
    }


def linked_rows(
    rows: Sequence[LinkedRow], x: TimeAxis, title: str, legend: Sequence[str] = ()
) -> go.Figure:
    """Draw rows below each other on one x axis.

    Parameters
    ----------
    rows : sequence of LinkedRow
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
        All traces are on the axis "x", which is drawn under the lowest row; `hoversubplots` gives
        one label for all rows.
    """
    named, gaps = set[str](), list[int]()
    for row in rows:
        gaps.append(
            _GAP_PX
            + (narrow_legend_px(row.legend) if row.legend and not named & set(row.legend) else 0)
        )
        named |= set(row.legend)
    above = gaps[0] - _GAP_PX
    total = above + sum(row.height for row in rows) + sum(gaps[1:])
    top, placed, layout = float(total - above), list[Trace](), dict[str, Any]()
    for at, (row, gap) in enumerate(zip(rows, [*gaps[1:], 0], strict=True), 1):
        number = "" if at == 1 else str(at)
        layout[f"yaxis{number}"] = {
            "domain": [max(top - row.height, 0.0) / total, top / total],
            "anchor": "x",
            "nticks": 5,
            **row.axis,
        }
        placed += [
            {**trace, "xaxis": "x", "yaxis": f"y{number}"}
            for trace in _row_traces(row, named="legend2" in layout)
        ]
        own = row.legend and "legend2" not in layout
        layout.setdefault("annotations", []).append(
            _row_title(row.title, top / total, narrow_legend_px(row.legend) if own else 0)
        )
        if own:
            layout["legend2"] = _own_legend((top + narrow_legend_px(row.legend)) / total)
        top -= row.height + gap
    instants = np.unique(np.concatenate([[], *(trace["x"] for trace in placed)]))
    placed.append(x.heading(instants) | {"xaxis": "x", "yaxis": "y"})
    axis = {"anchor": "y" if len(rows) == 1 else f"y{len(rows)}", **x.layout()}
    return figure(
        placed,
        title,
        total,
        legend_px=legend_px(legend, NARROW_PX) + 24,
        hovermode="x unified",
        hoversubplots="axis",
        xaxis=axis,
        **layout,
    )


def _row_traces(row: LinkedRow, *, named: bool) -> list[Trace]:
    """Return the traces of a row; without legend entries if an earlier row has them."""
    return [
        trace | {"showlegend": not named} if trace["name"] in row.legend else trace
        for trace in row.traces
    ]


def _row_title(text: str, top: float, lift_px: int) -> dict[str, Any]:
    """Return the title of a row as an annotation, `lift_px` above the row's top."""
    place = {
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "yref": "paper",
        "y": top,
        "yanchor": "bottom",
        "yshift": 2 + lift_px,
    }
    return {"text": f"<b>{text}</b>", "showarrow": False, "font": {"size": TEXT_PX}, **place}


def _own_legend(top: float) -> dict[str, Any]:
    """Return the layout of a second legend, with its top at a relative height."""
    place = {"x": 0, "xanchor": "left", "y": top, "yanchor": "top", "yref": "paper"}
    return {
        "orientation": "h",
        "bgcolor": "rgba(0,0,0,0)",
        "font": {"size": TEXT_PX},
        "traceorder": "normal",
        **place,
    }


def branch_rows(
    frames: Mapping[str, Frames], style: Style, x: TimeAxis, at_s: float, title: str = ""
) -> go.Figure:
    """Draw queue and GPUs busy of both runs of a branch as step lines, one row each.

    A dashed line marks the branch.

    Parameters
    ----------
    frames : mapping
        "queue", "utilisation" and "capacity" -> run -> reduced series, as for `waiting_row` and
        `busy_row`; the first capacity is drawn. If no GPU is ever busy, only the queue is drawn.
    style : mapping
        From `policy_style`.
    x : TimeAxis
        The window.
    at_s : float, seconds
        Instant of the branch.
    title : str
        The finding or the question.
    """
    rows = [waiting_row(frames["queue"], style, x)]
    if any((series["total"] > 0).any() for series in frames["utilisation"].values()):
        rows.append(busy_row(frames["utilisation"], style, x, frames["capacity"]))
    drawn = linked_rows(rows, x, title, list(frames["queue"]))
    at = float(x.place(np.array([at_s]))[0])
    drawn.add_shape(
        type="line",
        x0=at,
        x1=at,
        y0=0,
        y1=1,
        yref="paper",
        line={"color": NEUTRAL, "width": 2, "dash": "dash"},
    )
    return drawn
