"""Jobs of a small site with time limits."""

from __future__ import annotations

import numpy as np
import pytest

from jobtraces.generate import workload
from sim.errors import ParameterError


def test_run_times_stay_within_limits_and_shares_are_those_asked_for() -> None:
    jobs = workload("site:jobs=4000,failing=0.3,cut=0.1").make().frame
    used = (jobs["duration_s"] / jobs["time_limit_s"]).to_numpy()
    assert (used <= 1).all()
    assert (jobs["duration_s"] == 1).mean() == pytest.approx(0.3, abs=0.03)
    assert (used == 1).mean() == pytest.approx(0.1, abs=0.02)
    assert jobs["time_limit_s"].between(300, 1800).all()
    assert jobs["user"].nunique() == 5


def test_another_load_scales_the_gaps_of_the_same_jobs() -> None:
    once, twice = (workload(f"site:load={load}").make().frame for load in (1, 2))
    assert once["duration_s"].equals(twice["duration_s"])
    gpus = workload("site").machines().gpus
    for load, jobs in ((1, once), (2, twice)):
        asked = float((jobs["num_gpus"] * jobs["duration_s"]).sum())
        assert asked / gpus / jobs["submit_time_s"].max() == pytest.approx(load, rel=1e-3)
    assert np.allclose(once["submit_time_s"], 2 * twice["submit_time_s"], atol=2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gangs=1/2", "site: shares must be 2 numbers"),
        ("nodes=2", "site: gangs must be whole numbers of GPUs, at most the 16 of the cluster."),
        ("longest_min=1", "site: longest_min is below shortest_min. Exchange them."),
        ("failing=0.6,cut=0.5", "site: failing and cut must be shares with a sum of at most 1."),
    ],
)
def test_figures_that_contradict_each_other_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        workload(f"site:{text}")
