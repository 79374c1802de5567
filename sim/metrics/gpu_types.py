"""Metrics of several GPU types: shares, use and cost per type, noted numbers, fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import ceil, inf
from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.contract import Shape
from sim.metrics.gpu_seconds import UsageArrays, capacity_gpu_s, present_s
from sim.metrics.jobs import SIZE_CLASSES, Window, completed_mask, measured_mask, size_class
from sim.metrics.steps import Floats, Ints, reduce_steps
from sim.perf.model import PerfModel
from sim.result import RunResult
from sim.trace import Trace

NO_MODEL: Final = "model not given"


def type_time(result: RunResult, cluster: Cluster) -> Floats:
    """Return GPU-seconds per job and GPU type, of shape (jobs, types).

    GPU-seconds of the recorded schedule beyond the cluster are left out.
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
    """Return how GPU time divides among GPU types, for groups of jobs and the largest jobs.

    Parameters
    ----------
    result : RunResult
        The run.
    trace : Trace
        The jobs of the run, for their models and names.
    cluster : Cluster
        The cluster of the run.
    measure : Window or None
        Jobs that count.
    most : int
        Number of models, and of single jobs, with their own row: those with the most GPU-seconds,
        ties by position.

    Returns
    -------
    DataFrame
        `kind` ("all", "size", "model" or "job"), `group` (name), `jobs` (those that held a GPU),
        `gpu_s`, and one column per GPU type: the share of the group's GPU-seconds, 0 to 1; the
        shares of a row sum to 1. Groups without any GPU time have no row.

    Notes
    -----
    share = GPU-seconds held on nodes of the type / GPU-seconds held on nodes of all types; pauses
    count, because the GPUs are held.
    """
    held = np.where(measured_mask(result, measure)[:, None], type_time(result, cluster), 0.0)
    total = held.sum(axis=1)
    models = trace.texts("model")
    sizes = size_class(result.jobs["gpus"].to_numpy(np.int64))
    heaviest = np.argsort(-total, kind="stable")[:most]
    ids = trace.frame["job_id"]
    size_codes, model_codes = np.asarray(sizes.codes), np.asarray(models.codes)
    by_model = np.bincount(model_codes, total, minlength=len(models.categories))
    rows = [("all", "all jobs", total > 0)]
    rows += [
        ("size", name, (size_codes == index) & (total > 0))
        for index, name in enumerate(SIZE_CLASSES)
    ]
    if trace.has("model"):
        ordered = np.argsort(-by_model, kind="stable")[:most]
        rows += [
            (
                "model",
                str(models.categories[index]) or NO_MODEL,
                (model_codes == index) & (total > 0),
            )
            for index in ordered
        ]
    rows += [
        ("job", str(ids.iloc[job]), np.arange(len(total)) == job)
        for job in heaviest
        if total[job] > 0
    ]
    names = [kind.name for kind in cluster.types]
    records = []
    for kind, name, mask in rows:
        gpu_s = held[mask].sum(axis=0)
        if (served := float(gpu_s.sum())) > 0:
            records.append((kind, name, int(mask.sum()), served, *(gpu_s / served)))
    return pd.DataFrame(records, columns=["kind", "group", "jobs", "gpu_s", *names])


def type_use(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return the use and cost of each GPU type over the whole run.

    Returns
    -------
    DataFrame
        One row per GPU type with nodes: `gpu_type`, `held_gpu_h`, `capacity_gpu_h` (in service),
        `held_usd` (held x price of the node / its GPUs), `capacity_usd` (nodes of the type, while
        present, from the first submission to the end).

    Notes
    -----
    utilisation of a type = held / capacity. `capacity_usd` also counts nodes under repair, so it
    does not follow from `capacity_gpu_h`.
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
        "capacity_usd": price * present_s(result, cluster),
    }
    table = pd.DataFrame(
        {"gpu_type": [kind.name for kind in cluster.types]}
        | {name: usage.by_type(value) / 3600.0 for name, value in columns.items()}
    )
    return table[usage.by_type(gpus) > 0].reset_index(drop=True)


def note_series(
    result: RunResult, bins: int = 199, most: int = 24, window: tuple[float, float] | None = None
) -> pd.DataFrame:
    """Return the numbers that the allocator noted with its decisions, as series over time.

    Parameters
    ----------
    result : RunResult
        The run.
    bins : int
        Maximum number of bins per name; fewer notes are returned unchanged.
    most : int
        Maximum number of names, in order of first appearance.
    window : (float, float) or None, seconds
        None = the whole run. A name that was not noted before the end of the window is left out.

    Returns
    -------
    DataFrame
        `name`, `t_s`, `value`: per name at most ``bins + 1`` rows in order of time; a row holds
        until the next, and the last one closes the line.

    Notes
    -----
    A number holds from its decision until the next one of that name; before the first there is no
    line. Reduced to the mean of each bin, see `reduce_steps`.
    """
    notes = result.notes
    names = list(dict.fromkeys(notes["name"].astype(str)))[:most]
    when = result.decisions["t"].to_numpy(np.float64)
    series = []
    for name in names:
        own_notes = notes[(notes["name"] == name).to_numpy()]
        t, value = (
            when[own_notes["decision"].to_numpy(np.int64)],
            own_notes["value"].to_numpy(np.float64),
        )
        is_last = np.append(t[1:] > t[:-1], True) & np.isfinite(value)
        t, value = t[is_last], value[is_last]
        if len(t) and (window is None or t[0] < window[1]):
            begin, end = (
                (float(t[0]), max(result.end_s, float(t[0]) + 1.0))
                if window is None
                else (max(float(t[0]), window[0]), window[1])
            )
            steps = reduce_steps(t, value, begin, end, bins)
            series.append(pd.DataFrame({"name": name, "t_s": steps.t_s, "value": steps.mean}))
    return (
        pd.concat(series, ignore_index=True)
        if series
        else pd.DataFrame(
            {"name": pd.Series(dtype="str"), "t_s": np.zeros(0), "value": np.zeros(0)}
        )
    )


def isolated_s(trace: Trace, cluster: Cluster, model: PerfModel) -> Floats:
    """Return each job's completion time if it had an equal share of every GPU type alone.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    model : PerfModel
        Performance model bound to both; gives the rate of a job on each type.

    Returns
    -------
    array of shape (jobs,), seconds
        From submission; NaN for jobs without GPUs, with more GPUs than the cluster, or with no rate
        on any type.

    Notes
    -----
    The fluid form of Gavel's `isolated` allocation: while M jobs are active, each has the share
    min(1, N / (M s)) of its time, on type j the part n_j / N of that, so that its speed is min(1, N
    / (M s)) x sum_j T_j n_j / N, with N the GPUs, n_j those of type j, s the job's own number and
    T_j its speed on them. M is the count of this hypothetical run, not of any policy, so the
    reference is the same for all. No rounds, pauses or failures: our reading of an isolated run.
    """
    gpus, submit = trace.numbers("num_gpus"), trace.numbers("submit_time_s")
    rates = _mean_rates(gpus, cluster, model)
    is_runnable = (gpus > 0) & (gpus <= cluster.gpus) & (rates > 0)
    need = np.divide(gpus * model.work(), rates, out=np.full(len(gpus), np.nan), where=is_runnable)
    isolated = np.full(len(gpus), np.nan)
    isolated[is_runnable] = equal_share_jct_s(
        submit[is_runnable], need[is_runnable], gpus[is_runnable], float(cluster.gpus)
    )
    return isolated


def _mean_rates(gpus: Floats, cluster: Cluster, model: PerfModel) -> Floats:
    """Return each job's rate on one GPU type, averaged over the types by their GPUs."""
    held, largest = np.zeros(len(cluster.types)), np.ones(len(cluster.types), np.int64)
    for node in cluster.nodes:
        if node.gpus:
            type_index = cluster.type_index[node.gpu_type]
            held[type_index] += node.gpus
            largest[type_index] = max(largest[type_index], node.gpus)
    mean = np.zeros(len(gpus))
    for size in np.unique(gpus[gpus > 0]).astype(int).tolist():
        ids = np.flatnonzero(gpus == size)
        shapes = [
            Shape(
                tuple(size if type_index == kind else 0 for kind in range(len(held))),
                ceil(size / largest[type_index]),
            )
            for type_index in range(len(held))
        ]
        mean[ids] = model.rates(ids, shapes) @ held / max(held.sum(), 1.0)
    return mean


def equal_share_jct_s(
    submit_s: Floats, need_gpu_s: Floats, gpus: Floats, capacity: float
) -> Floats:
    """Return the completion times of jobs that share GPUs equally, up to each one's GPUs.

    Parameters
    ----------
    submit_s : array, seconds
        Submission times, ascending.
    need_gpu_s : array, GPU-seconds
        Total service of each job.
    gpus : array
        Maximum GPUs of each job at once.
    capacity : float
        GPUs to share. With M active jobs each gets capacity / M, or its own maximum if that is
        less; GPUs that a job cannot use stay idle.

    Notes
    -----
    Jobs of one size always get equal service, so one service clock per size gives the end of each
    of them: O(n log n).
    """
    sizes, group = np.unique(gpus, return_inverse=True)
    caps, groups = sizes.tolist(), group.reshape(-1).tolist()
    clocks = [0.0] * len(caps)
    ends: list[list[tuple[float, int]]] = [[] for _ in caps]
    arrivals, needs = submit_s.tolist(), need_gpu_s.tolist()
    jct_s = np.zeros(len(arrivals))
    now, active, next_job = 0.0, 0, 0
    while active or next_job < len(arrivals):
        fair = capacity / max(active, 1)
        rates = [min(cap, fair) for cap in caps]
        first_s, which = _next_end(ends, clocks, rates)
        arrival_s = arrivals[next_job] - now if next_job < len(arrivals) else inf
        step_s = max(min(first_s, arrival_s), 0.0)
        clocks = [clock + rate * step_s for clock, rate in zip(clocks, rates, strict=True)]
        now += step_s
        if arrival_s <= first_s:
            group_index = groups[next_job]
            heappush(ends[group_index], (clocks[group_index] + needs[next_job], next_job))
            now, active, next_job = arrivals[next_job], active + 1, next_job + 1
        else:
            clocks[which], job = heappop(ends[which])
            jct_s[job] = now - arrivals[job]
            active -= 1
    return jct_s


def _next_end(
    ends: Sequence[list[tuple[float, int]]], clocks: Sequence[float], rates: Sequence[float]
) -> tuple[float, int]:
    """Return (seconds until, size index) of the next end of a job; (inf, 0) without jobs.

    By size: a heap of (clock at the end, job), the service clock, and its rate, above 0 if the size
    has jobs.
    """
    first, which = inf, 0
    for size_index, heap in enumerate(ends):
        if heap:
            seconds = (heap[0][0] - clocks[size_index]) / rates[size_index]
            if seconds < first:
                first, which = seconds, size_index
    return first, which


def fairness(
    result: RunResult, reference_s: Floats, measure: Window | None = None, most: int = 200
) -> pd.DataFrame:
    """Return the distribution of finish-time fairness: completion time / isolated time.

    Parameters
    ----------
    result : RunResult
        The run.
    reference_s : array of shape (jobs,), seconds
        `isolated_s`, or the completion times under another policy; NaN = the job does not count.
    measure : Window or None
        Jobs that count; only completed ones are used.
    most : int
        Maximum number of points.

    Returns
    -------
    DataFrame
        `share` (of the jobs that count, above 0 and up to 1) and `rho`; ascending, the ceil(share x
        n)-th smallest value. Empty if no job counts.
    """
    jobs = result.jobs
    return quantiles(
        ratios(jobs, reference_s)[completed_mask(result) & measured_mask(result, measure)], most
    )


def ratios(jobs: pd.DataFrame, reference_s: Floats) -> Floats:
    """Return completion time / reference of every job.

    NaN if the job was not completed or has no reference above 0.
    """
    jct = (jobs["finish_s"] - jobs["submit_s"]).to_numpy(np.float64)
    done = np.asarray(jobs["outcome"] == "completed") & (reference_s > 0)
    return np.asarray(
        np.divide(jct, reference_s, out=np.full(len(jct), np.nan), where=done), np.float64
    )


def quantiles(rho: Floats, most: int = 200) -> pd.DataFrame:
    """Return the distribution of the finite values as up to `most` points: `share`, `rho`."""
    ordered = np.sort(rho[np.isfinite(rho)])
    points = min(len(ordered), most)
    ranks: Ints = np.arange(1, points + 1)
    indices = (ranks * len(ordered) + points - 1) // max(points, 1) - 1
    return pd.DataFrame({"share": ranks / max(points, 1), "rho": ordered[indices]})


def note_families(names: Sequence[str], types: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Group note names that differ only in the GPU type at their end.

    Parameters
    ----------
    names : sequence of str
        E.g. "price_v100", "price_k80", "payoff".
    types : sequence of str
        GPU types of the cluster.

    Returns
    -------
    mapping
        Family ("price", "payoff") -> note name -> label of its line: the GPU type, or the family
        if it has none.
    """
    families: dict[str, dict[str, str]] = {}
    for name in names:
        kind = next((kind for kind in types if name.endswith((f" {kind}", f"_{kind}"))), "")
        family = name[: -len(kind) - 1] if kind else name
        families.setdefault(family, {})[name] = kind or family
    return families
