"""Machines as Kubernetes lists them: ``kubectl get nodes -o json`` or ``-o yaml``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from sim.errors import ClusterError
from sim.instances import Instance, find_instance
from trainyard.clusters.node_lists import Imported, Machine, grouped, plain_type
from trainyard.text import plural

_PRODUCTS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "alibabacloud.com/gpu-card-model",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
_INSTANCES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_WHOLE: Final = ("nvidia.com/gpu", "amd.com/gpu", "alibabacloud.com/gpu-count")
_PART: Final = "nvidia.com/mig-"
_UNITS: Final = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_SHARED: Final = "-SHARED"
_YAML: Final = re.compile(r"^(- )?\s*kind:\s*(Node|NodeList|List)\s*$", re.MULTILINE)
_YAML_BYTES: Final = 20_000_000
_DEEPEST: Final = 50


def is_yaml(text: str) -> bool:
    """Tell whether a text is YAML that lists nodes."""
    return _YAML.search(text) is not None and re.search(r"^\s*apiVersion:", text, re.M) is not None


def from_yaml(text: str, name: str) -> dict[str, Any]:
    """Return the nodes of YAML documents, each a List or a Node, as one List.

    Raises
    ------
    ClusterError
        If it is no YAML, too large, or has aliases or a nesting that no list of nodes has.
    """
    if len(text) > _YAML_BYTES:
        raise ClusterError(
            f"{name}: {len(text) / 1e6:,.0f} MB of YAML are more than the limit of"
            f" {_YAML_BYTES / 1e6:.0f} MB. Export the nodes with -o json."
        )
    try:
        _check_shape(text, name)
        documents = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one is not None]
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ClusterError(f"{name}: {line}this is no YAML ({error.problem}).") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ClusterError(f"{name}: this is no YAML. Export the nodes again.") from error
    items: list[Any] = []
    for one in documents:
        inner = one.get("items", [one]) if isinstance(one, dict) else [one]
        items += inner if isinstance(inner, list) else [inner]
    return {"kind": "List", "items": items}


def _check_shape(text: str, name: str) -> None:
    """Refuse what makes readers of YAML grow without end, before anything is built."""
    depth = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
            raise ClusterError(
                f"{name}: line {event.start_mark.line + 1}: aliases, and more than {_DEEPEST} lists"
                " inside one another, are not read. Use what kubectl get nodes -o yaml prints."
            )


def is_nodes(data: Mapping[str, Any]) -> bool:
    """Tell whether a document is a list of nodes, or one node."""
    items = data.get("items")
    first = items[0] if isinstance(items, list) and items else data
    return isinstance(first, Mapping) and first.get("kind") == "Node"


def from_kubernetes(data: Mapping[str, Any], name: str, *, away: bool = False) -> Imported:
    """Read what ``kubectl get nodes -o json`` prints.

    Parameters
    ----------
    data : mapping
        A List, or one Node.
    name : str
        Of the file.
    away : bool
        Whether nodes count that are cordoned or not ready.

    Raises
    ------
    ClusterError
        If a quantity cannot be read, or no node is left.

    Notes
    -----
    What can be allocated counts, not the capacity. Slices of GPUs (MIG) are types of their own, so
    a node with several becomes one node for each. Where GPUs are shared by time slicing, whole GPUs
    are counted. A node whose labels name no product is what its cloud instance is made of; one
    without GPUs that can be allocated has none, whatever its instance is.
    """
    items = data.get("items", [data])
    machines: list[Machine] = []
    absent = shared = without = 0
    for at, node in enumerate(items):
        if not isinstance(node, Mapping) or node.get("kind") != "Node":
            raise ClusterError(
                f"{name}: item {at + 1} is no node but {_kind(node)}. Use what kubectl get"
                " nodes -o json prints."
            )
        if not away and not _works(node):
            absent += 1
            continue
        found, of_shared = _machines(node, f"{name}: item {at + 1}")
        machines += found
        shared += of_shared
        without += not found[0].gpus and _instance(node) is not None
    notes = []
    if absent:
        notes.append(f"{plural(absent, 'node')} left out: cordoned or not ready.")
        if not machines:
            raise ClusterError(
                f"{name}: all of its {plural(absent, 'node')} are cordoned or not ready. Count"
                " such nodes too, or export them again."
            )
    if shared:
        notes.append(f"GPUs of {plural(shared, 'node')} are shared by time slicing: whole ones.")
    if without:
        notes.append(
            f"{plural(without, 'node')} on cloud instances with GPUs: none can be allocated there,"
            " so they count as CPU nodes. Is the device plugin missing?"
        )
    return grouped(machines, name, notes)


def _instance(node: Mapping[str, Any]) -> Instance | None:
    labels = _of(_of(node, "metadata"), "labels")
    return next((find_instance(str(labels[key])) for key in _INSTANCES if labels.get(key)), None)


def _kind(item: Any) -> str:
    kind = item.get("kind") if isinstance(item, Mapping) else None
    return f"a {str(kind)[:40]}" if kind else "something else"


def _works(node: Mapping[str, Any]) -> bool:
    if _of(node, "spec").get("unschedulable") is True:
        return False
    conditions = _of(node, "status").get("conditions", ())
    ready = [one for one in conditions if isinstance(one, Mapping) and one.get("type") == "Ready"]
    return all(one.get("status") == "True" for one in ready)


def _machines(node: Mapping[str, Any], where: str) -> tuple[list[Machine], bool]:
    about = _of(node, "metadata")
    labels, can = _of(about, "labels"), _of(_of(node, "status"), "allocatable")
    host = str(about.get("name") or "node")
    product = next((str(labels[key]) for key in _PRODUCTS if labels.get(key)), "")
    if not product and (made_of := _instance(node)) is not None:
        product = made_of.gpu_type
    shared = product.endswith(_SHARED)
    product = product.removesuffix(_SHARED)
    replicas = _quantity(labels.get("nvidia.com/gpu.replicas", "1"), where) if shared else 1
    counts: dict[str, float] = {}
    for key, value in can.items():
        if key in _WHOLE:
            counts[plain_type(product)] = _quantity(value, where) / max(replicas, 1)
        elif str(key).startswith(_PART):
            part = str(key).removeprefix(_PART).removesuffix(".shared")
            counts[plain_type(f"{product}-{part}" if product else part)] = _quantity(value, where)
    cpus = _quantity(can["cpu"], where) if "cpu" in can else math.inf
    mem_gb = _quantity(can["memory"], where) / 2**30 if "memory" in can else math.inf
    gpus = {kind: int(count) for kind, count in counts.items() if count >= 1}
    total = sum(gpus.values())
    if not total:
        return [Machine(host, cpus=cpus, mem_gb=mem_gb)], False
    return [
        Machine(host, count, kind, cpus * count / total, mem_gb * count / total)
        for kind, count in gpus.items()
    ], shared


def _of(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _quantity(value: Any, where: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]{0,2})", str(value))
    if found is None or found[2] not in _UNITS:
        raise ClusterError(f"{where}: {str(value)[:40]!r} is no quantity. Export the nodes again.")
    return float(found[1]) * _UNITS[found[2]]
