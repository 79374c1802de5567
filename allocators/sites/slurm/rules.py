"""Scheduling rules of a site: controller settings, partitions and clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final

from allocators.sites.slurm.state import Mask, SlurmJob


@dataclass(frozen=True)
class Timers:
    """Times at which the daemon's clocks tick, in seconds from the zero of the trace.

    Parameters
    ----------
    main_s, backfill_s, priority_s : float
        First instants.
    cycle_s : float
        Length of a backfill cycle, added to the interval; below 0 = estimated from the tested,
        running and planned jobs.
    instants : tuple of float
        Recorded start times of backfill cycles; `backfill_s` is used without them.
    clock_s : float
        Seconds since 1970 at the zero of the trace; plan steps are aligned to it.
    """

    main_s: float = 0.0
    backfill_s: float = 0.0
    priority_s: float = 0.0
    cycle_s: float = -1.0
    instants: tuple[float, ...] = ()
    clock_s: float = 0.0


@dataclass(frozen=True)
class SlurmPartition:
    """A partition of the controller: a set of nodes with a queue.

    Parameters
    ----------
    nodes : int
        Bit mask of its nodes.
    tier : int
        Jobs of a higher tier are scheduled first.
    factor : float
        0 to 1, multiplied by PriorityWeightPartition.
    name : str
        Its name at the site.
    up : bool
        True if jobs may start in it.
    """

    nodes: Mask
    tier: int = 1
    factor: float = 1.0
    name: str = ""
    up: bool = True


@dataclass(frozen=True)
class Rules:
    """Controller settings with the meaning of their ``slurm.conf`` keys; times in seconds.

    Parameters
    ----------
    weight_age, weight_fairshare, weight_size, weight_partition : float
        PriorityWeightAge, -Fairshare, -JobSize and -Partition.
    max_age_s, period_s : float, seconds
        PriorityMaxAge, PriorityCalcPeriod.
    favor_small : bool
        PriorityFavorSmall.
    size_by_used : bool
        The size of a job is its minimum number of nodes instead of the requested one.
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
    max_tested, max_per_user : float
        bf_max_job_test, bf_max_job_user; inf = no limit.
    max_per_part, max_per_user_part, max_per_account, max_per_array : float
        bf_max_job_part, bf_max_job_user_part, bf_max_job_assoc, bf_max_job_array_resv.
    max_plans : float
        Maximum number of jobs with planned nodes; 1 = only the first job, as in EASY.
    max_plans_part : float
        bf_job_part_count_reserve: maximum number of planned jobs per partition.
    max_started, max_started_pass : float
        bf_max_job_start per cycle, sched_max_job_start per pass.
    depth_per_part : float
        partition_job_depth of a pass that follows an event.
    min_age_s, min_priority : float
        bf_min_age_reserve, bf_min_prio_reserve: jobs below them get no planned nodes.
    one_plan : bool
        bf_one_resv_per_job: a job in several partitions is planned in the first only.
    linear : bool
        bf_window_linear: steps widen by 30 s each instead of doubling.
    defer : bool
        No job starts at its submission.
    limit_stops : bool
        assoc_limit_stop: a job at a limit blocks its partition.
    reset : str
        PriorityUsageResetPeriod: when all usage becomes 0.
    never_lowered : bool
        INCR_ONLY: priorities only rise.
    by_time : bool
        SMALL_RELATIVE_TO_TIME: sizes are divided by the time limit in minutes.
    accrue_always : bool
        ACCRUE_ALWAYS: age counts from submission, not from eligibility.
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
    max_tested: float = 500.0
    max_per_user: float = inf
    max_per_part: float = inf
    max_per_user_part: float = inf
    max_per_account: float = inf
    max_per_array: float = inf
    max_plans: float = inf
    max_plans_part: float = inf
    max_started: float = inf
    max_started_pass: float = inf
    depth_per_part: float = inf
    min_age_s: float = 0.0
    min_priority: float = 0.0
    one_plan: bool = False
    linear: bool = False
    defer: bool = False
    limit_stops: bool = False
    reset: str = "NONE"
    never_lowered: bool = False
    by_time: bool = False
    accrue_always: bool = False


def backfill_caps(rules: Rules) -> list[tuple[Callable[[SlurmJob], object], float]]:
    """Return the finite limits on jobs tested per cycle: (group key of a job, maximum)."""
    limits: list[tuple[Callable[[SlurmJob], object], float]] = [
        (lambda job: job.user, rules.max_per_user),
        (lambda job: job.partition, rules.max_per_part),
        (lambda job: (job.user, job.partition), rules.max_per_user_part),
        (lambda job: (job.account, job.user, ""), rules.max_per_account),
        # A job without an array belongs to no group.
        (lambda job: (job.array,) if job.array else None, rules.max_per_array),
    ]
    return [(group_of, maximum) for group_of, maximum in limits if maximum < inf]


def next_reset_s(period: str, at_s: float) -> float:
    """Return the next reset of usage after a time; both are seconds since 1970, inf = never."""
    at = datetime.fromtimestamp(at_s, UTC)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "DAILY":
        reset = day + timedelta(days=1)
    elif period == "WEEKLY":
        # Weeks begin with their Sunday.
        reset = day + timedelta(days=7 - day.isoweekday() % 7)
    elif period in _MONTHS:
        months = _MONTHS[period]
        behind = (day.month - 1) // months * months + months
        reset = day.replace(year=day.year + behind // 12, month=behind % 12 + 1, day=1)
    else:
        return inf
    return reset.timestamp()


_MONTHS: Final = {"MONTHLY": 1, "QUARTERLY": 3, "YEARLY": 12}
