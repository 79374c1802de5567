"""The drawer of one job, over the right side of a page: what became of it under two policies, and
why. The address names the job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

import pandas as pd
import streamlit as st

from sim.trace import Trace
from trainyard.views import one_job
from trainyard.views.charts import visible
from trainyard.views.compared import ComparedRuns
from trainyard.views.explored import ExploredRuns
from trainyard.views.one_job import JobStory
from trainyard.what_if import explore, reasons, tables
from trainyard.what_if.explore import Book
from trainyard.what_if.witness import Statement
from ui import comparison, exploration, figure, server, state, url_params, words
from ui.faults import run_guarded

JOB: Final = "job_id"
"""Parameter of the address: a job, as the trace names it."""
_ROW: Final = "job"
"""The same in links of earlier versions: its row in the trace."""
_MARKS: Final = "marks"
"""Parameter of the address: submission and end of the job shown on the timeline, in seconds."""
_WIDTH_PX: Final = 450
_EDITION: Final = "job/edition"
_CLOSED: Final = "job/closed"
"""The job whose drawer was closed last, and when on the monotonic clock."""
_LATE_S: Final = 2.0
"""How long after a closing the browser may not know the new address."""
_PATIENCE_S: Final = 4.0
"""CPU time of a replay that is not made without being asked for."""
_AT_ONCE_S: Final = 0.4
_MOST_AT_ONCE: Final = 5000
"""Jobs."""


def request(job_id: str, clicked: int | None = None) -> None:
    """Open the drawer with a job, as the trace names it: the last call of a callback, or of a part
    of a page, because the page is then drawn anew. A selection that lasts may request it again.

    Parameters
    ----------
    job_id : str
        The job.
    clicked : int, optional
        The `edition` of what was clicked. What the browser sends before it has learnt that the
        drawer is closed still has the old one with its selection, and opens nothing.
    """
    if url_params.get(JOB) != job_id and clicked in {None, edition()}:
        st.session_state.pop(_CLOSED, None)
        url_params.put(JOB, job_id)
        st.rerun()


def rows(
    name: str, shown: pd.DataFrame, ids: Sequence[str], height: int | Literal["content"]
) -> None:
    """Draw a table of jobs; its tick, a click on a row, or Enter in it opens the job.

    Parameters
    ----------
    name : str
        Of the table: part of its key, which frame.js knows by its beginning.
    shown : DataFrame
        As `figure.show` takes it.
    ids : sequence of str
        The job of each row, as the trace names it.
    height : int or "content"
        In pixels.
    """
    clicked = edition()
    key = f"job_rows/{name}/{clicked}"
    figure.draw_table(
        shown,
        hide_index=True,
        height=height,
        key=key,
        on_select=partial(_picked, key, clicked, ids),
        selection_mode="single-row",
    )


def _picked(key: str, clicked: int, ids: Sequence[str]) -> None:
    event: Any = st.session_state.get(key)
    for row in event["selection"]["rows"] if event else []:
        if row < len(ids):
            request(ids[row], clicked)


def draw(compared: ComparedRuns, titles: Sequence[str] = ()) -> None:
    """Open the drawer if a job is requested.

    Parameters
    ----------
    compared : ComparedRuns
        What the page shows.
    titles : sequence of str
        The policy that the job is looked at under, and the one it is held against; none = the
        highlighted one and the baseline.
    """
    wanted = url_params.get(JOB) or url_params.get(_ROW)
    if not wanted:
        return
    if _is_late(wanted):
        url_params.put(JOB, "")
        url_params.put(_ROW, "")
        return
    trace = compared.details.trace
    job = _row(trace)
    if job is None:
        st.warning(
            "The address names a job that is not in this trace of"
            f" {words.plural(len(trace), 'job')}: {words.plain(visible(wanted, 20))}.",
            icon=":material/warning:",
        )
        return
    # A link of the navigation drops it from the address.
    url_params.put(JOB, str(trace.frame["job_id"].iloc[job]))
    url_params.put(_ROW, "")
    explored = exploration.open_runs(compared, _places(compared, titles))
    shown = one_job.story(explored, job)
    opened = st.dialog(
        words.plain(visible(shown.title, 60)),
        width=_WIDTH_PX,
        position="right",
        on_dismiss=_closed,
    )
    opened(lambda: run_guarded(lambda: _inside(explored, job, shown)))()


def _row(trace: Trace) -> int | None:
    if job_id := url_params.get(JOB):
        return tables.job_row(trace, job_id)
    row = url_params.get(_ROW)
    return int(row) if row.isdecimal() and len(row) < 10 and int(row) < len(trace) else None


def _places(compared: ComparedRuns, titles: Sequence[str]) -> list[int]:
    """Return the places in the study of the policies to show; those without a result are left
    out.
    """
    runs = compared.runs
    wanted = list(titles) or [comparison.highlighted_policy(compared.report), compared.baseline]
    places = [runs.titles.index(title) for title in wanted if title in runs.titles]
    done = [at for at in dict.fromkeys(places) if at in runs.places]
    return done or list(runs.places[:1])


def edition() -> int:
    """Return how often the drawer was closed: part of the keys of what is clicked to open it, so
    that the same row can be clicked again.
    """
    return int(st.session_state.get(_EDITION, 0))


def _is_late(wanted: str) -> bool:
    """Tell whether the drawer of this job was closed just now: what the browser sends before it has
    learnt the new address still names the job.

    Drawing may take longer than that, so what counts is when it began; and what interrupts the
    drawing after the closing was sent before the browser had seen its end.
    """
    job, at_s = st.session_state.get(_CLOSED, ("", -math.inf))
    session = state.session()
    return bool(job == wanted and (session.drawn_s < at_s or session.drawing_s - at_s < _LATE_S))


def _closed() -> None:
    wanted = url_params.get(JOB) or url_params.get(_ROW)
    st.session_state[_CLOSED] = wanted, time.monotonic()
    url_params.put(JOB, "")
    url_params.put(_ROW, "")
    st.session_state[_EDITION] = edition() + 1


def _inside(explored: ExploredRuns, job: int, shown: JobStory) -> None:
    st.markdown(f"**{words.plain(shown.sentence)}**")
    study = explored.compared.runs.study
    repeat = f" · first of {study.repeats} repeats, seed {study.base.seed}"
    st.caption(words.plain(shown.submitted + (repeat if study.repeats > 1 else "")))
    dark = figure.is_dark()
    st.html(one_job.lines(shown, explored.compared.colours(dark), dark=dark))
    books = [*explored.books.items()][::-1]
    for title, book in books:
        others = [other for name, other in books if name != title]
        longer = "".join(reasons.ran_longer(book, other, job) for other in others)
        _why(title, explored.keys[title], job, book, longer)
    st.html(one_job.table(shown, dark=dark))
    _events(explored, job)
    if state.session().displayed_study != study:
        return  # Compare and Explore show other runs
    with st.container(horizontal=True):
        st.button(
            "Show on the timeline",
            key="job/timeline",
            icon=":material/timeline:",
            on_click=_show,
            args=(shown,),
        )
        if st.button(
            "Open in Explore", key="job/explore", icon=":material/arrow_forward:", type="tertiary"
        ):
            _closed()
            st.switch_page("pages/explore.py", query_params=state.url_parameters())


def _events(explored: ExploredRuns, job: int) -> None:
    """Offer all that happened to a job, with nodes and sizes; computed when it is opened."""
    with st.expander("All events", key=f"job/events/{job}", on_change="rerun") as box:
        if box.open:
            lives = [
                explore.life(book, job).events.assign(policy=title)
                for title, book in explored.books.items()
            ]
            rows = pd.concat(lives, ignore_index=True)[["policy", "told"]]
            rows.columns = pd.Index(["Policy", "What happened"])
            figure.draw_data(rows, f"trainyard-job-{job}")


def _why(title: str, key: str, job: int, book: Book, longer: str) -> None:
    """Say why a job waited, a policy is asked in a replay of its run, if need be on request; and
    why it ran longer than elsewhere.
    """
    replay_s, asked = reasons.replay_s(book, job), f"job/asked/{key}/{job}"
    slow = replay_s > _PATIENCE_S and not st.session_state.get(asked)
    with st.spinner(f"Asking {words.plain(title)}", show_time=False):
        rules = reasons.why(book, job, () if slow else _said(key, job, book))
    said = words.plain(" ".join(one.told for one in rules)) or _none(book, job)
    st.markdown(f"**{words.plain(title)}**: {said} {words.plain(longer)}".rstrip())
    if slow:
        st.button(
            f"Ask {words.plain(title)} why: about {words.time(replay_s)}",
            key=asked.replace("asked", "ask"),
            help="The run is repeated as far as the job waits, and its policy states its reasons.",
            on_click=_ask,
            args=(asked,),
        )


def _ask(asked: str) -> None:
    st.session_state[asked] = True


def _none(book: Book, job: int) -> str:
    return {
        "refused": "Refused: the policy never runs it.",
        "impossible": "It fits no node of this cluster.",
    }.get(str(book.result.jobs["outcome"].iloc[job]), "It did not wait.")


def _said(key: str, job: int, book: Book) -> tuple[Statement, ...]:
    """Return what the policy states: of all jobs at once where that is asked for again and again
    and takes long, else of this one.
    """
    if reasons.replay_s(book, job) > _AT_ONCE_S and len(book.trace) <= _MOST_AT_ONCE:
        return _all_said(key, book)
    return _one_said(key, job, book)


@st.cache_resource(max_entries=24, show_spinner=False)
def _all_said(key: str, _book: Book) -> tuple[Statement, ...]:
    del key
    return reasons.replayed(_book, store=server.store())


@st.cache_resource(max_entries=256, show_spinner=False)
def _one_said(key: str, job: int, _book: Book) -> tuple[Statement, ...]:
    del key
    return reasons.replayed(_book, job, server.store())


def marks() -> tuple[float, ...]:
    """Return when the job was submitted and was done that is shown on the timeline, in seconds;
    empty once another window is looked at.
    """
    begin, _, end = url_params.get(_MARKS).partition("-")
    if not (begin.isdecimal() and end.isdecimal()):
        return ()
    marked = float(begin), float(end)
    window = state.session().window
    # Both are whole seconds in the address.
    its_own = one_job.window(*marked)
    if window is None or max(abs(window[0] - its_own[0]), abs(window[1] - its_own[1])) > 2:
        url_params.put(_MARKS, "")
        return ()
    url_params.put(_MARKS, f"{begin}-{end}")  # a link of the navigation drops it
    return marked


def _show(shown: JobStory) -> None:
    state.session().window = one_job.window(shown.submit_s, shown.end_s)
    url_params.put(_MARKS, f"{shown.submit_s:.0f}-{shown.end_s:.0f}")
    _closed()
    st.rerun()
