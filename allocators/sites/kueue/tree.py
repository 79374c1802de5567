"""The tree of quotas: what a queue may take, and how much more than its own it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil, inf
from typing import Final, NamedTuple

from allocators.sites.kueue.objects import ClusterQueue, Cohort, Config, Group
from sim.contract import ParameterError

MOST: Final = 1 << 62
Usage = Sequence[tuple[int, int]]
"""(cell, amount): amounts are whole numbers, of millicores for ``cpu``, else of the unit."""


class FlavorResource(NamedTuple):
    """A resource of a flavor."""

    flavor: str
    resource: str


def whole(resource: str, amount: Fraction) -> int:
    """Return an amount as the tree counts it, rounded up."""
    return ceil(amount * 1000) if resource == "cpu" else ceil(amount)


class BorrowedShare(NamedTuple):
    """How much a node borrows: of what others lend it, in thousandths, divided by its weight. A
    node of weight 0 that borrows comes after all others.
    """

    endless: bool
    value: float
    resource: str = ""
    borrowed: frozenset[int] = frozenset()

    @property
    def key(self) -> tuple[bool, float]:
        """What shares are compared by."""
        return self.endless, self.value

    @property
    def reported(self) -> float:
        """The whole number that Kueue's metrics show; inf for weight 0."""
        return inf if self.endless else float(ceil(self.value))


NO_SHARE: Final = BorrowedShare(False, 0.0)


class QuotaNode:
    """A queue or cohort: its quotas, and what is used below it.

    Lists are indexed by cell. ``nominal``, ``borrowing`` and ``lending`` are its own (None = no
    limit), ``subtree`` is what it and those below it own and lend upwards, ``local`` what it never
    lends, ``used`` what counts here: of children only what exceeds their ``local``. ``lent`` has
    for each resource its cells and what could be had of them below the parent at most; it is empty
    without a parent.
    """

    __slots__ = (
        "ancestors",
        "borrowing",
        "children",
        "height",
        "lending",
        "lent",
        "local",
        "name",
        "nominal",
        "parent",
        "subtree",
        "used",
        "weight",
    )

    def __init__(self, name: str, cells: int, weight: float = 1.0) -> None:
        self.name, self.weight = name, weight
        self.parent: QuotaNode | None = None
        self.children: list[QuotaNode] = []
        self.ancestors: tuple[QuotaNode, ...] = ()
        self.height = 0
        self.lent: list[tuple[str, Sequence[int], int]] = []
        self.nominal = [0] * cells
        self.borrowing: list[int | None] = [None] * cells
        self.lending: list[int | None] = [None] * cells
        self.subtree = [0] * cells
        self.local = [0] * cells
        self.used = [0] * cells

    def settle(self) -> None:
        """Compute what follows from the quotas, bottom up; call it on roots."""
        self.subtree = list(self.nominal)
        self.height = min(len(self.children), 1)
        for child in self.children:
            child.settle()
            if child.children:
                self.height = max(self.height, child.height + 1)
            for cell, amount in enumerate(child.subtree):
                self.subtree[cell] += amount - child.local[cell]
        if self.parent is not None:
            self.local = [
                0 if limit is None else max(0, amount - limit)
                for amount, limit in zip(self.subtree, self.lending, strict=True)
            ]

    def settle_paths(self, above: tuple[QuotaNode, ...] = ()) -> None:
        """Note the ancestors of all below, the nearest first; call it on roots."""
        self.ancestors = above
        for child in self.children:
            child.settle_paths((self, *above))

    def available(self, cell: int) -> int:
        """Return what can still be taken of a cell; below 0 where others took what is its own."""
        parent, used = self.parent, self.used[cell]
        if parent is None:
            return self.subtree[cell] - used
        local, above = self.local[cell], parent.available(cell)
        limit = self.borrowing[cell]
        if limit is not None:
            most = self.subtree[cell] - local - max(0, used - local) + limit
            above = min(above, most)
        return max(0, local - used) + above

    def potential(self, cell: int) -> int:
        """Return what could be taken of a cell if nothing were in use."""
        parent = self.parent
        if parent is None:
            return self.subtree[cell]
        most = self.local[cell] + parent.potential(cell)
        limit = self.borrowing[cell]
        return most if limit is None else min(most, self.subtree[cell] + limit)

    def add(self, usage: Usage) -> None:
        """Book usage here and above."""
        for cell, amount in usage:
            node: QuotaNode | None = self
            while node is not None and amount > 0:
                free = node.local[cell] - node.used[cell]
                node.used[cell] += amount
                if free > 0:
                    amount -= free  # noqa: PLW2901 - what goes further up
                node = node.parent

    def remove(self, usage: Usage) -> None:
        """Undo `add`."""
        for cell, amount in usage:
            node: QuotaNode | None = self
            while node is not None and amount > 0:
                above = node.used[cell] - node.local[cell]
                node.used[cell] -= amount
                amount = min(amount, above)  # noqa: PLW2901 - what is stored further up
                node = node.parent

    def free_here(self, cell: int) -> int:
        """Return what is left of what this node never lends."""
        return max(0, self.local[cell] - self.used[cell])

    def borrows_with(self, cell: int, amount: int) -> bool:
        """Tell whether it needs more than its own with an amount added."""
        return self.used[cell] + amount > self.subtree[cell]

    def is_within(self, cells: Iterable[int]) -> bool:
        """Tell whether it uses no more than its own in any of some cells."""
        return all(self.used[cell] <= self.subtree[cell] for cell in cells)

    def share(self) -> BorrowedShare:
        """Return its dominant share with respect to its parent."""
        highest, dominant = 0.0, ""
        borrowed: list[int] = []
        for resource, places, lendable in self.lent:
            over = 0
            for cell in places:
                amount = self.used[cell] - self.subtree[cell]
                if amount > 0:
                    over += amount
                    borrowed.append(cell)
            if over and lendable > 0 and over * 1000.0 / lendable > highest:
                highest, dominant = over * 1000.0 / lendable, resource
        if not borrowed:
            return NO_SHARE
        if not self.weight:
            return BorrowedShare(True, highest, dominant, frozenset(borrowed))
        return BorrowedShare(False, highest / self.weight, dominant, frozenset(borrowed))


class CohortTree:
    """All queues and cohorts of a configuration.

    Attributes
    ----------
    cells : dict
        Flavor and resource -> number.
    by_resource : dict
        Resource -> numbers of its cells, resources in alphabetical order.
    queues : dict
        Name -> node of a cluster queue.
    cohorts : dict
        Name -> node of a cohort, those that are only named among them.

    Raises
    ------
    ParameterError
        If a quota is too large to count with.
    """

    def __init__(self, config: Config) -> None:
        self.cells: dict[FlavorResource, int] = {}
        holders: tuple[ClusterQueue | Cohort, ...] = (*config.queues, *config.cohorts)
        for holder in holders:
            for group in holder.groups:
                for flavor in group.flavors:
                    for resource in group.resources:
                        self.cells.setdefault(
                            FlavorResource(flavor.flavor, resource), len(self.cells)
                        )
        resources: dict[str, list[int]] = {}
        for cell, number in self.cells.items():
            resources.setdefault(cell.resource, []).append(number)
        self.by_resource: Mapping[str, Sequence[int]] = dict(sorted(resources.items()))
        self.queues = {queue.name: self._node(queue) for queue in config.queues}
        self.cohorts = {cohort.name: self._node(cohort) for cohort in config.cohorts}
        for queue in config.queues:
            self._hang(self.queues[queue.name], queue.cohort)
        for cohort in config.cohorts:
            self._hang(self.cohorts[cohort.name], cohort.parent)
        self._settle()

    def _settle(self) -> None:
        nodes = (*self.queues.values(), *self.cohorts.values())
        for node in nodes:
            if node.parent is None:
                node.settle()
                node.settle_paths()
        for node in nodes:
            parent = node.parent
            if parent is not None:
                node.lent = [
                    (resource, places, sum([parent.potential(cell) for cell in places]))
                    for resource, places in self.by_resource.items()
                ]

    def _hang(self, node: QuotaNode, parent: str) -> None:
        if parent:
            if parent not in self.cohorts:
                self.cohorts[parent] = QuotaNode(parent, len(self.cells))
            node.parent = self.cohorts[parent]
            node.parent.children.append(node)

    def _node(self, holder: ClusterQueue | Cohort) -> QuotaNode:
        node = QuotaNode(holder.name, len(self.cells), float(holder.weight))
        for group in holder.groups:
            self._own(node, group)
        return node

    def _own(self, node: QuotaNode, group: Group) -> None:
        for flavor in group.flavors:
            for resource, quota in flavor.quotas.items():
                cell = self.cells[FlavorResource(flavor.flavor, resource)]
                amounts = [None if amount is None else whole(resource, amount) for amount in quota]
                if any(amount is not None and amount > MOST for amount in amounts):
                    raise ParameterError(
                        f"The quota of {resource} of flavor {flavor.flavor} in {node.name} is too"
                        " large to count with."
                    )
                nominal, node.borrowing[cell], node.lending[cell] = amounts
                node.nominal[cell] = nominal or 0
