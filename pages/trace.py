"""Trace: the jobs, their source, and how they were read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import streamlit as st

from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.study.scenario import TraceSpec
from trainyard.traces import intake, likeness, new_study
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import Source, dropped_text, load_source, load_trace
from trainyard.views import inputs
from ui import empty_states, figure, server, state, words
from ui.choosing import scaling
from ui.importing import (
    cluster_warnings,
    fitted_cluster,
    row_report,
    trace_part,
    two_traces,
    upload,
)
from ui.layout import run_page


def body() -> None:
    """Draw the Trace page: source, charts, dropped rows; without a trace only the source."""
    session = state.session()
    with st.container(horizontal=True, vertical_alignment="bottom", key="trace_source"):
        upload.draw_uploader()
        _draw_samples(session)
        trace_part.draw_generator_choice(session)
        upload.draw_help(session)
    upload.draw_faults()
    if new_study.is_trace_missing(session.study, server.store()):
        empty_states.draw_trace_gone(here=True)
        return
    source = load_source(session.study.base.trace, server.store())
    intake = session.intakes.get(session.study.base.trace.source)
    # The store keeps the account of the first reading that produced these jobs.
    account = source.account if intake is None else intake.account
    # Filled after the choices, which may change the headline.
    head = st.container(horizontal=True, vertical_alignment="center", key="trace_head")
    with head:
        title = st.container()
        trace_part.draw(session, source)
        trace = load_trace(session.study.base.trace, server.store())
        if not likeness.is_look_alike(session.study.base.trace.source):
            trace_part.draw_generator_form(session)
        two_traces.draw_look_alike(session, trace)
    facts = _trace_profile(trace.digest, trace)
    headline = words.plain(_headline(session, source, trace, facts, account))
    title.title(headline, anchor=False, help=trace_part.LOAD_HELP)
    row_report.draw_questions(source.account, intake)
    fitted_cluster.draw(session, source)
    cluster_warnings.draw(session, trace)
    with st.container(key="small_figures"):
        grid = st.grid(4, min_column_width=290, gap="small")
    for view in inputs.trace_views(facts):
        with grid.cell():
            figure.draw(view)
    row_report.draw(source.account, intake)
    two_traces.draw(session, trace)
    scaling.draw(session)


def _headline(
    session: state.Session,
    source: Source,
    trace: Trace,
    facts: intake.TraceProfile,
    read: Mapping[str, Any],
) -> str:
    """Return the headline: name, jobs, dropped rows, span, load; `read` = reader's report."""
    whole = f" of {len(source.trace):,}" if len(trace) < len(source.trace) else ""
    span = words.time(facts.span_s) if facts.span_s else "all submitted at once"
    parts = [words.plural(facts.jobs, "job") + whole, dropped_text(read), span]
    cluster = session.study.base.cluster
    if facts.gpu_hours and math.isfinite(load := machines.offered_load(trace, cluster)):
        parts.append(f"load {round(100 * load)} % {machines.load_basis(cluster)}")
    return f"{trace.name}: {', '.join(filter(None, parts))}"


@st.cache_data(max_entries=16, show_spinner=False)
def _trace_profile(digest: str, _trace: Trace) -> intake.TraceProfile:
    """Return counts and distributions of a trace for its charts, cached by its digest."""
    del digest
    return intake.profile_trace(_trace)


def _draw_samples(session: state.Session) -> None:
    """Draw the choice of a sample; a new choice replaces the trace and reruns the page."""
    kind, _, current = session.study.base.trace.source.partition(":")
    names = list(SAMPLES)
    index = names.index(current) if kind == "sample" and current in names else None
    chosen = st.selectbox(
        "Sample",
        names,
        index,
        key=state.widget_key("sample", session.study.base.trace.source),
        format_func=lambda name: SAMPLES[name].title,
        placeholder="choose a sample",
        help="\n".join(f"- {sample.title}: {sample.description}" for sample in SAMPLES.values()),
        width=280,
    )
    if chosen is not None and f"sample:{chosen}" != session.study.base.trace.source:
        session.replace(
            new_study.with_trace(session.study, TraceSpec(f"sample:{chosen}"), server.store())
        )
        session.upload = None
        st.rerun()


if __name__ == "__main__":
    run_page("trace", body)
