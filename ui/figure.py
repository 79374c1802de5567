"""Charts on a page: with alt text, data as table and CSV, and PNG or SVG; and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import pandas as pd
import streamlit as st

from trainyard.formatting import common_unit
from trainyard.results import outcomes
from trainyard.views import charts
from trainyard.views.figure_view import LARGE_SCALE, FigureView
from ui import url_params, words

ViewOrNone = TypeVar("ViewOrNone", bound=FigureView | None)
MAX_ROWS: Final = 500
"""Rows of a table sent to the browser."""
_SCROLLED_ROWS: Final = 8
"""Rows from which a table has a fixed height and scrolls."""
SECONDS: Final = " (s)"
"""Title suffix of a column of durations."""
DIFFERENCE: Final = f"Difference{SECONDS}"
"""Title of a column of durations that takes the unit of the column to its left."""
FORMATS: Final = ("png", "svg")
LARGE_TYPE: Final = "large_type"
_FORMAT: Final = "image_format"
_ALT: Final = 2000
_CELL: Final = 200
"""Characters shown."""
_NOT_IN_FILES: Final = re.compile(r"[^A-Za-z0-9.-]+")


def draw(
    view: FigureView,
    key: str = "",
    *,
    shows_finding: bool = False,
    is_bare: bool = False,
    **options: Any,
) -> Any:
    """Draw a figure in the viewer's theme, its note, and a menu with its data.

    Parameters
    ----------
    view : FigureView
        The figure.
    key : str
        Key of the element; with the prefix "trainyard-" the name of its files. "" = view name.
    shows_finding : bool
        Whether the finding is written before the note.
    is_bare : bool
        Whether only the figure is drawn: a ledger below shows its values and handles drags.
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
    if is_bare:
        config |= {"modeBarButtons": [["toImage"]], "doubleClick": False, "scrollZoom": False}
    config["toImageButtonOptions"]["format"] = st.session_state.get(_FORMAT, FORMATS[0])
    alt = charts.visible(view.alt, _ALT)
    themed_figure = view.with_theme(is_dark(), large=has_large_type())
    event = st.plotly_chart(themed_figure, key=key, config=config, alt=alt, **options)
    if is_bare:
        return event
    _draw_note_and_menu(view, key, file, f"{view.alt if shows_finding else ''} {view.note}".strip())
    return event


def type_scale() -> float:
    """Return the factor on the size of text in charts."""
    return LARGE_SCALE if has_large_type() else 1.0


def has_large_type() -> bool:
    """Return True if charts use large type: Compare is presented in a large window."""
    return url_params.is_presenting() and bool(st.session_state.get(LARGE_TYPE, True))


def _draw_note_and_menu(view: FigureView, key: str, file: str, note: str) -> None:
    """Draw a figure's note, and the menu with its data as table and CSV, if any."""
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
            "Data",
            key=f"data/{key}",
            type="tertiary",
            on_change="rerun",
        ) as box:
            if box.open:
                draw_data(view.data(), file)


@st.cache_resource(max_entries=128, show_spinner=False)
def cached_view(key: tuple[Any, ...], _make: Callable[[], ViewOrNone]) -> ViewOrNone:
    """Return the view that `_make` builds, cached for all sessions and never changed.

    Parameters
    ----------
    key : tuple
        Everything that the view depends on: name, hashes, choices.
    _make : callable
        Builds the view, or returns None.
    """
    return build_view(key, _make)


def build_view(key: tuple[Any, ...], make: Callable[[], ViewOrNone]) -> ViewOrNone:
    """Return the view that `make` builds, or None; its figure becomes a dict only once."""
    del key
    view = make()
    if view is not None:
        # Streamlit calls this on every rerun, and Plotly would copy and encode every array again.
        figure_dict = view.figure.to_dict()
        view.figure.to_dict = lambda: figure_dict
    return view


def draw_table(
    rows: pd.DataFrame, *, helps: Mapping[str, str] | None = None, **options: Any
) -> None:
    """Draw a sortable table; each column of seconds is shown in one unit.

    Parameters
    ----------
    rows : DataFrame
        A number column titled "... (s)" holds seconds; it is shown in one unit that suits most of
        its values.
    helps : mapping of str or None
        Title of a column -> help of its header.
    **options
        For `st.dataframe`.
    """
    table, formats = in_units(rows)
    for title, shown in zip(rows.columns, table.columns, strict=True):
        if helps and title in helps:
            formats[shown] = formats.get(shown, st.column_config.Column()) | {"help": helps[title]}
    st.dataframe(table, column_config=formats | options.pop("column_config", {}), **options)


def draw_fixed_table(rows: pd.DataFrame) -> None:
    """Draw a table that cannot be sorted, because each row has its own unit."""
    texts = readable(rows).map(lambda cell: words.plain(cell) if isinstance(cell, str) else cell)
    st.table(texts.rename(columns=words.plain), hide_index=True)


def in_units(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table with its columns of seconds in one unit each, and their formats."""
    columns, formats = {}, {}
    size, unit = 1.0, "s"
    for title, values in rows.items():
        name = str(title)
        if name.endswith(SECONDS) and pd.api.types.is_numeric_dtype(values):
            if name != DIFFERENCE:
                size, unit = common_unit(values.tolist())
            name, values = f"{name.removesuffix(SECONDS)} ({unit})", values / size  # noqa: PLW2901
            signed, digits = "+" if (values < 0).any() else "", 2 if size >= 3600 else 1
            formats[name] = st.column_config.NumberColumn(format=f"%{signed}.{digits}f")
        columns[name] = values
    return pd.DataFrame(columns, index=rows.index), formats


def draw_data(rows: pd.DataFrame, file: str, *, is_sortable: bool = True) -> None:
    """Draw the first 500 rows of a table, and the download of all rows as CSV.

    The CSV has times in seconds. Without `is_sortable`, each row keeps its own unit.
    """
    if is_sortable:
        draw_table(
            readable(rows.head(MAX_ROWS)),
            hide_index=True,
            width="content",
            height="content" if len(rows) < _SCROLLED_ROWS else 280,
        )
    else:
        draw_fixed_table(rows.head(MAX_ROWS))
    if len(rows) > MAX_ROWS:
        st.caption(
            f"{MAX_ROWS} of {words.plural(len(rows), 'row')} are shown; the file has all rows."
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
    """Return a table with invisible characters shown and long texts cut; for display only."""
    table = pd.DataFrame(
        {index: _readable_cells(rows.iloc[:, index]) for index in range(rows.shape[1])},
        index=rows.index,
    )
    titles = [charts.visible(str(name)) for name in rows.columns]
    # Long names are cut, so titles may be equal.
    table.columns = pd.Index(
        [
            f"{title} ({index + 1})" if titles.count(title) > 1 else title
            for index, title in enumerate(titles)
        ]
    )
    return table


def _readable_cells(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column with invisible characters shown and long texts cut; numbers stay."""
    if pd.api.types.is_numeric_dtype(values):
        return values
    return values.map(
        lambda value: charts.visible(value, _CELL) if isinstance(value, str) else value
    )


def is_dark() -> bool:
    """Return True if the viewer's theme is dark."""
    return bool(getattr(st.context.theme, "type", "light") == "dark")


def themed_color(colour: str) -> str:
    """Return a color of a figure in the viewer's theme."""
    return charts.theme.DARK.get(colour, colour) if is_dark() else colour


def draw_format_choice() -> None:
    """Draw the choice of PNG or SVG, the format that the charts' camera icon saves."""
    st.segmented_control(
        "Chart image format",
        FORMATS,
        default=FORMATS[0],
        required=True,
        format_func=str.upper,
        key=_FORMAT,
        persist_state="session",
    )
