"""Policies: which are compared, what they do, and what they cost."""

from __future__ import annotations

import streamlit as st

from sim.errors import TrainyardError
from trainyard.traces import start
from trainyard.traces.sources import load_trace
from ui import server, state, words
from ui.choosing import policies
from ui.layout import page


def body() -> None:
    """Draw the page."""
    study = state.session().study
    try:
        trace = load_trace(study.base.trace, server.store())
    except TrainyardError as error:
        if not start.trace_is_gone(study, server.store()):  # else it is said above
            st.warning(words.plain(str(error)), icon=":material/warning:")
        trace = None
    policies.draw(trace)


if __name__ == "__main__":
    page("policies", body)
