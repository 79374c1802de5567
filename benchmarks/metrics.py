"""CPU milliseconds of the metrics that a user waits for, on real run results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time

import numpy as np

from allocators import make
from benchmarks.unit import print_figures
from jobtraces.generate import generate
from sim import metrics
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Simulator

MAX_MS = 50.0


def main(_arguments: list[str]) -> Iterator[str]:
    """Print the least CPU time of nine calls per function and yield exceeded budgets."""
    cluster = Cluster.parse("64x8:v100,64x8:a100")
    small = generate("philly", jobs=10_000, seed=0, cluster=cluster)
    large = generate("philly", jobs=100_000, seed=0, cluster=cluster)
    few, many = (Simulator(trace, cluster, make(Spec("fifo"))).run() for trace in (small, large))
    instants = np.arange(1e6)
    cases: dict[str, Callable[[], object]] = {
        "summary, 10,000 jobs": lambda: metrics.summary(few, small, cluster),
        "queue series, 100,000 segments": lambda: metrics.queue_series(many),
        "utilisation series, 100,000 segments": lambda: metrics.utilisation_series(many, cluster),
        "GPU states, 100,000 segments": lambda: metrics.state_series(many, cluster),
        "1,000,000 steps reduced": lambda: metrics.reduce_steps(instants, np.sin(instants), 0, 1e6),
    }
    for name, work in cases.items():
        took_ms = round(min(_measure_ms(work) for _ in range(9)), 1)
        print_figures(**{name: took_ms})
        if took_ms > MAX_MS:
            yield f"{name}: {took_ms} ms"


def _measure_ms(work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of a call."""
    began = process_time()
    work()
    return (process_time() - began) * 1000
