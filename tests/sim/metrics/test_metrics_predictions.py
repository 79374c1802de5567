"""Believed against true sizes, worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from allocators import make
from sim import metrics
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Conditions, Simulator
from sim.perf.estimators import Biased, Exact
from sim.perf.predictors import PerUser
from tests.sim.metrics.metrics_cases import Job, run_of, trace_of


def jobs(*pairs: tuple[float, float]) -> pd.DataFrame:
    return run_of(
        [Job(0, 1, ideal=ideal, believed=believed) for ideal, believed in pairs], [], 1.0
    ).jobs


def test_accuracy_by_hand() -> None:
    frame = jobs((10, 20), (10, 5), (10, 12.5), (100, 10), (50, np.nan), (1, 100))
    every = np.ones(6, np.bool_)
    # Factors 2, 2, 1.25, 10 and 100; nobody asked about the fifth.
    assert metrics.accuracy(frame, every) == pytest.approx((5, 3 / 5, 2.0))
    assert metrics.accuracy(
        frame, np.array([False, False, True, True, True, False])
    ) == pytest.approx((2, 0.5, np.sqrt(12.5)))
    nobody = metrics.accuracy(frame, np.arange(6) == 4)
    assert nobody.jobs == 0
    assert np.isnan(nobody[1:]).all()


def test_points_are_in_order_of_size_and_capped_over_all_sizes() -> None:
    frame = jobs((30, 3), (10, 1), (20, np.nan), (40, 4))
    assert metrics.prediction_points(frame, np.ones(4, np.bool_)).to_numpy().tolist() == [
        [1, 10, 1],
        [0, 30, 3],
        [3, 40, 4],
    ]
    many = jobs(*[(1.0 + at, 2.0) for at in range(3000)])
    found = metrics.prediction_points(many, np.ones(3000, np.bool_))
    assert len(found) == 1000
    assert found["ideal_s"].iloc[[0, -1]].tolist() == [1, 3000]
    assert found["job"].is_unique
    assert metrics.prediction_points(many, np.zeros(3000, np.bool_)).empty


def test_of_a_run() -> None:
    trace = trace_of([Job(at, 1) for at in range(5)])
    for estimator, factor in ((Exact(), 1.0), (Biased(3.0), 3.0)):
        done = (
            Simulator(
                trace, Cluster.parse("1x2:v100"), make(Spec("sjf")), Conditions(estimator=estimator)
            )
            .run()
            .jobs
        )
        assert metrics.accuracy(done, np.ones(5, np.bool_)) == pytest.approx(
            (5, float(factor == 1), factor)
        )
    # Who predicts only when asked has nothing to say of a policy that does not ask.
    silent = (
        Simulator(
            trace, Cluster.parse("1x2:v100"), make(Spec("fifo")), Conditions(estimator=PerUser())
        )
        .run()
        .jobs
    )
    assert metrics.prediction_points(silent, np.ones(5, np.bool_)).empty
