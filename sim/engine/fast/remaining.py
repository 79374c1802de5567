"""Preemption by estimated remaining time: `allocators.queue.srtf.Remaining` over arrays.

See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf

from sim.clock import STEP_S
from sim.engine.fast.loops import JobArrays, Run, nearest_instant
from sim.engine.fast.order import (
    COUNT,
    FRONT,
    INDEX,
    KEY,
    Order,
    best_running,
    insert_running,
    remove_running,
    set_key,
)

_LOST = -1.0
_PATIENCE_S = 1 / 64
_PAUSE_S = 1.0
_MAX_STEPS = 1e12  # above this the remainder of a division is not exact
_HALFWAY = 0.1


def estimated_work_left(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> float:
    """Return the estimated work left of a job; double the estimate if the job has outlived it."""
    left, stint = order.left[job], order.stint[job]
    if stint >= 0:
        moving_s = now_s - run.began_s[stint]
        if moving_s > 0:
            left -= jobs.rate[0] * moving_s
    done, total = jobs.work[job] - left, order.times.total[job]
    if total <= done:
        if done - total < 1e-6:
            return 1e-6
        while total <= done:
            total *= 2
        order.times.total[job] = total
    return float(total - done)


def set_key_by_time(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Set the key of a new waiting job by remaining time."""
    need = nearest_instant(estimated_work_left(order, jobs, run, job, now_s))
    for at in range(KEY):
        set_key(order, job, at, 0.0)
    set_key(order, job, 0, need)
    set_key(order, job, 1, now_s)
    set_key(order, job, 2, inf)


def reset_key_by_time(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Set the key of a stopped job; one placed at this instant keeps its tie-breakers."""
    since = order.since[job]
    if abs(since) == now_s:
        if order.stint[job] >= 0:
            set_key(
                order, job, 0, nearest_instant(estimated_work_left(order, jobs, run, job, now_s))
            )
        return
    set_key(order, job, 0, nearest_instant(estimated_work_left(order, jobs, run, job, now_s)))
    set_key(order, job, 1, now_s)
    set_key(order, job, 2, 0.0)
    set_key(order, job, 3, order.times.pace)
    set_key(order, job, 4, since)
    set_key(order, job, 5, order.count[job])


def tie_since(order: Order, job: int, now_s: float) -> float:
    """Return the first tie-breaker of a waiting job among running jobs of equal need.

    Minus `now_s` if it waited before this instant, `now_s` if it is new, else its old one.
    """
    at = KEY * job
    if order.key[at + 1] < now_s or order.key[at + 2] == _LOST:
        return -now_s
    return float(order.key[at + 4]) if order.key[at + 2] < inf else now_s


def tie_count(order: Order, job: int, now_s: float, count: float) -> float:
    """Return the second tie-breaker of a waiting job: its old one if stopped now, or `count`."""
    at = KEY * job
    if order.key[at + 1] < now_s or order.key[at + 2] == _LOST or order.key[at + 2] == inf:
        return count
    return float(order.key[at + 5])


def set_height_by_time(order: Order, job: int, now_s: float) -> None:
    """Set height and tie-breakers of a starting job by its estimated finish."""
    order.at[COUNT] += 1
    count = float(order.at[COUNT])
    since, place = tie_since(order, job, now_s), tie_count(order, job, now_s, count)
    order.since[job], order.count[job] = since, place
    order.height[job] = nearest_instant(now_s + order.key[KEY * job] / order.times.pace)


def height_limit_by_time(order: Order, job: int, now_s: float) -> tuple[float, float, float]:
    """Return (finish, since, count) above which running jobs come after a waiting job."""
    finish_s = nearest_instant(now_s + order.key[KEY * job] / order.times.pace)
    return finish_s, tie_since(order, job, now_s), tie_count(order, job, now_s, inf)


def is_halfway(order: Order, job: int) -> bool:
    """Return True if a waiting job's estimated time is halfway between two instants.

    It is then rounded up at one time and down at another.
    """
    steps = order.key[KEY * job] / order.times.pace / STEP_S
    return bool(steps > _MAX_STEPS or abs(steps % 1.0 - 0.5) < _HALFWAY)


def reestimate_late_jobs(run: Run, jobs: JobArrays, order: Order, now_s: float) -> None:
    """Re-estimate the finish of running jobs that should have ended by now, and re-sort them."""
    late = 0
    while order.at[INDEX] > late:
        job = order.worst[order.at[FRONT] + order.at[INDEX] - 1 - late]
        if order.height[job] > now_s:
            break
        order.stopped[late] = job
        late += 1
    for at in range(late):
        job = order.stopped[at]
        remove_running(order, job)
        left_s = estimated_work_left(order, jobs, run, job, now_s) / order.times.speed
        order.height[job] = nearest_instant(now_s + max(left_s, STEP_S))
        insert_running(order, job)


def next_check_s(order: Order, now_s: float) -> float:
    """Return when to re-estimate: 1/64 s after the first finish, at least 1 s from now."""
    first_s = inf
    if order.at[INDEX]:
        first_s = order.height[best_running(order)]
    return nearest_instant(max(first_s + _PATIENCE_S, now_s + _PAUSE_S))
