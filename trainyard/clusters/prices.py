"""Where the speeds and prices of GPU types come from: this project's figures with their source,
lists of prices, or the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sim.cluster import Cluster, GpuType, known_type
from sim.gpu_catalog import find_gpu

OWN: Final = "own"
_NONE: Final = "not known"
_CLOUD: Final = "Google Cloud on demand, the GPU alone (SkyPilot's catalogue v1 at 6e18f0e)"
_PRICES: Final[Mapping[str, str]] = dict.fromkeys(
    ("k80", "t4", "p100", "v100", "a100", "a100-40"), _CLOUD
) | {"h100": "assumed: a cloud machine with one H100"}


@dataclass(frozen=True)
class Prices:
    """A list of prices, for GPU types that it names.

    Parameters
    ----------
    name, help : str
        What a list shows; help names source and date.
    usd_per_gpu_hour : mapping of float, USD
        GPU type -> price of one GPU for an hour.
    """

    name: str
    help: str
    usd_per_gpu_hour: Mapping[str, float]


PRICES: Final = (
    Prices(
        "on demand",
        "Google Cloud, about 2020, as in the motivation figure of Gavel (OSDI 2020).",
        {"k80": 0.52, "p100": 1.68, "v100": 2.85},
    ),
    Prices(
        "spot (preemptible)",
        "Google Cloud, about 2020, as Gavel's cost policies count (OSDI 2020).",
        {"k80": 0.135, "p100": 0.43, "v100": 0.74},
    ),
)
"""Price lists of the public code of Gavel: stanford-futuredata/gavel at c4fa400,
notebooks/figures/motivation and utils.py; it states no day.
"""


def with_prices(cluster: Cluster, prices: Prices) -> Cluster:
    """Return the cluster with the prices of a list; types that it does not name, and nodes with a
    price of their own, keep theirs.
    """
    kinds = tuple(
        replace(
            kind, price_per_gpu_hour=prices.usd_per_gpu_hour.get(kind.name, kind.price_per_gpu_hour)
        )
        for kind in cluster.types
    )
    return cluster if kinds == cluster.types else replace(cluster, types=kinds)


def known_like(name: str) -> GpuType | None:
    """Return the type of the catalogue that a name stands for, e.g. a100-80 for
    "nvidia_a100-sxm4-80gb"; None = none, or one without a speed.
    """
    found = find_gpu(name)
    return None if found is None else known_type(found.name)


def speed_from(kind: GpuType) -> str:
    """Return where the speed of a type comes from; `OWN` = from the user."""
    known = find_gpu(kind.name)
    if known is None or known.speed is None:
        return OWN if kind.speed != 1.0 else f"guessed: {_NONE}, assumed as fast as a V100"
    if kind.speed != known.speed:
        return OWN
    return f"guessed: {known.source}" if known.guessed else known.source


def guessed(cluster: Cluster) -> tuple[GpuType, ...]:
    """Return the GPU types of a cluster whose speed was neither measured nor entered."""
    used = {group.gpu_type for group in cluster.groups if group.gpus}
    return tuple(
        kind
        for kind in cluster.types
        if kind.name in used and speed_from(kind).startswith("guessed")
    )


def price_from(kind: GpuType) -> str:
    """Return where the price of a type comes from; `OWN` = from the user."""
    known, price = known_like(kind.name), kind.price_per_gpu_hour
    if known is not None and price and price == known.price_per_gpu_hour:
        return _PRICES[known.name]
    listed = next(
        (prices for prices in PRICES if prices.usd_per_gpu_hour.get(kind.name) == price), None
    )
    if listed is not None:
        return f"{listed.name}: {listed.help.rstrip('.')}"
    return OWN if price else _NONE


def not_own(cluster: Cluster) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the GPU types of a cluster with a list price that nobody has entered, and those
    without any, where a node's price follows from it.
    """
    used = {
        group.gpu_type for group in cluster.groups if group.gpus and group.price_per_hour is None
    }
    found = {kind.name: price_from(kind) for kind in cluster.types if kind.name in used}
    return tuple(name for name, source in found.items() if source not in (OWN, _NONE)), tuple(
        name for name, source in found.items() if source == _NONE
    )


def figures_from(cluster: Cluster) -> tuple[str, ...]:
    """Return a line per GPU type on where its speed and its price come from."""
    return tuple(
        f"{kind.name}: speed {kind.speed:g} ({speed_from(kind)}), {kind.price_per_gpu_hour:.2f} USD"
        f" ({price_from(kind)})."
        for kind in cluster.types
    )
