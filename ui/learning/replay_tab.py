"""The tab of paper replays: which one, with how many seeds, its run, and what came out."""

from __future__ import annotations

import atexit
import time
from functools import partial
from typing import Final

import streamlit as st

from trainyard.labs.replays import curves
from trainyard.labs.replays.reading import FIRST, load, names
from trainyard.labs.replays.report import ClaimRow
from trainyard.labs.replays.run import ReplayRun
from trainyard.labs.replays.types import Replay
from trainyard.runs.executors import cores
from trainyard.runs.queue import ENDED
from trainyard.runs.shared import SharedBatches
from ui import progress, server, state, url_params, words
from ui.learning import replay_report

Key = tuple[str, int]
"""Name of a replay and number of seeds."""

NAME: Final = "replay"
"""Parameter of the address: which replay."""
SEEDS: Final = "seeds"
"""Parameter of the address: with how many seeds."""
COUNTS: Final = (1, 5, 20, 50)
EVERY_S: Final = 0.5
_TELLING_S: Final = 3.0
_START_S: Final = 4.0
"""Until the processes of a replay are up."""
_STOPPED: Final = "replays_stopped"
_DRAWN: Final = "replay_drawn"


@st.cache_resource(show_spinner=False)
def runs() -> SharedBatches[Key, ReplayRun]:
    """Return the replays of this server."""
    made = SharedBatches[Key, ReplayRun](server.pool().grace)
    atexit.register(made.close)
    return made


def make(name: str, seeds: int) -> ReplayRun:
    """Return a replay with what is needed to run it on this server."""
    return ReplayRun(load(name), seeds, store=server.store(), where=server.batch_queue())


def replays() -> None:
    """Draw the tab."""
    name = _chosen()
    if name is None:
        return
    replay = load(name)
    replay_report.claim(replay)
    seeds = _run(replay)
    replay_report.why(replay)
    replay_report.exactly(replay, seeds)
    replay_report.open_it(replay)


def _chosen() -> str | None:
    """Draw the list and return what is chosen in it; the address leads, so that Back and a reload
    find it again.
    """
    known = names()
    asked = url_params.get(NAME) or next((name for name in (FIRST, *known) if name in known), "")
    if asked not in known:
        st.warning(
            words.plain(f"There is no replay “{asked}”. Choose one of these."),
            icon=":material/warning:",
        )
    st.session_state["replay"] = asked if asked in known else None
    chosen = st.pills(
        "Replay", known, key="replay", format_func=lambda one: load(one).title, on_change=_choose
    )
    if chosen is not None:
        url_params.put(NAME, chosen)
    return chosen


def _choose() -> None:
    if chosen := st.session_state["replay"]:
        url_params.put(NAME, chosen)
        url_params.put(SEEDS, "")


def _run(replay: Replay) -> int:
    """Draw what starts it, how far it is, and what came out; return the number of seeds chosen."""
    watcher = state.session().watcher
    stopped: set[Key] = st.session_state.setdefault(_STOPPED, set())
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = (replay.name, _seeds(replay))
        going = None if key in stopped else runs().watched(key, watcher)
        stopping = runs().is_stopping(key)
        ended = None if going or stopping else ended_replay(key)
        locked = going is not None or stopping
        if (ended is None or ended.state != "done") and st.button(
            "Run this replay",
            key="run_replay",
            type="primary",
            icon=":material/play_arrow:",
            disabled=locked,
        ):
            stopped.discard(key)
            begun = runs().start(key, partial(make, *key), watcher)
            state.session().other_runs[str(key)] = lambda: begun.done
            st.rerun()
    # Drawn even when nothing runs: the browser may still ask for it once more.
    st.fragment(_progress, run_every=EVERY_S if locked else None)(key)
    if locked:
        replay_report.reading(replay)
    else:
        _told(replay, key, ended)
    return key[1]


def ended_replay(key: Key) -> ReplayRun | None:
    """Return the replay if it has ended, on this server or, completely, before."""
    run = runs().known(key, partial(make, *key))
    return run if run.state in ENDED else None


def _seeds(replay: Replay) -> int:
    """Draw the number of seeds; the address leads here too."""
    counts = sorted({*COUNTS, replay.seeds})
    asked = url_params.get(SEEDS)
    wanted = int(asked) if asked.isdecimal() and int(asked) in counts else replay.seeds
    st.session_state["seeds"] = wanted
    if asked:
        url_params.put(SEEDS, str(wanted))
    st.segmented_control(
        "Seeds per policy",
        counts,
        key="seeds",
        on_change=_choose_seeds,
        help="More seeds, narrower intervals. Curves may use fewer.",
    )
    return wanted


def _choose_seeds() -> None:
    if chosen := st.session_state["seeds"]:
        url_params.put(SEEDS, str(chosen))


def _told(replay: Replay, key: Key, run: ReplayRun | None) -> None:
    """Draw how a run has ended, and what came out; or that there is none."""
    if run is None:
        st.caption(f":material/info: {_cost(replay, key)}")
    elif run.state == "failed":
        st.error(words.plain(run.error), icon=":material/error:")
    elif run.state == "cancelled":
        st.info(
            f"Stopped after {run.done:,} of {words.plural(run.of, 'run')}; what follows rests on"
            " those.",
            icon=":material/stop_circle:",
        )
    if run is not None and run.done and run.state != "failed":
        replay_report.results(replay, _result(key, run.done, run), key[1])
        return
    replay_report.reading(replay)


def _cost(replay: Replay, key: Key) -> str:
    """Return how long it takes: measured, where a run of this replay has ended here, or as its file
    says.
    """
    run = runs().known(key, partial(make, *key))
    if run.state == "running":
        return (
            "You have left this run; it goes on, because others wait for it. Run it to see it"
            " again."
        )
    each_s = _seconds_each(key[0]) or replay.run_s
    took = (
        f", about {words.time(_START_S + run.of * each_s / cores())} if nothing else runs"
        if each_s
        else ""
    )
    return (
        f"Not run yet with {words.plural(key[1], 'seed')}:"
        f" {words.plural(run.of, 'simulation')}{took}. {words.plain(replay.budget)}"
    )


def _seconds_each(name: str) -> float:
    """Return the mean processor seconds of a simulation of a replay, from those of this server that
    have ended; 0 = there are none yet.
    """
    ended = [run for key, run in runs().ended() if key[0] == name and run.done]
    spent = [numbers["cell_cpu_s"] for run in ended for numbers in run.numbers().values()]
    return sum(spent) / len(spent) if spent else 0.0


@st.cache_resource(max_entries=24, show_spinner=False)
def _result(key: Key, done: int, _run: ReplayRun) -> replay_report.Result:
    """Return what came out of a run that has ended; pooling takes longer than drawing."""
    del done
    return replay_report.Result(_run.report(), curves.by_arm(load(key[0]), _run.numbers()))


@st.cache_resource(max_entries=4, show_spinner=False)
def _rows(key: Key, done: int, _run: ReplayRun) -> tuple[ClaimRow, ...]:
    """Return the claims with what is known so far, pooled once for all who watch."""
    del key, done
    return _run.rows()


def _progress(key: Key) -> None:
    run = (
        None if key in st.session_state[_STOPPED] else runs().watched(key, state.session().watcher)
    )
    stopping = runs().is_stopping(key)
    drawn = st.session_state.get(_DRAWN)
    st.session_state[_DRAWN] = key if run is not None or stopping else None
    if stopping:
        st.caption(":material/hourglass: Stopping.")
    elif run is not None:
        _bar(key, run)
    elif drawn == key:
        # It has ended, or this session has left it: the whole page has something new to show.
        st.rerun()


def _bar(key: Key, run: ReplayRun) -> None:
    far = f"{run.done:,} of {words.plural(run.of, 'run')}{_left(run)}"
    text = progress.describe_queue_place(run.place, run.starts_in_s) if run.place else far
    st.progress(run.done / max(run.of, 1), text=text)
    # A callback, because it comes before anything that starts the page anew and so cannot lose the
    # click.
    st.button(
        "Cancel", key="cancel_replay", on_click=_cancel, args=(key,), icon=":material/stop_circle:"
    )
    if done := run.done:
        replay_report.so_far(load(key[0]), _rows(key, done, run), done, run.of)


def _left(run: ReplayRun) -> str:
    passed_s = time.monotonic() - run.began_s
    return (
        f", about {words.time(passed_s * (run.of - run.done) / run.done)} left"
        if run.done and passed_s > _TELLING_S
        else ""
    )


def _cancel(key: Key) -> None:
    st.session_state[_STOPPED].add(key)
    runs().detach(key, state.session().watcher)
