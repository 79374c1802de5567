from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import make
from allocators.placement import NoFitCache, Placer, TypeWait
from allocators.toolkit import newly_waiting, only_arrivals
from sim.contract import (
    Allocator,
    Cadence,
    Delta,
    Demand,
    Eviction,
    Gang,
    Grant,
    JobId,
    Part,
    Plan,
    Spec,
    View,
)
from sim.demand import group_into_pools
from sim.engine.ledger import FreeRoom
from sim.engine.simulator import Simulator
from tests.allocators.queue.walk import Situation, situations
from tests.allocators.test_placement import LIMITED, view_of


@dataclass
class Plain:
    """Walks all waiting jobs at every decision, and compares; looks every second whether a wake-up
    is missing.
    """

    inner: Allocator
    place: Placer
    params: dict[str, Any]
    by_time: bool

    def __post_init__(self) -> None:
        self.needs, self.card = self.inner.needs, self.inner.card
        self.cadence = Cadence(every_s=1.0)
        self.keys: dict[JobId, tuple[float, ...]] = {}
        self.patience = TypeWait(self.place, self.params["wait_for_type"])
        self.wake_at_s = inf

    def allocate(self, view: View) -> Plan:
        for job in (*view.delta.arrived, *(eviction.job for eviction in view.delta.evicted)):
            self.keys[job] = (self.place.run_time_s(view, job) if self.by_time else 0.0, job)
        expected: dict[JobId, Grant | None] = {}
        for job in sorted(view.waiting.ids.tolist(), key=self.keys.__getitem__):
            waits = view.one("arrival_s", job) + self.params["wait_for_type"] > view.now_s
            grant = (self.patience.place_preferred if waits else self.place)(view, view.demand(job))
            if grant is not None:
                expected[job] = grant
            elif self.params["backfill"] == "none":
                break
        view.room.undo()  # type: ignore[attr-defined]
        assert not expected or view.delta != Delta() or view.now_s == self.wake_at_s
        plan = self.inner.allocate(view)
        assert dict(plan.changes) == expected
        self.wake_at_s = plan.wake_at_s
        return plan


@pytest.mark.parametrize("name", ["fifo", "sjf"])
@given(situation=situations(), wait_s=st.sampled_from([0.0, 2.0, 7.0, 30.0]))
@settings(max_examples=50, deadline=None)
def test_nobody_who_has_room_is_forgotten(name: str, situation: Situation, wait_s: float) -> None:
    params = situation.params | {"wait_for_type": wait_s}
    place = Placer(
        params.get("placement", "fewest"), params.get("types", "fastest"), params.get("mix", False)
    )
    plain = Plain(make(Spec.of(name, **params)), place, params, name == "sjf")
    result = Simulator(situation.trace, situation.cluster, plain, situation.conditions).run()
    assert set(result.jobs["outcome"]) <= {"completed", "impossible"}


@given(situations())
@settings(max_examples=40, deadline=None)
def test_what_is_remembered_of_denials_changes_no_result(situation: Situation) -> None:
    params = {key: value for key, value in situation.params.items() if key != "backfill"}

    def run() -> str:
        return (
            Simulator(
                situation.trace,
                situation.cluster,
                make(Spec.of("easy", **params)),
                situation.conditions,
            )
            .run()
            .digest()
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoFitCache, "is_known_no_fit", lambda self, view, demand, pools: False)
        forgetful = run()
    assert run() == forgetful


def on(node: int, gpus: int, cpus: float) -> Grant:
    return Grant((Gang(Part((node,), (gpus,), 1, cpus, 0.0)),))


def test_a_denial_holds_until_enough_came_free() -> None:
    # Four nodes of 4 GPUs and 8 cores, all cores taken but 2 on node 3. A gang of 3 with 4 cores
    # each needs room for 3: each node given back has room for 2.
    view, demand = view_of(LIMITED), Demand(3, 1, 4.0, 0.0, (0,))
    held = [on(node, 1, 8.0 if node < 3 else 6.0) for node in range(4)]
    for grant in held:
        view.room.take(grant)
    denials = NoFitCache()
    denials.record_no_fit(view, demand, (0,))
    assert denials.is_known_no_fit(view, demand, (0,))
    for at, still in ((3, True), (0, False)):
        view.room.give(held[at])
        denials.record_release(held[at])
        assert denials.is_known_no_fit(view, demand, (0,)) is still
    assert Placer("fewest", "fastest", False)(view, demand) is not None
    assert not denials.is_known_no_fit(view, Demand(1, 1, 1.0, 0.0, (0,)), (0,))


def test_room_on_the_overflow_node_is_no_room() -> None:
    view, demand, denials = view_of(LIMITED), Demand(9, 1, 4.0, 0.0, (0,)), NoFitCache()
    view.room = FreeRoom(LIMITED, group_into_pools(LIMITED), overflow=True)
    denials.record_no_fit(view, demand, (0,))
    denials.record_release(on(view.room.overflow, 9, 1.0))
    assert denials.is_known_no_fit(view, demand, (0,))


def test_nothing_is_noted_where_nothing_was_denied_and_the_log_is_bounded() -> None:
    view, demand, denials = view_of(LIMITED), Demand(9, 1, 4.0, 0.0, (0,)), NoFitCache()
    denials.record_nodes([0, 1])
    denials.record_no_fit(view, demand, (0,))
    assert denials._denied[demand.key, (0,)] == (0, 8)
    denials.record_nodes([0] * 20_001)
    assert not denials.is_known_no_fit(view, demand, (0,))


def test_a_job_that_was_given_up_does_not_wait_again() -> None:
    gone = Delta(
        arrived=(4,),
        finished=(2,),
        evicted=(Eviction(2, "outage", "worker", 0.0), Eviction(3, "outage", "worker", 0.0)),
    )
    assert newly_waiting(gone) == (4, 3)
    assert only_arrivals(Delta(arrived=(1,)))
    assert not only_arrivals(Delta())
    assert not only_arrivals(gone)
