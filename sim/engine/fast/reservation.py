"""The loop of a queue with reservation: `allocators.queue.backfill` over arrays.

The first job that does not fit is promised a start, and jobs that pass it do not delay that start.
For pools where only free GPUs matter. See `sim.engine.fast.free_gpus` for compilation.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from sim.clock import STEP_S
from sim.engine.fast.free_gpus import SPOTS, Room, free_spots, move_items, place_in_pool
from sim.engine.fast.loops import (
    CLOSED,
    CONTINUES,
    NEXT,
    OVER,
    SETTLED,
    STINTS,
    UNSUPPORTED,
    WAITING,
    JobArrays,
    Run,
    begin_stint,
    close_ended_stints,
    heap_pop,
    heap_push,
    is_settled,
    nearest_instant,
    next_event_s,
    place_gang,
    record_decision,
)

(
    HEAD,
    BLOCKED,
    INSIDE,
    BEHIND,
    ENDS,
    PROMISED,
    POOL,
    EXTRA,
    STARTS,
    PASS,
    PASSED,
    JOINED,
    FOLLOWED,
) = range(13)
"""Indices of `Queue.at`: rank of the first job, and of the one that did not fit (-1 = none); jobs
in the window and behind it; expected ends; rank of the job with a promised start (-1 = none), pool
of the promise, and GPUs spare at it; jobs that passed in this pass, number of the pass, jobs that
passed in total; next job to join the queue; ends processed so far.
"""
_NO_RANK = -1
_NONE = 1 << 40


class Queue(NamedTuple):
    """Waiting jobs, and expected ends of running jobs.

    Parameters
    ----------
    at : array of int64
        See `HEAD`.
    promised_s : array of float64, shape (1,)
        The promised start.
    depth : int
        Number of jobs behind the first one that may pass.
    spare : bool
        Whether jobs may pass on GPUs that the first one leaves spare.
    speed : array of float64, shape (pools,)
        Work per second in each pool as estimated.
    total : array of float64, shape (jobs,)
        Estimated work; doubled when a job outlives it.
    limit_s : array of float64, shape (jobs,)
        Time limits that replace estimates; inf = none.
    line : array of int32
        The window: sorted ranks per demand.
    line_base, line_size : array of int64, shape (kinds,)
        Begin and size of each demand's line.
    behind : array of int32, shape (jobs,)
        Ranks behind the window, as a heap.
    end_s : array of float64
        Expected ends of running jobs, latest first, ties by job: the earliest ends, which are
        removed most often, are last.
    end_job : array of int32
        Job of each expected end.
    expected_s : array of float64, shape (jobs,)
        Expected end of each job.
    stint : array of int32, shape (jobs,)
        Stint of each running job.
    candidate, candidate_group, candidate_starts : array of int64, shape (kinds,)
        Rank per demand that may pass, index of its pool in `JobArrays.pool`, and number of starts
        when that was determined; `_NONE` = no job may pass.
    has_grown : array of int64, shape (kinds,)
        Whether a job entered the window since the last decision, per demand.
    only_short : array of int64
        Pass in which only jobs that end before the promised start may pass, per index of
        `JobArrays.pool`.
    barred : array of int32, shape (jobs,)
        Pass in which each job may not pass.
    """

    at: Any
    promised_s: Any
    depth: int
    spare: bool
    speed: Any
    total: Any
    limit_s: Any
    line: Any
    line_base: Any
    line_size: Any
    behind: Any
    end_s: Any
    end_job: Any
    expected_s: Any
    stint: Any
    candidate: Any
    candidate_group: Any
    candidate_starts: Any
    has_grown: Any
    only_short: Any
    barred: Any


# -- running jobs


def expected_end_index(queue: Queue, at_s: float, job: int) -> int:
    """Return the index of an expected end, or the index at which to insert it."""
    low, high = 0, int(queue.at[ENDS])
    while low < high:
        middle = (low + high) >> 1
        other_s = queue.end_s[middle]
        if other_s > at_s or (other_s == at_s and queue.end_job[middle] > job):
            low = middle + 1
        else:
            high = middle
    return low


def add_expected_end(queue: Queue, job: int, at_s: float) -> None:
    """Add the expected end of a running job."""
    place, size = expected_end_index(queue, at_s, job), queue.at[ENDS]
    move_items(queue.end_s, place, size, 1)
    move_items(queue.end_job, place, size, 1)
    queue.end_s[place], queue.end_job[place] = at_s, job
    queue.expected_s[job] = at_s
    queue.at[ENDS] = size + 1


def drop_expected_end(queue: Queue, job: int) -> None:
    """Remove the expected end of a job."""
    place, size = expected_end_index(queue, queue.expected_s[job], job), queue.at[ENDS]
    move_items(queue.end_s, place + 1, size, -1)
    move_items(queue.end_job, place + 1, size, -1)
    queue.at[ENDS] = size - 1


def expected_left_s(run: Run, jobs: JobArrays, queue: Queue, job: int, now_s: float) -> float:
    """Return the expected remaining seconds of a running job: by time limit, else estimate.

    Estimates and limits that the job has outlived are doubled.
    """
    stint = queue.stint[job]
    began_s, pool = run.began_s[stint], run.stint_pool[stint]
    limit_s: float = queue.limit_s[job]
    if limit_s < inf:
        gpus = jobs.need[jobs.kind[job]]
        been_s = gpus * (now_s - began_s) / gpus
        while limit_s <= been_s:
            limit_s *= 2
        return float(limit_s - been_s)
    resume_s = began_s
    if jobs.start_s > 0:
        resume_s = nearest_instant(began_s + jobs.start_s)
    left, moving_s = jobs.work[job], now_s - max(began_s, resume_s)
    if moving_s > 0:
        left -= jobs.rate[pool] * moving_s
    return float(work_left(queue, job, jobs.work[job] - left) / queue.speed[pool])


def work_left(queue: Queue, job: int, done: float) -> float:
    """Return the estimated work left; double the estimate if the job has outlived it."""
    total = queue.total[job]
    if total <= done:
        if done - total < 1e-6:
            return 1e-6
        while total <= done:
            total *= 2
        queue.total[job] = total
    return float(total - done)


def update_expected_ends(run: Run, jobs: JobArrays, queue: Queue, now_s: float) -> bool:
    """Drop ended jobs, postpone overdue ones; return True if it withdraws the promise.

    It does so if a job ended at another instant than expected, or is overdue.
    """
    is_kept = True
    for at in range(queue.at[FOLLOWED], run.at[CLOSED]):
        job = run.stint_job[run.closed[at]]
        drop_expected_end(queue, job)
        if queue.expected_s[job] != now_s:
            is_kept = False
    while queue.at[ENDS] and queue.end_s[queue.at[ENDS] - 1] <= now_s:
        is_kept = False
        job = queue.end_job[queue.at[ENDS] - 1]
        drop_expected_end(queue, job)
        soon_s = nearest_instant(now_s + STEP_S)
        end_s = nearest_instant(now_s + expected_left_s(run, jobs, queue, job, now_s))
        add_expected_end(queue, job, max(end_s, soon_s))
    queue.at[FOLLOWED] = run.at[CLOSED]
    if is_kept or queue.at[PROMISED] == _NO_RANK:
        return False
    queue.at[PROMISED] = _NO_RANK
    return True


# -- waiting jobs


def line_index(queue: Queue, kind: int, rank: int) -> int:
    """Return the index of a rank in the line of its demand, or where to insert it."""
    low = queue.line_base[kind]
    high = low + queue.line_size[kind]
    while low < high:
        middle = (low + high) >> 1
        if queue.line[middle] < rank:
            low = middle + 1
        else:
            high = middle
    return int(low)


def enter_window(queue: Queue, jobs: JobArrays, rank: int) -> int:
    """Add a job to the window, and note that its line has grown; return its demand."""
    kind = jobs.kind[jobs.by_rank[rank]]
    place = line_index(queue, kind, rank)
    end = queue.line_base[kind] + queue.line_size[kind]
    move_items(queue.line, place, end, 1)
    queue.line[place] = rank
    queue.line_size[kind] += 1
    queue.at[INSIDE] += 1
    queue.has_grown[kind] = 1
    return int(kind)


def remove_from_window(queue: Queue, jobs: JobArrays, rank: int) -> None:
    """Remove a job from the window."""
    kind = jobs.kind[jobs.by_rank[rank]]
    place = line_index(queue, kind, rank)
    end = queue.line_base[kind] + queue.line_size[kind]
    move_items(queue.line, place + 1, end, -1)
    queue.line_size[kind] -= 1
    queue.at[INSIDE] -= 1


def first_in_window(queue: Queue) -> int:
    """Return the first rank of the window; `_NONE` = it is empty."""
    best = _NONE
    for kind in range(len(queue.line_size)):
        if queue.line_size[kind]:
            best = min(best, queue.line[queue.line_base[kind]])
    return best


def last_in_window(queue: Queue) -> int:
    """Return the last rank of the window; -1 = it is empty."""
    best = -1
    for kind in range(len(queue.line_size)):
        size = queue.line_size[kind]
        if size:
            best = max(best, queue.line[queue.line_base[kind] + size - 1])
    return best


def push_behind(queue: Queue, rank: int) -> None:
    """Add a job behind the window."""
    heap_push(queue.behind, 0, queue.at[BEHIND], rank)
    queue.at[BEHIND] += 1


def pop_behind(queue: Queue) -> int:
    """Remove and return the first job behind the window; -1 = none."""
    if queue.at[BEHIND] == 0:
        return _NO_RANK
    rank = queue.behind[0]
    heap_pop(queue.behind, 0, queue.at[BEHIND])
    queue.at[BEHIND] -= 1
    return int(rank)


def join_queue(queue: Queue, jobs: JobArrays, rank: int) -> None:
    """Add a job to the queue: as the first, in the window, or behind it.

    A full window gives its last job to those behind it.
    """
    at = queue.at
    if at[HEAD] == _NO_RANK:
        at[HEAD] = rank
        return
    if rank < at[HEAD]:
        rank, at[HEAD] = at[HEAD], rank
    if at[BEHIND] and rank > queue.behind[0]:
        push_behind(queue, rank)
        return
    if at[INSIDE] >= queue.depth:
        last = last_in_window(queue)
        if rank > last:
            push_behind(queue, rank)
            return
        remove_from_window(queue, jobs, last)
        push_behind(queue, last)
    enter_window(queue, jobs, rank)


def start_job(  # noqa: PLR0913, PLR0917 - a call, not an interface
    run: Run, jobs: JobArrays, room: Room, queue: Queue, job: int, pool: int, now_s: float
) -> bool:
    """Start a job on the last written spots; False = it ends after `LATEST_S`."""
    queue.stint[job] = run.at[STINTS]
    fits = begin_stint(run, jobs, room, job, pool, now_s)
    add_expected_end(
        queue, job, nearest_instant(now_s + expected_left_s(run, jobs, queue, job, now_s))
    )
    return fits


def start_first_jobs(run: Run, jobs: JobArrays, room: Room, queue: Queue, now_s: float) -> bool:
    """Start the first jobs until one does not fit; False = a job ends after `LATEST_S`.

    Each start withdraws the promise and makes the next job the first.
    """
    at = queue.at
    while at[HEAD] != _NO_RANK:
        job = jobs.by_rank[at[HEAD]]
        pool = place_gang(room, jobs, jobs.kind[job])
        if pool < 0:
            break
        if not start_job(run, jobs, room, queue, job, pool, now_s):
            return False
        at[PROMISED] = _NO_RANK
        first = first_in_window(queue)
        if first == _NONE:
            at[HEAD] = pop_behind(queue)
        else:
            at[HEAD] = first
            leave_window(queue, jobs, first)
    at[BLOCKED] = at[HEAD]
    return True


def leave_window(queue: Queue, jobs: JobArrays, rank: int) -> int:
    """Replace a job of the window by the first behind it; return the new demand, -1 = none."""
    remove_from_window(queue, jobs, rank)
    following = pop_behind(queue)
    return enter_window(queue, jobs, following) if following != _NO_RANK else _NO_RANK


# -- passing jobs


def promise_start(jobs: JobArrays, room: Room, run: Run, queue: Queue) -> None:
    """Set the earliest start and pool of the first job, and the GPUs spare at that time."""
    at, best_s = queue.at, inf
    kind = jobs.kind[jobs.by_rank[at[HEAD]]]
    at[PROMISED], at[POOL], at[EXTRA] = at[HEAD], -1, 0
    for group in range(jobs.groups[kind], jobs.groups[kind + 1]):
        pool, fit_s = jobs.pool[group], inf
        free = room.free[pool]
        for end in range(at[ENDS] - 1, -1, -1):
            at_s = queue.end_s[end]
            if at_s > fit_s or at_s >= best_s:
                break
            job = queue.end_job[end]
            if run.stint_pool[queue.stint[job]] == pool:
                free += jobs.need[jobs.kind[job]]
            if free >= jobs.need[kind] and fit_s == inf:
                fit_s = at_s
        if fit_s < best_s:
            best_s, at[POOL], at[EXTRA] = fit_s, pool, free - jobs.need[kind]
    queue.promised_s[0] = best_s


def first_short_job(jobs: JobArrays, queue: Queue, kind: int, pool: int, within_s: float) -> int:
    """Return the first rank of a line with an expected time up to `within_s`; `_NONE` = none."""
    first = queue.line_base[kind]
    for item in range(first, first + queue.line_size[kind]):
        rank = queue.line[item]
        job = jobs.by_rank[rank]
        time_s = queue.limit_s[job]
        if not time_s < inf:
            time_s = queue.total[job] / queue.speed[pool]
        if nearest_instant(time_s) <= within_s and queue.barred[job] != queue.at[PASS]:
            return int(rank)
    return _NONE


def find_passing_job(jobs: JobArrays, room: Room, queue: Queue, kind: int, now_s: float) -> None:
    """Store the first job of a line that may pass, and its pool, in `Queue.candidate`.

    It must fit on the free GPUs, and end before the promised start or use spare GPUs.
    """
    at, need, best = queue.at, jobs.need[kind], _NONE
    within_s = nearest_instant(queue.promised_s[0] - now_s)
    if queue.line_size[kind]:
        first = queue.line[queue.line_base[kind]]
        free_to_go = queue.spare and queue.barred[jobs.by_rank[first]] != at[PASS]
        for group in range(jobs.groups[kind], jobs.groups[kind + 1]):
            pool = jobs.pool[group]
            if room.free[pool] < need:
                continue
            if (
                free_to_go
                and (need <= at[EXTRA] or at[POOL] != pool)
                and queue.only_short[group] != at[PASS]
            ):
                rank = first
            else:
                rank = first_short_job(jobs, queue, kind, pool, within_s)
            if rank < best:
                best, queue.candidate_group[kind] = rank, group
    queue.candidate[kind], queue.candidate_starts[kind] = best, at[STARTS]


def use_spare_gpus(jobs: JobArrays, queue: Queue, kind: int, pool: int) -> bool:
    """Use spare GPUs for a job that outlasts the promised start; False = not possible.

    All GPUs of pools other than the promised one are spare.
    """
    if not queue.spare:
        return False
    wanted = jobs.need[kind] if queue.at[POOL] == pool else 0
    if wanted > queue.at[EXTRA]:
        return False
    queue.at[EXTRA] -= wanted
    return True


def undo_passing(
    room: Room, queue: Queue, jobs: JobArrays, kind: int, first: int, job: int
) -> None:
    """Free the GPUs of a job that may not pass; then only short jobs may use the pool.

    If that holds already, the job may not pass in this pass at all.
    """
    group = queue.candidate_group[kind]
    free_spots(room, jobs.pool[group], first, room.at[SPOTS] - first)
    room.at[SPOTS] = first
    if queue.only_short[group] == queue.at[PASS]:
        queue.barred[job] = queue.at[PASS]
    queue.only_short[group] = queue.at[PASS]


def try_passing(
    run: Run, jobs: JobArrays, room: Room, queue: Queue, kind: int, now_s: float
) -> int:
    """Start the candidate of a demand unless it delays the promised start.

    Return 1 if it started, 0 if not, -1 if it ends after `LATEST_S`.
    """
    job, pool = jobs.by_rank[queue.candidate[kind]], jobs.pool[queue.candidate_group[kind]]
    first = room.at[SPOTS]
    place_in_pool(room, pool, jobs.need[kind], jobs.how, 0)
    time_s = queue.limit_s[job]
    if not time_s < inf:
        time_s = queue.total[job] / queue.speed[pool]
    if nearest_instant(now_s + time_s) > queue.promised_s[0] and not use_spare_gpus(
        jobs, queue, kind, pool
    ):
        undo_passing(room, queue, jobs, kind, first, job)
        return 0
    if not start_job(run, jobs, room, queue, job, pool, now_s):
        return -1
    queue.at[STARTS] += 1
    queue.at[PASSED] += 1
    return 1


def mark_open_lines(jobs: JobArrays, room: Room, queue: Queue, stale: bool) -> bool:
    """Mark the lines from which jobs may pass; return True if there are any.

    Lines that a job joined or, if `stale`, all, as far as the free GPUs suffice for one job.
    """
    free, some = 0, False
    for pool in range(len(room.free)):
        free += room.free[pool]
    for kind in range(len(queue.line_size)):
        queue.candidate[kind] = _NONE
        if queue.line_size[kind] and (stale or queue.has_grown[kind]) and jobs.need[kind] <= free:
            queue.candidate[kind], some = 0, True
        queue.has_grown[kind] = 0
    return some


def first_passing_line(queue: Queue) -> int:
    """Return the demand of the first job that may pass; -1 = none."""
    best = -1
    for kind in range(len(queue.line_size)):
        if queue.candidate[kind] != _NONE and (
            best < 0 or queue.candidate[kind] < queue.candidate[best]
        ):
            best = kind
    return best


def backfill(run: Run, jobs: JobArrays, room: Room, queue: Queue, now_s: float) -> bool:
    """Start jobs that do not delay the promised start; False = one ends after `LATEST_S`."""
    at = queue.at
    at[PASS] += 1
    at[STARTS] = 0
    if at[PROMISED] != at[HEAD]:
        promise_start(jobs, room, run, queue)
    for kind in range(len(queue.line_size)):
        if queue.candidate[kind] != _NONE:
            find_passing_job(jobs, room, queue, kind, now_s)
    best = first_passing_line(queue)
    while best >= 0:
        rank, done = queue.candidate[best], 0
        if queue.candidate_starts[best] == at[STARTS]:
            done = try_passing(run, jobs, room, queue, best, now_s)
        if done < 0:
            return False
        if done:
            other = leave_window(queue, jobs, rank)
            if other not in (_NO_RANK, best) and queue.candidate[other] == _NONE:
                find_passing_job(jobs, room, queue, other, now_s)
        find_passing_job(jobs, room, queue, best, now_s)
        best = first_passing_line(queue)
    return True


def join_submitted(run: Run, jobs: JobArrays, queue: Queue) -> None:
    """Add the jobs submitted since the last decision to the queue, without impossible ones."""
    for job in range(queue.at[JOINED], run.at[NEXT]):
        if jobs.kind[job] >= 0:
            join_queue(queue, jobs, jobs.rank[job])
    queue.at[JOINED] = run.at[NEXT]


def decide_with_promise(run: Run, jobs: JobArrays, room: Room, queue: Queue, now_s: float) -> bool:
    """Start and backfill jobs, and record a decision; False = a job ends after `LATEST_S`."""
    at, stints = queue.at, run.at[STINTS]
    stale, fits = bool(run.at[CLOSED] > at[FOLLOWED]), True
    if update_expected_ends(run, jobs, queue, now_s):
        stale = True
    join_submitted(run, jobs, queue)
    if at[HEAD] != _NO_RANK:
        stale = stale or at[HEAD] != at[BLOCKED]
        if stale:
            fits = start_first_jobs(run, jobs, room, queue, now_s)
        if (
            fits
            and at[HEAD] != _NO_RANK
            and at[INSIDE]
            and mark_open_lines(jobs, room, queue, stale)
        ):
            fits = backfill(run, jobs, room, queue, now_s)
        for kind in range(len(queue.has_grown)):
            queue.has_grown[kind] = 0
    record_decision(run, now_s, run.at[STINTS] - stints)
    return fits


def count_arrivals(run: Run, jobs: JobArrays, now_s: float) -> bool:
    """Count the jobs submitted now; return True if any of them can run."""
    job, count, before = run.at[NEXT], len(jobs.submit_s), run.at[WAITING]
    while job < count and jobs.submit_s[job] <= now_s:
        if jobs.kind[job] < 0:
            run.at[SETTLED] += 1
        else:
            run.at[WAITING] += 1
        job += 1
    run.at[NEXT] = job
    return bool(run.at[WAITING] > before)


def run_reservation(run: Run, jobs: JobArrays, room: Room, queue: Queue, steps: int) -> int:
    """Advance the run by `steps` instants; return `CONTINUES`, `OVER` or `UNSUPPORTED`."""
    for _ in range(steps):
        now_s = next_event_s(run, jobs)
        if now_s > jobs.horizon_s:
            return OVER
        if now_s == inf:
            return UNSUPPORTED
        arrived = count_arrivals(run, jobs, now_s)
        freed = close_ended_stints(run, room, now_s)
        if is_settled(run, jobs):
            return OVER
        if (arrived or freed) and not decide_with_promise(run, jobs, room, queue, now_s):
            return UNSUPPORTED
    return CONTINUES
