"""Cost and memory per job of the fast engine, from a loaded trace to the summary, in units U.

Ten million jobs run once more for the summary alone. Each case has its own process.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from allocators import make
from benchmarks.unit import print_figures, unit_s
from jobtraces.generate import generate
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.contract import Spec
from sim.metrics import summary
from sim.overheads import Overheads
from trainyard.runs import engines

CLUSTER, TYPES = "512x8:v100", "256x8:v100,256x8:a100"
CASES = (
    ("fifo", 1_000_000, CLUSTER, 4),
    ("sjf", 1_000_000, CLUSTER, 4),
    ("easy", 100_000, CLUSTER, 8),
    ("srtf", 100_000, CLUSTER, 8),
    ("las", 100_000, CLUSTER, 8),
    ("srtf", 100_000, TYPES, 13),
    ("las", 100_000, TYPES, 16),
)
"""Policy, jobs, cluster and budget in U per job."""
CONDITIONS = Conditions(overheads=Overheads(restart_s=60.0))
MAX_KB = 0.4
HUGE, HUGE_S, HUGE_GB = 10_000_000, 60, 4


def measure(policy: str, jobs: int, nodes: str) -> dict[str, float | str]:
    """Run one case three to five times in this process; return its figures, median times."""
    engines.warm()
    cluster = Cluster.parse(nodes)
    trace = generate("philly", jobs=jobs, seed=0, cluster=cluster, load=0.9)
    before = psutil.Process().memory_info().rss
    units, costs_s, memory = [], [], 0
    for _ in range(5 if jobs <= 100_000 else 3):
        units.append(unit_s(repeats=3))
        began = process_time()
        result = engines.simulate(trace, cluster, make(Spec(policy)), CONDITIONS, "fast")
        memory = max(memory, psutil.Process().memory_info().rss - before)
        summary(result, trace, cluster)
        costs_s.append(process_time() - began)
        del result
    unit = statistics.median(units)
    return {
        "policy": policy,
        "jobs": jobs,
        "nodes": nodes,
        "us_per_job": round(statistics.median(costs_s) / jobs * 1e6, 2),
        "unit_us": round(unit * 1e6, 3),
        "U_per_job": round(statistics.median(costs_s) / jobs / unit, 2),
        "kB_per_job": round(memory / jobs / 1e3, 3),
    }


def measure_huge(jobs: int = HUGE) -> dict[str, float | str]:
    """Run `jobs` jobs from a file with the command line; return CPU time and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.parquet"
        _write_jobs(path, jobs)
        command = [sys.executable, "-m", "trainyard", "run", "--trace", str(path)]
        command += ["--cluster", CLUSTER, "--allocator", "fifo", "--engine", "fast"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--summary-only", "--json"], check=True, capture_output=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {
        "policy": "fifo --summary-only",
        "jobs": jobs,
        "cpu_s": round(cpu_s, 1),
        "peak_gb": round(used.ru_maxrss / 1e6, 2),
    }


def _write_jobs(path: Path, jobs: int) -> None:
    """Write generated jobs as a Parquet file."""
    rng = np.random.default_rng(0)
    gpus = rng.choice([1, 1, 1, 1, 2, 4, 8, 16], jobs)
    duration_s = np.round(rng.lognormal(6.1, 1.3, jobs)) + 1
    gap_s = (gpus * duration_s).mean() / Cluster.parse(CLUSTER).gpus / 0.9
    submit_s = np.round(np.cumsum(rng.exponential(gap_s, jobs)), 3)
    columns = {"submit_time_s": submit_s, "num_gpus": gpus, "duration_s": duration_s}
    pq.write_table(pa.table(columns), path, row_group_size=1_000_000)


def main(arguments: list[str]) -> Iterator[str]:
    """Print the table and yield exceeded budgets; ``--quick`` omits ten million jobs."""
    for policy, jobs, nodes, budget in CASES:
        command = [sys.executable, "-m", "benchmarks.fast", policy, str(jobs), nodes]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row = json.loads(output)
        print_figures(**row)
        if row["U_per_job"] > budget:
            yield f"fast {policy} on {nodes}: {row['U_per_job']} U per job of {jobs:,}"
        if row["kB_per_job"] > MAX_KB and jobs >= 1_000_000:
            yield f"fast {policy}: {row['kB_per_job']} kB per job"
    if "--quick" not in arguments:
        whole = measure_huge()
        print_figures(**whole)
        if float(whole["cpu_s"]) > HUGE_S or float(whole["peak_gb"]) > HUGE_GB:
            yield f"fast: {whole['cpu_s']} s and {whole['peak_gb']} GB for {HUGE:,} jobs"


if __name__ == "__main__":
    print_figures(**measure(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
