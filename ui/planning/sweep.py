"""The sweep tab: the comparison repeated while one or two things vary, and what that has shown so
far: who is ahead where, a curve with bands or a map, paired differences, failed runs, the table,
and a point as a scenario.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from sim.errors import TrainyardError
from sim.metrics.registry import COLUMNS
from trainyard.library import library
from trainyard.results import outcomes
from trainyard.results.compare import FEWEST_REPEATS
from trainyard.runs.frames import drawn as first_drawn
from trainyard.study.sweep import Sweep, SweepPoint
from trainyard.sweeps import sentences, tables
from trainyard.sweeps.axes import Lever
from trainyard.sweeps.sweep_run import SweepRun
from trainyard.text import plural
from trainyard.views import charts, sweeps
from trainyard.views.sweeps import SweepFindings
from ui import figure, state, words
from ui.planning import capacity as plan
from ui.planning import live as plan_live
from ui.planning import sweep_form
from ui.planning.capacity_results import style
from ui.planning.live import Run

_FILE: Final = "sweep.json"
_FIRST: Final = "jct_mean_s"
_VALUES: Final = "values"
_MOST_POINTS: Final = 500
"""Points that are offered as scenarios."""
_MAP_AXES: Final = 2
_AHEAD: Final = (
    "A policy is ahead where 95 % of resamples of its paired difference to the next one, repeat by"
    " repeat, are on one side of 0."
)
_EQUAL: Final = (
    "All repeats gave the same numbers, because nothing here is drawn at random: the"
    " repeats do not show how certain the result is. Failures and prediction errors"
    " differ from seed to seed; other jobs come from another seed of the workload, or"
    " of the jobs drawn."
)
_NOTHING: Final = (
    "A curve for every policy will appear here, or a map if two settings vary, and"
    " which policy is ahead where."
)


def draw() -> None:
    """Draw the tab."""
    study = plan.runnable()
    if study is None:
        return
    known = sweep_form.choices(study)
    before = sweep_form.asked(study, known)
    try:
        locked = plan_live.is_going(plan.as_it_came(before.sweep(study, known)))
    except TrainyardError:
        locked = False
    try:
        sweep = plan.as_it_came(sweep_form.draw(before, known, locked=locked).sweep(study, known))
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    plan.write(sweep)
    policies = words.plural(len(sweep.study.allocators), "policy")
    count = f"{words.plural(sweep.runs, 'run')} ({words.plural(sweep.count, 'point')} × {policies}"
    count += (
        f" × {words.plural(sweep.study.repeats, 'repeat')})" if sweep.study.repeats > 1 else ")"
    )
    draw_results = partial(_results, sweep, library.identity(sweep), known)
    plan_live.draw(plan_live.Panel(sweep, "Sweep", sweep.runs, count, draw_results, exact=True))


def _results(sweep: Sweep, mark: str, known: Mapping[str, Lever], run: Run, going: bool) -> None:
    """Draw what is known."""
    assert isinstance(run, SweepRun), "made for a sweep"
    rows = _rows(mark, run.done, run)
    if rows.empty:
        if not going:
            st.caption(_NOTHING)
        return
    findings = SweepFindings(
        sweep, mark, tuple(sweep_form.title(axis, known) for axis in sweep.axes), rows
    )
    with st.container(horizontal=True):
        metrics = [name for name in COLUMNS if name in rows and rows[name].notna().any()]
        first = metrics.index(_FIRST) if _FIRST in metrics else 0
        metric = (
            st.selectbox(
                "Metric",
                metrics,
                first,
                key="sweep_metric",
                format_func=lambda name: COLUMNS[name].title,
                width=260,
            )
            if metrics
            else ""
        )
        ways = [_VALUES, f"change against {charts.visible(findings.baseline)}"]
        way = _VALUES
        if len(sweep.study.allocators) > 1:
            way = st.selectbox("Shown", ways, key="sweep_way", width=280)
    if metric:
        _figures(findings, metric, change=way != _VALUES)
    _failures(findings)
    _take_away(findings)
    if not going:
        _pin(findings)
        _command(sweep)


def _figures(findings: SweepFindings, metric: str, *, change: bool) -> None:
    sweep, rows = findings.sweep, len(findings.rows)
    verdict = _verdict(findings.mark, rows, metric, findings)
    st.title(words.plain(verdict), anchor=False)
    found = (_differences if change else _curves)(findings.mark, rows, metric, findings)
    of_study = style(sweep.study)
    drawn = first_drawn(
        [name for name in sweep.study.titles if not change or name != findings.baseline],
        findings.baseline,
    )
    if len(sweep.axes) > _MAP_AXES:
        st.caption(
            f"{len(sweep.axes)} settings vary, too many for a chart; all runs are in the table."
        )
        figure.table(sweeps.sweep_table(findings, found, metric, change=change), "trainyard-sweep")
    elif len(sweep.axes) == _MAP_AXES:
        _maps(findings, found, metric, drawn, change=change)
    else:
        looks = {name: of_study[name] for name in drawn}
        view = figure.kept(
            ("sweep", findings.mark, rows, metric, change, *looks.items()),
            lambda: sweeps.sweep_curve(findings, found, metric, looks, "" if change else verdict),
        )
        figure.draw(view)
    st.caption(_certainty(findings, metric))


def _maps(
    findings: SweepFindings,
    found: pd.DataFrame,
    metric: str,
    drawn: Sequence[str],
    *,
    change: bool,
) -> None:
    grid = st.grid(2, min_column_width=420)
    for policy in [name for name in drawn if (found["policy"] == name).any()]:
        make = partial(sweeps.sweep_map, findings, found, metric, policy, change=change)
        key = ("map", findings.mark, len(findings.rows), metric, change, policy)
        with grid.cell():
            figure.draw(figure.kept(key, make))


def _certainty(findings: SweepFindings, metric: str) -> str:
    """Return how far chance was tried."""
    repeats = findings.sweep.study.repeats
    if tables.repeats_are_equal(findings.rows, metric):
        return _EQUAL
    if repeats < FEWEST_REPEATS:
        return (
            f"{plural(repeats, 'run')} of each point: from {FEWEST_REPEATS} repeats on the runs"
            " show how much chance matters."
        )
    return (
        _AHEAD
        if len(findings.sweep.axes) >= _MAP_AXES
        else f"Bands hold 95 % of resamples of the repeats. {_AHEAD}"
    )


def _failures(findings: SweepFindings) -> None:
    """Say why runs failed; each is a cross in the chart, and a row of the files."""
    for sentence in sentences.reasons(
        findings.rows.loc[findings.rows["error"] != "", "error"].tolist()
    ):
        st.warning(words.plain(sentence), icon=":material/error:")


def _take_away(findings: SweepFindings) -> None:
    with st.container(horizontal=True):
        for label, name, make in (
            ("Runs (CSV)", "csv", _csv),
            ("Runs (Parquet)", "parquet", _parquet),
        ):
            data = partial(make, findings.rows)
            st.download_button(
                label,
                data,
                f"trainyard-sweep.{name}",
                key=f"sweep_{name}",
                on_click="ignore",
                icon=":material/download:",
            )


def _csv(rows: pd.DataFrame) -> bytes:
    return outcomes.safe_csv(rows).encode()


def _parquet(rows: pd.DataFrame) -> bytes:
    # An axis may hold numbers beside names.
    mixed = {
        str(column): rows[column].astype(str) for column in rows if rows[column].dtype == object
    }
    data: bytes = rows.assign(**mixed).to_parquet(index=False)
    return data


def _pin(findings: SweepFindings) -> None:
    """Draw what makes a point of the sweep the scenario."""
    points = findings.sweep.points()[:_MOST_POINTS]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        label = partial(_point_text, findings.axes, points)
        at = st.selectbox(
            "Point", range(len(points)), key="sweep_point", format_func=label, width=420
        )
        if st.button(
            "Use this scenario",
            key="pin",
            icon=":material/push_pin:",
            help="Your scenario becomes that of this point, and opens in Compare.",
        ):
            state.session().open(findings.sweep.at(points[at]))
            st.switch_page("pages/compare.py", query_params=state.address())


def _point_text(axes: tuple[str, ...], points: tuple[SweepPoint, ...], at: int) -> str:
    return charts.visible(
        ", ".join(
            f"{name} {sweeps.value_text(value)}"
            for name, value in zip(axes, points[at].values, strict=True)
        )
    )


def _command(sweep: Sweep) -> None:
    with st.expander("The command that repeats it", icon=":material/terminal:"):
        st.code(f"python -m trainyard sweep {_FILE}", language="bash")
        text = json.dumps(sweep.to_json(), indent=2, ensure_ascii=False)
        st.download_button(
            _FILE,
            text,
            _FILE,
            "application/json",
            key="sweep_file",
            on_click="ignore",
            icon=":material/download:",
        )


@st.cache_resource(max_entries=16, show_spinner=False)
def _rows(mark: str, done: int, _run: SweepRun) -> pd.DataFrame:
    del mark, done
    return _run.table()


@st.cache_resource(max_entries=32, show_spinner=False)
def _curves(mark: str, rows: int, metric: str, _findings: SweepFindings) -> pd.DataFrame:
    del mark, rows
    return tables.curves(_findings.rows, _findings.sweep, metric)


@st.cache_resource(max_entries=32, show_spinner=False)
def _verdict(mark: str, rows: int, metric: str, _findings: SweepFindings) -> str:
    return tables.verdict(
        _curves(mark, rows, metric, _findings),
        _findings.rows,
        _findings.sweep,
        metric,
        COLUMNS[metric].title,
    )


@st.cache_resource(max_entries=32, show_spinner=False)
def _differences(mark: str, rows: int, metric: str, _findings: SweepFindings) -> pd.DataFrame:
    del mark, rows
    return tables.differences(_findings.rows, _findings.sweep, metric, _findings.baseline)
