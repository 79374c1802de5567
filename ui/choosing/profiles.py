"""Measured throughputs under How jobs scale: which profile, one of the user's own, and what it
lacks for the jobs at hand, with the ways out.
"""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.preflight import coverage
from trainyard.store import profiles
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.traces import start
from trainyard.traces.sources import load_trace
from ui import figure, received, server, state, words
from ui.choosing import forms

_SHOWN: Final = 200
_TABLES: Final = {"simulation": "Gavel's simulator", "physical": "Gavel's own cluster"}
_REFUSE: Final = "nothing: such jobs stop the run"
_RELATIVE: Final = "their nearest measurement, and the relative speed of GPU types"
_COLUMNS: Final[dict[str, Any]] = {
    "model": "Model",
    "batch_size": "Batch size",
    "num_gpus": "GPUs",
    "gpu_type": "GPU type",
    "jobs": st.column_config.NumberColumn("Jobs", format="localized"),
    "first_job": "First job",
    "why": "Why",
}


def form(now: Spec, key: str) -> Spec:
    """Draw the profile, what stands in for what it lacks, and the other parameters; return the
    performance model as entered.

    Parameters
    ----------
    now : Spec
        What is set.
    key : str
        Beginning of the widgets' keys.
    """
    values = dict(now.values)
    _receive(now)
    grid = st.grid(2, min_column_width=300, vertical_alignment="bottom")
    with grid.cell():
        values["table"] = _table(now, f"{key}/table")
    with grid.cell():
        values["stand_in"] = _stand_in(now, f"{key}/stand_in")
    others = [
        info for info in catalog.choice_params(now.name) if info.name not in ("table", "stand_in")
    ]
    with st.expander("Parameters of the model", expanded=False):
        values |= forms.fields(others, now.values, key)
    return Spec.of(now.name, **values)


def findings() -> None:
    """Say what the profile lacks for these jobs, with counts, and offer the ways out."""
    study = state.session().study
    try:
        found = fit(study)
    except TrainyardError:
        return  # what is assumed cannot be told either, and that place says why
    if found is None:
        return
    if found.runs and not len(found.missing):
        st.caption(
            f":material/check: Every one of the {words.plural(len(found.unmeasured), 'job')} was"
            " measured on every GPU type here."
        )
    for sentence in found.sentences:
        st.warning(words.plain(sentence), icon=":material/warning:")
    if not found.runs:
        ways_out(found, "page")
    if len(found.missing):
        with st.expander(found.heading, expanded=not found.runs):
            st.dataframe(
                figure.readable(found.missing.head(_SHOWN)),
                hide_index=True,
                column_config=_COLUMNS,
                placeholder="–",
            )
            if len(found.missing) > _SHOWN:
                st.caption(f"{_SHOWN} of {len(found.missing):,} shown, those of the most jobs.")


def ways_out(found: coverage.ProfileCoverage, where: str) -> None:
    """Offer what lets a run begin, a click each.

    Parameters
    ----------
    found : Fit
        What stops it.
    where : str
        Part of the keys of the widgets.
    """
    session = state.session()
    count = int(found.unmeasured.sum())
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"ways/{where}"):
        if helped := found.helped.get(profiles.RELATIVE):
            label = (
                "Use relative speeds"
                if helped == count
                else f"Relative speeds ({helped:,} of {count:,})"
            )
            if st.button(
                label, key=f"relative/{where}", icon=":material/speed:", help=_RELATIVE_HELP
            ):
                _let(session, profiles.RELATIVE)
        if not found.unmeasured.all():
            label, how = (
                f"Leave out {words.plural(count, 'job')}",
                "The others become a trace of their own.",
            )
            if st.button(
                label, key=f"without_unmeasured/{where}", icon=":material/filter_alt:", help=how
            ):
                session.replace(coverage.without_unmeasured(session.study, server.store()))
                st.rerun()
        if "" in found.helped:
            key = state.widget_key("model", where)
            models = profiles.models_of(session.study.base.perf, server.store())
            chosen = st.selectbox(
                "Stand-in model",
                models,
                None,
                key=key,
                placeholder="choose a model",
                help="The model whose measurements stand in for models that the profile lacks.",
                width=260,
            )
            if chosen is not None:
                _let(session, chosen)


def stopped(study: Study) -> coverage.ProfileCoverage | None:
    """Return what the profile of a study knows of its jobs if that lets no run begin; else None."""
    try:
        found = fit(study)
    except TrainyardError:
        return None  # what is not here any more says so where it is chosen, and when it is run
    return found if found is not None and not found.runs else None


def fit(study: Study) -> coverage.ProfileCoverage | None:
    """Return what the profile of a study knows of its jobs, None if its performance model has none;
    remembered by content.

    Raises
    ------
    TrainyardError
        If the trace or the profile is not here any more.
    """
    if not profiles.is_profiled(study.base.perf):
        return None
    trace = load_trace(study.base.trace, server.store())
    return _fit(f"{trace.digest} {study.base.cluster.digest} {study.base.perf}", study)


def _let(session: state.Session, stand_in: str) -> None:
    perf = session.study.base.perf
    session.replace(
        start.with_model(
            session.study, "perf", Spec.of(perf.name, **(perf.values | {"stand_in": stand_in}))
        )
    )
    st.rerun()


def _receive(now: Spec) -> None:
    with st.expander("Use your own measurements"):
        file = st.file_uploader(
            "A profile (CSV)",
            ["csv", "tsv", "txt"],
            key="profile_file",
            max_upload_size=profiles.PROFILE_MB,
            help=_HELP,
        )
        st.caption(
            "Columns gpu_type, model, batch_size (of one GPU), scale_factor (GPUs), placement"
            " (single, consolidated or unconsolidated) and iterations_per_second (summed over the"
            f" GPUs). It stays in the server's store for {server.store().keep_days:g} days."
        )
        if file is None or st.session_state.get("taken_profile") == file.file_id:
            return
        st.session_state["taken_profile"] = file.file_id
        try:
            kept = profiles.take(
                received.take_bytes(file, "profile_file"), file.name, server.store()
            )
            spec = profiles.with_table(now, kept, state.session().study.base.cluster)
        except TrainyardError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return
    session = state.session()
    session.replace(start.with_model(session.study, "perf", spec))
    st.rerun()


def _table(now: Spec, key: str) -> str:
    current = str(now.values.get("table", next(iter(_TABLES))))
    names = dict(_TABLES)
    if current not in names:
        names[current] = _own_name(current)
    return str(
        st.selectbox(
            "Measurements",
            list(names),
            list(names).index(current),
            key=key,
            format_func=lambda name: names[name],
        )
    )


def _own_name(source: str) -> str:
    try:
        table = profiles.table_of(source, server.store())
    except TrainyardError:
        return "a profile that is not kept any more"
    return f"{table.name} ({words.plural(len(table.models), 'model')} on {', '.join(table.types)})"


def _stand_in(now: Spec, key: str) -> str:
    names = {"": _REFUSE, profiles.RELATIVE: _RELATIVE}
    try:
        models = profiles.models_of(now, server.store())
    except TrainyardError:
        models = ()
    names |= {model: f"the same; and {model} for unknown models" for model in models}
    current = str(now.values.get("stand_in", ""))
    names.setdefault(current, current)
    return str(
        st.selectbox(
            "What stands in for jobs that were not measured",
            list(names),
            list(names).index(current),
            key=key,
            format_func=lambda one: names[one],
        )
    )


@st.cache_resource(max_entries=16, show_spinner=False)
def _fit(mark: str, _study: Study) -> coverage.ProfileCoverage | None:
    del mark
    base, store = _study.base, server.store()
    return coverage.check(base.perf, load_trace(base.trace, store), base.cluster, store)


_RELATIVE_HELP: Final = (
    "What was not measured follows from the nearest measurement and the relative speeds of GPU"
    " types on the Cluster page."
)
_HELP: Final = (
    "The columns of Gavel's published tables. A gang on one server and spread over several are rows"
    " of their own."
)
