"""The queues of one run: what they hold, their fair shares, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Final, Literal, NamedTuple

from allocators.quotas import Ask, fair_shares
from allocators.sites.kai.queues import RESOURCES, QueueSpec
from allocators.sites.kai.usage import Held
from sim.contract import JobId

_TOLERANCE: Final = 1e-6
"""Amounts that differ less are equal: shares of cores and memory are not exact."""
_WITHOUT_SHARE: Final = 1000.0
"""What is held of a resource without a share counts so many times its part of the cluster."""

Amounts = tuple[float, ...]
Key = tuple[object, ...]


class Barrier(NamedTuple):
    """What forbids a job to start: the limit of a queue, or its quota, and the queue's name."""

    kind: Literal["limit", "quota"]
    queue: str


class IdenticalJobs:
    """Waiting jobs of one queue that ask for the same and may be stopped alike: where the first
    finds no place, no other does.
    """

    __slots__ = ("barrier", "demand", "fixed", "heap", "leaf")

    def __init__(self, leaf: QueueNode, demand: int, fixed: bool) -> None:
        self.leaf, self.demand, self.fixed = leaf, demand, fixed
        self.heap: list[tuple[float, JobId]] = []
        self.barrier: Barrier | None = None

    @property
    def head(self) -> tuple[float, JobId] | None:
        """Its first job, after its priority, negative; None = nobody waits."""
        waiting = self.leaf.waiting
        while self.heap and self.heap[0][1] not in waiting:
            heappop(self.heap)
        return self.heap[0] if self.heap else None


class Work:
    """One job that waits or runs."""

    __slots__ = ("amounts", "demand", "fixed", "leaf", "priority", "since_s")

    def __init__(
        self, leaf: QueueNode, amounts: Amounts, priority: float, demand: int, fixed: bool
    ) -> None:
        self.leaf, self.amounts, self.priority = leaf, amounts, priority
        self.demand, self.fixed = demand, fixed
        self.since_s = inf


class QueueNode:
    """A queue in a run."""

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
        self.past: list[Held] = []
        over_s = (above.reclaim_after_s, above.preempt_after_s) if above is not None else (0.0, 0.0)
        self.reclaim_after_s: float = _first(queue.reclaim_after_s, over_s[0])
        self.preempt_after_s: float = _first(queue.preempt_after_s, over_s[1])
        self.waiting: set[JobId] = set()
        self.running: set[JobId] = set()
        self.lanes: dict[tuple[int, bool], IdenticalJobs] = {}
        self.next: IdenticalJobs | None = None
        self.key: Key = ()

    def path(self) -> Iterator[QueueNode]:
        """Yield itself and the queues above, up to the top."""
        node: QueueNode | None = self
        while node is not None:
            yield node
            node = node.above


def _first(own: float | None, above: float) -> float:
    return above if own is None else own


class QueueTree:
    """All queues of a run.

    Parameters
    ----------
    queues : iterable of Queue
        Parents before their children.
    kinds : sequence of int
        The resources that count, by their place in `RESOURCES`.
    """

    def __init__(self, queues: Iterable[QueueSpec], kinds: Sequence[int]) -> None:
        self.nodes: dict[str, QueueNode] = {}
        self.roots: list[QueueNode] = []
        self.total: list[float] = [0.0] * len(kinds)
        self.by_demand: dict[int, list[IdenticalJobs]] = {}
        self._capacity: list[Held] = []
        for at, queue in enumerate(queues):
            above = self.nodes.get(queue.parent)
            node = self.nodes[queue.name] = QueueNode(at, queue, above, kinds)
            (self.roots if above is None else above.children).append(node)

    def leaves(self) -> list[QueueNode]:
        """Return the queues that hold jobs."""
        return [node for node in self.nodes.values() if not node.children]

    # -- jobs --------------------------------------------------------------------------------------

    def wait(self, job: JobId, work: Work) -> None:
        """Put a job into its queue."""
        leaf = work.leaf
        leaf.waiting.add(job)
        number = (work.demand, work.fixed)
        lane = leaf.lanes.get(number)
        if lane is None:
            lane = leaf.lanes[number] = IdenticalJobs(leaf, *number)
            self.by_demand.setdefault(work.demand, []).append(lane)
        heappush(lane.heap, (-work.priority, job))
        self._add(leaf, work.amounts, "request", 1)

    def leave(self, job: JobId, work: Work) -> None:
        """Take a waiting job out of its queue."""
        work.leaf.waiting.remove(job)
        self._add(work.leaf, work.amounts, "request", -1)

    def hold(self, job: JobId, work: Work) -> None:
        """Note that a job holds what it asks for."""
        work.leaf.running.add(job)
        self._add(work.leaf, work.amounts, "request", 1)
        self.give(work, 1)

    def release(self, job: JobId, work: Work) -> None:
        """Note that a job holds nothing any more."""
        work.leaf.running.remove(job)
        self._add(work.leaf, work.amounts, "request", -1)
        self.give(work, -1)

    def give(self, work: Work, sign: int) -> None:
        """Add what a job holds to its queue and those above, or take it away."""
        self._add(work.leaf, work.amounts, "allocated", sign)
        if work.fixed:
            self._add(work.leaf, work.amounts, "fixed", sign)

    def _add(self, leaf: QueueNode, amounts: Amounts, to: str, sign: int) -> None:
        for node in leaf.path():
            values = getattr(node, to)
            for at, amount in enumerate(amounts):
                values[at] += sign * amount

    # -- shares ------------------------------------------------------------------------------------

    def remember(self, now_s: float, window_s: float, half_life_s: float) -> None:
        """Begin to keep what was held."""
        self._capacity = [Held(now_s, window_s, half_life_s) for _ in self.total]
        for node in self.nodes.values():
            node.past = [Held(now_s, window_s, half_life_s) for _ in self.total]

    def elapse(self, now_s: float) -> None:
        """Renew the past usage of all queues, as parts of the cluster."""
        whole = [held.at(now_s) for held in self._capacity]
        for node in self.nodes.values():
            node.usage = [
                held.at(now_s) / amount if amount > 0 else 0.0
                for held, amount in zip(node.past, whole, strict=True)
            ]

    def mark(self) -> None:
        """Note what is held from now on."""
        for held, amount in zip(self._capacity, self.total, strict=True):
            held.level = amount
        for node in self.nodes.values():
            for held, amount in zip(node.past, node.allocated, strict=True):
                held.level = amount

    def divide(self, total: list[float], k: float) -> None:
        """Renew all fair shares of what there is; `k` = how much past usage counts."""
        self.total = total
        self._divide(self.roots, total, k)

    def _divide(self, nodes: Sequence[QueueNode], total: Sequence[float], k: float) -> None:
        for at, amount in enumerate(total):
            asks = [
                Ask(
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
                self._divide(node.children, node.fair, k)

    # -- what is allowed ---------------------------------------------------------------------------

    def barrier(self, work: Work) -> Barrier | None:
        """Return what forbids a job to hold what it asks for; None = nothing."""
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

    def is_hopeless(self, work: Work) -> bool:
        """Tell whether a queue could not hold what a job asks for even if it held nothing else."""
        return any(
            amount and amount > (min(limit, deserved) if work.fixed else limit) + _TOLERANCE
            for node in work.leaf.path()
            for amount, limit, deserved in zip(
                work.amounts, node.limits, node.deserved, strict=True
            )
        )

    def may_reclaim(self, work: Work) -> bool:
        """Tell whether a job would leave its queue within its fair share, and within its quota if
        it can never be stopped.
        """
        leaf = work.leaf
        return fits(leaf.allocated, work.amounts, leaf.fair) and (
            not work.fixed or fits(leaf.fixed, work.amounts, leaf.deserved)
        )

    def may_take(self, work: Work, victim: Work) -> bool:
        """Tell whether a job may stop another one's, as the queues stand now."""
        own, other = parting(work.leaf, victim.leaf)
        return any(
            held > share + _TOLERANCE
            for held, share in zip(other.allocated, other.allocatable, strict=True)
        ) or (
            fits(own.allocated, work.amounts, own.deserved)
            and any(
                held > deserved + _TOLERANCE
                for held, deserved in zip(other.allocated, other.deserved, strict=True)
            )
        )

    def is_balanced(self, work: Work, victims: Iterable[Work]) -> bool:
        """Tell whether no queue on a job's path would end above its fair share and at least as far
        above it as the one that gave.
        """
        for victim in victims:
            own, other = parting(work.leaf, victim.leaf)
            for at, amount in enumerate(work.amounts):
                ratio = _ratio(own.allocated[at] + amount, own.fair[at])
                if ratio > 1 + _TOLERANCE and ratio >= _ratio(other.allocated[at], other.fair[at]):
                    return False
        return True

    # -- order -------------------------------------------------------------------------------------

    def key(self, node: QueueNode, amounts: Amounts) -> Key:
        """Return the sort key of a queue among its siblings, if it is given these amounts next.

        Notes
        -----
        A queue is above its fair share only if it is so in all of `RESOURCES`. Where the cluster
        does not limit one of them, no queue is.
        """
        held = node.allocated
        zero, dominant, plain = False, 0.0, 0.0
        for at, amount in enumerate(amounts):
            share = self.total[at] if node.allocatable[at] == inf else node.allocatable[at]
            after = held[at] + amount
            if share > 0:
                dominant, plain = max(dominant, after / share), max(plain, held[at] / share)
            elif after > 0:
                whole = self.total[at] / _WITHOUT_SHARE or 1.0
                dominant, plain = max(dominant, after / whole), max(plain, held[at] / whole)
                zero = True
        return (
            len(held) == len(RESOURCES)
            and all(a > b + _TOLERANCE for a, b in zip(held, node.fair, strict=True)),
            not fits(held, amounts, node.deserved),
            -node.queue.priority,
            zero,
            round(dominant, 9),
            round(plain, 9),
            tuple(node.allocatable),
            node.at,
        )

    def worst(self, leaves: Iterable[QueueNode]) -> QueueNode:
        """Return the queue that would be served last if nobody waited."""
        nothing = (0.0,) * len(self.total)
        return max(
            leaves,
            key=lambda leaf: [self.key(node, nothing) for node in [*leaf.path()][::-1]],
        )


class JobOrder:
    """The waiting jobs in the order in which one action looks at them."""

    def __init__(self, tree: QueueTree, works: dict[JobId, Work]) -> None:
        self._tree, self._works = tree, works
        self._closed: set[IdenticalJobs] = set()
        for leaf in tree.leaves():
            self._choose_lane(leaf)
        for node in reversed(tree.nodes.values()):  # children come after their parents
            self._choose(node)

    def first(self) -> IdenticalJobs | None:
        """Return the lane whose first job is next; None = all were looked at."""
        best = min((node for node in self._tree.roots if node.next), key=_key, default=None)
        return best.next if best is not None else None

    def close(self, lanes: Iterable[IdenticalJobs]) -> None:
        """Look at no job of these any more."""
        new = [lane for lane in lanes if lane not in self._closed]
        self._closed.update(new)
        for lane in new:
            if lane.leaf.next is lane:
                self.renew(lane.leaf)

    def renew(self, *leaves: QueueNode) -> None:
        """Take in that queues hold something else, or that others of their jobs wait."""
        for leaf in leaves:
            self._choose_lane(leaf)
        for leaf in leaves:
            for node in leaf.path():
                self._choose(node)

    def _choose_lane(self, leaf: QueueNode) -> None:
        leaf.next = None
        if leaf.waiting:
            heads = [
                (lane.head, lane)
                for lane in leaf.lanes.values()
                if lane not in self._closed and lane.head is not None
            ]
            leaf.next = min(heads, key=lambda pair: pair[0] or ())[1] if heads else None

    def _choose(self, node: QueueNode) -> None:
        if node.children:
            best = min((child for child in node.children if child.next), key=_key, default=None)
            node.next = best.next if best is not None else None
        if node.next is not None:
            head = node.next.head
            assert head is not None, "a lane without jobs was chosen"
            node.key = self._tree.key(node, self._works[head[1]].amounts)


def _key(node: QueueNode) -> Key:
    return node.key


def parting(one: QueueNode, other: QueueNode) -> tuple[QueueNode, QueueNode]:
    """Return the siblings under which two queues stand; the same queue twice where one is the
    other.
    """
    first, second = [*one.path()][::-1], [*other.path()][::-1]
    for a, b in zip(first, second, strict=False):
        if a is not b:
            return a, b
    return one, other


def fits(held: Sequence[float], amounts: Amounts, most: Sequence[float]) -> bool:
    """Tell whether what is held and these amounts stay within something, in every resource."""
    return all(a + b <= c + _TOLERANCE for a, b, c in zip(held, amounts, most, strict=True))


def _ratio(amount: float, share: float) -> float:
    return amount / share if share > 0 else inf if amount > _TOLERANCE else 0.0
