"""What allocators may think of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.cluster import Cluster
from sim.grants import Shape
from sim.overheads import Overheads
from sim.perf import ESTIMATORS, PERF
from sim.perf.batch import Batch
from sim.perf.communication import Spread
from sim.perf.estimators import Biased, Exact, Noisy, SizeEstimator, Unknown
from sim.perf.parameter_server import ParameterServer
from sim.perf.predictors import PerUser
from sim.perf.profiled import Profiled
from sim.perf.regression import Boosting, Forest
from sim.perf.rigid import Rigid
from sim.perf.scaling import Amdahl, PowerLaw
from sim.perf.speed_table import Table
from tests.sim.scripted import jobs, on

TRACE = jobs(*[(at, 1, 10.0 * (at + 1)) for at in range(200)])


def bound(spec: Any, seed: int = 0) -> SizeEstimator:
    model = Rigid().bind(TRACE, Cluster.parse("4x4:v100"))
    estimator: SizeEstimator = spec.bind(model, TRACE, Overheads(start_s=1, restart_s=5), seed)
    return estimator


def sizes(estimator: SizeEstimator) -> np.ndarray[Any, Any]:
    return estimator.remaining(np.arange(200), np.zeros(200))


def test_registries_name_them_all() -> None:
    assert {
        "rigid": Rigid,
        "power_law": PowerLaw,
        "amdahl": Amdahl,
        "table": Table,
        "batch": Batch,
        "profiled": Profiled,
        "spread": Spread,
        "parameter_server": ParameterServer,
    } == PERF
    learning = {"per_user": PerUser, "forest": Forest, "boosting": Boosting}
    assert {
        "exact": Exact,
        "noisy": Noisy,
        "biased": Biased,
        "unknown": Unknown,
    } | learning == ESTIMATORS


def test_exact_biased_and_unknown_sizes() -> None:
    true = TRACE.numbers("duration_s")
    assert (sizes(bound(Exact())) == true).all()
    assert (sizes(bound(Biased(0.5))) == true / 2).all()
    assert (sizes(bound(Unknown(77.0))) == 77).all()


def test_noise_is_lognormal_with_median_one_and_belongs_to_seed_and_job() -> None:
    true = TRACE.numbers("duration_s")
    logs = np.log(np.concatenate([sizes(bound(Noisy(0.5), seed)) / true for seed in range(20)]))
    # 4,000 draws: the standard error of the mean is 0.008, that of the deviation 0.006.
    assert abs(logs.mean()) < 0.035
    assert logs.std() == pytest.approx(0.5, abs=0.025)
    assert (sizes(bound(Noisy(0.5), 3)) == sizes(bound(Noisy(0.5), 3))).all()
    # Another sigma scales the same draw.
    assert np.log(sizes(bound(Noisy(1.0), 3)) / true) == pytest.approx(
        2 * np.log(sizes(bound(Noisy(0.5), 3)) / true)
    )
    assert (sizes(bound(Noisy(0.0))) == true).all()


def test_a_estimator_that_is_outlived_doubles() -> None:
    estimator = bound(Unknown(8.0))
    # 8 believed, 20 done: 16 is not enough, 32 is; from then on 32 is believed.
    assert estimator.remaining_one(5, 20.0) == 12
    assert estimator.remaining_one(5, 21.0) == 11
    assert estimator.remaining(np.array([4, 5, 6]), np.array([9.0, 22.0, 1.0])).tolist() == [
        7,
        10,
        7,
    ]


@pytest.mark.parametrize("done", [10.0, 10.0 + 5e-7])
def test_a_true_size_outlived_by_rounding_is_about_to_end(done: float) -> None:
    assert bound(Exact()).remaining_one(0, done) == 1e-6
    assert bound(Exact()).remaining(np.array([0]), np.array([done])).tolist() == [1e-6]


def test_speeds_and_pauses_are_the_true_ones() -> None:
    estimator = bound(Biased(9.0))
    assert estimator.rate(0, on(0)) == 1.0
    assert estimator.rates(np.array([0]), [Shape((1,)), Shape((2,))]).tolist() == [[1.0, 0.0]]
    assert estimator.pause_s(0, None, on(0), restarted=False) == 1
    assert estimator.pause_s(0, None, on(0), restarted=True) == 5
    assert estimator.pause_s(0, on(1), on(0), restarted=True) == 5
    estimator.observe(0, 5.0)
    assert (sizes(estimator) == 9 * TRACE.numbers("duration_s")).all()


def test_binding_changes_nothing_of_the_truth() -> None:
    estimator = bound(Exact())
    estimator.remaining_one(0, 50.0)
    assert sizes(bound(Exact()))[0] == 10


def test_the_first_estimates_stay_when_a_total_is_doubled() -> None:
    estimator = bound(Biased(0.5))
    # Job 3 takes 40 s, estimated are 20 s; after 25 s that is doubled.
    assert estimator.remaining_one(3, 25.0) == 15
    assert estimator.first_estimates()[3] == 20
