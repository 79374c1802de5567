"""Decisions of AITurbo and Optimus with a thousand active jobs: CPU time of each, on one node and
on many.
"""

from __future__ import annotations

import json
import statistics
from typing import Final

from allocators import make
from benchmarks.hadar import TimedAllocator
from jobtraces.generate.aiturbo import AITurboWorkload
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.parameter_server import ParameterServer

ACTIVE: Final = 1000
MAX_MS: Final = 300.0
CLUSTERS: Final = ("1x16:v100/480c", "64x8:v100/96c")
POLICIES: Final = ("aiturbo", "optimus:interval_s=60")


def main(arguments: list[str]) -> list[str]:
    """Print the figures, and return what is over its budget; ``--quick``: for half as long."""
    horizon_s = 1200.0 if "--quick" in arguments else 2400.0
    return [
        sentence
        for cluster in CLUSTERS
        for policy in POLICIES
        for sentence in _case(policy, cluster, horizon_s)
    ]


def _case(policy: str, cluster: str, horizon_s: float) -> list[str]:
    timed = TimedAllocator(make(Spec.parse(policy)), ACTIVE)
    trace = AITurboWorkload(jobs=2000, gap_s=0.5).make()
    Simulator(
        trace,
        Cluster.parse(cluster),
        timed,
        Conditions(ParameterServer(), overheads=Overheads(restart_s=30), horizon_s=horizon_s),
    ).run()
    case = f"{policy}, at least {ACTIVE:,} jobs active, {cluster}"
    figures = {
        "median_ms": round(statistics.median(timed.took_ms), 2),
        "longest_ms": round(max(timed.took_ms), 1),
    }
    print(json.dumps({"case": case, "decisions": len(timed.took_ms), **figures}), flush=True)
    return [f"{case}: {figures['median_ms']} ms"] if figures["median_ms"] > MAX_MS else []
