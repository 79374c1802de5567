"""What is expected of running jobs happens at its instant, once, in order, and not at all when something else is expected instead."""

from __future__ import annotations

from math import inf

import simpy

from sim.instant import Alarm, Expected


def test_only_what_was_expected_last_happens() -> None:
    env = simpy.Environment()
    seen: list[tuple[float, int, int]] = []
    expected = Expected(env, lambda job, what: seen.append((env.now, job, what)))
    expected.put(1, (5.0, 0))
    expected.put(2, (5.0, 7))
    expected.put(3, (2.0, 0))
    expected.put(4, (1.0, 0))
    expected.put(1, (3.0, 4))  # sooner
    expected.put(3, (9.0, 0))  # later
    expected.drop(4)
    assert expected.until_s == 9.0
    env.run()
    assert seen == [(3.0, 1, 4), (5.0, 2, 7), (9.0, 3, 0)]
    assert expected.until_s == 0.0


def test_who_shares_an_instant_comes_in_the_order_of_expectation_and_may_expect_more_of_it() -> None:
    env = simpy.Environment()
    seen: list[tuple[float, int, int]] = []

    def happens(job: int, what: int) -> None:
        seen.append((env.now, job, what))
        if what:
            expected.put(job, (env.now, 0))
        else:
            expected.drop(9)

    expected = Expected(env, happens)
    for job, what in ((8, 1), (3, 0), (9, 0)):
        expected.put(job, (4.0, what))
    env.run()
    assert seen == [(4.0, 8, 1), (4.0, 3, 0), (4.0, 8, 0)]


def test_a_thousand_changes_of_mind_are_not_kept() -> None:
    env = simpy.Environment()
    seen: list[tuple[float, int]] = []
    expected = Expected(env, lambda job, _: seen.append((env.now, job)))
    for change in range(1000):
        for job in range(3):
            expected.put(job, (1000.0 - change + job / 4, 0))
    expected.put(1, (inf, 0))
    assert len(expected._entries) < 100
    env.run()
    assert seen == [(1.0, 0), (1.5, 2)]


def test_an_alarm_rings_at_the_instant_that_was_set_last() -> None:
    env = simpy.Environment()
    rung: list[float] = []

    def rings() -> None:
        rung.append(env.now)
        if env.now < 8.0:
            alarm.set(8.0)

    alarm = Alarm(env, rings)
    for at_s in (5.0, 7.0, 3.0, 6.0):  # later, sooner, later
        alarm.set(at_s)
    assert (alarm.asked_s, alarm.at_s, alarm.until_s) == (6.0, 6.0, 6.0)
    assert len(env._queue) == 2  # at 5 s and at 3 s
    env.run()
    assert rung == [6.0, 8.0]
    assert (alarm.asked_s, alarm.at_s, alarm.until_s) == (inf, inf, 0.0)


def test_an_alarm_that_is_taken_back_or_after_the_end_of_the_clock_never_rings() -> None:
    env = simpy.Environment()
    rung: list[float] = []
    alarm = Alarm(env, lambda: rung.append(env.now))
    alarm.set(-1.0)
    assert alarm.at_s == 1e-6  # the past is the next instant
    alarm.set(inf)
    env.run()
    alarm.set(3e9)
    assert (alarm.asked_s, alarm.at_s, len(env._queue)) == (3e9, inf, 0)
    env.run()
    assert rung == []
