"""Elastic decisions: the dynamic program and the integer program on equal instances, and runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np
import pandas as pd

from allocators.elastic.knapsack import ChosenSizes, knapsack
from allocators.elastic.mip import MipElastic
from allocators.elastic.programs import Horizon, SizeProgram, Solvers, _build_one_slot, solve
from allocators.elastic.utility import JobValues, progress, values
from benchmarks.unit import print_figures
from sim.cluster import Cluster
from sim.contract import Plan, View
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.scaling import PowerLaw
from sim.trace import Trace

T = TypeVar("T")
SEEDS = range(9)
LOOKAHEAD_S, PAUSE_S = 900.0, 60.0
GAP = 1e-7  # tighter than the default of 1e-6, so that six digits of the objective agree
MAX_DP_MS, MAX_MIP_S, MAX_DIFFERENCE = 20.0, 1.0, 5e-7


def draw_jobs(
    jobs: int, units: int, sizes: tuple[int, ...], seed: int
) -> tuple[list[JobValues], int]:
    """Draw jobs with log-normal work; half of them run, on at most half of the units."""
    rng = np.random.default_rng(seed)
    left_s, alpha = rng.lognormal(np.log(3600), 1.2, jobs), rng.uniform(0.55, 0.95, jobs)
    held, free = rng.integers(0, len(sizes), jobs), units // 2
    jobs_drawn = []
    for job in range(jobs):
        size = sizes[held[job]]
        runs = job % 2 == 0 and size <= free
        free -= size if runs else 0
        speeds = tuple(
            float(size**exponent)
            for size, exponent in zip(sizes, [alpha[job]] * len(sizes), strict=True)
        )
        jobs_drawn.append(
            JobValues(
                1.0,
                1.0,
                [float(left_s[job]) / speed for speed in speeds],
                PAUSE_S if runs else 0.0,
                int(held[job]) if runs else -1,
                speeds,
            )
        )
    return jobs_drawn, units


def draw_program(jobs: int, units: int, sizes: tuple[int, ...], seed: int) -> SizeProgram:
    """Draw the program of one slot that can leave out waiting jobs."""
    drawn, capacity = draw_jobs(jobs, units, sizes, seed)
    worth = values("remaining", drawn, LOOKAHEAD_S)
    return SizeProgram(
        [sizes] * jobs,
        worth,
        [offer.held < 0 for offer in drawn],
        capacity,
        [offer.held for offer in drawn],
    )


def solve_exactly(program: SizeProgram) -> ChosenSizes:
    """Return the optimum of a program, found by the dynamic program."""
    chosen = knapsack(program.sizes, program.values, program.optional, program.capacity)
    assert chosen is not None
    return chosen


def measure_time(
    work: Callable[[], T], clock: Callable[[], float] = process_time
) -> tuple[T, float]:
    """Return the result of a call and the seconds it took."""
    began = clock()
    return work(), clock() - began


def main(arguments: list[str]) -> list[str]:
    """Print median CPU seconds (CBC: wall) of nine instances and return exceeded budgets.

    ``--quick`` draws three instances.
    """
    seeds = SEEDS[:3] if "--quick" in arguments else SEEDS
    over = [*_time_dynamic_program(seeds), *_compare_solvers(seeds)]
    _time_slots(seeds)
    _time_decisions()
    return over


def _time_dynamic_program(seeds: range) -> list[str]:
    """Print the time of the dynamic program on 500 jobs; return the exceeded budget."""
    programs = [draw_program(500, 1024, tuple(range(1, 17)), seed) for seed in seeds]
    took_ms = (
        statistics.median(measure_time(lambda it=it: solve_exactly(it))[1] for it in programs) * 1e3
    )
    case = "DP, 500 jobs x 1,024 units x 16 sizes"
    print_figures(case=case, ms=round(took_ms, 1), budget_ms=MAX_DP_MS)
    return [f"DP on 500 jobs: {took_ms:.1f} ms"] if took_ms > MAX_DP_MS else []


def _compare_solvers(seeds: range) -> Iterator[str]:
    """Print time and objective of both solvers against the dynamic program; yield excesses."""
    programs = [draw_program(2000, 4096, (1, 2, 4, 8, 16), seed) for seed in seeds]
    choices, dp_s = zip(
        *[measure_time(lambda it=it: solve_exactly(it)) for it in programs], strict=True
    )
    built_s = statistics.median(
        measure_time(lambda it=it: _build_one_slot(it, [range(len(sizes)) for sizes in it.sizes]))[
            1
        ]
        for it in programs
    )
    for name, clock, most_s in (
        ("highs", process_time, MAX_MIP_S),
        ("cbc", perf_counter, float("inf")),
    ):
        solvers = Solvers(name, GAP)
        solved, mip_s = zip(
            *[measure_time(lambda it=it, by=solvers: solve(it, by), clock) for it in programs],
            strict=True,
        )
        ratios = [mip.objective / dp.objective for mip, dp in zip(solved, choices, strict=True)]
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        median_s, solver = statistics.median(mip_s), solved[0].solver
        figures = {
            "case": f"{solver}, 2,000 jobs x 4,096 units x 5 sizes",
            "s": round(median_s, 3),
            "longest_s": round(max(mip_s), 3),
            "of which building_s": round(built_s, 3),
            "largest gap": max(it.gap for it in solved),
            "objective over that of the DP": f"{worst:.6f}",
            "dp_s": round(statistics.median(dp_s), 4),
            "DP time over MIP time": round(statistics.median(dp_s) / median_s, 3),
        }
        print_figures(**figures)
        if median_s > most_s:
            yield f"{solver} on 2,000 jobs: {median_s:.2f} s"
        if abs(worst - 1) > MAX_DIFFERENCE:
            yield f"{solver}: objective differs by {worst - 1:.1e}"
        if max(it.gap for it in solved) > GAP:
            yield f"{solver}: gap {figures['largest gap']}"


def _time_slots(seeds: range) -> None:
    """Print the time of HiGHS on programs of four slots."""
    jobs, slots = 100, 4
    solvers = Solvers("highs", 0.01)
    took_s = []
    for seed in seeds[:3]:
        drawn, capacity = draw_jobs(jobs, 256, (1, 2, 4, 8, 16), seed)
        first, later = (
            [progress(offer._replace(pause_s=pause), 300.0) for offer in drawn]
            for pause in (PAUSE_S, 0.0)
        )
        program = SizeProgram(
            [(1, 2, 4, 8, 16)] * jobs,
            first,
            [offer.held < 0 for offer in drawn],
            capacity,
            [offer.held for offer in drawn],
        )
        horizon = Horizon(program, later, [1.0] * jobs, slots, 0.95, 0.0)
        took_s.append(measure_time(lambda it=horizon: solve(it, solvers))[1])
    case = f"HiGHS, {jobs} jobs x 256 units x 5 sizes x {slots} slots, gap 0.01"
    print_figures(case=case, s=round(statistics.median(took_s), 3), longest_s=round(max(took_s), 3))


class _TimedMip(MipElastic):
    """MIP policy that records the CPU time of each decision."""

    def allocate(self, view: View, /) -> Plan:
        began = process_time()
        plan = super().allocate(view)
        self.__dict__.setdefault("took_s", []).append(process_time() - began)
        return plan


def _time_decisions() -> None:
    """Print the time of whole decisions on 500 jobs, values and placement included."""
    jobs = 500
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in range(jobs)],
            "submit_time_s": 0.0,
            "num_gpus": 1,
            "min_gpus": 1,
            "max_gpus": 16,
        }
    )
    frame = frame.assign(
        duration_s=rng.lognormal(np.log(7200), 1.2, jobs) + 7200,
        scaling_exponent=rng.uniform(0.55, 0.95, jobs),
    )
    allocator = _TimedMip(sizes="all")
    conditions = Conditions(PowerLaw(), overheads=Overheads(restart_s=PAUSE_S), horizon_s=3600.0)
    Simulator(Trace.of(frame), Cluster.parse("128x8:v100"), allocator, conditions).run()
    took_ms = statistics.median(allocator.__dict__["took_s"]) * 1e3
    case = "whole decision with values and seats, DP, 500 jobs x 1,024 GPUs x 16 sizes"
    print_figures(case=case, ms=round(took_ms, 1), decisions=len(allocator.__dict__["took_s"]))
