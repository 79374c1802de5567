"""Reservations, nodes for one user, constraints with counts, usage at the start, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from allocators import make
from allocators.sites.slurm.fairshare import FairShare, read_usage, usage_decay_per_s
from allocators.sites.slurm.keys import MISSED
from allocators.sites.slurm.reservations import Calendar, read_reservations
from allocators.sites.slurm.rules import next_reset_s
from sim.cluster import Cluster, NodeGroup
from sim.conditions import Conditions
from sim.contract import ParameterError, Spec
from sim.engine.simulator import Simulator
from sim.errors import TrainyardError
from tests.allocators.sites.test_slurm import job
from tests.allocators.sites.test_slurm_site import FOUR, conf, jobs, starts

EPOCH = "2026-01-01T08:00:00"
EPOCH_S = 1_767_254_400.0
RES = (
    "ReservationName={name} StartTime=2026-01-01T{begin} EndTime=2026-01-01T{end} Nodes={nodes}"
    " NodeCnt=2 Features=(null) PartitionName=(null) Flags={flags} Users={users} Groups=(null)"
    " Accounts=(null)\n"
)


def reserved(**changed: str) -> str:
    usual = {"name": "r", "begin": "08:10:00", "end": "08:30:00", "nodes": "n[3-4]"}
    return RES.format(**{**usual, "flags": "SPEC_NODES", "users": "bob", **changed})


def ran(rows: list[dict[str, Any]], text: str) -> tuple[list[float], Any]:
    given = {"main_phase_s": 0.0, "bf_phase_s": 0.0, "calc_phase_s": 0.0}
    policy = make(Spec.of("slurm", conf=conf(), reservations=text, **given))
    trace = replace(jobs(*rows), epoch=EPOCH)
    result = Simulator(trace, FOUR, policy, Conditions(seed=1)).run()
    return [float(one) for one in result.jobs["first_start_s"]], policy


def test_a_reservation_is_read() -> None:
    (one,), findings = read_reservations(reserved(flags="MAINT,DAILY,FLEX", users="-ann,bob"))
    assert one.begin_s == EPOCH_S + 600
    assert one.end_s == EPOCH_S + 1800
    assert (one.every_s, one.nodes, one.maintenance) == (86_400.0, ("n3", "n4"), True)
    assert one.admits("bob", "")
    assert not one.admits("ann", "")
    assert not one.admits("cyd", "")
    missed = [finding.sentence() for finding in findings if finding.why]
    assert missed == ["reservations, line 1: Flags=FLEX is not simulated."]
    assert read_reservations("No reservations in the system\n") == ((), ())


@pytest.mark.parametrize(
    "text",
    [
        "Nodes=n1",
        "ReservationName=r StartTime=soon",
        "ReservationName=r StartTime=2026-01-01T08:00:00 NodeCnt=two",
        "ReservationName=r StartTime=2026-01-01T08:00:00 Duration=long",
        "ReservationName=r StartTime=2026-01-01T08:00:00 Nodes=n[1",
    ],
)
def test_a_reservation_that_cannot_be_read_names_the_line(text: str) -> None:
    with pytest.raises(TrainyardError, match="reservations, line 1"):
        read_reservations(text)


def test_who_is_in_a_group_is_not_known_so_groups_admit_nobody() -> None:
    text = reserved(users="(null)").replace("Groups=(null)", "Groups=phys")
    (one,), findings = read_reservations(text)
    assert not one.admits("ann", "phys")
    (missed,) = [finding for finding in findings if finding.kind == MISSED]
    assert missed.sentence() == (
        "reservations, line 1: Groups=phys is not simulated: no job may use it."
    )
    (one,), _ = read_reservations(text.replace("Users=(null)", "Users=bob"))
    assert (one.admits("bob", ""), one.admits("ann", "")) == (True, False)
    text = reserved(nodes="(null)").replace("Features=(null)", "Features=fast")
    missed = next(finding for finding in read_reservations(text)[1] if finding.kind == MISSED)
    assert missed.key == "Features"


def test_nodes_that_the_cluster_does_not_have_are_said_and_a_name_counts_once() -> None:
    one, _ = read_reservations(reserved(nodes="n[3-4],n3,zz[1-2]"))
    calendar = Calendar(EPOCH_S, ["n1", "n2", "n3", "n4"], one)
    assert calendar.nodes == {"r": 0b1100}
    _, policy = ran([{}], reserved(nodes="n4,zz[1-7]"))
    assert policy.remarks() == (
        "reservation r names zz1, zz2, zz3, zz4, zz5 and 2 more, which the cluster does not have.",
    )


def test_times_come_again_and_edges_follow() -> None:
    one, _ = read_reservations(reserved(flags="DAILY"))
    calendar = Calendar(EPOCH_S, ["n1", "n2", "n3", "n4"], one)
    assert list(calendar.spans(one[0], 90_000.0, 180_000.0)) == [(173_400.0, 174_600.0)]
    assert [calendar.next_edge_s(at_s) for at_s in (0.0, 600.0, 1800.0)] == [
        600.0,
        1800.0,
        87_000.0,
    ]
    asks = job(0, 4, 600.0)
    assert calendar.barred_nodes(0.0, asks) == 0  # ends as it begins
    assert calendar.barred_nodes(1.0, asks) == 0b1100
    assert calendar.barred_nodes(1800.0, asks) == 0


def test_a_reservation_holds_from_its_begin_until_just_before_its_end() -> None:
    one, _ = read_reservations(reserved())
    calendar = Calendar(EPOCH_S, ["n1", "n2", "n3", "n4"], one)
    asks = job(0, 4, 600.0, reservation="r")
    held = [calendar.holds(asks, at_s) for at_s in (599.0, 600.0, 1799.0, 1800.0)]
    assert held == [False, True, True, False]


def test_plans_look_at_the_first_time_behind_their_window_only() -> None:
    one, _ = read_reservations(reserved(flags="HOURLY"))
    calendar = Calendar(EPOCH_S, ["n1", "n2", "n3", "n4"], one)
    # 600 to 1,800 s of each hour; plans begin within 5,000 s, and the third is the first behind.
    spans = list(calendar.reserved_spans(job(0, 4, 600.0), 0.0, 5000.0, 1e9))
    assert [(round(begin_s), end_s) for begin_s, end_s, _ in spans] == [
        (600, 1800.0),
        (4200, 5400.0),
        (7800, 9000.0),
    ]
    # A job in the reservation has its nodes not from 0, 1,800 and 5,400 s on.
    own = job(0, 4, 600.0)
    own.reservation = "r"
    spans = list(calendar.reserved_spans(own, 0.0, 5000.0, 1e9))
    assert [(round(begin_s), round(end_s)) for begin_s, end_s, _ in spans] == [
        (0, 1_000_000_000),
        (0, 600),
        (1800, 4200),
        (5400, 7800),
    ]


def test_jobs_keep_off_reserved_nodes_that_they_would_not_leave_in_time() -> None:
    # Four nodes, two of them reserved for bob from 600 to 1,800 s. Limits are 600 s.
    long = {"tasks": 4, "duration_s": 500.0, "time_limit_s": 900.0}
    rows = [
        long,  # 0: would hold a node beyond 600 s, so it takes one that is free: n1
        long,  # 1: n2
        long,  # 2: has no node until job 0 ends
        {"tasks": 4, "duration_s": 300.0, "time_limit_s": 400.0},  # 3: n3, ends before
        {"tasks": 8, "user": "bob", "reservation": "r"},  # 4: from 600 s on
        {"tasks": 4, "reservation": "r"},  # 5: ann may not
        {"tasks": 4, "reservation": "none"},  # 6: there is none
    ]
    found, policy = ran(rows, reserved())
    assert max(found[0], found[1], found[3]) <= 40
    assert 500 <= found[2] <= 540
    assert 600 <= found[4] <= 604
    assert found[5] != found[5]
    assert found[6] != found[6]
    assert policy.remarks() == (
        "1 job names a reservation that it may not use (ReservationAccessDenied): refused.",
        "1 job names a reservation that it may not use (ReservationInvalid): refused.",
        "The backfill tested 1.6 jobs a cycle (Depth Mean of sdiag).",
    )


def test_a_maintenance_of_all_nodes_holds_everybody_up() -> None:
    rows = [{"time_limit_s": 900.0}, {"time_limit_s": 500.0}, {"submit_time_s": 700.0}]
    found, _ = ran(rows, reserved(nodes="ALL", flags="MAINT", users="root"))
    assert 1800 <= found[0] <= 1840
    assert found[1] <= 35
    assert 1800 <= found[2] <= 1840


def test_without_dates_nothing_is_reserved_and_that_is_said() -> None:
    policy = make(Spec.of("slurm", conf=conf(), reservations=reserved(nodes="ALL")))
    found = Simulator(jobs({}), FOUR, policy).run().jobs["first_start_s"]
    assert found[0] <= 60
    assert "The trace has no dates" in policy.remarks()[0]  # type: ignore[attr-defined]


# -- nodes for one user, counts, sockets
# --------------------------------------------------------------------------------------------------


def test_nodes_for_one_user() -> None:
    one = {"tasks": 1, "cpus": 1}
    cluster = Cluster((NodeGroup(1, 0, "", 4.0, 4.0, hosts="n1"),))
    rows = jobs(one | {"exclusive": "user"}, one, one | {"user": "bob"})
    text = conf().replace("n[1-4]", "n1").replace("n[1-2]", "n1")
    found = starts(rows, text, cluster)
    assert max(found[:2]) < 10
    assert found[2] >= 100
    # A partition says the same of all its jobs.
    rows = jobs(one, one, one | {"user": "bob"})
    assert starts(rows, text, cluster)[2] < 10
    assert (
        starts(rows, text.replace("Default=YES", "Default=YES ExclusiveUser=YES"), cluster)[2]
        >= 100
    )


def test_so_many_nodes_of_each_feature() -> None:
    cluster = Cluster(
        (
            NodeGroup(2, 0, "", 4.0, 4.0, hosts="n[1-2]", features=("slow",)),
            NodeGroup(2, 0, "", 4.0, 4.0, hosts="n[3-4]", features=("fast",)),
        )
    )
    rows = jobs(
        {"tasks": 3, "cpus": 3, "constraint": "[slow*2&fast*1]", "exclusive": "yes"},
        {"tasks": 1, "cpus": 1, "constraint": "slow"},
        {"tasks": 1, "cpus": 1, "constraint": "fast"},
    )
    found = starts(rows, conf(), cluster)
    assert found[0] < 10
    assert found[1] >= 100  # both slow nodes are taken wholly
    assert found[2] < 40  # one fast node is left


def test_whole_sockets() -> None:
    # Two sockets of two cores: two jobs of one core fill the node, a third waits.
    text = conf().replace("CPUs=4", "Sockets=2 CoresPerSocket=2").replace("n[1-4]", "n1")
    text = text.replace("n[1-2]", "n1")
    cluster = Cluster((NodeGroup(1, 0, "", 4.0, 4.0, hosts="n1"),))
    rows = jobs(*[{"tasks": 1, "cpus": 1}] * 3)
    assert starts(rows, text, cluster)[2] < 10
    assert starts(rows, text.replace("CR_Core_Memory", "CR_Socket_Memory"), cluster)[2] >= 100


# -- usage
# --------------------------------------------------------------------------------------------------


def test_usage_at_the_start_lowers_who_has_used() -> None:
    text = (
        "Account|User|RawShares|RawUsage|\nroot||1|900|\n phys||1|900|\n"
        "  phys|ann|1|900|\n  phys|bob|1|0|\n"
    )
    assert list(read_usage(text)) == [("phys", "ann", 900.0), ("phys", "bob", 0.0)]
    with pytest.raises(ParameterError, match="sshare -alP"):
        list(read_usage("a|b\n1|2\n"))
    with pytest.raises(ParameterError, match="line 2"):
        list(read_usage("Account|User|RawUsage\na|b|much\n"))
    # All nodes are taken for 400 s; then who has used nothing goes first.
    accounts = "add account phys\nadd user ann Account=phys\nadd user bob Account=phys\n"
    full = {"tasks": 16, "duration_s": 400.0, "user": "cyd"}
    rows = jobs(
        full,
        {"tasks": 16, "account": "phys"},
        {"tasks": 16, "account": "phys", "user": "bob"},
    )
    weight = conf("PriorityWeightFairshare=10000")
    ann, bob = starts(rows, weight, accounts=accounts)[1:]
    assert ann < bob
    ann, bob = starts(rows, weight, accounts=accounts, usage=text)[1:]
    assert bob < ann
    # It counts before priorities are renewed for the first time, too.
    rows = jobs(full | {"duration_s": 100.0}, *rows.frame.to_dict("records")[1:])
    ann, bob = starts(rows, weight, accounts=accounts, usage=text, calc_phase_s=299.0)[1:]
    assert bob < ann


@pytest.mark.parametrize("half_life_s", [1e-9, 0.1, 0.693, 1.0])
def test_the_shortest_half_lives_forget_at_once(half_life_s: float) -> None:
    assert 0.0 <= usage_decay_per_s(half_life_s) < 0.31
    assert usage_decay_per_s(0.0) == usage_decay_per_s(inf) == 1.0


@pytest.mark.parametrize(
    ("period", "days"),
    [("DAILY", 1), ("WEEKLY", 3), ("MONTHLY", 31), ("QUARTERLY", 90), ("YEARLY", 365)],
)
def test_when_usage_is_reset(period: str, days: int) -> None:
    # The 1st of January 2026 is a Thursday.
    midnight_s = EPOCH_S - 8 * 3600
    assert next_reset_s(period, EPOCH_S) == midnight_s + days * 86_400
    assert next_reset_s("NONE", EPOCH_S) == inf


def test_a_reset_forgets_all_usage() -> None:
    fair = FairShare((), inf, 1.0, tree=True)
    fair.book(fair.user_share("", "ann"), 100.0)
    fair.reset()
    assert fair.user_share("", "ann").usage == 0.0
