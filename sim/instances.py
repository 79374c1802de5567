"""Cloud instances that are known by name, as nodes."""

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
"""What the names of Azure's sizes begin with; people leave it out."""
_ALIKE: Final = 0.6


@dataclass(frozen=True, slots=True)
class Instance:
    """What a cloud instance is made of.

    Parameters
    ----------
    name : str
        Lower case, e.g. "p4d.24xlarge".
    gpus : int
        GPUs of it.
    gpu_type : str
        Name in `sim.gpu_catalog`.
    cpus : float, virtual CPUs
        Hardware threads, where the vendor has those.
    mem_gb : float, GiB
        Main memory.
    family : str
        Vendor and series.
    source : str
        The vendor's list that says so, with its day.
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
    """Return all instances by name."""
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


def instance(name: str) -> Instance | None:
    """Return the instance of a name, whose case does not count and whose "Standard_" may be
    missing; None = none.
    """
    plain, known = name.strip().lower(), instances()
    return known.get(plain) or known.get(AZURE + plain)


def alike(name: str) -> str:
    """Return the instance whose name is most like another; "" = none is."""
    plain = name.strip().lower()
    found = difflib.get_close_matches(
        plain.removeprefix(AZURE),
        [known.removeprefix(AZURE) for known in instances()],
        n=1,
        cutoff=_ALIKE,
    )
    return found[0] if found else ""
