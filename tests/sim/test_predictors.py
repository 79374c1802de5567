"""Sizes predicted from the jobs that have finished."""

from __future__ import annotations

import importlib.util
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import make
from sim.cluster import Cluster
from sim.contract import Spec
from sim.errors import ParameterError
from sim.overheads import Overheads
from sim.perf import predictors
from sim.perf.predictors import Forest, ForestBelief
from sim.perf.profiled import Profiled
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.simulator import Conditions, Simulator
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


def bound(trace: Trace, seed: int = 0, **params: Any) -> ForestBelief:
    return Forest(**params).bind(Rigid().bind(trace, CLUSTER), trace, Overheads(), seed)


def error(belief: ForestBelief, trace: Trace, jobs: range) -> float:
    """Median of the absolute logarithm of predicted over true size."""
    predicted = belief.remaining(np.array(jobs), np.zeros(len(jobs)))
    return float(np.median(np.abs(np.log(predicted / trace.numbers("duration_s")[jobs.start : jobs.stop]))))


def test_before_enough_have_finished_it_takes_medians() -> None:
    trace = recurring(40)
    belief, true, users = bound(trace, guess_s=77.0, least=30), trace.numbers("duration_s"), list(trace.texts("user"))
    assert belief.remaining_one(0, 0.0) == pytest.approx(77)
    for job in range(10):
        belief.observe(job, 1e6)
    for job in range(10, 20):
        own = [true[other] for other in range(10) if users[other] == users[job]] or true[:10].tolist()
        assert belief.remaining_one(job, 0.0) == pytest.approx(float(np.exp(median(np.log(own)))))
    # What was believed once stays, but for what is done and for what was outlived.
    assert belief.remaining_one(0, 7.0) == pytest.approx(70)
    assert belief.remaining(np.array([0, 1]), np.array([80.0, 0.0])).tolist()[0] == pytest.approx(2 * 77 - 80)


def test_a_forest_finds_the_groups_and_medians_do_not() -> None:
    trace = recurring()
    forest, medians = bound(trace), bound(trace, least=1000)
    for job in range(200):
        forest.observe(job, 0.0)
        medians.observe(job, 0.0)
    # Runs of a group differ by 0.1; groups by a factor of 1000.
    assert error(forest, trace, range(200, 400)) < 0.15
    assert error(medians, trace, range(200, 400)) > 0.4


def test_more_finished_jobs_are_learnt_from_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, sizes = recurring(200), []
    belief = bound(trace, least=10, latest=40)
    trained = belief._trained
    monkeypatch.setattr(belief, "_trained", lambda finished: sizes.append(len(finished)) or trained(finished))
    for job in range(100):
        belief.observe(job, 0.0)
    assert sizes == [10, 15, 23, 35, 40, 40]  # at 10, 15, 23, 35, 53 and 80


def test_who_asks_when_and_in_what_order_changes_no_prediction() -> None:
    trace = recurring()
    one, other = bound(trace, seed=3), bound(trace, seed=3)
    for job in range(120):
        one.observe(job, 0.0)
        other.observe(job, 0.0)
        one.remaining_one(399 - job, 0.0)
    assert [one.remaining_one(job, 0.0) for job in range(200, 250)] == other.remaining(np.arange(200, 250), np.zeros(50)).tolist()
    reseeded = bound(trace, seed=4)
    for job in range(120):
        reseeded.observe(job, 0.0)
    assert reseeded.remaining_one(200, 0.0) != one.remaining_one(200, 0.0)


def test_the_size_of_a_job_that_has_not_finished_is_never_looked_at() -> None:
    trace = recurring()
    durations = trace.numbers("duration_s").copy()
    durations[150:] = np.random.default_rng(0).permutation(durations[150:])
    other = Trace.of(trace.frame.assign(duration_s=durations))
    beliefs = [bound(trace), bound(other)]
    for belief in beliefs:
        for job in range(150):
            belief.observe(job, 0.0)
    assert len({tuple(belief.remaining_one(job, 0.0) for job in range(150, 400)) for belief in beliefs}) == 1


def test_users_and_names_of_later_jobs_change_nothing_earlier() -> None:
    trace = recurring()
    renamed = trace.frame["name"].where(trace.frame.index < 250, "aaa-" + trace.frame["name"])
    beliefs = [bound(trace), bound(Trace.of(trace.frame.assign(name=renamed)))]
    for belief in beliefs:
        for job in range(150):
            belief.observe(job, 0.0)
    assert len({tuple(belief.remaining_one(job, 0.0) for job in range(150, 250)) for belief in beliefs}) == 1


# Work done is total less left, which rounds differently when the total is another, and predictions within a group tie: what stops running jobs would decide
# ties another way, so there only the jobs that have not begun are others.
@pytest.mark.parametrize(("policy", "longer"), [("sjf", 10), ("srtf", 1), ("easy", 10), ("sjf:size=gpu_time,head=skip", 10)])
def test_no_decision_depends_on_what_has_not_ended_yet(policy: str, longer: int) -> None:
    trace, cluster, at_s = recurring(300, seed=5), Cluster.parse("3x8:v100"), 150_000.0

    def run(jobs: Trace) -> RunResult:
        return Simulator(jobs, cluster, make(Spec.parse(policy)), Conditions(belief=Forest(trees=10))).run()

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
    early = [result.segments.loc[result.segments["t0"] <= at_s, ["job", "t0", "gpus"]].sort_values(["t0", "job"]).to_numpy() for result in (before, after)]
    assert np.array_equal(*early)
    assert run(trace).digest() == before.digest()


def test_predictions_are_in_the_unit_of_the_rate() -> None:
    # LM in iterations: 100 s at so many iterations per second, learnt from a ResNet-18 with 100 s at its own.
    frame = pd.DataFrame({"job_id": list("abc"), "submit_time_s": [0, 1, 2], "num_gpus": [1, 1, 0], "duration_s": [100.0, 5000.0, 9.0], "user": "ann"})
    trace = Trace.of(frame.assign(model=["ResNet-18", "LM", None], batch_size=[64, 20, np.nan]))
    model = Profiled().bind(trace, CLUSTER)
    belief = Forest().bind(model, trace, Overheads(), 0)
    belief.observe(0, 100.0)
    rate = float(model.fastest()[1])
    assert rate > 2
    assert belief.remaining_one(1, 0.0) == pytest.approx(100 * rate)
    assert belief.remaining_one(2, 0.0) == pytest.approx(100)


def test_without_the_package_it_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictors, "find_spec", lambda name: None if name == "sklearn" else importlib.util.find_spec(name))
    with pytest.raises(ParameterError, match=r"forest: predicting sizes needs the package scikit-learn, which is not installed\. Run pip install"):
        bound(recurring(5))
