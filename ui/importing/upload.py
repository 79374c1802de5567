"""Taking over a file: read at once, kept in the store, the old trace untouched if it cannot be
used; choices for reading and the mapping of columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.errors import TrainyardError
from trainyard.clusters import drops
from trainyard.runs.disconnects import tidy
from trainyard.study import catalog
from trainyard.study.scenario import TraceSpec
from trainyard.traces import intake, start
from trainyard.traces.intake import TraceIntake
from trainyard.traces.sources import load_trace
from ui import browser_identity, figure, received, server, state, words
from ui.importing import fitted_cluster, questions
from views import charts

ZONES: Final = (
    "",
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "US/Pacific",
    "US/Eastern",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Asia/Kolkata",
    "Australia/Sydney",
)
RULES: Final = {
    "cpu_jobs": {"drop": "leave out", "keep": "keep"},
    "unfinished": {"drop": "leave out", "cut": "cut at the end of the trace"},
}
_UNITS: Final = {
    "s": "seconds",
    "ms": "milliseconds",
    "min": "minutes",
    "h": "hours",
    "d": "days",
}
_SINCE: Final = {"submit": "submission", "eligible": "when it became eligible"}
_COMMON: Final = (
    "job_id",
    "user",
    "start_time_s",
    "end_time_s",
    "status",
    "gpu_type",
    "partition",
    "vc",
    "time_limit_s",
)
_SACCT: Final = """sacct -P -a -X -S 2026-03-01 -E 2026-04-01 \\
  --format=JobID,User,Account,Partition,State,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES,ReqTRES > month.txt"""  # noqa: E501
_WIDTHS: Final = (1, 1, 5, 1)
_OPEN: Final = "open_drop"
_DONE: Final = {"dropped": "left out", "altered": "altered"}


def receive() -> None:
    """Draw the drop field, and take over files as soon as they arrive; those that arrive together
    are one drop.
    """
    session = state.session()
    with st.container(width=420):
        files = st.file_uploader(
            "Drop a trace here",
            # Of any name: Philly's log has no ending, and content tells what a file is.
            None,
            accept_multiple_files=True,
            key="trace_file",
            max_upload_size=intake.UPLOAD_MB,
            help=_limits(),
        )
    # Files that were taken over are gone from what the field returns, not from its state.
    if not st.session_state.get("trace_file"):
        # They were taken out of the field.
        st.session_state.pop(_OPEN, None)
        if session.upload is not None and session.upload.fault:
            session.upload = None
        elif session.upload is not None:
            session.upload.unused = ()
    known = st.session_state.get("taken_file", frozenset())
    if new := [file for file in files if file.file_id not in known]:
        st.session_state["taken_file"] = known | {file.file_id for file in new}
        _receive(session, new)


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


def _receive(session: state.Session, new: list[Any]) -> None:
    st.session_state.pop(_OPEN, None)
    files: dict[str, bytes] = {}
    for file in new:
        data = received.taken(file, "trace_file")
        name = file.name if file.name not in files else f"{file.name} ({len(files) + 1})"
        # A hasty second drop of the same file is the same file.
        if files.get(file.name) != data:
            files[name] = data
        del data
    size = sum(map(len, files.values()))
    try:
        if len(files) == 1:
            _receive_one(session, *files.popitem())
        else:
            _receive_several(session, files)
    except TrainyardError as error:
        session.upload = state.Upload(", ".join(files), None, size, str(error))
    finally:
        # A new cluster ends this run of the page.
        files.clear()
        tidy(size)


def _receive_one(session: state.Session, name: str, data: bytes) -> None:
    if len(data) <= drops.LARGEST:
        fitted_cluster.take_file(session, name, data)
    _take(session, name, data)


def _receive_several(session: state.Session, files: Mapping[str, bytes]) -> None:
    """Take over the trace among several files with its machines, or ask which trace is meant."""
    found = drops.sort_out(files)
    unused = found.refused
    if len(found.machines) > 1:
        unused += (
            f"{', '.join(found.machines)}: each of these describes machines, so none of them is"
            " used. Drop the one that is meant.",
        )
    only = found.machines[0] if len(found.machines) == 1 else ""
    machines = (only, files[only]) if only else None
    if len(found.traces) == 1:
        _take(session, *drops.packed(found.traces[0], files), unused, machines)
    elif found.traces:
        made = dict(drops.packed(names, files) for names in found.traces)
        kept = {name: received.OnDisk(data) for name, data in made.items()}
        st.session_state[_OPEN] = (kept, unused, machines)
    else:
        if unused:
            told = ", ".join(files)
            session.upload = state.Upload(told, None, 0, unused[0], unused=unused[1:])
        if machines is not None:
            fitted_cluster.take_file(session, *machines)


def _take(
    session: state.Session,
    name: str,
    data: bytes,
    unused: tuple[str, ...] = (),
    machines: tuple[str, bytes] | None = None,
) -> None:
    """Make a file the one of this session, and its jobs the trace if they can be read."""
    st.session_state.pop("looked", None)
    try:
        kept = received.OnDisk(data)
    except TrainyardError as error:
        session.upload = state.Upload(name, None, len(data), str(error), unused=unused)
        return
    session.upload = upload = state.Upload(name, kept, len(data), unused=unused, machines=machines)
    read({}, data)
    if upload.fault and not upload.asked and look() is None:
        # No choice of how to read it would help.
        upload.kept = None


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
        use = st.button("Use this trace", key="use_which", disabled=chosen is None)
        if use and chosen is not None:
            del st.session_state[_OPEN]
            _take(state.session(), chosen, kept[chosen].read(), unused, machines)
            st.rerun()
    for sentence in unused:
        st.warning(words.plain(sentence), icon=":material/warning:")


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
    session.upload, session.taken, session.shown = None, {}, None
    st.rerun()


def fault() -> None:
    """Say why files of the last drop could not be read, and draw what may help."""
    _which()
    upload = state.session().upload
    if upload is None or _OPEN in st.session_state:
        return
    tell = st.error if upload.fault else st.warning
    icon = ":material/error:" if upload.fault else ":material/warning:"
    for sentence in upload.unused:
        tell(words.plain(sentence), icon=icon)
    if not upload.fault:
        return
    with st.container(key="upload_fault"):
        st.error(words.plain(upload.fault), icon=":material/error:")
        st.caption("The trace that was loaded before is still in use.")
        if upload.asked:
            questions.draw(upload.asked, _answered, upload.name)
        if upload.kept is not None:
            _mapping(
                "Which column means what",
                expanded=bool(found.missing) if (found := look()) is not None else False,
            )
            _choices("Read it differently: format, time zone, units, CPU jobs")


def _at_hand() -> bool:
    """Tell whether this session still has the file that is in use, so that it can be read
    differently.
    """
    upload = state.session().upload
    return upload is not None and not upload.fault


def look(data: bytes = b"") -> Any:
    """Return the beginning of the file of this session as `trainyard.traces.intake.look` does;
    remembered until another file comes.

    None if it cannot be opened.
    """
    upload, mark = state.session().upload, st.session_state.get("taken_file")
    if upload is None:
        return None
    if "looked" not in st.session_state or st.session_state["looked"][0] != mark:
        try:
            found = intake.look(data or _bytes(upload), upload.name)
        except TrainyardError:
            found = None  # reading says why
        st.session_state["looked"] = (mark, found)
    return st.session_state["looked"][1]


def _bytes(upload: state.Upload) -> bytes:
    return upload.kept.read() if upload.kept is not None else b""


def read(choices: dict[str, Any], data: bytes = b"") -> None:
    """Read the file of this session with the given choices; on success it becomes the trace of the
    scenario. `data` = its bytes, if they are at hand.
    """
    session = state.session()
    upload = session.upload
    if upload is None:
        return
    reading = {
        key: value for key, value in choices.items() if key != "fmt" and value not in (None, "")
    }
    data = data or _bytes(upload)
    found = look(data)
    columns = intake.written(found) if found is not None else ()
    try:
        with st.spinner(f"Reading {words.plain(upload.name)} …"):
            taken = intake.take(
                data,
                upload.name,
                server.store(),
                fmt=str(choices.get("fmt", "")),
                choices=reading,
                columns=columns,
            )
            server.store().index.own(
                browser_identity.owner(), taken.spec.source.removeprefix("store:")
            )
            study = start.with_trace(session.study, taken.spec, server.store())
    except TrainyardError as error:
        upload.fault, upload.choices, upload.asked = str(error), choices, intake.asked_by(error)
        return
    upload.fault, upload.choices, upload.asked = "", choices, ()
    session.taken = {taken.spec.source: taken}
    session.edit(study)
    if upload.machines is not None:
        machines, upload.machines = upload.machines, None
        fitted_cluster.take_file(session, *machines, jobs=upload.name)


def _answered(answers: dict[str, str]) -> None:
    """Read the file of this session again with answers to what it leaves open."""
    upload = state.session().upload
    if upload is not None:
        read({**upload.choices, "answers": answers})


def _rule(chosen: intake.Rule) -> None:
    """Draw what is done with one class of rows, beside how many there are; another choice reads the
    file again.
    """
    upload = state.session().upload
    if upload is None or upload.fault:
        st.markdown(f"{chosen.title}: {chosen.sentence}")
        return
    options = RULES[chosen.name]
    made = _pick(
        f"{chosen.title}: {chosen.sentence}",
        options,
        chosen.chosen,
        key=state.widget(chosen.name, state.session().study.base.trace.source),
    )
    if made != chosen.chosen:
        read({**upload.choices, chosen.name: made})
        st.rerun()


def _choices(label: str) -> None:
    """Draw the form for reading the file of this session differently."""
    upload = state.session().upload
    if upload is None:
        return
    with st.popover(label, key=f"reading/{label[:4]}"), st.form("reading", border=False):
        made = _choice_widgets(upload)
        if st.form_submit_button("Read again", icon=":material/refresh:"):
            read({**upload.choices, **made})
            st.rerun()


def _mapping(label: str, *, expanded: bool = False) -> None:
    """Draw the editor that says which column of a table means what."""
    upload, found = state.session().upload, look()
    if (
        upload is None
        or found is None
        or not found.columns
        or (found.fmt not in intake.MAPPED and not upload.fault)
    ):
        return
    shown = intake.examples(found)

    def option(name: str) -> str:
        # A list shows text as it is, not Markdown.
        if not name:
            return "not in the file"
        return charts.visible(
            f"{found.written[name]}: {shown[name]}" if shown.get(name) else found.written[name]
        )

    box = st.expander(label, expanded=True) if expanded else st.popover(label, key="map_columns")
    with box, st.form("mapping", border=False):
        st.caption("Beside each column stand its first values. One column cannot mean two things.")
        known = dict(upload.choices.get("mapping") or found.mapping)
        first = list(dict.fromkeys([*intake.NEEDED_COLUMNS, *known, *_COMMON]))
        made = _columns(first, known, ["", *found.columns], option)
        st.markdown("**Models, scaling, workers and servers, deadlines**")
        made |= _columns(
            [native for native in intake.NATIVE_COLUMNS if native not in first],
            known,
            ["", *found.columns],
            option,
        )
        if st.form_submit_button("Read with these columns", icon=":material/table_convert:"):
            try:
                read({**upload.choices, "mapping": intake.mapping_from(made)})
            except TrainyardError as error:
                upload.fault = str(error)
            if not upload.fault:
                st.rerun()
            # The form is higher than most windows: what is said above it would not be seen.
            st.error(words.plain(upload.fault), icon=":material/error:")


def _columns(
    natives: list[str], known: Mapping[str, str], options: list[str], option: Callable[[str], str]
) -> dict[str, str]:
    """Draw a choice of a column of the file for each fact of a job."""
    made: dict[str, str] = {}
    grid = st.grid(min_column_width=240)
    for native in natives:
        at = options.index(known[native]) if known.get(native) in options else 0
        word = intake.words_of(native)
        needed = ", required" if native in intake.NEEDED_COLUMNS else ""
        if native == "duration_s":
            needed = ", or start and end"
        label = f"{word}{needed}" if word == native else f"{word} ({native}){needed}"
        with grid.cell():
            made[native] = str(
                st.selectbox(
                    label, options, at, key=f"map/{_file_name()}/{native}", format_func=option
                )
            )
    return made


def _file_name() -> str:
    upload = state.session().upload
    return upload.name if upload is not None else ""


def _choice_widgets(upload: state.Upload) -> dict[str, Any]:
    was = upload.choices
    formats = {"": "recognise by content"} | {
        choice.name: choice.title for choice in catalog.formats()
    }
    grid = st.grid(min_column_width=230)
    made: dict[str, Any] = {}
    with grid.cell():
        made["fmt"] = _pick("Format", formats, was.get("fmt", ""))
    with grid.cell():
        zone = st.selectbox(
            "Time zone of times without offset",
            ZONES,
            _index(ZONES, was.get("zone") or ""),
            format_func=_zone_name,
            accept_new_options=True,
        )
        made["zone"] = zone or None
    taken = state.session().taken.get(state.session().study.base.trace.source)
    known = "" if upload.fault or taken is None else str(taken.account["format"])
    # Other formats say themselves in which units they are, and none but Slurm knows when a job
    # became eligible.
    if known in intake.MAPPED:
        with grid.cell():
            made["time_unit"] = _pick(
                "Unit of numeric times", {"": "as the file says"} | _UNITS, was.get("time_unit", "")
            )
        with grid.cell():
            made["duration_unit"] = _pick(
                "Unit of durations",
                {"": "as the file says"} | _durations(upload),
                was.get("duration_unit", ""),
            )
    if known in ("", "sacct", "slurm-db"):
        with grid.cell():
            made["since"] = _pick("A job enters at (Slurm)", _SINCE, was.get("since", "submit"))
    if upload.fault:
        for name, title in (
            ("cpu_jobs", "Jobs without GPUs"),
            ("unfinished", "Jobs still running at the end"),
        ):
            with grid.cell():
                made[name] = _pick(title, RULES[name], was.get(name, "drop"))
    return made


def _durations(upload: state.Upload) -> dict[str, str]:
    """Return the units of durations, each with what the median would be: the wrong one looks
    absurd.
    """
    found, unit = look(), str(upload.choices.get("duration_unit") or "s")
    if upload.fault:
        median_s = (
            intake.median_s(found, upload.choices.get("mapping"), unit)
            if found is not None
            else math.nan
        )
    else:
        median_s = float(
            load_trace(TraceSpec(state.session().study.base.trace.source), server.store())
            .frame["duration_s"]
            .median()
        )
    if not math.isfinite(median_s):
        return _UNITS
    return {
        name: f"{_UNITS[name]}: median {words.time(value)}"
        for name, value in intake.in_units(median_s, unit).items()
    }


def _pick(label: str, names: dict[str, str], value: Any, key: str | None = None) -> str:
    options = list(names)
    return str(
        st.selectbox(
            label, options, _index(options, value), key=key, format_func=lambda name: names[name]
        )
    )


def _index(options: Any, value: Any) -> int:
    return list(options).index(value) if value in options else 0


def _zone_name(name: str) -> str:
    return name or "as the format says, else UTC"


def _limits() -> str:
    return (
        "The format is recognised by content, not by name: native columns, Philly, Helios, Slurm,"
        " SWF, Microsoft ITP, or any table whose columns you name. Several files at once may be"
        " the tables of one trace, or jobs with a list of their machines."
    )


def ask(facts: Mapping[str, Any], taken: TraceIntake | None) -> None:
    """Draw what the file in use leaves open; arguments as of `account`."""
    facts = facts if taken is None else taken.account
    questions.draw(
        facts.get("questions", ()),
        _answered if taken is not None and _at_hand() else None,
        str(facts.get("file", "")),
    )


def account(facts: Mapping[str, Any], taken: TraceIntake | None) -> None:
    """Draw the account of the trace in use, with ways to change it while its file is at hand.

    Parameters
    ----------
    account : mapping
        See `trainyard.traces.sources.account_of` and `trainyard.traces.intake.take`; empty if
        nothing is known.
    taken : TraceIntake or None
        The single rows, if this session has read the file; after a reload only the counts are left.
    """
    if not facts or facts.get("format") in ("sample", "made"):
        return
    if taken is not None:
        # The store keeps the account of the first reading that led to these jobs.
        facts = taken.account
    at_hand = taken is not None and _at_hand()
    with st.container(border=True, key="account"):
        with st.container(horizontal=True, vertical_alignment="center"):
            title = words.plain(facts.get("title", facts["format"]))
            st.markdown(
                f"**{words.plain(facts.get('file', 'the file'))}** · {title} ·"
                f" {facts['used']:,} used + {facts['dropped']:,} left out ="
                f" {facts['read']:,} read"
            )
            if at_hand:
                _choices("Format, time zone, units")
                _mapping("Columns")
        if facts["guesses"]:
            st.caption("Assumed: " + " ".join(words.plain(one) for one in facts["guesses"]))
        if columns := intake.columns_read(facts):
            st.caption(f"Columns: {words.plain(columns)}")
        for sentence in facts["warnings"]:
            st.warning(words.plain(sentence), icon=":material/warning:")
        _table(facts, taken)
        choices = st.grid(min_column_width=300)
        for rule in intake.rules(facts):
            with choices.cell():
                _rule(rule)


def _table(facts: Mapping[str, Any], taken: TraceIntake | None) -> None:
    """Draw one row per reason: how many rows, what became of them, why, and the first of them."""
    issues = taken.issues if taken is not None else None
    _account_row("Rows", "What", "Why", head=True)
    _account_row(f"{facts['used']:,}", "used", "")
    for at, one in enumerate(facts["reasons"]):
        with _account_row(f"{one['rows']:,}", _DONE[one["action"]], str(one["reason"])):
            if issues is not None:
                _show(issues, one, at)
    if taken is not None and facts["reasons"]:
        st.download_button(
            "All rows left out or altered (CSV)",
            taken.issues_csv,
            "trainyard-rows.csv",
            "text/csv",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
            help=(
                "Cells that begin with = + - or @ get an apostrophe in front, so that no"
                " spreadsheet takes them for a formula."
            ),
        )
    elif facts["reasons"]:
        st.caption("Load the file again to see the single rows.")


def _account_row(rows: str, what: str, why: str, *, head: bool = False) -> Any:
    """Draw three cells of a row, and return its last one."""
    cells = st.columns(_WIDTHS, vertical_alignment="center", gap="small")
    for cell, told in zip(cells, (rows, what, why), strict=False):
        text = words.plain(told)
        cell.markdown(f"**{text}**" if head and text else text)
    return cells[-1]


def _show(issues: pd.DataFrame, one: Mapping[str, Any], at: int) -> None:
    mine = issues[(issues["action"] == one["action"]) & (issues["reason"] == one["reason"])]
    if not len(mine):
        return
    with st.popover("Show", type="tertiary", key=f"account/{at}"):
        st.dataframe(
            figure.readable(mine.head(intake.SHOWN_ROWS)), hide_index=True, height="content"
        )
        if len(mine) > intake.SHOWN_ROWS:
            st.caption(f"The first {intake.SHOWN_ROWS} of {words.plural(len(mine), 'row')}.")
