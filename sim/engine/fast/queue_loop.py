"""The loop of queues without preemption; a job that does not fit blocks or is skipped.

At an instant first come arrivals and ends, then node events, then one decision, as in
`sim.engine.simulator`. See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf

from sim.engine.fast.failures import (
    EVICTIONS,
    Failures,
    evict_job,
    find_stints_on,
    may_give_up,
    move_node,
    next_instant_s,
    pop_node_event,
    resume_of,
    set_run_time_key,
    status_before,
)
from sim.engine.fast.free_gpus import Room, free_spots
from sim.engine.fast.loops import (
    CONTINUES,
    NEXT,
    OVER,
    SETTLED,
    STINTS,
    STUCK,
    UNSUPPORTED,
    WAITING,
    JobArrays,
    Run,
    begin_stint,
    close_ended_stints,
    goes_first,
    heap_pop,
    heap_push,
    is_settled,
    place_gang,
    pop_by,
    push_by,
    record_decision,
)

_EMPTY, _GREW, _OPEN, _BLOCKED = range(4)
"""States of a lane: empty; no longer empty; its first job may fit; its first job does not fit until
GPUs are freed.
"""


def push_waiting_job(run: Run, jobs: JobArrays, job: int) -> None:
    """Add a job to its lane, by its key if keys change, else by its rank."""
    lane = jobs.kind[job] if jobs.several else 0
    base, size = run.lane_base[lane], run.lane_size[lane]
    if len(run.key):
        push_by(run.lanes, run.key, base, size, job)
    else:
        heap_push(run.lanes, base, size, jobs.rank[job])
    run.lane_size[lane] = size + 1
    if run.lane_state[lane] == _EMPTY:
        run.lane_state[lane] = _GREW


def pop_waiting_job(run: Run, lane: int) -> None:
    """Remove the first job of a lane."""
    base, size = run.lane_base[lane], run.lane_size[lane]
    if len(run.key):
        pop_by(run.lanes, run.key, base, size)
    else:
        heap_pop(run.lanes, base, size)
    run.lane_size[lane] = size - 1


def first_job(run: Run, jobs: JobArrays, lane: int) -> int:
    """Return the first job of a lane."""
    item = run.lanes[run.lane_base[lane]]
    if len(run.key):
        return int(item)
    return int(jobs.by_rank[item] if item >= 0 else -1 - item)


def lane_goes_first(run: Run, one: int, other: int) -> bool:
    """Return True if the first job of a lane goes before that of another one."""
    mine, theirs = run.lanes[run.lane_base[one]], run.lanes[run.lane_base[other]]
    return goes_first(run.key, mine, theirs) if len(run.key) else bool(mine < theirs)


def keep_first(run: Run, job: int) -> None:
    """Keep a job the first of the only lane, whatever comes later."""
    if len(run.key):
        run.key[job] = -inf
    else:
        run.lanes[0] = -1 - job


def add_arrivals(run: Run, jobs: JobArrays, now_s: float) -> bool:
    """Queue the jobs submitted now, or settle impossible ones; True = any job was queued."""
    at, job, count = run.at, run.at[NEXT], len(jobs.submit_s)
    before = at[WAITING]
    while job < count and jobs.submit_s[job] <= now_s:
        kind = jobs.kind[job]
        if kind < 0:
            at[SETTLED] += 1
        else:
            push_waiting_job(run, jobs, job)
            at[WAITING] += 1
        job += 1
    at[NEXT] = job
    return bool(at[WAITING] > before)


def start_in_order(run: Run, jobs: JobArrays, room: Room, now_s: float) -> bool:
    """Start jobs in order until one does not fit; False = a job ends after `LATEST_S`.

    Notes the job that does not fit in `STUCK`; with `locked` it stays first in the queue.
    """
    while run.lane_size[0]:
        job = first_job(run, jobs, 0)
        pool = place_gang(room, jobs, jobs.kind[job])
        if pool < 0:
            if jobs.locked and job != run.at[STUCK]:
                keep_first(run, job)
            run.at[STUCK] = job
            return True
        pop_waiting_job(run, 0)
        if not begin_stint(run, jobs, room, job, pool, now_s):
            return False
    return True


def mark_open_lanes(run: Run, jobs: JobArrays, room: Room, freed: bool) -> None:
    """Set the state of each lane: open if its first job may fit, else blocked or empty.

    Unless GPUs were freed, only of empty lanes and of lanes that are no longer empty.
    """
    for lane in range(len(run.lane_size)):
        state = run.lane_state[lane]
        if run.lane_size[lane] == 0:
            run.lane_state[lane] = _EMPTY
        elif freed or state == _GREW:
            run.lane_state[lane] = _BLOCKED
            for group in range(jobs.groups[lane], jobs.groups[lane + 1]):
                if room.free[jobs.pool[group]] >= jobs.need[lane]:
                    run.lane_state[lane] = _OPEN


def start_fitting(run: Run, jobs: JobArrays, room: Room, now_s: float, freed: bool) -> bool:
    """Start all jobs that fit, in order; False = a job ends after `LATEST_S`."""
    mark_open_lanes(run, jobs, room, freed)
    while True:
        best = -1
        for lane in range(len(run.lane_size)):
            if run.lane_state[lane] == _OPEN and (best < 0 or lane_goes_first(run, lane, best)):
                best = lane
        if best < 0:
            return True
        pool = place_gang(room, jobs, best)
        if pool < 0:
            run.lane_state[best] = _BLOCKED
            continue
        job = first_job(run, jobs, best)
        pop_waiting_job(run, best)
        if run.lane_size[best] == 0:
            run.lane_state[best] = _EMPTY
        if not begin_stint(run, jobs, room, job, pool, now_s):
            return False


def decide_on_queue(run: Run, jobs: JobArrays, room: Room, now_s: float, freed: bool) -> bool:
    """Start jobs in order and record a decision; False = a job ends after `LATEST_S`."""
    at = run.at
    before, fits = at[STINTS], True
    if jobs.several:
        fits = start_fitting(run, jobs, room, now_s, freed)
    elif freed or run.lane_size[0] == 0 or first_job(run, jobs, 0) != at[STUCK]:
        fits = start_in_order(run, jobs, room, now_s)
    record_decision(run, now_s, at[STINTS] - before)
    return fits


def apply_node_events(
    run: Run, jobs: JobArrays, room: Room, failures: Failures, now_s: float
) -> bool:
    """Apply the node events of this instant and evict the jobs on failed nodes; True = any came."""
    failures.at[EVICTIONS] = 0
    event, came = pop_node_event(run, jobs, failures, now_s), False
    while event >= 0:
        came = True
        if failures.change[event] < 0:
            for place in range(find_stints_on(run, room, failures, failures.slot[event])):
                stint = failures.hit[place]
                free_spots(
                    room, run.stint_pool[stint], run.stint_first[stint], run.stint_spots[stint]
                )
                evict_job(run, jobs, failures, stint, resume_of(run, jobs, stint), now_s)
        move_node(room, failures, event)
        event = pop_node_event(run, jobs, failures, now_s)
    for place in range(failures.at[EVICTIONS]):
        job = failures.waits_again[place]
        set_run_time_key(run, jobs, failures, job)
        push_waiting_job(run, jobs, job)
    return came


def advance_queue(run: Run, jobs: JobArrays, room: Room, failures: Failures, now_s: float) -> int:
    """Advance the run to an instant; return `CONTINUES`, `OVER` or `UNSUPPORTED`."""
    arrived = add_arrivals(run, jobs, now_s)
    freed = close_ended_stints(run, room, now_s)
    if failures.can_fail:
        freed |= apply_node_events(run, jobs, room, failures, now_s)
    if is_settled(run, jobs):
        return OVER
    if not (arrived or freed):
        return CONTINUES
    fits = decide_on_queue(run, jobs, room, now_s, freed)
    if not fits or (failures.can_fail and may_give_up(run, jobs, failures)):
        return UNSUPPORTED
    return CONTINUES


def run_queue(run: Run, jobs: JobArrays, room: Room, failures: Failures, steps: int) -> int:
    """Advance the run by `steps` instants; return `CONTINUES` or why it cannot continue."""
    for _ in range(steps):
        now_s = next_instant_s(run, jobs, failures)
        status = status_before(run, jobs, room, failures, now_s)
        if status == CONTINUES:
            status = advance_queue(run, jobs, room, failures, now_s)
        if status != CONTINUES:
            return status
    return CONTINUES
