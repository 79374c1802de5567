"""Every allocator of the registry against `tests.conformance`."""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocators import REGISTRY, make
from allocators.placement import RUN_TIME_NEEDS
from sim.cluster import Change, Cluster, NodeGroup
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Delta,
    Needs,
    ParameterError,
    Plan,
    QueueRule,
    Spec,
    View,
    parameters,
    rule_of,
)
from sim.engine.fast import runner
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.errors import ContractError
from sim.overheads import Overheads
from sim.params import spec_of
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.walk import situations, trace_of
from tests.conformance import (
    Observed,
    Scenario,
    alternatives,
    check_feasible,
    check_finished,
    digest,
    jobs,
    result_of,
    scenarios,
    specs,
)
from tests.counting import count_steps

NAMES = list(REGISTRY)
GOALS = {"short waits", "fairness", "heterogeneous", "elastic", "combined", "baseline"}


def sample(name: str) -> Scenario:
    return next(item for item in scenarios() if item.name == name)


# -- what it says of itself
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_card_and_needs(name: str) -> None:
    allocator = make(Spec(name))
    card = allocator.card
    assert isinstance(card, Card)
    for sentence in (card.what, card.cost, card.limits):
        assert sentence[0].isupper()
        assert sentence.endswith(".")
    assert card.title
    assert card.source
    assert card.certainty.startswith(("exact", "our reading"))
    assert 3 <= len(card.how) <= 5
    for line in card.how:
        assert line[0].isupper()
        assert line.endswith(".")
        assert len(line) <= 130
    assert card.goals
    assert set(card.goals) <= GOALS
    assert 1 <= len(card.brief.split()) <= 9
    assert not card.brief.endswith(".")
    assert isinstance(allocator.needs, Needs)
    assert isinstance(allocator.cadence, Cadence)
    assert (REGISTRY[name].__doc__ or "").split("\n\n")[0].endswith((".", ";"))


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_described(name: str) -> None:
    for info in parameters(REGISTRY[name]):
        assert info.help.endswith(".") or info.help.endswith("never"), info
        assert info.kind in {"bool", "int", "float", "text", "file", "choice", "numbers", "spec"}
        if info.kind in {"int", "float", "numbers"}:
            assert info.low is not None
    settable = {item.name for item in dataclasses.fields(REGISTRY[name]) if item.init}  # type: ignore[arg-type]
    assert settable == {info.name for info in parameters(REGISTRY[name])}


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_has_a_name_in_words(name: str) -> None:
    for info in parameters(REGISTRY[name]):
        assert tuple(dict(info.labels)) == info.choices
        assert all(label[0].isupper() and "_" not in label for _, label in info.labels)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_survive_every_form(name: str) -> None:
    for text in map(str, specs(name)):
        made = make(Spec.parse(text))
        assert str(spec_of(name, made)) == text
        assert Spec.from_json(spec_of(name, made).to_json()) == spec_of(name, made), text
        assert str(spec_of(name, pickle.loads(pickle.dumps(made)))) == text


@pytest.mark.parametrize("name", NAMES)
def test_wrong_parameters_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="has no parameter"):
        make(Spec.of(name, no_such_thing=1))
    for info in parameters(REGISTRY[name]):
        in_words = {"choice", "bool", "numbers", "spec", "text", "file"}
        wrong: Any = "neither" if info.kind in in_words else (info.low or 0) - 1
        with pytest.raises(ParameterError, match="neither" if wrong == "neither" else info.name):
            make(Spec.of(name, **{info.name: wrong}))


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(ParameterError, match="Choose one of fifo, recorded"):
        make(Spec("nobody"))


# -- one call
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_do_gives_an_empty_plan(name: str) -> None:
    allocator, scenario = make(Spec(name)), sample("mixed")
    simulator = Simulator(scenario.trace, scenario.cluster, allocator)
    for now_s in (0.0, 1.0, 1e6):
        simulator._view.move_to(now_s, Delta())
        plan = allocator.allocate(simulator._view)  # type: ignore[arg-type]
        assert not plan.changes
        assert not plan.refuse


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_all_that_it_declares_and_nothing_else(name: str) -> None:
    # The view refuses what is not declared, so the other tests show that nothing else is read; here
    # one need is taken away.
    for need in ("remaining_work", "rates", "pause", "telemetry", "recorded_start"):
        allocator = make(Spec(name))
        needs = allocator.needs
        if need in needs.reads:
            with pytest.raises(ContractError, match=need):
                sample("staffed" if "servers" in needs.requires else "mixed").run(
                    Observed(allocator, dataclasses.replace(needs, reads=needs.reads - {need}))
                )


@pytest.mark.parametrize("name", NAMES)
def test_cost_of_a_decision_is_bounded(name: str) -> None:
    # 300 jobs, up to 64 of them on GPUs and the rest waiting: some lines of Python for each job.
    # Policies that resize jobs weigh all sizes of all jobs against each other, but now and then;
    # policies that decide in rounds start all that has gathered in one.
    count = 300
    frame = jobs(4, count, (1, 1, 2, 4), 600, 2).assign(
        start_time_s=lambda frame: frame["submit_time_s"]
    )
    observed = Observed(make(Spec(name)))
    simulator = Simulator(
        Trace.of(frame), Cluster.parse("8x8:v100"), observed, Conditions(horizon_s=4000)
    )
    steps = count_steps(simulator.run)
    seldom = "scaling" in observed.needs.requires or not observed.cadence.on_arrival
    assert observed.calls > (5 if seldom else count)
    assert steps / observed.calls <= (250 if seldom else 45) * count


# -- whole runs
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_plans_are_feasible_runs_end_and_fresh_instances_agree_even_through_a_pickle(
    name: str,
) -> None:
    for scenario in scenarios():
        copied: Allocator = pickle.loads(pickle.dumps(make(Spec(name))))
        observed = Observed(copied)
        result = scenario.run(observed)
        assert result.digest() == digest(Spec(name), scenario.name)
        check_finished(result)
        check_feasible(result, scenario)
        assert observed.calls <= 30 * len(scenario.trace) + 10 * len(result.outages)


@pytest.mark.parametrize("name", NAMES)
@given(situation=situations(), data=st.data())
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_traces_clusters_and_parameters(
    name: str, situation: Any, data: st.DataObject
) -> None:
    spec = Spec.parse(data.draw(st.sampled_from([str(spec) for spec in specs(name)])))
    count = len(situation.trace)
    frame = situation.trace.frame.assign(
        start_time_s=data.draw(st.lists(st.integers(0, 90), min_size=count, max_size=count)),
        vc=data.draw(st.lists(st.sampled_from(["a", "b", None]), min_size=count, max_size=count)),
    )
    scenario = Scenario("random", Trace.of(frame), situation.cluster, situation.conditions)
    result = scenario.run(Observed(make(spec)))
    check_finished(result)
    check_feasible(result, scenario)
    assert scenario.run(make(spec)).digest() == result.digest()


@pytest.mark.parametrize("name", NAMES)
def test_survives_an_hour_without_any_node(name: str) -> None:
    scenario = sample("plain")
    everything = tuple(range(len(scenario.cluster.nodes)))
    gone = dataclasses.replace(
        scenario.cluster,
        changes=(Change(50_000.0, everything, False), Change(53_600.0, everything, True)),
    )
    result = Scenario("gone", scenario.trace, gone).run(make(Spec(name)))
    check_finished(result)
    check_feasible(result, Scenario("gone", scenario.trace, gone))
    assert (result.jobs["evictions"] > 0).any()


@pytest.mark.parametrize("name", NAMES)
def test_ends_when_the_nodes_never_come_back(name: str) -> None:
    scenario = sample("plain")
    gone = dataclasses.replace(
        scenario.cluster,
        changes=(Change(50_000.0, tuple(range(len(scenario.cluster.nodes))), False),),
    )
    result = Scenario("gone", scenario.trace, gone).run(make(Spec(name)))
    # Recorded starts go on on the overflow node, whatever the cluster does.
    assert (set(result.jobs["outcome"]) == {"completed"}) == (result.overflow is not None)
    assert ("can never start" in result.reason) == (result.overflow is None)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_can_be_installed_in_the_middle_of_a_run(name: str) -> None:
    for scenario in scenarios():
        for at_s in (0.0, 40_000.0):
            result = scenario.run(
                Observed(make(Spec.of("switch", at_s=at_s, first=Spec("fifo"), then=Spec(name))))
            )
            check_finished(result)
            check_feasible(result, scenario)


@pytest.mark.parametrize("name", NAMES)
def test_pauses_and_slow_decisions_are_survived(name: str) -> None:
    slow = Conditions(
        overheads=Overheads(start_s=20, restart_s=60, latency_s=7, latency_per_job_s=0.1),
        faults=Faults(mtbf_h=40),
        seed=5,
    )
    scenario = sample("plain")
    result = scenario.run(make(Spec(name)), slow)
    check_finished(result)
    check_feasible(result, scenario)


@pytest.mark.parametrize("name", NAMES)
def test_jobs_that_must_not_be_stopped_are_not(name: str) -> None:
    scenario = sample("plain")
    result = scenario.run(make(Spec(name)), Conditions(overheads=Overheads(on_preempt="forbidden")))
    check_finished(result)
    assert result.jobs["preemptions"].sum() == 0


@pytest.mark.parametrize("text", [*NAMES, "fifo:backfill=first_fit"])
def test_a_job_that_is_given_up_after_its_retries_is_forgotten(text: str) -> None:
    scenario = sample("plain")
    result = scenario.run(
        make(Spec.parse(text)), Conditions(faults=Faults(mtbf_h=15, mttr_h=1, retries=1), seed=2)
    )
    assert set(result.jobs["outcome"]) == {"completed", "failed"}
    assert result.reason == "drained"
    check_feasible(result, scenario)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_larger_than_the_cluster_does_not_hold_up_the_run(name: str) -> None:
    frame = jobs(5, 20, (1, 2), 100, 50)
    frame.loc[3, "num_gpus"] = 64
    result = Simulator(Trace.of(frame), Cluster.parse("2x4:v100"), make(Spec(name))).run()
    check_finished(result)
    assert (result.jobs["outcome"] == "impossible").sum() == (result.overflow is None)


class EverySecond:
    """A periodic policy that never starts anything."""

    cadence = Cadence(on_arrival=False, on_finish=False, on_capacity=False, every_s=1.0)
    needs = Needs()
    card = make(Spec("fifo")).card

    def allocate(self, view: View) -> Plan:
        return EMPTY


def test_a_periodic_policy_does_not_keep_the_run_alive() -> None:
    result = Simulator(
        trace_of([(0, 1, 5), (3, 64, 5)]), Cluster.parse("2x4:v100"), EverySecond()
    ).run()
    assert result.jobs["outcome"].tolist() == ["unfinished", "impossible"]
    assert "can never start" in result.reason
    assert result.end_s <= 7


@pytest.mark.parametrize("name", NAMES)
def test_names_and_order_of_the_rows_do_not_matter(name: str) -> None:
    # Submissions are distinct, so a shuffled table is the same trace with other names.
    scenario = sample("mixed")
    shuffled = scenario.trace.frame.sample(frac=1, random_state=7)
    renamed = Trace.of(shuffled.assign(job_id=[f"x{at}" for at in range(len(shuffled))]))
    run = Scenario("renamed", renamed, scenario.cluster).run(make(Spec(name)))
    assert np.array_equal(jct(run), jct(result_of(Spec(name), "mixed")))


def jct(result: RunResult) -> np.ndarray[Any, Any]:
    return np.sort((result.jobs["finish_s"] - result.jobs["submit_s"]).to_numpy())


def blind(name: str) -> list[Spec]:
    """The default of a policy and each parameter changed alone, where no run time is read."""
    return [spec for spec in specs(name) if not make(spec).needs.reads & RUN_TIME_NEEDS]


@pytest.mark.parametrize("name", [name for name in NAMES if Spec(name) in blind(name)])
def test_what_is_blind_to_run_times_decides_the_same_whatever_they_are(name: str) -> None:
    check_blind(Spec(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if blind(name)])
def test_no_parameter_makes_a_blind_policy_read_run_times(name: str) -> None:
    for spec in blind(name):
        check_blind(spec)


def check_blind(spec: Spec) -> None:
    """Change the run times of all jobs that have not ended: all decisions until then stay."""
    scenario, at_s = sample("plain"), 60_000.0
    before = result_of(spec, "plain")
    segments = before.segments
    frame = scenario.trace.frame.copy()
    ended = set(segments.loc[(segments["ended"] == "finished") & (segments["t1"] <= at_s), "job"])
    begun = set(segments.loc[segments["t0"] <= at_s, "job"]) - ended
    untouched = sorted(set(range(len(frame))) - ended - begun)
    durations = frame["duration_s"].to_numpy(copy=True)
    durations[untouched] = durations[untouched][::-1]
    durations[sorted(begun)] *= 3  # still running at that instant, as they were
    after = Scenario(
        "permuted", Trace.of(frame.assign(duration_s=durations)), scenario.cluster
    ).run(make(spec))
    assert untouched
    assert begun
    decisions = [item.decisions[item.decisions["t"] <= at_s] for item in (before, after)]
    pd.testing.assert_frame_equal(*decisions, obj=str(spec))
    starts = [
        item.segments.loc[item.segments["t0"] <= at_s, ["job", "t0", "gpus"]]
        .sort_values(["t0", "job"])
        .to_numpy()
        for item in (before, after)
    ]
    assert np.array_equal(*starts), spec


# -- differences
# --------------------------------------------------------------------------------------------------


# Exact solvers are to find the same plans (docs/decisions/0017); which of them does it matters only
# where one is missing.
AGREE = {
    "solver": {"auto", "highs", "cbc"},
    # Every scenario names virtual clusters, and none brings a configuration of quotas.
    "tenant": {"auto", "vc"},
    "fair_sharing": {"as_configured", "off"},
    # Without a slurm.conf, "auto" is the fair share of today's Slurm.
    "fairshare": {"auto", "tree"},
}


BESIDE: Final[dict[str, dict[str, Any]]] = {
    "bf_phase_s": {"bf_interval_s": 600.0},  # half a minute is soon over for jobs of hours
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_makes_a_difference(name: str) -> None:
    for info in parameters(REGISTRY[name]):
        values = [info.default, *alternatives(info)]
        if info.kind in {"text", "file"} and not info.choices:
            continue  # their own tests say what such a text changes
        if not info.choices:
            # A near value makes a run about as long; the last one is a limit and differs most.
            near, far = values[1:2], values[:1:-1]
            pairs = [(info.default, value) for value in [*near, *far]]
            assert any(
                differ(name, info.name, *pair, beside)
                for beside in company(name, info.name)
                for pair in pairs
            ), f"{info.name} changes nothing"
            continue
        pairs = [
            pair for pair in combinations(values, 2) if not set(pair) <= AGREE.get(info.name, set())
        ]
        same = [
            pair
            for pair in pairs
            if not any(
                differ(name, info.name, *pair, beside) for beside in company(name, info.name)
            )
        ]
        assert same == [], f"{info.name}: these make no difference: {same}"


def company(name: str, parameter: str) -> Iterator[dict[str, Any]]:
    """No other parameter changed; then, for a parameter that matters only beside another one, those
    or values whose titles its own help quotes.
    """
    yield {}
    yield BESIDE.get(parameter, {})
    known = {info.name: info for info in parameters(REGISTRY[name])}
    quoted = set(re.findall(r"(?<!\w)'([^']+)'", known[parameter].help))
    for other in known.values():
        if other.name != parameter and other.title in quoted:
            yield from ({other.name: value} for value in alternatives(other))
        yield from ({other.name: one} for one in other.choices if other.label(one) in quoted)


def differ(name: str, parameter: str, one: Any, other: Any, beside: dict[str, Any]) -> bool:
    pair = [
        Spec.of(
            name, **beside, **({} if value == default_of(name, parameter) else {parameter: value})
        )
        for value in (one, other)
    ]
    refused = [is_refused(spec) for spec in pair]
    if any(refused):
        return not all(refused)
    requires = make(pair[0]).needs.requires
    # Last to first: those made for few policies tell most of them, in the shortest runs.
    telling = [
        scenario.name
        for scenario in reversed(scenarios())
        if scenario.conditions.perf.scales or "scaling" not in requires
    ]
    return any(digest(pair[0], scenario) != digest(pair[1], scenario) for scenario in telling)


def is_refused(spec: Spec) -> bool:
    try:
        make(spec)
    except ParameterError:
        return True
    return False


def default_of(name: str, parameter: str) -> Any:
    return next(info.default for info in parameters(REGISTRY[name]) if info.name == parameter)


def test_any_two_differ() -> None:
    results = {
        name: tuple(digest(Spec(name), scenario.name) for scenario in scenarios()) for name in NAMES
    }
    same = [pair for pair in combinations(NAMES, 2) if results[pair[0]] == results[pair[1]]]
    assert same == [], (
        f"{same} give the same result in every scenario of tests/conformance.py. If one of them"
        " reads a column that is the same for all jobs there, let a scenario vary it."
    )


def test_a_cluster_of_one_node_makes_queues_alike() -> None:
    # The suite can tell equal from different: on one GPU without conflict every policy that starts
    # what has room at once gives the same result but for the number of decisions. Those that decide
    # at intervals, or wait for a virtual machine, do not.
    queues = ["recorded", "fifo", "sjf", "easy", "srtf", "las", "partition", "switch"]
    trace = trace_of([(0, 1, 2), (5, 1, 2), (10, 1, 2)], start_time_s=[0, 5, 10])
    cluster = Cluster((NodeGroup(1, 1, "v100"),))
    assert {tuple(jct(Simulator(trace, cluster, make(Spec(name))).run())) for name in queues} == {
        (2.0, 2.0, 2.0)
    }


# -- what it states as a rule
# --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fast_engine")
@pytest.mark.parametrize(
    "name", [name for name in NAMES if any(rule_of(make(spec)) for spec in specs(name))]
)
def test_a_rule_is_what_the_policy_does(name: str) -> None:
    for spec in specs(name):
        if (rule := rule_of(make(spec))) is not None:
            check_rule(spec, rule)


def check_rule(spec: Spec, rule: QueueRule) -> None:
    """The fast engine, led by the rule, gives the run of the kernel."""
    scenario = sample("mixed")
    one_pool_each = tuple(
        dataclasses.replace(group, partitions=()) for group in scenario.cluster.groups
    )
    cluster, trace = dataclasses.replace(scenario.cluster, groups=one_pool_each), scenario.trace
    if rule.preemption != "none":
        cluster = dataclasses.replace(cluster, groups=(NodeGroup(2, 4, "mid"),))
        trace = Trace.of(trace.frame.drop(columns="gpu_types_allowed"))
    if rule.by:
        apart = tuple(NodeGroup(2, 4, "mid", partitions=(name,)) for name in ("red", "blue"))
        cluster = dataclasses.replace(cluster, groups=apart)
        names = np.resize(["red", "blue"], len(trace))
        trace = Trace.of(trace.frame.assign(**{rule.by: names}))
    made = runner.run(runner.prepare_run(trace, cluster, make(spec), scenario.conditions))
    asked = Simulator(trace, cluster, make(spec), scenario.conditions).run()
    assert made.decisions.equals(asked.decisions), spec
    assert made.digest() == asked.digest(), spec
    assert made.remarks == asked.remarks, spec
