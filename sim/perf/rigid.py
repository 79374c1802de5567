"""Rigid jobs: a complete gang runs at the speed of its slowest GPU type, anything else is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sim.cluster import KNOWN_TYPES, Cluster
from sim.contract import Floats, Gang, Grant, Ints, JobId, Shape, Telemetry
from sim.errors import ContractError, ParameterError
from sim.params import param
from sim.perf.model import Limits, Rate
from sim.trace import Trace

_ON_CPUS = Rate(1.0)


@dataclass(frozen=True)
class Rigid:
    """The recorded run time, scaled by the relative speed of the GPU type.

    Notes
    -----
    The work of a job is its recorded duration times the speed of the type it was measured on: column ``gpu_type`` where the trace has it and the type is
    one of the cluster's or of the table of known types, else ``reference``. A gang works at the speed of its slowest type, over ``span_node`` or
    ``span_rack`` where it spans several nodes or racks; both are 1 by default, because a recorded duration already contains its placement. The gangs of a
    forked job add up. On the overflow node of the recorded schedule a job runs as it was recorded.
    """

    scales: ClassVar[bool] = False

    reference: str = param("", help="GPU type that durations without a type of their own were measured on; empty = the first type of the cluster.")
    span_node: float = param(1.0, low=1, high=100, help="Slowdown of a gang that spans several nodes of one rack.")
    span_rack: float = param(1.0, low=1, high=100, help="Slowdown of a gang that spans several racks; at least that of several nodes.")

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Assume nothing: a recorded run time is a fact."""
        del trace
        return ()

    def bind(self, trace: Trace, cluster: Cluster) -> RigidModel:
        """Bind to jobs and machines.

        Raises
        ------
        ParameterError
            If the reference type is not one of the cluster's.
        """
        if self.reference and self.reference not in cluster.type_index:
            raise ParameterError(f"rigid: the cluster has no GPU type '{self.reference}'. It has: {', '.join(cluster.type_index)}.")
        return RigidModel(self, trace, cluster)


class RigidModel:
    """`Rigid`, bound to one trace and one cluster."""

    def __init__(self, spec: Rigid, trace: Trace, cluster: Cluster) -> None:
        self._spec = spec
        self._asked = trace.numbers("num_gpus")
        speeds = {kind.name: kind.speed for kind in cluster.types}
        reference = speeds.get(spec.reference or next(iter(speeds), ""), 1.0)
        measured = trace.texts("gpu_type")
        known = {name: kind.speed for name, kind in KNOWN_TYPES.items()} | speeds
        at = np.array([known.get(str(name), reference) for name in measured.categories])
        self._measured_speed = at[measured.codes]
        self._work: Floats = trace.numbers("duration_s") * self._measured_speed
        # CPU jobs are measured on CPUs: their recorded time is their time here.
        self._work[self._asked == 0] = trace.numbers("duration_s")[self._asked == 0]
        self._type_speeds = [kind.speed for kind in cluster.types]
        self._speed = [speeds.get(node.gpu_type, 1.0) for node in cluster.nodes]
        self._racks = [node.rack for node in cluster.nodes]
        self._sizes: memoryview[float] = memoryview(self._asked)  # type: ignore[arg-type]
        self._rates: dict[float, Rate] = {}
        self._on_node = [Rate(speed) for speed in self._speed]
        self._overflow = len(self._speed)

    def work(self) -> Floats:
        """Return seconds on the reference type, of shape (jobs,)."""
        return self._work

    def limits(self) -> Limits:
        """Return the size that each job asked for, twice."""
        nothing = np.full(len(self._asked), np.nan)
        return Limits(self._asked, self._asked, nothing, nothing)

    def fastest(self) -> Floats:
        """Return the speed of the fastest type; 1 for CPU jobs."""
        return np.where(self._asked > 0, max(self._type_speeds, default=1.0), 1.0)

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the rate of a job that holds complete gangs.

        Raises
        ------
        ContractError
            If a gang has another size than the job asked for.
        """
        del done, now_s
        gangs = grant.gangs
        if len(gangs) == 1:
            nodes, count, gpus, _, _ = gangs[0].workers
            if len(nodes) == 1 and count[0] * gpus == self._sizes[job] and nodes[0] != self._overflow:
                return self._on_node[nodes[0]] if gpus else _ON_CPUS
        speed = sum([self._gang_speed(job, gang) for gang in gangs])
        known = self._rates.get(speed)
        if known is None:
            known = self._rates[speed] = Rate(speed)
        return known

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return the rate for grants that are not placed yet; 0 for an incomplete gang."""
        asked = self._asked[ids]
        columns = [np.where(sum(shape.gpus) == asked, self._shape_speed(shape), 0.0) for shape in shapes]
        return np.stack(columns, axis=1) if columns else np.zeros((len(ids), 0))

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return what is asked for as what is used, every worker healthy."""
        del job, done, now_s
        workers = grant.gangs[0].workers
        return Telemetry({"worker": workers.cpus}, {"worker": workers.mem_gb}, {"worker": (1.0,) * sum(workers.count)})

    def _gang_speed(self, job: JobId, gang: Gang) -> float:
        nodes, count, gpus, _, _ = gang.workers
        held, asked = sum(count) * gpus, self._sizes[job]
        if not asked:
            return 1.0
        if held != asked:
            raise ContractError(f"job {job} asked for {asked:g} GPUs and cannot run on {held}; choose a performance model that scales")
        if nodes[0] == self._overflow:
            return float(self._measured_speed[job])
        if len(nodes) == 1:
            return self._speed[nodes[0]]
        slowest = min([self._speed[node] for node in nodes])
        if len({self._racks[node] for node in nodes}) > 1:
            return slowest / max(self._spec.span_rack, self._spec.span_node)
        return slowest / self._spec.span_node

    def _shape_speed(self, shape: Shape) -> float:
        used = [speed for speed, gpus in zip(self._type_speeds, shape.gpus, strict=True) if gpus]
        slowest = min(used, default=1.0)
        return slowest if shape.nodes == 1 else slowest / self._spec.span_node
