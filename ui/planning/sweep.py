"""The tab "Sweep" of Plan: policies compared while one or two settings vary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from sim.errors import TrainyardError
from sim.metrics.registry import COLUMNS
from trainyard.formatting import in_sentence, plural
from trainyard.library import library
from trainyard.results import outcomes
from trainyard.results.bootstrap import MIN_REPEATS
from trainyard.runs.frames import policies_to_draw as first_drawn
from trainyard.study.sweep import Sweep, SweepPoint
from trainyard.sweeps import summaries, tables
from trainyard.sweeps.axes import Lever
from trainyard.sweeps.sweep_run import SweepRun
from trainyard.views import charts, sweeps
from trainyard.views.sweeps import SweepFindings
from ui import figure, state, words
from ui.planning import buy as plan
from ui.planning import run_panel as plan_live
from ui.planning import sweep_form
from ui.planning.buy_results import policy_style
from ui.planning.run_panel import Run

_FILE: Final = "sweep.json"
_FIRST: Final = "jct_mean_s"
_VALUES: Final = "Values"
_MAX_POINTS: Final = 500
"""Points to choose a scenario from."""
_MAP_AXES: Final = 2
_AHEAD: Final = (
    "A policy is ahead if 95 % of resamples of its paired difference to the next policy are on one"
    " side of 0."
)
_EQUAL: Final = (
    "All repeats are equal, because nothing is drawn at random. To see the uncertainty, add"
    " failures or prediction errors, or vary the workload's seed."
)
_NOTHING: Final = (
    "The sweep shows a curve per policy, or a map if two settings vary, and where each policy is"
    " ahead."
)


def draw() -> None:
    """Draw the tab "Sweep": the form, the runs and their results; write the sweep to the URL."""
    study = plan.runnable_study()
    if study is None:
        return
    levers = sweep_form.available_levers(study)
    initial = sweep_form.current_request(study, levers)
    try:
        is_locked = plan_live.is_running(plan.match_link(initial.sweep(study, levers)))
    except TrainyardError:
        is_locked = False
    try:
        sweep = plan.match_link(
            sweep_form.draw(initial, levers, is_locked=is_locked).sweep(study, levers)
        )
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    plan.write_url(sweep)
    policies = words.plural(len(sweep.study.allocators), "policy")
    runs_text = (
        f"{words.plural(sweep.runs, 'run')} ({words.plural(sweep.count, 'point')} × {policies}"
    )
    runs_text += (
        f" × {words.plural(sweep.study.repeats, 'repeat')})" if sweep.study.repeats > 1 else ")"
    )
    plan_live.draw(
        plan_live.Panel(
            sweep,
            "Sweep",
            sweep.runs,
            runs_text,
            partial(_draw_results, sweep, library.recipe_id(sweep), levers),
            is_exact=True,
        )
    )


def _draw_results(
    sweep: Sweep, sweep_id: str, levers: Mapping[str, Lever], run: Run, is_running: bool
) -> None:
    """Draw the choices of metric and view, charts, failures, files, a point to open."""
    assert isinstance(run, SweepRun), "made for a sweep"
    rows = _run_table(sweep_id, run.done, run)
    if rows.empty:
        if not is_running:
            st.caption(_NOTHING)
        return
    findings = SweepFindings(
        sweep, sweep_id, tuple(sweep_form.axis_title(axis, levers) for axis in sweep.axes), rows
    )
    with st.container(horizontal=True):
        metrics = [name for name in COLUMNS if name in rows and rows[name].notna().any()]
        default_index = metrics.index(_FIRST) if _FIRST in metrics else 0
        metric = (
            st.selectbox(
                "Metric",
                metrics,
                default_index,
                key="sweep_metric",
                format_func=lambda name: COLUMNS[name].title,
                width=260,
            )
            if metrics
            else ""
        )
        modes = [_VALUES, f"Change against {charts.visible(findings.baseline)}"]
        mode = _VALUES
        if len(sweep.study.allocators) > 1:
            mode = st.selectbox("Show", modes, key="sweep_way", width=280)
    if metric:
        _draw_figures(findings, metric, change=mode != _VALUES)
    _draw_failures(findings)
    _draw_downloads(findings)
    if not is_running:
        _draw_point_choice(findings)
        _draw_command(sweep)


def _draw_figures(findings: SweepFindings, metric: str, *, change: bool) -> None:
    """Draw the verdict and the curve or maps of a metric; a table beyond two axes.

    `change` = differences to the baseline instead of values.
    """
    sweep, row_count = findings.sweep, len(findings.rows)
    verdict = _verdict_text(findings.mark, row_count, metric, findings)
    st.title(
        words.plain(verdict if row_count == sweep.runs else f"So far, {in_sentence(verdict)}"),
        anchor=False,
    )
    data = (_difference_data if change else _curve_data)(findings.mark, row_count, metric, findings)
    styles = policy_style(sweep.study)
    drawn_policies = first_drawn(
        [name for name in sweep.study.titles if not change or name != findings.baseline],
        findings.baseline,
    )
    if len(sweep.axes) > _MAP_AXES:
        st.caption(
            f"{len(sweep.axes)} settings vary, too many for a chart; all runs are in the table."
        )
        figure.draw_data(
            sweeps.sweep_table(findings, data, metric, change=change), "trainyard-sweep"
        )
    elif len(sweep.axes) == _MAP_AXES:
        _draw_maps(findings, data, metric, drawn_policies, change=change)
    else:
        looks = {name: styles[name] for name in drawn_policies}
        view = figure.cached_view(
            ("sweep", findings.mark, row_count, metric, change, *looks.items()),
            lambda: sweeps.sweep_curve(findings, data, metric, looks, "" if change else verdict),
        )
        figure.draw(view)
    st.caption(_certainty_text(findings, metric))


def _draw_maps(
    findings: SweepFindings,
    data: pd.DataFrame,
    metric: str,
    drawn_policies: Sequence[str],
    *,
    change: bool,
) -> None:
    """Draw one map per policy of a sweep over two settings; policies without data have none."""
    grid = st.grid(2, min_column_width=420)
    for policy in [name for name in drawn_policies if (data["policy"] == name).any()]:
        make = partial(sweeps.sweep_map, findings, data, metric, policy, change=change)
        key = ("map", findings.mark, len(findings.rows), metric, change, policy)
        with grid.cell():
            figure.draw(figure.cached_view(key, make))


def _certainty_text(findings: SweepFindings, metric: str) -> str:
    """Return the note on uncertainty: equal repeats, too few of them, or how to read it."""
    repeats = findings.sweep.study.repeats
    if tables.repeats_are_equal(findings.rows, metric):
        return _EQUAL
    if repeats < MIN_REPEATS:
        return (
            f"{plural(repeats, 'run')} per point. At least {MIN_REPEATS} repeats show the"
            " uncertainty."
        )
    return (
        _AHEAD
        if len(findings.sweep.axes) >= _MAP_AXES
        else f"Bands: 95 % of resamples of the repeats. {_AHEAD}"
    )


def _draw_failures(findings: SweepFindings) -> None:
    """Draw the reasons why runs failed, each once."""
    for sentence in summaries.failure_reasons(
        findings.rows.loc[findings.rows["error"] != "", "error"].tolist()
    ):
        st.warning(words.plain(sentence), icon=":material/error:")


def _draw_downloads(findings: SweepFindings) -> None:
    """Draw the downloads of all runs as CSV and Parquet."""
    with st.container(horizontal=True):
        for label, name, make in (
            ("Runs (CSV)", "csv", _to_csv),
            ("Runs (Parquet)", "parquet", _to_parquet),
        ):
            st.download_button(
                label,
                partial(make, findings.rows),
                f"trainyard-sweep.{name}",
                key=f"sweep_{name}",
                on_click="ignore",
                icon=":material/download:",
            )


def _to_csv(rows: pd.DataFrame) -> bytes:
    """Return a table as UTF-8 CSV, safe for spreadsheets."""
    return outcomes.safe_csv(rows).encode()


def _to_parquet(rows: pd.DataFrame) -> bytes:
    """Return a table as Parquet, with object columns as text."""
    # An axis may mix numbers and names.
    mixed = {
        str(column): rows[column].astype(str) for column in rows if rows[column].dtype == object
    }
    data: bytes = rows.assign(**mixed).to_parquet(index=False)
    return data


def _draw_point_choice(findings: SweepFindings) -> None:
    """Draw the choice of a point, and the button that opens it as the scenario."""
    points = findings.sweep.points()[:_MAX_POINTS]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        index = st.selectbox(
            "Point",
            range(len(points)),
            key="sweep_point",
            format_func=partial(_point_label, findings.axes, points),
            width=420,
        )
        if st.button(
            "Use this scenario",
            key="pin",
            icon=":material/push_pin:",
            help="Replaces your scenario by this point and opens Compare.",
        ):
            state.session().open(findings.sweep.study_at(points[index]))
            st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _point_label(axes: tuple[str, ...], points: tuple[SweepPoint, ...], index: int) -> str:
    """Return the label of a point: each axis with its value."""
    return charts.visible(
        ", ".join(
            f"{name} {sweeps.value_text(value)}"
            for name, value in zip(axes, points[index].values, strict=True)
        )
    )


def _draw_command(sweep: Sweep) -> None:
    """Draw the command line that repeats the sweep, and its file."""
    with st.expander("Command line"):
        st.code(f"python -m trainyard sweep {_FILE}", language="bash")
        st.download_button(
            _FILE,
            json.dumps(sweep.to_json(), indent=2, ensure_ascii=False),
            _FILE,
            "application/json",
            key="sweep_file",
            on_click="ignore",
            icon=":material/download:",
        )


@st.cache_resource(max_entries=16, show_spinner=False)
def _run_table(sweep_id: str, done: int, _run: SweepRun) -> pd.DataFrame:
    """Return the table of finished runs, cached by their number."""
    del sweep_id, done
    return _run.table()


@st.cache_resource(max_entries=32, show_spinner=False)
def _curve_data(sweep_id: str, rows: int, metric: str, _findings: SweepFindings) -> pd.DataFrame:
    """Return the mean and band of a metric per policy and point, cached."""
    del sweep_id, rows
    return tables.curves(_findings.rows, _findings.sweep, metric)


@st.cache_resource(max_entries=32, show_spinner=False)
def _verdict_text(sweep_id: str, rows: int, metric: str, _findings: SweepFindings) -> str:
    """Return a sentence on which policy is ahead where, by a metric; cached."""
    return tables.verdict(
        _curve_data(sweep_id, rows, metric, _findings),
        _findings.rows,
        _findings.sweep,
        metric,
        COLUMNS[metric].title,
    )


@st.cache_resource(max_entries=32, show_spinner=False)
def _difference_data(
    sweep_id: str, rows: int, metric: str, _findings: SweepFindings
) -> pd.DataFrame:
    """Return the paired difference to the baseline per policy and point, cached."""
    del sweep_id, rows
    return tables.differences(_findings.rows, _findings.sweep, metric, _findings.baseline)
