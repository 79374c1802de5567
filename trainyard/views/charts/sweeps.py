"""Charts of sweeps and of searches for the fewest nodes: lines, maps and tried sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from trainyard.views.charts.axes import duration_text, duration_unit
from trainyard.views.charts.theme import (
    DIVERGING,
    LINE_PX,
    NEUTRAL,
    SEQUENTIAL,
    TEXT,
    TEXT_PX,
    Style,
    Trace,
    figure,
    legend_entry,
    legend_px,
    literal,
    narrow_legend_px,
    with_opacity,
)

Floats = NDArray[np.float64]


FAILED: Final = "run failed"


_TIMES: Final = (
    (90.0, 1.0, "seconds"),
    (2 * 3600.0, 60.0, "minutes"),
    (4 * 86_400.0, 3600.0, "hours"),
    (np.inf, 86_400.0, "days"),
)


_MAX_TICKS: Final = 12


_MAX_LABELED: Final = 60
"""Number of cells above which values do not fit."""
_HEADROOM: Final = 5.0
"""End of the axis as a multiple of the target, so that the target stays visible."""
_ROOM: Final = 1.2
_FIRST: Final = "fewest nodes that hold"
_ABOVE: Final = "above the chart"
_MAX_COUNTS: Final = 24
_LINE: Final = {"color": NEUTRAL, "width": 2, "dash": "dash"}
_CHEAPEST: Final = "cheapest that holds"
_HEIGHT_PX: Final = 380
_CURVE_PX: Final = 248
"""Height of the data of a capacity curve; 340 with title and axis."""


class Amount(NamedTuple):
    """A drawn quantity: metric title, unit ("s", "1", "USD" or ""), relative change or not."""

    title: str
    unit: str
    change: bool = False


def unit_of(unit: str, top: float) -> tuple[float, str]:
    """Return (divisor, unit name) for an axis up to `top`: s, minutes, ... for "s", % for "1"."""
    if unit != "s":
        return (0.01, "%") if unit == "1" else (1.0, unit)
    return next((size, name) for limit, size, name in _TIMES if top <= limit)


def value_text(amount: Amount, value: float) -> str:
    """Return a value with its unit for hover labels and cells; "no figure" if not finite."""
    if not np.isfinite(value):
        return "no figure"
    if amount.change:
        return f"{100 * value:+.3g} %".replace("-", "−")
    return {"s": duration_text(value), "1": f"{100 * value:.3g} %", "USD": f"${value:,.2f}"}.get(
        amount.unit, f"{value:,.4g}"
    )


def sweep_curve(
    table: pd.DataFrame,
    style: Style,
    amount: Amount,
    axis: str,
    ends: tuple[float, float] | None = None,
    title: str = "",
) -> go.Figure:
    """Draw a metric over the axis of a sweep, one line with dots and a band per policy.

    Parameters
    ----------
    table : DataFrame
        `x` (numbers, or names), `policy`, `value`, `low`, `high` (NaN = no band), `failed` (runs
        without numbers); any order.
    style : mapping
        From `policy_style`.
    amount : Amount
        What the values are.
    axis : str
        What varies, with its unit.
    ends : (float, float) or None
        Least and greatest value of what varies, so that the axis stays while results come; None =
        those of the table.
    title : str
        The finding or the question.
    """
    top = (
        float(np.nanmax(np.abs(table[["value", "high"]].to_numpy(np.float64)), initial=0.0))
        if table["value"].notna().any()
        else 0.0
    )
    size, unit = (0.01, "%") if amount.change else unit_of(amount.unit, top)
    numeric = pd.api.types.is_numeric_dtype(table["x"])
    ordered = table.sort_values("x", kind="stable") if numeric else table
    names = [name for name in style if (table["policy"] == name).any()]
    traces = [
        trace
        for name in names
        for trace in policy_lines(
            ordered[ordered["policy"] == name], name, style[name], (size, amount)
        )
    ]
    floor = (
        min(float(np.nanmin(table[["value", "low"]].to_numpy(np.float64), initial=0.0)) / size, 0.0)
        if len(table)
        else 0.0
    )
    marks = [_failed_marks(table, style, floor)] if (table["failed"] > 0).any() else []
    legend = [*map(literal, names), *([FAILED] if marks else [])]
    y = {
        "title": {
            "text": (
                f"change of {amount.title}, %"
                if amount.change
                else f"{amount.title}{f', {unit}' if unit else ''}"
            )
        },
        "rangemode": "tozero",
    }
    x: Trace = {
        "title": {"text": literal(axis)},
        **(_stops(table["x"].to_numpy(np.float64)) if numeric else {"type": "category"}),
    }
    if numeric and ends is not None and ends[0] < ends[1]:
        room = 0.04 * (ends[1] - ends[0])
        x |= {"range": [ends[0] - room, ends[1] + room]}
    drawn = figure(
        [*traces, *marks],
        title,
        300,
        legend_px=narrow_legend_px(legend),
        hovermode="closest",
        xaxis=x,
        yaxis=y,
    )
    return (
        drawn.add_hline(y=0, line={"color": NEUTRAL, "width": 1.5}, layer="below")
        if amount.change
        else drawn
    )


def policy_lines(
    table: pd.DataFrame, name: str, look: tuple[str, str], scale: tuple[float, Amount]
) -> list[Trace]:
    """Return the traces of one policy: a band where low < high, and a line with dots.

    `look` = (color, dash); `scale` = (divisor of the values, what they are).
    """
    (colour, dash), (size, amount), shown = look, scale, literal(name)
    low, high, values = (table[column].to_numpy(np.float64) for column in ("low", "high", "value"))
    x, banded = table["x"].to_numpy(), np.isfinite(low) & np.isfinite(high) & (high > low)
    edge: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": shown,
        "legendgroup": shown,
        "showlegend": False,
        "hoverinfo": "skip",
        "x": x[banded],
    }
    edge |= {"line": {"width": 0, "color": colour}}
    hovers = [_hover_text(amount, row) for row in zip(values, low, high, strict=True)]
    line: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": shown,
        "legendgroup": shown,
        "x": x,
        "y": values / size,
        "connectgaps": False,
        "line": {"color": colour, "dash": dash, "width": LINE_PX},
        "marker": {"color": colour, "size": 7},
        "customdata": hovers,
        "hovertemplate": f"{shown}, %{{x}}: %{{customdata}}<extra></extra>",
    }
    band = [
        edge | {"y": low[banded] / size},
        edge
        | {"y": high[banded] / size, "fill": "tonexty", "fillcolor": with_opacity(colour, 0.18)},
    ]
    return [*(band if banded.any() else []), line]


def sweep_map(
    every: pd.DataFrame, policy: str, amount: Amount, axes: tuple[str, str], title: str = ""
) -> go.Figure:
    """Draw a metric of one policy over two axes: a heat map, or dots if most cells are empty.

    Parameters
    ----------
    every : DataFrame
        `x`, `y`, `policy`, `value`; a pair that is not there has not been run. The colours are
        those of all policies, so that maps can be compared.
    policy : str
        The one that is drawn.
    amount : Amount
        What the values are; changes get a scale whose middle is no difference.
    axes : (str, str)
        What varies along x and along y.
    title : str
        The finding or the question.
    """
    table = every[every["policy"] == policy]
    grid = (
        table.pivot_table(index="y", columns="x", values="value", sort=True, dropna=False)
        if len(table)
        else pd.DataFrame()
    )
    values = table["value"].to_numpy(np.float64)
    of_all = every["value"].to_numpy(np.float64)
    finite = of_all[np.isfinite(of_all)] if np.isfinite(of_all).any() else np.zeros(1)
    size, unit = (0.01, "%") if amount.change else unit_of(amount.unit, float(finite.max()))
    most = float(np.abs(finite).max()) / size
    low, high = (
        (-most, most) if amount.change else (float(finite.min()) / size, float(finite.max()) / size)
    )
    low, high = (low, high) if low < high else (low - 0.5, high + 0.5)
    trace: Trace
    colours = DIVERGING if amount.change else SEQUENTIAL
    bar = {
        "title": {"text": unit or amount.title, "side": "top", "font": {"size": TEXT_PX}},
        "thickness": 14,
    }
    if grid.size and grid.notna().to_numpy().mean() >= 0.5:
        trace = _cells(grid, amount, size) | {
            "zmin": low,
            "zmax": high,
            "colorscale": colours,
            "colorbar": bar,
        }
    else:
        marker = {
            "color": values / size,
            "size": 12,
            "colorbar": bar,
            "colorscale": colours,
            "showscale": True,
            "cmin": low,
            "cmax": high,
            "line": {"color": NEUTRAL, "width": 1},
        }
        hovers = [value_text(amount, value) for value in values]
        hover = {"customdata": hovers, "hovertemplate": "%{x}, %{y}: %{customdata}<extra></extra>"}
        trace = {
            "type": "scatter",
            "mode": "markers",
            "x": table["x"].tolist(),
            "y": table["y"].tolist(),
            "marker": marker,
            **hover,
        }
    x, y = (
        {"title": {"text": literal(name)}, **_stops_of(table[column])}
        for name, column in zip(axes, ("x", "y"), strict=True)
    )
    return figure([trace], title, 280, hovermode="closest", xaxis=x, yaxis=y)


def _cells(grid: pd.DataFrame, amount: Amount, size: float) -> Trace:
    """Return a heat map of equally large cells; with values as text up to 60 cells."""
    z = grid.to_numpy(np.float64)
    hovers = [[value_text(amount, value) for value in row] for row in z]
    # Categories give equally large cells, whatever the distances of the values.
    x, y = (
        [f"{value:g}" if isinstance(value, (int, float)) else str(value) for value in names]
        for names in (grid.columns, grid.index)
    )
    few = (
        {"texttemplate": "%{text}", "textfont": {"size": 12, "color": TEXT}}
        if z.size <= _MAX_LABELED
        else {}
    )
    hover = "%{x}, %{y}: %{text}<extra></extra>"
    return {
        "type": "heatmap",
        "x": x,
        "y": y,
        "z": z / size,
        "text": hovers,
        "hovertemplate": hover,
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        **few,
    }


def _failed_marks(table: pd.DataFrame, style: Style, floor: float) -> Trace:
    """Return crosses at height `floor`, where runs of the policies in `style` failed."""
    lost = table[(table["failed"] > 0) & table["policy"].isin(list(style))]
    hovers = [
        f"{literal(str(policy))}: {count:.0f} {'run' if count == 1 else 'runs'} failed"
        for policy, count in zip(lost["policy"], lost["failed"], strict=True)
    ]
    colours = [style[policy][0] for policy in lost["policy"]]
    marker = {"symbol": "x", "size": 9, "color": colours}
    hover = {"customdata": hovers, "hovertemplate": "%{x}: %{customdata}<extra></extra>"}
    return {
        **legend_entry(FAILED, "markers", marker=marker),
        "x": lost["x"].to_numpy(),
        "y": np.full(len(lost), floor),
        "hoverinfo": None,
        "cliponaxis": False,
        **hover,
    }


def _hover_text(amount: Amount, row: tuple[float, float, float]) -> str:
    """Return a value as text, with its interval (low, high) if it has one."""
    value, low, high = row
    between = (
        f" ({value_text(amount, low)} to {value_text(amount, high)})"
        if np.isfinite([low, high]).all() and high > low
        else ""
    )
    return f"{value_text(amount, value)}{between}"


def _stops(values: Floats) -> Trace:
    """Return an axis with ticks at the values; {} for a single value or more than 12."""
    stops = np.unique(values[np.isfinite(values)])
    return (
        {"tickvals": stops, "ticktext": [f"{stop:g}" for stop in stops], "tickangle": 0}
        if 1 < len(stops) <= _MAX_TICKS
        else {}
    )


def _stops_of(values: pd.Series[Any]) -> Trace:
    """Return axis properties for a column: a category axis unless it holds numbers."""
    return {"tickangle": 0} if pd.api.types.is_numeric_dtype(values) else {"type": "category"}


class SweepTarget(NamedTuple):
    """A target: its metric, the limit in the metric's unit, and whether lower is better."""

    amount: Amount
    limit: float
    lower: bool = True


def capacity_curve(
    table: pd.DataFrame, style: Style, target: SweepTarget, sizes: tuple[int, int], nodes: str
) -> go.Figure:
    """Draw a metric against the number of nodes, one line per policy, with the target.

    Rings mark the smallest size of each policy that meets it.

    Parameters
    ----------
    table : DataFrame
        `policy`, `size`, `value`, `low`, `high` (least and greatest of the repeats), `holds`; one
        row per policy and size that was tried.
    style : mapping
        From `policy_style`.
    target : SweepTarget
        What must be reached.
    sizes : (int, int)
        The range that is drawn, both ends included.
    nodes : str
        What the sizes count, e.g. "A100 nodes".
    """
    ordered = table.sort_values(["policy", "size"]).assign(x=lambda one: one["size"])
    top = _top(ordered, target)
    size, unit = unit_of(target.amount.unit, max(top, abs(target.limit)))
    names = [name for name in style if (ordered["policy"] == name).any()]
    traces = [
        trace
        for name in names
        for trace in policy_lines(
            ordered[ordered["policy"] == name], name, style[name], (size, target.amount)
        )
    ]
    more = [
        _smallest_marks(ordered, style, size),
        _off_axis_marks(ordered, style, (top, size), target.amount),
    ]
    traces += [trace for trace in more if trace is not None]
    y = {
        "title": {"text": f"{target.amount.title}{f', {unit}' if unit else ''}"},
        "range": [0, 1.06 * top / size or 1.0],
    }
    x = {"title": {"text": nodes}, **_counts(*sizes)}
    drawn = figure(
        traces,
        f"{target.amount.title} by number of {nodes}",
        _CURVE_PX,
        hovermode="closest",
        xaxis=x,
        yaxis=y,
    )
    text = f"target {value_text(target.amount, target.limit)}"
    return drawn.add_hline(
        y=target.limit / size,
        line=_LINE,
        layer="below",
        annotation={"text": text, "font": {"size": TEXT_PX, "color": NEUTRAL}},
        annotation_position="top right",
    )


class NodeRange(NamedTuple):
    """Name and range of a row of nodes that varies."""

    name: str
    low: int
    high: int


def mix_map(
    table: pd.DataFrame,
    target: SweepTarget,
    rows: tuple[NodeRange, NodeRange],
    chosen: tuple[int, int] | None,
    title: str = "",
) -> go.Figure:
    """Draw a mark per tried mix of two rows of nodes: a dot if it meets the target, or a cross.

    Parameters
    ----------
    table : DataFrame
        `size` and `second` (nodes of both rows), `value`, `holds`, `usd_per_h`; mixes that are not
        there were not tried and stay empty.
    target : SweepTarget
        What must be reached.
    rows : (NodeRange, NodeRange)
        What varies along x and along y.
    chosen : (int, int) or None
        The cheapest mix that holds.
    title : str
        The finding or the question.
    """
    traces = [_mixes(table[table["holds"] == holds], target, holds) for holds in (True, False)]
    if chosen is not None:
        ring = {"symbol": "circle-open", "size": 24, "color": "#D55E00", "line": {"width": 3}}
        traces.append(
            legend_entry(_CHEAPEST, "markers", marker=ring) | {"x": [chosen[0]], "y": [chosen[1]]}
        )
    legend = [str(trace["name"]) for trace in traces]
    x, y = (
        {"title": {"text": literal(f"{row.name} nodes")}, **_counts(row.low, row.high)}
        for row in rows
    )
    return figure(
        traces,
        title,
        320,
        legend_px=narrow_legend_px(legend),
        hovermode="closest",
        xaxis=x,
        yaxis=y,
    )


def _counts(low: int, high: int) -> Trace:
    """Return the axis of a number of nodes from `low` to `high`, with whole numbers only."""
    axis: Trace = {"range": [low - 0.5, high + 0.5], "tickformat": "d"}
    return axis | ({"dtick": 1} if high - low < _MAX_COUNTS else {})


def _top(table: pd.DataFrame, target: SweepTarget) -> float:
    """Return where the y axis ends, in the metric's unit; the target is always inside.

    If lower is better, values far above the target are cut off, but not the best of a policy.
    """
    highest = (
        float(np.nanmax(table[["value", "high"]].to_numpy(np.float64), initial=0.0))
        if table["value"].notna().any()
        else 0.0
    )
    if not target.lower or target.limit <= 0:
        return max(highest, target.limit, 0.0)
    # The value of each policy closest to the target must be visible too.
    nearest = (
        float(np.nanmax(table.groupby("policy")["value"].min().to_numpy(np.float64), initial=0.0))
        if table["value"].notna().any()
        else 0.0
    )
    return max(min(highest, max(_HEADROOM * target.limit, _ROOM * nearest)), _ROOM * target.limit)


def _smallest_marks(table: pd.DataFrame, style: Style, size: float) -> Trace | None:
    """Return numbered rings at the smallest size of each policy that holds; None if none."""
    held = table[table["holds"]].sort_values("size").drop_duplicates("policy")
    held = held[held["policy"].isin(list(style))]
    if held.empty:
        return None
    colours = [style[policy][0] for policy in held["policy"]]
    # Equal numbers would overlap.
    named = held.index.isin(held.sort_values("value").drop_duplicates("size", keep="last").index)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": _FIRST,
        "showlegend": False,
        "hoverinfo": "skip",
        "marker": {
            "symbol": "circle-open",
            "size": 16,
            "color": colours,
            "line": {"width": 3},
        },
        "text": (held["size"].astype(str) + "\u2002").where(named, "").tolist(),
        "textposition": "middle left",
        "textfont": {"size": TEXT_PX, "color": colours},
        "cliponaxis": False,
        "x": held["size"].to_numpy(),
        "y": held["value"].to_numpy(np.float64) / size,
    }


def _off_axis_marks(
    table: pd.DataFrame, style: Style, ends: tuple[float, float], amount: Amount
) -> Trace | None:
    """Return triangles at the top of the axis for values above it; None without any."""
    top, size = ends
    over = table[(table["value"] > 1.06 * top) & table["policy"].isin(list(style))]
    if over.empty:
        return None
    hovers = [
        f"{literal(str(policy))}, {nodes}: {value_text(amount, value)}"
        for policy, nodes, value in over[["policy", "size", "value"]].to_numpy()
    ]
    marker = {
        "symbol": "triangle-up",
        "size": 10,
        "color": [style[policy][0] for policy in over["policy"]],
    }
    hover = {
        "hoverinfo": None,
        "customdata": hovers,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    return legend_entry(_ABOVE, "markers", marker=marker) | {
        "x": over["size"].to_numpy(),
        "y": np.full(len(over), 1.02 * top / size),
        **hover,
    }


def _mixes(table: pd.DataFrame, target: SweepTarget, holds: bool) -> Trace:
    """Return the marks of the mixes that meet the target, or with `holds` False miss it."""
    words = "meets the target" if holds else "does not"
    hovers = [
        f"{value_text(target.amount, value)}, ${usd:,.2f} per hour"
        for value, usd in table[["value", "usd_per_h"]].to_numpy(np.float64)
    ]
    marker = {
        "symbol": "circle" if holds else "x",
        "size": 13,
        "color": "#0072B2" if holds else NEUTRAL,
    }
    hover = {
        "hoverinfo": None,
        "customdata": hovers,
        "hovertemplate": f"%{{x}} and %{{y}}: {words}, %{{customdata}}<extra></extra>",
    }
    return legend_entry(words, "markers", marker=marker) | {
        "x": table["size"].to_numpy(),
        "y": table["second"].to_numpy(),
        **hover,
    }


def lesson_curve(
    tables: Mapping[str, pd.DataFrame], style: Style, axis: str, amount: str, title: str = ""
) -> go.Figure:
    """Draw a time over the axis of a lesson from zero, one line per policy and run.

    Parameters
    ----------
    tables : mapping of DataFrame
        By run, the first one first, "" if there is only one: `value` (of the axis), `policy`,
        `number` (seconds; NaN = not to be had).
    style : mapping
        From `policy_style`. A policy keeps its colour in every run; later runs are dotted, with
        open marks.
    axis, amount, title : str
        What is varied, with its unit; what is drawn; the question.
    """
    highest = max(
        (
            float(np.nanmax(table["number"].to_numpy(np.float64), initial=0.0))
            for table in tables.values()
        ),
        default=0.0,
    )
    unit_s, unit = duration_unit(highest or 1.0)
    traces = [
        _line(of, f"{policy} · {run}" if run else policy, style[policy], changed=at > 0)
        | {"y": of["number"].to_numpy(np.float64) / unit_s}
        for at, (run, table) in enumerate(tables.items())
        for policy, of in ((str(name), rows) for name, rows in table.groupby("policy", sort=False))
    ]
    values = np.unique(
        np.concatenate([table["value"].to_numpy(np.float64) for table in tables.values()])
    )
    x = {
        "title": {"text": axis},
        "tickvals": values,
        "ticktext": [f"{value:g}" for value in values],
    }
    y = {"title": {"text": f"{amount}, {unit}"}, "range": [0, 1.06 * (highest or 1.0) / unit_s]}
    names = [str(trace["name"]) for trace in traces]
    return figure(
        traces,
        title,
        _HEIGHT_PX,
        legend_px=legend_px(names) if len(names) > 1 else 0,
        hovermode="x unified",
        xaxis=x,
        yaxis=y,
    )


def _line(of: pd.DataFrame, name: str, look: tuple[str, str], *, changed: bool) -> dict[str, Any]:
    """Return the line of one policy in one run of a lesson, without y; `changed` = dotted."""
    colour, dash = look
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": literal(name),
        "x": of["value"].to_numpy(np.float64),
        "connectgaps": False,
        "line": {"color": colour, "dash": "dot" if changed else dash, "width": LINE_PX + 1},
        "marker": {
            "color": colour,
            "size": 10,
            "symbol": "circle-open" if changed else "circle",
            "line": {"width": 2, "color": colour},
        },
        "text": [
            duration_text(value) if np.isfinite(value) else ""
            for value in of["number"].to_numpy(np.float64)
        ],
        "hovertemplate": f"%{{text}}<extra>{literal(name)}</extra>",
    }
