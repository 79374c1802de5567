"""The loop of a queue in which running jobs are stopped for jobs that go before them:
`allocators.queue.preemption` over arrays, on one pool where free GPUs are all that matters, stops
cost nothing and every job may be stopped.

See `sim.engine.fast.room` for how this is compiled.
"""

from __future__ import annotations

from math import inf

from sim.clock import LATEST_S
from sim.engine.fast.attained import (
    demote,
    end_service,
    key_by_service,
    key_by_service_again,
    limit_by_service,
    next_crossing_s,
    rise_by_service,
)
from sim.engine.fast.loops import (
    CLOSED,
    DECISIONS,
    ENDLESS,
    GOES_ON,
    NEXT,
    OVER,
    RUNNING,
    SETTLED,
    STINTS,
    WAITING,
    JobArrays,
    Run,
    end_of,
    next_instant,
    note,
    pop_end,
    push_end,
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
    index,
    next_turn,
    take_turn,
    unindex,
    wait_for_turn,
)
from sim.engine.fast.remaining import (
    ask_anew,
    is_halfway,
    key_by_time,
    key_by_time_again,
    limit_by_time,
    next_doubt_s,
    rise_by_time,
)
from sim.engine.fast.room import SPOTS, Room, give, place_in, take

# -- one order or the other


def first_key(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Give a newcomer its key."""
    if order.by_service:
        key_by_service(order, job)
    else:
        key_by_time(order, jobs, run, job, now_s)


def key_again(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Give a job that is stopped its key."""
    if order.by_service:
        key_by_service_again(order, jobs, run, job, now_s)
    else:
        key_by_time_again(order, jobs, run, job, now_s)


def rise(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Give a job that starts its place among the running ones."""
    if order.by_service:
        rise_by_service(order, jobs, run, job, now_s)
    else:
        rise_by_time(order, job, now_s)
    index(order, job)


def limit_of(order: Order, run: Run, job: int, now_s: float) -> tuple[float, float, float]:
    """Return the height above which running jobs stand behind a waiting one."""
    if order.by_service:
        return limit_by_service(order, run, job)
    return limit_by_time(order, job, now_s)


# -- the changes of a decision


def change(order: Order, job: int) -> None:
    """Note that a job is among the changes; it keeps the place that it may have."""
    if order.change_at[job] < 0:
        order.change_at[job] = order.at[CHANGES]
        order.changed[order.at[CHANGES]] = job
        order.at[CHANGES] += 1


def unchange(order: Order, job: int) -> None:
    """Drop a job from the changes."""
    order.changed[order.change_at[job]] = -1
    order.change_at[job] = -1


def same_place(run: Run, room: Room, order: Order, job: int) -> bool:
    """Tell whether a job that was stopped got the very nodes that it had."""
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


# -- the walk


def find_worse(
    order: Order, jobs: JobArrays, run: Run, job: int, missing: int, now_s: float
) -> int:
    """Find the worst running jobs that stand behind a waiting one and hold so many GPUs; return
    what they hold.
    """
    height, since, count = limit_of(order, run, job, now_s)
    halfway = not order.by_service and order.times.close_s > 0 and is_halfway(order, job)
    held, found = 0, 0
    while found < order.at[INDEX] and held < missing:
        other = order.worst[order.at[FRONT] + found]
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
        order.stopped[found] = other
        found += 1
    order.at[STOPPED] = found
    return held


def spare_some(order: Order, jobs: JobArrays, room: Room, need: int) -> None:
    """Let those run on, best first, whose room was not needed in the end."""
    at = order.at[STOPPED] - 2
    while at >= 0:
        other = order.stopped[at]
        if jobs.need[jobs.kind[other]] <= room.free[0]:
            give(room, 0, order.first[need], order.spots[need])
            take(room, 0, order.first[other], order.spots[other])
            room.at[SPOTS] = order.first[need]
            order.spots[need] = place_in(room, 0, jobs.need[jobs.kind[need]], jobs.how, 0)
            for later in range(at, order.at[STOPPED] - 1):
                order.stopped[later] = order.stopped[later + 1]
            order.at[STOPPED] -= 1
        at -= 1


def fit(order: Order, jobs: JobArrays, run: Run, room: Room, job: int, now_s: float) -> bool:
    """Take room for a waiting job, by stopping worse ones where that is needed."""
    need = jobs.need[jobs.kind[job]]
    missing = need - room.free[0]
    order.at[STOPPED] = 0
    if missing > 0:
        if find_worse(order, jobs, run, job, missing, now_s) < missing:
            return False
        for at in range(order.at[STOPPED]):
            other = order.stopped[at]
            give(room, 0, order.first[other], order.spots[other])
    order.first[job] = room.at[SPOTS]
    order.spots[job] = place_in(room, 0, need, jobs.how, 0)
    if order.at[STOPPED] > 1:
        spare_some(order, jobs, room, job)
    return True


def start_tentatively(
    run: Run, jobs: JobArrays, room: Room, order: Order, job: int, now_s: float
) -> None:
    """Let a job take its place among the running ones, and those wait that were stopped for it."""
    if order.stint[job] >= 0 and same_place(run, room, order, job):
        unchange(order, job)
    else:
        change(order, job)
    rise(order, jobs, run, job, now_s)
    for at in range(order.at[STOPPED]):
        other = order.stopped[at]
        unindex(order, other)
        if order.stint[other] >= 0:
            change(order, other)
        else:
            unchange(order, other)
        order.spots[other] = 0
        key_again(order, jobs, run, other, now_s)
        if not order.by_service and order.key[KEY * other] < order.key[KEY * job]:
            order.at[FULL] = 1  # rounded, it would go before the one that it was stopped for
        wait_for_turn(order, jobs, other)


def walk(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> None:
    """Give room to waiting jobs, the first in order first."""
    for kind in range(len(order.closed)):
        order.closed[kind] = 0
    kind = next_turn(order)
    while kind >= 0:
        job = order.lanes[order.lane_base[kind]]
        if order.at[CHANGES] + order.at[INDEX] + 1 >= len(order.changed) or room.at[
            SPOTS
        ] + jobs.need[kind] > len(room.spot_slot):
            order.at[FULL] = 1
            return
        if fit(order, jobs, run, room, job, now_s):
            take_turn(order, kind)
            start_tentatively(run, jobs, room, order, job, now_s)
        elif order.blocks:
            return
        else:
            order.closed[kind] = 1
        kind = next_turn(order)


# -- carried out


def end_stint(run: Run, order: Order, job: int, now_s: float) -> int:
    """Note the end of what a job has run in the record; return its stint."""
    stint = order.stint[job]
    run.until_s[stint] = now_s
    run.closed[run.at[CLOSED]] = stint
    run.at[CLOSED] += 1
    order.stint[job] = -1
    return int(stint)


def leave_all(run: Run, jobs: JobArrays, order: Order, now_s: float) -> int:
    """Close the stints of jobs that stop or move; return how many changes there are."""
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
    """Take a stint out of the heap of ends."""
    # Who is stopped would have ended late: it is found sooner from the end.
    ends, at = run.ends, run.at[RUNNING] - 1
    while ends[at] != stint:
        at -= 1
    # It moves to the front, as if it ended first, and leaves from there.
    while at > 0:
        above = (at - 1) >> 1
        ends[at] = ends[above]
        at = above
    ends[0] = stint
    pop_end(run)


def enter_all(run: Run, jobs: JobArrays, order: Order, now_s: float) -> bool:
    """Begin the stints of jobs that start or move; tell whether the loop may go on."""
    for at in range(order.at[CHANGES]):
        job = order.changed[at]
        if job < 0:
            continue
        order.change_at[job] = -1
        if order.spots[job] == 0:
            continue
        left, stint = order.left[job], run.at[STINTS]
        until_s = end_of(now_s, now_s, left, jobs.rate[0])
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
    """Make a decision and note it; tell whether the loop may go on."""
    order.at[CHANGES] = 0
    if order.by_service:
        demote(order, run, now_s)
    elif run.at[WAITING]:
        ask_anew(run, jobs, order, now_s)
    walk(run, jobs, room, order, now_s)
    changes = leave_all(run, jobs, order, now_s)
    fits = enter_all(run, jobs, order, now_s)
    note(run, now_s, changes)
    order.wake_s[0] = inf
    if run.at[WAITING]:
        at_s = next_crossing_s(order) if order.by_service else next_doubt_s(order, now_s)
        order.wake_s[0] = at_s if at_s <= LATEST_S else inf
    return fits and not order.at[FULL]


def finish_jobs(run: Run, jobs: JobArrays, room: Room, order: Order, now_s: float) -> bool:
    """Close the stints that end now; tell whether there are any."""
    before = run.at[CLOSED]
    while run.at[RUNNING] and run.until_s[run.ends[0]] == now_s:
        stint = pop_end(run)
        run.at[RUNNING] -= 1
        job = run.stint_job[stint]
        unindex(order, job)
        give(room, 0, order.first[job], order.spots[job])
        order.spots[job] = 0
        if order.by_service:
            end_service(order, job, now_s)
        end_stint(run, order, job, now_s)
        run.at[SETTLED] += 1
    return bool(run.at[CLOSED] > before)


def receive(run: Run, jobs: JobArrays, order: Order, now_s: float) -> bool:
    """Let jobs that are submitted now wait; tell whether there are any."""
    job, count, before = run.at[NEXT], len(jobs.submit_s), run.at[WAITING]
    while job < count and jobs.submit_s[job] <= now_s:
        if jobs.kind[job] < 0:
            run.at[SETTLED] += 1
        else:
            first_key(order, jobs, run, job, now_s)
            wait_for_turn(order, jobs, job)
            run.at[WAITING] += 1
        job += 1
    run.at[NEXT] = job
    return bool(run.at[WAITING] > before)


def has_space(run: Run) -> bool:
    """Tell whether the arrays of the record are long enough for another decision."""
    most = len(run.ends)
    stints, decisions = len(run.stint_job), len(run.decided_s)
    return bool(run.at[STINTS] + most < stints and run.at[DECISIONS] + 1 < decisions)


def run_preemption(run: Run, jobs: JobArrays, room: Room, order: Order, steps: int) -> int:
    """Run on for some instants; return `GOES_ON`, `OVER` or `ENDLESS`."""
    for _ in range(steps):
        now_s = min(next_instant(run, jobs), order.wake_s[0])
        if now_s == inf or not has_space(run):
            return ENDLESS
        arrived = receive(run, jobs, order, now_s)
        freed = finish_jobs(run, jobs, room, order, now_s)
        if run.at[SETTLED] == len(jobs.submit_s):
            return OVER
        due = arrived or freed or now_s == order.wake_s[0]
        if due and not decide_preempting(run, jobs, room, order, now_s):
            return ENDLESS
    return GOES_ON
