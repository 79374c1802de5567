"""Sizes of virtual clusters, fixed or by the day."""

from __future__ import annotations

import pytest

from sim.cluster import Cluster
from sim.errors import ClusterError
from tests.shared import shared
from trainyard.clusters.node_lists import open_machine_table
from trainyard.clusters.virtual_clusters import import_virtual_clusters, read_virtual_clusters

DAILY = b"date,vcAb,vcXY,total\n2020-04-01,16,8,24\n2020-04-02,32,8,40\n2020-04-03,8,20,28\n"


def sized(content: bytes, epoch: str = "") -> Cluster:
    return read_virtual_clusters(open_machine_table(content, "vc.csv"), epoch)


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


@pytest.mark.parametrize(
    "text",
    [b",num\nvcA,9\nvcB,5\n", b"vc,node num\nvcA,9\nvcB,5\n", b"vc;nodes\r\nvcA;9\r\nvcB;5\r\n"],
)
def test_fixed_sizes(text: bytes) -> None:
    cluster = sized(text)
    assert sizes(cluster) == {"vcA": 9, "vcB": 5}
    assert cluster.gpus == 112
    assert cluster.partitions == ("vcA", "vcB")


def test_daily_sizes_become_changes() -> None:
    cluster = sized(DAILY)
    assert sizes(cluster) == {"vcAb": 4, "vcXY": 3}
    assert present(cluster, 0) == {"vcAb": 2, "vcXY": 1}
    assert present(cluster, 86_400) == {"vcAb": 4, "vcXY": 1}
    assert present(cluster, 200_000) == {
        "vcAb": 1,
        "vcXY": 3,
    }  # 20 GPUs are three nodes, the last one half used
    assert {change.at_s for change in cluster.changes} == {0, 86_400, 172_800}


@pytest.mark.parametrize(
    "text", [b'"date","a","total"\n"2020-04-01","16","16"\n', b"date;a;total\n2020-04-01;16;16\n"]
)
def test_a_list_of_one_day_is_one_of_gpus(text: bytes) -> None:
    found = import_virtual_clusters(open_machine_table(text, "vc.csv"), "")
    assert sizes(found.cluster) == {"a": 2}
    assert [note for note in found.notes if "The file gives GPUs, not nodes" in note]


def test_days_on_which_clocks_were_set() -> None:
    # In Shanghai 0:00 to 1:00 of the second day did not exist, and 1:30 of the third came twice.
    cluster = sized(b"date,vcA\n1940-05-31,8\n1940-06-01,16\n1986-09-14T01:30,24\n")
    assert sorted({change.at_s for change in cluster.changes})[:2] == [0, 86_400]
    assert cluster.gpus == 24


def test_daily_sizes_start_at_the_epoch_of_the_trace() -> None:
    cluster = sized(DAILY, epoch="2020-04-02T06:00:00+08:00")
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
        sized(text)
    assert str(caught.value).endswith(".")


def test_more_than_is_simulated() -> None:
    with pytest.raises(ClusterError, match=r"vcA has 200,001 nodes, more than the limit of"):
        sized(b"vc,nodes\nvcA,200001\n")
    with pytest.raises(ClusterError, match="the epoch 'yesterday' is not an ISO time"):
        sized(DAILY, epoch="yesterday")


def test_clusters_from_published_sizes() -> None:
    assert sized(shared("traces/helios_venus_gpu/vc_config.csv").read_bytes()).gpus == 135 * 8
    assert sized(shared("traces/philly_cluster_job_log/philly_vc.csv").read_bytes()).gpus == 352 * 8
    # The authors give 143 nodes for Earth on 2020-09-01.
    earth = sized(
        shared("traces/helios_cluster_config/Earth_gpu_number.csv").read_bytes(),
        epoch="2020-09-01T00:00:00+08:00",
    )
    absent = {
        node
        for change in earth.changes
        if change.at_s == 0 and not change.present
        for node in change.nodes
    }
    assert len(earth.nodes) - len(absent) == 143
