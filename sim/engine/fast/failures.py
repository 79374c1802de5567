"""Failures of nodes and jobs over arrays, as in `sim.engine.faults` and `sim.engine.execution`.

See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from sim.clock import STEP_S
from sim.engine.fast.free_gpus import SPOTS, Room, shift_gpus
from sim.engine.fast.loops import (
    CLOSED,
    CONTINUES,
    DECISIONS,
    NEXT,
    OVER,
    RUNNING,
    SETTLED,
    STINTS,
    UNKNOWN,
    UNSUPPORTED,
    WAITING,
    JobArrays,
    Run,
    is_settled,
    pop_end,
)

EVENT, ENDLESS, SETTLED_THEN, DECISIONS_THEN, STINTS_THEN, EVICTIONS = range(6)
"""Indices of `Failures.at`: next node event; whether a job was evicted too often; settled jobs,
decisions and stints when a job was last settled; evictions of this instant.
"""
EVICTED = 3
"""As in `sim.engine.record`."""
_MAX_EVICTIONS = 10_000
_MIN_DECISIONS, _MIN_STOPS, _PER_JOB = 10_000, 2_000, 9
"""At or below the limits of `sim.engine.give_up`."""


class Failures(NamedTuple):
    """Node events and the costs of failures.

    Parameters
    ----------
    at : array of int64
        See `EVENT`.
    can_fail : bool
        Whether nodes or jobs fail at all.
    at_s : array of float64, shape (events + 1,)
        Instant of each node event that is known. Then inf, or -1 if later ones are not known yet.
    slot, change : array of int32 and int8, shape (events,)
        Slot of the node, and 1 if it returns, -1 if it fails, 0 if it remains down.
    is_joined : array of int8, shape (events,)
        Whether the event comes with the one before: both apply even if the run ends between them.
    is_pending : array of int8, shape (events,)
        Whether a node that is down after the instant of the event will return.
    pool, gpus : array of int64, shape (slots,)
        Pool and GPUs of each node.
    hit : array of int32
        Stints on a failed node, by job.
    waits_again : array of int32
        Jobs evicted at this instant that wait again.
    every_s, period_s : float, seconds
        Progress between two checkpoints, 0 = none; with the time to save one.
    retries : int
        Evictions after which a job has failed; -1 = never.
    margin : int
        Most spots that a decision without preemption writes.
    lost : array of float64, shape (stints,)
        Work that each evicted stint lost.
    evicted : array of int32, shape (jobs,)
        Evictions of each job so far.
    left, work : array of float64, shape (jobs,)
        True work left at the last begin or end of a stint, and true work of each job.
    restart_s : float, seconds
        Pause of a restart.
    total, rate, weight : array of float64, shape (jobs,), (kinds,) and (kinds,)
        Estimated work, work per second in the preferred pool, and factor of the run time, for keys
        by run time; else empty.
    """

    at: Any
    can_fail: bool
    at_s: Any
    slot: Any
    change: Any
    is_joined: Any
    is_pending: Any
    pool: Any
    gpus: Any
    hit: Any
    waits_again: Any
    every_s: float
    period_s: float
    retries: int
    margin: int
    lost: Any
    evicted: Any
    left: Any
    work: Any
    restart_s: float
    total: Any
    rate: Any
    weight: Any


def status_before(run: Run, jobs: JobArrays, room: Room, failures: Failures, now_s: float) -> int:
    """Return the result of a loop before an instant; `CONTINUES` = the instant is next."""
    if failures.at_s[failures.at[EVENT]] < 0:
        return UNKNOWN
    if now_s > jobs.horizon_s:
        return OVER
    if (
        now_s == inf
        or not has_space(run)
        or (room.at[SPOTS] + failures.margin >= len(room.spot_slot))
    ):
        return UNSUPPORTED
    return CONTINUES


def pop_node_event(run: Run, jobs: JobArrays, failures: Failures, now_s: float) -> int:
    """Return the next event of this instant that changes a node; -1 = none, or all are settled."""
    at = failures.at
    while failures.at_s[at[EVENT]] == now_s and (
        failures.is_joined[at[EVENT]] or not is_settled(run, jobs)
    ):
        at[EVENT] += 1
        if failures.change[at[EVENT] - 1]:
            return int(at[EVENT]) - 1
    return -1


def drop_end(run: Run, stint: int) -> None:
    """Remove a stint from the heap of ends."""
    # A stopped job would have ended late, so searching from the end is faster.
    ends, at = run.ends, run.at[RUNNING] - 1
    while ends[at] != stint:
        at -= 1
    # It moves to the front, as if it ended first, and is removed there.
    while at > 0:
        above = (at - 1) >> 1
        ends[at] = ends[above]
        at = above
    ends[0] = stint
    pop_end(run)


def find_stints_on(run: Run, room: Room, failures: Failures, slot: int) -> int:
    """List the running stints on a node in `Failures.hit`, by job; return their number."""
    count, hit = 0, failures.hit
    if room.level[slot] == failures.gpus[slot]:
        return 0
    for at in range(run.at[RUNNING]):
        stint = run.ends[at]
        first = run.stint_first[stint]
        for spot in range(first, first + run.stint_spots[stint]):
            if room.spot_slot[spot] == slot:
                place = count
                while place > 0 and run.stint_job[hit[place - 1]] > run.stint_job[stint]:
                    hit[place] = hit[place - 1]
                    place -= 1
                hit[place] = stint
                count += 1
                break
    return count


def move_node(room: Room, failures: Failures, event: int) -> None:
    """Take an empty node out of service, or return it."""
    slot = failures.slot[event]
    pool, gpus = failures.pool[slot], failures.gpus[slot]
    # a node that is down counts as fully taken
    shift_gpus(room, pool, slot - room.base[5 * pool], -failures.change[event] * gpus)


def lose_work(
    run: Run, jobs: JobArrays, failures: Failures, stint: int, resume_s: float, now_s: float
) -> None:
    """Update the work left of an evicted job, which loses its work since the last checkpoint."""
    job, rate = run.stint_job[stint], jobs.rate[run.stint_pool[stint]]
    moving_s = now_s - max(run.began_s[stint], resume_s)
    failures.lost[stint] = 0.0
    if moving_s <= 0:
        return
    lost = rate * moving_s
    if failures.every_s > 0:
        saves = (moving_s + STEP_S / 2) // failures.period_s
        if saves > 0:
            lost = rate * max(moving_s - saves * failures.period_s, 0.0)
    failures.left[job] -= rate * moving_s
    if lost > 0:
        failures.left[job] += lost
        failures.lost[stint] = lost


def evict_job(
    run: Run, jobs: JobArrays, failures: Failures, stint: int, resume_s: float, now_s: float
) -> bool:
    """Close the stint of a job that loses its GPUs; return True if the job waits again."""
    at, job = run.at, run.stint_job[stint]
    drop_end(run, stint)
    lose_work(run, jobs, failures, stint, resume_s, now_s)
    run.until_s[stint], run.ended[stint] = now_s, EVICTED
    run.closed[at[CLOSED]] = stint
    at[CLOSED] += 1
    at[RUNNING] -= 1
    failures.evicted[job] += 1
    if failures.evicted[job] > _MAX_EVICTIONS:
        failures.at[ENDLESS] = 1
    if 0 <= failures.retries < failures.evicted[job]:
        at[SETTLED] += 1
        return False
    at[WAITING] += 1
    failures.waits_again[failures.at[EVICTIONS]] = job
    failures.at[EVICTIONS] += 1
    return True


def set_run_time_key(run: Run, jobs: JobArrays, failures: Failures, job: int) -> None:
    """Set the key of an evicted job to its estimated remaining run time, if the rule reads it."""
    if len(failures.total) == 0:
        return
    kind, done, total = jobs.kind[job], failures.work[job] - failures.left[job], failures.total[job]
    left = total - done
    if total <= done:
        left = 1e-6
        if done - total >= 1e-6:
            while total <= done:
                total *= 2
            failures.total[job] = total
            left = total - done
    run.key[job] = left / failures.rate[kind] * failures.weight[kind]


def has_space(run: Run) -> bool:
    """Return True if the arrays of the record have space for another decision."""
    most = len(run.ends)
    stints, decisions = len(run.stint_job), len(run.decided_s)
    return bool(run.at[STINTS] + most < stints and run.at[DECISIONS] + 1 < decisions)


def may_give_up(run: Run, jobs: JobArrays, failures: Failures) -> bool:
    """Return True if the general simulator might give up the run after the last decision.

    Tests looser limits than `sim.engine.give_up`: progress of jobs does not count.
    """
    at, then = run.at, failures.at
    arrives = at[NEXT] < len(jobs.submit_s)
    if arrives or at[SETTLED] > then[SETTLED_THEN]:
        then[SETTLED_THEN], then[DECISIONS_THEN] = at[SETTLED], at[DECISIONS]
        then[STINTS_THEN] = at[STINTS]
    if arrives or then[ENDLESS]:
        return bool(then[ENDLESS])
    active = at[WAITING] + at[RUNNING]
    if at[DECISIONS] - then[DECISIONS_THEN] >= _MIN_DECISIONS + _PER_JOB * active:
        return True
    if at[STINTS] - then[STINTS_THEN] >= _MIN_STOPS + _PER_JOB * active:
        return True
    has_changes = run.decided[3 * (at[DECISIONS] - 1)] > 0
    is_stuck = not has_changes and at[RUNNING] == 0 and at[WAITING] > 0
    return bool(is_stuck and not (then[EVENT] and failures.is_pending[then[EVENT] - 1]))
