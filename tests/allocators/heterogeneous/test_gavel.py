"""Gavel in small schedules worked out by hand: rounds, shares, newcomers, and what upsets them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import REGISTRY, make
from allocators.heterogeneous.gavel.objective import ALLOX_GANGS_NOTE, ObjectiveSpec
from allocators.heterogeneous.gavel.policy import OBJECTIVES, Gavel
from allocators.heterogeneous.gavel.rounds import Roster
from allocators.heterogeneous.timeshare.fluid import JobsSnapshot
from allocators.heterogeneous.timeshare.shares import NO_DEADLINES
from allocators.placement import RUN_TIME_NEEDS, Placer
from jobtraces.generate.gavel import GavelPhysical
from sim.cluster import Change, Cluster, GpuType, NodeGroup
from sim.contract import Needs, ParameterError, Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.params import build
from sim.perf.profiled import Profiled
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.walk import trace_of

ONE = Cluster.parse("1x1:v100")
TWO_TYPES = Cluster(
    (NodeGroup(1, 1, "fast"), NodeGroup(1, 1, "slow")),
    (GpuType("fast", 2.0, 3.0), GpuType("slow", 1.0, 1.0)),
)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "gavel", Gavel)


def run(
    trace: Trace, cluster: Cluster, conditions: Conditions | None = None, **parameters: Any
) -> RunResult:
    return Simulator(trace, cluster, Gavel(**parameters), conditions or Conditions()).run()


def finishes(result: RunResult) -> list[float]:
    return result.jobs["finish_s"].round(3).tolist()


def starts(result: RunResult, job: int) -> list[float]:
    segments = result.segments
    return segments.loc[segments["job"] == job, "t0"].tolist()


# -- rounds
# --------------------------------------------------------------------------------------------------


def test_two_jobs_take_turns_round_by_round() -> None:
    result = run(trace_of([(0, 1, 720), (0, 1, 1080)]), ONE)
    # a, b, a (done at 1080), then b alone.
    assert finishes(result) == [1080.0, 1800.0]
    assert starts(result, 1) == [360.0, 1080.0]


def test_the_length_of_a_round_is_a_parameter() -> None:
    assert finishes(run(trace_of([(0, 1, 720), (0, 1, 720)]), ONE, round_s=100.0)) == [
        1420.0,
        1440.0,
    ]


def test_who_ends_inside_a_round_leaves_its_gpu_idle_until_the_next() -> None:
    result = run(trace_of([(0, 1, 100), (0, 1, 900), (0, 1, 100)]), Cluster.parse("2x1:v100"))
    assert starts(result, 2) == [360.0]
    assert finishes(result)[2] == 460.0


def test_a_round_ends_early_when_nobody_runs_any_more() -> None:
    assert finishes(run(trace_of([(0, 1, 100), (0, 1, 900)]), ONE)) == [100.0, 1000.0]


def test_after_an_idle_time_a_round_begins_with_the_next_arrival() -> None:
    assert finishes(run(trace_of([(0, 1, 100), (1234, 1, 50)]), ONE)) == [100.0, 1284.0]


def test_arrivals_inside_a_round_wait_for_its_end() -> None:
    result = run(trace_of([(0, 1, 2000), (10, 1, 50)]), Cluster.parse("2x1:v100"))
    assert starts(result, 1) == [360.0]


# -- newcomers
# --------------------------------------------------------------------------------------------------

LATE: list[tuple[float, int, float]] = [(0, 1, 6000), (10, 1, 6000), (370, 1, 100)]


def test_newcomers_wait_until_shares_are_computed_again_and_hold_up_a_gpu_meanwhile() -> None:
    # Shares are computed at 0, and at 360 for the second job, because the clock is at 0 at first;
    # for the third not before 360 + 1920 = 2280.
    result = run(trace_of([*LATE, (371, 1, 100)]), Cluster.parse("3x1:v100"), faithful=True)
    assert starts(result, 2) == [2520.0]
    assert 2520 == 7 * 360


def test_a_clock_that_does_not_begin_at_zero_takes_its_first_shares_for_computed() -> None:
    # The same jobs a second later by the trace's own clock: the second waits for 0 + 1920, too.
    later = Trace.of(
        trace_of([*LATE, (371, 1, 100)]).frame.assign(submit_time_s=[1.0, 11.0, 371.0, 372.0])
    )
    assert later.from_zero is False
    result = run(later, Cluster.parse("3x1:v100"), faithful=True)
    assert starts(result, 1) == [2160.0]
    assert 2160 == 6 * 360


def test_without_the_oddity_newcomers_take_what_is_left_over() -> None:
    # Shares are computed at 0 and not before 1920; both take what is left over before.
    result = run(trace_of([*LATE, (371, 1, 100)]), Cluster.parse("3x1:v100"))
    assert starts(result, 1) == [360.0]
    assert starts(result, 2) == [720.0]


def test_shares_are_computed_when_jobs_come_and_go() -> None:
    at_once = {"recompute_s": 0.0}
    assert starts(run(trace_of(LATE), Cluster.parse("3x1:v100"), **at_once), 2) == [720.0]
    # Two jobs on one GPU: shares are computed at 360, when both tie and the first goes on, or in
    # the first round after 1000 s.
    trace = trace_of([(0, 1, 5000), (10, 1, 100)])
    assert starts(run(trace, ONE, **at_once), 1) == [720.0]
    assert starts(run(trace, ONE, recompute_s=1000.0), 1) == [1440.0]


def test_a_gang_of_small_share_starves_only_if_shares_are_computed_at_every_change() -> None:
    # On two GPUs a job of one GPU and 720 s comes every 360 s, at 5 s a gang of two. Shares are
    # 2/3, 2/3 and 1/3. Computed anew each round, 1/3 always ranks behind: the gang starts at 4680,
    # when the last of 12 jobs is done. As upstream computes them, at 0 and not before 1920, jobs
    # that came since share what is left over in order of arrival: the gang is the first of them,
    # and there are two GPUs at 720, when job 0 is done.
    jobs = sorted([(5.0, 2, 60.0), *[(360.0 * at, 1, 720.0) for at in range(12)]])
    two = Cluster.parse("1x2:v100")
    assert starts(run(trace_of(jobs), two, recompute_s=0.0), 1) == [4680.0]
    assert starts(run(trace_of(jobs), two), 1) == [720.0]


def test_idle_time_counts_as_received_in_the_round_after_it() -> None:
    # The second and third job come 4900 s after the first has left. The second runs for a round,
    # and by the published count has had 4900 s more than that: the third has the GPU to its end.
    trace = trace_of([(0, 1, 100), (5000, 1, 1000), (5000, 1, 1000)])
    assert finishes(run(trace, ONE, faithful=True)) == [100.0, 7000.0, 6360.0]
    assert finishes(run(trace, ONE)) == [100.0, 6720.0, 7000.0]


def test_newcomers_alone_do_not_wait() -> None:
    result = run(trace_of([(0, 1, 400), (100, 1, 700), (500, 1, 100)]), ONE)
    # At 360 shares are computed again. The third job is new at 720 and 1080; at 1100 only it is
    # left.
    assert starts(result, 2) == [1100.0]


def test_newcomers_who_would_hold_everything_up_do_not_wait() -> None:
    # Only the first model has a share beside the second. So when the second job is alone (500 to
    # 2300), it runs without a share, and owes that time after: when it is without a share again and
    # the third is done (at 5460), the newcomer goes before it, and would idle with nothing to come.
    trace = trace_of(
        [(0, 1, 100), (50, 1, 400), (50, 1, 9000), (2310, 1, 1000), (5000, 1, 900)],
        model=["LM", "LM", "A3C", "LM", "A3C"],
        batch_size=[5, 5, None, 5, None],
    )
    result = run(trace, ONE, Conditions(Profiled()), objective="max_sum_throughput")
    assert starts(result, 4)[0] <= 5460 + 360


# -- types
# --------------------------------------------------------------------------------------------------


def test_two_jobs_share_a_fast_and_a_slow_gpu_equally() -> None:
    # Both gain the same from the fast type, on which durations hold, so each gets half of either:
    # 3/4 of its speed, and 5400 s take 7200 s.
    result = run(trace_of([(0, 1, 5400), (0, 1, 5400)]), TWO_TYPES)
    placed = result.placements.merge(
        result.segments[["job", "t0", "t1"]], left_on="segment", right_index=True
    )
    placed = placed.assign(held_s=placed["t1"] - placed["t0"])
    on_fast = placed[placed["node"] == 0].groupby("job")["held_s"].sum()
    assert abs(on_fast[0] - on_fast[1]) <= 360
    assert max(finishes(result)) == pytest.approx(7200, abs=360)


def test_a_job_alone_gets_the_fastest_type() -> None:
    result = run(trace_of([(0, 1, 1000)]), TWO_TYPES)
    assert set(result.placements["node"]) == {0}


def test_who_is_not_aware_tries_the_types_in_any_order() -> None:
    trace = trace_of([(0, 1, 20_000)])
    nodes = set(run(trace, TWO_TYPES, aware=False, faithful=True).placements["node"])
    assert nodes == {0, 1}
    assert set(run(trace, TWO_TYPES, aware=False).placements["node"]) == {0}


def test_a_gang_never_spans_types() -> None:
    result = run(trace_of([(0, 2, 500), (0, 1, 100)]), Cluster.parse("1x2:v100,1x1:k80"))
    assert result.jobs["outcome"].tolist() == ["completed", "completed"]
    spanned = result.placements.groupby("segment")["node"].nunique()
    assert (spanned == 1).all()


def test_types_in_random_order_are_drawn_as_published() -> None:
    # The stream that upstream seeds with 5 more than the run; the two types are put in order anew
    # from (fast, slow) in every round.
    stream, ran = Random(7 + 5), []
    for _ in range(12):
        types = [0, 1]
        stream.shuffle(types)
        ran.append(types[0])
    result = run(
        trace_of([(0, 1, 50_000)]),
        TWO_TYPES,
        Conditions(seed=7),
        objective="isolated",
        faithful=True,
    )
    placed = result.placements.merge(result.segments, left_on="segment", right_index=True)
    assert [
        int(
            placed.loc[(placed["t0"] <= at * 360 + 1) & (placed["t1"] > at * 360 + 1), "node"].iloc[
                0
            ]
        )
        for at in range(12)
    ] == ran


def test_gandiva_takes_the_fastest_type_first() -> None:
    trace = trace_of([(0, 1, 900), (0, 1, 900)])
    # The fast GPU goes to the first job, to the second, and to the first again, which had as much
    # of it as the other and is done with its 360 + 180 + 360 s at 1080. The second has done 180 +
    # 360 + 180 s by then, and has the fast GPU for the rest.
    assert finishes(run(trace, TWO_TYPES, objective="gandiva")) == [1080.0, 1260.0]
    alone = trace_of([(0, 1, 5000)])
    assert set(run(alone, TWO_TYPES, objective="gandiva").placements["node"]) == {0}
    assert set(run(alone, TWO_TYPES, objective="isolated", faithful=True).placements["node"]) == {
        0,
        1,
    }
    assert (
        run(trace, TWO_TYPES, objective="gandiva").digest()
        == run(trace, TWO_TYPES, objective="isolated").digest()
    )


def test_time_received_counts_whole_iterations() -> None:
    # On the V100, 360 s are 23,307.28 iterations of the first model and 1022.94 of the second:
    # 0.004 s and 0.332 s do not count. So the second is ahead when both had one round, while the
    # first is where all time counts.
    trace = trace_of(
        [(0, 1, 2000), (0, 1, 2000)], model=["LM", "Recommendation"], batch_size=[20, 8192]
    )
    assert starts(run(trace, ONE, Conditions(Profiled()), objective="isolated", faithful=True), 0)[
        :2
    ] == [0.0, 1080.0]
    assert starts(run(trace, ONE, Conditions(Profiled()), objective="isolated"), 0)[:2] == [
        0.0,
        720.0,
    ]


# -- what upsets rounds
# --------------------------------------------------------------------------------------------------


def test_jobs_without_gpus_start_at_once() -> None:
    frame = trace_of([(0, 1, 1000), (10, 0, 50), (20, 0, 50)]).frame.assign(cpus=[0.0, 4.0, 4.0])
    cluster = Cluster((NodeGroup(1, 1, "v100", cpus=0.0), NodeGroup(1, 0, cpus=4.0)))
    result = run(Trace.of(frame), cluster)
    assert finishes(result) == [1000.0, 60.0, 110.0]


def test_who_must_not_be_stopped_goes_on() -> None:
    result = run(
        trace_of([(0, 1, 1000), (0, 1, 100)]),
        ONE,
        Conditions(overheads=Overheads(on_preempt="forbidden")),
    )
    assert finishes(result) == [1000.0, 1100.0]
    mixed = trace_of([(0, 1, 1000), (0, 1, 1000), (0, 1, 100)], preemptible=[0, 1, 1])
    result = run(mixed, Cluster.parse("2x1:v100"))
    assert result.jobs["preemptions"].tolist()[0] == 0
    assert finishes(result)[0] == 1000.0
    assert result.jobs["preemptions"].sum() > 0


def test_lost_nodes_are_done_without_and_come_back() -> None:
    trace = trace_of([(0, 1, 2000), (0, 1, 2000)])
    cluster = Cluster.parse("2x1:v100")
    gone = Cluster(cluster.groups, changes=(Change(500.0, (1,), False), Change(1200.0, (1,), True)))
    result = run(trace, gone)
    assert result.jobs["evictions"].tolist() == [0, 1]
    assert result.reason == "drained"
    # Between 720 and 1440 the two take turns on the one node.
    assert result.jobs["preemptions"].sum() >= 1


def test_an_outage_of_everything_is_waited_for() -> None:
    result = run(
        trace_of([(0, 1, 500), (100, 1, 300)]), ONE, Conditions(faults=Faults(outages="0:200:1000"))
    )
    assert result.reason == "drained"
    assert starts(result, 0)[1] == 1000.0


def test_a_job_that_only_lost_nodes_could_hold_does_not_stop_the_others() -> None:
    cluster = Cluster(
        (NodeGroup(1, 4, "v100"), NodeGroup(1, 1, "v100")), changes=(Change(100.0, (0,), False),)
    )
    result = run(trace_of([(0, 4, 500), (0, 1, 3000)]), cluster)
    assert result.jobs["outcome"].tolist() == ["unfinished", "completed"]
    assert "can never start" in result.reason


def test_cores_are_looked_at_where_they_are_short() -> None:
    frame = trace_of([(0, 1, 500), (0, 1, 500), (0, 1, 500)]).frame.assign(cpus=[3.0, 3.0, 1.0])
    cluster = Cluster((NodeGroup(1, 2, "v100", cpus=4.0),))
    result = run(Trace.of(frame), cluster)
    segments = result.segments
    assert starts(result, 0)[0] == 0.0
    assert starts(result, 2)[0] == 0.0
    assert starts(result, 1)[0] > 0.0
    assert len(segments) > 3


def test_gangs_stay_where_they_are() -> None:
    result = run(
        trace_of([(0, 2, 2000), (0, 2, 2000), (0, 4, 2000), (0, 1, 2000)]),
        Cluster.parse("3x4:v100"),
    )
    assert result.jobs["preemptions"].sum() == 0
    assert len(result.segments) == 4


def test_one_by_one_comes_to_the_same_where_counting_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = GavelPhysical("max_min_fairness")
    counted = run(made.make(), made.machines(), Conditions(Profiled()))
    monkeypatch.setattr(Placer, "needs_only_gpus", lambda *_: False)
    one_by_one = run(made.make(), made.machines(), Conditions(Profiled()))
    assert finishes(one_by_one) == finishes(counted)


def test_nodes_of_one_gpu_pass_between_gangs_of_any_size() -> None:
    # Racks are kept together, so with them every gang is placed anew; who runs when is the same.
    rng = np.random.default_rng(5)
    trace = trace_of(
        [(at * 100.0, int(gpus), 4000.0) for at, gpus in enumerate(rng.choice([1, 2, 3, 4], 25))]
    )
    handed_on = run(trace, Cluster((NodeGroup(6, 1, "v100"),)))
    anew = run(trace, Cluster((NodeGroup(6, 1, "v100", rack_size=2),)))
    assert finishes(handed_on) == finishes(anew)
    assert handed_on.jobs["preemptions"].sum() > 25
    nodes = handed_on.placements.groupby("segment")["node"].nunique()
    assert (nodes.to_numpy() == handed_on.segments["gpus"].to_numpy()[nodes.index]).all()


def test_jobs_that_may_use_different_nodes_of_one_type() -> None:
    frame = trace_of([(0, 1, 1000), (0, 1, 1000), (0, 1, 1000)]).frame.assign(vc=["a", "a", "b"])
    cluster = Cluster(
        (
            NodeGroup(1, 1, "v100", partitions=("a",)),
            NodeGroup(1, 1, "v100", partitions=("b",)),
            NodeGroup(1, 1, "k80"),
        )
    )
    switch = make(
        Spec.of(
            "switch", at_s=1.0, first=Spec.of("partition", inner=Spec("fifo")), then=Spec("gavel")
        )
    )
    result = Simulator(Trace.of(frame), cluster, switch).run()
    assert set(result.jobs["outcome"]) == {"completed"}
    placed = result.placements.merge(result.segments[["job"]], left_on="segment", right_index=True)
    assert set(placed.loc[placed["job"] == 2, "node"]) <= {1, 2}
    assert set(placed.loc[placed["job"] < 2, "node"]) <= {0, 2}


def test_a_gang_over_two_types_left_by_another_policy_is_moved_to_one() -> None:
    cluster = Cluster.parse("1x2:v100,1x1:k80")
    switch = make(
        Spec.of("switch", at_s=100.0, first=Spec.of("fifo", mix=True), then=Spec("gavel"))
    )
    result = Simulator(trace_of([(0, 1, 90), (0, 2, 2000)]), cluster, switch).run()
    placed = result.placements.merge(
        result.segments[["job", "t0"]], left_on="segment", right_index=True
    )
    assert placed.loc[placed["job"] == 1, ["t0", "node"]].to_numpy().tolist() == [
        [0.0, 0.0],
        [0.0, 1.0],
        [100.0, 0.0],
    ]


def test_one_that_must_not_be_stopped_keeps_even_that() -> None:
    trace = trace_of([(0, 1, 90), (0, 2, 2000), (0, 1, 500)], preemptible=[1, 0, 1])
    switch = make(
        Spec.of("switch", at_s=100.0, first=Spec.of("fifo", mix=True), then=Spec("gavel"))
    )
    result = Simulator(trace, Cluster.parse("1x2:v100,1x1:k80"), switch).run()
    assert set(result.jobs["outcome"]) == {"completed"}
    assert result.jobs["preemptions"][1] == 0
    assert (result.segments["job"] == 1).sum() == 1


def test_each_virtual_cluster_has_rounds_of_its_own() -> None:
    frame = trace_of([(0, 1, 500), (0, 1, 500), (200, 1, 500)]).frame.assign(vc=["a", "a", "b"])
    cluster = Cluster(
        (NodeGroup(1, 1, "v100", partitions=("a",)), NodeGroup(1, 1, "v100", partitions=("b",)))
    )
    result = Simulator(
        Trace.of(frame), cluster, make(Spec.of("partition", inner=Spec("gavel")))
    ).run()
    assert finishes(result) == [860.0, 1000.0, 700.0]


# -- objectives
# --------------------------------------------------------------------------------------------------


def test_priority_is_weight() -> None:
    result = run(trace_of([(0, 1, 36_000), (0, 1, 36_000)], priority=[1.0, 5.0]), ONE)
    # Five of six rounds until the second is done at 6/5 of its time.
    assert finishes(result)[1] == pytest.approx(43_200, abs=720)


def test_owners_have_weights() -> None:
    jobs = trace_of([(0, 1, 36_000), (0, 1, 36_000), (0, 1, 36_000)], user=["a", "b", "b"])
    equal, double = (
        run(jobs, ONE, objective="water_filling", entity_weights=weights)
        for weights in ((1.0,), (1.0, 2.0))
    )
    assert finishes(equal)[0] == pytest.approx(72_000, abs=1080)
    assert finishes(double)[0] == pytest.approx(108_000, abs=1080)
    alone = run(jobs, ONE, objective="water_filling", entity="none")
    assert finishes(alone)[0] == pytest.approx(107_000, abs=1500)


def test_jobs_of_an_owner_may_go_in_order() -> None:
    jobs = trace_of([(0, 1, 36_000), (0, 1, 36_000), (0, 1, 36_000)], user=["a", "b", "b"])
    result = run(jobs, ONE, objective="water_filling", within="fifo", entity_weights=(1.0,))
    assert finishes(result)[1] == pytest.approx(72_000, abs=1080)
    assert finishes(result)[2] > finishes(result)[1] + 20_000


def test_first_come_first_served_keeps_the_order() -> None:
    result = run(
        trace_of([(0, 1, 1000), (1, 2, 500), (2, 1, 500)]),
        Cluster.parse("1x2:v100"),
        objective="fifo",
    )
    # The pair waits for both GPUs and holds up the third job, although one is free.
    assert starts(result, 1)[0] >= 1000
    assert starts(result, 2)[0] >= starts(result, 1)[0] + 500


def test_throughput_per_dollar_prefers_the_cheap() -> None:
    result = run(trace_of([(0, 1, 1000)]), TWO_TYPES, objective="cost")
    # Half as fast at a third of the price. A job without a share on the fast type may still win
    # what is left over there, and types are filled fastest first.
    assert set(result.placements["node"]) == {0}
    priced = run(trace_of([(0, 1, 3600), (0, 1, 3600), (0, 1, 3600)]), TWO_TYPES, objective="cost")
    free = run(
        trace_of([(0, 1, 3600), (0, 1, 3600), (0, 1, 3600)]),
        Cluster(TWO_TYPES.groups, (GpuType("fast", 2.0), GpuType("slow", 1.0))),
        objective="cost",
    )
    assert set(priced.jobs["outcome"]) == set(free.jobs["outcome"]) == {"completed"}


ONE_TYPE = "gavel chose no GPU types: all GPUs are v100; the shares are those of its agnostic form."


def test_deadlines_that_cannot_be_met_are_told() -> None:
    allocator = Gavel(objective="cost_slo")
    Simulator(
        trace_of([(0, 1, 1000), (0, 1, 1000)], deadline_s=[1100.0, 1100.0]), ONE, allocator
    ).run()
    assert allocator.remarks() == (ONE_TYPE, NO_DEADLINES)
    assert Gavel(objective="cost_slo").remarks() == ()


def test_deadlines_that_can_be_met_are() -> None:
    trace = trace_of([(0, 1, 30_000), (0, 1, 10_000)], deadline_s=[np.inf, 15_000.0])
    assert finishes(run(trace, ONE, objective="cost_slo"))[1] <= 15_000
    assert finishes(run(trace, ONE, objective="max_min"))[1] > 15_000


def test_allox_lets_the_short_go_first_and_tells_of_gangs() -> None:
    allocator = Gavel(objective="allox", recompute_s=0.0)
    result = Simulator(trace_of([(0, 1, 5000), (0, 1, 500), (0, 1, 2000)]), ONE, allocator).run()
    assert finishes(result) == [7500.0, 500.0, 2500.0]
    assert allocator.remarks() == (ONE_TYPE,)
    Simulator(
        trace_of([(0, 1, 500), (0, 2, 500)]),
        Cluster.parse("1x2:v100"),
        allocator := Gavel(objective="allox"),
    ).run()
    assert allocator.remarks() == (ONE_TYPE, ALLOX_GANGS_NOTE)


def test_time_in_isolation_counts_what_was_done_since() -> None:
    jobs = Roster(1, 180.0)
    jobs.align(np.array([0, 1]))
    jobs.gangs, jobs.rates = np.array([1, 1]), np.ones((2, 1))
    wishes = ObjectiveSpec("finish_time_fairness", True, True, "none", (1.0,), "fairness")
    standing = JobsSnapshot(
        jobs.ids,
        jobs.gangs,
        jobs.rates,
        np.array([1]),
        np.ones(1),
        np.ones(2),
        np.zeros(2),
        np.array([100.0, 400.0]),
    )
    jobs.reset(wishes.shares(standing, jobs, np.random.default_rng(0), None).x, 0.0)
    assert jobs.fair_rate.tolist() == [0.5, 0.5]
    assert jobs.fair_s.tolist() == [0.0, 0.0]
    wishes.shares(
        standing._replace(left=np.array([70.0, 380.0]), age_s=np.full(2, 50.0)),
        jobs,
        np.random.default_rng(0),
        None,
    )
    assert jobs.fair_s.tolist() == [60.0, 40.0]


# -- parameters
# --------------------------------------------------------------------------------------------------


def test_every_objective_brings_all_jobs_to_their_end() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "job_id": [str(at) for at in range(30)],
            "submit_time_s": np.sort(rng.uniform(0, 20_000, 30)),
            "num_gpus": rng.choice([1, 1, 2], 30),
            "duration_s": rng.uniform(500, 9000, 30),
            "priority": rng.choice([1.0, 5.0], 30),
            "deadline_s": rng.uniform(10_000, 60_000, 30),
            "user": rng.choice(["a", "b"], 30),
        }
    )
    seen = set()
    for objective in OBJECTIVES:
        for aware in (True, False):
            result = run(
                Trace.of(frame), Cluster.parse("2x2:v100,2x2:k80"), objective=objective, aware=aware
            )
            assert set(result.jobs["outcome"]) == {"completed"}, objective
            seen.add(result.digest())
    assert len(seen) > len(OBJECTIVES)


def test_values_out_of_bounds_are_refused() -> None:
    with pytest.raises(ParameterError, match="round_s"):
        build(Gavel, Spec.of("gavel", round_s=0))
    with pytest.raises(ParameterError, match="objective"):
        build(Gavel, Spec.of("gavel", objective="best"))


def test_needs_are_what_the_objective_reads() -> None:
    assert Gavel().needs == Needs(frozenset({"rates"}))
    assert Gavel(aware=False).needs == Needs()
    assert Gavel(objective="makespan").needs == Needs(RUN_TIME_NEEDS)
    assert Gavel(objective="makespan", aware=False).needs == Needs(RUN_TIME_NEEDS)
    assert Gavel(objective="isolated").needs == Gavel(objective="gandiva").needs == Needs()
    assert Gavel(objective="fifo").needs == Needs(frozenset({"rates"}))
    assert Gavel(objective="fifo", aware=False).needs == Needs()
