"""The values of the contract: parts, gangs and grants, what a job demands, and what happened since
the last call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

JobId = int
"""The row of the job in the trace."""


class Part(NamedTuple):
    """Identical replicas on named nodes; the ledger sums exactly this.

    ``nodes[i]`` carries ``count[i]`` replicas of ``gpus`` GPUs, ``cpus`` cores and ``mem_gb`` GB
    each. A CPU worker or a parameter server has ``gpus = 0``.
    """

    nodes: tuple[int, ...]
    count: tuple[int, ...]  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a Part
    gpus: int = 1
    cpus: float = 0.0
    mem_gb: float = 0.0


class Gang(NamedTuple):
    """Workers that step together, the slowest pacing the rest, with their parameter servers if they
    have any.
    """

    workers: Part
    servers: Part | None = None


class Tuning(NamedTuple):
    """Settings inside a job, which the simulator passes on unread; performance and overhead models
    read them.

    ``sharding`` says that workers fetch their data in shards as they need more, instead of dividing
    it in equal parts beforehand: a slow worker then delays no others, and the job survives the loss
    of one replica.
    """

    batch_size: int | None = None
    accumulation: int = 0
    sharding: bool = False


UNTUNED: Final = Tuning()


_NEXT_KEY: Final = count().__next__


def _key() -> int:
    """Declare the number that stands for one object in dictionaries; no part of its value."""
    return field(default_factory=_NEXT_KEY, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a job holds: one gang, or several when the job is forked into copies.

    ``key`` is given to each object when it is made; a grant that is handed out again keeps it.
    """

    gangs: tuple[Gang, ...]
    tuning: Tuning = UNTUNED
    key: int = _key()


class Eviction(NamedTuple):
    """A job that lost its grant against the allocator's will and is waiting again.

    ``cause`` is "outage", "interruption", "oom", or "void": the grant never took effect, because
    its node changed while the plan was in flight.
    """

    job: JobId
    cause: str
    role: str
    lost_work: float


class Delta(NamedTuple):
    """What happened since this allocator's previous call; in the first call every waiting job has
    just arrived.
    """

    arrived: tuple[JobId, ...] = ()
    finished: tuple[JobId, ...] = ()
    evicted: tuple[Eviction, ...] = ()
    nodes: tuple[int, ...] = ()
    """Nodes that came or went, or on which an ended overlap freed resources."""
    resized: tuple[JobId, ...] = ()
    """Jobs whose demand, or whose grant if they run, an allocator around this one has changed.
    """


class Shape(NamedTuple):
    """A grant before it is placed: what a performance model needs to guess a rate.

    ``gpus`` holds GPUs per type, in the order of ``cluster.types``; ``nodes`` the nodes spanned;
    ``servers`` the parameter servers, 0 = as many as the job asks for; ``kind`` is "gpu" or "cpu"
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
    """What a job asks for, per replica.

    Jobs that ask for the same share one object, so queues may be kept per demand, by its ``key``.

    A GPU job is ``replicas`` workers of one GPU, with its cores and memory divided among them; a
    CPU job is one replica per core, unless it says what its workers are. ``pools`` are the pools
    whose GPU type the job admits. ``servers`` are its parameter servers, a demand of their own;
    None = it has none.
    """

    replicas: int
    gpus: int
    cpus: float
    mem_gb: float
    pools: tuple[int, ...]
    servers: Demand | None = None
    key: int = _key()


class NodePool(NamedTuple):
    """Nodes with the same GPU type and the same partitions; ``type_at`` is the place of the type in
    ``cluster.types``, -1 for CPU nodes.
    """

    nodes: tuple[int, ...]
    type_at: int
    partitions: tuple[str, ...]
    gpus_per_node: int
