"""Parses Kueue objects from YAML and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from allocators.sites.kueue.objects import (
    ANY,
    BEST_EFFORT,
    BORROW,
    BORROWING_FIRST,
    DRAIN,
    FINAL_SHARE,
    HOLD,
    INITIAL_SHARE,
    LOWER,
    NEVER,
    NEWER_EQUAL,
    ONE,
    PREEMPT,
    PREEMPTION_FIRST,
    RUNS,
    STRICT,
    TRY_NEXT,
    ClusterQueue,
    Cohort,
    FlavorQuota,
    FlavorQuotas,
    Fungibility,
    KueueConfig,
    LocalQueue,
    Preemption,
    PriorityClass,
    ResourceFlavor,
    ResourceGroup,
)
from allocators.sites.manifests import Fields, Manifest, format_quantity, parse_manifests, to_yaml
from sim.contract import ParameterError

GROUP: Final = "kueue.x-k8s.io"
_KINDS: Final = {
    f"{GROUP}/{kind}"
    for kind in ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass")
} | {f"config.{GROUP}/Configuration"}
_VERSION: Final = "v1beta1"
_STOP_SEARCH: Final = "MayStopSearch"
"""Name of "Borrow" and "Preempt" in newer versions."""


@lru_cache(maxsize=8)
def read_config(text: str) -> KueueConfig:
    """Parse a Kueue configuration from YAML (cached).

    Unread keys and objects of other kinds are listed in its ``ignored``.

    Parameters
    ----------
    text : str
        YAML documents: the output of ``kubectl get clusterqueues,cohorts,... -o yaml``, or
        concatenated files.

    Raises
    ------
    ParameterError
        If the text is no YAML, there is no cluster queue, a value is invalid, a name is repeated, a
        flavor is not defined, or cohorts form a cycle.
    """
    by_kind: dict[str, list[Manifest]] = {kind: [] for kind in _KINDS}
    ignored: list[str] = []
    objects = parse_manifests(text)
    for one in objects:
        kind = f"{one.group or GROUP}/{one.kind}"
        if kind in by_kind:
            by_kind[kind].append(one)
        else:
            ignored.append(f"{one.where}: objects of this kind are not read")
    queues, cohorts, locals_, flavors, classes = (
        by_kind[f"{GROUP}/{kind}"]
        for kind in ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", _PRIORITY_CLASS)
    )
    for same_kind in (queues, cohorts, flavors, classes, locals_):
        _check_names(same_kind)
    configurations = by_kind[f"config.{GROUP}/Configuration"]
    if len(configurations) > 1:
        raise ParameterError(f"{configurations[1].where}: there is a Configuration already.")
    fair, strategies = (
        _parse_configuration(configurations[0])
        if configurations
        else (False, KueueConfig.strategies)
    )
    config = KueueConfig(
        tuple(map(_parse_cluster_queue, queues)),
        tuple(map(_parse_cohort, cohorts)),
        tuple(map(_parse_local_queue, locals_)),
        tuple(map(_parse_flavor, flavors)),
        tuple(map(_parse_class, classes)),
        fair,
        strategies,
        (
            *ignored,
            *(
                line
                for same_kind in by_kind.values()
                for one in same_kind
                for line in one.unread_keys()
            ),
        ),
    )
    if not config.queues:
        raise ParameterError(
            "There is no ClusterQueue in this YAML. Give the objects that kubectl get"
            " clusterqueues,cohorts,localqueues,resourceflavors -o yaml prints."
        )
    _check_flavors(config.flavors, [*queues, *cohorts], [*config.queues, *config.cohorts])
    _check_cohort_cycle(config.cohorts)
    return config


_PRIORITY_CLASS: Final = "WorkloadPriorityClass"


def _check_names(objects: Sequence[Manifest]) -> None:
    """Raise an error if objects of one kind lack a name or share one.

    Local queues of different namespaces may have the same name.
    """
    seen: dict[tuple[str, str], Manifest] = {}
    for one in objects:
        if not one.name:
            raise ParameterError(f"{one.where}: metadata.name is missing.")
        key = (one.namespace if one.kind == "LocalQueue" else "", one.name)
        if key in seen:
            raise ParameterError(
                f"{one.where}: metadata.name is taken, {seen[key].where} has it too."
            )
        seen[key] = one


def _check_flavors(
    flavors: Iterable[ResourceFlavor],
    places: Iterable[Manifest],
    holders: Iterable[ClusterQueue | Cohort],
) -> None:
    """Raise an error if a queue or cohort uses an undefined flavor.

    `places` are the objects of `holders`, named in the error.
    """
    defined = {flavor.name for flavor in flavors}
    for place, holder in zip(places, holders, strict=True):
        for at, group in enumerate(holder.groups):
            for number, one in enumerate(group.flavors):
                if one.flavor not in defined:
                    raise ParameterError(
                        f"{place.where}: spec.resourceGroups[{at}].flavors[{number}].name is"
                        f" {one.flavor[:40]!r}, but no ResourceFlavor has that name. Add the"
                        " ResourceFlavor to the file."
                    )


def _check_cohort_cycle(cohorts: Iterable[Cohort]) -> None:
    """Raise an error if cohorts are their own ancestors."""
    parents = {cohort.name: cohort.parent for cohort in cohorts}
    for name in parents:
        path = [name]
        while (parent := parents.get(path[-1], "")) and parent not in path:
            path.append(parent)
        if parent:
            ring = " -> ".join([*path[path.index(parent) :], parent])
            raise ParameterError(
                f"Cohorts are their own ancestors by parentName: {ring}. Remove one of these."
            )


def _parse_configuration(one: Manifest) -> tuple[bool, tuple[str, ...]]:
    """Return (whether fair sharing is on, its preemption strategies).

    Off without fairSharing. Strategies have a default; an invalid list raises an error.
    """
    if "fairSharing" not in one.fields:
        return False, KueueConfig.strategies
    fair = one.fields.mapping("fairSharing")
    strategies = fair.texts("preemptionStrategies")
    valid = {(FINAL_SHARE, INITIAL_SHARE), (FINAL_SHARE,), (INITIAL_SHARE,), ()}
    if strategies not in valid:
        raise fair.error(
            "preemptionStrategies",
            f"must be {FINAL_SHARE}, {INITIAL_SHARE}, or the first, then the second",
        )
    return fair.flag("enable", True), strategies or KueueConfig.strategies


def _parse_flavor(one: Manifest) -> ResourceFlavor:
    """Return the flavor of a ResourceFlavor object, with its node labels."""
    labels = one.fields.mapping("spec").mapping("nodeLabels")
    return ResourceFlavor(one.name, tuple((key, labels.text(key)) for key in labels))


def _parse_class(one: Manifest) -> PriorityClass:
    """Return the priority class of a WorkloadPriorityClass object; its value is required."""
    value = one.fields.integer("value")
    one.fields.text("description")
    if value is None:
        raise one.fields.error("value", "is missing")
    return PriorityClass(one.name, value)


def _parse_local_queue(one: Manifest) -> LocalQueue:
    """Return the local queue of a LocalQueue object; its cluster queue is required."""
    spec = one.fields.mapping("spec")
    return LocalQueue(
        one.namespace, one.name, spec.required_text("clusterQueue"), _parse_stop_policy(spec)
    )


def _parse_stop_policy(spec: Fields) -> str:
    """Return the stopPolicy of a spec."""
    return spec.text("stopPolicy", RUNS, (RUNS, HOLD, DRAIN))


def _parse_cohort(one: Manifest) -> Cohort:
    """Return the Cohort of an object: parent, resource groups and weight."""
    spec = one.fields.mapping("spec")
    return Cohort(
        one.name,
        spec.text("parentName") or spec.text("parent"),
        _parse_groups(spec, limits=True),
        _parse_weight(spec),
    )


def _parse_cluster_queue(one: Manifest) -> ClusterQueue:
    """Return the ClusterQueue of an object; without a cohort its limits are dropped."""
    spec = one.fields.mapping("spec")
    cohort = spec.text("cohortName") or spec.text("cohort")
    if "namespaceSelector" in spec:
        spec.mapping("namespaceSelector").mark_all_read()
    return ClusterQueue(
        one.name,
        cohort,
        _parse_groups(spec, limits=bool(cohort)),
        spec.text("queueingStrategy", BEST_EFFORT, (BEST_EFFORT, STRICT)),
        _parse_preemption(spec.mapping("preemption")),
        _parse_fungibility(spec.mapping("flavorFungibility")),
        _parse_weight(spec),
        _parse_stop_policy(spec),
        "namespaceSelector" in spec,
    )


def _parse_weight(spec: Fields) -> Fraction:
    """Return the fair-sharing weight of a spec; default 1. Negative raises an error."""
    fair = spec.mapping("fairSharing")
    weight = fair.quantity("weight", ONE) or Fraction(0)
    if weight < 0:
        raise fair.error("weight", f"is {format_quantity(weight)}; it must not be negative")
    return weight


def _parse_preemption(fields: Fields) -> Preemption:
    """Return a cluster queue's preemption policies; the default is Never.

    Preemption while borrowing without reclaimWithinCohort raises an error.
    """
    borrow = fields.mapping("borrowWithinCohort")
    preemption = Preemption(
        fields.text("withinClusterQueue", NEVER, (NEVER, LOWER, NEWER_EQUAL)),
        fields.text("reclaimWithinCohort", NEVER, (NEVER, LOWER, NEWER_EQUAL, ANY)),
        borrow.text("policy", NEVER, (NEVER, LOWER)),
        borrow.integer("maxPriorityThreshold"),
    )
    if preemption.borrow != NEVER and preemption.reclaim == NEVER:
        raise borrow.error("policy", f"is {preemption.borrow}, which needs a reclaimWithinCohort")
    return preemption


def _parse_fungibility(fields: Fields) -> Fungibility:
    """Return a cluster queue's flavor fungibility; MayStopSearch is Borrow or Preempt."""
    borrow = fields.text("whenCanBorrow", BORROW, (BORROW, _STOP_SEARCH, TRY_NEXT))
    preempt = fields.text("whenCanPreempt", TRY_NEXT, (PREEMPT, _STOP_SEARCH, TRY_NEXT))
    return Fungibility(
        TRY_NEXT if borrow == TRY_NEXT else BORROW,
        TRY_NEXT if preempt == TRY_NEXT else PREEMPT,
        fields.text("preference", BORROWING_FIRST, (BORROWING_FIRST, PREEMPTION_FIRST)),
    )


def _parse_groups(spec: Fields, *, limits: bool) -> tuple[ResourceGroup, ...]:
    """Return the resource groups of a spec; `limits` = keep borrowing and lending limits.

    A resource or flavor in two groups and an empty group raise an error.
    """
    groups: list[ResourceGroup] = []
    resources: set[str] = set()
    names: set[str] = set()
    for fields in spec.mappings("resourceGroups"):
        covered = fields.texts("coveredResources")
        for at, resource in enumerate(covered):
            if resource in resources:
                raise fields.error(f"coveredResources[{at}]", f"covers {resource!r} once more")
            resources.add(resource)
        flavors: list[FlavorQuotas] = []
        for one in fields.mappings("flavors"):
            name = one.required_text("name")
            if name in names:
                raise one.error("name", f"is {name!r} once more; a flavor belongs to one group")
            names.add(name)
            flavors.append(FlavorQuotas(name, _parse_quotas(one, covered, limits=limits)))
        if not covered or not flavors:
            raise fields.error("coveredResources", "or flavors is missing or empty")
        groups.append(ResourceGroup(covered, tuple(flavors)))
    return tuple(groups)


def _parse_quotas(
    flavor: Fields, covered: Sequence[str], *, limits: bool
) -> dict[str, FlavorQuota]:
    """Return a flavor's quotas by resource; `limits` = keep borrowing and lending limits.

    Each covered resource needs exactly one quota, else an error is raised.
    """
    quotas: dict[str, FlavorQuota] = {}
    for fields in flavor.mappings("resources"):
        resource = fields.required_text("name")
        if resource not in covered or resource in quotas:
            raise fields.error(
                "name", f"is {resource!r}, which is not covered by the group, or there already"
            )
        amounts = {
            key: fields.quantity(key) for key in ("nominalQuota", "borrowingLimit", "lendingLimit")
        }
        nominal = amounts["nominalQuota"]
        if nominal is None:
            raise fields.error("nominalQuota", "is missing")
        for key, amount in amounts.items():
            if amount is not None and amount < 0:
                raise fields.error(key, f"is {format_quantity(amount)}; it must not be negative")
        # Without a cohort, borrowing and lending limits have no effect.
        borrowing, lending = (
            (amounts["borrowingLimit"], amounts["lendingLimit"]) if limits else (None, None)
        )
        quotas[resource] = FlavorQuota(nominal, borrowing, lending)
    missing = [resource for resource in covered if resource not in quotas]
    if missing:
        raise flavor.error("resources", f"has no quota for {missing[0]!r}, which the group covers")
    return quotas


# -- writing
# --------------------------------------------------------------------------------------------------


def write_config(config: KueueConfig) -> str:
    """Return a configuration as YAML text; `read` restores it."""
    return to_yaml(config_objects(config).values())


def config_objects(config: KueueConfig) -> dict[tuple[str, str], dict[str, Any]]:
    """Return a configuration as Kubernetes objects (nested dicts), by (kind, name).

    The name of a local queue is namespace/name.
    """
    objects: dict[tuple[str, str], dict[str, Any]] = {}
    for flavor in config.flavors:
        objects["ResourceFlavor", flavor.name] = _plain_object(
            "ResourceFlavor",
            flavor.name,
            {"nodeLabels": dict(flavor.labels)} if flavor.labels else {},
        )
    for one in config.classes:
        shell = _plain_object(_PRIORITY_CLASS, one.name, {})
        objects[_PRIORITY_CLASS, one.name] = {**shell, "value": one.value}
    for cohort in config.cohorts:
        spec = {"parentName": cohort.parent} if cohort.parent else {}
        objects["Cohort", cohort.name] = _plain_object(
            "Cohort",
            cohort.name,
            {**spec, **_groups_spec(cohort.groups), **_fair_sharing(cohort.weight)},
        )
    for queue in config.queues:
        objects["ClusterQueue", queue.name] = _plain_object(
            "ClusterQueue", queue.name, _cluster_queue_spec(queue)
        )
    for local in config.local_queues:
        stop = {"stopPolicy": local.stop} if local.stop != RUNS else {}
        shell = _plain_object("LocalQueue", local.name, {"clusterQueue": local.queue, **stop})
        if local.namespace:
            shell["metadata"]["namespace"] = local.namespace
        objects["LocalQueue", f"{local.namespace}/{local.name}"] = shell
    if config.fair_sharing or config.strategies != KueueConfig.strategies:
        objects["Configuration", ""] = {
            "apiVersion": f"config.{GROUP}/{_VERSION}",
            "kind": "Configuration",
            "fairSharing": {
                "enable": config.fair_sharing,
                "preemptionStrategies": list(config.strategies),
            },
        }
    return objects


def _plain_object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Kubernetes object as nested dicts; without ``spec`` if that is empty."""
    shell: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{_VERSION}",
        "kind": kind,
        "metadata": {"name": name},
    }
    return {**shell, "spec": dict(spec)} if spec else shell


def _cluster_queue_spec(queue: ClusterQueue) -> dict[str, Any]:
    """Return the ``spec`` of a cluster queue as nested dicts, without default values."""
    default = ClusterQueue("")
    spec: dict[str, Any] = {}
    if queue.cohort:
        spec["cohort"] = queue.cohort
    if queue.selects:
        spec["namespaceSelector"] = {}
    if queue.strategy != default.strategy:
        spec["queueingStrategy"] = queue.strategy
    spec |= _groups_spec(queue.groups)
    preemption = queue.preemption
    if preemption != default.preemption:
        spec["preemption"] = {
            "withinClusterQueue": preemption.within,
            "reclaimWithinCohort": preemption.reclaim,
            "borrowWithinCohort": dict(_borrow_items(preemption)),
        }
    if queue.fungibility != default.fungibility:
        spec["flavorFungibility"] = {
            "whenCanBorrow": queue.fungibility.borrow,
            "whenCanPreempt": queue.fungibility.preempt,
            "preference": queue.fungibility.preference,
        }
    spec |= _fair_sharing(queue.weight)
    if queue.stop != default.stop:
        spec["stopPolicy"] = queue.stop
    return spec


def _borrow_items(preemption: Preemption) -> Iterator[tuple[str, Any]]:
    """Yield the (key, value) pairs of borrowWithinCohort; the threshold only if set."""
    yield "policy", preemption.borrow
    if preemption.threshold is not None:
        yield "maxPriorityThreshold", preemption.threshold


def _fair_sharing(weight: Fraction) -> dict[str, Any]:
    """Return the fairSharing entry of a weight; empty for the default."""
    return {} if weight == ONE else {"fairSharing": {"weight": format_quantity(weight)}}


def _groups_spec(groups: Sequence[ResourceGroup]) -> dict[str, Any]:
    """Return a dict with the ``resourceGroups`` entry; empty without groups."""
    if not groups:
        return {}
    return {
        "resourceGroups": [
            {
                "coveredResources": list(group.resources),
                "flavors": [
                    {
                        "name": flavor.flavor,
                        "resources": [
                            {"name": resource, **_quota_spec(flavor.quotas[resource])}
                            for resource in group.resources
                        ],
                    }
                    for flavor in group.flavors
                ],
            }
            for group in groups
        ]
    }


def _quota_spec(quota: FlavorQuota) -> dict[str, str]:
    """Return the quota entry of a resource: amounts as text, without limits that are None."""
    keys = ("nominalQuota", "borrowingLimit", "lendingLimit")
    return {
        key: format_quantity(amount)
        for key, amount in zip(keys, quota, strict=True)
        if amount is not None
    }
