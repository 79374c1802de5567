"""What each job asks for: replicas, and the pools of nodes that may carry them; equal demands are
one object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from math import ceil, floor, inf
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster, Node
from sim.contract import Demand, NodePool
from sim.perf.model import Roles
from sim.trace import Trace


class _Own(NamedTuple):
    """Where a job may run: its GPU types as the trace writes them, and its virtual cluster or
    partition.
    """

    types: str
    home: str


GANG, WORKERS, SERVERS, TOGETHER = "gang", "workers", "servers", "together"
"""Why the empty cluster cannot hold a job: for its GPUs, cores and memory of its workers or of its
servers, or for what both have in common.
"""
NOWHERE: Final = "-"
"""What stands in ``gpu_types_allowed`` of a job that fits on no type: the name of none."""


def pools_of(cluster: Cluster) -> tuple[NodePool, ...]:
    """Group the nodes by GPU type and partitions, in order of first appearance."""
    grouped: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for at, node in enumerate(cluster.nodes):
        grouped.setdefault((node.gpu_type, node.partitions), []).append(at)
    return tuple(
        NodePool(
            tuple(nodes),
            cluster.type_index.get(kind, -1),
            partitions,
            max(cluster.nodes[at].gpus for at in nodes),
        )
        for (kind, partitions), nodes in grouped.items()
    )


class Demands:
    """The demand of every job.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    pools : sequence of NodePool
        From `pools_of`.
    confine_by : str
        "vc" or "partition": only nodes that belong to the job's own, or to none; "" = all nodes.
    roles : Roles, optional
        What jobs are made of, where that is known; else GPU jobs are workers of one GPU each.

    Attributes
    ----------
    unique : list of Demand
        The different ones.
    codes : array of shape (jobs,)
        Which of them each job has.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        pools: Sequence[NodePool],
        confine_by: str = "",
        roles: Roles | None = None,
    ) -> None:
        self._cluster, self._pools = cluster, pools
        types = trace.texts("gpu_types_allowed")
        homes = trace.texts(confine_by) if confine_by else None
        gpus = trace.numbers("num_gpus")
        sizes = (
            (trace.numbers("cpus", 0.0), trace.numbers("mem_gb", 0.0))
            if roles is None
            else tuple(roles)
        )
        # Policies remember where a demand may go, so those from before and after nodes came that
        # nobody knew of are two objects.
        eras = (
            [
                np.searchsorted(
                    sorted(at_s for at_s, _ in cluster.unforeseen),
                    trace.numbers("submit_time_s"),
                    "right",
                )
            ]
            if cluster.unforeseen
            else []
        )
        codes, first = _distinct(
            [gpus, types.codes, *sizes, *(() if homes is None else (homes.codes,)), *eras]
        )
        unique_demands = []
        for job in first:
            own = _Own(str(types[job]), "" if homes is None else str(homes[job]))
            asked = [float(values[job]) for values in sizes]
            unique_demands.append(
                self._of_roles(float(gpus[job]), asked, own)
                if roles
                else self._plain(float(gpus[job]), asked[0], asked[1], own)
            )
        self.unique, self.codes = unique_demands, codes

    @cached_property
    def _by_job(self) -> list[Demand]:
        unique = self.unique
        return [unique[code] for code in self.codes.tolist()]

    @cached_property
    def of(self) -> Callable[[int], Demand]:
        """Return the demand of a job."""
        return self._by_job.__getitem__

    def without(self, nodes: Collection[int]) -> Demands:
        """Return the same demands on a cluster that lacks some nodes; only to be asked what is
        impossible there.
        """
        fewer = copy(self)
        fewer._pools = tuple(
            pool._replace(nodes=tuple(node for node in pool.nodes if node not in nodes))
            for pool in self._pools
        )
        return fewer

    def unschedulable(
        self, smallest: NDArray[np.float64] | None = None, *, mixed: bool, apart: bool = False
    ) -> NDArray[np.bool_]:
        """Tell for each job whether even the empty cluster, with every node present, cannot hold
        it; see `obstacles`.
        """
        return np.asarray(self.obstacles(smallest, mixed=mixed, apart=apart) != "", np.bool_)

    def obstacles(
        self, smallest: NDArray[np.float64] | None = None, *, mixed: bool, apart: bool = False
    ) -> NDArray[np.str_]:
        """Return why even the empty cluster, with every node present, cannot hold each job: `GANG`,
        `WORKERS`, `SERVERS` or `TOGETHER`; "" = it can.

        Parameters
        ----------
        smallest : array of shape (jobs,), optional
            GPUs on which a job could still run, where that is less than it asks for.
        mixed : bool
            Whether one gang may span GPU types.
        apart : bool
            Whether the allocator sizes workers and servers itself, so that what a job asks for need
            not fit together.
        """
        found = np.array(
            [self._obstacle(demand, mixed=mixed, apart=apart) for demand in self.unique], "U8"
        )[self.codes]
        if smallest is None:
            return found
        for job in np.flatnonzero(found != ""):
            demand = self._by_job[job]
            fewest = max(1, ceil(smallest[job] / demand.gpus)) if demand.gpus else demand.replicas
            if fewest < demand.replicas:
                found[job] = self._obstacle(
                    replace(demand, replicas=fewest), mixed=mixed, apart=apart
                )
        return found

    def _plain(self, gpus: float, cpus: float, mem_gb: float, own: _Own) -> Demand:
        replicas, per_replica = (int(gpus), 1) if gpus else (max(1, ceil(cpus)), 0)
        cores = cpus if gpus else max(cpus, 1.0)
        return Demand(
            replicas,
            per_replica,
            _each(cores, replicas),
            _each(mem_gb, replicas),
            self._admitting(per_replica, own),
        )

    def _of_roles(self, gpus: float, asked: Sequence[float], own: _Own) -> Demand:
        workers, servers, worker_cpus, worker_mem_gb, server_cpus, server_mem_gb = asked
        # GPUs that cannot be divided among the workers are one worker each.
        per_worker = int(gpus // workers) if gpus % workers == 0 else 1
        beside = (
            Demand(int(servers), 0, server_cpus, server_mem_gb, self._admitting(0, own))
            if servers
            else None
        )
        replicas = int(gpus // per_worker) if per_worker else int(workers)
        return Demand(
            replicas,
            per_worker,
            worker_cpus,
            worker_mem_gb,
            self._admitting(per_worker, own),
            beside,
        )

    def _admitting(self, gpus: int, own: _Own) -> tuple[int, ...]:
        allowed = frozenset(own.types.split("|")) if own.types else None
        return tuple(
            at for at, pool in enumerate(self._pools) if self._admits(pool, gpus, allowed, own.home)
        )

    def _admits(self, pool: NodePool, gpus: int, allowed: frozenset[str] | None, home: str) -> bool:
        kind = self._cluster.types[pool.type_at].name if pool.type_at >= 0 else ""
        right_type = not gpus or (kind != "" and (allowed is None or kind in allowed))
        # A job may name several partitions, separated by commas.
        return right_type and (
            not home or not pool.partitions or not {*home.split(",")}.isdisjoint(pool.partitions)
        )

    def _obstacle(self, demand: Demand, *, mixed: bool, apart: bool) -> str:
        servers = demand.servers
        if not self._holds(demand, mixed=mixed):
            return (
                WORKERS
                if not demand.gpus
                or self._holds(replace(demand, cpus=0.0, mem_gb=0.0), mixed=mixed)
                else GANG
            )
        if servers is None:
            return ""
        if not self._holds(servers, mixed=mixed):
            return SERVERS
        return "" if apart or self._suffices(demand, servers) else TOGETHER

    def _suffices(self, workers: Demand, servers: Demand) -> bool:
        # Only sums: roles that do not fit together for the way nodes are cut wait for ever, and the
        # end of the run says so.
        nodes = [
            self._cluster.nodes[node]
            for at in {*workers.pools, *servers.pools}
            for node in self._pools[at].nodes
        ]
        return all(
            sum([role.replicas * getattr(role, what) for role in (workers, servers)])
            <= sum([getattr(node, what) for node in nodes]) + 1e-6
            for what in ("cpus", "mem_gb")
        )

    def _holds(self, demand: Demand, *, mixed: bool) -> bool:
        most: dict[int, float] = {}
        for at in demand.pools:
            pool = self._pools[at]
            group = 0 if mixed or not demand.gpus else pool.type_at
            most[group] = most.get(group, 0) + sum(
                capacity_for(self._cluster.nodes[node], demand) for node in pool.nodes
            )
        return any(total >= demand.replicas for total in most.values())


def narrowed(trace: Trace, cluster: Cluster, fits: NDArray[np.bool_]) -> Trace:
    """Return the trace with ``gpu_types_allowed`` narrowed to the types on which each job fits; a
    job that fits on none admits none.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    fits : array of shape (jobs, types)
        See `sim.perf.model.Fitting`; the types in the order of the cluster.
    """
    used = [
        at
        for at, kind in enumerate(cluster.types)
        if any(node.gpu_type == kind.name for node in cluster.nodes)
    ]
    names = [cluster.types[at].name for at in used]
    fits, on_gpus = fits[:, used], trace.numbers("num_gpus") > 0
    bad = np.flatnonzero(on_gpus & ~fits.all(axis=1))
    if not len(bad):
        return trace
    before = trace.texts("gpu_types_allowed")
    texts = before.astype(object)
    for job in bad.tolist():
        admitted = set(str(before[job]).split("|")) if before[job] else set(names)
        texts[job] = (
            "|".join(
                name for name, fit in zip(names, fits[job], strict=True) if fit and name in admitted
            )
            or NOWHERE
        )
    values = (
        pd.Series(texts, index=trace.frame.index)
        .astype("str")
        .where(lambda text: text != "")
        .astype("category")
    )
    return replace(trace, frame=trace.frame.assign(gpu_types_allowed=values))


def _distinct(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], list[int]]:
    """Return for each row the number of its combination of values, in order of first appearance,
    and the first row of each.
    """
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, names = pd.factorize(column)
        if len(names) > 1:
            codes = pd.factorize(codes * len(names) + values)[0].astype(np.int64)
    return codes, np.unique(codes, return_index=True)[1].tolist()


def capacity_for(node: Node, demand: Demand) -> float:
    """Return how many replicas of a demand an empty node holds."""
    limits = [
        node.gpus // demand.gpus if demand.gpus else inf,
        (node.cpus + 1e-9) // demand.cpus if demand.cpus else inf,
        (node.mem_gb + 1e-9) // demand.mem_gb if demand.mem_gb else inf,
    ]
    return min(limits)


def _each(amount: float, replicas: int) -> float:
    """Return the part of one replica in millionths, which is how the ledger counts: sums of thirds
    would not fit where they should. Never more than an equal part.
    """
    each = amount / replicas
    # Of larger amounts, which no node has, a float does not tell millionths apart.
    return floor(each * 1e6 + 1e-3) / 1e6 if each < 1e9 else each
