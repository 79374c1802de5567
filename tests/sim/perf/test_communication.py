"""Gangs that are slower the more servers they span."""

from __future__ import annotations

import numpy as np
import pytest

from allocators import make
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.contract import Gang, Grant, Part, Shape, Spec
from sim.engine.simulator import Conditions, Simulator
from sim.errors import ContractError, ParameterError
from sim.perf.communication import Spread, SpreadModel
from tests.sim.scripted import jobs, on

nan = float("nan")
# Nodes 0 to 4 have 4 GPUs of speed 1; nodes 5 and 6 have 2 of speed 2.
CLUSTER = Cluster(
    (NodeGroup(5, 4, "mid"), NodeGroup(2, 2, "fast")),
    (GpuType("mid", 1.0, 1.0), GpuType("fast", 2.0, 4.0)),
)
TRACE = jobs(
    (0, 4, 100),
    (0, 6, 100),
    (0, 1, 100),
    (0, 0, 100),
    (0, 4, 100),
    spread_slowdown=[2.5, 3.0, 9.0, 9.0, nan],
)


def model(**params: float) -> SpreadModel:
    return Spread(**params).bind(TRACE, CLUSTER)  # type: ignore[arg-type]


def gang(**counts: int) -> Grant:
    """A gang on nodes named n0, n1 and so on."""
    return Grant((Gang(Part(tuple(int(name[1:]) for name in counts), tuple(counts.values()))),))


def speed(job: int, grant: Grant) -> float:
    return model().rate(job, grant, 0.0, 0.0).work_per_s


def test_an_iteration_grows_linearly_from_the_fewest_servers_to_one_per_gpu() -> None:
    # Job 0, 4 GPUs: 1 server 1, 2 servers 1.5, 3 servers 2, 4 servers 2.5.
    assert [
        1 / speed(0, grant)
        for grant in (
            gang(n0=4),
            gang(n0=3, n1=1),
            gang(n0=2, n1=1, n2=1),
            gang(n0=1, n1=1, n2=1, n3=1),
        )
    ] == [1, 1.5, 2, 2.5]
    # Job 1, 6 GPUs, needs two servers: 2 servers 1, 4 servers 2.
    assert [1 / speed(1, grant) for grant in (gang(n0=4, n1=2), gang(n0=3, n1=1, n2=1, n3=1))] == [
        1,
        2,
    ]
    # Job 4 states nothing: half as long again on four servers.
    assert 1 / speed(4, gang(n0=1, n1=1, n2=1, n3=1)) == 1.5
    assert model(slowdown=4).rate(4, gang(n0=1, n1=1, n2=1, n3=1), 0, 0).work_per_s == 0.25


def test_the_slowest_type_paces_a_gang_and_its_span_slows_it_further() -> None:
    assert speed(0, gang(n5=2, n6=2)) == 2 / 1.5
    assert speed(0, gang(n0=2, n5=2)) == 1 / 1.5


def test_single_gpus_cpu_jobs_and_copies() -> None:
    assert speed(2, on(5)) == 2
    assert speed(3, Grant((Gang(Part((0, 1), (1, 1), 0, 1.0)),))) == 1
    forked = Grant((gang(n0=4).gangs[0], gang(n1=3, n2=1).gangs[0]))
    assert speed(0, forked) == pytest.approx((1 + 1 / 1.5) * 0.95 * 355 / 360)


def test_shapes_agree_with_placed_gangs() -> None:
    shapes = [Shape((4, 0), servers) for servers in (1, 2, 3, 4, 9)]
    assert model().rates(np.array([0, 4, 2]), shapes) == pytest.approx(
        np.array(
            [
                [1, 1 / 1.5, 1 / 2, 1 / 2.5, 1 / 2.5],
                [1, 6 / 7, 3 / 4, 2 / 3, 2 / 3],
                [0, 0, 0, 0, 0],
            ]
        )
    )
    assert model().rates(
        np.array([1]), [Shape((6, 0), 1), Shape((6, 0), 2), Shape((0, 6), 4)]
    ).tolist() == [[1, 1, 1]]
    assert model().rates(np.array([3]), [Shape((0, 0), kind="cpu")]).tolist() == [[1]]


def test_all_else_is_as_in_the_rigid_model() -> None:
    bound = model()
    assert bound.work().tolist() == [100] * 5
    assert bound.fastest().tolist() == [2, 2, 2, 1, 2]
    assert bound.limits().max_gpus.tolist() == [4, 6, 1, 0, 4]
    assert bound.telemetry(0, gang(n0=4), 0, 0).speed == {"worker": (1.0,) * 4}
    with pytest.raises(ContractError, match="job 0 asked for 4 GPUs and cannot run on 3"):
        bound.rate(0, gang(n0=2, n1=1), 0, 0)
    with pytest.raises(ParameterError, match="spread: the cluster has no GPU type 'k80'"):
        Spread("k80").bind(TRACE, CLUSTER)


def test_what_is_assumed_is_counted() -> None:
    assert Spread().assumptions(TRACE) == (
        "1 of 4 GPU jobs do not state their spread_slowdown; assumed: 1.5 on one server per GPU.",
    )
    assert Spread().assumptions(jobs((0, 1, 5), (0, 8, 5), spread_slowdown=[nan, 2])) == ()


def test_a_run_takes_as_long_as_the_placement_says() -> None:
    # Two jobs of 3 leave one GPU on each node of four. Spread over both, job 2 takes 40 s x 2; on
    # one node 40 s.
    trace = jobs((0, 3, 100), (0, 3, 100), (1, 2, 40), spread_slowdown=[1, 1, 2])
    cluster = Cluster.parse("2x4:v100")
    ends = [
        Simulator(trace, cluster, make(Spec.of("fifo", placement=placement)), Conditions(Spread()))
        .run()
        .jobs["finish_s"][2]
        for placement in ("fewest", "consolidate")
    ]
    assert ends == [81, 140]
