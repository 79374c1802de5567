"""The programs against brute force and against the exact knapsack, with both solvers; and what
happens when a solver is missing or fails.
"""

from __future__ import annotations

from itertools import product
from math import fsum
from typing import Any

import pulp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allocators.elastic import programs as _programs
from allocators.elastic.knapsack import knapsack
from allocators.elastic.programs import Horizon, SizeProgram, Solvers, solve
from sim.contract import ParameterError, SolverError

EXACT = 0.0
NAMES = ("highs", "cbc")
few = settings(max_examples=25)


@st.composite
def programs(
    draw: st.DrawFn, most_jobs: int = 4, fifo: bool = False, changes: int = -1
) -> SizeProgram:
    """Draw jobs with values that rise with size as often as not, some waiting, some running within
    the capacity.
    """
    values = st.one_of(st.integers(-1, 4).map(float), st.floats(1e-3, 3.0))
    sizes = draw(
        st.lists(
            st.lists(st.sampled_from((1, 2, 3, 4, 8)), min_size=1, max_size=3, unique=True).map(
                sorted
            ),
            min_size=1,
            max_size=most_jobs,
        )
    )
    worth = [draw(st.lists(values, min_size=len(size), max_size=len(size))) for size in sizes]
    held = [draw(st.integers(-1, len(size) - 1)) for size in sizes]
    optional = [at < 0 or draw(st.booleans()) for at in held]
    used = sum(size[at] for size, at in zip(sizes, held, strict=True) if at >= 0)
    return SizeProgram(sizes, worth, optional, used + draw(st.integers(0, 6)), held, fifo, changes)


def choices(program: SizeProgram) -> list[tuple[int, ...]]:
    """Every choice that keeps every rule of the program."""
    places = [
        [*([-1] if may_skip else []), *range(len(size))]
        for size, may_skip in zip(program.sizes, program.optional, strict=True)
    ]
    return [chosen for chosen in product(*places) if allowed(program, chosen)]


def allowed(program: SizeProgram, chosen: tuple[int, ...]) -> bool:
    if (
        sum(size[at] for size, at in zip(program.sizes, chosen, strict=True) if at >= 0)
        > program.capacity
    ):
        return False
    started = [at >= 0 for at, held in zip(chosen, program.held, strict=True) if held < 0]
    if program.fifo and started != sorted(started, reverse=True):
        return False
    changed = sum(held not in (-1, at) for at, held in zip(chosen, program.held, strict=True))
    return program.changes < 0 or changed <= program.changes


def worth(program: SizeProgram, chosen: Any) -> float:
    return fsum(values[at] for values, at in zip(program.values, chosen, strict=True) if at >= 0)


def check(program: SizeProgram, name: str) -> None:
    found = solve(program, Solvers(name, EXACT))
    best = max(worth(program, chosen) for chosen in choices(program))
    assert allowed(program, tuple(found.at))
    assert found.objective == worth(program, found.at) == pytest.approx(best, rel=1e-9, abs=1e-9)
    # The bound of a solver is a sum in another order.
    assert found.gap == pytest.approx(0.0, abs=1e-12)
    assert found.solver == {"highs": "HiGHS", "cbc": "CBC"}[name]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@few
def test_both_find_the_best_of_all_choices(name: str, data: st.DataObject) -> None:
    check(data.draw(programs()), name)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@few
def test_first_come_first_served_among_those_that_wait(name: str, data: st.DataObject) -> None:
    check(data.draw(programs(fifo=True)), name)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@few
def test_no_more_changes_than_allowed(name: str, data: st.DataObject) -> None:
    check(
        data.draw(programs(changes=data.draw(st.integers(0, 2)), fifo=data.draw(st.booleans()))),
        name,
    )


@st.composite
def larger(draw: st.DrawFn) -> SizeProgram:
    """Draw up to thirty jobs whose progress is a power of their size, as the allocator has it."""
    jobs = draw(
        st.lists(
            st.tuples(st.floats(0.2, 1.0), st.floats(60.0, 1e5), st.integers(-1, 4)),
            min_size=1,
            max_size=30,
        )
    )
    sizes = [[1, 2, 4, 8, 16]] * len(jobs)
    values = [
        [min(1.0, 900 * size**alpha / left_s) for size in (1, 2, 4, 8, 16)]
        for alpha, left_s, _ in jobs
    ]
    held = [at for _, _, at in jobs]
    return SizeProgram(
        sizes,
        values,
        [at < 0 for at in held],
        sum(at >= 0 for at in held) + draw(st.integers(0, 60)),
        held,
    )


@given(data=st.data(), program=programs(most_jobs=5))
@settings(max_examples=40)
def test_ties_are_broken_level_by_level(data: st.DataObject, program: SizeProgram) -> None:
    whole = st.integers(0, 3).map(float)
    levels = [
        [
            data.draw(st.lists(whole, min_size=len(size), max_size=len(size)))
            for size in program.sizes
        ]
        for _ in range(3)
    ]
    program = program._replace(values=levels[0], ties=levels[1:])

    def sums(chosen: Any) -> list[float]:
        return [worth(program._replace(values=level), chosen) for level in levels]

    best = max(map(sums, choices(program)))
    exact = knapsack(
        program.sizes, program.values, program.optional, program.capacity, program.ties
    )
    assert exact is not None
    assert sums(exact.at) == best
    for name in NAMES:
        assert sums(solve(program, Solvers(name, EXACT)).at) == best


@pytest.mark.slow
@given(larger())
@settings(max_examples=60)
def test_both_agree_with_the_exact_knapsack(program: SizeProgram) -> None:
    exact = knapsack(program.sizes, program.values, program.optional, program.capacity)
    assert exact is not None
    for name in NAMES:
        assert solve(program, Solvers(name, EXACT)).objective == pytest.approx(
            exact.objective, rel=1e-9
        )


# -- several slots
# --------------------------------------------------------------------------------------------------


@st.composite
def horizons(draw: st.DrawFn) -> Horizon:
    shares = st.sampled_from((0.1, 0.25, 0.4, 0.7, 1.5))
    drawn = draw(programs(most_jobs=2))
    sizes = [size[:2] for size in drawn.sizes]
    held = [min(at, len(size) - 1) for at, size in zip(drawn.held, sizes, strict=True)]
    used = sum(size[at] for size, at in zip(sizes, held, strict=True) if at >= 0)
    values, later = ([[draw(shares) for _ in size] for size in sizes] for _ in range(2))
    program = SizeProgram(
        sizes,
        values,
        drawn.optional,
        used + draw(st.integers(0, 5)),
        held,
        draw(st.booleans()),
        draw(st.sampled_from((-1, 0, 1))),
    )
    weights = [draw(st.sampled_from((0.5, 1.0, 2.0))) for _ in sizes]
    return Horizon(
        program,
        later,
        weights,
        draw(st.integers(1, 3)),
        draw(st.sampled_from((0.5, 0.95, 1.0))),
        draw(st.sampled_from((0.0, 0.05, 0.3))),
    )


def best_of(horizon: Horizon) -> float:
    """Try every sequence of choices; a job's progress fills the earliest slots first, because later
    ones are never worth more.
    """
    anything = horizon.program._replace(
        optional=[True] * len(horizon.weights), fifo=False, changes=-1
    )
    return max(
        sum(
            horizon.weights[job] * earned(horizon, job, [slot[job] for slot in slots])
            - paid(horizon, job, [slot[job] for slot in slots])
            for job in range(len(slots[0]))
        )
        for slots in product(choices(horizon.program), *[choices(anything)] * (horizon.slots - 1))
    )


def earned(horizon: Horizon, job: int, places: list[int]) -> float:
    left, value = 1.0, 0.0
    for slot, at in enumerate(places):
        shares = horizon.later[job] if slot else horizon.program.values[job]
        step = min(left, shares[at]) if at >= 0 else 0.0
        left -= step
        value += horizon.gamma**slot * step
    return value


def paid(horizon: Horizon, job: int, places: list[int]) -> float:
    before = [horizon.program.held[job], *places]
    return horizon.cost * sum(
        now not in (-1, then) for then, now in zip(before, places, strict=False)
    )


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@few
def test_several_slots_against_brute_force(name: str, data: st.DataObject) -> None:
    horizon = data.draw(horizons())
    found = solve(horizon, Solvers(name, EXACT))
    assert allowed(horizon.program, tuple(found.at))
    assert found.objective == pytest.approx(best_of(horizon), rel=1e-7, abs=1e-9)


@given(programs())
@few
def test_one_slot_is_the_single_program(program: SizeProgram) -> None:
    assume(all(value >= 0 for values in program.values for value in values))
    shares = [[value / 4 for value in values] for values in program.values]
    program = program._replace(values=shares)
    single = solve(program, Solvers("highs", EXACT))
    horizon = solve(
        Horizon(program, shares, [1.0] * len(shares), 1, 0.9, 0.0), Solvers("highs", EXACT)
    )
    assert horizon.objective == pytest.approx(single.objective, rel=1e-9, abs=1e-12)


def test_looking_ahead_takes_another_size_first() -> None:
    # Two units. At once the first job alone on both is worth most, 0.9; but two slots hold both
    # jobs side by side and then to the end, 0.6 + 0.4 and 0.6.
    program = SizeProgram([[1, 2], [1]], [[0.5, 0.9], [0.3]], [True, True], 2, [-1, -1])
    assert solve(program, Solvers("highs", EXACT)).at == [1, -1]
    ahead = solve(
        Horizon(program, program.values, [1.0, 1.0], 2, 1.0, 0.0), Solvers("highs", EXACT)
    )
    assert ahead.at == [0, 0]
    assert ahead.objective == pytest.approx(1.6)


def test_price_of_a_change_keeps_a_size() -> None:
    program = SizeProgram([[1, 2]], [[0.3, 0.4]], [False], 2, [0])
    assert solve(
        Horizon(program, program.values, [1.0], 2, 1.0, 0.25), Solvers("highs", EXACT)
    ).at == [0]
    assert solve(
        Horizon(program, program.values, [1.0], 2, 1.0, 0.15), Solvers("highs", EXACT)
    ).at == [1]


# -- rules by hand
# --------------------------------------------------------------------------------------------------


def test_earlier_jobs_hold_up_later_ones_only_if_asked_to() -> None:
    # Three units: the first needs four, so the others go; with first come first served nobody does.
    program = SizeProgram([[4], [1], [2]], [[9.0], [1.0], [1.0]], [True] * 3, 3, [-1, -1, -1])
    assert solve(program, Solvers("highs", EXACT)).at == [-1, 0, 0]
    assert solve(program._replace(fifo=True), Solvers("highs", EXACT)).at == [-1, -1, -1]


def test_running_jobs_do_not_queue() -> None:
    program = SizeProgram(
        [[4], [1], [2]], [[9.0], [1.0], [1.0]], [True] * 3, 3, [-1, 0, 0], fifo=True
    )
    assert solve(program, Solvers("highs", EXACT)).at == [-1, 0, 0]


def test_a_stop_is_a_change() -> None:
    # The best is to stop both running jobs for the waiting one; with one change only one of them
    # goes, with none nothing happens.
    program = SizeProgram([[2], [2], [2, 4]], [[1.0], [1.5], [3.0, 8.0]], [True] * 3, 4, [0, 0, -1])
    for changes, chosen in ((-1, [-1, -1, 1]), (2, [-1, -1, 1]), (1, [-1, 0, 0]), (0, [0, 0, -1])):
        assert solve(program._replace(changes=changes), Solvers("highs", EXACT)).at == chosen


def test_what_is_out_of_reach_of_a_strict_queue_is_no_part_of_the_program() -> None:
    # 6 units: 1 at least for who runs, 2 for the first in the queue, 3 for the second; nobody
    # behind them, even the last, can start.
    program = SizeProgram(
        [[4], [2], [1, 2], [3], [9], [1]],
        [[9.0], [1.0], [1.0, 1.5], [1.0], [1.0], [1.0]],
        [True, True, False, True, True, True],
        6,
        [0, -1, 1, -1, -1, -1],
        True,
    )
    assert _programs._reachable_jobs(program) == [0, 1, 2, 3]
    assert _programs._reachable_jobs(program._replace(fifo=False)) == list(range(6))
    assert _programs._reachable_jobs(program._replace(capacity=5)) == [0, 1, 2]
    assert _programs._reachable_jobs(program._replace(sizes=[[4], [], [1, 2], [3], [9], [1]])) == [
        0,
        2,
    ]
    assert _programs._reachable_jobs(program._replace(optional=[True] * 6)) == [0, 1, 2, 3]
    for name in NAMES:
        assert solve(program, Solvers(name, EXACT)).at == [0, -1, 1, -1, -1, -1]
        assert solve(
            program._replace(values=[[0.5], *program.values[1:]]), Solvers(name, EXACT)
        ).at == [-1, 0, 0, 0, -1, -1]
    # Who must start may not be left out with the rest: there is no solution then.
    assert _programs._reachable_jobs(
        program._replace(optional=[True, True, False, True, True, False])
    ) == list(range(6))


def test_nobody_there() -> None:
    for name in NAMES:
        assert solve(SizeProgram([], [], [], 4, []), Solvers(name, EXACT)).at == []


def test_scale_of_values_does_not_matter() -> None:
    # Differences of one in a billion of the objective are still seen, whatever its unit.
    for unit in (1e-9, 1.0, 1e9):
        program = SizeProgram(
            [[1], [1]], [[1.0 * unit], [(1.0 + 1e-8) * unit]], [True, True], 1, [-1, -1]
        )
        for name in NAMES:
            assert solve(program, Solvers(name, EXACT)).at == [-1, 0]


# -- solvers
# --------------------------------------------------------------------------------------------------

EASY = SizeProgram([[1, 2]], [[1.0, 2.0]], [False], 2, [0])
HOPELESS = SizeProgram([[3]], [[1.0]], [False], 2, [0])


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    there = _programs.is_available
    monkeypatch.setattr(_programs, "is_available", lambda name: name not in missing and there(name))


def broken(monkeypatch: pytest.MonkeyPatch, name: str, fails: Any) -> None:
    class Broken:
        def actualSolve(self, problem: pulp.LpProblem) -> int:  # noqa: N802 - PuLP's name
            return int(fails(problem))

    monkeypatch.setitem(
        _programs.SOLVERS, name, _programs.SOLVERS[name]._replace(make=lambda *_: Broken())
    )


def crash(problem: pulp.LpProblem) -> int:
    raise pulp.PulpSolverError("out of order")


def give_up(problem: pulp.LpProblem) -> int:
    problem.assignStatus(pulp.LpStatusNotSolved)
    return pulp.LpStatusNotSolved


def test_without_highs_cbc_solves_and_that_is_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "highs")
    solvers = Solvers("highs", EXACT)
    assert solvers.remarks() == (
        "HiGHS is not installed (package highspy), so CBC solves the programs.",
    )
    assert solve(EASY, solvers).solver == "CBC"


def test_without_cbc_highs_solves_and_that_is_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "cbc")
    solvers = Solvers("cbc", EXACT)
    assert solvers.remarks() == (
        "The CBC that PuLP brings along cannot be run here, so HiGHS solves the programs.",
    )
    assert solve(EASY, solvers).solver == "HiGHS"


def test_without_any_there_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "highs", "cbc")
    with pytest.raises(ParameterError, match=r"^Neither HiGHS .* nor the CBC .*\.$"):
        Solvers("highs", EXACT)


def test_a_missing_binary_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert _programs.is_available("cbc")
    monkeypatch.setattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not _programs.is_available("cbc")


@pytest.mark.parametrize("fails", [crash, give_up])
@pytest.mark.parametrize(("wanted", "other"), [("highs", "CBC"), ("cbc", "HiGHS")])
def test_when_one_fails_the_other_solves(
    monkeypatch: pytest.MonkeyPatch, fails: Any, wanted: str, other: str
) -> None:
    broken(monkeypatch, wanted, fails)
    solvers = Solvers(wanted, EXACT)
    assert solvers.remarks() == ()
    for _ in range(3):
        found = solve(EASY, solvers)
        assert (found.at, found.solver) == ([1], other)
    title = {"highs": "HiGHS", "cbc": "CBC"}[wanted]
    assert solvers.remarks() == (
        f"{title} failed on 3 of 3 programs, which {other} solved instead.",
    )


def test_failures_are_counted_of_all_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    solvers = Solvers("highs", EXACT)
    solve(EASY, solvers)
    broken(monkeypatch, "highs", crash)
    solve(EASY, solvers)
    assert solvers.remarks() == ("HiGHS failed on 1 of 2 programs, which CBC solved instead.",)


def test_when_all_fail_the_reasons_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "highs", crash)
    broken(monkeypatch, "cbc", give_up)
    with pytest.raises(
        SolverError,
        match=(
            r"^No solver found the optimum of a program of 2 variables \(HiGHS: out of order; CBC:"
            r" not solved\)"
        ),
    ):
        solve(EASY, Solvers("highs", EXACT))


def test_what_is_infeasible_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SolverError, match=r"HiGHS: infeasible; CBC: infeasible"):
        solve(HOPELESS, Solvers("highs", EXACT))
    without(monkeypatch, "cbc")
    solvers = Solvers("highs", EXACT)
    with pytest.raises(
        SolverError, match=r"\(HiGHS: infeasible\); the run was stopped\. Choose solver=dp .*\.$"
    ):
        solve(HOPELESS, solvers)
    without(monkeypatch, "highs")
    monkeypatch.setattr(_programs, "is_available", lambda name: name == "cbc")
    with pytest.raises(
        SolverError,
        match=(
            r"\(CBC: infeasible\); the run was stopped\. Install highspy, or choose solver=dp .*\.$"
        ),
    ):
        solve(HOPELESS, Solvers("highs", EXACT))
    assert solvers.remarks() == ("HiGHS failed on 1 of 1 programs.",)


def test_the_gap_asked_for_is_kept() -> None:
    # Sizes and values that take branching: a wide tolerance may stop early but must keep what it
    # promises.
    sizes = [[3, 5, 7]] * 12
    values = [[3 + 0.01 * job, 5.2 - 0.02 * job, 7.1 + 0.005 * job] for job in range(12)]
    program = SizeProgram(sizes, values, [True] * 12, 31, [-1] * 12)
    exact = knapsack(sizes, values, [True] * 12, 31)
    assert exact is not None
    for name, gap in product(NAMES, (0.2, 0.01, EXACT)):
        found = solve(program, Solvers(name, gap))
        assert found.gap <= gap
        assert exact.objective * (1 - gap) - 1e-9 <= found.objective <= exact.objective + 1e-9
