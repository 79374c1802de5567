"""The queue tree of a run: allocations, fair shares, and the order of queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, Literal, NamedTuple

from allocators.quotas import QuotaRequest, fair_shares
from allocators.sites.kai.queues import RESOURCES, QueueSpec
from allocators.sites.kai.usage import UsageWindow
from sim.contract import JobId

_TOLERANCE: Final = 1e-6
"""Tolerance of comparisons: shares of cores and memory are not exact."""
_WITHOUT_SHARE: Final = 1000.0
"""Weight of an allocation without a fair share, relative to its part of the cluster."""

Amounts = tuple[float, ...]
Head = tuple[float, JobId]
"""Negative priority and id of a waiting job."""
Key = tuple[object, ...]


class Barrier(NamedTuple):
    """The limit or quota of a queue that forbids a job to start."""

    kind: Literal["limit", "quota"]
    queue: str


class IdenticalJobs:
    """Waiting jobs of one queue with equal demands and preemptibility.

    If the first one does not fit, none of them does.
    """

    __slots__ = ("barrier", "demand", "fixed", "heap", "leaf")

    def __init__(self, leaf: QueueNode, demand: int, fixed: bool) -> None:
        self.leaf, self.demand, self.fixed = leaf, demand, fixed
        self.heap: list[Head] = []
        self.barrier: Barrier | None = None

    @property
    def head(self) -> Head | None:
        """The first waiting job, or None.

        Removes jobs that no longer wait from the top of the heap.
        """
        waiting = self.leaf.waiting
        while self.heap and self.heap[0][1] not in waiting:
            heappop(self.heap)
        return self.heap[0] if self.heap else None


class Work:
    """A waiting or running job."""

    __slots__ = ("amounts", "demand", "fixed", "leaf", "priority", "since_s")

    def __init__(
        self, leaf: QueueNode, amounts: Amounts, priority: float, demand: int, fixed: bool
    ) -> None:
        self.leaf, self.amounts, self.priority = leaf, amounts, priority
        self.demand, self.fixed = demand, fixed
        self.since_s = inf


class QueueNode:
    """A queue of the tree, with its allocations and shares."""

    __slots__ = (
        "above",
        "allocatable",
        "allocated",
        "at",
        "children",
        "deserved",
        "fair",
        "fixed",
        "key",
        "lanes",
        "limits",
        "next",
        "past",
        "preempt_after_s",
        "queue",
        "reclaim_after_s",
        "request",
        "running",
        "usage",
        "waiting",
        "weights",
    )

    def __init__(
        self, at: int, queue: QueueSpec, above: QueueNode | None, kinds: Sequence[int]
    ) -> None:
        self.at, self.queue, self.above = at, queue, above
        self.children: list[QueueNode] = []
        quotas = [queue.quotas[kind] for kind in kinds]
        self.deserved = [quota.deserved for quota in quotas]
        self.weights = [quota.weight for quota in quotas]
        self.limits = [quota.limit for quota in quotas]
        none = [0.0] * len(kinds)
        self.allocated, self.fixed, self.request = [*none], [*none], [*none]
        self.fair, self.allocatable, self.usage = [*none], [*none], [*none]
        self.past: list[UsageWindow] = []
        over_s = (above.reclaim_after_s, above.preempt_after_s) if above is not None else (0.0, 0.0)
        self.reclaim_after_s: float = _own_or_inherited(queue.reclaim_after_s, over_s[0])
        self.preempt_after_s: float = _own_or_inherited(queue.preempt_after_s, over_s[1])
        self.waiting: set[JobId] = set()
        self.running: set[JobId] = set()
        self.lanes: dict[tuple[int, bool], IdenticalJobs] = {}
        self.next: IdenticalJobs | None = None
        self.key: Key = ()

    def path(self) -> Iterator[QueueNode]:
        """Yield the queue and its ancestors, up to the root."""
        node: QueueNode | None = self
        while node is not None:
            yield node
            node = node.above

    def heads(self) -> list[tuple[Head, IdenticalJobs]]:
        """Return the groups of identical jobs that have waiting jobs, with their first jobs."""
        return [(head, lane) for lane in self.lanes.values() if (head := lane.head) is not None]


def _own_or_inherited(own: float | None, above: float) -> float:
    """Return a setting of the queue, or that of its parent."""
    return above if own is None else own


class QueueTree:
    """The tree of all queues in a run.

    Parameters
    ----------
    queues : iterable of QueueSpec
        Parents before their children.
    kinds : sequence of int
        Indices in `RESOURCES` of the resources that count.
    """

    def __init__(self, queues: Iterable[QueueSpec], kinds: Sequence[int]) -> None:
        self.nodes: dict[str, QueueNode] = {}
        self.roots: list[QueueNode] = []
        self.total: list[float] = [0.0] * len(kinds)
        self.by_demand: dict[int, list[IdenticalJobs]] = {}
        self._capacity: list[UsageWindow] = []
        for at, queue in enumerate(queues):
            above = self.nodes.get(queue.parent)
            node = self.nodes[queue.name] = QueueNode(at, queue, above, kinds)
            (self.roots if above is None else above.children).append(node)

    def leaves(self) -> list[QueueNode]:
        """Return the queues without child queues."""
        return [node for node in self.nodes.values() if not node.children]

    # -- jobs --------------------------------------------------------------------------------------

    def enqueue(self, job: JobId, work: Work) -> None:
        """Add a job to its queue's group of identical jobs and to all requests above.

        The group is created for the first job with its demand and preemptibility.
        """
        leaf = work.leaf
        leaf.waiting.add(job)
        number = (work.demand, work.fixed)
        lane = leaf.lanes.get(number)
        if lane is None:
            lane = leaf.lanes[number] = IdenticalJobs(leaf, *number)
            self.by_demand.setdefault(work.demand, []).append(lane)
        heappush(lane.heap, (-work.priority, job))
        self._add(leaf, work.amounts, "request", 1)

    def dequeue(self, job: JobId, work: Work) -> None:
        """Remove a waiting job from its queue and from the requests up to the root."""
        work.leaf.waiting.remove(job)
        self._add(work.leaf, work.amounts, "request", -1)

    def allocate(self, job: JobId, work: Work) -> None:
        """Record a job as running; add it to requests and allocations up to the root."""
        work.leaf.running.add(job)
        self._add(work.leaf, work.amounts, "request", 1)
        self.add_allocation(work, 1)

    def release(self, job: JobId, work: Work) -> None:
        """Remove a running job from its queue and the allocations up to the root."""
        work.leaf.running.remove(job)
        self._add(work.leaf, work.amounts, "request", -1)
        self.add_allocation(work, -1)

    def add_allocation(self, work: Work, sign: int) -> None:
        """Add the resources of a job to its queue and ancestors; `sign` -1 removes them.

        A non-preemptible job also counts in their `fixed` allocations.
        """
        self._add(work.leaf, work.amounts, "allocated", sign)
        if work.fixed:
            self._add(work.leaf, work.amounts, "fixed", sign)

    def _add(self, leaf: QueueNode, amounts: Amounts, to: str, sign: int) -> None:
        """Add `sign` x amounts to the list named `to` of a queue and its ancestors."""
        for node in leaf.path():
            values = getattr(node, to)
            for at, amount in enumerate(amounts):
                values[at] += sign * amount

    # -- shares ------------------------------------------------------------------------------------

    def track_usage(self, now_s: float, window_s: float, half_life_s: float) -> None:
        """Create an empty usage window per resource, for the cluster and for each queue."""
        self._capacity = [UsageWindow(now_s, window_s, half_life_s) for _ in self.total]
        for node in self.nodes.values():
            node.past = [UsageWindow(now_s, window_s, half_life_s) for _ in self.total]

    def update_usage(self, now_s: float) -> None:
        """Set each queue's past usage per resource, as a part of the cluster's past capacity."""
        capacity = [window.integral(now_s) for window in self._capacity]
        for node in self.nodes.values():
            node.usage = [
                window.integral(now_s) / amount if amount > 0 else 0.0
                for window, amount in zip(node.past, capacity, strict=True)
            ]

    def record_allocations(self) -> None:
        """Set the capacity and allocations that the usage windows integrate next."""
        for window, amount in zip(self._capacity, self.total, strict=True):
            window.level = amount
        for node in self.nodes.values():
            for window, amount in zip(node.past, node.allocated, strict=True):
                window.level = amount

    def update_shares(self, total: list[float], k: float) -> None:
        """Set the cluster total and recompute all fair shares; `k` weighs past usage."""
        self.total = total
        self._divide_among(self.roots, total, k)

    def _divide_among(self, nodes: Sequence[QueueNode], total: Sequence[float], k: float) -> None:
        """Set the fair shares of sibling queues, then of all their descendants.

        Also sets `allocatable`: the larger of quota and fair share, at most the limit.
        """
        for at, amount in enumerate(total):
            asks = [
                QuotaRequest(
                    node.deserved[at],
                    node.weights[at],
                    node.request[at],
                    node.limits[at],
                    node.queue.priority,
                    node.usage[at],
                )
                for node in nodes
            ]
            for node, share in zip(nodes, fair_shares(amount, asks, k), strict=True):
                node.fair[at] = share
                node.allocatable[at] = min(node.limits[at], max(node.deserved[at], share))
        for node in nodes:
            if node.children:
                self._divide_among(node.children, node.fair, k)

    # -- limits ------------------------------------------------------------------------------------

    def barrier(self, work: Work) -> Barrier | None:
        """Return the first limit or quota, from the leaf up, that a job would exceed, or None.

        Only a non-preemptible job is checked against quotas.
        """
        for node in work.leaf.path():
            for at, amount in enumerate(work.amounts):
                if amount and node.allocated[at] + amount > node.limits[at] + _TOLERANCE:
                    return Barrier("limit", node.queue.name)
                if (
                    work.fixed
                    and amount
                    and node.fixed[at] + amount > node.deserved[at] + _TOLERANCE
                ):
                    return Barrier("quota", node.queue.name)
        return None

    def is_unsatisfiable(self, work: Work) -> bool:
        """Return True if a queue could never hold a job, even when empty."""
        return any(
            amount and amount > (min(limit, deserved) if work.fixed else limit) + _TOLERANCE
            for node in work.leaf.path()
            for amount, limit, deserved in zip(
                work.amounts, node.limits, node.deserved, strict=True
            )
        )

    def may_reclaim(self, work: Work) -> bool:
        """Return True if a job's queue stays within its fair share when the job starts.

        A non-preemptible job must stay within the quota too.
        """
        leaf = work.leaf
        return is_within(leaf.allocated, work.amounts, leaf.fair) and (
            not work.fixed or is_within(leaf.fixed, work.amounts, leaf.deserved)
        )

    def can_reclaim_from(self, work: Work, victim: Work) -> bool:
        """Return True if a job may stop a job of another queue by reclaim.

        The sibling ancestors of both queues are compared. The victim's ancestor is above its
        allocatable share in some resource, or it is above its quota while the job's ancestor stays
        within its own.
        """
        own, other = diverging_ancestors(work.leaf, victim.leaf)
        return any(
            held > share + _TOLERANCE
            for held, share in zip(other.allocated, other.allocatable, strict=True)
        ) or (
            is_within(own.allocated, work.amounts, own.deserved)
            and any(
                held > deserved + _TOLERANCE
                for held, deserved in zip(other.allocated, other.deserved, strict=True)
            )
        )

    def is_balanced(self, work: Work, victims: Iterable[Work]) -> bool:
        """Return True if a reclaim leaves no queue of the job further above its share.

        Each ancestor of the job above its fair share must have a lower ratio of allocation to share
        than the sibling that lost the victim, in every resource. The victims are already
        subtracted.
        """
        for victim in victims:
            own, other = diverging_ancestors(work.leaf, victim.leaf)
            for at, amount in enumerate(work.amounts):
                ratio = _ratio(own.allocated[at] + amount, own.fair[at])
                if ratio > 1 + _TOLERANCE and ratio >= _ratio(other.allocated[at], other.fair[at]):
                    return False
        return True

    # -- order -------------------------------------------------------------------------------------

    def key(self, node: QueueNode, amounts: Amounts) -> Key:
        """Return the sort key of a queue among siblings if it gets these amounts next.

        The lowest key is served first. Its parts: above the fair share, above the quota, priority,
        without a share, dominant share with and without the amounts, allocatable share, position.

        Notes
        -----
        A queue counts as above its fair share only if it is above it in all of `RESOURCES`. If the
        cluster does not limit one of them, no queue is above its share.
        """
        held = node.allocated
        over_quota, zero, dominant, plain = False, False, 0.0, 0.0
        for at, amount in enumerate(amounts):
            share = self.total[at] if node.allocatable[at] == inf else node.allocatable[at]
            after = held[at] + amount
            over_quota = over_quota or after > node.deserved[at] + _TOLERANCE
            if share > 0:
                dominant, plain = max(dominant, after / share), max(plain, held[at] / share)
            elif after > 0:
                whole = self.total[at] / _WITHOUT_SHARE or 1.0
                dominant, plain = max(dominant, after / whole), max(plain, held[at] / whole)
                zero = True
        return (
            len(held) == len(RESOURCES)
            and all(a > b + _TOLERANCE for a, b in zip(held, node.fair, strict=True)),
            over_quota,
            -node.queue.priority,
            zero,
            round(dominant, 9),
            round(plain, 9),
            tuple(node.allocatable),
            node.at,
        )

    def last_queue(self, leaves: Iterable[QueueNode]) -> QueueNode:
        """Return the leaf queue that would be served last, compared from the root down."""
        nothing = (0.0,) * len(self.total)
        return max(
            leaves,
            key=lambda leaf: [self.key(node, nothing) for node in [*leaf.path()][::-1]],
        )


class JobOrder:
    """Visiting order of the waiting jobs in one action of a cycle."""

    def __init__(self, tree: QueueTree, works: dict[JobId, Work]) -> None:
        self._tree, self._works = tree, works
        self._closed: set[IdenticalJobs] = set()
        self._heaps: dict[QueueNode, list[tuple[Head, IdenticalJobs]]] = {}
        """Open groups of each leaf by their first jobs; closed ones are dropped at the top."""
        for leaf in tree.leaves():
            self._collect_lanes(leaf)
        for node in reversed(tree.nodes.values()):  # children come after their parents
            self._choose_child(node)

    def next_lane(self) -> IdenticalJobs | None:
        """Return the group of identical jobs to visit next; None = none left."""
        best = min((node for node in self._tree.roots if node.next), key=_key, default=None)
        return best.next if best is not None else None

    def close(self, lanes: Iterable[IdenticalJobs]) -> None:
        """Exclude groups of identical jobs from this action, and update the order."""
        new = [lane for lane in lanes if lane not in self._closed]
        self._closed.update(new)
        for lane in new:
            if lane.leaf.next is lane:
                self._choose_lane(lane.leaf)
                for node in lane.leaf.path():
                    self._choose_child(node)

    def update_leaves(self, *leaves: QueueNode) -> None:
        """Recompute the order after the jobs or allocations of some queues changed."""
        for leaf in leaves:
            self._collect_lanes(leaf)
        for leaf in leaves:
            for node in leaf.path():
                self._choose_child(node)

    def _collect_lanes(self, leaf: QueueNode) -> None:
        """Collect the open groups of a leaf that have waiting jobs, and choose its `next`."""
        heads = leaf.heads() if leaf.waiting else ()
        self._heaps[leaf] = heap = [pair for pair in heads if pair[1] not in self._closed]
        heapify(heap)
        self._choose_lane(leaf)

    def _choose_lane(self, leaf: QueueNode) -> None:
        """Set a leaf's `next` to its open group with the first job by priority, or None."""
        heap = self._heaps[leaf]
        while heap and heap[0][1] in self._closed:
            heappop(heap)
        leaf.next = heap[0][1] if heap else None

    def _choose_child(self, node: QueueNode) -> None:
        """Set a parent's `next` from its first child, and the sort key of any queue.

        The key assumes that the first job of `next` starts.
        """
        if node.children:
            best = min((child for child in node.children if child.next), key=_key, default=None)
            node.next = best.next if best is not None else None
        if node.next is not None:
            head = node.next.head
            assert head is not None, "a lane without jobs was chosen"
            node.key = self._tree.key(node, self._works[head[1]].amounts)


def _key(node: QueueNode) -> Key:
    """Return the sort key of a queue."""
    return node.key


def diverging_ancestors(one: QueueNode, other: QueueNode) -> tuple[QueueNode, QueueNode]:
    """Return the sibling ancestors of two queues, or the two queues if on one path."""
    first, second = [*one.path()][::-1], [*other.path()][::-1]
    for a, b in zip(first, second, strict=False):
        if a is not b:
            return a, b
    return one, other


def is_within(held: Sequence[float], amounts: Amounts, most: Sequence[float]) -> bool:
    """Return True if allocations plus amounts stay within a maximum, in every resource."""
    return all(a + b <= c + _TOLERANCE for a, b, c in zip(held, amounts, most, strict=True))


def _ratio(amount: float, share: float) -> float:
    """Return an amount relative to a share; without a share inf, or 0 for no amount."""
    return amount / share if share > 0 else inf if amount > _TOLERANCE else 0.0
