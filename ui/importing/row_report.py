"""Account of how the trace file was read: rows used, dropped and changed, with options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import streamlit as st

from trainyard.traces import intake
from trainyard.traces.intake import TraceIntake
from trainyard.traces.sources import row_counts_text
from ui import figure, state, words
from ui.importing import own_recipe, questions, reading

_WIDTHS: Final = (1, 1, 5, 1)
_DONE: Final = {"dropped": "left out", "merged": "merged", "altered": "altered"}


def draw_questions(facts: Mapping[str, Any], intake_of_file: TraceIntake | None) -> None:
    """Draw the questions of the trace file, open and answered; parameters as in `draw`."""
    facts = facts if intake_of_file is None else intake_of_file.account
    questions.draw(
        facts.get("questions", ()),
        reading.read_with_answers if intake_of_file is not None and reading.has_file() else None,
        str(facts.get("file", "")),
    )


def draw(facts: Mapping[str, Any], intake_of_file: TraceIntake | None) -> None:
    """Draw how the trace file was read, with reading options while the session has the file.

    Nothing is drawn for sample and generated traces.

    Parameters
    ----------
    facts : mapping
        See `trainyard.traces.sources.import_account` and `intake.store_upload`; may be empty.
    intake_of_file : TraceIntake or None
        Dropped and changed rows, if this session has read the file; a reload keeps the counts only.
    """
    if not facts or facts.get("format") in ("sample", "made"):
        return
    if intake_of_file is not None:
        # The store keeps the account of the first reading that produced these jobs.
        facts = intake_of_file.account
    has_file = intake_of_file is not None and reading.has_file()
    with st.container(border=True, key="account"):
        _draw_head(facts, intake_of_file, has_file=has_file)
        if facts["guesses"]:
            st.caption("Assumed: " + " ".join(words.plain(guess) for guess in facts["guesses"]))
        if columns_text := intake.describe_columns(facts):
            st.caption(f"Columns: {words.plain(columns_text)}")
        for sentence in facts["warnings"]:
            st.warning(words.plain(sentence), icon=":material/warning:")
            if has_file:
                _draw_fixes(facts, sentence)
        _draw_table(facts, intake_of_file)
        choices = st.grid(min_column_width=300)
        for rule in intake.row_treatments(facts):
            with choices.cell():
                reading.draw_rule(rule)


def _draw_head(
    facts: Mapping[str, Any], intake_of_file: TraceIntake | None, *, has_file: bool
) -> None:
    """Draw the file's name, format and row counts, reading options, and its recipe.

    Options and recipe are drawn only with `has_file`.
    """
    upload = state.session().upload if has_file else None
    with st.container(horizontal=True, vertical_alignment="center"):
        title = words.plain(facts.get("title", facts["format"]))
        st.markdown(
            f"**{words.plain(facts.get('file', 'the file'))}** · {title} · {row_counts_text(facts)}"
        )
        if upload is not None:
            reading.draw_choices("Format, dates, units")
            reading.draw_column_editor("Columns")
            own_recipe.draw(upload, intake_of_file, reading.read_with_recipe)
    if upload is not None:
        own_recipe.draw_used_recipe(upload, intake_of_file, reading.read_with_recipe)


def _draw_fixes(facts: Mapping[str, Any], sentence: str) -> None:
    """Draw buttons for the other answers to a warning; a click reads the file with one."""
    upload = state.session().upload
    for fix in facts.get("offers", ()):
        if upload is None or fix["text"] != sentence:
            continue
        for answer, meaning in fix["options"].items():
            label = f"{meaning[:1].upper()}{meaning[1:]}"
            if answer != fix["default"] and st.button(
                words.plain(label), key=f"offer/{fix['id']}/{answer}", icon=":material/build:"
            ):
                reading.read_with_answers({fix["id"]: answer})
                st.rerun()


def _draw_table(facts: Mapping[str, Any], intake_of_file: TraceIntake | None) -> None:
    """Draw the number of used rows, a row per reason with examples, and their download."""
    issues = intake_of_file.issues if intake_of_file is not None else None
    _draw_row("Rows", "What", "Why", head=True)
    with _draw_row(f"{facts['used']:,}", "used", ""):
        if intake_of_file is not None:
            with st.popover("Show", type="tertiary", key="account/used"):
                st.caption(f"The first {words.plural(len(intake_of_file.first), 'job')}, as read:")
                st.dataframe(
                    figure.readable(intake_of_file.first), height="content", width="content"
                )
    for index, reason in enumerate(facts["reasons"]):
        with _draw_row(f"{reason['rows']:,}", _DONE[reason["action"]], str(reason["reason"])):
            if issues is not None:
                _draw_examples(issues, reason, index)
    if intake_of_file is not None and facts["reasons"]:
        st.download_button(
            "All rows left out or altered (CSV)",
            intake_of_file.issues_csv,
            "trainyard-rows.csv",
            "text/csv",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
            help=(
                "Cells that begin with = + - or @ get an apostrophe, so that spreadsheets do not"
                " read them as formulas."
            ),
        )
    elif facts["reasons"]:
        st.caption("Load the file again to see these rows.")


def _draw_row(rows: str, effect: str, reason: str, *, head: bool = False) -> Any:
    """Draw three cells of a row, in bold with `head`; return its empty fourth cell."""
    cells = st.columns(_WIDTHS, vertical_alignment="center", gap="small")
    for cell, content in zip(cells, (rows, effect, reason), strict=False):
        text = words.plain(content)
        cell.markdown(f"**{text}**" if head and text else text)
    return cells[-1]


def _draw_examples(issues: pd.DataFrame, reason: Mapping[str, Any], index: int) -> None:
    """Draw a popover with the first rows that were dropped or altered for one reason."""
    rows = issues[(issues["action"] == reason["action"]) & (issues["reason"] == reason["reason"])]
    if not len(rows):
        return
    with st.popover("Show", type="tertiary", key=f"account/{index}"):
        st.dataframe(
            figure.readable(rows.head(intake.SHOWN_ROWS)), hide_index=True, height="content"
        )
        if len(rows) > intake.SHOWN_ROWS:
            st.caption(f"The first {intake.SHOWN_ROWS} of {words.plural(len(rows), 'row')}.")
