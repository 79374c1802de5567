"""Cost and memory per job of the queue policies on a bursty Philly-like workload, in units U.

Each case has its own process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from time import process_time

import psutil

from allocators import make
from benchmarks.unit import print_figures, unit_s
from jobtraces.generate import generate
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Simulator

POLICIES = ("fifo", "easy", "sjf", "srtf", "las")
MAX_GROWTH, MAX_KB = 1.3, 0.8
BUDGET_U = {"fifo": 20, "easy": 34, "sjf": 26, "srtf": 75, "las": 65}


def measure(policy: str, jobs: int, load: float, seed: int) -> dict[str, float | str]:
    """Run one case, up to five times, in this process; return its figures, median times."""
    cluster = Cluster.parse("512x8:v100")
    before = psutil.Process().memory_info().rss
    trace = generate("philly", jobs=jobs, seed=seed, cluster=cluster, load=load)
    units, costs_s = [], []
    for _ in range(5 if jobs <= 100_000 else 1):
        units.append(unit_s(repeats=3))
        began = process_time()
        result = Simulator(trace, cluster, make(Spec.parse(policy))).run()
        costs_s.append(process_time() - began)
    after = psutil.Process().memory_info().rss
    cost_s, unit = statistics.median(costs_s), statistics.median(units)
    wait_s = (result.jobs["finish_s"] - result.jobs["submit_s"] - result.jobs["held_s"]).mean()
    return {
        "policy": policy,
        "jobs": jobs,
        "load": load,
        "us_per_job": round(cost_s / jobs * 1e6, 2),
        "unit_us": round(unit * 1e6, 3),
        "U_per_job": round(cost_s / jobs / unit, 1),
        "budget_U": BUDGET_U[policy] * (2 if load > 1 else MAX_GROWTH if jobs > 100_000 else 1),
        "mean_wait_s": round(float(wait_s)),
        "decisions": len(result.decisions),
        "kB_per_job": round((after - before) / jobs / 1e3, 3),
    }


def run_case(policy: str, jobs: int, load: float, seed: int = 0) -> dict[str, float | str]:
    """Run one case in a fresh interpreter."""
    command = [sys.executable, "-m", "benchmarks.kernel", policy, str(jobs), str(load), str(seed)]
    return dict(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


def main(arguments: list[str]) -> Iterator[str]:
    """Print the table and yield exceeded budgets; ``--quick`` omits the million-job cases."""
    shapes = ((100_000, 0.9), (100_000, 1.05), (1_000_000, 0.9))
    for policy in POLICIES:
        rows = []
        for jobs, load in shapes[:2] if "--quick" in arguments else shapes:
            rows.append(run_case(policy, jobs, load))
            print_figures(**rows[-1])
            if rows[-1]["U_per_job"] > rows[-1]["budget_U"]:
                yield f"{policy}: {rows[-1]['U_per_job']} U per job of {jobs:,} at load {load}"
        if len(rows) > 2:
            ratio = float(rows[2]["U_per_job"]) / float(rows[0]["U_per_job"])
            title = "cost per job, 1,000,000 jobs over 100,000"
            print_figures(**{"policy": policy, title: round(ratio, 2)})
            if ratio > MAX_GROWTH:
                yield f"{policy}: {title} is {ratio:.2f}"
            if float(rows[2]["kB_per_job"]) > MAX_KB:
                yield f"{policy}: {rows[2]['kB_per_job']} kB per job"


if __name__ == "__main__":
    print_figures(**measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
