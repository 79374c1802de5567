"""Little's law and conservation of work and capacity, exact on long runs with everything going
wrong.
"""

from __future__ import annotations

import numpy as np
import pytest

from allocators import REGISTRY
from sim.metrics import capacity_gpu_s, summary
from tests.properties.invariants import littles_law
from tests.properties.runs import busy_trace, mixed_cluster, rough_run


@pytest.mark.parametrize("name", REGISTRY)
def test_littles_law_is_exact(name: str) -> None:
    in_system, jct = littles_law(rough_run(name, 2))
    assert in_system == pytest.approx(jct, rel=1e-12)
    # The same by hand: the integral of the number of jobs between events.
    jobs = rough_run(name, 2).jobs
    times = np.sort(np.concatenate([jobs["submit_s"], jobs["finish_s"]]))
    count = np.searchsorted(np.sort(jobs["submit_s"]), times, "right") - np.searchsorted(
        np.sort(jobs["finish_s"]), times, "right"
    )
    assert float((count[:-1] * np.diff(times)).sum()) == pytest.approx(
        float((jobs["finish_s"] - jobs["submit_s"]).sum()), rel=1e-12
    )


@pytest.mark.parametrize("name", REGISTRY)
def test_work_is_conserved(name: str) -> None:
    result = rough_run(name, 3)
    segments, jobs = result.segments, result.jobs
    made = (
        (segments["rate"] * (segments["t1"] - segments["t0"] - segments["paused_s"]))
        .groupby(segments["job"])
        .sum()
    )
    # Ends are whole microseconds: half a one too early or late for each segment of a job.
    assert made.to_numpy() == pytest.approx((jobs["work"] + jobs["lost_work"]).to_numpy(), abs=1e-5)
    assert jobs["lost_work"].sum() > 0
    evicted = jobs["evictions"] > 0
    assert (jobs.loc[~evicted, "lost_work"] == 0).all()


@pytest.mark.parametrize("name", [name for name in REGISTRY if name != "recorded"])
def test_utilisation_is_bounded(name: str) -> None:
    result, trace, cluster = rough_run(name, 4), busy_trace(150, 1), mixed_cluster()
    figures = summary(result, trace, cluster)
    assert 0 < figures["utilisation"] <= 1
    assert 0 < figures["utilisation_to_end"] <= 1
    capacity = capacity_gpu_s(result, cluster, 0.0, result.end_s).sum()
    assert result.jobs["served_gpu_s"].sum() <= capacity
    # Nobody can be ready earlier than the work needs on the fastest type, with all GPUs busy.
    needed = float((result.jobs["work"] * result.jobs["gpus"]).sum()) / 2.0
    assert result.end_s >= needed / cluster.gpus
    # The same of each job: copies of a forked one may be faster together, but hold so many more
    # GPUs.
    assert (
        result.jobs["served_gpu_s"] >= result.jobs["work"] * result.jobs["gpus"] / 2.0 - 1e-6
    ).all()
