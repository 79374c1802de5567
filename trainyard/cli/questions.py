"""Answers, on the command line, to questions that a trace file leaves open."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobtraces.readers.files import SHEET
from jobtraces.readers.options import OpenQuestionError, Question
from jobtraces.recipes import FORMAT, KIND
from sim.errors import TrainyardError
from trainyard.formatting import plural
from trainyard.study.scenario import TraceSpec
from trainyard.traces.sources import Source


class UnansweredError(TrainyardError):
    """Raised when a question has no answer, or an answer has no question."""


def add_answers(parser: argparse._ArgumentGroup) -> None:
    """Declare the arguments --answer, --ask and --yes."""
    parser.add_argument(
        "--answer",
        metavar="ID=VALUE",
        action="append",
        help="answer a question about the file; without answers, the questions are listed",
    )
    parser.add_argument("--ask", action="store_true", help="ask these questions in the terminal")
    parser.add_argument(
        "--yes", action="store_true", help="take the default answer of every open question"
    )


def resolve_questions(
    spec: TraceSpec, args: argparse.Namespace, load: Callable[[TraceSpec], Source]
) -> tuple[TraceSpec, Source]:
    """Load a trace and settle its open questions; return its completed spec and its source.

    With `yes` the defaults are taken and printed, with `ask` each question is asked in the
    terminal; otherwise the questions are printed and an error is raised.

    Parameters
    ----------
    spec : TraceSpec
        The file and the choices for reading it.
    args : Namespace
        Its `ask`, `yes` and `answer` control open questions.
    load : callable
        Reads the trace.

    Raises
    ------
    TrainyardError
        If a question stays open, an answer has no question in the file, or the file cannot be
        read.
    """
    while True:
        source: Source | None = None
        questions: tuple[Question, ...] = ()
        try:
            source = load(spec)
        except OpenQuestionError as error:
            questions = error.questions
        if source is not None:
            _check_answers(args, source)
            questions = source.imported.questions if source.imported is not None else ()
        if source is not None and (not questions or args.yes):
            for question in questions:
                sys.stderr.write(
                    f"Warning: {question.text} Assumed: {question.options[question.default]}"
                    f" ({_answer_option(question, question.default)}).\n"
                )
            return spec, source
        if not args.ask:
            raise UnansweredError(_print_questions(questions, defaults=source is not None))
        spec = _with_answers(spec, {one.id: _ask(one) for one in questions})


def _with_answers(spec: TraceSpec, answers: dict[str, str]) -> TraceSpec:
    """Return a trace spec with these answers added to its reading choices."""
    read = spec.choices()
    merged = {**read.get("answers", {}), **answers}
    return replace(spec, read=TraceSpec.of("any", read={**read, "answers": merged}).read)


def _check_answers(args: argparse.Namespace, source: Source) -> None:
    """Raise if an --answer of the arguments names a question that the file does not ask."""
    if source.imported is None:
        return
    question_ids = [
        *(question.id for question, _ in source.imported.answered),
        *(question.id for question in source.imported.questions),
        *(question.id for question in source.imported.offers),
    ]
    for name in (pair.rpartition("=")[0] for pair in args.answer or ()):
        if name not in question_ids and name not in (FORMAT, KIND, SHEET):
            asks = f"It asks: {', '.join(question_ids)}." if question_ids else "It asks nothing."
            raise UnansweredError(f"--answer {name}: this file does not ask that. {asks}")


def alternative_options(offer: Mapping[str, Any]) -> list[str]:
    """Return the --answer option and the meaning of each alternative to a default.

    Parameters
    ----------
    offer : mapping
        A question as `trainyard.traces.sources.question_values` writes it.
    """
    return [
        f"{_quote_answer(offer['id'], value)}  {meaning}"
        for value, meaning in offer["options"].items()
        if value != offer["default"]
    ]


def _answer_option(question: Question, value: str) -> str:
    """Return the --answer option that gives a value to a question."""
    return _quote_answer(question.id, value)


def _quote_answer(name: str, value: str) -> str:
    """Return ``--answer NAME=VALUE``, quoted for a shell."""
    return f"--answer {shlex.quote(f'{name}={value}')}"


def _print_questions(questions: Sequence[Question], *, defaults: bool) -> str:
    """Print the questions with their options; return the message of the error."""
    for question in questions:
        sys.stderr.write(f"{question.id}: {question.text}\n")
        if question.free:
            sys.stderr.write(
                f"  {_answer_option(question, question.free.upper())}  {question.allowed}\n"
            )
        for value, meaning in question.options.items():
            default = "  (default)" if value == question.default else ""
            sys.stderr.write(f"  {_answer_option(question, value)}  {meaning}{default}\n")
    all_defaults = ", take all defaults with --yes" if defaults else ""
    return (
        f"The file leaves {plural(len(questions), 'question')} open, so nothing was done. Use the"
        f" options above{all_defaults}, or answer in the terminal with --ask."
    )


def _ask(question: Question) -> str:
    """Ask a question in the terminal until the answer is valid; return the answer."""
    values = list(question.options)
    sys.stderr.write(f"{question.text}\n")
    for number, value in enumerate(values, 1):
        default = "  (default)" if value == question.default else ""
        sys.stderr.write(f"  {number}  {question.options[value]}{default}\n")
    while True:
        hint = ", Enter for the default" if question.default else ""
        allowed = question.allowed if question.free else f"1 to {len(values)}"
        sys.stderr.write(f"{allowed}{hint}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise UnansweredError(
                f"No answer to {question.id}. Give it with {_answer_option(question, 'VALUE')}."
            )
        given = line.strip()
        if not given and question.default:
            return question.default
        if question.takes(given):
            return given
        if given.isdecimal() and 1 <= int(given) <= len(values):
            return values[int(given) - 1]
