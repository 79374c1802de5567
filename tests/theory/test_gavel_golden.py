"""Gavel's published simulator, run by us on the traces of its physical experiments (commit c4fa400, seed 0): the same averages within a few per cent.

Its solvers choose other shares among equally good ones, and its agnostic policies shuffle types by another generator, so single jobs differ.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from allocators.gavel import Gavel
from sim.cluster import Cluster
from sim.generate.gavel import Gavel as Workload
from sim.generate.gavel import GavelPhysical
from sim.perf.profiled import Profiled
from sim.result import RunResult
from sim.simulator import Conditions, Measure, Simulator
from sim.trace import Trace
from tests.shared import shared
from tests.sim.readers.account import checked

AWARE, AGNOSTIC = 0.03, 0.05
SEEDS = range(6)


class Averages(NamedTuple):
    jct_h: float
    makespan_h: float
    utilisation: float


GOLDEN = {
    ("artifact_evaluation", "max_min"): Averages(1.2006, 1.7781, 0.8464),
    ("artifact_evaluation", "makespan"): Averages(1.4159, 1.5722, 0.9313),
    ("max_min_fairness", "max_min"): Averages(4.062, 17.762, 0.790),
}


def averages(result: RunResult, cluster: Cluster) -> Averages:
    jobs, segments = result.jobs, result.segments
    busy_gpu_s = float(((segments["t1"] - segments["t0"]) * segments["gpus"]).sum())
    jct_s = float((jobs["finish_s"] - jobs["submit_s"]).mean())
    return Averages(jct_s / 3600, result.end_s / 3600, busy_gpu_s / (result.end_s * cluster.gpus))


@cache
def mean_of(name: str, seeds: range, **parameters: Any) -> Averages:
    made = GavelPhysical(name)
    return of(made.make(), made.machines(), seeds, **parameters)


def of(trace: Trace, cluster: Cluster, seeds: range, **parameters: Any) -> Averages:
    runs = [averages(Simulator(trace, cluster, Gavel(**parameters), Conditions(Profiled(), seed=seed)).run(), cluster) for seed in seeds]
    return Averages(*np.mean(runs, axis=0).tolist())


@pytest.mark.parametrize(("name", "objective"), GOLDEN)
def test_aware(name: str, objective: str) -> None:
    assert mean_of(name, range(1), objective=objective) == pytest.approx(GOLDEN[name, objective], rel=AWARE)


def test_agnostic() -> None:
    assert mean_of("max_min_fairness", SEEDS, aware=False) == pytest.approx((5.553, 21.428, 0.743), rel=AGNOSTIC)


@pytest.mark.slow
def test_agnostic_on_fifteen_jobs() -> None:
    # Upstream's run (1.6755 h, 2.9557 h, 0.6685) hangs on the order in which two types were shuffled while the last jobs were alone; of 200 orders ours comes
    # to 2 % of its average completion time at the most. The mean over orders stays below it, so only that it is the worse policy is checked.
    runs = mean_of("artifact_evaluation", range(20), aware=False)
    assert runs.jct_h == pytest.approx(1.6755, rel=0.1)
    assert runs.jct_h > 1.25 * mean_of("artifact_evaluation", range(1)).jct_h


def test_headline_of_the_physical_experiment() -> None:
    ratio = mean_of("max_min_fairness", SEEDS, aware=False).jct_h / mean_of("max_min_fairness", range(1)).jct_h
    assert ratio == pytest.approx(1.37, abs=0.08)


def test_makespan_of_the_physical_experiment() -> None:
    # 17.6 h simulated by upstream, as remembered from the paper.
    assert mean_of("minimize_makespan", range(1), objective="makespan").makespan_h == pytest.approx(17.6, rel=AWARE)


@pytest.mark.slow
def test_window_of_a_long_run_in_order_of_arrival() -> None:
    # No program to solve, so one answer only; the notebooks store 17.1 h, and runs of the code as published today are 1 to 5 % above them.
    trace, cluster = Workload(jobs=6000, per_h=4.0).make(), Cluster.parse("36x1:v100,36x1:p100,36x1:k80")
    conditions = Conditions(Profiled(), measure=Measure(first_job=4000, last_job=4999), stop="measured")
    jobs = Simulator(trace, cluster, Gavel(objective="fifo"), conditions).run().jobs.iloc[4000:5000]
    assert float((jobs["finish_s"] - jobs["submit_s"]).mean()) / 3600 == pytest.approx(17.1 * 1.025, rel=0.025)


@pytest.mark.parametrize("name", ["artifact_evaluation", "max_min_fairness"])
def test_the_published_trace_file_gives_the_same(name: str) -> None:
    read = checked(shared(f"traces/gavel/{name}.trace")).trace
    assert of(read, GavelPhysical(name).machines(), range(1)) == pytest.approx(mean_of(name, range(1)), rel=1e-9)


def test_the_list_of_physical_traces_is_read_as_the_same_jobs() -> None:
    listed = checked(shared("data/gavel_physical_traces.csv")).trace.frame
    own = GavelPhysical("max_min_fairness").make().frame
    same = listed[listed["vc"] == "max_min_fairness"]
    assert same["total_steps"].to_numpy(float).tolist() == own["total_steps"].to_numpy(float).tolist()
