"""Which job held how many GPUs when, and what its completion time consists of."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from sim.metrics.jobs import Window, completed, measured
from sim.metrics.steps import MOST_POINTS, Floats, accumulate, reduce_steps
from sim.result import RunResult

JCT_PARTS: Final = ("queue_s", "requeue_s", "paused_s", "redone_s", "slower_s", "ideal_s")
"""Parts of a completion time, in the order in which `jct_parts` explains them."""
OTHERS: Final = "others"
"""Column of `allocation_series` with all jobs that have none of their own."""


def allocation_series(result: RunResult, window: tuple[float, float] | None = None, bins: int = MOST_POINTS - 1, most: int = 8) -> pd.DataFrame:
    """Return the GPUs that each of the largest jobs holds over time, and all others together.

    Parameters
    ----------
    result : RunResult
        The run.
    window : (float, float) or None, seconds
        None = the whole run.
    bins : int
        At most this many; fewer steps than that come back as they are.
    most : int
        Jobs with a column of their own: those with the most GPU-seconds in the window, equal ones by their place in the trace.

    Returns
    -------
    DataFrame
        `t_s`; one column per such job, named by its row in the trace, most GPU-seconds first; and `others`. At most ``bins + 1`` rows, a row holding until
        the next, the last one closing the lines.

    Raises
    ------
    ParameterError
        If the window is empty.

    Notes
    -----
    GPUs of a bin = integral of the GPUs held over the bin / its width, exact; see `reduce_steps`. GPUs of the recorded schedule beyond the cluster count.
    """
    t0, t1 = window or (0.0, max(result.end_s, 1.0))
    segments = result.segments
    job, gpus = segments["job"].to_numpy(np.int64), segments["gpus"].to_numpy(np.float64)
    begin, end = segments["t0"].to_numpy(np.float64), segments["t1"].to_numpy(np.float64)
    seen_s = np.clip(np.minimum(end, t1) - np.maximum(begin, t0), 0.0, None)
    held = np.bincount(job, gpus * seen_s, minlength=len(result.jobs))
    largest = np.argsort(-held, kind="stable")[:most]
    largest = largest[held[largest] > 0]
    place = np.full(len(held), len(largest))
    place[largest] = np.arange(len(largest))
    keep = (seen_s > 0) & (gpus > 0)
    times, changes = np.concatenate((begin[keep], end[keep])), np.concatenate((gpus[keep], -gpus[keep]))
    column = np.tile(place[job[keep]], 2)
    names = [*map(str, largest), OTHERS]
    t, values = accumulate(times, [np.where(column == at, changes, 0.0) for at in range(len(names))])
    reduced = [reduce_steps(t, value, t0, t1, bins) for value in values]
    return pd.DataFrame({"t_s": reduced[0].t_s, **{name: steps.mean for name, steps in zip(names, reduced, strict=True)}})


def jct_parts(result: RunResult, measure: Window | None = None) -> pd.DataFrame:
    """Return what the mean completion time consists of.

    Parameters
    ----------
    result : RunResult
        The run.
    measure : Window or None
        Which jobs count; of them the completed ones.

    Returns
    -------
    DataFrame
        One row: `jobs` (completed), `jct_s` and the parts of `JCT_PARTS`, means in seconds, NaN if no job was completed. The parts sum to `jct_s`.

    Notes
    -----
    Per job, with held = time with a grant:

    - queue = first start - submit; requeue = jct - queue - held: waiting again after being stopped; paused = held without progress.
    - run = jct - queue - requeue - paused; redone = run x lost work / (work + lost work): lost work is recorded per job, so its time is taken in proportion,
      our reading.
    - ideal = min(`ideal_s`, run - redone): the run time alone at the best size on the fastest GPU type; less if the job ran faster than that, as recorded
      jobs and copies of forked ones may.
    - slower = run - redone - ideal: fewer GPUs or another batch than the best, a slower GPU type, spread over nodes, checkpoints being written.
    """
    jobs = result.jobs[completed(result) & measured(result, measure)]
    column: dict[str, Floats] = {name: jobs[name].to_numpy(np.float64) for name in ("submit_s", "first_start_s", "finish_s", "held_s", "paused_s", "ideal_s")}
    jct, queue = column["finish_s"] - column["submit_s"], column["first_start_s"] - column["submit_s"]
    requeue = np.maximum(jct - queue - column["held_s"], 0.0)
    run = np.maximum(jct - queue - requeue - column["paused_s"], 0.0)
    work, lost = jobs["work"].to_numpy(np.float64), jobs["lost_work"].to_numpy(np.float64)
    redone = run * np.divide(lost, work + lost, out=np.zeros_like(lost), where=lost > 0)
    ideal = np.minimum(column["ideal_s"], run - redone)
    parts = dict(zip(JCT_PARTS, (queue, requeue, column["paused_s"], redone, run - redone - ideal, ideal), strict=True))
    means = {name: float(values.mean()) if len(jobs) else np.nan for name, values in {"jct_s": jct, **parts}.items()}
    return pd.DataFrame({"jobs": [len(jobs)], **means})
