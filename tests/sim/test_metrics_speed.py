"""Metrics are computed while a user waits: every function has a budget."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import process_time

import numpy as np
import pandas as pd
import pytest

from sim import metrics
from sim.cluster import Cluster
from sim.result import ENDINGS, OUTCOMES, RunResult
from sim.trace import Trace
from tests.sim.metrics_cases import outages_of

CLUSTER = Cluster.parse("64x8:v100,64x8:a100")


@cache
def many(jobs: int) -> tuple[RunResult, Trace]:
    """Independent jobs with random waits: enough for metrics, no schedule."""
    rng = np.random.default_rng(7)
    submit = np.sort(rng.uniform(0, 1e7, jobs))
    submit -= submit[0]
    start = submit + rng.exponential(3600, jobs)
    finish = start + rng.exponential(7200, jobs)
    gpus = rng.choice([1, 2, 4, 8], jobs)
    order = np.argsort(finish)
    zero = np.zeros(jobs)
    frame = pd.DataFrame(
        {
            "submit_s": submit,
            "first_start_s": start,
            "finish_s": finish,
            "gpus": gpus,
            "outcome": pd.Categorical.from_codes(np.zeros(jobs, np.int8), categories=pd.Index(OUTCOMES)),
            "preemptions": zero.astype(np.int64),
            "evictions": zero.astype(np.int64),
            "held_s": finish - start,
            "paused_s": zero,
            "served_gpu_s": (finish - start) * gpus,
            "work": finish - start,
            "lost_work": zero,
        }
    )
    ended = pd.Categorical.from_codes(np.zeros(jobs, np.int8), categories=pd.Index(ENDINGS))
    segments = pd.DataFrame({"job": order, "t0": start[order], "t1": finish[order], "gpus": gpus[order], "rate": 1.0, "paused_s": 0.0, "ended": ended})
    placements = pd.DataFrame({"segment": np.arange(jobs), "node": rng.integers(0, 128, jobs), "count": gpus[order], "gpus": 1, "cpus": 0.0})
    nothing = pd.DataFrame()
    result = RunResult(frame, segments, placements, nothing, nothing, outages_of([]), float(finish.max()))
    return result, Trace.of(pd.DataFrame({"job_id": np.arange(jobs).astype(str), "submit_time_s": submit, "num_gpus": gpus, "duration_s": finish - start}))


def best_ms(work: Callable[[], object], times: int = 9) -> float:
    """Return the least processor time of several calls: what the code costs, whoever else is busy on this machine."""
    took = []
    for _ in range(times):
        begun = process_time()
        work()
        took.append(process_time() - begun)
    return min(took) * 1000


def test_summary_of_ten_thousand_jobs_takes_at_most_50_ms() -> None:
    result, trace = many(10_000)
    assert best_ms(lambda: metrics.summary(result, trace, CLUSTER)) <= 50


@pytest.mark.parametrize(
    "series",
    [metrics.queue_series, lambda result: metrics.utilisation_series(result, CLUSTER), lambda result: metrics.fragmentation_series(result, CLUSTER)],
    ids=["queue", "utilisation", "fragmentation"],
)
def test_series_of_a_hundred_thousand_segments_take_at_most_50_ms(series: Callable[[RunResult], pd.DataFrame]) -> None:
    result, _ = many(100_000)
    assert best_ms(lambda: series(result)) <= 50


def test_a_million_steps_are_reduced_in_50_ms() -> None:
    t = np.arange(1e6)
    assert best_ms(lambda: metrics.reduce_steps(t, np.sin(t), 0, 1e6)) <= 50


def test_a_million_jobs_are_summarised_in_three_seconds() -> None:
    result, trace = many(1_000_000)
    assert best_ms(lambda: metrics.summary(result, trace, CLUSTER), 1) <= 3000
