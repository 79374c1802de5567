"""Measured throughputs on the Policies page: which profile, one of the user's own, and what it lacks for the jobs at hand, with the ways out."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from lab import catalog, profiles, start
from lab.front import Cluster, Spec, Trace, TrainyardError
from ui import forms, server, state, words

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
    """Draw the profile, what stands in for what it lacks, and the other parameters; return the performance model as entered.

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
    others = [info for info in catalog.choice_params(now.name) if info.name not in ("table", "stand_in")]
    with st.expander("Parameters of the model", expanded=False):
        values |= forms.fields(others, now.values, key)
    return Spec.of(now.name, **values)


def findings(trace: Trace | None, cluster: Cluster) -> None:
    """Say what the profile lacks for these jobs, with counts, and offer to leave jobs out."""
    mine = state.desk()
    if trace is None:
        return
    try:
        fit = _fit(f"{trace.digest} {cluster.digest} {mine.study.base.perf}", mine.study.base.perf, trace, cluster)
    except TrainyardError:
        return  # what is assumed cannot be told either, and that place says why
    if fit is None:
        return
    if fit.runs and not len(fit.missing):
        st.caption(f":material/check: Every one of the {words.plural(len(trace), 'job')} was measured on every GPU type here.")
    for sentence in fit.sentences:
        st.warning(words.plain(sentence), icon=":material/warning:")
    if not fit.runs:
        count = words.plural(int(fit.unmeasured.sum()), "job")
        none_left, how = bool(fit.unmeasured.all()), "The others become a trace of their own."
        if st.button(f"Leave out {count}", key="without_unmeasured", icon=":material/filter_alt:", disabled=none_left, help=how):
            mine.replace(profiles.without_unmeasured(mine.study, server.store()))
            st.rerun()
        st.caption("Or choose above what stands in for them.")
    if len(fit.missing):
        _missing(fit)


def _missing(fit: profiles.Fit) -> None:
    jobs, rows = int(fit.missing["jobs"].max()), fit.missing.head(_SHOWN)
    what = "combination is" if len(fit.missing) == 1 else "combinations are"
    with st.expander(f"{len(fit.missing):,} {what} not in the profile, or do not run there: up to {words.plural(jobs, 'job')} each", expanded=not fit.runs):
        st.dataframe(rows, hide_index=True, column_config=_COLUMNS)
        if len(fit.missing) > _SHOWN:
            st.caption(f"{_SHOWN} of {len(fit.missing):,} shown, those of the most jobs.")


def _receive(now: Spec) -> None:
    with st.expander("Use your own measurements"):
        file = st.file_uploader("A profile (CSV)", ["csv", "tsv", "txt"], key="profile_file", max_upload_size=profiles.PROFILE_MB, help=_HELP)
        st.caption(
            "Columns gpu_type, model, batch_size (of one GPU), scale_factor (GPUs), placement (single, consolidated or unconsolidated) and "
            f"iterations_per_second (summed over the GPUs). It stays in the server's store for {server.store().keep_days:g} days."
        )
        if file is None or st.session_state.get("taken_profile") == file.file_id:
            return
        st.session_state["taken_profile"] = file.file_id
        try:
            kept = profiles.take(file.getvalue(), file.name, server.store())
            spec = profiles.with_table(now, kept, state.desk().study.base.cluster)
        except TrainyardError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return
    mine = state.desk()
    mine.replace(start.with_model(mine.study, "perf", spec))
    st.rerun()


def _table(now: Spec, key: str) -> str:
    current = str(now.values.get("table", next(iter(_TABLES))))
    names = dict(_TABLES)
    if current not in names:
        names[current] = _own_name(current)
    return str(st.selectbox("Measurements", list(names), list(names).index(current), key=key, format_func=lambda name: names[name]))


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
        st.selectbox("What stands in for jobs that were not measured", list(names), list(names).index(current), key=key, format_func=lambda one: names[one])
    )


@st.cache_resource(max_entries=16, show_spinner=False)
def _fit(mark: str, _perf: Spec, _trace: Trace, _cluster: Cluster) -> profiles.Fit | None:
    del mark
    return profiles.check(_perf, _trace, _cluster, server.store())


_HELP: Final = "The columns of Gavel's published tables. A gang on one server and spread over several are rows of their own."
