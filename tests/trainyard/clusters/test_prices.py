from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.cluster import KNOWN_TYPES, Cluster, GpuType, NodeGroup
from sim.gpu_catalog import catalog, find_gpu
from trainyard.clusters import prices

CAMPUS = Cluster(
    (NodeGroup(2, 8, "a100"), NodeGroup(3, 4, "t4", price_per_hour=1.5), NodeGroup(1, 0, "")),
    (GpuType("a100", 3.0, 4.0),),
)


def test_price_lists_change_the_types_they_name_and_nothing_else() -> None:
    on_demand, preemptible = prices.PRICE_LISTS
    cluster = Cluster(
        (
            NodeGroup(1, 4, "v100"),
            NodeGroup(1, 2, "k80", price_per_hour=9.0),
            NodeGroup(1, 8, "a100"),
        ),
        name="three",
    )
    dear, cheap = (
        prices.apply_price_list(cluster, on_demand),
        prices.apply_price_list(cluster, preemptible),
    )
    assert {kind.name: kind.price_per_gpu_hour for kind in dear.types} == {
        "v100": 2.85,
        "k80": 0.52,
        "a100": 2.93,
    }
    assert {kind.name: kind.price_per_gpu_hour for kind in cheap.types} == {
        "v100": 0.74,
        "k80": 0.135,
        "a100": 2.93,
    }
    assert dear.price_per_hour == pytest.approx(4 * 2.85 + 9.0 + 8 * 2.93)
    assert [kind.speed for kind in dear.types] == [kind.speed for kind in cluster.types]
    assert (dear.groups, dear.changes, dear.name) == (cluster.groups, cluster.changes, cluster.name)
    assert prices.apply_price_list(CAMPUS, on_demand) is CAMPUS
    assert all("Gavel" in one.help and "2020" in one.help for one in prices.PRICE_LISTS)


@pytest.mark.parametrize("name", list(KNOWN_TYPES))
def test_every_known_figure_has_a_source(name: str) -> None:
    kind = KNOWN_TYPES[name]
    assert prices.ENTERED not in (prices.speed_source(kind), prices.price_source(kind))
    assert "not known" not in prices.speed_source(kind)
    assert (prices.price_source(kind) == "not known") == (not kind.price_per_gpu_hour)


@pytest.mark.parametrize(
    ("kind", "speed", "price"),
    [
        (GpuType("v100", 1.1, 2.48), "own", "Google Cloud on demand"),
        (GpuType("v100", 1.0, 2.85), "the reference", "on demand: Google Cloud, about 2020"),
        (GpuType("tesla_v100-sxm2-16gb", 1.0, 3.0), "the reference", "own"),
        (GpuType("a100_1g.5gb", 2.1 / 7, 0.0), "guessed: 1 of 7 parts of a100", "not known"),
        (GpuType("g2", 1.0, 0.0), "guessed: not known", "not known"),
        (GpuType("mine", 2.0, 5.0), "own", "own"),
    ],
)
def test_where_a_figure_comes_from(kind: GpuType, speed: str, price: str) -> None:
    assert prices.speed_source(kind).startswith(speed)
    assert prices.price_source(kind).startswith(price)


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("v100", "v100"),
        ("nvidia_a100-sxm4-80gb", "a100-80"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("A100_80G", "a100-80"),
        ("a100-pcie-40gb", "a100-40"),
        ("Tesla-V100-SXM2-32GB", "v100"),
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm"),
        ("NVIDIA-H100-PCIe", "h100-pcie"),
        ("Quadro-RTX-A6000", "a6000"),
        ("nvidia-geforce-rtx-4090", "rtx4090"),
        ("NVIDIA-A100-80GB-PCIe", "a100-80"),
        ("nvidia_a100_80gb_pcie", "a100-80"),
        ("gpu:a100-80", "a100-80"),
        ("gres/gpu:a100", "a100"),
        ("l40s_48gb", "l40s"),
        ("l40s_40gb", ""),
        ("NVIDIA-A10-24Q", ""),
        ("a10g", ""),
        ("h20", ""),
        ("a100x", ""),
        ("v100m32", "v100"),
        ("gt4", ""),
        ("t40", ""),
        ("gh100", ""),
        ("h2000", ""),
        ("1g.10gb", ""),
    ],
)
def test_a_name_stands_for_a_known_type_or_for_none(name: str, like: str) -> None:
    assert prices.find_catalog_type(name) == KNOWN_TYPES.get(like)


def test_types_without_an_own_price_are_named_where_it_counts() -> None:
    assert prices.types_without_own_price(CAMPUS) == ((), ())
    assert prices.types_without_own_price(
        Cluster((NodeGroup(2, 8, "a100"), NodeGroup(1, 4, "t4")), (GpuType("a100", 2.1, 9.9),))
    ) == (("t4",), ())
    assert prices.types_without_own_price(
        Cluster((NodeGroup(2, 8, "a100"), NodeGroup(1, 4, "x9")))
    ) == (
        ("a100",),
        ("x9",),
    )
    assert prices.describe_sources(CAMPUS)[0] == "A100: speed 3 (own), $4.00 per hour (own)."


def test_a_part_of_a_gpu_is_a_type_of_its_own() -> None:
    part = prices.find_catalog_type("a100_3g.20gb")
    assert part is not None
    assert (part.name, part.price_per_gpu_hour) == ("a100_3g.20gb", 0.0)
    assert part.speed == pytest.approx(2.1 * 3 / 7)
    found = find_gpu("NVIDIA-A100-SXM4-80GB-MIG-2g.20gb")
    assert found is not None
    assert (found.memory_gb, found.guessed) == (20, True)
    assert find_gpu("a100_9g.80gb") is None


def test_no_name_of_the_catalogue_leads_to_another_type() -> None:
    for name, gpu in catalog().items():
        assert find_gpu(name) is gpu
        assert gpu.source
        hits = [
            one.name
            for one in catalog().values()
            if any(re.fullmatch(alias, name) for alias in one.aliases)
        ]
        assert set(hits) <= {name}


def test_speeds_that_nobody_measured_are_named() -> None:
    cluster = Cluster.parse("1x8:a100,1x8:l40s,1x4:t4,1x2:g2")
    assert [kind.name for kind in prices.types_with_guessed_speed(cluster)] == ["l40s", "t4", "g2"]
    own = Cluster((NodeGroup(1, 8, "l40s"),), (GpuType("l40s", 1.9),))
    assert prices.types_with_guessed_speed(own) == ()


def test_the_reference_page_names_the_source_of_every_guess() -> None:
    page = Path("docs/reference/gpu-types.md").read_text(encoding="utf-8")
    for gpu in catalog().values():
        if gpu.name not in ("t4", "h100") and (gpu.guessed or gpu.speed is None):
            speed = "not known" if gpu.speed is None else f"{gpu.speed:g}"
            memory = "" if gpu.memory_gb is None else f"{gpu.memory_gb:g}"
            assert f"| `{gpu.name}` | {speed} | {memory} | {gpu.source} |" in page
