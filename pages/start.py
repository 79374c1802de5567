"""Start: what this is, and one click to a result."""

from __future__ import annotations

import streamlit as st

from lab import start
from lab.front import SAMPLES
from ui import scenario_file, state
from ui.shell import page


def body() -> None:
    """Draw the page."""
    st.title("What would another scheduler have done?", anchor=False)
    st.write("Replay a job trace on a GPU cluster under several schedulers; see who waits, who finishes when, how busy the GPUs are and what it costs.")
    _sample()
    _doors()
    scenario_file.opener()


def _sample() -> None:
    sample = SAMPLES[start.FIRST_SAMPLE]
    with st.container(border=True):
        st.markdown(f"**See it now.** {sample.description} About two seconds.")
        if st.button("Run the sample", key="run_sample", type="primary", icon=":material/play_arrow:"):
            mine = state.desk()
            mine.replace(start.sample_study())
            mine.run()
            st.switch_page("pages/compare.py", query_params=state.address())


def _doors() -> None:
    grid = st.grid(min_column_width=280)
    with grid.cell(), st.container(border=True, height="stretch"):
        st.markdown("**I have a job trace**")
        st.write("Slurm `sacct`, Philly, Helios, Microsoft ITP, or any CSV, TSV, Parquet or JSON. The page says what it understood and what it left out.")
        st.page_link("pages/trace.py", label="Load a trace", icon=":material/upload_file:")
    with grid.cell(), st.container(border=True, height="stretch"):
        st.markdown("**I have a cluster in mind**")
        st.write("GPU types of different speed and price, racks, partitions, failures, restart cost. Start from a preset and edit a table.")
        st.page_link("pages/cluster.py", label="Describe the cluster", icon=":material/dns:")
    with grid.cell(), st.container(border=True, height="stretch"):
        st.markdown("**I want to compare schedulers**")
        st.write("What each does, what it costs, what it needs to know, and where our reading of its paper had to choose.")
        st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")


if __name__ == "__main__":
    page("start", body)
