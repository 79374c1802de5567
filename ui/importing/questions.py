"""Questions that a trace file leaves open: one choice each, answered in a form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

import streamlit as st

from trainyard.views import charts
from ui import words

_MAX_RADIO: Final = 5
"""Maximum answers as radio buttons; more become a select box."""
_MIN_NUMBER: Final = 1e-6
Question = Mapping[str, Any]
"""A question, as `trainyard.traces.sources.question_values` writes it."""


def unanswered_of(questions: Sequence[Question]) -> list[Question]:
    """Return the questions without an answer."""
    return [question for question in questions if not question["answer"]]


def draw(
    questions: Sequence[Question], on_answer: Callable[[dict[str, str]], None] | None, key: str
) -> None:
    """Draw the questions of a file: open ones in full, answered ones in a popover.

    Parameters
    ----------
    questions : sequence of mapping
        All questions, answered or not.
    on_answer : callable or None
        (question -> answer) -> None, reads the file again; None = this session lacks the file.
    key : str
        Part of the widgets' keys for this file.
    """
    unanswered = unanswered_of(questions)
    if unanswered:
        with st.container(border=True, key="questions"):
            _draw_unanswered(unanswered, questions, on_answer, key)
    answered = [question for question in questions if question["answer"]]
    if answered and on_answer is not None:
        with st.popover(
            words.plural(len(answered), "answer") + " about this file", key=f"answered/{key}"
        ):
            _draw_form(answered, questions, on_answer, f"{key}/again", "Change the answers")


def _draw_unanswered(
    unanswered: Sequence[Question],
    questions: Sequence[Question],
    on_answer: Callable[[dict[str, str]], None] | None,
    key: str,
) -> None:
    """Draw the open questions as a form, or as text if this session lacks the file."""
    count = len(unanswered)
    is_readable = all(question["default"] for question in unanswered)
    st.markdown(
        f"**This file leaves {words.plural(count, 'question')} open.** "
        + (
            "Until answered, the marked answers apply; a wrong one makes every result wrong."
            if is_readable
            else "It cannot be read without an answer."
        )
    )
    if on_answer is not None:
        _draw_form(unanswered, questions, on_answer, key, "Read with these answers")
        return
    for question in unanswered:
        assumed = question["options"].get(question["default"], question["default"])
        st.markdown(f"{_question_text(question)} Assumed: {words.plain(assumed)}.")
    st.caption("Load the file again to answer.")


def _draw_form(
    shown_questions: Sequence[Question],
    questions: Sequence[Question],
    on_answer: Callable[[dict[str, str]], None],
    key: str,
    label: str,
) -> None:
    """Draw a form of `shown_questions`; its button calls `on_answer` and reruns.

    `on_answer` gets the earlier answers to all `questions`, updated by the entered ones.
    """
    with st.form(f"questions/{key}", border=False):
        fields = st.grid(min_column_width=320)
        chosen = {}
        for question in shown_questions:
            with fields.cell() if question.get("free") else nullcontext():
                chosen[question["id"]] = _draw_answer(question, key)
        if st.form_submit_button(label, icon=":material/check:"):
            earlier = {
                question["id"]: question["answer"] for question in questions if question["answer"]
            }
            on_answer(earlier | {name: value for name, value in chosen.items() if value})
            st.rerun()


def _question_text(question: Question) -> str:
    """Return the text of a question, with a capital letter."""
    return words.plain(f"{question['text'][:1].upper()}{question['text'][1:]}")


def _draw_answer(question: Question, key: str) -> str:
    """Draw a number field, radio buttons or select box for a question; return the answer.

    "" = no answer.
    """
    label, name = _question_text(question), f"question/{key}/{question['id']}"
    if question.get("free"):
        earlier = float(question["answer"]) if question["answer"] else None
        number = st.number_input(label, _MIN_NUMBER, None, earlier, format="%g", key=name)
        return "" if number is None else repr(float(number))
    options = list(question["options"])
    current = question["answer"] or question["default"]
    index = options.index(current) if current in options else None

    def option_text(name: str) -> str:
        # Options show plain text, not Markdown.
        return charts.visible(question["options"][name])

    if len(options) > _MAX_RADIO:
        return (
            st.selectbox(label, options, index, format_func=option_text, key=name, width=420) or ""
        )
    return st.radio(label, options, index, format_func=option_text, key=name) or ""
