"""The tab "Paper replays": choice of the replay and its seeds, its run, its results."""

from __future__ import annotations

import atexit
import time
from functools import partial
from typing import Final

import streamlit as st

from trainyard.labs.replays import curves
from trainyard.labs.replays.reading import DEFAULT_REPLAY, load, names
from trainyard.labs.replays.report import ClaimRow
from trainyard.labs.replays.run import ReplayRun
from trainyard.labs.replays.types import Replay
from trainyard.runs.executors import cores
from trainyard.runs.queue import ENDED
from trainyard.runs.shared_batches import SharedBatches
from ui import progress, server, state, url_params, words
from ui.learning import replay_report

Key = tuple[str, int]
"""Name of a replay and number of seeds."""

NAME: Final = "replay"
"""URL parameter: name of the replay."""
SEEDS: Final = "seeds"
"""URL parameter: number of seeds."""
COUNTS: Final = (1, 5, 20, 50)
EVERY_S: Final = 0.5
_TELLING_S: Final = 3.0
_START_S: Final = 4.0
"""Start-up time of the processes of a replay."""
_STOPPED: Final = "replays_stopped"
_DRAWN: Final = "replay_drawn"


@st.cache_resource(show_spinner=False)
def shared_replays() -> SharedBatches[Key, ReplayRun]:
    """Return the replays of this server, shared by all sessions; closed at its exit."""
    batches = SharedBatches[Key, ReplayRun](server.pool().grace)
    atexit.register(batches.close)
    return batches


def new_replay(name: str, seeds: int) -> ReplayRun:
    """Return a replay, not started, that runs on this server's batch queue."""
    return ReplayRun(load(name), seeds, store=server.store(), where=server.batch_queue())


def draw() -> None:
    """Draw the tab "Paper replays": choice, claim, run and results, setup, open button."""
    name = _draw_replay_choice()
    if name is None:
        return
    replay = load(name)
    replay_report.draw_claim(replay)
    seeds = _draw_run(replay)
    replay_report.draw_speedups(replay)
    replay_report.draw_setup(replay, seeds)
    replay_report.draw_open_button(replay)


def _draw_replay_choice() -> str | None:
    """Draw the list of replays; return the chosen one (first the URL's), or None."""
    all_names = sorted(names(), key=lambda name: name != DEFAULT_REPLAY)
    requested = url_params.get(NAME) or next(iter(all_names), "")
    if requested not in all_names:
        st.warning(
            words.plain(f"There is no replay “{requested}”. Choose one below."),
            icon=":material/warning:",
        )
    st.session_state["replay"] = requested if requested in all_names else None
    chosen = st.pills(
        "Replay",
        all_names,
        key="replay",
        format_func=lambda replay_name: load(replay_name).title,
        on_change=_on_choose,
    )
    if chosen is not None:
        url_params.set_param(NAME, chosen)
    return chosen


def _on_choose() -> None:
    """Write the chosen replay to the URL, and remove the number of seeds from it."""
    if chosen := st.session_state["replay"]:
        url_params.set_param(NAME, chosen)
        url_params.set_param(SEEDS, "")


def _draw_run(replay: Replay) -> int:
    """Draw seeds, the run button, progress, and results; return the number of seeds."""
    watcher = state.session().watcher
    stopped: set[Key] = st.session_state.setdefault(_STOPPED, set())
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = (replay.name, _draw_seeds(replay))
        live_run = None if key in stopped else shared_replays().watch(key, watcher)
        is_stopping = shared_replays().is_stopping(key)
        ended = None if live_run or is_stopping else ended_replay(key)
        is_locked = live_run is not None or is_stopping
        if (ended is None or ended.state != "done") and st.button(
            "Run this replay",
            key="run_replay",
            type="primary",
            icon=":material/play_arrow:",
            disabled=is_locked,
        ):
            stopped.discard(key)
            started = shared_replays().start(key, partial(new_replay, *key), watcher)
            state.session().other_runs[str(key)] = lambda: (
                started.done,
                started.state == "running",
            )
            st.rerun()
    # Drawn without live runs too: the browser may request the fragment once more.
    st.fragment(_draw_live, run_every=EVERY_S if is_locked else None)(key)
    if is_locked:
        replay_report.draw_interpretation(replay)
    else:
        _draw_outcome(replay, key, ended)
    return key[1]


def ended_replay(key: Key) -> ReplayRun | None:
    """Return the replay if it has ended (done, failed, cancelled) or is stored, else None."""
    run = shared_replays().get_batch(key, partial(new_replay, *key))
    return run if run.state in ENDED else None


def _draw_seeds(replay: Replay) -> int:
    """Draw the choice of the number of seeds; return the URL's, else the replay's own."""
    counts = sorted({*COUNTS, replay.seeds})
    url_text = url_params.get(SEEDS)
    seeds = int(url_text) if url_text.isdecimal() and int(url_text) in counts else replay.seeds
    st.session_state["seeds"] = seeds
    if url_text:
        url_params.set_param(SEEDS, str(seeds))
    st.segmented_control(
        "Seeds per policy",
        counts,
        key="seeds",
        on_change=_on_choose_seeds,
        help="More seeds, narrower intervals. Curves may use fewer.",
    )
    return seeds


def _on_choose_seeds() -> None:
    """Write the chosen number of seeds to the URL."""
    if chosen := st.session_state["seeds"]:
        url_params.set_param(SEEDS, str(chosen))


def _draw_outcome(replay: Replay, key: Key, run: ReplayRun | None) -> None:
    """Draw how the replay ended and its results, else its cost and interpretation."""
    if run is None:
        st.caption(f":material/info: {_cost_text(replay, key)}")
    elif run.state == "failed":
        st.error(words.plain(run.error), icon=":material/error:")
    elif run.state == "cancelled":
        st.info(
            f"Cancelled after {run.done:,} of {words.plural(run.total, 'run')}. The results below"
            " use those.",
            icon=":material/stop_circle:",
        )
    if run is not None and run.done and run.state != "failed":
        replay_report.draw_results(replay, _pooled_result(key, run.done, run), key[1])
        return
    replay_report.draw_interpretation(replay)


def _cost_text(replay: Replay, key: Key) -> str:
    """Return how many simulations the replay needs and how long they take, or that it runs."""
    run = shared_replays().get_batch(key, partial(new_replay, *key))
    if run.state == "running":
        return "You left this run; it continues for other users. Press Run to follow it."
    each_s = _mean_run_s(key[0]) or replay.run_s
    duration = (
        f", about {words.time(_START_S + run.total * each_s / cores())} if nothing else runs"
        if each_s
        else ""
    )
    return (
        f"Not run yet with {words.plural(key[1], 'seed')}:"
        f" {words.plural(run.total, 'simulation')}{duration}. {words.plain(replay.budget)}"
    )


def _mean_run_s(name: str) -> float:
    """Return the mean CPU seconds of a replay's simulations on this server; 0 without any."""
    ended = [run for key, run in shared_replays().ended_batches() if key[0] == name and run.done]
    spent = [numbers["cell_cpu_s"] for run in ended for numbers in run.numbers().values()]
    return sum(spent) / len(spent) if spent else 0.0


@st.cache_resource(max_entries=24, show_spinner=False)
def _pooled_result(key: Key, done: int, _run: ReplayRun) -> replay_report.ReplayResult:
    """Return the result of an ended replay, pooled over its runs; cached."""
    del done
    return replay_report.ReplayResult(_run.report(), curves.by_arm(load(key[0]), _run.numbers()))


@st.cache_resource(max_entries=4, show_spinner=False)
def _claim_rows(key: Key, done: int, _run: ReplayRun) -> tuple[ClaimRow, ...]:
    """Return a live replay's claims, pooled over the `done` runs so far; cached."""
    del key, done
    return _run.rows()


def _draw_live(key: Key) -> None:
    """Draw the progress of the replay, or that it stops; rerun the page when it ends."""
    run = (
        None
        if key in st.session_state[_STOPPED]
        else shared_replays().watch(key, state.session().watcher)
    )
    is_stopping = shared_replays().is_stopping(key)
    drawn = st.session_state.get(_DRAWN)
    st.session_state[_DRAWN] = key if run is not None or is_stopping else None
    if is_stopping:
        st.caption(":material/hourglass: Stopping.")
    elif run is not None:
        _draw_progress(key, run)
    elif drawn == key:
        # It has ended or was cancelled: the whole page changes.
        st.rerun()


def _draw_progress(key: Key, run: ReplayRun) -> None:
    """Draw the progress bar or place in the queue, Cancel, and the results so far."""
    progress_text = f"{run.done:,} of {words.plural(run.total, 'run')}{_left_text(run)}"
    text = progress.describe_queue_place(run.place, run.starts_in_s) if run.place else progress_text
    st.progress(run.done / max(run.total, 1), text=text)
    # A callback runs before any rerun, so the click cannot get lost.
    st.button(
        "Cancel",
        key="cancel_replay",
        on_click=_on_cancel,
        args=(key,),
        icon=":material/stop_circle:",
    )
    if done := run.done:
        replay_report.draw_results_so_far(
            load(key[0]), _claim_rows(key, done, run), done, run.total
        )


def _left_text(run: ReplayRun) -> str:
    """Return the estimated time left as text, or "" in the first seconds."""
    elapsed_s = time.monotonic() - run.began_s
    return (
        f", about {words.time(elapsed_s * (run.total - run.done) / run.done)} left"
        if run.done and elapsed_s > _TELLING_S
        else ""
    )


def _on_cancel(key: Key) -> None:
    """Stop watching the replay; it is cancelled unless another session watches it."""
    st.session_state[_STOPPED].add(key)
    shared_replays().detach(key, state.session().watcher)
