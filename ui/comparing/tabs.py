"""The tabs of the Compare page: jobs, where time goes, tenants, GPU types, costs, accuracy and
export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.cluster import Cluster
from sim.errors import TrainyardError
from trainyard.results import loads, outcomes
from trainyard.results.outcomes import Shown
from trainyard.store import StoredResult
from trainyard.views import gpu_types, jobs, over_time, registry, resources
from trainyard.views.compared import ComparedRuns, Window
from trainyard.views.comparison import ComparisonView
from ui import figure, url_params, words
from ui.comparing import exports, job_table, tenants
from ui.comparison import draw_accuracy

_ISOLATED: Final = "each job alone with an equal part of every GPU type"
_NOTES: Final = "Recorded numbers"
_WIDTH: Final[dict[str, Any]] = {"width": 320}


def _held(compared: ComparedRuns, title: str) -> ComparedRuns:
    if compared.window is None:
        return compared
    inside = _within(compared, [title])
    series = loads.allocation(_entry(compared, title), compared.window)
    return replace(
        inside,
        frames={**inside.frames, "allocation": {title: series}},
        job_ids=outcomes.job_ids([series], compared.details.trace),
    )


def _within(compared: ComparedRuns, titles: Sequence[str]) -> ComparedRuns:
    """Return the same with the frames over time of these policies as the window shows them: stored
    ones for the whole run, new ones for a window.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile.
    """
    if compared.window is None:
        return compared
    found = {
        title: _window_frames(entry.key, compared.window, len(titles), entry, compared.cluster)
        for title in titles
        for entry in [_entry(compared, title)]
    }
    kinds = ("queue", "utilisation", "capacity", "states", "resources")
    return replace(
        compared,
        frames={
            **compared.frames,
            **{kind: {title: frames[kind] for title, frames in found.items()} for kind in kinds},
        },
    )


def _noted_within(compared: ComparedRuns, title: str) -> ComparedRuns:
    """Return the same with what a policy noted in the window.

    Raises
    ------
    StoreError
        If its result was removed meanwhile.
    """
    if compared.window is None:
        return compared
    entry = _entry(compared, title)
    frame = _window_notes(entry.key, compared.window, entry)
    return replace(compared, frames={**compared.frames, "notes": {title: frame}})


def _entry(compared: ComparedRuns, title: str) -> StoredResult:
    return compared.runs.entries[compared.runs.titles.index(title)][0]


@st.cache_resource(max_entries=8, show_spinner=False)
def _full(key: str, _entry: StoredResult, _cluster: Cluster) -> dict[str, pd.DataFrame]:
    del key
    return loads.full_series(_entry, _cluster)


@st.cache_resource(max_entries=64, show_spinner=False)
def _window_frames(
    key: str, window: Window, policies: int, _entry: StoredResult, _cluster: Cluster
) -> dict[str, pd.DataFrame]:
    return loads.within(_full(key, _entry, _cluster), window, policies)


@st.cache_resource(max_entries=16, show_spinner=False)
def _window_notes(key: str, window: Window, _entry: StoredResult) -> pd.DataFrame:
    del key
    return loads.notes(_entry, window)


def _draw_time(compared: ComparedRuns, high: str) -> None:
    """Draw what completion times consist of under every policy, and what the GPUs do under one.

    Parameters
    ----------
    compared : ComparedRuns
        The runs, with the window.
    high : str
        Title of the highlighted policy; "" = there is none, so the baseline is shown.
    """
    for name, make in registry.OF_METRICS.items():
        if (view := figure.cached_view((name, compared.key), partial(make, compared))) is not None:
            figure.draw(view)
    parts: dict[str, Callable[[ComparedRuns, str], None]] = {}
    if compared.cluster.gpus:
        parts = {"GPUs busy, fragmented, idle": _states, "GPUs by job": _holders}
    if resources.known(compared):
        parts["Cores and memory"] = _resources
    if not parts:
        return
    name = st.segmented_control(
        "Over time",
        list(parts),
        default=next(iter(parts)),
        required=True,
        key="time_view",
        label_visibility="collapsed",
    )
    parts[name](compared, high or compared.baseline or compared.report.labels[0])


def _states(compared: ComparedRuns, title: str) -> None:
    view = figure.cached_view(
        ("states", compared.key, title),
        lambda: over_time.states(_within(compared, [title]), title),
    )
    figure.draw(view, "states")


def _holders(compared: ComparedRuns, title: str) -> None:
    view = figure.cached_view(
        ("allocation", compared.key, title),
        lambda: over_time.allocation(_held(compared, title), title),
    )
    figure.draw(view, "allocation")


def _resources(compared: ComparedRuns, title: str) -> None:
    del title  # all policies are drawn
    name = st.segmented_control(
        "Resource",
        known := resources.known(compared),
        default=known[0],
        required=True,
        key="behind_resource",
        format_func=str.capitalize,
        label_visibility="collapsed",
    )
    inside = _within(compared, compared.drawn)
    figure.draw(resources.resources(inside, name), "resources", shows_finding=True)


def _draw_types(compared: ComparedRuns, high: str) -> None:
    """Draw what the user chooses about GPU types."""
    del high
    parts = {name: part for name, part in _OF_TYPES.items() if name != _NOTES or _noted(compared)}
    name = st.segmented_control(
        "Chart",
        list(parts),
        default=next(iter(parts)),
        required=True,
        key="type_view",
        label_visibility="collapsed",
    )
    parts[name](compared)


def _noted(compared: ComparedRuns) -> list[str]:
    """Return the policies that noted anything."""
    return [title for title in compared.report.labels if title in compared.details.types.notes]


def _shares(compared: ComparedRuns) -> None:
    title = st.selectbox("Policy", compared.report.labels, key="type_policy", **_WIDTH)
    figure.draw(gpu_types.type_shares(compared, title), "type-shares")


def _use(compared: ComparedRuns) -> None:
    figure.draw(gpu_types.type_use(compared))


def _draw_costs(compared: ComparedRuns, high: str) -> None:
    """Draw what each GPU type costs under each policy."""
    del high
    figure.draw(gpu_types.type_cost(compared), shows_finding=True)


def _fairness(compared: ComparedRuns) -> None:
    reference = st.selectbox(
        "Compared with", [_ISOLATED, *compared.drawn], key="type_reference", width=420
    )
    view = gpu_types.type_fairness(compared, "" if reference == _ISOLATED else reference)
    if view is None:
        st.caption("No other policy completed a job that can be compared.")
    else:
        figure.draw(view, shows_finding=True)


def _type_notes(compared: ComparedRuns) -> None:
    found = compared.details.types
    with st.container(horizontal=True):
        noted = _noted(compared)
        first = next(
            (
                at
                for at, title in enumerate(noted)
                if any(len(lines) > 1 for lines in found.families(title).values())
            ),
            0,
        )
        title = st.selectbox("Policy", noted, first, key="type_noting", **_WIDTH)
        # Those that differ by type come first.
        families = sorted(found.families(title).items(), key=lambda family: len(family[1]) < 2)
        family = st.selectbox(
            "Number",
            [name for name, _ in families],
            key="type_noted",
            format_func=lambda name: name.replace("_", " "),
            **_WIDTH,
        )
    view = gpu_types.type_notes(_noted_within(compared, title), title, family)
    if view is None:
        st.caption("The policy recorded no such number before the end of the chosen window.")
    else:
        figure.draw(view)


_OF_TYPES: Final[Mapping[str, Callable[[ComparedRuns], None]]] = {
    "Shares of GPU types": _shares,
    "Use": _use,
    "Finish-time fairness": _fairness,
    _NOTES: _type_notes,
}


def _draw_accuracy(compared: ComparedRuns, high: str) -> None:
    """Draw how near the runs are to the recording, what policies knew of run times, what computed
    them, and what is assumed.
    """
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


def _engine_text(runs: Shown) -> str:
    """Return which engine made the first run of each policy, engine by engine."""
    titles: dict[str, list[str]] = {}
    for at in runs.places:
        engine = words.ENGINES[runs.entries[at][0].engine]
        titles.setdefault(engine, []).append(runs.titles[at])
    parts = [f"by the {engine}: {', '.join(of)}" for engine, of in titles.items()]
    return f"Computed {'; '.join(parts)}."


_PARTS: Final[Mapping[str, tuple[str, Callable[[ComparedRuns, str], None]]]] = {
    "jobs": ("Jobs", job_table.draw),
    "time": ("Where time goes", _draw_time),
    "tenants": ("Tenants", tenants.draw),
    "types": ("GPU types", _draw_types),
    "cost": ("Cost", _draw_costs),
    "accuracy": ("Accuracy", _draw_accuracy),
    "export": ("Export", exports.draw),
}
"""Tab of a view -> its title and what draws it."""


def draw(view: ComparisonView) -> None:
    """Draw the tabs of a view; nothing of a tab is computed before it is opened."""
    asked = url_params.get(url_params.TAB)
    url_params.draw_tabs(
        {name: (_PARTS[name][0], partial(_draw_part, name, view)) for name in view.tabs},
        asked if asked in view.tabs else "jobs",
        "compare_tabs",
    )


def _draw_part(name: str, view: ComparisonView) -> None:
    """Draw one tab; a missing result ends this tab only."""
    try:
        _PARTS[name][1](view.runs, view.choice.high)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
