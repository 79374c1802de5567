from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Change, Cluster
from sim.params import Spec
from sim.trace import Trace
from trainyard.clusters import cluster_warnings, machines
from trainyard.clusters.machines import offered_load
from trainyard.results import suggestions
from trainyard.study import gpu_types
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace


@pytest.fixture
def study() -> Study:
    return new_study.sample_study("tiny")


def test_a_lower_load_is_really_that_load_and_leaves_the_recording_out(study: Study) -> None:
    small = new_study.with_cluster(replace(study, baseline=3), Cluster.parse("1x2:v100"))
    trace = load_trace(small.base.trace)
    load = offered_load(trace, small.base.cluster)
    lower = suggestions.suggest_for_overload(load, 1.0)[0]
    made = suggestions.apply_suggestion(small, lower, trace)
    assert offered_load(load_trace(made.base.trace), made.base.cluster) == pytest.approx(
        0.85, rel=1e-3
    )
    assert [spec.name for spec in made.allocators] == ["fifo", "easy", "srtf"]
    assert made.baseline == 0
    # What is scaled already is scaled from there.
    again = suggestions.suggest_for_overload(0.85 * 2, lower.value * 2)[0]
    assert again.value == pytest.approx(lower.value, rel=1e-3)


def test_a_queue_at_a_low_load_asks_for_half_of_it() -> None:
    assert (
        suggestions.suggest_for_overload(0.9, 1.0)[0].text
        == "Lower the load until jobs request 45 % of GPU time"
    )
    # 85 thousandths of a thousandth cannot be set, and of an unknown load nothing is known.
    assert [way.name for way in suggestions.suggest_for_overload(10_000.0, 1.0)] == [
        "enough_gpus",
        "compare_anyway",
    ]
    assert [way.name for way in suggestions.suggest_for_overload(math.nan, 1.0)] == [
        "enough_gpus",
        "compare_anyway",
    ]


def test_an_idle_cluster_gets_more_load_or_fewer_nodes(study: Study) -> None:
    trace = load_trace(study.base.trace)
    large = new_study.with_cluster(study, Cluster.parse("10x8:v100"))
    load = offered_load(trace, large.base.cluster)
    more, fewer = suggestions.suggest_for_idle(load, 1.0, large.base.cluster)
    raised = suggestions.apply_suggestion(large, more, trace)
    assert offered_load(load_trace(raised.base.trace), large.base.cluster) == pytest.approx(
        0.85, rel=1e-3
    )
    smaller = suggestions.apply_suggestion(large, fewer, trace)
    assert smaller.base.cluster.gpus == 8  # 0.089 / 0.85 of ten nodes
    assert fewer.text == "Fewer nodes: about 8 GPUs"
    assert smaller.base.trace == large.base.trace


def test_fewer_nodes_still_hold_the_largest_job(study: Study) -> None:
    trace = load_trace(study.base.trace)
    assert trace.frame["num_gpus"].max() == 8
    cluster = Cluster.parse("20x4:v100,3x0:cpu")
    fewer = suggestions.suggest_for_idle(0.01, 1.0, cluster)[1]
    made = suggestions.apply_suggestion(
        new_study.with_cluster(study, cluster), fewer, trace
    ).base.cluster
    assert [(group.count, group.gpus) for group in made.groups] == [(2, 4), (3, 0)]
    # Dated changes name nodes by their number.
    dated = replace(cluster, changes=(Change(10.0, (19,), False),))
    assert [way.name for way in suggestions.suggest_for_idle(0.01, 1.0, dated)] == ["raise_load"]


def test_idle_at_a_high_load_or_without_one() -> None:
    assert (
        suggestions.suggest_for_idle(0.9, 1.0, None)[0].text
        == "Raise the load until jobs request 100 % of GPU time"
    )
    for load in (1.1, 0.0, math.nan, math.inf):
        assert [way.name for way in suggestions.suggest_for_idle(load, 1.0, None)] == ["hint"], load


def test_more_repeats_until_there_are_enough(study: Study) -> None:
    trace = load_trace(study.base.trace)
    assert [way.value for number in (1, 5, 20) for way in suggestions.suggest_repeats(number)] == [
        5,
        20,
        50,
    ]
    assert suggestions.suggest_repeats(50) == ()
    assert (
        suggestions.apply_suggestion(study, suggestions.suggest_repeats(1)[0], trace).repeats == 5
    )


def test_references_are_added_once_and_may_become_the_baseline(study: Study) -> None:
    trace = load_trace(study.base.trace)
    bare = replace(study, allocators=(Spec("recorded"), Spec("srtf"), Spec("easy")))
    made = suggestions.apply_suggestion(bare, suggestions.suggest_references(), trace)
    assert [spec.name for spec in made.allocators] == ["recorded", "srtf", "easy", "fifo"]
    assert (
        suggestions.apply_suggestion(made, suggestions.suggest_baseline("FIFO", 3), trace).baseline
        == 3
    )
    assert suggestions.apply_suggestion(made, suggestions.COMPARE_ANYWAY, trace) is made


def test_a_cluster_that_fits_ends_what_it_is_offered_for(study: Study) -> None:
    small = new_study.with_cluster(study, Cluster.parse("1x2:v100"))
    trace = load_trace(small.base.trace)
    never = machines.find_unschedulable_jobs(trace, small.base.cluster).mask
    found = cluster_warnings.find_doubts(trace, small.base.cluster, never)
    assert {cluster_warnings.FITS, cluster_warnings.CONCURRENCY} <= found.keys()
    jobs = suggestions.JobsOnCluster(trace, small.base.cluster, small.base.trace.source)
    ways = suggestions.suggest_for_doubts(found, jobs)
    assert [way.name for way in ways] == ["fit_cluster", "leave_out"]
    made = suggestions.apply_suggestion(small, ways[0], trace)
    again = machines.find_unschedulable_jobs(trace, made.base.cluster).mask
    assert cluster_warnings.find_doubts(trace, made.base.cluster, again) == {}
    assert offered_load(trace, made.base.cluster) <= 1.0
    assert suggestions.suggest_cluster(jobs._replace(cluster=made.base.cluster)) == ()
    overloaded = suggestions.suggest_for_overload(3.0, 1.0, jobs)
    assert [way.name for way in overloaded][:2] == ["fit_cluster", "lower_load"]


def test_an_unknown_speed_is_mended_by_a_speed() -> None:
    frame = pd.DataFrame(
        {
            "job_id": ["a", "b"],
            "submit_time_s": [0.0, 5.0],
            "num_gpus": [1, 1],
            "duration_s": [60.0, 60.0],
            "gpu_type": ["x9", "v100"],
        }
    )
    trace, cluster = Trace.of(frame), Cluster.parse("1x8:v100")
    assert list(cluster_warnings.shares_without_speed(trace, cluster)) == ["x9"]
    jobs = suggestions.JobsOnCluster(trace, cluster)
    assert suggestions.suggest_for_doubts([cluster_warnings.UNKNOWN], jobs) == (
        suggestions.NAME_SPEEDS,
    )
    faster = gpu_types.with_figures(cluster, "x9", 4.0, None)
    assert cluster_warnings.find_doubts(trace, faster, np.zeros(2, bool)) == {}
    # What ran for a minute on it takes four on a V100.
    assert offered_load(trace, faster) == pytest.approx(2.5 * offered_load(trace, cluster))
