"""How the cost of a run grows with the number of jobs, at a load under which the number of active
jobs stays about the same: from 1,000 to 4,000 jobs.
"""

from __future__ import annotations

import json
from math import log
from time import process_time
from typing import Final, NamedTuple

from allocators import make
from benchmarks.gavel import SMALL
from benchmarks.hadar import PUBLISHED
from benchmarks.unit import BUDGETS_UNIT_S, unit_s
from jobtraces.generate.dlrover import DLRoverWorkload
from jobtraces.generate.gavel import GavelWorkload
from jobtraces.generate.hadar import HadarWorkload
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Conditions, Simulator
from sim.perf.model import PerfSpec
from sim.perf.parameter_server import ParameterServer
from sim.perf.profiled import Profiled

MAX_EXPONENT: Final = 1.3
SIZES: Final = (1_000, 4_000)


class GrowthCost(NamedTuple):
    """What a run took: seconds where U is `BUDGETS_UNIT_S`, decisions, and active jobs at one."""

    cpu_s: float
    decisions: int
    active: float


def main(arguments: list[str]) -> list[str]:
    """Print the figures, and return what grows too fast; ``--quick``: a quarter of the jobs."""
    sizes = [jobs // 4 for jobs in SIZES] if "--quick" in arguments else SIZES
    over = []
    for policy in ("gavel:objective=allox", "hadar", "hadare", "dlrover"):
        few, many = (_cost(policy, jobs) for jobs in sizes)
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
        print(json.dumps(figures), flush=True)
        if exponent > MAX_EXPONENT:
            over.append(f"{policy}: cost grows as jobs^{exponent:.2f}")
    return over


def _cost(policy: str, jobs: int) -> GrowthCost:
    model: PerfSpec = Profiled()
    if policy == "dlrover":
        staffed = DLRoverWorkload(jobs=jobs, nodes=20)
        trace, cluster, model = staffed.make(), staffed.machines(), ParameterServer()
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
