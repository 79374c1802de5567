"""Preemption order by attained service: `allocators.queue.las.Attained` over arrays.

Heights and keys are those of that class, with decision and position as one number: three times the
decision plus the position. See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf

from sim.clock import STEP_S
from sim.engine.fast.loops import DECISIONS, JobArrays, Run, nearest_instant
from sim.engine.fast.order import (
    CHANGES,
    COUNT,
    COUNT_THEN,
    IS_PUNCTUAL,
    KEY,
    LATE,
    USED,
    Order,
    Service,
    count_freed,
    insert_running,
    remove_running,
    set_key,
)

_BEFORE, _AMONG, _BEHIND = range(3)
_TAIL = 1.0


def set_key_by_service(order: Order, job: int) -> None:
    """Set a new waiting job's key: in the first queue, by submission or at its tail."""
    for at in range(KEY):
        set_key(order, job, at, 0.0)
    if order.service.by_submission:
        set_key(order, job, 1, float(job))
    else:
        order.at[COUNT] += 1
        set_key(order, job, 1, _TAIL)
        set_key(order, job, 2, float(order.at[COUNT]))


def service_s(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> float:
    """Return the service of a running job in seconds at full size."""
    need = jobs.need[jobs.kind[job]]
    held_s = now_s - run.began_s[order.stint[job]]
    return float((order.service.served_gpu_s[job] + need * held_s) / need)


def reset_key_by_service(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Drop a stopped job's crossings, update its service and queue, and set its key.

    A job that started at this instant keeps its old key and service.
    """
    own, stored = order.service, order.service.queue[job]
    drop_crossings(own, job, len(order.left))
    if order.stint[job] < 0:
        return
    queue = advance_queue_of(order, jobs, job, service_s(order, jobs, run, job, now_s))
    if own.by_submission:
        return
    decision, since = run.at[DECISIONS] + 1, int(order.since[job])
    if queue != stored:
        set_crossed_key(order, job, order.at[COUNT])
    elif since // 3 == decision and since % 3 != _AMONG:
        set_key(order, job, 1, _TAIL)
        set_key(order, job, 2, order.count[job])
        set_key(order, job, 3, float(decision))
        set_key(order, job, 4, 0.0)
    else:
        set_key(order, job, 1, -float(decision))
        set_key(order, job, 2, order.since[job])
        set_key(order, job, 3, order.count[job])
        set_key(order, job, 4, 0.0)


def set_evicted_key(order: Order, jobs: JobArrays, run: Run, job: int) -> None:
    """Set the key of an evicted job: behind the jobs that are stopped at this instant."""
    own, stored = order.service, order.service.queue[job]
    drop_crossings(own, job, len(order.left))
    served_s = own.served_gpu_s[job] / jobs.need[jobs.kind[job]]
    queue = advance_queue_of(order, jobs, job, served_s)
    if own.by_submission:
        return
    decision = run.at[DECISIONS] + 1
    if queue != stored:
        set_crossed_key(order, job, order.at[COUNT_THEN])
        return
    set_key(order, job, 1, -float(decision))
    set_key(order, job, 2, 3.0 * (decision + 1))
    set_key(order, job, 3, order.since[job])
    set_key(order, job, 4, order.count[job])


def advance_queue_of(order: Order, jobs: JobArrays, job: int, executed_s: float) -> int:
    """Set the service of a job that waits again, and its queue in its key; return the queue."""
    own = order.service
    own.executed_s[job] = executed_s
    queue, row = own.queue[job], own.queues * jobs.kind[job]
    executed_s = nearest_instant(executed_s)
    while queue < own.queues and nearest_instant(own.limit_s[row + queue]) <= executed_s:
        queue += 1
        order.at[USED] = 1
    own.queue[job] = queue
    set_key(order, job, 0, float(queue))
    return int(queue)


def set_crossed_key(order: Order, job: int, count: int) -> None:
    """Set the rest of the key of a job that reached a limit by rounding, before its crossing."""
    own = order.service
    row = (own.queue[job] - 1) * len(order.left)
    set_key(order, job, 1, _TAIL)
    set_key(order, job, 2, count + 0.5)
    set_key(order, job, 3, own.cross_s[row + job])
    set_key(order, job, 4, float(job))


def set_height_by_service(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Set a starting job's height to its queue, and expect its crossings of later limits.

    A job stopped at this instant gets its old place.
    """
    own, queue = order.service, order.key[KEY * job]
    order.height[job] = queue
    if own.by_submission:
        order.since[job] = job
    elif order.stint[job] < 0:
        order.at[COUNT] += 1
        order.since[job] = 3 * (run.at[DECISIONS] + 1) + _AMONG
        order.count[job] = order.at[COUNT]
    expect_crossings(order, jobs, job, own.executed_s[job], now_s)


def set_limit_by_service(order: Order, run: Run, group: int, job: int) -> None:
    """Set the height above which jobs of a group come after a waiting job.

    In its own queue: jobs submitted later or, without that order, jobs demoted at this instant.
    """
    limit, row, at = order.groups.limit, 3 * group, KEY * job
    decision = run.at[DECISIONS] + 1
    limit[row], limit[row + 1], limit[row + 2] = order.key[at], 3.0 * decision + _AMONG, inf
    if order.service.by_submission:
        limit[row + 1] = job
    elif (
        order.key[at + 1] == _TAIL
        and order.key[at + 3] == decision
        and order.key[at + 2] == int(order.key[at + 2])
    ):
        limit[row + 1], limit[row + 2] = 3.0 * decision + _BEHIND, order.key[at + 2]


def confirm_starts(order: Order, jobs: JobArrays, run: Run, now_s: float) -> None:
    """Check the crossings of jobs that the last decision started, as `Attained.confirm_start`."""
    own = order.service
    for at in range(order.at[CHANGES]):
        job = order.changed[at]
        if order.at[IS_PUNCTUAL]:
            return
        if job < 0 or order.stint[job] < 0 or own.queue[job] == own.queues:
            continue
        queue, executed_s = own.queue[job], service_s(order, jobs, run, job, now_s)
        limit_s = own.limit_s[own.queues * jobs.kind[job] + queue]
        # The order of the additions decides how halves of a microsecond are rounded.
        at_s = nearest_instant(now_s + limit_s - executed_s)
        if own.cross_s[queue * len(order.left) + job] < at_s:
            drop_crossings(own, job, len(order.left))
            expect_crossings(order, jobs, job, executed_s, now_s)
        else:
            order.at[IS_PUNCTUAL] = 1


def demote_crossed_jobs(order: Order, jobs: JobArrays, run: Run, now_s: float) -> None:
    """Move running jobs that crossed a service limit to the tail of their next queue."""
    own, count = order.service, len(order.left)
    # a job that ended at or after its crossing counts as moved
    order.at[USED] |= order.at[LATE]
    order.at[LATE] = 0
    for queue in range(own.queues):
        while own.crossings[queue]:
            job = own.crossing[queue * own.most]
            at_s = own.cross_s[queue * count + job]
            if at_s > now_s:
                break
            drop_crossing(own, queue, job, count)
            if own.queue[job] != queue:
                continue
            own.queue[job] = queue + 1
            order.at[USED] = 1
            remove_running(order, jobs, job)
            order.height[job] = queue + 1
            if not own.by_submission:
                order.at[COUNT] += 1
                place = _BEHIND if at_s == now_s else _BEFORE
                order.since[job] = 3 * (run.at[DECISIONS] + 1) + place
                order.count[job] = order.at[COUNT]
            insert_running(order, jobs, job)
            count_freed(order, jobs.need[jobs.kind[job]])


def end_service(order: Order, job: int, now_s: float) -> None:
    """Drop an ended job's crossings; set `LATE` if it had reached its queue's limit."""
    own, jobs = order.service, len(order.left)
    queue = own.queue[job]
    if queue < own.queues and own.cross_s[queue * jobs + job] <= now_s:
        order.at[LATE] = 1
    drop_crossings(own, job, jobs)


def next_crossing_s(order: Order) -> float:
    """Return the next crossing out of a queue if jobs wait there or in the next; inf = none."""
    own, next_s = order.service, inf
    for queue in range(own.queues):
        if own.crossings[queue] and (own.waiting[queue] or own.waiting[queue + 1]):
            job = own.crossing[queue * own.most]
            next_s = min(next_s, own.cross_s[queue * len(order.left) + job])
    return next_s


def gain_by_service(
    order: Order, jobs: JobArrays, run: Run, job: int, pool: int, now_s: float
) -> float:
    """Return the seconds that a move saves if the job runs as long again as so far."""
    share = 1 - order.nominal[order.pool[job]] / order.nominal[pool]
    return float(share * service_s(order, jobs, run, job, now_s) - order.restart_s)


# -- heaps of crossings


def crosses_first(own: Service, row: int, one: int, other: int) -> bool:
    """Return True if a job reaches a limit before another one; ties by id.

    `row` is the offset of the limit in `Service.cross_s`.
    """
    one_s, other_s = own.cross_s[row + one], own.cross_s[row + other]
    return bool(one_s < other_s or (one_s == other_s and one < other))


def expect_crossings(
    order: Order, jobs: JobArrays, job: int, executed_s: float, now_s: float
) -> None:
    """Expect when a running job reaches the limits of its queue and all later ones."""
    own = order.service
    for queue in range(own.queue[job], own.queues):
        left_s = own.limit_s[own.queues * jobs.kind[job] + queue] - executed_s
        at_s = nearest_instant(now_s + max(left_s, STEP_S))
        expect_crossing(own, queue, job, len(order.left), at_s)


def expect_crossing(own: Service, queue: int, job: int, jobs: int, at_s: float) -> None:
    """Add the instant at which a job reaches a limit to the heap of that limit."""
    row, size = queue * jobs, own.crossings[queue]
    own.cross_s[row + job] = at_s
    own.crossings[queue] = size + 1
    sift_up(own, queue, job, jobs, size)


def sift_up(own: Service, queue: int, job: int, jobs: int, at: int) -> None:
    """Insert a job into a heap of crossings, at an index or above."""
    row, base = queue * jobs, queue * own.most
    while at > 0:
        above = (at - 1) >> 1
        other = own.crossing[base + above]
        if not crosses_first(own, row, job, other):
            break
        own.crossing[base + at] = other
        own.cross_at[row + other] = at
        at = above
    own.crossing[base + at] = job
    own.cross_at[row + job] = at


def drop_crossing(own: Service, queue: int, job: int, jobs: int) -> None:
    """Remove a job from the heap of one limit, if it is in it."""
    row, base = queue * jobs, queue * own.most
    at = own.cross_at[row + job]
    if at < 0:
        return
    own.cross_at[row + job] = -1
    size = own.crossings[queue] - 1
    own.crossings[queue] = size
    last = own.crossing[base + size]
    if last == job:
        return
    below = 2 * at + 1
    while below < size:
        if below + 1 < size and crosses_first(
            own, row, own.crossing[base + below + 1], own.crossing[base + below]
        ):
            below += 1
        other = own.crossing[base + below]
        if crosses_first(own, row, last, other):
            break
        own.crossing[base + at] = other
        own.cross_at[row + other] = at
        at, below = below, 2 * below + 1
    sift_up(own, queue, last, jobs, at)


def drop_crossings(own: Service, job: int, jobs: int) -> None:
    """Remove a job from the heaps of all limits."""
    for queue in range(own.queues):
        drop_crossing(own, queue, job, jobs)
