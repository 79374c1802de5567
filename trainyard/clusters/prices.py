"""Where the speeds and prices of GPU types come from: this project's figures with their source,
lists of prices, or the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sim.cluster import KNOWN_TYPES, Cluster, GpuType

OWN: Final = "own"
_NONE: Final = "not known"
_PART_OF_A_GPU: Final = re.compile(r"\d+g\.\d+gb")
_CLOUD: Final = "Google Cloud on demand, the GPU alone (SkyPilot's catalogue v1 at 6e18f0e)"
_SPEEDS: Final[Mapping[str, str]] = {
    "k80": "measured for Gavel (OSDI 2020), geometric mean of 25",
    "p100": "measured for Gavel (OSDI 2020), geometric mean of 26",
    "v100": "the reference, 1 by definition",
    "a100": "micro-benchmarks of a BERT layer",
    "t4": "assumed",
    "h100": "assumed: twice an A100",
}
_PRICES: Final[Mapping[str, str]] = dict.fromkeys(("k80", "t4", "p100", "v100", "a100"), _CLOUD) | {
    "h100": "assumed: a cloud machine with one H100"
}


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
    """Return the type of known figures that a name stands for, e.g. v100 for
    "tesla_v100-sxm2-16gb"; None = none, or only a part of such a GPU.
    """
    if name in KNOWN_TYPES:
        return KNOWN_TYPES[name]
    if _PART_OF_A_GPU.search(name):
        return None
    return next(
        (
            kind
            for known, kind in KNOWN_TYPES.items()
            if re.search(rf"(?<![a-z0-9]){known}(?!\d|[a-z](?!\d))", name)
        ),
        None,
    )


def speed_from(kind: GpuType) -> str:
    """Return where the speed of a type comes from; `OWN` = from the user."""
    known = known_like(kind.name)
    if known is None:
        return OWN if kind.speed != 1.0 else _NONE
    return _SPEEDS[known.name] if kind.speed == known.speed else OWN


def price_from(kind: GpuType) -> str:
    """Return where the price of a type comes from; `OWN` = from the user."""
    known, price = known_like(kind.name), kind.price_per_gpu_hour
    if known is not None and price == known.price_per_gpu_hour:
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
