"""The life of one job: its periods of waiting, running and pausing, and its events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from sim.metrics.steps import Floats, Ints
from sim.metrics.timeline import Timeline


class JobPeriod(NamedTuple):
    """A period without changes for a job.

    Parameters
    ----------
    t0, t1 : float, seconds
        Begin and end.
    state : str
        "waiting", "running", or "paused": the job holds resources without progress, because it
        starts, restarts or moves.
    gpus : int
        GPUs held.
    where : tuple of (int, int, int, float)
        Node, role (0 worker, 1 server), replicas and cores of each placement.
    batch : int
        Batch size; -1 = none.
    """

    t0: float
    t1: float
    state: str
    gpus: int = 0
    where: tuple[tuple[int, int, int, float], ...] = ()
    batch: int = -1


class JobEvent(NamedTuple):
    """An event in the life of a job.

    Parameters
    ----------
    t_s : float, seconds
        Time of the event.
    what : str
        "submitted", "started", "resized", "moved", "tuned" (another batch size), "preempted",
        "evicted", "relaunched" (one replica), and the end: "finished" or one of
        `sim.result.OUTCOMES`.
    cause : str
        Cause, if recorded: a name of `sim.result.CAUSES`.
    role : str
        The role that was hit, a name of `sim.result.ROLES`.
    before, after : JobPeriod or None
        Period before and after the event.
    """

    t_s: float
    what: str
    cause: str = ""
    role: str = ""
    before: JobPeriod | None = None
    after: JobPeriod | None = None


def job_periods(line: Timeline, job: int) -> tuple[JobPeriod, ...]:
    """Return the periods of one job from submission until it left, without gaps.

    When the job is not in the system only periods with a grant appear.

    Notes
    -----
    Periods are cut where a segment of the job begins, ends, or ends its pause. The amounts of
    simultaneous segments are added, and the job runs if one of them makes progress. Neighboring
    periods with equal state, placement and batch size are joined.
    """
    segments = np.flatnonzero((line.owner == job) & (line.t1 > line.t0))
    enter, leave = (float(times[job]) for times in line.presence)
    placements = _placements(line, segments)
    cuts = np.unique(
        np.concatenate(
            (line.t0[segments], line.resume[segments], line.t1[segments], [enter, leave])
        )
    )
    periods: list[JobPeriod] = []
    starts, ends = line.t0[segments], line.t1[segments]
    for t0, t1 in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        covering = _covering(starts, ends, t0)
        period = _period(
            line, t0, t1, segments[covering], [placements[index] for index in covering.tolist()]
        )
        if periods and period[2:] == periods[-1][2:]:
            periods[-1] = periods[-1]._replace(t1=t1)
        else:
            periods.append(period)
    return tuple(periods)


def job_events(line: Timeline, job: int, periods: tuple[JobPeriod, ...]) -> tuple[JobEvent, ...]:
    """Return the events of one job from submission to its end, given its `job_periods`."""
    jobs = line.result.jobs
    hits = _failure_events(line, job)
    evicted_s = {hit.t_s for hit in hits if hit.what == "evicted"}
    events = [
        JobEvent(float(jobs["submit_s"].iloc[job]), "submitted"),
        *hits,
        *_grant_events(periods, evicted_s),
    ]
    events.sort(key=lambda one: one.t_s)
    outcome, finish_s = str(jobs["outcome"].iloc[job]), float(jobs["finish_s"].iloc[job])
    last_s = max(events[-1].t_s, float(line.presence.leave_s[job]))
    ending = JobEvent(finish_s, "finished") if outcome == "completed" else JobEvent(last_s, outcome)
    return (*events, ending)


def _placements(line: Timeline, segments: Ints) -> list[tuple[tuple[int, int, int, float], ...]]:
    """Return the placements of each given segment as (node, role, replicas, cores)."""
    low, high = (
        np.searchsorted(line.segment, segments, "left"),
        np.searchsorted(line.segment, segments, "right"),
    )
    frame = line.result.placements
    columns = [frame[name].to_numpy() for name in ("node", "role", "count", "cpus")]
    return [
        tuple(zip(*(column[a:b].tolist() for column in columns), strict=True))
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]


def _covering(begins: Floats, ends: Floats, t: float) -> Ints:
    """Return the indices of the intervals that contain an instant."""
    return np.flatnonzero((begins <= t) & (t < ends))


def _period(
    line: Timeline,
    t0: float,
    t1: float,
    segments: Ints,
    rows: list[tuple[tuple[int, int, int, float], ...]],
) -> JobPeriod:
    """Return the period of a job with the given simultaneous segments; waiting without any."""
    if not len(segments):
        return JobPeriod(t0, t1, "waiting")
    frame = line.result.segments
    state = "running" if (line.resume[segments] <= t0).any() else "paused"
    gpus = int(frame["gpus"].to_numpy()[segments].sum())
    return JobPeriod(
        t0,
        t1,
        state,
        gpus,
        tuple(row for part in rows for row in part),
        int(frame["batch"].to_numpy()[segments[-1]]),
    )


def _grant_events(
    periods: tuple[JobPeriod, ...], evicted_s: Collection[float]
) -> Iterator[JobEvent]:
    """Yield starts, stops and changes between neighboring periods, except evictions."""
    for before, after in zip((None, *periods), periods, strict=False):
        held, holds = before is not None and before.state != "waiting", after.state != "waiting"
        if holds and (not held or after.t0 in evicted_s):
            yield JobEvent(after.t0, "started", after=after)
        elif held and not holds and after.t0 not in evicted_s:
            yield JobEvent(after.t0, "preempted", before=before)
        elif holds and before is not None and (change := _difference(before, after)):
            yield JobEvent(after.t0, change, before=before, after=after)


def _difference(before: JobPeriod, after: JobPeriod) -> str:
    """Return the kind of change between two periods: resized, moved, tuned or ""."""
    if before.gpus != after.gpus or sum(row[2] for row in before.where) != sum(
        row[2] for row in after.where
    ):
        return "resized"
    if before.where != after.where:
        return "moved"
    return "tuned" if before.batch != after.batch else ""


def _failure_events(line: Timeline, job: int) -> list[JobEvent]:
    """Return the evictions and relaunches of a job."""
    mine = line.result.failures["job"].to_numpy() == job
    if not mine.any():
        return []
    rows = line.result.failures[mine]
    columns = (rows[name].tolist() for name in ("t", "survived", "cause", "role"))
    return [
        JobEvent(t, "relaunched" if survived else "evicted", cause, role)
        for t, survived, cause, role in zip(*columns, strict=True)
    ]
