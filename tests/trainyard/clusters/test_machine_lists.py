from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.cluster import NodeGroup
from sim.errors import ClusterError
from tests.shared import shared
from trainyard.clusters.machines import import_cluster
from trainyard.clusters.uploads import read_cluster_files, read_machines
from trainyard.clusters.virtual_clusters import GPUS_PER_NODE, set_node_gpus

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
    nvme = {"A": (("nvme", 1),), "B": (("nvme", 1),), "C": ()}
    assert made.cluster.groups == tuple(
        replace(group, gres=nvme[key]) for key, group in GROUPS.items()
    )
    assert made.notes == ("1 node down, drained or reserved: left out.",)
    assert len(import_cluster("nodes.txt", SINFO.encode(), include_down=True).cluster.nodes) == 4
    with pytest.raises(ClusterError, match="no node is left of 1 node: down, drained or reserved"):
        import_cluster("nodes.txt", SINFO.splitlines()[3].encode())
    with pytest.raises(ClusterError, match="line 30 is not output of sinfo"):
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


def read(*nodes: dict[str, Any], include_down: bool = False) -> Any:
    content = json.dumps({"kind": "List", "items": list(nodes)}).encode()
    return import_cluster("nodes.json", content, include_down=include_down)


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
    assert made.unknown_types == ()
    assert read(*nodes, include_down=True).cluster.groups[0].count == 4
    with pytest.raises(ClusterError, match="no node is left of 1 node: cordoned or not ready"):
        read(nodes[2])
    with pytest.raises(ClusterError, match="item 2 is not a node"):
        read(nodes[0], {"kind": "Pod"})
    with pytest.raises(ClusterError, match="'8 GPUs' is not a quantity"):
        read(node("x", {"nvidia.com/gpu": "8 GPUs"}))


def test_a_cloud_instance_says_what_no_product_label_says() -> None:
    eight, kind = {"nvidia.com/gpu": "8"}, {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    old = {"beta.kubernetes.io/instance-type": "Standard_NC6s_v3"}
    made = read(
        node("a", eight, labels=kind),
        node("b", eight, "NVIDIA-A100-SXM4-80GB", labels=kind),
        node("c", {"nvidia.com/gpu": "1"}, labels=old),
        node("d", {}, labels=kind),
        node("e", {}, labels={"node.kubernetes.io/instance-type": "m5.large"}),
    )
    assert [(one.count, one.gpus, one.gpu_type) for one in made.cluster.groups] == [
        (1, 8, "a100-40"),
        (1, 8, "nvidia-a100-sxm4-80gb"),
        (1, 1, "v100"),
        (2, 0, ""),
    ]
    assert made.notes[0].startswith("1 node on cloud instances with GPUs: no GPU is allocatable")


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
    assert made.notes[0] == "GPUs of 1 node are shared by time slicing: counted whole."


def test_nodes_as_yaml_are_those_of_json() -> None:
    nodes = [
        node("a-1", {"nvidia.com/gpu": "8"}, "NVIDIA-A100-SXM4-80GB"),
        node("a-2", {"nvidia.com/gpu": "8"}, "NVIDIA-A100-SXM4-80GB", unschedulable=True),
        node("cpu", {}),
    ]
    expected = read(*nodes)
    whole = {"apiVersion": "v1", "items": nodes, "kind": "List"}
    apart = [{"apiVersion": "v1", **one} for one in nodes]
    for text in (yaml.safe_dump(whole), yaml.safe_dump_all(apart)):
        made = import_cluster("nodes.yaml", text.encode())
        assert (made.cluster.groups, made.notes) == (expected.cluster.groups, expected.notes)
        assert read_machines("nodes", text.encode()) is not None
    path = shared("traces/alibaba_gpu_v2023_openb/openb_node_list_gpu_node.yaml")
    table = path.with_suffix(".csv")
    by_yaml, by_table = (
        import_cluster(one.name, one.read_bytes()).cluster for one in (path, table)
    )
    assert (
        (len(by_yaml.nodes), by_yaml.gpus) == (len(by_table.nodes), by_table.gpus) == (1213, 6212)
    )
    assert by_yaml.type_index.keys() == by_table.type_index.keys()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [1, 2]\nb: *a\n", "line 4: aliases"),
        ("a: " + "[" * 100_000, "line 3: aliases and more than 50 nested lists"),
        ("a: b: c\n", "line 3: this is not YAML"),
        ("---\nkind: Pod\n", "item 2 is not a node but a Pod"),
        ("---\n- 5\n", "item 2 is not a node but something else"),
    ],
)
def test_what_is_wrong_with_yaml_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        import_cluster("nodes.yaml", f"apiVersion: v1\nkind: Node\n{text}".encode())


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
        ("vc_name,num", "a,4", 32),
        ("Queue;Nodes", "a;4", 32),
        ("partition,num_nodes", "a,4", 32),
        (",num", "a,4", 32),
        ("vc,jobs", "a,4", 0),
        ("job,nodes", "a,4", 0),
        ("name,gpus,gpu_type,when", "a,4,a100,3", 0),
        ("name,submit_time_s,gpus,duration_s", "a,0,4,60", 0),
        ("gpus,nodes", "4,2", 0),
    ],
)
def test_a_table_is_taken_for_machines_only_if_it_says_nothing_else(
    head: str, row: str, gpus: int
) -> None:
    found = read_machines("x.csv", f"{head}\n{row}\n".encode())
    assert (found.cluster.gpus if found else 0) == gpus


def test_what_the_nodes_of_virtual_clusters_are_is_asked() -> None:
    made = import_cluster("vc.csv", b"vc,nodes\na,4\nb,1\n")
    assert [one.id for one in made.questions] == [GPUS_PER_NODE]
    assert made.questions[0].default == "8"
    assert made.notes == ("The file gives nodes without a type: 8 V100 each are assumed.",)
    other = set_node_gpus(made.cluster, 4, "t4")
    assert [(one.count, one.gpus, one.gpu_type, one.partitions) for one in other.groups] == [
        (4, 4, "t4", ("a",)),
        (1, 4, "t4", ("b",)),
    ]
    assert [one.name for one in other.types] == ["t4"]


def test_daily_sizes_are_told_among_files() -> None:
    made = read_machines(
        "Earth.csv", b"date,vcA,vcB,total\n2020-04-01,16,8,24\n2020-04-02,8,8,16\n"
    )
    assert made is not None
    assert (made.cluster.gpus, len(made.cluster.changes), made.questions) == (24, 1, ())
    assert made.notes == ("The file gives GPUs, not nodes: nodes of 8 V100 are assumed.",)


LISTED = (
    b"machineId,number of GPUs,type\nm0,8,v100\nm1,8,v100\nm2,2,t4\nm3,2,t4\nm4,2,t4\nm5,2,t4\n"
)
HOMES = b"vc,nodes\na,3\nb,2\n"


@pytest.mark.parametrize("head", [b"vc,nodes", b"vc_name,num", b"virtualCluster,node_num"])
def test_machines_are_dealt_out_to_virtual_clusters(head: bytes) -> None:
    made = read_cluster_files({"list.csv": LISTED, "vc.csv": HOMES.replace(b"vc,nodes", head)})
    assert made is not None
    # Mixed evenly: t4 v100 t4 t4 v100 t4; three of them to a, two to b, and one is left.
    found = [(one.name, one.count, one.gpus, one.partitions) for one in made.cluster.groups]
    assert found == [
        ("a-m", 1, 8, ("a",)),
        ("a-m-2", 2, 2, ("a",)),
        ("b-m", 1, 8, ("b",)),
        ("b-m-2", 1, 2, ("b",)),
        ("m-2", 1, 2, ()),
    ]
    assert (made.cluster.gpus, made.questions) == (24, ())
    assert made.notes[-1] == (
        "The virtual cluster of each node is unknown: each of the 2 virtual clusters of vc.csv gets"
        " a share of every kind of node in list.csv; all jobs may use the other 1 node."
    )


def test_the_switches_of_tiresias_are_racks() -> None:
    head = b"num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"
    made = read_machines("n32g4.csv", head + b"2,16,4,40,256\n")
    assert made is not None
    (group,) = made.cluster.groups
    assert (group.count, group.gpus, group.rack_size) == (32, 4, 16)
    assert (group.cpus, group.mem_gb, group.gpu_type) == (40, 256, "gpu")
    # Speeds are relative: that of the only type does not matter.
    assert (made.unknown_types, made.cluster.price_per_hour) == ((), 0)
    assert "The file gives no GPU type" in made.notes[-1]


def test_machines_that_cannot_be_dealt_out_are_refused() -> None:
    with pytest.raises(ClusterError, match=r"list.csv has 6 nodes, but .* of vc.csv need 7\."):
        read_cluster_files({"list.csv": LISTED, "vc.csv": b"vc,nodes\na,7\n"})
    with pytest.raises(ClusterError, match=r"nodes.txt names the partitions of its nodes"):
        read_cluster_files({"nodes.txt": SINFO.encode(), "vc.csv": b"vc,nodes\na,1\n"})
    with pytest.raises(ClusterError, match=r"a\.csv, b\.csv: each of these describes machines"):
        read_cluster_files({"a.csv": LISTED, "b.csv": LISTED})
    assert read_cluster_files({"jobs.csv": b"job_id,submit_time_s\n"}) is None
