"""What jobs ask for, and which of them no cluster of this kind can ever hold."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from sim.cluster import Cluster, NodeGroup
from sim.contract import Needs
from sim.demand import Demands, capacity_for, group_into_pools, limit_gpu_types
from sim.errors import InfeasiblePlan
from sim.grants import Demand, NodePool
from sim.perf.model import Roles
from sim.trace import Trace
from tests.sim.scripted import Script, jobs, on, run

MIXED = Cluster(
    (
        NodeGroup(2, 4, "v100", partitions=("red",)),
        NodeGroup(1, 8, "a100"),
        NodeGroup(1, 2, "v100", partitions=("red",)),
        NodeGroup(2, 0, cpus=16, mem_gb=64),
        NodeGroup(1, 4, "v100"),
    )
)


def demands(trace: Trace, cluster: Cluster, confine_by: str = "") -> Demands:
    return Demands(trace, cluster, group_into_pools(cluster), confine_by)


def impossible(
    cluster: Cluster | str,
    *rows: Sequence[float],
    mixed: bool = False,
    confine_by: str = "",
    **columns: Sequence[Any],
) -> list[bool]:
    machines = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    return demands(jobs(*rows, **columns), machines, confine_by).unschedulable(mixed=mixed).tolist()


def test_pools_gather_nodes_of_equal_type_and_partitions() -> None:
    assert group_into_pools(MIXED) == (
        NodePool((0, 1, 3), 0, ("red",), 4),
        NodePool((2,), 1, (), 8),
        NodePool((4, 5), -1, (), 0),
        NodePool((6,), 0, (), 4),
    )


def test_parts_are_counted_in_millionths_and_lose_none_to_floats() -> None:
    # 8.2 / 2 x 1e6 is a little below 4,100,000 in floats.
    of = demands(jobs((0, 2, 1), (0, 3, 1), cpus=[8.2, 1], mem_gb=[2, 0.3]), MIXED).of
    assert (of(0).cpus, of(0).mem_gb) == (4.1, 1.0)
    assert (of(1).cpus, of(1).mem_gb) == (0.333333, 0.1)


def test_a_gpu_job_divides_cores_and_memory_among_its_gpus() -> None:
    of = demands(jobs((0, 4, 1), cpus=[6], mem_gb=[10]), MIXED).of
    assert of(0) == Demand(4, 1, 1.5, 2.5, (0, 1, 3))


def test_a_cpu_job_is_one_replica_per_core_and_may_go_anywhere() -> None:
    trace = jobs((0, 0, 1), (0, 0, 1), (0, 0, 1), cpus=[3, 2.5, nan], mem_gb=[6, nan, 1])
    of = demands(trace, MIXED).of
    assert of(0) == Demand(3, 0, 1.0, 2.0, (0, 1, 2, 3))
    assert of(1) == Demand(3, 0, 0.833333, 0.0, (0, 1, 2, 3))  # in millionths, rounded down
    # Without a number of cores it takes one.
    assert of(2) == Demand(1, 0, 1.0, 1.0, (0, 1, 2, 3))


def test_equal_demands_are_one_object() -> None:
    of = demands(jobs((0, 4, 1), (1, 4, 9), (2, 5, 1)), MIXED).of
    assert of(0) is of(1)
    assert of(0) is not of(2)


def test_allowed_types_choose_the_pools() -> None:
    trace = jobs(
        (0, 1, 1),
        (0, 1, 1),
        (0, 1, 1),
        (0, 0, 1),
        gpu_types_allowed=["a100", "v100|a100", "t4", "t4"],
    )
    of = demands(trace, MIXED).of
    assert [of(job).pools for job in range(4)] == [(1,), (0, 1, 3), (), (0, 1, 2, 3)]


def test_types_on_which_a_job_does_not_fit_are_no_pools_of_it() -> None:
    trace = jobs(
        (0, 1, 1),
        (0, 1, 1),
        (0, 1, 1),
        (0, 0, 1),
        (0, 1, 1),
        gpu_types_allowed=["v100|a100", nan, nan, nan, "t4"],
    )
    fits = np.array([[False, True], [True, False], [False, False], [False, False], [True, True]])
    less = limit_gpu_types(trace, MIXED, fits)
    assert less.texts("gpu_types_allowed").tolist() == ["a100", "v100", "-", "", "t4"]
    assert [demands(less, MIXED).of(job).pools for job in range(5)] == [
        (1,),
        (0, 3),
        (),
        (0, 1, 2, 3),
        (),
    ]
    assert demands(less, MIXED).unschedulable(mixed=True).tolist() == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert limit_gpu_types(trace, MIXED, np.ones((5, 2), bool)) is trace
    assert trace.texts("gpu_types_allowed").tolist() == ["v100|a100", "", "", "", "t4"]
    plain = limit_gpu_types(jobs((0, 1, 1)), MIXED, np.array([[True, False]]))
    assert plain.texts("gpu_types_allowed").tolist() == ["v100"]


def test_confinement_leaves_the_nodes_of_the_own_vc_and_of_nobody() -> None:
    trace = jobs((0, 1, 1), (0, 1, 1), (0, 1, 1), (0, 0, 1), vc=["red", "blue", None, "blue"])
    of = demands(trace, MIXED, "vc").of
    assert [of(job).pools for job in range(4)] == [(0, 1, 3), (1, 3), (0, 1, 3), (1, 2, 3)]


def test_a_gang_is_of_one_type_unless_types_mix() -> None:
    # 14 V100 in two pools and 8 A100.
    rows = ((0, 14, 1), (0, 15, 1), (0, 22, 1), (0, 23, 1))
    assert impossible(MIXED, *rows) == [False, True, True, True]
    assert impossible(MIXED, *rows, mixed=True) == [False, False, False, True]


def test_confined_jobs_are_impossible_beyond_their_vc() -> None:
    rows = ((0, 14, 1), (0, 9, 1), (0, 8, 1))
    assert impossible(MIXED, *rows, vc=["red", "blue", "blue"], confine_by="vc") == [
        False,
        True,
        False,
    ]


def test_cores_and_memory_limit_what_a_node_holds() -> None:
    # Two nodes of 4 GPUs, 8 cores, 16 GB. 8 GPUs with 16 cores just fit; with 17 a replica needs
    # 2.125 cores and a node holds 3.
    assert impossible(
        "2x4:v100/8c/16g", (0, 8, 1), (0, 8, 1), (0, 8, 1), cpus=[16, 17, nan], mem_gb=[32, 0, 33]
    ) == [False, True, True]


def test_cpu_jobs_are_impossible_beyond_all_cores() -> None:
    assert impossible("2x0:cpu/4c", (0, 0, 1), (0, 0, 1), cpus=[8, 9]) == [False, True]


def test_rounding_makes_nothing_impossible() -> None:
    # Three replicas of 10/3 GB on 10 GB.
    assert impossible("1x3:v100/1c/10g", (0, 3, 1), cpus=[1], mem_gb=[10]) == [False]


def test_where_cores_are_not_modelled_they_do_not_limit() -> None:
    assert impossible("1x2:v100", (0, 2, 1), (0, 0, 1), cpus=[1000, 1000], mem_gb=[nan, 1e6]) == [
        False,
        False,
    ]
    node = Cluster.parse("1x2:v100").nodes[0]
    assert capacity_for(node, Demand(1, 1, 5.0, 5.0, (0,))) == 2
    assert capacity_for(node, Demand(1, 0, 0.0, 0.0, (0,))) == inf


@pytest.mark.parametrize("column", ["vc", "partition"])
def test_the_ledger_confines_cpu_jobs_too(column: str) -> None:
    cluster = Cluster(
        (
            NodeGroup(1, 0, cpus=4, partitions=("red",)),
            NodeGroup(1, 0, cpus=4, partitions=("blue",)),
        )
    )
    script = Script({0: {0: on(1, 1, 0, 1.0)}}, needs=Needs(confine_by=column))
    with pytest.raises(
        InfeasiblePlan, match="node 1 is of a type or partition that the job does not admit"
    ):
        run(jobs((0, 0, 1), cpus=[1], **{column: ["red"]}), cluster, script)


def test_a_job_that_may_shrink_keeps_its_workers_whole() -> None:
    # Four workers of two GPUs, or one at least: a node of two GPUs holds that, one of a single GPU
    # does not.
    columns = [np.array([value]) for value in (4.0, 0.0, 0.0, 0.0, 0.0, 0.0)]
    for cluster, hopeless in (("1x2:v100", False), ("3x1:v100", True)):
        machines = Cluster.parse(cluster)
        found = Demands(
            jobs((0, 8, 1)), machines, group_into_pools(machines), roles=Roles(*columns)
        )
        assert (found.of(0).replicas, found.of(0).gpus) == (4, 2)
        assert found.unschedulable(np.array([2.0]), mixed=False).tolist() == [hopeless]


def test_roles_that_exceed_the_cores_of_all_nodes_together_are_impossible() -> None:
    cluster = Cluster.parse("1x0:cpu/40c")
    asked = [np.array([float(value)] * 2) for value in (4, 2, 8, 0, 16, 0)]
    asked[0][1] = 1  # 4 x 8 + 2 x 16 = 64 cores, and 1 x 8 + 32 = 40
    demands = Demands(
        jobs((0, 0, 1.0), (0, 0, 1.0)), cluster, group_into_pools(cluster), roles=Roles(*asked)
    )
    assert demands.unschedulable(mixed=False).tolist() == [True, False]
    assert demands.unschedulable(mixed=False, apart=True).tolist() == [False, False]


def test_a_demand_that_no_node_has_is_left_as_it_is() -> None:
    of = demands(jobs((0, 3, 1), cpus=[1e300], mem_gb=[3e299]), MIXED).of
    assert (of(0).cpus, of(0).mem_gb) == (1e300 / 3, 3e299 / 3)
