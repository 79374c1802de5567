"""Start: what this is, and one click to a result."""

from __future__ import annotations

import streamlit as st

from trainyard.traces import start
from trainyard.traces.samples import SAMPLES
from ui import library, lookup, scenario_file, state
from ui.shell import page


def body() -> None:
    """Draw the page."""
    st.title("What would another scheduler have done?", anchor=False)
    st.write("Replay a job trace on a GPU cluster under several schedulers; see who waits, who finishes when, how busy the GPUs are and what it costs.")
    _sample()
    _doors()
    scenario_file.opener()
    library.draw()


def _sample() -> None:
    sample, study = SAMPLES[start.FIRST_SAMPLE], start.sample_study()
    ready = all(lookup.gather(study).entries)
    with st.container(border=True):
        st.markdown(f"**See it now.** {sample.description} {'Its result is stored here, so it is there at once.' if ready else 'About two seconds.'}")
        if st.button("Run the sample", key="run_sample", type="primary", icon=":material/play_arrow:"):
            mine = state.desk()
            mine.replace(study)
            mine.run()
            st.switch_page("pages/compare.py", query_params=state.address())


def _doors() -> None:
    grid = st.grid(min_column_width=280)
    with grid.cell(), st.container(border=True, height="stretch"):
        st.markdown("**I have a job trace**")
        st.write(
            "Slurm `sacct`, Philly, Helios, Microsoft ITP, Gavel, SWF, or any table as CSV, TSV, Parquet or JSON. It says what it understood and left out."
        )
        st.page_link("pages/trace.py", label="Load a trace", icon=":material/upload_file:")
    with grid.cell(), st.container(border=True, height="stretch"):
        st.markdown("**I must decide what to buy**")
        st.write("Describe the cluster you have, with its prices, and say what wait you can accept: the fewest nodes for it, and what they cost a month.")
        with st.container(horizontal=True):
            st.page_link("pages/plan.py", label="Find the fewest nodes", icon=":material/query_stats:")
            st.page_link("pages/cluster.py", label="Describe the cluster", icon=":material/dns:")
    with grid.cell(), st.container(border=True, height="stretch"):
        st.markdown("**I am in a class**")
        st.write("Short exercises, and what papers claim beside what the simulation gives. A link holds the whole scenario, so all see the same.")
        st.page_link("pages/learn.py", label="Learn", icon=":material/school:")


if __name__ == "__main__":
    page("start", body)
