from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from sim import metrics
from sim.cluster import Change, Cluster, NodeGroup
from sim.engine.simulator import Measure
from sim.result import RunResult
from sim.trace import Trace
from tests.properties.invariants import littles_law
from tests.sim.metrics.metrics_cases import (
    FIVE,
    FIVE_HELD,
    Held,
    Job,
    cluster_of,
    five,
    outages_of,
    run_of,
    trace_of,
)


def rows(frame: pd.DataFrame, *columns: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, row)) for row in frame[["t_s", *columns]].itertuples(index=False)]


# -- summary
# --------------------------------------------------------------------------------------------------


# Metric -> its value for `FIVE`, worked out by hand.
OF_FIVE = {
    "jobs": 5,
    "completed": 3,
    "failed": 0,
    "refused": 0,
    "impossible": 1,
    "unfinished": 1,
    "preemptions": 1,
    "evictions": 1,
    "decisions": 2,
    # JCT 100, 260 - 10 = 250, 210 - 20 = 190: sorted 100, 190, 250, p95 at place 1.9.
    "jct_mean_s": 540 / 3,
    "jct_p50_s": 190,
    "jct_p95_s": 190 + 0.9 * 60,
    "jct_p99_s": 190 + 0.98 * 60,
    # First start - submit: 0, 90, 0.
    "queue_mean_s": 30,
    "queue_p50_s": 0,
    "queue_p95_s": 81,
    # JCT - held: 100 - 100, 250 - (50 + 60), 190 - (60 + 60).
    "wait_mean_s": 70,
    "wait_p50_s": 70,
    "wait_p95_s": 133,
    "makespan_s": 260,
    # Asked for 60, 120, 180 s; held 100, 50 + 60, 60 + 60 s.
    "efficiency": 360 / 330,
    "refused_share": 0,
    "lost_work": 10,
    # 4 ms in 2 decisions.
    "decision_ms_mean": 2.0,
    "decision_ms_max": 3.0,
    "cpu_s": 0.5,
    "wall_s": 0.6,
    "peak_rss_mb": 99.0,
    "reason": "the rest can never start",
    "utilisation_from_s": 0,
    "utilisation_to_s": 50,
    # 0..50: node 0 holds 2 x 50 = 100 of 200, node 1 holds 1 x 30 of 100 GPU-seconds.
    "utilisation": 130 / 300,
    "utilisation_by_type": {"v100": 100 / 200, "t4": 30 / 100},
    # Job 2 did 0.5 x 60 + 0.5 x 60 = 60 units of work and lost 10: 5/6 of its 30 GPU-seconds count.
    "utilisation_productive": 125 / 300,
    # Held 200 + 4 x 50 + 4 x 60 + 60 + 60 = 760; capacity 4 x 260 + 2 x (260 - 40) = 1480.
    "utilisation_to_end": 760 / 1480,
    "held_gpu_s": 760,
    "paused_gpu_s": 4 * 10,
    "lost_gpu_s": 120 / 6,
    "overflow_gpu_s": 0,
    # Held: 640 V100-seconds at 2 USD, 120 T4-seconds at 0.5 USD per hour.
    "cost_held_usd": (640 * 2 + 120 * 0.5) / 3600,
    "cost_held_per_job_usd": (640 * 2 + 120 * 0.5) / 3600 / 3,
    # (4 x 2 + 2 x 0.5) USD per hour for 260 s.
    "cost_cluster_usd": 9 * 260 / 3600,
}


@pytest.mark.parametrize("name", OF_FIVE)
def test_a_metric_of_five_jobs_worked_out_by_hand(name: str) -> None:
    found = metrics.summary(five(), trace_of(FIVE), cluster_of())
    assert found[name] == pytest.approx(OF_FIVE[name])


def test_the_longest_wait_counts_jobs_that_are_still_waiting() -> None:
    # 250 - (50 + 60) = 140 for the second job, 190 - 120 = 70 for the third; the last one waits
    # from 50 to the end at 260.
    found = metrics.summary(five(), trace_of(FIVE), cluster_of())
    assert (found["wait_max_s"], found["waits_over_day"]) == (210.0, 0)
    first = metrics.summary(five(), trace_of(FIVE), cluster_of(), Measure(last_job=3))
    assert first["wait_max_s"] == 140.0


def test_waits_over_a_day_are_longer_than_24_hours() -> None:
    day_s = 86_400.0
    jobs = [
        Job(0, 1, day_s, day_s + 10),
        Job(0, 1, day_s + 1, day_s + 11),
        Job(0, 1, 2 * day_s, outcome="failed"),
        Job(0, 1, 30, outcome="failed"),
        Job(5, 1, outcome="unfinished"),
        Job(5, 1, outcome="refused"),
        Job(5, 1, outcome="impossible"),
    ]
    held = [
        Held(0, day_s, day_s + 10, 1),
        Held(1, day_s + 1, day_s + 11, 1),
        Held(2, 2 * day_s, 2 * day_s + 30, 1),
        Held(3, 30, 60, 1),
    ]
    found = metrics.summary(run_of(jobs, held, 3 * day_s), trace_of(jobs), cluster_of())
    # Exactly a day is not over a day; a failed job waits until it starts; refused and impossible
    # jobs do not wait.
    assert (found["wait_max_s"], found["waits_over_day"]) == (3 * day_s - 5, 3)
    refused = metrics.summary(run_of(jobs[5:], [], day_s), trace_of(jobs[5:]), cluster_of())
    assert math.isnan(refused["wait_max_s"])
    assert refused["waits_over_day"] == 0


def test_deadlines_met_are_of_the_jobs_that_have_one() -> None:
    # Finishes: 100, 260, 210; the last two jobs never finish. Met to the second, missed by one,
    # none, hopeless, missed.
    trace = trace_of(FIVE)
    due = trace.frame.assign(deadline_s=[100.0, 259.0, np.nan, 5.0, np.nan])
    found = metrics.summary(five(), Trace.of(due), cluster_of())
    assert found["deadline_rate"] == pytest.approx(1 / 3)
    assert math.isnan(metrics.summary(five(), trace, cluster_of())["deadline_rate"])
    assert (
        metrics.summary(five(), Trace.of(due), cluster_of(), Measure(to_s=1.0))["deadline_rate"]
        == 1.0
    )


def test_refused_jobs_as_a_share_and_not_in_the_efficiency() -> None:
    jobs = [
        Job(0, 1, 0, 60),
        Job(0, 1, outcome="refused"),
        Job(0, 1, outcome="refused"),
        Job(0, 1, 0, 240, outcome="failed"),
    ]
    found = metrics.summary(
        run_of(jobs, [Held(0, 0, 60, 1), Held(3, 0, 240, 1)], 240.0), trace_of(jobs), cluster_of()
    )
    # Only the first counts: asked for 60 s, held 60 s.
    assert (found["refused_share"], found["efficiency"]) == (0.5, 1.0)
    nothing = run_of([Job(0, 1)], [], 1.0)
    assert math.isnan(metrics.summary(nothing, trace_of(jobs[:1]), cluster_of())["efficiency"])


def test_measure_chooses_jobs_not_gpu_seconds() -> None:
    found = metrics.summary(
        five(), trace_of(FIVE), cluster_of(), Measure(from_s=10, to_s=40, first_job=2)
    )
    assert (found["jobs"], found["completed"], found["impossible"]) == (2, 1, 1)
    assert (found["jct_mean_s"], found["makespan_s"], found["preemptions"], found["evictions"]) == (
        190,
        190,
        0,
        1,
    )
    # The window is 20..40: node 0 holds 2, node 1 holds 1 of 6 GPUs.
    assert found["utilisation"] == pytest.approx(0.5)
    assert found["held_gpu_s"] == pytest.approx(760)
    assert found["cost_held_per_job_usd"] == pytest.approx(120 * 0.5 / 3600)


def test_measure_takes_both_ends() -> None:
    result = five()
    assert metrics.measured_mask(result, Measure(from_s=10, to_s=40)).tolist() == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert metrics.measured_mask(result, Measure(first_job=1, last_job=3)).tolist() == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert metrics.measured_mask(result, Measure()).all()
    assert metrics.measured_mask(result).all()


def test_nothing_completed_gives_no_means() -> None:
    result = run_of([Job(0, 1, outcome="refused"), Job(5, 1, outcome="unfinished")], [], 10.0)
    found = metrics.summary(result, trace_of([Job(0, 1), Job(5, 1)]), cluster_of())
    assert math.isnan(found["jct_mean_s"])
    assert math.isnan(found["queue_p95_s"])
    assert math.isnan(found["makespan_s"])
    assert math.isnan(found["cost_held_per_job_usd"])
    assert (found["utilisation"], found["refused"], found["unfinished"]) == (0, 1, 1)


def test_no_measured_job_at_all() -> None:
    found = metrics.summary(five(), trace_of(FIVE), cluster_of(), Measure(from_s=1000))
    assert found["jobs"] == 0
    assert math.isnan(found["jct_p50_s"])
    assert found["utilisation_to_s"] == 260


def test_all_jobs_at_one_instant_are_measured_to_the_end() -> None:
    jobs = [Job(0, 4, 0, 10), Job(0, 4, 10, 40)]
    result = run_of(jobs, [Held(0, 0, 10, 4), Held(1, 10, 40, 4)], 40.0)
    found = metrics.summary(result, trace_of(jobs), cluster_of())
    assert (found["utilisation_from_s"], found["utilisation_to_s"]) == (0, 40)
    assert found["utilisation"] == pytest.approx(4 * 40 / (6 * 40))


def test_a_horizon_cuts_the_window() -> None:
    jobs = [Job(0, 4, 0, outcome="unfinished"), Job(100, 4, outcome="unfinished")]
    held = [Held(0, 0, 50, 4, ended="open")]
    stopped = metrics.summary(
        run_of(jobs, held, 50.0, reason="horizon"), trace_of(jobs), cluster_of()
    )
    assert (stopped["utilisation_to_s"], stopped["utilisation"]) == (50, pytest.approx(4 / 6))
    # A run that only had nothing more to do is measured over the same window as all others.
    drained = metrics.summary(run_of(jobs, held, 50.0), trace_of(jobs), cluster_of())
    assert (drained["utilisation_to_s"], drained["utilisation"]) == (100, pytest.approx(200 / 600))


def test_overflow_is_reported_apart() -> None:
    jobs = [Job(0, 4, 0, 100), Job(50, 6, 50, 100)]
    held = [Held(0, 0, 100, 4), Held(1, 50, 100, 6, node=2)]
    result = run_of(jobs, held, 100.0, overflow=2)
    found = metrics.summary(result, trace_of(jobs), cluster_of())
    assert (found["overflow_gpu_s"], found["held_gpu_s"]) == (300, 400)
    assert found["utilisation_to_end"] == pytest.approx(400 / 600)
    assert found["cost_held_usd"] == pytest.approx(400 * 2 / 3600)
    series = metrics.utilisation_series(result, cluster_of())
    assert rows(series, "v100", "t4", "total", "overflow") == [
        (0, 4, 0, 4, 0),
        (50, 4, 0, 4, 6),
        (100, 0, 0, 0, 0),
    ]


def test_cpu_nodes_are_charged_by_core_and_have_no_utilisation() -> None:
    cluster = Cluster((NodeGroup(1, 2, "v100"), NodeGroup(1, 0, "", cpus=10.0, price_per_hour=5.0)))
    result = run_of(
        [Job(0, 0, 0, 3600), Job(1, 2, 1, 3600)],
        [Held(0, 0, 3600, 2, node=1), Held(1, 1, 3600, 2)],
        3600.0,
    )
    result.placements["gpus"] = np.array([0, 1], np.int16)
    result.placements["cpus"] = [2.0, 0.0]
    usage = metrics.UsageArrays(result, cluster)
    # Two replicas of two cores on ten cores at 5 USD for an hour.
    assert usage.cost_held_usd()[0] == pytest.approx(2.0)
    assert usage.by_type(usage.held_gpu_s(0, 3600)) == pytest.approx([2 * 3599])
    assert rows(metrics.utilisation_series(result, cluster), "v100", "total") == [
        (0, 0, 0),
        (1, 2, 2),
        (3600, 0, 0),
    ]


def test_absent_nodes_are_neither_capacity_nor_paid_and_broken_ones_are_paid() -> None:
    cluster = cluster_of(Change(20.0, (1,), False), Change(60.0, (1,), True))
    # The run has recorded the same absence, and an outage that overlaps it and goes on.
    result = run_of(
        [Job(0, 1, 0, 100)],
        [Held(0, 0, 100, 1)],
        100.0,
        outages=outages_of([(1, 20, 60, "absent"), (1, 50, 80, "outage")]),
    )
    assert rows(metrics.capacity_series(result, cluster), "v100", "t4", "total") == [
        (0, 4, 2, 6),
        (20, 4, 0, 4),
        (80, 4, 2, 6),
        (100, 4, 2, 6),
    ]
    assert metrics.capacity_gpu_s(result, cluster, 0, 100) == pytest.approx([400, 2 * 40])
    assert metrics.cost_cluster_usd(result, cluster) == pytest.approx((8 * 100 + 1 * 60) / 3600)
    assert metrics.type_use(result, cluster)["capacity_usd"].tolist() == pytest.approx(
        [8 / 36, 60 / 3600]
    )


def test_changes_before_zero_and_open_ends() -> None:
    cluster = cluster_of(
        Change(-5.0, (0,), False),
        Change(30.0, (0,), True),
        Change(70.0, (0,), False),
        Change(80.0, (0,), False),
    )
    result = run_of(
        [Job(0, 1, 0, 100)],
        [Held(0, 0, 100, 1, node=1)],
        100.0,
        outages=outages_of([(1, 90, np.nan, "outage")]),
    )
    assert rows(metrics.capacity_series(result, cluster), "total") == [
        (0, 2),
        (30, 6),
        (70, 2),
        (90, 0),
        (100, 6),
    ]
    assert metrics.capacity_gpu_s(result, cluster, 0, 100) == pytest.approx([4 * 40, 2 * 90])


# -- tables and distributions
# --------------------------------------------------------------------------------------------------


def test_job_table() -> None:
    table = metrics.job_table(five(), trace_of(FIVE))
    assert table["job_id"].tolist() == [f"job{at}" for at in range(5)]
    assert_allclose(table["jct_s"], [100, 250, 190, np.nan, np.nan])
    assert_allclose(table["queue_s"], [0, 90, 0, np.nan, np.nan])
    assert_allclose(table["wait_s"], [0, 140, 70, np.nan, np.nan])
    assert table["size"].tolist() == ["2-4", "2-4", "1", "5-8", "2-4"]
    assert table["user"].tolist() == ["ann", "bob", "bob", "ann", "ann"]
    part = metrics.job_table(five(), trace_of(FIVE), Measure(first_job=1, last_job=2))
    assert part.index.tolist() == [1, 2]


def test_a_preempted_job_that_never_finished_has_a_queueing_delay_but_no_times() -> None:
    result = run_of(
        [Job(0, 1, 5, outcome="unfinished"), Job(1, 1, 1, 4)],
        [Held(0, 5, 9, 1, ended="preempted"), Held(1, 1, 4, 1)],
        20.0,
    )
    table = metrics.job_table(result, trace_of([Job(0, 1), Job(1, 1)]))
    assert table["queue_s"].tolist() == [5, 0]
    assert math.isnan(table["jct_s"][0])
    assert math.isnan(table["wait_s"][0])


def test_size_classes() -> None:
    sizes = np.array([0, 1, 2, 4, 5, 8, 9, 16, 17, 512])
    assert list(metrics.size_class(sizes)) == [
        "0",
        "1",
        "2-4",
        "2-4",
        "5-8",
        "5-8",
        "9-16",
        "9-16",
        ">16",
        ">16",
    ]


def test_jct_cdf_holds_every_job_of_a_small_run() -> None:
    cdf = metrics.jct_cdf(five())
    assert_allclose(cdf["share"], [1 / 3, 2 / 3, 1])
    assert cdf["jct_s"].tolist() == [100, 190, 250]
    assert metrics.jct_cdf(five(), Measure(first_job=2))["jct_s"].tolist() == [190]
    assert metrics.jct_cdf(five(), Measure(first_job=3)).empty


def test_jct_cdf_of_a_large_run_is_the_empirical_distribution_at_400_shares() -> None:
    n = 1010
    jct = np.random.default_rng(1).exponential(100.0, n)
    jobs = [Job(0, 1, 0, value) for value in jct]
    cdf = metrics.jct_cdf(run_of(jobs, [], 1e4))
    assert len(cdf) == 400
    assert cdf["jct_s"].iloc[-1] == jct.max()
    for share, value in cdf.itertuples(index=False):
        # At least that share took at most so long, and one job fewer would not do.
        assert np.mean(jct <= value) >= share - 1e-12
        assert np.mean(jct < value) < share


def test_change_histogram() -> None:
    found = metrics.change_histogram(
        np.array([100.0, 100, 100, 100]), np.array([50.0, 100, 210, 1e9]), bins=4
    )
    # The last ratio is cut to 32: bins are quarters of -5..5 in log2.
    assert_allclose(found["low"], [2.0**-5, 2.0**-2.5, 1, 2.0**2.5])
    assert_allclose(found["high"], [2.0**-2.5, 1, 2.0**2.5, 2.0**5])
    assert found["jobs"].tolist() == [0, 1, 2, 1]
    assert metrics.change_histogram(np.ones(3), np.ones(3), bins=2)["jobs"].tolist() == [0, 3]
    assert metrics.change_histogram(np.zeros(0), np.zeros(0), bins=2)["jobs"].tolist() == [0, 0]


# -- series
# --------------------------------------------------------------------------------------------------


def test_queue_series_worked_out_by_hand() -> None:
    assert rows(metrics.queue_series(five()), "waiting", "gpus_wanted", "running") == [
        (0, 0, 0, 1),  # job 0 starts at once
        (10, 1, 4, 1),  # job 1 waits
        (20, 1, 4, 2),  # job 2 starts at once
        (50, 2, 6, 2),  # job 4 waits; job 3 is impossible and never counts
        (80, 3, 7, 1),  # job 2 is evicted
        (100, 2, 3, 1),  # job 0 leaves, job 1 starts
        (150, 2, 6, 1),  # job 1 is preempted, job 2 starts again
        (200, 1, 2, 2),  # job 1 starts again
        (210, 1, 2, 1),  # job 2 leaves
        (260, 0, 0, 0),  # job 1 leaves; the wait of job 4 is cut here
    ]


def test_refused_failed_and_late_jobs_in_the_queue() -> None:
    jobs = [
        Job(0, 1, outcome="refused", finish=30),
        Job(1, 2, 5, outcome="failed"),  # its last attempt ends at 9
        Job(2, 3, 4, outcome="refused"),  # ran from 4 to 6, refused later: it counts while it ran
        Job(50, 4, outcome="unfinished"),  # submitted after the end
    ]
    result = run_of(
        jobs, [Held(1, 5, 9, 2, ended="evicted"), Held(2, 4, 6, 3, ended="preempted")], 40.0
    )
    # 1: job 1 waits; 2: job 2 too; 4: it runs; 5: job 1 runs; 6: job 2 is gone; 9: job 1 is gone.
    assert rows(metrics.queue_series(result), "waiting", "running") == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
        (4, 1, 1),
        (5, 0, 2),
        (6, 0, 1),
        (9, 0, 0),
        (40, 0, 0),
    ]
    assert littles_law(result) == (8 + 4, 8 + 4)


def test_overlapping_segments_of_one_job_run_once_but_hold_twice() -> None:
    jobs = [Job(0, 1, 0, 10), Job(0, 1, 0, 10)]
    held = [
        Held(0, 0, 6, 1, ended="changed"),
        Held(0, 2, 3, 1, node=1),
        Held(0, 4, 10, 1, node=1),
        Held(1, 0, 10, 1),
    ]
    result = run_of(jobs, held, 10.0)
    series = metrics.queue_series(result)
    assert series["running"].tolist()[:-1] == [2] * (len(series) - 1)
    assert series["waiting"].tolist() == [0] * len(series)
    assert rows(metrics.utilisation_series(result, cluster_of()), "total") == [
        (0, 2),
        (2, 3),
        (3, 2),
        (4, 3),
        (6, 2),
        (10, 0),
    ]


def test_utilisation_series_worked_out_by_hand() -> None:
    assert rows(metrics.utilisation_series(five(), cluster_of()), "v100", "t4", "total") == [
        (0, 2, 0, 2),
        (20, 2, 1, 3),
        (80, 2, 0, 2),
        (100, 4, 0, 4),
        (150, 0, 1, 1),
        (200, 4, 1, 5),
        (210, 4, 0, 4),
        (260, 0, 0, 0),
    ]


def test_fragmented_gpus_worked_out_by_hand() -> None:
    # Node 0 is partly used while job 0 holds 2 of 4; node 1 while job 2 holds 1 of 2. From 200 on
    # node 0 is full.
    states = metrics.state_series(five(), cluster_of())
    at = np.searchsorted(states["t_s"], [0, 20, 79, 80, 100, 150, 209, 210, 260], "right") - 1
    assert states["fragmented"].to_numpy()[at].tolist() == [2, 3, 3, 2, 0, 1, 1, 0, 0]


def test_series_of_a_run_without_any_grant() -> None:
    result = run_of([Job(0, 1, outcome="impossible")], [], 0.0)
    assert rows(metrics.queue_series(result), "waiting", "running") == [(0, 0, 0)]
    assert rows(metrics.utilisation_series(result, cluster_of()), "v100", "total") == [(0, 0, 0)]
    assert rows(metrics.state_series(result, cluster_of()), "fragmented") == [(0, 0)]
    assert rows(metrics.capacity_series(result, cluster_of()), "v100", "t4") == [(0, 4, 2)]
    assert littles_law(result) == (0, 0)


@st.composite
def runs(draw: st.DrawFn) -> RunResult:
    """Any record: jobs that come, run in pieces (also overlapping ones) and end in every way. Times
    are eighths of a second, so all sums are exact.
    """
    eighths = st.integers(0, 800).map(lambda value: value / 8)
    jobs, held = [], []
    for at in range(draw(st.integers(1, 12))):
        submit, outcome = (
            draw(eighths),
            draw(st.sampled_from(["completed", "failed", "refused", "impossible", "unfinished"])),
        )
        cuts = (
            sorted(submit + draw(st.lists(eighths, min_size=2, max_size=6))[i] for i in range(2))
            if outcome != "impossible"
            else []
        )
        pieces = [(a, b) for a, b in pairwise(cuts) if a < b]
        if pieces and draw(st.sampled_from([0, 1])):
            pieces.append((pieces[0][0], pieces[0][1] + draw(eighths)))
        gpus = draw(st.integers(0, 4))
        held += [Held(at, a, b, gpus, node=draw(st.integers(0, 1))) for a, b in pieces]
        finish = max(b for _, b in pieces) if pieces and outcome == "completed" else np.nan
        outcome = "refused" if outcome == "completed" and not pieces else outcome
        jobs.append(Job(submit, gpus, min((a for a, _ in pieces), default=np.nan), finish, outcome))
    jobs_end = max([job.submit for job in jobs] + [piece.t1 for piece in held])
    order = np.argsort([job.submit for job in jobs], kind="stable")
    place = {int(old): new for new, old in enumerate(order)}
    moved = [piece._replace(job=place[piece.job]) for piece in held]
    return run_of([jobs[int(old)] for old in order], moved, jobs_end + draw(eighths))


@given(runs())
def test_littles_law_is_exact(result: RunResult) -> None:
    integral, sojourn = littles_law(result)
    assert integral == sojourn


@given(runs())
def test_series_never_go_below_zero_and_span_the_run(result: RunResult) -> None:
    for frame in (
        metrics.queue_series(result),
        metrics.utilisation_series(result, cluster_of()),
        metrics.state_series(result, cluster_of()),
    ):
        assert (frame.to_numpy() >= 0).all()
        assert frame["t_s"].iloc[0] == 0
        assert frame["t_s"].iloc[-1] == result.end_s
        assert (np.diff(frame["t_s"]) > 0).all()


@given(runs())
def test_busy_gpus_integrate_to_the_gpu_seconds_held(result: RunResult) -> None:
    series = metrics.utilisation_series(result, cluster_of())
    expected = float(
        ((result.segments["t1"] - result.segments["t0"]) * result.segments["gpus"]).sum()
    )
    assert (
        metrics.integral(series["t_s"].to_numpy(), series["total"].to_numpy(), 0, result.end_s)
        == expected
    )
    usage = metrics.UsageArrays(result, cluster_of())
    assert usage.held_gpu_s(0, result.end_s).sum() == expected
    assert usage.productive_gpu_s(
        -np.inf, np.inf
    ).sum() + usage.paused_gpu_s + usage.lost_gpu_s == pytest.approx(expected)


def test_the_arithmetic_of_the_fixture() -> None:
    """The frames of `five` agree with themselves: what was held is what the segments say."""
    result = five()
    assert result.jobs["held_s"].tolist() == [100, 110, 120, 0, 0]
    assert len(FIVE_HELD) == len(result.placements)
