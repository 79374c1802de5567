"""Charts of sweeps and purchases: lines, maps, and the metric by extra cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from trainyard.views.charts.axes import duration_text, duration_unit
from trainyard.views.charts.lines import NAMES_PX, Look, short_names
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
    visible,
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
_HEIGHT_PX: Final = 380
_CURVE_PX: Final = 268
"""Height of the data of a purchase chart; 360 with title and axis."""
_WIDE_PX: Final = 760
"""Width of the data to place names in."""
_TICKS_S: Final = (
    *(0.0, 60.0, 300.0, 900.0, 3600.0, 7200.0, 14_400.0, 21_600.0, 36_000.0, 57_600.0),
    *(days * 86_400.0 for days in (1, 2, 4, 7, 14, 30, 60, 120, 365)),
)
_TICK_UNITS: Final = ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_APART: Final = 0.07
"""Distance of two ticks as a share of the axis."""
_OPEN: Final = {"line": {"width": 2.5}}


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


def purchase_chart(
    table: pd.DataFrame, style: Style, target: SweepTarget, x_title: str, title: str = ""
) -> go.Figure:
    """Draw the target metric against the extra cost of each tried purchase.

    A step line is the best for the money of a policy, dots are other purchases, a ring is the
    cheapest that meets the target, a diamond that of one node type.

    Parameters
    ----------
    table : DataFrame
        `policy`, `x` (extra cost), `value`, `mix` (key of a purchase), `text` (its hover text),
        `name`, `is_best_for_money`, `is_cheapest`, `is_alone`.
    style : mapping
        From `policy_style`.
    target : SweepTarget
        What must be reached.
    x_title : str
        What x is; dollars if it contains "cost".
    title : str
        The question.
    """
    drawn = table[np.isfinite(table["value"])]
    ticks, y_of = _purchase_scale(drawn["value"].max() if len(drawn) else 0.0, target)
    drawn = drawn.assign(y=y_of(drawn["value"].to_numpy(np.float64))).sort_values("x")
    left, right = min(drawn["x"].min(), 0.0), max(drawn["x"].max(), 1.0)
    room = 0.03 * (right - left)
    names = [name for name in style if (drawn["policy"] == name).any()]
    traces = [
        trace
        for name in names
        for trace in _purchase_traces(drawn[drawn["policy"] == name], style[name][0], right + room)
    ]
    top = ticks[-1][0] * 1.04
    look = Look({name: style[name][0] for name in names})
    ends = {
        name: _CURVE_PX * (1 - drawn.loc[best & (drawn["policy"] == name), "y"].iloc[-1] / top)
        for best in [drawn["is_best_for_money"]]
        for name in names
        if (best & (drawn["policy"] == name)).any()
    }
    annotations, shapes = look.names(ends, (0.0, _CURVE_PX), _CURVE_PX)
    limit = float(y_of(np.array([target.limit]))[0])
    prefix = {"tickprefix": "$", "tickformat": "~s"} if "cost" in x_title else {"tickformat": "d"}
    drawn_figure = figure(
        traces,
        title,
        _CURVE_PX,
        hovermode="closest",
        clickmode="event+select",
        dragmode=False,
        margin={"l": 64, "r": NAMES_PX, "t": 40, "b": 52},
        xaxis={"title": {"text": x_title}, "range": [left - room, right + room], **prefix},
        yaxis={
            "tickvals": [y for y, _ in ticks],
            "ticktext": [text for _, text in ticks],
            "range": [-0.04 * top, top],
        },
        shapes=shapes,
        annotations=[
            *annotations,
            *_purchase_names(drawn, style, (left - room, right + room), (-0.04 * top, top, limit)),
        ],
    )
    text = f"target: {value_text(target.amount, target.limit)}"
    return drawn_figure.add_hline(
        y=limit,
        line={"color": TEXT, "width": 1, "dash": "dash"},
        annotation={"text": text, "font": {"size": 13, "color": TEXT}},
        annotation_position="top right",
    )


def _purchase_scale(
    highest: float, target: SweepTarget
) -> tuple[list[tuple[float, str]], Callable[[Floats], Floats]]:
    """Return (height, text) of the ticks up to a value, and the scale: square root for times."""
    highest = max(highest, target.limit) or 1.0
    if target.amount.unit != "s":
        values = np.linspace(0.0, highest, 5)
        return [(one, value_text(target.amount, one)) for one in values.tolist()], lambda y: y
    top = next((tick for tick in _TICKS_S if tick >= highest), highest) ** 0.5
    heights = [top, 0.0]
    for tick in reversed(_TICKS_S):
        height = tick**0.5
        if all(abs(height - other) >= _APART * top for other in heights) and height < top:
            heights.append(height)
    return [(height, _tick_text(height**2)) for height in sorted(heights)], lambda y: np.sqrt(
        np.maximum(y, 0.0)
    )


def _tick_text(seconds: float) -> str:
    """Return a time at an axis without decimals: "15 min", "10 h", "2 days"."""
    size, unit = next((one for one in _TICK_UNITS if seconds >= one[0]), (1.0, ""))
    return f"{round(seconds) / size:.3g} {unit}".strip()


def _purchase_traces(table: pd.DataFrame, colour: str, right: float) -> list[Trace]:
    """Return the step line, dots, ring and diamond of one policy."""
    best = table[table["is_best_for_money"]].sort_values("x")
    if best.empty:
        return []
    line: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": [*best["x"], right],
        "y": [*best["y"], best["y"].iloc[-1]],
        "line": {"color": colour, "width": LINE_PX, "shape": "hv"},
        "legendgroup": visible(str(best["policy"].iloc[0])),
        "hoverinfo": "skip",
    }
    looks: list[tuple[pd.DataFrame, Trace]] = [
        (table[~table["is_best_for_money"]], {"size": 6, "color": with_opacity(colour, 0.4)}),
        (best, {"size": 9, "color": colour}),
        *(
            (table[table[column]], {"symbol": symbol, "size": size, "color": colour} | _OPEN)
            for column, symbol, size in (
                ("is_alone", "diamond-open", 14),
                ("is_cheapest", "circle-open", 17),
            )
        ),
    ]
    marks: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": rows["x"].to_numpy(),
            "y": rows["y"].to_numpy(),
            "customdata": rows[["mix", "text"]].to_numpy(object),
            "hovertemplate": "%{customdata[1]}<extra></extra>",
            "marker": marker,
            "cliponaxis": False,
        }
        for rows, marker in looks
        if len(rows)
    ]
    return [line, *marks]


def _purchase_names(
    table: pd.DataFrame,
    style: Style,
    x_ends: tuple[float, float],
    y_ends: tuple[float, float, float],
) -> list[Trace]:
    """Return annotations with names of purchases: all rings; diamonds and others where free.

    `y_ends` = least and greatest height of the axis, and height of the target.
    """
    low, high, limit = y_ends
    scale = _CURVE_PX / (high - low)
    rank = np.select(
        [table["is_cheapest"], table["is_alone"], table["is_best_for_money"]], [0, 1, 2], 3
    )
    spots = table.assign(
        px=_WIDE_PX * (table["x"] - x_ends[0]) / (x_ends[1] - x_ends[0]),
        py=(table["y"] - low) * scale,
        rank=rank,
    ).sort_values("rank", kind="stable")[rank[np.argsort(rank, kind="stable")] < 3]
    ends = [
        (-np.inf, -np.inf, 0.0, np.inf),
        (-np.inf, -np.inf, np.inf, -2.0),
        (-np.inf, _CURVE_PX + 14, np.inf, np.inf),
    ]
    target_px = (limit - low) * scale
    # What a name must not cross: the ends of the figure least of all.
    boxes: list[Box] = [
        *4 * ends,
        (-np.inf, target_px, np.inf, target_px),
        *((x - 9, y - 9, x + 9, y + 9) for x, y in spots[["px", "py"]].to_numpy()),
    ]
    for _, rows in spots[spots["is_best_for_money"]].sort_values("x").groupby("policy"):
        for (x0, y0), (x1, y1) in pairwise(rows[["px", "py"]].to_numpy()):
            boxes += [(x0, y0, x1, y0), (x1, min(y0, y1), x1, max(y0, y1))]
    names, shorts = [], short_names(list(style))
    for spot in spots.to_dict("records"):
        is_ring = spot["rank"] == 0
        owner = f"{shorts[spot['policy']]}: " if spot["rank"] < 2 else ""
        text = literal(f"{owner}{spot['name']}")
        places = {
            (lift, side): _name_box(spot["px"], spot["py"] + lift, side, len(text))
            for lift in ((12, -14, 30, -32) if is_ring else (12, -14))
            for side in (1, -1)
        }
        crossed = {at: sum(_overlaps(box, one) for one in boxes) for at, box in places.items()}
        lift, side = best = min(crossed, key=crossed.__getitem__)
        if crossed[best] and not is_ring:
            continue
        boxes.append(places[best])
        names.append(
            {
                "text": f"<b>{text}</b>" if is_ring else text,
                "x": spot["x"],
                "y": spot["y"],
                "showarrow": False,
                "xanchor": "left" if side > 0 else "right",
                "xshift": 12 * side,
                "yshift": lift,
                "font": {"size": 13, "color": style[spot["policy"]][0]},
                # style.css hides the others on a phone, where they have no room.
                "opacity": 1.0 if is_ring and side > 0 else 0.99,
            }
        )
    return names


Box = tuple[float, float, float, float]
"""(left, low, right, high) in pixels."""


def _name_box(x_px: float, y_px: float, side: int, characters: int) -> Box:
    """Return the place of a name near a point; `side` 1 = right, -1 = left."""
    near, far = x_px + 12 * side, x_px + side * (12 + 7.5 * characters)
    return min(near, far), y_px - 9, max(near, far), y_px + 9


def _overlaps(one: Box, other: Box) -> bool:
    """Return True if two boxes overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


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
