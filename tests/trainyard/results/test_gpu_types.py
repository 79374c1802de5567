"""What Compare says of GPU types: frames written by the run, fairness against a computed or a
simulated reference.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sim.cluster import Cluster
from sim.params import Spec
from trainyard.results import detail_data
from trainyard.results.outcomes import gather
from trainyard.runs.frames import _RESOURCE_BINS, MAX_SHOWN, chart_frames, type_frames
from trainyard.runs.run import run, run_to_store, scenario_key
from trainyard.store import Store, StoreError
from trainyard.store.profiles import build_model
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace

SPECS = (Spec("fifo"), Spec("sjf"), Spec.of("fifo", types="cheapest"))


@pytest.fixture
def study() -> Study:
    scenario = Scenario(
        TraceSpec("sample:tiny"), Cluster.parse("1x8:v100,1x8:k80,1x0:cpu"), SPECS[0]
    )
    return Study(scenario, SPECS)


@pytest.fixture
def store(tmp_path: Path, study: Study) -> Store:
    made = Store(tmp_path / "store")
    for scenario in study.scenarios():
        run_to_store(scenario.to_json(), str(made.root))
    return made


def test_every_complete_policy_has_its_figures(study: Study, store: Store) -> None:
    shown = gather(study, store)
    assert detail_data.has_several_types(shown)
    found = detail_data.type_report(shown)
    assert found.types == ("v100", "k80")
    assert tuple(found.shares) == tuple(found.use) == tuple(found.fairness) == shown.titles
    assert found.notes == {}
    for title, entry in zip(shown.titles, shown.entries, strict=True):
        held = entry[0].summary["held_gpu_s"] / 3600
        assert found.use[title]["held_gpu_h"].sum() == pytest.approx(held)
        assert found.shares[title]["gpu_s"].iloc[0] / 3600 == pytest.approx(held)
        assert found.use[title]["held_usd"].sum() == pytest.approx(
            entry[0].summary["cost_held_usd"]
        )


def test_fairness_against_a_policy_is_job_by_job(study: Study, store: Store) -> None:
    shown = gather(study, store)
    first, second, third = shown.titles
    against = detail_data.fairness_against(shown, first)
    assert list(against) == [second, third]
    jct = [
        (entry[0].jobs()["finish_s"] - entry[0].jobs()["submit_s"]).to_numpy()
        for entry in shown.entries
    ]
    assert against[third]["rho"].tolist() == pytest.approx(sorted(jct[2] / jct[0]))
    assert detail_data.fairness_against(shown, third)[first]["rho"].tolist() == pytest.approx(
        sorted(jct[0] / jct[2])
    )


def test_clusters_of_one_type_have_none_of_this(tmp_path: Path) -> None:
    scenario = Scenario(TraceSpec("sample:tiny"), Cluster.parse("1x8:v100,1x0:cpu"), Spec("fifo"))
    store = Store(tmp_path / "store")
    key = run_to_store(scenario.to_json(), str(store.root))
    assert not detail_data.has_several_types(gather(Study(scenario, (scenario.allocator,)), store))
    entry = store.get(key)
    assert entry is not None
    assert not {"chart-types", "chart-use", "chart-notes", "chart-fairness"} & set(entry.rows)


def test_a_result_that_was_removed_is_one_sentence(study: Study, store: Store) -> None:
    shown = gather(study, store)
    store.delete(scenario_key(study.base, store))
    with pytest.raises(StoreError, match="was removed"):
        detail_data.type_report(shown)


def test_notes_by_type_are_one_choice(study: Study, store: Store) -> None:
    found = detail_data.type_report(gather(study, store))
    title = next(iter(found.shares))
    frame = found.fairness[title].head(3).assign(name=["price_v100", "price k80", "payoff"])
    noted = detail_data.TypeReport(
        found.types, found.shares, found.use, {title: frame}, found.fairness
    )
    assert noted.families(title) == {
        "price": {"price_v100": "v100", "price k80": "k80"},
        "payoff": {"payoff": "payoff"},
    }


def test_a_page_with_six_policies_stays_within_its_points() -> None:
    scenario = Scenario(
        TraceSpec("sample:week"), Cluster.parse("3x8:a100,3x8:v100,2x8:t4"), Spec("fifo")
    )
    trace, result = load_trace(scenario.trace), run(scenario)
    frames = chart_frames(result, scenario.cluster, scenario.measure)
    more = type_frames(
        result, trace, scenario.cluster, scenario.measure, build_model(scenario.perf)
    )
    assert set(more) == {"types", "use", "notes", "fairness"}
    types = len(scenario.cluster.types)
    per_policy = (
        len(frames["queue"])
        + (1 + types) * len(frames["utilisation"])
        + len(frames["capacity"])
        + len(frames["cdf"])
    )
    allocation = frames["allocation"].drop(columns="t_s").size + len(frames["capacity"])
    # Only one of the figures of GPU types is there at a time; the largest has a curve for every
    # policy.
    drawn = max(MAX_SHOWN * len(more["fairness"]), len(more["types"]) * types)
    assert len(more["fairness"]) == 200
    # Nor more than one of what is behind the numbers: cores held, used and there under every
    # policy, or a thousand sizes.
    behind = MAX_SHOWN * 3 * (_RESOURCE_BINS + 1)
    assert behind > 1000
    assert MAX_SHOWN * per_policy + len(frames["capacity"]) + allocation + drawn + behind <= 32_000
    assert np.isfinite(more["fairness"]["rho"]).all()
