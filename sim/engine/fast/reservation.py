"""The loop of a queue whose first job without room is promised a start, which jobs that pass it do
not put off: `allocators.queue.backfill` over arrays, where free GPUs are all that matters.

See `sim.engine.fast.room` for how this is compiled.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from sim.clock import STEP_S
from sim.engine.fast.loops import (
    CLOSED,
    ENDLESS,
    GOES_ON,
    NEXT,
    OVER,
    SETTLED,
    STINTS,
    WAITING,
    JobArrays,
    Run,
    begin,
    close,
    nearest,
    next_instant,
    note,
    place,
    pop,
    push,
)
from sim.engine.fast.room import SPOTS, Room, give, move, place_in

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
"""What `Queue.at` holds: the rank of the first job and of the one that had no room (-1 = none), how
many wait in the window and behind it, expected ends, the rank of whom a start is promised (-1 =
nobody), the pool of the promise and the GPUs that it leaves over, jobs that have passed in the
present pass, its number, and jobs that have passed in all; the next job to join the queue, and how
many ends have been taken in.
"""
_NOBODY = -1
_NONE = 1 << 40


class Queue(NamedTuple):
    """What waits, and what is expected of running jobs.

    Parameters
    ----------
    at : array of int64
        See `HEAD`.
    promised_s : array of float64, shape (1,)
        The promised start.
    depth : int
        How many jobs behind the first one may pass.
    spare : bool
        Whether jobs may pass on GPUs that the first one leaves over.
    speed : array of float64, shape (pools,)
        Work per second in each pool as estimated.
    total : array of float64, shape (jobs,)
        Estimated work; doubled when a job outlives it.
    limit_s : array of float64, shape (jobs,)
        Time limits that count instead of estimates; inf = none.
    line : array of int32
        The window: ranks in order for each demand.
    line_base, line_size : array of int64, shape (kinds,)
        Where each begins, and how many it holds.
    behind : array of int32, shape (jobs,)
        Ranks behind the window, as a heap.
    end_s : array of float64
        Expected ends of running jobs, the last one first, of equal ones by job: those that come
        first are most often taken out.
    end_job : array of int32
        Whose they are.
    expected_s : array of float64, shape (jobs,)
        The same by job.
    stint : array of int32, shape (jobs,)
        Stint of each running job.
    found, found_at, found_after : array of int64, shape (kinds,)
        For each demand the rank that may pass, the place of its pool in `JobArrays.pool`, and the
        number of starts after which that was found out; `_NONE` = no job may pass.
    fed : array of int64, shape (kinds,)
        Whether a job has come into the window since the last decision.
    only_short : array of int64
        For each place in `JobArrays.pool` the pass in which only jobs may pass that end before the
        promised start.
    barred : array of int32, shape (jobs,)
        The pass in which a job may not pass.
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
    found: Any
    found_at: Any
    found_after: Any
    fed: Any
    only_short: Any
    barred: Any


# -- what runs


def end_place(queue: Queue, at_s: float, job: int) -> int:
    """Return the place of an expected end among all."""
    low, high = 0, int(queue.at[ENDS])
    while low < high:
        middle = (low + high) >> 1
        other_s = queue.end_s[middle]
        if other_s > at_s or (other_s == at_s and queue.end_job[middle] > job):
            low = middle + 1
        else:
            high = middle
    return low


def expect(queue: Queue, job: int, at_s: float) -> None:
    """Expect the end of a job."""
    place, size = end_place(queue, at_s, job), queue.at[ENDS]
    move(queue.end_s, place, size, 1)
    move(queue.end_job, place, size, 1)
    queue.end_s[place], queue.end_job[place] = at_s, job
    queue.expected_s[job] = at_s
    queue.at[ENDS] = size + 1


def forget_end(queue: Queue, job: int) -> None:
    """Expect it no longer."""
    place, size = end_place(queue, queue.expected_s[job], job), queue.at[ENDS]
    move(queue.end_s, place + 1, size, -1)
    move(queue.end_job, place + 1, size, -1)
    queue.at[ENDS] = size - 1


def left_s(run: Run, jobs: JobArrays, queue: Queue, job: int, now_s: float) -> float:
    """Return for how long a running job is taken to run on; estimates and limits that it has
    outlived count twice.
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
        resume_s = nearest(began_s + jobs.start_s)
    left, moving_s = jobs.work[job], now_s - max(began_s, resume_s)
    if moving_s > 0:
        left -= jobs.rate[pool] * moving_s
    return float(work_left(queue, job, jobs.work[job] - left) / queue.speed[pool])


def work_left(queue: Queue, job: int, done: float) -> float:
    """Return estimated work left, see `sim.perf.estimators.SizeEstimator`."""
    total = queue.total[job]
    if total <= done:
        if done - total < 1e-6:
            return 1e-6
        while total <= done:
            total *= 2
        queue.total[job] = total
    return float(total - done)


def follow(run: Run, jobs: JobArrays, queue: Queue, now_s: float) -> bool:
    """Take in which jobs ended, and which did not although they should; tell whether the promise
    was withdrawn for it.
    """
    kept = True
    for at in range(queue.at[FOLLOWED], run.at[CLOSED]):
        job = run.stint_job[run.closed[at]]
        forget_end(queue, job)
        if queue.expected_s[job] != now_s:
            kept = False
    while queue.at[ENDS] and queue.end_s[queue.at[ENDS] - 1] <= now_s:
        kept = False
        job = queue.end_job[queue.at[ENDS] - 1]
        forget_end(queue, job)
        soon_s = nearest(now_s + STEP_S)
        end_s = nearest(now_s + left_s(run, jobs, queue, job, now_s))
        expect(queue, job, max(end_s, soon_s))
    queue.at[FOLLOWED] = run.at[CLOSED]
    if kept or queue.at[PROMISED] == _NOBODY:
        return False
    queue.at[PROMISED] = _NOBODY
    return True


# -- what waits


def line_place(queue: Queue, kind: int, rank: int) -> int:
    """Return the place of a rank in the line of its demand."""
    low = queue.line_base[kind]
    high = low + queue.line_size[kind]
    while low < high:
        middle = (low + high) >> 1
        if queue.line[middle] < rank:
            low = middle + 1
        else:
            high = middle
    return int(low)


def enter(queue: Queue, jobs: JobArrays, rank: int) -> int:
    """Put a job into the window; return its demand."""
    kind = jobs.kind[jobs.by_rank[rank]]
    place = line_place(queue, kind, rank)
    end = queue.line_base[kind] + queue.line_size[kind]
    move(queue.line, place, end, 1)
    queue.line[place] = rank
    queue.line_size[kind] += 1
    queue.at[INSIDE] += 1
    queue.fed[kind] = 1
    return int(kind)


def remove(queue: Queue, jobs: JobArrays, rank: int) -> None:
    """Take a job out of the window."""
    kind = jobs.kind[jobs.by_rank[rank]]
    place = line_place(queue, kind, rank)
    end = queue.line_base[kind] + queue.line_size[kind]
    move(queue.line, place + 1, end, -1)
    queue.line_size[kind] -= 1
    queue.at[INSIDE] -= 1


def first_inside(queue: Queue) -> int:
    """Return the first rank of the window; `_NONE` = it is empty."""
    best = _NONE
    for kind in range(len(queue.line_size)):
        if queue.line_size[kind]:
            best = min(best, queue.line[queue.line_base[kind]])
    return best


def last_inside(queue: Queue) -> int:
    """Return the last rank of the window; -1 = it is empty."""
    best = -1
    for kind in range(len(queue.line_size)):
        size = queue.line_size[kind]
        if size:
            best = max(best, queue.line[queue.line_base[kind] + size - 1])
    return best


def push_behind(queue: Queue, rank: int) -> None:
    """Put a job behind the window."""
    push(queue.behind, 0, queue.at[BEHIND], rank)
    queue.at[BEHIND] += 1


def pop_behind(queue: Queue) -> int:
    """Take the first job from behind the window; -1 = there is none."""
    if queue.at[BEHIND] == 0:
        return _NOBODY
    rank = queue.behind[0]
    pop(queue.behind, 0, queue.at[BEHIND])
    queue.at[BEHIND] -= 1
    return int(rank)


def wait(queue: Queue, jobs: JobArrays, rank: int) -> None:
    """Let a job join the queue."""
    at = queue.at
    if at[HEAD] == _NOBODY:
        at[HEAD] = rank
        return
    if rank < at[HEAD]:
        rank, at[HEAD] = at[HEAD], rank
    if at[BEHIND] and rank > queue.behind[0]:
        push_behind(queue, rank)
        return
    if at[INSIDE] >= queue.depth:
        last = last_inside(queue)
        if rank > last:
            push_behind(queue, rank)
            return
        remove(queue, jobs, last)
        push_behind(queue, last)
    enter(queue, jobs, rank)


def start(  # noqa: PLR0913, PLR0917 - a call, not an interface
    run: Run, jobs: JobArrays, room: Room, queue: Queue, job: int, pool: int, now_s: float
) -> bool:
    """Start a job on the spots written last; tell whether the clock is long enough for it."""
    queue.stint[job] = run.at[STINTS]
    fits = begin(run, jobs, room, job, pool, now_s)
    expect(queue, job, nearest(now_s + left_s(run, jobs, queue, job, now_s)))
    return fits


def start_heads(run: Run, jobs: JobArrays, room: Room, queue: Queue, now_s: float) -> bool:
    """Start the first job as long as there is room for it."""
    at = queue.at
    while at[HEAD] != _NOBODY:
        job = jobs.by_rank[at[HEAD]]
        pool = place(room, jobs, jobs.kind[job])
        if pool < 0:
            break
        if not start(run, jobs, room, queue, job, pool, now_s):
            return False
        at[PROMISED] = _NOBODY
        first = first_inside(queue)
        if first == _NONE:
            at[HEAD] = pop_behind(queue)
        else:
            at[HEAD] = first
            leave(queue, jobs, first)
    at[BLOCKED] = at[HEAD]
    return True


def leave(queue: Queue, jobs: JobArrays, rank: int) -> int:
    """Take a job out of the window, and the next one in; return the demand of that; -1 = there is
    none.
    """
    remove(queue, jobs, rank)
    following = pop_behind(queue)
    return enter(queue, jobs, following) if following != _NOBODY else _NOBODY


# -- what may pass


def promise(jobs: JobArrays, room: Room, run: Run, queue: Queue) -> None:
    """Find out when and where the first job can start, and what it leaves over then."""
    at, best_s = queue.at, inf
    kind = jobs.kind[jobs.by_rank[at[HEAD]]]
    at[PROMISED], at[POOL], at[EXTRA] = at[HEAD], -1, 0
    for group in range(jobs.groups[kind], jobs.groups[kind + 1]):
        pool, found_s = jobs.pool[group], inf
        free = room.free[pool]
        for end in range(at[ENDS] - 1, -1, -1):
            at_s = queue.end_s[end]
            if at_s > found_s or at_s >= best_s:
                break
            job = queue.end_job[end]
            if run.stint_pool[queue.stint[job]] == pool:
                free += jobs.need[jobs.kind[job]]
            if free >= jobs.need[kind] and found_s == inf:
                found_s = at_s
        if found_s < best_s:
            best_s, at[POOL], at[EXTRA] = found_s, pool, free - jobs.need[kind]
    queue.promised_s[0] = best_s


def first_within(jobs: JobArrays, queue: Queue, kind: int, pool: int, within_s: float) -> int:
    """Return the first job of a line that takes no longer than this in a pool; `_NONE` = there is
    none.
    """
    first = queue.line_base[kind]
    for item in range(first, first + queue.line_size[kind]):
        rank = queue.line[item]
        job = jobs.by_rank[rank]
        time_s = queue.limit_s[job]
        if not time_s < inf:
            time_s = queue.total[job] / queue.speed[pool]
        if nearest(time_s) <= within_s and queue.barred[job] != queue.at[PASS]:
            return int(rank)
    return _NONE


def look(jobs: JobArrays, room: Room, queue: Queue, kind: int, now_s: float) -> None:
    """Find the first job of a line that may pass, and the pool where."""
    at, need, best = queue.at, jobs.need[kind], _NONE
    within_s = nearest(queue.promised_s[0] - now_s)
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
                rank = first_within(jobs, queue, kind, pool, within_s)
            if rank < best:
                best, queue.found_at[kind] = rank, group
    queue.found[kind], queue.found_after[kind] = best, at[STARTS]


def spares(jobs: JobArrays, queue: Queue, kind: int, pool: int) -> bool:
    """Tell whether a job may outlast the promised start, and if so count it."""
    if not queue.spare:
        return False
    wanted = jobs.need[kind] if queue.at[POOL] == pool else 0
    if wanted > queue.at[EXTRA]:
        return False
    queue.at[EXTRA] -= wanted
    return True


def undo(room: Room, queue: Queue, jobs: JobArrays, kind: int, first: int, job: int) -> None:
    """Give back what a job got that may not pass there."""
    group = queue.found_at[kind]
    give(room, jobs.pool[group], first, room.at[SPOTS] - first)
    room.at[SPOTS] = first
    if queue.only_short[group] == queue.at[PASS]:
        queue.barred[job] = queue.at[PASS]
    queue.only_short[group] = queue.at[PASS]


def try_passing(
    run: Run, jobs: JobArrays, room: Room, queue: Queue, kind: int, now_s: float
) -> int:
    """Start the job that was found for a demand, if the promise can be kept with it; return 1 if it
    started, 0 if not, -1 if the clock is too short for it.
    """
    job, pool = jobs.by_rank[queue.found[kind]], jobs.pool[queue.found_at[kind]]
    first = room.at[SPOTS]
    place_in(room, pool, jobs.need[kind], jobs.how, 0)
    time_s = queue.limit_s[job]
    if not time_s < inf:
        time_s = queue.total[job] / queue.speed[pool]
    if nearest(now_s + time_s) > queue.promised_s[0] and not spares(jobs, queue, kind, pool):
        undo(room, queue, jobs, kind, first, job)
        return 0
    if not start(run, jobs, room, queue, job, pool, now_s):
        return -1
    queue.at[STARTS] += 1
    queue.at[PASSED] += 1
    return 1


def open_lines(jobs: JobArrays, room: Room, queue: Queue, stale: bool) -> bool:
    """Find the lines from which jobs may pass: those that somebody joined or, if anything else has
    changed, all; tell whether there are any.
    """
    free, some = 0, False
    for pool in range(len(room.free)):
        free += room.free[pool]
    for kind in range(len(queue.line_size)):
        queue.found[kind] = _NONE
        if queue.line_size[kind] and (stale or queue.fed[kind]) and jobs.need[kind] <= free:
            queue.found[kind], some = 0, True
        queue.fed[kind] = 0
    return some


def best_line(queue: Queue) -> int:
    """Return the demand of the first job that may pass; -1 = there is none."""
    best = -1
    for kind in range(len(queue.line_size)):
        if queue.found[kind] != _NONE and (best < 0 or queue.found[kind] < queue.found[best]):
            best = kind
    return best


def backfill(run: Run, jobs: JobArrays, room: Room, queue: Queue, now_s: float) -> bool:
    """Let jobs pass, first in order first."""
    at = queue.at
    at[PASS] += 1
    at[STARTS] = 0
    if at[PROMISED] != at[HEAD]:
        promise(jobs, room, run, queue)
    for kind in range(len(queue.line_size)):
        if queue.found[kind] != _NONE:
            look(jobs, room, queue, kind, now_s)
    best = best_line(queue)
    while best >= 0:
        rank, done = queue.found[best], 0
        if queue.found_after[best] == at[STARTS]:
            done = try_passing(run, jobs, room, queue, best, now_s)
        if done < 0:
            return False
        if done:
            other = leave(queue, jobs, rank)
            if other not in (_NOBODY, best) and queue.found[other] == _NONE:
                look(jobs, room, queue, other, now_s)
        look(jobs, room, queue, best, now_s)
        best = best_line(queue)
    return True


def join(run: Run, jobs: JobArrays, queue: Queue) -> None:
    """Let jobs that have been submitted join the queue."""
    for job in range(queue.at[JOINED], run.at[NEXT]):
        if jobs.kind[job] >= 0:
            wait(queue, jobs, jobs.rank[job])
    queue.at[JOINED] = run.at[NEXT]


def decide_with_promise(run: Run, jobs: JobArrays, room: Room, queue: Queue, now_s: float) -> bool:
    """Make a decision and note it; tell whether the clock is long enough for it."""
    at, stints = queue.at, run.at[STINTS]
    stale, fits = bool(run.at[CLOSED] > at[FOLLOWED]), True
    if follow(run, jobs, queue, now_s):
        stale = True
    join(run, jobs, queue)
    if at[HEAD] != _NOBODY:
        stale = stale or at[HEAD] != at[BLOCKED]
        if stale:
            fits = start_heads(run, jobs, room, queue, now_s)
        if fits and at[HEAD] != _NOBODY and at[INSIDE] and open_lines(jobs, room, queue, stale):
            fits = backfill(run, jobs, room, queue, now_s)
        for kind in range(len(queue.fed)):
            queue.fed[kind] = 0
    note(run, now_s, run.at[STINTS] - stints)
    return fits


def submitted(run: Run, jobs: JobArrays, now_s: float) -> bool:
    """Count the jobs that are submitted now; tell whether there are any that could ever run."""
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
    """Run on for some instants; return `GOES_ON`, `OVER` or `ENDLESS`."""
    for _ in range(steps):
        now_s = next_instant(run, jobs)
        if now_s == inf:
            return ENDLESS
        arrived = submitted(run, jobs, now_s)
        freed = close(run, room, now_s)
        if run.at[SETTLED] == len(jobs.submit_s):
            return OVER
        if (arrived or freed) and not decide_with_promise(run, jobs, room, queue, now_s):
            return ENDLESS
    return GOES_ON
