"""Charts over time: jobs waiting, GPUs busy, GPUs per job, cores and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from trainyard.views.charts.axes import TimeAxis, duration_text, mean_text
from trainyard.views.charts.lines import (
    BOTTOM_PX,
    HEIGHT_PX,
    TOP_PX,
    Look,
    points_per_value,
    smooth,
)
from trainyard.views.charts.over_time import LinkedRow, linked_rows
from trainyard.views.charts.theme import (
    JOB_COLOURS,
    LINE_PX,
    NEUTRAL,
    PAPER,
    TEXT,
    Style,
    Trace,
    figure,
    legend_entry,
    literal,
    narrow_legend_px,
    with_opacity,
)

Floats = NDArray[np.float64]
_LEFT_PX: Final = 44
_QUEUE_PX: Final = (TOP_PX, 161)
_BUSY_PX: Final = (198, BOTTOM_PX)
_STRIP_PX: Final = (350, 378)
_ALONE_PX: Final = 344
"""Height without the strip."""
_NEAR_X, _NEAR_Y = 0.12, 0.16
"""Distances, as shares of the row, below which two line names overlap."""
_MAX_NAMED: Final = 4
_OTHERS: Final = "others"


_ID_CHARACTERS: Final = 20


_REGULAR: Final = 100
_AMOUNT: Final = "%{y:,.1~f} GPUs<extra></extra>"
_UNITS: Final = {"y": "%{y:,.0f} waiting", "y2": "%{y:.0f} % busy"}
"""Axis of a row -> hover text of its lines."""
_THERE: Trace = {"width": 1, "color": NEUTRAL, "dash": "dot"}


@dataclass(frozen=True, eq=False)
class Course:
    """Queue and GPU use of several runs over time.

    Parameters
    ----------
    edges_s : array, seconds
        Begin of every bin, and the end of the last one.
    exact : bool
        Whether values hold from edge to edge; otherwise they are means, drawn in the middle of a
        bin.
    waiting, busy : mapping of array
        Title of a policy -> jobs waiting, per cent of GPUs busy; NaN after the end of a run. No
        busy = there are no GPUs.
    note : str
        Which jobs are counted; "" = as everywhere beside.
    most : mapping of array
        Title of a policy -> the most jobs waiting in each bin; of those that are missing no band
        is drawn.
    """

    edges_s: Floats
    exact: bool
    waiting: Mapping[str, Floats]
    busy: Mapping[str, Floats]
    note: str = ""
    most: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def line_note(self) -> str:
        """Meaning of lines; "" if every change is drawn."""
        return "" if self.exact else mean_text(float(self.edges_s[1] - self.edges_s[0]))


def load(
    course: Course,
    look: Look,
    x: TimeAxis,
    whole: tuple[Floats, Floats, TimeAxis] | None = None,
    shaded: str = "",
    marks: Sequence[float] = (),
) -> go.Figure:
    """Draw jobs waiting and GPUs busy in two rows on one time axis, one line per policy.

    Exact values are steps; means of bins are smooth curves, the queue with bands up to its peaks.
    Without GPUs only the queue is drawn.

    Parameters
    ----------
    course : Course
        The window.
    look : Look
        How policies are drawn.
    x : TimeAxis
        The window.
    whole : (edges, values, axis) or None
        Of the strip below: seconds, one value less, and the axis of the whole run. None = no strip.
    shaded : str
        What the area between the two strong lines means; "" = no area.
    marks : sequence of float, seconds
        Instants that are marked by a thin line through both rows.
    """
    height = HEIGHT_PX if whole else _ALONE_PX
    busy = bool(course.busy)
    queue_px = _QUEUE_PX if busy else (TOP_PX, BOTTOM_PX)
    rows = [(course.waiting, queue_px, "y")] + ([(course.busy, _BUSY_PX, "y2")] if busy else [])
    traces: list[Trace] = []
    if shaded:
        traces += _area(course, look, x)
    if not course.exact:
        traces += _bands(course, look, x)
    for values, _, axis in rows:
        for title in look.order:
            own = {"uid": f"{axis}-{list(look.colours).index(title)}", "yaxis": axis}
            named = look.alone and axis == "y"
            traces.append(
                look.line(title)
                | _line(course, values[title], x)
                | own
                | {"showlegend": named, "hovertemplate": _UNITS[axis]}
            )
    notes = (
        course.note,
        shaded and f"shaded: {shaded}",
        "" if busy else course.line_note,
        "band: peak" if course.most and not course.exact else "",
    )
    layout: dict[str, Any] = {
        "dragmode": "select",
        "selectdirection": "h",
        "xaxis": look.axis(showgrid=True, **x.layout())
        | {"anchor": "y2" if busy else "y", "title": {"text": ""}},
        "yaxis": look.axis(
            rangemode="tozero", nticks=4, tickformat=",", domain=_domain(queue_px, height)
        ),
        "annotations": [
            look.title(f"<b>Jobs waiting</b>{_title_notes(*notes)}", _domain(queue_px, height)[1]),
            *_names(course, look, x),
        ],
    }
    if busy:
        layout["yaxis2"] = look.axis(
            domain=_domain(_BUSY_PX, height),
            range=[0, 104],
            tickvals=[0, 50, 100],
            ticktext=["0", "50 %", "100 %"],
        )
        # A longer title would be cut off on a phone.
        note = course.line_note and f"{course.line_note} in both charts"
        layout["annotations"].append(
            look.title(f"<b>GPUs busy</b>{_title_notes(note)}", _domain(_BUSY_PX, height)[1])
        )
    if whole:
        traces += _strip(whole, x)
        layout |= _strip_layout(look, x, whole, height)
        layout["annotations"].append(_strip_label(height, look.baseline))
    bottom = _domain(_BUSY_PX if busy else queue_px, height)[0]
    rows_high = bottom, _domain(queue_px, height)[1]
    layout["shapes"] = [*layout.get("shapes", ()), *_marks(marks, x, rows_high)]
    title = "Jobs waiting, GPUs busy" if busy else "Jobs waiting"
    return go.Figure(traces, look.layout(height, _LEFT_PX, title) | layout)


def _marks(marks: Sequence[float], x: TimeAxis, rows: tuple[float, float]) -> list[Trace]:
    """Return a thin vertical line through both rows at each instant, as Plotly shapes."""
    places = x.place(np.array(marks, np.float64)).tolist()
    line = {"width": 1, "color": NEUTRAL, "dash": "dot"}
    return [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": at,
            "x1": at,
            "y0": rows[0],
            "y1": rows[1],
            "line": line,
        }
        for at in places
    ]


def _title_notes(*notes: str) -> str:
    """Return notes joined by dots, as grey markup to follow a title; "" without notes."""
    text = " · ".join(filter(None, notes))
    return f'  <span style="color:{NEUTRAL}">{literal(text)}</span>' if text else ""


def _domain(px: tuple[int, int], height: int) -> list[float]:
    """Return the vertical range of a row as shares of the figure."""
    return [1 - px[1] / height, 1 - px[0] / height]


def _line(course: Course, values: Floats, x: TimeAxis) -> Trace:
    """Return the points of one line: steps if the bins are exact, else a curve through means."""
    if course.exact:
        places = x.place(course.edges_s)
        return {"x": places, "y": _f4(np.append(values, values[-1])), "line_shape": "hv"}
    middles = x.place((course.edges_s[:2] + course.edges_s[1:3]) / 2)
    step = (float(middles[1]) - float(middles[0])) / points_per_value() if len(middles) > 1 else 1.0
    return {"x0": float(middles[0]), "dx": step, "y": _f4(smooth(values))}


def _f4(values: Floats) -> NDArray[np.float32]:
    return values.astype(np.float32)


def _area(course: Course, look: Look, x: TimeAxis) -> list[Trace]:
    """Return the two edges of the filled area between baseline and highlighted policy."""
    # After the end of a run no job waits.
    edge, other = (
        look.area() | _line(course, np.nan_to_num(course.waiting[title]), x)
        for title in (look.baseline, look.high)
    )
    return [edge, other | {"fill": "tonexty"}]


def _bands(course: Course, look: Look, x: TimeAxis) -> list[Trace]:
    """Return the bands of baseline and highlighted policy, from mean to maximum of each bin."""
    bands: list[Trace] = []
    for title in dict.fromkeys((look.baseline, look.high)):
        if title in course.most and title in look.colours:
            # A fill extends to the previous trace.
            bands += [
                look.band(title) | _line(course, np.nan_to_num(course.waiting[title]), x),
                look.band(title)
                | _line(course, np.nan_to_num(course.most[title]), x)
                | {"fill": "tonexty"},
            ]
    return bands


def _names(course: Course, look: Look, x: TimeAxis) -> list[Trace]:
    """Return annotations that name the lines, each above its highest free peak.

    Faint lines have a name too, unless there is a legend or more than `_MAX_NAMED` lines.
    """
    annotations: list[Trace] = []
    spots: list[tuple[float, float]] = []
    heights = {**course.waiting, **course.most}
    top = max((float(np.nanmax(v)) for v in heights.values() if len(v)), default=0.0) or 1.0
    span = x.t1_s - x.t0_s
    middles = (course.edges_s[:-1] + course.edges_s[1:]) / 2
    strong = [title for title in dict.fromkeys((look.baseline, look.high)) if title in look.colours]
    faint = () if look.alone or len(look.colours) > _MAX_NAMED else look.colours
    named = dict.fromkeys((*strong, *faint))
    shares = {title: np.nan_to_num(heights[title]) / top for title in named}
    for title in named:
        own = shares[title]
        # Names must not be cut off at the ends.
        inside = np.flatnonzero((middles > x.t0_s + 0.06 * span) & (middles < x.t1_s - 0.06 * span))
        others = [shares[other] for other in strong if other != title]
        peaks = inside[np.argsort(-own[inside], kind="stable")]
        free = (
            at
            for at in peaks
            if own[at] and not _is_label_crossed(others, own[at], middles, at, span)
        )
        for at in chain(free, peaks):
            spot = (middles[at] - x.t0_s) / span, own[at]
            if any(abs(spot[0] - a) < _NEAR_X and abs(spot[1] - b) < _NEAR_Y for a, b in spots):
                continue
            spots.append(spot)
            annotations.append(
                {
                    "text": ("<b>%s</b>" if title in strong else "%s") % literal(title)[:40],
                    "showarrow": False,
                    "x": x.place(np.array([middles[at]]))[0].item(),
                    "y": float(own[at] * top),
                    "yanchor": "bottom",
                    "yshift": 3,
                    "font": {"size": 13, "color": look.colours[title]},
                    # Faint lines may pass behind.
                    "bgcolor": with_opacity(PAPER, 0.8),
                    "borderpad": 0,
                }
            )
            break
    return annotations


def _is_label_crossed(
    others: Sequence[Floats], share: float, middles: Floats, at: int, span: float
) -> bool:
    """Return True if another line crosses the label drawn above a peak at `share`."""
    near = np.abs(middles - middles[at]) <= _NEAR_X / 2 * span
    return any(
        other[near].max() > share and other[near].min() < share + _NEAR_Y for other in others
    )


def _strip_label(height: int, title: str) -> Trace:
    """Return the label in the strip of the policy `title`, as an annotation."""
    place = {"xref": "paper", "x": 0, "xanchor": "left", "xshift": 2, "yref": "paper"}
    domain = _domain(_STRIP_PX, height)
    font = {"size": 13, "color": NEUTRAL}
    text = f"{literal(title[:20])}, whole run" if title else "whole run"
    return {"text": text, "showarrow": False, "y": sum(domain) / 2, "font": font, **place}


def _strip(whole: tuple[Floats, Floats, TimeAxis], x: TimeAxis) -> list[Trace]:
    """Return the strip of the whole run as two areas: all of it, and the window darker."""
    edges, values, axis = whole
    inside = (edges[1:] > x.t0_s) & (edges[:-1] < x.t1_s)
    look = {
        "type": "scatter",
        "mode": "lines",
        "x": axis.place(edges),
        "xaxis": "x2",
        "yaxis": "y3",
        "fill": "tozeroy",
        "line": {"width": 0, "shape": "hv"},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    parts = [(values, 0.25), (np.where(inside, values, 0.0), 0.5)]
    return [
        look | {"y": _f4(np.append(y, y[-1:])), "fillcolor": with_opacity(NEUTRAL, opacity)}
        for y, opacity in parts
    ]


def _strip_layout(
    look: Look, x: TimeAxis, whole: tuple[Floats, Floats, TimeAxis], height: int
) -> dict[str, Any]:
    """Return the axes of the strip, and a frame around the window unless it is the whole run."""
    axis = whole[2]
    begin, end = (float(at) for at in axis.place(np.array([axis.t0_s, axis.t1_s])))
    since, until = (float(at) for at in axis.place(np.array([x.t0_s, x.t1_s])))
    frame = {
        "type": "rect",
        "xref": "x2",
        "yref": "y3 domain",
        "x0": since,
        "x1": until,
        "y0": 0,
        "y1": 1,
        "line": {"width": 1.5, "color": TEXT},
    }
    return {
        "xaxis2": look.axis(anchor="y3", range=[begin, end], showticklabels=False, showgrid=False),
        "yaxis3": look.axis(
            domain=_domain(_STRIP_PX, height),
            rangemode="tozero",
            showgrid=False,
            showticklabels=False,
        ),
        "shapes": [frame] if (x.t0_s, x.t1_s) != (axis.t0_s, axis.t1_s) else [],
    }


def allocation(
    series: pd.DataFrame,
    x: TimeAxis,
    names: Mapping[str, str],
    capacity: pd.DataFrame | None = None,
    title: str = "",
) -> go.Figure:
    """Draw GPUs per job over time as stacked steps: the largest jobs by name, then all others.

    Parameters
    ----------
    series : DataFrame
        Reduced: `t_s`, one column of GPUs per named job (the first 8 are drawn), `others`.
    x : TimeAxis
        The window.
    names : mapping of str
        Column -> the job's name; a column without one is called as it is.
    capacity : DataFrame or None
        Reduced capacity series: `t_s`, `total`.
    title : str
        The finding or the question.
    """
    jobs = [name for name in series.columns if name not in {"t_s", _OTHERS}]
    t = series["t_s"].to_numpy(np.float64)
    layers = [
        _layer(series, name, x, (_short(names.get(name, name)), colour))
        | {"hovertemplate": f"job {literal(names.get(name, name))}: {_AMOUNT}"}
        for name, colour in zip(jobs, JOB_COLOURS, strict=False)
    ]
    layers.append(
        _layer(series, _OTHERS, x, ("other jobs", NEUTRAL))
        | {"hovertemplate": f"other jobs: {_AMOUNT}"}
    )
    shown = [str(trace["name"]) for trace in layers]
    traces = [*layers, x.heading(t)]
    if capacity is not None:
        traces.append(_ceiling(capacity, x))
    axis = x.layout()
    if _regular(t):
        axis["title"] = {"text": f"each point = {duration_text(t[1] - t[0])}, mean"}
    y = {"rangemode": "tozero", "title": {"text": "GPUs"}}
    drawn = figure(
        traces,
        title,
        300,
        legend_px=narrow_legend_px(shown),
        hovermode="x unified",
        xaxis=axis,
        yaxis=y,
    )
    return drawn.update_layout(legend_traceorder="normal")


def _layer(series: pd.DataFrame, column: str, x: TimeAxis, look: tuple[str, str]) -> Trace:
    """Return the stacked area of one job; points at which it holds no GPUs are left out."""
    name, colour = look
    gpus = series[column].to_numpy(np.float32)
    # Points without GPUs are omitted; Plotly infers the zeros that other layers need.
    held = (gpus > 0) | (np.append(np.float32(0), gpus[:-1]) > 0)
    return {
        "type": "scatter",
        "x": x.place(series["t_s"].to_numpy(np.float64)[held]),
        "y": gpus[held],
        "name": literal(name),
        "mode": "lines",
        "stackgroup": "jobs",
        "stackgaps": "infer zero",
        "line": {"shape": "hv", "width": 0, "color": colour},
        "fillcolor": with_opacity(colour, 0.35 if column == _OTHERS else 0.85),
    }


def _ceiling(capacity: pd.DataFrame, x: TimeAxis) -> Trace:
    """Return the line of the capacity."""
    return {
        "type": "scatter",
        "x": x.place(capacity["t_s"].to_numpy(np.float64)),
        "y": capacity["total"].to_numpy(np.float32),
        "name": "capacity",
        "showlegend": False,
        "mode": "lines",
        "line": {"shape": "hv", "color": NEUTRAL, "width": 1.5, "dash": "dot"},
        "hovertemplate": f"capacity: {_AMOUNT}",
    }


def _short(name: str) -> str:
    """Return a name shortened in the middle, as ids often differ only at their end."""
    return name if len(name) <= _ID_CHARACTERS else f"{name[:6]}…{name[-12:]}"


def _regular(t: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """Return True if there are more than 100 steps, all of equal length."""
    width = np.diff(t)
    return len(width) > _REGULAR and bool(np.allclose(width, width[0]))


def resources(
    frames: Mapping[str, pd.DataFrame],
    style: Style,
    of: tuple[str, str],
    x: TimeAxis,
    title: str = "",
) -> go.Figure:
    """Draw the amounts of a resource that jobs hold and use, one row per policy.

    Used: a stepped area; held: a step line; there: a dotted step line.

    Parameters
    ----------
    frames : mapping of DataFrame
        Reduced series by policy: `t_s`, `held_*` and `used_*` by jobs, and `there_*`, the
        total of the nodes, if known.
    style : mapping
        From `policy_style`.
    of : (str, str)
        End of those names, "cpus" or "mem_gb", and the unit.
    x : TimeAxis
        The window.
    title : str
        The finding or the question.
    """
    name, unit = of
    rows = [
        LinkedRow(
            literal(label),
            _layers(label, frame, style, of, x),
            120,
            {"rangemode": "tozero", "title": {"text": unit}},
        )
        for label, frame in frames.items()
    ]
    entries = [
        "used",
        "held",
        *(["there"] if any(f"there_{name}" in frame for frame in frames.values()) else []),
    ]
    drawn = linked_rows(rows, x, title, entries)
    looks = {
        "used": {"width": 8, "color": with_opacity(NEUTRAL, 0.5)},
        "held": {"width": LINE_PX, "color": NEUTRAL},
        "there": _THERE,
    }
    drawn.add_traces(
        [go.Scatter(legend_entry(entry, "lines", line=looks[entry])) for entry in entries]
    )
    return drawn.update_layout(showlegend=True)


def _layers(
    label: str, frame: pd.DataFrame, style: Style, of: tuple[str, str], x: TimeAxis
) -> list[Trace]:
    """Return the area of the used and lines of the held and existing amounts of a policy.

    Columns that the frame lacks are left out.
    """
    (name, unit), colour, t = of, style[label][0], x.place(frame["t_s"].to_numpy(np.float64))
    looks: dict[str, Trace] = {
        "used": {
            "line": {"shape": "hv", "width": 0, "color": colour},
            "fill": "tozeroy",
            "fillcolor": with_opacity(colour, 0.5),
        },
        "held": {"line": {"shape": "hv", "width": LINE_PX, "color": colour}},
        "there": {"line": {"shape": "hv"} | _THERE, "hoverinfo": "skip"},
    }
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{kind} {literal(label)}",
            "showlegend": False,
            "x": t,
            "hovertemplate": f"%{{y:,.0f}} {unit} {kind}<extra>{literal(label)}</extra>",
        }
        | {"y": frame[f"{kind}_{name}"].to_numpy(np.float32)}
        | look
        for kind, look in looks.items()
        if f"{kind}_{name}" in frame
    ]
