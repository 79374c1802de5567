"""The Compare page in one fragment: headline, tiles, charts, ledger and tabs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from sim.metrics.registry import Metric
from trainyard.results.outcomes import StudyResults
from trainyard.views import charts, ledger
from trainyard.views.charts import lines
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.comparison import EMPTY_TILES, ComparisonChoice, ComparisonView, Tile
from ui import (
    comparison,
    figure,
    job_drawer,
    state,
    stored_results,
    url_params,
    words,
    zoom_window,
)
from ui.comparing import actions, headline, tabs
from ui.ledger import component
from ui.url_params import GOAL, HIDE, HIGH
from ui.what_if import slider

EVERY_S: Final = 1.0
"""Period of sending the progress of runs."""
_ALL_JOBS: Final = "All jobs"
_GROUP, _COLUMNS = "group", "columns"
_TIME, _CURVE = "over_time", "done_within"
"""Keys of the two charts."""
_TILES: Final = st.components.v2.component(
    "trainyard_tiles",
    html='<div class="ty-tiles" role="group" aria-label="Figures of the highlighted policy"></div>',
    # On several lines, or Streamlit reads it as a file name.
    js="export default (component) => {\n  return window.trainyardTiles(component);\n}\n",
    isolate_styles=False,
)


def draw(compared: ComparedRuns) -> None:
    """Draw Compare as a fragment, and the progress of its runs as another one."""
    slider.drop_unfinished()
    st.fragment(_draw_page)(compared)
    _draw_live(compared.runs)


def draw_loading(session: state.Session) -> bool:
    """Draw a placeholder page while no policy has finished; return True if drawn."""
    if session.displayed_study is None or not session.live_jobs:
        return False
    runs = stored_results.gather(session.displayed_study)
    if runs.places:
        return False
    _draw_empty(runs)
    _draw_live(runs)
    return True


def _draw_live(runs: StudyResults) -> None:
    """Draw the progress of live runs in the rows of the ledger, each second."""
    # Drawn without live runs too: the browser may request the fragment once more.
    live = bool(state.session().live_jobs)
    st.fragment(_send_progress, run_every=EVERY_S if live else None)(runs)


def _send_progress(runs: StudyResults) -> None:
    """Send the progress of live runs to the ledger of the page."""
    if state.session().live_jobs:
        runs = stored_results.gather(runs.study)
        row_state = headline.row_state(runs, stored_results.unrunnable(runs.study))
        component.draw_progress("ledger", row_state)


def _draw_empty(runs: StudyResults) -> None:
    """Draw progress, empty tiles and charts, and a ledger with each policy's progress."""
    with st.container(key="compare", gap=8):
        with st.container(horizontal=True, key="answer"), st.container(gap=0, key="sentence"):
            headline.draw_progress(runs)
        _draw_tiles(EMPTY_TILES)
        with st.container(key="charts"):
            for place, key in zip(st.columns([2.16, 1], gap="small"), (_TIME, _CURVE), strict=True):
                place.container(key=key, height=lines.HEIGHT_PX, border=False)
        titles = runs.titles
        colours = charts.theme.policy_colours(
            titles, titles[runs.baseline], runs.study.slots, dark=figure.is_dark()
        )
        row_state = headline.row_state(runs, stored_results.unrunnable(runs.study))
        rows = [ledger.unfinished_row(title, colours[title], row_state) for title in titles]
        metrics = [ledger.ALL[name] for name in ledger.MAIN]
        with st.container(key="ledger_box", gap=0):
            component.draw(ledger.LedgerView(metrics, rows, "whole run"), "ledger")


def _draw_page(stored: ComparedRuns) -> None:
    """Draw the comparison, or the slider's preview while it moves, and the tabs."""
    stored = replace(stored, before=comparison.stored_before())
    choice = read_choice(stored)
    draft, fault = slider.preview_view(state.session().displayed_study, choice)
    view = comparison.build_view(stored, choice)
    is_whole = _draw_view(draft or view, fault)
    if is_whole and draft is not None:
        with st.container(key="tabs_before"):
            tabs.draw(view)
    elif is_whole and not view.is_overloaded:
        tabs.draw(view)
    slider.apply_rested()


def _draw_view(view: ComparisonView, fault: str) -> bool:
    """Draw headline, tiles, charts and ledger; return False if a result is missing.

    An overloaded comparison ends after the headline and notes, unless the user compares anyway.

    Parameters
    ----------
    view : ComparisonView
        The view to draw; a draft keeps the layout.
    fault : str
        Error of the slider, or "".
    """
    with st.container(key="compare", gap=8):
        _draw_top(view)
        if fault:
            st.error(words.plain(fault), icon=":material/error:")
        if view.change is not None:
            headline.draw_change(view.change, is_draft=view.is_draft)
        is_judged = view.is_draft or not view.is_overloaded
        if not shows_charts(view):
            if headline.is_unfinished(view.runs.runs):
                _draw_ledger(view)  # for the progress of the others
            headline.draw_notes(view, has_ledger=False)
            return True
        if is_judged:
            _draw_tiles(view.tiles)
        try:
            _draw_charts(view)
        except TrainyardError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return False
        _draw_ledger(view)
        headline.draw_notes(view)
    return True


def shows_charts(view: ComparisonView) -> bool:
    """Return False if an overloaded comparison ends after its headline."""
    return (
        view.is_draft or not view.is_overloaded or actions.is_compared_anyway(view.runs.report.mark)
    )


def read_choice(stored: ComparedRuns) -> ComparisonChoice:
    """Return the metric, policy, group and zoom window chosen in the session or the URL.

    Metric and group are written back to the URL, without defaults and unknown values.
    """
    report = stored.report
    goals, groups = list(report.headlines), group_choices(stored)
    goal = st.session_state.get(GOAL) or url_params.get(GOAL)
    goal = goal if goal in goals else goals[0]
    group = st.session_state.get(_GROUP) or url_params.get(_GROUP)
    url_params.set_param(GOAL, "" if goal == goals[0] else goal)
    url_params.set_param(_GROUP, group if group in groups else "")
    return ComparisonChoice(
        goal,
        comparison.highlighted_policy(report),
        groups.get(group),
        zoom_window.current(report.end_s),
        comparison.hidden_policies(stored.runs.titles),
    )


def group_choices(compared: ComparedRuns) -> dict[str, tuple[str, str]]:
    """Return label -> (grouping title, group) of the jobs to choose; {} without a baseline."""
    if not compared.baseline:
        return {}
    groupings = compared.details.groupings.values()
    return {
        f"{grouping.title}: {name}": (grouping.title, name)
        for grouping in groupings
        for name in grouping.names
    }


def _draw_top(view: ComparisonView) -> None:
    """Draw the headline or progress, the choices and the slider, and the suggestions."""
    runs = view.runs.runs
    with st.container(horizontal=True, key="answer", vertical_alignment="top", gap=16):
        with st.container(gap=0, key="sentence"):
            is_unfinished = headline.is_unfinished(runs) and not view.is_draft
            if is_unfinished and (len(runs.places) == 1 or runs.baseline not in runs.places):
                headline.draw_progress(runs)
            else:
                headline.draw_headline(view, is_unfinished=is_unfinished)
            url_title = url_params.get(HIGH)
            if url_title and url_title not in runs.titles:
                st.caption(
                    words.plain(f"The link highlights “{url_title}”, which is not compared.")
                )
        with st.container(gap=None, width="content", key="choose"):
            with st.container(horizontal=True, gap=8, width="content", key="choices"):
                if view.is_draft or not view.is_overloaded:
                    _draw_selects(view)
            slider.draw()
    if not is_unfinished and not view.is_draft:
        headline.draw_suggestions(view)


def _draw_selects(view: ComparisonView) -> None:
    """Draw the choices of the judging metric and the group of jobs, if there are several."""
    goals, goal = list(view.runs.report.headlines), view.choice.goal
    if len(goals) > 1:
        st.selectbox(
            "Judge by",
            goals,
            goals.index(goal) if goal in goals else 0,
            key=GOAL,
            format_func=lambda name: ledger.ALL[name].title,
            label_visibility="collapsed",
            width=216,
            persist_state="session",
        )
    names = ["", *group_choices(view.runs)]
    if len(names) > 1:
        url_group = url_params.get(_GROUP)
        st.selectbox(
            "Jobs",
            names,
            names.index(url_group) if url_group in names else 0,
            key=_GROUP,
            format_func=lambda name: charts.visible(name) or _ALL_JOBS,
            label_visibility="collapsed",
            width=150,
            persist_state="session",
        )


def _draw_charts(view: ComparisonView) -> None:
    """Draw waiting jobs over time, and the curve of completion times of the group."""
    choice, marks, key = view.choice, job_drawer.timeline_marks(), view.runs.key
    make_view = figure.build_view if view.is_draft else figure.cached_view
    scale = figure.type_scale()
    looks = choice.high, choice.hidden, scale
    queue_key = (_TIME, key, *looks, marks, choice.group is not None)
    curve_key = (_CURVE, key, *looks, choice.group)
    with st.container(key="charts"):
        left, right = st.columns([2.16, 1], gap="small")
    queue = make_view(queue_key, lambda: view.queue(marks, scale))
    curve = make_view(curve_key, lambda: view.done_within(scale))
    with left:
        figure.draw(queue, _TIME, is_bare=True)
    with right:
        figure.draw(curve, _CURVE, is_bare=True)


def _draw_ledger(view: ComparisonView) -> None:
    """Draw the zoom window, the menu of columns and the ledger of policies."""
    runs, compared = view.runs.runs, view.runs
    with st.container(key="ledger_box", gap=0):
        with st.container(horizontal=True, key="ledger_head"):
            zoom_window.draw("compare", compared.report.end_s, compared.axis.clock)
            metrics = view.columns(usual=True)
            if not view.is_overloaded:
                metrics = _draw_column_menu(view.columns(), metrics)
        policies = state.session().study.allocators
        changed = [
            title
            for title, spec in zip(runs.titles, runs.study.allocators, strict=True)
            if spec not in policies
        ]
        status = replace(
            headline.row_state(runs, compared.report.skipped),
            high=view.choice.high,
            changed=changed,
            hidden=view.choice.hidden,
            dark=figure.is_dark(),
        )
        names = tuple(metric.name for metric in metrics)
        both = state.session().shows_both
        looks = (*status.notes.items(), *status.shares.items(), *changed, status.dark, both)
        ledger_key = (*view.key, names, status.high, *looks)
        component.draw(
            view.ledger(metrics, status, both=both)
            if view.is_draft
            else _cached_ledger(ledger_key, view, metrics, status, both=both),
            "ledger",
            component.LedgerCharts(_TIME, _CURVE, strip=True),
            on_high=_on_highlight,
            on_window=lambda ends: zoom_window.set_window(ends, compared.report.end_s),
            on_hide=lambda titles: url_params.set_titles(HIDE, titles),
        )


@st.cache_resource(max_entries=64, show_spinner=False)
def _cached_ledger(
    key: tuple[object, ...],
    _view: ComparisonView,
    _metrics: list[Metric],
    _status: ledger.State,
    *,
    both: bool,
) -> ledger.LedgerView:
    """Return the ledger of a view, cached for all sessions and never changed."""
    del key
    return _view.ledger(_metrics, _status, both=both)


def _on_highlight(title: str) -> None:
    """Write the title of the clicked policy into the URL, which highlights and shows it."""
    url_params.set_param(HIGH, title)
    hidden = url_params.get_titles(HIDE)
    url_params.set_titles(HIDE, [one for one in hidden if one != title])


def _draw_column_menu(metrics: Sequence[Metric], usual: list[Metric]) -> list[Metric]:
    """Draw the menu of columns; return the chosen ones, or `usual` if none is chosen."""
    default_names = [metric.name for metric in usual]
    with st.popover("Columns", type="tertiary", key="columns_menu"):
        names = st.pills(
            "Columns",
            [metric.name for metric in metrics],
            selection_mode="multi",
            default=default_names,
            format_func=lambda name: ledger.ALL[name].title,
            # Defaults differ while a policy is missing, so each set has its own key.
            key=f"{_COLUMNS}/{'.'.join(default_names)}",
            label_visibility="collapsed",
            persist_state="session",
        )
    return [ledger.ALL[name] for name in names] or usual


def _draw_tiles(tiles: Sequence[Tile]) -> None:
    """Draw the tiles; a click judges policies by the metric of the tile."""
    _TILES(key="tiles", data=[tile.to_json() for tile in tiles], on_goal_change=_on_tile)


def _on_tile() -> None:
    """Judge policies by the metric of the clicked tile, kept in the session."""
    if goal := st.session_state["tiles"].goal:
        st.session_state[GOAL] = goal
