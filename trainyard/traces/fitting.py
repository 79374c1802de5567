"""Which machines a trace is simulated on while nobody has chosen any: those that come with it, else
as many as its jobs used or need.
"""

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
from sim.limits import MOST_NODES
from sim.trace import Trace
from trainyard.text import gpu_type, plural
from trainyard.traces.sources import Source

UNKNOWN: Final = "unknown"
"""What GPUs are called where no job says on which it ran."""
GUESSED: Final = "guessed from "
"""Begin of the name of a cluster whose size nothing tells."""
_DAY_S: Final = 86_400.0
_MOST_DAYS: Final = 100_000
_SIZES: Final = (2, 4, 8, 16)
"""GPUs that a node may have; the size of most jobs on several GPUs is taken."""
_USUAL: Final = 8


class FittedCluster(NamedTuple):
    """Machines for a trace.

    Parameters
    ----------
    cluster : Cluster
        The machines.
    how : str
        Where they come from, as a sentence.
    """

    cluster: Cluster
    how: str


def cluster_for(source: Source | Trace, load: float | None = None) -> FittedCluster:
    """Return the cluster that the app, the Python API and the command line take for jobs to which
    no cluster was given.

    Parameters
    ----------
    source : Source or Trace
        The jobs, with the machines that come with them, if any.
    load : float or None
        GPU time asked for, over GPU time there is, up to 1: one group of nodes of that size. None =
        the machines that come with the jobs; else the most GPUs in use at once by the recorded
        starts, for each virtual cluster and GPU type; without starts, a guess: `busy_day_gpus`.

    Raises
    ------
    ParameterError
        If the load is not above 0 and up to 1.
    ClusterError
        If the jobs ask for more than any cluster has.
    """
    trace = source if isinstance(source, Trace) else source.trace
    if load is not None:
        return _by_load(trace, load)
    own = None if isinstance(source, Trace) else source.cluster
    if own is not None:
        return FittedCluster(own, "It comes with these jobs.")
    return _sized(trace)


def types_of(trace: Trace) -> list[str]:
    """Return for each job the GPU type of the nodes that it needs: the first that it asks for, else
    the one that it ran on, else the type that most jobs name.
    """
    asked = [str(text).split("|")[0] for text in trace.texts("gpu_types_allowed")]
    ran = [str(text) for text in trace.texts("gpu_type")]
    named = [(one or other).lower() for one, other in zip(asked, ran, strict=True)]
    on_gpus = trace.numbers("num_gpus") > 0
    kinds, counts = np.unique(
        [kind for kind, counts in zip(named, on_gpus, strict=True) if kind and counts] or [UNKNOWN],
        return_counts=True,
    )
    usual = str(kinds[int(counts.argmax())])
    return [kind or usual for kind in named]


def node_size(trace: Trace) -> int:
    """Return the GPUs of a node: the size of most jobs on several GPUs, if nodes have that."""
    gpus = trace.numbers("num_gpus")
    counts = [int((gpus == size).sum()) for size in _SIZES]
    return _SIZES[counts.index(max(counts))] if any(counts) else _USUAL


def cluster_by_home(trace: Trace, gpus_per_node: int, types: Sequence[str]) -> Cluster:
    """Build one node group for each virtual cluster (or partition) of a trace, and GPU type.

    Parameters
    ----------
    trace : Trace
        With recorded starts, every group holds the peak of GPUs in use at once; without, about
        `busy_day_gpus`, but less than the peak if no job waited. The biggest job of a group fits.
    gpus_per_node : int
        GPUs of every node.
    types : sequence of str
        GPU type of each job, as the groups shall have them.

    Raises
    ------
    ClusterError
        If a group would have more nodes than any cluster has.
    """
    (home, homes), (kind, kinds) = homes_of(trace), _coded(types)
    gpus, run_s, start_s = (
        trace.numbers("num_gpus"),
        trace.numbers("duration_s"),
        trace.numbers("start_time_s"),
    )
    groups = []
    for (at, name), (of, kind_name) in product(enumerate(homes), enumerate(kinds)):
        mine = (home == at) & (kind == of)
        if not mine.any() or (len(kinds) > 1 and not gpus[mine].any()):
            continue
        started = mine & np.isfinite(start_s)
        biggest = _nodes_for(max(float(gpus[mine].max()), 1.0), gpus_per_node)
        if started.any():
            peak = peak_gpus(start_s[started], run_s[started], gpus[started])
            count = max(_nodes_for(peak, gpus_per_node), biggest)
        else:
            jobs = trace.numbers("submit_time_s")[mine], run_s[mine], gpus[mine]
            busy = round(min(busy_day_gpus(*jobs) / gpus_per_node, 2.0 * MOST_NODES))
            count = max(min(busy, _nodes_for(peak_gpus(*jobs), gpus_per_node) - 1), biggest)
        if count > MOST_NODES:
            raise ClusterError(
                f"{name or 'The trace'} would need {count:,} nodes of {gpus_per_node} GPUs. Check"
                " the unit of the durations and the GPU counts."
            )
        called = f"{name}-{kind_name}" if name and len(kinds) > 1 else name
        home_of = (name,) if name else ()
        groups.append(NodeGroup(count, gpus_per_node, kind_name, partitions=home_of, name=called))
    recorded = bool(np.isfinite(start_s).any())
    return Cluster(tuple(groups), name=f"{'from ' if recorded else GUESSED}{trace.name}")


def cluster_of(trace: Trace, gpus: int) -> Cluster:
    """Return a cluster with this many GPUs, of the node size and GPU type of most jobs."""
    size = min(node_size(trace), gpus)
    kinds, counts = np.unique(types_of(trace), return_counts=True)
    usual = str(kinds[int(counts.argmax())])
    groups = [NodeGroup(gpus // size, size, usual)]
    groups += [NodeGroup(1, gpus % size, usual)] if gpus % size else []
    return _described(Cluster(tuple(groups), name=f"{plural(gpus, 'GPU')}"))


def is_guess(source: Source | Trace, cluster: Cluster) -> bool:
    """Tell whether the size of a cluster is the guess that `cluster_for` makes."""
    return cluster.name.startswith(GUESSED) and cluster_for(source).cluster == cluster


def busy_day_gpus(
    submit_s: NDArray[np.float64], run_s: NDArray[np.float64], gpus: NDArray[np.float64]
) -> float:
    """Return the GPUs that jobs keep in use on their busiest day if none waits, at a load of 1 at
    most over the whole trace.

    A day is no longer than the trace: than its submissions and its longest run.
    """
    span_s = max(float(np.ptp(submit_s)), float(run_s.max()), 1.0)
    at_s = np.concatenate([submit_s, submit_s + run_s])
    day_s = max(min(_DAY_S, span_s), float(np.ptp(at_s)) / _MOST_DAYS)
    order = np.argsort(at_s, kind="stable")
    at_s, held = at_s[order], np.cumsum(np.concatenate([gpus, -gpus])[order])
    used_s = np.concatenate([[0.0], np.cumsum(held[:-1] * np.diff(at_s))])
    days = np.arange(at_s[0], at_s[-1] + day_s, day_s)
    return float(max(np.diff(np.interp(days, at_s, used_s)).max() / day_s, used_s[-1] / span_s))


def _nodes_for(gpus: float, gpus_per_node: int) -> int:
    return math.ceil(round(gpus / gpus_per_node, 9))


def homes_of(trace: Trace) -> tuple[NDArray[np.int64], list[str]]:
    """Return the number of the virtual cluster (or partition) of each job, and their names; one
    without a name where the trace knows none.
    """
    column = next((known for known in ("vc", "partition") if trace.has(known)), "vc")
    found = trace.texts(column)
    return np.asarray(found.codes, np.int64), [str(home) for home in found.categories]


def _coded(names: Iterable[str]) -> tuple[NDArray[np.int64], list[str]]:
    codes, kinds = pd.factorize(pd.Series(list(names)))
    return np.asarray(codes, np.int64), [str(kind) for kind in kinds]


def peak_gpus(
    start_s: NDArray[np.float64], run_s: NDArray[np.float64], gpus: NDArray[np.float64]
) -> float:
    """Return the most GPUs in use at once, a job that ends at an instant making room for one that
    starts then.
    """
    at = np.concatenate([start_s, start_s + run_s])
    change = np.concatenate([gpus, -gpus])
    order = np.lexsort((change, at))
    return float(np.cumsum(change[order]).max(initial=0.0))


def _described(cluster: Cluster) -> Cluster:
    """Return the cluster with a line for every type that nobody knows, so that it can be used: it
    counts as a V100, which is called guessed wherever it matters.
    """
    known = tuple(known_type(kind.name) or GpuType(kind.name) for kind in cluster.types)
    return Cluster(cluster.groups, known, cluster.changes, cluster.name)


@lru_cache(maxsize=8)
def _sized(trace: Trace) -> FittedCluster:
    size = node_size(trace)
    made = cluster_by_home(trace, size, types_of(trace))
    recorded = bool(np.isfinite(trace.numbers("start_time_s")).any())
    _, homes = homes_of(trace)
    named = sum(1 for home in homes if home)
    of = "virtual clusters" if trace.has("vc") else "partitions"
    each = f" in each of {named} {of}" if named > 1 else ""
    how = (
        f"Sized by the most GPUs in use at once{each}, as recorded"
        if recorded
        else f"A guess, as no starts are recorded: the jobs{each} fill it on their busiest day"
    )
    return FittedCluster(_described(made), f"{how}. {_nodes(made, size)}")


def _by_load(trace: Trace, load: float) -> FittedCluster:
    if not 0 < load <= 1:
        raise ParameterError(f"load = {load:g} is not above 0 and up to 1. Try 0.7.")
    size = node_size(trace)
    # Of few jobs submitted at once the longest run is the span.
    span_s = max(trace.span_s, float(trace.numbers("duration_s").max()))
    widest = float(trace.numbers("num_gpus").max())
    needed = max(trace.gpu_seconds / span_s / load, widest)
    kinds, counts = np.unique(types_of(trace), return_counts=True)
    usual = str(kinds[int(counts.argmax())])
    if not math.isfinite(needed):
        raise ClusterError(f"{trace.name}: no cluster is large enough. Check the durations.")
    made = Cluster.parse(f"{max(math.ceil(needed / size), 1)}x{size}:{usual}")
    made = Cluster(made.groups, name=f"from {trace.name}")
    how = f"Sized so that the jobs ask for at most {100 * load:g} % of the GPU time."
    return FittedCluster(_described(made), f"{how} {_nodes(made, size)}")


def _nodes(cluster: Cluster, size: int) -> str:
    kinds = [kind.name for kind in cluster.types]
    nodes = f"{plural(len(cluster.nodes), 'node')} of {size}"
    unnamed = [gpu_type(kind) for kind in kinds if kind != UNKNOWN and known_type(kind) is None]
    if kinds == [UNKNOWN]:
        return f"{nodes} GPUs of unknown type, which count as V100."
    also = f"; no speed of {', '.join(unnamed)} is known, so V100 is guessed" if unnamed else ""
    return f"{nodes} {', '.join(gpu_type(kind) for kind in kinds)}{also}."
