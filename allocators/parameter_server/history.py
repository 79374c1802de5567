"""What finished jobs of each kind were seen to use, or a new one is believed to, and what it begins with."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import Final, NamedTuple

from allocators.parameter_server.scaling_rules import MOST_CORES, MOST_GB, MOST_SERVERS, SPARE, Config, Seen, for_memory, tenths
from sim.contract import Resources

COLD: Final = Config(1, 12.0, 16.0, 4, 12.0, 16.0)
"""What the first job of a kind begins with."""
_DAY_S: Final = 86_400.0


class Past(NamedTuple):
    """What was seen of a finished job: its end, cores of all servers and of one as means, and the most GB of one and of all, cores and GB of a worker."""

    finish_s: float
    all_cpus: float
    server_cpus: float
    server_gb: float
    all_gb: float
    worker_cpus: float
    worker_gb: float


class Watched(NamedTuple):
    """Everything seen of a job so far, each time with the number of its servers."""

    seen: list[Seen]
    servers: list[int]

    def past(self, finish_s: float) -> Past:
        """Return what of it is remembered."""
        seen, servers = self
        return Past(
            finish_s,
            major([item.server_cpus * count for item, count in zip(seen, servers, strict=True)]),
            sum(item.server_cpus for item in seen) / len(seen),
            max(item.server_gb for item in seen),
            max(item.server_gb * count for item, count in zip(seen, servers, strict=True)),
            max(item.worker_cpus for item in seen),
            max(item.worker_gb for item in seen),
        )


class History:
    """The finished jobs of each kind.

    Parameters
    ----------
    days : float
        For how long each is remembered.
    """

    def __init__(self, days: float) -> None:
        self._days = days
        self._kinds: dict[int, list[Past]] = {}

    def add(self, kind: int, past: Past) -> None:
        """Remember a job that was done."""
        self._kinds.setdefault(kind, []).append(past)

    def first(self, kind: int, now_s: float) -> Config:
        """Return what a job of a kind begins with."""
        known = [past for past in self._kinds.get(kind, ()) if past.finish_s >= now_s - self._days * _DAY_S]
        if not known:
            return COLD
        self._kinds[kind] = known
        return begins(known)


def believed(told: Resources | None, servers: int) -> Config:
    """Return what a job begins with that is believed to use so much of so many servers, as if one like it had been seen to."""
    if told is None:
        return COLD
    cpus, gb = told.server_cpus, told.server_gb
    return begins([Past(0.0, cpus * servers, cpus, gb, gb * servers, told.worker_cpus, told.worker_gb)])


def begins(known: Sequence[Past]) -> Config:
    """Return a single worker, and servers for all that these have used."""
    cpus = min(ceil(max(past.server_cpus for past in known) - 1e-9) + 4.0, MOST_CORES)
    total = 1.5 * major([past.all_cpus for past in known])
    all_gb = max(past.all_gb for past in known)
    servers = max(ceil(total / cpus - 1e-9), for_memory(all_gb), 1)
    if servers > MOST_SERVERS:
        servers, cpus = MOST_SERVERS, min(float(ceil(total / MOST_SERVERS - 1e-9)), MOST_CORES)
    return Config(
        1,
        min(max(COLD.worker_cpus, float(ceil(max(past.worker_cpus for past in known) - 1e-9))), MOST_CORES),
        tenths(min(max(COLD.worker_gb, 1.5 * max(past.worker_gb for past in known)), MOST_GB)),
        servers,
        cpus,
        tenths(min(SPARE * max(*(past.server_gb for past in known), all_gb / servers), MOST_GB)),
    )


def major(values: Sequence[float]) -> float:
    """Return the mean of the half of some values that is nearest to their median."""
    middle = median(values)
    nearest = sorted(values, key=lambda value: abs(value - middle))[: (len(values) + 1) // 2]
    return sum(nearest) / len(nearest)
