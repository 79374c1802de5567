"""Charts of jobs: completion times and their parts, winners and losers, estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from trainyard.formatting import BY_UNIT
from trainyard.views.charts.axes import FEW_MARKS, duration_text, duration_unit, log_duration
from trainyard.views.charts.lines import (
    BOTTOM_PX,
    HEIGHT_PX,
    NAMES_TOP_PX,
    TOP_PX,
    Look,
    significant,
)
from trainyard.views.charts.sweeps import unit_of
from trainyard.views.charts.theme import (
    BASELINE_COLOUR,
    INK,
    LINE_PX,
    NARROW_PX,
    NEUTRAL,
    TEXT_PX,
    Style,
    Trace,
    figure,
    legend_px,
    literal,
    narrow_legend_px,
    policy_rows,
    with_opacity,
)

Floats = NDArray[np.float64]
_TICKS: Final = {
    -5: "1/32",
    -4: "1/16",
    -3: "1/8",
    -2: "1/4",
    -1: "1/2",
    0: "same",
    1: "2 ×",
    2: "4 ×",
    3: "8 ×",
    4: "16 ×",
    5: "32 ×",
}
_STRIPES: Final = "rgba(255, 255, 255, 0.7)"
_VISIBLE: Final = 1e-6
QUANTILES: Final = 201
"""Points of a completion curve."""
_MARGIN = 1.2
_TEXT = "%{text}<extra></extra>"


def jct_cdf(
    curves: Mapping[str, pd.DataFrame],
    look: Look,
    left_out: Mapping[str, int] | None = None,
    title: str = "Jobs completed within",
) -> go.Figure:
    """Draw the share of jobs completed within a time, log x, one line per policy.

    Empty curves are left out; the area between baseline and highlighted policy is filled.

    Parameters
    ----------
    curves : mapping of DataFrame
        By policy: `share` from 0 to 1 and `jct_s`, at most 400 points.
    look : Look
        How policies are drawn.
    left_out : mapping or None
        By policy: measured jobs that are not in the curve because they were not completed; written
        under the figure where there are any.
    title : str
        What is shown.
    """
    points = {label: quantiles(curve) for label, curve in curves.items() if len(curve)}
    traces: list[Trace] = []
    pair = [points[label] for label in (look.baseline, look.high) if label in points]
    if len(pair) == 2 and look.high != look.baseline:
        edge, other = (look.area() | _quantile_line(jct_s) for jct_s in pair)
        traces += [edge, other | {"fill": "tonexty"}]
    for label in look.order:
        if label in points:
            traces.append(look.line(label, "jct") | _quantile_line(points[label]))
    traces += _medians(points, look)
    every = np.concatenate(list(points.values())) if points else np.array([60.0, 86_400.0])
    domain = [1 - BOTTOM_PX / HEIGHT_PX, 1 - TOP_PX / HEIGHT_PX]
    ticks = {"tickvals": [0, 25, 50, 75, 100], "ticktext": ["0", "25 %", "50 %", "75 %", "100 %"]}
    x = log_duration(float(every.min()), float(every.max()), FEW_MARKS)
    heads = [] if look.alone else [look.title(f"<b>{title}</b>", domain[1])]
    half = QUANTILES // 2
    medians = {label: float(jct_s[half]) for label, jct_s in points.items()}
    # All lines end at 100 %: the fastest is named first.
    ends = dict.fromkeys(sorted(points, key=medians.__getitem__), float(TOP_PX))
    texts = {
        label: duration_text(medians[label])
        for label in (look.baseline, look.high)
        if label in points
    }
    names, samples = look.names(ends, (NAMES_TOP_PX, BOTTOM_PX), HEIGHT_PX, texts, look.more_note)
    notes = [*heads, *names]
    missing = ", ".join(
        f"{literal(label)} {count:,}" for label, count in (left_out or {}).items() if count
    )
    notes += [_below(look, "from submission to finish; dot and time: half", -26)]
    notes += [_below(look, f"not completed, so not shown: {missing}", -44)] if missing else []
    return go.Figure(
        traces,
        look.layout(
            HEIGHT_PX,
            52,
            title,
            dragmode=False,
            annotations=notes,
            shapes=samples,
            xaxis=look.axis(anchor="y", showgrid=True, tickangle=0, **x),
            yaxis=look.axis(domain=domain, range=[0, 101.5], **ticks),
        ),
    )


def quantiles(curve: pd.DataFrame, points: int = QUANTILES) -> Floats:
    """Return completion times at `points` equally spaced shares of a curve with data, in s."""
    share = curve["share"].to_numpy(np.float64)
    at = np.searchsorted(share, np.linspace(0.0, share[-1], points))
    return curve["jct_s"].to_numpy(np.float64)[np.minimum(at, len(share) - 1)]


def _quantile_line(jct_s: Floats) -> Trace:
    """Return x, y0 and dy of a completion curve, from 0 to 100 % in equal steps."""
    # Equal jobs have an axis of a hundredth of their completion time.
    return {"x": significant(jct_s, 5), "y0": 0, "dy": 100 / (len(jct_s) - 1)}


def _medians(points: Mapping[str, Floats], look: Look) -> list[Trace]:
    """Return a dot where half of the jobs are done, on each strong line."""
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [float(points[title][QUANTILES // 2])],
            "y": [50],
            "marker": {"size": 8, "color": look.colours[title]},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        for title in dict.fromkeys((look.baseline, look.high))
        if title in points
    ]


def _below(look: Look, text: str, shift: int) -> Trace:
    """Return a note below the figure, as an annotation."""
    return {
        "text": text,
        "showarrow": False,
        "xref": "paper",
        "yref": "y domain",
        "x": 0.5,
        "y": 0,
        "yanchor": "top",
        "yshift": shift,
        "font": {"size": 13, "color": NEUTRAL},
    }


def winners(
    histogram: pd.DataFrame,
    parts: tuple[str, str, str],
    colour: str,
    title: str = "",
    beside: Sequence[str] = (),
) -> go.Figure:
    """Draw a histogram of completion times over the baseline's, of jobs that changed, log x.

    The axis is symmetric around "same".

    Parameters
    ----------
    histogram : DataFrame
        `low` and `high` (ratio, edges of a bin) and `jobs`.
    parts : (str, str, str)
        How many of all jobs compared are faster, as before and slower. Written above their side.
    colour : str
        Of the policy. Slower jobs are hatched as well, so that they differ without colour.
    title : str
        The finding or the question.
    beside : sequence of str
        Policies of the figure of completion times that it stands beside: as high as that.
    """
    low, high = (np.log2(histogram[name].to_numpy(np.float64)) for name in ("low", "high"))
    most = float(max(-low.min(), high.max())) if len(histogram) else 1.0
    jobs, middle = histogram["jobs"].to_numpy(np.float64), (low + high) / 2
    hovers = [
        f"{first:.3g} to {last:.3g} times as long"
        for first, last in zip(histogram["low"], histogram["high"], strict=True)
    ]
    traces: list[dict[str, Any]] = []
    for name, side, fill in (
        ("faster", middle < 0, colour),
        ("slower", middle > 0, with_opacity(colour, 0.7)),
    ):
        pattern = {
            "shape": "" if name == "faster" else "/",
            "fillmode": "overlay",
            "fgcolor": _STRIPES,
            "solidity": 0.4,
        }
        marker = {"color": fill, "line": {"width": 0}, "pattern": pattern}
        texts = [text for text, here in zip(hovers, side, strict=True) if here]
        bars = {
            "type": "bar",
            "name": name,
            "x": middle[side],
            "y": jobs[side],
            "width": (high - low)[side],
            "marker": marker,
        }
        traces.append(
            bars
            | {
                "customdata": texts,
                "hovertemplate": "%{y:,.0f} jobs take %{customdata}<extra></extra>",
            }
        )
    ticks = {at: text for at, text in _TICKS.items() if abs(at) <= most + 1e-9}
    x = {
        "tickvals": list(ticks),
        "ticktext": list(ticks.values()),
        "range": [-most * 1.02, most * 1.02],
        "title": {"text": "Completion time, relative to the baseline"},
    }
    y = {"rangemode": "tozero", "title": {"text": "jobs"}}
    drawn = figure(
        traces,
        title,
        320,
        legend_px=max(24, legend_px(beside, NARROW_PX)),
        xaxis=x,
        yaxis=y,
        showlegend=False,
        bargap=0,
    )
    drawn.add_vline(x=0, line={"color": NEUTRAL, "width": 2})
    words = zip(
        ("← faster {}", "same {}", "slower {} →"),
        parts,
        (0.0, 0.5, 1.0),
        ("left", "center", "right"),
        strict=True,
    )
    for text, part, at, anchor in words:
        place = {
            "xref": "paper",
            "x": at,
            "xanchor": anchor,
            "yref": "paper",
            "y": 1,
            "yanchor": "bottom",
            "yshift": 2,
        }
        drawn.add_annotation(
            text=f"<b>{text.format(part)}</b>", showarrow=False, font={"size": TEXT_PX}, **place
        )
    return drawn


def dumbbell(
    table: pd.DataFrame,
    style: Style,
    baseline: str,
    title: str = "",
    axis: str = "average completion time",
) -> go.Figure:
    """Draw one mark per group and policy, joined to the baseline's mark, with intervals.

    Parameters
    ----------
    table : DataFrame
        `group` (drawn from top to bottom), `label`, `value`, `low` and `high` in seconds; NaN = no
        such job, or no interval. One row per group and policy.
    style : mapping
        From `policy_style`.
    baseline : str
        The policy that the others start from; it must be in the table.
    title, axis : str
        The finding or the question; what the values are.
    """
    groups = list(dict.fromkeys(table["group"].astype(str)))
    labels = [label for label in style if label in set(table["label"])]
    others = [label for label in labels if label != baseline]
    shifts = dict(
        zip(
            others,
            np.linspace(-0.27, 0.27, len(others)) if len(others) > 1 else [0.0],
            strict=False,
        )
    )
    columns = {label: _column(table, label, groups) for label in labels}
    base = columns[baseline]["value"]
    traces = [
        _joining_lines(label, base, columns[label]["value"], style)
        | {"y": _joint_rows(len(groups), shifts[label])}
        for label in others
    ]
    rows = np.arange(len(groups))
    if len(others) > 1:
        traces.append(_baseline_ticks(base, rows, list(shifts.values())))
    traces += [
        _marks(label, columns[label], groups, style, hollow=label == baseline)
        | {"y": rows + shifts.get(label, 0.0)}
        for label in [*others, baseline]
    ]
    every = table[["value", "low", "high"]].to_numpy(np.float64).ravel()
    every = every[np.isfinite(every) & (every > 0)]
    low, high = (
        (float(every.min()) / 1.3, float(every.max()) * 1.3) if len(every) else (60.0, 86_400.0)
    )
    y_axis = {
        "tickvals": rows,
        "ticktext": [literal(group) for group in groups],
        "range": [len(groups) - 0.5, -0.5],
        "automargin": True,
    }
    x_axis = {**log_duration(low, high), "title": {"text": f"{axis}, logarithmic"}}
    return figure(
        traces,
        title,
        40 + max(48, 14 * len(others) + 20) * len(groups),
        legend_px=legend_px(labels, NARROW_PX),
        xaxis=x_axis,
        yaxis=y_axis,
    )


def _column(table: pd.DataFrame, label: str, groups: list[str]) -> dict[str, Floats]:
    """Return value, low and high of one policy, in the order of the groups; NaN = no row."""
    mine = (
        table[(table["label"] == label).to_numpy()]
        .set_index("group")[["value", "low", "high"]]
        .reindex(groups)
    )
    return {name: mine[name].to_numpy(np.float64) for name in ("value", "low", "high")}


def _joint_rows(rows: int, shift: float) -> Floats:
    """Return the y positions of the joining lines: start, end and a NaN gap of each."""
    y = np.repeat(np.arange(rows) + shift, 3)
    y[2::3] = np.nan
    return y


def _joining_lines(label: str, begin: Floats, end: Floats, style: Style) -> Trace:
    """Return the lines from the baseline's marks to a policy's; the caller adds their y."""
    x, (colour, dash) = (
        np.column_stack((begin, end, np.full(len(begin), np.nan))).ravel(),
        style[label],
    )
    line = {"color": colour, "dash": dash, "width": LINE_PX}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": literal(label),
        "line": line,
        "x": x,
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": label,
    }


def _baseline_ticks(base: Floats, rows: NDArray[np.int64], shifts: list[float]) -> Trace:
    """Return a tick at the baseline's value, where the joining line of each policy starts."""
    y = (rows[:, None] + np.array(shifts)).ravel()
    marker = {
        "symbol": "line-ns-open",
        "color": BASELINE_COLOUR,
        "size": 9,
        "line": {"width": LINE_PX},
    }
    return {
        "type": "scatter",
        "mode": "markers",
        "x": np.repeat(base, len(shifts)),
        "y": y,
        "marker": marker,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _marks(
    label: str, of: dict[str, Floats], groups: list[str], style: Style, *, hollow: bool
) -> Trace:
    """Return the marks of one policy with intervals; the caller adds their y positions."""
    value, colour = of["value"], style[label][0]
    texts = []
    for group, at, low, high in zip(groups, value, of["low"], of["high"], strict=True):
        interval = f" ({duration_text(low)} to {duration_text(high)})" if np.isfinite(low) else ""
        texts.append(f"{literal(group)}: {duration_text(at)}{interval}")
    marks: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": literal(label),
        "legendgroup": label,
        "x": value,
        "marker": {
            "color": colour,
            "size": 11,
            "symbol": "circle-open" if hollow else "circle",
            "line": {"width": 2, "color": colour},
        },
        "text": texts,
        "hovertemplate": f"%{{text}}<extra>{literal(label)}</extra>",
    }
    if np.isfinite(of["low"]).any():
        bounds = {
            "type": "data",
            "symmetric": False,
            "array": of["high"] - value,
            "arrayminus": value - of["low"],
        }
        marks["error_x"] = bounds | {"color": colour, "thickness": 1.5, "width": 5}
    return marks


class JctPart(NamedTuple):
    """A part of a completion time.

    Parameters
    ----------
    column, name : str
        Where it is in the table, in seconds; as the legend calls it.
    colour : str
        Its own, shared with nothing else.
    meaning : str
        One sentence for a caption.
    """

    column: str
    name: str
    colour: str
    meaning: str


PARTS: Final = (
    JctPart("queue_s", "waiting to start", "#EE9A7A", "from submission to the first start"),
    JctPart("requeue_s", "waiting again", "#F6C9A8", "after a job was stopped"),
    JctPart(
        "paused_s",
        "pauses",
        "#C7A8DC",
        "held GPUs make no progress, at a start or after a change",
    ),
    JctPart("redone_s", "redone work", "#D98CA6", "work done a second time because it was lost"),
    JctPart(
        "slower_s",
        "slower than full speed",
        "#A9D3E2",
        "time lost to slower or fewer GPUs, another batch size, spreading over nodes, or"
        " checkpoints",
    ),
    JctPart(
        "ideal_s",
        "running at full speed",
        "#6FB5AE",
        "time the job needs at its best size on the fastest GPU type",
    ),
)
"""Parts of a completion time from left to right, those that a policy can shorten first."""


def decomposition(table: pd.DataFrame, title: str = "") -> go.Figure:
    """Draw the mean completion time of each policy as a horizontal bar, stacked by part.

    Parameters
    ----------
    table : DataFrame
        `policy` (drawn from top to bottom), `jct_s` and the columns of `PARTS`, means in seconds;
        NaN = no job was completed.
    title : str
        The finding or the question.
    """
    filled = table.fillna(0.0)
    longest = float(filled["jct_s"].max()) if len(filled) else 0.0
    unit_s, unit = duration_unit(longest or 1.0)
    parts = [
        part
        for part in PARTS
        if filled[part.column].max() > _VISIBLE * longest or part is PARTS[-1]
    ]
    drawn = figure(
        [_bar(filled, part, unit_s) for part in parts],
        title,
        30 + 48 * len(filled),
        legend_px=narrow_legend_px([part.name for part in parts]),
        barmode="stack",
        bargap=0.35,
        uniformtext={"mode": "hide", "minsize": TEXT_PX},
        xaxis={
            "title": {"text": f"average completion time, {unit}"},
            "range": [0, (longest or 1.0) / unit_s * 1.14],
        },
        yaxis=policy_rows(list(map(str, filled["policy"]))),
    )
    drawn.update_layout(legend={"traceorder": "normal", "xref": "container"})
    for row, jct_s in enumerate(table["jct_s"].to_numpy(np.float64)):
        text = duration_text(jct_s) if np.isfinite(jct_s) else "no job completed"
        drawn.add_annotation(
            x=np.nan_to_num(jct_s) / unit_s,
            y=row,
            text=f"<b>{text}</b>",
            showarrow=False,
            xanchor="left",
            xshift=6,
            font={"size": TEXT_PX},
        )
    return drawn


def metric_bars(values: pd.Series[float], style: Style, unit: str, title: str = "") -> go.Figure:
    """Draw a metric as one bar per policy, in the colors of the policies.

    Parameters
    ----------
    values : Series
        Policy (drawn from top to bottom) -> value, at least 0; NaN = unknown.
    style : mapping
        From `policy_style`.
    unit : str
        Key of `trainyard.formatting.BY_UNIT`.
    title : str
        The finding or the question.
    """
    numbers = values.fillna(0.0).to_numpy(np.float64)
    top = float(numbers.max(initial=0.0))
    size, axis = unit_of(unit, top)
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": numbers / size,
        "y": np.arange(len(numbers)),
        "marker": {"color": [style[policy][0] for policy in values.index]},
        "text": [BY_UNIT[unit](value) for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "textfont": {"size": TEXT_PX},
        "hovertemplate": _TEXT,
    }
    return figure(
        [bars],
        title,
        30 + 48 * len(numbers),
        bargap=0.35,
        xaxis={"title": {"text": axis}, "range": [0, (top or 1.0) / size * 1.14]},
        yaxis=policy_rows(list(values.index)),
    )


def _bar(table: pd.DataFrame, part: JctPart, unit_s: float) -> Trace:
    """Return the bars of one part of the completion time, one per policy."""
    seconds = table[part.column].to_numpy(np.float64)
    share = np.divide(
        seconds, table["jct_s"].to_numpy(np.float64), out=np.zeros_like(seconds), where=seconds > 0
    )
    return {
        "type": "bar",
        "orientation": "h",
        "x": seconds / unit_s,
        "y": np.arange(len(seconds)),
        "name": part.name,
        "marker": {"color": part.colour, "line": {"width": 0}},
        "text": [duration_text(value) if value > 0 else "" for value in seconds],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": INK, "size": TEXT_PX},
        "customdata": [
            f"{duration_text(value)}, {100 * of:.0f} %"
            for value, of in zip(seconds, share, strict=True)
        ],
        "hovertemplate": f"{part.name}: %{{customdata}}<extra></extra>",
    }


def predictions(points: pd.DataFrame, colour: str, title: str = "") -> go.Figure:
    """Draw estimated against true run times, log-log, one mark per job.

    Diagonals show exact, twice and half of it.

    Parameters
    ----------
    points : DataFrame
        `job_id`, `ideal_s` and `believed_s`, at most 1,000 rows.
    colour : str
        Of the policy whose run it was.
    title : str
        The finding or the question.
    """
    true, estimated = (
        points["ideal_s"].to_numpy(np.float64),
        points["believed_s"].to_numpy(np.float64),
    )
    both = np.concatenate((true, estimated)) if len(points) else np.array([60.0, 86_400.0])
    low, high = float(both.min()) / _MARGIN, float(both.max()) * _MARGIN
    traces: list[Trace] = [_diagonal(low, high, factor) for factor in (1.0, 2.0, 0.5)]
    hovers = [
        f"job {literal(str(job))}: estimated {duration_text(guess)}, true {duration_text(actual)}"
        for job, actual, guess in zip(points["job_id"], true, estimated, strict=True)
    ]
    marks = {"color": with_opacity(colour, 0.45), "size": 7, "line": {"width": 0}}
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "jobs",
            "x": true,
            "y": estimated,
            "marker": marks,
            "text": hovers,
            "hovertemplate": _TEXT,
        }
    )
    axis = log_duration(low, high)
    x, y = (
        axis | {"title": {"text": "true ideal run time"}},
        axis | {"title": {"text": "estimated"}},
    )
    return figure(traces, title, 360, legend_px=24, hovermode="closest", xaxis=x, yaxis=y)


def _diagonal(low: float, high: float, factor: float) -> Trace:
    """Return the line from `low` to `high` where an estimate is `factor` times the truth."""
    # Lines beyond the edge of the figure would extend the axes.
    begin, end = max(low, low / factor), min(high, high / factor)
    look = {"color": NEUTRAL, "width": 1, "dash": "solid" if factor == 1 else "dot"}
    name = "exact" if factor == 1 else "twice or half of it"
    shown = {"name": name, "showlegend": factor >= 1, "hoverinfo": "skip", "line": look}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [begin, end],
        "y": [begin * factor, end * factor],
        **shown,
    }
