"""GPU types whose speed is known, and what stops a cluster that names another: no speed and no
price is ever assumed.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from sim.cluster import KNOWN_TYPES, Cluster, GpuType, known_type
from sim.errors import ClusterError

_ALIKE: Final = 0.7
"""Names that are less alike than that are not offered in place of each other."""


class UnknownGpuTypeError(ClusterError):
    """A cluster names GPU types of which no speed is known.

    Parameters
    ----------
    cluster : Cluster
        The cluster, with placeholders for the figures of those types.
    names : tuple of str
        The types.
    """

    def __init__(self, cluster: Cluster, names: tuple[str, ...]) -> None:
        super().__init__(" ".join(sentence(name) for name in names))
        self.cluster, self.names = cluster, names


def nearest(name: str) -> GpuType | None:
    """Return the known type whose name is most like another; None = none is."""
    found = difflib.get_close_matches(name.lower(), KNOWN_TYPES, n=1, cutoff=_ALIKE)
    return KNOWN_TYPES[found[0]] if found else None


def sentence(name: str) -> str:
    """Return what is said of a type without figures."""
    like = nearest(name)
    if like is None:
        return f"No speed known for ‘{name}’. Enter its speed and price."
    kind = like.name.upper()
    return f"No speed known for ‘{name}’. Nearest: {kind}. Enter speed and price, or take {kind}."


def unknown(cluster: Cluster, described: Collection[str] = ()) -> tuple[str, ...]:
    """Return the GPU types of a cluster that are neither known nor among those described."""
    used = dict.fromkeys(group.gpu_type for group in cluster.groups if group.gpus)
    return tuple(name for name in used if name not in described and known_type(name) is None)


def checked(cluster: Cluster, described: Iterable[str] = ()) -> Cluster:
    """Return a cluster all of whose types have figures.

    Raises
    ------
    UnknownGpuTypeError
        If a type is neither known nor among those described.
    """
    if names := unknown(cluster, {name.lower() for name in described}):
        raise UnknownGpuTypeError(cluster, names)
    return cluster


def parsed(text: str) -> Cluster:
    """Read a short description such as ``16x8:v100,2x0:cpu``; its name is the same in words.

    Raises
    ------
    ClusterError
        If a part does not follow the pattern, or names a type of which no speed is known.
    """
    cluster = Cluster.parse(text)
    return checked(replace(cluster, name=in_words(cluster)))


def from_json(data: Mapping[str, Any]) -> Cluster:
    """Read a description, in which a type that is not known has a line of its own under ``types``.

    Raises
    ------
    ClusterError
        If it cannot be read, or names a type of which no speed is known.
    """
    cluster = Cluster.from_json(data)
    return checked(cluster, [str(kind["name"]) for kind in data.get("types", ())])


def in_words(cluster: Cluster) -> str:
    """Return what a cluster consists of, e.g. "133 nodes of 8 V100"."""
    return ", ".join(
        f"{group.count:,} {'' if group.gpus else 'CPU '}node{'' if group.count == 1 else 's'}"
        + (f" of {group.gpus} {group.gpu_type.upper()}" if group.gpus else "")
        for group in cluster.groups
    )


def with_figures(cluster: Cluster, name: str, speed: float, price: float | None) -> Cluster:
    """Return a cluster with the figures of one of its types; a price of None = it has none."""
    kind = GpuType(name, speed, price or 0.0)
    others = tuple(one for one in cluster.types if one.name != name)
    return replace(cluster, types=(*others, kind))


def taken_for(cluster: Cluster, name: str, kind: GpuType) -> Cluster:
    """Return a cluster in which nodes of one type are of another."""
    groups = tuple(
        replace(group, gpu_type=kind.name) if group.gpu_type == name else group
        for group in cluster.groups
    )
    types = tuple(one for one in cluster.types if one.name not in (name, kind.name))
    made = replace(cluster, groups=groups, types=(*types, kind))
    # A name that says what the cluster consists of says it still.
    return replace(made, name=in_words(made)) if cluster.name == in_words(cluster) else made
