"""Kueue's scheduling cycle: heads of queues, flavor assignment, preemption and admission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from allocators.sites.kueue.objects import ANY, NEVER, PREEMPTION_FIRST, TRY_NEXT, KueueConfig
from allocators.sites.kueue.preemption import Preemptor, fits, restore
from allocators.sites.kueue.queueing import FlavorChoice, QueuedWorkload, QueueState
from allocators.sites.kueue.tree import BorrowedShare, CohortTree, QuotaNode, Usage

NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = range(5)
"""Outcomes of trying a flavor for a workload, worst first."""
_FARTHEST: Final = 1 << 30


class Mode(NamedTuple):
    """The outcome of a flavor, and the cohort height from which quota is borrowed (0 = none)."""

    what: int
    borrows: int


_WORST: Final = Mode(NO_FIT, _FARTHEST)
_BEST: Final = Mode(FIT, 0)


class FlavorAttempt(NamedTuple):
    """The outcome of one flavor, and the cells without enough available quota."""

    mode: Mode
    choice: FlavorChoice
    short: tuple[int, ...]


@dataclass(slots=True)
class Entry:
    """The head of a queue in a cycle, with its assigned flavors and preemption targets."""

    workload: QueuedWorkload
    fits: bool = True
    usage: list[tuple[int, int]] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    short: list[int] = field(default_factory=list)
    borrows: int = 0
    targets: list[QueuedWorkload] = field(default_factory=list)
    resumes: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class Root:
    """A root cohort with its queues, scheduled independently of other roots.

    Attributes
    ----------
    generation : int
        Counter of quota releases.
    dirty : bool
        Whether a cycle may change something.
    due_s : float
        Time at which parked workloads are tried again.
    """

    node: QuotaNode
    queues: list[QueueState]
    generation: int = 0
    dirty: bool = False
    due_s: float = inf


class Scheduler:
    """Kueue's scheduler over all cluster queues of a configuration.

    Parameters
    ----------
    config : Config
        The objects.
    fair : bool
        Whether shares decide order and preemption (fair sharing).
    requeue_s : float
        Delay from a release of quota to the next try of parked workloads; strict queues retry at
        once.
    """

    def __init__(self, config: KueueConfig, *, fair: bool, requeue_s: float = 0.0) -> None:
        self.tree = tree = CohortTree(config)
        self.fair, self._requeue_s = fair, requeue_s
        self.queues = {
            one.name: QueueState(one, tree.queues[one.name], tree.cells) for one in config.queues
        }
        self._queue_of: dict[QuotaNode, QueueState] = {
            queue.node: queue for queue in self.queues.values()
        }
        self._preemptor = Preemptor(self._queue_of, fair, config.strategies)
        roots: dict[QuotaNode, Root] = {}
        self._root_of: dict[QueueState, Root] = {}
        for queue in self.queues.values():
            top = queue.node.ancestors[-1] if queue.node.ancestors else queue.node
            root = roots.setdefault(top, Root(top, []))
            root.queues.append(queue)
            self._root_of[queue] = root
        self.roots = list(roots.values())
        self._admissions = 0
        self._now_s = 0.0

    # -- events
    # ----------------------------------------------------------------------------------------------

    def submit(self, one: QueuedWorkload) -> None:
        """Put a workload into its queue; its root needs a cycle unless its shape is parked."""
        if one.queue.enqueue(one):
            self._root_of[one.queue].dirty = True

    def withdraw(self, one: QueuedWorkload) -> None:
        """Remove a workload from its queue, and free its quota if it holds any."""
        one.queue.dequeue(one)
        if one.order:
            self.release(one)

    def begin(self, now_s: float) -> None:
        """Set the current time, before other calls at this instant."""
        self._now_s = now_s

    @property
    def wake_s(self) -> float:
        """Next time at which parked workloads are tried again."""
        return min([root.due_s for root in self.roots])

    def release(self, one: QueuedWorkload) -> None:
        """Free the quota of an admitted workload; workloads of its root are tried again."""
        one.queue.node.remove(one.usage)
        one.queue.remove_admitted(one)
        one.usage, one.chosen, one.order = (), (), 0
        self._mark_dirty(self._root_of[one.queue])

    def book(self, one: QueuedWorkload, usage: Usage, chosen: Iterable[str]) -> None:
        """Admit a workload that already runs, even above the limits."""
        one.queue.dequeue(one)
        one.queue.node.add(usage)
        self._admit(one, tuple(usage), tuple(chosen))

    def can_ever(self, one: QueuedWorkload) -> bool:
        """Return True if its queue could admit a workload without any other usage.

        In each resource group, one of its flavors must have the amounts, borrowed quota included.
        """
        potential = one.queue.potential
        return all(
            any(
                choice.name in one.flavors
                and all(amount <= potential[choice.cells[name]] for name, amount in requests)
                for choice in choices
            )
            for choices, requests in one.queue.group_requests(one.request)
        )

    def run(self) -> list[tuple[QueuedWorkload, bool]]:
        """Run cycles of all roots until nothing changes; unpark roots that are due.

        Returns
        -------
        list of (Workload, bool)
            Admitted (True) and preempted (False) workloads, in order.
        """
        for root in self.roots:
            if root.due_s <= self._now_s:
                self._unpark(root)
        events: list[tuple[QueuedWorkload, bool]] = []
        for root in self.roots:
            while root.dirty:
                root.dirty = self._cycle(root, events)
        return events

    # -- one cycle
    # ----------------------------------------------------------------------------------------------

    def _cycle(self, root: Root, events: list[tuple[QueuedWorkload, bool]]) -> bool:
        """Process the head of each queue once; return False if there are none.

        Admissions and preemptions are appended to `events`; preempted workloads are queued again.
        """
        heads = [head for queue in root.queues if (head := queue.head()) is not None]
        if not heads:
            return False
        entries: list[Entry] = []
        for head in heads:
            entry = self._assign_flavors(head, root)
            if entry.fits:
                entries.append(entry)
            else:
                self._requeue(entry, root)
        booked: list[tuple[QuotaNode, Usage]] = []
        preempted: list[QueuedWorkload] = []
        for entry in self._ordered_entries(root, entries):
            self._process_entry(entry, root, booked, preempted, events)
        for node, usage in reversed(booked):
            node.remove(usage)
        for victim in preempted:
            self.release(victim)
            victim.preempted_s = self._now_s
            events.append((victim, False))
            self.submit(victim)
        return True

    def _process_entry(
        self,
        entry: Entry,
        root: Root,
        booked: list[tuple[QuotaNode, Usage]],
        preempted: list[QueuedWorkload],
        events: list[tuple[QueuedWorkload, bool]],
    ) -> None:
        """Admit the workload of an entry, collect its targets, or requeue it.

        Usage added only for this cycle goes to `booked`, targets to `preempted`, an admission to
        `events`.
        """
        one = entry.workload
        queue, node = one.queue, one.queue.node
        if entry.short and not entry.targets:
            if queue.config.preemption.reclaim != ANY:  # else it can reclaim its quota at any time
                reserved = self._reserved_usage(entry)
                node.add(reserved)
                booked.append((node, reserved))
            self._requeue(entry, root)
            return
        one.resumes = (-1, {})
        if any(target in preempted for target in entry.targets):
            return
        removed = [*preempted, *entry.targets]
        for other in removed:
            other.queue.node.remove(other.usage)
        enough = fits(node, entry.usage, borrow=True)
        restore(removed)
        if not enough:
            return
        node.add(entry.usage)
        if entry.targets:
            booked.append((node, entry.usage))
            preempted += entry.targets
            one.preempting = True
            queue.keep_at_head(one)
        else:
            queue.dequeue(one)
            self._admit(one, tuple(entry.usage), tuple(entry.chosen))
            events.append((one, True))

    def _requeue(self, entry: Entry, root: Root) -> None:
        """Keep a workload at the head if flavors are left to try, else park it."""
        one = entry.workload
        one.preempting = False
        if entry.resumes:  # flavors are left that were not tried
            one.resumes = (root.generation, entry.resumes)
        else:
            one.resumes = (-1, {})
            one.queue.park(one)

    def _reserved_usage(self, entry: Entry) -> list[tuple[int, int]]:
        """Return the usage reserved in this cycle for a workload without targets.

        Its request, at most the unused own quota, plus the borrowing limit if it would borrow.
        """
        node = entry.workload.queue.node
        reserved = []
        for cell, amount in entry.usage:
            left = node.nominal[cell] - node.used[cell]
            limit = node.borrowing[cell]
            most = (amount if limit is None else left + limit) if entry.borrows else left
            reserved.append((cell, max(0, min(amount, most))))
        return reserved

    def _admit(self, one: QueuedWorkload, usage: Usage, chosen: tuple[str, ...]) -> None:
        """Admit a workload with its usage and flavors; number its admission."""
        self._admissions += 1
        one.usage, one.chosen, one.order = usage, chosen, self._admissions
        one.preempting = False
        one.queue.add_admitted(one)

    def _mark_dirty(self, root: Root) -> None:
        """Record freed quota at a root; parked workloads retry now or after the delay.

        Strict queues always retry now.
        """
        root.generation += 1
        root.dirty = True
        if not self._requeue_s:
            self._unpark(root)
            return
        for queue in root.queues:
            if queue.strict:
                queue.unpark()
            elif queue.has_parked:
                root.due_s = min(root.due_s, self._now_s + self._requeue_s)

    def _unpark(self, root: Root) -> None:
        """Let all queues of a root try their parked workloads again, and clear the delay."""
        root.due_s = inf
        root.dirty = True
        for queue in root.queues:
            queue.unpark()

    # -- order of entries
    # ----------------------------------------------------------------------------------------------

    def _ordered_entries(self, root: Root, entries: list[Entry]) -> Iterator[Entry]:
        """Yield entries in the order of processing, with or without fair sharing.

        Without: workloads with preempted targets first, then the least borrowing, then rank. With
        it: the lowest share first, computed again after each entry.
        """
        if len(entries) < 2 or not self.fair:
            yield from sorted(
                entries,
                key=lambda entry: (
                    not entry.workload.preempting,
                    entry.borrows,
                    *entry.workload.rank,
                ),
            )
            return
        left = {entry.workload.queue.node: entry for entry in entries}
        while left:
            entry = self._winner(root.node, left, self._shares(left.values()))
            del left[entry.workload.queue.node]
            yield entry

    def _shares(self, entries: Iterable[Entry]) -> dict[tuple[QuotaNode, int], BorrowedShare]:
        """Return the share of each node with a workload added, by (node, workload id).

        Covers the workload's queue and its ancestors below the root.
        """
        shares: dict[tuple[QuotaNode, int], BorrowedShare] = {}
        for entry in entries:
            node = entry.workload.queue.node
            node.add(entry.usage)
            for one in (node, *node.ancestors[:-1]):
                shares[one, entry.workload.id] = one.share()
            node.remove(entry.usage)
        return shares

    def _winner(
        self,
        node: QuotaNode,
        left: Mapping[QuotaNode, Entry],
        shares: Mapping[tuple[QuotaNode, int], BorrowedShare],
    ) -> Entry:
        """Return the entry with the lowest share; there must be one."""
        entry = self._tournament(node, left, shares)
        assert entry is not None
        return entry

    def _tournament(
        self,
        node: QuotaNode,
        left: Mapping[QuotaNode, Entry],
        shares: Mapping[tuple[QuotaNode, int], BorrowedShare],
    ) -> Entry | None:
        """Return the best entry below a node, or None.

        At each level the order is: not borrowing, the lowest share, the first rank.
        """
        if node in left:
            return left[node]
        best: Entry | None = None
        lowest: tuple[object, ...] = ()
        for child in node.children:
            entry = self._tournament(child, left, shares)
            if entry is None:
                continue
            share = shares[child, entry.workload.id]
            borrows = any(cell in share.borrowed for cell, _ in entry.usage)
            key = (borrows, share.key, entry.workload.rank)
            if best is None or key < lowest:
                best, lowest = entry, key
        return best

    # -- flavors
    # ----------------------------------------------------------------------------------------------

    def _assign_flavors(self, one: QueuedWorkload, root: Root) -> Entry:
        """Return an entry with the flavors and preemption targets of a workload.

        `fits` is False if a resource group has no flavor.
        """
        entry = Entry(one)
        generation, resumes = one.resumes
        target_cache = _TargetCache(self._preemptor, one, self._now_s)
        for at, (choices, requests) in enumerate(one.queue.group_requests(one.request)):
            first = resumes.get(at, 0) if generation == root.generation else 0
            best, last = self._best_flavor(one, choices[first:], requests, target_cache)
            if best is None:
                entry.fits = False
                return entry
            if first + last < len(choices) - 1:
                entry.resumes[at] = first + last + 1
            entry.usage += [(best.choice.cells[name], amount) for name, amount in requests]
            entry.chosen.append(best.choice.name)
            entry.short += best.short
            entry.borrows = max(entry.borrows, best.mode.borrows)
        if entry.short:
            entry.targets = target_cache.targets(entry.usage, entry.short)
        return entry

    def _best_flavor(
        self,
        one: QueuedWorkload,
        choices: list[FlavorChoice],
        requests: list[tuple[str, int]],
        target_cache: _TargetCache,
    ) -> tuple[FlavorAttempt | None, int]:
        """Return the best flavor attempt or None, and the index of the last flavor tried.

        The search stops at the first flavor that the fungibility rules accept.
        """
        rules = one.queue.config.fungibility
        best: FlavorAttempt | None = None
        last = 0
        for last, choice in enumerate(choices):
            if choice.name not in one.flavors:
                continue
            attempt = self._try_flavor(one, choice, requests, target_cache)
            mode = attempt.mode
            if mode.what > NO_CANDIDATES and not (
                (mode.what != FIT and rules.preempt == TRY_NEXT)
                or (mode.borrows and rules.borrow == TRY_NEXT)
            ):
                return attempt, last
            if is_preferred(mode, _WORST if best is None else best.mode, rules.preference):
                best = attempt
        return best, last

    def _try_flavor(
        self,
        one: QueuedWorkload,
        choice: FlavorChoice,
        requests: list[tuple[str, int]],
        target_cache: _TargetCache,
    ) -> FlavorAttempt:
        """Return a flavor's attempt: the worst outcome over the requested resources.

        It lists the cells without enough quota.
        """
        preference = one.queue.config.fungibility.preference
        worst, short = _BEST, []
        for name, amount in requests:
            cell = choice.cells[name]
            mode = self._cell_mode(one, cell, amount, target_cache)
            if is_preferred(worst, mode, preference):
                worst = mode
            if worst.what == NO_FIT:
                break
            if mode.what != FIT:
                short.append(cell)
        return FlavorAttempt(worst, choice, tuple(short))

    def _cell_mode(
        self, one: QueuedWorkload, cell: int, amount: int, target_cache: _TargetCache
    ) -> Mode:
        """Return the outcome of requesting an amount of one cell, from FIT to NO_FIT.

        Without available quota, it depends on the targets that preemption would find.
        """
        queue = one.queue
        node = queue.node
        if amount > queue.potential[cell]:
            return _WORST
        borrows, below_root = borrowing_level(node, cell, amount)
        if amount <= node.available(cell):
            return Mode(FIT, borrows)
        if not (
            amount <= node.nominal[cell] or below_root or self._preempts_while_borrowing(queue)
        ):
            return Mode(NO_FIT, borrows)
        targets = target_cache.targets([(cell, amount)], [cell])
        if not targets:
            return Mode(NO_CANDIDATES, borrows)
        for other in targets:
            other.queue.node.remove(other.usage)
        borrows, _ = borrowing_level(node, cell, amount)
        restore(targets)
        own = any(other.queue is queue for other in targets)
        return Mode(PREEMPT if own else RECLAIM, borrows)

    def _preempts_while_borrowing(self, queue: QueueState) -> bool:
        """Return True if a queue may preempt while it borrows.

        By borrowWithinCohort; under fair sharing by reclaimWithinCohort, too.
        """
        preemption = queue.config.preemption
        return preemption.borrow != NEVER or (self.fair and preemption.reclaim != NEVER)


class _TargetCache:
    """Preemption targets of a workload, cached by cell and amount."""

    def __init__(self, preemptor: Preemptor, one: QueuedWorkload, now_s: float) -> None:
        self._find: Callable[[Usage, list[int]], list[QueuedWorkload]] = lambda usage, short: (
            preemptor.targets(one, usage, frozenset(short), now_s)
        )
        self._cached: dict[tuple[tuple[int, int], ...], list[QueuedWorkload]] = {}
        self._preempts = one.queue.preempts

    def targets(self, usage: list[tuple[int, int]], short: list[int]) -> list[QueuedWorkload]:
        """Return the workloads to preempt for a usage; cached if it is of one cell.

        [] if the queue's policies allow no preemption.
        """
        if not self._preempts:
            return []
        key = tuple(usage)
        if len(key) > 1:
            return self._find(usage, short)
        if key not in self._cached:
            self._cached[key] = self._find(usage, short)
        return self._cached[key]


def is_preferred(mode: Mode, other: Mode, preference: str) -> bool:
    """Return True if outcome `mode` is strictly better than `other`.

    NO_FIT is worst, then NO_CANDIDATES. Else the better outcome counts, then less borrowing, or the
    reverse if preemption is preferred.
    """
    if NO_FIT in (mode.what, other.what):
        return mode.what != NO_FIT
    if (mode.what == NO_CANDIDATES) != (other.what == NO_CANDIDATES):
        return other.what == NO_CANDIDATES
    if preference == PREEMPTION_FIRST:
        return (-mode.borrows, mode.what) > (-other.borrows, other.what)
    return (mode.what, -mode.borrows) > (other.what, -other.borrows)


def borrowing_level(node: QuotaNode, cell: int, amount: int) -> tuple[int, bool]:
    """Return the height of the cohort lending an amount, and if it is below the root.

    It is the lowest subtree with enough quota, else the root; 0 if nothing is borrowed. The flag is
    also True for a queue within its own quota that has a parent.
    """
    if not node.borrows_with(cell, amount) or node.parent is None:
        return 0, node.parent is not None
    left = amount - node.free_local(cell)
    cohort = node
    for cohort in node.ancestors:
        if not cohort.borrows_with(cell, left):
            break
        left -= cohort.free_local(cell)
    return cohort.height, cohort.parent is not None
