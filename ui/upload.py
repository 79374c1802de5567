"""Taking over a file: read at once, kept in the store, the old trace untouched if it cannot be used; choices for reading and the mapping of columns."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from lab import catalog, intake, start
from lab.front import TrainyardError
from ui import figure, server, state, words

TYPES: Final = ("csv", "tsv", "txt", "log", "json", "parquet", "gz", "zip")
ZONES: Final = ("", "UTC", "Europe/Berlin", "Europe/London", "US/Pacific", "US/Eastern", "Asia/Shanghai", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney")
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "min": "minutes", "h": "hours"}
_CPU: Final = {"drop": "leave out", "keep": "keep"}
_UNFINISHED: Final = {"drop": "leave out", "cut": "cut at the end of the trace"}
_SINCE: Final = {"submit": "submission", "eligible": "when it became eligible"}


def receive() -> None:
    """Draw the drop zone, and take over a file as soon as it arrives."""
    mine = state.desk()
    file = st.file_uploader("Your trace", list(TYPES), key="trace_file", max_upload_size=intake.UPLOAD_MB, help=_limits())
    st.caption(
        f"CSV, TSV, Parquet, JSON or Slurm's `sacct -P`; plain, .gz or .zip; up to {intake.UPLOAD_MB} MB and 2 million rows. "
        f"The file is read by this server only; its jobs stay in the server's store for {server.store().keep_days:g} days."
    )
    if file is None and mine.upload is not None and mine.upload.fault:
        # The file was taken out of the field, perhaps by another one that Streamlit refuses with a sentence of its own.
        mine.upload = None
    if file is not None and st.session_state.get("taken_file") != file.file_id:
        st.session_state["taken_file"] = file.file_id
        mine.upload = state.Upload(file.name, file.getvalue())
        read({})


def fault() -> None:
    """Say why the last file could not be read."""
    upload = state.desk().upload
    if upload is not None and upload.fault:
        # style.css hides this while the field itself refuses another file for its size, of which the server hears nothing.
        with st.container(key="upload_fault"):
            st.error(words.plain(upload.fault), icon=":material/error:")
        st.caption("The trace that was loaded before is still in use.")


def read(choices: dict[str, Any]) -> None:
    """Read the file of this session with the given choices; on success it becomes the trace of the scenario."""
    mine = state.desk()
    upload = mine.upload
    if upload is None:
        return
    reading = {key: value for key, value in choices.items() if key != "fmt" and value not in (None, "")}
    try:
        with st.spinner(f"Reading {words.plain(upload.name)} …"):
            taken = intake.take(upload.data, upload.name, server.store(), fmt=str(choices.get("fmt", "")), choices=reading)
            study = start.with_trace(mine.study, taken.spec, server.store())
    except TrainyardError as error:
        upload.fault, upload.choices = str(error), choices
        return
    upload.fault, upload.choices = "", choices
    mine.taken = {taken.spec.source: taken}
    mine.edit(study)


def choices() -> None:
    """Draw the form for reading the file of this session differently."""
    upload = state.desk().upload
    if upload is None:
        return
    with st.expander("Read it differently: format, time zone, units, CPU jobs"), st.form("reading", border=False):
        made = _choice_widgets(upload)
        if st.form_submit_button("Read again", icon=":material/refresh:"):
            read({**upload.choices, **made})
            st.rerun()


def mapping() -> None:
    """Draw the editor that says which column of an unknown table means what."""
    upload = state.desk().upload
    if upload is None:
        return
    try:
        found = intake.look(upload.data, upload.name)
    except TrainyardError:
        return
    if not found.columns or (found.fmt not in ("native", "table", "") and not upload.fault):
        return
    with st.expander("Which column means what", expanded=bool(upload.fault) and bool(found.missing)), st.form("mapping", border=False):
        st.dataframe(figure.readable(found.head.head(3)), hide_index=True, height="content")
        known = dict(upload.choices.get("mapping") or found.mapping)
        made: dict[str, str] = {}
        grid = st.grid(min_column_width=180)
        needed_first = dict.fromkeys([*intake.NEEDED_COLUMNS, *intake.NATIVE_COLUMNS])
        for native in needed_first:
            options = ["", *found.columns]
            at = options.index(known[native]) if known.get(native) in options else 0
            needed = ", required" if native in intake.NEEDED_COLUMNS else ""
            with grid.cell():
                chosen = st.selectbox(f"{native}{needed}", options, at, key=f"map/{upload.name}/{native}", format_func=lambda name: name or "not in the file")
            made[native] = str(chosen)
        if st.form_submit_button("Read with these columns", icon=":material/table_convert:"):
            _read_mapped(made)
            st.rerun()


def _read_mapped(made: dict[str, str]) -> None:
    upload = state.desk().upload
    if upload is None:
        return
    try:
        read({**upload.choices, "mapping": intake.mapping_from(made)})
    except TrainyardError as error:
        upload.fault = str(error)


def _choice_widgets(upload: state.Upload) -> dict[str, Any]:
    was = upload.choices
    formats = {"": "recognise by content"} | {choice.name: choice.title for choice in catalog.formats()}
    grid = st.grid(min_column_width=190)
    with grid.cell():
        fmt = _pick("Format", formats, was.get("fmt", ""))
    with grid.cell():
        zone = st.selectbox("Time zone of times without offset", ZONES, _index(ZONES, was.get("zone") or ""), format_func=_zone_name, accept_new_options=True)
    with grid.cell():
        time_unit = _pick("Unit of numeric times", _UNITS, was.get("time_unit", "s"))
    with grid.cell():
        duration_unit = _pick("Unit of durations", _UNITS, was.get("duration_unit", "s"))
    with grid.cell():
        cpu_jobs = _pick("Jobs without GPUs", _CPU, was.get("cpu_jobs", "drop"))
    with grid.cell():
        unfinished = _pick("Jobs still running at the end", _UNFINISHED, was.get("unfinished", "drop"))
    with grid.cell():
        since = _pick("A job enters at (Slurm)", _SINCE, was.get("since", "submit"))
    return {
        "fmt": fmt,
        "zone": zone or None,
        "time_unit": time_unit,
        "duration_unit": duration_unit,
        "cpu_jobs": cpu_jobs,
        "unfinished": unfinished,
        "since": since,
    }


def _pick(label: str, names: dict[str, str], value: Any) -> str:
    options = list(names)
    return str(st.selectbox(label, options, _index(options, value), format_func=lambda name: names[name]))


def _index(options: Any, value: Any) -> int:
    return list(options).index(value) if value in options else 0


def _zone_name(name: str) -> str:
    return name or "as the format says, else UTC"


def _limits() -> str:
    return "The format is recognised by content, not by name: native columns, Philly, Helios, Slurm, Microsoft ITP, or any table whose columns you name."
