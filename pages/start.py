"""Start: what Trainyard is, the sample, the drop field, the papers' policies, and your runs."""

from __future__ import annotations

import streamlit as st

from trainyard import documentation
from trainyard.study.study import Study
from trainyard.traces import intake, new_study
from ui import library, paper_cards, sample_chart, state
from ui.importing import upload
from ui.layout import run_page

_TUTORIAL = "tutorial/first-comparison.md"


def body() -> None:
    """Draw the Start page: opening, cards of papers, list of runs."""
    study = new_study.sample_study()
    with st.container(horizontal=True, key="opening", gap="large"):
        with st.container(key="opening_text"):
            st.title("Trainyard", anchor=False)
            st.markdown(
                "Replay GPU jobs under other scheduling policies. See waits, completion times,"
                " utilization and cost before you change anything."
            )
            with st.container(horizontal=True, vertical_alignment="center"):
                if st.button(
                    "Run the sample", key="run_sample", type="primary", icon=":material/play_arrow:"
                ):
                    _run_and_compare(study)
                st.page_link(
                    "pages/docs.py",
                    label="Tutorial, 10 min",
                    query_params={documentation.PAGE: _TUTORIAL},
                )
            upload.draw_uploader()
            st.caption(
                "Slurm, Kubernetes, Philly, Helios, Gavel, SWF, or any table as CSV, Parquet or"
                f" JSON; up to {intake.UPLOAD_MB} MB. Files stay on this server."
            )
        sample_chart.draw(study)
    if (card_study := paper_cards.draw()) is not None:
        _run_and_compare(card_study)
    library.draw()


def _run_and_compare(study: Study) -> None:
    """Make a study the scenario, run it and open Compare."""
    session = state.session()
    session.replace(study)
    session.run()
    st.switch_page("pages/compare.py", query_params=state.url_parameters())


if __name__ == "__main__":
    run_page("start", body)
