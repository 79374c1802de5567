from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sim.cluster import KNOWN_TYPES, NodeGroup
from sim.errors import ClusterError
from tests.shared import shared
from trainyard.clusters import machines, uploads
from trainyard.clusters.node_lists import expand_hosts, read_slurm, read_slurm_json

CONF = """
# Campus
ClusterName=campus
NodeName=DEFAULT Sockets=2 CoresPerSocket=16 \\
    ThreadsPerCore=2 RealMemory=524288 State=UNKNOWN   # as bought
NodeName=gpu[001-016,020] Gres=gpu:a100:4(S:0-1),nvme:1
nodename=old[1-2]n[1-3] CPUs=40 RealMemory=192000 gres=gpu:tesla_v100-sxm2-16gb:2
NodeName=login1 Gres="" CPUs=8 RealMemory=16384
NodeName=later[1-9] State=FUTURE
NodeSet=olds Nodes=old[1-2]n[1-3]
PartitionName=DEFAULT MaxTime=1-0 State=UP
PartitionName=gpu Nodes=gpu[001-016,020] Default=YES
PartitionName=all Nodes=ALL
PartitionName=legacy Nodes=olds,login1
Include other.conf
"""

SHOWN = """NodeName=gpu001 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.08
   AvailableFeatures=a100 ActiveFeatures=a100
   Gres=gpu:a100:4(S:0-1)
   OS=Linux 5.15.0-88-generic #98-Ubuntu SMP Mon Oct 2 15:18:56 UTC 2023
   RealMemory=515000 AllocMem=0 FreeMem=501000 Sockets=2 Boards=1
   State=IDLE+DRAIN ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu,debug
   CfgTRES=cpu=64,mem=515000M,billing=64,gres/gpu=4
   Reason=disk is full [root@2023-10-02T15:18:56]

NodeName=gpu002 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUTot=64 RealMemory=515000 Gres=gpu:a100:4(S:0-1) State=MIXED Partitions=gpu,debug
NodeName=cpu1 CPUTot=32 RealMemory=128000 Gres=(null) State=IDLE CfgTRES=cpu=32,mem=128000M
NodeName=tres1 CPUTot=32 RealMemory=128000 Gres=(null) State=IDLE CfgTRES=cpu=32,gres/gpu=2,gres/gpu:h100=2
"""  # noqa: E501


def test_a_configuration_with_defaults_ranges_and_partitions() -> None:
    made = read_slurm(CONF, "slurm.conf")
    assert made.cluster.groups == (
        NodeGroup(
            *(17, 4, "a100", 64.0, 512.0),
            partitions=("gpu", "all"),
            name="gpu",
            gres=(("nvme", 1),),
            hosts="gpu[001-016],gpu020",
        ),
        NodeGroup(
            *(6, 2, "tesla_v100-sxm2-16gb", 40.0, 187.5),
            partitions=("all", "legacy"),
            name="old",
            hosts="old1n[1-3],old2n[1-3]",
        ),
        NodeGroup(1, 0, "", 8.0, 16.0, partitions=("all", "legacy"), name="login", hosts="login1"),
    )
    assert [node.name for node in made.cluster.nodes][15:19] == [
        "gpu016",
        "gpu020",
        "old1n1",
        "old1n2",
    ]
    kinds = {kind.name: kind for kind in made.cluster.types}
    assert kinds["a100"] == KNOWN_TYPES["a100"]
    assert kinds["tesla_v100-sxm2-16gb"].speed == KNOWN_TYPES["v100"].speed
    assert made.notes == (
        "Included files were not read.",
        "9 nodes in state FUTURE: left out, because the machines do not exist yet.",
        "The GPU type tesla_v100-sxm2-16gb has the speed and price of v100.",
    )


@pytest.mark.parametrize("one_line", [False, True])
def test_what_scontrol_shows(one_line: bool) -> None:
    text = (
        "\n".join(
            " ".join(block.split())
            for block in SHOWN.replace("NodeName", "\x00NodeName").split("\x00")
            if block
        )
        if one_line
        else SHOWN
    )
    made = read_slurm(text, "nodes.txt")
    assert made.cluster.groups == (
        NodeGroup(
            *(1, 4, "a100", 64.0, 515000 / 1024),
            partitions=("gpu", "debug"),
            name="gpu",
            hosts="gpu002",
        ),
        NodeGroup(1, 0, "", 32.0, 125.0, name="cpu", hosts="cpu1"),
        NodeGroup(1, 2, "h100", 32.0, 125.0, name="tres", hosts="tres1"),
    )
    assert made.notes == (
        "1 node down, drained or reserved: left out.",
        "The speed of GPU type h100, 4.2, is guessed: taken as twice an A100.",
    )
    kept = read_slurm(text, "nodes.txt", include_down=True)
    assert kept.cluster.groups[0].count == 1  # gpu001 has a feature of its own
    assert len(kept.cluster.nodes) == len(made.cluster.nodes) + 1
    assert "included" in kept.notes[0]


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:4", {"gpu": 4}),
        ("gpu", {"gpu": 1}),
        ("gpu:h100", {"h100": 1}),
        ("GPU:A100 :2", {"a100": 2}),
        ("gpu:a100:2,gpu:v100:2,shard:8", {"a100": 2, "v100": 2}),
        ("gpu:a100_1g.5gb:7(S:0)", {"a100_1g.5gb": 7}),
        ("gpu:a100:no_consume:1", {"a100": 1}),
        ("gpu:0", {}),
        ("nvme:1", {}),
    ],
)
def test_generic_resources(gres: str, expected: dict[str, int]) -> None:
    made = read_slurm(f'NodeName=n1 CPUs=8 RealMemory=8192 Gres="{gres}"', "x").cluster
    assert {group.gpu_type: group.gpus for group in made.groups if group.gpus} == expected
    assert sum(group.cpus for group in made.groups) == 8
    assert sum(group.mem_gb for group in made.groups) == 8


def test_what_is_not_said_is_not_modelled_and_unknown_types_are_told() -> None:
    made = read_slurm("NodeName=n[1-2] Gres=gpu:a100_3g.20gb:2", "x")
    several = read_slurm("NodeName=n1 Gres=gpu:x9:2\nNodeName=m1 Gres=gpu:x8:2", "x")
    assert several.unknown_types == ("x9", "x8")
    assert several.notes == ()
    group = made.cluster.groups[0]
    assert (group.cpus, group.mem_gb) == (math.inf, math.inf)
    assert made.unknown_types == ()
    assert made.notes == (
        "The speed of GPU type a100_3g.20gb, 0.9, is guessed: 3 of 7 parts of a100.",
    )


def test_boards_and_sockets() -> None:
    assert (
        read_slurm("NodeName=a Boards=2 SocketsPerBoard=2 CoresPerSocket=8", "x")
        .cluster.groups[0]
        .cpus
        == 32
    )
    assert (
        read_slurm("NodeName=a Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", "x")
        .cluster.groups[0]
        .cpus
        == 32
    )


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,20]x", ["n08x", "n09x", "n10x", "n20x"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
        ("a[1-2],b[7]", ["a1", "a2", "b7"]),
    ],
)
def test_lists_of_hosts(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text, "x") == hosts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NodeName=n[1-", "not a list of hosts"),
        ("NodeName=n[3-1]", "not a list of hosts"),
        ("NodeName=n[a-b]", "not a list of hosts"),
        ("NodeName=n[1-999999999]", "not a list of hosts"),
        ("NodeName=n[1-99999]m[1-99999]", "the most that is simulated"),
        ("NodeName=n1 CPUs=many", "cpus = many is not a number"),
        ("NodeName=n1 RealMemory=-1", "realmemory = -1 is not a number"),
        ("NodeName=DEFAULT CPUs=4", "describes no nodes"),
        ("NodeName=n1 State=FUTURE", "describes no nodes"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ClusterError, match=said) as caught:
        read_slurm(text, "slurm.conf")
    assert str(caught.value).startswith("slurm.conf: ")
    assert "\n" not in str(caught.value)


def test_json_of_a_real_cluster() -> None:
    path = shared("traces/slurm_json/24.05_slurm-nodes.json")
    made = read_slurm_json(json.loads(path.read_text()), "nodes.json")
    assert sum(group.count for group in made.cluster.groups) == 100
    assert made.cluster.groups[0] == NodeGroup(
        80, 0, "", 64.0, 128.0, partitions=("batch",), name="cn"
    )
    gpus = shared("traces/slurm_json/24.05_slurm-node-with-gpus-model-allocated.json")
    imported = machines.import_cluster("gpu.json", gpus.read_bytes())
    assert imported.cluster.groups == (
        NodeGroup(1, 4, "h100", 32.0, 512.0, partitions=("normal",), name="gpu"),
    )


def test_json_that_is_none_is_one_sentence() -> None:
    with pytest.raises(ClusterError, match=r"x: node 1 is not an object"):
        read_slurm_json({"nodes": [5]}, "x")
    with pytest.raises(ClusterError, match="describes no nodes"):
        read_slurm_json({"nodes": []}, "x")


def test_a_table_of_nodes_one_by_one() -> None:
    path = shared("traces/alibaba_gpu_v2023_openb/openb_node_list_gpu_node.csv")
    made = machines.import_cluster(path.name, path.read_bytes()).cluster
    assert len(made.nodes) == 1213
    assert made.gpus == 6212
    first = made.groups[0]
    assert (first.gpus, first.gpu_type, first.cpus, first.mem_gb) == (2, "p100", 64.0, 256.0)


def test_a_table_of_kinds_of_nodes() -> None:
    header = b"Name;Nodes;GPUs_per_node;GPU_type;Cores;Memory_GB;Rack_size;Partitions;Price_per_node_hour\n"  # noqa: E501
    text = header + b"big;4;8;A100;96;;2;a|b;20\n;0;8;V100;;;;;\nlogin;1;0;;8;64;;;\n"
    made = machines.import_cluster("nodes.csv", text)
    assert made.cluster.groups == (
        NodeGroup(4, 8, "a100", 96.0, math.inf, 2, ("a", "b"), 20.0, "big"),
        NodeGroup(1, 0, "", 8.0, 64.0, name="login"),
    )
    assert made.notes == ()


def test_a_table_of_cloud_instances() -> None:
    text = b"instance_type,count,gpus,cores\np4d.24xlarge,2,,\nP3.2xlarge,,,4\nm5.large,3,0,2\n"
    made = machines.import_cluster("nodes.csv", text)
    assert made.cluster.groups == (
        NodeGroup(2, 8, "a100-40", 96.0, 1152.0),
        NodeGroup(1, 1, "v100", 4.0, 61.0),
        NodeGroup(3, 0, "", 2.0),
    )
    assert uploads.read_machines("nodes.csv", text) is not None
    # No published rate, so no speed is made up.
    assert machines.import_cluster("n.csv", b"vm_size,nodes\ng5.xlarge,1\n").unknown_types == (
        "a10g",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            b"instance,count\np4.24xlarge,1\n",
            r"row 1: .* GPUs; p4d\.24xlarge is\. Give its number",
        ),
        (b"node,gpus,gpu_type\na,x,v100\n", "row 1: gpus = x is not a number of at least 0"),
        (b"node,gpus,gpu_type\na,1,v100\nb,1.5,v100\n", "row 2: gpus = 1.5 is not a whole number"),
        (b"node,gpus,gpu_type\na,-1,v100\n", "row 1: gpus = -1 is not a number"),
        (b"nodes,gpus,gpu_type\n200000,1,v100\n", "more than the limit of 100,000"),
    ],
)
def test_a_bad_cell_is_one_sentence(text: bytes, said: str) -> None:
    with pytest.raises(ClusterError, match=said) as caught:
        machines.import_cluster("nodes.csv", text)
    assert str(caught.value).startswith("nodes.csv: ")


@pytest.mark.parametrize("digits", [400, 5000])
def test_more_digits_of_gpus_than_any_node_has_are_refused(digits: int) -> None:
    with pytest.raises(ClusterError, match=r"GPUs; 1,000,000 is the most that is simulated"):
        machines.import_cluster(
            "slurm.conf", f"NodeName=n1 CPUs=8 Gres=gpu:{'9' * digits}".encode()
        )


def test_a_superscript_is_no_count() -> None:
    assert (
        machines.import_cluster("slurm.conf", "NodeName=n1 Gres=gpu:²".encode()).cluster.gpus == 1
    )


def test_gres_conf_names_the_types_that_slurm_conf_leaves_out(tmp_path: Path) -> None:
    conf, gres = tmp_path / "slurm.conf", tmp_path / "gres.conf"
    conf.write_text(
        "NodeName=n[1-2] CPUs=8 Gres=gpu:4(S:0-1),nvme:1\n"
        "NodeName=n3 CPUs=8 Gres=gpu:4\n"
        "NodeName=n4 CPUs=8 Gres=gpu:h100:2\n"
        "NodeName=n5 CPUs=8 Gres=gpu:4\n"
        "NodeName=n6 CPUs=8 Gres=gpu:2\n"
    )
    gres.write_text(
        "AutoDetect=off\n"
        "NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-3] # one type\n"
        "NodeName=n[3,5] Name=gpu Type=a100 Count=1\n"
        "NodeName=n[3,5] Name=gpu Type=v100 \\\n  File=/dev/nvidia[1-3]\n"
        "NodeName=n[4-5] Name=gpu Type=v100 Count=2\n"
        "NodeName=n6 Name=gpu Type=v100 Count=4\n"
        "Name=nvme Type=big Count=7\n"
    )
    made = read_slurm(conf.read_text(), "slurm.conf", gres=gres.read_text())
    counts: dict[tuple[str, float, int], int] = {}
    for node in made.cluster.nodes:
        key = node.gpu_type, node.cpus, node.gpus
        counts[key] = counts.get(key, 0) + 1
    # n1, n2; n3 in two parts of 8 cores; n4 as slurm.conf says; n5, of which gres.conf lists 6 in
    # two types, stays without one; n6 has the number of slurm.conf.
    assert counts == {
        ("a100", 8.0, 4): 2,
        ("a100", 2.0, 1): 1,
        ("v100", 6.0, 3): 1,
        ("h100", 8.0, 2): 1,
        ("gpu", 8.0, 4): 1,
        ("v100", 8.0, 2): 1,
    }
    assert made.notes[:2] == (
        "4 nodes with GPU types from gres.conf.",
        "2 nodes with another number of GPUs in gres.conf: the number in slurm.conf is used, and"
        " the type only if it is the only one.",
    )
    # Beside a slurm.conf on the disk it is found; a line without nodes is of all.
    gres.write_text("Name=gpu Type=v100\n")
    conf.write_text("NodeName=n1 Gres=gpu\n")
    assert machines.read_cluster(conf).cluster.nodes[0].gpu_type == "v100"
    text = "NodeName=n1 Gres=gpu:2\n"
    every = read_slurm(text, "slurm.conf", gres="Name=gpu Type=L40S File=/dev/nvidia[0-1]\n")
    assert every.cluster.nodes[0].gpu_type == "l40s"
    with pytest.raises(ClusterError, match=r"gres.conf, line 2: Count=two is not a number"):
        read_slurm(text, "slurm.conf", gres="\nName=gpu Type=a100 Count=two\n")
