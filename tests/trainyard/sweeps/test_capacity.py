from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ParameterError
from trainyard.study.size_search import (
    FAR_IN_A_ROW,
    MAX_CHECKED,
    CountSearch,
    MixSearch,
    Search,
    Size,
)


def follow(
    search: Search,
    holds: Callable[[Size], bool],
    most: int = 1000,
    far: Callable[[Size], bool] = lambda _: False,
) -> list[Size]:
    """Answer whatever is asked; what was asked, in order."""
    asked: list[Size] = []
    while search.next_sizes:
        size = search.next_sizes[0]
        assert size not in asked
        asked.append(size)
        search.record(size, holds=holds(size), far=far(size))
        assert len(asked) < most
    return asked


def test_bisection_asks_for_the_end_and_then_for_middles() -> None:
    search = CountSearch(2, 20, check=False)
    assert follow(search, lambda size: size[0] >= 9) == [(20,), (10,), (5,), (7,), (8,), (9,)]
    assert search.answer == (9,)
    assert search.assumed == "Assumption: more nodes never do worse; 13 of 19 sizes were not tried."


def test_the_check_tries_everything_below_and_says_what_it_found() -> None:
    search = CountSearch(2, 20)
    asked = follow(search, lambda size: size[0] >= 9)
    assert sorted(asked) == [*((size,) for size in range(2, 11)), (20,)]
    assert search.answer == (9,)
    assert search.assumed == "Every size below the answer was tried; 9 above were not."


def test_a_size_that_holds_below_larger_ones_that_do_not_is_found_and_named() -> None:
    planted = {4, *range(9, 21)}
    search = CountSearch(2, 20)
    follow(search, lambda size: size[0] in planted)
    assert search.answer == (4,)
    assert search.anomalies == (5, 6, 7, 8)
    assert (
        search.assumed
        == "More nodes do not always do better here: 5, 6, 7, 8 miss the target although fewer"
        " meet it."
    )


def test_where_the_largest_does_not_hold_a_smaller_one_may() -> None:
    search = CountSearch(1, 6)
    follow(search, lambda size: size[0] == 3)
    assert search.answer == (3,)
    assert search.anomalies == (4, 5, 6)


def test_where_all_are_far_off_the_search_ends_soon_and_says_so() -> None:
    search = CountSearch(2, 40)
    assert follow(search, lambda _: False, far=lambda _: True) == [
        (size,) for size in range(40, 40 - FAR_IN_A_ROW, -1)
    ]
    assert search.answer is None
    assert (
        search.assumed
        == "Assumption: none of the 31 untried smaller sizes meets the target because 8 sizes"
        " in a row above them miss it by far."
    )


def test_sizes_that_are_not_far_off_keep_the_check_going() -> None:
    # Every eighth is a near miss, so the check goes on to the anomaly.
    search = CountSearch(1, 40)
    follow(search, lambda size: size[0] >= 30 or size[0] == 3, far=lambda size: bool(size[0] % 8))
    assert search.answer == (3,)
    assert search.assumed.startswith("More nodes do not always do better here: 4, 5, ")


def test_no_more_is_asked_at_once_than_it_takes_to_end_the_check() -> None:
    search = CountSearch(1, 40)
    search.record((40,), holds=False, far=True)
    assert search.next_sizes == tuple((size,) for size in range(39, 32, -1))


def test_the_check_of_a_wide_range_ends_after_so_many_sizes() -> None:
    search = CountSearch(1, 200)
    assert len(follow(search, lambda _: False)) == MAX_CHECKED
    assert (
        search.assumed
        == "Assumption: none of the 160 untried smaller sizes meets the target because the"
        " check ends after 40 sizes."
    )


def test_below_a_size_that_the_check_finds_it_bisects_again() -> None:
    search = CountSearch(1, 200)
    asked = follow(search, lambda size: 20 <= size[0] < 199)
    assert asked[:3] == [(200,), (199,), (198,)]
    assert search.answer == (20,)
    assert {size for (size,) in asked} >= set(range(1, 21))
    assert len(asked) < MAX_CHECKED


def test_no_size_holds() -> None:
    search = CountSearch(1, 4)
    assert follow(search, lambda _: False) == [(4,), (3,), (2,), (1,)]
    assert search.answer is None
    assert search.assumed == "Every size of the range was tried. No assumption is needed."


@given(st.integers(0, 12), st.data())
def test_the_checked_answer_is_the_smallest_that_holds_whatever_holds(
    low: int, data: st.DataObject
) -> None:
    sizes = range(low, low + data.draw(st.integers(1, 25)))
    holding = {size for size in sizes if data.draw(st.booleans())}
    search = CountSearch(sizes[0], sizes[-1])
    follow(search, lambda size: size[0] in holding)
    assert search.answer == ((min(holding),) if holding else None)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.integers(0, 3),
    st.floats(0.1, 9),
    st.floats(0.1, 9),
    st.floats(0, 90),
)
def test_the_cheapest_mix_is_found_where_more_never_does_worse(
    needs: list[int], low: int, one: float, other: float, budget: float
) -> None:
    # Of the second type as many are needed as the first leaves: a staircase that only falls.
    stairs = sorted(needs, reverse=True)
    firsts, seconds = range(low, low + len(stairs)), range(10)

    def price(size: Size) -> float:
        return one * size[0] + other * size[1]

    def holds(size: Size) -> bool:
        return size[1] >= stairs[size[0] - low]

    within = [(a, b) for a in firsts for b in seconds if price((a, b)) <= budget]
    if not within:
        with pytest.raises(ParameterError, match="more than"):
            MixSearch((low, 0), (firsts[-1], 9), (one, other), budget)
        return
    search = MixSearch((low, 0), (firsts[-1], 9), (one, other), budget)
    asked = follow(search, holds)
    assert len(asked) <= len(firsts) + len(seconds)
    best = min((price(size) for size in within if holds(size)), default=None)
    assert (None if search.answer is None else price(search.answer)) == best


def test_the_first_mixes_are_within_the_budget() -> None:
    assert MixSearch((0, 0), (4, 6), (3.0, 2.0)).largest == ((4, 6),)
    assert MixSearch((0, 1), (4, 6), (3.0, 2.0), 11.0).largest == ((3, 1), (0, 5), (2, 2))
    assert MixSearch((0, 0), (4, 6), (3.0, 2.0), 0.0).largest == ((0, 0),)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ParameterError, match="From 5 to 4 nodes is not a range"):
        CountSearch(5, 4)
    with pytest.raises(ParameterError, match="is not a range"):
        MixSearch((3, 0), (2, 5), (1.0, 1.0))


@pytest.mark.parametrize(
    ("begin", "fewest", "tried"),
    [(4, 13, [4, 8, 16, 32, 12, 14, 13]), (4, 3, [4, 8, 1, 2, 3]), (40, 1, [40, 64, 19, 9, 4, 1])],
)
def test_a_search_that_finds_its_range_doubles_and_then_bisects(
    begin: int, fewest: int, tried: list[int]
) -> None:
    search, asked = CountSearch(0, 64, check=False, begin=begin), list[int]()
    while next_sizes := search.next_sizes:
        asked.append(next_sizes[0][0])
        search.record(next_sizes[0], holds=next_sizes[0][0] >= fewest)
    assert search.answer == (fewest,)
    assert asked[: len(tried)] == tried


def test_doubling_goes_on_where_a_larger_size_shows_that_a_smaller_one_does_not_hold() -> None:
    search = CountSearch(1, 64, check=False, begin=4)
    assert search.next_sizes == ((4,),)
    search.record((4,), holds=True)
    assert search.next_sizes == ((8,),)
    search.record((8,), holds=True)
    search.record((4,), holds=False)  # more jobs could be completed on 8
    assert search.next_sizes == ((16,),)


def test_where_nothing_holds_doubling_ends_with_the_range() -> None:
    search = CountSearch(1, 20, check=False, begin=4)
    for size in (4, 8, 16, 20):
        assert search.next_sizes == ((size,),)
        search.record((size,), holds=False)
    assert search.answer is None
    assert search.next_sizes == ()


def test_a_begin_outside_the_range_is_refused() -> None:
    with pytest.raises(ParameterError, match="begins at 9 nodes"):
        CountSearch(1, 8, begin=9)
