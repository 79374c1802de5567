"""Turns a trace, a cluster and an allocator into a record of what would have happened. Read this after the contract.

Four sources make events in one SimPy environment: arrivals, the running jobs, outages, and the clock of the allocator (a ticker and its own wake-ups). Each
settles only the jobs it touches and, if the allocator wants to know, makes a decision due. One decision point per instant is processed after all other events
of that instant: it shows the view, validates the plan and applies it, releases first.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from heapq import heappush
from math import inf
from time import perf_counter, process_time
from typing import Any, NoReturn

import simpy
from simpy.core import StopSimulation

from sim.clock import LATEST_S, instant, later
from sim.cluster import Cluster
from sim.conditions import ENDS, Conditions, Measure
from sim.contract import Allocator, Delta, Eviction, JobId, Plan, remarks_of
from sim.endings import ENDLESS, HOPELESS, PATIENCE, STUCK, at_once, eventless, impossible_plan, never_done, standstill
from sim.errors import ContractError, InfeasiblePlan, ParameterError
from sim.execution import ASK, FINISH, INTERRUPTION, OVERLAP_END, SERVER_OOM
from sim.faults import Outages
from sim.instant import DECISION, END, LANDING, URGENT, Alarm, At, Expected, planned_until_s
from sim.record import COMPLETED, FAILED, IMPOSSIBLE, REFUSED
from sim.result import Progress, RunResult
from sim.stage import Stage
from sim.standstill import LOOK_EVERY
from sim.trace import Trace
from sim.view import snapshot

__all__ = ["Conditions", "Measure", "Progress", "Simulator"]


class Simulator:
    """One run.

    Parameters
    ----------
    trace, cluster, allocator : Trace, Cluster, Allocator
        The subject. The allocator must be fresh.
    conditions : Conditions
        The rest.
    progress : callable
        Called with a `Progress` every few hundred decisions.

    Raises
    ------
    ContractError
        If the allocator declares a need that is not in the vocabulary.
    ParameterError
        If conditions contradict each other.
    """

    __slots__ = (
        "_alarm", "_allocate", "_allocate_s", "_allocator", "_arrivals_over", "_arrived", "_asked", "_beats", "_cadence", "_columns", "_decision_point", "_due",
        "_env", "_evicted", "_execution", "_expected", "_finished", "_has_latency", "_idle", "_impossible", "_in_flight", "_longest_s", "_measured", "_next",
        "_nodes", "_note_decision", "_observe", "_outages", "_over", "_progress", "_reason", "_room", "_running", "_settled", "_stage", "_submit_s",
        "_to_settle", "_touched", "_view", "_voided", "_waiting", "cluster", "conditions", "trace",
    )  # fmt: skip

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        allocator: Allocator,
        conditions: Conditions | None = None,
        *,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.trace, self.cluster, self.conditions = trace, cluster, conditions or Conditions()
        self._allocator, self._cadence, self._allocate = allocator, allocator.cadence, allocator.allocate
        self._progress = progress
        self._stage = stage = Stage(trace, cluster, self.conditions, frozenset(allocator.needs))
        self._waiting, self._running, self._columns, self._room = stage.waiting, stage.running, stage.columns, stage.room
        self._execution, self._view, self._observe, self._note_decision = stage.execution, stage.view, stage.observe, stage.record.decision
        self._impossible = stage.impossible.tobytes()
        self._measured = stage.measured.tobytes() if self.conditions.stop == "measured" else None
        self._settled, self._to_settle = 0, int(stage.measured.sum()) if self._measured else len(trace)
        self._has_latency = self.conditions.overheads.latency(1) > 0
        self._env = simpy.Environment()
        self._over, self._decision_point = simpy.Event(self._env), simpy.Event(self._env)
        self._outages = Outages(self._env, self._node_down, self._node_up)
        self._submit_s: memoryview[float] = memoryview(stage.submit_s)  # type: ignore[arg-type]
        self._arrived, self._finished = list[JobId](), list[JobId]()
        self._evicted, self._nodes = list[Eviction](), list[int]()
        self._expected = Expected(self._env, self._on_job)
        self._touched: set[int] = set()  # nodes that came or went while a plan is in flight
        self._due = self._in_flight = self._arrivals_over = False
        self._beats = self._idle = self._next = self._voided = 0
        self._alarm, self._reason = Alarm(self._env, self._make_due), "drained"
        self._asked: JobId | None = None  # whose speed the model was asked for last
        self._allocate_s = self._longest_s = 0.0

    def run(self) -> RunResult:
        """Run to the end.

        Returns
        -------
        RunResult
            The record.

        Raises
        ------
        InfeasiblePlan
            If a plan cannot be carried out.
        ContractError
            If the allocator or a model breaks the contract.
        SolverError
            If no solver could solve an allocator's program.
        """
        env, wall, cpu = self._env, perf_counter(), process_time()
        assert self._over.callbacks is not None
        self._over.callbacks.append(StopSimulation.callback)
        self._outages.start(self.conditions.faults, self.cluster, self.conditions.seed)
        At(env, 0.0, self._arrive, order=URGENT)
        if self._cadence.every_s < inf:
            env.process(self._ticks())
        if self.conditions.horizon_s < inf:
            At(env, instant(self.conditions.horizon_s), lambda _: self._end("horizon"), order=END)
        collected = gc.isenabled()
        gc.disable()  # a run makes no cycles, and the collector would visit the whole heap again and again
        try:
            env.run()
        except ContractError as error:
            raise ContractError(f"{type(self._allocator).__name__} broke the contract at {env.now:.3f} s: {error}. The run was stopped.") from error
        finally:
            if collected:
                gc.enable()
        if (self._running or self._waiting) and not self._over.triggered:
            self._end(eventless(self._columns, self._running, self._waiting))
        timing = (process_time() - cpu, perf_counter() - wall, self._allocate_s, self._longest_s)
        said = () if self._reason in ENDS else (f"{self._reason}.",)
        return self._stage.result(env.now, self._reason, self._voided, (*said, *remarks_of(self._allocator)), timing)

    # -- sources of events -------------------------------------------------------------------------------------------------------------------------------

    def _arrive(self, _: simpy.Event) -> None:  # as a process of SimPy it would cost more
        env, submit_s, job = self._env, self._submit_s, self._next
        at_s, jobs = env._now, len(submit_s)
        while job < jobs and submit_s[job] <= at_s:
            if self._impossible[job]:
                self._settle(job, IMPOSSIBLE)
            else:
                self._waiting[job] = None
                self._arrived.append(job)
            job += 1
        self._next = job
        if self._arrived and self._cadence.on_arrival:
            self._decide_last()
        if job < jobs:
            At(env, submit_s[job], self._arrive)
        else:
            self._arrivals_over = True

    def _ticks(self) -> Generator[Any, None, None]:
        every, tick = self._cadence.every_s, 0
        while tick * every <= LATEST_S:
            if self._waiting or self._running or self._finished:
                self._make_due()
            tick += 1
            yield At(self._env, later(tick * every, self._env.now), None)

    def _on_job(self, job: JobId, kind: int) -> None:
        now_s = self._env._now
        if kind == FINISH:
            self._execution.finish(job, now_s)
            self._observe(job, now_s)
            del self._running[job]
            self._finished.append(job)
            self._settle(job)
            if self._cadence.on_finish:
                self._decide_last()
        elif kind == ASK:
            self._asked = job
            self._expected.put(job, self._execution.ask(job, now_s))
            self._beats += 1
            if not self._beats % LOOK_EVERY:
                self._look()
        elif kind == OVERLAP_END:
            self._nodes += sorted({node for node, *_ in self._stage.ledger.charged[job].spots})
            self._expected.put(job, self._execution.end_overlap(job, now_s))
            if self._cadence.on_finish:
                self._make_due()
        elif kind == INTERRUPTION and self._execution.survives(job):
            self._expected.put(job, self._execution.relaunch(job, now_s))
        else:
            self._evict(job, "interruption" if kind == INTERRUPTION else "oom", "server" if kind == SERVER_OOM else "worker")

    def _evict(self, job: JobId, cause: str, role: str) -> None:
        lost = self._execution.evict(job, self._env.now, (cause, role))
        del self._running[job]
        self._expected.drop(job)
        self._evicted.append(Eviction(job, cause, role, lost))
        evictions = self._columns.evictions[job]
        if evictions > HOPELESS:
            raise ParameterError(never_done(self.trace, job, evictions, cause))
        if 0 <= self.conditions.faults.retries < evictions:
            self._finished.append(job)
            self._settle(job, FAILED)
        else:
            self._waiting[job] = None
        if self._cadence.on_finish:
            self._make_due()

    def _node_down(self, node: int, cause: str) -> None:
        for job in self._stage.ledger.holders(node):
            grant = self._stage.ledger.grants[job]
            hit = [(node in workers.nodes, servers is not None and node in servers.nodes) for workers, servers in grant.gangs]
            survivors = tuple(gang for gang, where in zip(grant.gangs, hit, strict=True) if not any(where))
            if survivors and not self._execution.overlaps(job):
                self._expected.put(job, self._execution.lose_gangs(job, grant._replace(gangs=survivors), self._env.now))
            else:
                self._evict(job, "outage", "server" if any(servers for _, servers in hit) and not any(workers for workers, _ in hit) else "worker")
        self._room.remove(node)
        self._stage.record.node_down(node, self._env.now, cause)
        self._capacity_changed(node)

    def _node_up(self, node: int) -> None:
        self._room.restore(node)
        self._stage.record.node_up(node, self._env.now)
        self._capacity_changed(node)

    def _capacity_changed(self, node: int) -> None:
        self._nodes.append(node)
        self._touched.add(node)
        if self._cadence.on_capacity:
            self._make_due()
        elif self._cadence.every_s == inf and self._arrivals_over and not (self._running or self._in_flight or self._due):
            self._give_up_if_stuck()  # with a ticker, ticks without effect are counted

    # -- the decision point ------------------------------------------------------------------------------------------------------------------------------

    def _make_due(self) -> None:
        was_due, self._due = self._due, True
        if was_due or self._in_flight:
            return
        point, env = self._decision_point, self._env
        queue: Any = env._queue
        point.callbacks = [self._decide]
        point._ok, point._value = True, None
        heappush(queue, (env.now, DECISION, next(env._eid), point))

    def _decide_last(self) -> None:
        # The last thing that a source does at an instant at which nothing else happens: then the decision needs no event of its own.
        queue = self._env._queue
        if self._due or self._in_flight or (queue and queue[0][0] <= self._env._now):
            self._make_due()
        else:
            self._decide(self._decision_point)

    def _decide(self, _: simpy.Event) -> None:
        self._due, now_s, room = False, self._env._now, self._room
        evicted, nodes = (tuple(self._evicted), tuple(self._nodes)) if self._evicted or self._nodes else ((), ())
        # The named tuple's own constructor costs a second call, once per decision.
        self._view.at(now_s, tuple.__new__(Delta, (tuple(self._arrived), tuple(self._finished), evicted, nodes, ())))
        self._arrived.clear()
        self._finished.clear()
        if evicted or nodes:
            self._evicted.clear()
            self._nodes.clear()
        began = perf_counter()
        plan = self._allocate(self._view)  # type: ignore[arg-type]
        took_s = perf_counter() - began
        self._allocate_s += took_s
        if took_s > self._longest_s:  # noqa: PLR1730 - max() costs a call, once per decision
            self._longest_s = took_s
        changed = len(plan.changes) + len(plan.refuse)
        if not changed:
            room.undo()
        elif self._has_latency:
            room.undo()
            self._send(plan, now_s + self.conditions.overheads.latency(len(self._waiting) + len(self._running)))
        else:
            self._apply(plan, reserved=room.adopt(plan.changes, self._stage.ledger.charged))
        self._note_decision(now_s, changed, len(self._waiting), len(self._running))
        if plan.notes:
            self._stage.record.notes(plan.notes)
        if plan.wake_at_s != self._alarm.asked_s:
            self._alarm.set(plan.wake_at_s)
        self._beats += 1
        if not self._beats % LOOK_EVERY:
            self._look()
        if changed or self._running:
            self._idle = 0
        elif self._arrivals_over and not self._in_flight:
            self._give_up_if_stuck()

    def _look(self) -> None:
        seen = self._beats, self._settled, self._env.now
        if self._progress is not None:
            self._progress(Progress(self._settled, len(self.trace), seen[2], self.trace.span_s))
        if self._stage.standstill.hurries(*seen):
            self._end(at_once(self._allocator, self.trace, self._asked, seen[2]))
        elif self._arrivals_over and self._stage.standstill.found(*seen, self._planned_until_s, self._outages.are_over):
            self._end(standstill(len(self._waiting) + len(self._running), self._idle))

    def _planned_until_s(self) -> float:
        own_s = max(self._expected.until_s, self._alarm.until_s)
        return max(self._outages.last_known_s, own_s, planned_until_s(self._env))

    def _give_up_if_stuck(self) -> None:
        self._idle += 1
        patience = 1 if self._cadence.every_s == inf else PATIENCE
        if self._waiting and ((self._idle >= patience and not self._outages.repairs_pending and self._alarm.at_s == inf) or self._idle >= ENDLESS):
            self._end(STUCK.format(len(self._waiting)))

    def _send(self, plan: Plan, lands_s: float) -> None:
        self._in_flight = True
        self._touched.clear()
        sent = plan, {job: self._view.grants.get(job) for job in plan.changes}
        At(self._env, later(lands_s, self._env.now), self._land, sent, order=LANDING)

    def _land(self, event: simpy.Event) -> None:
        plan, seen = event._value
        self._in_flight = False
        valid = self._stage.ledger.still_valid(plan.changes, seen, self._touched)
        void = [job for job in plan.changes if job not in valid]
        self._voided += len(void)
        unstarted = [Eviction(job, "void", "worker", 0.0) for job in void if job in self._waiting and seen[job] is None]
        self._evicted += unstarted
        self._due |= bool(unstarted) and self._cadence.on_finish
        self._apply(plan._replace(changes=valid))
        if self._due:
            self._due = False
            self._make_due()

    def _apply(self, plan: Plan, *, reserved: bool = False) -> None:
        for job in sorted(plan.refuse) if plan.refuse else ():
            self._refuse(job)
        self._leave(plan, reserved=reserved)
        changes, now_s, job = plan.changes, self._env._now, -1
        waiting, running, enter, expect = self._waiting, self._running, self._execution.enter, self._expected.put
        try:
            for job, grant in changes.items():
                if grant is None:
                    continue
                if job in waiting:
                    running[job] = waiting.pop(job)
                elif job not in running:
                    self._fail(job, "it is neither waiting nor running")
                expect(job, enter(job, grant, now_s, reserved=reserved))
        except ContractError as error:
            self._fail(job, str(error))
        self._stage.ledger.give_back()

    def _leave(self, plan: Plan, *, reserved: bool) -> None:
        seamless, now_s, job = plan.seamless, self._env._now, -1
        waiting, running, leave, forget = self._waiting, self._running, self._execution.leave, self._expected.drop
        try:
            for job, grant in plan.changes.items():
                if job in running:
                    leave(job, grant, now_s, seamless=job in seamless, reserved=reserved)
                    if grant is None:
                        waiting[job] = running.pop(job)
                        forget(job)
                elif grant is None:
                    self._fail(job, "it is to be stopped but does not run")
        except ContractError as error:
            self._fail(job, str(error))

    def _refuse(self, job: JobId) -> None:
        if job not in self._waiting:
            self._fail(job, "it is refused but not waiting")
        del self._waiting[job]
        self._settle(job, REFUSED)

    def _fail(self, job: JobId, what: str) -> NoReturn:
        self._stage.ledger.give_back()  # the snapshot counts what the plan has freed so far
        raise InfeasiblePlan(impossible_plan(self._allocator, self._env.now, self.trace, job, what), snapshot(self._view))

    # -- endings -----------------------------------------------------------------------------------------------------------------------------------------

    def _settle(self, job: JobId, outcome: int = COMPLETED) -> None:
        if outcome:
            self._columns.outcome[job] = outcome
        self._settled += 1
        if self._measured is None or self._measured[job]:
            self._to_settle -= 1
            if not self._to_settle and self.conditions.stop != "horizon":
                self._end("drained" if self._measured is None else "measured")

    def _end(self, reason: str) -> None:
        if not self._over.triggered:
            self._reason = reason
            self._over.succeed()
