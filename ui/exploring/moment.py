"""One instant of a run: the table of who waits and what is free then, what moves the instant, and
the jobs of the run, to find one and open it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pandas as pd
import streamlit as st

from trainyard.views import metric_table
from trainyard.views.charts import visible
from trainyard.views.explored import ExploredRuns
from trainyard.views.markup import framed, text
from trainyard.what_if import explore, tables
from trainyard.what_if.explore import Book, MomentReport
from ui import exploration, figure, job_drawer, words, zoom_window
from ui.exploring import machines
from ui.exploring.machines import MachineMap
from ui.planning import from_here

EVERY_S: Final = 0.5
_DUE_S: Final = 0.4
"""A little less, because a step that comes early is better than one that comes twice as late."""
_PLAYING: Final = "explore_playing"
_STEPPED: Final = "explore_stepped"
_STEP: Final = "step"
_STEPS: Final = {"60": "1 min", "600": "10 min", "3600": "1 h", "21600": "6 h", "86400": "1 day"}
_POINTED: Final = 400
"""Instants that can be pointed at."""
_ROWS: Final = 10
_COLUMNS: Final = {
    "id": "Job",
    "user": "User",
    "gpus": "GPUs asked for",
    "waited_s": f"Wait so far{figure.SECONDS}",
    "runs_s": f"Runs for{figure.SECONDS}",
    "rank": "Place by submission",
}
_WAITING: Final = "Jobs waiting"
_ALL: Final = "All jobs"
_INSTANT: Final = "explore_instant"
"""Key of the crosshair."""
_HERE: Final = Path(__file__).parent
_HTML: Final = (
    '<div class="ty-instant" tabindex="0" role="slider" aria-label="Instant"><b></b>'
    "<small>click the chart, or ← →</small></div>"
)
_MOUNT: Final = st.components.v2.component(
    "trainyard_instant",
    html=_HTML,
    css=(_HERE / "instant.css").read_text(encoding="utf-8"),
    js=(_HERE / "instant.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)
_STATES: Final = {
    "any": "all jobs",
    "waited": "that waited",
    "preempted": "that were stopped or changed",
    "failed": "that failed or cannot start",
    "unfinished": "unfinished at the end",
}
_SORTS: Final = {
    "wait": "longest wait",
    "jct": "longest JCT",
    "gpus": "most GPUs",
    "submit": "first submitted",
    "slowdown": "largest slowdown",
}
_JOB_COLUMNS: Final = {
    "id": "Job",
    "user": "User",
    "gpus": "GPUs asked for",
    "submit_s": "Submitted",
    "wait_s": f"Wait{figure.SECONDS}",
    "jct_s": f"JCT{figure.SECONDS}",
    "slowdown": "Slowdown",
    "outcome": "Ended",
    "preemptions": "Preempted",
    "evictions": "Evicted",
}


def draw(explored: ExploredRuns, shown: MachineMap) -> None:
    """Draw the part of the page that follows the instant; it alone is drawn anew while it moves."""
    exploration.part(
        "moment", partial(_moment, shown=shown), explored, EVERY_S if _playing() else None
    )


def stop() -> None:
    """End the motion: nobody has asked for it on this visit of the page."""
    st.session_state[_PLAYING] = False


def _playing() -> bool:
    return bool(st.session_state.get(_PLAYING))


def _moment(explored: ExploredRuns, shown: MachineMap) -> None:
    end_s = explored.compared.report.end_s
    if (zoom_window.current(end_s) or (0.0, max(end_s, 1.0))) != explored.window:
        st.rerun()  # of the whole page: every figure shows another part of the runs
    at_s = _stepped(explored, _instant(explored, shown.queue[explored.title]))
    with st.container(horizontal=True, vertical_alignment="center"):
        _crosshair(explored, shown, at_s)
        _menu(explored, at_s)
    found = {
        title: _found(explored.keys[title], round(at_s), book)
        for title, book in explored.books.items()
    }
    st.html(_table(explored, found))
    _tabs(explored, round(at_s))


@dataclass(frozen=True)
class Crosshair:
    """What the script of the crosshair knows of the figure of the machines: a click fixes the
    instant, arrows move it, a drag chooses the window.

    Parameters
    ----------
    chart : str
        Key of the figure: letters and digits only.
    at, text : float, str
        The instant that is fixed, in seconds, and in words.
    step : float, seconds
        By how much an arrow moves it.
    window, span : (float, float), seconds
        The range of the machines, and that of the strip.
    panels : int
        Figures of machines above the queue.
    rows : sequence of str
        Names of their rows, from top to bottom.
    t, labels : sequence of float, sequence of str
        Instants that can be pointed at, in seconds, and in words.
    """

    chart: str
    at: float
    text: str
    step: float
    window: tuple[float, float]
    span: tuple[float, float]
    panels: int
    rows: Sequence[str]
    t: Sequence[float]
    labels: Sequence[str]


def _crosshair(explored: ExploredRuns, shown: MachineMap, at_s: float) -> None:
    """Draw the instant that is fixed, and bind the crosshair to its figure."""
    t0, t1 = explored.window
    end_s = explored.compared.report.end_s
    points = [round(t0 + (t1 - t0) * at / _POINTED) for at in range(_POINTED)]
    clock = explored.book.clock
    crosshair = Crosshair(
        machines.CHART,
        at_s,
        clock.at(at_s),
        _step_s(explored),
        explored.window,
        (0.0, max(end_s, 1.0)),
        shown.panels,
        shown.names,
        points,
        [clock.at(at) for at in points],
    )
    _MOUNT(
        key=_INSTANT,
        data=asdict(crosshair),
        on_pick_change=partial(_picked, shown),
        on_window_change=partial(_dragged, end_s),
    )


def _picked(shown: MachineMap) -> None:
    """Take over what was clicked: the instant, and the node, or the group that is opened."""
    sent = st.session_state[_INSTANT].pick
    if sent is None:
        return
    stop()
    _go(float(sent["at"]))
    row = int(sent["row"])  # −1 = none was clicked
    if 0 <= row < len(shown.rows):
        exploration.put(exploration.NODE if shown.is_node else exploration.WITHIN, shown.rows[row])


def _dragged(end_s: float) -> None:
    ends = st.session_state[_INSTANT].window
    if ends is not None:
        zoom_window.choose(ends, end_s)


def _table(explored: ExploredRuns, found: dict[str, MomentReport]) -> str:
    first = found[explored.title]
    unit = first.unit
    names = (
        "Policy",
        _WAITING,
        f"{unit}s they ask for",
        f"{unit}s free",
        "Largest free piece",
        f"{unit}s down",
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    notes = {title: moment.sentence.partition(". ")[2] for title, moment in found.items()}
    if any(notes.values()):
        head += "<th></th>"
    body = "".join(
        _row(explored, title, moment, notes[title] if any(notes.values()) else None)
        for title, moment in found.items()
    )
    return framed(f"<tr>{head}</tr>", body, dark=figure.dark())


def _row(explored: ExploredRuns, title: str, moment: MomentReport, note: str | None) -> str:
    colour = explored.compared.colours(figure.dark())[title]
    swatch = metric_table.swatch(colour, "solid")
    asked = int(moment.waiting["gpus"].sum())
    cells = (
        f"{len(moment.waiting):,}",
        f"{asked:,}" if asked else words.MISSING,
        f"{moment.free:,.0f}",
        f"{moment.largest:,}" if moment.largest else words.MISSING,
        f"{moment.down:,.0f}" if moment.down else words.MISSING,
    )
    row = f'<th scope="row">{swatch}{text(title)}</th>'
    row += "".join(f"<td>{cell}</td>" for cell in cells)
    if note is not None:
        row += f'<td class="long">{text(note)}</td>'
    return f"<tr>{row}</tr>"


def _tabs(explored: ExploredRuns, at_s: int) -> None:
    node = exploration.asked(exploration.NODE)
    titles = [_WAITING, words.plain(f"Jobs of {node[:40]}" if node else "Jobs of a node"), _ALL]
    waiting, of_node, every = st.tabs(titles, key="explore_tabs", on_change="rerun")
    if waiting.open:
        with waiting:
            _waiting(explored, at_s)
    if of_node.open:
        with of_node:
            machines.node(explored)
    if every.open:
        with every:
            _every_job(explored)


def _instant(explored: ExploredRuns, queue: pd.DataFrame) -> float:
    """Return the instant of the address within the window, or else one at which most jobs wait;
    say so where the runs have no such instant.
    """
    asked = exploration.number(exploration.INSTANT)
    t0, t1 = explored.window
    # Addresses hold whole seconds, so the end may be rounded up.
    end_s = max(explored.compared.report.end_s, 1.0) + 1
    if asked is not None and 0 <= asked <= end_s:
        return min(max(asked, t0), t1)
    at_s = min(max(tables.busiest_s(queue), t0), t1)
    if wrong := exploration.asked(exploration.INSTANT):
        clock = explored.book.clock
        st.caption(
            words.plain(
                f"The address asks for second {visible(wrong, 20)}, which is not in these runs:"
                f" they end at {clock.at(end_s - 1)}. Shown: {clock.at(at_s)}."
            )
        )
    return at_s


def _stepped(explored: ExploredRuns, at_s: float) -> float:
    """Return the instant, one step later if it plays and that step is due."""
    if not _playing() or time.monotonic() - st.session_state.get(_STEPPED, 0.0) < _DUE_S:
        return at_s
    st.session_state[_STEPPED] = time.monotonic()
    at_s = min(at_s + _step_s(explored), explored.window[1])
    _go(at_s)
    if at_s >= explored.window[1]:
        st.session_state[_PLAYING] = False
        # Only a run of the whole page ends the calls of this part.
        st.rerun()
    return at_s


def _menu(explored: ExploredRuns, at_s: float) -> None:
    t0, t1 = explored.window
    with st.popover("Move", icon=":material/more_horiz:", key="explore_menu"):
        name, icon = (
            ("Pause", ":material/pause:") if _playing() else ("Play", ":material/play_arrow:")
        )
        # The page decides whether this part is called every half second, so all of it runs once.
        if st.button(name, key="play", icon=icon, help="One step every half second"):
            st.session_state[_PLAYING] = not _playing()
            st.session_state[_STEPPED] = time.monotonic()
            if at_s >= t1:
                _go(t0)
            st.rerun()
        exploration.choice(
            st.selectbox,
            "Step",
            _steps(explored),
            _STEP,
            _usual_step(explored),
            format_func=_STEPS.__getitem__,
            width=140,
        )
        from_here.link(at_s)


def _steps(explored: ExploredRuns) -> list[str]:
    span_s = explored.window[1] - explored.window[0]
    return [name for name in _STEPS if float(name) <= span_s / 4] or [next(iter(_STEPS))]


def _usual_step(explored: ExploredRuns) -> str:
    """Return the step with which the window takes about a hundred."""
    wanted_s = (explored.window[1] - explored.window[0]) / 100
    return min(_steps(explored), key=lambda name: abs(float(name) - wanted_s))


def _step_s(explored: ExploredRuns) -> float:
    asked = exploration.asked(_STEP)
    return float(asked if asked in _steps(explored) else _usual_step(explored))


def _go(at_s: float) -> None:
    exploration.put(exploration.INSTANT, f"{at_s:.0f}")


def _waiting(explored: ExploredRuns, at_s: int) -> None:
    book = explored.book
    count, ids, shown = _queued(explored.keys[explored.title], at_s, book)
    if not ids:
        st.caption(words.plain(f"No job waits under {explored.title} then."))
        return
    every = st.session_state.get("explore_every", False)
    few = shown if every else shown.head(_ROWS)
    job_drawer.rows("waiting", few, ids, "content" if len(few) <= _ROWS else 390)
    if count > _ROWS:
        most = min(count, figure.MOST_ROWS)
        st.toggle(
            f"Show {'all ' if most == count else f'{most:,} of '}{count:,} jobs",
            key="explore_every",
        )


@st.cache_resource(max_entries=64, show_spinner=False)
def _queued(key: str, at_s: int, _book: Book) -> tuple[int, list[str], pd.DataFrame]:
    """Return how many jobs wait, and the first of them: what they are called, and as they are
    shown.
    """
    jobs = _found(key, at_s, _book).waiting
    first = jobs.head(figure.MOST_ROWS)
    columns = {
        name: title for name, title in _COLUMNS.items() if name != "gpus" or _book.cluster.gpus
    }
    return (
        len(jobs),
        first["id"].tolist(),
        figure.readable(first[list(columns)].rename(columns=columns)),
    )


@st.cache_resource(max_entries=128, show_spinner=False)
def _found(key: str, at_s: int, _book: Book) -> MomentReport:
    del key
    return explore.moment(_book, float(at_s))


def _every_job(explored: ExploredRuns) -> None:
    """Draw the jobs of the run, to choose one from."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        contains = st.text_input(
            "Job or user contains", key="explore/text", width=230, max_chars=200
        )
        state = str(
            st.selectbox(
                "Show",
                list(_STATES),
                key="explore/state",
                format_func=_STATES.__getitem__,
                width=220,
            )
        )
        sort = str(
            st.selectbox(
                "First",
                list(_SORTS),
                key="explore/first",
                format_func=_SORTS.__getitem__,
                width=180,
            )
        )
        st.text_input(
            "Open job",
            key="explore/id",
            placeholder="job id",
            width=160,
            max_chars=1000,
            on_change=_typed,
            args=(explored.book,),
        )
    if unknown := st.session_state.pop("explore/unknown", ""):
        st.warning(
            words.plain(
                f"No job of this trace is called “{unknown}”. Ids are compared letter by letter."
            ),
            icon=":material/warning:",
        )
    table, matching, shown = _jobs(
        explored.keys[explored.title], contains, state, sort, explored.book
    )
    count = (
        f"{len(table):,} of {words.plural(matching, 'job')}"
        if len(table) < matching
        else words.plural(matching, "job")
    )
    all_of = (
        ""
        if matching == len(explored.book.trace)
        else f" that match, of {len(explored.book.trace):,} in all"
    )
    st.caption(
        f"{count}{all_of}, under {words.plain(explored.title)}. Choose a row to open the job. JCT:"
        " from submission to finish."
    )
    if not len(table):
        return
    job_drawer.rows("all", shown, table["id"].tolist(), min(38 + 35 * len(table), 250))


def _typed(book: Book) -> None:
    wanted = str(st.session_state["explore/id"]).strip()
    if not wanted:
        return
    if tables.job_row(book.trace, wanted) is None:
        st.session_state["explore/unknown"] = wanted[:80]
    else:
        job_drawer.request(wanted)


def _readable(book: Book, table: pd.DataFrame) -> pd.DataFrame:
    texts = table.assign(
        submit_s=table["submit_s"].map(book.clock.at), slowdown=table["slowdown"].round(2)
    )
    columns = {
        name: title for name, title in _JOB_COLUMNS.items() if name != "gpus" or book.cluster.gpus
    }
    return figure.readable(texts[list(columns)].rename(columns=columns))


@st.cache_resource(max_entries=64, show_spinner=False)
def _jobs(
    key: str, contains: str, state: str, sort: str, _book: Book
) -> tuple[pd.DataFrame, int, pd.DataFrame]:
    del key
    table, matching = explore.jobs(
        _book, text=contains, state=state, sort=sort, most=figure.MOST_ROWS
    )
    return table, matching, _readable(_book, table)
