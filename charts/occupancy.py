"""Rows of machines over time as a heat map: how much of each is in use, or how two policies differ; and the strip below it that marks an instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.axes import TimeAxis, duration_text
from charts.theme import LINE_PX, NEUTRAL, TEXT_PX, Style, figure, literal

Trace = dict[str, Any]
Matrix = NDArray[np.float32]
MOST_CELLS: Final = 130_000
MOST_DOWN: Final = 500
"""Spells that are hatched in one grid; the shortest are left out beyond that."""
GUTTER: Final = 0.03
"""Part of the window that is left free at the right, for the marks to click on."""
PICK: Final = "pick"
"""Name of the trace of those marks; `y` of a mark is the label of its row."""
_DIVERGING: Final = [[0.0, "#00467F"], [0.25, "#4C93C3"], [0.5, "#DDE0E4"], [0.75, "#E08A3C"], [1.0, "#A84300"]]
_DOWN: Final = "#C3C8CF"
_HATCH: Final = "#4A5058"
_HALF: Final = 0.5
_ROWS_PX: Final = 560
_GAP_PX: Final = 34
_BAND_PX: Final = 54
_SCALE_PX: Final = 50
"""Top of the colour scale above the data, and how long it is."""
_SCALE_LONG_PX: Final = 160
_RIGHT_PX: Final = 16
_LABEL_CHARACTERS: Final = 26
_CHARACTER_PX: Final = 7.6


@dataclass(frozen=True, eq=False)
class Grid:
    """The rows of one policy, or of the difference of two.

    Parameters
    ----------
    label : str
        Above the grid.
    share : array of float32, rows x bins
        GPUs in use over the GPUs of the row, 0 to 1; for a difference −1 to 1.
    down : array of float32, rows x bins
        Share of the row that is down; hatched from a half on.
    """

    label: str
    share: Matrix
    down: Matrix


def row_labels(names: Sequence[str]) -> list[str]:
    """Return names that fit beside rows and differ from each other; of a long one the middle goes, because ids often differ at their end only."""
    short = [literal(name if len(name) <= _LABEL_CHARACTERS else f"{name[:10]}…{name[-15:]}") for name in names]
    seen: dict[str, int] = {}
    made = []
    for name in short:
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return made


def label_px(labels: Sequence[str]) -> int:
    """Return the room that labels need beside their rows, in pixels; figures with the same have their time axes below each other."""
    return round(min(max(20 + _CHARACTER_PX * max(map(len, labels), default=0), 64), 210))


def occupancy(grids: Sequence[Grid], labels: Sequence[str], x: TimeAxis, *, difference: bool = False, title: str = "") -> go.Figure:
    """Draw one heat map per grid below each other, with the same rows, time axis and colour scale.

    Parameters
    ----------
    grids : sequence of Grid
        From top to bottom, at least one, together at most `MOST_CELLS` cells.
    labels : sequence of str
        From `row_labels`, from top to bottom.
    x : TimeAxis
        The window, which the bins divide evenly.
    difference : bool
        Whether the values are differences: then the scale diverges from 0.
    title : str
        The finding or the question.
    """
    rows_px = min(max(_ROWS_PX / (len(labels) * len(grids)), 4.0), 26.0)
    each = max(round(rows_px * len(labels)), 60)
    total = each * len(grids) + _GAP_PX * (len(grids) - 1)
    traces: list[Trace] = []
    layout: dict[str, Any] = {"annotations": []}
    every = max(int(np.ceil(16 / rows_px)), 1)
    for at, grid in enumerate(grids):
        number, top = "" if at == 0 else str(at + 1), total - at * (each + _GAP_PX)
        axis = {
            "domain": [(top - each) / total, top / total],
            "anchor": "x",
            "type": "category",
            "range": [len(labels) - 0.5, -0.5],
            "dtick": every,
            "fixedrange": True,
        }
        # Without all of them named here the hatched spells, which come from some rows only, would change their order.
        layout[f"yaxis{number}"] = axis | {"categoryorder": "array", "categoryarray": list(labels), "showgrid": False, "ticks": ""}
        traces += [_cells(grid, labels, x, difference=difference) | {"yaxis": f"y{number}", "showscale": at == 0}]
        traces += [trace | {"yaxis": f"y{number}"} for trace in _over(grid, labels, x, rows_px)]
        if len(grids) > 1:
            layout["annotations"].append(_note(grid.label, top / total))
    layout["annotations"].append(_meaning("difference" if difference else "in use"))
    _once(traces)
    time = {"anchor": f"y{len(grids)}" if len(grids) > 1 else "y"} | widened(x) | {"showgrid": False}
    drawn = figure(traces, title, total, legend_px=_BAND_PX, hovermode="closest", barmode="overlay", bargap=0.0, xaxis=time, **layout)
    drawn.update_layout(margin={"l": label_px(labels), "r": _RIGHT_PX})
    # Relative to the figure, because a bar relative to the data pushes margins, and the title with them out of sight.
    below = float(drawn.layout.margin.b) + total + _SCALE_PX
    drawn.update_traces(selector={"type": "heatmap"}, colorbar={"yref": "container", "y": below / drawn.layout.height, "yanchor": "top"})
    return drawn


def widened(x: TimeAxis) -> dict[str, Any]:
    """Return the properties of a time axis with room for marks at the right."""
    axis = x.layout()
    begin, end = axis["range"]
    return axis | {"range": [begin, end + GUTTER * (end - begin)]}


def thinned(grids: Sequence[Grid]) -> list[Grid]:
    """Return grids of together at most `MOST_CELLS` cells: neighbouring bins become one, with their mean."""
    cells = sum(grid.share.size for grid in grids)
    bins = grids[0].share.shape[1]
    each = next((count for count in range(1, bins) if bins % count == 0 and cells <= MOST_CELLS * count), bins)
    return [Grid(grid.label, _coarser(grid.share, each), _coarser(grid.down, each)) for grid in grids]


def _coarser(cells: Matrix, each: int) -> Matrix:
    return cells if each == 1 else cells.reshape(len(cells), -1, each).mean(axis=2, dtype=np.float32)


def down_spells(grid: Grid) -> int:
    """Return how many spells of being down a grid has."""
    return len(spells(grid.down))


def left_out(grids: Sequence[Grid]) -> int:
    """Return how many spells of being down are too many to be hatched."""
    return sum(max(len(spells(grid.down)) - MOST_DOWN, 0) for grid in grids)


def spells(down: Matrix) -> NDArray[np.int64]:
    """Return when rows are down, as row, first bin, and bin after the last."""
    padded = np.zeros((down.shape[0], down.shape[1] + 2), np.int8)
    padded[:, 1:-1] = down >= _HALF
    turns = np.diff(padded, axis=1)
    row, first = np.nonzero(turns == 1)
    return np.column_stack((row, first, np.nonzero(turns == -1)[1]))


def _cells(grid: Grid, labels: Sequence[str], x: TimeAxis, *, difference: bool) -> Trace:
    edges = x.place(np.linspace(x.t0_s, x.t1_s, grid.share.shape[1] + 1)).astype(np.float64)
    # A per cent is finer than the eye on this scale, and a byte is a quarter of a float.
    per_cent = np.rint(100 * np.nan_to_num(grid.share))
    scale: Trace = {"zmin": 0, "zmax": 100, "colorscale": "Cividis"}
    bar: Trace = {"tickvals": [0, 50, 100], "ticktext": ["0 %", "50 %", "100 %"]}
    told = "%{z} % in use"
    if difference:
        scale = {"zmin": -100, "zmax": 100, "colorscale": _DIVERGING}
        bar = {"tickvals": [-100, 0, 100], "ticktext": ["−100 %", "0", "+100 %"]}
        told = "%{z:+d} percentage points"
    place = {"orientation": "h", "x": 1, "xanchor": "right", "ypad": 0, "xpad": 18, "ticklabeloverflow": "allow", "outlinewidth": 0}
    return {
        "type": "heatmap",
        "name": literal(grid.label),
        "z": np.clip(per_cent, -100, 100).astype(np.int8 if difference else np.uint8),
        "x0": (edges[0] + edges[1]) / 2,
        "dx": edges[1] - edges[0],
        "y": list(labels),
        "colorbar": {"thickness": 10, "len": _SCALE_LONG_PX, "lenmode": "pixels", "tickfont": {"size": TEXT_PX}, **place, **bar},
        "hovertemplate": f"{literal(grid.label)}<br>%{{y}}, {_instant(x)}<br>{told}<extra></extra>",
        "hoverongaps": False,
        **scale,
    }


def _over(grid: Grid, labels: Sequence[str], x: TimeAxis, rows_px: float) -> list[Trace]:
    """Return what lies over the cells: hatched spells, and one mark per row to click on."""
    bins = grid.down.shape[1]
    found = spells(grid.down)
    order = np.argsort(found[:, 1] - found[:, 2], kind="stable")[:MOST_DOWN]
    row, first, last = found[np.sort(order)].T
    edge_s = np.linspace(x.t0_s, x.t1_s, bins + 1)
    begin, end = (x.place(edge_s[at]).astype(np.float64) for at in (first, last))
    lasted = [duration_text(seconds) for seconds in edge_s[last] - edge_s[first]]
    pattern = {"shape": "/", "bgcolor": _DOWN, "fgcolor": _HATCH, "size": 6, "solidity": 0.35, "fillmode": "overlay"}
    down = {
        "type": "bar",
        "orientation": "h",
        "name": "down",
        "y": [labels[at] for at in row],
        "base": begin,
        "x": end - begin,
        "width": 1.0,
        "marker": {"color": _DOWN, "line": {"width": 0}, "pattern": pattern},
        "customdata": lasted,
        "hovertemplate": "%{y}<br>down for %{customdata}<extra></extra>",
    }
    ends = x.place(np.array([x.t0_s, x.t1_s])).astype(np.float64)
    pick = {
        "type": "scatter",
        "mode": "markers",
        "name": PICK,
        "showlegend": False,
        "y": list(labels),
        "x": np.full(len(labels), ends[1] + 0.55 * GUTTER * (ends[1] - ends[0])),
        "marker": {"symbol": "triangle-left", "size": min(max(rows_px - 1, 4), 11), "color": NEUTRAL},
        "unselected": {"marker": {"opacity": 1}},
        "hovertemplate": "click: the jobs of %{y}<extra></extra>",
    }
    return [down, pick] if len(row) else [pick]


def _once(traces: Sequence[Trace]) -> None:
    """Leave one legend entry for all hatched spells."""
    seen = False
    for trace in traces:
        if trace["type"] == "bar":
            trace["showlegend"], seen = not seen, True
            trace["legendgroup"] = "down"


def _meaning(text: str) -> dict[str, Any]:
    """Return what the colours are of, beside their scale."""
    place = {"xref": "paper", "x": 1, "xanchor": "right", "xshift": -_SCALE_LONG_PX - 40, "yref": "paper", "y": 1, "yanchor": "middle", "yshift": _SCALE_PX - 5}
    return {"text": text, "showarrow": False, "font": {"size": TEXT_PX, "color": NEUTRAL}, **place}


def _note(text: str, top: float) -> dict[str, Any]:
    place = {"xref": "paper", "x": 0, "xanchor": "left", "yref": "paper", "y": top, "yanchor": "bottom", "yshift": 2}
    return {"text": f"<b>{literal(text)}</b>", "showarrow": False, "font": {"size": TEXT_PX}, **place}


def _instant(x: TimeAxis) -> str:
    return "%{x|%Y-%m-%d %H:%M}" if x.epoch else f"%{{x:.2f}} {x.unit[1]}"


def instant_strip(queue: Mapping[str, pd.DataFrame], style: Style, x: TimeAxis, at_s: float, left_px: int) -> go.Figure:
    """Draw jobs waiting in a thin strip with a line at one instant; small, because it is drawn anew at every step.

    Parameters
    ----------
    queue : mapping of DataFrame
        By policy: reduced queue series, `t_s` and `waiting`.
    style : mapping
        From `policy_style`.
    x : TimeAxis
        The window.
    at_s : float, seconds
        The instant.
    left_px : int, pixels
        `label_px` of the figure above.
    """
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": literal(label),
            "x": x.place(series["t_s"].to_numpy(np.float64)),
            "y": series["waiting"].to_numpy(np.float32),
            "line": {"shape": "hv", "color": style[label][0], "dash": style[label][1], "width": LINE_PX},
            "hovertemplate": f"%{{y:,.0f}} waiting<extra>{literal(label)}</extra>",
        }
        for label, series in queue.items()
    ]
    at = float(x.place(np.array([at_s]))[0])
    most = max((float(series["waiting"].max()) for series in queue.values() if len(series)), default=0.0)
    marks = {"nticks": 3} if most > 3 else {"dtick": 1, "range": [0, max(most, 1.0) * 1.1]}
    y = {"rangemode": "tozero", "title": {"text": "jobs waiting"}, "fixedrange": True} | marks
    drawn = figure(traces, "", 78, hovermode="x unified", xaxis=widened(x) | {"fixedrange": True}, yaxis=y)
    drawn.update_layout(height=78 + 54, margin={"l": left_px, "r": _RIGHT_PX, "t": 8, "b": 46})
    drawn.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"color": "#D55E00", "width": 2})
    return drawn
