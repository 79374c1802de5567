from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.placement import PLACEMENTS, Placer, could_ever_hold, empty_cluster_grant
from sim.cluster import Cluster, GpuType
from sim.contract import Demand, Gang, Grant, Part
from sim.demand import group_into_pools
from sim.engine.ledger import FreeRoom


def view_of(cluster: Cluster, free: list[int] | None = None) -> Any:
    """A view of a cluster on whose nodes only so many GPUs are free."""
    room = FreeRoom(cluster, group_into_pools(cluster))
    for node, left in enumerate(free or []):
        if left < cluster.nodes[node].gpus:
            room.take(Grant((Gang(Part((node,), (cluster.nodes[node].gpus - left,))),)))
    return SimpleNamespace(cluster=cluster, room=room)


def spots(grant: Grant | None) -> dict[int, int] | None:
    if grant is None:
        return None
    workers = grant.gangs[0].workers
    return dict(zip(workers.nodes, workers.count, strict=True))


def gpus(count: int, pools: tuple[int, ...] = (0,)) -> Demand:
    return Demand(count, 1, 0.0, 0.0, pools)


FOUR = Cluster.parse("4x4:v100")
FREE = [1, 4, 2, 3]


@pytest.mark.parametrize(
    ("how", "asked", "expected"),
    [
        # pack: fullest nodes first, i.e. in order 0 (1 free), 2 (2), 3 (3), 1 (4).
        ("pack", 1, {0: 1}),
        ("pack", 3, {0: 1, 2: 2}),
        ("pack", 7, {0: 1, 2: 2, 3: 3, 1: 1}),
        # fewest: alone on the fullest node that can hold it; else the emptiest, and the rest on the
        # fullest that can hold the rest.
        ("fewest", 1, {0: 1}),
        ("fewest", 3, {3: 3}),
        ("fewest", 5, {1: 4, 0: 1}),
        ("fewest", 6, {1: 4, 2: 2}),
        ("fewest", 8, {1: 4, 3: 3, 0: 1}),
        # consolidate: the same, but never on more nodes than an empty cluster would need: 5 GPUs on
        # 2 nodes, 9 on 3.
        ("consolidate", 3, {3: 3}),
        ("consolidate", 5, {1: 4, 0: 1}),
        ("consolidate", 8, None),
        ("consolidate", 9, {1: 4, 3: 3, 2: 2}),
        # first_fit: waits as consolidate does, but does not look for the fullest node: 1 GPU goes
        # to node 0, 2 and 3 GPUs to node 1, the first with so many; of 5, node 1 is filled and node
        # 0 takes the rest, of 6, node 2 is the first with room for the rest of 2.
        ("first_fit", 1, {0: 1}),
        ("first_fit", 2, {1: 2}),
        ("first_fit", 3, {1: 3}),
        ("first_fit", 5, {1: 4, 0: 1}),
        ("first_fit", 6, {1: 4, 2: 2}),
        ("first_fit", 8, None),
        ("first_fit", 9, {1: 4, 3: 3, 2: 2}),
        # spread: one GPU after the other from the node with the most free ones: 1 (4 left), 1 and 3
        # (3 each), 1 (2), ...
        ("spread", 1, {1: 1}),
        ("spread", 3, {1: 2, 3: 1}),
        ("spread", 7, {1: 3, 2: 1, 3: 2, 0: 1}),
        # anywhere: in order of node numbers.
        ("anywhere", 1, {0: 1}),
        ("anywhere", 3, {0: 1, 1: 2}),
        ("anywhere", 7, {0: 1, 1: 4, 2: 2}),
    ],
)
def test_worked_examples(how: str, asked: int, expected: dict[int, int] | None) -> None:
    assert spots(Placer(how, "fastest", False)(view_of(FOUR, FREE), gpus(asked))) == expected


@pytest.mark.parametrize("how", PLACEMENTS)
def test_all_that_is_free_but_no_more(how: str) -> None:
    assert spots(Placer(how, "fastest", False)(view_of(FOUR, [4, 4, 4, 4]), gpus(16))) == {
        0: 4,
        1: 4,
        2: 4,
        3: 4,
    }
    assert Placer(how, "fastest", False)(view_of(FOUR, FREE), gpus(11)) is None


@pytest.mark.parametrize("how", PLACEMENTS)
def test_what_was_placed_is_reserved(how: str) -> None:
    place, view = Placer(how, "fastest", False), view_of(FOUR)
    placed = [place(view, gpus(4)) for _ in range(5)]
    assert placed[-1] is None
    assert sum(sum(grant.gangs[0].workers.count) for grant in placed if grant) == 16
    assert view.room.gpus_free((0,)) == 0


LIMITED = Cluster.parse("4x4:v100/8c/32g")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        # Each replica takes 1 GPU and 4 cores: 2 fit on an empty node. Node 0 has 1 GPU left, node
        # 2 has 2, the others more: room for 1, 2, 2 and 2.
        ("pack", {0: 1, 1: 2}),
        ("fewest", {1: 2, 0: 1}),
        ("consolidate", {1: 2, 0: 1}),
        ("first_fit", {1: 2, 0: 1}),
        ("spread", {1: 1, 2: 1, 3: 1}),
        ("anywhere", {0: 1, 1: 2}),
    ],
)
def test_cores_limit_what_a_node_holds(how: str, expected: dict[int, int]) -> None:
    assert (
        spots(Placer(how, "fastest", False)(view_of(LIMITED, FREE), Demand(3, 1, 4.0, 0.0, (0,))))
        == expected
    )


@pytest.mark.parametrize("how", PLACEMENTS)
def test_memory_limits_what_a_node_holds(how: str) -> None:
    place, view = Placer(how, "fastest", False), view_of(LIMITED)
    assert spots(place(view, Demand(4, 1, 0.0, 32.0, (0,)))) == {0: 1, 1: 1, 2: 1, 3: 1}
    assert place(view, Demand(1, 1, 0.0, 1.0, (0,))) is None
    assert place(view, gpus(1)) is not None


@pytest.mark.parametrize(
    ("asked", "expected"), [(1, {0: 1}), (2, {1: 2}), (3, {1: 2, 0: 1}), (4, {1: 2, 2: 2})]
)
def test_first_fit_where_cores_limit_too(asked: int, expected: dict[int, int]) -> None:
    # A replica takes 4 cores, a node has 8, so nodes 0 to 3 hold 1, 2, 2 and 2. Node 0 is the first
    # for 1, node 1 for 2, though node 2 is fuller; 3 and 4 need two nodes anyway.
    demand = Demand(asked, 1, 4.0, 0.0, (0,))
    assert spots(Placer("first_fit", "fastest", False)(view_of(LIMITED, FREE), demand)) == expected


def test_consolidate_counts_what_a_node_can_hold_with_its_cores() -> None:
    # 4 replicas with 4 cores each: 2 per node, so 2 nodes are the fewest ever, although 4 GPUs
    # would fit on one.
    place = Placer("consolidate", "fastest", False)
    assert spots(place(view_of(LIMITED), Demand(4, 1, 4.0, 0.0, (0,)))) == {0: 2, 1: 2}
    assert place(view_of(LIMITED, [1, 1, 1, 1]), Demand(4, 1, 4.0, 0.0, (0,))) is None


def test_cores_take_only_the_nodes_that_still_have_some() -> None:
    view = view_of(LIMITED)
    view.room.take(Grant((Gang(Part((0, 1), (1, 1), 0, 8.0, 0.0)),)))
    assert spots(Placer("fewest", "fastest", False)(view, Demand(1, 1, 1.0, 0.0, (0,)))) == {2: 1}


@pytest.mark.parametrize("how", PLACEMENTS)
def test_cpu_jobs_need_no_gpus(how: str) -> None:
    cluster = Cluster.parse("1x4:v100,2x0:cpu")
    view = view_of(cluster, [0])
    grant = Placer(how, "fastest", False)(view, Demand(96, 0, 1.0, 0.0, (0, 1)))
    assert grant is not None
    # CPU nodes come before those with GPUs.
    assert sum((spots(grant) or {}).values()) == 96
    assert 0 not in (spots(grant) or {})
    only = Placer(how, "fastest", False)(view_of(cluster), Demand(100, 0, 1.0, 0.0, (1,)))
    assert only is not None
    assert sum(only.gangs[0].workers.count) == 100


def test_nodes_out_of_service_are_not_used() -> None:
    view = view_of(FOUR)
    view.room.remove(0)
    assert spots(Placer("fewest", "fastest", False)(view, gpus(4))) == {1: 4}
    limited = view_of(LIMITED)
    limited.room.remove(0)
    assert spots(Placer("fewest", "fastest", False)(limited, Demand(2, 1, 4.0, 0.0, (0,)))) == {
        1: 2
    }


TYPES = (GpuType("mid", 1.0, 3.0), GpuType("slow", 0.5, 1.0), GpuType("fast", 2.0, 0.7))
MIXED = Cluster(Cluster.parse("1x2:mid,1x2:slow,1x2:fast").groups, TYPES)
ANY = (0, 1, 2)


@pytest.mark.parametrize(
    ("types", "order"),
    [("fastest", [2, 0, 1]), ("slowest_that_fits", [1, 0, 2]), ("cheapest", [2, 1, 0])],
)
def test_types_are_tried_in_order(types: str, order: list[int]) -> None:
    # Speeds 1, 0.5 and 2; prices 3, 1 and 0.7 USD per GPU and hour.
    place, view = Placer("fewest", types, False), view_of(MIXED)
    assert [spots(place(view, gpus(2, ANY))) for _ in order] == [{node: 2} for node in order]
    assert place(view, gpus(1, ANY)) is None


def test_a_gang_spans_types_only_if_it_may_and_must() -> None:
    demand = gpus(2, ANY)
    assert Placer("fewest", "fastest", False)(view_of(MIXED, [1, 1, 1]), demand) is None
    assert spots(Placer("anywhere", "fastest", True)(view_of(MIXED, [1, 1, 1]), demand)) == {
        0: 1,
        1: 1,
    }
    assert spots(Placer("fewest", "fastest", True)(view_of(MIXED, [2, 1, 1]), demand)) == {0: 2}
    # 6 GPUs fit no single type at all.
    assert spots(Placer("fewest", "fastest", True)(view_of(MIXED), gpus(6, ANY))) == {
        0: 2,
        1: 2,
        2: 2,
    }


def test_only_admitted_pools() -> None:
    assert spots(Placer("fewest", "fastest", False)(view_of(MIXED), gpus(2, (0, 1)))) == {0: 2}
    assert Placer("fewest", "fastest", False)(view_of(MIXED), gpus(2, ())) is None


def test_alone_and_ever() -> None:
    view = view_of(Cluster.parse("1x2:v100,1x8:v100,1x4:t4"), [0, 0, 0])
    assert spots(
        empty_cluster_grant(
            view,
            gpus(9, (0, 1)),
            Placer("pack", "fastest", False).options(view, gpus(9, (0, 1))).groups,
        )
    ) == {0: 1, 1: 8}
    assert could_ever_hold(view, gpus(10, (0, 1)), mixed=False)
    assert not could_ever_hold(view, gpus(11, (0, 1)), mixed=False)
    assert could_ever_hold(view, gpus(14, (0, 1)), mixed=True)


def test_a_job_that_fits_nowhere_takes_for_ever() -> None:
    view = view_of(FOUR)
    view.demand = lambda job: gpus(17)
    assert Placer("fewest", "fastest", False).run_time_s(view, 0) == inf


@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.integers(1, 16),
    st.sampled_from(PLACEMENTS),
    st.booleans(),
)
def test_any_placement_finds_room_where_there_is_some(
    free: list[int], asked: int, how: str, limited: bool
) -> None:
    view = view_of(LIMITED if limited else FOUR, free)
    demand = Demand(asked, 1, 2.0 if limited else 0.0, 0.0, (0,))
    found = spots(Placer(how, "fastest", False)(view, demand))
    if how not in {"consolidate", "first_fit"}:
        assert (found is None) == (sum(free) < asked)
    if found is not None:
        assert sum(found.values()) == asked
        assert all(count <= free[node] for node, count in found.items())
    if found is not None and how in {"fewest", "consolidate", "first_fit"}:
        largest = sorted(free, reverse=True)
        assert len(found) == next(nodes for nodes in range(1, 5) if sum(largest[:nodes]) >= asked)
    if found is not None and how in {"consolidate", "first_fit"}:
        assert len(found) <= -(-asked // 4)


@pytest.mark.parametrize("how", PLACEMENTS)
@pytest.mark.parametrize(
    "asked", [gpus(1), gpus(5), Demand(3, 0, 0.0, 0.0, (0,)), Demand(3, 0, 2.0, 0.0, (0,))]
)
def test_nodes_to_avoid_are_left_out(how: str, asked: Demand) -> None:
    placer, view = Placer(how, "fastest", mix=False), view_of(FOUR)
    found = spots(placer(view, asked, {0, 2}))
    assert found is not None
    assert set(found) <= {1, 3}
    assert placer(view_of(FOUR), asked, {0, 1, 2, 3}) is None
    assert set(spots(placer(view_of(FOUR), asked)) or ()) - {1, 3}
