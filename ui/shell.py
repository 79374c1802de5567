"""What surrounds every page: navigation, address, sidebar, and the border at which faults become sentences."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.traces import start
from ui import owner, server, sidebar, state, states, words

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
TARGET: Final = "page"
"""Parameter of the address: where app.py shall go at once."""
_STYLE: Final = Path(__file__).with_name("style.css")
_ICON: Final = Path(__file__).with_name("icon.svg")
_ONE_ENTRY_PER_PAGE: Final = """<script>
if (!window.trainyardHistory) {
  window.trainyardHistory = true;
  const push = history.pushState.bind(history);
  history.pushState = (state, title, url) =>
    new URL(url, location.href).pathname === location.pathname ? history.replaceState(state, title, url) : push(state, title, url);
}
</script>"""
"""Streamlit pushes an entry whenever parameters of the address change; Back is to lead to the page before, with one press."""
_LOG: Final = logging.getLogger(__name__)


def main() -> None:
    """Run the app once: what app.py does."""
    try:
        mine = state.open_desk()
    except TrainyardError as error:
        _closed(str(error))
        return
    named = mine.study.base.name
    chosen = _navigation(f"{named} · Trainyard" if named else "Trainyard")
    mine.settled = mine.over
    if chosen.url_path == _FIRST:
        chosen.run()
    _go_to_target()
    # Here for what the change of page has dropped, and below for what this run has edited: each writes only if there is something to write.
    state.write_address()
    name = chosen.url_path or _FIRST
    mine.page, mine.arrived = name, mine.page != name
    _say(mine)
    gone = start.trace_is_gone(mine.study, server.store())
    if gone and name != "trace":
        states.trace_gone()
    # Where there are neither jobs nor results, a page of results has nothing to say.
    parts = [_nothing if gone and name in sidebar.RESULTS and mine.shown is None else chosen.run, lambda: _sidebar(name)]
    # The sidebar comes last, because it tells what the forms of a page have made of the study. Pages of results have none, and would draw charts before its
    # Run is seen.
    for part in reversed(parts) if name in sidebar.RESULTS else parts:
        guarded(part)
    state.write_address()
    if mine.study.base.name != named:
        st.rerun()  # for the title of the window
    mine.drawn_s = time.monotonic()


def _navigation(title: str) -> st.Page:
    st.set_page_config(page_title=title, page_icon=str(_ICON), layout="wide")
    st.html(_STYLE)
    st.html(_ONE_ENTRY_PER_PAGE + owner.script(), unsafe_allow_javascript=True)
    pages = [st.Page(f"pages/{name}.py", title=title, url_path=_HOME if name == _FIRST else name, default=name == _FIRST) for name, title in PAGES.items()]
    # The first page has no name in its address, but people type one; Streamlit keeps the one that it is given from all others.
    named = st.Page(_to_first, title=PAGES[_FIRST], url_path=_FIRST, visibility="hidden")
    return st.navigation([*pages, named], position="top")


def _to_first() -> None:
    st.switch_page(f"pages/{_FIRST}.py", query_params=st.query_params.to_dict())


def _say(mine: state.Desk) -> None:
    """Draw what is said once."""
    if mine.notice:
        st.error(words.plain(mine.notice), icon=":material/error:")
    if mine.news:
        st.info(words.plain(mine.news), icon=":material/info:")
    mine.notice = mine.news = ""


def _closed(sentence: str) -> None:
    """Draw what every page says while there is no store: nothing can be loaded, run or kept. Every run of the page tries again."""
    _navigation("Trainyard")
    st.error(words.plain(sentence), icon=":material/error:")
    st.button("Try again", key="try_again", icon=":material/refresh:")


def page(name: str, body: Callable[[], None]) -> None:
    """Run the body of a page, after app.py has run in this session.

    Notes
    -----
    A folder called pages/ makes a fresh server answer a deep link by running the page's file alone. Then app.py is run instead, with the page in the address,
    and goes there.
    """
    if not state.is_open():
        st.switch_page("app.py", query_params={**st.query_params.to_dict(), TARGET: name})
    body()


def guarded(body: Callable[[], None]) -> None:
    """Run a part of the page; a fault ends this part only, with one sentence."""
    try:
        body()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
    except Exception as error:  # the border of the process: a user never sees a traceback
        _LOG.exception("A fault on the page")
        st.error(f"A fault in Trainyard stopped this part of the page ({type(error).__name__}). The log of the server says more; please report it.")


def _nothing() -> None:
    """Draw no page."""


def _sidebar(name: str) -> None:
    with st.sidebar:
        sidebar.draw(name)


def _go_to_target() -> None:
    name = st.query_params.get(TARGET)
    if name in PAGES:
        rest = {key: value for key, value in st.query_params.to_dict().items() if key != TARGET}
        st.switch_page(f"pages/{name}.py", query_params=rest)
