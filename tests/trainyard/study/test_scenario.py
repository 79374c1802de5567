from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from sim.cluster import Cluster, NodeGroup
from sim.engine.simulator import Measure
from sim.errors import ClusterError, ParameterError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study import scenario as module
from trainyard.study.branch_point import BranchPoint, FromHere
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study

DIGEST = "d" * 32


def test_round_trip_is_exact(scenario: Scenario) -> None:
    rich = replace(
        scenario,
        trace=replace(
            TraceSpec.of("a.csv", fmt="native", read={"zone": "UTC", "mapping": {"num_gpus": "g"}}),
            from_s=5.0,
            to_s=9e5,
            load=1.2,
        ),
        cluster=Cluster.parse("2x8:v100,1x0:cpu/64c/256g"),
        allocator=Spec.of("fifo", backfill="first_fit"),
        estimator=Spec.of("noisy", sigma=0.5),
        faults=Spec.of("faults", mtbf_h=500.0),
        overheads=Spec.of("overheads", restart_s=30.0),
        seed=3,
        horizon_s=1e6,
        measure=Measure(10.0, 20.0, 1, 5),
        stop="measured",
        name="Tuesday",
    )
    again = Scenario.from_json(rich.to_json())
    assert again == rich
    assert again.canonical() == rich.canonical()
    assert again.key(DIGEST) == rich.key(DIGEST)


def test_equal_choices_are_written_alike(scenario: Scenario) -> None:
    spelled = replace(
        scenario,
        allocator=Spec.of("fifo", backfill="none", mix="no"),
        estimator=Spec("exact"),
        faults=Spec.of("x", mtbf_h="0", mttr_h=4),
    )
    assert spelled == scenario
    assert replace(scenario, faults=Spec.of("x", mtbf_h="500")) == replace(
        scenario, faults=Spec.of("y", mtbf_h=500)
    )


def test_key_of_a_known_scenario_never_moves_unless_results_do(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESULTS_VERSION", 1)
    before = scenario.key(DIGEST)
    assert len(before) == 32
    monkeypatch.setattr(module, "RESULTS_VERSION", 2)
    assert scenario.key(DIGEST) != before


def test_key_ignores_names_and_the_place_of_the_trace(scenario: Scenario) -> None:
    other = replace(
        scenario,
        name="x",
        cluster=replace(scenario.cluster, name="y"),
        trace=TraceSpec.of("store:" + DIGEST, read={"zone": "UTC"}),
    )
    assert other.key(DIGEST) == scenario.key(DIGEST)


CHANGES: list[dict[str, Any]] = [
    {"seed": 1},
    {"horizon_s": 5.0},
    {"measure": Measure(first_job=2)},
    {"allocator": Spec.of("fifo", backfill="first_fit")},
    {"estimator": Spec("noisy")},
    {"faults": Spec.of("faults", mtbf_h=1.0)},
    {"overheads": Spec.of("overheads", start_s=1.0)},
    {"cluster": Cluster.parse("2x8:a100")},
    {"trace": TraceSpec("sample:tiny", load=1.1)},
    {"trace": TraceSpec("sample:tiny", from_s=1.0)},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_key_sees_everything_else(scenario: Scenario, change: dict[str, Any]) -> None:
    assert replace(scenario, **change).key(DIGEST) != scenario.key(DIGEST)
    assert scenario.key("e" * 32) != scenario.key(DIGEST)


def test_key_does_not_depend_on_how_a_figure_was_typed(scenario: Scenario) -> None:
    typed = Cluster((NodeGroup(2.0, 8.0, "v100", 96, 512, 4.0),))  # type: ignore[arg-type]
    meant = Cluster((NodeGroup(2, 8, "v100", 96.0, 512.0, 4),))
    assert replace(scenario, cluster=typed).key(DIGEST) == replace(scenario, cluster=meant).key(
        DIGEST
    )


def test_short_forms_are_read(scenario: Scenario) -> None:
    short: dict[str, Any] = {
        "trace": "sample:tiny",
        "cluster": "2x8:v100",
        "allocator": "fifo",
        "faults": "",
        "overheads": {},
        "horizon_s": None,
    }
    assert Scenario.from_json(short) == scenario
    assert Scenario.from_json(short | {"overheads": "restart_s=30"}).overheads == Spec.of(
        "overheads", restart_s=30.0
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"seed": "x"}, ParameterError, "seed = x is not a number"),
        ({"seed": -1}, ParameterError, "seed = -1 is not a whole number"),
        ({"horizon_s": 0}, ParameterError, "must be above 0"),
        ({"stop": "never"}, ParameterError, "stop = never is not one of"),
        ({"stop": "horizon"}, ParameterError, "needs a finite horizon_s"),
        ({"allocator": "nobody"}, ParameterError, "nobody"),
        ({"allocator": "fifo:backfill=maybe"}, ParameterError, "backfill = maybe is not one of"),
        ({"allocator": "fifo:speed=1"}, ParameterError, "has no parameter 'speed'"),
        ({"allocator": 5}, ParameterError, "neither a name nor a table"),
        ({"perf": "nobody"}, ParameterError, "no performance model 'nobody'"),
        ({"estimator": "nobody"}, ParameterError, "no estimator 'nobody'"),
        ({"faults": {"mtbf": 1}}, ParameterError, "has no parameter 'mtbf'"),
        ({"faults": [1]}, ParameterError, "not a table of parameters"),
        ({"cluster": "16:v100"}, ClusterError, "nodes x GPUs"),
        ({"cluster": {}}, ClusterError, "no table with the key 'groups'"),
        ({"trace": {"source": ""}}, ParameterError, "names no trace"),
        ({"trace": {"load": 0}}, ParameterError, "outside 0.001 to 1000"),
        ({"trace": {"from_s": 5, "to_s": 5}}, ParameterError, "is empty"),
        ({"trace": {"read": {"zoen": "UTC"}}}, ParameterError, "no choice 'zoen'"),
        ({"trace": {"read": 5}}, ParameterError, "not a table of choices"),
        ({"measure": {"from_s": "x"}}, ParameterError, "measure.from_s = x is not a number"),
        (
            {"measure": {"first_job": 0.5}},
            ParameterError,
            "measure.first_job = 0.5 is not a whole number",
        ),
        ({"colour": 1}, ParameterError, "no setting 'colour'"),
    ],
)
def test_bad_values_are_one_sentence(
    scenario: Scenario, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        Scenario.from_json(scenario.to_json() | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["trace", "cluster", "allocator"])
def test_missing_parts_are_named(scenario: Scenario, missing: str) -> None:
    body = scenario.to_json()
    del body[missing]
    with pytest.raises(ParameterError, match=f"has no '{missing}'"):
        Scenario.from_json(body)


def test_open_ends_survive_json(scenario: Scenario) -> None:
    body = scenario.to_json()
    assert body["horizon_s"] is None
    assert body["trace"]["to_s"] is None
    assert body["measure"] == {"from_s": None, "to_s": None, "first_job": 0, "last_job": None}
    assert math.isinf(Scenario.from_json(body).trace.to_s)


def old(document: dict[str, Any]) -> dict[str, Any]:
    """A document as it was written before formats had numbers."""
    return {
        key: old(value) if key in ("base", "study") else value
        for key, value in document.items()
        if key != "format"
    }


@pytest.mark.parametrize(
    ("perf", "meant"),
    [
        ("rigid", {"efficiency": 1.0, "consolidate_s": 0.0}),
        ("profiled", {"efficiency": 1.0}),
        ("profiled:efficiency=0.95,consolidate_s=9", {"consolidate_s": 9.0}),
        ("power_law:grow=2", {"grow": 2.0, "efficiency": 1.0, "consolidate_s": 0.0}),
    ],
)
def test_documents_of_before_mean_the_prices_of_then(perf: str, meant: dict[str, float]) -> None:
    made = Scenario(
        TraceSpec(), Cluster.parse("8x1:v100"), Spec("hadare"), Spec(perf.partition(":")[0])
    )
    document = {**old(made.to_json()), "perf": perf}
    assert Scenario.from_json(document).perf.values == meant
    assert Scenario.from_json(Scenario.from_json(document).to_json()).perf.values == meant
    # Now silence means the defaults of now; and who does not fork has no price to keep.
    assert Scenario.from_json({**document, "format": 2}).perf == catalog.canonical(
        "perf", Spec.parse(perf)
    )
    assert Scenario.from_json({**document, "allocator": "fifo"}).perf == catalog.canonical(
        "perf", Spec.parse(perf)
    )
    assert Scenario.from_json(
        {**document, "allocator": "hadare:max_copies=1"}
    ).perf == catalog.canonical("perf", Spec.parse(perf))


def test_any_policy_of_an_old_comparison_that_forks_keeps_the_price() -> None:
    made = Study(
        Scenario(TraceSpec(), Cluster.parse("8x1:v100"), Spec("fifo")),
        (Spec("fifo"), Spec.parse("switch(first=sjf,then=hadare)")),
    )
    assert Study.from_json(old(made.to_json())).base.perf.values == {
        "efficiency": 1.0,
        "consolidate_s": 0.0,
    }
    assert Study.from_json(made.to_json()) == made
    turn = FromHere(made.only([0]), 0, BranchPoint(60.0, Spec("hadare")))
    assert FromHere.from_json(old(turn.to_json())).study.base.perf.values == {
        "efficiency": 1.0,
        "consolidate_s": 0.0,
    }
    assert FromHere.from_json(turn.to_json()) == turn


def test_formats() -> None:
    made = Scenario(TraceSpec(), Cluster.parse("8x1:v100"), Spec("fifo"))
    assert made.to_json()["format"] == 2
    assert Scenario.from_json(old(made.to_json())) == made
    assert "format" not in made.canonical()
    assert "format" not in Study(made, (Spec("fifo"),)).canonical()
    assert not made.overheads.params  # silence means no cost, as ever
    assert new_study.sample_study("tiny").base.overheads.values == {"restart_s": 60.0}
    with pytest.raises(
        ParameterError, match="The scenario has format 3, but this version reads up to 2"
    ):
        Scenario.from_json({**made.to_json(), "format": 3})
