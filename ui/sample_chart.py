"""The stored result of the sample on Start: the queue under its first two policies."""

from __future__ import annotations

from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.formatting import count
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.samples import SAMPLES
from trainyard.views import over_time
from trainyard.views.compared_runs import ComparedRuns
from ui import comparison, figure, stored_results, words

HEIGHT_PX: Final = 280
_SHOWN: Final = 2
"""Policies in the chart; what the others do is the question of the first lessons."""
_LOOK_S: Final = 2.0
"""Seconds between two checks whether the server has prepared the result."""


def draw(study: Study) -> None:
    """Draw the queue chart of the sample, or a placeholder until its results are stored."""
    study = new_study.with_policies(study, study.allocators[:_SHOWN])
    with st.container(key="picture", gap=None):
        compared = _compare_all(study)
        if compared is None:
            st.fragment(_draw_placeholder, run_every=_LOOK_S)(study)
            return
        first, second = compared.runs.titles
        peaks = {title: count(compared.loads.runs[title].peak) for title in (first, second)}
        text = f"at most {peaks[second]} with {second}, {peaks[first]} with {first}"
        st.markdown(f"**Jobs waiting, sample week: {words.plain(text)}**")
        view = figure.cached_view(
            ("picture", compared.report.mark),
            lambda: over_time.queue(compared, compared.look(second), only_queue=True),
        )
        figure.draw(view, "picture_chart", is_bare=True, height=HEIGHT_PX)
        st.caption(_description(study))


def _draw_placeholder(study: Study) -> None:
    """Draw a box in place of the chart; rerun the page when the result is stored."""
    stored_results.clear_lookups()
    if _compare_all(study) is not None:
        st.rerun()
    st.caption(f"{_description(study)} The result takes about two seconds.")
    # As high as the chart, so that nothing below moves when it appears.
    st.container(height=HEIGHT_PX, border=True)


def _compare_all(study: Study) -> ComparedRuns | None:
    """Return the comparison of a study; None until all its policies are stored."""
    try:
        compared = comparison.compare(stored_results.gather(study))
    except TrainyardError:  # a stored result was just removed
        return None
    if compared is None or len(compared.runs.places) < len(compared.runs.titles):
        return None
    return compared


def _description(study: Study) -> str:
    """Return the description of a study's sample."""
    return SAMPLES[study.base.trace.source.partition(":")[2]].description
