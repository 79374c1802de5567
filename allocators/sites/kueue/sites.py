"""How a trace and a cluster meet a configuration: which queue a job is in, which nodes a flavor
stands for, and what is proposed where there is no configuration.
"""

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
    Config,
    FlavorQuota,
    FlavorQuotas,
    Group,
    Preemption,
    ResourceFlavor,
)
from allocators.sites.kueue.tree import whole
from allocators.tenants import COLUMNS, gpus_to_share, named, tenant_column
from sim.contract import Demand, View

GPU: Final = "nvidia.com/gpu"
SHARED: Final = "all"
"""The cohort of proposed queues."""
UNNAMED: Final = "default"
"""The proposed queue of jobs that name no tenant."""
HELD: Final = "(held)"
"""What stands for the cluster queue of a stopped local queue; no object can have this name."""
OTHERS: Final = ("cpu", "memory", "pods")
"""Resources besides GPUs of which traces know what jobs ask for."""


def is_gpu(resource: str) -> bool:
    """Tell whether a resource of Kubernetes counts GPUs."""
    return resource.rpartition("/")[2].startswith("gpu")


def amount(resource: str, demand: Demand) -> int:
    """Return what a gang asks for of a resource, as the tree counts it; 0 where traces do not know
    of such a resource.
    """
    parts = (demand, demand.servers) if demand.servers is not None else (demand,)
    if is_gpu(resource):
        return sum([part.replicas * part.gpus for part in parts])
    if resource == "pods":
        return sum([part.replicas for part in parts])
    if resource == "cpu":
        return whole(resource, Fraction(sum([part.replicas * part.cpus for part in parts])))
    if resource == "memory":
        gb = sum([part.replicas * part.mem_gb for part in parts])
        return whole(resource, Fraction(round(gb * 1024), 1) * 2**20)
    return 0


class Tenants(NamedTuple):
    """Where the jobs of each tenant go.

    Parameters
    ----------
    column : str
        The column that names tenants.
    queues : tuple
        By code of the column, the name of the cluster queue; "" = none has this name.
    """

    column: str
    queues: tuple[str, ...]


def tenants_of(config: Config, view: View, column: str) -> Tenants:
    """Map the names in a column to cluster queues: a local queue as namespace/name, by its name, by
    its namespace, or the name of a cluster queue itself.

    Parameters
    ----------
    config : Config
        The objects.
    view : View
        For the names.
    column : str
        One of `COLUMNS`, or "auto": the one that names most queues.
    """
    known = _addresses(config)
    tried = [
        Tenants(name, tuple(known.get(tenant, "") for tenant in view.names(name)))
        for name in (COLUMNS if column == "auto" else (column,))
    ]
    return max(tried, key=lambda one: sum(map(bool, one.queues)))


def _addresses(config: Config) -> dict[str, str]:
    """Return name -> cluster queue; a name that could mean several means none."""
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
    known: dict[str, str] = {}
    for level in levels:
        found: dict[str, set[str]] = {}
        for name, queue in level:
            found.setdefault(name, set()).add(queue)
        for name, meant in found.items():
            if name and len(meant) == 1:
                known.setdefault(name, next(iter(meant)))
    return {name: queue for name, queue in known.items() if queue in {*queues, HELD}}


def stopped(config: Config) -> frozenset[str]:
    """Return the cluster queues that admit nobody."""
    return frozenset(queue.name for queue in config.queues if queue.stop != RUNS)


# -- flavors
# --------------------------------------------------------------------------------------------------


def pools_of(flavor: ResourceFlavor, view: View) -> frozenset[int] | None:
    """Return the pools of nodes that a flavor stands for: those whose GPU type, or else partition,
    a label or else its name says. None = it says neither.
    """
    pools, types = view.room.pools, view.cluster.types
    texts = [value for _, value in flavor.labels]
    for said in (texts, [flavor.name]):
        kinds = [
            at for at, kind in enumerate(types) if any(_names(text, kind.name) for text in said)
        ]
        if kinds:
            return frozenset(at for at, pool in enumerate(pools) if pool.type_at in kinds)
    named = {*texts, flavor.name}
    found = frozenset(at for at, pool in enumerate(pools) if named & set(pool.partitions))
    return found or None


def _names(text: str, kind: str) -> bool:
    """Tell whether a label such as ``NVIDIA-A100-SXM4-80GB`` names a GPU type."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    wanted = "".join(re.findall(r"[a-z0-9]+", kind.lower()))
    return any(
        "".join(words[first:last]) == wanted
        for first in range(len(words))
        for last in range(first + 1, len(words) + 1)
    )


def over_the_cluster(
    config: Config, pools: Mapping[str, frozenset[int] | None], view: View
) -> list[str]:
    """Return a sentence for each flavor with larger quotas than its nodes have."""
    quotas: Counter[tuple[str, str]] = Counter()
    holders: tuple[ClusterQueue | Cohort, ...] = (*config.queues, *config.cohorts)
    for holder in holders:
        for group in holder.groups:
            for flavor in group.flavors:
                for resource, quota in flavor.quotas.items():
                    quotas[flavor.flavor, resource] += whole(resource, quota.nominal)
    said = []
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
            said.append(
                f"The quotas of flavor {name} are {total / unit:,.10g} {what} in all, its nodes"
                f" have {have:,.10g}."
            )
    return said


# -- without a configuration
# --------------------------------------------------------------------------------------------------


def proposed(view: View, column: str) -> tuple[Config, Tenants]:
    """Return equal cluster queues for the tenants that a trace names, in one cohort; of each GPU
    type every queue owns an equal part, and may reclaim it.

    Parameters
    ----------
    view : View
        For tenants and GPU types.
    column : str
        One of `COLUMNS`, or "auto": the first that names several.
    """
    chosen = tenant_column(view, column)
    names = view.names(chosen)
    owners = named(view, chosen) or [UNNAMED]
    gpus = _gpus_by_type(view)
    queues = [
        ClusterQueue(
            owner, SHARED, _equal(gpus, at, len(owners)), preemption=Preemption(LOWER, ANY)
        )
        for at, owner in enumerate(owners)
    ]
    if UNNAMED not in owners:  # whoever names no tenant has no quota, and may borrow
        nothing = _equal(dict.fromkeys(gpus, 0), 0, 1)
        queues.append(ClusterQueue(UNNAMED, SHARED, nothing, preemption=Preemption(LOWER)))
    flavors = tuple(ResourceFlavor(kind, (("gpu-type", kind),)) for kind in gpus)
    return (
        Config(tuple(queues), flavors=flavors),
        Tenants(chosen, tuple(name or UNNAMED for name in names)),
    )


def _gpus_by_type(view: View) -> dict[str, int]:
    """Return the GPUs of each type, the fastest type first."""
    gpus: Counter[str] = Counter()
    for node, amount in zip(view.cluster.nodes, gpus_to_share(view).tolist(), strict=True):
        gpus[node.gpu_type] += amount
    kinds = sorted(view.cluster.types, key=lambda kind: -kind.speed)
    return {kind.name: gpus[kind.name] for kind in kinds if gpus[kind.name]}


def _equal(gpus: Mapping[str, int], at: int, owners: int) -> tuple[Group, ...]:
    quotas: Sequence[FlavorQuotas] = [
        FlavorQuotas(kind, {GPU: FlavorQuota(Fraction(count // owners + (at < count % owners)))})
        for kind, count in gpus.items()
    ]
    return (Group((GPU,), tuple(quotas)),) if quotas else ()
