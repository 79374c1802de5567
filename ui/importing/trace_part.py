"""Which jobs are taken, and how: a generated workload with its parameters; of any trace the window,
load, some of the users, a random sample, other names.
"""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.scenario import MADE, TraceSpec
from trainyard.traces import intake, start
from trainyard.traces.sources import Source
from ui import server, state, words
from ui.choosing import forms

_LOAD: Final = "How many times the load of the recording: 1 = as recorded."
_LOAD_BY: Final[dict[str, str]] = {"pace": "pace of arrivals", "jobs": "number of jobs"}
_BY: Final = (
    "Pace: the same jobs in a shorter or longer time. Number of jobs: below 1 some jobs are left"
    " out, above 1 copies of all of them are laid over each other, in the same time."
)
_EVERY: Final = (
    "Of the users with jobs in the window one in so many is kept, with all jobs of theirs; which"
    " ones depends on their names and the draw number only."
)
_DRAW: Final = (
    "Another number draws other users and other jobs, and moves copies of jobs elsewhere."
)
_HIDDEN: Final = (
    "Ids, users, names of jobs, accounts, virtual clusters and partitions become numbers: user 1,"
    " user 2, ... Times, sizes, models, GPU types and outcomes stay."
)


def draw(session: state.Session, source: Source) -> None:
    """Draw the choices, folded while the whole source is taken as it is; a change is taken over at
    once.
    """
    spec = session.study.base.trace
    days = intake.days(source.trace)
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
                "Load ×",
                min(0.05, spec.load),
                max(20.0, spec.load),
                spec.load,
                step=0.05,
                key=state.widget_key("load", spec.source),
                help=_LOAD,
            )
        with grid.cell():
            by = st.selectbox(
                "Load by",
                list(_LOAD_BY),
                list(_LOAD_BY).index(spec.load_by),
                _LOAD_BY.__getitem__,
                key=state.widget_key("load_by", spec.source),
                help=_BY,
            )
        thin = _part(spec, source, grid, drawn=by == "jobs" and load != 1.0)
        with grid.cell():
            hidden = st.toggle(
                "Hide names and ids",
                spec.anonymise,
                key=state.widget_key("anonymise", spec.source),
                help=_HIDDEN,
            )
        changed = intake.edited(spec, window, days, load=load, load_by=by, anonymise=hidden, **thin)
        if changed.load != 1.0 or changed.thinned:
            st.caption(
                "Recorded start times belong to the recorded load, so they are left out: the"
                " history cannot be replayed."
            )
        if changed.anonymise and spec.source.startswith("store:"):
            st.caption(
                "The jobs in the server's store keep the names until they are deleted; results,"
                " files and reports do not have them."
            )
        if changed.anonymise and any(
            group.partitions for group in session.study.base.cluster.groups
        ):
            st.caption(
                "The nodes of your cluster keep the names of their partitions or virtual clusters:"
                " the policy Partition finds no nodes for jobs whose names are hidden."
            )
    if changed != spec:
        session.edit(start.with_trace(session.study, changed, server.store()))


def _part(spec: TraceSpec, source: Source, grid: Any, *, drawn: bool) -> dict[str, int]:
    """Draw the choice of a part of the users and of the jobs."""
    jobs = len(source.trace)
    users = source.trace.frame["user"].nunique() if source.trace.has("user") else 0
    with grid.cell():
        key = state.widget_key("every_user", spec.source)
        every = st.number_input(
            "One user in",
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
    made = {"every_user": int(every), "sample": int(sample)}
    if every > 1 or sample > 0 or drawn:
        with grid.cell():
            made["sample_seed"] = int(
                st.number_input(
                    "Draw number",
                    0,
                    max(9999, spec.sample_seed),
                    spec.sample_seed,
                    key=state.widget_key("draw", spec.source),
                    help=_DRAW,
                )
            )
    return made


def choose_made(session: state.Session) -> None:
    """Draw the list of workloads; another choice replaces the jobs, and the cluster unless it was
    made by the user.
    """
    choices = {choice.name: choice for choice in catalog.workloads()}
    now = _made(session)
    # Without the figures of a trace it is like none: the button Look-alike makes it.
    names = [name for name in choices if name != "like" or (now is not None and now.name == name)]
    at = names.index(now.name) if now is not None else None
    chosen = st.selectbox(
        "Generate jobs",
        names,
        at,
        key=state.widget_key("made", now and now.name),
        format_func=lambda name: choices[name].title,
        placeholder="choose a workload",
        help="\n".join(
            f"- {one.title}: {words.plain(one.help)}"
            for name, one in choices.items()
            if name in names
        ),
        width=280,
    )
    if chosen is None:
        return
    if now is None or now.name != chosen:
        _take(session, Spec(chosen))


def made_parameters(session: state.Session) -> None:
    """Draw the parameters of a made workload, folded; nothing for other jobs."""
    now = _made(session)
    if now is None:
        return
    with (
        st.popover("Parameters", icon=":material/tune:", key=state.widget_key("made_parameters")),
        st.form(f"made/{now}/{session.form_version}", border=False),
    ):
        made = forms.fields(
            catalog.choice_params(f"{MADE}{now.name}"),
            now.values,
            f"made/{now}/{session.form_version}",
        )
        if st.form_submit_button("Generate", icon=":material/refresh:"):
            _take(session, Spec.of(now.name, **made))


def _take(session: state.Session, chosen: Spec) -> None:
    try:
        study = start.with_trace(session.study, TraceSpec(f"{MADE}{chosen}"), server.store())
        study = start.with_fitting_conditions(study, server.store())
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    if study != session.study:
        if study.base.faults != session.study.base.faults:
            session.news = (
                "Some of these jobs ask for less memory than they need: they are given up after"
                f" {start.RETRIES} retries (Cluster page, failures)."
            )
        session.replace(study)
        session.upload = None
        st.rerun()


def _made(session: state.Session) -> Spec | None:
    source = session.study.base.trace.source
    return Spec.parse(source.removeprefix(MADE)) if source.startswith(MADE) else None
