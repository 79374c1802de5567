"""The curve of the performance model, against models whose speed is known."""

from __future__ import annotations

import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from trainyard.clusters.speedup import speedup_curve
from trainyard.study import catalog

JOBS = {"job_id": ["a", "b", "c"], "submit_time_s": [0, 1, 2], "duration_s": [60, 60, 60]}


def trace(gpus: list[int]) -> Trace:
    return Trace.of(pd.DataFrame({**JOBS, "num_gpus": gpus, "min_gpus": 1, "max_gpus": 64}))


def test_a_power_law_with_its_exponent_is_a_line_through_one() -> None:
    perf = catalog.instance("perf", Spec.of("power_law", exponent_other=0.5))
    table = speedup_curve(perf, trace([4, 4, 4]), Cluster.parse("8x8:v100")).set_index("x")
    assert table.loc[1.0, "speed"] == pytest.approx(1.0)
    assert table.loc[4.0, "speed"] == pytest.approx(2.0)
    assert table.loc[0.25, "speed"] == pytest.approx(0.5)
    assert 0.125 not in table.index  # nobody has half a GPU
    assert table["jobs"].tolist() == [3] * len(table)


def test_under_a_model_of_fixed_sizes_the_curve_is_over_nodes() -> None:
    perf = catalog.instance("perf", Spec.of("rigid", span_node=1.25))
    table = speedup_curve(perf, trace([1, 2, 8]), Cluster.parse("2x8:v100,1x4:k80"))
    assert table["x"].tolist() == [1, 2, 4, 8]
    assert table["speed"].tolist() == pytest.approx([1.0, 0.8, 0.8, 0.8])
    assert table["jobs"].tolist() == [2, 2, 1, 1]


def test_jobs_that_cannot_be_spread_have_no_curve() -> None:
    perf = catalog.instance("perf", Spec("rigid"))
    assert speedup_curve(perf, trace([1, 1, 1]), Cluster.parse("2x8:v100")).empty
    assert speedup_curve(perf, trace([2, 2, 2]), Cluster.parse("2x0:cpu/8c")).empty
