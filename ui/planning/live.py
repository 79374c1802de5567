"""What starts a search or a sweep, says first what it takes, shows how far it is, and lets it be cancelled; its results are drawn as they come."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.library import library
from trainyard.runs.estimate import LONG_S
from trainyard.runs.executors import DEFAULT
from trainyard.sweeps import telling
from trainyard.sweeps.plan import PlanRun
from trainyard.sweeps.search import Question
from trainyard.sweeps.sweep_run import SweepRun
from ui import owner, server, state, words
from ui.planning.runs import MOST_LOOKED_UP, Recipe, Run, Runs

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
    recipe : Question or Sweep
        What is asked.
    verb : str
        What its button says.
    most, told : int, str
        Runs that it takes at most, and how that is said.
    exact : bool
        Whether it takes so many.
    draw : callable
        Draws what is known so far; is told whether it is still going.
    """

    recipe: Recipe
    verb: str
    most: int
    told: str
    draw: Callable[[Run, bool], None]
    exact: bool = False

    @property
    def mark(self) -> str:
        """Its id."""
        return library.identity(self.recipe)


def where() -> str:
    """Return where runs happen: what TRAINYARD_EXECUTOR says."""
    return os.environ.get("TRAINYARD_EXECUTOR", "") or DEFAULT


def say_where() -> None:
    """Say where runs happen, and what chooses it."""
    st.caption(words.plain(f"Runs happen {telling.place(where())}. The server's setting TRAINYARD_EXECUTOR chooses other machines."))


@st.cache_resource(show_spinner=False)
def runs() -> Runs:
    """Return the searches and sweeps of this server."""
    made = Runs(_make, server.pool().leaving, _keep)
    atexit.register(made.close)
    return made


def _make(recipe: Recipe) -> Run:
    store = server.store()
    return PlanRun(recipe, store, where()) if isinstance(recipe, Question) else SweepRun(recipe, store, where())


def _keep(whose: str, recipe: Recipe, keys: Sequence[str]) -> None:
    try:
        library.shelve(server.store(), whose, recipe, keys)
    except TrainyardError as error:  # the answer is worth more than its place in a list
        _LOG.warning("The library does not list a run: %s", error)


def is_going(recipe: Recipe) -> bool:
    """Tell whether it is under way and attended by this session, so that its form is not to be changed."""
    mark = library.identity(recipe)
    return runs().is_stopping(mark) or (mark not in _left() and runs().attend(mark, state.desk().watcher) is not None)


def opened(recipe: Recipe) -> None:
    """Note that this came from a link, so that it stands among the runs of whoever opened it if there is something to see."""
    st.session_state[_OPENED] = library.identity(recipe)


def _listed(panel: Panel, mark: str, known: Run) -> None:
    if st.session_state.get(_OPENED) == mark:
        del st.session_state[_OPENED]
        state.desk().notice = owner.shelve(panel.recipe, known.keys)


def draw(panel: Panel) -> None:
    """Draw the button or the progress, and what is known."""
    mark = panel.mark
    _leave_others(panel, mark)
    going = is_going(panel.recipe)
    known = None if going else runs().known(panel.recipe)
    if known is not None and known.state == "done":
        _listed(panel, mark, known)
    elif known is not None:
        _begin(panel, mark, known)
        if panel.most > MOST_LOOKED_UP and known.state == "waiting":
            st.caption("Which of so many runs are known already is looked up as it begins; those are not run again.")
    # Drawn even when nothing runs: the browser may still ask for it once more.
    st.fragment(_live, run_every=_every_s(panel, mark) if going else None)(panel, mark)


def _every_s(panel: Panel, mark: str) -> float:
    return _SELDOM_S if panel.most > _LARGE and not runs().is_stopping(mark) else EVERY_S


def _begin(panel: Panel, mark: str, known: Run) -> None:
    pool = server.pool()
    seconds = telling.seconds(panel.recipe.study, max(panel.most - known.done, 1), pool.store, pool.costs, where())
    if st.session_state.get(_CONFIRM) == mark:
        st.warning(f"{panel.told}, {telling.place(where())}: about {telling.about(seconds)}. What is done is kept if you cancel.", icon=":material/timer:")
        with st.container(horizontal=True):
            begin = st.button("Begin", key=f"begin/{panel.verb}", type="primary", icon=":material/play_arrow:")
            st.button("Not now", key=f"not/{panel.verb}", on_click=_forget)
    else:
        verb = "Go on" if known.done and known.state == "cancelled" else "Try again" if known.state == "failed" else panel.verb
        rest = f"{panel.most - known.done:,} of " if panel.exact and 0 < known.done < panel.most else ""
        label = f"{verb}: {rest}{panel.told}, about {telling.about(seconds)}"
        begin = st.button(label, key=f"start/{panel.verb}", type="primary", icon=":material/play_arrow:")
        if begin and seconds > LONG_S:
            st.session_state[_CONFIRM] = mark
            st.rerun()
    if begin:
        _forget()
        _left().discard(mark)
        runs().start(panel.recipe, state.desk().watcher, owner.owner())
        st.rerun()


def _forget() -> None:
    st.session_state.pop(_CONFIRM, None)


def _leave_others(panel: Panel, mark: str) -> None:
    """Attend the run of this question only: the scenario may have been changed on another page."""
    attended: dict[str, str] = st.session_state.setdefault(_ATTENDED, {})
    before = attended.get(panel.verb, mark)
    if before != mark:
        runs().detach(before, state.desk().watcher)
    attended[panel.verb] = mark


def _live(panel: Panel, mark: str) -> None:
    run = None if mark in _left() else runs().attend(mark, state.desk().watcher)
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
    known = run or runs().known(panel.recipe)
    if not going:
        _ended(known)
    panel.draw(known, going)


def _bar(panel: Panel, mark: str, run: Run) -> None:
    since_s, before = runs().since(mark), runs().place(mark)
    if before:
        text = f"Waiting: {before} before it. One search or sweep runs at a time on this server"
    else:
        most = "" if panel.exact else "at most "
        left = f", {most or 'about '}{telling.about(since_s * (panel.most - run.done) / run.done)} left" if run.done and since_s > _TELLING_S else ""
        text = f"{words.plural(run.done, 'run')} done of {most}{panel.most:,}{left}"
    st.progress(min(run.done / max(panel.most, 1), 1.0), text=text)
    # A callback, because it comes before anything that starts the page anew and so cannot lose the click.
    st.button("Cancel", key=f"cancel/{panel.verb}", on_click=_cancel, args=(mark,), icon=":material/stop_circle:")


def _ended(run: Run) -> None:
    if run.state == "failed":
        st.error(words.plain(run.error), icon=":material/error:")
    elif run.state == "cancelled":
        st.info(f"Stopped after {words.plural(run.done, 'run')}, which are kept; what follows rests on those.", icon=":material/stop_circle:")
    elif run.state == "waiting" and run.done:
        st.info(f"{words.plural(run.done, 'run')} of it are known here already; what follows rests on those.", icon=":material/history:")


def _cancel(mark: str) -> None:
    _left().add(mark)
    st.session_state[_CANCELLED] = mark
    runs().detach(mark, state.desk().watcher)


def _left() -> set[str]:
    left: set[str] = st.session_state.setdefault(_LEFT, set())
    return left
