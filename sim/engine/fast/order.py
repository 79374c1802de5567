"""An order of jobs in which running ones are stopped for others: waiting jobs in heaps by their
keys, running ones sorted by their heights.

See `sim.engine.fast.room` for how this is compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sim.engine.fast.loops import JobArrays
from sim.engine.fast.room import move

INDEX, COUNT, CHANGES, STOPPED, USED, FULL, FRONT, LATE = range(8)
"""What `Order.at` counts: running jobs, places handed out, changes of the present decision, jobs
stopped for the one that is tried, whether the order ever mattered (a running job was stopped, or
moved to a lower queue), whether an array was too short or numbers were too close to call, where the
running jobs begin in `Order.worst`, and whether a job that has just ended had left its queue.
"""
KEY = 6


class Times(NamedTuple):
    """Of an order by remaining time; see `allocators.queue.srtf.Remaining`.

    Parameters
    ----------
    pace : float
        How fast the need of a running job falls.
    speed : float
        Work per second as estimated.
    close_s : float
        Two estimated finishes that are nearer than this are too close to call: rounded at another
        instant they might stand the other way round.
    total : array of float64, shape (jobs,)
        Estimated work; doubled when a job outlives it.
    """

    pace: float
    speed: float
    close_s: float
    total: Any


class Service(NamedTuple):
    """Of an order by attained service; see `allocators.queue.las.Attained`.

    Parameters
    ----------
    queues, most : int
        Queues but the last one, and how many jobs may run.
    by_submission : bool
        Whether jobs stand in a queue as they were submitted.
    limit_s : array of float64, shape (kinds, queues) as one row
        Seconds of service after which a job of each demand leaves each queue.
    served_gpu_s, executed_s : array of float64, shape (jobs,)
        What a job received in stints that are closed, and its service when it stopped last.
    queue : array of int32, shape (jobs,)
        In which queue each job is.
    waiting : array of int64, shape (queues + 1,)
        Waiting jobs of each.
    cross_s, cross_at : array of float64 and int32, shape (queues, jobs) as one row
        When each running job will reach each limit, and its place in the heap; -1 = none.
    crossings, crossing : array of int64, shape (queues,), and int32, shape (queues, most)
        A heap of running jobs for each limit, by `cross_s`, and how many there are.
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
    """Which jobs go before which.

    Parameters
    ----------
    at : array of int64
        See `INDEX`.
    wake_s : array of float64, shape (1,)
        When to decide again at the latest.
    by_service : bool
        Whether `service` counts, else `times`.
    times, service : Times, Service
        What keys and heights are made from.
    blocks : bool
        Whether the first job without room holds up all behind it.
    left : array of float64, shape (jobs,)
        True work left when the job began or stopped last.
    key : array of float64, shape (jobs, 6) as one row
        Key of each waiting job, and of each running one that with which it started.
    height, since, count : array of float64, shape (jobs,)
        Place of each running job: its estimated finish or its queue, and two tie-breakers.
    worst : array of int32
        Running jobs, the highest first.
    stint : array of int32, shape (jobs,)
        The stint of a job that ran when the decision began; -1 = none.
    first, spots : array of int32, shape (jobs,)
        What a job holds by now; no spots = nothing.
    change_at : array of int32, shape (jobs,)
        Place of a job in the changes of the present decision; -1 = it has none.
    changed : array of int32
        The jobs there; -1 = none any more.
    stopped : array of int32
        Jobs that make room for the one that is tried.
    lanes : array of int32, shape (jobs,)
        Waiting jobs, a heap for each demand.
    lane_base, lane_size : array of int64, shape (kinds,)
        Where each begins, and how many it holds.
    closed : array of int64, shape (kinds,)
        Whether a job of the demand has failed at this decision.
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


# -- the running jobs


def higher(order: Order, one: int, other: int) -> bool:
    """Tell whether a running job is worse than another one."""
    if order.height[one] != order.height[other]:
        return bool(order.height[one] > order.height[other])
    if order.since[one] != order.since[other]:
        return bool(order.since[one] > order.since[other])
    if order.count[one] != order.count[other]:
        return bool(order.count[one] > order.count[other])
    return one > other


def index_place(order: Order, job: int) -> int:
    """Return the place of a running job among all."""
    low = int(order.at[FRONT])
    high = low + int(order.at[INDEX])
    while low < high:
        middle = (low + high) >> 1
        if higher(order, order.worst[middle], job):
            low = middle + 1
        else:
            high = middle
    return low


def index(order: Order, job: int) -> None:
    """Add a job to the running ones; the shorter side makes room where it can."""
    at, front, size = index_place(order, job), order.at[FRONT], order.at[INDEX]
    if front > 0 and (2 * (at - front) < size or front + size == len(order.worst)):
        move(order.worst, front, at, -1)
        order.at[FRONT] = front - 1
        at -= 1
    else:
        move(order.worst, at, front + size, 1)
    order.worst[at] = job
    order.at[INDEX] = size + 1


def unindex(order: Order, job: int) -> None:
    """Take it out."""
    at, front, size = index_place(order, job), order.at[FRONT], order.at[INDEX]
    if 2 * (at - front) < size:
        move(order.worst, front, at, 1)
        order.at[FRONT] = front + 1
    else:
        move(order.worst, at + 1, front + size, -1)
    order.at[INDEX] = size - 1


def best_running(order: Order) -> int:
    """Return the running job that needs least; there is one."""
    return int(order.worst[order.at[FRONT] + order.at[INDEX] - 1])


# -- the waiting jobs


def key_before(order: Order, one: int, other: int) -> bool:
    """Tell whether a waiting job goes before another one."""
    for at in range(KEY):
        mine, theirs = order.key[KEY * one + at], order.key[KEY * other + at]
        if mine != theirs:
            return bool(mine < theirs)
    return one < other


def wait_for_turn(order: Order, jobs: JobArrays, job: int) -> None:
    """Put a job into the heap of its demand."""
    kind = jobs.kind[job]
    base, at = order.lane_base[kind], order.lane_size[kind]
    while at > 0:
        above = (at - 1) >> 1
        if key_before(order, order.lanes[base + above], job):
            break
        order.lanes[base + at] = order.lanes[base + above]
        at = above
    order.lanes[base + at] = job
    order.lane_size[kind] += 1
    if order.by_service:
        order.service.waiting[order.service.queue[job]] += 1


def take_turn(order: Order, kind: int) -> None:
    """Take the first job out of a heap."""
    base, size = order.lane_base[kind], order.lane_size[kind] - 1
    if order.by_service:
        order.service.waiting[order.service.queue[order.lanes[base]]] -= 1
    item, at, below = order.lanes[base + size], 0, 1
    while below < size:
        if below + 1 < size and key_before(
            order, order.lanes[base + below + 1], order.lanes[base + below]
        ):
            below += 1
        if key_before(order, item, order.lanes[base + below]):
            break
        order.lanes[base + at] = order.lanes[base + below]
        at, below = below, 2 * below + 1
    order.lanes[base + at] = item
    order.lane_size[kind] = size


def next_turn(order: Order) -> int:
    """Return the demand of the first job that has not failed; -1 = there is none."""
    best = -1
    for kind in range(len(order.lane_size)):
        if (
            order.lane_size[kind]
            and not order.closed[kind]
            and (
                best < 0
                or key_before(
                    order,
                    order.lanes[order.lane_base[kind]],
                    order.lanes[order.lane_base[best]],
                )
            )
        ):
            best = kind
    return best
