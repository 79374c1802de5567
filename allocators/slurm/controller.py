"""The daemon: when priorities are renewed, when the main pass runs, when the backfill plans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf

from allocators.slurm.fairshare import FairShare
from allocators.slurm.state import Job, Mask, Nodes, Placement, mask_of

FIRST_STEP_S = 30
"""Width of the first step in which ends of running jobs are gathered; it doubles."""
YEAR_S = 365 * 86_400.0


@dataclass(frozen=True)
class Timers:
    """When the daemon's clocks tick, in seconds from the zero of the trace.

    Parameters
    ----------
    main_s, backfill_s, priority_s : float
        First instants.
    cycle_s : float
        Length of a backfill cycle, which the next interval waits for.
    instants : tuple of float
        Instants of backfill cycles where they are known; then `backfill_s` comes after them.
    clock_s : float
        What the clock of the epoch shows at zero: steps are aligned to it.
    """

    main_s: float = 0.0
    backfill_s: float = 0.0
    priority_s: float = 0.0
    cycle_s: float = 0.05
    instants: tuple[float, ...] = ()
    clock_s: float = 0.0


@dataclass(frozen=True)
class Partition:
    """Nodes with a queue.

    Parameters
    ----------
    nodes : int
        Mask.
    tier : int
        Jobs of a higher tier are looked at first.
    factor : float
        0 to 1, times the weight of partitions.
    """

    nodes: Mask
    tier: int = 1
    factor: float = 1.0


@dataclass(frozen=True)
class Rules:
    """What a site sets; the names are those of ``slurm.conf``, times are in seconds.

    Parameters
    ----------
    weight_age, weight_fairshare, weight_size, weight_partition : float
        PriorityWeightAge, -Fairshare, -JobSize and -Partition.
    max_age_s, period_s : float, seconds
        PriorityMaxAge, PriorityCalcPeriod.
    favor_small : bool
        PriorityFavorSmall.
    size_by_used : bool
        The size of a job counts the nodes that it needs at least, not those that it asked for.
    multifactor : bool
        False = by submission (priority/basic).
    delay_s, main_interval_s : float, seconds
        batch_sched_delay, sched_interval.
    depth : int
        default_queue_depth.
    backfill : bool
        sched/backfill.
    interval_s, window_s, resolution_s : float, seconds
        bf_interval, bf_window, bf_resolution.
    most_tested, most_per_user : float
        bf_max_job_test, bf_max_job_user; inf = no limit.
    whole_plans : bool
        A plan keeps whole nodes free, as Slurm does; False = a job may be planned beside another.
    """

    weight_age: float = 0.0
    weight_fairshare: float = 0.0
    weight_size: float = 0.0
    weight_partition: float = 0.0
    max_age_s: float = 604_800.0
    period_s: float = 300.0
    favor_small: bool = False
    size_by_used: bool = False
    multifactor: bool = True
    delay_s: float = 3.0
    main_interval_s: float = 60.0
    depth: int = 100
    backfill: bool = True
    interval_s: float = 30.0
    window_s: float = 86_400.0
    resolution_s: float = 60.0
    most_tested: float = 500.0
    most_per_user: float = inf


class Controller:
    """One Slurm controller.

    Parameters
    ----------
    rules : Rules
        What the site sets.
    partitions : sequence of Partition
        Its queues.
    nodes : Nodes
        Its nodes.
    fair : FairShare
        Its users.
    timers : Timers
        When its clocks tick.
    """

    def __init__(
        self,
        rules: Rules,
        partitions: Sequence[Partition],
        nodes: Nodes,
        fair: FairShare,
        timers: Timers,
    ) -> None:
        self._rules, self._fair, self._timers = rules, fair, timers
        self.nodes, self.partitions = nodes, partitions
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, Job] = {}
        self._next_main_s, self._last_pass_s = timers.main_s, -inf
        self._next_priority_s, self._renewed_s = timers.priority_s, 0.0
        self._cycle, self._next_backfill_s = 0, [*timers.instants, timers.backfill_s][0]
        self._to_do = self._all_passed = False
        self._changed = True
        self._known: dict[tuple[object, Mask], tuple[float, Placement]] = {}
        """(shape, nodes) -> when and where; until something starts, ends or is overdue."""
        self._started: list[Job] = []
        self._no_room: set[int] = set()
        sizes = [
            cpus if cpus < inf else gpus for cpus, gpus in zip(nodes.cpus, nodes.gpus, strict=True)
        ]
        self._all = sum(sizes) or 1.0

    # -- what happens
    # ----------------------------------------------------------------------------------------------

    def catch_up(self, now_s: float) -> None:
        """Renew priorities as often as was due before now; called before all else at an instant."""
        if not self.running and not self.waiting:
            # While nobody uses anything, one decay over all periods is the same.
            behind = ceil((now_s - self._next_priority_s) / self._rules.period_s) - 1
            self._next_priority_s += max(behind, 0) * self._rules.period_s
        while self._next_priority_s < now_s:
            self._renew(self._next_priority_s)

    def submit(self, now_s: float, job: Job) -> None:
        """Take a job into the queue, and start it at once if nobody before it waits."""
        job.share = self._fair.of(job.account, job.user)
        job.fixed = self._fixed(job)
        self._prioritise(now_s, job)
        self.waiting[job.id] = job
        self._note_change(now_s)
        self._to_do = True
        own, nodes = self.rank(job), self.partitions[job.partition].nodes
        if not any(
            self.rank(other) < own and self.partitions[other.partition].nodes & nodes
            for other in self.waiting.values()
        ):
            self._try(now_s, job, nodes)

    def adopt(self, now_s: float, job: Job, held: Placement) -> None:
        """Take over a job that runs already; what is free knows it."""
        job.share = self._fair.of(job.account, job.user)
        job.start_s = job.booked_s = now_s
        job.hold(held)
        self.running[job.id] = job

    def put_back(self, job: Job) -> None:
        """Undo a start of this instant that had no room; it is tried again once some is freed."""
        del self.running[job.id]
        self.nodes.take(job, job.held, -1)
        self._known.clear()
        self.waiting[job.id] = job
        self._no_room.add(job.id)

    def end(self, now_s: float, job_id: int) -> None:
        """Free what a job held, whether it is done or was stopped."""
        job = self.running.pop(job_id)
        self.nodes.take(job, job.held, -1)
        self._known.clear()
        self._fair.book(job.share, (now_s - job.booked_s) * job.billing)
        self._freed(now_s)

    def follow_nodes(self, now_s: float) -> None:
        """Take note that nodes came, went or hold something else than jobs of this controller."""
        self._known.clear()
        self._freed(now_s)

    def tick(self, now_s: float) -> list[Job]:
        """Do what is due, and return the jobs that started since the last tick."""
        if self._next_priority_s <= now_s:
            self._renew(now_s)
        if self._next_main_s <= now_s:
            behind = floor((now_s - self._next_main_s) / self._rules.main_interval_s) + 1
            self._next_main_s += behind * self._rules.main_interval_s
            self._pass(now_s, len(self.waiting))
            self._all_passed = True
        elif self._to_do and self._last_pass_s + self._rules.delay_s <= now_s:
            self._pass(now_s, self._rules.depth)
        if self._rules.backfill and self._next_backfill_s <= now_s and self._changed:
            self._backfill(now_s)
        started, self._started = self._started, []
        return started

    def wake_s(self) -> float:
        """Return when something is due that may start a job; inf = nothing."""
        if not self.waiting:
            return inf
        due = [self._next_priority_s]
        if not self._all_passed:
            due.append(self._next_main_s)
        if self._to_do:
            due.append(self._last_pass_s + self._rules.delay_s)
        if self._rules.backfill and self._changed:
            due.append(self._next_backfill_s)
        return min(due)

    def queue(self) -> list[Job]:
        """Return the waiting jobs in the order in which they are looked at."""
        jobs = self.waiting.values()
        if self._no_room:
            return sorted([job for job in jobs if job.id not in self._no_room], key=self.rank)
        return sorted(jobs, key=self.rank)

    def rank(self, job: Job) -> tuple[int, int, int]:
        """Return what the queue is sorted by."""
        return (-self.partitions[job.partition].tier, -job.priority, job.id)

    def _freed(self, now_s: float) -> None:
        self._no_room.clear()
        self._note_change(now_s)
        self._to_do = True

    def _note_change(self, now_s: float) -> None:
        self._all_passed = False
        if not self._changed:
            # Without a change the daemon looks again each second.
            self._changed = True
            self._next_backfill_s += max(ceil(now_s - self._next_backfill_s), 0)

    # -- priority
    # ----------------------------------------------------------------------------------------------

    def _fixed(self, job: Job) -> float:
        rules = self._rules
        nodes = job.needed_nodes if rules.size_by_used else max(job.nodes, 1)
        size = (nodes / len(self.nodes) + job.billing / self._all) / 2
        size = min(max(1.0 - size if rules.favor_small else size, 0.0), 1.0)
        part = self.partitions[job.partition].factor
        return rules.weight_size * size + rules.weight_partition * part - job.nice

    def _prioritise(self, now_s: float, job: Job) -> None:
        rules = self._rules
        if rules.multifactor:
            age = min((now_s - job.since_s) / rules.max_age_s, 1.0)
            share = rules.weight_fairshare * job.share.factor
            total = job.fixed + rules.weight_age * age + share
            job.priority = min(max(int(total), 1), 2**32 - 1)

    def _renew(self, now_s: float) -> None:
        running = []
        for job in self.running.values():
            running.append((job.share, now_s - job.booked_s, job.billing))
            job.booked_s = now_s
        self._fair.renew(now_s - self._renewed_s, running)
        self._renewed_s = now_s
        self._next_priority_s = max(self._next_priority_s + self._rules.period_s, now_s)
        for job in self.waiting.values():
            self._prioritise(now_s, job)
        if self.waiting:
            self._note_change(now_s)

    # -- starting
    # ----------------------------------------------------------------------------------------------

    def _try(self, now_s: float, job: Job, available: Mask) -> bool:
        held = self.nodes.select(job, available)
        if held:
            self._start(now_s, job, held)
        return bool(held)

    def _start(self, now_s: float, job: Job, held: Placement) -> None:
        del self.waiting[job.id]
        job.start_s = job.booked_s = now_s
        job.hold(held)
        self.nodes.take(job, held)
        self._known.clear()
        self.running[job.id] = job
        self._started.append(job)
        self._note_change(now_s)

    def _pass(self, now_s: float, depth: int) -> None:
        self._to_do, self._last_pass_s = False, now_s
        failed: set[int] = set()
        gone = 0
        for job in self.queue()[:depth]:
            nodes = self.partitions[job.partition].nodes
            if job.partition not in failed and not self._try(now_s, job, nodes & ~gone):
                failed.add(job.partition)
                gone |= nodes

    # -- backfill
    # ----------------------------------------------------------------------------------------------

    def _backfill(self, now_s: float) -> None:
        known = self._timers.instants
        if self._cycle + 1 < len(known):
            self._cycle += 1
            self._next_backfill_s = known[self._cycle]
        else:
            self._next_backfill_s = now_s + self._rules.interval_s + self._timers.cycle_s
        self._changed = bool(known)
        table = Timeline(now_s)
        ends = sorted(
            (max(job.start_s + job.limit_s, now_s + 1.0), job.id, job)
            for job in self.running.values()
        )
        if ends and ends[0][0] <= now_s + 1.0:
            self._known.clear()
        by_user: dict[str, int] = {}
        for tested, job in enumerate(self.queue()):
            if tested >= self._rules.most_tested:
                break
            if by_user.get(job.user, 0) >= self._rules.most_per_user:
                continue
            by_user[job.user] = by_user.get(job.user, 0) + 1
            if self._plan(now_s, job, table, ends):
                insort(ends, (now_s + job.limit_s, job.id, job), key=lambda end: end[:2])

    def _plan(
        self, now_s: float, job: Job, table: Timeline, ends: Sequence[tuple[float, int, Job]]
    ) -> bool:
        """Start a job now, or keep nodes for it; tell whether it started."""
        limit_s = min(job.limit_s, YEAR_S)
        mine = self.partitions[job.partition].nodes & self.nodes.up
        known, shape = self._known, job.shape
        later_s = now_s
        while True:
            from_s = later_s
            kept, later_s = table.kept(from_s, from_s + limit_s)
            available = mine & ~kept
            found = known.get((shape, available))
            if found is None:
                found = known[shape, available] = self._earliest(job, available, ends)
            start_s, held = found
            start_s = max(start_s, from_s)
            if start_s == inf or (later_s and start_s > later_s):
                if not later_s:
                    return False
                continue
            if start_s <= now_s:
                self._start(now_s, job, held)
                return True
            if start_s > now_s + self._rules.window_s:
                return False
            begin_s, end_s = self._rounded(start_s), self._rounded(start_s + limit_s)
            nodes = mask_of(held)
            if table.is_free(begin_s, end_s, nodes):
                table.keep(begin_s, end_s, nodes)
                return False
            later_s = start_s

    def _rounded(self, at_s: float) -> float:
        clock, step = self._timers.clock_s, self._rules.resolution_s
        return floor((at_s + clock) / step) * step - clock

    def _earliest(
        self, job: Job, available: Mask, ends: Sequence[tuple[float, int, Job]]
    ) -> tuple[float, Placement]:
        """Return when and where a job could start if only running jobs end, at their limits; -inf
        = now, inf = never.
        """
        if max([(available & mask).bit_count() for mask in job.allowed]) < job.needed_nodes:
            return inf, ()
        held = self.nodes.select(job, available)
        if held:
            return -inf, held
        ahead = self.nodes.copy()
        listed = [(end_s, other) for end_s, _, other in ends if available & other.on]
        if not listed:
            return inf, ()
        clock, width = self._timers.clock_s, float(FIRST_STEP_S)
        first = listed[0][0] + clock
        edge = (floor(first / FIRST_STEP_S) + 1) * FIRST_STEP_S - clock
        at = 0
        while at < len(listed):
            ahead.take(listed[at][1], listed[at][1].held, -1)
            at += 1
            while at < len(listed) and listed[at][0] <= edge + width:
                ahead.take(listed[at][1], listed[at][1].held, -1)
                at += 1
            held = ahead.select(job, available)
            if held:
                return listed[at - 1][0], held
            width *= 2
            while at < len(listed) and listed[at][0] > edge + width:
                width *= 2
        return inf, ()


class Timeline:
    """Which nodes are kept for waiting jobs, from when to when: rows without gaps."""

    def __init__(self, begin_s: float) -> None:
        self._begins, self._kept = [begin_s], [0]

    def kept(self, from_s: float, to_s: float) -> tuple[Mask, float]:
        """Return the nodes that somebody keeps in a span, both ends included, and the end of the
        first row after which one of them becomes free; 0 = there is none.
        """
        rows = self._kept
        row = first = bisect_right(self._begins, from_s) - 1
        kept = 0
        for row in range(first, bisect_right(self._begins, to_s)):
            kept |= rows[row]
        if kept:
            # Nothing is kept in the last row.
            for row in range(first, len(rows) - 1):
                if rows[row] & kept & ~rows[row + 1]:
                    return kept, self._begins[row + 1]
        return kept, 0.0

    def is_free(self, from_s: float, to_s: float, nodes: Mask) -> bool:
        """Tell whether nobody keeps these nodes in a span without its end."""
        first = max(bisect_right(self._begins, from_s) - 1, 0)
        return not any(kept & nodes for kept in self._kept[first : bisect_left(self._begins, to_s)])

    def keep(self, from_s: float, to_s: float, nodes: Mask) -> None:
        """Keep nodes over a span."""
        first, last = self._cut(from_s), self._cut(to_s)
        for row in range(first, last):
            self._kept[row] |= nodes

    def _cut(self, at_s: float) -> int:
        if at_s <= self._begins[0]:
            return 0
        row = bisect_left(self._begins, at_s)
        if row == len(self._begins) or self._begins[row] != at_s:
            self._begins.insert(row, at_s)
            self._kept.insert(row, self._kept[row - 1])
        return row
