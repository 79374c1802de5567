"""The contract between simulator and allocators: one method, ``allocate(view) -> Plan``. Read this first.

An allocator is a dataclass. Its fields declared with `param` are its parameters, its other state is ``field(init=False, repr=False)``. It is asked when
its `Cadence` says so, sees the world through a `View` that is valid only during the call, and answers with a `Plan` of changes. The simulator validates
the plan and applies it, releases first; it never repairs one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.errors import ParameterError
from sim.params import ParamInfo, Spec, build, param, parameters

if TYPE_CHECKING:
    from sim.cluster import Cluster

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

__all__ = [
    "EMPTY",
    "NEEDS",
    "Allocator",
    "Belief",
    "Cadence",
    "Card",
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
    "Room",
    "Shape",
    "Spec",
    "Telemetry",
    "Tuning",
    "View",
    "build",
    "inf",
    "param",
    "parameters",
]

JobId = int
"""The row of the job in the trace."""

NEEDS: Final = frozenset(
    {
        "remaining_work",
        "rates",
        "pause",
        "telemetry",
        "scaling",
        "profile",
        "recorded_start",
        "overflow",
        "mixed",
        "confined_by_vc",
        "confined_by_partition",
    }
)
"""What an allocator may declare in `needs`; a view answers nothing of this kind to one that has not.

``remaining_work``, ``rates`` and ``pause`` open the belief; ``telemetry`` the measurements of running jobs; ``scaling`` says that jobs must be resizable,
``profile`` that a measured performance profile must exist; ``recorded_start`` opens the trace's own start times (column ``recorded_start_s``); ``overflow``
asks for an unpriced extra node. ``mixed`` says that one gang may span GPU types; without it a job that fits no single type is impossible.
``confined_by_vc`` and ``confined_by_partition`` restrict every job to the nodes of its virtual cluster or partition, and to nodes that belong to none.
"""


class Part(NamedTuple):
    """Identical replicas on named nodes; the ledger sums exactly this.

    ``nodes[i]`` carries ``count[i]`` replicas of ``gpus`` GPUs, ``cpus`` cores and ``mem_gb`` GB each. A CPU worker or a parameter server has ``gpus = 0``.
    """

    nodes: tuple[int, ...]
    count: tuple[int, ...]  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a Part
    gpus: int = 1
    cpus: float = 0.0
    mem_gb: float = 0.0


class Gang(NamedTuple):
    """Workers that step together, the slowest pacing the rest, with their parameter servers if they have any."""

    workers: Part
    servers: Part | None = None


class Tuning(NamedTuple):
    """Job-internal knobs. The simulator passes them on and never looks inside; performance and overhead models read them."""

    batch_size: int | None = None
    accumulation: int = 0


UNTUNED: Final = Tuning()


class Grant(NamedTuple):
    """What a job holds: one gang, or several when the job is forked into copies."""

    gangs: tuple[Gang, ...]
    tuning: Tuning = UNTUNED


class Eviction(NamedTuple):
    """A job that lost its grant against the allocator's will and is waiting again; ``cause`` is "outage", "interruption" or "oom"."""

    job: JobId
    cause: str
    role: str
    lost_work: float


class Delta(NamedTuple):
    """What happened since this allocator's previous call; in the first call every waiting job has just arrived."""

    arrived: tuple[JobId, ...] = ()
    finished: tuple[JobId, ...] = ()
    evicted: tuple[Eviction, ...] = ()
    nodes: tuple[int, ...] = ()
    """Nodes that came or went, or on which an ended overlap gave room back."""


class Shape(NamedTuple):
    """A grant before it is placed: what a performance model needs to guess a rate.

    ``gpus`` holds GPUs per type, in the order of ``cluster.types``; ``nodes`` the nodes spanned; ``servers`` the parameter servers; ``kind`` is "gpu" or
    "cpu" for the workers.
    """

    gpus: tuple[int, ...]
    nodes: int = 1
    servers: int = 0
    kind: str = "gpu"
    tuning: Tuning = UNTUNED


class Demand(NamedTuple):
    """What a job asks for, per replica; equal demands are one object, so queues may be kept per demand.

    A GPU job is ``replicas`` workers of one GPU, with its cores and memory divided among them; a CPU job is one replica per core. ``pools`` are the
    pools whose GPU type the job admits.
    """

    replicas: int
    gpus: int
    cpus: float
    mem_gb: float
    pools: tuple[int, ...]


class Pool(NamedTuple):
    """Nodes with the same GPU type and the same partitions; ``type_at`` is the place of the type in ``cluster.types``, -1 for CPU nodes."""

    nodes: tuple[int, ...]
    type_at: int
    partitions: tuple[str, ...]
    gpus_per_node: int


class Room(Protocol):
    """What is free, as a sketch: placement functions reserve on it as they go, and the simulator undoes it all after the call.

    ``masks[pool][f]`` is a bit set (bit i = i-th node of the pool) of the nodes with exactly ``f`` free GPUs; ``free[pool]`` the free GPUs of the pool.
    """

    pools: Sequence[Pool]
    masks: Sequence[Sequence[int]]
    free: Sequence[int]
    overflow: int | None

    def gpus_free(self, pools: Iterable[int]) -> int:
        """Return the free GPUs of these pools."""
        ...

    def replicas_that_fit(self, node: int, demand: Demand) -> int:
        """Return how many replicas of this kind the node can still take, looking at GPUs, cores and memory."""
        ...

    def take(self, grant: Grant) -> None:
        """Reserve what a grant holds."""
        ...

    def give(self, grant: Grant) -> None:
        """Free what a grant holds, e.g. because the plan will stop that job."""
        ...


class Telemetry(NamedTuple):
    """Measurements of a running job by role ("worker", "server"): cores and GB in use per replica, speed of each replica against a healthy one."""

    cpus: Mapping[str, float]
    mem_gb: Mapping[str, float]
    speed: Mapping[str, tuple[float, ...]]


class JobTable(Protocol):
    """Columns of a set of jobs, gathered when touched, read-only, in order of job id, valid only during `Allocator.allocate`.

    Besides the columns below every numeric column of the trace that a user knows at submission is there under its trace name (``min_gpus``,
    ``max_gpus``, ``priority``, ``deadline_s``, ``time_limit_s``, ``batch_size``, ``cpus``, ``mem_gb``); limits not given are inf, priorities 0. Text
    columns (``user``, ``vc``, ``model``, ``partition``) are codes into `View.names`. The recorded run time, end and status of a job are not columns here.
    """

    @property
    def ids(self) -> Ints:
        """Job ids, ascending."""
        ...

    @property
    def arrival_s(self) -> Floats:
        """Seconds of submission."""
        ...

    @property
    def gpus(self) -> Ints:
        """GPUs asked for."""
        ...

    @property
    def held_gpus(self) -> Ints:
        """GPUs held now."""
        ...

    @property
    def served_gpu_s(self) -> Floats:
        """GPU-seconds held so far."""
        ...

    @property
    def served_cpu_s(self) -> Floats:
        """Core-seconds held so far."""
        ...

    @property
    def rate(self) -> Floats:
        """Observed work per second; 0 while waiting or pausing."""
        ...

    @property
    def remaining_work(self) -> Floats:
        """Believed work left, in the unit of `Belief.rate`; needs "remaining_work"."""
        ...

    @property
    def preemptible(self) -> NDArray[np.bool_]:
        """Whether the job may be stopped or changed once it runs."""
        ...

    def column(self, name: str) -> Floats:
        """Return any column by name."""
        ...

    def __len__(self) -> int:
        """Return the number of jobs."""
        ...


class Belief(Protocol):
    """What the allocator may think of speed and size; the truth is another object."""

    def rate(self, job: JobId, grant: Grant) -> float:
        """Return the believed work per second under a grant."""
        ...

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return believed work per second, of shape (jobs, shapes), before anything is placed."""
        ...

    def pause_s(self, job: JobId, old: Grant | None, new: Grant) -> float:
        """Return the believed seconds without progress that a change would cost."""
        ...


class View(Protocol):
    """All that an allocator may know at one instant. One object is reused for the whole run; never keep it."""

    now_s: float
    delta: Delta
    waiting: JobTable
    running: JobTable
    active: JobTable
    grants: Mapping[JobId, Grant]
    cluster: Cluster
    belief: Belief
    rng: np.random.Generator
    room: Room

    @property
    def free_gpus(self) -> Ints:
        """Free GPUs per node."""
        ...

    @property
    def free_cpus(self) -> Floats:
        """Free cores per node; inf where cores are not modelled."""
        ...

    @property
    def free_mem_gb(self) -> Floats:
        """Free memory per node; inf where memory is not modelled."""
        ...

    @property
    def capacity(self) -> Ints:
        """GPUs per node that are in service; 0 = down or absent."""
        ...

    def one(self, column: str, job: JobId) -> float:
        """Return one value of a `JobTable` column, for any active job, without gathering the column."""
        ...

    def demand(self, job: JobId) -> Demand:
        """Return what a job asks for."""
        ...

    def names(self, column: str) -> tuple[str, ...]:
        """Return the texts that the codes of a text column stand for."""
        ...

    def telemetry(self, job: JobId) -> Telemetry:
        """Return the measurements of a running job; needs "telemetry"."""
        ...


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
        Ask again then; replaces the previous wake-up; inf = none. Moved to now + 1 ms if earlier.
    notes : mapping
        Numbers for the record and the UI: objective, gap, price.
    """

    changes: Mapping[JobId, Grant | None] = _NO_CHANGES
    refuse: frozenset[JobId] = frozenset()
    wake_at_s: float = inf
    notes: Mapping[str, float] = _NO_NOTES

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
    """

    title: str
    what: str
    cost: str
    limits: str
    source: str
    certainty: str
    goals: tuple[str, ...] = ()


class Allocator(Protocol):
    """Who gets what, where, from now on.

    `explain(view, job) -> str` is optional and called only on replay.
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
