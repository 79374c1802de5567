"""What makes a comparison of jobs on described machines doubtful: a recording that used more GPUs,
jobs that the machines cannot hold, and GPU types whose speed nobody knows.
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
from trainyard.text import gpu_type, plural
from trainyard.text import share as of_all
from trainyard.traces.fitting import peak_gpus

CONCURRENCY: Final = "concurrency"
FITS: Final = "fits"
UNKNOWN: Final = "unknown"
SHARE: Final = 0.05
"""Part of all GPU time above which such jobs, or such GPU types, are in the way of a comparison."""


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


def fits(trace: Trace, never: NDArray[np.bool_]) -> str:
    """Return that jobs which can never start hold more than `SHARE` of all GPU time; "" = they do
    not.

    Parameters
    ----------
    trace : Trace
        The jobs.
    never : array of bool of shape (jobs,)
        Those that are larger than the cluster, or want types that it lacks.
    """
    asked = _gpu_s(trace)
    share = float(asked[never].sum() / asked.sum()) if asked.any() else 0.0
    if share <= SHARE:
        return ""
    return (
        f"Jobs that can never start on this cluster hold {of_all(share)} of all GPU time"
        f" ({int(never.sum()):,} of {plural(len(trace), 'job')}): the results are of the others."
    )


@lru_cache(maxsize=8)
def strange(trace: Trace, cluster: Cluster) -> Mapping[str, float]:
    """Return the GPU types without a known speed and their shares of all GPU time, the largest
    first; empty = they hold no more than `SHARE` together, or speeds do not matter.

    Notes
    -----
    Speeds matter where a cluster has several types, or jobs were recorded on one that it lacks. A
    type is known if the catalogue has its speed, or somebody gave it one other than 1, which
    stands for a guess.
    """
    asked, recorded = _gpu_s(trace), trace.texts("gpu_type")
    there = set(used_types(cluster))
    codes = np.asarray(recorded.codes, np.int64)
    held = np.bincount(codes[codes >= 0], asked[codes >= 0], len(recorded.categories))
    shares = {
        str(kind): float(gpu_s / asked.sum())
        for kind, gpu_s in zip(recorded.categories, held, strict=True)
        if kind and gpu_s > 0
    }
    if len(there) <= 1 and set(shares) <= there:
        return {}
    given = {kind.name for kind in cluster.types if kind.speed != 1.0}
    found = {
        kind: share
        for kind, share in sorted(shares.items(), key=lambda one: -one[1])
        if kind not in given and known_type(kind) is None
    }
    return found if sum(found.values()) > SHARE else {}


def unknown(trace: Trace, cluster: Cluster) -> str:
    """Return which GPU types without a known speed hold more than `SHARE` of all GPU time; "" =
    none, see `strange`.
    """
    found = strange(trace, cluster)
    if not found:
        return ""
    listed = ", ".join(gpu_type(kind[:40]) for kind in found)
    return (
        f"No speed of {listed} is known, and {of_all(sum(found.values()))} of all GPU time was"
        " recorded there: run times on other types are guessed."
    )


def found(
    trace: Trace, cluster: Cluster, never: NDArray[np.bool_], *, measured: bool = False
) -> dict[str, str]:
    """Return what is in doubt, by id, in sentences that every front end shows.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    never : array of bool of shape (jobs,)
        Jobs that can never start there.
    measured : bool
        Whether run times come from measurements on each type, so that speeds do not matter.
    """
    said = {
        FITS: fits(trace, never),
        UNKNOWN: "" if measured else unknown(trace, cluster),
        CONCURRENCY: concurrency(trace, cluster),
    }
    return {key: text for key, text in said.items() if text}


def _gpu_s(trace: Trace) -> NDArray[np.float64]:
    return np.asarray(trace.numbers("num_gpus") * trace.numbers("duration_s"), np.float64)
