from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocators.queue.fifo import Fifo
from allocators.queue.running_index import MAX_PRIORITY_LIMIT
from allocators.queue.srtf import Remaining, Srtf, _gain_s
from allocators.queue.upgrade import Upgrades
from sim.contract import ContractError, Demand, Grant, JobId, Plan, View, instant
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.estimators import Biased
from sim.result import RunResult
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


@dataclass
class Sorted(Walk):
    """The walk over one list that is sorted anew at every decision, which leaves equals as they
    were.

    Where estimators are right, a job that ran had needed more before than its equals that waited.
    """

    line: list[JobId] = field(default_factory=list)
    ran: set[JobId] = field(default_factory=set)
    size: str = "time"

    def note(self, view: View) -> None:
        """Sort the list of the decision before, newcomers last."""
        super().note(view)
        active = view.active.ids.tolist()
        known = set(self.line)
        self.line = [job for job in self.line if job in set(active)]
        if self.size != "gpus":
            self.line.sort(key=lambda job: job in self.ran)
        # Jobs found running at the first decision ran before it, so they stand before newcomers.
        new = [job for job in active if job not in known]
        self.line += sorted(new, key=lambda job: job not in view.grants)
        self.line.sort(key=lambda job: self.need(view, job))

    def close(self, view: View, held: dict[JobId, Grant], started: list[JobId]) -> None:
        self.ran = set(held)

    def need(self, view: View, job: JobId) -> float:
        # With the rigid model work is seconds on a GPU of speed 1 times the speed of the first
        # type, which is what durations were measured on.
        gpus = max(view.one("gpus", job), 1.0)
        if self.size == "gpus":
            return gpus
        return instant(view.one("remaining_work", job)) * (gpus if self.size == "gpu_time" else 1)


def remaining(walk: Walk, view: View, job: JobId, runs: bool) -> tuple[float, ...]:
    assert isinstance(walk, Sorted)
    return (walk.line.index(job),)


def beats(walk: Walk, view: View, waiting: JobId, running: JobId) -> bool:
    assert isinstance(walk, Sorted)
    return walk.line.index(waiting) < walk.line.index(running)


def pair_of(situation: Situation, size: str = "time", **params: Any) -> tuple[Srtf, Sorted]:
    fast = Srtf(size=size, **situation.params, **params)
    upgrades = fast._preemption._upgrades and Upgrades(placer(situation.params), _gain_s)
    walk = Sorted(
        remaining,
        beats,
        placer(situation.params),
        situation.params["backfill"],
        upgrades,
        size=size,
    )
    return fast, walk


def foreseen(situation: Situation) -> Situation:
    """Leave out estimators that jobs outlive: then they need more from one instant to the next, and
    equals are told apart by less than a microsecond.
    """
    estimator = (
        Biased(2.0)
        if situation.conditions.estimator == Biased(0.5)
        else situation.conditions.estimator
    )
    return replace(situation, conditions=replace(situation.conditions, estimator=estimator))


SIZES = st.sampled_from(["time", "gpu_time", "gpus"])
PLAIN = {"backfill": "first_fit", "placement": "consolidate", "types": "fastest", "mix": False}
CHANGES_PACE = Situation(
    trace_of([*[(0, 1, 1)] * 3, (0, 1, 53), *[(1, 1, 1)] * 3, (3, 2, 47), (11, 4, 28), (13, 8, 1)]),
    clusters("1x2:a,2x4:b,1x4:c"),
    Conditions(),
    PLAIN | {"placement": "pack"},
)
"""At 13 s two jobs need as much, and one of them moves to the type of the other."""
FOUND_RUNNING = Situation(
    trace_of([(0, 3, 1), (0, 1, 3), *[(0, 1, 2)] * 3, (0, 1, 3), (0, 1, 1), (0, 3, 1), (2, 1, 1)]),
    clusters("2x4:a"),
    Conditions(),
    PLAIN | {"migrate": "upgrade"},
)
"""Of two running jobs that need as much, the second one stays unless the first may take its GPU."""


@example(CHANGES_PACE, "time", "upgrade")
@given(situations(), SIZES, MIGRATE)
@settings(max_examples=60, deadline=None)
def test_does_what_the_walk_does(situation: Situation, size: str, migrate: str) -> None:
    compare(foreseen(situation), *pair_of(situation, size, migrate=migrate))


@given(situations(simple=True), SIZES)
@settings(max_examples=40, deadline=None)
def test_runs_what_fits_from_an_empty_cluster(situation: Situation, size: str) -> None:
    compare(foreseen(situation), *pair_of(situation, size), counts=True)


def run(
    jobs: Sequence[tuple[float, int, float]],
    cluster: str,
    conditions: Conditions | None = None,
    columns: dict[str, list[Any]] | None = None,
    **params: Any,
) -> RunResult:
    return Simulator(
        trace_of(jobs, **(columns or {})), clusters(cluster), Srtf(**params), conditions
    ).run()


def lines(*rows: str) -> str:
    return "\n".join(rows)


PREEMPTIBLE = [(0, 1, 10), (1, 1, 2), (1, 1, 12)]
PASSING = [(0, 2, 10), (1, 4, 3), (2, 1, 5), (3, 1, 1)]
FIRST_KEPT = {"preemptible": [0.0, 1.0, 1.0, 1.0]}
SCHEDULES: dict[str, tuple[list[tuple[float, int, float]], str, dict[str, Any], list[str]]] = {
    # 2: job 1 needs 3, job 0 still 6.  3: job 2 needs 1, job 1 still 2.  4: job 2 is done; 2 < 4 <
    # 6, so jobs 1, 3, 0.
    "one GPU is always with the job that needs least": (
        [(0, 1, 8), (2, 1, 3), (3, 1, 1), (4, 1, 4)],
        "1x1:a",
        {},
        ["##........######", "  #.##", "   #", "    ..####"],
    ),
    # 1: job 0 still needs 4, no more than job 1.  2: 3, more than job 2, which runs to 4.  Then 3 <
    # 4: job 0 before job 1.
    "equal remaining time stops no job": (
        [(0, 1, 5), (1, 1, 4), (2, 1, 2)],
        "1x1:a",
        {},
        ["##..###", " ......####", "  ##"],
    ),
    # 2: job 0 needs 4 more, as job 2, which waits for both GPUs since 1 and needed less then: when
    # job 1 leaves its GPU at 2, job 2 goes first and job 0 is stopped.
    "equals keep the order of the decision before": (
        [(0, 1, 6), (0, 1, 2), (1, 2, 4)],
        "1x2:a",
        {},
        ["##....####", "##", " .####"],
    ),
    # Job 2 comes at 2, where job 0 is before it.
    "a newcomer goes behind its equals": (
        [(0, 1, 6), (0, 1, 2), (2, 2, 4)],
        "1x2:a",
        {},
        ["######", "##", "  ....####"],
    ),
    # 2: job 0 needs 8 s on one GPU, job 1 5 s on two.
    "size is time": (
        [(0, 1, 10), (2, 2, 5)],
        "1x2:a",
        {},
        ["##.....########", "  #####"],
    ),
    # 8 < 10 GPU-s.
    "size is GPU time": (
        [(0, 1, 10), (2, 2, 5)],
        "1x2:a",
        {"size": "gpu_time"},
        ["##########", "  ........#####"],
    ),
    # The fewest GPUs, then by submission: job 2 stops job 0 for its one GPU, job 3 none.
    "size is GPUs": (
        [(0, 2, 4), (1, 1, 9), (2, 1, 1), (3, 1, 1)],
        "1x2:a",
        {"size": "gpus"},
        ["#.........###", " #########", "  #", "   #"],
    ),
    "waiting jobs of equal length start by id": (
        [(0, 1, 2), (1, 1, 3), (1, 1, 3)],
        "1x1:a",
        {},
        ["##", " .###", " ....###"],
    ),
    # 2: jobs 0, 1, 2 still need 18, 8, 4; job 3 needs 2 GPUs for 5. Job 0 alone gives 1, with job 1
    # it is 3: so job 0 is not needed after all and runs on. 6: job 2 leaves 1 GPU. Job 1 needs 8
    # more seconds and one more GPU: job 0, which needs 14, goes.  7: job 3 is done, job 0 goes on.
    "the worst go first, and no more than needed": (
        [(0, 1, 20), (0, 2, 10), (0, 1, 6), (2, 2, 5)],
        "1x4:a",
        {},
        ["######.##############", "##....########", "######", "  #####"],
    ),
    # 1: for job 1 all 4 GPUs of job 0 come free; job 2 takes 2 of them, job 3 finds 1.  4: job 1 is
    # done, 2 are free: job 3.  10: job 0.
    "what is left over goes to the next in order": (
        [(0, 4, 20), (1, 1, 3), (1, 2, 5), (1, 2, 6)],
        "1x4:a",
        {},
        ["#.........###################", " ###", " #####", " ...######"],
    ),
    # Job 0 may not be stopped, though job 1 needs less.
    "a job that must not be stopped runs through": (
        PREEMPTIBLE,
        "1x1:a",
        {"columns": {"preemptible": [0.0, 1.0, 1.0]}},
        ["##########", " .........##", " ...........############"],
    ),
    # Here it may. 3: it still needs 9, less than job 2.
    "a job that may be stopped is": (
        PREEMPTIBLE,
        "1x1:a",
        {"columns": {"preemptible": [1.0, 1.0, 1.0]}},
        ["#..#########", " ##", " ...........############"],
    ),
    # Job 1 wants all 4 GPUs, 2 of which job 0 holds to 10. Job 2 needs longer than job 1 and is
    # behind it, job 3 before it.
    "others pass a job for which no room can be made": (
        PASSING,
        "1x4:a",
        {"columns": FIRST_KEPT},
        ["##########", " .........###", "  #####", "   #"],
    ),
    "none passes without backfill": (
        PASSING,
        "1x4:a",
        {"columns": FIRST_KEPT, "backfill": "none"},
        ["##########", " .........###", "  ...........#####", "   #"],
    ),
    # Type b has half the speed of a, on which durations were measured.
    # 2: job 1 has done 1 of 10 on b. Job 2 needs 9 there as well, not less: job 1 stays, although
    # it will take 18 more seconds and job 2 would have 9 on a.
    "jobs are compared as they would run on the same GPU": (
        [(0, 1, 4), (0, 1, 10), (2, 1, 9)],
        "1x1:a,1x1:b",
        {"migrate": "never"},
        ["####", "####################", "  ..#########"],
    ),
    # With 8 instead it is stopped, and continues at 4 on a, which job 0 leaves: 9 seconds.
    "a shorter one on the same GPU stops it": (
        [(0, 1, 4), (0, 1, 10), (2, 1, 8)],
        "1x1:a,1x1:b",
        {"migrate": "never"},
        ["####", "##..#########", "  ################"],
    ),
    # 8: job 0 on a has done 8 of 24, job 1 on b 4 of 21: 16 < 17, so job 1 goes for job 2, though
    # it began as the shorter of the two.
    "a job that falls behind on a slow GPU is stopped first": (
        [(0, 1, 24), (0, 1, 21), (8, 1, 1)],
        "1x1:a,1x1:b",
        {"columns": {"gpu_types_allowed": ["a", "b", "a|b"]}},
        ["#" * 24, "#" * 8 + ".." + "#" * 34, " " * 8 + "##"],
    ),
    # 2: job 0 still needs 6, job 1 takes its place, and all 8 are to do again.  6: job 2 with 5
    # goes before job 0 with 8.
    "work that a stop destroys counts again": (
        [(0, 1, 8), (2, 1, 4), (3, 1, 5)],
        "1x1:a",
        {"conditions": Conditions(overheads=Overheads(on_preempt="lose_all"))},
        ["##.........########", "  ####", "   ...#####"],
    ),
}


@pytest.mark.parametrize(
    ("jobs", "cluster", "params", "expected"), SCHEDULES.values(), ids=SCHEDULES
)
def test_schedules(
    jobs: list[tuple[float, int, float]], cluster: str, params: dict[str, Any], expected: list[str]
) -> None:
    assert gantt(run(jobs, cluster, **params)) == lines(*expected)


def test_a_stopped_job_counts_the_restart_that_it_would_pay() -> None:
    # 2: job 1 (3 s) stops job 0 (8 more). 4: job 2 comes with 10 s. 5: job 0 needs 8, and 5 for the
    # restart: job 2 goes first.
    costs = Conditions(overheads=Overheads(restart_s=5.0))
    result = run([(0, 1, 10), (2, 1, 3), (4, 1, 10)], "1x1:a", costs)
    assert result.jobs["finish_s"].tolist() == [28.0, 5.0, 15.0]


def test_a_job_that_never_ran_counts_the_pause_of_its_first_start() -> None:
    # Job 0 pauses until 10 and runs until 30; of its 20 s of work 9 are left at 21. Job 1 comes
    # with 6 s, and 10 for its start: job 0 needs less. Without a start cost job 1 would go first.
    costs = Conditions(overheads=Overheads(start_s=10.0))
    result = run([(0, 1, 20), (21, 1, 6)], "1x1:a", costs)
    assert result.jobs["finish_s"].tolist() == [30.0, 46.0]


def test_a_start_that_an_outage_called_off_is_no_restart_later() -> None:
    # Decisions take 2 s. Job 0 (10 s) is to start at 2, but the node is down from 1 to 5. Job 1
    # comes at 3 with 13 s. Job 0 never ran, so it needs 10 s without the 6 of a restart: it runs
    # from 7 to 17, and job 1 from 19 on.
    costs = Conditions(
        overheads=Overheads(restart_s=6.0, latency_s=2.0), faults=Faults(outages="0:1:5")
    )
    result = run([(0, 1, 10), (3, 1, 13)], "1x1:a", costs)
    assert result.jobs["finish_s"].tolist() == [17.0, 32.0]


# On type c, of speed 2, job 2 stops both at 4; they go on at 6, with 16 s and 17 s left after a
# restart of 5 s. At 7 job 3 stops job 1, which needs more than job 0, and goes on at 10.
CLOSE = [(0, 1, 20), (0, 1, 21), (4, 2, 2), (7, 1, 3)]
RESTART = Conditions(overheads=Overheads(restart_s=5.0))


def test_jobs_that_were_stopped_do_not_stop_each_other() -> None:
    assert run(CLOSE, "1x2:c", RESTART).jobs["finish_s"].tolist() == [27.0, 32.0, 6.0, 10.0]


def test_an_order_in_which_two_jobs_go_before_each_other_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Remaining, "limit", lambda *_: MAX_PRIORITY_LIMIT)
    with pytest.raises(
        ContractError,
        match=(
            r"^Srtf broke the contract at 0\.000 s: the jobs in rows \d and \d go before each other"
        ),
    ):
        run([(0, 1, 4), (0, 1, 5)], "1x1:a")


def test_a_job_moves_to_a_faster_type_when_the_gain_exceeds_the_pause() -> None:
    # Type b has half the speed of a. 4: job 1 needs 16 s there and 8 s on a.
    jobs = [(0, 1, 4), (0, 1, 10)]
    assert gantt(run(jobs, "1x1:a,1x1:b")) == lines("####", "############")
    assert gantt(run(jobs, "1x1:a,1x1:b", migrate="never")) == lines("####", "#" * 20)
    # Moved: 4 s + the pause + 8 s. A pause of 9 s would make it 21 s.
    for restart_s, finish_s in ((7.0, 19.0), (8.0, 20.0), (9.0, 20.0)):
        costs = Conditions(overheads=Overheads(restart_s=restart_s))
        assert run(jobs, "1x1:a,1x1:b", costs).jobs["finish_s"].tolist() == [4.0, finish_s]


def test_waiting_jobs_take_faster_room_before_running_ones_and_slower_room_after_them() -> None:
    # 4: a comes free; job 2 waits and takes it, job 1 stays on b. 6: job 1 moves to a, and job 3,
    # which waits for b and needs longer, has b at the same instant.
    jobs = [(0, 1, 4), (0, 1, 30), (3, 1, 2), (5, 1, 60)]
    types = {"gpu_types_allowed": ["a", "a|b", "a", "b"]}
    result = run(jobs, "1x1:a,1x1:b", columns=types)
    starts = result.segments.groupby("job")["t0"].apply(list).to_dict()
    assert starts == {0: [0.0], 1: [0.0, 6.0], 2: [4.0], 3: [6.0]}


def test_the_largest_gain_moves_first() -> None:
    # 4: one GPU of a is free; of the jobs on b, job 1 would gain 8 s and job 2 18 s.
    result = run([(0, 1, 4), (0, 1, 10), (0, 1, 20)], "1x1:a,1x2:b")
    assert result.jobs["preemptions"].tolist() == [0, 0, 1]
    assert result.jobs["finish_s"].tolist() == [4.0, 20.0, 22.0]


def test_only_jobs_on_admitted_types_are_stopped() -> None:
    # Job 1 has most to do but holds b, which job 2 does not admit.
    result = run(
        [(0, 1, 10), (0, 1, 30), (1, 1, 2)],
        "1x1:a,1x1:b",
        columns={"gpu_types_allowed": ["a", "b", "a"]},
    )
    assert result.jobs["preemptions"].tolist() == [1, 0, 0]
    assert result.jobs["finish_s"].tolist() == [12.0, 60.0, 3.0]


def test_a_stopped_job_moves_where_there_is_room() -> None:
    # 2: job 1 ends; one GPU is free on each node. Job 3 wants both of one node: job 2 goes, being
    # longest, and continues on the other node at once.
    result = run([(0, 1, 20), (0, 1, 2), (0, 1, 30), (3, 2, 5)], "2x2:a", placement="consolidate")
    assert gantt(result) == lines("#" * 20, "##", "#" * 30, "   #####")
    where = result.placements.merge(result.segments, left_on="segment", right_index=True)
    assert where[where["job"] == 2][["t0", "node"]].to_numpy().tolist() == [[0.0, 1], [3.0, 0]]
    assert where[where["job"] == 3]["node"].tolist() == [1]


def test_a_job_that_outlives_its_believed_size_is_asked_anew_without_any_event() -> None:
    result = run([(0, 1, 40), (1, 1, 30)], "1x1:a", Conditions(estimator=Biased(0.1)))
    # Believed: 4 and 3. 1: 3 left, no more than job 1. At 4 job 0 turns out to need 8 in all, so 4
    # more: job 1 goes first, 1/64 s later.
    first = result.segments.iloc[0]
    assert (first["job"], first["ended"]) == (0, "preempted")
    assert abs(first["t1"] - (4 + 1 / 64)) < 1e-9
    # Job 1, believed to need 3, has 6 in all after 3, so 3 more: less than the 3.98 of job 0. After
    # 6 it has 12 in all: job 0.
    assert abs(result.segments.iloc[1]["t1"] - (10 + 3 / 64)) < 0.05


def test_a_job_that_has_lost_its_work_stands_before_those_that_need_as_much() -> None:
    # 1: job 2 stops job 0, which needs 3 more and stands before job 1 (4 s). 2: it needs 4 again.
    jobs = [(0, 1, 4), (0, 1, 4), (1, 1, 1)]
    lost = Conditions(overheads=Overheads(on_preempt="lose_all"))
    assert gantt(run(jobs, "1x1:a", lost)) == lines("#.####", "......####", " #")
    # 2: an outage takes the work of jobs 0 and 1, which needed 2 and 3 more at 1. 3: both need 3
    # again; job 3 has one GPU, job 0 the other.
    jobs = [(0, 1, 3), (0, 1, 3), (0, 1, 1), (2, 1, 1)]
    outage = Conditions(faults=Faults(outages="0:2:3"))
    assert gantt(run(jobs, "1x2:a", outage)) == lines("##.###", ".#..###", "#", "  .#")


LOSES_WORK_LATE = Situation(
    trace_of(
        [
            (0, 2, 8),
            (1, 8, 20),
            (2, 1, 58),
            (7, 2, 26),
            (11, 4, 21),
            (18, 1, 39),
            (21, 4, 60),
            (24, 1, 28),
            (26, 6, 1),
            (26, 2, 8),
            (29, 3, 16),
        ],
        preemptible=[0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0],
    ),
    clusters("2x4:a"),
    Conditions(overheads=Overheads(on_preempt="lose_all")),
    {"backfill": "first_fit"},
)


@example(LOSES_WORK_LATE, 3.0)
@given(situations(simple=True), st.sampled_from([0.5, 3.0, 7.0]))
@settings(max_examples=25, deadline=None)
def test_decisions_that_take_time_lose_no_job(situation: Situation, latency_s: float) -> None:
    conditions = replace(
        situation.conditions, overheads=replace(situation.conditions.overheads, latency_s=latency_s)
    )
    result = Simulator(
        situation.trace, situation.cluster, Srtf(**situation.params), conditions
    ).run()
    assert set(result.jobs["outcome"]) <= {"completed", "impossible"}


@example(FOUND_RUNNING, 1)
@given(situations(migrate=True), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_takes_over_a_cluster_in_operation(situation: Situation, at_s: int) -> None:
    compared = Compared(*pair_of(situation))
    Simulator(
        situation.trace,
        situation.cluster,
        After(at_s, Fifo(mix=True), compared),
        foreseen(situation).conditions,
    ).run()


def test_jobs_that_cannot_start_are_seldom_tried() -> None:
    rng = np.random.default_rng(0)
    jobs = list(
        zip(
            np.cumsum(rng.exponential(1.0, 600)),
            rng.choice([1, 2, 4, 8, 16], 600).tolist(),
            rng.exponential(60.0, 600),
            strict=True,
        )
    )
    allocator = Srtf()
    place, asked = allocator._preemption.room.place, [0]

    def counted(view: View, demand: Demand) -> Grant | None:
        asked[0] += 1
        return place(view, demand)

    allocator._preemption.room.place = counted
    result = Simulator(trace_of(jobs), clusters("16x8:a"), allocator).run()
    starts = len(result.segments)
    assert len(jobs) < starts < asked[0] < 1.5 * starts


def test_a_job_that_is_believed_to_make_no_progress_comes_last() -> None:
    # No model that ships says so of a whole gang; one of a user may.
    allocator = Srtf()

    class Doubtful:
        cadence, needs, card = allocator.cadence, allocator.needs, allocator.card

        def allocate(self, view: Any) -> Plan:
            believed = view.estimates
            view.estimates = SimpleNamespace(
                rate=lambda job, grant: 0.0 if job == 1 else believed.rate(job, grant),
                pause_s=believed.pause_s,
            )
            plan = allocator.allocate(view)
            view.estimates = believed
            return plan

    result = Simulator(trace_of([(0, 1, 5), (0, 1, 3)]), clusters("1x1:a"), Doubtful()).run()
    assert gantt(result) == lines("#####", ".....###")


def test_of_equals_that_ran_the_one_of_the_slower_pace_stands_first() -> None:
    # Under GPU time job 0 (4 GPUs x 10 s = 40) and job 1 (1 x 16 s) need 8 each at 8, when job 2 (1
    # x 3 s) takes one of 5 GPUs. Job 1 had needed less before, so it runs on, and job 0 waits until
    # 11.
    result = run([(0, 4, 10), (0, 1, 16), (8, 1, 3)], "1x5:a", size="gpu_time")
    assert gantt(result) == lines("########...##", "################", "        ###")
