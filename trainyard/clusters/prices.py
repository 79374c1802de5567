"""Prices of GPU types, and the sources of prices and speeds: catalog, price list, or user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sim.cluster import Cluster, GpuType, known_type
from sim.gpu_catalog import find_gpu
from trainyard.formatting import gpu_type

ENTERED: Final = "own"
_NO_SOURCE: Final = "not known"
_CLOUD: Final = "Google Cloud on demand, GPU only; SkyPilot catalog v1"
_CATALOG_PRICE_SOURCES: Final[Mapping[str, str]] = dict.fromkeys(
    ("k80", "t4", "p100", "v100", "a100", "a100-40"), _CLOUD
) | {"h100": "assumed: a cloud machine with one H100"}


@dataclass(frozen=True)
class PriceList:
    """Prices per GPU-hour of some GPU types.

    Parameters
    ----------
    name, help : str
        Label in a menu, and its tooltip with source and date.
    usd_per_gpu_hour : mapping of float, USD
        GPU type -> price per GPU-hour.
    """

    name: str
    help: str
    usd_per_gpu_hour: Mapping[str, float]


PRICE_LISTS: Final = (
    PriceList(
        "on demand",
        "Google Cloud, about 2020, as in the motivation figure of Gavel (OSDI 2020).",
        {"k80": 0.52, "p100": 1.68, "v100": 2.85},
    ),
    PriceList(
        "spot (preemptible)",
        "Google Cloud, about 2020, as Gavel's cost policies count (OSDI 2020).",
        {"k80": 0.135, "p100": 0.43, "v100": 0.74},
    ),
)
"""Price lists from Gavel's public code (stanford-futuredata/gavel at c4fa400, undated), in
notebooks/figures/motivation and utils.py.
"""


def apply_price_list(cluster: Cluster, prices: PriceList) -> Cluster:
    """Return the cluster with the prices of a list; the same object if none changes.

    GPU types outside the list keep their prices, and node groups their node prices.
    """
    kinds = tuple(
        replace(
            kind, price_per_gpu_hour=prices.usd_per_gpu_hour.get(kind.name, kind.price_per_gpu_hour)
        )
        for kind in cluster.types
    )
    return cluster if kinds == cluster.types else replace(cluster, types=kinds)


def find_catalog_type(name: str) -> GpuType | None:
    """Return the catalog's GPU type for a product name, None if unknown or without a speed.

    For example, "nvidia_a100-sxm4-80gb" is a100-80.
    """
    entry = find_gpu(name)
    return None if entry is None else known_type(entry.name)


def speed_source(kind: GpuType) -> str:
    """Return the source of a GPU type's speed: the catalog's, "guessed: ..." or `ENTERED`."""
    entry = find_gpu(kind.name)
    if entry is None or entry.speed is None:
        return ENTERED if kind.speed != 1.0 else f"guessed: {_NO_SOURCE}, assumed as fast as a V100"
    if kind.speed != entry.speed:
        return ENTERED
    return f"guessed: {entry.source}" if entry.guessed else entry.source


def types_with_guessed_speed(cluster: Cluster) -> tuple[GpuType, ...]:
    """Return the GPU types in use with a guessed speed: not measured and not entered."""
    used = {group.gpu_type for group in cluster.groups if group.gpus}
    return tuple(
        kind
        for kind in cluster.types
        if kind.name in used and speed_source(kind).startswith("guessed")
    )


def price_source(kind: GpuType) -> str:
    """Return the source of a GPU type's price: catalog, price list, `ENTERED` or "not known"."""
    entry, price = find_catalog_type(kind.name), kind.price_per_gpu_hour
    if entry is not None and price and price == entry.price_per_gpu_hour:
        return _CATALOG_PRICE_SOURCES[entry.name]
    listed = next(
        (prices for prices in PRICE_LISTS if prices.usd_per_gpu_hour.get(kind.name) == price), None
    )
    if listed is not None:
        return f"{listed.name}: {listed.help.rstrip('.')}"
    return ENTERED if price else _NO_SOURCE


def types_without_own_price(cluster: Cluster) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of GPU types with a default price, and of those without a price.

    Only types of node groups without a node price count.
    """
    used = {
        group.gpu_type for group in cluster.groups if group.gpus and group.price_per_hour is None
    }
    sources = {kind.name: price_source(kind) for kind in cluster.types if kind.name in used}
    return tuple(
        name for name, source in sources.items() if source not in (ENTERED, _NO_SOURCE)
    ), tuple(name for name, source in sources.items() if source == _NO_SOURCE)


def describe_sources(cluster: Cluster) -> tuple[str, ...]:
    """Return one line per GPU type: speed and price, each with its source."""
    return tuple(
        f"{gpu_type(kind.name)}: speed {kind.speed:g} ({speed_source(kind)}),"
        f" ${kind.price_per_gpu_hour:.2f} per hour ({price_source(kind)})."
        for kind in cluster.types
    )
