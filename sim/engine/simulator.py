"""The simulator: turns a trace, a cluster and an allocator into a result. Read it second.

Four sources add events to one agenda: arrivals, running jobs, outages, and the clock of the
allocator (a ticker and its wake-ups). Each event updates only the jobs that it concerns and, if the
allocator's cadence asks for it, makes a decision due. The decision point of an instant comes after
all other events of that instant: it passes the view to the allocator, validates the plan and
applies it, releases first.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from time import perf_counter, process_time
from typing import NoReturn

from sim.clock import LATEST_S, instant, later
from sim.cluster import Cluster
from sim.conditions import ENDS, Conditions, Measure
from sim.contract import Allocator, Delta, Eviction, Grant, JobId, Plan, View, remarks_of
from sim.engine.agenda import DECISION, END, LANDING, URGENT, Agenda, Alarm, Expected
from sim.engine.execution import ASK, FINISH, INTERRUPTION, OVERLAP_END, SERVER_OOM
from sim.engine.faults import Outages
from sim.engine.give_up import (
    CHECK_EVERY,
    ENDLESS,
    MAX_EVICTIONS,
    PATIENCE,
    STUCK,
    infeasible_plan_reason,
    no_event_reason,
    slow_clock_reason,
    stalled_reason,
    too_many_evictions_reason,
)
from sim.engine.record import COMPLETED, FAILED, REJECTED, UNSCHEDULABLE
from sim.engine.setup import Stage
from sim.engine.view import snapshot
from sim.errors import ContractError, InfeasiblePlan, ParameterError, RateError
from sim.result import Progress, RunResult
from sim.trace import Trace

__all__ = ["Conditions", "Measure", "Progress", "Simulator"]


class Simulator:
    """One run of a trace on a cluster under an allocator.

    Parameters
    ----------
    trace, cluster, allocator : Trace, Cluster, Allocator
        Inputs of the run. The allocator must be a new instance.
    conditions : Conditions
        Other inputs of the run.
    progress : callable
        Called with a `Progress` every few hundred decisions.
    witness : callable
        Called with the view and the plan right after every decision; must change neither.

    Raises
    ------
    ParameterError
        If conditions contradict each other.
    """

    __slots__ = (
        "_agenda",
        "_alarm",
        "_allocate",
        "_allocate_s",
        "_allocator",
        "_arrived",
        "_cadence",
        "_columns",
        "_due",
        "_evicted",
        "_execution",
        "_expected",
        "_finished",
        "_has_latency",
        "_idle",
        "_in_flight",
        "_is_over",
        "_last_rate_job",
        "_ledger",
        "_left_to_settle",
        "_longest_s",
        "_measured",
        "_next",
        "_no_more_arrivals",
        "_nodes",
        "_observe",
        "_outages",
        "_progress",
        "_reason",
        "_record",
        "_room",
        "_running",
        "_settled",
        "_stage",
        "_standstill",
        "_steps",
        "_submit_s",
        "_touched",
        "_unschedulable",
        "_view",
        "_voided",
        "_waiting",
        "cluster",
        "conditions",
        "trace",
    )  # fmt: skip

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        allocator: Allocator,
        conditions: Conditions | None = None,
        *,
        progress: Callable[[Progress], None] | None = None,
        witness: Callable[[View, Plan], None] | None = None,
    ) -> None:
        self.trace, self.cluster, self.conditions = trace, cluster, conditions or Conditions()
        self._allocator, self._cadence = allocator, allocator.cadence
        self._allocate = (
            allocator.allocate if witness is None else _with_callback(allocator.allocate, witness)
        )
        self._progress = progress
        self._stage = stage = Stage(trace, cluster, self.conditions, allocator.needs)
        self._waiting, self._running = stage.waiting, stage.running
        self._columns, self._room = stage.columns, stage.room
        self._ledger, self._execution, self._record = stage.ledger, stage.execution, stage.record
        self._view, self._observe, self._standstill = (
            stage.view,
            stage.observe,
            stage.standstill,
        )
        self._unschedulable = stage.unschedulable.tobytes()
        self._measured = stage.measured.tobytes() if self.conditions.stop == "measured" else None
        self._settled = 0
        self._left_to_settle = int(stage.measured.sum()) if self._measured else len(trace)
        self._has_latency = self.conditions.overheads.latency(1) > 0
        self._agenda, self._is_over = Agenda(), False
        self._outages = Outages(self._agenda, self._node_down, self._node_up)
        self._submit_s: memoryview[float] = memoryview(stage.submit_s)  # type: ignore[arg-type]
        self._arrived, self._finished = list[JobId](), list[JobId]()
        self._evicted, self._nodes = list[Eviction](), list[int]()
        self._expected = Expected(self._agenda, self._on_job)
        self._touched: set[int] = set()  # nodes changed while a plan is in flight
        self._due = self._in_flight = self._no_more_arrivals = False
        self._steps = self._idle = self._next = self._voided = 0
        self._alarm, self._reason = Alarm(self._agenda, self._make_due), "drained"
        self._last_rate_job: JobId | None = None  # job of the last rate request
        self._allocate_s = self._longest_s = 0.0

    def run(self) -> RunResult:
        """Run the simulation to its end and return the result.

        Returns
        -------
        RunResult
            Tables of facts of the run.

        Raises
        ------
        InfeasiblePlan
            If a plan cannot be applied.
        ParameterError
            If the performance model returns a rate that is negative or not finite.
        ContractError
            If the allocator or a model breaks the contract.
        SolverError
            If no solver solves an allocator's program.
        """
        agenda, wall, cpu = self._agenda, perf_counter(), process_time()
        self._outages.start(self.conditions.faults, self.cluster, self.conditions.seed)
        agenda.add_action(0.0, self._arrive, URGENT)
        if self._cadence.every_s < inf:
            agenda.add_action(0.0, partial(agenda.follow, self._ticks()), URGENT)
        if self.conditions.horizon_s < inf:
            agenda.add_action(
                instant(self.conditions.horizon_s), partial(self._end, "horizon"), END
            )
        gc_was_enabled = gc.isenabled()
        # a run makes no reference cycles, so the collector would scan the heap for nothing
        gc.disable()
        try:
            agenda.run()
        except RateError as error:
            raise ParameterError(
                f"{type(self.conditions.perf).__name__} gives job"
                f" {self.trace.frame['job_id'].iloc[error.job]} a rate of {error.rate:g}. Correct"
                " the profile or the parameters of this performance model."
            ) from error
        except ContractError as error:
            raise ContractError(
                f"{type(self._allocator).__name__} broke the contract at {agenda.now_s:.3f} s:"
                f" {error}. The run was stopped."
            ) from error
        finally:
            if gc_was_enabled:
                gc.enable()
        if (self._running or self._waiting) and not self._is_over:
            self._end(no_event_reason(self._columns, self._running, self._waiting))
        timing = (process_time() - cpu, perf_counter() - wall, self._allocate_s, self._longest_s)
        reason_sentences = () if self._reason in ENDS else (f"{self._reason}.",)
        return self._stage.result(
            agenda.now_s,
            self._reason,
            self._voided,
            (*reason_sentences, *remarks_of(self._allocator)),
            timing,
        )

    # -- sources of events
    # ----------------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        """Add the jobs submitted by now to the waiting jobs, and schedule the next arrival.

        Jobs that no node can hold become unschedulable. The others make a decision due, or make it
        now, if the cadence asks for it.
        """
        agenda, submit_s, job = self._agenda, self._submit_s, self._next
        at_s, jobs = agenda.now_s, len(submit_s)
        while job < jobs and submit_s[job] <= at_s:
            if self._unschedulable[job]:
                self._set_outcome(job, UNSCHEDULABLE)
            else:
                self._waiting[job] = None
                self._arrived.append(job)
            job += 1
        self._next = job
        if self._arrived and self._cadence.on_arrival:
            self._decide_or_make_due()
        if job < jobs:
            agenda.add_action(submit_s[job], self._arrive)
        else:
            self._no_more_arrivals = True

    def _ticks(self) -> Iterator[float]:
        """Make a decision due at each tick of the cadence, yielding the instants of the ticks.

        Ticks without waiting, running or just finished jobs make none.
        """
        every, tick = self._cadence.every_s, 0
        while tick * every <= LATEST_S:
            if self._waiting or self._running or self._finished:
                self._make_due()
            tick += 1
            yield later(tick * every, self._agenda.now_s)

    def _on_job(self, job: JobId, kind: int) -> None:
        """Process a running job's event: finish, rate change, overlap end, interruption, OOM."""
        now_s = self._agenda.now_s
        if kind == FINISH:
            self._execution.finish(job, now_s)
            self._observe(job, now_s)
            del self._running[job]
            self._finished.append(job)
            self._set_outcome(job)
            if self._cadence.on_finish:
                self._decide_or_make_due()
        elif kind == ASK:
            self._last_rate_job = job
            self._expected.replace(job, self._execution.ask(job, now_s))
            self._steps += 1
            if not self._steps % CHECK_EVERY:
                self._check_progress()
        elif kind == OVERLAP_END:
            self._nodes += sorted({node for node, *_ in self._ledger.charged[job].spots})
            self._expected.replace(job, self._execution.end_overlap(job, now_s))
            if self._cadence.on_finish:
                self._make_due()
        elif kind == INTERRUPTION and self._execution.survives_interruption(job):
            self._expected.replace(job, self._execution.relaunch(job, now_s))
        else:
            self._evict(
                job,
                "interruption" if kind == INTERRUPTION else "oom",
                "server" if kind == SERVER_OOM else "worker",
            )

    def _evict(self, job: JobId, cause: str, role: str) -> None:
        """Return an evicted job to the waiting jobs, or fail it after its last retry.

        Raises `ParameterError` after `MAX_EVICTIONS`.
        """
        lost = self._execution.evict(job, self._agenda.now_s, (cause, role))
        del self._running[job]
        self._expected.drop(job)
        self._evicted.append(Eviction(job, cause, role, lost))
        evictions = self._columns.evictions[job]
        if evictions > MAX_EVICTIONS:
            raise ParameterError(too_many_evictions_reason(self.trace, job, evictions, cause))
        if 0 <= self.conditions.faults.retries < evictions:
            self._finished.append(job)
            self._set_outcome(job, FAILED)
        else:
            self._waiting[job] = None
        if self._cadence.on_finish:
            self._make_due()

    def _node_down(self, node: int, cause: str) -> None:
        """Evict or shrink the jobs on a failed node and take the node out of service."""
        self._execution.lose_suspended(node)
        for job in self._ledger.holders(node):
            grant = self._ledger.grants[job]
            hit = [
                (node in workers.nodes, servers is not None and node in servers.nodes)
                for workers, servers in grant.gangs
            ]
            survivors = tuple(
                gang for gang, hit_roles in zip(grant.gangs, hit, strict=True) if not any(hit_roles)
            )
            if survivors and not self._execution.overlaps(job):
                self._expected.replace(
                    job,
                    self._execution.lose_gangs(
                        job, replace(grant, gangs=survivors), self._agenda.now_s
                    ),
                )
            else:
                self._evict(
                    job,
                    "outage",
                    (
                        "server"
                        if any(servers for _, servers in hit)
                        and not any(workers for workers, _ in hit)
                        else "worker"
                    ),
                )
        self._room.remove(node)
        self._record.node_down(node, self._agenda.now_s, cause)
        self._capacity_changed(node)

    def _node_up(self, node: int) -> None:
        """Put a node back into service, record it and report it to the next decision."""
        self._room.restore(node)
        self._record.node_up(node, self._agenda.now_s)
        self._capacity_changed(node)

    def _capacity_changed(self, node: int) -> None:
        """Report a changed node to the next decision; check whether the run is stuck."""
        self._nodes.append(node)
        self._touched.add(node)
        if self._cadence.on_capacity:
            self._make_due()
        elif (
            self._cadence.every_s == inf
            and self._no_more_arrivals
            and not (self._running or self._in_flight or self._due)
        ):
            self._give_up_if_stuck()  # with a ticker, idle ticks are counted instead

    # -- the decision point
    # ----------------------------------------------------------------------------------------------

    def _make_due(self) -> None:
        """Schedule a decision after the other events of this instant, or once a plan lands."""
        was_due, self._due = self._due, True
        if was_due or self._in_flight:
            return
        self._agenda.add_action(self._agenda.now_s, self._decide, DECISION)

    def _decide_or_make_due(self) -> None:
        """Decide now if nothing else happens at this instant, else schedule the decision.

        A decision without other events at its instant needs no event.
        """
        agenda = self._agenda
        more = agenda.actions and agenda.actions[0][0] <= agenda.now_s
        if more or self._due or self._in_flight:
            self._make_due()
        else:
            self._decide()

    def _decide(self) -> None:
        """Call the allocator with the view, and apply, send or undo its plan."""
        self._due, now_s, room = False, self._agenda.now_s, self._room
        evicted: tuple[Eviction, ...] = ()
        nodes: tuple[int, ...] = ()
        if self._evicted or self._nodes:
            evicted, nodes = tuple(self._evicted), tuple(self._nodes)
            self._evicted.clear()
            self._nodes.clear()
        delta = tuple(self._arrived), tuple(self._finished), evicted, nodes, ()
        # The constructor of the named tuple would cost a second call per decision.
        self._view.move_to(now_s, tuple.__new__(Delta, delta))
        self._arrived.clear()
        self._finished.clear()
        start_s = perf_counter()
        plan = self._allocate(self._view)  # type: ignore[arg-type]
        took_s = perf_counter() - start_s
        self._allocate_s += took_s
        if took_s > self._longest_s:  # noqa: PLR1730 - max() would cost a call per decision
            self._longest_s = took_s
        changed = len(plan.changes) + len(plan.refuse) + len(plan.ended)
        if not changed:
            room.undo()
        elif self._has_latency:
            room.undo()
            self._delay_plan(
                plan,
                now_s + self.conditions.overheads.latency(len(self._waiting) + len(self._running)),
            )
        else:
            self._apply(plan, reserved=room.adopt(plan.changes, self._ledger.charged))
        self._record.decision(now_s, changed, len(self._waiting), len(self._running))
        if plan.notes:
            self._record.notes(plan.notes)
        if plan.wake_at_s != self._alarm.requested_s:
            self._alarm.set(plan.wake_at_s)
        self._steps += 1
        if not self._steps % CHECK_EVERY:
            self._check_progress()
        if changed or self._running:
            self._idle = 0
        elif self._no_more_arrivals and not self._in_flight:
            self._give_up_if_stuck()

    def _check_progress(self) -> None:
        """Report progress, and end the run if the clock or all jobs are stuck."""
        state = self._steps, self._settled, self._agenda.now_s
        if self._progress is not None:
            self._progress(Progress(self._settled, len(self.trace), state[2], self.trace.span_s))
        if self._standstill.is_clock_stuck(*state):
            self._end(slow_clock_reason(self._allocator, self.trace, self._last_rate_job, state[2]))
        elif self._no_more_arrivals and self._standstill.is_stalled(
            *state, self._planned_until_s, self._outages.are_over
        ):
            self._end(stalled_reason(len(self._waiting) + len(self._running), self._idle))

    def _planned_until_s(self) -> float:
        """Return the instant of the last planned event of any source."""
        own_s = max(self._expected.until_s, self._alarm.until_s)
        return max(self._outages.last_known_s, own_s, self._agenda.planned_until_s)

    def _give_up_if_stuck(self) -> None:
        """Count an idle decision; end the run when no waiting job can ever start."""
        self._idle += 1
        patience = 1 if self._cadence.every_s == inf else PATIENCE
        if self._waiting and (
            (
                self._idle >= patience
                and not self._outages.repairs_pending
                and self._alarm.at_s == inf
            )
            or self._idle >= ENDLESS
        ):
            self._end(STUCK.format(len(self._waiting)))

    def _delay_plan(self, plan: Plan, lands_s: float) -> None:
        """Schedule a plan to take effect after the decision latency."""
        self._in_flight = True
        self._touched.clear()
        old_grants = {job: self._view.grants.get(job) for job in (*plan.changes, *plan.ended)}
        land = partial(self._apply_delayed, plan, old_grants)
        self._agenda.add_action(later(lands_s, self._agenda.now_s), land, LANDING)

    def _apply_delayed(self, plan: Plan, old_grants: Mapping[JobId, Grant | None]) -> None:
        """Apply a delayed plan without changes of jobs or nodes that are out of date.

        Counts the dropped changes and reports dropped starts as evictions, cause "void".
        """
        self._in_flight = False
        valid = self._ledger.still_valid(plan.changes, old_grants, self._touched)
        void = [job for job in plan.changes if job not in valid]
        self._voided += len(void)
        unstarted = [
            Eviction(job, "void", "worker", 0.0)
            for job in void
            if job in self._waiting and old_grants[job] is None
        ]
        self._evicted += unstarted
        self._due |= bool(unstarted) and self._cadence.on_finish
        grants = self._ledger.grants
        ended = frozenset(job for job in plan.ended if grants.get(job) is old_grants[job])
        self._apply(plan._replace(changes=valid, ended=ended))
        if self._due:
            self._due = False
            self._make_due()

    def _apply(self, plan: Plan, *, reserved: bool = False) -> None:
        """Apply a plan: refuse and end jobs, release stopped and moved jobs, then start jobs."""
        changes = self._settle_early(plan, reserved=reserved)
        seamless, now_s, job = plan.seamless, self._agenda.now_s, -1
        waiting, running, expected = self._waiting, self._running, self._expected
        end_grant, begin_grant = self._execution.end_grant, self._execution.begin_grant
        try:
            for job, grant in changes.items():  # releases first
                if job in running:
                    end_grant(job, grant, now_s, seamless=job in seamless, reserved=reserved)
                    if grant is None:
                        waiting[job] = running.pop(job)
                        expected.drop(job)
                elif grant is None:
                    self._raise_infeasible(job, "it is to be stopped but does not run")
            for job, grant in changes.items():
                if grant is None:
                    continue
                if job in waiting:
                    running[job] = waiting.pop(job)
                elif job not in running:
                    self._raise_infeasible(job, "it is neither waiting nor running")
                expected.replace(job, begin_grant(job, grant, now_s, reserved=reserved))
        except ContractError as error:
            self._raise_infeasible(job, str(error))
        self._ledger.give_back()

    def _settle_early(self, plan: Plan, *, reserved: bool) -> Mapping[JobId, Grant | None]:
        """Settle the jobs that a plan refuses or ends; return the changes of the other jobs."""
        if not plan.refuse and not plan.ended:
            return plan.changes
        self._refuse(plan.refuse)
        for job in sorted(plan.ended):
            self._end_early(job, plan, reserved=reserved)
        if plan.ended and self._cadence.on_finish:
            self._make_due()
        return {job: grant for job, grant in plan.changes.items() if job not in plan.ended}

    def _refuse(self, jobs: Iterable[JobId]) -> None:
        """Settle waiting jobs that a plan refuses: as failed if they ran, else as rejected."""
        for job in sorted(jobs):
            if job not in self._waiting:
                self._raise_infeasible(job, "it is refused but not waiting")
            del self._waiting[job]
            has_run = self._columns.evictions[job] or self._columns.preemptions[job]
            self._set_outcome(job, FAILED if has_run else REJECTED)

    def _end_early(self, job: JobId, plan: Plan, *, reserved: bool) -> None:
        """End a running job for good, as failed."""
        if job not in self._running:
            self._raise_infeasible(job, "it is ended but does not run")
        if plan.changes.get(job) is not None:
            self._raise_infeasible(job, "it is ended and given other GPUs at once")
        now_s, execution = self._agenda.now_s, self._execution
        if job in plan.changes:
            try:
                execution.end_grant(job, None, now_s, seamless=False, reserved=reserved)
            except ContractError as error:
                self._raise_infeasible(job, str(error))
        else:
            execution.end_early(job, now_s)
        del self._running[job]
        self._expected.drop(job)
        self._finished.append(job)
        self._set_outcome(job, FAILED)

    def _raise_infeasible(self, job: JobId, what: str) -> NoReturn:
        """Raise `InfeasiblePlan` for a job of the plan."""
        self._ledger.give_back()  # the snapshot then includes what the plan has freed
        raise InfeasiblePlan(
            infeasible_plan_reason(self._allocator, self._agenda.now_s, self.trace, job, what),
            snapshot(self._view),
        )

    # -- endings
    # ----------------------------------------------------------------------------------------------

    def _set_outcome(self, job: JobId, outcome: int = COMPLETED) -> None:
        """Set the outcome of a job; end the run when all jobs that count are settled."""
        if outcome:
            self._columns.outcome[job] = outcome
        self._settled += 1
        if self._measured is None or self._measured[job]:
            self._left_to_settle -= 1
            if not self._left_to_settle and self.conditions.stop != "horizon":
                self._end("drained" if self._measured is None else "measured")

    def _end(self, reason: str) -> None:
        """End the run for a reason; only the first call counts."""
        if not self._is_over:
            self._is_over, self._reason = True, reason
            self._agenda.add_action(self._agenda.now_s, self._agenda.stop)


def _with_callback(
    allocate: Callable[[View], Plan], witness: Callable[[View, Plan], None]
) -> Callable[[View], Plan]:
    """Return `allocate` with a callback after each decision."""

    def allocate_and_report(view: View) -> Plan:
        """Return the plan of `allocate` after passing view and plan to `witness`."""
        plan = allocate(view)
        witness(view, plan)
        return plan

    return allocate_and_report
