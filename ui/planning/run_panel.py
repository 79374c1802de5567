"""Start, progress, cancellation and results of a search, sweep or backtest on Plan."""

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
from trainyard.runs.shared_batches import SharedBatches
from trainyard.study.check import Check
from trainyard.study.size_question import SizeQuestion
from trainyard.study.sweep import Sweep
from trainyard.sweeps import summaries
from trainyard.sweeps.plan import PlanRun
from trainyard.sweeps.sweep_run import SweepRun
from ui import browser_identity, progress, server, state, words

Run = PlanRun | SweepRun | BacktestRun
Recipe = SizeQuestion | Sweep | Check
MAX_LOOKUPS: Final = 1000
"""Runs of a sweep looked up while a page is drawn: each takes half a millisecond."""

EVERY_S: Final = 1.0
_LARGE: Final = 400
_SELDOM_S: Final = 4.0
"""Period of redrawing results of more than `_LARGE` runs."""
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
    """A search, sweep or backtest on the page.

    Parameters
    ----------
    recipe : SizeQuestion, Sweep or Check
        The search, sweep or backtest.
    verb : str
        Label of its button.
    max_runs, takes : int, str
        Expected number of runs, and that as text.
    is_exact : bool
        Whether it always takes `max_runs`.
    draw : callable
        (run, whether it is still running) -> None; draws the results so far.
    button_place : DeltaGenerator or None
        Container of the button; None = above the results.
    """

    recipe: Recipe
    verb: str
    max_runs: int
    takes: str
    draw: Callable[[Run, bool], None]
    is_exact: bool = False
    button_place: DeltaGenerator | None = None

    @property
    def recipe_id(self) -> str:
        """Id of the recipe."""
        return library.recipe_id(self.recipe)


@st.cache_resource(show_spinner=False)
def shared_batches() -> SharedBatches[str, Run]:
    """Return the searches, sweeps and backtests of this server; closed at its exit."""
    batches = SharedBatches[str, Run](server.pool().grace)
    atexit.register(batches.close)
    return batches


def look_up(recipe: Recipe) -> Run:
    """Return a search, sweep or backtest with its stored runs, without running anything.

    Stored runs of a sweep with more than `MAX_LOOKUPS` runs are not looked up.

    Raises
    ------
    TrainyardError
        If a trace cannot be loaded, or the store cannot be read.
    """
    looks_up_runs = not isinstance(recipe, Sweep) or recipe.runs <= MAX_LOOKUPS
    return shared_batches().get_batch(
        library.recipe_id(recipe), partial(_new_run, recipe), look_up=looks_up_runs
    )


def start(recipe: Recipe, watcher: str, browser: str) -> Run:
    """Start a recipe or join the equal one that runs, and add it to this browser's runs."""
    run = shared_batches().start(library.recipe_id(recipe), partial(_new_run, recipe), watcher)
    run.owners |= {browser}
    # Adds the stored runs; the others follow as they finish.
    _add_to_runs(frozenset({browser}), recipe, run.keys)
    return run


def _new_run(recipe: Recipe) -> Run:
    """Return a new run of a recipe, not started; its results join the owners' lists of runs."""
    store, queue = server.store(), server.batch_queue()
    run: Run
    if isinstance(recipe, SizeQuestion):
        run = PlanRun(recipe, store, queue)
    elif isinstance(recipe, Sweep):
        run = SweepRun(recipe, store, queue)
    else:
        run = BacktestRun(recipe, store, queue)
    run.shelve = lambda keys: _add_to_runs(run.owners, recipe, keys)
    return run


def _add_to_runs(owners: frozenset[str], recipe: Recipe, keys: Sequence[str]) -> None:
    """Add a recipe to the lists of runs of these browsers; failures are only logged."""
    for browser in sorted(owners):
        try:
            library.shelve(server.store(), browser, recipe, keys)
        except TrainyardError as error:  # results matter more than the list entry
            _LOG.warning("A run was not added to the library: %s", error)


def is_running(recipe: Recipe) -> bool:
    """Return True while this session watches the recipe's runs, or while they stop."""
    recipe_id = library.recipe_id(recipe)
    return shared_batches().is_stopping(recipe_id) or (
        recipe_id not in _cancelled_ids()
        and shared_batches().watch(recipe_id, state.session().watcher) is not None
    )


def note_link(recipe: Recipe) -> None:
    """Note that a recipe came from a link; it is added to Your runs once it has results."""
    st.session_state[_OPENED] = library.recipe_id(recipe)


def _add_linked_to_runs(panel: Panel, recipe_id: str, run: Run) -> None:
    """Add a recipe to this browser's runs if a link opened it; a failure is a notice."""
    if st.session_state.get(_OPENED) == recipe_id:
        del st.session_state[_OPENED]
        state.session().notice = browser_identity.add_to_runs(panel.recipe, run.keys)


def draw(panel: Panel) -> None:
    """Draw the start button or the progress of a recipe, and its results so far.

    The earlier recipe of the tab is no longer watched.
    """
    recipe_id = panel.recipe_id
    _detach_earlier(panel, recipe_id)
    is_live = is_running(panel.recipe)
    run = None if is_live else look_up(panel.recipe)
    if run is not None and run.state == "done":
        _add_linked_to_runs(panel, recipe_id, run)
    elif run is not None:
        _draw_start(panel, recipe_id, run)
        if panel.max_runs > MAX_LOOKUPS and run.state == "waiting":
            st.caption("Stored runs are not repeated; they are looked up when it starts.")
    # Drawn without live runs too: the browser may request the fragment once more.
    st.fragment(_draw_live, run_every=_refresh_period_s(panel, recipe_id) if is_live else None)(
        panel, recipe_id
    )


def _refresh_period_s(panel: Panel, recipe_id: str) -> float:
    """Return the seconds between redraws of live results: 4 for many runs, else 1."""
    return (
        _SELDOM_S
        if panel.max_runs > _LARGE and not shared_batches().is_stopping(recipe_id)
        else EVERY_S
    )


def _draw_start(panel: Panel, recipe_id: str, run: Run) -> None:
    """Draw the button that starts the recipe, with the estimated time.

    Long runs need a second click, on Begin, in place of this button.
    """
    pool = server.pool()
    per_run = estimate(panel.recipe.study, pool.store, pool.costs, 1)
    seconds = summaries.batch_seconds(
        per_run, max(panel.max_runs - run.done, 1), server.executor_name()
    )
    if st.session_state.get(_CONFIRM) == recipe_id:
        st.warning(
            f"{panel.takes[:1].upper()}{panel.takes[1:]},"
            f" {summaries.executor_text(server.executor_name())}: about"
            f" {summaries.remaining_time(seconds)} in total. Cancelling keeps finished runs.",
            icon=":material/timer:",
        )
        with st.container(horizontal=True):
            clicked = st.button(
                "Begin", key=f"begin/{panel.verb}", type="primary", icon=":material/play_arrow:"
            )
            st.button("Not now", key=f"not/{panel.verb}", on_click=_on_dismiss)
    else:
        verb = (
            "Continue"
            if run.done and run.state == "cancelled"
            else "Try again"
            if run.state == "failed"
            else panel.verb
        )
        place_text = summaries.executor_text(server.executor_name())
        length = summaries.remaining_time(seconds)
        takes = (
            f"{panel.takes}, about {length} in total"
            if panel.is_exact
            else (f"{panel.takes}, {length}")
        )
        if panel.is_exact and 0 < run.done < panel.max_runs:
            takes = f"{panel.max_runs - run.done:,} left of {takes}"
        with panel.button_place or st.container():
            clicked = st.button(
                verb,
                key=f"start/{panel.verb}",
                type="primary",
                icon=":material/play_arrow:",
                help=words.plain(f"{takes}, {place_text}."),
            )
        if run.state == "waiting":
            where = f", {place_text}" if panel.is_exact else ""
            st.caption(words.plain(f"{takes[:1].upper()}{takes[1:]}{where}."))
        if clicked and seconds > LONG_S:
            st.session_state[_CONFIRM] = recipe_id
            st.rerun()
    if clicked:
        _on_dismiss()
        _cancelled_ids().discard(recipe_id)
        session = state.session()
        started = start(panel.recipe, session.watcher, browser_identity.owner())
        session.other_runs[recipe_id] = lambda: (started.done, started.state == "running")
        st.rerun()


def _on_dismiss() -> None:
    """Close the confirmation of a long run."""
    st.session_state.pop(_CONFIRM, None)


def _detach_earlier(panel: Panel, recipe_id: str) -> None:
    """Stop watching the recipe that this tab drew before, if it is another one."""
    attended: dict[str, str] = st.session_state.setdefault(_ATTENDED, {})
    earlier = attended.get(panel.verb, recipe_id)
    if earlier != recipe_id:
        shared_batches().detach(earlier, state.session().watcher)
    attended[panel.verb] = recipe_id


def _draw_live(panel: Panel, recipe_id: str) -> None:
    """Draw progress and results so far; rerun the page when the runs end."""
    run = (
        None
        if recipe_id in _cancelled_ids()
        else shared_batches().watch(recipe_id, state.session().watcher)
    )
    stopping = shared_batches().is_stopping(recipe_id)
    drawn = st.session_state.get(_DRAWN)
    is_live = run is not None or stopping
    st.session_state[_DRAWN] = recipe_id if is_live else None
    if not is_live and drawn == recipe_id:
        # It has ended or was cancelled: the whole page changes.
        st.rerun()
    if stopping and st.session_state.pop(_CANCELLED, "") == recipe_id:
        st.rerun()  # sets the shorter period until it has stopped
    if stopping:
        st.caption(":material/hourglass: Stopping. Finished runs are kept.")
    elif run is not None:
        _draw_progress(panel, recipe_id, run)
    run_or_stored = run or look_up(panel.recipe)
    if not is_live:
        _draw_end(panel.verb, run_or_stored)
    panel.draw(run_or_stored, is_live)


def _draw_progress(panel: Panel, recipe_id: str, run: Run) -> None:
    """Draw the progress bar with the time left or place in the queue, and Cancel."""
    elapsed_s, place = time.monotonic() - run.began_s, run.place
    if place:
        text = progress.describe_queue_place(place, run.starts_in_s)
    else:
        left_s = elapsed_s * (panel.max_runs - run.done) / max(run.done, 1)
        left_note = (
            f", about {summaries.remaining_time(left_s)} left"
            if left_s > 0 and run.done and elapsed_s > _TELLING_S
            else ""
        )
        total = f"{'' if panel.is_exact else 'about '}{max(panel.max_runs, run.done):,}"
        text = f"{words.plural(run.done, 'run')} done of {total}{left_note}"
    st.progress(min(run.done / max(panel.max_runs, 1), 1.0), text=text)
    # A callback runs before any rerun, so the click cannot get lost.
    st.button(
        "Cancel",
        key=f"cancel/{panel.verb}",
        on_click=_on_cancel,
        args=(recipe_id,),
        icon=":material/stop_circle:",
    )


def _draw_end(verb: str, run: Run) -> None:
    """Draw that the runs failed, were cancelled, or are stored only in part."""
    if run.state == "failed":
        st.error(words.plain(run.error), icon=":material/error:")
    elif run.state == "cancelled":
        st.info(
            f"Cancelled after {words.plural(run.done, 'run')}. The results below use those.",
            icon=":material/stop_circle:",
        )
    elif run.state == "waiting" and run.done:
        st.info(
            f"Already stored: {words.plural(run.done, 'run')}. Press {verb} to run the rest.",
            icon=":material/history:",
        )


def _on_cancel(recipe_id: str) -> None:
    """Stop watching a recipe; its runs are cancelled unless another session watches them."""
    _cancelled_ids().add(recipe_id)
    st.session_state[_CANCELLED] = recipe_id
    shared_batches().detach(recipe_id, state.session().watcher)


def _cancelled_ids() -> set[str]:
    """Return the ids of recipes that this session cancelled; changes to the set are kept."""
    ids: set[str] = st.session_state.setdefault(_LEFT, set())
    return ids
