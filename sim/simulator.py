"""Turns a trace, a cluster and an allocator into a record of what would have happened. Read this after the contract.

Four sources make events in one SimPy environment: arrivals, the running jobs, outages, and the clock of the allocator (a ticker and its own wake-ups). Each
settles only the jobs it touches and, if the allocator wants to know, makes a decision due. One decision point per instant is processed after all other events
of that instant: it shows the view, validates the plan and applies it, releases first.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from heapq import heappush
from math import inf
from time import perf_counter, process_time
from typing import Any, NamedTuple, NoReturn

import numpy as np
import psutil
import simpy
from simpy.core import StopSimulation

from sim.cluster import Cluster
from sim.columns import Columns, IdSet
from sim.contract import EMPTY, NEEDS, Allocator, Delta, Eviction, Grant, JobId, Plan, Telemetry
from sim.demand import Demands, pools_of
from sim.errors import ContractError, InfeasiblePlan, ParameterError
from sim.execution import ASK, FINISH, INTERRUPTION, OVERLAP_END, Execution, Next
from sim.faults import Faults, Outages
from sim.ledger import FreeRoom, Ledger
from sim.overheads import Overheads
from sim.perf.belief import BeliefSpec, Exact
from sim.perf.model import PerfSpec
from sim.perf.rigid import Rigid
from sim.record import COMPLETED, FAILED, IMPOSSIBLE, OPEN, REFUSED, UNFINISHED, Record, job_frame
from sim.result import RunResult, Timing
from sim.trace import Trace
from sim.view import GatedBelief, Jobs, LiveView, snapshot

ALLOCATOR_STREAM = 4
_NORMAL, _AFTER_ALL = 1, 9  # SimPy processes smaller priorities first at one instant
_PATIENCE = 3  # decisions without effect after which nothing can happen any more


@dataclass(frozen=True)
class Measure:
    """Which jobs count in the metrics: those submitted in a span of seconds, and in a range of rows (last one included)."""

    from_s: float = -inf
    to_s: float = inf
    first_job: int = 0
    last_job: int | None = None

    def mask(self, submit_s: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Tell for each job whether it counts."""
        rows = np.arange(len(submit_s))
        last = len(submit_s) if self.last_job is None else self.last_job
        return np.asarray((submit_s >= self.from_s) & (submit_s <= self.to_s) & (rows >= self.first_job) & (rows <= last))


@dataclass(frozen=True)
class Conditions:
    """Everything of a run but trace, cluster and allocator.

    Parameters
    ----------
    perf, belief : PerfSpec, BeliefSpec
        Truth, and what allocators may think of it.
    overheads, faults : Overheads, Faults
        Costs of changes; failures.
    seed : int
        One seed; every random quantity has a stream of its own.
    horizon_s : float, seconds
        The run ends then at the latest.
    measure : Measure
        Jobs that count.
    stop : str
        "drained": when every job is settled; "measured": when those that count are; "horizon": at the horizon, even if all is settled before.
    """

    perf: PerfSpec = field(default_factory=Rigid)
    belief: BeliefSpec = field(default_factory=Exact)
    overheads: Overheads = field(default_factory=Overheads)
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    horizon_s: float = inf
    measure: Measure = field(default_factory=Measure)
    stop: str = "drained"


class Progress(NamedTuple):
    """How far a run is: settled jobs of all jobs, the simulated clock, and the time of the last submission."""

    done: int
    jobs: int
    now_s: float
    span_s: float


class _At(simpy.Event):
    """An event at an absolute instant: a Timeout adds a delay to the clock and so misses the instant by a rounding error."""

    _ok = True

    def __init__(self, env: simpy.Environment, at_s: float, callback: Callable[[Any], None] | None, value: Any = None) -> None:
        self.callbacks = [callback] if callback else []
        self._value = value
        heappush(env._queue, (at_s, _NORMAL, next(env._eid), self))


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

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        allocator: Allocator,
        conditions: Conditions | None = None,
        *,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        conditions = conditions or Conditions()
        needs = frozenset(allocator.needs)
        if needs - NEEDS:
            raise ContractError(f"{type(allocator).__name__} declares the unknown needs {', '.join(sorted(needs - NEEDS))}.")
        if conditions.stop == "horizon" and conditions.horizon_s == inf:
            raise ParameterError("The run shall stop at the horizon, but no horizon is set. Set horizon_s.")
        self.trace, self.cluster, self.conditions = trace, cluster, conditions
        self._allocator, self._cadence, self._allocate = allocator, allocator.cadence, allocator.allocate
        self._progress = progress
        jobs = len(trace)
        self._env = simpy.Environment()
        self._columns = Columns(jobs)
        self._waiting, self._running = IdSet(), IdSet()
        self._record = Record()
        self._note_decision, self._decisions = self._record.decision, 0
        self._settled, self._to_settle = 0, jobs
        self._arrived: list[JobId] = []
        self._finished: list[JobId] = []
        self._evicted: list[Eviction] = []
        self._nodes: list[int] = []
        self._due = self._in_flight = False
        self._stopped: set[JobId] = set()
        self._decision_point = simpy.Event(self._env)
        self._arrivals_over = False
        self._wake_at = inf
        self._idle = self._voided = 0
        self._allocate_s = self._longest_s = 0.0
        self._reason = "drained"
        self._over = simpy.Event(self._env)
        self._assemble(needs)

    def _assemble(self, needs: frozenset[str]) -> None:
        trace, cluster, conditions = self.trace, self.cluster, self.conditions
        pools = pools_of(cluster)
        confined = [name.removeprefix("confined_by_") for name in needs if name.startswith("confined_by_")]
        demands = Demands(trace, cluster, pools, confined[0] if confined else "")
        room = FreeRoom(cluster, pools, overflow="overflow" in needs)
        types = [cluster.type_index.get(node.gpu_type, -1) for node in cluster.nodes]
        self._ledger = Ledger(room, types, mixed="mixed" in needs)
        self._impossible: memoryview[int] = memoryview(
            np.zeros(len(trace), bool) if "overflow" in needs else demands.impossible(mixed="mixed" in needs)  # type: ignore[arg-type]
        )
        model = conditions.perf.bind(trace, cluster)
        self._columns.array("left")[:] = model.work()
        allowed = trace.numbers("preemptible", float(conditions.overheads.on_preempt != "forbidden")) > 0
        belief = conditions.belief.bind(model, conditions.overheads, conditions.seed)
        self._observe = belief.observe
        self._execution = Execution(
            self._columns, self._ledger, self._record, demands, model, conditions.overheads, conditions.faults, allowed, conditions.seed
        )
        self._measured: memoryview[int] | None = None
        if conditions.stop == "measured":
            mask = conditions.measure.mask(trace.numbers("submit_time_s"))
            self._measured, self._to_settle = memoryview(mask), int(mask.sum())  # type: ignore[arg-type]
        elif conditions.stop == "horizon":
            self._to_settle = -1
        self._has_latency = conditions.overheads.latency_s > 0 or conditions.overheads.latency_per_job_s > 0
        self._view = view = LiveView(
            Jobs(trace, self._columns, np.ascontiguousarray(model.work()), allowed, belief, needs), self._waiting, self._running, room, demands
        )
        view.grants, view.cluster, view.belief = self._ledger.grants, cluster, GatedBelief(belief, needs)
        view.rng = np.random.default_rng([conditions.seed, ALLOCATOR_STREAM])
        view.telemetry = self._telemetry
        self._model, self._room, self._may_measure = model, room, "telemetry" in needs

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
        """
        env, wall, cpu = self._env, perf_counter(), process_time()
        assert self._over.callbacks is not None
        self._over.callbacks.append(StopSimulation.callback)
        self._outages = Outages(env, self._node_down, self._node_up)
        self._outages.start(self.conditions.faults, self.cluster, self.conditions.seed)
        env.process(self._arrivals())
        if self._cadence.every_s < inf:
            env.process(self._ticks())
        if self.conditions.horizon_s < inf:
            _At(env, self.conditions.horizon_s, self._at_horizon)
        collected = gc.isenabled()
        gc.disable()  # a run makes no cycles, and the collector would visit the whole heap again and again
        try:
            env.run()
        finally:
            if collected:
                gc.enable()
        return self._result(perf_counter() - wall, process_time() - cpu)

    # -- sources of events -------------------------------------------------------------------------------------------------------------------------------

    def _arrivals(self) -> Generator[Any, None, None]:
        submit_s: memoryview[float] = memoryview(self.trace.numbers("submit_time_s"))  # type: ignore[arg-type]
        env, cadence = self._env, self._cadence
        job, jobs = 0, len(self.trace)
        while job < jobs:
            at_s = submit_s[job]
            if at_s > env.now:
                yield _At(env, at_s, None)
            while job < jobs and submit_s[job] <= at_s:
                if self._impossible[job]:
                    self._settle(job, IMPOSSIBLE)
                else:
                    self._waiting[job] = None
                    self._arrived.append(job)
                job += 1
            if self._arrived and cadence.on_arrival:
                self._make_due()
        self._arrivals_over = True

    def _ticks(self) -> Generator[Any, None, None]:
        every, tick = self._cadence.every_s, 0
        while True:
            if self._waiting or self._running or self._finished:
                self._make_due()
            tick += 1
            yield _At(self._env, tick * every, None)

    def _expect(self, job: JobId, following: Next) -> None:
        at_s, kind = following
        if at_s < inf:
            _At(self._env, at_s, self._on_job, (job, self._columns.generation[job], kind))

    def _on_job(self, event: simpy.Event) -> None:
        job, generation, kind = event._value
        if generation != self._columns.generation[job]:
            return
        now_s = self._env.now
        if kind == FINISH:
            self._execution.finish(job, now_s)
            self._observe(job, now_s)
            del self._running[job]
            self._finished.append(job)
            self._settle(job, COMPLETED)
            if self._cadence.on_finish:
                self._make_due()
        elif kind == ASK:
            self._expect(job, self._execution.ask(job, now_s))
        elif kind == OVERLAP_END:
            self._expect(job, self._execution.end_overlap(job, now_s))
            if self._cadence.on_finish:
                self._make_due()
        else:
            self._evict(job, "interruption" if kind == INTERRUPTION else "oom", "worker")

    def _evict(self, job: JobId, cause: str, role: str) -> None:
        lost = self._execution.evict(job, self._env.now)
        del self._running[job]
        self._evicted.append(Eviction(job, cause, role, lost))
        retries = self.conditions.faults.retries
        if 0 <= retries < self._columns.evictions[job]:
            self._finished.append(job)
            self._settle(job, FAILED)
        else:
            self._waiting[job] = None
        if self._cadence.on_finish:
            self._make_due()

    def _node_down(self, node: int, cause: str) -> None:
        for job in self._ledger.holders(node):
            grant = self._ledger.grants[job]
            on_servers = any(servers is not None and node in servers.nodes for _, servers in grant.gangs)
            self._evict(job, "outage", "server" if on_servers and all(node not in workers.nodes for workers, _ in grant.gangs) else "worker")
        self._room.remove(node)
        self._record.node_down(node, self._env.now, cause)
        self._capacity_changed(node)

    def _node_up(self, node: int) -> None:
        self._room.restore(node)
        self._record.node_up(node, self._env.now)
        self._capacity_changed(node)

    def _capacity_changed(self, node: int) -> None:
        self._nodes.append(node)
        if self._cadence.on_capacity:
            self._make_due()

    def _at_horizon(self, _: simpy.Event) -> None:
        self._end("horizon")

    # -- the decision point ------------------------------------------------------------------------------------------------------------------------------

    def _make_due(self) -> None:
        if self._due or self._in_flight:
            self._due = True
            return
        self._due = True
        point, env = self._decision_point, self._env
        point.callbacks = [self._decide]
        point._ok, point._value = True, None
        heappush(env._queue, (env.now, _AFTER_ALL, next(env._eid), point))

    def _decide(self, _: simpy.Event) -> None:
        self._due = False
        now_s, room = self._env.now, self._room
        evicted, nodes = (tuple(self._evicted), tuple(self._nodes)) if self._evicted or self._nodes else ((), ())
        self._view.at(now_s, Delta(tuple(self._arrived), tuple(self._finished), evicted, nodes))
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
            self._apply(plan, reserved=room.adopt(plan.changes))
        self._note_decision(now_s, changed, len(self._waiting), len(self._running))
        if plan.notes:
            self._record.notes(plan.notes)
        if plan.wake_at_s != self._wake_at:
            self._wake(plan.wake_at_s)
        self._decisions += 1
        if not self._decisions & 255 and self._progress is not None:
            self._progress(Progress(self._settled, len(self.trace), now_s, self.trace.span_s))
        if changed or self._running:
            self._idle = 0
        elif self._arrivals_over and not self._in_flight:
            self._give_up_if_stuck()

    def _give_up_if_stuck(self) -> None:
        pending = self._outages.repairs_pending or self._wake_at < inf
        self._idle += 1
        if not pending and (self._idle >= _PATIENCE or self._cadence.every_s == inf) and self._waiting:
            self._end(f"{len(self._waiting)} jobs can never start: nothing runs, nothing is to come, and the allocator leaves them waiting")

    def _wake(self, at_s: float) -> None:
        self._wake_at = at_s
        if at_s < inf:
            self._wake_at = max(at_s, self._env.now + 1e-3)
            _At(self._env, self._wake_at, self._on_wake)

    def _on_wake(self, _: simpy.Event) -> None:
        if self._env.now == self._wake_at:
            self._wake_at = inf
            self._make_due()

    def _send(self, plan: Plan, lands_s: float) -> None:
        seen = {job: self._columns.generation[job] for job in (*plan.changes, *plan.refuse)}
        self._in_flight = True
        self._nodes_in_flight = len(self._nodes)
        _At(self._env, lands_s, self._land, (plan, seen))

    def _land(self, event: simpy.Event) -> None:
        plan, seen = event._value
        self._in_flight = False
        touched = set(self._nodes[self._nodes_in_flight :])
        changed_jobs = {job for job, generation in seen.items() if self._columns.generation[job] != generation}
        valid = {job: grant for job, grant in plan.changes.items() if job not in changed_jobs and not _on_nodes(grant, touched)}
        self._voided += len(plan.changes) - len(valid)
        self._apply(Plan(valid, plan.refuse - changed_jobs))
        if self._due:
            self._due = False
            self._make_due()

    def _apply(self, plan: Plan, *, reserved: bool = False) -> None:
        for job in sorted(plan.refuse) if plan.refuse else ():
            self._refuse(job)
        changes, job = plan.changes, -1
        try:
            if self._running:
                for job, grant in changes.items():
                    if job in self._running:
                        self._leave(job, grant)
            for job, grant in changes.items():
                if grant is not None:
                    self._enter(job, grant, reserved=reserved)
                elif job not in self._stopped:
                    self._fail(job, "it is to be stopped but does not run")
        except ContractError as error:
            self._fail(job, str(error))
        if self._stopped:
            self._stopped.clear()

    def _leave(self, job: JobId, grant: Grant | None) -> None:
        self._execution.leave(job, grant, self._env.now)
        if grant is None:
            del self._running[job]
            self._waiting[job] = None
            self._stopped.add(job)

    def _enter(self, job: JobId, grant: Grant, *, reserved: bool) -> None:
        if job in self._waiting:
            del self._waiting[job]
            self._running[job] = None
        elif job not in self._running:
            self._fail(job, "it is neither waiting nor running")
        self._expect(job, self._execution.enter(job, grant, self._env.now, reserved=reserved))

    def _refuse(self, job: JobId) -> None:
        if job not in self._waiting:
            self._fail(job, "it is refused but not waiting")
        del self._waiting[job]
        self._columns.generation[job] += 1
        self._settle(job, REFUSED)

    def _fail(self, job: JobId, what: str) -> NoReturn:
        known = 0 <= job < len(self.trace)
        name = f"job {job} ({self.trace.frame['job_id'].iloc[job]})" if known else f"job {job}, which does not exist"
        message = f"{type(self._allocator).__name__} made an impossible plan at {self._env.now:.3f} s for {name}: {what}. The run was stopped."
        raise InfeasiblePlan(message, snapshot(self._view))

    # -- endings -----------------------------------------------------------------------------------------------------------------------------------------

    def _settle(self, job: JobId, outcome: int) -> None:
        if outcome:
            self._columns.outcome[job] = outcome
        self._settled += 1
        if self._measured is None or self._measured[job]:
            self._to_settle -= 1
            if not self._to_settle:
                self._end("drained" if self._measured is None else "measured")

    def _end(self, reason: str) -> None:
        if not self._over.triggered:
            self._reason = reason
            self._over.succeed()

    def _telemetry(self, job: JobId) -> Telemetry:
        if not self._may_measure:
            raise ContractError("the allocator reads telemetry but does not declare it in its needs")
        now_s = self._env.now
        return self._model.telemetry(job, self._ledger.grants[job], self._view.done_one(job), now_s)

    def _result(self, wall_s: float, cpu_s: float) -> RunResult:
        end_s, columns = self._env.now, self._columns
        for job in self._running.ids().tolist():
            self._execution.close_open(job, end_s, OPEN)
        outcome = columns.array("outcome")
        for ids in (self._running, self._waiting):
            outcome[ids.ids()] = UNFINISHED
        if self._settled < len(columns.array("outcome")):
            submitted = self.trace.numbers("submit_time_s") <= end_s
            outcome[~submitted] = UNFINISHED
        peak = psutil.Process().memory_info()
        timing = Timing(cpu_s, wall_s, self._allocate_s, self._longest_s, getattr(peak, "peak_wset", peak.rss) / 1e6)
        jobs = job_frame(columns, self.trace.numbers("submit_time_s"), self.trace.frame["num_gpus"].to_numpy(), np.array(self._model.work()))
        return RunResult(jobs=jobs, **self._record.frames(), end_s=end_s, reason=self._reason, voided=self._voided, overflow=self._room.overflow, timing=timing)


def _on_nodes(grant: Grant | None, nodes: Iterable[int]) -> bool:
    touched = set(nodes)
    return grant is not None and any(node in touched for workers, servers in grant.gangs for part in (workers, servers) if part for node in part.nodes)
