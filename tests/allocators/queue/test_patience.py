"""Waiting for the preferred GPU type: FIFO, SJF and EASY."""

from __future__ import annotations

from typing import Any

import pytest

from allocators import make
from sim.cluster import Cluster, GpuType
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.result import RunResult
from tests.allocators.queue.walk import trace_of

SLOW, FAST, CHEAP = GpuType("slow", 1.0, 1.0), GpuType("fast", 2.0, 5.0), GpuType("cheap", 0.5, 0.1)
EACH = [f"{name}:backfill={way}," for name in ("fifo", "sjf") for way in ("none", "first_fit")] + [
    "easy:"
]


# The first type is the one that durations are given for.
def cluster(text: str, *types: GpuType) -> Cluster:
    return Cluster(Cluster.parse(text).groups, types)


TWO = cluster("1x1:fast,1x1:slow", SLOW, FAST)


def run(
    spec: str,
    jobs: list[tuple[float, int, float]],
    on: Cluster = TWO,
    conditions: Conditions | None = None,
    **columns: list[Any],
) -> RunResult:
    return Simulator(trace_of(jobs, **columns), on, make(Spec.parse(spec)), conditions).run()


def times(result: RunResult) -> list[tuple[float, float]]:
    return list(
        zip(result.jobs["first_start_s"].tolist(), result.jobs["finish_s"].tolist(), strict=True)
    )


@pytest.mark.parametrize("policy", EACH)
@pytest.mark.parametrize(
    ("wait_s", "expected"),
    [
        # Job 0 (8 s of work) takes the fast GPU, of speed 2, from 0 to 4; job 1 (6 s) comes at 1.
        (0, (1, 7)),  # takes the slow GPU at once: 1 + 6
        (2, (3, 9)),  # waits until 1 + 2 = 3, then takes it: 3 + 6
        (
            3,
            (4, 7),
        ),  # its wait is over at 4, when the fast GPU comes free, which it prefers: 4 + 6 / 2
        (100, (4, 7)),  # takes the fast GPU as soon as it comes free
    ],
)
def test_a_job_waits_for_the_fastest_type_but_not_for_ever(
    policy: str, wait_s: float, expected: tuple[float, float]
) -> None:
    assert times(run(f"{policy}wait_for_type={wait_s}", [(0, 1, 8), (1, 1, 6)])) == [
        (0, 4),
        expected,
    ]


@pytest.mark.parametrize("policy", EACH)
def test_the_wait_counts_from_the_submission(policy: str) -> None:
    # Job 0 holds the fast GPU until 20, job 1, which may run on slow ones only, the slow one until
    # 8. Job 2 comes at 1 and would wait until 6: by 8 it has waited for long enough and starts at
    # once.
    result = run(
        f"{policy}wait_for_type=5",
        [(0, 1, 40), (0, 1, 8), (1, 1, 4)],
        gpu_types_allowed=[None, "slow", None],
    )
    assert times(result) == [(0, 20), (0, 8), (8, 12)]


@pytest.mark.parametrize("policy", EACH)
def test_an_arrival_at_the_instant_at_which_the_wait_ends_changes_nothing(policy: str) -> None:
    # Job 1 waits until 3, when job 2 comes, too large for either node at that moment: 3 + 6 = 9.
    two = cluster("1x2:fast,1x2:slow", SLOW, FAST)
    result = run(f"{policy}wait_for_type=2", [(0, 2, 40), (1, 1, 6), (3, 2, 50)], two)
    assert times(result)[1] == (3, 9)


@pytest.mark.parametrize("policy", EACH)
def test_of_one_demand_the_one_that_has_waited_for_long_enough_goes_on(policy: str) -> None:
    # Under SJF the shorter job 2 is first in line, but it came at 2 and waits until 7. Job 1 waits
    # until 6, and then may pass it where the first in line does not hold up the others.
    result = run(f"{policy}wait_for_type=5", [(0, 1, 40), (1, 1, 9), (2, 1, 3)])
    blocked = "sjf:backfill=none" in policy
    # Blocked: job 2 takes the slow GPU from 7 to 10, job 1 has it from 10 to 19. Else: job 1 from 6
    # to 15, job 2 from 15 to 18.
    assert times(result)[1:] == ([(10, 19), (7, 10)] if blocked else [(6, 15), (15, 18)])


def test_behind_a_job_that_waits_for_its_type() -> None:
    # Job 0 holds the fast GPU until 4, job 1 (6 s of work) waits for it. Job 2 (2 s) may run on
    # slow GPUs only.
    jobs = [(0, 1, 8), (1, 1, 6), (2, 1, 2)]

    def starts(policy: str) -> list[float]:
        result = run(f"{policy},wait_for_type=100", jobs, gpu_types_allowed=[None, None, "slow"])
        return result.jobs["first_start_s"].tolist()

    assert starts("fifo:backfill=none") == [0, 4, 4]
    assert starts("fifo:backfill=first_fit") == [0, 4, 2]
    assert starts("easy:depth=500") == [0, 4, 2]


HELD = [(0, 2, 20), (1, 2, 6), (2, 1, 3), (2, 1, 4)]
SLOW_ONLY = [None, None, "slow", "slow"]


@pytest.mark.parametrize("placement", ["fewest", "consolidate"])
def test_easy_promises_the_head_what_it_gets_when_its_wait_is_over(placement: str) -> None:
    # Two GPUs of each type. Job 0 holds the fast ones until 20 / 2 = 10. Job 1 wants two, and waits
    # for fast ones until 1 + 4 = 5; the slow ones are free. Its shadow time is 5. Job 2 (3 s, until
    # 5) passes it at 2; job 3 (4 s, until 6) would delay it: it starts when job 1 ends, at 11.
    four = cluster("1x2:fast,1x2:slow", SLOW, FAST)
    result = run(
        f"easy:placement={placement},wait_for_type=4", HELD, four, gpu_types_allowed=SLOW_ONLY
    )
    assert times(result) == [(0, 10), (5, 11), (2, 5), (11, 15)]
    # With a wait until 21 it is promised the fast ones at 10: both may pass, and it ends at 10 + 6
    # / 2.
    result = run(
        f"easy:placement={placement},wait_for_type=20", HELD, four, gpu_types_allowed=SLOW_ONLY
    )
    assert times(result) == [(0, 10), (10, 13), (2, 5), (2, 6)]


def test_easy_lets_a_job_pass_on_its_preferred_type_only_while_it_waits() -> None:
    # Job 0 holds 1 of 2 fast GPUs until 10, job 1 wants 2 and is promised them at 10. Job 2 comes
    # at 2 (4 s of work) and passes on the other fast GPU until 4. Job 3 comes at 3 and waits for a
    # fast one: from 4 it has it for 1 s. Without waiting it takes a slow one at 3.
    four = cluster("1x2:fast,1x2:slow", SLOW, FAST)
    jobs, allowed = [(0, 1, 20), (1, 2, 10), (2, 1, 4), (3, 1, 2)], [None, "fast", None, None]
    assert times(run("easy:wait_for_type=9", jobs, four, gpu_types_allowed=allowed)) == [
        (0, 10),
        (10, 15),
        (2, 4),
        (4, 5),
    ]
    assert times(run("easy", jobs, four, gpu_types_allowed=allowed))[3] == (3, 5)


@pytest.mark.parametrize("policy", EACH)
def test_what_is_preferred_is_waited_for(policy: str) -> None:
    # By price the cheap GPU comes first: job 0 (4 s on it, 1 s on the fast one) has it until 4, job
    # 1 waits for it, until 4 + 4.
    both = cluster("1x1:fast,1x1:cheap", CHEAP, FAST)
    assert times(
        run(f"{policy}types=cheapest,wait_for_type=100", [(0, 1, 4), (1, 1, 4)], both)
    ) == [(0, 4), (4, 8)]


@pytest.mark.parametrize("policy", EACH)
def test_nobody_waits_for_a_type_that_is_no_better(policy: str) -> None:
    # Two types of one speed, and a slower one: job 1 takes the other fast one at once; job 2 waits
    # for either, until 4.
    also = GpuType("also", 2.0, 6.0)
    three = cluster("1x1:fast,1x1:also,1x1:slow", SLOW, FAST, also)
    assert times(run(f"{policy}wait_for_type=100", [(0, 1, 8), (0, 1, 20), (1, 1, 6)], three)) == [
        (0, 4),
        (0, 10),
        (4, 7),
    ]


@pytest.mark.parametrize("policy", EACH)
def test_nobody_waits_for_a_type_that_cannot_hold_it_or_is_not_allowed(policy: str) -> None:
    # One fast GPU, two slow ones: a job of two never fits the fast node. The other is restricted to
    # slow ones.
    mixed = cluster("1x1:fast,1x2:slow", SLOW, FAST)
    assert times(run(f"{policy}wait_for_type=100", [(0, 2, 6)], mixed)) == [(0, 6)]
    assert times(
        run(f"{policy}wait_for_type=100", [(0, 1, 6)], mixed, gpu_types_allowed=["slow"])
    ) == [(0, 6)]


@pytest.mark.parametrize("policy", EACH)
def test_the_wait_ends_though_the_fast_nodes_never_come_back(policy: str) -> None:
    # The fast node is gone from 1 on. Job 0 has lost its second of work: it waits until 0 + 5, then
    # runs for 8 s on the slow one. Job 1 came at 2 and would wait until 7; it follows at 13.
    gone = Conditions(faults=Faults(outages="0:1:1000000"))
    result = run(f"{policy}wait_for_type=5", [(0, 1, 8), (2, 1, 6)], TWO, gone)
    if "sjf:backfill=none" in policy:
        # Job 1 (6 s) is shorter and first in line: it has the slow node from 7 to 13, job 0 from 13
        # to 21.
        assert times(result) == [(0, 21), (7, 13)]
    else:
        assert times(result) == [(0, 13), (13, 19)]


@pytest.mark.parametrize("policy", EACH)
def test_on_one_type_it_changes_nothing_and_asks_for_nothing(policy: str) -> None:
    jobs = [(float(at), at % 3 + 1, 3.0 + at % 5) for at in range(40)]
    one = cluster("2x4:fast", FAST)
    waiting, plain = (
        run(f"{policy}{more}", jobs, one) for more in ("wait_for_type=7", "wait_for_type=0")
    )
    assert times(waiting) == times(plain)
    assert waiting.decisions.equals(plain.decisions)


def test_a_job_that_passes_the_head_does_not_lengthen_its_wait() -> None:
    # Job 0 (1 GPU) holds a fast GPU until 100, job 1 waits for two of them until 1 + 10 = 11. Job 2
    # is shorter, comes at 5 and takes the other fast one at once: job 1 still takes two slow ones
    # at 11.
    four = cluster("1x2:fast,1x2:slow", SLOW, FAST)
    result = run("sjf:backfill=none,wait_for_type=10", [(0, 1, 200), (1, 2, 60), (5, 1, 50)], four)
    assert times(result) == [(0, 100), (11, 71), (5, 30)]
