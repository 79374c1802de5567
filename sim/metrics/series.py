"""Time series of a run as step functions: jobs waiting, GPUs busy, capacity, GPU states."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.metrics.gpu_seconds import UsageArrays, downtimes, node_gpus
from sim.metrics.steps import Floats, Ints, accumulate, changing, merge_intervals, running
from sim.result import RunResult


class Presence(NamedTuple):
    """Instants at which each job enters and leaves the system; equal if it never counts."""

    enter_s: Floats
    leave_s: Floats


def presence(result: RunResult) -> Presence:
    """Return the instants at which each job enters and leaves the system.

    Notes
    -----
    From submission to finish for completed and failed jobs, to the end of the run for unfinished
    ones. Impossible and refused jobs are in the system only until the end of their segments; most
    have none. Jobs submitted after the end of the run never enter.
    """
    jobs = result.jobs
    submit, finish = jobs["submit_s"].to_numpy(np.float64), jobs["finish_s"].to_numpy(np.float64)
    last_segment_end = submit.copy()
    np.maximum.at(
        last_segment_end,
        result.segments["job"].to_numpy(np.int64),
        result.segments["t1"].to_numpy(np.float64),
    )
    outcome = jobs["outcome"]
    leave = np.where(
        np.asarray(outcome == "unfinished"),
        np.maximum(submit, result.end_s),
        np.where(np.isnan(finish), last_segment_end, finish),
    )
    leave = np.where(np.asarray(outcome.isin(["refused", "impossible"])), last_segment_end, leave)
    return Presence(submit, np.where(submit < result.end_s, leave, submit))


def _frame(t: Floats, columns: dict[str, Floats], end_s: float) -> pd.DataFrame:
    """Return a series table from 0 s (value 0 if missing) to the end (the last value)."""
    if not len(t) or t[0] > 0.0:
        t, columns = (
            np.append(0.0, t),
            {name: np.append(0.0, values) for name, values in columns.items()},
        )
    if t[-1] < end_s:
        t, columns = (
            np.append(t, end_s),
            {name: np.append(values, values[-1]) for name, values in columns.items()},
        )
    return pd.DataFrame({"t_s": t, **columns})


def queue_series(result: RunResult) -> pd.DataFrame:
    """Return the number of waiting and running jobs over time.

    Returns
    -------
    DataFrame
        `t_s` (each instant at which something changes, from 0 to the end of the run), `waiting`
        (jobs in the system without a grant, also preempted and evicted ones), `gpus_wanted` (GPUs
        that these jobs request) and `running` (jobs with a grant). A row holds until the next.

    Notes
    -----
    waiting(t) = jobs entered by t - jobs left by t - jobs holding a grant at t; see `presence`. An
    unfinished job waits until the end of the run, a refused or impossible one does not wait.
    """
    enter, leave = presence(result)
    inside = np.flatnonzero(leave > enter)
    job, t0, t1 = merge_intervals(*_segment_intervals(result))
    gpus = result.jobs["gpus"].to_numpy(np.float64)
    times = np.concatenate((enter[inside], leave[inside], t0, t1))
    signs = np.repeat([1.0, -1.0, -1.0, 1.0], [len(inside), len(inside), len(job), len(job)])
    gpu_changes = signs * gpus[np.concatenate((inside, inside, job, job))]
    running = np.concatenate((np.zeros(2 * len(inside)), -signs[2 * len(inside) :]))
    t, (waiting, gpus_wanted, held) = accumulate(times, (signs, gpu_changes, running))
    return _frame(
        t, {"waiting": waiting, "gpus_wanted": gpus_wanted, "running": held}, result.end_s
    )


def _segment_intervals(result: RunResult) -> tuple[Ints, Floats, Floats]:
    """Return job, begin and end of every segment."""
    segments = result.segments
    return (
        segments["job"].to_numpy(np.int64),
        segments["t0"].to_numpy(np.float64),
        segments["t1"].to_numpy(np.float64),
    )


def utilisation_series(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return the GPUs held over time, per type and in total.

    Returns
    -------
    DataFrame
        `t_s`, one column per name in `cluster.types`, `total`, and `overflow` if the run had an
        overflow node, which no other column includes.
    """
    usage = UsageArrays(result, cluster)
    kinds = usage.node_type[np.minimum(usage.node, len(cluster.nodes))]
    held = usage.held_gpus > 0
    segment, gpus, kinds = usage.segment[held], usage.held_gpus[held], kinds[held]
    names = [kind.name for kind in cluster.types]
    if result.overflow is not None:
        names.append("overflow")
    masks = [(kinds == kind_index) * gpus for kind_index in range(len(names))]
    times = np.concatenate((usage.t0[segment], usage.t1[segment]))
    t, values = accumulate(times, [np.concatenate((change, -change)) for change in masks])
    columns = dict(zip(names, values, strict=True))
    total = np.sum(values[: len(cluster.types)], axis=0) if cluster.types else np.zeros(len(t))
    frame = _frame(t, {**columns, "total": total}, result.end_s)
    return frame[
        ["t_s", *(kind.name for kind in cluster.types), "total", *names[len(cluster.types) :]]
    ]


def capacity_series(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return the GPUs in service over time: `t_s`, one column per type, `total`.

    GPUs in an outage or absent by a dated change are subtracted once.
    """
    node, begin, end = downtimes(result, cluster)
    gpus, usage = node_gpus(cluster), UsageArrays(result, cluster)
    kinds, lost = usage.node_type[node], gpus[node]
    full = usage.by_type(gpus)
    times = np.concatenate(([0.0], np.maximum(begin, 0.0), np.maximum(end, 0.0)))
    changes = []
    for kind_index in range(len(full)):
        type_lost = np.where(kinds == kind_index, lost, 0.0)
        changes.append(np.concatenate((full[kind_index : kind_index + 1], -type_lost, type_lost)))
    t, values = accumulate(
        times, [*changes, np.concatenate((full.sum(keepdims=True), -lost, lost))]
    )
    is_in_run = t <= max(result.end_s, 0.0)
    columns = dict(
        zip(
            [*(kind.name for kind in cluster.types), "total"],
            (column[is_in_run] for column in values),
            strict=True,
        )
    )
    return _frame(t[is_in_run], columns, result.end_s)


def _fragments(
    usage: UsageArrays, is_placed: NDArray[np.bool_], instant_index: Ints, instants: int
) -> Floats:
    """Return the fragmented GPUs at each of `instants` instants.

    `instant_index`: index of the instant at which each placement begins, followed by those at
    which they end.

    Notes
    -----
    fragmented(t) = sum over nodes with 0 < held < GPUs of (GPUs - held). A node that is down does
    not count.
    """
    node, gpus = usage.node[is_placed], usage.held_gpus[is_placed]
    # Each node's changes sum to 0, so one running sum over all nodes is right within each node.
    rows, row = np.unique(np.tile(node, 2) * instants + instant_index, return_inverse=True)
    held = running(row, np.concatenate((gpus, -gpus)), len(rows))
    node, instant_index = np.divmod(rows, max(instants, 1))
    size = node_gpus(usage.cluster)[node]
    free = np.where((held > 0) & (held < size), size - held, 0.0)
    first = np.append(True, node[1:] != node[:-1])[: len(node)]
    return running(instant_index, np.where(first, free, np.diff(free, prepend=0.0)), instants)


GPU_STATES: Final = ("busy", "paused", "fragmented", "idle", "down")


def state_series(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return the GPUs in each of `GPU_STATES` over time.

    Returns
    -------
    DataFrame
        `t_s` and the columns of `GPU_STATES`, which sum to the GPUs of the cluster. A row holds
        until the next.

    Notes
    -----
    busy: held with progress; paused: held without progress, while a job starts, restarts or
    changes; fragmented: free on a node with other GPUs held; idle: free otherwise; down: in an
    outage, or absent by a dated change of the cluster. Work that is lost later counts as busy. GPUs
    of the recorded schedule beyond the cluster do not count.
    """
    usage = UsageArrays(result, cluster)
    is_placed = (usage.held_gpus > 0) & (usage.node < len(cluster.nodes))
    segment, gpus = usage.segment[is_placed], usage.held_gpus[is_placed]
    capacity = capacity_series(result, cluster)
    there_t, there = (capacity[name].to_numpy(np.float64) for name in ("t_s", "total"))
    parts = (usage.t0[segment], usage.t1[segment], usage.resume[segment], there_t)
    instants, instant_index = np.unique(np.concatenate(parts), return_inverse=True)
    begin, end, resume, counted = np.split(
        instant_index, np.cumsum([len(part) for part in parts[:-1]])
    )
    begun, resumed, ended = (running(each, gpus, len(instants)) for each in (begin, resume, end))
    fragments = _fragments(usage, is_placed, np.concatenate((begin, end)), len(instants))
    there = running(counted, np.diff(there, prepend=0.0), len(instants))
    t, (busy, paused, fragmented, there) = changing(
        instants, [resumed - ended, begun - resumed, fragments, there]
    )
    columns = {
        "busy": busy,
        "paused": paused,
        "fragmented": fragmented,
        "idle": np.maximum(there - busy - paused - fragmented, 0.0),
        "down": np.maximum(cluster.gpus - there, 0.0),
    }
    return _frame(t, columns, result.end_s)
