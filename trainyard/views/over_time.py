"""Views over time: jobs waiting, GPUs busy, GPU states, and jobs on the GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trainyard.formatting import count, plural
from trainyard.runs.frames import repeat_note
from trainyard.views import charts
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.figure_view import FigureView

Floats = NDArray[np.float64]
TIME: Final = "Time (s)"
_STATES: Final = {state.column: f"GPUs {state.name}" for state in charts.STATES}


def queue(
    compared: ComparedRuns,
    look: charts.Look | None = None,
    *,
    marks: Sequence[float] = (),
    note: str = "",
    only_queue: bool = False,
) -> FigureView:
    """Return the figure of jobs waiting and GPUs busy over time, one line per policy.

    Two rows; without GPUs only the queue. Of many policies the second row draws the strong ones.

    Parameters
    ----------
    compared : ComparedRuns
        The runs.
    look : Look or None
        From `compared.look`; None = of a figure alone, which has no strip of the whole run.
    marks : sequence of float, seconds
        Instants that are marked by a thin line.
    note : str
        Which jobs are counted; "" = as everywhere beside.
    only_queue : bool
        Whether GPUs busy and the strip are left out.

    Raises
    ------
    StoreError
        If a stored result was deleted.
    """
    look = look or compared.look(alone=True)
    loads, alone = compared.loads, look.alone
    titles = [title for title in look.colours if title not in look.before]
    strong = [title for title in titles if title in (look.baseline, look.high)]
    busy = compared.cluster.gpus > 0 and not only_queue
    is_limited = busy and bool(strong) and len(look.colours) > charts.lines.MAX_BUSY
    figure = charts.load(
        charts.Course(
            loads.edges_s,
            loads.exact,
            {title: loads.runs[title].waiting for title in titles},
            {title: loads.runs[title].busy for title in (strong if is_limited else titles)}
            if busy
            else {},
            note,
            {title: loads.runs[title].most for title in strong},
            " and ".join(charts.lines.short_names(strong).values()) if is_limited else "",
            _course_before(compared, look),
        ),
        look,
        compared.axis,
        None if alone or only_queue else _whole_queue(compared),
        area_note(compared, look.high),
        marks,
    )
    most = ", ".join(f"{title} {count(loads.runs[title].peak)}" for title in titles)
    rows = "Jobs waiting and GPUs busy" if busy else "Jobs waiting"
    return FigureView(
        "queue",
        figure,
        f"{rows} over time. Longest queue: {most}. {compared.report.headline}",
        lambda: _series(compared),
        _repeat(compared) if alone else "",
    )


def _course_before(compared: ComparedRuns, look: charts.Look) -> charts.Course | None:
    """Return queue and GPU use before a change, up to the end of the axis; None = no line."""
    if compared.before is None or not look.before:
        return None
    loads = compared.before.loads
    edges = loads.edges_s[: max(int(np.searchsorted(loads.edges_s, compared.axis.t1_s)) + 1, 2)]
    runs = {name: loads.runs[title] for name, title in look.before.items()}
    bins = len(edges) - 1
    return charts.Course(
        edges,
        loads.exact,
        {name: run.waiting[:bins] for name, run in runs.items()},
        {name: run.busy[:bins] for name, run in runs.items()},
    )


def _whole_queue(compared: ComparedRuns) -> tuple[Floats, Floats, charts.TimeAxis]:
    """Return bin edges, jobs waiting and time axis of the baseline's whole run, for the strip."""
    whole_runs = compared.with_window(None)
    title = compared.baseline or compared.drawn[0]
    return (
        whole_runs.loads.edges_s,
        np.nan_to_num(whole_runs.loads.runs[title].waiting),
        whole_runs.axis,
    )


def area_note(compared: ComparedRuns, high: str) -> str:
    """Return the meaning of the area between baseline and a policy; "" = no area.

    It is the waiting time avoided or added in the window, over all jobs.
    """
    base = compared.baseline
    table = compared.report.table
    means = table[table["metric"] == "wait_mean_s"].set_index("label")["value"]
    # Earlier results have other settings and are not compared.
    if not {base, high} <= {*means.index} - {*compared.earlier} or base == high:
        return ""
    if not means.notna().all():
        return ""
    counts = compared.report.counts.set_index("label")["completed"]
    jobs = min(int(counts[base]), int(counts[high])) / compared.runs.study.repeats
    hours = (float(means[base]) - float(means[high])) * jobs / 3600
    inside = ""
    if compared.window is not None:
        # Means cover whole waits; within a window the area itself is measured.
        loads = compared.loads
        widths_s = np.diff(np.clip(loads.edges_s, *compared.window))
        less = np.nan_to_num(loads.runs[base].waiting) - np.nan_to_num(loads.runs[high].waiting)
        hours, inside = float((less * widths_s).sum()) / 3600, " in this window"
    if abs(hours) < 0.5:
        return ""
    return f"{two_digits(abs(hours))} job-h {'saved' if hours > 0 else 'added'}{inside}"


def two_digits(value: float) -> str:
    """Return a number with two significant digits: 3,587 -> "3,600"."""
    digits = max(len(f"{value:.0f}") - 2, 0)
    return f"{round(value, -digits):,.0f}"


def gpus(compared: ComparedRuns) -> FigureView | None:
    """Return the figure of GPUs by state, stacked, a row per policy; None without GPUs."""
    if not compared.cluster.gpus:
        return None
    states = compared.series("states")
    rows = [charts.state_row(title, frame, compared.axis) for title, frame in states.items()]
    most = "; ".join(f"{title} {frame['fragmented'].max():,.0f}" for title, frame in states.items())
    return FigureView(
        "gpus",
        charts.linked_rows(rows, compared.axis, "GPUs by state"),
        f"GPUs by state over time, stacked, one row per policy. Most fragmented GPUs: {most}.",
        lambda: _series(compared),
        f"{_meaning(list(states.values()))} {_repeat(compared)}".strip(),
    )


def states(compared: ComparedRuns, title: str) -> FigureView:
    """Return the figure of GPUs by state over time under one policy, as stacked steps."""
    frame = compared.frames["states"][title]
    most = f"{frame['fragmented'].max():,.0f}"
    return FigureView(
        "states",
        charts.linked_rows([charts.state_row(title, frame, compared.axis)], compared.axis, ""),
        f"GPUs under {title} by state over time, stacked. Most fragmented GPUs: {most}.",
        lambda: frame.rename(columns={"t_s": TIME, **_STATES})[[TIME, *_STATES.values()]],
        f"{_meaning([frame])} {_repeat(compared)}".strip(),
    )


def allocation(compared: ComparedRuns, title: str) -> FigureView:
    """Return the figure of GPUs per job under a policy, stacked; the largest jobs have names."""
    series, ids = compared.frames["allocation"][title], compared.job_ids
    named = [ids[column] for column in series.columns if column in ids]
    figure = charts.allocation(
        series,
        compared.axis,
        ids,
        compared.frames["capacity"][title],
        f"GPUs by job under {charts.literal(title)}",
    )
    columns = {"t_s": TIME, "others": "Other jobs"}
    return FigureView(
        f"allocation-{compared.report.labels.index(title) + 1}",
        figure,
        f"GPUs per job over time under {title}, stacked. The jobs with the most GPU-hours:"
        f" {', '.join(map(charts.visible, named)) or 'none'}.",
        lambda: series.rename(columns=columns | {name: f"Job {job}" for name, job in ids.items()}),
        f"Named: the {plural(len(named), 'job')} with the most GPU-hours of"
        f" {'this run' if compared.window is None else 'this window'}; what is empty below the"
        " dotted line, the capacity, is free.",
    )


def _meaning(states: Sequence[pd.DataFrame]) -> str:
    """Return one sentence with the meanings of the GPU states that occur."""
    there = [
        f"{state.name}: {state.meaning}"
        for state in charts.STATES
        if any((frame[state.column] > 0).any() for frame in states)
    ]
    text = "; ".join(there)
    return f"{text[:1].upper()}{text[1:]}."


def _repeat(compared: ComparedRuns) -> str:
    """Return the caption on which repeat the series over time are of; "" without repeats."""
    study = compared.runs.study
    return repeat_note(study.repeats, study.base.seed)


def _series(compared: ComparedRuns) -> pd.DataFrame:
    """Return a table of jobs waiting and GPUs by state, one row per policy and point in time."""
    parts = []
    for title in compared.drawn:
        own = [compared.frames["queue"][title][["t_s", "waiting"]]]
        if compared.cluster.gpus:
            own += [
                compared.frames["utilisation"][title][["t_s", "total"]],
                compared.frames["states"][title][["t_s", *_STATES]],
            ]
        joined = pd.concat([frame.set_index("t_s") for frame in own], axis=1).sort_index().ffill()
        parts.append(joined.reset_index().assign(policy=title))
    names = {"policy": "Policy", "t_s": TIME, "waiting": "Jobs waiting", "total": "GPUs held"}
    rows = pd.concat(parts, ignore_index=True)
    names = {name: text for name, text in (names | _STATES).items() if name in rows}
    return rows[list(names)].rename(columns=names)
