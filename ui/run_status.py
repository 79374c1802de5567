"""The status of the results in the bar, with Run or Cancel; polls while runs are live."""

from __future__ import annotations

import time
from functools import partial
from typing import Final, Literal, NamedTuple

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results.differences import study_changes
from trainyard.results.outcomes import StudyResults
from trainyard.traces import new_study
from ui import error_boundary, progress, server, state, stored_results, words
from ui.choosing import profiles

EVERY_S: Final = 0.25
"""Period of the status while runs are live."""
OTHERS_S: Final = 1.0
"""The same while only runs of Plan or Learn are live."""
REDRAW_S: Final = 2.0
"""Minimum time between redraws for finished policies: drawing takes cores from the runs."""
RESULTS: Final = ("compare", "explore")
"""Pages that show results, or offer to run without any."""
_RUNNING: Final = "hourglass_empty"
_DIFFERS: Final = "radio_button_checked"
_UNDONE: Final = "undone"
_MAX_LINES: Final = 8
_MAX_CHANGES: Final = 6


class Status(NamedTuple):
    """Status in the bar.

    Parameters
    ----------
    icon, text : str
        Icon and a few words.
    differs : bool
        Whether Run would change the results.
    """

    icon: str
    text: str
    differs: bool


def draw(page: str) -> None:
    """Draw status, Run and Cancel as a fragment that polls only while runs are live."""
    session = state.session()
    if not session.live_jobs and session.finished_count != session.drawn_finished_count:
        # The last run ended while this page was drawn.
        st.rerun()
    # Drawn without live runs too: the browser may request the fragment once more.
    others_s = OTHERS_S if session.has_other_live_runs else None
    st.fragment(error_boundary.run_guarded, run_every=EVERY_S if session.live_jobs else others_s)(
        partial(_draw_parts, page)
    )


def current_status(session: state.Session) -> Status:
    """Return the state of the results, and the progress of searches, lessons and replays."""
    if session.live_jobs:
        return Status(_RUNNING, progress.describe_briefly(session), False)
    status = _result_status(session)
    if not session.has_other_live_runs:
        return status
    done = words.plural(session.other_runs_done, "run")
    return Status(_RUNNING, f"{status.text} · Plan and Learn: {done} done", status.differs)


def _result_status(session: state.Session) -> Status:
    """Return whether results are up to date, incomplete or of another scenario."""
    if session.displayed_study is None:
        others = session.other_runs_done
        text = f"Not compared yet, {words.plural(others, 'other run')}"
        return Status(
            _DIFFERS, text if others and not session.has_other_live_runs else "Not run yet", True
        )
    missing, changes = _policies_without_result(session), session.unrun_changes
    if not changes:
        if not missing:
            return Status("check", "Up to date", False)
        return Status(_DIFFERS, f"{words.plural(len(missing), 'policy')} without a result", True)
    if 0 < len(missing) < len(session.study.allocators):
        return Status(_DIFFERS, f"{words.plural(len(missing), 'policy')} not run yet", True)
    others_note = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return Status(_DIFFERS, f"Changed: {changes[0]}{others_note}", True)


def needs_run(session: state.Session) -> bool:
    """Return True if no run is live and Run would change the results."""
    return not session.live_jobs and current_status(session).differs


def _policies_without_result(session: state.Session) -> list[str]:
    """Return titles of policies that can run but lack results; all on an error."""
    try:
        stored = stored_results.gather(session.study)
        unrunnable = stored_results.unrunnable(session.study)
    except TrainyardError:
        return list(session.study.titles)
    return [
        title
        for index, title in enumerate(stored.titles)
        if not stored.complete(index) and title not in unrunnable
    ]


def _draw_parts(page: str) -> None:
    """Draw status and Run or Cancel; rerun the page when results have arrived."""
    session = state.session()
    if st.session_state.pop(_UNDONE, False):
        # The forms of the page must show the earlier scenario too.
        st.rerun()
    has_news = session.finished_count != session.drawn_finished_count
    if has_news and (not session.live_jobs or time.monotonic() - session.drawn_s > REDRAW_S):
        # A policy has finished or failed: the whole page changes.
        st.rerun()
    status_now = current_status(session)
    with st.container(
        key="doing", horizontal=True, vertical_alignment="center", gap="xsmall", wrap=False
    ):
        with st.popover(
            words.plain(status_now.text),
            icon=f":material/{status_now.icon}:",
            key="status",
            type="tertiary",
        ):
            _draw_details(session)
        # In a container also without the button, so that Run keeps its place in the page.
        with st.container(key="undo_place", width=36):
            _draw_undo(session)
        _draw_run_or_cancel(session, page, status_now)


def _draw_run_or_cancel(session: state.Session, page: str, status: Status) -> None:
    """Draw Cancel, which stops all runs, while runs are live; Run if results are not up to date."""
    with st.container(key="go"):
        if session.live_jobs:
            # A callback runs before any rerun, so the click cannot get lost.
            st.button(
                "Cancel", key="cancel", on_click=session.cancel, icon=":material/stop_circle:"
            )
        elif status.differs:
            _draw_run(session, page)


def _draw_run(session: state.Session, page: str) -> None:
    """Draw Run, which runs the scenario and opens Compare.

    It is primary unless the page has a primary button, and disabled if the scenario cannot run.
    """
    # One button is primary: on Plan its own, on Compare and Explore without results the one in the
    # page.
    page_has_primary = page == "plan" or (
        page in RESULTS and not session.unrun_changes and not _has_complete_policy(session)
    )
    is_blocked = profiles.blocking_coverage(
        session.study
    ) is not None or new_study.is_trace_missing(session.study, server.store())
    is_primary = not page_has_primary and not is_blocked
    kind: Literal["primary", "secondary"] = "primary" if is_primary else "secondary"
    if st.button(
        "Run",
        key="run",
        icon=":material/play_arrow:",
        type=kind,
        disabled=is_blocked,
    ):
        try:
            session.run()
        except TrainyardError as error:
            session.notice = str(error)
            st.rerun()
        if page == "compare":
            st.rerun()
        st.switch_page("pages/compare.py", query_params=state.url_parameters())


def _has_complete_policy(session: state.Session) -> bool:
    """Return True if a policy of the displayed study has all its results."""
    return session.displayed_study is not None and bool(
        stored_results.gather(session.displayed_study).places
    )


def _draw_details(session: state.Session) -> None:
    """Draw the popover of the status: live runs, else changes or age of results."""
    if session.live_jobs:
        for job in session.live_jobs[:_MAX_LINES]:
            line = words.plain(progress.describe_run(session, job))
            if job.place:
                st.caption(line)
            else:
                # Its own key, so that the next policy does not inherit the filled bar.
                with st.container(key=f"progress/{job.key}"):
                    st.progress(min(max(job.share, 0.0), 1.0), text=line)
        if len(session.live_jobs) > _MAX_LINES:
            st.caption(f"and {len(session.live_jobs) - _MAX_LINES:,} more")
    elif session.unrun_changes:
        st.caption(
            f"Changed since the last run:"
            f" {words.plain('; '.join(session.unrun_changes[:_MAX_CHANGES]))}."
        )
    elif session.displayed_study is None:
        others = session.other_runs_done
        other_note = f" Plan and Learn: {words.plural(others, 'run')}." if others else ""
        st.caption(f"No policy of this scenario has run yet.{other_note}")
    else:
        _draw_result_age(session, stored_results.gather(session.displayed_study))


def _draw_result_age(session: state.Session, runs: StudyResults) -> None:
    """Draw when the results were computed and how long it took, and Run again."""
    entries = [entry for policy_entries in runs.entries for entry in policy_entries]
    if not entries:
        st.caption("No result of this scenario is stored.")
        return
    took_s = max(sum(entry.provenance["timing"]["wall_s"] for entry in entries), 0.1)
    age_s = time.time() - max(float(entry.provenance["created_s"]) for entry in entries)
    is_fresh = any(entry.key in session.computed_keys for entry in entries)
    st.caption(
        f"{'Computed now' if is_fresh else f'Stored result, computed {words.time(age_s)} ago'} in"
        f" {words.time(took_s)}."
    )
    if st.button(
        "Run again", key="run_again", icon=":material/refresh:", type="tertiary", help=_AGAIN
    ):
        session.run(again=True)
        st.rerun()


def _draw_undo(session: state.Session) -> None:
    """Draw Undo, with the changes that it reverts; nothing without an earlier scenario."""
    if not session.undo_stack:
        return
    changes = study_changes(session.undo_stack[-1], session.study, server.store()) or ["details"]
    st.button(
        "Undo",
        key="undo",
        icon=":material/undo:",
        type="tertiary",
        on_click=_on_undo,
        args=(session,),
        help=f"Reverts: {words.plain('; '.join(changes[:4]))}",
    )


def _on_undo(session: state.Session) -> None:
    """Undo the last change of the scenario, and request a rerun of the whole page."""
    session.undo()
    st.session_state[_UNDONE] = True


_AGAIN: Final = "Equal runs must give equal results; a difference is reported."
