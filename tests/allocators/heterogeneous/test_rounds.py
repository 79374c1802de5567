"""The rounds of Gavel: who wins, and what is remembered from round to round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from allocators.heterogeneous.gavel.rounds import NONE, DeficitRanking, Roster


def roster(
    gangs: list[int],
    share: list[list[float]],
    deficit_s: list[list[float]] | None = None,
    head_start_s: float = 180.0,
) -> Roster:
    made = Roster(len(share[0]), head_start_s)
    made.align(np.arange(len(gangs)))
    made.gangs[:] = gangs
    made.rates[:] = 1.0
    made.share = np.array(share)
    if deficit_s is not None:
        made.deficit_s = np.array(deficit_s)
    return made


def winners(
    jobs: Roster, left: list[int], order: list[int] | None = None, can: NDArray[Any] | None = None
) -> list[int]:
    contest = DeficitRanking(jobs, jobs.rates > 0 if can is None else can)
    return [
        int(kind) for kind in contest.winners(jobs.time_s, order or list(range(len(left))), left)
    ]


def test_who_is_furthest_behind_wins() -> None:
    jobs = roster([1, 1, 1], [[0.5], [0.5], [0.5]])
    jobs.time_s[:, 0] = [540.0, 180.0, 360.0]
    assert winners(jobs, [1]) == [NONE, 0, NONE]
    assert winners(jobs, [2]) == [NONE, 0, 0]


def test_share_over_time_and_not_share_alone_decides() -> None:
    jobs = roster([1, 1], [[0.9], [0.4]])
    jobs.time_s[:, 0] = [540.0, 180.0]  # 0.0017 against 0.0022
    assert winners(jobs, [1]) == [NONE, 0]


def test_ties_go_to_what_is_owed_then_to_the_larger_share_then_to_the_lower_id() -> None:
    assert winners(roster([1, 1], [[0.5], [0.5]], [[0.0], [1.0]]), [1]) == [NONE, 0]
    jobs = roster([1, 1], [[0.2], [0.4]])
    jobs.time_s[:, 0] = [180.0, 360.0]
    assert winners(jobs, [1]) == [NONE, 0]
    assert winners(roster([1, 1], [[0.5], [0.5]]), [1]) == [0, NONE]


def test_types_are_filled_in_order_and_nobody_wins_twice() -> None:
    jobs = roster([1, 1, 1], [[0.6, 0.4], [0.5, 0.5], [0.0, 0.1]])
    assert winners(jobs, [1, 1]) == [0, 1, NONE]
    assert winners(jobs, [1, 1], [1, 0]) == [0, 1, NONE]
    assert winners(jobs, [2, 1]) == [0, 0, 1]


def test_what_is_left_over_goes_to_jobs_without_a_share() -> None:
    assert winners(roster([1, 1], [[1.0, 0.0], [1.0, 0.0]]), [1, 1]) == [0, 1]


def test_nobody_wins_where_it_cannot_run() -> None:
    jobs = roster([1, 1], [[1.0, 0.0], [1.0, 0.0]])
    assert winners(jobs, [1, 1], can=np.array([[True, True], [True, False]])) == [0, NONE]


def test_a_gang_that_does_not_fit_is_passed_over() -> None:
    jobs = roster([2, 4, 1, 1], [[0.9], [0.8], [0.7], [0.6]])
    assert winners(jobs, [3]) == [0, NONE, 0, NONE]
    assert winners(jobs, [7]) == [0, 0, 0, NONE]
    assert winners(jobs, [0]) == [NONE] * 4
    assert winners(jobs, [-1]) == [NONE] * 4


GANG = st.tuples(st.sampled_from([1, 1, 2, 3, 4, 8]), st.floats(0, 1), st.floats(0, 1))


@given(st.lists(GANG, min_size=1, max_size=30), st.tuples(*[st.integers(0, 20)] * 2))
@settings(max_examples=200, deadline=None)
def test_as_one_by_one(jobs: list[tuple[int, float, float]], left: tuple[int, int]) -> None:
    made = roster([gang for gang, *_ in jobs], [list(share) for _, *share in jobs])
    expected, free = [NONE] * len(jobs), list(left)
    for kind in (1, 0):
        for job in sorted(
            range(len(jobs)), key=lambda at: (-jobs[at][1 + kind] / 180.0, -jobs[at][1 + kind], at)
        ):
            if expected[job] == NONE and jobs[job][0] <= free[kind]:
                expected[job] = kind
                free[kind] -= jobs[job][0]
    assert winners(made, list(left), [1, 0]) == expected


@pytest.mark.parametrize("seed", range(20))
def test_thousands_as_one_by_one(seed: int) -> None:
    # Equal priorities across the edge of those that are looked at, and gangs too large for what is
    # left.
    rng = np.random.default_rng(seed)
    gangs, share = rng.choice([1, 2, 4, 8], 800), rng.integers(0, 4, 800) / 4
    left = int(rng.integers(1, 40))
    expected, free = [NONE] * 800, left
    for job in np.argsort(-share, kind="stable").tolist():
        if gangs[job] <= free:
            expected[job] = 0
            free -= gangs[job]
    assert winners(roster(gangs.tolist(), [[value] for value in share]), [left]) == expected
    # Hardly anybody fits: those at the top leave GPUs over.
    gangs[:700] = 64
    share = np.linspace(1, 0, 800)
    expected, free = [NONE] * 800, left
    for job in range(800):
        if gangs[job] <= free:
            expected[job] = 0
            free -= gangs[job]
    assert winners(roster(gangs.tolist(), [[value] for value in share]), [left]) == expected


def test_new_shares_carry_over_what_is_owed() -> None:
    jobs = roster([1, 1], [[0.5, 0.0], [0.25, 0.25]])
    jobs.time_s[0] = [180.0 + 720.0, 180.0]
    jobs.reset(np.full((2, 2), 0.5), 1920.0)
    assert jobs.deficit_s.tolist() == [[0.5 * 1920 - 720, 0.0], [480.0, 480.0]]
    assert (jobs.time_s == 180.0).all()
    assert jobs.counted.all()


def test_the_first_shares_owe_nothing() -> None:
    jobs = roster([1], [[0.0, 0.0]])
    jobs.reset(np.array([[1.0, 0.0]]), 0.0)
    assert not jobs.deficit_s.any()


def test_jobs_come_and_go_and_the_others_keep_what_is_known_of_them() -> None:
    jobs = Roster(2, 180.0)
    assert jobs.align(np.array([3, 5, 8])).tolist() == [0, 1, 2]
    jobs.gangs[:] = [1, 2, 4]
    jobs.reset(np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]), 0.0)
    jobs.time_s[2] = [540.0, 180.0]
    assert jobs.align(np.array([3, 5, 8])).tolist() == []
    assert jobs.align(np.array([1, 5, 8, 9])).tolist() == [0, 3]
    assert jobs.gangs.tolist() == [0, 2, 4, 0]
    assert jobs.counted.tolist() == [False, True, True, False]
    assert jobs.share.tolist() == [[0.0, 0.0], [0.3, 0.4], [0.5, 0.6], [0.0, 0.0]]
    assert jobs.time_s.tolist() == [[180.0, 180.0], [180.0, 180.0], [540.0, 180.0], [180.0, 180.0]]
    assert jobs.align(np.array([], np.int64)).tolist() == []
    assert len(jobs) == 0
    assert jobs.align(np.array([7])).tolist() == [0]


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_followed_over_many_rounds(seed: int) -> None:
    rng, gpus, rounds = np.random.default_rng(seed), 10, 2000
    share = rng.dirichlet(np.full(50, 5.0)) * gpus
    assert share.max() < 0.9
    jobs = roster([1] * 50, [[value] for value in share])
    contest, received = DeficitRanking(jobs, np.ones((50, 1), bool)), np.zeros(50)
    for _ in range(rounds):
        won = contest.winners(jobs.time_s, [0], [gpus]) == 0
        jobs.time_s[won, 0] += 360.0
        received += won
    assert np.abs(received - share * rounds).max() <= 1.0
