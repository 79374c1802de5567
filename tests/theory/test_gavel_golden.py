"""Gavel's published simulator, run by us on the traces of its physical experiments (commit c4fa400, seed 0): the same averages within a few per cent.

Its solvers choose other shares among equally good ones, so single jobs differ.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from allocators.fluid import Standing
from allocators.gavel import Gavel
from sim.cluster import Cluster
from sim.contract import Shape
from sim.generate.gavel import Gavel as Workload
from sim.generate.gavel import GavelPhysical
from sim.perf.profiled import Profiled
from sim.result import RunResult
from sim.simulator import Conditions, Measure, Simulator
from sim.trace import Trace
from tests.shared import shared
from tests.sim.readers.account import checked
from tests.theory.published_rounds import Job, Loop

AWARE, AGNOSTIC = 0.03, 0.05
SEEDS = range(6)
RNG = np.random.default_rng(0)


class Averages(NamedTuple):
    jct_h: float
    makespan_h: float
    utilisation: float


GOLDEN = {
    ("artifact_evaluation", "max_min", True): Averages(1.2006, 1.7781, 0.8464),
    ("artifact_evaluation", "makespan", True): Averages(1.4159, 1.5722, 0.9313),
    ("artifact_evaluation", "max_min", False): Averages(1.6755, 2.9557, 0.6685),
    ("max_min_fairness", "max_min", True): Averages(4.062, 17.762, 0.790),
    ("max_min_fairness", "max_min", False): Averages(5.553, 21.428, 0.743),
}
GENERATED = Cluster.parse("8x1:v100,6x1:p100,8x1:k80")


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


@pytest.mark.parametrize(("name", "objective", "aware"), GOLDEN)
def test_published_averages(name: str, objective: str, aware: bool) -> None:
    # On fifteen jobs the agnostic run hangs on upstream's very order of types in each round, and on time being counted by whole iterations.
    assert mean_of(name, range(1), objective=objective, aware=aware) == pytest.approx(GOLDEN[name, objective, aware], rel=AWARE if aware else AGNOSTIC)


def looped(trace: Trace, cluster: Cluster, *, aware: bool, whole: bool) -> Averages:
    """Averages of the published loop, with the shares of `Gavel`, whose objectives have witnesses of their own."""
    gangs, submit_s, model = trace.numbers("num_gpus").astype(int), trace.numbers("submit_time_s"), Profiled().bind(trace, cluster)
    kinds = [cluster.type_index[kind] for kind in ("v100", "p100", "k80") if kind in cluster.type_index]
    gpus = [sum(node.gpus for node in cluster.nodes if cluster.type_index[node.gpu_type] == kind) for kind in kinds]
    shapes = [[Shape(tuple([int(gang) * (at == kind) for at in range(len(kinds))]), 1) for kind in kinds] for gang in gangs]
    rates = np.array([model.rates(np.array([job]), shape)[0] for job, shape in enumerate(shapes)]) * (gangs[:, None] <= np.array(gpus))
    allocator, weights = Gavel(aware=aware), np.nan_to_num(trace.numbers("priority"), nan=1.0)

    def shares(here: list[int]) -> Any:
        seen = rates[here] if aware else (rates[here] > 0).astype(float)
        return allocator.shares(Standing(np.array(here), gangs[here], seen, np.array(gpus), np.ones(len(gpus)), weights[here], np.zeros(len(here))), RNG)

    columns = zip(submit_s.tolist(), gangs.tolist(), model.work().tolist(), rates.tolist(), strict=True)
    jobs = [Job(arrival_s, gang, steps, tuple(rate)) for arrival_s, gang, steps, rate in columns]
    return Averages(*Loop(jobs, gpus, shares, None if aware else Random(5), whole=whole).run())


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_are_those_of_the_published_loop(seed: int, aware: bool) -> None:
    made = Workload(jobs=40, per_h=15, multi_gpu=True, seed=seed).make()
    # Jobs of the same kind would tie, and then the last digit decides.
    trace = Trace.of(made.frame.assign(priority=np.random.default_rng(seed).uniform(1, 2, len(made))))
    assert of(trace, GENERATED, range(1), aware=aware) == pytest.approx(looped(trace, GENERATED, aware=aware, whole=False), rel=1e-6)


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("name", ["artifact_evaluation", "max_min_fairness"])
def test_what_it_changes_that_jobs_stop_with_whole_iterations(name: str, aware: bool) -> None:
    made = GavelPhysical(name)
    published = looped(made.make(), made.machines(), aware=aware, whole=True)
    assert published == pytest.approx(GOLDEN[name, "max_min", aware], rel=AWARE if aware else AGNOSTIC)
    assert mean_of(name, range(1), aware=aware) == pytest.approx(published, rel=0.01)


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
