"""Schedules worked out by hand.

Jobs follow the power law: who asked for one GPU runs at rate k ^ exponent on k of them, and its
duration is its run time on one. Restarts cost nothing unless a test says so, and decisions are made
every 100 s.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.elastic.greedy import VARIANTS, GreedyElastic, UnitDivision
from allocators.elastic.scaling import Market, SizeOptions
from allocators.queue.fifo import Fifo
from allocators.queue.wrappers import Partition, Switch
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.simulator import Simulator
from sim.overheads import Overheads
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace
from tests import strategies
from tests.conformance import Scenario, check_feasible

ROOT2 = sqrt(2.0)


def cluster(nodes: int, gpus: int, **more: Any) -> Cluster:
    return Cluster((NodeGroup(nodes, gpus, "v100", **more),), (GpuType("v100"),))


def job(
    submit_s: float, duration_s: float, exponent: float, most: int = 8, **more: Any
) -> dict[str, Any]:
    row = {
        "submit_time_s": submit_s,
        "num_gpus": 1,
        "duration_s": duration_s,
        "min_gpus": 1,
        "max_gpus": most,
        "scaling_exponent": exponent,
    }
    return row | more


def run(
    rows: list[dict[str, Any]],
    machines: Cluster,
    conditions: Conditions | None = None,
    **params: Any,
) -> RunResult:
    trace = Trace.of(pd.DataFrame([{"job_id": f"j{at}"} | row for at, row in enumerate(rows)]))
    return Simulator(
        trace,
        machines,
        GreedyElastic(**{"every_s": 100.0} | params),
        conditions or Conditions(PowerLaw()),
    ).run()


def stints(result: RunResult) -> list[list[tuple[float, float, int]]]:
    """(from, to, GPUs) of each job, stints without change joined."""
    found: list[list[tuple[float, float, int]]] = [[] for _ in result.jobs.index]
    segments = result.segments
    for at, start_s, end_s, gpus in zip(
        segments["job"], segments["t0"], segments["t1"], segments["gpus"], strict=True
    ):
        found[at].append((round(float(start_s), 6), round(float(end_s), 6), int(gpus)))
    return [sorted(rows) for rows in found]


THREE = [job(0, 800, 1.0), job(0, 600, 0.5), job(50, 600, 1.0)]


def test_sticky() -> None:
    # 0 s: both start on 1 of 8 GPUs, where s = 1. First job: 1 -> 2 gains 1 per GPU, 2 -> 4 gains
    # (4 - 2) / 2 = 1, 4 -> 8 would need 4 of the 3 that are left. Second: 1 -> 2 gains 0.414, 2 ->
    # 4 gains (2 - 1.414) / 2 = 0.293. So 4 and 4, at rates 4 and 2. 100 s: the third waits, nobody
    # shrinks. 200 s: the first is done (800 / 4). The third starts on 1 and grows to 2 and 4; the
    # second would need all 4. 300 s: the second is done (600 / 2). The third has done 400 of 600,
    # and goes on with all 8 GPUs: 200 / 8 = 25 s.
    result = run(THREE, cluster(1, 8))
    assert stints(result) == [[(0, 200, 4)], [(0, 300, 4)], [(200, 300, 4), (300, 325, 8)]]


def test_reclaim() -> None:
    # As sticky until 100 s. Then the third waits, and of the two largest, 4 and 4, the one
    # submitted last shrinks to 2. One GPU is enough for the third; it can make use of the one left
    # over too (1 -> 2), the others cannot (they need 2 and 4). 4, 2, 2. 200 s: the first is done. 2
    # -> 4 gains 1 per GPU for the third, 0.293 for the second; both fit in the 4 that are free. So
    # 4 and 4. The third has done 200, and is done at 200 + 400 / 4 = 300 s. The second has done 200
    # by 100 s, 100 * 1.414 more by 200 s, 200 more by 300 s, when it is given all 8.
    result = run(THREE, cluster(1, 8), variant="reclaim")
    left = 600 - 200 - 100 * ROOT2 - 100 * 2
    end_s = round(300 + left / sqrt(8), 6)
    assert stints(result) == [
        [(0, 200, 4)],
        [(0, 100, 4), (100, 200, 2), (200, 300, 4), (300, end_s, 8)],
        [(100, 200, 2), (200, 300, 4)],
    ]


def test_fifo_fill_looks_at_age_instead_of_gain() -> None:
    rows = [job(0, 400, 0.5), job(0, 400, 1.0)]
    # 6 GPUs, 1 each, 4 left. By gain the second goes to 4 (1 per GPU), the first to 2 with the
    # rest. By age the first goes to 4, the second to 2.
    by_gain = run(rows, cluster(1, 6), variant="reclaim")
    assert stints(by_gain)[0][0] == (0, 100, 2)
    assert stints(by_gain)[1] == [(0, 100, 4)]
    by_age = run(rows, cluster(1, 6), variant="fifo_fill")
    assert stints(by_age) == [[(0, 200, 4)], [(0, 200, 2)]]


def test_nobody_shrinks_for_a_job_that_does_not_fit_even_so_and_those_behind_it_wait() -> None:
    rows = [
        job(0, 800, 1.0, preemptible=1),
        job(0, 800, 1.0),
        job(10, 400, 1.0, num_gpus=7, min_gpus=7),
        job(20, 100, 1.0),
    ]
    for variant in VARIANTS:
        # 4 and 4 of 8 GPUs; the third needs 7, the first two keep at least 1 each. So nothing moves
        # at 100 s, and the fourth, which would fit, waits behind it.
        result = run(rows, cluster(1, 8), variant=variant)
        assert stints(result)[:2] == [[(0, 200, 4)], [(0, 200, 4)]]
        assert result.jobs["first_start_s"].tolist() == [0, 0, 200, 200]


def test_the_largest_shrinks_first_again_and_again() -> None:
    rows = [job(0, 4000, 1.0), job(0, 4000, 1.0), job(50, 4000, 1.0, num_gpus=4, min_gpus=4)]
    # 4 and 4. Four GPUs are wanted: the second 4 -> 2, then the first, the largest now, 4 -> 2.
    result = run(rows, cluster(1, 8), Conditions(PowerLaw(), horizon_s=150.0), variant="reclaim")
    assert stints(result) == [
        [(0, 100, 4), (100, 150, 2)],
        [(0, 100, 4), (100, 150, 2)],
        [(100, 150, 4)],
    ]


def test_what_must_not_be_stopped_neither_grows_nor_shrinks() -> None:
    rows = [
        job(0, 300, 1.0, preemptible=0),
        job(0, 900, 1.0, preemptible=1),
        job(50, 100, 1.0, num_gpus=4, min_gpus=4, preemptible=1),
    ]
    # 4 and 4; the first has no steps to give up, so only 3 of the second's can be had, and the
    # third needs 4. At 100 s nothing changes.
    result = run(rows, cluster(1, 8), variant="reclaim")
    # The first ends at 75 s. At 100 s 4 GPUs are free for the third, which is done at 200 s: 100 s
    # of work at the 4 it asked for.
    assert stints(result) == [[(0, 75, 4)], [(0, 200, 4), (200, 212.5, 8)], [(100, 200, 4)]]


def test_sticky_lets_late_jobs_wait_and_reclaim_does_not() -> None:
    rows = [job(0, 6400, 1.0), *[job(10, 100, 1.0, most=1) for _ in range(4)]]
    sticky = run(rows, cluster(1, 8))
    reclaim = run(rows, cluster(1, 8), variant="reclaim")
    assert sticky.jobs["first_start_s"].tolist() == [0, 800, 800, 800, 800]
    assert reclaim.jobs["first_start_s"].tolist() == [0, 100, 100, 100, 100]
    # 8 -> 4 for all four of them, and back to 8 when they are done.
    assert stints(reclaim)[0][:2] == [(0, 100, 8), (100, 200, 4)]


def test_whole_nodes() -> None:
    # 4 nodes of 2 GPUs. Sizes are 1, 2 and 4 nodes; s is relative to one node: 1 -> 2 nodes gains 1
    # per node for the first, 0.414 for the second; 2 -> 4 does not fit then. 2 and 2 nodes, 4 GPUs
    # each: rates 4 and 2.
    result = run(THREE[:2], cluster(4, 2), granularity="node")
    # 200 s: the first is done; the second has done 400 and goes on with 8 GPUs, at rate 8 ^ 0.5.
    assert stints(result) == [[(0, 200, 4)], [(0, 200, 4), (200, round(200 + 200 / sqrt(8), 6), 8)]]
    per_node = result.placements.groupby(["segment", "node"])["count"].sum()
    assert set(per_node) == {2}


def test_whole_nodes_are_reclaimed_whole() -> None:
    rows = [*THREE[:2], job(50, 600, 1.0, most=2)]
    result = run(rows, cluster(4, 2), variant="reclaim", granularity="node", events=True)
    # 50 s: both hold 2 nodes; the second, submitted last, gives up one of its own for the third.
    assert stints(result)[1][:2] == [(0, 50, 4), (50, 200, 2)]
    assert stints(result)[2][0][0] == 50
    segments = result.segments.reset_index(names="segment").merge(result.placements, on="segment")
    nodes = {key: set(rows["node"]) for key, rows in segments.groupby(["job", "t0"])}
    assert nodes[1, 50.0] < nodes[1, 0.0]
    assert nodes[2, 50.0] == nodes[1, 0.0] - nodes[1, 50.0]


def test_a_job_gets_a_whole_node_even_if_it_can_use_only_part_of_it() -> None:
    result = run([job(0, 400, 1.0, most=2)], cluster(1, 8), granularity="node")
    # Rate 2, for more than 2 GPUs do not help; no size but one node.
    assert stints(result) == [[(0, 200, 8)]]


def test_every_size_is_admissible_on_request() -> None:
    rows = [job(0, 700, 1.0), job(0, 100, 1.0, most=1)]
    # 7 GPUs beside the other job: powers of two stop at 4.
    assert stints(run(rows, cluster(1, 8), sizes="all"))[0] == [(0, 100, 7)]
    assert stints(run(rows, cluster(1, 8)))[0][0] == (0, 100, 4)


def test_a_step_that_gains_nothing_is_not_made() -> None:
    # Relative to the size asked for, 1 GPU, the exponent 0.05 gains little, but something; what
    # does not gain at all is a size beyond the job's largest.
    assert stints(run([job(0, 100, 0.05, most=2)], cluster(1, 8)))[0][0][2] == 2
    market = Market(
        (0,),
        1,
        8,
        (),
        (SizeOptions(0, (1, 2, 4), (1.0, 1.0, 3.0), 0), SizeOptions(1, (1, 2), (1.0, 0.5), 0)),
    )
    division = UnitDivision(market)
    division.start(reclaim=False)
    division.grow()
    assert division.units() == {0: 1, 1: 1}
    assert division.free == 6


def test_between_decisions_nothing_happens_unless_events_count() -> None:
    rows = [job(0, 100, 1.0, most=1), job(130, 100, 1.0, most=1)]
    assert run(rows, cluster(1, 8)).jobs["first_start_s"].tolist() == [0, 200]
    assert run(rows, cluster(1, 8), every_s=70.0).jobs["first_start_s"].tolist() == [0, 140]
    assert run(rows, cluster(1, 8), events=True).jobs["first_start_s"].tolist() == [0, 130]


def test_growing_pauses_a_job_and_restarting_costs_time() -> None:
    rows = [job(0, 300, 1.0, most=4), job(0, 50, 1.0, most=1)]
    pauses = Conditions(PowerLaw(), overheads=Overheads(restart_s=30))
    # 0 s: 2 of 4 GPUs, for 4 do not fit beside the second job. 100 s: 100 are left; 30 s without
    # progress, then 100 / 4 = 25 s.
    assert stints(run(rows, cluster(1, 4), pauses))[0] == [(0, 100, 2), (100, 155, 4)]
    # On 3 GPUs nobody can be larger than 3: 30 s, then 100 / 3. Without the restart it would have
    # been done at 150 s; that is not looked at.
    assert stints(run(rows, cluster(1, 3), pauses))[0] == [
        (0, 100, 2),
        (100, round(130 + 100 / 3, 6), 3),
    ]


def test_types_are_divided_one_after_the_other() -> None:
    slow, fast = GpuType("slow", 1.0, 1.0), GpuType("fast", 2.0, 9.0)
    both = Cluster((NodeGroup(1, 2, "slow"), NodeGroup(1, 2, "fast")), (slow, fast))
    rows = [
        job(0, 1000, 1.0, min_gpus=2, num_gpus=2, most=4),
        job(0, 1000, 1.0, min_gpus=2, num_gpus=2, most=4),
    ]
    # The first fills the fast type and holds up the second there, which then runs on the slow one,
    # at half the speed.
    assert run(rows, both).jobs["finish_s"].tolist() == [500, 1000]
    assert run(rows, both, types="cheapest").jobs["finish_s"].tolist() == [1000, 500]


def test_placement_is_left_to_the_rule_that_was_chosen() -> None:
    rows = [job(0, 100, 1.0, most=2)]
    assert len(run(rows, cluster(2, 4)).placements) == 1
    assert len(run(rows, cluster(2, 4), placement="spread").placements) == 2


def test_jobs_without_gpus_run_beside_the_others() -> None:
    rows = [
        job(0, 100, 1.0, most=1),
        {"submit_time_s": 0.0, "num_gpus": 0, "duration_s": 40.0, "cpus": 2.0},
    ]
    result = run(rows, cluster(1, 1, cpus=4.0))
    assert result.jobs["finish_s"].tolist() == [100, 40]


def test_what_no_whole_nodes_can_hold_is_refused_and_remarked() -> None:
    trace = Trace.of(
        pd.DataFrame(
            [
                {"job_id": f"j{at}"} | job(0, 10, 1.0, 9, num_gpus=size, min_gpus=size)
                for at, size in enumerate((9, 1, 2))
            ]
        )
    )
    machines = Cluster((NodeGroup(2, 4, "v100"), NodeGroup(1, 1, "v100")), (GpuType("v100"),))
    for granularity, outcomes, remarks in (
        ("gpu", ["completed"] * 3, ()),
        (
            "node",
            ["refused", "completed", "completed"],
            (
                (
                    "1 job was refused: no number of whole nodes was both large enough and possible"
                    " on this cluster."
                ),
            ),
        ),
    ):
        allocator = GreedyElastic(granularity=granularity)
        assert allocator.remarks() == ()
        result = Simulator(trace, machines, allocator, Conditions(PowerLaw())).run()
        assert result.jobs["outcome"].tolist() == outcomes
        assert result.remarks == allocator.remarks() == remarks


def test_idle_gpus_are_noted() -> None:
    trace = Trace.of(pd.DataFrame([{"job_id": "a"} | job(0, 150, 1.0, most=2)]))
    seen = []

    class Observed(GreedyElastic):
        def allocate(self, view: Any, /) -> Any:
            plan = super().allocate(view)
            seen.append(dict(plan.notes))
            return plan

    Simulator(trace, cluster(2, 4), Observed(every_s=50.0), Conditions(PowerLaw())).run()
    # Settled after the second decision, which finds nothing to change.
    assert seen == [{"idle_gpus": 6}, {"idle_gpus": 6}]


def test_inside_a_partition_each_has_its_own() -> None:
    rows = [job(0, 400, 1.0, vc="a"), job(0, 400, 1.0, vc="b")]
    trace = Trace.of(pd.DataFrame([{"job_id": f"j{at}"} | row for at, row in enumerate(rows)]))
    machines = Cluster(
        (NodeGroup(1, 4, "v100", partitions=("a",)), NodeGroup(1, 2, "v100", partitions=("b",))),
        (GpuType("v100"),),
    )
    partition = Partition(inner=Spec("greedy_elastic"))
    partition.assemble(lambda spec: GreedyElastic(every_s=100.0))
    result = Simulator(trace, machines, partition, Conditions(PowerLaw())).run()
    assert stints(result) == [[(0, 100, 4)], [(0, 200, 2)]]


def test_after_a_switch_it_takes_over_what_is_running() -> None:
    rows = [
        job(0, 800, 1.0, num_gpus=2),
        job(0, 800, 1.0, num_gpus=2),
        job(0, 400, 1.0, num_gpus=4),
    ]
    trace = Trace.of(pd.DataFrame([{"job_id": f"j{at}"} | row for at, row in enumerate(rows)]))
    switch = Switch(at_s=200.0)
    switch.assemble(
        lambda spec: (
            GreedyElastic(variant="reclaim", every_s=100.0) if spec.name == "easy" else Fifo()
        )
    )
    result = Simulator(trace, cluster(1, 4), switch, Conditions(PowerLaw())).run()
    # FIFO runs the first two at the 2 GPUs they asked for; the third needs 4 and waits. 200 s: one
    # GPU is enough for it, and the second gives it one up. They now run at half and a quarter of
    # their speed. 800 s: the first is done; 300 and 250 of their work are left. Both gain the same
    # from a second GPU. 1100 s: the second is done, and the third, of which 250 - 300 / 2 = 100 are
    # left, has all 4.
    assert stints(result) == [
        [(0, 800, 2)],
        [(0, 200, 2), (200, 800, 1), (800, 1100, 2)],
        [(200, 800, 1), (800, 1100, 2), (1100, 1200, 4)],
    ]


@given(
    strategies.traces(),
    strategies.clusters(),
    strategies.conditions,
    st.sampled_from(VARIANTS),
    st.sampled_from(("gpu", "node")),
    st.sampled_from(("powers", "all")),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_every_plan_is_possible(
    trace: Trace,
    machines: Cluster,
    conditions: Conditions,
    variant: str,
    granularity: str,
    sizes: str,
    events: bool,
) -> None:
    conditions = replace(conditions, perf=PowerLaw(), horizon_s=200.0)
    allocator = GreedyElastic(
        variant=variant, granularity=granularity, sizes=sizes, every_s=9.0, events=events
    )
    result = Simulator(trace, machines, allocator, conditions).run()
    check_feasible(result, Scenario("drawn", trace, machines, conditions))


@given(
    strategies.traces(plain=True),
    strategies.clusters(plain=True),
    st.sampled_from(VARIANTS),
    st.sampled_from(("powers", "all")),
)
@settings(max_examples=30, deadline=None)
def test_everybody_finishes_in_turn(
    trace: Trace, machines: Cluster, variant: str, sizes: str
) -> None:
    result = Simulator(
        trace,
        machines,
        GreedyElastic(variant=variant, sizes=sizes, every_s=3.0),
        Conditions(PowerLaw()),
    ).run()
    assert result.reason == "drained"
    jobs = result.jobs[result.jobs["outcome"] != "impossible"]
    assert set(jobs["outcome"]) <= {"completed"}
    # Strict first come, first served: nobody starts before somebody submitted earlier.
    assert jobs["first_start_s"].is_monotonic_increasing
    if variant == "sticky":
        held = result.segments.sort_values(["job", "t0"]).groupby("job")["gpus"]
        assert held.apply(lambda sizes: sizes.is_monotonic_increasing).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_division_gives_no_more_than_there_is(variant: str) -> None:
    running = (SizeOptions(0, (1, 2, 4), (1.0, 1.9, 3.0), 2), SizeOptions(1, (2, 4), (1.0, 1.5), 4))
    market = Market(
        (0,),
        1,
        7,
        running,
        (SizeOptions(2, (1, 2), (1.0, 2.0), 0), SizeOptions(3, (3,), (1.0,), 0)),
    )
    division = UnitDivision(market)
    division.start(reclaim=variant != "sticky")
    if variant == "fifo_fill":
        division.fill()
    else:
        division.grow()
    # One unit is idle: for job 2. Job 3 needs three more: job 1 gives two, job 0 one. Nothing is
    # left to grow with, unless nobody shrank.
    assert division.units() == (
        {0: 2, 1: 4, 2: 1} if variant == "sticky" else {0: 1, 1: 2, 2: 1, 3: 3}
    )
    assert division.free == 0


def test_gains_are_relative_to_the_smallest_size_and_per_unit() -> None:
    # Job 0 does more work per second at any size, but its first step makes it 1.5 times as fast,
    # that of job 1 twice. Job 2 doubles too, but with 2 more units.
    waiting = (
        SizeOptions(0, (1, 2), (100.0, 150.0), 0),
        SizeOptions(1, (1, 2), (1.0, 2.0), 0),
        SizeOptions(2, (1, 3), (1.0, 2.0), 0),
    )
    for capacity, units in (
        (4, {0: 1, 1: 2, 2: 1}),
        (5, {0: 2, 1: 2, 2: 1}),
        (6, {0: 2, 1: 2, 2: 1}),
        (7, {0: 2, 1: 2, 2: 3}),
    ):
        division = UnitDivision(Market((0,), 1, capacity, (), waiting))
        division.start(reclaim=False)
        division.grow()
        assert division.units() == units
    # 0.5 per unit for jobs 0 and 2 alike: the lower number goes first.


def test_one_job_shrinks_step_by_step_as_far_as_it_must() -> None:
    running = (SizeOptions(0, (1, 2, 4, 8), (1.0, 2.0, 3.0, 4.0), 8),)
    waiting = (
        SizeOptions(1, (5,), (1.0,), 0),
        SizeOptions(2, (1,), (1.0,), 0),
        SizeOptions(3, (1,), (1.0,), 0),
    )
    division = UnitDivision(Market((0,), 1, 8, running, waiting))
    division.start(reclaim=True)
    # 8 -> 4 -> 2 for the 5 of job 1; the one left over is for job 2; job 3 gets the last that job 0
    # can give up.
    assert division.units() == {0: 1, 1: 5, 2: 1, 3: 1}
    more = UnitDivision(Market((0,), 1, 8, running, (*waiting, SizeOptions(4, (1,), (1.0,), 0))))
    more.start(reclaim=True)
    assert more.units() == {0: 1, 1: 5, 2: 1, 3: 1}  # and job 4 waits
