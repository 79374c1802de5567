"""The ledger as a component of Streamlit: its script and its style are constants; all that differs
is data, which the script writes as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import streamlit as st

from trainyard.views.charts import visible
from trainyard.views.ledger import NAME, LedgerView

_HERE: Final = Path(__file__).parent
_HTML: Final = """<div class="ty-ledger" tabindex="0" role="grid" aria-label="Policies">
<table role="presentation"><thead role="rowgroup"></thead><tbody role="rowgroup"></tbody></table>
<div aria-live="polite"></div></div>"""
STYLE: Final = _HERE / "ledger.css"
"""What `ui.layout` puts into every page: what a component brings with it is sent again whenever it
is drawn.
"""
_MOUNT: Final = st.components.v2.component(
    "trainyard_ledger",
    html=_HTML,
    js=(_HERE / "ledger.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)
_SORT: Final = "ledger_sort"


@dataclass(frozen=True)
class Charts:
    """The figures that a ledger reads, drawn on the same page by `st.plotly_chart`.

    Parameters
    ----------
    time, curve : str
        Keys of the figure over time and of that of completion times: letters, digits and `_` only;
        "" = there is none. Their lines need `uid` and `legendgroup`, the title of the policy, as
        `trainyard.views.charts.Look` gives them. The range of the first x axis over time is
        `LedgerView.window`, and ``dragmode="select"`` in its layout makes a drag choose a window.
    strip : bool
        Whether it has a second x axis below, of `LedgerView.span`.
    """

    time: str = ""
    curve: str = ""
    strip: bool = False


def draw(
    ledger: LedgerView,
    key: str,
    charts: Charts | None = None,
    on_high: Callable[[str], None] | None = None,
    on_window: Callable[[Sequence[float]], None] | None = None,
) -> None:
    """Draw a ledger, which reads the figures beside it.

    Parameters
    ----------
    ledger : Ledger
        What it shows.
    key : str
        Of the element: letters, digits and `_` only.
    charts : Charts or None
        The figures; None = there are none.
    on_high : callable or None
        Takes the title of the policy that was clicked, or chosen with Enter.
    on_window : callable or None
        Takes begin and end of what was dragged, in seconds; none of both = the whole run.
    """
    sorts: dict[str, tuple[int, bool]] = st.session_state.setdefault(_SORT, {})
    names = {visible(row.title, NAME): row.title for row in ledger.rows}

    def sort(at: int) -> None:
        up = sorts.get(key) != (at, True)
        sorts[key] = (at, up)

    def high(title: str) -> None:
        if on_high is not None and title in names:
            on_high(names[title])

    def window(ends: Sequence[float]) -> None:
        if on_window is not None:
            on_window(ends)

    data = replace(ledger, sort=sorts.get(key)).to_json() | {
        "id": key,
        "charts": asdict(charts or Charts()),
        "zoomed": ledger.window != ledger.span,
    }
    _MOUNT(
        key=key,
        data=data,
        on_high_change=lambda: _tell(key, "high", high),
        on_window_change=lambda: _tell(key, "window", window),
        on_sort_change=lambda: _tell(key, "sort", sort),
    )


def _tell(key: str, name: str, act: Callable[[Any], None]) -> None:
    sent = getattr(st.session_state[key], name, None)
    if sent is not None:
        act(sent)
