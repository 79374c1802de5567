"""Compare: who wins, by how much, and how sure that is."""

from __future__ import annotations

import streamlit as st

from trainyard.results.outcomes import Report, Shown
from ui import state, states
from ui.comparing import behind, comparison, exports, over_time, overview, tables, winners
from ui.shell import page

_TITLE = "Who wins, and by how much?"
_ABOUT = "This page will show the policies side by side: a table of metrics, jobs waiting, GPUs busy, and how long jobs take."


def body() -> None:
    """Draw the page."""
    mine = state.desk()
    opened = comparison.opened(mine, _TITLE, _ABOUT, listed=True)
    if opened is None:
        return
    said, shown, look = opened
    overloaded = said.told.verdict == "overload"
    whole = comparison.overloaded(said, shown, look) if overloaded else True
    if not overloaded:
        comparison.answer(said, shown, look)
    states.pending(mine, shown)
    window = overview.draw(said, look, "compare")
    over_time.linked(said, shown, look, window)
    if not whole:
        return
    _jobs(said, shown, look)
    behind.draw(said, shown, look, window)
    comparison.trust(said)
    exports.draw(said, shown)
    st.page_link("pages/explore.py", label="Explore what happened, machine by machine", icon=":material/arrow_forward:")


def _jobs(said: Report, shown: Shown, look: tables.Look) -> None:
    """Draw what the policies mean for jobs: how long they take, who wins and who loses."""
    grid = st.grid(2, min_column_width=420)
    with grid.cell():
        comparison.cdf(said, look)
    if said.changes:
        with grid.cell():
            winners.changes(said, look)
    winners.by_group(said, shown, look)


if __name__ == "__main__":
    page("compare", body)
