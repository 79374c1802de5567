"""Questions that a file leaves open, on the command line: asked on a terminal, answered by
arguments, or taken with their defaults.
"""

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
from trainyard.study.scenario import TraceSpec
from trainyard.text import plural
from trainyard.traces.sources import Source


class UnansweredError(TrainyardError):
    """Questions stay open, or an answer belongs to none."""


def add_answers(parser: argparse._ArgumentGroup) -> None:
    """Declare the arguments that answer what a file leaves open."""
    parser.add_argument(
        "--answer",
        metavar="ID=VALUE",
        action="append",
        help="answer a question that the file leaves open; without an answer they are listed",
    )
    parser.add_argument(
        "--ask", action="store_true", help="ask such questions here, one after the other"
    )
    parser.add_argument(
        "--yes", action="store_true", help="take the default of every question that is left open"
    )


def settled(
    spec: TraceSpec, args: argparse.Namespace, load: Callable[[TraceSpec], Source]
) -> tuple[TraceSpec, Source]:
    """Return a trace with all that its file leaves open settled, and what was read so.

    Parameters
    ----------
    spec : TraceSpec
        The file and the choices for reading it.
    args : Namespace
        Its `ask` and `yes` say what to do about questions.
    load : callable
        Reads the trace.

    Raises
    ------
    TrainyardError
        If questions stay open, if an answer belongs to no question of the file, or if it cannot be
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
                    f"Warning: {question.text} Taken: {question.options[question.default]}"
                    f" ({_flag(question, question.default)}).\n"
                )
            return spec, source
        if not args.ask:
            raise UnansweredError(_listed(questions, defaults=source is not None))
        spec = _with_answers(spec, {one.id: _asked(one) for one in questions})


def _with_answers(spec: TraceSpec, answers: dict[str, str]) -> TraceSpec:
    read = spec.choices()
    known = {**read.get("answers", {}), **answers}
    return replace(spec, read=TraceSpec.of("any", read={**read, "answers": known}).read)


def _check_answers(args: argparse.Namespace, source: Source) -> None:
    """Refuse an answer that is given to no question; those of a recipe are for any file like it."""
    if source.imported is None:
        return
    known = [
        *(question.id for question, _ in source.imported.answered),
        *(question.id for question in source.imported.questions),
        *(question.id for question in source.imported.offers),
    ]
    for name in (pair.rpartition("=")[0] for pair in args.answer or ()):
        if name not in known and name not in (FORMAT, KIND, SHEET):
            asks = f"It asks: {', '.join(known)}." if known else "It asks nothing."
            raise UnansweredError(f"--answer {name}: this file does not ask that. {asks}")


def ways(offer: Mapping[str, Any]) -> list[str]:
    """Return for each way out that goes with a warning what to add to take it.

    Parameters
    ----------
    offer : mapping
        As `trainyard.traces.sources.asked` writes it.
    """
    return [
        f"{_given(offer['id'], value)}  {meaning}"
        for value, meaning in offer["options"].items()
        if value != offer["default"]
    ]


def _flag(question: Question, value: str) -> str:
    return _given(question.id, value)


def _given(name: str, value: str) -> str:
    return f"--answer {shlex.quote(f'{name}={value}')}"


def _listed(questions: Sequence[Question], *, defaults: bool) -> str:
    """Print every question with its options, and return the sentence that says what to do."""
    for question in questions:
        sys.stderr.write(f"{question.id}: {question.text}\n")
        if question.free:
            sys.stderr.write(f"  {_flag(question, question.free.upper())}  {question.allowed}\n")
        for value, meaning in question.options.items():
            taken = "  (default)" if value == question.default else ""
            sys.stderr.write(f"  {_flag(question, value)}  {meaning}{taken}\n")
    others = ", take all defaults with --yes" if defaults else ""
    return (
        f"The file leaves {plural(len(questions), 'question')} open, so nothing was done. Give the"
        f" answers by the arguments above{others}, or be asked with --ask."
    )


def _asked(question: Question) -> str:
    """Ask on the terminal until an answer can be used."""
    values = list(question.options)
    sys.stderr.write(f"{question.text}\n")
    for at, value in enumerate(values, 1):
        taken = "  (default)" if value == question.default else ""
        sys.stderr.write(f"  {at}  {question.options[value]}{taken}\n")
    while True:
        hint = ", Enter for the default" if question.default else ""
        wanted = question.allowed if question.free else f"1 to {len(values)}"
        sys.stderr.write(f"{wanted}{hint}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise UnansweredError(
                f"No answer came for {question.id}. {_flag(question, 'VALUE')} gives it."
            )
        given = line.strip()
        if not given and question.default:
            return question.default
        if question.takes(given):
            return given
        if given.isdecimal() and 1 <= int(given) <= len(values):
            return values[int(given) - 1]
