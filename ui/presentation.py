"""Presentation mode of Compare and of lessons: large type, arrow keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.library import library
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.views.compared_runs import ComparedRuns
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


def draw_button(menu: str) -> None:
    """Draw the button Presentation mode in a menu; a click also closes that menu."""
    st.button(
        "Presentation mode",
        key="present",
        icon=":material/present_to_all:",
        type="tertiary",
        on_click=_on_present,
        args=(menu,),
    )


def _on_present(menu: str) -> None:
    """Close the menu, and request the presentation for the next run of the script."""
    st.session_state[menu] = False
    st.session_state[_BEGINS] = True


def open_if_requested() -> None:
    """Switch to Compare in presentation mode if that was requested."""
    if st.session_state.pop(_BEGINS, False):
        url_params.set_param(url_params.PRESENT, "1")
        st.switch_page(
            "pages/compare.py", query_params=state.url_parameters() | {url_params.PRESENT: "1"}
        )


def draw(compared: ComparedRuns) -> None:
    """Draw the presentation of Compare."""
    draw_frame("← → policy · ↑ ↓ saved comparison", partial(_on_arrow, compared))


def draw_frame(hint: str, on_arrow: Callable[[str], None]) -> None:
    """Draw style, key bindings, a hint on keys, and the button that ends the presentation.

    `on_arrow` handles "left", "right", "up" and "down".
    """
    st.html(_HERE / "presenting.css")
    large = {"large": figure.has_large_type()}
    _MOUNT(key=_KEY, data=large, on_step_change=lambda: _on_step(on_arrow))
    with st.container(key="presenting_keys", horizontal=True, vertical_alignment="center"):
        st.markdown(hint)
        st.button("Leave (Esc)", key="presenting_leave", on_click=_on_leave, type="tertiary")


def _on_step(on_arrow: Callable[[str], None]) -> None:
    """Handle a key: an arrow, type size, or leave."""
    step = st.session_state[_KEY].step
    if step == "leave":
        _on_leave()
    elif step in ("large_type", "small_type"):
        st.session_state[figure.LARGE_TYPE] = step == "large_type"
    elif step:
        on_arrow(step)


def _on_arrow(compared: ComparedRuns, arrow: str) -> None:
    """Highlight another policy, or open another saved comparison."""
    step = 1 if arrow in ("right", "down") else -1
    if arrow in ("left", "right"):
        _highlight_next(compared, step)
    else:
        _open_saved(step)


def _on_leave() -> None:
    """End the presentation."""
    url_params.set_param(url_params.PRESENT, "")


def _highlight_next(compared: ComparedRuns, step: int) -> None:
    """Highlight the policy `step` places further, never the baseline; wrap at the ends."""
    report = compared.report
    titles = [title for title in report.labels if title != compared.baseline]
    if titles:
        high = comparison.highlighted_policy(report)
        index = titles.index(high) + step if high in titles else 0
        url_params.set_param(url_params.HIGH, titles[index % len(titles)])


def _open_saved(step: int) -> None:
    """Open the saved comparison `step` places further by id, among those with all results."""
    session = state.session()
    saved = [
        item
        for item in library.items(server.store(), browser_identity.owner())
        if item.kind == "study" and item.there == item.runs
    ]
    if not saved or session.displayed_study is None:
        return
    # Opening a run moves it to the top of the list, so the order here is by id.
    saved.sort(key=lambda item: item.id)
    ids = [item.id for item in saved]
    own = library.recipe_id(session.displayed_study.with_name(""))
    item = saved[(ids.index(own) + step) % len(saved) if own in ids else 0]
    try:
        recipe = item.recipe()
        if isinstance(recipe, Study):
            session.open(new_study.refuse_server_file(recipe).with_name(item.name))
            session.window = None
            url_params.set_param(url_params.HIGH, "")
    except TrainyardError as error:
        session.notice = str(error)
