"""Runs a queue rule over arrays, with the same record as `sim.engine.simulator`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.clock import LATEST_S, instant, instants
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Allocator, Demand, Floats, Ints, NodePool, QueueRule, rule_of
from sim.demand import Demands, group_into_pools
from sim.engine.fast import compiled, failures, free_gpus, loops, order, parts, reservation
from sim.engine.fast.arrays import (
    FastRun,
    Tables,
    can_fail,
    most_spots,
    new_order,
    new_queue,
    new_room,
    new_run,
)
from sim.engine.fast.node_events import NodeEvents, new_failures
from sim.engine.record import (
    CHANGED,
    COMPLETED,
    EVICTED,
    FAILED,
    FINISHED,
    OPEN,
    PREEMPTED,
    UNFINISHED,
    UNSCHEDULABLE,
    Record,
    job_frame,
)
from sim.engine.setup import peak_rss_mb
from sim.errors import TrainyardError
from sim.overheads import Overheads
from sim.perf.estimators import SizeEstimator
from sim.perf.model import PerfModel, Steady
from sim.result import ENDINGS, Progress, RunResult, Timing
from sim.trace import Trace

_INSTANTS_PER_REPORT: Final = 1 << 16
"""Instants between two progress reports."""
_MAX_SPOTS: Final = 1 << 29
_MAX_CLOSE_ARRIVALS: Final = 100_000
"""Submissions within as many microseconds that would look like a stuck clock."""
_MAX_POOLS: Final = 60
"""Pools in a bit set."""


LOOPS: Final = ("run_queue", "run_reservation", "run_preemption")
"""Names of the loops in compilation order."""


class NotPlainError(TrainyardError):
    """A run that only the general simulator can make; the message is the reason."""


class NotCompiledError(NotPlainError):
    """The loops are not compiled on this machine; the message is the reason."""


def prepare_run(
    trace: Trace, cluster: Cluster, allocator: Allocator, conditions: Conditions
) -> FastRun:
    """Return the input of the loops for a run.

    Raises
    ------
    NotPlainError
        If the policy has no queue rule, or the loops do not support the conditions.
    TrainyardError
        If the performance model or the estimator does not fit the trace.
    """
    rule = rule_of(allocator)
    if rule is None:
        raise NotPlainError("the fast engine follows only policies with a fixed rule")
    _refuse(_condition_obstacles(trace, cluster, conditions))
    model = conditions.perf.bind(trace, cluster)
    speed = model.steady() if isinstance(model, Steady) else None
    if speed is None or not (speed > 0).all():
        raise NotPlainError("jobs do not all run at the one speed of a GPU type")
    pools = group_into_pools(cluster)
    if not allocator.needs.confine_by:
        pools = parts.merge_types(pools)
    demands = Demands(trace, cluster, pools, allocator.needs.confine_by)
    _refuse(_machine_obstacles(cluster, pools, demands, rule.placement))
    if rule.by:
        names = [str(name) for name in trace.texts(rule.by).unique()]
        if conditions.horizon_s < inf:
            raise NotPlainError("the run of several parts ends at a horizon")
        if len(names) < 2 or parts.share_nodes(names, pools):
            raise NotPlainError(f"there is one {rule.by}, or several may use the same nodes")
    _refuse(_failure_obstacles(rule, cluster, conditions))
    if rule.preemption != "none":
        _refuse(_preemption_obstacles(trace, pools, conditions.overheads))
    estimates = None
    if "remaining_work" in allocator.needs.reads:
        estimates = _first_estimates(trace, conditions, model)
    work = model.work()
    return FastRun(trace, cluster, conditions, rule, model, work, speed, pools, demands, estimates)


def loop_name(rule: QueueRule) -> str:
    """Return the name of the loop that follows a rule."""
    if rule.preemption != "none":
        return "run_preemption"
    return "run_reservation" if rule.backfill == "reservation" else "run_queue"


def _refuse(reasons: Iterator[tuple[str, bool]]) -> None:
    """Raise `NotPlainError` with the first reason that holds."""
    for why, holds in reasons:
        if holds:
            raise NotPlainError(why)


def _first_estimates(trace: Trace, conditions: Conditions, model: PerfModel) -> Floats:
    """Return the estimated work of all jobs; refuse learning estimators and zeros."""
    estimator = conditions.estimator.bind(model, trace, conditions.overheads, conditions.seed)
    if type(estimator) is not SizeEstimator:
        raise NotPlainError("the estimator learns while the run goes on")
    estimates = estimator.first_estimates()
    if not (estimates > 0).all():
        raise NotPlainError("an estimate is 0")
    return estimates


def _machine_obstacles(
    cluster: Cluster, pools: Sequence[NodePool], demands: Demands, placement: str
) -> Iterator[tuple[str, bool]]:
    """Yield (reason, holds) pairs for clusters that the loops do not support."""
    kinds = [[pools[at].type_at for at in demand.pools] for demand in demands.unique]
    several = any(len(set(each)) < len(each) for each in kinds)
    yield "a job may use several partitions of one GPU type", several
    mingled = any(list(pool.nodes) != sorted(pool.nodes) for pool in pools)
    by_number = placement in {"anywhere", "first_fit"}
    yield "nodes of partitions alternate, and are taken by number", mingled and by_number
    limited = any(_has_limits(cluster, pools, demand) for demand in demands.unique)
    yield "cores or memory are limited", limited
    yield "gangs are too large", most_spots(demands, pools) > _MAX_SPOTS


def _failure_obstacles(
    rule: QueueRule, cluster: Cluster, conditions: Conditions
) -> Iterator[tuple[str, bool]]:
    """Yield (reason, holds) pairs for failing nodes that the loops do not support."""
    fails = can_fail(conditions.faults, cluster)
    yield "nodes fail, come or go in several partitions", fails and bool(rule.by)
    reserves = rule.preemption == "none" and rule.backfill == "reservation"
    yield "nodes fail, come or go while GPUs are reserved", fails and reserves


def _preemption_obstacles(
    trace: Trace, pools: Sequence[NodePool], overheads: Overheads
) -> Iterator[tuple[str, bool]]:
    """Yield (reason, holds) pairs for preemption that the loops do not support."""
    yield "jobs are stopped, and there are more than 60 GPU types", len(pools) > _MAX_POOLS
    keeps = overheads.on_preempt == "checkpoint" and bool(trace.numbers("preemptible", 1.0).all())
    yield "some jobs lose work when they are stopped, or must not be stopped", not keeps


def _condition_obstacles(
    trace: Trace, cluster: Cluster, conditions: Conditions
) -> Iterator[tuple[str, bool]]:
    """Yield (reason, holds) pairs for conditions that the loops do not support."""
    overheads, ends = conditions.overheads, conditions.horizon_s < inf
    yield "nodes come unannounced", bool(cluster.unforeseen)
    late_change = any(change.at_s > LATEST_S for change in cluster.changes)
    yield "nodes come or go after the clock ends", late_change
    yield "jobs are interrupted", conditions.faults.interruptions_per_node_h > 0
    yield "decisions take time", type(overheads) is not Overheads or overheads.latency(1) > 0
    yield "the run ends with the jobs that count", conditions.stop == "measured"
    late = LATEST_S < conditions.horizon_s < inf or not instant(conditions.horizon_s) > 0
    yield "the horizon is not on the clock", late or (conditions.stop == "horizon" and not ends)
    gpus = trace.frame["num_gpus"].to_numpy()
    yield "some jobs ask for no GPU", not gpus.all()
    submit_s = trace.frame["submit_time_s"].to_numpy()
    close = len(submit_s) > _MAX_CLOSE_ARRIVALS and bool(
        (
            submit_s[_MAX_CLOSE_ARRIVALS:] - submit_s[:-_MAX_CLOSE_ARRIVALS]
            < _MAX_CLOSE_ARRIVALS * 1e-6
        ).any()
    )
    yield (
        "too many jobs are submitted within a second",
        close and len(np.unique(submit_s)) > _MAX_CLOSE_ARRIVALS,
    )


def _has_limits(cluster: Cluster, pools: Sequence[NodePool], demand: Demand) -> bool:
    """Return True if cores or memory could limit a demand on its nodes."""
    nodes = cluster.nodes
    return bool(demand.cpus or demand.mem_gb) and any(
        nodes[node].cpus < inf or nodes[node].mem_gb < inf
        for at in demand.pools
        for node in pools[at].nodes
    )


class LoopOutcome(NamedTuple):
    """The outcome of a loop.

    Parameters
    ----------
    tables, state, space
        Input of the loop, with its results.
    remarks : tuple of str
        Notes for the user.
    record : Record or None
        Record with the outages of nodes; None = several parts, where nothing fails.
    failing : Failures or None
        Evictions and lost work; None = as for `record`.
    """

    tables: Tables
    state: loops.Run
    space: free_gpus.Room
    remarks: tuple[str, ...]
    record: Record | None = None
    failing: failures.Failures | None = None

    @property
    def decisions(self) -> int:
        """Number of decisions of the run."""
        return int(self.state.at[loops.DECISIONS])

    @property
    def stints(self) -> tuple[Ints, Floats, Floats]:
        """Job, begin and end in seconds of each stint, in the order of the ends.

        A stint is a period in which a job runs without interruption.
        """
        closed = self.state.closed[: self.state.at[loops.CLOSED]]
        state = self.state
        return state.stint_job[closed], state.began_s[closed], state.until_s[closed]

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Whether each stint ended because the job was done."""
        is_finished: NDArray[np.bool_] = (
            self.state.ended[self.state.closed[: self.state.at[loops.CLOSED]]] == FINISHED
        )
        return is_finished


def run_loop(lane: FastRun, progress: Callable[[Progress], None] | None = None) -> LoopOutcome:
    """Run the loop of a queue rule to its end, once for each part of the cluster.

    Parameters
    ----------
    lane : FastRun
        Input, from `prepare_run`.
    progress : callable or None
        Called regularly with the progress.

    Raises
    ------
    NotCompiledError
        If the loops are not compiled on this machine.
    NotPlainError
        If the loop meets a case that only the general simulator supports.
    """
    tables = Tables(lane)

    def report(settled: int, now_s: float) -> None:
        if progress is not None:
            progress(Progress(settled, len(lane.trace), now_s, lane.trace.span_s))

    if not lane.rule.by:
        return _run_part(lane, tables, report)
    separate = parts.split_run(lane, tables)
    if len(separate) < 2:
        raise NotPlainError(f"all jobs are of one {lane.rule.by}")
    outcomes: list[LoopOutcome] = []
    settled = 0
    for part in separate:
        outcomes.append(_run_part(part.lane, Tables(part.lane), report, settled))
        settled += len(part.jobs)
    states, rooms = [each.state for each in outcomes], [each.space for each in outcomes]
    joined = parts.join_runs(lane, separate, states, rooms, float(tables.submit_s[-1]))
    remarks = [
        f"{part.name}: {remark}"
        for part, each in sorted(
            zip(separate, outcomes, strict=True), key=lambda pair: int(pair[0].jobs[0])
        )
        for remark in each.remarks
    ]
    shared = all(each.remarks for each in outcomes)
    return LoopOutcome(tables, *joined, outcomes[0].remarks if shared else tuple(remarks))


def _run_part(
    lane: FastRun, tables: Tables, report: Callable[[int, float], None], settled: int = 0
) -> LoopOutcome:
    """Run the loop for one part of the cluster; `settled` jobs of other parts are done."""
    state, space = new_run(lane, tables), new_room(lane)
    arguments: tuple[Any, ...] = (state, tables.jobs, space)
    name, events = loop_name(lane.rule), NodeEvents(lane)
    failing = new_failures(lane, tables, len(state.stint_job))
    if name == "run_preemption":
        arguments = (*arguments, new_order(lane, tables))
    elif name == "run_reservation":
        arguments = (*arguments, new_queue(lane, tables))
    function = compiled.loop(name)
    if function is None:
        raise NotCompiledError(compiled.why_not())
    status = loops.UNKNOWN
    while status in {loops.CONTINUES, loops.UNKNOWN}:
        if status == loops.UNKNOWN:
            failing = events.read_more(failing)
        own = () if name == "run_reservation" else (failing,)
        status = function(*arguments, *own, _INSTANTS_PER_REPORT)
        now_s = float(state.decided_s[max(state.at[loops.DECISIONS] - 1, 0)])
        report(settled + int(state.at[loops.SETTLED]), now_s)
    if status != loops.OVER or events.are_too_close:
        raise NotPlainError(
            "a job would still run when the clock ends, or could never start, or jobs are stopped"
            " or evicted too often"
        )
    if not loops.is_settled(state, tables.jobs):
        _close_open_stints(state, tables.jobs.horizon_s)
    unused = lane.rule.unused if state.at[loops.DECISIONS] and not _has_passed(arguments) else ""
    events.add_to(record := Record(), int(failing.at[failures.EVENT]))
    return LoopOutcome(tables, state, space, (unused,) if unused else (), record, failing)


def _close_open_stints(state: loops.Run, end_s: float) -> None:
    """Close the stints of jobs that still run at the end, in the order of the jobs."""
    running, closed = int(state.at[loops.RUNNING]), int(state.at[loops.CLOSED])
    stints = state.ends[:running]
    stints = stints[np.argsort(state.stint_job[stints])]
    state.until_s[stints], state.ended[stints] = end_s, OPEN
    state.closed[closed : closed + running] = stints
    state.at[loops.CLOSED] += running


def _has_passed(arguments: tuple[Any, ...]) -> bool:
    """Return True if a job passed or preempted another one, given the loop's arguments."""
    if len(arguments) < 4:
        return False
    own = arguments[3]
    return bool(own.at[order.USED if hasattr(own, "service") else reservation.PASSED])


def run(lane: FastRun, progress: Callable[[Progress], None] | None = None) -> RunResult:
    """Run a queue rule and return its result; parameters and errors as for `run_loop`."""
    wall, cpu = perf_counter(), process_time()
    outcome = run_loop(lane, progress)
    result = replace(_to_result(lane, outcome), remarks=outcome.remarks)
    timing = Timing(
        process_time() - cpu, perf_counter() - wall, np.nan, np.nan, peak_rss_mb(), "fast"
    )
    return replace(result, timing=timing)


def _to_result(lane: FastRun, outcome: LoopOutcome) -> RunResult:
    """Return the result of a run from the arrays of the loop."""
    trace, tables, state, space = lane.trace, outcome.tables, outcome.state, outcome.space
    closed = state.closed[: state.at[loops.CLOSED]]
    job, began_s, until_s = outcome.stints
    gpus = trace.frame["num_gpus"].to_numpy()
    paused_s = np.minimum(instants(began_s + _pauses(lane, job)), until_s) - began_s
    record = outcome.record or Record()
    evicted = np.flatnonzero(state.ended[closed] == EVICTED)
    evictions, lost_work = np.zeros(len(trace), np.int32), np.zeros(0)
    if outcome.failing is not None:
        evictions, lost_work = outcome.failing.evicted, outcome.failing.lost[closed[evicted]]
    for at, lost in zip(evicted.tolist(), lost_work.tolist(), strict=True):
        record.failure(float(until_s[at]), int(job[at]), ("outage", "worker"), lost, survived=False)
    frames = record.frames()
    frames["segments"] = segments = pd.DataFrame(
        {
            "job": job,
            "t0": began_s,
            "t1": until_s,
            "gpus": gpus[job].astype(np.int32),
            "rate": tables.jobs.rate[state.stint_pool[closed]],
            "paused_s": paused_s,
            "batch": np.full(len(closed), -1, np.int32),
            "ended": pd.Categorical.from_codes(state.ended[closed], categories=pd.Index(ENDINGS)),
        },
        copy=False,
    )
    frames["placements"] = _placements(lane, state, space, closed)
    decisions = outcome.decisions
    numbers = state.decided[: 3 * decisions].reshape(-1, 3)
    frames["decisions"] = pd.DataFrame(
        {"t": state.decided_s[:decisions].copy()}
        | {
            name: np.ascontiguousarray(numbers[:, at])
            for at, name in enumerate(("changed", "waiting", "running"))
        },
        copy=False,
    )
    finished = np.bincount(job[outcome.finished], minlength=len(trace)) > 0
    stopped = (state.ended[closed] == CHANGED) | (state.ended[closed] == PREEMPTED)
    reason, end_s = "drained", float(tables.submit_s[-1])
    if len(closed):
        end_s = max(end_s, float(until_s[-1]))
    if not loops.is_settled(state, tables.jobs):
        reason, end_s = "horizon", tables.jobs.horizon_s
    settled = np.where(tables.impossible & (tables.submit_s <= end_s), UNSCHEDULABLE, UNFINISHED)
    retries = lane.conditions.faults.retries
    has_failed = (retries >= 0) & (evictions > retries)
    state_of: dict[str, NDArray[Any]] = {
        "outcome": np.where(finished, COMPLETED, np.where(has_failed, FAILED, settled)).astype(
            np.int32
        ),
        "served_gpu_s": np.bincount(job, gpus[job] * (until_s - began_s), len(trace)).astype(
            np.float64
        ),
        "preemptions": np.bincount(job[stopped], minlength=len(trace)).astype(np.int32),
        "evictions": evictions,
        "lost_work": np.bincount(job[evicted], lost_work, len(trace)).astype(np.float64),
    }
    nothing = np.zeros(len(trace), np.int32)
    estimates = np.full(len(trace), np.nan) if lane.estimates is None else lane.estimates
    sizes = tables.work, estimates, lane.model.fastest()
    jobs = job_frame(
        lambda name: state_of[name] if name in state_of else nothing.copy(),
        segments,
        tables.submit_s,
        gpus,
        sizes,
    )
    return RunResult(jobs, **frames, end_s=end_s, reason=reason)  # type: ignore[arg-type]


def _pauses(lane: FastRun, job: Ints) -> Floats:
    """Return the pause at the begin of each stint: that of a start, then that of restarts."""
    overheads = lane.conditions.overheads
    pause_s = np.full(len(job), float(overheads.restart_s))
    first = np.unique(job, return_index=True)[1]  # a job closes its stints in their order
    pause_s[first] = overheads.start_s
    return pause_s


def _placements(
    lane: FastRun, state: loops.Run, space: free_gpus.Room, closed: NDArray[np.int32]
) -> pd.DataFrame:
    """Return the table of placements of the closed stints: one row per stint and node."""
    first, spots = state.stint_first[closed], state.stint_spots[closed]
    segment = np.repeat(np.arange(len(closed), dtype=np.int32), spots)
    # The spots of each stint are consecutive.
    at = np.arange(len(segment)) - np.repeat(np.cumsum(spots) - spots, spots) + first[segment]
    node_of = np.array([node for pool in lane.pools for node in pool.nodes], np.int32)
    unique: Ints = lane.demands.codes[state.stint_job[closed]][segment]
    each = [(demand.cpus, demand.mem_gb) for demand in lane.demands.unique]
    cpus, mem_gb = np.array(each, np.float64).reshape(-1, 2).T
    return pd.DataFrame(
        {
            "segment": segment,
            "gang": np.zeros(len(segment), np.int16),
            "role": np.zeros(len(segment), np.int8),
            "node": node_of[space.spot_slot[at]],
            "count": space.spot_gpus[at],
            "gpus": np.ones(len(segment), np.int16),
            "cpus": cpus[unique],
            "mem_gb": mem_gb[unique],
        },
        copy=False,
    )
