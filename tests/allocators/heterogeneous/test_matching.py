from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from allocators.heterogeneous.timeshare.matching import (
    WAITS,
    _match_jobs,
    allox,
    arrival_order,
    fifo,
    fifo_any,
    whole_shares,
)
from allocators.heterogeneous.timeshare.problem import NoSharesError, Problem
from tests.allocators.heterogeneous.shared_time import assert_possible, drawn, problems


def jobs(rates: list[list[float]], devices: list[int], **columns: object) -> Problem:
    return Problem(np.array(rates), np.ones(len(rates), np.int64), np.array(devices), **columns)  # type: ignore[arg-type]


def nobody(problem: Problem) -> np.ndarray:
    return np.full(len(problem.rates), WAITS)


def test_fifo_gives_the_fastest_free_type_and_stops_at_the_first_that_does_not_fit() -> None:
    problem = Problem(
        np.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0], [1.0, 3.0]]),
        np.array([1, 1, 4, 1]),
        np.array([4, 2]),
        age_s=np.array([1.0, 9.0, 5.0, 3.0]),
    )
    # In order of arrival: 1 takes the second type, 2 the first one, 3 the second one again, and
    # nothing is left for 0.
    np.testing.assert_array_equal(fifo(problem).x, [[0, 0], [0, 1], [1, 0], [0, 1]])
    blocked = problem._replace(devices=np.array([3, 4]), gangs=np.array([1, 2, 4, 1]))
    np.testing.assert_array_equal(fifo(blocked).x, [[0, 0], [0, 1], [0, 0], [0, 0]])


def test_a_job_that_never_fits_does_not_block_the_queue() -> None:
    problem = Problem(np.array([[1.0], [0.0], [1.0]]), np.array([8, 1, 1]), np.array([2]))
    assert arrival_order(problem) == [2]
    np.testing.assert_array_equal(fifo(problem).x, [[0], [0], [1]])


def test_fifo_any_keeps_what_it_gave_and_draws_among_what_fits() -> None:
    problem = Problem(np.array([[1.0, 1.0, 0.0]] * 4), np.array([1, 2, 1, 1]), np.array([2, 2, 9]))
    drawn_types = set()
    for seed in range(40):
        at = fifo_any(problem, np.array([1, WAITS, WAITS, WAITS]), np.random.default_rng(seed))
        assert at[0] == 1
        assert at[1] == 0  # two GPUs are free there only
        assert at[2] == 1
        assert at[3] == WAITS
        first = fifo_any(problem, nobody(problem), np.random.default_rng(seed))
        drawn_types.add(int(first[0]))
        np.testing.assert_array_equal(
            first, fifo_any(problem, nobody(problem), np.random.default_rng(seed))
        )
    assert drawn_types == {0, 1}


@settings(max_examples=100, deadline=None)
@given(problem=problems, seed=st.integers(0, 1000))
def test_fifo_any_never_overbooks(problem: Problem, seed: int) -> None:
    at = fifo_any(problem, nobody(problem), np.random.default_rng(seed))
    assert_possible(problem, whole_shares(at, len(problem.devices)))
    assert (problem.rates[np.arange(len(at)), at][at != WAITS] > 0).all()


def test_allox_puts_the_shorter_first_where_it_is_faster() -> None:
    # On the fast GPU 1 s and 4 s, on the slow one 10 s and 8 s: 1 + 8 beats 4 + 10, and 1 + (1 + 4)
    # on the fast one alone beats both.
    problem = jobs([[10.0, 1.0], [2.5, 1.25]], [1, 1], left=np.array([10.0, 10.0]))
    np.testing.assert_array_equal(allox(problem, nobody(problem)), [0, WAITS])
    slow = problem._replace(rates=np.array([[10.0, 1.0], [2.5, 5.0]]))
    np.testing.assert_array_equal(allox(slow, nobody(slow)), [0, 1])


def test_allox_keeps_jobs_where_they_are_and_looks_at_the_oldest() -> None:
    problem = jobs(
        [[1.0]] * 4,
        [2],
        left=np.array([9.0, 3.0, 2.0, 1.0]),
        age_s=np.array([0.0, 30.0, 20.0, 10.0]),
    )
    np.testing.assert_array_equal(
        allox(problem, np.array([0, WAITS, WAITS, WAITS])), [0, WAITS, WAITS, 0]
    )
    np.testing.assert_array_equal(
        allox(problem, np.array([0, WAITS, WAITS, WAITS]), alpha=0.7), [0, WAITS, 0, WAITS]
    )
    np.testing.assert_array_equal(
        allox(problem, np.array([0, 0, WAITS, WAITS])), [0, 0, WAITS, WAITS]
    )


def test_allox_skips_jobs_that_do_not_run_on_free_types() -> None:
    problem = jobs([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [1, 1])
    np.testing.assert_array_equal(allox(problem, np.array([WAITS, 1, WAITS])), [0, 1, WAITS])


def test_allox_refuses_gangs() -> None:
    with pytest.raises(NoSharesError, match="one GPU"):
        allox(Problem(np.ones((1, 1)), np.array([2]), np.array([2])), np.array([WAITS]))


def completion(runs_s: np.ndarray, at: np.ndarray, gpus: np.ndarray) -> float:
    """Least sum of completion times of jobs on given types: the shortest first, in turns over the
    GPUs.
    """
    total = 0.0
    for column, count in enumerate(gpus):
        longest_first = np.sort(runs_s[at == column, column])[::-1]
        total += float((longest_first * (np.arange(len(longest_first)) // count + 1)).sum())
    return total


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_matching_is_the_best_of_all_divisions_among_types(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, types = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    runs_s = rng.lognormal(0, 1.5, (count, types))
    runs_s[rng.random(runs_s.shape) < 0.2] = np.inf
    runs_s = runs_s[np.isfinite(runs_s).any(axis=1)]
    gpus = rng.integers(1, 4, types)
    if not len(runs_s):
        return
    column, rank, gpu = _match_jobs(runs_s, gpus)
    divisions = (np.array(at) for at in product(range(types), repeat=len(runs_s)))
    best = min(
        completion(runs_s, at, gpus)
        for at in divisions
        if np.isfinite(runs_s[np.arange(len(at)), at]).all()
    )
    assert (runs_s[np.arange(len(column)), column] * rank).sum() == pytest.approx(best)
    assert len({*zip(column.tolist(), rank.tolist(), gpu.tolist(), strict=True)}) == len(column)
    assert (gpu < gpus[column]).all()


@pytest.mark.parametrize("seed", range(12))
def test_matching_is_that_of_the_whole_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, gpus = int(rng.integers(50, 160)), rng.integers(1, 9, 3)
    runs_s = rng.lognormal(8, 2, (count, 1)) * rng.lognormal(0, 1, (count, 3))
    runs_s[rng.random(runs_s.shape) < 0.1] = np.inf
    runs_s[:, 0] = np.where(np.isfinite(runs_s).any(axis=1), runs_s[:, 0], 1.0)
    column, rank, _ = _match_jobs(runs_s, gpus)
    kinds = np.concatenate([np.full(gpu * -(-count // gpu), at) for at, gpu in enumerate(gpus)])
    ranks = np.concatenate([np.arange(gpu * -(-count // gpu)) // gpu + 1 for gpu in gpus])
    costs = runs_s[:, kinds] * ranks
    rows, places = linear_sum_assignment(costs)
    assert (runs_s[np.arange(count), column] * rank).sum() == pytest.approx(
        costs[rows, places].sum()
    )


def test_allox_starts_as_many_as_there_are_gpus_free() -> None:
    problem = drawn(3, 30)._replace(
        gangs=np.ones(30, np.int64), devices=np.array([3] * drawn(3).rates.shape[1])
    )
    problem = problem._replace(rates=np.abs(problem.rates) + 0.1)
    at = allox(problem, nobody(problem))
    assert (np.bincount(at[at != WAITS], minlength=len(problem.devices)) <= problem.devices).all()
    assert (at != WAITS).sum() == min(30, problem.devices.sum())
