"""Job state of the Slurm controller."""

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
    """A job as submitted to the Slurm controller, with its scheduling state.

    Attributes
    ----------
    id : int
        Ties are broken by the lower id.
    user, account, partition : str, str, int
        User, account, and number of the partition.
    tasks, nodes, per_node : int
        Tasks, requested nodes (0 = not given) and tasks per node (0 = not given).
    gpus, cpus, mem_gb : int, float, float
        Per task.
    node_gpus, node_mem_gb : int, float
        Per node, in addition to those of its tasks.
    allowed : tuple of int
        Masks of nodes; the job runs inside the first mask that can hold all of it.
    counts : tuple of (int, int)
        (mask, number of nodes required from it); () = any nodes.
    limit_s, since_s : float, seconds
        Time limit, and time at which it became eligible.
    nice : float
        Subtracted from its priority.
    whole, alone : bool
        ``--exclusive``: allocates whole nodes, or shares nodes only with jobs of its user.
    gres : tuple of (int, int)
        (index in `FreeNodes.gres`, count) of other generic resources per node.
    qos, array, reservation : str
        Quality of service, array and reservation; "" = none.
    array_most : float
        Maximum number of running tasks of its array.
    term : float
        Priority from association, quality of service and TRES.
    billed : float or None
        Billing units; None = its cores, or GPUs without cores.
    level : int
        Preemption level of its QOS; jobs of a higher level are scheduled first.
    test_only : bool
        The backfill may start it, but plans no nodes for it.
    stays, requeue : bool
        It cannot be preempted; it is requeued after preemption.
    tres : mapping
        Requested amounts by TRES name; memory in MB.
    why : str
        Reason shown by ``squeue``.
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
    is_reservation_blocked: bool = field(init=False, default=False)
    """True if only reservations of others prevent its start."""
    share: Share = field(default_factory=lambda: Share("", is_user=True, shares=1))
    priority: int = 1
    fixed: float = 0.0
    start_s: float = inf
    booked_s: float = 0.0
    held: Placement = ()
    on: Mask = 0
    """The nodes of `held`."""
    grace_end_s: float = field(init=False, default=inf)
    """End of its grace time after preemption; inf = not preempted."""
    suspended_s: float = field(init=False, default=inf)
    """Time of its suspension; inf = not suspended."""
    paused_s: float = field(init=False, default=0.0)
    """Earlier time in suspension, which does not count toward its limit."""
    shape: tuple[Any, ...] = field(init=False)
    """Attributes that determine its placements."""
    shape_id: int = field(init=False, default=-1)
    """Number of its shape, see `FreeNodes.shape_id`."""
    may: Mask = field(init=False)
    """All nodes of `allowed`."""
    needed_nodes: int = field(init=False)
    """Minimum number of nodes."""
    rank: tuple[float, ...] = field(init=False, default=())
    """Sort key in the queue."""
    permanent_reason: str | None = field(init=False, default=None)
    """Reason that blocks it permanently, see `UsageLimits`; None = not computed yet."""

    def __post_init__(self) -> None:
        """Compute the shape and the minimum number of nodes."""
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
        """Set the placement of the running job."""
        self.held, self.on = held, mask_of(held)

    @property
    def end_s(self) -> float:
        """Latest end by its time limit or grace time."""
        return min(self.start_s + self.limit_s + self.paused_s, self.grace_end_s)

    @property
    def size(self) -> float:
        """Its cores, or its GPUs without cores."""
        return self.tasks * (self.cpus or self.gpus)

    @property
    def billing(self) -> float:
        """Billing units that accrue per second."""
        return self.size if self.billed is None else self.billed


def mask_of(held: Placement) -> Mask:
    """Return the mask of the nodes of a placement."""
    return sum([1 << node for node, _ in held])


def replicas_on(held: Placement, replicas: int, *, evenly: bool = False) -> Placement:
    """Return (node, replicas) pairs: the simulator's replicas on the nodes of a job.

    Replicas follow the tasks on each node, or are spread `evenly`. Each node gets at least one
    replica if there are enough.
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
    spare, counts = replicas - len(held), []
    tasks_so_far = replicas_so_far = 0
    for node, count in held:
        tasks_so_far += count
        replicas_due = spare * tasks_so_far // tasks
        counts.append((node, 1 + replicas_due - replicas_so_far))
        replicas_so_far = replicas_due
    return tuple(counts)
