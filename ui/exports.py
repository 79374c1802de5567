"""What can be taken away: the table, the rows of every run as CSV or Parquet; each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pandas as pd
import streamlit as st

from lab import exports, outcomes
from lab.front import Store
from lab.outcomes import Report, Shown
from ui import figure, server, tables, words

_ROWS: Final[Mapping[str, Callable[[Shown, Store], pd.DataFrame]]] = {"jobs": exports.jobs, "segments": exports.segments, "decisions": exports.decisions}
"""Frame of a run -> what is made of it for other programs."""
_ICON: Final = ":material/download:"


def draw(said: Report, shown: Shown) -> None:
    """Draw the downloads."""
    st.subheader("Take it with you", anchor=False)
    with st.container(horizontal=True):
        st.download_button("Table (CSV)", lambda: _csv(tables.wide(said.table)), "trainyard-metrics.csv", "text/csv", on_click="ignore", icon=_ICON)
        for name in _ROWS:
            _rows(shown, name)
    st.caption(words.plain(_ABOUT))
    figure.choose_format()


def _rows(shown: Shown, name: str) -> None:
    large = exports.stored_mb(shown, name) > exports.CSV_LIMIT_MB
    reason = f"More than {exports.CSV_LIMIT_MB:.0f} MB are stored, so take Parquet." if large else None
    text, binary = (lambda: _csv(_made(shown, name))), (lambda: _parquet(_made(shown, name)))
    label, file = name.capitalize(), f"trainyard-{name}"
    st.download_button(f"{label} (CSV)", text, f"{file}.csv", "text/csv", help=reason, disabled=large, on_click="ignore", icon=_ICON)
    st.download_button(f"{label} (Parquet)", binary, f"{file}.parquet", on_click="ignore", icon=_ICON)


def _made(shown: Shown, name: str) -> pd.DataFrame:
    return _ROWS[name](shown, server.store())


def _csv(table: pd.DataFrame) -> bytes:
    return outcomes.safe_csv(table).encode()


def _parquet(table: pd.DataFrame) -> bytes:
    data: bytes = table.to_parquet(index=False)
    return data


_ABOUT: Final = (
    "Jobs: one row each. Segments: periods of constant size and rate, with the nodes. Decisions: calls of the allocator, with its notes. "
    "In CSV files, text that begins with = + - or @ has an apostrophe in front, for spreadsheets; Parquet holds it as it is."
)
