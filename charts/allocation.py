"""Where GPUs and time go: GPUs per job over time, and completion times in their parts."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.axes import TimeAxis, duration_text
from charts.theme import NEUTRAL, TEXT_PX, faded, figure, literal, narrow_legend_px

JOB_COLOURS: Final = ("#66C2A5", "#FC8D62", "#8DA0CB", "#E78AC3", "#A6D854", "#FFD92F", "#B3835B", "#9C6FB0")
"""ColorBrewer's Set2, its tan and grey replaced: single jobs share no colour with a policy or a GPU type."""
INK: Final = "#1A1A1A"
"""Text on one of the light colours of this module, in light and in dark."""
_OTHERS: Final = "others"
_ID_CHARACTERS: Final = 20
_LABEL_CHARACTERS: Final = 24
_VISIBLE: Final = 1e-6
_REGULAR: Final = 100
Trace = dict[str, Any]


class Part(NamedTuple):
    """One part of a completion time.

    Parameters
    ----------
    column, name : str
        Where it is in the table, in seconds; as the legend calls it.
    colour : str
        Its own, shared with nothing else.
    meaning : str
        One sentence for a caption.
    """

    column: str
    name: str
    colour: str
    meaning: str


PARTS: Final = (
    Part("queue_s", "waiting to start", "#EE9A7A", "from submission to the first start"),
    Part("requeue_s", "waiting again", "#F6C9A8", "after a job was stopped"),
    Part("paused_s", "pauses", "#C7A8DC", "GPUs held without progress, at the start and after every change"),
    Part("redone_s", "redone work", "#D98CA6", "work done a second time because it was lost"),
    Part("slower_s", "slower than full speed", "#A9D3E2", "what fewer GPUs, another batch, a slower GPU type, several nodes and checkpoints add"),
    Part("ideal_s", "running at full speed", "#6FB5AE", "alone, at the job's best size on the fastest GPU type"),
)
"""Parts of a completion time from left to right: what a policy can help first, what it cannot last."""


def allocation(series: pd.DataFrame, x: TimeAxis, names: Mapping[str, str], capacity: pd.DataFrame | None = None, title: str = "") -> go.Figure:
    """Draw GPUs per job over time, stacked: the largest jobs by name, all others as one grey band, what is free below the line of the capacity.

    Parameters
    ----------
    series : DataFrame
        Reduced: `t_s`, one column of GPUs per named job, `others`.
    x : TimeAxis
        The window.
    names : mapping of str
        Column -> the job's name; a column without one is called as it is.
    capacity : DataFrame or None
        Reduced capacity series: `t_s`, `total`.
    title : str
        The finding or the question.
    """
    jobs = [name for name in series.columns if name not in {"t_s", _OTHERS}]
    traces = [
        _layer(series, name, x, (_short(names.get(name, name)), colour)) | {"hovertemplate": f"job {literal(names.get(name, name))}: {_AMOUNT}"}
        for name, colour in zip(jobs, JOB_COLOURS, strict=False)
    ]
    traces.append(_layer(series, _OTHERS, x, ("other jobs", NEUTRAL)) | {"hovertemplate": f"other jobs: {_AMOUNT}"})
    shown = [str(trace["name"]) for trace in traces]
    if capacity is not None:
        traces.append(_ceiling(capacity, x))
    axis, t = x.layout(), series["t_s"].to_numpy(np.float64)
    if _regular(t):
        text = f"each point = {duration_text(t[1] - t[0])}, mean"
        axis["title"] = {"text": f"{axis['title']['text']} · {text}" if "title" in axis else text}
    y = {"rangemode": "tozero", "title": {"text": "GPUs"}}
    drawn = figure(traces, title, 300, legend_px=narrow_legend_px(shown), hovermode="x unified", xaxis=axis, yaxis=y)
    return drawn.update_layout(legend_traceorder="normal")


_AMOUNT: Final = "%{y:,.1~f} GPUs<extra></extra>"


def _layer(series: pd.DataFrame, column: str, x: TimeAxis, look: tuple[str, str]) -> Trace:
    name, colour = look
    gpus = series[column].to_numpy(np.float32)
    # Where a job holds nothing no point is sent; Plotly puts the zero there that the other layers need.
    held = (gpus > 0) | (np.append(np.float32(0), gpus[:-1]) > 0)
    return {
        "type": "scatter",
        "x": x.place(series["t_s"].to_numpy(np.float64)[held]),
        "y": gpus[held],
        "name": literal(name),
        "mode": "lines",
        "stackgroup": "jobs",
        "stackgaps": "infer zero",
        "line": {"shape": "hv", "width": 0, "color": colour},
        "fillcolor": faded(colour, 0.35 if column == _OTHERS else 0.85),
    }


def _ceiling(capacity: pd.DataFrame, x: TimeAxis) -> Trace:
    return {
        "type": "scatter",
        "x": x.place(capacity["t_s"].to_numpy(np.float64)),
        "y": capacity["total"].to_numpy(np.float32),
        "name": "capacity",
        "showlegend": False,
        "mode": "lines",
        "line": {"shape": "hv", "color": NEUTRAL, "width": 1.5, "dash": "dot"},
        "hovertemplate": f"capacity: {_AMOUNT}",
    }


def _short(name: str) -> str:
    """Return a name that fits a legend; ids often differ at their end only, so the middle goes."""
    return name if len(name) <= _ID_CHARACTERS else f"{name[:6]}…{name[-12:]}"


def _regular(t: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    width = np.diff(t)
    return len(width) > _REGULAR and bool(np.allclose(width, width[0]))


def decomposition(table: pd.DataFrame, title: str = "") -> go.Figure:
    """Draw the mean completion time of each policy as one bar, cut into its parts.

    Parameters
    ----------
    table : DataFrame
        `policy` (drawn from top to bottom), `jct_s` and the columns of `PARTS`, means in seconds; NaN = no job was completed.
    title : str
        The finding or the question.
    """
    known = table.fillna(0.0)
    longest = float(known["jct_s"].max()) if len(known) else 0.0
    unit_s, unit = TimeAxis(0.0, longest or 1.0).unit
    parts = [part for part in PARTS if known[part.column].max() > _VISIBLE * longest or part is PARTS[-1]]
    rows = np.arange(len(known))
    traces = [_bar(known, part, rows, unit_s) for part in parts]
    y = {
        "tickvals": rows,
        "ticktext": ["<br>".join(map(literal, textwrap.wrap(str(name), _LABEL_CHARACTERS))) for name in known["policy"]],
        "range": [len(known) - 0.5, -0.5],
        "automargin": True,
        "showgrid": False,
    }
    x_axis = {"title": {"text": f"mean JCT, {unit}"}, "range": [0, (longest or 1.0) / unit_s * 1.14]}
    legend_px, bars = narrow_legend_px([part.name for part in parts]), {"barmode": "stack", "bargap": 0.35, "uniformtext": {"mode": "hide", "minsize": TEXT_PX}}
    drawn = figure(traces, title, 30 + 48 * len(known), legend_px=legend_px, xaxis=x_axis, yaxis=y, **bars)
    drawn.update_layout(legend={"traceorder": "normal", "xref": "container"})
    for row, jct_s in enumerate(table["jct_s"].to_numpy(np.float64)):
        text = duration_text(jct_s) if np.isfinite(jct_s) else "no job completed"
        at = jct_s / unit_s if np.isfinite(jct_s) else 0.0
        drawn.add_annotation(x=at, y=row, text=f"<b>{text}</b>", showarrow=False, xanchor="left", xshift=6, font={"size": TEXT_PX})
    return drawn


def _bar(table: pd.DataFrame, part: Part, rows: np.ndarray[Any, np.dtype[np.int64]], unit_s: float) -> Trace:
    seconds = table[part.column].to_numpy(np.float64)
    share = np.divide(seconds, table["jct_s"].to_numpy(np.float64), out=np.zeros_like(seconds), where=seconds > 0)
    return {
        "type": "bar",
        "orientation": "h",
        "x": seconds / unit_s,
        "y": rows,
        "name": part.name,
        "marker": {"color": part.colour, "line": {"width": 0}},
        "text": [duration_text(value) if value > 0 else "" for value in seconds],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": INK, "size": TEXT_PX},
        "customdata": [f"{duration_text(value)}, {100 * of:.0f} %" for value, of in zip(seconds, share, strict=True)],
        "hovertemplate": f"{part.name}: %{{customdata}}<extra></extra>",
    }
