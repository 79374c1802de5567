"""Charts of a replay: published and simulated figures, measures over an axis, speed-ups."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from trainyard.views.charts.theme import (
    LINE_PX,
    NEUTRAL,
    TEXT_PX,
    Trace,
    figure,
    legend_entry,
    literal,
    narrow_legend_px,
    with_opacity,
)

MEASURES: Final = (
    *(
        ("#2A9D8F", "solid", "circle"),
        ("#AA4499", "dash", "square"),
        ("#999933", "dashdot", "diamond"),
        ("#6699CC", "dot", "triangle-up"),
    ),
    *(
        ("#8A7FD0", "longdash", "x"),
        ("#B5835A", "longdashdot", "cross"),
        ("#6FA843", "8px,2px,2px,2px", "pentagon"),
        ("#C98BB9", "2px,2px", "hexagon"),
    ),
)
"""Color, dash and mark of each measure; no policy has them."""


PUBLISHED: Final = "#D9822B"
"""Color of a paper's figure and of the expected band."""


LINES: Final = (("#CC5577", "6px,4px"), ("#44995F", "2px,3px"), ("#B08820", "9px,3px,2px,3px"))
"""Color and dash of computed bounds, drawn as lines without marks."""


_WIDE: Final = 10.0


_MAX_STOPS: Final = 10


_LABEL_CHARACTERS: Final = 28


_ROW_PX: Final = 42


_LINE_PX: Final = 19
"""Height of a line of a label; the marks next to it fit in `_ROW_PX`."""


_GAP_PX: Final = 10


_MARKS: Final = tuple(base * 10.0**power for power in range(-6, 7) for base in (1, 2, 5))
_CLAIMED: Final = "published"
_EXPECTED: Final = "expected band"
_EVEN: Final = "no difference"
_EVEN_LINE: Final = {"color": NEUTRAL, "width": 1.5}
ARMS: Final = (
    ("#2A9D8F", "solid", "circle"),
    ("#AA4499", "dash", "square"),
    ("#999933", "dashdot", "diamond"),
    ("#6699CC", "longdash", "triangle-up"),
)
"""Color, dash and mark of each arm, in the order of the frame; no policy has them."""
IDEAL: Final = "ideal"
_GAP: Final = 0.1
_PANEL_PX: Final = 190
_PANEL_GAP_PX: Final = 62
_IDEAL_NAME: Final = "as many times as GPUs"
_IMPOSSIBLE: Final = "cannot run so"
_CROSS: Final[Trace] = {"symbol": "x-thin", "size": 7}


class PublishedClaim(NamedTuple):
    """Published figure of one measure, with its axis value and expected band.

    Parameters
    ----------
    at : float
        Value of the axis it was measured at; NaN = not known.
    value : float
        The published figure; NaN = none.
    low, high : float
        The band in which a result is expected; NaN = none.
    """

    at: float = math.nan
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


def ratio_curve(
    table: pd.DataFrame,
    axis: str,
    claim: PublishedClaim | None = None,
    *,
    even: float = 1.0,
    value: str = "ratio",
    title: str = "",
) -> go.Figure:
    """Draw estimates as lines with confidence bands over an axis, and the published claim.

    Parameters
    ----------
    table : DataFrame
        One row per point: `value` (of the axis), `measure` (a line each), `low`, `estimate`,
        `high`, `seeds`. NaN = not to be had there. Where `computed`, if that column is there, is
        true, the measure is no result of a simulation: a dashed line without marks. Columns may be
        more.
    axis : str
        What the axis is, with its unit.
    claim : PublishedClaim or None
        The published figure and its band.
    even : float
        Where there is no difference: 1 for ratios, 0 for differences, NaN for plain values, which
        have no such place.
    value : str
        What the estimates are.
    title : str
        The finding or the question.

    Notes
    -----
    Both axes are logarithmic if everything on them is above 0 and the largest value is more than
    ten times the smallest; the x axis is marked where there are points.
    """
    marked = claim or PublishedClaim()
    traces = list[Trace]()
    names = list(dict.fromkeys(map(str, table["measure"])))
    lines = (
        list(dict.fromkeys(map(str, table.loc[table["computed"], "measure"])))
        if "computed" in table
        else []
    )
    results = [name for name in names if name not in lines]
    for name in names:
        mine = table[table["measure"].astype(str) == name].sort_values("value")
        if name in lines:
            traces.append(_line(mine, name, LINES[lines.index(name) % len(LINES)]))
        else:
            traces += _measure(mine, name, MEASURES[results.index(name) % len(MEASURES)])
    if np.isfinite([marked.at, marked.value]).all():
        traces.append(_published_mark(marked))
    banded = bool(np.isfinite([marked.low, marked.high]).all())
    if banded:
        traces.append(
            legend_entry(
                _EXPECTED,
                "markers",
                marker={"color": with_opacity(PUBLISHED, 0.35), "symbol": "square", "size": 12},
            )
        )
    if math.isfinite(even):
        traces.append(legend_entry(_EVEN, "lines", line=_EVEN_LINE))
    levels = np.concatenate(
        [
            table[["low", "estimate", "high"]].to_numpy(np.float64).ravel(),
            [even, marked.value, marked.low, marked.high],
        ]
    )
    y = {**_scale(levels), "title": {"text": value}}
    shown = [str(trace["name"]) for trace in traces if trace.get("showlegend", True)]
    x = {"title": {"text": axis}, **_stops(table["value"].to_numpy(np.float64))}
    drawn = figure(
        traces,
        title,
        280,
        legend_px=narrow_legend_px(shown),
        hovermode="x unified",
        xaxis=x,
        yaxis=y,
    )
    if banded:
        drawn.add_hrect(
            y0=marked.low,
            y1=marked.high,
            fillcolor=with_opacity(PUBLISHED, 0.15),
            line_width=0,
            layer="below",
        )
    return drawn.add_hline(y=even, line=_EVEN_LINE, layer="below") if math.isfinite(even) else drawn


def _measure(table: pd.DataFrame, name: str, look: tuple[str, str, str]) -> list[Trace]:
    """Return the traces of one measure: two edges of its band, then a line with marks."""
    colour, dash, symbol = look
    x, low, middle, high = (
        table[column].to_numpy(np.float64) for column in ("value", "low", "estimate", "high")
    )
    shown = literal(name)
    has_band = np.isfinite(low) & np.isfinite(high)
    edge: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": shown,
        "legendgroup": name,
        "showlegend": False,
        "hoverinfo": "skip",
        "x": x[has_band],
    }
    edge |= {"line": {"width": 0, "color": colour}}
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": shown,
        "legendgroup": name,
        "x": x,
        "y": middle,
        "connectgaps": False,
        "line": {"color": colour, "dash": dash, "width": LINE_PX},
        "marker": {"color": colour, "symbol": symbol, "size": 8},
        "customdata": [_hover_text(row) for row in zip(low, high, table["seeds"], strict=True)],
        "hovertemplate": f"{shown}: %{{y:.3~g}} %{{customdata}}<extra></extra>",
    }
    return [
        edge | {"y": low[has_band]},
        edge | {"y": high[has_band], "fill": "tonexty", "fillcolor": with_opacity(colour, 0.18)},
        line,
    ]


def _line(table: pd.DataFrame, name: str, look: tuple[str, str]) -> Trace:
    """Return the line of a computed measure, without marks; `look` = (color, dash)."""
    colour, dash = look
    return {
        "type": "scatter",
        "mode": "lines",
        "name": literal(name),
        "x": table["value"].to_numpy(np.float64),
        "y": table["estimate"].to_numpy(np.float64),
        "connectgaps": False,
        "line": {"color": colour, "dash": dash, "width": LINE_PX},
        "hovertemplate": f"{literal(name)}: %{{y:.3~g}} (computed)<extra></extra>",
    }


def _hover_text(row: tuple[float, float, float]) -> str:
    """Return the interval, if known, and the number of seeds of a point as text."""
    low, high, seeds = row
    runs = f"{seeds:.0f} seed{'' if seeds == 1 else 's'}"
    return (
        f"({low:.3g} to {high:.3g}, {runs})"
        if math.isfinite(low) and math.isfinite(high)
        else f"({runs})"
    )


def _published_mark(claim: PublishedClaim) -> Trace:
    """Return the mark of the published figure."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": _CLAIMED,
        "x": [claim.at],
        "y": [claim.value],
        "marker": {
            "color": PUBLISHED,
            "symbol": "star",
            "size": 15,
            "line": {"width": 1, "color": NEUTRAL},
        },
        "hovertemplate": f"{_CLAIMED}: %{{y:.3~g}}<extra></extra>",
    }


def _stops(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return an x axis with ticks at the values; {} for a single value or more than 10."""
    stops = np.unique(values[np.isfinite(values)])
    if not 1 < len(stops) <= _MAX_STOPS:
        return {}
    marks = {"tickvals": stops, "ticktext": [f"{stop:g}" for stop in stops], "tickangle": 0}
    return marks | ({"type": "log"} if stops[0] > 0 and stops[-1] / stops[0] > _WIDE else {})


def _scale(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return an axis range around all finite values; logarithmic over a factor of ten."""
    finite = values[np.isfinite(values)]
    low, high = float(finite.min(initial=math.inf)), float(finite.max(initial=-math.inf))
    if not low < high:
        middle = low if math.isfinite(low) else 1.0
        return {"range": [middle - 0.5, middle + 0.5]}
    if low > 0 and high / low > _WIDE:
        marks = [mark for mark in _MARKS if low / 1.3 <= mark <= high * 1.3]
        ends = [math.log10(low / 1.25), math.log10(high * 1.25)]
        return {
            "type": "log",
            "range": ends,
            "tickvals": marks,
            "ticktext": [f"{mark:g}" for mark in marks],
        }
    room = 0.08 * (high - low)
    return {"range": [low - room, high + room]}


def published_vs_simulated(rows: Sequence[Mapping[str, Any]], title: str = "") -> go.Figure:
    """Draw marks in one row per figure: published, simulated with interval, and band.

    Parameters
    ----------
    rows : sequence of mapping
        `metric`, `published` (None = no figure), `simulated` (None = not to be had), `ci95` and
        `band` (low, high; None = none, for a high end alone: open), as `trainyard replay` writes
        them; drawn from top to bottom.
    title : str
        The finding or the question.
    """
    at = np.arange(len(rows))
    published, simulated = (
        np.array([_number(row[name]) for row in rows]) for name in ("published", "simulated")
    )
    ci95, bands = (
        np.array([_pair(row[name]) for row in rows]).reshape(-1, 2) for name in ("ci95", "band")
    )
    x = _scale(np.concatenate((published, simulated, ci95.ravel(), bands.ravel(), [1.0])))
    bands[:, 1] = np.where(np.isfinite(bands[:, 0]) & np.isnan(bands[:, 1]), _end(x), bands[:, 1])
    traces = [
        _spans(bands, at, {"color": with_opacity(PUBLISHED, 0.35), "width": 14}, _EXPECTED),
        _spans(ci95, at, {"color": MEASURES[0][0], "width": LINE_PX}, "95 % interval"),
        _dots(
            simulated, at, "simulated", {"color": MEASURES[0][0], "symbol": "circle", "size": 12}
        ),
        _dots(
            published,
            at,
            _CLAIMED,
            {
                "color": PUBLISHED,
                "symbol": "star",
                "size": 15,
                "line": {"width": 1, "color": NEUTRAL},
            },
        ),
    ]
    traces = [trace for trace in traces if np.isfinite(trace["x"]).any()] + [
        legend_entry(_EVEN, "lines", line=_EVEN_LINE)
    ]
    names = [str(trace["name"]) for trace in traces]
    labels = [textwrap.wrap(str(row["metric"]), _LABEL_CHARACTERS) for row in rows]
    y = {
        "tickvals": at,
        "ticktext": ["<br>".join(map(literal, lines)) for lines in labels],
        "range": [len(rows) - 0.5, -0.5],
        "automargin": True,
        "showgrid": False,
    }
    row_px = max(_ROW_PX, _LINE_PX * max(map(len, labels), default=1) + _GAP_PX)
    drawn = figure(
        traces, title, 30 + row_px * len(rows), legend_px=narrow_legend_px(names), xaxis=x, yaxis=y
    )
    drawn.update_layout(legend_xref="container")
    return drawn.add_vline(x=1.0, line=_EVEN_LINE, layer="below")


def _end(axis: Mapping[str, Any]) -> float:
    """Return the highest value that an axis shows, also of a logarithmic axis."""
    high = float(axis["range"][1])
    return float(10.0**high) if axis.get("type") == "log" else high


def _spans(
    pairs: NDArray[np.float64], at: NDArray[np.int64], line: Mapping[str, Any], name: str
) -> Trace:
    """Return horizontal lines, one from low to high of each pair, at the rows `at`."""
    gap = np.full(len(pairs), np.nan)
    x, y = np.column_stack((pairs, gap)).ravel(), np.column_stack((at, at, gap)).ravel()
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": dict(line),
        "hoverinfo": "skip",
    }


def _dots(
    values: NDArray[np.float64], at: NDArray[np.int64], name: str, marker: Mapping[str, Any]
) -> Trace:
    """Return one mark per row: `values` against the rows `at`."""
    hover = f"{name}: %{{x:.3~g}}<extra></extra>"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": values,
        "y": at,
        "marker": dict(marker),
        "hovertemplate": hover,
    }


def _number(value: float | None) -> float:
    """Return a value as float; NaN for None."""
    return math.nan if value is None else float(value)


def _pair(value: Sequence[float | None] | None) -> tuple[float, float]:
    """Return a pair of values as floats; NaN for None."""
    low, high = value or (None, None)
    return _number(low), _number(high)


def speedup_figure(table: pd.DataFrame, title: str = "") -> go.Figure:
    """Draw speed-up against GPUs, one panel per class of jobs and one line per arm.

    Parameters
    ----------
    table : DataFrame
        One row per point: `class` (a panel each, two beside each other), `gpus`, `arm` (a line
        each), `speedup` (against one GPU at the best batch; NaN = the job cannot run so, which
        leaves a gap and a cross at the foot). An arm "ideal" is dotted; without one, speed-up =
        GPUs is drawn.
    title : str
        The finding or the question.
    """
    classes, arms = (list(dict.fromkeys(map(str, table[column]))) for column in ("class", "arm"))
    rows = max(-(-len(classes) // 2), 1)
    total = _PANEL_PX * rows + _PANEL_GAP_PX * (rows - 1)
    traces, layout = list[Trace](), dict[str, Any]()
    top = float(np.nanmax(table["speedup"].to_numpy(np.float64), initial=1.0))
    for at, name in enumerate(classes):
        mine, number = table[table["class"].astype(str) == name], "" if at == 0 else str(at + 1)
        own = _panel(mine, arms, top)
        traces += [
            trace
            | {
                "xaxis": f"x{number}",
                "yaxis": f"y{number}",
                "showlegend": trace.get("showlegend", True) and at == 0,
            }
            for trace in own
        ]
        row, column = divmod(at, 2)
        high = 1 - row * (_PANEL_PX + _PANEL_GAP_PX) / total
        left = column * (0.5 + _GAP / 2)
        place = {
            "domain": [max(high - _PANEL_PX / total, 0.0), high],
            "anchor": f"x{number}",
            "range": [-0.06 * top, 1.08 * top],
            "nticks": 6,
        }
        layout[f"yaxis{number}"] = place | ({"title": {"text": "speed-up"}} if column == 0 else {})
        last = at + 2 >= len(classes)
        layout[f"xaxis{number}"] = {
            "domain": [left, left + 0.5 - _GAP / 2],
            "anchor": f"y{number}",
            **_ticks(mine["gpus"].to_numpy(), last=last),
        }
        layout.setdefault("annotations", []).append(_heading(name, left, high))
    traces.append(
        legend_entry(
            _IMPOSSIBLE, "markers", marker=_CROSS | {"line": {"color": NEUTRAL, "width": LINE_PX}}
        )
    )
    names = [*[arm for arm in arms if arm != IDEAL], _IDEAL_NAME, _IMPOSSIBLE]
    return figure(
        traces,
        title,
        total,
        legend_px=narrow_legend_px(names) + 24,
        hovermode="x unified",
        **layout,
    )


def _panel(table: pd.DataFrame, arms: Sequence[str], top: float) -> list[Trace]:
    """Return a panel's traces: ideal line, a line per arm, crosses where a job cannot run."""
    gpus = np.unique(table["gpus"].to_numpy(np.float64))
    traces = [_ideal(table, gpus)]
    for at, arm in enumerate(arm for arm in arms if arm != IDEAL):
        of = table[table["arm"].astype(str) == arm].sort_values("gpus")
        x, y = of["gpus"].to_numpy(np.float64), of["speedup"].to_numpy(np.float64)
        colour, dash, symbol = ARMS[at % len(ARMS)]
        name = literal(arm)
        line = {"color": colour, "dash": dash, "width": LINE_PX}
        common: Trace = {"type": "scatter", "name": name, "legendgroup": arm, "x": x}
        traces.append(
            common
            | {
                "mode": "lines+markers",
                "y": y,
                "connectgaps": False,
                "line": line,
                "marker": {"color": colour, "symbol": symbol, "size": 7},
                "hovertemplate": f"{name}: %{{y:.2f}} x<extra></extra>",
            }
        )
        if np.isnan(y).any():
            traces.append(_impossible(common, x[np.isnan(y)], colour, -0.03 * top))
    return traces


def _ideal(table: pd.DataFrame, gpus: NDArray[np.float64]) -> Trace:
    """Return the dotted ideal line: the arm "ideal" if the table has it, else y = GPUs."""
    given = table[table["arm"].astype(str) == IDEAL].sort_values("gpus")
    x, y = (
        (gpus, gpus)
        if given.empty
        else (given["gpus"].to_numpy(np.float64), given["speedup"].to_numpy(np.float64))
    )
    line = {"color": NEUTRAL, "dash": "dot", "width": LINE_PX / 2}
    return {
        "type": "scatter",
        "name": _IDEAL_NAME,
        "legendgroup": IDEAL,
        "mode": "lines",
        "x": x,
        "y": y,
        "line": line,
        "hoverinfo": "skip",
    }


def _impossible(common: Trace, x: NDArray[np.float64], colour: str, foot: float) -> Trace:
    """Return crosses at height `foot`, at the numbers of GPUs where a job cannot run."""
    marks = _CROSS | {"color": colour, "line": {"color": colour, "width": LINE_PX}}
    text = f"{common['name']}: {_IMPOSSIBLE}<extra></extra>"
    return common | {
        "mode": "markers",
        "x": x,
        "y": np.full(len(x), foot),
        "marker": marks,
        "showlegend": False,
        "hovertemplate": text,
    }


def _ticks(gpus: NDArray[Any], *, last: bool) -> dict[str, Any]:
    """Return the x axis of a panel, over the range of its GPUs; only `last` has a title."""
    low, high = float(np.min(gpus, initial=1)), float(np.max(gpus, initial=1))
    title = {"title": {"text": "GPUs"}} if last else {}
    return {
        "range": [low - 0.4, high + 0.4],
        "dtick": 1 if high <= 12 else None,
        "unifiedhovertitle": {"text": "%{x} GPUs"},
        **title,
    }


def _heading(name: str, left: float, high: float) -> dict[str, Any]:
    """Return the title of a panel, as an annotation."""
    place = {
        "xref": "paper",
        "x": left,
        "xanchor": "left",
        "yref": "paper",
        "y": high,
        "yanchor": "bottom",
        "yshift": 4,
    }
    return {
        "text": f"<b>{literal(name)}</b>",
        "showarrow": False,
        "font": {"size": TEXT_PX},
        **place,
    }
