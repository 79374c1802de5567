"""Why a job ran longer than in another run, from two records written down by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sim.cluster import Cluster, GpuType, NodeGroup
from tests.sim.metrics.metrics_cases import Held, Job, run_of, trace_of
from trainyard.what_if.explore import Book
from trainyard.what_if.reasons import ran_longer

CLUSTER = Cluster(
    (NodeGroup(2, 4, "v100"), NodeGroup(1, 4, "k80")),
    (GpuType("v100", 1.0), GpuType("k80", 0.5)),
)
THERE = [Held(0, 0.0, 3600.0, 4)]


def book(held: Sequence[Held], *, lost_work: float = 0.0, outcome: str = "completed") -> Book:
    end_s = held[-1].t1
    job = Job(0.0, 4, held[0].t0, end_s, outcome, lost_work=lost_work, work=3600.0)
    result = run_of([job], held, end_s)
    return Book(result, trace_of([job]), CLUSTER, "FIFO")


@pytest.mark.parametrize(
    ("held", "lost_work", "said"),
    [
        ([Held(0, 0.0, 7200.0, 4, 2)], 0.0, "1 h longer than under FIFO: on K80 instead of"),
        (
            [Held(0, 0.0, 3600.0, 4), Held(0, 3600.0, 7200.0, 4, 2)],
            0.0,
            "on V100 (50 %) and K80 (50 %) instead of V100.",
        ),
        (
            [Held(0, 0.0, 1800.0, 4), Held(0, 1800.0, 7200.0, 2)],
            0.0,
            "on 2 to 4 GPUs instead of 4 GPUs.",
        ),
        (
            [Held(0, 0.0, 3600.0, 4, ended="evicted"), Held(0, 3600.0, 7200.0, 4)],
            3600.0,
            "a stop undid work that took 1 h again.",
        ),
        ([Held(0, 0.0, 7200.0, 4, 1)], 0.0, "the record does not say why."),
    ],
)
def test_what_differs_is_said(held: list[Held], lost_work: float, said: str) -> None:
    assert said in ran_longer(book(held, lost_work=lost_work), book(THERE), 0)


def test_a_job_on_more_nodes() -> None:
    both = [Held(0, 0.0, 7200.0, 2, 0), Held(0, 0.0, 7200.0, 2, 1)]
    assert "on 2 nodes instead of 1 node" in ran_longer(book(both), book(THERE), 0)


def test_nothing_is_said_of_a_job_that_ran_as_long_or_did_not_finish() -> None:
    waits = [Held(0, 7200.0, 10_800.0, 4)]
    paused = [Held(0, 0.0, 7200.0, 4, paused=3600.0)]
    for held in (THERE, waits, paused):
        assert ran_longer(book(held), book(THERE), 0) == ""
    late = [Held(0, 0.0, 7200.0, 4, 2)]
    assert ran_longer(book(late, outcome="unfinished"), book(THERE), 0) == ""
