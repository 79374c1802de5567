from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.contract import Spec
from sim.errors import ParameterError, TrainyardError
from tests.trainyard.sweeps.cases import CLUSTER, STUDY
from trainyard.study import sweep as recipe
from trainyard.study.study import Study
from trainyard.study.sweep import MAX_CELLS, Axis, Cell, Sweep, axis_from_text

LOADS = Axis("trace.load", (0.5, 1.0))
SEEDS = Axis("seed", (3, 4, 5))


def test_a_grid_has_every_combination_with_the_last_axis_fastest() -> None:
    sweep = Sweep(STUDY, (LOADS, SEEDS))
    assert [point.values for point in sweep.points()] == [
        (0.5, 3),
        (0.5, 4),
        (0.5, 5),
        (1.0, 3),
        (1.0, 4),
        (1.0, 5),
    ]
    assert sweep.runs == 6 * 2


def test_a_point_is_the_comparison_with_its_values() -> None:
    sweep = Sweep(STUDY, (LOADS, SEEDS, Axis("allocator.head", ("skip",))))
    study = sweep.study_at(sweep.points()[2])
    assert (study.base.trace.load, study.base.seed) == (0.5, 5)
    assert [spec.values.get("backfill") for spec in study.allocators] == ["first_fit", "first_fit"]


def test_first_repeats_come_first_and_what_cannot_be_used_is_an_error_in_its_place() -> None:
    sweep = Sweep(replace(STUDY, repeats=2), (Axis("trace.load", (1.0, -1.0)),))
    cells = list(sweep.cells())
    assert [cell for cell, _ in cells] == [
        Cell(point, policy, repeat) for repeat in (0, 1) for point in (0, 1) for policy in (0, 1)
    ]
    wrong = [found for cell, found in cells if cell.point == 1]
    assert len(wrong) == 4
    assert all(
        isinstance(found, ParameterError) and "trace.load = -1" in str(found) for found in wrong
    )
    seeds = [
        found.seed
        for cell, found in cells
        if cell.point == 0 and not isinstance(found, TrainyardError)
    ]
    assert seeds == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("low", "high", "steps", "log", "values"),
    [
        (0.6, 1.1, 6, False, (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)),
        (2, 10, 5, False, (2, 4, 6, 8, 10)),
        (1, 1000, 4, True, (1, 10, 100, 1000)),
        (0, 1, 3, False, (0.0, 0.5, 1.0)),
    ],
)
def test_ranges(low: float, high: float, steps: int, log: bool, values: tuple[float, ...]) -> None:
    made = Axis.over("x.y", low, high, steps, log=log).values
    assert made == values
    assert [type(value) for value in made] == [type(value) for value in values]


def test_draws_are_within_the_range_repeatable_and_different() -> None:
    axes = (
        Axis.over("trace.load", 0.5, 2.0, 4, log=True),
        Axis.over("seed", 0, 50, 11),
        Axis("allocator.backfill", ("first_fit", "none")),
    )
    sweep = Sweep(STUDY, axes, draw=30)
    points = sweep.points()
    assert points == sweep.points()
    assert len(points) == 30
    assert points != Sweep(STUDY, axes, draw=30, draw_seed=1).points()
    assert all(
        0.5 <= load <= 2.0 and seed in range(51) and way in ("first_fit", "none")
        for load, seed, way in (point.values for point in points)
    )
    assert len({type(point.values[1]) for point in points}) == 1
    few = Sweep(STUDY, (Axis("allocator.backfill", ("first_fit", "none")),), draw=30)
    assert len(few.points()) == 2


@pytest.mark.parametrize("log", [False, True])
def test_of_whole_numbers_the_ends_are_drawn_as_often_as_they_should(log: bool) -> None:
    rng = np.random.default_rng(3)
    axis = Axis.over("seed", 1, 5, 5) if not log else Axis.over("seed", 1, 5, 2, log=True)
    counts = np.bincount([recipe._draw_value(axis, rng) for _ in range(5000)], minlength=6)
    # On a logarithmic scale a number has the share of what lies nearest to it, between a half and
    # five and a half.
    ends = np.arange(6) + 0.5
    shares = np.diff(np.log(ends)) / np.log(11.0) if log else np.full(5, 0.2)
    assert (counts[0], len(counts)) == (0, 6)
    assert counts[1:] == pytest.approx(5000 * shares, abs=130)


def test_it_comes_back_from_json_and_from_an_address() -> None:
    sweep = Sweep(
        STUDY, (Axis.over("trace.load", 0.5, 2.0, 4, log=True), SEEDS), draw=7, draw_seed=2
    )
    assert Sweep.from_json(sweep.to_json()) == sweep
    assert Sweep.unpack(sweep.pack()) == sweep
    short = {"study": STUDY.to_json(), "axes": {"seed": [3, 4, 5]}}
    assert Sweep.from_json(short) == Sweep(STUDY, (SEEDS,))
    stepped = {
        "study": STUDY.to_json(),
        "axes": [{"path": "trace.load", "low": 0.5, "high": 2.0, "steps": 4, "log": True}],
    }
    assert Sweep.from_json(stepped).axes == (Axis.over("trace.load", 0.5, 2.0, 4, log=True),)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("trace.load=0.6..1.1:6", Axis.over("trace.load", 0.6, 1.1, 6)),
        ("faults.mtbf_h=10..1000:3:log", Axis.over("faults.mtbf_h", 10, 1000, 3, log=True)),
        ("allocator.head=skip,block", Axis("allocator.backfill", ("first_fit", "none"))),
        ("seed=1,2", Axis("seed", (1, 2))),
        (
            "estimator=exact;noisy:sigma=0.3,bias=2",
            Axis("estimator", ("exact", "noisy:sigma=0.3,bias=2")),
        ),
        ("cluster=2x4:v100,1x8:k80;", Axis("cluster", ("2x4:v100,1x8:k80",))),
        ("trace.source=../a.csv,b.csv", Axis("trace.source", ("../a.csv", "b.csv"))),
    ],
)
def test_axes_as_the_command_line_takes_them(text: str, axis: Axis) -> None:
    assert axis_from_text(text) == axis


@pytest.mark.parametrize(
    "text",
    [
        "trace.load",
        "trace.load=",
        "=3",
        "a..b=1",
        "x=2..1:3",
        "x=1..2:1",
        "x=0..2:3:log",
        "x=1..2:3:lin",
        "x=1..b:3",
        "x=1,1",
        "x=1e400",
        "x=0..9:999999999",
        "repeats=1,2",
        "allocators.0=fifo,sjf",
    ],
)
def test_wrong_axes_are_one_sentence(text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        axis_from_text(text)
    assert str(caught.value).count("\n") == 0
    assert str(caught.value).endswith(".")


def test_empty_and_enormous_sweeps_are_refused() -> None:
    with pytest.raises(ParameterError, match="Nothing varies"):
        Sweep(STUDY, ())
    with pytest.raises(ParameterError, match="varies twice"):
        Sweep(STUDY, (SEEDS, SEEDS))
    with pytest.raises(ParameterError, match=f"more than {MAX_CELLS:,}"):
        Sweep(STUDY, (Axis("seed", tuple(range(60_000))),))
    with pytest.raises(ParameterError, match="needs 'study'"):
        Sweep.from_json({"axes": []})
    with pytest.raises(ParameterError, match="has no setting 'grid'"):
        Sweep.from_json({"study": STUDY.to_json(), "axes": [], "grid": 1})


def test_titles() -> None:
    titles = [
        Axis(path, (1,)).title
        for path in (
            "trace.load",
            "cluster.groups.0.count",
            "faults.mtbf_h",
            "allocators.1.round_s",
            "seed",
        )
    ]
    assert titles == [
        "trace load",
        "cluster count",
        "mean time between failures (h)",
        "round s",
        "seed",
    ]


def test_study_of_many_policies_counts_all() -> None:
    assert (
        Sweep(
            Study(STUDY.base, (Spec("fifo"), Spec("sjf"), Spec("srtf")), repeats=5), (SEEDS,)
        ).runs
        == 45
    )


def test_what_varies_for_one_policy_leaves_the_others_alone() -> None:
    sweep = Sweep(STUDY, (Axis("allocators.0.head", ("skip", "block")),))
    keys = [
        scenario.canonical()
        for cell, scenario in sweep.cells()
        if cell.policy == 1 and not isinstance(scenario, TrainyardError)
    ]
    assert keys[0] == keys[1]


def test_as_many_points_are_drawn_as_there_are_without_trying_forever() -> None:
    axes = tuple(Axis(path, tuple(range(3))) for path in ("seed", "faults.seed"))
    assert len(Sweep(STUDY, axes, draw=40_000).points()) == 9


def test_values_that_are_tables_come_through_json() -> None:
    plain = {"study": STUDY.to_json(), "axes": {"cluster": [CLUSTER.to_json(), "1x1:v100"]}}
    sweep = Sweep.from_json(plain)
    assert [sweep.study_at(point).base.cluster.gpus for point in sweep.points()] == [
        CLUSTER.gpus,
        1,
    ]
    with pytest.raises(ParameterError, match="no scenario can hold"):
        Axis("seed", (float("nan"),))
