"""What an allocator is shown, as protocols: job tables, free room, estimates and measurements, all
behind one `View`.
"""

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
    """What is free. Placement functions allocate on it tentatively; the simulator undoes all of
    that after the call.

    ``masks[pool][f]`` is a bit set (bit i = i-th node of the pool) of the nodes with exactly ``f``
    free GPUs; ``free[pool]`` the free GPUs of the pool.
    """

    pools: Sequence[NodePool]
    masks: Sequence[Sequence[int]]
    free: Sequence[int]
    overflow: int | None

    def is_present(self, node: int) -> bool:
        """Return whether a node is in service."""
        ...

    def gpus_free(self, pools: Iterable[int]) -> int:
        """Return the free GPUs of these pools."""
        ...

    def replicas_that_fit(self, node: int, demand: Demand) -> int:
        """Return how many replicas of this kind the node can still take, looking at GPUs, cores and
        memory.
        """
        ...

    def take(self, grant: Grant) -> None:
        """Reserve what a grant holds."""
        ...

    def give(self, grant: Grant) -> None:
        """Free what a grant holds, e.g. because the plan will stop its job."""
        ...


class Telemetry(NamedTuple):
    """Measurements of a running job by role ("worker", "server"): cores and GB in use per replica,
    speed of each replica against a healthy one.
    """

    cpus: Mapping[str, float]
    mem_gb: Mapping[str, float]
    speed: Mapping[str, tuple[float, ...]]


class Resources(NamedTuple):
    """Cores and GB that a job will use at most: of each worker, and of each server if it has as
    many as it asks for; 0 = none, or memory not modelled.
    """

    worker_cpus: float
    worker_gb: float
    server_cpus: float
    server_gb: float


class JobTable(Protocol):
    """Columns of a set of jobs, gathered when touched, read-only, in order of job id, valid only
    during `Allocator.allocate`.

    Besides the columns below every numeric column of the trace that a user knows at submission is
    there under its trace name (``priority``, ``deadline_s``, ``time_limit_s``, ``batch_size``,
    ``cpus``, ``mem_gb``); limits not given are inf, priorities 0. So is what schedulers are asked
    for beside (``nodes``, ``tasks``, ``tasks_per_node``, ``cpus_per_task``, ``mem_per_node_gb``,
    ``mem_per_cpu_gb``, ``nice``, ``site_priority``: 0 = not said; ``begin_s``: -inf; ``requeue``:
    NaN). How far a job may be resized (``min_gpus``, ``max_gpus``, ``min_batch``, ``max_batch``) is
    what the performance model says, see `sim.perf.Limits`. Text columns (``job_id``, ``user``,
    ``name``, ``vc``, ``model``, ``partition``, ``account``, ``qos``, ``constraint``, ``gres``,
    ``exclusive``, ``reservation``, ``dependency``, ``array``) are codes into `View.names`. The
    recorded run time, end and status of a job are not columns here.
    """

    @property
    def ids(self) -> Ints:
        """Job ids, ascending."""
        ...

    @property
    def arrival_s(self) -> Floats:
        """Seconds of submission."""
        ...

    @property
    def gpus(self) -> Ints:
        """GPUs asked for."""
        ...

    @property
    def held_gpus(self) -> Ints:
        """GPUs held now."""
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
        """Whether the job may be stopped or changed once it runs."""
        ...

    @property
    def keeps_work(self) -> NDArray[np.bool_]:
        """Whether a stopped or changed job resumes where it was, instead of from the beginning."""
        ...

    @property
    def predictable(self) -> NDArray[np.bool_]:
        """Whether the size of the job can be estimated by now; reads "remaining_work"."""
        ...

    def column(self, name: str) -> Floats:
        """Return any column by name."""
        ...

    def __len__(self) -> int:
        """Return the number of jobs."""
        ...


class Estimates(Protocol):
    """Estimates of speed and size for the allocator; the true values are in another object."""

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the estimated work per second under a grant."""
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return estimated work per second, of shape (jobs, shapes), before anything is placed."""
        ...

    def pause_s(self, job: JobId, old: Grant | None, new: Grant) -> float:
        """Return the estimated seconds without progress that a change would cost.

        From no grant it is the pause of a start: of the first one if the job never ran, of a
        restart if it runs or ran before.
        """
        ...

    def resources(self, job: JobId) -> Resources | None:
        """Return the estimated present use of a job, whatever its user asked for; None = no
        estimate yet. Reads "resources".
        """
        ...


class View(Protocol):
    """All that an allocator may know at one instant. One object is reused for the whole run; never
    keep it.

    `from_zero` tells whether the trace's own clock stood at 0 at second 0; see `sim.trace.Trace`.
    `clock_s` is what a clock showed then, in seconds since 1970; 0 where a trace has no dates.
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
        """Free cores per node; inf where cores are not modelled."""
        ...

    @property
    def free_mem_gb(self) -> Floats:
        """Free memory per node; inf where memory is not modelled."""
        ...

    @property
    def capacity(self) -> Ints:
        """GPUs per node that are in service; 0 = down or absent."""
        ...

    @property
    def installed(self) -> Ints:
        """GPUs per node that are there, in service or down for repair; 0 = absent by date."""
        ...

    def one(self, column: str, job: JobId) -> float:
        """Return one value of a `JobTable` column, for any active job, without gathering the
        column.
        """
        ...

    def demand(self, job: JobId) -> Demand:
        """Return what a job asks for."""
        ...

    def names(self, column: str) -> tuple[str, ...]:
        """Return the texts that the codes of a text column stand for."""
        ...

    def telemetry(self, job: JobId) -> Telemetry:
        """Return the measurements of a running job; reads "telemetry"."""
        ...
