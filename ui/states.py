"""What pages of results say while there is none, or not all: nothing run yet, runs under way, an older scenario, policies without a result."""

from __future__ import annotations

import streamlit as st

from lab.outcomes import Shown
from ui import profiles, state, words


def nothing(mine: state.Desk, title: str, about: str) -> None:
    """Draw a page before the first run: what it will show, and the button that starts it."""
    st.title(title, anchor=False)
    st.write(about)
    st.write("No result yet.")
    stopped = profiles.stopped(mine.study)
    for sentence in stopped.sentences if stopped is not None else ():
        st.warning(words.plain(sentence), icon=":material/warning:")
    with st.container(horizontal=True):
        barred = stopped is not None
        if st.button("Run this scenario", key="run_here", type="primary", icon=":material/play_arrow:", disabled=barred) and not barred:
            mine.run()
            st.rerun()
        st.page_link("pages/trace.py", label="Load a trace", icon=":material/upload_file:")


def waiting(mine: state.Desk, title: str) -> None:
    """Draw a page while no policy is complete."""
    st.title(title, anchor=False)
    if not mine.live:
        st.write("There is no result of this scenario: it was stopped, failed, or was removed from the store. Run it again.")
        return
    st.write("Running. Each policy appears as soon as it has finished; the sidebar shows how far they are.")
    st.skeleton(height=160)
    st.skeleton(height=360)


def stale(mine: state.Desk) -> None:
    """Say that what is shown is an older scenario, if it is."""
    if mine.stale:
        changes = f"{words.plural(len(mine.stale), 'change')}: {'; '.join(mine.stale[:6])}"
        st.info(words.plain(f"Shown: previous scenario ({changes}). Run to update."), icon=":material/history:")


def pending(mine: state.Desk, shown: Shown) -> None:
    """Say which policies are still running."""
    if mine.live:
        barred = state.barred(shown.study)
        missing = [title for at, title in enumerate(shown.titles) if not shown.complete(at) and title not in barred]
        st.caption(f":material/hourglass: Still running: {words.plain(', '.join(missing))}.")


def troubles(mine: state.Desk, shown: Shown) -> None:
    """Say of each policy that has no result why, and leave the others alone."""
    for title, sentence in state.barred(shown.study).items():
        st.warning(words.plain(f"{title} cannot run here: {sentence}"), icon=":material/block:")
    for at, title in enumerate(shown.titles):
        jobs = [mine.jobs[key] for key in shown.keys[at] if key in mine.jobs]
        for job in [job for job in jobs if job.state == "failed"][:1]:
            st.error(words.plain(f"{title}: {job.error}"), icon=":material/error:")
        if any(job.state == "cancelled" for job in jobs):
            st.info(f"{words.plain(title)} was stopped, so it is not shown.", icon=":material/stop_circle:")
