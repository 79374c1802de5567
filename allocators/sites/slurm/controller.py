"""The daemon: when priorities are renewed, when the main pass runs, and when the backfill."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import ceil, floor, inf
from operator import attrgetter

from allocators.sites.slurm.backfill import Planner
from allocators.sites.slurm.fairshare import FairShare
from allocators.sites.slurm.limits import UsageLimits
from allocators.sites.slurm.preempt import SUSPEND, PreemptionRules, Victim, resumable
from allocators.sites.slurm.reservations import Calendar
from allocators.sites.slurm.rules import Rules, SlurmPartition, Timers, caps, next_reset_s
from allocators.sites.slurm.select import FreeNodes
from allocators.sites.slurm.state import Mask, Placement, SlurmJob, mask_of

_ALL = 1 << 40
"""More entries than any queue has."""
_RANK = attrgetter("rank")
_PER_TEST_S, _MOST_S = 0.0002, 1.0
"""Of a backfill cycle: seconds for each job tested and each that runs or has a plan, and the
longest.
"""


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
    gate : Gate or None
        Who may start at all; None = everybody.
    preemption : Preemption or None
        Who may displace whom; None = nobody.
    calendar : Calendar or None
        Reservations; None = there are none.
    """

    def __init__(  # noqa: PLR0913 - what a daemon consists of
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
        self._edge_s = -inf
        """When a reservation begins or ends next."""
        self.displaced: list[Victim] = []
        """Jobs that lost their nodes since the policy looked last."""
        self.suspended: dict[int, SlurmJob] = {}
        """Jobs without their cores: all of it stays booked, but whoever may displace them does not
        count the cores.
        """
        self.resumed: list[SlurmJob] = []
        """Of those the ones that go on since the policy looked last."""
        self._doomed: list[tuple[float, int, Victim]] = []
        """Displaced jobs that still run for their time of grace, the next to end first."""
        self._known_victims: dict[tuple[int, str, int], list[Victim]] = {}
        """In a cycle of the backfill, by what decides who they are."""
        self._rules, self._fair, self._timers = rules, fair, timers
        self._caps = caps(rules)
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
        self._to_do = self._all_passed = False
        self._changed = True
        spans_s = rules.window_s, rules.resolution_s, timers.clock_s
        self._planner = Planner(nodes, *spans_s, linear=rules.linear, calendar=calendar)
        self._line: list[SlurmJob] = []
        """The queue in order: each waiting job once for each of its partitions."""
        self._started: list[SlurmJob] = []
        self._alone = 0
        """Running jobs that are alone on their nodes with others of their user."""
        self._no_room: set[int] = set()
        self._planned: set[int] = set()
        """Under `Rules.one_plan` the jobs that have a plan in this cycle."""
        self._entries: dict[int, tuple[SlurmJob, ...]] = {}
        """Of jobs with several partitions: the job in each."""
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

    def could_fit(self, job: SlurmJob) -> bool:
        """Tell whether the empty cluster could hold a job."""
        return self._planner.could_fit(job, self.partitions[job.partition].nodes)

    def submit(self, now_s: float, job: SlurmJob, others: tuple[SlurmJob, ...] = ()) -> None:
        """Take a job into the queue, and start it at once if nobody before it waits; `others` are
        the same job in further partitions.
        """
        for one in (job, *others):
            one.share = self._fair.of(one.account, one.user)
            one.fixed = self._fixed(one)
            self._prioritise(now_s, one)
        self._entries.pop(job.id, None)
        if others:
            self._entries[job.id] = (job, *others)
        self._enter(job)
        if self._gate is not None:
            self._gate.submitted(job)
        self._note_change(now_s)
        self._to_do = True
        for one in () if self._rules.defer else (job, *others):
            if job.id in self.waiting and self._is_first(one) and self._may(now_s, one):
                self._try(now_s, one, self.partitions[one.partition].nodes)

    def _is_barred(self, now_s: float, job: SlurmJob) -> Mask:
        """Return the nodes that are not for a job now: reserved, or used by another user where one
        of both is alone on its nodes (``--exclusive=user``).
        """
        found = self._calendar.barred(now_s, job) if self._calendar is not None else 0
        if self._alone or job.alone:
            for one in self.running.values():
                if one.user != job.user and (one.alone or job.alone):
                    found |= one.on
        return found

    def _is_first(self, job: SlurmJob) -> bool:
        """Tell whether nobody waits before a job for nodes of its partition."""
        nodes = self.partitions[job.partition].nodes
        for other in self._line:
            if other.rank >= job.rank:
                break
            if self.partitions[other.partition].nodes & nodes:
                return False
        return True

    def entries(self, job: SlurmJob) -> tuple[SlurmJob, ...]:
        """Return a job in each of its partitions."""
        return self._entries.get(job.id, (job,))

    def _enter(self, job: SlurmJob) -> None:
        entries = self.entries(job)
        self.waiting[job.id] = entries[0]
        for one in entries:
            insort(self._line, one, key=_RANK)

    def _leave(self, job_id: int) -> SlurmJob | None:
        """Take a job out of the queue."""
        job = self.waiting.pop(job_id, None)
        for one in self.entries(job) if job is not None else ():
            at = bisect_left(self._line, one.rank, key=_RANK)
            while self._line[at] is not one:
                at += 1
            del self._line[at]
        return job

    def forget(self, job_id: int) -> None:
        """Drop a waiting job."""
        dropped = self._leave(job_id)
        self._entries.pop(job_id, None)
        if dropped is not None and self._gate is not None:
            self._gate.submitted(dropped, -1)

    def adopt(self, now_s: float, entries: tuple[SlurmJob, ...], held: Placement) -> SlurmJob:
        """Take over a job that runs already, and return it: in the first of its partitions that has
        its nodes.
        """
        nodes = mask_of(held)
        on = [one for one in entries if not nodes & ~self.partitions[one.partition].nodes]
        job = [*on, entries[0]][0]
        if len(entries) > 1:
            self._entries[job.id] = entries
        job.share = self._fair.of(job.account, job.user)
        job.start_s = job.booked_s = now_s
        job.hold(held)
        self.nodes.take(job, held)
        self.running[job.id] = job
        self._alone += job.alone
        if self._gate is not None:
            self._gate.submitted(job)
            self._gate.started(job)
        return job

    def put_back(self, job: SlurmJob) -> None:
        """Undo a start of this instant that had no room; it is tried again once some is freed."""
        del self.running[job.id]
        self._alone -= job.alone
        self.nodes.take(job, job.held, -1)
        self._planner.forget()
        if self._gate is not None:
            self._gate.ended(job.start_s, job)
        self._enter(job)
        self._no_room.add(job.id)

    def end(self, now_s: float, job_id: int) -> None:
        """Free what a job held, whether it is done or was stopped."""
        job = self.suspended.pop(job_id, None) or self.running.pop(job_id)
        if job.suspended_s < inf:
            job.booked_s = now_s
        else:
            self._alone -= job.alone
        self.nodes.take(job, job.held, -1)
        self._planner.forget()
        self._fair.book(job.share, (now_s - job.booked_s) * job.billing)
        if self._gate is not None:
            self._gate.ended(now_s, job)
            self._gate.submitted(job, -1)
        self._freed(now_s)

    def follow_nodes(self, now_s: float) -> None:
        """Take note that nodes came, went or hold something else than jobs of this controller."""
        self._planner.forget()
        self._freed(now_s)

    def tick(self, now_s: float) -> list[SlurmJob]:
        """Do what is due, and return the jobs that started since the last tick."""
        self._end_doomed(now_s)
        if self.suspended:
            self._resume(now_s)
        if self._next_priority_s <= now_s:
            self._renew(now_s)
        if self._calendar is not None and self._edge_s <= now_s:
            self._edge_s = self._calendar.edge_s(now_s)
            for job in self._line:
                job.rank = self._rank(now_s, job)
            self._line.sort(key=_RANK)
            self._freed(now_s)
        if self._next_main_s <= now_s:
            behind = floor((now_s - self._next_main_s) / self._rules.main_interval_s) + 1
            self._next_main_s += behind * self._rules.main_interval_s
            self._pass(now_s, _ALL)
            self._all_passed = True
        elif self._to_do and self._last_pass_s + self._rules.delay_s <= now_s:
            self._pass(now_s, self._rules.depth, self._rules.depth_per_part)
        if self._rules.backfill and self._next_backfill_s <= now_s and self._changed:
            self._backfill(now_s)
        started, self._started = self._started, []
        return started

    def wake_s(self) -> float:
        """Return when something is due that may start or stop a job; inf = nothing."""
        doom_s = self._doomed[0][0] if self._doomed else inf
        if not self.waiting:
            return doom_s
        due = [self._next_priority_s, doom_s]
        if self._calendar is not None:
            due.append(self._edge_s)
        if not self._all_passed:
            due.append(self._next_main_s)
        if self._to_do:
            due.append(self._last_pass_s + self._rules.delay_s)
        if self._rules.backfill and self._changed:
            due.append(self._next_backfill_s)
        return min(due)

    def queue(self) -> list[SlurmJob]:
        """Return the waiting jobs in the order in which they are looked at."""
        if self._no_room:
            return [job for job in self._line if job.id not in self._no_room]
        return self._line[:]

    def _rank(self, now_s: float, job: SlurmJob) -> tuple[float, ...]:
        in_time = self._calendar is not None and self._calendar.holds(job, now_s)
        tier = self.partitions[job.partition].tier
        return (not in_time, -job.level, -tier, -job.priority, job.id)

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

    def _fixed(self, job: SlurmJob) -> float:
        rules = self._rules
        nodes = self._planner.least_nodes(job) if rules.size_by_used else max(job.nodes, 1)
        size = (nodes / len(self.nodes) + job.size / self._all) / 2
        if rules.by_time:
            cores = max(job.size, nodes * self._all / len(self.nodes))
            size = cores / max(job.limit_s / 60.0, 1.0) / self._all
        size = min(max(1.0 - size if rules.favor_small else size, 0.0), 1.0)
        part = self.partitions[job.partition].factor
        fixed = rules.weight_size * size + rules.weight_partition * part
        return fixed + job.term - job.nice

    def _prioritise(self, now_s: float, job: SlurmJob) -> None:
        rules = self._rules
        if rules.multifactor:
            age = min((now_s - job.since_s) / rules.max_age_s, 1.0)
            share = rules.weight_fairshare * job.share.factor
            total = job.fixed + rules.weight_age * age + share
            least = job.priority if rules.never_lowered else 1
            job.priority = min(max(int(total), least, 1), 2**32 - 1)
        job.rank = self._rank(now_s, job)

    def _renew(self, now_s: float) -> None:
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
            self._prioritise(now_s, job)
        self._line.sort(key=_RANK)
        if self.waiting:
            self._note_change(now_s)

    def _next_reset_s(self, now_s: float) -> float:
        clock_s = self._timers.clock_s
        return next_reset_s(self._rules.reset, now_s + clock_s) - clock_s

    # -- starting
    # ----------------------------------------------------------------------------------------------

    def _may(self, now_s: float, job: SlurmJob) -> bool:
        """Tell whether limits let a job start."""
        word = self._gate.waits(now_s, job) if self._gate is not None else ""
        if word:
            job.why = word
        return not word

    def _try(self, now_s: float, job: SlurmJob, available: Mask) -> bool:
        barred = self._is_barred(now_s, job)
        held = self.nodes.select(job, available & ~barred)
        if not held and (victims := self._victims(now_s, job)):
            held = self._displace(now_s, job, available & ~barred, victims)
        if held:
            self._start(now_s, job, held)
            return True
        job.why = "Resources"
        job.kept_off = bool(
            self._calendar is not None and barred and self.nodes.select(job, available)
        )
        if self._calendar is not None and (job.kept_off or job.reservation):
            job.why = self._calendar.why(now_s, job)
        return False

    def _victims(self, now_s: float, job: SlurmJob) -> list[Victim]:
        """Return the running jobs that a job may displace."""
        if self._preemption is None:
            return []
        running = [*self.running.values(), *self.suspended.values()]
        return self._preemption.victims(now_s, job, running, self.partitions)

    def _displace(
        self, now_s: float, job: SlurmJob, available: Mask, all_: list[Victim]
    ) -> Placement:
        """Free nodes for a job from those that it may displace; () = that does not help, or not
        yet, as they still run for a time of grace.
        """
        assert self._preemption is not None, "else there are no victims"
        victims = [victim for victim in all_ if victim.job.on & available]
        held, leave = self._preemption.chosen(job, available, self.nodes, victims)
        for victim in leave:
            if not victim.grace_s:
                self._leave_nodes(now_s, victim)
                continue
            held = ()
            if victim.job.doomed_s == inf:
                victim.job.doomed_s = now_s + victim.grace_s
                heappush(self._doomed, (victim.job.doomed_s, victim.job.id, victim))
                self._planner.forget()
        return held

    def _leave_nodes(self, now_s: float, victim: Victim) -> None:
        job = victim.job
        if victim.mode == SUSPEND:
            self._fair.book(job.share, (now_s - job.booked_s) * job.billing)
            self.suspend(now_s, job)
        else:
            self.end(now_s, job.id)
        if job in self.resumed:
            self.resumed.remove(job)
        else:
            self.displaced.append(victim)

    def suspend(self, now_s: float, job: SlurmJob) -> None:
        """Take note that a running job goes on later."""
        self.suspended[job.id] = self.running.pop(job.id)
        job.suspended_s = now_s
        self._alone -= job.alone
        self._planner.forget()

    def _resume(self, now_s: float) -> None:
        """Let suspended jobs go on whose cores nobody uses, before anybody else starts."""
        for job in resumable(self.suspended.values(), self.nodes, self.partitions):
            self.running[job.id] = self.suspended.pop(job.id)
            job.paused_s += now_s - job.suspended_s
            job.suspended_s, job.booked_s = inf, now_s
            self._alone += job.alone
            self._planner.forget()
            self.resumed.append(job)

    def _end_doomed(self, now_s: float) -> None:
        """Stop those whose time of grace is over."""
        while self._doomed and self._doomed[0][0] <= now_s:
            victim = heappop(self._doomed)[2]
            if self.running.get(victim.job.id) is victim.job:
                self._leave_nodes(now_s, victim)

    def _start(self, now_s: float, job: SlurmJob, held: Placement) -> None:
        self._leave(job.id)
        job.start_s = job.booked_s = now_s
        job.hold(held)
        self.nodes.take(job, held)
        self._planner.forget()
        self.running[job.id] = job
        self._alone += job.alone
        self._started.append(job)
        if self._gate is not None:
            self._gate.started(job)
        self._note_change(now_s)

    def _pass(self, now_s: float, depth: int, depth_per_part: float = inf) -> None:
        self._to_do, self._last_pass_s = False, now_s
        rules, failed, arrays = self._rules, set[int](), set[tuple[int, str]]()
        gone = started = 0
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
            if not self._may(now_s, job):
                if rules.limit_stops:
                    failed.add(part)
                continue
            nodes = self.partitions[part].nodes
            if self._try(now_s, job, nodes & ~gone):
                started += 1
                if started >= rules.most_started_pass:
                    break
                continue
            if job.array:
                # One task without room rejects the rest of its array.
                arrays.add(array)
            if self._keeps_nodes(now_s, job):
                failed.add(part)
                gone |= nodes

    def _keeps_nodes(self, now_s: float, job: SlurmJob) -> bool:
        """Tell whether a job without room holds others up."""
        return not (job.test_only or job.kept_off or job.reservation) and self._is_due(now_s, job)

    def _is_due(self, now_s: float, job: SlurmJob) -> bool:
        """Tell whether a job is old and important enough that nodes are kept for it."""
        rules = self._rules
        return now_s - job.since_s >= rules.least_age_s and job.priority >= rules.least_priority

    # -- backfill
    # ----------------------------------------------------------------------------------------------

    def _backfill(self, now_s: float) -> None:
        known = self._timers.instants
        is_known = self._cycle + 1 < len(known)
        self._changed = bool(known)
        tested, planned = self._cycle_of_plans(now_s)
        self.cycles, self.tested = self.cycles + (tested > 0), self.tested + tested
        if is_known:
            self._cycle += 1
            self._next_backfill_s = known[self._cycle]
            return
        cycle_s = self._timers.cycle_s
        if cycle_s < 0:
            cycle_s = min(_PER_TEST_S * tested * (len(self.running) + planned), _MOST_S)
        self._next_backfill_s = now_s + self._rules.interval_s + cycle_s

    def _cycle_of_plans(self, now_s: float) -> tuple[int, int]:
        """Start jobs or plan for them in order; return how many were tested, and have plans."""
        rules, planner = self._rules, self._planner
        planner.begin(now_s)
        self._planned.clear()
        self._known_victims.clear()
        counts: dict[object, int] = {}
        plans: dict[int, int] = {}
        tested = started = planned = 0
        for job in self.queue():
            if tested >= rules.most_tested or started >= rules.most_started:
                break
            tested += 1
            if job.id not in self.waiting or not self._may(now_s, job):
                continue
            if not self._counted(job, counts):
                continue
            if not planner.is_ready:
                planner.look_ahead([*self.running.values(), *self.suspended.values()])
            nodes = self.partitions[job.partition].nodes & self.nodes.up
            if self._alone or job.alone:
                # Our reading: nodes that others hold now are not planned for it either.
                nodes &= ~self._is_barred(now_s, job)
            keeps = self._has_plan_left(now_s, job, plans)
            victims = self._victims_in_cycle(now_s, job) if self._preemption is not None else []
            held = planner.place(job, nodes, keeps=keeps, gone=victims)
            if held and victims:
                held = self._made_room(now_s, job, held, victims)
            if held:
                self._start(now_s, job, held)
                self._known_victims.clear()
                started += 1
            elif held is not None:
                planned += 1
                plans[job.partition] = plans.get(job.partition, 0) + 1
                self._planned.add(job.id)
        self._planned.clear()
        return tested, planned

    def _victims_in_cycle(self, now_s: float, job: SlurmJob) -> list[Victim]:
        """Return the running jobs that a job may displace, found once for all jobs alike."""
        assert self._preemption is not None, "else there are none"
        key = job.partition, job.qos, job.priority if self._preemption.by_priority else 0
        found = self._known_victims.get(key)
        if found is None:
            found = self._known_victims[key] = self._victims(now_s, job)
        return found

    def _made_room(
        self, now_s: float, job: SlurmJob, held: Placement, victims: list[Victim]
    ) -> Placement:
        """Return where a job starts on nodes that were found for it, with those displaced that are
        in its way; () = they still run for a time of grace.
        """
        nodes = mask_of(held)
        if self.nodes.select(job, nodes):
            return held
        self._known_victims.clear()
        made = self._displace(now_s, job, nodes, victims)
        if not made:
            self._planner.keep_now(job, held)
        return made

    def _has_plan_left(self, now_s: float, job: SlurmJob, plans: Mapping[int, int]) -> bool:
        """Tell whether nodes may be kept for a job, of whose partition so many have plans."""
        rules = self._rules
        return (
            not (job.test_only or (rules.one_plan and job.id in self._planned))
            and plans.get(job.partition, 0) < rules.most_plans_part
            and sum(plans.values()) < rules.most_plans
            and self._is_due(now_s, job)
        )

    def _counted(self, job: SlurmJob, counts: dict[object, int]) -> bool:
        """Count a job among those tested in this cycle; tell whether it may be."""
        for of, most in self._caps:
            key = of(job)
            if key is None:
                continue
            if counts.get(key, 0) >= most:
                return False
            counts[key] = counts.get(key, 0) + 1
        return True
