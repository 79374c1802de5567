"""Known GPU types, and errors for clusters with unknown ones.

The speed and price of a type are never guessed.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from sim.cluster import KNOWN_TYPES, Cluster, GpuType, known_type
from sim.errors import ClusterError

_MIN_SIMILARITY: Final = 0.7
"""Minimum similarity of a type name to be suggested for another."""


class UnknownGpuTypeError(ClusterError):
    """Raised for a cluster with GPU types of unknown speed.

    Parameters
    ----------
    cluster : Cluster
        The cluster, with placeholder figures for those types.
    names : tuple of str
        The types.
    """

    def __init__(self, cluster: Cluster, names: tuple[str, ...]) -> None:
        super().__init__(" ".join(unknown_type_message(name) for name in names))
        self.cluster, self.names = cluster, names


def nearest(name: str) -> GpuType | None:
    """Return the known type with the most similar name, None if none is similar."""
    matches = difflib.get_close_matches(name.lower(), KNOWN_TYPES, n=1, cutoff=_MIN_SIMILARITY)
    return KNOWN_TYPES[matches[0]] if matches else None


def unknown_type_message(name: str) -> str:
    """Return the message about a type of unknown speed, with the nearest known type."""
    like = nearest(name)
    if like is None:
        return f"No speed known for ‘{name}’. Enter its speed and price."
    kind = like.name.upper()
    return f"No speed known for ‘{name}’. Nearest: {kind}. Enter speed and price, or use {kind}."


def unknown_types(cluster: Cluster, described: Collection[str] = ()) -> tuple[str, ...]:
    """Return the GPU types of a cluster's nodes that are neither known nor described."""
    used = dict.fromkeys(group.gpu_type for group in cluster.groups if group.gpus)
    return tuple(name for name in used if name not in described and known_type(name) is None)


def check_types(cluster: Cluster, described: Iterable[str] = ()) -> Cluster:
    """Return a cluster after checking that all its types have figures.

    Raises
    ------
    UnknownGpuTypeError
        If a type is neither known nor described.
    """
    if names := unknown_types(cluster, {name.lower() for name in described}):
        raise UnknownGpuTypeError(cluster, names)
    return cluster


def parse_cluster(text: str) -> Cluster:
    """Return the cluster of a short description such as ``16x8:v100,2x0:cpu``.

    Raises
    ------
    ClusterError
        If a part does not follow the pattern, or names a type of unknown speed.
    """
    cluster = Cluster.parse(text)
    return check_types(replace(cluster, name=describe_cluster(cluster)))


def from_json(data: Mapping[str, Any]) -> Cluster:
    """Return a cluster from its JSON, where ``types`` describes unknown types.

    Raises
    ------
    ClusterError
        If it cannot be read, or names a type of unknown speed.
    """
    cluster = Cluster.from_json(data)
    return check_types(cluster, [str(kind["name"]) for kind in data.get("types", ())])


def describe_cluster(cluster: Cluster) -> str:
    """Return a description of a cluster, e.g. "133 nodes of 8 V100"."""
    return ", ".join(
        f"{group.count:,} {'' if group.gpus else 'CPU '}node{'' if group.count == 1 else 's'}"
        + (f" of {group.gpus} {group.gpu_type.upper()}" if group.gpus else "")
        for group in cluster.groups
    )


def with_figures(cluster: Cluster, name: str, speed: float, price: float | None) -> Cluster:
    """Return a cluster with these figures for one of its GPU types; price None = unpriced."""
    kind = GpuType(name, speed, price or 0.0)
    others = tuple(one for one in cluster.types if one.name != name)
    return replace(cluster, types=(*others, kind))


def replace_type(cluster: Cluster, name: str, kind: GpuType) -> Cluster:
    """Return a cluster with the nodes of GPU type `name` changed to another type.

    A generated cluster name is updated.
    """
    groups = tuple(
        replace(group, gpu_type=kind.name) if group.gpu_type == name else group
        for group in cluster.groups
    )
    types = tuple(one for one in cluster.types if one.name not in (name, kind.name))
    changed = replace(cluster, groups=groups, types=(*types, kind))
    # A generated name must match the new contents.
    return (
        replace(changed, name=describe_cluster(changed))
        if cluster.name == describe_cluster(cluster)
        else changed
    )
