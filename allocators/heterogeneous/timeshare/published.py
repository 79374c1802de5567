"""Objectives of Gavel as in its published code, with the solutions of its solver.

`allocators.heterogeneous.timeshare.shares` finds the same optima. If an optimum is not unique, it
takes the center of all; these are the shares that upstream's solver takes, on which its published
figures depend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from allocators.heterogeneous.timeshare import shares
from allocators.heterogeneous.timeshare.problem import (
    Floats,
    Ints,
    Problem,
    Shares,
    isolated_rates,
    isolated_shares,
    normal_rates,
    per_job,
    progress,
    runs_somewhere,
    tidy,
)

CURVED_ROWS: Final = 3
"""Rows of a second-order cone: the last rows of every job, if there is one."""
_INSIDE: Final = 0.99  # part of a unit by which an interior point is moved back


class Rows(NamedTuple):
    """Values of all constraint rows: `own` of shape (jobs, rows), `gpus` by GPU type."""

    own: Floats
    gpus: Floats

    def plus(self, other: Rows, times: float = 1.0) -> Rows:
        """Return the sum with a multiple of other rows."""
        return Rows(self.own + times * other.own, self.gpus + times * other.gpus)

    def dot(self, other: Rows) -> float:
        """Return the scalar product."""
        return float(np.vdot(self.own, other.own) + self.gpus @ other.gpus)


class BlockColumns(NamedTuple):
    """Numbers for all columns: each job's, of shape (jobs, columns), and the level's."""

    own: Floats
    level: float

    def plus(self, other: BlockColumns, times: float = 1.0) -> BlockColumns:
        """Return the sum with a multiple of other columns."""
        return BlockColumns(self.own + times * other.own, self.level + times * other.level)

    def dot(self, other: BlockColumns) -> float:
        """Return the scalar product."""
        return float(np.vdot(self.own, other.own) + self.level * other.level)


@dataclass(frozen=True)
class Cone:
    """A cone program: minimize ``cost . x`` where ``limit - rows . x`` is in a cone.

    Parameters
    ----------
    rows : array (jobs, rows, columns)
        Coefficients of each job in its own columns; the first columns are its shares of time.
    on_level : array (jobs, rows)
        Coefficients in the column of the level.
    gpus : array (jobs, types)
        GPUs of each type used per share of time.
    cost : BlockColumns
        The objective.
    limit : Rows
        The right-hand side.
    curved : bool
        Whether the last three rows of every job are a second-order cone; all others are >= 0.
    """

    rows: Floats
    on_level: Floats
    gpus: Floats
    cost: BlockColumns
    limit: Rows
    curved: bool = False

    def times(self, x: BlockColumns) -> Rows:
        """Return the values of all constraint rows at the columns `x`: A x."""
        own = np.matmul(self.rows, x.own[:, :, None])[:, :, 0] + self.on_level * x.level
        return Rows(own, np.einsum("mk,mk->k", self.gpus, x.own[:, : self.gpus.shape[1]]))

    def transpose_times(self, z: Rows) -> BlockColumns:
        """Return the values of all columns at the row multipliers `z`: A^T z."""
        own = np.matmul(z.own[:, None, :], self.rows)[:, 0]
        own[:, : self.gpus.shape[1]] += self.gpus * z.gpus
        return BlockColumns(own, float(np.vdot(self.on_level, z.own)))


def norm(values: Rows | BlockColumns) -> float:
    """Return the Euclidean length of all numbers together."""
    own, rest = values
    return float(np.sqrt(np.vdot(own, own) + np.vdot(rest, rest)))


def determinant(values: Floats) -> Floats:
    """Return head squared minus tail squared of every row: > 0 inside the second-order cone."""
    squares: Floats = values[:, 0] ** 2 - (values[:, 1:] ** 2).sum(axis=1)
    return squares


def mirror(values: Floats) -> Floats:
    """Return the rows with their tails negated."""
    return np.concatenate((values[:, :1], -values[:, 1:]), axis=1)


def product(a: Rows, b: Rows, *, curved: bool) -> Rows:
    """Return the product of the cone's algebra: by element, or of second-order cones."""
    own = a.own * b.own
    if curved:
        u, v = a.own[:, -CURVED_ROWS:], b.own[:, -CURVED_ROWS:]
        own[:, -CURVED_ROWS] = (u * v).sum(axis=1)
        own[:, 1 - CURVED_ROWS :] = u[:, :1] * v[:, 1:] + v[:, :1] * u[:, 1:]
    return Rows(own, a.gpus * b.gpus)


def quotient(by: Rows, a: Rows, *, curved: bool) -> Rows:
    """Return a divided by `by`, the inverse of `product`."""
    own = a.own / by.own
    if curved:
        u, v = by.own[:, -CURVED_ROWS:], a.own[:, -CURVED_ROWS:]
        along = (u[:, 1:] * v[:, 1:]).sum(axis=1)
        first = (u[:, 0] * v[:, 0] - along) / determinant(u)
        own[:, -CURVED_ROWS] = first
        own[:, 1 - CURVED_ROWS :] = (v[:, 1:] - first[:, None] * u[:, 1:]) / u[:, :1]
    return Rows(own, a.gpus / by.gpus)


def unit(rows: Rows, *, curved: bool) -> Rows:
    """Return the identity element of `product`, in the shape of these rows."""
    own = np.ones_like(rows.own)
    if curved:
        own[:, 1 - CURVED_ROWS :] = 0.0
    return Rows(own, np.ones_like(rows.gpus))


def depth(rows: Rows, *, curved: bool) -> float:
    """Return how far a point is inside the cone, in multiples of `unit`; < 0 outside."""
    flat = rows.own[:, :-CURVED_ROWS] if curved else rows.own
    lowest = min(float(flat.min()), float(rows.gpus.min()))
    if curved:
        bent = rows.own[:, -CURVED_ROWS:]
        lowest = min(lowest, float((bent[:, 0] - np.hypot(bent[:, 1], bent[:, 2])).min()))
    return lowest


def move_inside(rows: Rows, *, curved: bool) -> Rows:
    """Return a point moved along the unit until it is well inside the cone."""
    lowest = depth(rows, curved=curved)
    return rows.plus(unit(rows, curved=curved), 1 + (-lowest if lowest <= 0 else -_INSIDE))


def inverse_max_step(at: Rows, change: Rows, *, curved: bool) -> float:
    """Return the inverse of the longest step in a direction that stays inside the cone, >= 0."""
    own = change.own / at.own
    if not curved:
        return max(0.0, -float(own.min()), -float((change.gpus / at.gpus).min()))
    lowest = min(float(own[:, :-CURVED_ROWS].min()), float((change.gpus / at.gpus).min()))
    size = np.sqrt(determinant(at.own[:, -CURVED_ROWS:]))[:, None]
    axis, move = at.own[:, -CURVED_ROWS:] / size, change.own[:, -CURVED_ROWS:]
    along = axis[:, 0] * move[:, 0] - (axis[:, 1:] * move[:, 1:]).sum(axis=1)
    rest = move[:, 1:] - ((along + move[:, 0]) / (axis[:, 0] + 1))[:, None] * axis[:, 1:]
    return max(0.0, -lowest, float(((np.hypot(rest[:, 0], rest[:, 1]) - along) / size[:, 0]).max()))


_ROUNDS_OF_SCALING: Final = 3
_TINY: Final = 1e-6
_TOLERANCE: Final = 1e-8
_MAX_STEPS: Final = 100
_PART: Final = 0.99  # of the way to the boundary that a step goes
_LEAST, _LONGEST = 1e-6, 0.999
_MIN_CENTRING: Final = 1e-4
_REFINED: Final = 1e-9  # relative error of a right-hand side at which refinement stops
_MAX_REFINEMENTS: Final = 9
_REFINES: Final = 6  # each refinement must lower the error by this factor, or it is the last


def solve(cone: Cone) -> Floats:
    """Return the end of the interior-point path, a row of columns for each job.

    Notes
    -----
    The path ends when primal and dual are met to 1e-8, or after 100 steps.
    """
    scaled, columns = _scale_program(cone)
    return _follow_path(scaled) / columns


def _scale_program(cone: Cone) -> tuple[Cone, Floats]:
    """Return the program with scaled rows and columns, and the scale of each job's columns."""
    rows, on_level, gpus = cone.rows, cone.on_level, cone.gpus
    by_column, by_level = np.ones(cone.cost.own.shape), 1.0
    limit, types = cone.limit, gpus.shape[1]
    for _ in range(_ROUNDS_OF_SCALING):
        high = np.maximum(np.abs(rows).max(axis=2), np.abs(on_level))
        if cone.curved:
            high[:, -CURVED_ROWS:] = high[:, -CURVED_ROWS:].sum(axis=1, keepdims=True)
        across = np.abs(rows).max(axis=1)
        across[:, :types] = np.maximum(across[:, :types], np.abs(gpus))
        own, of_gpus = _safe_root(high), _safe_root(np.abs(gpus).max(axis=0))
        column, level = _safe_root(across), float(_safe_root(np.abs(on_level).max()))
        rows = rows / own[:, :, None] / column[:, None, :]
        on_level = on_level / own / level
        gpus = gpus / of_gpus / column[:, :types]
        limit = Rows(limit.own / own, limit.gpus / of_gpus)
        by_column, by_level = by_column * column, by_level * level
    cost = BlockColumns(cone.cost.own / by_column, cone.cost.level / by_level)
    return Cone(rows, on_level, gpus, cost, limit, cone.curved), by_column


def _safe_root(values: Floats) -> Floats:
    """Return the square roots of values; 1 for tiny ones."""
    return np.where(values < _TINY, 1.0, np.sqrt(values))


Solver = Callable[[BlockColumns, Rows], tuple[BlockColumns, Rows]]


class Scaling:
    """The Nesterov-Todd scaling W of a point: ``W z = s / W``."""

    def __init__(self, s: Rows, z: Rows, *, curved: bool) -> None:
        self._flat = slice(0, -CURVED_ROWS if curved else None)
        self._curved = curved
        self._own = np.sqrt(s.own[:, self._flat] / z.own[:, self._flat])
        self._gpus = np.sqrt(s.gpus / z.gpus)
        if curved:
            a, b = s.own[:, -CURVED_ROWS:], z.own[:, -CURVED_ROWS:]
            size_a, size_b = np.sqrt(determinant(a)), np.sqrt(determinant(b))
            a, b = a / size_a[:, None], b / size_b[:, None]
            between = np.sqrt((1 + (a * b).sum(axis=1)) / 2)
            self._axis = (a + mirror(b)) / (2 * between)[:, None]
            self._step_length = np.sqrt(size_a / size_b)[:, None]

    def apply(self, rows: Rows) -> Rows:
        """Return W times some rows."""
        own = rows.own.copy()
        flat = own[:, self._flat]
        flat *= self._own
        if self._curved:
            curved = self._turn_curved(rows.own[:, -CURVED_ROWS:, None], back=False)[:, :, 0]
            own[:, -CURVED_ROWS:] = curved
        return Rows(own, rows.gpus * self._gpus)

    def _turn_curved(self, values: Floats, *, back: bool) -> Floats:
        """Return the curved rows' block, or with `back` its inverse, times columns of values."""
        axis = mirror(self._axis) if back else self._axis
        head, tail = axis[:, :1, None], axis[:, 1:, None]
        along = (tail * values[:, 1:]).sum(axis=1, keepdims=True)
        first = head * values[:, :1] + along
        rest = values[:, 1:] + tail * (values[:, :1] + along / (1 + head))
        length = self._step_length[:, :, None]
        turned: Floats = np.concatenate((first, rest), axis=1)
        return turned / length if back else turned * length

    def _turn_back(self, values: Floats) -> None:
        """Divide the curved rows, the last columns of an array, by their block, in place."""
        bent = values[:, -CURVED_ROWS:]
        bent[...] = self._turn_curved(bent[:, :, None], back=True)[:, :, 0]

    def twice(self, rows: Rows) -> Rows:
        """Return W times W times some rows."""
        return self.apply(self.apply(rows))

    def solver(self, cone: Cone) -> Solver:
        """Return a function that solves the equations of a step for x and z."""
        types, columns = cone.gpus.shape[1], cone.rows.shape[2]
        firm = cone.rows[:, types:].copy()  # without the rows x >= 0, which need no unknowns
        if self._curved:
            firm[:, -CURVED_ROWS:] = self._turn_curved(firm[:, -CURVED_ROWS:], back=True)
        weight = cone.rows[:, range(types), range(types)] / self._own[:, :types]
        wide = columns + firm.shape[1]
        joint = np.zeros((len(firm), wide, wide))
        joint[:, range(types), range(types)] = weight**2
        joint[:, :columns, columns:] = firm.transpose(0, 2, 1)
        joint[:, columns:, :columns] = firm
        flat = range(columns, wide - CURVED_ROWS * self._curved)
        joint[:, flat, flat] = -(self._own[:, types:] ** 2)
        if self._curved:
            joint[:, range(-CURVED_ROWS, 0), range(-CURVED_ROWS, 0)] = -1.0
        inverse = np.linalg.inv(joint)
        shared = np.zeros((len(firm), wide, types + 1))
        shared[:, range(types), range(types)] = cone.gpus
        shared[:, columns:, -1] = cone.on_level[:, types:]
        carried = np.matmul(inverse, shared)
        small = -np.einsum("mci,mcj->ij", shared, carried)
        small[range(types), range(types)] -= self._gpus**2
        small[-1, -1] += not cone.on_level.any()

        def solve_once(right: BlockColumns, below: Rows) -> tuple[BlockColumns, Rows]:
            own = np.concatenate((right.own, below.own[:, types:]), axis=1)
            if self._curved:
                self._turn_back(own)
            own[:, :types] += below.own[:, :types] * weight / self._own[:, :types]
            job_part = np.matmul(inverse, own[:, :, None])[:, :, 0]
            right_side = np.append(below.gpus, right.level) - np.einsum(
                "mci,mc->i", shared, job_part
            )
            solution = np.linalg.solve(small, right_side)
            job_part -= np.matmul(carried, solution)
            x = job_part[:, :columns]
            if self._curved:
                self._turn_back(job_part)
            scale = self._own[:, :types]
            bound = (weight * x[:, :types] - below.own[:, :types] / scale) / scale
            z = Rows(np.concatenate((bound, job_part[:, columns:]), axis=1), solution[:-1])
            return BlockColumns(x, float(solution[-1])), z

        def step(right: BlockColumns, below: Rows) -> tuple[BlockColumns, Rows]:
            """Solve the equations of a step with iterative refinement; return x and z."""
            x, z = solve_once(right, below)
            before = np.inf
            for _ in range(_MAX_REFINEMENTS):
                missed = right.plus(cone.transpose_times(z), -1.0)
                short = below.plus(cone.times(x), -1.0).plus(self.twice(z))
                error = norm(missed) / (1 + norm(right))
                error = max(error, norm(short) / (1 + norm(below)))
                if error <= _REFINED or error * _REFINES > before:
                    break
                more, rest = solve_once(missed, short)
                x, z, before = x.plus(more), z.plus(rest), error
            return x, z

        return step


def _step_length(
    at: Rows, changes: tuple[Rows, Rows], scalars: tuple[float, ...], *, curved: bool
) -> float:
    """Return the longest step that stays inside the cone, within bounds.

    `scalars` are two numbers > 0 and their changes, which must stay positive too.
    """
    tau, change, kappa, other = scalars
    nearest = max(inverse_max_step(at, change, curved=curved) for change in changes)
    nearest = max(nearest, -change / tau, -other / kappa)
    return min(max(1 / nearest if nearest > 0 else _LONGEST, _LEAST), _LONGEST)


class Residuals(NamedTuple):
    """Errors of the embedding's equations: columns, rows and objectives."""

    columns: BlockColumns
    rows: Rows
    values: float


@dataclass
class _Point:
    """A point of the path: primal x and s, dual z, and the two scalars of the embedding."""

    cone: Cone
    x: BlockColumns
    s: Rows
    z: Rows
    tau: float = 1.0
    kappa: float = 1.0

    def residuals(self) -> Residuals:
        """Return the errors of the equations at this point."""
        cone = self.cone
        columns = cone.transpose_times(self.z).plus(cone.cost, self.tau)
        rows = self.s.plus(cone.times(self.x)).plus(cone.limit, -self.tau)
        return Residuals(
            BlockColumns(-columns.own, -columns.level),
            rows,
            self.kappa + cone.cost.dot(self.x) + cone.limit.dot(self.z),
        )

    def is_inside(self) -> bool:
        """Return True if the point is inside the cone despite rounding errors."""
        curved = self.cone.curved
        inside = min(depth(self.s, curved=curved), depth(self.z, curved=curved))
        return min(self.tau, self.kappa, inside) > 0

    def is_end(self, missed: Residuals) -> bool:
        """Return True if primal and dual constraints are met and their gap is closed."""
        cone = self.cone
        worth, bound = cone.cost.dot(self.x), -cone.limit.dot(self.z)
        if worth >= 0 and bound < -_TOLERANCE:
            return False
        rows = max(1.0, norm(cone.limit)) + norm(self.x) + norm(self.s)
        columns = max(1.0, norm(cone.cost)) + norm(self.z)
        if max(norm(missed.rows) / rows, norm(missed.columns) / columns) >= _TOLERANCE * self.tau:
            return False
        gap = self.s.dot(self.z)
        scale = -worth if worth < 0 else bound
        return gap < _TOLERANCE or gap * self.tau < _TOLERANCE * scale


def _follow_path(cone: Cone) -> Floats:
    """Follow the path to its end; return each job's columns for a scaled program."""
    curved, minus = cone.curved, BlockColumns(-cone.cost.own, -cone.cost.level)
    even = unit(cone.limit, curved=False)
    step = Scaling(even, even, curved=False).solver(cone)
    x, z = step(BlockColumns(np.zeros_like(minus.own), 0.0), cone.limit)
    nothing = Rows(np.zeros_like(even.own), np.zeros_like(even.gpus))
    s, dual = nothing.plus(z, -1.0), step(minus, nothing)[1]
    at = _Point(cone, x, move_inside(s, curved=curved), move_inside(dual, curved=curved))
    degree = even.own.size + len(even.gpus) + 1 - (CURVED_ROWS - 1) * len(even.own) * curved
    for _ in range(_MAX_STEPS):
        missed = at.residuals()
        if at.is_end(missed):
            break
        try:
            onward = _advance(at, missed, minus, degree)
        except np.linalg.LinAlgError:  # singular equations close to the end
            break
        if not onward.is_inside():
            break
        at = onward
    return at.x.own / at.tau


def _advance(at: _Point, missed: Residuals, minus: BlockColumns, degree: int) -> _Point:
    """Return the next point by a predictor and a centering corrector step."""
    cone, curved, tau, kappa = at.cone, at.cone.curved, at.tau, at.kappa
    scaling = Scaling(at.s, at.z, curved=curved)
    middle, solver = scaling.apply(at.z), scaling.solver(cone)
    mean = (at.s.dot(at.z) + kappa * tau) / degree

    def worth(x: BlockColumns, z: Rows) -> float:
        """Return the combined objective of a primal and a dual direction."""
        return cone.cost.dot(x) + cone.limit.dot(z)

    x1, z1 = solver(minus, cone.limit)
    share = kappa / tau - worth(x1, z1)
    x2, z2 = solver(missed.columns, at.s.plus(missed.rows, -1.0))
    more = (missed.values - kappa + worth(x2, z2)) / share
    dual = scaling.apply(z2.plus(z1, more))
    primal = Rows(-dual.own - middle.own, -dual.gpus - middle.gpus)
    other = -kappa - kappa / tau * more
    far = _step_length(middle, (primal, dual), (tau, more, kappa, other), curved=curved)
    centring = min(max((1 - far) ** 3, _MIN_CENTRING), 1.0)

    wanted = product(middle, middle, curved=curved).plus(product(primal, dual, curved=curved))
    wanted = wanted.plus(unit(wanted, curved=curved), -centring * mean)
    wanted = quotient(middle, wanted, curved=curved)
    left = 1 - centring
    part = BlockColumns(left * missed.columns.own, left * missed.columns.level)
    x2, z2 = solver(part, scaling.apply(wanted).plus(missed.rows, -left))
    scalars = kappa * tau + other * more - centring * mean
    more = (left * missed.values - scalars / tau + worth(x2, z2)) / share
    change = z2.plus(z1, more)
    dual = scaling.apply(change)
    primal = Rows(-wanted.own - dual.own, -wanted.gpus - dual.gpus)
    other = -(scalars + kappa * more) / tau
    far = _PART * _step_length(middle, (primal, dual), (tau, more, kappa, other), curved=curved)

    return _Point(
        cone,
        at.x.plus(x2.plus(x1, more), far),
        at.s.plus(scaling.apply(primal), far),
        at.z.plus(change, far),
        tau + far * more,
        kappa + far * other,
    )


_IN_THE_CONE: Final = 2.0
"""``speed x wait >= 1`` is the cone ``|(speed - wait, 2)| <= speed + wait``."""


def max_min(problem: Problem) -> Shares:
    """Return shares that maximize the least weighted, normalized throughput."""
    jobs = np.flatnonzero(runs_somewhere(problem) > 0)
    if not len(jobs):
        return Shares(np.zeros(problem.rates.shape), np.inf)
    scale = problem.gangs / per_job(problem, problem.weights)
    scale[jobs] /= normal_rates(problem)[jobs]
    worth = problem.rates * scale[:, None]
    rows, on_level, limit = _time_rows(problem, jobs, 1, columns=0)
    types = problem.rates.shape[1]
    rows[:, -1, :types], on_level[:, -1] = -worth[jobs], 1.0
    cost = BlockColumns(np.zeros(rows[:, 0].shape), -1.0)
    x = _solve_shares(
        problem, jobs, Cone(rows, on_level, _gpus_per_share(problem, jobs), cost, limit)
    )
    return Shares(x, float((worth * x).sum(axis=1)[jobs].min()))


def max_sum_throughput(problem: Problem) -> Shares:
    """Return shares that maximize the sum of iterations per second."""
    jobs = np.flatnonzero(runs_somewhere(problem) > 0)
    if not len(jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    rows, on_level, limit = _time_rows(problem, jobs, 0, columns=0)
    cost = BlockColumns(-problem.rates[jobs], 0.0)
    x = _solve_shares(
        problem, jobs, Cone(rows, on_level, _gpus_per_share(problem, jobs), cost, limit)
    )
    return Shares(x, float(progress(problem, x).sum()))


def cost(problem: Problem) -> Shares:
    """Return shares that maximize iterations per second, each over its type's price."""
    return max_sum_throughput(problem._replace(rates=problem.rates / problem.prices))


def finish_time_fairness(problem: Problem) -> Shares:
    """Return shares that minimize the largest ratio of completion time to that in isolation.

    Notes
    -----
    One more column per job is seconds per iteration, at least 1 / throughput. With a single job
    these are minimized directly. If the solver fails, the shares are those of isolation.
    """
    left, age_s, alone_s = (
        per_job(problem, values) for values in (problem.left, problem.age_s, problem.isolated_s)
    )
    jobs = np.flatnonzero((runs_somewhere(problem) > 0) & (left > 0))
    if not len(jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    whole_s = alone_s[jobs] + left[jobs] / isolated_rates(problem)[jobs]
    types, several = problem.rates.shape[1], len(jobs) > 1
    rows, on_level, limit = _time_rows(problem, jobs, 3 + several, columns=1)
    per_wait = left[jobs] / whole_s
    if several:
        rows[:, -4, types], on_level[:, -4] = per_wait, -1.0
        limit.own[:, -4] = -age_s[jobs] / whole_s
    for row, sign in ((-3, 1.0), (-2, -1.0)):
        rows[:, row, :types], rows[:, row, types] = -problem.rates[jobs], -sign
    limit.own[:, -1] = _IN_THE_CONE
    price = np.zeros((len(jobs), types + 1))
    price[:, types] = 0.0 if several else per_wait
    program = Cone(
        rows,
        on_level,
        _gpus_per_share(problem, jobs),
        BlockColumns(price, float(several)),
        limit,
        curved=True,
    )
    x = _solve_shares(problem, jobs, program)
    rates = progress(problem, x)[jobs]
    if not (rates > 0).all():
        x = isolated_shares(problem).x
        rates = progress(problem, x)[jobs]
    return Shares(x, float(((age_s[jobs] + left[jobs] / rates) / whole_s).max()))


def makespan(problem: Problem) -> Shares:
    """Return shares that finish all jobs within the time at which upstream's bisection ends.

    Notes
    -----
    The program has no objective, so its solution depends on the path of the solver only.
    """
    left = per_job(problem, problem.left)
    within_s = shares.makespan(problem, bisection=True).value
    jobs = np.flatnonzero((runs_somewhere(problem) > 0) & (left > 0))
    if not len(jobs):
        return Shares(np.zeros(problem.rates.shape), 0.0)
    rows, on_level, limit = _time_rows(problem, jobs, 1, columns=0)
    rows[:, -1] = -problem.rates[jobs]
    limit.own[:, -1] = -left[jobs] / within_s
    cost = BlockColumns(np.zeros(rows[:, 0].shape), 0.0)
    x = _solve_shares(
        problem, jobs, Cone(rows, on_level, _gpus_per_share(problem, jobs), cost, limit)
    )
    return Shares(x, within_s)


PUBLISHED: Final[Mapping[str, Callable[[Problem], Shares]]] = MappingProxyType(
    {
        "max_min": max_min,
        "finish_time_fairness": finish_time_fairness,
        "makespan": makespan,
        "max_sum_throughput": max_sum_throughput,
        "cost": cost,
    }
)
"""Solver by objective. Other objectives have a unique optimum, or are handled in
`allocators.heterogeneous.gavel.objective`.
"""


def _time_rows(
    problem: Problem, jobs: Ints, more: int, *, columns: int
) -> tuple[Floats, Floats, Rows]:
    """Return rows, level coefficients and limits for shares >= 0 with sums of at most 1.

    There is room for `more` rows, still zeros.
    """
    count, types = len(jobs), problem.rates.shape[1]
    rows = np.zeros((count, types + 1 + more, types + columns))
    rows[:, range(types), range(types)] = -1.0
    rows[:, types, :types] = 1.0
    limit = np.zeros(rows.shape[:2])
    limit[:, types] = 1.0
    return rows, np.zeros(rows.shape[:2]), Rows(limit, problem.devices.astype(float))


def _gpus_per_share(problem: Problem, jobs: Ints) -> Floats:
    """Return the GPUs used per share of time, shape (jobs, types): each job's gang."""
    gangs: Floats = problem.gangs[jobs].astype(np.float64)
    return np.tile(gangs.reshape(-1, 1), (1, problem.rates.shape[1]))


def _solve_shares(problem: Problem, jobs: Ints, program: Cone) -> Floats:
    """Solve a program; return the shares of all jobs of the problem, in single precision.

    Jobs without a row have shares of 0.
    """
    count, types = problem.rates.shape
    x = np.zeros((count, types))
    x[jobs] = solve(program)[:, :types]
    # Equal jobs must tie on every machine; digits beyond single precision are noise.
    return tidy(problem, x.astype(np.float32).astype(np.float64))
