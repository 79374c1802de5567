"""Comparisons worked out by hand, by name, and the headline of each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.trace import Trace
from tests.sim.metrics.metrics_cases import Job, run_of
from tests.trainyard.results.test_compare import outcome_of
from trainyard.results.backtest_verdict import Past
from trainyard.results.compare import Outcome
from trainyard.results.headline import GOALS, Headline, headline, headlines
from trainyard.results.validity import ComparisonSetting

HOUR: Final = 3600.0
NAN: Final = float("nan")
EACH: Final = (10.0,) * 4
_AMOUNT: Final = r"[−+]?(?<![A-Za-z\d.])\d+(?:[.,:]\d+)*(?: (?:%|(?:h|min|s|days|times)\b))?"
FIFO_EXPLAINS: Final[dict[str, Any]] = {"references": {"FIFO": 1}}


def amounts(text: str) -> str:
    """Return all numbers of a text with their units, but not those within a name such as V100."""
    return ", ".join(re.findall(_AMOUNT, text))


def hours(
    label: str, *repeats: tuple[float, ...], times: int = 10, replays: bool = False, **summary: Any
) -> Outcome:
    """Return an outcome with each JCT (hours) repeated, days apart; half of each is waiting."""
    long = [tuple(HOUR * one for one in jct) * times for jct in repeats]
    made = outcome_of(label, *long, replays=replays, **summary)
    return replace(made, jobs=tuple(_apart(frame) for frame in made.jobs))


def _apart(frame: pd.DataFrame) -> pd.DataFrame:
    instants = ["submit_s", "first_start_s", "finish_s"]
    return frame.assign(**frame[instants].add(100 * HOUR * np.arange(len(frame)), axis=0))


def repeated(label: str, *means: float) -> Outcome:
    """Return an outcome with one repeat per mean, of 40 equal jobs each."""
    return hours(label, *[(one,) * 4 for one in means])


def recorded(waits_h: float, jobs: int = 40) -> Trace:
    """Return a trace whose jobs all waited this long in the recorded schedule."""
    submit = np.arange(jobs) * 10.0
    frame = {
        "job_id": [str(at) for at in range(jobs)],
        "submit_time_s": submit,
        "num_gpus": 1,
        "duration_s": HOUR,
    }
    return Trace.of(pd.DataFrame({**frame, "start_time_s": submit + waits_h * HOUR}))


def doubtful(*doubts: tuple[str, str]) -> Trace:
    """Return a trace of one job with doubts: (key, sentence)."""
    jobs = {"job_id": ["1"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [1.0]}
    return Trace.of(pd.DataFrame(jobs), doubts=doubts)


def headline_of(*outcomes: Outcome, **setting: Any) -> Headline:
    """Return the headline at a load of 0.8 unless the setting has another."""
    return headline(outcomes, setting=replace(ComparisonSetting(load=0.8), **setting))


def by_goal(*outcomes: Outcome) -> Mapping[str, Headline]:
    """Return the first headline for every goal."""
    return headlines(outcomes, goals=tuple(GOALS), setting=ComparisonSetting(load=0.8)).first


def one_gang_blocks() -> Headline:
    """Of 100 jobs one holds all GPUs for 30 h while the others come; under B it goes last."""
    slow = [(0.0, 0.0, 30.0)] + [(0.3 * at, 30.0, 31.0) for at in range(1, 100)]
    quick = [(0.0, 31.0, 61.0)] + [(0.3 * at, 0.3 * at, 0.3 * at + 1.0) for at in range(1, 100)]
    made = []
    for label, jobs in (("A", slow), ("B", quick)):
        submit, start, finish = np.array(jobs).T * HOUR
        rows = [Job(*one) for one in zip(submit, [8] + [1] * 99, start, finish, strict=True)]
        frame = run_of(rows, [], finish.max()).jobs.assign(held_s=finish - start)
        summary = {
            "jobs": 100,
            "impossible": 0,
            "end_s": finish.max(),
            "jct_mean_s": float((finish - submit).mean()),
            "wait_mean_s": float((start - submit).mean()),
        }
        made.append(Outcome(label, (summary,), (frame,)))
    return headline(made, setting=ComparisonSetting(cluster=Cluster.parse("1x8:v100")))


def fit_nowhere(outcome: Outcome, share: float) -> Outcome:
    """Return an outcome in which a share of the jobs fits nowhere."""
    (jobs,) = outcome.jobs
    odd = jobs["outcome"].astype("str").where(np.arange(len(jobs)) >= share * len(jobs))
    return replace(outcome, jobs=(jobs.assign(outcome=odd.fillna("impossible")),))


def waited_beside_free_gpus(waits_h: float) -> Headline:
    """Jobs of one GPU on a node of 8: the first 8 of the recording waited beside free GPUs."""
    policies = (RECORDING, FIFO, B)
    outcomes = [
        replace(one, jobs=tuple(frame.assign(gpus=1) for frame in one.jobs)) for one in policies
    ]
    known = {"trace": recorded(waits_h), "cluster": Cluster.parse("1x8:v100")}
    return headline_of(*outcomes, **known, **FIFO_EXPLAINS)


A: Final = hours("A", EACH)
B: Final = hours("B", (5.0,) * 4)
FIFO: Final = hours("FIFO", EACH)
RECORDING: Final = hours("history", (20.0,) * 4, replays=True)
NEAR_RECORDING: Final = hours("history", (11.0,) * 4, replays=True)
LARGE_RECORDING: Final = replace(hours("history", EACH, replays=True), overflow=True)
SLURM: Final = hours("Slurm", EACH)
PAST: Final = Past("Slurm", "order", "Orders the waits but not their size.", math.nan, 1)
HUNDRED: Final = hours("A", (10.0,) * 100, times=1)
CUT: Final = "9 jobs have exactly the longest duration, 172,800 s: the source cut them off there."
NOTHING: Final = (NAN, NAN)
SHORT: Final = (outcome_of("A", (10.0,) * 40), outcome_of("B", (9.9,) * 40))
GIVEN_UP: Final = (
    hours("A", (10.0, 10.0), times=20, makespan_s=100.0),
    hours("B", (10.0, NAN), times=20, makespan_s=50.0),
)
FEW_LONG: Final = (
    hours("A", (*(1.0,) * 297, *(75.0,) * 3), times=1, jct_p50_s=HOUR),
    hours("B", (*(0.9,) * 297, *(70.0,) * 3), times=1, jct_p50_s=0.9 * HOUR),
)
OTHER_GOAL: Final = (
    hours("A", EACH, makespan_s=100.0),
    hours("B", (12.0,) * 4, makespan_s=80.0),
)

SITUATIONS: Final[Mapping[str, Callable[[], Headline]]] = {
    "faster": lambda: headline_of(A, hours("B", (5.9, 6.1, 6.0, 5.6))),
    "faster, a quarter of jobs slower": lambda: headline_of(A, hours("B", (5.0, 5.0, 5.0, 11.0))),
    "two faster": lambda: headline_of(A, hours("B", (9.0,) * 4), hours("C", (8.0,) * 4)),
    "slower, a quarter of jobs faster": lambda: headline_of(
        A, hours("B", (20.0, 20.0, 20.0, 5.0)), hours("C", (11.0,) * 4)
    ),
    "one faster, one slower": lambda: headline_of(
        A, hours("B", (30.0,) * 4), hours("C", (9.0,) * 4)
    ),
    "days instead of hours": lambda: headline_of(A, hours("B", (1000.0,) * 4)),
    "slower by over 2 %": lambda: headline_of(A, hours("B", (5.0, 5.0, 10.1, 10.3))),
    "almost alike": lambda: headline_of(A, hours("B", (9.9, 10.0, 9.9, 9.7))),
    "written alike": lambda: headline_of(hours("A", (0.4555,) * 4), hours("B", (0.4503,) * 4)),
    "with an interval": lambda: headline_of(
        repeated("A", 10.0, 10.0, 10.0, 10.0), repeated("B", 3.2, 3.4, 3.6, 3.4)
    ),
    # Means of 9.97 and 9.98 h: a clear difference from 10.02 h, but all are written "10.0 h".
    "an interval within rounding": lambda: headline_of(
        repeated("A", 10.02, 10.02, 10.02, 10.02), repeated("B", 9.97, 9.98, 9.97, 9.98)
    ),
    "a narrow interval": lambda: headline_of(
        repeated("A", 12.0, 12.0, 12.0, 12.0), repeated("B", 9.97, 9.98, 9.97, 9.98)
    ),
    "exact beside rounded": lambda: headline_of(
        repeated("A", 10.0, 10.0, 10.0, 10.0), repeated("B", 9.97, 9.98, 9.97, 9.98)
    ),
    "no clear difference": lambda: headline_of(A, hours("B", (10.01, 10.0, 10.0, 10.0))),
    "another goal": lambda: by_goal(*OTHER_GOAL)["makespan_s"],
    "worse by the first goal": lambda: by_goal(*OTHER_GOAL)["jct_mean_s"],
    "makespan 4 % longer": lambda: headline_of(
        hours("A", EACH, makespan_s=100.0), hours("B", (5.0,) * 4, makespan_s=104.0)
    ),
    "makespan 6 % longer": lambda: headline_of(
        hours("A", EACH, makespan_s=100.0), hours("B", (5.0,) * 4, makespan_s=106.0)
    ),
    "no job completed": lambda: headline_of(*[outcome_of(label, NOTHING) for label in "AB"]),
    "no job completed under the only policy": lambda: headline_of(outcome_of("A", NOTHING)),
    "no job fits": lambda: headline_of(
        *[outcome_of(label, NOTHING, impossible=2, unfinished=0) for label in "AB"]
    ),
    "no job completed under one policy": lambda: headline_of(A, hours("B", (NAN,) * 4)),
    "one job not completed": lambda: headline_of(HUNDRED, hours("B", (*(5.0,) * 99, NAN), times=1)),
    "three jobs not completed": lambda: headline_of(
        HUNDRED, hours("B", (*(5.0,) * 97, *(NAN,) * 3), times=1)
    ),
    "three jobs not completed, by makespan": lambda: headline(
        [
            hours("A", (10.0,) * 100, times=1, makespan_s=100.0),
            hours("B", (*(5.0,) * 97, *(NAN,) * 3), times=1, makespan_s=50.0),
        ],
        goal="makespan_s",
    ),
    "three jobs not completed under another policy": lambda: headline_of(
        HUNDRED,
        hours("B", (5.0,) * 100, times=1),
        hours("C", (*(20.0,) * 97, *(NAN,) * 3), times=1),
    ),
    "half of the jobs given up": lambda: headline(GIVEN_UP, goal="makespan_s"),
    "only the baseline is complete": lambda: headline([A], missing=3),
    "only the baseline and the recording are complete": lambda: headline([A, RECORDING], missing=2),
    "one policy is missing": lambda: headline([A, B], missing=1),
    "one policy alone": lambda: headline([A]),
    "beside the recording only": lambda: headline_of(A, RECORDING),
    "overload": lambda: headline(
        [A, B], setting=ComparisonSetting(load=67.2, scale=2.0, random=True)
    ),
    "load above 1": lambda: headline([A, B], setting=ComparisonSetting(load=1.15)),
    "idle": lambda: headline(SHORT, setting=ComparisonSetting(load=0.1)),
    "two jobs": lambda: headline_of(
        hours("A", (10.0, 20.0), times=1), hours("B", (4.0, 8.0), times=1)
    ),
    "one draw": lambda: headline_of(A, B, random=True),
    "order changes with the seed": lambda: headline_of(
        repeated("A", 10.0, 20.0, 40.0, 80.0), repeated("C", 20.0, 10.0, 40.0, 60.0)
    ),
    "order of two better policies changes": lambda: headline_of(
        repeated("A", *[10.0] * 5),
        repeated("B", 5.0, 5.0, 5.0, 6.0, 6.0),
        repeated("C", 6.0, 6.0, 6.0, 5.0, 5.0),
    ),
    "better in one repeat": lambda: headline_of(
        repeated("A", 10.0, 20.0, 40.0, 80.0), repeated("C", 10.05, 20.1, 40.2, 79.0)
    ),
    "equal in all repeats but one": lambda: headline_of(
        repeated("A", *[10.0] * 4), repeated("C", 10.0, 10.0, 10.0, 9.0)
    ),
    "equal in all repeats but a slower one": lambda: headline_of(
        repeated("A", *[10.0] * 4), repeated("C", 10.0, 10.0, 10.0, 11.0)
    ),
    "carried by three jobs": lambda: headline_of(*FEW_LONG),
    "one gang blocks all others": one_gang_blocks,
    "recording without references": lambda: headline_of(RECORDING, B, trace=recorded(5.0)),
    "recording not explained": lambda: headline_of(
        RECORDING, B, FIFO, trace=recorded(5.0), references={"FIFO": 2}
    ),
    "recording not explained by the backtest": lambda: headline_of(
        RECORDING, SLURM, B, trace=recorded(5.0), past=PAST, site="Slurm"
    ),
    "recording explained by the backtest": lambda: headline_of(
        RECORDING, B, SLURM, trace=recorded(5.0), past=replace(PAST, level="most")
    ),
    "recording and the policy of its backtest": lambda: headline_of(
        RECORDING, SLURM, trace=recorded(5.0), past=PAST, site="Slurm"
    ),
    "recording not explained, idle cluster": lambda: headline_of(
        RECORDING,
        replace(SHORT[0], label="FIFO"),
        SHORT[1],
        trace=recorded(5.0),
        **FIFO_EXPLAINS,
    ),
    "above the error of the model": lambda: headline_of(
        NEAR_RECORDING, FIFO, B, trace=recorded(2.6), **FIFO_EXPLAINS
    ),
    "within the error of the model": lambda: headline_of(
        NEAR_RECORDING, FIFO, hours("B", EACH), trace=recorded(2.6), **FIFO_EXPLAINS
    ),
    "recording on more GPUs": lambda: headline_of(
        LARGE_RECORDING, FIFO, hours("A", (90.0,) * 4), trace=recorded(2.5), **FIFO_EXPLAINS
    ),
    "recording on as many GPUs": lambda: headline_of(
        replace(LARGE_RECORDING, overflow=False),
        FIFO,
        hours("A", (90.0,) * 4),
        trace=recorded(2.5),
        **FIFO_EXPLAINS,
    ),
    "recorded waits beside free GPUs": lambda: waited_beside_free_gpus(5.0),
    "recorded waits beside free GPUs, explained": lambda: waited_beside_free_gpus(2.6),
    "sound": lambda: headline_of(A, hours("B", (6.0,) * 4), trace=doubtful()),
    "doubts about the trace": lambda: headline_of(
        A, hours("B", (6.0,) * 4), trace=doubtful(("cut", CUT), ("left", "More."))
    ),
    "doubts about the unit": lambda: headline_of(
        A, B, trace=doubtful(("cut", "Cut."), ("span", "Are they milliseconds?"))
    ),
    "doubts about the cluster": lambda: headline_of(
        A, B, doubts={"fits": "9 jobs fit nowhere.", "concurrency": "It used more."}
    ),
    "doubts about the cluster of the recording": lambda: headline_of(
        NEAR_RECORDING, A, B, doubts={"concurrency": "It used more."}
    ),
    "most jobs fit nowhere": lambda: headline_of(fit_nowhere(A, 0.6), fit_nowhere(B, 0.6)),
    "half of the jobs fit nowhere": lambda: headline_of(fit_nowhere(A, 0.5), fit_nowhere(B, 0.5)),
}


@cache
def headline_in(situation: str) -> Headline:
    """Return the headline of a named situation."""
    return SITUATIONS[situation]()


def sentences(situation: str) -> list[str]:
    """Return all sentences of a situation: headline, other limits, reasons and advice."""
    told = headline_in(situation)
    reasons = [one for one in told.reasons if one not in (told.text, *told.also)]
    advice = [f"[{way.name}] {way.text}" for way in told.advice]
    return [told.text, *told.also, *reasons, *advice]
