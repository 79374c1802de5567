"""The contract between simulator and allocators: one method, ``allocate(view) -> Plan``. Read this first.

An allocator is a dataclass. Its fields declared with `param` are its parameters, its other state is ``field(init=False, repr=False)``. It is asked when
its `Cadence` says so, sees the world through a `View` that is valid only during the call, and answers with a `Plan` of changes. The simulator validates
the plan and applies it, releases first; it never repairs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, runtime_checkable

from sim.clock import LATEST_S, STEP_S, instant, later
from sim.errors import ContractError, ParameterError, SolverError
from sim.grants import Delta, Demand, Eviction, Gang, Grant, JobId, Part, Pool, Shape, Tuning
from sim.params import ParamInfo, Spec, build, param, parameters
from sim.seen import Belief, Floats, Ints, JobTable, Resources, Room, Telemetry, View

__all__ = [
    "EMPTY",
    "LATEST_S",
    "NEEDS",
    "STEP_S",
    "Allocator",
    "Belief",
    "Cadence",
    "Card",
    "ContractError",
    "Delta",
    "Demand",
    "Eviction",
    "Floats",
    "Gang",
    "Grant",
    "Ints",
    "JobId",
    "JobTable",
    "ParamInfo",
    "ParameterError",
    "Part",
    "Plan",
    "Pool",
    "Resources",
    "Room",
    "Shape",
    "SolverError",
    "Spec",
    "Telemetry",
    "Tuning",
    "View",
    "build",
    "inf",
    "instant",
    "later",
    "param",
    "parameters",
    "remarks_of",
]

NEEDS: Final = frozenset(
    {
        "remaining_work",
        "rates",
        "pause",
        "resources",
        "telemetry",
        "scaling",
        "profile",
        "servers",
        "recorded_start",
        "overflow",
        "mixed",
        "forks",
        "confined_by_vc",
        "confined_by_partition",
    }
)
"""What an allocator may declare in `needs`; a view answers nothing of this kind to one that has not.

``remaining_work``, ``rates``, ``pause`` and ``resources`` open the belief; ``telemetry`` the measurements of running jobs; ``scaling`` says that jobs must be
resizable, ``profile`` that a measured performance profile must exist; ``servers`` that jobs must be made of workers and parameter servers;
``recorded_start`` opens the trace's own start times (column ``recorded_start_s``); ``overflow`` asks for an unpriced extra
node. ``mixed`` says that one gang may span GPU types; without it a job that fits no single type is impossible.
``forks`` says that a job may be granted several gangs, copies of it, whose price the performance model states.
``confined_by_vc`` and ``confined_by_partition`` restrict every job to the nodes of its virtual cluster or partition, and to nodes that belong to none.
"""


_NO_CHANGES: Final[Mapping[JobId, Grant | None]] = MappingProxyType({})
_NO_NOTES: Final[Mapping[str, float]] = MappingProxyType({})


class Plan(NamedTuple):
    """What shall change; a job that is not mentioned stays as it is.

    Parameters
    ----------
    changes : mapping
        Job -> new grant, or None to stop it (it waits again).
    refuse : frozenset of int
        Waiting jobs that will never be run.
    wake_at_s : float, seconds
        Ask again at the instant nearest to this; replaces the previous wake-up; inf = none.
        Moved to the next instant, 1 us from now, if it is not after now. After `LATEST_S` is never.
    notes : mapping
        Numbers for the record and the UI: objective, gap, price.
    seamless : frozenset of int
        Running jobs that keep their old place, and run on there, until they have moved; the others are stopped and restarted at once, as their old place is
        free for the rest of the plan.
    """

    changes: Mapping[JobId, Grant | None] = _NO_CHANGES
    refuse: frozenset[JobId] = frozenset()
    wake_at_s: float = inf
    notes: Mapping[str, float] = _NO_NOTES
    seamless: frozenset[JobId] = frozenset()

    @classmethod
    def reach(cls, view: View, target: Mapping[JobId, Grant], *, wake_at_s: float = inf, notes: Mapping[str, float] = _NO_NOTES) -> Plan:
        """Build the plan that leads from what is running to a full target: jobs that are running and not in it are stopped."""
        changes: dict[JobId, Grant | None] = {job: None for job in view.grants if job not in target}
        grants = view.grants
        changes |= {job: grant for job, grant in target.items() if grants.get(job) != grant}
        return cls(changes, wake_at_s=wake_at_s, notes=notes)


EMPTY: Final = Plan()
"""The plan that changes nothing; shared, so that a decision without consequence costs nothing."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """When an allocator is asked: after arrivals, after a job left its GPUs by itself, after nodes came or went, and periodically."""

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
        One sentence each: how it decides, and who pays for that.
    limits : str
        What it cannot do.
    source : str
        Paper or system, with section where known.
    certainty : str
        "exact" where the rule is fully published, else "our reading" and of what.
    goals : tuple of str
        Of "short waits", "fairness", "deadlines", "heterogeneous", "elastic", "baseline".
    how : tuple of str
        How it decides under its defaults, in three to five short sentences.
    """

    title: str
    what: str
    cost: str
    limits: str
    source: str
    certainty: str
    goals: tuple[str, ...] = ()
    how: tuple[str, ...] = ()


class Allocator(Protocol):
    """Who gets what, where, from now on.

    `explain(view, job) -> str` is optional and called only on replay. `remarks() -> tuple[str, ...]` is optional too: sentences for the user, of a fresh
    instance on what it will do differently here (a solver that is not installed), after a run on what happened in it.
    """

    @property
    def cadence(self) -> Cadence:
        """When to ask."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """What it reads beyond the public columns: a subset of `NEEDS`."""
        ...

    @property
    def card(self) -> Card:
        """What to tell the user."""
        ...

    def allocate(self, view: View, /) -> Plan:
        """Return the changes to make at this instant; deterministic but for `View.rng`, ties broken by job id."""
        ...


@runtime_checkable
class Remarking(Protocol):
    """An allocator with something to tell the user."""

    def remarks(self) -> tuple[str, ...]:
        """Return sentences, see `Allocator`."""
        ...


def remarks_of(allocator: Allocator) -> tuple[str, ...]:
    """Return what an allocator has to tell the user; nothing for most."""
    return allocator.remarks() if isinstance(allocator, Remarking) else ()
