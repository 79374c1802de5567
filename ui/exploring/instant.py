"""One instant on Explore: waiting jobs, free GPUs, playback, and the job lists."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pandas as pd
import streamlit as st

from trainyard.views import metric_table
from trainyard.views.charts import visible
from trainyard.views.explored_runs import ExploredRuns
from trainyard.views.markup import html_scroll_table, text
from trainyard.what_if import explore, tables
from trainyard.what_if.explore import Book, MomentReport
from ui import explore_params, figure, job_drawer, words, zoom_window
from ui.exploring import machines
from ui.exploring.machines import MachineMap
from ui.planning import mid_run_switch

EVERY_S: Final = 0.5
_DUE_S: Final = 0.4
"""Less than `EVERY_S`: an early step is better than a step that is a whole period late."""
_PLAYING: Final = "explore_playing"
_STEPPED: Final = "explore_stepped"
_STEP: Final = "step"
_STEPS: Final = {"60": "1 min", "600": "10 min", "3600": "1 h", "21600": "6 h", "86400": "1 day"}
_POINTED: Final = 400
"""Instants under the crosshair."""
_ROWS: Final = 10
_COLUMNS: Final = {
    "id": "Job",
    "user": "User",
    "gpus": "GPUs requested",
    "waited_s": f"Wait so far{figure.SECONDS}",
    "runs_s": f"Run time{figure.SECONDS}",
    "rank": "Submission order",
}
_WAITING: Final = "Jobs waiting"
_ALL: Final = "All jobs"
_INSTANT: Final = "explore_instant"
"""Key of the crosshair."""
_HERE: Final = Path(__file__).parent
_HTML: Final = (
    '<div class="ty-instant" tabindex="0" role="slider" aria-label="Instant"><b></b>'
    "<small>Click the chart, or press ← →</small></div>"
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
    "preempted": "that were preempted or resized",
    "failed": "that failed or cannot start",
    "unfinished": "unfinished at the end",
}
_SORTS: Final = {
    "wait": "longest wait",
    "jct": "longest completion time",
    "gpus": "most GPUs",
    "submit": "first submitted",
    "slowdown": "largest slowdown",
}
_JOB_COLUMNS: Final = {
    "id": "Job",
    "user": "User",
    "gpus": "GPUs requested",
    "submit_s": "Submitted",
    "wait_s": f"Wait{figure.SECONDS}",
    "jct_s": f"Completion time{figure.SECONDS}",
    "slowdown": "Slowdown",
    "outcome": "Ended",
    "preemptions": "Preempted",
    "evictions": "Evicted",
}


def draw(explored: ExploredRuns, machine_map: MachineMap) -> None:
    """Draw the part of Explore that depends on the instant, as a fragment that can play."""
    explore_params.draw_fragment(
        "moment",
        partial(_draw_moment, machine_map=machine_map),
        explored,
        EVERY_S if _is_playing() else None,
    )


def stop() -> None:
    """Stop the playback of instants."""
    st.session_state[_PLAYING] = False


def _is_playing() -> bool:
    """Return True while the instants play."""
    return bool(st.session_state.get(_PLAYING))


def _draw_moment(explored: ExploredRuns, machine_map: MachineMap) -> None:
    """Draw the instant: crosshair, menu, a table with a row per policy, job lists.

    Reruns the whole page if the zoom window has changed.
    """
    end_s = explored.compared.report.end_s
    if (zoom_window.current(end_s) or (0.0, max(end_s, 1.0))) != explored.window:
        st.rerun()  # the whole page: every figure shows another zoom window
    at_s = _advance(explored, _instant(explored, machine_map.queue[explored.title]))
    with st.container(horizontal=True, vertical_alignment="center"):
        _draw_crosshair(explored, machine_map, at_s)
        _draw_menu(explored, at_s)
    reports = {
        title: _moment_report(explored.keys[title], round(at_s), book)
        for title, book in explored.books.items()
    }
    st.html(_moment_table(explored, reports))
    _draw_job_tabs(explored, round(at_s))


@dataclass(frozen=True)
class Crosshair:
    """Data for the crosshair script: a click fixes the instant, a drag zooms.

    Parameters
    ----------
    chart : str
        Key of the figure: letters and digits only.
    at, text : float, str
        The fixed instant, in seconds and as text.
    step : float, seconds
        Distance that an arrow key moves it.
    window, span : (float, float), seconds
        Range of the machines, and range of the strip.
    panels : int
        Heat maps above the queue.
    rows : sequence of str
        Labels of their rows, from top to bottom.
    t, labels : sequence of float, sequence of str
        Instants under the crosshair, in seconds and as text.
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


def _draw_crosshair(explored: ExploredRuns, machine_map: MachineMap, at_s: float) -> None:
    """Draw the instant as text, and start the script that handles clicks and drags."""
    t0, t1 = explored.window
    end_s = explored.compared.report.end_s
    points = [round(t0 + (t1 - t0) * at / _POINTED) for at in range(_POINTED)]
    clock = explored.book.clock
    crosshair = Crosshair(
        machines.CHART,
        at_s,
        clock.format(at_s),
        _step_s(explored),
        explored.window,
        (0.0, max(end_s, 1.0)),
        machine_map.panels,
        machine_map.names,
        points,
        [clock.format(at) for at in points],
    )
    _MOUNT(
        key=_INSTANT,
        data=asdict(crosshair),
        on_pick_change=lambda: _on_pick(explored, machine_map),
        on_window_change=partial(_on_drag, end_s),
    )


def _on_pick(explored: ExploredRuns, machine_map: MachineMap) -> None:
    """Handle a click on the heat map, or an arrow key."""
    if (message := st.session_state[_INSTANT].pick) is not None:
        pick(explored, machine_map, message)


def pick(explored: ExploredRuns, machine_map: MachineMap, message: Mapping[str, float]) -> None:
    """Stop playing, set the instant, select the row and open the job of a clicked point.

    Parameters
    ----------
    explored : ExploredRuns
        The runs.
    machine_map : MachineMap
        Rows of the map. A row is a node to show, or a group of nodes to expand.
    message : mapping
        `at` in seconds; `row` and `job` (row of the trace), -1 = none.
    """
    stop()
    _go_to(float(message["at"]))
    row, job = int(message["row"]), int(message["job"])
    if 0 <= row < len(machine_map.rows):
        explore_params.set_param(
            explore_params.NODE if machine_map.is_node else explore_params.WITHIN,
            machine_map.rows[row],
        )
    if 0 <= job < len(explored.book.trace):
        job_drawer.open_job(str(explored.book.trace.frame["job_id"].iloc[job]))


def _on_drag(end_s: float) -> None:
    """Set the zoom window to the range dragged on the heat map."""
    ends = st.session_state[_INSTANT].window
    if ends is not None:
        zoom_window.set_window(ends, end_s)


def _moment_table(explored: ExploredRuns, reports: dict[str, MomentReport]) -> str:
    """Return the HTML table of the instant: one row per policy."""
    first = reports[explored.title]
    unit = first.unit
    names = (
        "Policy",
        _WAITING,
        f"{unit}s requested by waiting jobs",
        f"{unit}s free",
        "Most free on one node",
        f"{unit}s down",
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    notes = {title: report.sentence.partition(". ")[2] for title, report in reports.items()}
    if any(notes.values()):
        head += "<th></th>"
    body = "".join(
        _moment_row(explored, title, report, notes[title] if any(notes.values()) else None)
        for title, report in reports.items()
    )
    return html_scroll_table(f"<tr>{head}</tr>", body, dark=figure.is_dark())


def _moment_row(explored: ExploredRuns, title: str, report: MomentReport, note: str | None) -> str:
    """Return a policy's HTML row: waiting jobs; GPUs requested, free, largest block, down."""
    colour = explored.compared.colours(figure.is_dark())[title]
    swatch = metric_table.swatch(colour, "solid")
    requested = int(report.waiting["gpus"].sum())
    cells = (
        f"{len(report.waiting):,}",
        f"{requested:,}" if requested else words.MISSING,
        f"{report.free:,.0f}",
        f"{report.largest:,}" if report.largest else words.MISSING,
        f"{report.down:,.0f}" if report.down else words.MISSING,
    )
    row = f'<th scope="row">{swatch}{text(title)}</th>'
    row += "".join(f"<td>{cell}</td>" for cell in cells)
    if note is not None:
        row += f'<td class="long">{text(note)}</td>'
    return f"<tr>{row}</tr>"


def _draw_job_tabs(explored: ExploredRuns, at_s: int) -> None:
    """Draw the tabs of jobs (waiting, of one node, all); only the open one is drawn."""
    node = explore_params.get(explore_params.NODE)
    titles = [_WAITING, words.plain(f"Jobs of {node[:40]}" if node else "Jobs of a node"), _ALL]
    waiting, of_node, all_jobs = st.tabs(titles, key="explore_tabs", on_change="rerun")
    if waiting.open:
        with waiting:
            _draw_waiting(explored, at_s)
    if of_node.open:
        with of_node:
            machines.draw_node(explored)
    if all_jobs.open:
        with all_jobs:
            _draw_all_jobs(explored)


def _instant(explored: ExploredRuns, queue: pd.DataFrame) -> float:
    """Return the instant of the URL, in seconds, moved into the zoom window.

    Without one, the instant with most waiting jobs; a caption says so if the URL's is invalid.
    """
    url_instant_s = explore_params.get_number(explore_params.INSTANT)
    t0, t1 = explored.window
    # URLs hold whole seconds, so the end may be rounded up.
    end_s = max(explored.compared.report.end_s, 1.0) + 1
    if url_instant_s is not None and 0 <= url_instant_s <= end_s:
        return min(max(url_instant_s, t0), t1)
    at_s = min(max(tables.busiest_s(queue), t0), t1)
    if url_text := explore_params.get(explore_params.INSTANT):
        clock = explored.book.clock
        st.caption(
            words.plain(
                f"Second {visible(url_text, 20)} of the link is outside these runs, which end at"
                f" {clock.format(end_s - 1)}. Shown: {clock.format(at_s)}."
            )
        )
    return at_s


def _advance(explored: ExploredRuns, at_s: float) -> float:
    """Return the instant (s), one step later if it plays and the step is due.

    The new instant is written to the URL. Playback stops at the end of the zoom window.
    """
    if not _is_playing() or time.monotonic() - st.session_state.get(_STEPPED, 0.0) < _DUE_S:
        return at_s
    st.session_state[_STEPPED] = time.monotonic()
    at_s = min(at_s + _step_s(explored), explored.window[1])
    _go_to(at_s)
    if at_s >= explored.window[1]:
        st.session_state[_PLAYING] = False
        # Only a rerun of the whole page ends the periodic reruns of this fragment.
        st.rerun()
    return at_s


def _draw_menu(explored: ExploredRuns, at_s: float) -> None:
    """Draw the menu Time controls: play or pause, step size, and a link to switch policy here."""
    t0, t1 = explored.window
    with st.popover("Time controls", icon=":material/more_horiz:", key="explore_menu"):
        name, icon = (
            ("Pause", ":material/pause:") if _is_playing() else ("Play", ":material/play_arrow:")
        )
        # The page sets the period of this fragment, so the whole page reruns.
        if st.button(name, key="play", icon=icon, help="One step every half second"):
            st.session_state[_PLAYING] = not _is_playing()
            st.session_state[_STEPPED] = time.monotonic()
            if at_s >= t1:
                _go_to(t0)
            st.rerun()
        explore_params.draw_choice(
            st.selectbox,
            "Step",
            _step_options(explored),
            _STEP,
            _default_step(explored),
            format_func=_STEPS.__getitem__,
            width=140,
        )
        mid_run_switch.draw_link(at_s)


def _step_options(explored: ExploredRuns) -> list[str]:
    """Return the step sizes, seconds as text, that fit four times into the zoom window."""
    span_s = explored.window[1] - explored.window[0]
    return [name for name in _STEPS if float(name) <= span_s / 4] or [next(iter(_STEPS))]


def _default_step(explored: ExploredRuns) -> str:
    """Return the step size (s, as text) nearest to a hundredth of the zoom window."""
    ideal_s = (explored.window[1] - explored.window[0]) / 100
    return min(_step_options(explored), key=lambda name: abs(float(name) - ideal_s))


def _step_s(explored: ExploredRuns) -> float:
    """Return the step size of the URL in seconds, or the default if it does not fit."""
    url_step = explore_params.get(_STEP)
    return float(url_step if url_step in _step_options(explored) else _default_step(explored))


def _go_to(at_s: float) -> None:
    """Write the instant into the URL."""
    explore_params.set_param(explore_params.INSTANT, f"{at_s:.0f}")


def _draw_waiting(explored: ExploredRuns, at_s: int) -> None:
    """Draw a table of the jobs that wait at the instant: ten, or all if chosen."""
    book = explored.book
    count, ids, rows = _waiting_rows(explored.keys[explored.title], at_s, book)
    if not ids:
        st.caption(words.plain(f"No job waits under {explored.title} at this instant."))
        return
    shows_all = st.session_state.get("explore_every", False)
    visible_rows = rows if shows_all else rows.head(_ROWS)
    job_drawer.draw_job_table(
        "waiting",
        *figure.in_units(visible_rows),
        ids,
        "content" if len(visible_rows) <= _ROWS else 390,
    )
    if count > _ROWS:
        max_rows = min(count, figure.MAX_ROWS)
        st.toggle(
            f"Show {'all ' if max_rows == count else f'{max_rows:,} of '}{count:,} jobs",
            key="explore_every",
        )


@st.cache_resource(max_entries=64, show_spinner=False)
def _waiting_rows(key: str, at_s: int, _book: Book) -> tuple[int, list[str], pd.DataFrame]:
    """Return (number of waiting jobs, ids of the first 500, their table rows); cached."""
    jobs = _moment_report(key, at_s, _book).waiting
    first = jobs.head(figure.MAX_ROWS)
    columns = {
        name: title for name, title in _COLUMNS.items() if name != "gpus" or _book.cluster.gpus
    }
    return (
        len(jobs),
        first["id"].tolist(),
        figure.readable(first[list(columns)].rename(columns=columns)),
    )


@st.cache_resource(max_entries=128, show_spinner=False)
def _moment_report(key: str, at_s: int, _book: Book) -> MomentReport:
    """Return the state of a run at an instant, cached by the key of the run."""
    del key
    return explore.moment(_book, float(at_s))


def _draw_all_jobs(explored: ExploredRuns) -> None:
    """Draw the filters and the table of matching jobs; a row opens the job drawer."""
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
            on_change=_on_job_typed,
            args=(explored.book,),
        )
    if unknown := st.session_state.pop("explore/unknown", ""):
        st.warning(
            words.plain(f"This trace has no job “{unknown}”. Ids must match exactly."),
            icon=":material/warning:",
        )
    table, matching, rows = _filter_jobs(
        explored.keys[explored.title], contains, state, sort, explored.book
    )
    count = (
        f"{len(table):,} of {words.plural(matching, 'job')}"
        if len(table) < matching
        else words.plural(matching, "job")
    )
    total_note = (
        ""
        if matching == len(explored.book.trace)
        else f" that match, of {len(explored.book.trace):,} in all"
    )
    st.caption(
        f"{count}{total_note}, under {words.plain(explored.title)}. Choose a row to open the job."
    )
    if not len(table):
        return
    job_drawer.draw_job_table(
        "all", *figure.in_units(rows), table["id"].tolist(), min(38 + 35 * len(table), 250)
    )


def _on_job_typed(book: Book) -> None:
    """Open the drawer of the typed job id, or store the id for a warning if unknown."""
    job_id = str(st.session_state["explore/id"]).strip()
    if not job_id:
        return
    if tables.job_row(book.trace, job_id) is None:
        st.session_state["explore/unknown"] = job_id[:80]
    else:
        job_drawer.open_job(job_id)


def _job_rows(book: Book, table: pd.DataFrame) -> pd.DataFrame:
    """Return jobs as a table to display: column titles, submission as text, shortened texts."""
    texts = table.assign(
        submit_s=table["submit_s"].map(book.clock.format), slowdown=table["slowdown"].round(2)
    )
    columns = {
        name: title for name, title in _JOB_COLUMNS.items() if name != "gpus" or book.cluster.gpus
    }
    return figure.readable(texts[list(columns)].rename(columns=columns))


@st.cache_resource(max_entries=64, show_spinner=False)
def _filter_jobs(
    key: str, contains: str, state: str, sort: str, _book: Book
) -> tuple[pd.DataFrame, int, pd.DataFrame]:
    """Return (first matching jobs, number of matches, their table rows); cached."""
    del key
    table, matching = explore.jobs(
        _book, text=contains, state=state, sort=sort, most=figure.MAX_ROWS
    )
    return table, matching, _job_rows(_book, table)
