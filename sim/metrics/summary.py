"""One run in one dictionary of plain numbers: what tables, the command line and the store show."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sim.cluster import Cluster
from sim.metrics.jobs import (
    Mask,
    Window,
    completed,
    failed_by,
    longest_waits,
    measured,
    outcome_counts,
    waits,
)
from sim.metrics.predictions import accuracy
from sim.metrics.resources import resource_hours, resource_share, resources_held
from sim.metrics.steps import Floats
from sim.metrics.usage import UsageArrays, capacity_gpu_s, cost_cluster_usd
from sim.result import RunResult
from sim.trace import Trace

Summary = dict[str, Any]

NUMBERS: Final = (
    *(
        "jobs",
        "completed",
        "failed",
        "refused",
        "impossible",
        "unfinished",
        "refused_share",
        "completion_rate",
        "deadline_rate",
    ),
    *("jct_mean_s", "jct_p50_s", "jct_p95_s", "jct_p99_s"),
    *("queue_mean_s", "queue_p50_s", "queue_p95_s", "queue_p99_s"),
    *("wait_mean_s", "wait_p50_s", "wait_p95_s", "wait_p99_s"),
    *("makespan_s", "efficiency", "believed_near", "believed_factor"),
    *(
        "utilisation",
        "utilisation_productive",
        "utilisation_to_end",
        "utilisation_from_s",
        "utilisation_to_s",
    ),
    *(
        "held_gpu_s",
        "overflow_gpu_s",
        "paused_gpu_s",
        "lost_gpu_s",
        "cost_held_usd",
        "cost_held_per_job_usd",
        "cost_cluster_usd",
    ),
    *("cpus_held", "mem_held", "cpus_used", "mem_used"),
    *(
        "held_cpus_h",
        "known_cpus_h",
        "used_cpus_h",
        "held_mem_gb_h",
        "known_mem_gb_h",
        "used_mem_gb_h",
    ),
    *(
        "preemptions",
        "evictions",
        "relaunches",
        "restarts",
        "lost_work",
        "lost_work_s",
        "voided",
        "decisions",
    ),
    *("decision_ms_mean", "decision_ms_max", "cpu_s", "wall_s", "peak_rss_mb", "end_s"),
    *("wait_max_s", "waits_over_day"),
)
"""The keys of `summary` whose values are single numbers."""

_ON_TIME_S: Final = 1e-6
"""What rounding may add to the time of a finish."""


def summary(
    result: RunResult, trace: Trace, cluster: Cluster, measure: Window | None = None
) -> Summary:
    """Summarise a run.

    Parameters
    ----------
    result : RunResult
        The run.
    trace : Trace
        Its jobs.
    cluster : Cluster
        The machines it ran on.
    measure : Window or None
        Which jobs count; None = all. Means, quantiles, counts and events are over these jobs,
        GPU-seconds and costs over the whole run.

    Returns
    -------
    dict
        Plain numbers, NaN where there is nothing to average, and two dictionaries,
        `utilisation_by_type` and `failed_by`.

    Notes
    -----
    JCT, queueing delay and waiting time are averaged over the completed jobs; those that failed,
    were refused, impossible or unfinished are counted beside.

    - jct = finish - submit; queue = first start - submit; wait = jct - time held; makespan = last
      finish - first submission.
    - wait_max_s, waits_over_day = the longest wait and the number of jobs that waited for more than
      a day; unfinished and failed jobs count too, see `sim.metrics.jobs.longest_waits`.
    - efficiency = sum of the run times at the size asked for / sum of the times held, over the
      completed jobs: how many times faster than asked they ran, pauses included. 1 for jobs that
      run undisturbed at their own size on the type they were measured on.
    - refused_share = jobs that the policy refused / jobs; completion_rate = completed jobs / jobs.
      `failed_by`: see `sim.metrics.jobs.failed_by`.
    - deadline_rate = jobs completed by their deadline / jobs with one.
    - cpus_held, mem_held = share of the cluster's cores and memory held, in the window of the
      utilisation; cpus_used, mem_used = core-hours and GB-hours used / held, of the whole run,
      where the use is known; see `sim.metrics.resources`.
    - restarts = preemptions + evictions + relaunches. lost_work_s = sum over jobs of lost work /
      work x `ideal_s`: comparable across models.
    - believed_near, believed_factor = how near first estimated sizes came to the truth, see
      `sim.metrics.predictions.accuracy`.
    - utilisation = GPU-seconds held / integral of GPU capacity, from the first to the last
      submission that counts: the same window for every policy. If all jobs come at one instant
      there is no such window, and it runs to the end. `utilisation_from_s`, `utilisation_to_s` say
      which it was.
    - utilisation_to_end = the same from the first submission to the end of the run.
    - utilisation_productive = without pauses and lost work.
    - cost_held = GPU-hours held x price (chargeback); cost_cluster = price of the cluster x time
      (owner).
    - The overflow node of a recorded schedule counts in `overflow_gpu_s` only.
    """
    mask = measured(result, measure)
    sizes = accuracy(result.jobs, mask)
    return {
        "jobs": int(mask.sum()),
        **outcome_counts(result, mask),
        "refused_share": _ratio(
            float((np.asarray(result.jobs["outcome"] == "refused") & mask).sum()), float(mask.sum())
        ),
        "completion_rate": _ratio(float((completed(result) & mask).sum()), float(mask.sum())),
        "deadline_rate": _deadline_rate(result, trace, mask),
        "failed_by": failed_by(result, mask),
        **_times(result, mask),
        "efficiency": _efficiency(result, trace, mask),
        "believed_near": sizes.near,
        "believed_factor": sizes.median_factor,
        **_use(result, cluster, mask),
        **_resources(result, cluster, mask),
        **_events(result, mask),
        **_timing(result),
        "end_s": float(result.end_s),
        "reason": result.reason,
        **longest_waits(result.jobs, result.end_s, mask),
    }


def _times(result: RunResult, mask: Mask) -> Summary:
    jobs = result.jobs
    submit, finish = jobs["submit_s"].to_numpy(), jobs["finish_s"].to_numpy()
    done = completed(result) & mask
    jct = (finish - submit)[done]
    queue = (jobs["first_start_s"].to_numpy() - submit)[done]
    wait = waits(result, finish - submit)[done]
    ran = mask & np.isfinite(finish) & np.asarray(jobs["outcome"].isin(["completed", "failed"]))
    return {
        **_spread("jct", jct, (50, 95, 99)),
        **_spread("queue", queue, (50, 95, 99)),
        **_spread("wait", wait, (50, 95, 99)),
        "makespan_s": float(finish[ran].max() - submit[mask].min()) if ran.any() else np.nan,
    }


def _deadline_rate(result: RunResult, trace: Trace, mask: Mask) -> float:
    deadline = trace.numbers("deadline_s", np.inf)
    due = mask & np.isfinite(deadline)
    met = due & completed(result) & (result.jobs["finish_s"].to_numpy() <= deadline + _ON_TIME_S)
    return _ratio(float(met.sum()), float(due.sum()))


def _efficiency(result: RunResult, trace: Trace, mask: Mask) -> float:
    done = completed(result) & mask
    return _ratio(
        float(trace.numbers("duration_s")[done].sum()),
        float(result.jobs["held_s"].to_numpy()[done].sum()),
    )


def _spread(name: str, values: Floats, quantiles: tuple[int, ...]) -> Summary:
    if not len(values):
        return {f"{name}_mean_s": np.nan, **{f"{name}_p{q}_s": np.nan for q in quantiles}}
    at = np.percentile(values, quantiles)
    return {
        f"{name}_mean_s": float(values.mean()),
        **{f"{name}_p{q}_s": float(value) for q, value in zip(quantiles, at, strict=True)},
    }


def _use(result: RunResult, cluster: Cluster, mask: Mask) -> Summary:
    usage = UsageArrays(result, cluster)
    begin, last = utilisation_window(result, mask)
    cost = usage.cost_held_usd()
    whole = usage.held_gpu_s(-np.inf, np.inf)
    overflow = float(whole[result.overflow]) if result.overflow is not None else 0.0
    held = usage.by_type(usage.held_gpu_s(begin, last))
    room = usage.by_type(capacity_gpu_s(result, cluster, begin, last))
    to_end = usage.by_type(usage.held_gpu_s(begin, result.end_s)).sum()
    done = completed(result) & mask
    return {
        "utilisation": _ratio(held.sum(), room.sum()),
        "utilisation_productive": _ratio(
            usage.by_type(usage.productive_gpu_s(begin, last)).sum(), room.sum()
        ),
        "utilisation_to_end": _ratio(
            to_end, usage.by_type(capacity_gpu_s(result, cluster, begin, result.end_s)).sum()
        ),
        "utilisation_by_type": {
            kind.name: _ratio(held[at], room[at]) for at, kind in enumerate(cluster.types)
        },
        "utilisation_from_s": begin,
        "utilisation_to_s": last,
        "held_gpu_s": float(whole.sum()) - overflow,
        "overflow_gpu_s": overflow,
        "paused_gpu_s": usage.paused_gpu_s,
        "lost_gpu_s": usage.lost_gpu_s,
        "cost_held_usd": float(cost.sum()),
        "cost_held_per_job_usd": float(cost[done].mean()) if done.any() else np.nan,
        "cost_cluster_usd": cost_cluster_usd(result, cluster),
    }


def _resources(result: RunResult, cluster: Cluster, mask: Mask) -> Summary:
    held = resources_held(result, cluster)
    share, hours = (
        resource_share(result, cluster, *utilisation_window(result, mask), held),
        resource_hours(result, cluster, held),
    )
    used = {
        f"{name}_used": _ratio(hours[f"used_{column}_h"], hours[f"known_{column}_h"])
        for name, column in (("cpus", "cpus"), ("mem", "mem_gb"))
    }
    return {"cpus_held": share["cpus"], "mem_held": share["mem_gb"], **used, **hours}


def utilisation_window(result: RunResult, mask: Mask) -> tuple[float, float]:
    """Return the headline window: first to last submission that counts, cut at the horizon, or to
    the end if that is a single instant.
    """
    submit = result.jobs["submit_s"].to_numpy()[mask]
    if not len(submit):
        return 0.0, float(result.end_s)
    begin, last = float(submit[0]), float(submit[-1])
    if result.reason == "horizon":
        last = min(last, float(result.end_s))
    return begin, last if last > begin else float(result.end_s)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else np.nan


def _events(result: RunResult, mask: Mask) -> Summary:
    names = "preemptions", "evictions", "relaunches", "lost_work", "work", "ideal_s"
    jobs = {name: result.jobs[name].to_numpy()[mask] for name in names}
    counts = {name: int(jobs[name].sum()) for name in names[:3]}
    return {
        **counts,
        "restarts": sum(counts.values()),
        "lost_work": float(jobs["lost_work"].sum()),
        "lost_work_s": float((jobs["lost_work"] / jobs["work"] * jobs["ideal_s"]).sum()),
        "voided": int(result.voided),
        "decisions": len(result.decisions),
    }


def _timing(result: RunResult) -> Summary:
    timing = result.timing
    return {
        "decision_ms_mean": (
            1000.0 * timing.allocate_s / len(result.decisions) if len(result.decisions) else np.nan
        ),
        "decision_ms_max": 1000.0 * timing.longest_s,
        "cpu_s": timing.cpu_s,
        "wall_s": timing.wall_s,
        "peak_rss_mb": timing.peak_rss_mb,
    }
