from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from allocators import REGISTRY
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.errors import ParameterError
from sim.metrics import JCT_PARTS, OTHERS, allocation_series, jct_parts, summary
from sim.overheads import Overheads
from sim.result import RunResult
from sim.trace import Trace
from tests.sim.metrics.metrics_cases import Held, Job, five, run_of


class Window(NamedTuple):
    from_s: float = 0.0
    to_s: float = np.inf
    first_job: int = 0
    last_job: int | None = None


def brute(result: RunResult, t0: float, t1: float) -> dict[int, float]:
    """GPU-seconds per job in a window, one segment after another."""
    found = dict.fromkeys(range(len(result.jobs)), 0.0)
    columns = [result.segments[name].tolist() for name in ("job", "t0", "t1", "gpus")]
    for job, begin, end, gpus in zip(*columns, strict=True):
        found[job] += gpus * max(0.0, min(end, t1) - max(begin, t0))
    return found


def test_the_largest_jobs_by_name_and_the_rest_as_one() -> None:
    frame = allocation_series(five(), most=2)
    # GPU-seconds: job 0 200, job 1 440, job 2 120.
    assert list(frame.columns) == ["t_s", "1", "0", OTHERS]
    assert frame["t_s"].tolist() == [0, 20, 80, 100, 150, 200, 210, 260]
    assert frame["0"].tolist() == [2, 2, 2, 0, 0, 0, 0, 0]
    assert frame["1"].tolist() == [0, 0, 0, 4, 0, 4, 4, 4]
    assert frame[OTHERS].tolist() == [0, 1, 0, 0, 1, 1, 0, 0]


def test_a_window_chooses_its_own_jobs() -> None:
    frame = allocation_series(five(), (20.0, 90.0), most=1)
    assert list(frame.columns) == ["t_s", "0", OTHERS]
    assert frame["t_s"].tolist() == [20, 80, 90]
    assert frame[OTHERS].tolist() == [1, 0, 0]


def test_nothing_held_is_one_empty_line() -> None:
    frame = allocation_series(run_of([Job(0, 0, 0, 9)], [Held(0, 0, 9, 0)], 9.0))
    assert frame.to_dict("list") == {"t_s": [0.0, 9.0], OTHERS: [0.0, 0.0]}
    with pytest.raises(ParameterError, match="ends after it begins"):
        allocation_series(five(), (5.0, 5.0))


PIECE = st.tuples(st.integers(0, 5), st.integers(0, 90), st.integers(1, 30), st.integers(0, 16))


@given(st.lists(PIECE, max_size=40), st.integers(1, 12), st.integers(0, 6), st.integers(0, 60))
def test_every_bin_is_the_exact_mean(
    pieces: list[tuple[int, int, int, int]], bins: int, most: int, t0: int
) -> None:
    jobs = [Job(0, 1, 0, 200.0) for _ in range(6)]
    result = run_of(
        jobs, [Held(job, begin, begin + length, gpus) for job, begin, length, gpus in pieces], 130.0
    )
    frame = allocation_series(result, (t0, 130.0), bins, most)
    names = [name for name in frame.columns if name not in {"t_s", OTHERS}]
    whole = brute(result, t0, 130.0)
    ranked = sorted((job for job in whole if whole[job] > 0), key=lambda job: (-whole[job], job))
    assert names == [str(job) for job in ranked[:most]]
    assert len(frame) <= bins + 1
    edges = frame["t_s"].to_numpy()
    for at, (begin, end) in enumerate(pairwise(edges)):
        held = brute(result, begin, end)
        for name in names:
            assert frame[name][at] * (end - begin) == pytest.approx(held.pop(int(name)), abs=1e-6)
        assert frame[OTHERS][at] * (end - begin) == pytest.approx(sum(held.values()), abs=1e-6)


def test_a_hundred_thousand_segments_are_a_thousand_points() -> None:
    rng = np.random.default_rng(1)
    count = 100_000
    base = run_of([Job(0, 1, 0, 1e6)] * 10, [Held(0, 0, 1, 1)], 1e6)
    begin = np.sort(rng.uniform(0, 9e5, count))
    segments = pd.DataFrame(
        {
            "job": rng.integers(0, 10, count),
            "t0": begin,
            "t1": begin + rng.exponential(5e4, count),
            "gpus": rng.integers(1, 64, count),
        }
    )
    result = replace(base, segments=segments, end_s=1e6)
    frame = allocation_series(result)
    assert len(frame) == 1000
    widths = np.diff(frame["t_s"].to_numpy())
    inside = np.minimum(segments["t1"], 1e6) - segments["t0"]
    assert_allclose(
        (frame.drop(columns="t_s").sum(axis=1).to_numpy()[:-1] * widths).sum(),
        (segments["gpus"] * inside).sum(),
        rtol=1e-9,
    )


# One job in every part: submitted at 0, waits 10, runs 20..., stopped for 30, pauses 5, loses a
# quarter of what it did, at half speed. 10..50 with work 20 at rate 0.5, evicted; 80..165 with a
# pause of 5 and work 40: done 60 = work 45 + lost 15; alone at full speed 45 s.
SLOW = (Job(0, 1, 10, 165, evictions=1, lost_work=15, work=45, ideal=45),)
SLOW_HELD = (Held(0, 10, 50, 1, rate=0.5, ended="evicted"), Held(0, 80, 165, 1, rate=0.5, paused=5))


def test_parts_worked_out_by_hand() -> None:
    parts = jct_parts(run_of(SLOW, SLOW_HELD, 165.0))
    assert len(parts) == 1
    assert list(parts.columns) == ["jobs", "jct_s", *JCT_PARTS]
    # It ran 120 s, a quarter of it for nothing; 90 s remain for 45 s of work.
    assert parts.iloc[0].tolist() == [1, 165, 10, 30, 5, 30, 45, 45]


def test_only_completed_jobs_of_the_window_count() -> None:
    jobs = (
        *SLOW,
        Job(20, 1, 20, 80, work=60, ideal=60),
        Job(30, 1, 30, 90, "failed"),
        Job(40, 1, outcome="unfinished"),
    )
    result = run_of(
        jobs, (*SLOW_HELD, Held(1, 20, 80, 1), Held(2, 30, 90, 1, ended="evicted")), 165.0
    )
    assert jct_parts(result)["jobs"][0] == 2
    assert jct_parts(result)["jct_s"][0] == (165 + 60) / 2
    assert jct_parts(result, Window(first_job=1)).iloc[0].tolist() == [1, 60, 0, 0, 0, 0, 0, 60]
    nobody = jct_parts(result, Window(from_s=1000.0))
    assert nobody["jobs"][0] == 0
    assert nobody.drop(columns="jobs").isna().all(axis=None)


def test_faster_than_alone_is_not_negative() -> None:
    # A recorded job that held a faster GPU than the cluster has.
    parts = jct_parts(
        run_of([Job(0, 1, 5, 25, work=30, ideal=30)], [Held(0, 5, 25, 1, rate=1.5)], 25.0)
    )
    assert parts.iloc[0].tolist() == [1, 25, 5, 0, 0, 0, 0, 20]


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf"])
def test_parts_of_real_runs_sum_to_the_mean_jct(policy: str) -> None:
    rng = np.random.default_rng(3)
    columns = {
        "submit_time_s": np.sort(rng.uniform(0, 2e4, 80)),
        "num_gpus": rng.choice([1, 2, 4, 8], 80),
        "duration_s": rng.lognormal(7, 1.5, 80),
    }
    trace = Trace.of(pd.DataFrame({"job_id": [f"j{at}" for at in range(80)], **columns}))
    cluster = Cluster.parse("2x4:v100,2x4:t4")
    conditions = Conditions(
        overheads=Overheads(
            start_s=30.0, restart_s=60.0, checkpoint_every_s=900.0, checkpoint_s=5.0
        ),
        faults=Faults(interruptions_per_node_h=0.3),
        seed=5,
    )
    result = Simulator(trace, cluster, REGISTRY[policy](), conditions).run()
    parts = jct_parts(result).iloc[0]
    assert sum(parts[name] for name in JCT_PARTS) == pytest.approx(parts["jct_s"], rel=1e-9)
    told = summary(result, trace, cluster)
    assert parts["jct_s"] == pytest.approx(told["jct_mean_s"], rel=1e-12)
    assert parts["queue_s"] == pytest.approx(told["queue_mean_s"], rel=1e-12)
    assert parts["queue_s"] + parts["requeue_s"] == pytest.approx(told["wait_mean_s"], rel=1e-9)
    assert min(parts[name] for name in JCT_PARTS) > 0
    # What was redone is what the GPUs were held for in vain, here per job and not per GPU.
    assert (parts["redone_s"] > 0) == (told["lost_gpu_s"] > 0)
