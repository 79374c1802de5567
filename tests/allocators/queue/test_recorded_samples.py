from __future__ import annotations

import numpy as np
import pytest

from allocators import make
from sim import metrics
from sim.contract import Spec
from sim.engine.simulator import Simulator
from trainyard.traces.samples import SAMPLES, load_sample


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in SAMPLES if load_sample(name)[0].has("start_time_s")]
)
def test_the_history_of_a_sample_is_given_back_exactly(name: str) -> None:
    trace, cluster = load_sample(name)
    result = Simulator(trace, cluster, make(Spec("recorded"))).run()
    assert np.array_equal(result.jobs["first_start_s"], trace.numbers("start_time_s"))
    assert np.allclose(
        result.jobs["finish_s"] - result.jobs["first_start_s"],
        trace.numbers("duration_s"),
        rtol=1e-9,
    )
    assert metrics.summary(result, trace, cluster)["overflow_gpu_s"] == 0
