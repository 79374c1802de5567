"""Gavel's published simulator, run by us on the traces of its physical experiments (commit c4fa400,
seed 0): the same averages within a few per cent.

Figures of the simulator are those of ../shared/specs/heterogeneous.md, section 1.13, and of the
issue that asked for more of them; `AGAIN` are those of our own writing of its loop with its solver
(ECOS 2.0.10), which comes to the same four digits wherever both are known. What is left of a
difference: progress is fluid here, and jobs that are alike tie.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from allocators.heterogeneous.gavel.policy import Gavel
from allocators.heterogeneous.timeshare.fluid import JobsSnapshot
from jobtraces.generate.gavel import GavelPhysical
from jobtraces.generate.gavel import GavelWorkload as Workload
from sim.cluster import Cluster
from sim.contract import Shape
from sim.engine.simulator import Conditions, Measure, Simulator
from sim.perf.profiled import Profiled
from sim.result import RunResult
from sim.trace import Trace
from tests.jobtraces.readers.account import checked
from tests.shared import shared
from tests.theory.published_rounds import Job, Loop

CLOSE = 0.02
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
FAIR = "finish_time_fairness"
AGAIN = {
    ("artifact_evaluation", FAIR, False): Averages(1.5405, 2.3555, 0.8041),
    ("artifact_evaluation", FAIR, True): Averages(1.3108, 1.9680, 0.8116),
    ("artifact_evaluation", "max_sum_throughput", True): Averages(1.2726, 2.3102, 0.7829),
    ("max_min_fairness", FAIR, False): Averages(5.4439, 20.9818, 0.7576),
    ("max_min_fairness", FAIR, True): Averages(4.1693, 18.0476, 0.7386),
    ("max_min_fairness", "max_sum_throughput", True): Averages(4.7421, 17.7604, 0.7855),
    ("max_min_fairness", "makespan", True): Averages(6.3813, 17.0868, 0.8261),
    ("minimize_makespan", "makespan", True): Averages(17.7152, 17.9780, 0.9912),
    ("minimize_makespan", FAIR, False): Averages(10.8595, 21.9072, 0.9474),
    ("minimize_makespan", FAIR, True): Averages(10.0926, 19.5557, 0.9315),
    ("minimize_makespan", "max_min", False): Averages(10.4898, 22.9788, 0.9084),
    ("minimize_makespan", "max_min", True): Averages(9.9053, 19.0565, 0.9374),
    ("minimize_makespan", "max_sum_throughput", True): Averages(10.2579, 22.4851, 0.8145),
}
"""The first JCT is also upstream's own, as the issue gives it."""
FIFO = Averages(21.99, 261.4, 0.3242)
"""60 generated jobs with gangs on 8 GPUs of each type: the first two are upstream's own."""
GENERATED = Cluster.parse("8x1:v100,6x1:p100,8x1:k80")
EIGHT = Cluster.parse("8x1:v100,8x1:p100,8x1:k80")
LATE_S = 161.0


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
    parameters = {"faithful": True} | parameters
    runs = [
        averages(
            Simulator(trace, cluster, Gavel(**parameters), Conditions(Profiled(), seed=seed)).run(),
            cluster,
        )
        for seed in seeds
    ]
    return Averages(*np.mean(runs, axis=0).tolist())


@pytest.mark.parametrize(("name", "objective", "aware"), [*GOLDEN, *AGAIN])
def test_published_averages(name: str, objective: str, aware: bool) -> None:
    # On fifteen jobs the agnostic run hangs on upstream's very order of types in each round, on
    # time being counted by whole iterations, and on which of equally good shares are taken.
    made = mean_of(name, range(1), objective=objective, aware=aware)
    published = (GOLDEN | AGAIN)[name, objective, aware]
    assert made == pytest.approx(published, rel=CLOSE)


@pytest.mark.parametrize("faithful", [True, False])
def test_a_head_that_cannot_use_what_is_free_lets_others_pass(faithful: bool) -> None:
    trace = Workload(jobs=60, per_h=0.5, multi_gpu=True).make()
    assert of(trace, EIGHT, range(1), objective="fifo", faithful=faithful) == pytest.approx(
        FIFO, rel=0.01
    )


def loop_of(
    trace: Trace,
    cluster: Cluster,
    *,
    aware: bool = True,
    whole: bool = False,
    objective: str = "max_min",
    first_s: float = 0.0,
) -> Loop:
    """The published loop, with the shares of `Gavel`, whose objectives have witnesses of their
    own.
    """
    gangs, submit_s, model = (
        trace.numbers("num_gpus").astype(int),
        trace.numbers("submit_time_s"),
        Profiled().bind(trace, cluster),
    )
    kinds = [
        cluster.type_index[kind] for kind in ("v100", "p100", "k80") if kind in cluster.type_index
    ]
    gpus = [
        sum(node.gpus for node in cluster.nodes if cluster.type_index[node.gpu_type] == kind)
        for kind in kinds
    ]
    shapes = [
        [Shape(tuple([int(gang) * (at == kind) for at in range(len(kinds))]), 1) for kind in kinds]
        for gang in gangs
    ]
    rates = np.array(
        [model.rates(np.array([job]), shape)[0] for job, shape in enumerate(shapes)]
    ) * (gangs[:, None] <= np.array(gpus))
    allocator = Gavel(objective=objective, aware=aware, faithful=True)
    weights, ordered = np.nan_to_num(trace.numbers("priority"), nan=1.0), objective != "isolated"

    def shares(here: list[int]) -> Any:
        seen = rates[here] if aware and ordered else (rates[here] > 0).astype(float)
        return allocator.shares(
            JobsSnapshot(
                np.array(here),
                gangs[here],
                seen,
                np.array(gpus),
                np.ones(len(gpus)),
                weights[here],
                np.zeros(len(here)),
            ),
            RNG,
        )

    columns = zip(
        (submit_s + first_s).tolist(),
        gangs.tolist(),
        model.work().tolist(),
        rates.tolist(),
        strict=True,
    )
    jobs = [Job(arrival_s, gang, steps, tuple(rate)) for arrival_s, gang, steps, rate in columns]
    order = None if aware and ordered else Random(5)
    return Loop(jobs, gpus, shares, order, whole=whole, fifo=objective == "fifo")


def looped(trace: Trace, cluster: Cluster, *, aware: bool, whole: bool) -> Averages:
    return Averages(*loop_of(trace, cluster, aware=aware, whole=whole).run())


def varied(seed: int, jobs: int = 40, per_h: float = 15) -> Trace:
    """Jobs of the same kind would tie, and then the last digit decides: all have weights of their
    own.
    """
    made = Workload(jobs=jobs, per_h=per_h, multi_gpu=True, seed=seed).make()
    return Trace.of(
        made.frame.assign(priority=np.random.default_rng(seed).uniform(1, 2, len(made)))
    )


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_are_those_of_the_published_loop(seed: int, aware: bool) -> None:
    trace = varied(seed)
    assert of(trace, GENERATED, range(1), aware=aware) == pytest.approx(
        looped(trace, GENERATED, aware=aware, whole=False), rel=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["fifo", "max_min", "isolated"])
@pytest.mark.parametrize("first_s", [0.0, LATE_S])
def test_every_job_ends_when_the_published_loop_ends_it(objective: str, first_s: float) -> None:
    """From a clock at 0 and from one at 161 s: only at 0 are the first shares taken for none."""
    made = varied(1, jobs=60, per_h=6)
    trace = Trace.of(made.frame.assign(submit_time_s=made.numbers("submit_time_s") + first_s))
    assert trace.from_zero is (first_s == 0)
    run = Simulator(
        trace, GENERATED, Gavel(objective=objective, faithful=True), Conditions(Profiled())
    ).run()
    loop = loop_of(trace, GENERATED, objective=objective, first_s=first_s)
    loop.run()
    expected = [loop.finish_s[job] - first_s for job in range(len(trace))]
    assert run.jobs["finish_s"].tolist() == pytest.approx(expected, abs=1e-3)


def test_the_clock_at_zero_matters() -> None:
    made = GavelPhysical("artifact_evaluation")
    trace, later = (
        made.make(),
        Trace.of(
            made.make().frame.assign(submit_time_s=made.make().numbers("submit_time_s") + LATE_S)
        ),
    )
    of_both = [of(it, made.machines(), range(1), objective=FAIR).jct_h for it in (trace, later)]
    # 1.2068 h by our own writing of the loop with upstream's solver and no such oddity.
    assert of_both == pytest.approx([1.3108, 1.2068], rel=0.01)


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("name", ["artifact_evaluation", "max_min_fairness"])
def test_what_it_changes_that_jobs_stop_with_whole_iterations(name: str, aware: bool) -> None:
    made = GavelPhysical(name)
    published = looped(made.make(), made.machines(), aware=aware, whole=True)
    assert published == pytest.approx(GOLDEN[name, "max_min", aware], rel=CLOSE)
    assert mean_of(name, range(1), aware=aware) == pytest.approx(published, rel=0.011)


@pytest.mark.slow
def test_headline_of_the_physical_experiment() -> None:
    ratio = (
        mean_of("max_min_fairness", SEEDS, aware=False).jct_h
        / mean_of("max_min_fairness", range(1)).jct_h
    )
    assert ratio == pytest.approx(1.37, abs=0.08)


@pytest.mark.slow
def test_makespan_of_the_physical_experiment() -> None:
    # 17.6 h simulated by upstream, as remembered from the paper.
    assert mean_of("minimize_makespan", range(1), objective="makespan").makespan_h == pytest.approx(
        17.6, rel=0.03
    )


@pytest.mark.slow
def test_window_of_a_long_run_in_order_of_arrival() -> None:
    # No program to solve, so one answer only; the notebooks store 17.1 h, and runs of the code as
    # published today are 1 to 5 % above them.
    trace, cluster = (
        Workload(jobs=6000, per_h=4.0).make(),
        Cluster.parse("36x1:v100,36x1:p100,36x1:k80"),
    )
    conditions = Conditions(
        Profiled(), measure=Measure(first_job=4000, last_job=4999), stop="measured"
    )
    jobs = (
        Simulator(trace, cluster, Gavel(objective="fifo", faithful=True), conditions)
        .run()
        .jobs.iloc[4000:5000]
    )
    assert float((jobs["finish_s"] - jobs["submit_s"]).mean()) / 3600 == pytest.approx(
        17.1 * 1.025, rel=0.025
    )


@pytest.mark.parametrize("name", ["artifact_evaluation", "max_min_fairness"])
def test_the_published_trace_file_gives_the_same(name: str) -> None:
    read = checked(shared(f"traces/gavel/{name}.trace")).trace
    assert of(read, GavelPhysical(name).machines(), range(1)) == pytest.approx(
        mean_of(name, range(1)), rel=1e-9
    )


def test_the_list_of_physical_traces_is_read_as_the_same_jobs() -> None:
    listed = checked(shared("data/gavel_physical_traces.csv")).trace.frame
    own = GavelPhysical("max_min_fairness").make().frame
    same = listed[listed["vc"] == "max_min_fairness"]
    assert (
        same["total_steps"].to_numpy(float).tolist() == own["total_steps"].to_numpy(float).tolist()
    )
