"""A cluster as a picture: one cell per node, racks side by side, coloured by GPU type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.theme import NEUTRAL, figure, legend_px, literal

MOST_CELLS: Final = 130_000
_SLOTS: Final = 16
"""Nodes above each other before a rack goes on in the next column."""
_RACK: Final = re.compile(r"^(.*)/r(\d+)$")
"""How a rack of a group of nodes is called."""
_RACK_LABELS: Final = 24


def racks(nodes: pd.DataFrame, types: Mapping[str, str], title: str = "") -> go.Figure:
    """Draw a cluster.

    Parameters
    ----------
    nodes : DataFrame
        One row per node: `name`, `gpu_type` ("" = CPU node), `gpus`, `rack`. Nodes of one rack need not be neighbours.
    types : mapping
        GPU type -> colour, from `type_style`.
    title : str
        The finding or the question.
    """
    rack, names = pd.factorize(nodes["rack"].to_numpy())
    column, slot, starts = _places(rack, len(names))
    kinds = list(dict.fromkeys(nodes["gpu_type"]))
    shape = (int(slot.max(initial=0)) + 1, int(column.max(initial=0)) + 1)
    kind, text = np.full(shape, np.nan), np.full(shape, "", object)
    kind[slot, column] = [kinds.index(name) for name in nodes["gpu_type"]]
    text[slot, column] = [_told(*row) for row in zip(nodes["name"], nodes["gpus"], nodes["gpu_type"], nodes["rack"], strict=True)]
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
    entries = [_entry(name, nodes[nodes["gpu_type"] == name], types.get(name, NEUTRAL)) for name in kinds]
    every = -(-len(names) // _RACK_LABELS)
    x = {
        "tickvals": starts[::every],
        "ticktext": [_RACK.sub(r"\1, rack \2", literal(str(name))) for name in names[::every]],
        "showgrid": False,
        "tickangle": 40 if len(names) > 4 else 0,
        "automargin": True,
    }
    y = {"showticklabels": False, "ticks": "", "showgrid": False, "range": [shape[0] - 0.5, -0.5]}
    legend = legend_px([entry["name"] for entry in entries])
    return figure([cells, *entries], title, max(60, 18 * shape[0]), legend_px=legend, xaxis=x, yaxis=y)


def _entry(name: str, mine: pd.DataFrame, colour: str) -> dict[str, Any]:
    """Return a trace without points: a heat map has no legend."""
    nodes, gpus = len(mine), int(mine["gpus"].sum())
    held = f" · {gpus:,} GPU{'' if gpus == 1 else 's'}" if gpus else ""
    text = f"{literal(name) or 'no GPU'} · {nodes:,} node{'' if nodes == 1 else 's'}{held}"
    return {"type": "scatter", "x": [None], "y": [None], "mode": "markers", "name": text, "marker": {"color": colour, "size": 12, "symbol": "square"}}


def _places(rack: NDArray[np.intp], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return column and slot of each node, and the middle of each rack; one empty column between racks."""
    order = np.argsort(rack, kind="stable")
    sizes = np.bincount(rack, minlength=count)
    within = np.empty(len(rack), np.int64)
    within[order] = np.arange(len(rack)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    width = -(-sizes // _SLOTS)
    gap = 1 if count > 1 else 0
    first = np.cumsum(width + gap) - (width + gap)
    return first[rack] + within // _SLOTS, within % _SLOTS, first + (width - 1) / 2


def _told(name: str, gpus: int, kind: str, rack: str) -> str:
    what = f"{gpus} x {kind}" if gpus else "no GPU"
    place = _RACK.sub(r"rack \2 of \1", rack)
    return literal(f"{name}: {what}, {place}")


def _bands(colours: list[str]) -> list[list[float | str]]:
    """Return a colour scale of equal, unblended bands."""
    edges = np.linspace(0, 1, len(colours) + 1)
    return [[float(at), colour] for low, high, colour in zip(edges[:-1], edges[1:], colours, strict=True) for at in (low, high)]
