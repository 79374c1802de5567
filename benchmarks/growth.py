"""Growth of a run's cost from 1,000 to 4,000 jobs, at about equal numbers of active jobs."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from time import process_time
from typing import Final, NamedTuple

from allocators import make
from benchmarks.gavel import SMALL
from benchmarks.hadar import PUBLISHED
from benchmarks.unit import BUDGETS_UNIT_S, print_figures, unit_s
from jobtraces.generate import generate
from jobtraces.generate.dlrover import DLRoverWorkload
from jobtraces.generate.gavel import GavelWorkload
from jobtraces.generate.hadar import HadarWorkload
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Conditions, Simulator
from sim.perf.model import PerfSpec
from sim.perf.parameter_server import ParameterServer
from sim.perf.profiled import Profiled
from sim.perf.scaling import PowerLaw

MAX_EXPONENT: Final = 1.3
SIZES: Final = (1_000, 4_000)
PHILLY: Final = {
    "dp_elastic": ("40x8:p100", 0.9),
    "kai": ("64x8:v100", 0.3),
    "conservative": ("64x8:v100", 0.3),
}
"""Policies measured on a Philly-like workload: the nodes and the load."""


class GrowthCost(NamedTuple):
    """Cost of a run: seconds on the reference machine, decisions, mean number of active jobs."""

    cpu_s: float
    decisions: int
    active: float


def main(arguments: list[str]) -> Iterator[str]:
    """Print the figures and yield policies that grow too fast; ``--quick`` has fewer jobs."""
    sizes = [jobs // 4 for jobs in SIZES] if "--quick" in arguments else SIZES
    for policy in ("gavel:objective=allox", "hadar", "hadare", "dlrover", *PHILLY):
        few, many = (_measure_cost(policy, jobs) for jobs in sizes)
        exponent = log(many.cpu_s / few.cpu_s) / log(sizes[1] / sizes[0])
        figures = {
            "policy": policy,
            "jobs": sizes,
            "ms_per_job": [
                round(one.cpu_s / jobs * 1e3, 2)
                for one, jobs in zip((few, many), sizes, strict=True)
            ],
            "decisions_per_job": round(many.decisions / sizes[1], 1),
            "mean_active": [round(few.active), round(many.active)],
            "exponent": round(exponent, 2),
        }
        print_figures(**figures)
        if exponent > MAX_EXPONENT:
            yield f"{policy}: cost grows as jobs^{exponent:.2f}"


def _measure_cost(policy: str, jobs: int) -> GrowthCost:
    """Run a generated workload of a policy and return its cost."""
    model: PerfSpec = Profiled()
    if policy == "dlrover":
        workload = DLRoverWorkload(jobs=jobs, nodes=20)
        trace, cluster, model = workload.make(), workload.machines(), ParameterServer()
    elif policy in PHILLY:
        cluster, model = Cluster.parse(PHILLY[policy][0]), PowerLaw()
        trace = generate("philly", jobs=jobs, seed=0, cluster=cluster, load=PHILLY[policy][1])
    elif policy.startswith("gavel"):
        trace, cluster = GavelWorkload(jobs=jobs, per_h=4.0).make(), Cluster.parse(SMALL)
    else:
        trace, cluster = HadarWorkload(jobs=jobs, per_h=3.0).make(), Cluster.parse(PUBLISHED)
    active: list[int] = []
    allocator, unit = make(Spec.parse(policy)), unit_s()
    began = process_time()
    result = Simulator(
        trace,
        cluster,
        allocator,
        Conditions(model),
        witness=lambda view, _: active.append(len(view.active)),
    ).run()
    took_s = (process_time() - began) / unit * BUDGETS_UNIT_S
    return GrowthCost(took_s, len(result.decisions), sum(active) / len(active))
