"""The loop of queues without preemption; a job that does not fit blocks or is skipped.

At an instant first come arrivals and ends, then node events, then one decision, as in
`sim.engine.simulator`. See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf
from typing import Any

from sim.engine.fast.failures import (
    EVENT,
    EVICTIONS,
    Failures,
    evict_job,
    find_stints_on,
    may_give_up,
    move_node,
    pop_node_event,
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
    nearest_instant,
    next_event_s,
    place_gang,
    pop_by,
    push_by,
    record_decision,
)

_EMPTY, _GREW, _OPEN, _BLOCKED = range(4)
"""States of a lane: empty; no longer empty; its first job may fit; its first job does not fit until
GPUs are freed.
"""


def push_item(lanes: Any, key: Any, rank: Any, base: int, size: int, job: int) -> None:
    """Add a job to a lane, by its key if keys change, else by its rank."""
    if len(key):
        push_by(lanes, key, base, size, job)
    else:
        heap_push(lanes, base, size, rank[job])


def pop_item(lanes: Any, key: Any, base: int, size: int) -> None:
    """Remove the first job of a lane."""
    if len(key):
        pop_by(lanes, key, base, size)
    else:
        heap_pop(lanes, base, size)


def job_of(key: Any, by_rank: Any, item: int) -> int:
    """Return the job of an item of a lane."""
    if len(key):
        return item
    return int(by_rank[item] if item >= 0 else -1 - item)


def item_goes_first(key: Any, one: int, other: int) -> bool:
    """Return True if an item of a lane goes before another one."""
    return goes_first(key, one, other) if len(key) else bool(one < other)


def add_arrivals(run: Run, jobs: JobArrays, now_s: float) -> bool:
    """Queue the jobs submitted now, or settle impossible ones; True = any job was queued."""
    at, job, count = run.at, run.at[NEXT], len(jobs.submit_s)
    before = at[WAITING]
    while job < count and jobs.submit_s[job] <= now_s:
        kind = jobs.kind[job]
        if kind < 0:
            at[SETTLED] += 1
        else:
            lane = kind if jobs.several else 0
            size = run.lane_size[lane]
            push_item(run.lanes, run.key, jobs.rank, run.lane_base[lane], size, job)
            run.lane_size[lane] = size + 1
            if run.lane_state[lane] == _EMPTY:
                run.lane_state[lane] = _GREW
            at[WAITING] += 1
        job += 1
    at[NEXT] = job
    return bool(at[WAITING] > before)


def start_in_order(run: Run, jobs: JobArrays, room: Room, now_s: float) -> bool:
    """Start jobs in order until one does not fit; False = a job ends after `LATEST_S`.

    Notes the job that does not fit in `STUCK`; with `locked` it stays first in the queue.
    """
    while run.lane_size[0]:
        job = job_of(run.key, jobs.by_rank, run.lanes[0])
        pool = place_gang(room, jobs, jobs.kind[job])
        if pool < 0:
            if jobs.locked and run.lanes[0] != run.at[STUCK]:
                if len(run.key):
                    run.key[job] = -inf
                else:
                    run.lanes[0] = -1 - job
            run.at[STUCK] = run.lanes[0]
            return True
        pop_item(run.lanes, run.key, 0, run.lane_size[0])
        run.lane_size[0] -= 1
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
        best = first = -1
        for lane in range(len(run.lane_size)):
            if run.lane_state[lane] == _OPEN:
                item = run.lanes[run.lane_base[lane]]
                if best < 0 or item_goes_first(run.key, item, first):
                    best, first = lane, item
        if best < 0:
            return True
        pool = place_gang(room, jobs, best)
        if pool < 0:
            run.lane_state[best] = _BLOCKED
            continue
        job = job_of(run.key, jobs.by_rank, first)
        pop_item(run.lanes, run.key, run.lane_base[best], run.lane_size[best])
        run.lane_size[best] -= 1
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
    elif freed or run.lane_size[0] == 0 or run.lanes[0] != at[STUCK]:
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
                job = run.stint_job[stint]
                resume_s = nearest_instant(run.began_s[stint] + jobs.pause_s[job])
                evict_job(run, jobs, failures, stint, resume_s, now_s)
                jobs.pause_s[job] = failures.restart_s
        move_node(room, failures, event)
        event = pop_node_event(run, jobs, failures, now_s)
    for place in range(failures.at[EVICTIONS]):
        job = failures.waits_again[place]
        set_run_time_key(run, jobs, failures, job)
        lane = jobs.kind[job] if jobs.several else 0
        size = run.lane_size[lane]
        push_item(run.lanes, run.key, jobs.rank, run.lane_base[lane], size, job)
        run.lane_size[lane] = size + 1
    return came


def run_failing_queue(run: Run, jobs: JobArrays, room: Room, failures: Failures, steps: int) -> int:
    """Advance a run with failures by `steps` instants; return as `run_queue`."""
    for _ in range(steps):
        now_s = min(next_event_s(run, jobs), failures.at_s[failures.at[EVENT]])
        status = status_before(run, jobs, room, failures, now_s)
        if status != CONTINUES:
            return status
        arrived = add_arrivals(run, jobs, now_s)
        freed = close_ended_stints(run, room, now_s)
        freed |= apply_node_events(run, jobs, room, failures, now_s)
        if is_settled(run, jobs):
            return OVER
        if (arrived or freed) and (
            not decide_on_queue(run, jobs, room, now_s, freed) or may_give_up(run, jobs, failures)
        ):
            return UNSUPPORTED
    return CONTINUES


def run_queue(run: Run, jobs: JobArrays, room: Room, failures: Failures, steps: int) -> int:
    """Advance the run by `steps` instants; return `CONTINUES` or why it cannot continue."""
    if failures.can_fail:
        return run_failing_queue(run, jobs, room, failures, steps)
    for _ in range(steps):
        now_s = next_event_s(run, jobs)
        if now_s > jobs.horizon_s:
            return OVER
        if now_s == inf:
            return UNSUPPORTED
        arrived = add_arrivals(run, jobs, now_s)
        freed = close_ended_stints(run, room, now_s)
        if is_settled(run, jobs):
            return OVER
        if (arrived or freed) and not decide_on_queue(run, jobs, room, now_s, freed):
            return UNSUPPORTED
    return CONTINUES
