"""Preemption in Kueue: victims by priority and quota, or by fair shares."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from allocators.sites.kueue.objects import FINAL_SHARE, INITIAL_SHARE, NEVER
from allocators.sites.kueue.queueing import QueuedWorkload, QueueState, preemption_order
from allocators.sites.kueue.tree import QuotaNode, Usage

OWN, ADVANTAGE, WHILE_BORROWING, WITHOUT_BORROWING = range(4)
"""Why a workload may be preempted: it is in the same queue; the preemptor fits in the quota of its
subtree; or it borrows, and even a borrowing preemptor may preempt it, or only one that does not.
"""


class Candidate(NamedTuple):
    """A workload that may be preempted; ``common`` is the nearest shared cohort."""

    workload: QueuedWorkload
    why: int
    common: QuotaNode | None


@dataclass
class Preemptor:
    """Finds the workloads to preempt for another one.

    Parameters
    ----------
    queue_of : mapping
        Cluster queue of each node that is one.
    fair : bool
        Whether fair sharing is on.
    strategies : sequence of str
        Preemption strategies of fair sharing, in order.
    """

    queue_of: Mapping[QuotaNode, QueueState]
    fair: bool
    strategies: Sequence[str]

    def targets(
        self, one: QueuedWorkload, usage: Usage, short: Collection[int], now_s: float
    ) -> list[QueuedWorkload]:
        """Return the workloads to preempt for a workload; empty if it would not fit.

        Parameters
        ----------
        one : Workload
            The workload that needs quota.
        usage : sequence of (cell, amount)
            Its request.
        short : collection of int
            Cells without enough available quota.
        now_s : float
            Current time; a workload is preempted once per instant.
        """
        if not one.queue.preempts:
            return []
        if self.fair:
            return _FairPreemption(self, one, usage, short, now_s).targets()
        return self._classical_targets(one, usage, short, now_s)

    # -- by priority and quota
    # ----------------------------------------------------------------------------------------------

    def _classical_targets(
        self, one: QueuedWorkload, usage: Usage, short: Collection[int], now_s: float
    ) -> list[QueuedWorkload]:
        """Return the workloads to preempt by priority and quota; empty if none help.

        Candidates come from other queues first. They are tried with and without borrowing, in an
        order that depends on the policies.
        """
        queue = one.queue
        own = [Candidate(other, OWN, None) for other in self.own_candidates(one, short, now_s)]
        forbidden = queue.config.preemption.borrow == NEVER
        # A workload above its quota preempts others without an advantage only if it may do so while
        # borrowing, or if workloads of its own queue are preempted too.
        needs_advantage = forbidden and not own and not _fits_quota(queue.node, usage)
        privileged, others = self._foreign_candidates(
            one, usage, short, now_s, advantage_only=needs_advantage
        )
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
            targets = self._minimal_targets(queue, usage, short, candidates, borrow=borrow)
            if targets:
                return targets
        return []

    def own_candidates(
        self, one: QueuedWorkload, short: Collection[int], now_s: float
    ) -> list[QueuedWorkload]:
        """Return the workloads of the same queue that may be preempted, in order.

        Lowest priority first, then the latest admission; only if they use a short cell.
        """
        queue = one.queue
        within = queue.config.preemption.within
        if within == NEVER or not queue.has_preemptible(within, one.priority):
            return []
        return preemption_order(
            [
                other
                for other in queue.admitted.values()
                if _is_candidate(other, short, now_s) and queue.can_preempt_own(one, other)
            ]
        )

    def _foreign_candidates(
        self,
        one: QueuedWorkload,
        usage: Usage,
        short: Collection[int],
        now_s: float,
        *,
        advantage_only: bool,
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Return candidates of other queues: with the advantage of own quota, and others.

        The advantage: the request fits in the quota of a subtree, and the candidate is outside it.
        Both lists start with the lowest priority and the latest admission. With `advantage_only`,
        candidates without it are not collected.
        """
        queue, node = one.queue, one.queue.node
        privileged: list[Candidate] = []
        others: list[Candidate] = []
        if not queue.reclaims:
            return privileged, others
        remaining = list(usage)
        visited: QuotaNode | None = None
        advantage = _fits_quota(node, remaining)
        remaining = _excess_usage(node, remaining)
        for cohort in node.ancestors:
            look = advantage or not advantage_only
            for other_queue in self._borrowers(cohort, visited, queue, short) if look else ():
                if not other_queue.has_preemptible(queue.config.preemption.reclaim, one.priority):
                    continue
                for other in other_queue.admitted.values():
                    if _is_candidate(other, short, now_s) and queue.can_preempt_foreign(one, other):
                        if advantage:
                            privileged.append(Candidate(other, ADVANTAGE, cohort))
                        else:
                            eager = queue.can_preempt_while_borrowing(one, other)
                            why = WHILE_BORROWING if eager else WITHOUT_BORROWING
                            others.append(Candidate(other, why, cohort))
            advantage = advantage or _fits_quota(cohort, remaining)
            remaining = _excess_usage(cohort, remaining)
            visited = cohort
        for candidates in (privileged, others):
            candidates.sort(key=lambda it: (it.workload.priority, -it.workload.order))
        return privileged, others

    def _borrowers(
        self, cohort: QuotaNode, visited: QuotaNode | None, own: QueueState, short: Collection[int]
    ) -> Iterator[QueueState]:
        """Yield the queues below a cohort that exceed their quota of a short cell.

        The preemptor's own queue and the subtree `visited` are left out.
        """
        for child in cohort.children:
            if child is visited or child is own.node or child.is_within_quota(short):
                continue
            queue = self.queue_of.get(child)
            if queue is None:
                yield from self._borrowers(child, visited, own, short)
            else:
                yield queue

    def _minimal_targets(
        self,
        queue: QueueState,
        usage: Usage,
        short: Collection[int],
        candidates: Sequence[Candidate],
        *,
        borrow: bool,
    ) -> list[QueuedWorkload]:
        """Return a minimal set of candidates to preempt for a usage; empty if none suffices.

        All usage is booked again.
        """
        removed: list[QueuedWorkload] = []
        for candidate in candidates:
            other = candidate.workload
            if candidate.why != OWN and (
                (borrow and candidate.why == WITHOUT_BORROWING)
                or not _is_still_borrowing(other.queue.node, candidate.common, short)
            ):
                continue
            other.queue.node.remove(other.usage)
            removed.append(other)
            if fits(queue.node, usage, borrow=borrow):
                return restore_unneeded(queue.node, usage, removed, borrow=borrow)
        restore(removed)
        return []


class _FairPreemption:
    """One search for targets by fair shares."""

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
        self._removed: list[QueuedWorkload] = []

    def targets(self) -> list[QueuedWorkload]:
        """Return the workloads to preempt; empty if the workload would not fit."""
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
                if _is_candidate(other, self._short, self._now_s)
                and queue.can_preempt_foreign(self._one, other)
            ]
            if others:
                candidates[other_queue] = preemption_order(others)
        if not candidates:
            return []
        node.add(self._usage)  # shares include the preemptor
        try:
            is_enough = self._search(root, candidates)
        finally:
            node.remove(self._usage)
        if not is_enough:
            restore(self._removed)
            return []
        return restore_unneeded(node, self._usage, self._removed, borrow=True)

    def _search(self, root: QuotaNode, candidates: dict[QueueState, list[QueuedWorkload]]) -> bool:
        """Subtract candidates of queues with larger shares; True = the workload fits.

        Workloads rejected by the first strategy are tried with LessThanInitialShare if that is the
        second.
        """
        first, *more = self._preemptor.strategies
        retry: dict[QueueState, list[QueuedWorkload]] = {}
        pruned: set[QuotaNode] = set()
        flat = all(child in self._preemptor.queue_of for child in root.children)
        while (queue := self._next_queue(root, candidates, pruned)) is not None:
            if queue is self._one.queue:
                if self._remove_and_check(candidates[queue].pop(0)):
                    return True
                continue
            mine, theirs = self._compared_nodes(queue)
            new, old = mine.share().key, theirs.share().key
            free = self._one.queue.node.is_within_quota([cell for cell, _ in self._usage])
            if not free and new > old:
                if flat and not candidates.get(self._one.queue):
                    break  # no other queue has a larger share
                retry.setdefault(queue, []).extend(candidates[queue])
                candidates[queue].clear()
            while candidates[queue]:
                other = candidates[queue].pop(0)
                if free or self._satisfies_strategy(first, new, old, theirs, other):
                    if self._remove_and_check(other):
                        return True
                    break  # another queue may have the largest share now
                retry.setdefault(queue, []).append(other)
        return INITIAL_SHARE in more and self._search_initial_share(root, retry)

    def _search_initial_share(
        self, root: QuotaNode, candidates: dict[QueueState, list[QueuedWorkload]]
    ) -> bool:
        """Subtract up to one candidate of each queue by LessThanInitialShare.

        Return True once the workload fits.
        """
        pruned: set[QuotaNode] = set()
        while (queue := self._next_queue(root, candidates, pruned)) is not None:
            mine, theirs = self._compared_nodes(queue)
            if mine.share().key < theirs.share().key and self._remove_and_check(
                candidates[queue].pop(0)
            ):
                return True
            pruned.add(queue.node)  # one of each queue
        return False

    def _satisfies_strategy(
        self,
        rule: str,
        new: tuple[bool, float],
        old: tuple[bool, float],
        theirs: QuotaNode,
        other: QueuedWorkload,
    ) -> bool:
        """Return True if a strategy allows to preempt a workload of node `theirs`.

        The preemptor's share `new` must be at most the share of `theirs` without the workload
        (final share), or below its present share `old` (initial share).
        """
        if rule != FINAL_SHARE:
            return new < old
        other.queue.node.remove(other.usage)
        after = theirs.share().key
        other.queue.node.add(other.usage)
        return new <= after

    def _remove_and_check(self, other: QueuedWorkload) -> bool:
        """Subtract and record a workload; return True if the preemptor fits now."""
        node = self._one.queue.node
        other.queue.node.remove(other.usage)
        self._removed.append(other)
        node.remove(self._usage)
        enough = fits(node, self._usage, borrow=True)
        node.add(self._usage)
        return enough

    def _compared_nodes(self, queue: QueueState) -> tuple[QuotaNode, QuotaNode]:
        """Return the children of the nearest shared cohort above both queues.

        First the preemptor's, then the other queue's.
        """
        theirs = queue.node
        for common in queue.node.ancestors:
            if common in self._above:
                break
            theirs = common
        mine = self._one.queue.node
        while mine.parent is not None and mine.parent is not theirs.parent:
            mine = mine.parent
        return mine, theirs

    def _next_queue(
        self,
        cohort: QuotaNode,
        candidates: Mapping[QueueState, list[QueuedWorkload]],
        pruned: set[QuotaNode],
    ) -> QueueState | None:
        """Return the queue with the largest share below a cohort; None = none left.

        Only queues with candidates count; nodes without any are added to `pruned`.
        """
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
            queue_below = (
                queue if queue is not None else self._next_queue(chosen, candidates, pruned)
            )
            if queue_below is not None:
                return queue_below
        return None

    def _borrowers(self, cohort: QuotaNode) -> Iterator[QueueState]:
        """Yield other queues below a cohort that exceed their quota of a short cell."""
        for child in cohort.children:
            queue = self._preemptor.queue_of.get(child)
            if queue is None:
                yield from self._borrowers(child)
            elif queue is not self._one.queue and not child.is_within_quota(self._short):
                yield queue


def fits(node: QuotaNode, usage: Usage, *, borrow: bool) -> bool:
    """Return True if a queue can take usage, with or without borrowing."""
    return all(
        amount <= node.available(cell) and (borrow or not node.borrows_with(cell, amount))
        for cell, amount in usage
    )


def restore_unneeded(
    node: QuotaNode, usage: Usage, gone: Sequence[QueuedWorkload], *, borrow: bool
) -> list[QueuedWorkload]:
    """Add back removed workloads that need not be preempted; return the targets.

    The last one is always needed. The usage of all is booked again.
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
    """Add the usage of removed workloads back to their queues."""
    for other in gone:
        other.queue.node.add(other.usage)


def _is_candidate(other: QueuedWorkload, short: Collection[int], now_s: float) -> bool:
    """Return True if a workload may be preempted and uses one of the short cells."""
    return (
        other.is_preemptible
        and other.preempted_s != now_s
        and any(cell in short for cell, _ in other.usage)
    )


def _fits_quota(node: QuotaNode, usage: Usage) -> bool:
    """Return True if usage fits in the quota of a node's subtree."""
    return all(node.used[cell] + amount <= node.subtree[cell] for cell, amount in usage)


def _excess_usage(node: QuotaNode, usage: Usage) -> list[tuple[int, int]]:
    """Return the part of a usage that exceeds the free local quota of a node."""
    return [(cell, max(0, amount - node.free_local(cell))) for cell, amount in usage]


def _is_still_borrowing(node: QuotaNode, common: QuotaNode | None, short: Collection[int]) -> bool:
    """Return True if a queue and its cohorts below the common one exceed their quotas.

    Each must exceed its quota of some short cell.
    """
    if node.is_within_quota(short):
        return False
    for cohort in node.ancestors:
        if cohort is common:
            break
        if cohort.is_within_quota(short):
            return False
    return True
