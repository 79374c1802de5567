"""What a trace holds: arrivals, GPUs per job, run times, and who asks for most."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.axes import TimeAxis, duration_text, log_duration
from charts.theme import LINE_PX, POLICY_COLOURS, faded, figure, literal

_JOBS, _HOURS = POLICY_COLOURS[0], POLICY_COLOURS[5]
_AREA: dict[str, Any] = {"type": "scatter", "mode": "lines", "fill": "tozeroy", "fillcolor": faded(_JOBS, 0.25)}


def arrivals(table: pd.DataFrame, x: TimeAxis, title: str = "When do jobs arrive?") -> go.Figure:
    """Draw jobs per hour over time, from `t_s`, `width_s`, `jobs_per_hour`."""
    t = np.append(table["t_s"].to_numpy(np.float64), table["t_s"].iloc[-1] + table["width_s"].iloc[-1])
    rate = table["jobs_per_hour"].to_numpy(np.float32)
    width = duration_text(float(table["width_s"].iloc[0]))
    trace = {
        **_AREA,
        "x": x.place(t),
        "y": np.append(rate, rate[-1:]),
        "line": {"shape": "hv", "color": _JOBS, "width": LINE_PX / 2},
        "hovertemplate": f"%{{y:,.1f}} jobs per hour, over {width}<extra></extra>",
    }
    y = {"rangemode": "tozero", "tickformat": ",", "title": {"text": "jobs per hour"}}
    return figure([trace], title, 264, hovermode="x unified", xaxis=x.layout(), yaxis=y)


def sizes(table: pd.DataFrame, title: str = "How many GPUs do jobs ask for?") -> go.Figure:
    """Draw the share of jobs and of GPU-hours by GPUs asked, from `gpus` (labels), `jobs`, `gpu_hours`."""
    traces = []
    for name, column, colour, pattern in (("jobs", "jobs", _JOBS, ""), ("GPU-hours", "gpu_hours", _HOURS, "/")):
        values = table[column].to_numpy(np.float64)
        traces.append(
            {
                "type": "bar",
                "x": table["gpus"].str.replace("-", "–").to_numpy(),
                "y": values / max(values.sum(), 1e-12) * 100,
                "name": f"share of {name}",
                "marker": {"color": colour, "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.6)"}},
                "customdata": values,
                "hovertemplate": f"%{{y:.1f}} % of {name} (%{{customdata:,.0f}})<extra></extra>",
            }
        )
    x = {"type": "category", "title": {"text": "GPUs asked for"}}
    return figure(traces, title, 240, legend_px=24, barmode="group", bargap=0.25, xaxis=x, yaxis={"ticksuffix": " %"}, hovermode="x unified")


def durations(table: pd.DataFrame, title: str = "How long do jobs run?") -> go.Figure:
    """Draw jobs by recorded run time, log x, from `low_s`, `high_s`, `jobs`."""
    edges = np.append(table["low_s"].to_numpy(np.float64), table["high_s"].iloc[-1])
    jobs = table["jobs"].to_numpy(np.float32)
    trace = {
        **_AREA,
        "x": edges,
        "y": np.append(jobs, jobs[-1:]),
        "line": {"shape": "hv", "color": _JOBS, "width": LINE_PX},
        "text": [f"{duration_text(low)} to {duration_text(high)}" for low, high in pairwise(edges)] + [""],
        "hovertemplate": "%{y:,.0f} jobs ran %{text}<extra></extra>",
    }
    x = {**log_duration(float(edges[0]), float(edges[-1])), "title": {"text": "recorded run time"}}
    return figure([trace], title, 240, xaxis=x, yaxis={"rangemode": "tozero", "tickformat": ",", "title": {"text": "jobs"}})


def heaviest(table: pd.DataFrame, title: str = "Who asks for most?") -> go.Figure:
    """Draw GPU-hours by user or group, from `name`, `jobs`, `gpu_hours` (or `core_hours`), the heaviest on top."""
    column, unit = ("gpu_hours", "GPU-hours") if "gpu_hours" in table else ("core_hours", "core-hours")
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
        "hovertemplate": f"%{{hovertext}}: %{{x:,.0f}} {unit} in %{{customdata:,}} jobs<extra></extra>",
    }
    y = {"tickvals": rows, "ticktext": short, "range": [len(rows) - 0.5, -0.5], "automargin": True}
    return figure([bar], title, 40 + 24 * len(table), xaxis={"title": {"text": unit}, "rangemode": "tozero", "tickformat": ","}, yaxis=y)
