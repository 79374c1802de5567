"""Shares of time as the published code's solver gives them, and that they are optimal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from allocators.heterogeneous.timeshare import shares
from allocators.heterogeneous.timeshare.problem import Problem, progress
from allocators.heterogeneous.timeshare.published import (
    PUBLISHED,
    cost,
    finish_time_fairness,
    makespan,
    max_min,
    max_sum_throughput,
)

ALIKE = np.ones((2, 2))
DEVICES = np.array([2, 4])


def problem(rates: Any, gangs: Any = 1, devices: Any = DEVICES, **more: Any) -> Problem:
    rates = np.array(rates, dtype=float)
    return Problem(
        rates, np.broadcast_to(gangs, len(rates)).astype(np.int64), np.array(devices), **more
    )


def test_where_types_are_alike_to_the_policy_the_path_of_the_solver_decides() -> None:
    # ECOS 2.0.10 on two jobs, then one, that may use 2 or 4 GPUs; the centre is at 0.434 and 0.454.
    assert max_min(problem(ALIKE)).x == pytest.approx(np.array([[0.3811, 0.6189]] * 2), abs=1e-4)
    assert max_min(problem(ALIKE[:1])).x == pytest.approx(np.array([[0.3732, 0.6268]]), abs=1e-4)


def test_a_job_that_no_other_holds_up_has_shares_to_spare() -> None:
    # The second job limits the level to its rate on the first type; ECOS gives the first this.
    found = max_min(problem([[17.9949, 1.8065], [2.8415, 2.6988]]))
    assert found.value == pytest.approx(1.0346464, abs=1e-4)
    assert found.x == pytest.approx(np.array([[0.5147, 0.3378], [1.0, 0.0]]), abs=2e-4)


def test_shares_on_a_type_of_no_use_are_given_as_published() -> None:
    # Nothing is gained by them, and nothing hangs on them: who has no rate there does not run.
    found = max_sum_throughput(problem([[3.0, 0.0]]))
    assert found.value == pytest.approx(3.0)
    assert found.x[0, 0] == pytest.approx(1.0, abs=1e-6)


def test_within_the_time_of_the_bisection_all_are_done() -> None:
    asked = problem([[4.0, 1.0], [2.0, 1.0], [1.0, 1.0]], left=np.array([4000.0, 9000.0, 3000.0]))
    found = makespan(asked)
    shortest_s = shares.makespan(asked).value
    assert shortest_s <= found.value <= 1.05 * shortest_s
    assert (progress(asked, found.x) * found.value >= asked.left * (1 - 1e-6)).all()


def test_who_runs_nowhere_or_is_done_gets_nothing() -> None:
    for objective in PUBLISHED.values():
        assert objective(problem(np.zeros((2, 2)))).x.tolist() == [[0.0, 0.0]] * 2
        found = objective(problem([[0.0, 0.0], [2.0, 1.0]], left=np.array([100.0, 100.0])))
        assert found.x[0].tolist() == [0.0, 0.0]
        assert found.x[1].sum() > 0
    done = problem(ALIKE, left=np.array([0.0, 100.0]))
    assert finish_time_fairness(done).x[0].tolist() == [0.0, 0.0]
    assert makespan(problem(ALIKE, left=0.0)).value == 0.0


SIZES = st.tuples(st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32 - 1))


def drawn(jobs: int, types: int, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    rates = 10 ** rng.uniform(-0.5, 1.5, (jobs, types)) * (rng.random((jobs, types)) < 0.85)
    rates[:, 0] = np.maximum(rates[:, 0], 0.1)
    return Problem(
        rates,
        rng.choice([1, 1, 2, 4], jobs),
        rng.integers(4, 12, types),
        weights=rng.choice([1.0, 5.0], jobs),
        left=10 ** rng.uniform(3, 6, jobs),
        age_s=rng.uniform(0, 20_000, jobs),
        isolated_s=rng.uniform(0, 20_000, jobs),
        prices=rng.uniform(0.1, 3, types),
    )


@given(SIZES)
@settings(max_examples=25, deadline=None)
def test_shares_are_as_good_as_the_best(sizes: tuple[int, int, int]) -> None:
    asked = drawn(*sizes)
    for name, objective in PUBLISHED.items():
        found = objective(asked)
        assert fits(asked, found.x), name
        best = best_of(name, asked)
        close = 2e-3 if name == "finish_time_fairness" else 1e-4
        assert found.value == pytest.approx(best, rel=close), name


def best_of(name: str, asked: Problem) -> float:
    if name == "makespan":
        return shares.makespan(asked, bisection=True).value
    return shares.OBJECTIVES[name](asked).value


def fits(asked: Problem, x: NDArray[Any]) -> bool:
    within = (x >= 0).all() and (x.sum(axis=1) <= 1 + 1e-9).all()
    return bool(within and (asked.gangs @ x <= asked.devices + 1e-9).all())


def test_cost_counts_prices() -> None:
    asked = problem([[3.0, 2.0]], devices=[1, 1], prices=np.array([3.0, 1.0]))
    assert cost(asked).x == pytest.approx(np.array([[0.0, 1.0]]), abs=1e-6)
    assert max_sum_throughput(asked).x == pytest.approx(np.array([[1.0, 0.0]]), abs=1e-6)
