"""What is expected of running jobs happens at its instant, once, in order, and not at all when
something else is expected instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf

import pytest

from sim.clock import instant
from sim.engine.agenda import DECISION, END, LANDING, OUTAGE, URGENT, Agenda, Alarm, Expected


def test_actions_of_an_instant_come_by_order_and_then_as_they_were_entered() -> None:
    agenda = Agenda()
    seen: list[tuple[float, str]] = []

    def enter(at_s: float, name: str, order: int) -> None:
        agenda.add_action(at_s, lambda: seen.append((agenda.now_s, name)), order)

    for order, name in ((END, "end"), (DECISION, "decision"), (LANDING, "landing")):
        enter(0.3, name, order)
    enter(0.1, "before", END)
    agenda.add_action(0.3, lambda: enter(0.3, "also urgent", URGENT), OUTAGE)
    for name in ("change", "another"):
        agenda.add_action(0.3, partial(enter, 0.3, f"{name} at once", OUTAGE))
    enter(0.3, "urgent", URGENT)
    assert agenda.planned_until_s == 0.3
    agenda.run()
    assert seen == [
        (0.1, "before"),
        (0.3, "urgent"),
        (0.3, "also urgent"),
        (0.3, "change at once"),
        (0.3, "another at once"),
        (0.3, "landing"),
        (0.3, "decision"),
        (0.3, "end"),
    ]


@pytest.mark.parametrize("far_s", [0.0, 1e3, 1.99e9])
def test_the_clock_of_simpy_reaches_every_instant_exactly(far_s: float) -> None:
    agenda = Agenda()
    seen: list[float] = []
    instants = [instant(far_s + step / 7) for step in range(1, 2000)]

    def look() -> None:
        assert agenda._env.now == round(agenda.now_s * 1e6)
        seen.append(agenda.now_s)

    for at_s in instants:
        agenda.add_action(at_s, look)
    agenda.run()
    assert seen == instants


def test_a_generator_is_advanced_at_the_instants_that_it_yields() -> None:
    agenda = Agenda()
    seen: list[float] = []

    def instants() -> Iterator[float]:
        for at_s in (2.0, 2.0, 5.0):
            seen.append(agenda.now_s)
            yield at_s
        seen.append(agenda.now_s)

    agenda.follow(instants(), OUTAGE)
    assert agenda.planned_until_s == 0.0  # outages plan nothing
    agenda.run()
    assert seen == [0.0, 2.0, 2.0, 5.0]


def test_nothing_follows_a_stop() -> None:
    agenda = Agenda()
    seen: list[str] = []
    agenda.add_action(1.0, agenda.stop)
    agenda.add_action(1.0, lambda: seen.append("at once"), DECISION)
    agenda.add_action(2.0, lambda: seen.append("later"))
    agenda.run()
    assert (agenda.now_s, seen) == (1.0, [])


def test_only_what_was_expected_last_happens() -> None:
    agenda = Agenda()
    seen: list[tuple[float, int, int]] = []
    expected = Expected(agenda, lambda job, what: seen.append((agenda.now_s, job, what)))
    expected.replace(1, (5.0, 0))
    expected.replace(2, (5.0, 7))
    expected.replace(3, (2.0, 0))
    expected.replace(4, (1.0, 0))
    expected.replace(1, (3.0, 4))  # sooner
    expected.replace(3, (9.0, 0))  # later
    expected.drop(4)
    assert expected.until_s == 9.0
    agenda.run()
    assert seen == [(3.0, 1, 4), (5.0, 2, 7), (9.0, 3, 0)]
    assert expected.until_s == 0.0


def test_who_shares_an_instant_comes_in_the_order_of_expectation_and_may_expect_more_of_it() -> (
    None
):
    agenda = Agenda()
    seen: list[tuple[float, int, int]] = []

    def happens(job: int, what: int) -> None:
        seen.append((agenda.now_s, job, what))
        if what:
            expected.replace(job, (agenda.now_s, 0))
        else:
            expected.drop(9)

    expected = Expected(agenda, happens)
    for job, what in ((8, 1), (3, 0), (9, 0)):
        expected.replace(job, (4.0, what))
    agenda.run()
    assert seen == [(4.0, 8, 1), (4.0, 3, 0), (4.0, 8, 0)]


def test_a_thousand_changes_of_mind_are_not_kept() -> None:
    agenda = Agenda()
    seen: list[tuple[float, int]] = []
    expected = Expected(agenda, lambda job, _: seen.append((agenda.now_s, job)))
    for change in range(1000):
        for job in range(3):
            expected.replace(job, (1000.0 - change + job / 4, 0))
    expected.replace(1, (inf, 0))
    assert len(expected._entries) < 100
    agenda.run()
    assert seen == [(1.0, 0), (1.5, 2)]


def test_an_alarm_rings_at_the_instant_that_was_set_last() -> None:
    agenda = Agenda()
    rung: list[float] = []

    def rings() -> None:
        rung.append(agenda.now_s)
        if agenda.now_s < 8.0:
            alarm.set(8.0)

    alarm = Alarm(agenda, rings)
    for at_s in (5.0, 7.0, 3.0, 6.0):  # later, sooner, later
        alarm.set(at_s)
    assert (alarm.requested_s, alarm.at_s, alarm.until_s) == (6.0, 6.0, 6.0)
    assert len(agenda.actions) == 2  # at 5 s and at 3 s
    agenda.run()
    assert rung == [6.0, 8.0]
    assert (alarm.requested_s, alarm.at_s, alarm.until_s) == (inf, inf, 0.0)


def test_an_alarm_that_is_taken_back_or_after_the_end_of_the_clock_never_rings() -> None:
    agenda = Agenda()
    rung: list[float] = []
    alarm = Alarm(agenda, lambda: rung.append(agenda.now_s))
    alarm.set(-1.0)
    assert alarm.at_s == 1e-6  # the past is the next instant
    alarm.set(inf)
    agenda.run()
    alarm.set(3e9)
    assert (alarm.requested_s, alarm.at_s, len(agenda.actions)) == (3e9, inf, 0)
    agenda.run()
    assert rung == []
