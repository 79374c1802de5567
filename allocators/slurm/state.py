"""Jobs and nodes as the controller sees them, and on which nodes a job would go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, NamedTuple

from allocators.slurm.fairshare import Share

Placement = tuple[tuple[int, int], ...]
"""(node, tasks on it), in the order of the nodes."""
Mask = int
"""A set of nodes: bit i = node i."""
_LITTLE = 1e-9
_MANY = 1_000_000
"""Tasks on a node of which nothing limits them."""


@dataclass(eq=False)
class Job:
    """A job as it was submitted.

    Attributes
    ----------
    id : int
        Ties go to the lower one.
    user, account, partition : str, str, int
        Who pays, and where it waits.
    tasks, nodes, per_node : int
        Tasks, nodes asked for (0 = not said) and tasks on each node (0 = not said).
    gpus, cpus, mem_gb : int, float, float
        Of each task.
    node_gpus, node_mem_gb : int, float
        On each node beside those of its tasks.
    allowed : tuple of int
        Masks of nodes; one of them carries the whole job, the first that can.
    limit_s, since_s : float, seconds
        Time limit, and when it became eligible.
    nice : float
        Subtracted from its priority.
    """

    id: int
    user: str
    account: str
    partition: int
    tasks: int
    allowed: tuple[Mask, ...]
    limit_s: float
    since_s: float
    nodes: int = 0
    per_node: int = 0
    gpus: int = 0
    cpus: float = 1.0
    mem_gb: float = 0.0
    node_gpus: int = 0
    node_mem_gb: float = 0.0
    nice: float = 0.0
    share: Share = field(default_factory=lambda: Share("", is_user=True, shares=1))
    priority: int = 1
    fixed: float = 0.0
    start_s: float = inf
    booked_s: float = 0.0
    held: Placement = ()
    on: Mask = 0
    """The nodes of `held`."""
    shape: tuple[Any, ...] = field(init=False)
    """What decides where it fits."""
    needed_nodes: int = field(init=False)
    """Fewest nodes that it takes."""

    def __post_init__(self) -> None:
        """Gather its shape, and its fewest nodes."""
        self.shape = (
            *(self.tasks, self.allowed, self.nodes, self.per_node, self.gpus, self.cpus),
            *(self.mem_gb, self.node_gpus, self.node_mem_gb),
        )
        spread = ceil(self.tasks / self.per_node) if self.per_node else 1
        self.needed_nodes = max(self.nodes, spread, 1)

    def hold(self, held: Placement) -> None:
        """Note where it runs."""
        self.held, self.on = held, mask_of(held)

    @property
    def billing(self) -> float:
        """What a second of it counts: its cores, or its GPUs where it names no cores."""
        return self.tasks * (self.cpus or self.gpus)


def mask_of(held: Placement) -> Mask:
    """Return the nodes of a placement."""
    return sum([1 << node for node, _ in held])


class Switch(NamedTuple):
    """The nodes below a switch, and those of each leaf below it."""

    nodes: Mask
    leaves: tuple[Mask, ...]


class Nodes:
    """What is free on each node.

    Parameters
    ----------
    gpus, cpus, mem_gb : sequence
        Of each node.
    levels : sequence of sequence of Switch
        The switches of each level, from the leaves up; empty = none.
    weights : sequence of int
        Of each node: lighter ones are used first; empty = all alike.
    """

    def __init__(
        self,
        gpus: Sequence[int],
        cpus: Sequence[float],
        mem_gb: Sequence[float],
        levels: Sequence[Sequence[Switch]] = (),
        weights: Sequence[int] = (),
    ) -> None:
        self.gpus, self.cpus, self.mem_gb = list(gpus), list(cpus), list(mem_gb)
        self.up: Mask = (1 << len(self.gpus)) - 1
        self._levels = levels
        self._unions = [
            sum([1 << at for at, weight in enumerate(weights) if weight <= most])
            for most in sorted(set(weights))
        ] or [self.up]

    def __len__(self) -> int:
        return len(self.gpus)

    def take(self, job: Job, held: Placement, sign: int = 1) -> None:
        """Book what a job takes on its nodes; `sign` -1 gives it back."""
        for node, tasks in held:
            self.gpus[node] -= sign * (tasks * job.gpus + job.node_gpus)
            self.cpus[node] -= sign * tasks * job.cpus
            self.mem_gb[node] -= sign * (tasks * job.mem_gb + job.node_mem_gb)

    def copy(self) -> Nodes:
        """Return the same nodes with what is free now, for looking ahead."""
        made: Nodes = object.__new__(Nodes)
        made.__dict__ |= self.__dict__
        made.gpus, made.cpus, made.mem_gb = self.gpus[:], self.cpus[:], self.mem_gb[:]
        return made

    def usable(self, job: Job, node: int) -> int:
        """Return how many tasks of a job a node can take."""
        tasks = float(job.per_node or _MANY)
        if job.gpus or job.node_gpus:
            gpus = self.gpus[node] - job.node_gpus
            if gpus < 0:
                return 0
            tasks = min(tasks, gpus // job.gpus) if job.gpus else tasks
        if job.cpus:
            tasks = min(tasks, (self.cpus[node] + _LITTLE) // job.cpus)
        if job.mem_gb or job.node_mem_gb:
            mem_gb = self.mem_gb[node] - job.node_mem_gb + _LITTLE
            if mem_gb < 0:
                return 0
            tasks = min(tasks, mem_gb // job.mem_gb) if job.mem_gb else tasks
        return 0 if job.per_node and tasks < min(job.per_node, job.tasks) else int(tasks)

    def select(self, job: Job, available: Mask) -> Placement:
        """Return where a job goes on these nodes; () = it does not fit."""
        for allowed in job.allowed:
            rest = available & allowed & self.up
            if rest.bit_count() < job.needed_nodes:
                continue
            room = {}
            while rest:
                node = (rest & -rest).bit_length() - 1
                rest &= rest - 1
                if tasks := self.usable(job, node):
                    room[node] = tasks
            for union in self._unions if _suffices(job, room) else ():
                within = {node: tasks for node, tasks in room.items() if union >> node & 1}
                if _suffices(job, within) and (found := self._under_switches(job, within)):
                    return found
        return ()

    def _under_switches(self, job: Job, room: Mapping[int, int]) -> Placement:
        if not self._levels:
            return _filled(job, room, _runs(room))
        for level in self._levels:
            fitting = []
            for at, switch in enumerate(level):
                own = {node: tasks for node, tasks in room.items() if switch.nodes >> node & 1}
                if _suffices(job, own):
                    fitting.append((len(own), at, own))
            if fitting:
                _, at, own = min(fitting, key=lambda item: item[:2])
                return _filled(job, own, level[at].leaves)
        return ()


def _suffices(job: Job, room: Mapping[int, int]) -> bool:
    return len(room) >= job.needed_nodes and sum(room.values()) >= job.tasks


def _runs(room: Mapping[int, int]) -> list[Mask]:
    """Return runs of consecutive nodes."""
    runs: list[Mask] = []
    before = -2
    for node in sorted(room):
        if node == before + 1:
            runs[-1] |= 1 << node
        else:
            runs.append(1 << node)
        before = node
    return runs


def _filled(job: Job, room: Mapping[int, int], parts: Sequence[Mask]) -> Placement:
    """Lay tasks on nodes: the part that suffices with the least room, else the largest, then the
    rest again; inside a part the node that holds the rest with the least room, else the largest.
    """
    left, nodes_left = job.tasks, job.needed_nodes
    groups = [{node: room[node] for node in room if part >> node & 1} for part in parts]
    taken: dict[int, int] = {}
    while left and (groups := [group for group in groups if group]):
        enough = [
            group for group in groups if sum(group.values()) >= left and len(group) >= nodes_left
        ]
        size = {True: min, False: max}[bool(enough)]
        group = size(enough or groups, key=lambda group: sum(group.values()))
        while group and left:
            # Each further node that is asked for gets at least one task.
            most = max(left - max(nodes_left - 1, 0), 1)
            holds = [(tasks, node) for node, tasks in group.items() if tasks >= most]
            node = (min(holds) if holds else min((-group[node], node) for node in group))[1]
            taken[node] = min(group.pop(node), most)
            left -= taken[node]
            nodes_left -= 1
    return tuple(sorted(taken.items())) if not left and nodes_left <= 0 else ()
