"""The next size of a job of workers and parameter servers: rules over its present size, what was
measured of it, and the history of finished jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from statistics import median
from typing import Final, NamedTuple

from sim.contract import Demand, Resources

MOST_WORKERS: Final = 60
MOST_SERVERS: Final = 15
MOST_CORES: Final = 32.0
MOST_GB: Final = 64.0
STEP_GB: Final = 8.0
"""No request for memory is raised by more at once."""
SHORT_S: Final = 1800.0
"""A job that a single worker would finish within this gets `FEW` workers."""
FEW: Final = 10
SAMPLED: Final = 32
"""Most workers that the first two plans give."""
SPARE: Final = 1.2
"""Memory asked for over memory used, of servers."""
HOT_CPU: Final = 0.8
HOT_GB: Final = 0.9
HOT_RECORDS: Final = 3
_LEAST_CORES: Final = 4.0
_LEAST_GB: Final = 6.0


class JobResources(NamedTuple):
    """What a job is made of: replicas of each role, and cores and GB of each replica; memory of 0
    is not modelled.
    """

    workers: int
    worker_cpus: float
    worker_gb: float
    servers: int
    server_cpus: float
    server_gb: float


class Seen(NamedTuple):
    """What was seen of a running job: its speed, and cores and GB in use on the busiest replica of
    each role.
    """

    speed: float
    worker_cpus: float
    worker_gb: float
    server_cpus: float
    server_gb: float


class Before(NamedTuple):
    """Workers of a job, and its speed with them, before their number was last changed."""

    workers: int
    speed: float


class RulePreset(NamedTuple):
    """Thresholds of the rules that consult the history.

    Parameters
    ----------
    low, full : float
        Share of their cores that servers use below which there are too few workers, and above which
        there are too many.
    slower : float
        Share by which more workers must have slowed a job down for it not to get still more.
    fewer, more : int
        Workers taken from a job whose servers are full, and at most added to one that gained from
        more.
    spare_cores : float
        Cores of a worker beyond those it uses.
    spare_gb : float
        Memory asked for over memory used, of workers.
    target : int
        Workers that the first plan for servers provides for.
    """

    low: float
    full: float
    slower: float
    fewer: int
    more: int
    spare_cores: float
    spare_gb: float
    target: int


PRESETS: Final[Mapping[str, RulePreset]] = {
    "code": RulePreset(0.8, 0.95, 0.10, 4, 4, 1.0, 1.2, 20),
    "manifest": RulePreset(0.85, 0.99, 0.20, 1, 8, 0.0, 1.6, 32),
}


def config_of(demand: Demand) -> JobResources:
    """Return what a demand for workers and servers is for."""
    servers = demand.servers
    assert servers is not None, "a job without parameter servers has no such configuration"
    return JobResources(
        demand.replicas, demand.cpus, demand.mem_gb, servers.replicas, servers.cpus, servers.mem_gb
    )


def demand_of(asked: Demand, config: JobResources) -> Demand:
    """Return the demand for a configuration of a job."""
    assert asked.servers is not None, "a job without parameter servers has no such configuration"
    servers = replace(
        asked.servers, replicas=config.servers, cpus=config.server_cpus, mem_gb=config.server_gb
    )
    return replace(
        asked,
        replicas=config.workers,
        cpus=config.worker_cpus,
        mem_gb=config.worker_gb,
        servers=servers,
    )


# -- with a history
# --------------------------------------------------------------------------------------------------


def more_workers(
    now: JobResources,
    seen: Sequence[Seen],
    before: Before | None,
    plans: int,
    alone_s: float,
    preset: RulePreset,
) -> JobResources:
    """Return the next plan for workers.

    Parameters
    ----------
    now, seen, before
        What the job is made of, what was seen of it since (the latest last, at least one), and its
        speed before that.
    plans : int
        Plans for workers made so far; the first two grow at once, the later ones step by step, and
        only while that pays.
    alone_s : float
        Seconds that a single worker would still need, at the speed of the present ones.
    preset : RulePreset
        Thresholds.
    """
    use = max(item.server_cpus for item in seen) / now.server_cpus
    trend = 0.0 if before is None or not before.speed else seen[-1].speed / before.speed - 1
    workers = now.workers
    if use > preset.full:
        workers -= preset.fewer
    elif 0 < use < preset.low and trend > -preset.slower:
        target = ceil(workers * preset.low / use - 1e-9)
        if plans < 2:
            workers = FEW if alone_s <= SHORT_S else min(SAMPLED, target)
        elif trend > 0:
            workers += min(preset.more, target - workers)
    workers = min(max(workers, 1), MOST_WORKERS)
    if workers <= 2 * now.workers:
        return now._replace(
            workers=workers
        )  # only new ones would get another size, and most are not new
    cpus, gb = (
        max(item.worker_cpus for item in seen) + preset.spare_cores,
        max(item.worker_gb for item in seen) * preset.spare_gb,
    )
    return now._replace(
        workers=workers, worker_cpus=_cores(cpus), worker_gb=_raised(now.worker_gb, gb)
    )


def first_servers(
    now: JobResources, seen: Sequence[Seen], alone_s: float, at_end_gb: float, preset: RulePreset
) -> JobResources:
    """Return the first plan for servers: as many as the workers that the job shall grow to need.

    Parameters
    ----------
    now, seen, alone_s, preset
        See `more_workers`.
    at_end_gb : float
        Memory of all servers together when the job will be done, as far as its growth has shown.
    """
    used = max(item.server_cpus for item in seen)
    if not used:
        return now
    target = FEW if alone_s <= SHORT_S else preset.target
    cpus = min(max(16.0, ceil(used - 1e-9) + 4.0), MOST_CORES)
    free = cpus / (used * now.servers / MOST_SERVERS)
    target = min(target, ceil(free * now.workers - 1e-9))
    servers = ceil(target / now.workers * used * now.servers / cpus - 1e-9)
    return _with_servers(now, (servers, cpus), at_end_gb)


# -- without
# --------------------------------------------------------------------------------------------------


def workers_within(
    now: JobResources, seen: Sequence[Seen], before: Before | None, limit: tuple[float, float]
) -> JobResources:
    """Return the plan for workers of a job that must keep within a limit of cores and GB, and of
    whose like nothing is known.
    """
    use = max(item.server_cpus for item in seen) / now.server_cpus
    gained = 1.0
    if before is not None and before.workers != now.workers and before.speed:
        gained = (
            (seen[-1].speed - before.speed)
            / (now.workers - before.workers)
            / (before.speed / before.workers)
        )
    if not 0 < use <= _KEEP or gained < _WORTH:
        return now
    cpus = _cores(sum(item.worker_cpus for item in seen) / len(seen))
    gb = _raised(now.worker_gb, 1.5 * max(item.worker_gb for item in seen))
    most = (limit[0] - now.servers * now.server_cpus) / cpus
    if gb:
        most = min(most, (limit[1] - now.servers * now.server_gb) / gb)
    workers = min(int(now.workers * 0.9 / use), int(most + 1e-9), MOST_WORKERS)
    return (
        now._replace(workers=workers, worker_cpus=cpus, worker_gb=gb)
        if workers > now.workers
        else now
    )


def servers_within(
    now: JobResources, seen: Sequence[Seen], limit_cores: float, at_end_gb: float
) -> JobResources:
    """Return the plan for servers of such a job: what the workers leave when the limit is divided
    as workers and servers use it.
    """
    server, worker = (
        sum(column) / len(seen)
        for column in ([item.server_cpus for item in seen], [item.worker_cpus for item in seen])
    )
    workers = limit_cores / (server * now.servers / now.workers + worker)
    servers = ceil((limit_cores - workers * worker) / now.server_cpus - 1e-9)
    return _with_servers(now, (servers, now.server_cpus), at_end_gb)


_KEEP: Final = 0.95
_WORTH: Final = 0.2
"""Gain of a worker over that of those before it, below which no more are added."""


# -- in any case
# --------------------------------------------------------------------------------------------------


def hot_servers(now: JobResources, seen: Sequence[Seen], *, with_history: bool) -> JobResources:
    """Return larger servers if they lack cores now, or lacked memory at every check."""
    used = max(item.server_cpus for item in seen)
    cpus = now.server_cpus
    if used > (HOT_CPU if with_history else _FULL) * cpus:
        grown = min(
            MOST_CORES,
            float(
                ceil(
                    used
                    * min(
                        (SAMPLED if with_history else MOST_WORKERS) / now.workers, MOST_CORES / used
                    )
                    - 1e-9
                )
            ),
        )
        cpus = max(cpus, grown)
    gb = now.server_gb
    if (
        gb
        and len(seen) >= HOT_RECORDS
        and min(item.server_gb for item in seen[-HOT_RECORDS:]) > HOT_GB * gb
    ):
        gb = max(gb, min(gb + STEP_GB, MOST_GB))
    return now._replace(server_cpus=cpus, server_gb=gb)


_FULL: Final = 0.9


def after_oom(now: JobResources, role: str, asked: JobResources, *, watched: bool) -> JobResources:
    """Return what a job is made of after a replica of this role ran out of memory.

    Servers of a job are alike here, so once they were `watched` it is known that none needs more
    than the others, and there shall be more of them.
    """
    if role == "worker":
        return now._replace(
            worker_gb=_raised(now.worker_gb, max(2 * now.worker_gb, asked.worker_gb))
        )
    most = max(MOST_SERVERS, asked.servers)
    if now.server_gb < MOST_GB and not (watched and 2 * now.servers <= most):
        return now._replace(server_gb=min(2 * now.server_gb, MOST_GB))
    return now._replace(servers=min(2 * now.servers, most))


def halved(now: JobResources) -> JobResources:
    """Return half the cores and memory of a job that waits for too long, but no less per replica
    than is usual.
    """
    cpus = [
        max(cores / 2, min(cores, _LEAST_CORES)) for cores in (now.worker_cpus, now.server_cpus)
    ]
    gb = [max(memory / 2, min(memory, _LEAST_GB)) for memory in (now.worker_gb, now.server_gb)]
    return now._replace(worker_cpus=cpus[0], worker_gb=gb[0], server_cpus=cpus[1], server_gb=gb[1])


def at_end_gb(first: tuple[float, float], last: tuple[float, float]) -> float:
    """Return the memory of all servers when no work will be left, from two observations (work left,
    GB), if it grew between them.
    """
    (left_before, gb_before), (left, gb) = first, last
    return (
        gb + (gb - gb_before) / (left_before - left) * left
        if left_before > left and gb > gb_before + 1e-9
        else gb
    )


def _with_servers(now: JobResources, size: tuple[int, float], end_gb: float) -> JobResources:
    servers = min(max(size[0], 1, for_memory(end_gb) if now.server_gb else 1), MOST_SERVERS)
    gb = tenths(min(SPARE * end_gb / servers, MOST_GB)) if now.server_gb else 0.0
    return now._replace(servers=servers, server_cpus=size[1], server_gb=gb)


def for_memory(gb: float) -> int:
    """Return the servers without which so much memory in all would be more than one of them may
    have.
    """
    return ceil(SPARE * gb / MOST_GB - 1e-9)


def _cores(cpus: float) -> float:
    return min(max(float(ceil(cpus - 1e-9)), 1.0), MOST_CORES)


def _raised(now_gb: float, wanted_gb: float) -> float:
    return tenths(min(wanted_gb, now_gb + STEP_GB, MOST_GB)) if now_gb else 0.0


def tenths(value: float) -> float:
    """Return an amount of memory, rounded up to a tenth of a GB."""
    return ceil(value * 10 - 1e-6) / 10


COLD: Final = JobResources(1, 12.0, 16.0, 4, 12.0, 16.0)
"""What the first job of a kind begins with."""
_DAY_S: Final = 86_400.0


class FinishedJob(NamedTuple):
    """What was seen of a finished job: its end, cores of all servers and of one as means, and the
    most GB of one and of all, cores and GB of a worker.
    """

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

    def past(self, finish_s: float) -> FinishedJob:
        """Return what of it is remembered."""
        seen, servers = self
        return FinishedJob(
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
        self._kinds: dict[int, list[FinishedJob]] = {}

    def add(self, kind: int, past: FinishedJob) -> None:
        """Remember a job that was done."""
        self._kinds.setdefault(kind, []).append(past)

    def first(self, kind: int, now_s: float) -> JobResources:
        """Return what a job of a kind begins with."""
        known = [
            past
            for past in self._kinds.get(kind, ())
            if past.finish_s >= now_s - self._days * _DAY_S
        ]
        if not known:
            return COLD
        self._kinds[kind] = known
        return begins(known)


def estimated(told: Resources | None, servers: int) -> JobResources:
    """Return what a job begins with that is estimated to use so much of so many servers, as if one
    like it had been seen to.
    """
    if told is None:
        return COLD
    cpus, gb = told.server_cpus, told.server_gb
    return begins(
        [FinishedJob(0.0, cpus * servers, cpus, gb, gb * servers, told.worker_cpus, told.worker_gb)]
    )


def begins(known: Sequence[FinishedJob]) -> JobResources:
    """Return a single worker, and servers for all that these have used."""
    cpus = min(ceil(max(past.server_cpus for past in known) - 1e-9) + 4.0, MOST_CORES)
    total = 1.5 * major([past.all_cpus for past in known])
    all_gb = max(past.all_gb for past in known)
    servers = max(ceil(total / cpus - 1e-9), for_memory(all_gb), 1)
    if servers > MOST_SERVERS:
        servers, cpus = MOST_SERVERS, min(float(ceil(total / MOST_SERVERS - 1e-9)), MOST_CORES)
    return JobResources(
        1,
        min(
            max(COLD.worker_cpus, float(ceil(max(past.worker_cpus for past in known) - 1e-9))),
            MOST_CORES,
        ),
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
