"""Cores and memory: amounts held, and amounts used if the performance model has them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.metrics.gpu_seconds import downtimes, total, up_s
from sim.metrics.steps import Floats, Ints, accumulate
from sim.result import ROLES, RunResult

RESOURCES: Final = ("cpus", "mem_gb")
_HOUR_S: Final = 3600.0


def resource_hours(
    result: RunResult, cluster: Cluster, held: pd.DataFrame | None = None
) -> dict[str, float]:
    """Return core-hours and GB-hours of the whole run.

    `held` is the result of `resources_held`, if already computed.

    Returns
    -------
    dict
        For cpus and mem_gb each: `held_*_h` (by all jobs), `known_*_h` (the part with known use)
        and `used_*_h` (use of that part).

    Notes
    -----
    held = replicas x (cores or GB of each) x seconds, summed over placements on nodes of the
    cluster, including nodes of unknown size. Use is known per segment and role, as a mean over
    the segment. Use without a request for cores or memory is left out: there is nothing to compare
    it with.
    """
    held = resources_held(result, cluster) if held is None else held
    seconds = _segment_seconds(result)[held["segment"].to_numpy(np.int64)] / _HOUR_S
    hours: dict[str, float] = {}
    for name in RESOURCES:
        held_amount, used = (held[column].to_numpy(np.float64) for column in (name, f"used_{name}"))
        has_known_use = np.isfinite(used) & (held_amount > 0)
        hours |= {
            f"held_{name}_h": total(held_amount, seconds),
            f"known_{name}_h": total(held_amount[has_known_use], seconds[has_known_use]),
            f"used_{name}_h": total(used[has_known_use], seconds[has_known_use]),
        }
    return hours


def resource_share(
    result: RunResult,
    cluster: Cluster,
    t0: float,
    t1: float,
    held: pd.DataFrame | None = None,
) -> dict[str, float]:
    """Return the share of the cluster's cores and memory that jobs hold in a window.

    NaN if a node has unknown cores or memory, or the cluster has none. `held` as for
    `resource_hours`.

    Notes
    -----
    held / integral of the amount in service, both over the window, as for GPUs.
    """
    held = resources_held(result, cluster) if held is None else held
    segment = held["segment"].to_numpy(np.int64)
    begin, end = (result.segments[name].to_numpy(np.float64)[segment] for name in ("t0", "t1"))
    overlap_s = np.clip(np.minimum(end, t1) - np.maximum(begin, t0), 0.0, None)
    up = up_s(downtimes(result, cluster), len(cluster.nodes), t0, t1)
    shares: dict[str, float] = {}
    for name in RESOURCES:
        capacity = np.array([getattr(node, name) for node in cluster.nodes], np.float64)
        available = total(capacity, up) if np.isfinite(capacity).all() else np.nan
        shares[name] = (
            total(held[name].to_numpy(np.float64), overlap_s) / available
            if available > 0
            else np.nan
        )
    return shares


def resource_series(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return cores and memory over time: held, used and in service.

    Returns
    -------
    DataFrame
        `t_s` and, for each of cpus and mem_gb whose use is known for any job, `held_*`, `used_*`
        (mean over each segment) and, if known for all nodes, `there_*`. A row holds until the
        next. Empty if no use is known.
    """
    if not len(result.usage):
        return pd.DataFrame({"t_s": np.zeros(0)})
    held = resources_held(result, cluster)
    resources = [
        name for name in RESOURCES if np.isfinite(held[f"used_{name}"].to_numpy(np.float64)).any()
    ]
    if not resources:
        return pd.DataFrame({"t_s": np.zeros(0)})
    segment = held["segment"].to_numpy(np.int64)
    begin, end = (result.segments[name].to_numpy(np.float64)[segment] for name in ("t0", "t1"))
    node, down, up = downtimes(result, cluster)
    changes: dict[str, Floats] = {}
    for name in resources:
        for column, source in ((f"held_{name}", name), (f"used_{name}", f"used_{name}")):
            amount = np.nan_to_num(held[source].to_numpy(np.float64))
            changes[column] = np.concatenate(([0.0], amount, -amount, np.zeros(2 * len(node))))
        capacity = np.array([getattr(one, name) for one in cluster.nodes], np.float64)
        if np.isfinite(capacity).all():
            changes[f"there_{name}"] = np.concatenate(
                ([capacity.sum()], np.zeros(2 * len(begin)), -capacity[node], capacity[node])
            )
    t, values = accumulate(np.concatenate(([0.0], begin, end, down, up)), list(changes.values()))
    inside = t <= result.end_s
    frame = pd.DataFrame(
        {
            "t_s": t[inside],
            **{
                name: np.maximum(value[inside], 0.0)
                for name, value in zip(changes, values, strict=True)
            },
        }
    )
    return (
        frame
        if frame["t_s"].iloc[-1] >= result.end_s
        else pd.concat([frame, frame.iloc[-1:].assign(t_s=result.end_s)], ignore_index=True)
    )


def resources_held(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return cores and memory held and used, one row per segment and role.

    Columns: segment, role, cpus, mem_gb, used_cpus and used_mem_gb (NaN = unknown). Only nodes of
    the cluster; empty if no job asks for cores or memory.
    """
    placements = result.placements
    if not len(result.usage) and not any(placements[name].to_numpy().any() for name in RESOURCES):
        no_columns = dict.fromkeys(
            (*RESOURCES, *(f"used_{name}" for name in RESOURCES)), np.zeros(0)
        )
        return pd.DataFrame(
            {name: np.zeros(0, np.int64) for name in ("segment", "role")} | no_columns
        )
    on_cluster = placements[(placements["node"] < len(cluster.nodes)).to_numpy()]
    key: Ints = on_cluster["segment"].to_numpy(np.int64) * len(ROLES) + on_cluster["role"].to_numpy(
        np.int64
    )
    rows, row_index = np.unique(key, return_inverse=True)
    count = on_cluster["count"].to_numpy(np.float64)
    held: dict[str, Floats] = {
        name: np.asarray(
            np.bincount(row_index, count * on_cluster[name].to_numpy(np.float64), len(rows)),
            np.float64,
        )
        for name in RESOURCES
    }
    usage = result.usage
    used_key = usage["segment"].to_numpy(np.int64) * len(ROLES) + usage["role"].to_numpy(np.int64)
    used = usage.groupby(used_key)[list(RESOURCES)].sum(min_count=1).reindex(rows)
    return pd.DataFrame(
        {
            "segment": rows // len(ROLES),
            "role": rows % len(ROLES),
            **held,
            **{f"used_{name}": used[name].to_numpy(np.float64) for name in RESOURCES},
        }
    )


def _segment_seconds(result: RunResult) -> Floats:
    """Return the length of each segment in seconds."""
    return np.asarray(
        result.segments["t1"].to_numpy(np.float64) - result.segments["t0"].to_numpy(np.float64)
    )
