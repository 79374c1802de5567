"""Tables and figures of the Explore page as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.metrics.occupancy import Matrix, Occupancy, difference
from sim.metrics.steps import Floats
from sim.trace import Trace


def in_use(occupancy: Occupancy) -> float:
    """Return the mean share of all GPUs in use over the window; NaN without GPUs."""
    return (
        float(occupancy.used.mean(axis=1, dtype=np.float64).sum() / occupancy.size.sum())
        if occupancy.size.sum()
        else float("nan")
    )


def shares(occupancy: Occupancy, order: Sequence[int]) -> tuple[Matrix, Matrix]:
    """Return each row's share in use and share down by bin, 0 to 1, rows in the given order."""
    rows = list(order)
    return _divide_by_size(occupancy.used, occupancy, rows), occupancy.down[rows]


def use_difference(
    policy: Occupancy, base: Occupancy, order: Sequence[int]
) -> tuple[Matrix, Matrix]:
    """Return the use of one policy less another's, by row and bin, and the share down.

    Differences lie between −1 and 1; the share down is the larger of both.

    Raises
    ------
    ParameterError
        If the two do not show the same rows at the same times.
    """
    rows = list(order)
    # Differences on machines that are down say nothing about the policies.
    return _divide_by_size(difference(policy, base), policy, rows), np.maximum(
        policy.down, base.down
    )[rows]


def _divide_by_size(cells: Matrix, occupancy: Occupancy, at: list[int]) -> Matrix:
    """Return the selected rows divided by their sizes."""
    return (cells[at] / np.maximum(occupancy.size[at, None], 1e-9)).astype(np.float32)


def row_names(occupancy: Occupancy) -> list[str]:
    """Return the names of the rows, with size and GPU type if rows differ in these."""
    several, uneven = len(set(occupancy.kinds)) > 1, len(set(occupancy.size.tolist())) > 1
    names = []
    for name, kind, size in zip(
        occupancy.rows, occupancy.kinds, occupancy.size.tolist(), strict=True
    ):
        typed = kind if several and kind and kind.casefold() not in name.casefold() else ""
        amount = (
            f"{size:,.0f} {f'× {typed}' if typed else f'{occupancy.unit}s'}" if uneven else typed
        )
        names.append(f"{name} · {amount}" if amount else name)
    return names


def rows_table(by_policy: Mapping[str, Occupancy], order: Sequence[int]) -> pd.DataFrame:
    """Return one row per node, rack or type, with means over the window, in the given order.

    Parameters
    ----------
    by_policy : mapping of Occupancy
        Policy -> the same rows over the same window.
    order : sequence of int
        From `trainyard.what_if.explore.order`.

    Returns
    -------
    DataFrame
        `row`, `gpu_type`, `rack`, `size` (GPUs, or cores), and per policy `in_use <policy>` and
        `down <policy>`, means over the window between 0 and 1.
    """
    at = list(order)
    first = next(iter(by_policy.values()))
    columns: dict[str, object] = {
        "row": [first.rows[place] for place in at],
        "gpu_type": [first.kinds[place] for place in at],
        "rack": [first.racks[place] for place in at],
        "size": first.size[at],
    }
    for title, one in by_policy.items():
        share = one.used.mean(axis=1, dtype=np.float64) / np.maximum(one.size, 1e-9)
        columns |= {
            f"in_use {title}": share[at],
            f"down {title}": one.down.mean(axis=1, dtype=np.float64)[at],
        }
    return pd.DataFrame(columns)


def node_sizes(cluster: Cluster) -> tuple[dict[str, int], str]:
    """Return node name -> its GPUs, and "GPU"; on clusters without GPUs cores, and "core"."""
    if cluster.gpus:
        return {node.name: node.gpus for node in cluster.nodes if node.gpus}, "GPU"
    return {
        node.name: math.ceil(node.cpus)
        for node in cluster.nodes
        if math.isfinite(node.cpus) and node.cpus > 0
    }, "core"


def job_row(trace: Trace, job_id: str) -> int | None:
    """Return the row of the job with exactly this id; None if there is none."""
    rows = np.flatnonzero((trace.frame["job_id"] == job_id).to_numpy(np.bool_))
    return int(rows[0]) if len(rows) else None


def busiest_s(queue: pd.DataFrame) -> float:
    """Return the middle of the first step with the longest queue, in seconds; 0 without steps."""
    t, waiting = queue["t_s"].to_numpy(np.float64), queue["waiting"].to_numpy(np.float64)
    if len(t) < 2:
        return float(t[0]) if len(t) else 0.0
    at = int(waiting[:-1].argmax())
    return float((t[at] + t[at + 1]) / 2)


def unused_rows(occupancy: Occupancy) -> int:
    """Return the number of rows without any use in the window."""
    return int((occupancy.used.max(axis=1) <= 0).sum())


def idle_while_waiting_s(occupancy: Occupancy, queue: pd.DataFrame) -> Floats:
    """Return the seconds that each row is idle while jobs wait.

    Idle = up and not held, weighted by the share of the row's GPUs.

    Parameters
    ----------
    occupancy : Occupancy
        The machines over time.
    queue : DataFrame
        Series of the same window, `t_s` and `waiting`; a value holds until the next one.
    """
    middles = (occupancy.t_s[:-1] + occupancy.t_s[1:]) / 2
    t_s, waiting = (queue[name].to_numpy(np.float64) for name in ("t_s", "waiting"))
    at = np.searchsorted(t_s, middles, side="right") - 1
    waits = (waiting[np.maximum(at, 0)] >= 1) & (at >= 0) if len(t_s) else middles < 0
    width_s = float(occupancy.t_s[1] - occupancy.t_s[0])
    held = occupancy.used / np.maximum(occupancy.size, 1)[:, None]
    idle = np.clip(1.0 - held - occupancy.down, 0.0, 1.0)
    return np.asarray(idle[:, waits].sum(axis=1) * width_s, np.float64)
