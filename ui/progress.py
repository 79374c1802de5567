"""Text on runs in progress: policy, share done, time left, place in the queue."""

from __future__ import annotations

from time import monotonic
from typing import Final

from sim.engine.simulator import Progress
from trainyard.runs import estimate
from trainyard.runs.queue import Submission
from trainyard.study.scenario import Scenario
from ui import state, words

_LONG_S: Final = 2 * 86_400
"""Simulated time above which progress is written in days."""


def policy_title(scenario: Scenario) -> str:
    """Return the title of a scenario's policy, with its seed if the study has repeats."""
    session = state.session()
    study = session.target_study or session.study
    names = dict(zip(study.allocators, study.titles, strict=True))
    name = names.get(scenario.allocator, scenario.allocator.name)
    return name if study.repeats == 1 else f"{name}, seed {scenario.seed}"


def describe_briefly(session: state.Session) -> str:
    """Return the progress of a session in few words: its slowest run and time left.

    With repeats the number of finished runs; before any run has started, the place in the queue.
    """
    if session.target_study is not None and session.target_study.repeats > 1:
        return f"{len(session.jobs) - len(session.live_jobs):,} of {len(session.jobs):,} runs"
    started = [job for job in session.live_jobs if not job.place]
    if not started:
        return f"{_ordinal(min(job.place for job in session.live_jobs))} in the queue"
    job = min(started, key=lambda job: job.share)
    if job.progress is None:
        return f"{policy_title(job.scenario)} starting"
    left_s = _estimate_left_s(session, job)
    left = f" · {words.time(max(left_s, 1.0))} left" if left_s is not None else ""
    return f"{policy_title(job.scenario)} {100 * job.share:.0f} %{left}"


def describe_run(session: state.Session, job: Submission) -> str:
    """Return a run's policy, share done, simulated time and time left, or queue place."""
    title, report = policy_title(job.scenario), job.progress
    if job.place:
        return f"{title}: {describe_queue_place(job.place, job.starts_in_s)}"
    if report is None:
        return f"{title}: starting"
    left_s = _estimate_left_s(session, job)
    left = f", about {words.time(max(left_s, 1.0))} left" if left_s is not None else ""
    return f"{title}: {100 * job.share:.0f} %, {describe_simulated_time(report)}{left}"


def describe_queue_place(place: int, starts_s: float) -> str:
    """Return "2nd in the queue" with the estimated wait in seconds as text."""
    about = f", starts in about {words.time(starts_s)}" if starts_s >= 1 else ""
    return f"{_ordinal(place)} in the queue{about}"


def describe_simulated_time(report: Progress) -> str:
    """Return the simulated time reached and the span of the trace as text."""
    if report.now_s > report.span_s:
        return f"{words.time(report.now_s)}, all jobs submitted"
    if report.span_s >= _LONG_S:
        return f"day {report.now_s / 86_400:.1f} of {report.span_s / 86_400:.1f}"
    return f"{words.time(report.now_s)} of {words.time(report.span_s)}"


def _estimate_left_s(session: state.Session, job: Submission) -> float | None:
    """Return the estimated seconds left of a run, or None; keep its first report."""
    latest = (monotonic(), job.share)
    return estimate.seconds_left(session.first_reports.setdefault(job.key, latest), latest)


def _ordinal(place: int) -> str:
    """Return an ordinal number: 1st, 2nd, 3rd, 4th."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{place:,}{'th' if place % 100 in (11, 12, 13) else ends.get(place % 10, 'th')}"
