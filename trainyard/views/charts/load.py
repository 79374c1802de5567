"""Charts over time: jobs waiting, GPUs busy, GPUs per job, cores and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from trainyard.views.charts.axes import TimeAxis, band_texts, duration_text, mean_text
from trainyard.views.charts.lines import (
    BOTTOM_PX,
    HEIGHT_PX,
    NAMES_TOP_PX,
    PITCH_PX,
    TOP_PX,
    Look,
    points_per_value,
    round_to_pixels,
    smooth,
)
from trainyard.views.charts.over_time import LinkedRow, linked_rows
from trainyard.views.charts.theme import (
    JOB_COLOURS,
    LINE_PX,
    NEUTRAL,
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
_NAMES_END_PX: Final = 370
"""Bottom of the names of lines, in large type."""
_STRIP_PX: Final = (350, 378)
_ALONE_PX: Final = 344
"""Height without the strip."""
_HEADROOM: Final = 1.06
"""Height of the queue's row over the longest queue of the strong lines; others may leave it."""
_BUSY_TOP: Final = 104
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
    few_note : str
        Which policies the row of GPUs busy is limited to; "" = all of `waiting`.
    before : Course or None
        Results before a change, by the names of `Look.before`; None = none are drawn.
    """

    edges_s: Floats
    exact: bool
    waiting: Mapping[str, Floats]
    busy: Mapping[str, Floats]
    note: str = ""
    most: Mapping[str, Floats] = field(default_factory=dict)
    few_note: str = ""
    before: Course | None = None

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
    traces: list[Trace] = []
    if shaded:
        traces += _area(course, look, x)
    if not course.exact:
        traces += _bands(course, look, x)
    before = course.before or Course(course.edges_s, course.exact, {}, {})
    for own in (before, course):
        for values, axis in ((own.waiting, "y"), (own.busy if busy else {}, "y2")):
            traces += [
                look.line(title, axis)
                | _line(own, values[title], x)
                | {"yaxis": axis, "hovertemplate": _UNITS[axis]}
                for title in look.order
                if title in values
            ]
    strong = [title for title in look.colours if title in (look.baseline, look.high, *look.before)]
    highest = _highest(course) | _highest(before)
    top = _HEADROOM * (max(highest[title] for title in strong or look.colours) or 1.0)
    beyond = {title: f"↑{most:,.0f}" for title, most in highest.items() if most > top}
    ends = _ends_px({**course.waiting, **before.waiting}, queue_px, top)
    names_px = (NAMES_TOP_PX, queue_px[1])
    names, samples = look.names(ends, names_px, height, beyond, look.more_note)
    title = _queue_title(course, shaded)
    layout: dict[str, Any] = {
        "dragmode": "select",
        "selectdirection": "h",
        "xaxis": look.axis(showgrid=True, **x.layout())
        | {"anchor": "y2" if busy else "y", "title": {"text": ""}},
        "yaxis": look.axis(
            range=[0, top], nticks=4, tickformat=",", domain=_domain(queue_px, height)
        ),
        "annotations": [
            look.title(title, _domain(queue_px, height)[1]),
            *names,
        ],
        "shapes": samples,
    }
    if busy:
        layout["yaxis2"] = look.axis(
            domain=_domain(_BUSY_PX, height),
            range=[0, _BUSY_TOP],
            tickvals=[0, 50, 100],
            ticktext=["0", "50 %", "100 %"],
        )
        title = _busy_title(course, look)
        # Many names of the queue reach into this row.
        pitch, count = look.scale * PITCH_PX, len(ends) + bool(look.more)
        begin = min(NAMES_TOP_PX + pitch * (count + 0.5), _NAMES_END_PX - pitch)
        ends = _ends_px({**course.busy, **before.busy}, _BUSY_PX, _BUSY_TOP)
        names, samples = look.names(ends, (max(_BUSY_PX[0], begin), _BUSY_PX[1]), height)
        layout["annotations"] += [look.title(title, _domain(_BUSY_PX, height)[1]), *names]
        layout["shapes"] += samples
    if whole:
        traces += _strip(whole, x)
        layout |= _strip_axes(look, whole, height)
        layout["shapes"] += _window_frame(x, whole[2])
        layout["annotations"].append(_strip_label(height, look.baseline))
    bottom = _domain(_BUSY_PX if busy else queue_px, height)[0]
    rows_high = bottom, _domain(queue_px, height)[1]
    layout["shapes"] += _marks(marks, x, rows_high)
    title = "Jobs waiting, GPUs busy" if busy else "Jobs waiting"
    return go.Figure(traces, look.layout(height, _LEFT_PX, title) | layout)


def _queue_title(course: Course, shaded: str) -> str:
    """Return the title of the row of waiting jobs, as markup; `shaded` as in `load`."""
    notes = (
        course.note,
        shaded and f"shaded: {shaded}",
        "" if course.busy else course.line_note,
    )
    title = f"<b>Jobs waiting</b>{_title_notes(*notes)}"
    if course.most and not course.exact:
        # Style sheets hide the third span of a title on a phone.
        band, width = band_texts(float(course.edges_s[1] - course.edges_s[0]))
        if not course.busy:
            spans = ["; pale band: highest"]  # in each of the averages
        else:
            spans = [f"; {band} {width}"] if any(notes) else [f"  {band}", f" {width}"]
        title += "".join(f'<span style="color:{NEUTRAL}">{span}</span>' for span in spans)
    return title


def _busy_title(course: Course, look: Look) -> str:
    """Return the title of the row of busy GPUs, as markup."""
    # A longer title would be cut off on a phone.
    note = course.few_note or (course.line_note and f"{course.line_note} in both charts")
    title = f"<b>GPUs busy</b>{_title_notes(note)}"
    if course.few_note:
        more = ("" if look.alone else "point at a policy for its line", course.line_note)
        # A span of its own: style sheets hide it on a phone.
        if text := ", ".join(filter(None, more)):
            title += f'<span style="color:{NEUTRAL}">; {text}</span>'
    return title


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
        return {
            "x": places,
            "y": round_to_pixels(np.append(values, values[-1])),
            "line_shape": "hv",
        }
    middles = x.place((course.edges_s[:2] + course.edges_s[1:3]) / 2)
    step = (float(middles[1]) - float(middles[0])) / points_per_value() if len(middles) > 1 else 1.0
    return {"x0": float(middles[0]), "dx": step, "y": round_to_pixels(smooth(values))}


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


def _ends_px(values: Mapping[str, Floats], row_px: tuple[int, int], top: float) -> dict[str, float]:
    """Return title -> height of a line's end in pixels, by falling mean; 0 = top of the figure."""
    upper, lower = row_px
    means = {title: float(np.nan_to_num(own).mean()) for title, own in values.items()}
    ends = {}
    for title in sorted(values, key=means.__getitem__, reverse=True):
        finite = values[title][~np.isnan(values[title])]
        share = float(finite[-1]) / top if len(finite) else 0.0
        ends[title] = lower - min(share, 1.0) * (lower - upper)
    return ends


def _highest(course: Course) -> dict[str, float]:
    """Return title -> the most jobs waiting in the window; without jobs 0."""
    return {
        title: float(np.nan_to_num(course.most.get(title, waiting)).max(initial=0.0))
        for title, waiting in course.waiting.items()
    }


def _strip_label(height: int, title: str) -> Trace:
    """Return the label in the strip of the policy `title`, as an annotation."""
    # In the column of the names, away from the bars.
    place = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 8, "yref": "paper"}
    place |= {"y": _domain(_STRIP_PX, height)[0], "yanchor": "bottom", "align": "left"}
    font = {"size": 13, "color": NEUTRAL}
    text = f"{literal(title[:14])}<br>whole run" if title else "whole run"
    return {"text": text, "showarrow": False, "font": font, **place}


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
        look
        | {"y": round_to_pixels(np.append(y, y[-1:])), "fillcolor": with_opacity(NEUTRAL, opacity)}
        for y, opacity in parts
    ]


def _strip_axes(look: Look, whole: tuple[Floats, Floats, TimeAxis], height: int) -> dict[str, Any]:
    """Return the axes of the strip."""
    axis = whole[2]
    ends = axis.place(np.array([axis.t0_s, axis.t1_s])).tolist()
    return {
        "xaxis2": look.axis(anchor="y3", range=ends, showticklabels=False, showgrid=False),
        "yaxis3": look.axis(
            domain=_domain(_STRIP_PX, height),
            rangemode="tozero",
            showgrid=False,
            showticklabels=False,
        ),
    }


def _window_frame(x: TimeAxis, whole: TimeAxis) -> list[Trace]:
    """Return the frame around the window in the strip, as a shape; [] for the whole run."""
    if (x.t0_s, x.t1_s) == (whole.t0_s, whole.t1_s):
        return []
    since, until = whole.place(np.array([x.t0_s, x.t1_s])).tolist()
    return [
        {
            "type": "rect",
            "xref": "x2",
            "yref": "y3 domain",
            "x0": since,
            "x1": until,
            "y0": 0,
            "y1": 1,
            "line": {"width": 1.5, "color": TEXT},
        }
    ]


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
