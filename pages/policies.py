"""Policies: the list of policies to compare, and their settings."""

from __future__ import annotations

import streamlit as st

from sim.errors import TrainyardError
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace
from ui import server, state, words
from ui.choosing import policies
from ui.layout import run_page


def body() -> None:
    """Draw the Policies page; a trace that cannot be read gives a warning."""
    study = state.session().study
    try:
        trace = load_trace(study.base.trace, server.store())
    except TrainyardError as error:
        if not new_study.is_trace_missing(study, server.store()):  # else reported above
            st.warning(words.plain(str(error)), icon=":material/warning:")
        trace = None
    policies.draw(trace)


if __name__ == "__main__":
    run_page("policies", body)
