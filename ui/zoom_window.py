"""The window of time that Compare and Explore look at: chosen by a drag over a chart, or typed into
the pop-over of its chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from sim.errors import ParameterError
from trainyard.text import RunClock
from trainyard.views.compared import Window
from ui import state, words

SHORTEST_S: Final = 600.0
"""A shorter drag is widened to this."""
_FAULT: Final = "window_fault"


def current(end_s: float) -> Window | None:
    """Return the chosen window as far as the runs reach; None = all of them."""
    window = state.session().window
    if window is None or window[0] >= end_s:
        return None
    return window[0], min(window[1], max(end_s, 1.0))


def drop_outside(end_s: float) -> None:
    """Drop a window that begins after the runs end, and say so."""
    if state.session().window is None or current(end_s) is not None:
        return
    choose((), end_s)
    st.caption("The chosen window begins after these runs end: the whole run is shown.")


def choose(ends: Sequence[float], end_s: float) -> None:
    """Take over a window as it was dragged, begin and end in seconds; none of both = the whole
    run.
    """
    session = state.session()
    session.window = _inside(ends, end_s) if len(ends) == 2 else None
    # In a fragment app.py is not run, which writes it else.
    state.write_address()


def _inside(ends: Sequence[float], end_s: float) -> Window | None:
    """Return a window within the run and of a length that shows something; None = all of it."""
    t0, t1 = (min(max(float(at), 0.0), end_s) for at in sorted(ends))
    short = SHORTEST_S - (t1 - t0)
    if short > 0:
        t0 = max(min(t0 - short / 2, end_s - SHORTEST_S), 0.0)
        t1 = min(t0 + SHORTEST_S, end_s)
    return None if t0 <= 0 and t1 >= end_s else (t0, t1)


def draw(key: str, end_s: float, clock: RunClock) -> None:
    """Draw the chip: what the window is, its two fields in a pop-over, and what takes it away.

    Parameters
    ----------
    key : str
        Of the page.
    end_s : float, seconds
        Where the runs end.
    clock : RunClock
        How instants are written.
    """
    window = current(end_s)
    with st.container(horizontal=True, gap=4, vertical_alignment="center", key=f"{key}_window"):
        label = text(window, clock) if window else "Drag across a chart to zoom in"
        with st.popover(
            words.plain(label), type="secondary" if window else "tertiary", key=f"{key}_chip"
        ):
            _fields(key, window or (0.0, end_s), end_s, clock)
        if window is not None:
            st.button(
                "✕",
                key=f"{key}_whole",
                on_click=choose,
                args=((), end_s),
                type="tertiary",
            )


def text(window: Window, clock: RunClock) -> str:
    """Return a window in words."""
    return f"{clock.at(window[0])} to {clock.at(window[1])}"


def _fields(key: str, shown: Window, end_s: float, clock: RunClock) -> None:
    # A field keeps its text under its key, so another window has other fields.
    mark = f"{shown[0]:.0f}/{shown[1]:.0f}/{clock.epoch}"
    keys = [f"{key}_{name}/{mark}" for name in ("from", "to")]
    with st.form(f"{key}_ends/{mark}", border=False):
        for title, name, at in zip(("From", "To"), keys, shown, strict=True):
            st.text_input(title, clock.at(at), key=name)
        st.form_submit_button("Zoom", on_click=_typed, args=(keys, shown, end_s, clock))
    if fault := st.session_state.get(_FAULT):
        st.error(words.plain(fault), icon=":material/error:")


def _typed(keys: Sequence[str], shown: Window, end_s: float, clock: RunClock) -> None:
    """Take over what the fields hold, or remember why not."""
    try:
        t0, t1 = (
            # A field shows the exact instant rounded.
            at if (typed := str(st.session_state[name])) == clock.at(at) else clock.read(typed)
            for name, at in zip(keys, shown, strict=True)
        )
    except ParameterError as error:
        st.session_state[_FAULT] = str(error)
        return
    st.session_state[_FAULT] = "" if t0 < t1 else "The window ends before it begins."
    if t0 < t1:
        choose((t0, t1), end_s)
