"""Trace: which jobs, and whether they were read right."""

from __future__ import annotations

import math

import streamlit as st

from lab import catalog, intake, machines, start
from lab.front import TraceSpec, load_source, load_trace
from ui import account, made, server, state, trace_charts, upload, words
from ui.shell import page


def body() -> None:
    """Draw the page."""
    st.title("Which jobs?", anchor=False)
    mine = state.desk()
    grid = st.grid(2, min_column_width=300, gap="medium")
    with grid.cell():
        upload.receive()
    with grid.cell():
        _samples(mine)
        made.choose(mine)
    upload.fault()
    upload.choices()
    upload.mapping()
    st.divider()
    source = load_source(mine.study.base.trace, server.store())
    account.draw(source.account, mine.taken.get(mine.study.base.trace.source))
    made.parameters(mine)
    _window(mine)
    trace = load_trace(mine.study.base.trace, server.store())
    facts = intake.profile(trace)
    load = machines.offered_load(trace, mine.study.base.cluster)
    asked = [f"{facts.gpu_hours:,.0f} GPU-hours"] if facts.gpu_hours else [f"{facts.core_hours:,.0f} core-hours"] if facts.core_hours else []
    loaded = f" · load {words.factor(load)} of “{words.plain(mine.study.base.cluster.name)}”" if math.isfinite(load) else ""
    st.markdown(
        f"**{words.plain(trace.name)}** · {' · '.join([words.plural(facts.jobs, 'job'), words.time(facts.span_s), *asked])} · "
        f"half of the jobs run less than {words.time(facts.median_s)}{loaded}"
    )
    trace_charts.draw(facts)
    st.page_link("pages/cluster.py", label="Next: the cluster", icon=":material/arrow_forward:")


def _samples(mine: state.Desk) -> None:
    choices = {choice.name: choice for choice in catalog.samples()}
    kind, _, current = mine.study.base.trace.source.partition(":")
    names = list(choices)
    at = names.index(current) if kind == "sample" and current in names else None
    chosen = st.selectbox("or a sample", names, at, key=state.widget("sample", mine.study.base.trace.source), format_func=lambda name: choices[name].title)
    if chosen is not None:
        st.caption(choices[chosen].help)
    own, cluster = load_source(mine.study.base.trace, server.store()).cluster, mine.study.base.cluster
    if own is not None and own != cluster:
        st.caption(f":material/dns: These jobs come with the cluster “{words.plain(own.name)}”, but “{words.plain(cluster.name)}” is in use.")
    if chosen is not None and f"sample:{chosen}" != mine.study.base.trace.source:
        mine.replace(start.with_trace(mine.study, TraceSpec(f"sample:{chosen}"), server.store()))
        mine.upload = None
        st.rerun()


def _window(mine: state.Desk) -> None:
    spec = mine.study.base.trace
    days = intake.days(load_source(spec, server.store()).trace)
    with st.expander("Change it: window and load", expanded=not spec.unchanged):
        grid = st.grid(min_column_width=220)
        with grid.cell():
            first, last = intake.window_days(spec, days)
            window = st.slider("Window (days since the first submission)", 0.0, days, (first, last), key=state.widget("window", spec.source), format="%.2f")
        with grid.cell():
            load = st.number_input("Load ×", 0.05, 20.0, spec.load, step=0.05, key=state.widget("load", spec.source), help=_LOAD)
        if load != 1.0:
            st.caption("Recorded start times belong to the recorded load, so they are left out: the history cannot be replayed.")
    changed = intake.with_window(spec, window, days, load)
    if changed != spec:
        mine.edit(start.with_trace(mine.study, changed, server.store()))


_LOAD = "2 = the same jobs arrive in half the time."

if __name__ == "__main__":
    page("trace", body)
