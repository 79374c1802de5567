"""Reasons to doubt a comparison of jobs on a cluster.

The recorded schedule used more GPUs, jobs fit nowhere, or speeds of GPU types are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.cluster import Cluster, known_type
from sim.perf.lookup import used_types
from sim.trace import Trace
from trainyard.formatting import gpu_type, plural
from trainyard.formatting import share as share_text
from trainyard.traces.fitting import peak_gpus

CONCURRENCY: Final = "concurrency"
FITS: Final = "fits"
UNKNOWN: Final = "unknown"
MAX_SHARE: Final = 0.05
"""Share of all GPU time up to which such jobs or GPU types raise no doubt."""


@lru_cache(maxsize=8)
def concurrency_doubt(trace: Trace, cluster: Cluster) -> str:
    """Return a sentence if the recorded schedule used more GPUs than the cluster has, else "".

    Without recorded starts there is no doubt.
    """
    start_s = trace.numbers("start_time_s")
    is_started = np.isfinite(start_s)
    run_s, gpus = trace.numbers("duration_s"), trace.numbers("num_gpus")
    peak = peak_gpus(start_s[is_started], run_s[is_started], gpus[is_started])
    if peak <= cluster.gpus:
        return ""
    return (
        f"The recorded schedule used up to {peak:,.0f} GPUs at once; this cluster has"
        f" {cluster.gpus:,}. The real cluster was larger, or the trace counts processors as GPUs."
    )


def unplaceable_doubt(trace: Trace, unschedulable: NDArray[np.bool_]) -> str:
    """Return a sentence if unschedulable jobs hold over `MAX_SHARE` of GPU time, else "".

    Parameters
    ----------
    trace : Trace
        The jobs.
    unschedulable : array of bool of shape (jobs,)
        Mask of the jobs that can never start on the cluster.
    """
    gpu_s = _job_gpu_s(trace)
    share = float(gpu_s[unschedulable].sum() / gpu_s.sum()) if gpu_s.any() else 0.0
    if share <= MAX_SHARE:
        return ""
    return (
        f"Jobs that can never start on this cluster hold {share_text(share)} of all GPU time"
        f" ({int(unschedulable.sum()):,} of {plural(len(trace), 'job')}). The results cover the"
        " other jobs."
    )


@lru_cache(maxsize=8)
def shares_without_speed(trace: Trace, cluster: Cluster) -> Mapping[str, float]:
    """Return GPU type -> share of all GPU time of types of unknown speed, largest first.

    Returns
    -------
    mapping of float
        Empty if their shares add up to at most `MAX_SHARE`, or if speeds do not matter.

    Notes
    -----
    Speeds matter if the cluster has several types, or jobs were recorded on a type that it lacks. A
    speed is known if it is in the catalog, or was entered as a value other than the placeholder 1.
    """
    gpu_s, recorded = _job_gpu_s(trace), trace.texts("gpu_type")
    cluster_types = set(used_types(cluster))
    codes = np.asarray(recorded.codes, np.int64)
    gpu_s_by_type = np.bincount(codes[codes >= 0], gpu_s[codes >= 0], len(recorded.categories))
    shares = {
        str(kind): float(type_gpu_s / gpu_s.sum())
        for kind, type_gpu_s in zip(recorded.categories, gpu_s_by_type, strict=True)
        if kind and type_gpu_s > 0
    }
    if len(cluster_types) <= 1 and set(shares) <= cluster_types:
        return {}
    entered = {kind.name for kind in cluster.types if kind.speed != 1.0}
    without_speed = {
        kind: share
        for kind, share in sorted(shares.items(), key=lambda item: -item[1])
        if kind not in entered and known_type(kind) is None
    }
    return without_speed if sum(without_speed.values()) > MAX_SHARE else {}


def unknown_speed_doubt(trace: Trace, cluster: Cluster) -> str:
    """Return a sentence if much GPU time was recorded on types of unknown speed, else "".

    See `shares_without_speed`.
    """
    shares = shares_without_speed(trace, cluster)
    if not shares:
        return ""
    listed = ", ".join(gpu_type(kind[:40]) for kind in shares)
    return (
        f"The speed of {listed} is unknown, and {share_text(sum(shares.values()))} of all GPU time"
        " was recorded there. Run times on other types are guesses."
    )


def find_doubts(
    trace: Trace, cluster: Cluster, unschedulable: NDArray[np.bool_], *, measured: bool = False
) -> dict[str, str]:
    """Return id -> sentence of the doubts about jobs on a cluster.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    unschedulable : array of bool of shape (jobs,)
        Mask of the jobs that can never start on the cluster.
    measured : bool
        Whether run times are measured on each GPU type; then speeds do not matter.
    """
    doubts = {
        FITS: unplaceable_doubt(trace, unschedulable),
        UNKNOWN: "" if measured else unknown_speed_doubt(trace, cluster),
        CONCURRENCY: concurrency_doubt(trace, cluster),
    }
    return {key: text for key, text in doubts.items() if text}


def _job_gpu_s(trace: Trace) -> NDArray[np.float64]:
    """Return GPUs times duration of each job."""
    return np.asarray(trace.numbers("num_gpus") * trace.numbers("duration_s"), np.float64)
