"""The quota tree of Kueue: available quota, borrowing, and dominant shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil, inf
from typing import Final, NamedTuple

from allocators.sites.kueue.objects import ClusterQueue, Cohort, KueueConfig, ResourceGroup
from sim.contract import ParameterError

MAX_AMOUNT: Final = 1 << 62
Usage = Sequence[tuple[int, int]]
"""(cell, amount) pairs: whole numbers, in millicores for ``cpu``, else in the unit."""


class FlavorResource(NamedTuple):
    """A resource of a flavor; the key of a cell."""

    flavor: str
    resource: str


def to_quota_units(resource: str, amount: Fraction) -> int:
    """Return an amount in the units of the tree (millicores for ``cpu``), rounded up."""
    return ceil(amount * 1000) if resource == "cpu" else ceil(amount)


class BorrowedShare(NamedTuple):
    """The weighted dominant share that a node borrows, in thousandths of the lendable quota.

    A node of weight 0 that borrows (`endless`) sorts after all others.
    """

    endless: bool
    value: float
    resource: str = ""
    borrowed: frozenset[int] = frozenset()

    @property
    def key(self) -> tuple[bool, float]:
        """Sort key of shares."""
        return self.endless, self.value

    @property
    def reported(self) -> float:
        """The integer in Kueue's metrics; inf for weight 0."""
        return inf if self.endless else float(ceil(self.value))


NO_SHARE: Final = BorrowedShare(False, 0.0)


class QuotaNode:
    """A queue or cohort with its quotas and usage.

    Lists are indexed by cell. ``nominal``, ``borrowing`` and ``lending`` are its own quotas (None =
    no limit). ``subtree`` is its quota plus the quotas that its children lend. ``local`` is the
    part that it never lends. ``used`` is its usage; of children it includes only usage above their
    ``local``. ``lent`` lists each resource with its cells and the potential below the parent; it is
    empty without a parent.
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

    def compute_quotas(self) -> None:
        """Compute height, subtree and local quotas, bottom up; call it on roots."""
        self.subtree = list(self.nominal)
        self.height = min(len(self.children), 1)
        for child in self.children:
            child.compute_quotas()
            if child.children:
                self.height = max(self.height, child.height + 1)
            for cell, amount in enumerate(child.subtree):
                self.subtree[cell] += amount - child.local[cell]
        if self.parent is not None:
            self.local = [
                0 if limit is None else max(0, amount - limit)
                for amount, limit in zip(self.subtree, self.lending, strict=True)
            ]

    def compute_ancestors(self, above: tuple[QuotaNode, ...] = ()) -> None:
        """Set the ancestors of all descendants, nearest first; call it on roots."""
        self.ancestors = above
        for child in self.children:
            child.compute_ancestors((self, *above))

    def available(self, cell: int) -> int:
        """Return the quota of a cell left for the node, with its borrowable quota.

        Negative if others borrowed its own quota.
        """
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
        """Return the quota of a cell, with borrowing, that would be available without usage."""
        parent = self.parent
        if parent is None:
            return self.subtree[cell]
        most = self.local[cell] + parent.potential(cell)
        limit = self.borrowing[cell]
        return most if limit is None else min(most, self.subtree[cell] + limit)

    def add(self, usage: Usage) -> None:
        """Add usage; the part above the local quota is added at the ancestors too."""
        for cell, amount in usage:
            node: QuotaNode | None = self
            while node is not None and amount > 0:
                free = node.local[cell] - node.used[cell]
                node.used[cell] += amount
                if free > 0:
                    amount -= free  # noqa: PLW2901 - the rest goes to the parent
                node = node.parent

    def remove(self, usage: Usage) -> None:
        """Subtract usage here and at the ancestors; the reverse of `add`."""
        for cell, amount in usage:
            node: QuotaNode | None = self
            while node is not None and amount > 0:
                above = node.used[cell] - node.local[cell]
                node.used[cell] -= amount
                amount = min(amount, above)  # noqa: PLW2901 - the rest is booked at the parent
                node = node.parent

    def free_local(self, cell: int) -> int:
        """Return the unused part of the local quota of a cell."""
        return max(0, self.local[cell] - self.used[cell])

    def borrows_with(self, cell: int, amount: int) -> bool:
        """Return True if the node borrows once an amount is added."""
        return self.used[cell] + amount > self.subtree[cell]

    def is_within_quota(self, cells: Iterable[int]) -> bool:
        """Return True if usage is within the subtree quota in all of some cells."""
        return all(self.used[cell] <= self.subtree[cell] for cell in cells)

    def share(self) -> BorrowedShare:
        """Return the largest part of a resource's lendable quota that the node borrows.

        It is in thousandths, divided by the weight of the node. The result names the resource and
        all borrowed cells.
        """
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
    """The tree of all cluster queues and cohorts of a configuration.

    Attributes
    ----------
    cells : dict
        Number of each cell, by flavor and resource.
    by_resource : dict
        Numbers of the cells of each resource, resources in alphabetical order.
    queues : dict
        Node of each cluster queue, by name.
    cohorts : dict
        Node of each cohort, by name; includes cohorts that are only referenced.

    Raises
    ------
    ParameterError
        If a quota is too large to count with.
    """

    def __init__(self, config: KueueConfig) -> None:
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
        self.queues = {queue.name: self._build_node(queue) for queue in config.queues}
        self.cohorts = {cohort.name: self._build_node(cohort) for cohort in config.cohorts}
        for queue in config.queues:
            self._attach(self.queues[queue.name], queue.cohort)
        for cohort in config.cohorts:
            self._attach(self.cohorts[cohort.name], cohort.parent)
        self._compute_nodes()

    def _compute_nodes(self) -> None:
        """Compute quotas and ancestors of all nodes, and `lent` of nodes with a parent."""
        nodes = (*self.queues.values(), *self.cohorts.values())
        for node in nodes:
            if node.parent is None:
                node.compute_quotas()
                node.compute_ancestors()
        for node in nodes:
            parent = node.parent
            if parent is not None:
                node.lent = [
                    (resource, places, sum([parent.potential(cell) for cell in places]))
                    for resource, places in self.by_resource.items()
                ]

    def _attach(self, node: QuotaNode, parent: str) -> None:
        """Make a node the child of a named cohort, created if undefined; "" = no parent."""
        if parent:
            if parent not in self.cohorts:
                self.cohorts[parent] = QuotaNode(parent, len(self.cells))
            node.parent = self.cohorts[parent]
            node.parent.children.append(node)

    def _build_node(self, holder: ClusterQueue | Cohort) -> QuotaNode:
        """Return a node with the quotas and weight of a cluster queue or cohort."""
        node = QuotaNode(holder.name, len(self.cells), float(holder.weight))
        for group in holder.groups:
            self._set_quotas(node, group)
        return node

    def _set_quotas(self, node: QuotaNode, group: ResourceGroup) -> None:
        """Set the quotas of a resource group at a node; raise an error if too large."""
        for flavor in group.flavors:
            for resource, quota in flavor.quotas.items():
                cell = self.cells[FlavorResource(flavor.flavor, resource)]
                amounts = [
                    None if amount is None else to_quota_units(resource, amount) for amount in quota
                ]
                if any(amount is not None and amount > MAX_AMOUNT for amount in amounts):
                    raise ParameterError(
                        f"The quota of {resource} of flavor {flavor.flavor} in {node.name} is too"
                        " large to count with."
                    )
                nominal, node.borrowing[cell], node.lending[cell] = amounts
                node.nominal[cell] = nominal or 0
