"""Tables and figures in words of what the Explore page draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.metrics.occupancy import Matrix, Occupancy, difference
from sim.metrics.steps import Floats
from sim.trace import Trace


def in_use(found: Occupancy) -> float:
    """Return the share of all GPUs that is in use, mean over the window; NaN without any."""
    return (
        float(found.used.mean(axis=1, dtype=np.float64).sum() / found.size.sum())
        if found.size.sum()
        else float("nan")
    )


def shares(found: Occupancy, order: Sequence[int]) -> tuple[Matrix, Matrix]:
    """Return which part of each row is in use, and which is down, both between 0 and 1, rows in
    this order.
    """
    at = list(order)
    return _of_size(found.used, found, at), found.down[at]


def differing(policy: Occupancy, base: Occupancy, order: Sequence[int]) -> tuple[Matrix, Matrix]:
    """Return how much more of each row is in use under a policy than under another, −1 to 1, and
    which part is down under one of them.

    Raises
    ------
    ParameterError
        If the two do not show the same rows at the same times.
    """
    at = list(order)
    # Where either of them lacks the machine a difference says nothing of the policies.
    return _of_size(difference(policy, base), policy, at), np.maximum(policy.down, base.down)[at]


def _of_size(cells: Matrix, found: Occupancy, at: list[int]) -> Matrix:
    return (cells[at] / np.maximum(found.size[at, None], 1e-9)).astype(np.float32)


def row_names(found: Occupancy) -> list[str]:
    """Return the names of the rows, with the number of GPUs and their type where rows differ in it
    and the name does not tell.
    """
    several, uneven = len(set(found.kinds)) > 1, len(set(found.size.tolist())) > 1
    made = []
    for name, kind, size in zip(found.rows, found.kinds, found.size.tolist(), strict=True):
        typed = kind if several and kind and kind.casefold() not in name.casefold() else ""
        amount = f"{size:,.0f} {f'× {typed}' if typed else f'{found.unit}s'}" if uneven else typed
        made.append(f"{name} · {amount}" if amount else name)
    return made


def rows_table(found: Mapping[str, Occupancy], order: Sequence[int]) -> pd.DataFrame:
    """Return one row per row of the picture, in its order.

    Parameters
    ----------
    found : mapping of Occupancy
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
    first = next(iter(found.values()))
    columns: dict[str, object] = {
        "row": [first.rows[place] for place in at],
        "gpu_type": [first.kinds[place] for place in at],
        "rack": [first.racks[place] for place in at],
        "size": first.size[at],
    }
    for title, one in found.items():
        share = one.used.mean(axis=1, dtype=np.float64) / np.maximum(one.size, 1e-9)
        columns |= {
            f"in_use {title}": share[at],
            f"down {title}": one.down.mean(axis=1, dtype=np.float64)[at],
        }
    return pd.DataFrame(columns)


def node_sizes(cluster: Cluster) -> tuple[dict[str, int], str]:
    """Return what the nodes have that jobs hold, by name, and what that is: GPUs, or cores where no
    node has a GPU and cores are modelled.
    """
    if cluster.gpus:
        return {node.name: node.gpus for node in cluster.nodes if node.gpus}, "GPU"
    return {
        node.name: math.ceil(node.cpus)
        for node in cluster.nodes
        if math.isfinite(node.cpus) and node.cpus > 0
    }, "core"


def job_row(trace: Trace, job_id: str) -> int | None:
    """Return the row of the job with this id, letter by letter; None if there is none."""
    found = np.flatnonzero((trace.frame["job_id"] == job_id).to_numpy(np.bool_))
    return int(found[0]) if len(found) else None


def busiest_s(queue: pd.DataFrame) -> float:
    """Return an instant at which most jobs wait, in the middle of the first such step of a reduced
    queue series, in seconds.
    """
    t, waiting = queue["t_s"].to_numpy(np.float64), queue["waiting"].to_numpy(np.float64)
    if len(t) < 2:
        return float(t[0]) if len(t) else 0.0
    at = int(waiting[:-1].argmax())
    return float((t[at] + t[at + 1]) / 2)


def idle_while_waiting_s(found: Occupancy, queue: pd.DataFrame) -> Floats:
    """Return for how long each row of an occupancy is idle while jobs wait, in seconds: the time
    that its GPUs are up and not held, as a share of all of them.

    Parameters
    ----------
    found : Occupancy
        The machines over time.
    queue : DataFrame
        Series of the same window, `t_s` and `waiting`; a value holds until the next one.
    """
    middles = (found.t_s[:-1] + found.t_s[1:]) / 2
    t_s, waiting = (queue[name].to_numpy(np.float64) for name in ("t_s", "waiting"))
    at = np.searchsorted(t_s, middles, side="right") - 1
    waits = (waiting[np.maximum(at, 0)] >= 1) & (at >= 0) if len(t_s) else middles < 0
    width_s = float(found.t_s[1] - found.t_s[0])
    held = found.used / np.maximum(found.size, 1)[:, None]
    idle = np.clip(1.0 - held - found.down, 0.0, 1.0)
    return np.asarray(idle[:, waits].sum(axis=1) * width_s, np.float64)
