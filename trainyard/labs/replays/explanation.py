"""Explanation of a replay: its text with simulated numbers filled in.

The text holds a number as ``{FORM METRIC ARM}``, ``{FORM METRIC ARM/AGAINST}`` or
``{FORM METRIC ARM-AGAINST}``, at a point of an axis with `` at AXIS=VALUE``. Forms:

| form | written |
|---|---|
| ``value`` | the number with its unit |
| ``times`` | a ratio: 1.34 |
| ``shorter``, ``less`` | a ratio as a change: 12 % shorter or longer, less or more |
| ``points`` | a difference of shares: 16 points more or fewer |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from sim.errors import ParameterError
from trainyard.formatting import BY_UNIT, plural
from trainyard.labs.replays.types import BASE, Claim, Kind, ReplayMeasure, ReplayPoint

FIGURE: Final = re.compile(
    r"\{(?P<form>\w+) (?P<metric>\w+) (?P<arm>\w+)(?:(?P<sign>[/-])(?P<against>\w+))?"
    r"(?: at (?P<axis>\w+)=(?P<value>[\d.]+))?\}"
)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_KINDS: Final[Mapping[str | None, Kind]] = {"/": "ratio", "-": "difference", None: "value"}
_SAME: Final = 0.005
"""Relative change below which none is reported."""


def _ratio(value: float) -> str:
    """Return a ratio as text."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _change(value: float, less: str, more: str) -> str:
    """Return a ratio as text: "12 % shorter", "no longer" near 1, "3 times as long" above 2."""
    if abs(value - 1) < _SAME:
        return f"no {more}"
    if value > 2:
        return f"{_ratio(value)} times as {'long' if more == 'longer' else 'much'}"
    return f"{abs(value - 1) * 100:.0f} % {less if value < 1 else more}"


def _points(value: float) -> str:
    """Return a difference of shares as text, e.g. "16 points more"."""
    count = round(abs(value) * 100)
    return f"{count} point{'' if count == 1 else 's'} {'fewer' if value < 0 else 'more'}"


FORMS: Final[Mapping[str, tuple[Kind, Callable[[float], str]]]] = {
    "times": ("ratio", _ratio),
    "shorter": ("ratio", lambda value: _change(value, "shorter", "longer")),
    "less": ("ratio", lambda value: _change(value, "less", "more")),
    "points": ("difference", _points),
}
"""Form -> kind of measure and formatter; ``value`` depends on the metric's unit."""


def figures(text: str) -> dict[str, Claim]:
    """Return placeholder -> claim, for the numbers in braces that a text quotes.

    Returns
    -------
    dict
        Placeholder in the text -> its measure and point, as a claim without a value.

    Raises
    ------
    ParameterError
        If a number in braces is not of a known form.
    """
    claims, text = {}, " ".join(text.split())
    for match in FIGURE.finditer(text):
        form, kind = match["form"], _KINDS[match["sign"]]
        if kind != ("value" if form == "value" else FORMS.get(form, ("",))[0]):
            forms = ", ".join(["value", *FORMS])
            raise ParameterError(
                f"explain: {match[0]}: '{form}' is not one of {forms}, or not of a {kind}."
            )
        measure = ReplayMeasure(match["metric"], match["arm"], match["against"] or "", kind)
        at = ReplayPoint(match["axis"], float(match["value"])) if match["axis"] else BASE
        claims[match[0]] = Claim(measure, at, None, "", None, "our reading")
    if rest := re.search(r"[{}].{0,40}", FIGURE.sub("", text)):
        raise ParameterError(
            f"explain: '{rest[0]}' is not {{FORM METRIC ARM/AGAINST at AXIS=VALUE}}."
        )
    return claims


def fill_in(text: str, value_of: Mapping[str, float], unit_of: Callable[[str], str]) -> str:
    """Return a text with its numbers filled in.

    Parameters
    ----------
    text : str
        With numbers in braces.
    value_of : mapping
        Placeholder in the text -> simulated value; absent if it was not run.
    unit_of : callable
        Metric -> its unit.

    Notes
    -----
    Sentences with a missing number are left out; the text ends with their number.
    """

    def format_number(match: re.Match[str]) -> str:
        """Return the value of a placeholder as text, in its unit or form."""
        value = value_of[match[0]]
        if match["form"] == "value":
            return BY_UNIT.get(unit_of(match["metric"]), _ratio)(value)
        return FORMS[match["form"]][1](value)

    sentences = _SENTENCE.split(" ".join(text.split()))
    complete = [one for one in sentences if all(m[0] in value_of for m in FIGURE.finditer(one))]
    missing = len(sentences) - len(complete)
    left_out = (
        f" {plural(missing, 'sentence')} on points that were not run left out." if missing else ""
    )
    return FIGURE.sub(format_number, " ".join(complete)) + left_out
