"""The only code that takes and gives: exact, reversible, and outspoken about what is short."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import Cluster, NodeGroup
from sim.demand import group_into_pools
from sim.engine.ledger import FreeRoom, Ledger, Shortage
from sim.errors import ContractError
from sim.grants import Demand, Gang, Grant, Part, Tuning
from tests.sim.scripted import across, on

CLUSTER = Cluster(
    (NodeGroup(2, 4, "v100", 8, 16), NodeGroup(1, 2, "a100"), NodeGroup(1, 0, cpus=6, mem_gb=6))
)
ANY = Demand(1, 1, 0.0, 0.0, (0, 1))


def room_of(cluster: Cluster = CLUSTER, *, overflow: bool = False) -> FreeRoom:
    return FreeRoom(cluster, group_into_pools(cluster), overflow=overflow)


def ledger_of(room: FreeRoom, *, mixed: bool = False, cluster: Cluster = CLUSTER) -> Ledger:
    return Ledger(
        room, [cluster.type_index.get(node.gpu_type, -1) for node in cluster.nodes], mixed=mixed
    )


def free_on(room: FreeRoom, node: int) -> tuple[int, float, float]:
    gpus, cpus, mem_gb = room.free_per_node()
    return gpus[node], cpus[node], mem_gb[node]


def state(room: FreeRoom) -> Any:
    return (
        [list(masks) for masks in room.masks],
        list(room.free),
        [free_on(room, node) for node in range(room.nodes)],
    )


def test_an_empty_room_offers_everything() -> None:
    room = room_of()
    # Masks by free GPUs: pool 0 has nodes 0 and 1 with 4 free, pool 1 one node with 2, pool 2 one
    # node with none.
    assert room.masks == [[0, 0, 0, 0, 0b11], [0, 0, 0b1], [0b1]]
    assert room.free == [8, 2, 0]
    assert room.gpus_free((0, 1)) == 10
    assert free_on(room, 0) == (4, 8.0, 16.0)


def test_taking_moves_the_node_to_another_mask() -> None:
    room = room_of()
    room.take(on(1, 3, 1, 2.0, 4.0))
    assert room.masks[0] == [0, 0b10, 0, 0, 0b01]
    assert room.free == [5, 2, 0]
    assert free_on(room, 1) == (1, 2.0, 4.0)
    room.give(on(1, 1, 1, 2.0, 4.0))
    assert free_on(room, 1) == (2, 4.0, 8.0)
    room.undo()
    assert state(room) == state(room_of())


grants = st.builds(
    on,
    st.sampled_from((0, 1)),
    st.integers(1, 2),
    st.integers(0, 2),
    st.sampled_from((0.0, 1 / 3, 0.1, 1.0, 1 / 128, 0.0000005)),
    st.floats(0, 2),
)


@given(st.lists(grants, max_size=12), st.randoms(use_true_random=False))
def test_giving_back_in_any_order_restores_every_number(asked: list[Grant], random: Any) -> None:
    room = room_of()
    before, taken = state(room), []
    for grant in asked:
        try:
            room.take(grant)
        except Shortage:
            room = room_of()
            taken = []
            continue
        taken.append(grant)
    random.shuffle(taken)
    for grant in taken:
        room.give(grant)
    assert state(room) == before
    room.undo()
    assert state(room) == before


def test_cores_are_counted_to_a_millionth() -> None:
    room = room_of(Cluster((NodeGroup(1, 0, cpus=2.5, mem_gb=1.5),)))
    for _ in range(3):
        room.take(on(0, 1, 0, 0.1, 0.1))
    # In floats 2.5 - 3 x 0.1 is 2.1999999999999997.
    assert free_on(room, 0) == (0, 2.2, 1.2)
    room.take(on(0, 1, 0, 2.2, 1.2))
    assert free_on(room, 0) == (0, 0.0, 0.0)
    with pytest.raises(Shortage):
        room.take(on(0, 1, 0, 0.000001))


@pytest.mark.parametrize(
    ("grant", "what"),
    [
        (on(0, 5), "node 0: 5 GPUs asked, 4 free"),
        (on(0, 4, 1, 3.0), "node 0: 12 cores asked, 8 free"),
        (on(0, 4, 1, 1.0, 5.0), "node 0: 20 GB asked, 16 free"),
        (on(3, 7, 0, 1.0), "node 3: 7 cores asked, 6 free"),
    ],
)
def test_a_shortage_says_what_was_asked_and_what_is_free(grant: Grant, what: str) -> None:
    with pytest.raises(Shortage) as caught:
        room_of().take(grant)
    assert str(caught.value) == what
    assert str(pickle.loads(pickle.dumps(caught.value))) == what


@pytest.mark.parametrize("grant", [on(0), on(0, 1, 0, 1.0), on(0, 1, 0, 0.0, 1.0), on(0, 1, 0)])
def test_a_node_out_of_service_gives_nothing(grant: Grant) -> None:
    room = room_of()
    room.remove(0)
    assert room.free == [4, 2, 0]
    assert free_on(room, 0) == (0, 0.0, 0.0)
    assert not room.is_present(0)
    assert room.replicas_that_fit(0, ANY) == 0
    with pytest.raises(Shortage, match=r"node 0: .* asked, 0 free"):
        room.take(grant)
    room.restore(0)
    assert state(room) == state(room_of())


def test_how_many_replicas_fit() -> None:
    room = room_of()
    assert room.replicas_that_fit(0, Demand(9, 1, 3.0, 1.0, (0,))) == 2
    assert room.replicas_that_fit(0, Demand(9, 2, 0.0, 0.0, (0,))) == 2
    assert room.replicas_that_fit(0, Demand(9, 1, 0.0, 7.0, (0,))) == 2
    assert room.replicas_that_fit(3, Demand(9, 0, 1.5, 0.0, (2,))) == 4
    assert room.replicas_that_fit(2, Demand(9, 0, 1.0, 1.0, (1,))) == 9
    assert room.replicas_that_fit(0, Demand(1, 1, 0.0, 0.0, (0,))) == 1


def test_a_sketch_of_a_malformed_grant_is_refused_too() -> None:
    with pytest.raises(ContractError, match="does not name one positive count per node"):
        room_of().take(Grant((Gang(Part((0, 1), (1,))),)))


class TestAdopting:
    def test_a_sketch_that_is_the_plan_is_kept(self) -> None:
        room, plan = room_of(), {0: on(0), 1: on(1)}
        for grant in plan.values():
            room.take(grant)
        assert room.adopt(plan)
        room.undo()
        assert room.free == [6, 2, 0]

    @pytest.mark.parametrize("plan", [{0: on(0)}, {0: on(0), 1: on(1)}, {0: on(0), 1: None}])
    def test_any_other_is_undone(self, plan: dict[int, Grant | None]) -> None:
        room = room_of()
        room.take(on(0))
        room.take(on(1))
        assert not room.adopt(plan)
        assert state(room) == state(room_of())

    def test_a_sketch_that_gives_is_undone(self) -> None:
        room, grant = room_of(), on(0)
        room.take(grant)
        room.adopt({0: grant})
        room.give(grant)
        assert not room.adopt({0: grant})
        assert room.free == [7, 2, 0]

    def test_a_sketch_that_comes_to_starts_and_stops_is_kept(self) -> None:
        # Job 0 makes way for job 2, after a look elsewhere; job 1 holds the same grant and stays.
        room, stops, starts, tried = room_of(), on(0), on(1, 2), on(1)
        ledger = ledger_of(room)
        for job in (0, 1):
            ledger.take(job, stops, ANY)
        for grant in (tried, starts):
            room.take(grant)
        room.give(tried)
        room.give(stops)
        assert room.adopt({2: starts, 0: None}, ledger.charged)
        ledger.vacate(0, reserved=True)
        ledger.take(2, starts, ANY, reserved=True)
        ledger.give_back()
        room.undo()
        assert (list(ledger.grants), free_on(room, 0)[0], free_on(room, 1)[0]) == ([1, 2], 3, 2)

    @pytest.mark.parametrize(
        "plan", [{0: None}, {0: on(1), 2: None}, {1: None, 2: None}, {3: None}]
    )
    def test_a_sketch_that_gives_something_else_is_undone(
        self, plan: dict[int, Grant | None]
    ) -> None:
        room = room_of()
        ledger = ledger_of(room)
        for job, grant in enumerate((on(0), on(0, 2), on(1))):
            ledger.take(job, grant, ANY)
        before = state(room)
        room.give(ledger.grants[1])
        assert not room.adopt(plan, ledger.charged)
        assert state(room) == before


class TestHoldings:
    def test_taking_and_releasing(self) -> None:
        room = room_of()
        ledger = ledger_of(room)
        holding = ledger.take(7, across({0: 2, 1: 1}, 1, 2.0), ANY)
        assert (holding.gpus, holding.cpus) == (3, 6.0)
        assert free_on(room, 0) == (2, 4.0, 16.0)
        assert (ledger.holders(0), ledger.holders(1), ledger.holders(2)) == ([7], [7], [])
        ledger.release(7)
        assert state(room) == state(room_of())
        assert not ledger.grants

    def test_what_is_vacated_is_kept_for_the_same_grant_until_it_is_given_back(self) -> None:
        room, handed_on, left = room_of(), on(0, 2), on(1)
        ledger = ledger_of(room)
        for job, grant in enumerate((handed_on, handed_on, left)):
            ledger.take(job, grant, ANY)
        for job in range(3):
            ledger.vacate(job)
        ledger.take(3, handed_on, ANY)
        assert list(ledger.grants) == list(ledger.charged) == [3]
        ledger.give_back()
        assert room.free == [6, 2, 0]
        ledger.release(3)
        assert state(room) == state(room_of())

    def test_what_is_vacated_makes_room_for_another_grant(self) -> None:
        room = room_of()
        ledger = ledger_of(room)
        ledger.take(0, on(0, 4), ANY)
        ledger.vacate(0)
        ledger.take(1, on(0, 3), ANY)
        assert room.free == [5, 2, 0]

    def test_what_is_vacated_is_not_handed_on_to_a_job_that_does_not_admit_it(self) -> None:
        room, grant = room_of(), on(0)
        ledger = ledger_of(room)
        ledger.take(0, grant, ANY)
        ledger.vacate(0)
        with pytest.raises(ContractError, match="does not admit"):
            ledger.take(1, grant, Demand(1, 1, 0.0, 0.0, (1,)))
        ledger.give_back()
        assert state(room) == state(room_of())

    def test_what_is_reserved_is_not_taken_twice(self) -> None:
        room, grant = room_of(), on(0)
        room.take(grant)
        ledger_of(room).take(0, grant, ANY, reserved=True)
        assert room.free == [7, 2, 0]

    @pytest.mark.parametrize(
        ("grant", "what"),
        [
            (Grant(()), "the grant has no gang"),
            (Grant((Gang(Part((0, 1), (1,))),)), "does not name one positive count per node"),
            (Grant((Gang(Part((), ())),)), "does not name one positive count per node"),
            (on(0, 0), "does not name one positive count per node"),
            (on(0, 1, -1), "asks for less than nothing"),
            (on(0, 1, 1, -1.0), "asks for less than nothing"),
            (on(0, 1, 1, 1.0, -1.0), "asks for less than nothing"),
            (on(4), "there is no node 4"),
            (on(-1), "there is no node -1"),
            (on(3), "node 3 is of a type or partition that the job does not admit"),
            (across({0: 1, 2: 1}), "a gang spans GPU types"),
            (Grant((Gang(Part((0,), (1,)), Part((9,), (1,), 0)),)), "there is no node 9"),
        ],
    )
    def test_malformed_grants_are_refused(self, grant: Grant, what: str) -> None:
        with pytest.raises(ContractError, match=what):
            ledger_of(room_of()).take(0, grant, ANY)

    def test_a_grant_checked_for_one_demand_is_checked_again_for_another(self) -> None:
        room, grant = room_of(), on(0)
        ledger = ledger_of(room)
        ledger.take(0, grant, ANY)
        with pytest.raises(ContractError, match="does not admit"):
            ledger.take(1, grant, Demand(1, 1, 0.0, 0.0, (1,)))

    def test_one_grant_may_serve_two_jobs_of_equal_demand(self) -> None:
        room, grant = room_of(), on(0)
        ledger = ledger_of(room)
        assert ledger.take(0, grant, ANY) is ledger.take(1, grant, ANY)
        assert room.free == [6, 2, 0]

    def test_types_mix_where_that_is_declared(self) -> None:
        room = room_of()
        ledger_of(room, mixed=True).take(0, across({0: 1, 2: 1}), ANY)
        assert room.free == [7, 1, 0]

    def test_servers_may_stand_where_there_are_no_gpus(self) -> None:
        room = room_of()
        ledger_of(room).take(
            0, Grant((Gang(Part((0,), (2,)), Part((3,), (1,), 0, 4.0, 2.0)),)), ANY
        )
        assert free_on(room, 3) == (0, 2.0, 4.0)

    def test_the_overflow_node_holds_anything_and_is_not_counted(self) -> None:
        room = room_of(overflow=True)
        holding = ledger_of(room).take(0, on(4, 99, 1, 5.0), ANY)
        assert holding.gpus == 99
        assert (room.free, room.nodes, room.is_present(4)) == ([8, 2, 0], 4, True)

    def test_many_grants_are_forgotten_and_still_right(self) -> None:
        room = room_of()
        ledger = ledger_of(room)
        ledger.take(0, on(0, 2), ANY)
        for _ in range(9000):
            room.take(on(1))
            room.undo()
        ledger.release(0)
        assert state(room) == state(room_of())


class TestOverlaps:
    def test_what_stays_on_its_node_is_charged_once(self) -> None:
        # Old: two on node 0 and one on node 1. New: three on node 0. Together: three on node 0, one
        # on node 1.
        room = room_of()
        ledger = ledger_of(room)
        ledger.take(0, across({0: 2, 1: 1}), ANY)
        both = ledger.overlap(0, on(0, 3), ANY)
        assert both.gpus == 4
        assert (free_on(room, 0)[0], free_on(room, 1)[0]) == (1, 3)
        assert ledger.holders(1) == [0]
        assert ledger.end_overlap(0).gpus == 3
        assert (free_on(room, 0)[0], free_on(room, 1)[0]) == (1, 4)

    def test_where_everything_stays_nothing_more_is_charged(self) -> None:
        room = room_of()
        ledger = ledger_of(room)
        ledger.take(0, on(0, 2), ANY)
        assert ledger.overlap(0, replace(on(0, 2), tuning=Tuning(64)), ANY).gpus == 2
        assert room.free == [6, 2, 0]

    def test_a_node_named_twice_is_charged_twice(self) -> None:
        room = room_of()
        ledger = ledger_of(room)
        ledger.take(0, on(0, 1), ANY)
        assert ledger.overlap(0, Grant((Gang(Part((0, 0), (1, 1))),)), ANY).gpus == 2
        assert free_on(room, 0)[0] == 2
        ledger.end_overlap(0)
        assert free_on(room, 0)[0] == 2

    def test_replicas_of_another_kind_are_charged_beside(self) -> None:
        room = room_of()
        ledger = ledger_of(room)
        ledger.take(0, on(0, 1, 1, 2.0), ANY)
        assert ledger.overlap(0, on(0, 1, 1, 3.0), ANY).gpus == 2
        assert free_on(room, 0) == (2, 3.0, 16.0)

    def test_servers_are_kept_apart_from_workers(self) -> None:
        room = room_of()
        ledger = ledger_of(room)
        servers = Part((3,), (1,), 0, 2.0)
        ledger.take(0, Grant((Gang(Part((0,), (1,)), servers),)), ANY)
        ledger.overlap(0, Grant((Gang(Part((1,), (1,)), servers._replace(count=(2,))),)), ANY)
        assert free_on(room, 3)[1] == 2.0
        ledger.end_overlap(0)
        ledger.release(0)
        assert state(room) == state(room_of())

    def test_releasing_within_an_overlap_gives_both_back(self) -> None:
        room = room_of()
        ledger = ledger_of(room)
        ledger.take(0, on(0, 2), ANY)
        ledger.overlap(0, on(1, 2), ANY)
        ledger.release(0)
        assert state(room) == state(room_of())

    def test_an_overlap_that_does_not_fit_says_so(self) -> None:
        ledger = ledger_of(room_of())
        ledger.take(0, on(0, 3), ANY)
        with pytest.raises(Shortage, match="node 2: 3 GPUs asked, 2 free"):
            ledger.overlap(0, on(2, 3), ANY)


def test_who_counted_on_the_room_of_a_job_that_changed_meanwhile_is_void() -> None:
    # The plan stopped job 0 on node 0 and put job 1 there; job 0 has lost its copy on node 1 since,
    # and still holds node 0.
    ledger = ledger_of(room_of())
    seen = {0: across({0: 3, 1: 3}), 1: None, 2: None}
    ledger.take(0, on(0, 3), ANY)
    assert ledger.still_valid({0: None, 1: on(0, 2), 2: on(1, 2)}, seen, set()) == {2: on(1, 2)}
