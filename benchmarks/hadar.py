"""Decisions of Hadar and HadarE: CPU time of a round with many active jobs, on the published
cluster and on a larger one.
"""

from __future__ import annotations

import json
import statistics
from time import process_time
from typing import NamedTuple

from allocators.heterogeneous.hadar.hadare import HadarE
from allocators.heterogeneous.hadar.policy import Hadar
from jobtraces.generate import workload
from sim.cluster import Cluster
from sim.contract import Allocator, Plan, View
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.profiled import Profiled

MAX_MS = 50.0
PUBLISHED = "5x4:v100,5x4:p100,5x4:k80"


class HadarSize(NamedTuple):
    """A static workload, most rounds to run, and the budget of the median decision (inf = only
    reported).
    """

    name: str
    allocator: Allocator
    jobs: int
    cluster: str
    rounds: int
    budget_ms: float = float("inf")


class TimedAllocator:
    """Notes the CPU time of every decision with at least so many active jobs."""

    def __init__(self, inner: Allocator, least: int) -> None:
        self.inner, self.cadence, self.needs, self.card = (
            inner,
            inner.cadence,
            inner.needs,
            inner.card,
        )
        self._least = least
        self.took_ms: list[float] = []

    def allocate(self, view: View, /) -> Plan:
        """Decide, and note."""
        many = len(view.active) >= self._least
        began = process_time()
        plan = self.inner.allocate(view)
        if many:
            self.took_ms.append((process_time() - began) * 1e3)
        return plan


def main(arguments: list[str]) -> list[str]:
    """Print the figures, and return what is over its budget; ``--quick``: a tenth of the rounds."""
    cases = (
        HadarSize("Hadar, 480 jobs x 60 GPUs", Hadar(), 480, PUBLISHED, 200, MAX_MS),
        HadarSize(
            "Hadar without mixing, 480 jobs x 60 GPUs",
            Hadar(mixing=False),
            480,
            PUBLISHED,
            200,
            MAX_MS,
        ),
        HadarSize("Hadar, beam 8, 480 jobs x 60 GPUs", Hadar(beam=8), 480, PUBLISHED, 100),
        HadarSize("HadarE, 480 jobs x 60 GPUs", HadarE(), 480, PUBLISHED, 200, MAX_MS),
        HadarSize(
            "Hadar, 2,000 jobs x 1,200 GPUs", Hadar(), 2000, "100x4:v100,100x4:p100,100x4:k80", 20
        ),
        HadarSize(
            "HadarE, 2,000 jobs x 1,200 GPUs", HadarE(), 2000, "100x4:v100,100x4:p100,100x4:k80", 20
        ),
    )
    return [
        sentence for case in cases for sentence in _case(case, 10 if "--quick" in arguments else 1)
    ]


def _case(case: HadarSize, divisor: int) -> list[str]:
    # Extra jobs, so that so many are still active while the rounds are timed.
    trace = workload(f"hadar:jobs={case.jobs * 5 // 4}").make()
    timed = TimedAllocator(case.allocator, case.jobs)
    conditions = Conditions(
        Profiled(),
        overheads=Overheads(restart_s=10.0),
        horizon_s=360.0 * max(case.rounds // divisor, 3),
    )
    Simulator(trace, Cluster.parse(case.cluster), timed, conditions).run()
    figures = {
        "case": case.name,
        "decisions": len(timed.took_ms),
        "median_ms": round(statistics.median(timed.took_ms), 2),
        "longest_ms": round(max(timed.took_ms), 1),
    }
    print(json.dumps(figures), flush=True)
    return (
        [f"{case.name}: {figures['median_ms']} ms"]
        if statistics.median(timed.took_ms) > case.budget_ms
        else []
    )
