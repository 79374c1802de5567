"""Limits, dependencies, begin times, arrays, time limits and displaced jobs, by hand."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest

from allocators import make
from allocators.sites.slurm.accounts import read_associations
from allocators.sites.slurm.config import read_conf
from allocators.sites.slurm.limits import UsageLimits
from allocators.sites.slurm.state import SlurmJob
from allocators.sites.slurm.waitlist import Condition, UnsatisfiableError, conditions_of
from sim.cluster import Cluster, NodeGroup
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.simulator import Simulator
from tests.allocators.sites.test_slurm_site import FOUR, conf, jobs, starts

ENFORCED = "AccountingStorageEnforce=limits,qos"


def job(number: int, user: str = "ann", qos: str = "", cpu: float = 4, **more: Any) -> SlurmJob:
    values: dict[str, Any] = {"partition": 0, "since_s": 0.0, "limit_s": 600.0, "allowed": (15,)}
    tres = {"cpu": cpu, "node": 1.0}
    return SlurmJob(number, user, "phys", tasks=int(cpu), qos=qos, tres=tres, **{**values, **more})


def gate(script: str, *, safe: bool = False, part_limits: str = "NO") -> UsageLimits:
    text = "add account phys\nadd user ann Account=phys\nadd user bob Account=phys\n" + script
    enforced = frozenset({"limits", "qos"} | ({"safe"} if safe else set()))
    return UsageLimits(read_associations(text), [None], enforced, part_limits, 1.0)


@pytest.mark.parametrize(
    ("script", "running", "asked", "word"),
    [
        ("modify account phys set GrpTRES=cpu=10", [job(0), job(1)], job(2), "AssocGrpCpuLimit"),
        ("modify account phys set GrpTRES=cpu=12", [job(0), job(1)], job(2), ""),
        ("modify account phys set GrpTRES=node=1", [job(0)], job(2), "AssocGrpNodeLimit"),
        ("modify account phys set GrpJobs=1", [job(0)], job(2, "bob"), "AssocGrpJobsLimit"),
        ("modify user ann set MaxJobs=1", [job(0)], job(2), "AssocMaxJobsLimit"),
        ("modify user ann set MaxJobs=1", [job(0)], job(2, "bob"), ""),
        ("add qos q MaxJobsPU=1", [job(0, qos="q")], job(2, qos="q"), "QOSMaxJobsPerUserLimit"),
        ("add qos q MaxJobsPU=1", [job(0, qos="q")], job(2, "bob", "q"), ""),
        (
            "add qos q MaxJobsPA=1",
            [job(0, qos="q")],
            job(2, "bob", "q"),
            "QOSMaxJobsPerAccountLimit",
        ),
        (
            "add qos q MaxTRESPU=cpu=6",
            [job(0, qos="q")],
            job(2, qos="q"),
            "QOSMaxCpuPerUserLimit",
        ),
        ("add qos q GrpTRES=cpu=6", [job(0, qos="q")], job(2, "bob", "q"), "QOSGrpCpuLimit"),
        ("modify user ann set MaxTRES=cpu=2", [], job(2), "AssocMaxCpuPerJobLimit"),
        ("modify user ann set MaxWall=5", [], job(2), "AssocMaxWallDurationPerJobLimit"),
        ("add qos q LimitFactor=0.5\nmodify user ann set MaxTRES=cpu=4 GrpJobsAccrue=9", [],
         job(2, qos="q"), "AssocMaxCpuPerJobLimit"),
        # The first limit that is found counts: that of the quality, not the stricter one.
        ("add qos q MaxWall=20\nmodify user ann set MaxWall=5", [], job(2, qos="q"), ""),
        ("add qos q MinTRES=cpu=8", [], job(2, qos="q"), "QOSMinCpuNotMetLimit"),
        ("add qos q MinPrioThreshold=5", [], job(2, qos="q"), "QOSMinPrioThreshold"),
        # 4 cores x 10 minutes each: 40 are ahead, 80 would be.
        ("modify account phys set GrpTRESRunMins=cpu=79", [job(0)], job(1),
         "AssocGrpCpuRunMinutesLimit"),
        ("modify account phys set GrpTRESRunMins=cpu=80", [job(0)], job(1), ""),
    ],
)  # fmt: skip
def test_why_a_job_may_not_start(
    script: str, running: list[SlurmJob], asked: SlurmJob, word: str
) -> None:
    made = gate(script)
    for one in running:
        one.start_s = 0.0
        made.count_start(one)
    assert made.blocking_reason(0.0, asked) == word
    for one in running:
        made.count_end(60.0, one)
    if running:
        assert made.blocking_reason(60.0, asked) == ""


def test_used_minutes_add_up_and_safe_looks_ahead() -> None:
    script = "modify account phys set GrpTRESMins=cpu=60"
    for safe, expected in ((False, ""), (True, "AssocGrpCpuMinutesLimit")):
        made = gate(script, safe=safe)
        one = job(0)
        one.start_s = 0.0
        made.count_start(one)
        made.count_end(600.0, one)  # 4 cores for 10 minutes: 40 of 60
        assert made.blocking_reason(600.0, job(1)) == expected  # safe: 40 more would be 80
        made.count_start(one)
        made.count_end(300.0, one)
        assert made.blocking_reason(600.0, job(1)) == "AssocGrpCpuMinutesLimit"


def test_submissions_are_limited() -> None:
    made = gate("modify user ann set MaxSubmitJobs=1")
    made.count_submission(job(0))
    assert made.refusal((job(1),)) == "AssocMaxSubmitJobLimit"
    assert made.refusal((job(1, "bob"),)) == ""
    made.count_submission(job(0), -1)
    assert made.refusal((job(1),)) == ""


@pytest.mark.parametrize(("rule", "refused"), [("ALL", [0, 1]), ("ANY", [0]), ("NO", [0])])
def test_a_job_in_two_partitions_of_which_one_is_too_short(rule: str, refused: list[int]) -> None:
    text = conf(f"EnforcePartLimits={rule}", short="MaxTime=5")
    trace = jobs({"partition": "short"}, {"partition": "short,all"}, {"partition": "all"})
    policy = make(Spec.of("slurm", conf=text))
    cluster = Cluster((NodeGroup(4, 0, "", 4.0, 4.0, hosts="n[1-4]"),))
    found = Simulator(trace, cluster, policy).run().jobs["outcome"]
    assert [at for at, one in enumerate(found) if one == "refused"] == refused
    assert "PartitionTimeLimit" in policy.remarks()[-1]  # type: ignore[attr-defined]


def test_a_limit_of_a_quality_holds_jobs_back_but_nobody_else() -> None:
    accounts = "add account phys\nadd user ann Account=phys\nadd qos one MaxJobsPU=1\n"
    one = {"qos": "one", "account": "phys", "tasks": 1}
    trace = jobs(one, one, {"account": "phys", "tasks": 1})
    first, second, third = starts(trace, conf(ENFORCED), accounts=accounts)
    assert first < 10
    assert third < 10
    assert 100 <= second <= 115


# -- when a job is eligible
# --------------------------------------------------------------------------------------------------


def test_dependencies_are_read() -> None:
    ids = {"7": [0], "8": [1], "9": [2, 3], "9_1": [2], "9_2": [3]}
    assert conditions_of("afterok:7:8,singleton", ids) == (
        (Condition("afterok", ((0, 0.0), (1, 0.0))), Condition("singleton")),
        False,
    )
    assert conditions_of("after:7+5?afterany:99(unfulfilled)", ids) == (
        (Condition("after", ((0, 300.0),)), Condition("afterany")),
        True,
    )
    after_all = (Condition("afterany", ((2, 0.0), (3, 0.0))),)
    assert conditions_of("afterany:9", ids)[0] == conditions_of("afterany:9_*", ids)[0] == after_all
    assert conditions_of("aftercorr:9", ids, "12_2")[0] == (Condition("aftercorr", ((3, 0.0),)),)
    for text in ("sometime:7", "afterok:x", "afternotok:99"):
        with pytest.raises(UnsatisfiableError):
            conditions_of(text, ids)


def test_begin_times_and_dependencies_make_jobs_wait_and_age_counts_from_there() -> None:
    small = {"tasks": 1, "name": "x"}
    trace = jobs(
        small,
        small | {"dependency": "afterok:0"},
        small | {"begin_s": 400.0},
        small | {"dependency": "after:0+1"},
        small | {"dependency": "singleton", "name": "y"},
        small | {"dependency": "singleton", "name": "y"},
        small | {"dependency": "afternotok:0"},
        small | {"dependency": "afterany:99"},
    )
    found = starts(trace, conf())
    assert 100 + found[0] <= found[1] <= 105 + found[0]
    assert 400 <= found[2] <= 405
    assert found[0] + 60 <= found[3] <= found[0] + 64
    assert found[4] < 15
    assert found[4] + 100 <= found[5] <= found[4] + 105
    assert found[6] != found[6]  # never: job 0 ends well
    assert found[7] < 15


def test_what_depends_on_a_failure_starts_where_the_other_is_ended_at_its_limit() -> None:
    # Job 0 is ended after 300 + 60 s, job 1 ends well.
    trace = jobs(
        {"tasks": 1, "duration_s": 900.0, "time_limit_s": 300.0},
        {"tasks": 1},
        *[{"tasks": 1, "dependency": f"{kind}:{job}"} for kind in ("afterok", "afternotok")
          for job in (0, 1)],
        {"tasks": 1, "dependency": "afterok:0?afterok:1"},
        {"tasks": 1, "dependency": "afternotok:99"},
        *[{"tasks": 1, "dependency": f"{kind}:7"} for kind in ("afterany", "afterok")],
        {"tasks": 1, "dependency": "afterany:9"},
    )  # fmt: skip
    found = starts(trace, conf("KillWait=60"), limits="kill")
    after_ok_0, after_ok_1, not_ok_0, not_ok_1, either = found[2:7]
    assert isnan(after_ok_0)
    assert isnan(not_ok_1)
    assert 360 <= not_ok_0 <= 370
    assert 100 <= after_ok_1 <= 110
    assert 100 <= either <= 110
    # Job 7 is refused, so job 9 never runs; those that only wait for their ends start.
    assert found[8:11:2] == [8, 11]
    assert isnan(found[9])


def test_limits_of_an_account_hold_for_each_of_its_users() -> None:
    made = gate("modify account phys set MaxJobs=1 MaxSubmitJobs=1")
    one = job(0)
    one.start_s = 0.0
    made.count_start(one)
    made.count_submission(one)
    assert made.blocking_reason(0.0, job(1)) == "AssocMaxJobsLimit"
    assert made.blocking_reason(0.0, job(1, "bob")) == ""
    assert made.refusal((job(1),)) == "AssocMaxSubmitJobLimit"
    own = gate("modify account phys set MaxJobs=1\nmodify user ann set MaxJobs=2")
    own.count_start(one)
    assert own.blocking_reason(0.0, job(1)) == ""


def test_limits_above_the_cluster_are_said_with_both_numbers() -> None:
    accounts = "add account phys GrpTRES=cpu=100\nadd account chem GrpTRES=cpu=16\n"
    policy = make(Spec.of("slurm", conf=conf(ENFORCED), accounts=accounts))
    Simulator(jobs({}), FOUR, policy).run()
    assert policy.remarks() == (  # type: ignore[attr-defined]
        "sacctmgr, line 1: GrpTRES=cpu=100 of phys is above the 16 of the cluster, so it never"
        " holds a job back.",
    )


def test_of_an_array_so_many_run_at_once() -> None:
    trace = jobs(*[{"tasks": 1, "array": "5%2"}] * 4)
    found = sorted(starts(trace, conf()))
    assert found[1] < 10
    assert found[2] >= 100


# -- ends
# --------------------------------------------------------------------------------------------------


def test_jobs_are_ended_at_their_limits_where_they_are_killed() -> None:
    trace = jobs({"duration_s": 1000.0, "time_limit_s": 300.0}, {"duration_s": 310.0,
                 "time_limit_s": 300.0})  # fmt: skip
    text = conf("OverTimeLimit=1", "KillWait=20")
    policy = make(Spec.of("slurm", conf=text, limits="kill"))
    result = Simulator(trace, FOUR, policy).run()
    assert list(result.jobs["outcome"]) == ["failed", "completed"]
    assert list(result.jobs["preemptions"]) == [0, 0]
    assert result.jobs["held_s"].tolist() == pytest.approx([380.0, 310.0])
    assert policy.remarks() == ("1 job was ended at the time limit.",)  # type: ignore[attr-defined]
    kept = Simulator(trace, FOUR, make(Spec.of("slurm", conf=text))).run()
    assert list(kept.jobs["outcome"]) == ["completed", "completed"]


@pytest.mark.parametrize("mode", ["REQUEUE", "CANCEL", "OFF"])
def test_a_higher_tier_takes_nodes(mode: str) -> None:
    text = conf("PreemptType=preempt/partition_prio", f"PreemptMode={mode}", short="PriorityTier=2")
    long = {"duration_s": 500.0}
    trace = jobs(*[long] * 4, {"submit_time_s": 50.0, "partition": "short"})
    cluster = Cluster((NodeGroup(4, 0, "", 4.0, 4.0, hosts="n[1-4]"),))
    policy = make(Spec.of("slurm", conf=text, main_phase_s=0.0, bf_phase_s=0.0))
    found = Simulator(trace, cluster, policy, Conditions()).run().jobs
    started = float(found["first_start_s"].iloc[4])
    if mode == "OFF":
        assert started >= 500
        return
    assert 50 <= started <= 53
    assert list(found["outcome"]).count("failed") == (mode == "CANCEL")
    assert found["preemptions"].sum() == 1
    if mode == "REQUEUE":
        (victim,) = found.index[found["preemptions"] > 0]
        # What it had done is kept; it does not start again within 121 s.
        assert found["finish_s"][victim] >= started + 121


@pytest.mark.parametrize("partition", ["short,all", "all,short"])
def test_a_displaced_job_queues_again_in_all_of_its_partitions(partition: str) -> None:
    lines = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")
    text = conf(*lines, short="PriorityTier=2")
    text += "PartitionName=top Nodes=ALL PriorityTier=3\n"
    # Until 600 s all nodes are for jobs of the top, so that the displaced one waits.
    top = {"partition": "top", "tasks": 16, "submit_time_s": 200.0, "duration_s": 400.0}
    trace = jobs({"partition": partition, "duration_s": 500.0}, top)
    policy = make(Spec.of("slurm", conf=text, main_phase_s=0.0, bf_phase_s=0.0))
    queues: list[list[tuple[int, int, float]]] = []
    allocate = policy.allocate

    def seen(view: Any) -> Any:
        plan = allocate(view)
        queue = policy._run._controller.queue()  # type: ignore[attr-defined]
        queues.append([(one.id, one.partition, one.since_s) for one in queue])
        return plan

    policy.allocate = seen  # type: ignore[method-assign]
    cluster = Cluster((NodeGroup(4, 0, "", 4.0, 4.0, hosts="n[1-4]"),))
    found = Simulator(trace, cluster, policy, Conditions()).run().jobs
    # It was stopped at 200 s, and queues again 121 s later: first where the tier is higher.
    last = next(queue for queue in reversed(queues) if queue)
    since_s = last[0][2]
    assert 321 <= since_s <= 324
    assert last == [(0, 2, since_s), (0, 1, since_s)]
    assert list(found["outcome"]) == ["completed", "completed"]


def test_limits_of_a_user_in_one_partition() -> None:
    text = (
        "Cluster - 'c':Fairshare=1\nParent - 'root'\nAccount - 'phys':Fairshare=1:GrpJobs=3\n"
        "Parent - 'phys'\nUser - 'ann':Fairshare=7:MaxJobs=2\n"
        "User - 'ann':Partition='Fast':Fairshare=5:MaxJobs=1:MaxSubmitJobs=2\n"
    )
    people = read_associations(text)
    assert [(one.user, one.shares) for one in people.entries] == [("", 1), ("ann", 7)]
    assert "fair share, priority and QOS are the same" in people.findings[0].sentence()
    parts = read_conf(
        "NodeName=n1 CPUs=64\nPartitionName=all Nodes=n1\nPartitionName=fast Nodes=n1\n"
    ).partitions
    made = UsageLimits(people, list(parts), frozenset({"limits"}), "NO", 1.0)

    def waits(number: int, part: int) -> str:
        return made.blocking_reason(0.0, job(number, partition=part))

    # Each association counts its own: 1 in fast, 2 elsewhere; the account counts all 3.
    first = job(0, partition=1)
    made.count_start(first)
    assert (waits(1, 1), waits(1, 0)) == ("AssocMaxJobsLimit", "")
    second = job(1)
    made.count_start(second)
    assert waits(2, 0) == ""
    third = job(2)
    made.count_start(third)
    assert waits(3, 0) == "AssocMaxJobsLimit"
    assert made.blocking_reason(0.0, job(3, "bob")) == "AssocGrpJobsLimit"
    made.count_end(0.0, first)
    assert (waits(3, 1), waits(3, 0)) == ("", "AssocMaxJobsLimit")
    # In the queue of fast at most 2; a job that starts in its other partition leaves that one.
    for number in (4, 5):
        made.count_submission(job(number, partition=1))
    asks = job(6, partition=1)
    assert made.refusal((asks,)) == "AssocMaxSubmitJobLimit"
    made.count_submission(job(5, partition=0), -1)
    assert made.refusal((asks,)) == ""


def test_commands_set_limits_in_one_partition() -> None:
    people = read_associations(
        "add account phys\nadd user ann Account=phys Partition=fast,all MaxJobs=4\n"
        "modify user where name=ann partition=fast set MaxJobs=2\n"
        "modify user ann set GrpJobs=9\n"
        "modify user where name=ann partition=other set MaxJobs=1\n"
    )
    found = {key[2]: (one.max_jobs, one.grp_jobs) for key, one in people.in_partition.items()}
    assert found == {"fast": (2.0, 9.0), "all": (4.0, 9.0)}
