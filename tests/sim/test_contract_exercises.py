"""What only later policies will use of the contract, exercised by small allocators, models and
estimators made for the purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar

import numpy as np
import pytest

from allocators import make
from allocators.placement import Placer
from sim.cluster import Cluster
from sim.contract import (
    EMPTY,
    Cadence,
    Card,
    Eviction,
    Floats,
    Gang,
    Grant,
    Ints,
    JobId,
    Needs,
    Part,
    Plan,
    Shape,
    Spec,
    Telemetry,
    Tuning,
    View,
)
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.errors import ContractError, InfeasiblePlan
from sim.overheads import Overheads, Transitions
from sim.perf.copy_cost import FREE
from sim.perf.estimators import SizeEstimator
from sim.perf.model import Limits, PerfModel, Rate
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.walk import gantt, trace_of

CARD = Card("Test", "A.", "B.", "C.", "D", "exact")


@dataclass
class Script:
    """Does what is written down for each instant, and keeps the news that it hears."""

    steps: Mapping[float, Mapping[JobId, Grant | None]]
    needs: Needs = field(default_factory=Needs)
    refuse: Mapping[float, frozenset[JobId]] = field(default_factory=dict)
    heard: list[tuple[float, Any]] = field(default_factory=list)
    cadence = Cadence()
    card = CARD

    def allocate(self, view: View) -> Plan:
        self.heard.append((view.now_s, view.delta))
        later = [at_s for at_s in (*self.steps, *self.refuse) if at_s > view.now_s]
        changes = self.steps.get(view.now_s, {})
        return Plan(
            changes,
            self.refuse.get(view.now_s, frozenset()),
            min(later, default=inf),
            seamless=frozenset(changes),
        )

    @property
    def evictions(self) -> list[tuple[float, Eviction]]:
        return [(now_s, eviction) for now_s, delta in self.heard for eviction in delta.evicted]


def on(node: int, gpus: int, tuning: Tuning | None = None) -> Grant:
    return Grant((Gang(Part((node,), (gpus,))),), tuning or Tuning())


def run(
    script: Any,
    jobs: list[tuple[float, int, float]],
    cluster: str,
    conditions: Conditions | None = None,
    **columns: list[Any],
) -> RunResult:
    return Simulator(trace_of(jobs, **columns), Cluster.parse(cluster), script, conditions).run()


# -- parts
# --------------------------------------------------------------------------------------------------

WITH_SERVERS = Grant((Gang(Part((0, 1), (2, 1), 1, 4.0, 16.0), Part((2,), (2,), 0, 8.0, 32.0)),))
"""Three workers of 1 GPU, 4 cores and 16 GB on two nodes, two parameter servers of 8 cores and 32
GB on a CPU node.
"""

ROLES = "2x4:v100/16c/64g,1x0:cpu/16c/64g"


def test_workers_and_servers_hold_gpus_cores_and_memory() -> None:
    seen: dict[str, list[float]] = {}

    class Looking(Script):
        def allocate(self, view: View) -> Plan:
            if view.now_s == 5:
                seen.update(
                    gpus=view.free_gpus.tolist(),
                    cpus=view.free_cpus.tolist(),
                    mem_gb=view.free_mem_gb.tolist(),
                )
                seen["served_cpu_s"] = view.running.served_cpu_s.tolist()
            return super().allocate(view)

    result = run(Looking({0: {0: WITH_SERVERS}, 5: {}}), [(0, 3, 10)], ROLES)
    # Node 0: 2 workers, node 1: one, node 2: both servers, which take all of it.
    assert seen == {
        "gpus": [2, 3, 0],
        "cpus": [8, 12, 0],
        "mem_gb": [32, 48, 0],
        "served_cpu_s": [5 * (3 * 4 + 2 * 8)],
    }
    rows = (
        result.placements[["gang", "role", "node", "count", "gpus", "cpus", "mem_gb"]]
        .to_numpy()
        .tolist()
    )
    assert rows == [[0, 0, 0, 2, 1, 4, 16], [0, 0, 1, 1, 1, 4, 16], [0, 1, 2, 2, 0, 8, 32]]
    assert result.jobs["finish_s"].tolist() == [10]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Part((2,), (1,), 0, 1.0, 0.0), "node 2: 1 cores asked, 0 free"),
        (Part((0,), (3,), 1, 0.0, 0.0), "node 0: 3 GPUs asked, 2 free"),
        (Part((1,), (1,), 1, 0.0, 49.0), "node 1: 49 GB asked, 48 free"),
        (Part((0,), (1,), 1, 9.0, 0.0), "node 0: 9 cores asked, 8 free"),
    ],
)
def test_nobody_gets_what_a_role_of_another_holds(part: Part, message: str) -> None:
    with pytest.raises(InfeasiblePlan, match=message):
        run(
            Script({0: {0: WITH_SERVERS}, 1: {1: Grant((Gang(part),))}}),
            [(0, 3, 10), (1, 3, 1)],
            ROLES,
        )


@pytest.mark.parametrize(("node", "role"), [(2, "server"), (1, "worker")])
def test_an_eviction_names_the_role_that_was_hit(node: int, role: str) -> None:
    script = Script({0: {0: WITH_SERVERS}, 6: {0: WITH_SERVERS}})
    result = run(script, [(0, 3, 10)], ROLES, Conditions(faults=Faults(outages=f"{node}:4:6")))
    assert script.evictions == [(4, Eviction(0, "outage", role, 4.0))]
    # 4 s of work are lost, no checkpoint was due: 10 s from 6 on.
    assert result.jobs[["finish_s", "lost_work", "evictions"]].iloc[0].tolist() == [16, 4, 1]


def test_servers_alone_can_move() -> None:
    # At 4 one server of 8 cores is replaced by another of 4 on a GPU node; nothing is lost, the
    # workers stay.
    moved = Grant((Gang(WITH_SERVERS.gangs[0].workers, Part((2, 1), (1, 1), 0, 4.0, 8.0)),))
    result = run(
        Script({0: {0: WITH_SERVERS}, 4: {0: moved}}),
        [(0, 3, 10)],
        ROLES,
        Conditions(overheads=Overheads(restart_s=2)),
    )
    assert result.jobs["finish_s"].tolist() == [12]
    assert result.placements.loc[
        result.placements["segment"] == 1, ["role", "node", "count", "cpus"]
    ].to_numpy().tolist() == [
        [0, 0, 2, 4],
        [0, 1, 1, 4],
        [1, 2, 1, 4],
        [1, 1, 1, 4],
    ]


def test_gangs_without_gpus() -> None:
    # 12 and 8 cores on a CPU node of 16: the second waits; a GPU job runs beside them.
    result = run(
        make(Spec("fifo")),
        [(0, 0, 5), (1, 0, 3), (1, 4, 2)],
        "1x4:v100/1c,1x0:cpu/16c/64g",
        cpus=[12, 8, None],
    )
    assert gantt(result).splitlines() == ["#####", " ....###", " ....##"]
    assert result.segments["gpus"].tolist() == [0, 4, 0]
    assert result.jobs["served_gpu_s"].tolist() == [0, 0, 8]


# -- forks
# --------------------------------------------------------------------------------------------------

FORKED = Grant((Gang(Part((0,), (2,))), Gang(Part((1,), (2,)))))
FREE_COPIES = Rigid(**FREE)


def test_copies_add_up() -> None:
    # Two copies, each at full speed: 10 s of work in 5 s, on 4 GPUs.
    result = run(Script({0: {0: FORKED}}), [(0, 2, 10)], "2x2:v100", Conditions(FREE_COPIES))
    assert result.jobs["finish_s"].tolist() == [5]
    assert result.segments["gpus"].tolist() == [4]
    assert result.placements[["gang", "node", "count"]].to_numpy().tolist() == [
        [0, 0, 2],
        [1, 1, 2],
    ]


def test_copies_occupy_real_nodes() -> None:
    with pytest.raises(InfeasiblePlan, match="node 1: 1 GPUs asked, 0 free"):
        run(Script({0: {0: FORKED}, 1: {1: on(1, 1)}}), [(0, 2, 10), (1, 1, 1)], "2x2:v100")


def test_losing_a_node_of_one_copy_loses_only_that_copy() -> None:
    # By 2 the copies have done 4 of 10 s of work, none of it saved. Node 1 goes: half of the 4 is
    # lost with its copy. The other goes on alone with 8 left: 10.
    result = run(
        Script({0: {0: FORKED}}),
        [(0, 2, 10)],
        "2x2:v100",
        Conditions(FREE_COPIES, faults=Faults(outages="1:2:3")),
    )
    assert result.jobs[["finish_s", "lost_work", "evictions"]].iloc[0].tolist() == [10, 2, 0]
    assert result.segments[["t0", "t1", "gpus", "rate"]].to_numpy().tolist() == [
        [0, 2, 4, 2],
        [2, 10, 2, 1],
    ]


def test_losing_the_nodes_of_all_copies_evicts_the_job() -> None:
    script = Script({0: {0: FORKED}, 4: {0: on(0, 2)}})
    result = run(
        script,
        [(0, 2, 10)],
        "2x2:v100",
        Conditions(FREE_COPIES, faults=Faults(outages="1:2:4;0:3:4")),
    )
    # 2 lost with the first copy, the 2 that were left of the other and 1 more second with it: 10 s
    # again from 4 on.
    assert [
        (now_s, eviction.cause, eviction.lost_work) for now_s, eviction in script.evictions
    ] == [(3, "outage", 3.0)]
    assert result.jobs[["finish_s", "lost_work"]].iloc[0].tolist() == [14, 5]


# -- a performance model of our own
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiny:
    """A rate for each batch size (1 where none is set), a straggler that halves it from an instant
    on, and a batch size that runs out of memory.
    """

    scales: ClassVar[bool] = True
    staffed: ClassVar[bool] = False
    straggler_s: float = inf
    oom_batch: int = 0
    oom_at_work: float = inf

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        return ()

    def bind(self, trace: Trace, cluster: Cluster) -> TinyModel:
        return TinyModel(self, trace)


class TinyModel:
    def __init__(self, spec: Tiny, trace: Trace) -> None:
        self._spec, self._work = spec, trace.numbers("duration_s")

    def work(self) -> Floats:
        return self._work

    def limits(self) -> Limits:
        ones = np.ones(len(self._work))
        return Limits(ones, ones, ones, ones * 8)

    def fastest(self) -> Floats:
        return np.full(len(self._work), 8.0)

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        batch, spec = grant.tuning.batch_size or 1, self._spec
        slowed = now_s >= spec.straggler_s
        rate = batch * (0.5 if slowed else 1.0)
        until_s = inf if slowed else spec.straggler_s
        if batch == spec.oom_batch:
            return Rate(rate, until_work=max(done, spec.oom_at_work), until_s=until_s, then="oom")
        return Rate(rate, until_s=until_s)

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        return np.array([[shape.tuning.batch_size or 1 for shape in shapes]] * len(ids), float)

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        healthy = 0.5 if now_s >= self._spec.straggler_s else 1.0
        return Telemetry({"worker": 3.0}, {"worker": 1.0 + done}, {"worker": (1.0, healthy)})


def tiny(**params: Any) -> Conditions:
    return Conditions(perf=Tiny(**params))


def test_a_tuning_changes_the_rate_and_is_recorded() -> None:
    # 30 s of work: 4 s at 1, then batch size 2 doubles the rate: 26 / 2 = 13 s more.
    result = run(
        Script({0: {0: on(0, 1)}, 4: {0: on(0, 1, Tuning(2))}}), [(0, 1, 30)], "1x1:v100", tiny()
    )
    assert result.jobs["finish_s"].tolist() == [17]
    assert result.segments[["t0", "t1", "rate", "batch"]].to_numpy().tolist() == [
        [0, 4, 1, -1],
        [4, 17, 2, 2],
    ]


@dataclass(frozen=True)
class FreeRetuning(Overheads):
    """A change of the tuning alone costs nothing."""

    def transition(
        self, job: JobId, old: Grant | None, new: Grant, *, restarted: bool
    ) -> tuple[float, float]:
        if old is not None and old.gangs == new.gangs:
            return 0.0, 0.0
        return super().transition(job, old, new, restarted=restarted)


@pytest.mark.parametrize(
    ("overheads", "finish_s"), [(Overheads(restart_s=5), 22), (FreeRetuning(restart_s=5), 17)]
)
def test_what_a_change_costs_is_the_overheads_business(
    overheads: Overheads, finish_s: float
) -> None:
    result = run(
        Script({0: {0: on(0, 1)}, 4: {0: on(0, 1, Tuning(2))}}),
        [(0, 1, 30)],
        "1x1:v100",
        Conditions(perf=Tiny(), overheads=overheads),
    )
    assert result.jobs["finish_s"].tolist() == [finish_s]


def test_during_an_overlap_both_are_held_and_the_old_rate_goes_on() -> None:
    # From node 0 to node 1 with twice the rate: ordered at 4, both held until 7 at rate 1, then 2 s
    # of pause, then 30 - 7 = 23 at rate 2: 20.5.
    conditions = Conditions(perf=Tiny(), overheads=Overheads(overlap_s=3, restart_s=2))
    result = run(
        Script({0: {0: on(0, 1)}, 4: {0: on(1, 1, Tuning(2))}}),
        [(0, 1, 30)],
        "2x1:v100",
        conditions,
    )
    assert result.segments[["t0", "t1", "gpus", "paused_s"]].to_numpy().tolist() == [
        [0, 4, 1, 0],
        [4, 7, 2, 0],
        [7, 20.5, 1, 2],
    ]
    assert result.jobs[["finish_s", "served_gpu_s", "paused_s"]].iloc[0].tolist() == [
        20.5,
        4 + 6 + 13.5,
        2,
    ]


def test_what_the_overlap_held_is_news_when_it_ends() -> None:
    # Job 1 wants node 0, which the overlap gives back at 7.
    script = Script({0: {0: on(0, 1)}, 4: {0: on(1, 1)}, 7: {1: on(0, 1)}})
    result = run(
        script, [(0, 1, 30), (5, 1, 1)], "2x1:v100", Conditions(overheads=Overheads(overlap_s=3))
    )
    assert result.jobs["first_start_s"].tolist() == [0, 7]
    assert [0 in delta.nodes for now_s, delta in script.heard if now_s == 7] == [True]


def test_a_straggler_begins_at_an_instant() -> None:
    # 10 s of work: 6 done at 6, the other 4 at half the rate: 14. Nobody is asked, but the record
    # has both rates.
    result = run(Script({0: {0: on(0, 1)}}), [(0, 1, 10)], "1x1:v100", tiny(straggler_s=6.0))
    assert result.segments[["t0", "t1", "rate"]].to_numpy().tolist() == [[0, 6, 1], [6, 14, 0.5]]


def test_running_out_of_memory_evicts() -> None:
    # Batch size 2 does 2 per second and dies when 8 are done, at 4; nothing was saved. Batch size 1
    # then takes 20 s.
    script = Script({0: {0: on(0, 1, Tuning(2))}, 4: {0: on(0, 1)}})
    result = run(script, [(0, 1, 20)], "1x1:v100", tiny(oom_batch=2, oom_at_work=8.0))
    assert script.evictions == [(4, Eviction(0, "oom", "worker", 8.0))]
    assert result.jobs[["finish_s", "lost_work", "evictions"]].iloc[0].tolist() == [24, 8, 1]


def test_telemetry_is_what_the_model_says_and_must_be_declared() -> None:
    seen: list[Telemetry] = []

    class Watching(Script):
        def allocate(self, view: View) -> Plan:
            seen.extend(view.telemetry(job) for job in view.running.ids.tolist())
            return super().allocate(view)

    steps = {0.0: {0: on(0, 2)}, 4.0: {}, 8.0: {}}
    run(
        Watching(steps, needs=Needs(frozenset({"telemetry"}))),
        [(0, 2, 10)],
        "1x2:v100",
        tiny(straggler_s=6.0),
    )
    assert seen == [
        Telemetry({"worker": 3.0}, {"worker": 5.0}, {"worker": (1.0, 1.0)}),
        Telemetry({"worker": 3.0}, {"worker": 8.0}, {"worker": (1.0, 0.5)}),
    ]
    with pytest.raises(ContractError, match="does not declare"):
        run(Watching(steps), [(0, 2, 10)], "1x2:v100", tiny())


# -- admission, latency
# --------------------------------------------------------------------------------------------------


def test_refused_jobs_are_settled_and_never_seen_again() -> None:
    script = Script({0: {0: on(0, 1)}}, refuse={0: frozenset({1}), 2: frozenset({2})})
    result = run(script, [(0, 1, 5), (0, 1, 5), (2, 1, 5)], "1x1:v100")
    assert result.jobs["outcome"].tolist() == ["completed", "refused", "refused"]
    assert result.end_s == 5


@pytest.mark.parametrize("job", [0, 7])
def test_only_waiting_jobs_can_be_refused(job: int) -> None:
    with pytest.raises(InfeasiblePlan, match="refused but not waiting"):
        run(
            Script({0: {0: on(0, 1)}}, refuse={2: frozenset({job})}),
            [(0, 1, 5), (2, 1, 5)],
            "1x1:v100",
        )


class Ending(Script):
    """Ends job 0 at second 2, in addition to its changes."""

    def allocate(self, view: View) -> Plan:
        plan = super().allocate(view)
        return plan._replace(ended=frozenset({0})) if view.now_s == 2 else plan


def test_a_plan_that_ends_a_job_and_grants_it_is_refused() -> None:
    with pytest.raises(InfeasiblePlan, match="ended and given other GPUs"):
        run(Ending({0: {0: on(0, 1)}, 2: {0: on(1, 1)}}), [(0, 1, 5)], "2x1:v100")


SLOW = Overheads(latency_s=2)


def test_a_decision_lands_later_and_nobody_is_asked_meanwhile() -> None:
    # Decided at 0, in force at 2. The arrival at 1 is heard of at 2; decided then, in force at 4.
    script = Script({0: {0: on(0, 1)}, 2: {1: on(1, 1)}})
    result = run(script, [(0, 1, 5), (1, 1, 5)], "2x1:v100", Conditions(overheads=SLOW))
    assert result.jobs["first_start_s"].tolist() == [2, 4]
    assert [now_s for now_s, _ in script.heard] == [0, 2, 7]


def test_latency_may_grow_with_the_number_of_jobs() -> None:
    result = run(
        make(Spec("fifo")),
        [(0, 1, 5), (0, 1, 5)],
        "2x1:v100",
        Conditions(overheads=Overheads(latency_s=1, latency_per_job_s=0.25)),
    )
    assert result.jobs["first_start_s"].tolist() == [1.5, 1.5]


def test_an_entry_is_void_if_its_node_went_meanwhile() -> None:
    # Two starts decided at 0; node 0 goes at 1. At 2 only job 1 starts; job 0 is reported as
    # waiting still.
    script = Script({0: {0: on(0, 1), 1: on(1, 1)}, 4: {0: on(0, 1)}})
    result = run(
        script,
        [(0, 1, 5), (0, 1, 5)],
        "2x1:v100",
        Conditions(overheads=SLOW, faults=Faults(outages="0:1:3")),
    )
    assert result.voided == 1
    assert result.jobs["first_start_s"].tolist() == [6, 2]
    assert script.evictions == [(2, Eviction(0, "void", "worker", 0.0))]
    assert result.jobs["evictions"].tolist() == [0, 0]


def test_a_job_keeps_its_grant_when_its_delayed_move_is_void() -> None:
    # The move decided at 4 lands at 6, but node 1 goes at 5: the job runs on node 0 from 2 to 12.
    script = Script({0: {0: on(0, 1)}, 4: {0: on(1, 1)}})
    result = run(
        script,
        [(0, 1, 10)],
        "2x1:v100",
        Conditions(overheads=SLOW, faults=Faults(outages="1:5:9")),
    )
    assert result.voided == 1
    assert result.jobs[["finish_s", "preemptions"]].iloc[0].tolist() == [12, 0]
    assert script.evictions == []


def test_an_entry_is_void_if_its_job_ended_meanwhile() -> None:
    # The stop of job 0 is decided at 4, lands at 6; it has ended at 5.
    result = run(
        Script({0: {0: on(0, 1)}, 4: {0: None}, 9: {1: on(0, 1)}}),
        [(0, 1, 3), (9, 1, 3)],
        "1x1:v100",
        Conditions(overheads=SLOW),
    )
    assert result.voided == 1
    assert result.jobs[["finish_s", "preemptions"]].iloc[0].tolist() == [5, 0]


@pytest.mark.parametrize("name", ["fifo", "sjf", "easy", "srtf", "las", "partition", "switch"])
def test_queues_do_not_forget_a_job_whose_start_became_void(name: str) -> None:
    # Both nodes go while the starts are in flight, and come back at 3.
    jobs = [(0.0, 1, 5.0), (0.0, 1, 5.0), (20.0, 1, 5.0)]
    result = run(
        make(Spec(name)),
        jobs,
        "2x1:v100",
        Conditions(overheads=SLOW, faults=Faults(outages="0:1:3;1:1:3")),
    )
    assert result.voided == 2
    assert set(result.jobs["outcome"]) == {"completed"}


# -- estimators
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PerUser:
    """Believes that a job takes as long as the last one of the same user; 100 s before there was
    one.
    """

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> LearntEstimator:
        return LearntEstimator(model, transitions)


class LearntEstimator(SizeEstimator):
    users = (0, 1, 0, 1, 0, 1)

    def __init__(self, model: PerfModel, transitions: Transitions) -> None:
        super().__init__(
            model, transitions, np.full(len(model.work()), 100.0), np.zeros(len(model.work()))
        )
        self._size, self.heard = model.work(), []  # type: list[tuple[int, float]]

    def observe(self, job: JobId, finish_s: float) -> None:
        self.heard.append((job, finish_s))
        for other, user in enumerate(self.users):
            if user == self.users[job]:
                self._totals[other] = self._size[job]


def test_a_estimator_learns_before_the_decision_of_that_instant() -> None:
    # One GPU. User 0 runs 30 s jobs, user 1 10 s jobs. Jobs 0 and 1 start in order, everybody being
    # believed to take 100 s. At 35 come jobs 2 (user 0, of whom 30 s are known) and 3 (user 1, of
    # whom nothing is). Jobs 4 and 5 come at 45, when both users are known.
    jobs = [(0, 1, 30), (0, 1, 10), (35, 1, 30), (35, 1, 10), (45, 1, 30), (45, 1, 10)]
    result = run(
        make(Spec("sjf")),
        [(float(at), gpus, float(length)) for at, gpus, length in jobs],
        "1x1:v100",
        Conditions(estimator=PerUser()),
    )
    # 0: 0..30, 1: 30..40, 2: 40..70 (30 < 100); then 5 (10 s), 4 (30 s), and 3 (100 s believed)
    # last.
    assert result.jobs["first_start_s"].tolist() == [0, 30, 40, 110, 80, 70]


def test_all_needs_of_later_policies_are_known() -> None:
    class Elastic:
        """Doubles what a job holds when it can, by the believed rates: a model that scales makes it
        finish earlier.
        """

        needs = Needs(
            frozenset({"rates", "remaining_work", "pause"}), frozenset({"scaling", "profile"})
        )
        cadence = Cadence(every_s=10.0)
        card = CARD
        place = Placer("fewest", "fastest", False)

        def allocate(self, view: View) -> Plan:
            for job in view.waiting.ids.tolist():
                one, two = view.estimates.rates(
                    np.array([job]), [Shape((1,)), Shape((1,), tuning=Tuning(2))]
                )[0]
                assert (one, two) == (1, 2)
                grant = self.place(view, view.demand(job))
                assert grant is not None
                pauses = [view.estimates.pause_s(job, old, grant) for old in (None, grant)]
                assert pauses == [0.0, 4.0]
                return Plan.reach(
                    view,
                    {**view.grants, job: replace(grant, tuning=Tuning(2))},
                    notes={"gain": float(two / one)},
                )
            return EMPTY

    conditions = Conditions(perf=Tiny(), overheads=Overheads(restart_s=4))
    result = run(Elastic(), [(0, 1, 30), (1, 1, 30)], "2x1:v100", conditions)
    assert result.jobs["finish_s"].tolist() == [15, 16]
    assert result.notes["value"].tolist() == [2.0, 2.0]
