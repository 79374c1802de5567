"""Allocators inside one that resizes jobs: what it did to running and to waiting jobs, they take
in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings

from allocators import make
from allocators.inner_policies import InnerPolicy, SubView
from allocators.placement import Placer
from sim.contract import Cadence, Demand, Grant, JobId, Plan, Spec, View
from sim.engine.simulator import Simulator
from sim.perf.model import Rate
from sim.result import RunResult
from tests.allocators.queue.test_srtf import foreseen, pair_of
from tests.allocators.queue.walk import Compared, Situation, clusters, gantt, situations, trace_of
from tests.allocators.test_backlog import Plain
from tests.sim.scripted import CARD, Bends, Conditions

ANY_SIZE = Bends(lambda *_: Rate(1.0))


@dataclass
class Meddles:
    """Takes a replica from a job at some calls, and tells the allocator inside half a second
    later.
    """

    inner: Any
    chosen: Callable[[View, int], JobId | None]
    meddled: int = 0
    _calls: int = 0
    _demands: dict[JobId, Demand] = field(default_factory=dict)
    _one_of_each: dict[Demand, Demand] = field(default_factory=dict)
    cadence = Cadence()
    card = CARD

    def __post_init__(self) -> None:
        self.needs = self.inner.needs
        self._inside = InnerPolicy(self.inner)

    def allocate(self, view: View) -> Plan:
        self._inside.notify(view.delta)
        self._calls += 1
        job = self.chosen(view, self._calls)
        if job is None:
            sub = SubView(view, self._inside.take_events())
            sub.demand = self._demand(view)
            return self._inside.decide(sub)
        self.meddled += 1
        demand = self._demand(view)(job)
        fewer = replace(demand, replicas=demand.replicas - 1)
        # Equal demands are one object that lives as long as the run: allocators know them by it.
        self._demands[job] = self._one_of_each.setdefault(fewer, fewer)
        self._inside.resize(job)
        changes: dict[JobId, Grant | None] = (
            {job: smaller(view.grants[job])} if job in view.grants else {}
        )
        return Plan(changes, wake_at_s=min(view.now_s + 0.5, self._inside.wake_at_s))

    def _demand(self, view: View) -> Callable[[JobId], Demand]:
        whole = view.demand
        return lambda job: self._demands[job] if job in self._demands else whole(job)


def smaller(grant: Grant) -> Grant:
    (gang,) = grant.gangs
    nodes, count = gang.workers[:2]
    last = count[-1] - 1
    part = gang.workers._replace(
        nodes=nodes if last else nodes[:-1], count=(*count[:-1], last) if last else count[:-1]
    )
    return replace(grant, gangs=(gang._replace(workers=part),))


def once(at_call: int, job: JobId) -> Callable[[View, int], JobId | None]:
    return lambda view, call: job if call == at_call else None


def run(
    rows: list[tuple[float, int, float]], inner: str, chosen: Callable[[View, int], JobId | None]
) -> RunResult:
    return Simulator(
        trace_of(rows),
        clusters("1x4:a"),
        Meddles(make(Spec.parse(inner)), chosen),
        Conditions(perf=ANY_SIZE),
    ).run()


INNER = [
    "fifo",
    "fifo:backfill=first_fit",
    "sjf",
    "easy",
    "srtf",
    "srtf:backfill=none",
    "las",
    "partition",
    "partition:inner=easy",
    "switch",
    "dlrover",
]


@pytest.mark.parametrize("inner", INNER)
def test_what_a_running_job_gave_back_is_used_at_once(inner: str) -> None:
    # Job 1 finds 3 of 4 GPUs taken and needs two; the third call, which the arrival of job 2 brings
    # about, takes one from job 0.
    result = run([(0, 3, 8), (1, 2, 8), (3, 4, 20)], inner, once(3, 0))
    assert gantt(result, 0.5).splitlines()[:2] == ["#" * 16, "  " + "....." + "#" * 16]


@pytest.mark.parametrize("inner", INNER)
def test_a_waiting_job_that_asks_for_less_starts_when_that_has_room(inner: str) -> None:
    result = run([(0, 3, 8), (1, 2, 8), (3, 4, 20)], inner, once(3, 1))
    assert gantt(result, 0.5).splitlines()[:2] == ["#" * 16, "  " + "....." + "#" * 16]


def test_a_waiting_job_that_asks_for_less_passes_those_of_its_old_size() -> None:
    # Job 0 holds 3 of 4 GPUs; jobs 1 and 2 need two each, and the fourth call takes one from job 2.
    rows = [(0, 3, 8), (1, 2, 4), (2, 2, 6), (3, 4, 20)]
    result = run(rows, "sjf:backfill=first_fit", once(4, 2))
    assert result.jobs["first_start_s"].tolist()[1:3] == [8, 3.5]


def every_third(view: View, call: int) -> JobId | None:
    """Take turns between running and waiting jobs of more than one GPU."""
    if call % 3:
        return None
    running = [
        job
        for job, grant in sorted(view.grants.items())
        if sum(grant.gangs[0].workers.count) > 1 and view.one("preemptible", job)
    ]
    return running[call % len(running)] if running else None


@given(situation=situations(simple=True))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_priorities_hold_among_resized_jobs(situation: Situation) -> None:
    situation = foreseen(situation)
    meddles = Meddles(Compared(*pair_of(situation)), every_third)
    # Where a change of size loses all work, running jobs come to need more, and ties stand
    # otherwise.
    costs = replace(situation.conditions.overheads, on_preempt="checkpoint")
    conditions = replace(situation.conditions, perf=ANY_SIZE, overheads=costs)
    result = Simulator(situation.trace, situation.cluster, cast(Any, meddles), conditions).run()
    assert set(result.jobs["outcome"]) <= {"completed", "impossible"}


@pytest.mark.parametrize("name", ["fifo", "sjf"])
@given(situation=situations())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nobody_who_has_room_is_forgotten_among_resized_jobs(
    name: str, situation: Situation
) -> None:
    params = situation.params | {"wait_for_type": 0.0}
    place = Placer(
        params.get("placement", "fewest"), params.get("types", "fastest"), params.get("mix", False)
    )
    meddles = Meddles(
        Plain(make(Spec.of(name, **params)), place, params, name == "sjf"), every_third
    )
    result = Simulator(
        situation.trace,
        situation.cluster,
        cast(Any, meddles),
        replace(situation.conditions, perf=ANY_SIZE),
    ).run()
    assert set(result.jobs["outcome"]) <= {"completed", "impossible"}
