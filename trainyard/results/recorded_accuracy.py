"""Accuracy of the simulator on a trace: simulated against recorded waits, recorded overflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.metrics import size_class
from sim.metrics.gpu_seconds import absences, node_gpus
from sim.result import RunResult
from sim.trace import Trace
from trainyard.formatting import duration, plural, with_en_dash
from trainyard.results.compare import Outcome

EXPLAINED: Final = 0.2
"""Error of simulated waits, relative to the recorded mean, up to which a policy explains them."""
_MINUTE_S: Final = 60.0
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trust:
    """Errors of the simulated policy with waits closest to the recording.

    Parameters
    ----------
    label : str
        Title of the policy.
    jobs : int
        Jobs with a recorded start that also started in the simulation.
    median_s, p95_s : float, seconds
        Median and 95th percentile of the absolute error of the wait over these jobs.
    by_size : DataFrame
        Errors per size class: size, jobs, recorded_s (median recorded wait), median_s, p95_s.
    """

    label: str
    jobs: int
    median_s: float
    p95_s: float
    by_size: pd.DataFrame

    def sentence(self) -> str:
        """Return the errors as a sentence."""
        return (
            f"{self.label} is closest to the recorded schedule. Wait errors of"
            f" {plural(self.jobs, 'job')}: median {duration(self.median_s)}, 95th percentile"
            f" {duration(self.p95_s)}."
        )


def trust(trace: Trace, outcomes: Sequence[Outcome]) -> Trust | None:
    """Return the errors of the policy closest to the recorded waits.

    None without recorded starts, or if nothing was simulated.

    Parameters
    ----------
    trace : Trace
        The jobs as they were run, recorded starts included.
    outcomes : sequence of Outcome
        Outcomes; replays of the recording are left out, and only the first repeat counts.

    Notes
    -----
    Closest = smallest median of the absolute error, then smallest 95th percentile. Jobs that never
    start in the simulation have no wait and are not compared.
    """
    if not trace.has("start_time_s"):
        return None
    recorded = trace.numbers("start_time_s") - trace.numbers("submit_time_s")
    candidates = [_errors_against(recorded, outcome) for outcome in outcomes if not outcome.replays]
    comparable = [one for one in candidates if one is not None]
    return min(comparable, key=lambda one: (one.median_s, one.p95_s), default=None)


@dataclass(frozen=True)
class Explained:
    """How well a simulated policy explains a recording, by mean waits.

    Parameters
    ----------
    label : str
        Title of the policy.
    simulated_s, recorded_s : float, seconds
        Mean waits, over the jobs that have one in both.
    median_s : float, seconds
        Median of the absolute error of the wait.
    """

    label: str
    simulated_s: float
    recorded_s: float
    median_s: float

    @property
    def holds(self) -> bool:
        """Whether both errors are within `EXPLAINED` of the recorded mean wait, or below a minute.

        The thresholds are ours.
        """
        allowed_s = max(EXPLAINED * self.recorded_s, _MINUTE_S)
        return max(abs(self.simulated_s - self.recorded_s), self.median_s) <= allowed_s

    def sentence(self) -> str:
        """Return the mean waits and the error as a sentence."""
        return (
            f"The closest, simulated {self.label}, waits {duration(self.simulated_s)} on average,"
            f" the recorded schedule {duration(self.recorded_s)}; half of the waits are off by"
            f" {duration(self.median_s)} or more."
        )


def best_explanation(trace: Trace, outcomes: Sequence[Outcome]) -> Explained | None:
    """Return the waits of the policy with the mean wait closest to the recording.

    Mean simulated and recorded wait and median absolute error, over the jobs that started in both;
    None without such jobs.

    Parameters
    ----------
    trace : Trace
        The jobs as they were run, recorded starts included.
    outcomes : sequence of Outcome
        Policies that should explain the recording; only the first repeat counts.
    """
    if not trace.has("start_time_s"):
        return None
    recorded = trace.numbers("start_time_s") - trace.numbers("submit_time_s")
    candidates = []
    for outcome in outcomes:
        waits = _waits(outcome)
        has_both = np.isfinite(recorded) & np.isfinite(waits)
        if has_both.any():
            recorded_waits, simulated = recorded[has_both], waits[has_both]
            candidates.append(
                Explained(
                    outcome.label,
                    float(simulated.mean()),
                    float(recorded_waits.mean()),
                    float(np.median(np.abs(simulated - recorded_waits))),
                )
            )
    return min(candidates, key=lambda one: abs(one.simulated_s - one.recorded_s), default=None)


@lru_cache(maxsize=8)
def share_waiting_for_gpus(trace: Trace, cluster: Cluster) -> float:
    """Return the share of recorded waiting time with too few free GPUs for the job.

    NaN without recorded starts, or if jobs waited less than a minute on average.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        The jobs as they were run, and the machines as described.

    Notes
    -----
    Free GPUs = GPUs in service minus GPUs of jobs running by their recorded start and duration, of
    any type or partition: jobs that wait for a part of the cluster wait for a quota.
    """
    submit_s, start_s, run_s, gpus = (
        trace.numbers(name) for name in ("submit_time_s", "start_time_s", "duration_s", "num_gpus")
    )
    is_counted = np.isfinite(start_s) & (gpus > 0)
    submit_s, start_s, run_s, gpus = (one[is_counted] for one in (submit_s, start_s, run_s, gpus))
    waits = np.maximum(start_s - submit_s, 0.0)
    if not len(waits) or waits.mean() < _MINUTE_S:
        return float("nan")
    node, gone_s, back_s = absences(cluster, float(start_s.max()))
    away = node_gpus(cluster)[node]
    at_s = np.concatenate(([submit_s.min()], start_s, start_s + run_s, gone_s, back_s))
    change = np.concatenate(([0.0], gpus, -gpus, away, -away))
    order = np.argsort(at_s, kind="stable")
    at_s, free = at_s[order], cluster.gpus - np.cumsum(change[order])
    lengths = np.diff(at_s)
    short_s = 0.0
    for request in np.unique(gpus[waits > 0]):
        passed_s = np.concatenate(([0.0], np.cumsum(lengths * (free[:-1] < request))))
        mine = (gpus == request) & (waits > 0)
        between = np.interp(start_s[mine], at_s, passed_s) - np.interp(
            submit_s[mine], at_s, passed_s
        )
        short_s += float(between.sum())
    return short_s / float(waits.sum())


def no_trust_reason(trace: Trace) -> str:
    """Return why there is no comparison with recorded waits.

    Without a check: `trust` must have returned None.
    """
    if not trace.has("start_time_s"):
        return (
            "This trace has no recorded start times, so the simulator's accuracy on it is unknown."
        )
    return (
        "There is no comparison with recorded start times: it needs a simulated policy that starts"
        " the jobs that have one."
    )


def recorded_overflow(result: RunResult) -> pd.DataFrame:
    """Return the intervals when a replayed recording held more GPUs than the cluster has.

    Parameters
    ----------
    result : RunResult
        Result of an allocator with an overflow node.

    Returns
    -------
    DataFrame
        from_s, to_s, gpus (most at once), gpu_s, jobs; one row per unbroken interval, none if the
        cluster sufficed.
    """
    columns = ["from_s", "to_s", "gpus", "gpu_s", "jobs"]
    there = (
        result.placements[result.placements["node"] == result.overflow]
        if result.overflow is not None
        else result.placements.iloc[:0]
    )
    if there.empty:
        return pd.DataFrame({name: pd.Series(dtype=np.float64) for name in columns})
    segments = result.segments.iloc[there["segment"].to_numpy()]
    held = pd.DataFrame(
        {
            "job": segments["job"].to_numpy(),
            "t0": segments["t0"].to_numpy(),
            "t1": segments["t1"].to_numpy(),
        }
    )
    held["gpus"] = there["count"].to_numpy() * there["gpus"].to_numpy()
    held = held[held["gpus"] > 0].sort_values("t0", ignore_index=True)
    # An interval ends once all earlier segments have ended.
    reach = held["t1"].cummax().shift(fill_value=-np.inf)
    spell = (held["t0"] > reach).cumsum()
    rows = [_overflow_interval(group) for _, group in held.groupby(spell)]
    return pd.DataFrame(rows, columns=columns)


def _waits(outcome: Outcome) -> Floats:
    """Return the time from submission to first start of each job in the first repeat."""
    jobs = outcome.jobs[0]
    return np.asarray(
        jobs["first_start_s"].to_numpy(np.float64) - jobs["submit_s"].to_numpy(np.float64)
    )


def _errors_against(recorded: Floats, outcome: Outcome) -> Trust | None:
    """Return the wait errors of one outcome, in all and by size; None without common starts."""
    jobs, simulated = outcome.jobs[0], _waits(outcome)
    has_both = np.isfinite(recorded) & np.isfinite(simulated)
    if not has_both.any():
        return None
    error = np.abs(simulated - recorded)[has_both]
    sizes = pd.Series(size_class(jobs["gpus"].to_numpy(np.int64)))[has_both].reset_index(drop=True)
    frame = pd.DataFrame({"size": sizes, "recorded_s": recorded[has_both], "error": error})
    grouped = frame.groupby("size", observed=True, sort=True)
    by_size = pd.DataFrame(
        {
            "jobs": grouped.size(),
            "recorded_s": grouped["recorded_s"].median(),
            "median_s": grouped["error"].median(),
            "p95_s": grouped["error"].quantile(0.95),
        }
    ).reset_index()
    by_size["size"] = by_size["size"].astype(str).map(with_en_dash)
    return Trust(
        outcome.label, len(error), float(np.median(error)), float(np.percentile(error, 95)), by_size
    )


def _overflow_interval(held: pd.DataFrame) -> tuple[float, float, float, float, int]:
    """Return start, end, peak GPUs, GPU-seconds and jobs of one interval of overflow."""
    t0, t1, gpus = (held[name].to_numpy(np.float64) for name in ("t0", "t1", "gpus"))
    times, changes = np.concatenate((t0, t1)), np.concatenate((gpus, -gpus))
    # Releases before starts, so that a hand-over at one instant is not counted twice.
    level = np.cumsum(changes[np.lexsort((changes, times))])
    return (
        float(t0.min()),
        float(t1.max()),
        float(level.max()),
        float((gpus * (t1 - t0)).sum()),
        int(held["job"].nunique()),
    )
