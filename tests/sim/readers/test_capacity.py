from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import Cluster
from sim.errors import ClusterError
from sim.readers.capacity import cluster_from_trace, cluster_from_vc_config, peak_gpus
from sim.trace import Trace

DAILY = b"date,vcAb,vcXY,total\n2020-04-01,16,8,24\n2020-04-02,32,8,40\n2020-04-03,8,20,28\n"


def trace(**columns: list[object]) -> Trace:
    jobs = len(columns["num_gpus"])
    table = pd.DataFrame({"job_id": [f"j{at}" for at in range(jobs)], **columns})
    return Trace.of(table)


def sizes(cluster: Cluster) -> dict[str, int]:
    return {group.name: group.count for group in cluster.groups}


def present(cluster: Cluster, at_s: float) -> dict[str, int]:
    there = dict.fromkeys(range(len(cluster.nodes)), True)
    for change in sorted(cluster.changes, key=lambda change: change.at_s):
        if change.at_s <= at_s:
            there |= dict.fromkeys(change.nodes, change.present)
    counts = dict.fromkeys(cluster.partitions, 0)
    for at, node in enumerate(cluster.nodes):
        counts[node.partitions[0]] += there[at]
    return counts


def test_peak_of_recorded_use() -> None:
    # a holds 8 GPUs over 0..100 and b 4 over 50..60; c takes 8 at 100, the instant a leaves: the
    # peak is 12, which needs 2 nodes.
    jobs = trace(
        submit_time_s=[0, 0, 0, 0],
        start_time_s=[0, 50, 100, 0],
        duration_s=[100, 10, 50, 5],
        num_gpus=[8, 4, 8, 24],
        vc=["one", "one", "one", "two"],
    )
    cluster = cluster_from_trace(jobs)
    assert sizes(cluster) == {"one": 2, "two": 3}
    assert all(
        group.partitions == (group.name,) and group.gpus == 8 and group.gpu_type == "v100"
        for group in cluster.groups
    )
    assert sizes(cluster_from_trace(jobs, 4, "a100")) == {"one": 3, "two": 6}


def test_offered_load_without_recorded_starts() -> None:
    # 10 jobs of 8 GPUs for 1000 s over 900 s of submissions; the longest job, 1000 s, is the longer
    # span: 80,000 / (0.85 x 1000) = 94.1 GPUs, 12 nodes.
    jobs = trace(submit_time_s=list(range(0, 1000, 100)), duration_s=[1000] * 10, num_gpus=[8] * 10)
    assert sizes(cluster_from_trace(jobs)) == {"": 12}
    assert sizes(cluster_from_trace(jobs, load=0.4)) == {"": 25}
    assert cluster_from_trace(jobs).groups[0].partitions == ()


def test_the_biggest_job_fits() -> None:
    jobs = trace(submit_time_s=[0, 1_000_000], duration_s=[10, 10], num_gpus=[64, 1])
    assert sizes(cluster_from_trace(jobs)) == {"": 8}


def test_groups_by_partition() -> None:
    jobs = trace(
        submit_time_s=[0, 1],
        duration_s=[10, 10],
        num_gpus=[8, 16],
        vc=["a", "a"],
        partition=["x", "y"],
    )
    # Work / (0.85 x 10 s): 240 / 8.5 = 28.2 GPUs together, 9.4 and 18.8 apart.
    assert sizes(cluster_from_trace(jobs)) == {"a": 4}
    assert sizes(cluster_from_trace(jobs, by="partition")) == {"x": 2, "y": 3}


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 9)),
        min_size=1,
        max_size=30,
    )
)
def test_peak_equals_a_count_second_by_second(jobs: list[tuple[int, int, int]]) -> None:
    start, run, gpus = (np.array(column, float) for column in zip(*jobs, strict=True))
    expected = max(sum(g for s, r, g in jobs if s <= second < s + r) for second in range(80))
    assert peak_gpus(start, run, gpus) == expected


@pytest.mark.parametrize(
    "text",
    [b",num\nvcA,9\nvcB,5\n", b"vc,node num\nvcA,9\nvcB,5\n", b"vc;nodes\r\nvcA;9\r\nvcB;5\r\n"],
)
def test_fixed_sizes(text: bytes) -> None:
    cluster = cluster_from_vc_config(text)
    assert sizes(cluster) == {"vcA": 9, "vcB": 5}
    assert cluster.gpus == 112
    assert cluster.partitions == ("vcA", "vcB")


def test_daily_sizes_become_changes() -> None:
    cluster = cluster_from_vc_config(DAILY)
    assert sizes(cluster) == {"vcAb": 4, "vcXY": 3}
    assert present(cluster, 0) == {"vcAb": 2, "vcXY": 1}
    assert present(cluster, 86_400) == {"vcAb": 4, "vcXY": 1}
    assert present(cluster, 200_000) == {
        "vcAb": 1,
        "vcXY": 3,
    }  # 20 GPUs are three nodes, the last one half used
    assert {change.at_s for change in cluster.changes} == {0, 86_400, 172_800}


def test_days_on_which_clocks_were_set() -> None:
    # In Shanghai 0:00 to 1:00 of the second day did not exist, and 1:30 of the third came twice.
    cluster = cluster_from_vc_config(
        b"date,vcA\n1940-05-31,8\n1940-06-01,16\n1986-09-14T01:30,24\n"
    )
    assert sorted({change.at_s for change in cluster.changes})[:2] == [0, 86_400]
    assert cluster.gpus == 24


def test_daily_sizes_start_at_the_epoch_of_the_trace() -> None:
    cluster = cluster_from_vc_config(DAILY, epoch="2020-04-02T06:00:00+08:00")
    assert present(cluster, 0) == {"vcAb": 4, "vcXY": 1}
    assert present(cluster, 18 * 3600) == {"vcAb": 1, "vcXY": 3}
    assert min(change.at_s for change in cluster.changes) == 0


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"%PDF-1.4",
        b"vc,nodes\n",
        b"vc,nodes\nvcA,-1\n",
        b"a,b,c\n1,2,3\n4,5,6\n",
        b"vc,price\nvcA,2\n",
        b"vc,nodes\nvcA,1.5\n",
        b"vc,nodes\nvcA,x\n",
        b"vc,nodes\nvcA,1\nvcA,2\n",
        b"date,vcA,vcA\n2020-01-01,8,8\n",
        b"date,vcA\nsoon,8\n",
        b"date,vcA\ntoday,8\n",
        b"date,vcA\n2020-01-01T00:00:00+08:00,8\n",
        b"date,vcA\n2020-01-01,8\n2020-01-02T00:00:00+08:00,8\n",
        b"date,vcA\n0001-01-01,8\n",
        b"date,vcA\n2020-01-01,-8\n",
    ],
)
def test_bad_files(text: bytes) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster_from_vc_config(text)
    assert str(caught.value).endswith(".")


def test_bad_arguments() -> None:
    jobs = trace(submit_time_s=[0], duration_s=[10], num_gpus=[8])
    for bad in ({"load": 0}, {"by": "user"}, {"gpus_per_node": 0}):
        with pytest.raises(ClusterError):
            cluster_from_trace(jobs, **bad)
    with pytest.raises(ClusterError, match="nodes of 8 GPUs"):
        cluster_from_trace(trace(submit_time_s=[0], duration_s=[1], num_gpus=[9_000_000]))
    with pytest.raises(ClusterError, match="epoch"):
        cluster_from_vc_config(DAILY, epoch="yesterday")
