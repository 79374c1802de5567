"""Similar jobs without names, and the comparison of the trace with a second trace."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from sim.trace import Trace
from trainyard.library import library
from trainyard.results.differences import source_name
from trainyard.study.scenario import MADE, TraceSpec
from trainyard.traces import likeness, new_study
from trainyard.traces.likeness import Likeness
from trainyard.traces.sources import load_trace
from trainyard.views import charts, two_traces
from trainyard.views.two_traces import OTHER, THIS
from ui import browser_identity, figure, server, state, words

_TITLE: Final = 60
_LOAD: Final = "Factor on the number of jobs in the same time: 2 = twice as many."
_SEED: Final = "Another seed draws other jobs from the same statistics."


def draw_look_alike(session: state.Session, trace: Trace) -> None:
    """Draw the form that replaces the trace by similar jobs, and their statistics.

    The statistics can be downloaded only for a trace that is a look-alike.
    """
    spec = session.study.base.trace
    is_look_alike = likeness.is_look_alike(spec.source)
    parameters = Spec.parse(spec.source.removeprefix(MADE)).values if is_look_alike else {}
    with st.popover(
        "Synthetic copy", icon=":material/content_copy:", key=state.widget_key("look_alike")
    ):
        st.markdown(
            "**Jobs like those of a trace, without its names**"
            if is_look_alike
            else "**Jobs like these, without names**"
        )
        with st.form(f"look_alike/{session.form_version}", border=False):
            fields = st.grid(2, min_column_width=150)
            with fields.cell():
                load = st.number_input(
                    "Load multiplier",
                    0.05,
                    20.0,
                    float(parameters.get("load", 1.0)),
                    step=0.5,
                    help=_LOAD,
                )
            with fields.cell():
                seed = st.number_input(
                    "Seed", 0, 9999, int(float(parameters.get("seed", 0))), help=_SEED
                )
            if st.form_submit_button("Generate", icon=":material/content_copy:"):
                _generate(session, trace, float(load), int(seed), parameters)
        st.caption("\n- ".join(["Kept:", *likeness.KEPT_FIGURES]))
        st.caption(f"Not kept: {', '.join(likeness.OMITTED_FACTS)}.")
        st.caption(f":material/lock: {likeness.PRIVACY_NOTE}")
        if is_look_alike:
            st.download_button(
                "Statistics of these jobs (JSON)",
                likeness.figures_document(spec),
                "trainyard-like.json",
                "application/json",
                on_click="ignore",
                icon=":material/download:",
                help="Drop it on Trace, or run `trainyard generate --like FILE`, to generate the"
                " jobs without the trace.",
            )


def _generate(
    session: state.Session, trace: Trace, load: float, seed: int, parameters: dict[str, Any]
) -> None:
    """Replace the trace by generated similar jobs and rerun, or draw the error.

    `parameters` are those of a look-alike that is generated anew; empty = `trace` is the original.
    """
    cluster, before = session.study.base.cluster, session.study.base.trace
    try:
        if parameters:
            changed = Spec.of("like", **{**parameters, "load": load, "seed": seed})
            spec = TraceSpec(f"{MADE}{changed}")
        else:
            spec = likeness.fit_look_alike(trace, load=load, seed=seed, cluster=cluster)
            # The original is the natural trace to compare with.
            session.compared_trace = before
        study = new_study.with_cluster(
            new_study.with_trace(session.study, spec, server.store()), cluster
        )
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    session.replace(study)
    session.upload = None
    st.rerun()


def draw(session: state.Session, trace: Trace) -> None:
    """Draw the choice of a second trace, the difference as a sentence, and both side by side."""
    spec = session.study.base.trace
    titles = library.traces(server.store(), browser_identity.owner())
    specs = {source: TraceSpec(source) for source in titles if source != spec.source}
    if session.compared_trace is not None and session.compared_trace != spec:
        # As chosen before, with its window and load.
        specs[session.compared_trace.source] = session.compared_trace
        name = source_name(session.compared_trace.source, server.store())
        titles.setdefault(session.compared_trace.source, name)
    sources = list(specs)
    current = session.compared_trace.source if session.compared_trace is not None else None
    chosen = st.selectbox(
        "Compare with another trace",
        sources,
        sources.index(current) if current in sources else None,
        key=state.widget_key("beside", spec.source),
        format_func=lambda source: charts.visible(titles[source], _TITLE),
        placeholder="choose a sample, an upload or a trace from your runs",
        width=420,
    )
    session.compared_trace = specs[chosen] if chosen is not None else None
    if chosen is None:
        return
    try:
        other = load_trace(specs[chosen], server.store())
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    comparison = _compare_traces(other.digest, trace.digest, other, trace)
    names = trace.name, titles[chosen] if other.name == trace.name else other.name
    first, second = (charts.visible(name, _TITLE) for name in names)
    st.markdown(f"**{words.plain(likeness.difference_sentence(comparison, first, second))}**")
    if nearness := _fit_text(spec.source, other.digest, other):
        st.caption(words.plain(nearness))
    with st.container(key="small_figures_beside"):
        grid = st.grid(4, min_column_width=290, gap="small")
    for view in two_traces.views(comparison, first, second):
        with grid.cell():
            figure.draw(view)
    rows = comparison.table.rename(
        columns={"what": "", "first": f"{THIS}: {first}", "second": f"{OTHER}: {second}"}
    )
    figure.draw_fixed_table(rows)


@st.cache_data(max_entries=16, show_spinner=False)
def _fit_text(source: str, other: str, _other: Trace) -> str:
    """Return how similar generated jobs are to their original at equal load; "" for others."""
    del other
    if not likeness.is_fitted_to(source, _other):
        return ""
    return f"At the load of the trace: {likeness.fit_sentence(likeness.compare_with_fit(_other))}"


@st.cache_data(max_entries=16, show_spinner=False)
def _compare_traces(second: str, first: str, _other: Trace, _trace: Trace) -> Likeness:
    """Return the comparison of two traces, cached by their digests."""
    del second, first
    return likeness.compare_traces(_trace, _other)
