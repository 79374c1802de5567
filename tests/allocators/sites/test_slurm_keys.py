"""Whatever is called used is used: changing it changes the starts of a crowded cluster."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import make
from allocators.sites.slurm.keys import USED_KEYS, USED_NODE, USED_OPTIONS, USED_PARTITION
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.trace import Trace
from trainyard.clusters.node_lists import read_slurm

KEYS = {
    "PriorityWeightAge": "1000",
    "PriorityWeightFairshare": "5000",
    "PriorityWeightJobSize": "2000",
    "PriorityWeightPartition": "500",
    "PriorityWeightQOS": "1000",
    "PriorityMaxAge": "0-1",
    "PriorityDecayHalfLife": "0-1",
    "PriorityFlags": "NO_FAIR_TREE",
    "PriorityCalcPeriod": "5",
    "SelectTypeParameters": "CR_Core_Memory",
    "AccountingStorageEnforce": "associations,limits,qos",
}
NODE = {"CPUs": "8", "RealMemory": "16384", "Feature": "old"}
ALL = {"Nodes": "ALL", "Default": "YES", "DefMemPerCPU": "1024", "PriorityJobFactor": "1"}
SHORT = {"Nodes": "n[1-3]", "PriorityJobFactor": "10", "DefMemPerCPU": "1024"}
ACCOUNTS = """
add account phys Fairshare=30
add account chem Fairshare=60 GrpTRES=cpu=40
add user ann Account=phys Priority=5
add user bob Account=phys Fairshare=3
add user cyd Account=chem Priority=1
add qos normal Priority=0
add qos high Priority=100 Preempt=normal MaxJobsPU=1
"""
TOPOLOGY = "SwitchName=a Nodes=n[1,3,5]\nSwitchName=b Nodes=n[2,4,6]\nSwitchName=t Switches=a,b\n"


@cache
def crowd() -> Trace:
    rng = np.random.default_rng(8)
    count = 45
    tasks = rng.choice([1, 2, 4, 8, 12, 16, 24], count)
    rows = pd.DataFrame(
        {
            "job_id": [str(at) for at in range(count)],
            "submit_time_s": np.cumsum(rng.exponential(90.0, count)).round(1),
            "num_gpus": 0,
            "duration_s": rng.choice([20.0, 150.0, 400.0, 900.0, 1500.0], count),
            "time_limit_s": rng.choice([300.0, 600.0, 1200.0, 2400.0, np.nan], count),
            "user": rng.choice(["ann", "bob", "cyd"], count, p=[0.5, 0.3, 0.2]),
            "qos": rng.choice(["normal", "high"], count, p=[0.8, 0.2]),
            "partition": rng.choice(
                ["all", "short", "short,all", ""], count, p=[0.4, 0.1, 0.4, 0.1]
            ),
            "tasks": tasks,
            "cpus": tasks,
            "nodes": np.where(tasks >= 8, 2.0, np.nan),
            "mem_per_cpu_gb": rng.choice([np.nan, 1.0, 3.0], count, p=[0.7, 0.2, 0.1]),
            "constraint": rng.choice(["", "old"], count),
            "array": np.where(np.arange(count) % 9 < 4, "900", ""),
            "nice": rng.choice([0.0, 50.0], count),
        }
    )
    rows["account"] = np.where(rows["user"] == "cyd", "chem", "phys")
    return Trace.of(rows)


def text(changed: dict[str, str | None]) -> str:
    """A slurm.conf; keys begin with "option.", "node.", "all." or "short." or with nothing."""
    keys, options = dict(KEYS), {"bf_max_job_test": "200"}
    places: dict[str, dict[str, str]] = {
        "": keys,
        "option": options,
        "node": dict(NODE),
        "all": dict(ALL),
        "short": dict(SHORT),
        "extra": {},
    }
    for name, value in changed.items():
        place, _, key = name.rpartition(".")
        places[place].pop(key, None)
        if value is not None:
            places[place][key] = value

    def joined(place: str, sign: str = " ") -> str:
        return sign.join(f"{key}={value}" if value else key for key, value in places[place].items())

    lines = [f"{key}={value}" for key, value in keys.items()]
    lines.append(f"SchedulerParameters={joined('option', ',')}")
    node = joined("node").replace("Feature=old", "")
    lines.append(f"NodeName=DEFAULT {node}")
    lines.append(f"NodeName=n[1-4] {joined('node')}")
    lines.append(f"NodeName=n[5-6] {joined('extra')}")
    lines.append(f"PartitionName=all {joined('all')}")
    lines.append(f"PartitionName=short {joined('short')}")
    return "\n".join(lines)


@cache
def starts(changed: tuple[tuple[str, str | None], ...]) -> tuple[float, ...]:
    settings = dict(changed)
    more: dict[str, Any] = {"accounts": ACCOUNTS, "calc_phase_s": 40.0, "main_phase_s": 7.0}
    more |= {"bf_phase_s": 11.0}
    for name in ("limits", "topology"):
        if (given := settings.pop(f"param.{name}", None)) is not None:
            more[name] = given
    faults = settings.pop("param.faults", None)
    trace = replace(crowd(), epoch=settings.pop("param.epoch", None) or "")
    conf = text(settings)
    cluster = Cluster.from_json(read_slurm(conf, "slurm.conf").cluster.to_json())
    policy = make(Spec.of("slurm", conf=conf, **more))
    conditions = Conditions(
        seed=3, horizon_s=4000.0, **({"faults": Faults(mtbf_h=1.0, mttr_h=0.05)} if faults else {})
    )
    found = Simulator(trace, cluster, policy, conditions).run().jobs
    return tuple(found["first_start_s"].fillna(-1.0)) + tuple(found["finish_s"].fillna(-1.0))


TIERS = {"short.PriorityTier": "5", "PreemptType": "preempt/partition_prio"}
TIERS |= {"PreemptMode": "REQUEUE"}
CLASSIC = {"PriorityFlags": "NO_FAIR_TREE"}
TIGHT = {"all.MaxTime": "30", "EnforcePartLimits": "NO"}
KILL = {"param.limits": "kill"}
LATE = {"param.epoch": "2026-01-01T23:40:00"}
"""Usage is reset 20 minutes after the first job."""
CASES: dict[str, tuple[dict[str, str | None], dict[str, str | None]]] = {
    # key: (settings beside, what is changed)
    "PriorityType": ({}, {"PriorityType": "priority/basic"}),
    "PriorityWeightAge": ({}, {"PriorityWeightAge": "90000"}),
    "PriorityUsageResetPeriod": (LATE, {"PriorityUsageResetPeriod": "DAILY"}),
    "PriorityWeightAssoc": ({}, {"PriorityWeightAssoc": "9000"}),
    "PriorityWeightFairshare": ({}, {"PriorityWeightFairshare": "0"}),
    "PriorityWeightJobSize": ({}, {"PriorityWeightJobSize": "90000"}),
    "PriorityWeightPartition": ({}, {"PriorityWeightPartition": "90000"}),
    "PriorityWeightQOS": ({}, {"PriorityWeightQOS": "90000"}),
    "PriorityWeightTRES": ({}, {"PriorityWeightTRES": "CPU=90000"}),
    "PriorityMaxAge": ({"PriorityWeightAge": "9000"}, {"PriorityMaxAge": "0:10:00"}),
    "PriorityDecayHalfLife": ({}, {"PriorityDecayHalfLife": "0:10:00"}),
    "PriorityCalcPeriod": ({}, {"PriorityCalcPeriod": "1"}),
    "PriorityFavorSmall": ({}, {"PriorityFavorSmall": "YES"}),
    "PriorityFlags": ({}, {"PriorityFlags": None}),
    "FairShareDampeningFactor": (CLASSIC, {"FairShareDampeningFactor": "50"}),
    "SchedulerType": ({}, {"SchedulerType": "sched/builtin"}),
    "SelectType": ({}, {"SelectType": "select/linear"}),
    "SelectTypeParameters": ({"node.RealMemory": "9000"}, {"SelectTypeParameters": "CR_Core"}),
    "EnforcePartLimits": (TIGHT, {"EnforcePartLimits": "ALL"}),
    "OverTimeLimit": (KILL, {"OverTimeLimit": "10"}),
    "KillWait": (KILL, {"KillWait": "300"}),
    "PreemptType": (TIERS, {"PreemptType": "preempt/qos"}),
    "PreemptMode": (TIERS, {"PreemptMode": "CANCEL"}),
    "PreemptExemptTime": (TIERS, {"PreemptExemptTime": "0:10:00"}),
    "DefMemPerCPU": ({"all.DefMemPerCPU": None}, {"DefMemPerCPU": "4096"}),
    "DefMemPerNode": ({"all.DefMemPerCPU": None}, {"DefMemPerNode": "9000"}),
    "MaxMemPerCPU": ({}, {"MaxMemPerCPU": "512"}),
    "MaxMemPerNode": ({"EnforcePartLimits": "ALL"}, {"MaxMemPerNode": "6000"}),
    "TopologyPlugin": ({"param.topology": TOPOLOGY}, {"TopologyPlugin": "topology/tree"}),
    "JobRequeue": ({"param.faults": "yes"}, {"JobRequeue": "0"}),
    "AccountingStorageEnforce": ({}, {"AccountingStorageEnforce": "associations"}),
    "option.sched_interval": (
        {"SchedulerType": "sched/builtin", "option.default_queue_depth": "1"},
        {"option.sched_interval": "17"},
    ),
    "option.batch_sched_delay": ({}, {"option.batch_sched_delay": "20"}),
    "option.default_queue_depth": (
        {"SchedulerType": "sched/builtin"},
        {"option.default_queue_depth": "1"},
    ),
    "option.partition_job_depth": (
        {"SchedulerType": "sched/builtin"},
        {"option.partition_job_depth": "1"},
    ),
    "option.sched_max_job_start": ({}, {"option.sched_max_job_start": "1"}),
    "option.defer": ({}, {"option.defer": ""}),
    "option.defer_batch": ({}, {"option.defer_batch": ""}),
    "option.bf_interval": ({}, {"option.bf_interval": "300"}),
    "option.bf_window": ({}, {"option.bf_window": "20"}),
    "option.bf_resolution": ({}, {"option.bf_resolution": "600"}),
    "option.bf_max_job_test": ({}, {"option.bf_max_job_test": "2"}),
    "option.bf_max_job_user": ({}, {"option.bf_max_job_user": "1"}),
    "option.bf_max_job_part": ({}, {"option.bf_max_job_part": "1"}),
    "option.bf_max_job_assoc": ({}, {"option.bf_max_job_assoc": "1"}),
    "option.bf_max_job_user_part": ({}, {"option.bf_max_job_user_part": "1"}),
    "option.bf_max_job_start": (
        {"option.bf_interval": "300", "option.batch_sched_delay": "9999", "option.defer": ""},
        {"option.bf_max_job_start": "1"},
    ),
    "option.bf_min_age_reserve": ({}, {"option.bf_min_age_reserve": "900"}),
    "option.bf_min_prio_reserve": ({}, {"option.bf_min_prio_reserve": "6000"}),
    "option.bf_job_part_count_reserve": ({}, {"option.bf_job_part_count_reserve": "1"}),
    "option.bf_one_resv_per_job": ({}, {"option.bf_one_resv_per_job": ""}),
    "option.bf_max_job_array_resv": ({}, {"option.bf_max_job_array_resv": "1"}),
    "option.bf_window_linear": ({}, {"option.bf_window_linear": ""}),
    "option.bf_busy_nodes": ({}, {"option.bf_busy_nodes": ""}),
    "option.assoc_limit_stop": ({}, {"option.assoc_limit_stop": ""}),
    "all.MaxTime": ({}, {"all.MaxTime": "30"}),
    "all.DefaultTime": ({}, {"all.DefaultTime": "5"}),
    "all.MaxNodes": ({}, {"all.MaxNodes": "1"}),
    "all.MinNodes": ({}, {"all.MinNodes": "2"}),
    "all.PriorityTier": ({}, {"short.PriorityTier": "9"}),
    "all.Priority": ({}, {"short.Priority": "9"}),
    "all.PriorityJobFactor": ({}, {"all.PriorityJobFactor": "100"}),
    "all.OverSubscribe": ({}, {"all.OverSubscribe": "EXCLUSIVE"}),
    "all.Shared": ({}, {"all.Shared": "EXCLUSIVE"}),
    "all.QOS": ({}, {"all.QOS": "high"}),
    "all.AllowAccounts": ({}, {"all.AllowAccounts": "phys"}),
    "all.DenyAccounts": ({}, {"all.DenyAccounts": "phys"}),
    "all.AllowQOS": ({}, {"all.AllowQOS": "high"}),
    "all.DenyQOS": ({}, {"all.DenyQOS": "high"}),
    "all.State": ({}, {"short.State": "DOWN"}),
    "all.DefMemPerCPU": ({}, {"all.DefMemPerCPU": "4096"}),
    "all.DefMemPerNode": ({"all.DefMemPerCPU": None}, {"all.DefMemPerNode": "9000"}),
    "all.MaxMemPerCPU": ({}, {"all.MaxMemPerCPU": "512"}),
    "all.MaxMemPerNode": ({}, {"all.MaxMemPerNode": "6000"}),
    "all.TRESBillingWeights": ({}, {"all.TRESBillingWeights": "CPU=0.1,Mem=5G"}),
    "all.PreemptMode": (TIERS, {"all.PreemptMode": "OFF"}),
    "all.GraceTime": (TIERS, {"all.GraceTime": "120"}),
    "all.ExclusiveUser": ({}, {"all.ExclusiveUser": "YES"}),
    "all.LLN": ({}, {"all.LLN": "YES"}),
    "all.Nodes": ({}, {"all.Nodes": "n[1-5]"}),
    "all.Default": ({}, {"all.Default": "NO", "short.Default": "YES"}),
    "node.CPUs": ({}, {"node.CPUs": "12"}),
    "node.RealMemory": ({}, {"node.RealMemory": "9000"}),
    "node.Weight": ({}, {"node.Weight": "9", "extra.Weight": "1"}),
    "node.ThreadsPerCore": ({}, {"node.ThreadsPerCore": "2"}),
    "node.Feature": ({}, {"extra.Feature": "old"}),
    "node.State": ({}, {"extra.State": "DOWN"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_called_used_changes_the_starts(name: str) -> None:
    beside, changed = CASES[name]
    before, after = tuple(beside.items()), tuple((beside | changed).items())
    assert starts(before) != starts(after)


def test_every_key_that_is_called_used_is_tried() -> None:
    tried = {name.lower() for name in CASES}
    tested = {name.rpartition(".")[2] for name in tried}
    assert {name for name in tried if "." not in name} | {"schedulerparameters"} == USED_KEYS
    # tests/allocators/sites/test_slurm_preempt.py
    elsewhere = {"preempt_youngest_first", "preempt_reorder_count", "preempt_strict_order"}
    options = {name[7:] for name in tried if name.startswith("option.")}
    assert options | elsewhere >= USED_OPTIONS
    assert tested >= USED_PARTITION - {"partitionname"}
    other = {"nodename", "procs", "boards", "sockets", "socketsperboard", "corespersocket"}
    assert tested >= USED_NODE - other - {"gres", "features"}  # spellings of what is tried
