"""Charts of the inputs of a comparison: trace, machines, decisions of a policy, speed-ups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from trainyard.formatting import RunClock, gpu_type
from trainyard.views.charts.axes import FEW_MARKS, TimeAxis, duration_text, log_duration
from trainyard.views.charts.theme import (
    AMBER,
    BETTER,
    GRID,
    INK,
    JOB_COLOURS,
    LINE_PX,
    NEUTRAL,
    POLICY_COLOURS,
    TEXT_PX,
    figure,
    legend_px,
    literal,
    with_opacity,
)

_JOBS, _HOURS = BETTER, AMBER


_AREA: dict[str, Any] = {
    "type": "scatter",
    "mode": "lines",
    "fill": "tozeroy",
    "fillcolor": with_opacity(_JOBS, 0.25),
}
MAX_CELLS: Final = 130_000
_SLOTS: Final = 16
"""Nodes per column of a rack."""
_RACK: Final = re.compile(r"^(.*)/r(\d+)$")
"""Name of a rack in a group of nodes."""
_RACK_LABELS: Final = 24
_LANE_PX: Final = 21
_TICKS: Final = 4
_CLASSES: Final = 6
"""Maximum number of time and size labels in one of four figures in a row."""
_SMALL_PX: Final = 124
"""Height of the data of one of four figures in a row."""
_SPEEDUP_PX: Final = 210


def arrivals(table: pd.DataFrame, x: TimeAxis, title: str = "Jobs per hour") -> go.Figure:
    """Draw jobs per hour over time as a stepped area.

    Columns `t_s`, `width_s` and `jobs_per_hour`, one row per bin, at least one; all bins have the
    width of the first.
    """
    t = np.append(
        table["t_s"].to_numpy(np.float64), table["t_s"].iloc[-1] + table["width_s"].iloc[-1]
    )
    rate = table["jobs_per_hour"].to_numpy(np.float32)
    width = duration_text(float(table["width_s"].iloc[0]))
    trace = {
        **_AREA,
        "x": x.place(t),
        "y": np.append(rate, rate[-1:]),
        "line": {"shape": "hv", "color": _JOBS, "width": LINE_PX / 2},
        "hovertemplate": f"%{{y:,.1f}} jobs per hour, over {width}<extra></extra>",
    }
    y = {"rangemode": "tozero", "tickformat": ",", "nticks": 4}
    lines = [trace, x.heading(t)]
    time = x.layout()
    # More labels would be rotated and overlap in a narrow figure.
    every = -(-len(time["tickvals"]) // _TICKS)
    time |= {name: time[name][::every] for name in ("tickvals", "ticktext")} | {"tickangle": 0}
    drawn = figure(lines, title, _SMALL_PX, hovermode="x unified", xaxis=time, yaxis=y)
    return _small(drawn)


def sizes(table: pd.DataFrame, title: str = "Shares by requested GPUs") -> go.Figure:
    """Draw shares of jobs and of GPU-hours by requested GPUs, as two bars per class.

    Columns `gpus` (label), `jobs` and `gpu_hours`, one row per class, drawn from left to right.
    """
    traces, labels = [], table["gpus"].str.replace("-", "–").tolist()
    for name, column, colour, pattern in (
        ("jobs", "jobs", _JOBS, ""),
        ("GPU-hours", "gpu_hours", _HOURS, "/"),
    ):
        values = table[column].to_numpy(np.float64)
        traces.append(
            {
                "type": "bar",
                "x": labels,
                "y": values / max(values.sum(), 1e-12) * 100,
                "name": name,
                "marker": {
                    "color": colour,
                    "pattern": {
                        "shape": pattern,
                        "fillmode": "overlay",
                        "fgcolor": "rgba(255,255,255,0.6)",
                    },
                },
                "customdata": values,
                "hovertemplate": f"%{{y:.1f}} % of {name} (%{{customdata:,.0f}})<extra></extra>",
            }
        )
    drawn = figure(
        traces,
        title,
        _SMALL_PX - 24,
        legend_px=24,
        barmode="group",
        bargap=0.25,
        xaxis={
            "type": "category",
            "tickangle": 0,
            # Plotly mixes up numeric categories with their positions.
            "tickvals": labels[:: -(-len(table) // _CLASSES)],
        },
        yaxis={"ticksuffix": " %", "nticks": 3},
        hovermode="x unified",
    )
    return _small(drawn)


def durations(table: pd.DataFrame, title: str = "Jobs by run time") -> go.Figure:
    """Draw the number of jobs by recorded run time as a stepped area, log x.

    Columns `low_s`, `high_s` and `jobs`, one row per bin, at least one; bins adjoin each other.
    """
    edges = np.append(table["low_s"].to_numpy(np.float64), table["high_s"].iloc[-1])
    jobs = table["jobs"].to_numpy(np.float32)
    trace = {
        **_AREA,
        "x": edges,
        "y": np.append(jobs, jobs[-1:]),
        "line": {"shape": "hv", "color": _JOBS, "width": LINE_PX},
        "text": (
            [f"{duration_text(low)} to {duration_text(high)}" for low, high in pairwise(edges)]
            + [""]
        ),
        "hovertemplate": "%{y:,.0f} jobs ran %{text}<extra></extra>",
    }
    drawn = figure(
        [trace],
        title,
        _SMALL_PX,
        xaxis=log_duration(float(edges[0]), float(edges[-1]), FEW_MARKS),
        yaxis={"rangemode": "tozero", "tickformat": ",", "nticks": 4},
    )
    return _small(drawn)


def heaviest(table: pd.DataFrame, title: str = "") -> go.Figure:
    """Draw GPU- or core-hours by user or group as horizontal bars, the first row on top.

    Columns: `name`, `jobs`, `gpu_hours` (or `core_hours`), sorted by the caller.
    """
    column, unit = (
        ("gpu_hours", "GPU-hours") if "gpu_hours" in table else ("core_hours", "core-hours")
    )
    names = table["name"].astype(str)
    short = [literal(name if len(name) <= 18 else f"{name[:17]}…") for name in names]
    rows = np.arange(len(table))
    bar = {
        "type": "bar",
        "x": table[column].to_numpy(np.float64),
        "y": rows,
        "orientation": "h",
        "marker": {"color": _JOBS},
        "customdata": table["jobs"].to_numpy(),
        "hovertext": [literal(name) for name in names],
        "hovertemplate": (
            f"%{{hovertext}}: %{{x:,.0f}} {unit} in %{{customdata:,}} jobs<extra></extra>"
        ),
    }
    y = {
        "tickvals": rows,
        "ticktext": short,
        "range": [len(rows) - 0.5, -0.5],
        "automargin": True,
    }
    drawn = figure(
        [bar],
        title or f"{unit} by user, heaviest first",
        _SMALL_PX,
        xaxis={"rangemode": "tozero", "tickformat": ",", "nticks": 4},
        yaxis=y,
    )
    return _small(drawn)


def overlay(
    table: pd.DataFrame, names: tuple[str, str], title: str, unit: str, axis: Mapping[str, Any]
) -> go.Figure:
    """Draw the shares of jobs of two traces as two step lines of one small figure.

    Parameters
    ----------
    table : DataFrame
        `x`, and shares from 0 to 1 in `first` and `second`.
    names : (str, str)
        What the traces are called in the legend.
    title : str
        What the shares are of.
    unit : str
        Ends the sentence of a point: "of jobs run at most %{x}".
    axis : mapping
        Properties of the x axis.
    """
    looks = ({"color": _JOBS, "width": 2.6}, {"color": AMBER, "width": LINE_PX, "dash": "dot"})
    lines = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": table["x"].to_numpy(),
            "y": table[column].to_numpy() * 100,
            "name": literal(name),
            "line": {"shape": "hv"} | look,
            "hovertemplate": f"%{{y:.1f}} % {unit}",
        }
        for column, name, look in zip(("first", "second"), names, looks, strict=True)
    ]
    drawn = figure(
        lines,
        title,
        _SMALL_PX - 24,
        legend_px=24,
        xaxis=dict(axis),
        yaxis={"ticksuffix": " %", "nticks": 3, "rangemode": "tozero"},
        hovermode="x unified",
    )
    return _small(drawn)


def _small(drawn: go.Figure) -> go.Figure:
    """Return a figure for a row of four: 200 px high, with narrow margins."""
    return drawn.update_layout(
        height=_SMALL_PX + 76, margin={"l": 40, "r": 8, "b": 28}, title={"font": {"size": TEXT_PX}}
    )


def racks(nodes: pd.DataFrame, types: Mapping[str, str], title: str = "") -> go.Figure:
    """Draw the nodes of a cluster as cells of a heat map, by rack and colored by GPU type.

    Parameters
    ----------
    nodes : DataFrame
        One row per node: `name`, `gpu_type` ("" = CPU node), `gpus`, `rack`. Nodes of one rack need
        not be neighbours.
    types : mapping
        GPU type -> colour, from `type_style`.
    title : str
        The finding or the question.
    """
    rack, names = pd.factorize(nodes["rack"].to_numpy())
    column, slot, starts = _places(rack, len(names))
    labels = np.array(
        [
            f"{gpu_type(kind) or 'CPU'} rack {number}" if _RACK.match(name) else name
            for number, (name, kind) in enumerate(
                zip(names, nodes["gpu_type"].groupby(rack).first(), strict=True), 1
            )
        ],
        object,
    )
    kinds = list(dict.fromkeys(nodes["gpu_type"]))
    shape = (int(slot.max(initial=0)) + 1, int(column.max(initial=0)) + 1)
    kind, text = np.full(shape, np.nan), np.full(shape, "", object)
    kind[slot, column] = [kinds.index(name) for name in nodes["gpu_type"]]
    text[slot, column] = [
        _hover_text(*row)
        for row in zip(nodes["name"], nodes["gpus"], nodes["gpu_type"], labels[rack], strict=True)
    ]
    cells = {
        "type": "heatmap",
        "z": kind,
        "text": text,
        "hovertemplate": "%{text}<extra></extra>",
        "hoverongaps": False,
        "colorscale": _bands([types.get(name, NEUTRAL) for name in kinds]),
        "zmin": -0.5,
        "zmax": len(kinds) - 0.5,
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    entries = [
        _entry(name, nodes[nodes["gpu_type"] == name], types.get(name, NEUTRAL)) for name in kinds
    ]
    every = -(-len(names) // _RACK_LABELS)
    x = {
        "tickvals": starts[::every],
        "ticktext": [literal(label) for label in labels[::every]],
        "showgrid": False,
        "tickangle": 40 if len(names) > 4 else 0,
        "automargin": True,
    }
    y = {"showticklabels": False, "ticks": "", "showgrid": False, "range": [shape[0] - 0.5, -0.5]}
    return figure(
        [cells, *entries],
        title,
        max(60, 18 * shape[0]),
        legend_px=legend_px([entry["name"] for entry in entries]),
        xaxis=x,
        yaxis=y,
    )


def _entry(name: str, mine: pd.DataFrame, colour: str) -> dict[str, Any]:
    """Return the legend entry of a GPU type, with its nodes and GPUs: an empty trace.

    Heat maps have no legend.
    """
    nodes, gpus = len(mine), int(mine["gpus"].sum())
    held = f" · {gpus:,} GPU{'' if gpus == 1 else 's'}" if gpus else ""
    kind = literal(gpu_type(name)) or "no GPU"
    text = f"{kind} · {nodes:,} node{'' if nodes == 1 else 's'}{held}"
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "markers",
        "name": text,
        "marker": {"color": colour, "size": 12, "symbol": "square"},
    }


def _places(
    rack: NDArray[np.intp], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the column and row of each node's cell, and the middle column of each rack.

    A rack has 16 nodes per column; an empty column separates racks.
    """
    order = np.argsort(rack, kind="stable")
    sizes = np.bincount(rack, minlength=count)
    within = np.empty(len(rack), np.int64)
    within[order] = np.arange(len(rack)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    width = -(-sizes // _SLOTS)
    gap = 1 if count > 1 else 0
    first = np.cumsum(width + gap) - (width + gap)
    return first[rack] + within // _SLOTS, within % _SLOTS, first + (width - 1) / 2


def _hover_text(name: str, gpus: int, kind: str, rack: str) -> str:
    """Return the hover label of a node: name, GPUs with type, and rack."""
    what = f"{gpus} × {gpu_type(kind)}" if gpus else "no GPU"
    return literal(f"{name}: {what}, {rack}")


def _bands(colours: list[str]) -> list[list[float | str]]:
    """Return a Plotly color scale of equally wide bands, one per color, without blending."""
    edges = np.linspace(0, 1, len(colours) + 1)
    return [
        [float(at), colour]
        for low, high, colour in zip(edges[:-1], edges[1:], colours, strict=True)
        for at in (low, high)
    ]


def example(
    bars: pd.DataFrame, jobs: pd.DataFrame, rows: Sequence[tuple[str, float]], until_s: float
) -> go.Figure:
    """Draw the jobs on the GPUs of the example run as bars over time, a color per job.

    Parameters
    ----------
    bars : DataFrame
        `job`, `lane` (lowest, from 0), `lanes` (height), `t0_s`, `t1_s`, `what` (for the label).
    jobs : DataFrame
        `job` and `submit_s`, in the order of their colours.
    rows : sequence of (str, float)
        Name and number of lanes of each node, from below.
    until_s : float, seconds
        Where the time axis ends.
    """
    axis = TimeAxis(0.0, until_s)
    edges = np.cumsum([0.0, *(lanes for _, lanes in rows)])
    traces = [
        _job(bars[bars["job"] == job], str(job), colour, axis.clock)
        for job, colour in zip(jobs["job"], JOB_COLOURS, strict=False)
    ]
    y = {
        "tickvals": (edges[:-1] + edges[1:]) / 2,
        "ticktext": [literal(name) for name, _ in rows],
        "range": [0, edges[-1]],
        "showgrid": False,
    }
    drawn = figure(
        traces,
        "",
        round(_LANE_PX * edges[-1]) + 22,
        barmode="overlay",
        xaxis=axis.layout(),
        yaxis=y,
    )
    drawn.update_layout(margin={"t": 30}, height=round(_LANE_PX * edges[-1]) + 22 + 30 + 46)
    for edge in edges[1:-1]:
        drawn.add_hline(y=float(edge), line={"color": GRID, "width": 1})
    for job, submit_s in zip(jobs["job"], jobs["submit_s"], strict=True):
        text = f"{literal(str(job))}<br>▾"
        drawn.add_annotation(
            x=submit_s,
            y=1,
            yref="paper",
            yanchor="bottom",
            text=text,
            showarrow=False,
            font={"size": 12},
        )
    return drawn


def _job(mine: pd.DataFrame, job: str, colour: str, clock: RunClock) -> dict[str, Any]:
    """Return the bars of one job; only the largest bar shows the job's name."""
    t0, t1 = mine["t0_s"].to_numpy(np.float64), mine["t1_s"].to_numpy(np.float64)
    height = mine["lanes"].to_numpy(np.float64)
    # Only the largest piece has the letter.
    largest = (
        np.arange(len(mine)) == np.argmax((t1 - t0) * np.minimum(height, 2))
        if len(mine)
        else np.zeros(0, bool)
    )
    return {
        "type": "bar",
        "orientation": "h",
        "base": t0,
        "x": t1 - t0,
        "y": mine["lane"].to_numpy(np.float64) + height / 2,
        "width": height * 0.94,
        "name": literal(job),
        "marker": {"color": colour, "line": {"width": 0}},
        "text": [literal(job) if one else "" for one in largest],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": INK, "size": TEXT_PX},
        "customdata": [
            f"{literal(what)}, from {clock.format(start)} to {clock.format_after(end, start)}"
            for what, start, end in zip(mine["what"], t0, t1, strict=True)
        ],
        "hovertemplate": f"job {literal(job)}: %{{customdata}}<extra></extra>",
    }


def speedup(table: pd.DataFrame, title: str, *, scales: bool) -> go.Figure:
    """Draw speed against GPUs or nodes: the median as a line with marks, percentiles as a band.

    Parameters
    ----------
    table : DataFrame
        `x`, `low`, `speed`, `high`, as `trainyard.clusters.speedup.speedup_curve`.
    title : str
        Above the figure.
    scales : bool
        Whether `x` are multiples of the requested GPUs; else nodes.
    """
    x = table["x"].to_numpy()
    colour = POLICY_COLOURS[0]
    band = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip"}
    traces = [
        {**band, "y": table["low"].to_numpy()},
        {
            **band,
            "y": table["high"].to_numpy(),
            "fill": "tonexty",
            "fillcolor": with_opacity(colour, 0.2),
        },
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": x,
            "y": table["speed"].to_numpy(),
            "line": {"color": colour, "width": LINE_PX},
            "hovertemplate": "%{y:.2f} times the speed<extra></extra>",
        },
    ]
    if scales:
        ideal = {"color": NEUTRAL, "width": 1, "dash": "dot"}
        traces.insert(0, {**band, "y": x, "line": ideal})
    unit = "GPUs, times the request" if scales else "nodes that a gang is spread over"
    words = [f"{value:g} ×" if scales else f"{value:g}" for value in x]
    return figure(
        traces,
        title,
        _SPEEDUP_PX,
        xaxis={"type": "log", "tickvals": x, "ticktext": words, "title": {"text": unit}},
        yaxis={
            "type": "log" if scales else "linear",
            "title": {"text": "speed"},
            "tickformat": ".3~g",
            "rangemode": "tozero",
            "ticksuffix": " ×",
        },
    )
