"""Charts of machines over time: use of nodes as a heat map, and the jobs of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from trainyard.views.charts.axes import TimeAxis, duration_text, mean_text
from trainyard.views.charts.lines import BAND
from trainyard.views.charts.theme import (
    DIVERGING,
    INK,
    JOB_COLOURS,
    LINE_PX,
    NEUTRAL,
    SEQUENTIAL,
    TEXT_PX,
    Style,
    Trace,
    figure,
    literal,
    with_opacity,
)

Matrix = NDArray[np.float32]


MAX_CELLS: Final = 130_000


MAX_DOWN_SPELLS: Final = 500
"""Maximum number of hatched spells in a grid; the shortest are left out."""


_DOWN: Final = "#C3C8CF"


_HATCH: Final = "#4A5058"


_HALF: Final = 0.5


_ROW_PX: Final = 18
_ROWS_PX: Final = 260
"""Maximum height of all rows of a grid."""
_GAP_PX: Final = 24
_TOP_PX: Final = 26
_QUEUE_PX: Final = 72
_AXIS_PX: Final = 40
_STRIP_PX: Final = 22
_SCALE_LONG_PX: Final = 120
_RIGHT_PX: Final = 16
_SCALE_END: Final = 0.92
"""Right end of the color scale, as a share of the width; buttons appear to its right."""


_LABEL_CHARACTERS: Final = 26


_CHARACTER_PX: Final = 7.6
_NAMED: Final = 120
"""Number of bars above which names do not fit."""
_LANE_PX: Final = 24
_ID_CHARACTERS: Final = 24


@dataclass(frozen=True, eq=False)
class Grid:
    """Use of the rows under one policy, or the difference of two.

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
    """Return unique row labels: long names cut in the middle, repeated ones with " #2"."""
    short = [
        literal(name if len(name) <= _LABEL_CHARACTERS else f"{name[:10]}…{name[-15:]}")
        for name in names
    ]
    counts: dict[str, int] = {}
    labels = []
    for name in short:
        counts[name] = counts.get(name, 0) + 1
        labels.append(name if counts[name] == 1 else f"{name} #{counts[name]}")
    return labels


def label_px(labels: Sequence[str]) -> int:
    """Return the width of row labels, in pixels."""
    return round(min(max(20 + _CHARACTER_PX * max(map(len, labels), default=0), 64), 210))


@dataclass(frozen=True, eq=False)
class Waiting:
    """Jobs waiting over time, for the window and the whole run.

    Parameters
    ----------
    window : mapping of DataFrame
        By policy: the reduced series of the window, `t_s`, `waiting` and, for means,
        `waiting_high`.
    whole : DataFrame
        The same of the whole run of the first policy of `window`, for the strip below.
    end_s : float, seconds
        Where the strip ends.
    """

    window: Mapping[str, pd.DataFrame]
    whole: pd.DataFrame
    end_s: float

    @property
    def is_mean(self) -> bool:
        """Whether values are means of bins with known maxima."""
        return any(
            "waiting_high" in series and bool((series["waiting_high"] > series["waiting"]).any())
            for series in self.window.values()
        )

    @property
    def title(self) -> str:
        """Title of the row, with the meaning of lines and bands; a phone has 45 characters."""
        if not self.is_mean:
            return "Jobs waiting"
        widths_s = (float(np.diff(series["t_s"])[0]) for series in self.window.values())
        mean = mean_text(max(widths_s)).replace("averages", "mean")
        return f"Jobs waiting: {mean}; pale band: highest"

    @property
    def strip_title(self) -> str:
        """Label of the strip, which shows the whole run of the first policy."""
        return f"{literal(next(iter(self.window))[:20])}, whole run"


def machines(
    grids: Sequence[Grid],
    labels: Sequence[str],
    x: TimeAxis,
    waiting: Waiting,
    style: Style,
    *,
    difference: bool = False,
) -> go.Figure:
    """Draw one heat map per grid, the queue on the same time axis, and a strip of the run.

    Parameters
    ----------
    grids : sequence of Grid
        From top to bottom, at least one, together at most `MAX_CELLS` cells.
    labels : sequence of str
        From `row_labels`, from top to bottom.
    x : TimeAxis
        The window, which the bins divide evenly.
    waiting : Waiting
        Jobs waiting.
    style : mapping
        Label of a policy -> (colour, dash).
    difference : bool
        Whether the values are differences: then the scale diverges from 0.
    """
    rows_px = min(_ROWS_PX / len(labels), _ROW_PX)
    each = max(round(rows_px * len(labels)), 36)
    edges = np.cumsum([0, *[each + _GAP_PX] * len(grids), _QUEUE_PX, _AXIS_PX, _STRIP_PX])
    total = int(edges[-1])

    def domain(top: int, height: int) -> list[float]:
        return [1 - (top + height) / total, 1 - top / total]

    traces: list[Trace] = []
    layout: dict[str, Any] = {
        "annotations": [
            _grid_title(waiting.title, 1 - edges[-4] / total),
            _grid_title("", _STRIP_PX / total)
            | {"text": waiting.strip_title, "yanchor": "top", "yshift": 0}
            | {"x": 1, "xanchor": "right"},
        ]
    }
    last = len(grids) + 1
    for at, grid in enumerate(grids):
        number = "" if at == 0 else str(at + 1)
        span = domain(int(edges[at]), each)
        layout[f"yaxis{number}"] = _rows_axis(labels, rows_px) | {"domain": span}
        cells = _cells(grid, labels, x, difference=difference)
        traces.append(cells | {"yaxis": f"y{number}", "showscale": at == 0})
        traces += [down | {"yaxis": f"y{number}"} for down in _down_bars(grid, labels, x)]
        colour = style[grid.label][0] if grid.label in style else NEUTRAL
        layout["annotations"].append(_grid_title(grid.label, span[1], colour))
    _merge_legend(traces)
    traces += _queue_lines(waiting, style, x, f"y{last}")
    layout[f"yaxis{last}"] = {
        "domain": domain(int(edges[-4]), _QUEUE_PX),
        "rangemode": "tozero",
        "nticks": 3,
        "fixedrange": True,
    }
    strip, whole = _strip(waiting, x, f"y{last + 1}")
    traces += strip
    layout |= {
        f"yaxis{last + 1}": {
            "domain": domain(total - _STRIP_PX, _STRIP_PX),
            "rangemode": "tozero",
            "showticklabels": False,
            "showgrid": False,
            "fixedrange": True,
        },
        "xaxis2": whole | {"anchor": f"y{last + 1}"},
    }
    # Smaller text keeps the days of a week apart in a narrow window.
    time = x.layout() | {"tickfont": {"size": 13, "color": NEUTRAL}}
    drawn = figure(
        traces,
        "",
        total,
        hovermode=False,
        dragmode="select",
        selectdirection="h",
        modebar={"remove": ["zoom", "pan", "zoomIn", "zoomOut", "resetScale"]},
        barmode="overlay",
        bargap=0.0,
        xaxis=time | {"anchor": f"y{last}", "showgrid": False},
        **layout,
    )
    margin = {"l": label_px(labels), "r": _RIGHT_PX, "t": _TOP_PX, "b": 8}
    drawn.update_layout(height=total + _TOP_PX + 8, margin=margin)
    drawn.update_traces(
        selector={"type": "heatmap"},
        # At the very top a saved picture would cut it off.
        colorbar={"yref": "container", "y": 1 - 8 / (total + _TOP_PX + 8), "yanchor": "top"},
    )
    return drawn


def _rows_axis(labels: Sequence[str], rows_px: float) -> dict[str, Any]:
    """Return the y axis of a grid: one category per row, first on top, some of them labeled."""
    # Naming all rows keeps their order when hatched spells exist only on some.
    return {
        "anchor": "x",
        "type": "category",
        "range": [len(labels) - 0.5, -0.5],
        "dtick": max(int(np.ceil(16 / rows_px)), 1),
        "categoryorder": "array",
        "categoryarray": list(labels),
        "showgrid": False,
        "ticks": "",
        "fixedrange": True,
    }


def _queue_lines(waiting: Waiting, style: Style, x: TimeAxis, axis: str) -> list[Trace]:
    """Return a line per policy; if values are means, also a band up to the longest queue."""
    bands: list[Trace] = []
    lines: list[Trace] = []
    for label, series in waiting.window.items():
        colour = style[label][0]
        line: Trace = {
            "type": "scatter",
            "mode": "lines",
            "name": literal(label),
            "x": x.place(series["t_s"].to_numpy(np.float64)),
            "y": series["waiting"].to_numpy(np.float32),
            "yaxis": axis,
            "line": {"shape": "hv", "color": colour, "width": LINE_PX},
        }
        lines.append(line)
        if waiting.is_mean:
            edge = line | {
                "line": {"shape": "hv", "width": 0},
                "fillcolor": with_opacity(colour, BAND),
            }
            top = {"y": series["waiting_high"].to_numpy(np.float32), "fill": "tonexty"}
            bands += [edge, edge | top]
    return [*bands, *lines]


def _strip(waiting: Waiting, x: TimeAxis, axis: str) -> tuple[list[Trace], dict[str, Any]]:
    """Return the strip of the whole run, the part in the window darker, and its axis of time."""
    whole = TimeAxis(0.0, waiting.end_s, x.epoch)
    t_s = waiting.whole["t_s"].to_numpy(np.float64)
    height = waiting.whole["waiting"].to_numpy(np.float32)
    inside = (t_s >= x.t0_s) & (t_s <= x.t1_s)
    look: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": whole.place(t_s),
        "xaxis": "x2",
        "yaxis": axis,
        "fill": "tozeroy",
        "line": {"width": 0, "shape": "hv"},
    }
    parts = [(height, 0.25), (np.where(inside, height, 0.0).astype(np.float32), 0.5)]
    traces = [look | {"y": y, "fillcolor": with_opacity(NEUTRAL, opacity)} for y, opacity in parts]
    shown = {name: value for name, value in whole.layout().items() if name in ("type", "range")}
    return traces, shown | {"showticklabels": False, "showgrid": False}


def thin_grids(grids: Sequence[Grid]) -> list[Grid]:
    """Return grids of `MAX_CELLS` cells in total or fewer; neighboring bins are averaged."""
    cells = sum(grid.share.size for grid in grids)
    bins = grids[0].share.shape[1]
    each = next(
        (count for count in range(1, bins) if bins % count == 0 and cells <= MAX_CELLS * count),
        bins,
    )
    return [
        Grid(grid.label, _coarser(grid.share, each), _coarser(grid.down, each)) for grid in grids
    ]


def _coarser(cells: Matrix, each: int) -> Matrix:
    """Return cells with groups of neighboring bins replaced by their mean."""
    return (
        cells if each == 1 else cells.reshape(len(cells), -1, each).mean(axis=2, dtype=np.float32)
    )


def down_spells(grid: Grid) -> int:
    """Return the number of spells of downtime in a grid."""
    return len(spells(grid.down))


def hidden_spells(grids: Sequence[Grid]) -> int:
    """Return the number of spells of downtime beyond the limit per grid, which are not hatched."""
    return sum(max(len(spells(grid.down)) - MAX_DOWN_SPELLS, 0) for grid in grids)


def spells(down: Matrix) -> NDArray[np.int64]:
    """Return the runs of bins with half a row or more down: (row, first bin, bin after last)."""
    padded = np.zeros((down.shape[0], down.shape[1] + 2), np.int8)
    padded[:, 1:-1] = down >= _HALF
    turns = np.diff(padded, axis=1)
    row, first = np.nonzero(turns == 1)
    return np.column_stack((row, first, np.nonzero(turns == -1)[1]))


def _cells(grid: Grid, labels: Sequence[str], x: TimeAxis, *, difference: bool) -> Trace:
    """Return the heat map of a grid in whole percent; a difference has a scale around 0."""
    edges = x.place(np.linspace(x.t0_s, x.t1_s, grid.share.shape[1] + 1)).astype(np.float64)
    # Whole percents suffice for the eye, and a byte is a quarter of a float.
    per_cent = np.rint(100 * np.nan_to_num(grid.share))
    scale: Trace = {"zmin": 0, "zmax": 100, "colorscale": SEQUENTIAL}
    bar: Trace = {"tickvals": [0, 50, 100], "ticktext": ["0 %", "in use", "100 %"]}
    if difference:
        scale = {"zmin": -100, "zmax": 100, "colorscale": DIVERGING}
        bar = {"tickvals": [-100, 0, 100], "ticktext": ["−100 %", "0", "+100 %"]}
    place = {
        "orientation": "h",
        "x": _SCALE_END,
        "xanchor": "right",
        "ypad": 0,
        "xpad": 18,
        "ticklabeloverflow": "allow",
        "outlinewidth": 0,
    }
    return {
        "type": "heatmap",
        "name": literal(grid.label),
        "z": np.clip(per_cent, -100, 100).astype(np.int8 if difference else np.uint8),
        "x0": (edges[0] + edges[1]) / 2,
        "dx": edges[1] - edges[0],
        "y": list(labels),
        "colorbar": {
            "thickness": 10,
            "len": _SCALE_LONG_PX,
            "lenmode": "pixels",
            "tickfont": {"size": TEXT_PX},
            **place,
            **bar,
        },
        **scale,
    }


def _down_bars(grid: Grid, labels: Sequence[str], x: TimeAxis) -> list[Trace]:
    """Return the longest spells of downtime, at most 500, as one hatched trace; [] if none."""
    bins = grid.down.shape[1]
    down_spells = spells(grid.down)
    order = np.argsort(down_spells[:, 1] - down_spells[:, 2], kind="stable")[:MAX_DOWN_SPELLS]
    row, first, last = down_spells[np.sort(order)].T
    edge_s = np.linspace(x.t0_s, x.t1_s, bins + 1)
    begin, end = (x.place(edge_s[at]).astype(np.float64) for at in (first, last))
    pattern = {
        "shape": "/",
        "bgcolor": _DOWN,
        "fgcolor": _HATCH,
        "size": 6,
        "solidity": 0.35,
        "fillmode": "overlay",
    }
    down = {
        "type": "bar",
        "orientation": "h",
        "name": "down",
        "y": [labels[at] for at in row],
        "base": begin,
        "x": end - begin,
        "width": 1.0,
        "marker": {"color": _DOWN, "line": {"width": 0}, "pattern": pattern},
    }
    return [down] if len(row) else []


def _merge_legend(traces: Sequence[Trace]) -> None:
    """Change bar traces in place: all in one legend group, only the first in the legend."""
    seen = False
    for trace in traces:
        if trace["type"] == "bar":
            trace["showlegend"], seen = not seen, True
            trace["legendgroup"] = "down"


def _grid_title(text: str, top: float, colour: str = NEUTRAL) -> dict[str, Any]:
    """Return the title above a grid or the queue, as an annotation."""
    place = {
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "yref": "paper",
        "y": top,
        "yanchor": "bottom",
        "yshift": 2,
    }
    return {
        "text": f"<b>{literal(text)}</b>",
        "showarrow": False,
        "font": {"size": TEXT_PX, "color": colour},
        **place,
    }


def node_jobs(bars: pd.DataFrame, size: tuple[int, str], x: TimeAxis, title: str = "") -> go.Figure:
    """Draw the jobs of one node as bars: length is time, height GPUs or cores held.

    Parameters
    ----------
    bars : DataFrame
        `job`, `id`, `user`, `t0` and `t1` in seconds, `gpus`, and `lane`, the lowest of its lanes;
        at most 1,500 rows, drawn in this order.
    size : (int, str)
        GPUs or cores of the node, one lane each, and which of them: "GPU" or "core".
    x : TimeAxis
        The window.
    title : str
        The finding or the question.

    Notes
    -----
    Neighboring jobs differ in color, and a job keeps its color; colors have no other meaning.
    """
    (lanes, unit), gap = size, min(0.1, 0.02 * size[0])
    begin, end = (
        x.place(bars[name].to_numpy(np.float64)).astype(np.float64) for name in ("t0", "t1")
    )
    held = bars["gpus"].to_numpy(np.float64)
    names = [short_name(str(job)) for job in bars["id"]]
    lasted = bars["t1"].to_numpy(np.float64) - bars["t0"].to_numpy(np.float64)
    hovers = [
        f"job {name}{f' of {literal(short_name(str(user)))}' if str(user) else ''}<br>{count:g}"
        f" {unit}{'' if count == 1 else 's'} for {duration_text(seconds)}"
        for name, user, count, seconds in zip(
            map(literal, names), bars["user"], held, lasted, strict=True
        )
    ]
    scale = [
        [(at + edge) / len(JOB_COLOURS), colour]
        for at, colour in enumerate(JOB_COLOURS)
        for edge in (0, 1)
    ]
    colour = (bars["job"].to_numpy(np.int64) % len(JOB_COLOURS)).astype(np.uint8)
    trace: Trace = {
        "type": "bar",
        "orientation": "h",
        "base": begin,
        "x": end - begin,
        "y": bars["lane"].to_numpy(np.float64) + held / 2,
        "width": held - gap,
        "marker": {
            "color": colour,
            "colorscale": scale,
            "cmin": -0.5,
            "cmax": len(JOB_COLOURS) - 0.5,
            "line": {"width": 0},
        },
        "text": [literal(name) for name in names] if len(bars) <= _NAMED else None,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": INK, "size": 12},
        "hovertext": hovers,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    y = {
        "range": [0, max(lanes, 1)],
        "dtick": max(1, lanes // 8),
        "title": {"text": f"{unit}s of the node"},
        "fixedrange": True,
    }
    text = {"mode": "hide", "minsize": 12}
    height = min(max(_LANE_PX * lanes, 96), 384)
    return figure(
        [trace],
        title,
        height,
        hovermode="closest",
        barmode="overlay",
        uniformtext=text,
        xaxis=x.layout(),
        yaxis=y,
    )


def short_name(name: str) -> str:
    """Return a job or user name for a bar; names above 24 characters are cut in the middle."""
    return name if len(name) <= _ID_CHARACTERS else f"{name[:8]}…{name[-14:]}"
