"""The ledger as a Streamlit component: constant script and style, all else is data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import streamlit as st

from trainyard.views.charts import visible
from trainyard.views.ledger import NAME, NOTE, LedgerView, State

_HERE: Final = Path(__file__).parent
_HTML: Final = """<div class="ty-ledger" tabindex="0" role="grid" aria-label="Policies">
<table role="presentation"><thead role="rowgroup"></thead><tbody role="rowgroup"></tbody></table>
<div aria-live="polite"></div></div>"""
STYLE: Final = _HERE / "ledger.css"
SCRIPT: Final = _HERE / "ledger.js"
"""Files that `ui.layout` adds to a page; a component would send them with every drawing."""
_MOUNT: Final = st.components.v2.component(
    "trainyard_ledger",
    html=_HTML,
    # On several lines, or Streamlit reads it as a file name.
    js="export default (component) => {\n  return window.trainyardLedger(component);\n}\n",
    isolate_styles=False,
)
_PROGRESS: Final = st.components.v2.component(
    "trainyard_progress",
    html="<i hidden></i>",
    js="export default (component) => {\n  return window.trainyardProgress(component);\n}\n",
)
_SORT: Final = "ledger_sort"


@dataclass(frozen=True)
class LedgerCharts:
    """Figures linked to a ledger, drawn on the same page by `st.plotly_chart`.

    Parameters
    ----------
    time, curve : str
        Keys of the figures over time and of completion times: letters, digits and `_` only; "" =
        none. Their lines need `uid` and `legendgroup` (title of the policy), as
        `trainyard.views.charts.Look` sets them. The first x axis over time spans
        `LedgerView.window`; with ``dragmode="select"`` a drag zooms.
    strip : bool
        Whether the figure over time has a second x axis, of `LedgerView.span`.
    """

    time: str = ""
    curve: str = ""
    strip: bool = False


def draw(
    ledger: LedgerView,
    key: str,
    charts: LedgerCharts | None = None,
    on_high: Callable[[str], None] | None = None,
    on_window: Callable[[Sequence[float]], None] | None = None,
    on_hide: Callable[[Sequence[str]], None] | None = None,
) -> None:
    """Draw a ledger that is linked to the figures of its page; keep its sort order.

    Parameters
    ----------
    ledger : LedgerView
        Rows and columns.
    key : str
        Key of the element: letters, digits and `_` only.
    charts : LedgerCharts or None
        The linked figures.
    on_high : callable or None
        (title of the highlighted policy) -> None, on a click or Enter.
    on_window : callable or None
        (begin and end of the dragged range in seconds; empty = the whole run) -> None.
    on_hide : callable or None
        (titles of all policies whose lines are hidden) -> None, whenever they change.
    """
    sorts: dict[str, tuple[int, bool]] = st.session_state.setdefault(_SORT, {})
    # Rows are sent with visible titles, names beside lines with full ones.
    names = {visible(row.title, NAME): row.title for row in ledger.rows}
    names |= {row.title: row.title for row in ledger.rows}

    def on_sort_sent(column: int) -> None:
        """Sort by a column, upward; downward if it was sorted upward already."""
        up = sorts.get(key) != (column, True)
        sorts[key] = (column, up)

    def on_high_sent(message: tuple[str, int | None]) -> None:
        """Call `on_high` with the full title of a row or name."""
        if on_high is not None and message[0] in names:
            on_high(names[message[0]])

    def on_window_sent(ends: Sequence[float]) -> None:
        """Call `on_window` with the dragged range, if it is given."""
        if on_window is not None:
            on_window(ends)

    def on_hide_sent(titles: Sequence[str]) -> None:
        """Call `on_hide` with the full titles of visible ones."""
        if on_hide is not None:
            on_hide([names[title] for title in titles if title in names])

    readout = ledger.readout
    # A click tells which readout the page has; it is most of the data, and not sent again.
    clicked = getattr(st.session_state.get(key), "high", None)
    if clicked is not None and clicked[1] == readout["mark"]:
        readout = {"mark": readout["mark"]}
    data = replace(ledger, sort=sorts.get(key)).to_json() | {
        "readout": readout,
        "id": key,
        "charts": asdict(charts or LedgerCharts()),
        "zoomed": ledger.window != ledger.span,
        "hides": on_hide is not None,
    }
    _MOUNT(
        key=key,
        data=data,
        on_high_change=lambda: _forward(key, "high", on_high_sent),
        on_window_change=lambda: _forward(key, "window", on_window_sent),
        on_hide_change=lambda: _forward(key, "hide", on_hide_sent),
        on_sort_change=lambda: _forward(key, "sort", on_sort_sent),
    )


def draw_progress(key: str, row_state: State) -> None:
    """Update the notes and bars of unfinished rows in the ledger of this key, and nothing else."""
    rows = {
        visible(title, NAME): [visible(note, NOTE), row_state.shares.get(title)]
        for title, note in row_state.notes.items()
    }
    _PROGRESS(key=f"{key}_progress", data={"id": key, "rows": rows})


def _forward(key: str, name: str, handler: Callable[[Any], None]) -> None:
    """Call a handler with the browser's last message of a name, if there is one."""
    message = getattr(st.session_state[key], name, None)
    if message is not None:
        handler(message)
