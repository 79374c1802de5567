from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.trace import Trace
from tests.trainyard.results.test_compare import outcome_of
from trainyard.results import meaning
from trainyard.results.compare import Outcome
from trainyard.results.headline import GOALS, Headline, headline, headlines
from trainyard.results.meaning import Setting
from trainyard.results.past import Past
from trainyard.results.ways_out import COMPARE_ANYWAY

HOUR = 3600.0
NAN = float("nan")


def hours(
    label: str, *repeats: tuple[float, ...], times: int = 10, replays: bool = False, **summary: Any
) -> Outcome:
    """Each JCT so many times, in hours: enough jobs for percentages, days apart, and half of the
    time is waiting.
    """
    long = [tuple(HOUR * one for one in jct) * times for jct in repeats]
    made = outcome_of(label, *long, replays=replays, **summary)
    return replace(made, jobs=tuple(_apart(frame) for frame in made.jobs))


def _apart(frame: pd.DataFrame) -> pd.DataFrame:
    instants = ["submit_s", "first_start_s", "finish_s"]
    return frame.assign(**frame[instants].add(100 * HOUR * np.arange(len(frame)), axis=0))


def said(outcomes: list[Outcome], **more: Any) -> Headline:
    return headline(outcomes, setting=replace(Setting(load=0.8), **more))


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (
            [("B", (5.9, 6.1, 6.0, 5.6))],
            "With B the average job is done in 5.9 h instead of 10 h; no job gets slower.",
        ),
        (
            [("B", (5.0, 5.0, 5.0, 11.0))],
            "With B the average job is done in 6.5 h instead of 10 h; 25 % of jobs get slower and"
            " the time for 95 % of jobs rises by 10 %.",
        ),
        (
            [("B", (9.0, 9.0, 9.0, 9.0)), ("C", (8.0, 8.0, 8.0, 8.0))],
            "With C the average job is done in 8 h instead of 10 h; no job gets slower.",
        ),
        (
            [("B", (20.0, 20.0, 20.0, 5.0)), ("C", (11.0,) * 4)],
            "With B the average job is done in 16.2 h instead of 10 h; 25 % of jobs get faster.",
        ),
        (
            [("B", (30.0,) * 4), ("C", (9.0,) * 4)],
            "With C the average job is done in 9 h instead of 10 h; no job gets slower.",
        ),
        (
            [("B", (1000.0,) * 4)],
            "With B the average job is done in 41.7 days instead of 10 h; no job gets faster.",
        ),
    ],
)
def test_headline(others: list[tuple[str, tuple[float, ...]]], expected: str) -> None:
    made = said(
        [hours("A", (10.0, 10.0, 10.0, 10.0)), *(hours(label, jct) for label, jct in others)]
    )
    assert (made.text, made.verdict, made.subject) == (
        expected,
        "clear",
        expected.split()[1],
    )
    assert made.lines() == [expected]
    assert "best" not in made.text.lower()


def test_an_interval_stands_behind_the_value() -> None:
    base = hours("A", *[(one,) * 4 for one in (10.0, 10.0, 10.0, 10.0)])
    other = hours("B", *[(one,) * 4 for one in (3.2, 3.4, 3.6, 3.4)])
    text = said([base, other]).text
    found = re.match(
        r"With B the average job is done in 3\.4 h \((3\.\d) to (3\.\d)\) instead of 10 h; ", text
    )
    assert found
    assert 3.2 <= float(found[1]) < 3.4 < float(found[2]) <= 3.6


def test_values_that_are_written_alike_are_told_as_a_difference() -> None:
    base = hours("A", (10.0,) * 4)
    text = said([base, hours("B", (9.9, 10.0, 9.9, 9.7))]).text
    assert text == ("With B the average job is done in 9.9 h instead of 10 h; no job gets slower.")
    minutes = said([hours("A", (0.4555,) * 4), hours("B", (0.4503,) * 4)]).text
    assert minutes == (
        "With B the average time to finish is 1 % less than with A; no job gets slower."
    )


def test_every_policy_has_a_headline_about_it() -> None:
    made = [hours("A", (10.0,) * 4), hours("B", (5.0,) * 4), hours("C", (12.0,) * 4)]
    made.append(hours("history", (2.0,) * 4, replays=True))
    found = headlines(made, goals=tuple(GOALS), setting=Setting(load=0.8))
    assert found.first["jct_mean_s"].subject == "B"
    assert {label for label, _ in found.about} == {"B", "C", "history"}
    about = found.about["C", "jct_mean_s"]
    assert (about.subject, about.verdict) == ("C", "clear")
    assert about.text == (
        "With C the average job is done in 12 h instead of 10 h; no job gets faster."
    )
    assert found.about["B", "jct_mean_s"] == found.first["jct_mean_s"]


def test_a_job_is_slower_by_over_two_per_cent() -> None:
    base = hours("A", (10.0,) * 4)
    text = said([base, hours("B", (5.0, 5.0, 10.1, 10.3))]).text
    assert text.endswith("; 25 % of jobs get slower.")


def test_whoever_completed_nothing_is_not_alike() -> None:
    made = said([hours("A", (10.0, 10.0, 10.0, 10.0)), hours("B", (NAN,) * 4)])
    assert (made.verdict, made.text) == ("cut", "40 of 40 jobs were not completed under B.")


def test_no_clear_difference() -> None:
    made = said([hours("A", (10.0, 10.0, 10.0, 10.0)), hours("B", (10.01, 10.0, 10.0, 10.0))])
    assert made.verdict == "undecided"
    assert made.text == "B and A finish the average job in the same time."


def test_where_no_job_was_completed_the_headline_says_so() -> None:
    nothing = (NAN, NAN)
    assert (
        said([outcome_of("A", nothing), outcome_of("B", nothing)]).text
        == "No job was completed under any policy."
    )
    assert said([outcome_of("A", nothing)]).text == "No job was completed under A."
    none_fits = [outcome_of(label, nothing, impossible=2, unfinished=0) for label in "AB"]
    assert said(none_fits) == Headline(
        "nothing", "No job can run: none of them fits on this cluster.", load=0.8
    )


def test_while_others_are_not_complete_nobody_is_asked_to_add_a_policy() -> None:
    base, history = hours("A", (10.0,)), hours("history", (1.0,), replays=True)
    assert (
        headline([base], missing=3).text
        == "A is complete, no other policy is: nothing to compare yet."
    )
    assert (
        headline([base, history], missing=2).text
        == "A and history are complete, no other policy is: nothing to compare yet."
    )
    assert headline([base]).text == "A alone: add another policy to compare."
    full = [hours("A", (10.0,), times=40), hours("B", (5.0,), times=40)]
    assert (
        headline(full, missing=1).text
        == "With B the average job is done in 5 h instead of 10 h; no job gets slower."
    )


def test_headline_never_praises_the_recording() -> None:
    told = said([hours("A", (10.0,)), hours("history", (1.0,), replays=True)])
    assert (
        told.text
        == "A stands beside the recorded schedule only: add another policy to see which is faster."
    )
    assert told.verdict == "nothing"


def test_headline_on_another_goal_names_what_gets_worse_elsewhere() -> None:
    base = hours("A", (10.0,) * 4, makespan_s=100.0)
    other = hours("B", (12.0,) * 4, makespan_s=80.0)
    # Half of the time of these jobs is waiting, so their wait rises by as much; of equal ones the
    # first goal is said.
    made = headlines([base, other], goals=tuple(GOALS)).first
    assert (
        made["makespan_s"].text
        == "With B all jobs are done after 80 s instead of 1.7 min; 100 % of jobs get slower and"
        " the average time to finish rises by 20 %."
    )
    assert (
        made["jct_mean_s"].text
        == "With B the average job is done in 12 h instead of 10 h; no job gets faster."
    )


def test_a_small_rise_elsewhere_is_no_main_cost() -> None:
    base, other = (
        hours("A", (10.0,) * 4, makespan_s=100.0),
        hours("B", (5.0,) * 4, makespan_s=104.0),
    )
    assert (
        said([base, other]).text
        == "With B the average job is done in 5 h instead of 10 h; no job gets slower."
    )
    worse = hours("B", (5.0,) * 4, makespan_s=106.0)
    assert (
        said([base, worse]).text
        == "With B the average job is done in 5 h instead of 10 h; no job gets slower, but the"
        " makespan rises by 6 %."
    )


def test_jobs_left_undone_are_said_and_above_two_of_a_hundred_stand_first() -> None:
    base = hours("A", (10.0,) * 100, times=1)
    one = said([base, hours("B", (*(5.0,) * 99, NAN), times=1)])
    assert (
        one.text == "With B the average job is done in 5 h instead of 10 h; 1 job fewer completes."
    )
    many = said([base, hours("B", (*(5.0,) * 97, *(NAN,) * 3), times=1)])
    assert many.verdict == "cut"
    assert (
        many.text
        == "3 of 100 jobs were not completed under B. Of the 97 jobs that both completed: with B"
        " the average job is done in 5 h instead of 10 h; no job gets slower."
    )
    assert many.advice[0].name == "hint"
    # Of a policy that the sentence is not about it stands beside.
    third = hours("C", (*(20.0,) * 97, *(NAN,) * 3), times=1)
    beside = said([base, hours("B", (5.0,) * 100, times=1), third])
    assert (beside.verdict, beside.also) == (
        "clear",
        ("3 of 100 jobs were not completed under C.",),
    )


def test_who_drops_jobs_is_not_praised_for_a_short_makespan() -> None:
    base, other = (
        hours("A", (10.0, 10.0), times=20, makespan_s=100.0),
        hours("B", (10.0, NAN), times=20, makespan_s=50.0),
    )
    told = headline([base, other], goal="makespan_s")
    assert told.verdict == "undecided"
    assert "cuts" not in told.text


# The meaning test: in each of its cases no confident sentence.


def test_overload_comes_before_everything() -> None:
    outcomes = [hours("A", (10.0,) * 4), hours("B", (5.0,) * 4)]
    told = headline(outcomes, setting=Setting(load=67.2, scale=2.0, random=True))
    assert told.verdict == "overload"
    assert (
        told.text
        == "No policy can be judged here: the jobs ask for 67 times what the cluster can do."
    )
    assert [way.name for way in told.advice] == ["lower_load", "enough_gpus", "compare_anyway"]
    assert told.advice[0].text == "Lower the load to 0.85"
    assert told.advice[0].value == pytest.approx(2 * 0.85 / 67.2, rel=1e-3)
    assert told.withheld
    # On the command line all of it stands in the table above.
    assert COMPARE_ANYWAY.text not in told.lines()[-1]
    # Alone, a policy does not have to wait for another one to be told so.
    assert headline(outcomes[:1], setting=Setting(load=67.2)).verdict == "overload"
    every = headlines(outcomes, goals=tuple(GOALS), setting=Setting(load=67.2))
    assert set(every.first.values()) == {headline(outcomes, setting=Setting(load=67.2))}
    assert every.about == {}


def test_idle_offers_more_load() -> None:
    told = headline(
        [outcome_of("A", (10.0,) * 40), outcome_of("B", (9.9,) * 40)], setting=Setting(load=0.1)
    )
    assert (told.verdict, told.withheld) == ("idle", True)
    assert told.text == "There is nothing to schedule: jobs hardly wait under any policy."
    assert [(way.name, way.value) for way in told.advice] == [("raise_load", 8.5)]


def test_of_few_jobs_figures_stand_without_percentages() -> None:
    told = said([hours("A", (10.0, 20.0), times=1), hours("B", (4.0, 8.0), times=1)])
    assert told.verdict == "few"
    assert told.text.startswith(
        "Only 2 jobs were completed: too few for percentages. With B the average job is done in"
        " 6 h, with A in 15 h."
    )
    assert "%" not in told.text
    assert told.withheld


def test_a_load_above_one_is_said_first() -> None:
    outcomes = [hours("A", (10.0,) * 4), hours("B", (5.0,) * 4)]
    told = headline(outcomes, setting=Setting(load=1.15))
    assert told.verdict == "loaded"
    assert told.text.startswith(
        "The cluster is overloaded: the jobs ask for 1.15 times what it can do"
    )
    assert "With B the average job is done in 5 h, with A in 10 h." in told.text
    assert "cuts" not in told.text
    assert [way.name for way in told.advice] == ["lower_load", "enough_gpus"]


def test_one_draw_of_something_random_is_said_first() -> None:
    told = said([hours("A", (10.0,) * 4), hours("B", (5.0,) * 4)], random=True)
    assert told.text.startswith(
        "One draw: may differ by chance. With B the average job is done in 5 h, with A in 10 h."
    )
    assert [(way.text, way.value) for way in told.advice] == [("Run 5 repeats", 5)]
    three = said([hours("A", *[(10.0,) * 4] * 3), hours("B", *[(5.0,) * 4] * 3)], random=True)
    assert three.verdict == "clear"


def test_an_interval_that_includes_no_effect_decides_nothing() -> None:
    base = hours("A", *[(one,) * 4 for one in (10.0, 20.0, 40.0, 80.0)])
    told = said([base, hours("C", *[(one,) * 4 for one in (20.0, 10.0, 40.0, 60.0)])])
    # Lowest are A, C, both, and C.
    assert told.verdict == "turns"
    assert told.text.startswith(
        "The order changes with the seed: lowest average time to finish with A in 2 of 4 repeats,"
        " with C in 2."
    )
    assert told.also[0].startswith(
        "C and A finish the average job in the same time. Over 4 repeats the difference is between"
        " −"
    )
    assert [(way.name, way.value) for way in told.advice] == [("repeats", 5)]
    # C is first in all of them, but by next to nothing in all but one.
    near = said([base, hours("C", *[(one,) * 4 for one in (10.05, 20.1, 40.2, 79.0)])])
    assert near.verdict == "undecided"
    assert "%" in near.text
    assert "cuts" not in near.text


@pytest.mark.parametrize("last", [9.0, 11.0])
def test_bounds_are_told_only_where_the_difference_has_both_signs(last: float) -> None:
    # Three of four repeats are equal, so a resample of equal ones is likely: one bound is 0.
    base = hours("A", *[(10.0,) * 4] * 4)
    told = said([base, hours("C", *[(one,) * 4 for one in (10.0, 10.0, 10.0, last)])])
    assert told.verdict == "undecided"
    assert "between" not in told.text


def test_the_order_of_two_that_both_gain_may_turn_too() -> None:
    base = hours("A", *[(10.0,) * 4] * 5)
    b, c = ((5.0, 5.0, 5.0, 6.0, 6.0), (6.0, 6.0, 6.0, 5.0, 5.0))
    told = said(
        [base, hours("B", *[(one,) * 4 for one in b]), hours("C", *[(one,) * 4 for one in c])]
    )
    assert told.verdict == "turns"
    assert (
        told.text
        == "The order changes with the seed: lowest average time to finish with B in 3 of 5"
        " repeats, with C in 2. With B the average job is done in 5.4 h, with A in 10 h."
    )
    assert [(way.name, way.value) for way in told.advice] == [("repeats", 20)]


def test_a_mean_carried_by_few_jobs_is_said_with_the_median() -> None:
    base = hours("A", (*(1.0,) * 297, *(75.0,) * 3), times=1, jct_p50_s=HOUR)
    other = hours("B", (*(0.9,) * 297, *(70.0,) * 3), times=1, jct_p50_s=0.9 * HOUR)
    told = said([base, other])
    assert told.verdict == "carried"
    # 225 of 522 h, and 210 of 477.3 h.
    assert (
        told.text
        == "3 of 300 jobs make 44 % of all JCT under B: the mean is theirs. With B the average job"
        " is done in 1.6 h, with A in 1.7 h; half of the jobs within 54 min and 1 h."
    )
    assert headline([base, other], goal="wait_mean_s").verdict == "clear"


def test_a_difference_that_hangs_on_one_gang_is_no_verdict() -> None:
    """100 jobs, of which one holds all GPUs for 30 h while the others come and wait; under B it
    goes last, at 31 h.
    """
    rows = [(0.0, 0.0, 30.0)] + [(0.3 * at, 30.0, 31.0) for at in range(1, 100)]
    quick = [(0.0, 31.0, 61.0)] + [(0.3 * at, 0.3 * at, 0.3 * at + 1.0) for at in range(1, 100)]
    made = []
    for label, jobs in (("A", rows), ("B", quick)):
        submit, start, finish = np.array(jobs).T * HOUR
        frame = pd.DataFrame(
            {
                "submit_s": submit,
                "first_start_s": start,
                "finish_s": finish,
                "held_s": finish - start,
                "gpus": [8] + [1] * 99,
            }
        )
        jct = float((finish - submit).mean())
        summary = {
            "jobs": 100,
            "impossible": 0,
            "end_s": finish.max(),
            "jct_mean_s": jct,
            "wait_mean_s": float((start - submit).mean()),
        }
        made.append(Outcome(label, (summary,), (frame.assign(outcome="completed"),)))
    found = headline(made, setting=Setting(cluster=Cluster.parse("1x8:v100")))
    assert found.verdict == "blocked"
    # 30 h and 31 h less 0.3 h for each job before; 61 h and 99 of 1 h.
    assert (
        found.text
        == "1 of 100 jobs, on half of the GPUs or more, runs during 100 % of all waiting under A:"
        " the difference hangs on it. With B the average job is done in 1.6 h, with A in"
        " 16.1 h."
    )
    assert [way.name for way in found.advice] == ["hint"]


# Against a recording.


def recorded(waits_h: float, jobs: int = 40) -> Trace:
    submit = np.arange(jobs) * 10.0
    frame = {
        "job_id": [str(at) for at in range(jobs)],
        "submit_time_s": submit,
        "num_gpus": 1,
        "duration_s": HOUR,
    }
    return Trace.of(pd.DataFrame({**frame, "start_time_s": submit + waits_h * HOUR}))


def test_nothing_is_credited_against_a_recording_that_nobody_has_explained() -> None:
    # First starts come after a quarter of the JCT: FIFO waits 2.5 h, the recording 5 h.
    history, fifo, other = (
        hours("history", (20.0,) * 4, replays=True),
        hours("FIFO", (10.0,) * 4),
        hours("B", (5.0,) * 4),
    )
    untested = said([history, other], trace=recorded(5.0))
    assert untested.verdict == "untested"
    assert untested.text.startswith(
        "No gain over history can be claimed: without FIFO or EASY backfilling nothing"
        " shows that the model"
    )
    assert [(way.name, way.command) for way in untested.advice] == [
        ("add_references", "--allocator fifo --allocator easy"),
        ("check_past", "python -m trainyard backtest"),
    ]
    unexplained = said([history, other, fifo], trace=recorded(5.0), references={"FIFO": 2})
    assert unexplained.verdict == "unexplained"
    assert unexplained.text == (
        "No gain over history can be claimed: the model does not explain the recording."
        " Simulated FIFO, the nearest, waits 2.5 h on average and the recording 5 h; half"
        " of the waits are off by 2.5 h or more."
    )
    assert [(way.name, way.value) for way in unexplained.advice if way.name != "hint"] == [
        ("change_baseline", 2)
    ]
    assert untested.withheld
    assert unexplained.withheld


def test_where_a_check_bars_the_recording_the_policy_that_was_checked_is_the_baseline() -> None:
    history, slurm, other = (
        hours("history", (20.0,) * 4, replays=True),
        hours("Slurm", (10.0,) * 4),
        hours("B", (5.0,) * 4),
    )
    past = Past("Slurm", "order", "Orders the waits but not their size.", math.nan, 1)
    told = said([history, slurm, other], trace=recorded(5.0), past=past, site="Slurm")
    assert told.verdict == "unexplained"
    assert told.withheld
    assert told.text == (
        "No gain over history can be claimed. Slurm, checked against the past, orders the waits but"
        " not their size. Simulated against simulated: With B the average job is done in 5 h"
        " instead of 10 h; no job gets slower."
    )
    assert [(way.name, way.value) for way in told.advice if way.name != "hint"] == [
        ("change_baseline", 1)
    ]
    # Alone, what was checked is compared with nothing.
    alone = said([history, slurm], trace=recorded(5.0), past=past, site="Slurm")
    assert "Simulated against" not in alone.text
    # A policy that reproduces the waits makes the recording a yardstick.
    sound = replace(past, level="most")
    assert said([history, other, slurm], trace=recorded(5.0), past=sound).verdict == "clear"


def test_a_recording_that_is_not_explained_is_said_before_an_idle_cluster() -> None:
    history, fifo, other = (
        hours("history", (20.0,) * 4, replays=True),
        outcome_of("FIFO", (10.0,) * 40),
        outcome_of("B", (9.9,) * 40),
    )
    told = said([history, fifo, other], trace=recorded(5.0), references={"FIFO": 1})
    assert told.verdict == "unexplained"
    assert len(told.also) == 1
    assert told.also[0].startswith(
        "There is nothing to schedule: jobs hardly wait under any policy. In the recording they"
        " wait 10 h"
    )
    assert (
        said([fifo, history, other], trace=recorded(5.0), references={"FIFO": 0}).verdict == "idle"
    )


def test_what_is_above_the_error_of_the_model_is_credited() -> None:
    history, fifo = hours("history", (11.0,) * 4, replays=True), hours("FIFO", (10.0,) * 4)
    known: dict[str, Any] = {"trace": recorded(2.6), "references": {"FIFO": 1}}
    assert said([history, fifo, hours("B", (5.0,) * 4)], **known).text.startswith(
        "With B the average job is done in 5 h instead of 11 h"
    )
    # FIFO itself is 9 % off, so another 9 % are nothing.
    alike = said([history, fifo, hours("B", (10.0,) * 4)], **known)
    assert alike.verdict == "undecided"
    assert alike.text.startswith(
        "No difference in the average time to finish beyond the error of the model: Simulated"
    )


def test_nothing_is_said_to_be_worse_than_a_recording_that_had_more_gpus() -> None:
    known: dict[str, Any] = {"trace": recorded(2.5), "references": {"FIFO": 1}}
    history, fifo = (
        replace(hours("history", (10.0,) * 4, replays=True), overflow=True),
        hours("FIFO", (10.0,) * 4),
    )
    slow = hours("A", (90.0,) * 4)
    assert said([history, fifo, slow], **known).verdict == "undecided"
    fits = replace(history, overflow=False)
    assert said([fits, fifo, slow], **known).text.startswith(
        "With A the average job is done in 3.8 days instead of 10 h"
    )


def test_it_is_plain_values_for_json() -> None:
    told = headline([hours("A", (10.0,) * 4), hours("B", (5.0,) * 4)], setting=Setting(load=67.2))
    document = json.loads(json.dumps(told.to_json(), allow_nan=False))
    assert list(document) == ["state", "reasons", "verdict", "text", "also", "advice", "load"]
    assert document["load"] == 67.2
    assert document["advice"][1] == {
        "name": "enough_gpus",
        "text": "Find enough GPUs",
        "command": "python -m trainyard plan",
    }
    assert headline([hours("A", (10.0,))]).to_json()["load"] is None


@pytest.mark.parametrize("goal", GOALS)
def test_no_sentence_says_best(goal: str) -> None:
    assert (
        "best"
        not in headline([hours("A", (10.0, 20.0) * 2), hours("B", (5.0,) * 4)], goal=goal).text
    )


def doubtful(*doubts: tuple[str, str]) -> Trace:
    jobs = {"job_id": ["1"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [1.0]}
    return Trace.of(pd.DataFrame(jobs), doubts=doubts)


PAIR = [hours("A", (10.0,) * 4), hours("B", (6.0,) * 4)]


def test_a_sound_comparison_says_so() -> None:
    found = said(PAIR, trace=doubtful())
    assert (found.state, found.reasons) == ("sound", ())
    assert found.to_json()["state"] == "sound"


def test_a_doubt_about_the_trace_stands_behind_the_claim() -> None:
    cut = "9 jobs have exactly the longest duration, 172,800 s: they were cut there in the source."
    found = said(PAIR, trace=doubtful(("cut", cut), ("left", "More.")))
    assert found.text.startswith("With B the average job is done in 6 h instead of 10 h; ")
    assert found.text.endswith(f". But of the trace this is in doubt: {cut}")
    assert (found.verdict, found.state, found.reasons) == ("clear", "doubtful", (cut, "More."))
    assert found.also == ("More.",)


def test_a_trace_whose_unit_is_in_doubt_is_not_compared() -> None:
    for key in ("span", "thousand", "work"):
        found = said(PAIR, trace=doubtful(("cut", "Cut."), (key, "Are they milliseconds?")))
        assert found.withheld
        assert found.text == (
            "No comparison: it is open whether the trace is read right. Are they milliseconds?"
        )
        assert "%" not in found.text
        assert found.state == "not meaningful"
        assert found.to_json()["reasons"] == [found.text]


def test_jobs_most_of_which_fit_nowhere_are_not_compared() -> None:
    def fitting(one: Outcome, share: float) -> Outcome:
        (jobs,) = one.jobs
        odd = jobs["outcome"].astype("str").where(np.arange(len(jobs)) >= share * len(jobs))
        return replace(one, jobs=(jobs.assign(outcome=odd.fillna("impossible")),))

    found = said([fitting(one, 0.6) for one in PAIR])
    assert found.text == "No comparison: 60 % of the jobs fit nowhere on this cluster."
    assert said([fitting(one, 0.5) for one in PAIR]).verdict != "doubted"


def test_a_limited_headline_is_doubtful_and_no_difference_at_all_is_sound() -> None:
    assert said(PAIR, random=True).state == "doubtful"
    assert said([PAIR[0], hours("C", (10.0,) * 4)]).state == "sound"


def test_a_doubt_about_the_cluster_stands_behind_the_claim() -> None:
    found = said(PAIR, doubts={"fits": "9 jobs fit nowhere.", "concurrency": "It used more."})
    assert found.text.endswith(". But of the cluster this is in doubt: 9 jobs fit nowhere.")
    # What the recording used concerns who is compared with it only.
    assert (found.state, found.reasons) == ("doubtful", ("9 jobs fit nowhere.",))
    history = hours("history", (11.0,) * 4, replays=True)
    told = said([history, *PAIR], doubts={"concurrency": "It used more."})
    assert told.reasons[1:] == ("It used more.",)


def test_a_recording_whose_jobs_waited_while_gpus_were_free_is_not_compared() -> None:
    history, fifo, other = (
        replace(one, jobs=tuple(frame.assign(gpus=1) for frame in one.jobs))
        for one in (
            hours("history", (20.0,) * 4, replays=True),
            hours("FIFO", (10.0,) * 4),
            hours("B", (5.0,) * 4),
        )
    )

    def told(waits_h: float, cluster: str = "1x8:v100") -> Headline:
        known: dict[str, Any] = {"trace": recorded(waits_h), "references": {"FIFO": 1}}
        return said([history, fifo, other], cluster=Cluster.parse(cluster), **known)

    # Each of 40 waits for 5 h, and half of that under FIFO. The last 32 find all GPUs taken when
    # they were about to start: 5,280 of 720,000 s.
    found = told(5.0)
    assert found.text == (
        "Most recorded waits happened while GPUs were free (99 %): quotas, holds or missing jobs,"
        " not the policy. The recording is shown, not compared."
    )
    assert (found.verdict, found.state) == ("unexplained", "not meaningful")
    assert found.advice[0].name == "change_baseline"
    # Where FIFO explains the recording, it waits beside free GPUs as FIFO does.
    assert told(2.6).verdict != "unexplained"


@pytest.mark.parametrize(
    ("load", "state", "verdict"),
    [
        (1.0, "sound", "clear"),
        (1.001, "doubtful", "loaded"),
        (1.2, "doubtful", "loaded"),
        (1.201, "not meaningful", "overload"),
        (1.5, "not meaningful", "overload"),
    ],
)
def test_limits_of_the_load(load: float, state: str, verdict: str) -> None:
    outcomes = [hours("A", (10.0,) * 4), hours("B", (5.0,) * 4)]
    told = headline(outcomes, setting=Setting(load=load))
    assert (told.state, told.verdict) == (state, verdict)


def test_beyond_the_limit_a_quarter_of_equal_jobs_would_wait_at_the_end() -> None:
    # What is left undone at a load, whatever the policy: see decision 0019.
    left = {load: 1 - 1 / load for load in (meaning.OVERLOAD, 1.5)}
    assert left[meaning.OVERLOAD] < meaning.WAITING < left[1.5]
