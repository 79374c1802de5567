"""The parts of one run: state, holdings, true model, estimator, view and record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf

import numpy as np
import psutil

from sim.clock import LATEST_S, instant
from sim.cluster import Cluster
from sim.conditions import ENDS, Conditions
from sim.contract import JobId, Needs, Telemetry
from sim.demand import Demands, group_into_pools, limit_gpu_types
from sim.engine.columns import Columns, IdSet
from sim.engine.execution import Execution
from sim.engine.give_up import Standstill
from sim.engine.ledger import FreeRoom, Ledger
from sim.engine.record import OPEN, UNFINISHED, Record, job_frame
from sim.engine.view import GatedEstimates, JobColumns, LiveView
from sim.errors import ClusterError, ContractError, ParameterError
from sim.perf.estimators import BoundEstimator
from sim.perf.model import Fitting, Staffed
from sim.perf.resources import BoundResources, KnownResources, RecordedResources, true_resources
from sim.result import RunResult, Timing
from sim.trace import Trace

if sys.platform != "win32":
    import resource

ALLOCATOR_STREAM = 4


class Stage:
    """Builds and holds the parts of a run.

    Parameters
    ----------
    trace, cluster, conditions : Trace, Cluster, Conditions
        Inputs of the run.
    needs : Needs
        The allocator's needs.

    Raises
    ------
    ParameterError
        If conditions contradict each other or do not fit the cluster.
    ClusterError
        If a dated change is after the clock ends.
    """

    def __init__(
        self, trace: Trace, cluster: Cluster, conditions: Conditions, needs: Needs
    ) -> None:
        self.trace, self._reads = trace, needs.reads
        self.submit_s = trace.numbers("submit_time_s")
        self.columns, self.record = Columns(len(trace)), Record()
        self.waiting, self.running = IdSet(), IdSet()
        pools, mixed = group_into_pools(cluster), needs.mixes_types
        self._model = model = conditions.perf.bind(trace, cluster)
        placeable = (
            limit_gpu_types(trace, cluster, model.fits()) if isinstance(model, Fitting) else trace
        )
        roles = model.roles() if isinstance(model, Staffed) else None
        demands = Demands(placeable, cluster, pools, needs.confine_by, roles)
        self.room = FreeRoom(cluster, pools, overflow="overflow" in needs.requires)
        self.ledger = Ledger(
            self.room,
            [cluster.type_index.get(node.gpu_type, -1) for node in cluster.nodes],
            mixed=mixed,
        )
        self.measured = conditions.measure.mask(self.submit_s)
        _check_ending(conditions, measured=int(self.measured.sum()))
        _check_changes(cluster)
        limits = model.limits()
        smallest = limits.min_gpus if "scaling" in needs.requires else None
        self.unschedulable = np.zeros(len(trace), bool)
        if "overflow" not in needs.requires:
            apart = "servers" in needs.requires
            self.unschedulable = demands.unschedulable(smallest, mixed=mixed, apart=apart)
            for at_s, unknown in cluster.unforeseen:
                unannounced_obstacles = demands.without(unknown).unschedulable(
                    smallest, mixed=mixed, apart=apart
                )
                self.unschedulable |= unannounced_obstacles & (self.submit_s < at_s)
        self._work = np.ascontiguousarray(model.work(), np.float64)
        self.columns.array("left")[:] = self._work
        overheads = conditions.overheads
        preemptible = trace.numbers("preemptible", float(overheads.on_preempt != "forbidden")) > 0
        self.execution = Execution(
            self.columns, self.ledger, self.record, demands, model, conditions, preemptible
        )
        self.estimator = conditions.estimator.bind(
            model, trace, overheads.without_overlap(), conditions.seed
        )
        self.observe: Callable[[JobId, float], None] = self.estimator.observe
        self._resources = RecordedResources(KnownResources(), None)
        if "resources" in needs.reads:
            resources = conditions.estimator.bind_resources(model, trace, conditions.seed)
            self.observe, self._resources = (
                _combine_observers(self.estimator, resources),
                RecordedResources(resources, true_resources(model)),
            )
        keeps_work = np.full(len(trace), overheads.on_preempt != "lose_all")
        stops = {"preemptible": preemptible, "keeps_work": keeps_work}
        jobs = JobColumns(
            trace, self.columns, self._work, limits, stops, self.estimator, needs.reads
        )
        self.view = view = LiveView(jobs, self.waiting, self.running, self.room, demands)
        view.grants, view.cluster, view.estimates = (
            self.ledger.grants,
            cluster,
            GatedEstimates(
                self.estimator, self._resources, needs.reads, self.execution.will_restart
            ),
        )
        view.rng = np.random.default_rng([conditions.seed, ALLOCATOR_STREAM])
        view.telemetry = self._telemetry
        gpus = np.maximum(trace.numbers("num_gpus"), 1.0)
        drain_s = np.nan_to_num(
            self._work / model.fastest() * gpus / max(cluster.gpus, 1), posinf=0.0
        )
        self.standstill = Standstill(
            self.waiting, self.running, view.done_one, self._work, drain_s, self.columns
        )

    def result(
        self,
        end_s: float,
        reason: str,
        voided: int,
        remarks: tuple[str, ...],
        timing: tuple[float, float, float, float],
    ) -> RunResult:
        """Close open segments, mark unfinished jobs and return the result of the run.

        `timing`: CPU, wall, time in the allocator and its longest decision, in seconds.
        """
        for job in self.running.ids().tolist():
            self.execution.close_open(job, end_s, OPEN)
        outcome = self.columns.array("outcome")
        for ids in (self.running, self.waiting):
            outcome[ids.ids()] = UNFINISHED
        outcome[self.submit_s > end_s] = UNFINISHED
        frames, gpus = self.record.frames(), self.trace.frame["num_gpus"].to_numpy()
        # An allocator that does not read sizes has no estimates.
        estimated = (
            self.estimator.first_estimates()
            if "remaining_work" in self._reads
            else np.full(len(self._work), np.nan)
        )
        sizes = self._work, estimated, self._model.fastest()
        jobs = job_frame(self.columns.array, frames["segments"], self.submit_s, gpus, sizes)
        return RunResult(
            jobs=jobs,
            **frames,
            end_s=end_s,
            reason=reason,
            voided=voided,
            remarks=(*remarks, *self._resources.remarks()),
            overflow=self.room.overflow,
            timing=Timing(*timing, peak_rss_mb=peak_rss_mb()),
        )

    def _telemetry(self, job: JobId) -> Telemetry:
        """Return the measurements of a running job, if the allocator declares to read them."""
        if "telemetry" not in self._reads:
            raise ContractError(
                "the allocator reads telemetry but does not declare it in needs.reads"
            )
        return self._model.telemetry(
            job, self.ledger.grants[job], self.view.done_one(job), self.view.now_s
        )


def _combine_observers(
    estimator: BoundEstimator, resources: BoundResources
) -> Callable[[JobId, float], None]:
    """Return a callback that reports a finished job to both estimators."""

    def observe(job: JobId, finish_s: float) -> None:
        """Report a finished job to both estimators."""
        estimator.observe(job, finish_s)
        resources.observe(job)

    return observe


def _check_ending(conditions: Conditions, measured: int) -> None:
    """Refuse an unknown `stop`, a bad horizon, or a window without jobs."""
    stop, horizon_s = conditions.stop, conditions.horizon_s
    if stop not in ENDS:
        raise ParameterError(f"stop is '{stop}', which is not one of {', '.join(ENDS)}.")
    if LATEST_S < horizon_s < inf:
        raise ParameterError(
            f"horizon_s = {horizon_s:g} is after the clock ends, {LATEST_S:g} s after the first"
            " submission. Set an earlier one, or none."
        )
    if not instant(horizon_s) > 0:
        raise ParameterError(
            f"horizon_s = {horizon_s} is not a time after the first submission. Set a number above"
            " 0, or none."
        )
    if stop == "horizon" and horizon_s == inf:
        raise ParameterError("The run ends at the horizon, but no horizon is set. Set horizon_s.")
    if stop == "measured" and not measured:
        raise ParameterError(
            "The run ends with the jobs that count, but no job counts. Choose another measured"
            " window."
        )


def _check_changes(cluster: Cluster) -> None:
    """Refuse dated changes after the end of the clock."""
    for change in cluster.changes:
        if change.at_s > LATEST_S:
            raise ClusterError(
                f"The change at {change.at_s:g} s is after the clock ends, {LATEST_S:g} s after the"
                " first submission. Give seconds from there (are these milliseconds?), or leave it"
                " out."
            )


def peak_rss_mb() -> float:
    """Return the peak resident memory of this process so far, in MB."""
    if sys.platform == "win32":
        return float(psutil.Process().memory_info().peak_wset / 1e6)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
