"""Share of estimates within a factor of two of the measured run, over a grid of runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import process_time
from typing import Final

import allocators
from benchmarks.unit import BUDGETS_UNIT_S, print_figures, unit_s
from jobtraces.generate import generate
from sim.cluster import Cluster
from sim.contract import Spec
from sim.errors import TrainyardError
from trainyard.results.simplest_model import simplest_for_all
from trainyard.runs import engines
from trainyard.runs.estimate import usual_seconds
from trainyard.runs.run import run, summarize_run
from trainyard.study.scenario import Scenario, TraceSpec

JOBS: Final = (300, 1_000, 3_000)
CONDITIONS: Final = (
    ("64x8:v100", 0.7, False),
    ("64x8:v100", 0.95, False),
    ("16x8:v100", 0.8, True),
)
"""Cluster, load, and whether nodes fail."""
LONGEST_S: Final = 6.0
FACTOR, SHARE = 2.0, 0.9


def main(arguments: list[str]) -> Iterator[str]:
    """Print estimate over measurement of each run and the share within the factor."""
    engines.warm()
    ratios = []
    for name in allocators.REGISTRY:
        for spec, load, fails in CONDITIONS:
            for jobs in JOBS:
                ratio = _measure(name, jobs, Cluster.parse(spec), load, fails)
                if ratio is None:
                    break
                ratios.append(ratio)
    share = sum(1 / FACTOR <= ratio <= FACTOR for ratio in ratios) / max(len(ratios), 1)
    print_figures(runs=len(ratios), share_within_factor=round(share, 3), factor=FACTOR)
    if share < SHARE:
        yield f"estimates: {share:.0%} within a factor of {FACTOR:g}"


def _measure(name: str, jobs: int, cluster: Cluster, load: float, fails: bool) -> float | None:
    """Return estimate over measured seconds of one run; None if it cannot run or takes long."""
    trace = generate("philly", jobs=jobs, seed=0, cluster=cluster, load=load)
    spec = Spec(name)
    try:
        perf = simplest_for_all((spec,), trace, cluster)
        scenario = Scenario(TraceSpec("made:philly"), cluster, spec, perf)
        if fails:
            scenario = replace(scenario, faults=Spec.of("faults", mtbf_h=500.0))
        unit = unit_s(events=50_000, repeats=1)
        estimated_s = usual_seconds(scenario, trace)
        if estimated_s > LONGEST_S:
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
        gpus=cluster.gpus,
        load=load,
        fails=fails,
        ms_per_job=round(took_s / jobs * 1e3, 3),
        ratio=round(estimated_s / took_s, 2),
        unit_us=round(unit * 1e6, 2),
    )
    return estimated_s / took_s if took_s < 10 * LONGEST_S else None
