"""Kueue's objects from YAML: what is read, what is refused, and that writing is the reverse."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from allocators.sites.kueue.files import read_config, write_config
from allocators.sites.kueue.objects import (
    BEST_EFFORT,
    BORROWING_FIRST,
    DRAIN,
    HOLD,
    LOWER,
    NEVER,
    NEWER_EQUAL,
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
from sim.contract import ParameterError

SITE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: a100}
spec:
  nodeLabels: {accelerator: nvidia-a100}
  nodeTaints: [{key: gpu, effect: NoSchedule}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: no}
spec:
  cohort: research
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 1500m, borrowingLimit: 1k}
      - {name: nvidia.com/gpu, nominalQuota: 8, lendingLimit: 2}
  preemption:
    withinClusterQueue: LowerPriority
    reclaimWithinCohort: Any
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: Preempt}
  fairSharing: {weight: 500m}
---
apiVersion: v1
kind: List
items:
- {apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue,
   metadata: {name: main, namespace: team-a}, spec: {clusterQueue: no}}
- {apiVersion: kueue.x-k8s.io/v1alpha1, kind: Cohort, metadata: {name: research},
   spec: {parentName: all}}
- {apiVersion: kueue.x-k8s.io/v1beta1, kind: WorkloadPriorityClass,
   metadata: {name: urgent}, value: 1000, description: for demos}
- {apiVersion: config.kueue.x-k8s.io/v1beta1, kind: Configuration, fairSharing: {enable: true}}
- {apiVersion: v1, kind: Namespace, metadata: {name: team-a}}
"""


def test_a_site() -> None:
    config = read_config(SITE)
    [queue] = config.queues
    assert (queue.name, queue.cohort, queue.strategy, queue.weight) == (
        "no",
        "research",
        STRICT,
        Fraction(1, 2),
    )
    [group] = queue.groups
    assert group.flavors[0].quotas == {
        "cpu": FlavorQuota(Fraction(3, 2), Fraction(1000)),
        "nvidia.com/gpu": FlavorQuota(Fraction(8), None, Fraction(2)),
    }
    assert queue.preemption == Preemption(LOWER, "Any", LOWER, 100)
    assert queue.fungibility == Fungibility(TRY_NEXT, "Preempt")
    assert config.local_queues == (LocalQueue("team-a", "main", "no"),)
    assert config.cohorts == (Cohort("research", "all"),)
    assert config.classes == (PriorityClass("urgent", 1000),)
    assert config.fair_sharing
    assert config.ignored == (
        "document 3, item 5 (Namespace team-a): objects of this kind are not read",
        "document 1 (ResourceFlavor a100): spec.nodeTaints",
    )


def test_what_is_written_is_read_as_the_same() -> None:
    assert read_config(write_config(read_config(SITE))) == read_config(SITE)


@pytest.mark.parametrize("seed", range(40))
def test_any_configuration_survives_writing(seed: int) -> None:
    rng = random.Random(seed)
    config = drawn(rng)
    assert read_config(write_config(config)) == config, f"seed {seed}"


def drawn(rng: random.Random) -> KueueConfig:
    """A configuration with odd names and quantities."""
    flavors = tuple(
        ResourceFlavor(name, (("kind", name),) if rng.random() < 0.5 else ())
        for name in ("on", "1E", "null-1")[: rng.randint(1, 3)]
    )
    cohorts = tuple(
        Cohort(name, parent, _groups(rng, flavors), Fraction(rng.randint(0, 9), 4))
        for name, parent in (("root", ""), ("yes", "root"), ("0x1", "yes"))[: rng.randint(0, 3)]
    )
    queues = tuple(
        ClusterQueue(
            name,
            rng.choice(["", "yes", "elsewhere"]),
            _groups(rng, flavors, limits=False),
            rng.choice([BEST_EFFORT, STRICT]),
            rng.choice([Preemption(), Preemption(NEWER_EQUAL, LOWER, LOWER, -5)]),
            rng.choice([Fungibility(), Fungibility(TRY_NEXT, TRY_NEXT, PREEMPTION_FIRST)]),
            Fraction(rng.randint(0, 30), 10),
            rng.choice([RUNS, HOLD, DRAIN]),
            rng.random() < 0.5,
        )
        for name in ("a", "~", "3.14")[: rng.randint(1, 3)]
    )
    return KueueConfig(
        queues,
        cohorts,
        (LocalQueue("", "x", "a"), LocalQueue("ns", "x", "~", HOLD))[: rng.randint(0, 2)],
        flavors,
        (PriorityClass("low", -1),)[: rng.randint(0, 1)],
        rng.random() < 0.5,
    )


def _groups(
    rng: random.Random, flavors: tuple[ResourceFlavor, ...], *, limits: bool = True
) -> tuple[ResourceGroup, ...]:
    if rng.random() < 0.2:
        return ()
    resources = ("cpu", "memory", "nvidia.com/gpu")[: rng.randint(1, 3)]

    def quota() -> FlavorQuota:
        nominal = Fraction(rng.choice([0, 3, 10**6, 3 * 2**30]), rng.choice([1, 1000]))
        borrowing = Fraction(7, 10) if limits and rng.random() < 0.5 else None
        return FlavorQuota(
            nominal, borrowing, nominal / 2 if limits and rng.random() < 0.5 else None
        )

    return (
        ResourceGroup(
            resources,
            tuple(
                FlavorQuotas(flavor.name, {name: quota() for name in resources})
                for flavor in flavors
            ),
        ),
    )


def changed(old: str, new: str) -> str:
    assert old in SITE
    return SITE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed("name: a100}\nspec", "name: b}\nspec"), "no ResourceFlavor has that name"),
        (changed("cohort: research", "cohortName: [x]"), "spec.cohortName is no plain value"),
        (changed("StrictFIFO", "Strict"), "'Strict'; it must be BestEffortFIFO or StrictFIFO"),
        (changed("1500m", "1500x"), r"nominalQuota: '1500x' is no quantity"),
        (changed("1500m", "-1"), r"nominalQuota is -1; it must not be negative"),
        (changed("[cpu, nvidia.com/gpu]", "[cpu, nvidia.com/gpu, memory]"), "for 'memory'"),
        (changed("[cpu, nvidia.com/gpu]", "[cpu, cpu]"), "covers 'cpu' once more"),
        (changed("{name: cpu,", "{name: nvidia.com/gpu,"), "or there already"),
        (changed("reclaimWithinCohort: Any", "reclaimWithinCohort: Never"), "which needs"),
        (changed("parentName: all", "parentName: research"), "research -> research"),
        (changed("value: 1000", "value: 1k"), "it must be a whole number"),
        (changed("Cohort, metadata: {name: research}", "ClusterQueue, metadata: {name: no}"),
         "document 2 .ClusterQueue no. has it too"),
        (changed("enable: true", "preemptionStrategies: [Fairest]"), "must be LessThan"),
        ("kind: Cohort\nmetadata: {name: a}", "There is no ClusterQueue"),
    ],
)  # fmt: skip
def test_bad_configurations(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_config(text)


def test_a_longer_ring_of_cohorts_is_named() -> None:
    ring = "\n---\n".join(
        f"apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {{name: {name}}}\n"
        f"spec: {{parentName: {parent}}}"
        for name, parent in (("x", "a"), ("a", "b"), ("b", "c"), ("c", "a"))
    )
    with pytest.raises(ParameterError, match="a -> b -> c -> a"):
        read_config(f"{SITE}---\n{ring}")


def test_the_rules_of_newer_versions_mean_the_same() -> None:
    text = changed("whenCanBorrow: TryNextFlavor", "whenCanBorrow: MayStopSearch")
    assert read_config(text).queues[0].fungibility.borrow == "Borrow"
    assert read_config(changed("cohort: research", "cohortName: research")) == read_config(SITE)


def test_limits_without_a_cohort_have_nobody_to_apply_to() -> None:
    [queue] = read_config(changed("  cohort: research\n", "")).queues
    assert queue.groups[0].flavors[0].quotas["cpu"] == FlavorQuota(Fraction(3, 2))


def test_nothing_is_preempted_unless_it_is_said() -> None:
    start, end = SITE.index("  preemption:"), SITE.index("  flavorFungibility")
    [queue] = read_config(SITE[:start] + SITE[end:]).queues
    assert queue.preemption == Preemption(NEVER, NEVER, NEVER)
    assert queue.fungibility.preference == BORROWING_FIRST
