"""Rules for the next size of a job, from measurements and the history of similar jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from statistics import median
from typing import Final, NamedTuple

from sim.contract import Demand, Resources

MAX_WORKERS: Final = 60
MAX_SERVERS: Final = 15
MAX_CORES: Final = 32.0
MAX_GB: Final = 64.0
STEP_GB: Final = 8.0
"""Largest increase of a memory request at once."""
SHORT_S: Final = 1800.0
"""A job that a single worker would finish within this time gets `FEW` workers."""
FEW_WORKERS: Final = 10
MAX_FIRST_WORKERS: Final = 32
"""Most workers after the first two plans."""
SPARE: Final = 1.2
"""Requested over used memory of servers."""
HOT_CPU: Final = 0.8
HOT_GB: Final = 0.9
HOT_RECORDS: Final = 3
_MIN_CORES: Final = 4.0
_MIN_GB: Final = 6.0


class JobResources(NamedTuple):
    """Number, cores and memory of a job's workers and servers.

    Cores and GB are per replica; memory of 0 is not modeled.
    """

    workers: int
    worker_cpus: float
    worker_gb: float
    servers: int
    server_cpus: float
    server_gb: float


class Measurement(NamedTuple):
    """Measurements of a running job: its speed, and usage of the busiest replica of each role.

    Usage is in cores and GB.
    """

    speed: float
    worker_cpus: float
    worker_gb: float
    server_cpus: float
    server_gb: float


class EarlierSpeed(NamedTuple):
    """Workers and speed of a job before the number of workers was last changed."""

    workers: int
    speed: float


class RulePreset(NamedTuple):
    """Thresholds of the rules that use the history.

    Parameters
    ----------
    low, full : float
        CPU usage of servers below which there are too few workers, and above which too many.
    slower : float
        Relative slow-down by more workers from which a job gets no more of them.
    fewer, more : int
        Workers removed from a job whose servers are full, and most workers added to a job that
        gained from more.
    spare_cores : float
        Cores of a worker beyond those it uses.
    spare_gb : float
        Requested over used memory of workers.
    target : int
        Number of workers that the first plan for servers is made for.
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
    """Return the number, cores and memory of the workers and servers of a demand."""
    servers = demand.servers
    assert servers is not None, "a job without parameter servers has no such configuration"
    return JobResources(
        demand.replicas, demand.cpus, demand.mem_gb, servers.replicas, servers.cpus, servers.mem_gb
    )


def demand_of(request: Demand, config: JobResources) -> Demand:
    """Return the demand of a job for these workers and servers."""
    assert request.servers is not None, "a job without parameter servers has no such configuration"
    servers = replace(
        request.servers, replicas=config.servers, cpus=config.server_cpus, mem_gb=config.server_gb
    )
    return replace(
        request,
        replicas=config.workers,
        cpus=config.worker_cpus,
        mem_gb=config.worker_gb,
        servers=servers,
    )


# -- rules with a history
# --------------------------------------------------------------------------------------------------


def more_workers(
    now: JobResources,
    seen: Sequence[Measurement],
    before: EarlierSpeed | None,
    plans: int,
    alone_s: float,
    preset: RulePreset,
) -> JobResources:
    """Return resources with the next number of workers, for a job planned with a history.

    Fewer if servers are full, more if they are underused and speed has not fallen; else as now.

    Parameters
    ----------
    now, seen, before
        Present resources of the job, its measurements since (the latest last, at least one), and
        its speed before that.
    plans : int
        Number of earlier plans for workers; the first two may grow by much, later ones by steps and
        only while speed rises.
    alone_s : float
        Seconds that a single worker would still need, at the present speed per worker.
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
            workers = FEW_WORKERS if alone_s <= SHORT_S else min(MAX_FIRST_WORKERS, target)
        elif trend > 0:
            workers += min(preset.more, target - workers)
    workers = min(max(workers, 1), MAX_WORKERS)
    if workers <= 2 * now.workers:
        return now._replace(workers=workers)  # the size of workers changes only if most are new
    cpus, gb = (
        max(item.worker_cpus for item in seen) + preset.spare_cores,
        max(item.worker_gb for item in seen) * preset.spare_gb,
    )
    return now._replace(
        workers=workers, worker_cpus=_round_cores(cpus), worker_gb=_raise_gb(now.worker_gb, gb)
    )


def first_servers(
    now: JobResources,
    seen: Sequence[Measurement],
    alone_s: float,
    at_end_gb: float,
    preset: RulePreset,
) -> JobResources:
    """Return the first plan for servers: enough for the workers that the job will need.

    Parameters
    ----------
    now, seen, alone_s, preset
        See `more_workers`.
    at_end_gb : float
        Expected memory of all servers together at the end of the job.
    """
    used = max(item.server_cpus for item in seen)
    if not used:
        return now
    target = FEW_WORKERS if alone_s <= SHORT_S else preset.target
    cpus = min(max(16.0, ceil(used - 1e-9) + 4.0), MAX_CORES)
    free = cpus / (used * now.servers / MAX_SERVERS)
    target = min(target, ceil(free * now.workers - 1e-9))
    servers = ceil(target / now.workers * used * now.servers / cpus - 1e-9)
    return _set_servers(now, (servers, cpus), at_end_gb)


# -- rules without a history
# --------------------------------------------------------------------------------------------------


def workers_within(
    now: JobResources,
    seen: Sequence[Measurement],
    before: EarlierSpeed | None,
    limit: tuple[float, float],
) -> JobResources:
    """Return resources with more workers within a limit of (cores, GB); for no history.

    Unchanged if the last workers gained too little, or if no more fit.
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
    cpus = _round_cores(sum(item.worker_cpus for item in seen) / len(seen))
    gb = _raise_gb(now.worker_gb, 1.5 * max(item.worker_gb for item in seen))
    most = (limit[0] - now.servers * now.server_cpus) / cpus
    if gb:
        most = min(most, (limit[1] - now.servers * now.server_gb) / gb)
    workers = min(int(now.workers * 0.9 / use), int(most + 1e-9), MAX_WORKERS)
    return (
        now._replace(workers=workers, worker_cpus=cpus, worker_gb=gb)
        if workers > now.workers
        else now
    )


def servers_within(
    now: JobResources, seen: Sequence[Measurement], limit_cores: float, at_end_gb: float
) -> JobResources:
    """Return the plan for servers without a history, within a limit of cores.

    The limit is divided in the ratio in which workers and servers use it.
    """
    server, worker = (
        sum(column) / len(seen)
        for column in ([item.server_cpus for item in seen], [item.worker_cpus for item in seen])
    )
    workers = limit_cores / (server * now.servers / now.workers + worker)
    servers = ceil((limit_cores - workers * worker) / now.server_cpus - 1e-9)
    return _set_servers(now, (servers, now.server_cpus), at_end_gb)


_KEEP: Final = 0.95
_WORTH: Final = 0.2
"""Least gain of a worker, relative to the mean of earlier ones, for more to be added."""


# -- rules for both
# --------------------------------------------------------------------------------------------------


def hot_servers(
    now: JobResources, seen: Sequence[Measurement], *, with_history: bool
) -> JobResources:
    """Return resources with larger servers if they lack cores, or lacked memory at all checks."""
    used = max(item.server_cpus for item in seen)
    cpus = now.server_cpus
    if used > (HOT_CPU if with_history else _FULL) * cpus:
        grown = min(
            MAX_CORES,
            float(
                ceil(
                    used
                    * min(
                        (MAX_FIRST_WORKERS if with_history else MAX_WORKERS) / now.workers,
                        MAX_CORES / used,
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
        gb = max(gb, min(gb + STEP_GB, MAX_GB))
    return now._replace(server_cpus=cpus, server_gb=gb)


_FULL: Final = 0.9


def after_oom(
    now: JobResources, role: str, requested: JobResources, *, watched: bool
) -> JobResources:
    """Return more memory or servers for a job with a replica of this role out of memory.

    All servers of a job are equal here. If they were `watched`, none needs more than the others, so
    their number is doubled instead of their memory.
    """
    if role == "worker":
        return now._replace(
            worker_gb=_raise_gb(now.worker_gb, max(2 * now.worker_gb, requested.worker_gb))
        )
    most = max(MAX_SERVERS, requested.servers)
    if now.server_gb < MAX_GB and not (watched and 2 * now.servers <= most):
        return now._replace(server_gb=min(2 * now.server_gb, MAX_GB))
    return now._replace(servers=min(2 * now.servers, most))


def halve_resources(now: JobResources) -> JobResources:
    """Return half the cores and memory per replica, with a floor, for a job that waits long."""
    cpus = [max(cores / 2, min(cores, _MIN_CORES)) for cores in (now.worker_cpus, now.server_cpus)]
    gb = [max(memory / 2, min(memory, _MIN_GB)) for memory in (now.worker_gb, now.server_gb)]
    return now._replace(worker_cpus=cpus[0], worker_gb=gb[0], server_cpus=cpus[1], server_gb=gb[1])


def final_gb(first: tuple[float, float], last: tuple[float, float]) -> float:
    """Return the memory of all servers, extrapolated to the end of the job.

    From two measurements (work left, GB); without growth the last value is returned.
    """
    (left_before, gb_before), (left, gb) = first, last
    return (
        gb + (gb - gb_before) / (left_before - left) * left
        if left_before > left and gb > gb_before + 1e-9
        else gb
    )


def _set_servers(now: JobResources, size: tuple[int, float], end_gb: float) -> JobResources:
    """Return resources with these servers, with enough memory for the end of the job."""
    servers = min(max(size[0], 1, servers_for_memory(end_gb) if now.server_gb else 1), MAX_SERVERS)
    gb = round_up_gb(min(SPARE * end_gb / servers, MAX_GB)) if now.server_gb else 0.0
    return now._replace(servers=servers, server_cpus=size[1], server_gb=gb)


def servers_for_memory(gb: float) -> int:
    """Return the fewest servers that can hold this much memory in total."""
    return ceil(SPARE * gb / MAX_GB - 1e-9)


def _round_cores(cpus: float) -> float:
    """Return whole cores within the limits of a replica."""
    return min(max(float(ceil(cpus - 1e-9)), 1.0), MAX_CORES)


def _raise_gb(now_gb: float, wanted_gb: float) -> float:
    """Return a raised memory request, by at most the step and up to the maximum; 0 stays 0."""
    return round_up_gb(min(wanted_gb, now_gb + STEP_GB, MAX_GB)) if now_gb else 0.0


def round_up_gb(value: float) -> float:
    """Return an amount of memory rounded up to a tenth of a GB."""
    return ceil(value * 10 - 1e-6) / 10


COLD: Final = JobResources(1, 12.0, 16.0, 4, 12.0, 16.0)
"""Initial resources of the first job of a kind."""
_DAY_S: Final = 86_400.0


class FinishedJob(NamedTuple):
    """Measurements of a finished job.

    Its end, mean cores of all servers and of one, most GB of one and of all servers, and most cores
    and GB of a worker.
    """

    finish_s: float
    all_cpus: float
    server_cpus: float
    server_gb: float
    all_gb: float
    worker_cpus: float
    worker_gb: float


class Watched(NamedTuple):
    """All measurements of a job, each with the number of its servers."""

    seen: list[Measurement]
    servers: list[int]

    def past(self, finish_s: float) -> FinishedJob:
        """Return the summary of the measurements for the history."""
        seen, servers = self
        return FinishedJob(
            finish_s,
            central_mean(
                [item.server_cpus * count for item, count in zip(seen, servers, strict=True)]
            ),
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
        Days for which each is kept.
    """

    def __init__(self, days: float) -> None:
        self._days = days
        self._kinds: dict[int, list[FinishedJob]] = {}

    def add(self, kind: int, past: FinishedJob) -> None:
        """Add a finished job to its kind."""
        self._kinds.setdefault(kind, []).append(past)

    def first(self, kind: int, now_s: float) -> JobResources:
        """Return the initial resources of a job from recent jobs of its kind, or the default.

        Jobs finished more than `days` ago are deleted.
        """
        recent = [
            past
            for past in self._kinds.get(kind, ())
            if past.finish_s >= now_s - self._days * _DAY_S
        ]
        if not recent:
            return COLD
        self._kinds[kind] = recent
        return initial_resources(recent)


def estimated_resources(usage: Resources | None, servers: int) -> JobResources:
    """Return the initial resources of a job from its estimated usage; the default if unknown."""
    if usage is None:
        return COLD
    cpus, gb = usage.server_cpus, usage.server_gb
    return initial_resources(
        [
            FinishedJob(
                0.0, cpus * servers, cpus, gb, gb * servers, usage.worker_cpus, usage.worker_gb
            )
        ]
    )


def initial_resources(jobs: Sequence[FinishedJob]) -> JobResources:
    """Return resources of a single worker, and of servers for the usage of these jobs."""
    cpus = min(ceil(max(past.server_cpus for past in jobs) - 1e-9) + 4.0, MAX_CORES)
    total = 1.5 * central_mean([past.all_cpus for past in jobs])
    all_gb = max(past.all_gb for past in jobs)
    servers = max(ceil(total / cpus - 1e-9), servers_for_memory(all_gb), 1)
    if servers > MAX_SERVERS:
        servers, cpus = MAX_SERVERS, min(float(ceil(total / MAX_SERVERS - 1e-9)), MAX_CORES)
    return JobResources(
        1,
        min(
            max(COLD.worker_cpus, float(ceil(max(past.worker_cpus for past in jobs) - 1e-9))),
            MAX_CORES,
        ),
        round_up_gb(min(max(COLD.worker_gb, 1.5 * max(past.worker_gb for past in jobs)), MAX_GB)),
        servers,
        cpus,
        round_up_gb(min(SPARE * max(*(past.server_gb for past in jobs), all_gb / servers), MAX_GB)),
    )


def central_mean(values: Sequence[float]) -> float:
    """Return the mean of the half of the values that is nearest to their median."""
    middle = median(values)
    nearest = sorted(values, key=lambda value: abs(value - middle))[: (len(values) + 1) // 2]
    return sum(nearest) / len(nearest)
