"""CPU time of the policy slurm on a generated small site and on one of fifty times its size.

The large case is 20,000 jobs on 500 nodes; about 2,000 jobs wait at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Any, Final

from allocators import make
from benchmarks.unit import print_figures
from jobtraces.generate.site import Site
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.simulator import Simulator

CASES: Final = (
    ("500 jobs on 10 nodes", Site(), {"bf_max_job_user": 20}, 2.0),
    ("20,000 jobs on 500 nodes", Site(jobs=20_000, nodes=500, users=100, load=1.15), {}, 90.0),
)
RULES: Final = {
    "weight_age": 50_000,
    "weight_fairshare": 50_000,
    "weight_size": 200_000,
    "max_age_h": 5.0,
    "half_life_h": 4.0,
}


def main(_arguments: list[str]) -> Iterator[str]:
    """Print the figures and yield exceeded budgets."""
    for case, site, more, most_s in CASES:
        cpu_s = _run_site(case, site, more)
        if cpu_s > most_s:
            yield f"slurm, {case}: {cpu_s:.1f} s"


def _run_site(case: str, site: Site, more: dict[str, Any]) -> float:
    """Print the figures of one site and return the CPU seconds."""
    trace, cluster = site.make(), site.machines()
    simulator = Simulator(
        trace, cluster, make(Spec.of("slurm", **RULES, **more)), Conditions(seed=1)
    )
    began = process_time()
    jobs = simulator.run().jobs
    cpu_s = process_time() - began
    last_s = float(jobs["submit_s"].max())
    waiting = int((jobs["first_start_s"] > last_s).sum())
    figures = {
        "case": case,
        "waiting_at_the_last_submission": waiting,
        "mean_wait_s": round(float((jobs["first_start_s"] - jobs["submit_s"]).mean())),
        "hours": round(float(jobs["finish_s"].max()) / 3600, 1),
        "cpu_s": round(cpu_s, 2),
    }
    print_figures(**figures)
    return cpu_s
