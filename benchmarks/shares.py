"""Shares of time on several GPU types: all objectives, cold and warm, and general solvers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from time import process_time

import numpy as np
import pulp
from scipy.optimize import linprog
from scipy.sparse import coo_array

from allocators.heterogeneous.timeshare.linear import LinearProgram, solve
from allocators.heterogeneous.timeshare.matching import WAITS, allox
from allocators.heterogeneous.timeshare.problem import Problem, Shares, normal_rates
from allocators.heterogeneous.timeshare.shares import OBJECTIVES
from benchmarks.unit import print_figures
from sim.perf.measured import built_in

SEEDS = range(9)
SIZES = {480: (36, 36, 36), 2048: (36, 36, 36)}
MAX_MS = {("max_min", 480): 50.0, ("max_min", 2048): 500.0}
LONG = {"water_filling"}
TYPES = ("v100", "p100", "k80")


def draw_problem(
    jobs: int, seed: int, devices: tuple[int, ...] = (36, 36, 36), *, gangs: bool = True
) -> Problem:
    """Draw partly finished jobs of the measured kinds, as Gavel's generator does."""
    rng = np.random.default_rng(seed)
    table = _throughput_table()
    sizes = (
        rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
        if gangs
        else np.ones(jobs, np.int64)
    )
    rates = np.array([table[int(size)][rng.integers(len(table[int(size)]))] for size in sizes])
    long = rng.random(jobs) < 0.2
    duration_s = 60 * 10 ** np.where(long, rng.uniform(3, 4, jobs), rng.uniform(1.5, 3, jobs))
    age_s = rng.uniform(0, 3e5, jobs)
    fastest = rates.max(axis=1)
    return Problem(
        rates,
        sizes,
        np.array(devices),
        left=fastest * duration_s,
        age_s=age_s,
        isolated_s=age_s * rng.uniform(0.2, 1, jobs),
        due_s=duration_s * 50,
    )


def _throughput_table() -> dict[int, list[list[float]]]:
    """Return gang size -> throughputs on each GPU type, one row per measured kind."""
    by_kind: dict[tuple[str, float, int], dict[str, float]] = {}
    for key, measured in built_in("simulation").rows.items():
        by_kind.setdefault((key.model, key.batch, key.gpus), {})[key.gpu_type] = measured.together
    table: dict[int, list[list[float]]] = {}
    for (_, _, gpus), rates in by_kind.items():
        table.setdefault(gpus, []).append(
            [float(np.nan_to_num(rates.get(kind, 0.0))) for kind in TYPES]
        )
    return table


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of a call."""
    began = process_time()
    work()
    return (process_time() - began) * 1e3


def main(arguments: list[str]) -> list[str]:
    """Print median CPU milliseconds of nine instances (``--quick``: three); return excesses."""
    seeds = SEEDS[:3] if "--quick" in arguments else SEEDS
    _time_matchings(seeds)
    return [*_time_objectives(seeds), *_compare_solvers(seeds[:3])]


def _time_objectives(seeds: range) -> Iterator[str]:
    """Print the times of every objective, cold and with a hint; yield exceeded budgets."""
    for jobs, devices in SIZES.items():
        drawn = [draw_problem(jobs, seed, devices) for seed in seeds]
        for name, objective in OBJECTIVES.items():
            some = drawn[:1] if name in LONG else drawn
            answers: list[Shares] = []
            cold = statistics.median(
                cpu_ms(lambda it=it, by=objective, to=answers: to.append(by(it))) for it in some
            )
            warm = statistics.median(
                cpu_ms(lambda it=it, by=objective, hint=answer.hint: by(it._replace(hint=hint)))
                for it, answer in zip(some, answers, strict=True)
            )
            budget = MAX_MS.get((name, jobs))
            print_figures(
                case=f"{name}, {jobs:,} jobs x 3 types",
                ms=round(cold, 2),
                again_ms=round(warm, 2),
                budget_ms=budget,
            )
            if budget and cold > budget:
                yield f"{name} on {jobs:,} jobs: {cold:.1f} ms"


def _compare_solvers(seeds: range) -> Iterator[str]:
    """Print the times of general solvers on max_min; yield deviating optima."""
    for jobs, devices in SIZES.items():
        drawn = [draw_problem(jobs, seed, devices) for seed in seeds]
        best = [OBJECTIVES["max_min"](it).value for it in drawn]
        for title, level in (
            ("HiGHS, arrays", _level_by_arrays),
            ("HiGHS, scipy", _level_by_scipy),
            ("HiGHS, PuLP", _level_by_pulp),
        ):
            levels: list[float] = []
            took_ms = statistics.median(
                cpu_ms(lambda it=it, by=level, to=levels: to.append(by(it))) for it in drawn
            )
            worst = max(abs(one / other - 1) for one, other in zip(levels, best, strict=True))
            print_figures(
                case=f"max_min as a program, {jobs:,} jobs x 3 types, {title}",
                ms=round(took_ms, 1),
                differs=f"{worst:.1e}",
            )
            if worst > 1e-6:
                yield f"max_min on {jobs:,} jobs differs from {title} by {worst:.1e}"


def _gain(it: Problem) -> np.ndarray:
    """Return the normal rate per GPU of each job."""
    return normal_rates(it) / it.gangs


def _level_by_arrays(it: Problem) -> float:
    """Return the optimal level of max_min, from a program of arrays."""
    solution = solve(
        it, LinearProgram(np.zeros(it.rates.shape), np.zeros(len(it.rates)), _gain(it))
    )
    assert solution is not None
    return solution.level


def _level_by_scipy(it: Problem) -> float:
    """Return the optimal level of max_min, from a program of SciPy."""
    jobs, types = it.rates.shape
    job, kind = np.divmod(np.arange(jobs * types), types)
    scaled = it.rates.ravel() / _gain(it)[job]
    places = np.arange(jobs * types)
    rows = np.concatenate((job, jobs + kind, jobs + types + job, jobs + types + np.arange(jobs)))
    columns = np.concatenate((places, places, places, np.full(jobs, jobs * types)))
    matrix = coo_array(
        (
            np.concatenate((np.ones(len(job)), it.gangs[job], -scaled, np.ones(jobs))),
            (rows, columns),
        )
    )
    limits = np.concatenate((np.ones(jobs), it.devices, np.zeros(jobs)))
    return float(
        -linprog(
            -(np.arange(jobs * types + 1) == jobs * types).astype(float),
            A_ub=matrix,
            b_ub=limits,
            method="highs",
        ).fun
    )


def _level_by_pulp(it: Problem) -> float:
    """Return the optimal level of max_min, from a program of PuLP."""
    program, gain = pulp.LpProblem("shares", pulp.LpMaximize), _gain(it)
    level = program.add_variable("level")
    x = [
        [program.add_variable(f"x{job:05d}_{kind}", 0) for kind in range(it.rates.shape[1])]
        for job in range(len(it.rates))
    ]
    program.setObjective(level + 0)
    for job, row in enumerate(x):
        program.addConstraint(pulp.lpSum(row) <= 1)
        program.addConstraint(
            pulp.LpAffineExpression(
                [(one, rate / gain[job]) for one, rate in zip(row, it.rates[job], strict=True)]
            )
            >= level
        )
    for kind, count in enumerate(it.devices.tolist()):
        program.addConstraint(
            pulp.LpAffineExpression(
                [(row[kind], float(gang)) for row, gang in zip(x, it.gangs, strict=True)]
            )
            <= count
        )
    program.solve(pulp.HiGHS(msg=False, threads=1))
    return float(level.varValue)


def _time_matchings(seeds: range) -> None:
    """Print the time of AlloX matchings of 1,000 jobs with free GPUs."""
    for devices in ((16, 16, 16), (2, 1, 3)):
        drawn = [draw_problem(1000, seed, devices, gangs=False) for seed in seeds]
        took_ms = statistics.median(
            cpu_ms(lambda it=it: allox(it, np.full(len(it.rates), WAITS))) for it in drawn
        )
        case = f"allox, 1,000 jobs, {' + '.join(map(str, devices))} free GPUs"
        print_figures(case=case, ms=round(took_ms, 1))
