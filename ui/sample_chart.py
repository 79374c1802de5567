"""The stored result of the sample on Start: its headline and its chart over time."""

from __future__ import annotations

from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.traces.samples import SAMPLES
from trainyard.views import over_time
from trainyard.views.compared_runs import ComparedRuns
from ui import comparison, figure, stored_results, words

HEIGHT_PX: Final = 340
_LOOK_S: Final = 2.0
"""Seconds between two checks whether the server has prepared the result."""


def draw(study: Study) -> None:
    """Draw headline and queue chart of the sample, or a placeholder until all is stored."""
    with st.container(key="picture", gap=None):
        compared = _compare_all(study)
        if compared is None:
            st.fragment(_draw_placeholder, run_every=_LOOK_S)(study)
            return
        st.markdown(f"**{words.plain(compared.report.first_headline.text)}**")
        st.caption(_description(study))
        st.space("small")
        view = figure.cached_view(
            ("picture", compared.report.mark), lambda: over_time.queue(compared, compared.look())
        )
        figure.draw(view, "picture_chart", is_bare=True, height=HEIGHT_PX)


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
    """Return the description of a study's sample, and its policies with acronyms."""
    cards = [catalog.allocator(spec).card for spec in study.allocators]
    spelled = [f"{one.title}: {one.brief}." for one in cards if one and one.title.isupper()]
    return " ".join((SAMPLES[study.base.trace.source.partition(":")[2]].description, *spelled))
