"""The drop field of Start and Trace: traces, clusters, scenarios and exported runs, by content."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.clusters import uploads
from trainyard.library import archive
from trainyard.runs.grace_period import release_memory
from trainyard.study.scenario import TraceSpec
from trainyard.traces import bundle, intake, merging, new_study
from ui import browser_identity, server, state, uploaded_files, words
from ui.importing import fitted_cluster, own_recipe, questions, reading

_SACCT: Final = """sacct -P -a -X -S 2026-03-01 -E 2026-04-01 \\
  --format=JobID,User,Account,Partition,State,\\
Submit,Eligible,Start,End,ElapsedRaw,\\
TimelimitRaw,AllocTRES,ReqTRES > month.txt"""
_OPEN: Final = "open_drop"
_TURN: Final = "drops"
_TAKEN: Final = "taken_files"
_MERGE: Final = (
    "Merges their jobs by time if all files have dates, else from second 0. Repeated ids get the"
    " number of their file."
)


def draw_uploader() -> None:
    """Draw the uploader, and import new files; files that arrive together are one drop."""
    used_ids, version = st.session_state.get(_TAKEN, frozenset()), st.session_state.get(_TURN, 0)
    files_before = st.session_state.get(f"trace_file/{version}") or []
    if files_before and all(file.file_id in used_ids for file in files_before):
        # Empties the uploader: files of earlier drops would look like files in use.
        version = st.session_state[_TURN] = version + 1
    key = f"trace_file/{version}"
    with st.container(width=420, key="trace_file"):
        files = st.file_uploader(
            "Drop a trace, scenario or export",
            # Any name: Philly's log has no suffix, and the format is detected by content.
            None,
            accept_multiple_files=True,
            key=key,
            max_upload_size=intake.UPLOAD_MB,
            help=_help_text(),
        )
    if new_files := [file for file in files if file.file_id not in used_ids]:
        # Before reading: a second drop reruns the page with its files only.
        st.session_state[_TAKEN] = used_ids | {file.file_id for file in new_files}
        session = state.session()
        page_name = _import_new_files(session, new_files, key)
        if page_name == session.page:
            st.rerun()
        st.switch_page(f"pages/{page_name}.py", query_params=state.url_parameters())


def draw_help(session: state.Session) -> None:
    """Draw the popover on formats, export from Slurm, privacy and deleting the trace."""
    with st.popover("Formats and privacy", icon=":material/info:", key="about_upload"):
        st.caption(
            "CSV, TSV, Excel, Parquet, Feather, JSON, SWF, Gavel's .trace or Slurm's `sacct -P`;"
            " plain, .gz or"
            f" .zip; up to {intake.UPLOAD_MB} MB and 2 million rows."
        )
        st.markdown("**Export from Slurm**")
        st.code(_SACCT, language="bash", wrap_lines=True)
        st.caption(
            "Set your days. sacct prints times in your time zone: if it is not UTC, select it after"
            " the upload."
        )
        st.markdown("**Privacy**")
        _draw_privacy(session)


def _import_new_files(session: state.Session, new: list[Any], key: str) -> str:
    """Take new files out of the uploader, without repeats, and import their contents.

    Errors and open choices of the drop before are dismissed. Return the page that shows what came
    of it.
    """
    st.session_state.pop(_OPEN, None)
    _dismiss_refused(session, with_choices=False)
    files: dict[str, bytes] = {}
    for file in new:
        data = uploaded_files.take_bytes(file, key)
        name = file.name if file.name not in files else f"{file.name} ({len(files) + 1})"
        # An accidental second drop of the same file counts once.
        if files.get(file.name) != data:
            files[name] = data
        del data
    page_name, size = session.page, sum(map(len, files.values()))
    for name in [*files]:
        if archive.is_archive(files[name]):
            page_name = _import_runs(session, files.pop(name), name) or page_name
        elif bundle.is_scenario_file(files[name]):
            page_name = _open_scenario(session, files.pop(name), name) or page_name
    release_memory(size)
    if files:
        _use_files(session, files)
        page_name = "trace"
    return page_name


def _open_scenario(session: state.Session, data: bytes, name: str) -> str:
    """Replace the scenario by a file's and return "compare"; else set a notice and return ""."""
    try:
        opened = bundle.open_scenario_file(
            data, name, session.study, server.store(), [browser_identity.owner()]
        )
    except TrainyardError as error:
        session.notice = f"{error} The earlier scenario stays open."
        return ""
    has_results = session.open(opened.study)
    is_trace_gone = new_study.is_trace_missing(opened.study, server.store())
    away_note = (
        f"Its trace is the file {opened.missing_trace}: load it on Trace. Until then the current"
        " trace stays. "
        if opened.missing_trace
        else ""
    )
    jobs_note = f" with {words.plural(opened.jobs, 'job')}" if opened.jobs else ""
    next_step = (
        "Its jobs are still missing."
        if is_trace_gone
        else ""
        if has_results
        else "Press Run to see its results."
    )
    session.news = f"{name} is open{jobs_note}. {away_note}{next_step}".rstrip()
    return "compare"


def _import_runs(session: state.Session, data: bytes, name: str) -> str:
    """Add exported runs to Your runs and return "start"; else set a notice and return ""."""
    try:
        imported = archive.import_archive(
            server.store(), browser_identity.owner(), data, name, results=False
        )
    except TrainyardError as error:
        session.notice = str(error)
        return ""
    entries = "1 entry is" if len(imported.ids) == 1 else f"{len(imported.ids):,} entries are"
    session.news = f"{entries} imported from {name} to Your runs. {imported.summary}".rstrip()
    return "start"


def _use_files(session: state.Session, files: dict[str, bytes]) -> None:
    """Sort the files of one drop (traces, clusters, statistics) and import them.

    A drop that cannot be used leaves an error. The bytes are freed.
    """
    size, drops_found = sum(map(len, files.values())), list[uploads.DroppedFile]()
    try:
        drops_found += uploads.classify_files(files)
        _use_drop(session, drops_found)
    except TrainyardError as error:
        _report_refused(session, state.Upload(", ".join(files), None, size, str(error)))
    finally:
        # A new cluster reruns the page, so the memory is freed here.
        files.clear()
        drops_found.clear()
        release_memory(size)


def _readable_upload(session: state.Session) -> state.Upload | None:
    """Return the upload of the current trace: before a refused one, else the last."""
    upload = session.upload
    return upload.previous if upload is not None and upload.fault else upload


def _report_refused(session: state.Session, upload: state.Upload) -> None:
    """Store why a drop cannot be used; the file in use keeps its questions and options."""
    session.upload, sentences = _readable_upload(session), (*upload.unused_reasons, upload.fault)
    if session.upload is None:
        session.upload = upload
    else:
        session.upload.refused_reasons, session.upload.unused_reasons = sentences, ()


def _dismiss_refused(session: state.Session, *, with_choices: bool = True) -> None:
    """Remove the errors of the last drop; restore the upload before an unreadable one.

    `with_choices` = also if its file may still be read with other options.
    """
    upload = session.upload
    if upload is not None and upload.fault and (with_choices or upload.content is None):
        session.upload = upload.previous
    elif upload is not None:
        upload.refused_reasons = upload.unused_reasons = ()


def _use_drop(session: state.Session, drops_found: list[uploads.DroppedFile]) -> None:
    """Import the statistics, trace and cluster of a drop; several traces wait for a choice."""
    for name, spec in uploads.select_contents(drops_found, "figures").items():
        session.upload, session.intakes = None, {}
        session.news = f"Generated jobs similar to {name}."
        session.replace(new_study.with_trace(session.study, spec, server.store()))
    traces, machines = (
        uploads.select_contents(drops_found, "jobs"),
        uploads.select_contents(drops_found, "machines"),
    )
    unused_reasons = tuple(uploads.select_contents(drops_found, "refused").values())
    if len(traces) == 1:
        _use_trace(session, *traces.popitem(), unused_reasons, machines)
    elif traces:
        stored_traces = {name: uploaded_files.OnDisk(data) for name, data in traces.items()}
        st.session_state[_OPEN] = (stored_traces, unused_reasons, machines)
    elif unused_reasons:
        names = ", ".join(drop.name for drop in drops_found)
        _report_refused(
            session,
            state.Upload(names, None, 0, unused_reasons[-1], unused_reasons=unused_reasons[:-1]),
        )
    if machines and not traces:
        fitted_cluster.use_machine_files(session, machines)


def _use_trace(
    session: state.Session,
    name: str,
    data: bytes,
    unused_reasons: tuple[str, ...] = (),
    machines: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Make a file the upload of this session, and its jobs the trace if it is readable."""
    not_read = f"{name} has not been read."
    upload = state.Upload(
        name, None, len(data), not_read, unused_reasons=unused_reasons, machines=machines
    )
    try:
        upload.content = uploaded_files.OnDisk(data)
    except TrainyardError as error:
        upload.fault = str(error)
        _report_refused(session, upload)
        return
    session.upload, upload.previous = upload, _readable_upload(session)
    first_rows = reading.peek(data)
    reading.read_with_recipe(
        own_recipe.find_recipe(first_rows.fingerprint) if first_rows is not None else None, data
    )
    if upload.fault and not upload.questions and first_rows is None:
        # No reading option would help.
        upload.content = None
        _report_refused(session, upload)


def _draw_trace_choice() -> None:
    """Draw the choice of one of several traces of a drop, or to merge or discard them."""
    if (open_drop := st.session_state.get(_OPEN)) is None:
        return
    stored_traces, unused_reasons, machines = open_drop
    with st.container(border=True, key="which_trace_box"):
        chosen = st.radio(
            f"These are {len(stored_traces)} separate traces. Which one do you want?",
            list(stored_traces),
            None,
            format_func=words.plain,
            key="which_trace",
        )
        with st.container(horizontal=True):
            is_used = st.button("Use this trace", key="use_which", disabled=chosen is None)
            is_merged = st.button("Merge into one trace", key="merge_all", help=_MERGE)
            if st.button("Discard", key="leave_which", type="tertiary"):
                del st.session_state[_OPEN]
                st.rerun()
        if is_used and chosen is not None:
            del st.session_state[_OPEN]
            _use_trace(
                state.session(), chosen, stored_traces[chosen].read(), unused_reasons, machines
            )
            st.rerun()
        if is_merged:
            _merge_traces(stored_traces, unused_reasons, machines)
    for sentence in unused_reasons:
        st.warning(words.plain(sentence), icon=":material/warning:")


def _merge_traces(
    stored_traces: Mapping[str, uploaded_files.OnDisk],
    unused_reasons: tuple[str, ...],
    machines: Mapping[str, bytes],
) -> None:
    """Merge several traces into one and use it with their clusters, or draw the error."""
    session, name = state.session(), " + ".join(stored_traces)
    try:
        with st.spinner(f"Reading {words.plain(name)} …"):
            files = {file_name: file.read() for file_name, file in stored_traces.items()}
            spec = merging.store_merged(files, server.store(), (browser_identity.owner(),))
            study = new_study.with_trace(session.study, spec, server.store())
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    del st.session_state[_OPEN]
    session.upload = state.Upload(
        name, None, sum(map(len, files.values())), unused_reasons=unused_reasons
    )
    session.intakes = {}
    session.edit(study)
    if machines:
        fitted_cluster.use_machine_files(session, machines, jobs=name)
    st.rerun()


def _draw_privacy(session: state.Session) -> None:
    """Draw where files go and how long they stay, and the button that deletes the trace.

    Only the browser that uploaded the trace gets the button.
    """
    days = f"{server.store().keep_days:g} days"
    st.caption(
        ":material/lock: Files stay on this server. Jobs are deleted"
        f" {days} after they were last uploaded."
    )
    kind, _, digest = session.study.base.trace.source.partition(":")
    info = server.store().trace_info(digest) if kind == "store" else None
    if info is None:
        return
    if browser_identity.owner() not in server.store().index.owners(digest):
        st.caption("Only the browser that uploaded this trace can delete it.")
        return
    st.caption(
        f"Deletes the jobs of **{words.plain(info.name)}** and all their results from this server;"
        " links to them stop working."
    )
    if st.button("Delete jobs and results", key="forget", icon=":material/delete_forever:"):
        _delete_trace(session, info.name, digest)


def _delete_trace(session: state.Session, name: str, digest: str) -> None:
    """Delete a stored trace with its results, and return to the default sample."""
    try:
        results = state.forget_trace(digest)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    results_note = f" with {words.plural(results, 'result')}" if results else ""
    session.news = f"Deleted {name}{results_note} from this server."
    session.replace(new_study.with_trace(session.study, TraceSpec(), server.store()))
    session.upload, session.intakes, session.displayed_study = None, {}, None
    st.rerun()


def draw_faults() -> None:
    """Draw why files of the last drop were not used, questions, and reading options.

    Several traces of a drop are drawn as a choice instead.
    """
    _draw_trace_choice()
    session = state.session()
    upload = session.upload
    if upload is None or _OPEN in st.session_state:
        return
    errors = (*upload.unused_reasons, upload.fault) if upload.fault else upload.refused_reasons
    for sentence in upload.unused_reasons if not upload.fault else ():
        st.warning(words.plain(sentence), icon=":material/warning:")
    if not errors:
        return
    with st.container(key="upload_fault"):
        for sentence in errors:
            st.error(words.plain(sentence), icon=":material/error:")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption("The earlier trace is still in use.")
            if st.button("Dismiss", key="dismiss_file", type="tertiary"):
                _dismiss_refused(session)
                st.rerun()
        if upload.questions:
            questions.draw(upload.questions, reading.read_with_answers, upload.name)
        if upload.fault and upload.content is not None:
            expanded = (
                not upload.questions
                and (first_rows := reading.peek()) is not None
                and bool(first_rows.missing)
            )
            if expanded:
                reading.draw_column_editor(reading.COLUMNS, expanded=True)
            own_recipe.draw_used_recipe(upload, None, reading.read_with_recipe)
            with st.container(horizontal=True):
                if not expanded:
                    reading.draw_column_editor(reading.COLUMNS)
                reading.draw_choices("Reading options: format, dates, units, CPU jobs")
                own_recipe.draw(upload, None, reading.read_with_recipe)


def _help_text() -> str:
    """Return the help of the uploader: formats, and drops of several files."""
    return (
        "Formats, detected by content: native columns, Philly, Helios, Slurm, SWF, Microsoft ITP,"
        " or any table whose columns you name. Several files can be tables of one trace, or jobs"
        " and their machines. A scenario (JSON or ZIP) opens, exported runs (ZIP) join Your runs."
    )
