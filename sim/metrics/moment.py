"""One instant of a run: waiting jobs and free resources; and where two runs begin to differ."""

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
    """The state between two changes.

    Parameters
    ----------
    t_s : float, seconds
        The instant.
    waiting : array of int
        Jobs that wait, in order of submission.
    waited_s : array, seconds
        How long each of them has waited so far, all its waits together.
    running : int
        Jobs that hold something.
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
    """Return the state of a run at an instant, after everything that happens at it.

    Parameters
    ----------
    line : Timeline
        The run.
    t_s : float, seconds
        Moved into the run. Its very end shows what was there until then: at the end itself
        everything is given back.

    Notes
    -----
    A job waits at t if it entered at or before t, leaves after t, and holds nothing; see
    `sim.metrics.series.presence`. A placement holds from its begin up to, but not including, its
    end. What is not held on a node that is down or absent counts as down.
    """
    t = float(np.clip(t_s, 0.0, max(np.nextafter(line.end_s, 0.0), 0.0)))
    held_now = (line.t0 <= t) & (t < line.t1)
    holds = np.zeros(len(line.result.jobs), np.bool_)
    holds[line.owner[held_now]] = True
    enter, leave = line.presence
    waiting = np.flatnonzero((enter <= t) & (t < leave) & ~holds)
    nodes = len(line.size)
    there = held_now[line.segment]
    per_node = np.bincount(
        np.minimum(line.node[there], nodes), line.amount[there], minlength=nodes + 1
    )
    used = np.asarray(per_node[:nodes], np.float64)
    return RunState(
        t,
        waiting,
        _waited(line, waiting, t),
        int(holds.sum()),
        _nodes(line, used, t),
        float(per_node[nodes]),
    )


def ranks(line: Timeline, job: int, t_s: float) -> tuple[int, int]:
    """Return how many jobs submitted before this one wait at an instant, and the first of them; -1
    = none does.
    """
    enter, leave = line.presence
    waits = (enter[:job] <= t_s) & (t_s < leave[:job])
    waits[(mine := line.owner[(line.t0 <= t_s) & (t_s < line.t1)])[mine < job]] = False
    return int(waits.sum()), int(waits.argmax()) if waits.any() else -1


def is_down(line: Timeline, t_s: float) -> NDArray[np.bool_]:
    """Return for each node whether it is down or absent at an instant."""
    node, begin, end = line.down
    made = np.zeros(len(line.size), np.bool_)
    made[node[(begin <= t_s) & (t_s < end)]] = True
    return made


def _waited(line: Timeline, jobs: Ints, t: float) -> Floats:
    job, t0, t1 = line.held
    before = t0 < t
    had = np.bincount(
        job[before], np.minimum(t1[before], t) - t0[before], minlength=len(line.presence.enter_s)
    )
    return np.asarray(np.maximum(t - line.presence.enter_s[jobs] - had[jobs], 0.0))


def _nodes(line: Timeline, used: Floats, t: float) -> pd.DataFrame:
    # Demands of cores are sums of parts, so the last bits of a sum may be off.
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
    """Return the first instant before `until_s` at which the holdings of two runs differ; NaN =
    there is none.

    Notes
    -----
    Compared are segments and placements that begin before that instant; of segments that reach it,
    not how they end. The overflow node of recorded schedules, numbered behind all others, is the
    same node on clusters of different size.
    """
    differ = [
        _first(*(part(result, until_s) for result in (one, other))) for part in (_segments, _places)
    ]
    known = [at_s for at_s in differ if not np.isnan(at_s)]
    return min(known, default=nan)


def _segments(result: RunResult, until_s: float) -> pd.DataFrame:
    early = result.segments.loc[result.segments["t0"] < until_s, _SEGMENTS]
    early = early.assign(ended=early["ended"].astype(str))
    reaches = early["t1"] >= until_s
    return early.assign(
        t1=early["t1"].mask(reaches),
        paused_s=early["paused_s"].mask(reaches),
        ended=early["ended"].mask(reaches, ""),
    )


def _places(result: RunResult, until_s: float) -> pd.DataFrame:
    held = result.segments.loc[result.segments["t0"] < until_s, ["job", "t0"]]
    found = result.placements.merge(held, left_on="segment", right_index=True)[_PLACES]
    return (
        found
        if result.overflow is None
        else found.assign(node=found["node"].where(found["node"] != result.overflow, -1))
    )


def _first(*frames: pd.DataFrame) -> float:
    """Return the earliest `t0` at which two frames do not have the same rows; NaN = they have."""
    columns = ["t0", *(name for name in frames[0].columns if name != "t0")]
    one, other = (frame[columns].sort_values(columns, ignore_index=True) for frame in frames)
    both = min(len(one), len(other))
    same = (
        ((one[:both] == other[:both]) | (one[:both].isna() & other[:both].isna()))
        .all(axis=1)
        .to_numpy()
    )
    at = int(np.argmin(same)) if not same.all() else both
    return min(
        [float(frame["t0"].iloc[at]) for frame in (one, other) if at < len(frame)], default=nan
    )
