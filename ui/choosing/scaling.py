"""Performance model on Trace: choice, speed curve, assumptions, parameters."""

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
from trainyard.views.inputs import same_speed_sentence, scaling_view
from ui import figure, server, state, words
from ui.choosing import forms, run_settings
from ui.choosing import profiles as profile_form


def draw(session: state.Session) -> None:
    """Draw the performance model of the scenario, its curve and its assumptions."""
    st.subheader("Performance model", anchor=False)
    left, right = st.columns(2, gap="medium")
    with left:
        _draw_model_choice(session, right)


def _draw_model_choice(session: state.Session, right: st.delta_generator.DeltaGenerator) -> None:
    """Draw the choice of the performance model and its form; apply both; draw its curve."""
    perf = session.study.base.perf
    by_name = {choice.name: choice for choice in catalog.perf_models()}
    names = list(by_name)
    name = st.selectbox(
        "Performance model",
        names,
        names.index(perf.name),
        key=state.widget_key("perf"),
        format_func=lambda choice_name: by_name[choice_name].title,
        label_visibility="collapsed",
    )
    st.caption(words.plain(by_name[name].help))
    # Above the form, but filled after it: the form may change the assumptions.
    notes = st.container()
    key, chosen = state.widget_key("perf", name), perf if perf.name == name else Spec(name)
    if profiles.is_profiled(chosen):
        run_settings.apply_model("perf", profile_form.draw_form(chosen, key))
    elif by_name[name].params:
        with st.expander(f"Settings of “{by_name[name].title}”", expanded=False):
            run_settings.apply_model("perf", forms.draw_spec(name, chosen, key))
    else:
        run_settings.apply_model("perf", chosen)
    with notes:
        _draw_assumptions(session)
    profile_form.draw_coverage()
    with right:
        _draw_curve(session, notes)


def _draw_assumptions(session: state.Session) -> None:
    """Draw the sentences on what the performance model assumes about the jobs."""
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


def _draw_curve(session: state.Session, notes: st.delta_generator.DeltaGenerator) -> None:
    """Draw the speed of jobs over their size, or a sentence (in `notes`) if it is constant."""
    base = session.study.base
    try:
        trace = load_trace(base.trace, server.store())
        perf = profiles.build_model(base.perf, server.store())
        cache_key = (trace.digest, base.cluster.digest, str(base.perf))
        table = _speed_table(cache_key, perf, trace, base.cluster)
    except TrainyardError as error:
        st.caption(f"No curve: {words.plain(str(error))}")
        return
    if equal_speed_note := same_speed_sentence(table, scales=perf.scales):
        notes.caption(equal_speed_note)
        return
    curve = figure.cached_view(
        ("speedup", *cache_key), lambda: scaling_view(table, scales=perf.scales)
    )
    if curve is not None:
        figure.draw(curve)


@st.cache_data(max_entries=32, show_spinner=False)
def _speed_table(
    cache_key: tuple[str, ...], _perf: PerfSpec, _trace: Trace, _cluster: Cluster
) -> pd.DataFrame:
    """Return the table of speeds by job size and GPU type, cached."""
    del cache_key
    return speedup.speedup_curve(_perf, _trace, _cluster)
