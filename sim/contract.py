"""The contract between simulator and policies: ``allocate(view) -> Plan``. Start here.

An allocator is a dataclass. Fields declared with `param` are its parameters; other state is
``field(init=False, repr=False)``. The simulator calls it as its `Cadence` states and passes a
`View` that is valid only during the call. It validates the returned `Plan` and applies it, releases
first; it never repairs one.

Order within one instant: arrivals, job events, ticks and wake-ups as they were scheduled; nodes
that fail or return; a delayed plan; the decision; the horizon.
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
from sim.host_lists import expand_hosts
from sim.params import ParamInfo, Spec, build, did_you_mean, is_file_text, param, parameters
from sim.queue_rules import QueueRule
from sim.reasons import Decided, Reason, Value
from sim.view import Estimates, Floats, FreeResources, Ints, JobTable, Resources, Telemetry, View

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
    "expand_hosts",
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
"""Word of `Needs.reads` -> the data that the view then gives to the allocator."""
REQUIRES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "scaling": "jobs can be resized: the performance model has rates for other sizes",
        "profile": "a measured performance profile",
        "servers": "jobs are made of workers and parameter servers",
        "forks": "a job may hold several gangs, copies of it; the performance model prices them",
        "overflow": "one more node, unlimited and without price, beyond the cluster",
    }
)
"""Word of `Needs.requires` -> the feature that trace, performance model or simulator must have."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The view methods, trace columns and simulator features that an allocator needs.

    ``a | b`` combines the needs of two allocators that share a run.

    Parameters
    ----------
    reads : frozenset of str
        Words of `READS`; the view refuses reads that are not declared.
    requires : frozenset of str
        Words of `REQUIRES`.
    confine_by : str
        "vc" or "partition": a job may use nodes of its vc or partition, and nodes without any;
        "" = all nodes.
    mixes_types : bool
        Whether one gang may span GPU types; else a job that fits no single type is impossible.

    Raises
    ------
    ContractError
        If a word is unknown, or two joined needs confine jobs by different columns.
    """

    reads: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    confine_by: str = ""
    mixes_types: bool = False

    def __post_init__(self) -> None:
        """Refuse words that are not in `READS` or `REQUIRES`."""
        unknown = (self.reads - READS.keys()) | (self.requires - REQUIRES.keys())
        if self.confine_by not in {"", "vc", "partition"}:
            unknown |= {self.confine_by}
        if unknown:
            raise ContractError(f"The allocator has unknown needs: {', '.join(sorted(unknown))}.")

    def __or__(self, other: Needs) -> Needs:
        """Return the union of the needs of two allocators that share a run."""
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
    """The changes to make; jobs that are not mentioned keep their grants.

    With a decision latency the plan applies later, without changes whose job or nodes have changed
    since. A job to resize then keeps its grant, without a report. A job to start is reported as
    evicted, cause "void".

    Parameters
    ----------
    changes : mapping
        Job -> new grant, or None to stop it (it waits again).
    refuse : frozenset of int
        Waiting jobs that will not run again: "refused", or "failed" if they ran before.
    wake_at_s : float, seconds
        Next call, at the nearest instant; replaces the previous wake-up; inf = none. A time that
        is not after now becomes the next instant, 1 us later; one after `LATEST_S` never comes.
    notes : mapping
        Numbers for the record and the UI: objective, gap, price.
    seamless : frozenset of int
        Running jobs that run on their old nodes until they have moved; the plan may use the old
        nodes of other moved jobs. A seamless job that is stopped is suspended: it loses no work.
        It resumes at once under an equal grant, and with a restart under another one. The policy
        must keep free what a suspended job still uses of its nodes, such as memory.
    ended : frozenset of int
        Running jobs to end for good as "failed", e.g. at a time limit. The plan may use their
        nodes. A job that `changes` stops as well counts as preempted. A plan that also grants such
        a job is refused, and the run stops.
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
        """Return the plan that turns the running grants into the target grants.

        Running jobs that are not in the target are stopped.
        """
        changes: dict[JobId, Grant | None] = {job: None for job in view.grants if job not in target}
        grants = view.grants
        changes |= {job: grant for job, grant in target.items() if grants.get(job) != grant}
        return cls(changes, wake_at_s=wake_at_s, notes=notes)


EMPTY: Final = Plan()
"""The plan that changes nothing; one shared object, because most decisions change nothing."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """Events that call an allocator.

    Arrivals; jobs that ended or lost their GPUs; nodes that came or went; a fixed period.
    """

    on_arrival: bool = True
    on_finish: bool = True
    on_capacity: bool = True
    every_s: float = inf


@dataclass(frozen=True, slots=True)
class Card:
    """Description of an allocator for app, documentation and command line.

    Parameters
    ----------
    title : str
        Its usual name.
    what, cost : str
        One sentence each: how it decides, and which jobs pay for it.
    limits : str
        What it cannot do.
    source : str
        Paper or system, with section if known.
    certainty : str
        "exact" if the rule is published in full, else "our reading" and the text read.
    goals : tuple of str
        Any of "short waits", "fairness", "heterogeneous", "elastic", "combined", "baseline"; the
        first one groups lists of policies.
    how : tuple of str
        How it decides under its defaults, in three to five short sentences.
    brief : str
        The rule in at most nine words, without a full stop.
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
    """Base of all policies: decides which jobs run on which nodes.

    Two methods are optional. `remarks() -> tuple[str, ...]` returns sentences for the user: before
    a run on what will differ (e.g. a missing solver), after it on what happened. `rule() ->
    QueueRule | None` returns the policy as a queue rule. A run may follow the rule instead of
    calling the policy, with the same result.
    """

    @property
    def cadence(self) -> Cadence:
        """The events that call the policy; by default all."""
        return Cadence()

    @property
    def needs(self) -> Needs:
        """The needs beyond public columns and whole gangs; by default none."""
        return Needs()

    @property
    def card(self) -> Card:
        """The policy's description for users."""
        ...

    def allocate(self, view: View, /) -> Plan:
        """Return this instant's changes; deterministic except `View.rng`, ties by job id."""
        ...

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """Return why a job waits, right after the decision that left it waiting.

        Reads the view and the policy's state but changes neither, so that a run with explanations
        equals a run without. None = no reason beyond the general ones.
        """
        del decided, job
        return None


@runtime_checkable
class HasRemarks(Protocol):
    """An allocator that has remarks for the user."""

    def remarks(self) -> tuple[str, ...]:
        """Return sentences for the user; see `Allocator`."""
        ...


@runtime_checkable
class HasRule(Protocol):
    """An allocator that can state its queue rule."""

    def rule(self) -> QueueRule | None:
        """Return the policy as a queue rule; see `Allocator`."""
        ...


def rule_of(allocator: Allocator) -> QueueRule | None:
    """Return the queue rule of an allocator, or None if it has none."""
    return allocator.rule() if isinstance(allocator, HasRule) else None


def remarks_of(allocator: Allocator) -> tuple[str, ...]:
    """Return the remarks of an allocator for the user; () = it has none."""
    return allocator.remarks() if isinstance(allocator, HasRemarks) else ()
