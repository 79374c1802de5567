"""What a site configured: queues, cohorts, flavors and their quotas, as Kueue's objects say it."""

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
    """What a queue or cohort owns of a resource of a flavor, in the unit of the resource (cores,
    bytes, pieces); None = no limit on what it borrows or lends.
    """

    nominal: Fraction
    borrowing: Fraction | None = None
    lending: Fraction | None = None


class FlavorQuotas(NamedTuple):
    """The quotas of one flavor: resource -> quota."""

    flavor: str
    quotas: Mapping[str, FlavorQuota]


class Group(NamedTuple):
    """Resources that are given from one flavor together, and the flavors in the order in which they
    are tried.
    """

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


class ResourceFlavor(NamedTuple):
    """A kind of nodes: key and value of each label that they have."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


class LocalQueue(NamedTuple):
    """The name by which a namespace calls a cluster queue."""

    namespace: str
    name: str
    queue: str
    stop: str = RUNS


class PriorityClass(NamedTuple):
    """A priority with a name."""

    name: str
    value: int


class Preemption(NamedTuple):
    """Whom workloads of a queue may displace: in it, of others, and of others while borrowing."""

    within: str = NEVER
    reclaim: str = NEVER
    borrow: str = NEVER
    threshold: int | None = None


class Fungibility(NamedTuple):
    """When the next flavor is tried although one would do by borrowing, or by preemption."""

    borrow: str = BORROW
    preempt: str = TRY_NEXT
    preference: str = BORROWING_FIRST


ONE: Final = Fraction(1)
NOBODY: Final = Preemption()
FIRST_THAT_DOES: Final = Fungibility()


@dataclass(frozen=True)
class ClusterQueue:
    """A queue with quotas; ``cohort`` is "" where it shares with nobody."""

    name: str
    cohort: str = ""
    groups: tuple[Group, ...] = ()
    strategy: str = BEST_EFFORT
    preemption: Preemption = NOBODY
    fungibility: Fungibility = FIRST_THAT_DOES
    weight: Fraction = ONE
    stop: str = RUNS
    selects: bool = True
    """Whether it says which namespaces may use it; without that Kueue admits nobody."""


@dataclass(frozen=True)
class Cohort:
    """Queues and cohorts that lend to one another, perhaps with quotas of its own."""

    name: str
    parent: str = ""
    groups: tuple[Group, ...] = ()
    weight: Fraction = ONE


@dataclass(frozen=True)
class Config:
    """All objects; ``ignored`` lists what was not read, each with its place, and is no part of the
    value.
    """

    queues: tuple[ClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    flavors: tuple[ResourceFlavor, ...] = ()
    classes: tuple[PriorityClass, ...] = ()
    fair_sharing: bool = False
    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)
    ignored: tuple[str, ...] = field(default=(), compare=False)
