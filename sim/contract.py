"""The contract between simulator and allocators: one method, ``allocate(view) -> Plan``. Read this
first.

An allocator is a dataclass. Its fields declared with `param` are its parameters, its other state is
``field(init=False, repr=False)``. It is asked when its `Cadence` says so, sees the world through a
`View` that is valid only during the call, and answers with a `Plan` of changes. The simulator
validates the plan and applies it, releases first; it never repairs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, runtime_checkable

from sim.clock import LATEST_S, STEP_S, instant, later
from sim.cluster import Node
from sim.errors import ContractError, ParameterError, SolverError
from sim.grants import Delta, Demand, Eviction, Gang, Grant, JobId, NodePool, Part, Shape, Tuning
from sim.hosts import hosts_of
from sim.params import ParamInfo, Spec, build, did_you_mean, is_file_text, param, parameters
from sim.reasons import Decided, Reason, Value
from sim.rules import QueueRule
from sim.seen import Estimates, Floats, FreeResources, Ints, JobTable, Resources, Telemetry, View

__all__ = [
    "EMPTY",
    "LATEST_S",
    "READS",
    "REQUIRES",
    "STEP_S",
    "Allocator",
    "Cadence",
    "Card",
    "ContractError",
    "Decided",
    "Delta",
    "Demand",
    "Estimates",
    "Eviction",
    "Floats",
    "FreeResources",
    "Gang",
    "Grant",
    "Ints",
    "JobId",
    "JobTable",
    "Needs",
    "Node",
    "NodePool",
    "ParamInfo",
    "ParameterError",
    "Part",
    "Plan",
    "QueueRule",
    "Reason",
    "Resources",
    "Shape",
    "SolverError",
    "Spec",
    "Telemetry",
    "Tuning",
    "Value",
    "View",
    "build",
    "did_you_mean",
    "hosts_of",
    "inf",
    "instant",
    "is_file_text",
    "later",
    "param",
    "parameters",
    "remarks_of",
    "rule_of",
]

READS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "remaining_work": "estimated work left of each job, and whether it can be estimated yet",
        "rates": "estimated work per second under a grant, or under a shape before placement",
        "pause": "estimated seconds without progress that a change would cost",
        "resources": "cores and memory that a job is estimated to use",
        "telemetry": "measurements of running jobs",
        "recorded_start": "start times and GPU types that the trace recorded",
    }
)
"""Word of `Needs.reads` -> what the view opens to an allocator that declares it."""
REQUIRES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "scaling": "jobs can be resized: the performance model has rates for other sizes",
        "profile": "a measured performance profile",
        "servers": "jobs are made of workers and parameter servers",
        "forks": "a job may hold several gangs, copies of it; the performance model prices them",
        "overflow": "one more node, unlimited and without price, beyond the cluster",
    }
)
"""Word of `Needs.requires` -> what the trace, the performance model or the simulator must offer."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an allocator needs beyond the public columns and whole gangs; most need nothing.

    Parameters
    ----------
    reads : frozenset of str
        Words of `READS`; the view answers nothing of this kind that is not declared.
    requires : frozenset of str
        Words of `REQUIRES`.
    confine_by : str
        "vc" or "partition": a job stays on the nodes of its own, and on nodes that belong to none;
        "" = jobs may use all nodes.
    mixes_types : bool
        Whether one gang may span GPU types; if not, a job that fits no single type is impossible.

    Raises
    ------
    ContractError
        If a word is unknown, or if needs are joined that confine jobs by different columns.
    """

    reads: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    confine_by: str = ""
    mixes_types: bool = False

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        unknown = (self.reads - READS.keys()) | (self.requires - REQUIRES.keys())
        if self.confine_by not in {"", "vc", "partition"}:
            unknown |= {self.confine_by}
        if unknown:
            raise ContractError(f"The allocator has unknown needs: {', '.join(sorted(unknown))}.")

    def __or__(self, other: Needs) -> Needs:
        """Join the needs of two allocators that share a run."""
        if self.confine_by and other.confine_by not in {"", self.confine_by}:
            raise ContractError(
                "Jobs cannot be confined by virtual cluster and by partition at once. Choose one of"
                " them for all allocators of the run."
            )
        return Needs(
            self.reads | other.reads,
            self.requires | other.requires,
            self.confine_by or other.confine_by,
            self.mixes_types or other.mixes_types,
        )


_NO_CHANGES: Final[Mapping[JobId, Grant | None]] = MappingProxyType({})
_NO_NOTES: Final[Mapping[str, float]] = MappingProxyType({})


class Plan(NamedTuple):
    """The changes to make; jobs that are not mentioned stay as they are.

    Parameters
    ----------
    changes : mapping
        Job -> new grant, or None to stop it (it waits again).
    refuse : frozenset of int
        Waiting jobs that will never be run, or never again: these have failed.
    wake_at_s : float, seconds
        Ask again at the instant nearest to this; replaces the previous wake-up; inf = none.
        Moved to the next instant, 1 us from now, if it is not after now. After `LATEST_S` is never.
    notes : mapping
        Numbers for the record and the UI: objective, gap, price.
    seamless : frozenset of int
        Running jobs that keep running on their old nodes until they have moved; other moved jobs
        are stopped and restarted at once, and their old nodes are free for the rest of the plan.
        One that is stopped is suspended: it loses nothing, and given the same grant again it goes
        on at once. What it still holds of its nodes, such as memory, is the policy's to keep free.
    ended : frozenset of int
        Running jobs that are ended for good before they are done, e.g. at a time limit: their
        outcome is "failed". Their nodes are free for the rest of the plan. One that `changes`
        stops, too, counts as preempted.
    """

    changes: Mapping[JobId, Grant | None] = _NO_CHANGES
    refuse: frozenset[JobId] = frozenset()
    wake_at_s: float = inf
    notes: Mapping[str, float] = _NO_NOTES
    seamless: frozenset[JobId] = frozenset()
    ended: frozenset[JobId] = frozenset()

    @classmethod
    def reach(
        cls,
        view: View,
        target: Mapping[JobId, Grant],
        *,
        wake_at_s: float = inf,
        notes: Mapping[str, float] = _NO_NOTES,
    ) -> Plan:
        """Build the plan that leads from what is running to a full target: jobs that are running
        and not in it are stopped.
        """
        changes: dict[JobId, Grant | None] = {job: None for job in view.grants if job not in target}
        grants = view.grants
        changes |= {job: grant for job, grant in target.items() if grants.get(job) != grant}
        return cls(changes, wake_at_s=wake_at_s, notes=notes)


EMPTY: Final = Plan()
"""The plan that changes nothing; shared, so that a decision without consequence costs nothing."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """When an allocator is called: after arrivals, after a job has ended or lost its GPUs, after
    nodes came or went, and periodically.
    """

    on_arrival: bool = True
    on_finish: bool = True
    on_capacity: bool = True
    every_s: float = inf


@dataclass(frozen=True, slots=True)
class Card:
    """What the user interface, the documentation and the command line say of an allocator.

    Parameters
    ----------
    title : str
        Its usual name.
    what, cost : str
        One sentence each: how it decides, and at whose expense.
    limits : str
        What it cannot do.
    source : str
        Paper or system, with section where known.
    certainty : str
        "exact" if the rule is fully published, else "our reading" and of what.
    goals : tuple of str
        Of "short waits", "fairness", "deadlines", "heterogeneous", "elastic", "baseline", the main
        one first: lists of policies are grouped by it.
    how : tuple of str
        How it decides under its defaults, in three to five short sentences.
    brief : str
        The rule in at most nine words, without a full stop: what lists of policies show.
    """

    title: str
    what: str
    cost: str
    limits: str
    source: str
    certainty: str
    goals: tuple[str, ...] = ()
    how: tuple[str, ...] = ()
    brief: str = ""


class Allocator(Protocol):
    """The base of all policies: decides which jobs get which nodes, from now on.

    `remarks() -> tuple[str, ...]` is optional and returns sentences for the user: before a run on
    what will differ here (a solver that is not installed), after a run on what happened in it.

    `rule() -> QueueRule | None` is optional and returns what the policy does with its parameters as
    a value, if that is the rule of a queue; a run may then follow the rule instead of asking the
    policy, and must come out the same.
    """

    @property
    def cadence(self) -> Cadence:
        """When to ask; unless a policy says otherwise, after every event."""
        return Cadence()

    @property
    def needs(self) -> Needs:
        """What it needs beyond the public columns; unless a policy says otherwise, nothing."""
        return Needs()

    @property
    def card(self) -> Card:
        """What users read about it."""
        ...

    def allocate(self, view: View, /) -> Plan:
        """Return the changes to make at this instant; deterministic but for `View.rng`, ties broken
        by job id.
        """
        ...

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Return why a job waits, right after the decision that left it waiting.

        It may look at the view and at what the policy knows, but must change neither, so that a
        run in which it is called is the run in which it is not. None = no reason of its own.
        """
        del decided, job
        return None


@runtime_checkable
class Remarking(Protocol):
    """An allocator with remarks for the user."""

    def remarks(self) -> tuple[str, ...]:
        """Return sentences, see `Allocator`."""
        ...


@runtime_checkable
class Ruled(Protocol):
    """An allocator that may state its rule."""

    def rule(self) -> QueueRule | None:
        """Return the rule, see `Allocator`."""
        ...


def rule_of(allocator: Allocator) -> QueueRule | None:
    """Return the rule of an allocator, if it states one; most do not."""
    return allocator.rule() if isinstance(allocator, Ruled) else None


def remarks_of(allocator: Allocator) -> tuple[str, ...]:
    """Return the remarks of an allocator for the user; most have none."""
    return allocator.remarks() if isinstance(allocator, Remarking) else ()
