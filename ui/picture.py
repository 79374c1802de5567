"""The stored result of the sample as a live picture on Start: its finding, and its chart over
time.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.study.study import Study
from trainyard.traces.samples import SAMPLES
from trainyard.views import over_time
from trainyard.views.compared import ComparedRuns
from ui import comparison, figure, stored_results, words

HEIGHT_PX: Final = 300
_LOOK_S: Final = 2.0
"""Seconds between two looks at whether the server has prepared the result."""


def draw(study: Study) -> None:
    """Draw the picture of a sample, or its place until there is a result."""
    with st.container(key="picture", gap=None):
        compared = _compared(study)
        if compared is None:
            st.fragment(_place, run_every=_LOOK_S)(study)
            return
        st.markdown(f"**{words.plain(compared.report.first_headline.text)}**")
        st.caption(_description(study))
        view = figure.kept(
            ("picture", compared.report.mark), lambda: over_time.queue(compared, alone=False)
        )
        figure.draw(view, "picture_chart", bare=True, height=HEIGHT_PX)


def _place(study: Study) -> None:
    stored_results.begin()
    if _compared(study) is not None:
        st.rerun()
    st.caption(f"{_description(study)} The result takes about two seconds.")
    # Its lines say where the picture comes; nothing below moves when it does.
    st.container(height=HEIGHT_PX, border=True)


def _compared(study: Study) -> ComparedRuns | None:
    """Return the runs of all policies; None until all are stored."""
    try:
        compared = comparison.compare(stored_results.gather(study))
    except TrainyardError:  # a result was removed meanwhile
        return None
    if compared is None or len(compared.runs.places) < len(compared.runs.titles):
        return None
    return compared


def _description(study: Study) -> str:
    return SAMPLES[study.base.trace.source.partition(":")[2]].description
