"""Cores and memory: what jobs hold, and what of it they use, where the performance model knows
that.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.metrics.steps import Floats, Ints, accumulate
from sim.metrics.usage import downtimes, total, up_s
from sim.result import ROLES, RunResult

RESOURCES: Final = ("cpus", "mem_gb")
_HOUR_S: Final = 3600.0


def resource_hours(
    result: RunResult, cluster: Cluster, held: pd.DataFrame | None = None
) -> dict[str, float]:
    """Return core-hours and GB-hours of the whole run; `held` is of `resources_held`, if it is
    known already.

    Returns
    -------
    dict
        For cpus and mem_gb each: `held_*_h` (by all jobs), `known_*_h` (the part of it of which the
        use is known) and `used_*_h` (of that part).

    Notes
    -----
    held = replicas x (cores or GB of each) x seconds, summed over placements on nodes of the
    cluster; what nodes of unknown size hold counts too. Use is known per segment and role, as a
    mean over the segment; where cores or memory are not stated there is nothing to compare it with,
    so it is left out.
    """
    held = resources_held(result, cluster) if held is None else held
    seconds = _seconds(result)[held["segment"].to_numpy(np.int64)] / _HOUR_S
    hours: dict[str, float] = {}
    for name in RESOURCES:
        asked, used = (held[column].to_numpy(np.float64) for column in (name, f"used_{name}"))
        known = np.isfinite(used) & (asked > 0)
        hours |= {
            f"held_{name}_h": total(asked, seconds),
            f"known_{name}_h": total(asked[known], seconds[known]),
            f"used_{name}_h": total(used[known], seconds[known]),
        }
    return hours


def resource_share(
    result: RunResult,
    cluster: Cluster,
    t0: float,
    t1: float,
    held: pd.DataFrame | None = None,
) -> dict[str, float]:
    """Return the share of the cluster's cores and memory that jobs hold in a window, NaN where a
    node's are not stated or there are none; `held` as for `resource_hours`.

    Notes
    -----
    held / integral of what is there and up, both over the window, as for GPUs.
    """
    held = resources_held(result, cluster) if held is None else held
    segment = held["segment"].to_numpy(np.int64)
    begin, end = (result.segments[name].to_numpy(np.float64)[segment] for name in ("t0", "t1"))
    inside = np.clip(np.minimum(end, t1) - np.maximum(begin, t0), 0.0, None)
    up = up_s(downtimes(result, cluster), len(cluster.nodes), t0, t1)
    shares: dict[str, float] = {}
    for name in RESOURCES:
        there = np.array([getattr(node, name) for node in cluster.nodes], np.float64)
        room = total(there, up) if np.isfinite(there).all() else np.nan
        shares[name] = total(held[name].to_numpy(np.float64), inside) / room if room > 0 else np.nan
    return shares


def resource_series(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return the cores and memory held and used at each instant, and what is there.

    Returns
    -------
    DataFrame
        `t_s` and for cpus and mem_gb each, where the use is known of any job, `held_*`, `used_*`
        (mean over each segment) and, where it is stated of all nodes, `there_*`. Steps: a row holds
        until the next. Empty where nothing is known.
    """
    if not len(result.usage):
        return pd.DataFrame({"t_s": np.zeros(0)})
    held = resources_held(result, cluster)
    known = [
        name for name in RESOURCES if np.isfinite(held[f"used_{name}"].to_numpy(np.float64)).any()
    ]
    if not known:
        return pd.DataFrame({"t_s": np.zeros(0)})
    segment = held["segment"].to_numpy(np.int64)
    begin, end = (result.segments[name].to_numpy(np.float64)[segment] for name in ("t0", "t1"))
    node, down, up = downtimes(result, cluster)
    changes: dict[str, Floats] = {}
    for name in known:
        for column, source in ((f"held_{name}", name), (f"used_{name}", f"used_{name}")):
            amount = np.nan_to_num(held[source].to_numpy(np.float64))
            changes[column] = np.concatenate(([0.0], amount, -amount, np.zeros(2 * len(node))))
        there = np.array([getattr(one, name) for one in cluster.nodes], np.float64)
        if np.isfinite(there).all():
            changes[f"there_{name}"] = np.concatenate(
                ([there.sum()], np.zeros(2 * len(begin)), -there[node], there[node])
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
    """Return one row per segment and role on nodes of the cluster: segment, role, cpus, mem_gb
    held, and used_cpus, used_mem_gb, NaN where not known; nothing where no cores or memory were
    asked for.
    """
    placements = result.placements
    if not len(result.usage) and not any(placements[name].to_numpy().any() for name in RESOURCES):
        none = dict.fromkeys((*RESOURCES, *(f"used_{name}" for name in RESOURCES)), np.zeros(0))
        return pd.DataFrame({name: np.zeros(0, np.int64) for name in ("segment", "role")} | none)
    own = placements[(placements["node"] < len(cluster.nodes)).to_numpy()]
    key: Ints = own["segment"].to_numpy(np.int64) * len(ROLES) + own["role"].to_numpy(np.int64)
    rows, at = np.unique(key, return_inverse=True)
    count = own["count"].to_numpy(np.float64)
    held: dict[str, Floats] = {
        name: np.asarray(
            np.bincount(at, count * own[name].to_numpy(np.float64), len(rows)), np.float64
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


def _seconds(result: RunResult) -> Floats:
    return np.asarray(
        result.segments["t1"].to_numpy(np.float64) - result.segments["t0"].to_numpy(np.float64)
    )
