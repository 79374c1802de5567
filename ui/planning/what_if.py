"""The tab of the slider on Plan: the figures of Compare for other numbers of nodes or another load,
as they change.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from trainyard.traces import start
from ui import server, state
from ui.comparing import screen
from ui.what_if import settings

NAME: Final = "what_if"
_NONE: Final = (
    "No policy of this scenario can follow a slider: that takes a queue on plain conditions, such"
    " as FIFO, SJF or EASY backfilling on jobs of one size."
)


def draw() -> None:
    """Draw the tab."""
    session = state.session()
    if start.trace_is_gone(session.study, server.store()):
        return  # said above the page
    if not settings.offered(session.study):
        st.info(_NONE, icon=":material/rule:")
        st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")
        return
    shown = session.shown
    screen.draw_slider(shown if shown is not None and shown.matches(session.study) else None)
