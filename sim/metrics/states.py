"""What every GPU of a cluster does over time: works, is held without progress, is free on a partly used node, is free, is not there."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.metrics.series import capacity_series, fragmentation_series
from sim.metrics.steps import Floats, accumulate
from sim.metrics.usage import Usage
from sim.result import RunResult

GPU_STATES: Final = ("busy", "paused", "fragmented", "idle", "down")


def state_series(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return the GPUs in each state at each instant.

    Returns
    -------
    DataFrame
        `t_s` and the columns of `GPU_STATES`, which sum to the GPUs of the cluster. Steps: a row holds until the next.

    Notes
    -----
    busy: held and in progress; paused: held without progress, while a job starts, restarts, or is changed; fragmented: free on a node of which other GPUs are
    held, see `fragmentation_series`; idle: free otherwise; down: in an outage, or absent by the dated list of the cluster. Work that is lost later counts as
    busy while it is done. GPUs of the recorded schedule beyond the cluster do not count.
    """
    usage = Usage(result, cluster)
    mine = (usage.held_gpus > 0) & (usage.node < len(cluster.nodes))
    segment, gpus = usage.segment[mine], usage.held_gpus[mine]
    none = np.zeros_like(gpus)
    begin, resume, end = usage.t0[segment], usage.resume[segment], usage.t1[segment]
    changes = (np.concatenate((none, gpus, -gpus)), np.concatenate((gpus, -gpus, none)))
    held_t, (busy, paused) = accumulate(np.concatenate((begin, resume, end)), changes)
    fragmentation, capacity = fragmentation_series(result, cluster), capacity_series(result, cluster)
    fragmented_t, there_t = (frame["t_s"].to_numpy(np.float64) for frame in (fragmentation, capacity))
    t = np.unique(np.concatenate((held_t, fragmented_t, there_t)))
    columns = {"busy": _held(t, held_t, busy), "paused": _held(t, held_t, paused)}
    columns["fragmented"] = _held(t, fragmented_t, fragmentation["fragmented"].to_numpy(np.float64))
    there = _held(t, there_t, capacity["total"].to_numpy(np.float64))
    columns["idle"] = np.maximum(there - columns["busy"] - columns["paused"] - columns["fragmented"], 0.0)
    return pd.DataFrame({"t_s": t, **columns, "down": np.maximum(cluster.gpus - there, 0.0)})


def _held(t: Floats, steps_t: Floats, values: Floats) -> Floats:
    """Return the values of a step function at some instants, 0 before its first step."""
    at = np.searchsorted(steps_t, t, "right") - 1
    return np.where(at >= 0, values[np.maximum(at, 0)], 0.0) if len(values) else np.zeros_like(t)
