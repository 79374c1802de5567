"""Whether two runs of the same jobs are one history up to an instant."""

from __future__ import annotations

from math import nan

import numpy as np
import pandas as pd

from sim.result import RunResult

_SEGMENTS = ["job", "t0", "t1", "gpus", "rate", "paused_s", "batch", "ended"]
_PLACES = ["job", "t0", "gang", "role", "node", "count", "gpus", "cpus", "mem_gb"]


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
