"""Preemption order: waiting jobs in heaps by key, running jobs sorted by height.

See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sim.engine.fast.free_gpus import move_items
from sim.engine.fast.loops import JobArrays

INDEX, COUNT, CHANGES, STOPPED, USED, FULL, FRONT, LATE = range(8)
"""Indices of `Order.at`: running jobs; places assigned; changes of this decision; jobs stopped for
the current one; whether a running job was ever stopped or demoted; whether an array was too short
or numbers too close to compare; begin of the running jobs in `Order.worst`; whether a job that just
ended had left its queue.
"""
KEY = 6


class Times(NamedTuple):
    """Parameters of an order by remaining time; see `allocators.queue.srtf.Remaining`.

    Parameters
    ----------
    pace : float
        Rate at which the need of a running job falls.
    speed : float
        Work per second as estimated.
    close_s : float
        Two estimated finishes nearer than this are too close to compare: rounded at another instant
        their order might change.
    total : array of float64, shape (jobs,)
        Estimated work; doubled when a job outlives it.
    """

    pace: float
    speed: float
    close_s: float
    total: Any


class Service(NamedTuple):
    """State of an order by attained service; see `allocators.queue.las.Attained`.

    Parameters
    ----------
    queues, most : int
        Number of queues without the last one, and maximum number of running jobs.
    by_submission : bool
        Whether a queue is in order of submission.
    limit_s : array of float64, shape (kinds, queues) as one row
        Seconds of service after which a job of each demand leaves each queue.
    served_gpu_s, executed_s : array of float64, shape (jobs,)
        Service in closed stints, and total service at the last stop.
    queue : array of int32, shape (jobs,)
        Queue of each job.
    waiting : array of int64, shape (queues + 1,)
        Number of waiting jobs of each queue.
    cross_s, cross_at : array of float64 and int32, shape (queues, jobs) as one row
        Instant at which each running job reaches each limit, and its index in the heap; -1 = none.
    crossings, crossing : array of int64, shape (queues,), and int32, shape (queues, most)
        Size of the heap of each limit, and the heaps: running jobs by `cross_s`.
    """

    queues: int
    most: int
    by_submission: bool
    limit_s: Any
    served_gpu_s: Any
    executed_s: Any
    queue: Any
    waiting: Any
    cross_s: Any
    cross_at: Any
    crossings: Any
    crossing: Any


class Order(NamedTuple):
    """State of a preemption order.

    Parameters
    ----------
    at : array of int64
        See `INDEX`.
    wake_s : array of float64, shape (1,)
        Latest instant of the next decision.
    by_service : bool
        Whether `service` counts, else `times`.
    times, service : Times, Service
        Data for keys and heights.
    blocks : bool
        Whether the first job that does not fit blocks all jobs behind it.
    left : array of float64, shape (jobs,)
        True work left at the last begin or stop of each job.
    key : array of float64, shape (jobs, 6) as one row
        Key of each waiting job; running jobs keep the key of their start.
    height, since, count : array of float64, shape (jobs,)
        Place of each running job: its estimated finish or its queue, and two tie-breakers.
    worst : array of int32
        Running jobs, highest first.
    stint : array of int32, shape (jobs,)
        Stint of each job that ran when the decision began; -1 = none.
    first, spots : array of int32, shape (jobs,)
        First spot and number of spots that each job holds now.
    change_at : array of int32, shape (jobs,)
        Index of each job in the changes of this decision; -1 = none.
    changed : array of int32
        Changed jobs of this decision; -1 = dropped.
    stopped : array of int32
        Jobs to stop for the current one.
    lanes : array of int32, shape (jobs,)
        Waiting jobs, one heap per demand.
    lane_base, lane_size : array of int64, shape (kinds,)
        Begin and size of each heap.
    closed : array of int64, shape (kinds,)
        Whether a job of each demand did not fit at this decision.
    """

    at: Any
    wake_s: Any
    by_service: bool
    times: Times
    service: Service
    blocks: bool
    left: Any
    key: Any
    height: Any
    since: Any
    count: Any
    worst: Any
    stint: Any
    first: Any
    spots: Any
    change_at: Any
    changed: Any
    stopped: Any
    lanes: Any
    lane_base: Any
    lane_size: Any
    closed: Any


def set_key(order: Order, job: int, at: int, value: float) -> None:
    """Set one number of a key."""
    order.key[KEY * job + at] = value


# -- running jobs


def is_higher(order: Order, one: int, other: int) -> bool:
    """Return True if a running job has a worse place than another one."""
    if order.height[one] != order.height[other]:
        return bool(order.height[one] > order.height[other])
    if order.since[one] != order.since[other]:
        return bool(order.since[one] > order.since[other])
    if order.count[one] != order.count[other]:
        return bool(order.count[one] > order.count[other])
    return one > other


def running_index(order: Order, job: int) -> int:
    """Return the index of a job in `Order.worst`, or the index at which to insert it."""
    low = int(order.at[FRONT])
    high = low + int(order.at[INDEX])
    while low < high:
        middle = (low + high) >> 1
        if is_higher(order, order.worst[middle], job):
            low = middle + 1
        else:
            high = middle
    return low


def insert_running(order: Order, job: int) -> None:
    """Insert a job into the sorted running jobs, moving the shorter side if possible."""
    at, front, size = running_index(order, job), order.at[FRONT], order.at[INDEX]
    if front > 0 and (2 * (at - front) < size or front + size == len(order.worst)):
        move_items(order.worst, front, at, -1)
        order.at[FRONT] = front - 1
        at -= 1
    else:
        move_items(order.worst, at, front + size, 1)
    order.worst[at] = job
    order.at[INDEX] = size + 1


def remove_running(order: Order, job: int) -> None:
    """Remove a job from the sorted running jobs."""
    at, front, size = running_index(order, job), order.at[FRONT], order.at[INDEX]
    if 2 * (at - front) < size:
        move_items(order.worst, front, at, 1)
        order.at[FRONT] = front + 1
    else:
        move_items(order.worst, at + 1, front + size, -1)
    order.at[INDEX] = size - 1


def best_running(order: Order) -> int:
    """Return the running job with the best place; there must be one."""
    return int(order.worst[order.at[FRONT] + order.at[INDEX] - 1])


# -- waiting jobs


def goes_before(order: Order, one: int, other: int) -> bool:
    """Return True if a waiting job goes before another one: by key, then by id."""
    for at in range(KEY):
        mine, theirs = order.key[KEY * one + at], order.key[KEY * other + at]
        if mine != theirs:
            return bool(mine < theirs)
    return one < other


def push_waiting(order: Order, jobs: JobArrays, job: int) -> None:
    """Add a job to the heap of its demand, and count it in its service queue."""
    kind = jobs.kind[job]
    base, at = order.lane_base[kind], order.lane_size[kind]
    while at > 0:
        above = (at - 1) >> 1
        if goes_before(order, order.lanes[base + above], job):
            break
        order.lanes[base + at] = order.lanes[base + above]
        at = above
    order.lanes[base + at] = job
    order.lane_size[kind] += 1
    if order.by_service:
        order.service.waiting[order.service.queue[job]] += 1


def pop_waiting(order: Order, kind: int) -> None:
    """Remove the first job of a demand's heap, and no longer count it in its service queue."""
    base, size = order.lane_base[kind], order.lane_size[kind] - 1
    if order.by_service:
        order.service.waiting[order.service.queue[order.lanes[base]]] -= 1
    item, at, below = order.lanes[base + size], 0, 1
    while below < size:
        if below + 1 < size and goes_before(
            order, order.lanes[base + below + 1], order.lanes[base + below]
        ):
            below += 1
        if goes_before(order, item, order.lanes[base + below]):
            break
        order.lanes[base + at] = order.lanes[base + below]
        at, below = below, 2 * below + 1
    order.lanes[base + at] = item
    order.lane_size[kind] = size


def next_waiting_kind(order: Order) -> int:
    """Return the demand of the first waiting job, without closed demands; -1 = none."""
    best = -1
    for kind in range(len(order.lane_size)):
        if (
            order.lane_size[kind]
            and not order.closed[kind]
            and (
                best < 0
                or goes_before(
                    order,
                    order.lanes[order.lane_base[kind]],
                    order.lanes[order.lane_base[best]],
                )
            )
        ):
            best = kind
    return best
