"""Reading the uploaded file: format, time zone, units, answers, recipe, column meanings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from jobtraces.readers.typed import UNITS, ZONES
from sim.errors import TrainyardError
from trainyard.study import catalog
from trainyard.study.scenario import TraceSpec
from trainyard.traces import intake, new_study
from trainyard.traces.intake import TraceIntake
from trainyard.traces.own_recipes import OwnRecipe
from trainyard.traces.sources import load_trace
from ui import browser_identity, server, state, words
from ui.importing import columns, fitted_cluster, own_recipe

RULES: Final = {
    "cpu_jobs": {"drop": "leave out", "keep": "keep"},
    "unfinished": {"drop": "leave out", "cut": "cut at the end of the trace"},
}
_DATES: Final = (
    "",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y %I:%M %p",
    "%Y-%m-%d %H:%M:%S",
)
_SINCE: Final = {"submit": "submission", "eligible": "when it became eligible"}
COLUMNS: Final = "Column meanings"
_START_BYTES: Final = 1 << 16
_MANY_ROWS: Final = 100_000
_ROWS_A_SECOND: Final = 150_000
"""Measured with 1,000,000 rows of five columns."""
_LOOKED: Final = "looked"


def has_file() -> bool:
    """Return True if this session has the trace's file, to read it with other options."""
    upload = state.session().upload
    return upload is not None and not upload.fault


def peek(data: bytes = b"") -> Any:
    """Return format, columns and first rows of the uploaded file, and a guessed mapping.

    Kept in the session; None without an upload or if it is not a table. `data`: its bytes, if at
    hand.
    """
    upload = state.session().upload
    if upload is None:
        return None
    if st.session_state.get(_LOOKED, (None,))[0] is not upload:
        try:
            first_rows = intake.peek_upload(data or _content_of(upload), upload.name)
        except TrainyardError:
            first_rows = None  # reading it reports the error
        st.session_state[_LOOKED] = (upload, first_rows)
    return st.session_state[_LOOKED][1]


def _content_of(upload: state.Upload) -> bytes:
    """Return the bytes of an upload, or b"" if they were deleted."""
    return upload.content.read() if upload.content is not None else b""


def read(choices: dict[str, Any], data: bytes = b"") -> None:
    """Read the uploaded file with these options; if it is readable, it becomes the trace.

    Otherwise the error and the open questions are stored in the upload. Clusters of the same drop
    are set afterwards.
    """
    session = state.session()
    upload = session.upload
    if upload is None:
        return
    options = {
        key: value for key, value in choices.items() if key != "fmt" and value not in (None, "")
    }
    data = data or _content_of(upload)
    first_rows = peek(data)
    try:
        about = _describe_size(data)
        with st.spinner(f"Reading {words.plain(upload.name)}{about} …", show_time=bool(about)):
            intake_of_file = intake.store_upload(
                data,
                upload.name,
                server.store(),
                fmt=str(choices.get("fmt", "")),
                choices=options,
                start=first_rows,
            )
            server.store().index.own(
                browser_identity.owner(), intake_of_file.spec.source.removeprefix("store:")
            )
            study = new_study.with_trace(session.study, intake_of_file.spec, server.store())
    except TrainyardError as error:
        if not upload.fault:
            upload.previous = replace(upload)
        upload.choices, upload.questions = choices, intake.open_questions(error)
        # Questions are drawn in full below.
        upload.fault = f"{upload.name} cannot be read yet." if upload.questions else str(error)
        return
    upload.fault, upload.choices, upload.questions, upload.previous = "", choices, (), None
    session.intakes = {intake_of_file.spec.source: intake_of_file}
    session.edit(study)
    if upload.machines:
        machines, upload.machines = upload.machines, {}
        fitted_cluster.use_machine_files(session, machines, jobs=upload.name)


def _describe_size(data: bytes) -> str:
    """Return the estimated rows of a large text file and the seconds to read them; else ""."""
    start = data[:_START_BYTES]
    # Packed files and Parquet have zero bytes.
    rows = 0 if b"\0" in start else round(len(data) / max(len(start), 1) * start.count(b"\n"))
    if rows < _MANY_ROWS:
        return ""
    return f": about {round(rows, -4):,} rows, about {words.time(rows / _ROWS_A_SECOND)}"


def read_with_answers(answers: dict[str, str]) -> None:
    """Read the uploaded file again with additional answers to its questions."""
    upload = state.session().upload
    if upload is not None:
        earlier = dict(upload.choices.get("answers") or {})
        read({**upload.choices, "answers": {**earlier, **answers}})


def draw_rule(rule: intake.RowTreatment) -> None:
    """Draw how one class of rows is treated, and the choice; a change reads the file again."""
    upload = state.session().upload
    if upload is None or upload.fault:
        st.markdown(f"{rule.title}: {rule.sentence}")
        return
    options = RULES[rule.name]
    option = _draw_select(
        f"{rule.title}: {rule.sentence}",
        options,
        rule.chosen,
        key=state.widget_key(rule.name, state.session().study.base.trace.source),
    )
    if option != rule.chosen:
        read({**upload.choices, rule.name: option})
        st.rerun()


def draw_choices(label: str) -> None:
    """Draw the reading options in a popover; its button reads the file again with them."""
    upload = state.session().upload
    if upload is None:
        return
    with st.popover(label, key=f"reading/{label[:4]}"), st.form("reading", border=False):
        chosen = _draw_choice_widgets(upload)
        if st.form_submit_button("Read again", icon=":material/refresh:"):
            read({**upload.choices, **chosen})
            st.rerun()


def draw_column_editor(label: str, *, expanded: bool = False) -> None:
    """Draw the editor of column meanings; nothing for fixed formats that were read.

    `expanded` draws it in a box instead of a popover.
    """
    upload, first_rows = state.session().upload, peek()
    if (
        upload is None
        or first_rows is None
        or not first_rows.columns
        or (first_rows.fmt not in intake.MAPPED_FORMATS and not upload.fault)
    ):
        return
    box = st.container(border=True) if expanded else st.popover(label, key="map_columns")
    with box:
        if expanded:
            st.markdown(f"**{label}**")
        columns.draw(
            upload, first_rows, None if upload.fault else _current_intake(), _read_with_columns
        )


def _read_with_columns(mapping: dict[str, str]) -> None:
    """Read the uploaded file with these columns (native -> source), no recipe."""
    upload = state.session().upload
    if upload is not None:
        other_choices = {key: value for key, value in upload.choices.items() if key != "recipe"}
        read({**other_choices, "mapping": mapping})


def _current_intake() -> TraceIntake | None:
    """Return how the current trace was read, or None if this session did not read it."""
    session = state.session()
    return session.intakes.get(session.study.base.trace.source)


def read_with_recipe(recipe: OwnRecipe | None, data: bytes = b"") -> None:
    """Read the uploaded file with the options of a recipe, or with none (None)."""
    upload = state.session().upload
    if upload is not None:
        upload.recipe = recipe
        read(own_recipe.choices_of(recipe) if recipe is not None else {}, data)


def _draw_choice_widgets(upload: state.Upload) -> dict[str, Any]:
    """Draw the reading options that apply to the format; return option -> value."""
    earlier = upload.choices
    formats = {"": "detect by content"} | {
        choice.name: choice.title for choice in catalog.formats()
    }
    grid = st.grid(min_column_width=230)
    entered: dict[str, Any] = {}
    with grid.cell():
        entered["fmt"] = _draw_select("Format", formats, earlier.get("fmt", ""))
    with grid.cell():
        zones = ("", *ZONES)
        zone = st.selectbox(
            "Time zone of times without offset",
            zones,
            _index_or_zero(zones, earlier.get("zone") or ""),
            format_func=_zone_label,
            accept_new_options=True,
        )
        entered["zone"] = zone or None
    intake_of_file = state.session().intakes.get(state.session().study.base.trace.source)
    format_name = (
        "" if upload.fault or intake_of_file is None else str(intake_of_file.account["format"])
    )
    # Other formats define their units, and only Slurm records when a job became eligible.
    if format_name in intake.MAPPED_FORMATS:
        with grid.cell():
            entered["time_unit"] = _draw_select(
                "Unit of numeric times",
                {"": "as in the file"} | UNITS,
                earlier.get("time_unit", ""),
            )
        with grid.cell():
            entered["duration_unit"] = _draw_select(
                "Unit of durations",
                {"": "as in the file"} | _duration_units(upload),
                earlier.get("duration_unit", ""),
            )
    if format_name in ("", "table"):
        with grid.cell():
            date_format = str(earlier.get("date_format") or "")
            patterns = list(dict.fromkeys([*_DATES, date_format]))
            entered["date_format"] = st.selectbox(
                "Dates are written as",
                patterns,
                patterns.index(date_format),
                format_func=lambda pattern: pattern or "detect",
                accept_new_options=True,
                help="Or type your own: %d day, %m month, %Y year (%y: two digits), %H hour, %M"
                " minute, %S second, %p AM or PM, %z offset.",
            )
    if format_name in ("", "sacct", "slurm-db"):
        with grid.cell():
            entered["since"] = _draw_select(
                "Job enters at (Slurm)", _SINCE, earlier.get("since", "submit")
            )
    if upload.fault:
        for name, title in (
            ("cpu_jobs", "Jobs without GPUs"),
            ("unfinished", "Jobs still running at the end"),
        ):
            with grid.cell():
                entered[name] = _draw_select(title, RULES[name], earlier.get(name, "drop"))
    return entered


def _duration_units(upload: state.Upload) -> dict[str, str]:
    """Return unit -> label of durations, with the median run time under each unit."""
    first_rows, unit = peek(), str(upload.choices.get("duration_unit") or "s")
    if upload.fault:
        median_s = (
            intake.median_duration_s(first_rows, upload.choices.get("mapping"), unit)
            if first_rows is not None
            else math.nan
        )
    else:
        median_s = float(
            load_trace(TraceSpec(state.session().study.base.trace.source), server.store())
            .frame["duration_s"]
            .median()
        )
    if not math.isfinite(median_s):
        return UNITS
    return {
        name: f"{UNITS[name]}: median {words.time(value)}"
        for name, value in intake.duration_by_unit(median_s, unit).items()
    }


def _draw_select(label: str, names: dict[str, str], value: Any, key: str | None = None) -> str:
    """Draw a select box of name -> label; return the chosen name."""
    options = list(names)
    return str(
        st.selectbox(
            label,
            options,
            _index_or_zero(options, value),
            key=key,
            format_func=lambda name: names[name],
        )
    )


def _index_or_zero(options: Any, value: Any) -> int:
    return list(options).index(value) if value in options else 0


def _zone_label(name: str) -> str:
    """Return the label of a time zone."""
    return name or "as in the format, else UTC"
