"""Protocols of the allocator's view: job tables, free resources, estimates and measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.grants import Delta, Demand, Grant, JobId, NodePool, Shape

if TYPE_CHECKING:
    from sim.cluster import Cluster

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class FreeResources(Protocol):
    """Free resources, for tentative bookings that the simulator undoes after the call.

    ``masks[pool][f]``: bit set of the nodes with exactly ``f`` free GPUs (bit i = i-th node of the
    pool). ``free[pool]``: free GPUs of the pool.
    """

    pools: Sequence[NodePool]
    masks: Sequence[Sequence[int]]
    free: Sequence[int]
    overflow: int | None

    def is_present(self, node: int) -> bool:
        """Return True if a node is in service."""
        ...

    def gpus_free(self, pools: Iterable[int]) -> int:
        """Return the free GPUs of several pools together."""
        ...

    def replicas_that_fit(self, node: int, demand: Demand) -> int:
        """Return the number of replicas that fit on a node now."""
        ...

    def take(self, grant: Grant) -> None:
        """Book the resources of a grant."""
        ...

    def give(self, grant: Grant) -> None:
        """Free the resources of a grant, e.g. because the plan will stop its job."""
        ...


class Telemetry(NamedTuple):
    """Measurements of a running job by role ("worker" or "server").

    Cores and GB in use per replica; speed of each replica relative to a healthy one.
    """

    cpus: Mapping[str, float]
    mem_gb: Mapping[str, float]
    speed: Mapping[str, tuple[float, ...]]


class Resources(NamedTuple):
    """Peak use of a job: cores and GB of each worker and of each server.

    Server figures hold for the requested number of servers; 0 = none, or memory not modeled.
    """

    worker_cpus: float
    worker_gb: float
    server_cpus: float
    server_gb: float


class JobTable(Protocol):
    """Columns of a set of jobs, in order of job id.

    Columns are gathered when first read, read-only, and valid only during `Allocator.allocate`.
    Other numeric columns that the trace knows at submission have their trace names: ``priority``
    (missing = 0), ``deadline_s``, ``time_limit_s`` (inf), ``batch_size``, ``cpus``, ``mem_gb``.
    Options of schedulers: ``nodes``, ``tasks``, ``tasks_per_node``, ``cpus_per_task``,
    ``mem_per_node_gb``, ``mem_per_cpu_gb``, ``nice``, ``site_priority`` (missing = 0), ``begin_s``
    (-inf), ``requeue`` (NaN). Limits of the performance model (`sim.perf.Limits`): ``min_gpus``,
    ``max_gpus``, ``min_batch``, ``max_batch``. Texts, as codes into `View.names`: ``job_id``,
    ``user``, ``name``, ``vc``, ``model``, ``partition``, ``account``, ``qos``, ``constraint``,
    ``gres``, ``exclusive``, ``reservation``, ``dependency``, ``array``. Recorded run time, end and
    status are hidden.
    """

    @property
    def ids(self) -> Ints:
        """Job ids of the table, ascending."""
        ...

    @property
    def arrival_s(self) -> Floats:
        """Submission time in seconds."""
        ...

    @property
    def gpus(self) -> Ints:
        """Number of requested GPUs."""
        ...

    @property
    def held_gpus(self) -> Ints:
        """GPUs held at this instant."""
        ...

    @property
    def served_gpu_s(self) -> Floats:
        """GPU-seconds held so far."""
        ...

    @property
    def served_cpu_s(self) -> Floats:
        """Core-seconds held so far."""
        ...

    @property
    def rate(self) -> Floats:
        """Observed work per second; 0 while waiting or pausing."""
        ...

    @property
    def remaining_work(self) -> Floats:
        """Estimated work left, in the unit of `Estimates.rate`; reads "remaining_work"."""
        ...

    @property
    def preemptible(self) -> NDArray[np.bool_]:
        """Whether a running job may be stopped or changed."""
        ...

    @property
    def keeps_work(self) -> NDArray[np.bool_]:
        """Whether a stopped or changed job keeps its progress instead of starting over."""
        ...

    @property
    def predictable(self) -> NDArray[np.bool_]:
        """Whether the work of the job can be estimated yet; reads "remaining_work"."""
        ...

    def column(self, name: str) -> Floats:
        """Return a column by name."""
        ...

    def __len__(self) -> int:
        """Return the number of jobs."""
        ...


class Estimates(Protocol):
    """The allocator's estimates of speed and work; the true values are hidden.

    `rates` is 0 where a job cannot run, e.g. below its smallest size.
    """

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the estimated work per second under a grant."""
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return estimated work per second before placement, of shape (jobs, shapes).

        0 = the job cannot run at the shape.
        """
        ...

    def pause_s(self, job: JobId, old: Grant | None, new: Grant) -> float:
        """Return the estimated seconds without progress that a change of grant would cost.

        With no old grant it is the pause of a start: of the first one if the job never ran, of a
        restart if it runs or ran before.
        """
        ...

    def resources(self, job: JobId) -> Resources | None:
        """Return the estimated current use of a job, or None without an estimate yet.

        It does not depend on the user's request. Reads "resources".
        """
        ...


class View(Protocol):
    """The information that an allocator has at one instant.

    One object is reused for the whole run; never keep it.

    `from_zero`: the trace's own clock was 0 at second 0, see `sim.trace.Trace`. `clock_s`: local
    time at second 0, in seconds since 1970; 0 = the trace has no dates.
    """

    now_s: float
    from_zero: bool
    clock_s: float
    delta: Delta
    waiting: JobTable
    running: JobTable
    active: JobTable
    grants: Mapping[JobId, Grant]
    cluster: Cluster
    estimates: Estimates
    rng: np.random.Generator
    room: FreeResources

    @property
    def free_gpus(self) -> Ints:
        """Free GPUs per node."""
        ...

    @property
    def free_cpus(self) -> Floats:
        """Free cores per node; inf = not modeled."""
        ...

    @property
    def free_mem_gb(self) -> Floats:
        """Free memory per node; inf = not modeled."""
        ...

    @property
    def capacity(self) -> Ints:
        """GPUs per node in service; 0 = down or absent."""
        ...

    @property
    def installed(self) -> Ints:
        """GPUs per node, in service or down for repair; 0 = absent by a dated change."""
        ...

    def one(self, column: str, job: JobId) -> float:
        """Return the value of a `JobTable` column for one active job."""
        ...

    def demand(self, job: JobId) -> Demand:
        """Return the demand of a job."""
        ...

    def names(self, column: str) -> tuple[str, ...]:
        """Return the texts of a text column, in the order of its codes."""
        ...

    def telemetry(self, job: JobId) -> Telemetry:
        """Return the measurements of a running job; reads "telemetry"."""
        ...
