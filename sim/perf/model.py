"""What the simulator asks of the truth: the rate of a job under a grant."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sim.cluster import Cluster
    from sim.contract import Floats, Grant, Ints, JobId, Shape, Telemetry
    from sim.trace import Trace


class Rate(NamedTuple):
    """Work per second, and until when that holds.

    The simulator asks again when the work done reaches ``until_work`` or the clock ``until_s``;
    with ``then = "oom"`` a "worker" or "server", its ``role``, runs out of memory there and the job
    is evicted.
    """

    work_per_s: float
    until_work: float = inf
    until_s: float = inf
    then: str = "ask"
    role: str = "worker"


class Roles(NamedTuple):
    """What jobs with parameter servers are made of, as they ask for it; read-only arrays of shape
    (jobs,).

    Counts of replicas, and cores and GB of each. ``servers`` is 0 for jobs without; memory is 0
    where it is not stated.
    """

    workers: Floats
    servers: Floats
    worker_cpus: Floats
    worker_mem_gb: Floats
    server_cpus: Floats
    server_mem_gb: Floats


class Usage(NamedTuple):
    """Cores and GB in use by all replicas of a role together, as a mean over time; NaN = not
    known.
    """

    role: str
    cpus: float
    mem_gb: float


class Limits(NamedTuple):
    """How far jobs may be resized; read-only arrays of shape (jobs,).

    Sizes are in GPUs: a job runs on ``min_gpus`` or more, and gains nothing from more than
    ``max_gpus``. The total batch size may be anything from ``min_batch`` to ``max_batch``; NaN
    where it plays no role.
    """

    min_gpus: Floats
    max_gpus: Floats
    min_batch: Floats
    max_batch: Floats


class PerfModel(Protocol):
    """The truth about speed, bound to one trace and one cluster."""

    def work(self) -> Floats:
        """Return the total work of every job, of shape (jobs,)."""
        ...

    def limits(self) -> Limits:
        """Return how far each job may be resized."""
        ...

    def fastest(self) -> Floats:
        """Return the work per second of every job at its best size and batch on the fastest type of
        the cluster, of shape (jobs,).
        """
        ...

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the rate of a job that holds this grant and has done this much work.

        Raises
        ------
        ContractError
            If the job cannot run so: fewer GPUs than its limits say, or a batch that does not fit.
        """
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return work per second, of shape (jobs, shapes), for grants that are not placed yet; 0
        where a job cannot run so.
        """
        ...

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return what a monitor would see of a running job."""
        ...


@runtime_checkable
class Fitting(Protocol):
    """A performance model under which some jobs do not fit on some GPU types, for example for lack
    of memory; an optional part of `PerfModel`.
    """

    def fits(self) -> NDArray[np.bool_]:
        """Return where each job can run at all, of shape (jobs, types) with the types in the order
        of the cluster; elsewhere it is never placed.
        """
        ...


@runtime_checkable
class Steady(Protocol):
    """A performance model under which one rate may hold for all jobs of a GPU type; an optional
    part of `PerfModel`.
    """

    def steady(self) -> Floats | None:
        """Return the work per second on each type of the cluster, of shape (types,), of every job
        that holds as many GPUs as it asks for there, on whichever nodes and from beginning to end;
        None = it may differ.
        """
        ...


@runtime_checkable
class Staffed(Protocol):
    """A performance model under which jobs are made of workers and parameter servers; an optional
    part of `PerfModel`.
    """

    def roles(self) -> Roles:
        """Return what each job asks for."""
        ...


@runtime_checkable
class Needing(Protocol):
    """A performance model that knows which cores and memory jobs of workers and servers are going
    to use; an optional part of `PerfModel`.
    """

    def resources(self) -> Floats:
        """Return the columns of `sim.contract.Resources`, of shape (jobs, 4), for as many replicas
        as each job asks for, all healthy, to its end.
        """
        ...


@runtime_checkable
class Using(Protocol):
    """A performance model that knows what jobs use of what they hold; an optional part of
    `PerfModel`.
    """

    def usage(
        self, job: JobId, grant: Grant, done: tuple[float, float], now_s: float
    ) -> tuple[Usage, ...]:
        """Return what each role uses while the work done grows between these two, under one grant
        and rate; ``now_s`` is when that began.
        """
        ...


class PerfSpec(Protocol):
    """A performance model as chosen by the user: a dataclass of parameters."""

    scales: ClassVar[bool]
    """Whether jobs may run at other sizes than they asked for."""
    staffed: ClassVar[bool]
    """Whether jobs are made of workers and parameter servers."""

    def price(self) -> str:
        """Return in words what the copies of a forked job cost."""
        ...

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return what is assumed of how many jobs, because the trace does not say it, as sentences
        for the user.
        """
        ...

    def bind(self, trace: Trace, cluster: Cluster) -> PerfModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        TrainyardError
            If the trace lacks what the model reads.
        """
        ...
