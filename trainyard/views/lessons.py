"""Views of a lesson: figures of its first run and of the changed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import pandas as pd

from trainyard.formatting import in_sentence
from trainyard.labs.lessons import numbers
from trainyard.labs.lessons.reading import Lesson, LessonStep, Picture
from trainyard.labs.replays import curves
from trainyard.results.outcomes import StudyResults
from trainyard.views import charts
from trainyard.views.figure_view import FigureView, stack_frames
from trainyard.views.over_time import TIME

_DOTTED: Final = "dot"
RunsByName = Mapping[str, StudyResults]
"""Name of a run -> its results at one value of the axis; "" = it is the only one."""


class LessonRun(NamedTuple):
    """A run of a lesson: its name ("" if it is the only one) and its results along the axis."""

    name: str
    results: tuple[StudyResults, ...]


def lesson_views(
    lesson: Lesson, runs: list[LessonRun], finding: str
) -> Iterator[tuple[FigureView, ...]]:
    """Yield the figures of a lesson, a tuple per picture; its figures are shown side by side.

    Parameters
    ----------
    lesson : Lesson
        The lesson.
    runs : list of LessonRun
        The first run, and perhaps the changed one.
    finding : str
        What the lesson shows, for all of its figures.
    """
    for at, picture in enumerate(lesson.pictures):
        name, alt = f"lesson-{lesson.number}-{picture.kind}-{at}", f"{picture.title} {finding}"
        place = lesson.place(picture.at)
        runs_by_name = {run.name: run.results[place] for run in runs}
        if picture.kind == "curve":
            yield (_curve(lesson, picture, runs, (name, alt)),)
        elif picture.kind in _TOGETHER:
            yield (_TOGETHER[picture.kind](picture, runs_by_name, (name, alt)),)
        else:
            yield tuple(_side_by_side(picture, runs_by_name, (name, finding)))


def part_view(lesson: Lesson, step: LessonStep, runs: StudyResults, finding: str) -> FigureView:
    """Return the figure of the part of the Compare page that a step of a lesson explains.

    The part is "timeline", "cdf" or "parts"; the headline and the table have no figure.
    """
    assert step.part != "headline", "no figure"
    assert step.part != "table", "no figure"
    make = {**_TOGETHER, "timeline": _timeline}[step.part]
    name = f"lesson-{lesson.number}-{step.part}"
    return make(Picture(step.part, ""), {"": runs}, (name, f"{step.title}. {finding}"))


def _style(runs: StudyResults) -> dict[str, tuple[str, str]]:
    """Return color and dash of each policy, as on Compare."""
    return charts.policy_style(runs.titles, runs.titles[runs.study.baseline], runs.study.slots)


def _curve(
    lesson: Lesson, picture: Picture, runs: list[LessonRun], of: tuple[str, str]
) -> FigureView:
    """Return the figure of a metric along the axis of a lesson, a line per policy and run.

    `of` = (name of the figure, its finding).
    """
    assert lesson.axis is not None, "a curve needs an axis"
    label = lesson.axis.label
    tables = {run.name: numbers.curve(run.results, lesson.values, picture.metric) for run in runs}
    amount = in_sentence(curves.title(picture.metric))
    columns = {"value": label, "policy": "Policy", "number": f"{amount.capitalize()} (s)"}

    def data() -> pd.DataFrame:
        """Return the curves as one table; several runs get a column "Run"."""
        named = {run: table.rename(columns=columns) for run, table in tables.items()}
        if len(named) == 1:
            return next(iter(named.values()))
        rows = [table.assign(Run=run) for run, table in named.items()]
        return pd.concat(rows, ignore_index=True)

    figure = charts.lesson_curve(tables, _style(runs[0].results[0]), label, amount, picture.title)
    return FigureView(of[0], figure, of[1], data)


def _labels(runs_by_name: RunsByName) -> dict[str, tuple[StudyResults, int]]:
    """Return label -> (results, index of the policy), one per policy of each run.

    The label is the policy's title, followed by the name of the run if it has one.
    """
    return {
        f"{title} · {run}" if run else title: (runs, at)
        for run, runs in runs_by_name.items()
        for at, title in enumerate(runs.titles)
    }


def _cdf(picture: Picture, runs_by_name: RunsByName, of: tuple[str, str]) -> FigureView:
    """Return the figure of completion times: a line per policy and run, later runs dotted.

    Only first repeats. `of` = (name of the figure, its finding).
    """
    labels = _labels(runs_by_name)
    first = next(iter(runs_by_name.values()))
    looks, later = (
        _style(first),
        [label for label, (runs, _) in labels.items() if runs is not first],
    )
    look = charts.Look(
        {label: looks[runs.titles[at]][0] for label, (runs, at) in labels.items()},
        alone=True,
        dashes=dict.fromkeys(later, _DOTTED),
    )
    frames = {label: runs.entries[at][0].chart("cdf") for label, (runs, at) in labels.items()}
    summaries = {label: runs.entries[at][0].summary for label, (runs, at) in labels.items()}
    missing = {label: int(one["jobs"] - one["completed"]) for label, one in summaries.items()}
    return FigureView(
        of[0],
        charts.jct_cdf(frames, look, missing, picture.title),
        of[1],
        lambda: stack_frames(frames, {"share": "Share of jobs", "jct_s": "Completion time (s)"}),
    )


def _parts_figure(picture: Picture, runs_by_name: RunsByName, of: tuple[str, str]) -> FigureView:
    """Return the figure of mean completion times by part, one stacked bar per policy and run.

    Only first repeats. `of` = (name of the figure, its finding).
    """
    table = pd.DataFrame(
        [
            {"policy": label, **runs.entries[at][0].chart("parts").iloc[0].to_dict()}
            for label, (runs, at) in _labels(runs_by_name).items()
        ]
    )
    columns = {"policy": "Policy", "jct_s": "Average completion time (s)"} | {
        part.column: f"{part.name.capitalize()} (s)" for part in charts.PARTS
    }
    figure = charts.decomposition(table, picture.title)
    return FigureView(of[0], figure, of[1], lambda: table[list(columns)].rename(columns=columns))


_TOGETHER: Final[Mapping[str, Callable[[Picture, RunsByName, tuple[str, str]], FigureView]]] = {
    "cdf": _cdf,
    "parts": _parts_figure,
}
"""Kinds that hold all runs in one figure."""


def _side_by_side(
    picture: Picture, runs_by_name: RunsByName, of: tuple[str, str]
) -> Iterator[FigureView]:
    """Yield one figure per run, all on the same axes; `of` = (name, finding)."""
    name, finding = of
    make = {"timeline": _timeline, "groups": _groups}[picture.kind]
    for at, run in enumerate(runs_by_name):
        # The run comes first; the others set the range of the axes.
        ordered = {run: runs_by_name[run], **runs_by_name}
        titled = picture._replace(title=f"{picture.title} {run}") if run else picture
        yield make(titled, ordered, (f"{name}-{at}", f"{picture.title} {run} {finding}"))


def _timeline(picture: Picture, runs_by_name: RunsByName, of: tuple[str, str]) -> FigureView:
    """Return the figure of queue and GPUs busy of the first run, as two rows of step lines.

    One line per policy, of first repeats. The axes fit all runs.
    `of` = (name of the figure, its finding).
    """
    every = [entries[0] for runs in runs_by_name.values() for entries in runs.entries]
    end_s = max(1.0, *(float(entry.summary["end_s"]) for entry in every))
    most = max(float(_high(entry.chart("queue")).max()) for entry in every)
    runs = next(iter(runs_by_name.values()))
    style = _style(runs)
    entries = {title: entries[0] for title, entries in zip(runs.titles, runs.entries, strict=True)}
    queue, busy, capacity = (
        {title: entry.chart(kind) for title, entry in entries.items()}
        for kind in ("queue", "utilisation", "capacity")
    )
    # Bands of busy GPUs would double the data and add little.
    busy = {title: frame[["t_s", "total"]] for title, frame in busy.items()}
    axis = charts.TimeAxis(0.0, end_s)
    rows = [charts.waiting_row(queue, style, axis), charts.busy_row(busy, style, axis, capacity)]
    rows[0].axis = {"range": [0, 1.05 * max(most, 1.0)]}
    return FigureView(
        of[0],
        charts.linked_rows(rows, axis, picture.title, list(queue)),
        of[1],
        lambda: stack_frames(queue, {"t_s": TIME, "waiting": "Jobs waiting"}),
    )


def _high(queue: pd.DataFrame) -> pd.Series:
    """Return the upper values of a queue series."""
    return queue["waiting_high"] if "waiting_high" in queue else queue["waiting"]


def _groups(picture: Picture, runs_by_name: RunsByName, of: tuple[str, str]) -> FigureView:
    """Return the figure of means by group of jobs in the first run, a mark per policy.

    `of` = (name of the figure, its finding).
    """
    runs = next(iter(runs_by_name.values()))
    table = numbers.groups(runs, picture.metric, picture.by)
    amount = in_sentence(curves.title(picture.metric))
    figure = charts.dumbbell(
        table, _style(runs), runs.titles[runs.study.baseline], picture.title, amount
    )
    columns = {
        "group": numbers.BY[picture.by].capitalize(),
        "label": "Policy",
        "value": f"{amount.capitalize()} (s)",
    }
    return FigureView(of[0], figure, of[1], lambda: table[list(columns)].rename(columns=columns))
