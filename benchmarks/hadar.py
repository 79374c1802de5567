"""CPU time per round of Hadar and HadarE with many active jobs, on two clusters."""

from __future__ import annotations

import statistics
from time import process_time
from typing import NamedTuple

from allocators.heterogeneous.hadar.hadare import HadarE
from allocators.heterogeneous.hadar.policy import Hadar
from benchmarks.unit import print_figures
from jobtraces.generate import workload
from sim.cluster import Cluster
from sim.contract import Allocator, Plan, View
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.profiled import Profiled

MAX_MS = 50.0
PUBLISHED = "5x4:v100,5x4:p100,5x4:k80"


class HadarSize(NamedTuple):
    """A static workload with its number of rounds and the budget of the median decision.

    An infinite budget is not checked.
    """

    name: str
    allocator: Allocator
    jobs: int
    cluster: str
    rounds: int
    budget_ms: float = float("inf")


class TimedAllocator:
    """Policy that records the CPU time of each decision with at least `least` active jobs."""

    def __init__(self, inner: Allocator, least: int) -> None:
        self.inner, self._least = inner, least
        self.cadence, self.needs, self.card = inner.cadence, inner.needs, inner.card
        self.took_ms: list[float] = []

    def allocate(self, view: View, /) -> Plan:
        """Return the plan of the inner policy and record its CPU time."""
        began = process_time()
        plan = self.inner.allocate(view)
        if len(view.active) >= self._least:
            self.took_ms.append((process_time() - began) * 1e3)
        return plan


def main(arguments: list[str]) -> list[str]:
    """Print the figures and return exceeded budgets; ``--quick`` runs a tenth of the rounds."""
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
        sentence
        for case in cases
        for sentence in _measure_rounds(case, 10 if "--quick" in arguments else 1)
    ]


def _measure_rounds(case: HadarSize, divisor: int) -> list[str]:
    """Print the figures of one case and return its exceeded budget."""
    # Extra jobs keep the number of active jobs high while the rounds are timed.
    trace = workload(f"hadar:jobs={case.jobs * 5 // 4}").make()
    timed = TimedAllocator(case.allocator, case.jobs)
    conditions = Conditions(
        Profiled(),
        overheads=Overheads(restart_s=10.0),
        horizon_s=360.0 * max(case.rounds // divisor, 3),
    )
    Simulator(trace, Cluster.parse(case.cluster), timed, conditions).run()
    median_ms = round(statistics.median(timed.took_ms), 2)
    print_figures(
        case=case.name,
        decisions=len(timed.took_ms),
        median_ms=median_ms,
        longest_ms=round(max(timed.took_ms), 1),
    )
    return [f"{case.name}: {median_ms} ms"] if median_ms > case.budget_ms else []
