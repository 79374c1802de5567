"""KAI's shares against its own table, and its cycle worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf
from typing import Any

import pandas as pd
import pytest
import yaml

from allocators import make
from allocators.quotas import QuotaRequest, fair_shares
from allocators.sites.kai.policy import _Cycle
from allocators.sites.kai.queues import QueueSpec, ResourceQuota, read_queues
from allocators.sites.kai.tree import JobOrder, QueueTree, Work
from allocators.sites.kai.usage import UsageWindow
from sim.cluster import Cluster
from sim.contract import ParameterError, Spec
from sim.engine.simulator import Conditions, Simulator
from sim.engine.view import JobColumns
from sim.overheads import Overheads
from sim.result import RunResult
from sim.trace import Trace
from tests.counting import count_steps
from tests.shared import shared

# -- shares
# --------------------------------------------------------------------------------------------------


def test_shares_are_those_of_the_published_table() -> None:
    cases = yaml.safe_load(shared("data/schedulers/golden/kai_fair_share.yaml").read_text())
    assert len(cases) == 12
    for case in cases:
        asks = [QuotaRequest(*values) for values in case["queues"].values()]
        shares = fair_shares(case["total"], asks)
        assert dict(zip(case["queues"], shares, strict=True)) == case["share"], case["name"]
        assert max(0, case["total"] - sum(shares)) == case["left"], case["name"]


def test_shares_sum_to_what_is_there_or_asked_for() -> None:
    rng = random.Random(17)
    for _ in range(500):
        asks = [
            QuotaRequest(
                rng.choice([0, 1, 2, 3.5]),
                rng.choice([1, 2, 0.3]),
                rng.choice([0, 1, 2.5, 7, 20]),
                rng.choice([inf, inf, 4, 1.5]),
                rng.randrange(2),
            )
            for _ in range(rng.randrange(1, 7))
        ]
        total = rng.choice([20, 24, 31.5])
        shares = fair_shares(total, asks)
        case = (total, asks, shares)
        if sum([ask.deserved for ask in asks]) <= total:
            assert sum(shares) == pytest.approx(min(total, sum(ask.capped for ask in asks))), case
        for ask, share in zip(asks, shares, strict=True):
            assert min(ask.deserved, ask.capped) - 1e-9 <= share <= ask.capped + 1e-9, case


def test_past_usage_takes_from_a_part() -> None:
    even = [QuotaRequest(0, 1, 10), QuotaRequest(0, 1, 10)]
    assert fair_shares(10, even, k=1) == [5, 5]
    # Weights 0.5 + (0.5 - 0.5) = 0.5 against 0.5 + (0.5 - 0) = 1.
    assert fair_shares(9, [even[0]._replace(usage=0.5), even[1]], k=1) == [3, 6]
    # 0.5 + 2 x (0.5 - 1) is below 0: nothing.
    assert fair_shares(9, [even[0]._replace(usage=1.0), even[1]], k=2) == [0, 9]


def test_what_is_held_counts_less_with_age_and_not_before_the_window() -> None:
    plain = UsageWindow(0, window_s=100, half_life_s=inf)
    plain.level = 4
    assert plain.integral(50) == 200
    plain.level = 0
    assert plain.integral(100) == 200
    assert plain.integral(130) == pytest.approx(80)  # 20 s of it are left
    assert plain.integral(160) == 0
    halved = UsageWindow(0, window_s=1e9, half_life_s=10)
    halved.level = 1
    whole = halved.integral(20)
    halved.level = 0
    assert halved.integral(30) == pytest.approx(whole / 2)


# -- what sites write
# --------------------------------------------------------------------------------------------------

QUEUES = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: "no", labels: {team: x}}
spec:
  parentQueue: all
  priority: 200
  reclaimMinRuntime: 1h30m
  resources:
    gpu: {quota: 4, limit: -1, overQuotaWeight: 2}
    cpu: {quota: "1k", limit: 2000}
  mystery: 1
---
apiVersion: v1
kind: List
items:
- apiVersion: scheduling.run.ai/v2
  kind: Queue
  metadata: {name: all}
  spec:
    resources: {gpu: {quota: -1}}
"""


def test_queues_are_read() -> None:
    queues, unread = read_queues(QUEUES)
    assert queues == (
        QueueSpec("all", quotas=(ResourceQuota(inf, 1, inf), ResourceQuota(), ResourceQuota())),
        QueueSpec(
            "no",
            "all",
            (ResourceQuota(4, 2, inf), ResourceQuota(1000, 1, 2000), ResourceQuota()),
            200,
            5400.0,
        ),
    )
    assert unread == ("document 1 (Queue no): spec.mystery",)


def queue(name: str, parent: str = "", **spec: Any) -> dict[str, Any]:
    about = {"parentQueue": parent} if parent else {}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {**about, **spec},
    }


def gpus(quota: float, weight: float = 1, limit: float = -1) -> dict[str, Any]:
    return {"gpu": {"quota": quota, "overQuotaWeight": weight, "limit": limit}}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([queue("a", "b"), queue("b", "a")], "a under b under a"),
        ([queue("a", "x")], "parent x is not defined"),
        ([queue("a"), queue("a")], "document 2 .Queue a.: a queue of this name came before"),
        ([queue("a", resources=gpus(-2))], "document 1 .Queue a.: spec.resources.gpu.quota is bel"),
        ([queue("a", reclaimMinRuntime="soon")], "spec.reclaimMinRuntime is 'soon'"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}], "There is no Queue"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(objects: list[Any], message: str) -> None:
    with pytest.raises(ParameterError, match=f"kai: queues: .*{message}"):
        make(Spec.of("kai", queues=yaml.safe_dump_all(objects)))


# -- schedules by hand
# --------------------------------------------------------------------------------------------------


def run(
    rows: list[tuple[float, int, float, str, float]],
    cluster: str,
    *objects: dict[str, Any],
    overheads: Overheads | None = None,
    columns: dict[str, float] | None = None,
    **params: Any,
) -> tuple[RunResult, tuple[str, ...]]:
    """Run jobs under kai and return the result and its remarks.

    Rows are submission, GPUs, run time, queue, priority, in order of submission; `columns` are
    equal for all jobs.
    """
    frame = pd.DataFrame(
        rows, columns=["submit_time_s", "num_gpus", "duration_s", "vc", "priority"]
    ).assign(**columns or {})
    frame.insert(0, "job_id", [f"j{at:03}" for at in range(len(frame))])
    spec = Spec.of("kai", queues=yaml.safe_dump_all(objects) if objects else "", **params)
    conditions = Conditions(overheads=overheads) if overheads else Conditions()
    result = Simulator(Trace.of(frame), Cluster.parse(cluster), make(spec), conditions).run()
    return result, result.remarks


def stints(result: RunResult) -> list[tuple[int, float, float]]:
    frame = result.segments.sort_values(["job", "t0"])
    return list(zip(frame["job"], frame["t0"], frame["t1"], strict=True))


A, B = queue("a", resources=gpus(4)), queue("b", resources=gpus(4))


def test_what_was_lent_is_taken_back() -> None:
    # Queue a has all 8 GPUs; at 10 s b asks for its quota. The newest job of a is stopped, and
    # resumes when the other one ends.
    rows = [(0, 4, 100, "a", 0), (0, 4, 100, "a", 0), (10, 4, 100, "b", 0)]
    result, remarks = run(rows, "1x8:v100", A, B)
    assert stints(result) == [(0, 0, 100), (1, 0, 10), (1, 100, 190), (2, 10, 110)]
    assert remarks == ("kai stopped 1 job for another queue.",)


def test_a_job_is_protected_for_its_first_minutes() -> None:
    rows = [(0, 4, 100, "a", 0), (0, 4, 100, "a", 0), (10, 4, 100, "b", 0)]
    protected = queue("a", resources=gpus(4), reclaimMinRuntime="1m")
    result, _ = run(rows, "1x8:v100", protected, B)
    assert stints(result) == [(0, 0, 100), (1, 0, 60), (1, 100, 140), (2, 60, 160)]


def test_jobs_of_high_priority_stay_in_the_quota_and_are_never_stopped() -> None:
    # Both jobs of a are of the kind that is never stopped; the second one is beyond the quota.
    rows = [(0, 4, 100, "a", 100), (0, 4, 100, "a", 100), (10, 4, 50, "b", 0)]
    result, _ = run(rows, "1x8:v100", A, B)
    assert stints(result) == [(0, 0, 100), (1, 100, 200), (2, 10, 60)]


def test_what_could_never_start_is_refused() -> None:
    # Beyond the limit; never stopped and beyond the quota; never stopped and without a queue, which
    # is a quota of 0. Of what may be stopped only the limit counts.
    rows = [
        (0, 7, 10, "a", 0),
        (0, 5, 10, "a", 100),
        (0, 1, 10, "c", 100),
        (0, 6, 10, "a", 0),
        (0, 4, 10, "a", 100),
    ]
    result, remarks = run(rows, "1x8:v100", queue("a", resources=gpus(4, limit=6)), B)
    outcomes = result.jobs["outcome"].tolist()
    assert outcomes == ["refused", "refused", "refused", "completed", "completed"]
    assert any(told.startswith("3 jobs refused: larger than the limit") for told in remarks)


def test_no_queue_goes_beyond_its_limit_nor_that_of_its_parent() -> None:
    top = queue("top", resources=gpus(4, limit=6))
    a, b = queue("a", "top", resources=gpus(2)), queue("b", "top", resources=gpus(2, limit=2))
    rows = [(0, 2, 100, name, 0.0) for name in "bbaaa"]
    result, _ = run(rows, "1x16:v100", top, a, b)
    # b: one at a time. a and b together 6 of 16 GPUs.
    assert stints(result) == [
        (0, 0, 100),
        (1, 100, 200),
        (2, 0, 100),
        (3, 0, 100),
        (4, 100, 200),
    ]


def test_a_higher_priority_stops_a_lower_one_of_its_queue() -> None:
    rows = [(0, 8, 100, "a", 1), (20, 8, 30, "a", 2)]
    one = queue("a", resources=gpus(8))
    result, remarks = run(rows, "1x8:v100", one)
    assert stints(result) == [(0, 0, 20), (0, 50, 130), (1, 20, 50)]
    assert remarks == ()
    late = queue("a", resources=gpus(8), preemptMinRuntime="30s")
    result, _ = run(rows, "1x8:v100", late)
    assert stints(result) == [(0, 0, 30), (0, 60, 130), (1, 30, 60)]


def test_running_jobs_are_moved_together() -> None:
    # j0 and j1 fill a node, j2 and j3 another; j1 and j3 end at 10 s and leave half of each. The
    # gang of 4 that must be on one node waits, until one of the others is moved.
    rows = [(0, 2, 100, "a", 0), (0, 2, 10, "a", 0), (0, 2, 100, "a", 0), (0, 2, 10, "a", 0)]
    rows.append((20, 4, 10, "a", 0))
    one = queue("a", resources=gpus(8))
    params = {"placement": "consolidate"}
    result, _ = run(rows, "2x4:v100", one, **params)
    assert stints(result)[-1] == (4, 20, 30)
    assert list(result.jobs["preemptions"]) == [0, 0, 1, 0, 0]
    result, _ = run(rows, "2x4:v100", one, consolidate=False, **params)
    assert stints(result)[-1] == (4, 100, 110)


def test_priority_of_queues_comes_before_weight() -> None:
    # Neither has a quota: all 8 GPUs go to the queue of higher priority, job after job.
    low = queue("a", resources=gpus(0, 100))
    high = queue("b", priority=200, resources=gpus(0, 1))
    rows = [(0, 8, 10, "a", 0), (0, 8, 10, "b", 0), (0, 8, 10, "b", 0)]
    result, _ = run(rows, "1x8:v100", low, high)
    assert stints(result) == [(0, 20, 30), (1, 0, 10), (2, 10, 20)]


def test_a_quota_larger_than_the_cluster_counts_in_full_in_the_order() -> None:
    # One GPU; with its job a would hold 1 of 1, b 1 of 2. Capped at the cluster both would hold
    # 1 of 1, and a, named first, would start first.
    a, b = queue("a", resources=gpus(1, 0)), queue("b", resources=gpus(2, 0))
    result, _ = run([(0, 1, 10, "a", 0), (0, 1, 10, "b", 0)], "1x1:v100", a, b)
    assert stints(result) == [(0, 10, 20), (1, 0, 10)]


@pytest.mark.parametrize(
    ("cluster", "limited", "first"),
    [
        ("1x4:v100/8c/8g", ("gpu", "cpu", "memory"), 3),
        ("1x4:v100/8c/8g", ("gpu", "cpu"), 2),
        ("1x4:v100/8c", ("gpu", "cpu", "memory"), 2),
        ("1x4:v100", ("gpu", "cpu", "memory"), 2),
    ],
)
def test_a_queue_is_above_its_share_only_in_all_resources(
    cluster: str, limited: tuple[str, ...], first: int
) -> None:
    # At 10 s two GPUs become free. Queue a, of higher priority, has no share of what is limited
    # and holds half of the cluster. It goes behind b only if it exceeds its share of GPUs, cores
    # and memory; without a limit its share is all that it asks for.
    none, rest = (
        {kind: {"quota": 0, "overQuotaWeight": weight} for kind in limited} for weight in (0, 1)
    )
    a, b = (
        queue("a", priority=200, reclaimMinRuntime="1h", resources=none),
        queue("b", resources=rest),
    )
    rows = [(0, 2, 100, "a", 0), (0, 2, 10, "b", 0), (5, 2, 20, "a", 0), (5, 2, 20, "b", 0)]
    result, _ = run(rows, cluster, a, b, columns={"cpus": 4, "mem_gb": 4})
    assert {job: t0 for job, t0, _ in stints(result)} == {0: 0, 1: 0, first: 10, 5 - first: 30}


@pytest.mark.parametrize(
    ("held", "other_held", "expected"),
    [(4.0, 5.0, False), (4.0, 6.0, False), (4.0, 7.0, True), (2.0, 0.0, True)],
)
def test_a_reclaim_must_leave_the_ratio_of_its_queue_below_the_other(
    held: float, other_held: float, expected: bool
) -> None:
    # Both have a share of 4. With the job of 2 GPUs a holds 6 / 4 = 1.5 of its share, and b 1.25,
    # 1.5 or 1.75 of its own. With 4 / 4 a is not above its share.
    tree = QueueTree((QueueSpec("a"), QueueSpec("b")), (0,))
    a, b = tree.leaves()
    a.fair, b.fair, a.allocated, b.allocated = [4.0], [4.0], [held], [other_held]
    job, victim = (Work(leaf, (2.0,), 0.0, 2, False) for leaf in (a, b))
    assert tree.is_balanced(job, [victim]) == expected


def test_jobs_without_a_queue_are_in_one_without_quota() -> None:
    rows = [(0, 4, 100, "x", 0), (0, 4, 100, "x", 0), (10, 4, 100, "a", 0)]
    result, remarks = run(rows, "1x8:v100", A, B)
    assert remarks[0] == (
        "No queue for x of column vc: their jobs are in without-queue, whose quota is 0."
    )
    # What nobody else asks for is theirs, until somebody does.
    assert stints(result) == [(0, 0, 100), (1, 0, 10), (1, 100, 190), (2, 10, 110)]


def test_without_queues_the_tenants_have_equal_parts() -> None:
    rows = [(0, 2, 100, "x", 0), (0, 2, 100, "y", 0), (10, 2, 10, "x", 0)]
    result, remarks = run(rows, "1x5:v100")
    assert remarks == (
        "kai was given no queues: 2 with a quota of 2 GPUs each are assumed, one for each virtual"
        " cluster of the trace.",
    )
    assert stints(result) == [(0, 0, 100), (1, 0, 100), (2, 100, 110)]


def test_quotas_above_the_cluster_are_said() -> None:
    rows = [(0, 2, 100, "a", 0)]
    _, remarks = run(rows, "1x4:v100", A, B)
    assert remarks == ("The quotas of gpu add up to 8, the cluster has 4.",)


def test_past_usage_moves_the_shares() -> None:
    # Without a memory a and b alternate from 100 s on; with one, b catches up first.
    rows = [(0, 4, 100, "a", 0)] * 3 + [(50, 4, 100, "b", 0)] * 3
    a, b = queue("a", resources=gpus(0)), queue("b", resources=gpus(0))
    plain, _ = run(rows, "1x4:v100", a, b, consolidate=False)
    aware, _ = run(rows, "1x4:v100", a, b, usage=True, usage_window_h=1.0)
    assert list(plain.jobs["finish_s"]) != list(aware.jobs["finish_s"])
    assert aware.jobs["finish_s"][3] <= plain.jobs["finish_s"][3]


def test_no_limit_is_ever_exceeded() -> None:
    rng = random.Random(17)
    rows = sorted(
        (
            float(rng.randrange(0, 3000, 10)),
            rng.choice([1, 1, 2, 4]),
            rng.randrange(10, 900),
            name,
            p,
        )
        for name, p in ((rng.choice("abc"), rng.choice([50.0, 75.0, 100.0])) for _ in range(80))
    )
    queues = [
        queue("top", resources=gpus(6, limit=9)),
        queue("a", "top", resources=gpus(2, limit=5)),
        queue("b", "top", resources=gpus(4)),
        queue("c", resources=gpus(6, 3, limit=8)),
    ]
    result, _ = run(rows, "3x4:v100", *queues)  # type: ignore[arg-type]
    assert (result.jobs["outcome"] == "completed").sum() > 60
    vc = [row[3] for row in rows]
    frame = result.segments.assign(queue=[vc[job] for job in result.segments["job"]])
    for t in sorted(frame["t0"].unique()):
        now = frame[(frame["t0"] <= t) & (frame["t1"] > t)].groupby("queue")["gpus"].sum()
        held = {name: int(now.get(name, 0)) for name in "abc"}
        assert held["a"] <= 5, t
        assert held["a"] + held["b"] <= 9, t
        assert held["c"] <= 8, t


def test_a_queue_inherits_each_of_the_two_protected_times() -> None:
    rows = [(0, 8, 100, "a", 1), (20, 8, 30, "a", 2)]
    below = queue("a", "top", resources=gpus(8))
    for key, stopped_s in (("preemptMinRuntime", 30), ("reclaimMinRuntime", 20)):
        top = queue("top", resources=gpus(8), **{key: "30s"})
        result, _ = run(rows, "1x8:v100", top, below)
        assert stints(result)[0] == (0, 0, stopped_s)


def test_jobs_stopped_for_a_place_stay_stopped_where_the_limit_demands_it() -> None:
    # The last job needs the place of both in the limit of 6; nodes would have room for one beside.
    rows = [(0, 4, 100, "a", 1), (0, 2, 100, "a", 1), (10, 6, 20, "a", 2)]
    result, _ = run(rows, "1x16:v100", queue("a", resources=gpus(6, limit=6)))
    assert stints(result) == [(0, 0, 10), (0, 30, 120), (1, 0, 10), (1, 30, 120), (2, 10, 30)]


def test_a_cycle_comes_when_a_protected_time_ends_and_not_before() -> None:
    # At 60 s the newest job of a is no longer protected; 1 s after a job is stopped comes a cycle.
    rows = [(0, 4, 100, "a", 0), (0, 4, 100, "a", 0), (10, 4, 100, "b", 0)]
    result, _ = run(rows, "1x8:v100", queue("a", resources=gpus(4), reclaimMinRuntime="1m"), B)
    assert list(result.decisions["t"]) == [0, 10, 60, 61, 100, 140]
    # A job without protection brings no cycle just after its start.
    waits = [(0, 8, 100, "a", 0), (0, 8, 10, "a", 0)]
    result, _ = run(waits, "1x8:v100", queue("a", resources=gpus(8)))
    assert list(result.decisions["t"]) == [0, 100]


def test_actions_that_cannot_start_a_job_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only `allocate` may start a job of one queue with equal priorities on a full cluster.
    actions: list[str] = []
    for action in ("allocate", "consolidate", "reclaim", "preempt"):
        monkeypatch.setattr(_Cycle, action, _recorded(getattr(_Cycle, action), action, actions))
    monkeypatch.setattr(JobOrder, "__init__", _recorded(JobOrder.__init__, "order", actions))
    one = queue("a", resources=gpus(8))
    run([(0, 8, 100, "a", 1), (10, 4, 10, "a", 1), (20, 2, 10, "a", 1)], "1x8:v100", one)
    # At 0, 10 and 20 s, and at 100 s, where both start; at the ends no job waits.
    assert actions == ["allocate", "order", "consolidate", "reclaim", "preempt"] * 4
    actions.clear()
    run([(0, 8, 100, "a", 1), (10, 4, 10, "a", 2)], "1x8:v100", one)
    # At 10 s the second job has a higher priority: `preempt` orders the jobs as well.
    assert actions[5:10] == ["allocate", "order", "consolidate", "reclaim", "preempt"]
    assert actions[10] == "order"


def _recorded(method: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    """Return a method that also appends its name to the calls."""

    def record(*arguments: Any) -> Any:
        calls.append(name)
        return method(*arguments)

    return record


def test_the_cost_of_closing_groups_grows_as_their_number() -> None:
    def steps(demands: int) -> int:
        tree = QueueTree([QueueSpec("a")], (0,))
        works = {job: Work(tree.nodes["a"], (1.0,), 0.0, job, False) for job in range(demands)}
        for job, work in works.items():
            tree.enqueue(job, work)
        order = JobOrder(tree, works)
        visited = []

        def close_all() -> None:
            while (lane := order.next_lane()) is not None:
                visited.append(lane.demand)
                order.close([lane])

        count = count_steps(close_all)
        assert visited == list(range(demands))
        return count

    assert steps(200) < 2.1 * steps(100)


def test_victims_are_sorted_once_per_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    # At 10 s two groups of a higher priority wait, but every running job is in its first minute.
    asked: list[int] = []
    value_of = JobColumns.one

    def one(columns: JobColumns, column: str, job: int) -> float:
        asked.extend([job] if column == "preemptible" else [])
        return value_of(columns, column, job)

    monkeypatch.setattr(JobColumns, "one", one)
    rows = [(0, 4, 50, "a", 0), (0, 4, 50, "a", 0), (10, 4, 10, "a", 1), (10, 2, 10, "a", 1)]
    result, _ = run(rows, "1x8:v100", queue("a", resources=gpus(8), preemptMinRuntime="1m"))
    assert stints(result) == [(0, 0, 50), (1, 0, 50), (2, 50, 60), (3, 50, 60)]
    assert sorted(asked) == [0, 1]
