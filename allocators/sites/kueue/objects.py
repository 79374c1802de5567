"""Kueue's API objects: cluster queues, cohorts, flavors and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

ANY, LOWER, NEWER_EQUAL, NEVER = "Any", "LowerPriority", "LowerOrNewerEqualPriority", "Never"
STRICT, BEST_EFFORT = "StrictFIFO", "BestEffortFIFO"
TRY_NEXT, BORROW, PREEMPT = "TryNextFlavor", "Borrow", "Preempt"
BORROWING_FIRST, PREEMPTION_FIRST = "BorrowingOverPreemption", "PreemptionOverBorrowing"
FINAL_SHARE, INITIAL_SHARE = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
RUNS, HOLD, DRAIN = "None", "Hold", "HoldAndDrain"


class FlavorQuota(NamedTuple):
    """Nominal quota, borrowing limit and lending limit of a resource of a flavor.

    Amounts are in the unit of the resource (cores, bytes, pieces); None = no limit.
    """

    nominal: Fraction
    borrowing: Fraction | None = None
    lending: Fraction | None = None


class FlavorQuotas(NamedTuple):
    """The quotas of one flavor, by resource."""

    flavor: str
    quotas: Mapping[str, FlavorQuota]


class ResourceGroup(NamedTuple):
    """A resource group: resources assigned from one flavor, and its flavors in order."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


class ResourceFlavor(NamedTuple):
    """A kind of nodes, with (key, value) pairs of its node labels."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


class LocalQueue(NamedTuple):
    """The queue of a namespace, which points to a cluster queue."""

    namespace: str
    name: str
    queue: str
    stop: str = RUNS


class PriorityClass(NamedTuple):
    """A named workload priority."""

    name: str
    value: int


class Preemption(NamedTuple):
    """Preemption policies: within the queue, reclaim in the cohort, and while borrowing."""

    within: str = NEVER
    reclaim: str = NEVER
    borrow: str = NEVER
    threshold: int | None = None


class Fungibility(NamedTuple):
    """Flavor fungibility: when the next flavor is tried instead of borrowing or preemption."""

    borrow: str = BORROW
    preempt: str = TRY_NEXT
    preference: str = BORROWING_FIRST


ONE: Final = Fraction(1)
NOBODY: Final = Preemption()
FIRST_THAT_DOES: Final = Fungibility()


@dataclass(frozen=True)
class ClusterQueue:
    """A queue with quotas; without a ``cohort`` it does not share them."""

    name: str
    cohort: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    strategy: str = BEST_EFFORT
    preemption: Preemption = NOBODY
    fungibility: Fungibility = FIRST_THAT_DOES
    weight: Fraction = ONE
    stop: str = RUNS
    selects: bool = True
    """Whether it has a namespaceSelector; without one Kueue admits no workloads."""


@dataclass(frozen=True)
class Cohort:
    """A group of queues and cohorts that lend to one another, with optional quotas."""

    name: str
    parent: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    weight: Fraction = ONE


@dataclass(frozen=True)
class KueueConfig:
    """All objects of a configuration.

    ``ignored`` lists the entries that are not simulated; it does not affect equality.
    """

    queues: tuple[ClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    flavors: tuple[ResourceFlavor, ...] = ()
    classes: tuple[PriorityClass, ...] = ()
    fair_sharing: bool = False
    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)
    ignored: tuple[str, ...] = field(default=(), compare=False)
