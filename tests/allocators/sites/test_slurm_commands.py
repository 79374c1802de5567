"""Associations and qualities of service as commands of sacctmgr."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.sites.slurm.accounts import AssociationLimits, read_associations
from allocators.sites.slurm.sacctmgr import change_commands, sacctmgr_script
from sim.contract import ParameterError

SEEDS = st.integers(0, 2**32 - 1)
OPTIONS = (
    ("GrpTRES", "cpu=64,gres/gpu=8", "mem=200G", "node=3"),
    ("GrpTRESMins", "cpu=6000"),
    ("MaxTRES", "cpu=12,gres/gpu:a100=2"),
    ("GrpJobs", "9"),
    ("MaxJobs", "3", "7"),
    ("MaxSubmitJobs", "30"),
    ("GrpWall", "1-0"),
    ("MaxWall", "90", "2-12:00:30"),
    ("GraceTime", "00:05:00"),
)
OF_QOS = (
    *OPTIONS,
    ("Priority", "10", "0"),
    ("UsageFactor", "0.5", "2"),
    ("LimitFactor", "1.5"),
    ("Flags", "NoReserve,DenyOnLimit", "OverPartQOS"),
    ("Preempt", "low", "low,normal"),
    ("PreemptMode", "requeue", "cluster"),
    ("PreemptExemptTime", "00:10:00"),
    ("MaxTRESPerUser", "gres/gpu=4"),
    ("MaxJobsPA", "5"),
)
OF_OTHERS = (
    *OPTIONS,
    ("Fairshare", "1", "20", "parent"),
    ("Priority", "5"),
    ("DefaultQOS", "low"),
)


def drawn(rng: random.Random) -> str:
    """A script with accounts in a tree, users in some of them and in partitions, and qualities."""

    def some(options: tuple[tuple[str, ...], ...]) -> str:
        chosen = rng.sample(options, rng.randint(0, 4))
        return "".join(f" {key}={rng.choice(values)}" for key, *values in chosen)

    lines = [f"add qos {name}{some(OF_QOS)}" for name in ("low", "high") if rng.random() < 0.7]
    accounts = rng.sample(["phys", "chem", "bio"], rng.randint(1, 3))
    for at, name in enumerate(accounts):
        parent = f" parent={rng.choice(accounts[:at])}" if at and rng.random() < 0.5 else ""
        lines.append(f"add account {name}{parent}{some(OF_OTHERS)}")
    for user in ("ann", "bob"):
        held = rng.sample(accounts, rng.randint(0, len(accounts)))
        for account in held:
            if rng.random() < 0.8:
                lines.append(f"add user {user} account={account}{some(OF_OTHERS)}")
            if rng.random() < 0.4:
                lines.append(f"add user {user} account={account} partition=gpu{some(OPTIONS)}")
        if held and rng.random() < 0.5:
            lines.append(f"modify user {user} set DefaultAccount={rng.choice(held)}")
    return "\n".join(lines) + "\n"


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_what_is_written_reads_the_same(seed: int) -> None:
    people = read_associations(drawn(random.Random(seed)))
    again = read_associations(sacctmgr_script(people))
    assert again.bare == people.bare
    assert change_commands(people, again) == []


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_commands_make_one_state_another(seed: int) -> None:
    rng = random.Random(seed)
    text, wanted = drawn(rng), read_associations(drawn(rng))
    run = "".join(f"{one.text}\n" for one in change_commands(read_associations(text), wanted))
    # Run after the site's own file, whatever stands in it.
    assert read_associations(text + run).bare == wanted.bare


def test_a_resource_that_is_not_named_keeps_its_limit() -> None:
    text = "add qos a GrpTRES=cpu=8,mem=1G\nmodify qos a set GrpTRES=cpu=-1,node=2\n"
    assert read_associations(text).qualities["a"].limits == AssociationLimits(
        grp_tres={"mem": 1024.0, "node": 2.0}
    )


def test_what_is_deleted_is_gone() -> None:
    text = (
        "add qos a\nadd account phys\nadd account chem\nadd user ann account=phys MaxJobs=1\n"
        "add user ann account=chem partition=gpu\nadd user ann account=chem\n"
    )
    people = read_associations(
        f"{text}delete qos a\ndelete user name=ann account=phys\n"
        "delete user name=ann account=chem partition=gpu\ndelete account phys\n"
    )
    assert [(one.account, one.user) for one in people.entries] == [("chem", ""), ("chem", "ann")]
    assert people.qualities == people.in_partition == {}
    assert people.limits.keys() == {("chem", ""), ("chem", "ann")}


def test_an_account_moves_and_settings_are_taken_back() -> None:
    people = read_associations(
        "add account phys\nadd account chem DefaultQOS=a Priority=3 MaxWall=10\n"
        "modify account chem set parent=phys DefaultQOS=-1 Priority=-1 MaxWall=-1\n"
    )
    assert people.entries[1].parent == "phys"
    assert (people.default_qos, people.priorities) == ({}, {})
    assert people.limits["chem", ""].max_wall_s == inf


def test_settings_that_are_not_simulated_are_kept_as_written() -> None:
    old = read_associations("", "Name|Priority|MaxJobsAccruePU\nnormal|0|5\n")
    new = read_associations("", "Name|Priority|MaxJobsAccruePU\nnormal|0|10\n")
    [one] = change_commands(old, new)
    assert one == ("modify qos normal set maxjobsaccruepu=10", "maxjobsaccruepu=5")
    assert [finding.sentence() for finding in old.findings] == [
        "sacctmgr, line 2: maxjobsaccruepu=5 is not simulated: all waiting jobs gain by their age."
    ]


def test_a_time_written_otherwise_is_no_change() -> None:
    one, other = (
        read_associations(f"add qos a GraceTime={grace} MaxWall={wall}\n")
        for grace, wall in (("60", "90"), ("00:01:00", "1:30:00"))
    )
    assert change_commands(one, other) == []
    assert one.bare == other.bare


def test_what_is_not_simulated_is_said_once_with_its_first_line() -> None:
    people = read_associations(
        "Cluster - 'c':Fairshare=1:QOS='normal'\nParent - 'root'\nUser - 'root':AdminLevel='A'\n"
        "QOS - 'high':Priority=9\n"
        "Account - 'phys':Description='of all':Organization='x':Fairshar=3:QOS='normal'\n"
        "Account - 'chem':QOS='normal,high':MaxTRESRunMinsPU=cpu=5\nParent - 'phys'\n"
        "User - 'ann':QOS='normal':Coordinator='chem'\n"
    )
    assert [one.sentence() for one in people.findings] == [
        "sacctmgr, line 5: fairshar=3 is not a setting that is known here, so it has no effect.",
        "sacctmgr, line 5: qos=normal is not simulated: jobs may ask for any quality of service"
        " (and 1 more of such lines).",
        "sacctmgr, line 6: maxtresrunminspu=cpu=5 is not simulated: only GrpTRESRunMins is.",
    ]


USERS = "add account a\nadd account b\nadd user x,y account=a\nadd user y,z account=b\n"


def test_users_may_be_named_by_their_account() -> None:
    people = read_associations(f"{USERS}modify user where account=a set Fairshare=7\n")
    assert {one[:2] for one in people.limits if one[1]} == {
        ("a", "x"), ("a", "y"), ("b", "y"), ("b", "z")
    }  # fmt: skip
    assert [(one.account, one.user) for one in people.entries if one.shares == 7] == [
        ("a", "x"),
        ("a", "y"),
    ]
    people = read_associations(f"{USERS}modify account where parent=root set MaxJobs=2\n")
    assert people.limits["a", ""] == people.limits["b", ""] == AssociationLimits(max_jobs=2)
    people = read_associations(
        f"add qos q\n{USERS}sacctmgr -i modify user set MaxJobs=2\nmodify -i qos set Priority=3"
    )
    assert [limits.max_jobs for (_, user), limits in people.limits.items() if user] == [2] * 4
    assert people.qos == {"q": 3}


@pytest.mark.parametrize(
    "command",
    [
        "delete account where parent=a",
        "add user account=a",
        "delete user",
    ],
)
def test_a_command_about_nobody_is_refused(command: str) -> None:
    with pytest.raises(ParameterError, match=r"sacctmgr, line 5: the command does not say which"):
        read_associations(f"{USERS}{command}\n")


def test_a_condition_that_is_misspelt_is_not_one_for_all() -> None:
    with pytest.raises(ParameterError, match="line 5: acount=a is not a condition that is known"):
        read_associations(f"{USERS}sacctmgr -i modify user where acount=a set MaxJobs=2\n")


def test_where_names_the_old_parent_and_set_the_new_one() -> None:
    text = f"{USERS}add account c parent=a\nmodify account where parent=a set parent=b\n"
    above = {one.account: one.parent for one in read_associations(text).entries if not one.user}
    assert above == {"a": "root", "b": "root", "c": "b"}


def test_qualities_of_a_user_are_said_where_none_is_listed() -> None:
    text = "add account a QOS=normal\nadd user x account=a qos=Long,normal\n"
    assert [one.sentence() for one in read_associations(text).findings] == [
        "sacctmgr, line 2: qos=Long,normal is not simulated: jobs may ask for any quality of"
        " service."
    ]


def test_an_account_is_deleted_with_all_below_it() -> None:
    text = f"{USERS}add account c parent=a MaxJobs=3\nadd user v account=c partition=p MaxJobs=1\n"
    people = read_associations(f"{text}delete account a\n")
    assert [(one.account, one.user) for one in people.entries] == [
        ("b", ""),
        ("b", "y"),
        ("b", "z"),
    ]
    assert people.in_partition == {}
    assert people.limits.keys() == {("b", ""), ("b", "y"), ("b", "z")}


@pytest.mark.parametrize("setting", ["MaxWall=abc", "PreemptExemptTime=abc", "GraceTime=1:xx"])
def test_a_time_that_cannot_be_read_is_said_with_its_line(setting: str) -> None:
    with pytest.raises(ParameterError, match=r"sacctmgr, line 2: \w+: '.*' is no time; write it"):
        read_associations(f"add account a\nadd qos b {setting}\n")


def told(before: str, after: str) -> list[str]:
    return [
        one.text for one in change_commands(read_associations(before), read_associations(after))
    ]


def test_a_user_of_one_partition_is_not_let_into_all() -> None:
    account = "add account name=a\n"
    one = "add user name=x account=a partition=p MaxJobs=1\n"
    assert told(account, account + one) == [
        "add user name=x account=a partition=p DefaultAccount=a MaxJobs=1"
    ]


def test_what_is_no_limit_is_changed_once() -> None:
    user = "add account name=a\nadd user name=x account=a Fairshare={}\n"
    one = "add user name=x account=a partition=p MaxJobs=1\n"
    assert told(user.format(1) + one, user.format(3) + one) == [
        "modify user x where account=a set Fairshare=3"
    ]


def test_types_of_a_resource_in_a_dump() -> None:
    dump = "Cluster - 'c'\nParent - 'root'\nAccount - 'phys':Description='d':GrpTRES={}:MaxJobs=3\n"
    before, after = (
        dump.format(text) for text in ("gres/gpu:a100=4,cpu=8", "gres/gpu:a100=8,cpu=8")
    )
    limits = read_associations(before).limits["phys", ""]
    assert (limits.grp_tres, limits.max_jobs) == ({"gres/gpu:a100": 4, "cpu": 8}, 3)
    assert told(before, after) == ["modify account phys set GrpTRES=gres/gpu:a100=8"]


def test_a_priority_is_taken_back() -> None:
    made = read_associations("add qos hi Priority=5\nmodify qos hi set priority=-1\n")
    assert made.qualities["hi"].priority == 0


def test_lists_grow_and_shrink() -> None:
    text = "add qos high Preempt=low,mid Flags=NoReserve\n"
    text += (
        "modify qos high set Preempt+=tiny Flags+=DenyOnLimit\nmodify qos high set Preempt-=low\n"
    )
    made = read_associations(text).qualities["high"]
    assert made.preempts == {"mid", "tiny"}
    assert made.flags == {"noreserve", "denyonlimit"}
