"""Kueue's objects from YAML, and back."""

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
    Config,
    FlavorQuota,
    FlavorQuotas,
    Fungibility,
    Group,
    LocalQueue,
    Preemption,
    PriorityClass,
    ResourceFlavor,
)
from allocators.sites.manifests import Fields, Manifest, as_text, manifests, written
from sim.contract import ParameterError

GROUP: Final = "kueue.x-k8s.io"
_KINDS: Final = {
    f"{GROUP}/{kind}"
    for kind in ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass")
} | {f"config.{GROUP}/Configuration"}
_VERSION: Final = "v1beta1"
_STOP_SEARCH: Final = "MayStopSearch"
"""What newer versions call "Borrow" and "Preempt"."""


@lru_cache(maxsize=8)
def read(text: str) -> Config:
    """Read the objects of Kueue from YAML.

    Parameters
    ----------
    text : str
        Documents; what ``kubectl get clusterqueues,cohorts,... -o yaml`` prints, or a site's files
        one after another.

    Raises
    ------
    ParameterError
        If it is no YAML, there is no cluster queue, a value is wrong, a name comes twice, a flavor
        is not defined, or cohorts are their own ancestors.
    """
    found: dict[str, list[Manifest]] = {kind: [] for kind in _KINDS}
    ignored: list[str] = []
    objects = manifests(text)
    for one in objects:
        kind = f"{one.group or GROUP}/{one.kind}"
        if kind in found:
            found[kind].append(one)
        else:
            ignored.append(f"{one.where}: objects of this kind are not read")
    queues, cohorts, locals_, flavors, classes = (
        found[f"{GROUP}/{kind}"]
        for kind in ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", _PRIORITY_CLASS)
    )
    for named in (queues, cohorts, flavors, classes, locals_):
        _check_names(named)
    configurations = found[f"config.{GROUP}/Configuration"]
    if len(configurations) > 1:
        raise ParameterError(f"{configurations[1].where}: there is a Configuration already.")
    fair, strategies = (
        _configuration(configurations[0]) if configurations else (False, Config.strategies)
    )
    config = Config(
        tuple(map(_queue, queues)),
        tuple(map(_cohort, cohorts)),
        tuple(map(_local_queue, locals_)),
        tuple(map(_flavor, flavors)),
        tuple(map(_class, classes)),
        fair,
        strategies,
        (*ignored, *(line for named in found.values() for one in named for line in one.unread())),
    )
    if not config.queues:
        raise ParameterError(
            "There is no ClusterQueue in this YAML. Give the objects that kubectl get"
            " clusterqueues,cohorts,localqueues,resourceflavors -o yaml prints."
        )
    _check_flavors(config.flavors, [*queues, *cohorts], [*config.queues, *config.cohorts])
    _check_ring(config.cohorts)
    return config


_PRIORITY_CLASS: Final = "WorkloadPriorityClass"


def _check_names(named: Sequence[Manifest]) -> None:
    known: dict[tuple[str, str], Manifest] = {}
    for one in named:
        if not one.name:
            raise ParameterError(f"{one.where}: metadata.name is missing.")
        key = (one.namespace if one.kind == "LocalQueue" else "", one.name)
        if key in known:
            raise ParameterError(
                f"{one.where}: metadata.name is taken, {known[key].where} has it too."
            )
        known[key] = one


def _check_flavors(
    flavors: Iterable[ResourceFlavor],
    places: Iterable[Manifest],
    holders: Iterable[ClusterQueue | Cohort],
) -> None:
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


def _check_ring(cohorts: Iterable[Cohort]) -> None:
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


def _configuration(one: Manifest) -> tuple[bool, tuple[str, ...]]:
    if "fairSharing" not in one.fields:
        return False, Config.strategies
    fair = one.fields.inside("fairSharing")
    strategies = fair.texts("preemptionStrategies")
    known = {(FINAL_SHARE, INITIAL_SHARE), (FINAL_SHARE,), (INITIAL_SHARE,), ()}
    if strategies not in known:
        raise fair.wrong(
            "preemptionStrategies",
            f"must be {FINAL_SHARE}, {INITIAL_SHARE}, or the first, then the second",
        )
    return fair.flag("enable", True), strategies or Config.strategies


def _flavor(one: Manifest) -> ResourceFlavor:
    labels = one.fields.inside("spec").inside("nodeLabels")
    return ResourceFlavor(one.name, tuple((key, labels.text(key)) for key in labels))


def _class(one: Manifest) -> PriorityClass:
    value = one.fields.whole("value")
    one.fields.text("description")
    if value is None:
        raise one.fields.wrong("value", "is missing")
    return PriorityClass(one.name, value)


def _local_queue(one: Manifest) -> LocalQueue:
    spec = one.fields.inside("spec")
    return LocalQueue(one.namespace, one.name, spec.needed("clusterQueue"), _stop(spec))


def _stop(spec: Fields) -> str:
    return spec.text("stopPolicy", RUNS, (RUNS, HOLD, DRAIN))


def _cohort(one: Manifest) -> Cohort:
    spec = one.fields.inside("spec")
    return Cohort(
        one.name,
        spec.text("parentName") or spec.text("parent"),
        _groups(spec, limits=True),
        _weight(spec),
    )


def _queue(one: Manifest) -> ClusterQueue:
    spec = one.fields.inside("spec")
    cohort = spec.text("cohortName") or spec.text("cohort")
    if "namespaceSelector" in spec:
        spec.inside("namespaceSelector").ignore()
    return ClusterQueue(
        one.name,
        cohort,
        _groups(spec, limits=bool(cohort)),
        spec.text("queueingStrategy", BEST_EFFORT, (BEST_EFFORT, STRICT)),
        _preemption(spec.inside("preemption")),
        _fungibility(spec.inside("flavorFungibility")),
        _weight(spec),
        _stop(spec),
        "namespaceSelector" in spec,
    )


def _weight(spec: Fields) -> Fraction:
    fair = spec.inside("fairSharing")
    weight = fair.quantity("weight", ONE) or Fraction(0)
    if weight < 0:
        raise fair.wrong("weight", f"is {as_text(weight)}; it must not be negative")
    return weight


def _preemption(fields: Fields) -> Preemption:
    borrow = fields.inside("borrowWithinCohort")
    made = Preemption(
        fields.text("withinClusterQueue", NEVER, (NEVER, LOWER, NEWER_EQUAL)),
        fields.text("reclaimWithinCohort", NEVER, (NEVER, LOWER, NEWER_EQUAL, ANY)),
        borrow.text("policy", NEVER, (NEVER, LOWER)),
        borrow.whole("maxPriorityThreshold"),
    )
    if made.borrow != NEVER and made.reclaim == NEVER:
        raise borrow.wrong("policy", f"is {made.borrow}, which needs a reclaimWithinCohort")
    return made


def _fungibility(fields: Fields) -> Fungibility:
    borrow = fields.text("whenCanBorrow", BORROW, (BORROW, _STOP_SEARCH, TRY_NEXT))
    preempt = fields.text("whenCanPreempt", TRY_NEXT, (PREEMPT, _STOP_SEARCH, TRY_NEXT))
    return Fungibility(
        TRY_NEXT if borrow == TRY_NEXT else BORROW,
        TRY_NEXT if preempt == TRY_NEXT else PREEMPT,
        fields.text("preference", BORROWING_FIRST, (BORROWING_FIRST, PREEMPTION_FIRST)),
    )


def _groups(spec: Fields, *, limits: bool) -> tuple[Group, ...]:
    groups: list[Group] = []
    resources: set[str] = set()
    names: set[str] = set()
    for fields in spec.each("resourceGroups"):
        covered = fields.texts("coveredResources")
        for at, resource in enumerate(covered):
            if resource in resources:
                raise fields.wrong(f"coveredResources[{at}]", f"covers {resource!r} once more")
            resources.add(resource)
        flavors: list[FlavorQuotas] = []
        for one in fields.each("flavors"):
            name = one.needed("name")
            if name in names:
                raise one.wrong("name", f"is {name!r} once more; a flavor belongs to one group")
            names.add(name)
            flavors.append(FlavorQuotas(name, _quotas(one, covered, limits=limits)))
        if not covered or not flavors:
            raise fields.wrong("coveredResources", "or flavors is missing or empty")
        groups.append(Group(covered, tuple(flavors)))
    return tuple(groups)


def _quotas(flavor: Fields, covered: Sequence[str], *, limits: bool) -> dict[str, FlavorQuota]:
    quotas: dict[str, FlavorQuota] = {}
    for fields in flavor.each("resources"):
        resource = fields.needed("name")
        if resource not in covered or resource in quotas:
            raise fields.wrong(
                "name", f"is {resource!r}, which is not covered by the group, or there already"
            )
        amounts = {
            key: fields.quantity(key) for key in ("nominalQuota", "borrowingLimit", "lendingLimit")
        }
        nominal = amounts["nominalQuota"]
        if nominal is None:
            raise fields.wrong("nominalQuota", "is missing")
        for key, amount in amounts.items():
            if amount is not None and amount < 0:
                raise fields.wrong(key, f"is {as_text(amount)}; it must not be negative")
        # Without a cohort there is nobody to borrow from or to lend to.
        borrowing, lending = (
            (amounts["borrowingLimit"], amounts["lendingLimit"]) if limits else (None, None)
        )
        quotas[resource] = FlavorQuota(nominal, borrowing, lending)
    missing = [resource for resource in covered if resource not in quotas]
    if missing:
        raise flavor.wrong("resources", f"has no quota for {missing[0]!r}, which the group covers")
    return quotas


# -- writing
# --------------------------------------------------------------------------------------------------


def write(config: Config) -> str:
    """Return the YAML text of all objects; `read` gives the same configuration."""
    return written(objects_of(config).values())


def objects_of(config: Config) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects as plain values: (kind, name) -> object; the name of a local queue has its
    namespace before it.
    """
    made: dict[tuple[str, str], dict[str, Any]] = {}
    for flavor in config.flavors:
        made["ResourceFlavor", flavor.name] = _shell(
            "ResourceFlavor",
            flavor.name,
            {"nodeLabels": dict(flavor.labels)} if flavor.labels else {},
        )
    for one in config.classes:
        shell = _shell(_PRIORITY_CLASS, one.name, {})
        made[_PRIORITY_CLASS, one.name] = {**shell, "value": one.value}
    for cohort in config.cohorts:
        spec = {"parentName": cohort.parent} if cohort.parent else {}
        made["Cohort", cohort.name] = _shell(
            "Cohort",
            cohort.name,
            {**spec, **_written_groups(cohort.groups), **_fair(cohort.weight)},
        )
    for queue in config.queues:
        made["ClusterQueue", queue.name] = _shell("ClusterQueue", queue.name, _written_queue(queue))
    for local in config.local_queues:
        stop = {"stopPolicy": local.stop} if local.stop != RUNS else {}
        shell = _shell("LocalQueue", local.name, {"clusterQueue": local.queue, **stop})
        if local.namespace:
            shell["metadata"]["namespace"] = local.namespace
        made["LocalQueue", f"{local.namespace}/{local.name}"] = shell
    if config.fair_sharing or config.strategies != Config.strategies:
        made["Configuration", ""] = {
            "apiVersion": f"config.{GROUP}/{_VERSION}",
            "kind": "Configuration",
            "fairSharing": {
                "enable": config.fair_sharing,
                "preemptionStrategies": list(config.strategies),
            },
        }
    return made


def _shell(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    shell: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{_VERSION}",
        "kind": kind,
        "metadata": {"name": name},
    }
    return {**shell, "spec": dict(spec)} if spec else shell


def _written_queue(queue: ClusterQueue) -> dict[str, Any]:
    default = ClusterQueue("")
    spec: dict[str, Any] = {}
    if queue.cohort:
        spec["cohort"] = queue.cohort
    if queue.selects:
        spec["namespaceSelector"] = {}
    if queue.strategy != default.strategy:
        spec["queueingStrategy"] = queue.strategy
    spec |= _written_groups(queue.groups)
    preemption = queue.preemption
    if preemption != default.preemption:
        spec["preemption"] = {
            "withinClusterQueue": preemption.within,
            "reclaimWithinCohort": preemption.reclaim,
            "borrowWithinCohort": dict(_borrow(preemption)),
        }
    if queue.fungibility != default.fungibility:
        spec["flavorFungibility"] = {
            "whenCanBorrow": queue.fungibility.borrow,
            "whenCanPreempt": queue.fungibility.preempt,
            "preference": queue.fungibility.preference,
        }
    spec |= _fair(queue.weight)
    if queue.stop != default.stop:
        spec["stopPolicy"] = queue.stop
    return spec


def _borrow(preemption: Preemption) -> Iterator[tuple[str, Any]]:
    yield "policy", preemption.borrow
    if preemption.threshold is not None:
        yield "maxPriorityThreshold", preemption.threshold


def _fair(weight: Fraction) -> dict[str, Any]:
    return {} if weight == ONE else {"fairSharing": {"weight": as_text(weight)}}


def _written_groups(groups: Sequence[Group]) -> dict[str, Any]:
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
                            {"name": resource, **_written_quota(flavor.quotas[resource])}
                            for resource in group.resources
                        ],
                    }
                    for flavor in group.flavors
                ],
            }
            for group in groups
        ]
    }


def _written_quota(quota: FlavorQuota) -> dict[str, str]:
    keys = ("nominalQuota", "borrowingLimit", "lendingLimit")
    return {
        key: as_text(amount) for key, amount in zip(keys, quota, strict=True) if amount is not None
    }
