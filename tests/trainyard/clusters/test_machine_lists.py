from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from sim.cluster import NodeGroup
from sim.errors import ClusterError
from tests.shared import shared
from trainyard.clusters.machines import import_cluster, recognised

SINFO = """\
gpu-1|batch*|gpu:a100:4(S:0-1),nvme:1|64|515000|idle|avx
gpu-1|debug|gpu:a100:4(S:0-1),nvme:1|64|515000|idle|avx
gpu-2|batch*|gpu:a100:4(S:0-1),nvme:1|64|515000|mixed|avx
gpu-3|batch*|gpu:a100:4|64|515000|drained*|avx
cpu-1|batch*|(null)|32|128000|idle~|
"""
GROUPS = {
    "A": NodeGroup(1, 4, "a100", 64.0, 515000 / 1024, partitions=("batch", "debug"), name="gpu"),
    "B": NodeGroup(1, 4, "a100", 64.0, 515000 / 1024, partitions=("batch",), name="gpu-2"),
    "C": NodeGroup(1, 0, "", 32.0, 125.0, partitions=("batch",), name="cpu"),
}
KINDS = {"nodes", "pai-machines", "philly-machines", "slurm-nodes", "vc-nodes"}


@pytest.mark.parametrize("head", ["", "NODELIST|PARTITION|GRES|CPUS|MEMORY|STATE|AVAIL_FEATURES\n"])
def test_sinfo_names_a_node_once_for_each_partition(head: str) -> None:
    made = import_cluster("nodes.txt", (head + SINFO).encode())
    assert made.cluster.groups == tuple(GROUPS.values())
    assert made.notes == ("1 node down, drained or reserved: left out.",)
    assert len(import_cluster("nodes.txt", SINFO.encode(), away=True).cluster.nodes) == 4
    with pytest.raises(ClusterError, match="all of its 1 node are down, drained or reserved"):
        import_cluster("nodes.txt", SINFO.splitlines()[3].encode())
    with pytest.raises(ClusterError, match="line 30 is not what sinfo"):
        import_cluster("nodes.txt", (SINFO.splitlines()[0] + "\n").encode() * 29 + b"gpu-9|oops")


def node(name: str, gpus: dict[str, str], product: str = "", **more: Any) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": product} if product else {}
    ready = {"type": "Ready", "status": more.pop("ready", "True")}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | more.pop("labels", {})},
        "spec": more,
        "status": {
            "allocatable": {"cpu": "127500m", "memory": "1048576Ki", **gpus},
            "capacity": {"nvidia.com/gpu": "16"},
            "conditions": [ready],
        },
    }


def read(*nodes: dict[str, Any], away: bool = False) -> Any:
    content = json.dumps({"kind": "List", "items": list(nodes)}).encode()
    return import_cluster("nodes.json", content, away=away)


def test_kubernetes_counts_what_can_be_allocated_on_nodes_that_work() -> None:
    eight = {"nvidia.com/gpu": "8"}
    nodes = [
        node("a-1", eight, "NVIDIA-A100-SXM4-80GB"),
        node("a-2", eight, "NVIDIA-A100-SXM4-80GB"),
        node("a-3", eight, "NVIDIA-A100-SXM4-80GB", unschedulable=True),
        node("a-4", eight, "NVIDIA-A100-SXM4-80GB", ready="Unknown"),
        node("cpu", {}),
        node(
            "amd",
            {"amd.com/gpu": "4"},
            labels={"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"},
        ),
    ]
    made = read(*nodes)
    assert [(group.count, group.gpus, group.gpu_type) for group in made.cluster.groups] == [
        (2, 8, "nvidia-a100-sxm4-80gb"),
        (1, 0, ""),
        (1, 4, "amd_instinct_mi300x_oam"),
    ]
    assert (made.cluster.groups[0].cpus, made.cluster.groups[0].mem_gb) == (127.5, 1.0)
    assert made.notes[0] == "2 nodes left out: cordoned or not ready."
    assert any("nvidia-a100-sxm4-80gb, 2.1, is guessed: as the A100" in one for one in made.notes)
    assert made.unknown == ()
    assert read(*nodes, away=True).cluster.groups[0].count == 4
    with pytest.raises(ClusterError, match="all of its 1 node are cordoned or not ready"):
        read(nodes[2])
    with pytest.raises(ClusterError, match="item 2 is no node"):
        read(nodes[0], {"kind": "Pod"})
    with pytest.raises(ClusterError, match="'8 GPUs' is no quantity"):
        read(node("x", {"nvidia.com/gpu": "8 GPUs"}))


def test_slices_are_types_and_shared_gpus_count_once() -> None:
    sliced = node(
        "m",
        {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "7", "nvidia.com/mig-3g.20gb": "2"},
        "NVIDIA-A100-SXM4-40GB",
    )
    kinds = {one.gpu_type: one for one in read(sliced).cluster.groups}
    assert {kind: one.gpus for kind, one in kinds.items()} == {
        "nvidia-a100-sxm4-40gb-1g.5gb": 7,
        "nvidia-a100-sxm4-40gb-3g.20gb": 2,
    }
    assert sum(one.cpus for one in kinds.values()) == pytest.approx(127.5)
    speeds = {one.name: one.speed for one in read(sliced).cluster.types}
    assert speeds["nvidia-a100-sxm4-40gb-3g.20gb"] == pytest.approx(2.1 * 3 / 7)
    shared_gpus = node(
        "s", {"nvidia.com/gpu": "16"}, "Tesla-T4-SHARED", labels={"nvidia.com/gpu.replicas": "4"}
    )
    made = read(shared_gpus)
    assert [(one.gpus, one.gpu_type) for one in made.cluster.groups] == [(4, "tesla-t4")]
    assert made.notes[0] == "GPUs of 1 node are shared by time slicing: whole ones."


def test_machines_of_the_published_traces() -> None:
    table = shared("data/imports/golden_imports.csv")
    with table.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["recipe"] in KINDS]
    assert len(rows) == 34
    read_files = {
        file: import_cluster(Path(file).name, shared(f"traces/{file}").read_bytes()).cluster
        for file in {row["file"] for row in rows}
    }
    for row in rows:
        cluster = read_files[row["file"]]
        by_type: dict[str, int] = {}
        for one in cluster.nodes:
            by_type[one.gpu_type] = by_type.get(one.gpu_type, 0) + one.gpus
        found = (
            by_type.get(row["field"].lower(), 0)
            if row["check"] == "cluster_type"
            else {"nodes": len(cluster.nodes), "gpus": cluster.gpus}[row["field"]]
        )
        assert (row["file"], row["field"], found) == (
            row["file"],
            row["field"],
            int(float(row["value"])),
        )


@pytest.mark.parametrize(
    ("head", "row", "gpus"),
    [
        ("sn,cpu_milli,memory_mib,gpu,model", "n0,64000,262144,2,P100", 2),
        ("machineId,number of GPUs, single GPU mem", "m0,2, 12GB", 2),
        ("vc,node num", "a,4", 32),
        ("name,gpus,gpu_type,when", "a,4,a100,3", 0),
        ("name,submit_time_s,gpus,duration_s", "a,0,4,60", 0),
        ("gpus,nodes", "4,2", 0),
    ],
)
def test_a_table_is_taken_for_machines_only_if_it_says_nothing_else(
    head: str, row: str, gpus: int
) -> None:
    found = recognised("x.csv", f"{head}\n{row}\n".encode())
    assert (found.cluster.gpus if found else 0) == gpus
