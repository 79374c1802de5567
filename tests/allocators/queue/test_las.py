from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocators.queue.fifo import Fifo
from allocators.queue.las import Las
from allocators.queue.upgrade import Upgrades
from sim.contract import Grant, JobId, ParameterError, View, instant
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.result import RunResult
from tests.allocators.parameter_server.staffed import run as run_staffed
from tests.allocators.parameter_server.staffed import staffed
from tests.allocators.queue.oracle import Walk
from tests.allocators.queue.walk import (
    MIGRATE,
    After,
    Compared,
    Situation,
    clusters,
    compare,
    gantt,
    placer,
    situations,
    trace_of,
)

LIMITS = (24.0, 80.0)


@dataclass
class Lists(Walk):
    """The walk over the lists of the published simulator: this is the rule."""

    las: Las = field(default_factory=Las)
    queues: list[list[JobId]] = field(default_factory=list)
    appended: set[JobId] = field(default_factory=set)
    counted_from_s: dict[JobId, float] = field(default_factory=dict)
    crossings: list[tuple[float, JobId, int]] = field(default_factory=list)

    def note(self, view: View) -> None:
        """Append newcomers, then demoted jobs, then promoted ones."""
        super().note(view)
        self.queues = self.queues or [[] for _ in range(len(LIMITS) + 1)]
        active = set(view.active.ids.tolist())
        for queue in self.queues:
            queue[:] = [job for job in queue if job in active]
            queue.sort(key=lambda job: job not in view.grants)  # an outage moved some to the others
        held = {job for queue in self.queues for job in queue}
        for job in (*sorted(view.grants), *view.delta.arrived):
            if job not in held:
                service = self.executed_s(view, job) * self.pace(view, job)
                self.queues[sum(limit <= service for limit in LIMITS)].append(job)
        self.appended.clear()
        # A job that an outage hits in the instant of its crossing is appended before the others.
        for at_s, job, following in sorted(
            self.crossings, key=lambda at: (at[1] in view.grants, at)
        ):
            if at_s <= view.now_s and job in active:
                self.move(job, following)
                if at_s == view.now_s and job in view.grants:
                    self.appended.add(job)
        for job in view.waiting.ids.tolist() if self.las.promote_factor else ():
            patience_s = self.las.promote_factor * self.executed_s(view, job)
            if self.queue_of(job) and view.now_s >= instant(self.since_s[job] + patience_s):
                self.counted_from_s[job] = self.held_s(view, job)
                self.since_s[job] = view.now_s
                self.move(job, 0)

    def move(self, job: JobId, queue: int) -> None:
        self.queues[self.queue_of(job)].remove(job)
        self.queues[queue].append(job)

    def close(self, view: View, held: dict[JobId, Grant], started: list[JobId]) -> None:
        """Move those that wait behind those that run, and note when those will cross."""
        for queue in self.queues:
            runs = [job for job in queue if job in held and job not in self.appended]
            kept = [job for job in runs if job not in started or job in view.grants]
            came = [job for job in started if job in runs and job not in kept]
            tail = [job for job in queue if job in self.appended and job in held]
            waits = [job for job in queue if job not in held]
            queue[:] = [*kept, *came, *tail, *waits]
        self.crossings = []
        for job in held:
            pace = self.pace(view, job)
            for at in range(self.queue_of(job), len(LIMITS)) if pace else ():
                left_s = LIMITS[at] / pace - self.executed_s(view, job)
                self.crossings.append((instant(view.now_s + left_s), job, at + 1))

    def queue_of(self, job: JobId) -> int:
        return next((at for at, queue in enumerate(self.queues) if job in queue), -1)

    def pace(self, view: View, job: JobId) -> float:
        demand = view.demand(job)
        if self.las.measure == "s":
            return float(demand.replicas * (demand.gpus or demand.cpus) > 0)
        return demand.replicas * demand.gpus

    def held_s(self, view: View, job: JobId) -> float:
        demand = view.demand(job)
        return view.one("served_gpu_s", job) / (demand.replicas * demand.gpus or 1)

    def executed_s(self, view: View, job: JobId) -> float:
        return self.held_s(view, job) - self.counted_from_s.get(job, 0.0)


def rank(walk: Walk, view: View, job: JobId, runs: bool) -> tuple[float, ...]:
    assert isinstance(walk, Lists)
    queue = walk.queue_of(job)
    return (queue, job if walk.las.order == "arrival" else walk.queues[queue].index(job))


def beats(walk: Walk, view: View, waiting: JobId, running: JobId) -> bool:
    assert isinstance(walk, Lists)
    one, other = walk.queue_of(waiting), walk.queue_of(running)
    if one != other:
        return one < other
    if walk.las.order == "arrival":
        return waiting < running
    behind = walk.queues[one].index(waiting) < walk.queues[one].index(running)
    return running in walk.appended and behind


def pair_of(situation: Situation, **params: Any) -> tuple[Las, Lists]:
    fast = Las(thresholds=LIMITS, **situation.params, **params)
    upgrades = fast._preemption._upgrades and Upgrades(placer(situation.params), fast._gain_s)
    walk = Lists(
        rank, beats, placer(situation.params), situation.params["backfill"], upgrades, las=fast
    )
    return fast, walk


# At 58 a node comes back while nobody waits for one GPU; job 4 takes it and stops job 5, which must
# not be judged by what was known before.
NODE_COMES_BACK = Situation(
    trace_of(
        [
            (0, 2, 35),
            (3, 6, 54),
            (7, 3, 28),
            (11, 2, 18),
            (15, 6, 13),
            (16, 1, 39),
            (26, 1, 51),
            (34, 1, 59),
        ],
        preemptible=[0.0, 1, 1, 1, 1, 1, 1, 1],
    ),
    clusters("2x4:a"),
    Conditions(faults=Faults(outages="0:41:58;1:17:22")),
    {"backfill": "first_fit", "placement": "spread"},
)


ORDERS = st.sampled_from(["tiresias", "tiresias", "arrival"])
MEASURES = st.sampled_from(["gpu_s", "s"])

# At 34 job 4 stops jobs 1 and 2; job 1 goes before job 6, which stood for all jobs of two GPUs, and
# before job 2.
BEFORE_ITS_LIKE = Situation(
    trace_of(
        [
            *((0, 2, 17), (0, 2, 17), (0, 1, 18), (0, 1, 1), (6, 4, 23), (6, 4, 22), (12, 2, 11)),
            *(
                (13, 2, 12),
                (14, 1, 10),
                (23, 2, 6),
                (25, 1, 6),
                (25, 1, 13),
                (30, 1, 9),
                (33, 2, 2),
            ),
        ]
    ),
    clusters("1x2:a,2x4:b,1x4:c"),
    Conditions(overheads=Overheads(restart_s=1.0)),
    {"backfill": "first_fit", "placement": "consolidate", "types": "cheapest", "mix": False},
)


@example(BEFORE_ITS_LIKE, 1.0, "tiresias", "gpu_s", "upgrade")
@example(NODE_COMES_BACK, 0.0, "tiresias", "gpu_s", "upgrade")
@given(situations(pauses=True), st.sampled_from([0.0, 0.0, 0.25, 1.0]), ORDERS, MEASURES, MIGRATE)
@settings(max_examples=60, deadline=None)
def test_does_what_the_walk_does(
    situation: Situation, promote_factor: float, order: str, measure: str, migrate: str
) -> None:
    params = {
        "promote_factor": promote_factor,
        "order": order,
        "measure": measure,
        "migrate": migrate,
    }
    compare(situation, *pair_of(situation, **params))


@given(situations(simple=True), ORDERS, MEASURES)
@settings(max_examples=40, deadline=None)
def test_runs_what_fits_from_an_empty_cluster(
    situation: Situation, order: str, measure: str
) -> None:
    compare(situation, *pair_of(situation, order=order, measure=measure), counts=True)


@given(situations(pauses=True, migrate=True), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_takes_over_a_cluster_in_operation(situation: Situation, at_s: int) -> None:
    compared = Compared(*pair_of(situation))
    Simulator(
        situation.trace,
        situation.cluster,
        After(at_s, Fifo(mix=True), compared),
        situation.conditions,
    ).run()


@given(situations(simple=True), st.sampled_from([0.5, 3.0, 7.0]), st.sampled_from([0.0, 0.5, 2.0]))
@settings(max_examples=25, deadline=None)
def test_decisions_that_take_time_lose_no_job(
    situation: Situation, latency_s: float, promote_factor: float
) -> None:
    conditions = replace(
        situation.conditions,
        overheads=replace(
            situation.conditions.overheads, on_preempt="checkpoint", latency_s=latency_s
        ),
    )
    result = Simulator(
        situation.trace,
        situation.cluster,
        Las(thresholds=LIMITS, promote_factor=promote_factor, **situation.params),
        conditions,
    ).run()
    assert set(result.jobs["outcome"]) <= {"completed", "impossible"}


def run(
    jobs: Sequence[tuple[float, int, float]],
    cluster: str,
    thresholds: tuple[float, ...] = (4.0, 12.0),
    columns: dict[str, list[Any]] | None = None,
    outages: str = "",
    **params: Any,
) -> RunResult:
    trace, allocator = trace_of(jobs, **(columns or {})), Las(thresholds=thresholds, **params)
    conditions = Conditions(faults=Faults(outages=outages))
    return Simulator(trace, clusters(cluster), allocator, conditions).run()


def lines(*rows: str) -> str:
    return "\n".join(rows)


def test_a_newcomer_waits_for_the_running_job_to_leave_its_queue() -> None:
    result = run([(0, 1, 6), (1, 1, 3)], "1x1:a")
    # 1: both in the first queue, the running one before the waiting one.  4: job 0 has had 4 GPU-s
    # and goes down; job 1 takes its place, by a wake-up alone.
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
    # 4: job 0 down, job 1 starts.  8: job 1 has had 4, job 2 starts and ends at 12.  Second queue:
    # job 0 waits since 4, job 1 since 8: job 0 first. 20: job 0 has had 4 + 8 = 12 and goes to the
    # last queue, so job 1 stops it, needs 3, and job 0 its last 2.
    assert gantt(result) == lines(
        "####........########...##",
        " ...####............###",
        "     ...####",
    )


def test_gangs_use_up_their_queue_faster() -> None:
    result = run([(0, 2, 5), (1, 1, 2), (1, 1, 3)], "1x2:a")
    # 2: job 0 has had 2 GPUs x 2 s; job 1 takes one of its GPUs, the other is left over for job 2.
    # 5: job 0 finds both free again.
    assert gantt(result) == lines(
        "##...###",
        " .##",
        " .###",
    )


def test_the_last_of_the_list_goes_first_and_comes_back_first() -> None:
    jobs = [(0, 1, 20), (0, 1, 20), (5, 1, 3), (12, 1, 2), (12, 1, 2)]
    # 5: jobs 0 and 1 are both down since 4, in this order: job 1 goes. 8: it is back, behind job 0.
    # 12: two newcomers, so both go. 14: both are back.
    assert gantt(run(jobs, "1x2:a", thresholds=(4.0,))) == lines(
        "############..########",
        "#####...####..###########",
        "     ###",
        "            ##",
        "            ##",
    )


def test_a_demoted_job_goes_behind_those_that_wait_in_its_new_queue() -> None:
    # 4: job 0 has had 4 GPU-s, job 1 takes its place. 8: so has job 1: both are in the second
    # queue, job 0 waits there already and goes first. It stays: job 1 does not run, so it waits
    # behind it.
    jobs = [(0, 1, 8), (4, 1, 20)]
    assert gantt(run(jobs, "1x1:a", thresholds=(4.0,))) == lines(
        "####....####", "    ####....################"
    )


def test_a_stopped_job_goes_before_those_that_wait() -> None:
    # 4: job 0 goes down and waits. 8: job 1 follows, behind it: job 0 runs on. 9: job 2 stops job
    # 0, which at 11 goes before job 1 although that waits since 8.
    jobs = [(0, 1, 8), (4, 1, 20), (9, 1, 2)]
    assert gantt(run(jobs, "1x1:a", thresholds=(4.0,))) == lines(
        "####....#..###", "    ####......################", "         ##"
    )


def test_an_outage_puts_a_job_behind_those_that_run_on() -> None:
    # 4: jobs 0 and 1 go down, in this order. 6: job 0 loses its node and its work and begins anew
    # on the third node, behind job 1: so it is stopped for job 3 at 8.
    jobs = [(0, 1, 8), (0, 1, 12), (4, 1, 1), (8, 1, 2)]
    assert gantt(run(jobs, "3x1:a", thresholds=(4.0,), outages="0:6:20")) == lines(
        "########..######", "############", "    #", "        ##"
    )
    # Job 1 (2 GPUs) has had 4 GPU-s at 2 and job 0 at 4, when nobody waits. 5: an outage hits both.
    # 6: job 2 comes first, then job 1, which was the first to go down.
    jobs = [(0, 1, 6), (0, 2, 6), (5, 1, 2)]
    assert gantt(run(jobs, "1x3:a", thresholds=(4.0,), outages="0:5:6")) == lines(
        "#####...######", "#####.######", "     .##"
    )


def test_arrival_walks_each_queue_by_submission() -> None:
    # 4: job 0 (2 GPUs, 8 GPU-s) is down, job 1 runs; 2 of 3 GPUs go to nobody else: job 0 runs on
    # beside it. Job 2 (2 GPUs, first queue) has stopped job 0 at 5; at 7 both are in the second
    # queue, and job 0 was submitted before.
    jobs = [(0, 2, 10), (5, 2, 6)]
    listed = gantt(run(jobs, "1x2:a", thresholds=(4.0, 100.0), order="arrival"))
    assert listed == lines("#####..#####", "     ##.....####")
    # Job 1 wants both GPUs and was submitted before job 2: by lists that runs on, here it is
    # stopped.
    jobs = [(0, 1, 6), (1, 2, 4), (1, 1, 12)]
    assert gantt(run(jobs, "1x2:a", thresholds=(100.0,))) == lines(
        "######", " ............####", " ############"
    )
    assert gantt(run(jobs, "1x2:a", thresholds=(100.0,), order="arrival")) == lines(
        "######", " .....####", " #####....#######"
    )


def test_seconds_count_alike_for_every_gang() -> None:
    # Job 0 holds 2 GPUs: by GPU-seconds it goes down at 2, by seconds at 4.
    jobs = [(0, 2, 8), (1, 2, 2)]
    assert gantt(run(jobs, "1x2:a", thresholds=(4.0,))) == lines("##..######", " .##")
    assert gantt(run(jobs, "1x2:a", thresholds=(4.0,), measure="s")) == lines(
        "####..####", " ...##"
    )
    assert [
        rule and rule.per_gpu for rule in (Las(measure="gpu_s").rule(), Las(measure="s").rule())
    ] == [True, False]


def test_a_job_moves_to_a_faster_type_when_that_saves_more_than_the_pause() -> None:
    # Type b has half the speed of a. 4: job 1 has had 4 s; moving saves half of as many.
    jobs = [(0, 1, 4), (0, 1, 10)]
    assert gantt(run(jobs, "1x1:a,1x1:b")) == lines("####", "############")
    assert gantt(run(jobs, "1x1:a,1x1:b", migrate="never")) == lines("####", "#" * 20)
    for restart_s, moves in ((1.0, 1), (2.0, 0)):
        conditions = Conditions(overheads=Overheads(restart_s=restart_s))
        made = trace_of(jobs), clusters("1x1:a,1x1:b"), Las(), conditions
        assert Simulator(*made).run().jobs["preemptions"].tolist() == [0, moves]


def test_no_job_moves_where_a_move_would_lose_its_work() -> None:
    conditions = Conditions(overheads=Overheads(on_preempt="lose_all"))
    made = trace_of([(0, 1, 4), (0, 1, 10)]), clusters("1x1:a,1x1:b"), Las(), conditions
    assert Simulator(*made).run().jobs["finish_s"].tolist() == [4.0, 20.0]


def test_of_two_queues_the_last_is_emptied_first() -> None:
    # 14: job 0 has had 14 GPU-s (last queue), job 1, started later, 6 (second queue). Job 2 takes
    # the place of job 0.
    result = run([(0, 1, 30), (8, 1, 30), (14, 1, 2)], "1x2:a")
    assert result.segments[result.segments["ended"] == "preempted"][
        ["job", "t1"]
    ].to_numpy().tolist() == [[0, 14.0]]


def test_a_job_that_has_waited_long_enough_returns_to_the_first_queue() -> None:
    jobs = [(0, 1, 8), (4, 2, 4), (4, 1, 20)]
    # 4: job 0 is down. Job 1 has no room, job 2 runs, and is down at 8, behind job 0.
    # With a factor of 0.5 job 0, which ran 4 s, is back in the first queue after 2 s, at 6, behind
    # job 1, and waits there till job 2 goes down at 8.
    assert gantt(run(jobs[::2], "1x1:a", thresholds=(4.0,))) == lines(
        "####....####", "    ####....################"
    )
    # From 8 on job 0 counts anew: it is down at 12, when it ends; job 2, back at 10 by the factor,
    # then has 4 s more in the first queue either way.
    three = [(0, 1, 12), (4, 1, 20)]
    assert gantt(run(three, "1x1:a", thresholds=(4.0,))) == lines(
        "####....########", "    ####........################"
    )
    # Knob 1: job 1, which ran 4 s and waits since 8, is back in the first queue at 12 and stops
    # job 0, which waits first in the second; at 16 job 1 is down, behind job 0.
    assert gantt(run(three, "1x1:a", thresholds=(4.0,), promote_factor=1.0)) == lines(
        "####....####....####", "    ####....####....############"
    )


def test_head_says_whether_others_may_pass_a_job_that_has_no_room() -> None:
    jobs = [(0, 1, 10), (1, 2, 3), (2, 1, 4)]
    # All in the first queue: nobody is stopped. Job 1 wants both GPUs, job 2 only the one that is
    # free, but waits since later.
    assert gantt(run(jobs, "1x2:a", thresholds=(100.0,))) == lines(
        "##########", " .........###", "  ####"
    )
    assert gantt(run(jobs, "1x2:a", thresholds=(100.0,), backfill="none")) == lines(
        "##########", " .........###", "  ...........####"
    )


def test_a_job_that_must_not_be_stopped_runs_through() -> None:
    jobs = [(0, 1, 8), (5, 1, 2)]
    assert gantt(run(jobs, "1x1:a")) == lines("#####..###", "     ##")
    assert gantt(run(jobs, "1x1:a", columns={"preemptible": [0.0, 1.0]})) == lines(
        "########", "     ...##"
    )


def test_jobs_without_gpus_stay_in_the_first_queue() -> None:
    # Cores are not service here: job 0 keeps its node against the newcomer.
    result = run([(0, 0, 9), (5, 0, 2)], "1x0:cpu/4c", columns={"cpus": [4.0, 4.0]})
    assert gantt(result) == lines("#########", "     ....##")


@pytest.mark.parametrize(
    "thresholds", [(12.0, 4.0), (5.0, 5.0), (-1.0, 2.0), (0.0,), (float("nan"),)]
)
def test_thresholds_must_ascend_so_that_one_policy_has_one_name(
    thresholds: tuple[float, ...],
) -> None:
    with pytest.raises(
        ParameterError, match=r"las: thresholds = .* must be above 0 and each above the one before"
    ):
        Las(thresholds=thresholds)


def test_a_promotion_after_less_than_a_second_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"promote_factor = 0.001 .* at least 0.334\.$"):
        Las(thresholds=(3.0, 20.0), promote_factor=0.001)
    for promote_factor in (0.0, 0.334):
        Las(thresholds=(3.0, 20.0), promote_factor=promote_factor)
    Las(promote_factor=0.001)  # 3.25 GPU-s under the default thresholds


def test_defaults_are_those_of_the_published_simulator() -> None:
    assert (Las().thresholds, Las().promote_factor, Las().backfill) == (
        (3250.0, 7200.0),
        0.0,
        "first_fit",
    )


def test_it_wakes_itself_only_when_that_can_change_something() -> None:
    # Nobody waits: both arrivals and the first end are all there is, though limits are crossed.
    # Nothing is decided after the last end.
    assert run([(0, 1, 20), (1, 1, 20)], "1x2:a").decisions["t"].tolist() == [0.0, 1.0, 20.0]
    # Job 1 waits in the first queue: one wake-up at 4, when job 0 leaves it. None at 12, when it
    # leaves the second, where nobody waits.
    assert run([(0, 1, 20), (1, 1, 2)], "1x1:a").decisions["t"].tolist() == [0.0, 1.0, 4.0, 6.0]


def test_servers_on_gpus_hold_gpus_and_count_as_service() -> None:
    # Four GPUs. Two workers and two servers take all of them, so that the second job waits; three
    # servers never fit.
    trace = staffed([(0, 2, 2, 10), (0, 1, 1, 1), (0, 2, 3, 1)])
    on_cores = run_staffed(Las(), trace, "1x4:v100/100c")
    on_gpus = run_staffed(Las(servers="gpu"), trace, "1x4:v100/100c")
    assert on_cores.jobs["first_start_s"].tolist()[:2] == [0, 0]
    assert on_gpus.jobs["first_start_s"].tolist()[:2] == [0, 50]
    assert on_gpus.jobs["served_gpu_s"][0] == 200
    assert on_gpus.jobs["outcome"].tolist() == ["completed", "completed", "refused"]
