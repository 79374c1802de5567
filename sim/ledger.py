"""Who holds what; the only code that takes and gives GPUs, cores and memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from sim.cluster import Cluster
from sim.contract import Demand, Gang, Grant, JobId, Part, Pool
from sim.errors import ContractError


class Shortage(ContractError):  # noqa: N818 - a fact about a node before it is an error
    """A node does not have what a part asks of it; the simulator turns this into `InfeasiblePlan`."""

    def __init__(self, node: int, what: str, asked: float, free: float) -> None:
        super().__init__(f"node {node}: {asked:g} {what} asked, {max(free, 0):g} free")
        self.node, self.what, self.asked, self.free = node, what, asked, free


class FreeRoom:
    """What is free, by node and, for GPUs, as bit sets of nodes with equally many free GPUs: `sim.contract.Room`.

    Integers as bit sets make "the first node with exactly three free GPUs" one operation and every change exactly reversible.
    """

    __slots__ = ("_bit", "_cpus", "_gpus", "_journal", "_mem_gb", "_pool", "_present", "free", "masks", "overflow", "pools")

    def __init__(self, cluster: Cluster, pools: Sequence[Pool], *, overflow: bool = False) -> None:
        nodes = cluster.nodes
        self.pools = pools
        self._pool = [0] * len(nodes)
        self._bit = [0] * len(nodes)
        self._gpus = [node.gpus for node in nodes]
        self._cpus = [node.cpus for node in nodes]
        self._mem_gb = [node.mem_gb for node in nodes]
        self._present = [True] * len(nodes)
        self.masks: list[list[int]] = []
        self.free: list[int] = []
        self.overflow = len(nodes) if overflow else None
        self._journal: list[tuple[bool, Grant]] = []
        for at, pool in enumerate(pools):
            masks = [0] * (pool.gpus_per_node + 1)
            for place, node in enumerate(pool.nodes):
                self._pool[node], self._bit[node] = at, 1 << place
                masks[self._gpus[node]] |= 1 << place
            self.masks.append(masks)
            self.free.append(sum(self._gpus[node] for node in pool.nodes))

    def gpus_free(self, pools: Iterable[int]) -> int:
        """Return the free GPUs of these pools."""
        free = self.free
        return sum([free[at] for at in pools])

    def replicas_that_fit(self, node: int, demand: Demand) -> int:
        """Return how many replicas of this kind the node can still take."""
        if not self._present[node]:
            return 0
        fit = self._gpus[node] // demand.gpus if demand.gpus else inf
        if demand.cpus:
            fit = min(fit, (self._cpus[node] + 1e-9) // demand.cpus)
        if demand.mem_gb:
            fit = min(fit, (self._mem_gb[node] + 1e-9) // demand.mem_gb)
        return int(min(fit, demand.replicas))

    def take(self, grant: Grant) -> None:
        """Reserve on the sketch what a grant holds."""
        self.shift(grant, 1)
        self._journal.append((True, grant))

    def give(self, grant: Grant) -> None:
        """Free on the sketch what a grant holds."""
        self.shift(grant, -1)
        self._journal.append((False, grant))

    def undo(self) -> None:
        """Take back everything done on the sketch since the last call."""
        journal = self._journal
        while journal:
            taken, grant = journal.pop()
            self.shift(grant, -1 if taken else 1)

    def shift(self, grant: Grant, sign: int) -> None:
        """Take (+1) or give (-1) what a grant holds, part by part."""
        for workers, servers in grant.gangs:
            self._shift_part(workers, sign)
            if servers is not None:
                self._shift_part(servers, sign)

    def _shift_part(self, part: Part, sign: int) -> None:
        nodes, count, gpus, cpus, mem_gb = part
        if gpus:
            step = gpus * sign
            for node, replicas in zip(nodes, count, strict=True):
                self._shift_gpus(node, replicas * step)
        if cpus or mem_gb:
            for node, replicas in zip(nodes, count, strict=True):
                self._shift_rest(node, replicas * cpus * sign, replicas * mem_gb * sign)

    def _shift_gpus(self, node: int, gpus: int) -> None:
        if node == self.overflow:
            return
        free = self._gpus[node]
        left = free - gpus
        if left < 0 or not self._present[node]:
            raise Shortage(node, "GPUs", gpus, free if self._present[node] else 0)
        at, bit = self._pool[node], self._bit[node]
        masks = self.masks[at]
        masks[free] ^= bit
        masks[left] ^= bit
        self._gpus[node] = left
        self.free[at] -= gpus

    def _shift_rest(self, node: int, cpus: float, mem_gb: float) -> None:
        if node == self.overflow:
            return
        # Rounded, so that giving back restores the very number.
        cores, memory = round(self._cpus[node] - cpus, 6), round(self._mem_gb[node] - mem_gb, 6)
        if not self._present[node]:
            raise Shortage(node, "cores", cpus, 0)
        if cores < 0:
            raise Shortage(node, "cores", cpus, self._cpus[node])
        if memory < 0:
            raise Shortage(node, "GB", mem_gb, self._mem_gb[node])
        self._cpus[node], self._mem_gb[node] = cores, memory

    def remove(self, node: int) -> None:
        """Take an empty node out of service."""
        at = self._pool[node]
        self.masks[at][self._gpus[node]] ^= self._bit[node]
        self.free[at] -= self._gpus[node]
        self._present[node] = False

    def restore(self, node: int) -> None:
        """Put a node back into service, empty."""
        at = self._pool[node]
        self.masks[at][self._gpus[node]] ^= self._bit[node]
        self.free[at] += self._gpus[node]
        self._present[node] = True

    def is_present(self, node: int) -> bool:
        """Tell whether a node is in service."""
        return node == self.overflow or self._present[node]

    def free_on(self, node: int) -> tuple[int, float, float]:
        """Return free GPUs, cores and GB of a node; nothing where it is out of service."""
        return (self._gpus[node], self._cpus[node], self._mem_gb[node]) if self._present[node] else (0, 0.0, 0.0)

    def pool_of(self, node: int) -> int:
        """Return the pool of a node."""
        return self._pool[node]

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

    def __init__(self, room: FreeRoom, types: Sequence[int], *, mixed: bool) -> None:
        self.room = room
        self.grants: dict[JobId, Grant] = {}
        self._held: dict[JobId, Grant] = {}  # what is charged, where it differs from the grant: during an overlap
        self._types = types
        self._mixed = mixed

    def take(self, job: JobId, grant: Grant, demand: Demand) -> None:
        """Enter a grant.

        Raises
        ------
        Shortage
            If a node does not have what is asked.
        ContractError
            If the grant is malformed or breaks a constraint of the job.
        """
        self._check(grant, demand)
        self.room.shift(grant, 1)
        self.grants[job] = grant

    def release(self, job: JobId) -> Grant:
        """End a grant and give back all that was charged for it."""
        grant = self.grants.pop(job)
        self.room.shift(self._held.pop(job, grant) if self._held else grant, -1)
        return grant

    def overlap(self, job: JobId, new: Grant, demand: Demand) -> Grant:
        """Enter a new grant while the old one stays charged; replicas that stay on their node are charged once. Return what is charged."""
        self._check(new, demand)
        old = self.grants[job]
        extra = Grant(tuple(_surplus(new, old)))
        self.room.shift(extra, 1)
        both = Grant(old.gangs + extra.gangs, new.tuning)
        self.grants[job] = new
        self._held[job] = both
        return both

    def end_overlap(self, job: JobId) -> None:
        """Give back what the old grant held beyond the new one."""
        both, new = self._held.pop(job), self.grants[job]
        self.room.shift(both, -1)
        self.room.shift(new, 1)

    def holders(self, node: int) -> list[JobId]:
        """Return the jobs with a replica on a node, in order of job id."""
        return sorted(job for job, grant in self.grants.items() if any(node in part.nodes for _, _, part in parts_of(self._held.get(job, grant))))

    def _check(self, grant: Grant, demand: Demand) -> None:
        if not grant.gangs:
            raise ContractError("the grant has no gang")
        room, known = self.room, self.room.nodes + (self.room.overflow is not None)
        for workers, servers in grant.gangs:
            for part in (workers,) if servers is None else (workers, servers):
                if len(part.nodes) != len(part.count) or not part.nodes or min(part.count) < 1:
                    raise ContractError(f"the part {part!r} does not name one positive count per node")
                if part.gpus < 0 or part.cpus < 0 or part.mem_gb < 0:
                    raise ContractError(f"the part {part!r} asks for less than nothing")
                for node in part.nodes:
                    if not 0 <= node < known:
                        raise ContractError(f"there is no node {node}")
                    if part.gpus and node != room.overflow and room.pool_of(node) not in demand.pools:
                        raise ContractError(f"node {node} is of a type or partition that the job does not admit")
            if len(workers.nodes) > 1 and workers.gpus and not self._mixed:
                self._check_one_type(workers)

    def _check_one_type(self, workers: Part) -> None:
        if len({self._types[node] for node in workers.nodes if node != self.room.overflow}) > 1:
            raise ContractError("a gang spans GPU types, but the allocator does not declare that it mixes them")


def parts_of(grant: Grant) -> Iterator[tuple[int, int, Part]]:
    """Walk the parts of a grant as (gang, role, part); role 0 = workers, 1 = servers."""
    for at, (workers, servers) in enumerate(grant.gangs):
        yield at, 0, workers
        if servers is not None:
            yield at, 1, servers


def size_of(grant: Grant) -> tuple[int, float]:
    """Return the GPUs and cores that a grant holds."""
    gpus, cpus = 0, 0.0
    for workers, servers in grant.gangs:
        replicas = sum(workers.count)
        gpus += replicas * workers.gpus
        cpus += replicas * workers.cpus
        if servers is not None:
            replicas = sum(servers.count)
            gpus += replicas * servers.gpus
            cpus += replicas * servers.cpus
    return gpus, cpus


def _surplus(new: Grant, old: Grant) -> Iterator[Gang]:
    kept: dict[tuple[int, int, int, int, float, float], int] = {}
    for at, role, part in parts_of(old):
        for node, count in zip(part.nodes, part.count, strict=True):
            key = (at, role, node, part.gpus, part.cpus, part.mem_gb)
            kept[key] = kept.get(key, 0) + count
    for at, role, part in parts_of(new):
        rest = [(node, count - kept.get((at, role, node, part.gpus, part.cpus, part.mem_gb), 0)) for node, count in zip(part.nodes, part.count, strict=True)]
        more = [(node, count) for node, count in rest if count > 0]
        if more:
            yield Gang(Part(tuple(node for node, _ in more), tuple(count for _, count in more), part.gpus, part.cpus, part.mem_gb))
