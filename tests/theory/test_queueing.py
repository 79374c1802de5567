"""Waiting times against queueing theory: the recursion path by path, closed formulas within a
confidence interval.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from allocators import make
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Simulator
from tests.theory.queues import Floats, erlang_c, first_come_starts, mg1_wait_s, mmc_wait_s, stream

JOBS, WARM_UP, SEEDS = 6000, 500, 10
STUDENT = 4.781  # 99.95 % quantile of Student's t with 9 degrees of freedom
Sizes = Callable[[np.random.Generator, int], Floats]


def mean_wait_s(servers: int, rate: float, sizes: Sizes, seed: int) -> float:
    rng = np.random.default_rng(seed)
    trace = stream(np.cumsum(rng.exponential(1 / rate, JOBS)), sizes(rng, JOBS))
    jobs = Simulator(trace, Cluster.parse(f"1x{servers}:v100"), make(Spec("fifo"))).run().jobs
    return float((jobs["first_start_s"] - jobs["submit_s"])[WARM_UP:].mean())


def interval(servers: int, rate: float, sizes: Sizes) -> tuple[float, float]:
    """Return the mean over seeds and half the width of its 99.9 % interval (Student, one mean per
    seed).
    """
    means = [mean_wait_s(servers, rate, sizes, seed) for seed in range(SEEDS)]
    return float(np.mean(means)), float(STUDENT * np.std(means, ddof=1) / np.sqrt(SEEDS))


def exponential(rng: np.random.Generator, jobs: int) -> Floats:
    return rng.exponential(10.0, jobs)


def constant(rng: np.random.Generator, jobs: int) -> Floats:
    return np.full(jobs, 10.0)


def two_kinds(rng: np.random.Generator, jobs: int) -> Floats:
    # 9 of 10 take 5 s, the tenth 55 s: mean 10, second moment 0.9 * 25 + 0.1 * 3025 = 325.
    return np.where(rng.random(jobs) < 0.9, 5.0, 55.0)


def test_erlang_c_of_a_known_table() -> None:
    # One server: the probability of waiting is the load. Two servers at 1 erlang: 1/3. Ten at 8:
    # 0.4092 (tables of Erlang C).
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (4, 0.75), (16, 0.85)])
def test_mmc(servers: int, load: float) -> None:
    rate = servers * load / 10.0
    mean, half = interval(servers, rate, exponential)
    expected = mmc_wait_s(servers, rate, 10.0)
    assert abs(mean - expected) < half
    # The interval is narrow enough to refuse the theory of one server more.
    assert abs(mean - mmc_wait_s(servers + 1, rate, 10.0)) > half


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "second_moment"), [(constant, 100.0), (two_kinds, 325.0), (exponential, 200.0)]
)
def test_mg1(sizes: Sizes, second_moment: float) -> None:
    rate = 0.065
    mean, half = interval(1, rate, sizes)
    expected = mg1_wait_s(rate, 10.0, second_moment)
    assert abs(mean - expected) < half
    assert half < 0.25 * expected


def test_md1_waits_half_as_long_as_mm1() -> None:
    assert mg1_wait_s(0.07, 10.0, 100.0) == pytest.approx(mmc_wait_s(1, 0.07, 10.0) / 2)


@pytest.mark.parametrize(("nodes", "servers"), [("1x1", 1), ("1x4", 4), ("3x2", 6), ("8x1", 8)])
def test_every_start_is_that_of_the_recursion(nodes: str, servers: int) -> None:
    # Not on average but job by job, whatever the distribution.
    rng = np.random.default_rng(servers)
    arrivals, sizes = (
        np.cumsum(rng.exponential(1.0, 800)),
        np.round(rng.pareto(1.5, 800) * servers * 0.45 + 0.01, 6),
    )
    jobs = (
        Simulator(stream(arrivals, sizes), Cluster.parse(f"{nodes}:v100"), make(Spec("fifo")))
        .run()
        .jobs
    )
    arrivals = jobs["submit_s"].to_numpy()
    assert jobs["first_start_s"].to_numpy() == pytest.approx(
        first_come_starts(arrivals, sizes, servers), abs=1e-6
    )
    assert (jobs["first_start_s"] > jobs["submit_s"]).mean() > 0.3


def test_a_faster_type_serves_faster() -> None:
    # M/D/1 on a type that is twice as fast is M/D/1 with half the service time.
    rng = np.random.default_rng(3)
    arrivals, sizes = np.cumsum(rng.exponential(8.0, 500)), np.full(500, 10.0)
    trace = stream(arrivals, sizes)
    trace.frame["gpu_type"] = "v100"
    fast = Cluster.from_json(
        {
            "groups": [{"count": 1, "gpus": 1, "gpu_type": "x"}],
            "types": [{"name": "v100", "speed": 1.0}, {"name": "x", "speed": 2.0}],
        }
    )
    jobs = Simulator(trace, fast, make(Spec("fifo"))).run().jobs
    assert jobs["first_start_s"].to_numpy() == pytest.approx(
        first_come_starts(jobs["submit_s"], sizes / 2, 1), abs=1e-6
    )
