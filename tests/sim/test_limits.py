"""Clusters beyond what is simulated are refused before anything is made of them."""

from __future__ import annotations

import pytest

from sim.cluster import Cluster
from sim.errors import ClusterError, TrainyardError
from sim.limits import gpu_limit
from trainyard.clusters import machines
from trainyard.study.document import pack_document
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces.new_study import sample_study


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("1x100000000:v100", "Row 1 of the cluster: 100,000,000 GPUs; 1,000,000 is the most"),
        ("0x1000001:v100", "1,000,001 GPUs"),
        ("100000x11:v100", "The cluster: 1,100,000 GPUs"),
        ("100001x1:v100", "100,001 nodes"),
        (f"1x{'9' * 400}:v100", "far more GPUs"),
        ("2x8:v100,1x8:" + "v" * 201, "a name of 201 letters"),
    ],
)
def test_a_short_description(spec: str, said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        Cluster.parse(spec)


@pytest.mark.parametrize("gpus", [1e308, float("inf"), 10**400, 1_000_001, float("nan")])
def test_a_description_in_json(gpus: float) -> None:
    with pytest.raises(ClusterError):
        Cluster.from_json({"groups": [{"count": 1, "gpus": gpus, "gpu_type": "v100"}]})


@pytest.mark.parametrize("at_s", [float("inf"), float("-inf"), float("nan")])
def test_a_change_is_at_an_instant(at_s: float) -> None:
    with pytest.raises(ClusterError, match="is never"):
        Cluster.from_json(
            {
                "groups": [{"count": 1, "gpus": 8, "gpu_type": "v100"}],
                "changes": [{"at_s": at_s, "nodes": [0], "present": True}],
            }
        )


def test_as_many_as_are_allowed_are_taken() -> None:
    assert Cluster.parse("1x1000000:v100").gpus == gpu_limit() == 1_000_000


def test_the_environment_sets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_MOST_GPUS", "16")
    assert Cluster.parse("2x8:v100").gpus == 16
    with pytest.raises(ClusterError, match="The cluster: 24 GPUs; 16 is the most"):
        Cluster.parse("3x8:v100")
    for text in ("many", "0", "-1", "1e6", "99999999999"):
        monkeypatch.setenv("TRAINYARD_MOST_GPUS", text)
        with pytest.raises(ClusterError, match="TRAINYARD_MOST_GPUS"):
            Cluster.parse("2x8:v100")


def test_a_link_and_a_made_workload() -> None:
    document = sample_study().to_json()
    document["base"]["cluster"] = "1x100000000:v100"
    with pytest.raises(ClusterError, match="100,000,000 GPUs"):
        Study.unpack(pack_document(document))
    with pytest.raises(TrainyardError, match="100,000,000 GPUs"):
        TraceSpec("made:philly:jobs=10,cluster=1x100000000:v100")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nodes.csv", b"name,gpus,gpu_type\na,100000000,v100\n"),
        ("nodes.csv", b"name,gpus,gpu_type,nodes\na,8,v100,1e9\n"),
        ("nodes.csv", b"name,gpus,gpu_type,nodes\na,8,v100," + b"9" * 400 + b"\n"),
        ("vc.csv", b"vc,nodes\na,1e300\n"),
        ("daily.csv", b"date,vcA\n2020-09-01,8\n2020-09-02,1e300\n"),
        ("daily.csv", b"date,vcA\n2020-09-01,8\n2020-09-02,999999999999\n"),
        (
            "daily.csv",
            b"date,vcA\n"
            + b"".join(
                f"2020-{month:02d}-{day:02d},{800000 * (day % 2)}\n".encode()
                for month in range(1, 4)
                for day in range(1, 29)
            ),
        ),
        ("slurm.conf", b"NodeName=g1 Gres=gpu:a100:99999999999 CPUs=8\n"),
        ("slurm.conf", b"NodeName=g[1-100000] CPUs=8\n" * 30),
        ("slurm.conf", b"NodeName=g[" + b"0" * 60_000 + b"1-100000] CPUs=8\n"),
        (
            "slurm.conf",
            b"NodeName=g[1-100000] CPUs=8\n"
            + b"".join(b"PartitionName=p%d Nodes=ALL\n" % at for at in range(40)),
        ),
    ],
)
def test_a_file_of_machines(name: str, content: bytes) -> None:
    with pytest.raises(ClusterError):
        machines.import_cluster(name, content)


def test_daily_sizes_under_an_odd_name_of_the_date() -> None:
    told = machines.import_cluster(
        "daily.csv", b"'Date',vcA,total\n2020-09-01,8,8\n2020-09-02,16,16\n"
    )
    assert told.cluster.gpus == 16


def test_an_edited_table() -> None:
    cluster = sample_study().base.cluster
    groups = machines.group_table(cluster).astype("object")
    groups.loc[0, "gpus_per_node"] = 10**400
    with pytest.raises(ClusterError):
        machines.cluster_from_tables(groups, machines.type_table(cluster), cluster)
