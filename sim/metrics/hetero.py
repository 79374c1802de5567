"""Several GPU types: who had which, how busy and how dear each was, what allocators noted over
time, and finish-time fairness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import ceil, inf
from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.contract import Shape
from sim.metrics.jobs import SIZE_CLASSES, Window, completed, measured, size_class
from sim.metrics.steps import Floats, Ints, reduce_steps
from sim.metrics.usage import UsageArrays, capacity_gpu_s
from sim.perf.model import PerfModel
from sim.result import RunResult
from sim.trace import Trace

NO_MODEL: Final = "model not given"


def type_time(result: RunResult, cluster: Cluster) -> Floats:
    """Return the GPU-seconds that each job held on each GPU type, of shape (jobs, types); those of
    the recorded schedule beyond the cluster are left out.
    """
    usage = UsageArrays(result, cluster)
    types, jobs = len(cluster.types), len(result.jobs)
    kind = usage.node_type[np.minimum(usage.node, len(cluster.nodes))]
    owner = result.segments["job"].to_numpy(np.int64)[usage.segment]
    held = usage.held_gpus * (usage.t1 - usage.t0)[usage.segment]
    flat = np.bincount(owner * (types + 1) + kind, held, minlength=jobs * (types + 1))
    return np.asarray(flat.reshape(jobs, types + 1)[:, :types], np.float64)


def type_shares(
    result: RunResult, trace: Trace, cluster: Cluster, measure: Window | None = None, most: int = 8
) -> pd.DataFrame:
    """Return how the GPU time of groups of jobs, and of the heaviest jobs, divides among the GPU
    types.

    Parameters
    ----------
    result : RunResult
        The run.
    trace : Trace
        Its jobs, for their models and names.
    cluster : Cluster
        The machines it ran on.
    measure : Window or None
        Which jobs count.
    most : int
        Models, and single jobs, with a row of their own: those with the most GPU-seconds, equal
        ones by place.

    Returns
    -------
    DataFrame
        `kind` ("all", "size", "model" or "job"), `group` (its name), `jobs` (that held a GPU),
        `gpu_s`, and one column per GPU type: the share of the group's GPU-seconds, 0 to 1; the
        shares of a row sum to 1. Groups without any GPU time have no row.

    Notes
    -----
    share = GPU-seconds held on nodes of the type / GPU-seconds held on nodes of all types; pauses
    count, because the GPUs are held.
    """
    held = np.where(measured(result, measure)[:, None], type_time(result, cluster), 0.0)
    total = held.sum(axis=1)
    models = trace.texts("model")
    sizes = size_class(result.jobs["gpus"].to_numpy(np.int64))
    heaviest = np.argsort(-total, kind="stable")[:most]
    ids = trace.frame["job_id"]
    of_size, of_model = np.asarray(sizes.codes), np.asarray(models.codes)
    by_model = np.bincount(of_model, total, minlength=len(models.categories))
    rows = [("all", "all jobs", total > 0)]
    rows += [("size", name, (of_size == at) & (total > 0)) for at, name in enumerate(SIZE_CLASSES)]
    if trace.has("model"):
        ordered = np.argsort(-by_model, kind="stable")[:most]
        rows += [
            ("model", str(models.categories[at]) or NO_MODEL, (of_model == at) & (total > 0))
            for at in ordered
        ]
    rows += [
        ("job", str(ids.iloc[job]), np.arange(len(total)) == job)
        for job in heaviest
        if total[job] > 0
    ]
    names = [kind.name for kind in cluster.types]
    made = []
    for kind, name, mask in rows:
        gpu_s = held[mask].sum(axis=0)
        if (served := float(gpu_s.sum())) > 0:
            made.append((kind, name, int(mask.sum()), served, *(gpu_s / served)))
    return pd.DataFrame(made, columns=["kind", "group", "jobs", "gpu_s", *names])


def type_use(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return how busy each GPU type was over the whole run, and what that cost.

    Returns
    -------
    DataFrame
        One row per GPU type of which there are nodes: `gpu_type`, `held_gpu_h`, `capacity_gpu_h`
        (there and up), `held_usd` (held x price of the node / its GPUs), `capacity_usd` (all nodes
        of the type, from the first submission to the end).

    Notes
    -----
    utilisation of a type = held / capacity. `capacity_usd` counts broken nodes too, and so does not
    follow from `capacity_gpu_h`.
    """
    usage, nodes = UsageArrays(result, cluster), cluster.nodes
    end_s = result.end_s
    held, capacity = (
        usage.held_gpu_s(0.0, end_s)[: len(nodes)],
        capacity_gpu_s(result, cluster, 0.0, end_s),
    )
    gpus = np.array([node.gpus for node in nodes], np.float64)
    price = np.array([node.price_per_hour for node in nodes], np.float64)
    per_gpu = np.divide(price, gpus, out=np.zeros_like(price), where=gpus > 0)
    columns = {
        "held_gpu_h": held,
        "capacity_gpu_h": capacity,
        "held_usd": held * per_gpu,
        "capacity_usd": price * end_s,
    }
    table = pd.DataFrame(
        {"gpu_type": [kind.name for kind in cluster.types]}
        | {name: usage.by_type(value) / 3600.0 for name, value in columns.items()}
    )
    return table[usage.by_type(gpus) > 0].reset_index(drop=True)


def note_series(
    result: RunResult, bins: int = 199, most: int = 24, window: tuple[float, float] | None = None
) -> pd.DataFrame:
    """Return the numbers that an allocator noted with its decisions, over time.

    Parameters
    ----------
    result : RunResult
        The run.
    bins : int
        At most this many per name; fewer notes than that come back as they are.
    most : int
        Names at most, in order of first appearance.
    window : (float, float) or None, seconds
        None = the whole run. A name that was not noted before the end of the window is left out.

    Returns
    -------
    DataFrame
        `name`, `t_s`, `value`: per name at most ``bins + 1`` rows in order of time, a row holding
        until the next, the last one closing the line.

    Notes
    -----
    A number holds from its decision until it is noted again; before the first one there is no line.
    Reduced as `reduce_steps` does, to the mean of each bin.
    """
    notes = result.notes
    names = list(dict.fromkeys(notes["name"].astype(str)))[:most]
    when = result.decisions["t"].to_numpy(np.float64)
    made = []
    for name in names:
        mine = notes[(notes["name"] == name).to_numpy()]
        t, value = when[mine["decision"].to_numpy(np.int64)], mine["value"].to_numpy(np.float64)
        last = np.append(t[1:] > t[:-1], True) & np.isfinite(value)
        t, value = t[last], value[last]
        if len(t) and (window is None or t[0] < window[1]):
            begin, end = (
                (float(t[0]), max(result.end_s, float(t[0]) + 1.0))
                if window is None
                else (max(float(t[0]), window[0]), window[1])
            )
            steps = reduce_steps(t, value, begin, end, bins)
            made.append(pd.DataFrame({"name": name, "t_s": steps.t_s, "value": steps.mean}))
    return (
        pd.concat(made, ignore_index=True)
        if made
        else pd.DataFrame(
            {"name": pd.Series(dtype="str"), "t_s": np.zeros(0), "value": np.zeros(0)}
        )
    )


def isolated_s(trace: Trace, cluster: Cluster, model: PerfModel) -> Floats:
    """Return how long each job takes if every job has an equal part of every GPU type to itself.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    model : PerfModel
        Bound to both; says how fast a job is on each type.

    Returns
    -------
    array of shape (jobs,), seconds
        From submission; NaN for jobs without GPUs, with more than the cluster has, or with no speed
        on any type.

    Notes
    -----
    The fluid form of Gavel's `isolated` allocation: while M jobs are there, each has the share
    min(1, N / (M s)) of its time, on type j the part n_j / N of that, so that its speed is min(1, N
    / (M s)) x sum_j T_j n_j / N, with N the GPUs, n_j those of type j, s the job's own number and
    T_j its speed on them. M is that of this imagined run and not of any policy, so the reference is
    the same for all. No rounds, pauses or failures: our reading of an isolated run.
    """
    gpus, submit = trace.numbers("num_gpus"), trace.numbers("submit_time_s")
    rates = _mean_rates(gpus, cluster, model)
    real = (gpus > 0) & (gpus <= cluster.gpus) & (rates > 0)
    need = np.divide(gpus * model.work(), rates, out=np.full(len(gpus), np.nan), where=real)
    found = np.full(len(gpus), np.nan)
    found[real] = shared_equally(submit[real], need[real], gpus[real], float(cluster.gpus))
    return found


def _mean_rates(gpus: Floats, cluster: Cluster, model: PerfModel) -> Floats:
    """Return the speed of each job, averaged over the GPUs of the cluster."""
    held, largest = np.zeros(len(cluster.types)), np.ones(len(cluster.types), np.int64)
    for node in cluster.nodes:
        if node.gpus:
            at = cluster.type_index[node.gpu_type]
            held[at] += node.gpus
            largest[at] = max(largest[at], node.gpus)
    mean = np.zeros(len(gpus))
    for size in np.unique(gpus[gpus > 0]).astype(int).tolist():
        ids = np.flatnonzero(gpus == size)
        shapes = [
            Shape(
                tuple(size if at == kind else 0 for kind in range(len(held))),
                ceil(size / largest[at]),
            )
            for at in range(len(held))
        ]
        mean[ids] = model.rates(ids, shapes) @ held / max(held.sum(), 1.0)
    return mean


def shared_equally(submit_s: Floats, need_gpu_s: Floats, gpus: Floats, capacity: float) -> Floats:
    """Return the completion times, from submission, of jobs that share GPUs equally, each using at
    most its own number.

    Parameters
    ----------
    submit_s : array, seconds
        In order.
    need_gpu_s : array, GPU-seconds
        What each job must be served.
    gpus : array
        The most that each can use at once.
    capacity : float
        GPUs to share. With M jobs there each is served capacity / M, or its own number if that is
        less; what it cannot use stays idle.

    Notes
    -----
    Jobs of one size are always served alike, so one clock of service per size tells when each of
    them ends: O(n log n).
    """
    sizes, group = np.unique(gpus, return_inverse=True)
    caps, groups = sizes.tolist(), group.reshape(-1).tolist()
    clocks = [0.0] * len(caps)
    ends: list[list[tuple[float, int]]] = [[] for _ in caps]
    arrivals, needs = submit_s.tolist(), need_gpu_s.tolist()
    found = np.zeros(len(arrivals))
    now, there, turn = 0.0, 0, 0
    while there or turn < len(arrivals):
        fair = capacity / max(there, 1)
        rates = [min(cap, fair) for cap in caps]
        first_s, which = _next_end(ends, clocks, rates)
        arrival_s = arrivals[turn] - now if turn < len(arrivals) else inf
        step_s = max(min(first_s, arrival_s), 0.0)
        clocks = [clock + rate * step_s for clock, rate in zip(clocks, rates, strict=True)]
        now += step_s
        if arrival_s <= first_s:
            at = groups[turn]
            heappush(ends[at], (clocks[at] + needs[turn], turn))
            now, there, turn = arrivals[turn], there + 1, turn + 1
        else:
            clocks[which], job = heappop(ends[which])
            found[job] = now - arrivals[job]
            there -= 1
    return found


def _next_end(
    ends: Sequence[list[tuple[float, int]]], clocks: Sequence[float], rates: Sequence[float]
) -> tuple[float, int]:
    first, which = inf, 0
    for at, heap in enumerate(ends):
        if heap:
            left = (heap[0][0] - clocks[at]) / rates[at]
            if left < first:
                first, which = left, at
    return first, which


def fairness(
    result: RunResult, reference_s: Floats, measure: Window | None = None, most: int = 200
) -> pd.DataFrame:
    """Return the distribution of finish-time fairness: completion time / what it is in isolation,
    as quantiles.

    Parameters
    ----------
    result : RunResult
        The run.
    reference_s : array of shape (jobs,), seconds
        `isolated_s`, or the completion times under another policy; NaN = this job does not count.
    measure : Window or None
        Which jobs count; of them the completed ones.
    most : int
        Points.

    Returns
    -------
    DataFrame
        `share` (of the jobs that count, above 0 and up to 1) and `rho`; ascending, the ceil(share x
        n)-th smallest value. Empty if no job counts.
    """
    jobs = result.jobs
    return quantiles(ratios(jobs, reference_s)[completed(result) & measured(result, measure)], most)


def ratios(jobs: pd.DataFrame, reference_s: Floats) -> Floats:
    """Return completion time / reference of every job; NaN where it was not completed, or there is
    no reference above 0.
    """
    jct = (jobs["finish_s"] - jobs["submit_s"]).to_numpy(np.float64)
    done = np.asarray(jobs["outcome"] == "completed") & (reference_s > 0)
    return np.asarray(
        np.divide(jct, reference_s, out=np.full(len(jct), np.nan), where=done), np.float64
    )


def quantiles(rho: Floats, most: int = 200) -> pd.DataFrame:
    """Return an empirical distribution as at most `most` points: `share` and `rho`."""
    ordered = np.sort(rho[np.isfinite(rho)])
    points = min(len(ordered), most)
    ranks: Ints = np.arange(1, points + 1)
    at = (ranks * len(ordered) + points - 1) // max(points, 1) - 1
    return pd.DataFrame({"share": ranks / max(points, 1), "rho": ordered[at]})


def note_families(names: Sequence[str], types: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Group the names of notes that differ in the GPU type at their end only.

    Parameters
    ----------
    names : sequence of str
        E.g. "price_v100", "price_k80", "payoff".
    types : sequence of str
        GPU types of the cluster.

    Returns
    -------
    mapping
        Family ("price", "payoff") -> name of the note -> what to call its line: the GPU type, or
        the family where it has none.
    """
    made: dict[str, dict[str, str]] = {}
    for name in names:
        kind = next((kind for kind in types if name.endswith((f" {kind}", f"_{kind}"))), "")
        family = name[: -len(kind) - 1] if kind else name
        made.setdefault(family, {})[name] = kind or family
    return made
