"""Numbers of runs that are too large to record in memory."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.contract import Allocator, Floats
from sim.engine.fast import runner
from sim.engine.fast.arrays import can_fail
from sim.engine.fast.runner import LoopOutcome
from sim.engine.setup import peak_rss_mb
from sim.engine.simulator import Conditions
from sim.metrics.jobs import DAY_S
from sim.trace import Trace

_SCHEMA: Final = pa.schema(
    {
        "job_id": pa.string(),
        "submit_s": pa.float64(),
        "first_start_s": pa.float64(),
        "finish_s": pa.float64(),
        "gpus": pa.int32(),
        "outcome": pa.string(),
        "held_s": pa.float64(),
        "preemptions": pa.int32(),
    }
)
JOB_COLUMNS: Final = tuple(_SCHEMA.names)
"""Columns of the file of jobs."""


def run_totals(
    trace: Trace,
    cluster: Cluster,
    allocator: Allocator,
    conditions: Conditions,
    keep: Callable[[LoopOutcome], None] | None = None,
) -> dict[str, Any]:
    """Run on the fast engine; return times, counts and GPU utilization.

    Parameters
    ----------
    trace, cluster, allocator, conditions
        As for `trainyard.runs.engines.simulate`.
    keep : callable or None
        Called with the run before it is dropped, e.g. `write_jobs`.

    Raises
    ------
    NotPlainError
        If the fast engine cannot make the run, or is not compiled here.
    TrainyardError
        If the performance model does not fit the trace.
    """
    before_s = process_time()
    if conditions.horizon_s < inf:
        raise runner.NotPlainError("the run ends at a horizon")
    if can_fail(conditions.faults, cluster):
        raise runner.NotPlainError("nodes fail, come or go")
    followed = runner.run_loop(runner.prepare_run(trace, cluster, allocator, conditions))
    if keep is not None:
        keep(followed)
    job, began_s, until_s = followed.stints
    done = job[followed.finished]
    finish_s = until_s[followed.finished]
    submit_s = trace.frame["submit_time_s"].to_numpy()
    gpus = trace.frame["num_gpus"].to_numpy()[job]
    first_s, last_s = float(submit_s[0]), float(submit_s[-1])
    end_s = max(last_s, float(until_s[-1])) if len(job) else last_s
    close_s = last_s if last_s > first_s else end_s
    held_s = np.clip(until_s, first_s, close_s) - np.clip(began_s, first_s, close_s)
    room = cluster.gpus * (close_s - first_s)
    start_s = np.empty(len(trace))
    start_s[job[::-1]] = began_s[::-1]  # the first of each job counts
    wait_s = (finish_s - submit_s[done]) - np.bincount(job, until_s - began_s, len(trace))[done]
    wait_s = np.maximum(wait_s, 0.0).round(6)
    return {
        "jobs": len(trace),
        "completed": len(done),
        "impossible": len(trace) - len(done),
        "completion_rate": len(done) / len(trace),
        "preemptions": len(job) - len(done),
        **_distribution("jct", finish_s - submit_s[done]),
        **_distribution("queue", start_s[done] - submit_s[done]),
        "makespan_s": float(finish_s.max() - first_s) if len(done) else np.nan,
        "utilisation": float((gpus * held_s).sum() / room) if room else np.nan,
        "decisions": followed.decisions,
        "end_s": end_s,
        "wait_max_s": float(wait_s.max()) if len(done) else np.nan,
        "waits_over_day": int((wait_s > DAY_S).sum()),
        "engine": "fast",
        "cpu_s": process_time() - before_s,
        "peak_rss_mb": peak_rss_mb(),
    }


def write_jobs(source: Path, trace: Trace, path: Path, followed: LoopOutcome) -> None:
    """Write one row per job to Parquet, in the row groups of the source file.

    Parameters
    ----------
    source : Path
        File of the jobs, with their ids; see `trainyard.traces.summary_reader`.
    trace : Trace
        The jobs.
    path : Path
        Output file with `JOB_COLUMNS`, in the order of the trace.
    followed : LoopOutcome
        The run.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    job, began_s, until_s = followed.stints
    done, jobs = followed.finished, len(trace)
    first_start_s, finish_s = np.full(jobs, np.nan), np.full(jobs, np.nan)
    first_start_s[job[::-1]] = began_s[::-1]
    finish_s[job[done]] = until_s[done]
    columns: dict[str, NDArray[Any]] = {
        "submit_s": trace.frame["submit_time_s"].to_numpy(),
        "first_start_s": first_start_s,
        "finish_s": finish_s,
        "gpus": trace.frame["num_gpus"].to_numpy().astype(np.int32),
        "held_s": np.bincount(job, until_s - began_s, jobs),
        "preemptions": np.bincount(job[~done], minlength=jobs).astype(np.int32),
    }
    row = 0
    with pq.ParquetFile(source) as given, pq.ParquetWriter(path, _SCHEMA) as file:
        for at in range(given.num_row_groups):
            end = row + given.metadata.row_group(at).num_rows
            group = {name: pa.array(values[row:end]) for name, values in columns.items()}
            group["job_id"] = (
                given.read_row_group(at, columns=["job_id"])["job_id"].cast(pa.string())
                if "job_id" in given.schema_arrow.names
                else pa.array(map(str, range(row, end)))
            )
            ended = np.where(np.isnan(finish_s[row:end]), "impossible", "completed")
            group["outcome"] = pa.array(ended)
            file.write_table(pa.table([group[name] for name in JOB_COLUMNS], _SCHEMA))
            row = end


def _distribution(name: str, values: Floats) -> dict[str, float]:
    """Return mean and percentiles of values as metrics with a common prefix."""
    if not len(values):
        return {f"{name}_{what}_s": np.nan for what in ("mean", "p50", "p95", "p99")}
    at = np.percentile(values, (50, 95, 99))
    return {f"{name}_mean_s": float(values.mean())} | {
        f"{name}_p{q}_s": float(value) for q, value in zip((50, 95, 99), at, strict=True)
    }
