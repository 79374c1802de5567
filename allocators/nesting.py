"""An allocator inside another one: its pending news, when it is due to decide, and its view."""

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

Make = Callable[[Spec], Allocator]


@runtime_checkable
class Composite(Protocol):
    """An allocator built of allocators: it is given the means to build them right after it was
    built itself.
    """

    def assemble(self, make: Make) -> None:
        """Build the inner allocators."""
        ...


class Inside:
    """One inner allocator, called only when it would have been called alone."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.cadence = allocator.cadence
        self.wake_at_s = inf
        self._wanted = False
        self._arrived: list[JobId] = []
        self._finished: list[JobId] = []
        self._evicted: list[Eviction] = []
        self._nodes: list[int] = []
        self._resized: list[JobId] = []

    def arrive(self, job: JobId) -> None:
        """Note a job that is waiting."""
        self._arrived.append(job)
        self._wanted = self._wanted or self.cadence.on_arrival

    def finish(self, job: JobId) -> None:
        """Note a job that has ended."""
        self._finished.append(job)
        self._wanted = self._wanted or self.cadence.on_finish

    def evict(self, eviction: Eviction) -> None:
        """Note a job that lost its grant."""
        self._evicted.append(eviction)
        self._wanted = self._wanted or self.cadence.on_finish

    def capacity(self, node: int) -> None:
        """Note a node whose free resources changed."""
        self._nodes.append(node)
        self._wanted = self._wanted or self.cadence.on_capacity

    def resize(self, job: JobId) -> None:
        """Note a job whose size changed, which may have taken or returned resources."""
        self._resized.append(job)
        self._wanted = self._wanted or self.cadence.on_capacity

    def notify(self, delta: Delta) -> None:
        """Note everything that happened."""
        for job in delta.arrived:
            self.arrive(job)
        for job in delta.finished:
            self.finish(job)
        for eviction in delta.evicted:
            self.evict(eviction)
        for node in delta.nodes:
            self.capacity(node)
        for job in delta.resized:
            self.resize(job)

    def is_due(self, now_s: float, *, active: bool) -> bool:
        """Tell whether it would be called at this instant if it were alone with jobs that are
        waiting or running (`active`) or not.
        """
        return (
            self._wanted
            or self.wake_at_s <= now_s
            or ((active or bool(self._finished)) and is_tick(now_s, self.cadence.every_s))
        )

    def news(self) -> Delta:
        """Return what has happened since its last decision, and forget it."""
        delta = Delta(
            tuple(self._arrived),
            tuple(self._finished),
            tuple(self._evicted),
            tuple(self._nodes),
            tuple(self._resized),
        )
        for items in (self._arrived, self._finished, self._evicted, self._nodes, self._resized):
            items.clear()
        self._wanted = False
        return delta

    def decide(self, view: SubView) -> Plan:
        """Return its plan, and note when it wants to be called again."""
        plan = self.allocator.allocate(cast("View", view))
        self.wake_at_s = later(plan.wake_at_s, view.now_s)
        return plan


def is_tick(now_s: float, every_s: float) -> bool:
    """Tell whether a ticker of this period ticks exactly now."""
    return isfinite(every_s) and instant(round(now_s / every_s) * every_s) == now_s


def next_tick(now_s: float, every_s: float) -> float:
    """Return the first tick after now."""
    if not isfinite(every_s):
        return inf
    tick = int(now_s / every_s)
    while instant(tick * every_s) <= now_s:
        tick += 1
    return instant(tick * every_s)


class SubTable:
    """Some jobs of a table: a `sim.contract.JobTable`."""

    __slots__ = ("_cache", "_jobs", "_whole")

    def __init__(self, whole: JobTable, jobs: Collection[JobId]) -> None:
        self._whole, self._jobs = whole, jobs
        self._cache: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def column(self, name: str) -> NDArray[Any]:
        """Return a column by name."""
        known = self._cache.get(name)
        if known is None:
            known = np.array(sorted(self._jobs), np.int64) if name == "ids" else self._part(name)
            known.flags.writeable = False
            self._cache[name] = known
        return known

    def _part(self, name: str) -> NDArray[Any]:
        values: NDArray[Any] = (
            getattr(self._whole, name) if name == "preemptible" else self._whole.column(name)
        )
        part: NDArray[Any] = values[np.searchsorted(self._whole.ids, self.column("ids"))]
        return part

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.column(name)


class SubGrants(Mapping[JobId, Grant]):
    """The grants of some jobs."""

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


class GrantsShown(Mapping[JobId, Grant]):
    """The grants as an inner allocator made them, where the outer one has changed them.

    Parameters
    ----------
    real, resized : mapping
        What jobs hold, and what they will hold after the present decision.
    pairs : mapping
        Job -> a grant as it is, and as the inner allocator made it.
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
    """What an inner allocator sees: a `sim.contract.View` with its own news and, if so wished, only
    its own jobs and nodes.
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
        """Show only these jobs, and no room on the nodes of others."""
        view = self._view
        self.waiting = cast("JobTable", SubTable(view.waiting, waiting))
        self.running = cast("JobTable", SubTable(view.running, running))
        self.active = cast("JobTable", SubTable(view.active, [*waiting, *running]))
        self.grants = SubGrants(view.grants, running)
        self._elsewhere = elsewhere

    @property
    def free_gpus(self) -> Ints:
        """Free GPUs per node."""
        return self._own(self._view.free_gpus)

    @property
    def free_cpus(self) -> Floats:
        """Free cores per node."""
        return self._own(self._view.free_cpus)

    @property
    def free_mem_gb(self) -> Floats:
        """Free memory per node."""
        return self._own(self._view.free_mem_gb)

    @property
    def capacity(self) -> Ints:
        """GPUs per node in service."""
        return self._own(self._view.capacity)

    @property
    def installed(self) -> Ints:
        """GPUs per node in service or down for repair."""
        return self._own(self._view.installed)

    def _own(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self._elsewhere is None else np.where(self._elsewhere, 0, values)
