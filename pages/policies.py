"""Policies: which schedulers, what they do, and what they cost."""

from __future__ import annotations

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results import outcomes
from trainyard.study import catalog
from trainyard.traces import start
from trainyard.traces.sources import load_trace
from ui import server, state, words
from ui.choosing import knobs, policy_cards
from ui.shell import page


def body() -> None:
    """Draw the page."""
    st.title("Which schedulers?", anchor=False)
    study = state.desk().study
    try:
        trace = load_trace(study.base.trace, server.store())
    except TrainyardError as error:
        if not start.trace_is_gone(state.desk().study, server.store()):  # else it is said above
            st.warning(words.plain(str(error)), icon=":material/warning:")
        trace = None
    knobs.scaling(trace)
    knobs.belief()
    knobs.selectable(trace)
    study = state.desk().study
    policy_cards.baseline()
    many = len(study.allocators) - outcomes.MOST_SHOWN
    if many > 0:
        st.info(f"Charts show the first {outcomes.MOST_SHOWN} policies; the table shows all {len(study.allocators)}.", icon=":material/info:")
    choices = policy_cards.goal(catalog.allocator_choices(trace, study.base.perf))
    grid = st.grid(2, min_column_width=380)
    largest = 1 if trace is None else int(trace.numbers("num_gpus").max(initial=1.0))
    for choice in choices:
        with grid.cell():
            policy_cards.card(choice, largest)
    st.page_link("pages/compare.py", label="Next: compare", icon=":material/arrow_forward:")


if __name__ == "__main__":
    page("policies", body)
