"""The loop of a queue with preemption: `allocators.queue.preemption` over arrays.

For pools where only free GPUs matter, and jobs that may all be stopped and keep their work. See
`sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf

from sim.clock import LATEST_S
from sim.engine.fast.attained import (
    confirm_starts,
    demote_crossed_jobs,
    end_service,
    gain_by_service,
    next_crossing_s,
    reset_key_by_service,
    set_evicted_key,
    set_height_by_service,
    set_key_by_service,
    set_limit_by_service,
)
from sim.engine.fast.failures import (
    EVENT,
    EVICTIONS,
    Failures,
    drop_end,
    evict_job,
    find_stints_on,
    has_space,
    may_give_up,
    move_node,
    pop_node_event,
    status_before,
)
from sim.engine.fast.free_gpus import SPOTS, Room, free_spots, place_in_pool
from sim.engine.fast.loops import (
    CLOSED,
    CONTINUES,
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
    is_settled,
    nearest_instant,
    next_event_s,
    place_gang,
    pop_by,
    pop_end,
    push_by,
    push_end,
    record_decision,
)
from sim.engine.fast.order import (
    CHANGES,
    COUNT,
    COUNT_THEN,
    FREED,
    FULL,
    IS_DIRTY,
    LAST,
    LATE,
    LINKS,
    SPENT,
    STOPPED,
    STOPS,
    USED,
    WALK,
    Order,
    add_change,
    compare_height,
    copy_key,
    count_freed,
    drop_change,
    first_in_line,
    forget_bounds,
    free_gpus_for,
    free_job,
    free_stopped,
    has_same_place,
    insert_running,
    is_before,
    is_higher,
    nth_worst,
    pop_waiting,
    push_waiting,
    remove_running,
    take_job,
    take_stopped,
)
from sim.engine.fast.remaining import (
    gain_by_time,
    needs_more_time,
    next_check_s,
    reestimate_late_jobs,
    reset_key_by_time,
    set_height_by_time,
    set_key_by_time,
    set_limit_by_time,
    set_need,
    set_place_among_equals,
)

_FITS = -1
_MAX_STOPS_PER_JOB = 1000
"""As in `allocators.queue.preemption`."""
_JOB, _SLACK, _WALK, _SEEN = range(4)
"""Columns of `Lanes.bound`."""

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
        set_height_by_time(order, jobs, job, now_s)
    insert_running(order, jobs, job)


# -- the search for jobs to stop


def begin_search(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Begin a search for running jobs that come after a waiting job, on the pools it admits."""
    groups, pools = order.groups, order.pools[jobs.kind[job]]
    for group in range(len(groups.size)):
        groups.cursor[group] = -1
        if groups.size[group] and pools >> groups.pool[group] & 1:
            if order.by_service:
                set_limit_by_service(order, run, group, job)
            else:
                set_limit_by_time(order, group, job, now_s)
            move_cursor(order, group)


def move_cursor(order: Order, group: int) -> None:
    """Move the cursor of a group to its next job above the limit; -1 = none."""
    groups, limit = order.groups, order.groups.limit
    at, row = groups.cursor[group] + 1, 3 * group
    groups.cursor[group] = -1
    if at < groups.size[group]:
        job = nth_worst(order, group, at)
        if compare_height(order, job, limit[row], limit[row + 1], limit[row + 2]) > 0:
            groups.cursor[group] = at


def next_victim(order: Order, jobs: JobArrays, now_s: float) -> int:
    """Return the running job of lowest priority that may be stopped next; -1 = none."""
    cursor, best, chosen = order.groups.cursor, -1, -1
    for group in range(len(cursor)):
        if cursor[group] >= 0:
            job = nth_worst(order, group, cursor[group])
            if best < 0 or ranks_below(order, jobs, job, best, now_s):
                best, chosen = job, group
    if chosen >= 0:
        move_cursor(order, chosen)
    return best


def ranks_below(order: Order, jobs: JobArrays, one: int, other: int, now_s: float) -> bool:
    """Return True if a running job ranks below one of another group."""
    if order.by_service:
        return is_higher(order, one, other)
    return needs_more_time(order, jobs, one, other, now_s)


# -- placing waiting jobs


def place_job(order: Order, jobs: JobArrays, room: Room, job: int, first: int) -> bool:
    """Place a job in its first pool with room, with its spots from `first` on."""
    room.at[SPOTS] = first
    pool = place_gang(room, jobs, jobs.kind[job])
    if pool < 0:
        return False
    order.pool[job], order.first[job], order.spots[job] = pool, first, room.at[SPOTS] - first
    return True


def find_victims(order: Order, jobs: JobArrays, first: int, end: int, now_s: float) -> int:
    """Add the next jobs to stop to `Order.stopped` up to an end; return the end reached."""
    while first < end:
        other = next_victim(order, jobs, now_s)
        if other < 0:
            return first
        order.stopped[first] = other
        first += 1
    return first


def preempt_few(
    order: Order, jobs: JobArrays, room: Room, job: int, first: int, now_s: float
) -> bool:
    """Place a job by stopping as few more jobs as possible; False = not possible.

    Their number doubles until the job fits and is then bisected. On failure nothing changes.
    """
    base = order.at[STOPPED]
    low, high, fits = base, base, False
    while not fits:
        low, high = high, find_victims(order, jobs, high, 2 * high - base + 1, now_s)
        if high == low:
            take_stopped(room, order, base, low)
            return False
        free_stopped(room, order, low, high)
        fits = place_job(order, jobs, room, job, first)
    while high - low > 1:
        middle = (low + high) >> 1
        free_job(room, order, job)
        take_stopped(room, order, middle, high)
        if place_job(order, jobs, room, job, first):
            high = middle
        else:
            free_stopped(room, order, middle, high)
            low = middle
            place_job(order, jobs, room, job, first)
    order.at[STOPPED] = high
    return True


def keep_spared_jobs(order: Order, jobs: JobArrays, room: Room, job: int) -> None:
    """Keep stopped jobs running, best first, if their GPUs are not needed for `job`.

    Each one takes its GPUs back and leaves `Order.stopped`; then `job` is placed again.
    """
    first = order.first[job]
    for at in range(order.at[STOPPED] - 2, -1, -1):
        other = order.stopped[at]
        if jobs.need[jobs.kind[other]] > free_gpus_for(order, room, jobs.kind[job]):
            continue
        free_job(room, order, job)
        take_job(room, order, other)
        if place_job(order, jobs, room, job, first):
            order.at[STOPPED] -= 1
            for later in range(at, order.at[STOPPED]):
                order.stopped[later] = order.stopped[later + 1]
        else:
            free_job(room, order, other)
            place_job(order, jobs, room, job, first)


def fit_job(order: Order, jobs: JobArrays, run: Run, room: Room, job: int, now_s: float) -> int:
    """Place a waiting job, stopping worse ones if necessary; return `_FITS` if it fits.

    Else the number of missing GPUs; 0 = enough GPUs, but not where they fit together. Takes and
    frees GPUs, and lists the jobs to stop in `Order.stopped`; keys and heights follow.
    """
    at, kind, first = order.at, jobs.kind[job], room.at[SPOTS]
    missing, links = jobs.need[kind] - free_gpus_for(order, room, kind), at[LINKS]
    at[STOPPED] = 0
    if missing > 0:
        begin_search(order, jobs, run, job, now_s)
        while missing > 0:
            other = next_victim(order, jobs, now_s)
            if other < 0:
                at[LINKS] = links
                return int(missing)
            order.stopped[at[STOPPED]] = other
            at[STOPPED] += 1
            missing -= jobs.need[jobs.kind[other]]
        free_stopped(room, order, 0, at[STOPPED])
    fits = place_job(order, jobs, room, job, first)
    if not fits:
        if at[STOPPED] == 0:
            begin_search(order, jobs, run, job, now_s)
        fits = preempt_few(order, jobs, room, job, first, now_s)
    at[LINKS] = links
    if not fits:
        take_stopped(room, order, 0, at[STOPPED])
        room.at[SPOTS] = first
        return 0
    if at[STOPPED] > 1:
        keep_spared_jobs(order, jobs, room, job)
    return _FITS


def start_tentatively(
    run: Run, jobs: JobArrays, room: Room, order: Order, job: int, now_s: float
) -> None:
    """Move a job to the running ones, and the jobs stopped for it to the waiting ones."""
    at, taken, need = order.at, 0, jobs.need[jobs.kind[job]]
    if order.stint[job] >= 0 and has_same_place(run, room, order, job):
        drop_change(order, job)
    else:
        add_change(order, job)
    add_to_running(order, jobs, run, job, now_s)
    at[STOPS] += at[STOPPED]
    if at[STOPS] > _MAX_STOPS_PER_JOB * (run.at[WAITING] + run.at[RUNNING]):
        at[FULL] = 1
    for stop in range(at[STOPPED]):
        other = order.stopped[stop]
        remove_running(order, jobs, other)
        taken += jobs.need[jobs.kind[other]]
        if order.stint[other] >= 0:
            add_change(order, other)
        else:
            drop_change(order, other)
        order.spots[other] = 0
        set_key_again(order, jobs, run, other, now_s)
        push_waiting(order, jobs, other)
        at[IS_DIRTY] = 1
    at[LAST] = job
    copy_key(order, job, len(order.left) + len(order.lanes.size))
    if not order.one_pool:
        at[FREED] += taken  # may be in other pools than the job uses
    elif taken > need:
        at[FREED] += taken - need
    else:
        at[SPENT] += need - taken


# -- the pass over waiting jobs


def cannot_start(order: Order, lane: int, job: int, need: int) -> bool:
    """Return True if the GPUs freed since a failure cannot fit a job, and update the bound.

    As `DemandQueue.cannot_start`.
    """
    at, lanes, count = order.at, order.lanes, len(order.left)
    row, bound = count + lane, 4 * lane
    if lanes.bound[bound + _JOB] < 0 or is_before(order, job, job, row, lanes.bound[bound + _JOB]):
        return False
    spent, last = at[SPENT], count + len(lanes.size)
    if spent and at[LAST] >= 0 and not is_before(order, last, at[LAST], job, job):
        spent = 0
    elif spent and lanes.bound[bound + _WALK] == at[WALK]:
        spent -= lanes.bound[bound + _SEEN]
    until = need - lanes.bound[bound + _SLACK] + spent
    if until <= at[FREED]:
        return False
    if spent:
        lanes.bound[bound + _JOB] = job
        copy_key(order, job, row)
    lanes.bound[bound + _SLACK] -= spent
    lanes.bound[bound + _WALK], lanes.bound[bound + _SEEN] = at[WALK], at[SPENT]
    lanes.until[lane] = until
    return True


def wait_for_gpus(order: Order, lane: int, job: int, need: int, missing: int) -> None:
    """Have a lane wait until the GPUs missing for its failed job are freed; set its bound.

    If enough were free, it waits for any change.
    """
    at, lanes, bound = order.at, order.lanes, 4 * lane
    if missing == 0:
        lanes.until[lane] = inf
        lanes.is_misfit[lane] = 1
        return
    lanes.until[lane] = at[FREED] + missing
    lanes.bound[bound + _JOB] = job if order.one_pool or not order.blocks else -1
    lanes.bound[bound + _SLACK] = need - missing - at[FREED]
    lanes.bound[bound + _WALK], lanes.bound[bound + _SEEN] = at[WALK], at[SPENT]
    copy_key(order, job, len(order.left) + lane)


def line_up_lanes(order: Order) -> None:
    """Put the first job of every lane that may fit now into the line."""
    at, lanes = order.at, order.lanes
    for lane in range(len(lanes.size)):
        if at[IS_DIRTY] and lanes.is_misfit[lane]:
            lanes.until[lane] = 0.0
            lanes.is_misfit[lane] = 0
        if lanes.size[lane] and lanes.until[lane] <= at[FREED]:
            # a job that was just stopped may go before the present one of its lane
            lanes.in_line[lane] = lanes.heap[lanes.base[lane]]
    at[IS_DIRTY] = 0


def place_waiting_jobs(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> None:
    """Place waiting jobs that may fit, in order, stopping worse running ones.

    Sets `FULL` if an array is too short.
    """
    at, lanes = order.at, order.lanes
    at[WALK] += 1
    at[SPENT], at[LAST] = 0, -1
    line_up_lanes(order)
    lane = first_in_line(order)
    while lane >= 0:
        job, is_open = lanes.in_line[lane], True
        lanes.in_line[lane] = -1
        if lanes.heap[lanes.base[lane]] == job:
            need = jobs.need[jobs.kind[job]]
            if at[CHANGES] + len(order.stopped) + 1 >= len(order.changed) or room.at[
                SPOTS
            ] + need > len(room.spot_slot):
                at[FULL] = 1
            if at[FULL]:
                return
            is_open = not (
                (at[SPENT] or lanes.until[lane] == 0.0) and cannot_start(order, lane, job, need)
            )
            if is_open:
                missing = fit_job(order, jobs, run, room, job, now_s)
                is_open = missing == _FITS
                if is_open:
                    pop_waiting(order, lane)
                    start_tentatively(run, jobs, room, order, job, now_s)
                else:
                    wait_for_gpus(order, lane, job, need, missing)
        if is_open:
            if lanes.size[lane]:
                lanes.until[lane] = 0.0
                lanes.in_line[lane] = lanes.heap[lanes.base[lane]]
            if at[IS_DIRTY]:
                line_up_lanes(order)
        lane = first_in_line(order)


# -- moves to better types


def best_move(
    run: Run, jobs: JobArrays, room: Room, order: Order, job: int, now_s: float
) -> tuple[float, int]:
    """Return the largest gain of a running job from a move, and the pool; 0 s = no move."""
    best_s, best, kind = 0.0, -1, jobs.kind[job]
    for group in range(jobs.groups[kind], jobs.groups[kind + 1]):
        pool = jobs.pool[group]
        if pool == order.pool[job]:
            break
        if room.free[pool] >= jobs.need[kind]:
            if order.by_service:
                gain_s = gain_by_service(order, jobs, run, job, pool, now_s)
            else:
                gain_s = gain_by_time(order, jobs, run, job, pool, now_s)
            if gain_s > best_s:
                best_s, best = gain_s, pool
    return best_s, best


def find_movers(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> int:
    """Collect the running jobs that gain from a move in `Order.movers`; return their number."""
    groups, movers, total = order.groups, 0, 0
    for pool in range(len(room.free)):
        total += room.free[pool]
    for group in range(len(groups.size)):
        if total == room.free[groups.pool[group]]:
            continue
        for at in range(groups.size[group]):
            job = nth_worst(order, group, at)
            if order.change_at[job] < 0:
                gain_s, pool = best_move(run, jobs, room, order, job, now_s)
                if pool >= 0:
                    order.loss_s[job] = -gain_s
                    push_by(order.movers, order.loss_s, 0, movers, job)
                    movers += 1
    return movers


def move_job(  # noqa: PLR0913, PLR0917 - a call, not an interface
    run: Run, jobs: JobArrays, room: Room, order: Order, job: int, pool: int, now_s: float
) -> None:
    """Move a running job to another pool: it takes its new place, then gives its old one back.

    Sets `FULL` if an array is too short.
    """
    need, first = jobs.need[jobs.kind[job]], room.at[SPOTS]
    if order.at[CHANGES] + 1 >= len(order.changed) or first + need > len(room.spot_slot):
        order.at[FULL] = 1
        return
    place_in_pool(room, pool, need, jobs.how, 0)
    free_job(room, order, job)
    remove_running(order, jobs, job)
    if not order.by_service:
        set_place_among_equals(order, jobs, job, now_s)
        set_need(order, jobs, run, job, now_s, order.restart_s)
        order.at[USED] = 1
    order.pool[job], order.first[job], order.spots[job] = pool, first, room.at[SPOTS] - first
    if not order.by_service:
        set_height_by_time(order, jobs, job, now_s)
    insert_running(order, jobs, job)
    add_change(order, job)
    count_freed(order, need)


def move_jobs(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> bool:
    """Move running jobs to free GPUs of better types, the largest gain first; True = any moved."""
    movers, has_moved = find_movers(run, jobs, room, order, now_s), False
    while movers:
        job = pop_by(order.movers, order.loss_s, 0, movers)
        movers -= 1
        # an earlier move may have taken the room
        _, pool = best_move(run, jobs, room, order, job, now_s)
        if pool >= 0:
            move_job(run, jobs, room, order, job, pool, now_s)
            has_moved = not order.at[FULL]
    return has_moved


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
        moving_s = now_s - max(run.began_s[stint], order.resume_s[job])
        if moving_s > 0:
            order.left[job] -= jobs.rate[run.stint_pool[stint]] * moving_s
        if order.by_service:
            held_s = now_s - run.began_s[stint]
            order.service.served_gpu_s[job] += jobs.need[jobs.kind[job]] * held_s
        run.ended[stint] = 1 if order.spots[job] else 2
        drop_end(run, stint)
        end_stint(run, order, job, now_s)
        run.at[RUNNING] -= 1
        run.at[WAITING] += 1
    return changes


def begin_changed_stints(run: Run, jobs: JobArrays, order: Order, now_s: float) -> bool:
    """Begin the stints of jobs that start or move; False = one is done or outlasts the clock."""
    for at in range(order.at[CHANGES]):
        job = order.changed[at]
        if job < 0:
            continue
        order.change_at[job] = -1
        if order.spots[job] == 0:
            continue
        left, stint, pool = order.left[job], run.at[STINTS], order.pool[job]
        pause_s = jobs.start_s if order.resume_s[job] < 0 else order.restart_s
        resume_s = nearest_instant(now_s + pause_s)
        until_s = end_instant(now_s, resume_s, left, jobs.rate[pool])
        if not (left > 0 and until_s <= LATEST_S):
            return False
        run.stint_job[stint], run.stint_pool[stint] = job, pool
        run.stint_first[stint], run.stint_spots[stint] = order.first[job], order.spots[job]
        run.began_s[stint], run.until_s[stint] = now_s, until_s
        push_end(run, stint)
        order.stint[job], order.resume_s[job] = stint, resume_s
        run.at[STINTS] = stint + 1
        run.at[RUNNING] += 1
        run.at[WAITING] -= 1
    return True


def decide_preempting(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> bool:
    """Make and record a decision, and set the next wake-up; False = the loop cannot continue."""
    if order.by_service:
        confirm_starts(order, jobs, run, now_s)
        demote_crossed_jobs(order, jobs, run, now_s)
    elif run.at[WAITING]:
        reestimate_late_jobs(run, jobs, order, now_s)
    order.at[CHANGES] = order.at[STOPS] = 0
    place_waiting_jobs(run, jobs, room, order, now_s)
    if order.moves:
        while move_jobs(run, jobs, room, order, now_s):
            place_waiting_jobs(run, jobs, room, order, now_s)
    if order.at[FULL]:
        return False
    changes = close_changed_stints(run, jobs, order, now_s)
    fits = begin_changed_stints(run, jobs, order, now_s)
    record_decision(run, now_s, changes)
    order.wake_s[0] = inf
    if run.at[WAITING]:
        at_s = next_crossing_s(order) if order.by_service else next_check_s(order, now_s)
        order.wake_s[0] = at_s if at_s <= LATEST_S else inf
    return fits


def finish_jobs(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> bool:
    """Close the stints that end now and free their GPUs; return True if there are any."""
    before = run.at[CLOSED]
    while run.at[RUNNING] and run.until_s[run.ends[0]] == now_s:
        stint = pop_end(run)
        run.at[RUNNING] -= 1
        job = run.stint_job[stint]
        remove_running(order, jobs, job)
        free_spots(room, order.pool[job], order.first[job], order.spots[job])
        order.spots[job] = 0
        if order.by_service:
            end_service(order, job, now_s)
        end_stint(run, order, job, now_s)
        count_freed(order, jobs.need[jobs.kind[job]])
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


def evict_from_order(  # noqa: PLR0913, PLR0917 - a call, not an interface
    run: Run,
    jobs: JobArrays,
    room: Room,
    order: Order,
    failures: Failures,
    stint: int,
    now_s: float,
) -> None:
    """Evict a running job: free its GPUs, update its service and end its stint."""
    job = run.stint_job[stint]
    need = jobs.need[jobs.kind[job]]
    remove_running(order, jobs, job)
    free_job(room, order, job)
    order.spots[job] = 0
    if order.by_service:
        order.service.served_gpu_s[job] += need * (now_s - run.began_s[stint])
        order.at[LATE] = 1  # the policy's remark holds only without evictions
    if not evict_job(run, jobs, failures, stint, order.resume_s[job], now_s) and order.by_service:
        end_service(order, job, now_s)
    order.stint[job] = -1
    count_freed(order, need)


def lose_nodes(
    run: Run, jobs: JobArrays, room: Room, order: Order, failures: Failures, now_s: float
) -> bool:
    """Apply the node events of this instant and evict the jobs on failed nodes; True = any came."""
    failures.at[EVICTIONS] = 0
    event, came = pop_node_event(run, jobs, failures, now_s), False
    while event >= 0:
        came = True
        if failures.change[event] < 0:
            for place in range(find_stints_on(run, room, failures, failures.slot[event])):
                stint = failures.hit[place]
                evict_from_order(run, jobs, room, order, failures, stint, now_s)
        move_node(room, failures, event)
        event = pop_node_event(run, jobs, failures, now_s)
    return came


def requeue_evicted_jobs(
    run: Run, jobs: JobArrays, order: Order, failures: Failures, now_s: float
) -> None:
    """Add the jobs evicted at this instant to the waiting ones."""
    for at in range(failures.at[EVICTIONS]):
        job = failures.waits_again[at]
        if order.by_service:
            set_evicted_key(order, jobs, run, job)
        else:
            reset_key_by_time(order, jobs, run, job, now_s)
        push_waiting(order, jobs, job)


def run_failing_preemption(
    run: Run, jobs: JobArrays, room: Room, order: Order, failures: Failures, steps: int
) -> int:
    """Advance a run with failures by `steps` instants; return as `run_preemption`."""
    for _ in range(steps):
        next_s = min(next_event_s(run, jobs), failures.at_s[failures.at[EVENT]])
        now_s = min(next_s, order.wake_s[0])
        status = status_before(run, jobs, room, failures, now_s)
        if status != CONTINUES:
            return status
        order.at[COUNT_THEN] = order.at[COUNT]
        due = receive_arrivals(run, jobs, order, now_s) or now_s == order.wake_s[0]
        due |= finish_jobs(run, jobs, room, order, now_s)
        came = lose_nodes(run, jobs, room, order, failures, now_s)
        if is_settled(run, jobs):
            return OVER
        if came:
            requeue_evicted_jobs(run, jobs, order, failures, now_s)
            forget_bounds(order)
        if (due or came) and (
            not decide_preempting(run, jobs, room, order, now_s) or may_give_up(run, jobs, failures)
        ):
            return UNSUPPORTED
    return CONTINUES


def run_preemption(
    run: Run, jobs: JobArrays, room: Room, order: Order, failures: Failures, steps: int
) -> int:
    """Advance the run by `steps` instants; return `CONTINUES` or why it cannot continue."""
    if failures.can_fail:
        return run_failing_preemption(run, jobs, room, order, failures, steps)
    for _ in range(steps):
        now_s = min(next_event_s(run, jobs), order.wake_s[0])
        if now_s > jobs.horizon_s:
            return OVER
        if now_s == inf or not has_space(run):
            return UNSUPPORTED
        arrived = receive_arrivals(run, jobs, order, now_s)
        freed = finish_jobs(run, jobs, room, order, now_s)
        if is_settled(run, jobs):
            return OVER
        due = arrived or freed or now_s == order.wake_s[0]
        if due and not decide_preempting(run, jobs, room, order, now_s):
            return UNSUPPORTED
    return CONTINUES
