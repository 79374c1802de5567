"""The figures in the tabs of the Compare page: where time goes, of the whole run or of the chosen
window, GPU types and costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.cluster import Cluster
from trainyard.results import loads, outcomes
from trainyard.store import StoredResult
from trainyard.views import gpu_types, over_time, registry, resources
from trainyard.views.compared import ComparedRuns, Window
from ui import figure

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


def of_time(compared: ComparedRuns, high: str) -> None:
    """Draw what completion times consist of under every policy, and what the GPUs do under one.

    Parameters
    ----------
    compared : ComparedRuns
        The runs, with the window.
    high : str
        Title of the highlighted policy; "" = there is none, so the baseline is shown.
    """
    for name, make in registry.OF_METRICS.items():
        if (view := figure.kept((name, compared.key), partial(make, compared))) is not None:
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
    view = figure.kept(
        ("states", compared.key, title),
        lambda: over_time.states(_within(compared, [title]), title),
    )
    figure.draw(view, "states")


def _holders(compared: ComparedRuns, title: str) -> None:
    view = figure.kept(
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
    figure.draw(resources.resources(inside, name), "resources", finding=True)


def of_types(compared: ComparedRuns) -> None:
    """Draw what the user chooses about GPU types."""
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


def of_costs(compared: ComparedRuns) -> None:
    """Draw what each GPU type costs under each policy."""
    figure.draw(gpu_types.type_cost(compared), finding=True)


def _fairness(compared: ComparedRuns) -> None:
    reference = st.selectbox(
        "Compared with", [_ISOLATED, *compared.drawn], key="type_reference", width=420
    )
    view = gpu_types.type_fairness(compared, "" if reference == _ISOLATED else reference)
    if view is None:
        st.caption("No other policy completed a job that can be compared.")
    else:
        figure.draw(view, finding=True)


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
