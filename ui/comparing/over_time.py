"""What happens over time on the Compare page: the linked figure and who holds the GPUs, of the whole run or of the chosen window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd
import streamlit as st

import charts
from sim.cluster import Cluster
from sim.errors import TrainyardError
from trainyard.results import outcomes, windowed
from trainyard.results.outcomes import Report, Shown
from trainyard.runs.frames import first_of
from trainyard.store import Entry
from trainyard.traces.sources import load_trace
from ui import figure, server, words
from ui.comparing import overview, tables

Window = overview.Window
Frames = Mapping[str, Mapping[str, pd.DataFrame]]
_BY_TYPE: Final = "every policy's, by GPU type"
_COLUMNS: Final = {"t_s": "Seconds since the first submission", "others": "Other jobs"}
_LINKED: Final = {"queue": ("waiting",), "utilisation": ("total",), "states": tuple(state.column for state in charts.STATES)}
_NAMED: Final = {"waiting": "Jobs waiting", "total": "GPUs held"} | {state.column: f"GPUs {state.name}" for state in charts.STATES}


@st.fragment
def linked(said: Report, shown: Shown, look: tables.Look, window: Window | None) -> None:
    """Draw jobs waiting, GPUs busy, fragmentation and what lies behind them, in rows that share one axis."""
    titles = look.drawn(said.labels)
    cluster = shown.study.base.cluster
    try:
        frames = frames_of(said, shown, titles, window)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    types = charts.type_style([kind.name for kind in cluster.types])
    below = ""
    if cluster.gpus:
        several = len([name for name in types if name]) > 1
        options = [*titles, *([_BY_TYPE] if several else [])]
        chosen = st.selectbox("GPUs of the last row", options, key="below", width=320, persist_state="session")
        below = "" if chosen == _BY_TYPE else chosen
    else:
        frames = {"queue": frames["queue"]}
    question = "Who waits, and how busy are the GPUs?" if cluster.gpus else "Who waits?"
    axis = overview.axis(said, window)
    drawn = figure.kept(("timeline", said.mark, window, axis.epoch, below), lambda: charts.timeline(frames, (look.style, types), axis, below, question))
    figure.draw(drawn, "timeline", _alt(said, frames, titles), lambda: _rows(frames, titles))
    notes = []
    if below:
        there = [state for state in charts.STATES if (frames["states"][below][state.column] > 0).any()]
        notes.append(f"{'; '.join(f'**{state.name}**: {state.meaning}' for state in there)}.")
    if told := first_of(shown.study.repeats, shown.study.base.seed):
        notes.append(told)
    if notes:
        st.caption("  \n".join(notes))


@st.fragment
def allocation(said: Report, shown: Shown, window: Window | None) -> None:
    """Draw which jobs hold the GPUs under one policy, which the user chooses."""
    title = st.selectbox("Policy", said.labels, key="allocation_policy", width=320)
    try:
        capacity = frames_of(said, shown, [title], window)["capacity"][title]
        series = said.frames["allocation"][title] if window is None else _allocation(_entry(shown, title).key, window, _entry(shown, title))
        ids = said.job_ids if window is None else outcomes.job_ids([series], load_trace(shown.study.base.trace, server.store()))
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    axis = overview.axis(said, window)
    key = ("allocation", said.mark, window, axis.epoch, title)
    drawn = figure.kept(key, lambda: charts.allocation(series, axis, ids, capacity, "Which jobs hold the GPUs?"))
    named = [ids[name] for name in series.columns if name in ids]
    alt = f"GPUs per job over time under {title}, stacked. The jobs with the most GPU-hours: {', '.join(named)}."
    figure.draw(drawn, "allocation", alt, lambda: series.rename(columns=_COLUMNS | {name: f"Job {job}" for name, job in ids.items()}))
    of = "this run" if window is None else "this window"
    st.caption(f"Named: the {words.plural(len(named), 'job')} with the most GPU-hours of {of}; what is empty below the dotted line, the capacity, is free.")


def frames_of(said: Report, shown: Shown, titles: Sequence[str], window: Window | None) -> Frames:
    """Return the frames of figures over time: kind -> policy -> reduced series, stored ones for the whole run and new ones for a window.

    Raises
    ------
    TrainyardError
        If a stored result was removed meanwhile.
    """
    if window is None:
        return {kind: {title: said.frames[kind][title] for title in titles} for kind in ("queue", "utilisation", "capacity", "states")}
    cluster = shown.study.base.cluster
    found = {title: _within(_entry(shown, title).key, window, len(titles), _entry(shown, title), cluster) for title in titles}
    return {kind: {title: frames[kind] for title, frames in found.items()} for kind in ("queue", "utilisation", "capacity", "states", "resources")}


def notes(shown: Shown, title: str, window: Window) -> pd.DataFrame:
    """Return what a policy noted in a window.

    Raises
    ------
    TrainyardError
        If its result was removed meanwhile.
    """
    return _notes(_entry(shown, title).key, window, _entry(shown, title))


def _entry(shown: Shown, title: str) -> Entry:
    return shown.entries[shown.titles.index(title)][0]


@st.cache_resource(max_entries=8, show_spinner=False)
def _full(key: str, _entry: Entry, _cluster: Cluster) -> dict[str, pd.DataFrame]:
    del key
    return windowed.full_series(_entry, _cluster)


@st.cache_resource(max_entries=64, show_spinner=False)
def _within(key: str, window: Window, policies: int, _entry: Entry, _cluster: Cluster) -> dict[str, pd.DataFrame]:
    return windowed.within(_full(key, _entry, _cluster), window, policies)


@st.cache_resource(max_entries=16, show_spinner=False)
def _allocation(key: str, window: Window, _entry: Entry) -> pd.DataFrame:
    del key
    return windowed.allocation(_entry, window)


@st.cache_resource(max_entries=16, show_spinner=False)
def _notes(key: str, window: Window, _entry: Entry) -> pd.DataFrame:
    del key
    return windowed.notes(_entry, window)


def _rows(frames: Frames, titles: Sequence[str]) -> pd.DataFrame:
    """Return what the linked figure draws, one row per policy and point."""
    parts = []
    for title in titles:
        for kind, columns in _LINKED.items():
            if kind in frames:
                frame = frames[kind][title]
                parts += [pd.DataFrame({"Policy": title, "What": _NAMED[name], "Seconds": frame["t_s"], "Mean": frame[name]}) for name in columns]
    return pd.concat(parts, ignore_index=True)


def _alt(said: Report, frames: Frames, titles: Sequence[str]) -> str:
    most = ", ".join(f"{title} {words.count(float(frames['queue'][title]['waiting_high'].max()))}" for title in titles)
    rows = "Jobs waiting, GPUs busy and GPUs free on partly used nodes" if "utilisation" in frames else "Jobs waiting"
    return f"{rows} over time. Most jobs waiting at once: {most}. {said.headline}"
