from __future__ import annotations

import pytest

from sim.cluster import KNOWN_TYPES, Cluster, GpuType
from sim.errors import ClusterError
from trainyard.study import gpu_types
from trainyard.study.scenario import Scenario


def test_a_short_description_is_named_in_words() -> None:
    assert gpu_types.parse_cluster("133x8:v100").name == "133 nodes of 8 V100"
    assert gpu_types.parse_cluster("1x8:a100,2x0:cpu").name == "1 node of 8 A100, 2 CPU nodes"


def test_a_type_without_figures_is_refused_with_the_nearest() -> None:
    with pytest.raises(ClusterError) as stopped:
        gpu_types.parse_cluster("2x8:h100x,1x4:quantum")
    assert str(stopped.value) == (
        "No speed known for ‘h100x’. Nearest: H100. Enter speed and price, or use H100."
        " No speed known for ‘quantum’. Enter its speed and price."
    )
    with pytest.raises(ClusterError, match="No speed known for ‘x9’"):
        gpu_types.from_json({"groups": [{"count": 1, "gpus": 1, "gpu_type": "x9"}]})
    with pytest.raises(ClusterError, match="No speed known for ‘h100x’"):
        Scenario.from_json(
            {"trace": "sample:tiny", "cluster": "2x8:h100x", "allocator": "fifo", "perf": "rigid"}
        )


def test_a_type_with_figures_of_its_own_is_taken() -> None:
    kind = {"name": "x9", "speed": 1.5, "price_per_gpu_hour": 0}
    data = {"groups": [{"count": 1, "gpus": 1, "gpu_type": "X9"}], "types": [kind]}
    assert gpu_types.from_json(data).types == (GpuType("x9", 1.5),)


def test_figures_are_entered_or_taken_from_a_known_type() -> None:
    cluster = Cluster.parse("2x8:h100x,1x4:a100")
    assert gpu_types.unknown_types(cluster) == ("h100x",)
    entered = gpu_types.with_figures(cluster, "h100x", 5.0, None)
    assert GpuType("h100x", 5.0, 0.0) in entered.types
    like = gpu_types.nearest("h100x")
    assert like == KNOWN_TYPES["h100"]
    assert like is not None
    taken = gpu_types.replace_type(cluster, "h100x", like)
    assert [group.gpu_type for group in taken.groups] == ["h100", "a100"]
    assert gpu_types.unknown_types(taken) == ()
