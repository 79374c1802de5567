"""Maps tenants to queues and flavors to nodes; proposes queues without a configuration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import Final, NamedTuple

from allocators.sites.kueue.objects import (
    ANY,
    LOWER,
    RUNS,
    ClusterQueue,
    Cohort,
    FlavorQuota,
    FlavorQuotas,
    KueueConfig,
    Preemption,
    ResourceFlavor,
    ResourceGroup,
)
from allocators.sites.kueue.tree import to_quota_units
from allocators.tenants import TENANT_COLUMNS, gpus_to_share, tenant_column, tenant_names
from sim.contract import Demand, View

GPU: Final = "nvidia.com/gpu"
SHARED: Final = "all"
"""The cohort of proposed queues."""
UNNAMED: Final = "default"
"""The proposed queue of jobs without a tenant."""
HELD: Final = "(held)"
"""Placeholder for the cluster queue of a stopped local queue; not a valid object name."""
OTHER_RESOURCES: Final = ("cpu", "memory", "pods")
"""Resources other than GPUs that jobs of a trace request."""


def is_gpu(resource: str) -> bool:
    """Return True if a Kubernetes resource counts GPUs."""
    return resource.rpartition("/")[2].startswith("gpu")


def requested_amount(resource: str, demand: Demand) -> int:
    """Return a gang's request of a resource: GPUs, pods, millicores or bytes; 0 if unknown.

    Servers are included.
    """
    parts = (demand, demand.servers) if demand.servers is not None else (demand,)
    if is_gpu(resource):
        return sum([part.replicas * part.gpus for part in parts])
    if resource == "pods":
        return sum([part.replicas for part in parts])
    if resource == "cpu":
        return to_quota_units(
            resource, Fraction(sum([part.replicas * part.cpus for part in parts]))
        )
    if resource == "memory":
        gb = sum([part.replicas * part.mem_gb for part in parts])
        return to_quota_units(resource, Fraction(round(gb * 1024), 1) * 2**20)
    return 0


class Tenants(NamedTuple):
    """The queue of each tenant of a trace.

    Parameters
    ----------
    column : str
        The column that names tenants.
    queues : tuple
        Name of the cluster queue by code of the column; "" = no queue.
    """

    column: str
    queues: tuple[str, ...]


def tenants_of(config: KueueConfig, view: View, column: str) -> Tenants:
    """Map the names in a column to cluster queues.

    A name may be namespace/name of a local queue, its name, its namespace, or a cluster queue.

    Parameters
    ----------
    config : Config
        The objects.
    view : View
        View with the tenant names.
    column : str
        One of `TENANT_COLUMNS`, or "auto": the column that matches most queues.
    """
    queue_by_name = _queue_by_name(config)
    mappings = [
        Tenants(name, tuple(queue_by_name.get(tenant, "") for tenant in view.names(name)))
        for name in (TENANT_COLUMNS if column == "auto" else (column,))
    ]
    return max(mappings, key=lambda one: sum(map(bool, one.queues)))


def _queue_by_name(config: KueueConfig) -> dict[str, str]:
    """Return the cluster queue by name of a local queue, namespace or cluster queue.

    Precedence: namespace/name, name, namespace, cluster queue. A name with several targets at one
    level is skipped there. A stopped local queue maps to `HELD`; undefined targets are left out.
    """
    queues = {queue.name for queue in config.queues}
    local = [
        (one.namespace, one.name, one.queue if one.stop == RUNS else HELD)
        for one in config.local_queues
    ]
    levels: tuple[Iterable[tuple[str, str]], ...] = (
        [(f"{namespace}/{name}", queue) for namespace, name, queue in local],
        [(name, queue) for _, name, queue in local],
        [(namespace, queue) for namespace, _, queue in local],
        [(name, name) for name in queues],
    )
    queue_by_name: dict[str, str] = {}
    for level in levels:
        candidates: dict[str, set[str]] = {}
        for name, queue in level:
            candidates.setdefault(name, set()).add(queue)
        for name, targets in candidates.items():
            if name and len(targets) == 1:
                queue_by_name.setdefault(name, next(iter(targets)))
    return {name: queue for name, queue in queue_by_name.items() if queue in {*queues, HELD}}


def stopped_queues(config: KueueConfig) -> frozenset[str]:
    """Return the cluster queues with a stopPolicy."""
    return frozenset(queue.name for queue in config.queues if queue.stop != RUNS)


# -- flavors
# --------------------------------------------------------------------------------------------------


def pools_of(flavor: ResourceFlavor, view: View) -> frozenset[int] | None:
    """Return the node pools of a flavor; None = it names no GPU type or partition.

    A node label counts before the name of the flavor, and a GPU type before a partition.
    """
    pools, types = view.room.pools, view.cluster.types
    texts = [value for _, value in flavor.labels]
    for labels_or_name in (texts, [flavor.name]):
        kinds = [
            at
            for at, kind in enumerate(types)
            if any(_matches_gpu_type(text, kind.name) for text in labels_or_name)
        ]
        if kinds:
            return frozenset(at for at, pool in enumerate(pools) if pool.type_at in kinds)
    named = {*texts, flavor.name}
    matching = frozenset(at for at, pool in enumerate(pools) if named & set(pool.partitions))
    return matching or None


def _matches_gpu_type(text: str, kind: str) -> bool:
    """Return True if consecutive words of a label, joined, are the name of a GPU type.

    Letters and digits count, case does not: ``NVIDIA-A100-SXM4-80GB`` names ``a100``.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    joined_kind = "".join(re.findall(r"[a-z0-9]+", kind.lower()))
    return any(
        "".join(words[first:last]) == joined_kind
        for first in range(len(words))
        for last in range(first + 1, len(words) + 1)
    )


def quotas_above_cluster(
    config: KueueConfig, pools: Mapping[str, frozenset[int] | None], view: View
) -> list[str]:
    """Return a note per flavor and resource with total quotas above its nodes' capacity."""
    quotas: Counter[tuple[str, str]] = Counter()
    holders: tuple[ClusterQueue | Cohort, ...] = (*config.queues, *config.cohorts)
    for holder in holders:
        for group in holder.groups:
            for flavor in group.flavors:
                for resource, quota in flavor.quotas.items():
                    quotas[flavor.flavor, resource] += to_quota_units(resource, quota.nominal)
    notes = []
    for (name, resource), total in quotas.items():
        here = pools[name]
        nodes = [
            view.cluster.nodes[node]
            for at, pool in enumerate(view.room.pools)
            if here is None or at in here
            for node in pool.nodes
        ]
        sizes = {
            "cpu": ("cores", 1000, sum([node.cpus for node in nodes])),
            "memory": ("GB", 2**30, sum([node.mem_gb for node in nodes])),
        }
        if is_gpu(resource):
            sizes[resource] = ("GPUs", 1, float(sum([node.gpus for node in nodes])))
        what, unit, have = sizes.get(resource, ("", 1, inf))
        if total / unit > have:
            notes.append(
                f"The quotas of flavor {name} are {total / unit:,.10g} {what} in all, its nodes"
                f" have {have:,.10g}."
            )
    return notes


# -- without a configuration
# --------------------------------------------------------------------------------------------------


def propose_queues(view: View, column: str) -> tuple[KueueConfig, Tenants]:
    """Return equal cluster queues for the tenants of a trace, and the queue of each tenant.

    The queues are in one cohort. Each has an equal part of the GPUs of each type and may reclaim
    it. Jobs without a tenant have a queue without quota that may borrow.

    Parameters
    ----------
    view : View
        View with the tenants and GPU types.
    column : str
        One of `TENANT_COLUMNS`, or "auto": the first column with several names.
    """
    chosen = tenant_column(view, column)
    names = view.names(chosen)
    owners = tenant_names(view, chosen) or [UNNAMED]
    gpus = _gpus_by_type(view)
    queues = [
        ClusterQueue(
            owner, SHARED, _equal_groups(gpus, at, len(owners)), preemption=Preemption(LOWER, ANY)
        )
        for at, owner in enumerate(owners)
    ]
    if UNNAMED not in owners:  # jobs without a tenant have no quota, and may borrow
        nothing = _equal_groups(dict.fromkeys(gpus, 0), 0, 1)
        queues.append(ClusterQueue(UNNAMED, SHARED, nothing, preemption=Preemption(LOWER)))
    flavors = tuple(ResourceFlavor(kind, (("gpu-type", kind),)) for kind in gpus)
    return (
        KueueConfig(tuple(queues), flavors=flavors),
        Tenants(chosen, tuple(name or UNNAMED for name in names)),
    )


def _gpus_by_type(view: View) -> dict[str, int]:
    """Return the number of GPUs by type name, fastest type first; types without GPUs left out."""
    gpus: Counter[str] = Counter()
    for node, amount in zip(view.cluster.nodes, gpus_to_share(view).tolist(), strict=True):
        gpus[node.gpu_type] += amount
    kinds = sorted(view.cluster.types, key=lambda kind: -kind.speed)
    return {kind.name: gpus[kind.name] for kind in kinds if gpus[kind.name]}


def _equal_groups(gpus: Mapping[str, int], at: int, owners: int) -> tuple[ResourceGroup, ...]:
    """Return the GPU quotas of owner number `at` of `owners`: an equal part of each type.

    The first owners get the remainder. One resource group, or none without GPUs.
    """
    quotas: Sequence[FlavorQuotas] = [
        FlavorQuotas(kind, {GPU: FlavorQuota(Fraction(count // owners + (at < count % owners)))})
        for kind, count in gpus.items()
    ]
    return (ResourceGroup((GPU,), tuple(quotas)),) if quotas else ()
