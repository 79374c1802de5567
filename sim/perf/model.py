"""Protocols of performance models: the true rate of a job under a grant, and optional parts."""

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
    """Work per second, and the point until which it holds.

    The simulator requests the rate again when the work done reaches ``until_work`` or the clock
    ``until_s``; with ``then = "oom"`` a "worker" or "server", its ``role``, runs out of memory
    there and the job is evicted.
    """

    work_per_s: float
    until_work: float = inf
    until_s: float = inf
    then: str = "ask"
    role: str = "worker"


class Roles(NamedTuple):
    """Requested workers and parameter servers of each job; read-only arrays of shape (jobs,).

    Counts of replicas, and cores and GB of each. ``servers`` is 0 for jobs without; memory is 0 if
    unknown.
    """

    workers: Floats
    servers: Floats
    worker_cpus: Floats
    worker_mem_gb: Floats
    server_cpus: Floats
    server_mem_gb: Floats


class Usage(NamedTuple):
    """Cores and GB used by all replicas of a role, as a mean over time; NaN = unknown."""

    role: str
    cpus: float
    mem_gb: float


class Limits(NamedTuple):
    """Size and batch limits of jobs; read-only arrays of shape (jobs,).

    Sizes are in GPUs: a job runs on ``min_gpus`` or more, and gains nothing from more than
    ``max_gpus``. The total batch size may be anything from ``min_batch`` to ``max_batch``; NaN if
    it does not matter.
    """

    min_gpus: Floats
    max_gpus: Floats
    min_batch: Floats
    max_batch: Floats


class PerfModel(Protocol):
    """The true performance of jobs, bound to one trace and one cluster."""

    def work(self) -> Floats:
        """Return the total work of every job, of shape (jobs,)."""
        ...

    def limits(self) -> Limits:
        """Return the size and batch limits of each job."""
        ...

    def fastest(self) -> Floats:
        """Return each job's work per second at its best size and batch on the fastest type.

        Shape (jobs,); only types of the cluster.
        """
        ...

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the rate of a job under a grant, given the work done so far.

        Raises
        ------
        ContractError
            If the job cannot run under the grant: too few GPUs, or a batch that does not fit.
        """
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return work per second before placement, of shape (jobs, shapes).

        0 = the job cannot run at this shape, e.g. below its smallest size.
        """
        ...

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return the measurements of a running job that a monitor would have."""
        ...


@runtime_checkable
class Fitting(Protocol):
    """A performance model under which some jobs do not fit on some GPU types.

    For example for lack of memory. An optional part of `PerfModel`.
    """

    def fits(self) -> NDArray[np.bool_]:
        """Return whether each job can run on each type of the cluster, of shape (jobs, types).

        A job is never placed on a type on which it cannot run.
        """
        ...


@runtime_checkable
class Steady(Protocol):
    """A performance model under which one rate may hold for all jobs of a GPU type.

    An optional part of `PerfModel`.
    """

    def steady(self) -> Floats | None:
        """Return the work per second on each type, if it is the same for all jobs; else None.

        Shape (types,). It must hold for every job on its requested number of GPUs of that type, on
        any nodes, from begin to end.
        """
        ...


@runtime_checkable
class Staffed(Protocol):
    """A performance model of jobs with workers and parameter servers.

    An optional part of `PerfModel`.
    """

    def roles(self) -> Roles:
        """Return the requested workers and servers of each job."""
        ...


@runtime_checkable
class Needing(Protocol):
    """A performance model that knows the future cores and memory of workers and servers.

    An optional part of `PerfModel`.
    """

    def resources(self) -> Floats:
        """Return the columns of `sim.contract.Resources`, of shape (jobs, 4).

        For the requested replicas of each job, all healthy, up to its end.
        """
        ...


@runtime_checkable
class Using(Protocol):
    """A performance model that knows the resources that running jobs use.

    An optional part of `PerfModel`.
    """

    def usage(
        self, job: JobId, grant: Grant, done: tuple[float, float], now_s: float
    ) -> tuple[Usage, ...]:
        """Return the use of each role while the work done grows between two values.

        Under one grant and rate; ``now_s`` is the begin of that period.
        """
        ...


class PerfSpec(Protocol):
    """A performance model chosen by the user: a dataclass of parameters."""

    scales: ClassVar[bool]
    """Whether jobs may run at other sizes than requested."""
    staffed: ClassVar[bool]
    """Whether jobs have workers and parameter servers."""

    def price(self) -> str:
        """Return a clause for users on the cost of the copies of a forked job."""
        ...

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return sentences for users on values assumed because the trace lacks them."""
        ...

    def bind(self, trace: Trace, cluster: Cluster) -> PerfModel:
        """Bind the model to a trace and a cluster.

        Raises
        ------
        TrainyardError
            If the trace lacks data that the model needs.
        """
        ...
