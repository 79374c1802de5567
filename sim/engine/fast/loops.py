"""The loop of queues in which a running job is never stopped: jobs start in a fixed order, and the
first without room holds up the others, or is skipped.

At an instant first come arrivals and ends, then one decision, as in `sim.engine.simulator`. See
`sim.engine.fast.room` for how this is compiled.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from sim.clock import LATEST_S, PER_S, STEP_S, WHOLE
from sim.engine.fast.room import SPOTS, Room, give, place_in

NEXT, RUNNING, WAITING, SETTLED, STINTS, CLOSED, DECISIONS, STUCK = range(8)
"""What `Run.at` counts: the next job to arrive, jobs that run, wait and are settled, stints begun
and closed, decisions, and the rank of the first job if it had no room.
"""
GOES_ON, OVER, ENDLESS = range(3)
"""Whether a loop has more to do, has settled all jobs, or met what only the general simulator
knows how to treat.
"""


class JobArrays(NamedTuple):
    """What is known of the jobs beforehand.

    Parameters
    ----------
    submit_s, work : array of float64, shape (jobs,)
        As the trace and the performance model say.
    kind : array of int32, shape (jobs,)
        The demand of each job; -1 = impossible.
    rank, by_rank : array of int32, shape (jobs,)
        Place of each job in the order, and which job has it.
    need : array of int64, shape (kinds,)
        GPUs of each demand.
    groups : array of int64, shape (kinds + 1,)
        Where the pools of each demand begin in the next two.
    pool, ever : array of int64
        Pools that a demand may use, in the order in which they are tried, and the number of nodes
        that it takes of each when that is empty.
    rate : array of float64, shape (pools,)
        Work per second in each pool.
    start_s : float, seconds
        Pause at a start.
    how : int
        How nodes are chosen.
    several, locked : bool
        Whether jobs without room are skipped, and wait in one lane for each demand; whether the
        first job without room keeps its place before all that come later.
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
    how: int
    several: bool
    locked: bool


class Run(NamedTuple):
    """What changes, and the record.

    A stint is what a job runs without interruption; they are numbered by their beginning.

    Parameters
    ----------
    at : array of int64
        See `NEXT`.
    ends : array of int32
        Running stints as a heap by `until_s` and number.
    stint_job, stint_pool : array of int32, shape (stints,)
        Whose it is, and where.
    stint_first, stint_spots : array of int32, shape (stints,)
        The first of its spots, and their number.
    began_s, until_s : array of float64, shape (stints,)
        When it began, and ends.
    closed : array of int32, shape (stints,)
        Stints in the order of their ends.
    ended : array of int8, shape (stints,)
        How each ended, see `sim.engine.record`.
    decided_s : array of float64
        Instant of each decision.
    decided : array of int32
        Of each decision the changes, and jobs that wait and run after it.
    lanes : array of int32, shape (jobs,)
        Ranks of waiting jobs, a heap for each demand, or one for all; -1 - job before all ranks.
    lane_base, lane_size : array of int64
        Where each heap begins in it, and how many it holds.
    hopeful : array of int64, shape (lanes,)
        See `_IDLE`.
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
    decided_s: Any
    decided: Any
    lanes: Any
    lane_base: Any
    lane_size: Any
    hopeful: Any


_IDLE, _FED, _OPEN, _FULL = range(4)
"""A lane that is empty, one that was empty and is not any more, one whose first job may have room,
and one whose first job has none until something comes free.
"""


def push(heap: Any, base: int, size: int, item: int) -> None:
    """Add a number to a heap."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        other = heap[base + above]
        if other <= item:
            break
        heap[base + at] = other
        at = above
    heap[base + at] = item


def pop(heap: Any, base: int, size: int) -> None:
    """Remove the least number of a heap."""
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


def push_end(run: Run, stint: int) -> None:
    """Add a running stint to the heap of ends."""
    ends, until_s, at = run.ends, run.until_s, run.at[RUNNING]
    own_s = until_s[stint]
    while at > 0:
        above = (at - 1) >> 1
        # A stint that begins has a higher number than those that run.
        if until_s[ends[above]] <= own_s:
            break
        ends[at] = ends[above]
        at = above
    ends[at] = stint


def pop_end(run: Run) -> int:
    """Remove the running stint that ends first, of several the one that began first."""
    ends, until_s, size = run.ends, run.until_s, run.at[RUNNING] - 1
    first, item = ends[0], ends[size]
    own_s, at, below = until_s[item], 0, 1
    while below < size:
        if below + 1 < size and goes_first(until_s, ends[below + 1], ends[below]):
            below += 1
        other = ends[below]
        if until_s[other] > own_s or (until_s[other] == own_s and other > item):
            break
        ends[at] = other
        at, below = below, 2 * below + 1
    ends[at] = item
    return int(first)


def goes_first(until_s: Any, one: int, other: int) -> bool:
    """Tell whether a stint ends before another one."""
    return bool(until_s[one] < until_s[other] or (until_s[one] == until_s[other] and one < other))


def nearest(at_s: float) -> float:
    """Return the instant nearest to a time, as `sim.clock.instant` does."""
    return (at_s * PER_S + WHOLE - WHOLE) / PER_S


def end_of(now_s: float, resume_s: float, left: float, rate: float) -> float:
    """Return the instant at which so much work is done, see `sim.engine.execution`."""
    at_s = nearest(resume_s + left / rate)
    if at_s > now_s:
        return at_s
    return nearest(now_s + STEP_S)


def begin(run: Run, jobs: JobArrays, room: Room, job: int, pool: int, now_s: float) -> bool:
    """Begin the only stint of a job on the spots written last; tell whether the clock is long
    enough for it.
    """
    at, stint, resume_s, first = run.at, run.at[STINTS], now_s, 0
    if stint:
        first = run.stint_first[stint - 1] + run.stint_spots[stint - 1]
    if jobs.start_s > 0:
        resume_s = nearest(now_s + jobs.start_s)
    until_s = end_of(now_s, resume_s, jobs.work[job], jobs.rate[pool])
    run.stint_job[stint], run.stint_pool[stint] = job, pool
    run.stint_first[stint], run.stint_spots[stint] = first, room.at[SPOTS] - first
    run.began_s[stint], run.until_s[stint] = now_s, until_s
    push_end(run, stint)
    at[STINTS] = stint + 1
    at[RUNNING] += 1
    at[WAITING] -= 1
    return until_s <= LATEST_S


def close(run: Run, room: Room, now_s: float) -> bool:
    """Close the stints that end now; tell whether there are any."""
    at = run.at
    before = at[CLOSED]
    while at[RUNNING] and run.until_s[run.ends[0]] == now_s:
        stint = pop_end(run)
        at[RUNNING] -= 1
        give(room, run.stint_pool[stint], run.stint_first[stint], run.stint_spots[stint])
        run.closed[at[CLOSED]] = stint
        at[CLOSED] += 1
        at[SETTLED] += 1
    return bool(at[CLOSED] > before)


def arrive(run: Run, jobs: JobArrays, now_s: float) -> bool:
    """Let jobs that are submitted now join their queue; tell whether there are any."""
    at, job, count = run.at, run.at[NEXT], len(jobs.submit_s)
    before = at[WAITING]
    while job < count and jobs.submit_s[job] <= now_s:
        kind = jobs.kind[job]
        if kind < 0:
            at[SETTLED] += 1
        else:
            lane = kind if jobs.several else 0
            push(run.lanes, run.lane_base[lane], run.lane_size[lane], jobs.rank[job])
            run.lane_size[lane] += 1
            if run.hopeful[lane] == _IDLE:
                run.hopeful[lane] = _FED
            at[WAITING] += 1
        job += 1
    at[NEXT] = job
    return bool(at[WAITING] > before)


def place(room: Room, jobs: JobArrays, kind: int) -> int:
    """Take room for a gang where it prefers to be; return the pool."""
    for group in range(jobs.groups[kind], jobs.groups[kind + 1]):
        pool = jobs.pool[group]
        if place_in(room, pool, jobs.need[kind], jobs.how, jobs.ever[group]):
            return int(pool)
    return -1


def start_first(run: Run, jobs: JobArrays, room: Room, now_s: float) -> bool:
    """Start jobs in order until the first that has no room."""
    while run.lane_size[0]:
        rank = run.lanes[0]
        job = jobs.by_rank[rank] if rank >= 0 else -1 - rank
        pool = place(room, jobs, jobs.kind[job])
        if pool < 0:
            if jobs.locked:
                run.lanes[0] = -1 - job
            run.at[STUCK] = run.lanes[0]
            return True
        pop(run.lanes, 0, run.lane_size[0])
        run.lane_size[0] -= 1
        if not begin(run, jobs, room, job, pool, now_s):
            return False
    return True


def open_lanes(run: Run, jobs: JobArrays, room: Room, freed: bool) -> None:
    """Find the queues whose first job may have room now: those that somebody joined, or, if
    something came free, all.
    """
    for lane in range(len(run.lane_size)):
        state = run.hopeful[lane]
        if run.lane_size[lane] == 0:
            run.hopeful[lane] = _IDLE
        elif freed or state == _FED:
            run.hopeful[lane] = _FULL
            for group in range(jobs.groups[lane], jobs.groups[lane + 1]):
                if room.free[jobs.pool[group]] >= jobs.need[lane]:
                    run.hopeful[lane] = _OPEN


def start_any(run: Run, jobs: JobArrays, room: Room, now_s: float, freed: bool) -> bool:
    """Start jobs in order, skipping those without room."""
    open_lanes(run, jobs, room, freed)
    while True:
        best = -1
        for lane in range(len(run.lane_size)):
            if run.hopeful[lane] == _OPEN and (
                best < 0 or run.lanes[run.lane_base[lane]] < run.lanes[run.lane_base[best]]
            ):
                best = lane
        if best < 0:
            return True
        pool = place(room, jobs, best)
        if pool < 0:
            run.hopeful[best] = _FULL
            continue
        job = jobs.by_rank[run.lanes[run.lane_base[best]]]
        pop(run.lanes, run.lane_base[best], run.lane_size[best])
        run.lane_size[best] -= 1
        if run.lane_size[best] == 0:
            run.hopeful[best] = _IDLE
        if not begin(run, jobs, room, job, pool, now_s):
            return False


def decide(run: Run, jobs: JobArrays, room: Room, now_s: float, freed: bool) -> bool:
    """Make a decision and note it; tell whether the clock is long enough for it."""
    at = run.at
    before, fits = at[STINTS], True
    if jobs.several:
        fits = start_any(run, jobs, room, now_s, freed)
    elif freed or run.lane_size[0] == 0 or run.lanes[0] != at[STUCK]:
        fits = start_first(run, jobs, room, now_s)
    note(run, now_s, at[STINTS] - before)
    return fits


def note(run: Run, now_s: float, changed: int) -> None:
    """Note a decision in the record."""
    at = run.at
    row = at[DECISIONS]
    run.decided_s[row] = now_s
    run.decided[3 * row] = changed
    run.decided[3 * row + 1] = at[WAITING]
    run.decided[3 * row + 2] = at[RUNNING]
    at[DECISIONS] = row + 1


def next_instant(run: Run, jobs: JobArrays) -> float:
    """Return when something happens next; infinity = never."""
    now_s: float = inf
    if run.at[NEXT] < len(jobs.submit_s):
        now_s = jobs.submit_s[run.at[NEXT]]
    if run.at[RUNNING] and run.until_s[run.ends[0]] < now_s:
        now_s = run.until_s[run.ends[0]]
    return now_s


def run_queue(run: Run, jobs: JobArrays, room: Room, steps: int) -> int:
    """Run on for some instants; return `GOES_ON`, `OVER` or `ENDLESS`."""
    for _ in range(steps):
        now_s = next_instant(run, jobs)
        if now_s == inf:
            return ENDLESS
        arrived = arrive(run, jobs, now_s)
        freed = close(run, room, now_s)
        if run.at[SETTLED] == len(jobs.submit_s):
            return OVER
        if (arrived or freed) and not decide(run, jobs, room, now_s, freed):
            return ENDLESS
    return GOES_ON
