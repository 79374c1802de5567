"""The tab "What if" of Plan: a slider over node counts or load that redraws the results."""

from __future__ import annotations

from typing import Final

import streamlit as st

from trainyard.traces import new_study
from ui import server, state
from ui.comparing import screen
from ui.what_if import settings

NAME: Final = "what_if"
_NONE: Final = (
    "No policy of this scenario is fast enough for the slider. Add FIFO, SJF or EASY backfilling"
    " (for jobs of fixed size)."
)


def draw() -> None:
    """Draw the tab "What if": the slider and its results, or that no policy is fast enough."""
    session = state.session()
    if new_study.is_trace_missing(session.study, server.store()):
        return  # a warning above the page reports it
    if not settings.settings_or_empty(session.study):
        st.info(_NONE, icon=":material/rule:")
        st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")
        return
    displayed = session.displayed_study
    screen.draw_slider_page(
        displayed if displayed is not None and displayed.matches(session.study) else None
    )
