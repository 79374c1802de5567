"""What a file leaves open, asked beside its jobs: a choice for each question, answered at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

import streamlit as st

from trainyard.views import charts
from ui import words

_MOST_IN_VIEW: Final = 5
"""Answers that are shown at once; more are a list."""
_LEAST: Final = 1e-6
Asked = Mapping[str, Any]
"""As `trainyard.traces.sources.asked` writes a question."""


def open_ones(asked: Sequence[Asked]) -> list[Asked]:
    """Return the questions without an answer."""
    return [one for one in asked if not one["answer"]]


def draw(asked: Sequence[Asked], answer: Callable[[dict[str, str]], None] | None, key: str) -> None:
    """Draw the questions of a file: open ones in full, answered ones folded.

    Parameters
    ----------
    asked : sequence of mapping
        All questions, answered or not.
    answer : callable or None
        Takes question -> answer and reads the file again; None = the file is not at hand.
    key : str
        What distinguishes the widgets of this file.
    """
    unanswered = open_ones(asked)
    if unanswered:
        with st.container(border=True, key="questions"):
            _open(unanswered, asked, answer, key)
    answered = [one for one in asked if one["answer"]]
    if answered and answer is not None:
        with st.popover(
            words.plural(len(answered), "answer") + " about this file", key=f"answered/{key}"
        ):
            _form(answered, asked, answer, f"{key}/again", "Change the answers")


def _open(
    unanswered: Sequence[Asked],
    asked: Sequence[Asked],
    answer: Callable[[dict[str, str]], None] | None,
    key: str,
) -> None:
    count = len(unanswered)
    readable = all(one["default"] for one in unanswered)
    st.markdown(
        f"**This file leaves {words.plural(count, 'question')} open.** "
        + (
            "Until answered, it is read as marked; a wrong guess makes every result wrong."
            if readable
            else "It cannot be read without an answer."
        )
    )
    if answer is not None:
        _form(unanswered, asked, answer, key, "Read with these answers")
        return
    for one in unanswered:
        meant = one["options"].get(one["default"], one["default"])
        st.markdown(f"{_asked(one)} Read as: {words.plain(meant)}.")
    st.caption("Load the file again to answer.")


def _form(
    shown: Sequence[Asked],
    asked: Sequence[Asked],
    answer: Callable[[dict[str, str]], None],
    key: str,
    label: str,
) -> None:
    with st.form(f"questions/{key}", border=False):
        fields = st.grid(min_column_width=320)
        made = {}
        for one in shown:
            with fields.cell() if one.get("free") else nullcontext():
                made[one["id"]] = _choice(one, key)
        if st.form_submit_button(label, icon=":material/check:"):
            known = {one["id"]: one["answer"] for one in asked if one["answer"]}
            answer(known | {name: value for name, value in made.items() if value})
            st.rerun()


def _asked(one: Asked) -> str:
    """Return the sentence of a question, which may follow the name of a file elsewhere."""
    return words.plain(f"{one['text'][:1].upper()}{one['text'][1:]}")


def _choice(one: Asked, key: str) -> str:
    label, name = _asked(one), f"question/{key}/{one['id']}"
    if one.get("free"):
        known = float(one["answer"]) if one["answer"] else None
        given = st.number_input(label, _LEAST, None, known, format="%g", key=name)
        return "" if given is None else repr(float(given))
    options = list(one["options"])
    now = one["answer"] or one["default"]
    at = options.index(now) if now in options else None

    def told(name: str) -> str:
        # A choice shows text as it is, not Markdown.
        return charts.visible(one["options"][name])

    if len(options) > _MOST_IN_VIEW:
        return st.selectbox(label, options, at, format_func=told, key=name, width=420) or ""
    return st.radio(label, options, at, format_func=told, key=name) or ""
