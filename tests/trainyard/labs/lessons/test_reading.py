from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.errors import ParameterError
from trainyard.labs.lessons import numbers as lesson_numbers
from trainyard.labs.lessons import reading
from trainyard.labs.lessons.numbers import Number
from trainyard.labs.lessons.reading import Lesson, Setup, read_lesson
from trainyard.results import outcomes
from trainyard.results.outcomes import StudyResults
from trainyard.runs.run import run_to_store
from trainyard.store import Store
from trainyard.study.scenario import Scenario
from trainyard.traces import new_study

NAMES = reading.names()
TEACHING = [*NAMES[1:]]
"""All but lesson 0, which explains a page on the sample."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("lessons"))


def ran(lesson: Lesson, setup: Setup, store: Store) -> tuple[StudyResults, ...]:
    studies = lesson.studies(setup)
    for study in studies:
        for scenario in study.scenarios():
            run_to_store(scenario.to_json(), str(store.root))
    return tuple(outcomes.gather(study, store) for study in studies)


def test_lessons_are_in_order_and_each_has_one_question() -> None:
    every = reading.lessons()
    assert [lesson.number for lesson in every] == list(range(12))
    assert [lesson.name for lesson in every if lesson.is_generated] == TEACHING
    assert [int(lesson.name.split("-")[0]) for lesson in every] == list(range(12))
    for lesson in every:
        assert lesson.question.rstrip().endswith("?")
        assert len(re.findall(r"[.?](?:\s|$)", lesson.intro)) == 2
        assert lesson.jobs <= 500
        assert 2 <= len(lesson.answers) <= 4
        assert lesson.change is not None or lesson.steps


COMES_OUT = (
    *(
        "It falls by more than half",
        "It grows more than five times",
        "Some, but fewer than one in five",
        "More than one in ten",
    ),
    *("It falls by a third or more", "A third to two thirds", "More than ten times as much"),
    "More than twice as long",
    *("More than half as many again", "At least half as long, but shorter"),
    *("A little shorter", "More than one in ten"),
)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        pytest.param(name, answer, marks=[] if at < 5 else [pytest.mark.slow])
        for at, (name, answer) in enumerate(zip(NAMES, COMES_OUT, strict=True))
    ],
)
def test_exactly_one_answer_is_right_and_the_texts_quote_the_run(
    name: str, answer: str, store: Store
) -> None:
    lesson = reading.load(name)
    shown = ran(lesson, Setup(), store)
    found = lesson_numbers.compute(lesson.numbers, lesson.values, shown)
    assert all(math.isfinite(value) for value in found.values())
    value = found[lesson.decides]
    starts = [-math.inf, *(answer.below for answer in lesson.answers)]
    fits = [at for at, answer in enumerate(lesson.answers) if starts[at] <= value < answer.below]
    assert fits == [reading.right_answer(lesson, found)]
    assert lesson.answers[fits[0]].text == answer
    told = lesson_numbers.format_numbers(lesson.numbers, found)
    text = f"{lesson.notice} {lesson.answers[fits[0]].why}"
    quoted = set(re.findall(r"\{(\w+)\}", text))
    # The number that decides is quoted, or else what it is computed from.
    assert quoted & {
        lesson.decides,
        *next(one.parts for one in lesson.numbers if one.name == lesson.decides),
    }
    assert "an unknown amount" not in text.format_map(told)
    # Numbers that a metric gives are those of the stored summaries.
    for one in lesson.numbers:
        if one.metric in shown[0].entries[0][0].summary and not one.of and not one.how:
            place = shown[lesson.place(one.at)]
            assert (
                found[one.name]
                == place.entries[place.titles.index(one.policy)][0].summary[one.metric]
            )


@pytest.mark.parametrize("name", TEACHING[1:3])
def test_runs_are_small_and_another_seed_has_an_answer_too(name: str, store: Store) -> None:
    lesson = reading.load(name)
    shown = ran(lesson, Setup(seed=1, jobs=100), store)
    found = lesson_numbers.compute(lesson.numbers, lesson.values, shown)
    assert {
        entry.summary["jobs"] for place in shown for entries in place.entries for entry in entries
    } == {100}
    assert math.isnan(found[lesson.decides]) == (reading.right_answer(lesson, found) is None)


@pytest.mark.parametrize("name", TEACHING)
def test_a_change_changes_the_runs_and_the_first_option_nothing(name: str) -> None:
    lesson = reading.load(name)
    change = lesson.change
    assert change is not None
    first = lesson.studies(Setup())
    assert lesson.studies(Setup(option=change.first)) == first
    assert all(lesson.studies(Setup(option=at)) != first for at in change.other_options)


def test_only_the_lesson_on_buying_goes_on_to_plan() -> None:
    assert [one.number for one in reading.lessons() if one.plans] == [6]


def test_lesson_0_is_the_comparison_that_the_app_opens_with() -> None:
    (study,) = reading.lessons()[0].studies(Setup())
    sample = new_study.sample_study()
    assert [one.key("") for one in study.scenarios()] == [one.key("") for one in sample.scenarios()]


def test_seed_and_size_reach_the_jobs_but_a_sample_stays_as_it_is() -> None:
    made = reading.load(TEACHING[0])
    study = made.study(0, Setup(seed=7, jobs=60))
    assert "seed=7" in study.base.trace.source
    assert "jobs=60" in study.base.trace.source
    assert made.study(0, Setup(jobs=10**6)) == made.study(0, Setup())
    sample = reading.load(NAMES[0])
    assert sample.jobs == 0
    assert (
        sample.study(0, Setup(seed=7, jobs=60)).scenarios() == sample.study(0, Setup()).scenarios()
    )


# Numbers, by hand.


def place(
    titles: tuple[str, ...], jobs: list[pd.DataFrame], summaries: list[dict[str, Any]] | None = None
) -> StudyResults:
    told = summaries or [{} for _ in jobs]
    entries = tuple(
        (SimpleNamespace(jobs=lambda frame=frame: frame, summary=one),)
        for frame, one in zip(jobs, told, strict=True)
    )
    return SimpleNamespace(titles=titles, entries=entries)  # type: ignore[return-value]


def frame(
    submit: list[float],
    start: list[float],
    finish: list[float],
    alone: list[float],
    gpus: list[int] | None = None,
) -> pd.DataFrame:
    count = len(submit)
    outcome = ["completed" if np.isfinite(value) else "unfinished" for value in finish]
    columns = {"submit_s": submit, "first_start_s": start, "finish_s": finish, "ideal_s": alone}
    return pd.DataFrame({**columns, "gpus": gpus or [1] * count, "outcome": outcome})


def test_numbers_are_computed_from_one_another() -> None:
    shown = [
        place(("A",), [frame([], [], [], [])], [{"queue_mean_s": value}])
        for value in (100.0, 9.0, 0.5)
    ]
    numbers = [
        Number("far", "", metric="queue_mean_s", policy="A"),
        Number("near", "", metric="queue_mean_s", policy="A", at=1),
        Number("ratio", "", parts=("near", "far"), how="ratio"),
        Number("gap", "", parts=("near", "far"), how="difference"),
        Number("change", "", parts=("far", "near"), how="change"),
        Number("tenth", "", metric="queue_mean_s", policy="A", how="reaches", share=0.1),
        Number("there", "", metric="queue_mean_s", policy="A", how="reached", share=0.1),
        Number("never", "", metric="queue_mean_s", policy="A", how="reaches", share=0.001),
        Number("kept", "", parts=("near", "far", "there"), how="kept"),
    ]
    found = lesson_numbers.compute(numbers, (1, 2, 3), shown)
    assert found["ratio"] == pytest.approx(200)
    assert found["gap"] == pytest.approx(99.5)
    assert found["change"] == pytest.approx(-0.995)
    assert (found["tenth"], found["there"]) == (2, 9.0)
    assert math.isnan(found["never"])
    assert found["kept"] == pytest.approx((100 - 9) / 99.5)
    told = lesson_numbers.format_numbers(numbers, found)
    assert (told["far"], told["tenth"], told["never"]) == ("0.5 s", "2", "an unknown amount")


def test_a_ratio_to_nothing_is_not_known() -> None:
    shown = [place(("A",), [frame([], [], [], [])], [{"queue_mean_s": 0.0}])]
    numbers = [
        Number("a", "", metric="queue_mean_s", policy="A"),
        Number("b", "", parts=("a", "a"), how="ratio"),
    ]
    assert math.isnan(lesson_numbers.compute(numbers, (0.0,), shown)["b"])


def test_who_is_slower_and_how_groups_fare_by_hand() -> None:
    submit, alone = [0.0] * 10, [float(at) for at in range(1, 11)]
    before = frame(submit, [0.0] * 10, [10.0] * 10, alone)
    # Nine finish sooner, the longest later, and the fifth does not finish.
    finish = [float(at) for at in range(1, 10)] + [30.0]
    finish[4] = math.nan
    after = frame(submit, [1.0] * 10, finish, alone)
    shown = [place(("A", "B"), [before, after])]
    numbers = [
        Number("slower", "", metric="slower", policy="B", against="A"),
        Number("longest", "", metric="slower", policy="B", against="A", of="longest tenth"),
        Number("short", "", metric="jct_mean_s", policy="B", of="shorter half"),
        Number("waits", "", metric="queue_mean_s", policy="B", of="longest tenth"),
    ]
    found = lesson_numbers.compute(numbers, (0.0,), shown)
    assert found == {
        "slower": pytest.approx(1 / 9),
        "longest": 1.0,
        "short": pytest.approx((1 + 2 + 3 + 4) / 4),
        "waits": 1.0,
    }
    table = lesson_numbers.groups(shown[0], "jct_mean_s", "length")
    assert table[table["label"] == "B"]["value"].tolist() == [2.5, 7.0, 9.0, 30.0]
    assert lesson_numbers.groups(shown[0], "jct_mean_s", "gpus")["group"].tolist() == [
        "1 GPU",
        "1 GPU",
    ]


def test_idle_gpus_while_jobs_wait_by_hand(store: Store) -> None:
    """Two nodes of two GPUs; FIFO; a job of 1 on each node leaves no room for 2 together."""
    trace = store.root / "gang.csv"
    trace.write_text(
        "job_id,submit_time_s,duration_s,num_gpus\na,0,100,2\nb,0,100,1\nc,10,50,2\nd,60,10,1\n"
    )
    scenario = Scenario.from_json(
        {"trace": str(trace), "cluster": "2x2:v100", "allocator": "fifo:placement=consolidate"}
    )
    key = run_to_store(scenario.to_json(), str(store.root))
    entry = store.get(key)
    assert entry is not None
    # From 10 to 60 (the last submission) c waits while 3 of 4 GPUs are busy.
    assert lesson_numbers.idle_while_waiting(entry, scenario.cluster) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("s", 90.0, "1.5 min"),
        ("s", -90.0, "−1.5 min"),
        ("share", 0.123, "12 %"),
        ("times", 3.14159, "3.1 times"),
        ("times", 29.0, "29 times"),
        ("longer", -0.45, "45 % shorter"),
        ("longer", 0.2, "20 % longer"),
        ("more", -0.1, "10 % less"),
        ("count", 3.0, "3"),
        ("count", 2.25, "2.2"),
    ],
)
def test_how_numbers_are_written(unit: str, value: float, text: str) -> None:
    assert lesson_numbers.UNITS[unit](value) == text


# Files that are wrong.

GOOD = """
number = 9
title = "T"
intro = "One. Two."
question = "Which?"
notice = "It is {a}."
policies = ["fifo"]
decides = "a"

[base]
trace = "made:recurring:jobs=60,servers=1,gangs=1,shares=1"
cluster = "1x8:v100"

[axis]
title = "Load"
path = "trace.source.load"
values = [0.5, 1]

[[numbers]]
name = "a"
label = "A"
metric = "queue_mean_s"
policy = "FIFO"

[[answers]]
text = "little"
below = 1
why = "{a}"

[[answers]]
text = "much"
why = "{a}"

[[pictures]]
kind = "curve"
title = "?"
metric = "queue_mean_s"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "9-t.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_good_file_is_read(tmp_path: Path) -> None:
    lesson = read_lesson(written(tmp_path, GOOD))
    assert (lesson.number, lesson.jobs, lesson.values) == (9, 60, (0.5, 1.0))
    assert lesson.base.base.trace.source.count("load") == 0
    assert "load=0.5" in lesson.study(0, Setup()).base.trace.source


def bad() -> Iterator[Any]:
    for name, old, new, sentence in (
        (
            "metric",
            'metric = "queue_mean_s"\npolicy',
            'metric = "quue"\npolicy',
            "there is no metric 'quue'",
        ),
        (
            "policy",
            'policy = "FIFO"',
            'policy = "FFO"',
            "there is no policy 'FFO'. There are: FIFO",
        ),
        ("quote", "It is {a}.", "It is {b}.", "quotes the number 'b', which there is not"),
        ("decides", 'decides = "a"', 'decides = "z"', "decides = z is not one of its numbers"),
        ("open end", 'text = "much"\n', 'text = "much"\nbelow = 3\n', "the last has none"),
        ("order", "below = 1\n", "below = inf\n", "must ascend"),
        ("axis", "values = [0.5, 1]", "values = [1, 0.5]", "must ascend"),
        ("path", "trace.source.load", "trace.source.lod", "lod"),
        ("kind", 'kind = "curve"', 'kind = "pie"', "kind = pie is not one of"),
        ("key", 'title = "T"', 'title = "T"\ncolour = 1', "has no setting 'colour'"),
        ("missing", 'question = "Which?"\n', "", "has no 'question'"),
        ("no policies", 'policies = ["fifo"]', "policies = []", "names no policies"),
        ("at", 'policy = "FIFO"', 'policy = "FIFO"\nat = 0.7', "0.7 is no value of the axis"),
        ("of", 'policy = "FIFO"', 'policy = "FIFO"\nof = "all"', "of = all is not one of"),
        (
            "parts",
            'metric = "queue_mean_s"\npolicy = "FIFO"',
            'parts = ["q"]\nhow = "ratio"',
            "how = ratio is not one of",
        ),
        ("toml", 'title = "T"', "title = T", "Invalid value"),
    ):
        yield pytest.param(old, new, sentence, id=name)


@pytest.mark.parametrize(("old", "new", "sentence"), list(bad()))
def test_a_wrong_file_is_one_sentence_that_names_it(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    with pytest.raises(ParameterError, match=re.escape(sentence)) as caught:
        read_lesson(written(tmp_path, GOOD.replace(old, new, 1)))
    assert str(caught.value).startswith("9-t.toml: ")


def test_an_unknown_lesson_is_a_sentence() -> None:
    with pytest.raises(ParameterError, match="There is no lesson 'x'"):
        reading.load("x")
