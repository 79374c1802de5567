"""URL parameters of pages, also kept in the session: changes of page and Back drop them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

import streamlit as st

from ui import words

SEAT: Final = "seat"
"""URL parameter: a random number of one browser tab, so that a reload is the same student; shared
links omit it.
"""
PRESENT: Final = "present"
"""URL parameter: present while Compare or a lesson is presented; see `ui.presentation`."""
TAB: Final = "tab"
"""URL parameter: the open tab of a page."""
PAST: Final = "past"
BUY: Final = "buy"
"""Tabs of Plan that other pages link to."""
GOAL: Final = "goal"
HIGH: Final = "high"
HIDE: Final = "hide"
"""URL parameters: the metric that judges policies, the title of the highlighted policy, and those
of the policies whose lines are hidden.
"""
Tabs = Mapping[str, tuple[str, Callable[[], None]]]
"""Tab name in the URL -> (title, function that draws the tab)."""
_KEPT: Final = "place"


def get(name: str) -> str:
    """Return a URL parameter, or its value when this session last wrote it; else ""."""
    return str(st.query_params.get(name, _session_values().get(name, "")))


def set_param(name: str, value: str) -> None:
    """Write a parameter to the session and the URL; "" removes it from the URL."""
    _session_values()[name] = value
    if value and st.query_params.get(name) != value:
        st.query_params[name] = value
    elif not value:
        st.query_params.pop(name, None)


def get_titles(name: str) -> list[str]:
    """Return the titles in a URL parameter; see `set_titles`."""
    return [unquote(title) for title in get(name).split(",") if title]


def set_titles(name: str, titles: Iterable[str]) -> None:
    """Write titles to a URL parameter, joined by commas; commas of titles are escaped."""
    escaped = (title.replace("%", "%25").replace(",", "%2C") for title in titles)
    set_param(name, ",".join(escaped))


def is_presenting() -> bool:
    """Return True if Compare or a lesson is in presentation mode."""
    return get(PRESENT) == "1"


def draw_tabs(tabs: Tabs, first: str, key: str) -> None:
    """Draw tabs, opening `first` at a followed link; only the open tab is drawn.

    Its name is written to the URL; an unknown name in the URL gives a warning.
    """
    titles = [title for title, _ in tabs.values()]
    if (requested := st.query_params.get(TAB, "")) and requested not in tabs:
        st.warning(
            words.plain(f"There is no tab “{requested}” here. Choose one below."),
            icon=":material/warning:",
        )
    # Not as `default`: a default that changes with the URL would reset the chosen tab. A URL with
    # another tab than the one written last is a followed link.
    if st.session_state.get(key) not in titles or first != st.session_state.get(f"{key}/written"):
        st.session_state[key] = tabs[first][0]
    for (name, (_, draw)), tab in zip(
        tabs.items(), st.tabs(titles, key=key, on_change="rerun"), strict=True
    ):
        if tab.open:
            with tab:
                draw()
            set_param(TAB, name)
            st.session_state[f"{key}/written"] = name


def _session_values() -> dict[str, str]:
    """Return name -> value of the parameters that this session wrote; "" = removed."""
    values: dict[str, str] = st.session_state.setdefault(_KEPT, {})
    return values
