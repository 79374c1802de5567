"""Workloads and cluster queues: which workload is the head, and which are parked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from allocators.sites.kueue.objects import ANY, LOWER, NEVER, STRICT, ClusterQueue
from allocators.sites.kueue.tree import FlavorResource, QuotaNode, Usage

Shape = tuple[float, tuple[tuple[str, int], ...], frozenset[str]]
"""Priority, request and flavors; if one workload does not fit, none of its shape does."""


@dataclass(eq=False, slots=True)
class QueuedWorkload:
    """A gang that requests quota.

    Attributes
    ----------
    request : tuple
        (resource, amount) pairs, in the units of the quota tree.
    flavors : frozenset of str
        Flavors whose nodes can hold it.
    is_preemptible : bool
        Whether it may be preempted.
    usage, chosen : tuple
        Booked usage and assigned flavors while it holds quota.
    order : int
        Sequence number of its admission; 0 = not admitted.
    resumes : tuple
        Generation of its root, and the next flavor to try in each group.
    preempting : bool
        Whether workloads were preempted for it and it waits for their quota.
    preempted_s : float
        Time of its last preemption.
    """

    id: int
    queue: QueueState
    priority: float
    since_s: float
    request: tuple[tuple[str, int], ...]
    flavors: frozenset[str]
    is_preemptible: bool = True
    usage: Usage = ()
    chosen: tuple[str, ...] = ()
    order: int = 0
    resumes: tuple[int, Mapping[int, int]] = (-1, {})
    preempting: bool = False
    preempted_s: float = -1.0

    @property
    def shape(self) -> Shape:
        """The attributes that decide whether it fits."""
        return self.priority, self.request, self.flavors

    @property
    def rank(self) -> tuple[float, float, int]:
        """Sort key in its queue."""
        return -self.priority, self.since_s, self.id


class FlavorChoice(NamedTuple):
    """A flavor of a group, with the cell of each resource."""

    name: str
    cells: Mapping[str, int]


class Bucket:
    """Waiting workloads of one shape."""

    __slots__ = ("heap", "parked")

    def __init__(self) -> None:
        self.heap: list[tuple[tuple[float, float, int], QueuedWorkload]] = []
        self.parked = False


@dataclass(eq=False)
class QueueState:
    """State of a cluster queue: configuration, admitted and waiting workloads.

    Attributes
    ----------
    groups : list
        The flavors of each group of resources, in order.
    potential : list
        Quota per cell that would be available without any usage.
    sticky : Workload or None
        The head for which workloads were preempted.
    strict : bool
        StrictFIFO: the first workload blocks all others.
    reclaims, preempts : bool
        Whether it may preempt workloads of other queues, and any workloads.
    """

    config: ClusterQueue
    node: QuotaNode
    cells: Mapping[FlavorResource, int]
    admitted: dict[int, QueuedWorkload] = field(default_factory=dict)
    waiting: dict[int, QueuedWorkload] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute the cells and potential quota of the resource groups."""
        self.groups: list[list[FlavorChoice]] = [
            [
                FlavorChoice(
                    one.flavor,
                    {
                        resource: self.cells[FlavorResource(one.flavor, resource)]
                        for resource in one.quotas
                    },
                )
                for one in group.flavors
            ]
            for group in self.config.groups
        ]
        self.covered = frozenset(
            resource for group in self.config.groups for resource in group.resources
        )
        self.potential = [self.node.potential(cell) for cell in range(len(self.cells))]
        self._group_requests: dict[
            tuple[tuple[str, int], ...], list[tuple[list[FlavorChoice], list[tuple[str, int]]]]
        ] = {}
        self._buckets: dict[Shape, Bucket] = {}
        self._line: list[tuple[tuple[float, float, int], QueuedWorkload, Bucket]] = []
        self.strict = self.config.strategy == STRICT
        self._parked: list[Bucket] = []
        self.sticky: QueuedWorkload | None = None
        self._priorities: Counter[float] = Counter()
        preemption = self.config.preemption
        self.reclaims = self.node.parent is not None and preemption.reclaim != NEVER
        self.preempts = preemption.within != NEVER or self.reclaims

    def group_requests(
        self, request: tuple[tuple[str, int], ...]
    ) -> list[tuple[list[FlavorChoice], list[tuple[str, int]]]]:
        """Return (flavors, requested amounts) of each resource group in a request (cached)."""
        requests = self._group_requests.get(request)
        if requests is None:
            requests = self._group_requests[request] = [
                (choices, amounts)
                for choices in self.groups
                if (amounts := [item for item in request if item[0] in choices[0].cells])
            ]
        return requests

    def enqueue(self, one: QueuedWorkload) -> bool:
        """Add a waiting workload; return False if workloads of its shape are parked."""
        self.waiting[one.id] = one
        bucket = self._buckets.get(one.shape)
        if bucket is None:
            bucket = self._buckets[one.shape] = Bucket()
        entry = (one.rank, one)
        heappush(bucket.heap, entry)
        if bucket.heap[0] is entry and (self.strict or not bucket.parked):
            heappush(self._line, (*entry, bucket))
        return not bucket.parked

    def dequeue(self, one: QueuedWorkload) -> None:
        """Remove a workload from the waiting workloads, and as the sticky head."""
        self.waiting.pop(one.id, None)
        if one is self.sticky:
            self.sticky = None

    def head(self) -> QueuedWorkload | None:
        """Return the workload to try next: the sticky one, else the first not parked; or None.

        Under StrictFIFO, None if the first of all is parked.
        """
        if self.sticky is not None:
            return self.sticky
        line = self._line
        while line:
            rank, one, bucket = line[0]
            stale = bucket.parked and not self.strict
            if not stale:
                self._drop_stale(bucket)
                stale = not bucket.heap or bucket.heap[0][1] is not one or one.rank != rank
            if not stale:
                return None if bucket.parked else one
            heappop(line)
            if bucket.heap and not (bucket.parked and not self.strict):
                heappush(line, (*bucket.heap[0], bucket))
        return None

    @property
    def has_parked(self) -> bool:
        """True if workloads are parked."""
        return bool(self._parked)

    def keep_at_head(self, one: QueuedWorkload) -> None:
        """Make a workload the sticky head until it is admitted; not in strict queues."""
        if not self.strict:
            self.sticky = one

    def park(self, one: QueuedWorkload) -> None:
        """Park all workloads of a workload's shape until `unpark`; drop it as sticky head."""
        if one is self.sticky:
            self.sticky = None
        bucket = self._buckets[one.shape]
        bucket.parked = True
        self._parked.append(bucket)

    def unpark(self) -> None:
        """Let the parked workloads of all shapes be tried again."""
        for bucket in self._parked:
            bucket.parked = False
            if not self.strict:
                self._drop_stale(bucket)
                if bucket.heap:
                    heappush(self._line, (*bucket.heap[0], bucket))
        self._parked.clear()

    def ahead(self, one: QueuedWorkload) -> list[QueuedWorkload]:
        """Return the waiting workloads ahead of one, in order."""
        return sorted(
            (other for other in self.waiting.values() if other.rank < one.rank),
            key=lambda other: other.rank,
        )

    def add_admitted(self, one: QueuedWorkload) -> None:
        """Record that a workload holds quota, and count its priority."""
        self.admitted[one.id] = one
        self._priorities[one.priority] += 1

    def remove_admitted(self, one: QueuedWorkload) -> None:
        """Record that a workload holds quota no longer, and uncount its priority."""
        del self.admitted[one.id]
        self._priorities[one.priority] -= 1

    def has_preemptible(self, rule: str, priority: float) -> bool:
        """Return True if a rule allows to preempt some admitted workload."""
        return any(
            count and (held < priority or (rule != LOWER and (rule == ANY or held == priority)))
            for held, count in self._priorities.items()
        )

    def can_preempt_own(self, one: QueuedWorkload, other: QueuedWorkload) -> bool:
        """Return True if a workload may preempt another one of this queue."""
        return _allows_preemption(self.config.preemption.within, one, other)

    def can_preempt_foreign(self, one: QueuedWorkload, other: QueuedWorkload) -> bool:
        """Return True if a workload may preempt one of another queue."""
        return _allows_preemption(self.config.preemption.reclaim, one, other)

    def can_preempt_while_borrowing(self, one: QueuedWorkload, other: QueuedWorkload) -> bool:
        """Return True if a borrowing workload may preempt one of another queue.

        borrowWithinCohort must allow it, and the other priority be lower and within the threshold.
        """
        preemption = self.config.preemption
        limit = preemption.threshold
        return (
            preemption.borrow != NEVER
            and other.priority < one.priority
            and (limit is None or other.priority <= limit)
        )

    def _drop_stale(self, bucket: Bucket) -> None:
        """Remove workloads that no longer wait from the top of a bucket's heap."""
        heap = bucket.heap
        while heap and self.waiting.get(heap[0][1].id) is not heap[0][1]:
            heappop(heap)


def _allows_preemption(rule: str, one: QueuedWorkload, other: QueuedWorkload) -> bool:
    """Return True if a policy allows workload `one` to preempt workload `other`.

    Every policy but Never allows it for a lower priority. NEWER_EQUAL also allows an equal priority
    submitted later, and Any everything.
    """
    if rule == NEVER:
        return False
    if other.priority < one.priority:
        return True
    if rule == LOWER:
        return False
    newer = other.priority == one.priority and one.since_s < other.since_s
    return newer or rule == ANY


def preemption_order(workloads: Sequence[QueuedWorkload]) -> list[QueuedWorkload]:
    """Sort candidates: lower priority, then later admission first."""
    return sorted(workloads, key=lambda one: (one.priority, -one.order))
