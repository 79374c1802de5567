"""Text on runs in progress: policy, share done, time left, place in the queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    """Return the progress of a session in few words: its runs done, and the time left.

    Of a single run the share done; before any run has started, the place in the queue.
    """
    live = session.live_jobs
    started = [job for job in live if not job.place]
    if not started:
        place = min((job.place for job in live), default=0)
        return f"{_ordinal(place)} in the queue" if place else "finishing"
    left_s = [_estimate_left_s(session, job) for job in live]
    known_s = [left for left in left_s if left is not None]
    left = f" · {words.time(max(*known_s, 1.0))} left" if len(known_s) == len(live) else ""
    if len(session.jobs) > 1:
        return f"{len(session.jobs) - len(live):,} of {len(session.jobs):,} done{left}"
    if started[0].progress is None:
        return f"{policy_title(started[0].scenario)} starting"
    return f"{policy_title(started[0].scenario)} {100 * started[0].share:.0f} %{left}"


def describe_policy(
    session: state.Session, title: str, jobs: Sequence[Submission]
) -> tuple[str, float | None]:
    """Return the progress of a policy's runs, or how they ended, and the part that is done.

    Returns
    -------
    (str, float or None)
        The part is None if no run is under way or waits.
    """
    failed = next((job for job in jobs if job.state == "failed"), None)
    if failed is not None:
        report = failed.progress
        now_s = failed.details.get("now_s", report.now_s if report is not None else None)
        when = (
            f" at {words.run_time(now_s, state.epoch())}" if isinstance(now_s, int | float) else ""
        )
        return f"{title} stopped{when}: {failed.error}", None
    if any(job.state == "cancelled" for job in jobs):
        reached_s = [session.stopped_s[job.key] for job in jobs if job.key in session.stopped_s]
        when = f" at {words.run_time(max(reached_s), state.epoch())}" if reached_s else ""
        return f"cancelled{when}", None
    live = [job for job in jobs if not job.has_ended]
    if not live:
        # Finished and about to be drawn, or never started.
        return ("done", 1.0) if jobs else ("not run", None)
    done = len(jobs) - len(live)
    share = (done + sum(min(max(job.share, 0.0), 1.0) for job in live)) / len(jobs)
    started = [job for job in live if job.state != "waiting"]
    if not started:
        return _describe_waiting(live), share
    elapsed_s = max(job.elapsed_s for job in started)
    if len(jobs) > 1:
        text = f"{done:,} of {words.plural(len(jobs), 'run')}"
    elif (report := started[0].progress) is None:
        text = "reading the trace"
    else:
        text = f"{report.done:,} of {words.plural(report.jobs, 'job')}"
    parts = [text, f"{words.time(elapsed_s)} so far" if elapsed_s >= 1 else ""]
    left_s = [_estimate_left_s(session, job) for job in live]
    known_s = [left for left in left_s if left is not None]
    if len(known_s) == len(live):
        parts += [f"about {words.time(max(*known_s, 1.0))} left"]
    return " · ".join(part for part in parts if part), share


def _describe_waiting(jobs: Sequence[Submission]) -> str:
    """Return the place of waiting runs in the queue, and how long they take."""
    place = min(job.place for job in jobs)
    takes_s = max(job.seconds for job in jobs)
    about = f"; about {words.time(takes_s)}" if 1 <= takes_s < math.inf else ""
    return f"{'next' if place <= 1 else f'{_ordinal(place)} in the queue'}{about}"


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
    """Return the estimated seconds until a run ends, or None; keep its first report."""
    if job.place:
        left_s = job.starts_in_s + job.seconds
        return left_s if left_s < math.inf else None
    if job.progress is None:
        return None
    latest = (monotonic(), job.share)
    return estimate.seconds_left(session.first_reports.setdefault(job.key, latest), latest)


def _ordinal(place: int) -> str:
    """Return an ordinal number: 1st, 2nd, 3rd, 4th."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{place:,}{'th' if place % 100 in (11, 12, 13) else ends.get(place % 10, 'th')}"
