"""What a record shows that the description lacks, on records made for it; and the fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Change, Cluster, NodeGroup
from sim.params import Spec
from sim.trace import Trace
from tests.trainyard.labs.backtests.test_run import DAY_S, check, made
from trainyard.cli.backtest import report_lines
from trainyard.labs.backtests import fit, infer
from trainyard.labs.backtests.figures import Measures, measure
from trainyard.labs.backtests.fit import Knob, Option
from trainyard.labs.backtests.proposal import (
    CAPACITY,
    HIDDEN,
    MAINTENANCE,
    NODES,
    TIME_LIMITS,
    Proposal,
)
from trainyard.labs.backtests.record import RecordedJobs
from trainyard.runs.run import run
from trainyard.store import Store
from trainyard.study.check import parameter_value, with_values
from trainyard.study.scenario import Scenario, TraceSpec

HOUR_S = 3600.0


def jobs(rows: Sequence[tuple[float, float, float, int]], **more: object) -> Trace:
    """Jobs from (submission, start, end, GPUs)."""
    submit, start, end, gpus = zip(*rows, strict=True)
    frame = pd.DataFrame(
        {
            "job_id": [str(at) for at in range(len(rows))],
            "submit_time_s": submit,
            "start_time_s": start,
            "duration_s": np.subtract(end, start),
            "num_gpus": gpus,
            **more,
        }
    )
    return Trace.of(frame)


def found(trace: Trace, cluster: Cluster, policy: str = "fifo") -> dict[str, Proposal]:
    base = Scenario(TraceSpec("x"), cluster, Spec.parse(policy))
    return {one.id: one for one in infer.proposals(trace, base)}


def test_room_beside_a_waiting_job_for_certain() -> None:
    # Two nodes of 4 GPUs. The second job (3 GPUs) waits from 100 to 500 beside 7 free GPUs until
    # 300, then beside 4, which may be 2 on each node: then nothing is certain.
    trace = jobs([(0, 0, 1000, 1), (100, 500, 600, 3), (300, 300, 900, 3)])
    idle = infer.unused_room(RecordedJobs.from_trace(trace), trace, Cluster.parse("2x4:v100"))
    assert (idle.from_s.tolist(), idle.to_s.tolist()) == ([100.0], [300.0])
    assert idle.free.tolist() == [7.0]
    assert idle.waiting_s == 400.0
    assert idle.share == 0.5
    # Spells that a scheduler's own interval explains do not count.
    short = jobs([(0, 0, 1000, 1), (100, 159, 600, 3)])
    assert (
        infer.unused_room(RecordedJobs.from_trace(short), short, Cluster.parse("2x4:v100")).share
        == 0.0
    )


def test_room_in_another_partition_is_none() -> None:
    groups = (
        NodeGroup(1, 4, "v100", partitions=("a",)),
        NodeGroup(1, 4, "v100", partitions=("b",)),
    )
    trace = jobs([(0, 0, 1000, 4), (100, 1000, 1100, 1)], partition=["a", "a"])
    assert infer.unused_room(RecordedJobs.from_trace(trace), trace, Cluster(groups)).share == 0.0
    other = jobs([(0, 0, 1000, 4), (100, 1000, 1100, 1)], partition=["a", "b"])
    assert infer.unused_room(RecordedJobs.from_trace(other), other, Cluster(groups)).share == 1.0


@pytest.fixture(scope="module")
def on_one_node() -> pd.DataFrame:
    """What FIFO did with jobs on one node of four GPUs."""
    frame = made()
    on = Scenario(TraceSpec("x"), Cluster.parse("1x4:v100"), Spec("fifo"))
    done = run(on, trace=Trace.of(frame))
    return frame.assign(start_time_s=done.jobs["first_start_s"].to_numpy())


def test_machines_that_others_use_are_proposed_and_explain_the_record(
    on_one_node: pd.DataFrame, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tests.trainyard.labs.backtests.test_run.CLUSTER", Cluster.parse("2x4:v100")
    )
    report = check(on_one_node, "fifo", store).report
    assert report is not None
    assert report.past is not None
    assert report.past.level == "nothing"
    assert "limits or other load" in report.headline
    rows = {row.proposal.id: row for row in report.proposals}
    hidden = rows[HIDDEN]
    assert hidden.proposal.changes == (Change(0.0, (1,), present=False),)
    assert hidden.effect > 0.9
    assert any("Others use about" in line for line in report_lines(report))
    applied = check(on_one_node, "fifo", store, use=(HIDDEN,)).report
    assert applied is not None
    assert applied.past is not None
    assert applied.past.level == "reproduces"
    used = {row.proposal.id: row.used for row in applied.proposals}
    assert used[HIDDEN]
    with pytest.raises(AssertionError, match="proposes no 'nonsense'"):
        check(on_one_node, "fifo", store, use=("nonsense",))


def test_a_record_of_the_described_cluster_proposes_no_machines(on_one_node: pd.DataFrame) -> None:
    told = found(Trace.of(on_one_node), Cluster.parse("1x4:v100"))
    assert not {HIDDEN, CAPACITY} & told.keys()


def test_a_node_on_which_nobody_was_seen_while_jobs_waited() -> None:
    cluster = Cluster((NodeGroup(2, 4, "v100", name="n"),))
    first, second = (node.name for node in cluster.nodes)
    hours = [(0, 0, 1), (1, 1, 2), (2, 2, 3), (40, 40, 41), (41, 41, 42), (5, 20, 21)]
    trace = jobs(
        [(s * HOUR_S, a * HOUR_S, b * HOUR_S, 4) for s, a, b in hours],
        node_list=[first] * 5 + [second],
    )
    proposal = found(trace, cluster)[NODES]
    assert proposal.changes == (
        Change(3 * HOUR_S, (0,), present=False),
        Change(40 * HOUR_S, (0,), present=True),
    )
    assert f"{first} day 1, 03:00–day 2, 16:00" in proposal.evidence
    # Without anybody who waited it was idle.
    idle = jobs(
        [(a * HOUR_S, a * HOUR_S, b * HOUR_S, 4) for _, a, b in hours],
        node_list=[first] * 5 + [second],
    )
    assert NODES not in found(idle, cluster)


@pytest.mark.parametrize("runs_on", [False, True])
def test_a_gap_without_starts_while_jobs_wait_is_maintenance(runs_on: bool) -> None:
    rows = [(at * 60.0, at * 60.0, at * 60.0 + 30, 1) for at in range(200)]
    rows += [(12_000.0, 40_000.0, 40_100.0, 1)]
    if runs_on:
        rows[-2] = (*rows[-2][:2], 50_000.0, 1)
    proposal = found(jobs(rows), Cluster.parse("1x4:v100"))[MAINTENANCE]
    assert "1 job waited" in proposal.evidence
    if runs_on:
        assert not proposal.applicable
        assert "cannot be simulated" in proposal.evidence
    else:
        assert proposal.changes == (
            Change(12_000.0, (0,), present=False),
            Change(40_000.0, (0,), present=True),
        )


def test_a_user_who_stays_at_a_plateau_beside_room_seems_limited() -> None:
    # One after the other, though ten wait and seven GPUs are free.
    rows = [(0.0, at * 100.0, at * 100.0 + 100, 1) for at in range(40)]
    told = found(jobs(rows, user=["ann"] * 40), Cluster.parse("1x8:v100"))
    assert "ann 1 (98 % of the time)" in told["limits-user"].evidence
    # With a limit of 1 GPU they are served one after the other.
    assert (told["limits-user"].quotas, told["limits-user"].tenant) == ("ann: 1", "user")
    cluster, trace = Cluster.parse("1x8:v100"), jobs(rows, user=["ann"] * 40)
    base = Scenario(TraceSpec("x"), cluster, Spec("fifo"))
    limited = run(told["limits-user"].apply_to(base), trace=trace).jobs["first_start_s"]
    assert limited.tolist() == trace.numbers("start_time_s").tolist()
    assert run(base, trace=trace).jobs["first_start_s"].max() < 500
    # Parameters of a policy inside a limit are found there.
    slurm = told["limits-user"].apply_to(replace(base, allocator=Spec("slurm"))).allocator
    changed = with_values(slurm, {"half_life_h": 6.0, "borrow": True})
    assert (parameter_value(changed, "half_life_h"), parameter_value(changed, "borrow")) == (
        6.0,
        True,
    )
    assert parameter_value(slurm, "half_life_h") == 168.0
    # What quotas do not bound is shown only.
    odd = found(jobs(rows, user=["ann; bob: 3"] * 40), Cluster.parse("1x8:v100"))["limits-user"]
    assert not odd.applicable
    assert "Describe the limit in the policy" in odd.evidence
    alone = [(at * 100.0, at * 100.0, at * 100.0 + 100, 1) for at in range(40)]
    assert "limits-user" not in found(jobs(alone, user=["ann"] * 40), Cluster.parse("1x8:v100"))


def test_jobs_without_a_limit_get_one_that_they_keep() -> None:
    rows = [(at * 100.0, at * 100.0, at * 100.0 + 5 * HOUR_S, 1) for at in range(40)]
    trace, cluster = jobs(rows), Cluster.parse("8x8:v100")
    proposal = found(trace, cluster, "slurm")[TIME_LIMITS]
    assert proposal.values == {"default_limit_h": 6.0}
    base = Scenario(TraceSpec("x"), cluster, Spec("slurm"))
    assert parameter_value(proposal.apply_to(base).allocator, "default_limit_h") == 6.0
    assert TIME_LIMITS not in found(trace, cluster, "slurm:default_limit_h=6")
    assert TIME_LIMITS not in found(trace, cluster, "fifo")


# -- fit
# --------------------------------------------------------------------------------------------------

BASE = Scenario(TraceSpec("x"), Cluster.parse("1x4:v100"), Spec("slurm"))


def turned(title: str, name: str, *values: object) -> Knob:
    def option(value: object) -> Option:
        return Option(
            f"{value}",
            lambda one: replace(one, allocator=with_values(one.allocator, {name: value})),
        )

    return Knob(title, tuple(map(option, values)))


def errors(*seconds: float) -> list[Measures]:
    return [measure(np.array([one]), np.array([0.0])) for one in seconds]


def test_a_setting_is_kept_if_it_wins_by_more_than_chance() -> None:
    knobs = [
        turned("A", "weight_age", 1, 2),
        turned("B", "weight_size", 1),
        turned("C", "queue_depth", 1),
    ]

    def measured(one: Scenario) -> list[Measures]:
        age, size, depth = (
            parameter_value(one.allocator, name)
            for name in ("weight_age", "weight_size", "queue_depth")
        )
        total = {1000: 100.0, 1: 80.0, 2: 50.0}[age] - 1.0 * (size == 1) - 20.0 * (depth == 1)
        # Error and bias are both that.
        return errors(total - 1, total + 1)

    done = fit.descend(BASE, knobs, measured)
    assert done.wanted == ()
    assert done.scenario.allocator == Spec.of("slurm", weight_age=2, queue_depth=1)
    assert [(one.knob, one.option, one.objective_s, one.kept) for one in done.steps] == [
        ("", "", 200.0, True),
        ("A", "1", 160.0, False),
        ("A", "2", 100.0, True),
        ("B", "1", 98.0, False),
        ("C", "1", 60.0, True),
    ]
    # Of two values 4 s apart; two standard errors of a difference are 5.7 s then.
    assert {round(one.spread_s, 6) for one in done.steps} == {2.828427}


def test_more_repeats_prove_more_although_their_range_is_wider() -> None:
    knob = turned("A", "weight_age", 1)

    def tried(repeats: int) -> bool:
        def measured(one: Scenario) -> list[Measures]:
            middle = 100.0 if one == BASE else 90.0
            return errors(*([middle - 6, middle + 6] * repeats)[:repeats])

        return fit.descend(BASE, [knob], measured).steps[1].kept

    # The setting wins by 20 s (error and bias); repeats lie 24 s apart, 12 s around their mean.
    # Two standard errors of the difference: 2 * sqrt(2) * 12 / sqrt(repeats - 1).
    assert [tried(repeats) for repeats in (2, 4, 6)] == [False, True, True]


def test_a_setting_under_which_the_policy_cannot_run_is_not_kept() -> None:
    lost = replace(measure(np.array([1.0]), np.array([0.0])), error_s=np.inf, bias_s=np.inf)

    def measured(one: Scenario) -> list[Measures]:
        return errors(1.0, 3.0) if one == BASE else [lost, lost]

    done = fit.descend(BASE, [turned("A", "weight_age", 1)], measured)
    assert [one.kept for one in done.steps] == [True, False]


def test_a_fit_asks_for_what_it_needs_and_ends_after_sixty_runs() -> None:
    assert fit.descend(BASE, (), lambda _: []).wanted == (BASE,)
    knob = turned("A", "weight_age", *range(1, 21))

    def measured(one: Scenario) -> list[Measures]:
        return errors(1.0, 1.0, 1.0) if one == BASE else []

    # 3 runs and 60 more are too many.
    assert fit.descend(BASE, [knob], measured).wanted == ()
    few = turned("A", "weight_age", 1, 2)
    # What has fewer values is tried all the same.
    wanted = fit.descend(BASE, [knob, few], measured).wanted
    assert [parameter_value(one.allocator, "weight_age") for one in wanted] == [1, 2]


def test_the_open_settings_of_slurm() -> None:
    trace = jobs([(at * 100.0, at * 100.0, at * 100.0 + 60, 1) for at in range(40)])
    proposal = Proposal("hidden-load", "w", "e", (Change(0.0, (1, 2), present=False),))
    start = replace(BASE, cluster=Cluster.parse("4x4:v100"))
    limits = Proposal("limits-user", "w", "e", quotas="ann: 1", tenant="user")
    knobs = {one.title: one for one in fit.knobs(trace, start, (proposal, limits), ())}
    # A limit comes before machines that are gone, which could stand for it.
    assert list(knobs)[-2:] == ["Limits by user", "Hidden load"]
    assert [one.text for one in knobs["Half-life of usage"].options] == ["84 h", "336 h"]
    # What no record tells is tried together.
    assert [one.text for one in knobs["Fair share, Nodes that count for the size"].options] == [
        f"{share}, Those {nodes}"
        for share in ("Fair Tree (from 19.05)", "Classic")
        for nodes in ("asked for", "needed")
    ]
    half = knobs["Hidden load"].options[1].make(start)
    assert half.cluster.changes == (Change(0.0, (1,), present=False),)
    applied = fit.knobs(trace, start, (proposal,), ("hidden-load",))
    assert "Hidden load" not in {one.title for one in applied}


def test_a_quality_of_service_that_stays_at_a_plateau_of_cores() -> None:
    # One job of two cores after the other, though all wait and six cores are free.
    rows = [(0.0, at * 100.0, at * 100.0 + 100, 0) for at in range(40)]
    trace = jobs(rows, cpus=2.0, qos=["low"] * 40)
    cluster = Cluster((NodeGroup(1, 0, "", 8.0, 64.0),))
    limit = found(trace, cluster)["limits-qos"]
    assert (limit.quotas, limit.tenant, limit.resource) == ("low: 2", "qos", "cpus")
    base = Scenario(TraceSpec("x"), cluster, Spec("slurm"))
    starts = [
        run(one, trace=trace).jobs["first_start_s"].to_numpy()
        for one in (limit.apply_to(base), base)
    ]
    # In both the main pass follows an end by three seconds at most.
    wanted = trace.numbers("start_time_s")
    assert np.all(np.diff(starts[0]) >= 100)
    assert np.all(np.abs(starts[0] - wanted) <= 4 * np.arange(1, 41))
    assert starts[1].max() < 1200


@pytest.mark.slow
def test_a_fit_finds_the_rule_by_which_a_record_was_made(store: Store) -> None:
    frame = made()
    frame["user"] = np.random.default_rng(3).choice(["a", "a", "a", "b", "c"], len(frame))
    frame["time_limit_s"] = 2 * frame["duration_s"]
    rule = Spec.parse("slurm:weight_fairshare=100000,half_life_h=6,backfill=no")
    done = run(Scenario(TraceSpec("x"), Cluster.parse("1x4:v100"), rule), trace=Trace.of(frame))
    frame["start_time_s"] = done.jobs["first_start_s"].to_numpy()
    begin = with_values(rule, {"half_life_h": 12.0})
    report = check(frame, str(begin), store, fit=True, repeats=2, judge_s=DAY_S).report
    assert report is not None
    assert report.fit is not None
    assert parameter_value(report.fit.scenario.allocator, "half_life_h") == 6.0
    assert report.fit.sentence.startswith("Fitted: Half-life of usage: 6 h. The median error is ")
    assert report.fit.past is not None
    assert report.fit.past.level == "reproduces"
    assert report.fit.carries
    assert report.fit.values == {"half_life_h": 6.0}
    assert "Parameters: slurm:half_life_h=6" in report_lines(report)
    json.dumps(report.to_json(), allow_nan=False)
