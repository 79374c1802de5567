"""How long runs will take and how much memory: from what runs of the same policies have taken here,
or else what their cards say, before anything is started.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import allocators
from sim.params import Spec
from trainyard.store import Entry, Store
from trainyard.study.branch import BranchPoint
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace

JOB_GB: Final = 2.5e-6
BASE_GB: Final = 0.15
"""Memory of a worker process: for each job of its run, measured with 100,000, and without any."""
LONG_S: Final = 60.0
MUCH_GB: Final = 1.0
"""From here on it is asked before a run is started."""
SAMPLE: Final = 100_000
WEEK_S: Final = 7 * 86_400.0
TELLING_S: Final = 3.0
"""A run is watched for so long before it is said when it will end."""
_FEW: Final = 200
"""Runs of fewer jobs say nothing of large ones: starting them costs more than their jobs."""


@dataclass(frozen=True)
class Estimate:
    """What a study will take.

    Parameters
    ----------
    jobs, runs : int
        Jobs of the trace, and how often they are simulated.
    seconds : float, seconds
        Until the last run is over, if nothing else runs.
    memory_gb : float, GB
        Of all worker processes at once.
    known : bool
        Whether all of its policies have been run here; else the card of those that have not was
        taken.
    """

    jobs: int
    runs: int
    seconds: float
    memory_gb: float
    known: bool

    @property
    def large(self) -> bool:
        """Whether the user should be asked first."""
        return self.seconds > LONG_S or self.memory_gb > MUCH_GB


class Costs:
    """Seconds per job of policies, from the largest run of each."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def note(self, entry: Entry) -> None:
        """Learn from a result."""
        jobs = int(entry.summary["jobs"])
        name = _chain(Spec.from_json(entry.scenario["allocator"]))
        if jobs >= max(_FEW, self._seen.get(name, (0, 0.0))[0]):
            self._seen[name] = (jobs, float(entry.provenance["timing"]["wall_s"]) / jobs)

    def per_job_s(self, policy: Spec) -> float | None:
        """Return the seconds that a policy takes per job, whatever its numbers, or None if it, with
        those inside it, has not been run here.
        """
        name = _chain(policy)
        return self._seen[name][1] if name in self._seen else None


def _inside(spec: Spec) -> list[Spec]:
    return [
        value
        for _, values in spec.params
        for value in (values if isinstance(values, tuple) else (values,))
        if isinstance(value, Spec)
    ]


def _chain(spec: Spec) -> str:
    return "/".join([spec.name, *map(_chain, _inside(spec))])


def usual_s(spec: Spec) -> float:
    """Return the seconds per job of a policy, as its card says; of one around others, those of the
    slowest.
    """
    own_s = allocators.make(Spec(spec.name)).card.job_ms / 1e3
    return max([own_s, *map(usual_s, _inside(spec))])


def job_seconds(spec: Spec, costs: Costs) -> float:
    """Return the seconds per job of a policy: as its largest run here took, else as usual."""
    seen_s = costs.per_job_s(spec)
    return usual_s(spec) if seen_s is None else seen_s


def run_seconds(scenario: Scenario, store: Store, costs: Costs) -> float:
    """Return what a run will take at most, from the jobs of its source, which is not read for it.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    kind, _, name = scenario.trace.source.partition(":")
    kept = store.trace_info(name) if kind == "store" else None
    jobs = len(load_trace(scenario.trace, store)) if kept is None else kept.jobs
    return jobs * job_seconds(scenario.allocator, costs)


def estimate(study: Study, store: Store, costs: Costs, workers: int) -> Estimate:
    """Return what a study will take on so many processes.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    jobs = len(load_trace(study.base.trace, store))
    each_s = [job_seconds(spec, costs) for spec in study.allocators]
    known = all(costs.per_job_s(spec) is not None for spec in study.allocators)
    runs = len(each_s) * study.repeats
    busy = min(workers, runs)
    seconds = jobs * max(sum(each_s) * study.repeats / busy, *each_s)
    return Estimate(jobs, runs, seconds, busy * (BASE_GB + jobs * JOB_GB), known)


def branch_seconds(turn: BranchPoint, took_s: float, jobs: int, costs: Costs) -> float:
    """Return how long the changed run will take, in seconds: as the first one took, or as many jobs
    take the policy that takes over, if that is longer.
    """
    each_s = 0.0 if turn.policy is None else job_seconds(turn.policy, costs)
    return max(took_s, jobs * each_s)


def smaller(spec: TraceSpec, jobs: int, span_s: float) -> dict[str, TraceSpec]:
    """Return what may be run instead, in words -> trace: as far as it is much less.

    Parameters
    ----------
    spec : TraceSpec
        The trace that is large.
    jobs, span_s : int, float (seconds)
        What it holds with its window and load.
    """
    found = {}
    if jobs > 1.5 * SAMPLE:
        found[f"a random {SAMPLE:,}"] = replace(spec, sample=SAMPLE)
    if span_s > 1.5 * WEEK_S:
        found["the first week"] = replace(
            spec, to_s=spec.from_s + WEEK_S * (spec.load if spec.load_by == "pace" else 1.0)
        )
    return found


def seconds_left(began: tuple[float, float], now: tuple[float, float]) -> float | None:
    """Return the seconds until a run is over, from its share that is done at two instants (seconds,
    share); None = too early to tell.
    """
    passed_s, done = now[0] - began[0], now[1] - began[1]
    if passed_s < TELLING_S or done <= 0:
        return None
    return max(passed_s * (1 - now[1]) / done, 0.0)
