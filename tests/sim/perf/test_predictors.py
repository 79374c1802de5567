"""Sizes predicted from the jobs that have finished."""

from __future__ import annotations

import importlib.util
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import make
from jobtraces.generate import workload
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Conditions, Simulator
from sim.errors import ParameterError
from sim.overheads import Overheads
from sim.perf import regression
from sim.perf.estimators import Unknown
from sim.perf.parameter_server import ParameterServer
from sim.perf.predictors import LearnedEstimator, PerUser
from sim.perf.profiled import Profiled
from sim.perf.regression import Boosting, Forest
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace

CLUSTER = Cluster.parse("4x8:v100")


def recurring(jobs: int = 400, groups: int = 20, seed: int = 1, sigma: float = 0.1) -> Trace:
    """Jobs of groups, each of one user with one name, model, size and typical run time."""
    rng = np.random.default_rng(seed)
    typical_s = np.exp(rng.uniform(np.log(60), np.log(60_000), groups))
    group = rng.integers(0, groups, jobs)
    frame = pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in range(jobs)],
            "submit_time_s": np.arange(jobs) * 900.0,
            "num_gpus": rng.choice([1, 2, 4, 8], groups)[group],
            "duration_s": typical_s[group] * np.exp(sigma * rng.standard_normal(jobs)),
            "user": [f"user{at % 7}" for at in group],
            "name": [f"train-{at}" for at in group],
            "model": rng.choice(["ResNet", "LM", "BERT"], groups)[group],
        }
    )
    return Trace.of(frame)


LEARNING: tuple[Any, ...] = (PerUser, Forest, Boosting)


def bound(trace: Trace, seed: int = 0, of: Any = Forest, **params: Any) -> LearnedEstimator:
    estimator: LearnedEstimator = of(**params).bind(
        Rigid().bind(trace, CLUSTER), trace, Overheads(), seed
    )
    return estimator


def error(estimator: LearnedEstimator, trace: Trace, jobs: range) -> float:
    """Median of the absolute logarithm of predicted over true size."""
    predicted = estimator.remaining(np.array(jobs), np.zeros(len(jobs)))
    return float(
        np.median(np.abs(np.log(predicted / trace.numbers("duration_s")[jobs.start : jobs.stop])))
    )


def test_before_enough_have_finished_it_takes_medians() -> None:
    trace = recurring(40)
    estimator, true, users = (
        bound(trace, guess_s=77.0, least=30),
        trace.numbers("duration_s"),
        list(trace.texts("user")),
    )
    assert estimator.remaining_one(0, 0.0) == pytest.approx(77)
    for job in range(10):
        estimator.observe(job, 1e6)
    for job in range(10, 20):
        own = [true[other] for other in range(10) if users[other] == users[job]] or true[
            :10
        ].tolist()
        assert estimator.remaining_one(job, 0.0) == pytest.approx(
            float(np.exp(median(np.log(own))))
        )
    # What was believed once stays, but for what is done and for what was outlived.
    assert estimator.remaining_one(0, 7.0) == pytest.approx(70)
    assert estimator.remaining(np.array([0, 1]), np.array([80.0, 0.0])).tolist()[
        0
    ] == pytest.approx(2 * 77 - 80)


@pytest.mark.slow
@pytest.mark.parametrize("of", [Forest, Boosting])
def test_trees_find_the_groups_and_medians_do_not(of: Any) -> None:
    trace = recurring()
    trees, medians = bound(trace, of=of), bound(trace, of=PerUser)
    for job in range(200):
        trees.observe(job, 0.0)
        medians.observe(job, 0.0)
    # Runs of a group differ by 0.1; groups by a factor of 1000.
    assert error(trees, trace, range(200, 400)) < 0.15
    assert error(medians, trace, range(200, 400)) > 0.4


def test_the_median_of_a_user_by_hand() -> None:
    frame = pd.DataFrame(
        {
            "job_id": list("abcdefg"),
            "submit_time_s": range(7),
            "num_gpus": 1,
            "duration_s": [10.0, 40.0, 1000.0, 90.0, 1.0, 1.0, 1.0],
        }
    )
    trace = Trace.of(frame.assign(user=["ann", "ann", "bob", "ann", "ann", "bob", "eve"]))
    estimator = bound(trace, of=PerUser, least=2, guess_s=77.0)
    assert estimator.remaining_one(4, 0.0) == pytest.approx(77)
    for job in range(4):
        estimator.observe(job, 0.0)
    # Ann's are 10, 40, 90. Bob has finished one job only and Eve none: all are 10, 40, 90, 1000,
    # whose middle is the geometric mean of 40 and 90, 60.
    assert estimator.remaining(np.array([5, 6]), np.zeros(2)) == pytest.approx([60, 60])
    assert estimator.remaining_one(4, 0.0) == pytest.approx(
        77
    )  # as it was believed, until somebody asks whether it can be told
    assert estimator.predictable(np.array([4, 5, 6]), np.zeros(3)).tolist() == [True, False, False]
    assert estimator.remaining_one(4, 0.0) == pytest.approx(40)
    assert estimator.first_estimates()[4:] == pytest.approx([40, 60, 60])
    single = bound(trace, of=PerUser)
    single.observe(2, 0.0)
    assert single.remaining_one(5, 0.0) == pytest.approx(1000)


@pytest.mark.slow
@pytest.mark.parametrize("of", [Forest, Boosting])
def test_trees_can_tell_sizes_once_they_are_trained(of: Any) -> None:
    trace = recurring(60)
    estimator, ids, none = bound(trace, of=of, least=30), np.array([40, 41]), np.zeros(2)
    for job in range(29):
        estimator.observe(job, 0.0)
    stand_in = estimator.remaining(ids[:1], none[:1])
    assert not estimator.predictable(ids, none).any()
    estimator.observe(29, 0.0)
    assert estimator.predictable(ids, none).all()
    assert estimator.remaining(ids[:1], none[:1]) != stand_in


@pytest.mark.slow
@pytest.mark.parametrize("param", ["rounds=1", "depth=1", "rate=0.01", "least=100", "latest=30"])
def test_every_parameter_of_boosting_matters(param: str) -> None:
    trace = recurring()
    name, _, value = param.partition("=")
    estimators = [
        bound(trace, of=Boosting, rounds=20),
        bound(trace, of=Boosting, **{"rounds": 20, name: type(getattr(Boosting(), name))(value)}),
    ]
    for estimator in estimators:
        for job in range(99):
            estimator.observe(job, 0.0)
    assert estimators[0].remaining_one(200, 0.0) != estimators[1].remaining_one(200, 0.0)


def test_more_finished_jobs_are_learnt_from_at_growing_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace, sizes = recurring(200), []
    estimator = bound(trace, least=10, latest=40)
    learner: Any = estimator._predictor
    fit = learner.fit_regressor
    monkeypatch.setattr(
        learner,
        "fit_regressor",
        lambda finished, logs: sizes.append(len(finished)) or fit(finished, logs),
    )
    for job in range(100):
        estimator.observe(job, 0.0)
    assert sizes == [10, 15, 23, 35, 40, 40]  # at 10, 15, 23, 35, 53 and 80


def test_who_asks_when_and_in_what_order_changes_no_prediction() -> None:
    trace = recurring()
    one, other = bound(trace, seed=3), bound(trace, seed=3)
    for job in range(120):
        one.observe(job, 0.0)
        other.observe(job, 0.0)
        one.remaining_one(399 - job, 0.0)
    assert [one.remaining_one(job, 0.0) for job in range(200, 250)] == other.remaining(
        np.arange(200, 250), np.zeros(50)
    ).tolist()
    reseeded = bound(trace, seed=4)
    for job in range(120):
        reseeded.observe(job, 0.0)
    assert reseeded.remaining_one(200, 0.0) != one.remaining_one(200, 0.0)


@pytest.mark.parametrize("of", LEARNING)
def test_the_size_of_a_job_that_has_not_finished_is_never_looked_at(of: Any) -> None:
    trace = recurring()
    durations = trace.numbers("duration_s").copy()
    durations[150:] = np.random.default_rng(0).permutation(durations[150:])
    other = Trace.of(trace.frame.assign(duration_s=durations))
    estimators = [bound(trace, of=of), bound(other, of=of)]
    for estimator in estimators:
        for job in range(150):
            estimator.observe(job, 0.0)
    assert (
        len(
            {
                tuple(estimator.remaining_one(job, 0.0) for job in range(150, 400))
                for estimator in estimators
            }
        )
        == 1
    )


@pytest.mark.parametrize("of", LEARNING)
def test_users_and_names_of_later_jobs_change_nothing_earlier(of: Any) -> None:
    trace = recurring()
    renamed = trace.frame["name"].where(trace.frame.index < 250, "aaa-" + trace.frame["name"])
    estimators = [bound(trace, of=of), bound(Trace.of(trace.frame.assign(name=renamed)), of=of)]
    for estimator in estimators:
        for job in range(150):
            estimator.observe(job, 0.0)
    assert (
        len(
            {
                tuple(estimator.remaining_one(job, 0.0) for job in range(150, 250))
                for estimator in estimators
            }
        )
        == 1
    )


# Work done is total less left, which rounds differently when the total is another, and predictions
# within a group tie: what stops running jobs would decide ties another way, so there only the jobs
# that have not begun are others.
@pytest.mark.parametrize(
    ("policy", "longer", "of"),
    [
        ("sjf", 10, Forest(trees=10)),
        ("srtf", 1, Forest(trees=10)),
        ("easy", 10, Forest(trees=10)),
        ("sjf:size=gpu_time,backfill=first_fit", 10, Forest(trees=10)),
        ("sjf", 10, PerUser()),
        ("easy", 10, PerUser()),
        ("sjf", 10, Boosting(rounds=20)),
        ("easy", 10, Boosting(rounds=20)),
    ],
)
def test_no_decision_depends_on_what_has_not_ended_yet(policy: str, longer: int, of: Any) -> None:
    trace, cluster, at_s = recurring(300, seed=5), Cluster.parse("3x8:v100"), 150_000.0

    def run(jobs: Trace) -> RunResult:
        return Simulator(jobs, cluster, make(Spec.parse(policy)), Conditions(estimator=of)).run()

    before = run(trace)
    ended = before.jobs["finish_s"].to_numpy() <= at_s
    begun = (before.jobs["first_start_s"].to_numpy() <= at_s) & ~ended
    durations = trace.numbers("duration_s").copy()
    untouched = ~ended & ~begun
    durations[untouched] = durations[untouched][::-1]
    durations[begun] *= longer
    after = run(Trace.of(trace.frame.assign(duration_s=durations)))
    assert ended.sum() > 50
    assert begun.any()
    assert untouched.sum() > 50
    early = [
        result.segments.loc[result.segments["t0"] <= at_s, ["job", "t0", "gpus"]]
        .sort_values(["t0", "job"])
        .to_numpy()
        for result in (before, after)
    ]
    assert np.array_equal(*early)
    assert run(trace).digest() == before.digest()


@pytest.mark.parametrize("of", [PerUser(least=3), Boosting(rounds=20, least=10)])
def test_nor_where_the_allocator_asks_what_can_be_told(of: Any) -> None:
    made = workload("aiturbo:jobs=120,seed=3")
    frame = made.make().frame
    trace = Trace.of(frame.assign(user=[f"user{at % 5}" for at in range(120)]))

    def run(jobs: Trace, estimator: Any) -> RunResult:
        return Simulator(
            jobs,
            made.machines(),
            make(Spec("aiturbo")),
            Conditions(ParameterServer(), estimator=estimator),
        ).run()

    before = run(trace, of)
    at_s = float(trace.numbers("submit_time_s")[80])
    later = trace.numbers("submit_time_s") > at_s
    durations = trace.numbers("duration_s").copy()
    durations[later] = durations[later][::-1]
    after = run(Trace.of(trace.frame.assign(duration_s=durations)), of)
    assert (before.jobs["finish_s"].to_numpy() <= at_s).sum() > 20
    early = [
        result.segments.loc[result.segments["t0"] <= at_s, ["job", "t0", "gpus"]]
        .sort_values(["t0", "job"])
        .to_numpy()
        for result in (before, after)
    ]
    assert np.array_equal(*early)
    # It makes use of what can be told.
    assert before.segments["t0"].tolist() != run(trace, Unknown()).segments["t0"].tolist()


def test_predictions_are_in_the_unit_of_the_rate() -> None:
    # LM in iterations: 100 s at so many iterations per second, learnt from a ResNet-18 with 100 s
    # at its own.
    frame = pd.DataFrame(
        {
            "job_id": list("abc"),
            "submit_time_s": [0, 1, 2],
            "num_gpus": [1, 1, 0],
            "duration_s": [100.0, 5000.0, 9.0],
            "user": "ann",
        }
    )
    trace = Trace.of(frame.assign(model=["ResNet-18", "LM", None], batch_size=[64, 20, np.nan]))
    model = Profiled().bind(trace, CLUSTER)
    estimator = Forest().bind(model, trace, Overheads(), 0)
    estimator.observe(0, 100.0)
    rate = float(model.fastest()[1])
    assert rate > 2
    assert estimator.remaining_one(1, 0.0) == pytest.approx(100 * rate)
    assert estimator.remaining_one(2, 0.0) == pytest.approx(100)


@pytest.mark.parametrize(("of", "name"), [(Forest, "forest"), (Boosting, "boosting")])
def test_without_the_package_it_is_refused_in_one_sentence(
    of: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        regression,
        "find_spec",
        lambda name: None if name == "sklearn" else importlib.util.find_spec(name),
    )
    with pytest.raises(
        ParameterError,
        match=(
            rf"{name}: predicting sizes needs the package scikit-learn, which is not installed\."
            r" Run pip install"
        ),
    ):
        bound(recurring(5), of=of)
