"""Explore: one or two policies by machine, instant and job."""

from __future__ import annotations

from functools import partial

import streamlit as st

from ui import comparison, empty_states, explore_params, job_drawer, state, zoom_window
from ui.exploring import instant as explore_moment
from ui.exploring import machines as explore
from ui.layout import run_page

_TITLE = "Explore"
_ABOUT = "This page will show which machines were in use and when, and which jobs waited and why."


def body() -> None:
    """Draw Explore: policy choice, options, zoom window, job drawer, machine map, instant."""
    session = state.session()
    if session.page_changed:
        explore_moment.stop()
    explore_params.sync_url(session.displayed_study)
    compared = comparison.compare_displayed(session, _TITLE, _ABOUT)
    if compared is None:
        return
    end_s = compared.report.end_s
    empty_states.draw_running(session, compared.runs)
    with st.container(horizontal=True, vertical_alignment="center", key="explore_bar"):
        policy_indices = explore.draw_policy_choice(compared)
        zoomed = compared.with_window(zoom_window.current(end_s))
        explored = explore_params.open_runs(zoomed, policy_indices)
        options = explore.draw_options(explored)
        zoom_window.draw("explore", end_s, zoomed.axis.clock)
        if compared.runs.study.repeats > 1:
            st.caption(f"first repeat, seed {compared.runs.study.base.seed}")
    job_drawer.draw(compared, list(explored.books))
    machine_map = explore.draw(explored, options, partial(explore_moment.pick, explored))
    if machine_map is not None:
        explore_moment.draw(explored, machine_map)


if __name__ == "__main__":
    run_page("explore", body)
