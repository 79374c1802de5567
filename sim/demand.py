"""Demands of jobs: replicas and the pools that may hold them; equal demands share one object."""

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


class _Restrictions(NamedTuple):
    """Restrictions of a job: its GPU types as in the trace, and its VC or partition."""

    types: str
    home: str


GANG, WORKERS, SERVERS, TOGETHER = "gang", "workers", "servers", "together"
"""The part of a job that the empty cluster cannot hold: GPUs, workers, servers, or workers and
servers together.
"""
NOWHERE: Final = "-"
"""``gpu_types_allowed`` of a job that fits on no type; no type has this name."""


def group_into_pools(cluster: Cluster) -> tuple[NodePool, ...]:
    """Return the node pools: nodes grouped by GPU type and partitions, by first appearance."""
    grouped: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for node_index, node in enumerate(cluster.nodes):
        grouped.setdefault((node.gpu_type, node.partitions), []).append(node_index)
    return tuple(
        NodePool(
            tuple(nodes),
            cluster.type_index.get(kind, -1),
            partitions,
            max(cluster.nodes[node_index].gpus for node_index in nodes),
        )
        for (kind, partitions), nodes in grouped.items()
    )


class Demands:
    """The demands of all jobs of a trace on a cluster.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    pools : sequence of NodePool
        From `group_into_pools`.
    confine_by : str
        "vc" or "partition": a job may use the nodes of its own, and nodes without any; "" = all.
    roles : Roles, optional
        Workers and servers per job, if known; else GPU jobs are workers of one GPU each.

    Attributes
    ----------
    unique : list of Demand
        The distinct demands.
    codes : array of shape (jobs,)
        Index into `unique` for each job.
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
        # Policies cache the nodes of a demand, so jobs from before and after the arrival of
        # unannounced nodes get separate objects.
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
        codes, first = _combination_codes(
            [gpus, types.codes, *sizes, *(() if homes is None else (homes.codes,)), *eras]
        )
        unique_demands = []
        for job in first:
            restrictions = _Restrictions(str(types[job]), "" if homes is None else str(homes[job]))
            role_sizes = [float(values[job]) for values in sizes]
            unique_demands.append(
                self._role_demand(float(gpus[job]), role_sizes, restrictions)
                if roles
                else self._simple_demand(
                    float(gpus[job]), role_sizes[0], role_sizes[1], restrictions
                )
            )
        self.unique, self.codes = unique_demands, codes

    @cached_property
    def _by_job(self) -> list[Demand]:
        """The demand object of each job."""
        unique = self.unique
        return [unique[code] for code in self.codes.tolist()]

    @cached_property
    def of(self) -> Callable[[int], Demand]:
        """The function that returns the demand of a job."""
        return self._by_job.__getitem__

    def without(self, nodes: Collection[int]) -> Demands:
        """Return the demands on a cluster without some nodes, only for `unschedulable`."""
        fewer = copy(self)
        fewer._pools = tuple(
            pool._replace(nodes=tuple(node for node in pool.nodes if node not in nodes))
            for pool in self._pools
        )
        return fewer

    def take(self, jobs: NDArray[np.int64], pools: Sequence[int]) -> Demands:
        """Return the demands of some jobs, with pools numbered by their place in `pools`."""
        fewer = copy(self)
        fewer._pools = [self._pools[at] for at in pools]
        kinds, fewer.codes = np.unique(self.codes[jobs], return_inverse=True)
        places = {at: place for place, at in enumerate(pools)}
        fewer.unique = [
            replace(demand, pools=tuple(places[at] for at in demand.pools))
            for demand in (self.unique[kind] for kind in kinds)
        ]
        return fewer

    def unschedulable(
        self, smallest: NDArray[np.float64] | None = None, *, mixed: bool, apart: bool = False
    ) -> NDArray[np.bool_]:
        """Return a boolean per job: whether even the empty, complete cluster cannot hold it.

        See `obstacles`.
        """
        return np.asarray(self.obstacles(smallest, mixed=mixed, apart=apart) != "", np.bool_)

    def obstacles(
        self, smallest: NDArray[np.float64] | None = None, *, mixed: bool, apart: bool = False
    ) -> NDArray[np.str_]:
        """Return the part of each job that the empty cluster cannot hold; "" = it fits.

        `GANG`, `WORKERS`, `SERVERS` or `TOGETHER`, with every node present.

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
        by_demand = np.array(
            [self._obstacle(demand, mixed=mixed, apart=apart) for demand in self.unique], "U8"
        )
        if (by_demand == "").all():
            return np.zeros(len(self.codes), "U8")
        obstacles = by_demand[self.codes]
        if smallest is None:
            return obstacles
        for job in np.flatnonzero(obstacles != ""):
            demand = self._by_job[job]
            fewest = max(1, ceil(smallest[job] / demand.gpus)) if demand.gpus else demand.replicas
            if fewest < demand.replicas:
                obstacles[job] = self._obstacle(
                    replace(demand, replicas=fewest), mixed=mixed, apart=apart
                )
        return obstacles

    def _simple_demand(
        self, gpus: float, cpus: float, mem_gb: float, restrictions: _Restrictions
    ) -> Demand:
        """Return the demand of a job without roles: workers of one GPU, or one per core."""
        replicas, per_replica = (int(gpus), 1) if gpus else (max(1, ceil(cpus)), 0)
        cores = cpus if gpus else max(cpus, 1.0)
        return Demand(
            replicas,
            per_replica,
            _share_per_replica(cores, replicas),
            _share_per_replica(mem_gb, replicas),
            self._admitting_pools(per_replica, restrictions),
        )

    def _role_demand(
        self, gpus: float, role_sizes: Sequence[float], restrictions: _Restrictions
    ) -> Demand:
        """Return the demand of a job with workers and parameter servers.

        GPUs that do not divide evenly among the workers become workers of one GPU each.
        """
        workers, servers, worker_cpus, worker_mem_gb, server_cpus, server_mem_gb = role_sizes
        # GPUs that cannot be divided among the workers are one worker each.
        per_worker = int(gpus // workers) if gpus % workers == 0 else 1
        server_demand = (
            Demand(
                int(servers), 0, server_cpus, server_mem_gb, self._admitting_pools(0, restrictions)
            )
            if servers
            else None
        )
        replicas = int(gpus // per_worker) if per_worker else int(workers)
        return Demand(
            replicas,
            per_worker,
            worker_cpus,
            worker_mem_gb,
            self._admitting_pools(per_worker, restrictions),
            server_demand,
        )

    def _admitting_pools(self, gpus: int, restrictions: _Restrictions) -> tuple[int, ...]:
        """Return the indices of the pools with a GPU type and partition that the job admits."""
        allowed = frozenset(restrictions.types.split("|")) if restrictions.types else None
        return tuple(
            pool_index
            for pool_index, pool in enumerate(self._pools)
            if self._admits(pool, gpus, allowed, restrictions.home)
        )

    def _admits(self, pool: NodePool, gpus: int, allowed: frozenset[str] | None, home: str) -> bool:
        """Return True if a pool has an allowed GPU type and a partition of the job.

        Jobs without GPUs may use any type; jobs or pools without a partition fit all of them.
        """
        kind = self._cluster.types[pool.type_at].name if pool.type_at >= 0 else ""
        right_type = not gpus or (kind != "" and (allowed is None or kind in allowed))
        # A job may name several partitions, separated by commas.
        return right_type and (
            not home or not pool.partitions or not {*home.split(",")}.isdisjoint(pool.partitions)
        )

    def _obstacle(self, demand: Demand, *, mixed: bool, apart: bool) -> str:
        """Return the obstacle of a demand, see `obstacles`; "" = the empty cluster can hold it.

        `GANG` = the GPUs do not fit; `WORKERS` = cores or memory of the workers do not.
        """
        servers = demand.servers
        if not self._fits(demand, mixed=mixed):
            return (
                WORKERS
                if not demand.gpus or self._fits(replace(demand, cpus=0.0, mem_gb=0.0), mixed=mixed)
                else GANG
            )
        if servers is None:
            return ""
        if not self._fits(servers, mixed=mixed):
            return SERVERS
        return "" if apart or self._fits_together(demand, servers) else TOGETHER

    def _fits_together(self, workers: Demand, servers: Demand) -> bool:
        """Return True if the total cores and memory of their pools cover workers and servers.

        Of all nodes in pools that either role may use; other jobs do not count.
        """
        # Only sums: roles that do not fit together on single nodes wait forever, and the reason for
        # the end of the run reports it.
        nodes = [
            self._cluster.nodes[node]
            for pool_index in {*workers.pools, *servers.pools}
            for node in self._pools[pool_index].nodes
        ]
        return all(
            sum([role.replicas * getattr(role, resource) for role in (workers, servers)])
            <= sum([getattr(node, resource) for node in nodes]) + 1e-6
            for resource in ("cpus", "mem_gb")
        )

    def _fits(self, demand: Demand, *, mixed: bool) -> bool:
        """Return True if the empty pools hold all replicas, per GPU type unless `mixed`."""
        most: dict[int, float] = {}
        for pool_index in demand.pools:
            pool = self._pools[pool_index]
            group = 0 if mixed or not demand.gpus else pool.type_at
            most[group] = most.get(group, 0) + sum(
                capacity_for(self._cluster.nodes[node], demand) for node in pool.nodes
            )
        return any(total >= demand.replicas for total in most.values())


def limit_gpu_types(trace: Trace, cluster: Cluster, fits: NDArray[np.bool_]) -> Trace:
    """Return the trace with ``gpu_types_allowed`` limited to the types on which each job fits.

    A job that fits on no type admits none.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    fits : array of shape (jobs, types)
        Whether each job fits on each type, in the order of the cluster; see
        `sim.perf.model.Fitting`.
    """
    used = [
        type_index
        for type_index, kind in enumerate(cluster.types)
        if any(node.gpu_type == kind.name for node in cluster.nodes)
    ]
    names = [cluster.types[type_index].name for type_index in used]
    fits, on_gpus = fits[:, used], trace.numbers("num_gpus") > 0
    limited_jobs = np.flatnonzero(on_gpus & ~fits.all(axis=1))
    if not len(limited_jobs):
        return trace
    allowed = trace.texts("gpu_types_allowed")
    texts = allowed.astype(object)
    for job in limited_jobs.tolist():
        admitted = set(str(allowed[job]).split("|")) if allowed[job] else set(names)
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


def _combination_codes(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], list[int]]:
    """Return the index of each row's combination of values, and the first row of each.

    Combinations are numbered in order of first appearance.
    """
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, names = pd.factorize(column)
        if len(names) > 1:
            codes = pd.factorize(codes * len(names) + values)[0].astype(np.int64)
    # A code above all before it is new.
    return codes, np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1)).tolist()


def capacity_for(node: Node, demand: Demand) -> float:
    """Return the replicas of a demand that fit on an empty node; inf = it needs nothing."""
    limits = [
        node.gpus // demand.gpus if demand.gpus else inf,
        (node.cpus + 1e-9) // demand.cpus if demand.cpus else inf,
        (node.mem_gb + 1e-9) // demand.mem_gb if demand.mem_gb else inf,
    ]
    return min(limits)


def _share_per_replica(amount: float, replicas: int) -> float:
    """Return the share of one replica, rounded down to millionths like the ledger.

    Otherwise sums of thirds would not fit where they should. Never more than an equal share.
    """
    each = amount / replicas
    # A float cannot resolve millionths of larger amounts, which no node has.
    return floor(each * 1e6 + 1e-3) / 1e6 if each < 1e9 else each
