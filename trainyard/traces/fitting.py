"""Choose a cluster for a trace: its own, or one sized by what its jobs used or need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster, GpuType, NodeGroup, known_type
from sim.errors import ClusterError, ParameterError
from sim.limits import MAX_NODES
from sim.trace import Trace
from trainyard.formatting import gpu_type, plural
from trainyard.traces.sources import Source

UNKNOWN_TYPE: Final = "unknown"
"""GPU type of jobs without a GPU type."""
GUESS_PREFIX: Final = "guessed from "
"""Prefix of the name of a cluster whose size is a guess."""
_DAY_S: Final = 86_400.0
_MAX_DAYS: Final = 100_000
_NODE_SIZES: Final = (2, 4, 8, 16)
"""Candidate numbers of GPUs per node."""
_DEFAULT_NODE_GPUS: Final = 8


class FittedCluster(NamedTuple):
    """A cluster for a trace, and how it was chosen.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    origin : str
        Sentence on how it was chosen.
    """

    cluster: Cluster
    origin: str


def fit_cluster(source: Source | Trace, load: float | None = None) -> FittedCluster:
    """Return a cluster for jobs: their own, or one sized by recorded use, a guess or a load.

    Parameters
    ----------
    source : Source or Trace
        The jobs, with their own cluster, if any.
    load : float or None
        GPU time requested over GPU time available, above 0 and up to 1: gives one group of nodes.
        None = the cluster of the jobs; else the recorded peak of GPUs in use per virtual cluster
        and GPU type; without recorded starts, a guess by `busy_day_gpus`.

    Raises
    ------
    ParameterError
        If the load is not above 0 and up to 1.
    ClusterError
        If the jobs request more than any cluster has.
    """
    trace = source if isinstance(source, Trace) else source.trace
    if load is not None:
        return _fit_load(trace, load)
    own = None if isinstance(source, Trace) else source.cluster
    if own is not None:
        return FittedCluster(own, "It comes with these jobs.")
    return _fit_recorded_use(trace)


def needed_gpu_types(trace: Trace) -> list[str]:
    """Return the GPU type each job needs: requested, else recorded, else the most common."""
    requested = [str(text).split("|")[0] for text in trace.texts("gpu_types_allowed")]
    ran = [str(text) for text in trace.texts("gpu_type")]
    type_names = [
        (request or recorded).lower() for request, recorded in zip(requested, ran, strict=True)
    ]
    on_gpus = trace.numbers("num_gpus") > 0
    kinds, counts = np.unique(
        [kind for kind, counts in zip(type_names, on_gpus, strict=True) if kind and counts]
        or [UNKNOWN_TYPE],
        return_counts=True,
    )
    usual = str(kinds[int(counts.argmax())])
    return [kind or usual for kind in type_names]


def node_size(trace: Trace) -> int:
    """Return the GPUs per node for a trace: 2, 4, 8 or 16, as most of its jobs request.

    Without such jobs: 8.
    """
    gpus = trace.numbers("num_gpus")
    counts = [int((gpus == size).sum()) for size in _NODE_SIZES]
    return _NODE_SIZES[counts.index(max(counts))] if any(counts) else _DEFAULT_NODE_GPUS


def fit_virtual_clusters(trace: Trace, gpus_per_node: int, types: Sequence[str]) -> Cluster:
    """Return a cluster with one node group per virtual cluster and GPU type.

    Parameters
    ----------
    trace : Trace
        With recorded starts, each group holds its peak of GPUs in use; without, about
        `busy_day_gpus`, but less than the peak without waits. The largest job of a group fits.
    gpus_per_node : int
        GPUs per node.
    types : sequence of str
        GPU type of each job.

    Raises
    ------
    ClusterError
        If a group would exceed the limit of nodes.
    """
    (vc, vc_names), (kind, kind_names) = virtual_clusters(trace), _encode_names(types)
    gpus, run_s, start_s = (
        trace.numbers("num_gpus"),
        trace.numbers("duration_s"),
        trace.numbers("start_time_s"),
    )
    groups = []
    for (vc_index, name), (kind_index, kind_name) in product(
        enumerate(vc_names), enumerate(kind_names)
    ):
        is_member = (vc == vc_index) & (kind == kind_index)
        if not is_member.any() or (len(kind_names) > 1 and not gpus[is_member].any()):
            continue
        has_start = is_member & np.isfinite(start_s)
        largest_job = _node_count(max(float(gpus[is_member].max()), 1.0), gpus_per_node)
        if has_start.any():
            peak = peak_gpus(start_s[has_start], run_s[has_start], gpus[has_start])
            count = max(_node_count(peak, gpus_per_node), largest_job)
        else:
            jobs = trace.numbers("submit_time_s")[is_member], run_s[is_member], gpus[is_member]
            busy = round(min(busy_day_gpus(*jobs) / gpus_per_node, 2.0 * MAX_NODES))
            count = max(min(busy, _node_count(peak_gpus(*jobs), gpus_per_node) - 1), largest_job)
        if count > MAX_NODES:
            raise ClusterError(
                f"{name or 'The trace'} would need {count:,} nodes of {gpus_per_node} GPUs. Check"
                " the unit of the durations and the GPU counts."
            )
        group_name = f"{name}-{kind_name}" if name and len(kind_names) > 1 else name
        partitions = (name,) if name else ()
        groups.append(
            NodeGroup(count, gpus_per_node, kind_name, partitions=partitions, name=group_name)
        )
    recorded = bool(np.isfinite(start_s).any())
    return Cluster(tuple(groups), name=f"{'Sized from ' if recorded else GUESS_PREFIX}{trace.name}")


def cluster_with_gpus(trace: Trace, gpus: int) -> Cluster:
    """Return a cluster with this many GPUs, of the node size and GPU type of most jobs."""
    size = min(node_size(trace), gpus)
    kinds, counts = np.unique(needed_gpu_types(trace), return_counts=True)
    usual = str(kinds[int(counts.argmax())])
    groups = [NodeGroup(gpus // size, size, usual)]
    groups += [NodeGroup(1, gpus % size, usual)] if gpus % size else []
    return _describe_types(Cluster(tuple(groups), name=f"{plural(gpus, 'GPU')}"))


def is_guessed_cluster(source: Source | Trace, cluster: Cluster) -> bool:
    """Return True if a cluster is the guess of `fit_cluster` for jobs without recorded starts."""
    return cluster.name.startswith(GUESS_PREFIX) and fit_cluster(source).cluster == cluster


def busy_day_gpus(
    submit_s: NDArray[np.float64], run_s: NDArray[np.float64], gpus: NDArray[np.float64]
) -> float:
    """Return the mean GPUs in use on the busiest day if no job waits.

    At least all GPU time over the length of the trace, so that the load is at most 1.

    A day is not longer than the trace (its submissions, and its longest run).
    """
    span_s = max(float(np.ptp(submit_s)), float(run_s.max()), 1.0)
    at_s = np.concatenate([submit_s, submit_s + run_s])
    day_s = max(min(_DAY_S, span_s), float(np.ptp(at_s)) / _MAX_DAYS)
    order = np.argsort(at_s, kind="stable")
    at_s, gpus_in_use = at_s[order], np.cumsum(np.concatenate([gpus, -gpus])[order])
    used_s = np.concatenate([[0.0], np.cumsum(gpus_in_use[:-1] * np.diff(at_s))])
    days = np.arange(at_s[0], at_s[-1] + day_s, day_s)
    return float(max(np.diff(np.interp(days, at_s, used_s)).max() / day_s, used_s[-1] / span_s))


def _node_count(gpus: float, gpus_per_node: int) -> int:
    """Return the number of nodes that a number of GPUs needs."""
    return math.ceil(round(gpus / gpus_per_node, 9))


def virtual_clusters(trace: Trace) -> tuple[NDArray[np.int64], list[str]]:
    """Return the index of each job's virtual cluster (or partition), and the names of all.

    Without such a column there is one unnamed virtual cluster.
    """
    column = next((name for name in ("vc", "partition") if trace.has(name)), "vc")
    texts = trace.texts(column)
    return np.asarray(texts.codes, np.int64), [str(name) for name in texts.categories]


def _encode_names(names: Iterable[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the index of each name, and the distinct names."""
    codes, kinds = pd.factorize(pd.Series(list(names)))
    return np.asarray(codes, np.int64), [str(kind) for kind in kinds]


def peak_gpus(
    start_s: NDArray[np.float64], run_s: NDArray[np.float64], gpus: NDArray[np.float64]
) -> float:
    """Return the peak of GPUs in use; at equal times, ends come before starts."""
    at_s = np.concatenate([start_s, start_s + run_s])
    change = np.concatenate([gpus, -gpus])
    order = np.lexsort((change, at_s))
    return float(np.cumsum(change[order]).max(initial=0.0))


def _describe_types(cluster: Cluster) -> Cluster:
    """Return the cluster with the known facts of its GPU types; unknown ones count as V100."""
    types = tuple(known_type(kind.name) or GpuType(kind.name) for kind in cluster.types)
    return Cluster(cluster.groups, types, cluster.changes, cluster.name)


@lru_cache(maxsize=8)
def _fit_recorded_use(trace: Trace) -> FittedCluster:
    """Return a cluster sized by the recorded peak use; without recorded starts, by a guess."""
    size = node_size(trace)
    cluster = fit_virtual_clusters(trace, size, needed_gpu_types(trace))
    recorded = bool(np.isfinite(trace.numbers("start_time_s")).any())
    _, vc_names = virtual_clusters(trace)
    vc_count = sum(1 for name in vc_names if name)
    vc_word = "virtual clusters" if trace.has("vc") else "partitions"
    per_vc = f" in each of {vc_count} {vc_word}" if vc_count > 1 else ""
    origin = (
        f"Sized by the recorded peak of GPUs in use{per_vc}"
        if recorded
        else f"A guess without recorded starts: the jobs{per_vc} fill it on their busiest day"
    )
    return FittedCluster(_describe_types(cluster), f"{origin}. {_nodes_sentence(cluster, size)}")


def _fit_load(trace: Trace, load: float) -> FittedCluster:
    """Return a cluster of one node group on which the jobs request a share `load` of GPU time."""
    if not 0 < load <= 1:
        raise ParameterError(f"load = {load:g} must be above 0 and at most 1. Try 0.7.")
    size = node_size(trace)
    # For a few jobs submitted together the longest run is the span.
    span_s = max(trace.span_s, float(trace.numbers("duration_s").max()))
    widest = float(trace.numbers("num_gpus").max())
    needed = max(trace.gpu_seconds / span_s / load, widest)
    kinds, counts = np.unique(needed_gpu_types(trace), return_counts=True)
    usual = str(kinds[int(counts.argmax())])
    if not math.isfinite(needed):
        raise ClusterError(f"{trace.name}: no cluster is large enough. Check the durations.")
    cluster = Cluster.parse(f"{max(math.ceil(needed / size), 1)}x{size}:{usual}")
    cluster = Cluster(cluster.groups, name=f"Sized from {trace.name}")
    origin = f"Sized so that the jobs request at most {100 * load:g} % of the GPU time."
    return FittedCluster(_describe_types(cluster), f"{origin} {_nodes_sentence(cluster, size)}")


def _nodes_sentence(cluster: Cluster, size: int) -> str:
    """Return a sentence on number, size and GPU types of nodes, with unknown speeds."""
    kinds = [kind.name for kind in cluster.types]
    nodes = f"{plural(len(cluster.nodes), 'node')} of {size}"
    unknown_kinds = [
        gpu_type(kind) for kind in kinds if kind != UNKNOWN_TYPE and known_type(kind) is None
    ]
    if kinds == [UNKNOWN_TYPE]:
        return f"{nodes} GPUs of unknown type, which count as V100."
    type_note = (
        f"; {', '.join(unknown_kinds)} has no known speed and counts as V100"
        if unknown_kinds
        else ""
    )
    return f"{nodes} {', '.join(gpu_type(kind) for kind in kinds)}{type_note}."
