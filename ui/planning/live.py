"""What starts a search, a sweep or a check, says first what it takes, shows how far it is, and lets
it be cancelled; its results are drawn as they come.
"""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from sim.errors import TrainyardError
from trainyard.labs.backtests.run import BacktestRun
from trainyard.library import library
from trainyard.runs.estimate import LONG_S, estimate
from trainyard.runs.shared import SharedBatches
from trainyard.study.check import Check
from trainyard.study.search import SizeQuestion
from trainyard.study.sweep import Sweep
from trainyard.sweeps import sentences
from trainyard.sweeps.plan import PlanRun
from trainyard.sweeps.sweep_run import SweepRun
from ui import browser_identity, progress, server, state, words

Run = PlanRun | SweepRun | BacktestRun
Recipe = SizeQuestion | Sweep | Check
MOST_LOOKED_UP: Final = 1000
"""Runs of a sweep that are looked up while a page is drawn: each takes half a millisecond."""

EVERY_S: Final = 1.0
_LARGE: Final = 400
_SELDOM_S: Final = 4.0
"""How often what is drawn is made anew where there are more than `_LARGE` runs."""
_TELLING_S: Final = 3.0
_LEFT: Final = "plans_left"
_DRAWN: Final = "plan_drawn"
_ATTENDED: Final = "plans_attended"
_CONFIRM: Final = "plan_confirm"
_OPENED: Final = "plan_opened"
_CANCELLED: Final = "plan_cancelled"
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Panel:
    """A search or sweep on the page.

    Parameters
    ----------
    recipe : Question, Sweep or Check
        What is asked.
    verb : str
        What its button says.
    most, takes : int, str
        Runs that it takes at most, and how that is said.
    exact : bool
        Whether it takes so many.
    draw : callable
        Draws what is known so far; is told whether it is still going.
    place : DeltaGenerator or None
        Where the button stands; None = before what is known.
    """

    recipe: Recipe
    verb: str
    most: int
    takes: str
    draw: Callable[[Run, bool], None]
    exact: bool = False
    place: DeltaGenerator | None = None

    @property
    def mark(self) -> str:
        """Its id."""
        return library.identity(self.recipe)


@st.cache_resource(show_spinner=False)
def runs() -> SharedBatches[str, Run]:
    """Return the plans and sweeps of this server."""
    made = SharedBatches[str, Run](server.pool().grace)
    atexit.register(made.close)
    return made


def known(recipe: Recipe) -> Run:
    """Return a plan or sweep with what is known of it, without running anything.

    Raises
    ------
    TrainyardError
        If a trace cannot be loaded, or the store cannot be read.
    """
    few = not isinstance(recipe, Sweep) or recipe.runs <= MOST_LOOKED_UP
    return runs().known(library.identity(recipe), partial(_make, recipe), look_up=few)


def begin(recipe: Recipe, watcher: str, browser: str) -> Run:
    """Begin a plan or sweep, or watch the equal one that goes on; the library of the browser lists
    it.
    """
    run = runs().start(library.identity(recipe), partial(_make, recipe), watcher)
    run.owners |= {browser}
    # With what is known already; the rest comes as it is.
    _shelve(frozenset({browser}), recipe, run.keys)
    return run


def _make(recipe: Recipe) -> Run:
    store, queue = server.store(), server.queue()
    run: Run
    if isinstance(recipe, SizeQuestion):
        run = PlanRun(recipe, store, queue)
    elif isinstance(recipe, Sweep):
        run = SweepRun(recipe, store, queue)
    else:
        run = BacktestRun(recipe, store, queue)
    run.shelve = lambda keys: _shelve(run.owners, recipe, keys)
    return run


def _shelve(owners: frozenset[str], recipe: Recipe, keys: Sequence[str]) -> None:
    for browser in sorted(owners):
        try:
            library.shelve(server.store(), browser, recipe, keys)
        except TrainyardError as error:  # the answer is worth more than its place in a list
            _LOG.warning("The library does not list a run: %s", error)


def is_going(recipe: Recipe) -> bool:
    """Tell whether it is under way and attended by this session, so that its form is not to be
    changed.
    """
    mark = library.identity(recipe)
    return runs().is_stopping(mark) or (
        mark not in _left() and runs().watched(mark, state.session().watcher) is not None
    )


def opened(recipe: Recipe) -> None:
    """Note that this came from a link, so that it stands among the runs of whoever opened it if
    there is something to see.
    """
    st.session_state[_OPENED] = library.identity(recipe)


def _listed(panel: Panel, mark: str, run: Run) -> None:
    if st.session_state.get(_OPENED) == mark:
        del st.session_state[_OPENED]
        state.session().notice = browser_identity.shelve(panel.recipe, run.keys)


def draw(panel: Panel) -> None:
    """Draw the button or the progress, and what is known."""
    mark = panel.mark
    _leave_others(panel, mark)
    going = is_going(panel.recipe)
    run = None if going else known(panel.recipe)
    if run is not None and run.state == "done":
        _listed(panel, mark, run)
    elif run is not None:
        _begin(panel, mark, run)
        if panel.most > MOST_LOOKED_UP and run.state == "waiting":
            st.caption(
                "Stored runs are not repeated; the search for them begins with the first run."
            )
    # Drawn even when nothing runs: the browser may still ask for it once more.
    st.fragment(_live, run_every=_every_s(panel, mark) if going else None)(panel, mark)


def _every_s(panel: Panel, mark: str) -> float:
    return _SELDOM_S if panel.most > _LARGE and not runs().is_stopping(mark) else EVERY_S


def _begin(panel: Panel, mark: str, run: Run) -> None:
    pool = server.pool()
    one = estimate(panel.recipe.study, pool.store, pool.costs, 1)
    seconds = sentences.seconds(one, max(panel.most - run.done, 1), server.where())
    if st.session_state.get(_CONFIRM) == mark:
        st.warning(
            f"{panel.takes}, {sentences.place(server.where())}: about {sentences.about(seconds)}."
            " What is done is kept if you cancel.",
            icon=":material/timer:",
        )
        with st.container(horizontal=True):
            clicked = st.button(
                "Begin", key=f"begin/{panel.verb}", type="primary", icon=":material/play_arrow:"
            )
            st.button("Not now", key=f"not/{panel.verb}", on_click=_forget)
    else:
        verb = (
            "Go on"
            if run.done and run.state == "cancelled"
            else "Try again"
            if run.state == "failed"
            else panel.verb
        )
        where = sentences.place(server.where())
        rest = f"{panel.most - run.done:,} of " if panel.exact and 0 < run.done < panel.most else ""
        takes = f"{rest}{panel.takes}, about {sentences.about(seconds)}"
        with panel.place or st.container():
            clicked = st.button(
                verb,
                key=f"start/{panel.verb}",
                type="primary",
                icon=":material/play_arrow:",
                help=words.plain(f"{takes}, {where}."),
            )
        if run.state == "waiting":
            st.caption(words.plain(f"{takes[:1].upper()}{takes[1:]}, {where}."))
        if clicked and seconds > LONG_S:
            st.session_state[_CONFIRM] = mark
            st.rerun()
    if clicked:
        _forget()
        _left().discard(mark)
        session = state.session()
        begun = begin(panel.recipe, session.watcher, browser_identity.owner())
        session.other_runs[mark] = lambda: begun.done
        st.rerun()


def _forget() -> None:
    st.session_state.pop(_CONFIRM, None)


def _leave_others(panel: Panel, mark: str) -> None:
    """Attend the run of this question only: the scenario may have been changed on another page."""
    attended: dict[str, str] = st.session_state.setdefault(_ATTENDED, {})
    before = attended.get(panel.verb, mark)
    if before != mark:
        runs().detach(before, state.session().watcher)
    attended[panel.verb] = mark


def _live(panel: Panel, mark: str) -> None:
    run = None if mark in _left() else runs().watched(mark, state.session().watcher)
    stopping = runs().is_stopping(mark)
    drawn = st.session_state.get(_DRAWN)
    going = run is not None or stopping
    st.session_state[_DRAWN] = mark if going else None
    if not going and drawn == mark:
        # It has ended, or this session has left it: the whole page has something new to show.
        st.rerun()
    if stopping and st.session_state.pop(_CANCELLED, "") == mark:
        st.rerun()  # to look soon again whether it has stopped
    if stopping:
        st.caption(":material/hourglass: Stopping. What is done is kept.")
    elif run is not None:
        _bar(panel, mark, run)
    shown = run or known(panel.recipe)
    if not going:
        _ended(shown)
    panel.draw(shown, going)


def _bar(panel: Panel, mark: str, run: Run) -> None:
    since_s, place = time.monotonic() - run.began_s, run.place
    if place:
        text = progress.waiting(place, run.starts_in_s)
    else:
        most = "" if panel.exact else "at most "
        left = (
            f", {most or 'about '}{sentences.about(since_s * (panel.most - run.done) / run.done)}"
            " left"
            if run.done and since_s > _TELLING_S
            else ""
        )
        text = f"{words.plural(run.done, 'run')} done of {most}{panel.most:,}{left}"
    st.progress(min(run.done / max(panel.most, 1), 1.0), text=text)
    # A callback, because it comes before anything that starts the page anew and so cannot lose the
    # click.
    st.button(
        "Cancel",
        key=f"cancel/{panel.verb}",
        on_click=_cancel,
        args=(mark,),
        icon=":material/stop_circle:",
    )


def _ended(run: Run) -> None:
    if run.state == "failed":
        st.error(words.plain(run.error), icon=":material/error:")
    elif run.state == "cancelled":
        st.info(
            f"Stopped after {words.plural(run.done, 'run')}, which are kept; what follows rests on"
            " those.",
            icon=":material/stop_circle:",
        )
    elif run.state == "waiting" and run.done:
        st.info(
            f"Stored from earlier: {words.plural(run.done, 'run')}."
            " The answer is complete after a run of the rest.",
            icon=":material/history:",
        )


def _cancel(mark: str) -> None:
    _left().add(mark)
    st.session_state[_CANCELLED] = mark
    runs().detach(mark, state.session().watcher)


def _left() -> set[str]:
    left: set[str] = st.session_state.setdefault(_LEFT, set())
    return left
