"""How jobs scale at other sizes than they asked for, or spread over nodes, under a performance
model.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.grants import Shape
from sim.perf import PerfSpec
from sim.trace import Trace

FACTORS: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Sizes, as multiples of the GPUs that a job asks for."""
SPREAD: Final = (1, 2, 4, 8)
"""Nodes that a gang is spread over."""
_MOST: Final = 500
"""Jobs that are looked at, evenly through the trace."""


def curve(perf: PerfSpec, trace: Trace, cluster: Cluster) -> pd.DataFrame:
    """Return the speed of jobs with GPUs relative to the size that they ask for on one node, on the
    fastest GPU type of the cluster.

    Returns
    -------
    DataFrame
        One row per size: `x` (multiple of the GPUs asked for, or under a model of fixed sizes the
        nodes that gangs of several GPUs are spread over), `low`, `speed`, `high` (10th, 50th and
        90th percentile over the jobs that can run so) and `jobs`. Without such jobs it is empty.

    Raises
    ------
    TrainyardError
        If the trace lacks what the model reads.
    """
    model = perf.bind(trace, cluster)
    held = {node.gpu_type: 0 for node in cluster.nodes}
    for node in cluster.nodes:
        held[node.gpu_type] = max(held[node.gpu_type], node.gpus)
    usable = [at for at, kind in enumerate(cluster.types) if held.get(kind.name)]
    asked = trace.numbers("num_gpus").astype(np.int64)
    ids = np.flatnonzero(asked > 0 if perf.scales else asked > 1)
    if not usable or not len(ids):
        return pd.DataFrame({"x": [], "low": [], "speed": [], "high": [], "jobs": []})
    ids = ids[np.linspace(0, len(ids) - 1, min(len(ids), _MOST)).astype(np.int64)]
    fastest = max(usable, key=lambda at: cluster.types[at].speed)
    per_node = held[cluster.types[fastest].name]

    def speeds(sizes: dict[int, int], nodes: int) -> dict[int, float]:
        """Return the speed of each job at a size, given per job; nodes = 0: as few as possible."""
        found: dict[int, float] = {}
        for size in sorted(set(sizes.values())):
            own = np.array([job for job, of_job in sizes.items() if of_job == size])
            gpus = tuple(size if at == fastest else 0 for at in range(len(cluster.types)))
            shape = Shape(gpus, nodes or math.ceil(size / per_node))
            found |= dict(zip(own.tolist(), model.rates(own, [shape])[:, 0].tolist(), strict=True))
        return found

    sizes = {int(job): int(asked[job]) for job in ids}
    base = speeds(sizes, 0 if perf.scales else 1)
    rows = []
    for x in FACTORS if perf.scales else SPREAD:
        if perf.scales:
            other = {job: int(size * x) for job, size in sizes.items() if size * x % 1 == 0}
            here = speeds(other, 0) if other else {}
        else:
            here = speeds({job: size for job, size in sizes.items() if size >= x}, int(x))
        ratios = [rate / base[job] for job, rate in here.items() if rate > 0 and base[job] > 0]
        if ratios:
            low, middle, high = np.percentile(ratios, (10, 50, 90))
            rows.append(
                {"x": float(x), "low": low, "speed": middle, "high": high, "jobs": len(ratios)}
            )
    return pd.DataFrame(rows, columns=["x", "low", "speed", "high", "jobs"])
