"""The figures of a lesson: those of its first run, and those of the changed one beside or in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pandas as pd
import streamlit as st

import charts
from trainyard.lessons import numbers as lesson_numbers
from trainyard.lessons.reading import Lesson, Picture, Step
from trainyard.replays import curves
from trainyard.results.outcomes import Shown
from ui import figure, words
from ui.comparing import comparison, tables

_DOTTED: Final = "dot"
_WIDTH_PX: Final = 460
"""Below that a chart is no use beside another."""


class Ran(NamedTuple):
    """What was run: what it is called ("" if nothing else was), and the complete runs along the axis."""

    name: str
    shown: tuple[Shown, ...]


def draw(lesson: Lesson, runs: list[Ran], finding: str) -> None:
    """Draw all figures of a lesson.

    Parameters
    ----------
    lesson : Lesson
        What was asked.
    runs : list of Ran
        The first run, and perhaps the changed one.
    finding : str
        For those who cannot see the figures.
    """
    for at, picture in enumerate(lesson.pictures):
        name = f"lesson-{lesson.number}-{picture.kind}-{at}"
        place = lesson.place(picture.at)
        if picture.kind == "curve":
            _curve(lesson, picture, runs, (name, finding))
        elif picture.kind in _TOGETHER:
            drawn, data = _TOGETHER[picture.kind](picture, {ran.name: ran.shown[place] for ran in runs})
            figure.draw(drawn, name, f"{picture.title} {finding}", data)
        else:
            _beside(picture, {ran.name: ran.shown[place] for ran in runs}, (name, finding))


def step(lesson: Lesson, one: Step, shown: Shown, finding: str) -> None:
    """Draw one part of the Compare page."""
    st.markdown(one.text)
    said = comparison.report(shown.mark, shown)
    if said is None:
        return
    if one.part == "headline":
        st.subheader(words.plain(said.headline), anchor=False)
        st.caption(words.plain(said.facts))
    elif one.part == "table":
        st.html(tables.main_table(said.table, comparison.look(shown), said.remarks))
    else:
        picture = Picture(one.part, "")
        drawn, data = {**_TOGETHER, "timeline": _timeline}[one.part](picture, {"": shown})
        figure.draw(drawn, f"lesson-{lesson.number}-{one.part}", f"{one.title}. {finding}", data)


Made = tuple[Any, Callable[[], pd.DataFrame]]


def _style(shown: Shown) -> dict[str, tuple[str, str]]:
    """Return colour and dash of each policy; a single one is no baseline of anything."""
    return charts.policy_style(shown.titles, shown.titles[shown.study.baseline] if len(shown.titles) > 1 else "")


def _curve(lesson: Lesson, picture: Picture, runs: list[Ran], told: tuple[str, str]) -> None:
    assert lesson.axis is not None, "a curve needs an axis"
    tables = {ran.name: lesson_numbers.curve(ran.shown, lesson.values, picture.metric) for ran in runs}
    amount = curves.title(picture.metric).lower().replace("jct", "JCT").replace("queueing delay", "wait")
    drawn = charts.lesson_curve(tables, _style(runs[0].shown[0]), lesson.axis.label, amount, picture.title)
    name, finding = told
    figure.draw(drawn, name, f"{picture.title} {finding}", lambda: _curve_data(tables, lesson.axis.label if lesson.axis else "", amount))


def _curve_data(tables: Mapping[str, pd.DataFrame], axis: str, amount: str) -> pd.DataFrame:
    named = {"value": axis, "policy": "Policy", "number": f"{amount.capitalize()} (s)"}
    return _joined({run: table.rename(columns=named) for run, table in tables.items()})


def _joined(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return tables below each other, with the name of the run where there are several."""
    if len(tables) == 1:
        return next(iter(tables.values()))
    return pd.concat([table.assign(Run=run) for run, table in tables.items()], ignore_index=True)


def _labels(places: Mapping[str, Shown]) -> dict[str, tuple[Shown, int]]:
    """Return what each policy of each run is called in a common figure."""
    return {f"{title} · {run}" if run else title: (shown, at) for run, shown in places.items() for at, title in enumerate(shown.titles)}


def _cdf(picture: Picture, places: Mapping[str, Shown]) -> Made:
    labels = _labels(places)
    first = next(iter(places.values()))
    looks = _style(first)
    style = {label: (looks[shown.titles[at]][0], looks[shown.titles[at]][1] if shown is first else _DOTTED) for label, (shown, at) in labels.items()}
    frames = {label: shown.entries[at][0].chart("cdf") for label, (shown, at) in labels.items()}
    summaries = {label: shown.entries[at][0].summary for label, (shown, at) in labels.items()}
    missing = {label: int(one["jobs"] - one["completed"]) for label, one in summaries.items()}

    def data() -> pd.DataFrame:
        columns = {"share": "Share of jobs", "jct_s": "JCT (s)"}
        return pd.concat([frame[list(columns)].rename(columns=columns).assign(Policy=label) for label, frame in frames.items()], ignore_index=True)

    return charts.jct_cdf(frames, style, picture.title, missing), data


def _parts(picture: Picture, places: Mapping[str, Shown]) -> Made:
    rows = [{"policy": label, **shown.entries[at][0].chart("parts").iloc[0].to_dict()} for label, (shown, at) in _labels(places).items()]
    table = pd.DataFrame(rows)

    def data() -> pd.DataFrame:
        told = {"policy": "Policy", "jct_s": "Mean JCT (s)"} | {part.column: f"{part.name.capitalize()} (s)" for part in charts.PARTS}
        return table[list(told)].rename(columns=told)

    return charts.decomposition(table, picture.title), data


_TOGETHER: Final[Mapping[str, Callable[[Picture, Mapping[str, Shown]], Made]]] = {"cdf": _cdf, "parts": _parts}
"""Kinds that hold all runs in one figure."""


def _beside(picture: Picture, places: Mapping[str, Shown], told: tuple[str, str]) -> None:
    name, finding = told
    make = {"timeline": _timeline, "groups": _groups}[picture.kind]
    grid = st.grid(min_column_width=_WIDTH_PX) if len(places) > 1 else None
    for at, run in enumerate(places):
        with grid.cell() if grid is not None else st.container():
            # The run itself comes first, the others give the range of the axes.
            ordered = {run: places[run], **places}
            drawn, data = make(picture._replace(title=f"{picture.title} {run}") if run else picture, ordered)
            figure.draw(drawn, f"{name}-{at}", f"{picture.title} {run} {finding}", data)


def _timeline(picture: Picture, places: Mapping[str, Shown]) -> Made:
    every = [entries[0] for shown in places.values() for entries in shown.entries]
    end_s = max(1.0, *(float(entry.summary["end_s"]) for entry in every))
    most = max(float(_high(entry.chart("queue")).max()) for entry in every)
    shown = next(iter(places.values()))
    style = _style(shown)
    entries = {title: entries[0] for title, entries in zip(shown.titles, shown.entries, strict=True)}
    queue, busy, capacity = ({title: entry.chart(kind) for title, entry in entries.items()} for kind in ("queue", "utilisation", "capacity"))
    # Bands of what is busy would double what is sent, and say little beside the mean.
    busy = {title: frame[["t_s", "total"]] for title, frame in busy.items()}
    axis = charts.TimeAxis(0.0, end_s)
    rows = [charts.waiting_row(queue, style, axis), charts.busy_row(busy, style, axis, capacity)]
    rows[0].axis = {"range": [0, 1.05 * max(most, 1.0)]}

    def data() -> pd.DataFrame:
        return pd.concat([frame.assign(Policy=title) for title, frame in queue.items()], ignore_index=True)[["Policy", "t_s", "waiting"]].rename(columns=_TIME)

    return charts.linked_rows(rows, axis, picture.title, list(queue)), data


def _high(queue: pd.DataFrame) -> pd.Series:
    return queue["waiting_high"] if "waiting_high" in queue else queue["waiting"]


_TIME: Final = {"t_s": "Seconds since the first submission", "waiting": "Jobs waiting"}


@st.cache_resource(max_entries=64, show_spinner=False)
def _grouped(mark: str, metric: str, by: str, _shown: Shown) -> pd.DataFrame:
    del mark
    return lesson_numbers.groups(_shown, metric, by)


def _groups(picture: Picture, places: Mapping[str, Shown]) -> Made:
    shown = next(iter(places.values()))
    table = _grouped(shown.mark, picture.metric, picture.by, shown)
    axis = "mean wait" if picture.metric == "queue_mean_s" else "mean JCT"
    drawn = charts.dumbbell(table, _style(shown), shown.titles[shown.study.baseline], picture.title, axis)
    told = {"group": lesson_numbers.BY[picture.by].capitalize(), "label": "Policy", "value": f"{axis.capitalize()} (s)"}
    return drawn, lambda: table[list(told)].rename(columns=told)


def numbers(lesson: Lesson, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Draw the numbers of the runs beside each other."""
    heads = ["Number", *(words.plain(run) or "Result" for run in columns)]
    rows = [[words.plain(one.label), *(told[one.name] for told in columns.values())] for one in lesson.numbers if one.label]
    st.markdown("\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)))
