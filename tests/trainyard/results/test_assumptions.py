"""What is said to be assumed: only what moves a result of the policies at hand."""

from __future__ import annotations

from typing import Any

import pytest

from sim.cluster import Cluster
from sim.params import Spec
from tests.sim.scripted import jobs
from trainyard.results.assumptions import assumption_sentences
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study

ROWS = ((0, 1, 10), (0, 4, 20), (0, 0, 5))
NONE: list[dict[str, Any]] = [{"restarts": 0}]


def said(
    *policies: str,
    perf: str = "rigid",
    costs: str = "restart_s=60",
    summaries: list[dict[str, Any]] | None = NONE,
    nodes: int = 2,
    estimator: str = "exact",
    **columns: Any,
) -> tuple[str, ...]:
    specs = tuple(map(Spec.parse, policies))
    base = Scenario(
        TraceSpec(),
        Cluster.parse(f"{nodes}x8:v100"),
        specs[0],
        Spec.parse(perf),
        estimator=Spec.parse(estimator),
        overheads=Spec.parse(f"overheads:{costs}"),
    )
    return assumption_sentences(Study(base, specs), jobs(*ROWS, **columns), summaries)


def test_nothing_moves_a_plain_queue() -> None:
    assert said("fifo", "las") == ()
    # Models that let jobs scale change nothing for policies that do not.
    assert said("fifo", "las", perf="power_law") == ()


def test_policies_that_know_run_times_exactly_are_named() -> None:
    exact = "true run time (run-time estimates: exact)."
    assert said("fifo", "sjf") == (f"SJF knows each job's {exact}",)
    assert said("sjf", "easy", "conservative") == (
        f"SJF, EASY backfilling and Conservative backfilling know each job's {exact}",
    )
    assert said("sjf", estimator="noisy") == ()
    # Time limits in place of run times, where the trace has them.
    limited = "easy:run_times=limit"
    within = "partition:by=vc,inner=easy(run_times=limit)"
    for policy in (limited, within):
        assert said(policy, time_limit_s=[20.0, 20.0, 20.0]) == ()
        assert len(said(policy, time_limit_s=[20.0, float("nan"), 20.0])) == 1
        assert len(said(policy)) == 1


@pytest.mark.parametrize(
    ("costs", "sentence"),
    [
        ("restart_s=60", "A stopped or resized job takes 60 s to come back from its checkpoint."),
        ("restart_s=0", "Stopping or resizing a job costs nothing (restart_s = 0 s)."),
        (
            "restart_s=7,on_preempt=lose_all",
            "A stopped job loses all its work, and takes 7 s to begin again.",
        ),
        (
            "restart_s=7,on_preempt=forbidden",
            "No job is stopped by a policy (on_preempt = forbidden).",
        ),
    ],
)
def test_restarts_are_said_where_there_were_any_or_may_be(costs: str, sentence: str) -> None:
    assert said("fifo", "las", costs=costs, summaries=[{"restarts": 0}, {"restarts": 2}]) == (
        sentence,
    )
    assert said("fifo", "las", costs=costs, summaries=None) == (sentence,)


def test_which_jobs_can_be_resized_how_far_and_by_what_curve() -> None:
    two = (
        "2 of 2 GPU jobs are assumed to be resizable, from 0.25 to 4 times the GPUs they asked for,"
        " with "
    )
    assert said("fifo", "greedy_elastic", perf="power_law") == (f"{two}a speed of GPUs^0.75.",)
    mixed = said("greedy_elastic", perf="power_law", model=["resnet50", "bert", ""])
    assert mixed == (f"{two}a speed of GPUs^0.66 to 0.85 by the class of the model.",)
    assert said("greedy_elastic", perf="amdahl:shrink=0.5") == (
        (
            "2 of 2 GPU jobs are assumed to be resizable, from 0.5 to 4 times the GPUs they asked"
            " for, with a serial share of 0.11 (Amdahl's law)."
        ),
    )
    assert said("greedy_elastic", perf="table") == (
        f"{two}the speeds of a table; jobs without a row keep their size.",
    )
    # What the trace says is not assumed.
    sizes = {"min_gpus": [1, 1, 0], "max_gpus": [4, 8, 0]}
    assert said("greedy_elastic", perf="power_law", **sizes, scaling_exponent=[0.9] * 3) == ()
    assert said("greedy_elastic", perf="power_law", **sizes) == (
        "The jobs state between which sizes they can run; assumed: a speed of GPUs^0.75.",
    )


def test_copies_and_servers() -> None:
    known = "HadarE knows each job's true run time (run-time estimates: exact)."
    assert said("hadare") == (
        (
            "Joining the copies of a job takes 5 s every 360 s, and a step is worth 0.95 times as"
            " much for every copy beyond the first."
        ),
        known,
    )
    assert said("hadare", nodes=1) == (known,)
    assert len(said("hadare:max_copies=1")) == 1
    assert said("hadare", perf="rigid:efficiency=1,consolidate_s=0") == (
        "Copies of a job add up in full and cost nothing to join.",
        known,
    )
    first, second, exact = said("fifo", "dlrover", perf="parameter_server")
    assert exact.startswith("DLRover knows")
    assert first.startswith("All policies here run under “Parameter servers”")
    assert second.startswith(
        "3 of 3 jobs do not state parameter servers and are assumed to train with them"
    )
    # Who cannot run has no result to be moved.
    assert said("fifo", "greedy_elastic") == ()
