"""What a replay is held against besides policies: figures computed from jobs and machines alone, without a simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from sim.cluster import Cluster
from sim.contract import Floats, Ints, Shape
from sim.perf.model import PerfModel
from sim.trace import Trace
from trainyard.results.fluid_bound import ideal
from trainyard.store import profiles
from trainyard.study.scenario import Scenario
from trainyard.traces.sources import load_trace

_AHEAD: Final = 1.5
"""Jobs that the fluid ideal looks at first, over those up to the last that counts."""


class BoundOf(NamedTuple):
    """How a bound is computed: the metrics that it gives, and from a scenario and its jobs their values."""

    metrics: tuple[str, ...]
    compute: Callable[[Scenario, Trace], tuple[float, ...]]


def bound(scenario: Scenario, by: str) -> dict[str, float]:
    """Return the metrics of a bound.

    Parameters
    ----------
    scenario : Scenario
        With its seed.
    by : str
        One of `BOUNDS`.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded, or the bound is not to be had for it.
    """
    metrics, compute = BOUNDS[by]
    return dict(zip(metrics, compute(scenario, load_trace(scenario.trace)), strict=True))


def fluid(scenario: Scenario, trace: Trace) -> tuple[float, float]:
    """Return mean completion time and makespan, in seconds, if the policy's shares of time were followed exactly, see `trainyard.results.fluid_bound`.

    Raises
    ------
    TrainyardError
        As `trainyard.results.fluid_bound.ideal`.

    Notes
    -----
    Over the jobs that count, by row. Later jobs are looked at as far as they can matter: until all that count are done.
    """
    first, last = scenario.measure.first_job, scenario.measure.last_job
    end = len(trace) if last is None else last + 1
    perf, submit_s = profiles.resolved(scenario.perf, None), trace.numbers("submit_time_s")
    size = end
    while True:
        size = min(len(trace), int(_AHEAD * size))
        finish_s = ideal(replace(trace, frame=trace.frame.iloc[:size]), scenario.cluster, perf, scenario.allocator, scenario.seed)[first:end]
        if size == len(trace) or np.nanmax(finish_s, initial=0.0) <= submit_s[size]:
            return float(np.nanmean(finish_s - submit_s[first:end])), float(np.nanmax(finish_s) - submit_s[first])


def capacity(scenario: Scenario, trace: Trace) -> tuple[float]:
    """Return a time, in seconds, that no makespan is below, whatever the policy, and also if jobs may be on several nodes at once.

    Notes
    -----
    Job j has work W_j and makes r_jm per second as a gang of k_j GPUs of type m, of which there are G_m. Put any price u_m on a GPU-second of type m. Every
    unit of work of j costs at least ``min_m u_m k_j / r_jm``, wherever it is done, and in a time T no more than ``T sum_m G_m u_m`` can be spent. So

        T >= sum_j W_j min_m (u_m k_j / r_jm) / sum_m G_m u_m

    for every u. Tried are the speeds ``u_m = r_jm / k_j`` of each job, and the largest result counts. For a single job that is its work over the speed of all
    GPUs together, which is the best there can be: against its fastest node alone, the fastest speed over the sum of speeds. If the types have the same relative
    speeds for all jobs, it is the total work over the sum of speeds; else the best price may lie between those that are tried, and the bound is less tight.

    It holds for gangs of fixed sizes, on one type or on several at the pace of the slowest or with parts by speed; costs of changes and failures of machines
    only make a makespan longer. Jobs that can never run do not count.
    """
    last = scenario.measure.last_job
    counts = slice(scenario.measure.first_job, None if last is None else last + 1)
    model = profiles.resolved(scenario.perf, None).bind(trace, scenario.cluster)
    speeds, gpus = _per_gpu(model, trace.numbers("num_gpus").astype(np.int64), scenario.cluster)
    work, speeds = model.work()[counts], speeds[counts]
    runs = (speeds > 0).any(axis=1)
    work, speeds = work[runs], speeds[runs]
    prices = np.unique(speeds, axis=0)
    cheapest = np.divide(prices[:, None, :], speeds, out=np.full((len(prices), *speeds.shape), np.inf), where=speeds > 0)
    return (float(((cheapest.min(axis=2) * work).sum(axis=1) / (prices * gpus).sum(axis=1)).max(initial=0.0)),)


def _per_gpu(model: PerfModel, gangs: Ints, cluster: Cluster) -> tuple[Floats, Floats]:
    """Return the work per second and GPU of every job as a gang on each type, of shape (jobs, types), 0 where there is no room; and the GPUs of each type."""
    gpus = np.zeros(len(cluster.types))
    for node in cluster.nodes:
        gpus[cluster.type_index[node.gpu_type]] += node.gpus
    sizes, which = np.unique(gangs, return_inverse=True)
    shapes = [Shape(tuple(size if at == kind else 0 for at in range(len(gpus)))) for size in sizes.tolist() for kind in range(len(gpus))]
    found = np.nan_to_num(model.rates(np.arange(len(gangs)), shapes)).reshape(len(gangs), len(sizes), len(gpus))[np.arange(len(gangs)), which]
    fits = (gangs > 0)[:, None] & (gangs[:, None] <= gpus)
    return np.where(fits, found / np.maximum(gangs, 1)[:, None], 0.0), gpus


BOUNDS: Final[Mapping[str, BoundOf]] = {"fluid": BoundOf(("jct_mean_s", "makespan_s"), fluid), "capacity": BoundOf(("makespan_s",), capacity)}
"""Name -> how it is computed."""
