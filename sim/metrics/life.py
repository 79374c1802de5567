"""The life of one job: when it waited, ran and paused, on what; and what happened to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from sim.metrics.steps import Floats, Ints
from sim.metrics.timeline import Timeline


class JobPeriod(NamedTuple):
    """A time in which nothing changed for a job.

    Parameters
    ----------
    t0, t1 : float, seconds
        From when to when.
    state : str
        waiting, running or paused: it holds something but makes no progress: it starts, restarts or
        moves.
    gpus : int
        GPUs held.
    where : tuple of (int, int, int, float)
        Node, role (0 worker, 1 server), replicas and cores of each placement.
    batch : int
        Its batch size; -1 = none.
    """

    t0: float
    t1: float
    state: str
    gpus: int = 0
    where: tuple[tuple[int, int, int, float], ...] = ()
    batch: int = -1


class Happening(NamedTuple):
    """Something that befell a job.

    Parameters
    ----------
    t_s : float, seconds
        When.
    what : str
        "submitted", "started", "resized", "moved", "tuned" (another batch size), "preempted",
        "evicted", "relaunched" (one replica of it), and how it ended: "finished" or one of
        `sim.result.OUTCOMES`.
    cause : str
        Why, where that is recorded: a name of `sim.result.CAUSES`.
    role : str
        The role that was hit, a name of `sim.result.ROLES`.
    before, after : JobPeriod or None
        What it held before and after.
    """

    t_s: float
    what: str
    cause: str = ""
    role: str = ""
    before: JobPeriod | None = None
    after: JobPeriod | None = None


def spells(line: Timeline, job: int) -> tuple[JobPeriod, ...]:
    """Return the times of one job from its submission until it left, without gap: where it is never
    waited for, only what it held.

    Notes
    -----
    Cut where one of its segments begins, ends, or ends its pause; of several segments at once the
    amounts are added, and it runs if one of them makes progress. Neighbours with the same state,
    place and batch size are one.
    """
    at = np.flatnonzero((line.owner == job) & (line.t1 > line.t0))
    enter, leave = (float(times[job]) for times in line.presence)
    rows = _placements(line, at)
    cuts = np.unique(np.concatenate((line.t0[at], line.resume[at], line.t1[at], [enter, leave])))
    made: list[JobPeriod] = []
    begins, ends = line.t0[at], line.t1[at]
    for t0, t1 in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        here = _covering(begins, ends, t0)
        spell = _spell(line, t0, t1, at[here], [rows[place] for place in here.tolist()])
        if made and spell[2:] == made[-1][2:]:
            made[-1] = made[-1]._replace(t1=t1)
        else:
            made.append(spell)
    return tuple(made)


def happenings(line: Timeline, job: int, lived: tuple[JobPeriod, ...]) -> tuple[Happening, ...]:
    """Return what befell one job, in order, from its `spells`."""
    jobs = line.result.jobs
    hits = _hits(line, job)
    evicted_s = {hit.t_s for hit in hits if hit.what == "evicted"}
    found = [
        Happening(float(jobs["submit_s"].iloc[job]), "submitted"),
        *hits,
        *_changes(lived, evicted_s),
    ]
    found.sort(key=lambda one: one.t_s)
    outcome, finish_s = str(jobs["outcome"].iloc[job]), float(jobs["finish_s"].iloc[job])
    last_s = max(found[-1].t_s, float(line.presence.leave_s[job]))
    ended = (
        Happening(finish_s, "finished") if outcome == "completed" else Happening(last_s, outcome)
    )
    return (*found, ended)


def _placements(line: Timeline, segments: Ints) -> list[tuple[tuple[int, int, int, float], ...]]:
    """Return node, role, replicas and cores of each placement of each of these segments, which
    stand in order.
    """
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
    return np.flatnonzero((begins <= t) & (t < ends))


def _spell(
    line: Timeline,
    t0: float,
    t1: float,
    segments: Ints,
    rows: list[tuple[tuple[int, int, int, float], ...]],
) -> JobPeriod:
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


def _changes(lived: tuple[JobPeriod, ...], evicted_s: Collection[float]) -> Iterator[Happening]:
    """Yield starts, stops and changes between neighbouring spells; evictions are known already."""
    for before, after in zip((None, *lived), lived, strict=False):
        held, holds = before is not None and before.state != "waiting", after.state != "waiting"
        if holds and (not held or after.t0 in evicted_s):
            yield Happening(after.t0, "started", after=after)
        elif held and not holds and after.t0 not in evicted_s:
            yield Happening(after.t0, "preempted", before=before)
        elif holds and before is not None and (what := _difference(before, after)):
            yield Happening(after.t0, what, before=before, after=after)


def _difference(before: JobPeriod, after: JobPeriod) -> str:
    if before.gpus != after.gpus or sum(row[2] for row in before.where) != sum(
        row[2] for row in after.where
    ):
        return "resized"
    if before.where != after.where:
        return "moved"
    return "tuned" if before.batch != after.batch else ""


def _hits(line: Timeline, job: int) -> list[Happening]:
    mine = line.result.failures["job"].to_numpy() == job
    if not mine.any():
        return []
    rows = line.result.failures[mine]
    columns = (rows[name].tolist() for name in ("t", "survived", "cause", "role"))
    return [
        Happening(t, "relaunched" if survived else "evicted", cause, role)
        for t, survived, cause, role in zip(*columns, strict=True)
    ]
