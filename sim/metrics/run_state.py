"""The state of a run at one instant, and the first difference between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.metrics.steps import Floats, Ints
from sim.metrics.timeline import Timeline
from sim.result import RunResult

_SEGMENTS = ["job", "t0", "t1", "gpus", "rate", "paused_s", "batch", "ended"]
_PLACES = ["job", "t0", "gang", "role", "node", "count", "gpus", "cpus", "mem_gb"]


@dataclass(frozen=True, eq=False)
class RunState:
    """Waiting jobs and node use of a run at an instant.

    Parameters
    ----------
    t_s : float, seconds
        The instant.
    waiting : array of int
        Waiting jobs, in order of submission.
    waited_s : array, seconds
        Total wait of each of them so far.
    running : int
        Number of jobs with a grant.
    nodes : DataFrame
        Per node with GPUs (cores, where the cluster has no GPUs): node (its number), size, used,
        down, free. used + down + free = size.
    beyond : float
        GPUs that the recorded schedule holds beyond the cluster.
    """

    t_s: float
    waiting: Ints
    waited_s: Floats
    running: int
    nodes: pd.DataFrame
    beyond: float


def moment(line: Timeline, t_s: float) -> RunState:
    """Return the state of a run at an instant, after all events of that instant.

    Parameters
    ----------
    line : Timeline
        The run.
    t_s : float, seconds
        Clipped to the run. The end of the run shows the state just before it: at the end itself
        everything is free.

    Notes
    -----
    A job waits at t if it entered at or before t, leaves after t, and holds nothing; see
    `sim.metrics.series.presence`. A placement includes its begin but not its end. GPUs not held on
    a node that is down or absent count as down.
    """
    t = float(np.clip(t_s, 0.0, max(np.nextafter(line.end_s, 0.0), 0.0)))
    held_now = (line.t0 <= t) & (t < line.t1)
    holds = np.zeros(len(line.result.jobs), np.bool_)
    holds[line.owner[held_now]] = True
    enter, leave = line.presence
    waiting = np.flatnonzero((enter <= t) & (t < leave) & ~holds)
    nodes = len(line.size)
    placement_active = held_now[line.segment]
    per_node = np.bincount(
        np.minimum(line.node[placement_active], nodes),
        line.amount[placement_active],
        minlength=nodes + 1,
    )
    used = np.asarray(per_node[:nodes], np.float64)
    return RunState(
        t,
        waiting,
        _total_waits_s(line, waiting, t),
        int(holds.sum()),
        _node_table(line, used, t),
        float(per_node[nodes]),
    )


def ranks(line: Timeline, job: int, t_s: float) -> tuple[int, int]:
    """Return how many jobs submitted before this one wait at an instant, and the first; or -1."""
    enter, leave = line.presence
    waits = (enter[:job] <= t_s) & (t_s < leave[:job])
    waits[(mine := line.owner[(line.t0 <= t_s) & (t_s < line.t1)])[mine < job]] = False
    return int(waits.sum()), int(waits.argmax()) if waits.any() else -1


def is_down(line: Timeline, t_s: float) -> NDArray[np.bool_]:
    """Return a boolean per node: whether it is down or absent at an instant."""
    node, begin, end = line.down
    down = np.zeros(len(line.size), np.bool_)
    down[node[(begin <= t_s) & (t_s < end)]] = True
    return down


def _total_waits_s(line: Timeline, jobs: Ints, t: float) -> Floats:
    """Return the total wait of some jobs up to an instant, in seconds."""
    job, t0, t1 = line.grant_periods
    before = t0 < t
    held_s = np.bincount(
        job[before], np.minimum(t1[before], t) - t0[before], minlength=len(line.presence.enter_s)
    )
    return np.asarray(np.maximum(t - line.presence.enter_s[jobs] - held_s[jobs], 0.0))


def _node_table(line: Timeline, used: Floats, t: float) -> pd.DataFrame:
    """Return size, used, down and free GPUs (or cores) per node at an instant."""
    # Core demands are sums of parts, so the last bits of a sum may differ.
    used = np.minimum(used, line.size)
    down = np.where(is_down(line, t), line.size - used, 0.0)
    frame = pd.DataFrame(
        {
            "node": np.arange(len(used)),
            "size": line.size,
            "used": used,
            "down": down,
            "free": line.size - used - down,
        }
    )
    return frame[line.size > 0].reset_index(drop=True)


def first_difference_s(one: RunResult, other: RunResult, until_s: float) -> float:
    """Return the first instant before `until_s` at which the grants of two runs differ.

    NaN = no difference.

    Notes
    -----
    Compares segments and placements that begin before that instant, without the ends of segments
    that reach it. The overflow node of recorded schedules is the same node on clusters of different
    size, although its number differs.
    """
    differ = [
        _first_difference(*(part(result, until_s) for result in (one, other)))
        for part in (_early_segments, _early_placements)
    ]
    instants = [at_s for at_s in differ if not np.isnan(at_s)]
    return min(instants, default=nan)


def _early_segments(result: RunResult, until_s: float) -> pd.DataFrame:
    """Return the segments that begin before `until_s`; an end that reaches it is blank."""
    early = result.segments.loc[result.segments["t0"] < until_s, _SEGMENTS]
    early = early.assign(ended=early["ended"].astype(str))
    reaches = early["t1"] >= until_s
    return early.assign(
        t1=early["t1"].mask(reaches),
        paused_s=early["paused_s"].mask(reaches),
        ended=early["ended"].mask(reaches, ""),
    )


def _early_placements(result: RunResult, until_s: float) -> pd.DataFrame:
    """Return the placements of segments that begin before `until_s`; overflow is node -1."""
    segments = result.segments.loc[result.segments["t0"] < until_s, ["job", "t0"]]
    placements = result.placements.merge(segments, left_on="segment", right_index=True)[_PLACES]
    return (
        placements
        if result.overflow is None
        else placements.assign(
            node=placements["node"].where(placements["node"] != result.overflow, -1)
        )
    )


def _first_difference(*frames: pd.DataFrame) -> float:
    """Return the earliest `t0` at which the rows of two tables differ; NaN = never."""
    columns = ["t0", *(name for name in frames[0].columns if name != "t0")]
    one, other = (frame[columns].sort_values(columns, ignore_index=True) for frame in frames)
    common = min(len(one), len(other))
    same = (
        ((one[:common] == other[:common]) | (one[:common].isna() & other[:common].isna()))
        .all(axis=1)
        .to_numpy()
    )
    row = int(np.argmin(same)) if not same.all() else common
    return min(
        [float(frame["t0"].iloc[row]) for frame in (one, other) if row < len(frame)], default=nan
    )
