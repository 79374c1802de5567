from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.study.scenario import Scenario
from trainyard.study.settings import with_settings
from trainyard.study.study import Study


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        ("faults.mtbf_h=500", {"faults": Spec.of("faults", mtbf_h=500.0)}),
        ("overheads.restart_s=30", {"overheads": Spec.of("overheads", restart_s=30.0)}),
        ("seed=3", {"seed": 3}),
        ("horizon_s=3600", {"horizon_s": 3600.0}),
        ("estimator=noisy:sigma=0.5", {"estimator": Spec.of("noisy", sigma=0.5)}),
        ("estimator=unknown", {"estimator": Spec("unknown")}),
        ("allocator.backfill=first_fit", {"allocator": Spec.of("fifo", backfill="first_fit")}),
        ("allocator=fifo:order=priority", {"allocator": Spec.of("fifo", order="priority")}),
        ("cluster=3x4:a100", {"cluster": Cluster.parse("3x4:a100")}),
        ("name=a=b", {"name": "a=b"}),
        ("faults=mtbf_h=2,mttr_h=1", {"faults": Spec.of("faults", mtbf_h=2.0, mttr_h=1.0)}),
    ],
)
def test_one_value(scenario: Scenario, setting: str, change: dict[str, Any]) -> None:
    assert Scenario.from_json(with_settings(scenario.to_json(), [setting])) == replace(
        scenario, **change
    )


def test_parameter_of_a_chosen_model(scenario: Scenario) -> None:
    noisy = replace(scenario, estimator=Spec("noisy"))
    assert Scenario.from_json(
        with_settings(noisy.to_json(), ["estimator.sigma=0.7"])
    ).estimator == Spec.of("noisy", sigma=0.7)
    with pytest.raises(ParameterError, match="exact has no parameter 'sigma'"):
        Scenario.from_json(with_settings(scenario.to_json(), ["estimator.sigma=0.7"]))


def test_settings_add_up_and_leave_the_document_alone(scenario: Scenario) -> None:
    body = scenario.to_json()
    before = deepcopy(body)
    made = Scenario.from_json(
        with_settings(
            body,
            ["trace.load=1.5", "trace.to_s=100", "cluster.groups.0.count=5", "measure.first_job=3"],
        )
    )
    assert (made.trace.load, made.trace.to_s, made.cluster.gpus, made.measure.first_job) == (
        1.5,
        100.0,
        40,
        3,
    )
    assert body == before


def test_study_takes_paths_of_its_scenario(scenario: Scenario) -> None:
    study = Study(scenario, (Spec("fifo"), Spec.of("fifo", order="priority")))
    made = Study.from_json(
        with_settings(
            study.to_json(),
            [
                "faults.mtbf_h=9",
                "allocator.backfill=first_fit",
                "allocators.1.types=cheapest",
                "repeats=4",
            ],
        )
    )
    assert made.base.faults == Spec.of("faults", mtbf_h=9.0)
    assert made.repeats == 4
    assert made.allocators == (
        Spec.of("fifo", backfill="first_fit"),
        Spec.of("fifo", backfill="first_fit", order="priority", types="cheapest"),
    )


def test_entry_of_a_list_is_replaced(scenario: Scenario) -> None:
    study = Study(scenario, (Spec("fifo"), Spec.of("fifo", order="priority")))
    assert Study.from_json(with_settings(study.to_json(), ["allocators.1=sjf"])).allocators == (
        Spec("fifo"),
        Spec("sjf"),
    )


def test_text_form_of_an_allocator_is_opened(scenario: Scenario) -> None:
    body = scenario.to_json() | {"allocator": "fifo:order=priority"}
    assert Scenario.from_json(
        with_settings(body, ["allocator.backfill=first_fit"])
    ).allocator == Spec.of("fifo", backfill="first_fit", order="priority")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed", "the form is path=value"),
        ("=3", "the form is path=value"),
        ("a..b=3", "the form is path=value"),
        ("seed.x=3", "single value"),
        ("seed.x.y=3", "nothing to change inside|no 'x'|nothing"),
        ("nobody.x=3", "there is no 'nobody'. There are: .*cluster"),
        ("cluster.groups.7.count=3", "there are 1 entries"),
        ("cluster.groups.x.count=3", "is not a number"),
    ],
)
def test_paths_that_lead_nowhere(scenario: Scenario, setting: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        with_settings(scenario.to_json(), [setting])
