from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from allocators import REGISTRY
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.export import slurm, targets
from trainyard.runs import estimate
from trainyard.study.scenario import Scenario
from trainyard.study.study import PREFERRED_SLOTS, SLOTS, Study, preferred_slot

FIVE = tuple(Spec(name) for name in ("fifo", "easy", "srtf", "gavel", "recorded"))


def slots(study: Study) -> dict[str, int]:
    return {str(spec): slot for spec, slot in zip(study.allocators, study.slots, strict=True)}


def test_every_policy_prefers_one_of_11_slots() -> None:
    assert {1 <= preferred_slot(name) <= SLOTS for name in REGISTRY} == {True}


@pytest.mark.parametrize(
    "table",
    [PREFERRED_SLOTS, estimate.JOB_COSTS, slurm.SETTINGS, targets.KUEUE_SETTINGS],
    ids=["slots", "job_costs", "slurm", "kueue"],
)
def test_tables_name_only_policies_of_the_registry(table: Mapping[str, object]) -> None:
    assert sorted(table.keys() - REGISTRY.keys()) == []


def test_a_policy_without_an_entry_gets_a_slot_by_its_name() -> None:
    # crc32 gives 1583414508 and 2101481781; modulo 11 they are 5 and 3.
    assert preferred_slot("smallest") == 6
    assert preferred_slot("site_rule") == 4


def test_policies_get_the_slots_that_they_prefer(scenario: Scenario) -> None:
    assert slots(Study(scenario, FIVE)) == {
        "fifo": 5,
        "easy": 1,
        "srtf": 2,
        "gavel": 3,
        "recorded": 4,
    }


def test_a_slot_that_is_taken_gives_way_to_the_next_free_one(scenario: Scenario) -> None:
    study = Study(scenario, (Spec("fifo"), Spec("srtf"), Spec.of("srtf", size="gpu_time")))
    assert study.slots == (5, 2, 3)


def test_twelve_policies_have_twelve_colours(scenario: Scenario) -> None:
    names = ("fifo", "easy", "srtf", "gavel", "recorded", "sjf", "las", "slurm")
    names += ("conservative", "hadar", "hadare", "asrpt", "kai")
    study = Study(scenario, tuple(map(Spec, names[:12])))
    # The baseline is gray; its slot, bronze, is that of A-SRPT too.
    assert study.slots == (5, 1, 2, 3, 4, 11, 6, 7, 8, 9, 10, 5)
    added = Study(scenario, (Spec("fifo"),)).choosing(tuple(map(Spec, names[:12])))
    assert added.slots == study.slots
    counts = Counter(Study(scenario, tuple(map(Spec, names))).slots[1:])
    assert sorted(counts.values()) == [1] * 10 + [2]


def test_a_document_of_five_colours_keeps_them(scenario: Scenario) -> None:
    names = ("fifo", "las", "conservative", "slurm", "sjf", "hadar", "asrpt")
    old = Study(scenario, tuple(map(Spec, names))).to_json() | {"slots": [5, 4, 3, 1, 2, 2, 5]}
    assert Study.from_json(old).slots == (5, 4, 3, 1, 2, 2, 5)


def test_adding_removing_and_another_baseline_recolour_no_other_policy(scenario: Scenario) -> None:
    study = Study(scenario, FIVE)
    fewer = study.choosing([spec for spec in FIVE if spec.name != "easy"])
    assert slots(fewer).items() <= slots(study).items()
    more = study.choosing([Spec("las"), *FIVE], 1)
    assert slots(study).items() <= slots(more).items()
    assert replace(study, baseline=2).slots == study.slots
    assert study.only([3, 1]).slots == (3, 1)
    turned = study.choosing(tuple(reversed(FIVE)))
    assert slots(turned) == slots(study)


def test_a_policy_whose_settings_change_keeps_its_colour(scenario: Scenario) -> None:
    study = Study(scenario, (Spec("fifo"), Spec("srtf"), Spec("srtf")))
    changed = study.choosing((Spec("fifo"), Spec.of("srtf", size="gpu_time"), Spec("srtf")))
    assert changed.slots == study.slots


def test_colours_change_no_result_and_are_kept_by_file_and_address(scenario: Scenario) -> None:
    study = Study(scenario, FIVE)
    other = replace(study, slots=(1, 2, 3, 4, 5))
    assert other == study
    assert other.digest == study.digest
    assert other.canonical() == study.canonical()
    assert Study.unpack(other.pack()).slots == (1, 2, 3, 4, 5)
    assert Study.from_json(other.to_json()).slots == (1, 2, 3, 4, 5)
    before = {key: value for key, value in study.to_json().items() if key != "slots"}
    assert Study.from_json(before).slots == study.slots


@pytest.mark.parametrize("wrong", [[12], [-1], ["blue"], "12", 5, [1.5]])
def test_slots_that_there_are_not_are_refused(scenario: Scenario, wrong: object) -> None:
    with pytest.raises(ParameterError, match="slots"):
        Study.from_json(Study(scenario, FIVE).to_json() | {"slots": wrong})
