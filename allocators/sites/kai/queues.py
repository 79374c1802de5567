"""KAI's queues: read from objects of Kubernetes, or one for each tenant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Final, NamedTuple

from allocators.quotas import parents_first
from allocators.sites.manifests import Fields, Manifest, manifests
from sim.contract import ParameterError

RESOURCES: Final = ("gpu", "cpu", "memory")
"""In GPUs, thousandths of a core, and MB."""
GROUP: Final = "scheduling.run.ai"
UNMAPPED: Final = "without-queue"
"""Name of the queue of jobs whose tenant has none."""
_USUAL_PRIORITY: Final = 100
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class ResourceQuota(NamedTuple):
    """What a queue may have of one resource, in units of `RESOURCES`.

    Parameters
    ----------
    deserved : float
        What it gets back from others whenever it asks for it; inf = as much as there is.
    weight : float
        Its part of what others leave, relative to its siblings.
    limit : float
        The most that it may have; inf = no maximum.
    """

    deserved: float = inf
    weight: float = 1.0
    limit: float = inf


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """One queue as it is written down.

    Parameters
    ----------
    name : str
        Unique.
    parent : str
        The queue above it; "" = none.
    quotas : tuple of Quota
        In the order of `RESOURCES`.
    priority : int
        Queues of higher priority are served first.
    reclaim_after_s, preempt_after_s : float, optional
        For so long after its start a job is not stopped for another queue, or for a job of its own
        queue; None = as its parent has it, and 0 at the top.
    """

    name: str
    parent: str = ""
    quotas: tuple[ResourceQuota, ...] = (ResourceQuota(), ResourceQuota(), ResourceQuota())
    priority: int = _USUAL_PRIORITY
    reclaim_after_s: float | None = None
    preempt_after_s: float | None = None


def read_queues(text: str) -> tuple[tuple[QueueSpec, ...], tuple[str, ...]]:
    """Read the Queue objects of a YAML text, parents before their children, and what nobody read.

    A resource that a queue does not name is not limited.

    Raises
    ------
    ParameterError
        If there are none, one is wrong, comes twice, has an unknown parent, or is its own
        ancestor.
    """
    queues: dict[str, QueueSpec] = {}
    unread: list[str] = []
    for one in manifests(text):
        if one.kind != "Queue" or one.group not in {GROUP, ""}:
            unread.append(f"{one.where}: only objects of the kind Queue of {GROUP} are read")
            continue
        queue = _queue(one)
        if queue.name in queues:
            raise ParameterError(
                f"{one.where}: a queue of this name came before. Names must differ."
            )
        queues[queue.name] = queue
        unread += one.unread()
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


def one_each(names: Iterable[str], gpus: float) -> tuple[QueueSpec, ...]:
    """Return a queue for each tenant with a quota of so many GPUs."""
    return tuple(
        QueueSpec(name, quotas=(ResourceQuota(gpus), ResourceQuota(), ResourceQuota()))
        for name in names
    )


def nothing_of_its_own(name: str) -> QueueSpec:
    """Return a queue that has what all others leave."""
    return QueueSpec(name, quotas=(ResourceQuota(0.0, 0.0),) * len(RESOURCES))


def _queue(one: Manifest) -> QueueSpec:
    if not one.name:
        raise ParameterError(f"{one.where}: metadata.name is missing.")
    spec = one.fields.inside("spec")
    spec.text("displayName")
    resources = spec.inside("resources")
    priority = spec.whole("priority", _USUAL_PRIORITY)
    assert priority is not None, "it has a default"
    return QueueSpec(
        one.name,
        spec.text("parentQueue"),
        tuple(_quota(resources, name) for name in RESOURCES),
        priority,
        _duration_s(spec, "reclaimMinRuntime"),
        _duration_s(spec, "preemptMinRuntime"),
    )


def _quota(resources: Fields, name: str) -> ResourceQuota:
    if name not in resources:
        return ResourceQuota()
    fields = resources.inside(name)
    weight = fields.quantity("overQuotaWeight", Fraction(1))
    if weight is None or weight < 0:
        raise fields.wrong("overQuotaWeight", "is below 0")
    return ResourceQuota(
        _amount(fields, "quota", Fraction(0)), float(weight), _amount(fields, "limit", Fraction(-1))
    )


def _amount(fields: Fields, key: str, default: Fraction) -> float:
    value = fields.quantity(key, default)
    assert value is not None, "it has a default"
    if value < 0 and value != -1:
        raise fields.wrong(key, "is below 0; only -1 has a meaning, unlimited")
    return inf if value == -1 else float(value)


def _duration_s(fields: Fields, key: str) -> float | None:
    text = fields.text(key)
    if not text:
        return None
    if text == "0":
        return 0.0
    if _DURATION.fullmatch(text) is None:
        raise fields.wrong(key, f"is {text[:40]!r}; it must be a duration such as 90s or 1h30m")
    return sum([float(number) * _UNIT_S[unit] for number, unit in _PIECE.findall(text)])
