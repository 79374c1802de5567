"""Lessons as data: TOML files with a question, its runs and the deciding number, checked."""

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
from trainyard.study import toml_values
from trainyard.study.document import number, whole_number
from trainyard.study.scenario import MADE, Scenario, as_spec
from trainyard.study.settings import with_seed, with_settings
from trainyard.study.study import Study
from trainyard.traces import new_study

FOLDER: Final = Path(__file__).resolve().parent
MAX_SEED: Final = 9999
MIN_JOBS: Final = 50
KINDS: Final = ("curve", "timeline", "cdf", "parts", "groups")
PARTS: Final = ("headline", "table", "timeline", "cdf", "parts")
SAMPLE: Final = "sample"
"""Value of `base` for the comparison of the first sample."""
_SIZE: Final = "trace.source.jobs"


class Setup(NamedTuple):
    """Choices of a student for a lesson.

    Parameters
    ----------
    seed : int
        Of the jobs.
    jobs : int
        Maximum number of jobs; 0 = as in the lesson.
    option : int
        Index of the option of the lesson's change; -1 = the initial one.
    """

    seed: int = 0
    jobs: int = 0
    option: int = -1

    @property
    def first(self) -> Setup:
        """The same setup with the initial option."""
        return self._replace(option=-1)


@dataclass(frozen=True)
class LessonAxis:
    """Quantity that a lesson varies; `sets` holds the scenario changes at each value."""

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
    """The setting that a student can change; `first` is the index of the initial option."""

    title: str
    options: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    first: int

    @property
    def other_options(self) -> tuple[int, ...]:
        """Indices of the options other than the initial one."""
        return tuple(at for at in range(len(self.options)) if at != self.first)


@dataclass(frozen=True)
class LessonAnswer:
    """An answer: right if the deciding number is below `below` and no earlier one is right.

    `why` can quote numbers.
    """

    text: str
    below: float
    why: str


class Picture(NamedTuple):
    """A figure of a lesson: kind, question, metric, and axis value (None = the last)."""

    kind: Literal["curve", "timeline", "cdf", "parts", "groups"]
    title: str
    metric: str = ""
    by: str = ""
    at: float | None = None


@dataclass(frozen=True)
class LessonStep:
    """A part of the Compare page with its explanation."""

    title: str
    text: str
    part: Literal["headline", "table", "timeline", "cdf", "parts"]


@dataclass(frozen=True)
class Lesson:
    """A lesson, ready to run.

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
        """Values of the axis; (0,) without an axis."""
        return self.axis.values if self.axis is not None else (0.0,)

    @property
    def is_generated(self) -> bool:
        """Whether its jobs are generated and depend on the seed."""
        return self.base.base.trace.source.startswith(MADE)

    @property
    def jobs(self) -> int:
        """Maximum number of jobs; 0 = fixed."""
        return (
            int(Spec.parse(self.base.base.trace.source.removeprefix(MADE)).values.get("jobs", 0))
            if self.is_generated
            else 0
        )

    @property
    def plans(self) -> bool:
        """Whether it varies the machines, as Plan does."""
        return self.axis is not None and any(
            one.startswith("cluster=") for sets in self.axis.sets for one in sets
        )

    def place(self, value: float | None) -> int:
        """Return the index of an axis value; None = the last."""
        return self.values.index(value) if value is not None else len(self.values) - 1

    def study(self, at: int, setup: Setup) -> Study:
        """Return the comparison at an index of the axis, with the student's choices.

        Seed and number of jobs apply to generated jobs only.

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
        if self.is_generated and 0 < setup.jobs < self.jobs:
            changes.append(f"{_SIZE}={setup.jobs}")
        study = self.base
        if self.is_generated:
            study = replace(study, base=with_seed(study.base, setup.seed))
        study = Study.from_json(with_settings(study.to_json(), changes))
        return replace(study, base=replace(study.base, name=f"Lesson {self.number}: {self.title}"))

    def studies(self, setup: Setup) -> tuple[Study, ...]:
        """Return the comparisons of the lesson, one per axis value."""
        return tuple(self.study(at, setup) for at in range(len(self.values)))

    def study_to_open(self, setup: Setup) -> Study:
        """Return the comparison to open on other pages."""
        return self.study(self.place(self.opens), setup)


def names() -> tuple[str, ...]:
    """Return the names of the lessons, in order."""
    return tuple(sorted(toml_values.file_stems(FOLDER), key=lambda name: int(name.split("-")[0])))


def lessons() -> tuple[Lesson, ...]:
    """Return all lessons, in order."""
    return tuple(load(name) for name in names())


@lru_cache(maxsize=16)
def load(name: str) -> Lesson:
    """Return a shipped lesson.

    Raises
    ------
    ParameterError
        If there is none of that name, or its file is wrong.
    """
    return read_lesson(toml_values.find_file("lesson", name, FOLDER))


def read_lesson(path: Path) -> Lesson:
    """Read and check a lesson file.

    Raises
    ------
    ParameterError
        If the file cannot be read, a key is missing or unknown, a text names a number that there is
        not, or a scenario cannot be built; the sentence names the file.
    """
    return toml_values.read_toml("lesson", path, _lesson)


_KEYS: Final = (
    *("number", "title", "intro", "question", "notice", "base", "policies", "axis", "change"),
    *("numbers", "decides", "answers", "pictures", "steps", "opens"),
)


def _lesson(data: Mapping[str, Any], name: str) -> Lesson:
    """Return the lesson described by a TOML table, checked.

    Builds the study of every option and axis value, so that mistakes raise TrainyardError here.
    """
    table = toml_values.table(
        "lesson", data, _KEYS, optional=("policies", "axis", "change", "pictures", "steps", "opens")
    )
    texts = {
        key: toml_values.text(key, table[key])
        for key in ("title", "intro", "question", "notice", "decides")
    }
    axis = _axis(table["axis"]) if "axis" in table else None
    lesson = Lesson(
        name=name,
        number=whole_number("number", table["number"]),
        base=_base(table["base"], table.get("policies", [])),
        axis=axis,
        change=_change(table["change"]) if "change" in table else None,
        numbers=tuple(_number(one) for one in toml_values.as_list("numbers", table["numbers"])),
        answers=tuple(_answer(one) for one in toml_values.as_list("answers", table["answers"])),
        pictures=tuple(
            _picture(one, axis)
            for one in toml_values.as_list("pictures", table.get("pictures", []))
        ),
        steps=tuple(_step(one) for one in toml_values.as_list("steps", table.get("steps", []))),
        opens=number("opens", table["opens"]) if "opens" in table else None,
        **texts,
    )
    _check_numbers(lesson)
    _check_answers(lesson)
    for option in range(-1, len(lesson.change.options) if lesson.change is not None else 0):
        lesson.studies(Setup(option=option))
    lesson.study_to_open(Setup())
    return lesson


def _base(data: Any, policies: Any) -> Study:
    """Return the base comparison of a lesson: the sample, or a scenario with its policies."""
    if data == SAMPLE:
        return new_study.sample_study()
    specs = tuple(as_spec(one) for one in toml_values.as_list("policies", policies))
    if not specs:
        raise ParameterError("it names no policies. Add at least one.")
    return Study(
        Scenario.from_json({**toml_values.mapping("base", data), "allocator": specs[0]}), specs
    )


def _axis(data: Any) -> LessonAxis:
    """Return the axis described by a table: values, and scenario changes at each of them.

    Values must ascend. Changes set `path` to value times `times`, or fill it in for `{}`.
    """
    table = toml_values.table(
        "axis", data, ("title", "unit", "values", "path", "times"), optional=("unit", "times")
    )
    values, times = (
        toml_values.numbers("axis: values", table["values"]),
        number("axis: times", table.get("times", 1.0)),
    )
    if not values or list(values) != sorted(set(values)):
        raise ParameterError("the values of the axis must ascend.")
    path = toml_values.text("axis: path", table["path"])
    # A path with a placeholder, such as cluster={}x8:v100, or one that takes the value.
    sets = tuple(
        (path.format(f"{value * times:.12g}") if "{}" in path else f"{path}={value * times:.12g}",)
        for value in values
    )
    return LessonAxis(
        toml_values.text("axis: title", table["title"]),
        toml_values.text("axis: unit", table.get("unit", "")),
        values,
        sets,
    )


def _change(data: Any) -> LessonChange:
    """Return the change described by a table; it needs two options and a valid `first`."""
    table = toml_values.table("change", data, ("title", "options", "first"))
    pairs = [
        toml_values.table("option", one, ("text", "set"))
        for one in toml_values.as_list("change: options", table["options"])
    ]
    options = tuple(toml_values.text("option", pair["text"]) for pair in pairs)
    toml_values.check_distinct("options", options)
    first = whole_number("change: first", table["first"])
    if not 0 <= first < len(options) or len(options) < 2:
        raise ParameterError(
            f"first = {first} is not a place among {len(options)} options, or there is nothing to"
            " change to."
        )
    return LessonChange(
        toml_values.text("change: title", table["title"]),
        options,
        tuple(toml_values.changes("option", pair["set"]) for pair in pairs),
        first,
    )


def _number(data: Any) -> Number:
    """Return the number described by a table; raise ParameterError for bad combinations.

    A number has either a metric or parts; `of`, `how` and `unit` must suit it.
    """
    keys = tuple(item.name for item in fields(Number))
    table = toml_values.table(
        "number", data, keys, optional=[key for key in keys if key not in ("name", "label")]
    )
    at = number("number: at", table.pop("at")) if "at" in table else None
    parts = tuple(
        toml_values.text("number: parts", one)
        for one in toml_values.as_list("number: parts", table.pop("parts", []))
    )
    share = number("number: share", table.pop("share", 0.0))
    result = Number(
        **{key: toml_values.text(f"number: {key}", value) for key, value in table.items()},
        at=at,
        parts=parts,
        share=share,
    )
    if result.metric and result.metric not in MEASURES:
        raise ParameterError(f"number {result.name}: there is no metric '{result.metric}'.")
    if result.of and result.of not in GROUPS:
        raise ParameterError(
            f"number {result.name}: of = {result.of} is not one of {', '.join(GROUPS)}."
        )
    if result.of and result.metric not in (*TIMES, SLOWER):
        raise ParameterError(
            f"number {result.name}: of some jobs there are {', '.join((*TIMES, SLOWER))} only."
        )
    if bool(result.metric) == bool(result.parts):
        raise ParameterError(
            f"number {result.name}: give either a metric, or the parts that it is computed from."
        )
    ways = (
        [name for name, (count, _) in WAYS.items() if count == len(result.parts)]
        if result.parts
        else ["", *REACHES]
    )
    _check_choice(f"number {result.name}: how", result.how, ways)
    _check_choice(f"number {result.name}: unit", result.unit, ("", *UNITS))
    return result


def _answer(data: Any) -> LessonAnswer:
    """Return the answer described by a table; without `below` it has no upper end."""
    table = toml_values.table("answer", data, ("text", "below", "why"), optional=("below",))
    return LessonAnswer(
        toml_values.text("answer", table["text"]),
        number("answer: below", table.get("below", math.inf)),
        toml_values.text("answer: why", table["why"]),
    )


def _picture(data: Any, axis: LessonAxis | None) -> Picture:
    """Return the figure described by a table; its `at` must be a value of the axis."""
    table = toml_values.table(
        "picture", data, ("kind", "title", "metric", "by", "at"), optional=("metric", "by", "at")
    )
    at = number("picture: at", table.pop("at")) if "at" in table else None
    _check_choice("picture: kind", table["kind"], KINDS)
    _check_choice(
        "picture: metric",
        table.get("metric", ""),
        (*TIMES, *NUMBERS) if table["kind"] == "curve" else ("", *TIMES),
    )
    _check_choice("picture: by", table.get("by", ""), ("", *BY))
    if at is not None and (axis is None or at not in axis.values):
        raise ParameterError(f"a picture is at {at:g}, which is no value of the axis.")
    return Picture(
        **{  # type: ignore[arg-type]
            key: toml_values.text(f"picture: {key}", value) for key, value in table.items()
        },
        at=at,
    )


def _step(data: Any) -> LessonStep:
    """Return the step described by a table; its `part` must be one of `PARTS`."""
    table = toml_values.table("step", data, ("title", "text", "part"))
    _check_choice("step: part", table["part"], PARTS)
    return LessonStep(
        toml_values.text("step", table["title"]),
        toml_values.text("step", table["text"]),
        table["part"],
    )


def _check_choice(what: str, value: Any, allowed: Sequence[str]) -> None:
    """Raise ParameterError unless a value is one of the allowed ones."""
    if value not in allowed:
        raise ParameterError(f"{what} = {value} is not one of {', '.join(allowed)}.")


def _check_numbers(lesson: Lesson) -> None:
    """Raise ParameterError for unknown policies, axis values, parts or quoted numbers.

    Also for repeated names, and if `decides` names no number.
    """
    titles, defined = outcomes.titles(lesson.base.allocators), set[str]()
    for one in lesson.numbers:
        policies = [
            *([one.policy] if one.metric else []),
            *([one.against] if one.against else []),
        ]
        if strange := [title for title in policies if title not in titles]:
            raise ParameterError(
                f"number {one.name}: there is no policy '{strange[0]}'. There are:"
                f" {', '.join(titles)}."
            )
        if one.at is not None and one.at not in lesson.values:
            raise ParameterError(f"number {one.name}: {one.at:g} is no value of the axis.")
        if strange := [name for name in one.parts if name not in defined]:
            raise ParameterError(f"number {one.name}: there is no number '{strange[0]}' before it.")
        defined.add(one.name)
    toml_values.check_distinct("numbers", [one.name for one in lesson.numbers])
    if lesson.decides not in defined:
        raise ParameterError(f"decides = {lesson.decides} is not one of its numbers.")
    for text in (lesson.notice, *(answer.why for answer in lesson.answers)):
        _check_quotes(text, defined)


def _check_quotes(text: str, names: Collection[str]) -> None:
    """Raise ParameterError if a text quotes an unknown number."""
    for _, name, _, _ in string.Formatter().parse(text):
        if name is not None and name not in names:
            raise ParameterError(f"a text quotes the number '{name}', which there is not.")


def _check_answers(lesson: Lesson) -> None:
    """Raise ParameterError unless two or more answers ascend and only the last is open."""
    ends = [answer.below for answer in lesson.answers]
    if len(ends) < 2 or ends != sorted(set(ends)) or not math.isinf(ends[-1]):
        raise ParameterError("the answers must ascend in 'below', and the last has none.")


def right_answer(lesson: Lesson, numbers: Mapping[str, float]) -> int | None:
    """Return the index of the right answer; None if the deciding number is unknown."""
    value = numbers[lesson.decides]
    return (
        next((at for at, answer in enumerate(lesson.answers) if value < answer.below), None)
        if not math.isnan(value)
        else None
    )
