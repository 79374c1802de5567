"""Registry of all metrics: name, title, unit, direction, help and computation of each.

Summaries, `--json`, the columns of a comparison and the table of one group of jobs are filters over
`METRICS`. To add a metric, add an entry to its family.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any, Final, Literal

import numpy as np

from sim.cluster import Cluster
from sim.metrics.gpu_seconds import cost_cluster_usd
from sim.metrics.inputs import JobFacts, RunFacts, ratio
from sim.metrics.jobs import DAY_S, Window, count_failures
from sim.metrics.predictions import FACTOR
from sim.metrics.steps import Floats
from sim.result import RunResult
from sim.trace import Trace

Goal = Literal["lower", "higher", ""]


@dataclass(frozen=True)
class PerJob:
    """One value per job, summarized over the completed jobs; NaN without any.

    Parameters
    ----------
    values : callable
        Returns the value of every row of `JobFacts.jobs`.
    percentile : float or None
        Percentile to take; None = the mean.
    needs_segments : bool
        Whether the values need all segments of the run, which are slow to load from storage.
    """

    values: Callable[[JobFacts], Floats]
    percentile: float | None = None
    needs_segments: bool = False

    def __call__(self, facts: JobFacts) -> float:
        """Return the mean or percentile over the completed jobs."""
        return self.summarize(self.values(facts)[facts.completed])

    def summarize(self, values: Floats) -> float:
        """Return the mean or percentile of some values; NaN without any."""
        if not len(values):
            return nan
        if self.percentile is None:
            return float(values.mean())
        return float(np.percentile(values, self.percentile))


@dataclass(frozen=True)
class Metric:
    """One number of a run.

    Parameters
    ----------
    name : str
        Key in summaries and `--json`; ends with its unit (`_s`, `_usd`) if it has one.
    title : str
        Header of its column; "" = no column.
    unit : str
        "s", "1" (a share), "USD" or "" (a count), or another word that only tables show.
    help : str
        The definition in one sentence.
    better : {"lower", "higher", ""}
        The better direction; "" = neither.
    of_jobs : callable or None
        Computes it from the jobs alone: it then exists for one group of jobs too, and for results
        stored before it was added. A `PerJob` is also compared job by job.
    compute : callable or None
        Computes it from the run, if the jobs alone do not suffice. Neither = only in comparisons.
    silent : float or None
        The uninformative value: if every policy has it or no value, the column is left out. None =
        never left out.
    is_judged : bool
        Whether a difference is called better or worse. False e.g. for busy GPUs: a lower share
        means longer waits or a more economical policy.
    is_column : bool
        Whether a comparison has its column.
    is_number : bool
        Whether it is a single number. Other values are only in the summary.
    in_json : bool
        Whether `--json` of a run includes it.
    short : str
        Header in the table of `trainyard run`; "" = not there.
    target : str
        Begin of the sentence of a target; "" = "TITLE is at most".
    """

    name: str
    title: str
    unit: str
    help: str
    better: Goal = ""
    of_jobs: Callable[[JobFacts], Any] | None = None
    compute: Callable[[RunFacts], Any] | None = None
    silent: float | None = None
    is_judged: bool = True
    is_column: bool = True
    is_number: bool = True
    in_json: bool = True
    short: str = ""
    target: str = ""

    def value(self, run: RunFacts) -> Any:
        """Return the metric of a run; NaN if it exists only in comparisons."""
        compute = self.of_jobs or self.compute
        return nan if compute is None else compute(run)

    @property
    def per_job(self) -> PerJob | None:
        """The `PerJob` that computes it; None = not a mean or percentile over jobs."""
        return self.of_jobs if isinstance(self.of_jobs, PerJob) else None


_Count = partial(Metric, unit="", is_column=False)
_Detail = partial(Metric, is_column=False, in_json=False)
"""A number of the summary that is in no table."""


def _outcome_metric(outcome: str, meaning: str) -> Metric:
    """Return the metric that counts the jobs with an outcome."""
    return _Count(
        outcome, f"Jobs {outcome}", help=meaning, of_jobs=lambda jobs: jobs.count(outcome)
    )


_OUTCOMES: Final = (
    _Count("jobs", "Jobs", help="Jobs that count.", of_jobs=lambda jobs: int(jobs.mask.sum())),
    _outcome_metric("completed", "Jobs that ran to their end."),
    _outcome_metric("failed", "Jobs lost more often than retries allow."),
    _outcome_metric("refused", "Jobs that the policy rejected."),
    _outcome_metric("impossible", "Jobs that fit nowhere even on the empty cluster."),
    _outcome_metric("unfinished", "Jobs that wait or run when the run ends."),
    _Detail(
        "refused_share",
        "Share of jobs refused",
        "1",
        "Refused jobs over all jobs.",
        of_jobs=lambda jobs: ratio(jobs.count("refused"), float(jobs.mask.sum())),
    ),
    Metric(
        "completion_rate",
        "Jobs completed",
        "1",
        "Completed jobs over all jobs.",
        "higher",
        of_jobs=lambda jobs: ratio(float(jobs.completed.sum()), float(jobs.mask.sum())),
        silent=1.0,
        target="the share of jobs completed is at least",
    ),
    Metric(
        "deadline_rate",
        "Deadlines met",
        "1",
        "Jobs completed by their deadline over jobs with one.",
        "higher",
        compute=lambda run: run.deadline_rate,
        silent=nan,
        short="deadlines met",
        target="the share of deadlines met is at least",
    ),
    Metric(
        "failed_by",
        "",
        "",
        "Cause and role of the last failure of each failed job, with the number of jobs.",
        compute=lambda run: count_failures(run.result, run.mask),
        is_column=False,
        is_number=False,
    ),
)
_TIMES: Final = (
    Metric(
        "jct_mean_s",
        "Average completion time",
        "s",
        "Mean JCT: finish minus submission, over completed jobs.",
        "lower",
        of_jobs=PerJob(lambda jobs: jobs.jct_s),
        short="average time",
        target="the average job completes within",
    ),
    Metric(
        "jct_p50_s",
        "Half completed within",
        "s",
        "Median JCT of the completed jobs.",
        "lower",
        of_jobs=PerJob(lambda jobs: jobs.jct_s, 50),
        short="half within",
        target="half of the jobs complete within",
    ),
    Metric(
        "jct_p95_s",
        "95 % completed within",
        "s",
        "P95 JCT of the completed jobs.",
        "lower",
        of_jobs=PerJob(lambda jobs: jobs.jct_s, 95),
        short="95 % within",
        target="95 % of jobs complete within",
    ),
    Metric(
        "jct_p99_s",
        "99 % completed within",
        "s",
        "P99 JCT of the completed jobs.",
        "lower",
        of_jobs=PerJob(lambda jobs: jobs.jct_s, 99),
        target="99 % of jobs complete within",
    ),
    Metric(
        "queue_mean_s",
        "Average wait to start",
        "s",
        "Mean queueing delay: first start minus submission.",
        "lower",
        of_jobs=PerJob(lambda jobs: jobs.queue_s),
        target="the average wait before start is at most",
    ),
    _Detail(
        "queue_p50_s",
        "Half started within",
        "s",
        "Median queueing delay: first start minus submission.",
        of_jobs=PerJob(lambda jobs: jobs.queue_s, 50),
    ),
    Metric(
        "queue_p95_s",
        "95 % started within",
        "s",
        "P95 queueing delay: first start minus submission.",
        "lower",
        of_jobs=PerJob(lambda jobs: jobs.queue_s, 95),
        target="95 % of jobs wait at most",
    ),
    _Detail(
        "queue_p99_s",
        "99 % started within",
        "s",
        "P99 queueing delay: first start minus submission.",
        of_jobs=PerJob(lambda jobs: jobs.queue_s, 99),
    ),
    Metric(
        "wait_mean_s",
        "Average wait",
        "s",
        "All stops included: JCT minus the time of holding GPUs.",
        "lower",
        of_jobs=PerJob(lambda jobs: jobs.wait_s),
        short="average wait",
        target="the average wait is at most",
    ),
    *(
        _Detail(
            f"wait_p{percentile}_s",
            f"{word} wait",
            "s",
            f"{word} of JCT minus the time of holding GPUs.",
            of_jobs=PerJob(lambda jobs: jobs.wait_s, percentile),
        )
        for percentile, word in ((50, "Median"), (95, "P95"), (99, "P99"))
    ),
)
_RUN_TIMES: Final = (
    Metric(
        "makespan_s",
        "Makespan",
        "s",
        "From the first submission to the last finish.",
        "lower",
        compute=lambda run: run.makespan_s,
        short="makespan",
        target="all jobs complete within",
    ),
    _Detail(
        "efficiency",
        "Training efficiency",
        "",
        "Sum of the run times at the size asked for over the sum of the times held, over completed"
        " jobs: 1 for jobs that run undisturbed at their own size on the type they were measured"
        " on.",
        compute=lambda run: ratio(
            float(run.trace.numbers("duration_s")[run.completed].sum()),
            float(run.jobs["held_s"].to_numpy()[run.completed].sum()),
        ),
    ),
    Metric(
        "believed_near",
        "Estimates within a factor of 2",
        "1",
        f"Share of first estimated sizes within a factor of {FACTOR:g} of the true ones.",
        compute=lambda run: run.accuracy.near,
        is_column=False,
    ),
    Metric(
        "believed_factor",
        "Median error of estimates",
        "",
        "The factor within which half of the first estimated sizes are.",
        compute=lambda run: run.accuracy.median_factor,
        is_column=False,
    ),
)
_USE: Final = (
    Metric(
        "utilisation",
        "GPUs busy",
        "1",
        "GPU-seconds held over capacity, from the first to the last submission.",
        "higher",
        compute=lambda run: ratio(run.held_gpu_s.sum(), run.capacity_gpu_s.sum()),
        silent=nan,
        is_judged=False,
        short="GPUs busy",
    ),
    Metric(
        "utilisation_productive",
        "GPUs making progress",
        "1",
        "The same without pauses and lost work.",
        "higher",
        compute=lambda run: ratio(
            run.usage.by_type(run.usage.productive_gpu_s(*run.window)).sum(),
            run.capacity_gpu_s.sum(),
        ),
        silent=nan,
        is_judged=False,
        in_json=False,
    ),
    _Detail(
        "utilisation_to_end",
        "Utilization to the end",
        "1",
        "GPU-seconds held over capacity, from the first submission to the end of the run.",
        compute=lambda run: run.utilisation_to_end,
    ),
    _Detail(
        "utilisation_by_type",
        "",
        "1",
        "GPUs busy, by GPU type.",
        compute=lambda run: {
            kind.name: ratio(run.held_gpu_s[at], run.capacity_gpu_s[at])
            for at, kind in enumerate(run.cluster.types)
        },
        is_number=False,
    ),
    _Detail(
        "utilisation_from_s",
        "",
        "s",
        "Begin of the window of GPUs busy.",
        compute=lambda run: run.window[0],
    ),
    _Detail(
        "utilisation_to_s",
        "",
        "s",
        "End of the window of GPUs busy.",
        compute=lambda run: run.window[1],
    ),
    _Detail(
        "held_gpu_s",
        "",
        "GPU-s",
        "GPU-seconds held on the cluster over the whole run.",
        compute=lambda run: float(run.held_per_node_gpu_s.sum()) - run.overflow_gpu_s,
    ),
    _Detail(
        "overflow_gpu_s",
        "",
        "GPU-s",
        "GPU-seconds that a recorded schedule held beyond the cluster.",
        compute=lambda run: run.overflow_gpu_s,
    ),
    _Detail(
        "paused_gpu_s",
        "",
        "GPU-s",
        "GPU-seconds held without progress.",
        compute=lambda run: run.usage.paused_gpu_s,
    ),
    _Detail(
        "lost_gpu_s",
        "",
        "GPU-s",
        "GPU-seconds of work that was done again.",
        compute=lambda run: run.usage.lost_gpu_s,
    ),
)
_COSTS: Final = (
    _Detail(
        "cost_held_usd",
        "",
        "USD",
        "GPU-hours held at the price of their nodes, over the whole run.",
        compute=lambda run: float(run.cost_usd.sum()),
    ),
    Metric(
        "cost_held_per_job_usd",
        "Cost per job",
        "USD",
        "GPU-hours held at the price of their nodes, mean over completed jobs.",
        "lower",
        of_jobs=PerJob(lambda jobs: jobs.cost_usd, needs_segments=True),
        silent=0.0,
        in_json=False,
    ),
    Metric(
        "cost_cluster_usd",
        "Cost of the cluster",
        "USD",
        "Price of all nodes from the first submission to the end.",
        "lower",
        compute=lambda run: cost_cluster_usd(run.result, run.cluster),
        silent=0.0,
        in_json=False,
    ),
)
_HELD: Final = (
    Metric(
        "cpus_held",
        "Cores held",
        "1",
        "Core-seconds held over those of the cluster, from the first to the last submission.",
        compute=lambda run: run.resource_share["cpus"],
        silent=0.0,
    ),
    Metric(
        "mem_held",
        "Memory held",
        "1",
        "GB-seconds held over those of the cluster, from the first to the last submission.",
        compute=lambda run: run.resource_share["mem_gb"],
        silent=0.0,
    ),
)
_USED: Final = (
    Metric(
        "cpus_used",
        "CPU used of held",
        "1",
        "Core-hours used over core-hours that jobs asked for and held, where the use is known.",
        "higher",
        compute=lambda run: ratio(
            run.resource_hours["used_cpus_h"], run.resource_hours["known_cpus_h"]
        ),
        silent=nan,
        short="CPU used",
    ),
    Metric(
        "mem_used",
        "Memory used of held",
        "1",
        "GB-hours used over GB-hours that jobs asked for and held, where the use is known.",
        "higher",
        compute=lambda run: ratio(
            run.resource_hours["used_mem_gb_h"], run.resource_hours["known_mem_gb_h"]
        ),
        silent=nan,
        short="memory used",
    ),
)


def _hours_metric(kind: str, resource: str, unit: str, meaning: str) -> Metric:
    """Return the metric of one entry of `resource_hours`."""
    name = f"{kind}_{resource}_h"
    return _Detail(name, "", unit, meaning, compute=lambda run: run.resource_hours[name])


_HOURS: Final = tuple(
    _hours_metric(kind, resource, unit, f"{unit}ours {meaning}, over the whole run.")
    for resource, unit in (("cpus", "Core-h"), ("mem_gb", "GB-h"))
    for kind, meaning in (
        ("held", "held"),
        ("known", "held of which the use is known"),
        ("used", "used of those"),
    )
)
_EVENTS: Final = (
    Metric(
        "preemptions",
        "Preemptions",
        "",
        "Running jobs stopped or changed by the policy.",
        "lower",
        of_jobs=lambda jobs: int(jobs.values("preemptions").sum()),
        short="preempted",
    ),
    Metric(
        "evictions",
        "Evictions",
        "",
        "Jobs that lost all they held: to an outage, an interruption, or for lack of memory.",
        "lower",
        of_jobs=lambda jobs: int(jobs.values("evictions").sum()),
        silent=0.0,
        short="evicted",
    ),
    Metric(
        "relaunches",
        "Replicas relaunched",
        "",
        "Interruptions of a single replica that its job survived.",
        "lower",
        of_jobs=lambda jobs: int(jobs.values("relaunches").sum()),
        silent=0.0,
        short="relaunched",
    ),
    _Count(
        "restarts",
        "Restarts",
        help="Preemptions + evictions + relaunches.",
        of_jobs=lambda jobs: sum(
            int(jobs.values(name).sum()) for name in ("preemptions", "evictions", "relaunches")
        ),
    ),
    _Detail(
        "lost_work",
        "",
        "",
        "Work done again after evictions, in the unit of each job's own work.",
        of_jobs=lambda jobs: float(jobs.values("lost_work").sum()),
    ),
    Metric(
        "lost_work_s",
        "Work lost",
        "s",
        "Work done again after evictions, as the run time it takes on its own on the best type, all"
        " jobs together.",
        "lower",
        compute=lambda run: float(
            (run.values("lost_work") / run.values("work") * run.values("ideal_s")).sum()
        ),
        silent=0.0,
        short="work lost",
    ),
    _Detail(
        "voided",
        "",
        "",
        "Entries of plans dropped because their job or node changed while the plan was in flight.",
        compute=lambda run: int(run.result.voided),
    ),
    _Count(
        "decisions",
        "Decisions",
        help="Calls of the policy.",
        compute=lambda run: len(run.result.decisions),
    ),
)
_TIMING: Final = (
    Metric(
        "decision_ms_mean",
        "Time per decision",
        "ms",
        "Measured time of a call of the policy, mean.",
        compute=lambda run: ratio(1000.0 * run.result.timing.allocate_s, len(run.result.decisions)),
        is_column=False,
    ),
    _Detail(
        "decision_ms_max",
        "Longest decision",
        "ms",
        "Measured time of the longest call of the policy.",
        compute=lambda run: 1000.0 * run.result.timing.longest_s,
    ),
    Metric(
        "cpu_s",
        "",
        "s",
        "Processor time of the simulation.",
        compute=lambda run: run.result.timing.cpu_s,
        is_column=False,
    ),
    _Detail(
        "wall_s",
        "",
        "s",
        "Duration of the simulation.",
        compute=lambda run: run.result.timing.wall_s,
    ),
    Metric(
        "peak_rss_mb",
        "",
        "MB",
        "Highest memory of the simulation.",
        compute=lambda run: run.result.timing.peak_rss_mb,
        is_column=False,
    ),
    _Detail("end_s", "", "s", "When the run ended.", compute=lambda run: run.end_s),
    _Detail(
        "reason",
        "",
        "",
        "Why the run ended.",
        compute=lambda run: run.result.reason,
        is_number=False,
    ),
)
_MAXIMA: Final = (
    Metric(
        "wait_max_s",
        "Longest wait",
        "s",
        "Longest wait of a single job, all stops included; an unfinished job waits to the end.",
        "lower",
        of_jobs=lambda jobs: float(jobs.waits_to_end_s.max() if len(jobs.waits_to_end_s) else nan),
        short="longest wait",
        target="no job waits longer than",
    ),
    Metric(
        "waits_over_day",
        "Waited over a day",
        "",
        "Jobs that waited for more than 24 h, all stops included; unfinished jobs count.",
        "lower",
        of_jobs=lambda jobs: int((jobs.waits_to_end_s > DAY_S).sum()),
        short="over a day",
        target="jobs that wait over a day are at most",
    ),
)


def _by_name(*families: tuple[Metric, ...]) -> dict[str, Metric]:
    """Return name -> metric of several families."""
    return {metric.name: metric for family in families for metric in family}


METRICS: Final[Mapping[str, Metric]] = _by_name(
    _OUTCOMES, _TIMES, _RUN_TIMES, _USE, _COSTS, _HELD, _USED, _HOURS, _EVENTS, _TIMING, _MAXIMA
)
"""Name -> metric, in the order of a summary."""
COLUMNS: Final[Mapping[str, Metric]] = {
    name: metric
    for name, metric in _by_name(
        *(_TIMES, _MAXIMA, _RUN_TIMES, _OUTCOMES, _USE, _USED, _HELD, _EVENTS, _COSTS),
        *(_HOURS, _TIMING),
    ).items()
    if metric.is_column
}
"""Name -> metric with a column in comparisons, in the order of the columns."""
NUMBERS: Final = tuple(name for name, metric in METRICS.items() if metric.is_number)
"""The keys of `summary` whose values are single numbers."""
_BEFORE: Final = {"impossible": "refused", "cpus_used": "mem_held"}
"""Key -> key that follows it in `--json`, unlike in the summary."""


def _json_order() -> tuple[str, ...]:
    """Return the keys in `--json`, in the order of `METRICS` with the moves of `_BEFORE`."""
    names = [name for name, metric in METRICS.items() if metric.in_json]
    for name, later in _BEFORE.items():
        names.remove(name)
        names.insert(names.index(later), name)
    return tuple(names)


JSON_KEYS: Final = _json_order()
"""The keys of `summary` in `--json`."""


def compute_from_jobs(facts: JobFacts, computed: Container[str] = ()) -> dict[str, Any]:
    """Return the metrics that need only the jobs, except those already `computed`."""
    return {
        name: metric.of_jobs(facts)
        for name, metric in METRICS.items()
        if metric.of_jobs is not None and name not in computed
    }


def summary(
    result: RunResult, trace: Trace, cluster: Cluster, measure: Window | None = None
) -> dict[str, Any]:
    """Return all metrics of a run.

    Parameters
    ----------
    result : RunResult
        The run.
    trace : Trace
        The jobs of the run.
    cluster : Cluster
        The cluster of the run.
    measure : Window or None
        Jobs that count; None = all. Means, quantiles, counts and events are over these jobs,
        GPU-seconds and costs over the whole run.

    Returns
    -------
    dict
        Name -> value of each of `METRICS`; NaN if there is nothing to average.

    Notes
    -----
    JCT, queueing delay and waiting time are averaged over the completed jobs; failed, refused,
    impossible and unfinished jobs are counted separately. The overflow node of a recorded schedule
    counts in `overflow_gpu_s` only.
    """
    run = RunFacts(result, trace, cluster, measure)
    return {name: metric.value(run) for name, metric in METRICS.items()}
