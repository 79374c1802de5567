"""The elastic program: decisions worked out by hand, solvers against each other, options, bad
input, whole runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import fsum, inf, nan
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pulp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators.elastic import mip, programs
from allocators.elastic.greedy import GreedyElastic
from allocators.elastic.mip import MipElastic, _Optimization
from allocators.elastic.scaling import Market, SizeOptions
from allocators.elastic.utility import OBJECTIVES, Utility
from allocators.queue.fifo import Fifo
from allocators.queue.wrappers import Switch
from sim.cluster import Cluster
from sim.contract import Allocator, Gang, Grant, ParameterError, Part, SolverError, Spec, build
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.scaling import PowerLaw
from sim.result import RunResult
from sim.trace import Trace

SOLVERS = ("dp", "highs", "cbc")


@dataclass(frozen=True)
class Job:
    """A job as the allocator sees it at one instant."""

    left_s: float  # on one unit
    alpha: float = 1.0
    held: int = 0
    sizes: tuple[int, ...] = (1, 2, 4)
    arrival_s: float = 0.0
    served_gpu_s: float = 0.0
    preemptible: bool = True


def grant(units: int) -> Grant:
    return Grant((Gang(Part((0,), (units,))),))


class Instant:
    """A view of some jobs, with one pause for all changes."""

    def __init__(self, jobs: Sequence[Job], now_s: float = 0.0, pause_s: float = 0.0) -> None:
        self.jobs, self.now_s = jobs, now_s
        self.grants = {at: grant(job.held) for at, job in enumerate(jobs) if job.held}
        self.estimates = SimpleNamespace(pause_s=lambda job, old, new: pause_s if old else 0.0)

    def one(self, column: str, job: int) -> float:
        return float(getattr(self.jobs[job], {"remaining_work": "left_s"}.get(column, column)))

    def market(self, capacity: int) -> Market:
        options = [
            SizeOptions(
                at,
                job.sizes,
                tuple(size**job.alpha for size in job.sizes),
                job.held,
                fixed=bool(job.held) and not job.preemptible,
            )
            for at, job in enumerate(self.jobs)
        ]
        running, waiting = (
            tuple(option for option in options if bool(option.held) == runs)
            for runs in (True, False)
        )
        return Market((0,), 1, capacity, running, waiting)


def turn(view: Instant, worth: Utility | None = None, **params: Any) -> _Optimization:
    asked = MipElastic(**params)
    return _Optimization(asked, view, worth or Utility(asked.objective, asked.phi), asked._solvers)  # type: ignore[arg-type]


def decide(
    jobs: Sequence[Job], capacity: int, now_s: float = 0.0, pause_s: float = 0.0, **params: Any
) -> tuple[list[int], dict[str, float]]:
    """Sizes in order of the jobs, and the notes."""
    view = Instant(jobs, now_s, pause_s)
    now = turn(view, **params)
    chosen = now.choose(view.market(capacity))
    return [chosen[job] for job in range(len(jobs))], now.notes


def sizes(jobs: Sequence[Job], capacity: int, **params: Any) -> list[int]:
    return decide(jobs, capacity, **params)[0]


# -- the model of one slot, by hand
# --------------------------------------------------------------------------------------------------

TOY = (Job(7200, 0.9), Job(1800, 0.9), Job(600, 0.6))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_short_look_ahead_starves_the_long_job(solver: str) -> None:
    assert sizes(TOY, 4, lookahead_s=300.0, solver=solver) == [0, 2, 2]
    assert sizes(TOY, 4, lookahead_s=900.0, solver=solver) == [1, 2, 1]


def test_objective_of_the_toy() -> None:
    _, notes = decide(TOY, 4, lookahead_s=900.0)
    assert notes == {
        "objective": pytest.approx(900 / 7200 + 900 * 2**0.9 / 1800 + 1.0),
        "gap": 0.0,
        "candidates": 3.0,
        "resized": 0.0,
    }


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_finishes_in_the_look_ahead_gains_nothing_from_more_but_finishes_sooner(
    solver: str,
) -> None:
    # One unit does it within 900 s: that counts 1, as do two and four. Idle units make it four
    # times as fast; a waiting job gains more by one of them.
    assert decide([Job(900)], 4, lookahead_s=900.0, solver=solver)[1]["objective"] == 1.0
    assert sizes([Job(900)], 4, lookahead_s=900.0, solver=solver) == [4]
    assert sizes([Job(900), Job(90_000, sizes=(3,))], 4, lookahead_s=900.0, solver=solver) == [1, 3]
    # A restart of 400 s: 900 s to go as it is, 400 + 450 on two, 400 + 225 on four. Of 700 s it
    # would be 400 + 300 on two.
    assert sizes([Job(900, held=1)], 4, lookahead_s=900.0, pause_s=400.0, solver=solver) == [4]
    assert sizes([Job(900, held=1)], 4, lookahead_s=900.0, pause_s=700.0, solver=solver) == [1]


@pytest.mark.parametrize("solver", SOLVERS)
def test_equal_jobs_of_which_every_division_is_as_good(solver: str) -> None:
    # Two jobs of 80 minutes, perfectly scalable, on eight units: 8 + 0 and 4 + 4 do the same, 8 x
    # 300 / 4800 of a job: the first gets all.
    same = [Job(4800, sizes=(1, 2, 4, 8))] * 2
    assert sizes(same, 8, lookahead_s=300.0, solver=solver) == [8, 0]
    # Whoever has four keeps them, and the rest goes to the other.
    assert sizes([same[0], replace(same[1], held=4)], 8, lookahead_s=300.0, solver=solver) == [4, 4]


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_an_idle_cluster_is_not_left_idle_over_several_slots(solver: str) -> None:
    # Done in the first of two slots on four units and on eight, without loss by a later slot: the
    # larger is sooner done.
    assert sizes([Job(1200, sizes=(1, 4, 8))], 8, periods=2, slots_gap=0.0, solver=solver) == [8]
    assert sizes(
        [Job(1200, sizes=(1, 4, 8)), Job(1200, sizes=(4,))],
        8,
        periods=2,
        slots_gap=0.0,
        solver=solver,
    ) == [4, 4]


def test_a_change_must_earn_its_pause() -> None:
    # 300 s at speed 1, or 240 s at speed 1.149: the pause is not worth it. Without a pause it is;
    # twice as fast it is, too.
    assert sizes([Job(9000, 0.2, held=1)], 2, lookahead_s=300.0, pause_s=60.0) == [1]
    assert sizes([Job(9000, 0.2, held=1)], 2, lookahead_s=300.0) == [2]
    assert sizes([Job(9000, 1.0, held=1)], 2, lookahead_s=300.0, pause_s=60.0) == [2]
    # Just as good: 300 x 1 = 150 x 2. It stays as it is, from either side.
    assert sizes([Job(9000, 1.0, held=1)], 2, lookahead_s=300.0, pause_s=150.0) == [1]
    assert sizes([Job(9000, 0.0, held=2)], 2, lookahead_s=300.0) == [2]
    assert sizes([Job(9000, 0.0, held=2), Job(9000, sizes=(1,))], 2, lookahead_s=300.0) == [1, 1]


def test_a_pause_longer_than_the_look_ahead_costs_all_of_it_but_no_more() -> None:
    now, notes = decide([Job(9000, held=1), Job(9000, held=1)], 4, lookahead_s=300.0, pause_s=400.0)
    assert (now, notes["objective"]) == ([1, 1], pytest.approx(2 * 300 / 9000))


def test_a_start_costs_no_pause() -> None:
    _, notes = decide([Job(9000, sizes=(1,))], 1, lookahead_s=300.0, pause_s=60.0)
    assert notes["objective"] == pytest.approx(300 / 9000)


def test_running_jobs_keep_their_least_size_unless_they_may_be_stopped() -> None:
    jobs = [Job(90_000, held=2), Job(600)]
    assert sizes(jobs, 2) == [1, 1]
    assert sizes([replace(jobs[0], held=1), jobs[1]], 1) == [1, 0]
    for solver in SOLVERS:
        assert sizes(
            [replace(jobs[0], held=1), jobs[1]], 1, preempt_to_zero=True, solver=solver
        ) == [0, 1]
    assert sizes(
        [replace(jobs[0], held=1, preemptible=False), jobs[1]], 1, preempt_to_zero=True
    ) == [1, 0]


def test_share_of_the_total_work() -> None:
    # The first has a tenth of its work left. As a share of what remains it does 0.9 in the
    # look-ahead, as a share of its whole 0.09; the other 0.45.
    began = Instant([Job(10_000, sizes=(1,)), Job(2000, sizes=(1,))])
    for objective, chosen in (("remaining", {0: 1, 1: 0}), ("total", {0: 0, 1: 1})):
        worth = Utility(objective, 0.0)
        turn(began, worth, objective=objective).choose(began.market(1))
        later = Instant([Job(1000, sizes=(1,)), Job(2000, sizes=(1,))])
        now = turn(later, worth, objective=objective)
        assert now.choose(later.market(1)) == chosen
        assert now.notes["objective"] == pytest.approx(0.9 if objective == "remaining" else 0.45)


def test_speed_ups() -> None:
    # 4^0.9 = 3.48 alone beats 2^0.9 + 2^0.5 = 3.28 together, as far as the other may be left out.
    jobs = [Job(100, 0.9), Job(100_000, 0.5)]
    assert decide(jobs, 4, objective="throughput")[1]["objective"] == pytest.approx(4**0.9)
    assert sizes(jobs, 4, objective="throughput") == [4, 0]
    assert sizes([jobs[0], replace(jobs[1], held=1)], 4, objective="throughput") == [2, 2]
    assert decide([Job(1, 0.5, sizes=(4, 8))], 8, objective="throughput")[1][
        "objective"
    ] == pytest.approx(2**0.5)


def test_time_to_completion() -> None:
    # Two and two: 100/2 + 1000/2. One and two would leave one idle; four for the long one leaves
    # the short one out, at M = 2000.
    jobs = [Job(100), Job(1000)]
    now, notes = decide(jobs, 4, objective="etc")
    assert (now, notes["objective"]) == ([2, 2], pytest.approx(550))
    now, notes = decide(jobs, 1, objective="etc")
    assert (now, notes["objective"]) == ([1, 0], pytest.approx(100 + 2000))


def test_time_to_completion_contains_the_pause_of_a_change() -> None:
    assert decide([Job(1000, held=1)], 2, objective="etc", pause_s=499.0) == (
        [2],
        {"objective": pytest.approx(999), "gap": 0.0, "candidates": 1, "resized": 1},
    )
    now, notes = decide([Job(1000, held=1)], 2, objective="etc", pause_s=501.0)
    assert (now, notes["objective"]) == ([1], pytest.approx(1000))


def test_to_start_a_job_is_worth_more_than_another_can_lose() -> None:
    # The long job would need 100 s more on one unit less; a job of ten days starts nevertheless.
    assert sizes([Job(200, held=2), Job(864_000)], 2, objective="etc") == [1, 1]


def test_waiting_makes_heavier() -> None:
    # 0.9 of one against 0.45 of the other, which has waited for two hours.
    jobs = [Job(1000, sizes=(1,), arrival_s=7200.0), Job(2000, sizes=(1,), arrival_s=0.0)]
    assert decide(jobs, 1, now_s=7200.0)[0] == [1, 0]
    now, notes = decide(jobs, 1, now_s=7200.0, phi=1.0)
    assert (now, notes["objective"]) == ([0, 1], pytest.approx(3 * 0.45))
    assert decide(jobs, 1, now_s=7200.0, phi=0.4)[0] == [1, 0]


def test_waiting_ends_with_the_first_start() -> None:
    worth = Utility("remaining", 1.0)
    waiting = Instant([Job(9000)], now_s=3600.0)
    worth.record_first_start(waiting, 0)  # type: ignore[arg-type]
    for held, now_s in ((1, 9000.0), (0, 18_000.0)):
        later = Instant([Job(9000, held=held, served_gpu_s=5.0)], now_s=now_s)
        (option,) = [*later.market(4).running, *later.market(4).waiting]
        assert worth.evaluate_job(later, option).weight == 2.0  # type: ignore[arg-type]
        worth.record_first_start(later, 0)  # type: ignore[arg-type]
    worth.forget([0])
    assert worth.evaluate_job(waiting, waiting.market(4).waiting[0]).weight == 2.0  # type: ignore[arg-type]


def test_what_ran_before_we_came_has_not_waited() -> None:
    for job in (Job(9000, held=1), Job(9000, served_gpu_s=5.0)):
        view = Instant([job], now_s=3600.0)
        (option,) = [*view.market(4).running, *view.market(4).waiting]
        assert Utility("remaining", 1.0).evaluate_job(view, option).weight == 1.0  # type: ignore[arg-type]


def test_weights_count_in_every_objective() -> None:
    jobs = [Job(1000, sizes=(1,), arrival_s=7200.0), Job(1001, sizes=(1,), arrival_s=0.0)]
    for objective in OBJECTIVES:
        assert decide(jobs, 1, now_s=7200.0, phi=1.0, objective=objective)[0] == [0, 1]


# -- options
# --------------------------------------------------------------------------------------------------


def test_first_come_first_served_admission() -> None:
    # In the toy the long job would be left out; now it must be the first to start.
    assert sizes(TOY, 4, lookahead_s=300.0, fifo_admission=True) == [1, 1, 2]
    assert sizes([Job(600, sizes=(4,)), Job(600)], 2) == [0, 2]
    assert sizes([Job(600, sizes=(4,)), Job(600)], 2, fifo_admission=True) == [0, 0]


def spread(*rows: tuple[float, int, str]) -> Trace:
    """Jobs of 5,000 s and one size as (submitted, GPUs, types allowed)."""
    times, gpus, types = zip(*rows, strict=True)
    columns: dict[str, Any] = {
        "num_gpus": gpus,
        "min_gpus": gpus,
        "max_gpus": gpus,
        "gpu_types_allowed": types,
    }
    return trace(*[(submitted, 5000.0, 1.0) for submitted in times], **columns)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"events": True},
        {"periods": 2},
        {"preempt_to_zero": True},
        {"solver": "cbc"},
        {"max_changes": 1},
    ],
)
def test_first_come_first_served_holds_over_all_types(params: dict[str, Any]) -> None:
    # The third could have a GPU of the other type at once, but the second has none yet.
    jobs = spread((0, 2, "t4"), (1, 2, "t4"), (2, 1, ""))
    for fifo in (True, False):
        result = run(
            jobs, "1x2:v100,1x2:t4", MipElastic(fifo_admission=fifo, **(params if fifo else {}))
        )
        first, second, third = result.jobs["first_start_s"].tolist()
        assert first < second
        assert (third >= second) == fifo


def test_who_is_served_in_a_later_market_is_served() -> None:
    jobs = spread((0, 2, "t4"), (0, 1, "v100"), (0, 1, ""), (0, 2, "t4"), (0, 1, "v100"))
    result = run(jobs, "1x2:v100,1x2:t4", MipElastic(fifo_admission=True), horizon_s=1.0)
    # The first three start on both types; the fourth finds none, and the fifth would find none.
    assert result.segments["job"].tolist() == [0, 1, 2]
    result = run(jobs, "1x4:v100,1x2:t4", MipElastic(fifo_admission=True), horizon_s=1.0)
    assert sorted(result.segments["job"].tolist()) == [0, 1, 2]  # now the fifth would
    result = run(jobs, "1x4:v100,1x2:t4", MipElastic(), horizon_s=1.0)
    assert sorted(result.segments["job"].tolist()) == [0, 1, 2, 4]


def test_first_come_first_served_holds_where_cores_are_short() -> None:
    columns: dict[str, Any] = {
        "num_gpus": [2, 2, 1],
        "min_gpus": [2, 2, 1],
        "max_gpus": [2, 2, 1],
        "cpus": [64.0, 64.0, 0.0],
    }
    jobs = trace((0, 5000, 1.0), (1, 5000, 1.0), (2, 5000, 1.0), **columns)
    for fifo in (True, False):
        first, second, third = (
            run(jobs, "1x8:v100/64c", MipElastic(fifo_admission=fifo))
            .jobs["first_start_s"]
            .tolist()
        )
        assert first < second
        assert (third >= second) == fifo


@pytest.mark.slow
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 900), st.integers(1, 4), st.sampled_from(("", "t4", "v100"))),
        min_size=3,
        max_size=12,
    ),
    cores=st.lists(st.sampled_from((0.0, 4.0, 16.0)), min_size=12, max_size=12),
    granularity=st.sampled_from(("gpu", "node")),
)
@settings(max_examples=25, deadline=None)
def test_first_come_first_served_in_whole_runs(
    rows: list[tuple[int, int, str]], cores: list[float], granularity: str
) -> None:
    rows = sorted(rows)
    gpus = [gpus for _, gpus, _ in rows]
    columns: dict[str, Any] = {
        "num_gpus": gpus,
        "min_gpus": gpus,
        "max_gpus": 4,
        "gpu_types_allowed": [types for *_, types in rows],
        "cpus": cores[: len(rows)],
    }
    jobs = trace(*[(float(submitted), 900.0, 0.8) for submitted, *_ in rows], **columns)
    result = run(
        jobs,
        "1x2:v100/16c,2x4:v100/16c,1x4:t4/16c",
        MipElastic(fifo_admission=True, granularity=granularity),
    )
    starts = result.jobs["first_start_s"].dropna().tolist()
    assert (result.jobs["outcome"] == "completed").all()
    assert starts == sorted(starts)


def test_a_gang_over_two_types_is_not_stopped_for_others() -> None:
    # FIFO gives the first all GPUs of both types. The others are worth more, but neither market may
    # count on its GPUs.
    jobs = trace(
        (0, 50_000, 1.0),
        (500, 400, 1.0),
        (500, 400, 1.0),
        num_gpus=[8, 4, 4],
        min_gpus=[8, 4, 4],
        max_gpus=[8, 4, 4],
    )
    switch = Switch(at_s=300.0)
    switch.assemble(
        lambda spec: MipElastic(preempt_to_zero=True) if spec == Spec("easy") else Fifo(mix=True)
    )
    result = Simulator(
        jobs, Cluster.parse("1x4:v100,1x4:t4"), switch, Conditions(PowerLaw(), horizon_s=2000.0)
    ).run()
    assert result.segments["job"].tolist() == [0]
    notes = result.notes.groupby("name")["value"].max()
    assert notes["candidates"] >= 3
    assert notes["resized"] == 0


def test_most_changes() -> None:
    # Both would like to double; the first gains more.
    jobs = [Job(2000, held=1, sizes=(1, 2)), Job(3000, held=1, sizes=(1, 2))]
    for changes, chosen in ((-1, [2, 2]), (2, [2, 2]), (1, [2, 1]), (0, [1, 1])):
        now, notes = decide(jobs, 4, max_changes=changes)
        assert (now, notes["resized"]) == (chosen, sum(size == 2 for size in chosen))


def test_changes_are_counted_over_all_types_together() -> None:
    first, second = (Instant([replace(Job(2000, sizes=(1, 2)), held=held)]) for held in (1, 1))
    now = turn(first, max_changes=1)
    assert now.choose(first.market(2)) == {0: 2}
    assert now.choose(second.market(2)) == {0: 1}
    free = turn(first)
    assert [free.choose(first.market(2)), free.choose(second.market(2))] == [{0: 2}, {0: 2}]
    assert free.notes["candidates"] == 2


def test_starts_are_no_changes() -> None:
    assert sizes([Job(2000, held=1, sizes=(1, 2)), Job(3000)], 4, max_changes=0) == [1, 2]


def test_looking_ahead_in_slots() -> None:
    # Two units. The first job alone would do 0.9 at once; in two slots both get done side by side
    # if the first starts with one.
    jobs = [Job(600, 0.848), Job(1000, sizes=(1,))]
    assert sizes(jobs, 2, lookahead_s=300.0) == [2, 0]
    now, notes = decide(jobs, 2, periods=2, slot_s=300.0, gamma=1.0)
    assert now == [1, 1]
    assert notes["first_slot"] == pytest.approx(0.5 + 0.3)
    assert notes["objective"] == pytest.approx(1.0 + 0.6)
    assert decide(jobs, 2, periods=2, slot_s=300.0, gamma=0.2)[0] == [2, 0]


def test_price_of_changes_in_slots() -> None:
    jobs = [Job(3000, held=1, sizes=(1, 2))]
    # Doubling gains 0.1 in each of two slots.
    assert decide(jobs, 2, periods=2, gamma=1.0, change_cost=0.19)[0] == [2]
    assert decide(jobs, 2, periods=2, gamma=1.0, change_cost=0.21)[0] == [1]
    # With a pause of 100 s in the first slot it gains 0.133 in all.
    assert decide(jobs, 2, periods=2, gamma=1.0, change_cost=0.13, pause_s=100.0)[0] == [2]
    assert decide(jobs, 2, periods=2, gamma=1.0, change_cost=0.14, pause_s=100.0)[0] == [1]
    # Done within two slots of 300 s at both sizes, on 1 unit after 500 s, on 2 after a pause of
    # 100 s and 500 / 2^0.36 = 390 s: 490 s are sooner. Judged by one slot, 2 units would do (300 -
    # 100) / 390 of the job in 300 s, as if it took 585 s.
    sooner = Job(500, 0.36, held=1, sizes=(1, 2))
    two_slots = {"periods": 2, "slot_s": 300.0, "gamma": 1.0, "slots_gap": 0.0}
    assert decide([sooner], 2, pause_s=100.0, **two_slots)[0] == [2]


def test_weights_and_whole_work_count_in_slots() -> None:
    jobs = [Job(1000, sizes=(1,), arrival_s=7200.0), Job(2000, sizes=(1,))]
    # One unit for two slots of 300 s: 0.6 of the first, or three times 0.3 of the second.
    now, notes = decide(jobs, 1, now_s=7200.0, phi=1.0, periods=2, gamma=1.0)
    assert (now, notes["objective"]) == ([0, 1], pytest.approx(0.9))
    worth, began = Utility("total", 0.0), Instant([Job(10_000, sizes=(1,)), Job(2000, sizes=(1,))])
    turn(began, worth, objective="total", periods=2).choose(began.market(1))
    later = Instant([Job(1000, sizes=(1,)), Job(2000, sizes=(1,))])
    assert turn(later, worth, objective="total", periods=2).choose(later.market(1)) == {0: 0, 1: 1}


def test_several_slots_keep_the_rules_of_the_first() -> None:
    assert sizes([Job(600, sizes=(4,)), Job(600)], 2, fifo_admission=True, periods=3) == [0, 0]
    assert sizes([Job(6000, held=1), Job(6000, held=1)], 4, max_changes=0, periods=3) == [1, 1]
    assert sizes([Job(90_000, held=1), Job(600)], 1, periods=3) == [1, 0]
    assert sizes([Job(90_000, held=1), Job(600)], 1, periods=3, preempt_to_zero=True) == [0, 1]


# -- solvers against each other, and against brute force
# --------------------------------------------------------------------------------------------------


@st.composite
def instants(draw: st.DrawFn, most: int = 12) -> tuple[list[Job], int]:
    jobs = []
    for _ in range(draw(st.integers(1, most))):
        least, most_units = draw(st.integers(1, 3)), draw(st.integers(3, 8))
        options = (
            tuple(range(least, most_units + 1))
            if draw(st.booleans())
            else tuple(size for size in (least, 4, 8) if least <= size <= most_units)
        )
        held = draw(st.sampled_from((0, *options)))
        work = draw(st.one_of(st.sampled_from((600.0, 3600.0)), st.floats(30.0, 2e5)))
        jobs.append(
            Job(
                work,
                draw(st.sampled_from((0.3, 0.6, 0.9, 1.0))),
                held,
                options,
                -draw(st.sampled_from((0.0, 3600.0, 9999.0))),
            )
        )
    return jobs, sum(job.held for job in jobs) + draw(st.integers(0, 12))


def agreed(situation: tuple[list[Job], int], **params: Any) -> None:
    jobs, capacity = situation
    found = {
        solver: decide(jobs, capacity, pause_s=60.0, solver=solver, gap=0.0, **params)
        for solver in SOLVERS
    }
    for now, notes in found.values():
        assert now == found["dp"][0]
        assert sum(now) <= capacity
        assert notes["objective"] == pytest.approx(found["dp"][1]["objective"], rel=1e-9, abs=1e-12)
        assert notes["gap"] == 0.0


@pytest.mark.parametrize(
    ("jobs", "seconds", "gpus", "minutes"),
    [
        # One job of an hour, perfectly scalable: done within the look-ahead of 900 s on four GPUs,
        # in 225 s on all. Before: 15 minutes.
        (1, 3600.0, 16, 3.75),
        # Two of half an hour: 2 + 2 take 900 s, 8 + 8 take 225 s, of the same progress. Before: 15,
        # 15 and 20 minutes (dp, cbc, highs).
        (2, 1800.0, 16, 3.75),
        # Two of two hours: 8 + 8 take 900 s, and nothing else does both within the look-ahead.
        # Before: 15, 25 and 30.
        (2, 7200.0, 16, 15.0),
        # On 8: 8 + 0 does one job in 900 s, 4 + 4 two halves; the first gets all. At 300 s it has
        # 4,800 s left: 4 + 4 does 0.75 + 0.5, more than 8 + 0 with 1. At 1,500 s it is done, the
        # other has 2,400 s left and takes 300 s on 8: (1,500 + 1,800) / 2. Before: 30, 32.5 and 40.
        (2, 7200.0, 8, 27.5),
        (4, 7200.0, 4, None),
    ],
)
def test_all_solvers_run_the_same_schedule(
    jobs: int, seconds: float, gpus: int, minutes: float | None
) -> None:
    made = trace(*[(0, seconds, 1.0)] * jobs, max_gpus=16)
    results = [run(made, f"1x{gpus}:v100", MipElastic(solver=solver)) for solver in SOLVERS]
    assert [held(result) for result in results[1:]] == [held(results[0])] * 2
    if minutes is not None:
        assert results[0].jobs["finish_s"].mean() / 60 == pytest.approx(minutes)


def test_an_idle_cluster_is_used_as_the_greedy_policy_does() -> None:
    lone = trace((0, 3600, 1.0), max_gpus=16)
    assert (
        run(lone, "1x16:v100", MipElastic()).jobs["finish_s"].item()
        == run(lone, "1x16:v100", GreedyElastic()).jobs["finish_s"].item()
        == 225.0
    )


@pytest.mark.slow
@given(
    situation=instants(),
    preempt=st.booleans(),
    lookahead_s=st.sampled_from((60.0, 300.0, 900.0, 7200.0)),
)
@settings(max_examples=40)
def test_all_solvers_find_the_same_progress(
    situation: tuple[list[Job], int], preempt: bool, lookahead_s: float
) -> None:
    agreed(situation, preempt_to_zero=preempt, lookahead_s=lookahead_s)


@given(situation=instants(), objective=st.sampled_from(OBJECTIVES), phi=st.sampled_from((0.0, 0.5)))
@settings(max_examples=40)
def test_all_solvers_find_the_same_for_every_objective(
    situation: tuple[list[Job], int], objective: str, phi: float
) -> None:
    agreed(situation, objective=objective, phi=phi)


@given(situation=instants(most=4), slots=st.integers(2, 3), cost=st.sampled_from((0.0, 0.05)))
@settings(max_examples=25, deadline=None)
def test_both_solvers_choose_the_same_over_several_slots(
    situation: tuple[list[Job], int], slots: int, cost: float
) -> None:
    jobs, capacity = situation
    params: dict[str, Any] = {
        "periods": slots,
        "slots_gap": 0.0,
        "change_cost": cost,
        "pause_s": 60.0,
    }
    assert (
        decide(jobs, capacity, solver="highs", **params)[0]
        == decide(jobs, capacity, solver="cbc", **params)[0]
    )


def progress(job: Job, size: int, lookahead_s: float, pause_s: float) -> float:
    """The formula, written down once more."""
    if not size:
        return 0.0
    window_s = lookahead_s - (pause_s if job.held and size != job.held else 0.0)
    return min(1.0, max(0.0, window_s) / (job.left_s / size**job.alpha))


@given(
    situation=instants(most=4),
    preempt=st.booleans(),
    fifo=st.booleans(),
    changes=st.integers(-1, 2),
    solver=st.sampled_from(("auto", "highs", "cbc")),
)
@settings(max_examples=50)
def test_the_best_of_all_that_the_options_allow(
    situation: tuple[list[Job], int], preempt: bool, fifo: bool, changes: int, solver: str
) -> None:
    jobs, capacity = situation
    best = -inf
    for chosen in product(
        *[job.sizes if job.held and not preempt else (0, *job.sizes) for job in jobs]
    ):
        starts = [bool(size) for size, job in zip(chosen, jobs, strict=True) if not job.held]
        changed = sum(
            bool(job.held) and size != job.held for size, job in zip(chosen, jobs, strict=True)
        )
        if (
            sum(chosen) <= capacity
            and (not fifo or starts == sorted(starts, reverse=True))
            and (changes < 0 or changed <= changes)
        ):
            best = max(
                best,
                fsum(
                    progress(job, size, 900.0, 60.0) for size, job in zip(chosen, jobs, strict=True)
                ),
            )
    params: dict[str, Any] = {
        "preempt_to_zero": preempt,
        "fifo_admission": fifo,
        "max_changes": changes,
        "solver": solver,
        "gap": 0.0,
    }
    if solver == "auto" and (
        fifo or changes >= 0
    ):  # both solvers keep the rules, and break ties in the same way
        assert (
            decide(jobs, capacity, pause_s=60.0, **params)[0]
            == decide(jobs, capacity, pause_s=60.0, **params | {"solver": "cbc"})[0]
        )
    now, notes = decide(jobs, capacity, pause_s=60.0, **params)
    assert notes["objective"] == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert fsum(
        progress(job, size, 900.0, 60.0) for size, job in zip(now, jobs, strict=True)
    ) == pytest.approx(best, rel=1e-9, abs=1e-12)


# -- bad input
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"solver": "dp", "fifo_admission": True}, "solver=dp cannot keep fifo_admission."),
        ({"solver": "dp", "max_changes": 0}, "solver=dp cannot keep max_changes=0."),
        ({"solver": "dp", "periods": 2}, "solver=dp cannot keep periods=2."),
        (
            {"solver": "dp", "max_changes": 3, "periods": 4},
            "solver=dp cannot keep max_changes=3 and periods=4.",
        ),
        (
            {"periods": 2, "objective": "etc"},
            "objective=etc counts no progress, so periods=2 means nothing to it.",
        ),
        (
            {"periods": 2, "objective": "throughput"},
            "objective=throughput counts no progress, so periods=2 means nothing to it.",
        ),
        ({"gap": inf}, "gap = inf is not a number from 0 to 0.5."),
        ({"gap": nan}, "gap = nan is not a number from 0 to 0.5."),
        ({"slots_gap": inf, "periods": 2}, "slots_gap = inf is not a number from 0 to 0.5."),
        ({"gap": -0.1}, "gap = -0.1 is not a number from 0 to 0.5."),
    ],
)
def test_what_does_not_go_together_is_refused_before_the_run(
    params: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ParameterError) as told:
        MipElastic(**params)
    assert str(told.value).startswith(f"mip_elastic: {sentence}")
    assert str(told.value).endswith(".")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gap=inf", "gap = inf is outside 0 to 0.5"),
        ("gap=nan", "gap = nan is not a number"),
        ("periods=0", "periods = 0 is"),
    ],
)
def test_bounds_of_parameters(text: str, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        build(MipElastic, Spec.parse(f"mip_elastic:{text}"))


@pytest.mark.parametrize("gap", [0.0, 0.5])
def test_both_ends_of_the_gap_are_allowed(gap: float) -> None:
    assert decide([Job(900)], 1, gap=gap, solver="highs")[0] == [1]


def test_the_exact_solver_is_taken_where_it_can_be() -> None:
    assert MipElastic()._solvers is None
    assert MipElastic(solver="dp")._solvers is None
    for params in (
        {"fifo_admission": True},
        {"max_changes": 0},
        {"periods": 2},
        {"solver": "highs"},
    ):
        asked = MipElastic(**params)  # type: ignore[arg-type]
        assert asked._solvers is not None
        assert asked._solvers.wanted == "highs"
    cbc = MipElastic(solver="cbc", gap=0.01)._solvers
    assert cbc is not None
    assert (cbc.wanted, cbc.gap) == ("cbc", 0.01)
    ahead = MipElastic(periods=2, gap=0.2, slots_gap=0.02)._solvers
    assert ahead is not None
    assert (ahead.wanted, ahead.gap) == ("highs", 0.02)


# -- whole runs
# --------------------------------------------------------------------------------------------------


def trace(*rows: tuple[float, float, float], **columns: Any) -> Trace:
    """Jobs as (submitted, seconds on one GPU, exponent), from one to four GPUs."""
    frame = pd.DataFrame(rows, columns=["submit_time_s", "duration_s", "scaling_exponent"])
    return Trace.of(
        frame.assign(
            **(
                {
                    "job_id": [f"j{at}" for at in range(len(rows))],
                    "num_gpus": 1,
                    "min_gpus": 1,
                    "max_gpus": 4,
                }
                | columns
            )
        )
    )


def run(jobs: Trace, cluster: str, allocator: Allocator, **conditions: Any) -> RunResult:
    return Simulator(
        jobs, Cluster.parse(cluster), allocator, Conditions(PowerLaw(), **conditions)
    ).run()


def held(result: RunResult) -> list[str]:
    rows = result.segments.sort_values(["job", "t0"], kind="stable")
    return [f"j{row.job} {row.t0:g}-{row.t1:g} x{row.gpus}" for row in rows.itertuples()]


def test_sizes_follow_the_jobs_at_every_tick() -> None:
    result = run(trace((0, 1200, 1.0), (100, 600, 1.0)), "1x4:v100", MipElastic(lookahead_s=300))
    # With two GPUs the second is done within the look-ahead, but with all four sooner.
    assert held(result) == ["j0 0-300 x4", "j1 300-450 x4"]
    result = run(trace((0, 4800, 1.0), (100, 600, 1.0)), "1x4:v100", MipElastic(lookahead_s=300))
    # At 300 s: the first has 3600 s left and must keep one GPU, the other is done soonest with two.
    assert held(result) == ["j0 0-300 x4", "j0 300-600 x2", "j0 600-1350 x4", "j1 300-600 x2"]


def test_events_are_answered_at_once_if_asked_to() -> None:
    result = run(
        trace((0, 4800, 1.0), (100, 600, 1.0)), "1x4:v100", MipElastic(lookahead_s=300, events=True)
    )
    assert held(result)[0] == "j0 0-100 x4"
    assert result.jobs["first_start_s"].tolist() == [0, 100]
    assert {0.0, 100.0, 300.0} <= set(result.decisions["t"])


def test_the_interval_is_a_parameter() -> None:
    result = run(
        trace((0, 4800, 1.0), (100, 600, 1.0)),
        "1x4:v100",
        MipElastic(lookahead_s=300, every_s=150.0),
    )
    assert result.jobs["first_start_s"].tolist() == [0, 150]


def test_first_starts_are_remembered() -> None:
    allocator = MipElastic(lookahead_s=300, phi=1.0)
    run(
        trace((0, 9600, 1.0), (100, 9600, 0.9), (350, 9600, 0.8), max_gpus=1),
        "1x4:v100",
        allocator,
        horizon_s=1000.0,
    )
    assert allocator._worth._waited_s == {0: 0.0, 1: 200.0, 2: 250.0}


def test_restarts_are_paid_and_foreseen() -> None:
    jobs = trace((0, 4800, 1.0), (100, 600, 1.0))
    result = run(jobs, "1x4:v100", MipElastic(lookahead_s=300), overheads=Overheads(restart_s=60))
    assert result.jobs["paused_s"][0] > 0
    assert (result.jobs["outcome"] == "completed").all()
    # A pause as long as the look-ahead: the first would lose all progress, 0.33 of what it has
    # left, and the second would gain 0.2, so it waits.
    jobs = trace((0, 4800, 1.0), (100, 3000, 1.0))
    result = run(jobs, "1x4:v100", MipElastic(lookahead_s=300), overheads=Overheads(restart_s=300))
    assert held(result) == ["j0 0-1200 x4", "j1 1200-1950 x4"]
    assert run(jobs, "1x4:v100", MipElastic(lookahead_s=300)).jobs["first_start_s"].tolist() == [
        0,
        300,
    ]


def test_whole_nodes() -> None:
    jobs = trace((0, 4800, 1.0), (0, 600, 1.0), num_gpus=8, min_gpus=8, max_gpus=32)
    result = run(jobs, "4x8:v100", MipElastic(granularity="node", lookahead_s=300))
    assert held(result)[:1] == ["j0 0-300 x16"]
    counts = result.placements["count"].tolist()
    assert set(counts) == {8}


def test_every_type_is_divided_for_itself() -> None:
    result = run(
        trace((0, 4800, 1.0), (0, 4800, 1.0), num_gpus=2, min_gpus=2),
        "1x2:v100,1x2:a100",
        MipElastic(lookahead_s=300),
    )
    first = result.placements.merge(result.segments, left_on="segment", right_index=True)
    assert first.groupby("job")["node"].nunique().tolist() == [1, 1]
    assert first["node"].nunique() == 2


def test_whole_nodes_of_all_sizes_are_used() -> None:
    gpus = [16, 8, 8]
    jobs = trace(
        (0, 4800, 1.0), (0, 4800, 1.0), (0, 4800, 1.0), num_gpus=gpus, min_gpus=gpus, max_gpus=gpus
    )
    result = run(jobs, "1x8:v100,4x4:v100", MipElastic(granularity="node"), horizon_s=1.0)
    (resized_nothing,) = result.remarks
    assert "none of the 3 jobs has a choice of sizes" in resized_nothing
    assert dict(result.segments[["job", "gpus"]].itertuples(index=False)) == {0: 16, 1: 8}


def test_jobs_without_gpus_run_beside() -> None:
    result = run(
        trace((0, 600, 1.0), (0, 50, 1.0), num_gpus=[1, 0], min_gpus=[1, 0], max_gpus=[4, 0]),
        "1x4:v100",
        MipElastic(),
    )
    assert result.jobs["finish_s"][1] == 50


def test_what_no_size_fits_is_refused_and_said() -> None:
    # Whole nodes of eight: two of them are four nodes of four away.
    jobs = trace((0, 600, 1.0), (0, 600, 1.0), num_gpus=[4, 10], min_gpus=[4, 10], max_gpus=[4, 10])
    result = run(jobs, "1x8:v100,1x4:v100", MipElastic(granularity="node"))
    assert result.jobs["outcome"].tolist() == ["completed", "refused"]
    assert (
        result.remarks[0]
        == "1 job was refused: the cluster has no size that is large enough in units of"
        " granularity=node."
    )
    assert "a choice of sizes" in result.remarks[1]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"solver": "highs"},
        {"solver": "cbc"},
        {"periods": 3},
        {"preempt_to_zero": True},
        {"fifo_admission": True, "phi": 1.0},
    ],
)
def test_runs_survive_outages_and_give_the_same_result_twice(params: dict[str, Any]) -> None:
    jobs = trace(*[(97.0 * at, 400.0 * (1 + at * 7 % 11), 0.5 + at % 5 / 10) for at in range(15)])
    twice = [
        run(
            jobs,
            "2x4:v100",
            MipElastic(**params),
            overheads=Overheads(restart_s=20),
            faults=Faults(outages="0:500:1500;1:1400:1700"),
        )
        for _ in range(2)
    ]
    assert twice[0].digest() == twice[1].digest()
    assert (twice[0].jobs["outcome"] == "completed").all()
    assert twice[0].jobs["evictions"].sum() > 0
    assert twice[0].notes.groupby("name")["value"].max()["gap"] <= (
        0.01 if "periods" in params else 1e-6
    )


def test_exact_and_program_see_the_same_first_decision() -> None:
    jobs = trace(*[(0.0, 400.0 * (1 + at * 7 % 11), 0.5 + at % 5 / 10) for at in range(15)])
    first = []
    for solver in SOLVERS:
        notes = run(jobs, "3x4:v100", MipElastic(solver=solver)).notes
        first.append(
            notes[(notes["decision"] == 0) & (notes["name"] == "objective")]["value"].item()
        )
    assert first[1:] == [pytest.approx(first[0], rel=1e-6)] * 2


@pytest.mark.parametrize("params", [{"periods": 1, "solver": "highs"}, {"periods": 2}])
def test_the_gap_of_a_decision_is_the_largest_of_its_markets(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]
) -> None:
    gaps, solved = iter((0.1, 0.3, 0.2)), mip.solve
    monkeypatch.setattr(mip, "solve", lambda *given: solved(*given)._replace(gap=next(gaps)))
    view = Instant(TOY)
    now = turn(view, **params)
    for _ in range(3):
        now.choose(view.market(4))
    assert now.notes["gap"] == 0.3


class Broken:
    def actualSolve(self, problem: pulp.LpProblem) -> int:  # noqa: N802 - PuLP's name
        raise pulp.PulpSolverError("out of order")


def break_down(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(
            programs.SOLVERS, name, programs.SOLVERS[name]._replace(make=lambda *_: Broken())
        )


def test_a_failing_solver_is_replaced_and_the_result_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = trace((0, 4800, 1.0), (100, 600, 1.0))
    assert run(jobs, "1x4:v100", MipElastic(lookahead_s=300, solver="highs")).remarks == ()
    break_down(monkeypatch, "highs")
    result = run(jobs, "1x4:v100", MipElastic(lookahead_s=300, solver="highs"))
    assert held(result)[:2] == ["j0 0-300 x4", "j0 300-600 x2"]
    (said,) = result.remarks
    failed = re.fullmatch(r"HiGHS failed on (\d+) of \1 programs, which CBC solved instead\.", said)
    assert failed is not None
    assert int(failed[1]) >= len(result.decisions)  # one at each, and those that break ties


def test_when_all_solvers_fail_the_run_stops_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_down(monkeypatch, "highs", "cbc")
    with pytest.raises(SolverError) as told:
        run(trace((0, 600, 1.0)), "1x4:v100", MipElastic(solver="cbc"))
    assert (
        str(told.value)
        == "No solver found the optimum of a program of 1 variable (CBC: out of order; HiGHS: out"
        " of order); the run was stopped. Choose solver=dp (which keeps no fifo_admission, no"
        " max_changes and looks ahead over one period)."
    )
    assert (
        run(trace((0, 600, 1.0)), "1x4:v100", MipElastic()).jobs["outcome"] == "completed"
    ).all()


def test_a_missing_solver_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "is_available", lambda name: name == "cbc")
    assert MipElastic().remarks() == ()
    assert MipElastic(periods=2).remarks() == (
        "HiGHS is not installed (package highspy), so CBC solves the programs.",
    )
    monkeypatch.setattr(programs, "is_available", lambda name: False)
    assert MipElastic().remarks() == ()
    with pytest.raises(ParameterError, match="install highspy, or use the exact solver dp"):
        MipElastic(periods=2)


def test_nothing_to_do_asks_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mip, "knapsack", lambda *_: pytest.fail("asked"))
    assert run(
        trace((0, 50, 1.0), num_gpus=0, min_gpus=0, max_gpus=0), "1x4:v100", MipElastic()
    ).jobs["finish_s"].tolist() == [50]
