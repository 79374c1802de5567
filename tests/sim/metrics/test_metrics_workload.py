from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sim import metrics
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.trace import Trace
from tests.sim.metrics.metrics_cases import Job, trace_of


def trace(submit: list[float], gpus: list[int], duration: list[float], **more: object) -> Trace:
    ids = [str(at) for at in range(len(submit))]
    return Trace.of(
        pd.DataFrame(
            {
                "job_id": ids,
                "submit_time_s": submit,
                "num_gpus": gpus,
                "duration_s": duration,
                **more,
            }
        ),
        name="t.csv",
    )


def test_arrivals_per_hour() -> None:
    found = metrics.arrivals(trace([0, 10, 7200 * 200], [1, 2, 4], [1, 1, 1]))
    assert found["width_s"].unique().tolist() == [
        4 * 3600.0
    ]  # 400 hours are 401 bins of an hour, so the next width
    assert found["jobs"].sum() == 3
    assert found["jobs"].iloc[0] == 2
    assert found["jobs_per_hour"].iloc[0] == 0.5
    assert found["gpus_per_hour"].iloc[0] == 0.75
    assert metrics.arrivals(trace([0, 5], [1, 1], [1, 1]))["jobs"].tolist() == [1, 0, 0, 0, 0, 1]
    assert len(metrics.arrivals(trace([0, 1e9], [1, 1], [1, 1]), most=10)) <= 10


def test_sizes_by_powers_of_two() -> None:
    found = metrics.sizes(trace([0] * 6, [1, 2, 3, 4, 8, 9], [3600] * 6))
    assert found["gpus"].tolist() == ["1", "2", "3-4", "5-8", "9-16"]
    assert found["jobs"].tolist() == [1, 1, 2, 1, 1]
    assert found["gpu_hours"].tolist() == [1, 2, 7, 8, 9]
    with_cpu = metrics.sizes(trace([0, 0], [0, 2], [3600, 3600]))
    assert with_cpu["gpus"].tolist() == ["0", "1", "2"]
    assert with_cpu["jobs"].tolist() == [1, 0, 1]


def test_durations_in_equal_ratios() -> None:
    found = metrics.durations(trace([0] * 3, [1, 1, 2], [1, 10, 100]), bins=2)
    assert found["low_s"].tolist() == pytest.approx([1, 10])
    assert found["high_s"].tolist() == pytest.approx([10, 100])
    assert found["jobs"].tolist() == [1, 2]
    assert found["gpu_hours"].tolist() == pytest.approx([1 / 3600, 210 / 3600])
    equal = metrics.durations(trace([0, 0], [1, 1], [50, 50]))
    assert equal["jobs"].sum() == 2
    assert np.isfinite(equal.to_numpy()).all()


def test_heaviest_users() -> None:
    found = metrics.heaviest(
        trace_of(
            [
                Job(0, 1, user="ann"),
                Job(0, 1, user="bob"),
                Job(0, 1, user="cyd"),
                Job(0, 2, user="ann"),
            ]
        ),
        most=1,
    )
    # ann: 1 x 60 + 2 x 240 s, bob 120 s, cyd 180 s.
    assert found["name"].tolist() == ["ann", "2 others"]
    assert found["jobs"].tolist() == [2, 2]
    assert found["gpu_hours"].tolist() == pytest.approx([540 / 3600, 300 / 3600])


def test_jobs_without_a_user_are_named_so() -> None:
    found = metrics.heaviest(trace([0, 1], [1, 1], [3600, 7200], user=["ann", None]))
    assert found["name"].tolist() == ["not given", "ann"]
    with pytest.raises(ParameterError, match=r"t\.csv: no job has a vc"):
        metrics.heaviest(trace([0], [1], [1]), "vc")


def test_node_table() -> None:
    table = metrics.node_table(Cluster.parse("2x4:v100,1x0:cpu"))
    assert table["gpu_type"].tolist() == ["v100", "v100", ""]
    assert table["gpus"].tolist() == [4, 4, 0]
    assert table["price_per_hour"].tolist() == pytest.approx([9.92, 9.92, 0])
    assert table["rack"].nunique() == 2
