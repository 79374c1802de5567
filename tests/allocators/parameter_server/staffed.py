"""Jobs of workers and parameter servers for tests: steps of toy models that can be added up by
hand.
"""

from __future__ import annotations

from typing import Any

from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.engine.simulator import Simulator
from sim.overheads import Overheads
from sim.perf.parameter_server import ParameterServer
from sim.result import RunResult
from sim.trace import Trace
from tests.allocators.queue.walk import trace_of

TOY = "toy gpu 1000 0 1000 0 0 0 0 8"
"""A step of 8 samples takes 8 s / workers + 1 s x workers / servers."""
ROOMY = "1x8:v100/200c"


def step_s(workers: float, servers: float) -> float:
    return 8 / workers + workers / servers


def staffed(jobs: list[tuple[float, int, int, float]], **columns: list[Any]) -> Trace:
    """Jobs as (submission, workers, servers, steps), with one GPU and one core per worker and five
    cores per server.
    """
    submit, workers, servers, steps = (list(column) for column in zip(*jobs, strict=True))
    times = [step_s(w, p) * n for w, p, n in zip(workers, servers, steps, strict=True)]
    return trace_of(
        list(zip(submit, workers, times, strict=True)),
        workers=workers,
        servers=servers,
        total_steps=steps,
        model=["toy"] * len(jobs),
        **columns,
    )


def run(
    allocator: Any,
    trace: Trace,
    cluster: str = ROOMY,
    overheads: Overheads | None = None,
    **more: Any,
) -> RunResult:
    perf = ParameterServer(rows=TOY, cores_per_gpu_worker=1.0, cores_per_server=5.0)
    return Simulator(
        trace,
        Cluster.parse(cluster),
        allocator,
        Conditions(perf, overheads=overheads or Overheads(), **more),
    ).run()


def sizes(result: RunResult) -> list[tuple[int, float, float, int, int, bool]]:
    """Every segment as (job, from, to, workers, servers, whether the workers are on GPUs)."""
    found = []
    for at, segment in enumerate(result.segments.itertuples()):
        rows = result.placements[result.placements["segment"] == at]
        workers, servers = rows[rows["role"] == 0], rows[rows["role"] == 1]
        found.append(
            (
                segment.job,
                segment.t0,
                segment.t1,
                int(workers["count"].sum()),
                int(servers["count"].sum()),
                bool(workers["gpus"].max()),
            )
        )
    return sorted(found)
