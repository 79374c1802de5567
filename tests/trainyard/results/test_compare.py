from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from tests.sim.metrics.metrics_cases import Job, run_of
from trainyard.results.compare import (
    Outcome,
    common_values,
    completion_changes,
    counts,
    pair_jobs,
    percent,
    repeats_suffix,
    table,
    uncommon_jobs_note,
)


def jobs_of(*jct: float) -> pd.DataFrame:
    """Jobs submitted at 0, 10, 20, ...; a quarter of the time until the first start, half of it
    running; NaN = unfinished. The frame has every column of the record.
    """
    jobs = [
        Job(10.0 * at, 1, 10.0 * at + jct_s / 4, 10.0 * at + jct_s, outcome)
        for at, jct_s in enumerate(jct)
        for outcome in ["unfinished" if math.isnan(jct_s) else "completed"]
    ]
    return run_of(jobs, [], math.nan).jobs.assign(held_s=np.array(jct) / 2)


def outcome_of(
    label: str, *repeats: tuple[float, ...], replays: bool = False, **summary: float
) -> Outcome:
    numbers = []
    for jct in repeats:
        done = np.isfinite(jct)
        counted: dict[str, object] = {
            "jobs": len(jct),
            "completed": int(done.sum()),
            "unfinished": int((~done).sum()),
            "failed": 0,
            "impossible": 0,
            "refused": 0,
        }
        mean = {"jct_mean_s": float(np.nanmean(jct)) if done.any() else None}
        numbers.append(dict.fromkeys(COLUMNS, 1.0) | counted | mean | summary)
    return Outcome(label, tuple(numbers), tuple(jobs_of(*jct) for jct in repeats), replays)


def test_pairs_only_jobs_completed_under_both_and_counts_the_others() -> None:
    nan = float("nan")
    pair = pair_jobs(
        outcome_of("A", (10.0, 20.0, 30.0, nan, 5.0)),
        outcome_of("B", (5.0, 40.0, nan, 7.0, 5.0005)),
    )
    # Jobs 0, 1 and 4: 35 s before, 50.0005... s after. Job 2 completes under A only, job 3 under B
    # only.
    assert (pair.both, pair.only_base, pair.only_other) == (3, 1, 1)
    assert pair.change.value == pytest.approx(50.0005 / 35 - 1)
    assert pair.slower == pair.faster == pytest.approx(1 / 3)
    assert list(pair.before_s) == [10.0, 20.0, 5.0]


def test_means_of_common_jobs_are_taken_where_either_policy_completes_more() -> None:
    few, more = outcome_of("A", (10.0, 20.0, math.nan)), outcome_of("B", (5.0, 10.0, 60.0))
    assert common_values(few, more, "jct_mean_s") == (15.0, 7.5)
    assert common_values(more, few, "jct_mean_s") == (7.5, 15.0)
    assert common_values(more, more, "jct_mean_s") is None
    assert common_values(few, more, "makespan_s") is None


def test_one_run_has_no_interval() -> None:
    pair = pair_jobs(outcome_of("A", (10.0, 20.0)), outcome_of("B", (5.0, 10.0)))
    assert (pair.change.value, pair.change.low, pair.change.high) == (-0.5, None, None)


def test_repeats_that_do_not_differ_have_no_interval() -> None:
    pair = pair_jobs(outcome_of("A", *[(10.0, 20.0)] * 5), outcome_of("B", *[(5.0, 10.0)] * 5))
    assert pair.change.low is None


def test_interval_comes_from_resampled_pairs_of_seeds() -> None:
    base = outcome_of("A", (10.0,), (20.0,), (40.0,), (80.0,))
    half = outcome_of("B", (5.0,), (10.0,), (20.0,), (40.0,))
    # The same half on every seed: pairing leaves no spread at all, though the seeds differ
    # eightfold.
    assert pair_jobs(base, half).change.low == pair_jobs(base, half).change.high == -0.5
    mixed = outcome_of("C", (20.0,), (10.0,), (80.0,), (40.0,))
    change = pair_jobs(base, mixed).change
    assert change.low is not None
    assert change.high is not None
    assert change.low < change.value == 0.0 < change.high
    assert not change.clear


def test_different_jobs_cannot_be_compared() -> None:
    with pytest.raises(ParameterError, match="not run on the same jobs"):
        pair_jobs(outcome_of("A", (1.0,)), outcome_of("B", (1.0, 2.0)))
    with pytest.raises(ParameterError, match="not run on the same jobs"):
        pair_jobs(outcome_of("A", (1.0,)), outcome_of("B", (1.0,), (2.0,)))


def value(frame: pd.DataFrame, label: str, metric: str, column: str) -> object:
    return frame[(frame["label"] == label) & (frame["metric"] == metric)][column].iloc[0]


def test_best_and_verdict_follow_the_direction_of_the_metric() -> None:
    a, b = (
        outcome_of("A", (10.0, 20.0), utilisation=0.5),
        outcome_of("B", (5.0, 10.0), utilisation=0.8),
    )
    frame = table([a, b])
    assert value(frame, "B", "jct_mean_s", "best")
    assert not value(frame, "A", "jct_mean_s", "best")
    assert value(frame, "B", "jct_mean_s", "verdict") == "better"
    assert value(frame, "B", "utilisation", "best")
    assert value(frame, "B", "utilisation", "change") == pytest.approx(0.6)
    swapped = table([a, b], baseline=1)
    assert value(swapped, "A", "jct_mean_s", "verdict") == "worse"
    # Fewer busy GPUs are no fault of a policy, and more are no merit.
    assert value(frame, "B", "utilisation", "verdict") == ""
    assert value(swapped, "A", "utilisation", "verdict") == ""
    assert value(swapped, "B", "jct_mean_s", "baseline")


PER_JOB = (
    "jct_mean_s",
    "jct_p50_s",
    "jct_p95_s",
    "jct_p99_s",
    "queue_mean_s",
    "queue_p95_s",
    "wait_mean_s",
    "cost_held_per_job_usd",
)


def test_no_policy_wins_by_dropping_jobs() -> None:
    nan = float("nan")
    a = replace(outcome_of("A", (10.0, 1000.0)), costs_usd=lambda _: np.array([1.0, 100.0]))
    b = replace(
        outcome_of("B", (20.0, nan), makespan_s=0.1), costs_usd=lambda _: np.array([2.0, 0.5])
    )
    frame = table([a, b])
    assert value(frame, "A", "jct_mean_s", "value") == 505.0
    assert value(frame, "B", "jct_mean_s", "value") == 20.0
    for metric in PER_JOB:
        assert value(frame, "B", metric, "change") == pytest.approx(1.0), metric
        assert value(frame, "B", metric, "verdict") == "worse", metric
    # A shorter makespan, because one job was not run, is no merit.
    assert value(frame, "B", "makespan_s", "change") == pytest.approx(-0.9)
    assert value(frame, "B", "makespan_s", "verdict") == ""
    assert not frame[frame["label"] == "B"]["best"].any()
    said = uncommon_jobs_note([a, b])
    assert said.startswith(
        "1 job not completed under B; differences use the jobs that both completed."
    )
    assert uncommon_jobs_note([a, b], baseline=1).startswith(
        "1 job not completed under B but under A;"
    )
    assert uncommon_jobs_note([a, a]) == ""
    swapped = table([a, b], baseline=1)
    assert value(swapped, "A", "jct_mean_s", "change") == pytest.approx(-0.5)
    assert value(swapped, "A", "jct_mean_s", "verdict") == "better"


def test_best_is_sought_among_those_that_complete_most() -> None:
    nan = float("nan")
    frame = table(
        [outcome_of("A", (10.0, 30.0)), outcome_of("B", (8.0, 20.0)), outcome_of("C", (1.0, nan))]
    )
    assert frame[(frame["metric"] == "jct_mean_s") & frame["best"]]["label"].tolist() == ["B"]


def test_percentiles_are_paired_too() -> None:
    nan = float("nan")
    long = outcome_of("A", (10.0, 20.0, 30.0, 5000.0))
    short = outcome_of("B", (15.0, 30.0, 45.0, nan))
    assert value(table([long, short]), "B", "jct_p95_s", "change") == pytest.approx(0.5)


def test_nothing_in_common_means_no_change() -> None:
    nan = float("nan")
    frame = table([outcome_of("A", (10.0, nan)), outcome_of("B", (nan, 10.0))])
    for metric in PER_JOB:
        assert np.isnan(value(frame, "B", metric, "change")), metric  # type: ignore[call-overload]


def test_changes_of_the_table_are_those_of_the_headline() -> None:
    nan = float("nan")
    a, b = (
        outcome_of("A", (10.0, 20.0), (40.0, nan), (5.0, 7.0)),
        outcome_of("B", (5.0, nan), (20.0, 3.0), (9.0, 9.0)),
    )
    change = pair_jobs(a, b).change
    assert value(table([a, b]), "B", "jct_mean_s", "change") == change.value
    assert value(table([a, b]), "B", "jct_mean_s", "low") == change.low


def test_cost_per_job_needs_no_single_costs_where_the_same_jobs_were_completed() -> None:
    def never(_: int) -> np.ndarray:
        raise AssertionError("the cost of single jobs was asked for")

    a = replace(outcome_of("A", (10.0, 20.0), cost_held_per_job_usd=2.0), costs_usd=never)
    b = replace(outcome_of("B", (5.0, 10.0), cost_held_per_job_usd=1.0), costs_usd=never)
    assert value(table([a, b]), "B", "cost_held_per_job_usd", "change") == -0.5


def test_only_jobs_of_the_measured_window_are_compared() -> None:
    counted = (np.array([True, True, False]),)
    a, b = (
        replace(outcome_of(label, jct), measured=counted)
        for label, jct in (("A", (10.0, 10.0, 1.0)), ("B", (20.0, 20.0, 900.0)))
    )
    assert pair_jobs(a, b).both == 2
    assert value(table([a, b]), "B", "jct_mean_s", "change") == pytest.approx(1.0)


def test_a_recording_on_more_gpus_than_there_are_is_never_better() -> None:
    a = outcome_of("A", (10.0, 20.0), utilisation=0.5)
    history = replace(
        outcome_of("history", (5.0, 10.0), replays=True, utilisation=0.9), overflow=True
    )
    frame = table([a, history])
    assert value(frame, "history", "jct_mean_s", "change") == pytest.approx(-0.5)
    assert "better" not in set(frame[frame["label"] == "history"]["verdict"])
    fitting = table([a, replace(history, overflow=False)])
    assert value(fitting, "history", "jct_mean_s", "verdict") == "better"
    assert "worse" not in set(table([a, history], baseline=1)["verdict"])


def test_nothing_is_best_where_all_are_equal() -> None:
    frame = table([outcome_of("A", (10.0,)), outcome_of("B", (10.0,))])
    assert not frame["best"].any()
    assert (frame["verdict"] == "").all()


def test_baseline_has_no_change_and_missing_numbers_stay_missing() -> None:
    nan = float("nan")
    frame = table([outcome_of("A", (10.0,)), outcome_of("B", (nan,))])
    assert np.isnan(value(frame, "A", "jct_mean_s", "change"))  # type: ignore[call-overload]
    assert np.isnan(value(frame, "B", "jct_mean_s", "value"))  # type: ignore[call-overload]
    assert value(frame, "B", "jct_mean_s", "verdict") == ""


def test_share_of_slower_jobs_is_a_row() -> None:
    frame = table(
        [outcome_of("A", (10.0, 20.0, 30.0, 40.0)), outcome_of("B", (11.0, 20.0, 10.0, 10.0))]
    )
    assert value(frame, "B", "slower", "value") == 0.25
    assert np.isnan(value(frame, "A", "slower", "value"))  # type: ignore[call-overload]


def test_counts_add_up_over_repeats() -> None:
    frame = counts([outcome_of("A", (10.0, float("nan")), (10.0, 5.0))])
    assert repeats_suffix(frame) == " (2 repeats together)"
    assert repeats_suffix(counts([outcome_of("A", (10.0,))])) == ""
    assert frame.iloc[0].to_dict() == {
        "label": "A",
        "repeats": 2,
        "jobs": 4,
        "completed": 3,
        "failed": 0,
        "impossible": 0,
        "refused": 0,
        "unfinished": 1,
        "why": "",
    }


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.001, "less than 1 %"), (0.009, "1 %"), (0.41, "41 %"), (1.0, "100 %")],
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_what_differs_by_rounding_only_is_not_marked_and_the_recording_never() -> None:
    made = table(
        [
            outcome_of("A", (10.0,), utilisation=0.2),
            outcome_of("B", (5.0,), utilisation=0.2 + 1e-9),
            outcome_of("H", (1.0,), replays=True),
        ]
    )
    assert made.loc[made["best"], ["label", "metric"]].query(
        "metric in ('utilisation', 'jct_mean_s')"
    ).to_numpy().tolist() == [["B", "jct_mean_s"]]
    assert made.groupby("label")["barred"].all().to_dict() == {"A": False, "B": False, "H": True}
    assert "slower" not in set(table([outcome_of("A", (10.0,))])["metric"])


def test_metrics_that_say_nothing_are_left_out_and_failures_are_told_apart() -> None:
    nan = float("nan")
    quiet = {
        "completion_rate": 1.0,
        "cpus_used": nan,
        "utilisation": nan,
        "evictions": 0,
        "cost_cluster_usd": 0.0,
    }
    shown = set(
        table([outcome_of("A", (10.0,), **quiet), outcome_of("B", (5.0,), **quiet)])["metric"]
    )
    assert COLUMNS.keys() - shown == set(quiet)
    one = outcome_of("B", (5.0, nan), **quiet | {"completion_rate": 0.5, "evictions": 3})
    assert {"completion_rate", "evictions"} <= set(
        table([outcome_of("A", (10.0, 2.0), **quiet), one])["metric"]
    )
    failed = outcome_of(
        "A",
        (1.0,),
        (2.0,),
        failed_by={
            "oom server": 2,
            "interruption worker": 1,
            "interruption server": 3,
            "outage worker": 1,
        },
    )
    assert counts([failed])["why"].tolist() == [
        "8 interrupted, 4 out of memory (server), 2 its node went down"
    ]


def test_changes_count_who_wins_and_who_loses_and_leave_the_unchanged_out_of_the_histogram() -> (
    None
):
    found = completion_changes(
        [
            outcome_of("A", (10.0, 10.0, 10.0, 10.0)),
            outcome_of("B", (5.0, 10.0, 40.0, 10.0005)),
            outcome_of("C", (float("nan"),) * 4),
        ]
    )
    assert list(found) == ["B"]
    assert (found["B"].jobs, found["B"].faster, found["B"].same, found["B"].slower) == (
        4,
        0.25,
        0.5,
        0.25,
    )
    told = found["B"].histogram
    assert told["jobs"].sum() == 2
    # Half as long and four times as long.
    assert [
        (row.low <= ratio < row.high)
        for ratio, row in zip((0.5, 4.0), told[told["jobs"] > 0].itertuples(), strict=True)
    ] == [True, False]
    assert told["high"].iloc[-1] == 4.0
