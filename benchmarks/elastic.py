"""Elastic decisions: the exact dynamic program and the integer program, each timed and compared on
the same instances, and whole decisions in a run.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np
import pandas as pd

from allocators.elastic.knapsack import ChosenSizes, knapsack
from allocators.elastic.mip import MipElastic
from allocators.elastic.programs import Horizon, SizeProgram, Solvers, _build_one_slot, solve
from allocators.elastic.utility import JobValues, progress, values
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


def offers(jobs: int, units: int, sizes: tuple[int, ...], seed: int) -> tuple[list[JobValues], int]:
    """Draw jobs of which half run, on half of the units at most; log-normal work, speed a power of
    the size.
    """
    rng = np.random.default_rng(seed)
    left_s, alpha = rng.lognormal(np.log(3600), 1.2, jobs), rng.uniform(0.55, 0.95, jobs)
    held, free = rng.integers(0, len(sizes), jobs), units // 2
    made = []
    for job in range(jobs):
        size = sizes[held[job]]
        runs = job % 2 == 0 and size <= free
        free -= size if runs else 0
        speeds = tuple(
            float(size**exponent)
            for size, exponent in zip(sizes, [alpha[job]] * len(sizes), strict=True)
        )
        made.append(
            JobValues(
                1.0,
                1.0,
                [float(left_s[job]) / speed for speed in speeds],
                PAUSE_S if runs else 0.0,
                int(held[job]) if runs else -1,
                speeds,
            )
        )
    return made, units


def program(jobs: int, units: int, sizes: tuple[int, ...], seed: int) -> SizeProgram:
    drawn, capacity = offers(jobs, units, sizes, seed)
    worth = values("remaining", drawn, LOOKAHEAD_S)
    return SizeProgram(
        [sizes] * jobs,
        worth,
        [offer.held < 0 for offer in drawn],
        capacity,
        [offer.held for offer in drawn],
    )


def exact(asked: SizeProgram) -> ChosenSizes:
    found = knapsack(asked.sizes, asked.values, asked.optional, asked.capacity)
    assert found is not None
    return found


def timed(work: Callable[[], T], clock: Callable[[], float] = process_time) -> tuple[T, float]:
    began = clock()
    return work(), clock() - began


def main(arguments: list[str]) -> list[str]:
    """Print the figures, medians over nine instances of CPU seconds (CBC: wall seconds), and return
    what is over its budget; ``--quick``: three instances.
    """
    seeds = SEEDS[:3] if "--quick" in arguments else SEEDS
    return [*_divisions(seeds), *_programs(seeds), *_slots(seeds), *_decisions()]


def _divisions(seeds: range) -> list[str]:
    asked = [program(500, 1024, tuple(range(1, 17)), seed) for seed in seeds]
    took_ms = statistics.median(timed(lambda it=it: exact(it))[1] for it in asked) * 1e3
    print(
        json.dumps(
            {
                "case": "DP, 500 jobs x 1,024 units x 16 sizes",
                "ms": round(took_ms, 1),
                "budget_ms": MAX_DP_MS,
            }
        ),
        flush=True,
    )
    return [f"DP on 500 jobs: {took_ms:.1f} ms"] if took_ms > MAX_DP_MS else []


def _programs(seeds: range) -> list[str]:
    over: list[str] = []
    asked = [program(2000, 4096, (1, 2, 4, 8, 16), seed) for seed in seeds]
    choices, dp_s = zip(*[timed(lambda it=it: exact(it)) for it in asked], strict=True)
    built_s = statistics.median(
        timed(lambda it=it: _build_one_slot(it, [range(len(sizes)) for sizes in it.sizes]))[1]
        for it in asked
    )
    for name, clock, most_s in (
        ("highs", process_time, MAX_MIP_S),
        ("cbc", perf_counter, float("inf")),
    ):
        solvers = Solvers(name, GAP)
        found, mip_s = zip(
            *[timed(lambda it=it, by=solvers: solve(it, by), clock) for it in asked], strict=True
        )
        ratios = [mip.objective / dp.objective for mip, dp in zip(found, choices, strict=True)]
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        median_s = statistics.median(mip_s)
        figures = {
            "case": f"{found[0].solver}, 2,000 jobs x 4,096 units x 5 sizes",
            "s": round(median_s, 3),
            "longest_s": round(max(mip_s), 3),
            "of which building_s": round(built_s, 3),
            "largest gap": max(it.gap for it in found),
            "objective over that of the DP": f"{worst:.6f}",
            "dp_s": round(statistics.median(dp_s), 4),
            "DP time over MIP time": round(statistics.median(dp_s) / median_s, 3),
        }
        print(json.dumps(figures), flush=True)
        over += [f"{found[0].solver} on 2,000 jobs: {median_s:.2f} s"] if median_s > most_s else []
        over += (
            [f"{found[0].solver}: objective differs by {worst - 1:.1e}"]
            if abs(worst - 1) > MAX_DIFFERENCE
            else []
        )
        over += (
            [f"{found[0].solver}: gap {figures['largest gap']}"]
            if max(it.gap for it in found) > GAP
            else []
        )
    return over


def _slots(seeds: range) -> list[str]:
    jobs, slots = 100, 4
    solvers = Solvers("highs", 0.01)
    took = []
    for seed in seeds[:3]:
        drawn, capacity = offers(jobs, 256, (1, 2, 4, 8, 16), seed)
        first, later = (
            [progress(offer._replace(pause_s=pause), 300.0) for offer in drawn]
            for pause in (PAUSE_S, 0.0)
        )
        asked = SizeProgram(
            [(1, 2, 4, 8, 16)] * jobs,
            first,
            [offer.held < 0 for offer in drawn],
            capacity,
            [offer.held for offer in drawn],
        )
        horizon = Horizon(asked, later, [1.0] * jobs, slots, 0.95, 0.0)
        took.append(timed(lambda it=horizon: solve(it, solvers))[1])
    case = f"HiGHS, {jobs} jobs x 256 units x 5 sizes x {slots} slots, gap 0.01"
    print(
        json.dumps(
            {"case": case, "s": round(statistics.median(took), 3), "longest_s": round(max(took), 3)}
        ),
        flush=True,
    )
    return []


class _TimedMip(MipElastic):
    """Notes the CPU time of every decision."""

    def allocate(self, view: View, /) -> Plan:
        began = process_time()
        plan = super().allocate(view)
        self.__dict__.setdefault("took_s", []).append(process_time() - began)
        return plan


def _decisions() -> list[str]:
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
    print(
        json.dumps(
            {"case": case, "ms": round(took_ms, 1), "decisions": len(allocator.__dict__["took_s"])}
        ),
        flush=True,
    )
    return []
