"""Start: what this is, and one click to a result."""

from __future__ import annotations

from typing import Final, Literal

import streamlit as st

from trainyard.study.study import Study
from trainyard.traces import start
from ui import library, picture, state
from ui.layout import page

_DOORS: Final = (
    (
        "Slurm sacct, Philly, Helios, Microsoft ITP, Gavel, SWF, or any table as CSV, Parquet or"
        " JSON; the page says what was understood and what was left out.",
        "trace",
        "Load a job trace",
        ":material/upload_file:",
    ),
    (
        "The fewest nodes for a wait that you accept, and what they cost a month.",
        "plan",
        "Decide what to buy",
        ":material/query_stats:",
    ),
    (
        "Short exercises, and what papers claim beside what comes out here. A link lets a class"
        " see the same.",
        "learn",
        "Learn or teach",
        ":material/school:",
    ),
)
"""What a visitor finds behind a door, the page, what the door is called, and its sign."""


def body() -> None:
    """Draw the page."""
    study = start.sample_study()
    with st.container(horizontal=True, vertical_alignment="center", key="opening"):
        with st.container(gap=None):
            st.title("What would another scheduler have done?", anchor=False)
            st.caption(
                "Replay a job trace on a GPU cluster under several schedulers: how long jobs wait,"
                " when they are done, how busy the GPUs are and what that costs."
            )
        _run(study)
    picture.draw(study)
    _doors()
    library.open_file()
    library.draw()


def _run(study: Study) -> None:
    session = state.session()
    # With a scenario of the user the one primary button is that of the bar.
    kind: Literal["primary", "secondary"] = "primary" if session.on_sample else "secondary"
    if st.button("Run the sample", key="run_sample", type=kind, icon=":material/play_arrow:"):
        session.replace(study)
        session.run()
        st.switch_page("pages/compare.py", query_params=state.address())


def _doors() -> None:
    grid = st.container(key="doors").grid(3, min_column_width=280)
    for why, target, label, icon in _DOORS:
        with grid.cell(), st.container(border=True, height="stretch", gap=None):
            st.page_link(f"pages/{target}.py", label=f"**{label}**", icon=icon)
            st.caption(why)


if __name__ == "__main__":
    page("start", body)
