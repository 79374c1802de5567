"""HadarE: nodes dealt out by hand, copies on nodes of their own, the bound for one job, and what
becomes of a copy whose node is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.heterogeneous.hadar.hadare import HadarE
from allocators.queue.fifo import Fifo
from allocators.queue.wrappers import Switch
from jobtraces.generate import workload
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.contract import Gang, Grant, Part, Plan, Spec, View
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.copy_cost import FREE
from sim.perf.profiled import Profiled
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.walk import trace_of
from tests.conformance import Scenario, check_feasible

FREE_COPIES = Rigid(**FREE)
SPEEDS = (GpuType("fast", 1.0), GpuType("mid", 0.5), GpuType("slow", 0.25))


def cluster(*sizes: tuple[int, int, str], **columns: Any) -> Cluster:
    used = {kind for _, _, kind in sizes}
    return Cluster(
        tuple(NodeGroup(count, gpus, kind, **columns) for count, gpus, kind in sizes),
        tuple(kind for kind in SPEEDS if kind.name in used),
    )


def run(
    allocator: Any,
    jobs: list[tuple[float, int, float]],
    machines: Cluster,
    conditions: Conditions | None = None,
    **columns: list[Any],
) -> RunResult:
    return Simulator(
        trace_of(jobs, **columns),
        machines,
        allocator,
        replace(conditions or Conditions(), perf=FREE_COPIES),
    ).run()


def nodes_of(result: RunResult, job: int, at_s: float) -> list[int]:
    """Nodes that a job holds at an instant, copy by copy."""
    segments = result.segments
    rows = segments.index[
        (segments["job"] == job) & (segments["t0"] <= at_s) & (at_s < segments["t1"])
    ]
    return sorted(result.placements.loc[result.placements["segment"].isin(rows), "node"].tolist())


THREE = cluster((1, 1, "fast"), (1, 1, "mid"), (1, 1, "slow"))


def test_nodes_are_dealt_out_by_hand() -> None:
    # At 0: the fast node to job 0, which has more left; the middle one to job 1, which has none;
    # the slow one: job 0 has 100 / 1 left, job 1 60 / 0.5 = 120. At 40: 60 and 30 left; 60 / 1 and
    # 30 / 0.5 are equal, the lower job gets the slow node. At 80 10 are left of either: as at 0,
    # since 10 / 1 < 10 / 0.5. Job 0 is done at 90, job 1 at 80 + 10 / 0.75.
    result = run(HadarE(round_s=40.0), [(0.0, 1, 100.0), (0.0, 1, 60.0)], THREE)
    assert [[nodes_of(result, job, at_s) for job in (0, 1)] for at_s in (0, 40, 80)] == [
        [[0], [1, 2]],
        [[0, 2], [1]],
        [[0], [1, 2]],
    ]
    assert result.jobs["finish_s"].tolist() == pytest.approx([90, 80 + 10 / 0.75])


@pytest.mark.parametrize(("round_s", "finish_s"), [(40.0, 93.3333), (1000.0, 80.0)])
def test_who_has_which_node_is_decided_once_a_round(round_s: float, finish_s: float) -> None:
    result = run(HadarE(round_s=round_s), [(0.0, 1, 100.0), (0.0, 1, 60.0)], THREE)
    assert result.jobs["finish_s"][1] == pytest.approx(finish_s, abs=1e-3)


@pytest.mark.parametrize(
    ("order", "stream_s", "pair_s"),
    [
        ("submission", 300, 300),
        ("longest", 900, 200),
        ("shortest", 100, 100),
        ("slowdown", 100, 300),
    ],
)
def test_order_decides_who_waits_by_hand(order: str, stream_s: float, pair_s: float) -> None:
    # One GPU, rounds of 100 s. A job of 14 s comes at 10, jobs of 300 s at 0, 250 and 550. The
    # longest first: the short job waits for all. The earliest first: until 300, when the first job
    # is done. At 100 it has the least time left, and has waited 90 / 14 of it.
    stream = [(0.0, 1, 300.0), (10.0, 1, 14.0), (250.0, 1, 300.0), (550.0, 1, 300.0)]
    one = cluster((1, 1, "fast"))
    result = run(HadarE(order=order, round_s=100.0), stream, one)
    assert result.jobs["first_start_s"][1] == stream_s
    # 300 s from 0, 150 s from 50. At 100 the first has 200 left and came 100 / 200 of that ago, the
    # second 50 / 150; at 200 the first has 100 left, the second 150.
    result = run(HadarE(order=order, round_s=100.0), [(0.0, 1, 300.0), (50.0, 1, 150.0)], one)
    assert result.jobs["first_start_s"][1] == pair_s


def test_jobs_submitted_together_go_longest_first() -> None:
    jobs = [(0.0, 1, 100.0), (0.0, 1, 300.0), (0.0, 1, 200.0)]
    result = run(HadarE(round_s=1000.0), jobs, cluster((2, 1, "fast")))
    assert result.jobs["first_start_s"].tolist() == [1000, 0, 0]


def test_every_job_has_a_node_before_any_has_two() -> None:
    result = run(HadarE(), [(0.0, 1, 1000.0), (0.0, 1, 10.0), (0.0, 1, 1.0)], THREE)
    assert [nodes_of(result, job, 0) for job in range(3)] == [[0], [1], [2]]


@pytest.mark.parametrize(("max_copies", "finish_s"), [(0, 100 / 1.75), (1, 100), (2, 100 / 1.5)])
def test_most_copies(max_copies: int, finish_s: float) -> None:
    result = run(HadarE(max_copies=max_copies), [(0.0, 1, 100.0)], THREE)
    assert result.jobs["finish_s"].tolist() == pytest.approx([finish_s])


def profiled(gpus: list[int], hours: float, model: str = "LM", batch: float = 20) -> Trace:
    count = len(gpus)
    return trace_of(
        [(0.0, size, hours * 3600) for size in gpus],
        model=[model] * count,
        batch_size=[batch] * count,
    )


@pytest.mark.parametrize(
    ("fill", "copies", "share"),
    [({"fill": True}, 2, 2 * 0.5 * (1 - 36 / 360)), ({"fill": False}, 1, 1.0), ({}, 1, 1.0)],
)
def test_without_fill_no_copy_is_made_that_makes_nothing_faster(
    fill: dict[str, bool], copies: int, share: float
) -> None:
    # Two copies on equal nodes at half the worth of a step, less a tenth of the time for joining:
    # slower than one.
    model = Profiled(efficiency=0.5, consolidate_s=36)
    result = Simulator(
        profiled([1], 9.0), Cluster.parse("2x1:v100"), HadarE(**fill), Conditions(model)
    ).run()
    assert result.jobs["finish_s"].tolist() == pytest.approx([9 * 3600 / share])
    assert len(nodes_of(result, 0, 0)) == copies


def test_a_copy_that_does_help_is_made_without_fill() -> None:
    result = Simulator(
        profiled([1], 9.0),
        Cluster.parse("2x1:v100"),
        HadarE(fill=False),
        Conditions(Profiled(efficiency=0.9, consolidate_s=36)),
    ).run()
    assert result.jobs["finish_s"].tolist() == pytest.approx([9 * 3600 / (2 * 0.9 * 0.9)])


# -- the bound
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", ["aws", "lab"])
@pytest.mark.parametrize("seed", range(8))
def test_one_job_gains_no_more_than_its_own_speeds_allow(nodes: str, seed: int) -> None:
    # Against the fastest node alone forking saves at most 1 - max / sum of the speeds of the five
    # nodes; joining the copies takes 5 of 360 s.
    mix = workload(f"hadare:jobs=1,nodes={nodes},seed={seed}")
    trace, machines = mix.make(), mix.machines()
    spec = Profiled(stand_in="relative", efficiency=1.0)
    model = spec.bind(trace, machines)
    speeds = [
        model.rate(0, Grant((Gang(Part((node,), (1,))),)), 0.0, 0.0).work_per_s for node in range(5)
    ]
    alone_s = model.work()[0] / max(speeds)
    result = Simulator(trace, machines, HadarE(), Conditions(spec)).run()
    saved = 1 - result.jobs["finish_s"][0] / alone_s
    assert saved < 1 - max(speeds) / sum(speeds)
    assert saved == pytest.approx(1 - max(speeds) / (sum(speeds) * (1 - 5 / 360)))


# -- nodes with several GPUs
# --------------------------------------------------------------------------------------------------


def test_copies_share_nodes_with_other_jobs_but_not_with_each_other() -> None:
    # Three gangs of two on two nodes of four: jobs 0 and 1 share the first; job 2 has none yet and
    # begins on the second, where job 0, with more left than job 1, has its second copy.
    result = run(
        HadarE(), [(0.0, 2, 1000.0), (0.0, 2, 900.0), (0.0, 2, 800.0)], cluster((2, 4, "fast"))
    )
    assert [nodes_of(result, job, 0) for job in range(3)] == [[0, 1], [0], [1]]
    assert result.segments.groupby("job")["gpus"].first().tolist() == [4, 2, 2]


def test_a_single_job_leaves_the_rest_of_its_nodes_idle() -> None:
    result = run(HadarE(), [(0.0, 1, 100.0)], cluster((2, 4, "fast")))
    assert nodes_of(result, 0, 0) == [0, 1]
    assert result.segments["gpus"].tolist() == [2]


def test_copies_may_be_smaller_than_the_gang_if_the_model_knows_how_fast_they_are() -> None:
    # A gang of four on nodes of three GPUs: copies of two, since three were not measured.
    machines = Cluster.parse("2x3:v100")
    small = Simulator(
        profiled([4], 1.0), machines, HadarE(), Conditions(Profiled(small_copies=True, **FREE))
    ).run()
    table = Profiled().measurements()
    four, two = (table.find("lm", 20.0, size, "v100") for size in (4, 2))
    assert four is not None
    assert two is not None
    assert small.jobs["finish_s"].tolist() == pytest.approx(
        [3600 * four.together / (2 * two.together)]
    )
    assert small.segments["gpus"].tolist() == [4]


def test_a_gang_that_no_node_holds_is_one_copy_over_several() -> None:
    # Six GPUs on nodes of four: job 0 has most left and gets two nodes, in one gang; the single job
    # a GPU of what is left.
    result = run(HadarE(), [(0.0, 6, 1000.0), (0.0, 1, 500.0)], cluster((2, 4, "fast")))
    placed = result.placements.merge(
        result.segments[["job"]], left_on="segment", right_index=True
    ).sort_values(["job", "node"])
    assert placed[["job", "gang", "node", "count"]].to_numpy().tolist() == [
        [0, 0, 0, 4],
        [0, 0, 1, 2],
        [1, 0, 1, 1],
    ]
    assert result.jobs["finish_s"].tolist() == [1000, 500]


def test_cores_limit_copies() -> None:
    # A node of four GPUs has cores for two workers of four: no gang of three is on one node, so
    # there is one copy over both.
    result = run(HadarE(), [(0.0, 3, 100.0)], cluster((2, 4, "fast"), cpus=8.0), cpus=[12.0])
    assert result.placements[["gang", "node", "count"]].to_numpy().tolist() == [
        [0, 0, 2],
        [0, 1, 1],
    ]


# -- in the course of a run
# --------------------------------------------------------------------------------------------------


def test_losing_a_node_loses_only_its_copy() -> None:
    # Rates 1 + 1; at 30, 60 are done and unsaved, half of them on the node that goes. One copy goes
    # on alone; at 40 the other node is still away, at 80 it is back.
    conditions = Conditions(faults=Faults(outages="1:30:60"))
    result = run(HadarE(round_s=40.0), [(0.0, 1, 200.0)], cluster((2, 1, "fast")), conditions)
    assert result.jobs[["lost_work", "evictions"]].iloc[0].tolist() == [30, 0]
    assert [nodes_of(result, 0, at_s) for at_s in (0, 30, 40, 80)] == [[0, 1], [0], [0], [0, 1]]
    # 30 kept, 50 alone until 80: 120 left at 2 per second.
    assert result.jobs["finish_s"].tolist() == [140]


def test_equal_nodes_are_exchanged_so_that_copies_stay() -> None:
    # At 50 there are 950, 940 and 955 left: the fast nodes are for jobs 2 and 0, in this order, but
    # job 0 keeps node 0. At 100 900, 915 and 905: for 1 and 2.
    jobs = [(0.0, 1, 1000.0), (0.0, 1, 990.0), (0.0, 1, 980.0)]
    result = run(HadarE(round_s=50.0, max_copies=1), jobs, cluster((2, 1, "fast"), (1, 1, "mid")))
    assert [[nodes_of(result, job, at_s) for job in range(3)] for at_s in (0, 50, 100)] == [
        [[0], [1], [2]],
        [[0], [2], [1]],
        [[2], [0], [1]],
    ]


def test_a_change_of_one_copy_does_not_stop_the_others() -> None:
    # Job 1 needs no more than a round; then job 0 gets its node too. The copy on the first node
    # goes on while the new one loads.
    jobs = [(0.0, 1, 1000.0), (0.0, 1, 100.0)]
    result = run(
        HadarE(round_s=100.0),
        jobs,
        cluster((2, 1, "fast")),
        Conditions(overheads=Overheads(restart_s=50)),
    )
    # From 100 on 900 are left at 2 per second, of which half stands still for 50 s: 450 + 25.
    assert result.jobs["finish_s"].tolist() == [575, 100]


def test_jobs_that_must_not_be_stopped_keep_the_copies_they_have() -> None:
    conditions = Conditions(overheads=Overheads(on_preempt="forbidden"))
    result = run(HadarE(round_s=10.0), [(0.0, 1, 100.0), (5.0, 1, 10.0)], THREE, conditions)
    assert nodes_of(result, 0, 0) == [0, 1, 2]
    assert result.jobs["preemptions"].sum() == 0
    assert result.jobs["first_start_s"][1] == pytest.approx(60)


def test_cpu_jobs_start_at_once_and_are_left_alone() -> None:
    machines = Cluster((NodeGroup(1, 1, "fast", cpus=8.0), NodeGroup(1, 0, cpus=4.0)), SPEEDS[:1])
    result = run(
        HadarE(round_s=50.0), [(0.0, 1, 100.0), (7.0, 0, 100.0)], machines, cpus=[2.0, 4.0]
    )
    assert result.jobs["first_start_s"].tolist() == [0, 7]


def test_copies_are_counted_in_the_notes() -> None:
    result = run(HadarE(), [(0.0, 1, 100.0), (0.0, 1, 60.0)], THREE)
    assert dict(result.notes[["name", "value"]].to_numpy().tolist()) == {"copies": 3, "forked": 1}
    assert HadarE().needs.requires == {"forks"}
    assert not HadarE().needs.mixes_types


class Installed:
    """Lets the inner allocator be another one from an instant on."""

    def __init__(self, first: Any, then: Any) -> None:
        self.whole = Switch(at_s=50.0, first=Spec("first"), then=Spec("then"))
        self.whole.assemble(lambda spec: first if spec.name == "first" else then)
        self.cadence, self.needs, self.card = self.whole.cadence, self.whole.needs, self.whole.card

    def allocate(self, view: View) -> Plan:
        return self.whole.allocate(view)


def test_can_take_over_and_be_taken_over() -> None:
    jobs = [(0.0, 1, 100.0), (0.0, 1, 60.0), (60.0, 2, 40.0)]
    machines = cluster((2, 2, "fast"), (1, 2, "mid"))
    for first, then in ((Fifo(), HadarE(round_s=20.0)), (HadarE(round_s=20.0), Fifo())):
        result = run(Installed(first, then), jobs, machines)
        assert set(result.jobs["outcome"]) == {"completed"}
        check_feasible(result, Scenario("switched", trace_of(jobs), machines))


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 6), st.integers(1, 200)),
        min_size=1,
        max_size=8,
    ),
    sizes=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.sampled_from(["fast", "mid", "slow"])),
        min_size=1,
        max_size=4,
    ),
    fill=st.booleans(),
    max_copies=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_two_copies_never_share_a_node_and_none_is_too_small(
    jobs: Any, sizes: Any, fill: bool, max_copies: int
) -> None:
    machines = cluster(*sizes)
    result = run(
        HadarE(max_copies=max_copies, fill=fill, round_s=20.0),
        [(float(at), gpus, float(length)) for at, gpus, length in jobs],
        machines,
    )
    check_feasible(result, Scenario("random", trace_of(jobs), machines))
    placed = result.placements.merge(result.segments[["job"]], left_on="segment", right_index=True)
    assert not placed.duplicated(["segment", "node"]).any()
    asked = result.jobs["gpus"].to_numpy()[placed.drop_duplicates(["segment", "gang"])["job"]]
    assert np.array_equal(
        placed.groupby(["segment", "gang"], sort=False)["count"].sum().to_numpy(), asked
    )
    copies = placed.groupby("segment")["gang"].nunique()
    assert (
        copies.max() <= min(max_copies or len(machines.nodes), len(machines.nodes))
        if len(copies)
        else True
    )


def test_other_rounds_than_those_of_the_performance_model_are_told() -> None:
    assert HadarE().remarks() == ()
    assert (
        HadarE(round_s=60.0)
        .remarks()[0]
        .endswith(" of the performance model (Trace), whose length should be the same.")
    )
