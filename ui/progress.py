"""Runs under way in words: which policy, how far, how long still, or its place in the queue."""

from __future__ import annotations

from time import monotonic
from typing import Final

from sim.engine.simulator import Progress
from trainyard.runs import estimate
from trainyard.runs.queue import Submission
from trainyard.study.scenario import Scenario
from ui import state, words

_LONG_S: Final = 2 * 86_400
"""From here on simulated time is told in days."""


def title_of(scenario: Scenario) -> str:
    """Return the title of a scenario's policy in the study being run, with its seed where runs are
    repeated.
    """
    session = state.session()
    study = session.target or session.study
    names = dict(zip(study.allocators, study.titles, strict=True))
    name = names.get(scenario.allocator, scenario.allocator.name)
    return name if study.repeats == 1 else f"{name}, seed {scenario.seed}"


def brief(session: state.Session) -> str:
    """Return how far the runs of a session are, in a few words: the least advanced run, how many of
    many are over, or the place in the queue while none has begun.
    """
    if session.target is not None and session.target.repeats > 1:
        return f"{len(session.jobs) - len(session.live):,} of {len(session.jobs):,} runs"
    going = [job for job in session.live if not job.place]
    if not going:
        return f"{_ordinal(min(job.place for job in session.live))} in the queue"
    job = min(going, key=lambda one: one.share)
    if job.progress is None:
        return f"{title_of(job.scenario)} starting"
    left_s = _left_s(session, job)
    left = f" · {words.time(max(left_s, 1.0))} left" if left_s is not None else ""
    return f"{title_of(job.scenario)} {100 * job.share:.0f} %{left}"


def sentence(session: state.Session, job: Submission) -> str:
    """Return how far one run is, with its place in simulated time."""
    title, report = title_of(job.scenario), job.progress
    if job.place:
        return f"{title}: {waiting(job.place, job.starts_in_s)}"
    if report is None:
        return f"{title}: starting"
    left_s = _left_s(session, job)
    left = f", about {words.time(max(left_s, 1.0))} left" if left_s is not None else ""
    return f"{title}: {100 * job.share:.0f} %, {clock(report)}{left}"


def waiting(place: int, starts_s: float) -> str:
    """Return where a run stands in the queue, and when it starts."""
    about = f", starts in about {words.time(starts_s)}" if starts_s >= 1 else ""
    return f"{_ordinal(place)} in the queue{about}"


def clock(report: Progress) -> str:
    """Return how far a run is in simulated time."""
    if report.now_s > report.span_s:
        return f"{words.time(report.now_s)}, all jobs have come"
    if report.span_s >= _LONG_S:
        return f"day {report.now_s / 86_400:.1f} of {report.span_s / 86_400:.1f}"
    return f"{words.time(report.now_s)} of {words.time(report.span_s)}"


def _left_s(session: state.Session, job: Submission) -> float | None:
    now = (monotonic(), job.share)
    return estimate.seconds_left(session.began.setdefault(job.key, now), now)


def _ordinal(place: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{place:,}{'th' if place % 100 in (11, 12, 13) else ends.get(place % 10, 'th')}"
