"""State of a run that all loops share: jobs, stints, their ends, and decisions.

See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from sim.clock import LATEST_S, PER_S, STEP_S, WHOLE
from sim.engine.fast.free_gpus import SPOTS, Room, free_spots, place_in_pool

NEXT, RUNNING, WAITING, SETTLED, STINTS, CLOSED, DECISIONS, STUCK = range(8)
"""Indices of `Run.at`: next job to arrive; running, waiting and settled jobs; begun and closed
stints; decisions; the first job if it did not fit.
"""
CONTINUES, OVER, UNSUPPORTED, UNKNOWN = range(4)
"""Results of a loop: more to do, the end, a case for the general simulator only, or node events
that are not known yet.
"""


class JobArrays(NamedTuple):
    """Data of the jobs that is known before the run.

    Parameters
    ----------
    submit_s, work : array of float64, shape (jobs,)
        Submission times, and true work of each job; after an eviction its work left, unless jobs
        are stopped.
    kind : array of int32, shape (jobs,)
        The demand of each job; -1 = impossible.
    rank, by_rank : array of int32, shape (jobs,)
        Rank of each job in the order, and job of each rank.
    need : array of int64, shape (kinds,)
        GPUs of each demand.
    groups : array of int64, shape (kinds + 1,)
        Index of the first pool of each demand in the next two.
    pool, ever : array of int64
        Pools that a demand may use, in order of preference, and the number of nodes that it needs
        of each when empty.
    rate : array of float64, shape (pools,)
        Work per second in each pool.
    start_s : float, seconds
        Pause at a first start.
    pause_s : array of float64, shape (jobs,)
        Pause at the next start of each job that is never stopped.
    how : int
        Way to choose nodes.
    several, locked : bool
        Whether jobs that do not fit are skipped, and wait in one lane per demand; whether the
        first job that does not fit keeps its place before all later ones.
    horizon_s : float, seconds
        Latest end of the run.
    drains : bool
        Whether the run ends when all jobs are settled.
    """

    submit_s: Any
    work: Any
    kind: Any
    rank: Any
    by_rank: Any
    need: Any
    groups: Any
    pool: Any
    ever: Any
    rate: Any
    start_s: float
    pause_s: Any
    how: int
    several: bool
    locked: bool
    horizon_s: float
    drains: bool


class Run(NamedTuple):
    """State and record of a run.

    A stint is a period in which a job runs without interruption; stints are numbered by their
    begin.

    Parameters
    ----------
    at : array of int64
        See `NEXT`.
    ends : array of int32
        Running stints as a heap by `until_s` and number.
    stint_job, stint_pool : array of int32, shape (stints,)
        Job and pool of each stint.
    stint_first, stint_spots : array of int32, shape (stints,)
        First spot and number of spots of each stint.
    began_s, until_s : array of float64, shape (stints,)
        Begin and end of each stint.
    closed : array of int32, shape (stints,)
        Stints in the order of their ends.
    ended : array of int8, shape (stints,)
        Ending of each stint, see `sim.engine.record`.
    key : array of float64, shape (jobs,)
        Key of each job if keys change during the run, else empty.
    decided_s : array of float64
        Instant of each decision.
    decided : array of int32
        Changes of each decision, and waiting and running jobs after it.
    lanes : array of int32, shape (jobs,)
        Ranks of waiting jobs, one heap per demand or one for all; -1 - job = before all ranks. With
        `key` the jobs.
    lane_base, lane_size : array of int64
        Begin of each heap in `lanes`, and its size.
    lane_state : array of int64, shape (lanes,)
        State of each lane, see `_EMPTY`.
    """

    at: Any
    ends: Any
    stint_job: Any
    stint_pool: Any
    stint_first: Any
    stint_spots: Any
    began_s: Any
    until_s: Any
    closed: Any
    ended: Any
    key: Any
    decided_s: Any
    decided: Any
    lanes: Any
    lane_base: Any
    lane_size: Any
    lane_state: Any


def heap_push(heap: Any, base: int, size: int, item: int) -> None:
    """Add a number to a heap at `base`; the caller updates the size."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        other = heap[base + above]
        if other <= item:
            break
        heap[base + at] = other
        at = above
    heap[base + at] = item


def heap_pop(heap: Any, base: int, size: int) -> None:
    """Remove the smallest number of a heap at `base`; the caller updates the size."""
    item, size = heap[base + size - 1], size - 1
    at, below = 0, 1
    while below < size:
        if below + 1 < size and heap[base + below + 1] < heap[base + below]:
            below += 1
        other = heap[base + below]
        if other >= item:
            break
        heap[base + at] = other
        at, below = below, 2 * below + 1
    heap[base + at] = item


def push_by(heap: Any, values: Any, base: int, size: int, item: int) -> None:
    """Add an item to a heap by value at `base`; the caller updates the size."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if goes_first(values, heap[base + above], item):
            break
        heap[base + at] = heap[base + above]
        at = above
    heap[base + at] = item


def pop_by(heap: Any, values: Any, base: int, size: int) -> int:
    """Remove and return the item with the smallest value; the caller updates the size."""
    first, item, size = heap[base], heap[base + size - 1], size - 1
    at, below = 0, 1
    while below < size:
        if below + 1 < size and goes_first(values, heap[base + below + 1], heap[base + below]):
            below += 1
        if goes_first(values, item, heap[base + below]):
            break
        heap[base + at] = heap[base + below]
        at, below = below, 2 * below + 1
    heap[base + at] = item
    return int(first)


def goes_first(values: Any, one: int, other: int) -> bool:
    """Return True if an item has a smaller value than another one; ties by number."""
    return bool(values[one] < values[other] or (values[one] == values[other] and one < other))


def push_end(run: Run, stint: int) -> None:
    """Add a running stint to the heap of ends; the caller counts it in `RUNNING`."""
    push_by(run.ends, run.until_s, 0, run.at[RUNNING], stint)


def pop_end(run: Run) -> int:
    """Remove and return the running stint that ends first; ties by begin."""
    return pop_by(run.ends, run.until_s, 0, run.at[RUNNING])


def nearest_instant(at_s: float) -> float:
    """Return the instant nearest to a time, as `sim.clock.instant` does."""
    return (at_s * PER_S + WHOLE - WHOLE) / PER_S


def end_instant(now_s: float, resume_s: float, left: float, rate: float) -> float:
    """Return the instant at which the work left is done, at the earliest one step after now."""
    at_s = nearest_instant(resume_s + left / rate)
    if at_s > now_s:
        return at_s
    return nearest_instant(now_s + STEP_S)


def begin_stint(run: Run, jobs: JobArrays, room: Room, job: int, pool: int, now_s: float) -> bool:
    """Begin a stint of a job that is never stopped, on the last written spots.

    False = it ends after `LATEST_S`, or no work is left.
    """
    at, stint, resume_s, first = run.at, run.at[STINTS], now_s, 0
    if stint:
        first = run.stint_first[stint - 1] + run.stint_spots[stint - 1]
    if jobs.pause_s[job] > 0:
        resume_s = nearest_instant(now_s + jobs.pause_s[job])
    until_s = end_instant(now_s, resume_s, jobs.work[job], jobs.rate[pool])
    run.stint_job[stint], run.stint_pool[stint] = job, pool
    run.stint_first[stint], run.stint_spots[stint] = first, room.at[SPOTS] - first
    run.began_s[stint], run.until_s[stint] = now_s, until_s
    push_end(run, stint)
    at[STINTS] = stint + 1
    at[RUNNING] += 1
    at[WAITING] -= 1
    return bool(until_s <= LATEST_S and jobs.work[job] > 0)


def close_ended_stints(run: Run, room: Room, now_s: float) -> bool:
    """Close the stints that end now and free their GPUs; return True if there are any."""
    at = run.at
    before = at[CLOSED]
    while at[RUNNING] and run.until_s[run.ends[0]] == now_s:
        stint = pop_end(run)
        at[RUNNING] -= 1
        free_spots(room, run.stint_pool[stint], run.stint_first[stint], run.stint_spots[stint])
        run.closed[at[CLOSED]] = stint
        at[CLOSED] += 1
        at[SETTLED] += 1
    return bool(at[CLOSED] > before)


def place_gang(room: Room, jobs: JobArrays, kind: int) -> int:
    """Place a gang in the first of its pools that has room; return the pool, -1 = none has."""
    for group in range(jobs.groups[kind], jobs.groups[kind + 1]):
        pool = jobs.pool[group]
        if place_in_pool(room, pool, jobs.need[kind], jobs.how, jobs.ever[group]):
            return int(pool)
    return -1


def record_decision(run: Run, now_s: float, changed: int) -> None:
    """Record a decision: instant, changes, waiting and running jobs."""
    at = run.at
    row = at[DECISIONS]
    run.decided_s[row] = now_s
    run.decided[3 * row] = changed
    run.decided[3 * row + 1] = at[WAITING]
    run.decided[3 * row + 2] = at[RUNNING]
    at[DECISIONS] = row + 1


def next_event_s(run: Run, jobs: JobArrays) -> float:
    """Return the instant of the next arrival or end; inf = none."""
    now_s: float = inf
    if run.at[NEXT] < len(jobs.submit_s):
        now_s = jobs.submit_s[run.at[NEXT]]
    if run.at[RUNNING] and run.until_s[run.ends[0]] < now_s:
        now_s = run.until_s[run.ends[0]]
    return now_s


def is_settled(run: Run, jobs: JobArrays) -> bool:
    """Return True if the run ends because all jobs are settled."""
    return bool(jobs.drains and run.at[SETTLED] == len(jobs.submit_s))
