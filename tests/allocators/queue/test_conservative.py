from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.queue.conservative import Conservative, Profile, Slot
from sim.cluster import Cluster
from sim.contract import Grant, JobId, Plan, View
from sim.engine.simulator import Conditions, Simulator
from sim.perf.estimators import Biased
from tests.allocators.queue.test_easy import ENDS_BEFORE, chart
from tests.allocators.queue.walk import trace_of

Job = tuple[float, int, float]
"""(submission, GPUs, duration)"""


def test_what_delays_no_plan_may_pass() -> None:
    # Job 1 is planned from 10 to 15. Job 2 (1 GPU, from 2 to 10) ends before. Job 3 finds all GPUs
    # taken until 10, and by job 1 until 15.
    assert chart("conservative", ENDS_BEFORE) == [
        "##########",
        " .........#####",
        "  ########",
        "   ............###",
    ]


def test_the_second_of_the_queue_is_protected_too() -> None:
    # Jobs 1 and 2 are planned from 10 and 15. Job 3 would hold one GPU until 23: EASY lets it pass,
    # because job 1 needs only three, and job 2 starts at 23. Here it waits until 20.
    jobs: list[Job] = [(0, 2, 10), (1, 3, 5), (2, 4, 5), (3, 1, 20)]
    assert chart("conservative", jobs) == [
        "##########",
        " .........#####",
        "  .............#####",
        "   .................####################",
    ]
    assert chart("easy", jobs)[2] == "  .....................#####"


def test_plans_move_forward_when_a_job_ends_early() -> None:
    # By its limit job 0 runs until 20: jobs 1 and 2 are planned from 20 and 25. It ends at 10. Job
    # 3 (limit 4 s) ends before 20 and fills the gap at once.
    jobs: list[Job] = [(0, 3, 10), (1, 4, 5), (2, 2, 5), (3, 1, 4)]
    limits = [20.0, 5.0, 5.0, 4.0]
    assert chart("conservative:run_times=limit", jobs, time_limit_s=limits) == [
        "##########",
        " .........#####",
        "  .............#####",
        "   ####",
    ]


def test_a_job_that_outlives_its_estimate_moves_all_plans() -> None:
    # Estimates are half of the truth: job 0 is expected to end at 5 and runs until 10.
    jobs: list[Job] = [(0, 2, 10), (1, 4, 4), (2, 2, 2)]
    conditions = Conditions(estimator=Biased(factor=0.5))
    assert chart("conservative", jobs, conditions=conditions) == [
        "##########",
        " .........####",
        "  ##",
    ]


def test_by_priority_a_newcomer_goes_before_plans_behind_it() -> None:
    jobs: list[Job] = [(0, 4, 10), (1, 4, 5), (2, 4, 3)]
    assert chart("conservative:order=priority", jobs, priority=[0, 0, 1]) == [
        "##########",
        " ............#####",
        "  ........###",
    ]


def test_with_depth_0_only_the_first_has_a_plan() -> None:
    assert chart("conservative:depth=0", ENDS_BEFORE) == chart("fifo", ENDS_BEFORE)


@dataclass
class Watched(Conservative):
    """Keeps the first plan of every job."""

    first_s: dict[JobId, float] = field(default_factory=dict)

    def allocate(self, view: View, /) -> Plan:
        plan = super().allocate(view)
        for job in plan.changes:
            self.first_s.setdefault(job, view.now_s)
        for job, slot in self._plans.items():
            self.first_s.setdefault(job, slot.from_s)
        return plan


def planned(jobs: list[Job], gpus: int) -> list[float]:
    """Starts by the definition: each job in order, at the first instant from which it fits."""
    taken: list[tuple[float, float, int]] = []
    for submit_s, need, run_s in jobs:
        for at_s in sorted({submit_s, *(end_s for _, end_s, _ in taken if end_s > submit_s)}):
            instants = {at_s, *(from_s for from_s, _, _ in taken if at_s < from_s < at_s + run_s)}
            used = [sum(n for a, b, n in taken if a <= t < b) for t in instants]
            if max(used) + need <= gpus:
                taken.append((at_s, at_s + run_s, need))
                break
    return [from_s for from_s, _, _ in taken]


JOBS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 8), st.integers(1, 12)), min_size=1, max_size=25
)


def queued(drawn: list[tuple[int, int, int]]) -> list[Job]:
    """Jobs from (seconds to the next submission, GPUs, duration)."""
    submit_s = [0, *accumulate(gap_s for gap_s, _, _ in drawn)]
    return [(at_s, gpus, run_s) for at_s, (_, gpus, run_s) in zip(submit_s, drawn, strict=False)]


@given(JOBS)
@settings(max_examples=50, deadline=None)
def test_with_exact_estimates_it_is_the_definition(drawn: list[tuple[int, int, int]]) -> None:
    jobs = queued(drawn)
    policy = Watched()
    result = Simulator(trace_of(jobs), Cluster.parse("2x4:v100"), policy).run()
    starts_s = result.jobs["first_start_s"].tolist()
    assert starts_s == planned(jobs, 8)
    assert starts_s == [policy.first_s[job] for job in range(len(jobs))]


@given(JOBS, st.lists(st.integers(1, 4), min_size=25, max_size=25))
@settings(max_examples=50, deadline=None)
def test_no_job_starts_after_its_first_plan(
    drawn: list[tuple[int, int, int]], slack: list[int]
) -> None:
    jobs = queued(drawn)
    limits = [run_s * more for (_, _, run_s), more in zip(jobs, slack, strict=False)]
    policy = Watched(run_times="limit")
    trace = trace_of(jobs, time_limit_s=limits)
    result = Simulator(trace, Cluster.parse("2x4:v100"), policy).run()
    for job, start_s in enumerate(result.jobs["first_start_s"].tolist()):
        assert start_s <= policy.first_s[job]


def test_a_decision_without_room_looks_at_due_plans_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # One GPU, ten jobs of 10 s at 0, exact estimates: each start is planned once, and planned
    # again when it is due; the profile is built once.
    tries: list[int] = []
    profiles: list[float] = []
    try_job, new_profile = Conservative._try, Conservative._new_profile

    def count_try(self: Conservative, view: View, job: JobId, profile: Profile) -> Grant | None:
        tries.append(job)
        return try_job(self, view, job, profile)

    def count_profile(self: Conservative, view: View) -> Profile:
        profiles.append(view.now_s)
        return new_profile(self, view)

    monkeypatch.setattr(Conservative, "_try", count_try)
    monkeypatch.setattr(Conservative, "_new_profile", count_profile)
    trace = trace_of([(0, 1, 10)] * 10)
    result = Simulator(trace, Cluster.parse("1x1:v100"), Conservative()).run()
    assert result.jobs["first_start_s"].tolist() == [10.0 * at for at in range(10)]
    assert tries == [*range(10), *range(1, 10)]
    assert profiles == [0.0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 4))))
@settings(max_examples=60, deadline=None)
def test_a_profile_that_advances_is_the_one_built_then(drawn: list[tuple[int, int, int]]) -> None:
    slots = [Slot(float(at), float(at + run), ((0, gpus),)) for at, run, gpus in drawn]
    profile = Profile(0.0, [8, 2], ())
    for at, slot in enumerate(slots):
        profile.take(slot)
        if at % 3 == 1:
            profile.take(slots[at - 1], -1)
            profile.take(slots[at - 1])
    profile.advance(17.0)
    held = sum(gpus for at, run, gpus in drawn if at <= 17 < at + run)
    rest = [slot for slot in slots if slot.until_s > 17]
    anew = Profile(17.0, [8 - held, 2], [slot for slot in rest if slot.from_s > 17])
    for slot in rest:
        if slot.from_s <= 17:
            anew.take(Slot(slot.until_s, inf, slot.gpus), -1)
    for pools in ((0,), (1,), (0, 1)):
        for gpus in range(1, 9):
            for run_s in (1.0, 5.0, 40.0):
                assert profile.earliest(pools, gpus, run_s) == anew.earliest(pools, gpus, run_s)
    assert profile.is_possible is anew.is_possible
