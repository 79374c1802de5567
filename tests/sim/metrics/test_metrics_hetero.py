"""GPU types: figures computed by hand on small runs written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.queue.fifo import Fifo
from sim import metrics
from sim.cluster import Cluster
from sim.conditions import Conditions, Measure
from sim.engine.simulator import Simulator
from sim.metrics.gpu_types import (
    equal_share_jct_s,
    fairness,
    isolated_s,
    note_families,
    note_series,
    quantiles,
    ratios,
    type_shares,
    type_time,
    type_use,
)
from sim.perf.profiled import Profiled
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace
from tests.sim.metrics.metrics_cases import FIVE, Held, Job, cluster_of, five, run_of, trace_of
from tests.sim.scripted import jobs


def test_gpu_seconds_by_job_and_type() -> None:
    # Job 0: 2 GPUs x 100 s; job 1: 4 x (50 + 60); job 2: 1 x (60 + 60) on the T4 node; the others
    # nothing.
    assert type_time(five(), cluster_of()).tolist() == [
        [200, 0],
        [440, 0],
        [0, 120],
        [0, 0],
        [0, 0],
    ]


def test_what_the_overflow_node_held_is_of_no_type() -> None:
    run = run_of([Job(0, 2, 0, 10)], [Held(0, 0, 10, 2, node=2)], 10.0, overflow=2)
    assert type_time(run, cluster_of()).tolist() == [[0, 0]]


def named(**columns: Any) -> Trace:
    trace = trace_of(FIVE)
    return Trace.of(trace.frame.assign(**columns))


def test_shares_of_groups_and_of_the_heaviest_jobs() -> None:
    run = run_of(
        FIVE,
        [
            Held(0, 0, 100, 2),
            Held(1, 0, 50, 4),
            Held(2, 0, 60, 1, node=1),
            Held(2, 60, 80, 1),
            Held(4, 0, 10, 2, node=1),
        ],
        260.0,
    )
    table = type_shares(run, named(model=["A", "A", "B", "", "B"]), cluster_of(), most=2)
    assert list(table.columns) == ["kind", "group", "jobs", "gpu_s", "v100", "t4"]
    rows = {(row["kind"], row["group"]): row for row in table.to_dict("records")}
    # 200 + 200 + 60 + 20 + 20 GPU-seconds, of which 60 + 20 on the T4.
    assert rows["all", "all jobs"]["gpu_s"] == 500
    assert (rows["all", "all jobs"]["jobs"], rows["all", "all jobs"]["t4"]) == (4, 80 / 500)
    assert (rows["size", "1"]["jobs"], rows["size", "1"]["t4"]) == (1, 60 / 80)
    assert (rows["size", "2-4"]["jobs"], rows["size", "2-4"]["v100"]) == (3, 400 / 420)
    assert ("size", "5-8") not in rows
    assert [
        (row["group"], row["v100"]) for row in table.to_dict("records") if row["kind"] == "model"
    ] == [("A", 1.0), ("B", 20 / 100)]
    assert [row["group"] for row in table.to_dict("records") if row["kind"] == "job"] == [
        "job0",
        "job1",
    ]
    assert np.allclose(table[["v100", "t4"]].sum(axis=1), 1.0)


def test_shares_count_measured_jobs_only() -> None:
    table = type_shares(five(), trace_of(FIVE), cluster_of(), Measure(from_s=15.0))
    rows = [["all", "all jobs", 1, 120, 1], ["size", "1", 1, 120, 1], ["job", "job2", 1, 120, 1]]
    assert table[["kind", "group", "jobs", "gpu_s", "t4"]].values.tolist() == rows


def test_nobody_held_anything() -> None:
    run = run_of([Job(0, 9, outcome="impossible")], [], 0.0)
    assert type_shares(run, trace_of([Job(0, 9)]), cluster_of()).empty
    assert type_use(run, cluster_of())["held_gpu_h"].tolist() == [0, 0]


def test_use_and_cost_by_type() -> None:
    table = type_use(five(), cluster_of())
    assert table["gpu_type"].tolist() == ["v100", "t4"]
    assert table["held_gpu_h"].to_numpy() * 3600 == pytest.approx([640, 120])
    # 260 s long; the T4 node, 2 GPUs, was down for 40 s of it but paid for.
    assert table["capacity_gpu_h"].to_numpy() * 3600 == pytest.approx([4 * 260, 2 * 220])
    assert table["held_usd"].to_numpy() * 3600 == pytest.approx([640 * 2.0, 120 * 0.5])
    assert table["capacity_usd"].to_numpy() * 3600 == pytest.approx([4 * 260 * 2.0, 2 * 260 * 0.5])
    assert table["held_usd"].sum() == pytest.approx(
        metrics.UsageArrays(five(), cluster_of()).cost_held_usd().sum()
    )
    assert table["capacity_usd"].sum() == pytest.approx(
        metrics.cost_cluster_usd(five(), cluster_of())
    )


def test_types_without_nodes_have_no_use() -> None:
    cluster = Cluster(cluster_of().groups[:1], cluster_of().types)
    assert type_use(run_of([Job(0, 2, 0, 10)], [Held(0, 0, 10, 2)], 10.0), cluster)[
        "gpu_type"
    ].tolist() == ["v100"]


def noting(
    rows: Sequence[tuple[int, str, float]], when: Sequence[float], end_s: float
) -> RunResult:
    decisions = pd.DataFrame({"t": list(when), "changed": 0, "waiting": 0, "running": 0})
    notes = pd.DataFrame(
        {
            "decision": np.array([row[0] for row in rows], np.int32),
            "name": pd.array([row[1] for row in rows], dtype="str"),
            "value": [row[2] for row in rows],
        }
    )
    return run_of(
        [Job(0, 1, 0, end_s)], [Held(0, 0, end_s, 1)], end_s, decisions=decisions, notes=notes
    )


def test_notes_hold_until_they_are_noted_again() -> None:
    run = noting(
        [
            (0, "price v100", 3.0),
            (0, "payoff", 1.0),
            (2, "price v100", 5.0),
            (3, "price v100", float("nan")),
        ],
        (10.0, 20.0, 30.0, 40.0),
        100.0,
    )
    table = note_series(run)
    price = table[table["name"] == "price v100"]
    assert price[["t_s", "value"]].values.tolist() == [[10, 3], [30, 5], [100, 5]]
    assert table[table["name"] == "payoff"][["t_s", "value"]].values.tolist() == [[10, 1], [100, 1]]


def test_of_several_notes_at_one_instant_the_last_counts() -> None:
    assert note_series(noting([(0, "x", 1.0), (1, "x", 2.0)], (0.0, 0.0), 8.0))[
        ["t_s", "value"]
    ].values.tolist() == [[0, 2], [8, 2]]


def test_long_notes_are_averaged_and_their_integral_stays() -> None:
    many = [(at, "x", float(at % 7)) for at in range(1000)]
    table = note_series(noting(many, [float(at) for at in range(1000)], 1000.0), bins=50)
    assert len(table) == 51
    t, value = table["t_s"].to_numpy(), table["value"].to_numpy()
    assert np.dot(value[:-1], np.diff(t)) == pytest.approx(sum(at % 7 for at in range(1000)))


def test_without_notes_there_is_an_empty_table() -> None:
    table = note_series(five())
    assert (list(table.columns), len(table)) == (["name", "t_s", "value"], 0)


def test_only_so_many_names_are_kept() -> None:
    run = noting([(0, f"n{at}", 1.0) for at in range(40)], (0.0,), 1.0)
    assert note_series(run, most=3)["name"].unique().tolist() == ["n0", "n1", "n2"]


def test_notes_that_differ_in_the_type_are_a_family() -> None:
    found = note_families(["price_v100", "payoff", "price k80", "price_a100"], ["v100", "k80"])
    assert found == {
        "price": {"price_v100": "v100", "price k80": "k80"},
        "payoff": {"payoff": "payoff"},
        "price_a100": {"price_a100": "price_a100"},
    }


def test_equal_shares_by_hand() -> None:
    # One GPU. Until 10 s two jobs have half of it each, then three a third: the first has 5 left,
    # which takes 15 s; the third as long.
    ends = equal_share_jct_s(
        np.array([0.0, 0.0, 10.0]), np.array([10.0, 20.0, 5.0]), np.ones(3), 1.0
    )
    assert ends == pytest.approx([25, 35, 15])


def test_nobody_is_served_more_than_it_can_use() -> None:
    # Ten GPUs for a job of 2 and one of 8: each may have 5, the small one uses 2 of them and what
    # it leaves nobody gets.
    ends = equal_share_jct_s(np.zeros(2), np.array([20.0, 100.0]), np.array([2.0, 8.0]), 10.0)
    # The small one ends after 10 s; the large one has 50 of its 100 by then, and 8 GPUs afterwards.
    assert ends == pytest.approx([10, 10 + 50 / 8])


@given(
    rows=st.lists(
        st.tuples(st.floats(0, 100), st.floats(0.1, 50), st.sampled_from([1.0, 2.0, 4.0])),
        min_size=1,
        max_size=12,
    ),
    capacity=st.sampled_from([2.0, 4.0, 9.0]),
)
def test_equal_shares_agree_with_small_steps(
    rows: list[tuple[float, float, float]], capacity: float
) -> None:
    submit, need, cap = (np.array(column) for column in zip(*sorted(rows), strict=True))
    step, now = 0.02, 0.0
    left, ends = need.copy(), np.full(len(rows), np.nan)
    while np.isnan(ends).any():
        there = (submit <= now) & np.isnan(ends)
        left[there] -= np.minimum(cap[there], capacity / max(there.sum(), 1)) * step
        now += step
        ends[there & (left <= 0)] = now
    # Every arrival and every end may come a step late, and each delays the others.
    assert equal_share_jct_s(submit, need, cap, capacity) == pytest.approx(
        ends - submit, abs=2 * step * (len(rows) + 1)
    )


CLUSTER = Cluster.parse("2x1:v100,1x2:k80")


def test_isolated_run_time_of_one_job_is_that_on_the_average_gpu() -> None:
    trace = jobs((0, 1, 60))
    alone = isolated_s(trace, CLUSTER, Rigid().bind(trace, CLUSTER))
    # Half of the GPUs are V100, on which it was measured, half K80 at 0.22 of their speed.
    assert alone == pytest.approx([60 / ((1 + 0.22) / 2)])


def test_isolated_run_times_of_many_follow_the_published_formula() -> None:
    trace = jobs((0, 1, 60), (0, 1, 60), (0, 1, 60), (0, 1, 60), (0, 2, 60))
    alone = isolated_s(trace, CLUSTER, Rigid().bind(trace, CLUSTER))
    # X = n_j / (M s), rows cut at 1: 4/5 of the time for one GPU, 2/5 for two, while all five are
    # there; then 1, and 1 as soon as it is alone.
    mean = (1 + 0.22) / 2
    first = 60 / (0.8 * mean)
    assert alone[:4] == pytest.approx([first] * 4)
    # The large one has done 0.4 x first x mean of 60 by then.
    assert alone[4] == pytest.approx(first + (60 - 0.4 * first * mean) / mean)


def test_isolated_run_times_with_measured_throughputs() -> None:
    trace = jobs((0, 1, 100), model=["LM"], batch_size=[5])
    model = Profiled().bind(trace, CLUSTER)
    v100, k80 = 109.16661771207029, 25.485501277170847
    assert isolated_s(trace, CLUSTER, model) == pytest.approx([100 * v100 / ((v100 + k80) / 2)])


def test_who_can_never_run_has_no_isolated_time_and_takes_no_share() -> None:
    trace = jobs((0, 1, 60), (0, 5, 60), (0, 0, 60))
    alone = isolated_s(trace, CLUSTER, Rigid().bind(trace, CLUSTER))
    assert alone[0] == pytest.approx(60 / 0.61)
    assert np.isnan(alone[1:]).all()


def test_fairness_is_the_ratio_of_completion_times() -> None:
    table = fairness(five(), np.array([50.0, 500.0, 190.0, 1.0, 1.0]))
    # 100 / 50, 250 / 500, 190 / 190; the two that were not completed do not count.
    assert table["rho"].tolist() == [0.5, 1.0, 2.0]
    assert table["share"].tolist() == pytest.approx([1 / 3, 2 / 3, 1])
    assert fairness(five(), np.array([50.0, np.nan, 190.0, 1.0, 1.0]))["rho"].tolist() == [1.0, 2.0]
    assert fairness(five(), np.full(5, 100.0), Measure(from_s=15.0))["rho"].tolist() == [1.9]


def test_ratios_without_a_reference_are_unknown() -> None:
    assert np.isnan(ratios(five().jobs, np.array([0.0, np.nan, 190.0, 1.0, 1.0]))).tolist() == [
        True,
        True,
        False,
        True,
        True,
    ]


def test_quantiles_are_reduced() -> None:
    table = quantiles(np.arange(1.0, 1001.0), most=10)
    assert table["rho"].tolist() == [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    assert quantiles(np.array([np.nan])).empty


def test_an_idle_cluster_of_one_type_is_as_fast_as_isolation() -> None:
    trace, cluster = jobs((0, 1, 60), (200, 2, 60)), Cluster.parse("1x4:v100")
    result = Simulator(trace, cluster, Fifo(), Conditions()).run()
    assert fairness(result, isolated_s(trace, cluster, Rigid().bind(trace, cluster)))[
        "rho"
    ].tolist() == pytest.approx([1.0, 1.0])
