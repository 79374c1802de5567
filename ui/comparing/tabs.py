"""The tabs of Compare: jobs, where time goes, tenants, GPU types, cost, accuracy, export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from sim.cluster import Cluster
from sim.errors import TrainyardError
from trainyard.results import outcomes, preview, window_series
from trainyard.results.outcomes import StudyResults
from trainyard.store import StoredResult
from trainyard.study.study import Study
from trainyard.views import gpu_types, jobs, over_time, registry, resources
from trainyard.views.compared_runs import ComparedRuns, Window
from trainyard.views.comparison import ComparisonView
from ui import figure, server, url_params, words
from ui.comparing import exports, job_table, tenants
from ui.comparison import draw_accuracy

_ISOLATED: Final = "each job alone with an equal part of every GPU type"
_NOTES: Final = "Recorded numbers"
_CHOICE: Final[dict[str, Any]] = {"width": 320, "label_visibility": "collapsed"}


def _with_allocation(compared: ComparedRuns, title: str) -> ComparedRuns:
    """Return the comparison with one policy's GPUs by job in the zoom window, if any."""
    if compared.window is None:
        return compared
    zoomed = _with_window_frames(compared, [title])
    series = window_series.window_allocation(_first_entry(compared, title), compared.window)
    return replace(
        zoomed,
        frames={**zoomed.frames, "allocation": {title: series}},
        job_ids=outcomes.job_ids([series], compared.details.trace),
    )


def _with_window_frames(compared: ComparedRuns, titles: Sequence[str]) -> ComparedRuns:
    """Return the comparison with these policies' series cut to the zoom window.

    Without a zoom window the comparison is returned unchanged.

    Raises
    ------
    StoreError
        If a stored result was removed.
    """
    if compared.window is None:
        return compared
    frames_by_title = {
        title: _window_frames(entry.key, compared.window, len(titles), entry, compared.cluster)
        for title in titles
        for entry in [_first_entry(compared, title)]
    }
    kinds = ("queue", "utilisation", "capacity", "states", "resources")
    return replace(
        compared,
        frames={
            **compared.frames,
            **{
                kind: {title: frames[kind] for title, frames in frames_by_title.items()}
                for kind in kinds
            },
        },
    )


def _with_window_notes(compared: ComparedRuns, title: str) -> ComparedRuns:
    """Return the comparison with a policy's recorded numbers in the zoom window.

    Raises
    ------
    StoreError
        If its result was removed.
    """
    if compared.window is None:
        return compared
    entry = _first_entry(compared, title)
    frame = _window_notes(entry.key, compared.window, entry)
    return replace(compared, frames={**compared.frames, "notes": {title: frame}})


def _first_entry(compared: ComparedRuns, title: str) -> StoredResult:
    """Return the stored result of a policy's first repeat."""
    return compared.runs.entries[compared.runs.titles.index(title)][0]


@st.cache_resource(max_entries=8, show_spinner=False)
def _full_series(key: str, _entry: StoredResult, _cluster: Cluster) -> dict[str, pd.DataFrame]:
    """Return name -> series over time of a result, at full resolution; cached."""
    del key
    return window_series.full_series(_entry, _cluster)


@st.cache_resource(max_entries=64, show_spinner=False)
def _window_frames(
    key: str, window: Window, policies: int, _entry: StoredResult, _cluster: Cluster
) -> dict[str, pd.DataFrame]:
    """Return name -> series over time of a result in a zoom window; cached.

    `policies` is the number of policies in the chart, which sets the resolution.
    """
    return window_series.window_series(_full_series(key, _entry, _cluster), window, policies)


@st.cache_resource(max_entries=16, show_spinner=False)
def _window_notes(key: str, window: Window, _entry: StoredResult) -> pd.DataFrame:
    """Return the numbers recorded by a policy in a window, cached."""
    del key
    return window_series.window_notes(_entry, window)


def _draw_time(compared: ComparedRuns, high: str) -> None:
    """Draw a chosen chart: parts of the completion times of all policies, or one over time.

    Parameters
    ----------
    compared : ComparedRuns
        The runs, with the zoom window.
    high : str
        Title of the highlighted policy; "" = none, so the baseline is shown.
    """
    charts: dict[str, Callable[[ComparedRuns, str], None]] = {"Completion time": _draw_metrics}
    if compared.cluster.gpus:
        charts |= {"GPUs busy, fragmented, idle": _draw_gpu_states, "GPUs by job": _draw_allocation}
    if resources.known_resources(compared):
        charts["Cores and memory"] = _draw_resources
    name = st.segmented_control(
        "Chart",
        list(charts),
        default=next(iter(charts)),
        required=True,
        key="time_view",
        label_visibility="collapsed",
    )
    charts[name](compared, high or compared.baseline or compared.report.labels[0])


def _draw_metrics(compared: ComparedRuns, title: str) -> None:
    """Draw the figures that explain metrics, of all policies."""
    del title  # all policies are drawn
    for name, make_view in registry.OF_METRICS.items():
        view = figure.cached_view((name, compared.key), partial(make_view, compared))
        if view is not None:
            figure.draw(view)


def _draw_gpu_states(compared: ComparedRuns, title: str) -> None:
    """Draw busy, fragmented and idle GPUs over time under one policy."""
    view = figure.cached_view(
        ("states", compared.key, title),
        lambda: over_time.states(_with_window_frames(compared, [title]), title),
    )
    figure.draw(view, "states")


def _draw_allocation(compared: ComparedRuns, title: str) -> None:
    """Draw GPUs over time by the job that holds them, under one policy."""
    view = figure.cached_view(
        ("allocation", compared.key, title),
        lambda: over_time.allocation(_with_allocation(compared, title), title),
    )
    figure.draw(view, "allocation")


def _draw_resources(compared: ComparedRuns, title: str) -> None:
    """Draw the choice of cores or memory, and its use over time under all policies."""
    del title  # all policies are drawn
    name = st.segmented_control(
        "Resource",
        available := resources.known_resources(compared),
        default=available[0],
        required=True,
        key="behind_resource",
        format_func=str.capitalize,
        label_visibility="collapsed",
    )
    zoomed = _with_window_frames(compared, compared.drawn)
    figure.draw(resources.resources(zoomed, name), "resources", shows_finding=True)


def _draw_types(compared: ComparedRuns, high: str) -> None:
    """Draw the choice of a chart about GPU types, and that chart."""
    del high
    charts = {
        name: part
        for name, part in _OF_TYPES.items()
        if name != _NOTES or _policies_with_notes(compared)
    }
    row = st.container(horizontal=True, vertical_alignment="center")
    name = row.segmented_control(
        "Chart",
        list(charts),
        default=next(iter(charts)),
        required=True,
        key="type_view",
        label_visibility="collapsed",
    )
    charts[name](compared, row)


def _policies_with_notes(compared: ComparedRuns) -> list[str]:
    """Return the titles of policies that recorded numbers per GPU type."""
    return [title for title in compared.report.labels if title in compared.details.types.notes]


def _draw_type_shares(compared: ComparedRuns, row: DeltaGenerator) -> None:
    """Draw the choice of a policy, and its share of GPU types per group of jobs."""
    title = row.selectbox("Policy", compared.report.labels, key="type_policy", **_CHOICE)
    figure.draw(gpu_types.type_shares(compared, title), "type-shares")


def _draw_type_use(compared: ComparedRuns, row: DeltaGenerator) -> None:
    """Draw the use of each GPU type per policy."""
    del row  # nothing to choose
    figure.draw(gpu_types.type_use(compared))


def _draw_costs(compared: ComparedRuns, high: str) -> None:
    """Draw the cost of each GPU type per policy."""
    del high
    figure.draw(gpu_types.type_cost(compared), shows_finding=True)


def _draw_fairness(compared: ComparedRuns, row: DeltaGenerator) -> None:
    """Draw the choice of a reference, and finish-time fairness of jobs against it."""
    row.caption("Compared with", width="content")
    references = [_ISOLATED, *compared.drawn]
    reference = row.selectbox("Compared with", references, key="type_reference", **_CHOICE)
    view = gpu_types.type_fairness(compared, "" if reference == _ISOLATED else reference)
    if view is None:
        st.caption("No other policy completed a comparable job.")
    else:
        figure.draw(view, shows_finding=True)


def _draw_type_notes(compared: ComparedRuns, row: DeltaGenerator) -> None:
    """Draw the choices of policy and recorded number, and its values over time by type."""
    types = compared.details.types
    with row:
        titles = _policies_with_notes(compared)
        first = next(
            (
                index
                for index, title in enumerate(titles)
                if any(len(lines) > 1 for lines in types.families(title).values())
            ),
            0,
        )
        title = st.selectbox("Policy", titles, first, key="type_noting", **_CHOICE)
        # Numbers that differ by type come first.
        families = sorted(types.families(title).items(), key=lambda family: len(family[1]) < 2)
        family = st.selectbox(
            "Number",
            [name for name, _ in families],
            key="type_noted",
            format_func=lambda name: name.replace("_", " "),
            **_CHOICE,
        )
    view = gpu_types.type_notes(_with_window_notes(compared, title), title, family)
    if view is None:
        st.caption("The policy recorded no such number before the end of the zoom window.")
    else:
        figure.draw(view)


_OF_TYPES: Final[Mapping[str, Callable[[ComparedRuns, DeltaGenerator], None]]] = {
    "Shares of GPU types": _draw_type_shares,
    "Use": _draw_type_use,
    "Finish-time fairness": _draw_fairness,
    _NOTES: _draw_type_notes,
}


def _draw_accuracy(compared: ComparedRuns, high: str) -> None:
    """Draw errors against recorded waits, run-time estimates, engines, assumptions."""
    del high
    draw_accuracy(compared.report)
    if compared.report.certainty:
        st.caption(words.plain(compared.report.certainty))
    points = compared.details.diagnostics.points
    if points:
        title = st.selectbox("Run-time estimates under", list(points), key="estimates", width=320)
        figure.draw(jobs.predictions(compared, title), "predictions", shows_finding=True)
    st.caption(words.plain(_engine_text(compared.runs)))
    if compared.report.assumptions:
        st.markdown("**Assumptions about scaling**")
        for sentence in compared.report.assumptions:
            st.markdown(f"- {words.plain(sentence)}")


def _engine_text(runs: StudyResults) -> str:
    """Return a sentence that names the engine of each complete policy, and why not the fast one."""
    titles: dict[str, list[str]] = {}
    for index in runs.places:
        engine, title = runs.entries[index][0].engine, runs.titles[index]
        key = (runs.study.canonical(), *runs.study.titles)
        reason = _engine_obstacles(key, runs.study).get(title, "")
        shown = f"{title} ({reason})" if reason and engine == "kernel" else title
        titles.setdefault(words.ENGINES[engine], []).append(shown)
    parts = [f"by the {engine}: {', '.join(names)}" for engine, names in titles.items()]
    return f"Computed {'; '.join(parts)}. Both engines (general, fast) give the same results."


@st.cache_data(max_entries=64, show_spinner=False)
def _engine_obstacles(cache_key: tuple[str, ...], _study: Study) -> dict[str, str]:
    """Return title -> why the fast engine cannot run a policy, cached by study and titles."""
    del cache_key
    return preview.engine_obstacles(_study, server.store())


_PARTS: Final[Mapping[str, tuple[str, Callable[[ComparedRuns, str], None]]]] = {
    "jobs": ("Jobs", job_table.draw),
    "time": ("Where time goes", _draw_time),
    "tenants": ("Tenants", tenants.draw),
    "types": ("GPU types", _draw_types),
    "cost": ("Cost", _draw_costs),
    "accuracy": ("Accuracy", _draw_accuracy),
    "export": ("Export", exports.draw),
}
"""Tab of a view -> (title, function that draws it)."""


def draw(view: ComparisonView) -> None:
    """Draw the tabs of a view with the tab of the URL open; only that one is computed."""
    requested = url_params.get(url_params.TAB)
    url_params.draw_tabs(
        {name: (_PARTS[name][0], partial(_draw_tab, name, view)) for name in view.tabs},
        requested if requested in view.tabs else "jobs",
        "compare_tabs",
    )


def _draw_tab(name: str, view: ComparisonView) -> None:
    """Draw the tab `name` of a view; a `TrainyardError` becomes a message in it."""
    try:
        _PARTS[name][1](view.runs, view.choice.high)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
