"""A chart on a page: its finding in words for those who cannot see it, its numbers as a table and a file, its picture as PNG or SVG."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from trainyard.results import outcomes
from ui import words

MOST_ROWS: Final = 500
"""Rows of a table that are sent to the browser."""
FORMATS: Final = ("png", "svg")
_FORMAT: Final = "image_format"
_ALT: Final = 2000
_CELL: Final = 200
"""Characters that are shown."""
_NOT_IN_FILES: Final = re.compile(r"[^A-Za-z0-9.-]+")


def draw(figure: Any, name: str, alt: str, data: Callable[[], pd.DataFrame] | None = None, **options: Any) -> Any:
    """Draw a chart with its data folded below.

    Parameters
    ----------
    figure : Figure
        What `charts` made.
    name : str
        Key of the element, and with "trainyard-" in front the name of its files.
    alt : str
        The finding as a sentence.
    data : callable or None
        Makes the table when somebody opens it: columns named as a reader wants them. None = a table beside the chart says the same.
    **options
        For `st.plotly_chart`, e.g. ``on_select``.

    Returns
    -------
    Any
        What `st.plotly_chart` returns.
    """
    file = f"trainyard-{_NOT_IN_FILES.sub('-', name)[:80]}"
    config = charts.image_config(file)
    config["toImageButtonOptions"]["format"] = st.session_state.get(_FORMAT, FORMATS[0])
    found = st.plotly_chart(figure, key=name, config=config, alt=charts.visible(alt, _ALT), **options)
    if data is not None:
        with st.expander("Data", key=f"data/{name}", on_change="rerun") as box:
            if box.open:
                table(data(), file)
    return found


@st.cache_resource(max_entries=128, show_spinner=False)
def kept(key: tuple[Any, ...], _make: Callable[[], Any]) -> Any:
    """Return a figure that is made once for all sessions, and never changed after that.

    Parameters
    ----------
    key : tuple
        Everything that it depends on: name, hashes, choices.
    _make : callable
        Makes it.
    """
    del key
    made = _make()
    # Streamlit asks for it on every run, and Plotly would copy and encode every array each time.
    whole = made.to_dict()
    made.to_dict = lambda: whole
    return made


def table(rows: pd.DataFrame, file: str) -> None:
    """Draw the beginning of a table, and offer the whole of it as CSV."""
    st.dataframe(readable(rows.head(MOST_ROWS)), hide_index=True)
    if len(rows) > MOST_ROWS:
        st.caption(f"{MOST_ROWS} of {words.plural(len(rows), 'row')} are shown; the file holds all.")
    st.download_button(
        "CSV",
        lambda: outcomes.safe_csv(rows).encode(),
        f"{file}.csv",
        "text/csv",
        key=f"csv/{file}",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )


def readable(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which names from outside, in cells and in headers, can be read: see `charts.visible`; for showing only, files stay exact."""
    shown = pd.DataFrame({at: _cells(rows.iloc[:, at]) for at in range(rows.shape[1])}, index=rows.index)
    titles = [charts.visible(str(name)) for name in rows.columns]
    # Of long names only the beginnings are left, which may be alike.
    shown.columns = pd.Index([f"{title} ({at + 1})" if titles.count(title) > 1 else title for at, title in enumerate(titles)])
    return shown


def _cells(values: pd.Series[Any]) -> pd.Series[Any]:
    if pd.api.types.is_numeric_dtype(values):
        return values
    return values.map(lambda value: charts.visible(value, _CELL) if isinstance(value, str) else value)


def choose_format() -> None:
    """Draw the choice of what the camera above each chart saves."""
    st.segmented_control("Camera saves", FORMATS, default=FORMATS[0], required=True, format_func=str.upper, key=_FORMAT, persist_state="session")
