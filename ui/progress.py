"""Runs under way: one line per policy, redrawn a few times a second without running the page, and a cancel that takes the page along."""

from __future__ import annotations

import time
from typing import Final

import streamlit as st

from sim.simulator import Progress
from trainyard.results import outcomes
from trainyard.runs import estimate
from trainyard.runs.pool import Job
from trainyard.study.scenario import Scenario
from ui import state, words

EVERY_S: Final = 0.25
"""How often progress is asked for while something runs."""
REDRAW_S: Final = 2.0
"""How long a page stays before another policy is added to it, unless it is the last: drawing takes the cores that the runs need."""
MOST_WAITING: Final = 6
"""Runs of the queue that are named."""
_LONG_S: Final = 2 * 86_400
"""From here on simulated time is told in days."""


def watch() -> None:
    """Draw the runs of this session; polls only while one is going."""
    mine = state.desk()
    if not mine.live and mine.over != mine.settled:
        # The last one has ended while this page was being drawn.
        st.rerun()
    # Drawn even when nothing runs: the browser may still ask for it once more.
    st.fragment(_lines, run_every=EVERY_S if mine.live else None)()


def title_of(scenario: Scenario) -> str:
    """Return the title of a scenario's policy in the study shown, with its seed where runs are repeated."""
    mine = state.desk()
    study = mine.shown or mine.study
    names = dict(zip(study.allocators, outcomes.titles(study.allocators), strict=True))
    name = names.get(scenario.allocator, scenario.allocator.name)
    return name if study.repeats == 1 else f"{name}, seed {scenario.seed}"


def _lines() -> None:
    mine = state.desk()
    news = mine.over != mine.settled
    if news and (not mine.live or time.monotonic() - mine.drawn_s > REDRAW_S):
        # A result has come or a run has failed: the whole page has something new to show.
        st.rerun()
    if not mine.live:
        return
    # A callback, because it comes before anything that starts the page anew and so cannot lose the click.
    st.button("Cancel", key="cancel", on_click=mine.cancel, icon=":material/stop_circle:", width="stretch")
    waiting = [job for job in mine.live if job.state == "waiting"]
    for job in mine.live:
        if job not in waiting:
            # A key of its own, or the next policy would take over the bar and its fill.
            with st.container(key=f"bar/{job.key}"):
                st.progress(min(max(job.share, 0.0), 1.0), text=_told(mine, job))
    for job in waiting[:MOST_WAITING]:
        st.caption(_told(mine, job))
    if len(waiting) > MOST_WAITING:
        st.caption(f"and {len(waiting) - MOST_WAITING:,} more")


def _told(mine: state.Desk, job: Job) -> str:
    title = words.plain(title_of(job.scenario))
    place = job.place
    if place:
        starts_s = job.starts_in_s
        about = f", starts in about {words.time(starts_s)}" if starts_s >= 1 else ""
        return f"{title}: place {place} in the queue{about}"
    report = job.progress
    if report is None:
        return f"{title}: starting"
    now = (time.monotonic(), job.share)
    left_s = estimate.seconds_left(mine.began.setdefault(job.key, now), now)
    left = f", about {words.time(max(left_s, 1.0))} left" if left_s is not None else ""
    return f"{title}: {100 * job.share:.0f} %, {clock(report)}{left}"


def clock(report: Progress) -> str:
    """Return how far a run is in simulated time."""
    if report.now_s > report.span_s:
        return f"{words.time(report.now_s)}, all jobs have come"
    if report.span_s >= _LONG_S:
        return f"day {report.now_s / 86_400:.1f} of {report.span_s / 86_400:.1f}"
    return f"{words.time(report.now_s)} of {words.time(report.span_s)}"
