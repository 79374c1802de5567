"""On a single GPU, shortest remaining processing time is optimal for the mean JCT (Schrage 1968),
and shortest job first among orders without preemption.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import REGISTRY, make
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Simulator
from tests.theory.queues import least_total_completion, stream

small = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=4)


def total_completion(name: str, jobs: list[tuple[int, int]]) -> float:
    arrivals, sizes = (np.array(column, np.float64) for column in zip(*jobs, strict=True))
    trace = stream(arrivals, sizes)
    result = Simulator(trace, Cluster.parse("1x1:v100"), make(Spec(name))).run()
    return float(result.jobs["finish_s"].sum()) + len(jobs) * float(arrivals.min())


@settings(max_examples=50)
@given(small)
def test_srtf_is_as_good_as_the_best_of_all_preemptive_schedules(
    jobs: list[tuple[int, int]],
) -> None:
    assert total_completion("srtf", jobs) == pytest.approx(least_total_completion(jobs))


def test_srtf_is_better_than_the_rest_where_it_matters() -> None:
    jobs = [(0, 4), (1, 1), (2, 1)]
    # SRTF: the long job stops at 1, the short ones run 1-2 and 2-3, the long one ends at 6: 2 + 3 +
    # 6. FIFO: 4 + 5 + 6.
    assert total_completion("srtf", jobs) == 11
    assert total_completion("fifo", jobs) == 15


@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in ("srtf", "recorded")])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_beats_srtf_on_one_gpu(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = list(
        zip(
            rng.integers(0, 200, 60).tolist(),
            (rng.pareto(1.1, 60) * 3 + 1).astype(int).tolist(),
            strict=True,
        )
    )
    jobs = [(arrival, min(size, 500)) for arrival, size in jobs]
    assert total_completion("srtf", jobs) <= total_completion(name, jobs)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_sjf_is_the_best_order_of_jobs_that_are_there(sizes: list[int]) -> None:
    def total(order: tuple[int, ...]) -> int:
        return sum(size * (len(order) - at) for at, size in enumerate(order))

    assert total_completion("sjf", [(0, size) for size in sizes]) == min(
        map(total, permutations(sizes))
    )
