from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from sim.cluster import Change, Cluster
from sim.contract import Spec
from sim.errors import ParameterError
from trainyard.runs.queue import RunGroup, RunQueue, Submission, Task
from trainyard.runs.run import run, summarize_run
from trainyard.runs.task import Numbers
from trainyard.store import Store
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.size_question import SizeQuestion
from trainyard.study.study import Study
from trainyard.sweeps import plan
from trainyard.sweeps.plan import PlanRun
from trainyard.traces.sources import load_trace

CLUSTER = Cluster.parse("2x4:v100,1x4:k80")
STUDY = Study(
    Scenario(TraceSpec("sample:tiny"), CLUSTER, Spec("fifo")), (Spec("fifo"), Spec("srtf"))
)
QUESTION = SizeQuestion(STUDY, (0,), (1,), (8,), "queue_mean_s", 600.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


def asked(question: SizeQuestion, store: Store) -> PlanRun:
    made = PlanRun(question, store, "inline")
    made.run()
    assert (made.state, made.error) == ("done", "")
    return made


def value(question: SizeQuestion, size: tuple[int, ...], policy: int) -> float:
    """The metric, of a run in which all jobs complete; else it meets no target."""
    scenario = question.study_at(size).policy_scenarios(policy)[0]
    trace = load_trace(scenario.trace)
    numbers = summarize_run(scenario, run(scenario, trace=trace), trace)
    return float(numbers[question.metric]) if numbers["completed"] == numbers["jobs"] else math.inf


def test_the_answer_is_that_of_trying_every_size(store: Store) -> None:
    made = asked(QUESTION, store)
    for policy, answer in enumerate(made.answers()):
        holding = [size for size in range(1, 9) if value(QUESTION, (size,), policy) <= 600.0]
        assert answer.size == (min(holding),)
        assert answer.over
        assert answer.usd_per_h == pytest.approx(
            QUESTION.study_at((min(holding),)).base.cluster.price_per_hour
        )
        if min(holding) > 1:
            fewer = value(QUESTION, (min(holding) - 1,), policy)
            assert answer.fewer == pytest.approx(fewer) or math.isinf(fewer)
    assert made.done == sum(answer.runs for answer in made.answers())
    readings = made.readings()
    assert readings.loc[readings["holds"], "value"].max() <= 600.0
    assert asked(QUESTION, store).readings().equals(readings)


def test_runs_are_told_of_before_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, told = PlanRun(replace(QUESTION, high=(3,)), Store(tmp_path), "inline"), set[str]()
    put, asked_for = RunQueue.put, list[str]()

    def checked(self: RunQueue, task: Task, whose: str | RunGroup) -> Submission:
        _, key = task.key.split()
        assert key in told
        asked_for.append(key)
        return put(self, task, whose)

    monkeypatch.setattr(RunQueue, "put", checked)
    made.shelve = told.update
    made.run()
    assert (made.state, made.error) == ("done", "")
    assert told == set(made.keys) == set(asked_for)


def test_a_planted_anomaly_is_said_and_the_smallest_that_holds_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding = {3, 6, 7, 8}

    def planted(store: Store, keys: list[str], *, whole: bool = False) -> dict[str, Numbers]:
        del store, whole
        return {
            key: Numbers(
                {"queue_mean_s": 1.0 if int(key) in holding else 9.0, "completed": 5, "jobs": 5}, ()
            )
            for key in keys
        }

    monkeypatch.setattr(plan, "stored_numbers", planted)
    monkeypatch.setattr(
        plan, "scenario_key", lambda scenario, store: str(len(scenario.cluster.nodes) - 1)
    )
    made = asked(replace(QUESTION, limit=5.0), store)
    for answer in made.answers():
        assert answer.size == (3,)
        assert answer.assumed.startswith(
            "More nodes do not always do better here: 4, 5 miss the target although fewer meet it."
        )
        assert answer.fewer == 9.0


def test_no_size_holds_and_the_nearest_is_told(store: Store) -> None:
    # With GPUs enough nobody waits, but a job takes as long as it takes.
    made = asked(replace(QUESTION, metric="jct_mean_s", limit=1000.0, high=(4,)), store)
    for policy, answer in enumerate(made.answers()):
        tried = made.readings()["size"].unique().tolist()
        assert answer.size is None
        assert answer.nearest is not None
        assert answer.nearest.value == min(value(made.question, (size,), policy) for size in tried)
        assert math.isnan(answer.usd_per_h)
        assert (answer.best, answer.alone) == (None, None)


def test_a_target_that_is_far_off_ends_soon_and_says_so(store: Store) -> None:
    question = replace(QUESTION, metric="jct_mean_s", limit=1.0, high=(40,))
    for answer in asked(question, store).answers():
        assert (answer.size, answer.runs) == (None, 1)
        assert "a mix that misses the target by far" in answer.assumed


@pytest.mark.parametrize(("high", "mixes"), [(3, 3), (20, 11), (200, 17)])
def test_the_estimate_is_that_of_doubling_and_bisection(high: int, mixes: int) -> None:
    assert replace(QUESTION, high=(high,)).expected_runs == mixes * len(STUDY.allocators)
    several = replace(QUESTION, groups=(0, 1), low=(0, 0), high=(high, high))
    most = (high + 1) ** 2
    assert several.expected_runs == min(most, 1 + 4 * high.bit_length()) * len(STUDY.allocators)


def test_a_budget_limits_one_kind_of_nodes(store: Store) -> None:
    prices = [QUESTION.price_per_h((count,)) for count in range(9)]
    question = replace(QUESTION, limit=1e9, budget_per_h=(prices[5] + prices[6]) / 2)
    made = asked(question, store)
    assert made.readings()["usd_per_h"].max() == pytest.approx(prices[5])
    assert made.readings()["size"].max() == 5
    assert replace(question, budget_per_h=prices[5]).search().largest == ((5,),)
    assert question.search().most_alone == (4,)
    with pytest.raises(ParameterError, match="Even the fewest nodes make the cluster cost"):
        replace(question, budget_per_h=prices[1] - 0.01)


def test_no_mix_over_the_budget_is_tried_not_even_first(store: Store) -> None:
    question = SizeQuestion(STUDY, (0, 1), (0, 0), (4, 4), "queue_mean_s", 1200.0)
    budget = question.price_per_h((2, 2))
    readings = asked(replace(question, budget_per_h=budget), store).readings()
    assert len(readings)
    assert readings["usd_per_h"].max() <= budget + 1e-9


def test_a_mix_on_which_fewer_jobs_complete_than_on_a_later_one_holds_no_longer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither end of what is within the budget completes all jobs; a mix between them does.
    def planted(store: Store, keys: list[str], *, whole: bool = False) -> dict[str, Numbers]:
        del store, whole
        return {
            key: Numbers(
                {"queue_mean_s": 1.0, "completed": 5 if "0" not in key else 4, "jobs": 5}, ()
            )
            for key in keys
        }

    monkeypatch.setattr(plan, "stored_numbers", planted)

    def counted(scenario: Scenario, store: Store) -> str:
        del store
        return "".join(
            str(sum(node.gpu_type == kind for node in scenario.cluster.nodes))
            for kind in ("v100", "k80")
        )

    monkeypatch.setattr(plan, "scenario_key", counted)
    question = SizeQuestion(STUDY, (0, 1), (0, 0), (3, 9), "queue_mean_s", 5.0)
    prices = question.price_per_h((1, 0)), question.price_per_h((0, 1))
    made = asked(replace(question, budget_per_h=3 * prices[0] + 0.4 * min(prices)), store)
    readings = made.readings()
    assert readings["completed"].max() == 1.0
    assert not readings.loc[readings["completed"] < 1.0, "holds"].any()
    assert all(answer.size is not None and 0 not in answer.size for answer in made.answers())


def test_a_size_on_which_fewer_jobs_complete_meets_no_target(store: Store) -> None:
    # On one or two nodes the larger jobs are impossible, so the others hardly wait.
    question = SizeQuestion(
        replace(STUDY, base=replace(STUDY.base, cluster=Cluster.parse("8x1:v100"))),
        (0,),
        (1,),
        (8,),
        "queue_mean_s",
        1e9,
    )
    readings = asked(question, store).readings()
    assert readings.loc[readings["completed"] < 1.0, "size"].nunique() >= 1
    assert not readings.loc[readings["completed"] < readings["completed"].max(), "holds"].any()


def test_where_a_higher_metric_is_better(store: Store) -> None:
    made = asked(replace(QUESTION, metric="utilisation", limit=0.2, high=(3,)), store)
    readings = made.readings()
    assert (
        readings["holds"] == ((readings["value"] >= 0.2) & (readings["completed"] == 1.0))
    ).all()
    assert readings["holds"].any()


def test_the_cheapest_of_two_types(store: Store) -> None:
    question = SizeQuestion(STUDY, (0, 1), (0, 0), (4, 4), "queue_mean_s", 1200.0)
    made = asked(question, store)
    sizes = [(a, b) for a in range(5) for b in range(5) if a + b]
    for policy, answer in enumerate(made.answers()):
        assert answer.size is not None
        holding = [size for size in sizes if value(question, size, policy) <= 1200.0]
        assert question.price_per_h(answer.size) <= min(map(question.price_per_h, holding)) + 1e-9
    assert made.readings()["second"].max() > 0


def test_purchases_of_four_types_are_those_of_trying_all(store: Store) -> None:
    study = replace(
        STUDY,
        base=replace(STUDY.base, cluster=Cluster.parse("1x8:v100,1x8:k80")),
        allocators=(Spec("fifo"),),
    )
    offers = Cluster.parse("1x8:a100,1x8:t4").groups
    bounds = (1, 1, 0, 0), (4, 4, 2, 2)
    question = SizeQuestion(study, (0, 1, 2, 3), *bounds, "queue_p95_s", 60.0, offers=offers)
    assert question.owned == question.search().largest[0] == (1, 1, 0, 0)
    mixes = list(product(*(range(low, high + 1) for low, high in zip(*bounds, strict=True))))
    assert len(mixes) == 4 * 4 * 3 * 3
    made = asked(question, store)
    (answer,) = made.answers()
    assert answer.size is not None
    holding = [mix for mix in mixes if value(question, mix, 0) <= 60.0]
    assert question.price_per_h(answer.size) == pytest.approx(
        min(map(question.price_per_h, holding))
    )
    assert 0 < len(holding) < len(mixes)
    assert made.done < len(mixes) / 4
    assert answer.now is not None
    assert (answer.now.size, answer.now.holds) == ((1, 1, 0, 0), False)
    assert question.extra_per_month(question.owned) == 0.0
    # 8 GPUs of an A100 node at 2.93 USD per hour.
    assert question.extra_per_month((1, 1, 1, 0)) == pytest.approx(8 * 2.93 * 730)


def test_none_of_both_is_no_cluster_and_no_crash(store: Store) -> None:
    made = asked(SizeQuestion(STUDY, (0, 1), (0, 0), (0, 0), "queue_mean_s", 1.0), store)
    assert [answer.size for answer in made.answers()] == [None, None]
    assert [(answer.failed, answer.why) for answer in made.answers()] == [
        (1, "The cluster has no nodes. Add a row with at least one node.")
    ] * 2


def test_a_search_whose_runs_fail_says_why(store: Store) -> None:
    study = Study(STUDY.base, (Spec("dp_elastic"),))
    (answer,) = asked(replace(QUESTION, study=study, high=(3,)), store).answers()
    assert (answer.size, answer.nearest, answer.failed, answer.over) == (None, None, 3, True)
    assert answer.why.startswith("dp_elastic cannot run here: ")


def test_of_mixes_the_one_with_all_jobs_sets_the_measure(store: Store) -> None:
    # Only the first type has room for the largest jobs: without it nobody waits for long, because
    # they never run.
    cluster = Cluster.parse("2x8:v100,2x1:k80")
    question = SizeQuestion(
        replace(STUDY, base=replace(STUDY.base, cluster=cluster)),
        (0, 1),
        (0, 0),
        (2, 2),
        "queue_mean_s",
        1e9,
    )
    for answer in asked(question, store).answers():
        assert answer.size is not None
        assert answer.size[0] > 0
    readings = asked(question, store).readings()
    assert (readings["completed"].max(), readings["completed"].min() < 1.0) == (1.0, True)
    assert not readings.loc[readings["completed"] < 1.0, "holds"].any()


def test_dated_changes_stay_with_their_machines() -> None:
    changes = (Change(10.0, (1, 3, 4), False), Change(20.0, (3,), True))
    cluster = replace(Cluster.parse("4x4:v100,2x4:k80"), changes=changes)
    question = SizeQuestion(
        replace(STUDY, base=replace(STUDY.base, cluster=cluster)),
        (0,),
        (0,),
        (8,),
        "queue_mean_s",
        600.0,
    )
    # The fifth machine is the first of the second kind, whatever stands before it.
    assert question.cluster((4,)) == cluster
    assert question.cluster((6,)).changes == (
        Change(10.0, (1, 3, 6), False),
        Change(20.0, (3,), True),
    )
    assert question.cluster((2,)).changes == (Change(10.0, (1, 2), False),)
    assert question.cluster((0,)).changes == (Change(10.0, (0,), False),)


def test_a_group_with_a_name_racks_and_partitions_keeps_them(store: Store) -> None:
    group = replace(CLUSTER.groups[0], name="fast", rack_size=2, partitions=("a", "b"), count=4)
    question = replace(
        QUESTION,
        study=replace(STUDY, base=replace(STUDY.base, cluster=Cluster((group,)))),
        low=(0,),
        high=(3,),
    )
    (made,) = question.cluster((3,)).groups
    assert made == replace(group, count=3)
    assert all(answer.over for answer in asked(question, store).answers())


def test_cancelled_at_once(store: Store) -> None:
    made = PlanRun(
        replace(QUESTION, limit=123.0, study=replace(STUDY, base=replace(STUDY.base, seed=5))),
        store,
        "inline",
    )
    made.cancel()
    made.run()
    assert made.state == "cancelled"
    assert not any(answer.over for answer in made.answers())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": (2,)}, "One to 4 different groups of nodes may vary, numbered from 0 to 1"),
        ({"groups": (0, 0), "low": (1, 1), "high": (2, 2)}, "different groups"),
        ({"low": (3,), "high": (2,)}, "is not a range"),
        ({"low": (1, 1)}, "needs a range"),
        ({"metric": "nonsense"}, "No target can be set for 'nonsense'"),
        ({"limit": float("inf")}, "must be a finite number"),
        ({"check": "no"}, "neither true nor false"),
        ({"high": (20_000,)}, "at most 10,000 sizes"),
        ({"begin": 9}, "begins at 9 nodes, which is not between 1 and 8"),
        ({"limit": float("nan")}, "limit = nan is not a number"),
        (
            {"groups": (0, 1), "low": (1, 1), "high": (2, 2), "budget_per_h": 0.01},
            "Raise the budget",
        ),
    ],
)
def test_wrong_questions_are_one_sentence(change: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        replace(QUESTION, **change)  # type: ignore[arg-type]


def test_a_question_comes_back_from_json_and_from_an_address() -> None:
    for question in (
        QUESTION,
        SizeQuestion(STUDY, (0, 1), (0, 0), (4, 4), "makespan_s", 1200.0, budget_per_h=50.0),
        SizeQuestion(STUDY, (2, 0), (0, 2), (4, 4), offers=Cluster.parse("1x8:t4/64c").groups),
    ):
        assert SizeQuestion.from_json(question.to_json()) == question
        assert SizeQuestion.unpack(question.pack()) == question
    with pytest.raises(ParameterError, match="needs 'high'"):
        SizeQuestion.from_json(
            {key: item for key, item in QUESTION.to_json().items() if key != "high"}
        )


def test_prices_are_those_of_the_cluster() -> None:
    question = SizeQuestion(STUDY, (0, 1), (0, 0), (4, 4), "makespan_s", 1200.0)
    assert question.price_per_h((2, 1)) == pytest.approx(CLUSTER.price_per_hour)
    assert question.price_per_h((0, 0)) == 0.0
