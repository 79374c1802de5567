"""What a sweep has shown so far: who is ahead where, a curve with bands or a map, paired differences, failed runs, the table, and a point as a scenario."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

import charts
from trainyard.results import outcomes
from trainyard.results.compare import FEWEST_REPEATS
from trainyard.results.outcomes import titles
from trainyard.runs.frames import drawn as first_drawn
from trainyard.sweeps import tables, telling
from trainyard.sweeps.axes import Lever
from trainyard.sweeps.recipe import Point, Sweep
from trainyard.sweeps.sweep_run import SweepRun
from trainyard.text import plural
from ui import figure, state, words
from ui.planning import sweep_form
from ui.planning.capacity_results import style
from ui.planning.runs import Run

_FILE: Final = "sweep.json"
_FIRST: Final = "jct_mean_s"
_VALUES: Final = "values"
_MOST_POINTS: Final = 500
"""Points that are offered as scenarios."""
_MAP_AXES: Final = 2


@dataclass(frozen=True, eq=False)
class Told:
    """A sweep with the words for it, and the rows that are there.

    Parameters
    ----------
    sweep : Sweep
        What is run.
    mark : str
        Its id.
    axes : tuple of str
        What its axes are called.
    rows : DataFrame
        `SweepRun.table`.
    """

    sweep: Sweep
    mark: str
    axes: tuple[str, ...]
    rows: pd.DataFrame

    @property
    def baseline(self) -> str:
        """Title of the policy that others are compared with."""
        return titles(self.sweep.study.allocators)[self.sweep.study.baseline]


def draw(sweep: Sweep, mark: str, known: Mapping[str, Lever], run: Run, going: bool) -> None:
    """Draw what is known."""
    assert isinstance(run, SweepRun), "made for a sweep"
    rows = _rows(mark, run.done, run)
    if rows.empty:
        if not going:
            st.caption(_NOTHING)
        return
    told = Told(sweep, mark, tuple(sweep_form.title(axis, known) for axis in sweep.axes), rows)
    with st.container(horizontal=True):
        metrics = [name for name in telling.BY_NAME if name in rows and rows[name].notna().any()]
        first = metrics.index(_FIRST) if _FIRST in metrics else 0
        metric = st.selectbox("Metric", metrics, first, key="sweep_metric", format_func=_metric_title, width=260) if metrics else ""
        ways = [_VALUES, f"change against {charts.visible(told.baseline)}"]
        way = _VALUES
        if len(sweep.study.allocators) > 1:
            way = st.selectbox("Shown", ways, key="sweep_way", width=280)
    if metric:
        _figures(told, metric, change=way != _VALUES)
    _failures(told)
    _take_away(told)
    if not going:
        _pin(told)
        _command(sweep)


def _figures(told: Told, metric: str, *, change: bool) -> None:
    sweep, about = told.sweep, telling.BY_NAME[metric]
    values = _curves(told.mark, len(told.rows), metric, told)
    st.subheader(words.plain(_verdict(told.mark, len(told.rows), metric, told)), anchor=False)
    found = _differences(told.mark, len(told.rows), metric, told) if change else values
    amount = charts.Amount(about.title, about.unit, change)
    look = style(sweep.study)
    shown = first_drawn([name for name in titles(sweep.study.allocators) if not change or name != told.baseline], told.baseline)
    if len(sweep.axes) > _MAP_AXES:
        st.caption(f"{len(sweep.axes)} things vary, which no chart shows; the table has them all.")
        figure.table(_readable(told, found, amount), "trainyard-sweep")
    elif len(sweep.axes) == _MAP_AXES:
        _maps(told, found, amount, shown)
    else:
        _curve(told, found, amount, {name: look[name] for name in shown})
    st.caption(_certainty(told, metric))


def _curve(told: Told, found: pd.DataFrame, amount: charts.Amount, look: charts.theme.Style) -> None:
    axis = told.sweep.axes[0]
    table, ends = found.rename(columns={axis.path: "x"}), None
    if axis.numeric:
        ends = (float(min(axis.values)), float(max(axis.values)))
    else:
        table["x"] = table["x"].map(lambda value: charts.literal(sweep_form.value_text(value)))
    title = f"{'Change of ' if amount.change else ''}{amount.title} over {told.axes[0]}"
    key = ("sweep", told.mark, len(told.rows), amount, *look.items())
    drawn = figure.kept(key, lambda: charts.sweep_curve(table, look, amount, told.axes[0], ends, charts.literal(title)))
    alt = f"{title}, every policy against {told.baseline}." if amount.change else _verdict(told.mark, len(told.rows), _by_title(amount.title), told)
    figure.draw(drawn, "sweep", alt, lambda: _readable(told, found, amount))


def _certainty(told: Told, metric: str) -> str:
    """Return how far chance was tried."""
    repeats = told.sweep.study.repeats
    if tables.repeats_are_equal(told.rows, metric):
        return _EQUAL
    if repeats < FEWEST_REPEATS:
        return f"{plural(repeats, 'run')} of each point: from {FEWEST_REPEATS} repeats on it is told how much chance matters."
    return _AHEAD if len(told.sweep.axes) >= _MAP_AXES else f"Bands hold 95 % of resamples of the repeats. {_AHEAD}"


def _maps(told: Told, found: pd.DataFrame, amount: charts.Amount, shown: tuple[str, ...]) -> None:
    x, y = (axis.path for axis in told.sweep.axes)
    table = found.rename(columns={x: "x", y: "y"})
    grid = st.grid(2, min_column_width=420)
    for name in shown:
        mine = found[found["policy"] == name]
        if mine.empty:
            continue
        heading = f"{name}: {'change of ' if amount.change else ''}{amount.title}"
        make = partial(charts.sweep_map, table, name, amount, (told.axes[0], told.axes[1]), charts.literal(heading))
        with grid.cell():
            drawn = figure.kept(("map", told.mark, len(told.rows), amount, name), make)
            alt = f"{heading} over {told.axes[0]} and {told.axes[1]}."
            figure.draw(drawn, f"map/{name}", alt, partial(_readable, told, mine, amount))


def _readable(told: Told, found: pd.DataFrame, amount: charts.Amount) -> pd.DataFrame:
    """Return the table of a chart: only what varies, and the figures; changes as shares."""
    names = dict(zip((axis.path for axis in told.sweep.axes), told.axes, strict=True))
    value = f"{amount.title}{f' ({amount.unit})' if amount.unit not in ('', '1') else ''}"
    if amount.change:
        value = f"Change of {amount.title} (share)"
    columns = {"point": "Point", "policy": "Policy", "value": value, "low": "Low", "high": "High", "completed": "Jobs completed (share)"}
    return found.rename(columns=names | columns | {"runs": "Runs", "failed": "Failed"})


def _failures(told: Told) -> None:
    """Say why runs failed; each is a cross in the chart, and a row of the files."""
    for sentence in telling.reasons(told.rows.loc[told.rows["error"] != "", "error"].tolist()):
        st.warning(words.plain(sentence), icon=":material/error:")


def _take_away(told: Told) -> None:
    with st.container(horizontal=True):
        for label, name, make in (("Runs (CSV)", "csv", _csv), ("Runs (Parquet)", "parquet", _parquet)):
            data = partial(make, told.rows)
            st.download_button(label, data, f"trainyard-sweep.{name}", key=f"sweep_{name}", on_click="ignore", icon=":material/download:")


def _csv(rows: pd.DataFrame) -> bytes:
    return outcomes.safe_csv(rows).encode()


def _parquet(rows: pd.DataFrame) -> bytes:
    # An axis may hold numbers beside names.
    mixed = {str(column): rows[column].astype(str) for column in rows if rows[column].dtype == object}
    data: bytes = rows.assign(**mixed).to_parquet(index=False)
    return data


def _pin(told: Told) -> None:
    """Draw what makes a point of the sweep the scenario."""
    points = told.sweep.points()[:_MOST_POINTS]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        label = partial(_point_text, told.axes, points)
        at = st.selectbox("Point", range(len(points)), key="sweep_point", format_func=label, width=420)
        if st.button("Pin as scenario", key="pin", icon=":material/push_pin:", help="Your scenario becomes that of this point, and opens in Compare."):
            state.desk().open(told.sweep.at(points[at]))
            st.switch_page("pages/compare.py", query_params=state.address())


def _point_text(axes: tuple[str, ...], points: tuple[Point, ...], at: int) -> str:
    return charts.visible(", ".join(f"{name} {sweep_form.value_text(value)}" for name, value in zip(axes, points[at].values, strict=True)))


def _command(sweep: Sweep) -> None:
    with st.expander("The command that repeats it", icon=":material/terminal:"):
        st.code(f"python -m trainyard sweep {_FILE}", language="bash")
        text = json.dumps(sweep.to_json(), indent=2, ensure_ascii=False)
        st.download_button(_FILE, text, _FILE, "application/json", key="sweep_file", on_click="ignore", icon=":material/download:")


def _metric_title(name: str) -> str:
    return telling.BY_NAME[name].title


def _by_title(title: str) -> str:
    return next(name for name, metric in telling.BY_NAME.items() if metric.title == title)


@st.cache_resource(max_entries=16, show_spinner=False)
def _rows(mark: str, done: int, _run: SweepRun) -> pd.DataFrame:
    del mark, done
    return _run.table()


@st.cache_resource(max_entries=32, show_spinner=False)
def _curves(mark: str, rows: int, metric: str, _told: Told) -> pd.DataFrame:
    del mark, rows
    return tables.curves(_told.rows, _told.sweep, metric)


@st.cache_resource(max_entries=32, show_spinner=False)
def _verdict(mark: str, rows: int, metric: str, _told: Told) -> str:
    return tables.verdict(_curves(mark, rows, metric, _told), _told.rows, _told.sweep, metric, _metric_title(metric))


@st.cache_resource(max_entries=32, show_spinner=False)
def _differences(mark: str, rows: int, metric: str, _told: Told) -> pd.DataFrame:
    del mark, rows
    return tables.differences(_told.rows, _told.sweep, metric, _told.baseline)


_AHEAD: Final = "A policy is ahead where 95 % of resamples of its paired difference to the next one, repeat by repeat, are on one side of 0."
_EQUAL: Final = (
    "All repeats gave the same numbers, because nothing here is drawn at random: they say nothing of how sure this is. "
    "Failures and prediction errors differ from seed to seed; other jobs come from another seed of the workload, or of the jobs drawn."
)
_NOTHING: Final = "Here will be a curve for every policy over what varies, or a map where two things vary, and who is ahead where."
