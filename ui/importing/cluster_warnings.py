"""Warnings about the jobs on the current cluster before a run, with suggested fixes."""

from __future__ import annotations

import math
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from sim.perf.profiled import Profiled
from sim.trace import Trace
from trainyard.clusters import cluster_warnings, machines
from trainyard.formatting import factor
from trainyard.preflight import leave_out
from trainyard.results import suggestions, validity
from trainyard.results.suggestions import Suggestion
from trainyard.study import catalog
from trainyard.study import gpu_types as figures
from trainyard.traces import new_study
from ui import server, state, words
from ui.choosing import cluster_editor

_ICONS: Final = {
    "fit_cluster": ":material/fit_screen:",
    "lower_load": ":material/trending_down:",
    "leave_out": ":material/filter_alt:",
}
_FASTEST: Final = 1000.0


def draw(session: state.Session, trace: Trace) -> None:
    """Draw warnings about the jobs on the cluster, and buttons that fix them, if any."""
    base = session.study.base
    try:
        never = cluster_editor.find_unschedulable(trace, base.cluster, base.perf).mask
        load = machines.offered_load(trace, base.cluster, ~never)
    except TrainyardError:
        return  # the Cluster page, or Run, reports the error
    measured = catalog.is_model(base.perf, Profiled)
    warnings = cluster_warnings.find_doubts(trace, base.cluster, never, measured=measured)
    jobs = suggestions.JobsOnCluster(trace, base.cluster, base.trace.source)
    offered = [*suggestions.suggest_for_doubts(warnings, jobs)]
    sentences = [*warnings.values()]
    if validity.FULL < load < math.inf:
        subject = "The jobs that fit" if never.any() else "The jobs"
        text = (
            f"{subject} request {factor(load)} times the capacity of this cluster: queues grow as"
            " long as jobs arrive."
        )
        sentences.insert(0, text)
        offered += suggestions.suggest_for_overload(load, base.trace.load, jobs)
    if not sentences:
        return
    with st.container(border=True, key="doubts", gap="small"):
        for text in sentences:
            st.markdown(f":material/warning: {words.plain(text)}")
        with st.container(horizontal=True):
            for suggestion in dict.fromkeys(
                suggestion for suggestion in offered if suggestion.name in _ICONS
            ):
                if st.button(
                    words.plain(suggestion.text),
                    key=f"mend/{suggestion.name}",
                    icon=_ICONS[suggestion.name],
                ):
                    _apply_suggestion(session, trace, suggestion)
        if cluster_warnings.UNKNOWN in warnings:
            _draw_speeds(session, trace)


def _apply_suggestion(session: state.Session, trace: Trace, suggestion: Suggestion) -> None:
    """Change the scenario as a suggestion says and rerun, or draw why that fails."""
    study = session.study
    try:
        if suggestion == suggestions.LEAVE_OUT:
            changed = leave_out.without_unschedulable(study, server.store())
        else:
            changed = suggestions.apply_suggestion(study, suggestion, trace)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    session.replace(changed)
    st.rerun()


def _draw_speeds(session: state.Session, trace: Trace) -> None:
    """Draw a form of speeds for unknown GPU types; its button puts them into the cluster."""
    cluster = session.study.base.cluster
    with st.form(f"speeds/{session.form_version}", border=False):
        fields = st.grid(min_column_width=220)
        speeds = {}
        for kind in cluster_warnings.shares_without_speed(trace, cluster):
            with fields.cell():
                speeds[kind] = st.number_input(
                    f"Speed of {words.plain(kind)}, V100 = 1",
                    0.001,
                    _FASTEST,
                    None,
                    format="%g",
                    placeholder="unknown",
                )
        if st.form_submit_button("Use these speeds", icon=":material/speed:"):
            for kind, speed in speeds.items():
                if speed is not None:
                    cluster = figures.with_figures(cluster, kind.lower(), speed, None)
            session.replace(new_study.with_cluster(session.study, cluster))
            st.rerun()
