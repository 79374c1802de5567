"""What a site sets: the rules of its controller, its partitions and clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final

from allocators.sites.slurm.state import Mask, SlurmJob


@dataclass(frozen=True)
class Timers:
    """When the daemon's clocks tick, in seconds from the zero of the trace.

    Parameters
    ----------
    main_s, backfill_s, priority_s : float
        First instants.
    cycle_s : float
        Length of a backfill cycle, which the next interval waits for; below 0 = by the jobs tested
        and those that run or have plans.
    instants : tuple of float
        Instants of backfill cycles where they are known; then `backfill_s` comes after them.
    clock_s : float
        What the clock of the epoch shows at zero: steps are aligned to it.
    """

    main_s: float = 0.0
    backfill_s: float = 0.0
    priority_s: float = 0.0
    cycle_s: float = -1.0
    instants: tuple[float, ...] = ()
    clock_s: float = 0.0


@dataclass(frozen=True)
class SlurmPartition:
    """Nodes with a queue.

    Parameters
    ----------
    nodes : int
        Mask.
    tier : int
        Jobs of a higher tier are looked at first.
    factor : float
        0 to 1, times the weight of partitions.
    name : str
        What the site calls it.
    up : bool
        Whether jobs start in it.
    """

    nodes: Mask
    tier: int = 1
    factor: float = 1.0
    name: str = ""
    up: bool = True


@dataclass(frozen=True)
class Rules:
    """What a site sets; the names are those of ``slurm.conf``, times are in seconds.

    Parameters
    ----------
    weight_age, weight_fairshare, weight_size, weight_partition : float
        PriorityWeightAge, -Fairshare, -JobSize and -Partition.
    max_age_s, period_s : float, seconds
        PriorityMaxAge, PriorityCalcPeriod.
    favor_small : bool
        PriorityFavorSmall.
    size_by_used : bool
        The size of a job counts the nodes that it needs at least, not those that it asked for.
    multifactor : bool
        False = by submission (priority/basic).
    delay_s, main_interval_s : float, seconds
        batch_sched_delay, sched_interval.
    depth : int
        default_queue_depth.
    backfill : bool
        sched/backfill.
    interval_s, window_s, resolution_s : float, seconds
        bf_interval, bf_window, bf_resolution.
    most_tested, most_per_user : float
        bf_max_job_test, bf_max_job_user; inf = no limit.
    most_per_part, most_per_user_part, most_per_account, most_per_array : float
        bf_max_job_part, bf_max_job_user_part, bf_max_job_assoc, bf_max_job_array_resv.
    most_plans : float
        For so many jobs nodes are kept; 1 = for the first of the queue only, as EASY does.
    most_plans_part : float
        bf_job_part_count_reserve: for so many jobs of a partition nodes are kept.
    most_started, most_started_pass : float
        bf_max_job_start of a cycle, sched_max_job_start of a pass.
    depth_per_part : float
        partition_job_depth of a pass after an event.
    least_age_s, least_priority : float
        bf_min_age_reserve, bf_min_prio_reserve: below them no nodes are kept for a job.
    one_plan : bool
        bf_one_resv_per_job: a job in several partitions is planned in the first only.
    linear : bool
        bf_window_linear: steps widen by 30 s each instead of doubling.
    defer : bool
        Nothing starts at the submission itself.
    limit_stops : bool
        assoc_limit_stop: a job at a limit holds up its partition.
    reset : str
        PriorityUsageResetPeriod: when all usage becomes 0.
    never_lowered : bool
        INCR_ONLY: priorities only rise.
    by_time : bool
        SMALL_RELATIVE_TO_TIME: sizes count per minute of the time limit.
    accrue_always : bool
        ACCRUE_ALWAYS: the wait counts from the submission on, not from when the job may start.
    """

    weight_age: float = 0.0
    weight_fairshare: float = 0.0
    weight_size: float = 0.0
    weight_partition: float = 0.0
    max_age_s: float = 604_800.0
    period_s: float = 300.0
    favor_small: bool = False
    size_by_used: bool = False
    multifactor: bool = True
    delay_s: float = 3.0
    main_interval_s: float = 60.0
    depth: int = 100
    backfill: bool = True
    interval_s: float = 30.0
    window_s: float = 86_400.0
    resolution_s: float = 60.0
    most_tested: float = 500.0
    most_per_user: float = inf
    most_per_part: float = inf
    most_per_user_part: float = inf
    most_per_account: float = inf
    most_per_array: float = inf
    most_plans: float = inf
    most_plans_part: float = inf
    most_started: float = inf
    most_started_pass: float = inf
    depth_per_part: float = inf
    least_age_s: float = 0.0
    least_priority: float = 0.0
    one_plan: bool = False
    linear: bool = False
    defer: bool = False
    limit_stops: bool = False
    reset: str = "NONE"
    never_lowered: bool = False
    by_time: bool = False
    accrue_always: bool = False


def caps(rules: Rules) -> list[tuple[Callable[[SlurmJob], object], float]]:
    """Return what is counted of the jobs that a cycle tests, and up to which number; where None is,
    nothing is.
    """
    found: list[tuple[Callable[[SlurmJob], object], float]] = [
        (lambda job: job.user, rules.most_per_user),
        (lambda job: job.partition, rules.most_per_part),
        (lambda job: (job.user, job.partition), rules.most_per_user_part),
        (lambda job: (job.account, job.user, ""), rules.most_per_account),
        (lambda job: (job.array,) if job.array else None, rules.most_per_array),
    ]
    return [(of, most) for of, most in found if most < inf]


def next_reset_s(period: str, at_s: float) -> float:
    """Return when usage is reset next after an instant, both in seconds since 1970; inf = never."""
    at = datetime.fromtimestamp(at_s, UTC)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "DAILY":
        found = day + timedelta(days=1)
    elif period == "WEEKLY":
        # Weeks begin with their Sunday.
        found = day + timedelta(days=7 - day.isoweekday() % 7)
    elif period in _MONTHS:
        months = _MONTHS[period]
        behind = (day.month - 1) // months * months + months
        found = day.replace(year=day.year + behind // 12, month=behind % 12 + 1, day=1)
    else:
        return inf
    return found.timestamp()


_MONTHS: Final = {"MONTHLY": 1, "QUARTERLY": 3, "YEARLY": 12}
