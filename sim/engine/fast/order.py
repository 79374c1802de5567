"""State of a run with preemption: waiting jobs by key, running jobs by height, and free GPUs.

See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sim.engine.fast.free_gpus import Room, free_spots, move_items, take_spots
from sim.engine.fast.loops import JobArrays, Run

(
    COUNT, CHANGES, STOPPED, STOPS, USED, FULL, LATE, FREED, SPENT, WALK, IS_DIRTY, LAST, LINKS,
    IS_PUNCTUAL, COUNT_THEN,
) = range(15)  # fmt: skip
"""Indices of `Order.at`: places assigned; changes of this decision; jobs to stop for the current
one; all stops of this decision; whether a running job was ever stopped, moved or demoted; whether
an array was too short; whether a job that just ended had left its queue; the next five as in
`allocators.queue.preemption.Tally`; links; as in `allocators.queue.las.Attained`; places
assigned before this instant.
"""
BOUND = 4
"""Numbers of a bound; the first is its job."""
KEY = 8
"""Numbers of a key."""
_COUNT, _LAST_COUNT = 5, 7
"""Numbers of a key that may be links."""


class Times(NamedTuple):
    """Parameters of an order by remaining time; see `allocators.queue.srtf.Remaining`.

    Parameters
    ----------
    pace : array of float64, shape (kinds, pools) as one row
        Rate at which the need of a running job falls.
    scale : array of float64, shape (kinds,)
        Seconds on a GPU of speed 1 per unit of work.
    weight : array of float64, shape (kinds,)
        Factor of the remaining time: 1, or the GPUs of the job.
    total : array of float64, shape (jobs,)
        Estimated work; doubled when a job outlives it.
    pause_s, finish_s : array of float64, shape (jobs,)
        Pause in the key of each job, and its finish as estimated at its last start or move.
    link_pace, link_since, link_count : array of float64
        Nested tie-breakers of jobs that changed their pace while running. A count below 0 is the
        link with the index -1 - count.
    """

    pace: Any
    scale: Any
    weight: Any
    total: Any
    pause_s: Any
    finish_s: Any
    link_pace: Any
    link_since: Any
    link_count: Any


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


class Groups(NamedTuple):
    """Running jobs in groups: by pace and pool, or by queue and pool.

    Parameters
    ----------
    width : int
        Length of the row of each group in `worst`.
    of : array of int32, shape (kinds, pools) or (queues, pools) as one row
        Group of a demand or queue in each pool; -1 = none.
    pool, pace : array of int64 and float64, shape (groups,)
        Pool and pace of each group.
    front, size : array of int64, shape (groups,)
        Begin of each group in its row, and its number of jobs.
    worst : array of int32, shape (groups, width) as one row
        Running jobs, highest first.
    cursor : array of int64, shape (groups,)
        Index of the next job that the current search may stop; -1 = none.
    limit : array of float64, shape (groups, 3) as one row
        Height above which jobs of each group come after the waiting job of the current search.
    """

    width: int
    of: Any
    pool: Any
    pace: Any
    front: Any
    size: Any
    worst: Any
    cursor: Any
    limit: Any


class Lanes(NamedTuple):
    """Waiting jobs, one heap per demand or one for all: `allocators.queue.preemption.DemandQueue`.

    Parameters
    ----------
    heap : array of int32, shape (jobs,)
        Waiting jobs.
    base, size : array of int64, shape (lanes,)
        Begin and size of each heap.
    until : array of float64, shape (lanes,)
        Freed GPUs at which the first job of each lane is worth a try; 0 = at once.
    in_line : array of int32, shape (lanes,)
        Job of each lane to try in this pass; -1 = none.
    bound : array of int64, shape (lanes, 4) as one row
        Job, slack, walk and seen GPUs of each `GpuBound`; job -1 = no bound.
    is_misfit : array of int8, shape (lanes,)
        Whether the first job failed although enough GPUs were free.
    """

    heap: Any
    base: Any
    size: Any
    until: Any
    in_line: Any
    bound: Any
    is_misfit: Any


class Order(NamedTuple):
    """State of a preemption order.

    Parameters
    ----------
    at : array of int64
        See `COUNT`.
    wake_s : array of float64, shape (1,)
        Latest instant of the next decision.
    by_service : bool
        Whether `service` counts, else `times`.
    times, service, groups, lanes : Times, Service, Groups, Lanes
        Data for keys and heights; running and waiting jobs.
    blocks, moves, one_pool : bool
        Whether the first job that does not fit blocks all jobs behind it; whether running jobs move
        to better types; whether there is one pool.
    restart_s : float, seconds
        Pause of a restart or a move.
    pools : array of int64, shape (kinds,)
        Bit set of the pools that each demand admits, also if too small for its gang.
    speed, nominal : array of float64, shape (pools,)
        Work per second as estimated, and nominal speed.
    left : array of float64, shape (jobs,)
        True work left at the last begin or stop of each job.
    resume_s : array of float64, shape (jobs,)
        End of the pause of the last stint of each job; -1 = it never ran.
    key : array of float64, shape (jobs + lanes + 1, 8) as one row
        Key of each waiting job; running jobs keep the key of their start. Then the keys of the
        bounds, and that of the last start in this pass.
    height, since, count : array of float64, shape (jobs,)
        Place of each running job: its estimated finish or its queue, and two tie-breakers.
    stint : array of int32, shape (jobs,)
        Stint of each job that ran when the decision began; -1 = none.
    pool, first, spots : array of int32, shape (jobs,)
        Pool, first spot and number of spots that each job holds now.
    change_at : array of int32, shape (jobs,)
        Index of each job in the changes of this decision; -1 = none.
    changed : array of int32
        Changed jobs of this decision; -1 = dropped.
    stopped : array of int32
        Jobs to stop for the current one.
    movers, loss_s : array of int32, and float64, shape (jobs,)
        Jobs that may move as a heap, and minus the seconds that each one gains.
    """

    at: Any
    wake_s: Any
    by_service: bool
    times: Times
    service: Service
    groups: Groups
    lanes: Lanes
    blocks: bool
    moves: bool
    one_pool: bool
    restart_s: float
    pools: Any
    speed: Any
    nominal: Any
    left: Any
    resume_s: Any
    key: Any
    height: Any
    since: Any
    count: Any
    stint: Any
    pool: Any
    first: Any
    spots: Any
    change_at: Any
    changed: Any
    stopped: Any
    movers: Any
    loss_s: Any


def set_key(order: Order, job: int, at: int, value: float) -> None:
    """Set one number of a key."""
    order.key[KEY * job + at] = value


def free_gpus_for(order: Order, room: Room, kind: int) -> int:
    """Return the free GPUs of all pools that a demand admits."""
    if order.one_pool:
        return int(room.free[0])
    gpus = 0
    for pool in range(len(room.free)):
        if order.pools[kind] >> pool & 1:
            gpus += room.free[pool]
    return gpus


def free_job(room: Room, order: Order, job: int) -> None:
    """Free the GPUs that a job holds."""
    free_spots(room, order.pool[job], order.first[job], order.spots[job])


def take_job(room: Room, order: Order, job: int) -> None:
    """Take the GPUs of a job's spots."""
    take_spots(room, order.pool[job], order.first[job], order.spots[job])


def free_stopped(room: Room, order: Order, first: int, end: int) -> None:
    """Free the GPUs of a range of `Order.stopped`."""
    for at in range(first, end):
        free_job(room, order, order.stopped[at])


def take_stopped(room: Room, order: Order, first: int, end: int) -> None:
    """Take the GPUs of a range of `Order.stopped` again."""
    for at in range(first, end):
        take_job(room, order, order.stopped[at])


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


def forget_bounds(order: Order) -> None:
    """Have the first job of each lane tried, as nodes came or went."""
    for lane in range(len(order.lanes.size)):
        order.lanes.until[lane] = 0.0
        order.lanes.bound[BOUND * lane] = -1


def count_freed(order: Order, gpus: int) -> None:
    """Count freed GPUs, and allow jobs that failed with enough free GPUs another try."""
    order.at[FREED] += gpus
    order.at[IS_DIRTY] = 1


# -- running jobs


def compare_counts(order: Order, one: float, other: float) -> int:
    """Return -1, 0 or 1 for two counts, each a number or a link."""
    times = order.times
    while one != other:
        if one >= 0 or other >= 0:
            return -1 if one < other else 1
        mine, theirs = -1 - int(one), -1 - int(other)
        if times.link_pace[mine] != times.link_pace[theirs]:
            return -1 if times.link_pace[mine] < times.link_pace[theirs] else 1
        if times.link_since[mine] != times.link_since[theirs]:
            return -1 if times.link_since[mine] < times.link_since[theirs] else 1
        one, other = times.link_count[mine], times.link_count[theirs]
    return 0


def compare_height(order: Order, job: int, height: float, since: float, count: float) -> int:
    """Return -1, 0 or 1: whether a running job is below, at or above a height."""
    if order.height[job] != height:
        return -1 if order.height[job] < height else 1
    if order.since[job] != since:
        return -1 if order.since[job] < since else 1
    return compare_counts(order, order.count[job], count)


def is_higher(order: Order, one: int, other: int) -> bool:
    """Return True if a running job has a worse place than another one of its group."""
    side = compare_height(order, one, order.height[other], order.since[other], order.count[other])
    return one > other if side == 0 else side > 0


def group_of(order: Order, jobs: JobArrays, job: int) -> int:
    """Return the group of a running job by its pool, and its queue or demand."""
    row = int(order.height[job]) if order.by_service else jobs.kind[job]
    return int(order.groups.of[row * len(order.speed) + order.pool[job]])


def running_index(order: Order, group: int, job: int) -> int:
    """Return the index of a job in its row of `Groups.worst`, or where to insert it."""
    groups = order.groups
    row, low = group * groups.width, int(groups.front[group])
    high = low + int(groups.size[group])
    while low < high:
        middle = (low + high) >> 1
        if is_higher(order, groups.worst[row + middle], job):
            low = middle + 1
        else:
            high = middle
    return low


def insert_running(order: Order, jobs: JobArrays, job: int) -> None:
    """Insert a job into its group of running jobs, moving the shorter side if possible."""
    groups, group = order.groups, group_of(order, jobs, job)
    row, front, size = group * groups.width, groups.front[group], groups.size[group]
    at = running_index(order, group, job)
    if front > 0 and (2 * (at - front) < size or front + size == groups.width):
        move_items(groups.worst, row + front, row + at, -1)
        groups.front[group] = front - 1
        at -= 1
    else:
        move_items(groups.worst, row + at, row + front + size, 1)
    groups.worst[row + at] = job
    groups.size[group] = size + 1


def remove_running(order: Order, jobs: JobArrays, job: int) -> None:
    """Remove a job from its group of running jobs."""
    groups, group = order.groups, group_of(order, jobs, job)
    row, front, size = group * groups.width, groups.front[group], groups.size[group]
    at = running_index(order, group, job)
    if 2 * (at - front) < size:
        move_items(groups.worst, row + front, row + at, 1)
        groups.front[group] = front + 1
    else:
        move_items(groups.worst, row + at + 1, row + front + size, -1)
    groups.size[group] = size - 1


def nth_worst(order: Order, group: int, at: int) -> int:
    """Return a job of a group by its index, 0 = the worst one."""
    groups = order.groups
    return int(groups.worst[group * groups.width + groups.front[group] + at])


# -- waiting jobs


def is_before(order: Order, one: int, one_job: int, other: int, other_job: int) -> bool:
    """Return True if a row of `Order.key` with a job goes before another one."""
    key = order.key
    for at in range(KEY):
        mine, theirs = key[KEY * one + at], key[KEY * other + at]
        if mine != theirs:
            side = -1 if mine < theirs else 1
            if at in (_COUNT, _LAST_COUNT):
                side = compare_counts(order, mine, theirs)
            if side != 0:
                return side < 0
    return one_job < other_job


def goes_before(order: Order, one: int, other: int) -> bool:
    """Return True if a waiting job goes before another one: by key, then by id."""
    return is_before(order, one, one, other, other)


def copy_key(order: Order, source: int, row: int) -> None:
    """Copy the key of a job into another row of `Order.key`."""
    for at in range(KEY):
        order.key[KEY * row + at] = order.key[KEY * source + at]


def push_waiting(order: Order, jobs: JobArrays, job: int) -> None:
    """Add a job to its lane, which is worth a try if the job is its first."""
    lanes, lane = order.lanes, 0 if order.blocks else jobs.kind[job]
    base, at = lanes.base[lane], lanes.size[lane]
    while at > 0:
        above = (at - 1) >> 1
        if goes_before(order, lanes.heap[base + above], job):
            break
        lanes.heap[base + at] = lanes.heap[base + above]
        at = above
    lanes.heap[base + at] = job
    lanes.size[lane] += 1
    if at == 0:
        lanes.until[lane] = 0.0
    if order.by_service:
        order.service.waiting[int(order.key[KEY * job])] += 1


def pop_waiting(order: Order, lane: int) -> None:
    """Remove the first job of a lane."""
    lanes = order.lanes
    base, size = lanes.base[lane], lanes.size[lane] - 1
    if order.by_service:
        order.service.waiting[int(order.key[KEY * lanes.heap[base]])] -= 1
    item, at, below = lanes.heap[base + size], 0, 1
    while below < size:
        if below + 1 < size and goes_before(
            order, lanes.heap[base + below + 1], lanes.heap[base + below]
        ):
            below += 1
        if goes_before(order, item, lanes.heap[base + below]):
            break
        lanes.heap[base + at] = lanes.heap[base + below]
        at, below = below, 2 * below + 1
    lanes.heap[base + at] = item
    lanes.size[lane] = size


def first_in_line(order: Order) -> int:
    """Return the lane of the next job to try in this pass; -1 = none."""
    best, in_line = -1, order.lanes.in_line
    for lane in range(len(in_line)):
        if in_line[lane] >= 0 and (best < 0 or goes_before(order, in_line[lane], in_line[best])):
            best = lane
    return best
