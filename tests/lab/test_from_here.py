from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pandas as pd
import pytest

from allocators import REGISTRY, make
from lab import from_here
from lab.from_here import HERE, WAS, After, Branch, Turn
from lab.run import keep, key_of, run
from lab.scenario import Scenario, TraceSpec
from lab.store import Entry, Store
from lab.study import Study
from lab.words import Clock
from sim.cluster import Change, Cluster, NodeGroup
from sim.errors import ParameterError
from sim.metrics import first_difference_s
from sim.params import Spec
from sim.trace import Trace
from tests import conformance
from tests.strategies import trace_of

FIFO = Spec("fifo")


def study_on(cluster: Cluster, policy: Spec = FIFO) -> Study:
    return Study(Scenario(TraceSpec("sample:tiny"), cluster, policy), (policy,))


def stored(branch: Branch, trace: Trace, store: Store) -> tuple[Entry, Entry]:
    found = []
    for scenario in (branch.was, branch.here):
        key = key_of(scenario, store)
        keep(store, key, scenario, run(scenario, trace=trace), trace)
        found.append(store.get(key))
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def told(branch: Branch, trace: Trace, store: Store) -> After:
    return from_here.after(branch, *stored(branch, trace, store), Clock())


# -- nothing before changes ------------------------------------------------------------------------------------------------------------------------------------


def crowded(name: str) -> conformance.Scenario:
    """A scenario on half of its machines, so that most jobs wait and some fit only on what comes later."""
    found = next(one for one in conformance.scenarios() if one.name == name)
    if name != "staffed":  # of whose nodes one is named
        few = tuple(replace(group, count=max(group.count // 2, 1)) for group in found.cluster.groups[:2])
        found = replace(found, cluster=replace(found.cluster, groups=few))
    return found


def kinds(name: str) -> list[str]:
    needs = make(Spec(name)).needs
    return ["mixed", *(["elastic"] if "scaling" in needs else []), *(["staffed"] if "servers" in needs else []), *(["limited"] if "scaling" in needs else [])]


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in REGISTRY for kind in kinds(name)])
def test_nothing_before_changes_whoever_decides(name: str, kind: str) -> None:
    scenario = crowded(kind)
    was = scenario.run(make(Spec(name)))
    at_s = float(np.median(was.jobs["submit_s"])) + 0.5
    rows, nodes = tuple((row, 3) for row in range(len(scenario.cluster.groups))), len(scenario.cluster.nodes)
    rack = scenario.cluster.nodes[0].rack
    turn = Turn(at_s, added=rows, lost=(rack,), until_s=at_s + 20_000)
    here = replace(scenario, cluster=from_here.turned(scenario.cluster, turn)).run(make(Spec(name)))
    assert isnan(first_difference_s(was, here, at_s))
    assert not isnan(first_difference_s(was, here, inf))
    assert here.placements["node"].between(nodes, nodes + 3 * len(rows) - 1).any()


@pytest.mark.parametrize("name", ["fifo", "gavel", "recorded"])
def test_nothing_before_changes_when_another_takes_over(name: str) -> None:
    scenario = crowded("mixed")
    was = scenario.run(make(Spec(name)))
    at_s = float(np.median(was.jobs["submit_s"])) + 0.5
    study = replace(study_on(scenario.cluster, Spec(name)), repeats=1)
    branch = from_here.branch(study, 0, Turn(at_s, FIFO, added=((0, 1),)))
    here = replace(scenario, cluster=branch.here.cluster).run(make(branch.here.allocator))
    assert isnan(first_difference_s(was, here, at_s))


# -- the machines ----------------------------------------------------------------------------------------------------------------------------------------------


def test_nodes_that_come_are_numbered_behind_and_called_new() -> None:
    cluster = Cluster((NodeGroup(2, 8, "v100", rack_size=1), NodeGroup(1, 4, "t4", name="small")))
    made = from_here.turned(cluster, Turn(50.0, added=((0, 2), (1, 1))))
    assert [node.name for node in made.nodes] == ["v100-1-1", "v100-1-2", "small-1", "v100-1-new-1", "v100-1-new-2", "small-new-1"]
    assert made.nodes[:3] == cluster.nodes
    assert made.changes == (
        Change(0.0, (3, 4), False),
        Change(50.0, (3, 4), True, foreseen=False),
        Change(0.0, (5,), False),
        Change(50.0, (5,), True, foreseen=False),
    )
    again = from_here.turned(made, Turn(60.0, added=((0, 1),)))
    assert again.nodes[-1].name == "v100-1-new2-1"


def test_racks_and_nodes_go_and_come_back_as_they_would_have_been() -> None:
    # Node 0 would have been absent from 20 to 40, node 1 from 90 on; both are lost from 30 to 100.
    planned = (Change(20.0, (0,), False), Change(40.0, (0, 2), True), Change(90.0, (1,), False))
    cluster = Cluster((NodeGroup(2, 8, "v100", name="a"), NodeGroup(1, 8, "v100", name="b")), changes=planned)
    made = from_here.turned(cluster, Turn(30.0, lost=("a/r1",), until_s=100.0))
    assert made.changes == (Change(20.0, (0,), False), Change(40.0, (2,), True), Change(30.0, (0, 1), False), Change(100.0, (0,), True))
    assert from_here.turned(cluster, Turn(30.0, lost=("b-1",))).changes[-1] == Change(30.0, (2,), False)
    assert from_here.losable(cluster) == {"a/r1": 2, "b/r1": 1, "a-1": 1, "a-2": 1, "b-1": 1}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"at_s": 0.0, "policy": FIFO}, "is not after the first submission"),
        ({"at_s": nan, "policy": FIFO}, "is not after the first submission"),
        ({"at_s": 5.0}, "Nothing changes"),
        ({"at_s": 5.0, "lost": ("a",), "until_s": 5.0}, "back before it is gone"),
        ({"at_s": 5.0, "added": ((0, 0),)}, "below 1"),
    ],
)
def test_what_makes_no_sense_is_refused(how: dict[str, object], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        Turn(**how)  # type: ignore[arg-type]


@pytest.mark.parametrize(("turn", "sentence"), [(Turn(5.0, added=((1, 1),)), "no row 2"), (Turn(5.0, lost=("x",)), "no rack and no node 'x'")])
def test_what_is_not_there_cannot_be_changed(turn: Turn, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        from_here.turned(Cluster.parse("1x8:v100"), turn)


@pytest.mark.parametrize("turn", [Turn(5.0, Spec.of("las", placement="spread"), ((0, 2),), ("a/r1", "b"), 90.5), Turn(5.5, lost=("x",))])
def test_a_turn_survives_the_address(turn: Turn) -> None:
    assert Turn.unpack(turn.pack()) == turn


@pytest.mark.parametrize("data", [{"at_s": 5, "added": 3}, {"at_s": 5, "added": [[1]]}, {"at_s": "x", "lost": ["a"]}, {"at_s": 5, "other": 1}])
def test_a_damaged_turn_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        Turn.from_json(data)


# -- what comes of it ------------------------------------------------------------------------------------------------------------------------------------------


def test_another_policy_by_hand(store: Store) -> None:
    # One GPU. FIFO: jobs of 100, 50 and 10 s one after the other. From 20 on the shortest goes first: job 2 runs from 100 to 110, job 1 from 110 to 160.
    trace = trace_of([{"submit_time_s": at, "num_gpus": 1, "duration_s": long} for at, long in ((0.0, 100.0), (5.0, 50.0), (30.0, 10.0))])
    branch = from_here.branch(study_on(Cluster.parse("1x1:v100")), 0, Turn(20.0, Spec("sjf")))
    assert branch.study is not None
    assert branch.study.allocators == (FIFO, branch.here.allocator)
    found = told(branch, trace, store)
    assert isnan(found.differs_s)
    rows = found.jobs.set_index("group")
    assert rows["jobs"].tolist() == [3, 2, 1]
    # Waits as it was: 0, 95, 120; from here on: 0, 105, 70.
    assert rows.loc["Not finished then", ["wait_mean_s_was", "wait_mean_s"]].tolist() == pytest.approx([215 / 3, 175 / 3])
    assert rows.loc["submitted later", ["jct_mean_s_was", "jct_mean_s", "jct_mean_s_change"]].tolist() == pytest.approx([130, 80, 80 / 130 - 1])
    assert found.sentence == "From day 1 00:00 on with SJF: the 3 jobs that were not finished wait 19 % less; nothing before changed."


def test_a_node_that_comes_by_hand(store: Store) -> None:
    # As it was job 1 runs from 100 to 150 and job 2, of 2 GPUs, never. From 20 on there is a second node: job 1 starts then; job 2 was turned away at 10.
    jobs = ((0.0, 1, 100.0), (5.0, 1, 50.0), (10.0, 2, 1.0), (200.0, 2, 7.0))
    rows = [{"submit_time_s": at, "num_gpus": gpus, "duration_s": long} for at, gpus, long in jobs]
    branch = from_here.branch(study_on(Cluster.parse("1x1:v100")), 0, Turn(20.0, added=((0, 1),)))
    assert branch.study is None
    was, here = stored(branch, trace_of(rows), store)
    assert here.jobs()["outcome"].tolist() == ["completed", "completed", "impossible", "completed"]
    found = from_here.after(branch, was, here, Clock())
    assert (found.only_was, found.only_here) == (0, 1)
    assert found.jobs[["jobs", "both"]].iloc[0].tolist() == [3, 2]
    assert found.jobs["wait_mean_s"].iloc[0] == pytest.approx(15 / 2)
    totals = found.totals.set_index("metric")
    # A V100 at 2.48 USD an hour: 200 s of one, until the last job is turned away; or 207 s of one and 187 s of another.
    assert totals[["was", "here"]].loc["cost_cluster_usd"].to_list() == pytest.approx([200 / 3600 * 2.48, (207 + 187) / 3600 * 2.48])
    assert found.sentence.startswith("From day 1 00:00 on with 1 more node like v100-1: the 3 jobs that were not finished wait 84 % less")


def test_a_rack_that_is_lost_by_hand(store: Store) -> None:
    # Two nodes of one GPU. Job 0 loses its node at 20 with all work, and starts anew when that is back at 50; job 1 goes on.
    cluster = Cluster((NodeGroup(2, 1, "v100", rack_size=1, name="n"),))
    trace = trace_of([{"submit_time_s": 0.0, "num_gpus": 1, "duration_s": long} for long in (100.0, 100.0)])
    branch = from_here.branch(study_on(cluster), 0, Turn(20.0, lost=("n/r1",), until_s=50.0))
    found = told(branch, trace, store)
    assert isnan(found.differs_s)
    assert found.jobs[["jct_mean_s_was", "jct_mean_s"]].iloc[0].tolist() == pytest.approx([100, 125])
    assert "without n/r1 until 00:00: the 2 jobs" in found.sentence
    assert found.totals.set_index("metric")[["was", "here"]].loc["evictions"].to_list() == [0, 1]


def test_series_of_both(store: Store) -> None:
    trace = trace_of([{"submit_time_s": at, "num_gpus": 1, "duration_s": 100.0} for at in (0.0, 5.0, 30.0)])
    branch = from_here.branch(study_on(Cluster.parse("1x1:v100")), 0, Turn(20.0, added=((0, 1),)))
    drawn = from_here.frames(*stored(branch, trace, store))
    assert list(drawn["queue"]) == list(drawn["utilisation"]) == [WAS, HERE]
    assert drawn["capacity"][HERE]["total"].max() == pytest.approx(2)


def test_runs_that_differ_before_are_not_hidden(store: Store) -> None:
    trace = trace_of([{"submit_time_s": at, "num_gpus": 1, "duration_s": 100.0} for at in (0.0, 5.0, 30.0)])
    branch = from_here.branch(study_on(Cluster.parse("1x1:v100")), 0, Turn(120.0, Spec("sjf")))
    other = replace(branch, here=replace(branch.here, cluster=Cluster.parse("2x1:v100")))
    found = told(other, trace, store)
    assert found.differs_s == 5
    assert found.sentence.endswith("but the runs differ from day 1 00:00 on already.")
    assert pd.isna(found.jobs["jct_mean_s"].iloc[2])
