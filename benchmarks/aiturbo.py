"""CPU time per decision of AITurbo and Optimus with a thousand active jobs."""

from __future__ import annotations

import statistics
from typing import Final

from allocators import make
from benchmarks.hadar import TimedAllocator
from benchmarks.unit import print_figures
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
    """Print the figures and return exceeded budgets; ``--quick`` halves the horizon."""
    horizon_s = 1200.0 if "--quick" in arguments else 2400.0
    return [
        sentence
        for cluster in CLUSTERS
        for policy in POLICIES
        for sentence in _measure_decisions(policy, cluster, horizon_s)
    ]


def _measure_decisions(policy: str, cluster: str, horizon_s: float) -> list[str]:
    """Print the figures of one case and return its exceeded budget."""
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
    print_figures(case=case, decisions=len(timed.took_ms), **figures)
    return [f"{case}: {figures['median_ms']} ms"] if figures["median_ms"] > MAX_MS else []
