"""The loop of a queue with preemption: `allocators.queue.preemption` over arrays.

For one pool where only free GPUs matter, stops cost nothing and every job may be stopped. See
`sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf

from sim.clock import LATEST_S
from sim.engine.fast.attained import (
    demote_crossed_jobs,
    end_service,
    height_limit_by_service,
    next_crossing_s,
    reset_key_by_service,
    set_height_by_service,
    set_key_by_service,
)
from sim.engine.fast.free_gpus import SPOTS, Room, free_spots, place_in_pool, take_spots
from sim.engine.fast.loops import (
    CLOSED,
    CONTINUES,
    DECISIONS,
    NEXT,
    OVER,
    RUNNING,
    SETTLED,
    STINTS,
    UNSUPPORTED,
    WAITING,
    JobArrays,
    Run,
    end_instant,
    next_event_s,
    pop_end,
    push_end,
    record_decision,
)
from sim.engine.fast.order import (
    CHANGES,
    FRONT,
    FULL,
    INDEX,
    KEY,
    STOPPED,
    USED,
    Order,
    insert_running,
    next_waiting_kind,
    pop_waiting,
    push_waiting,
    remove_running,
)
from sim.engine.fast.remaining import (
    height_limit_by_time,
    is_halfway,
    next_check_s,
    reestimate_late_jobs,
    reset_key_by_time,
    set_height_by_time,
    set_key_by_time,
)

# -- by time or by service


def set_first_key(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Set the key of a new waiting job, by attained service or by remaining time."""
    if order.by_service:
        set_key_by_service(order, job)
    else:
        set_key_by_time(order, jobs, run, job, now_s)


def set_key_again(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Set the key of a stopped job, by attained service or by remaining time."""
    if order.by_service:
        reset_key_by_service(order, jobs, run, job, now_s)
    else:
        reset_key_by_time(order, jobs, run, job, now_s)


def add_to_running(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Set the height of a starting job and insert it into the running jobs."""
    if order.by_service:
        set_height_by_service(order, jobs, run, job, now_s)
    else:
        set_height_by_time(order, job, now_s)
    insert_running(order, job)


def height_limit(order: Order, run: Run, job: int, now_s: float) -> tuple[float, float, float]:
    """Return (height, since, count) above which running jobs come after a waiting job."""
    if order.by_service:
        return height_limit_by_service(order, run, job)
    return height_limit_by_time(order, job, now_s)


# -- changes of a decision


def add_change(order: Order, job: int) -> None:
    """Add a job to the changes, unless it is in them."""
    if order.change_at[job] < 0:
        order.change_at[job] = order.at[CHANGES]
        order.changed[order.at[CHANGES]] = job
        order.at[CHANGES] += 1


def drop_change(order: Order, job: int) -> None:
    """Drop a job from the changes."""
    order.changed[order.change_at[job]] = -1
    order.change_at[job] = -1


def has_same_place(run: Run, room: Room, order: Order, job: int) -> bool:
    """Return True if a stopped job's new nodes and GPUs per node equal its old ones."""
    stint = order.stint[job]
    if run.stint_spots[stint] != order.spots[job]:
        return False
    old, new = run.stint_first[stint], order.first[job]
    for at in range(order.spots[job]):
        if (
            room.spot_slot[old + at] != room.spot_slot[new + at]
            or room.spot_gpus[old + at] != room.spot_gpus[new + at]
        ):
            return False
    return True


# -- placing waiting jobs


def find_worse_jobs(
    order: Order, jobs: JobArrays, run: Run, job: int, missing: int, now_s: float
) -> int:
    """Collect jobs to stop in `Order.stopped`, worst first; return the GPUs that they hold.

    Only jobs that come after the waiting job, until they hold `missing` GPUs. Sets `FULL` if two
    jobs are too close to compare.
    """
    height, since, count = height_limit(order, run, job, now_s)
    halfway = not order.by_service and order.times.close_s > 0 and is_halfway(order, job)
    held, count_found = 0, 0
    while count_found < order.at[INDEX] and held < missing:
        other = order.worst[order.at[FRONT] + count_found]
        if halfway and abs(order.height[other] - height) < order.times.close_s:
            order.at[FULL] = 1
        if order.height[other] < height:
            break
        if order.height[other] == height and (
            order.since[other] < since
            or (order.since[other] == since and order.count[other] <= count)
        ):
            break
        held += jobs.need[jobs.kind[other]]
        order.stopped[count_found] = other
        count_found += 1
    order.at[STOPPED] = count_found
    return held


def keep_spared_jobs(order: Order, jobs: JobArrays, room: Room, job: int) -> None:
    """Keep stopped jobs running, best first, if their GPUs are not needed for `job`.

    Each one takes its GPUs back and leaves `Order.stopped`; then `job` is placed again.
    """
    at = order.at[STOPPED] - 2
    while at >= 0:
        other = order.stopped[at]
        if jobs.need[jobs.kind[other]] <= room.free[0]:
            free_spots(room, 0, order.first[job], order.spots[job])
            take_spots(room, 0, order.first[other], order.spots[other])
            room.at[SPOTS] = order.first[job]
            order.spots[job] = place_in_pool(room, 0, jobs.need[jobs.kind[job]], jobs.how, 0)
            for later in range(at, order.at[STOPPED] - 1):
                order.stopped[later] = order.stopped[later + 1]
            order.at[STOPPED] -= 1
        at -= 1


def fit_job(order: Order, jobs: JobArrays, run: Run, room: Room, job: int, now_s: float) -> bool:
    """Place a waiting job, stopping worse ones if necessary; False = it does not fit.

    Takes and frees GPUs, and lists the jobs to stop in `Order.stopped`; keys and heights follow.
    """
    need = jobs.need[jobs.kind[job]]
    missing = need - room.free[0]
    order.at[STOPPED] = 0
    if missing > 0:
        if find_worse_jobs(order, jobs, run, job, missing, now_s) < missing:
            return False
        for at in range(order.at[STOPPED]):
            other = order.stopped[at]
            free_spots(room, 0, order.first[other], order.spots[other])
    order.first[job] = room.at[SPOTS]
    order.spots[job] = place_in_pool(room, 0, need, jobs.how, 0)
    if order.at[STOPPED] > 1:
        keep_spared_jobs(order, jobs, room, job)
    return True


def start_tentatively(
    run: Run, jobs: JobArrays, room: Room, order: Order, job: int, now_s: float
) -> None:
    """Move a job to the running ones, and the jobs stopped for it to the waiting ones."""
    if order.stint[job] >= 0 and has_same_place(run, room, order, job):
        drop_change(order, job)
    else:
        add_change(order, job)
    add_to_running(order, jobs, run, job, now_s)
    for at in range(order.at[STOPPED]):
        other = order.stopped[at]
        remove_running(order, other)
        if order.stint[other] >= 0:
            add_change(order, other)
        else:
            drop_change(order, other)
        order.spots[other] = 0
        set_key_again(order, jobs, run, other, now_s)
        if not order.by_service and order.key[KEY * other] < order.key[KEY * job]:
            order.at[FULL] = 1  # rounded, it would go before the job that it was stopped for
        push_waiting(order, jobs, other)


def place_waiting_jobs(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> None:
    """Place waiting jobs in order, stopping worse running ones.

    A job that does not fit ends the pass if `blocks`, else closes its demand. Sets `FULL` if an
    array is too short.
    """
    for kind in range(len(order.closed)):
        order.closed[kind] = 0
    kind = next_waiting_kind(order)
    while kind >= 0:
        job = order.lanes[order.lane_base[kind]]
        if order.at[CHANGES] + order.at[INDEX] + 1 >= len(order.changed) or room.at[
            SPOTS
        ] + jobs.need[kind] > len(room.spot_slot):
            order.at[FULL] = 1
            return
        if fit_job(order, jobs, run, room, job, now_s):
            pop_waiting(order, kind)
            start_tentatively(run, jobs, room, order, job, now_s)
        elif order.blocks:
            return
        else:
            order.closed[kind] = 1
        kind = next_waiting_kind(order)


# -- applying the changes


def end_stint(run: Run, order: Order, job: int, now_s: float) -> int:
    """Record the end of a job's stint; return the stint."""
    stint = order.stint[job]
    run.until_s[stint] = now_s
    run.closed[run.at[CLOSED]] = stint
    run.at[CLOSED] += 1
    order.stint[job] = -1
    return int(stint)


def close_changed_stints(run: Run, jobs: JobArrays, order: Order, now_s: float) -> int:
    """Close the stints of jobs that stop or move; return the number of all changes.

    Updates their work left and service, and counts them as waiting.
    """
    changes = 0
    for at in range(order.at[CHANGES]):
        job = order.changed[at]
        if job < 0:
            continue
        changes += 1
        if order.stint[job] < 0:
            continue
        if not order.by_service:
            order.at[USED] = 1
        stint = order.stint[job]
        moving_s = now_s - run.began_s[stint]
        if moving_s > 0:
            order.left[job] -= jobs.rate[0] * moving_s
        if order.by_service:
            order.service.served_gpu_s[job] += jobs.need[jobs.kind[job]] * moving_s
        run.ended[stint] = 1 if order.spots[job] else 2
        drop_end(run, stint)
        end_stint(run, order, job, now_s)
        run.at[RUNNING] -= 1
        run.at[WAITING] += 1
    return changes


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


def begin_changed_stints(run: Run, jobs: JobArrays, order: Order, now_s: float) -> bool:
    """Begin the stints of jobs that start or move; False = one is done or outlasts the clock."""
    for at in range(order.at[CHANGES]):
        job = order.changed[at]
        if job < 0:
            continue
        order.change_at[job] = -1
        if order.spots[job] == 0:
            continue
        left, stint = order.left[job], run.at[STINTS]
        until_s = end_instant(now_s, now_s, left, jobs.rate[0])
        if not (left > 0 and until_s <= LATEST_S):
            return False
        run.stint_job[stint], run.stint_pool[stint] = job, 0
        run.stint_first[stint], run.stint_spots[stint] = order.first[job], order.spots[job]
        run.began_s[stint], run.until_s[stint] = now_s, until_s
        push_end(run, stint)
        order.stint[job] = stint
        run.at[STINTS] = stint + 1
        run.at[RUNNING] += 1
        run.at[WAITING] -= 1
    return True


def decide_preempting(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> bool:
    """Make and record a decision, and set the next wake-up; False = the loop cannot continue."""
    order.at[CHANGES] = 0
    if order.by_service:
        demote_crossed_jobs(order, run, now_s)
    elif run.at[WAITING]:
        reestimate_late_jobs(run, jobs, order, now_s)
    place_waiting_jobs(run, jobs, room, order, now_s)
    changes = close_changed_stints(run, jobs, order, now_s)
    fits = begin_changed_stints(run, jobs, order, now_s)
    record_decision(run, now_s, changes)
    order.wake_s[0] = inf
    if run.at[WAITING]:
        at_s = next_crossing_s(order) if order.by_service else next_check_s(order, now_s)
        order.wake_s[0] = at_s if at_s <= LATEST_S else inf
    return fits and not order.at[FULL]


def finish_jobs(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> bool:
    """Close the stints that end now and free their GPUs; return True if there are any."""
    before = run.at[CLOSED]
    while run.at[RUNNING] and run.until_s[run.ends[0]] == now_s:
        stint = pop_end(run)
        run.at[RUNNING] -= 1
        job = run.stint_job[stint]
        remove_running(order, job)
        free_spots(room, 0, order.first[job], order.spots[job])
        order.spots[job] = 0
        if order.by_service:
            end_service(order, job, now_s)
        end_stint(run, order, job, now_s)
        run.at[SETTLED] += 1
    return bool(run.at[CLOSED] > before)


def receive_arrivals(run: Run, jobs: JobArrays, order: Order, now_s: float) -> bool:
    """Queue the jobs submitted now, or settle impossible ones; True = any job was queued."""
    job, count, before = run.at[NEXT], len(jobs.submit_s), run.at[WAITING]
    while job < count and jobs.submit_s[job] <= now_s:
        if jobs.kind[job] < 0:
            run.at[SETTLED] += 1
        else:
            set_first_key(order, jobs, run, job, now_s)
            push_waiting(order, jobs, job)
            run.at[WAITING] += 1
        job += 1
    run.at[NEXT] = job
    return bool(run.at[WAITING] > before)


def has_space(run: Run) -> bool:
    """Return True if the arrays of the record have space for another decision."""
    most = len(run.ends)
    stints, decisions = len(run.stint_job), len(run.decided_s)
    return bool(run.at[STINTS] + most < stints and run.at[DECISIONS] + 1 < decisions)


def run_preemption(run: Run, jobs: JobArrays, room: Room, order: Order, steps: int) -> int:
    """Advance the run by `steps` instants; return `CONTINUES`, `OVER` or `UNSUPPORTED`."""
    for _ in range(steps):
        now_s = min(next_event_s(run, jobs), order.wake_s[0])
        if now_s == inf or not has_space(run):
            return UNSUPPORTED
        arrived = receive_arrivals(run, jobs, order, now_s)
        freed = finish_jobs(run, jobs, room, order, now_s)
        if run.at[SETTLED] == len(jobs.submit_s):
            return OVER
        due = arrived or freed or now_s == order.wake_s[0]
        if due and not decide_preempting(run, jobs, room, order, now_s):
            return UNSUPPORTED
    return CONTINUES
