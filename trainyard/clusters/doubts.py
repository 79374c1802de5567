"""What makes a comparison of jobs on described machines doubtful: a recording that used more GPUs,
jobs that the machines cannot hold, and GPU types whose speed nobody knows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from sim.cluster import Cluster
from sim.readers.capacity import peak_gpus
from sim.trace import Trace

CONCURRENCY: Final = "concurrency"


@lru_cache(maxsize=8)
def concurrency(trace: Trace, cluster: Cluster) -> str:
    """Return that the recording used more GPUs at once than a cluster has with all its nodes; "" =
    it did not, or holds no starts.
    """
    start_s = trace.numbers("start_time_s")
    known = np.isfinite(start_s)
    run_s, gpus = trace.numbers("duration_s"), trace.numbers("num_gpus")
    peak = peak_gpus(start_s[known], run_s[known], gpus[known])
    if peak <= cluster.gpus:
        return ""
    return (
        f"The recording used up to {peak:,.0f} GPUs at once; this cluster has {cluster.gpus:,}: the"
        " real cluster was larger, or what counts as GPUs are processors."
    )


def found(trace: Trace, cluster: Cluster) -> dict[str, str]:
    """Return what is in doubt, by id, in sentences that every front end shows.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    """
    said = {CONCURRENCY: concurrency(trace, cluster)}
    return {key: text for key, text in said.items() if text}
