"""The virtual machine of A-SRPT."""

from __future__ import annotations

from itertools import permutations
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from allocators.queue.asrpt import VirtualMachine

Jobs = list[tuple[int, int]]


def served(jobs: Jobs, speed: float = 1.0) -> dict[int, float]:
    """Completion of jobs given as (arrival, work), in order of arrival."""
    machine = VirtualMachine(0.0, speed)
    complete = []
    for job, (arrival, work) in enumerate(jobs):
        complete += machine.advance(arrival)
        machine.add(job, work)
    return {job: end_s for end_s, job in [*complete, *machine.advance(1e9)]}


def by_priority(jobs: Jobs, first: tuple[int, ...]) -> list[float]:
    """Completion on a machine that always serves the first of this order that is there, second by
    second; whole numbers only.
    """
    left, end, now = [work for _, work in jobs], [0.0] * len(jobs), 0
    while any(left):
        for job in first:
            if left[job] and jobs[job][0] <= now:
                left[job] -= 1
                end[job] = now + 1.0
                break
        now += 1
    return end


def test_who_needs_least_is_served_first_and_interrupts() -> None:
    # Speed 2. Job 0 (10) alone until 1, then job 1 (4) until 3; job 2 (4) came at 2, when job 1 had
    # 2 left: 3 to 5. Job 0 has 8 left: 5 to 9.
    assert served([(0, 10), (1, 4), (2, 4)], 2.0) == {1: 3, 2: 5, 0: 9}


def test_ties_go_to_the_lower_id_and_nothing_takes_no_time() -> None:
    # At 2 job 0 has 3 left, as much as job 1.
    assert served([(0, 5), (2, 3), (4, 0)]) == {2: 4, 0: 5, 1: 8}


def test_it_says_when_the_next_one_is_complete() -> None:
    machine = VirtualMachine(10.0, 4.0)
    assert machine.next_s() == inf
    machine.add(7, 8.0)
    assert (machine.next_s(), len(machine)) == (12, 1)
    assert machine.advance(11.0) == []
    machine.add(8, 2.0)
    assert machine.next_s() == 11.5
    assert machine.advance(12.5) == [(11.5, 8), (12.5, 7)]
    assert len(machine) == 0


def test_without_speed_it_stands_still_but_for_jobs_without_work() -> None:
    machine = VirtualMachine(0.0, 0.0)
    machine.add(1, 5.0)
    assert machine.advance(3.0) == []
    assert machine.next_s() == inf
    machine.add(0, 0.0)
    assert machine.advance(3.0) == [(3, 0)]
    machine.speed = 5.0
    assert machine.advance(9.0) == [(4, 1)]


def test_a_job_without_end_comes_last_and_holds_up_nobody() -> None:
    machine = VirtualMachine(0.0, 1.0)
    machine.add(0, inf)
    machine.add(1, 2.0)
    assert machine.advance(1.0) == []
    assert machine.advance(5.0) == [(2, 1), (2, 0)]


def test_a_completion_is_at_an_instant_and_the_next_one_counts_from_there() -> None:
    machine = VirtualMachine(0.0, 3.0)
    machine.add(0, 1.0)
    machine.add(1, 2.0)
    assert machine.next_s() == 0.333333
    assert machine.advance(0.333332) == []
    assert machine.advance(0.333333) == [(0.333333, 0)]
    assert machine.next_s() == 1.0  # 0.333333 + 2/3, to the nearest microsecond


def test_equal_work_is_equal_whatever_it_was_summed_from() -> None:
    # At 0.3 job 1 has 0.5 - 0.3 left, which as doubles is a little less than the 0.2 of job 0.
    machine = VirtualMachine(0.0, 1.0)
    machine.add(1, 0.5)
    assert [machine.advance(at) for at in (0.1, 0.2, 0.3)] == [[], [], []]
    machine.add(0, 0.2)
    assert [job for _, job in machine.advance(9.0)] == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=4))
def test_no_order_of_priority_does_better(jobs: Jobs) -> None:
    # SRPT minimises the sum of completion times; every order of fixed priority, with interruptions,
    # is one of those that it is compared with.
    jobs = sorted(jobs, key=lambda item: item[0])
    ends = served(jobs)
    others = [by_priority(jobs, order) for order in permutations(range(len(jobs)))]
    assert sum(ends.values()) <= min(map(sum, others))
    assert {max(ends.values())} == {max(other) for other in others}
