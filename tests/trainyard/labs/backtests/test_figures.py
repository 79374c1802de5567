"""Figures of a check against the past, by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.trace import Trace
from trainyard.labs.backtests import figures
from trainyard.labs.backtests.record import RecordedJobs, job_groups, record_faults, split_record

HOUR_S, DAY_S = 3600.0, 86_400.0


def record(jobs: int = 300, days: float = 10.0, **changed: object) -> Trace:
    """Jobs of 1 GPU at equal distances, each of which waited for a minute and ran for ten."""
    at_s = np.linspace(0.0, days * DAY_S, jobs)
    columns = {
        "job_id": [str(at) for at in range(jobs)],
        "submit_time_s": at_s,
        "num_gpus": 1,
        "duration_s": 600.0,
        "start_time_s": at_s + 60.0,
    }
    return Trace.of(pd.DataFrame({**columns, **changed}))


def test_measures_of_five_jobs() -> None:
    truth = np.array([0.0, 100.0, 200.0, 1000.0, 2000.0])
    found = np.array([0.0, 200.0, 100.0, 2000.0, np.nan])
    one = figures.measure(found, truth, 100.0)
    # Of the four known ones: errors 0, 100, 100, 1000.
    assert one.jobs == 4
    assert one.bias_s == 575.0 - 325.0
    assert one.bias == pytest.approx(250 / 325)
    assert one.error_s == 100.0
    assert one.p90_s == pytest.approx(730.0)
    assert one.within == one.within_relative == 0.75
    assert one.rank == pytest.approx(0.8)
    assert one.distance == 0.25
    # Deviations from 100: 100, 0, 100, 900.
    assert one.explained == 0.0
    assert figures.measure(truth, truth, 100.0).explained == 1.0
    assert math.isnan(figures.measure(truth, truth).explained)
    assert math.isnan(figures.measure(np.zeros(3), np.array([1.0, 2.0, 3.0])).rank)


def test_within_a_fifth_of_a_long_wait() -> None:
    one = figures.measure(np.array([11_000.0, 1000.0]), np.array([10_000.0, 100.0]))
    assert (one.within, one.within_relative) == (0.0, 0.5)


def test_the_floor_has_no_sign_and_one_run_has_none() -> None:
    chosen = np.ones(2, np.bool_)
    waits = [np.array([10.0, 20.0]), np.array([0.0, 20.0]), np.array([10.0, 20.0])]
    found = figures.repeat_floor(waits, chosen)
    assert found is not None
    assert (found.error_s, found.bias_s) == (5.0, 5.0)
    assert figures.repeat_floor(waits[:1], chosen) is None


def test_medians_of_six_hours() -> None:
    trace = record(4, 0.5)  # every four hours: 0, 4 | 8, 12
    made = RecordedJobs.from_trace(trace)
    waits = [np.array([0.0, 60.0, 60.0, 120.0]), np.array([60.0, 60.0, 60.0, 120.0])]
    found = figures.binned_medians(made, waits, made.started)
    assert found["from_s"].tolist() == [0.0, 6 * HOUR_S, 12 * HOUR_S]
    assert found["jobs"].tolist() == [2, 1, 1]
    assert found["recorded_s"].tolist() == [60.0, 60.0, 60.0]
    assert found["simulated_s"].tolist() == [45.0, 60.0, 120.0]
    assert found["low_s"].tolist() == [30.0, 60.0, 120.0]


def test_what_a_look_at_the_last_week_says() -> None:
    start_s = np.array([0.0, 30.0, 1e6 + 3000.0])
    submit_s = np.array([0.0, 10.0, 1e6])
    made = RecordedJobs.from_trace(
        Trace.of(
            pd.DataFrame(
                {
                    "job_id": ["a", "b", "c"],
                    "submit_time_s": submit_s,
                    "num_gpus": 1,
                    "duration_s": 1.0,
                    "start_time_s": start_s,
                }
            )
        )
    )
    # Nothing before the first ones, and nothing in the eleven days before the last.
    assert np.isnan(figures.last_week_medians(made)).all()
    near = RecordedJobs.from_trace(record(48, 2.0))
    assert figures.last_week_medians(near)[-1] == pytest.approx(60.0)


def test_a_split_goes_by_time() -> None:
    made = RecordedJobs.from_trace(record(days=10.0))
    parts = split_record(made, 0.0)
    assert (parts.warm_s, parts.judge_s) == (DAY_S, 5 * DAY_S)
    assert split_record(made, 2 * DAY_S).warm_s == 2 * DAY_S
    assert split_record(RecordedJobs.from_trace(record(days=30.0)), 0.0).judge_s == 23 * DAY_S
    assert split_record(made, 0.0, 0.0, DAY_S).judge_s == 9 * DAY_S
    fitted, judged = parts.fitted_mask(made), parts.judged_mask(made)
    assert not (fitted & judged).any()
    assert (made.submit_s[judged] >= 5 * DAY_S).all()
    assert parts.unjudged_mask(made).sum() == (~judged).sum() > fitted.sum()


CLUSTER = Cluster.parse("1x8:v100")


def test_a_good_record_has_no_fault() -> None:
    assert record_faults(record(), CLUSTER) == ()


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        (record(start_time_s=np.nan), "no recorded start times"),
        (record(199), "Only 199 jobs have a recorded start. Needed: at least 200"),
        (record(days=2.5), "spans 2.5 days. Needed: at least 3 days"),
        (
            record(start_time_s=[np.nan] * 90 + [1e7] * 210, duration_s=1.0),
            "30 % of the jobs have no recorded start",
        ),
        (
            record(start_time_s=np.linspace(0, 10 * DAY_S, 300) - 1.0),
            "300 jobs started before their submission",
        ),
        (record(duration_s=DAY_S), "uses more than the cluster has: up to 30 GPUs of 8"),
    ],
)
def test_why_a_record_is_no_yardstick(trace: Trace, told: str) -> None:
    assert any(told in one for one in record_faults(trace, CLUSTER))


def test_a_record_opens_with_its_first_end_if_jobs_were_there() -> None:
    assert RecordedJobs.from_trace(record()).opens_s == 0.0
    loaded = record(300, 10.0, duration_s=[3 * DAY_S] * 100 + [600.0] * 200)
    made = RecordedJobs.from_trace(loaded)
    assert made.opens_s == 60.0 + 3 * DAY_S


def test_groups_and_cores() -> None:
    trace = record(
        4, num_gpus=0, cpus=[1.0, 4.0, 4.0, 32.0], partition=["a", "b", "a", "a"], duration_s=1.0
    )
    made = RecordedJobs.from_trace(trace)
    assert made.unit == "cores"
    assert [
        (kind, name, int(found.sum())) for kind, name, found in job_groups(made, made.started)
    ] == [
        ("Partition", "a", 3),
        ("Partition", "b", 1),
        ("Size", "1", 1),
        ("Size", "2-4", 2),
        ("Size", ">16", 1),
    ]
