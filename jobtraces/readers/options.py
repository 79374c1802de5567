"""Options for reading a trace, and questions that a file leaves open."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal
from zoneinfo import ZoneInfo

import pandas as pd

from sim.errors import ParameterError, TraceError

SECONDS: Final[Mapping[str, float]] = MappingProxyType(
    {"s": 1.0, "ms": 0.001, "min": 60.0, "h": 3600.0, "d": 86_400.0}
)


def size_text(size: float) -> str:
    """Return a number of bytes as text: ``12 bytes``, ``3 kB``, ``1,250 MB``."""
    for unit, name in ((1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:,.0f} {name}"
    return f"{size:,.0f} bytes"


def digest_of(recipe: str) -> str:
    """Return a 12-digit hexadecimal digest of a recipe's text."""
    return hashlib.sha256(recipe.encode("utf-8", "replace")).hexdigest()[:12]


@dataclass(frozen=True)
class ReadOptions:
    """Options of the user for reading a trace.

    Parameters
    ----------
    zone : str or None
        IANA time zone of times without an offset; None = the zone of the format (US Pacific for
        Philly, Asia/Shanghai for Helios, else UTC).
    cpu_jobs : {"drop", "keep"}
        Whether to keep jobs without a GPU.
    unfinished : {"drop", "cut"}
        Jobs still running when the trace ends: drop them, or cut them there.
    since : {"submit", "eligible"}
        Slurm only: a job arrives at its submission, or when it became eligible (after dependencies,
        holds and --begin).
    mapping : mapping of str to str
        Native column -> column of the table; overrides the guess for native and unknown tables.
    answers : mapping of str to str
        Answers to open questions: `Question.id` -> key of its options.
    recipe : str
        Text of a user's recipe to read the file with; "" = use a known format.
    recipe_digest : str
        `digest_of` that text, to detect a changed recipe; "" = not checked.
    time_unit, duration_unit : {"", "s", "ms", "min", "h", "d"}
        Units of numeric instants, and of durations and time limits, in native and unknown tables;
        "" = as the file says, else asked (native tables: seconds).
    date_format : str
        Pattern of instants in an unknown table, as for `time.strptime`, such as
        ``%d.%m.%y %Hh%M``; "" = recognized automatically.
    max_bytes : int, bytes
        Largest unpacked size.
    max_rows : int
        Largest number of rows.

    Raises
    ------
    ParameterError
        If a value is not allowed.
    """

    zone: str | None = None
    cpu_jobs: Literal["drop", "keep"] = "drop"
    unfinished: Literal["drop", "cut"] = "drop"
    since: Literal["submit", "eligible"] = "submit"
    mapping: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    recipe: str = ""
    recipe_digest: str = ""
    time_unit: str = ""
    duration_unit: str = ""
    date_format: str = ""
    max_bytes: int = 2_000_000_000
    max_rows: int = 2_000_000

    def __post_init__(self) -> None:
        """Check every option."""
        choices = {
            "cpu_jobs": (self.cpu_jobs, ("drop", "keep")),
            "unfinished": (self.unfinished, ("drop", "cut")),
            "since": (self.since, ("submit", "eligible")),
            "time_unit": (self.time_unit, ("", *SECONDS)),
            "duration_unit": (self.duration_unit, ("", *SECONDS)),
        }
        for name, (value, allowed) in choices.items():
            if value not in allowed:
                raise ParameterError(
                    f"Reading a trace: {name} is {value!r}, but it must be one of"
                    f" {', '.join(filter(None, allowed))}."
                )
        if self.date_format:
            try:
                pd.to_datetime(pd.Series(["x"]), format=self.date_format, errors="coerce")
                is_valid = "%" in self.date_format
            except ValueError:
                is_valid = False
            if not is_valid:
                raise ParameterError(
                    f"Reading a trace: {self.date_format!r} is not a date pattern. Use one such as"
                    " %d.%m.%Y %H:%M."
                )
        if self.recipe and (self.mapping or self.date_format):
            fact, option = (
                ("the columns", "mapping") if self.mapping else ("the date format", "date format")
            )
            raise ParameterError(
                f"Reading a trace: the recipe already defines {fact}. Remove the {option} or"
                " the recipe."
            )
        if self.recipe_digest not in ("", digest_of(self.recipe)):
            raise ParameterError(
                "Reading a trace: the recipe differs from the one stored with the scenario"
                f" ({digest_of(self.recipe)} instead of {self.recipe_digest}). Use the original."
            )
        if self.zone is not None:
            try:
                ZoneInfo(self.zone)
            except (KeyError, ValueError, OSError) as error:
                raise ParameterError(
                    f"Reading a trace: unknown time zone {self.zone!r}. Use a name such as UTC or"
                    " Asia/Shanghai."
                ) from error


NUMBER: Final = "number"
"""Value of `Question.free` for questions whose answer is any number above 0."""
_PLAIN: Final = re.compile(r"[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Question:
    """A question about a fact that a file lacks.

    Parameters
    ----------
    id : str
        Key of the answer in `ReadOptions.answers` and of ``--answer ID=VALUE``.
    text : str
        The question in one sentence, with figures that help to answer it.
    options : mapping of str to str
        Answer -> label for the user.
    default : str
        The answer used by default, which is reported; "" = the file cannot be read without an
        answer.
    free : str
        `NUMBER` = any number above 0, without options and default; "" = one of the options.
    """

    id: str
    text: str
    options: Mapping[str, str]
    default: str = ""
    free: str = ""

    def takes(self, answer: str) -> bool:
        """Return whether an answer is allowed."""
        if not self.free:
            return answer in self.options
        return _PLAIN.fullmatch(answer) is not None and 0 < float(answer) < math.inf

    @property
    def allowed(self) -> str:
        """The allowed answers, as text for messages."""
        return "a number above 0" if self.free else f"one of {', '.join(self.options)}"


class OpenQuestionError(TraceError):
    """A file cannot be read until questions are answered.

    Parameters
    ----------
    name : str
        The file.
    questions : tuple of Question
        All open questions.
    """

    def __init__(self, name: str, questions: tuple[Question, ...]) -> None:
        self.name, self.questions = name, questions
        first = questions[0]
        super().__init__(f"{name}: {first.text} Answer with {first.allowed}.")

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Question, ...]]]:
        """Return the constructor and arguments, for pickling."""
        return OpenQuestionError, (self.name, self.questions)
