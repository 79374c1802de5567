"""The Slurm daemon: priority renewal, the main scheduling pass, and the backfill cycle."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import ceil, floor, inf
from operator import attrgetter

from allocators.sites.slurm.backfill import Planner
from allocators.sites.slurm.fairshare import FairShare
from allocators.sites.slurm.limits import UsageLimits
from allocators.sites.slurm.node_selection import FreeNodes
from allocators.sites.slurm.preempt import SUSPEND, PreemptionRules, Victim, resumable
from allocators.sites.slurm.reservations import Calendar
from allocators.sites.slurm.rules import Rules, SlurmPartition, Timers, backfill_caps, next_reset_s
from allocators.sites.slurm.state import Mask, Placement, SlurmJob, mask_of

_ALL = 1 << 40
"""Depth of a full pass: more than the length of any queue."""
_RANK = attrgetter("rank")
_PER_TEST_S, _MAX_CYCLE_S = 0.0002, 1.0
"""Estimated length of a backfill cycle: seconds per pair of tested and running or planned job, and
the maximum.
"""


class Controller:
    """A Slurm controller: queue, running jobs, clocks and scheduling passes.

    Parameters
    ----------
    rules : Rules
        Settings of the site.
    partitions : sequence of SlurmPartition
        Partitions by number.
    nodes : FreeNodes
        Free resources per node.
    fair : FairShare
        Shares and usage of accounts and users.
    timers : Timers
        Times at which the clocks tick.
    gate : UsageLimits or None
        Limits of associations and QOS; None = no limits.
    preemption : PreemptionRules or None
        Preemption between jobs; None = off.
    calendar : Calendar or None
        Reservations; None = no reservations.
    """

    def __init__(  # noqa: PLR0913 - parts of the daemon
        self,
        rules: Rules,
        partitions: Sequence[SlurmPartition],
        nodes: FreeNodes,
        fair: FairShare,
        timers: Timers,
        *,
        gate: UsageLimits | None = None,
        preemption: PreemptionRules | None = None,
        calendar: Calendar | None = None,
    ) -> None:
        self._gate, self._preemption, self._calendar = gate, preemption, calendar
        self._next_edge_s = -inf
        """Next begin or end of a reservation."""
        self.preempted: list[Victim] = []
        """Jobs preempted since the policy cleared this list."""
        self.suspended: dict[int, SlurmJob] = {}
        """Suspended jobs: their nodes stay allocated, but their preemptors may use the cores."""
        self.resumed: list[SlurmJob] = []
        """Jobs resumed since the policy cleared this list."""
        self._in_grace: list[tuple[float, int, Victim]] = []
        """Heap of preempted jobs in their grace time, by its end."""
        self._victim_cache: dict[tuple[int, str, int], list[Victim]] = {}
        """Victims in the current backfill cycle, by partition, QOS and priority of the job."""
        self._rules, self._fair, self._timers = rules, fair, timers
        self._caps = backfill_caps(rules)
        self.rules = rules
        self.nodes, self.partitions = nodes, partitions
        self.waiting: dict[int, SlurmJob] = {}
        self.running: dict[int, SlurmJob] = {}
        self._next_main_s, self._last_pass_s = timers.main_s, -inf
        self._next_priority_s, self._renewed_s = timers.priority_s, 0.0
        self._reset_s = self._next_reset_s(0.0)
        self.cycles = self.tested = 0
        """Backfill cycles with waiting jobs, and the jobs tested in all of them."""
        self._cycle, self._next_backfill_s = 0, [*timers.instants, timers.backfill_s][0]
        self._pass_pending = self._full_pass_done = False
        self._changed = True
        spans_s = rules.window_s, rules.resolution_s, timers.clock_s
        self._planner = Planner(nodes, *spans_s, linear=rules.linear, calendar=calendar)
        self._line: list[SlurmJob] = []
        """The queue in order: each waiting job once for each of its partitions."""
        self._started: list[SlurmJob] = []
        self._alone = 0
        """Number of running jobs with ``--exclusive=user``."""
        self._no_room: set[int] = set()
        self._planned: set[int] = set()
        """Jobs with a plan in this cycle, for `Rules.one_plan`."""
        self._entries: dict[int, tuple[SlurmJob, ...]] = {}
        """The entries of each job that names several partitions."""
        sizes = [
            cpus if cpus < inf else gpus for cpus, gpus in zip(nodes.cpus, nodes.gpus, strict=True)
        ]
        self._total_size = sum(sizes) or 1.0

    # -- events
    # ----------------------------------------------------------------------------------------------

    def catch_up(self, now_s: float) -> None:
        """Renew priorities for each period that ended before now; call it first at events."""
        if not self.running and not self.waiting:
            # Without jobs, one decay over all periods gives the same usage.
            behind = ceil((now_s - self._next_priority_s) / self._rules.period_s) - 1
            self._next_priority_s += max(behind, 0) * self._rules.period_s
        while self._next_priority_s < now_s:
            self._renew_priorities(self._next_priority_s)

    def could_fit(self, job: SlurmJob) -> bool:
        """Return True if the empty cluster could hold a job."""
        return self._planner.could_fit(job, self.partitions[job.partition].nodes)

    def submit(self, now_s: float, job: SlurmJob, others: tuple[SlurmJob, ...] = ()) -> None:
        """Enqueue a job, and start it at once if no earlier job waits for its nodes.

        `others` are the entries of the job in further partitions. A pass is scheduled. With
        ``defer`` no job starts here.
        """
        for entry in (job, *others):
            entry.share = self._fair.user_share(entry.account, entry.user)
            entry.fixed = self._fixed_priority(entry)
            self._update_priority(now_s, entry)
        self._entries.pop(job.id, None)
        if others:
            self._entries[job.id] = (job, *others)
        self._enqueue(job)
        if self._gate is not None:
            self._gate.count_submission(job)
        self._mark_changed(now_s)
        self._pass_pending = True
        for entry in () if self._rules.defer else (job, *others):
            if (
                job.id in self.waiting
                and self._is_first(entry)
                and self._is_within_limits(now_s, entry)
            ):
                self._try_start(now_s, entry, self.partitions[entry.partition].nodes)

    def _barred_nodes(self, now_s: float, job: SlurmJob) -> Mask:
        """Return the nodes barred to a job by reservations or ``--exclusive=user``."""
        barred = self._calendar.barred_nodes(now_s, job) if self._calendar is not None else 0
        if self._alone or job.alone:
            for running in self.running.values():
                if running.user != job.user and (running.alone or job.alone):
                    barred |= running.on
        return barred

    def _is_first(self, job: SlurmJob) -> bool:
        """Return True if no earlier job waits for nodes of a job's partition.

        Partitions that share nodes count.
        """
        nodes = self.partitions[job.partition].nodes
        for other in self._line:
            if other.rank >= job.rank:
                break
            if self.partitions[other.partition].nodes & nodes:
                return False
        return True

    def entries(self, job: SlurmJob) -> tuple[SlurmJob, ...]:
        """Return the entries of a job, one per partition."""
        return self._entries.get(job.id, (job,))

    def _enqueue(self, job: SlurmJob) -> None:
        """Insert the entries of a job into the queue."""
        entries = self.entries(job)
        self.waiting[job.id] = entries[0]
        for entry in entries:
            insort(self._line, entry, key=_RANK)

    def _dequeue(self, job_id: int) -> SlurmJob | None:
        """Remove the entries of a job from the queue; return the first, or None if absent."""
        job = self.waiting.pop(job_id, None)
        for entry in self.entries(job) if job is not None else ():
            at = bisect_left(self._line, entry.rank, key=_RANK)
            while self._line[at] is not entry:
                at += 1
            del self._line[at]
        return job

    def forget(self, job_id: int) -> None:
        """Remove a waiting job from the queue, its entries, and the limits' counts."""
        dropped = self._dequeue(job_id)
        self._entries.pop(job_id, None)
        if dropped is not None and self._gate is not None:
            self._gate.count_submission(dropped, -1)

    def adopt(self, now_s: float, entries: tuple[SlurmJob, ...], held: Placement) -> SlurmJob:
        """Add a job that runs already, with its nodes; return its entry.

        It is the entry of the partition with all its nodes, else the first.
        """
        nodes = mask_of(held)
        matching = [
            entry for entry in entries if not nodes & ~self.partitions[entry.partition].nodes
        ]
        job = [*matching, entries[0]][0]
        if len(entries) > 1:
            self._entries[job.id] = entries
        job.share = self._fair.user_share(job.account, job.user)
        job.start_s = job.booked_s = now_s
        job.hold(held)
        self.nodes.take(job, held)
        self.running[job.id] = job
        self._alone += job.alone
        if self._gate is not None:
            self._gate.count_submission(job)
            self._gate.count_start(job)
        return job

    def undo_start(self, job: SlurmJob) -> None:
        """Requeue a started job that got no room in the simulator; free its nodes.

        It is tried again when resources are freed.
        """
        del self.running[job.id]
        self._alone -= job.alone
        self.nodes.take(job, job.held, -1)
        self._planner.forget()
        if self._gate is not None:
            self._gate.count_end(job.start_s, job)
        self._enqueue(job)
        self._no_room.add(job.id)

    def end(self, now_s: float, job_id: int) -> None:
        """Free the nodes of a running or suspended job, book its usage, schedule a pass."""
        job = self.suspended.pop(job_id, None) or self.running.pop(job_id)
        if job.suspended_s < inf:
            job.booked_s = now_s
        else:
            self._alone -= job.alone
        self.nodes.take(job, job.held, -1)
        self._planner.forget()
        self._fair.book(job.share, (now_s - job.booked_s) * job.billing)
        if self._gate is not None:
            self._gate.count_end(now_s, job)
            self._gate.count_submission(job, -1)
        self._mark_freed(now_s)

    def follow_nodes(self, now_s: float) -> None:
        """Drop forecasts and schedule a pass after nodes or their other users changed."""
        self._planner.forget()
        self._mark_freed(now_s)

    def tick(self, now_s: float) -> list[SlurmJob]:
        """Run all due passes and timers; return the jobs started since the last tick.

        In order: ends of grace times, resumption, priorities, reservations, main pass, backfill.
        """
        self._end_graced(now_s)
        if self.suspended:
            self._resume_suspended(now_s)
        if self._next_priority_s <= now_s:
            self._renew_priorities(now_s)
        if self._calendar is not None and self._next_edge_s <= now_s:
            self._next_edge_s = self._calendar.next_edge_s(now_s)
            for job in self._line:
                job.rank = self._rank(now_s, job)
            self._line.sort(key=_RANK)
            self._mark_freed(now_s)
        if self._next_main_s <= now_s:
            behind = floor((now_s - self._next_main_s) / self._rules.main_interval_s) + 1
            self._next_main_s += behind * self._rules.main_interval_s
            self._main_pass(now_s, _ALL)
            self._full_pass_done = True
        elif self._pass_pending and self._last_pass_s + self._rules.delay_s <= now_s:
            self._main_pass(now_s, self._rules.depth, self._rules.depth_per_part)
        if self._rules.backfill and self._next_backfill_s <= now_s and self._changed:
            self._backfill(now_s)
        started, self._started = self._started, []
        return started

    def wake_s(self) -> float:
        """Return the next time at which a pass, cycle or timer is due; inf = never.

        Without waiting jobs only grace times count.
        """
        grace_end_s = self._in_grace[0][0] if self._in_grace else inf
        if not self.waiting:
            return grace_end_s
        due = [self._next_priority_s, grace_end_s]
        if self._calendar is not None:
            due.append(self._next_edge_s)
        if not self._full_pass_done:
            due.append(self._next_main_s)
        if self._pass_pending:
            due.append(self._last_pass_s + self._rules.delay_s)
        if self._rules.backfill and self._changed:
            due.append(self._next_backfill_s)
        return min(due)

    def queue(self) -> list[SlurmJob]:
        """Return the waiting entries in order, without jobs that wait after `undo_start`."""
        if self._no_room:
            return [job for job in self._line if job.id not in self._no_room]
        return self._line[:]

    def _rank(self, now_s: float, job: SlurmJob) -> tuple[float, ...]:
        """Return the sort key of a job in the queue; the lowest is first.

        In order: in its reservation, preemption level, tier of the partition, priority, id.
        """
        in_time = self._calendar is not None and self._calendar.holds(job, now_s)
        tier = self.partitions[job.partition].tier
        return (not in_time, -job.level, -tier, -job.priority, job.id)

    def _mark_freed(self, now_s: float) -> None:
        """Schedule a pass after resources were freed; retry jobs of `undo_start`."""
        self._no_room.clear()
        self._mark_changed(now_s)
        self._pass_pending = True

    def _mark_changed(self, now_s: float) -> None:
        """Request a full pass and a backfill cycle after a change."""
        self._full_pass_done = False
        if not self._changed:
            # After a cycle without changes the daemon polls every second.
            self._changed = True
            self._next_backfill_s += max(ceil(now_s - self._next_backfill_s), 0)

    # -- priority
    # ----------------------------------------------------------------------------------------------

    def _fixed_priority(self, job: SlurmJob) -> float:
        """Return a job's priority without age and fair share: size, partition, term, nice."""
        rules = self._rules
        nodes = self._planner.min_node_count(job) if rules.size_by_used else max(job.nodes, 1)
        size = (nodes / len(self.nodes) + job.size / self._total_size) / 2
        if rules.by_time:
            cores = max(job.size, nodes * self._total_size / len(self.nodes))
            size = cores / max(job.limit_s / 60.0, 1.0) / self._total_size
        size = min(max(1.0 - size if rules.favor_small else size, 0.0), 1.0)
        part = self.partitions[job.partition].factor
        fixed = rules.weight_size * size + rules.weight_partition * part
        return fixed + job.term - job.nice

    def _update_priority(self, now_s: float, job: SlurmJob) -> None:
        """Recompute the rank of a job, and its priority if it is multifactor."""
        rules = self._rules
        if rules.multifactor:
            age = min((now_s - job.since_s) / rules.max_age_s, 1.0)
            share = rules.weight_fairshare * job.share.factor
            total = job.fixed + rules.weight_age * age + share
            least = job.priority if rules.never_lowered else 1
            job.priority = min(max(int(total), least, 1), 2**32 - 1)
        job.rank = self._rank(now_s, job)

    def _renew_priorities(self, now_s: float) -> None:
        """Book and decay usage, reset it if due, recompute priorities, sort the queue."""
        running = []
        for job in self.running.values():
            running.append((job.share, now_s - job.booked_s, job.billing))
            job.booked_s = now_s
        self._fair.renew(now_s - self._renewed_s, running)
        if self._reset_s <= now_s:
            self._reset_s = self._next_reset_s(now_s)
            self._fair.reset()
            if self._gate is not None:
                self._gate.reset()
        self._renewed_s = now_s
        self._next_priority_s = max(self._next_priority_s + self._rules.period_s, now_s)
        for job in self._line:
            self._update_priority(now_s, job)
        self._line.sort(key=_RANK)
        if self.waiting:
            self._mark_changed(now_s)

    def _next_reset_s(self, now_s: float) -> float:
        """Return the next reset of usage in seconds of the run."""
        clock_s = self._timers.clock_s
        return next_reset_s(self._rules.reset, now_s + clock_s) - clock_s

    # -- starting
    # ----------------------------------------------------------------------------------------------

    def _is_within_limits(self, now_s: float, job: SlurmJob) -> bool:
        """Return True if limits let a job start; else set its reason."""
        reason = self._gate.blocking_reason(now_s, job) if self._gate is not None else ""
        if reason:
            job.why = reason
        return not reason

    def _try_start(self, now_s: float, job: SlurmJob, available: Mask) -> bool:
        """Start a job now, with preemption if allowed; else set its reason.

        Return True if it started.
        """
        barred = self._barred_nodes(now_s, job)
        held = self.nodes.select(job, available & ~barred)
        if not held and (victims := self._victims(now_s, job)):
            held = self._preempt_for(now_s, job, available & ~barred, victims)
        if held:
            self._start(now_s, job, held)
            return True
        job.why = "Resources"
        job.is_reservation_blocked = bool(
            self._calendar is not None and barred and self.nodes.select(job, available)
        )
        if self._calendar is not None and (job.is_reservation_blocked or job.reservation):
            job.why = self._calendar.why(now_s, job)
        return False

    def _victims(self, now_s: float, job: SlurmJob) -> list[Victim]:
        """Return the running or suspended jobs that a job may preempt; [] without preemption."""
        if self._preemption is None:
            return []
        running = [*self.running.values(), *self.suspended.values()]
        return self._preemption.victims(now_s, job, running, self.partitions)

    def _preempt_for(
        self, now_s: float, job: SlurmJob, available: Mask, candidates: list[Victim]
    ) -> Placement:
        """Preempt candidates to make room for a job; return its placement.

        The placement is () if preemption does not help, or victims are still in their grace time.

        The job itself is not started.
        """
        assert self._preemption is not None, "else there are no victims"
        victims = [victim for victim in candidates if victim.job.on & available]
        held, leaving = self._preemption.choose_victims(job, available, self.nodes, victims)
        for victim in leaving:
            if not victim.grace_s:
                self._vacate(now_s, victim)
                continue
            held = ()
            if victim.job.grace_end_s == inf:
                victim.job.grace_end_s = now_s + victim.grace_s
                heappush(self._in_grace, (victim.job.grace_end_s, victim.job.id, victim))
                self._planner.forget()
        return held

    def _vacate(self, now_s: float, victim: Victim) -> None:
        """Suspend or end a preempted job, and list it in `preempted`.

        A job resumed since the last clearing is only removed from `resumed`.
        """
        job = victim.job
        if victim.mode == SUSPEND:
            self._fair.book(job.share, (now_s - job.booked_s) * job.billing)
            self.suspend(now_s, job)
        else:
            self.end(now_s, job.id)
        if job in self.resumed:
            self.resumed.remove(job)
        else:
            self.preempted.append(victim)

    def suspend(self, now_s: float, job: SlurmJob) -> None:
        """Move a running job to the suspended jobs; its resources stay booked."""
        self.suspended[job.id] = self.running.pop(job.id)
        job.suspended_s = now_s
        self._alone -= job.alone
        self._planner.forget()

    def _resume_suspended(self, now_s: float) -> None:
        """Resume suspended jobs with free cores, before other jobs start.

        They are listed in `resumed`.
        """
        for job in resumable(self.suspended.values(), self.nodes, self.partitions):
            self.running[job.id] = self.suspended.pop(job.id)
            job.paused_s += now_s - job.suspended_s
            job.suspended_s, job.booked_s = inf, now_s
            self._alone += job.alone
            self._planner.forget()
            self.resumed.append(job)

    def _end_graced(self, now_s: float) -> None:
        """Vacate preempted jobs that still run at the end of their grace time."""
        while self._in_grace and self._in_grace[0][0] <= now_s:
            victim = heappop(self._in_grace)[2]
            if self.running.get(victim.job.id) is victim.job:
                self._vacate(now_s, victim)

    def _start(self, now_s: float, job: SlurmJob, held: Placement) -> None:
        """Move a waiting job to the running jobs on its placement; list it as started."""
        self._dequeue(job.id)
        job.start_s = job.booked_s = now_s
        job.hold(held)
        self.nodes.take(job, held)
        self._planner.forget()
        self.running[job.id] = job
        self._alone += job.alone
        self._started.append(job)
        if self._gate is not None:
            self._gate.count_start(job)
        self._mark_changed(now_s)

    def _main_pass(self, now_s: float, depth: int, depth_per_part: float = inf) -> None:
        """Start jobs in queue order; a job that does not fit blocks its partition.

        At most `depth` entries are tested, `depth_per_part` in a partition. Other jobs get a
        reason.
        """
        self._pass_pending, self._last_pass_s = False, now_s
        rules, failed, arrays = self._rules, set[int](), set[tuple[int, str]]()
        blocked = started = 0
        tested: dict[int, int] = {}
        for job in self.queue()[:depth]:
            part = job.partition
            if job.id not in self.waiting:
                continue
            tested[part] = tested.get(part, 0) + 1
            array = part, job.array
            if part in failed or tested[part] > depth_per_part or array in arrays:
                job.why = "Priority"
                continue
            if not self._is_within_limits(now_s, job):
                if rules.limit_stops:
                    failed.add(part)
                continue
            nodes = self.partitions[part].nodes
            if self._try_start(now_s, job, nodes & ~blocked):
                started += 1
                if started >= rules.max_started_pass:
                    break
                continue
            if job.array:
                # One task without room rejects the rest of its array.
                arrays.add(array)
            if self._blocks_partition(now_s, job):
                failed.add(part)
                blocked |= nodes

    def _blocks_partition(self, now_s: float, job: SlurmJob) -> bool:
        """Return True if a job that does not fit blocks later jobs of its partition."""
        return not (
            job.test_only or job.is_reservation_blocked or job.reservation
        ) and self._can_reserve(now_s, job)

    def _can_reserve(self, now_s: float, job: SlurmJob) -> bool:
        """Return True if a job's age and priority suffice for planned nodes."""
        rules = self._rules
        return now_s - job.since_s >= rules.min_age_s and job.priority >= rules.min_priority

    # -- backfill
    # ----------------------------------------------------------------------------------------------

    def _backfill(self, now_s: float) -> None:
        """Run a backfill cycle and set the time of the next one, recorded or estimated."""
        recorded = self._timers.instants
        has_recorded = self._cycle + 1 < len(recorded)
        self._changed = bool(recorded)
        tested, planned = self._run_backfill_cycle(now_s)
        self.cycles, self.tested = self.cycles + (tested > 0), self.tested + tested
        if has_recorded:
            self._cycle += 1
            self._next_backfill_s = recorded[self._cycle]
            return
        cycle_s = self._timers.cycle_s
        if cycle_s < 0:
            cycle_s = min(_PER_TEST_S * tested * (len(self.running) + planned), _MAX_CYCLE_S)
        self._next_backfill_s = now_s + self._rules.interval_s + cycle_s

    def _run_backfill_cycle(self, now_s: float) -> tuple[int, int]:
        """Start or plan jobs in queue order; return the numbers (tested, planned)."""
        rules, planner = self._rules, self._planner
        planner.begin(now_s)
        self._planned.clear()
        self._victim_cache.clear()
        counts: dict[object, int] = {}
        plans: dict[int, int] = {}
        tested = started = planned = 0
        for job in self.queue():
            if tested >= rules.max_tested or started >= rules.max_started:
                break
            tested += 1
            if job.id not in self.waiting or not self._is_within_limits(now_s, job):
                continue
            if not self._count_test(job, counts):
                continue
            if not planner.is_ready:
                planner.look_ahead([*self.running.values(), *self.suspended.values()])
            nodes = self.partitions[job.partition].nodes & self.nodes.up
            if self._alone or job.alone:
                # Assumption: nodes that others hold now are not planned for it either.
                nodes &= ~self._barred_nodes(now_s, job)
            keeps = self._has_plan_left(now_s, job, plans)
            victims = self._victims_in_cycle(now_s, job) if self._preemption is not None else []
            held = planner.place(job, nodes, keeps=keeps, gone=victims)
            if held and victims:
                held = self._preempt_on_plan(now_s, job, held, victims)
            if held:
                self._start(now_s, job, held)
                self._victim_cache.clear()
                started += 1
            elif held is not None:
                planned += 1
                plans[job.partition] = plans.get(job.partition, 0) + 1
                self._planned.add(job.id)
        self._planned.clear()
        return tested, planned

    def _victims_in_cycle(self, now_s: float, job: SlurmJob) -> list[Victim]:
        """Return the jobs that a job may preempt (cached per backfill cycle)."""
        assert self._preemption is not None, "else there are none"
        key = job.partition, job.qos, job.priority if self._preemption.by_priority else 0
        victims = self._victim_cache.get(key)
        if victims is None:
            victims = self._victim_cache[key] = self._victims(now_s, job)
        return victims

    def _preempt_on_plan(
        self, now_s: float, job: SlurmJob, held: Placement, victims: list[Victim]
    ) -> Placement:
        """Preempt jobs on a job's planned nodes if needed; return its placement.

        The placement is () if it does not fit yet; its nodes stay planned.
        """
        nodes = mask_of(held)
        if self.nodes.select(job, nodes):
            return held
        self._victim_cache.clear()
        placement = self._preempt_for(now_s, job, nodes, victims)
        if not placement:
            self._planner.keep_now(job, held)
        return placement

    def _has_plan_left(self, now_s: float, job: SlurmJob, plans: Mapping[int, int]) -> bool:
        """Return True if another plan is allowed for a job in this cycle."""
        rules = self._rules
        return (
            not (job.test_only or (rules.one_plan and job.id in self._planned))
            and plans.get(job.partition, 0) < rules.max_plans_part
            and sum(plans.values()) < rules.max_plans
            and self._can_reserve(now_s, job)
        )

    def _count_test(self, job: SlurmJob, counts: dict[object, int]) -> bool:
        """Count a job toward the per-cycle caps of the backfill; False if one is reached."""
        for group_of, maximum in self._caps:
            key = group_of(job)
            if key is None:
                continue
            if counts.get(key, 0) >= maximum:
                return False
            counts[key] = counts.get(key, 0) + 1
        return True
