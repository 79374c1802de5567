"""Cost per job of the queue policies on a bursty philly-like workload, in units U, and memory per job. Each case runs in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from time import process_time

import psutil

from allocators import make
from benchmarks.unit import unit_s
from sim.cluster import Cluster
from sim.contract import Spec
from sim.generate import generate
from sim.simulator import Simulator

POLICIES = ("fifo", "easy", "sjf", "srtf", "las")
BUDGET_U = {"fifo": 20, "easy": 45, "sjf": 45, "srtf": 90, "las": 90}


def measure(policy: str, jobs: int, load: float, seed: int) -> dict[str, float | str]:
    """Run one case here and return its figures."""
    cluster = Cluster.parse("512x8:v100")
    before = psutil.Process().memory_info().rss
    trace = generate("philly", jobs=jobs, seed=seed, cluster=cluster, load=load)
    unit = unit_s()
    began = process_time()
    result = Simulator(trace, cluster, make(Spec.parse(policy))).run()
    cost_s = process_time() - began
    after = psutil.Process().memory_info().rss
    unit = (unit + unit_s()) / 2
    wait_s = (result.jobs["finish_s"] - result.jobs["submit_s"] - result.jobs["held_s"]).mean()
    return {
        "policy": policy,
        "jobs": jobs,
        "load": load,
        "us_per_job": round(cost_s / jobs * 1e6, 2),
        "unit_us": round(unit * 1e6, 3),
        "U_per_job": round(cost_s / jobs / unit, 1),
        "budget_U": BUDGET_U[policy] * (2 if load > 1 else 1),
        "mean_wait_s": round(float(wait_s)),
        "decisions": len(result.decisions),
        "kB_per_job": round((after - before) / jobs / 1e3, 3),
    }


def case(policy: str, jobs: int, load: float, seed: int = 0) -> dict[str, float | str]:
    """Run one case in a fresh interpreter."""
    command = [sys.executable, "-m", "benchmarks.kernel", policy, str(jobs), str(load), str(seed)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main(arguments: list[str]) -> None:
    """Print the table; ``--quick`` leaves out the million-job cases."""
    cases = [(policy, jobs, load) for policy in POLICIES for jobs, load in ((100_000, 0.9), (100_000, 1.05), (1_000_000, 0.9))]
    for policy, jobs, load in cases:
        if jobs <= 100_000 or "--quick" not in arguments:
            print(json.dumps(case(policy, jobs, load)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("policy")
    parser.add_argument("jobs", type=int)
    parser.add_argument("load", type=float)
    parser.add_argument("seed", type=int)
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.policy, chosen.jobs, chosen.load, chosen.seed)))
