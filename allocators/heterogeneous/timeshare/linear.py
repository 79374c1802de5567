"""Linear programs over shares of time, solved by HiGHS.

`allocators.heterogeneous.timeshare.level` solves most of them faster.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np

from allocators.heterogeneous.timeshare.problem import (
    Floats,
    Ints,
    NoSharesError,
    Problem,
    runs_somewhere,
    tidy,
)

_TOLERANCE = 1e-9


class LinearProgram(NamedTuple):
    """Maximize ``level + sum(values * x)`` with at least ``least + gain * level`` per job.

    The bound is in iterations per second.

    Parameters
    ----------
    values : array (jobs, types)
        Value of a share of time.
    least : array (jobs,)
        Least iterations per second of each job.
    gain : array (jobs,), optional
        Growth of that bound with the level, >= 0; without it there is no level.
    """

    values: Floats
    least: Floats
    gain: Floats | None = None


class LinearSolution(NamedTuple):
    """Optimum of a linear program: shares of time, and the level (0 without one)."""

    x: Floats
    level: float


def solve(problem: Problem, program: LinearProgram) -> LinearSolution | None:
    """Return an optimum of a program, or None if it is infeasible.

    Raises
    ------
    NoSharesError
        If the solver ends in any other way, e.g. because the level has no limit.

    Notes
    -----
    Jobs that cannot run on any type with GPUs are left out, with their bounds. Rows are scaled by
    the highest rate of each job.
    """
    jobs, types = problem.rates.shape
    problem = problem._replace(rates=problem.rates * (problem.devices > 0))
    fastest = runs_somewhere(problem)
    rows, columns = np.nonzero(problem.rates > 0)
    if not len(rows):
        return LinearSolution(np.zeros((jobs, types)), 0.0)
    solver = _make_solver(_build_model(problem, program, fastest, (rows, columns)))
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        raise NoSharesError(
            f"HiGHS could not solve a program of {len(rows):,} shares of time"
            f" ({solver.modelStatusToString(status)})"
        )
    values = np.asarray(solver.getSolution().col_value)
    x = np.zeros((jobs, types))
    x[rows, columns] = values[: len(rows)]
    return LinearSolution(tidy(problem, x), float(values[-1]) if program.gain is not None else 0.0)


def _build_model(
    problem: Problem, program: LinearProgram, fastest: Floats, at: tuple[Ints, Ints]
) -> highspy.HighsLp:
    """Return the HiGHS model of a program.

    Columns: shares of time in the order of `at`, then the level. Rows: time of jobs, GPUs of types,
    progress of jobs.
    """
    rows, columns = at
    jobs, types = problem.rates.shape
    count, has_level = len(rows), program.gain is not None
    scale = np.where(fastest > 0, fastest, 1.0)
    entries = [
        (rows, np.arange(count), np.ones(count)),
        (jobs + columns, np.arange(count), problem.gangs[rows].astype(float)),
        (jobs + types + rows, np.arange(count), (problem.rates[rows, columns] / scale[rows])),
    ]
    if program.gain is not None:
        runs = np.flatnonzero(fastest > 0)
        entries.append(
            (jobs + types + runs, np.full(len(runs), count), -program.gain[runs] / scale[runs])
        )
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    order = np.argsort(column, kind="stable")
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count + has_level, 2 * jobs + types
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.append(program.values[rows, columns], [1.0] * has_level)
    lp.col_lower_ = np.append(np.zeros(count), [-np.inf] * has_level)
    lp.col_upper_ = np.full(count + has_level, np.inf)
    lp.row_lower_ = np.concatenate(
        (np.full(jobs + types, -np.inf), np.where(fastest > 0, program.least / scale, -np.inf))
    )
    lp.row_upper_ = np.concatenate(
        (np.ones(jobs), problem.devices.astype(float), np.full(jobs, np.inf))
    )
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.concatenate(
        ([0], np.cumsum(np.bincount(column, minlength=count + has_level)))
    )
    lp.a_matrix_.index_, lp.a_matrix_.value_ = row[order], value[order]
    return lp


def _make_solver(lp: highspy.HighsLp) -> highspy.Highs:
    """Return a HiGHS solver with this model, on one thread."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in (
        ("output_flag", False),
        ("threads", 1),
        ("primal_feasibility_tolerance", _TOLERANCE),
        ("dual_feasibility_tolerance", _TOLERANCE),
    ):
        solver.setOptionValue(name, value)
    solver.passModel(lp)
    return solver
