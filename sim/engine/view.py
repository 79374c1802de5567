"""The allocator's view of a run: lazily gathered tables of active jobs, limited to its needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.contract import (
    Delta,
    Demand,
    Estimates,
    Floats,
    Grant,
    Ints,
    JobId,
    Resources,
    Shape,
    Telemetry,
)
from sim.engine.columns import Columns, IdSet
from sim.errors import ContractError
from sim.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sim.cluster import Cluster
    from sim.demand import Demands
    from sim.engine.ledger import FreeRoom
    from sim.perf.estimators import BoundEstimator
    from sim.perf.model import Limits
    from sim.perf.resources import RecordedResources

# Column of a job table -> (column of the trace, default value).
PUBLIC_NUMBERS: Final[dict[str, tuple[str, float]]] = {
    "arrival_s": ("submit_time_s", 0.0),
    "gpus": ("num_gpus", 0.0),
    "priority": ("priority", 0.0),
    "deadline_s": ("deadline_s", np.inf),
    "time_limit_s": ("time_limit_s", np.inf),
    "batch_size": ("batch_size", np.nan),
    "cpus": ("cpus", 0.0),
    "mem_gb": ("mem_gb", 0.0),
    "nodes": ("nodes", 0.0),
    "tasks": ("tasks", 0.0),
    "tasks_per_node": ("tasks_per_node", 0.0),
    "cpus_per_task": ("cpus_per_task", 0.0),
    "mem_per_node_gb": ("mem_per_node_gb", 0.0),
    "mem_per_cpu_gb": ("mem_per_cpu_gb", 0.0),
    "begin_s": ("begin_s", -np.inf),
    "nice": ("nice", 0.0),
    "site_priority": ("site_priority", 0.0),
    "requeue": ("requeue", np.nan),
}
_PUBLIC: Final = ("user", "name", "vc", "model", "partition", "gpu_type", "job_id")
_SCHEDULER_TEXTS: Final = (
    *("account", "qos", "constraint", "gres", "exclusive", "reservation", "dependency", "array"),
)
PUBLIC_TEXTS: Final = (*_PUBLIC, *_SCHEDULER_TEXTS)
GATED: Final = {
    "remaining_work": "remaining_work",
    "predictable": "remaining_work",
    "recorded_start_s": "recorded_start",
    "gpu_type": "recorded_start",
}


class JobColumns:
    """Columns of trace and state under their public names, for any jobs at any instant.

    Parameters
    ----------
    trace : Trace
        The jobs.
    columns : Columns
        State of the jobs.
    work : array of shape (jobs,)
        True total work.
    limits : Limits
        Size limits of jobs.
    stops : mapping of arrays of shape (jobs,)
        "preemptible": whether a running job may be stopped; "keeps_work": whether a stopped job
        keeps its progress.
    estimator : BoundEstimator
        Source of the remaining work.
    reads : frozenset of str
        Reads that the allocator declares, see `sim.contract.Needs`.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all sources of columns
        self,
        trace: Trace,
        columns: Columns,
        work: Floats,
        limits: Limits,
        stops: Mapping[str, NDArray[np.bool_]],
        estimator: BoundEstimator,
        reads: frozenset[str],
    ) -> None:
        self.now_s = 0.0
        self.from_zero = trace.from_zero
        self.clock_s = trace.clock_s
        self._trace, self._columns, self._work, self._estimator, self._reads = (
            trace,
            columns,
            work,
            estimator,
            reads,
        )
        self._static: dict[str, NDArray[Any]] = {**stops, **limits._asdict()}
        self._names: dict[str, tuple[str, ...]] = {}
        self._scalars: dict[str, memoryview[float]] = {}
        self._work_of: memoryview[float] = memoryview(work)  # type: ignore[arg-type]
        self._live: dict[str, Callable[[Ints], NDArray[Any]]] = {
            "rate": self._rate,
            "held_gpus": lambda ids: columns.array("held_gpus")[ids].astype(np.int64),
            "served_gpu_s": lambda ids: self._served_by_now(ids, "served_gpu_s", "held_gpus"),
            "served_cpu_s": lambda ids: self._served_by_now(ids, "served_cpu_s", "held_cpus"),
            "remaining_work": lambda ids: self._estimator.remaining(ids, self._done(ids)),
            "predictable": lambda ids: self._estimator.predictable(ids, self._done(ids)),
        }

    def gather(self, name: str, ids: Ints) -> NDArray[Any]:
        """Return one column for some jobs, as a new read-only array."""
        self._check_declared(name)
        live = self._live.get(name)
        values: NDArray[Any] = live(ids) if live else self._column(name)[ids]
        values.flags.writeable = False
        return values

    def one(self, name: str, job: JobId) -> float:
        """Return one value of a column, without building arrays."""
        scalars = self._scalars.get(name)
        if scalars is not None:
            return scalars[job]
        if name == "remaining_work" and name in self._reads:
            return self._estimator.remaining_one(job, self.done_one(job))
        self._check_declared(name)
        columns, now = self._columns, self.now_s
        if name == "served_gpu_s":
            return columns.served_gpu_s[job] + columns.held_gpus[job] * (
                now - columns.segment_t0[job]
            )
        if name == "held_gpus":
            return columns.held_gpus[job]
        if name in self._live:
            return float(self.gather(name, np.array([job]))[0])
        self._scalars[name] = memoryview(np.ascontiguousarray(self._column(name), np.float64))  # type: ignore[arg-type]
        return self._scalars[name][job]

    def done_one(self, job: JobId) -> float:
        """Return the true work that a job has done by now."""
        columns, left = self._columns, self._columns.left[job]
        rate = columns.rate[job]
        if rate:
            moving = self.now_s - max(columns.segment_t0[job], columns.resume[job])
            left -= rate * moving if moving > 0 else 0.0
        return self._work_of[job] - left

    def names(self, column: str) -> tuple[str, ...]:
        """Return the texts of a text column, in the order of its codes."""
        texts = self._names.get(column)
        if texts is None:
            texts = self._names[column] = tuple(map(str, self._trace.texts(column).categories))
        return texts

    def _check_declared(self, name: str) -> None:
        """Refuse a column that the allocator does not declare to read."""
        need = GATED.get(name)
        if need and need not in self._reads:
            raise ContractError(
                f"the allocator reads '{name}' but does not declare '{need}' in needs.reads"
            )

    def _column(self, name: str) -> NDArray[Any]:
        """Return a column of the trace for all jobs, from a cache."""
        values = self._static.get(name)
        if values is None:
            values = self._static[name] = self._read_public(name)
        return values

    def _read_public(self, name: str) -> NDArray[Any]:
        """Return a public column of the trace for all jobs; texts as integer codes."""
        if name in PUBLIC_NUMBERS:
            values = self._trace.numbers(*PUBLIC_NUMBERS[name])
            return values.astype(np.int64) if name == "gpus" else values
        if name in PUBLIC_TEXTS:
            return np.asarray(self._trace.texts(name).codes, np.int64)
        if name == "recorded_start_s":
            return self._trace.numbers("start_time_s")
        raise ContractError(f"there is no column '{name}' that an allocator may read")

    def _rate(self, ids: Ints) -> Floats:
        """Return the current work per second of some jobs; 0 during a pause."""
        columns = self._columns
        rate: Floats = np.where(
            columns.array("resume")[ids] <= self.now_s, columns.array("rate")[ids], 0.0
        )
        return rate

    def _done(self, ids: Ints) -> Floats:
        """Return the true work that some jobs have done by now."""
        columns = self._columns
        since = np.maximum(columns.array("segment_t0")[ids], columns.array("resume")[ids])
        left = columns.array("left")[ids] - columns.array("rate")[ids] * np.maximum(
            self.now_s - since, 0.0
        )
        done: Floats = self._work[ids] - left
        return done

    def _served_by_now(self, ids: Ints, total: str, held: str) -> Floats:
        """Return the GPU- or core-seconds that some jobs have held by now."""
        columns = self._columns
        served: Floats = columns.array(total)[ids] + columns.array(held)[ids] * (
            self.now_s - columns.array("segment_t0")[ids]
        )
        return served


class LiveTable:
    """The columns of one set of jobs: `sim.contract.JobTable`."""

    __slots__ = ("_cache", "_jobs", "_sets")

    def __init__(
        self, jobs: JobColumns, cache: dict[tuple[LiveTable, str], NDArray[Any]], *sets: IdSet
    ) -> None:
        self._jobs, self._cache, self._sets = jobs, cache, sets

    def __len__(self) -> int:
        return sum([len(ids) for ids in self._sets])

    def column(self, name: str) -> NDArray[Any]:
        """Return a column by name, gathered once per instant."""
        key = (self, name)
        values = self._cache.get(key)
        if values is None:
            values = self._cache[key] = (
                self._ids() if name == "ids" else self._jobs.gather(name, self.ids)
            )
        return values

    @property
    def ids(self) -> Ints:
        """Job ids of the table, ascending."""
        return self.column("ids")

    def _ids(self) -> Ints:
        """Return the ids of all sets of the table, ascending."""
        merged = (
            self._sets[0].ids()
            if len(self._sets) == 1
            else np.sort(np.concatenate([ids.ids() for ids in self._sets]))
        )
        merged.flags.writeable = False
        return merged

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.column(name)


class GatedEstimates:
    """Estimates that the allocator declares to read: `sim.contract.Estimates`.

    Parameters
    ----------
    estimator : BoundEstimator
        Source of work, rates and pauses.
    resources : RecordedResources
        Source of cores and memory.
    reads : frozenset of str
        Reads that the allocator declares, see `sim.contract.Needs`.
    will_restart : callable
        Returns True if the next start of a job is a restart.
    """

    def __init__(
        self,
        estimator: BoundEstimator,
        resources: RecordedResources,
        reads: frozenset[str],
        will_restart: Callable[[JobId], bool],
    ) -> None:
        self._estimator, self._resources, self._reads = estimator, resources, reads
        self._will_restart = will_restart

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the estimated work per second under a grant; refuse undeclared reads."""
        if "rates" not in self._reads:
            self._check_declared("rates")
        return self._estimator.rate(job, grant)

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return estimated work per second of shape (jobs, shapes); refuse undeclared reads."""
        self._check_declared("rates")
        return self._estimator.rates(ids, shapes)

    def pause_s(self, job: JobId, old: Grant | None, new: Grant) -> float:
        """Return the estimated pause of a change of grant in seconds; refuse undeclared reads."""
        if "pause" not in self._reads:
            self._check_declared("pause")
        return self._estimator.pause_s(job, old, new, restarted=self._will_restart(job))

    def resources(self, job: JobId) -> Resources | None:
        """Return the estimated cores and memory of a job; None = no estimate yet.

        Refuses undeclared reads.
        """
        self._check_declared("resources")
        return self._resources.estimate(job)

    def _check_declared(self, need: str) -> None:
        """Refuse an estimate that the allocator does not declare to read."""
        if need not in self._reads:
            raise ContractError(
                f"the allocator reads the estimate '{need}' but does not declare it in needs.reads"
            )


class LiveView:
    """The view of a run, one object reused at all instants: `sim.contract.View`."""

    __slots__ = (
        "_gathered", "_jobs", "active", "clock_s", "cluster", "delta", "demand", "done_one", "estimates", "from_zero", "grants", "names", "now_s", "one", "rng", "room",  # noqa: E501
        "running", "telemetry", "waiting",
    )  # fmt: skip

    def __init__(
        self, jobs: JobColumns, waiting: IdSet, running: IdSet, room: FreeRoom, demands: Demands
    ) -> None:
        self._jobs = jobs
        self.now_s = 0.0
        self.from_zero, self.clock_s = jobs.from_zero, jobs.clock_s
        self.delta = Delta()
        self._gathered: dict[tuple[LiveTable, str], NDArray[Any]] = {}
        self.waiting = LiveTable(jobs, self._gathered, waiting)
        self.running = LiveTable(jobs, self._gathered, running)
        self.active = LiveTable(jobs, self._gathered, waiting, running)
        self.room = room
        self.one = jobs.one
        self.done_one = jobs.done_one
        self.demand = demands.of
        self.names = jobs.names
        self.grants: Mapping[JobId, Grant] = {}
        self.cluster: Cluster
        self.estimates: Estimates
        self.rng: np.random.Generator
        self.telemetry: Callable[[JobId], Telemetry]

    def move_to(self, now_s: float, delta: Delta) -> None:
        """Move the view to an instant with new changes, and clear gathered columns."""
        self.now_s = self._jobs.now_s = now_s
        self.delta = delta
        if self._gathered:
            self._gathered.clear()

    def _free(self) -> list[NDArray[Any]]:
        """Return free GPUs, cores and memory per node."""
        return list(self.room.free_per_node())

    @property
    def free_gpus(self) -> Ints:
        """Free GPUs per node."""
        return self._free()[0]

    @property
    def free_cpus(self) -> Floats:
        """Free cores per node."""
        return self._free()[1]

    @property
    def free_mem_gb(self) -> Floats:
        """Free memory per node."""
        return self._free()[2]

    @property
    def capacity(self) -> Ints:
        """GPUs per node; 0 for nodes out of service."""
        nodes = self.cluster.nodes
        return np.array(
            [
                node.gpus if self.room.is_present(node_index) else 0
                for node_index, node in enumerate(nodes)
            ],
            np.int64,
        )

    @property
    def installed(self) -> Ints:
        """GPUs per node, in service or down for repair; 0 for nodes removed by dated changes."""
        absent = self.cluster.absent(self.now_s)
        return np.array(
            [
                0 if node_index in absent else node.gpus
                for node_index, node in enumerate(self.cluster.nodes)
            ],
            np.int64,
        )


def snapshot(view: LiveView) -> dict[str, Any]:
    """Return a view as plain values, for the report of an infeasible plan."""
    return {
        "now_s": view.now_s,
        "waiting": view.waiting.ids.tolist(),
        "running": {job: grant.gangs for job, grant in sorted(view.grants.items())},
        "free_gpus": view.free_gpus.tolist(),
        "delta": view.delta._asdict(),
    }


__all__ = ["Demand", "GatedEstimates", "JobColumns", "LiveTable", "LiveView", "snapshot"]
