"""Kueue's scheduling cycle: the heads of all queues, the flavors for each, and who is admitted. It
knows neither view nor plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from allocators.sites.kueue.objects import ANY, NEVER, PREEMPTION_FIRST, TRY_NEXT, Config
from allocators.sites.kueue.queueing import FlavorChoice, QueuedWorkload, QueueState
from allocators.sites.kueue.targets import Preemptor, fits, restore
from allocators.sites.kueue.tree import BorrowedShare, CohortTree, QuotaNode, Usage

NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = range(5)
"""What a flavor can do for a workload, the worst first."""
_FARTHEST: Final = 1 << 30


class Mode(NamedTuple):
    """What can be done, and from how far up quota is borrowed: 0 = nothing is."""

    what: int
    borrows: int


_WORST: Final = Mode(NO_FIT, _FARTHEST)
_BEST: Final = Mode(FIT, 0)


class Tried(NamedTuple):
    """One flavor: what it can do, and of which cells too little is available."""

    mode: Mode
    choice: FlavorChoice
    short: tuple[int, ...]


@dataclass(slots=True)
class Entry:
    """The head of a queue in a cycle, and the flavors found for it."""

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
    """A tree of cohorts, or a queue without one: decisions in one have no effect on another.

    Attributes
    ----------
    generation : int
        Grows whenever quota comes free.
    dirty : bool
        Whether a cycle may have an effect.
    due_s : float
        When workloads that did not fit have a chance again.
    """

    node: QuotaNode
    queues: list[QueueState]
    generation: int = 0
    dirty: bool = False
    due_s: float = inf


class Scheduler:
    """All queues of a configuration.

    Parameters
    ----------
    config : Config
        The objects.
    fair : bool
        Whether shares decide whose turn it is and who is displaced.
    requeue_s : float
        How long after quota came free the workloads that did not fit have a chance again; those of
        strict queues have it at once.
    """

    def __init__(self, config: Config, *, fair: bool, requeue_s: float = 0.0) -> None:
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

    # -- what happens
    # ----------------------------------------------------------------------------------------------

    def submit(self, one: QueuedWorkload) -> None:
        """Let a workload wait for quota."""
        if one.queue.wait(one):
            self._root_of[one.queue].dirty = True

    def withdraw(self, one: QueuedWorkload) -> None:
        """Take a workload out, whether it waits or holds quota."""
        one.queue.leave(one)
        if one.order:
            self.release(one)

    def begin(self, now_s: float) -> None:
        """Note the time, before anything else at an instant."""
        self._now_s = now_s

    @property
    def wake_s(self) -> float:
        """When workloads have a chance again next."""
        return min([root.due_s for root in self.roots])

    def release(self, one: QueuedWorkload) -> None:
        """Free the quota of a workload."""
        one.queue.node.remove(one.usage)
        one.queue.free(one)
        one.usage, one.chosen, one.order = (), (), 0
        self._stir(self._root_of[one.queue])

    def book(self, one: QueuedWorkload, usage: Usage, chosen: Iterable[str]) -> None:
        """Give quota to a workload, whether there is any or not: it runs already."""
        one.queue.leave(one)
        one.queue.node.add(usage)
        self._hold(one, tuple(usage), tuple(chosen))

    def can_ever(self, one: QueuedWorkload) -> bool:
        """Tell whether its queue could ever admit a workload."""
        potential = one.queue.potential
        return all(
            any(
                choice.name in one.flavors
                and all(amount <= potential[choice.cells[name]] for name, amount in wanted)
                for choice in choices
            )
            for choices, wanted in one.queue.wanted(one.request)
        )

    def run(self) -> list[tuple[QueuedWorkload, bool]]:
        """Make cycles until nothing changes any more.

        Returns
        -------
        list of (Workload, bool)
            Who was admitted (True) and who displaced (False), in order.
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
        """Look at the head of each queue once; tell whether there were any."""
        heads = [head for queue in root.queues if (head := queue.head()) is not None]
        if not heads:
            return False
        entries: list[Entry] = []
        for head in heads:
            entry = self._nominate(head, root)
            if entry.fits:
                entries.append(entry)
            else:
                self._put_off(entry, root)
        booked: list[tuple[QuotaNode, Usage]] = []
        displaced: list[QueuedWorkload] = []
        for entry in self._in_order(root, entries):
            self._process(entry, root, booked, displaced, events)
        for node, usage in reversed(booked):
            node.remove(usage)
        for victim in displaced:
            self.release(victim)
            victim.displaced_s = self._now_s
            events.append((victim, False))
            self.submit(victim)
        return True

    def _process(
        self,
        entry: Entry,
        root: Root,
        booked: list[tuple[QuotaNode, Usage]],
        displaced: list[QueuedWorkload],
        events: list[tuple[QueuedWorkload, bool]],
    ) -> None:
        one = entry.workload
        queue, node = one.queue, one.queue.node
        if entry.short and not entry.targets:
            if queue.config.preemption.reclaim != ANY:  # else what it owns can be had at any time
                kept = self._reserved(entry)
                node.add(kept)
                booked.append((node, kept))
            self._put_off(entry, root)
            return
        one.resumes = (-1, {})
        if any(target in displaced for target in entry.targets):
            return
        gone = [*displaced, *entry.targets]
        for other in gone:
            other.queue.node.remove(other.usage)
        enough = fits(node, entry.usage, borrow=True)
        restore(gone)
        if not enough:
            return
        node.add(entry.usage)
        if entry.targets:
            booked.append((node, entry.usage))
            displaced += entry.targets
            one.preempting = True
            queue.stick(one)
        else:
            queue.leave(one)
            self._hold(one, tuple(entry.usage), tuple(entry.chosen))
            events.append((one, True))

    def _put_off(self, entry: Entry, root: Root) -> None:
        one = entry.workload
        one.preempting = False
        if entry.resumes:  # flavors are left that were not tried
            one.resumes = (root.generation, entry.resumes)
        else:
            one.resumes = (-1, {})
            one.queue.park(one)

    def _reserved(self, entry: Entry) -> list[tuple[int, int]]:
        """Return what is kept in this cycle for a workload that waits for its own quota."""
        node = entry.workload.queue.node
        kept = []
        for cell, amount in entry.usage:
            left = node.nominal[cell] - node.used[cell]
            limit = node.borrowing[cell]
            most = (amount if limit is None else left + limit) if entry.borrows else left
            kept.append((cell, max(0, min(amount, most))))
        return kept

    def _hold(self, one: QueuedWorkload, usage: Usage, chosen: tuple[str, ...]) -> None:
        self._admissions += 1
        one.usage, one.chosen, one.order = usage, chosen, self._admissions
        one.preempting = False
        one.queue.hold(one)

    def _stir(self, root: Root) -> None:
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
        root.due_s = inf
        root.dirty = True
        for queue in root.queues:
            queue.unpark()

    # -- whose turn it is
    # ----------------------------------------------------------------------------------------------

    def _in_order(self, root: Root, entries: list[Entry]) -> Iterator[Entry]:
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
        """Return the shares that nodes would have with a workload admitted: (node, workload) ->
        share.
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
        found = self._tournament(node, left, shares)
        assert found is not None
        return found

    def _tournament(
        self,
        node: QuotaNode,
        left: Mapping[QuotaNode, Entry],
        shares: Mapping[tuple[QuotaNode, int], BorrowedShare],
    ) -> Entry | None:
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

    def _nominate(self, one: QueuedWorkload, root: Root) -> Entry:
        """Find the flavors of a workload, and whom it displaces."""
        entry = Entry(one)
        generation, resumes = one.resumes
        asked = _Asked(self._preemptor, one, self._now_s)
        for at, (choices, wanted) in enumerate(one.queue.wanted(one.request)):
            first = resumes.get(at, 0) if generation == root.generation else 0
            best, last = self._best(one, choices[first:], wanted, asked)
            if best is None:
                entry.fits = False
                return entry
            if first + last < len(choices) - 1:
                entry.resumes[at] = first + last + 1
            entry.usage += [(best.choice.cells[name], amount) for name, amount in wanted]
            entry.chosen.append(best.choice.name)
            entry.short += best.short
            entry.borrows = max(entry.borrows, best.mode.borrows)
        if entry.short:
            entry.targets = asked.targets(entry.usage, entry.short)
        return entry

    def _best(
        self,
        one: QueuedWorkload,
        choices: list[FlavorChoice],
        wanted: list[tuple[str, int]],
        asked: _Asked,
    ) -> tuple[Tried | None, int]:
        """Return the best flavor, and the number of the last one that was tried."""
        rules = one.queue.config.fungibility
        best: Tried | None = None
        last = 0
        for last, choice in enumerate(choices):
            if choice.name not in one.flavors:
                continue
            tried = self._try(one, choice, wanted, asked)
            mode = tried.mode
            if mode.what > NO_CANDIDATES and not (
                (mode.what != FIT and rules.preempt == TRY_NEXT)
                or (mode.borrows and rules.borrow == TRY_NEXT)
            ):
                return tried, last
            if preferred(mode, _WORST if best is None else best.mode, rules.preference):
                best = tried
        return best, last

    def _try(
        self,
        one: QueuedWorkload,
        choice: FlavorChoice,
        wanted: list[tuple[str, int]],
        asked: _Asked,
    ) -> Tried:
        preference = one.queue.config.fungibility.preference
        worst, short = _BEST, []
        for name, amount in wanted:
            cell = choice.cells[name]
            mode = self._mode(one, cell, amount, asked)
            if preferred(worst, mode, preference):
                worst = mode
            if worst.what == NO_FIT:
                break
            if mode.what != FIT:
                short.append(cell)
        return Tried(worst, choice, tuple(short))

    def _mode(self, one: QueuedWorkload, cell: int, amount: int, asked: _Asked) -> Mode:
        queue = one.queue
        node = queue.node
        if amount > queue.potential[cell]:
            return _WORST
        borrows, below_root = borrowed_from(node, cell, amount)
        if amount <= node.available(cell):
            return Mode(FIT, borrows)
        if not (
            amount <= node.nominal[cell] or below_root or self._preempts_while_borrowing(queue)
        ):
            return Mode(NO_FIT, borrows)
        targets = asked.targets([(cell, amount)], [cell])
        if not targets:
            return Mode(NO_CANDIDATES, borrows)
        for other in targets:
            other.queue.node.remove(other.usage)
        borrows, _ = borrowed_from(node, cell, amount)
        restore(targets)
        own = any(other.queue is queue for other in targets)
        return Mode(PREEMPT if own else RECLAIM, borrows)

    def _preempts_while_borrowing(self, queue: QueueState) -> bool:
        preemption = queue.config.preemption
        return preemption.borrow != NEVER or (self.fair and preemption.reclaim != NEVER)


class _Asked:
    """Whom a workload displaces, asked for several cells; equal questions are answered once."""

    def __init__(self, preemptor: Preemptor, one: QueuedWorkload, now_s: float) -> None:
        self._find: Callable[[Usage, list[int]], list[QueuedWorkload]] = lambda usage, short: (
            preemptor.targets(one, usage, frozenset(short), now_s)
        )
        self._known: dict[tuple[tuple[int, int], ...], list[QueuedWorkload]] = {}
        self._preempts = one.queue.preempts

    def targets(self, usage: list[tuple[int, int]], short: list[int]) -> list[QueuedWorkload]:
        """Return whom it displaces."""
        if not self._preempts:
            return []
        key = tuple(usage)
        if len(key) > 1:
            return self._find(usage, short)
        if key not in self._known:
            self._known[key] = self._find(usage, short)
        return self._known[key]


def preferred(mode: Mode, other: Mode, preference: str) -> bool:
    """Tell whether a mode is better than another one."""
    if NO_FIT in (mode.what, other.what):
        return mode.what != NO_FIT
    if (mode.what == NO_CANDIDATES) != (other.what == NO_CANDIDATES):
        return other.what == NO_CANDIDATES
    if preference == PREEMPTION_FIRST:
        return (-mode.borrows, mode.what) > (-other.borrows, other.what)
    return (mode.what, -mode.borrows) > (other.what, -other.borrows)


def borrowed_from(node: QuotaNode, cell: int, amount: int) -> tuple[int, bool]:
    """Return the height of the lowest subtree whose own quota suffices for an amount more, that of
    the whole tree if none does, and whether it is smaller than the whole tree.
    """
    if not node.borrows_with(cell, amount) or node.parent is None:
        return 0, node.parent is not None
    left = amount - node.free_here(cell)
    cohort = node
    for cohort in node.ancestors:
        if not cohort.borrows_with(cell, left):
            break
        left -= cohort.free_here(cell)
    return cohort.height, cohort.parent is not None
