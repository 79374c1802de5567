from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pytest

from allocators import REGISTRY, make
from sim.cluster import Change, Cluster, NodeGroup
from sim.errors import ParameterError
from sim.metrics import first_difference_s
from sim.params import Spec
from tests import conformance
from trainyard.results.differences import branch_title
from trainyard.study import branch_point as from_here
from trainyard.study.branch_point import BranchPoint, FromHere
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study

FIFO = Spec("fifo")


def study_on(cluster: Cluster, policy: Spec = FIFO) -> Study:
    return Study(Scenario(TraceSpec("sample:tiny"), cluster, policy), (policy,))


# -- nothing before changes
# --------------------------------------------------------------------------------------------------


def crowded(name: str) -> conformance.Scenario:
    """A scenario on half of its machines, so that most jobs wait and some fit only on what comes
    later.
    """
    found = next(one for one in conformance.scenarios() if one.name == name)
    if name != "staffed":  # of whose nodes one is named
        few = tuple(
            replace(group, count=max(group.count // 2, 1)) for group in found.cluster.groups[:2]
        )
        found = replace(found, cluster=replace(found.cluster, groups=few))
    return found


def kinds(name: str) -> list[str]:
    needs = make(Spec(name)).needs.requires
    return [
        "mixed",
        *(["elastic"] if "scaling" in needs else []),
        *(["staffed"] if "servers" in needs else []),
        *(["limited"] if "scaling" in needs else []),
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=[] if kind == "mixed" else [pytest.mark.slow])
        for name in REGISTRY
        for kind in kinds(name)
    ],
)
def test_nothing_before_changes_whoever_decides(name: str, kind: str) -> None:
    scenario = crowded(kind)
    was = scenario.run(make(Spec(name)))
    at_s = float(np.median(was.jobs["submit_s"])) + 0.5
    rows, nodes = (
        tuple((row, 3) for row in range(len(scenario.cluster.groups))),
        len(scenario.cluster.nodes),
    )
    rack = scenario.cluster.nodes[0].rack
    turn = BranchPoint(at_s, added=rows, lost=(rack,), until_s=at_s + 20_000)
    here = replace(scenario, cluster=from_here.change_cluster(scenario.cluster, turn)).run(
        make(Spec(name))
    )
    assert isnan(first_difference_s(was, here, at_s))
    assert not isnan(first_difference_s(was, here, inf))
    assert here.placements["node"].between(nodes, nodes + 3 * len(rows) - 1).any()


@pytest.mark.parametrize("name", ["fifo", "gavel", "recorded"])
def test_nothing_before_changes_when_another_takes_over(name: str) -> None:
    scenario = crowded("mixed")
    was = scenario.run(make(Spec(name)))
    at_s = float(np.median(was.jobs["submit_s"])) + 0.5
    study = replace(study_on(scenario.cluster, Spec(name)), repeats=1)
    branch = from_here.branch(study, 0, BranchPoint(at_s, FIFO, added=((0, 1),)))
    here = replace(scenario, cluster=branch.here.cluster).run(make(branch.here.allocator))
    assert isnan(first_difference_s(was, here, at_s))


# -- the machines
# --------------------------------------------------------------------------------------------------


def test_nodes_that_come_are_numbered_behind_and_called_new() -> None:
    cluster = Cluster((NodeGroup(2, 8, "v100", rack_size=1), NodeGroup(1, 4, "t4", name="small")))
    made = from_here.change_cluster(cluster, BranchPoint(50.0, added=((0, 2), (1, 1))))
    assert [node.name for node in made.nodes] == [
        "v100-1-1",
        "v100-1-2",
        "small-1",
        "v100-1-new-1",
        "v100-1-new-2",
        "small-new-1",
    ]
    assert made.nodes[:3] == cluster.nodes
    assert made.changes == (
        Change(0.0, (3, 4), False),
        Change(50.0, (3, 4), True, foreseen=False),
        Change(0.0, (5,), False),
        Change(50.0, (5,), True, foreseen=False),
    )
    again = from_here.change_cluster(made, BranchPoint(60.0, added=((0, 1),)))
    assert again.nodes[-1].name == "v100-1-new2-1"


def test_racks_and_nodes_go_and_come_back_as_they_would_have_been() -> None:
    # Node 0 would have been absent from 20 to 40, node 1 from 90 on; both are lost from 30 to 100.
    planned = (Change(20.0, (0,), False), Change(40.0, (0, 2), True), Change(90.0, (1,), False))
    cluster = Cluster(
        (NodeGroup(2, 8, "v100", name="a"), NodeGroup(1, 8, "v100", name="b")), changes=planned
    )
    made = from_here.change_cluster(cluster, BranchPoint(30.0, lost=("a/r1",), until_s=100.0))
    assert made.changes == (
        Change(20.0, (0,), False),
        Change(40.0, (2,), True),
        Change(30.0, (0, 1), False),
        Change(100.0, (0,), True),
    )
    assert from_here.change_cluster(cluster, BranchPoint(30.0, lost=("b-1",))).changes[
        -1
    ] == Change(30.0, (2,), False)
    assert from_here.nodes_by_place(cluster) == {"a/r1": 2, "b/r1": 1, "a-1": 1, "a-2": 1, "b-1": 1}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"at_s": 0.0, "policy": FIFO}, "is not after the first submission"),
        ({"at_s": nan, "policy": FIFO}, "is not after the first submission"),
        ({"at_s": 5.0}, "Nothing changes"),
        ({"at_s": 5.0, "lost": ("a",), "until_s": 5.0}, "return before their removal"),
        ({"at_s": 5.0, "added": ((0, 0),)}, "below 1"),
    ],
)
def test_what_makes_no_sense_is_refused(how: dict[str, object], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        BranchPoint(**how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turn", "sentence"),
    [
        (BranchPoint(5.0, added=((1, 1),)), "no row 2"),
        (BranchPoint(5.0, lost=("x",)), "no rack and no node 'x'"),
    ],
)
def test_what_is_not_there_cannot_be_changed(turn: BranchPoint, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        from_here.change_cluster(Cluster.parse("1x8:v100"), turn)


@pytest.mark.parametrize(
    "turn",
    [
        BranchPoint(5.0, Spec.of("las", placement="spread"), ((0, 2),), ("a/r1", "b"), 90.5),
        BranchPoint(5.5, lost=("x",)),
    ],
)
def test_a_turn_survives_the_address(turn: BranchPoint) -> None:
    assert BranchPoint.unpack(turn.pack()) == turn


@pytest.mark.parametrize(
    "data",
    [
        {"at_s": 5, "added": 3},
        {"at_s": 5, "added": [[1]]},
        {"at_s": "x", "lost": ["a"]},
        {"at_s": 5, "other": 1},
    ],
)
def test_a_damaged_turn_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        BranchPoint.from_json(data)


# -- kept and passed on
# --------------------------------------------------------------------------------------------------


def test_what_is_asked_survives_being_kept() -> None:
    cluster = Cluster((NodeGroup(4, 1, "v100", rack_size=2, name="n"),))
    asked = FromHere(
        study_on(cluster),
        0,
        BranchPoint(3 * 86_400.0, Spec("srtf"), ((0, 2),), ("n/r1",), 4 * 86_400.0),
    )
    assert FromHere.unpack(asked.pack()) == asked
    assert (
        branch_title(asked)
        == "from day 4, 00:00 on with SRTF and 2 more nodes like n and without n/r1 until day 5,"
        " 00:00"
    )
    with pytest.raises(ParameterError, match="no policy 2"):
        replace(asked, policy=1)
    with pytest.raises(ParameterError, match="no rack and no node 'm'"):
        replace(asked, turn=BranchPoint(1.0, lost=("m",)))
    with pytest.raises(ParameterError, match="needs 'study'"):
        FromHere.from_json({"turn": asked.turn.to_json()})


def test_many_names_are_not_all_told() -> None:
    cluster = Cluster((NodeGroup(9, 1, "v100", rack_size=3, name="n"),))
    every = tuple(from_here.nodes_by_place(cluster))
    assert branch_title(FromHere(study_on(cluster), 0, BranchPoint(9000.0, lost=every))).endswith(
        "without n/r1, n/r2, n/r3"
    )
    assert branch_title(
        FromHere(study_on(cluster), 0, BranchPoint(9000.0, lost=every[3:]))
    ).endswith("without n-1, n-2, n-3, n-4 and 5 more")
