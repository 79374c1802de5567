"""Share of estimates within a factor of two of the measured run, over a grid of runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import process_time
from typing import Final, NamedTuple

import allocators
from benchmarks.unit import BUDGETS_UNIT_S, print_figures, unit_s
from jobtraces.generate import generate
from sim.cluster import Cluster
from sim.contract import Spec
from sim.errors import TrainyardError
from trainyard.results.simplest_model import simplest_for_all
from trainyard.runs import engines
from trainyard.runs.estimate import mean_waiting, usual_seconds
from trainyard.runs.run import run, summarize_run
from trainyard.study.scenario import Scenario, TraceSpec

JOBS: Final = (300, 3_000)
ONE_TYPE: Final = "32x8:v100"
TWO_TYPES: Final = "16x8:v100,16x8:a100"
FIT_SEED, SEED = 1, 2
"""Seeds of the workloads to which the usual costs are fitted, and of those that judge them."""


class Case(NamedTuple):
    """Conditions of a run; `fails` = nodes fail."""

    nodes: str
    load: float
    restart_s: float
    fails: bool


CASES: Final = (
    Case(ONE_TYPE, 0.7, 0.0, False),
    Case(ONE_TYPE, 1.0, 60.0, False),
    Case(TWO_TYPES, 0.7, 60.0, False),
    Case(TWO_TYPES, 1.0, 0.0, False),
    Case(ONE_TYPE, 0.7, 60.0, True),
    Case(TWO_TYPES, 1.0, 60.0, True),
)
LONGEST_S: Final = 6.0
FACTOR, SHARE = 2.0, 0.9


def main(arguments: list[str]) -> Iterator[str]:
    """Print estimate over measurement of each run and the share within the factor.

    ``--fit`` measures the workloads of `FIT_SEED`.
    """
    seed = FIT_SEED if "--fit" in arguments else SEED
    engines.warm()
    measured = [
        _measure(name, jobs, case, seed)
        for name in allocators.REGISTRY
        for case in CASES
        for jobs in JOBS
    ]
    ratios = [ratio for ratio in measured if ratio is not None]
    share = sum(1 / FACTOR <= ratio <= FACTOR for ratio in ratios) / max(len(ratios), 1)
    print_figures(runs=len(ratios), share_within_factor=round(share, 3), factor=FACTOR)
    if share < SHARE:
        yield f"estimates: {share:.0%} within a factor of {FACTOR:g}"


def _measure(name: str, jobs: int, case: Case, seed: int) -> float | None:
    """Return estimate over measured seconds of one run; None if it cannot run or takes long."""
    cluster = Cluster.parse(case.nodes)
    trace = generate("philly", jobs=jobs, seed=seed, cluster=cluster, load=case.load)
    spec = Spec(name)
    try:
        perf = simplest_for_all((spec,), trace, cluster)
        scenario = Scenario(TraceSpec("made:philly"), cluster, spec, perf)
        scenario = replace(scenario, overheads=Spec.of("overheads", restart_s=case.restart_s))
        if case.fails:
            scenario = replace(scenario, faults=Spec.of("faults", mtbf_h=500.0))
        unit = unit_s(events=50_000, repeats=1)
        estimated_s = usual_seconds(scenario, trace)
        if estimated_s > LONGEST_S:
            print_figures(policy=name, jobs=jobs, **case._asdict(), left_out_s=round(estimated_s))
            return None
        began = process_time()
        result = run(scenario, trace=trace)
        summarize_run(scenario, result, trace)
        took_s = (process_time() - began) / unit * BUDGETS_UNIT_S
    except TrainyardError as error:
        print_figures(policy=name, refused=str(error)[:60])
        return None
    print_figures(
        policy=name,
        engine=result.timing.engine,
        jobs=jobs,
        **case._asdict(),
        waiting=round(mean_waiting(trace, cluster), 1),
        ms_per_job=round(took_s / jobs * 1e3, 3),
        ratio=round(estimated_s / took_s, 2),
        unit_us=round(unit * 1e6, 2),
    )
    return estimated_s / took_s
