"""One instant of a run: the line of time with steps and Play, who waits then, and what is free."""

from __future__ import annotations

import html
import time
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from trainyard.runs import frames
from trainyard.what_if import explore
from trainyard.what_if import tables as explored
from trainyard.what_if.explore import Book, Moment
from ui import figure, words
from ui.comparing import tables
from ui.exploring import view
from ui.exploring.view import Scene
from ui.planning import from_here

EVERY_S: Final = 0.5
_DUE_S: Final = 0.4
"""A little less, because a step that comes early is better than one that comes twice as late."""
_PLAYING: Final = "explore_playing"
_STEPPED: Final = "explore_stepped"
_SLIDER: Final = "explore/instant"
_STEP: Final = "step"
_MOST: Final = 2000
"""Characters of a sentence."""
_STEPS: Final = {"60": "1 min", "600": "10 min", "3600": "1 h", "21600": "6 h", "86400": "1 day"}
_RIGHT_PX: Final = 32
_BINS: Final = 249
"""The strip is drawn anew at every step, so it has fewer points than other figures."""
_COLUMNS: Final = {"id": "Job", "user": "User", "gpus": "GPUs asked for", "waited_s": "Waited so far", "runs_s": "Runs for", "rank": "Place by submission"}


def draw(scene: Scene, left_px: int) -> None:
    """Draw the part of the page that follows the instant; it alone is drawn anew while it plays."""
    view.part("moment", partial(_moment, left_px=left_px), scene, EVERY_S if _playing() else None)


def stop() -> None:
    """End the motion: nobody has asked for it on this visit of the page."""
    st.session_state[_PLAYING] = False


def _playing() -> bool:
    return bool(st.session_state.get(_PLAYING))


def _moment(scene: Scene, left_px: int) -> None:
    queue = {title: _queue(scene.keys[title], scene.window, book) for title, book in scene.books.items()}
    at_s = _stepped(scene, _instant(scene, queue[scene.title]))
    _controls(scene, at_s)
    _slider(scene, at_s, left_px)
    alt = f"Jobs waiting, with a line at {scene.book.clock.at(at_s)}."
    figure.draw(charts.instant_strip(queue, scene.look.style, scene.axis, at_s, left_px), "instant", alt, lambda: _queue_table(queue))
    found = {title: _found(scene.keys[title], round(at_s), book) for title, book in scene.books.items()}
    for title, moment in found.items():
        # Its line stands before it, because the strip has no room for a legend.
        st.html(f"{tables.swatch(*scene.look.style[title])}<b>{html.escape(charts.visible(title))}</b>: {html.escape(charts.visible(moment.sentence, _MOST))}")
    _waiting(scene, round(at_s))
    _link(scene)


def _link(scene: Scene) -> None:
    job = view.job(scene.book)
    if job is not None:
        name = words.plain(str(scene.book.trace.frame["job_id"].iloc[job]))
        st.markdown(f"Open: job {name}. [Its life, and why it waited](#{view.ANCHOR})")


def _instant(scene: Scene, queue: pd.DataFrame) -> float:
    """Return the instant of the address within the window, or else one at which most jobs wait."""
    asked = view.number(view.INSTANT)
    t0, t1 = scene.window
    return min(max(explored.busiest_s(queue) if asked is None else asked, t0), t1)


def _stepped(scene: Scene, at_s: float) -> float:
    """Return the instant, one step later if it plays and that step is due."""
    if not _playing() or time.monotonic() - st.session_state.get(_STEPPED, 0.0) < _DUE_S:
        return at_s
    st.session_state[_STEPPED] = time.monotonic()
    at_s = min(at_s + _step_s(scene), scene.window[1])
    _go(at_s)
    if at_s >= scene.window[1]:
        st.session_state[_PLAYING] = False
        # Only a run of the whole page ends the calls of this part.
        st.rerun()
    return at_s


def _controls(scene: Scene, at_s: float) -> None:
    t0, t1 = scene.window
    with st.container(horizontal=True, vertical_alignment="bottom"):
        step_s = _step_s(scene)
        st.button("Earlier", key="earlier", icon=":material/chevron_left:", on_click=_go, args=(max(at_s - step_s, t0),), disabled=at_s <= t0)
        st.button("Later", key="later", icon=":material/chevron_right:", on_click=_go, args=(min(at_s + step_s, t1),), disabled=at_s >= t1)
        name, icon = ("Pause", ":material/pause:") if _playing() else ("Play", ":material/play_arrow:")
        # The page decides whether this part is called every half second, so all of it runs once.
        if st.button(name, key="play", icon=icon, help="One step every half second"):
            st.session_state[_PLAYING] = not _playing()
            st.session_state[_STEPPED] = time.monotonic()
            if at_s >= t1:
                _go(t0)
            st.rerun()
        view.choice(st.selectbox, "Step", _steps(scene), _STEP, _usual_step(scene), format_func=_STEPS.__getitem__, width=120)
        unit_s, unit = scene.axis.unit
        st.markdown(f"**{scene.book.clock.at(at_s)}**, {at_s / unit_s:.2f} {unit} since the first submission")
        from_here.link(at_s)


def _slider(scene: Scene, at_s: float, left_px: int) -> None:
    (t0, t1), unit_s = scene.window, scene.axis.unit[0]
    st.session_state[_SLIDER] = at_s / unit_s
    label = f"Instant, {scene.axis.unit[1]} since the first submission"
    # Above the strip's time axis, as nearly as pixels beside a share of the width allow.
    with st.container(horizontal=True, gap=None):
        st.space(left_px)
        st.slider(label, t0 / unit_s, t1 / unit_s, step=(t1 - t0) / unit_s / 1000, format="%.2f", key=_SLIDER, on_change=_slid, args=(unit_s,))
        st.space(_RIGHT_PX)


def _steps(scene: Scene) -> list[str]:
    span_s = scene.window[1] - scene.window[0]
    return [name for name in _STEPS if float(name) <= span_s / 4] or [next(iter(_STEPS))]


def _usual_step(scene: Scene) -> str:
    """Return the step with which the window takes about a hundred."""
    wanted_s = (scene.window[1] - scene.window[0]) / 100
    return min(_steps(scene), key=lambda name: abs(float(name) - wanted_s))


def _step_s(scene: Scene) -> float:
    asked = view.asked(_STEP)
    return float(asked if asked in _steps(scene) else _usual_step(scene))


def _go(at_s: float) -> None:
    view.put(view.INSTANT, f"{at_s:.0f}")


def _slid(unit_s: float) -> None:
    _go(float(st.session_state[_SLIDER]) * unit_s)


def _waiting(scene: Scene, at_s: int) -> None:
    book = scene.book
    count, rows, shown = _queued(scene.keys[scene.title], at_s, book)
    if not rows:
        return
    most = f": {len(rows)} of {count:,}" if count > len(rows) else ""
    st.caption(words.plain(f"Waiting under {scene.title}, in order of submission{most}. Choose one to see why."))
    key = f"waiting/{view.picked()}"
    height = min(38 + 35 * len(rows), 260)
    st.dataframe(shown, hide_index=True, height=height, key=key, on_select=partial(_pick, key, rows), selection_mode="single-row")


@st.cache_resource(max_entries=64, show_spinner=False)
def _queued(key: str, at_s: int, _book: Book) -> tuple[int, list[int], pd.DataFrame]:
    """Return how many jobs wait, and the first of them: their rows in the trace, and as they are shown."""
    jobs = _found(key, at_s, _book).waiting
    told = jobs.head(figure.MOST_ROWS)
    columns = {name: title for name, title in _COLUMNS.items() if name != "gpus" or _book.cluster.gpus}
    shown = told.assign(waited_s=told["waited_s"].map(words.time), runs_s=told["runs_s"].map(words.time))
    return len(jobs), told["job"].tolist(), figure.readable(shown[list(columns)].rename(columns=columns))


def _pick(key: str, jobs: list[int]) -> None:
    event: Any = st.session_state.get(key)
    for row in event["selection"]["rows"] if event else []:
        if row < len(jobs):
            view.pick_job(jobs[row])
            # Its life is another part of the page.
            st.rerun()


@st.cache_resource(max_entries=32, show_spinner=False)
def _queue(key: str, window: tuple[float, float], _book: Book) -> pd.DataFrame:
    del key
    return frames.series("queue", _book.result, _book.cluster, window, _BINS)


@st.cache_resource(max_entries=128, show_spinner=False)
def _found(key: str, at_s: int, _book: Book) -> Moment:
    del key
    return explore.moment(_book, float(at_s))


def _queue_table(queue: dict[str, pd.DataFrame]) -> pd.DataFrame:
    named = {"policy": "Policy", "t_s": "Seconds since the first submission", "waiting": "Jobs waiting", "gpus_wanted": "GPUs they ask for"}
    rows = pd.concat([frame.assign(policy=title) for title, frame in queue.items()], ignore_index=True)
    return rows[list(named)].rename(columns=named)
