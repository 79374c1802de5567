from __future__ import annotations

from dataclasses import replace
from math import isnan

import pandas as pd
import pytest

from sim.cluster import Cluster, NodeGroup
from sim.params import Spec
from sim.trace import Trace
from tests.strategies import trace_of
from tests.trainyard.what_if.test_from_here import FIFO, study_on
from trainyard.formatting import RunClock
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store, StoredResult
from trainyard.study import branch_point as from_here
from trainyard.study.branch_point import Branch, BranchPoint
from trainyard.what_if import branch_diff
from trainyard.what_if.branch_diff import HERE, WAS, BranchDifference


def stored(branch: Branch, trace: Trace, store: Store) -> tuple[StoredResult, StoredResult]:
    found = []
    for scenario in (branch.was, branch.here):
        key = scenario_key(scenario, store)
        store_result(store, key, scenario, run(scenario, trace=trace), trace)
        found.append(store.get(key))
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def told(branch: Branch, trace: Trace, store: Store) -> BranchDifference:
    return branch_diff.compare_branch(branch, *stored(branch, trace, store), RunClock())


def test_another_policy_by_hand(store: Store) -> None:
    # One GPU. FIFO: jobs of 100, 50 and 10 s one after the other. From 20 on the shortest goes
    # first: job 2 runs from 100 to 110, job 1 from 110 to 160.
    trace = trace_of(
        [
            {"submit_time_s": at, "num_gpus": 1, "duration_s": long}
            for at, long in ((0.0, 100.0), (5.0, 50.0), (30.0, 10.0))
        ]
    )
    branch = from_here.branch(
        study_on(Cluster.parse("1x1:v100")), 0, BranchPoint(20.0, Spec("sjf"))
    )
    assert branch.study is not None
    assert branch.study.allocators == (FIFO, branch.here.allocator)
    found = told(branch, trace, store)
    assert isnan(found.differs_s)
    rows = found.jobs.set_index("group")
    assert rows["jobs"].tolist() == [3, 2, 1]
    # Waits as it was: 0, 95, 120; from here on: 0, 105, 70.
    assert rows.loc[
        "not finished then", ["wait_mean_s_was", "wait_mean_s"]
    ].tolist() == pytest.approx([215 / 3, 175 / 3])
    assert rows.loc[
        "submitted later", ["jct_mean_s_was", "jct_mean_s", "jct_mean_s_change"]
    ].tolist() == pytest.approx([130, 80, 80 / 130 - 1])
    table = branch_diff.difference_rows(found)
    assert table.columns.tolist() == ["Of", "Metric", WAS, HERE, "Change"]
    wait = ["3 not finished then", "Average wait", "72 s", "58 s", "−19\u202f%"]
    assert table.iloc[2].tolist() == wait
    whole = table[table["Of"] == "Whole run"].set_index("Metric")
    assert whole.index[:3].tolist() == ["Longest wait", "Waited over a day", "Makespan"]
    assert whole.loc["Longest wait", [WAS, HERE]].tolist() == ["2 min", "1.8 min"]
    assert whole.loc["Waited over a day", [WAS, HERE]].tolist() == ["0", "0"]
    assert (
        found.sentence
        == "From day 1, 00:00 on with SJF: the 3 jobs that were not finished wait 19\u202f% less;"
        " nothing changed before."
    )


def test_a_node_that_comes_by_hand(store: Store) -> None:
    # As it was job 1 runs from 100 to 150 and job 2, of 2 GPUs, never. From 20 on there is a second
    # node: job 1 starts then; job 2 was turned away at 10.
    jobs = ((0.0, 1, 100.0), (5.0, 1, 50.0), (10.0, 2, 1.0), (200.0, 2, 7.0))
    rows = [{"submit_time_s": at, "num_gpus": gpus, "duration_s": long} for at, gpus, long in jobs]
    branch = from_here.branch(
        study_on(Cluster.parse("1x1:v100")), 0, BranchPoint(20.0, added=((0, 1),))
    )
    assert branch.study is None
    was, here = stored(branch, trace_of(rows), store)
    assert here.jobs()["outcome"].tolist() == ["completed", "completed", "impossible", "completed"]
    found = branch_diff.compare_branch(branch, was, here, RunClock())
    assert (found.only_was, found.only_here) == (0, 1)
    assert found.jobs[["jobs", "both"]].iloc[0].tolist() == [3, 2]
    assert found.jobs["wait_mean_s"].iloc[0] == pytest.approx(15 / 2)
    totals = found.totals.set_index("metric")
    # A V100 at 2.48 USD an hour: 200 s of one, until the last job is turned away; or 207 s of one
    # and 187 s of another.
    assert totals[["was", "here"]].loc["cost_cluster_usd"].to_list() == pytest.approx(
        [200 / 3600 * 2.48, (207 + 187) / 3600 * 2.48]
    )
    assert (
        found.sentence
        == "From day 1, 00:00 on with 1 more node like v100-1: of the 3 jobs that were not"
        " finished, the 2 that both runs complete wait 84\u202f% less; 1 job is"
        " completed that was not; nothing changed before."
    )


def test_a_rack_that_is_lost_by_hand(store: Store) -> None:
    # Two nodes of one GPU. Job 0 loses its node at 20 with all work, and starts anew when that is
    # back at 50; job 1 goes on.
    cluster = Cluster((NodeGroup(2, 1, "v100", rack_size=1, name="n"),))
    trace = trace_of(
        [{"submit_time_s": 0.0, "num_gpus": 1, "duration_s": long} for long in (100.0, 100.0)]
    )
    branch = from_here.branch(study_on(cluster), 0, BranchPoint(20.0, lost=("n/r1",), until_s=50.0))
    found = told(branch, trace, store)
    assert isnan(found.differs_s)
    assert found.jobs[["jct_mean_s_was", "jct_mean_s"]].iloc[0].tolist() == pytest.approx(
        [100, 125]
    )
    assert "without n/r1 until 00:00: the 2 jobs" in found.sentence
    assert found.totals.set_index("metric")[["was", "here"]].loc["evictions"].to_list() == [0, 1]


def test_jobs_that_are_never_completed_any_more_are_part_of_the_finding(store: Store) -> None:
    # One GPU of two is lost at 20: job 1, of both, is never completed; job 2 no longer waits for
    # it.
    rows = [
        {"submit_time_s": at, "num_gpus": gpus, "duration_s": 100.0}
        for at, gpus in ((0.0, 1), (5.0, 2), (30.0, 1))
    ]
    branch = from_here.branch(
        study_on(Cluster.parse("2x1:v100")), 0, BranchPoint(20.0, lost=("v100-1-2",))
    )
    found = told(branch, trace_of(rows), store)
    assert found.only_was >= 1
    assert (
        f"{found.only_was} job{'s are' if found.only_was > 1 else ' is'} not completed any more;"
        " nothing changed before." in found.sentence
    )


def test_series_of_both(store: Store) -> None:
    trace = trace_of(
        [{"submit_time_s": at, "num_gpus": 1, "duration_s": 100.0} for at in (0.0, 5.0, 30.0)]
    )
    branch = from_here.branch(
        study_on(Cluster.parse("1x1:v100")), 0, BranchPoint(20.0, added=((0, 1),))
    )
    drawn = branch_diff.branch_frames(*stored(branch, trace, store))
    assert list(drawn["queue"]) == list(drawn["utilisation"]) == [WAS, HERE]
    assert drawn["capacity"][HERE]["total"].max() == pytest.approx(2)


def test_runs_that_differ_before_are_not_hidden(store: Store) -> None:
    trace = trace_of(
        [{"submit_time_s": at, "num_gpus": 1, "duration_s": 100.0} for at in (0.0, 5.0, 30.0)]
    )
    branch = from_here.branch(
        study_on(Cluster.parse("1x1:v100")), 0, BranchPoint(120.0, Spec("sjf"))
    )
    other = replace(branch, here=replace(branch.here, cluster=Cluster.parse("2x1:v100")))
    found = told(other, trace, store)
    assert found.differs_s == 5
    assert found.sentence.endswith("but the runs differ from day 1, 00:00 on already.")
    assert pd.isna(found.jobs["jct_mean_s"].iloc[2])
