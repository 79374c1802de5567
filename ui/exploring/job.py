"""One job: a table to choose it from, its life under the policies, and why it waited."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from trainyard.what_if import explore, tables
from trainyard.what_if.explore import Book, Life, Reason
from ui import figure, words
from ui.exploring import view
from ui.exploring.view import Scene

_STATES: Final = {
    "any": "all jobs",
    "waited": "that waited",
    "preempted": "that were stopped or changed",
    "failed": "that failed or cannot start",
    "unfinished": "unfinished at the end",
}
_SORTS: Final = {"wait": "longest wait", "jct": "longest JCT", "gpus": "most GPUs", "submit": "first submitted", "slowdown": "largest slowdown"}
_COLUMNS: Final = {
    "id": "Job",
    "user": "User",
    "gpus": "GPUs asked for",
    "submit_s": "Submitted",
    "wait_s": "Waited",
    "jct_s": "JCT",
    "slowdown": "Slowdown",
    "outcome": "Ended",
    "preemptions": "Preempted",
    "evictions": "Evicted",
}
_SILENT: Final = "This policy gives no reason of its own."
_MOST_TOLD: Final = 40
"""Reasons that are listed; the table below holds all."""


def draw(scene: Scene) -> None:
    """Draw the part of the page about one job."""
    st.subheader("One job", anchor=view.ANCHOR)
    view.part("job", _job, scene)


def _job(scene: Scene) -> None:
    job = _chosen(scene)
    # Open while there is nothing to see below it; what is closed is not computed.
    with st.expander("Choose a job", expanded=job is None, key="explore/choose", icon=":material/search:", on_change="rerun") as box:
        if box.open:
            _pick(scene)
    if job is None:
        st.caption("Choose a job in the table, in the queue, or among the bars of a node, to see its life and why it waited.")
        return
    with st.container(border=True):
        _life(scene, job)


def _chosen(scene: Scene) -> int | None:
    job = view.job(scene.book)
    if job is None and view.asked(view.JOB):
        st.warning("The address names a job that is not in this trace. Choose another one.", icon=":material/warning:")
    return job


def _pick(scene: Scene) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input("Job or user contains", key="explore/text", width=230, max_chars=200)
        state = str(st.selectbox("Show", list(_STATES), key="explore/state", format_func=_STATES.__getitem__, width=220))
        sort = str(st.selectbox("First", list(_SORTS), key="explore/first", format_func=_SORTS.__getitem__, width=180))
        st.text_input("Open job", key="explore/id", placeholder="its id", width=160, max_chars=1000, on_change=_typed, args=(scene.book,))
    if unknown := st.session_state.pop("explore/unknown", ""):
        st.warning(words.plain(f"No job of this trace is called “{unknown}”. Ids are compared letter by letter."), icon=":material/warning:")
    table, matching, shown = _jobs(scene.keys[scene.title], text, state, sort, scene.book)
    told = f"{len(table):,} of {words.plural(matching, 'job')}" if len(table) < matching else words.plural(matching, "job")
    all_of = "" if matching == len(scene.book.trace) else f" that match, of {len(scene.book.trace):,} in all"
    st.caption(f"{told}{all_of}, under {words.plain(scene.title)}. Choose a row to open the job. JCT: from submission to finish.")
    if not len(table):
        return
    key = f"jobs/{view.picked()}"
    clicked = partial(_clicked, key, table["job"].tolist())
    st.dataframe(shown, hide_index=True, height=min(38 + 35 * len(table), 250), key=key, on_select=clicked, selection_mode="single-row")


def _typed(book: Book) -> None:
    wanted = str(st.session_state["explore/id"]).strip()
    if not wanted:
        return
    job = tables.job_row(book.trace, wanted)
    if job is None:
        st.session_state["explore/unknown"] = wanted[:80]
    else:
        view.pick_job(job)


def _clicked(key: str, jobs: list[int]) -> None:
    event: Any = st.session_state.get(key)
    for row in event["selection"]["rows"] if event else []:
        if row < len(jobs):
            view.pick_job(jobs[row])


def _readable(book: Book, table: pd.DataFrame) -> pd.DataFrame:
    told = table.assign(
        submit_s=table["submit_s"].map(book.clock.at),
        wait_s=table["wait_s"].map(words.time),
        jct_s=table["jct_s"].map(words.time),
        slowdown=table["slowdown"].map(words.factor),
    )
    columns = {name: title for name, title in _COLUMNS.items() if name != "gpus" or book.cluster.gpus}
    return figure.readable(told[list(columns)].rename(columns=columns))


def _life(scene: Scene, job: int) -> None:
    lives = {title: _found(scene.keys[title], job, book) for title, book in scene.books.items()}
    mine = lives[scene.title]
    st.markdown(f"**{words.plain(mine.facts)}**")
    for title, one in lives.items():
        line = f"{one.told}; {one.types}" if one.types else one.told
        st.markdown(f"**{words.plain(title)}**: {words.plain(line)}.")
    if len(lives) > 1:
        st.markdown(words.plain(_compared(lives)))
    _picture(scene, job, lives)
    _why(scene, job)
    with st.expander("All that happened to it", key=f"events/{job}", on_change="rerun") as box:
        if box.open:
            rows = [one.events.assign(policy=title) for title, one in lives.items()]
            told = pd.concat(rows, ignore_index=True)
            figure.table(told[["policy", "told"]].rename(columns={"policy": "Policy", "told": "What"}), f"trainyard-job-{job}")


def _compared(lives: dict[str, Life]) -> str:
    (title, mine), (other, theirs) = lives.items()
    if not (math.isfinite(mine.finish_s) and math.isfinite(theirs.finish_s)):
        unfinished = [name for name, life in lives.items() if not math.isfinite(life.finish_s)]
        return f"Not completed under {' and '.join(unfinished)}."
    sooner_s = theirs.finish_s - mine.finish_s
    if abs(sooner_s) < 1:
        return f"Done at the same time under {title} and {other}."
    return f"Done {words.time(abs(sooner_s))} {'sooner' if sooner_s > 0 else 'later'} under {title} than under {other}."


def _picture(scene: Scene, job: int, lives: dict[str, Life]) -> None:
    spells = {title: one.spells for title, one in lives.items() if len(one.spells)}
    if not spells:
        st.caption("It was never waited for, and held nothing.")
        return
    begin = min(float(frame["t0"].min()) for frame in spells.values())
    end = max(float(frame["t1"].max()) for frame in spells.values())
    wanted = int(scene.book.result.jobs["gpus"].iloc[job])
    axis = charts.TimeAxis(begin, max(end, begin + 60), scene.axis.epoch)
    drawn = charts.life(spells, wanted, scene.look.style, axis, "When did it wait, and when did it run?")
    figure.draw(drawn, f"life/{job}", f"Waiting, running and paused times of the job. {lives[scene.title].told}.", lambda: _spells(scene, spells))
    longest = max(len(frame) for frame in spells.values())
    if longest > charts.MOST_SPELLS:
        st.caption(f"The first {charts.MOST_SPELLS} of {words.plural(longest, 'spell')} are drawn; the data below holds all.")


def _why(scene: Scene, job: int) -> None:
    st.markdown("**Why it waited**")
    reasons = _reasons(scene.keys[scene.title], job, scene.book)
    if not reasons:
        st.markdown(f"It did not wait under {words.plain(scene.title)}.")
        return
    lines = [f"- {_period(scene, one)}: {words.plain(one.told)}" for one in reasons[:_MOST_TOLD]]
    if len(reasons) > _MOST_TOLD:
        lines.append(f"- and {words.plural(len(reasons) - _MOST_TOLD, 'more period')}.")
    if not any(one.notes for one in reasons):
        lines.append(f"\n{_SILENT}")
    st.markdown("\n".join(lines))


def _period(scene: Scene, one: Reason) -> str:
    clock = scene.book.clock
    return f"**{words.plain(clock.at(one.t0))}** to **{words.plain(clock.after(one.t1, one.t0))}** ({words.time(one.waited_s or one.t1 - one.t0)})"


def _spells(scene: Scene, spells: dict[str, pd.DataFrame]) -> pd.DataFrame:
    named = {"policy": "Policy", "state": "State", "t0": "From", "t1": "To", "gpus": "GPUs", "nodes": "Nodes", "types": "GPU types"}
    rows = pd.concat([frame.assign(policy=title) for title, frame in spells.items()], ignore_index=True)
    clock = scene.book.clock
    return rows.assign(t0=rows["t0"].map(clock.at), t1=rows["t1"].map(clock.at))[list(named)].rename(columns=named)


@st.cache_resource(max_entries=64, show_spinner=False)
def _jobs(key: str, text: str, state: str, sort: str, _book: Book) -> tuple[pd.DataFrame, int, pd.DataFrame]:
    del key
    table, matching = explore.jobs(_book, text=text, state=state, sort=sort, most=figure.MOST_ROWS)
    return table, matching, _readable(_book, table)


@st.cache_resource(max_entries=64, show_spinner=False)
def _found(key: str, job: int, _book: Book) -> Life:
    del key
    return explore.life(_book, job)


@st.cache_resource(max_entries=64, show_spinner=False)
def _reasons(key: str, job: int, _book: Book) -> tuple[Reason, ...]:
    del key
    return explore.why(_book, job)
