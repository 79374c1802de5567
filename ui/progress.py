"""Runs under way: one line per policy, redrawn a few times a second without running the page, and a cancel that takes the page along."""

from __future__ import annotations

from typing import Final

import streamlit as st

from lab import outcomes
from lab.front import Job, Scenario
from ui import state, words

EVERY_S: Final = 0.25
"""How often progress is asked for while something runs."""


def watch() -> None:
    """Draw the runs of this session; polls only while one is going."""
    mine = state.desk()
    if not mine.live:
        return
    st.fragment(_lines, run_every=EVERY_S)()


def title_of(scenario: Scenario) -> str:
    """Return the title of a scenario's policy in the study shown, with its seed where runs are repeated."""
    mine = state.desk()
    study = mine.shown or mine.study
    names = dict(zip(study.allocators, outcomes.titles(study.allocators), strict=True))
    name = names.get(scenario.allocator, scenario.allocator.name)
    return name if study.repeats == 1 else f"{name}, seed {scenario.seed}"


def _lines() -> None:
    mine = state.desk()
    if mine.over != mine.settled or not mine.live:
        # A result has come or a run has failed: the whole page has something new to show.
        mine.settled = mine.over
        st.rerun()
    for job in mine.live:
        st.progress(min(max(job.share, 0.0), 1.0), text=_told(job))
    if st.button("Cancel", key="cancel", icon=":material/stop_circle:", width="stretch"):
        mine.cancel()
        mine.settled = mine.over
        st.rerun()


def _told(job: Job) -> str:
    title = title_of(job.scenario)
    if job.state == "waiting":
        return f"{title}: place {job.place} in the queue"
    report = job.progress
    if report is None:
        return f"{title}: starting"
    return f"{title}: {report.done:,} of {report.jobs:,} jobs, {words.time(report.now_s)} simulated"
