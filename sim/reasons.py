"""Why a job waits, as its policy states it: a rule with the numbers that it was applied to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from sim.grants import Demand, Grant, JobId, Part
from sim.seen import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

Value = float | str | tuple[int, ...]
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})


class Reason(NamedTuple):
    """Why a job waits, in the words of the policy's rule.

    Parameters
    ----------
    rule : str
        A clause in the past tense without a full stop, e.g. ``"{ahead:jobs_were} ahead; the first
        one needs {needs:gpus}"``. The names stand for `values`; behind the colon stands what a
        value is: job (a row of the trace), named (several of them), jobs, jobs_were (how many),
        gpus, gpus_were, instant, duration (seconds), share, number, text.
    values : mapping
        Name -> number, text or rows of the trace.
    detail : str
        What differs from time to time where the same rule holds again and again, e.g. the job that
        went first; written the same way.
    """

    rule: str
    values: Mapping[str, Value] = _NOTHING
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Decided:
    """What holds right after a decision; valid only while its view is.

    Parameters
    ----------
    view : View
        What the decision was made on.
    changes : mapping
        Job -> its new grant, or None if it was stopped; as of `Plan`.
    refuse : frozenset of int
        Jobs that will never be run; as of `Plan`.
    belongs : callable
        Job -> whether the policy that is asked is responsible for it; a composite narrows it.
    elsewhere : array of bool or None
        Nodes that this policy may not use; None = it may use all.
    demand_of : callable or None
        What jobs ask for under this policy; None = what the view says.
    """

    view: View
    changes: Mapping[JobId, Grant | None]
    refuse: frozenset[JobId] = frozenset()
    belongs: Callable[[JobId], bool] = field(default=lambda _: True)
    elsewhere: NDArray[np.bool_] | None = None
    demand_of: Callable[[JobId], Demand] | None = None

    @cached_property
    def grants(self) -> Mapping[JobId, Grant]:
        """Who holds what after it."""
        held = {job: grant for job, grant in self.view.grants.items() if self.belongs(job)}
        for job, grant in self.changes.items():
            if grant is None:
                held.pop(job, None)
            elif self.belongs(job):
                held[job] = grant
        return held

    @cached_property
    def waiting(self) -> tuple[JobId, ...]:
        """The jobs that wait after it, in order of submission."""
        gone = self.grants.keys() | self.refuse
        return tuple(
            job for job in self.view.active.ids.tolist() if job not in gone and self.belongs(job)
        )

    @cached_property
    def started(self) -> tuple[JobId, ...]:
        """The jobs that it started."""
        before = self.view.grants
        return tuple(
            job
            for job, grant in self.changes.items()
            if grant is not None and job not in before and self.belongs(job)
        )

    def demand(self, job: JobId) -> Demand:
        """Return what a job asks for."""
        return (self.demand_of or self.view.demand)(job)

    def wants(self, job: JobId) -> int:
        """Return the GPUs of the whole gang that a job asks for."""
        demand = self.demand(job)
        servers = demand.servers
        return demand.replicas * demand.gpus + (servers.replicas * servers.gpus if servers else 0)

    def held_gpus(self, job: JobId) -> int:
        """Return the GPUs that a job holds after it."""
        grant = self.grants.get(job)
        return 0 if grant is None else sum(part.gpus * sum(part.count) for part in _parts(grant))

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """GPUs per node that nobody holds after it."""
        free = self.view.capacity.astype(np.int64).copy()
        if self.elsewhere is not None:
            free[self.elsewhere] = 0
        held = dict(self.view.grants)
        for job, grant in self.changes.items():
            if grant is None:
                held.pop(job, None)
            else:
                held[job] = grant
        for grant in held.values():
            for part in _parts(grant):
                for node, count in zip(part.nodes, part.count, strict=True):
                    if node < len(free):
                        free[node] -= count * part.gpus
        return np.maximum(free, 0)

    def free_for(self, job: JobId) -> int:
        """Return the GPUs that nobody holds after it on nodes that a job may use."""
        pools = self.view.room.pools
        nodes = [node for at in self.demand(job).pools for node in pools[at].nodes]
        return int(self.free[nodes].sum()) if nodes else 0

    def narrowed(
        self, belongs: Callable[[JobId], bool], elsewhere: NDArray[np.bool_] | None
    ) -> Decided:
        """Return the same for a policy inside another one, which has some of its jobs and nodes."""
        return replace(
            self, belongs=lambda job: self.belongs(job) and belongs(job), elsewhere=elsewhere
        )

    def made_of(self, demand_of: Callable[[JobId], Demand]) -> Decided:
        """Return the same for a policy inside another one, under which jobs ask for other sizes."""
        return replace(self, demand_of=demand_of)


def _parts(grant: Grant) -> list[Part]:
    return [part for gang in grant.gangs for part in gang if part is not None]
