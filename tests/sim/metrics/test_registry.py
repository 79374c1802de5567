"""Every metric of the registry, by the same rules."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from allocators import make
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Measure, Simulator
from sim.metrics import summary
from sim.metrics.inputs import JobFacts, RunFacts
from sim.metrics.registry import COLUMNS, JSON_KEYS, METRICS, Metric, compute_from_jobs
from tests.golden.scenarios import stored
from tests.sim.metrics.metrics_cases import FIVE, cluster_of, five, trace_of
from trainyard.formatting import BY_UNIT
from trainyard.traces.samples import load_sample

TABLES_ONLY = {"ms", "MB", "GPU-s", "GB-h", "Core-h"}
"""Units that no column has."""
PUBLISHED = [
    "jobs",
    "completed",
    "failed",
    "impossible",
    "refused",
    "unfinished",
    "completion_rate",
    "deadline_rate",
    "failed_by",
    "jct_mean_s",
    "jct_p50_s",
    "jct_p95_s",
    "jct_p99_s",
    "queue_mean_s",
    "queue_p95_s",
    "wait_mean_s",
    "makespan_s",
    "believed_near",
    "believed_factor",
    "utilisation",
    "cpus_held",
    "cpus_used",
    "mem_held",
    "mem_used",
    "preemptions",
    "evictions",
    "relaunches",
    "restarts",
    "lost_work_s",
    "decisions",
    "decision_ms_mean",
    "cpu_s",
    "peak_rss_mb",
    "wait_max_s",
    "waits_over_day",
]
"""Keys of a run in `--json` in the first version of this registry, in their order."""
FIRST_COLUMNS = [
    "jct_mean_s",
    "jct_p50_s",
    "jct_p95_s",
    "jct_p99_s",
    "queue_mean_s",
    "queue_p95_s",
    "wait_mean_s",
    "wait_max_s",
    "waits_over_day",
    "makespan_s",
    "completion_rate",
    "deadline_rate",
    "utilisation",
    "utilisation_productive",
    "cpus_used",
    "mem_used",
    "cpus_held",
    "mem_held",
    "preemptions",
    "evictions",
    "relaunches",
    "lost_work_s",
    "cost_held_per_job_usd",
    "cost_cluster_usd",
]
"""Columns of a comparison then."""
OF_GROUPS = [
    "jct_mean_s",
    "jct_p50_s",
    "jct_p95_s",
    "jct_p99_s",
    "queue_mean_s",
    "queue_p95_s",
    "wait_mean_s",
    "wait_max_s",
    "waits_over_day",
    "completion_rate",
    "preemptions",
    "evictions",
    "relaunches",
    "cost_held_per_job_usd",
]
"""Columns that the jobs alone tell; the cost needs a price for each job."""


@pytest.fixture(scope="module")
def tiny() -> RunFacts:
    """SRTF on the tiny sample: it asks for run times, so estimates are known too."""
    trace, _ = load_sample("tiny")
    cluster = Cluster.parse("1x8:v100")
    return RunFacts(Simulator(trace, cluster, make(Spec("srtf"))).run(), trace, cluster)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_says_what_it_is(metric: Metric) -> None:
    assert METRICS[metric.name] is metric
    assert re.fullmatch(r"[A-Z].*[a-z0-9)]\.", metric.help), metric.help
    assert metric.unit in BY_UNIT or metric.unit in TABLES_ONLY
    assert (metric.unit == "USD") == metric.name.endswith("_usd")
    assert metric.better in ("lower", "higher", "")
    assert (metric.of_jobs is None) != (metric.compute is None)
    if metric.name in COLUMNS:
        assert metric.is_number
        assert metric.title
        assert metric.unit in BY_UNIT
        # What is neither better nor worse is no target and is in no column of `trainyard run`.
        assert metric.better or not (metric.target or metric.short)
    else:
        assert (metric.better, metric.target, metric.short) == ("", "", "")


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_is_known_on_the_tiny_sample_or_may_be_silent(
    metric: Metric, tiny: RunFacts
) -> None:
    value = metric.value(tiny)
    if not metric.is_number:
        assert isinstance(value, (str, dict))
    elif math.isnan(value):
        # No job has a deadline, and the use of cores and memory is unknown.
        assert metric.name in ("deadline_rate", "cpus_held", "mem_held", "cpus_used", "mem_used")
        assert metric.silent is not None
    else:
        assert math.isfinite(value)
        assert metric.unit != "1" or 0 <= value <= 1


def test_no_two_columns_have_one_title() -> None:
    titles = [metric.title for metric in COLUMNS.values()]
    assert len(set(titles)) == len(titles)
    short = [metric.short for metric in COLUMNS.values() if metric.short]
    assert len(set(short)) == len(short)


def test_keys_keep_the_order_in_which_they_were_published() -> None:
    assert [name for name in JSON_KEYS if name in PUBLISHED] == PUBLISHED
    assert [name for name in COLUMNS if name in FIRST_COLUMNS] == FIRST_COLUMNS
    kept = list(stored("plain")["runs"]["fifo"])
    assert [name for name in METRICS if name in kept] == kept


def test_a_group_of_all_jobs_has_the_metrics_of_the_run(tiny: RunFacts) -> None:
    mask = np.ones(len(tiny.jobs), np.bool_)
    group = compute_from_jobs(JobFacts(tiny.jobs, tiny.end_s, mask, tiny.usage.cost_held_usd))
    assert group == {name: METRICS[name].value(tiny) for name in group}
    known = [name for name in COLUMNS if name in group and name in FIRST_COLUMNS]
    assert known == OF_GROUPS
    unpriced = compute_from_jobs(JobFacts(tiny.jobs, tiny.end_s, mask))
    assert math.isnan(unpriced.pop("cost_held_per_job_usd"))
    assert unpriced == {name: group[name] for name in unpriced}


def test_a_group_of_some_jobs_has_the_metrics_of_the_run_on_those_jobs() -> None:
    result, trace, cluster = five(), trace_of(FIVE), cluster_of()
    mask = np.array([False, False, True, True, False])
    group = compute_from_jobs(JobFacts(result.jobs, result.end_s, mask), computed=["lost_work"])
    found = summary(result, trace, cluster, Measure(first_job=2, last_job=3))
    assert "lost_work" not in group
    # Of the two, one takes 210 - 20 s and holds GPUs for 120 s of it, the other is impossible.
    assert (group["jobs"], group["jct_mean_s"], group["wait_mean_s"]) == (2, 190.0, 70.0)
    assert (group["completion_rate"], group["impossible"]) == (0.5, 1)
    del group["cost_held_per_job_usd"]
    assert group == {name: found[name] for name in group}
