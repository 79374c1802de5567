"""Integer programs of elastic allocation, built with PuLP and solved by HiGHS or CBC."""

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

# Solvers have absolute tolerances, so the greatest coefficient of an objective is scaled to this.
_MAX_COEFFICIENT: Final = 1e4
_WIDTH: Final = 7  # digits of a number in a variable name: PuLP sorts variables by name


class SizeProgram(NamedTuple):
    """Choice of one size for every job with the best sum of values that fits.

    Extends `allocators.elastic.knapsack.knapsack` by `fifo` and `changes`.

    Parameters
    ----------
    sizes, values, optional, capacity
        As for the knapsack; an obligatory job without sizes makes it infeasible.
    held : sequence of int
        Index of the present size of every job; -1 = it waits.
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
    """Choice of sizes over several slots; `program` describes the first one.

    Its values are the progress in the first slot, as shares of the remaining job. Its `ties`, whole
    numbers, decide between first slots that reach the same objective over all slots.

    Parameters
    ----------
    program : SizeProgram
        Sizes, capacity, and values and constraints of the first slot.
    later : sequence of sequences of float
        Progress in each later slot, as shares of the remaining job.
    weights : sequence of float
        Value of each whole remaining job.
    slots : int
        Number of slots, at least 1.
    gamma : float
        Discount of each slot relative to the one before.
    cost : float
        Cost of each change of size between slots; a start is one, too.
    """

    program: SizeProgram
    later: Sequence[Sequence[float]]
    weights: Sequence[float]
    slots: int
    gamma: float
    cost: float


class SolvedSizes(NamedTuple):
    """Sizes chosen by a solver, with objective and gap.

    Parameters
    ----------
    at : list of int
        Index of each job's size in the first slot; -1 = none.
    objective : float
        Objective of the whole program.
    gap : float
        Proven relative distance to the optimum; CBC does not report it, so it is the tolerance.
    solver : str
        Title of the solver.
    """

    at: list[int]
    objective: float
    gap: float
    solver: str


_HALF_A_STEP: Final = 0.5
# Tolerance of integers and bounds: below the steps of values, so that ties are seen.
_EXACT: Final = 1e-9
# Relative difference of objectives that counts as equal over several slots, where progress is real.
_SAME: Final = 1e-7
Row = dict[int, LpVariable]
"""Variables of one job by the index of their size."""


class _Model(NamedTuple):
    """An integer program with its variables of the first slot."""

    problem: LpProblem
    first: list[Row]
    scale: float = 1.0

    def set_objective(self, values: Values) -> float:
        """Set the objective to these values of the first slot; return the scale applied."""
        terms, scale = self._scaled_terms(values)
        self.problem.setObjective(LpAffineExpression(terms))
        return scale

    def keep_total(self, values: Values, at: Sequence[int]) -> None:
        """Require that the total of these whole-number values is at least that of a choice."""
        terms, scale = self._scaled_terms(values)
        _add_constraint(
            self.problem, terms, LpConstraintGE, (_total_value(values, at) - _HALF_A_STEP) * scale
        )

    def places(self) -> list[int]:
        """Return the size index of every job in the first slot; -1 = none."""
        return [
            next(
                (place for place, x in row.items() if x.varValue is not None and x.varValue > 0.5),
                -1,
            )
            for row in self.first
        ]

    def _scaled_terms(self, values: Values) -> tuple[list[tuple[LpVariable, float]], float]:
        """Return the terms of these values, scaled for the solver, and the scale."""
        scale = _scale_factor([value for job in values for value in job])
        return [
            (x, job[place] * scale)
            for row, job in zip(self.first, values, strict=True)
            for place, x in row.items()
        ], scale


def solve(program: SizeProgram | Horizon, solvers: Solvers) -> SolvedSizes:
    """Build and solve a program, with its tie-breaks, and return the chosen sizes.

    Raises
    ------
    SolverError
        If no solver found an optimum.

    Notes
    -----
    Each tie-break is a program of its own in which earlier levels must keep their values. Over one
    slot it contains only sizes of the `core`, which are few if units are scarce.
    """
    if isinstance(program, Horizon):
        return _solve_slots(program, solvers)
    if len(near := _reachable_jobs(program)) < len(program.sizes):
        solved = solve(_restrict(program, near), solvers)
        places = dict(zip(near, solved.at, strict=True))
        return solved._replace(at=[places.get(job, -1) for job in range(len(program.sizes))])
    return _solve_one_slot(program, solvers)


def _solve_one_slot(program: SizeProgram, solvers: Solvers) -> SolvedSizes:
    """Solve a program over one slot, break ties, and return the chosen sizes."""
    model = _build_one_slot(
        program,
        [
            _useful_places(*job)
            for job in zip(program.sizes, program.values, program.held, strict=True)
        ],
    )
    name, gap = solvers.solve(model.problem, model.scale if program.ties else 0.0, ahead=False)
    at = model.places()
    columns = (
        core(
            program.sizes,
            program.values,
            program.optional,
            program.capacity,
            _total_value(program.values, at),
        )
        if program.ties
        else []
    )
    if any(len(places) > 1 for places in columns):
        at = _break_ties(
            _build_one_slot(program, columns),
            program.ties,
            at,
            [program.values],
            partial(solvers.solve, ahead=False),
        )
    return SolvedSizes(at, _total_value(program.values, at), gap, name)


def _solve_slots(horizon: Horizon, solvers: Solvers) -> SolvedSizes:
    """Solve a program over several slots, break ties, and return sizes of the first slot."""
    model, ties = _build_slots(horizon), horizon.program.ties
    name, gap = solvers.solve(model.problem, ahead=True)
    at, reached = model.places(), float(pulp.value(model.problem.objective) or 0.0)
    if ties:
        _add_constraint(
            model.problem,
            list(model.problem.objective.items()),
            LpConstraintGE,
            reached - _MAX_COEFFICIENT * _SAME,
        )
        at = _break_ties(
            model, ties, at, [], lambda problem, step: solvers.solve(problem, ahead=True)
        )
    return SolvedSizes(at, reached / model.scale, gap, name)


def _break_ties(
    model: _Model,
    ties: Sequence[Values],
    at: list[int],
    levels: list[Values],
    run: Callable[[LpProblem, float], object],
) -> list[int]:
    """Return a choice that is solved again on each tie-break level without earlier losses.

    Skips levels of zeros. Stops with the last choice if a solver answers one that loses on an
    earlier level.
    """
    for values in ties:
        if not any(map(any, values)):
            continue
        if levels:
            model.keep_total(levels[-1], at)
        run(model.problem, model.set_objective(values))
        candidate = model.places()
        if any(_total_value(level, candidate) < _total_value(level, at) for level in levels):
            break
        at, levels = candidate, [*levels, values]
    return at


def _total_value(values: Values, at: Sequence[int]) -> float:
    """Return the total value of a choice."""
    return fsum([job[place] for job, place in zip(values, at, strict=True) if place >= 0])


def _restrict(program: SizeProgram, jobs: Sequence[int]) -> SizeProgram:
    """Return the program restricted to these jobs."""
    sizes, values = [program.sizes[job] for job in jobs], [program.values[job] for job in jobs]
    optional, held = [program.optional[job] for job in jobs], [program.held[job] for job in jobs]
    return program._replace(
        sizes=sizes,
        values=values,
        optional=optional,
        held=held,
        ties=[[level[job] for job in jobs] for level in program.ties],
    )


def _reachable_jobs(program: SizeProgram) -> list[int]:
    """Return the jobs that can get a size under ``fifo``.

    Without ``fifo`` these are all jobs; otherwise none from the first waiting job on whose smallest
    size does not fit beside those before it.
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


def _build_one_slot(program: SizeProgram, columns: Sequence[Sequence[int]]) -> _Model:
    """Build the program over one slot with these size indices only."""
    problem = LpProblem("sizes", LpMaximize)
    rows = [
        {place: _add_binary(problem, "x", at, place) for place in places if place >= 0}
        for at, places in enumerate(columns)
    ]
    _add_constraints(problem, program, rows)
    model = _Model(problem, rows)
    return model._replace(scale=model.set_objective(program.values))


def _build_slots(horizon: Horizon) -> _Model:
    """Build the program over several slots."""
    program, slots = horizon.program, range(horizon.slots)
    problem, scale = LpProblem("slots", LpMaximize), _scale_factor([*horizon.weights, horizon.cost])
    rows = [
        [
            {place: _add_binary(problem, f"x{slot:03d}", at, place) for place in range(len(sizes))}
            for at, sizes in enumerate(program.sizes)
        ]
        for slot in slots
    ]
    terms: list[tuple[LpVariable, float]] = []
    for job, weight in enumerate(horizon.weights):
        progress = [problem.add_variable(f"q{slot:03d}_{job:0{_WIDTH}d}", 0, 1) for slot in slots]
        for slot, q in enumerate(progress):
            shares = horizon.later[job] if slot else program.values[job]
            _add_constraint(
                problem,
                [(q, 1.0), *((x, -shares[place]) for place, x in rows[slot][job].items())],
                LpConstraintLE,
                0,
            )
            terms.append((q, weight * scale * horizon.gamma**slot))
        _add_constraint(problem, [(q, 1.0) for q in progress], LpConstraintLE, 1)
        if horizon.cost > 0:
            terms += [
                (x, sign * horizon.cost * scale)
                for x, sign in _change_terms(
                    problem, job, [rows[slot][job] for slot in slots], program.held[job]
                )
            ]
    problem.setObjective(LpAffineExpression(terms))
    _add_constraints(problem, program, rows[0])
    anything = program._replace(optional=[True] * len(program.sizes), fifo=False, changes=-1)
    for slot in slots[1:]:
        _add_constraints(problem, anything, rows[slot])
    return _Model(problem, rows[0], scale)


def _change_terms(
    problem: LpProblem, job: int, rows: Sequence[Row], held: int
) -> list[tuple[LpVariable, float]]:
    """Return terms that sum to minus the number of size changes of a job over the slots.

    An indicator of each size that stays is tighter than one of each change.
    """
    terms = [(x, -1.0) for place, x in rows[0].items() if place != held]
    for slot, (before, row) in enumerate(pairwise(rows), 1):
        for place, x in row.items():
            stays = problem.add_variable(f"y{slot:03d}_{job:0{_WIDTH}d}_{place:0{_WIDTH}d}", 0, 1)
            _add_constraint(problem, [(stays, 1.0), (x, -1.0)], LpConstraintLE, 0)
            _add_constraint(problem, [(stays, 1.0), (before[place], -1.0)], LpConstraintLE, 0)
            terms += [(x, -1.0), (stays, 1.0)]
    return terms


def _add_constraints(problem: LpProblem, program: SizeProgram, rows: Sequence[Row]) -> None:
    """Add the constraints of one slot: one size per job, capacity, ``fifo`` and ``changes``."""
    for row, may_skip in zip(rows, program.optional, strict=True):
        _add_constraint(
            problem,
            [(x, 1.0) for x in row.values()],
            LpConstraintLE if may_skip else LpConstraintEQ,
            1,
        )
    _add_constraint(
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
            _add_constraint(
                problem,
                [*((x, 1.0) for x in earlier.values()), *((x, -1.0) for x in later.values())],
                LpConstraintGE,
                0,
            )
    if program.changes >= 0:
        kept = [
            (row[held], 1.0) for row, held in zip(rows, program.held, strict=True) if held in row
        ]
        _add_constraint(
            problem,
            kept,
            LpConstraintGE,
            sum([held >= 0 for held in program.held]) - program.changes,
        )


def _useful_places(sizes: Sequence[int], values: Sequence[float], held: int) -> list[int]:
    """Return the indices of sizes with a better value than every smaller size.

    The present size is always one of them, because keeping it is no change.
    """
    most, useful = -inf, []
    for place in sorted(range(len(sizes)), key=lambda place: (sizes[place], -values[place], place)):
        if values[place] > most or place == held:
            most = max(most, values[place])
            useful.append(place)
    return useful


def _add_binary(problem: LpProblem, letter: str, job: int, place: int) -> LpVariable:
    """Add a binary variable to the problem, named by letter, job and size index; return it."""
    return problem.add_variable(f"{letter}_{job:0{_WIDTH}d}_{place:0{_WIDTH}d}", 0, 1, LpInteger)


def _add_constraint(
    problem: LpProblem, terms: Sequence[tuple[LpVariable, float]], sense: int, bound: float
) -> None:
    """Add a linear constraint to a problem."""
    problem.addConstraint(LpConstraint(LpAffineExpression(terms), sense, rhs=bound))


def _scale_factor(coefficients: Sequence[float]) -> float:
    """Return the factor that scales the greatest coefficient to `_MAX_COEFFICIENT`, or 1."""
    most = max(map(abs, coefficients), default=0.0)
    return _MAX_COEFFICIENT / most if most > 0 else 1.0


class _Solver(NamedTuple):
    """A solver and the message shown without it.

    `make` returns it for a relative gap, whether the program has several slots, and the step of the
    objective. `gap` returns the gap proven for a solved problem, given the allowed gap.
    """

    title: str
    lack: str
    make: Callable[[float, bool, float], Any]
    gap: Callable[[LpProblem, float], float]


def _highs(gap: float, ahead: bool, step: float) -> Any:
    """Return a HiGHS solver for one slot, or with `ahead` for several slots; single-threaded.

    `gap` is relative; the absolute gap is half a step.
    """
    # Over one slot presolve and the two heuristics cost more time than they save; over several
    # slots they pay. See benchmarks/elastic.py.
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


def _cbc(gap: float, step: float = 0.0) -> Any:
    """Return the CBC solver bundled with PuLP if available, otherwise the one on the path.

    `gap` is relative; the absolute gap is half a step.
    """
    # PULP_CBC_CMD is deprecated, but not its binary; without that, a `cbc` on the path is used.
    settings: dict[str, Any] = {
        "msg": False,
        "gapRel": gap,
        "gapAbs": step / 2,
        "options": [f"integerT {_EXACT}", f"primalT {_EXACT}"],
    }
    bundled = pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, **settings)
    return bundled if bundled.available() else pulp.COIN_CMD(**settings)


def _gap_of_highs(problem: LpProblem, gap: float) -> float:
    """Return the relative gap that HiGHS has proven; 0 without integer variables."""
    del gap
    return (
        float(problem.solverModel.getInfo().mip_gap) if problem.isMIP() else 0.0
    )  # of a program without jobs it reports an infinite one


SOLVERS: Final = {
    "highs": _Solver("HiGHS", "HiGHS is not installed (package highspy)", _highs, _gap_of_highs),
    "cbc": _Solver(
        "CBC",
        "The CBC that PuLP brings along cannot be run here",
        lambda gap, _, step: _cbc(gap, step),
        lambda _, gap: gap,
    ),
}


def is_available(name: str) -> bool:
    """Return True if a solver of `SOLVERS` can be used."""
    return bool((pulp.HiGHS() if name == "highs" else _cbc(0.0)).available())


@dataclass
class Solvers:
    """The available solvers, the preferred one first; the other replaces it if it fails.

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
        If no solver is available.
    """

    wanted: str
    gap: float
    _available: list[str] = field(init=False, repr=False)
    _failed: dict[str, int] = field(init=False, repr=False, default_factory=dict)
    _solved: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Find the available solvers."""
        self._available = [
            name
            for name in sorted(SOLVERS, key=lambda name: name != self.wanted)
            if is_available(name)
        ]
        if not self._available:
            raise ParameterError(
                "Neither HiGHS (package highspy) nor the CBC of PuLP can be run here: install"
                " highspy, or use the exact solver dp."
            )

    @property
    def _advice(self) -> str:
        """Return a sentence on what the user can do if no solver works."""
        other = (
            "choose solver=dp (which keeps no fifo_admission, no max_changes and looks ahead over"
            " one period)"
        )
        return (
            f"{other[0].upper()}{other[1:]}."
            if "highs" in self._available
            else f"Install highspy, or {other}."
        )

    def solve(self, problem: LpProblem, step: float = 0.0, *, ahead: bool) -> tuple[str, float]:
        """Solve with the first solver that succeeds; return its title and the proven gap.

        Counts programs and failures for the remarks. If the objective is a multiple of `step`, the
        problem is solved to the optimum.

        Raises
        ------
        SolverError
            If no solver found an optimum.
        """
        self._solved += 1
        reasons = []
        for name in self._available:
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
        message = f"No solver found the optimum of a program of {size} ({'; '.join(reasons)})"
        raise SolverError(f"{message}; the run was stopped. {self._advice}")

    def remarks(self) -> tuple[str, ...]:
        """Return notes on missing solvers and on how often each failed."""
        first = self._available[0]
        notes = (
            [f"{SOLVERS[self.wanted].lack}, so {SOLVERS[first].title} solves the programs."]
            if first != self.wanted
            else []
        )
        for name, times in self._failed.items():
            other = [SOLVERS[it].title for it in self._available if it != name]
            notes.append(
                f"{SOLVERS[name].title} failed on {times:,} of {self._solved:,}"
                f" programs{f', which {other[0]} solved instead' if other else ''}."
            )
        return tuple(notes)
