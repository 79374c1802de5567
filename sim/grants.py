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

    With ``sharding`` workers fetch data in shards as they need more, not in equal parts beforehand:
    a slow worker delays no others, and the job survives the loss of one replica.
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

    A forked job loses only the copies on a failed node. Each new object gets its own ``key``, which
    is not part of equality.
    """

    gangs: tuple[Gang, ...]
    tuning: Tuning = UNTUNED
    key: int = _identity_field()


class Eviction(NamedTuple):
    """A job that lost its grant through no decision of the allocator and waits again.

    ``cause`` is "outage", "interruption", "oom", or "void" for a delayed start that was dropped.
    """

    job: JobId
    cause: str
    role: str
    lost_work: float


class Delta(NamedTuple):
    """Events since the allocator's previous call.

    In the first call every waiting job has just arrived. ``nodes`` came or went, or an overlap that
    ended there has freed resources. ``resized``: an outer allocator changed demand or grant.
    """

    arrived: tuple[JobId, ...] = ()
    finished: tuple[JobId, ...] = ()
    evicted: tuple[Eviction, ...] = ()
    nodes: tuple[int, ...] = ()
    resized: tuple[JobId, ...] = ()


class Shape(NamedTuple):
    """A grant before placement, as a performance model needs it to estimate a rate.

    ``gpus``: per type, in the order of ``cluster.types``. ``nodes``: number spanned. ``servers``:
    parameter servers, 0 = as requested. ``kind`` of the workers: "gpu" or "cpu". ``workers``:
    number on CPUs.
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

    Jobs with equal requests share one object, so queues may be kept per ``key``, which is not part
    of equality.

    A GPU job has ``replicas`` workers of one GPU, which divide its cores and memory. A CPU job has
    one replica per core, unless its row describes its workers. ``pools``: those whose GPU type the
    job admits. ``servers``: the demand of its parameter servers, or None.
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
