"""What comes of many runs: a metric over what varies, a line with a band for every policy, or a map where two things vary."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.axes import duration_text
from charts.theme import LINE_PX, NEUTRAL, TEXT_PX, Style, faded, figure, legend_entry, literal, narrow_legend_px

Trace = dict[str, Any]
Floats = NDArray[np.float64]
FAILED: Final = "run failed"
_TIMES: Final = ((90.0, 1.0, "seconds"), (2 * 3600.0, 60.0, "minutes"), (4 * 86_400.0, 3600.0, "hours"), (np.inf, 86_400.0, "days"))
_DIVERGING: Final = [[0.0, "#0072B2"], [0.5, "#F2F2F2"], [1.0, "#E69F00"]]
"""Blue to orange, no colour where there is no difference."""
_MOST_TICKS: Final = 12
_MOST_LABELLED: Final = 60
"""More cells than that have no room for their values."""


class Amount(NamedTuple):
    """What is drawn: the metric's title, its unit ("s", "1", "USD" or ""), and whether values are relative changes of it."""

    title: str
    unit: str
    change: bool = False


def unit_of(unit: str, top: float) -> tuple[float, str]:
    """Return by what values of a unit are divided on an axis that ends at `top`, and what the axis calls it."""
    if unit != "s":
        return (0.01, "%") if unit == "1" else (1.0, unit)
    return next((size, name) for limit, size, name in _TIMES if top <= limit)


def value_text(amount: Amount, value: float) -> str:
    """Return a value as hover labels and cells show it."""
    if not np.isfinite(value):
        return "no figure"
    if amount.change:
        return f"{100 * value:+.3g} %".replace("-", "−")
    return {"s": duration_text(value), "1": f"{100 * value:.3g} %", "USD": f"$ {value:,.2f}"}.get(amount.unit, f"{value:,.4g}")


def sweep_curve(table: pd.DataFrame, style: Style, amount: Amount, axis: str, ends: tuple[float, float] | None = None, title: str = "") -> go.Figure:
    """Draw a metric over what varies.

    Parameters
    ----------
    table : DataFrame
        `x` (numbers, or names), `policy`, `value`, `low`, `high` (NaN = no band), `failed` (runs without numbers); any order.
    style : mapping
        From `policy_style`.
    amount : Amount
        What the values are.
    axis : str
        What varies, with its unit.
    ends : (float, float) or None
        Least and greatest value of what varies, so that the axis stays while results come; None = those of the table.
    title : str
        The finding or the question.
    """
    top = float(np.nanmax(np.abs(table[["value", "high"]].to_numpy(np.float64)), initial=0.0)) if table["value"].notna().any() else 0.0
    size, unit = (0.01, "%") if amount.change else unit_of(amount.unit, top)
    numeric = pd.api.types.is_numeric_dtype(table["x"])
    ordered = table.sort_values("x", kind="stable") if numeric else table
    names = [name for name in style if (table["policy"] == name).any()]
    traces = [trace for name in names for trace in policy_lines(ordered[ordered["policy"] == name], name, style[name], (size, amount))]
    floor = min(float(np.nanmin(table[["value", "low"]].to_numpy(np.float64), initial=0.0)) / size, 0.0) if len(table) else 0.0
    marks = [_failed(table, style, floor)] if (table["failed"] > 0).any() else []
    legend = [*map(literal, names), *([FAILED] if marks else [])]
    y = {"title": {"text": f"change of {amount.title}, %" if amount.change else f"{amount.title}{f', {unit}' if unit else ''}"}, "rangemode": "tozero"}
    x: Trace = {"title": {"text": literal(axis)}, **(_stops(table["x"].to_numpy(np.float64)) if numeric else {"type": "category"})}
    if numeric and ends is not None and ends[0] < ends[1]:
        room = 0.04 * (ends[1] - ends[0])
        x |= {"range": [ends[0] - room, ends[1] + room]}
    drawn = figure([*traces, *marks], title, 300, legend_px=narrow_legend_px(legend), hovermode="closest", xaxis=x, yaxis=y)
    return drawn.add_hline(y=0, line={"color": NEUTRAL, "width": 1.5}, layer="below") if amount.change else drawn


def policy_lines(table: pd.DataFrame, name: str, look: tuple[str, str], scale: tuple[float, Amount]) -> list[Trace]:
    """Return the band, the line and the dots of one policy: `x`, `value`, `low`, `high`, in the order of x."""
    (colour, dash), (size, amount), shown = look, scale, literal(name)
    low, high, values = (table[column].to_numpy(np.float64) for column in ("low", "high", "value"))
    x, banded = table["x"].to_numpy(), np.isfinite(low) & np.isfinite(high) & (high > low)
    edge: Trace = {"type": "scatter", "mode": "lines", "name": shown, "legendgroup": shown, "showlegend": False, "hoverinfo": "skip", "x": x[banded]}
    edge |= {"line": {"width": 0, "color": colour}}
    told = [_told(amount, row) for row in zip(values, low, high, strict=True)]
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
        "customdata": told,
        "hovertemplate": f"{shown}, %{{x}}: %{{customdata}}<extra></extra>",
    }
    band = [edge | {"y": low[banded] / size}, edge | {"y": high[banded] / size, "fill": "tonexty", "fillcolor": faded(colour, 0.18)}]
    return [*(band if banded.any() else []), line]


def sweep_map(every: pd.DataFrame, policy: str, amount: Amount, axes: tuple[str, str], title: str = "") -> go.Figure:
    """Draw a metric of one policy over two things that vary; draws at random are dots of their colour.

    Parameters
    ----------
    every : DataFrame
        `x`, `y`, `policy`, `value`; a pair that is not there has not been run. The colours are those of all policies, so that maps can be compared.
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
    grid = table.pivot_table(index="y", columns="x", values="value", sort=True, dropna=False) if len(table) else pd.DataFrame()
    values = table["value"].to_numpy(np.float64)
    of_all = every["value"].to_numpy(np.float64)
    known = of_all[np.isfinite(of_all)] if np.isfinite(of_all).any() else np.zeros(1)
    size, unit = (0.01, "%") if amount.change else unit_of(amount.unit, float(known.max()))
    most = float(np.abs(known).max()) / size
    low, high = (-most, most) if amount.change else (float(known.min()) / size, float(known.max()) / size)
    low, high = (low, high) if low < high else (low - 0.5, high + 0.5)
    trace: Trace
    colours = _DIVERGING if amount.change else "Cividis"
    bar = {"title": {"text": unit or amount.title, "side": "top", "font": {"size": TEXT_PX}}, "thickness": 14}
    if grid.size and grid.notna().to_numpy().mean() >= 0.5:
        trace = _cells(grid, amount, size) | {"zmin": low, "zmax": high, "colorscale": colours, "colorbar": bar}
    else:
        marker = {"color": values / size, "size": 12, "colorbar": bar, "colorscale": colours, "showscale": True, "cmin": low, "cmax": high}
        told = [value_text(amount, value) for value in values]
        hover = {"customdata": told, "hovertemplate": "%{x}, %{y}: %{customdata}<extra></extra>"}
        trace = {"type": "scatter", "mode": "markers", "x": table["x"].tolist(), "y": table["y"].tolist(), "marker": marker, **hover}
    x, y = ({"title": {"text": literal(name)}, **_stops_of(table[column])} for name, column in zip(axes, ("x", "y"), strict=True))
    return figure([trace], title, 280, hovermode="closest", xaxis=x, yaxis=y)


def _cells(grid: pd.DataFrame, amount: Amount, size: float) -> Trace:
    z = grid.to_numpy(np.float64)
    told = [[value_text(amount, value) for value in row] for row in z]
    # As categories, cells are equally large, whatever the distances of the values.
    x, y = ([f"{value:g}" if isinstance(value, (int, float)) else str(value) for value in names] for names in (grid.columns, grid.index))
    few = {"texttemplate": "%{text}", "textfont": {"size": 12}} if z.size <= _MOST_LABELLED else {}
    hover = "%{x}, %{y}: %{text}<extra></extra>"
    return {"type": "heatmap", "x": x, "y": y, "z": z / size, "text": told, "hovertemplate": hover, "xgap": 1, "ygap": 1, "hoverongaps": False, **few}


def _failed(table: pd.DataFrame, style: Style, floor: float) -> Trace:
    lost = table[(table["failed"] > 0) & table["policy"].isin(list(style))]
    told = [
        f"{literal(str(policy))}: {count:.0f} {'run' if count == 1 else 'runs'} failed" for policy, count in zip(lost["policy"], lost["failed"], strict=True)
    ]
    colours = [style[policy][0] for policy in lost["policy"]]
    marker = {"symbol": "x", "size": 9, "color": colours}
    hover = {"customdata": told, "hovertemplate": "%{x}: %{customdata}<extra></extra>"}
    return {
        **legend_entry(FAILED, "markers", marker=marker),
        "x": lost["x"].to_numpy(),
        "y": np.full(len(lost), floor),
        "hoverinfo": None,
        "cliponaxis": False,
        **hover,
    }


def _told(amount: Amount, row: tuple[float, float, float]) -> str:
    value, low, high = row
    between = f" ({value_text(amount, low)} to {value_text(amount, high)})" if np.isfinite([low, high]).all() and high > low else ""
    return f"{value_text(amount, value)}{between}"


def _stops(values: Floats) -> Trace:
    """Return an axis that is marked where there are points, if these are few."""
    stops = np.unique(values[np.isfinite(values)])
    return {"tickvals": stops, "ticktext": [f"{stop:g}" for stop in stops], "tickangle": 0} if 1 < len(stops) <= _MOST_TICKS else {}


def _stops_of(values: pd.Series[Any]) -> Trace:
    return {"tickangle": 0} if pd.api.types.is_numeric_dtype(values) else {"type": "category"}
