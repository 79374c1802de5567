"""CPU time per decision of A-SRPT and its rivals with a thousand active jobs."""

from __future__ import annotations

import statistics
from typing import Final

from allocators import make
from benchmarks.hadar import TimedAllocator
from benchmarks.unit import print_figures
from jobtraces.generate.recurring import Recurring
from sim.contract import Spec
from sim.engine.simulator import Conditions, Simulator
from sim.perf.communication import Spread
from sim.perf.estimators import Noisy

ACTIVE: Final = 1000
MAX_MS: Final = 5.0
SERVERS: Final = (60, 200)
POLICIES: Final = (
    "asrpt",
    "asrpt:backfill=first_fit",
    "asrpt:backfill=first_fit,mix=yes",
    "sjf",
    "sjf:size=gpu_time,backfill=first_fit",
    "fifo:backfill=first_fit",
)


def main(arguments: list[str]) -> list[str]:
    """Print the figures and return exceeded budgets; ``--quick`` has fewer jobs in all."""
    jobs = ACTIVE * (2 if "--quick" in arguments else 5)
    return [
        sentence
        for servers in SERVERS
        for policy in POLICIES
        for sentence in _measure_decisions(policy, servers, jobs)
    ]


def _measure_decisions(policy: str, servers: int, jobs: int) -> list[str]:
    """Print the figures of one case and return its exceeded budget."""
    # Under this load most jobs arrive before many have finished.
    workload = Recurring(jobs=jobs, groups=jobs // 10, load=20, servers=servers)
    timed = TimedAllocator(make(Spec.parse(policy)), ACTIVE)
    Simulator(
        workload.make(), workload.machines(), timed, Conditions(Spread(), estimator=Noisy(0.3))
    ).run()
    took_ms = timed.took_ms
    case = (
        f"{policy}, at least {ACTIVE:,} of {jobs:,} jobs active, {servers} servers of"
        f" {workload.gpus_per_server} GPUs"
    )
    figures = {
        "median_ms": round(statistics.median(took_ms), 3),
        "mean_ms": round(statistics.mean(took_ms), 3),
        "longest_ms": round(max(took_ms), 1),
    }
    print_figures(case=case, decisions=len(took_ms), **figures)
    return [f"{case}: {figures['longest_ms']} ms"] if figures["longest_ms"] > MAX_MS else []
