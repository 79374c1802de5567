from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Change, Cluster, GpuType, NodeGroup
from sim.errors import ClusterError
from sim.perf.parameter_server import ParameterServer
from sim.perf.scaling import PowerLaw
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.traces.samples import SAMPLES, load_sample

CAMPUS = Cluster(
    (
        NodeGroup(2, 8, "a100", rack_size=1, partitions=("prod", "test"), name="big"),
        NodeGroup(3, 4, "t4", cpus=32, mem_gb=256, price_per_hour=1.5),
        NodeGroup(1, 0, "", 96, 512),
    ),
    (GpuType("a100", 3.0, 4.0),),
    (Change(10.0, (1,), False),),
    "campus",
)


def imported(name: str, content: bytes, epoch: str = "") -> Cluster:
    return machines.import_cluster(name, content, epoch).cluster


def edited(table: str = "groups", **cells: object) -> Cluster:
    groups, types = machines.group_table(CAMPUS), machines.type_table(CAMPUS)
    chosen = groups if table == "groups" else types
    for column, value in cells.items():
        chosen[column] = chosen[column].astype(object)
        chosen.loc[0, column] = value
    return machines.cluster_from_tables(groups, types, CAMPUS)


@pytest.mark.parametrize(
    "cluster",
    [CAMPUS, *(load_sample(name)[1] for name in SAMPLES)],
    ids=lambda cluster: cluster.name,
)
def test_tables_that_were_not_edited_give_back_the_very_cluster(cluster: Cluster) -> None:
    assert (
        machines.cluster_from_tables(
            machines.group_table(cluster), machines.type_table(cluster), cluster
        )
        is cluster
    )


def test_an_edit_keeps_everything_else_and_says_so_in_the_name() -> None:
    made = edited(rack_size=2)
    assert made.groups[0] == NodeGroup(
        2, 8, "a100", rack_size=2, partitions=("prod", "test"), name="big"
    )
    assert made.groups[1:] == CAMPUS.groups[1:]
    assert made.changes == CAMPUS.changes
    assert made.name == "campus (edited)"
    again = machines.cluster_from_tables(
        machines.group_table(made).assign(rack_size=1), machines.type_table(made), made
    )
    assert again.name == "campus (edited)"


def test_dated_changes_name_nodes_so_other_counts_drop_them() -> None:
    assert edited(nodes=5).changes == ()


def test_types_that_are_no_longer_used_are_left_out() -> None:
    assert [kind.name for kind in edited(gpu_type="H100").types] == ["t4", "h100"]


def test_speed_and_price() -> None:
    assert edited("types", speed=2.5, price_per_gpu_hour=0.0).types[0] == GpuType("a100", 2.5, 0.0)


def test_a_row_without_a_number_of_nodes_is_not_there_yet() -> None:
    assert len(edited(nodes=None).groups) == 2
    assert len(edited(nodes=pd.NA).groups) == 2


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"nodes": -1}, "Row 1"),
        ({"nodes": 1.5}, "whole number"),
        ({"nodes": "many"}, "not a number"),
        ({"gpu_type": ""}, "no GPU type"),
        ({"cores": -3.0}, "cores"),
        ({"price_per_node_hour": math.inf}, "price"),
    ],
)
def test_an_impossible_cell_is_one_sentence(cells: dict[str, object], said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        edited(**cells)


def test_an_empty_speed_is_one_sentence() -> None:
    with pytest.raises(ClusterError, match="GPU type a100: the speed"):
        edited("types", speed=None)


def test_totals_weigh_by_speed() -> None:
    total = machines.cluster_totals(CAMPUS)
    assert (total.nodes, total.gpus) == (6, 28)
    assert total.equivalents == pytest.approx(16 * 3.0 + 12 * CAMPUS.types[1].speed)
    assert total.groups == ("2 × 8 a100", "3 × 4 t4", "1 CPU node")
    assert total.price_per_hour == pytest.approx(2 * 8 * 4.0 + 3 * 1.5)


def trace(**columns: object) -> Trace:
    return Trace.of(
        pd.DataFrame(
            {
                "job_id": ["a", "b"],
                "submit_time_s": [0.0, 100.0],
                "num_gpus": [1, 20],
                "duration_s": [50.0, 100.0],
                **columns,
            }
        )
    )


def test_jobs_too_large_for_one_type_are_impossible() -> None:
    found = machines.find_unschedulable_jobs(trace(), CAMPUS)
    assert (found.jobs, found.need_resizing, list(found.first_jobs["job_id"])) == (1, 0, ["b"])
    assert machines.find_unschedulable_jobs(trace(num_gpus=[1, 1]), CAMPUS).sentences() == ()


def test_a_job_that_may_shrink_is_impossible_only_for_those_who_do_not_resize() -> None:
    # "b" asks for more than one type has, but may run on a quarter of it under the assumption of
    # the power law.
    found = machines.find_unschedulable_jobs(trace(), CAMPUS, PowerLaw())
    assert (found.jobs, found.need_resizing, list(found.first_jobs["job_id"])) == (0, 1, ["b"])
    assert found.sentences() == (
        (
            "1 job can never start at the requested size: only a policy that resizes jobs can start"
            " them, on fewer GPUs."
        ),
    )
    assert machines.find_unschedulable_jobs(trace(), CAMPUS, PowerLaw(shrink=1.0)).jobs == 1


def test_workers_and_servers_that_no_node_can_hold_are_told_before_the_run() -> None:
    small = Cluster((NodeGroup(2, 0, cpus=16, mem_gb=32),))
    found = machines.find_unschedulable_jobs(
        trace(num_gpus=[0, 0], workers=[1, 1], servers=[1, 1], server_mem_gb=[32, 33]),
        small,
        ParameterServer(),
    )
    assert (found.jobs, found.first_jobs[["job_id", "server_mem_gb"]].to_numpy().tolist()) == (
        1,
        [["b", 33]],
    )
    assert found.sentences() == (
        f"1 job {_NEVER} the cores and memory of their parameter servers. {_WAY_OUT}",
    )
    assert (
        machines.find_unschedulable_jobs(trace(num_gpus=[0, 1]), small, ParameterServer()).jobs == 1
    )


_NEVER = "can never start: even the empty cluster has no room for"
_WAY_OUT = "They count as impossible and delay no other job. Add nodes, or keep the jobs."


def test_each_cause_is_a_sentence_of_its_own() -> None:
    # Two nodes of 4 GPUs, 16 cores and 32 GB. A worker has a core of its own, a server 5.
    mixed = Cluster((NodeGroup(2, 4, "v100", cpus=16, mem_gb=32),))
    columns: dict[str, list[float]] = {
        "num_gpus": [1, 9, 8, 2, 2, 2, 0],
        "worker_cpus": [1, 1, 5, 1, 1, 1, 17],
        "worker_mem_gb": [0, 0, 0, 0, 0, 20, 0],
        "servers": [1, 0, 0, 7, 2, 2, 0],
        "server_mem_gb": [0, 0, 0, 0, 33, 20, 0],
    }
    jobs = pd.DataFrame(
        {"job_id": list("abcdefg"), "submit_time_s": 0.0, "duration_s": 9.0, **columns}
    )
    found = machines.find_unschedulable_jobs(Trace.of(jobs), mixed, ParameterServer(shrink=1.0))
    assert (found.jobs, found.first_jobs["job_id"].tolist()) == (6, list("bcdefg"))
    assert found._replace(doubts=()).sentences() == (
        f"1 job {_NEVER} a gang of that size on one GPU type on which it can run.",
        f"2 jobs {_NEVER} the cores and memory of their GPUs or workers.",
        f"2 jobs {_NEVER} the cores and memory of their parameter servers.",
        f"1 job {_NEVER} their workers and parameter servers together. {_WAY_OUT}",
    )
    one = machines.find_unschedulable_jobs(
        Trace.of(jobs.iloc[:2]), mixed, ParameterServer(shrink=1.0)
    )
    assert one._replace(doubts=()).sentences() == (
        f"1 job {_NEVER} a gang of that size on one GPU type on which it can run. {_WAY_OUT}",
    )


def test_gangs_that_only_a_mixing_policy_can_start_are_counted() -> None:
    cluster = Cluster((NodeGroup(1, 4, "v100"), NodeGroup(1, 4, "k80")))
    found = machines.find_unschedulable_jobs(trace(num_gpus=[8, 9]), cluster)
    assert (found.jobs, found.need_mixing) == (2, 1)
    assert found._replace(doubts=()).sentences() == (
        f"2 jobs {_NEVER} a gang of that size on one GPU type on which it can run. {_WAY_OUT}",
        "Only a policy that mixes GPU types can start 1 of them.",
    )


def test_load_is_work_over_room() -> None:
    # From second 10 on one node of 8 is away.
    assert machines.offered_load(trace(), CAMPUS) == pytest.approx(
        (50 + 2000) / (28 * 100 - 8 * 90)
    )
    assert machines.offered_load(trace(), CAMPUS, np.array([True, False])) == pytest.approx(
        50 / (28 * 100 - 8 * 90)
    )
    assert machines.offered_load(trace(submit_time_s=[0.0, 0.0]), CAMPUS) == math.inf


def test_load_counts_jobs_at_the_speed_of_the_fastest_type_there() -> None:
    both = Cluster(
        (NodeGroup(1, 8, "v100"), NodeGroup(1, 8, "a100")),
        (GpuType("a100", 2.0, 4.0), GpuType("v100", 1.0, 2.0)),
    )
    jobs = trace(gpu_type=["v100", "a100"])
    # What took 50 GPU-seconds on V100 takes 25 on A100; the other was measured on A100.
    assert machines.offered_load(jobs, both) == pytest.approx((25 + 2000) / (16 * 100))
    only = Cluster(
        (NodeGroup(1, 8, "v100"),), (GpuType("v100", 1.0, 2.0), GpuType("a100", 2.0, 4.0))
    )
    assert machines.offered_load(jobs, only) == pytest.approx((50 + 4000) / (8 * 100))


def test_presets_are_the_samples_one_from_the_trace_and_a_uniform_one() -> None:
    made = machines.cluster_presets(trace(vc=["x", "y"], gpu_type=["t4", "t4"]))
    assert [preset.name for preset in made] == [
        "Guess from the trace",
        "A100 and V100",
        "One node",
        "Philly-like (Microsoft, 2017)",
        "Venus-like (SenseTime Helios, 2020)",
        "PAI-like (Alibaba, 2020)",
        "H100",
    ]
    assert made[0].cluster.partitions == ("x", "y")
    assert {group.gpu_type for group in made[0].cluster.groups} == {"t4"}
    assert "virtual clusters" in made[0].help
    assert "without recorded starts" in machines.cluster_presets(trace())[0].help
    assert machines.cluster_presets()[0].name == "A100 and V100"


def test_one_row_per_node() -> None:
    assert len(machines.node_rows(CAMPUS)) == 6


def test_a_cluster_file_is_a_description_or_a_table_of_virtual_clusters() -> None:
    described = Cluster.parse("2x8:v100")
    assert imported("mine.json", json.dumps(described.to_json()).encode()) == described
    assert (
        imported("scenario.json", json.dumps({"cluster": described.to_json()}).encode())
        == described
    )
    table = imported("vc.csv", b"vc,node num\nalpha,2\nbeta,1\n")
    assert [(node.partitions, node.gpus) for node in table.nodes] == [
        (("alpha",), 8),
        (("alpha",), 8),
        (("beta",), 8),
    ]
    # The trace begins at noon of the first day, so the second day's size holds from 12 h on.
    daily = b"date,alpha,total\n2020-04-01,8,8\n2020-04-02,16,16\n"
    changes = imported("daily.csv", daily, "2020-04-01T12:00:00").changes
    assert (43_200.0, True) in [(change.at_s, change.present) for change in changes]
    with pytest.raises(ClusterError):
        imported("vc.csv", b"vc,node num\nalpha,-2\n")


@pytest.mark.parametrize(
    "content", [b"%PDF-1.4 plan", b"<html></html>", b"a" * 70_000, b"a,b,c\n1,2,3\n"]
)
def test_a_file_of_something_else_is_told_as_one_of_machines(content: bytes) -> None:
    with pytest.raises(ClusterError, match=r"description of machines|table of nodes") as caught:
        machines.import_cluster("plan.csv", content)
    assert "trace" not in str(caught.value)
    assert "jobs" not in str(caught.value)


def test_a_trace_that_asks_for_more_than_any_cluster_has_leaves_the_other_presets() -> None:
    frame = pd.DataFrame(
        {"job_id": ["a"], "submit_time_s": [0.0], "num_gpus": [9_000_000], "duration_s": [60.0]}
    )
    names = [preset.name for preset in machines.cluster_presets(Trace.of(frame))]
    assert "Guess from the trace" not in names
    assert names == [preset.name for preset in machines.cluster_presets()]
