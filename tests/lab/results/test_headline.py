from __future__ import annotations

from dataclasses import replace

import pytest

from lab.results.headline import GOALS, headline
from tests.lab.results.test_compare import outcome_of


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([("B", (5.9, 6.1, 6.0, 5.6))], "B cuts mean JCT by 41 % against A; no job gets slower."),
        ([("B", (5.0, 5.0, 5.0, 11.0))], "B cuts mean JCT by 35 % against A; 25 % of jobs get slower."),
        ([("B", (9.0, 9.0, 9.0, 9.0)), ("C", (8.0, 8.0, 8.0, 8.0))], "C cuts mean JCT by 20 % against A; no job gets slower."),
        ([("B", (20.0, 20.0, 20.0, 5.0)), ("C", (11.0, 11.0, 11.0, 11.0))], "B raises mean JCT by 62 % against A; 25 % of jobs get faster."),
        ([("B", (30.0, 30.0, 30.0, 30.0)), ("C", (9.0, 9.0, 9.0, 9.0))], "C cuts mean JCT by 10 % against A; no job gets slower."),
        ([("B", (10.01, 10.0, 10.0, 10.0))], "No clear difference."),
        ([("B", (5.0, 5.0, 5.0, float("nan")))], "B cuts mean JCT by 50 % against A; 1 job fewer completes."),
        ([("B", (float("nan"),) * 4)], "No clear difference."),
        ([("B", (1000.0, 1000.0, 1000.0, 1000.0))], "B raises mean JCT 100-fold against A; no job gets faster."),
        ([], "A alone: add another policy to compare."),
    ],
)
def test_headline(others: list[tuple[str, tuple[float, ...]]], expected: str) -> None:
    made = headline([outcome_of("A", (10.0, 10.0, 10.0, 10.0)), *(outcome_of(label, jct) for label, jct in others)])
    assert made == expected
    assert "best" not in made.lower()


def test_where_no_job_was_completed_the_headline_says_so() -> None:
    nothing = (float("nan"), float("nan"))
    assert headline([outcome_of("A", nothing), outcome_of("B", nothing)]) == "No job was completed under any policy."
    assert headline([outcome_of("A", nothing)]) == "No job was completed under A."
    none_fits = [outcome_of(label, nothing, impossible=2, unfinished=0) for label in "AB"]
    assert headline(none_fits) == "No job can run: none of them fits on this cluster."


def test_while_others_are_not_complete_nobody_is_asked_to_add_a_policy() -> None:
    base, history = outcome_of("A", (10.0,)), outcome_of("history", (1.0,), replays=True)
    assert headline([base], missing=3) == "A is complete, no other policy is: nothing to compare yet."
    assert headline([base, history], missing=2) == "A and history are complete, no other policy is: nothing to compare yet."
    assert headline([base, outcome_of("B", (5.0,))], missing=1) == "B cuts mean JCT by 50 % against A; no job gets slower."


def test_headline_wants_an_interval_clear_of_zero() -> None:
    base = outcome_of("A", (10.0,), (20.0,), (40.0,), (80.0,))
    assert headline([base, outcome_of("C", (20.0,), (10.0,), (40.0,), (60.0,))]) == "No clear difference."


def test_headline_never_praises_the_recording() -> None:
    said = headline([outcome_of("A", (10.0,)), outcome_of("history", (1.0,), replays=True)])
    assert said == "A stands beside the recorded schedule only: add another policy to see which is faster."


def test_nothing_is_said_to_be_worse_than_a_recording_that_had_more_gpus() -> None:
    history = replace(outcome_of("history", (1.0,), replays=True), overflow=True)
    assert headline([history, outcome_of("A", (90.0,))]) == "No clear difference."
    assert headline([replace(history, overflow=False), outcome_of("A", (90.0,))]).startswith("A raises mean JCT 90-fold against history")


def test_headline_on_another_goal_names_what_gets_worse_elsewhere() -> None:
    base = outcome_of("A", (10.0, 10.0, 10.0, 10.0), makespan_s=100.0)
    other = outcome_of("B", (12.0, 12.0, 12.0, 12.0), makespan_s=80.0)
    # Half of the time of these jobs is waiting, so their wait rises by as much; of equal ones the first goal is said.
    assert headline([base, other], goal="makespan_s") == "B cuts makespan by 20 % against A; 100 % of jobs get slower and mean JCT rises by 20 %."
    assert headline([base, other]) == "B raises mean JCT by 20 % against A; no job gets faster."


def test_a_small_rise_elsewhere_is_no_main_cost() -> None:
    base, other = outcome_of("A", (10.0,), makespan_s=100.0), outcome_of("B", (5.0,), makespan_s=104.0)
    assert headline([base, other]) == "B cuts mean JCT by 50 % against A; no job gets slower."
    worse = outcome_of("B", (5.0,), makespan_s=106.0)
    assert headline([base, worse]) == "B cuts mean JCT by 50 % against A; no job gets slower, but makespan rises by 6 %."


def test_who_drops_jobs_is_not_praised_for_a_short_makespan() -> None:
    base = outcome_of("A", (10.0, 10.0), makespan_s=100.0)
    assert headline([base, outcome_of("B", (10.0, float("nan")), makespan_s=50.0)], goal="makespan_s") == "No clear difference."


@pytest.mark.parametrize("goal", GOALS)
def test_no_sentence_says_best(goal: str) -> None:
    said = headline([outcome_of("A", (10.0, 20.0)), outcome_of("B", (5.0, 5.0))], goal=goal)
    assert "best" not in said
