"""The integer programs of elastic allocation, built and solved with PuLP: HiGHS in process, CBC
where HiGHS is missing or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import fsum, inf
from typing import Any, Final, NamedTuple

import pulp
from pulp import (
    LpAffineExpression,
    LpConstraint,
    LpConstraintEQ,
    LpConstraintGE,
    LpConstraintLE,
    LpInteger,
    LpMaximize,
    LpProblem,
    LpVariable,
)

from allocators.elastic.knapsack import Values, core
from sim.contract import ParameterError, SolverError

# what the greatest coefficient of an objective is scaled to, because solvers tell values apart by
# absolute tolerances
_LARGEST: Final = 1e4
_WIDTH: Final = (
    7  # digits of a number in a name: PuLP sorts variables by name, and they shall stay in order
)


class SizeProgram(NamedTuple):
    """One size for every job, the best sum of values that fits, as
    `allocators.elastic.knapsack.knapsack` has it, with what only a program can say.

    Parameters
    ----------
    sizes, values, optional, capacity
        As for the knapsack; a job that is neither optional nor has a size makes it infeasible.
    held : sequence of int
        For every job the place of the size that it has now; -1 = it waits.
    fifo : bool
        Whether a waiting job may only start if all waiting jobs before it do.
    changes : int
        Most running jobs that may get another size, or none; -1 = any number.
    ties : sequence of values
        As for the knapsack. If there are any, all values and ties are whole numbers, and every
        level is solved to the optimum.
    """

    sizes: Sequence[Sequence[int]]
    values: Sequence[Sequence[float]]
    optional: Sequence[bool]
    capacity: int
    held: Sequence[int]
    fifo: bool = False
    changes: int = -1
    ties: Sequence[Values] = ()


class Horizon(NamedTuple):
    """The same over several slots, of which the first is `program`: its values are progress in the
    first slot, as shares of the remaining job.

    Its `ties`, whole numbers, choose among first slots with which as much can be reached over all
    slots.

    Parameters
    ----------
    program : SizeProgram
        Sizes, first slot, capacity and constraints; ``optional``, ``fifo`` and ``changes`` hold for
        the first slot.
    later : sequence of sequences of float
        The same shares in each later slot.
    weights : sequence of float
        What the whole remaining job is worth.
    slots : int
        Number of slots, at least 1.
    gamma : float
        Each slot is worth so much of the one before.
    cost : float
        Price of every size that a job did not have in the slot before; a start is one, too.
    """

    program: SizeProgram
    later: Sequence[Sequence[float]]
    weights: Sequence[float]
    slots: int
    gamma: float
    cost: float


class SolvedSizes(NamedTuple):
    """What a solver found.

    Parameters
    ----------
    at : list of int
        For every job the place of its size, in the first slot; -1 = nothing.
    objective : float
        Of the whole program.
    gap : float
        Proven relative distance to the best possible; CBC does not tell, for it this is the
        tolerance.
    solver : str
        Title of the one that found it.
    """

    at: list[int]
    objective: float
    gap: float
    solver: str


_HALF_A_STEP: Final = 0.5
# how far off a whole number, or a bound, a solver may be: less than the steps of values, so that
# ties are seen
_EXACT: Final = 1e-9
# over several slots progress is a real number: what differs by less, of the largest weight, is as
# good
_SAME: Final = 1e-7
Row = dict[int, LpVariable]
"""Variables of one job by the place of the size that they stand for."""


class _Model(NamedTuple):
    problem: LpProblem
    first: list[Row]
    scale: float = 1.0

    def aim(self, values: Values) -> float:
        """Maximise these values of the first slot, and return what they are scaled by."""
        terms, scale = self._scaled(values)
        self.problem.setObjective(LpAffineExpression(terms))
        return scale

    def keep(self, values: Values, at: Sequence[int]) -> None:
        """From now on these values, whole numbers, must add up to what they do at these places."""
        terms, scale = self._scaled(values)
        _add(self.problem, terms, LpConstraintGE, (_sum(values, at) - _HALF_A_STEP) * scale)

    def places(self) -> list[int]:
        """Return the places that were chosen in the first slot."""
        return [
            next(
                (place for place, x in row.items() if x.varValue is not None and x.varValue > 0.5),
                -1,
            )
            for row in self.first
        ]

    def _scaled(self, values: Values) -> tuple[list[tuple[LpVariable, float]], float]:
        scale = _scale([value for job in values for value in job])
        return [
            (x, job[place] * scale)
            for row, job in zip(self.first, values, strict=True)
            for place, x in row.items()
        ], scale


def solve(asked: SizeProgram | Horizon, solvers: Solvers) -> SolvedSizes:
    """Build a program and solve it; then decide between equal choices, level by level.

    Raises
    ------
    SolverError
        If no solver found an optimum.

    Notes
    -----
    Each tie-break is a program of its own in which the levels before must reach what they did. Over
    one slot it contains only sizes of the `core`, which are few where the units are scarce.
    """
    if isinstance(asked, Horizon):
        return _ahead(asked, solvers)
    if len(near := _within_reach(asked)) < len(asked.sizes):
        found = solve(_only(asked, near), solvers)
        places = dict(zip(near, found.at, strict=True))
        return found._replace(at=[places.get(job, -1) for job in range(len(asked.sizes))])
    return _once(asked, solvers)


def _once(program: SizeProgram, solvers: Solvers) -> SolvedSizes:
    model = _single(
        program,
        [_useful(*job) for job in zip(program.sizes, program.values, program.held, strict=True)],
    )
    name, gap = solvers.solve(model.problem, model.scale if program.ties else 0.0, ahead=False)
    at = model.places()
    columns = (
        core(
            program.sizes,
            program.values,
            program.optional,
            program.capacity,
            _sum(program.values, at),
        )
        if program.ties
        else []
    )
    if any(len(places) > 1 for places in columns):
        at = _untied(
            _single(program, columns),
            program.ties,
            at,
            [program.values],
            partial(solvers.solve, ahead=False),
        )
    return SolvedSizes(at, _sum(program.values, at), gap, name)


def _ahead(horizon: Horizon, solvers: Solvers) -> SolvedSizes:
    model, ties = _horizon(horizon), horizon.program.ties
    name, gap = solvers.solve(model.problem, ahead=True)
    at, reached = model.places(), float(pulp.value(model.problem.objective) or 0.0)
    if ties:
        _add(
            model.problem,
            list(model.problem.objective.items()),
            LpConstraintGE,
            reached - _LARGEST * _SAME,
        )
        at = _untied(model, ties, at, [], lambda problem, step: solvers.solve(problem, ahead=True))
    return SolvedSizes(at, reached / model.scale, gap, name)


def _untied(
    model: _Model,
    ties: Sequence[Values],
    at: list[int],
    levels: list[Values],
    run: Callable[[LpProblem, float], object],
) -> list[int]:
    """Decide between choices as good as this one, tie by tie; none that costs anything on a level
    before, as solvers round, is taken.
    """
    for values in ties:
        if not any(map(any, values)):
            continue
        if levels:
            model.keep(levels[-1], at)
        run(model.problem, model.aim(values))
        found = model.places()
        if any(_sum(level, found) < _sum(level, at) for level in levels):
            break
        at, levels = found, [*levels, values]
    return at


def _sum(values: Values, at: Sequence[int]) -> float:
    return fsum([job[place] for job, place in zip(values, at, strict=True) if place >= 0])


def _only(program: SizeProgram, jobs: Sequence[int]) -> SizeProgram:
    sizes, values = [program.sizes[job] for job in jobs], [program.values[job] for job in jobs]
    optional, held = [program.optional[job] for job in jobs], [program.held[job] for job in jobs]
    return program._replace(
        sizes=sizes,
        values=values,
        optional=optional,
        held=held,
        ties=[[level[job] for job in jobs] for level in program.ties],
    )


def _within_reach(program: SizeProgram) -> list[int]:
    """List the jobs that can get something: first come first served, none from the first one on
    whose smallest size fits no more beside those before it.
    """
    jobs = list(range(len(program.sizes)))
    queue = [job for job in jobs if program.held[job] < 0]
    if not program.fifo or not all(program.optional[job] for job in queue):
        return jobs
    left = program.capacity - sum(
        [
            min(sizes, default=0)
            for sizes, may_skip in zip(program.sizes, program.optional, strict=True)
            if not may_skip
        ]
    )
    for at, job in enumerate(queue):
        left -= min(program.sizes[job], default=left + 1)
        if left < 0:
            beyond = set(queue[at:])
            return [job for job in jobs if job not in beyond]
    return jobs


def _single(program: SizeProgram, columns: Sequence[Sequence[int]]) -> _Model:
    """Build the program over one slot with these places of sizes only."""
    problem = LpProblem("sizes", LpMaximize)
    rows = [
        {place: _binary(problem, "x", at, place) for place in places if place >= 0}
        for at, places in enumerate(columns)
    ]
    _constrain(problem, program, rows)
    model = _Model(problem, rows)
    return model._replace(scale=model.aim(program.values))


def _horizon(horizon: Horizon) -> _Model:
    program, slots = horizon.program, range(horizon.slots)
    problem, scale = LpProblem("slots", LpMaximize), _scale([*horizon.weights, horizon.cost])
    rows = [
        [
            {place: _binary(problem, f"x{slot:03d}", at, place) for place in range(len(sizes))}
            for at, sizes in enumerate(program.sizes)
        ]
        for slot in slots
    ]
    terms: list[tuple[LpVariable, float]] = []
    for job, weight in enumerate(horizon.weights):
        progress = [problem.add_variable(f"q{slot:03d}_{job:0{_WIDTH}d}", 0, 1) for slot in slots]
        for slot, q in enumerate(progress):
            shares = horizon.later[job] if slot else program.values[job]
            _add(
                problem,
                [(q, 1.0), *((x, -shares[place]) for place, x in rows[slot][job].items())],
                LpConstraintLE,
                0,
            )
            terms.append((q, weight * scale * horizon.gamma**slot))
        _add(problem, [(q, 1.0) for q in progress], LpConstraintLE, 1)
        if horizon.cost > 0:
            terms += [
                (x, sign * horizon.cost * scale)
                for x, sign in _changes(
                    problem, job, [rows[slot][job] for slot in slots], program.held[job]
                )
            ]
    problem.setObjective(LpAffineExpression(terms))
    _constrain(problem, program, rows[0])
    anything = program._replace(optional=[True] * len(program.sizes), fifo=False, changes=-1)
    for slot in slots[1:]:
        _constrain(problem, anything, rows[slot])
    return _Model(problem, rows[0], scale)


def _changes(
    problem: LpProblem, job: int, rows: Sequence[Row], held: int
) -> list[tuple[LpVariable, float]]:
    """Return terms that add up to minus the number of slots in which a job has a size that it did
    not have before.

    Whoever has a size changes, unless it had that size in the slot before. An indicator of each
    size that stays is tighter than one of each change.
    """
    terms = [(x, -1.0) for place, x in rows[0].items() if place != held]
    for slot, (before, row) in enumerate(pairwise(rows), 1):
        for place, x in row.items():
            stays = problem.add_variable(f"y{slot:03d}_{job:0{_WIDTH}d}_{place:0{_WIDTH}d}", 0, 1)
            _add(problem, [(stays, 1.0), (x, -1.0)], LpConstraintLE, 0)
            _add(problem, [(stays, 1.0), (before[place], -1.0)], LpConstraintLE, 0)
            terms += [(x, -1.0), (stays, 1.0)]
    return terms


def _constrain(problem: LpProblem, program: SizeProgram, rows: Sequence[Row]) -> None:
    for row, may_skip in zip(rows, program.optional, strict=True):
        _add(
            problem,
            [(x, 1.0) for x in row.values()],
            LpConstraintLE if may_skip else LpConstraintEQ,
            1,
        )
    _add(
        problem,
        [
            (x, sizes[place])
            for row, sizes in zip(rows, program.sizes, strict=True)
            for place, x in row.items()
        ],
        LpConstraintLE,
        program.capacity,
    )
    if program.fifo:
        queue = [row for row, held in zip(rows, program.held, strict=True) if held < 0]
        for earlier, later in pairwise(queue):
            _add(
                problem,
                [*((x, 1.0) for x in earlier.values()), *((x, -1.0) for x in later.values())],
                LpConstraintGE,
                0,
            )
    if program.changes >= 0:
        kept = [
            (row[held], 1.0) for row, held in zip(rows, program.held, strict=True) if held in row
        ]
        _add(
            problem,
            kept,
            LpConstraintGE,
            sum([held >= 0 for held in program.held]) - program.changes,
        )


def _useful(sizes: Sequence[int], values: Sequence[float], held: int) -> list[int]:
    """List the places of sizes that are better than every smaller one; what a job has is always
    one, because keeping it is no change.
    """
    most, found = -inf, []
    for place in sorted(range(len(sizes)), key=lambda place: (sizes[place], -values[place], place)):
        if values[place] > most or place == held:
            most = max(most, values[place])
            found.append(place)
    return found


def _binary(problem: LpProblem, letter: str, job: int, place: int) -> LpVariable:
    return problem.add_variable(f"{letter}_{job:0{_WIDTH}d}_{place:0{_WIDTH}d}", 0, 1, LpInteger)


def _add(
    problem: LpProblem, terms: Sequence[tuple[LpVariable, float]], sense: int, bound: float
) -> None:
    problem.addConstraint(LpConstraint(LpAffineExpression(terms), sense, rhs=bound))


def _scale(coefficients: Sequence[float]) -> float:
    most = max(map(abs, coefficients), default=0.0)
    return _LARGEST / most if most > 0 else 1.0


class _Solver(NamedTuple):
    title: str
    lack: str  # what is missing if it is not available
    make: Callable[[float, bool, float], Any]
    gap: Callable[[LpProblem, float], float]


def _highs(gap: float, ahead: bool, step: float) -> Any:
    # Over one slot presolve takes longer than it saves, and the two heuristics go over all columns
    # in vain; over several it pays. See benchmarks/elastic.py.
    settings: dict[str, Any] = {
        "mip_feasibility_tolerance": _EXACT,
        "primal_feasibility_tolerance": _EXACT,
    }
    if not ahead:
        settings |= {
            "presolve": "off",
            "mip_heuristic_run_feasibility_jump": False,
            "mip_heuristic_run_root_reduced_cost": False,
        }
    return pulp.HiGHS(msg=False, threads=1, gapRel=gap, gapAbs=step / 2, **settings)


def _cbc(gap: float, ahead: bool = False, step: float = 0.0) -> Any:
    del ahead
    # PULP_CBC_CMD itself is deprecated, not the binary that it ships; without that one a `cbc` on
    # the path serves.
    asked: dict[str, Any] = {
        "msg": False,
        "gapRel": gap,
        "gapAbs": step / 2,
        "options": [f"integerT {_EXACT}", f"primalT {_EXACT}"],
    }
    bundled = pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, **asked)
    return bundled if bundled.available() else pulp.COIN_CMD(**asked)


def _gap_of_highs(problem: LpProblem, gap: float) -> float:
    del gap
    return (
        float(problem.solverModel.getInfo().mip_gap) if problem.isMIP() else 0.0
    )  # of a program without jobs it reports an infinite one


SOLVERS: Final = {
    "highs": _Solver("HiGHS", "HiGHS is not installed (package highspy)", _highs, _gap_of_highs),
    "cbc": _Solver(
        "CBC", "The CBC that PuLP brings along cannot be run here", _cbc, lambda _, gap: gap
    ),
}


def available(name: str) -> bool:
    """Tell whether a solver of `SOLVERS` is there."""
    return bool((pulp.HiGHS() if name == "highs" else _cbc(0.0)).available())


@dataclass
class Solvers:
    """The solvers that may be used, the wanted one first; another takes over where it is missing or
    fails, and `remarks` says so.

    Parameters
    ----------
    wanted : str
        Key of `SOLVERS`.
    gap : float
        Relative gap at which a solver may stop. There is no time limit: results must not depend on
        the speed of a machine.

    Raises
    ------
    ParameterError
        If there is none at all.
    """

    wanted: str
    gap: float
    _there: list[str] = field(init=False, repr=False)
    _failed: dict[str, int] = field(init=False, repr=False, default_factory=dict)
    _asked: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Look which solvers are there."""
        self._there = [
            name
            for name in sorted(SOLVERS, key=lambda name: name != self.wanted)
            if available(name)
        ]
        if not self._there:
            raise ParameterError(
                "Neither HiGHS (package highspy) nor the CBC of PuLP can be run here: install"
                " highspy, or use the exact solver dp."
            )

    @property
    def _way_out(self) -> str:
        other = (
            "choose solver=dp (which keeps no fifo_admission, no max_changes and looks ahead over"
            " one period)"
        )
        return (
            f"{other[0].upper()}{other[1:]}."
            if "highs" in self._there
            else f"Install highspy, or {other}."
        )

    def solve(self, problem: LpProblem, step: float = 0.0, *, ahead: bool) -> tuple[str, float]:
        """Solve a problem and return who did it and the gap proven; with a step, of which the
        objective is a multiple, to the optimum.

        Raises
        ------
        SolverError
            If no solver found an optimum.
        """
        self._asked += 1
        reasons = []
        for name in self._there:
            try:
                status = problem.solve(SOLVERS[name].make(0.0 if step else self.gap, ahead, step))
            except (pulp.PulpError, OSError, RuntimeError, ValueError) as error:
                reasons.append(f"{SOLVERS[name].title}: {error}")
            else:
                if (status, problem.sol_status) == (pulp.LpStatusOptimal, pulp.LpSolutionOptimal):
                    return SOLVERS[name].title, (
                        0.0 if step else SOLVERS[name].gap(problem, self.gap)
                    )
                reasons.append(f"{SOLVERS[name].title}: {pulp.LpStatus[status].lower()}")
            self._failed[name] = self._failed.get(name, 0) + 1
        size = f"{problem.numVariables():,} variable{'s' if problem.numVariables() > 1 else ''}"
        said = f"No solver found the optimum of a program of {size} ({'; '.join(reasons)})"
        raise SolverError(f"{said}; the run was stopped. {self._way_out}")

    def remarks(self) -> tuple[str, ...]:
        """Return sentences for the user: which solvers are missing, and how often each failed."""
        first = self._there[0]
        said = (
            [f"{SOLVERS[self.wanted].lack}, so {SOLVERS[first].title} solves the programs."]
            if first != self.wanted
            else []
        )
        for name, times in self._failed.items():
            other = [SOLVERS[it].title for it in self._there if it != name]
            said.append(
                f"{SOLVERS[name].title} failed on {times:,} of {self._asked:,}"
                f" programs{f', which {other[0]} solved instead' if other else ''}."
            )
        return tuple(said)
