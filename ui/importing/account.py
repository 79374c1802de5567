"""What was understood of a trace file, in three steps: how it was read, its columns, and which rows are used, left out and altered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from trainyard.traces import intake
from trainyard.traces.intake import Taken
from ui import figure, words
from ui.importing import upload


def draw(account: Mapping[str, Any], taken: Taken | None) -> None:
    """Draw the account of the trace in use in three steps: read, columns, check; each with a way to change it while its file is at hand.

    Parameters
    ----------
    account : mapping
        See `trainyard.traces.sources.account_of` and `trainyard.traces.intake.take`; empty if nothing is known.
    taken : Taken or None
        The single rows, if this session has read the file; after a reload only the counts are left.
    """
    if not account or account.get("format") in ("sample", "made"):
        return
    if taken is not None:
        # The store keeps the account of the first reading that led to these jobs.
        account = taken.account
    with st.container(border=True):
        title, rows = words.plain(account.get("title", account["format"])), words.plural(account["read"], "row")
        st.markdown(f"**1 Read** · {words.plain(account.get('file', 'the file'))} · {title} · {rows}")
        if account["guesses"]:
            st.caption("Assumed: " + " ".join(words.plain(sentence) for sentence in account["guesses"]))
        editable = taken is not None and upload.at_hand()
        if editable:
            upload.choices("Change the format, the time zone or units")
        if columns := intake.columns_read(account):
            st.markdown(f"**2 Columns** · {words.plain(columns)}")
        if editable and (found := upload.look()) is not None and account.get("columns"):
            with st.expander("The columns with their first values"):
                st.dataframe(figure.readable(intake.column_table(account, found)), hide_index=True, height="content")
        if editable:
            upload.mapping("Change which column means what")
        _check(account, taken)


def _check(account: Mapping[str, Any], taken: Taken | None) -> None:
    st.markdown(f"**3 Check** · {account['used']:,} used + {account['dropped']:,} left out = {account['read']:,} read")
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
    choices = st.grid(min_column_width=300)
    for rule in intake.rules(account):
        with choices.cell():
            upload.rule(rule)
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
