"""Metrics per job and per group of jobs: completion time, delay, wait and distributions."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.metrics.steps import MAX_POINTS, Floats, changing, reduce_all
from sim.result import RunResult
from sim.trace import Trace

Mask = NDArray[np.bool_]

SIZE_CLASSES: Final = ("0", "1", "2-4", "5-8", "9-16", ">16")
"""Classes of requested GPUs."""
DAY_S: Final = 86_400.0
_SIZE_EDGES: Final = np.array([0, 1, 4, 8, 16])
_GROUPS: Final = ("size", "user", "vc", "model", "gpu_type", "partition")
JCT_PARTS: Final = ("queue_s", "requeue_s", "paused_s", "redone_s", "slower_s", "ideal_s")
"""Parts of a completion time, in the order of `jct_parts`."""
OTHERS: Final = "others"
"""Column of `allocation_series` for all jobs without their own column."""


def compute_waits_s(stays_s: Floats, held_s: Floats) -> Floats:
    """Return the times in the system minus the times with GPUs, in whole microseconds.

    Never below 0: overlapping grants could make it negative.
    """
    return np.asarray(np.maximum(stays_s - held_s, 0.0).round(6))


class Window(Protocol):
    """The jobs that count in metrics: a period of submissions and a range of rows.

    `sim.conditions.Measure` is one.
    """

    @property
    def from_s(self) -> float:
        """Earliest submission that counts, in seconds."""

    @property
    def to_s(self) -> float:
        """Latest submission that counts, in seconds."""

    @property
    def first_job(self) -> int:
        """First row that counts."""

    @property
    def last_job(self) -> int | None:
        """Last row that counts; None = the last of the trace."""


def measured_mask(result: RunResult, measure: Window | None = None) -> Mask:
    """Return a boolean per job: whether it is in the window; all are without a window.

    from_s <= submission <= to_s and first_job <= row <= last_job.
    """
    if measure is None:
        return np.ones(len(result.jobs), np.bool_)
    submit, row = result.jobs["submit_s"].to_numpy(), np.arange(len(result.jobs))
    last = len(row) - 1 if measure.last_job is None else measure.last_job
    return np.asarray(
        (submit >= measure.from_s)
        & (submit <= measure.to_s)
        & (row >= measure.first_job)
        & (row <= last)
    )


def size_class(gpus: NDArray[np.int64]) -> pd.Categorical[str]:
    """Return the class of `SIZE_CLASSES` of each number of GPUs."""
    return pd.Categorical.from_codes(
        np.searchsorted(_SIZE_EDGES, gpus).astype(np.int8),
        categories=pd.Index(SIZE_CLASSES),
        ordered=True,
    )


def completed_mask(result: RunResult) -> Mask:
    """Return a boolean per job: whether it was completed."""
    return np.asarray(result.jobs["outcome"] == "completed")


def count_failures(result: RunResult, mask: Mask) -> dict[str, int]:
    """Return the number of failed jobs per cause and role of the last failure, most first.

    For example {"oom server": 3}.
    """
    if not len(result.failures):
        return {}
    last = result.failures.drop_duplicates("job", keep="last")
    lost = last[
        (np.asarray(result.jobs["outcome"] == "failed") & mask)[last["job"].to_numpy(np.int64)]
    ]
    counts = (lost["cause"].astype("str") + " " + lost["role"].astype("str")).value_counts()
    return {str(why): int(jobs) for why, jobs in counts.items()}


def job_table(result: RunResult, trace: Trace, measure: Window | None = None) -> pd.DataFrame:
    """Return one row per measured job with all metrics of a single job.

    Returns
    -------
    DataFrame
        Indexed by the job's row in the trace: `job_id`, `submit_s`, `first_start_s`, `finish_s`,
        `gpus`, `outcome`, `jct_s`, `queue_s`, `wait_s`, `held_s`, `preemptions`, `evictions`,
        `relaunches`, `ideal_s`, `believed_s`, `lost_work`, `size`, and the trace's `user`, `vc`,
        `model`, `gpu_type`, `partition` if present.

    Notes
    -----
    jct = finish - submit; queue = first start - submit; wait = jct - time held. `jct_s` and
    `wait_s` are NaN unless the job was completed, `queue_s` is NaN if it never started.
    """
    jobs = result.jobs
    done = completed_mask(result)
    jct = np.where(done, jobs["finish_s"] - jobs["submit_s"], np.nan)
    columns: dict[str, object] = {
        "job_id": trace.frame["job_id"].to_numpy(),
        **{
            name: jobs[name].to_numpy()
            for name in ("submit_s", "first_start_s", "finish_s", "gpus")
        },
        "outcome": jobs["outcome"].array,
        "jct_s": jct,
        "queue_s": (jobs["first_start_s"] - jobs["submit_s"]).to_numpy(),
        "wait_s": compute_waits_s(jct, jobs["held_s"].to_numpy()),
        **{
            name: jobs[name].to_numpy()
            for name in (
                "held_s",
                "preemptions",
                "evictions",
                "relaunches",
                "ideal_s",
                "believed_s",
                "lost_work",
            )
        },
        "size": size_class(jobs["gpus"].to_numpy(np.int64)),
        **{name: trace.frame[name].array for name in _GROUPS if name in trace.frame},
    }
    table = pd.DataFrame(columns)
    return table if measure is None else table[measured_mask(result, measure)]


def jct_cdf(result: RunResult, measure: Window | None = None, most: int = 400) -> pd.DataFrame:
    """Return the distribution of completion times as at most `most` quantiles.

    Parameters
    ----------
    result : RunResult
        The run.
    measure : Window or None
        Jobs that count.
    most : int
        Maximum number of points; with fewer completed jobs each is a point.

    Returns
    -------
    DataFrame
        `share` (of the completed jobs, above 0 and up to 1) and `jct_s` (completion time that this
        share does not exceed). Empty if no job was completed; other jobs are not in the curve.

    Notes
    -----
    Quantile of the empirical distribution: the ceil(share x n)-th smallest value, with share = 1/k
    .. k/k and k = min(n, most).
    """
    chosen = completed_mask(result) & measured_mask(result, measure)
    return distribution(
        (result.jobs["finish_s"] - result.jobs["submit_s"]).to_numpy()[chosen], most
    )


def distribution(jct_s: Floats, most: int = 400) -> pd.DataFrame:
    """Return the distribution of completion times as at most `most` quantiles.

    Times in seconds, of one run or several; see `jct_cdf`.
    """
    ordered = np.sort(jct_s)
    points = min(len(ordered), most)
    ranks = np.arange(1, points + 1)
    indices = (ranks * len(ordered) + points - 1) // max(points, 1) - 1
    return pd.DataFrame({"share": ranks / max(points, 1), "jct_s": ordered[indices]})


def change_histogram(before_s: Floats, after_s: Floats, bins: int = 40) -> pd.DataFrame:
    """Return the number of jobs per ratio of completion times, after over before.

    Parameters
    ----------
    before_s, after_s : arrays, seconds
        Times of the same jobs, all above 0: under the baseline and under the other policy.
    bins : int
        Even, so that "unchanged" is an edge of two bins.

    Returns
    -------
    DataFrame
        `low`, `high` (ratio after / before, edges of the bin) and `jobs`. Ratios beyond 32 times
        are in the outermost bins.

    Notes
    -----
    Bins are equal in log2(after / before) from -m to m, m the greatest absolute value, at least 1
    and at most 5. Unchanged jobs are in the bin that begins at 1.
    """
    ratio = np.log2(np.asarray(after_s) / np.asarray(before_s))
    limit = min(5.0, max(1.0, float(np.ceil(np.abs(ratio).max(initial=0.0)))))
    counts, edges = np.histogram(np.clip(ratio, -limit, limit), bins=bins, range=(-limit, limit))
    return pd.DataFrame({"low": 2.0 ** edges[:-1], "high": 2.0 ** edges[1:], "jobs": counts})


def allocation_series(
    result: RunResult,
    window: tuple[float, float] | None = None,
    bins: int = MAX_POINTS - 1,
    most: int = 8,
) -> pd.DataFrame:
    """Return GPUs over time of each of the largest jobs, and of all other jobs together.

    Parameters
    ----------
    result : RunResult
        The run.
    window : (float, float) or None, seconds
        None = the whole run.
    bins : int
        Maximum number of bins; a series with fewer steps is returned unchanged.
    most : int
        Number of jobs with their own column: those with the most GPU-seconds in the window, ties
        by row.

    Returns
    -------
    DataFrame
        `t_s`; one column per such job, named by its row in the trace, most GPU-seconds first; and
        `others`. At most ``bins + 1`` rows; a row holds until the next, and the last one closes
        the lines.

    Raises
    ------
    ParameterError
        If the window is empty.

    Notes
    -----
    GPUs of a bin = integral of the GPUs held over the bin / its width, exact; see `reduce_steps`.
    GPUs of the recorded schedule beyond the cluster count.
    """
    t0, t1 = window or (0.0, max(result.end_s, 1.0))
    segments = result.segments
    job, gpus = segments["job"].to_numpy(np.int64), segments["gpus"].to_numpy(np.float64)
    starts, ends = segments["t0"].to_numpy(np.float64), segments["t1"].to_numpy(np.float64)
    seconds_in_window = np.clip(np.minimum(ends, t1) - np.maximum(starts, t0), 0.0, None)
    held = np.bincount(job, gpus * seconds_in_window, minlength=len(result.jobs))
    largest = np.argsort(-held, kind="stable")[:most]
    largest = largest[held[largest] > 0]
    column = np.full(len(held), len(largest))
    column[largest] = np.arange(len(largest))
    keep = (seconds_in_window > 0) & (gpus > 0)
    names = [*map(str, largest), OTHERS]
    instants, instant_index = np.unique(
        np.concatenate((starts[keep], ends[keep])), return_inverse=True
    )
    cell, gpus = np.tile(column[job[keep]], 2) * len(instants) + instant_index, gpus[keep]
    changes = np.bincount(cell, np.concatenate((gpus, -gpus)), len(names) * len(instants))
    t, values = changing(instants, list(np.cumsum(changes.reshape(len(names), -1), axis=1)))
    reduced = reduce_all(t, values, t0, t1, bins)
    return pd.DataFrame(
        {
            "t_s": reduced[0].t_s,
            **{name: steps.mean for name, steps in zip(names, reduced, strict=True)},
        }
    )


def jct_parts(result: RunResult, measure: Window | None = None) -> pd.DataFrame:
    """Return the mean completion time split into its parts.

    Parameters
    ----------
    result : RunResult
        The run.
    measure : Window or None
        Jobs that count; only completed ones are used.

    Returns
    -------
    DataFrame
        One row: `jobs` (completed), `jct_s` and the parts of `JCT_PARTS`, means in seconds, NaN if
        no job was completed. The parts sum to `jct_s`.

    Notes
    -----
    Per job, with held = time with a grant:

    - queue = first start - submit; requeue = jct - queue - held: waiting again after a stop;
      paused = held without progress.
    - run = jct - queue - requeue - paused; redone = run x lost work / (work + lost work): lost work
      is recorded per job, so its time is taken in proportion, our reading.
    - ideal = min(`ideal_s`, run - redone): the run time alone at the best size on the fastest GPU
      type; less if the job ran faster than that, as recorded jobs and copies of forked ones may.
    - slower = run - redone - ideal: fewer GPUs or another batch than the best, a slower GPU type,
      spread over nodes, checkpoints being written.
    """
    jobs = result.jobs[completed_mask(result) & measured_mask(result, measure)]
    column: dict[str, Floats] = {
        name: jobs[name].to_numpy(np.float64)
        for name in ("submit_s", "first_start_s", "finish_s", "held_s", "paused_s", "ideal_s")
    }
    jct, queue = (
        column["finish_s"] - column["submit_s"],
        column["first_start_s"] - column["submit_s"],
    )
    requeue = np.maximum(jct - queue - column["held_s"], 0.0)
    run = np.maximum(jct - queue - requeue - column["paused_s"], 0.0)
    work, lost = jobs["work"].to_numpy(np.float64), jobs["lost_work"].to_numpy(np.float64)
    redone = run * np.divide(lost, work + lost, out=np.zeros_like(lost), where=lost > 0)
    ideal = np.minimum(column["ideal_s"], run - redone)
    parts = dict(
        zip(
            JCT_PARTS,
            (queue, requeue, column["paused_s"], redone, run - redone - ideal, ideal),
            strict=True,
        )
    )
    means = {
        name: float(values.mean()) if len(jobs) else np.nan
        for name, values in {"jct_s": jct, **parts}.items()
    }
    return pd.DataFrame({"jobs": [len(jobs)], **means})
