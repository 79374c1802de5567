"""Clusters: nodes unfolded from groups, the short form, JSON, and refusals."""

from __future__ import annotations

import json
import re
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given

from sim.cloud_instances import instances
from sim.cluster import KNOWN_TYPES, Change, Cluster, GpuType, NodeGroup
from sim.errors import ClusterError
from sim.gpu_catalog import catalog
from tests.strategies import clusters


def test_groups_unfold_into_numbered_nodes() -> None:
    cluster = Cluster(
        (
            NodeGroup(3, 4, "v100", 32, 256, rack_size=2, partitions=("red",), name="big"),
            NodeGroup(1, 2, "t4", price_per_hour=7.0),
            NodeGroup(1, 0, cpus=8),
        ),
        (GpuType("v100", 1.0, 2.0),),
    )
    assert [
        (node.name, node.gpu_type, node.gpus, node.rack, node.price_per_hour)
        for node in cluster.nodes
    ] == [
        ("big-1", "v100", 4, "big/r1", 8.0),
        ("big-2", "v100", 4, "big/r1", 8.0),
        ("big-3", "v100", 4, "big/r2", 8.0),
        ("t4-2-1", "t4", 2, "t4-2/r1", 7.0),
        ("cpu-3-1", "", 0, "cpu-3/r1", 0.0),
    ]
    assert (cluster.nodes[0].cpus, cluster.nodes[0].mem_gb, cluster.nodes[0].partitions) == (
        32,
        256,
        ("red",),
    )
    assert (cluster.gpus, cluster.price_per_hour, cluster.partitions) == (14, 31.0, ("red",))


def test_types_are_completed_from_the_known_ones() -> None:
    cluster = Cluster(
        (NodeGroup(1, 1, "T4"), NodeGroup(1, 1, "mystery"), NodeGroup(1, 1, "mine")),
        (GpuType("Mine", 3.0, 9.0),),
    )
    assert cluster.types == (
        GpuType("mine", 3.0, 9.0),
        KNOWN_TYPES["t4"],
        GpuType("mystery", 1.0, 0.0),
    )
    assert dict(cluster.type_index) == {"mine": 0, "t4": 1, "mystery": 2}


def test_a_group_without_nodes_still_names_its_type() -> None:
    cluster = Cluster.parse("1x1:v100,0x8:t4")
    assert len(cluster.nodes) == 1
    assert [kind.name for kind in cluster.types] == ["v100", "t4"]


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("16x8:v100", NodeGroup(16, 8, "v100")),
        (" 4x4:T4 ", NodeGroup(4, 4, "t4")),
        ("2x0:cpu", NodeGroup(2, 0, "", 96.0, 512.0, name="cpu")),
        ("2x0:cpu/8c/16.5g", NodeGroup(2, 0, "", 8.0, 16.5, name="cpu")),
        ("4x8:a100/96c", NodeGroup(4, 8, "a100", 96.0)),
        ("4x8:a100/1024g", NodeGroup(4, 8, "a100", inf, 1024.0)),
    ],
)
def test_the_short_form(text: str, group: NodeGroup) -> None:
    assert Cluster.parse(text).groups == (group,)
    assert Cluster.parse(f"1x1:v100,{text}").groups[1] == group


@pytest.mark.parametrize(
    "text", ["4x8:a100+4x8:v100", "4x8:<script>", "4x8:rtx 2080", "4x8:a100;4x8:v100"]
)
def test_a_type_whose_name_cannot_be_one_is_told_with_the_separator(text: str) -> None:
    with pytest.raises(
        ClusterError,
        match=(
            r"names a GPU type '.*', but names have letters, digits, .* only\. Separate parts with"
            r" ','\."
        ),
    ):
        Cluster.parse(text)


def test_types_of_recorded_clusters_are_names() -> None:
    for name in ("tesla_v100-sxm2-16gb", "1g.5gb", "A100-80G", "gtx1080ti"):
        assert Cluster.parse(f"4x8:{name}").groups[0].gpu_type == name.lower()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4x8",
        "x8:v100",
        "4x:v100",
        "4x8:",
        "-4x8:v100",
        "4x-8:v100",
        "4x8:v100/",
        "4x8:v100/5q",
        "4x8:v100/xc",
        "1x1:v100,",
        "1.5x8:v100",
    ],
)
def test_what_is_not_of_the_short_form_is_quoted(text: str) -> None:
    with pytest.raises(
        ClusterError,
        match=r"Cluster part '.*' is not of the form nodes x GPUs : type, e\.g\. 16x8:v100",
    ):
        Cluster.parse(text)


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ((), "The cluster has no nodes"),
        ((NodeGroup(0, 8, "v100"),), "The cluster has no nodes"),
        ((NodeGroup(-1, 8, "v100"),), "Row 1 of the cluster: nodes is -1"),
        (
            (NodeGroup(1, 1, "v100"), NodeGroup(1, -8, "v100")),
            "Row 2 of the cluster: GPUs per node is -8",
        ),
        ((NodeGroup(1, 8, "v100", cpus=nan),), "cores is nan"),
        ((NodeGroup(1, 8, "v100", mem_gb=-1),), "memory is -1"),
        ((NodeGroup(1, 8, "v100", rack_size=-1),), "rack size is -1"),
        ((NodeGroup(1, 8, "v100", price_per_hour=-1),), "price is -1"),
        ((NodeGroup(1.5, 8, "v100"),), "these must be whole numbers"),  # type: ignore[arg-type]
        ((NodeGroup(inf, 8, "v100"),), "far more nodes"),  # type: ignore[arg-type]
        ((NodeGroup(1, 8, "v100", rack_size=2.5),), "these must be whole numbers"),  # type: ignore[arg-type]
        ((NodeGroup(1, 8),), "8 GPUs per node but no GPU type"),
    ],
)
def test_impossible_groups_are_refused(groups: tuple[NodeGroup, ...], sentence: str) -> None:
    with pytest.raises(ClusterError, match=sentence):
        Cluster(groups)


@pytest.mark.parametrize(
    ("speed", "price"),
    [(0.0, 0.0), (-1.0, 0.0), (inf, 0.0), (nan, 0.0), (1.0, -1.0), (1.0, inf), (1.0, nan)],
)
def test_impossible_types_are_refused(speed: float, price: float) -> None:
    with pytest.raises(
        ClusterError,
        match=(
            r"GPU type v100: speed .* must be above 0, the price .* not negative, and both must be"
            r" finite"
        ),
    ):
        Cluster((NodeGroup(1, 1, "v100"),), (GpuType("v100", speed, price),))


def test_a_type_described_twice_is_refused_whatever_its_case() -> None:
    with pytest.raises(ClusterError, match="described twice"):
        Cluster((NodeGroup(1, 1, "v100"),), (GpuType("v100"), GpuType("V100", 2.0)))


@pytest.mark.parametrize(
    "change", [Change(0, (1,), True), Change(0, (-1,), True), Change(nan, (0,), True)]
)
def test_a_change_of_a_node_that_is_not_there_is_refused(change: Change) -> None:
    with pytest.raises(ClusterError, match=r"names a node outside 0\.\.0"):
        Cluster((NodeGroup(1, 1, "v100"),), changes=(change,))


@given(clusters())
def test_json_there_and_back(cluster: Cluster) -> None:
    again = Cluster.from_json(json.loads(json.dumps(cluster.to_json())))
    assert again == cluster
    assert again.digest == cluster.digest


def test_the_name_is_no_part_of_the_content() -> None:
    one, two = Cluster.parse("1x1:v100"), Cluster((NodeGroup(1, 1, "v100"),), name="other")
    assert one == two
    assert one.digest == two.digest
    assert one.digest != Cluster.parse("1x2:v100").digest


def test_whole_numbers_may_come_as_floats() -> None:
    assert Cluster.from_json(
        {
            "groups": [
                {"count": 2.0, "gpus": 4.0, "gpu_type": "v100", "rack_size": 1.0, "cpus": None}
            ]
        }
    ).groups == (NodeGroup(2, 4, "v100", rack_size=1),)


GOOD: dict[str, Any] = {"count": 1, "gpus": 1, "gpu_type": "v"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "The cluster is no table with the key 'groups'. See"),
        (5, "The cluster is no table with the key 'groups' but 5. See"),
        ([], r"but \[\]"),
        ({"groups": 5}, "groups = 5 is not a list"),
        ({"groups": [5]}, "Row 1 of the cluster is 5, but it must be a table with count, gpus"),
        (
            {"groups": [GOOD | {"bad": 1}]},
            "Row 1 of the cluster has no key 'bad'. It has: count, gpus",
        ),
        ({"groups": [GOOD, {"count": 1}]}, "Row 2 of the cluster lacks the key 'gpus'. Add it"),
        (
            {"groups": [GOOD | {"count": "abc"}]},
            "Row 1 of the cluster: count = 'abc' is not a whole number",
        ),
        (
            {"groups": [GOOD, GOOD | {"gpus": None}]},
            "Row 2 of the cluster: gpus = None is not a whole number",
        ),
        ({"groups": [GOOD | {"count": True}]}, "count = True is not a whole number"),
        ({"groups": [GOOD | {"gpu_type": 5}]}, "gpu_type = 5 is not text"),
        ({"groups": [GOOD | {"cpus": "many"}]}, "cpus = 'many' is not a number or null"),
        (
            {"groups": [GOOD | {"price_per_hour": []}]},
            r"price_per_hour = \[\] is not a price or null",
        ),
        ({"groups": [GOOD | {"partitions": 5}]}, "partitions = 5 is not a list of names"),
        ({"groups": [GOOD | {"partitions": "red"}]}, "partitions = 'red' is not a list of names"),
        (
            {"groups": [GOOD], "types": [{"name": "v", "speed": "x"}]},
            "GPU type 1 of the cluster: speed = 'x' is not a number",
        ),
        (
            {"groups": [GOOD], "changes": [{"at_s": 0, "nodes": ["a"], "present": True}]},
            r"Change 1 of the cluster: nodes = \['a'\] is not a list of whole",
        ),
        (
            {"groups": [GOOD], "changes": [{"at_s": "x"}]},
            "Change 1 of the cluster lacks the key 'nodes'",
        ),
        (
            {"groups": [GOOD], "changes": [{"at_s": "x", "nodes": [0], "present": True}]},
            "Change 1 of the cluster: at_s = 'x' is not a number",
        ),
        (
            {"groups": [GOOD], "changes": [{"at_s": 0, "nodes": [0], "present": "no"}]},
            "present = 'no' is not true or false",
        ),
        ({"groups": [GOOD], "changes": 7}, "changes = 7 is not a list"),
    ],
)
def test_a_damaged_description_names_row_key_and_value(data: Any, sentence: str) -> None:
    with pytest.raises(ClusterError, match=sentence) as caught:
        Cluster.from_json(data)
    assert str(caught.value).endswith(".")


def test_absurdly_many_nodes_are_refused_before_they_are_made() -> None:
    with pytest.raises(
        ClusterError, match=r"99,999,999,999 nodes; .* is the most that is simulated"
    ):
        Cluster.parse("99999999999x8:v100")


def test_nodes_that_nobody_knows_of() -> None:
    changes = (
        Change(0, (1, 2, 3), False),
        Change(5, (1,), True),
        Change(10, (2,), True, foreseen=False),
        Change(20, (3,), True, foreseen=False),
    )
    cluster = Cluster((NodeGroup(4, 1, "v100"),), changes=changes)
    assert [sorted(cluster.unknown(now_s)) for now_s in (0, 10, 20)] == [[2, 3], [3], []]
    assert [node.name for node in cluster.initial_nodes] == ["v100-1-1", "v100-1-2"]
    assert Cluster.from_json(cluster.to_json()) == cluster
    assert [set(change) for change in cluster.to_json()["changes"]][1:3] == [
        {"at_s", "nodes", "present"},
        {"at_s", "nodes", "present", "foreseen"},
    ]
    assert Cluster((NodeGroup(4, 1, "v100"),)).unknown(0.0) == frozenset()


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("4xp4d.24xlarge", NodeGroup(4, 8, "a100-40", 96.0, 1152.0, name="p4d.24xlarge")),
        ("1xG4DN.12xlarge", NodeGroup(1, 4, "t4", 48.0, 192.0, name="g4dn.12xlarge")),
        ("2xa2-megagpu-16g", NodeGroup(2, 16, "a100-40", 96.0, 1360.0, name="a2-megagpu-16g")),
        (
            "2xND96isr_H100_v5",
            NodeGroup(2, 8, "h100-sxm", 96.0, 1900.0, name="standard_nd96isr_h100_v5"),
        ),
        ("2xp3.2xlarge/4c", NodeGroup(2, 1, "v100", 4.0, 61.0, name="p3.2xlarge")),
    ],
)
def test_cloud_instances_are_nodes(text: str, group: NodeGroup) -> None:
    assert Cluster.parse(f"1x1:v100,{text}").groups[1] == group


def test_an_instance_that_is_not_known_is_told_with_the_nearest() -> None:
    with pytest.raises(ClusterError, match=r"no cloud instance that is known; p5en\.48xlarge is"):
        Cluster.parse("4xp5e.48xlarge")


def test_every_instance_has_a_type_and_a_source() -> None:
    assert len(instances()) == 56
    for one in instances().values():
        assert one.gpu_type in catalog(), one.name
        assert one.name == one.name.lower()
        assert 1 <= one.gpus <= 16
        assert one.cpus >= 4 * one.gpus
        assert re.search(r", (seen )?20\d\d-\d\d-\d\d$", one.source), one.name


def test_what_schedulers_know_of_nodes_is_written_only_where_it_is_given() -> None:
    group = NodeGroup(
        *(2, 0, "", 8.0),
        features=("fast", "ib"),
        weight=5,
        switch="leaf",
        gres=(("nvme", 2),),
        hosts="n[08-09]",
    )
    cluster = Cluster((group,), switches=(("leaf", "top"),))
    assert Cluster.from_json(json.loads(json.dumps(cluster.to_json()))) == cluster
    assert [node.name for node in cluster.nodes] == ["n08", "n09"]
    assert (cluster.nodes[1].features, cluster.nodes[1].weight) == (("fast", "ib"), 5)
    assert (cluster.nodes[1].switch, cluster.nodes[1].gres) == ("leaf", (("nvme", 2),))
    # The digests of all other clusters are what they were.
    assert Cluster.parse("1x1:v100").digest == "d81c606219621cff66c27a989372d390"
    with pytest.raises(ClusterError, match="2 nodes, but hosts names 3"):
        Cluster((NodeGroup(2, 0, hosts="n[1-3]"),))
    with pytest.raises(ClusterError, match=r"switch a of the cluster is above itself|switch b"):
        Cluster((group,), switches=(("a", "b"), ("b", "a")))
    with pytest.raises(ClusterError, match="switches = 7 is no table"):
        Cluster.from_json({"groups": [{"count": 1, "gpus": 0}], "switches": 7})
