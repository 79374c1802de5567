"""Bounds next to the policies of a replay, computed from jobs and machines alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from allocators import make
from allocators.heterogeneous.timeshare.fluid import Fluid, JobsSnapshot
from sim.cluster import Cluster
from sim.contract import Floats, Ints, Shape, Spec
from sim.demand import Demands, group_into_pools, limit_gpu_types
from sim.errors import ParameterError
from sim.perf.model import Fitting, PerfModel, PerfSpec
from sim.trace import Trace
from trainyard.store import profiles
from trainyard.study.scenario import Scenario
from trainyard.traces.sources import load_trace

IDEAL_STREAM: Final = 8
_DONE: Final = 1e-9  # of the total work, relative


def ideal(trace: Trace, cluster: Cluster, perf: PerfSpec, spec: Spec, seed: int = 0) -> Floats:
    """Return when each job would finish if it had its share of time at every instant.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines. Changes and failures of machines, and costs of changed grants, are
        ignored.
    perf : PerfSpec
        True speeds, which the policy knows.
    spec : Spec
        An allocator that divides time, see `allocators.heterogeneous.timeshare.fluid.Fluid`.
    seed : int
        Seed of the policy's random draws.

    Returns
    -------
    array of shape (jobs,), seconds
        NaN for jobs that can never run. Jobs without GPUs run at once.

    Raises
    ------
    ParameterError
        If the allocator does not divide time, or cannot be built.
    TrainyardError
        If the trace lacks what the performance model reads.

    Notes
    -----
    Job m makes ``sum_j T_mj X_mj`` per second; the shares X are recomputed whenever a job arrives
    or finishes. Upstream's ideal mode [1]_ only looks at arrivals, and computes at most every 1920
    s. A bound in practice, not by proof: a schedule in rounds can be better than shares that serve
    another aim.

    References
    ----------
    .. [1] stanford-futuredata/gavel, scheduler/scheduler.py, ``simulate(ideal=True)``.
    """
    allocator = make(spec)
    if not isinstance(allocator, Fluid):
        raise ParameterError(
            f"{spec.name} does not divide time, so it has no fluid ideal. Choose a policy that"
            " computes shares of time."
        )
    facts = _fluid_facts(trace, cluster, perf.bind(trace, cluster), allocator.owner_column)
    run = _Fluid(allocator, facts, np.random.default_rng([seed, IDEAL_STREAM]))
    on_gpus = facts.gangs > 0
    finish_s = np.where(on_gpus, np.nan, facts.submit_s + facts.work)
    possible = np.flatnonzero(on_gpus & (facts.rates > 0).any(axis=1))
    finish_s[possible] = run.until_done(possible)
    return finish_s


class _FluidFacts(NamedTuple):
    """Arrays of job and machine properties for the fluid model."""

    submit_s: Floats
    gangs: Ints
    work: Floats
    rates: Floats
    gpus: Ints
    prices: Floats
    priority: Floats
    deadline_s: Floats
    owner: Ints | None
    owners: int


def _fluid_facts(trace: Trace, cluster: Cluster, model: PerfModel, owner: str) -> _FluidFacts:
    """Return the arrays that the fluid model needs; GPU types with nodes, fastest first."""
    pools = group_into_pools(cluster)
    used = sorted(
        {pool.type_at for pool in pools if pool.type_at >= 0},
        key=lambda at: (-cluster.types[at].speed, at),
    )
    per_pool = [sum(cluster.nodes[node].gpus for node in pool.nodes) for pool in pools]
    requested = trace.numbers("num_gpus").astype(np.int64)
    kinds = cluster.types
    return _FluidFacts(
        submit_s=trace.numbers("submit_time_s"),
        gangs=requested,
        work=model.work(),
        rates=_rates(model, requested, used, len(kinds)) * _may_run(trace, cluster, model, used),
        gpus=np.array(
            [
                sum(gpus for pool, gpus in zip(pools, per_pool, strict=True) if pool.type_at == at)
                for at in used
            ]
        ),
        prices=np.array([kinds[at].price_per_gpu_hour for at in used]),
        priority=trace.numbers("priority", 0.0),
        deadline_s=trace.numbers("deadline_s", np.inf),
        owner=np.asarray(trace.texts(owner).codes, np.int64) if owner else None,
        owners=len(trace.texts(owner).categories) if owner else 1,
    )


def _rates(model: PerfModel, gangs: Ints, used: list[int], types: int) -> Floats:
    """Return the speed of each job as a gang on each GPU type of `used`; 0 = cannot run."""
    sizes, which = np.unique(gangs, return_inverse=True)
    shapes = [
        Shape(tuple(size if at == kind else 0 for at in range(types)))
        for size in sizes.tolist()
        for kind in used
    ]
    by_size = model.rates(np.arange(len(gangs)), shapes).reshape(len(gangs), len(sizes), len(used))
    rates: Floats = np.nan_to_num(by_size[np.arange(len(gangs)), which])
    return rates


def _may_run(trace: Trace, cluster: Cluster, model: PerfModel, used: list[int]) -> Floats:
    """Return 1 where a job may run on a GPU type of `used` and its gang fits, else 0."""
    pools = group_into_pools(cluster)
    demands = Demands(
        limit_gpu_types(trace, cluster, model.fits()) if isinstance(model, Fitting) else trace,
        cluster,
        pools,
    )
    by_demand: dict[int, list[float]] = {}
    for job in range(len(trace)):
        demand = demands.of(job)
        if demand.key not in by_demand:
            gpus = [
                sum(
                    cluster.nodes[node].gpus
                    for at in demand.pools
                    if pools[at].type_at == kind
                    for node in pools[at].nodes
                )
                for kind in used
            ]
            by_demand[demand.key] = [float(total >= demand.replicas) for total in gpus]
    return np.array([by_demand[demands.of(job).key] for job in range(len(trace))])


@dataclass
class _Fluid:
    """Fluid simulation of an allocator that divides time."""

    allocator: Fluid
    facts: _FluidFacts
    rng: np.random.Generator

    def until_done(self, jobs: Ints) -> Floats:
        """Return the finish times of jobs given in order of submission; NaN = never."""
        facts, remaining = self.facts, self.facts.work.copy()
        finish_s = np.full(len(remaining), np.nan)
        coming, now_s, active = jobs, 0.0, jobs[:0]
        while len(coming) or len(active):
            now_s = max(now_s, facts.submit_s[coming[0]]) if not len(active) else now_s
            arrived = int(np.searchsorted(facts.submit_s[coming], now_s, "right"))
            active, coming = np.union1d(active, coming[:arrived]), coming[arrived:]
            speed = self._speeds(active, remaining[active], now_s)
            until_s = np.divide(
                remaining[active], speed, out=np.full(len(active), np.inf), where=speed > 0
            )
            step_s = min(
                float(until_s.min()), facts.submit_s[coming[0]] - now_s if len(coming) else np.inf
            )
            if step_s == np.inf:
                break
            remaining[active] -= speed * step_s
            now_s += step_s
            done = remaining[active] <= _DONE * facts.work[active]
            finish_s[active[done]] = now_s
            active = active[~done]
        return finish_s[jobs]

    def _speeds(self, active: Ints, left: Floats, now_s: float) -> Floats:
        """Return the work per second of the active jobs under the allocator's shares of time."""
        facts = self.facts
        rates, owner = facts.rates[active], facts.owner
        standing = JobsSnapshot(
            active,
            facts.gangs[active],
            rates,
            facts.gpus,
            facts.prices,
            facts.priority[active],
            now_s - facts.submit_s[active],
            left,
            facts.deadline_s[active] - now_s,
            owner[active] if owner is not None else None,
            facts.owners,
        )
        speeds: Floats = (self.allocator.shares(standing, self.rng) * rates).sum(axis=1)
        return speeds


_AHEAD: Final = 1.5
"""Initial number of simulated jobs, as a multiple of those up to the last measured one."""


class BoundOf(NamedTuple):
    """A kind of bound: its metrics, and the function that computes them."""

    metrics: tuple[str, ...]
    compute: Callable[[Scenario, Trace], tuple[float, ...]]


def compute_bound(scenario: Scenario, by: str) -> dict[str, float]:
    """Return the metrics of a bound for a scenario.

    Parameters
    ----------
    scenario : Scenario
        With its seed.
    by : str
        One of `BOUNDS`.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, or the bound does not apply to it.
    """
    metrics, compute = BOUNDS[by]
    return dict(zip(metrics, compute(scenario, load_trace(scenario.trace)), strict=True))


def fluid(scenario: Scenario, trace: Trace) -> tuple[float, float]:
    """Return mean completion time and makespan, in seconds, under exact shares of time.

    Raises
    ------
    TrainyardError
        As `trainyard.labs.replays.bounds.ideal`.

    Notes
    -----
    Over the measured jobs, by row. Later jobs are simulated until all measured ones are done.
    """
    first, last = scenario.measure.first_job, scenario.measure.last_job
    end = len(trace) if last is None else last + 1
    perf, submit_s = profiles.build_model(scenario.perf, None), trace.numbers("submit_time_s")
    size = end
    while True:
        size = min(len(trace), int(_AHEAD * size))
        finish_s = ideal(
            replace(trace, frame=trace.frame.iloc[:size]),
            scenario.cluster,
            perf,
            scenario.allocator,
            scenario.seed,
        )[first:end]
        if size == len(trace) or np.nanmax(finish_s, initial=0.0) <= submit_s[size]:
            return float(np.nanmean(finish_s - submit_s[first:end])), float(
                np.nanmax(finish_s) - submit_s[first]
            )


def capacity(scenario: Scenario, trace: Trace) -> tuple[float]:
    """Return a lower bound of every makespan, in seconds, whatever the policy.

    Notes
    -----
    Job j has work W_j and makes r_jm per second as a gang of k_j GPUs of type m, of which there are
    G_m. Put any price u_m on a GPU-second of type m. Every unit of work of j costs at least ``min_m
    u_m k_j / r_jm``, wherever it is done, and in a time T no more than ``T sum_m G_m u_m`` can be
    spent. So

        T >= sum_j W_j min_m (u_m k_j / r_jm) / sum_m G_m u_m

    for every u. Tried are the speeds ``u_m = r_jm / k_j`` of each job, and the largest result
    counts. For a single job that is its work over the speed of all GPUs together, which is the best
    there can be: against its fastest node alone, the fastest speed over the sum of speeds. If the
    types have the same relative speeds for all jobs, it is the total work over the sum of speeds;
    else the best price may lie between those that are tried, and the bound is less tight.

    It holds for gangs of fixed sizes, on one type or on several at the pace of the slowest or with
    parts by speed; costs of changes and failures of machines only make a makespan longer. Jobs that
    can never run do not count.
    """
    last = scenario.measure.last_job
    counts = slice(scenario.measure.first_job, None if last is None else last + 1)
    model = profiles.build_model(scenario.perf, None).bind(trace, scenario.cluster)
    speeds, gpus = _per_gpu(model, trace.numbers("num_gpus").astype(np.int64), scenario.cluster)
    work, speeds = model.work()[counts], speeds[counts]
    runs = (speeds > 0).any(axis=1)
    work, speeds = work[runs], speeds[runs]
    prices = np.unique(speeds, axis=0)
    cheapest = np.divide(
        prices[:, None, :],
        speeds,
        out=np.full((len(prices), *speeds.shape), np.inf),
        where=speeds > 0,
    )
    return (
        float(
            ((cheapest.min(axis=2) * work).sum(axis=1) / (prices * gpus).sum(axis=1)).max(
                initial=0.0
            )
        ),
    )


def _per_gpu(model: PerfModel, gangs: Ints, cluster: Cluster) -> tuple[Floats, Floats]:
    """Return speed per GPU by job and type (0 = does not fit), and the GPUs of each type."""
    gpus = np.zeros(len(cluster.types))
    for node in cluster.nodes:
        gpus[cluster.type_index[node.gpu_type]] += node.gpus
    sizes, which = np.unique(gangs, return_inverse=True)
    shapes = [
        Shape(tuple(size if at == kind else 0 for at in range(len(gpus))))
        for size in sizes.tolist()
        for kind in range(len(gpus))
    ]
    by_size = np.nan_to_num(model.rates(np.arange(len(gangs)), shapes)).reshape(
        len(gangs), len(sizes), len(gpus)
    )[np.arange(len(gangs)), which]
    fits = (gangs > 0)[:, None] & (gangs[:, None] <= gpus)
    return np.where(fits, by_size / np.maximum(gangs, 1)[:, None], 0.0), gpus


BOUNDS: Final[Mapping[str, BoundOf]] = {
    "fluid": BoundOf(("jct_mean_s", "makespan_s"), fluid),
    "capacity": BoundOf(("makespan_s",), capacity),
}
"""Name of a bound -> its computation."""
