"""The part of the Trace page on workloads that are made on the fly: which one, and its parameters."""

from __future__ import annotations

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.scenario import MADE, TraceSpec
from trainyard.traces import start
from ui import server, state, words
from ui.choosing import forms


def choose(mine: state.Desk) -> None:
    """Draw the list of workloads; another choice replaces the jobs, and the cluster unless it was made by the user."""
    choices = {choice.name: choice for choice in catalog.workloads()}
    now = _made(mine)
    names = list(choices)
    at = names.index(now.name) if now is not None else None
    chosen = st.selectbox("or made jobs", names, at, key=state.widget("made", now and now.name), format_func=lambda name: choices[name].title)
    if chosen is None:
        return
    st.caption(words.plain(choices[chosen].help))
    if now is None or now.name != chosen:
        _take(mine, Spec(chosen))


def parameters(mine: state.Desk) -> None:
    """Draw the parameters of a made workload, folded; nothing for other jobs."""
    now = _made(mine)
    if now is None:
        return
    with st.expander("Parameters of the made jobs"), st.form(f"made/{now}/{mine.edition}", border=False):
        made = forms.fields(catalog.choice_params(f"{MADE}{now.name}"), now.values, f"made/{now}/{mine.edition}")
        if st.form_submit_button("Make them", icon=":material/refresh:"):
            _take(mine, Spec.of(now.name, **made))


def _take(mine: state.Desk, chosen: Spec) -> None:
    try:
        study = start.with_trace(mine.study, TraceSpec(f"{MADE}{chosen}"), server.store())
        study = start.with_fitting_conditions(study, server.store())
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    if study != mine.study:
        if study.base.faults != mine.study.base.faults:
            mine.news = f"Some of these jobs ask for less memory than they need: they are given up after {start.RETRIES} retries (Cluster page, failures)."
        mine.replace(study)
        mine.upload = None
        st.rerun()


def _made(mine: state.Desk) -> Spec | None:
    source = mine.study.base.trace.source
    return Spec.parse(source.removeprefix(MADE)) if source.startswith(MADE) else None
