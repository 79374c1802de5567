"""Start: what Trainyard is, a sample, the papers' policies, entry points, and your runs."""

from __future__ import annotations

from typing import Final, Literal

import streamlit as st

from trainyard.study.study import Study
from trainyard.traces import new_study
from ui import library, paper_cards, sample_chart, state
from ui.layout import run_page

_ENTRY_POINTS: Final = (
    (
        "Slurm sacct, Philly, Helios, Microsoft ITP, Gavel, SWF, or any table as CSV, Parquet or"
        " JSON. Dropped rows are reported.",
        "trace",
        "Load a job trace",
        ":material/upload_file:",
    ),
    (
        "The fewest nodes that keep waits below your limit, and their price per month.",
        "plan",
        "Decide what to buy",
        ":material/query_stats:",
    ),
    (
        "Short lessons, and replays of published results. Share them with a class by link.",
        "learn",
        "Learn or teach",
        ":material/school:",
    ),
)
"""Description, page, label and icon of each entry point."""


def body() -> None:
    """Draw the Start page: sample, cards of papers, entry points, uploader, list of runs."""
    study = new_study.sample_study()
    with st.container(horizontal=True, vertical_alignment="center", key="opening"):
        with st.container(gap=None):
            st.title("What would another scheduler have done?", anchor=False)
            st.caption(
                "Replay a job trace on a GPU cluster under several scheduling policies: wait and"
                " completion times, GPU use, and cost."
            )
        _draw_run_button(study)
    sample_chart.draw(study)
    if (card_study := paper_cards.draw()) is not None:
        _run_and_compare(card_study)
    _draw_entry_points()
    library.draw_file_uploader()
    library.draw()


def _draw_run_button(study: Study) -> None:
    """Draw the button that loads the sample scenario, runs it and opens Compare."""
    session = state.session()
    # With a scenario of the user, the one primary button is Run in the bar.
    kind: Literal["primary", "secondary"] = "primary" if session.on_sample else "secondary"
    if st.button("Open the sample", key="run_sample", type=kind, icon=":material/play_arrow:"):
        _run_and_compare(study)


def _run_and_compare(study: Study) -> None:
    """Make a study the scenario, run it and open Compare."""
    session = state.session()
    session.replace(study)
    session.run()
    st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _draw_entry_points() -> None:
    """Draw the three entry points: load a trace, decide what to buy, learn."""
    grid = st.container(key="doors").grid(3, min_column_width=280)
    for description, page_name, label, icon in _ENTRY_POINTS:
        with grid.cell(), st.container(border=True, height="stretch", gap=None):
            st.page_link(f"pages/{page_name}.py", label=f"**{label}**", icon=icon)
            st.caption(description)


if __name__ == "__main__":
    run_page("start", body)
