"""What a cluster and its GPU types make of a gang: the speed of its slowest type, less what its
span costs.
"""

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
"""CPU jobs run as long here as where they were recorded."""


class Spans(NamedTuple):
    """Where durations were measured, and what a gang pays for its span: parameters that several
    performance models have.
    """

    reference: str = ""
    span_node: float = 1.0
    span_rack: float = 1.0


class Machines:
    """The nodes of a cluster as a performance model sees them.

    Parameters
    ----------
    name : str
        Of the performance model, for its refusals.
    spans : Spans
        Parameters of the model.
    trace : Trace
        Where `gpu_type`, the type that a duration was measured on, comes from.
    cluster : Cluster
        The machines.

    Attributes
    ----------
    measured : array of shape (jobs,)
        Speed of the type that each job was measured on: column ``gpu_type`` where the type is one
        of the cluster's or of the table of known types, else the reference type.
    fastest : float
        Speed of the fastest type of the cluster.
    largest : int
        GPUs of the type that has most of them, of the nodes that are known of from the beginning.

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
        # A type of the cluster has the figures that the user sees there.
        known = {
            str(kind): like.speed for kind in types.categories if (like := known_type(str(kind)))
        } | speeds
        self.measured: Floats = np.array(
            [known.get(str(kind), self.reference) for kind in types.categories]
        )[types.codes]
        self.measured.flags.writeable = False
        held: dict[str, int] = {}
        for node in cluster.known:
            held[node.gpu_type] = held.get(node.gpu_type, 0) + node.gpus
        self.fastest = max([speed for kind, speed in speeds.items() if held.get(kind)], default=1.0)
        self.largest = max(held.values(), default=0)
        self.node_speed = [speeds.get(node.gpu_type, 1.0) for node in cluster.nodes]
        self.overflow = len(self.node_speed)
        self._type_speeds = np.array([kind.speed for kind in cluster.types])
        self._racks = [node.rack for node in cluster.nodes]
        self._across_nodes = spans.span_node
        self._across_racks = max(spans.span_rack, spans.span_node)

    def gang_speed(self, job: JobId, gang: Gang) -> float:
        """Return the speed of the slowest type of a gang, divided by what its span costs; on the
        overflow node, that of where it was recorded.
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
        """Return the speed of a gang on each type of the cluster; None = its span matters, too."""
        return self._type_speeds if self._across_racks == 1 else None

    def shapes(self, shapes: Sequence[Shape]) -> tuple[Floats, Floats]:
        """Return GPUs and speed of grants that are not placed yet, both of shape (shapes,); several
        nodes are taken to share a rack.
        """
        if not len(self._type_speeds):
            return np.zeros(len(shapes)), np.ones(len(shapes))
        counts = np.array([shape.gpus for shape in shapes], np.float64).reshape(
            len(shapes), len(self._type_speeds)
        )
        speeds = np.where(counts > 0, self._type_speeds, np.inf).min(axis=1)
        several = np.array([shape.nodes for shape in shapes]) > 1
        speeds = np.where(several, speeds / self._across_nodes, speeds)
        speeds[np.isinf(speeds)] = 1.0  # without GPUs there is nothing to be slowed down
        return counts.sum(axis=1), speeds


def healthy(grant: Grant) -> Telemetry:
    """Return what is asked for as what is used, every worker healthy."""
    workers = grant.gangs[0].workers
    return Telemetry(
        {"worker": workers.cpus},
        {"worker": workers.mem_gb},
        {"worker": (1.0,) * sum(workers.count)},
    )
