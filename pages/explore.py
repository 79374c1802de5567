"""Explore: what happened, machine by machine, instant by instant, job by job, and why jobs waited."""

from __future__ import annotations

import streamlit as st

from ui import state, states
from ui.comparing import comparison, overview
from ui.exploring import job as explore_job
from ui.exploring import machines as explore
from ui.exploring import moment as explore_moment
from ui.exploring import node as explore_node
from ui.exploring import view as explore_view
from ui.shell import page

_TITLE = "What happened, and why?"
_ABOUT = "This page will show which machines were in use and when, who waited at any instant, and for each job what became of it and why it waited."


def body() -> None:
    """Draw the page."""
    mine = state.desk()
    if mine.arrived:
        explore_moment.stop()
    explore_view.keep(mine.shown)
    opened = comparison.opened(mine, _TITLE, _ABOUT)
    if opened is None:
        return
    said, shown, look = opened
    st.title(_TITLE, anchor=False)
    chosen = explore.policies(said, shown)
    states.pending(mine, shown)
    window = overview.draw(said, look, "explore")
    scene = explore_view.scene(said, look, shown, chosen, window)
    left_px = explore.occupancy(scene)
    explore_moment.draw(scene, left_px)
    explore_job.draw(scene)
    explore_node.draw(scene)
    st.page_link("pages/compare.py", label="Compare the policies", icon=":material/arrow_back:")


if __name__ == "__main__":
    page("explore", body)
