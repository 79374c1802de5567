"""Catalog of cloud instances, used as node types."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

AZURE: Final = "standard_"
"""Prefix of the names of Azure sizes, which users often leave out."""
_SIMILARITY: Final = 0.6


@dataclass(frozen=True, slots=True)
class Instance:
    """Hardware of a cloud instance.

    Parameters
    ----------
    name : str
        Lower case, e.g. "p4d.24xlarge".
    gpus : int
        Number of GPUs.
    gpu_type : str
        Name in `sim.gpu_catalog`.
    cpus : float, virtual CPUs
        Hardware threads, where the vendor has those.
    mem_gb : float, GiB
        Main memory.
    family : str
        Vendor and series.
    source : str
        The vendor's list and its date.
    """

    name: str
    gpus: int
    gpu_type: str
    cpus: float
    mem_gb: float
    family: str
    source: str


@cache
def instances() -> Mapping[str, Instance]:
    """Return all instances by name, read from ``instances.toml``."""
    text = resources.files("sim").joinpath("instances.toml").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            name: Instance(
                name,
                gpus,
                facts["gpu_type"],
                float(cpus),
                float(memory),
                family,
                f"{facts['source']}, {facts['date']}",
            )
            for family, facts in tomllib.loads(text).items()
            for name, (gpus, cpus, memory) in facts["sizes"].items()
        }
    )


def find_instance(name: str) -> Instance | None:
    """Return the instance with a name, or None.

    Upper and lower case are equal, and a "Standard_" prefix may be missing.
    """
    plain, catalog = name.strip().lower(), instances()
    return catalog.get(plain) or catalog.get(AZURE + plain)


def closest_instance(name: str) -> str:
    """Return the closest instance name, without the "standard_" prefix; "" = none is close."""
    plain = name.strip().lower()
    matches = difflib.get_close_matches(
        plain.removeprefix(AZURE),
        [candidate.removeprefix(AZURE) for candidate in instances()],
        n=1,
        cutoff=_SIMILARITY,
    )
    return matches[0] if matches else ""
