"""A stored run opened for looking at: what happened, whose jobs and machines these are, and what each job needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Final

import numpy as np

from sim.cluster import Cluster
from sim.contract import Demand
from sim.demand import Demands, narrowed, pools_of
from sim.errors import ParameterError
from sim.metrics.hetero import type_time
from sim.metrics.room import Wanted
from sim.metrics.steps import Floats
from sim.metrics.timeline import Timeline
from sim.perf import PerfSpec
from sim.perf.model import Fitting, Staffed
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace
from trainyard.store import Entry, Store, profiles
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.text import Clock

_CONFINED: Final = "confined_by_"


@dataclass(frozen=True, eq=False)
class Book:
    """A run with its jobs and machines.

    Parameters
    ----------
    result : RunResult
        What happened.
    trace, cluster : Trace, Cluster
        The jobs as they were run, and the machines.
    title : str
        What the policy is called.
    needs : frozenset of str
        What the policy declares, see `sim.contract.NEEDS`: whether it may resize jobs, mix types in one gang, and confine jobs to partitions.
    perf : PerfSpec
        How fast jobs run; says on which types they fit and what they are made of.
    """

    result: RunResult
    trace: Trace
    cluster: Cluster
    title: str
    needs: frozenset[str] = frozenset()
    perf: PerfSpec = field(default_factory=Rigid)

    @cached_property
    def line(self) -> Timeline:
        """The run as arrays."""
        return Timeline(self.result, self.cluster)

    @cached_property
    def type_time(self) -> Floats:
        """GPU-seconds that each job held on each GPU type of the cluster, of shape (jobs, types)."""
        return type_time(self.result, self.cluster)

    @cached_property
    def _asked(self) -> tuple[Demands, Floats]:
        """What each job asks for, and on how many GPUs it could run."""
        model = self.perf.bind(self.trace, self.cluster)
        trace = narrowed(self.trace, self.cluster, model.fits()) if isinstance(model, Fitting) else self.trace
        confined = [need.removeprefix(_CONFINED) for need in sorted(self.needs) if need.startswith(_CONFINED)]
        roles = model.roles() if isinstance(model, Staffed) else None
        least = model.limits().min_gpus if "scaling" in self.needs else self.trace.numbers("num_gpus")
        return Demands(trace, self.cluster, pools_of(self.cluster), confined[0] if confined else "", roles), least

    @cached_property
    def clock(self) -> Clock:
        """How its instants are written."""
        return Clock(self.trace.epoch, seconds=self.result.end_s < 2 * 3600)

    def wanted(self, job: int) -> Wanted:
        """Return what a job needs in order to run, as this policy may place it."""
        demands, least = self._asked
        return self._wanted(demands.of(job), float(least[job]))

    def _wanted(self, demand: Demand, least_gpus: float) -> Wanted:
        kinds = np.full(len(self.cluster.nodes), -1)
        pools = pools_of(self.cluster)
        for at in demand.pools:
            kinds[list(pools[at].nodes)] = pools[at].type_at + 1
        sized = {"scaling", "servers"} <= self.needs  # such an allocator sizes workers and servers itself
        least = ceil(least_gpus / demand.gpus) if demand.gpus else 1 if sized else demand.replicas
        need = min(max(1, least), demand.replicas)
        beside = None if demand.servers is None else self._wanted(demand.servers, 0.0)
        return Wanted(demand, need, kinds, "mixed" in self.needs, beside)


def opened(entry: Entry, trace: Trace, cluster: Cluster, title: str, store: Store | None = None) -> Book:
    """Open a stored run.

    Parameters
    ----------
    entry : Entry
        The stored result.
    trace, cluster : Trace, Cluster
        The jobs as they were run, and the machines.
    title : str
        What the policy is called.
    store : Store or None
        Where measured profiles of the user lie.

    Raises
    ------
    StoreError
        If the result was removed meanwhile.
    ParameterError
        If the trace is not the one of the run, or its performance profile is not kept any more.
    """
    scenario = Scenario.from_json(entry.scenario)
    result = entry.result()
    if len(result.jobs) != len(trace):
        raise ParameterError(f"This result has {len(result.jobs):,} jobs and the trace {len(trace):,}. Run the scenario again.")
    needs = catalog.allocator(scenario.allocator).needs
    return Book(result, trace, cluster, title, needs, profiles.resolved(scenario.perf, store))
