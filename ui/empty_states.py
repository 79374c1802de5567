"""What pages of results say while there is none, or not all: nothing run yet, runs under way, an
older scenario, policies without a result.
"""

from __future__ import annotations

import json
from typing import Final, Literal

import streamlit as st

from trainyard.results.outcomes import Shown
from trainyard.runs import estimate
from trainyard.runs.queue import Submission
from trainyard.traces import start
from ui import server, state, stored_results, words
from ui.choosing import profiles

_FRAME: Final = (
    f'<div class="ty-frame" aria-hidden="true"><div>{"<span></span>" * 6}</div>'
    "<div><span></span><span></span></div></div>"
)
"""The places of six figures and two charts, as lines only."""
_MOST_DETAILS: Final = 5000
"""Characters."""


def nothing(session: state.Session, title: str, about: str) -> None:
    """Draw a page before the first run: what it will show, and the button that starts it."""
    st.title(title, anchor=False)
    st.write(f"No result yet. {about}")
    stopped = profiles.stopped(session.study)
    for sentence in stopped.sentences if stopped is not None else ():
        st.warning(words.plain(sentence), icon=":material/warning:")
    with st.container(horizontal=True):
        barred = stopped is not None
        if (
            st.button(
                "Run the sample" if session.study == start.sample_study() else "Run this scenario",
                key="run_here",
                type="primary",
                icon=":material/play_arrow:",
                disabled=barred,
            )
            and not barred
        ):
            session.run()
            st.rerun()
        st.page_link("pages/trace.py", label="Load a trace", icon=":material/upload_file:")
    st.html(_FRAME)


def waiting(session: state.Session, title: str) -> None:
    """Draw a page while no policy is complete."""
    st.title(title, anchor=False)
    if session.live:
        st.write(
            "Running. Each policy appears as soon as it has finished; the bar at the top shows how"
            " far they are."
        )
        st.html(_FRAME)
        return
    if session.jobs or session.shown is None:
        st.write("No policy is complete, so there is nothing to compare.")
    else:
        st.write(
            "This link's result is not on this server any more: results are kept for"
            f" {server.store().keep_days:g} days."
        )
    estimated = estimate.estimate(
        session.shown or session.study, server.store(), server.pool().costs, server.pool().workers
    )
    kind: Literal["primary", "secondary"] = "secondary" if session.stale else "primary"
    if st.button(
        f"Run again, about {words.time(max(estimated.seconds, 1.0))}",
        key="run_gone",
        type=kind,
        icon=":material/play_arrow:",
    ):
        if session.shown is not None and not session.shown.matches(session.study):
            session.replace(session.shown)
        session.run()
        st.rerun()


def trace_gone(*, here: bool = False) -> None:
    """Say that the jobs of the scenario are not here, and what helps; `here` = on the page where
    another trace is chosen.
    """
    days = f"{server.store().keep_days:g} days"
    st.error(
        f"The link's trace is not on this server: uploads are kept for {days}, or until somebody"
        " deletes them, and do not travel in a link. Open the scenario file that contains it, or"
        " load the same file again; everything else of the scenario is here.",
        icon=":material/error:",
    )
    with st.container(horizontal=True):
        st.page_link("pages/start.py", label="Open a scenario file", icon=":material/folder_open:")
        if not here:
            st.page_link("pages/trace.py", label="Load the trace", icon=":material/upload_file:")


def stale(session: state.Session) -> None:
    """Say that what is shown is an older scenario, if it is."""
    if session.going is not None:
        st.info(
            "Shown: previous scenario, until the first policy of this one has finished.",
            icon=":material/history:",
        )
    elif session.stale:
        changes = f"{words.plural(len(session.stale), 'change')}: {'; '.join(session.stale[:6])}"
        st.info(
            words.plain(f"Shown: previous scenario ({changes}). Run to update."),
            icon=":material/history:",
        )


def pending(session: state.Session, shown: Shown) -> None:
    """Say which policies are still running."""
    if session.live and session.going is None:
        barred = stored_results.barred(shown.study)
        missing = [
            title
            for at, title in enumerate(shown.titles)
            if not shown.complete(at) and title not in barred
        ]
        if missing:
            st.caption(f":material/hourglass: Still running: {words.plain(', '.join(missing))}.")
        else:
            st.caption(":material/hourglass: Running again. What is shown is the stored result.")


def troubles(session: state.Session, shown: Shown, *, listed: bool = False) -> None:
    """Say of each policy that has no result why, and leave the others alone; `listed` = the page
    has a ledger, which has a row for each of them.
    """
    if listed and shown.places:
        return
    for title, sentence in stored_results.barred(shown.study).items():
        st.warning(words.plain(f"{title} cannot run here: {sentence}"), icon=":material/block:")
    for at, title in enumerate(shown.titles):
        failed = [job for job in _jobs(session, shown, at) if job.state == "failed"]
        if failed:
            _failed(session, title, failed[0])
    _stopped(session, shown)


def _failed(session: state.Session, title: str, job: Submission) -> None:
    """Say which policy failed, when and why; the others live on."""
    report = job.progress
    now_s = job.details.get("now_s", report.now_s if report is not None else None)
    when = f" at {words.instant(now_s, state.epoch())}" if isinstance(now_s, int | float) else ""
    st.error(words.plain(f"{title} stopped{when}: {job.error}"), icon=":material/error:")
    others = [spec for spec in session.study.allocators if spec != job.scenario.allocator]
    if job.details:
        with st.expander("Details: what the policy saw"):
            st.code(json.dumps(job.details, indent=2, default=str)[:_MOST_DETAILS], language="json")
    if (
        others
        and len(others) < len(session.study.allocators)
        and st.button(f"Run without {words.plain(title)}", key=f"others/{job.key}", type="tertiary")
    ):
        baseline = session.study.allocators[session.study.baseline]
        session.replace(
            start.with_policies(
                session.study, tuple(others), others.index(baseline) if baseline in others else 0
            )
        )
        session.run()
        st.rerun()


def _stopped(session: state.Session, shown: Shown) -> None:
    """Say what a cancel has ended: when, and which policies are shown all the same."""
    ended = [
        at
        for at in range(len(shown.titles))
        if any(job.state == "cancelled" for job in _jobs(session, shown, at))
        and not shown.complete(at)
    ]
    if not ended:
        return
    reached_s = [
        session.stopped_s[key] for at in ended for key in shown.keys[at] if key in session.stopped_s
    ]
    when = f" at {words.instant(max(reached_s), state.epoch())}" if reached_s else ""
    complete, missing = (
        [shown.titles[at] for at in shown.places],
        [shown.titles[at] for at in ended],
    )
    kept = (
        f"{_listed(complete)} {'is' if len(complete) == 1 else 'are'} complete, "
        if complete
        else ""
    )
    st.info(
        words.plain(
            f"Stopped{when}. {kept}{_listed(missing)} {'is' if len(missing) == 1 else 'are'} not"
            " shown."
        ),
        icon=":material/stop_circle:",
    )


def _jobs(session: state.Session, shown: Shown, at: int) -> list[Submission]:
    return [session.jobs[key] for key in shown.keys[at] if key in session.jobs]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
