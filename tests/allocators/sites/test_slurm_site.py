"""The policy on the files of a site: a real recording, and what single settings do."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pandas as pd
import pytest

from allocators import make
from allocators.sites.slurm.accounts import AssociationLimits, read_associations
from allocators.sites.slurm.config import read_conf, read_topology
from allocators.sites.slurm.constraints import NotSimulatedError, alternatives
from allocators.sites.slurm.keys import IDLE, MISSED, USED
from allocators.sites.slurm.site import levels_of, name_order, switches_on
from allocators.sites.slurm.state import replicas_on
from sim.cluster import Cluster, NodeGroup
from sim.conditions import Conditions
from sim.contract import ParameterError, Spec
from sim.engine.simulator import Simulator
from sim.trace import Trace
from tests.allocators.sites.test_slurm import cycles, recorded
from tests.shared import shared
from trainyard.clusters.machines import read_cluster
from trainyard.study.files import read_file_parameters
from trainyard.study.scenario import TraceSpec
from trainyard.traces.sources import load_source

CONF = """
SchedulerParameters={options}
SelectTypeParameters=CR_Core_Memory
{lines}
NodeName=n[1-4] CPUs=4 RealMemory=4096
PartitionName=all Nodes=ALL Default=YES DefMemPerCPU=256 {all}
PartitionName=short Nodes=n[1-2] DefMemPerCPU=256 {short}
"""
FOUR = Cluster((NodeGroup(4, 0, "", 4.0, 4.0, partitions=("all",), hosts="n[1-4]"),))
Rows = list[dict[str, Any]]


def conf(*lines: str, options: str = "defer", **more: str) -> str:
    parts = {"all": "", "short": ""} | more
    return CONF.format(lines="\n".join(lines), options=options, **parts)


def jobs(*rows: Mapping[str, Any]) -> Trace:
    usual = {"num_gpus": 0, "duration_s": 100.0, "time_limit_s": 600.0, "user": "ann", "tasks": 4}
    made = [
        {"job_id": str(at), "submit_time_s": float(at)} | usual | row for at, row in enumerate(rows)
    ]
    for row in made:
        row.setdefault("cpus", row["tasks"] * row.get("cpus_per_task", 1))
    return Trace.of(pd.DataFrame(made))


def starts(trace: Trace, text: str, cluster: Cluster = FOUR, **more: Any) -> list[float]:
    given = {"main_phase_s": 0.0, "bf_phase_s": 0.0, "calc_phase_s": 0.0} | more
    policy = make(Spec.of("slurm", conf=text, **given))
    found = Simulator(trace, cluster, policy, Conditions(seed=1)).run().jobs
    return [float(one) for one in found["first_start_s"]]


# -- a recording
# --------------------------------------------------------------------------------------------------


def test_the_policy_on_the_files_of_a_real_slurm_starts_as_was_recorded() -> None:
    """The same as `test_starts_and_nodes_are_those_of_a_real_slurm`, through the simulator."""
    folder = shared("data/schedulers/slurm_micro")
    source = TraceSpec.of(str(folder / "workload.csv"), read={"cpu_jobs": "keep"})
    # Plans begin on whole minutes of the clock.
    trace = replace(load_source(source).trace, epoch="2021-02-11T22:36:19")
    cluster = read_cluster(folder / "slurm.conf").cluster
    assert [node.name for node in cluster.nodes][3:6] == ["n4", "m1", "m2"]
    policy = make(
        read_file_parameters(
            Spec.of(
                "slurm",
                conf=str(folder / "slurm.conf"),
                accounts=str(folder / "sacctmgr.script"),
                topology=str(folder / "topology.conf"),
                bf_instants=cycles(),
                bf_phase_s=6200.0,
                main_phase_s=0.0,
                calc_phase_s=147.0,
            )
        )
    )
    result = Simulator(trace, cluster, policy, Conditions(horizon_s=6000.0)).run()
    truth = {number: one for number, one in recorded(folder).items() if one[0] < 5955}
    found = dict(zip(trace.frame["job_id"].astype(int), result.jobs["first_start_s"], strict=True))
    assert len(truth) == 62
    assert max(abs(found[number] - start_s) for number, (start_s, _) in truth.items()) <= 1.01
    with (folder / "recorded_sacct_first300.psv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="|"))
    assert len(rows) == 300


# -- what becomes of settings
# --------------------------------------------------------------------------------------------------


def test_each_setting_is_in_one_of_three_classes_with_its_line() -> None:
    text = (
        "ClusterName=x\n"
        "SchedulerParameters==bf_max_job_user=20,bf_yield_sleep=1,bf_licenses\n"
        "CompleteWait=32\n"
        "OddKey=1\n"
        "Include other.conf\n"
        "NodeName=n[1-2] CPUs=4\n"
        "NodeName=n[2-3] CPUs=8 CoreSpecCount=1\n"
        "PartitionName=a Nodes=ALL OverSubscribe=FORCE:4\n"
    )
    config = read_conf(text)
    found = {(one.line, one.key): one.kind for one in config.findings}
    assert found[1, "ClusterName"] == IDLE
    assert found[2, "SchedulerParameters"] == found[2, "bf_max_job_user"] == USED
    assert found[2, "bf_yield_sleep"] == IDLE
    assert found[2, "bf_licenses"] == found[3, "CompleteWait"] == found[4, "OddKey"] == MISSED
    assert found[5, "Include"] == found[7, "CoreSpecCount"] == found[8, "OverSubscribe"] == MISSED
    said = [one.sentence() for one in config.findings if one.kind == MISSED]
    assert (
        "slurm.conf, line 7: NodeName=n[2-3] describes n2 a second time: the last description"
        " counts." in said
    )
    assert [node.cpus for node in config.nodes] == [4, 8, 8]
    doubled = next(one for one in config.findings if one.key == "SchedulerParameters")
    assert "doubled" in doubled.why
    assert make(Spec.of("slurm", conf=text)).remarks() == tuple(said)  # type: ignore[attr-defined]


def test_a_parameter_goes_before_the_file_and_says_so() -> None:
    policy = make(Spec.of("slurm", conf=conf(options="bf_interval=60"), bf_interval_s=45.0))
    assert policy.remarks() == (  # type: ignore[attr-defined]
        "bf_interval_s = 45.0 counts instead of bf_interval in slurm.conf.",
    )


def test_switches_in_a_ring_and_odd_tables_are_refused() -> None:
    with pytest.raises(ParameterError, match="above itself"):
        read_topology("SwitchName=a Switches=b\nSwitchName=b Switches=a\n")
    with pytest.raises(ParameterError, match="no column Name"):
        read_associations("", "a|b\n1|2\n")


def test_levels_of_switches() -> None:
    found = levels_of(
        read_topology(
            "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\nSwitchName=top Switches=s[1-2]\n"
        ),
        ["n1", "n2", "n3", "n4"],
    )
    # n4 hangs on no switch.
    assert [[switch.nodes for switch in level] for level in found] == [
        [0b0011, 0b0100, 0b1000],
        [0b0111],
    ]
    assert found[1][0].leaves == (0b0011, 0b0100)


def test_switches_of_the_cluster() -> None:
    cluster = Cluster(
        tuple(
            NodeGroup(2, 0, "", 4.0, 4.0, hosts=hosts, switch=switch)
            for hosts, switch in (("n[1-2]", "s1"), ("n[3-4]", "s2"))
        ),
        switches=(("s1", "top"), ("s2", "top")),
    )
    found = levels_of(switches_on(cluster.nodes, cluster.switches), ["n1", "n2", "n3", "n4"])
    assert [[switch.nodes for switch in level] for level in found] == [[0b0011, 0b1100], [0b1111]]


def test_nodes_are_in_the_order_of_their_names_and_numbers() -> None:
    names = ["n10", "n9", "b1", "m2", "login"]
    assert [names[at] for at in name_order(names)] == ["b1", "login", "m2", "n9", "n10"]


def test_limits_of_associations_and_qualities_are_read() -> None:
    script = (
        "add account phys GrpTRES=cpu=100,mem=2G MaxJobs=5\n"
        "add user ann Account=phys MaxWall=1-0 DefaultQOS=high\n"
        "add qos high Priority=100 MaxTRESPU=gres/gpu=8 Flags=NoReserve Preempt=normal\n"
        "modify user ann set MaxSubmitJobs=7\n"
    )
    found = read_associations(script, "Name|Priority|MaxJobsPU|UsageFactor\nnormal|0|3|0.5\n")
    assert found.limits["phys", ""] == AssociationLimits(
        grp_tres={"cpu": 100, "mem": 2048}, max_jobs=5
    )
    assert found.limits["phys", "ann"] == AssociationLimits(max_wall_s=86_400, max_submit=7)
    assert found.default_qos == {("phys", "ann"): "high"}
    high, normal = found.qualities["high"], found.qualities["normal"]
    assert high.limits.max_tres_pu == {"gres/gpu": 8}
    assert (high.priority, high.flags, high.preempts) == (100, {"noreserve"}, {"normal"})
    assert (normal.limits.max_jobs_pu, normal.usage_factor) == (3, 0.5)
    assert normal.limits.max_jobs == inf


# -- constraints, replicas
# --------------------------------------------------------------------------------------------------

FEATURES = {"a": 0b0011, "b": 0b0110, "c": 0b1000}


@pytest.mark.parametrize(
    ("text", "masks"),
    [
        ("a", [0b0011]),
        ("a&b", [0b0010]),
        ("a|b", [0b0111]),
        ("(a|c)&b", [0b0010]),
        ("a|b&c", [0b0011]),
        ("[a|c]", [0b0011, 0b1000]),
        ("[a|b|c]&b", [0b0010, 0b0110, 0]),
        ("none", [0]),
    ],
)
def test_constraints(text: str, masks: list[int]) -> None:
    assert [one.nodes for one in alternatives(text, FEATURES, 0b1111)] == masks


def test_constraints_with_counts() -> None:
    (found,) = alternatives("[a*2&c*1]", FEATURES, 0b1111)
    assert found == (0b1011, ((0b0011, 2), (0b1000, 1)))


@pytest.mark.parametrize("text", ["!a", "a XAND b", "(a", "a)", "a&", "[a*2|b*1]", "&a"])
def test_constraints_that_are_refused(text: str) -> None:
    with pytest.raises(NotSimulatedError):
        alternatives(text, FEATURES, 0b1111)


@pytest.mark.parametrize(
    ("held", "replicas", "expected"),
    [
        (((0, 2), (3, 2)), 4, ((0, 2), (3, 2))),
        (((0, 1), (3, 3)), 8, ((0, 2), (3, 6))),
        (((0, 5),), 2, ((0, 2),)),
        (((0, 5), (1, 5), (2, 5)), 2, ((0, 1), (1, 1))),
        (((0, 1), (1, 1), (2, 1)), 5, ((0, 1), (1, 2), (2, 2))),
    ],
)
def test_replicas_follow_tasks(held: Any, replicas: int, expected: Any) -> None:
    assert replicas_on(held, replicas) == expected


def test_gpus_of_each_node_are_divided_evenly() -> None:
    assert replicas_on(((0, 7), (3, 1)), 8, evenly=True) == ((0, 4), (3, 4))
    assert replicas_on(((0, 7), (3, 1)), 1, evenly=True) == ((0, 1),)


def test_a_job_is_no_burden_to_a_partition_that_can_never_hold_it() -> None:
    # Job 0 fits in all of the four nodes only; what it could not get in `short` is kept by nobody.
    cluster = Cluster((NodeGroup(4, 0, "", 4.0, 4.0, partitions=("all", "short"), hosts="n[1-4]"),))
    whole = {"tasks": 16, "tasks_per_node": 4, "nodes": 4, "partition": "short,all"}
    text = conf("SchedulerType=sched/builtin", short="PriorityTier=2")
    found = starts(jobs(whole, {"partition": "all", "tasks_per_node": 4}), text, cluster)
    assert max(found) < 300


# -- single settings by hand
# --------------------------------------------------------------------------------------------------


def test_constraints_whole_nodes_and_memory_decide_where_and_when() -> None:
    cluster = Cluster(
        (
            NodeGroup(2, 0, "", 4.0, 4.0, hosts="n[1-2]", features=("slow",)),
            NodeGroup(2, 0, "", 4.0, 4.0, hosts="n[3-4]", features=("fast",)),
        )
    )
    plain = {"tasks": 1, "cpus": 1}
    # 0 and 1 take the fast nodes wholly, 2 waits for one of them, 3 finds a slow one.
    trace = jobs(
        plain | {"constraint": "fast", "exclusive": "yes"},
        plain | {"constraint": "fast", "exclusive": "yes"},
        plain | {"constraint": "fast"},
        plain,
    )
    text = conf()
    found = starts(trace, text, cluster)
    assert found[0] < 10
    assert found[1] < 10
    assert found[2] >= 100
    assert 30 <= found[3] < 40  # the main pass stops at 2; the backfill goes on
    # 3 of 4 GB by memory: the next job with 2 GB waits although there are cores.
    heavy = [plain | {"mem_per_node_gb": 3.0}] * 4 + [plain | {"mem_per_node_gb": 2.0}]
    assert starts(jobs(*heavy), text, cluster)[4] >= 100
    assert starts(jobs(*heavy), text.replace("CR_Core_Memory", "CR_Core"), cluster)[4] < 10


def test_what_can_never_run_is_refused_and_named() -> None:
    trace = jobs({}, {"tasks": 40}, {"constraint": "!a"}, {"tasks": 8, "tasks_per_node": 8})
    policy = make(Spec.of("slurm", conf=conf()))
    cluster = Cluster((NodeGroup(4, 0, "", 4.0, 4.0, hosts="n[1-4]", features=("a",)),))
    result = Simulator(trace, cluster, policy).run()
    assert list(result.jobs["outcome"]) == ["completed", "impossible", "refused", "refused"]
    assert policy.remarks() == (  # type: ignore[attr-defined]
        "1 job names a constraint: !a uses an operator that is not simulated: refused.",
        "1 job names a shape that even the empty cluster cannot hold: refused.",
    )


@pytest.mark.parametrize(
    ("column", "values", "order"),
    [
        ("site_priority", (100.0, 300.0, 200.0), [2, 3, 1]),
        ("nice", (-100.0, -300.0, -200.0), [2, 3, 1]),
        ("site_priority", (0.0, 0.0, 0.0), [1, 2, 3]),
    ],
)
def test_what_a_site_adds_counts_like_nice_the_other_way(
    column: str, values: tuple[float, ...], order: list[int]
) -> None:
    # Job 0 has all of the cluster until 100 s; without weights the others go by their numbers.
    rows = [{"tasks": 16, column: value} for value in (0.0, *values)]
    found = starts(jobs(*rows), conf(), weight_fairshare=0)
    assert sorted(range(1, 4), key=lambda at: found[at]) == order
