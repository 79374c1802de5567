"""Whom a workload displaces: Kueue's preemption, by priority and quota, and by fair shares."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from allocators.sites.kueue.objects import FINAL_SHARE, INITIAL_SHARE, NEVER
from allocators.sites.kueue.queueing import QueuedWorkload, QueueState, displacement_order
from allocators.sites.kueue.tree import QuotaNode, Usage

OWN, ADVANTAGE, WHILE_BORROWING, WITHOUT_BORROWING = range(4)
"""Why a workload may be displaced: it is in the same queue, the other one needs only what its
subtree owns, or it borrows and may be displaced by one that borrows, or only by one that does not.
"""


class Candidate(NamedTuple):
    """A workload that may be displaced; ``common`` is the nearest cohort above both queues."""

    workload: QueuedWorkload
    why: int
    common: QuotaNode | None


@dataclass
class Preemptor:
    """Finds the workloads that make way for another one.

    Parameters
    ----------
    queue_of : mapping
        Node -> its queue, for nodes that are cluster queues.
    fair : bool
        Whether fair shares decide.
    strategies : sequence of str
        The rules of fair sharing, in order.
    """

    queue_of: Mapping[QuotaNode, QueueState]
    fair: bool
    strategies: Sequence[str]

    def targets(
        self, one: QueuedWorkload, usage: Usage, short: Collection[int], now_s: float
    ) -> list[QueuedWorkload]:
        """Return whom a workload displaces; nobody where that would not help.

        Parameters
        ----------
        one : Workload
            Who asks for quota.
        usage : sequence of (cell, amount)
            What it asks for.
        short : collection of int
            The cells of which too little is available.
        now_s : float
            Nobody is displaced twice at the same instant.
        """
        if not one.queue.preempts:
            return []
        if self.fair:
            return _Fair(self, one, usage, short, now_s).targets()
        return self._classical(one, usage, short, now_s)

    # -- by priority and quota
    # ----------------------------------------------------------------------------------------------

    def _classical(
        self, one: QueuedWorkload, usage: Usage, short: Collection[int], now_s: float
    ) -> list[QueuedWorkload]:
        queue = one.queue
        own = [Candidate(other, OWN, None) for other in self.own_candidates(one, short, now_s)]
        forbidden = queue.config.preemption.borrow == NEVER
        # Whoever needs more than it owns displaces others without an advantage only if it may while
        # borrowing, or if its own workloads make way too.
        hopeless = forbidden and not own and not _fits_quota(queue.node, usage)
        privileged, others = self._foreign(one, usage, short, now_s, advantage_only=hopeless)
        candidates = [*privileged, *others, *own]
        if not candidates:
            return []
        under = all(queue.node.used[cell] < queue.node.nominal[cell] for cell in short)
        if not (privileged or others) or (forbidden and not under):
            attempts = [True]
        elif forbidden and not privileged:
            attempts = [False, True]
        else:
            attempts = [True, False]
        for borrow in attempts:
            found = self._fewest(queue, usage, short, candidates, borrow=borrow)
            if found:
                return found
        return []

    def own_candidates(
        self, one: QueuedWorkload, short: Collection[int], now_s: float
    ) -> list[QueuedWorkload]:
        """Return the workloads of the same queue that may be displaced, the first first."""
        queue = one.queue
        within = queue.config.preemption.within
        if within == NEVER or not queue.may_lose(within, one.priority):
            return []
        return displacement_order(
            [
                other
                for other in queue.admitted.values()
                if _counts(other, short, now_s) and queue.may_displace_own(one, other)
            ]
        )

    def _foreign(
        self,
        one: QueuedWorkload,
        usage: Usage,
        short: Collection[int],
        now_s: float,
        *,
        advantage_only: bool,
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Return those of other queues: where the request fits the quota of a subtree, those
        outside of it, and all others.
        """
        queue, node = one.queue, one.queue.node
        privileged: list[Candidate] = []
        others: list[Candidate] = []
        if not queue.reclaims:
            return privileged, others
        left = list(usage)
        done: QuotaNode | None = None
        advantage = _fits_quota(node, left)
        left = _beyond(node, left)
        for cohort in node.ancestors:
            look = advantage or not advantage_only
            for other_queue in self._borrowers(cohort, done, queue, short) if look else ():
                if not other_queue.may_lose(queue.config.preemption.reclaim, one.priority):
                    continue
                for other in other_queue.admitted.values():
                    if _counts(other, short, now_s) and queue.may_displace_foreign(one, other):
                        if advantage:
                            privileged.append(Candidate(other, ADVANTAGE, cohort))
                        else:
                            eager = queue.may_while_borrowing(one, other)
                            why = WHILE_BORROWING if eager else WITHOUT_BORROWING
                            others.append(Candidate(other, why, cohort))
            advantage = advantage or _fits_quota(cohort, left)
            left = _beyond(cohort, left)
            done = cohort
        for found in (privileged, others):
            found.sort(key=lambda it: (it.workload.priority, -it.workload.order))
        return privileged, others

    def _borrowers(
        self, cohort: QuotaNode, done: QuotaNode | None, own: QueueState, short: Collection[int]
    ) -> Iterator[QueueState]:
        for child in cohort.children:
            if child is done or child is own.node or child.is_within(short):
                continue
            queue = self.queue_of.get(child)
            if queue is None:
                yield from self._borrowers(child, done, own, short)
            else:
                yield queue

    def _fewest(
        self,
        queue: QueueState,
        usage: Usage,
        short: Collection[int],
        candidates: Sequence[Candidate],
        *,
        borrow: bool,
    ) -> list[QueuedWorkload]:
        gone: list[QueuedWorkload] = []
        for candidate in candidates:
            other = candidate.workload
            if candidate.why != OWN and (
                (borrow and candidate.why == WITHOUT_BORROWING)
                or not _borrows_still(other.queue.node, candidate.common, short)
            ):
                continue
            other.queue.node.remove(other.usage)
            gone.append(other)
            if fits(queue.node, usage, borrow=borrow):
                return put_back(queue.node, usage, gone, borrow=borrow)
        restore(gone)
        return []


class _Fair:
    """One search by fair shares."""

    def __init__(
        self,
        preemptor: Preemptor,
        one: QueuedWorkload,
        usage: Usage,
        short: Collection[int],
        now_s: float,
    ) -> None:
        self._preemptor, self._one, self._usage, self._short = preemptor, one, usage, short
        self._now_s = now_s
        self._above = set(one.queue.node.ancestors)
        self._gone: list[QueuedWorkload] = []

    def targets(self) -> list[QueuedWorkload]:
        queue, node = self._one.queue, self._one.queue.node
        candidates: dict[QueueState, list[QueuedWorkload]] = {}
        own = self._preemptor.own_candidates(self._one, self._short, self._now_s)
        if own:
            candidates[queue] = own
        root = node.ancestors[-1] if node.ancestors else node
        for other_queue in self._borrowers(root) if queue.reclaims else ():
            others = [
                other
                for other in other_queue.admitted.values()
                if _counts(other, self._short, self._now_s)
                and queue.may_displace_foreign(self._one, other)
            ]
            if others:
                candidates[other_queue] = displacement_order(others)
        if not candidates:
            return []
        node.add(self._usage)  # shares are those with the workload that comes
        try:
            found = self._search(root, candidates)
        finally:
            node.remove(self._usage)
        if not found:
            restore(self._gone)
            return []
        return put_back(node, self._usage, self._gone, borrow=True)

    def _search(self, root: QuotaNode, candidates: dict[QueueState, list[QueuedWorkload]]) -> bool:
        first, *more = self._preemptor.strategies
        retry: dict[QueueState, list[QueuedWorkload]] = {}
        pruned: set[QuotaNode] = set()
        flat = all(child in self._preemptor.queue_of for child in root.children)
        while (queue := self._next(root, candidates, pruned)) is not None:
            if queue is self._one.queue:
                if self._drop(candidates[queue].pop(0)):
                    return True
                continue
            mine, theirs = self._rivals(queue)
            new, old = mine.share().key, theirs.share().key
            free = self._one.queue.node.is_within([cell for cell, _ in self._usage])
            if not free and new > old:
                if flat and not candidates.get(self._one.queue):
                    break  # no other queue has a larger share
                retry.setdefault(queue, []).extend(candidates[queue])
                candidates[queue].clear()
            while candidates[queue]:
                other = candidates[queue].pop(0)
                if free or self._passes(first, new, old, theirs, other):
                    if self._drop(other):
                        return True
                    break  # another queue may have the largest share now
                retry.setdefault(queue, []).append(other)
        return INITIAL_SHARE in more and self._second(root, retry)

    def _second(self, root: QuotaNode, candidates: dict[QueueState, list[QueuedWorkload]]) -> bool:
        pruned: set[QuotaNode] = set()
        while (queue := self._next(root, candidates, pruned)) is not None:
            mine, theirs = self._rivals(queue)
            if mine.share().key < theirs.share().key and self._drop(candidates[queue].pop(0)):
                return True
            pruned.add(queue.node)  # one of each queue
        return False

    def _passes(
        self,
        rule: str,
        new: tuple[bool, float],
        old: tuple[bool, float],
        theirs: QuotaNode,
        other: QueuedWorkload,
    ) -> bool:
        if rule != FINAL_SHARE:
            return new < old
        other.queue.node.remove(other.usage)
        after = theirs.share().key
        other.queue.node.add(other.usage)
        return new <= after

    def _drop(self, other: QueuedWorkload) -> bool:
        """Take a workload out; tell whether the other one fits now."""
        node = self._one.queue.node
        other.queue.node.remove(other.usage)
        self._gone.append(other)
        node.remove(self._usage)
        enough = fits(node, self._usage, borrow=True)
        node.add(self._usage)
        return enough

    def _rivals(self, queue: QueueState) -> tuple[QuotaNode, QuotaNode]:
        """Return the two nodes below the nearest common cohort that lead to both queues."""
        theirs = queue.node
        for common in queue.node.ancestors:
            if common in self._above:
                break
            theirs = common
        mine = self._one.queue.node
        while mine.parent is not None and mine.parent is not theirs.parent:
            mine = mine.parent
        return mine, theirs

    def _next(
        self,
        cohort: QuotaNode,
        candidates: Mapping[QueueState, list[QueuedWorkload]],
        pruned: set[QuotaNode],
    ) -> QueueState | None:
        """Return the queue with the largest share, found by descending; None = none is left."""
        if cohort is self._one.queue.node:  # without a cohort
            return self._one.queue if candidates.get(self._one.queue) else None
        while cohort not in pruned:
            best: tuple[tuple[bool, float], bool, int] | None = None
            chosen: QuotaNode | None = None
            for at, child in enumerate(cohort.children):
                if child in pruned:
                    continue
                queue = self._preemptor.queue_of.get(child)
                share = child.share()
                on_path = child is self._one.queue.node or child in self._above
                if (not share.borrowed and not on_path) or (
                    queue is not None and not candidates.get(queue)
                ):
                    pruned.add(child)
                    continue
                key = (share.key, queue is None, at)
                if best is None or key > best:
                    best, chosen = key, child
            if chosen is None:
                pruned.add(cohort)
                return None
            queue = self._preemptor.queue_of.get(chosen)
            found = queue if queue is not None else self._next(chosen, candidates, pruned)
            if found is not None:
                return found
        return None

    def _borrowers(self, cohort: QuotaNode) -> Iterator[QueueState]:
        for child in cohort.children:
            queue = self._preemptor.queue_of.get(child)
            if queue is None:
                yield from self._borrowers(child)
            elif queue is not self._one.queue and not child.is_within(self._short):
                yield queue


def fits(node: QuotaNode, usage: Usage, *, borrow: bool) -> bool:
    """Tell whether usage is available to a queue, perhaps only from what it owns."""
    return all(
        amount <= node.available(cell) and (borrow or not node.borrows_with(cell, amount))
        for cell, amount in usage
    )


def put_back(
    node: QuotaNode, usage: Usage, gone: Sequence[QueuedWorkload], *, borrow: bool
) -> list[QueuedWorkload]:
    """Return those of the workloads taken out that must stay out, the last one always; all usage is
    booked again.
    """
    needed = [gone[-1]]
    for other in reversed(gone[:-1]):
        other.queue.node.add(other.usage)
        if not fits(node, usage, borrow=borrow):
            other.queue.node.remove(other.usage)
            needed.append(other)
    restore(needed)
    return needed


def restore(gone: Sequence[QueuedWorkload]) -> None:
    """Book the usage of workloads again."""
    for other in gone:
        other.queue.node.add(other.usage)


def _counts(other: QueuedWorkload, short: Collection[int], now_s: float) -> bool:
    return (
        other.stoppable
        and other.displaced_s != now_s
        and any(cell in short for cell, _ in other.usage)
    )


def _fits_quota(node: QuotaNode, usage: Usage) -> bool:
    return all(node.used[cell] + amount <= node.subtree[cell] for cell, amount in usage)


def _beyond(node: QuotaNode, usage: Usage) -> list[tuple[int, int]]:
    return [(cell, max(0, amount - node.free_here(cell))) for cell, amount in usage]


def _borrows_still(node: QuotaNode, common: QuotaNode | None, short: Collection[int]) -> bool:
    """Tell whether neither a queue nor a cohort above it, below the common one, has come down to
    what it owns.
    """
    if node.is_within(short):
        return False
    for cohort in node.ancestors:
        if cohort is common:
            break
        if cohort.is_within(short):
            return False
    return True
