from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from allocators.heterogeneous.timeshare.problem import (
    Problem,
    agnostic,
    isolated_rates,
    isolated_shares,
    normal_rates,
    progress,
    proportional,
    tidy,
)
from allocators.heterogeneous.timeshare.shares import (
    NO_DEADLINES,
    OBJECTIVES,
    cost,
    cost_slo,
    finish_time_fairness,
    makespan,
    max_min,
    max_sum_throughput,
)
from allocators.heterogeneous.timeshare.water_filling import Entities, water_filling
from tests.allocators.heterogeneous.shared_time import assert_possible, drawn, problems

FAST_AND_SLOW = Problem(
    np.array([[4.0, 1.0], [2.0, 1.0]]),
    np.array([1, 1]),
    np.array([1, 1]),
    left=np.array([100.0, 100.0]),
)
ONE_GPU = Problem(np.ones((2, 1)), np.array([1, 1]), np.array([1]), left=np.array([10.0, 10.0]))
STARVED = Problem(
    np.array([[4.0, 1.0], [0.0, 0.0], [2.0, 1.0]]),
    np.array([1, 1, 1]),
    np.array([1, 1]),
    left=np.array([100.0, 50.0, 100.0]),
)
PER_CENT = {"rel": 0.01}
FAIR = [max_min, makespan, finish_time_fairness]


def close(x: np.ndarray, wanted: list[list[float]]) -> None:
    np.testing.assert_allclose(x, wanted, atol=0.005)


def test_max_min_of_two_jobs_on_two_types() -> None:
    # (1 + 3 a) / 2.5 = (2 - a) / 1.5 for the share a of the first job on the fast type.
    found = max_min(FAST_AND_SLOW)
    assert found.value == pytest.approx(1.0, **PER_CENT)
    close(found.x, [[0.5, 0.5], [0.5, 0.5]])


def test_max_min_counts_gangs() -> None:
    # 2 x0 = x1 = level, and 2 x0 + x1 <= 2 GPUs.
    found = max_min(Problem(np.array([[10.0], [5.0]]), np.array([2, 1]), np.array([2])))
    assert found.value == pytest.approx(1.0, **PER_CENT)
    close(found.x, [[0.5], [1.0]])


def test_max_min_counts_weights() -> None:
    close(max_min(ONE_GPU._replace(weights=np.array([2.0, 1.0]))).x, [[2 / 3], [1 / 3]])


def test_what_is_left_over_is_divided() -> None:
    # The second job is as fast anywhere, and must run all the time: the first may have 0.5 to 1 of
    # the fast type, and so make 2 to 3.
    problem = Problem(np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([1, 1]), np.array([1, 1]))
    found = max_min(problem)
    assert found.value == pytest.approx(1.0, **PER_CENT)
    first, second = progress(problem, found.x)
    assert 2.1 < first < 2.9
    assert second == pytest.approx(1.0, rel=0.01)


def test_centre_lies_between() -> None:
    # Two jobs on eight GPUs of two equal types: nothing tells the types apart, and nobody needs to
    # wait.
    problem = Problem(np.ones((2, 2)), np.array([1, 1]), np.array([4, 4]))
    found = max_min(problem)
    assert found.value == pytest.approx(1.0)
    np.testing.assert_allclose(found.x, 0.5, atol=3e-3)


def test_makespan_of_two_jobs() -> None:
    # 1 + 3 a = 2 - a.
    found = makespan(FAST_AND_SLOW)
    assert found.value == pytest.approx(100 / 1.75, **PER_CENT)
    close(found.x, [[0.25, 0.75], [0.75, 0.25]])


@pytest.mark.parametrize("left", [1.0, 1e4, 3e7, 8e8])
def test_bisection_ends_within_five_per_cent(left: float) -> None:
    problem = FAST_AND_SLOW._replace(left=np.array([left, left]))
    exact, upstream = makespan(problem), makespan(problem, bisection=True)
    assert exact.value <= upstream.value <= max(105.0, 1.05 * exact.value)
    assert (problem.left / progress(problem, upstream.x)).max() <= upstream.value * (1 + 2e-4)


def test_bisection_takes_the_midpoints_of_upstream() -> None:
    # 57 s: (100 + 1e6) / 2, and so on, always enough.
    high = 1e6
    while high > 105.0:
        high = (100.0 + high) / 2
    assert makespan(FAST_AND_SLOW, bisection=True).value == pytest.approx(high)


def test_finish_time_fairness_favours_the_older_job() -> None:
    # (10 + 10 / x) / 20 = (10 / (1 - x)) / 20 for the share x of the first: 1 - x^2 = x.
    found = finish_time_fairness(ONE_GPU._replace(age_s=np.array([10.0, 0.0])))
    assert found.x[0, 0] == pytest.approx(0.618, **PER_CENT)
    assert found.value == pytest.approx(1.309, **PER_CENT)


def test_totals_of_two_jobs() -> None:
    found = max_sum_throughput(FAST_AND_SLOW)
    assert found.value == pytest.approx(5.0, **PER_CENT)
    close(found.x, [[1, 0], [0, 1]])
    assert cost(FAST_AND_SLOW._replace(prices=np.array([4.0, 1.0]))).value == pytest.approx(
        2.0, **PER_CENT
    )


def test_a_deadline_takes_time_from_the_faster_job() -> None:
    # The second job needs 1.5 iterations per second: half of the time on each type.
    found = cost_slo(
        FAST_AND_SLOW._replace(left=np.array([100.0, 15.0]), due_s=np.array([np.inf, 10.0]))
    )
    assert found.value == pytest.approx(4.0, **PER_CENT)
    close(found.x, [[0.5, 0.5], [0.5, 0.5]])
    assert not found.note


@pytest.mark.parametrize(("due_s", "note"), [(1.0, NO_DEADLINES), (-1.0, "")])
def test_deadlines_that_cannot_be_met_are_dropped_and_missed_ones_ask_for_nothing(
    due_s: float, note: str
) -> None:
    found = cost_slo(FAST_AND_SLOW._replace(due_s=np.array([np.inf, due_s])))
    assert found.note == note
    assert found.value == pytest.approx(5.0, **PER_CENT)


def test_water_filling_goes_on_where_max_min_stops() -> None:
    found = water_filling(
        Problem(np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([1, 1]), np.array([1, 1]))
    )
    assert found.value == pytest.approx(1.0, **PER_CENT)
    close(found.x, [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("fifo", "wanted"),
    [([False, False], [1 / 3, 1 / 3, 1 / 3]), ([False, True], [1 / 3, 2 / 3, 0.0])],
)
def test_entities_divide_first(fifo: list[bool], wanted: list[float]) -> None:
    problem = Problem(np.ones((3, 1)), np.ones(3, np.int64), np.array([1]))
    found = water_filling(
        problem, Entities(np.array([0, 1, 1]), np.array([1.0, 2.0]), np.array(fifo))
    )
    np.testing.assert_allclose(found.x[:, 0], wanted, atol=0.005)


def test_references_differ() -> None:
    problem = Problem(np.array([[4.0, 1.0], [2.0, 1.0]]), np.array([2, 1]), np.array([1, 3]))
    np.testing.assert_allclose(proportional(problem).x, [[0.25, 0.75], [0.25, 0.75]])
    np.testing.assert_allclose(normal_rates(problem), [1.75, 1.25])
    np.testing.assert_allclose(isolated_shares(problem).x, [[0.25, 0.75], [0.25, 0.75]])
    np.testing.assert_allclose(
        isolated_rates(problem._replace(devices=np.array([1, 1]))), [1.25, 1.5]
    )


def test_agnostic_rates_are_those_of_the_reference_or_one() -> None:
    rates = np.array([[4.0, 1.0], [0.0, 3.0], [0.0, 0.0]])
    np.testing.assert_allclose(agnostic(rates), [[1, 1], [1, 1], [0, 0]])
    np.testing.assert_allclose(agnostic(rates, 0), [[4, 4], [3, 3], [0, 0]])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_jobs(name: str) -> None:
    found = OBJECTIVES[name](Problem(np.zeros((0, 2)), np.zeros(0, np.int64), np.array([1, 2])))
    assert found.x.shape == (0, 2)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("devices", [[0, 0], [0, 3], [50, 50]])
def test_one_job(name: str, devices: list[int]) -> None:
    problem = Problem(
        np.array([[4.0, 1.0]]), np.array([1]), np.array(devices), left=np.array([10.0])
    )
    found = OBJECTIVES[name](problem)
    assert_possible(problem, found.x)
    if sum(devices) and name not in {"isolated", "proportional"}:
        assert progress(problem, found.x)[0] == pytest.approx(4.0 if devices[0] else 1.0, rel=1e-3)


# What isolation means depends on the number of jobs, and so do finish-time ratios.
@pytest.mark.parametrize(
    "name", sorted(set(OBJECTIVES) - {"isolated", "proportional", "finish_time_fairness"})
)
def test_a_job_that_runs_nowhere_changes_nothing_for_the_others(name: str) -> None:
    alone = STARVED._replace(
        rates=STARVED.rates[[0, 2]], gangs=np.array([1, 1]), left=np.array([100.0, 100.0])
    )
    found, without = OBJECTIVES[name](STARVED), OBJECTIVES[name](alone)
    np.testing.assert_allclose(found.x[1], 0)
    np.testing.assert_allclose(found.x[[0, 2]], without.x, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"isolated", "proportional", "fifo"}))
def test_jobs_that_run_nowhere_alone_get_nothing(name: str) -> None:
    problem = Problem(np.zeros((3, 2)), np.ones(3, np.int64), np.array([1, 1]))
    assert not OBJECTIVES[name](problem).x.any()


def test_nothing_left_to_do() -> None:
    for objective in (makespan, finish_time_fairness):
        found = objective(FAST_AND_SLOW._replace(left=np.zeros(2)))
        assert found.value == 0.0


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"proportional"}))
@settings(max_examples=25, deadline=None)
@given(problem=problems)
def test_answers_are_possible_and_repeat(name: str, problem: Problem) -> None:
    found = OBJECTIVES[name](problem)
    assert_possible(problem, found.x)
    assert not found.x[problem.rates.max(axis=1) == 0].any() or name == "isolated"
    np.testing.assert_array_equal(OBJECTIVES[name](problem).x, found.x)


def test_a_hint_changes_no_throughput_of_water_filling() -> None:
    for seed in range(40):
        problem = drawn(seed, 4 + seed)
        first, other = water_filling(problem), water_filling(drawn(seed + 1, 20))
        for hint in (first.hint, other.hint):
            again = water_filling(problem._replace(hint=hint))
            assert again.value == pytest.approx(first.value, rel=1e-8)
            assert_possible(problem, again.x)
            np.testing.assert_allclose(
                progress(problem, again.x), progress(problem, first.x), rtol=1e-6
            )


@pytest.mark.parametrize("objective", FAIR)
def test_a_hint_changes_the_time_only(objective) -> None:
    problem = drawn(5, 30)
    first = objective(problem)
    again = objective(problem._replace(hint=first.hint))
    assert again.value == pytest.approx(first.value, rel=1e-8)
    assert_possible(problem, again.x)
    other = drawn(6, 12)._replace(
        hint=first.hint
    )  # of another number of types, or not: never an error
    assert objective(other).value == pytest.approx(
        objective(other._replace(hint=None)).value, rel=1e-8
    )


def test_tidy_takes_off_what_is_too_much() -> None:
    problem = Problem(np.ones((2, 2)), np.array([1, 2]), np.array([1, 2]))
    x = tidy(problem, np.array([[0.7, 0.4], [-0.1, 1.2]]))
    assert_possible(problem, x)
