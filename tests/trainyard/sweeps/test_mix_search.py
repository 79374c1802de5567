"""The search for the cheapest mix against brute force, where more nodes help and where not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ParameterError
from trainyard.study.size_search import MAX_CHECKED, MAX_TRIED, MixSearch, Size, is_within

GRID = (3, 3, 2, 2)
"""The largest of 4 x 4 x 3 x 3 mixes."""


def follow(
    search: MixSearch, holds: Callable[[Size], bool], far: Callable[[Size], bool] = lambda _: False
) -> list[Size]:
    """Answer whatever is asked; what was asked, in order."""
    asked: list[Size] = []
    while sizes := search.next_sizes:
        for size in sizes:
            assert size not in asked
            asked.append(size)
            search.record(size, holds=holds(size), far=far(size))
    return asked


def total(prices: Sequence[float], size: Size) -> float:
    return sum(price * count for price, count in zip(prices, size, strict=True))


amounts = st.lists(st.integers(1, 9), min_size=4, max_size=4)


@given(amounts, amounts, st.integers(0, 60), st.integers(0, 60) | st.just(math.inf), st.booleans())
def test_the_cheapest_of_four_types_is_that_of_brute_force_if_more_nodes_never_do_worse(
    prices: list[int], speeds: list[int], needed: int, budget: float, check: bool
) -> None:
    search = MixSearch((0,) * 4, GRID, prices, budget, check=check, first=((0,) * 4,))
    asked = follow(
        search,
        lambda size: total(speeds, size) >= needed,
        lambda size: 2 * total(speeds, size) < needed,
    )
    mixes = [
        size
        for size in product(*(range(most + 1) for most in GRID))
        if total(prices, size) <= budget
    ]
    holding = [total(prices, size) for size in mixes if total(speeds, size) >= needed]
    answer = search.answer
    assert (None if answer is None else total(prices, answer)) == min(holding, default=None)
    assert set(asked) <= set(mixes)
    assert len(asked) < len(mixes) or len(mixes) < MAX_CHECKED


@given(amounts, st.sets(st.tuples(*(st.integers(0, most) for most in GRID)), max_size=60))
def test_where_more_nodes_do_worse_all_cheaper_mixes_are_within_one_that_misses(
    prices: list[int], holding: set[Size]
) -> None:
    search = MixSearch((0,) * 4, GRID, prices, check=False, first=((0,) * 4,))
    asked = follow(search, holding.__contains__)
    answer, misses = search.answer, [size for size in asked if size not in holding]
    assert answer is None or answer in holding
    limit = math.inf if answer is None else total(prices, answer)
    for size in product(*(range(most + 1) for most in GRID)):
        if total(prices, size) < limit:
            assert any(is_within(size, miss) for miss in misses)


@given(st.integers(0, 12), st.data())
def test_the_check_finds_the_fewest_of_one_type_whatever_holds(
    low: int, data: st.DataObject
) -> None:
    sizes = range(low, low + data.draw(st.integers(1, 25)))
    holding = {size for size in sizes if data.draw(st.booleans())}
    search = MixSearch((sizes[0],), (sizes[-1],), (1.0,))
    follow(search, lambda size: size[0] in holding)
    assert search.answer == ((min(holding),) if holding else None)


def test_one_type_is_doubled_and_then_bisected() -> None:
    search = MixSearch((4,), (68,), (1.0,), check=False, first=((4,),))
    asked = follow(search, lambda size: size[0] >= 13)
    assert [size - 4 for (size,) in asked] == [0, 1, 2, 4, 8, 16, 12, 10, 9]
    assert (search.answer, search.answer_alone) == ((13,), (13,))


def test_the_end_of_a_range_is_first_and_bisected_without_a_start() -> None:
    search = MixSearch((2,), (20,), (0.0,), check=False)
    assert follow(search, lambda size: size[0] >= 9)[:3] == [(20,), (10,), (5,)]
    assert search.answer == (9,)


def test_a_mix_is_cheaper_than_each_type_alone() -> None:
    # 1 + 3 nodes cost 19; two of the first type 20, seven of the second 21.
    search = MixSearch((4, 0), (8, 8), (10.0, 3.0), first=((4, 0),))
    follow(search, lambda size: (size[0] - 4) * 4 + size[1] >= 7)
    assert search.answer == (5, 3)
    assert search.answer_alone == (6, 0)


def test_equal_prices_are_decided_by_the_number_of_nodes() -> None:
    search = MixSearch((0, 0), (4, 4), (0.0, 0.0), first=((0, 0),))
    follow(search, lambda size: size[0] + 2 * size[1] >= 4)
    assert search.answer == (0, 2)


def test_anomalies_are_named() -> None:
    search = MixSearch((2,), (20,), (1.0,))
    follow(search, lambda size: size[0] in {4, *range(9, 21)})
    assert (search.answer, search.anomalies) == ((4,), ((5,), (6,), (7,), (8,)))
    assert search.assumed.startswith("More nodes do not always do better here: 5, 6, 7, 8 miss")


def test_a_miss_by_far_ends_the_check() -> None:
    search = MixSearch((2,), (40,), (1.0,))
    assert follow(search, lambda _: False, far=lambda _: True) == [(40,)]
    assert "a mix that misses the target by far" in search.assumed
    assert len(follow(MixSearch((1,), (200,), (1.0,)), lambda _: False)) == MAX_CHECKED


def test_a_search_of_many_mixes_ends_and_says_so() -> None:
    # No mix at the budget does, and each rules out few others.
    search = MixSearch((0,) * 4, (30,) * 4, (1.0, 1.1, 1.2, 1.3), 30.0, first=((0,) * 4,))
    assert len(follow(search, lambda _: False)) == MAX_TRIED
    assert search.assumed == "The search ended after 100 mixes; cheaper ones are untried."


def test_a_later_record_replaces_an_earlier_one() -> None:
    search = MixSearch((0,), (8,), (1.0,), check=False, first=((0,),))
    for size, holds in (((0,), False), ((1,), True), ((1,), False)):
        search.record(size, holds=holds)
    assert (search.answer, search.next_sizes) == (None, ((2,),))


def test_the_first_mixes_are_within_the_budget() -> None:
    assert MixSearch((0, 0), (4, 6), (3.0, 2.0)).largest == ((4, 6),)
    assert MixSearch((0, 1), (4, 6), (3.0, 2.0), 11.0).largest == ((3, 1), (0, 5), (1, 4))
    assert MixSearch((0, 0), (4, 6), (3.0, 2.0), 0.0).largest == ((0, 0),)
    assert MixSearch((1, 0), (9, 9), (3.0, 2.0), 14.0).most_alone == (3, 5)


def test_an_empty_range_and_too_little_money_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"From 3 \+ 0 to 2 \+ 5 nodes is not a range"):
        MixSearch((3, 0), (2, 5), (1.0, 1.0))
    with pytest.raises(ParameterError, match="Even the fewest nodes make the cluster cost 5 USD"):
        MixSearch((5,), (9,), (1.0,), 4.0)
