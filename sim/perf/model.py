"""What the simulator asks of the truth: the rate of a job under a grant."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from sim.cluster import Cluster
    from sim.contract import Floats, Grant, Ints, JobId, Shape, Telemetry
    from sim.trace import Trace


class Rate(NamedTuple):
    """Work per second, and until when that holds.

    The simulator asks again when the work done reaches ``until_work`` or the clock ``until_s``; with ``then = "oom"`` the job runs out of memory there
    and is evicted.
    """

    work_per_s: float
    until_work: float = inf
    until_s: float = inf
    then: str = "ask"


class PerfModel(Protocol):
    """The truth about speed, bound to one trace and one cluster."""

    def work(self) -> Floats:
        """Return the total work of every job, of shape (jobs,)."""
        ...

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the rate of a job that holds this grant and has done this much work."""
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return work per second, of shape (jobs, shapes), for grants that are not placed yet."""
        ...

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return what a monitor would see of a running job."""
        ...


class PerfSpec(Protocol):
    """A performance model as chosen by the user: a dataclass of parameters."""

    def bind(self, trace: Trace, cluster: Cluster) -> PerfModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        TrainyardError
            If the trace lacks what the model reads.
        """
        ...
