from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocators import make
from allocators.placement import Placer
from allocators.queue.easy import Easy
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.contract import Cadence, Delta, Grant, JobId, Plan, Spec, View
from sim.engine.simulator import Conditions, Simulator
from sim.perf.estimators import Biased, Exact
from tests.allocators.queue.walk import Situation, gantt, situations, trace_of

NODE = "1x4:v100"


def chart(
    spec: str,
    jobs: list[tuple[float, int, float]],
    cluster: str = NODE,
    conditions: Conditions | None = None,
    **columns: list[Any],
) -> list[str]:
    return gantt(
        Simulator(
            trace_of(jobs, **columns), Cluster.parse(cluster), make(Spec.parse(spec)), conditions
        ).run()
    ).splitlines()


ENDS_BEFORE = [(0, 3, 10), (1, 4, 5), (2, 1, 8), (3, 1, 3)]


TOO_LONG = [*ENDS_BEFORE[:2], (2, 1, 9), ENDS_BEFORE[3]]
EXTRA = [(0, 2, 10), (1, 3, 5), (2, 1, 20), (3, 1, 20)]
CHARTS: dict[str, tuple[str, list[tuple[float, int, float]], list[str]]] = {
    # Job 1 wants all 4 GPUs: it can start when job 0 ends, at 10 (shadow time), and leaves no GPU
    # extra. Job 2 would end at 2 + 8 = 10, so it passes. Job 3 has no room until 10; then job 1
    # goes first.
    "what ends before the head can start may pass": (
        "easy",
        ENDS_BEFORE,
        ["##########", " .........#####", "  ########", "   ............###"],
    ),
    # Job 2 would end at 2 + 9 = 11 and delay job 1; job 3 (3 + 3 = 6) passes both.
    "one second too long may not": (
        "easy",
        TOO_LONG,
        ["##########", " .........#####", "  .............#########", "   ###"],
    ),
    # Job 1 wants 3 GPUs and can start at 10, when 4 are free: 1 is extra. Job 2 (1 GPU, until 22)
    # takes it. Job 3 would run until 23 and nothing is extra any more: it waits. At 10 jobs 2 and 1
    # hold 4; job 3 starts when job 1 ends, at 15.
    "what takes only extra GPUs may pass": (
        "easy",
        EXTRA,
        [
            "##########",
            " .........#####",
            "  ####################",
            "   ............####################",
        ],
    ),
    # Job 2 would hold a GPU at 10 that job 1 does not need, and waits nevertheless.
    "without spare GPUs a job passes only if it ends before the head starts": (
        "easy:spare=no",
        EXTRA,
        [
            "##########",
            " .........#####",
            "  ........####################",
            "   ............####################",
        ],
    ),
    # Job 2 is too long, job 3 would pass but is second behind the head.
    "of depth 1 only the first behind the head passes": (
        "easy:depth=1",
        TOO_LONG,
        ["##########", " .........#####", "  .............#########", "   ............###"],
    ),
}


@pytest.mark.parametrize(("spec", "jobs", "expected"), CHARTS.values(), ids=CHARTS)
def test_charts(spec: str, jobs: list[tuple[float, int, float]], expected: list[str]) -> None:
    assert chart(spec, jobs) == expected


def test_all_that_end_at_the_shadow_time_count_as_extra() -> None:
    # At 10 jobs 0 (2 GPUs) and 1 (1 GPU) end. Job 0 alone would do for job 2 (3 GPUs, with the one
    # that is free): the GPU of job 1 is extra, and job 3 passes.
    assert (
        chart("easy", [(0, 2, 10), (0, 1, 10), (1, 3, 5), (2, 1, 20)])[3]
        == "  ####################"
    )
    # The same where nodes are reserved: node 0 is left at 10 by jobs 0 and 1, and has 8 - 5 = 3
    # cores beside job 2.
    jobs = trace_of([(0, 1, 10), (0, 1, 10), (1, 1, 5), (2, 1, 20)], cpus=[4, 2, 5, 2])
    assert Simulator(jobs, Cluster.parse("1x4:v100/8c"), make(Spec("easy"))).run().jobs[
        "first_start_s"
    ].tolist() == [0, 0, 10, 2]


def test_a_little_too_long_is_too_long() -> None:
    # Job 2 ends half a second after the shadow time: it takes the one extra GPU, and nothing is
    # left for job 3 until then.
    run = Simulator(
        trace_of([*EXTRA[:2], (2, 1, 8.5), EXTRA[3]]), Cluster.parse(NODE), make(Spec("easy"))
    ).run()
    assert run.jobs["first_start_s"].tolist() == [0, 10, 2, 10.5]


def test_an_early_end_is_taken_into_account() -> None:
    # 5 GPUs, one of them free. By their limits job 0 (1 GPU) ends at 20 and job 1 (3 GPUs) at 10,
    # so job 2 (5 GPUs) is expected at 20, and job 3 (limit 30 s) may not pass. Job 0 ends at 5: now
    # job 2 is expected at 10. Job 4 (limit 8 s, until 14) comes too late to pass, job 5 (limit 3 s,
    # until 9) does not.
    jobs = [(0, 1, 5), (0, 3, 10), (1, 5, 2), (2, 1, 2), (6, 1, 2), (6, 1, 2)]
    run = Simulator(
        trace_of(jobs, time_limit_s=[20, 10, 2, 30, 8, 3]),
        Cluster.parse("1x5:v100"),
        make(Spec.parse("easy:run_times=limit")),
    ).run()
    assert run.jobs["first_start_s"].tolist() == [0, 0, 10, 12, 12, 6]


def test_only_the_first_so_many_behind_the_head_are_looked_at() -> None:
    assert chart("easy:depth=2", TOO_LONG) == chart("easy", TOO_LONG)
    assert chart("easy:depth=0", TOO_LONG) == chart("fifo", TOO_LONG)


def test_time_limits_instead_of_estimators() -> None:
    # Limits 20, -, 8 and 9 s. Job 0 may run until 20, so job 1 is expected to start at 20 and both
    # others pass: job 3 (9 s by its limit) as soon as there is room, at 10, when in truth job 1
    # could start: the end of job 0 is early, and the head comes first.
    assert chart("easy:run_times=limit", ENDS_BEFORE, time_limit_s=[20, None, 8, 9]) == chart(
        "easy", ENDS_BEFORE
    )
    # With a limit of 100 s nothing is known of job 2 but that it might be too long; job 3 has no
    # limit, and its believed 3 s let it pass.
    assert chart("easy:run_times=limit", ENDS_BEFORE, time_limit_s=[10, None, 100, None]) == [
        "##########",
        " .........#####",
        "  .............########",
        "   ###",
    ]


def test_what_outlives_its_limit_is_expected_to_take_as_long_again() -> None:
    # Job 0 (10 s) has a limit of 4 s. Job 2 comes at 5, when job 0 is believed to run until 4 + 4 =
    # 8: 4 s are too long, 3 s are not.
    for seconds, starts in ((4, 13), (3, 5)):
        run = Simulator(
            trace_of([(0, 3, 10), (1, 4, 3), (5, 1, seconds)], time_limit_s=[4, None, None]),
            Cluster.parse(NODE),
            make(Spec.parse("easy:run_times=limit")),
        )
        assert run.run().jobs["first_start_s"].tolist() == [0, 10, starts]


def test_priority_decides_who_is_the_head() -> None:
    # Job 2 (4 GPUs) comes later but with priority: it becomes the head and starts at 4; job 1 (2
    # GPUs) has no room before, job 3 (2 s) passes.
    assert chart(
        "easy:order=priority", [(0, 3, 4), (1, 2, 3), (2, 4, 2), (2, 1, 2)], priority=[0, 0, 1, 0]
    ) == [
        "####",
        " .....###",
        "  ..##",
        "  ##",
    ]
    assert [
        rule and rule.key for rule in (Easy(order="priority").rule(), Easy(order="arrival").rule())
    ] == [("priority",), ()]


def test_the_head_is_reserved_on_the_type_where_it_starts_first() -> None:
    # One node of 2 V100 (speed 1) and one of 2 T4 (here speed 0.5). Job 0 holds the V100s until 10,
    # job 1 (4 s of work, T4 only) the T4s until 8. Job 2 wants 2 of either: T4s at 8. Job 3 (1 T4,
    # 1 s of work = 2 s, until 12 if it waited) ... at 3 no T4 is free. Job 4 is like job 2 but for
    # V100s: it comes after it, at 10.
    types = (GpuType("v100", 1.0), GpuType("t4", 0.5))
    cluster = Cluster(Cluster.parse("1x2:v100,1x3:t4").groups, types)
    jobs = [(0, 2, 10), (0, 2, 4), (1, 2, 1), (2, 1, 3), (3, 1, 2)]
    trace = trace_of(jobs, gpu_types_allowed=["v100", "t4", "v100|t4", "t4", "t4"])
    run = Simulator(trace, cluster, make(Spec("easy"))).run()
    # Of the 3 T4s 1 is free now and extra at 8 (3 - 2 = 1): job 3 (6 s on a T4, until 8) ends in
    # time and does not use it up; it ends at 8. Job 4 has no room at 3 (job 3 has the last T4). At
    # 8 job 2 starts on T4s (2 s), and job 4 beside it on the third (4 s).
    assert run.jobs["first_start_s"].tolist() == [0, 0, 8, 2, 8]
    assert run.jobs["finish_s"].tolist() == [10, 8, 10, 8, 12]


def test_limited_cores_reserve_nodes() -> None:
    # Two nodes of 4 GPUs and 8 cores. Job 0 takes 1 GPU and all cores of node 0 until 10, job 1 (6
    # cores) node 1 until 6. Job 2 needs 4 cores: node 1 at 6, where it leaves 4. Job 3 (2 cores, 20
    # s) fits on node 1 now and leaves job 2 its 4 cores: it passes. Job 4 (the same) would leave 8
    # - 2 - 2 = 4 as well, but has no cores now. At 6 job 2 starts, and job 4 beside it.
    jobs = [(0, 1, 10), (0, 1, 6), (1, 1, 5), (2, 1, 20), (3, 1, 20)]
    trace = trace_of(jobs, cpus=[8, 6, 4, 2, 2])
    run = Simulator(trace, Cluster.parse("2x4:v100/8c"), make(Spec("easy"))).run()
    assert run.jobs["first_start_s"].tolist() == [0, 0, 6, 2, 6]
    # With 6 cores for the head, job 3 takes the last two beside it, and job 4 must wait for job 0.
    wide = trace_of(jobs, cpus=[8, 6, 6, 2, 2])
    assert Simulator(wide, Cluster.parse("2x4:v100/8c"), make(Spec("easy"))).run().jobs[
        "first_start_s"
    ].tolist() == [0, 0, 6, 2, 10]
    # With 7 job 3 would delay it.
    wider = trace_of(jobs, cpus=[8, 6, 7, 2, 2])
    assert Simulator(wider, Cluster.parse("2x4:v100/8c"), make(Spec("easy"))).run().jobs[
        "first_start_s"
    ].tolist() == [0, 0, 6, 10, 10]


# -- against a plain version that remembers nothing
# --------------------------------------------------------------------------------------------------


@dataclass
class Plain:
    """Looks at everything anew at every decision; one GPU counts as good as another of its type."""

    easy: Easy
    ends: dict[JobId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.needs, self.card = self.easy.needs, self.easy.card
        self.cadence = Cadence(every_s=1.0)  # to see whether a wake-up is missing
        self.wake_at_s = inf
        self.place = Placer(self.easy.placement, self.easy.types, self.easy.mix)
        self.passed = 0

    def ways(self, view: View, job: JobId) -> list[tuple[tuple[int, ...], float]]:
        """Where a job may go, and from when on."""
        ways, until_s = (
            self.place.options(view, view.demand(job)),
            view.one("arrival_s", job) + self.easy.wait_for_type,
        )
        return [
            (group, -inf if at < ways.preferred else until_s)
            for at, group in enumerate(ways.groups)
        ]

    def placed(self, view: View, job: JobId) -> Grant | None:
        groups = [group for group, from_s in self.ways(view, job) if from_s <= view.now_s]
        return next(
            (
                grant
                for group in groups
                if (grant := self.place.place_within(view, view.demand(job), group))
            ),
            None,
        )

    def allocate(self, view: View) -> Plan:
        # Where a running job outlives its estimate, time alone moves the shadow time; EASY decides
        # at events and does not wake itself for that.
        outlived = any(self.ends[job] <= view.now_s for job in view.grants)
        expected = self.plain(view)
        view.room.undo()  # type: ignore[attr-defined]
        happened = view.delta != Delta() or outlived or view.now_s == self.wake_at_s
        assert happened or not expected
        plan = self.easy.allocate(view)
        assert dict(plan.changes) == expected, (view.now_s, dict(plan.changes), expected)
        self.wake_at_s = plan.wake_at_s
        return plan

    def plain(self, view: View) -> dict[JobId, Grant | None]:
        started: dict[JobId, Grant | None] = {}
        ends = {
            job: view.now_s + view.one("remaining_work", job) / view.estimates.rate(job, grant)
            for job, grant in view.grants.items()
        }
        self.ends = ends
        held = dict(view.grants)
        line = view.waiting.ids.tolist()
        while line:
            grant = self.placed(view, line[0])
            if grant is None:
                break
            self.note(view, line.pop(0), grant, (started, ends, held))
        if not line:
            return started
        at_s, pools = self.shadow(view, line[0], ends, held)
        behind = line[1:]
        at = 0
        while at < min(len(behind), self.easy.depth):
            job = behind[at]
            if self.may_pass(view, line[0], job, (at_s, pools), (started, ends, held)):
                self.passed += 1
                del behind[at]
            else:
                at += 1
        return started

    def note(self, view: View, job: JobId, grant: Grant, state: tuple[Any, Any, Any]) -> None:
        started, ends, held = state
        started[job] = held[job] = grant
        ends[job] = view.now_s + view.one("remaining_work", job) / view.estimates.rate(job, grant)

    def gpus(self, view: View, grant: Grant, pools: tuple[int, ...]) -> int:
        nodes = {node for at in pools for node in view.room.pools[at].nodes}
        workers = grant.gangs[0].workers
        return sum(
            count for node, count in zip(workers.nodes, workers.count, strict=True) if node in nodes
        )

    def free_at(self, view: View, at_s: float, pools: tuple[int, ...], ends: Any, held: Any) -> int:
        return view.room.gpus_free(pools) + sum(
            self.gpus(view, held[job], pools) for job, end_s in ends.items() if end_s <= at_s
        )

    def shadow(self, view: View, job: JobId, ends: Any, held: Any) -> tuple[float, tuple[int, ...]]:
        found: tuple[float, tuple[int, ...]] = (inf, ())
        demand = view.demand(job)
        for pools, from_s in self.ways(view, job):
            instants = sorted([*ends.values(), *([from_s] if from_s > view.now_s else [])])
            enough = [
                at_s
                for at_s in instants
                if at_s >= from_s and self.free_at(view, at_s, pools, ends, held) >= demand.replicas
            ]
            if enough and enough[0] < found[0]:
                found = enough[0], pools
        return found

    def may_pass(
        self,
        view: View,
        head: JobId,
        job: JobId,
        promise: tuple[float, tuple[int, ...]],
        state: Any,
    ) -> bool:
        demand, (at_s, pools), (_, ends, held) = view.demand(job), promise, state
        for group, from_s in self.ways(view, job):
            grant = self.place.place_within(view, demand, group) if from_s <= view.now_s else None
            if grant is None:
                continue
            end_s = view.now_s + view.one("remaining_work", job) / view.estimates.rate(job, grant)
            spare = self.free_at(view, at_s, pools, ends, held) - view.demand(head).replicas
            if end_s <= at_s or spare >= 0 or not self.gpus(view, grant, pools):
                self.note(view, job, grant, state)
                return True
            view.room.give(grant)
        return False


def counted(situation: Situation) -> bool:
    """Whether counts are all that matters, and every estimate is the same wherever the job goes: a
    gang that spans types is estimated as if it were alone.
    """
    shaped = situation.params.get("placement") in {"consolidate", "first_fit"}
    limited = any(group.cpus < inf for group in situation.cluster.groups)
    return not (situation.params.get("mix") or shaped or limited)


WAITS_S = st.sampled_from([0.0, 2.0, 7.0, 30.0])


# Job 0 is believed to end at 2. At 3 it is believed to end at 4, and job 2 (half a second) may pass
# job 1, although nothing has happened since 2.
OUTLIVED = Situation(
    trace_of([(0, 1, 4), (0, 8, 1), (2, 1, 1)]),
    Cluster.parse("1x8:a100"),
    Conditions(estimator=Biased(0.5)),
    {},
)


@example(OUTLIVED, 0.0)
@given(situations(), WAITS_S)
@settings(max_examples=50, deadline=None)
def test_does_what_the_plain_version_does(situation: Situation, wait_s: float) -> None:
    if not counted(situation):
        return
    params = {key: value for key, value in situation.params.items() if key != "backfill"}
    compared = Plain(Easy(**params, depth=3, wait_for_type=wait_s))
    run = Simulator(situation.trace, situation.cluster, compared, situation.conditions).run()
    assert set(run.jobs["outcome"]) <= {"completed", "impossible"}


class Watched:
    """Notes when each head was promised to start, and by when it did."""

    def __init__(self, easy: Easy) -> None:
        self.easy, self.cadence, self.needs, self.card = easy, easy.cadence, easy.needs, easy.card
        self.promised: dict[JobId, float] = {}

    def allocate(self, view: View) -> Plan:
        plan = self.easy.allocate(view)
        promise = self.easy._promise
        if promise is not None:
            self.promised.setdefault(promise.job, promise.at_s)
        return plan


@given(situations(), WAITS_S)
@settings(max_examples=50, deadline=None)
def test_no_head_starts_later_than_promised(situation: Situation, wait_s: float) -> None:
    params = {key: value for key, value in situation.params.items() if key != "backfill"}
    watched = Watched(Easy(**params, wait_for_type=wait_s))
    exact = Conditions(estimator=Exact())
    run = Simulator(situation.trace, situation.cluster, watched, exact).run()
    starts = run.jobs["first_start_s"]
    assert [
        (job, starts[job], at_s)
        for job, at_s in watched.promised.items()
        if starts[job] > at_s + 2e-3
    ] == []


def test_thirds_of_memory_fit_where_they_were_promised() -> None:
    # Job 3 is promised a node and a half at 12: there 16 GB less a third of 8 and all 8 of job 4
    # are just a third of its 16. In floats they were a millionth less, and it started at 13.
    jobs = [(0, 2, 12.0), (0, 3, 13.0), (0, 1, 1.0), (0, 3, 1.0), (11, 1, 2.0)]
    trace = trace_of(jobs, cpus=[0.0] * 5, mem_gb=[0.0, 8.0, 0.0, 16.0, 8.0])
    nodes = NodeGroup(count=2, gpus=4, gpu_type="a", cpus=8.0, mem_gb=16.0)
    run = Simulator(trace, Cluster((nodes,), (GpuType("a"),)), Easy(placement="pack")).run()
    assert run.jobs["first_start_s"].tolist() == [0, 0, 0, 12, 11]


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_wrong_estimators_are_mended_as_jobs_end(factor: float) -> None:
    run = Simulator(
        trace_of(EXTRA),
        Cluster.parse(NODE),
        make(Spec("easy")),
        Conditions(estimator=Biased(factor)),
    ).run()
    assert run.jobs["first_start_s"].tolist() == [0, 10, 2, 15]
