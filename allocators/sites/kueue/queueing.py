"""Workloads and the queues in which they wait: which one is a queue's head, and which wait until
something changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from allocators.sites.kueue.objects import ANY, LOWER, NEVER, STRICT, ClusterQueue
from allocators.sites.kueue.tree import FlavorResource, QuotaNode, Usage

Shape = tuple[float, tuple[tuple[str, int], ...], frozenset[str]]
"""Priority, request and admitted flavors: where one fails, all of the same shape do."""


@dataclass(eq=False, slots=True)
class QueuedWorkload:
    """A gang that asks for quota.

    Attributes
    ----------
    request : tuple
        (resource, amount), amounts as the tree counts them.
    flavors : frozenset of str
        Flavors whose nodes may carry it.
    stoppable : bool
        Whether it may be displaced.
    usage, chosen : tuple
        While it holds quota: what is booked, and the flavors.
    order : int
        Number of its admission; 0 = it holds no quota.
    resumes : tuple
        The generation of its tree, and where in the flavors of each group the next try goes on.
    preempting : bool
        Whether others have been displaced for it that it waits to replace.
    displaced_s : float
        When it was displaced last.
    """

    id: int
    queue: QueueState
    priority: float
    since_s: float
    request: tuple[tuple[str, int], ...]
    flavors: frozenset[str]
    stoppable: bool = True
    usage: Usage = ()
    chosen: tuple[str, ...] = ()
    order: int = 0
    resumes: tuple[int, Mapping[int, int]] = (-1, {})
    preempting: bool = False
    displaced_s: float = -1.0

    @property
    def shape(self) -> Shape:
        """What decides whether it fits."""
        return self.priority, self.request, self.flavors

    @property
    def rank(self) -> tuple[float, float, int]:
        """Its place in its queue."""
        return -self.priority, self.since_s, self.id


class FlavorChoice(NamedTuple):
    """A flavor of a group: resource -> cell."""

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
    """A cluster queue: its configuration, who holds its quota and who waits.

    Attributes
    ----------
    groups : list
        The flavors of each group of resources, in order.
    potential : list
        By cell, what could be taken if nothing were in use.
    sticky : Workload or None
        The head for which others made way.
    strict : bool
        Whether the first workload holds up all others.
    reclaims, preempts : bool
        Whether workloads of other queues, and any at all, may be displaced for those of this one.
    """

    config: ClusterQueue
    node: QuotaNode
    cells: Mapping[FlavorResource, int]
    admitted: dict[int, QueuedWorkload] = field(default_factory=dict)
    waiting: dict[int, QueuedWorkload] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the cells of the groups."""
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
        self._wanted: dict[
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

    def wanted(
        self, request: tuple[tuple[str, int], ...]
    ) -> list[tuple[list[FlavorChoice], list[tuple[str, int]]]]:
        """Return what a request asks of each group of resources that it asks anything of."""
        known = self._wanted.get(request)
        if known is None:
            known = self._wanted[request] = [
                (choices, wanted)
                for choices in self.groups
                if (wanted := [item for item in request if item[0] in choices[0].cells])
            ]
        return known

    def wait(self, one: QueuedWorkload) -> bool:
        """Let a workload wait; tell whether it may have a chance now."""
        self.waiting[one.id] = one
        bucket = self._buckets.get(one.shape)
        if bucket is None:
            bucket = self._buckets[one.shape] = Bucket()
        entry = (one.rank, one)
        heappush(bucket.heap, entry)
        if bucket.heap[0] is entry and (self.strict or not bucket.parked):
            heappush(self._line, (*entry, bucket))
        return not bucket.parked

    def leave(self, one: QueuedWorkload) -> None:
        """Take a workload out of the queue."""
        self.waiting.pop(one.id, None)
        if one is self.sticky:
            self.sticky = None

    def head(self) -> QueuedWorkload | None:
        """Return the first workload that may have a chance; under StrictFIFO the first of all."""
        if self.sticky is not None:
            return self.sticky
        line = self._line
        while line:
            rank, one, bucket = line[0]
            stale = bucket.parked and not self.strict
            if not stale:
                self._tidy(bucket)
                stale = not bucket.heap or bucket.heap[0][1] is not one or one.rank != rank
            if not stale:
                return None if bucket.parked else one
            heappop(line)
            if bucket.heap and not (bucket.parked and not self.strict):
                heappush(line, (*bucket.heap[0], bucket))
        return None

    @property
    def has_parked(self) -> bool:
        """Whether workloads wait for something to change."""
        return bool(self._parked)

    def stick(self, one: QueuedWorkload) -> None:
        """Let a workload be the head until it is admitted or fits no longer, because others made
        way for it; a strict queue keeps to its order.
        """
        if not self.strict:
            self.sticky = one

    def park(self, one: QueuedWorkload) -> None:
        """Note that neither a workload nor any other of its shape fits until something changes."""
        if one is self.sticky:
            self.sticky = None
        bucket = self._buckets[one.shape]
        bucket.parked = True
        self._parked.append(bucket)

    def unpark(self) -> None:
        """Let all workloads have a chance again."""
        for bucket in self._parked:
            bucket.parked = False
            if not self.strict:
                self._tidy(bucket)
                if bucket.heap:
                    heappush(self._line, (*bucket.heap[0], bucket))
        self._parked.clear()

    def ahead(self, one: QueuedWorkload) -> list[QueuedWorkload]:
        """Return the waiting workloads before one, the first first."""
        return sorted(
            (other for other in self.waiting.values() if other.rank < one.rank),
            key=lambda other: other.rank,
        )

    def hold(self, one: QueuedWorkload) -> None:
        """Note that a workload holds quota."""
        self.admitted[one.id] = one
        self._priorities[one.priority] += 1

    def free(self, one: QueuedWorkload) -> None:
        """Note that a workload holds quota no longer."""
        del self.admitted[one.id]
        self._priorities[one.priority] -= 1

    def may_lose(self, rule: str, priority: float) -> bool:
        """Tell whether anybody holds quota here whose priority a rule lets this one displace."""
        return any(
            count and (held < priority or (rule != LOWER and (rule == ANY or held == priority)))
            for held, count in self._priorities.items()
        )

    def may_displace_own(self, one: QueuedWorkload, other: QueuedWorkload) -> bool:
        """Tell whether a workload of this queue may displace another one of it."""
        return _beats(self.config.preemption.within, one, other)

    def may_displace_foreign(self, one: QueuedWorkload, other: QueuedWorkload) -> bool:
        """Tell whether a workload of this queue may displace one of another queue."""
        return _beats(self.config.preemption.reclaim, one, other)

    def may_while_borrowing(self, one: QueuedWorkload, other: QueuedWorkload) -> bool:
        """Tell whether it may do that although it borrows itself."""
        preemption = self.config.preemption
        limit = preemption.threshold
        return (
            preemption.borrow != NEVER
            and other.priority < one.priority
            and (limit is None or other.priority <= limit)
        )

    def _tidy(self, bucket: Bucket) -> None:
        heap = bucket.heap
        while heap and self.waiting.get(heap[0][1].id) is not heap[0][1]:
            heappop(heap)


def _beats(rule: str, one: QueuedWorkload, other: QueuedWorkload) -> bool:
    if rule == NEVER:
        return False
    if other.priority < one.priority:
        return True
    if rule == LOWER:
        return False
    newer = other.priority == one.priority and one.since_s < other.since_s
    return newer or rule == ANY


def displacement_order(workloads: Sequence[QueuedWorkload]) -> list[QueuedWorkload]:
    """Sort workloads that may be displaced: lower priority, then later admission first."""
    return sorted(workloads, key=lambda one: (one.priority, -one.order))
