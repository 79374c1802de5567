"""What can be taken away: a report, the table, the rows of every run as CSV or Parquet; each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import pandas as pd
import streamlit as st

import report
from trainyard.results import exports, outcomes
from trainyard.results.outcomes import Report, Shown
from trainyard.store import Store
from ui import figure, lookup, server, state, words
from ui.comparing import tables

_ROWS: Final[Mapping[str, Callable[[Shown, Store], pd.DataFrame]]] = {"jobs": exports.jobs, "segments": exports.segments, "decisions": exports.decisions}
"""Frame of a run -> what is made of it for other programs."""
_REPORT: Final = "trainyard-report.html"
_PAGE: Final = ":material/description:"
_ICON: Final = ":material/download:"


def draw(said: Report, shown: Shown) -> None:
    """Draw the downloads."""
    st.subheader("Take it with you", anchor=False)
    if any(not server.store().has(shown.keys[at][0]) for at in shown.places):
        # A file is made after the click, when nothing can be said any more.
        st.warning("Results of this comparison were removed from this server meanwhile. Run it again to take it with you.", icon=":material/warning:")
        st.button("Look again", key="forget_entries", on_click=lookup.forget, icon=":material/refresh:")
        return
    with st.container(horizontal=True):
        st.download_button(
            "Report (HTML)", lambda: report_html(shown), _REPORT, "text/html", key="report_here", on_click="ignore", icon=":material/description:"
        )
        st.download_button("Table (CSV)", lambda: _csv(tables.wide(said.table)), "trainyard-metrics.csv", "text/csv", on_click="ignore", icon=_ICON)
        for name in _ROWS:
            _rows(shown, name)
    st.caption(words.plain(_ABOUT))
    figure.choose_format()


def report_button(mine: state.Desk) -> None:
    """Draw the download of the report on what is shown, for the sidebar; it cannot be pressed while there is nothing to report."""
    shown = lookup.gather(mine.shown) if mine.shown is not None else None
    ready = shown if shown is not None and shown.places else None
    reason = None if ready else "There is no complete result yet. Run the scenario first."
    made = (lambda: report_html(ready)) if ready else b""
    st.download_button("Report", made, _REPORT, "text/html", key="report", help=reason, disabled=not ready, icon=_PAGE, on_click="ignore", width="stretch")


def _rows(shown: Shown, name: str) -> None:
    large = exports.csv_mb(shown, name) > exports.CSV_LIMIT_MB
    reason = f"More than {exports.CSV_LIMIT_MB:.0f} MB of text, so take Parquet." if large else None
    text, binary = (lambda: rows_csv(shown, name)), (lambda: rows_parquet(shown, name))
    label, file = name.capitalize(), f"trainyard-{name}"
    st.download_button(f"{label} (CSV)", text, f"{file}.csv", "text/csv", help=reason, disabled=large, on_click="ignore", icon=_ICON)
    st.download_button(f"{label} (Parquet)", binary, f"{file}.parquet", on_click="ignore", icon=_ICON)


def rows_csv(shown: Shown, name: str) -> bytes:
    """Return a frame of every complete run ("jobs", "segments" or "decisions") as CSV for spreadsheets."""
    return _csv(_ROWS[name](shown, server.store()))


def rows_parquet(shown: Shown, name: str) -> bytes:
    """Return the same as Parquet, exact."""
    data: bytes = _ROWS[name](shown, server.store()).to_parquet(index=False)
    return data


def report_html(shown: Shown) -> bytes:
    """Return the report, with the present time in it."""
    return report.html(shown, server.store(), created=datetime.now(UTC)).encode()


def _csv(table: pd.DataFrame) -> bytes:
    return outcomes.safe_csv(table).encode()


_ABOUT: Final = (
    "The report is one file with all figures, which opens without a network. "
    "Jobs: one row each. Segments: periods of constant size and rate, with the nodes. Decisions: calls of the allocator, with its notes. "
    "In CSV files, text that begins with = + - or @ has an apostrophe in front, for spreadsheets; Parquet holds it as it is."
)
