"""Bursty log-normal traces with times of whole milliseconds end under every registered
allocator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import REGISTRY, make
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.simulator import Simulator
from sim.perf.parameter_server import ParameterServer
from sim.perf.profiled import Profiled
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace

QUICK = dict.fromkeys(
    ("fifo", "easy", "sjf", "srtf", "las", "recorded", "partition", "switch", "asrpt"), 5000
)
SLOW = 500
"""Jobs of each trace: as many as a policy gets through in a few seconds."""


def bursty(jobs: int, seed: int) -> pd.DataFrame:
    """Submissions in bursts with gaps that are log-normal, like the run times; all in whole
    milliseconds.
    """
    rng = np.random.default_rng(seed)
    gap_s = rng.lognormal(0, 2, jobs) * np.where(rng.random(jobs) < 0.9, 0.05, 60)
    submit_s = np.round(np.cumsum(gap_s) - gap_s[0], 3)
    gpus = rng.choice((1, 1, 1, 2, 4, 8), jobs)
    return pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in range(jobs)],
            "submit_time_s": submit_s,
            "num_gpus": gpus,
            "duration_s": np.maximum(np.round(rng.lognormal(4.5, 1.8, jobs), 3), 0.001),
            "start_time_s": np.round(submit_s + rng.lognormal(1, 1, jobs), 3),
            "vc": rng.choice(("a", "b"), jobs),
        }
    )


def ran(spec: str, jobs: int, seed: int = 0) -> RunResult:
    """Run an allocator on such a trace, under the plainest model that it can decide by."""
    allocator, frame, cluster, perf = make(Spec.parse(spec)), bursty(jobs, seed), "4x8:v100", None
    if "servers" in allocator.needs.requires:
        frame, cluster, perf = (
            frame.assign(model="resnet50", batch_size=64.0),
            "4x8:v100/32c",
            ParameterServer(),
        )
    elif "profile" in allocator.needs.requires:
        perf = Profiled(stand_in="relative", efficiency=0.7)
        frame["model"] = "ResNet-18"
    elif "scaling" in allocator.needs.requires:
        perf = PowerLaw()
    under: dict[str, Any] = {} if perf is None else {"perf": perf}
    return Simulator(Trace.of(frame), Cluster.parse(cluster), allocator, Conditions(**under)).run()


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_a_bursty_trace_of_milliseconds_ends(name: str) -> None:
    result = ran(name, QUICK.get(name, SLOW))
    assert result.reason == "drained"
    assert set(result.jobs["outcome"]) <= {"completed", "refused"}
