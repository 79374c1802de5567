"""The exact knapsack against brute force, its ties, and what cannot fit."""

from __future__ import annotations

from itertools import permutations, product
from math import fsum, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.elastic import knapsack as _knapsack
from allocators.elastic.knapsack import ChosenSizes, core, knapsack

Instance = tuple[list[list[int]], list[list[float]], list[bool], int]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Up to five jobs with up to four sizes in any order, a capacity that is often too small, and
    many equal values.
    """
    values = st.one_of(st.integers(-2, 4).map(float), st.floats(-1.0, 3.0, allow_subnormal=False))
    sizes = draw(st.lists(st.lists(st.integers(1, 6), max_size=4, unique=True), max_size=5))
    worth = [draw(st.lists(values, min_size=len(size), max_size=len(size))) for size in sizes]
    optional = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    return sizes, worth, optional, draw(st.integers(0, 16))


def tried(instance: Instance) -> list[tuple[float, int, tuple[int, ...]]]:
    """Value, units and places of every choice that fits."""
    sizes, values, optional, capacity = instance
    places = [
        [*([-1] if may_skip else []), *range(len(size))]
        for size, may_skip in zip(sizes, optional, strict=True)
    ]
    found = []
    for chosen in product(*places):
        units = sum(size[at] for size, at in zip(sizes, chosen, strict=True) if at >= 0)
        if units <= capacity:
            found.append(
                (
                    fsum(value[at] for value, at in zip(values, chosen, strict=True) if at >= 0),
                    units,
                    chosen,
                )
            )
    return found


@given(instances())
def test_it_finds_what_brute_force_finds(instance: Instance) -> None:
    sizes, values, optional, capacity = instance
    found, all_of_them = knapsack(*instance), tried(instance)
    if not all_of_them:
        assert found is None
        return
    assert found is not None
    assert all(at >= 0 or may_skip for at, may_skip in zip(found.at, optional, strict=True))
    assert sum(size[at] for size, at in zip(sizes, found.at, strict=True) if at >= 0) <= capacity
    assert found.objective == fsum(
        value[at] for value, at in zip(values, found.at, strict=True) if at >= 0
    )
    assert found.objective == pytest.approx(
        max(value for value, _, _ in all_of_them), rel=1e-12, abs=1e-12
    )


@given(instances(), st.integers(1, 40))
def test_blocks_of_rows_change_nothing(instance: Instance, cells: int) -> None:
    whole = knapsack(*instance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_knapsack, "_MIN_ROWS", 1)
        patch.setattr(_knapsack, "_MAX_CELLS", cells)
        assert knapsack(*instance) == whole


@given(instances())
def test_ties_are_broken_from_the_last_job_on(instance: Instance) -> None:
    # Of all best choices the one that comes first if nothing comes before the sizes as they are
    # named, and the last job decides before the others.
    sizes, values, optional, capacity = instance
    instance = (
        sizes,
        [[float(round(value)) for value in row] for row in values],
        optional,
        capacity,
    )
    found, all_of_them = knapsack(*instance), tried(instance)
    if found is not None:
        best = max(value for value, _, _ in all_of_them)
        assert tuple(found.at) == min(
            (chosen for value, _, chosen in all_of_them if value == best),
            key=lambda chosen: chosen[::-1],
        )


def test_a_job_gets_the_size_named_first_among_equals() -> None:
    # Three units for two jobs of which one may have two: the second prefers the size that it names
    # first.
    assert knapsack([[1, 2], [2, 1]], [[1, 2], [2, 1]], [False, False], 3) == ChosenSizes([0, 0], 3)
    assert knapsack([[1, 2], [1, 2]], [[1, 2], [1, 2]], [False, False], 3) == ChosenSizes([1, 0], 3)
    # It keeps what it names first although less would do, as long as nobody needs it.
    assert knapsack([[4, 1], [1]], [[1, 1], [1]], [True, True], 5) == ChosenSizes([0, 0], 2)
    assert knapsack([[4, 1], [1]], [[1, 1], [1]], [True, True], 4) == ChosenSizes([1, 0], 2)


def test_rounding_of_sums_breaks_no_ties() -> None:
    # Two jobs of the same kind, one of which may have two units, beside a third: in floating point
    # the order of the sum decides who.
    assert (70.7 + 92.8) + 42.4 > (70.7 + 42.4) + 92.8
    for order in permutations(
        [([1, 1], [70.7, -inf]), ([2, 1], [92.8, 42.4]), ([2, 1], [92.8, 42.4])]
    ):
        found = knapsack(
            [sizes for sizes, _ in order], [values for _, values in order], [False] * 3, 4
        )
        assert found is not None
        last = max(at for at in range(3) if order[at][0] == [2, 1])
        assert found.at[last] == 0


@given(instances())
def test_the_core_contains_every_best_choice(instance: Instance) -> None:
    sizes, values, optional, capacity = instance
    worth = [[float(round(value)) for value in row] for row in values]
    allowed, all_of_them = (
        core(sizes, worth, optional, capacity),
        tried((sizes, worth, optional, capacity)),
    )
    best = max((value for value, _, _ in all_of_them), default=0.0)
    for value, _, chosen in all_of_them:
        assert value < best or all(at in places for at, places in zip(chosen, allowed, strict=True))
    for job, places in enumerate(
        core(sizes, worth, optional, capacity, best + 1e9)
    ):  # nothing is worth as much
        assert not places, job


def test_the_core_of_many_jobs_is_small() -> None:
    # Forty jobs on forty units: a price settles nearly all of them.
    sizes, values = (
        [[1, 2, 4]] * 40,
        [[1.0 + 0.01 * job, 1.7 + 0.02 * job, 2.4] for job in range(40)],
    )
    allowed = core(sizes, values, [True] * 40, 40)
    assert sum(map(len, allowed)) < 60


def test_everybody_gets_the_best_if_all_of_it_fits() -> None:
    assert knapsack(
        [[1, 2, 4], [1, 2, 4], [1]], [[1, 3, 2], [1, 1, 1], [-1]], [False, False, True], 3
    ) == ChosenSizes([1, 0, -1], 4)


def test_who_must_get_something_may_cost_value() -> None:
    assert knapsack([[2], [1]], [[-5], [3]], [False, True], 2) == ChosenSizes([0, -1], -5)


@pytest.mark.parametrize(
    "instance",
    [
        ([[2], [2]], [[1], [1]], [False, False], 3),
        ([[1]], [[1]], [False], 0),
        ([[]], [[]], [False], 5),
        ([[1]], [[1]], [False], -1),
    ],
    ids=["together too large", "no room at all", "no size at all", "less than nothing"],
)
def test_none_if_the_obligatory_do_not_fit(instance: Instance) -> None:
    assert knapsack(*instance) is None


def test_nobody_there() -> None:
    assert knapsack([], [], [], 4) == ChosenSizes([], 0.0)
    assert knapsack([[1]], [[2.0]], [True], 0) == ChosenSizes([-1], 0.0)


def test_worked_examples_of_speed_up_tables() -> None:
    # Speed-up by number of GPUs; C does not run on one.
    a, b, c = (
        ([1, 2, 3, 4], [1, 1.9, 2.7, 3.4]),
        ([1, 2, 3, 4], [1, 1.3, 1.4, 1.45]),
        ([2, 3, 4], [1.5, 2.1, 2.6]),
    )
    for jobs, capacity, given_units in (
        ((a, b), 4, [3, 1]),
        ((a, c), 4, [2, 2]),
        ((a, c, c), 4, None),
        ((c, c, a), 5, [2, 2, 1]),
    ):
        found = knapsack(
            [sizes for sizes, _ in jobs],
            [values for _, values in jobs],
            [False] * len(jobs),
            capacity,
        )
        assert (
            None
            if found is None
            else [sizes[at] for (sizes, _), at in zip(jobs, found.at, strict=True)]
        ) == given_units


def test_infinitely_bad_is_never_chosen() -> None:
    assert knapsack([[1, 2]], [[-inf, 1.0]], [True], 1) == ChosenSizes([-1], 0.0)
