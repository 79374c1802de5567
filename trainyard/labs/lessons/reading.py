"""Lessons as data: TOML files that ask a question, say what is run and which computed number
decides the answer; read and fully checked.
"""

from __future__ import annotations

import math
import string
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from sim.errors import ParameterError
from sim.metrics.registry import NUMBERS
from sim.params import Spec
from trainyard.labs.lessons.numbers import (
    BY,
    GROUPS,
    MEASURES,
    REACHES,
    SLOWER,
    TIMES,
    UNITS,
    WAYS,
    Number,
)
from trainyard.results import outcomes
from trainyard.study import parsing
from trainyard.study.document import number, whole
from trainyard.study.scenario import MADE, Scenario, as_spec
from trainyard.study.settings import seeded, with_settings
from trainyard.study.study import Study
from trainyard.traces import start

FOLDER: Final = Path(__file__).resolve().parent
MOST_SEED: Final = 9999
FEWEST_JOBS: Final = 50
KINDS: Final = ("curve", "timeline", "cdf", "parts", "groups")
PARTS: Final = ("headline", "table", "timeline", "cdf", "parts")
SAMPLE: Final = "sample"
"""Stands for base and policies: the comparison that the first sample opens with."""
_SIZE: Final = "trace.source.jobs"


class Setup(NamedTuple):
    """What of a lesson can be chosen.

    Parameters
    ----------
    seed : int
        Of the jobs.
    jobs : int
        At most so many; 0 = as many as the lesson has.
    option : int
        Place in the list of what may be changed; -1 = as the lesson begins.
    """

    seed: int = 0
    jobs: int = 0
    option: int = -1

    @property
    def first(self) -> Setup:
        """The same before anything is changed."""
        return self._replace(option=-1)


@dataclass(frozen=True)
class LessonAxis:
    """What is varied within a lesson; `sets` are the changes of the scenario at each value."""

    title: str
    unit: str
    values: tuple[float, ...]
    sets: tuple[tuple[str, ...], ...]

    @property
    def label(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class LessonChange:
    """The one thing that a student may change; `first` is the place of the option that the lesson
    begins with.
    """

    title: str
    options: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    first: int

    @property
    def others(self) -> tuple[int, ...]:
        """Places of the options that differ from the first."""
        return tuple(at for at in range(len(self.options)) if at != self.first)


@dataclass(frozen=True)
class LessonAnswer:
    """One answer: right where the number that decides is below `below` and no earlier answer is
    right; `why` may quote numbers.
    """

    text: str
    below: float
    why: str


class Picture(NamedTuple):
    """A figure: its kind, its question, of which metric, and at which value of the axis (None = the
    last).
    """

    kind: Literal["curve", "timeline", "cdf", "parts", "groups"]
    title: str
    metric: str = ""
    by: str = ""
    at: float | None = None


@dataclass(frozen=True)
class LessonStep:
    """One part of the Compare page, explained."""

    title: str
    text: str
    part: Literal["headline", "table", "timeline", "cdf", "parts"]


@dataclass(frozen=True)
class Lesson:
    """One lesson, ready to be run.

    Parameters
    ----------
    name, number, title : str, int, str
        Of the file; for the address; for the page.
    intro, question, notice : str
        Two sentences before; what is to be predicted; what to see afterwards, with numbers of the
        result in braces.
    base : Study
        The jobs, machines and policies.
    axis : LessonAxis or None
        What is varied in every run of the lesson.
    change : LessonChange or None
        What the student may vary afterwards.
    numbers : tuple of Number
        Computed from the result.
    decides : str
        Name of the number that decides which answer is right.
    answers : tuple of LessonAnswer
        In the order of the number that decides; the last has no upper end, so that exactly one is
        right.
    pictures, steps : tuple
        Drawn after the run.
    opens : float or None
        Value of the axis whose comparison is opened on the other pages; None = the last.
    """

    name: str
    number: int
    title: str
    intro: str
    question: str
    notice: str
    base: Study
    axis: LessonAxis | None
    change: LessonChange | None
    numbers: tuple[Number, ...]
    decides: str
    answers: tuple[LessonAnswer, ...]
    pictures: tuple[Picture, ...]
    steps: tuple[LessonStep, ...] = ()
    opens: float | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """Values of the axis; one 0 without an axis."""
        return self.axis.values if self.axis is not None else (0.0,)

    @property
    def made(self) -> bool:
        """Whether its jobs are made, so that they follow the seed."""
        return self.base.base.trace.source.startswith(MADE)

    @property
    def jobs(self) -> int:
        """Most jobs that it can have; 0 = a fixed number."""
        return (
            int(Spec.parse(self.base.base.trace.source.removeprefix(MADE)).values.get("jobs", 0))
            if self.made
            else 0
        )

    @property
    def plans(self) -> bool:
        """Whether it varies the machines, which Plan does too."""
        return self.axis is not None and any(
            one.startswith("cluster=") for sets in self.axis.sets for one in sets
        )

    def place(self, value: float | None) -> int:
        """Return the place of a value on the axis; None = the last."""
        return self.values.index(value) if value is not None else len(self.values) - 1

    def study(self, at: int, setup: Setup) -> Study:
        """Return the comparison at a place on the axis.

        Raises
        ------
        TrainyardError
            If a change leads nowhere, or a value cannot be used.
        """
        changes: list[str] = []
        if self.axis is not None:
            changes += self.axis.sets[at]
        if self.change is not None and setup.option >= 0:
            changes += self.change.sets[setup.option]
        if self.made and 0 < setup.jobs < self.jobs:
            changes.append(f"{_SIZE}={setup.jobs}")
        study = self.base
        if self.made:
            study = replace(study, base=seeded(study.base, setup.seed))
        study = Study.from_json(with_settings(study.to_json(), changes))
        return replace(study, base=replace(study.base, name=f"Lesson {self.number}: {self.title}"))

    def studies(self, setup: Setup) -> tuple[Study, ...]:
        """Return the comparisons that make up the lesson, one per value of the axis."""
        return tuple(self.study(at, setup) for at in range(len(self.values)))

    def opened(self, setup: Setup) -> Study:
        """Return the comparison that is opened on the other pages."""
        return self.study(self.place(self.opens), setup)


def names() -> tuple[str, ...]:
    """Return the names of the lessons, in their order."""
    return parsing.stems(FOLDER)


def lessons() -> tuple[Lesson, ...]:
    """Return all lessons, in their order."""
    return tuple(load(name) for name in names())


@lru_cache(maxsize=16)
def load(name: str) -> Lesson:
    """Return a lesson that ships.

    Raises
    ------
    ParameterError
        If there is none of that name, or its file is wrong.
    """
    return read_lesson(parsing.one_of("lesson", name, FOLDER))


def read_lesson(path: Path) -> Lesson:
    """Read and check a lesson.

    Raises
    ------
    ParameterError
        If the file cannot be read, a key is missing or unknown, a text names a number that there is
        not, or a scenario cannot be built; the sentence names the file.
    """
    return parsing.file("lesson", path, _lesson)


_KEYS: Final = (
    *("number", "title", "intro", "question", "notice", "base", "policies", "axis", "change"),
    *("numbers", "decides", "answers", "pictures", "steps", "opens"),
)


def _lesson(data: Mapping[str, Any], name: str) -> Lesson:
    known = parsing.table(
        "lesson", data, _KEYS, optional=("policies", "axis", "change", "pictures", "steps", "opens")
    )
    texts = {
        key: parsing.text(key, known[key])
        for key in ("title", "intro", "question", "notice", "decides")
    }
    axis = _axis(known["axis"]) if "axis" in known else None
    lesson = Lesson(
        name=name,
        number=whole("number", known["number"]),
        base=_base(known["base"], known.get("policies", [])),
        axis=axis,
        change=_change(known["change"]) if "change" in known else None,
        numbers=tuple(_number(one) for one in parsing.listed("numbers", known["numbers"])),
        answers=tuple(_answer(one) for one in parsing.listed("answers", known["answers"])),
        pictures=tuple(
            _picture(one, axis) for one in parsing.listed("pictures", known.get("pictures", []))
        ),
        steps=tuple(_step(one) for one in parsing.listed("steps", known.get("steps", []))),
        opens=number("opens", known["opens"]) if "opens" in known else None,
        **texts,
    )
    _check_numbers(lesson)
    _check_answers(lesson)
    for option in range(-1, len(lesson.change.options) if lesson.change is not None else 0):
        lesson.studies(Setup(option=option))
    lesson.opened(Setup())
    return lesson


def _base(data: Any, policies: Any) -> Study:
    if data == SAMPLE:
        return start.sample_study()
    specs = tuple(as_spec(one) for one in parsing.listed("policies", policies))
    if not specs:
        raise ParameterError("it names no policies. Add at least one.")
    return Study(
        Scenario.from_json({**parsing.mapping("base", data), "allocator": specs[0]}), specs
    )


def _axis(data: Any) -> LessonAxis:
    known = parsing.table(
        "axis", data, ("title", "unit", "values", "path", "times"), optional=("unit", "times")
    )
    values, times = (
        parsing.numbers("axis: values", known["values"]),
        number("axis: times", known.get("times", 1.0)),
    )
    if not values or list(values) != sorted(set(values)):
        raise ParameterError("the values of the axis must ascend.")
    path = parsing.text("axis: path", known["path"])
    # A path with a place for the number, such as cluster={}x8:v100, or one that takes it.
    sets = tuple(
        (path.format(f"{value * times:.12g}") if "{}" in path else f"{path}={value * times:.12g}",)
        for value in values
    )
    return LessonAxis(
        parsing.text("axis: title", known["title"]),
        parsing.text("axis: unit", known.get("unit", "")),
        values,
        sets,
    )


def _change(data: Any) -> LessonChange:
    known = parsing.table("change", data, ("title", "options", "first"))
    pairs = [
        parsing.table("option", one, ("text", "set"))
        for one in parsing.listed("change: options", known["options"])
    ]
    options = tuple(parsing.text("option", pair["text"]) for pair in pairs)
    parsing.distinct("options", options)
    first = whole("change: first", known["first"])
    if not 0 <= first < len(options) or len(options) < 2:
        raise ParameterError(
            f"first = {first} is not a place among {len(options)} options, or there is nothing to"
            " change to."
        )
    return LessonChange(
        parsing.text("change: title", known["title"]),
        options,
        tuple(parsing.changes("option", pair["set"]) for pair in pairs),
        first,
    )


def _number(data: Any) -> Number:
    keys = tuple(item.name for item in fields(Number))
    known = parsing.table(
        "number", data, keys, optional=[key for key in keys if key not in ("name", "label")]
    )
    at = number("number: at", known.pop("at")) if "at" in known else None
    parts = tuple(
        parsing.text("number: parts", one)
        for one in parsing.listed("number: parts", known.pop("parts", []))
    )
    share = number("number: share", known.pop("share", 0.0))
    made = Number(
        **{key: parsing.text(f"number: {key}", value) for key, value in known.items()},
        at=at,
        parts=parts,
        share=share,
    )
    if made.metric and made.metric not in MEASURES:
        raise ParameterError(f"number {made.name}: there is no metric '{made.metric}'.")
    if made.of and made.of not in GROUPS:
        raise ParameterError(
            f"number {made.name}: of = {made.of} is not one of {', '.join(GROUPS)}."
        )
    if made.of and made.metric not in (*TIMES, SLOWER):
        raise ParameterError(
            f"number {made.name}: of some jobs there are {', '.join((*TIMES, SLOWER))} only."
        )
    if bool(made.metric) == bool(made.parts):
        raise ParameterError(
            f"number {made.name}: give either a metric, or the parts that it is computed from."
        )
    ways = (
        [name for name, (count, _) in WAYS.items() if count == len(made.parts)]
        if made.parts
        else ["", *REACHES]
    )
    _one_of(f"number {made.name}: how", made.how, ways)
    _one_of(f"number {made.name}: unit", made.unit, ("", *UNITS))
    return made


def _answer(data: Any) -> LessonAnswer:
    known = parsing.table("answer", data, ("text", "below", "why"), optional=("below",))
    return LessonAnswer(
        parsing.text("answer", known["text"]),
        number("answer: below", known.get("below", math.inf)),
        parsing.text("answer: why", known["why"]),
    )


def _picture(data: Any, axis: LessonAxis | None) -> Picture:
    known = parsing.table(
        "picture", data, ("kind", "title", "metric", "by", "at"), optional=("metric", "by", "at")
    )
    at = number("picture: at", known.pop("at")) if "at" in known else None
    _one_of("picture: kind", known["kind"], KINDS)
    _one_of(
        "picture: metric",
        known.get("metric", ""),
        (*TIMES, *NUMBERS) if known["kind"] == "curve" else ("", *TIMES),
    )
    _one_of("picture: by", known.get("by", ""), ("", *BY))
    if at is not None and (axis is None or at not in axis.values):
        raise ParameterError(f"a picture is at {at:g}, which is no value of the axis.")
    return Picture(
        **{  # type: ignore[arg-type]
            key: parsing.text(f"picture: {key}", value) for key, value in known.items()
        },
        at=at,
    )


def _step(data: Any) -> LessonStep:
    known = parsing.table("step", data, ("title", "text", "part"))
    _one_of("step: part", known["part"], PARTS)
    return LessonStep(
        parsing.text("step", known["title"]), parsing.text("step", known["text"]), known["part"]
    )


def _one_of(what: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ParameterError(f"{what} = {value} is not one of {', '.join(known)}.")


def _check_numbers(lesson: Lesson) -> None:
    """Refuse numbers of policies, places or numbers that there are not, and texts that quote
    such.
    """
    titles, seen = outcomes.titles(lesson.base.allocators), set[str]()
    for one in lesson.numbers:
        wanted = [*([one.policy] if one.metric else []), *([one.against] if one.against else [])]
        if strange := [title for title in wanted if title not in titles]:
            raise ParameterError(
                f"number {one.name}: there is no policy '{strange[0]}'. There are:"
                f" {', '.join(titles)}."
            )
        if one.at is not None and one.at not in lesson.values:
            raise ParameterError(f"number {one.name}: {one.at:g} is no value of the axis.")
        if strange := [name for name in one.parts if name not in seen]:
            raise ParameterError(f"number {one.name}: there is no number '{strange[0]}' before it.")
        seen.add(one.name)
    parsing.distinct("numbers", [one.name for one in lesson.numbers])
    if lesson.decides not in seen:
        raise ParameterError(f"decides = {lesson.decides} is not one of its numbers.")
    for text in (lesson.notice, *(answer.why for answer in lesson.answers)):
        _quotes(text, seen)


def _quotes(text: str, known: Collection[str]) -> None:
    for _, name, _, _ in string.Formatter().parse(text):
        if name is not None and name not in known:
            raise ParameterError(f"a text quotes the number '{name}', which there is not.")


def _check_answers(lesson: Lesson) -> None:
    ends = [answer.below for answer in lesson.answers]
    if len(ends) < 2 or ends != sorted(set(ends)) or not math.isinf(ends[-1]):
        raise ParameterError("the answers must ascend in 'below', and the last has none.")


def right(lesson: Lesson, found: Mapping[str, float]) -> int | None:
    """Return the place of the answer that the result makes right; None if the number that decides
    is not to be had.
    """
    value = found[lesson.decides]
    return (
        next((at for at, answer in enumerate(lesson.answers) if value < answer.below), None)
        if not math.isnan(value)
        else None
    )
