"""Preemption by estimated remaining time: `allocators.queue.srtf.Remaining` over arrays.

See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf

from sim.clock import STEP_S
from sim.engine.fast.loops import DECISIONS, JobArrays, Run, nearest_instant
from sim.engine.fast.order import (
    COUNT,
    FULL,
    KEY,
    LINKS,
    Order,
    compare_counts,
    count_freed,
    insert_running,
    nth_worst,
    remove_running,
    set_key,
)

_LOST = -1.0
_PATIENCE_S = 1 / 64
_PAUSE_S = 1.0
_BELOW = 1.0 - 2.0**-53
"""A positive number times this is the next number towards 0, like `math.nextafter`."""


def estimated_work_left(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> float:
    """Return the estimated work left of a job; double the estimate if the job has outlived it."""
    left, stint = order.left[job], order.stint[job]
    if stint >= 0:
        moving_s = now_s - max(run.began_s[stint], order.resume_s[job])
        if moving_s > 0:
            left -= jobs.rate[run.stint_pool[stint]] * moving_s
    done, total = jobs.work[job] - left, order.times.total[job]
    if total <= done:
        if done - total < 1e-6:
            return 1e-6
        while total <= done:
            total *= 2
        order.times.total[job] = total
    return float(total - done)


def set_need(
    order: Order, jobs: JobArrays, run: Run, job: int, now_s: float, pause_s: float
) -> None:
    """Set the first number of a key: the weighted remaining time with the next pause."""
    left, times, kind = (
        estimated_work_left(order, jobs, run, job, now_s),
        order.times,
        jobs.kind[job],
    )
    left_s = nearest_instant(left * times.scale[kind] + pause_s)
    times.pause_s[job] = pause_s
    set_key(order, job, 0, left_s * times.weight[kind])


def set_key_by_time(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Set the key of a new waiting job by remaining time."""
    set_need(order, jobs, run, job, now_s, jobs.start_s)
    set_key(order, job, 1, now_s)
    set_key(order, job, 2, inf)
    for at in range(3, KEY):
        set_key(order, job, at, 0.0)


def reset_key_by_time(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Set the key of a stopped or evicted job; one placed at this instant keeps its tie-breakers.

    An evicted job that has lost work keeps the place that it had before.
    """
    if abs(order.since[job]) == now_s:
        if order.stint[job] < 0:
            return
    elif order.stint[job] >= 0 or is_as_expected(order, jobs, run, job, now_s):
        set_place_among_equals(order, jobs, job, now_s)
    else:
        set_lost_place(order, jobs, job, run.decided_s[run.at[DECISIONS] - 1], now_s)
    set_need(order, jobs, run, job, now_s, order.restart_s)


def is_as_expected(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> bool:
    """Return True if an evicted job needs no more time than it did while it ran."""
    kind, times = jobs.kind[job], order.times
    left = estimated_work_left(order, jobs, run, job, now_s)
    left_s = nearest_instant(left * times.scale[kind] + times.pause_s[job]) * times.weight[kind]
    return bool(left_s <= nearest_instant(times.finish_s[job] - now_s) * pace_of(order, jobs, job))


def set_lost_place(order: Order, jobs: JobArrays, job: int, decided_s: float, now_s: float) -> None:
    """Set the tie-breakers of a job that lost work: its place at the last decision."""
    before = nearest_instant(order.times.finish_s[job] - decided_s) * pace_of(order, jobs, job)
    place = order_among_equals(order, jobs, job, decided_s)
    set_key(order, job, 1, now_s)
    set_key(order, job, 2, _LOST)
    set_key(order, job, 3, before)
    for at in range(len(place)):
        set_key(order, job, at + 4, place[at])


def pace_of(order: Order, jobs: JobArrays, job: int) -> float:
    """Return the rate at which the need of a running job falls."""
    return float(order.times.pace[jobs.kind[job] * len(order.speed) + order.pool[job]])


def order_among_equals(
    order: Order, jobs: JobArrays, job: int, now_s: float
) -> tuple[float, float, float, float]:
    """Return the sort key of a running job among jobs of the same remaining time."""
    since, count, times = order.since[job], order.count[job], order.times
    if since == now_s:
        return 1.0, 0.0, since, count
    if since == -now_s:
        return -1.0, 0.0, since, count
    if abs(since) == now_s * _BELOW:
        link = -1 - int(count)
        return 0.0, times.link_pace[link], times.link_since[link], times.link_count[link]
    return 0.0, pace_of(order, jobs, job), since, count


def set_place_among_equals(order: Order, jobs: JobArrays, job: int, now_s: float) -> None:
    """Set the tie-breakers in the key of a running job that stops or moves."""
    set_key(order, job, 1, now_s)
    place = order_among_equals(order, jobs, job, now_s)
    for at in range(len(place)):
        set_key(order, job, at + 2, place[at])
    for at in range(len(place) + 2, KEY):
        set_key(order, job, at, 0.0)


def ties(order: Order, job: int, pace: float, now_s: float, count: float) -> tuple[float, float]:
    """Return the tie-breakers of a waiting job among running jobs of a pace.

    As `allocators.queue.srtf._tie_key`; `count` is that of a job that did not run until now.
    """
    key, at, times = order.key, KEY * job, order.times
    if key[at + 1] < now_s or key[at + 2] == _LOST:
        return -now_s, count
    if key[at + 2] == inf:
        return now_s, count
    if key[at + 2] != 0.0 or key[at + 3] == pace:
        return key[at + 4], key[at + 5]
    link = order.at[LINKS]
    if link == len(times.link_pace) - 1:
        order.at[FULL] = 1
    else:
        order.at[LINKS] = link + 1
    times.link_pace[link], times.link_since[link] = key[at + 3], key[at + 4]
    times.link_count[link] = key[at + 5]
    since = now_s * _BELOW
    return (-since if key[at + 3] < pace else since), -1.0 - link


def set_height_by_time(order: Order, jobs: JobArrays, job: int, now_s: float) -> None:
    """Set height and tie-breakers of a starting job by its estimated finish."""
    order.at[COUNT] += 1
    pace = pace_of(order, jobs, job)
    order.since[job], order.count[job] = ties(order, job, pace, now_s, float(order.at[COUNT]))
    order.height[job] = nearest_instant(now_s + order.key[KEY * job] / pace)
    order.times.finish_s[job] = order.height[job]


def set_limit_by_time(order: Order, group: int, job: int, now_s: float) -> None:
    """Set the height above which jobs of a group come after a waiting job."""
    pace, limit = order.groups.pace[group], order.groups.limit
    limit[3 * group] = nearest_instant(now_s + order.key[KEY * job] / pace)
    limit[3 * group + 1], limit[3 * group + 2] = ties(order, job, pace, now_s, inf)


def needs_more_time(order: Order, jobs: JobArrays, one: int, other: int, now_s: float) -> bool:
    """Return True if a running job ranks below one of another group."""
    mine = nearest_instant(order.height[one] - now_s) * pace_of(order, jobs, one)
    theirs = nearest_instant(order.height[other] - now_s) * pace_of(order, jobs, other)
    if mine != theirs:
        return bool(mine > theirs)
    place = order_among_equals(order, jobs, one, now_s)
    compared = order_among_equals(order, jobs, other, now_s)
    for at in range(len(place) - 1):
        if place[at] != compared[at]:
            return place[at] > compared[at]
    side = compare_counts(order, place[3], compared[3])
    return one > other if side == 0 else side > 0


def reestimate_late_jobs(run: Run, jobs: JobArrays, order: Order, now_s: float) -> None:
    """Re-estimate the finish of running jobs that should have ended by now, and re-sort them."""
    for group in range(len(order.groups.size)):
        late, size = 0, order.groups.size[group]
        while late < size:
            job = nth_worst(order, group, size - 1 - late)
            if order.height[job] > now_s:
                break
            order.stopped[late] = job
            late += 1
        for at in range(late):
            job = order.stopped[at]
            remove_running(order, jobs, job)
            left_s = (
                estimated_work_left(order, jobs, run, job, now_s) / order.speed[order.pool[job]]
            )
            order.height[job] = nearest_instant(now_s + max(left_s, STEP_S))
            insert_running(order, jobs, job)
            count_freed(order, jobs.need[jobs.kind[job]])


def next_check_s(order: Order, now_s: float) -> float:
    """Return when to re-estimate: 1/64 s after the first finish, at least 1 s from now."""
    first_s = inf
    for group in range(len(order.groups.size)):
        if order.groups.size[group]:
            best = nth_worst(order, group, order.groups.size[group] - 1)
            first_s = min(first_s, order.height[best])
    return nearest_instant(max(first_s + _PATIENCE_S, now_s + _PAUSE_S))


def gain_by_time(
    order: Order, jobs: JobArrays, run: Run, job: int, pool: int, now_s: float
) -> float:
    """Return the seconds that a running job saves by a move to a pool."""
    work = estimated_work_left(order, jobs, run, job, now_s)
    here, there = order.speed[order.pool[job]], order.speed[pool]
    return float(work / here - work / there - order.restart_s)
