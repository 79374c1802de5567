"""Empty states and warnings of result pages: not run, running, old, failed, cancelled."""

from __future__ import annotations

import json
from typing import Final, Literal

import streamlit as st

from trainyard.results.outcomes import StudyResults
from trainyard.runs import estimate
from trainyard.runs.queue import Submission
from trainyard.traces import new_study
from ui import server, state, stored_results, words
from ui.choosing import profiles

_FRAME: Final = (
    f'<div class="ty-frame" aria-hidden="true"><div>{"<span></span>" * 6}</div>'
    "<div><span></span><span></span></div></div>"
)
"""Outlines of six tiles and two charts."""
_MAX_DETAILS: Final = 5000
"""Characters."""


def draw_not_run(session: state.Session, title: str, about: str) -> None:
    """Draw a result page before the first run: its purpose, missing profiles, Run button."""
    st.title(title, anchor=False)
    st.write(f"No result yet. {about}")
    missing_profiles = profiles.blocking_coverage(session.study)
    for sentence in missing_profiles.sentences if missing_profiles is not None else ():
        st.warning(words.plain(sentence), icon=":material/warning:")
    with st.container(horizontal=True):
        is_blocked = missing_profiles is not None
        if (
            st.button(
                "Run the sample"
                if session.study == new_study.sample_study()
                else "Run this scenario",
                key="run_here",
                type="primary",
                icon=":material/play_arrow:",
                disabled=is_blocked,
            )
            and not is_blocked
        ):
            session.run()
            st.rerun()
        st.page_link("pages/trace.py", label="Load a trace", icon=":material/upload_file:")
    st.html(_FRAME)


def draw_incomplete(session: state.Session, title: str) -> None:
    """Draw a result page without a complete policy: why, and a button to run again."""
    st.title(title, anchor=False)
    if session.live_jobs:
        st.write(
            "Running. Each policy appears when it has finished; the bar at the top shows progress."
        )
        st.html(_FRAME)
        return
    if session.jobs or session.displayed_study is None:
        st.write("No policy is complete, so there is nothing to compare.")
    else:
        st.write(
            "This result is no longer on the server, which keeps results for"
            f" {server.store().keep_days:g} days."
        )
    estimated = estimate.estimate(
        session.displayed_study or session.study,
        server.store(),
        server.pool().costs,
        server.pool().workers,
    )
    kind: Literal["primary", "secondary"] = "secondary" if session.unrun_changes else "primary"
    if st.button(
        f"Run again, about {words.time(max(estimated.seconds, 1.0))}",
        key="run_gone",
        type=kind,
        icon=":material/play_arrow:",
    ):
        if session.displayed_study is not None and not session.displayed_study.matches(
            session.study
        ):
            session.replace(session.displayed_study)
        session.run()
        st.rerun()


def draw_trace_gone(*, here: bool = False) -> None:
    """Draw the warning that the trace is not on this server; `here` = on the Trace page."""
    days = f"{server.store().keep_days:g} days"
    st.error(
        f"The trace is not on this server, which keeps uploads for {days}. Open its scenario file,"
        " or load the trace file again.",
        icon=":material/error:",
    )
    with st.container(horizontal=True):
        st.page_link("pages/start.py", label="Open a scenario file", icon=":material/folder_open:")
        if not here:
            st.page_link("pages/trace.py", label="Load the trace", icon=":material/upload_file:")


def draw_outdated(session: state.Session) -> None:
    """Draw a note if the displayed results are of an older scenario, with changes."""
    if session.pending_study is not None:
        st.info(
            "Shown: previous scenario, until the first new policy has finished.",
            icon=":material/history:",
        )
    elif session.unrun_changes:
        named = "; ".join(session.unrun_changes[:6])
        changes = f"{words.plural(len(session.unrun_changes), 'change')}: {named}"
        st.info(
            words.plain(f"Shown: previous scenario ({changes}). Run to update."),
            icon=":material/history:",
        )


def draw_running(session: state.Session, runs: StudyResults) -> None:
    """Draw which policies still run, or that all run again; nothing without live runs."""
    if session.live_jobs and session.pending_study is None:
        unrunnable = stored_results.unrunnable(runs.study)
        missing = [
            title
            for index, title in enumerate(runs.titles)
            if not runs.complete(index) and title not in unrunnable
        ]
        if missing:
            st.caption(f":material/hourglass: Still running: {words.plain(', '.join(missing))}.")
        else:
            st.caption(":material/hourglass: Running again. Shown: the stored result.")


def draw_failures(session: state.Session, runs: StudyResults, *, has_ledger: bool = False) -> None:
    """Draw why policies cannot run, failed or were cancelled; not if a ledger shows it."""
    if has_ledger and runs.places:
        return
    for title, sentence in stored_results.unrunnable(runs.study).items():
        st.warning(words.plain(f"{title} cannot run here: {sentence}"), icon=":material/block:")
    for index, title in enumerate(runs.titles):
        failed = [job for job in _policy_jobs(session, runs, index) if job.state == "failed"]
        if failed:
            _draw_failed(session, title, failed[0])
    _draw_cancelled(session, runs)


def _draw_failed(session: state.Session, title: str, job: Submission) -> None:
    """Draw which policy failed, when and why, and a button that runs the others without it."""
    report = job.progress
    now_s = job.details.get("now_s", report.now_s if report is not None else None)
    when = f" at {words.run_time(now_s, state.epoch())}" if isinstance(now_s, int | float) else ""
    st.error(words.plain(f"{title} stopped{when}: {job.error}"), icon=":material/error:")
    other_policies = [spec for spec in session.study.allocators if spec != job.scenario.allocator]
    if job.details:
        with st.expander("Details: the policy's view"):
            st.code(json.dumps(job.details, indent=2, default=str)[:_MAX_DETAILS], language="json")
    if (
        other_policies
        and len(other_policies) < len(session.study.allocators)
        and st.button(f"Run without {words.plain(title)}", key=f"others/{job.key}", type="tertiary")
    ):
        baseline = session.study.allocators[session.study.baseline]
        session.replace(
            new_study.with_policies(
                session.study,
                tuple(other_policies),
                other_policies.index(baseline) if baseline in other_policies else 0,
            )
        )
        session.run()
        st.rerun()


def _draw_cancelled(session: state.Session, runs: StudyResults) -> None:
    """Draw which policies were cancelled and when, and which are complete."""
    cancelled = [
        index
        for index in range(len(runs.titles))
        if any(job.state == "cancelled" for job in _policy_jobs(session, runs, index))
        and not runs.complete(index)
    ]
    if not cancelled:
        return
    reached_s = [
        session.stopped_s[key]
        for index in cancelled
        for key in runs.keys[index]
        if key in session.stopped_s
    ]
    when = f" at {words.run_time(max(reached_s), state.epoch())}" if reached_s else ""
    complete, missing = (
        [runs.titles[index] for index in runs.places],
        [runs.titles[index] for index in cancelled],
    )
    complete_note = (
        f"{_join_names(complete)} {'is' if len(complete) == 1 else 'are'} complete, "
        if complete
        else ""
    )
    st.info(
        words.plain(
            f"Cancelled{when}. {complete_note}{_join_names(missing)}"
            f" {'is' if len(missing) == 1 else 'are'} not shown."
        ),
        icon=":material/stop_circle:",
    )


def _policy_jobs(session: state.Session, runs: StudyResults, index: int) -> list[Submission]:
    """Return this session's submissions of one policy; `index` = its index in the study."""
    return [session.jobs[key] for key in runs.keys[index] if key in session.jobs]


def _join_names(names: list[str]) -> str:
    """Return names joined with commas and "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
