"""What may be chosen when a trace is read, and the units and digests of those choices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal
from zoneinfo import ZoneInfo

import pandas as pd

from sim.errors import ParameterError

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
