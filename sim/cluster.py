"""The machines: node groups that unfold into nodes, GPU types with speed and price, and a dated
list of changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeVar

from sim.errors import ClusterError
from sim.gpu_catalog import catalog, find
from sim.hosts import hosts_of
from sim.instances import alike, instance
from sim.limits import check_sizes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuType:
    """A kind of GPU.

    Parameters
    ----------
    name : str
        Lower case, e.g. "v100".
    speed : float, relative
        Training speed against the reference type (1.0); read by performance models that have no
        profile.
    price_per_gpu_hour : float, USD
        For comparison only until the user enters their own.
    """

    name: str
    speed: float = 1.0
    price_per_gpu_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` equal nodes.

    Parameters
    ----------
    count : int
        Nodes.
    gpus : int
        GPUs per node; 0 = a CPU node.
    gpu_type : str
        Name of a `GpuType`; "" for CPU nodes.
    cpus : float, cores per node
        inf = cores are not modelled on these nodes.
    mem_gb : float, GB per node
        inf = memory is not modelled on these nodes.
    rack_size : int, nodes
        Consecutive nodes that share a rack; 0 = the whole group is one rack.
    partitions : tuple of str
        Queues or virtual clusters that may use these nodes; empty = all may.
    price_per_hour : float or None, USD per node
        None = GPUs x price of their type.
    name : str
        Prefix of the node names.
    features : tuple of str
        What jobs may ask for by a constraint.
    weight : int
        Schedulers that look at weights use lighter nodes first.
    switch : str
        Name of the switch above all of them; "" = not said. The switches above it are in
        `Cluster.switches`.
    gres : tuple of (str, int)
        Countable resources of each node besides GPUs, e.g. ``(("nvme", 2),)``.
    hosts : str
        Their own names as a list such as ``gpu[01-16]``; "" = the prefix with numbers.
    """

    count: int
    gpus: int
    gpu_type: str = ""
    cpus: float = math.inf
    mem_gb: float = math.inf
    rack_size: int = 0
    partitions: tuple[str, ...] = ()
    price_per_hour: float | None = None
    name: str = ""
    features: tuple[str, ...] = ()
    weight: int = 1
    switch: str = ""
    gres: tuple[tuple[str, int], ...] = ()
    hosts: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine, unfolded from its group; its number is its place in `Cluster.nodes`."""

    name: str
    gpu_type: str
    gpus: int
    cpus: float
    mem_gb: float
    rack: str
    partitions: tuple[str, ...]
    price_per_hour: float
    features: tuple[str, ...] = ()
    weight: int = 1
    switch: str = ""
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_s` on, these nodes are present or absent (capacity 0): maintenance, growth, loss,
    daily VC sizes.

    Parameters
    ----------
    at_s : float, seconds
        When, counted from the first submission.
    nodes : tuple of int
        Their numbers.
    present : bool
        Whether they come or go.
    foreseen : bool
        False = these nodes come unannounced: a job that fits only with them is impossible if it is
        submitted before, instead of waiting for them.
    """

    at_s: float
    nodes: tuple[int, ...]
    present: bool
    foreseen: bool = True


@dataclass(frozen=True)
class Cluster:
    """A described cluster.

    Parameters
    ----------
    groups : tuple of NodeGroup
        In order; nodes are numbered through.
    types : tuple of GpuType
        Every type that a group names. A type left out gets the figures of `known_type`, or speed 1
        and price 0.
    changes : tuple of Change
        Dated, in any order.
    name : str
        What the user calls it.
    switches : tuple of (str, str)
        Each switch with the one above it.

    Raises
    ------
    ClusterError
        If there is no node, or a figure is negative, or a change names a node that is not there, or
        the names of a group's nodes are more or fewer than its nodes, or switches form a ring.
    """

    groups: tuple[NodeGroup, ...]
    types: tuple[GpuType, ...] = ()
    changes: tuple[Change, ...] = ()
    name: str = field(default="cluster", compare=False)
    switches: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Check, and complete the list of types."""
        for at, group in enumerate(self.groups, 1):
            _check_group(group, at)
        _check_switches(self.switches)
        object.__setattr__(
            self,
            "groups",
            tuple(replace(group, gpu_type=group.gpu_type.lower()) for group in self.groups),
        )
        object.__setattr__(
            self, "types", tuple(replace(kind, name=kind.name.lower()) for kind in self.types)
        )
        if not (nodes := sum(group.count for group in self.groups)):
            raise ClusterError("The cluster has no nodes. Add a row with at least one node.")
        check_sizes("The cluster", nodes, self.gpus)
        named = {kind.name for kind in self.types}
        for kind in self.types:
            if (
                not (kind.speed > 0 and math.isfinite(kind.speed))
                or not 0 <= kind.price_per_gpu_hour < math.inf
            ):
                both = (
                    f"speed {kind.speed} must be above 0, the price {kind.price_per_gpu_hour} not"
                    " negative"
                )
                raise ClusterError(f"GPU type {kind.name}: {both}, and both must be finite.")
        if len(named) != len(self.types):
            raise ClusterError("A GPU type is described twice. Keep one line for each type.")
        used = dict.fromkeys(group.gpu_type for group in self.groups if group.gpus)
        extra = tuple(known_type(kind) or GpuType(kind) for kind in used if kind not in named)
        object.__setattr__(self, "types", self.types + extra)
        for change in self.changes:
            if any(not 0 <= node < len(self.nodes) for node in change.nodes) or not math.isfinite(
                change.at_s
            ):
                raise ClusterError(
                    f"The change at {change.at_s} s is never, or names a node outside"
                    f" 0..{len(self.nodes) - 1}. Correct the list of changes."
                )

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, numbered by their place."""
        prices = {kind.name: kind.price_per_gpu_hour for kind in self.types}
        unfolded: list[Node] = []
        for at, group in enumerate(self.groups):
            prefix = group.name or f"{group.gpu_type or 'cpu'}-{at + 1}"
            price = group.price_per_hour
            if price is None:
                price = group.gpus * prices.get(group.gpu_type, 0.0)
            names = hosts_of(group.hosts, prefix) if group.hosts else []
            for i in range(group.count):
                rack = (
                    f"{prefix}/r{i // group.rack_size + 1}" if group.rack_size else f"{prefix}/r1"
                )
                unfolded.append(
                    Node(
                        names[i] if names else f"{prefix}-{i + 1:0{len(str(group.count))}d}",
                        group.gpu_type if group.gpus else "",
                        group.gpus,
                        group.cpus,
                        group.mem_gb,
                        rack,
                        group.partitions,
                        price,
                        group.features,
                        group.weight,
                        group.switch,
                        group.gres,
                    )
                )
        return tuple(unfolded)

    @cached_property
    def type_index(self) -> Mapping[str, int]:
        """Name of a GPU type -> its place in `types`."""
        return {kind.name: at for at, kind in enumerate(self.types)}

    @cached_property
    def unforeseen(self) -> tuple[tuple[float, frozenset[int]], ...]:
        """Instants at which nodes come unannounced, the last first, each with all nodes unknown
        until then.
        """
        come = sorted(
            [change for change in self.changes if change.present and not change.foreseen],
            key=lambda change: -change.at_s,
        )
        return tuple(
            (change.at_s, frozenset(node for later in come[: at + 1] for node in later.nodes))
            for at, change in enumerate(come)
        )

    @property
    def known(self) -> tuple[Node, ...]:
        """The nodes that are known of from the beginning."""
        unknown = self.unknown(-math.inf)
        return (
            tuple(node for at, node in enumerate(self.nodes) if at not in unknown)
            if unknown
            else self.nodes
        )

    def absent(self, now_s: float) -> frozenset[int]:
        """Return the nodes that dated changes have taken away at an instant in seconds."""
        found: set[int] = set()
        for change in sorted(self.changes, key=lambda change: change.at_s):
            if change.at_s <= max(now_s, 0.0):
                (found.difference_update if change.present else found.update)(change.nodes)
        return frozenset(found)

    def unknown(self, now_s: float) -> frozenset[int]:
        """Return the nodes that will come unannounced after an instant in seconds."""
        return next(
            (nodes for at_s, nodes in reversed(self.unforeseen) if now_s < at_s), frozenset()
        )

    @property
    def gpus(self) -> int:
        """GPUs of all nodes, present or not."""
        return sum(group.count * group.gpus for group in self.groups)

    @property
    def price_per_hour(self) -> float:
        """USD per hour for all nodes."""
        return sum(node.price_per_hour for node in self.nodes)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of all partitions, in order of appearance."""
        return tuple(dict.fromkeys(name for group in self.groups for name in group.partitions))

    @cached_property
    def digest(self) -> str:
        """Content hash of everything but the name."""
        body = json.dumps(self.to_json() | {"name": ""}, sort_keys=True)
        return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what a scenario file holds. Infinite figures are written as null."""
        plain = {
            "name": self.name,
            "groups": [_plain_group(group) for group in self.groups],
            "types": [asdict(kind) for kind in self.types],
            "changes": [_plain_change(change) for change in self.changes],
        }
        return plain | ({"switches": dict(self.switches)} if self.switches else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cluster:
        """Read what `to_json` wrote.

        Raises
        ------
        ClusterError
            If a key is missing, unknown or of the wrong kind.
        """
        if not isinstance(data, Mapping) or "groups" not in data:
            shown = "" if isinstance(data, Mapping) else f" but {data!r:.60}"
            raise ClusterError(
                f"The cluster is no table with the key 'groups'{shown}. See the reference page on"
                " clusters for its keys."
            )
        groups = [
            NodeGroup(**_values("Row", row, group, _GROUP, ("count", "gpus")))
            for row, group in _rows(data, "groups")
        ]
        types = [
            GpuType(**_values("GPU type", row, kind, _TYPE, ("name",)))
            for row, kind in _rows(data, "types")
        ]
        changes = [
            Change(**_values("Change", row, change, _CHANGE, ("at_s", "nodes", "present")))
            for row, change in _rows(data, "changes")
        ]
        return cls(
            tuple(groups),
            tuple(types),
            tuple(changes),
            str(data.get("name", "cluster")),
            _switches(data.get("switches", {})),
        )

    @classmethod
    def parse(cls, spec: str) -> Cluster:
        """Read a short description such as ``16x8:v100,4x4:t4,2x0:cpu`` (nodes x GPUs : type).

        ``4xp4d.24xlarge`` are four cloud instances of that name (`sim.instances`), with their cores
        and memory. A part may go on with ``/96c`` (cores per node) and ``/512g`` (GB per node). CPU
        nodes have 96 cores and 512 GB unless given (the machines of the PAI trace); on GPU nodes
        cores and memory are not modelled unless given.

        Raises
        ------
        ClusterError
            If a part does not follow the pattern.
        """
        return cls(tuple(_parse_group(part.strip()) for part in spec.split(",")), name=spec)


# Speed against one V100 and on-demand price of the GPU alone: docs/reference/gpu-types.md names the
# source of every figure. For comparison only.
KNOWN_TYPES: Mapping[str, GpuType] = {
    gpu.name: GpuType(gpu.name, gpu.speed, gpu.price)
    for gpu in catalog().values()
    if gpu.speed is not None
}


def known_type(name: str) -> GpuType | None:
    """Return the figures of a GPU type under the name given, e.g. those of `a100-80` for
    "a100-sxm4-80gb"; None = its speed is not known.
    """
    found = find(name)
    if found is None or found.speed is None:
        return None
    return GpuType(name, found.speed, found.price)


_LATER: Final = ("features", "weight", "switch", "gres", "hosts")
"""Of a group; written only where they are given, so that the digests of all others stay."""


def _plain_group(group: NodeGroup) -> dict[str, Any]:
    plain = {key: None if value == math.inf else value for key, value in asdict(group).items()}
    plain |= {"partitions": list(group.partitions), "features": list(group.features)}
    plain["gres"] = dict(group.gres)
    return {
        key: value
        for key, value in plain.items()
        if key not in _LATER or getattr(group, key) != getattr(_PLAIN, key)
    }


_PLAIN: Final = NodeGroup(1, 0)


def _switches(data: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(data, Mapping) or not all(isinstance(one, str) for one in data.values()):
        raise ClusterError(
            f"The cluster: switches = {data!r:.60} is no table of switches with the one above each."
        )
    return tuple((str(child), parent) for child, parent in data.items())


def _plain_change(change: Change) -> dict[str, Any]:
    plain = {"at_s": change.at_s, "nodes": list(change.nodes), "present": change.present}
    return plain if change.foreseen else plain | {"foreseen": False}


def _rows(data: Mapping[str, Any], key: str) -> Iterable[tuple[int, Any]]:
    rows = data.get(key, ())
    if not isinstance(rows, (list, tuple)):
        raise ClusterError(
            f"The cluster: {key} = {rows!r:.60} is not a list. See the reference page on clusters"
            " for its keys."
        )
    return enumerate(rows, 1)


def _values(
    what: str, row: int, data: Any, kinds: Mapping[str, str], needed: tuple[str, ...]
) -> dict[str, Any]:
    where = f"{what} {row} of the cluster"
    if not isinstance(data, Mapping):
        raise ClusterError(
            f"{where} is {data!r:.60}, but it must be a table with {', '.join(kinds)}."
        )
    for key in data:
        if key not in kinds:
            raise ClusterError(f"{where} has no key '{key!s:.60}'. It has: {', '.join(kinds)}.")
    for key in needed:
        if key not in data:
            raise ClusterError(f"{where} lacks the key '{key}'. Add it.")
    made = {}
    for key, value in data.items():
        try:
            made[key] = _READ[kinds[key]](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ClusterError(f"{where}: {key} = {value!r:.60} is not {kinds[key]}.") from error
    return made


def _number(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError(value)
    return float(value)


def _whole(value: Any) -> int | float:
    # Table editors make floats of whole numbers; real fractions are refused when the cluster is
    # checked.
    return int(value) if _number(value).is_integer() else float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _several(value: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(value)
    return tuple(map(read, value))


def _yes(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "a whole number": _whole,
    "a number": _number,
    "a number or null": lambda value: math.inf if value is None else _number(value),
    "a price or null": lambda value: None if value is None else _number(value),
    "text": _text,
    "a list of names": lambda value: _several(value, _text),
    "a list of whole numbers": lambda value: _several(value, operator.index),
    "true or false": _yes,
    "a table of counts": lambda value: tuple(
        (_text(name), operator.index(count)) for name, count in dict(value).items()
    ),
}
_GROUP: Final = {
    "count": "a whole number",
    "gpus": "a whole number",
    "gpu_type": "text",
    "cpus": "a number or null",
    "mem_gb": "a number or null",
    "rack_size": "a whole number",
    "partitions": "a list of names",
    "price_per_hour": "a price or null",
    "name": "text",
    "features": "a list of names",
    "weight": "a whole number",
    "switch": "text",
    "gres": "a table of counts",
    "hosts": "text",
}
_TYPE_NAME: Final = re.compile(r"[a-z0-9._-]+")
"""What a GPU type may be called in the short description, in lower case."""
_TYPE: Final = {"name": "text", "speed": "a number", "price_per_gpu_hour": "a number"}
_CHANGE: Final = {
    "at_s": "a number",
    "nodes": "a list of whole numbers",
    "present": "true or false",
    "foreseen": "true or false",
}


def _check_group(group: NodeGroup, at: int) -> None:
    figures: Iterable[tuple[str, float | None]] = (
        ("nodes", group.count),
        ("GPUs per node", group.gpus),
        ("cores", group.cpus),
        ("memory", group.mem_gb),
        ("rack size", group.rack_size),
        ("price", group.price_per_hour),
    )
    for what, value in figures:
        if value is not None and not value >= 0:
            raise ClusterError(
                f"Row {at} of the cluster: {what} is {value}, but it must be a number that is not"
                " negative."
            )
    check_sizes(
        f"Row {at} of the cluster",
        group.count,
        group.gpus,
        group.rack_size,
        group.name,
        group.gpu_type,
    )
    if any(number != int(number) for number in (group.count, group.gpus, group.rack_size)):
        raise ClusterError(
            f"Row {at} of the cluster: {group.count} nodes with {group.gpus} GPUs,"
            f" {group.rack_size} to a rack; these must be whole numbers."
        )
    named = len(hosts_of(group.hosts, f"Row {at} of the cluster")) if group.hosts else group.count
    if named != group.count:
        raise ClusterError(
            f"Row {at} of the cluster: {group.count} nodes, but hosts names {named}. Give one name"
            " for each node, or none."
        )
    if group.gpus and not group.gpu_type:
        raise ClusterError(
            f"Row {at} of the cluster: {group.gpus} GPUs per node but no GPU type. Name the type."
        )


def _check_switches(switches: tuple[tuple[str, str], ...]) -> None:
    above = dict(switches)
    for child, parent in switches:
        seen, at = {child}, parent
        while at in above:
            if at in seen:
                raise ClusterError(
                    f"The switch {at} of the cluster is above itself. Correct the list of switches."
                )
            seen.add(at)
            at = above[at]


def _parse_group(part: str) -> NodeGroup:
    body, *extras = part.split("/")
    shape, _, kind = body.partition(":")
    count, _, each = shape.partition("x")
    kind = kind.strip().lower()
    named = None if kind else instance(each)
    try:
        nodes, per_node = int(count), named.gpus if named else int(each)
        limits = {extra[-1]: float(extra[:-1]) for extra in extras}
    except (ValueError, IndexError):
        nodes, per_node, limits = -1, -1, {}
    if nodes < 0 or per_node < 0 or not (kind or named) or set(limits) - {"c", "g"}:
        near = alike(each) if not kind and re.search("[a-z]", each, re.IGNORECASE) else ""
        raise ClusterError(
            f"Cluster part '{part}' is not of the form nodes x GPUs : type, e.g. 16x8:v100, 2x0:cpu"
            " or 4x8:a100/96c/1024g"
            + (f", and names no cloud instance that is known; {near} is." if near else ".")
        )
    if named:
        return NodeGroup(
            nodes,
            per_node,
            named.gpu_type,
            limits.get("c", named.cpus),
            limits.get("g", named.mem_gb),
            name=named.name,
        )
    if not _TYPE_NAME.fullmatch(kind):
        raise ClusterError(
            f"Cluster part '{part}' names a GPU type '{kind}', but names have letters, digits, '.',"
            " '_' and '-' only. Separate parts with ','."
        )
    cores, memory = (math.inf, math.inf) if per_node else (96.0, 512.0)
    return NodeGroup(
        nodes,
        per_node,
        kind if per_node else "",
        limits.get("c", cores),
        limits.get("g", memory),
        name="" if per_node else kind,
    )
