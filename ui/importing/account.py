"""The account of how the file in use was read: what became of its rows, and ways to change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import streamlit as st

from trainyard.traces import intake
from trainyard.traces.intake import TraceIntake
from trainyard.traces.sources import tally
from ui import figure, state, words
from ui.importing import own_recipe, questions, reading

_WIDTHS: Final = (1, 1, 5, 1)
_DONE: Final = {"dropped": "left out", "merged": "merged", "altered": "altered"}


def ask(facts: Mapping[str, Any], taken: TraceIntake | None) -> None:
    """Draw what the file in use leaves open; arguments as of `draw`."""
    facts = facts if taken is None else taken.account
    questions.draw(
        facts.get("questions", ()),
        reading.answered if taken is not None and reading.at_hand() else None,
        str(facts.get("file", "")),
    )


def draw(facts: Mapping[str, Any], taken: TraceIntake | None) -> None:
    """Draw the account of the trace in use, with ways to change it while its file is at hand.

    Parameters
    ----------
    facts : mapping
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
    at_hand = taken is not None and reading.at_hand()
    with st.container(border=True, key="account"):
        _head(facts, taken, at_hand=at_hand)
        if facts["guesses"]:
            st.caption("Assumed: " + " ".join(words.plain(one) for one in facts["guesses"]))
        if read_from := intake.columns_read(facts):
            st.caption(f"Columns: {words.plain(read_from)}")
        for sentence in facts["warnings"]:
            st.warning(words.plain(sentence), icon=":material/warning:")
            if at_hand:
                _offers(facts, sentence)
        _table(facts, taken)
        choices = st.grid(min_column_width=300)
        for rule in intake.rules(facts):
            with choices.cell():
                reading.rule(rule)


def _head(facts: Mapping[str, Any], taken: TraceIntake | None, *, at_hand: bool) -> None:
    """Draw what the file is, with the ways to read it differently, and by which recipe it was
    read.
    """
    upload = state.session().upload if at_hand else None
    with st.container(horizontal=True, vertical_alignment="center"):
        title = words.plain(facts.get("title", facts["format"]))
        st.markdown(f"**{words.plain(facts.get('file', 'the file'))}** · {title} · {tally(facts)}")
        if upload is not None:
            reading.choices("Format, dates, units")
            reading.mapping("Columns")
            own_recipe.draw(upload, taken, reading.by_recipe)
    if upload is not None:
        own_recipe.said(upload, taken, reading.by_recipe)


def _offers(facts: Mapping[str, Any], sentence: str) -> None:
    """Draw a button for each way out that goes with a warning."""
    upload = state.session().upload
    for offer in facts.get("offers", ()):
        if upload is None or offer["text"] != sentence:
            continue
        for answer, meaning in offer["options"].items():
            label = f"{meaning[:1].upper()}{meaning[1:]}"
            if answer != offer["default"] and st.button(
                words.plain(label), key=f"offer/{offer['id']}/{answer}", icon=":material/build:"
            ):
                reading.answered({offer["id"]: answer})
                st.rerun()


def _table(facts: Mapping[str, Any], taken: TraceIntake | None) -> None:
    """Draw one row per reason: how many rows, what became of them, why, and the first of them."""
    issues = taken.issues if taken is not None else None
    _row("Rows", "What", "Why", head=True)
    with _row(f"{facts['used']:,}", "used", ""):
        if taken is not None:
            with st.popover("Show", type="tertiary", key="account/used"):
                st.caption(f"The first {words.plural(len(taken.first), 'job')}, as read:")
                st.dataframe(figure.readable(taken.first), height="content", width="content")
    for at, one in enumerate(facts["reasons"]):
        with _row(f"{one['rows']:,}", _DONE[one["action"]], str(one["reason"])):
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


def _row(rows: str, what: str, why: str, *, head: bool = False) -> Any:
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
