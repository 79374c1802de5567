"""What surrounds every page: navigation, address, scenario bar, and what is said once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from sim.errors import TrainyardError
from trainyard.traces import start
from ui import (
    browser_identity,
    empty_states,
    faults,
    run_status,
    scenario_bar,
    server,
    state,
    words,
)
from ui.ledger import component
from ui.what_if import slider

PAGES: Final = {
    "start": "Start",
    "trace": "Trace",
    "cluster": "Cluster",
    "policies": "Policies",
    "compare": "Compare",
    "explore": "Explore",
    "plan": "Plan",
    "learn": "Learn",
}
"""Name of a file in pages/ -> what the navigation shows, in the order of work."""
_FIRST: Final = next(iter(PAGES))
_HOME: Final = "home"
_BAR_FIRST: Final = (*run_status.RESULTS, _FIRST)
TARGET: Final = "page"
"""Parameter of the address: where app.py shall go at once."""
_STYLES: Final = (Path(__file__).with_name("style.css"), component.STYLE)
_ICON: Final = Path(__file__).with_name("icon.svg")
_SCRIPTS: Final = (Path(__file__).with_name("frame.js"), slider.SCRIPT)
_LOST: Final = (
    '<p class="ty-lost-line" role="status">The connection to the server is lost. What is shown'
    " stays; the page connects again by itself.</p>"
)
_SHORTCUTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Everywhere": {
        "Tab, Shift+Tab": "next or previous control; a table, list or row of tabs is one",
        "← → in the bar": "previous or next part of the scenario",
        "Enter, Space": "press, open, tick",
        "Esc": "close a menu or drawer; leave the window of time",
        "?": "this list",
    },
    "Slider": {
        "← →": "another value; the results follow",
        "↑ ↓": "another setting",
    },
    "Table of policies": {
        "↑ ↓": "previous or next policy",
        "Enter": "highlight it",
        "← →": "earlier or later instant; with Shift ten steps",
        "Home, End": "begin or end of the window",
    },
    "List of policies": {
        "↑ ↓": "previous or next policy",
        "Space": "compare it, or not",
        "Enter": "its settings",
        "/": "search",
    },
}


def main() -> None:
    """Run the app once: what app.py does."""
    try:
        session = state.open_session()
    except TrainyardError as error:
        _closed(str(error))
        return
    session.drawing_s = time.monotonic()
    named = session.study.base.name
    chosen = _navigation(f"{named} · Trainyard" if named else "Trainyard")
    session.settled = session.over
    if chosen.url_path == _FIRST:
        chosen.run()
    _go_to_target()
    # Here for what the change of page has dropped, and below for what this run has edited: each
    # writes only if there is something to write.
    state.write_address()
    name = chosen.url_path or _FIRST
    session.page, session.arrived = name, session.page != name
    bar, below = st.container(key="bar_place"), st.container(key="bar_lines", gap="xsmall")
    # An empty container has no height yet, and the page would move when the bar comes.
    bar.html(scenario_bar.MENU)
    gone = start.trace_is_gone(session.study, server.store())
    with below:
        st.html(_LOST)
        _draw_keys()
        _say(session)
        if gone and name != "trace":
            empty_states.trace_gone()
    # Where there are neither jobs nor results, a page of results has nothing to say.
    parts = [
        _nothing if gone and name in run_status.RESULTS and session.shown is None else chosen.run,
        lambda: _bar(name, bar, below),
    ]
    # The bar is filled last, because it tells what the forms of a page have made of the study.
    # Pages of results and the first one have none, and would draw charts before its Run is seen.
    for part in reversed(parts) if name in _BAR_FIRST else parts:
        faults.guarded(part)
    state.write_address()
    if session.study.base.name != named:
        st.rerun()  # for the title of the window
    session.drawn_s = time.monotonic()


def _navigation(title: str) -> st.Page:
    st.set_page_config(page_title=title, page_icon=str(_ICON), layout="wide")
    st.html(f"<style>{''.join(one.read_text(encoding='utf-8') for one in _STYLES)}</style>")
    st.html(
        f"<script>{''.join(one.read_text(encoding='utf-8') for one in _SCRIPTS)}</script>"
        f"{browser_identity.script()}",
        unsafe_allow_javascript=True,
    )
    pages = [
        st.Page(
            f"pages/{name}.py",
            title=title,
            url_path=_HOME if name == _FIRST else name,
            default=name == _FIRST,
        )
        for name, title in PAGES.items()
    ]
    # The first page has no name in its address, but people type one; Streamlit keeps the one that
    # it is given from all others.
    named = st.Page(_to_first, title=PAGES[_FIRST], url_path=_FIRST, visibility="hidden")
    return st.navigation([*pages, named], position="top")


def _to_first() -> None:
    st.switch_page(f"pages/{_FIRST}.py", query_params=st.query_params.to_dict())


def _say(session: state.Session) -> None:
    """Draw what is said once."""
    if session.notice:
        st.error(words.plain(session.notice), icon=":material/error:")
    if session.news:
        st.info(words.plain(session.news), icon=":material/info:")
    session.notice = session.news = ""


def _closed(sentence: str) -> None:
    """Draw what every page says while there is no store: nothing can be loaded, run or kept. Every
    run of the page tries again.
    """
    _navigation("Trainyard")
    st.error(words.plain(sentence), icon=":material/error:")
    st.button("Try again", key="try_again", icon=":material/refresh:")


def page(name: str, body: Callable[[], None]) -> None:
    """Run the body of a page, after app.py has run in this session.

    Notes
    -----
    A folder called pages/ makes a fresh server answer a deep link by running the page's file alone.
    Then app.py is run instead, with the page in the address, and goes there.
    """
    if not state.is_open():
        st.switch_page("app.py", query_params={**st.query_params.to_dict(), TARGET: name})
    body()


def _nothing() -> None:
    """Draw no page."""


def _bar(name: str, bar: DeltaGenerator, below: DeltaGenerator) -> None:
    with bar:
        scenario_bar.draw(name)
    with below:
        scenario_bar.lines(name)


def _go_to_target() -> None:
    name = st.query_params.get(TARGET)
    if name in PAGES:
        rest = {key: value for key, value in st.query_params.to_dict().items() if key != TARGET}
        st.switch_page(f"pages/{name}.py", query_params=rest)


def _draw_keys() -> None:
    """Draw the button, which only the script sees."""
    if st.button("Keys", key="keys"):
        _listed()


@st.dialog("Keys", width="medium")
def _listed() -> None:
    for place, keys in _SHORTCUTS.items():
        rows = "".join(f"| {key} | {what} |\n" for key, what in keys.items())
        st.markdown(f"| {place} | |\n|---|---|\n{rows}")
