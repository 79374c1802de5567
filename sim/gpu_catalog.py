"""Catalog of GPU types: speed, memory, price and source of each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Final

SLICES: Final = 7
"""MIG slices of one GPU."""
_MIG: Final = re.compile(r"(?:mig[-_.])?(\d)(?:g|c\.\d+g)\.(\d+)gb(?:\+.*)?")
_MAKER: Final = re.compile(r"^(?:(?:gres/)?gpu:)?(?:(?:nvidia|tesla|amd|quadro(?=-rtx))[-_]+)*")


@dataclass(frozen=True, slots=True)
class CatalogGpu:
    """A GPU type of the catalog.

    Parameters
    ----------
    name : str
        Lower case, e.g. "a100-80".
    speed : float or None, relative
        Training speed against a V100; None = unknown.
    price : float, USD per GPU-hour
        0 = unknown.
    memory_gb : float or None, GB
        None = several sizes exist, or unknown.
    source : str
        Where the speed comes from.
    guessed : bool
        Whether the speed is an estimate, not a measurement in training.
    aliases : tuple of str
        Regular expressions of other names.
    """

    name: str
    speed: float | None = None
    price: float = 0.0
    memory_gb: float | None = None
    source: str = ""
    guessed: bool = False
    aliases: tuple[str, ...] = ()


@cache
def catalog() -> Mapping[str, CatalogGpu]:
    """Return the GPU types of ``gpus.toml`` by name; measured before estimated ones."""
    text = resources.files("sim").joinpath("gpus.toml").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            name: CatalogGpu(name, **{**facts, "aliases": tuple(facts.get("aliases", ()))})
            for name, facts in tomllib.loads(text).items()
        }
    )


@lru_cache(maxsize=4096)
def find_gpu(name: str) -> CatalogGpu | None:
    """Return the catalog entry for a GPU name such as "NVIDIA-A100-SXM4-80GB", or None.

    A part of a GPU (MIG) is a type whose speed is estimated by its share of the GPU.
    """
    plain = _MAKER.sub("", re.sub(r"\s+", "-", name.strip().lower()))
    return _find_whole_gpu(re.sub(r"[-_:()]+", "-", plain).strip("-")) or _mig_slice(plain)


def _find_whole_gpu(plain: str) -> CatalogGpu | None:
    """Return the catalog entry of a whole GPU by name or alias, or None.

    A suffix such as "-80gb" must equal the memory size of the type.
    """
    entry = catalog().get(plain) or next(
        (
            gpu
            for gpu in catalog().values()
            if any(re.fullmatch(alias, plain) for alias in gpu.aliases)
        ),
        None,
    )
    sized = re.fullmatch(r"(.+)-(\d+)gb?", plain)
    if entry is not None or sized is None:
        return entry
    # A name with its memory size is accepted only if the type has that size.
    gpu = _find_whole_gpu(sized[1])
    return gpu if gpu is not None and gpu.memory_gb == float(sized[2]) else None


def _mig_slice(plain: str) -> CatalogGpu | None:
    """Return an estimated entry for a MIG slice such as "a100-3g.20gb", or None.

    Its speed is that share of the GPU's speed, or unknown if the GPU is not named.
    """
    cut = re.fullmatch(rf"(?:(.+?)[-_])?({_MIG.pattern})", plain)
    if cut is None:
        return None
    slices, memory = int(cut[3]), float(cut[4])
    if not 1 <= slices <= SLICES:
        return None
    whole = find_gpu(cut[1]) if cut[1] else None
    if whole is None or whole.speed is None:
        return CatalogGpu(plain, memory_gb=memory, source="part of a GPU that is not named")
    source = f"{slices} of {SLICES} parts of {whole.name}"
    return CatalogGpu(plain, whole.speed * slices / SLICES, 0.0, memory, source, guessed=True)
