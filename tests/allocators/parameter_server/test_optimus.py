"""Optimus: divisions worked out by hand, against a plain search, and the variant that only
grows.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.parameter_server.optimus import GROW_ONLY, Optimus
from sim.engine.faults import Faults
from sim.overheads import Overheads
from tests.allocators.parameter_server.staffed import run, sizes, staffed, step_s


def test_a_lone_job_grows_until_nothing_is_gained() -> None:
    # Eight GPUs, 200 cores. At (8, P) a step takes 1 + 8 / P; servers are added up to the limit of
    # ten, since each still helps: 1.8 s.
    result = run(Optimus(), staffed([(0, 1, 1, 100)], max_gpus=[8.0]))
    assert sizes(result) == [(0, 0, pytest.approx(180), 8, 10, True)]
    few = run(Optimus(most_servers=2), staffed([(0, 1, 1, 100)], max_gpus=[8.0]))
    # (5, 2): 1.6 + 2.5 = 4.1; (4, 2): 2 + 2 = 4: the fifth worker would cost time.
    assert sizes(few) == [(0, 0, pytest.approx(400), 4, 2, True)]


def options(
    now: tuple[int, int], steps: float, whole: tuple[int, float], most: tuple[int, int]
) -> list[tuple[float, tuple[int, int]]]:
    """What one more worker or server gains per dominant share."""
    (workers, servers), (gpus, cores) = now, whole
    found = []
    for more, share in (
        ((workers + 1, servers), max(1 / gpus, 1 / cores)),
        ((workers, servers + 1), 5 / cores),
    ):
        if more[0] <= most[0] and more[1] <= most[1]:
            found.append(((step_s(*now) - step_s(*more)) * steps / share, more))
    return found


def plain(
    steps: list[float], gpus: int, cores: float, most: tuple[int, int]
) -> dict[int, tuple[int, int]]:
    """The division, looking at every job anew for every single worker or server."""
    left, size = [gpus, cores], dict[int, tuple[int, int]]()
    for job in range(len(steps)):
        if left[0] >= 1 and left[1] >= 6:
            left, size[job] = [left[0] - 1, left[1] - 6], (1, 1)
    while True:
        found = [
            (gain, -job, more)
            for job, now in size.items()
            for gain, more in options(now, steps[job], (gpus, cores), most)
        ]
        gain, minus, more = max(found, default=(0.0, 0, (0, 0)))
        if gain <= 0:
            return size
        now = size[-minus]
        left = [left[0] - (more[0] - now[0]), left[1] - (more[0] - now[0]) - 5 * (more[1] - now[1])]
        if min(left) < 0:
            return size
        size[-minus] = more


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=7, unique=True), st.integers(40, 150))
def test_the_division_is_that_of_a_plain_search(counts: list[int], cores: int) -> None:
    steps = [
        count * (1 + 0.000137 * count) for count in counts
    ]  # so that no two gains are the same
    result = run(
        Optimus(most_servers=4),
        staffed([(0.0, 1, 1, count) for count in steps], max_gpus=[6.0] * len(steps)),
        f"1x8:v100/{cores}c",
    )
    first = {row[0]: (row[3], row[4]) for row in sizes(result) if row[1] == 0}
    assert first == plain(steps, 8, float(cores), (6, 4))


def test_everything_is_divided_anew_at_every_interval_and_only_then() -> None:
    # Job 1 comes at 10, but nothing is decided before 600; then both begin at one and one.
    trace = staffed([(0, 1, 1, 1000), (10, 1, 1, 1000)], max_gpus=[8.0, 8.0])
    result = run(
        Optimus(interval_s=600.0, most_servers=4), trace, overheads=Overheads(restart_s=30)
    )
    assert result.jobs["first_start_s"].tolist() == [0, 600]
    held = {row[:2]: row[3:5] for row in sizes(result)}
    # A step takes 2.85 s at (5, 4), 2.83 at (6, 4) and 2.89 at (7, 4).
    assert held[0, 0] == (6, 4)
    assert held[0, 600][0] + held[1, 600][0] == 8
    assert held[0, 600] < held[0, 0]
    assert result.jobs["preemptions"][0] == 1


def test_grow_only_never_shrinks_and_starts_with_what_is_asked() -> None:
    jobs = [(0, 4, 4, 300), (10, 6, 1, 300), (10, 2, 1, 300)]
    result = run(
        Optimus(variant=GROW_ONLY, interval_s=100.0, most_servers=4),
        staffed(jobs),
        "1x8:v100/36c",
        Overheads(restart_s=5),
    )
    for job, (_, workers, servers, _) in enumerate(jobs):
        held = [row[3:5] for row in sizes(result) if row[0] == job]
        assert held[0] >= (workers, servers)
        assert all(now[0] >= then[0] and now[1] >= then[1] for then, now in pairwise(held))
    # At 100 six GPUs are not there for job 1, so job 2 passes it.
    assert result.jobs["first_start_s"][2] == 100 < result.jobs["first_start_s"][1]
    assert (result.jobs["outcome"] == "completed").all()


def test_who_must_not_be_stopped_keeps_what_it_has() -> None:
    result = run(
        Optimus(interval_s=50.0), staffed([(0, 1, 1, 200), (10, 1, 1, 200)], preemptible=[0.0, 1.0])
    )
    assert result.jobs["preemptions"][0] == 0
    assert (result.jobs["outcome"] == "completed").all()


def test_nodes_without_gpus_that_are_out_are_not_divided() -> None:
    # Thirteen cores beside the GPUs, forty on a node that is away until 400: room for two servers,
    # then for more.
    result = run(
        Optimus(interval_s=100.0),
        staffed([(0, 1, 1, 200)], max_gpus=[8.0]),
        "1x8:v100/13c,1x0:cpu/40c",
        faults=Faults(outages="1:0:400"),
    )
    held = {row[1]: row[4] for row in sizes(result)}
    assert held[0] == 2
    assert max(held.values()) > 2
