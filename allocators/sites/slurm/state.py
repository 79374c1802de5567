"""Jobs as the controller sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

from allocators.sites.slurm.fairshare import Share

Placement = tuple[tuple[int, int], ...]
"""(node, tasks on it), in the order of the nodes."""
Mask = int
"""A set of nodes: bit i = node i."""


@dataclass(eq=False)
class SlurmJob:
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
    counts : tuple of (int, int)
        Nodes of which mask it must have, and how many; () = any.
    limit_s, since_s : float, seconds
        Time limit, and when it became eligible.
    nice : float
        Subtracted from its priority.
    whole, alone : bool
        Takes its nodes wholly; shares them with jobs of its user only.
    gres : tuple of (int, int)
        Other countable resources on each of its nodes: which of `Nodes.gres`, and how many.
    qos, array, reservation : str
        Quality of service, array and reservation; "" = none.
    array_most : float
        Of its array so many run at once at most.
    term : float
        What association, quality of service and resources add to its priority.
    billed : float or None
        What a second of it counts in fair share; None = its cores, or GPUs.
    level : int
        Jobs of a higher one come first, as they may displace the others.
    test_only : bool
        The backfill starts it, but keeps no nodes for it.
    stays, requeue : bool
        It must not be stopped; it may queue again when it was.
    tres : mapping
        What it asks for by the names of TRES; memory in MB.
    why : str
        Why it waits, as ``squeue`` says it.
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
    counts: tuple[tuple[Mask, int], ...] = ()
    per_node: int = 0
    gpus: int = 0
    cpus: float = 1.0
    mem_gb: float = 0.0
    node_gpus: int = 0
    node_mem_gb: float = 0.0
    nice: float = 0.0
    whole: bool = False
    alone: bool = False
    gres: tuple[tuple[int, int], ...] = ()
    qos: str = ""
    array: str = ""
    array_most: float = inf
    reservation: str = ""
    term: float = 0.0
    billed: float | None = None
    level: int = 0
    test_only: bool = False
    stays: bool = False
    requeue: bool = True
    tres: Mapping[str, float] = field(default_factory=dict)
    why: str = "None"
    kept_off: bool = field(init=False, default=False)
    """Reservations of others alone keep it from starting."""
    share: Share = field(default_factory=lambda: Share("", is_user=True, shares=1))
    priority: int = 1
    fixed: float = 0.0
    start_s: float = inf
    booked_s: float = 0.0
    held: Placement = ()
    on: Mask = 0
    """The nodes of `held`."""
    doomed_s: float = field(init=False, default=inf)
    """When it ends as it was displaced, with a time of grace."""
    suspended_s: float = field(init=False, default=inf)
    """Since when it is suspended; inf = it is not."""
    paused_s: float = field(init=False, default=0.0)
    """How long it was suspended before; its limit does not count that."""
    shape: tuple[Any, ...] = field(init=False)
    """What decides where it fits."""
    form: int = field(init=False, default=-1)
    """Number of its shape, see `Nodes.form`."""
    may: Mask = field(init=False)
    """All nodes of `allowed`."""
    needed_nodes: int = field(init=False)
    """Fewest nodes that it takes."""
    rank: tuple[float, ...] = field(init=False, default=())
    """What the queue is sorted by."""
    barred: str | None = field(init=False, default=None)
    """What of its own keeps it from starting, see `Gate`; None = not looked at yet."""

    def __post_init__(self) -> None:
        """Gather its shape, and its fewest nodes."""
        self.shape = (
            *(self.tasks, self.allowed, self.nodes, self.per_node, self.gpus, self.cpus),
            *(self.mem_gb, self.node_gpus, self.node_mem_gb, self.whole, self.gres, self.counts),
        )
        self.may = 0
        for mask in self.allowed:
            self.may |= mask
        spread = ceil(self.tasks / self.per_node) if self.per_node else 1
        counted = sum([count for _, count in self.counts])
        self.needed_nodes = max(self.nodes, spread, counted, 1)

    def hold(self, held: Placement) -> None:
        """Note where it runs."""
        self.held, self.on = held, mask_of(held)

    @property
    def end_s(self) -> float:
        """When it ends at the latest, as far as its limit counts."""
        return min(self.start_s + self.limit_s + self.paused_s, self.doomed_s)

    @property
    def size(self) -> float:
        """Its cores, or its GPUs where it names no cores."""
        return self.tasks * (self.cpus or self.gpus)

    @property
    def billing(self) -> float:
        """What a second of it counts in fair share."""
        return self.size if self.billed is None else self.billed


def mask_of(held: Placement) -> Mask:
    """Return the nodes of a placement."""
    return sum([1 << node for node, _ in held])


def replicas_on(held: Placement, replicas: int, *, evenly: bool = False) -> Placement:
    """Divide the replicas of the simulator among the nodes of a job by its tasks there, or
    `evenly`, as where it asks for GPUs of each node; each node has one at least, where there are
    enough.
    """
    if evenly and replicas >= len(held):
        each, more = divmod(replicas, len(held))
        return tuple([(node, each + (at < more)) for at, (node, _) in enumerate(held)])
    tasks = sum([count for _, count in held])
    if tasks == replicas:
        return held
    if len(held) == 1 or replicas <= len(held):
        shares = [replicas] if len(held) == 1 else [1] * replicas
        return tuple((node, share) for (node, _), share in zip(held, shares, strict=False))
    spare, made = replicas - len(held), []
    seen = given = 0
    for node, count in held:
        seen += count
        upto = spare * seen // tasks
        made.append((node, 1 + upto - given))
        given = upto
    return tuple(made)
