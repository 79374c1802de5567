"""Who gives way to whom, and when, by hand."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest

from allocators import make
from allocators.sites.slurm.accounts import read_associations
from allocators.sites.slurm.controller import Controller
from allocators.sites.slurm.fairshare import FairShare
from allocators.sites.slurm.node_selection import FreeNodes
from allocators.sites.slurm.preempt import CANCEL, REQUEUE, PreemptionRules
from allocators.sites.slurm.rules import Rules, SlurmPartition, Timers
from allocators.sites.slurm.site import SlurmSite
from allocators.sites.slurm.state import SlurmJob
from sim.cluster import Cluster, NodeGroup
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.overheads import Overheads
from tests.allocators.sites.test_slurm_site import conf, jobs
from tests.properties.invariants import check

WHOLE = Cluster((NodeGroup(4, 0, "", 4.0, 4.0, hosts="n[1-4]"),))
LOW, HIGH = 0, 1
PARTS = [SlurmPartition(15, 1), SlurmPartition(15, 2)]


def job(number: int, cores: int = 4, **more: Any) -> SlurmJob:
    values: dict[str, Any] = {"partition": LOW, "since_s": 0.0, "limit_s": 600.0, "allowed": (15,)}
    return SlurmJob(number, "u", "", tasks=cores, **{**values, **more})


def by_tier(**more: Any) -> PreemptionRules:
    values: dict[str, Any] = {"graces_s": (0.0, 0.0), "modes": ("", "")}
    values |= {
        "exempt_s": 0.0,
        "youngest_first": False,
        "site": SlurmSite(),
        "mode": REQUEUE,
    } | more
    return PreemptionRules("tier", **values)


def machines(count: int = 4, cores: float = 4.0) -> FreeNodes:
    return FreeNodes([0] * count, [cores] * count, [inf] * count)


def running(
    nodes: FreeNodes, *placed: tuple[SlurmJob, tuple[tuple[int, int], ...]]
) -> list[SlurmJob]:
    for one, held in placed:
        one.hold(held)
        one.start_s = 0.0
        nodes.take(one, held)
    return [one for one, _ in placed]


def test_victims_go_by_tier_then_by_nodes_then_by_number() -> None:
    lists = by_tier(exempt_s=100.0)
    wide, small, new = job(0, 8), job(1), job(2)
    stays, tied = job(3, stays=True), job(4, requeue=False)
    started = ((wide, 10.0), (small, 30.0), (new, 950.0), (stays, 0.0), (tied, 20.0))
    for at, (one, start_s) in enumerate(started):
        one.start_s = start_s
        one.hold(((0, 4), (1, 4)) if one is wide else ((at, 4),))
    asks = job(9, partition=HIGH)
    found = lists.victims(1000.0, asks, [wide, small, new, stays, tied], PARTS)
    assert [(one.job.id, one.mode) for one in found] == [(1, REQUEUE), (4, CANCEL), (0, REQUEUE)]
    youngest = by_tier(exempt_s=100.0, youngest_first=True)
    found = youngest.victims(1000.0, asks, [wide, small, new, stays, tied], PARTS)
    assert [one.job.id for one in found] == [1, 4, 0]
    assert lists.victims(1000.0, job(9), [wide, small], PARTS) == []
    new.start_s = 1000.0
    assert by_tier().victims(1000.0, asks, [new], PARTS) == []


def test_within_a_quality_the_higher_priority_displaces() -> None:
    site = SlurmSite(
        associations=read_associations("add qos q PreemptMode=REQUEUE,WITHIN GraceTime=20")
    )
    lists = PreemptionRules("qos", "OFF", 0.0, False, site, ("",), (0.0,))
    first = job(0, qos="q", priority=5)
    first.start_s = 0.0
    for priority, expected in ((6, [(0, REQUEUE, 20.0)]), (5, [])):
        asks = job(1, qos="q", priority=priority)
        found = lists.victims(10.0, asks, [first], PARTS)
        assert [(one.job.id, one.mode, one.grace_s) for one in found] == expected


@pytest.mark.parametrize(
    ("text", "grace_s"), [("20", 20.0), ("00:02:00", 120.0), ("-1", 0.0), ("", 0.0)]
)
def test_a_time_of_grace_is_in_seconds_and_can_be_taken_back(text: str, grace_s: float) -> None:
    made = read_associations("", f"Name|Priority|GraceTime\nnormal|0|{text}\n")
    assert made.qualities["normal"].grace_s == grace_s


def test_only_those_on_the_chosen_nodes_leave() -> None:
    # 0, 1 and 2 leave one after the other, until node 2 is free: nodes 0 and 1 are not used.
    nodes = machines(3)
    every = running(nodes, *[(job(at), ((at, 4),)) for at in range(3)])
    lists, asks = by_tier(), job(9, partition=HIGH, allowed=(0b100,))
    held, leave = lists.choose_victims(asks, 7, nodes, lists.victims(10.0, asks, every, PARTS))
    assert held == ((2, 4),)
    assert [one.job.id for one in leave] == [2]
    assert lists.choose_victims(job(8, 5, allowed=(0b100,)), 7, nodes, leave) == ((), [])


def test_the_last_one_needed_is_moved_forward_so_that_fewer_leave() -> None:
    # One node of 8 cores, held by jobs of 2, 2 and 4 cores: 4 cores are asked for. One after the
    # other: 0 and 1 make room. Moved forward, 1 does not make room alone; 1 and 0 do.
    def leave(sizes: list[int], asked: int, reorders: int, *, strict: bool = False) -> list[int]:
        nodes = machines(1, float(sum(sizes)))
        every = running(nodes, *[(job(at, size), ((0, size),)) for at, size in enumerate(sizes)])
        lists = by_tier(reorders=reorders, strict=strict)
        asks = job(9, asked, partition=HIGH)
        victims = lists.victims(10.0, asks, every, PARTS)
        return [one.job.id for one in lists.choose_victims(asks, 1, nodes, victims)[1]]

    assert leave([2, 2, 4], 4, 1) == [0, 1]
    # Sizes 1, 1 and 6, of which 6 are asked for: one by one all leave; the last moved forward is
    # enough alone. It is moved at the first success even with a count of 0, as Slurm counts.
    assert leave([1, 1, 6], 6, 0) == [2]
    # 1, 3, 2, 6 for 6 cores: 0, 1, 2 leave; then 2, 0, 1; then (count of 1) 1, 2, 0.
    assert leave([1, 3, 2, 6], 6, 0) == [2, 0, 1]
    assert leave([1, 3, 2, 6], 6, 1) == [1, 2, 0]


@pytest.mark.parametrize(("strict", "expected"), [(False, [2, 1]), (True, [2, 0, 1])])
def test_who_is_on_more_of_the_nodes_goes_before_unless_the_order_is_strict(
    strict: bool, expected: list[int]
) -> None:
    # Three cores on each of two nodes are asked for; 0, 1 and 2 leave. 2 is moved forward, and
    # then 1, which is on both nodes, makes room without 0.
    nodes = FreeNodes([0, 0], [5.0, 4.0], [inf, inf])
    placed = (job(0), ((0, 2),)), (job(1), ((0, 3), (1, 1))), (job(2), ((1, 3),))
    every = running(nodes, *placed)
    for one in every:
        one.start_s = 5.0 - one.id
    lists = by_tier(youngest_first=True, reorders=0, strict=strict)
    asks = job(9, 6, per_node=3, partition=HIGH)
    victims = lists.victims(10.0, asks, every, PARTS)
    assert [one.job.id for one in victims] == [0, 1, 2]
    held, leave = lists.choose_victims(asks, 3, nodes, victims)
    assert held == ((0, 3), (1, 3))
    assert [one.job.id for one in leave] == expected


def controller(nodes: FreeNodes, preemption: PreemptionRules, **rules: Any) -> Controller:
    return Controller(
        Rules(multifactor=False, **rules),
        [SlurmPartition(nodes.up, 1), SlurmPartition(nodes.up, 2)],
        nodes,
        FairShare((), inf, 1.0, tree=True),
        Timers(main_s=1e6),
        preemption=preemption,
    )


def test_the_backfill_displaces_too() -> None:
    # Two nodes. Job 1 (low) holds node 0, job 2 (high) node 1; job 3 (high) waits for both nodes,
    # which displacing job 1 does not give it. So the main pass stops there, and only the backfill
    # comes to job 4 (high), which ends before job 2 does and takes node 0 from job 1.
    made = controller(machines(2), by_tier(), defer=True)
    made.submit(0.0, job(1, limit_s=5000.0))
    made.submit(0.0, job(2, partition=HIGH, limit_s=3000.0))
    made.catch_up(3.0)
    assert {one.id for one in made.tick(3.0)} == {1, 2}
    made.submit(40.0, job(3, 8, partition=HIGH))
    made.submit(40.0, job(4, partition=HIGH, limit_s=1000.0))
    made.submit(40.0, job(5, partition=HIGH, limit_s=4000.0))  # would delay job 3
    started = []
    for now_s in (40.0, 43.0, 60.0, 61.0):
        started += [one.id for one in made.tick(now_s)]
    assert started == [4]
    assert [(one.job.id, one.mode) for one in made.preempted] == [(1, REQUEUE)]


def test_grace_lets_the_displaced_run_on_and_keeps_the_nodes() -> None:
    made = controller(machines(1), by_tier(graces_s=(50.0, 0.0)))
    made.submit(0.0, job(1, limit_s=5000.0))
    assert [one.id for one in made.tick(0.0)] == [1]
    made.submit(10.0, job(2, partition=HIGH))
    made.submit(10.0, job(3, 1, limit_s=1.0))
    assert made.tick(10.0) == []
    assert 1 in made.running
    assert made.preempted == []
    assert made.running[1].end_s == 60.0
    for now_s in (13.0, 30.0, 59.0):
        assert made.tick(now_s) == []
    made.forget(2)
    made.forget(3)
    # It leaves although whoever displaced it is gone.
    assert made.wake_s() == 60.0
    assert made.tick(60.0) == []
    assert [one.job.id for one in made.preempted] == [1]
    assert not made.running


def run(mode: str, part: str) -> Any:
    text = conf("PreemptType=preempt/partition_prio", f"PreemptMode={mode}", short="PriorityTier=2")
    text = text.replace("PartitionName=all ", f"PartitionName=all {part} ")
    trace = jobs({"duration_s": 500.0, "tasks": 16}, {"submit_time_s": 50.0, "partition": "short"})
    policy = make(Spec.of("slurm", conf=text, main_phase_s=0.0, bf_phase_s=0.0))
    return Simulator(trace, WHOLE, policy).run().jobs


def test_a_run_with_grace() -> None:
    at_once, later = run("CANCEL", ""), run("CANCEL", "GraceTime=120")
    assert 50 <= at_once["first_start_s"][1] <= 53
    assert 170 <= later["first_start_s"][1] <= 173
    assert later["held_s"][0] == pytest.approx(at_once["held_s"][0] + 120, abs=3)
    assert list(at_once["preemptions"]) == [1, 0]
    assert list(later["outcome"]) == ["failed", "completed"]
    requeued = run("REQUEUE", "GraceTime=120")
    assert list(requeued["outcome"]) == ["completed", "completed"]
    assert requeued["preemptions"][0] == 1


@pytest.mark.parametrize("order", [(LOW, HIGH), (HIGH, LOW)])
def test_a_job_that_is_taken_over_keeps_all_of_its_partitions(order: tuple[int, int]) -> None:
    nodes = machines(2)
    made = controller(nodes, by_tier())
    made.partitions = [SlurmPartition(1, 1), SlurmPartition(3, 2)]
    entries = tuple(job(1, partition=part) for part in order)
    # On node 1, which only the higher partition has, or on node 0, which both have.
    assert made.adopt(10.0, entries, ((1, 4),)).partition == HIGH
    assert nodes.cpus == [4.0, 0.0]
    made.end(20.0, 1)
    assert made.entries(entries[0]) == entries
    assert made.adopt(30.0, entries, ((0, 4),)).partition == order[0]


def test_slurm_takes_over_running_jobs_with_their_limits_and_resources() -> None:
    # Until 50 s fifo runs the first two jobs; then slurm: two jobs of ann at once, 4 licences.
    text = conf("AccountingStorageEnforce=limits,qos", "GresTypes=fpga")
    text = text.replace("CPUs=4 ", "CPUs=4 Gres=fpga:2 ")
    accounts = "add account phys\nadd user ann Account=phys MaxJobs=2"
    usual = {"account": "phys", "tasks": 2, "gres": "fpga:2", "duration_s": 200.0}
    trace = jobs(*[{**usual, "cpus": 2.0}] * 4, {**usual, "submit_time_s": 60.0})
    cluster = Cluster((NodeGroup(4, 0, "", 4.0, 4.0, hosts="n[1-4]", gres=(("fpga", 2),)),))
    inner = Spec.of("slurm", conf=text, accounts=accounts, main_phase_s=0.0, bf_phase_s=0.0)
    policy = make(Spec.of("switch", at_s=50.0, first=Spec("fifo"), then=inner))
    found = Simulator(trace, cluster, policy).run().jobs
    assert list(found["outcome"]) == ["completed"] * 5
    # fifo knows no limits: four jobs run. The fifth waits until fewer than two of them do.
    assert found["first_start_s"][4] >= sorted(found["finish_s"][:4])[2]


# -- suspension
# --------------------------------------------------------------------------------------------------


def gang(part: str = "", **conditions: Any) -> Any:
    """One node of 16 cores and 16 GB: a long job on 12 of them, a job of a higher tier on 8."""
    lines = ("PreemptType=preempt/partition_prio", "PreemptMode=SUSPEND,GANG")
    text = conf(*lines, short="PriorityTier=2").replace(
        "PartitionName=all ", f"{part}PartitionName=all "
    )
    text = text.replace("n[1-4]", "n1").replace("n[1-2]", "n1").replace("CPUs=4", "CPUs=16")
    usual = {"duration_s": 500.0, "time_limit_s": 600.0, "mem_per_cpu_gb": 0.5}
    trace = jobs(
        {**usual, "tasks": 12},
        {**usual, "tasks": 8, "partition": "short", "submit_time_s": 100.0, "duration_s": 200.0},
        {**usual, "tasks": 12, "submit_time_s": 120.0},
        {**usual, "tasks": 4, "submit_time_s": 130.0, "time_limit_s": 100.0, "duration_s": 50.0},
    )
    cluster = Cluster((NodeGroup(1, 0, "", 16.0, 16.0, hosts="n1"),))
    policy = make(Spec.of("slurm", conf=text, main_phase_s=0.0, bf_phase_s=0.0, limits="kill"))
    return Simulator(trace, cluster, policy, Conditions(**conditions)).run()


@pytest.mark.parametrize("on_preempt", ["checkpoint", "lose_all"])
def test_a_suspended_job_keeps_its_place_and_loses_nothing(on_preempt: str) -> None:
    costs = Overheads(restart_s=77.0, on_preempt=on_preempt)
    result = gang(overheads=costs)
    found = result.jobs
    first, short, second, small = found["first_start_s"]
    assert first <= 3
    # All but 4 cores are in use, so that the first job is suspended.
    assert 100 <= short <= 103
    # The cores of the suspended job stay its own: 8 + 12 leave nothing for job 3 of its tier,
    # although 8 cores are idle. It goes on as soon as the short one is over, without a pause.
    own = result.segments[result.segments["job"] == 0]
    assert own["t1"].iloc[0] == pytest.approx(short)
    assert own["t0"].iloc[1] == pytest.approx(short + 200)
    assert own["paused_s"].sum() == 0
    assert found["lost_work"][0] == 0
    assert found["finish_s"][0] == pytest.approx(first + 700)
    # At its limit, 600 s and 30 s of KillWait, it would be over at 630: suspension does not count.
    assert set(found["outcome"]) == {"completed"}
    assert short + 200 <= small <= short + 210
    assert second >= found["finish_s"][0]
    assert found["preemptions"].tolist() == [1, 0, 0, 0]


def test_a_suspended_job_whose_node_fails_queues_anew() -> None:
    result = gang(faults=Faults(outages="0:150:160"))
    assert set(result.jobs["outcome"]) == {"completed"}
    own = result.segments[result.segments["job"] == 0]
    # The job of the higher tier starts over before it.
    assert own["ended"].tolist() == ["preempted", "finished"]
    assert own["t0"].iloc[1] >= 160 + 200


@pytest.mark.parametrize("on_preempt", ["checkpoint", "lose_all"])
def test_a_suspended_job_whose_node_fails_loses_its_work(on_preempt: str) -> None:
    whole = gang().segments
    done_s = float((whole["t1"] - whole["t0"])[whole["job"] == 0].iloc[0])
    overheads = Overheads(restart_s=77.0, checkpoint_every_s=1e6, on_preempt=on_preempt)
    result = gang(faults=Faults(outages="0:150:160"), overheads=overheads)
    own = result.segments[result.segments["job"] == 0]
    assert result.jobs["lost_work"][0] == pytest.approx(done_s)
    assert own["paused_s"].iloc[1] == 77
    assert own["t1"].iloc[1] - own["t0"].iloc[1] == pytest.approx(77 + result.jobs["work"][0])


def test_memory_of_a_suspended_job_stays_taken() -> None:
    nodes = FreeNodes([0], [8.0], [10.0])
    made = controller(nodes, by_tier(mode="SUSPEND,GANG"))
    made.submit(0.0, job(1, 8, mem_gb=1.0))
    assert [one.id for one in made.tick(0.0)] == [1]
    made.submit(10.0, job(2, 3, partition=HIGH, mem_gb=1.0))  # 2 GB are left
    made.submit(10.0, job(3, 2, partition=HIGH, mem_gb=1.0))
    assert [one.id for one in made.tick(40.0)] == [3]
    assert list(made.suspended) == [1]
    assert nodes.mem_gb == [0.0]
    made.submit(41.0, job(4, 2, partition=HIGH))
    # The pass stops at job 2; the backfill comes to job 4.
    assert [one.id for one in made.tick(75.0)] == [4]
    made.end(80.0, 3)
    assert made.tick(80.0) == []
    assert list(made.suspended) == [1]  # 2 of its 8 cores are in use
    made.end(90.0, 4)
    assert made.tick(90.0) == []
    assert [one.id for one in made.resumed] == [1]
    # It was suspended for 50 s.
    assert (made.running[1].end_s, nodes.cpus) == (650.0, [0.0])


def test_usage_counts_the_time_between_two_suspensions_once() -> None:
    made = controller(machines(1, 8.0), by_tier(mode="SUSPEND,GANG"))
    low = job(1, 8, limit_s=1000.0)
    made.submit(0.0, low)
    made.tick(0.0)
    made.submit(40.0, job(2, 8, partition=HIGH))
    made.tick(40.0)
    assert (low.suspended_s, low.share.usage) == (40.0, 8 * 40)
    made.end(80.0, 2)
    made.tick(80.0)
    assert (low.booked_s, low.share.usage) == (80.0, 8 * 80)
    made.submit(100.0, job(3, 8, partition=HIGH))
    made.tick(100.0)
    assert (low.suspended_s, low.share.usage) == (100.0, 8 * 100)


def test_without_gang_nobody_is_suspended() -> None:
    nodes = machines(1)
    lists = by_tier(mode="SUSPEND")
    (one,) = running(nodes, (job(0), ((0, 4),)))
    assert lists.victims(10.0, job(1, partition=HIGH), [one], PARTS) == []


ACCOUNTS = """
add account phys
add user ann Account=phys
add qos low GraceTime=20
add qos high Preempt=low
add qos mid PreemptMode=REQUEUE,WITHIN Preempt=low
"""


@pytest.mark.parametrize("seed", range(12))
def test_random_runs_end_and_nobody_holds_what_is_not_there(seed: int) -> None:
    draw = random.Random(seed)
    mode = draw.choice(["SUSPEND,GANG", "SUSPEND,GANG", "REQUEUE", "CANCEL"])
    by = draw.choice(["partition_prio", "partition_prio", "qos"])
    order = "preempt_reorder_count=3,preempt_strict_order"
    text = conf(
        f"PreemptType=preempt/{by}",
        f"PreemptMode={mode}",
        short="PriorityTier=2",
        options=draw.choice(["defer", "bf_interval=10", "preempt_youngest_first", order]),
        all=draw.choice(["", "GraceTime=40"]),
    )
    top = draw.choice(["", "PreemptMode=REQUEUE", "OverSubscribe=EXCLUSIVE"])
    text += f"PartitionName=top Nodes=ALL PriorityTier=3 {top}\n"
    rows = [
        {
            "submit_time_s": round(draw.uniform(0, 1500), 2),
            "tasks": draw.choice([1, 2, 3, 4, 8, 16]),
            "duration_s": draw.choice([5.0, 50.0, 200.0, 500.0]),
            "time_limit_s": draw.choice([100.0, 600.0, 600.0]),
            "partition": draw.choice(["all", "all", "short", "short,all", "top"]),
            "mem_per_cpu_gb": draw.choice([0.1, 0.25, 0.9]),
            "qos": draw.choice(["low", "high", "mid", ""]),
            "account": "phys",
            "preemptible": draw.choice([1.0, 1.0, 1.0, 0.0]),
            "requeue": draw.choice([1.0, 1.0, 0.0]),
        }
        for _ in range(draw.randint(5, 30))
    ]
    trace = jobs(*sorted(rows, key=lambda row: row["submit_time_s"]))
    conditions = Conditions(
        seed=seed,
        overheads=Overheads(
            restart_s=draw.choice([0.0, 30.0]),
            on_preempt=draw.choice(["checkpoint", "lose_all"]),
            latency_s=draw.choice([0.0, 0.0, 5.0]),
        ),
        faults=Faults(mtbf_h=draw.choice([0.0, 0.0, 0.3]), mttr_h=0.02),
    )
    limits = draw.choice(["inform", "kill"])
    policy = make(Spec.of("slurm", conf=text, accounts=ACCOUNTS, limits=limits))
    result = Simulator(trace, WHOLE, policy, conditions).run()
    check(result, trace, WHOLE, conditions)
    assert result.reason == "drained"
    assert (result.jobs["outcome"] == "impossible").mean() < 0.25
