"""Values of the contract: parts, gangs, grants, demands and changes since the last call."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

JobId = int
"""The row of the job in the trace."""


class Part(NamedTuple):
    """Identical replicas on named nodes; the unit that the ledger books.

    ``nodes[i]`` carries ``count[i]`` replicas of ``gpus`` GPUs, ``cpus`` cores and ``mem_gb`` GB
    each. A CPU worker or a parameter server has ``gpus = 0``.
    """

    nodes: tuple[int, ...]
    count: tuple[int, ...]  # type: ignore[assignment]  # hides tuple.count, which is never called on a Part
    gpus: int = 1
    cpus: float = 0.0
    mem_gb: float = 0.0


class Gang(NamedTuple):
    """Workers that step together at the pace of the slowest, with their parameter servers."""

    workers: Part
    servers: Part | None = None


class Tuning(NamedTuple):
    """Settings inside a job, which only performance and overhead models read.

    With ``sharding`` workers fetch their data in shards as they need more, instead of in equal
    parts beforehand: a slow worker then delays no others, and the job survives the loss of one
    replica.
    """

    batch_size: int | None = None
    accumulation: int = 0
    sharding: bool = False


UNTUNED: Final = Tuning()


_NEXT_KEY: Final = count().__next__


def _identity_field() -> int:
    """Declare the number that identifies one object in dictionaries; no part of its value."""
    return field(default_factory=_NEXT_KEY, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """The resources that a job holds: one gang, or several when it is forked into copies.

    Each new object gets its own ``key``; a grant that is reused keeps it.
    """

    gangs: tuple[Gang, ...]
    tuning: Tuning = UNTUNED
    key: int = _identity_field()


class Eviction(NamedTuple):
    """A job that lost its grant through no decision of the allocator and waits again.

    ``cause`` is "outage", "interruption", "oom", or "void": the grant never took effect, because
    its node changed while the plan was in flight.
    """

    job: JobId
    cause: str
    role: str
    lost_work: float


class Delta(NamedTuple):
    """Events since the allocator's previous call.

    In the first call every waiting job has just arrived.
    """

    arrived: tuple[JobId, ...] = ()
    finished: tuple[JobId, ...] = ()
    evicted: tuple[Eviction, ...] = ()
    nodes: tuple[int, ...] = ()
    """Nodes that came or went, or where the end of an overlap freed resources."""
    resized: tuple[JobId, ...] = ()
    """Jobs whose demand or running grant an outer allocator has changed."""


class Shape(NamedTuple):
    """A grant before placement, as a performance model needs it to estimate a rate.

    ``gpus`` are GPUs per type, in the order of ``cluster.types``; ``nodes`` the nodes spanned;
    ``servers`` the parameter servers, 0 = as many as the job requests; ``kind`` is "gpu" or "cpu"
    for the workers, and ``workers`` counts those on CPUs.
    """

    gpus: tuple[int, ...]
    nodes: int = 1
    servers: int = 0
    kind: str = "gpu"
    tuning: Tuning = UNTUNED
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """The request of a job, per replica.

    Jobs with equal requests share one object, so queues may be kept per demand, by its ``key``.

    A GPU job is ``replicas`` workers of one GPU, with its cores and memory divided among them; a
    CPU job is one replica per core, unless its row describes its workers. ``pools`` are the pools
    whose GPU type the job admits. ``servers`` is the demand of its parameter
    servers; None = it has none.
    """

    replicas: int
    gpus: int
    cpus: float
    mem_gb: float
    pools: tuple[int, ...]
    servers: Demand | None = None
    key: int = _identity_field()


class NodePool(NamedTuple):
    """Nodes with the same GPU type and the same partitions.

    ``type_at`` is the index of the type in ``cluster.types``, -1 for CPU nodes.
    """

    nodes: tuple[int, ...]
    type_at: int
    partitions: tuple[str, ...]
    gpus_per_node: int
