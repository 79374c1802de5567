"""The metrics of which a comparison has columns: title, unit, which direction is good, and when
they say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Final, Literal

Goal = Literal["lower", "higher", ""]


@dataclass(frozen=True)
class Metric:
    """One column of the comparison.

    Parameters
    ----------
    name : str
        Key in the summary of a run.
    title, unit : str
        For headers.
    better : {"lower", "higher", ""}
        Which direction is good; "" = neither.
    help : str
        One sentence.
    silent : float or None
        The value that says nothing: where every policy has it or none at all, the metric is left
        out. None = it never is.
    judged : bool
        Whether a difference is called better or worse. GPUs are less busy where jobs wait, and
        where a policy needs fewer of them.
    """

    name: str
    title: str
    unit: str
    better: Goal
    help: str
    silent: float | None = None
    judged: bool = True


METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "jct_mean_s",
        "Average time to finish",
        "s",
        "lower",
        "Mean JCT: finish minus submission, over completed jobs.",
    ),
    Metric("jct_p50_s", "Half done within", "s", "lower", "Median JCT of the completed jobs."),
    Metric("jct_p95_s", "95 % done within", "s", "lower", "P95 JCT of the completed jobs."),
    Metric("jct_p99_s", "99 % done within", "s", "lower", "P99 JCT of the completed jobs."),
    Metric(
        "queue_mean_s",
        "Wait before start",
        "s",
        "lower",
        "Mean queueing delay: first start minus submission.",
    ),
    Metric(
        "queue_p95_s",
        "95 % started within",
        "s",
        "lower",
        "P95 queueing delay: first start minus submission.",
    ),
    Metric(
        "wait_mean_s",
        "Average wait",
        "s",
        "lower",
        "All stops included: JCT minus the time of holding GPUs.",
    ),
    Metric(
        "wait_max_s",
        "Longest wait",
        "s",
        "lower",
        "Longest wait of a single job, all stops included; an unfinished job waits to the end.",
    ),
    Metric(
        "waits_over_day",
        "Waited over a day",
        "",
        "lower",
        "Jobs that waited for more than 24 h, all stops included; unfinished jobs count.",
    ),
    Metric("makespan_s", "Makespan", "s", "lower", "From the first submission to the last finish."),
    Metric(
        "completion_rate",
        "Jobs completed",
        "1",
        "higher",
        "Completed jobs over all jobs; the reasons for the others stand beside the table.",
        1.0,
    ),
    Metric(
        "deadline_rate",
        "Deadlines met",
        "1",
        "higher",
        "Jobs completed by their deadline over jobs with one.",
        nan,
    ),
    Metric(
        "utilisation",
        "GPUs busy",
        "1",
        "higher",
        "GPU-seconds held over capacity, from the first to the last submission.",
        nan,
        judged=False,
    ),
    Metric(
        "utilisation_productive",
        "GPUs busy, productive",
        "1",
        "higher",
        "The same without pauses and lost work.",
        nan,
        judged=False,
    ),
    Metric(
        "cpus_used",
        "CPU used of held",
        "1",
        "higher",
        "Core-hours used over core-hours that jobs asked for and held, where the use is known.",
        nan,
    ),
    Metric(
        "mem_used",
        "Memory used of held",
        "1",
        "higher",
        "GB-hours used over GB-hours that jobs asked for and held, where the use is known.",
        nan,
    ),
    Metric(
        "cpus_held",
        "Cores held",
        "1",
        "",
        "Core-seconds held over those of the cluster, from the first to the last submission.",
        0.0,
    ),
    Metric(
        "mem_held",
        "Memory held",
        "1",
        "",
        "GB-seconds held over those of the cluster, from the first to the last submission.",
        0.0,
    ),
    Metric(
        "preemptions", "Preemptions", "", "lower", "Running jobs stopped or changed by the policy."
    ),
    Metric(
        "evictions",
        "Evictions",
        "",
        "lower",
        "Jobs that lost all they held: to an outage, an interruption, or for lack of memory.",
        0.0,
    ),
    Metric(
        "relaunches",
        "Replicas relaunched",
        "",
        "lower",
        "Interruptions of a single replica that its job survived.",
        0.0,
    ),
    Metric(
        "lost_work_s",
        "Work lost",
        "s",
        "lower",
        "Work done again after evictions, as the run time it takes on its own on the best type, all"
        " jobs together.",
        0.0,
    ),
    Metric(
        "cost_held_per_job_usd",
        "Cost per job",
        "USD",
        "lower",
        "GPU-hours held at the price of their nodes, mean over completed jobs.",
        0.0,
    ),
    Metric(
        "cost_cluster_usd",
        "Cost of the cluster",
        "USD",
        "lower",
        "Price of all nodes from the first submission to the end.",
        0.0,
    ),
)
SLOWER: Final = Metric(
    "slower",
    "Jobs slower",
    "1",
    "",
    "Share of the jobs that take over 2 % longer than under the baseline.",
)
"""Of a comparison only, not of a run."""
