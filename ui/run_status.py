"""How the shown results stand to the scenario, in one place of the bar, and Run or Cancel beside
it; asked a few times a second while something runs, without running the page.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final, Literal, NamedTuple

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results.differences import differences
from trainyard.results.outcomes import Shown
from trainyard.traces import start
from ui import faults, progress, server, state, stored_results, words
from ui.choosing import profiles

EVERY_S: Final = 0.25
"""How often progress is asked for while something runs."""
REDRAW_S: Final = 2.0
"""How long a page stays before another policy is added to it, unless it is the last: drawing takes
the cores that the runs need.
"""
RESULTS: Final = ("compare", "explore")
"""Pages that show what came out, and offer to run where nothing did."""
_DIFFERS: Final = "radio_button_checked"
_UNDONE: Final = "undone"
_MOST_LINES: Final = 8
_MOST_CHANGES: Final = 6


class Status(NamedTuple):
    """What the bar says.

    Parameters
    ----------
    icon, text : str
        The sign, and a few words.
    differs : bool
        Whether Run would change something.
    """

    icon: str
    text: str
    differs: bool


def draw(page: str) -> None:
    """Draw the status and Run; polls only while a run is going."""
    session = state.session()
    if not session.live and session.over != session.settled:
        # The last one has ended while this page was being drawn.
        st.rerun()
    # Drawn even when nothing runs: the browser may still ask for it once more.
    st.fragment(faults.guarded, run_every=EVERY_S if session.live else None)(partial(_parts, page))


def status(session: state.Session) -> Status:
    """Return how results and scenario stand to each other."""
    if session.live:
        return Status("hourglass_empty", progress.brief(session), False)
    if session.shown is None:
        others = session.others_done
        also = f"Not compared yet, {words.plural(others, 'other run')}"
        return Status(_DIFFERS, also if others else "Nothing has been run yet", True)
    missing, changes = _missing(session), session.stale
    if not changes:
        if not missing:
            return Status("check", "Up to date", False)
        return Status(_DIFFERS, f"{words.plural(len(missing), 'policy')} without a result", True)
    if 0 < len(missing) < len(session.study.allocators):
        return Status(_DIFFERS, f"{words.plural(len(missing), 'policy')} not run yet", True)
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return Status(_DIFFERS, f"Changed: {changes[0]}{more}", True)


def would_run(session: state.Session) -> bool:
    """Tell whether Run would start something, so that its size matters."""
    return not session.live and status(session).differs


def _missing(session: state.Session) -> list[str]:
    """Return the policies of the scenario that have no result though they can run."""
    try:
        stored = stored_results.gather(session.study)
        barred = stored_results.barred(session.study)
    except TrainyardError:
        return list(session.study.titles)
    return [
        title
        for at, title in enumerate(stored.titles)
        if not stored.complete(at) and title not in barred
    ]


def _parts(page: str) -> None:
    session = state.session()
    if st.session_state.pop(_UNDONE, False):
        # The forms of the page are to show the earlier scenario too.
        st.rerun()
    news = session.over != session.settled
    if news and (not session.live or time.monotonic() - session.drawn_s > REDRAW_S):
        # A result has come or a run has failed: the whole page has something new to show.
        st.rerun()
    found = status(session)
    with st.container(
        key="doing", horizontal=True, vertical_alignment="center", gap="xsmall", wrap=False
    ):
        with st.popover(
            words.plain(found.text), icon=f":material/{found.icon}:", key="status", type="tertiary"
        ):
            _details(session)
        _go(session, page, found)


def _go(session: state.Session, page: str, found: Status) -> None:
    with st.container(key="go"):
        if session.live:
            # A callback, because it comes before anything that starts the page anew and so cannot
            # lose the click.
            st.button(
                "Cancel", key="cancel", on_click=session.cancel, icon=":material/stop_circle:"
            )
        else:
            _run(session, page, found)


def _run(session: state.Session, page: str, found: Status) -> None:
    # Of all buttons in sight one is primary: on Start the sample until there is a scenario of the
    # user, on Learn and Plan their own, on Compare and Explore without any result the one in the
    # page.
    elsewhere = (
        page in ("learn", "plan")
        or (page == "start" and session.on_sample)
        or (page in RESULTS and not session.stale and not _any_complete(session))
    )
    barred = profiles.stopped(session.study) is not None or start.trace_is_gone(
        session.study, server.store()
    )
    primary = found.differs and not elsewhere and not barred
    kind: Literal["primary", "secondary"] = "primary" if primary else "secondary"
    if st.button("Run", key="run", icon=":material/play_arrow:", type=kind, disabled=barred):
        try:
            session.run()
        except TrainyardError as error:
            session.notice = str(error)
            st.rerun()
        if page == "compare":
            st.rerun()
        st.switch_page("pages/compare.py", query_params=state.address())


def _any_complete(session: state.Session) -> bool:
    return session.shown is not None and bool(stored_results.gather(session.shown).places)


def _details(session: state.Session) -> None:
    if session.live:
        for job in session.live[:_MOST_LINES]:
            line = words.plain(progress.sentence(session, job))
            if job.place:
                st.caption(line)
            else:
                # A key of its own, or the next policy would take over the bar and its fill.
                with st.container(key=f"progress/{job.key}"):
                    st.progress(min(max(job.share, 0.0), 1.0), text=line)
        if len(session.live) > _MOST_LINES:
            st.caption(f"and {len(session.live) - _MOST_LINES:,} more")
    elif session.stale:
        st.caption(
            f"Changed since the last run: {words.plain('; '.join(session.stale[:_MOST_CHANGES]))}."
        )
    elif session.shown is None:
        others = session.others_done
        also = f" Plan and Learn have done {words.plural(others, 'run')}." if others else ""
        st.caption(f"No policy of this scenario has been run yet.{also}")
    else:
        _stored(session, stored_results.gather(session.shown))
    _undo(session)


def _stored(session: state.Session, shown: Shown) -> None:
    entries = [entry for own in shown.entries for entry in own]
    if not entries:
        st.caption("No result of this scenario is stored.")
        return
    took_s = max(sum(entry.provenance["timing"]["wall_s"] for entry in entries), 0.1)
    age_s = time.time() - max(float(entry.provenance["created_s"]) for entry in entries)
    fresh = any(entry.key in session.fresh for entry in entries)
    st.caption(
        f"{'Computed now' if fresh else 'Stored result, computed'} in {words.time(took_s)}"
        f"{'' if fresh else f', {words.time(age_s)} ago'}."
    )
    if st.button(
        "Run again", key="run_again", icon=":material/refresh:", type="tertiary", help=_AGAIN
    ):
        session.run(again=True)
        st.rerun()


def _undo(session: state.Session) -> None:
    if not session.past:
        return
    changes = differences(session.past[-1], session.study, server.store()) or ["details"]
    st.button(
        "Undo",
        key="undo",
        icon=":material/undo:",
        type="tertiary",
        on_click=_take_back,
        args=(session,),
        help=f"Takes back: {words.plain('; '.join(changes[:4]))}",
    )


def _take_back(session: state.Session) -> None:
    session.undo()
    st.session_state[_UNDONE] = True


_AGAIN: Final = "Equal runs must give equal results; a difference is reported."
