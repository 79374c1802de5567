"""Inputs of metrics, computed once: the jobs that count, and the whole run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.metrics.gpu_seconds import UsageArrays, capacity_gpu_s
from sim.metrics.jobs import Mask, Window, compute_waits_s, measured_mask
from sim.metrics.predictions import Accuracy, accuracy
from sim.metrics.resources import resource_hours, resource_share, resources_held
from sim.metrics.steps import Floats
from sim.result import RunResult
from sim.trace import Trace

_ON_TIME_S: Final = 1e-6
"""Tolerance for rounding of a finish time."""


def ratio(part: float, whole: float) -> float:
    """Return part / whole, NaN if the whole is not above 0."""
    return float(part / whole) if whole > 0 else np.nan


class JobFacts:
    """The `jobs` table of a run and the rows that count.

    Parameters
    ----------
    jobs : DataFrame
        One row per job of the trace, see `sim.result.RunResult`.
    end_s : float, seconds
        End of the run.
    mask : bool array
        Rows that count.
    compute_costs_usd : callable or None
        Returns the cost of every job; None = unknown.
    """

    def __init__(
        self,
        jobs: pd.DataFrame,
        end_s: float,
        mask: Mask,
        compute_costs_usd: Callable[[], Floats] | None = None,
    ) -> None:
        self.jobs, self.end_s, self.mask = jobs, end_s, mask
        self._compute_costs_usd = compute_costs_usd

    @cached_property
    def completed(self) -> Mask:
        """The rows that count and were completed."""
        return np.asarray(self.jobs["outcome"] == "completed") & self.mask

    @cached_property
    def jct_s(self) -> Floats:
        """Finish minus submission of every row; NaN if it never finished."""
        return self._column("finish_s") - self._column("submit_s")

    @cached_property
    def queue_s(self) -> Floats:
        """First start minus submission of every row; NaN if it never started."""
        return self._column("first_start_s") - self._column("submit_s")

    @cached_property
    def wait_s(self) -> Floats:
        """JCT minus time held of every row, in whole microseconds, at least 0."""
        return compute_waits_s(self.jct_s, self._column("held_s"))

    @cached_property
    def cost_usd(self) -> Floats:
        """Price of the GPU-hours that every row held; NaN if unknown."""
        return (
            np.full(len(self.jobs), np.nan)
            if self._compute_costs_usd is None
            else self._compute_costs_usd()
        )

    @cached_property
    def waits_to_end_s(self) -> Floats:
        """Time without GPUs of each job that counts, until its end.

        An unfinished job waits until the run ends, a failed one until its first start: the record
        has no end of it. Refused and impossible jobs do not wait.
        """
        done, failed, unfinished = (
            np.asarray(self.jobs["outcome"] == name)
            for name in ("completed", "failed", "unfinished")
        )
        end_s = np.where(done, self._column("finish_s"), self.end_s)
        waits_s = compute_waits_s(end_s - self._column("submit_s"), self._column("held_s"))
        waits_s = np.where(failed, self.queue_s, waits_s)
        return np.asarray(waits_s[self.mask & (done | failed | unfinished)])

    def count(self, outcome: str) -> int:
        """Return the number of jobs that count with an outcome of `sim.result.OUTCOMES`."""
        return int((np.asarray(self.jobs["outcome"] == outcome) & self.mask).sum())

    def values(self, column: str) -> Floats:
        """Return a column of the jobs that count."""
        return self.jobs[column].to_numpy()[self.mask]

    def _column(self, name: str) -> Floats:
        """Return a column of all jobs as floats."""
        return self.jobs[name].to_numpy(np.float64)


class RunFacts(JobFacts):
    """A run with its trace and cluster; values that several metrics share are computed once.

    Parameters
    ----------
    result : RunResult
        The run.
    trace : Trace
        The jobs of the run.
    cluster : Cluster
        The cluster of the run.
    measure : Window or None
        Jobs that count; None = all.
    """

    def __init__(
        self, result: RunResult, trace: Trace, cluster: Cluster, measure: Window | None = None
    ) -> None:
        mask = measured_mask(result, measure)
        super().__init__(result.jobs, float(result.end_s), mask)
        self.result, self.trace, self.cluster = result, trace, cluster

    @cached_property
    def usage(self) -> UsageArrays:
        """GPUs held over time."""
        return UsageArrays(self.result, self.cluster)

    @cached_property
    def cost_usd(self) -> Floats:
        """Price of the GPU-hours that every row held."""
        return np.asarray(self.usage.cost_held_usd())

    @cached_property
    def window(self) -> tuple[float, float]:
        """First to last submission that counts, the same window for every policy.

        Cut at the horizon; the end of the run if all jobs are submitted at one instant.
        """
        submit = self.values("submit_s")
        if not len(submit):
            return 0.0, self.end_s
        first, last = float(submit[0]), float(submit[-1])
        if self.result.reason == "horizon":
            last = min(last, self.end_s)
        return first, last if last > first else self.end_s

    @cached_property
    def held_gpu_s(self) -> Floats:
        """GPU-seconds held in the window, by GPU type."""
        return self.usage.by_type(self.usage.held_gpu_s(*self.window))

    @cached_property
    def capacity_gpu_s(self) -> Floats:
        """GPU-seconds in service in the window, by GPU type."""
        return self.usage.by_type(capacity_gpu_s(self.result, self.cluster, *self.window))

    @cached_property
    def held_per_node_gpu_s(self) -> Floats:
        """GPU-seconds held over the whole run, by node, the overflow node last."""
        return self.usage.held_gpu_s(-np.inf, np.inf)

    @property
    def overflow_gpu_s(self) -> float:
        """GPU-seconds that a recorded schedule held beyond the cluster."""
        return (
            0.0
            if self.result.overflow is None
            else float(self.held_per_node_gpu_s[self.result.overflow])
        )

    @cached_property
    def resources_held(self) -> pd.DataFrame:
        """Cores and memory of each segment and role; see `sim.metrics.resources`."""
        return resources_held(self.result, self.cluster)

    @cached_property
    def resource_hours(self) -> dict[str, float]:
        """Core-hours and GB-hours over the whole run: held, of known use, and used."""
        return resource_hours(self.result, self.cluster, self.resources_held)

    @cached_property
    def resource_share(self) -> dict[str, float]:
        """Share of the cluster's cores and memory held in the window."""
        return resource_share(self.result, self.cluster, *self.window, self.resources_held)

    @cached_property
    def accuracy(self) -> Accuracy:
        """Accuracy of the first estimated sizes."""
        return accuracy(self.jobs, self.mask)

    @property
    def makespan_s(self) -> float:
        """Last finish of a completed job minus first submission; NaN if none was completed."""
        finish_s = self._column("finish_s")[self.completed]
        return float(finish_s.max() - self.values("submit_s").min()) if len(finish_s) else np.nan

    @property
    def deadline_rate(self) -> float:
        """Share of the jobs with a deadline that were completed by it; NaN without any."""
        deadline_s = self.trace.numbers("deadline_s", np.inf)
        due = self.mask & np.isfinite(deadline_s)
        met = due & self.completed & (self._column("finish_s") <= deadline_s + _ON_TIME_S)
        return ratio(float(met.sum()), float(due.sum()))

    @property
    def utilisation_to_end(self) -> float:
        """Share of the GPU capacity held from the first submission to the end of the run."""
        span = self.window[0], self.end_s
        capacity = capacity_gpu_s(self.result, self.cluster, *span)
        held = self.usage.by_type(self.usage.held_gpu_s(*span))
        return ratio(held.sum(), self.usage.by_type(capacity).sum())
