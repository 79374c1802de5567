"""Rigid jobs: the slowest type paces, spans cost what the user says, nothing runs incomplete."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from sim.cluster import Cluster, GpuType, NodeGroup
from sim.errors import ContractError, ParameterError
from sim.grants import Gang, Grant, Part, Shape
from sim.perf.copy_cost import FREE
from sim.perf.model import Rate
from sim.perf.rigid import Rigid, RigidModel
from tests.sim.scripted import across, jobs, on

TYPES = (GpuType("slow", 0.5), GpuType("mid", 1.0), GpuType("fast", 2.0))
# Nodes 0, 1 slow in one rack; 2 fast; 3, 4 mid in a rack each; 5 CPUs.
CLUSTER = Cluster(
    (
        NodeGroup(2, 4, "slow"),
        NodeGroup(1, 4, "fast"),
        NodeGroup(2, 4, "mid", rack_size=1),
        NodeGroup(1, 0, cpus=8),
    ),
    TYPES,
)


def model(spec: Rigid | None = None, **columns: object) -> RigidModel:
    return (spec or Rigid()).bind(jobs((0, 1, 10), (0, 4, 10), (0, 0, 10), **columns), CLUSTER)  # type: ignore[arg-type]


def test_work_is_time_on_the_reference_type() -> None:
    # Without a word of where it was measured: the first type, at speed 0.5. CPU jobs keep their
    # time.
    assert model().work().tolist() == [5, 5, 10]
    assert model(Rigid("fast")).work().tolist() == [20, 20, 10]
    assert model(Rigid("fast"), gpu_type=["mid", "slow", "fast"]).work().tolist() == [10, 5, 10]
    assert model(Rigid(), gpu_type=["unknown", nan, "MID"]).work().tolist() == [5, 5, 10]


def test_without_gpus_there_is_no_reference() -> None:
    cpus = Cluster.parse("2x0:cpu")
    assert Rigid().bind(jobs((0, 0, 10)), cpus).work().tolist() == [10]
    with pytest.raises(ParameterError, match="rigid: the cluster has no GPU type 'v100'"):
        Rigid("v100").bind(jobs((0, 0, 10)), cpus)


@pytest.mark.parametrize(("node", "rate"), [(0, 0.5), (2, 2.0), (3, 1.0)])
def test_one_node_works_at_the_speed_of_its_type(node: int, rate: float) -> None:
    assert model().rate(0, on(node), 0, 0) == Rate(rate)
    assert model().rate(1, on(node, 2, 2), 0, 0) == Rate(rate)


def test_the_slowest_type_paces_a_gang() -> None:
    assert model().rate(1, across({0: 2, 2: 2}), 0, 0) == Rate(0.5)
    assert model().rate(1, across({2: 2, 3: 2}), 0, 0) == Rate(1.0)


def test_spans_slow_down() -> None:
    spec = Rigid(span_node=2.0, span_rack=4.0)
    assert model(spec).rate(1, on(0, 4), 0, 0) == Rate(0.5)
    assert model(spec).rate(1, across({0: 2, 1: 2}), 0, 0) == Rate(0.25)
    assert model(spec).rate(1, across({3: 2, 4: 2}), 0, 0) == Rate(0.25)
    # Other racks are other nodes, too.
    assert model(Rigid(span_node=2.0)).rate(1, across({3: 2, 4: 2}), 0, 0) == Rate(0.5)


def test_copies_of_a_forked_job_add_up() -> None:
    both = Grant((Gang(Part((0,), (1,))), Gang(Part((2,), (1,)))))
    assert model(Rigid(**FREE)).rate(0, both, 0, 0) == Rate(2.5)
    # By default the second makes each step worth 5 % less, and joining takes 5 s of every 360.
    assert model().rate(0, both, 0, 0).work_per_s == pytest.approx(2.5 * 0.95 * 355 / 360)
    dear = Rigid(efficiency=0.5, consolidate_s=9.0, round_s=90.0)
    assert model(dear).rate(0, both, 0, 0).work_per_s == pytest.approx(2.5 * 0.5 * 0.9)
    assert model(dear).rate(0, on(0, 1), 0, 0) == Rate(0.5)
    assert [
        "cost nothing to join" in Rigid(efficiency=share, consolidate_s=wait_s).price()
        for share, wait_s in ((1.0, 0.0), (1.0, 5.0), (0.9, 0.0))
    ] == [True, False, False]


@pytest.mark.parametrize(
    "grant",
    [
        on(0, 2),
        across({0: 1, 1: 1}),
        on(5, 1, 0, 1.0),
        Grant((Gang(Part((0,), (1,))), Gang(Part((2,), (2,))))),
    ],
)
def test_nothing_runs_on_another_number_of_gpus(grant: Grant) -> None:
    with pytest.raises(
        ContractError,
        match=(
            r"job 0 asked for 1 GPUs and cannot run on \d; choose a performance model that scales"
        ),
    ):
        model().rate(0, grant, 0, 0)


def test_cpu_jobs_run_at_their_own_pace() -> None:
    assert model().rate(2, on(5, 3, 0, 1.0), 0, 0) == Rate(1.0)
    assert model().rate(2, across({0: 1, 5: 1}, 0, 1.0), 0, 0) == Rate(1.0)


def test_the_overflow_node_is_of_the_reference_type() -> None:
    assert model(Rigid("fast")).rate(0, on(6), 0, 0) == Rate(2.0)
    assert model(Rigid("fast")).rate(0, on(6, 1), 0, 0) == Rate(2.0)


def test_rates_before_placement_agree_with_those_after() -> None:
    spec = Rigid(span_node=2.0)
    shapes = [Shape((1, 0, 0)), Shape((0, 0, 4)), Shape((2, 0, 2), 2), Shape((0, 0, 0), kind="cpu")]
    rates = model(spec).rates(np.array([0, 1, 2]), shapes)
    assert rates.tolist() == [[0.5, 0, 0, 0], [0, 2.0, 0.25, 0], [0, 0, 0, 1.0]]
    assert rates[1, 2] == model(spec).rate(1, across({0: 2, 2: 2}), 0, 0).work_per_s
    assert model().rates(np.array([0, 1]), []).shape == (2, 0)
    # CPU jobs pay for no span, before or after they are placed.
    assert model(spec).rates(np.array([2]), [Shape((0, 0, 0), 2, kind="cpu")]).tolist() == [
        [model(spec).rate(2, across({0: 1, 5: 1}, 0, 1.0), 0, 0).work_per_s]
    ]


def test_limits_and_the_fastest_type() -> None:
    limits = model().limits()
    assert limits.min_gpus.tolist() == limits.max_gpus.tolist() == [1, 4, 0]
    assert np.isnan([limits.min_batch, limits.max_batch]).all()
    assert model().fastest().tolist() == [2, 2, 1]
    # A type of which there is no node does not count.
    unused = Rigid().bind(jobs((0, 1, 10)), Cluster((NodeGroup(1, 4, "slow"),), TYPES))
    assert unused.fastest().tolist() == [0.5]
    assert Rigid().assumptions(jobs((0, 1, 10))) == ()


def test_telemetry_is_what_was_asked_for() -> None:
    assert model().telemetry(1, across({0: 2, 2: 2}, 1, 3.0, 5.0), 0, 0) == (
        {"worker": 3.0},
        {"worker": 5.0},
        {"worker": (1.0,) * 4},
    )
