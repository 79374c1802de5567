"""Which column of a table means what: a choice for each fact of a job, with its first cells and
what they are read as, and how many rows would be used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import streamlit as st

from jobtraces import Peek
from sim.errors import TrainyardError
from trainyard.traces import intake
from trainyard.traces.intake import TraceIntake, Trial
from trainyard.views import charts
from ui import state, words

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
_TRIED: Final = "tried_columns"
LARGEST: Final = 20_000_000
"""Bytes of a file that is read anew at every change of a column; a larger one takes too long."""


def draw(
    upload: state.Upload,
    found: Peek,
    taken: TraceIntake | None,
    read: Callable[[dict[str, str]], None],
) -> None:
    """Draw the choices; a change shows at once what it would make of the file.

    Parameters
    ----------
    upload : Upload
        The file of this session.
    found : Peek
        Its beginning.
    taken : TraceIntake or None
        What was read of it; None = it could not be read.
    read : callable
        Reads the file by native -> source columns.
    """

    @st.fragment
    def editor() -> None:
        _editor(upload, found, taken, read)

    editor()


def _editor(
    upload: state.Upload,
    found: Peek,
    taken: TraceIntake | None,
    read: Callable[[dict[str, str]], None],
) -> None:
    st.caption(
        "Under each column stand its first cells and what they are read as. One column cannot mean"
        " two things."
    )
    counts = st.empty()
    known = dict(upload.choices.get("mapping") or intake.columns_guessed(found, upload.choices))
    made, places = _choices(upload, found, known)
    same = all(source == known.get(native, "") for native, source in made.items())
    tried = None if same else _tried(upload, made)
    values = tried.values if tried is not None else taken.values if taken is not None else {}
    for native, (cells, read_as) in values.items():
        if made.get(native):
            # Two blanks end a line.
            told = [words.plain(charts.visible(text, 150)) for text in (cells, f"→ {read_as}")]
            places[native].caption("  \n".join(told))
    if tried is not None:
        counts.markdown(f"**So read:** {words.plain(tried.sentence)}")
    if st.button("Read with these columns", key="read_columns", icon=":material/table_convert:"):
        try:
            read(intake.mapping_from(made))
            fault = upload.fault
        except TrainyardError as error:
            fault = str(error)
        if not fault:
            st.rerun()
        # The choices are higher than most windows: what is said above would not be seen.
        st.error(words.plain(fault), icon=":material/error:")


def _choices(
    upload: state.Upload, found: Peek, known: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Draw a choice for each fact; return the columns chosen, and a place under each."""
    shown = intake.examples(found)

    def option(name: str) -> str:
        # A list shows text as it is, not Markdown.
        if not name:
            return "not in the file"
        written = found.written.get(name, name)
        return charts.visible(f"{written}: {shown[name]}" if shown.get(name) else written)

    first = list(dict.fromkeys([*intake.NEEDED_COLUMNS, *known, *_COMMON]))
    rest = [native for native in intake.NATIVE_COLUMNS if native not in first]
    # GPUs may be a product of two columns.
    options = list(dict.fromkeys(["", *found.columns, *filter(None, known.values())]))
    made: dict[str, str] = {}
    places: dict[str, Any] = {}
    usual = st.container()
    others = st.expander("Models, scaling, workers and servers, deadlines, what Slurm says")
    for natives, box in ((first, usual), (rest, others)):
        grid = box.grid(min_column_width=240)
        for native in natives:
            with grid.cell():
                mark = f"{upload.name}/{native}"
                if known.get(native) != found.mapping.get(native):
                    # Another column than guessed, in a field that begins with it.
                    mark = f"{mark}/{known.get(native)}"
                made[native] = _choice(native, known, options, option, mark)
                places[native] = st.empty()
    return made, places


def _choice(
    native: str,
    known: Mapping[str, str],
    options: list[str],
    option: Callable[[str], str],
    mark: str,
) -> str:
    at = options.index(known[native]) if known.get(native) in options else 0
    word = intake.words_of(native)
    needed = ", required" if native in intake.NEEDED_COLUMNS else ""
    if native == "duration_s":
        needed = ", or start and end"
    label = f"{word}{needed}" if word == native else f"{word} ({native}){needed}"
    return str(st.selectbox(label, options, at, key=f"map/{mark}", format_func=option) or "")


def _tried(upload: state.Upload, made: Mapping[str, str]) -> Trial | None:
    """Return what a file would be with these columns, remembered until they change; None = it is
    too large to be tried.
    """
    if upload.content is None or upload.size > LARGEST:
        return None
    mark = json.dumps([id(upload), upload.name, upload.size, dict(made)])
    if st.session_state.get(_TRIED, ("", None))[0] != mark:
        try:
            mapping = intake.mapping_from(made)
        except TrainyardError as error:
            return Trial(str(error), {})
        rest = {
            key: value
            for key, value in upload.choices.items()
            if key not in ("fmt", "mapping", "recipe") and value not in (None, "")
        }
        data, fmt = upload.content.read(), str(upload.choices.get("fmt", ""))
        made_of_it = intake.trial(data, upload.name, fmt, {**rest, "mapping": mapping})
        st.session_state[_TRIED] = (mark, made_of_it)
    kept: Trial = st.session_state[_TRIED][1]
    return kept
