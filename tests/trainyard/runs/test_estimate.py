from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sim.cluster import Cluster, NodeGroup
from sim.engine.fast import compiled
from sim.params import Spec
from sim.trace import Trace
from trainyard.runs import estimate
from trainyard.runs.engines import SETTING
from trainyard.runs.estimate import Costs, Estimate, JobCost, smaller_traces
from trainyard.runs.run import run
from trainyard.store import Store, StoredResult
from trainyard.store.files import Folder
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the general simulator make all runs, expected without a queue."""
    monkeypatch.setenv(SETTING, "kernel")
    monkeypatch.setattr(estimate, "mean_waiting", lambda trace, cluster: 0.0)


def ran(policy: str | Spec, jobs: int, cpu_s: float, engine: str = "kernel") -> StoredResult:
    """Return a result of a busy machine: its run took 25 times its CPU seconds."""
    facts: Any = {"timing": {"wall_s": 25 * cpu_s, "cpu_s": cpu_s, "engine": engine}}
    scenario = {"allocator": (Spec(policy) if isinstance(policy, str) else policy).to_json()}
    return StoredResult("k", Folder(Path()), {}, {"jobs": jobs}, scenario, facts)


def test_the_largest_run_of_a_policy_says_what_a_job_costs() -> None:
    costs = Costs()
    assert costs.per_job_s(Spec("fifo"), "kernel") is None
    costs.record(ran("fifo", 12, 99.0))
    assert costs.per_job_s(Spec("fifo"), "kernel") is None
    costs.record(ran("fifo", 10_000, 2.0))
    costs.record(ran("fifo", 1_000, 99.0))
    assert costs.per_job_s(Spec("fifo"), "kernel") == 2e-4


def test_cpu_seconds_of_the_worker_count_and_not_the_wait_for_a_busy_machine() -> None:
    costs = Costs()
    # The simulation took 0.2 CPU s, the worker 0.24 with reading and writing: 240 us per job.
    costs.record(ran("easy", 1_000, 0.2), 0.24)
    assert costs.per_job_s(Spec("easy"), "kernel") == pytest.approx(2.4e-4)


def test_each_engine_has_its_own_costs() -> None:
    costs = Costs()
    costs.record(ran("fifo", 20_000, 0.1, "fast"))
    costs.record(ran("fifo", 10_000, 1.0))
    costs.record(ran("fifo", 9_999, 9.9, "fast"))  # too few for the fast engine
    assert costs.per_job_s(Spec("fifo"), "fast") == 5e-6
    assert costs.per_job_s(Spec("fifo"), "kernel") == 1e-4
    assert costs.per_job_s(Spec("fifo"), "other") is None


def test_a_policy_around_others_costs_what_it_holds() -> None:
    costs = Costs()
    costs.record(ran(Spec.of("rounds", inner=Spec("fifo")), 10_000, 1.0))
    other = Spec.of("fifo", backfill="first_fit")
    assert costs.per_job_s(Spec.of("rounds", inner=other), "kernel") == 1e-4
    assert costs.per_job_s(Spec.of("rounds", inner=Spec("hadar")), "kernel") is None


@pytest.mark.usefixtures("kernel")
def test_runs_share_the_processes_and_the_longest_policy_sets_the_least_time(store: Store) -> None:
    study = replace(
        new_study.sample_study("tiny"),
        allocators=(Spec("fifo"), Spec("srtf"), Spec("easy")),
        repeats=2,
    )
    costs = Costs()
    costs.record(ran("fifo", 1_000, 1.0))
    costs.record(ran("srtf", 1_000, 7.0))
    costs.record(ran("easy", 1_000, 2.0))
    told = estimate.estimate(study, store, costs, workers=4)
    # 12 jobs x 2 seeds x (1 + 7 + 2) ms over 4 processes = 60 ms; one run of SRTF takes 12 x 7 = 84
    # ms.
    assert told.seconds == pytest.approx(0.084)
    assert estimate.estimate(study, store, costs, workers=2).seconds == pytest.approx(0.12)
    assert (told.jobs, told.runs, told.is_measured, told.large) == (12, 6, True, False)
    assert told.memory_gb == pytest.approx(4 * (0.15 + 12 * 2.5e-6))
    unknown = estimate.estimate(
        replace(study, allocators=(Spec("las"),), baseline=0, repeats=1), store, costs, workers=4
    )
    assert (unknown.seconds, unknown.is_measured) == (pytest.approx(8e-3 + 12 * 4.9e-5), False)


@pytest.mark.usefixtures("kernel")
def test_a_policy_that_has_not_run_here_has_its_usual_cost(store: Store) -> None:
    study = replace(
        new_study.sample_study("tiny"), allocators=(Spec("fifo"), Spec("hadar")), baseline=0
    )
    # 8 ms per run and 12 jobs x (17 + 630) us one after the other; on two processes Hadar's.
    fifo_s, hadar_s = 8e-3 + 12 * 1.7e-5, 8e-3 + 12 * 6.3e-4
    assert estimate.estimate(study, store, Costs(), 1).seconds == pytest.approx(fifo_s + hadar_s)
    assert estimate.estimate(study, store, Costs(), 2).seconds == pytest.approx(hadar_s)
    costs = Costs()
    costs.record(ran("hadar", 1_000, 2.0))
    learned_s = fifo_s + 12 * 2e-3
    assert estimate.estimate(study, store, costs, 1).seconds == pytest.approx(learned_s)


def test_the_engine_that_will_run_decides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides 8 ms, 100,000 jobs of FIFO take 100,000 x 1 us = 0.1 s on the fast engine, and on the
    general simulator 100,000 x 17 us = 1.7 s.
    """
    rows = pd.DataFrame(
        {
            "job_id": [str(at) for at in range(100_000)],
            "submit_time_s": [60.0 * at for at in range(100_000)],
            "num_gpus": 1,
            "duration_s": 30.0,
        }
    )
    large = TraceSpec(f"store:{store.put_trace(Trace.of(rows))}")
    base = replace(new_study.sample_study("tiny").base, trace=large, allocator=Spec("fifo"))
    monkeypatch.setattr(compiled, "is_warm", lambda loop: True)
    monkeypatch.setenv(SETTING, "auto")

    def seconds(**changes: Any) -> float:
        return estimate.run_seconds(replace(base, **changes), store, Costs())

    assert seconds() == pytest.approx(0.108)
    # No rule, or conditions that only the general simulator knows.
    assert seconds(allocator=Spec("conservative")) == pytest.approx(5.008)
    assert seconds(faults=Spec("faults", {"mtbf_h": 1e9})) == pytest.approx(0.108)
    interrupted = Spec("faults", {"interruptions_per_node_h": 1e-9})
    assert seconds(faults=interrupted) == pytest.approx(1.708)
    trace = load_trace(large, store)
    assert estimate.usual_seconds(base, trace) == pytest.approx(0.108)
    assert estimate.usual_seconds(base, trace, "kernel") == pytest.approx(1.708)
    # Not compiled yet: as slow as the general simulator.
    monkeypatch.setattr(compiled, "is_warm", lambda loop: False)
    assert seconds() == pytest.approx(1.708)


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative", "kueue"])
def test_usual_costs_match_counted_function_calls(policy: str) -> None:
    """A call of a function takes about 0.25 us in all of them. With 300 jobs in a queue the
    usual cost must be within a factor of three of the calls.
    """
    rows = pd.DataFrame(
        {
            "job_id": [str(at) for at in range(300)],
            "submit_time_s": [float(at) for at in range(300)],
            "num_gpus": [1 << at % 4 for at in range(300)],
            "duration_s": [60.0 + at * 7919 % 7000 for at in range(300)],
        }
    )
    trace, cluster = Trace.of(rows), Cluster((NodeGroup(4, 8, "v100"),))
    scenario = Scenario(TraceSpec("sample:tiny"), cluster, Spec(policy))
    calls = 0

    def count(_frame: object, event: str, _value: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run(scenario, trace=trace, engine="kernel")
    finally:
        sys.setprofile(None)
    counted_ms = calls / 300 * 0.25e-3
    usual_ms = estimate.usual_seconds(scenario, trace, "kernel") / 300 * 1e3
    assert counted_ms / 3 < usual_ms < 3 * counted_ms


def test_a_policy_around_others_takes_as_long_as_the_slowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = {"hadar": JobCost(5.0), "hadare": JobCost(1.0, 100.0)}
    monkeypatch.setattr(estimate, "JOB_COSTS", table)
    assert estimate.usual_job_s(Spec.of("rounds", inner=Spec("hadar"))) == 5e-3
    both = Spec.of("switch", first=Spec("hadar"), then=Spec("hadare"))
    # With 70 jobs waiting HadarE takes 1 + 70 x 0.1 = 8 ms per job.
    assert [estimate.usual_job_s(both, waiting=jobs) for jobs in (0, 70)] == [5e-3, 8e-3]


def test_policies_without_a_usual_cost_share_one() -> None:
    assert estimate.usual_job_s(Spec("site_rule")) == 5e-5


def test_waiting_jobs_follow_from_the_gpu_time_requested() -> None:
    """Two jobs of 10 s come every 10 s: on one GPU each second adds a GPU-second of backlog, so the
    jobs of 0, 10, 20, 30 and 40 s start at 0, 20, 40, 60 and 80 s.
    """
    rows = {"job_id": [str(job) for job in range(10)], "num_gpus": 1, "duration_s": 10.0}
    submit_s = [10.0 * (job // 2) for job in range(10)]
    trace = Trace.of(pd.DataFrame(rows | {"submit_time_s": submit_s}))
    # Started by 0, 10, 20, 30 and 40 s: 2, 2, 4, 4 and 6 jobs.
    waiting = [0, 0, 0, 1, 0, 1, 2, 3, 2, 3]
    one, two = (Cluster((NodeGroup(nodes, 1, "v100"),)) for nodes in (1, 2))
    assert estimate.mean_waiting(trace, one) == pytest.approx(sum(waiting) / 10)
    assert estimate.mean_waiting(trace, two) == 0.0
    # Jobs of 8 GPUs can never run here, and the others do not wait for them.
    mixed = trace.frame.assign(num_gpus=[8, 1] * 5)
    assert estimate.mean_waiting(Trace.of(mixed), one) == 0.0
    # The same on cores, for jobs and nodes without GPUs.
    cores = Trace.of(trace.frame.assign(num_gpus=0, cpus=2.0))
    node = Cluster((NodeGroup(1, 0, "", cpus=2.0),))
    assert estimate.mean_waiting(cores, node) == pytest.approx(sum(waiting) / 10)


@pytest.mark.parametrize(
    ("seconds", "memory_gb", "large"), [(59, 0.9, False), (61, 0.9, True), (5, 1.1, True)]
)
def test_what_is_large(seconds: float, memory_gb: float, large: bool) -> None:
    assert Estimate(1, 1, seconds, memory_gb, is_measured=True).large == large


def test_what_may_be_run_instead() -> None:
    spec = TraceSpec("store:00000000", from_s=100.0, load=2.0)
    assert smaller_traces(spec, 140_000, 8 * 86_400) == {}
    found = smaller_traces(spec, 1_200_000, 60 * 86_400)
    assert found == {
        "a random 100,000": replace(spec, sample=100_000),
        "the first week": replace(spec, to_s=100.0 + 14 * 86_400),
    }


def test_seconds_left_are_told_after_a_while() -> None:
    assert estimate.seconds_left((10.0, 0.1), (12.0, 0.5)) is None
    assert estimate.seconds_left((10.0, 0.1), (14.0, 0.1)) is None
    # 0.4 in 4 s, so the last 0.5 take 5 s.
    assert estimate.seconds_left((10.0, 0.1), (14.0, 0.5)) == pytest.approx(5.0)
