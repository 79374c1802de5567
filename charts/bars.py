"""Bars over time: the jobs that were on one node, and the life of one job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.allocation import INK, JOB_COLOURS
from charts.axes import TimeAxis, duration_text
from charts.theme import NEUTRAL, TEXT_PX, Style, faded, figure, literal

Trace = dict[str, Any]
MOST_SPELLS: Final = 700
"""Spells of one job under one policy that are drawn."""
STATES: Final = ("waiting", "running", "paused")
_NAMED: Final = 120
"""More bars than that have no room for names."""
_LANE_PX: Final = 24
_ID_CHARACTERS: Final = 24
_ROW_PX: Final = 84
_GAP_PX: Final = 34


def node_jobs(bars: pd.DataFrame, size: tuple[int, str], x: TimeAxis, title: str = "") -> go.Figure:
    """Draw the jobs of one node: a bar is as long as the job was there, and as high as the GPUs, or cores, that it held.

    Parameters
    ----------
    bars : DataFrame
        `job`, `id`, `user`, `t0` and `t1` in seconds, `gpus`, and `lane`, the lowest of its lanes; at most 1,500 rows, drawn in this order.
    size : (int, str)
        GPUs or cores of the node, one lane each, and which of them: "GPU" or "core".
    x : TimeAxis
        The window.
    title : str
        The finding or the question.

    Notes
    -----
    Neighbours differ in colour, and a job keeps its own; a colour says nothing else.
    """
    (lanes, unit), gap = size, min(0.1, 0.02 * size[0])
    begin, end = (x.place(bars[name].to_numpy(np.float64)).astype(np.float64) for name in ("t0", "t1"))
    held = bars["gpus"].to_numpy(np.float64)
    names = [_short(str(job)) for job in bars["id"]]
    lasted = bars["t1"].to_numpy(np.float64) - bars["t0"].to_numpy(np.float64)
    told = [
        f"job {name}{f' of {literal(_short(str(user)))}' if str(user) else ''}<br>{count:g} {unit}{'' if count == 1 else 's'} for {duration_text(seconds)}"
        for name, user, count, seconds in zip(map(literal, names), bars["user"], held, lasted, strict=True)
    ]
    scale = [[(at + edge) / len(JOB_COLOURS), colour] for at, colour in enumerate(JOB_COLOURS) for edge in (0, 1)]
    colour = (bars["job"].to_numpy(np.int64) % len(JOB_COLOURS)).astype(np.uint8)
    trace: Trace = {
        "type": "bar",
        "orientation": "h",
        "base": begin,
        "x": end - begin,
        "y": bars["lane"].to_numpy(np.float64) + held / 2,
        "width": held - gap,
        "marker": {"color": colour, "colorscale": scale, "cmin": -0.5, "cmax": len(JOB_COLOURS) - 0.5, "line": {"width": 0}},
        "text": [literal(name) for name in names] if len(bars) <= _NAMED else None,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": INK, "size": 12},
        "hovertext": told,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    y = {"range": [0, max(lanes, 1)], "dtick": max(1, lanes // 8), "title": {"text": f"{unit}s of the node"}, "fixedrange": True}
    text = {"mode": "hide", "minsize": 12}
    height = min(max(_LANE_PX * lanes, 96), 384)
    return figure([trace], title, height, hovermode="closest", barmode="overlay", uniformtext=text, xaxis=x.layout(), yaxis=y)


def life(spells: Mapping[str, pd.DataFrame], wanted: int, style: Style, x: TimeAxis, title: str = "") -> go.Figure:
    """Draw how one job fared, one row per policy: how long it waited, ran and was paused, and on how many GPUs.

    Parameters
    ----------
    spells : mapping of DataFrame
        By policy, at most three: `t0` and `t1` in seconds, `state` (one of `STATES`), `gpus`; the first `MOST_SPELLS` rows are drawn.
    wanted : int
        GPUs that the job asked for: the height of a spell of waiting. Where it asked for none, and got none, heights say nothing.
    style : mapping
        From `policy_style`.
    x : TimeAxis
        The window.
    title : str
        The finding or the question.
    """
    total = _ROW_PX * len(spells) + _GAP_PX * (len(spells) - 1)
    traces: list[Trace] = []
    layout: dict[str, Any] = {"annotations": []}
    most = max([wanted, 1, *(int(frame["gpus"].max()) for frame in spells.values() if len(frame))])
    counted = wanted > 0 or any((frame["gpus"] > 0).any() for frame in spells.values())
    for at, (label, frame) in enumerate(spells.items()):
        number, top = "" if at == 0 else str(at + 1), total - at * (_ROW_PX + _GAP_PX)
        amounts = {"range": [0, most * 1.05], "dtick": max(1, round(most / 4)), "title": {"text": "GPUs"}} if counted else _UNCOUNTED
        layout[f"yaxis{number}"] = amounts | {"domain": [(top - _ROW_PX) / total, top / total], "anchor": "x", "fixedrange": True}
        drawn = frame.head(MOST_SPELLS)
        traces += [_spells(drawn, state, wanted, x, (label, style[label][0])) | {"yaxis": f"y{number}"} for state in STATES]
        place = {"xref": "paper", "x": 0, "xanchor": "left", "yref": "paper", "y": top / total, "yanchor": "bottom", "yshift": 2}
        layout["annotations"].append({"text": f"<b>{literal(label)}</b>", "showarrow": False, "font": {"size": TEXT_PX}, **place})
    time = {"anchor": f"y{len(spells)}" if len(spells) > 1 else "y"} | x.layout()
    # A legend of its own: the marks of the rows have the colours of their policies.
    traces += [_entry(state) for state in STATES]
    made = figure(traces, title, total, legend_px=56, hovermode="closest", barmode="overlay", xaxis=time, **layout)
    return made.update_layout(legend_traceorder="normal")


def _spells(frame: pd.DataFrame, state: str, wanted: int, x: TimeAxis, look: tuple[str, str]) -> Trace:
    mine = frame[(frame["state"] == state).to_numpy()]
    t0, t1 = mine["t0"].to_numpy(np.float64), mine["t1"].to_numpy(np.float64)
    begin, end = x.place(t0).astype(np.float64), x.place(t1).astype(np.float64)
    gpus = mine["gpus"].to_numpy(np.float64)
    height = np.full(len(mine), float(max(wanted, 1))) if state == "waiting" else np.where(gpus > 0, gpus, 1.0)
    amount = "" if state == "waiting" or not wanted else " on %{y:,.0f} GPUs"
    return {
        "type": "bar",
        "name": state,
        "showlegend": False,
        "x": begin,
        "width": end - begin,
        "offset": 0,
        "y": height,
        "marker": _marker(state, look[1]),
        "customdata": [duration_text(seconds) for seconds in t1 - t0],
        "hovertemplate": f"{literal(look[0])}<br>{state}{amount} for %{{customdata}}<extra></extra>",
    }


def _marker(state: str, colour: str) -> Trace:
    if state == "running":
        return {"color": colour, "line": {"width": 0}}
    shape = {"waiting": "/", "paused": "x"}[state]
    pattern = {"shape": shape, "fgcolor": NEUTRAL if state == "waiting" else colour, "bgcolor": "rgba(0,0,0,0)", "size": 7, "solidity": 0.25}
    return {"color": faded(NEUTRAL, 0.12), "line": {"width": 1, "color": NEUTRAL if state == "waiting" else colour}, "pattern": pattern}


def _entry(state: str) -> Trace:
    return {"type": "bar", "x": [None], "y": [None], "name": state, "marker": _marker(state, NEUTRAL)}


_UNCOUNTED: Final[Trace] = {"range": [0, 1.05], "showticklabels": False, "showgrid": False}


def _short(name: str) -> str:
    return name if len(name) <= _ID_CHARACTERS else f"{name[:8]}…{name[-14:]}"
