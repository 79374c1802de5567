"""Which jobs were stopped for whom, and what that cost."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.result import RunResult

Floats = NDArray[np.float64]
_STOPS: Final = ("preempted", "evicted")
_HOUR_S: Final = 3600.0


class Evicted(NamedTuple):
    """Jobs of others that were stopped for each team, and the GPU-hours of work that these lost;
    arrays of shape (teams,).
    """

    jobs: NDArray[np.int64]
    lost_h: Floats


def stops_of(result: RunResult) -> pd.DataFrame:
    """Return what was stopped by a plan or by a failure: job, t_s, by_plan, lost_gpu_s.

    Notes
    -----
    Lost work is recorded per job. It is divided over the times that the job was stopped in
    proportion to the work that it had done since it started: exact where a job was stopped once, or
    where nothing is kept. A job that a plan stopped for good lost all that it had done.
    """
    segments = result.segments.sort_values(["job", "t0"], kind="stable")
    job, ended = segments["job"].to_numpy(np.int64), segments["ended"].astype(str).to_numpy()
    ran_s = (segments["t1"] - segments["t0"] - segments["paused_s"]).to_numpy(np.float64)
    is_stop = np.isin(ended, _STOPS)
    # Segments from one start to the stop that ends them, the last one to the end of the job.
    is_last = is_stop | (np.diff(job, append=-1) != 0)
    stint = np.cumsum(is_last) - is_last
    sums = pd.DataFrame(
        {
            "work": segments["rate"].to_numpy(np.float64) * ran_s,
            "gpu_s": segments["gpus"].to_numpy(np.float64) * ran_s,
            "at": np.arange(len(segments)),
        }
    ).groupby(stint)
    table = sums[["work", "gpu_s"]].sum()
    last = sums["at"].last().to_numpy(np.int64)
    table = table.assign(
        job=job[last],
        t_s=segments["t1"].to_numpy(np.float64)[last],
        by_plan=ended[last] == _STOPS[0],
    )[is_stop[last]]
    lost = result.jobs["lost_work"].to_numpy(np.float64)[table["job"].to_numpy(np.int64)]
    done = table.groupby("job")["work"].transform("sum").to_numpy(np.float64)
    share = np.divide(lost, done, out=np.zeros_like(done), where=done > 0)
    failed = (result.jobs["outcome"] == "failed").to_numpy()[table["job"].to_numpy(np.int64)]
    share[failed & table.groupby("job")["by_plan"].transform("last").to_numpy(bool)] = 1.0
    found: pd.DataFrame = table.assign(lost_gpu_s=table["gpu_s"] * np.clip(share, 0.0, 1.0))
    return found[["job", "t_s", "by_plan", "lost_gpu_s"]]


def evicted_for(
    result: RunResult,
    team: NDArray[np.int64],
    t_s: Floats,
    used: Floats,
    deserved: Floats,
) -> Evicted:
    """Return which jobs plans stopped for which team.

    Parameters
    ----------
    result : RunResult
        The run.
    team : array of int, shape (jobs,)
        Row of each job's team.
    t_s : array of shape (instants + 1,), seconds
        When anything changed.
    used, deserved : array of shape (teams, instants)
        GPUs that each team holds and is entitled to from each instant to the next.

    Notes
    -----
    Policies do not say for whom they stop a job. Our reading: for the other team that lacked most
    of what it was entitled to at that instant, measured against what it held before; where none
    lacked anything, for the one whose holding rose most then; where none rose, for nobody.
    """
    jobs, lost_h = np.zeros(len(used), np.int64), np.zeros(len(used))
    stops = stops_of(result)
    stops = stops[stops["by_plan"].to_numpy(bool)]
    before = np.hstack([np.zeros((len(used), 1)), used])
    owners = team[stops["job"].to_numpy(np.int64)]
    instants = np.searchsorted(t_s, stops["t_s"].to_numpy(np.float64), side="right") - 1
    costs = stops["lost_gpu_s"].to_numpy(np.float64) / _HOUR_S
    for own, at, cost in zip(owners, instants, costs, strict=True):
        if at >= used.shape[1]:
            continue
        lacks, rises = deserved[:, at] - before[:, at], used[:, at] - before[:, at]
        lacks[own] = rises[own] = 0.0
        need = lacks if lacks.max() > 0 else rises
        best = int(need.argmax())
        if need[best] > 0:
            jobs[best] += 1
            lost_h[best] += cost
    return Evicted(jobs, lost_h)
