from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.errors import ParameterError
from sim.params import Spec
from trainyard.study.scenario import Scenario
from trainyard.study.study import MAX_NAME_LENGTH, Study, labels


def study_of(scenario: Scenario, *texts: str, **more: Any) -> Study:
    return Study(scenario, tuple(Spec.parse(text) for text in texts), **more)


def test_round_trip_and_address(scenario: Scenario) -> None:
    study = study_of(scenario, "fifo", "fifo:backfill=first_fit", baseline=1, repeats=3)
    assert Study.from_json(study.to_json()) == study
    assert Study.unpack(study.pack()) == study
    assert Study.from_json(study.to_json()).canonical() == study.canonical()
    assert len(study.pack()) < 1000


def test_a_scenario_is_a_study_of_one(scenario: Scenario) -> None:
    assert Study.from_json(scenario.to_json()) == Study(scenario, (scenario.allocator,))


def test_scenarios_share_seeds_and_come_seed_by_seed(scenario: Scenario) -> None:
    study = study_of(replace(scenario, seed=5), "fifo", "fifo:backfill=first_fit", repeats=2)
    assert [(str(one.allocator), one.seed) for one in study.scenarios()] == [
        ("fifo", 5),
        ("fifo:backfill=first_fit", 5),
        ("fifo", 6),
        ("fifo:backfill=first_fit", 6),
    ]
    assert [one.seed for one in study.policy_scenarios(1)] == [5, 6]
    assert all(
        replace(one, allocator=study.base.allocator, seed=5) == study.base
        for one in study.scenarios()
    )


def test_base_follows_the_baseline(scenario: Scenario) -> None:
    study = study_of(
        replace(scenario, allocator=Spec.of("fifo", order="priority")),
        "fifo",
        "fifo:backfill=first_fit",
        baseline=1,
    )
    assert study.base.allocator == Spec.of("fifo", backfill="first_fit")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["fifo"], ["fifo"]),
        (["a:x=1"], ["a x=1"]),
        (["a:x=1", "b"], ["a x=1", "b"]),
        (["fifo", "fifo:backfill=first_fit"], ["fifo", "fifo backfill=first_fit"]),
        (["a:x=1,y=2", "a:x=1,y=3", "b:x=1"], ["a y=2", "a y=3", "b"]),
        (["las:thresholds=1/2", "las"], ["las thresholds=1-2", "las"]),
        (["fifo", "fifo", "fifo"], ["fifo", "fifo +2", "fifo +3"]),
        (
            ["w:inner=las(promote_factor=1)", "w:inner=fifo()"],
            ["w inner=las(promote_factor=1)", "w inner=fifo()"],
        ),
    ],
)
def test_labels_are_unique_and_say_what_differs(texts: list[str], expected: list[str]) -> None:
    made = labels([Spec.parse(text) for text in texts])
    assert list(made) == expected
    assert len(set(made)) == len(made)


def test_long_labels_that_begin_alike_stay_unique() -> None:
    specs = [Spec.of("a", x="y" * 200 + str(turn)) for turn in range(3)]
    assert len(set(labels(specs))) == 3


def test_labels_are_safe_file_names() -> None:
    _, label = labels([Spec("a"), Spec.of("a", path="../..\\x:*?<>|\0")])
    assert not set(label) & set('/\\:*?<>|\0"')
    assert not label.endswith(".")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allocators": []}, "No policy is chosen"),
        ({"allocators": "fifo"}, "a list"),
        ({"allocators": [5]}, "neither a name nor a table"),
        ({"base": 5}, "needs 'base'"),
        ({"baseline": 2}, "not an index of the"),
        ({"baseline": "x"}, "baseline = x is not a number"),
        ({"repeats": 0}, "outside 1 to"),
        ({"repeats": 1.5}, "not a whole number"),
        ({"colour": 1}, "no setting 'colour'"),
    ],
)
def test_bad_studies_are_one_sentence(
    scenario: Scenario, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        Study.from_json(study_of(scenario, "fifo").to_json() | change)


def test_no_allocator_at_all(scenario: Scenario) -> None:
    with pytest.raises(ParameterError, match="No policy is chosen"):
        Study(scenario, ())
    with pytest.raises(ParameterError, match="holds no table"):
        Study.from_json([1])  # type: ignore[arg-type]


def test_names_of_policies_are_kept_with_them_and_change_no_result(scenario: Scenario) -> None:
    specs = (Spec("fifo"), Spec.of("fifo", backfill="first_fit"), Spec("sjf"))
    study = Study(scenario, specs)
    named = study.calling(1, "Gaps <img src=x> filled`*_")
    assert named == study
    assert (named.digest, named.canonical()) == (study.digest, study.canonical())
    assert named.titles == ("FIFO", "Gaps img src=x filled", "SJF")
    assert "names" not in study.to_json()
    for again in (Study.unpack(named.pack()), Study.from_json(named.to_json())):
        assert again.names == named.names
    assert named.choosing((Spec("sjf"), specs[1])).names == ("", named.names[1])
    assert named.only([1, 0]).names == (named.names[1], "")
    changed = named.choosing((specs[0], Spec.of("fifo", order="priority"), specs[2]))
    assert changed.names == named.names
    assert named.calling(0, named.names[1]).titles[1] == f"{named.names[1]} #2"
    assert len(study.calling(0, "x" * 500).titles[0]) == MAX_NAME_LENGTH


@pytest.mark.parametrize("wrong", ["a", 3, [1], {"a": 1}])
def test_names_that_are_none_are_refused(scenario: Scenario, wrong: object) -> None:
    document = Study(scenario, (Spec("fifo"),)).to_json()
    with pytest.raises(ParameterError, match="names"):
        Study.from_json(document | {"names": wrong})
