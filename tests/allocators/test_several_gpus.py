"""Workers of several GPUs each: every policy counts GPUs where it means GPUs and workers where it
means workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocators import make
from allocators.elastic.greedy import GreedyElastic
from allocators.heterogeneous.gavel.policy import Gavel
from sim.contract import Allocator, Spec
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.parameter_server.staffed import run, sizes
from tests.allocators.queue.walk import trace_of

ROUNDS = ("hadar", "hadare", "gavel")
ELASTIC = ("greedy_elastic", "mip_elastic", "dp_elastic")


def step_s(workers: int, gpus: int, servers: int) -> float:
    """A step of the toy model on several GPUs per worker: 8 samples, and each server takes a second
    per worker.
    """
    return 8 / (workers * gpus) + workers / servers


def trace(
    jobs: list[tuple[float, int, int, float]], servers: int = 2, **columns: list[Any]
) -> Trace:
    """Jobs as (submission, workers, GPUs of each, steps)."""
    submit, workers, gpus, steps = (list(column) for column in zip(*jobs, strict=True))
    times = [step_s(w, g, servers) * n for w, g, n in zip(workers, gpus, steps, strict=True)]
    held = [w * g for w, g in zip(workers, gpus, strict=True)]
    beside = [servers] * len(jobs)
    return trace_of(
        list(zip(submit, held, times, strict=True)),
        workers=workers,
        servers=beside,
        total_steps=steps,
        model=["toy"] * len(jobs),
        **columns,
    )


def of_workers(result: RunResult) -> set[tuple[int, int]]:
    """Every (job, GPUs of a worker) that was placed."""
    placed = result.placements[result.placements["role"] == 0]
    return set(
        zip(
            result.segments["job"].to_numpy()[placed["segment"]].tolist(),
            placed["gpus"].tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("allocator", [*ROUNDS, *ELASTIC])
def test_jobs_of_a_fixed_size_end_when_added_up_by_hand(allocator: str) -> None:
    # A step takes 8/4 + 2/2 = 3 s on 2 workers of 2 GPUs, 8/8 + 2/2 = 2 s on 2 of 4, 8/2 + 2/2 = 5
    # s on 2 of 1: all 14 GPUs are in use at once.
    jobs = trace(
        [(0, 2, 2, 100), (0, 2, 4, 50), (0, 2, 1, 30)],
        min_gpus=[4.0, 8.0, 2.0],
        max_gpus=[4.0, 8.0, 2.0],
    )
    result = run(make(Spec(allocator)), jobs, "1x16:v100/200c")
    assert result.jobs["finish_s"].tolist() == pytest.approx([300.0, 100.0, 150.0])
    assert of_workers(result) == {(0, 2), (1, 4), (2, 1)}


@pytest.mark.parametrize("allocator", [*ROUNDS, *ELASTIC])
def test_a_job_that_needs_every_gpu_waits_for_them_and_then_runs(allocator: str) -> None:
    # 200 steps of 3 s, or half the time and the price of copies for the two of HadarE; the second
    # job needs all 8 GPUs, for 100 steps of 2 s.
    jobs = trace([(0, 2, 2, 200), (1, 2, 4, 100)], min_gpus=[4.0, 8.0], max_gpus=[4.0, 8.0])
    result = run(make(Spec(allocator)), jobs, "2x4:v100/200c")
    assert result.jobs["outcome"].astype(str).tolist() == ["completed"] * 2
    ran_s = [
        sum(end - begin for job, begin, end, *_ in sizes(result) if job == at) for at in (0, 1)
    ]
    assert ran_s == pytest.approx(
        [300.0 / (0.95 * 355 / 360) if allocator == "hadare" else 600.0, 200.0]
    )
    assert of_workers(result) == {(0, 2), (1, 4)}


@pytest.mark.parametrize(
    "allocator",
    [GreedyElastic(variant="reclaim"), make(Spec("mip_elastic")), make(Spec("dp_elastic"))],
    ids=ELASTIC,
)
def test_elastic_jobs_grow_and_shrink_by_whole_workers(allocator: Allocator) -> None:
    jobs = trace(
        [(0, 2, 2, 2000), (700, 1, 4, 100)], servers=4, min_gpus=[2.0, 4.0], max_gpus=[8.0, 4.0]
    )
    result = run(allocator, jobs)
    first = [(begin, end, workers) for job, begin, end, workers, *_ in sizes(result) if job == 0]
    assert [workers for *_, workers in first] == [
        4,
        2,
        4,
    ], "it has all eight GPUs but while it makes room"
    assert sum(
        (end - begin) / step_s(workers, 2, 4) for begin, end, workers in first
    ) == pytest.approx(2000)
    assert of_workers(result) == {(0, 2), (1, 4)}
    assert result.jobs["outcome"].astype(str).tolist() == ["completed"] * 2


def test_whole_nodes_hold_as_many_workers_as_have_room() -> None:
    # Both nodes are one job's: 4 workers of 2 GPUs, and a step takes 8/8 + 4/4 = 2 s.
    result = run(
        GreedyElastic(granularity="node"),
        trace([(0, 2, 2, 100)], servers=4, max_gpus=[8.0]),
        "2x4:v100/200c",
    )
    assert result.jobs["finish_s"].tolist() == pytest.approx([200.0])
    workers = result.placements[result.placements["role"] == 0]
    assert sorted(zip(workers["node"], workers["count"], workers["gpus"], strict=True)) == [
        (0, 2, 2),
        (1, 2, 2),
    ]


def test_workers_that_do_not_divide_a_node_never_get_whole_ones() -> None:
    result = run(
        GreedyElastic(granularity="node"), trace([(0, 1, 3, 10), (0, 2, 2, 10)]), "1x4:v100/200c"
    )
    assert result.jobs["outcome"].astype(str).tolist() == ["refused", "completed"]


def test_gavel_leaves_jobs_with_servers_where_they_are() -> None:
    # The first node is free from 60 s on, which is news: the second job stays on the other for its
    # 300 steps of 3 s.
    result = run(Gavel(), trace([(0, 2, 2, 20), (0, 2, 2, 300)]), "2x4:v100/200c")
    nodes = [
        result.placements.loc[result.placements["segment"] == at, "node"].to_numpy()
        for at in np.flatnonzero(result.segments["job"] == 1)
    ]
    assert {int(node) for each in nodes for node in each[:1]} == {1}
    assert result.jobs["finish_s"].tolist() == pytest.approx([60.0, 900.0])
    assert result.jobs["preemptions"].tolist() == [0, 0]
