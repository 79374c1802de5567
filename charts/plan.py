"""How a metric falls as nodes are added: what was tried, what was not, the target, and the fewest nodes that meet it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.sweep import Amount, policy_lines, unit_of, value_text
from charts.theme import NEUTRAL, Style, figure, legend_entry, literal, narrow_legend_px

Trace = dict[str, Any]
_HEADROOM: Final = 5.0
"""A target is to be seen, so the axis ends at so many times of it, however long waits are on few nodes."""
_ROOM: Final = 1.2
_TARGET: Final = "target"
_FIRST: Final = "fewest nodes that hold"
_ABOVE: Final = "above the chart"
_NOT_RUN: Final = "not run"
_MOST_TICKS: Final = 24


class Target(NamedTuple):
    """What is to be reached: the metric, the limit in its own unit, and whether less is better."""

    amount: Amount
    limit: float
    lower: bool = True


def capacity_curve(table: pd.DataFrame, style: Style, target: Target, sizes: tuple[int, int], title: str = "") -> go.Figure:
    """Draw a metric over the number of nodes.

    Parameters
    ----------
    table : DataFrame
        `policy`, `size`, `value`, `low`, `high` (least and greatest of the repeats), `holds`; one row per policy and size that was tried.
    style : mapping
        From `policy_style`.
    target : Target
        What must be reached.
    sizes : (int, int)
        The range, both ends included; sizes that nobody tried are grey marks at the bottom.
    title : str
        The finding or the question.
    """
    ordered = table.sort_values(["policy", "size"]).assign(x=lambda one: one["size"])
    top = _top(ordered, target)
    size, unit = unit_of(target.amount.unit, max(top, abs(target.limit)))
    names = [name for name in style if (ordered["policy"] == name).any()]
    traces = [trace for name in names for trace in policy_lines(ordered[ordered["policy"] == name], name, style[name], (size, target.amount))]
    more = [_first(ordered, style, size), _above(ordered, style, (top, size), target.amount), _not_run(ordered, sizes)]
    traces += [trace for trace in more if trace is not None]
    traces.append(legend_entry(_TARGET, "lines", line=_LINE))
    legend = [str(trace["name"]) for trace in traces if trace.get("showlegend", True)]
    y = {"title": {"text": f"{target.amount.title}{f', {unit}' if unit else ''}"}, "range": [0, 1.06 * top / size or 1.0]}
    x = {"title": {"text": "nodes"}, **_counts(*sizes)}
    drawn = figure(traces, title, 320, legend_px=narrow_legend_px(legend), hovermode="closest", xaxis=x, yaxis=y)
    return drawn.add_hline(y=target.limit / size, line=_LINE, layer="below")


class Nodes(NamedTuple):
    """A row of nodes that varies: what it is called, and its range."""

    name: str
    low: int
    high: int


def mix_map(table: pd.DataFrame, target: Target, rows: tuple[Nodes, Nodes], chosen: tuple[int, int] | None, title: str = "") -> go.Figure:
    """Draw which mixes of two rows of nodes were tried under one policy, and which of them hold.

    Parameters
    ----------
    table : DataFrame
        `size` and `second` (nodes of both rows), `value`, `holds`, `usd_per_h`; mixes that are not there were not tried and stay empty.
    target : Target
        What must be reached.
    rows : (Nodes, Nodes)
        What varies along x and along y.
    chosen : (int, int) or None
        The cheapest mix that holds.
    title : str
        The finding or the question.
    """
    traces = [_mixes(table[table["holds"] == holds], target, holds) for holds in (True, False)]
    if chosen is not None:
        ring = {"symbol": "circle-open", "size": 24, "color": "#D55E00", "line": {"width": 3}}
        traces.append(legend_entry(_CHEAPEST, "markers", marker=ring) | {"x": [chosen[0]], "y": [chosen[1]]})
    legend = [str(trace["name"]) for trace in traces]
    x, y = ({"title": {"text": literal(f"{row.name} nodes")}, **_counts(row.low, row.high)} for row in rows)
    return figure(traces, title, 320, legend_px=narrow_legend_px(legend), hovermode="closest", xaxis=x, yaxis=y)


_LINE: Final = {"color": NEUTRAL, "width": 2, "dash": "dash"}
_CHEAPEST: Final = "cheapest that holds"


def _counts(low: int, high: int) -> Trace:
    """Return an axis of whole numbers."""
    axis: Trace = {"range": [low - 0.5, high + 0.5], "tickformat": "d"}
    return axis | ({"dtick": 1} if high - low < _MOST_TICKS else {})


def _top(table: pd.DataFrame, target: Target) -> float:
    """Return where the axis ends, in the metric's own unit."""
    highest = float(np.nanmax(table[["value", "high"]].to_numpy(np.float64), initial=0.0)) if table["value"].notna().any() else 0.0
    if not target.lower or target.limit <= 0:
        return max(highest, target.limit, 0.0)
    # What a policy comes to at its nearest is to be seen as well.
    nearest = float(np.nanmax(table.groupby("policy")["value"].min().to_numpy(np.float64), initial=0.0)) if table["value"].notna().any() else 0.0
    return max(min(highest, max(_HEADROOM * target.limit, _ROOM * nearest)), _ROOM * target.limit)


def _first(table: pd.DataFrame, style: Style, size: float) -> Trace | None:
    """Return rings around the smallest size of every policy that holds."""
    held = table[table["holds"]].sort_values("size").drop_duplicates("policy")
    held = held[held["policy"].isin(list(style))]
    if held.empty:
        return None
    marker = {"symbol": "circle-open", "size": 18, "color": [style[policy][0] for policy in held["policy"]], "line": {"width": 3}}
    return legend_entry(_FIRST, "markers", marker=marker) | {"x": held["size"].to_numpy(), "y": held["value"].to_numpy(np.float64) / size}


def _above(table: pd.DataFrame, style: Style, ends: tuple[float, float], amount: Amount) -> Trace | None:
    """Return triangles for what is higher than the axis, at its end."""
    top, size = ends
    over = table[(table["value"] > 1.06 * top) & table["policy"].isin(list(style))]
    if over.empty:
        return None
    told = [f"{literal(str(policy))}, {nodes}: {value_text(amount, value)}" for policy, nodes, value in over[["policy", "size", "value"]].to_numpy()]
    marker = {"symbol": "triangle-up", "size": 10, "color": [style[policy][0] for policy in over["policy"]]}
    hover = {"hoverinfo": None, "customdata": told, "hovertemplate": "%{customdata}<extra></extra>"}
    return legend_entry(_ABOVE, "markers", marker=marker) | {"x": over["size"].to_numpy(), "y": np.full(len(over), 1.02 * top / size), **hover}


def _not_run(table: pd.DataFrame, sizes: tuple[int, int]) -> Trace | None:
    left = np.setdiff1d(np.arange(sizes[0], sizes[1] + 1), table["size"].to_numpy(np.int64))
    if not len(left):
        return None
    left = left[:: -(-len(left) // 1000)]
    marker = {"symbol": "line-ns-open", "size": 10, "color": NEUTRAL}
    return legend_entry(_NOT_RUN, "markers", marker=marker) | {"x": left, "y": np.zeros(len(left)), "cliponaxis": False}


def _mixes(table: pd.DataFrame, target: Target, holds: bool) -> Trace:
    words = "meets the target" if holds else "does not"
    told = [f"{value_text(target.amount, value)}, $ {usd:,.2f} per hour" for value, usd in table[["value", "usd_per_h"]].to_numpy(np.float64)]
    marker = {"symbol": "circle" if holds else "x", "size": 13, "color": "#0072B2" if holds else NEUTRAL}
    hover = {"hoverinfo": None, "customdata": told, "hovertemplate": f"%{{x}} and %{{y}}: {words}, %{{customdata}}<extra></extra>"}
    return legend_entry(words, "markers", marker=marker) | {"x": table["size"].to_numpy(), "y": table["second"].to_numpy(), **hover}
