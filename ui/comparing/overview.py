"""The window of time that Compare and Explore look at: an overview to drag on, the same as numbers to type, and a chip that takes it away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from trainyard.results import windowed
from trainyard.results.outcomes import Report
from ui import figure, state, words
from ui.comparing import tables

Window = tuple[float, float]
_FOLLOWS: Final = {"compare": "figures over time follow, tables do not.", "explore": "figures follow; the list of jobs is of the whole run."}
"""Page -> what the window changes."""
_AXIS: Final = "axis"
_CALENDAR: Final = "calendar"
_EDITION: Final = "window_edition"
"""Part of the keys of all that chooses the window. It grows with every change, because a selection lives on under its key."""


def draw(said: Report, look: tables.Look, key: str) -> Window | None:
    """Draw the strip, the fields and the chip.

    Parameters
    ----------
    said : Report
        What the page shows.
    look : Look
        How its policies are drawn.
    key : {"compare", "explore"}
        The page; of the elements too.

    Returns
    -------
    (float, float) or None, seconds
        The part of the runs to show; None = all of them. It is kept in `state.desk().window` and so in the address.
    """
    whole = axis(said)
    _dragged(whole, _named(key))
    window = current(said)
    shown = look.drawn(said.labels)
    first = said.baseline or shown[0]
    # Without GPUs the column is there, and all of it is 0.
    busy = bool(said.frames["utilisation"][first]["total"].any())
    key_of = (key, said.mark, whole.epoch, window)
    drawn = figure.kept(key_of, lambda: charts.overview(_queue(said, shown), _busy(said, first) if busy else None, look.style, whole, window))
    alt = f"Overview of the whole run: jobs waiting{', and GPUs busy under ' + first if busy else ''}. Drag to choose a window."
    figure.draw(drawn, _named(key), alt, on_select="rerun", selection_mode="box")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _fields(window, whole, _named(key))
        if said.epoch:
            st.segmented_control("Time axis", ["since start", _CALENDAR], default="since start", required=True, key=_AXIS, persist_state="session")
        if window is not None:
            st.button(f"{told(window, whole.epoch)} ✕", key=f"{_named(key)}/chip", help="Show the whole run again", on_click=_choose, args=(None,))
    grey = f" Grey: GPUs busy under {first}." if busy else ""
    st.html(tables.legend(shown, look, "Lines: jobs waiting under"))
    st.caption(words.plain(f"{grey} Drag over the strip, or type, to look at a part: {_FOLLOWS[key]}".strip()))
    if state.desk().window is not None and window is None:
        st.caption("The chosen window lies after the end of these runs, so the whole of them is shown.")
    return window


def _queue(said: Report, titles: Sequence[str]) -> dict[str, pd.DataFrame]:
    return {title: windowed.strip(said.frames["queue"][title], said.end_s) for title in titles}


def _busy(said: Report, title: str) -> pd.DataFrame:
    return windowed.strip(said.frames["utilisation"][title], said.end_s)


def axis(said: Report, window: Window | None = None) -> charts.TimeAxis:
    """Return the axis of time of a page: of a window, or of the whole run."""
    t0, t1 = window or (0.0, max(said.end_s, 1.0))
    return charts.TimeAxis(t0, t1, said.epoch if st.session_state.get(_AXIS) == _CALENDAR else "")


def current(said: Report) -> Window | None:
    """Return the chosen window as far as the runs reach; None = all of them."""
    window = state.desk().window
    if window is None or window[0] >= said.end_s:
        return None
    return window[0], min(window[1], max(said.end_s, 1.0))


def told(window: Window, epoch: str = "") -> str:
    """Return a window in words."""
    return f"{words.instant(window[0], epoch)} to {words.instant(window[1], epoch)}"


def _named(key: str) -> str:
    return f"{key}/{st.session_state.get(_EDITION, 0)}"


def _choose(window: Window | None) -> None:
    mine = state.desk()
    if window != mine.window:
        mine.window = window
        st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1
        # In a fragment app.py is not run, which writes it else.
        state.write_address()


def _dragged(whole: charts.TimeAxis, key: str) -> None:
    """Take over what was dragged since the strip was drawn."""
    event: Any = st.session_state.get(key)
    boxes: Sequence[Any] = event["selection"]["box"] if event else []
    if boxes:
        ends = sorted(_seconds(at, whole) for at in boxes[-1]["x"])
        t0, t1 = (min(max(end, 0.0), whole.t1_s) for end in ends)
        if t1 > t0:
            _choose((t0, t1))


def _seconds(at: Any, whole: charts.TimeAxis) -> float:
    """Return an instant of the run, from where it is on the axis."""
    if not whole.epoch:
        return float(at) * whole.unit[0]
    instant = datetime.fromisoformat(at) if isinstance(at, str) else datetime.fromtimestamp(float(at) / 1000.0, UTC)
    return (instant.replace(tzinfo=None) - _wall(whole.epoch)).total_seconds()


def _wall(epoch: str) -> datetime:
    return datetime.fromisoformat(epoch).replace(tzinfo=None)


def _fields(window: Window | None, whole: charts.TimeAxis, key: str) -> None:
    """Draw both ends of the window as fields."""
    shown = window or (whole.t0_s, whole.t1_s)
    # A field keeps its value under its key, but the runs become longer with every policy that finishes.
    names = [f"{key}/{name}/{whole.t1_s:.0f}" for name in (("since", "until") if whole.epoch else ("from", "to"))]
    say: dict[str, Any] = {"on_change": _typed, "args": (names, shown, whole)}
    for title, name, at in zip(("From", "To"), names, shown, strict=True):
        if whole.epoch:
            st.datetime_input(title, _minute(at, whole), key=name, width=240, **say)
        else:
            unit_s, unit = whole.unit
            st.number_input(f"{title} ({unit})", 0.0, None, at / unit_s, step=1.0, format="%.2f", key=name, width=150, **say)
    t0, t1 = (_meant(name, at, whole) for name, at in zip(names, shown, strict=True))
    if t0 >= t1:
        st.error("The window ends before it begins. Type a later end.", icon=":material/error:")


def _typed(names: Sequence[str], shown: Window, whole: charts.TimeAxis) -> None:
    t0, t1 = (_meant(name, at, whole) for name, at in zip(names, shown, strict=True))
    if t0 < t1:
        _choose((t0, t1) if (t0, t1) != (whole.t0_s, whole.t1_s) else None)


def _meant(name: str, shown_s: float, whole: charts.TimeAxis) -> float:
    """Return the instant that a field stands for: the exact one while nobody has changed it, since a field shows it rounded."""
    typed: Any = st.session_state[name]
    if not whole.epoch:
        return shown_s if typed == shown_s / whole.unit[0] else min(float(typed) * whole.unit[0], whole.t1_s)
    if typed is None or typed == _minute(shown_s, whole):
        return shown_s
    return min(max(float((typed - _wall(whole.epoch)).total_seconds()), 0.0), whole.t1_s)


def _minute(t_s: float, whole: charts.TimeAxis) -> datetime:
    return (_wall(whole.epoch) + timedelta(seconds=t_s)).replace(second=0, microsecond=0)
