"""Presentation mode: Compare for a projector, in large type, with arrow keys that step through
policies and saved comparisons.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.library import library
from trainyard.study.study import Study
from trainyard.traces import start
from trainyard.views.compared import ComparedRuns
from ui import browser_identity, comparison, figure, server, state, url_params

_HERE: Final = Path(__file__).parent
_KEY: Final = "presenting"
_BEGINS: Final = "presenting/begins"
_MOUNT: Final = st.components.v2.component(
    "trainyard_presenting",
    html="<span></span>",
    js=(_HERE / "presenting.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)
_STEPS: Final = {
    "next_policy": 1,
    "previous_policy": -1,
    "next_saved": 1,
    "previous_saved": -1,
}


def offer(menu: str) -> None:
    """Draw the entry of a menu that begins it, and closes the menu of this key."""
    st.button(
        "Present",
        key="present",
        icon=":material/present_to_all:",
        type="tertiary",
        on_click=_begin,
        args=(menu,),
    )


def _begin(menu: str) -> None:
    st.session_state[menu] = False
    st.session_state[_BEGINS] = True


def open_page() -> None:
    """Go to Compare if the entry of the menu was clicked; the menu is closed by then."""
    if st.session_state.pop(_BEGINS, False):
        url_params.put(url_params.PRESENT, "1")
        st.switch_page("pages/compare.py", query_params=state.address() | {url_params.PRESENT: "1"})


def draw(compared: ComparedRuns) -> None:
    """Draw what makes a presentation of the page: its style, its keys and how it is left."""
    st.html(_HERE / "presenting.css")
    large = {"large": figure.has_large_type()}
    _MOUNT(key=_KEY, data=large, on_step_change=lambda: _step(compared))
    with st.container(key="presenting_keys", horizontal=True, vertical_alignment="center"):
        st.markdown("← → policy · ↑ ↓ saved comparison")
        st.button("Leave (Esc)", key="presenting_leave", on_click=_leave, type="tertiary")


def _step(compared: ComparedRuns) -> None:
    step = st.session_state[_KEY].step
    if step == "leave":
        _leave()
    elif step in ("large_type", "small_type"):
        st.session_state[figure.LARGE_TYPE] = step == "large_type"
    elif step in ("next_policy", "previous_policy"):
        _highlight(compared, _STEPS[step])
    elif step in _STEPS:
        _open(_STEPS[step])


def _leave() -> None:
    url_params.put(url_params.PRESENT, "")


def _highlight(compared: ComparedRuns, step: int) -> None:
    report = compared.report
    titles = [title for title in report.labels if title != compared.baseline]
    if titles:
        high = comparison.subject(report)
        at = titles.index(high) + step if high in titles else 0
        url_params.put(url_params.HIGH, titles[at % len(titles)])


def _open(step: int) -> None:
    """Open the next comparison of this browser's shelf whose results are kept."""
    session = state.session()
    saved = [
        one
        for one in library.items(server.store(), browser_identity.owner())
        if one.kind == "study" and one.there == one.runs
    ]
    if not saved or session.shown is None:
        return
    # Opening one puts it first on the shelf, so the order is that of their ids.
    saved.sort(key=lambda one: one.id)
    ids = [one.id for one in saved]
    own = library.identity(session.shown.named(""))
    one = saved[(ids.index(own) + step) % len(saved) if own in ids else 0]
    try:
        recipe = one.recipe()
        if isinstance(recipe, Study):
            session.open(start.admitted(recipe).named(one.name))
            session.window = None
            url_params.put(url_params.HIGH, "")
    except TrainyardError as error:
        session.notice = str(error)
