"""Measured throughputs for "Performance model": profile, upload, missing entries."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.preflight import coverage
from trainyard.store import profiles
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace
from ui import figure, server, state, uploaded_files, words
from ui.choosing import forms

_MAX_ROWS: Final = 200
_TABLES: Final = {"simulation": "Gavel's simulator", "physical": "Gavel's own cluster"}
_REFUSE: Final = "nothing: the run stops at such a job"
_RELATIVE: Final = "the nearest measurement × relative speed of GPU types"
_COLUMNS: Final[dict[str, Any]] = {
    "model": "Model",
    "batch_size": "Batch size",
    "num_gpus": "GPUs",
    "gpu_type": "GPU type",
    "jobs": st.column_config.NumberColumn("Jobs", format="localized"),
    "first_job": "First job",
    "why": "Why",
}


def draw_form(perf: Spec, key: str) -> Spec:
    """Draw the profile, the substitute and other parameters; return the performance model.

    Parameters
    ----------
    perf : Spec
        The current performance model.
    key : str
        Prefix of the widgets' keys.
    """
    values = dict(perf.values)
    _draw_upload(perf)
    grid = st.grid(2, min_column_width=300, vertical_alignment="bottom")
    with grid.cell():
        values["table"] = _draw_table_choice(perf, f"{key}/table")
    with grid.cell():
        values["stand_in"] = _draw_stand_in(perf, f"{key}/stand_in")
    others = [
        info for info in catalog.choice_params(perf.name) if info.name not in ("table", "stand_in")
    ]
    with st.expander("Parameters of the model", expanded=False):
        values |= forms.draw_fields(others, perf.values, key)
    return Spec.of(perf.name, **values)


def draw_coverage() -> None:
    """Draw how many jobs the profile lacks, buttons that help, and a table of entries."""
    study = state.session().study
    try:
        profile_coverage = profile_coverage_of(study)
    except TrainyardError:
        return  # the list of assumptions reports the error
    if profile_coverage is None:
        return
    if profile_coverage.runs and not len(profile_coverage.missing):
        st.caption(
            f":material/check: All {words.plural(len(profile_coverage.unmeasured), 'job')} were"
            " measured on every GPU type here."
        )
    for sentence in profile_coverage.sentences:
        st.warning(words.plain(sentence), icon=":material/warning:")
    if not profile_coverage.runs:
        draw_suggestions(profile_coverage, "page")
    if len(profile_coverage.missing):
        with st.expander(profile_coverage.heading, expanded=not profile_coverage.runs):
            st.dataframe(
                figure.readable(profile_coverage.missing.head(_MAX_ROWS)),
                hide_index=True,
                column_config=_COLUMNS,
                placeholder="–",
            )
            if len(profile_coverage.missing) > _MAX_ROWS:
                st.caption(
                    f"{_MAX_ROWS} of {len(profile_coverage.missing):,} shown, by number of jobs."
                )


def draw_suggestions(profile_coverage: coverage.ProfileCoverage, where: str) -> None:
    """Draw buttons that allow the run: relative speeds, fewer jobs, or a substitute model.

    Parameters
    ----------
    profile_coverage : ProfileCoverage
        The jobs that the profile lacks.
    where : str
        Part of the widgets' keys.
    """
    session = state.session()
    count = int(profile_coverage.unmeasured.sum())
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"ways/{where}"):
        if helped := profile_coverage.helped.get(profiles.RELATIVE):
            label = (
                "Use relative speeds"
                if helped == count
                else f"Relative speeds ({helped:,} of {count:,})"
            )
            if st.button(
                label, key=f"relative/{where}", icon=":material/speed:", help=_RELATIVE_HELP
            ):
                _set_stand_in(session, profiles.RELATIVE)
        if not profile_coverage.unmeasured.all():
            label, help_text = (
                f"Leave out {words.plural(count, 'job')}",
                "Makes a new trace of the other jobs.",
            )
            if st.button(
                label,
                key=f"without_unmeasured/{where}",
                icon=":material/filter_alt:",
                help=help_text,
            ):
                session.replace(coverage.without_unmeasured(session.study, server.store()))
                st.rerun()
        if "" in profile_coverage.helped:
            key = state.widget_key("model", where)
            models = profiles.models_of(session.study.base.perf, server.store())
            chosen = st.selectbox(
                "Stand-in model",
                models,
                None,
                key=key,
                placeholder="choose a model",
                help="Its measurements replace those that the profile lacks.",
                width=260,
            )
            if chosen is not None:
                _set_stand_in(session, chosen)


def blocking_coverage(study: Study) -> coverage.ProfileCoverage | None:
    """Return what a study's profile lacks if that keeps runs from starting, else None."""
    try:
        profile_coverage = profile_coverage_of(study)
    except TrainyardError:
        return None  # choosing and running report what is missing
    return profile_coverage if profile_coverage is not None and not profile_coverage.runs else None


def profile_coverage_of(study: Study) -> coverage.ProfileCoverage | None:
    """Return which jobs a study's profile lacks, cached; None without a profile.

    Raises
    ------
    TrainyardError
        If the trace or the profile is no longer stored.
    """
    if not profiles.is_profiled(study.base.perf):
        return None
    trace = load_trace(study.base.trace, server.store())
    return _coverage_cached(f"{trace.digest} {study.base.cluster.digest} {study.base.perf}", study)


def _set_stand_in(session: state.Session, stand_in: str) -> None:
    """Set the substitute for missing measurements in the scenario, and rerun."""
    perf = session.study.base.perf
    session.replace(
        new_study.with_model(
            session.study, "perf", Spec.of(perf.name, **(perf.values | {"stand_in": stand_in}))
        )
    )
    st.rerun()


def _draw_upload(perf: Spec) -> None:
    """Draw the uploader for an own profile; store a new file and use it in the scenario."""
    with st.expander("Use your own measurements"):
        file = st.file_uploader(
            "A profile (CSV)",
            ["csv", "tsv", "txt"],
            key="profile_file",
            max_upload_size=profiles.PROFILE_MB,
            help=_HELP,
        )
        st.caption(
            "Columns: gpu_type, model, batch_size (per GPU), scale_factor (GPUs), placement"
            " (single, consolidated or unconsolidated), iterations_per_second (sum over GPUs). The"
            f" server keeps it for {server.store().keep_days:g} days."
        )
        if file is None or st.session_state.get("taken_profile") == file.file_id:
            return
        st.session_state["taken_profile"] = file.file_id
        try:
            table = profiles.store_profile(
                uploaded_files.take_bytes(file, "profile_file"), file.name, server.store()
            )
            spec = profiles.with_table(perf, table, state.session().study.base.cluster)
        except TrainyardError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return
    session = state.session()
    session.replace(new_study.with_model(session.study, "perf", spec))
    st.rerun()


def _draw_table_choice(perf: Spec, key: str) -> str:
    """Draw the choice of the measured profile; return its name or stored source."""
    current = str(perf.values.get("table", next(iter(_TABLES))))
    names = dict(_TABLES)
    if current not in names:
        names[current] = _own_profile_label(current)
    return str(
        st.selectbox(
            "Measurements",
            list(names),
            list(names).index(current),
            key=key,
            format_func=lambda name: names[name],
        )
    )


def _own_profile_label(source: str) -> str:
    """Return the label of an uploaded profile: name, models, GPU types; or that it is gone."""
    try:
        table = profiles.load_profile(source, server.store())
    except TrainyardError:
        return "a profile that is no longer stored"
    return f"{table.name} ({words.plural(len(table.models), 'model')} on {', '.join(table.types)})"


def _draw_stand_in(perf: Spec, key: str) -> str:
    """Draw the choice of the substitute for missing measurements; return it, "" = none."""
    names = {"": _REFUSE, profiles.RELATIVE: _RELATIVE}
    try:
        models = profiles.models_of(perf, server.store())
    except TrainyardError:
        models = ()
    names |= {model: f"as above, and {model} for unknown models" for model in models}
    current = str(perf.values.get("stand_in", ""))
    names.setdefault(current, current)
    return str(
        st.selectbox(
            "Replace missing measurements by",
            list(names),
            list(names).index(current),
            key=key,
            format_func=lambda name: names[name],
        )
    )


@st.cache_resource(max_entries=16, show_spinner=False)
def _coverage_cached(cache_key: str, _study: Study) -> coverage.ProfileCoverage | None:
    """Return which jobs a study's profile lacks, cached; None if it has no profile."""
    del cache_key
    base, store = _study.base, server.store()
    return coverage.profile_coverage(base.perf, load_trace(base.trace, store), base.cluster, store)


_RELATIVE_HELP: Final = (
    "Scales the nearest measurement by the relative speeds of GPU types on Cluster."
)
_HELP: Final = (
    "Columns as in Gavel's published tables; one row for a gang on one server, one for a gang"
    " across servers."
)
