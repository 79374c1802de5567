"""The editor of column meanings: one choice per fact, with examples and a trial reading."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import streamlit as st

from jobtraces import Peek
from sim.errors import TrainyardError
from trainyard.traces import intake
from trainyard.traces.intake import ReadingTrial, TraceIntake
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
MAX_BYTES: Final = 20_000_000
"""Maximum bytes of a file that is read again at every change of a column."""


def draw(
    upload: state.Upload,
    peek: Peek,
    intake_of_file: TraceIntake | None,
    read: Callable[[dict[str, str]], None],
) -> None:
    """Draw the editor in a fragment; a change shows at once how many rows it would use.

    Parameters
    ----------
    upload : Upload
        The file of this session.
    peek : Peek
        Its first rows.
    intake_of_file : TraceIntake or None
        The result of reading it; None if it could not be read.
    read : callable
        Reads the file with these columns: native -> source.
    """

    @st.fragment
    def editor() -> None:
        _draw_editor(upload, peek, intake_of_file, read)

    editor()


def _draw_editor(
    upload: state.Upload,
    peek: Peek,
    intake_of_file: TraceIntake | None,
    read: Callable[[dict[str, str]], None],
) -> None:
    """Draw the choices of columns, a trial with changed ones, and the button that reads."""
    st.caption(
        "Below each column: its first cells and how they are read. A column can have one meaning"
        " only."
    )
    counts = st.empty()
    earlier = dict(upload.choices.get("mapping") or intake.guess_columns(peek, upload.choices))
    chosen, places = _draw_choices(upload, peek, earlier)
    is_unchanged = all(source == earlier.get(native, "") for native, source in chosen.items())
    trial = None if is_unchanged else _try_columns(upload, chosen)
    values = (
        trial.values
        if trial is not None
        else intake_of_file.values
        if intake_of_file is not None
        else {}
    )
    for native, (cells, read_as) in values.items():
        if chosen.get(native):
            # Two spaces end a line.
            lines = [words.plain(charts.visible(text, 150)) for text in (cells, f"→ {read_as}")]
            places[native].caption("  \n".join(lines))
    if trial is not None:
        counts.markdown(f"**With these columns:** {words.plain(trial.sentence)}")
    if st.button("Read with these columns", key="read_columns", icon=":material/table_convert:"):
        try:
            read(intake.check_mapping(chosen))
            fault = upload.fault
        except TrainyardError as error:
            fault = str(error)
        if not fault:
            st.rerun()
        # The editor is taller than most windows, so an error above it would be out of sight.
        st.error(words.plain(fault), icon=":material/error:")


def _draw_choices(
    upload: state.Upload, peek: Peek, earlier: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Draw a choice of column per fact; return native -> column, and native -> container.

    The containers are below the choices, for examples.
    """
    examples = intake.example_cells(peek)

    def option(name: str) -> str:
        """Return a column's text in the select box: its name and first cells."""
        # A select box shows plain text, not Markdown.
        if not name:
            return "not in the file"
        written = peek.written.get(name, name)
        return charts.visible(f"{written}: {examples[name]}" if examples.get(name) else written)

    usual_names = list(dict.fromkeys([*intake.NEEDED_COLUMNS, *earlier, *_COMMON]))
    other_names = [native for native in intake.NATIVE_COLUMNS if native not in usual_names]
    # GPUs may be a product of two columns.
    options = list(dict.fromkeys(["", *peek.columns, *filter(None, earlier.values())]))
    chosen: dict[str, str] = {}
    places: dict[str, Any] = {}
    usual = st.container()
    others = st.expander("Models, scaling, workers and servers, deadlines, Slurm columns")
    for natives, box in ((usual_names, usual), (other_names, others)):
        grid = box.grid(min_column_width=240)
        for native in natives:
            with grid.cell():
                key_part = f"{upload.name}/{native}"
                if earlier.get(native) != peek.mapping.get(native):
                    # The initial column is not the guessed one, so the key differs.
                    key_part = f"{key_part}/{earlier.get(native)}"
                chosen[native] = _draw_choice(native, earlier, options, option, key_part)
                places[native] = st.empty()
    return chosen, places


def _draw_choice(
    native: str,
    earlier: Mapping[str, str],
    options: list[str],
    option: Callable[[str], str],
    key_part: str,
) -> str:
    """Draw the choice of the file's column for one fact; return it, "" = not in the file."""
    index = options.index(earlier[native]) if earlier.get(native) in options else 0
    title = intake.column_label(native)
    needed = ", required" if native in intake.NEEDED_COLUMNS else ""
    if native == "duration_s":
        needed = ", or start and end"
    label = f"{title}{needed}" if title == native else f"{title} ({native}){needed}"
    return str(st.selectbox(label, options, index, key=f"map/{key_part}", format_func=option) or "")


def _try_columns(upload: state.Upload, chosen: Mapping[str, str]) -> ReadingTrial | None:
    """Return a trial reading with these columns, cached; None if the file is too large.

    Invalid columns give a trial with the error as its sentence.
    """
    if upload.content is None or upload.size > MAX_BYTES:
        return None
    cache_key = json.dumps([id(upload), upload.name, upload.size, dict(chosen)])
    if st.session_state.get(_TRIED, ("", None))[0] != cache_key:
        try:
            mapping = intake.check_mapping(chosen)
        except TrainyardError as error:
            return ReadingTrial(str(error), {})
        other_choices = {
            key: value
            for key, value in upload.choices.items()
            if key not in ("fmt", "mapping", "recipe") and value not in (None, "")
        }
        data, fmt = upload.content.read(), str(upload.choices.get("fmt", ""))
        trial = intake.try_upload(data, upload.name, fmt, {**other_choices, "mapping": mapping})
        st.session_state[_TRIED] = (cache_key, trial)
    trial_of_file: ReadingTrial = st.session_state[_TRIED][1]
    return trial_of_file
