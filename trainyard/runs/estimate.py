"""Estimates the time and memory of runs from earlier runs or a table of usual costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

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
_FAST_S: Final = 1e-5
"""CPU seconds per job on the compiled fast engine, including writing the result."""
JOB_MS: Final[Mapping[str, float]] = {
    "conservative": 2,
    "slurm": 5,
    "kai": 1,
    "kueue": 0.2,
    "mip_elastic": 0.4,
    "gavel": 3,
    "hadar": 5,
    "hadare": 7,
    "aiturbo": 2,
    "optimus": 2,
    "dlrover": 5,
}
"""Policy -> CPU milliseconds per job on the general engine, measured with 1,000 jobs at a typical
load; used until the policy has run on this machine.
"""
_JOB_MS: Final = 0.1
"""CPU milliseconds per job of every other policy."""


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


def usual_s(spec: Spec, engine: str = "kernel") -> float:
    """Return the usual CPU seconds per job of a policy, with nested ones their maximum."""
    if engine == "fast":
        return _FAST_S
    own_s = JOB_MS.get(spec.name, _JOB_MS) / 1e3
    return max([own_s, *map(usual_s, _nested_policies(spec))])


def usual_seconds(scenario: Scenario, trace: Trace, engine: str = "") -> float:
    """Return the usual CPU seconds of a run, regardless of earlier runs.

    `engine` is as for `trainyard.runs.run.run`.
    """
    loop = _fast_loop(scenario, trace, None)
    return len(trace) * usual_s(scenario.allocator, expected_engine(engine, loop=loop))


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
    each_s = usual_s(scenario.allocator, engine) if seen_s is None else seen_s
    return jobs * each_s, seen_s is not None or engine == "fast"


@lru_cache(maxsize=512)
def _cached_loop(scenario: Scenario, store: Store) -> str:
    """Return `_fast_loop` of a scenario with a stored trace."""
    return _fast_loop(scenario, load_trace(scenario.trace, store), store)


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
