"""How jobs scale: the performance model of the scenario with a curve, what it assumes of the jobs,
and its parameters.
"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.params import Spec
from sim.perf import PerfSpec
from sim.trace import Trace
from trainyard.clusters import speedup
from trainyard.store import profiles
from trainyard.study import catalog
from trainyard.traces.sources import load_trace
from trainyard.views.inputs import same_speed, scaling_view
from ui import figure, server, state, words
from ui.choosing import forms, run_settings
from ui.choosing import profiles as profile_form


def draw(session: state.Session) -> None:
    """Draw the choice, its curve and what it assumes of the jobs of the scenario."""
    st.subheader("How jobs scale", anchor=False)
    left, right = st.columns(2, gap="medium")
    with left:
        _choose(session)
    with right:
        _curve(session)


def _choose(session: state.Session) -> None:
    now = session.study.base.perf
    by_name = {choice.name: choice for choice in catalog.perf_models()}
    names = list(by_name)
    name = st.selectbox(
        "How jobs scale",
        names,
        names.index(now.name),
        key=state.widget_key("perf"),
        format_func=lambda one: by_name[one].title,
        label_visibility="collapsed",
    )
    st.caption(words.plain(by_name[name].help))
    # Drawn above the form that may change what is assumed, filled after it.
    notes = st.container()
    key, chosen = state.widget_key("perf", name), now if now.name == name else Spec(name)
    if profiles.is_profiled(chosen):
        run_settings.take("perf", profile_form.form(chosen, key))
    elif by_name[name].params:
        with st.expander(f"Settings of “{by_name[name].title}”", expanded=False):
            run_settings.take("perf", forms.spec(name, chosen, key))
    else:
        run_settings.take("perf", chosen)
    with notes:
        _assumed(session)
    profile_form.findings()


def _assumed(session: state.Session) -> None:
    base = session.study.base
    try:
        sentences = profiles.assumptions(
            base.perf, load_trace(base.trace, server.store()), server.store()
        )
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    for sentence in sentences:
        st.markdown(f":material/info: {words.plain(sentence)}")


def _curve(session: state.Session) -> None:
    base = session.study.base
    try:
        trace = load_trace(base.trace, server.store())
        perf = profiles.resolved(base.perf, server.store())
        mark = (trace.digest, base.cluster.digest, str(base.perf))
        table = _speeds(mark, perf, trace, base.cluster)
    except TrainyardError as error:
        st.caption(f"There is no curve: {words.plain(str(error))}")
        return
    if same := same_speed(table, scales=perf.scales):
        st.caption(same)
        return
    curve = figure.cached_view(("speedup", *mark), lambda: scaling_view(table, scales=perf.scales))
    if curve is not None:
        figure.draw(curve)


@st.cache_data(max_entries=32, show_spinner=False)
def _speeds(
    mark: tuple[str, ...], _perf: PerfSpec, _trace: Trace, _cluster: Cluster
) -> pd.DataFrame:
    del mark
    return speedup.curve(_perf, _trace, _cluster)
