"""What was understood of a trace file: rows used, left out and altered, with reasons, guesses and warnings; everything can be downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from lab import intake
from lab.intake import Taken
from ui import figure, words


def draw(account: Mapping[str, Any], taken: Taken | None) -> None:
    """Draw the account of the trace in use.

    Parameters
    ----------
    account : mapping
        See `lab.sources.account_of`; empty if nothing is known.
    taken : Taken or None
        The single rows, if this session has read the file; after a reload only the counts are left.
    """
    if not account or account.get("format") in ("sample", "made"):
        return
    st.markdown(f"**What was read:** {words.plain(account.get('file', 'the file'))}, {words.plain(account.get('title', account['format']))}")
    grid = st.grid(4, min_column_width=120)
    for label, value, meaning in (
        ("Rows read", account["read"], "Rows or jobs found in the file."),
        ("Used", account["used"], "Jobs in the trace: used + left out = read."),
        ("Left out", account["dropped"], "Rows that cannot be a job; the reasons are below."),
        ("Altered", account["altered"], "Changes made to rows in use, e.g. fractional GPUs rounded up."),
    ):
        with grid.cell():
            st.metric(label, f"{value:,}", help=meaning)
    for sentence in account["warnings"]:
        st.warning(words.plain(sentence), icon=":material/warning:")
    if account["guesses"]:
        st.markdown("Assumed:\n" + "\n".join(f"- {words.plain(sentence)}" for sentence in account["guesses"]))
    if account["reasons"]:
        _reasons(account, taken)


def _reasons(account: Mapping[str, Any], taken: Taken | None) -> None:
    table = pd.DataFrame(account["reasons"]).rename(columns={"action": "what happened", "reason": "why"})
    st.dataframe(figure.readable(table), hide_index=True, height="content", column_config={"rows": st.column_config.NumberColumn(format="localized")})
    if taken is None:
        st.caption("The single rows are known until the page is reloaded; load the file again to see and download them.")
        return
    issues = taken.issues
    with st.expander(f"The first of {words.plural(len(issues), 'row')} left out or altered"):
        st.dataframe(figure.readable(issues.head(intake.SHOWN_ROWS)), hide_index=True, height="content")
    st.download_button(
        "Download all of them (CSV)",
        taken.issues_csv,
        "trainyard-rows.csv",
        "text/csv",
        on_click="ignore",
        icon=":material/download:",
        help="Cells that begin with = + - or @ get an apostrophe in front, so that no spreadsheet takes them for a formula.",
    )
    st.caption("In this file, cells that begin with = + - or @ have an apostrophe in front, so that no spreadsheet takes them for a formula.")
