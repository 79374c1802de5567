"""Parameters of the address that a page of its own needs, kept in the session too: a change of page, and sometimes Back, drop them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import streamlit as st

SEAT: Final = "seat"
"""Parameter of the address: a random number, so that a reload is not another student; of one browser, so no link for others has it."""
TAB: Final = "tab"
"""Parameter of the address: which tab of a page is open."""
Tabs = Mapping[str, tuple[str, Callable[[], None]]]
"""Name in the address -> what a tab is called, and what draws it."""
_KEPT: Final = "place"


def asked(name: str) -> str:
    """Return a parameter of the address, or what it was when this session last wrote it; "" = neither."""
    return str(st.query_params.get(name, _kept().get(name, "")))


def put(name: str, value: str) -> None:
    """Write a parameter of the address; "" takes it out."""
    _kept()[name] = value
    if value and st.query_params.get(name) != value:
        st.query_params[name] = value
    elif not value:
        st.query_params.pop(name, None)


def tabs(known: Tabs, first: str, key: str) -> None:
    """Draw tabs, the first time with this one open, and write the open one into the address; only that one is drawn."""
    titles = [title for title, _ in known.values()]
    for (name, (_, draw)), tab in zip(known.items(), st.tabs(titles, default=known[first][0], key=key, on_change="rerun"), strict=True):
        if tab.open:
            with tab:
                draw()
            put(TAB, name)


def _kept() -> dict[str, str]:
    kept: dict[str, str] = st.session_state.setdefault(_KEPT, {})
    return kept
