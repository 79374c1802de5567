from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from trainyard.results import exports, outcomes
from trainyard.results.outcomes import StudyResults
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace

FORMULA = "=1+1"


def finished(study: Study, store: Store) -> StudyResults:
    trace = load_trace(study.base.trace, store)
    for scenario in study.scenarios():
        store_result(
            store,
            scenario_key(scenario, store),
            scenario,
            run(scenario, trace=trace, store=store),
            trace,
        )
    return outcomes.gather(study, store)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def shown(store: Store) -> StudyResults:
    """Two jobs of 8 GPUs on one node of 8: the long one first, 100 s, then one of 10 s that comes
    at 10 s; one with a name like a formula.
    """
    jobs = {
        "job_id": ["long", FORMULA],
        "submit_time_s": [0.0, 10.0],
        "num_gpus": [8, 8],
        "duration_s": [100.0, 10.0],
        "user": ["@a", "b"],
    }
    digest = store.put_trace(Trace.of(pd.DataFrame(jobs), name="two"))
    base = Scenario(TraceSpec(f"store:{digest}"), Cluster.parse("1x8:v100"), Spec("fifo"))
    return finished(Study(base, (Spec("fifo"), Spec("srtf"))), store)


def test_jobs_of_every_run(shown: StudyResults, store: Store) -> None:
    jobs = exports.job_rows(shown, store)
    assert list(jobs.columns[:3]) == ["policy", "seed", "job_id"]
    assert list(jobs["jct_s"]) == [100.0, 100.0, 110.0, 10.0]


def test_segments_say_when_and_where(shown: StudyResults, store: Store) -> None:
    segments = exports.segment_rows(shown, store)
    node = shown.study.base.cluster.nodes[0].name
    told = (
        segments[["policy", "job_id", "t0_s", "t1_s", "gpus", "ended", "places"]]
        .to_numpy()
        .tolist()
    )
    first, second = shown.titles
    assert sorted(told) == sorted(
        [
            [first, "long", 0.0, 100.0, 8, "finished", f"{node}:8×1"],
            [first, FORMULA, 100.0, 110.0, 8, "finished", f"{node}:8×1"],
            [second, "long", 0.0, 10.0, 8, "preempted", f"{node}:8×1"],
            [second, FORMULA, 10.0, 20.0, 8, "finished", f"{node}:8×1"],
            [second, "long", 20.0, 110.0, 8, "finished", f"{node}:8×1"],
        ]
    )


def test_decisions_have_the_notes_of_the_policy_beside_them(
    shown: StudyResults, store: Store
) -> None:
    decisions = exports.decision_rows(shown, store)
    assert list(decisions.columns[:6]) == ["policy", "seed", "t_s", "changed", "waiting", "running"]
    stopped = decisions[(decisions["policy"] == shown.titles[1]) & (decisions["t_s"] == 10.0)]
    assert stopped[["waiting", "running"]].to_numpy().tolist() == [[1, 1]]


def test_notes_are_columns_and_empty_where_a_policy_noted_nothing(store: Store) -> None:
    scenario = Scenario(TraceSpec("sample:tiny"), Cluster.parse("1x4:v100,1x4:a100"), Spec("fifo"))
    found = finished(Study(scenario, (Spec("fifo"), Spec("gavel"))), store)
    decisions = exports.decision_rows(found, store)
    notes = [name for name in decisions.columns if name.startswith("note: ")]
    quiet, noting = (decisions[decisions["policy"] == title] for title in found.titles)
    assert notes
    assert quiet[notes].isna().all(axis=None)
    frame = found.entries[1][0].result().notes
    assert noting[notes].notna().sum().sum() == len(frame)
    assert noting[notes].sum().sum() == pytest.approx(frame["value"].sum())


def test_every_repeat_is_there_with_its_seed(store: Store) -> None:
    scenario = Scenario(TraceSpec("sample:tiny"), Cluster.parse("1x8:v100"), Spec("fifo"), seed=5)
    found = finished(replace(Study(scenario, (Spec("fifo"),)), repeats=2), store)
    jobs = exports.job_rows(found, store)
    assert jobs.groupby("seed").size().to_dict() == {5: 12, 6: 12}


def test_csv_for_browsers_is_safe_and_parquet_is_exact(
    shown: StudyResults, store: Store, tmp_path: Path
) -> None:
    jobs = exports.job_rows(shown, store)
    text = pd.read_csv(io.StringIO(outcomes.safe_csv(jobs)))
    assert set(text["job_id"]) == {"long", f"'{FORMULA}"}
    assert set(text["user"]) == {"'@a", "b"}
    jobs.to_parquet(tmp_path / "jobs.parquet", index=False)
    exact = pd.read_parquet(tmp_path / "jobs.parquet")
    assert set(exact["job_id"]) == {"long", FORMULA}
    assert set(exact["user"].astype(str)) == {"@a", "b"}


def test_size_of_a_file_before_it_is_made(shown: StudyResults, store: Store) -> None:
    text = outcomes.safe_csv(exports.segment_rows(shown, store))
    assert exports.csv_mb(shown, "segments") == pytest.approx(len(text) / 1e6, rel=0.5)
