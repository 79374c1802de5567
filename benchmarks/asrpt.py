"""Decisions of A-SRPT and of its rivals: CPU time of each with a thousand active jobs, on clusters
of 60 to 200 servers.
"""

from __future__ import annotations

import json
import statistics
from typing import Final

from allocators import make
from benchmarks.hadar import TimedAllocator
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
    """Print the figures, and return what is over its budget; ``--quick``: fewer jobs, of which as
    many are active.
    """
    jobs = ACTIVE * (2 if "--quick" in arguments else 5)
    return [
        sentence
        for servers in SERVERS
        for policy in POLICIES
        for sentence in _case(policy, servers, jobs)
    ]


def _case(policy: str, servers: int, jobs: int) -> list[str]:
    # So high a load that most jobs are there before many have finished.
    chosen = Recurring(jobs=jobs, groups=jobs // 10, load=20, servers=servers)
    timed = TimedAllocator(make(Spec.parse(policy)), ACTIVE)
    Simulator(
        chosen.make(), chosen.machines(), timed, Conditions(Spread(), estimator=Noisy(0.3))
    ).run()
    took = timed.took_ms
    case = (
        f"{policy}, at least {ACTIVE:,} of {jobs:,} jobs active, {servers} servers of"
        f" {chosen.gpus_per_server} GPUs"
    )
    figures = {
        "median_ms": round(statistics.median(took), 3),
        "mean_ms": round(statistics.mean(took), 3),
        "longest_ms": round(max(took), 1),
    }
    print(json.dumps({"case": case, "decisions": len(took), **figures}), flush=True)
    return [f"{case}: {figures['longest_ms']} ms"] if figures["longest_ms"] > MAX_MS else []
