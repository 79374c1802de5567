"""Small jobs and machines for the tests of the application layer."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from trainyard.store import Store
from trainyard.study.scenario import Scenario, TraceSpec


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def scenario() -> Scenario:
    return Scenario(TraceSpec("sample:tiny"), Cluster.parse("2x8:v100"), Spec("fifo"))


@pytest.fixture
def trace() -> Trace:
    """Four jobs: 8 GPUs for 100 s, then 8, 1 and 1 GPU."""
    return Trace.of(
        pd.DataFrame(
            {
                "job_id": ["a", "b", "c", "d"],
                "submit_time_s": [0.0, 10.0, 20.0, 40.0],
                "num_gpus": [8, 8, 1, 1],
                "duration_s": [100.0, 50.0, 10.0, 10.0],
                "deadline_s": [500.0, 510.0, 520.0, 540.0],
                "start_time_s": [0.0, 100.0, 100.0, 100.0],
                "user": ["x", "y", "x", "y"],
            }
        ),
        name="four",
    )
