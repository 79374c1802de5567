"""Statistics of a trace and cluster before simulation: arrivals, sizes, durations, nodes."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.trace import Trace

_WIDTHS_S: Final = (1, 10, 60, 600, 3600, 4 * 3600, 86_400, 7 * 86_400, 28 * 86_400)
_HOUR_S: Final = 3600.0


def arrivals(trace: Trace, most: int = 400) -> pd.DataFrame:
    """Return the number of arrivals over time, in bins of a round width.

    Parameters
    ----------
    trace : Trace
        The jobs.
    most : int
        Maximum number of bins; the width is the smallest of 1 s, 10 s, 1 min, 10 min, 1 h, 4 h,
        1 d, 7 d, 28 d (and its doubles) that respects it; 1 h if all jobs arrive at one instant.

    Returns
    -------
    DataFrame
        `t_s` (begin of the bin), `width_s`, `jobs` (submitted in it), `jobs_per_hour` and
        `gpus_per_hour` (GPUs requested per hour).
    """
    submit = trace.numbers("submit_time_s")
    widths = _WIDTHS_S if trace.span_s else (_HOUR_S,)
    width = next((float(width) for width in widths if trace.span_s < width * most), _WIDTHS_S[-1])
    while trace.span_s >= width * most:
        width *= 2
    bin_index = (submit // width).astype(np.int64)
    jobs = np.bincount(bin_index)
    gpus = np.bincount(bin_index, trace.frame["num_gpus"])
    hours = width / _HOUR_S
    return pd.DataFrame(
        {
            "t_s": np.arange(len(jobs)) * width,
            "width_s": width,
            "jobs": jobs,
            "jobs_per_hour": jobs / hours,
            "gpus_per_hour": gpus / hours,
        }
    )


def sizes(trace: Trace) -> pd.DataFrame:
    """Return the number of jobs and GPU-hours per class of GPUs, by powers of two.

    Returns
    -------
    DataFrame
        `gpus` (label: "1", "2", "3-4", "5-8", ..., after "0" if jobs request none; up to the
        largest request, empty classes included), `jobs`, `gpu_hours` (at the recorded durations).
    """
    gpus = trace.frame["num_gpus"].to_numpy(np.int64)
    exponent = np.ceil(np.log2(np.maximum(gpus, 1))).astype(np.int64)
    class_index = np.where(gpus == 0, 0, exponent + 1)
    hours = gpus * trace.numbers("duration_s") / _HOUR_S
    labels = [_power_label(index) for index in range(int(class_index.max()) + 1)]
    table = pd.DataFrame(
        {
            "gpus": labels,
            "jobs": np.bincount(class_index),
            "gpu_hours": np.bincount(class_index, hours),
        }
    )
    return table if (gpus == 0).any() else table.iloc[1:].reset_index(drop=True)


def _power_label(index: int) -> str:
    """Return the label of a size class, e.g. "5-8"."""
    if index <= 2:
        return str(index)
    return f"{2 ** (index - 2) + 1}-{2 ** (index - 1)}"


def durations(trace: Trace, bins: int = 40) -> pd.DataFrame:
    """Return the recorded run times in bins of equal ratio.

    Columns `low_s`, `high_s`, `jobs`, `gpu_hours`.
    """
    run_s = trace.numbers("duration_s")
    low, high = np.log10(run_s.min()), np.log10(run_s.max())
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    jobs, edges = np.histogram(np.log10(run_s), bins=bins, range=(low, high))
    hours, _ = np.histogram(
        np.log10(run_s), bins=edges, weights=run_s * trace.frame["num_gpus"].to_numpy() / _HOUR_S
    )
    return pd.DataFrame(
        {"low_s": 10.0 ** edges[:-1], "high_s": 10.0 ** edges[1:], "jobs": jobs, "gpu_hours": hours}
    )


def heaviest(trace: Trace, by: str = "user", most: int = 15) -> pd.DataFrame:
    """Return the users, groups or models with the most GPU-hours.

    Parameters
    ----------
    trace : Trace
        The jobs.
    by : str
        A text column: "user", "vc", "model", "partition", "gpu_type" or "status".
    most : int
        Number of rows; the remaining names share one more row, "n others".

    Returns
    -------
    DataFrame
        `name`, `jobs`, `gpu_hours`, most GPU-hours first; `core_hours` instead if no job requests
        GPUs. Jobs without a name are "not given".

    Raises
    ------
    ParameterError
        If the trace does not have the column.
    """
    if not trace.has(by):
        raise ParameterError(
            f"{trace.name}: no job has a {by}, so there is nothing to show by {by}. Map a column to"
            " it when importing."
        )
    names = trace.texts(by, "not given")
    amounts, unit = (
        (trace.numbers("num_gpus"), "gpu_hours")
        if trace.gpu_seconds
        else (trace.numbers("cpus", 0.0), "core_hours")
    )
    hours = amounts * trace.numbers("duration_s") / _HOUR_S
    codes = np.asarray(names.codes)
    table = pd.DataFrame(
        {
            "name": np.asarray(names.categories, dtype=object),
            "jobs": np.bincount(codes, minlength=len(names.categories)),
            unit: np.bincount(codes, hours, minlength=len(names.categories)),
        }
    )
    table = table[table["jobs"] > 0].sort_values(
        [unit, "jobs"], ascending=False, kind="stable", ignore_index=True
    )
    remaining = table.iloc[most:]
    if remaining.empty:
        return table
    others = pd.DataFrame(
        {
            "name": [f"{len(remaining)} others"],
            "jobs": [remaining["jobs"].sum()],
            unit: [remaining[unit].sum()],
        }
    )
    return pd.concat([table.iloc[:most], others], ignore_index=True)


def node_table(cluster: Cluster) -> pd.DataFrame:
    """Return one row per node of a cluster with its name, type, GPUs, rack and price.

    Columns `node`, `name`, `gpu_type` ("" = CPU node), `gpus`, `rack`, `partitions` (joined by
    commas), `price_per_hour` in USD.
    """
    return pd.DataFrame(
        {
            "node": np.arange(len(cluster.nodes)),
            "name": [node.name for node in cluster.nodes],
            "gpu_type": [node.gpu_type for node in cluster.nodes],
            "gpus": np.array([node.gpus for node in cluster.nodes], np.int64),
            "rack": [node.rack for node in cluster.nodes],
            "partitions": [", ".join(node.partitions) for node in cluster.nodes],
            "price_per_hour": np.array([node.price_per_hour for node in cluster.nodes], np.float64),
        }
    )
