"""A chart on a page: its finding in words for those who cannot see it, its numbers as a table and a
file, its picture as PNG or SVG.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pandas as pd
import streamlit as st

from trainyard.results import outcomes
from trainyard.text import common_unit
from trainyard.views import charts
from trainyard.views.figure_view import FigureView
from ui import url_params, words

Made = TypeVar("Made", bound=FigureView | None)
MOST_ROWS: Final = 500
"""Rows of a table that are sent to the browser."""
SECONDS: Final = " (s)"
"""End of the title of a column of durations."""
DIFFERENCE: Final = f"Difference{SECONDS}"
"""Title of a column of durations in the unit of the column at its left."""
FORMATS: Final = ("png", "svg")
LARGE_TYPE: Final = "large_type"
_FORMAT: Final = "image_format"
_ALT: Final = 2000
_CELL: Final = 200
"""Characters that are shown."""
_NOT_IN_FILES: Final = re.compile(r"[^A-Za-z0-9.-]+")


def draw(
    view: FigureView, key: str = "", *, finding: bool = False, bare: bool = False, **options: Any
) -> Any:
    """Draw a figure, its note, and a menu with its data.

    Parameters
    ----------
    view : FigureView
        The figure.
    key : str
        Of the element, and with "trainyard-" in front the name of its files; "" = name of the view.
    finding : bool
        Whether the finding stands before the note, for all to read.
    bare : bool
        Whether a ledger below holds its values: then nothing but the figure is drawn, and a drag
        over it is left to that.
    **options
        For `st.plotly_chart`, e.g. ``on_select``.

    Returns
    -------
    Any
        What `st.plotly_chart` returns.
    """
    key = key or view.name
    file = f"trainyard-{_NOT_IN_FILES.sub('-', key)[:80]}"
    config = charts.image_config(file)
    if bare:
        config |= {"modeBarButtons": [["toImage"]], "doubleClick": False, "scrollZoom": False}
    config["toImageButtonOptions"]["format"] = st.session_state.get(_FORMAT, FORMATS[0])
    alt = charts.visible(view.alt, _ALT)
    shown = view.shown(dark(), large=has_large_type())
    found = st.plotly_chart(shown, key=key, config=config, alt=alt, **options)
    if bare:
        return found
    _below(view, key, file, f"{view.alt if finding else ''} {view.note}".strip())
    return found


def has_large_type() -> bool:
    """Tell whether charts have large type: Compare is presented, in a window with room for it."""
    return url_params.presented() and bool(st.session_state.get(LARGE_TYPE, True))


def _below(view: FigureView, key: str, file: str, note: str) -> None:
    """Draw the note of a figure and, in a menu at its right, its numbers."""
    if view.data is None and not note:
        return
    with st.container(
        horizontal=True,
        horizontal_alignment="right" if not note else "left",
        vertical_alignment="center",
        key=f"{'below' if note else 'menu'}/{key}",
    ):
        if note:
            st.caption(words.plain(note))
        if view.data is None:
            return
        with st.popover(
            "⋯",
            key=f"data/{key}",
            type="tertiary",
            help="The numbers of this chart",
            on_change="rerun",
        ) as box:
            if box.open:
                table(view.data(), file)


@st.cache_resource(max_entries=128, show_spinner=False)
def kept(key: tuple[Any, ...], _make: Callable[[], Made]) -> Made:
    """Return a view that is made once for all sessions, and never changed after that.

    Parameters
    ----------
    key : tuple
        Everything that it depends on: name, hashes, choices.
    _make : callable
        Makes it, or None.
    """
    return made(key, _make)


def made(key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
    """Return a view that is made now; parameters as of `kept`."""
    del key
    view = make()
    if view is not None:
        # Streamlit asks for it on every run, and Plotly would copy and encode every array each
        # time.
        whole = view.figure.to_dict()
        view.figure.to_dict = lambda: whole
    return view


def show(rows: pd.DataFrame, **options: Any) -> None:
    """Draw a table of numbers and texts.

    Parameters
    ----------
    rows : DataFrame
        A number column titled "... (s)" holds seconds: it is shown in the one unit that suits most
        of its values, named in the title, so that it sorts by length.
    **options
        For `st.dataframe`.
    """
    shown, formats = in_units(rows)
    st.dataframe(shown, column_config=formats | options.pop("column_config", {}), **options)


def show_fixed(rows: pd.DataFrame) -> None:
    """Draw a table that nobody can sort, because each row has a unit of its own."""
    texts = readable(rows).map(lambda one: words.plain(one) if isinstance(one, str) else one)
    st.table(texts.rename(columns=words.plain), hide_index=True)


def in_units(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table whose columns of seconds have a unit each, and how those are written."""
    made, formats = {}, {}
    size, unit = 1.0, "s"
    for title, values in rows.items():
        name = str(title)
        if name.endswith(SECONDS) and pd.api.types.is_numeric_dtype(values):
            if name != DIFFERENCE:
                size, unit = common_unit(values.tolist())
            name, values = f"{name.removesuffix(SECONDS)} ({unit})", values / size  # noqa: PLW2901
            signed, digits = "+" if (values < 0).any() else "", 2 if size >= 3600 else 1
            formats[name] = st.column_config.NumberColumn(format=f"%{signed}.{digits}f")
        made[name] = values
    return pd.DataFrame(made, index=rows.index), formats


def table(rows: pd.DataFrame, file: str, *, sorts: bool = True) -> None:
    """Draw the beginning of a table, and offer the whole of it as CSV, with times in seconds; one
    whose rows have units of their own is not to be sorted (`sorts`).
    """
    if sorts:
        show(readable(rows.head(MOST_ROWS)), hide_index=True)
    else:
        show_fixed(rows.head(MOST_ROWS))
    if len(rows) > MOST_ROWS:
        st.caption(
            f"{MOST_ROWS} of {words.plural(len(rows), 'row')} are shown; the file holds all."
        )
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
    """Return a table in which names from outside, in cells and in headers, can be read: see
    `charts.visible`; for showing only, files stay exact.
    """
    shown = pd.DataFrame(
        {at: _cells(rows.iloc[:, at]) for at in range(rows.shape[1])}, index=rows.index
    )
    titles = [charts.visible(str(name)) for name in rows.columns]
    # Of long names only the beginnings are left, which may be alike.
    shown.columns = pd.Index(
        [
            f"{title} ({at + 1})" if titles.count(title) > 1 else title
            for at, title in enumerate(titles)
        ]
    )
    return shown


def _cells(values: pd.Series[Any]) -> pd.Series[Any]:
    if pd.api.types.is_numeric_dtype(values):
        return values
    return values.map(
        lambda value: charts.visible(value, _CELL) if isinstance(value, str) else value
    )


def dark() -> bool:
    """Tell whether the viewer's theme is dark."""
    return bool(getattr(st.context.theme, "type", "light") == "dark")


def themed(colour: str) -> str:
    """Return a colour of a figure as it is in the viewer's theme."""
    return charts.theme.DARK.get(colour, colour) if dark() else colour


def choose_format() -> None:
    """Draw the choice of what the camera above each chart saves."""
    st.segmented_control(
        "Camera saves",
        FORMATS,
        default=FORMATS[0],
        required=True,
        format_func=str.upper,
        key=_FORMAT,
        persist_state="session",
    )
