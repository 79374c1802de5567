"""Occupancy of nodes, racks and types, and the bars of one node, on runs written down by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from sim.cluster import Cluster, NodeGroup
from sim.errors import ParameterError
from sim.metrics import occupancy as held
from sim.metrics.occupancy import bars, difference, fitting, groups, occupancy, order
from sim.metrics.timeline import Timeline
from tests.sim.metrics.metrics_cases import Held, Job, cluster_of, five, outages_of, run_of

FIVE = Timeline(five(), cluster_of())


def few_bins(monkeypatch: pytest.MonkeyPatch, bins: int) -> None:
    monkeypatch.setattr(held, "MAX_BINS", bins)


def test_means_of_bins_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    few_bins(monkeypatch, 5)
    found = occupancy(FIVE, (0.0, 250.0))
    assert found.rows == ("v100-1-1", "t4-2-1")
    assert found.kinds == ("v100", "t4")
    assert found.size.tolist() == [4.0, 2.0]
    assert found.t_s.tolist() == [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]
    # Node 0: 2 GPUs to 100, 4 to 150, none to 200, 4 to 260. Node 1: one GPU 20..80 and 150..210.
    assert_allclose(found.used, [[2, 2, 4, 0, 4], [0.6, 0.6, 0, 1, 0.2]], rtol=1e-6)
    # Node 1 is down from 80 to 120.
    assert_allclose(found.down, [[0, 0, 0, 0, 0], [0, 0.4, 0.4, 0, 0]], rtol=1e-6)


def test_a_window_cuts_what_is_held_before_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    few_bins(monkeypatch, 2)
    found = occupancy(FIVE, (60.0, 160.0))
    assert_allclose(
        found.used, [[2 * 40 / 50 + 4 * 10 / 50, 4 * 40 / 50], [20 / 50, 10 / 50]], rtol=1e-6
    )


def test_racks_and_types_add_up_their_nodes_and_open_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few_bins(monkeypatch, 1)
    cluster = Cluster(
        (NodeGroup(4, 2, "v100", rack_size=2), NodeGroup(1, 4, "t4"), NodeGroup(2, 0, name="cpu"))
    )
    pieces = [
        Held(0, 0, 10, 2, node=0),
        Held(0, 0, 5, 2, node=1),
        Held(0, 0, 10, 1, node=3),
        Held(0, 0, 10, 3, node=4),
    ]
    line = Timeline(
        run_of([Job(0, 8, 0, 10)], pieces, 10.0, outages=outages_of([(2, 0.0, 5.0, "outage")])),
        cluster,
    )
    racks = occupancy(line, (0.0, 10.0), "rack")
    assert racks.rows == ("v100-1/r1", "v100-1/r2", "t4-2/r1")
    assert racks.used.tolist() == [[3.0], [1.0], [3.0]]
    assert racks.down.tolist() == [[0.0], [0.25], [0.0]]
    types = occupancy(line, (0.0, 10.0), "type")
    assert (types.rows, types.racks) == (("v100", "t4"), ("", "t4-2/r1"))
    assert types.used.tolist() == [[4.0], [3.0]]
    assert occupancy(line, (0.0, 10.0), "node", "v100-1/r2").rows == ("v100-1-3", "v100-1-4")
    assert occupancy(line, (0.0, 10.0), "rack", "v100").rows == ("v100-1/r1", "v100-1/r2")
    assert groups(line, "type") == ("v100", "t4")
    assert order(racks, "load") == [0, 2, 1]
    assert order(racks, "rack") == [2, 0, 1]
    assert order(racks, "type") == [2, 0, 1]
    assert order(racks, "cluster") == [0, 1, 2]


def test_without_gpus_cores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    few_bins(monkeypatch, 1)
    result = run_of([Job(0, 0, 0, 10)], [Held(0, 0, 10, 3)], 10.0)
    result.placements["gpus"] = 0
    result.placements["cpus"] = 2.0
    found = occupancy(Timeline(result, Cluster.parse("2x0:cpu/8c")), (0.0, 10.0))
    assert found.unit == "core"
    assert found.used.tolist() == [[6.0], [0.0]]
    assert found.kinds == ("CPU", "CPU")


def test_what_the_recording_holds_beyond_the_cluster_is_on_no_row() -> None:
    line = Timeline(
        run_of([Job(0, 2, 0, 10)], [Held(0, 0, 10, 2, node=2)], 10.0, overflow=2), cluster_of()
    )
    assert not occupancy(line, (0.0, 10.0)).used.any()


def test_difference_is_one_minus_the_other_and_of_the_same_picture_only() -> None:
    window = 0.0, 260.0
    first, empty = (
        occupancy(FIVE, window),
        occupancy(Timeline(run_of([Job(0, 2)], [], 260.0), cluster_of()), window),
    )
    assert np.array_equal(difference(first, empty), first.used)
    assert np.array_equal(difference(empty, first), -first.used)
    with pytest.raises(ParameterError, match="same machines at the same times"):
        difference(first, occupancy(FIVE, (0.0, 200.0)))


def test_as_many_rows_as_a_screen_has() -> None:
    many = Timeline(
        run_of([Job(0, 2, 0, 10)], [Held(0, 0, 10, 2)], 10.0),
        Cluster((NodeGroup(1000, 2, "v100", rack_size=10), NodeGroup(30, 1, "t4"))),
    )
    assert fitting(many) == "rack"
    assert fitting(many, "t4-2/r1") == "node"
    assert fitting(many, "v100-1/r3") == "node"
    assert fitting(FIVE) == "node"
    with pytest.raises(ParameterError, match="1,030 rows, and 1,024 can be shown"):
        occupancy(many, (0.0, 10.0))
    for nodes, bins in ((128, 1000), (512, 253)):
        full = Timeline(many.result, Cluster.parse(f"{nodes}x2:v100"))
        assert occupancy(full, (0.0, 10.0)).used.shape == (nodes, bins)


def test_holdings_of_several_nodes_are_joined_and_in_order_of_row_and_time() -> None:
    pieces = [
        Held(0, 0, 40, 2, node=0),
        Held(0, 40, 60, 2, node=0),  # goes on, so one holding
        Held(0, 60, 70, 1, node=0),
        Held(1, 5, 90, 2, node=2),
        Held(2, 95, 99, 2, node=2),
        Held(3, 50, 60, 1, node=1),
    ]
    line = Timeline(
        run_of([Job(0, 2, 0, 99)] * 4, pieces, 99.0, outages=outages_of([(1, 70, 80, "outage")])),
        Cluster.parse("3x2:v100"),
    )
    frame, left_out = held.holdings(line, [2, 0], (50.0, 90.0))
    columns = ["row", "job", "t0", "t1", "gpus"]
    # The first holding of job 0 began before the window.
    expected = [[0, 1, 5, 90, 2], [1, 0, 0, 60, 2], [1, 0, 60, 70, 1]]
    assert (frame[columns].to_numpy().tolist(), left_out) == (expected, 0)
    frame, left_out = held.holdings(line, [0, 1, 2], (50.0, 99.0), most=2)
    assert frame[columns].to_numpy().tolist() == [[0, 0, 0, 60, 2], [2, 1, 5, 90, 2]]
    assert left_out == 3
    assert held.outages(line, [2, 1], (75.0, 76.0)).to_numpy().tolist() == [[1, 70, 80]]
    assert not len(held.outages(line, [2, 1], (80.0, 90.0)))
    none, left_out = held.holdings(line, [1], (0.0, 10.0))
    assert (len(none), left_out) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((5.0, 5.0),), "ends after it begins"),
        (((0.0, 9.0), "user"), "cannot be grouped by user"),
        (((0.0, 9.0), "node", "h100"), "is called 'h100'"),
    ],
)
def test_what_cannot_be_shown_is_said(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        occupancy(FIVE, *arguments)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="sorted by size"):
        order(occupancy(FIVE, (0.0, 9.0)), "size")


def test_equal_names_are_told_apart() -> None:
    cluster = Cluster((NodeGroup(1, 2, "v100", name="big"), NodeGroup(1, 2, "v100", name="big")))
    assert Timeline(five(), cluster).names == ("big-1", "big-1 (2)")


held_pieces = st.lists(
    st.tuples(st.floats(-50, 150), st.floats(0, 80), st.integers(1, 3), st.integers(0, 1)),
    max_size=25,
)


@given(held_pieces)
def test_occupancy_is_the_integral_of_what_is_held(
    pieces: list[tuple[float, float, int, int]],
) -> None:
    cluster = Cluster.parse("1x200:v100,1x200:t4")
    line = Timeline(
        run_of(
            [Job(0, 1)],
            [Held(0, begin, begin + long, gpus, node) for begin, long, gpus, node in pieces],
            200.0,
        ),
        cluster,
    )
    found = occupancy(line, (0.0, 100.0))
    expected = [
        sum(
            gpus * max(0.0, min(begin + long, 100.0) - max(begin, 0.0))
            for begin, long, gpus, node in pieces
            if node == row
        )
        for row in (0, 1)
    ]
    assert_allclose(found.used.sum(axis=1, dtype=np.float64) * 0.1, expected, rtol=1e-4, atol=1e-4)


# -- bars
# --------------------------------------------------------------------------------------------------


def rows(found: held.Bars) -> list[tuple[float, ...]]:
    return [tuple(row) for row in found.frame.itertuples(index=False)]


def test_bars_lie_in_lanes_without_overlap_and_join_what_goes_on() -> None:
    pieces = [
        Held(0, 0, 10, 2, ended="changed"),
        Held(0, 10, 40, 2),  # another rate
        Held(1, 5, 20, 1),
        Held(2, 20, 60, 1),
        Held(3, 40, 50, 3),
        Held(3, 50, 50, 3),  # of no length
        Held(4, 0, 90, 2, node=1),
    ]
    line = Timeline(run_of([Job(0, 2)] * 5, pieces, 90.0), cluster_of())
    assert rows(bars(line, 0, (0.0, 90.0))) == [
        (0, 0, 40, 2, 0),
        (1, 5, 20, 1, 2),
        (2, 20, 60, 1, 2),
        (3, 40, 50, 2, 0),
        (3, 40, 50, 1, 3),
    ]
    assert rows(bars(line, 0, (45.0, 55.0))) == [(2, 45, 55, 1, 0), (3, 45, 50, 3, 1)]


def test_of_too_many_bars_the_longest_stay() -> None:
    line = Timeline(
        run_of(
            [Job(0, 1)] * 6, [Held(job, 10 * job, 10 * job + job + 1, 1) for job in range(6)], 60.0
        ),
        cluster_of(),
    )
    found = bars(line, 0, (0.0, 60.0), most=2)
    assert found.frame["job"].tolist() == [4, 5]
    assert found.left_out == 4
