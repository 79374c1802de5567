"""The fluid ideal: what a policy's shares of time would come to if they could be followed exactly, without rounds and without whole GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from allocators import make
from allocators.timeshare.fluid import Fluid, Standing
from sim.cluster import Cluster
from sim.contract import Floats, Ints, Shape, Spec
from sim.demand import Demands, narrowed, pools_of
from sim.errors import ParameterError
from sim.perf.model import Fitting, PerfModel, PerfSpec
from sim.trace import Trace

IDEAL_STREAM: Final = 8
_DONE: Final = 1e-9  # of the total work, relative


def ideal(trace: Trace, cluster: Cluster, perf: PerfSpec, spec: Spec, seed: int = 0) -> Floats:
    """Return when each job would be done if every job had its shares of time at every instant.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines. Changes and failures of machines, and what changes of grants cost, are left out.
    perf : PerfSpec
        True speeds, which the policy knows.
    spec : Spec
        An allocator that divides time, see `allocators.timeshare.fluid.Fluid`.
    seed : int
        Of what the policy draws.

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
    Job m makes ``sum_j T_mj X_mj`` per second; the shares X are computed again whenever a job comes or is done. Upstream's ideal mode [1]_ only looks at
    arrivals, and computes at most every 1920 s. A bound in practice, not by proof: a schedule in rounds can be better than shares that serve another aim.

    References
    ----------
    .. [1] stanford-futuredata/gavel, scheduler/scheduler.py, ``simulate(ideal=True)``.
    """
    allocator = make(spec)
    if not isinstance(allocator, Fluid):
        raise ParameterError(f"{spec.name} does not divide time, so it has no fluid ideal. Choose an allocator that computes shares of time.")
    facts = _facts(trace, cluster, perf.bind(trace, cluster), allocator.owner_column)
    run = _Fluid(allocator, facts, np.random.default_rng([seed, IDEAL_STREAM]))
    on_gpus = facts.gangs > 0
    finish_s = np.where(on_gpus, np.nan, facts.submit_s + facts.work)
    possible = np.flatnonzero(on_gpus & (facts.rates > 0).any(axis=1))
    finish_s[possible] = run.until_done(possible)
    return finish_s


class _Facts(NamedTuple):
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


def _facts(trace: Trace, cluster: Cluster, model: PerfModel, owner: str) -> _Facts:
    pools = pools_of(cluster)
    used = sorted({pool.type_at for pool in pools if pool.type_at >= 0}, key=lambda at: (-cluster.types[at].speed, at))
    per_pool = [sum(cluster.nodes[node].gpus for node in pool.nodes) for pool in pools]
    asked = trace.numbers("num_gpus").astype(np.int64)
    kinds = cluster.types
    return _Facts(
        submit_s=trace.numbers("submit_time_s"),
        gangs=asked,
        work=model.work(),
        rates=_rates(model, asked, used, len(kinds)) * _admitted(trace, cluster, model, used),
        gpus=np.array([sum(gpus for pool, gpus in zip(pools, per_pool, strict=True) if pool.type_at == at) for at in used]),
        prices=np.array([kinds[at].price_per_gpu_hour for at in used]),
        priority=trace.numbers("priority", 0.0),
        deadline_s=trace.numbers("deadline_s", np.inf),
        owner=np.asarray(trace.texts(owner).codes, np.int64) if owner else None,
        owners=len(trace.texts(owner).categories) if owner else 1,
    )


def _rates(model: PerfModel, gangs: Ints, used: list[int], types: int) -> Floats:
    sizes, which = np.unique(gangs, return_inverse=True)
    shapes = [Shape(tuple(size if at == kind else 0 for at in range(types))) for size in sizes.tolist() for kind in used]
    found = model.rates(np.arange(len(gangs)), shapes).reshape(len(gangs), len(sizes), len(used))
    rates: Floats = np.nan_to_num(found[np.arange(len(gangs)), which])
    return rates


def _admitted(trace: Trace, cluster: Cluster, model: PerfModel, used: list[int]) -> Floats:
    """Return 1 where a job may run and its gang fits, else 0."""
    pools = pools_of(cluster)
    demands = Demands(narrowed(trace, cluster, model.fits()) if isinstance(model, Fitting) else trace, cluster, pools)
    known: dict[int, list[float]] = {}
    for job in range(len(trace)):
        demand = demands.of(job)
        if id(demand) not in known:
            gpus = [sum(cluster.nodes[node].gpus for at in demand.pools if pools[at].type_at == kind for node in pools[at].nodes) for kind in used]
            known[id(demand)] = [float(total >= demand.replicas) for total in gpus]
    return np.array([known[id(demands.of(job))] for job in range(len(trace))])


@dataclass
class _Fluid:
    allocator: Fluid
    facts: _Facts
    rng: np.random.Generator

    def until_done(self, jobs: Ints) -> Floats:
        """Return when these jobs, in order of submission, are done; NaN for those that never get anything."""
        facts, left = self.facts, self.facts.work.copy()
        finish_s = np.full(len(left), np.nan)
        coming, now_s, active = jobs, 0.0, jobs[:0]
        while len(coming) or len(active):
            now_s = max(now_s, facts.submit_s[coming[0]]) if not len(active) else now_s
            arrived = int(np.searchsorted(facts.submit_s[coming], now_s, "right"))
            active, coming = np.union1d(active, coming[:arrived]), coming[arrived:]
            speed = self._speeds(active, left[active], now_s)
            until_s = np.divide(left[active], speed, out=np.full(len(active), np.inf), where=speed > 0)
            step_s = min(float(until_s.min()), facts.submit_s[coming[0]] - now_s if len(coming) else np.inf)
            if step_s == np.inf:
                break
            left[active] -= speed * step_s
            now_s += step_s
            done = left[active] <= _DONE * facts.work[active]
            finish_s[active[done]] = now_s
            active = active[~done]
        return finish_s[jobs]

    def _speeds(self, active: Ints, left: Floats, now_s: float) -> Floats:
        facts = self.facts
        rates, owner = facts.rates[active], facts.owner
        standing = Standing(
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
        made: Floats = (self.allocator.shares(standing, self.rng) * rates).sum(axis=1)
        return made
