"""Dominant resource shares against the table that Kueue's own tests hold."""

from __future__ import annotations

from fractions import Fraction
from math import isinf
from typing import Any

import pytest
import yaml

from allocators.sites.kueue.objects import (
    ClusterQueue,
    Cohort,
    FlavorQuota,
    FlavorQuotas,
    KueueConfig,
    ResourceFlavor,
    ResourceGroup,
)
from allocators.sites.kueue.tree import CohortTree, FlavorResource
from tests.shared import shared

CASES = 12


def groups(quotas: dict[str, Any]) -> tuple[ResourceGroup, ...]:
    """{flavor/resource: nominal} as one group for each set of flavors."""
    flavors: dict[str, dict[str, FlavorQuota]] = {}
    for key, value in quotas.items():
        flavor, resource = key.split("/")
        given = value if isinstance(value, dict) else {"nominal": value}
        limit = given.get("borrowing")
        flavors.setdefault(flavor, {})[resource] = FlavorQuota(
            Fraction(given["nominal"]), None if limit is None else Fraction(limit)
        )
    if not flavors:
        return ()
    resources = tuple(next(iter(flavors.values())))
    return (ResourceGroup(resources, tuple(FlavorQuotas(*item) for item in flavors.items())),)


def tree_of(case: dict[str, Any]) -> CohortTree:
    has_cohort = "peer" in case or "root" in case
    above = "parent" if "parent" in case else "root"
    queues = [
        ClusterQueue(
            "cq",
            above if has_cohort else "",
            groups(case["cq"]["quota"]),
            weight=Fraction(str(case["cq"].get("weight", 1))),
        )
    ]
    if "peer" in case:
        queues.append(ClusterQueue("peer", "root", groups(case["peer"]["quota"])))
    cohorts = []
    if "parent" in case:
        cohorts.append(
            Cohort(
                "parent",
                "root",
                groups(case["parent"].get("quota", {})),
                Fraction(str(case["parent"].get("weight", 1))),
            )
        )
    if "root" in case:
        cohorts.append(Cohort("root", "", groups(case["root"]["quota"])))
    flavors = {flavor for queue in queues for group in queue.groups for flavor, _ in group.flavors}
    return CohortTree(
        KueueConfig(tuple(queues), tuple(cohorts), (), tuple(map(ResourceFlavor, flavors)))
    )


def booked(tree: CohortTree, amounts: dict[str, int]) -> list[tuple[int, int]]:
    made = []
    for key, amount in amounts.items():
        flavor, resource = key.split("/")
        made.append(
            (
                tree.cells[FlavorResource(flavor, resource)],
                amount * (1000 if resource == "cpu" else 1),
            )
        )
    return made


@pytest.mark.parametrize("at", range(CASES))
def test_the_published_table(at: int) -> None:
    path = shared("data/schedulers/golden/kueue_dominant_share.yaml")
    cases = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert len(cases) == CASES
    case = cases[at]
    tree = tree_of(case)
    node = tree.queues["cq"]
    node.add(booked(tree, case["cq"]["usage"]))
    node.add(booked(tree, case["cq"].get("request", {})))
    share = node.share()
    assert share.reported == case["share"], case["name"]
    assert bool(share.borrowed) == case["borrowing"]
    assert share.resource == case.get("by", "")
    if "parent_share" in case:
        above = tree.cohorts["parent"].share()
        assert above.reported == case["parent_share"]


def test_a_queue_of_weight_0_that_borrows_comes_after_all_others() -> None:
    tree = tree_of(
        {
            "cq": {"weight": 0, "quota": {"d/gpu": 1}},
            "peer": {"quota": {"d/gpu": 9}},
        }
    )
    node = tree.queues["cq"]
    assert node.share().key == (False, 0.0)
    node.add([(0, 2)])
    assert isinf(node.share().reported)
    assert node.share().key > (False, 1e9)


def test_a_reported_share_is_rounded_up() -> None:
    tree = tree_of({"cq": {"quota": {"d/gpu": 1}}, "peer": {"quota": {"d/gpu": 2}}})
    node = tree.queues["cq"]
    node.add([(0, 2)])
    # 1 of 3 GPUs is borrowed: 333.3 thousandths.
    assert node.share().reported == 334
