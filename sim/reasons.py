"""Reasons why a job waits: the policy's rule with the numbers that it was applied to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from sim.grants import Demand, Grant, JobId, Part
from sim.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

Value = float | str | tuple[int, ...]
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})


class Reason(NamedTuple):
    """The rule of the policy that keeps a job waiting.

    Parameters
    ----------
    rule : str
        A clause in the past tense without a full stop: ``"{ahead:jobs_were} ahead; the first one
        needs {needs:gpus}"``. A key of `values`, a colon, and the kind of value: job (row of the
        trace), named (several rows), jobs, jobs_were (counts), gpus, gpus_were, instant, duration
        (seconds), share, number, text.
    values : mapping
        Name -> number, text or rows of the trace.
    detail : str
        The part that varies while the rule stays, e.g. the job that went first; same format.
    """

    rule: str
    values: Mapping[str, Value] = _NOTHING
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Decided:
    """The state right after a decision; valid only as long as its view.

    Parameters
    ----------
    view : View
        The view that the decision was based on.
    changes : mapping
        Job -> its new grant, or None if it was stopped; see `Plan`.
    refuse : frozenset of int
        Jobs that will never run; see `Plan`.
    belongs : callable
        Job -> whether it is this policy's; a wrapper narrows it.
    elsewhere : array of bool or None
        Nodes that this policy may not use, or None.
    demand_of : callable or None
        Job -> its demand under this policy; None = that in the view.
    """

    view: View
    changes: Mapping[JobId, Grant | None]
    refuse: frozenset[JobId] = frozenset()
    belongs: Callable[[JobId], bool] = field(default=lambda _: True)
    elsewhere: NDArray[np.bool_] | None = None
    demand_of: Callable[[JobId], Demand] | None = None

    @cached_property
    def grants(self) -> Mapping[JobId, Grant]:
        """Job -> its grant after the decision, for this policy's jobs."""
        grants = {job: grant for job, grant in self.view.grants.items() if self.belongs(job)}
        for job, grant in self.changes.items():
            if grant is None:
                grants.pop(job, None)
            elif self.belongs(job):
                grants[job] = grant
        return grants

    @cached_property
    def waiting(self) -> tuple[JobId, ...]:
        """The jobs that wait after the decision, in order of submission."""
        gone = self.grants.keys() | self.refuse
        return tuple(
            job for job in self.view.active.ids.tolist() if job not in gone and self.belongs(job)
        )

    @cached_property
    def started(self) -> tuple[JobId, ...]:
        """The jobs that the decision started."""
        before = self.view.grants
        return tuple(
            job
            for job, grant in self.changes.items()
            if grant is not None and job not in before and self.belongs(job)
        )

    def demand(self, job: JobId) -> Demand:
        """Return the demand of a job."""
        return (self.demand_of or self.view.demand)(job)

    def wants(self, job: JobId) -> int:
        """Return the GPUs that a job requests in total."""
        demand = self.demand(job)
        servers = demand.servers
        return demand.replicas * demand.gpus + (servers.replicas * servers.gpus if servers else 0)

    def held_gpus(self, job: JobId) -> int:
        """Return the GPUs that a job holds after the decision; 0 while it waits."""
        grant = self.grants.get(job)
        return 0 if grant is None else sum(part.gpus * sum(part.count) for part in _parts(grant))

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """Free GPUs per node after the decision; 0 on nodes this policy may not use."""
        free = self.view.capacity.astype(np.int64).copy()
        if self.elsewhere is not None:
            free[self.elsewhere] = 0
        grants = dict(self.view.grants)
        for job, grant in self.changes.items():
            if grant is None:
                grants.pop(job, None)
            else:
                grants[job] = grant
        for grant in grants.values():
            for part in _parts(grant):
                for node, count in zip(part.nodes, part.count, strict=True):
                    if node < len(free):
                        free[node] -= count * part.gpus
        return np.maximum(free, 0)

    def free_for(self, job: JobId) -> int:
        """Return the free GPUs on the nodes that a job may use."""
        pools = self.view.room.pools
        nodes = [node for pool_index in self.demand(job).pools for node in pools[pool_index].nodes]
        return int(self.free[nodes].sum()) if nodes else 0

    def narrowed(
        self, belongs: Callable[[JobId], bool], elsewhere: NDArray[np.bool_] | None
    ) -> Decided:
        """Return the state for an inner policy with some of the jobs and nodes."""
        return replace(
            self, belongs=lambda job: self.belongs(job) and belongs(job), elsewhere=elsewhere
        )

    def made_of(self, demand_of: Callable[[JobId], Demand]) -> Decided:
        """Return the state for an inner policy with other demands."""
        return replace(self, demand_of=demand_of)


def _parts(grant: Grant) -> list[Part]:
    """Return the worker and server parts of all gangs of a grant."""
    return [part for gang in grant.gangs for part in gang if part is not None]
