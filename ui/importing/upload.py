"""Taking over a file: read at once, kept in the store, the old trace untouched if it cannot be
used; choices for reading and the mapping of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.clusters import drops
from trainyard.runs.disconnects import tidy
from trainyard.study.scenario import TraceSpec
from trainyard.traces import intake, merging, start
from ui import browser_identity, received, server, state, words
from ui.importing import fitted_cluster, own_recipe, questions, reading

_SACCT: Final = """sacct -P -a -X -S 2026-03-01 -E 2026-04-01 \\
  --format=JobID,User,Account,Partition,State,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES,ReqTRES > month.txt"""  # noqa: E501
_OPEN: Final = "open_drop"
_TURN: Final = "drops"
_TAKEN: Final = "taken_files"
_MERGE: Final = (
    "Their jobs on one clock: at their instants where all files say them, else all from second 0."
    " Ids that come again get the number of their file."
)


def receive() -> None:
    """Draw the drop field, and take over files as soon as they arrive; those that arrive together
    are one drop.
    """
    known, turn = st.session_state.get(_TAKEN, frozenset()), st.session_state.get(_TURN, 0)
    held = st.session_state.get(f"trace_file/{turn}") or []
    if held and all(file.file_id in known for file in held):
        # An empty field again: files of earlier drops would look as if they were in use.
        turn = st.session_state[_TURN] = turn + 1
    key = f"trace_file/{turn}"
    with st.container(width=420, key="trace_file"):
        files = st.file_uploader(
            "Drop a trace here",
            # Of any name: Philly's log has no ending, and content tells what a file is.
            None,
            accept_multiple_files=True,
            key=key,
            max_upload_size=intake.UPLOAD_MB,
            help=_limits(),
        )
    if new := [file for file in files if file.file_id not in known]:
        # Before they are read: a second drop meanwhile begins this run anew, with its files alone.
        st.session_state[_TAKEN] = known | {file.file_id for file in new}
        _receive(state.session(), new, key)
        st.rerun()


def about(session: state.Session) -> None:
    """Draw, folded, what is read, how to export from Slurm, and what becomes of a file."""
    with st.popover("Formats and privacy", icon=":material/info:", key="about_upload"):
        st.caption(
            "CSV, TSV, Excel, Parquet, Feather, JSON, SWF, Gavel's .trace or Slurm's `sacct -P`;"
            " plain, .gz or"
            f" .zip; up to {intake.UPLOAD_MB} MB and 2 million rows."
        )
        st.markdown("**Export from Slurm**")
        st.code(_SACCT, language="bash", wrap_lines=True)
        st.caption(
            "Put in the days that you want. sacct prints times in the zone of its user; choose that"
            " zone after the upload if it is not UTC."
        )
        st.markdown("**Privacy**")
        _privacy(session)


def _receive(session: state.Session, new: list[Any], key: str) -> None:
    st.session_state.pop(_OPEN, None)
    _dismiss(session, with_choices=False)
    files: dict[str, bytes] = {}
    for file in new:
        data = received.take_bytes(file, key)
        name = file.name if file.name not in files else f"{file.name} ({len(files) + 1})"
        # A hasty second drop of the same file is the same file.
        if files.get(file.name) != data:
            files[name] = data
        del data
    _use_files(session, files)


def _use_files(session: state.Session, files: dict[str, bytes]) -> None:
    """Sort the files of one drop and take them over: a trace, machines, or figures."""
    size, found = sum(map(len, files.values())), list[drops.Drop]()
    try:
        found += drops.sort(files)
        _use(session, found)
    except TrainyardError as error:
        _refuse(session, state.Upload(", ".join(files), None, size, str(error)))
    finally:
        # A new cluster ends this run of the page.
        files.clear()
        found.clear()
        tidy(size)


def _in_use(session: state.Session) -> state.Upload | None:
    """Return the file at hand of which the jobs are; None = there is none."""
    upload = session.upload
    return upload.previous if upload is not None and upload.fault else upload


def _refuse(session: state.Session, upload: state.Upload) -> None:
    """Say why a drop cannot be used; the file in use stays at hand, with its questions and
    choices.
    """
    session.upload, sentences = _in_use(session), (*upload.unused_reasons, upload.fault)
    if session.upload is None:
        session.upload = upload
    else:
        session.upload.refused_reasons, session.upload.unused_reasons = sentences, ()


def _dismiss(session: state.Session, *, with_choices: bool = True) -> None:
    """Forget what was refused; with `with_choices` also a file that could be read differently."""
    upload = session.upload
    if upload is not None and upload.fault and (with_choices or upload.content is None):
        session.upload = upload.previous
    elif upload is not None:
        upload.refused_reasons = upload.unused_reasons = ()


def _use(session: state.Session, found: list[drops.Drop]) -> None:
    """Take over the trace among files with its machines, or ask which trace is meant."""
    for name, spec in drops.contents(found, "figures").items():
        session.upload, session.intakes = None, {}
        session.news = f"{name} holds the figures of a look-alike: these are its jobs."
        session.replace(start.with_trace(session.study, spec, server.store()))
    traces, machines = drops.contents(found, "jobs"), drops.contents(found, "machines")
    unused = tuple(drops.contents(found, "refused").values())
    if len(traces) == 1:
        _take(session, *traces.popitem(), unused, machines)
    elif traces:
        kept = {name: received.OnDisk(data) for name, data in traces.items()}
        st.session_state[_OPEN] = (kept, unused, machines)
    elif unused:
        told = ", ".join(drop.name for drop in found)
        _refuse(session, state.Upload(told, None, 0, unused[-1], unused_reasons=unused[:-1]))
    if machines and not traces:
        fitted_cluster.take_files(session, machines)


def _take(
    session: state.Session,
    name: str,
    data: bytes,
    unused: tuple[str, ...] = (),
    machines: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Make a file the one of this session, and its jobs the trace if they can be read."""
    unread = f"{name} has not been read."
    upload = state.Upload(name, None, len(data), unread, unused_reasons=unused, machines=machines)
    try:
        upload.content = received.OnDisk(data)
    except TrainyardError as error:
        upload.fault = str(error)
        _refuse(session, upload)
        return
    session.upload, upload.previous = upload, _in_use(session)
    found = reading.look(data)
    reading.by_recipe(own_recipe.known(found.fingerprint) if found is not None else None, data)
    if upload.fault and not upload.questions and found is None:
        # No choice of how to read it would help.
        upload.content = None
        _refuse(session, upload)


def _which() -> None:
    """Ask which trace of a drop is meant; nothing if that is clear."""
    if (found := st.session_state.get(_OPEN)) is None:
        return
    kept, unused, machines = found
    with st.container(border=True, key="which_trace_box"):
        chosen = st.radio(
            f"These are {len(kept)} traces that do not belong together. Which one do you want?",
            list(kept),
            None,
            format_func=words.plain,
            key="which_trace",
        )
        with st.container(horizontal=True):
            use = st.button("Use this trace", key="use_which", disabled=chosen is None)
            merge = st.button("Make one trace of all", key="merge_all", help=_MERGE)
            if st.button("Leave them", key="leave_which", type="tertiary"):
                del st.session_state[_OPEN]
                st.rerun()
        if use and chosen is not None:
            del st.session_state[_OPEN]
            _take(state.session(), chosen, kept[chosen].read(), unused, machines)
            st.rerun()
        if merge:
            _merge(kept, unused, machines)
    for sentence in unused:
        st.warning(words.plain(sentence), icon=":material/warning:")


def _merge(
    kept: Mapping[str, received.OnDisk],
    unused: tuple[str, ...],
    machines: Mapping[str, bytes],
) -> None:
    """Make the jobs of several traces those of the scenario."""
    session, name = state.session(), " + ".join(kept)
    try:
        with st.spinner(f"Reading {words.plain(name)} …"):
            files = {one: file.read() for one, file in kept.items()}
            spec = merging.keep_merged(files, server.store(), (browser_identity.owner(),))
            study = start.with_trace(session.study, spec, server.store())
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    del st.session_state[_OPEN]
    session.upload = state.Upload(name, None, sum(map(len, files.values())), unused_reasons=unused)
    session.intakes = {}
    session.edit(study)
    if machines:
        fitted_cluster.take_files(session, machines, jobs=name)
    st.rerun()


def _privacy(session: state.Session) -> None:
    """Say where a file goes and how long it stays, and offer to delete the one in use at once."""
    kept = f"{server.store().keep_days:g} days"
    st.caption(
        ":material/lock: A file is read by this server and sent nowhere else. Its jobs stay in the"
        f" server's store for {kept} after the last upload."
    )
    kind, _, digest = session.study.base.trace.source.partition(":")
    about = server.store().trace_info(digest) if kind == "store" else None
    if about is None:
        return
    if browser_identity.owner() not in server.store().index.owners(digest):
        st.caption("The trace in use was uploaded in another browser: only that one can delete it.")
        return
    st.caption(
        f"Deleting removes the jobs of **{words.plain(about.name)}** and all results of them from"
        " this server, also for those who have a link to them."
    )
    if st.button(
        "Delete the jobs and their results", key="forget", icon=":material/delete_forever:"
    ):
        _forget(session, about.name, digest)


def _forget(session: state.Session, name: str, digest: str) -> None:
    try:
        results = state.forget_trace(digest)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    also = (
        f", and so {'is' if results == 1 else 'are'} {words.plural(results, 'result')} of it"
        if results
        else ""
    )
    session.news = f"{name} is deleted from this server{also}."
    session.replace(start.with_trace(session.study, TraceSpec(), server.store()))
    session.upload, session.intakes, session.displayed_study = None, {}, None
    st.rerun()


def fault() -> None:
    """Say why files of the last drop could not be read, and draw what may help."""
    _which()
    session = state.session()
    upload = session.upload
    if upload is None or _OPEN in st.session_state:
        return
    refused = (*upload.unused_reasons, upload.fault) if upload.fault else upload.refused_reasons
    for sentence in upload.unused_reasons if not upload.fault else ():
        st.warning(words.plain(sentence), icon=":material/warning:")
    if not refused:
        return
    with st.container(key="upload_fault"):
        for sentence in refused:
            st.error(words.plain(sentence), icon=":material/error:")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption("The trace that was loaded before is still in use.")
            if st.button("Dismiss", key="dismiss_file", type="tertiary"):
                _dismiss(session)
                st.rerun()
        if upload.questions:
            questions.draw(upload.questions, reading.answered, upload.name)
        if upload.fault and upload.content is not None:
            expanded = (
                not upload.questions
                and (found := reading.look()) is not None
                and bool(found.missing)
            )
            if expanded:
                reading.mapping(reading.COLUMNS, expanded=True)
            own_recipe.said(upload, None, reading.by_recipe)
            with st.container(horizontal=True):
                if not expanded:
                    reading.mapping(reading.COLUMNS)
                reading.choices("Read it differently: format, dates, units, CPU jobs")
                own_recipe.draw(upload, None, reading.by_recipe)


def _limits() -> str:
    return (
        "The format is recognised by content, not by name: native columns, Philly, Helios, Slurm,"
        " SWF, Microsoft ITP, or any table whose columns you name. Several files at once may be"
        " the tables of one trace, or jobs with a list of their machines."
    )
