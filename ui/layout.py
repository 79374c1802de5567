"""Frame of every page: navigation, URL, scenario bar, messages and shortcuts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from sim.errors import TrainyardError
from trainyard.traces import new_study
from ui import (
    browser_identity,
    empty_states,
    error_boundary,
    run_status,
    scenario_bar,
    server,
    state,
    words,
)
from ui.ledger import component
from ui.what_if import slider

PAGES: Final = {
    "start": "Trainyard",
    "trace": "Trace",
    "cluster": "Cluster",
    "policies": "Policies",
    "compare": "Compare",
    "explore": "Explore",
    "plan": "Plan",
    "learn": "Learn",
    "docs": "Docs",
}
"""File name in pages/ -> title in the navigation, in the order of work."""
_FIRST: Final = next(iter(PAGES))
_HOME: Final = "home"
WITHOUT_BAR: Final = (_FIRST, "learn", "docs")
"""Pages that do not show the scenario."""
TARGET: Final = "page"
"""URL parameter: the page that app.py opens."""
_FILES: Final = Path(__file__).parent
_ICON: Final = _FILES / "icon.svg"
_STYLES: Final = (_FILES / "style.css", component.STYLE, _FILES / "comparing/tiles.css")
_SCRIPTS: Final = (
    _FILES / "frame.js",
    slider.SCRIPT,
    component.SCRIPT,
    _FILES / "comparing/tiles.js",
)
"""Scripts of every page; components would send theirs with every drawing."""
_LOST: Final = (
    '<p class="ty-lost-line" role="status">The connection to the server is lost. The page stays'
    " and reconnects by itself.</p>"
)
_SHORTCUTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Everywhere": {
        "Tab, Shift+Tab": "next or previous control (a table, list or tab row counts as one)",
        "← → in the bar": "previous or next part of the scenario",
        "Enter, Space": "press, open, tick",
        "Esc": "close a menu or drawer; reset the zoom window",
        "?": "this list",
    },
    "Slider": {
        "← →": "change the value; the results follow",
        "↑ ↓": "change the setting",
    },
    "Table of policies": {
        "↑ ↓": "previous or next policy",
        "Enter": "highlight it",
        "← →": "earlier or later instant; Shift: ten steps",
        "Home, End": "begin or end of the window",
    },
    "List of policies": {
        "↑ ↓": "previous or next policy",
        "Space": "add to or remove from the comparison",
        "Enter": "open its settings",
        "/": "search",
    },
}


def run_app() -> None:
    """Run the app once: open the session, draw the frame and the page, update the URL."""
    try:
        session = state.open_session()
    except TrainyardError as error:
        _draw_no_store(str(error))
        return
    session.drawing_s = time.monotonic()
    scenario_name = session.study.base.name
    current_page = _draw_navigation(
        f"{scenario_name} · Trainyard" if scenario_name else "Trainyard"
    )
    session.drawn_finished_count = session.finished_count
    if current_page.url_path == _FIRST:
        current_page.run()
    _open_target_page()
    # Here for parameters that the page change dropped, below for edits of this run; without changes
    # nothing is sent.
    state.write_url()
    name = current_page.url_path or _FIRST
    session.page, session.page_changed = name, session.page != name
    has_bar = name not in WITHOUT_BAR
    bar = st.container(key="bar_place") if has_bar else None
    below = st.container(key="bar_lines", gap="xsmall")
    is_trace_gone = new_study.is_trace_missing(session.study, server.store())
    with below:
        st.html(_LOST)
        _draw_keys()
        _draw_messages(session)
        if is_trace_gone and has_bar and name != "trace":
            empty_states.draw_trace_gone()
    # A page of results stays empty without jobs and results.
    is_empty = is_trace_gone and name in run_status.RESULTS and session.displayed_study is None
    parts = [] if is_empty else [current_page.run]
    if bar is not None:
        # Reserves the height of the bar, so that the page does not move when it is drawn.
        bar.html(scenario_bar.MENU)
        parts.append(partial(_draw_bar, name, bar, below))
    # The bar is drawn last, because forms of the page change the study. Pages without forms draw it
    # first, so that Run appears before their charts.
    for part in reversed(parts) if name in run_status.RESULTS else parts:
        error_boundary.run_guarded(part)
    state.write_url()
    if session.study.base.name != scenario_name:
        st.rerun()  # updates the window title
    session.drawn_s = time.monotonic()


def _draw_navigation(title: str) -> st.Page:
    """Set page title, styles and scripts; draw the navigation; return the current page."""
    st.set_page_config(page_title=title, page_icon=str(_ICON), layout="wide")
    st.html(f"<style>{''.join(path.read_text(encoding='utf-8') for path in _STYLES)}</style>")
    st.html(
        f"<script>{''.join(path.read_text(encoding='utf-8') for path in _SCRIPTS)}</script>"
        f"{browser_identity.cookie_script()}",
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
    # The first page has no name in its URL, but users type one; a hidden page redirects it.
    start_alias = st.Page(
        _open_first_page, title=PAGES[_FIRST], url_path=_FIRST, visibility="hidden"
    )
    current_page = st.navigation([*pages, start_alias], position="hidden")
    with st.container(key="navigation", horizontal=True, wrap=False, gap="xxsmall"):
        for page in pages:
            st.page_link(page)
    return current_page


def _open_first_page() -> None:
    st.switch_page(f"pages/{_FIRST}.py", query_params=st.query_params.to_dict())


def _draw_messages(session: state.Session) -> None:
    """Draw the notice and the news of the session, and clear both."""
    if session.notice:
        st.error(words.plain(session.notice), icon=":material/error:")
    if session.news:
        st.info(words.plain(session.news), icon=":material/info:")
    session.notice = session.news = ""


def _draw_no_store(sentence: str) -> None:
    """Draw the page of a server without a store: the error, and a button to try again."""
    _draw_navigation("Trainyard")
    st.error(words.plain(sentence), icon=":material/error:")
    st.button("Try again", key="try_again", icon=":material/refresh:")


def run_page(name: str, body: Callable[[], None]) -> None:
    """Run the body of a page; a fresh session runs app.py first.

    Notes
    -----
    With a folder called pages/, a fresh server answers a deep link by running the page's file
    alone. Then app.py runs instead, with the page in the URL, and opens it.
    """
    if not state.is_open():
        st.switch_page("app.py", query_params={**st.query_params.to_dict(), TARGET: name})
    body()


def _draw_bar(name: str, bar: DeltaGenerator, below: DeltaGenerator) -> None:
    """Draw the scenario bar, and its warnings below it."""
    with bar:
        scenario_bar.draw(name)
    with below:
        scenario_bar.draw_warnings(name)


def _open_target_page() -> None:
    """Switch to the page named in the URL, if any, keeping other parameters."""
    name = st.query_params.get(TARGET)
    if name in PAGES:
        other_parameters = {
            key: value for key, value in st.query_params.to_dict().items() if key != TARGET
        }
        st.switch_page(f"pages/{name}.py", query_params=other_parameters)


def _draw_keys() -> None:
    """Draw the hidden button that the script presses on "?"; it opens the shortcuts."""
    if st.button("Keys", key="keys"):
        _draw_shortcuts()


@st.dialog("Keys", width="medium")
def _draw_shortcuts() -> None:
    """Draw the keyboard shortcuts in a dialog."""
    for place, keys in _SHORTCUTS.items():
        rows = "".join(f"| {key} | {action} |\n" for key, action in keys.items())
        st.markdown(f"| {place} | |\n|---|---|\n{rows}")
