from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from trainyard.results import outcomes
from trainyard.results.differences import study_changes
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def study() -> Study:
    return new_study.sample_study("tiny")


def test_differences_are_told_in_words(study: Study) -> None:
    assert study_changes(study, study) == []
    base = study.base
    assert study_changes(study, replace(study, base=replace(base, seed=3))) == ["seed 0 → 3"]
    assert study_changes(study, new_study.with_cluster(study, Cluster.parse("2x8:v100"))) == [
        "1 → 2 V100 nodes"
    ]
    assert study_changes(study, new_study.with_cluster(study, Cluster.parse("2x8:p100"))) == [
        "cluster: 8 → 16 GPUs"
    ]
    assert study_changes(study, new_study.with_cluster(study, Cluster.parse("2x4:v100"))) == [
        "cluster"
    ]
    assert (
        study_changes(study, new_study.with_trace(study, TraceSpec("sample:week")))[0]
        == "trace Twelve jobs by hand → A week on two GPU types"
    )
    other = new_study.with_model(study, "overheads", Spec.of("overheads", restart_s=45.0))
    assert study_changes(study, other) == ["pause at a restart (s) 60 → 45"]
    fewer = new_study.with_policies(study, study.allocators[1:])
    first, second = outcomes.titles(study.allocators)[:2]
    assert study_changes(study, fewer) == [f"− {first}", f"baseline {second}"]
    assert study_changes(fewer, study) == [f"+ {first}", f"baseline {first}"]
    assert study_changes(study, replace(study, repeats=3)) == ["repeats 1 → 3"]


def on(study: Study, source: str) -> Study:
    return replace(study, base=replace(study.base, trace=TraceSpec(source)))


def test_which_trace_is_another_is_told(study: Study, store: Store) -> None:
    first, second, third = (
        on(study, f"made:elastic-nodes:{text}")
        for text in ("per_h=6,seed=2", "per_h=8,seed=2", "seed=2")
    )
    assert study_changes(first, second) == ["trace: arrivals 6 → 8"]
    assert study_changes(first, third) == ["trace: arrivals 6 → default"]
    assert study_changes(first, on(study, "made:batch-jobs")) == [
        "trace elastic-nodes → batch-jobs"
    ]
    trace = load_trace(study.base.trace)
    uploads = [
        on(study, f"store:{store.put_trace(Trace.of(trace.frame.head(rows), name='mine.csv'))}")
        for rows in (3, 4)
    ]
    assert study_changes(study, uploads[0], store) == ["trace Twelve jobs by hand → mine.csv"]
    assert study_changes(*uploads, store) == ["another version of the trace mine.csv"]
    assert study_changes(study, uploads[0]) == ["trace Twelve jobs by hand → an upload"]
