"""What is in doubt of the jobs on their machines, before anything is run, with what mends it."""

from __future__ import annotations

import math
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from sim.perf.profiled import Profiled
from sim.trace import Trace
from trainyard.clusters import doubts, machines
from trainyard.preflight import leave_out
from trainyard.results import meaning, ways_out
from trainyard.results.ways_out import WayOut
from trainyard.study import catalog
from trainyard.study import gpu_types as figures
from trainyard.text import factor
from trainyard.traces import start
from ui import server, state, words
from ui.choosing import cluster_editor

_ICONS: Final = {
    "fit_cluster": ":material/fit_screen:",
    "lower_load": ":material/trending_down:",
    "leave_out": ":material/filter_alt:",
}
_FASTEST: Final = 1000.0


def draw(session: state.Session, trace: Trace) -> None:
    """Draw what is in doubt of the jobs in use on the cluster in use; nothing if nothing is."""
    base = session.study.base
    try:
        never = cluster_editor.fit(trace, base.cluster, base.perf).never
        load = machines.offered_load(trace, base.cluster, ~never)
    except TrainyardError:
        return  # the Cluster page, or Run, says what does not go together
    measured = catalog.is_model(base.perf, Profiled)
    found = doubts.found(trace, base.cluster, never, measured=measured)
    jobs = ways_out.JobsOnCluster(trace, base.cluster, base.trace.source)
    ways = [*ways_out.for_doubts(found, jobs)]
    sentences = [*found.values()]
    if meaning.FULL < load < math.inf:
        who = "The jobs that fit" if never.any() else "The jobs"
        text = (
            f"{who} ask for {factor(load)} times what this cluster can give: queues grow as long as"
            " jobs come."
        )
        sentences.insert(0, text)
        ways += ways_out.for_overload(load, base.trace.load, jobs)
    if not sentences:
        return
    with st.container(border=True, key="doubts", gap="small"):
        for text in sentences:
            st.markdown(f":material/warning: {words.plain(text)}")
        with st.container(horizontal=True):
            for way in dict.fromkeys(way for way in ways if way.name in _ICONS):
                if st.button(words.plain(way.text), key=f"mend/{way.name}", icon=_ICONS[way.name]):
                    _take(session, trace, way)
        if doubts.UNKNOWN in found:
            _speeds(session, trace)


def _take(session: state.Session, trace: Trace, way: WayOut) -> None:
    study = session.study
    try:
        if way == ways_out.LEAVE_OUT:
            made = leave_out.without_unschedulable(study, server.store())
        else:
            made = ways_out.apply(study, way, trace)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    session.replace(made)
    st.rerun()


def _speeds(session: state.Session, trace: Trace) -> None:
    """Draw a field for the speed of each GPU type that nobody knows."""
    cluster = session.study.base.cluster
    with st.form(f"speeds/{session.form_version}", border=False):
        fields = st.grid(min_column_width=220)
        given = {}
        for kind in doubts.strange(trace, cluster):
            with fields.cell():
                given[kind] = st.number_input(
                    f"Speed of {words.plain(kind)}, V100 = 1",
                    0.001,
                    _FASTEST,
                    None,
                    format="%g",
                    placeholder="not known",
                )
        if st.form_submit_button("Use these speeds", icon=":material/speed:"):
            for kind, speed in given.items():
                if speed is not None:
                    cluster = figures.with_figures(cluster, kind.lower(), speed, None)
            session.replace(start.with_cluster(session.study, cluster))
            st.rerun()
