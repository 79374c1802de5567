"""The zoom window of Compare and Explore: dragged over a chart, or typed in a popover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from sim.errors import ParameterError
from trainyard.formatting import RunClock
from trainyard.views.compared_runs import Window
from ui import state, words

MIN_WINDOW_S: Final = 600.0
"""Minimum length; a shorter drag is widened."""
_FAULT: Final = "window_fault"


def current(end_s: float) -> Window | None:
    """Return the zoom window in seconds, cut at the end of the runs; None = the whole run."""
    window = state.session().window
    if window is None or window[0] >= end_s:
        return None
    return window[0], min(window[1], max(end_s, 1.0))


def drop_outside(end_s: float) -> None:
    """Remove a zoom window that begins after the runs end, and draw a note about it."""
    if state.session().window is None or current(end_s) is not None:
        return
    set_window((), end_s)
    st.caption("The zoom window begins after these runs end. The whole run is shown.")


def set_window(ends: Sequence[float], end_s: float) -> None:
    """Set the zoom window to dragged ends (s), and write the URL; no ends = the whole run."""
    session = state.session()
    session.window = _clip(ends, end_s) if len(ends) == 2 else None
    # app.py writes the URL, but does not run in a fragment.
    state.write_url()


def _clip(ends: Sequence[float], end_s: float) -> Window | None:
    """Return ends (s) as a window inside the run, widened to `MIN_WINDOW_S`; None = whole run."""
    t0, t1 = (min(max(float(end), 0.0), end_s) for end in sorted(ends))
    missing_s = MIN_WINDOW_S - (t1 - t0)
    if missing_s > 0:
        t0 = max(min(t0 - missing_s / 2, end_s - MIN_WINDOW_S), 0.0)
        t1 = min(t0 + MIN_WINDOW_S, end_s)
    return None if t0 <= 0 and t1 >= end_s else (t0, t1)


def draw(key: str, end_s: float, clock: RunClock) -> None:
    """Draw the zoom window, two fields for it in a popover, and the button that resets it.

    Parameters
    ----------
    key : str
        Name of the page.
    end_s : float, seconds
        End of the runs.
    clock : RunClock
        Writes instants.
    """
    window = current(end_s)
    with st.container(horizontal=True, gap=4, vertical_alignment="center", key=f"{key}_window"):
        label = describe(window, clock) if window else "Whole run"
        with st.popover(
            words.plain(label),
            type="secondary" if window else "tertiary",
            key=f"{key}_chip",
            help="Or drag across a chart to zoom in.",
        ):
            _draw_fields(key, window or (0.0, end_s), end_s, clock)
        if window is not None:
            st.button(
                "✕",
                key=f"{key}_whole",
                on_click=set_window,
                args=((), end_s),
                type="tertiary",
            )


def describe(window: Window, clock: RunClock) -> str:
    """Return a window as text: "Day 1, 06:00 – day 2, 12:00"."""
    text = f"{clock.format(window[0])} – {clock.format(window[1])}"
    return f"{text[:1].upper()}{text[1:]}"


def _draw_fields(key: str, window: Window, end_s: float, clock: RunClock) -> None:
    """Draw the form with the begin and the end of the window, and its last error."""
    # A field keeps its text under its key, so each window has its own fields.
    version = f"{window[0]:.0f}/{window[1]:.0f}/{clock.epoch}"
    keys = [f"{key}_{name}/{version}" for name in ("from", "to")]
    with st.form(f"{key}_ends/{version}", border=False):
        for title, name, end in zip(("From", "To"), keys, window, strict=True):
            st.text_input(title, clock.format(end), key=name)
        st.form_submit_button("Zoom", on_click=_on_typed, args=(keys, window, end_s, clock))
    if fault := st.session_state.get(_FAULT):
        st.error(words.plain(fault), icon=":material/error:")


def _on_typed(keys: Sequence[str], window: Window, end_s: float, clock: RunClock) -> None:
    """Set the zoom window to the typed ends, or keep an error for the form."""
    try:
        t0, t1 = (
            # The field shows the instant rounded.
            end
            if (typed := str(st.session_state[name])) == clock.format(end)
            else clock.read(typed)
            for name, end in zip(keys, window, strict=True)
        )
    except ParameterError as error:
        st.session_state[_FAULT] = str(error)
        return
    st.session_state[_FAULT] = "" if t0 < t1 else "The window ends before it begins."
    if t0 < t1:
        set_window((t0, t1), end_s)
