"""The drawer of one job: its course and reasons for waiting under two policies."""

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
from trainyard.views.compared_runs import ComparedRuns
from trainyard.views.explored_runs import ExploredRuns
from trainyard.views.one_job import JobStory
from trainyard.what_if import explore, reasons, tables
from trainyard.what_if.explore import Book
from trainyard.what_if.statements import Statement
from ui import comparison, explore_params, figure, server, state, url_params, words
from ui.error_boundary import run_guarded

JOB: Final = "job_id"
"""URL parameter: id of the open job."""
_ROW: Final = "job"
"""URL parameter in links of earlier versions: row of the job in the trace."""
_MARKS: Final = "marks"
"""URL parameter: submission and end of the job marked on the timeline, in seconds."""
_WIDTH_PX: Final = 450
_EDITION: Final = "job/edition"
_CLOSED: Final = "job/closed"
"""Job of the drawer closed last, and the time on the monotonic clock."""
_LATE_S: Final = 2.0
"""Time after closing during which the browser may still send the old URL."""
_MAX_REPLAY_S: Final = 4.0
"""CPU time above which a replay needs a click."""
_REPLAY_ALL_S: Final = 0.4
_MAX_JOBS: Final = 5000
"""Jobs."""


def open_job(job_id: str, clicked: int | None = None) -> None:
    """Write a job into the URL, which opens its drawer, and rerun; call it last.

    Parameters
    ----------
    job_id : str
        The job.
    clicked : int, optional
        The `version` of the clicked element. A message that the browser sent before it knew of the
        closing has an old version, and opens nothing.
    """
    if url_params.get(JOB) != job_id and clicked in {None, version()}:
        st.session_state.pop(_CLOSED, None)
        url_params.set_param(JOB, job_id)
        st.rerun()


def draw_job_table(
    name: str,
    table: pd.DataFrame,
    formats: dict[str, Any],
    ids: Sequence[str],
    height: int | Literal["content"],
) -> None:
    """Draw a table of jobs; a click on a row opens the drawer of its job.

    Parameters
    ----------
    name : str
        Part of the key of the table; frame.js knows the prefix.
    table, formats : DataFrame, dict
        From `figure.in_units`.
    ids : sequence of str
        Job id of each row.
    height : int or "content"
        Height in pixels.
    """
    clicked = version()
    key = f"job_rows/{name}/{clicked}"
    st.dataframe(
        table,
        column_config=formats,
        hide_index=True,
        height=height,
        key=key,
        on_select=partial(_on_row_click, key, clicked, ids),
        selection_mode="single-row",
    )


def _on_row_click(key: str, clicked: int, ids: Sequence[str]) -> None:
    """Open the drawer with the job of the clicked row; `clicked` = version of the table."""
    event: Any = st.session_state.get(key)
    for row in event["selection"]["rows"] if event else []:
        if row < len(ids):
            open_job(ids[row], clicked)


def draw(compared: ComparedRuns, titles: Sequence[str] = ()) -> None:
    """Draw the drawer of the job in the URL; a warning if the trace has no such job.

    Parameters
    ----------
    compared : ComparedRuns
        The comparison of the page.
    titles : sequence of str
        The policy of the drawer and the one to compare with; empty = the highlighted policy and
        the baseline.
    """
    requested = url_params.get(JOB) or url_params.get(_ROW)
    if not requested:
        return
    if _is_late(requested):
        url_params.set_param(JOB, "")
        url_params.set_param(_ROW, "")
        return
    trace = compared.details.trace
    job = _requested_row(trace)
    if job is None:
        st.warning(
            f"The link opens job {words.plain(visible(requested, 20))}, which is not in this trace"
            f" of {words.plural(len(trace), 'job')}.",
            icon=":material/warning:",
        )
        return
    # Navigation links drop the parameter.
    url_params.set_param(JOB, str(trace.frame["job_id"].iloc[job]))
    url_params.set_param(_ROW, "")
    explored = explore_params.open_runs(compared, _policy_indices(compared, titles))
    story = one_job.story(explored, job)
    dialog = st.dialog(
        words.plain(visible(story.title, 60)),
        width=_WIDTH_PX,
        position="right",
        on_dismiss=_on_close,
    )
    dialog(lambda: run_guarded(lambda: _draw_story(explored, job, story)))()


def _requested_row(trace: Trace) -> int | None:
    """Return the row in the trace of the job in the URL (id or row), or None."""
    if job_id := url_params.get(JOB):
        return tables.job_row(trace, job_id)
    row = url_params.get(_ROW)
    return int(row) if row.isdecimal() and len(row) < 10 and int(row) < len(trace) else None


def _policy_indices(compared: ComparedRuns, titles: Sequence[str]) -> list[int]:
    """Return the indices in the study of the policies to show, those with results only.

    Without any, the first policy with results.
    """
    runs = compared.runs
    requested = list(titles) or [comparison.highlighted_policy(compared.report), compared.baseline]
    places = [runs.titles.index(title) for title in requested if title in runs.titles]
    complete = [index for index in dict.fromkeys(places) if index in runs.places]
    return complete or list(runs.places[:1])


def version() -> int:
    """Return how often the drawer was closed; in widget keys, it discards old clicks."""
    return int(st.session_state.get(_EDITION, 0))


def _is_late(requested: str) -> bool:
    """Return True if this drawer was just closed, and the browser still sent its old URL.

    The start of the drawing counts, because drawing may take longer; a message that interrupts the
    drawing was sent before the browser had seen its end.
    """
    job, at_s = st.session_state.get(_CLOSED, ("", -math.inf))
    session = state.session()
    return bool(job == requested and (session.drawn_s < at_s or session.drawing_s - at_s < _LATE_S))


def _on_close() -> None:
    """Remove the open job from the URL, remember when, and raise the version."""
    requested = url_params.get(JOB) or url_params.get(_ROW)
    st.session_state[_CLOSED] = requested, time.monotonic()
    url_params.set_param(JOB, "")
    url_params.set_param(_ROW, "")
    st.session_state[_EDITION] = version() + 1


def _draw_story(explored: ExploredRuns, job: int, story: JobStory) -> None:
    """Draw the drawer's content: sentence, timeline, reasons, table, events, links."""
    st.markdown(f"**{words.plain(story.sentence)}**")
    study = explored.compared.runs.study
    repeat = f" · first of {study.repeats} repeats, seed {study.base.seed}"
    st.caption(words.plain(story.submitted + (repeat if study.repeats > 1 else "")))
    dark = figure.is_dark()
    st.html(one_job.life_lines(story, explored.compared.colours(dark), dark=dark))
    books = [*explored.books.items()][::-1]
    for title, book in books:
        other_books = [other for name, other in books if name != title]
        longer = "".join(reasons.ran_longer(book, other, job) for other in other_books)
        _draw_reasons(title, explored.keys[title], job, book, longer)
    st.html(one_job.table(story, dark=dark))
    _draw_events(explored, job)
    if state.session().displayed_study != study:
        return  # Compare and Explore show other runs
    with st.container(horizontal=True):
        st.button(
            "Show on the timeline",
            key="job/timeline",
            icon=":material/timeline:",
            on_click=_on_show_timeline,
            args=(story,),
        )
        if st.button(
            "Open in Explore", key="job/explore", icon=":material/arrow_forward:", type="tertiary"
        ):
            _on_close()
            st.switch_page("pages/explore.py", query_params=state.url_parameters())


def _draw_events(explored: ExploredRuns, job: int) -> None:
    """Draw an expander with a table of all events of a job under each policy."""
    with st.expander("All events", key=f"job/events/{job}", on_change="rerun") as box:
        if box.open:
            lives = [
                explore.life(book, job).events.assign(policy=title)
                for title, book in explored.books.items()
            ]
            rows = pd.concat(lives, ignore_index=True)[["policy", "told"]]
            rows.columns = pd.Index(["Policy", "What happened"])
            figure.draw_data(rows, f"trainyard-job-{job}")


def _draw_reasons(title: str, key: str, job: int, book: Book, longer: str) -> None:
    """Draw why a job waited under one policy, by replay of its run, and why it ran longer.

    A long replay needs a click; until then only reasons known without a replay are drawn.
    """
    replay_s, asked_key = reasons.replay_s(book, job), f"job/asked/{key}/{job}"
    needs_click = replay_s > _MAX_REPLAY_S and not st.session_state.get(asked_key)
    with st.spinner(f"Asking {words.plain(title)}", show_time=False):
        rules = reasons.stated_reasons(
            book, job, () if needs_click else _statements(key, job, book)
        )
    reasons_text = words.plain(" ".join(rule.full_sentence for rule in rules)) or _no_reason_text(
        book, job
    )
    st.markdown(f"**{words.plain(title)}**: {reasons_text} {words.plain(longer)}".rstrip())
    if needs_click:
        st.button(
            f"Explain {words.plain(title)}: about {words.time(replay_s)}",
            key=asked_key.replace("asked", "ask"),
            help="Repeats the run while the job waits and records the policy's reasons.",
            on_click=_on_explain,
            args=(asked_key,),
        )


def _on_explain(asked_key: str) -> None:
    """Remember that the reasons of this job are requested."""
    st.session_state[asked_key] = True


def _no_reason_text(book: Book, job: int) -> str:
    """Return why a job has no reasons: it was refused, fits no node, or did not wait."""
    return {
        "refused": "Refused: the policy never runs it.",
        "impossible": "It fits no node of this cluster.",
    }.get(str(book.result.jobs["outcome"].iloc[job]), "It did not wait.")


def _statements(key: str, job: int, book: Book) -> tuple[Statement, ...]:
    """Return a policy's reasons on one job; on all jobs in one replay if that pays off."""
    if reasons.replay_s(book, job) > _REPLAY_ALL_S and len(book.trace) <= _MAX_JOBS:
        return _statements_on_all(key, book)
    return _statements_on_one(key, job, book)


@st.cache_resource(max_entries=24, show_spinner=False)
def _statements_on_all(key: str, _book: Book) -> tuple[Statement, ...]:
    """Return the reasons that a policy states on all jobs in a replay; cached."""
    del key
    return reasons.replay_statements(_book, store=server.store())


@st.cache_resource(max_entries=256, show_spinner=False)
def _statements_on_one(key: str, job: int, _book: Book) -> tuple[Statement, ...]:
    """Return the reasons that a policy states on one job in a replay; cached."""
    del key
    return reasons.replay_statements(_book, job, server.store())


def timeline_marks() -> tuple[float, ...]:
    """Return submission and end (s) of the job marked in the URL, or ().

    Marks are removed from the URL once the zoom window is no longer that of the job.
    """
    begin, _, end = url_params.get(_MARKS).partition("-")
    if not (begin.isdecimal() and end.isdecimal()):
        return ()
    marked = float(begin), float(end)
    window = state.session().window
    # The URL holds whole seconds.
    job_window = one_job.window(*marked)
    if window is None or max(abs(window[0] - job_window[0]), abs(window[1] - job_window[1])) > 2:
        url_params.set_param(_MARKS, "")
        return ()
    url_params.set_param(_MARKS, f"{begin}-{end}")  # navigation links drop it
    return marked


def _on_show_timeline(story: JobStory) -> None:
    """Zoom to a job, mark it on the timeline, close the drawer and rerun."""
    state.session().window = one_job.window(story.submit_s, story.end_s)
    url_params.set_param(_MARKS, f"{story.submit_s:.0f}-{story.end_s:.0f}")
    _on_close()
    st.rerun()
