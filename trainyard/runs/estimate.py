"""Estimates the time and memory of runs from earlier runs or a table of usual costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from typing import Final, NamedTuple

import numpy as np

from sim.cluster import Cluster
from sim.engine.fast import runner
from sim.errors import TrainyardError
from sim.params import Spec
from sim.trace import Trace
from trainyard.runs.engines import LARGE, expected_engine
from trainyard.runs.run import conditions
from trainyard.store import Store, StoredResult
from trainyard.study import catalog
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace

JOB_GB: Final = 2.5e-6
BASE_GB: Final = 0.15
"""Memory of a worker process: per job, measured with 100,000 jobs, and without jobs."""
LONG_S: Final = 60.0
MUCH_GB: Final = 1.0
"""Estimates above these ask for confirmation before a run starts."""
SAMPLE: Final = 100_000
WEEK_S: Final = 7 * 86_400.0
TELLING_S: Final = 3.0
"""Seconds of a run to observe before predicting its end."""
_FEW: Final = 200
"""Minimum jobs of a run to learn costs from; `engines.LARGE` on the fast engine. Start-up
dominates smaller runs.
"""
RUN_S: Final = 0.008
"""Fixed CPU seconds per run."""


class JobCost(NamedTuple):
    """Usual CPU time of a run per job.

    Parameters
    ----------
    ms : float, milliseconds
        On the general engine without a queue.
    queue_us : float, microseconds
        Added on the general engine by each job that waits.
    fast_us : float, microseconds
        On the compiled fast engine.
    """

    ms: float = 0.05
    queue_us: float = 0.3
    fast_us: float = 1.0


JOB_COSTS: Final[Mapping[str, JobCost]] = {
    "fifo": JobCost(0.017, 0.0),
    "sjf": JobCost(0.02, 0.0),
    "easy": JobCost(0.029, 0.07),
    "slurm": JobCost(0.2, 31.0),
    "kai": JobCost(0.094, 3.4),
    "kueue": JobCost(0.058, 2.4),
    "srtf": JobCost(0.058, 0.4, fast_us=3.0),
    "las": JobCost(0.049, 0.8, fast_us=3.0),
    "mip_elastic": JobCost(0.41, 1.9),
    "greedy_elastic": JobCost(0.065, 0.0),
    "dp_elastic": JobCost(0.18, 1.2),
    "gavel": JobCost(0.11, 0.2),
    "hadar": JobCost(0.63, 0.0),
    "hadare": JobCost(1.2, 0.0),
    "asrpt": JobCost(0.037, 0.0),
    "aiturbo": JobCost(1.0, 6.0),
    "optimus": JobCost(1.0, 0.0),
    "dlrover": JobCost(0.11, 0.0),
    "partition": JobCost(0.072, 0.0),
    "switch": JobCost(0.04, 0.0),
    "rounds": JobCost(0.016, 0.0),
}
"""Policy -> usual cost until it has run on this machine, fitted to the figures of ``python -m
benchmarks estimates --fit``; other policies have the default.
"""


@dataclass(frozen=True)
class Estimate:
    """Expected time and memory of a study.

    Parameters
    ----------
    jobs, runs : int
        Jobs of the trace, and number of simulations.
    seconds : float, seconds
        Time until the last run ends on an idle machine.
    memory_gb : float, GB
        Total of all worker processes.
    is_measured : bool
        Whether every policy runs on the fast engine or has run here before; otherwise usual
        costs are used.
    """

    jobs: int
    runs: int
    seconds: float
    memory_gb: float
    is_measured: bool

    @property
    def large(self) -> bool:
        """Whether the run needs confirmation by the user."""
        return self.seconds > LONG_S or self.memory_gb > MUCH_GB


class Costs:
    """CPU seconds per job by policy and engine, from the largest run of each."""

    def __init__(self) -> None:
        self._measured: dict[tuple[str, str], tuple[int, float]] = {}

    def record(self, entry: StoredResult, cpu_s: float | None = None) -> None:
        """Record the CPU seconds per job of a result, if none of its policy and engine is larger.

        Without `cpu_s` only the simulation counts. Small runs are ignored.
        """
        jobs = int(entry.summary["jobs"])
        key = _policy_path(Spec.from_json(entry.scenario["allocator"])), entry.engine
        fewest = LARGE if entry.engine == "fast" else _FEW
        if jobs >= max(fewest, self._measured.get(key, (0, 0.0))[0]):
            spent_s = float(entry.provenance["timing"]["cpu_s"]) if cpu_s is None else cpu_s
            self._measured[key] = jobs, spent_s / jobs

    def per_job_s(self, policy: Spec, engine: str) -> float | None:
        """Return the CPU seconds per job of a policy on an engine, None if not measured.

        Policies with equal names, and equal names of nested policies, share their costs.
        """
        return self._measured.get((_policy_path(policy), engine), (0, None))[1]


def _nested_policies(spec: Spec) -> list[Spec]:
    """Return the policies among the parameters of a policy."""
    return [
        value
        for _, values in spec.params
        for value in (values if isinstance(values, tuple) else (values,))
        if isinstance(value, Spec)
    ]


def _policy_path(spec: Spec) -> str:
    """Return the names of a policy and its nested policies, joined by "/"."""
    return "/".join([spec.name, *map(_policy_path, _nested_policies(spec))])


def usual_job_s(spec: Spec, engine: str = "kernel", waiting: float = 0.0) -> float:
    """Return the usual CPU seconds per job of a policy at a mean number of waiting jobs.

    With nested policies it is their maximum.
    """
    cost = JOB_COSTS.get(spec.name, JobCost())
    own_us = cost.fast_us if engine == "fast" else 1e3 * cost.ms + cost.queue_us * waiting
    nested_s = [usual_job_s(nested, engine, waiting) for nested in _nested_policies(spec)]
    return max([own_us / 1e6, *nested_s])


def mean_waiting(trace: Trace, cluster: Cluster) -> float:
    """Return the mean number of waiting jobs at submissions if GPU time was a fluid.

    GPU time requested beyond the cluster's is a backlog; a job starts when the backlog that it
    finds is done. Without GPUs it is core time. Jobs larger than the cluster do not count. The mean
    is within about a third of that of FIFO.
    """
    units, wanted = float(cluster.gpus), trace.numbers("num_gpus")
    if not units:
        units = sum(node.cpus for node in cluster.nodes)
        wanted = trace.numbers("cpus", missing=0.0)
    wanted = np.where(wanted > units, 0.0, wanted)
    if not wanted.any() or not isfinite(units):
        return 0.0
    submit_s = trace.numbers("submit_time_s")
    times_s = np.concatenate((submit_s, submit_s + trace.numbers("duration_s")))
    order = np.argsort(times_s, kind="stable")
    excess = np.cumsum(np.concatenate((wanted, -wanted))[order]) - units
    inflow = np.concatenate(([0.0], np.cumsum(excess[:-1] * np.diff(times_s[order]))))
    backlog_s = (inflow - np.minimum.accumulate(inflow))[order < len(trace)]
    start_s = np.maximum.accumulate(submit_s + backlog_s / units)
    num_starts = np.searchsorted(start_s, submit_s, side="right")
    return float(np.maximum(np.arange(len(trace)) - num_starts, 0).mean())


def usual_seconds(scenario: Scenario, trace: Trace, engine: str = "") -> float:
    """Return the usual CPU seconds of a run, regardless of earlier runs.

    `engine` is as for `trainyard.runs.run.run`.
    """
    run_engine = expected_engine(engine, loop=_fast_loop(scenario, trace, None))
    waiting = mean_waiting(trace, scenario.cluster) if run_engine != "fast" else 0.0
    return RUN_S + len(trace) * usual_job_s(scenario.allocator, run_engine, waiting)


def run_seconds(scenario: Scenario, store: Store, costs: Costs) -> float:
    """Return the expected CPU seconds of a run on the engine that will make it.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    return _run_seconds(scenario, store, costs)[0]


def _run_seconds(scenario: Scenario, store: Store, costs: Costs) -> tuple[float, bool]:
    """Return the expected CPU seconds of a run, and whether they are measured here."""
    jobs = len(load_trace(scenario.trace, store))
    engine = expected_engine(loop=_cached_loop(replace(scenario, seed=0), store))
    seen_s = costs.per_job_s(scenario.allocator, engine)
    if seen_s is not None:
        return jobs * seen_s, True
    if engine == "fast":
        return RUN_S + jobs * usual_job_s(scenario.allocator, engine), True
    waiting = _cached_waiting(scenario.trace, scenario.cluster, store)
    return RUN_S + jobs * usual_job_s(scenario.allocator, engine, waiting), False


@lru_cache(maxsize=512)
def _cached_loop(scenario: Scenario, store: Store) -> str:
    """Return `_fast_loop` of a scenario with a stored trace."""
    return _fast_loop(scenario, load_trace(scenario.trace, store), store)


@lru_cache(maxsize=64)
def _cached_waiting(spec: TraceSpec, cluster: Cluster, store: Store) -> float:
    """Return `mean_waiting` of a stored trace."""
    return mean_waiting(load_trace(spec, store), cluster)


def _fast_loop(scenario: Scenario, trace: Trace, store: Store | None) -> str:
    """Return the loop of the fast engine that accepts a scenario; "" = none."""
    try:
        allocator = catalog.instance("allocator", scenario.allocator)
        lane = runner.prepare_run(trace, scenario.cluster, allocator, conditions(scenario, store))
    except TrainyardError:
        return ""  # if no engine accepts it, the run says why
    return runner.loop_name(lane.rule)


def estimate(study: Study, store: Store, costs: Costs, workers: int) -> Estimate:
    """Return the expected time and memory of a study on a number of processes.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    jobs = len(load_trace(study.base.trace, store))
    expected = [
        _run_seconds(replace(study.base, allocator=spec), store, costs) for spec in study.allocators
    ]
    each_s = [seconds for seconds, _ in expected]
    all_measured = all(is_known for _, is_known in expected)
    runs = len(each_s) * study.repeats
    busy = min(workers, runs)
    seconds = max(sum(each_s) * study.repeats / busy, *each_s)
    return Estimate(jobs, runs, seconds, busy * (BASE_GB + jobs * JOB_GB), all_measured)


def smaller_traces(spec: TraceSpec, jobs: int, span_s: float) -> dict[str, TraceSpec]:
    """Return smaller versions of a large trace: description -> trace; empty if it is small.

    Parameters
    ----------
    spec : TraceSpec
        The large trace.
    jobs, span_s : int, float (seconds)
        Its jobs and duration, with its window and load applied.
    """
    suggestions = {}
    if jobs > 1.5 * SAMPLE:
        suggestions[f"a random {SAMPLE:,}"] = replace(spec, sample=SAMPLE)
    if span_s > 1.5 * WEEK_S:
        suggestions["the first week"] = replace(
            spec, to_s=spec.from_s + WEEK_S * (spec.load if spec.load_by == "pace" else 1.0)
        )
    return suggestions


def seconds_left(began: tuple[float, float], now: tuple[float, float]) -> float | None:
    """Return the remaining seconds of a run, None if too early to tell.

    Both arguments are (time in seconds, share done).
    """
    passed_s, done = now[0] - began[0], now[1] - began[1]
    if passed_s < TELLING_S or done <= 0:
        return None
    return max(passed_s * (1 - now[1]) / done, 0.0)
