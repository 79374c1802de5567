"""GPU-seconds of a run (held, productive, paused, lost), capacity, and the cost of both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.metrics.steps import Floats, Ints, merge_intervals
from sim.result import RunResult

_HOUR_S = 3600.0


@dataclass(frozen=True, eq=False)
class UsageArrays:
    """Segments and placements of a run as plain arrays, so that a window costs one pass.

    Parameters
    ----------
    result : RunResult
        The run.
    cluster : Cluster
        The cluster of the run, for types and prices. The overflow node, if any, follows its last
        node.
    """

    result: RunResult
    cluster: Cluster

    @cached_property
    def t0(self) -> Floats:
        """Begin of each segment, in seconds."""
        return _floats(self.result.segments["t0"])

    @cached_property
    def t1(self) -> Floats:
        """End of each segment, in seconds."""
        return _floats(self.result.segments["t1"])

    @cached_property
    def resume(self) -> Floats:
        """Start of each segment's progress: t0 + paused, at most t1."""
        return np.asarray(np.minimum(self.t0 + _floats(self.result.segments["paused_s"]), self.t1))

    @cached_property
    def segment(self) -> Ints:
        """Row of `segments` of each placement."""
        return self.result.placements["segment"].to_numpy(np.int64)

    @cached_property
    def node(self) -> Ints:
        """Node of each placement."""
        return self.result.placements["node"].to_numpy(np.int64)

    @cached_property
    def held_gpus(self) -> Floats:
        """GPUs of each placement: replicas x GPUs per replica."""
        placements = self.result.placements
        return np.asarray(_floats(placements["count"]) * _floats(placements["gpus"]))

    @cached_property
    def node_type(self) -> Ints:
        """Index in `cluster.types` of each node's GPU type.

        CPU nodes and the overflow node have the index len(types); the overflow node comes last.
        """
        index, no_type = self.cluster.type_index, len(self.cluster.types)
        kinds = [index[node.gpu_type] if node.gpus else no_type for node in self.cluster.nodes]
        return np.array([*kinds, no_type], np.int64)

    @cached_property
    def kept_work_share(self) -> Floats:
        """Share of each job's work that was not lost.

        Notes
        -----
        1 - lost work / work done in all its segments (rate x productive time). Lost work is
        recorded per job, so a job's loss is spread over its segments in proportion to the work done
        there: our reading, exact in the sum over the run.
        """
        result = self.result
        work = _floats(result.segments["rate"]) * (self.t1 - self.resume)
        done = _sums(result.segments["job"].to_numpy(np.int64), work, len(result.jobs))
        lost = np.divide(
            _floats(result.jobs["lost_work"]), done, out=np.zeros_like(done), where=done > 0
        )
        return np.asarray(1.0 - np.clip(lost, 0.0, 1.0))

    def held_gpu_s(self, t0: float, t1: float) -> Floats:
        """Return the GPU-seconds held on each node in a window; the overflow node is last."""
        return self._per_node(np.clip(np.minimum(self.t1, t1) - np.maximum(self.t0, t0), 0.0, None))

    def productive_gpu_s(self, t0: float, t1: float) -> Floats:
        """Return the GPU-seconds of lasting progress on each node in a window.

        Without pauses and without lost work.
        """
        kept_work_share = self.kept_work_share[self.result.segments["job"].to_numpy(np.int64)]
        return self._per_node(
            np.clip(np.minimum(self.t1, t1) - np.maximum(self.resume, t0), 0.0, None)
            * kept_work_share
        )

    @property
    def paused_gpu_s(self) -> float:
        """GPU-seconds held without progress, over the whole run."""
        return total(self.held_gpus, (self.resume - self.t0)[self.segment])

    @property
    def lost_gpu_s(self) -> float:
        """GPU-seconds of progress lost later, over the whole run; see `kept_work_share`."""
        lost = (self.t1 - self.resume) * (1.0 - self.kept_work_share)[
            self.result.segments["job"].to_numpy(np.int64)
        ]
        return total(self.held_gpus, lost[self.segment])

    def _per_node(self, seconds: Floats) -> Floats:
        """Return GPU-seconds per node, given the seconds that count of each segment."""
        return _sums(self.node, self.held_gpus * seconds[self.segment], len(self.cluster.nodes) + 1)

    def by_type(self, per_node: Floats) -> Floats:
        """Sum an amount per node to one per GPU type, in the order of `cluster.types`.

        CPU nodes and overflow are left out.
        """
        kinds = self.node_type[np.minimum(np.arange(len(per_node)), len(self.node_type) - 1)]
        return _sums(kinds, per_node, len(self.cluster.types) + 1)[:-1]

    def cost_held_usd(self) -> Floats:
        """Return the cost of each job: the resources it held at the price of their nodes.

        Notes
        -----
        GPU-hours x (price of the node per hour / its GPUs). On a node without GPUs the price is
        shared by cores: core-hours x price / cores. Overflow is free.
        """
        result, nodes = self.result, self.cluster.nodes
        per_gpu = np.array(
            [*(node.price_per_hour / node.gpus if node.gpus else 0.0 for node in nodes), 0.0]
        )
        core_prices = (
            (node.price_per_hour / node.cpus) if not node.gpus and node.cpus > 0 else 0.0
            for node in nodes
        )
        per_core = np.array([*core_prices, 0.0])
        node_index = np.minimum(self.node, len(nodes))
        price = per_gpu[node_index] * self.held_gpus
        if per_core.any():
            placements = result.placements
            price = price + per_core[node_index] * _floats(placements["count"]) * _floats(
                placements["cpus"]
            )
        hours = (self.t1 - self.t0)[self.segment] / _HOUR_S
        owner = result.segments["job"].to_numpy(np.int64)[self.segment]
        return _sums(owner, price * hours, len(result.jobs))


def downtimes(result: RunResult, cluster: Cluster) -> tuple[Ints, Floats, Floats]:
    """Return node, begin and end of the periods without capacity, not overlapping.

    Outages of the run and dated absences of the cluster.

    Parameters
    ----------
    result : RunResult
        Source of the outages; an open one lasts to the end of the run.
    cluster : Cluster
        Source of the dated absences, which the run may also have recorded.
    """
    frame, planned = result.outages, absences(cluster, result.end_s)
    ends = frame["t1"].to_numpy(np.float64)
    return merge_intervals(
        np.concatenate((frame["node"].to_numpy(np.int64), planned[0])),
        np.concatenate((frame["t0"].to_numpy(np.float64), planned[1])),
        np.concatenate((np.where(np.isnan(ends), result.end_s, ends), planned[2])),
    )


def absences(cluster: Cluster, end_s: float) -> tuple[Ints, Floats, Floats]:
    """Return node, begin and end of the dated absences of a cluster, up to the end of the run."""
    absent_since: dict[int, float] = {}
    rows: list[tuple[int, float, float]] = []
    for change in sorted(cluster.changes, key=lambda change: change.at_s):
        for node in change.nodes:
            if not change.present:
                absent_since.setdefault(node, change.at_s)
            elif node in absent_since:
                rows.append((node, absent_since.pop(node), change.at_s))
    rows += [(node, begin, max(begin, end_s)) for node, begin in absent_since.items()]
    table = np.array(rows, np.float64).reshape(-1, 3)
    return table[:, 0].astype(np.int64), table[:, 1], table[:, 2]


def capacity_gpu_s(result: RunResult, cluster: Cluster, t0: float, t1: float) -> Floats:
    """Return the GPU-seconds in service on each node in a window."""
    return node_gpus(cluster) * up_s(downtimes(result, cluster), len(cluster.nodes), t0, t1)


def cost_cluster_usd(result: RunResult, cluster: Cluster) -> float:
    """Return the cost of the cluster from the first submission to the end of the run.

    Notes
    -----
    Sum over nodes of price per hour x hours present. A node under repair is paid for, a node absent
    by a dated change is not.
    """
    return total(
        np.array([node.price_per_hour for node in cluster.nodes]),
        present_s(result, cluster) / _HOUR_S,
    )


def present_s(result: RunResult, cluster: Cluster) -> Floats:
    """Return the seconds of a run that each node is present, in service or under repair."""
    return up_s(absences(cluster, result.end_s), len(cluster.nodes), 0.0, result.end_s)


def up_s(down: tuple[Ints, Floats, Floats], nodes: int, t0: float, t1: float) -> Floats:
    """Return the seconds of a window that each node is up, given the `downtimes`."""
    node, begin, end = down
    lost = np.clip(np.minimum(end, t1) - np.maximum(begin, t0), 0.0, None)
    return np.asarray(max(t1 - t0, 0.0) - _sums(node, lost, nodes)[:nodes])


def node_gpus(cluster: Cluster) -> NDArray[np.float64]:
    """Return the GPUs of each node."""
    return np.array([node.gpus for node in cluster.nodes], np.float64)


def total(amounts: Floats, weights: Floats) -> float:
    """Return the sum of amounts times weights.

    `numpy.dot` would start the threads of its library for more than ten thousand products, which
    costs a hundred times as much as it saves and sums in another order on another machine.
    """
    return float((amounts * weights).sum())


def _floats(column: pd.Series) -> Floats:
    """Return a column as floats."""
    return np.asarray(column.to_numpy(np.float64))


def _sums(index: Ints, values: Floats, length: int) -> Floats:
    """Return the sum of the values per index, of a given length."""
    return np.asarray(np.bincount(index, values, minlength=length), np.float64)
