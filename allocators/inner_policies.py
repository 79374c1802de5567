"""Inner policies of a wrapper: their pending events, due times and restricted views."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import inf, isfinite
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sim.contract import (
    Allocator,
    Delta,
    Eviction,
    Floats,
    Grant,
    Ints,
    JobId,
    JobTable,
    Plan,
    Spec,
    View,
    instant,
    later,
)

MakePolicy = Callable[[Spec], Allocator]


@runtime_checkable
class Composite(Protocol):
    """A policy that contains other policies.

    `assemble` is called with a function that builds them right after the policy itself is built.
    """

    def assemble(self, make: MakePolicy) -> None:
        """Build the inner policies with `make`."""
        ...


class InnerPolicy:
    """An inner policy, called exactly when it would be called without the wrapper."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.cadence = allocator.cadence
        self.wake_at_s = inf
        self._is_wanted = False
        self._arrived: list[JobId] = []
        self._finished: list[JobId] = []
        self._evicted: list[Eviction] = []
        self._nodes: list[int] = []
        self._resized: list[JobId] = []

    def arrive(self, job: JobId) -> None:
        """Record an arrival; the inner policy becomes due if it reacts to arrivals."""
        self._arrived.append(job)
        self._is_wanted = self._is_wanted or self.cadence.on_arrival

    def finish(self, job: JobId) -> None:
        """Record a job that ended; the inner policy becomes due if it reacts to finished jobs."""
        self._finished.append(job)
        self._is_wanted = self._is_wanted or self.cadence.on_finish

    def evict(self, eviction: Eviction) -> None:
        """Record an eviction; the inner policy becomes due if it reacts to finished jobs."""
        self._evicted.append(eviction)
        self._is_wanted = self._is_wanted or self.cadence.on_finish

    def change_node(self, node: int) -> None:
        """Record a node with changed resources; the policy becomes due if it reacts to capacity."""
        self._nodes.append(node)
        self._is_wanted = self._is_wanted or self.cadence.on_capacity

    def resize(self, job: JobId) -> None:
        """Record a resized job; the inner policy becomes due if it reacts to capacity."""
        self._resized.append(job)
        self._is_wanted = self._is_wanted or self.cadence.on_capacity

    def notify(self, delta: Delta) -> None:
        """Record all events of a delta, which may make the inner policy due."""
        for job in delta.arrived:
            self.arrive(job)
        for job in delta.finished:
            self.finish(job)
        for eviction in delta.evicted:
            self.evict(eviction)
        for node in delta.nodes:
            self.change_node(node)
        for job in delta.resized:
            self.resize(job)

    def is_due(self, now_s: float, *, active: bool) -> bool:
        """Return True if an event, a wake-up or a tick of its cadence is due for the inner policy.

        `active` says whether any of its jobs waits or runs.
        """
        return (
            self._is_wanted
            or self.wake_at_s <= now_s
            or ((active or bool(self._finished)) and is_tick(now_s, self.cadence.every_s))
        )

    def take_events(self) -> Delta:
        """Return the events since the last decision and clear them; the policy is no longer due."""
        delta = Delta(
            tuple(self._arrived),
            tuple(self._finished),
            tuple(self._evicted),
            tuple(self._nodes),
            tuple(self._resized),
        )
        for items in (self._arrived, self._finished, self._evicted, self._nodes, self._resized):
            items.clear()
        self._is_wanted = False
        return delta

    def decide(self, view: SubView) -> Plan:
        """Return the plan of the inner policy and record its next wake-up."""
        plan = self.allocator.allocate(cast("View", view))
        self.wake_at_s = later(plan.wake_at_s, view.now_s)
        return plan


def is_tick(now_s: float, every_s: float) -> bool:
    """Return True if a tick of this period falls exactly on `now_s`."""
    return isfinite(every_s) and instant(round(now_s / every_s) * every_s) == now_s


def next_tick(now_s: float, every_s: float) -> float:
    """Return the time of the first tick of this period after `now_s`; inf without a period."""
    if not isfinite(every_s):
        return inf
    tick = int(now_s / every_s)
    while instant(tick * every_s) <= now_s:
        tick += 1
    return instant(tick * every_s)


class SubTable:
    """A `sim.contract.JobTable` of some of the jobs of another table."""

    __slots__ = ("_cache", "_jobs", "_whole")

    def __init__(self, whole: JobTable, jobs: Collection[JobId]) -> None:
        self._whole, self._jobs = whole, jobs
        self._cache: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def column(self, name: str) -> NDArray[Any]:
        """Return a column by name for the jobs of this table, by id; read-only and cached."""
        values = self._cache.get(name)
        if values is None:
            values = (
                np.array(sorted(self._jobs), np.int64) if name == "ids" else self._select_rows(name)
            )
            values.flags.writeable = False
            self._cache[name] = values
        return values

    def _select_rows(self, name: str) -> NDArray[Any]:
        """Return the rows of a column that belong to the jobs of this table."""
        column: NDArray[Any] = (
            getattr(self._whole, name) if name == "preemptible" else self._whole.column(name)
        )
        part: NDArray[Any] = column[np.searchsorted(self._whole.ids, self.column("ids"))]
        return part

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.column(name)


class SubGrants(Mapping[JobId, Grant]):
    """The grants of some of the jobs."""

    def __init__(self, whole: Mapping[JobId, Grant], jobs: Collection[JobId]) -> None:
        self._whole, self._jobs = whole, jobs

    def __getitem__(self, job: JobId) -> Grant:
        if job not in self._jobs:
            raise KeyError(job)
        return self._whole[job]

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)


class InnerGrants(Mapping[JobId, Grant]):
    """The grants as the inner policy made them, before the wrapper resized them.

    Parameters
    ----------
    real, resized : mapping
        Present grants of the jobs, and their new grants by the current decision.
    pairs : mapping
        Job -> its actual grant, and the one that the inner policy made.
    """

    def __init__(
        self,
        real: Mapping[JobId, Grant],
        resized: Mapping[JobId, Grant],
        pairs: Mapping[JobId, tuple[Grant, Grant]],
    ) -> None:
        self._real, self._resized, self._pairs = real, resized, pairs

    def __getitem__(self, job: JobId) -> Grant:
        grant = self._resized.get(job) or self._real[job]
        pair = self._pairs.get(job)
        return pair[1] if pair is not None and pair[0] is grant else grant

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._real)

    def __len__(self) -> int:
        return len(self._real)


class SubView:
    """The view of an inner policy: a `sim.contract.View` with its own events.

    `narrow` restricts it to its own jobs and nodes.
    """

    def __init__(self, view: View, delta: Delta) -> None:
        self._view = view
        self.now_s, self.delta, self.from_zero = view.now_s, delta, view.from_zero
        self.clock_s = view.clock_s
        self.waiting, self.running, self.active, self.grants = (
            view.waiting,
            view.running,
            view.active,
            view.grants,
        )
        self.cluster, self.estimates, self.rng, self.room = (
            view.cluster,
            view.estimates,
            view.rng,
            view.room,
        )
        self.one, self.demand, self.names, self.telemetry = (
            view.one,
            view.demand,
            view.names,
            view.telemetry,
        )
        self._elsewhere: NDArray[np.bool_] | None = None

    def narrow(
        self, waiting: Collection[JobId], running: Collection[JobId], elsewhere: NDArray[np.bool_]
    ) -> None:
        """Show only these jobs, and no free resources on the nodes marked `elsewhere`."""
        view = self._view
        self.waiting = cast("JobTable", SubTable(view.waiting, waiting))
        self.running = cast("JobTable", SubTable(view.running, running))
        self.active = cast("JobTable", SubTable(view.active, [*waiting, *running]))
        self.grants = SubGrants(view.grants, running)
        self._elsewhere = elsewhere

    @property
    def free_gpus(self) -> Ints:
        """Return the free GPUs per node; 0 on nodes of other policies."""
        return self._mask_other_nodes(self._view.free_gpus)

    @property
    def free_cpus(self) -> Floats:
        """Return the free cores per node; 0 on nodes of other policies."""
        return self._mask_other_nodes(self._view.free_cpus)

    @property
    def free_mem_gb(self) -> Floats:
        """Return the free memory in GB per node; 0 on nodes of other policies."""
        return self._mask_other_nodes(self._view.free_mem_gb)

    @property
    def capacity(self) -> Ints:
        """Return the GPUs per node in service; 0 on nodes of other policies."""
        return self._mask_other_nodes(self._view.capacity)

    @property
    def installed(self) -> Ints:
        """Return the GPUs per node in service or down for repair; 0 on nodes of other policies."""
        return self._mask_other_nodes(self._view.installed)

    def _mask_other_nodes(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values per node with zeros on the nodes of other policies."""
        return values if self._elsewhere is None else np.where(self._elsewhere, 0, values)
