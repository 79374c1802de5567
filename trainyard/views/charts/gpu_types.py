"""Charts of clusters with several GPU types: shares, use, cost, notes and fairness."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from trainyard.formatting import gpu_type
from trainyard.views.charts.axes import TimeAxis
from trainyard.views.charts.theme import (
    INK,
    JOB_COLOURS,
    LINE_PX,
    NEUTRAL,
    TEXT_PX,
    Style,
    Trace,
    figure,
    legend_px,
    literal,
    narrow_legend_px,
    policy_rows,
)

Frames = Mapping[str, pd.DataFrame]
HEADINGS: Final[Mapping[str, str]] = {
    "all": "",
    "size": "By GPUs per job",
    "model": "By model, most GPU-hours first",
    "job": "Jobs with the most GPU-hours",
}
_LABEL_CHARACTERS: Final = 24
_ROW_PX: Final = 19
_BAR_PX: Final = 22
_INK_CONTRAST: Final = 0.0603
"""Relative luminance of `INK`, plus 0.05, as the contrast ratio of WCAG counts."""
_PER_CENT: Final[Mapping[str, Any]] = {
    "tickvals": [0, 20, 40, 60, 80, 100],
    "ticktext": [f"{at} %" for at in (0, 20, 40, 60, 80, 100)],
}
_READABLE: Final = 0.08
"""Share of a bar below which its number does not fit."""
_RATIOS: Final = {
    "1/64": 1 / 64,
    "1/16": 1 / 16,
    "1/4": 1 / 4,
    "1/2": 1 / 2,
    "1": 1.0,
    "2": 2.0,
    "4": 4.0,
    "16": 16.0,
    "64": 64.0,
    "256": 256.0,
    "1024": 1024.0,
}


def type_shares(table: pd.DataFrame, types: Mapping[str, str], title: str = "") -> go.Figure:
    """Draw the GPU types' shares of GPU time as one stacked horizontal bar per group of jobs.

    Parameters
    ----------
    table : DataFrame
        `kind` (key of `HEADINGS`), `group`, `jobs`, `gpu_s`, and one column of shares per GPU type.
    types : mapping
        GPU type -> colour, in the order of the bars.
    title : str
        The finding or the question.
    """
    shown = [name for name in types if name in table and (table[name] > 0).any()]
    rows, notes = _rows(table)
    traces = [_share(table, name, types[name], rows) for name in shown]
    labels = [
        _group_label(str(kind), str(group))
        for kind, group in zip(table["kind"], table["group"], strict=True)
    ]
    last = float(rows[-1]) if len(rows) else 0.0
    y = {
        "tickvals": rows,
        "ticktext": [literal(label) for label in labels],
        "range": [last + 0.7, -0.7],
        "showgrid": False,
        "automargin": True,
    }
    x = {"range": [0, 100.5], **_PER_CENT, "title": {"text": "share of GPU-hours"}}
    drawn = figure(
        traces,
        title,
        round(_ROW_PX * (last + 1.4)),
        legend_px=narrow_legend_px(shown),
        barmode="stack",
        bargap=0.15,
        xaxis=x,
        yaxis=y,
    )
    for at, text in notes:
        place = {
            "xref": "paper",
            "x": 0,
            "xanchor": "left",
            "yref": "y",
            "y": at,
            "yanchor": "middle",
        }
        drawn.add_annotation(
            text=f"<b>{text}</b>", showarrow=False, font={"size": TEXT_PX}, **place
        )
    return drawn.update_layout(legend_traceorder="normal")


def _rows(
    table: pd.DataFrame,
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], list[tuple[float, str]]]:
    """Return the y position of each row, and (y position, text) of the headings between."""
    heights: list[float] = []
    notes: list[tuple[float, str]] = []
    at, before = 0.0, ""
    for kind in table["kind"].astype(str):
        if kind != before and HEADINGS[kind]:
            at += 0.2 if heights else 0.0
            notes.append((at, HEADINGS[kind]))
            at += 1.0
        before = kind
        heights.append(at)
        at += 1.0
    return np.array(heights), notes


def _group_label(kind: str, group: str) -> str:
    """Return the label of a group: "2–4 GPUs", "job x" or its name, cut in the middle if long.

    `kind` = kind of grouping, a key of `HEADINGS`.
    """
    if kind == "size":
        return f"{group.replace('-', '–')} GPU{'' if group == '1' else 's'}"
    text = f"job {group}" if kind == "job" else group
    return text if len(text) <= _LABEL_CHARACTERS else f"{text[:8]}…{text[-14:]}"


def _share(
    table: pd.DataFrame, name: str, colour: str, rows: np.ndarray[Any, np.dtype[np.float64]]
) -> Trace:
    """Return the stacked bars of one GPU type: its share of the GPU time in each row."""
    share = table[name].to_numpy(np.float64)
    hours = share * table["gpu_s"].to_numpy(np.float64) / 3600
    return {
        "type": "bar",
        "orientation": "h",
        "x": (100 * share).astype(np.float32),
        "y": rows,
        "width": 0.85,
        "name": literal(gpu_type(name)),
        "marker": {"color": colour, "line": {"width": 0}},
        "text": [f"{100 * value:.0f} %" if value >= _READABLE else "" for value in share],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "textfont": {"color": _ink(colour), "size": TEXT_PX},
        "customdata": [
            f"{100 * value:.1f} %, {amount:,.1f} GPU-hours"
            for value, amount in zip(share, hours, strict=True)
        ],
        "hovertemplate": f"{literal(gpu_type(name))}: %{{customdata}}<extra></extra>",
    }


def _ink(colour: str) -> str:
    """Return the text color with more contrast on a #RRGGBB color: dark ink or white."""
    linear = [
        (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
        for part in (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if (luminance + 0.05) / _INK_CONTRAST > 1.05 / (luminance + 0.05) else "#FFFFFF"


def note_lines(
    notes: pd.DataFrame, lines: Mapping[str, tuple[str, str]], x: TimeAxis, title: str = ""
) -> go.Figure:
    """Draw numbers that a policy noted with its decisions over time, one step line per note.

    Parameters
    ----------
    notes : DataFrame
        Reduced: `name`, `t_s`, `value`.
    lines : mapping
        Name of a note -> (what the legend calls it, colour), those to be drawn.
    x : TimeAxis
        The window.
    title : str
        The finding or the question.
    """
    traces: list[Trace] = []
    for name, (label, colour) in lines.items():
        mine = notes[(notes["name"] == name).to_numpy()]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": x.place(mine["t_s"].to_numpy(np.float64)),
                "y": mine["value"].to_numpy(np.float32),
                "name": literal(label),
                "line": {"shape": "hv", "color": colour, "width": LINE_PX},
                "hovertemplate": f"{literal(label)}: %{{y:,.4~g}}<extra></extra>",
            }
        )
    traces.append(x.heading(np.unique(notes["t_s"].to_numpy(np.float64))))
    shown = [label for label, _ in lines.values()] if len(lines) > 1 else []
    y = {"rangemode": "tozero", "exponentformat": "power"}
    return figure(
        traces,
        title,
        260,
        legend_px=legend_px(shown),
        hovermode="x unified",
        xaxis=x.layout(),
        yaxis=y,
    )


def fairness_cdf(
    curves: Frames, style: Style, title: str = "", reference: str = "in isolation"
) -> go.Figure:
    """Draw the distribution of finish-time fairness, log x, one step line per policy.

    Parameters
    ----------
    curves : mapping of DataFrame
        By policy: `share` from 0 to 1 and `rho`, ascending.
    style : mapping
        From `policy_style`.
    title : str
        The finding or the question.
    reference : str
        What completion times are divided by.
    """
    traces = []
    for label, curve in curves.items():
        colour, dash = style[label]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": literal(label),
                "x": curve["rho"].to_numpy(np.float64),
                "y": (100 * curve["share"].to_numpy(np.float64)).astype(np.float32),
                "line": {"shape": "hv", "color": colour, "dash": dash, "width": LINE_PX},
                "hovertemplate": (
                    f"%{{y:.0f}} % at most %{{x:.3~g}} times<extra>{literal(label)}</extra>"
                ),
            }
        )
    every = np.concatenate([trace["x"] for trace in traces]) if traces else np.zeros(0)
    every = every[every > 0]
    low, high = (
        (min(float(every.min()), 0.5), max(float(every.max()), 2.0)) if len(every) else (0.5, 2.0)
    )
    marks = {text: value for text, value in _RATIOS.items() if low <= value <= high}
    axis: dict[str, Any] = {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": list(marks.values()),
        "ticktext": list(marks),
    }
    axis |= {"title": {"text": f"JCT / JCT {literal(reference)}"}}
    y = {"range": [0, 102], "ticksuffix": " %", "title": {"text": "share of jobs"}}
    drawn = figure(traces, title, 300, legend_px=legend_px(list(curves)) + 20, xaxis=axis, yaxis=y)
    drawn.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    for text, anchor, shift in (("← sooner", "right", -8), ("later →", "left", 8)):
        drawn.add_annotation(
            text=text,
            x=0,
            xref="x",
            xanchor=anchor,
            xshift=shift,
            y=1,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
        )
    return drawn


def type_use(use: Frames, style: Style, title: str = "") -> go.Figure:
    """Draw the utilization of each GPU type over the whole run, one bar per policy and type.

    A type without capacity has 0 %.

    Parameters
    ----------
    use : mapping of DataFrame
        By policy: `gpu_type`, `held_gpu_h`, `capacity_gpu_h`.
    style : mapping
        From `policy_style`.
    title : str
        The finding or the question.
    """
    first = next(iter(use.values()), pd.DataFrame({"gpu_type": []}))
    kinds = list(first["gpu_type"].astype(str))
    height = 1 / (len(use) + 1)
    traces = []
    for turn, (label, table) in enumerate(use.items()):
        capacity = table["capacity_gpu_h"].to_numpy(np.float64)
        busy = 100 * np.divide(
            table["held_gpu_h"].to_numpy(np.float64),
            capacity,
            out=np.zeros_like(capacity),
            where=capacity > 0,
        )
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": busy.astype(np.float32),
                "y": np.arange(len(table)) + (turn - (len(use) - 1) / 2) * height,
                "width": height * 0.85,
                "name": literal(label),
                "marker": {"color": style[label][0]},
                "text": [f"{value:.0f} %" for value in busy],
                "textposition": "outside",
                "constraintext": "none",
                "cliponaxis": False,
                "textfont": {"size": TEXT_PX},
                "hovertemplate": (
                    f"%{{x:.1f}} % of the GPU-hours there were<extra>{literal(label)}</extra>"
                ),
            }
        )
    y = {
        "tickvals": np.arange(len(kinds)),
        "ticktext": [literal(gpu_type(kind)) for kind in kinds],
        "range": [len(kinds) - 0.5, -0.5],
        "showgrid": False,
    }
    x = {"range": [0, 108], **_PER_CENT, "title": {"text": "share of available GPUs held"}}
    return figure(
        traces,
        title,
        len(kinds) * (_BAR_PX * len(use) + _BAR_PX),
        legend_px=legend_px(list(use)),
        barmode="overlay",
        xaxis=x,
        yaxis=y,
    )


def type_cost(use: Frames, types: Mapping[str, str], title: str = "") -> go.Figure:
    """Draw the cost of held GPUs as stacked bars per policy, and marks for the whole cluster.

    Parameters
    ----------
    use : mapping of DataFrame
        By policy: `gpu_type`, `held_usd`, `capacity_usd`.
    types : mapping
        GPU type -> colour, in the order of the bars.
    title : str
        The finding or the question.
    """
    labels = list(use)
    traces: list[Trace] = []
    for kind, colour in types.items():
        usd = np.array(
            [
                float(table.loc[(table["gpu_type"] == kind).to_numpy(), "held_usd"].sum())
                for table in use.values()
            ]
        )
        if usd.any():
            traces.append(_cost_bar(kind, colour, usd))
    whole = [float(table["capacity_usd"].sum()) for table in use.values()]
    mark = {
        "symbol": "line-ns",
        "size": 20,
        "color": NEUTRAL,
        "line": {"width": 3, "color": NEUTRAL},
    }
    marks = {
        "type": "scatter",
        "mode": "markers",
        "x": np.array(whole),
        "y": np.arange(len(labels)),
        "name": _WHOLE,
        "marker": mark,
    }
    traces.append(marks | {"hovertemplate": "whole cluster: $%{x:,.0f}<extra></extra>"})
    drawn = figure(
        traces,
        title,
        max(44 * len(labels), 72),
        legend_px=narrow_legend_px([str(trace["name"]) for trace in traces]),
        barmode="stack",
        bargap=0.3,
        xaxis={"rangemode": "tozero", "tickprefix": "$", "title": {"text": "USD"}},
        yaxis=policy_rows(labels),
    )
    return drawn.update_layout(legend_traceorder="normal")


_WHOLE: Final = "whole cluster"


def _cost_bar(kind: str, colour: str, usd: np.ndarray[Any, np.dtype[np.float64]]) -> Trace:
    """Return the bars of one GPU type's cost."""
    return {
        "type": "bar",
        "orientation": "h",
        "x": usd,
        "y": np.arange(len(usd)),
        "name": literal(gpu_type(kind)),
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": f"{literal(gpu_type(kind))}: $%{{x:,.2f}}<extra></extra>",
    }


def note_colours(labels: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
    """Return a color per note label: that of the GPU type of that name, else a job color."""
    rest = [label for label in labels if label not in types]
    return {
        label: types[label] if label in types else JOB_COLOURS[rest.index(label) % len(JOB_COLOURS)]
        for label in labels
    }
