"""What teams had, worked out by hand."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import make
from allocators.quotas import Quota
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Plan, Spec
from sim.engine.simulator import Simulator
from sim.errors import ParameterError
from sim.metrics.gpu_seconds import UsageArrays
from sim.overheads import Overheads
from sim.trace import Trace
from tests.sim.scripted import Script, on
from trainyard.results.tenants import column_of, job_stops, proposed_quotas, teams_of, tenant_report

CLUSTER = Cluster.parse("1x8:v100")


def trace_of(rows: list[tuple[float, int, float, str]]) -> Trace:
    frame = pd.DataFrame(rows, columns=["submit_time_s", "num_gpus", "duration_s", "vc"])
    frame.insert(0, "job_id", [f"j{at:03}" for at in range(len(frame))])
    return Trace.of(frame)


ROWS = [(0, 4, 7200, "a"), (0, 4, 3600, "a"), (1800, 2, 3600, "b")]
"""a holds 8 GPUs, twice its quota, until 3600 s; b asks for 2 at 1800 s and gets them at 3600 s."""


def test_what_teams_had_is_exact() -> None:
    trace = trace_of(ROWS)
    result = Simulator(trace, CLUSTER, make(Spec("fifo"))).run()
    teams = teams_of(trace, CLUSTER, [Spec("fifo")], (Quota("a", 4), Quota("b", 4)))
    report = tenant_report(result, teams, CLUSTER)
    a, b = (report.table.set_index("team").loc[name] for name in "ab")
    assert (a["jobs"], a["used_h"], a["deserved_h"], a["borrowed_h"]) == (2, 12, 8, 4)
    assert (a["starved_s"], a["lent_h"]) == (0, 0)
    # b's 4 GPUs are lent for an hour; for half of it b wants two of them itself.
    assert (b["used_h"], b["deserved_h"], b["lent_h"]) == (2, 3, 4)
    assert (b["starved_s"], b["starved_h"], b["by_borrowers_h"], b["by_place_h"]) == (1800, 1, 1, 0)
    assert (b["reclaim_p50_s"], b["wait_p50_s"], b["wait_p95_s"]) == (1800, 1800, 1800)
    # Until 1800 s the fair share of a is 8, then 6 and 2; a is 2 above it for half an hour of two.
    assert a["share_error"] == pytest.approx(0.5)
    assert b["share_error"] == pytest.approx(0.5)
    # Alone: 1. Then used / deserved are 2 and 0: 1/2 for half an hour. Then 1 and 1.
    assert report.jain == pytest.approx((0.5 + 0.25 + 1.0) / 2)
    assert report.t_s.tolist() == [0, 1800, 3600, 7200]
    assert report.used["a"].tolist() == [8, 8, 4]
    assert report.lacking["b"].tolist() == [0, 2, 0]


def test_under_kai_the_quota_comes_back_at_once() -> None:
    trace = trace_of(ROWS)
    result = Simulator(trace, CLUSTER, make(Spec("kai"))).run()
    teams = teams_of(trace, CLUSTER, [Spec("kai")], (Quota("a", 4), Quota("b", 4)))
    table = tenant_report(result, teams, CLUSTER).table.set_index("team")
    assert table.loc["b", "starved_s"] == 0
    assert table.loc["a", "stopped"] == 1
    assert isnan(table.loc["b", "reclaim_p50_s"])
    # One job of a was stopped for b, and kept its work.
    assert table["evicted"].to_dict() == {"a": 0, "b": 1}
    assert table["evicted_lost_h"].tolist() == [0, 0]


def with_losses(rows: list[tuple[float, int, float, str]], policy: str) -> pd.DataFrame:
    trace = trace_of(rows)
    losing = Conditions(overheads=Overheads(on_preempt="lose_all"))
    result = Simulator(trace, CLUSTER, make(Spec(policy)), losing).run()
    teams = teams_of(trace, CLUSTER, [], (Quota("a", 4), Quota("b", 4)))
    return tenant_report(result, teams, CLUSTER).table.set_index("team")


def test_what_a_reclaim_cost_others() -> None:
    # Half an hour on four GPUs was for nothing.
    table = with_losses(ROWS, "kai")
    assert table["evicted_lost_h"].to_dict() == {"a": 0, "b": 2}
    # Stopped at 600 s and, 600 s after its second start, at 1500 s: 8 GPUs for 600 s each time.
    twice = [(0, 8, 3600, "a"), (600, 8, 300, "b"), (1500, 8, 300, "b")]
    table = with_losses(twice, "srtf")
    assert table["evicted"].to_dict() == {"a": 0, "b": 2}
    assert table["evicted_lost_h"].to_dict() == {"a": 0, "b": pytest.approx(8 / 3)}
    assert table["stopped"].to_dict() == {"a": 2, "b": 0}
    # What a team stops of its own is for nobody else, also where others wait.
    own = [(0, 8, 3600, "a"), (600, 8, 300, "a"), (700, 1, 5000, "b")]
    table = with_losses(own, "srtf")
    assert (table["stopped"].sum(), table["evicted"].sum()) == (1, 0)


@pytest.mark.parametrize("gives_way", [True, False])
def test_a_job_that_gives_way_for_good_loses_all_and_one_at_its_limit_gives_way_to_nobody(
    gives_way: bool,
) -> None:
    plan = Plan({1: on(0, 8)} | ({0: None} if gives_way else {}), ended=frozenset({0}))
    # It is asked again in the same instant, as a job has left.
    script: Any = Script(
        {0: Plan({0: on(0, 8)}), 900: lambda view: plan if 0 in view.grants else Plan()}
    )
    trace = trace_of([(0, 8, 3600, "a"), (900, 8, 60, "b")])
    result = Simulator(trace, CLUSTER, script).run()
    assert list(result.jobs["outcome"]) == ["failed", "completed"]
    teams = teams_of(trace, CLUSTER, [], (Quota("a", 4), Quota("b", 4)))
    table = tenant_report(result, teams, CLUSTER).table.set_index("team")
    assert table["evicted"].to_dict() == {"a": 0, "b": int(gives_way)}
    assert table["evicted_lost_h"].to_dict() == {"a": 0, "b": 2 * gives_way}


def test_beyond_its_quota_a_job_is_stopped_for_whoever_gets_its_gpus() -> None:
    # b holds its quota already, and its third job takes the place of the long one of a.
    rows = [(0, 4, 7200, "a"), (0, 4, 900, "b"), (600, 4, 60, "b")]
    table = with_losses(rows, "srtf")
    assert table.loc["b", ["quota", "evicted"]].tolist() == [4, 1]
    assert table.loc["b", "evicted_lost_h"] == pytest.approx(4 * 600 / 3600)


def test_a_gap_that_nobody_borrows_is_one_of_placement() -> None:
    # FIFO holds b back behind a's job of 8, though 4 GPUs are free: nobody is above its quota.
    trace = trace_of([(0, 4, 3600, "a"), (0, 8, 3600, "a"), (0, 4, 3600, "b")])
    result = Simulator(trace, CLUSTER, make(Spec("fifo"))).run()
    teams = teams_of(trace, CLUSTER, [], (Quota("a", 4), Quota("b", 4)))
    table = tenant_report(result, teams, CLUSTER).table.set_index("team")
    # An hour by placement, then an hour in which a borrows b's four.
    assert (table.loc["b", "by_place_h"], table.loc["b", "by_borrowers_h"]) == (4, 4)


def test_demand_never_falls_below_use_and_integrals_are_those_of_the_record() -> None:
    rng = np.random.default_rng(5)
    rows = [
        (float(at * 300), int(rng.choice([1, 2, 4])), float(rng.integers(100, 9000)), team)
        for at, team in enumerate(rng.choice(list("abc"), 80))
    ]
    trace = trace_of(rows)
    result = Simulator(trace, CLUSTER, make(Spec("srtf"))).run()
    report = tenant_report(result, teams_of(trace, CLUSTER, []), CLUSTER)
    table = report.table
    assert table["used_h"].sum() * 3600 == pytest.approx(result.jobs["served_gpu_s"].sum())
    assert (table["deserved_h"] - table["starved_h"] <= table["used_h"] + 1e-6).all()
    assert table["lent_h"].sum() <= table["borrowed_h"].sum() + 1e-6
    assert table["stopped"].sum() == (result.segments["ended"] == "preempted").sum()
    assert 0 < table["evicted"].sum() <= table["stopped"].sum()
    losing = Conditions(overheads=Overheads(on_preempt="lose_all"))
    result = Simulator(trace, CLUSTER, make(Spec("srtf")), losing).run()
    lost_s = job_stops(result)["lost_gpu_s"].sum()
    assert lost_s == pytest.approx(UsageArrays(result, CLUSTER).lost_gpu_s)
    assert lost_s > 0


def test_where_no_job_ran_nothing_was_stopped() -> None:
    trace = trace_of([(0, 64, 100, "a"), (0, 64, 100, "b")])
    result = Simulator(trace, CLUSTER, make(Spec("fifo"))).run()
    assert job_stops(result).empty
    assert tenant_report(result, teams_of(trace, CLUSTER, []), CLUSTER).table["stopped"].sum() == 0


def test_quotas_are_proposed_by_use() -> None:
    trace = trace_of([(0, 1, 3000, "a"), (0, 1, 1500, "b"), (0, 1, 1500, "c")])
    made = proposed_quotas(trace, CLUSTER, "vc")
    assert made == (Quota("a", 4), Quota("b", 2), Quota("c", 2))
    assert sum(row.deserved for row in proposed_quotas(trace, Cluster.parse("1x7:v100"), "vc")) == 7


def test_what_rounding_leaves_goes_to_the_largest_remainders() -> None:
    # 5, 3 and 1 of 9 GPU-hours on 8 GPUs: 4.44, 2.67 and 0.89; rounded down 4, 2 and 0.
    trace = trace_of([(0, 5, 3600, "a"), (0, 3, 3600, "b"), (0, 1, 3600, "c")])
    assert proposed_quotas(trace, CLUSTER, "vc") == (Quota("a", 4), Quota("b", 3), Quota("c", 1))


def test_quotas_are_those_of_the_policies() -> None:
    trace = trace_of(ROWS)
    spec = Spec.of("quota", table="a: 6; b: 2")
    teams = teams_of(trace, CLUSTER, [Spec("fifo"), spec])
    assert teams.names == ("a", "b", "without quota")
    assert teams.assumed == "Quotas as policy quota has them."
    assert [row.deserved for row in teams.quotas] == [6, 2, 0]


def test_a_trace_without_teams_is_said() -> None:
    frame = pd.DataFrame(
        {"job_id": ["x"], "submit_time_s": [0], "num_gpus": [1], "duration_s": [1]}
    )
    with pytest.raises(ParameterError, match="names no tenants"):
        column_of(Trace.of(frame))


def test_a_column_that_the_trace_lacks_is_said_with_those_that_it_has() -> None:
    trace = trace_of(ROWS)
    with pytest.raises(ParameterError, match="has no accounts"):
        column_of(trace, "account")


def test_accounts_name_teams_before_partitions_and_users_do() -> None:
    frame = trace_of(ROWS).frame.drop(columns="vc")
    owners = [f"lab {at % 2}" for at in range(len(frame))]
    trace = Trace.of(frame.assign(account=owners, partition=owners, user=owners))
    assert column_of(trace) == "account"
    teams = teams_of(trace, CLUSTER, [])
    assert [row.name for row in teams.quotas] == ["lab 0", "lab 1", "without quota"]
    found = Simulator(trace, CLUSTER, make(Spec.of("quota", table="lab 0: 8"))).run()
    assert set(found.jobs["outcome"]) == {"completed"}


def test_quotas_above_the_cluster_and_of_nobody_are_said() -> None:
    trace = trace_of(ROWS)
    teams = teams_of(trace, CLUSTER, [], (Quota("a", 100), Quota("z", 4)))
    assert teams.assumed == (
        "Quotas as given. They add up to 104 GPUs, the cluster has 8. The trace has no tenant"
        " called z."
    )
