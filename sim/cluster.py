"""The cluster: node groups that unfold into nodes, GPU types and dated changes."""

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

from sim.cloud_instances import closest_instance, find_instance
from sim.errors import ClusterError
from sim.gpu_catalog import catalog, find_gpu
from sim.host_lists import expand_hosts
from sim.limits import check_sizes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuType:
    """A type of GPU with its speed and price.

    Parameters
    ----------
    name : str
        Lower case, e.g. "v100".
    speed : float, relative
        Training speed against the reference type (1.0); read by performance models that have no
        profile.
    price_per_gpu_hour : float, USD
        For comparison only; users enter their own prices.
    """

    name: str
    speed: float = 1.0
    price_per_gpu_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A number of equal nodes.

    Parameters
    ----------
    count : int
        Number of nodes.
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
        Queues or virtual clusters that may use these nodes; empty = all.
    price_per_hour : float or None, USD per node
        None = GPUs x price of their type.
    name : str
        Prefix of the node names.
    features : tuple of str
        Features that a job may require with a constraint.
    weight : int
        Schedulers with node weights use lighter nodes first.
    switch : str
        Name of the switch that connects all of them; "" = unknown. Switches above it are in
        `Cluster.switches`.
    gres : tuple of (str, int)
        Countable resources of each node besides GPUs, e.g. ``(("nvme", 2),)``.
    hosts : str
        Names of the nodes as a list such as ``gpu[01-16]``; "" = the prefix with numbers.
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
    """One machine, unfolded from its group; its number is its index in `Cluster.nodes`."""

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
    """A dated change: from `at_s` on, the nodes are present or absent (capacity 0).

    For example maintenance, growth, loss, or daily sizes of virtual clusters.

    Parameters
    ----------
    at_s : float, seconds
        Time since the first submission.
    nodes : tuple of int
        Node numbers.
    present : bool
        True = the nodes come, False = they go.
    foreseen : bool
        False = the nodes come unannounced: a job submitted before that fits only with them is
        impossible instead of waiting for them.
    """

    at_s: float
    nodes: tuple[int, ...]
    present: bool
    foreseen: bool = True


@dataclass(frozen=True)
class Cluster:
    """A cluster of node groups, with GPU types, dated changes and switches.

    Parameters
    ----------
    groups : tuple of NodeGroup
        In order; nodes are numbered across groups.
    types : tuple of GpuType
        The GPU types of the groups. A missing type gets the figures of `known_type`, or speed 1
        and price 0.
    changes : tuple of Change
        Dated changes, in any order.
    name : str
        What the user calls it.
    switches : tuple of (str, str)
        Pairs of a switch and its parent switch.

    Raises
    ------
    ClusterError
        If there is no node, a figure is negative, a change names a missing node, a group has
        another number of host names than nodes, or switches form a ring.
    """

    groups: tuple[NodeGroup, ...]
    types: tuple[GpuType, ...] = ()
    changes: tuple[Change, ...] = ()
    name: str = field(default="cluster", compare=False)
    switches: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Validate the cluster, and add the GPU types that the groups use."""
        for row, group in enumerate(self.groups, 1):
            _check_group(group, row)
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
        """All nodes; a node's number is its index here."""
        prices = {kind.name: kind.price_per_gpu_hour for kind in self.types}
        unfolded: list[Node] = []
        for group_index, group in enumerate(self.groups):
            prefix = group.name or f"{group.gpu_type or 'cpu'}-{group_index + 1}"
            price = group.price_per_hour
            if price is None:
                price = group.gpus * prices.get(group.gpu_type, 0.0)
            names = expand_hosts(group.hosts, prefix) if group.hosts else []
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
        """Name of a GPU type -> its index in `types`."""
        return {kind.name: index for index, kind in enumerate(self.types)}

    @cached_property
    def unforeseen(self) -> tuple[tuple[float, frozenset[int]], ...]:
        """Arrivals of unannounced nodes as (at_s, nodes unknown until then), latest first."""
        arrivals = sorted(
            [change for change in self.changes if change.present and not change.foreseen],
            key=lambda change: -change.at_s,
        )
        return tuple(
            (
                change.at_s,
                frozenset(node for later in arrivals[: index + 1] for node in later.nodes),
            )
            for index, change in enumerate(arrivals)
        )

    @property
    def initial_nodes(self) -> tuple[Node, ...]:
        """The nodes that are known at the start of the run."""
        unknown = self.unknown(-math.inf)
        return (
            tuple(node for node_index, node in enumerate(self.nodes) if node_index not in unknown)
            if unknown
            else self.nodes
        )

    def absent(self, now_s: float) -> frozenset[int]:
        """Return the numbers of the nodes removed by dated changes and not back at `now_s`."""
        absent: set[int] = set()
        for change in sorted(self.changes, key=lambda change: change.at_s):
            if change.at_s <= max(now_s, 0.0):
                (absent.difference_update if change.present else absent.update)(change.nodes)
        return frozenset(absent)

    def unknown(self, now_s: float) -> frozenset[int]:
        """Return the nodes that come unannounced after `now_s`."""
        return next(
            (nodes for at_s, nodes in reversed(self.unforeseen) if now_s < at_s), frozenset()
        )

    @property
    def gpus(self) -> int:
        """GPUs of all nodes, present or not."""
        return sum(group.count * group.gpus for group in self.groups)

    @property
    def price_per_hour(self) -> float:
        """Price of all nodes, USD per hour."""
        return sum(node.price_per_hour for node in self.nodes)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of all partitions, in order of appearance."""
        return tuple(dict.fromkeys(name for group in self.groups for name in group.partitions))

    @cached_property
    def digest(self) -> str:
        """Content hash of everything except the name."""
        body = json.dumps(self.to_json() | {"name": ""}, sort_keys=True)
        return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the cluster as plain values for a scenario file; infinity becomes null."""
        plain = {
            "name": self.name,
            "groups": [_plain_group(group) for group in self.groups],
            "types": [asdict(kind) for kind in self.types],
            "changes": [_plain_change(change) for change in self.changes],
        }
        return plain | ({"switches": dict(self.switches)} if self.switches else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cluster:
        """Build a cluster from the output of `to_json`.

        Raises
        ------
        ClusterError
            If a key is missing or of the wrong kind, or a row has an unknown key.
        """
        if not isinstance(data, Mapping) or "groups" not in data:
            shown = "" if isinstance(data, Mapping) else f" but {data!r:.60}"
            raise ClusterError(
                f"The cluster is no table with the key 'groups'{shown}. See the reference page on"
                " clusters for its keys."
            )
        groups = [
            NodeGroup(**_row_values("Row", row, group, _GROUP, ("count", "gpus")))
            for row, group in _rows(data, "groups")
        ]
        types = [
            GpuType(**_row_values("GPU type", row, kind, _TYPE, ("name",)))
            for row, kind in _rows(data, "types")
        ]
        changes = [
            Change(**_row_values("Change", row, change, _CHANGE, ("at_s", "nodes", "present")))
            for row, change in _rows(data, "changes")
        ]
        return cls(
            tuple(groups),
            tuple(types),
            tuple(changes),
            str(data.get("name", "cluster")),
            _switch_pairs(data.get("switches", {})),
        )

    @classmethod
    def parse(cls, spec: str) -> Cluster:
        """Build a cluster from text such as ``16x8:v100,4x4:t4,2x0:cpu`` (nodes x GPUs : type).

        ``4xp4d.24xlarge`` are four cloud instances of that name (`sim.cloud_instances`), with their
        cores and memory. A part may end with ``/96c`` (cores per node) and ``/512g`` (GB per node).
        By default CPU nodes have 96 cores and 512 GB (the machines of the PAI trace), and cores and
        memory of GPU nodes are not modelled.

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
    """Return a GPU type with the catalog's figures under the given name, or None.

    For example those of `a100-80` for "a100-sxm4-80gb"; None = its speed is unknown.
    """
    entry = find_gpu(name)
    if entry is None or entry.speed is None:
        return None
    return GpuType(name, entry.speed, entry.price)


_NEWER_KEYS: Final = ("features", "weight", "switch", "gres", "hosts")
"""Newer keys of a group; written only if set, so that older digests stay valid."""


def _plain_group(group: NodeGroup) -> dict[str, Any]:
    """Return a node group as plain values, without newer keys that have defaults."""
    plain = {key: None if value == math.inf else value for key, value in asdict(group).items()}
    plain |= {"partitions": list(group.partitions), "features": list(group.features)}
    plain["gres"] = dict(group.gres)
    return {
        key: value
        for key, value in plain.items()
        if key not in _NEWER_KEYS or getattr(group, key) != getattr(_DEFAULT_GROUP, key)
    }


_DEFAULT_GROUP: Final = NodeGroup(1, 0)


def _switch_pairs(data: Any) -> tuple[tuple[str, str], ...]:
    """Return the (switch, parent) pairs of a JSON table; refuse other types."""
    if not isinstance(data, Mapping) or not all(isinstance(one, str) for one in data.values()):
        raise ClusterError(
            f"The cluster: switches = {data!r:.60} is no table of switches with the one above each."
        )
    return tuple((str(child), parent) for child, parent in data.items())


def _plain_change(change: Change) -> dict[str, Any]:
    """Return a dated change as plain values; `foreseen` is written only if False."""
    plain = {"at_s": change.at_s, "nodes": list(change.nodes), "present": change.present}
    return plain if change.foreseen else plain | {"foreseen": False}


def _rows(data: Mapping[str, Any], key: str) -> Iterable[tuple[int, Any]]:
    """Return (number from 1, row) pairs of a list in the JSON form; a missing key has none."""
    rows = data.get(key, ())
    if not isinstance(rows, (list, tuple)):
        raise ClusterError(
            f"The cluster: {key} = {rows!r:.60} is not a list. See the reference page on clusters"
            " for its keys."
        )
    return enumerate(rows, 1)


def _row_values(
    what: str, row: int, data: Any, kinds: Mapping[str, str], needed: tuple[str, ...]
) -> dict[str, Any]:
    """Return the constructor arguments of one JSON row, converted and checked by key.

    `what` names the row in messages; `kinds` maps each key to a kind of `_CONVERTERS`.
    """
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
    values = {}
    for key, value in data.items():
        try:
            values[key] = _CONVERTERS[kinds[key]](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ClusterError(f"{where}: {key} = {value!r:.60} is not {kinds[key]}.") from error
    return values


def _number(value: Any) -> float:
    """Return a JSON number as float; refuse booleans and text."""
    if isinstance(value, (bool, str)):
        raise TypeError(value)
    return float(value)


def _int_or_float(value: Any) -> int | float:
    """Return a JSON number as int if it is whole, else as float."""
    # Table editors turn whole numbers into floats; `_check_group` refuses real fractions.
    return int(value) if _number(value).is_integer() else float(value)


def _text(value: Any) -> str:
    """Return a JSON text; refuse other types."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _tuple_of(value: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    """Return a JSON list as a tuple, each item converted by `read`."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(value)
    return tuple(map(read, value))


def _boolean(value: Any) -> bool:
    """Return a JSON boolean; refuse other types."""
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


_CONVERTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "a whole number": _int_or_float,
    "a number": _number,
    "a number or null": lambda value: math.inf if value is None else _number(value),
    "a price or null": lambda value: None if value is None else _number(value),
    "text": _text,
    "a list of names": lambda value: _tuple_of(value, _text),
    "a list of whole numbers": lambda value: _tuple_of(value, operator.index),
    "true or false": _boolean,
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
"""Allowed GPU type names in the short description, in lower case."""
_TYPE: Final = {"name": "text", "speed": "a number", "price_per_gpu_hour": "a number"}
_CHANGE: Final = {
    "at_s": "a number",
    "nodes": "a list of whole numbers",
    "present": "true or false",
    "foreseen": "true or false",
}


def _check_group(group: NodeGroup, row: int) -> None:
    """Refuse a node group with invalid figures.

    Negative, fractional or too large ones, another number of host names than nodes, GPUs without
    a type.
    """
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
                f"Row {row} of the cluster: {what} is {value}, but it must be a number that is not"
                " negative."
            )
    check_sizes(
        f"Row {row} of the cluster",
        group.count,
        group.gpus,
        group.rack_size,
        group.name,
        group.gpu_type,
    )
    if any(number != int(number) for number in (group.count, group.gpus, group.rack_size)):
        raise ClusterError(
            f"Row {row} of the cluster: {group.count} nodes with {group.gpus} GPUs,"
            f" {group.rack_size} to a rack; these must be whole numbers."
        )
    named = (
        len(expand_hosts(group.hosts, f"Row {row} of the cluster")) if group.hosts else group.count
    )
    if named != group.count:
        raise ClusterError(
            f"Row {row} of the cluster: {group.count} nodes, but hosts names {named}. Give one name"
            " for each node, or none."
        )
    if group.gpus and not group.gpu_type:
        raise ClusterError(
            f"Row {row} of the cluster: {group.gpus} GPUs per node but no GPU type. Name the type."
        )


def _check_switches(switches: tuple[tuple[str, str], ...]) -> None:
    """Refuse switches that form a ring."""
    above = dict(switches)
    for child, parent in switches:
        seen, switch = {child}, parent
        while switch in above:
            if switch in seen:
                raise ClusterError(
                    f"The switch {switch} of the cluster is above itself. Correct the list of"
                    " switches."
                )
            seen.add(switch)
            switch = above[switch]


def _parse_group(part: str) -> NodeGroup:
    """Return the node group of "16x8:v100/96c" or "4xp4d.24xlarge"; refuse other forms."""
    body, *extras = part.split("/")
    shape, _, kind = body.partition(":")
    count, _, each = shape.partition("x")
    kind = kind.strip().lower()
    catalog_instance = None if kind else find_instance(each)
    try:
        nodes, per_node = int(count), catalog_instance.gpus if catalog_instance else int(each)
        limits = {extra[-1]: float(extra[:-1]) for extra in extras}
    except (ValueError, IndexError):
        nodes, per_node, limits = -1, -1, {}
    if nodes < 0 or per_node < 0 or not (kind or catalog_instance) or set(limits) - {"c", "g"}:
        near = (
            closest_instance(each) if not kind and re.search("[a-z]", each, re.IGNORECASE) else ""
        )
        raise ClusterError(
            f"Cluster part '{part}' is not of the form nodes x GPUs : type, e.g. 16x8:v100, 2x0:cpu"
            " or 4x8:a100/96c/1024g"
            + (f", and names no cloud instance that is known; {near} is." if near else ".")
        )
    if catalog_instance:
        return NodeGroup(
            nodes,
            per_node,
            catalog_instance.gpu_type,
            limits.get("c", catalog_instance.cpus),
            limits.get("g", catalog_instance.mem_gb),
            name=catalog_instance.name,
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
