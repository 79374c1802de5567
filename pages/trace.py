"""Trace: which jobs, and whether they were read right."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st

from lab import catalog, intake, machines, start
from lab.front import Source, Trace, TraceSpec, load_source, load_trace
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
    st.divider()
    source = load_source(mine.study.base.trace, server.store())
    account.draw(source.account, mine.taken.get(mine.study.base.trace.source))
    made.parameters(mine)
    _change(mine, source)
    trace = load_trace(mine.study.base.trace, server.store())
    facts = _profile(trace.digest, trace)
    load = machines.offered_load(trace, mine.study.base.cluster)
    hours, unit = (facts.gpu_hours, "GPU-hours") if facts.gpu_hours else (facts.core_hours, "core-hours")
    asked = [f"{hours:,.{0 if hours >= 10 else 2}f} {unit}"] if hours else []
    loaded = f" · load {words.factor(load)} of “{words.plain(mine.study.base.cluster.name)}”" if math.isfinite(load) else ""
    part = f" of {len(source.trace):,}" if len(trace) < len(source.trace) else ""
    st.markdown(
        f"**{words.plain(trace.name)}** · {' · '.join([words.plural(facts.jobs, 'job') + part, words.time(facts.span_s), *asked])} · "
        f"half of the jobs run less than {words.time(facts.median_s)}{loaded}"
    )
    trace_charts.draw(facts)
    st.page_link("pages/cluster.py", label="Next: the cluster", icon=":material/arrow_forward:")


@st.cache_data(max_entries=16, show_spinner=False)
def _profile(mark: str, _trace: Trace) -> intake.Profile:
    del mark
    return intake.profile(_trace)


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


def _change(mine: state.Desk, source: Source) -> None:
    spec = mine.study.base.trace
    days = intake.days(source.trace)
    with st.expander("Change it: window, load, users, a random sample", expanded=not spec.unchanged):
        grid = st.grid(min_column_width=220, vertical_alignment="bottom")
        with grid.cell():
            first, last = intake.window_days(spec, days)
            window = st.slider("Window (days since the first submission)", 0.0, days, (first, last), key=state.widget("window", spec.source), format="%.2f")
        with grid.cell():
            load = st.number_input(
                "Load ×", min(0.05, spec.load), max(20.0, spec.load), spec.load, step=0.05, key=state.widget("load", spec.source), help=_LOAD
            )
        thin = _part(spec, source, grid)
        with grid.cell():
            named = source.trace.has("user")
            hidden = st.toggle("Anonymise users", spec.anonymise, key=state.widget("anonymise", spec.source), disabled=not named, help=_HIDDEN)
        changed = intake.edited(spec, window, days, load=load, anonymise=hidden, **thin)
        if changed.load != 1.0 or changed.thinned:
            st.caption("Recorded start times belong to the recorded load, so they are left out: the history cannot be replayed.")
        if changed.anonymise and spec.source.startswith("store:"):
            st.caption("The jobs in the server's store keep the names until they are deleted; results, files and reports do not have them.")
    if changed != spec:
        mine.edit(start.with_trace(mine.study, changed, server.store()))


def _part(spec: TraceSpec, source: Source, grid: Any) -> dict[str, int]:
    """Draw the choice of a part of the users and of the jobs."""
    jobs = len(source.trace)
    users = source.trace.frame["user"].nunique() if source.trace.has("user") else 0
    with grid.cell():
        key = state.widget("every_user", spec.source)
        every = st.number_input("One user in", 1, max(users, 1, spec.every_user), spec.every_user, key=key, disabled=users < 2, help=_EVERY)
    with grid.cell():
        sample = st.number_input(
            "Random jobs (0 = all)", 0, max(jobs, spec.sample), spec.sample, step=max(jobs // 10, 1), key=state.widget("sample_of", spec.source)
        )
    made = {"every_user": int(every), "sample": int(sample)}
    if every > 1 or sample > 0:
        with grid.cell():
            made["sample_seed"] = int(
                st.number_input("Draw number", 0, max(9999, spec.sample_seed), spec.sample_seed, key=state.widget("draw", spec.source), help=_DRAW)
            )
    return made


_LOAD = "2 = the same jobs arrive in half the time."
_EVERY = "Of the users with jobs in the window one in so many is kept, with all jobs of theirs; which ones depends on their names and the draw number only."
_DRAW = "Another number draws other users and other jobs."
_HIDDEN = "Users are called user 1, user 2, ... in the order of their first job. Ids and names of jobs stay."

if __name__ == "__main__":
    page("trace", body)
