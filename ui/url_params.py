"""Parameters of the address that a page of its own needs, kept in the session too: a change of
page, and sometimes Back, drop them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import streamlit as st

SEAT: Final = "seat"
"""Parameter of the address: a random number, so that a reload is not another student; of one
browser, so no link for others has it.
"""
PRESENT: Final = "present"
"""Parameter of the address: there while Compare is presented; see `ui.presenting`."""
TAB: Final = "tab"
"""Parameter of the address: which tab of a page is open."""
PAST: Final = "past"
CAPACITY: Final = "capacity"
"""Tabs of Plan that other pages lead to."""
GOAL: Final = "goal"
HIGH: Final = "high"
"""Parameters of the address: what policies are judged by, and the title of the highlighted one."""
Tabs = Mapping[str, tuple[str, Callable[[], None]]]
"""Name in the address -> what a tab is called, and what draws it."""
_KEPT: Final = "place"


def asked(name: str) -> str:
    """Return a parameter of the address, or what it was when this session last wrote it; "" =
    neither.
    """
    return str(st.query_params.get(name, _kept().get(name, "")))


def put(name: str, value: str) -> None:
    """Write a parameter of the address; "" takes it out."""
    _kept()[name] = value
    if value and st.query_params.get(name) != value:
        st.query_params[name] = value
    elif not value:
        st.query_params.pop(name, None)


def presented() -> bool:
    """Tell whether Compare is presented."""
    return asked(PRESENT) == "1"


def tabs(known: Tabs, first: str, key: str) -> None:
    """Draw tabs, the first time with this one open, and write the open one into the address; only
    that one is drawn.
    """
    titles = [title for title, _ in known.values()]
    # Not as `default`: where that changes with the address, the tab chosen last is taken back. An
    # address that asks for another one than was written there is a link that was followed.
    if st.session_state.get(key) not in titles or first != st.session_state.get(f"{key}/written"):
        st.session_state[key] = known[first][0]
    for (name, (_, draw)), tab in zip(
        known.items(), st.tabs(titles, key=key, on_change="rerun"), strict=True
    ):
        if tab.open:
            with tab:
                draw()
            put(TAB, name)
            st.session_state[f"{key}/written"] = name


def _kept() -> dict[str, str]:
    kept: dict[str, str] = st.session_state.setdefault(_KEPT, {})
    return kept
