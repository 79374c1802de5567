"""Choices of jobs: workload generator, window, load, users, random sample, hidden names."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.scenario import MADE, TraceSpec
from trainyard.traces import intake, new_study
from trainyard.traces.sources import Source
from ui import server, state, words
from ui.choosing import forms

LOAD_HELP: Final = (
    "GPU time that the jobs need on the fastest GPU type, over the GPU time of the cluster while"
    " jobs arrive."
)
_LOAD: Final = "Factor on the recorded load: 1 = as recorded."
_LOAD_BY: Final[dict[str, str]] = {"pace": "pace of arrivals", "jobs": "number of jobs"}
_BY: Final = (
    "Pace: the same jobs in less or more time. Number of jobs: a part of the jobs (below 1) or"
    " copies (above 1)."
)
_EVERY: Final = (
    "Keeps one user in N, with all their jobs in the window. The choice depends only on the users'"
    " names and the field Sample seed."
)
_DRAW: Final = "Another seed draws other users, jobs and positions of copies."
_HIDDEN: Final = (
    "Numbers replace ids, users, job names, accounts, virtual clusters and partitions (user 1,"
    " user 2, ...). All other columns stay."
)


def draw(session: state.Session, source: Source) -> None:
    """Draw the choices of window, load, users, sample and hidden names; apply changes at once."""
    spec = session.study.base.trace
    days = intake.span_days(source.trace)
    label = "Window, load, users" if spec.unchanged else "Window, load, users: changed"
    with st.popover(label, icon=":material/tune:", key="trace_part"):
        grid = st.grid(2, min_column_width=220, vertical_alignment="bottom")
        with grid.cell():
            first, last = intake.window_days(spec, days)
            window = st.slider(
                "Window, in days",
                0.0,
                days,
                (first, last),
                key=state.widget_key("window", spec.source),
                format="%.2f",
            )
        with grid.cell():
            load = st.number_input(
                "Load multiplier",
                min(0.05, spec.load),
                max(20.0, spec.load),
                spec.load,
                step=0.05,
                key=state.widget_key("load", spec.source),
                help=_LOAD,
            )
        with grid.cell():
            by = st.selectbox(
                "Change load by",
                list(_LOAD_BY),
                list(_LOAD_BY).index(spec.load_by),
                _LOAD_BY.__getitem__,
                key=state.widget_key("load_by", spec.source),
                help=_BY,
            )
        sampling = _draw_sampling(spec, source, grid, uses_draw=by == "jobs" and load != 1.0)
        with grid.cell():
            hides_names = st.toggle(
                "Hide names and ids",
                spec.anonymise,
                key=state.widget_key("anonymise", spec.source),
                help=_HIDDEN,
            )
        changed = intake.cut_to_window(
            spec, window, days, load=load, load_by=by, anonymise=hides_names, **sampling
        )
        if changed.load != 1.0 or changed.thinned:
            st.caption(
                "Recorded start times do not fit the changed load, so the history cannot be"
                " replayed."
            )
        if changed.anonymise and spec.source.startswith("store:"):
            st.caption(
                "The jobs stored on the server keep their names until deleted; results, files and"
                " reports have none."
            )
        if changed.anonymise and any(
            group.partitions for group in session.study.base.cluster.groups
        ):
            st.caption(
                "The nodes keep the names of their partitions, so Policy per partition finds no"
                " nodes for jobs with hidden names."
            )
    if changed != spec:
        session.edit(new_study.with_trace(session.study, changed, server.store()))


def _draw_sampling(
    spec: TraceSpec, source: Source, grid: Any, *, uses_draw: bool
) -> dict[str, int]:
    """Draw the choice of a part of the users and of the jobs; return the values by name.

    The sample seed is drawn and returned only if something is random.
    """
    jobs = len(source.trace)
    users = source.trace.frame["user"].nunique() if source.trace.has("user") else 0
    with grid.cell():
        key = state.widget_key("every_user", spec.source)
        every = st.number_input(
            "Keep 1 user in",
            1,
            max(users, 1, spec.every_user),
            spec.every_user,
            key=key,
            disabled=users < 2,
            help=_EVERY,
        )
    with grid.cell():
        sample = st.number_input(
            "Random jobs (0 = all)",
            0,
            max(jobs, spec.sample),
            spec.sample,
            step=max(jobs // 10, 1),
            key=state.widget_key("sample_of", spec.source),
        )
    sampling = {"every_user": int(every), "sample": int(sample)}
    if every > 1 or sample > 0 or uses_draw:
        with grid.cell():
            sampling["sample_seed"] = int(
                st.number_input(
                    "Sample seed",
                    0,
                    max(9999, spec.sample_seed),
                    spec.sample_seed,
                    key=state.widget_key("draw", spec.source),
                    help=_DRAW,
                )
            )
    return sampling


def draw_generator_choice(session: state.Session) -> None:
    """Draw the choice of a workload generator; a new choice replaces the trace."""
    choices = {choice.name: choice for choice in catalog.workloads()}
    current = _current_generator(session)
    # "like" needs the statistics of a trace: only the button Synthetic copy makes it.
    names = [
        name for name in choices if name != "like" or (current is not None and current.name == name)
    ]
    index = names.index(current.name) if current is not None else None
    chosen = st.selectbox(
        "Generate jobs",
        names,
        index,
        key=state.widget_key("made", current and current.name),
        format_func=lambda name: choices[name].title,
        placeholder="choose a workload",
        help="\n".join(
            f"- {choice.title}: {words.plain(choice.help)}"
            for name, choice in choices.items()
            if name in names
        ),
        width=280,
    )
    if chosen is None:
        return
    if current is None or current.name != chosen:
        _set_workload(session, Spec(chosen))


def draw_generator_form(session: state.Session) -> None:
    """Draw a generated workload's parameters; Generate replaces the trace.

    Nothing is drawn for other traces.
    """
    current = _current_generator(session)
    if current is None:
        return
    with (
        st.popover("Parameters", icon=":material/tune:", key=state.widget_key("made_parameters")),
        st.form(f"made/{current}/{session.form_version}", border=False),
    ):
        entered = forms.draw_fields(
            catalog.choice_params(f"{MADE}{current.name}"),
            current.values,
            f"made/{current}/{session.form_version}",
        )
        if st.form_submit_button("Generate", icon=":material/refresh:"):
            _set_workload(session, Spec.of(current.name, **entered))


def _set_workload(session: state.Session, chosen: Spec) -> None:
    """Replace the trace by a generated workload and rerun, or draw why that fails.

    Faults are added to the scenario if jobs of the workload need them.
    """
    try:
        study = new_study.with_trace(session.study, TraceSpec(f"{MADE}{chosen}"), server.store())
        study = new_study.with_required_models(study, server.store())
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    if study != session.study:
        if study.base.faults != session.study.base.faults:
            session.news = (
                "Some of these jobs request too little memory: they fail for good after"
                f" {new_study.RETRIES} retries (Cluster, failures)."
            )
        session.replace(study)
        session.upload = None
        st.rerun()


def _current_generator(session: state.Session) -> Spec | None:
    """Return the generator of the current trace with its parameters, or None."""
    source = session.study.base.trace.source
    return Spec.parse(source.removeprefix(MADE)) if source.startswith(MADE) else None
