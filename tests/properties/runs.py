"""Runs of fixed scenarios by name, importable in a spawned process."""

from __future__ import annotations

import random

from allocators import make
from sim.cluster import Change, Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.contract import Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Simulator
from sim.overheads import Overheads
from sim.perf.estimators import Noisy
from sim.result import RunResult
from sim.trace import Trace
from tests.strategies import trace_of


def busy_trace(jobs: int, seed: int, scale: float = 1.0) -> Trace:
    """Build a trace with heavy-tailed run times, from the stable part of Python's generator;
    `scale` multiplies every time.
    """
    draw = random.Random(seed)
    rows, clock = [], 0.0
    for _ in range(jobs):
        clock += draw.expovariate(1 / 12.0)
        size = draw.choice((1, 1, 1, 2, 4, 8))
        duration = draw.paretovariate(1.2) * 30.0
        row = {
            "submit_time_s": clock * scale,
            "num_gpus": size,
            "duration_s": min(duration, 5000.0) * scale,
            "start_time_s": (clock + draw.random() * 300.0) * scale,
            "time_limit_s": duration * draw.uniform(1.0, 4.0) * scale,
            "user": draw.choice("abc"),
            "vc": draw.choice(("red", "blue")),
            "priority": draw.choice((0.0, 0.0, 1.0)),
            "cpus": size * draw.choice((1.0, 4.0)),
        }
        rows.append(row)
    return trace_of(rows, name=f"busy-{jobs}-{seed}")


def mixed_cluster() -> Cluster:
    """Two types, limited cores, virtual clusters, and a node that comes late."""
    groups = (
        NodeGroup(2, 4, "old", cpus=16.0, partitions=("red",)),
        NodeGroup(2, 8, "new", cpus=24.0, partitions=("blue",)),
        NodeGroup(1, 8, "new"),
    )
    return Cluster(
        groups,
        (GpuType("old", 0.5, 1.0), GpuType("new", 2.0, 3.0)),
        (Change(0, (4,), False), Change(2000, (4,), True)),
    )


def rough(seed: int) -> Conditions:
    """Noise, failures and costs of every kind."""
    overheads = Overheads(
        start_s=5,
        restart_s=20,
        checkpoint_every_s=120,
        checkpoint_s=3,
        latency_s=1.0,
        latency_per_job_s=0.01,
    )
    return Conditions(
        estimator=Noisy(0.7),
        overheads=overheads,
        faults=Faults(mtbf_h=0.7, mttr_h=0.1, interruptions_per_node_h=1.0),
        seed=seed,
    )


def rough_run(name: str, seed: int) -> RunResult:
    """Simulate the rough scenario."""
    return Simulator(busy_trace(150, 1), mixed_cluster(), make(Spec(name)), rough(seed)).run()


def rough_digests(names: list[str], seed: int) -> list[str]:
    """Return the digests of the rough scenario for several allocators."""
    return [rough_run(name, seed).digest() for name in names]
