"""Keys and heights by estimated remaining time: `allocators.queue.srtf.Remaining` over arrays.

See `sim.engine.fast.room` for how this is compiled.
"""

from __future__ import annotations

from math import inf

from sim.clock import STEP_S
from sim.engine.fast.loops import JobArrays, Run, nearest
from sim.engine.fast.order import (
    COUNT,
    FRONT,
    INDEX,
    KEY,
    Order,
    best_running,
    index,
    set_key,
    unindex,
)

_LOST = -1.0
_PATIENCE_S = 1 / 64
_PAUSE_S = 1.0
_MOST_STEPS = 1e12  # beyond, the rest of a division is no longer exact
_HALFWAY = 0.1


def estimated_left(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> float:
    """Return the estimated work left of a job, see `sim.perf.estimators.SizeEstimator`."""
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


def key_by_time(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Give a newcomer its key."""
    need = nearest(estimated_left(order, jobs, run, job, now_s))
    for at in range(KEY):
        set_key(order, job, at, 0.0)
    set_key(order, job, 0, need)
    set_key(order, job, 1, now_s)
    set_key(order, job, 2, inf)


def key_by_time_again(order: Order, jobs: JobArrays, run: Run, job: int, now_s: float) -> None:
    """Give a job that is stopped its key, which is the old one if it was to begin just now."""
    since = order.since[job]
    if abs(since) == now_s:
        if order.stint[job] >= 0:
            set_key(order, job, 0, nearest(estimated_left(order, jobs, run, job, now_s)))
        return
    set_key(order, job, 0, nearest(estimated_left(order, jobs, run, job, now_s)))
    set_key(order, job, 1, now_s)
    set_key(order, job, 2, 0.0)
    set_key(order, job, 3, order.times.pace)
    set_key(order, job, 4, since)
    set_key(order, job, 5, order.count[job])


def tie_since(order: Order, job: int, now_s: float) -> float:
    """Return where a waiting job stands among running ones of the same need: since when."""
    at = KEY * job
    if order.key[at + 1] < now_s or order.key[at + 2] == _LOST:
        return -now_s
    return float(order.key[at + 4]) if order.key[at + 2] < inf else now_s


def tie_count(order: Order, job: int, now_s: float, count: float) -> float:
    """Return the same: the place by count."""
    at = KEY * job
    if order.key[at + 1] < now_s or order.key[at + 2] == _LOST or order.key[at + 2] == inf:
        return count
    return float(order.key[at + 5])


def rise_by_time(order: Order, job: int, now_s: float) -> None:
    """Give a job that starts its height."""
    order.at[COUNT] += 1
    count = float(order.at[COUNT])
    since, place = tie_since(order, job, now_s), tie_count(order, job, now_s, count)
    order.since[job], order.count[job] = since, place
    order.height[job] = nearest(now_s + order.key[KEY * job] / order.times.pace)


def limit_by_time(order: Order, job: int, now_s: float) -> tuple[float, float, float]:
    """Return the height above which running jobs stand behind a waiting one."""
    finish_s = nearest(now_s + order.key[KEY * job] / order.times.pace)
    return finish_s, tie_since(order, job, now_s), tie_count(order, job, now_s, inf)


def is_halfway(order: Order, job: int) -> bool:
    """Tell whether the estimated time of a waiting job lies halfway between two instants, so that
    it is rounded up at one time and down at another.
    """
    steps = order.key[KEY * job] / order.times.pace / STEP_S
    return bool(steps > _MOST_STEPS or abs(steps % 1.0 - 0.5) < _HALFWAY)


def ask_anew(run: Run, jobs: JobArrays, order: Order, now_s: float) -> None:
    """Ask for the need of running jobs that should have ended by now."""
    late = 0
    while order.at[INDEX] > late:
        job = order.worst[order.at[FRONT] + order.at[INDEX] - 1 - late]
        if order.height[job] > now_s:
            break
        order.stopped[late] = job
        late += 1
    for at in range(late):
        job = order.stopped[at]
        unindex(order, job)
        left_s = estimated_left(order, jobs, run, job, now_s) / order.times.speed
        order.height[job] = nearest(now_s + max(left_s, STEP_S))
        index(order, job)


def next_doubt_s(order: Order, now_s: float) -> float:
    """Return when to ask the first of the running jobs anew."""
    first_s = inf
    if order.at[INDEX]:
        first_s = order.height[best_running(order)]
    return nearest(max(first_s + _PATIENCE_S, now_s + _PAUSE_S))
