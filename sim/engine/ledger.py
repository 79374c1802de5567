"""The holdings of all jobs; the only code that books and frees GPUs, cores and memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.contract import Demand, Gang, Grant, JobId, NodePool, Part
from sim.errors import ContractError

Changes = Mapping[JobId, Grant | None]
"""Job -> new grant of a plan, or None to stop it."""
_NO_HOLDINGS: Mapping[JobId, Holding] = MappingProxyType({})
_CACHE_SIZE = 1 << 13  # cached holdings before the cache is cleared


class Shortage(ContractError):  # noqa: N818 - a fact about a node before it is an error
    """A node lacks resources for a part; the simulator turns this into `InfeasiblePlan`."""

    def __init__(self, node: int, what: str, requested: float, free: float) -> None:
        super().__init__(node, what, requested, free)
        self.node, self.what, self.requested, self.free = node, what, requested, free

    def __str__(self) -> str:
        return f"node {self.node}: {self.requested:g} {self.what} asked, {max(self.free, 0):g} free"


class Holding:
    """Resources charged for a grant, flattened and summed once; grants often reappear."""

    __slots__ = ("batch", "checked_demand", "cpus", "gpus", "grant", "packed_placements", "spots")

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.spots: list[tuple[int, int, float, float]] = []
        self.gpus, self.cpus = 0, 0.0
        for workers, servers in grant.gangs:
            self._add(workers)
            if servers is not None:
                self._add(servers)
        self.checked_demand: Demand | None = None
        self.batch = (
            -1 if grant.tuning.batch_size is None else grant.tuning.batch_size
        )  # as in `RunResult.segments`
        self.packed_placements = b""  # as placements in the record

    def _add(self, part: Part) -> None:
        """Add a part's spots (node, GPUs, cores, GB) and its total GPUs and cores."""
        nodes, count, gpus, cpus, mem_gb = part
        if len(nodes) != len(count):
            raise ContractError(f"the part {part!r} does not name one positive count per node")
        self.spots += [
            (node, replicas * gpus, replicas * cpus, replicas * mem_gb)
            for node, replicas in zip(nodes, count, strict=True)
        ]
        replicas = sum(count)
        self.gpus += replicas * gpus
        self.cpus += replicas * cpus


class FreeRoom:
    """Free resources per node, with GPUs as bit sets: `sim.contract.FreeResources`.

    A bit set contains the nodes of a pool with the same number of free GPUs. Integers as bit sets
    make "the first node with exactly three free GPUs" one operation, and make every change exactly
    reversible.
    """

    __slots__ = (
        "_cpus",
        "_gpus",
        "_journal",
        "_mem_gb",
        "_place",
        "cached",
        "free",
        "masks",
        "overflow",
        "pools",
    )

    def __init__(
        self, cluster: Cluster, pools: Sequence[NodePool], *, overflow: bool = False
    ) -> None:
        nodes = cluster.nodes
        self.pools = pools
        self._gpus = [
            node.gpus for node in nodes
        ]  # free GPUs; out of service: -1 minus the GPUs that the node will have
        self._cpus = [round(node.cpus, 6) for node in nodes]
        self._mem_gb = [round(node.mem_gb, 6) for node in nodes]
        self.masks: list[list[int]] = []
        self.free: list[int] = []
        self.overflow = len(nodes) if overflow else None
        self._journal: list[tuple[Holding, int]] = []
        self.cached: dict[int, Holding] = {}
        self._place: dict[
            int, tuple[list[int], int, int]
        ] = {}  # node -> masks of its pool, its bit there, index of the pool
        for pool_index, pool in enumerate(pools):
            masks = [0] * (pool.gpus_per_node + 1)
            for place, node in enumerate(pool.nodes):
                self._place[node] = masks, 1 << place, pool_index
                masks[self._gpus[node]] |= 1 << place
            self.masks.append(masks)
            self.free.append(sum(self._gpus[node] for node in pool.nodes))

    def gpus_free(self, pools: Iterable[int]) -> int:
        """Return the free GPUs of several pools together."""
        free = self.free
        return sum([free[pool_index] for pool_index in pools])

    def replicas_that_fit(self, node: int, demand: Demand) -> int:
        """Return the replicas of a demand that fit on a node now: 0 up to all of them."""
        free = self._gpus[node]
        if free < 0:
            return 0
        fit = free // demand.gpus if demand.gpus else inf
        if demand.cpus:
            fit = min(fit, (self._cpus[node] + 1e-9) // demand.cpus)
        if demand.mem_gb:
            fit = min(fit, (self._mem_gb[node] + 1e-9) // demand.mem_gb)
        return int(min(fit, demand.replicas))

    def take(self, grant: Grant) -> None:
        """Book a grant tentatively, until `undo` or `adopt`."""
        holding = self.cached.get(grant.key) or self.holding(grant)
        self.shift(holding, 1)
        self._journal.append((holding, -1))

    def give(self, grant: Grant) -> None:
        """Free a grant tentatively, until `undo` or `adopt`."""
        holding = self.cached.get(grant.key) or self.holding(grant)
        self.shift(holding, -1)
        self._journal.append((holding, 1))

    def undo(self) -> None:
        """Undo all tentative bookings since the last call."""
        journal = self._journal
        while journal:
            self.shift(*journal.pop())

    def adopt(self, changes: Changes, charged: Mapping[JobId, Holding] = _NO_HOLDINGS) -> bool:
        """Keep the tentative bookings if they equal the plan, else undo them; return True if kept.

        The plan may start jobs and stop `charged` jobs only; with other changes the bookings are
        undone.
        """
        journal = self._journal
        if len(journal) == len(changes):
            for (holding, sign), grant in zip(journal, changes.values(), strict=True):
                if holding.grant is not grant or sign > 0:
                    break
            else:
                journal.clear()
                return True
        if not self._equals_plan(changes, charged):
            self.undo()
            return False
        journal.clear()
        return True

    def _equals_plan(self, changes: Changes, charged: Mapping[JobId, Holding]) -> bool:
        """Return True if the tentative bookings equal the starts and stops of a plan."""
        balance: dict[Holding | None, int] = {}
        for job, grant in changes.items():
            holding = charged.get(job)
            if (holding is None) is (grant is None):
                return False  # the change is neither a start nor a stop
            if grant is not None:
                holding = self.cached.get(grant.key)
            balance[holding] = balance.get(holding, 0) + (1 if grant else -1)
        for holding, sign in self._journal:
            balance[holding] = balance.get(holding, 0) + sign
        return not any(balance.values())

    def holding(self, grant: Grant) -> Holding:
        """Return the holding of a grant, from a cache by grant key."""
        holding = self.cached.get(grant.key)
        if holding is None:
            if len(self.cached) > _CACHE_SIZE:
                self.cached.clear()
            holding = self.cached[grant.key] = Holding(grant)
        return holding

    def shift(self, holding: Holding, sign: int) -> None:
        """Book (sign +1) or free (sign -1) a holding.

        Raises
        ------
        Shortage
            If a node lacks the resources.
        """
        levels, overflow = self._gpus, self.overflow
        for node, gpus, cpus, mem_gb in holding.spots:
            if node == overflow:
                continue
            free = levels[node]
            if gpus:
                remaining = free - gpus * sign
                if remaining < 0:
                    raise Shortage(node, "GPUs", gpus, free)
                masks, bit, pool_index = self._place[node]
                masks[free] ^= bit
                masks[remaining] ^= bit
                levels[node] = remaining
                self.free[pool_index] += remaining - free
            elif free < 0:
                raise Shortage(node, "replicas", 1, 0)
            if cpus or mem_gb:
                self._shift_cpus_and_memory(node, cpus * sign, mem_gb * sign)

    def _shift_cpus_and_memory(self, node: int, cpus: float, mem_gb: float) -> None:
        """Book cores and memory of a node; negative amounts free them."""
        # Amounts and sums are rounded, so that freeing in any order restores the exact number.
        cores, memory = (
            round(self._cpus[node] - round(cpus, 6), 6),
            round(self._mem_gb[node] - round(mem_gb, 6), 6),
        )
        if cores < 0:
            raise Shortage(node, "cores", cpus, self._cpus[node])
        if memory < 0:
            raise Shortage(node, "GB", mem_gb, self._mem_gb[node])
        self._cpus[node], self._mem_gb[node] = cores, memory

    def remove(self, node: int) -> None:
        """Take an empty node out of service."""
        masks, bit, pool_index = self._place[node]
        free = self._gpus[node]
        masks[free] ^= bit
        self.free[pool_index] -= free
        self._gpus[node] = -1 - free

    def restore(self, node: int) -> None:
        """Put a node back into service, empty."""
        masks, bit, pool_index = self._place[node]
        free = self._gpus[node] = -1 - self._gpus[node]
        masks[free] ^= bit
        self.free[pool_index] += free

    def is_present(self, node: int) -> bool:
        """Return True if a node is in service."""
        return node == self.overflow or self._gpus[node] >= 0

    def free_per_node(self) -> Iterator[NDArray[Any]]:
        """Yield free GPUs, cores and GB per node; 0 where a node is out of service."""
        gpus = np.array(self._gpus, np.int64)
        yield np.maximum(gpus, 0)
        for amounts in (self._cpus, self._mem_gb):
            yield np.where(gpus >= 0, np.array(amounts[: len(gpus)], np.float64), 0.0)

    def pool_of(self, node: int) -> int:
        """Return the index of a node's pool."""
        return self._place[node][2]

    @property
    def nodes(self) -> int:
        """Number of nodes, without the overflow node."""
        return len(self._gpus)


class Ledger:
    """The current grants and their holdings.

    Parameters
    ----------
    room : FreeRoom
        Free resources of the cluster.
    types : sequence of int
        Index of each node's GPU type in the cluster, -1 for a CPU node.
    mixed : bool
        Whether one gang may span GPU types.
    """

    __slots__ = ("_mixed", "_room", "_types", "_vacated", "charged", "grants")

    def __init__(self, room: FreeRoom, types: Sequence[int], *, mixed: bool) -> None:
        self._room = room
        self.grants: dict[JobId, Grant] = {}
        self.charged: dict[JobId, Holding] = {}  # old and new together during an overlap
        self._vacated: dict[int, Holding] = {}  # grant key -> holding
        self._types = types
        self._mixed = mixed

    def take(self, job: JobId, grant: Grant, demand: Demand, *, reserved: bool = False) -> Holding:
        """Add a grant, book its resources and return its holding.

        With `reserved` the resources are booked already, and so are those of an equal grant that
        `vacate` left; else vacated holdings are freed first.

        Raises
        ------
        Shortage
            If a node does not have what is asked.
        ContractError
            If the grant is malformed or breaks a constraint of the job.
        """
        holding = self._room.cached.get(grant.key)
        if holding is None or holding.checked_demand is not demand:
            holding = self._check(grant, demand)
        if not reserved and self._vacated.pop(grant.key, None) is None:
            self.give_back()
            self._room.shift(holding, 1)
        self.grants[job] = grant
        self.charged[job] = holding
        return holding

    def release(self, job: JobId) -> None:
        """Remove a grant and free its holding."""
        del self.grants[job]
        self._room.shift(self.charged.pop(job), -1)

    def vacate(self, job: JobId, *, reserved: bool = False) -> None:
        """Remove a grant but keep its holding booked for another job of the plan.

        Plans often pass the same grant on to another job, which can then take the holding;
        `give_back` must follow. With `reserved` the resources are free already.
        """
        del self.grants[job]
        holding = self.charged.pop(job)
        if holding.grant.key in self._vacated:  # of two jobs with one grant
            self._room.shift(holding, -1)
        elif not reserved:
            self._vacated[holding.grant.key] = holding

    def give_back(self) -> None:
        """Free the vacated holdings that no job took."""
        while self._vacated:
            self._room.shift(self._vacated.popitem()[1], -1)

    def overlap(self, job: JobId, new: Grant, demand: Demand) -> Holding:
        """Add a new grant while the old one stays charged; return the joint holding.

        Replicas that stay on their node are charged once.
        """
        self.give_back()
        self._check(new, demand)
        old = self.grants[job]
        extra = Grant(tuple(_surplus(new, old)))
        self._room.shift(Holding(extra), 1)
        self.grants[job] = new
        self.charged[job] = both = Holding(Grant(old.gangs + extra.gangs, new.tuning))
        return both

    def end_overlap(self, job: JobId) -> Holding:
        """Free the part of the old grant beyond the new one; return the current holding."""
        self._room.shift(self.charged[job], -1)
        self.charged[job] = holding = self._room.holding(self.grants[job])
        self._room.shift(holding, 1)
        return holding

    def still_valid(
        self,
        changes: Mapping[JobId, Grant | None],
        old_grants: Mapping[JobId, Grant | None],
        touched: set[int],
    ) -> dict[JobId, Grant | None]:
        """Return the changes of a plan in flight that are still valid.

        Parameters
        ----------
        changes : mapping
            The changes of the plan.
        old_grants : mapping
            Grant of each job when the plan was made; a job with another grant now has changed.
        touched : set of int
            Nodes that came or went in the meantime. If a change is dropped, the job keeps its
            nodes, so changes that count on them are dropped too.
        """
        unavailable, valid = set(touched), dict(changes)
        changed = {job for job in valid if self.grants.get(job) is not old_grants[job]}
        while void := [
            job
            for job, grant in valid.items()
            if job in changed or (grant and touches(grant, unavailable))
        ]:
            for job in void:
                del valid[job]
                if job in self.charged:
                    unavailable.update(spot[0] for spot in self.charged[job].spots)
        return valid

    def holders(self, node: int) -> list[JobId]:
        """Return the jobs with a replica on a node, in order of job id."""
        return sorted(
            job
            for job, holding in self.charged.items()
            if any(node == spot[0] for spot in holding.spots)
        )

    def _check(self, grant: Grant, demand: Demand) -> Holding:
        """Return the holding of a grant, after checking it against the job's demand."""
        if not grant.gangs:
            raise ContractError("the grant has no gang")
        for workers, servers in grant.gangs:
            self._check_part(workers, demand)
            if servers is not None:
                self._check_part(servers, demand)
            if not self._mixed and len(workers.nodes) > 1:
                self._check_one_type(workers)
        holding = self._room.holding(grant)
        holding.checked_demand = demand
        return holding

    def _check_part(self, part: Part, demand: Demand) -> None:
        """Refuse a malformed part, an unknown node, or a node the job does not admit."""
        room, node_count = self._room, self._room.nodes + (self._room.overflow is not None)
        if len(part.nodes) != len(part.count) or not part.nodes or min(part.count) < 1:
            raise ContractError(f"the part {part!r} does not name one positive count per node")
        if part.gpus < 0 or part.cpus < 0 or part.mem_gb < 0:
            raise ContractError(f"the part {part!r} asks for less than nothing")
        for node in part.nodes:
            if not 0 <= node < node_count:
                raise ContractError(f"there is no node {node}")
            # Servers of a GPU job may run on nodes without GPUs, which are not among its pools.
            if (
                (part.gpus or not demand.gpus)
                and node != room.overflow
                and room.pool_of(node) not in demand.pools
            ):
                raise ContractError(
                    f"node {node} is of a type or partition that the job does not admit"
                )

    def _check_one_type(self, workers: Part) -> None:
        """Refuse workers on several GPU types."""
        if (
            workers.gpus
            and len(workers.nodes) > 1
            and len({self._types[node] for node in workers.nodes if node != self._room.overflow})
            > 1
        ):
            raise ContractError(
                "a gang spans GPU types, but the allocator does not declare that it mixes them"
            )


def parts_of(grant: Grant) -> Iterator[tuple[int, int, Part]]:
    """Yield the parts of a grant as (gang, role, part); role 0 = workers, 1 = servers."""
    for gang_index, (workers, servers) in enumerate(grant.gangs):
        yield gang_index, 0, workers
        if servers is not None:
            yield gang_index, 1, servers


def touches(grant: Grant, nodes: set[int]) -> bool:
    """Return True if a grant has a replica on one of the nodes."""
    return any(node in nodes for _, _, part in parts_of(grant) for node in part.nodes)


def _surplus(new: Grant, old: Grant) -> Iterator[Gang]:
    """Yield the replicas of a new grant that the old one does not have on the same node."""
    unmatched: dict[tuple[int, int, int, int, float, float], int] = {}
    for gang_index, role, part in parts_of(old):
        for node, count in zip(part.nodes, part.count, strict=True):
            key = (gang_index, role, node, part.gpus, part.cpus, part.mem_gb)
            unmatched[key] = unmatched.get(key, 0) + count
    for gang_index, role, part in parts_of(new):
        more = []
        for node, count in zip(part.nodes, part.count, strict=True):
            key = (gang_index, role, node, part.gpus, part.cpus, part.mem_gb)
            kept = min(count, unmatched.get(key, 0))
            if kept:
                unmatched[key] -= kept
            if count > kept:
                more.append((node, count - kept))
        if more:
            yield Gang(
                Part(
                    tuple(node for node, _ in more),
                    tuple(count for _, count in more),
                    part.gpus,
                    part.cpus,
                    part.mem_gb,
                )
            )
