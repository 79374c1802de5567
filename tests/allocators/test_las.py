from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocators.fifo import Fifo
from allocators.las import Las
from sim.contract import JobId, ParameterError, View
from sim.faults import Faults
from sim.result import RunResult
from sim.simulator import Conditions, Simulator
from tests.allocators.staffed import run as run_staffed
from tests.allocators.staffed import staffed
from tests.allocators.walk import After, Compared, Situation, Walk, clusters, compare, gantt, placer, situations, trace_of

LIMITS = (24.0, 80.0)


@dataclass
class Tiresias(Walk):
    """The walk, with promotions."""

    knob: float = 0.0
    counted_from: dict[JobId, float] = field(default_factory=dict)
    promotions: int = 0

    def note(self, view: View) -> None:
        super().note(view)
        for job in view.waiting.ids.tolist() if self.knob else ():
            executed_s = self.attained(view, job) / max(view.demand(job).replicas, 1)
            if self.queue(view, job) and view.now_s - self.since_s[job] >= self.knob * executed_s - 1e-3:
                self.counted_from[job] = view.one("served_gpu_s", job)
                self.since_s[job] = view.now_s
                self.promotions += 1

    def attained(self, view: View, job: JobId) -> float:
        return view.one("served_gpu_s", job) - self.counted_from.get(job, 0.0)

    def queue(self, view: View, job: JobId) -> int:
        return sum(self.attained(view, job) >= limit - 1e-3 * view.demand(job).replicas for limit in LIMITS)


def rank(walk: Walk, view: View, job: JobId, runs: bool) -> tuple[float, ...]:
    assert isinstance(walk, Tiresias)
    return (walk.queue(view, job), 0, walk.started_s[job]) if runs else (walk.queue(view, job), 1, walk.since_s[job])


def beats(walk: Walk, view: View, waiting: JobId, running: JobId) -> bool:
    assert isinstance(walk, Tiresias)
    return walk.queue(view, waiting) < walk.queue(view, running)


def walk_of(situation: Situation, knob: float = 0.0) -> Tiresias:
    return Tiresias(rank, beats, placer(situation.params), situation.params["head"], knob=knob)


# At 58 a node comes back while nobody waits for one GPU; job 4 takes it and stops job 5, which must not be judged by what was known before.
NODE_COMES_BACK = Situation(
    trace_of([(0, 2, 35), (3, 6, 54), (7, 3, 28), (11, 2, 18), (15, 6, 13), (16, 1, 39), (26, 1, 51), (34, 1, 59)], preemptible=[0.0, 1, 1, 1, 1, 1, 1, 1]),
    clusters("2x4:a"),
    Conditions(faults=Faults(outages="0:41:58;1:17:22")),
    {"head": "skip", "placement": "spread"},
)


@example(NODE_COMES_BACK, 0.0)
@given(situations(pauses=True), st.sampled_from([0.0, 0.0, 0.25, 1.0]))
@settings(max_examples=250, deadline=None)
def test_does_what_the_walk_does(situation: Situation, knob: float) -> None:
    compare(situation, Las(thresholds=LIMITS, knob=knob, **situation.params), walk_of(situation, knob))


@given(situations(simple=True))
@settings(max_examples=120, deadline=None)
def test_runs_what_fits_from_an_empty_cluster(situation: Situation) -> None:
    compare(situation, Las(thresholds=LIMITS, **situation.params), walk_of(situation), counts=True)


@given(situations(pauses=True), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_takes_over_a_cluster_in_operation(situation: Situation, at_s: int) -> None:
    compared = Compared(Las(thresholds=LIMITS, **situation.params), walk_of(situation))
    Simulator(situation.trace, situation.cluster, After(at_s, Fifo(mix=True), compared), situation.conditions).run()


@given(situations(simple=True), st.sampled_from([0.5, 3.0, 7.0]), st.sampled_from([0.0, 0.5, 2.0]))
@settings(max_examples=60, deadline=None)
def test_decisions_that_take_time_lose_no_job(situation: Situation, latency_s: float, knob: float) -> None:
    conditions = replace(situation.conditions, overheads=replace(situation.conditions.overheads, on_preempt="checkpoint", latency_s=latency_s))
    result = Simulator(situation.trace, situation.cluster, Las(thresholds=LIMITS, knob=knob, **situation.params), conditions).run()
    assert set(result.jobs["outcome"]) <= {"completed", "impossible"}


def run(
    jobs: list[tuple[float, int, float]],
    cluster: str,
    thresholds: tuple[float, ...] = (4.0, 12.0),
    columns: dict[str, list[Any]] | None = None,
    **params: Any,
) -> RunResult:
    return Simulator(trace_of(jobs, **(columns or {})), clusters(cluster), Las(thresholds=thresholds, **params)).run()


def lines(*rows: str) -> str:
    return "\n".join(rows)


def test_a_newcomer_waits_for_the_running_job_to_leave_its_queue() -> None:
    result = run([(0, 1, 6), (1, 1, 3)], "1x1:a")
    # 1: both in the first queue, the running one before the waiting one.  4: job 0 has had 4 GPU-s and goes down; job 1 takes its place, by a wake-up alone.
    assert gantt(result) == lines(
        "####...##",
        " ...###",
    )


def test_a_limit_that_is_just_reached_counts() -> None:
    # The newcomer arrives in the very second in which job 0 reaches 4 GPU-s.
    assert gantt(run([(0, 1, 6), (4, 1, 3)], "1x1:a")) == lines("####...##", "    ###")
    assert gantt(run([(0, 1, 6), (3, 1, 3)], "1x1:a")) == lines("####...##", "   .###")


def test_three_queues_and_the_order_within_the_second() -> None:
    result = run([(0, 1, 14), (1, 1, 7), (5, 1, 4)], "1x1:a")
    # 4: job 0 down, job 1 starts.  8: job 1 has had 4, job 2 starts and ends at 12.  Second queue: job 0 waits since 4, job 1 since 8: job 0 first.
    # 20: job 0 has had 4 + 8 = 12 and goes to the last queue, so job 1 stops it, needs 3, and job 0 its last 2.
    assert gantt(result) == lines(
        "####........########...##",
        " ...####............###",
        "     ...####",
    )


def test_gangs_use_up_their_queue_faster() -> None:
    result = run([(0, 2, 5), (1, 1, 2), (1, 1, 3)], "1x2:a")
    # 2: job 0 has had 2 GPUs x 2 s; job 1 takes one of its GPUs, the other is left over for job 2.  5: job 0 finds both free again.
    assert gantt(result) == lines(
        "##...###",
        " .##",
        " .###",
    )


def test_the_latest_started_of_the_last_queue_goes_first() -> None:
    jobs = [(0, 1, 20), (0, 1, 20), (5, 1, 3), (12, 1, 2), (12, 1, 2)]
    result = run(jobs, "1x2:a", thresholds=(4.0,))
    # 5: jobs 0 and 1 are both down since 4 and started together: the higher id, job 1, goes and is back at 8, so it is again the latest started at 12, when two
    # newcomers come and job 0 goes as well. 14: both are back.
    assert gantt(result) == lines(
        "############..########",
        "#####...####..###########",
        "     ###",
        "            ##",
        "            ##",
    )
    # 5: job 1 alone would not make room for 2 GPUs, so job 0 goes and job 1 stays. 9: job 0 is back, the latest started although its id is lower.
    result = run([(0, 2, 20), (0, 1, 20), (5, 2, 4), (12, 1, 2)], "1x3:a", thresholds=(4.0,))
    assert result.segments[result.segments["ended"] == "preempted"][["job", "t1"]].to_numpy().tolist() == [[0, 5.0], [0, 12.0]]


def test_of_two_queues_the_last_is_emptied_first() -> None:
    # 14: job 0 has had 14 GPU-s (last queue), job 1, started later, 6 (second queue). Job 2 takes the place of job 0.
    result = run([(0, 1, 30), (8, 1, 30), (14, 1, 2)], "1x2:a")
    assert result.segments[result.segments["ended"] == "preempted"][["job", "t1"]].to_numpy().tolist() == [[0, 14.0]]


def test_a_job_that_has_waited_long_enough_returns_to_the_first_queue() -> None:
    jobs = [(0, 1, 8), (4, 1, 20)]
    # Without the knob job 1 keeps its GPU in the second queue, which both share from 8 on.
    assert gantt(run(jobs, "1x1:a", thresholds=(4.0,))) == lines("####....................####", "    ####################")
    # Job 0 ran 4 s: after 2 x 4 s of waiting, at 12, it is back in the first queue and stops job 1.
    assert gantt(run(jobs, "1x1:a", thresholds=(4.0,), knob=2.0)) == lines("####........####", "    ########....############")
    # After 1 x 4 s, at 8, job 1 is just leaving the first queue: the same, 4 s earlier.
    assert gantt(run(jobs, "1x1:a", thresholds=(4.0,), knob=1.0)) == lines("####....####", "    ####....################")


def test_after_a_promotion_service_is_counted_anew() -> None:
    result = run([(0, 1, 14), (4, 1, 20), (14, 1, 2)], "1x1:a", thresholds=(4.0,), knob=2.0)
    # 12: job 0 is promoted and stops job 1.  14: job 2 finds it in the first queue and waits till 16, when it has had another 4 GPU-s.
    # 18: job 1 waits since 12, job 0 since 16.  24: job 0 has waited 8 s, twice the 4 s since its promotion.  30: job 1 ends.
    assert gantt(result) == lines(
        "####........####........######",
        "    ########......######......######",
        "              ..##",
    )


def test_head_says_whether_others_may_pass_a_job_that_has_no_room() -> None:
    jobs = [(0, 1, 10), (1, 2, 3), (2, 1, 4)]
    # All in the first queue: nobody is stopped. Job 1 wants both GPUs, job 2 only the one that is free, but waits since later.
    assert gantt(run(jobs, "1x2:a", thresholds=(100.0,))) == lines("##########", " .........###", "  ####")
    assert gantt(run(jobs, "1x2:a", thresholds=(100.0,), head="block")) == lines("##########", " .........###", "  ...........####")


def test_a_job_that_must_not_be_stopped_runs_through() -> None:
    jobs = [(0, 1, 8), (5, 1, 2)]
    assert gantt(run(jobs, "1x1:a")) == lines("#####..###", "     ##")
    assert gantt(run(jobs, "1x1:a", columns={"preemptible": [0.0, 1.0]})) == lines("########", "     ...##")


def test_jobs_without_gpus_stay_in_the_first_queue() -> None:
    # Cores are not service here: job 0 keeps its node against the newcomer.
    result = run([(0, 0, 9), (5, 0, 2)], "1x0:cpu/4c", columns={"cpus": [4.0, 4.0]})
    assert gantt(result) == lines("#########", "     ....##")


@pytest.mark.parametrize("thresholds", [(12.0, 4.0), (5.0, 5.0), (-1.0, 2.0), (0.0,), (float("nan"),)])
def test_thresholds_must_ascend_so_that_one_policy_has_one_name(thresholds: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError, match=r"las: thresholds = .* must be above 0 and each above the one before"):
        Las(thresholds=thresholds)


def test_defaults_are_those_of_the_published_simulator() -> None:
    assert (Las().thresholds, Las().knob, Las().head) == ((3250.0, 7200.0), 0.0, "skip")


def test_it_wakes_itself_only_when_that_can_change_something() -> None:
    # Nobody waits: both arrivals and the first end are all there is, though limits are crossed. Nothing is decided after the last end.
    assert run([(0, 1, 20), (1, 1, 20)], "1x2:a").decisions["t"].tolist() == [0.0, 1.0, 20.0]
    # Job 1 waits in the first queue: one wake-up at 4, when job 0 leaves it. None at 12, when it leaves the second, where nobody waits.
    assert run([(0, 1, 20), (1, 1, 2)], "1x1:a").decisions["t"].tolist() == [0.0, 1.0, 4.0, 6.0]


def test_servers_on_gpus_hold_gpus_and_count_as_service() -> None:
    # Four GPUs. Two workers and two servers take all of them, so that the second job waits; three servers never fit.
    trace = staffed([(0, 2, 2, 10), (0, 1, 1, 1), (0, 2, 3, 1)])
    on_cores = run_staffed(Las(), trace, "1x4:v100/100c")
    on_gpus = run_staffed(Las(servers="gpu"), trace, "1x4:v100/100c")
    assert on_cores.jobs["first_start_s"].tolist()[:2] == [0, 0]
    assert on_gpus.jobs["first_start_s"].tolist()[:2] == [0, 50]
    assert on_gpus.jobs["served_gpu_s"][0] == 200
    assert on_gpus.jobs["outcome"].tolist() == ["completed", "completed", "refused"]
