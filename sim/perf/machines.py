"""Speed of a gang on the cluster: that of its slowest GPU type, reduced by its span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from sim.cluster import Cluster, known_type
from sim.contract import Floats, Gang, Grant, JobId, Shape, Telemetry
from sim.errors import ParameterError
from sim.perf.model import Rate
from sim.trace import Trace

ON_CPUS: Final = Rate(1.0)
"""Rate of CPU jobs: they run as long as in the recording."""


class Spans(NamedTuple):
    """Reference type and slowdowns by span: parameters shared by several performance models."""

    reference: str = ""
    span_node: float = 1.0
    span_rack: float = 1.0


class Machines:
    """Speeds of the nodes and GPU types of a cluster, for performance models.

    Parameters
    ----------
    name : str
        Name of the performance model, for error messages.
    spans : Spans
        Parameters of the model.
    trace : Trace
        Source of column `gpu_type`, the type that a duration was measured on.
    cluster : Cluster
        The machines.

    Attributes
    ----------
    measured : array of shape (jobs,)
        Speed of the type that each job was measured on: column ``gpu_type`` if that type is in the
        cluster or the catalog, else the reference type.
    fastest : float
        Speed of the fastest type of the cluster.
    largest : int
        GPUs of the most frequent type, among the nodes known at the start.

    Raises
    ------
    ParameterError
        If the reference type is not one of the cluster's.
    """

    def __init__(self, name: str, spans: Spans, trace: Trace, cluster: Cluster) -> None:
        if spans.reference and spans.reference not in cluster.type_index:
            raise ParameterError(
                f"{name}: the cluster has no GPU type '{spans.reference}'. It has:"
                f" {', '.join(cluster.type_index)}."
            )
        speeds = {kind.name: kind.speed for kind in cluster.types}
        self.reference = speeds.get(spans.reference or next(iter(speeds), ""), 1.0)
        types = trace.texts("gpu_type")
        # Types of the cluster have the user's figures.
        speed_of_type = {
            str(kind): like.speed for kind in types.categories if (like := known_type(str(kind)))
        } | speeds
        self.measured: Floats = np.array(
            [speed_of_type.get(str(kind), self.reference) for kind in types.categories]
        )[types.codes]
        self.measured.flags.writeable = False
        gpus_by_type: dict[str, int] = {}
        for node in cluster.initial_nodes:
            gpus_by_type[node.gpu_type] = gpus_by_type.get(node.gpu_type, 0) + node.gpus
        self.fastest = max(
            [speed for kind, speed in speeds.items() if gpus_by_type.get(kind)], default=1.0
        )
        self.largest = max(gpus_by_type.values(), default=0)
        self.node_speed = [speeds.get(node.gpu_type, 1.0) for node in cluster.nodes]
        self.overflow = len(self.node_speed)
        self._type_speeds = np.array([kind.speed for kind in cluster.types])
        self._racks = [node.rack for node in cluster.nodes]
        self._across_nodes = spans.span_node
        self._across_racks = max(spans.span_rack, spans.span_node)

    def gang_speed(self, job: JobId, gang: Gang) -> float:
        """Return the speed of a gang: its slowest type, divided by the slowdown of its span.

        On the overflow node it is the speed of the recording.
        """
        nodes = gang.workers.nodes
        if nodes[0] == self.overflow:
            return float(self.measured[job])
        if len(nodes) == 1:
            return self.node_speed[nodes[0]]
        slowest = min([self.node_speed[node] for node in nodes])
        return slowest / (
            self._across_nodes
            if len({self._racks[node] for node in nodes}) == 1
            else self._across_racks
        )

    def steady(self) -> Floats | None:
        """Return the speed on each type of the cluster; None if spans matter too."""
        return self._type_speeds if self._across_racks == 1 else None

    def shapes(self, shapes: Sequence[Shape]) -> tuple[Floats, Floats]:
        """Return GPUs and speed of grants before placement, both of shape (shapes,).

        Several nodes are assumed to share a rack.
        """
        if not len(self._type_speeds):
            return np.zeros(len(shapes)), np.ones(len(shapes))
        counts = np.array([shape.gpus for shape in shapes], np.float64).reshape(
            len(shapes), len(self._type_speeds)
        )
        speeds = np.where(counts > 0, self._type_speeds, np.inf).min(axis=1)
        spans_nodes = np.array([shape.nodes for shape in shapes]) > 1
        speeds = np.where(spans_nodes, speeds / self._across_nodes, speeds)
        speeds[np.isinf(speeds)] = 1.0  # no slowdown without GPUs
        return counts.sum(axis=1), speeds


def healthy_telemetry(grant: Grant) -> Telemetry:
    """Return telemetry of healthy workers that use exactly their request."""
    workers = grant.gangs[0].workers
    return Telemetry(
        {"worker": workers.cpus},
        {"worker": workers.mem_gb},
        {"worker": (1.0,) * sum(workers.count)},
    )
