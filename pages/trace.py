"""Trace: which jobs, and whether they were read right."""

from __future__ import annotations

import math

import streamlit as st

from sim.errors import TrainyardError
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.study.scenario import TraceSpec
from trainyard.traces import intake, start
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import load_source, load_trace
from ui import server, state, states, words
from ui.importing import account, made, trace_charts, trace_part, upload
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
    st.divider()
    if start.trace_is_gone(mine.study, server.store()):
        states.trace_gone(here=True)
        return
    source = load_source(mine.study.base.trace, server.store())
    account.draw(source.account, mine.taken.get(mine.study.base.trace.source))
    made.parameters(mine)
    said = st.container()
    trace_part.draw(mine, source)
    trace = load_trace(mine.study.base.trace, server.store())
    facts = _profile(trace.digest, trace)
    load = machines.offered_load(trace, mine.study.base.cluster)
    hours, unit = (facts.gpu_hours, "GPU-hours") if facts.gpu_hours else (facts.core_hours, "core-hours")
    asked = [f"{hours:,.{0 if hours >= 10 else 2}f} {unit}"] if hours else []
    loaded = f" · load {words.factor(load)} of “{words.plain(mine.study.base.cluster.name)}”" if facts.gpu_hours and math.isfinite(load) else ""
    part = f" of {len(source.trace):,}" if len(trace) < len(source.trace) else ""
    # What the jobs are stands above what may be changed of them.
    said.markdown(
        f"**{words.plain(trace.name)}** · {' · '.join([words.plural(facts.jobs, 'job') + part, words.time(facts.span_s), *asked])} · "
        f"{'half of the jobs run no longer than' if facts.jobs > 1 else 'it runs'} {words.time(facts.median_s)}{loaded}"
    )
    trace_charts.draw(facts)
    st.page_link("pages/cluster.py", label="Next: the cluster", icon=":material/arrow_forward:")


@st.cache_data(max_entries=16, show_spinner=False)
def _profile(mark: str, _trace: Trace) -> intake.Profile:
    del mark
    return intake.profile(_trace)


def _samples(mine: state.Desk) -> None:
    kind, _, current = mine.study.base.trace.source.partition(":")
    names = list(SAMPLES)
    at = names.index(current) if kind == "sample" and current in names else None
    chosen = st.selectbox("or a sample", names, at, key=state.widget("sample", mine.study.base.trace.source), format_func=lambda name: SAMPLES[name].title)
    if chosen is not None:
        st.caption(SAMPLES[chosen].description)
    if chosen is not None and f"sample:{chosen}" != mine.study.base.trace.source:
        mine.replace(start.with_trace(mine.study, TraceSpec(f"sample:{chosen}"), server.store()))
        mine.upload = None
        st.rerun()
    try:
        own, cluster = load_source(mine.study.base.trace, server.store()).cluster, mine.study.base.cluster
    except TrainyardError:
        return  # said below, where the jobs are needed
    if own is not None and own != cluster:
        st.caption(f":material/dns: These jobs come with the cluster “{words.plain(own.name)}”, but “{words.plain(cluster.name)}” is in use.")


if __name__ == "__main__":
    page("trace", body)
