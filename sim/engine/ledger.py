"""The holdings of all jobs; the only code that takes and gives GPUs, cores and memory."""

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
"""The jobs that a plan starts, moves or, where it says None, stops."""
_NOBODY: Mapping[JobId, Holding] = MappingProxyType({})
_REMEMBERED = 1 << 13  # grants whose holdings are remembered before all are forgotten


class Shortage(ContractError):  # noqa: N818 - a fact about a node before it is an error
    """A node does not have what a part asks of it; the simulator turns this into
    `InfeasiblePlan`.
    """

    def __init__(self, node: int, what: str, asked: float, free: float) -> None:
        super().__init__(node, what, asked, free)
        self.node, self.what, self.asked, self.free = node, what, asked, free

    def __str__(self) -> str:
        return f"node {self.node}: {self.asked:g} {self.what} asked, {max(self.free, 0):g} free"


class Holding:
    """What a grant charges, flattened and added up once: grants of one node are often the same
    object again.
    """

    __slots__ = ("batch", "checked_for", "cpus", "gpus", "grant", "spots", "written")

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.spots: list[tuple[int, int, float, float]] = []
        self.gpus, self.cpus = 0, 0.0
        for workers, servers in grant.gangs:
            self._add(workers)
            if servers is not None:
                self._add(servers)
        self.checked_for: Demand | None = None
        self.batch = (
            -1 if grant.tuning.batch_size is None else grant.tuning.batch_size
        )  # as in the record
        self.written = b""  # as placements there

    def _add(self, part: Part) -> None:
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
    """What is free, by node and, for GPUs, as bit sets of nodes with equally many free GPUs:
    `sim.contract.Room`.

    Integers as bit sets make "the first node with exactly three free GPUs" one operation and every
    change exactly reversible.
    """

    __slots__ = (
        "_at",
        "_cpus",
        "_gpus",
        "_journal",
        "_mem_gb",
        "free",
        "known",
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
        ]  # free ones; out of service, those there will be, as -1 - number
        self._cpus = [round(node.cpus, 6) for node in nodes]
        self._mem_gb = [round(node.mem_gb, 6) for node in nodes]
        self.masks: list[list[int]] = []
        self.free: list[int] = []
        self.overflow = len(nodes) if overflow else None
        self._journal: list[tuple[Holding, int]] = []
        self.known: dict[int, Holding] = {}
        self._at: dict[
            int, tuple[list[int], int, int]
        ] = {}  # for each node the masks of its pool, its bit there, and the pool
        for at, pool in enumerate(pools):
            masks = [0] * (pool.gpus_per_node + 1)
            for place, node in enumerate(pool.nodes):
                self._at[node] = masks, 1 << place, at
                masks[self._gpus[node]] |= 1 << place
            self.masks.append(masks)
            self.free.append(sum(self._gpus[node] for node in pool.nodes))

    def gpus_free(self, pools: Iterable[int]) -> int:
        """Return the free GPUs of these pools."""
        free = self.free
        return sum([free[at] for at in pools])

    def replicas_that_fit(self, node: int, demand: Demand) -> int:
        """Return how many replicas of this kind the node can still take."""
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
        """Take tentatively what a grant holds."""
        holding = self.known.get(grant.key) or self.holding(grant)
        self.shift(holding, 1)
        self._journal.append((holding, -1))

    def give(self, grant: Grant) -> None:
        """Free tentatively what a grant holds."""
        holding = self.known.get(grant.key) or self.holding(grant)
        self.shift(holding, -1)
        self._journal.append((holding, 1))

    def undo(self) -> None:
        """Undo all tentative allocation since the last call."""
        journal = self._journal
        while journal:
            self.shift(*journal.pop())

    def adopt(self, changes: Changes, charged: Mapping[JobId, Holding] = _NOBODY) -> bool:
        """Keep the tentative allocation if it amounts to a plan that starts jobs and stops some of
        those `charged`, else undo it; tell which.
        """
        journal = self._journal
        if len(journal) == len(changes):
            for (holding, sign), grant in zip(journal, changes.values(), strict=True):
                if holding.grant is not grant or sign > 0:
                    break
            else:
                journal.clear()
                return True
        if not self._comes_to(changes, charged):
            self.undo()
            return False
        journal.clear()
        return True

    def _comes_to(self, changes: Changes, charged: Mapping[JobId, Holding]) -> bool:
        left: dict[Holding | None, int] = {}
        for job, grant in changes.items():
            holding = charged.get(job)
            if (holding is None) is (grant is None):
                return False  # it neither starts nor stops
            if grant is not None:
                holding = self.known.get(grant.key)
            left[holding] = left.get(holding, 0) + (1 if grant else -1)
        for holding, sign in self._journal:
            left[holding] = left.get(holding, 0) + sign
        return not any(left.values())

    def holding(self, grant: Grant) -> Holding:
        """Return the holding of a grant; remembered by key, and forgotten now and then."""
        known = self.known.get(grant.key)
        if known is None:
            if len(self.known) > _REMEMBERED:
                self.known.clear()
            known = self.known[grant.key] = Holding(grant)
        return known

    def shift(self, holding: Holding, sign: int) -> None:
        """Take (+1) or give (-1) what a grant charges.

        Raises
        ------
        Shortage
            If a node does not have what is taken.
        """
        levels, overflow = self._gpus, self.overflow
        for node, gpus, cpus, mem_gb in holding.spots:
            if node == overflow:
                continue
            free = levels[node]
            if gpus:
                left = free - gpus * sign
                if left < 0:
                    raise Shortage(node, "GPUs", gpus, free)
                masks, bit, at = self._at[node]
                masks[free] ^= bit
                masks[left] ^= bit
                levels[node] = left
                self.free[at] += left - free
            elif free < 0:
                raise Shortage(node, "replicas", 1, 0)
            if cpus or mem_gb:
                self._shift_rest(node, cpus * sign, mem_gb * sign)

    def _shift_rest(self, node: int, cpus: float, mem_gb: float) -> None:
        # Amounts are rounded before and sums after, so that giving back, in any order, restores the
        # very number.
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
        masks, bit, at = self._at[node]
        free = self._gpus[node]
        masks[free] ^= bit
        self.free[at] -= free
        self._gpus[node] = -1 - free

    def restore(self, node: int) -> None:
        """Put a node back into service, empty."""
        masks, bit, at = self._at[node]
        free = self._gpus[node] = -1 - self._gpus[node]
        masks[free] ^= bit
        self.free[at] += free

    def is_present(self, node: int) -> bool:
        """Return whether a node is in service."""
        return node == self.overflow or self._gpus[node] >= 0

    def free_per_node(self) -> Iterator[NDArray[Any]]:
        """Yield the free GPUs, cores and GB of each node; nothing where it is out of service."""
        gpus = np.array(self._gpus, np.int64)
        yield np.maximum(gpus, 0)
        for amounts in (self._cpus, self._mem_gb):
            yield np.where(gpus >= 0, np.array(amounts[: len(gpus)], np.float64), 0.0)

    def pool_of(self, node: int) -> int:
        """Return the pool of a node."""
        return self._at[node][2]

    @property
    def nodes(self) -> int:
        """Number of nodes, without the overflow node."""
        return len(self._gpus)


class Ledger:
    """The grants in force, and what they leave free.

    Parameters
    ----------
    room : FreeRoom
        The machines.
    types : sequence of int
        For each node the place of its GPU type in the cluster, -1 for a CPU node.
    mixed : bool
        Whether one gang may span GPU types.
    """

    __slots__ = ("_mixed", "_room", "_types", "_vacated", "charged", "grants")

    def __init__(self, room: FreeRoom, types: Sequence[int], *, mixed: bool) -> None:
        self._room = room
        self.grants: dict[JobId, Grant] = {}
        self.charged: dict[
            JobId, Holding
        ] = {}  # of the grant, or of more while old and new overlap
        self._vacated: dict[int, Holding] = {}  # by the key of its grant
        self._types = types
        self._mixed = mixed

    def take(self, job: JobId, grant: Grant, demand: Demand, *, reserved: bool = False) -> Holding:
        """Enter a grant and return what it charges; ``reserved`` says that the room has already
        given it.

        Raises
        ------
        Shortage
            If a node does not have what is asked.
        ContractError
            If the grant is malformed or breaks a constraint of the job.
        """
        holding = self._room.known.get(grant.key)
        if holding is None or holding.checked_for is not demand:
            holding = self._check(grant, demand)
        if not reserved and self._vacated.pop(grant.key, None) is None:
            self.give_back()
            self._room.shift(holding, 1)
        self.grants[job] = grant
        self.charged[job] = holding
        return holding

    def release(self, job: JobId) -> None:
        """End a grant and give back all that was charged for it."""
        del self.grants[job]
        self._room.shift(self.charged.pop(job), -1)

    def vacate(self, job: JobId, *, reserved: bool = False) -> None:
        """End a grant, but keep what was charged, unless the room has it back already
        (``reserved``).

        Many plans pass the very same grant on, which may then be taken; `give_back` must follow.
        """
        del self.grants[job]
        holding = self.charged.pop(job)
        if holding.grant.key in self._vacated:  # of two jobs with one grant
            self._room.shift(holding, -1)
        elif not reserved:
            self._vacated[holding.grant.key] = holding

    def give_back(self) -> None:
        """Give back the vacated holdings that were not taken again."""
        while self._vacated:
            self._room.shift(self._vacated.popitem()[1], -1)

    def overlap(self, job: JobId, new: Grant, demand: Demand) -> Holding:
        """Enter a new grant while the old one stays charged; replicas that stay on their node are
        charged once. Return what is charged.
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
        """Give back what the old grant held beyond the new one, and return what is charged now."""
        self._room.shift(self.charged[job], -1)
        self.charged[job] = holding = self._room.holding(self.grants[job])
        self._room.shift(holding, 1)
        return holding

    def still_valid(
        self,
        changes: Mapping[JobId, Grant | None],
        seen: Mapping[JobId, Grant | None],
        touched: set[int],
    ) -> dict[JobId, Grant | None]:
        """Return what is left of a plan that was in flight.

        Parameters
        ----------
        changes : mapping
            The plan.
        seen : mapping
            What each of its jobs held when it was made; a job that holds something else by now has
            changed.
        touched : set of int
            Nodes that came or went meanwhile. Where a job stays as it is, so do its nodes: others
            may count on that room.
        """
        lost, valid = set(touched), dict(changes)
        changed = {job for job in valid if self.grants.get(job) is not seen[job]}
        while void := [
            job
            for job, grant in valid.items()
            if job in changed or (grant and touches(grant, lost))
        ]:
            for job in void:
                del valid[job]
                if job in self.charged:
                    lost.update(spot[0] for spot in self.charged[job].spots)
        return valid

    def holders(self, node: int) -> list[JobId]:
        """Return the jobs with a replica on a node, in order of job id."""
        return sorted(
            job
            for job, holding in self.charged.items()
            if any(node == spot[0] for spot in holding.spots)
        )

    def _check(self, grant: Grant, demand: Demand) -> Holding:
        if not grant.gangs:
            raise ContractError("the grant has no gang")
        for workers, servers in grant.gangs:
            self._check_part(workers, demand)
            if servers is not None:
                self._check_part(servers, demand)
            if not self._mixed and len(workers.nodes) > 1:
                self._check_one_type(workers)
        holding = self._room.holding(grant)
        holding.checked_for = demand
        return holding

    def _check_part(self, part: Part, demand: Demand) -> None:
        room, known = self._room, self._room.nodes + (self._room.overflow is not None)
        if len(part.nodes) != len(part.count) or not part.nodes or min(part.count) < 1:
            raise ContractError(f"the part {part!r} does not name one positive count per node")
        if part.gpus < 0 or part.cpus < 0 or part.mem_gb < 0:
            raise ContractError(f"the part {part!r} asks for less than nothing")
        for node in part.nodes:
            if not 0 <= node < known:
                raise ContractError(f"there is no node {node}")
            # Servers of a GPU job may stand on nodes without GPUs, which are not among its pools.
            if (
                (part.gpus or not demand.gpus)
                and node != room.overflow
                and room.pool_of(node) not in demand.pools
            ):
                raise ContractError(
                    f"node {node} is of a type or partition that the job does not admit"
                )

    def _check_one_type(self, workers: Part) -> None:
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
    """Walk the parts of a grant as (gang, role, part); role 0 = workers, 1 = servers."""
    for at, (workers, servers) in enumerate(grant.gangs):
        yield at, 0, workers
        if servers is not None:
            yield at, 1, servers


def touches(grant: Grant, nodes: set[int]) -> bool:
    """Return whether a grant has a replica on one of these nodes."""
    return any(node in nodes for _, _, part in parts_of(grant) for node in part.nodes)


def _surplus(new: Grant, old: Grant) -> Iterator[Gang]:
    kept: dict[tuple[int, int, int, int, float, float], int] = {}
    for at, role, part in parts_of(old):
        for node, count in zip(part.nodes, part.count, strict=True):
            key = (at, role, node, part.gpus, part.cpus, part.mem_gb)
            kept[key] = kept.get(key, 0) + count
    for at, role, part in parts_of(new):
        more = []
        for node, count in zip(part.nodes, part.count, strict=True):
            key = (at, role, node, part.gpus, part.cpus, part.mem_gb)
            stay = min(count, kept.get(key, 0))
            if stay:
                kept[key] -= stay
            if count > stay:
                more.append((node, count - stay))
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
