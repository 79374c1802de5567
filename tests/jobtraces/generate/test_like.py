"""A generator fitted to a trace: what it keeps, what it must not give away, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from jobtraces.generate import canonical, figures, generate, workload
from jobtraces.generate.fit import MIN_FIGURE_JOBS
from jobtraces.generate.like import MAX_EQUAL_PARTS, Like, rank_edges
from sim.errors import ParameterError, TraceError
from sim.params import parameters, spec_of
from sim.trace import Trace


def jobs(**columns: object) -> Trace:
    count = max(len(values) for values in columns.values() if isinstance(values, list | np.ndarray))
    frame = pd.DataFrame(
        {
            "job_id": [f"job-{at}" for at in range(count)],
            "submit_time_s": np.arange(count) * 600.0,
            "num_gpus": np.ones(count),
            "duration_s": np.full(count, 100.0),
        }
        | columns
    )
    return Trace.of(frame, name="mine")


def hourly(trace: Trace) -> np.ndarray:
    return np.bincount((trace.numbers("submit_time_s") // 3600).astype(int))


def distance(first: Trace, second: Trace, column: str) -> float:
    one, two = (np.sort(trace.numbers(column)) for trace in (first, second))
    at = np.unique(np.concatenate((one, two)))
    share = [np.searchsorted(values, at, "right") / len(values) for values in (one, two)]
    return float(np.abs(share[0] - share[1]).max())


@pytest.fixture(scope="module")
def real() -> Trace:
    return generate("venus", jobs=4000, seed=5)


def test_the_parts_of_a_group_halve_towards_the_longest_jobs() -> None:
    assert rank_edges(4).tolist() == [0, 0.25, 0.5, 0.75, 1]
    edges = rank_edges(MAX_EQUAL_PARTS + 2)
    assert edges[MAX_EQUAL_PARTS - 1 :].tolist() == pytest.approx([0.975, 0.9875, 0.99375, 1])


def test_sizes_run_times_and_bursts_are_those_of_the_trace(real: Trace) -> None:
    made = figures(real, seed=3).make()
    assert len(made) == len(real)
    assert made.span_s == pytest.approx(real.span_s, rel=0.001)
    assert distance(real, made, "num_gpus") <= 0.01
    assert distance(real, made, "duration_s") <= 0.02
    one, two = (hourly(trace).var() / hourly(trace).mean() for trace in (real, made))
    assert two == pytest.approx(one, rel=0.1)
    assert made.gpu_seconds == pytest.approx(real.gpu_seconds, rel=0.1)


def test_the_run_time_depends_on_size_and_user_as_in_the_trace() -> None:
    # User a: 300 jobs of 1 GPU for 60 s; user b: 100 jobs of 8 GPUs, half of the users' time apart.
    gpus = np.array([1.0, 1, 1, 8] * 100)
    run_s = np.where(gpus == 1, 60.0, 7200.0)
    trace = jobs(num_gpus=gpus, duration_s=run_s, user=np.where(gpus == 1, "a", "b"))
    frame = figures(trace).make().frame
    assert frame.groupby("num_gpus")["duration_s"].unique().map(list).to_dict() == {
        1: [60.0],
        8: [7200.0],
    }
    assert frame["num_gpus"].value_counts().to_dict() == {1: 300, 8: 100}
    counts = pd.crosstab(frame["user"].astype("str"), frame["num_gpus"])
    assert counts.max(axis=1).sum() >= 0.9 * 400
    assert sorted(counts.sum(axis=1)) == pytest.approx([100, 300], abs=15)


def test_users_of_one_size_keep_their_run_times() -> None:
    rng = np.random.default_rng(1)
    slow = np.arange(600) % 2 == 0
    run_s = np.exp(rng.normal(np.where(slow, 8.0, 5.0), 0.5))
    trace = jobs(duration_s=run_s, user=np.where(slow, "slow", "fast"))
    frame = figures(trace).make().frame
    medians = sorted(frame.groupby(frame["user"].astype("str"))["duration_s"].median())
    assert medians == pytest.approx([np.exp(5.0), np.exp(8.0)], rel=0.25)


def test_busy_hours_of_the_day_stay_busy() -> None:
    # 14 days; 30 jobs in each hour from 9 to 17 and 2 in each of the others.
    hours = [at for at in range(14 * 24) for _ in range(30 if 9 <= at % 24 < 17 else 2)]
    submit = np.array(hours) * 3600 + np.arange(len(hours)) % 3600
    trace = Trace.of(
        pd.DataFrame(
            {
                "job_id": np.arange(len(hours)).astype(str),
                "submit_time_s": submit,
                "num_gpus": 1,
                "duration_s": 60.0,
            }
        ),
        epoch="2024-03-04T00:00:00",
    )
    made = figures(trace).make()
    clock = (made.numbers("submit_time_s") // 3600 % 24).astype(int)
    assert np.isin(clock, range(9, 17)).mean() == pytest.approx(240 / 272, abs=0.02)
    assert made.epoch == "2001-01-01T00:00:00"


def test_twice_the_load_is_twice_the_jobs_in_the_same_time(real: Trace) -> None:
    once, twice = (figures(real, load=load).make() for load in (1.0, 2.0))
    assert len(twice) == 2 * len(once)
    assert twice.span_s == once.span_s
    assert twice.gpu_seconds == pytest.approx(2 * once.gpu_seconds, rel=0.05)
    assert distance(real, twice, "duration_s") <= 0.02


def test_the_document_holds_no_name_id_date_or_single_job() -> None:
    rng = np.random.default_rng(2)
    count = 400
    gpus = rng.choice([1.0, 2.0], count)
    gpus[17] = 509  # the only job of that size
    run_s = np.round(np.exp(rng.normal(6, 1, count)))
    run_s[17], run_s[18] = 7_654_321, 7_654_323
    trace = Trace.of(
        pd.DataFrame(
            {
                "job_id": [f"secret-id-{at}" for at in range(count)],
                "name": "secret-name",
                "submit_time_s": np.sort(rng.uniform(0, 9e5, count)),
                "num_gpus": gpus,
                "duration_s": run_s,
                "user": rng.choice(["secret-anna", "secret-bert"], count),
                "vc": "secret-vc",
                "model": rng.choice(["secret-llm", "ResNet-50"], count),
                "gpu_type": rng.choice(["secret-chip", "v100"], count),
            }
        ),
        epoch="2023-05-17T11:12:13",
    )
    like = figures(trace)
    text = str(spec_of("like", like))
    assert "secret" not in text
    assert "2023" not in text
    assert sorted(like.models.split("+")) == ["ResNet-50", "model 1"] or sorted(
        like.models.split("+")
    ) == ["ResNet-50", "model 2"]
    assert like.types == "v100"
    assert 509 not in like.sizes
    assert not {7_654_321.0, 7_654_323.0, 7_654_000.0} & set(like.times)
    assert all(share >= MIN_FIGURE_JOBS for share in like.size_shares)
    made = like.make()
    assert set(made.frame["user"]) == {"user 1", "user 2"}
    assert not made.frame.astype("str").apply(lambda c: c.str.contains("secret")).any(axis=None)


def test_every_mean_is_of_at_least_ten_jobs() -> None:
    for count in (50, 99, 405, 1000, 12_345):
        run_s = np.arange(1.0, count + 1)
        like = figures(jobs(duration_s=run_s))
        edges = np.rint(rank_edges(len(like.times)) * count)
        assert np.diff(edges).min() >= MIN_FIGURE_JOBS
        # The means of the parts, each as often as it has jobs, add up to the whole.
        assert np.dot(like.times, np.diff(edges)) == pytest.approx(run_s.sum(), rel=1e-3)


def test_the_figures_are_a_workload_that_can_be_passed_on_as_text(real: Trace) -> None:
    like = figures(real, load=1.5, seed=7, cluster="4x8:a100")
    text = str(spec_of("like", like))
    assert workload(text) == like
    assert canonical(text) == text
    assert workload(text).make().digest == like.make().digest
    assert len(text) < 6000
    assert {"load", "seed", "cluster"} == set(Like.FREE) <= {one.name for one in parameters(Like)}


def test_jobs_of_one_instant_stay_at_one_instant() -> None:
    trace = jobs(submit_time_s=np.zeros(60), duration_s=np.arange(1.0, 61))
    assert figures(trace).make().span_s == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("like:sizes=1/2", "size_shares must have 2 numbers, but has 4"),
        ("like:sizes=2/1/4/8", "sizes and groups must be in ascending order"),
        ("like:sizes=1/2/4/16", "no group has jobs of 16 GPUs"),
        ("like:sizes=1/2/4/7.5", "must be whole numbers"),
        ("like:size_shares=0/0/0/0", "must not all be 0"),
        ("like:times=5", "times must have 10 numbers, but has 1"),
        ("like:jobs=150000,load=2", "150,000 jobs at load 2 exceed the limit of 200,000"),
        ("like:hours=1/2", "hours must have 0 or 24 numbers"),
        ("like:models=a+b", "model_shares must have 4 numbers, but has 0"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)):
        workload(text)


def test_too_few_jobs_are_refused() -> None:
    with pytest.raises(TraceError, match="49 jobs are too few to fit a generator"):
        figures(jobs(num_gpus=np.ones(49)))


def test_limits_outcomes_and_homes_are_kept_without_names() -> None:
    rng = np.random.default_rng(4)
    count = 4000
    long = rng.random(count) < 0.5
    run_s = np.where(long, 40_000.0, 600.0) * rng.uniform(0.5, 1, count)
    limit = np.where(long, 43_200.0, 3600.0)
    limit[:400] = np.nan
    limit[400] = 7_777_777  # the only one
    who = rng.integers(0, 4, count)
    away = rng.random(count) < 0.1
    trace = jobs(
        submit_time_s=np.sort(rng.uniform(0, 9e5, count)),
        duration_s=run_s,
        time_limit_s=limit,
        status=np.where(long & (rng.random(count) < 0.6), "failed", "completed"),
        user=np.array(["ann", "bob", "cyd", "dee"])[who],
        vc=np.where(away, "secret-a", np.array(["secret-a", "secret-b"])[who // 2]),
    )
    like = figures(trace, seed=2)
    assert "secret" not in str(spec_of("like", like))
    assert like.limits == (3600.0, 43_200.0, 0.0)
    made = like.make()
    frame = made.frame
    given = frame["time_limit_s"]
    assert (given.isna() | (given >= frame["duration_s"])).all()
    shares = given.fillna(np.inf).value_counts(normalize=True)
    assert shares[np.inf] == pytest.approx(0.1, abs=0.02)
    assert shares[3600.0] == pytest.approx(0.45, abs=0.05)
    for one in (trace, made):
        of_long = one.frame["duration_s"] > 10_000
        failed = (one.frame["status"] == "failed").groupby(of_long).mean()
        assert failed.to_dict() == pytest.approx({False: 0.0, True: 0.6}, abs=0.1)
    places = pd.crosstab(frame["user"].astype("str"), frame["vc"].astype("str"), normalize="index")
    assert set(places) == {"vc 1", "vc 2"}
    assert sorted(places["vc 2"]) == pytest.approx([0.05, 0.05, 0.95, 0.95], abs=0.06)


def test_figures_from_before_make_the_jobs_that_they_made() -> None:
    frame = workload("like:jobs=50,users=30/20,user_sizes=0/0,user_times=0/0").make().frame
    assert {"time_limit_s", "status", "vc"}.isdisjoint(frame.columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("like:limits=0/60,limit_shares=1/1/1/1/1/1/1/1/1/1", "limits must be in ascending order"),
        ("like:limits=60", "limit_shares must have 5 numbers, but has 0"),
        ("like:outcomes=failed,outcome_shares=1", "outcome_shares must have 5 numbers"),
        (
            "like:users=1,user_sizes=0,user_times=0,homes=2,home_shares=1/1",
            "homes must be indices into home_shares",
        ),
        ("like:home_shares=0/0", "home_shares must not all be 0"),
    ],
)
def test_limits_outcomes_and_homes_that_contradict_each_other_are_refused(
    text: str, message: str
) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)):
        workload(text)


@pytest.mark.parametrize(("load", "total"), [(0.29, 3), (0.31, 3), (0.34, 3), (0.36, 4), (0.1, 2)])
def test_the_number_of_jobs_is_rounded_and_two_at_least(load: float, total: int) -> None:
    assert workload(f"like:jobs=10,load={load}").total == total


@pytest.mark.parametrize(("users", "streak"), [("ab" * 30, 0.0), ("a" * 30 + "b" * 30, 0.966)])
def test_jobs_of_a_user_in_a_row(users: str, streak: float) -> None:
    # By chance half of the jobs follow one of their user; here none does, or 58 of 59 do:
    # (58/59 - 1/2) / (1/2).
    assert figures(jobs(user=list(users))).streak == streak
