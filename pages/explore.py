"""Explore: what two policies did, machine by machine, instant by instant, job by job."""

from __future__ import annotations

import streamlit as st

from ui import comparison, empty_states, exploration, job_drawer, state, zoom_window
from ui.exploring import machines as explore
from ui.exploring import moment as explore_moment
from ui.layout import page

_TITLE = "Explore"
_ABOUT = (
    "This page shows which machines were in use and when, which jobs waited at any instant, and"
    " why."
)


def body() -> None:
    """Draw the page."""
    session = state.session()
    if session.arrived:
        explore_moment.stop()
    exploration.keep(session.shown)
    compared = comparison.opened(session, _TITLE, _ABOUT)
    if compared is None:
        return
    end_s = compared.report.end_s
    empty_states.pending(session, compared.runs)
    with st.container(horizontal=True, vertical_alignment="center", key="explore_bar"):
        chosen = explore.policies(compared)
        seen = compared.seen(zoom_window.current(end_s))
        explored = exploration.explored(seen, chosen)
        wanted = explore.choices(explored)
        zoom_window.draw("explore", end_s, seen.axis.clock)
        if compared.runs.study.repeats > 1:
            st.caption(f"first repeat, seed {compared.runs.study.base.seed}")
    job_drawer.draw(compared, list(explored.books))
    shown = explore.draw(explored, wanted)
    if shown is not None:
        explore_moment.draw(explored, shown)


if __name__ == "__main__":
    page("explore", body)
