"""Kueue's rules by hand: small sites, a few jobs, and the instants that follow."""

from __future__ import annotations

import random
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pandas as pd
import pytest

from allocators.sites.kueue.objects import (
    ClusterQueue,
    Cohort,
    FlavorQuota,
    FlavorQuotas,
    Fungibility,
    KueueConfig,
    Preemption,
    ResourceFlavor,
    ResourceGroup,
)
from allocators.sites.kueue.policy import Kueue
from allocators.sites.kueue.queueing import QueuedWorkload
from allocators.sites.kueue.scheduler import Scheduler
from allocators.sites.kueue.tree import QuotaNode
from allocators.sites.manifests import to_yaml
from sim.cluster import Cluster
from sim.engine.simulator import Simulator
from sim.result import RunResult
from sim.trace import Trace

GPU = "nvidia.com/gpu"


def flavor(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    }


def quotas(resource: str = GPU, **flavors: str) -> list[dict[str, Any]]:
    """flavor="nominal/borrowing/lending", "" = no limit."""
    keys = ("nominalQuota", "borrowingLimit", "lendingLimit")
    return [
        {
            "coveredResources": [resource],
            "flavors": [
                {
                    "name": name,
                    "resources": [
                        {"name": resource}
                        | {
                            key: part
                            for key, part in zip(keys, (*text.split("/"), "", ""), strict=False)
                            if part
                        }
                    ],
                }
                for name, text in flavors.items()
            ],
        }
    ]


def queue(name: str, cohort: str = "all", gpus: str = "", **spec: Any) -> dict[str, Any]:
    groups = quotas(any=gpus) if gpus else []
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"cohort": cohort, "namespaceSelector": {}, "resourceGroups": groups} | spec,
    }


def site(*objects: dict[str, Any]) -> str:
    return to_yaml([flavor("any"), *objects])


Row = tuple[str, float, int, float]
"""Queue, submission, GPUs, run time."""


def run(
    text: str,
    rows: Iterable[Row],
    cluster: str = "2x4:v100",
    priority: Iterable[float] = (),
    **params: Any,
) -> RunResult:
    frame = pd.DataFrame(rows, columns=["vc", "submit_time_s", "num_gpus", "duration_s"])
    frame["job_id"] = [f"j{at}" for at in range(len(frame))]
    if priority:
        frame["priority"] = [float(value) for value in priority]
    policy = Kueue(config=text, **params)
    return Simulator(Trace.of(frame), Cluster.parse(cluster), policy).run()


def starts(result: RunResult) -> list[float]:
    return list(result.jobs["first_start_s"])


def ends(result: RunResult) -> list[float]:
    return list(result.jobs["finish_s"])


# -- borrowing and lending
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "other", "most"),
    [("4", "4", 8), ("4/1", "4", 5), ("4", "4//1", 5), ("4/2", "4//1", 5), ("4//0", "4//0", 4)],
)
def test_a_queue_gets_what_it_owns_and_what_it_may_borrow_and_others_lend(
    own: str, other: str, most: int
) -> None:
    text = site(queue("a", gpus=own), queue("b", gpus=other))
    result = run(text, [("a", 0, most, 10), ("a", 20, min(most + 1, 9), 10)])
    assert starts(result)[0] == 0
    if most < 8:
        assert list(result.jobs["outcome"]) == ["completed", "refused"]
        assert any("1 job refused" in line for line in result.remarks)


def test_without_a_cohort_nobody_lends() -> None:
    text = site(queue("a", cohort="", gpus="4"), queue("b", cohort="", gpus="4"))
    assert starts(run(text, [("a", 0, 4, 10), ("a", 0, 1, 10), ("b", 0, 4, 10)])) == [0, 10, 0]


def test_a_cohort_lends_what_it_owns_itself_up_the_tree() -> None:
    cohorts = [
        {
            "apiVersion": "kueue.x-k8s.io/v1alpha1",
            "kind": "Cohort",
            "metadata": {"name": "team"},
            "spec": {"parentName": "root", "resourceGroups": quotas(any="2//1")},
        }
    ]
    text = site(*cohorts, queue("a", "team", "2"), queue("b", "root", "3"))
    # b owns 3 and gets 1 of the 4 below team; a gets the rest, 3.
    assert starts(run(text, [("b", 0, 4, 10), ("a", 0, 3, 10), ("a", 0, 1, 10)])) == [0, 0, 10]


# -- who waits
# --------------------------------------------------------------------------------------------------


def test_a_strict_queue_waits_for_its_first_job_another_goes_on() -> None:
    rows: list[Row] = [("a", 0, 4, 100), ("a", 1, 8, 10), ("a", 2, 4, 10)]
    for strategy, expected in (("StrictFIFO", [0, 100, 110]), ("BestEffortFIFO", [0, 100, 2])):
        text = site(queue("a", gpus="8", queueingStrategy=strategy))
        assert starts(run(text, rows)) == expected


def test_higher_priority_goes_first_then_submission() -> None:
    text = site(queue("a", gpus="8"))
    rows: list[Row] = [("a", 0, 8, 10), ("a", 1, 8, 10), ("a", 2, 8, 10), ("a", 3, 8, 10)]
    assert starts(run(text, rows, priority=[0, 0, 5, 0])) == [0, 20, 10, 30]


def test_a_strict_queue_lets_a_higher_priority_pass() -> None:
    text = site(queue("a", gpus="8", queueingStrategy="StrictFIFO"))
    rows: list[Row] = [("a", 0, 4, 100), ("a", 1, 8, 10), ("a", 2, 4, 10)]
    assert starts(run(text, rows, priority=[0, 0, 1])) == [0, 100, 2]


def test_a_delay_holds_back_who_did_not_fit() -> None:
    text = site(queue("a", gpus="4"))
    rows: list[Row] = [("a", 0, 4, 10), ("a", 1, 4, 10), ("a", 10.5, 2, 1)]
    assert starts(run(text, rows)) == [0, 10, 20]
    # The one that did not fit is tried again at 11; the new one has another shape and is tried now.
    assert starts(run(text, rows, requeue_s=1.0)) == [0, 11.5 + 1.0, 10.5]


@pytest.mark.parametrize("full", ["a", "b"])
def test_a_delay_ends_whatever_the_other_trees_do(full: str) -> None:
    text = site(queue("a", cohort="", gpus="4"), queue("b", cohort="", gpus="4"))
    # Quota comes free at 10, the job that did not fit is tried again 1 s later, in the first tree
    # and in the last.
    rows: list[Row] = [(full, 0, 4, 10), (full, 1, 4, 10)]
    assert starts(run(text, rows, requeue_s=1.0)) == [0, 11]


# -- preemption
# --------------------------------------------------------------------------------------------------


def test_an_owner_reclaims_what_was_lent_from_the_latest_borrower() -> None:
    take_back = {"reclaimWithinCohort": "Any"}
    text = site(queue("a", gpus="4"), queue("b", gpus="4", preemption=take_back))
    rows: list[Row] = [("a", 0, 4, 100), ("a", 1, 4, 100), ("b", 10, 4, 50)]
    result = run(text, rows)
    # The second job of a has done 9 s; it goes on when b's ends at 60.
    assert ends(result) == [100, 151, 60]
    assert list(result.jobs["preemptions"]) == [0, 1, 0]
    without = site(queue("a", gpus="4"), queue("b", gpus="4"))
    assert ends(run(without, rows)) == [100, 101, 150]


def test_nobody_reclaims_for_what_it_would_have_to_borrow() -> None:
    take_back = {"reclaimWithinCohort": "Any"}
    text = site(queue("a", gpus="4"), queue("b", gpus="4", preemption=take_back))
    rows: list[Row] = [("a", 0, 4, 100), ("a", 1, 2, 100), ("b", 10, 5, 50)]
    assert ends(run(text, rows)) == [100, 101, 150]


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [({}, 10.0), ({"maxPriorityThreshold": 0}, 10.0), ({"maxPriorityThreshold": -1}, 100.0)],
)
def test_lower_priority_may_be_displaced_while_borrowing(
    threshold: dict[str, int], expected: float
) -> None:
    rules = {
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority", **threshold},
    }
    text = site(queue("a", gpus="2"), queue("b", gpus="4", preemption=rules), queue("c", gpus="2"))
    rows: list[Row] = [("a", 0, 4, 100), ("b", 10, 6, 50)]
    assert starts(run(text, rows, priority=[0, 1]))[1] == expected


@pytest.mark.parametrize(
    ("rule", "priority", "first_ends"),
    [
        ("Never", [0, 1], 100),
        ("LowerPriority", [0, 1], 150),
        ("LowerPriority", [1, 1], 100),
        ("LowerOrNewerEqualPriority", [0, 1], 150),
        ("LowerOrNewerEqualPriority", [1, 1], 100),
    ],
)
def test_within_a_queue(rule: str, priority: list[float], first_ends: float) -> None:
    text = site(queue("a", gpus="8", preemption={"withinClusterQueue": rule}))
    assert ends(run(text, [("a", 0, 8, 100), ("a", 10, 8, 50)], priority=priority))[0] == first_ends


def test_only_as_many_are_displaced_as_are_needed() -> None:
    text = site(queue("a", gpus="8", preemption={"withinClusterQueue": "LowerPriority"}))
    rows: list[Row] = [("a", 0, 2, 100), ("a", 1, 5, 100), ("a", 2, 1, 100), ("a", 10, 4, 50)]
    result = run(text, rows, cluster="1x8:v100", priority=[0, 0, 0, 1])
    # In order of displacement: the 1 (latest), the 5; then the 1 is put back.
    assert list(result.jobs["preemptions"]) == [0, 1, 0, 0]
    assert starts(result)[3] == 10


def test_the_same_subtree_has_an_advantage_over_others() -> None:
    take_back = {"reclaimWithinCohort": "Any"}
    teams = [
        {
            "apiVersion": "kueue.x-k8s.io/v1alpha1",
            "kind": "Cohort",
            "metadata": {"name": name},
            "spec": {"parentName": "root", "resourceGroups": quotas(any=gpus)},
        }
        for name, gpus in (("left", "4"), ("right", "4"))
    ]
    text = site(
        *teams,
        queue("a", "left", "0", preemption=take_back),
        queue("b", "right", "0"),
    )
    # a owns nothing, but its team does: it takes the team's quota back although it borrows itself.
    rows: list[Row] = [("b", 0, 4, 100), ("b", 1, 4, 100), ("a", 10, 4, 50)]
    assert starts(run(text, rows))[2] == 10
    flat = site(
        queue("a", "root", "0", preemption=take_back),
        queue("b", "root", "0"),
        queue("c", "root", "8"),
    )
    assert starts(run(flat, rows))[2] == 100


# -- flavors
# --------------------------------------------------------------------------------------------------


def two_types(**spec: Any) -> str:
    groups = {"resourceGroups": quotas(fast="4", slow="4")}
    return site(
        flavor("fast", accelerator="nvidia-tesla-v100"),
        flavor("slow", accelerator="NVIDIA-T4"),
        queue("a", **groups, **spec),
        queue("b", **groups),
    )


def test_flavors_are_tried_in_order_and_mean_their_nodes() -> None:
    rows: list[Row] = [("a", 0, 4, 60), ("b", 0, 4, 60), ("a", 0, 4, 60)]
    result = run(two_types(), rows, cluster="2x4:v100,1x4:t4")
    assert starts(result) == [0, 0, 0]
    assert result.jobs["finish_s"][2] > 60, "the third runs on the slower type"


def test_another_flavor_may_be_tried_before_borrowing() -> None:
    rows: list[Row] = [("a", 0, 4, 60), ("a", 1, 4, 60)]
    borrows = run(two_types(), rows, cluster="2x4:v100,2x4:t4")
    assert ends(borrows) == [60, 61]
    rule = {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}}
    stays = run(two_types(**rule), rows, cluster="2x4:v100,2x4:t4")
    assert ends(stays)[1] > 61


def test_a_job_borrows_if_it_does_in_any_group_of_resources() -> None:
    cores = quotas("cpu", host="8")
    text = site(
        flavor("host"),
        queue("a", resourceGroups=quotas(any="0") + cores),
        queue("b", resourceGroups=quotas(any="8") + cores),
    )
    frame = pd.DataFrame({"job_id": ["first", "second"], "user": ["a", "b"], "cpus": [1.0, 1.0]})
    trace = Trace.of(frame.assign(submit_time_s=0.0, num_gpus=8, duration_s=10.0))
    policy = Kueue(config=text, tenant="user")
    # Queue a borrows 8 GPUs but no cores, b owns all that it asks for: b goes first.
    assert starts(Simulator(trace, Cluster.parse("2x4:v100"), policy).run()) == [10, 0]


# -- fair sharing
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fair", "weight", "of_a"), [("off", "1", 8), ("on", "1", 4), ("on", "3", 6)]
)
def test_the_queue_that_borrows_least_goes_first(fair: str, weight: str, of_a: int) -> None:
    heavy = {"fairSharing": {"weight": weight}}
    text = site(queue("a", gpus="0", **heavy), queue("b", gpus="0"), queue("c", gpus="8"))
    rows: list[Row] = [
        *[("c", 0, 1, 10 + at) for at in range(8)],  # one GPU comes free each second
        *[("a", 1, 1, 50)] * 8,
        *[("b", 2, 1, 50)] * 8,
    ]
    result = run(text, rows, fair_sharing=fair)
    assert sum(start < 20 for start in starts(result)[8:16]) == of_a
    assert sum(start < 20 for start in starts(result)[16:]) == 8 - of_a


def test_the_largest_borrower_is_displaced_until_shares_are_equal() -> None:
    rules = {"reclaimWithinCohort": "Any"}
    text = site(
        queue("a", gpus="0", preemption=rules),
        queue("b", gpus="0", preemption=rules),
        queue("c", gpus="8"),
    )
    rows: list[Row] = [*[("a", 0, 1, 100)] * 8, *[("b", 10, 1, 100)] * 8]
    result = run(text, rows, fair_sharing="on")
    assert list(result.jobs["preemptions"]) == [0] * 4 + [1] * 4 + [0] * 8
    assert starts(result)[8:12] == [10] * 4


# -- places
# --------------------------------------------------------------------------------------------------


def test_quota_without_a_place_is_held() -> None:
    text = site(queue("a", gpus="16"), queue("b", gpus="4"))
    rows: list[Row] = [("a", 0, 8, 100), ("a", 1, 8, 10), ("a", 2, 4, 10), ("b", 3, 4, 10)]
    result = run(text, rows)
    assert starts(result) == [0, 100, 110, 110]
    assert any("20 GPUs in all, its nodes have 8." in line for line in result.remarks)
    assert any("admitted without a place" in line for line in result.remarks)


def test_cores_and_memory_count_where_they_are_covered() -> None:
    frame = pd.DataFrame(
        {
            "job_id": ["x", "y"],
            "submit_time_s": [0.0, 0.0],
            "num_gpus": [1, 1],
            "duration_s": [10.0, 10.0],
            "cpus": [3.0, 2.0],
        }
    )
    text = site(queue("a", gpus="8"), queue("b")).replace("cohort: all", "cohort: ''")
    cores = quotas("cpu", any="4")[0]["flavors"][0]["resources"][0]
    groups = quotas(any="8")
    groups[0]["coveredResources"].append("cpu")
    groups[0]["flavors"][0]["resources"].append(cores)
    covered = site(queue("a", resourceGroups=groups))
    for given, expected in ((text, [0, 0]), (covered, [0, 10])):
        policy = Kueue(config=given, tenant="user")
        trace = Trace.of(frame.assign(user="a"))
        result = Simulator(trace, Cluster.parse("2x4:v100"), policy).run()
        assert starts(result) == expected
        told = [line.split(" requested ")[0] for line in result.remarks if "requested cpu" in line]
        assert told == (["2 jobs"] if given == text else [])


# -- tenants
# --------------------------------------------------------------------------------------------------


def test_jobs_without_a_queue_are_refused_and_said() -> None:
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": "team"},
        "spec": {"clusterQueue": "a"},
    }
    closed = {
        **local,
        "metadata": {"name": "closed"},
        "spec": {"clusterQueue": "a", "stopPolicy": "HoldAndDrain"},
    }
    text = site(local, closed, queue("a", gpus="8"), queue("held", gpus="0", stopPolicy="Hold"))
    names = ("team", "main", "team/main", "a", "x", "held", "closed")
    rows: list[Row] = [(name, 0, 1, 10) for name in names]
    result = run(text, rows)
    assert list(result.jobs["outcome"]) == ["completed"] * 4 + ["refused"] * 3
    said = " ".join(result.remarks)
    assert "'x'" in said
    assert "held is stopped" in said
    assert "their local queue is stopped" in said


def test_a_class_of_priority_counts_for_jobs_that_name_it() -> None:
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 5,
    }
    frame = pd.DataFrame(
        {
            "job_id": list("xyz"),
            "submit_time_s": [0.0, 1.0, 2.0],
            "num_gpus": [8, 8, 8],
            "duration_s": [10.0, 10.0, 10.0],
            "vc": "a",
            "priority": [0.0, 4.0, 0.0],
            "qos": [None, None, "urgent"],
        }
    )
    policy = Kueue(config=site(urgent, queue("a", gpus="8")))
    result = Simulator(Trace.of(frame), Cluster.parse("1x8:v100"), policy).run()
    assert starts(result) == [0, 20, 10]


def test_quotas_above_the_cluster_are_said_with_both_numbers() -> None:
    groups = quotas(any="20")
    groups[0]["coveredResources"] += ["cpu", "memory"]
    groups[0]["flavors"][0]["resources"] += [
        {"name": "cpu", "nominalQuota": "64500m"},
        {"name": "memory", "nominalQuota": "100Gi"},
    ]
    result = run(
        site(queue("a", resourceGroups=groups)), [("a", 0, 1, 10)], cluster="2x4:v100/32c/64g"
    )
    said = " ".join(result.remarks)
    assert "20 GPUs in all, its nodes have 8." in said
    assert "64.5 cores in all, its nodes have 64." in said
    assert "GB" not in said


def test_without_a_configuration_tenants_own_equal_parts() -> None:
    rows: list[Row] = [("a", 0, 5, 100), ("b", 10, 4, 10), ("b", 10, 3, 10)]
    result = run("", rows)
    # b takes its half back; a's job needs more than its half and waits for both.
    assert list(result.jobs["preemptions"]) == [1, 0, 0]
    assert "each virtual cluster of the trace, 2 in all" in result.remarks[0]


# -- properties
# --------------------------------------------------------------------------------------------------


def drawn(rng: random.Random) -> KueueConfig:
    """A random tree of cohorts and queues over two flavors."""
    flavors = ("f", "g")

    def groups(most: int) -> tuple[ResourceGroup, ...]:
        made = []
        for name in flavors:
            nominal = Fraction(rng.randint(0, most))
            borrowing = Fraction(rng.randint(0, 6)) if rng.random() < 0.4 else None
            lending = Fraction(rng.randint(0, int(nominal))) if rng.random() < 0.4 else None
            made.append(FlavorQuotas(name, {"gpu": FlavorQuota(nominal, borrowing, lending)}))
        return (ResourceGroup(("gpu",), tuple(made)),)

    names = ["root", "x", "y", "z"][: rng.randint(1, 4)]
    cohorts = [
        Cohort(
            name,
            rng.choice(["", *names[:at]]) if at else "",
            groups(6) if rng.random() < 0.6 else (),
            Fraction(rng.choice([0, 1, 1, 2])),
        )
        for at, name in enumerate(names)
    ]
    reclaim = ["Never", "LowerPriority", "Any"]
    queues = []
    for at in range(rng.randint(1, 5)):
        takes = rng.choice(reclaim)
        queues.append(
            ClusterQueue(
                f"q{at}",
                rng.choice(["", *names]),
                groups(6),
                rng.choice(["StrictFIFO", "BestEffortFIFO"]),
                Preemption(
                    rng.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
                    takes,
                    rng.choice(["Never", "LowerPriority"]) if takes != "Never" else "Never",
                    rng.choice([None, 1]),
                ),
                Fungibility(
                    rng.choice(["Borrow", "TryNextFlavor"]),
                    rng.choice(["Preempt", "TryNextFlavor"]),
                    rng.choice(["BorrowingOverPreemption", "PreemptionOverBorrowing"]),
                ),
                Fraction(rng.choice([0, 1, 1, 3])),
            )
        )
    return KueueConfig(tuple(queues), tuple(cohorts), flavors=tuple(map(ResourceFlavor, flavors)))


def check(scheduler: Scheduler) -> None:
    """Recount all usage, and hold it against the limits."""
    tree = scheduler.tree
    nodes: list[QuotaNode] = [*tree.queues.values(), *tree.cohorts.values()]
    kept = {id(node): list(node.used) for node in nodes}
    for node in nodes:
        node.used = [0] * len(tree.cells)
    for one in scheduler.queues.values():
        for workload in one.admitted.values():
            one.node.add(workload.usage)
    for node in nodes:
        assert node.used == kept[id(node)]
        for cell, used in enumerate(node.used):
            limit = node.borrowing[cell]
            if node.parent is None:
                assert used <= node.subtree[cell], f"{node.name} holds more than its subtree"
            elif limit is not None:
                assert used <= node.subtree[cell] + limit, f"{node.name} borrows too much"
            assert used <= max(node.potential(cell), 0)


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_no_queue_and_no_cohort_ever_holds_too_much(seed: int, fair: bool) -> None:
    rng = random.Random(seed)
    config = drawn(rng)
    scheduler = Scheduler(config, fair=fair)
    alive: dict[int, QueuedWorkload] = {}
    stopped = 0
    for at in range(120):
        scheduler.begin(float(at // 2))
        if alive and rng.random() < 0.4:
            scheduler.withdraw(alive.pop(rng.choice(sorted(alive))))
        else:
            queue = scheduler.queues[f"q{rng.randrange(len(config.queues))}"]
            one = QueuedWorkload(
                at,
                queue,
                rng.randint(0, 2),
                float(at // 2),
                (("gpu", rng.randint(1, 6)),),
                frozenset(rng.choice([["f"], ["g"], ["f", "g"]])),
                rng.random() < 0.9,
            )
            if scheduler.can_ever(one):
                alive[at] = one
                scheduler.submit(one)
        for workload, admitted in scheduler.run():
            stopped += not admitted
            assert workload.is_preemptible or admitted
        check(scheduler)
        # An event that changes nothing changes nothing.
        assert scheduler.run() == []
    for workload in list(alive.values()):
        scheduler.withdraw(workload)
    check(scheduler)
    assert all(not any(queue.node.used) for queue in scheduler.queues.values())


def test_some_of_the_random_sites_preempt() -> None:
    """So that the property above is no property of sites in which nothing happens."""
    count = 0
    for seed in range(10):
        rng = random.Random(seed)
        scheduler = Scheduler(drawn(rng), fair=False)
        for at in range(40):
            scheduler.begin(float(at))
            queue = list(scheduler.queues.values())[at % len(scheduler.queues)]
            one = QueuedWorkload(
                at, queue, at % 3, float(at), (("gpu", 1 + at % 4),), frozenset("fg")
            )
            if scheduler.can_ever(one):
                scheduler.submit(one)
            count += sum(not admitted for _, admitted in scheduler.run())
    assert count > 20


def test_what_made_way_for_a_job_is_not_taken_by_another() -> None:
    """The first job of b cannot fit, the second takes b's quota back: no job of c may slip in."""
    take_back = {"reclaimWithinCohort": "Any"}
    text = site(
        queue("a", gpus="0"), queue("b", gpus="4", preemption=take_back), queue("c", gpus="4")
    )
    rows: list[Row] = [
        ("c", 0, 2, 1000),
        *[("a", 0, 1, 500)] * 6,
        *[("a", 1, 1, 500)] * 6,
        ("b", 10, 6, 10),
        ("b", 11, 1, 10),
    ]
    result = run(text, rows)
    assert starts(result)[-1] == 11
    assert result.jobs["preemptions"].sum() == 1
