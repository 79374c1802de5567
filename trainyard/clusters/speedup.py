"""Speedup curves of jobs over sizes, or over the nodes of a gang, under a performance model."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.grants import Shape
from sim.perf import PerfSpec
from sim.trace import Trace

SIZE_FACTORS: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Sizes, as multiples of the GPUs that a job requests."""
NODE_COUNTS: Final = (1, 2, 4, 8)
"""Numbers of nodes over which a gang is spread."""
_MAX_SAMPLE: Final = 500
"""Largest number of jobs in the curve, spread evenly over the trace."""


def speedup_curve(perf: PerfSpec, trace: Trace, cluster: Cluster) -> pd.DataFrame:
    """Return the speed of GPU jobs by size, relative to the requested size on one node.

    Jobs run on the fastest GPU type of the cluster.

    Returns
    -------
    DataFrame
        One row per size: `x` (multiple of the requested GPUs; under a model of fixed sizes, the
        nodes of a gang of several GPUs), `low`, `speed`, `high` (10th, 50th and 90th percentile
        over the jobs that can run at this size) and `jobs` (their number). Empty without such jobs.

    Raises
    ------
    TrainyardError
        If the trace lacks a column that the model reads.
    """
    model = perf.bind(trace, cluster)
    node_gpus = {node.gpu_type: 0 for node in cluster.nodes}
    for node in cluster.nodes:
        node_gpus[node.gpu_type] = max(node_gpus[node.gpu_type], node.gpus)
    usable = [index for index, kind in enumerate(cluster.types) if node_gpus.get(kind.name)]
    requested = trace.numbers("num_gpus").astype(np.int64)
    ids = np.flatnonzero(requested > 0 if perf.scales else requested > 1)
    if not usable or not len(ids):
        return pd.DataFrame({"x": [], "low": [], "speed": [], "high": [], "jobs": []})
    ids = ids[np.linspace(0, len(ids) - 1, min(len(ids), _MAX_SAMPLE)).astype(np.int64)]
    fastest = max(usable, key=lambda index: cluster.types[index].speed)
    gpus_per_node = node_gpus[cluster.types[fastest].name]

    def job_speeds(sizes: dict[int, int], nodes: int) -> dict[int, float]:
        """Return job -> speed at the job's size; nodes = 0: on as few nodes as possible."""
        speeds: dict[int, float] = {}
        for size in sorted(set(sizes.values())):
            jobs = np.array([job for job, job_size in sizes.items() if job_size == size])
            gpus = tuple(size if index == fastest else 0 for index in range(len(cluster.types)))
            shape = Shape(gpus, nodes or math.ceil(size / gpus_per_node))
            speeds |= zip(jobs.tolist(), model.rates(jobs, [shape])[:, 0].tolist(), strict=True)
        return speeds

    sizes = {int(job): int(requested[job]) for job in ids}
    base_speeds = job_speeds(sizes, 0 if perf.scales else 1)
    rows = []
    for x in SIZE_FACTORS if perf.scales else NODE_COUNTS:
        if perf.scales:
            scaled = {job: int(size * x) for job, size in sizes.items() if size * x % 1 == 0}
            speeds = job_speeds(scaled, 0) if scaled else {}
        else:
            speeds = job_speeds({job: size for job, size in sizes.items() if size >= x}, int(x))
        ratios = [
            speed / base_speeds[job]
            for job, speed in speeds.items()
            if speed > 0 and base_speeds[job] > 0
        ]
        if ratios:
            low, middle, high = np.percentile(ratios, (10, 50, 90))
            rows.append(
                {"x": float(x), "low": low, "speed": middle, "high": high, "jobs": len(ratios)}
            )
    return pd.DataFrame(rows, columns=["x", "low", "speed", "high", "jobs"])
