"""Rigid jobs: a complete gang runs at the speed of its slowest GPU type, others are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sim.cluster import Cluster
from sim.contract import Floats, Gang, Grant, Ints, JobId, Shape, Telemetry
from sim.errors import ContractError
from sim.params import param
from sim.perf.copy_cost import Copies
from sim.perf.machines import ON_CPUS, Machines, Spans, healthy_telemetry
from sim.perf.model import Limits, Rate
from sim.trace import Trace


@dataclass(frozen=True)
class Rigid(Copies):
    """Jobs keep their GPU count; only the speed of the GPU type changes their run time.

    Notes
    -----
    The work of a job is its recorded duration times the speed of the type it was measured on:
    column ``gpu_type`` if the trace has it and the type is in the cluster or the catalog, else
    ``reference``. A gang works at the speed of its slowest type, over
    ``span_node`` or ``span_rack`` where it spans several nodes or racks; both are 1 by default,
    because a recorded duration already contains its placement. A forked job does the sum of its
    gangs, minus the cost of copies (`sim.perf.copy_cost`). On the overflow node of the recorded
    schedule a job runs as it was recorded.
    """

    scales: ClassVar[bool] = False
    staffed: ClassVar[bool] = False

    reference: str = param(
        "",
        title="Reference GPU type",
        help=(
            "GPU type that durations without a type of their own were measured on; empty = the"
            " first type of the cluster."
        ),
    )
    span_node: float = param(
        1.0,
        title="Slowdown across nodes",
        low=1,
        high=100,
        help="Slowdown of a gang that spans several nodes of one rack.",
    )
    span_rack: float = param(
        1.0,
        title="Slowdown across racks",
        low=1,
        high=100,
        help="Slowdown of a gang that spans several racks; at least that of several nodes.",
    )

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return no assumptions: a recorded run time is a fact."""
        del trace
        return ()

    def bind(self, trace: Trace, cluster: Cluster) -> RigidModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        ParameterError
            If the reference type is not one of the cluster's.
        """
        machines = Machines(
            "rigid", Spans(self.reference, self.span_node, self.span_rack), trace, cluster
        )
        return RigidModel(trace, machines, self)


class RigidModel:
    """`Rigid`, bound to one trace and one cluster."""

    def __init__(self, trace: Trace, machines: Machines, price: Copies) -> None:
        self._machines, self._price = machines, price
        self._requested, duration = trace.numbers("num_gpus"), trace.numbers("duration_s")
        # CPU jobs were measured on CPUs: their recorded time is their run time.
        self._work: Floats = np.where(self._requested > 0, duration * machines.measured, duration)
        self._sizes: memoryview[float] = memoryview(self._requested)  # type: ignore[arg-type]
        self._rates: dict[float, Rate] = {}
        self._on_node = [Rate(speed) for speed in machines.node_speed]
        self._overflow = machines.overflow

    def work(self) -> Floats:
        """Return seconds on the reference type, of shape (jobs,)."""
        return self._work

    def limits(self) -> Limits:
        """Return the requested size of each job as minimum and maximum."""
        no_batch = np.full(len(self._requested), np.nan)
        return Limits(self._requested, self._requested, no_batch, no_batch)

    def fastest(self) -> Floats:
        """Return the speed of the fastest type; 1 for CPU jobs."""
        return np.where(self._requested > 0, self._machines.fastest, 1.0)

    def steady(self) -> Floats | None:
        """Return the speed of each type; None if spans matter."""
        return self._machines.steady()

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the rate of a job on complete gangs.

        Raises
        ------
        ContractError
            If a gang has another size than requested.
        """
        del done, now_s
        gangs = grant.gangs
        if len(gangs) == 1:
            nodes, count, gpus, _, _ = gangs[0].workers
            if (
                len(nodes) == 1
                and count[0] * gpus == self._sizes[job]
                and nodes[0] != self._overflow
            ):
                return self._on_node[nodes[0]] if gpus else ON_CPUS
        speed = sum([self._gang_speed(job, gang) for gang in gangs]) * self._price.worth(len(gangs))
        rate = self._rates.get(speed)
        if rate is None:
            rate = self._rates[speed] = Rate(speed)
        return rate

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return rates before placement, of shape (jobs, shapes); 0 for an incomplete gang."""
        gpus, speeds = self._machines.shapes(shapes)
        return np.where(gpus == self._requested[ids, None], speeds, 0.0)

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return telemetry of healthy workers that use their request."""
        del job, done, now_s
        return healthy_telemetry(grant)

    def _gang_speed(self, job: JobId, gang: Gang) -> float:
        """Return the speed of a complete gang; refuse other sizes. 1 for CPU jobs."""
        held, requested = sum(gang.workers.count) * gang.workers.gpus, self._sizes[job]
        if not requested:
            return 1.0
        if held != requested:
            raise ContractError(
                f"job {job} asked for {requested:g} GPUs and cannot run on {held}; choose a"
                " performance model that scales"
            )
        return self._machines.gang_speed(job, gang)
