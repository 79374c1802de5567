"""What may be chosen when a trace is read, and the questions that a file leaves open."""

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
    """Return a number of bytes as a user reads it: ``12 bytes``, ``3 kB``, ``1,250 MB``."""
    for unit, name in ((1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:,.0f} {name}"
    return f"{size:,.0f} bytes"


def digest_of(recipe: str) -> str:
    """Return 12 hexadecimal digits that differ for different texts of recipes."""
    return hashlib.sha256(recipe.encode("utf-8", "replace")).hexdigest()[:12]


@dataclass(frozen=True)
class ReadOptions:
    """What the user may choose when a trace is read.

    Parameters
    ----------
    zone : str or None
        IANA name of the zone of times without an offset; None = the zone of the format (US Pacific
        for Philly, Asia/Shanghai for Helios, else UTC).
    cpu_jobs : {"drop", "keep"}
        Jobs without a GPU.
    unfinished : {"drop", "cut"}
        Jobs that still ran when the trace ends: leave them out, or take the time they had run by
        then.
    since : {"submit", "eligible"}
        Slurm only: a job enters at its submission, or when it became eligible (dependencies, holds
        and --begin over).
    mapping : mapping of str to str
        Native column -> column of the table; overrides the guess for native and unknown tables.
    answers : mapping of str to str
        Answers to questions that a file leaves open: `Question.id` -> key of its options.
    recipe : str
        Text of a recipe of the user's own, by which the file is read; "" = by the formats known.
    recipe_digest : str
        `digest_of` that text, so that a text that was altered is found; "" = not checked.
    time_unit, duration_unit : {"", "s", "ms", "min", "h", "d"}
        Units of numeric instants, and of durations and time limits, in native and unknown tables;
        "" = as the file says, asked where it does not (seconds in native tables).
    date_format : str
        How instants of an unknown table are written, as for `time.strptime`, e.g.
        ``%d.%m.%y %Hh%M``; "" = as recognised.
    max_bytes : int, bytes
        Largest size after unpacking.
    max_rows : int
        Most rows of a table.

    Raises
    ------
    ParameterError
        If a choice is not one of those offered.
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
        """Check every choice."""
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
                known = "%" in self.date_format
            except ValueError:
                known = False
            if not known:
                raise ParameterError(
                    f"Reading a trace: {self.date_format!r} is no way to write dates; use one such"
                    " as %d.%m.%Y %H:%M."
                )
        if self.recipe and (self.mapping or self.date_format):
            what, out = (
                ("which column is which", "mapping")
                if self.mapping
                else ("how dates are written", "date format")
            )
            raise ParameterError(
                f"Reading a trace: the recipe says {what}. Leave out the {out}, or the recipe."
            )
        if self.recipe_digest not in ("", digest_of(self.recipe)):
            raise ParameterError(
                "Reading a trace: the recipe is not the one that was kept with the scenario"
                f" ({digest_of(self.recipe)} instead of {self.recipe_digest}). Use the original."
            )
        if self.zone is not None:
            try:
                ZoneInfo(self.zone)
            except (KeyError, ValueError, OSError) as error:
                raise ParameterError(
                    f"Reading a trace: the time zone {self.zone!r} is not known; use a name such as"
                    " UTC or Asia/Shanghai."
                ) from error


NUMBER: Final = "number"
"""What `Question.free` says of a question that is answered with any number above 0."""
_PLAIN: Final = re.compile(r"[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Question:
    """Something that a file does not say.

    Parameters
    ----------
    id : str
        Key of the answer in `ReadOptions.answers` and of ``--answer ID=VALUE``.
    text : str
        The question in one sentence, with the figures by which the user can tell.
    options : mapping of str to str
        Value of an answer -> what the user reads.
    default : str
        The answer with which the file was read, to be said; "" = without an answer the file cannot
        be read.
    free : str
        `NUMBER` = there are no options and no default; "" = one of the options.
    """

    id: str
    text: str
    options: Mapping[str, str]
    default: str = ""
    free: str = ""

    def takes(self, answer: str) -> bool:
        """Tell whether an answer is one of those that the question allows."""
        if not self.free:
            return answer in self.options
        return _PLAIN.fullmatch(answer) is not None and 0 < float(answer) < math.inf

    @property
    def allowed(self) -> str:
        """Which answers those are, in words."""
        return "a number above 0" if self.free else f"one of {', '.join(self.options)}"


class OpenQuestionError(TraceError):
    """A file cannot be read before questions are answered.

    Parameters
    ----------
    name : str
        The file.
    questions : tuple of Question
        All that are open.
    """

    def __init__(self, name: str, questions: tuple[Question, ...]) -> None:
        self.name, self.questions = name, questions
        first = questions[0]
        super().__init__(f"{name}: {first.text} Answer with {first.allowed}.")

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Question, ...]]]:
        """Return how another process makes it again."""
        return OpenQuestionError, (self.name, self.questions)
