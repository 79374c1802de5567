"""Read nodes from Kubernetes: ``kubectl get nodes -o json`` or ``-o yaml``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from sim.cloud_instances import Instance, find_instance
from sim.errors import ClusterError
from trainyard.clusters.node_lists import ImportedCluster, Machine, group_machines, plain_gpu_type
from trainyard.formatting import plural

_PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "alibabacloud.com/gpu-card-model",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
_INSTANCE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "alibabacloud.com/gpu-count")
_MIG_PREFIX: Final = "nvidia.com/mig-"
_UNITS: Final = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_SHARED_SUFFIX: Final = "-SHARED"
_NODE_KIND: Final = re.compile(r"^(- )?\s*kind:\s*(Node|NodeList|List)\s*$", re.MULTILINE)
_MAX_YAML_CHARS: Final = 20_000_000
_MAX_DEPTH: Final = 50


def is_node_yaml(text: str) -> bool:
    """Return True if a text is YAML that lists nodes."""
    return (
        _NODE_KIND.search(text) is not None
        and re.search(r"^\s*apiVersion:", text, re.M) is not None
    )


def parse_node_yaml(text: str, name: str) -> dict[str, Any]:
    """Return the nodes of YAML documents, each a List or a Node, as {"kind": "List", "items"}.

    Raises
    ------
    ClusterError
        If the text is not YAML, is too large, or has aliases or is nested too deeply.
    """
    if len(text) > _MAX_YAML_CHARS:
        raise ClusterError(
            f"{name}: {len(text) / 1e6:,.0f} MB of YAML exceed the limit of"
            f" {_MAX_YAML_CHARS / 1e6:.0f} MB. Export the nodes with -o json."
        )
    try:
        _check_yaml_events(text, name)
        documents = [item for item in yaml.load_all(text, yaml.CSafeLoader) if item is not None]
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ClusterError(
            f"{name}: {line}this is not YAML ({error.problem}). Export the nodes again."
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ClusterError(f"{name}: this is not YAML. Export the nodes again.") from error
    items: list[Any] = []
    for document in documents:
        inner = document.get("items", [document]) if isinstance(document, dict) else [document]
        items += inner if isinstance(inner, list) else [inner]
    return {"kind": "List", "items": items}


def _check_yaml_events(text: str, name: str) -> None:
    """Raise for aliases and deep nesting in YAML before it is loaded; they can exhaust memory."""
    depth = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH or isinstance(event, yaml.AliasEvent):
            raise ClusterError(
                f"{name}: line {event.start_mark.line + 1}: aliases and more than {_MAX_DEPTH}"
                " nested lists are not supported. Use the output of kubectl get nodes -o yaml."
            )


def is_node_list(data: Mapping[str, Any]) -> bool:
    """Return True if a document is a node, or a list with a node as its first item."""
    items = data.get("items")
    first = items[0] if isinstance(items, list) and items else data
    return isinstance(first, Mapping) and first.get("kind") == "Node"


def read_kubernetes(
    data: Mapping[str, Any], name: str, *, include_down: bool = False
) -> ImportedCluster:
    """Read the output of ``kubectl get nodes -o json``.

    Parameters
    ----------
    data : mapping
        A List, or one Node.
    name : str
        Name of the file.
    include_down : bool
        Whether to include nodes that are cordoned or not ready.

    Raises
    ------
    ClusterError
        If a quantity is invalid, or no node remains.

    Notes
    -----
    Allocatable resources count, not the capacity. Slices of GPUs (MIG) are GPU types; a node with
    several types becomes one node per type. For GPUs shared by time slicing, whole GPUs are
    counted. Without a product label, the GPU type is that of the cloud instance; a node without
    allocatable GPUs has none, even on a GPU instance.
    """
    items = data.get("items", [data])
    machines: list[Machine] = []
    absent = shared = without = 0
    for index, node in enumerate(items):
        if not isinstance(node, Mapping) or node.get("kind") != "Node":
            raise ClusterError(
                f"{name}: item {index + 1} is not a node but {_kind_text(node)}. Use the output of"
                " kubectl get nodes -o json."
            )
        if not include_down and not _is_ready(node):
            absent += 1
            continue
        node_machines, is_shared = _node_machines(node, f"{name}: item {index + 1}")
        machines += node_machines
        shared += is_shared
        without += not node_machines[0].gpus and _cloud_instance(node) is not None
    notes = []
    if absent:
        notes.append(f"{plural(absent, 'node')} left out: cordoned or not ready.")
        if not machines:
            raise ClusterError(
                f"{name}: no node is left of {plural(absent, 'node')}: cordoned or not ready."
                " Include such nodes, or export them again."
            )
    if shared:
        notes.append(f"GPUs of {plural(shared, 'node')} are shared by time slicing: counted whole.")
    if without:
        notes.append(
            f"{plural(without, 'node')} on cloud instances with GPUs: no GPU is allocatable, so"
            " they count as CPU nodes. Check the device plugin."
        )
    return group_machines(machines, name, notes)


def _cloud_instance(node: Mapping[str, Any]) -> Instance | None:
    """Return the cloud instance that the labels of a node name, or None."""
    labels = _sub_mapping(_sub_mapping(node, "metadata"), "labels")
    return next(
        (find_instance(str(labels[key])) for key in _INSTANCE_LABELS if labels.get(key)), None
    )


def _kind_text(item: Any) -> str:
    """Return "a " and the kind of a Kubernetes object, or "something else", for messages."""
    kind = item.get("kind") if isinstance(item, Mapping) else None
    return f"a {str(kind)[:40]}" if kind else "something else"


def _is_ready(node: Mapping[str, Any]) -> bool:
    """Return True if a node is not cordoned and no condition says that it is not ready."""
    if _sub_mapping(node, "spec").get("unschedulable") is True:
        return False
    conditions = _sub_mapping(node, "status").get("conditions", ())
    ready = [
        item for item in conditions if isinstance(item, Mapping) and item.get("type") == "Ready"
    ]
    return all(condition.get("status") == "True" for condition in ready)


def _node_machines(node: Mapping[str, Any], where: str) -> tuple[list[Machine], bool]:
    """Return one machine per GPU type of a node, and whether its GPUs are time-shared.

    Cores and memory are divided in proportion to the GPUs.
    """
    metadata = _sub_mapping(node, "metadata")
    labels, allocatable = (
        _sub_mapping(metadata, "labels"),
        _sub_mapping(_sub_mapping(node, "status"), "allocatable"),
    )
    host = str(metadata.get("name") or "node")
    product = next((str(labels[key]) for key in _PRODUCT_LABELS if labels.get(key)), "")
    if not product and (instance := _cloud_instance(node)) is not None:
        product = instance.gpu_type
    is_shared = product.endswith(_SHARED_SUFFIX)
    product = product.removesuffix(_SHARED_SUFFIX)
    replicas = (
        _parse_quantity(labels.get("nvidia.com/gpu.replicas", "1"), where) if is_shared else 1
    )
    counts: dict[str, float] = {}
    for key, value in allocatable.items():
        if key in _GPU_RESOURCES:
            counts[plain_gpu_type(product)] = _parse_quantity(value, where) / max(replicas, 1)
        elif str(key).startswith(_MIG_PREFIX):
            part = str(key).removeprefix(_MIG_PREFIX).removesuffix(".shared")
            counts[plain_gpu_type(f"{product}-{part}" if product else part)] = _parse_quantity(
                value, where
            )
    cpus = _parse_quantity(allocatable["cpu"], where) if "cpu" in allocatable else math.inf
    mem_gb = (
        _parse_quantity(allocatable["memory"], where) / 2**30
        if "memory" in allocatable
        else math.inf
    )
    gpus = {kind: int(count) for kind, count in counts.items() if count >= 1}
    total = sum(gpus.values())
    if not total:
        return [Machine(host, cpus=cpus, mem_gb=mem_gb)], False
    return [
        Machine(host, count, kind, cpus * count / total, mem_gb * count / total)
        for kind, count in gpus.items()
    ], is_shared


def _sub_mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping at a key, {} if there is none."""
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _parse_quantity(value: Any, where: str) -> float:
    """Return a Kubernetes quantity such as 127500m as a number; raise if invalid."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]{0,2})", str(value))
    if match is None or match[2] not in _UNITS:
        raise ClusterError(
            f"{where}: {str(value)[:40]!r} is not a quantity. Export the nodes again."
        )
    return float(match[1]) * _UNITS[match[2]]
