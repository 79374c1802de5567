"""KAI queues: parsed from Kubernetes objects, or one per tenant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Final, NamedTuple

from allocators.quotas import parents_first
from allocators.sites.manifests import Fields, Manifest, parse_manifests
from sim.contract import ParameterError

RESOURCES: Final = ("gpu", "cpu", "memory")
"""In GPUs, thousandths of a core, and MB."""
GROUP: Final = "scheduling.run.ai"
UNMAPPED: Final = "without-queue"
"""Queue of jobs whose tenant has no queue."""
_USUAL_PRIORITY: Final = 100
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class ResourceQuota(NamedTuple):
    """Quota, over-quota weight and limit of a queue for one resource, in `RESOURCES` units.

    Parameters
    ----------
    deserved : float
        Guaranteed amount, reclaimed from others when requested; inf = all of the cluster.
    weight : float
        Weight among its siblings for resources over quota.
    limit : float
        Maximum amount; inf = no maximum.
    """

    deserved: float = inf
    weight: float = 1.0
    limit: float = inf


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue as configured.

    Parameters
    ----------
    name : str
        Unique.
    parent : str
        Parent queue; "" = none.
    quotas : tuple of ResourceQuota
        In the order of `RESOURCES`.
    priority : int
        Queues of higher priority are served first.
    reclaim_after_s, preempt_after_s : float, optional
        Minimum run time of a job before it is stopped for another queue, or for its own; None =
        that of the parent, and 0 at the root.
    """

    name: str
    parent: str = ""
    quotas: tuple[ResourceQuota, ...] = (ResourceQuota(), ResourceQuota(), ResourceQuota())
    priority: int = _USUAL_PRIORITY
    reclaim_after_s: float | None = None
    preempt_after_s: float | None = None


def read_queues(text: str) -> tuple[tuple[QueueSpec, ...], tuple[str, ...]]:
    """Parse the Queues of a YAML text; return them, parents first, and the unread parts.

    The unread parts are messages about unread keys and objects of other kinds.

    A resource that a queue does not name is not limited.

    Raises
    ------
    ParameterError
        If there is no queue, or one is invalid, repeated, without its parent, or its own ancestor.
    """
    queues: dict[str, QueueSpec] = {}
    unread: list[str] = []
    for one in parse_manifests(text):
        if one.kind != "Queue" or one.group not in {GROUP, ""}:
            unread.append(f"{one.where}: only objects of the kind Queue of {GROUP} are read")
            continue
        queue = _parse_queue(one)
        if queue.name in queues:
            raise ParameterError(
                f"{one.where}: a queue of this name came before. Names must differ."
            )
        queues[queue.name] = queue
        unread += one.unread_keys()
    if not queues:
        raise ParameterError(
            "There is no Queue in this YAML. Give the output of 'kubectl get"
            f" queues.{GROUP} -o yaml'."
        )
    order = parents_first(
        {name: queue.parent for name, queue in queues.items()},
        "Queue {}: its parent {} is not defined. Define it or remove parentQueue.",
        "Queues",
    )
    return tuple(queues[name] for name in order), tuple(unread)


def queue_per_tenant(names: Iterable[str], gpus: float) -> tuple[QueueSpec, ...]:
    """Return a queue for each tenant with a quota of this many GPUs."""
    return tuple(
        QueueSpec(name, quotas=(ResourceQuota(gpus), ResourceQuota(), ResourceQuota()))
        for name in names
    )


def queue_without_quota(name: str) -> QueueSpec:
    """Return a queue without quota and over-quota weight."""
    return QueueSpec(name, quotas=(ResourceQuota(0.0, 0.0),) * len(RESOURCES))


def _parse_queue(one: Manifest) -> QueueSpec:
    """Return the QueueSpec of a Queue object; raise an error if it has no name."""
    if not one.name:
        raise ParameterError(f"{one.where}: metadata.name is missing.")
    spec = one.fields.mapping("spec")
    spec.text("displayName")
    resources = spec.mapping("resources")
    priority = spec.integer("priority", _USUAL_PRIORITY)
    assert priority is not None, "it has a default"
    return QueueSpec(
        one.name,
        spec.text("parentQueue"),
        tuple(_parse_quota(resources, name) for name in RESOURCES),
        priority,
        _parse_duration_s(spec, "reclaimMinRuntime"),
        _parse_duration_s(spec, "preemptMinRuntime"),
    )


def _parse_quota(resources: Fields, name: str) -> ResourceQuota:
    """Return a queue's quota for a resource; unlimited if the resource is not listed.

    For a listed resource, the defaults are quota 0, weight 1 and no limit.
    """
    if name not in resources:
        return ResourceQuota()
    fields = resources.mapping(name)
    weight = fields.quantity("overQuotaWeight", Fraction(1))
    if weight is None or weight < 0:
        raise fields.error("overQuotaWeight", "is below 0")
    return ResourceQuota(
        _parse_amount(fields, "quota", Fraction(0)),
        float(weight),
        _parse_amount(fields, "limit", Fraction(-1)),
    )


def _parse_amount(fields: Fields, key: str, default: Fraction) -> float:
    """Return the amount of a key; -1 gives inf, other negative values raise an error."""
    value = fields.quantity(key, default)
    assert value is not None, "it has a default"
    if value < 0 and value != -1:
        raise fields.error(key, "is below 0; only -1 has a meaning, unlimited")
    return inf if value == -1 else float(value)


def _parse_duration_s(fields: Fields, key: str) -> float | None:
    """Return a duration such as 1h30m in seconds, or None if the key is not set."""
    text = fields.text(key)
    if not text:
        return None
    if text == "0":
        return 0.0
    if _DURATION.fullmatch(text) is None:
        raise fields.error(key, f"is {text[:40]!r}; it must be a duration such as 90s or 1h30m")
    return sum([float(number) * _UNIT_S[unit] for number, unit in _PIECE.findall(text)])
