"""Reading the file of this session, at once or differently: format, zone, units, answers, a recipe,
and which column means what.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from jobtraces.readers.typed import UNITS, ZONES
from sim.errors import TrainyardError
from trainyard.study import catalog
from trainyard.study.scenario import TraceSpec
from trainyard.traces import intake, start
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
COLUMNS: Final = "Which column means what"
_LOOKED: Final = "looked"


def at_hand() -> bool:
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
    upload = state.session().upload
    if upload is None:
        return None
    if st.session_state.get(_LOOKED, (None,))[0] is not upload:
        try:
            found = intake.look(data or _bytes(upload), upload.name)
        except TrainyardError:
            found = None  # reading says why
        st.session_state[_LOOKED] = (upload, found)
    return st.session_state[_LOOKED][1]


def _bytes(upload: state.Upload) -> bytes:
    return upload.content.read() if upload.content is not None else b""


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
    try:
        with st.spinner(f"Reading {words.plain(upload.name)} …"):
            taken = intake.take(
                data,
                upload.name,
                server.store(),
                fmt=str(choices.get("fmt", "")),
                choices=reading,
                found=found,
            )
            server.store().index.own(
                browser_identity.owner(), taken.spec.source.removeprefix("store:")
            )
            study = start.with_trace(session.study, taken.spec, server.store())
    except TrainyardError as error:
        if not upload.fault:
            upload.previous = replace(upload)
        upload.choices, upload.questions = choices, intake.asked_by(error)
        # Questions are asked in full below.
        upload.fault = f"{upload.name} cannot be read yet." if upload.questions else str(error)
        return
    upload.fault, upload.choices, upload.questions, upload.previous = "", choices, (), None
    session.intakes = {taken.spec.source: taken}
    session.edit(study)
    if upload.machines:
        machines, upload.machines = upload.machines, {}
        fitted_cluster.take_files(session, machines, jobs=upload.name)


def answered(answers: dict[str, str]) -> None:
    """Read the file of this session again with answers to what it leaves open."""
    upload = state.session().upload
    if upload is not None:
        known = dict(upload.choices.get("answers") or {})
        read({**upload.choices, "answers": {**known, **answers}})


def rule(chosen: intake.Rule) -> None:
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
        key=state.widget_key(chosen.name, state.session().study.base.trace.source),
    )
    if made != chosen.chosen:
        read({**upload.choices, chosen.name: made})
        st.rerun()


def choices(label: str) -> None:
    """Draw the form for reading the file of this session differently."""
    upload = state.session().upload
    if upload is None:
        return
    with st.popover(label, key=f"reading/{label[:4]}"), st.form("reading", border=False):
        made = _choice_widgets(upload)
        if st.form_submit_button("Read again", icon=":material/refresh:"):
            read({**upload.choices, **made})
            st.rerun()


def mapping(label: str, *, expanded: bool = False) -> None:
    """Draw the editor that says which column of a table means what."""
    upload, found = state.session().upload, look()
    if (
        upload is None
        or found is None
        or not found.columns
        or (found.fmt not in intake.MAPPED and not upload.fault)
    ):
        return
    box = st.container(border=True) if expanded else st.popover(label, key="map_columns")
    with box:
        if expanded:
            st.markdown(f"**{label}**")
        columns.draw(upload, found, None if upload.fault else _taken(), _with_columns)


def _with_columns(mapping: dict[str, str]) -> None:
    upload = state.session().upload
    if upload is not None:
        kept = {key: value for key, value in upload.choices.items() if key != "recipe"}
        read({**kept, "mapping": mapping})


def _taken() -> TraceIntake | None:
    session = state.session()
    return session.intakes.get(session.study.base.trace.source)


def by_recipe(recipe: OwnRecipe | None, data: bytes = b"") -> None:
    """Read the file of this session by a recipe of the user, or as if there were none."""
    upload = state.session().upload
    if upload is not None:
        upload.recipe = recipe
        read(own_recipe.choices(recipe) if recipe is not None else {}, data)


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
        zones = ("", *ZONES)
        zone = st.selectbox(
            "Time zone of times without offset",
            zones,
            _index(zones, was.get("zone") or ""),
            format_func=_zone_name,
            accept_new_options=True,
        )
        made["zone"] = zone or None
    taken = state.session().intakes.get(state.session().study.base.trace.source)
    known = "" if upload.fault or taken is None else str(taken.account["format"])
    # Other formats say themselves in which units they are, and none but Slurm knows when a job
    # became eligible.
    if known in intake.MAPPED:
        with grid.cell():
            made["time_unit"] = _pick(
                "Unit of numeric times", {"": "as the file says"} | UNITS, was.get("time_unit", "")
            )
        with grid.cell():
            made["duration_unit"] = _pick(
                "Unit of durations",
                {"": "as the file says"} | _durations(upload),
                was.get("duration_unit", ""),
            )
    if known in ("", "table"):
        with grid.cell():
            chosen = str(was.get("date_format") or "")
            patterns = list(dict.fromkeys([*_DATES, chosen]))
            made["date_format"] = st.selectbox(
                "Dates are written as",
                patterns,
                patterns.index(chosen),
                format_func=lambda pattern: pattern or "recognised",
                accept_new_options=True,
                help="Of your own, too: %d day, %m month, %Y year (%y: two digits), %H hour, %M"
                " minute, %S second, %p AM or PM, %z offset.",
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
        return UNITS
    return {
        name: f"{UNITS[name]}: median {words.time(value)}"
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
