"""Believed sizes and the use of cores, of a study in a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sim.params import Spec
from trainyard.results.detail_data import Diagnostics, diagnose
from trainyard.results.outcomes import gather
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace


def left(study: Study, root: Path) -> Diagnostics:
    store = Store(root)
    trace = load_trace(study.base.trace, store)
    for at in range(len(study.allocators)):
        for scenario in study.policy_scenarios(at):
            store_result(
                store, scenario_key(scenario, store), scenario, run(scenario, trace=trace), trace
            )
    return diagnose(gather(study, store), trace)


def test_sizes_are_shown_where_somebody_asked_and_was_told_otherwise(tmp_path: Path) -> None:
    tiny = replace(
        new_study.sample_study("tiny"), allocators=(Spec("fifo"), Spec("srtf")), baseline=0
    )
    found = left(
        replace(tiny, base=replace(tiny.base, estimator=Spec.of("biased", factor=3.0))), tmp_path
    )
    assert list(found.points) == list(found.accuracy) == ["SRTF"]
    assert found.accuracy["SRTF"] == pytest.approx((12, 0.0, 3.0))
    assert not found.resources
    points = found.points["SRTF"]
    assert (points["believed_s"] / points["ideal_s"]).to_numpy() == pytest.approx(3)
    trace = load_trace(tiny.base.trace)
    assert points["job_id"].tolist() == trace.frame["job_id"].iloc[points["job"]].tolist()


def test_true_sizes_are_no_figure(tmp_path: Path) -> None:
    tiny = replace(new_study.sample_study("tiny"), allocators=(Spec("srtf"),), baseline=0)
    assert not left(tiny, tmp_path).points
