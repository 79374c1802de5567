"""One job under one or two policies: outcome, life as a line, waits and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from sim.metrics.job_events import job_periods
from trainyard import formatting
from trainyard.views import markup
from trainyard.views.explored_runs import ExploredRuns
from trainyard.what_if.explore import Book
from trainyard.what_if.sentences import request_text

_SAME_S: Final = 60.0
"""Finishes closer than this count as simultaneous."""
_STEPS_S: Final = (
    *(60.0 * step for step in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * step for step in (1, 2, 3, 6, 12)),
    *(86_400.0 * step for step in (1, 2, 5, 7, 14, 30, 60, 120, 365, 1000)),
)
_MAX_MARKS: Final = 4
_NO_END: Final = {
    "failed": "failed",
    "refused": "refused",
    "impossible": "fits no node",
    "unfinished": "not finished",
}
_MAX_PERIODS: Final = 400
"""Maximum number of periods of a line."""


@dataclass(frozen=True, eq=False)
class JobUnder:
    """Outcome of a job under one policy.

    Parameters
    ----------
    title : str
        The policy.
    periods : tuple of (float, float, str)
        From, to, in seconds, and the state: "waiting", "running" or "paused" (restarting).
    outcome : str
        One of `sim.result.OUTCOMES`.
    finish_s : float, seconds
        NaN unless completed.
    waited_s, ran_s, paused_s, stopped_s : float, seconds
        Before its first start, with progress, restarting, and waiting after its first start.
    stops : int
        How often it was stopped or lost its GPUs.
    """

    title: str
    periods: tuple[tuple[float, float, str], ...]
    outcome: str
    finish_s: float
    waited_s: float
    ran_s: float
    paused_s: float
    stopped_s: float
    stops: int

    @property
    def started(self) -> bool:
        """Whether the job ever held resources."""
        return any(state != "waiting" for *_, state in self.periods)


@dataclass(frozen=True, eq=False)
class JobStory:
    """One job under the compared policies.

    Parameters
    ----------
    title, sentence, submitted : str
        Of the drawer: the job; what the policies mean for it; when it was submitted.
    under : tuple of JobUnder
        By policy, the one that is looked at first.
    submit_s, end_s : float, seconds
        From its submission to its last end under any of these policies.
    clock : RunClock
        Formatter of instants.
    """

    title: str
    sentence: str
    submitted: str
    under: tuple[JobUnder, ...]
    submit_s: float
    end_s: float
    clock: formatting.RunClock


def story(explored: ExploredRuns, job: int) -> JobStory:
    """Return one job under the explored policies: its outcomes, sentence and time range.

    `job` = row of the trace.
    """
    book = explored.book
    under = tuple(_job_under(title, one, job) for title, one in explored.books.items())
    submit_s = float(book.result.jobs["submit_s"].iloc[job])
    ends = [one.periods[-1][1] for one in under if one.periods]
    user = str(book.trace.texts("user")[job])
    clock = replace(book.clock, seconds=True)  # whole minutes would not add up
    parts = [f"Job {book.trace.frame['job_id'].iloc[job]}", user, request_text(book.trace, job)]
    return JobStory(
        title=" · ".join(part for part in parts if part),
        sentence=_sentence(under),
        submitted=f"submitted {clock.format(submit_s)}",
        under=under,
        submit_s=submit_s,
        end_s=max([submit_s, *ends]),
        clock=clock,
    )


def window(submit_s: float, end_s: float) -> tuple[float, float]:
    """Return (start, end) around a job's life, with a margin of a tenth; start is at least 0."""
    margin_s = 0.1 * max(end_s - submit_s, 60.0)
    return max(submit_s - margin_s, 0.0), end_s + margin_s


def life_lines(shown: JobStory, colours: Mapping[str, str], *, dark: bool = False) -> str:
    """Return a job's life as HTML, one line per policy on a common scale.

    Solid: running; pale: waiting or stopped; hatched: restarting.
    """
    span_s = max(shown.end_s - shown.submit_s, 1.0)
    step_s = next((step for step in _STEPS_S if span_s / step <= _MAX_MARKS), _STEPS_S[-1])
    marks = [step_s * at for at in range(int(span_s / step_s) + 1)]
    rows = "".join(
        f'<div class="ty-life-name">{markup.text(one.title, 40)}</div>'
        f'<div class="ty-life" style="color:{colours[one.title]}" role="img"'
        f' aria-label="{markup.text(_alt(one))}">{_bars(one, shown.submit_s, span_s)}</div>'
        for one in shown.under
    )
    scale = "".join(
        f'<span style="left:{100 * at / span_s:.2f}%">'
        f"{formatting.duration(at) if at else '0'}</span>"
        for at in marks
    )
    return _theme_tag(dark) + (
        f'<div class="ty-lives">{rows}<div></div><div class="ty-life-scale">{scale}</div>'
        '<div></div><div class="ty-life-note">after submission · solid: runs · pale: waits or is'
        f" stopped{_hatching_note(shown)}</div></div></div>"
    )


def table(shown: JobStory, *, dark: bool = False) -> str:
    """Return an HTML table of a job, a column per policy, the policy looked at last.

    Rows: wait before the start, run time, restarts if any, later waits, number of interruptions,
    and when it was done or why not.
    """
    columns = shown.under[::-1]
    rows = [
        ("Waited to start", [_time(one.waited_s) for one in columns]),
        ("Ran", [_time(one.ran_s) for one in columns]),
        ("Restarted, moved", [_time(one.paused_s) for one in columns]),
        ("Waited again", [_time(one.stopped_s) for one in columns]),
        ("Interruptions", [f"{one.stops:,}" for one in columns]),
        ("Completed", [_done(one, shown.clock) for one in columns]),
    ]
    if not any(one.paused_s for one in columns):
        del rows[2]
    return (
        _theme_tag(dark)
        + markup.table(
            ["", *(one.title for one in columns)],
            [[name, *map(markup.text, cells)] for name, cells in rows],
            "ty-job",
        )
        + "</div>"
    )


def _theme_tag(dark: bool) -> str:
    """Return the opening tag that sets the theme."""
    # A drawer lies outside the element that sets the theme of the page.
    return f'<div style="color-scheme:{"dark" if dark else "light"}">'


def _job_under(title: str, book: Book, job: int) -> JobUnder:
    """Return the outcome of a job under one policy, with its times summed by state."""
    row = book.result.jobs.iloc[job]
    periods = _join_periods([(one.t0, one.t1, one.state) for one in job_periods(book.line, job)])
    first = next((t0 for t0, _, state in periods if state != "waiting"), math.inf)

    def total(state: str, begin: float = -math.inf, end: float = math.inf) -> float:
        return sum(t1 - t0 for t0, t1, one in periods if one == state and begin <= t0 < end)

    return JobUnder(
        title=title,
        periods=periods,
        outcome=str(row["outcome"]),
        finish_s=float(row["finish_s"]) if row["outcome"] == "completed" else math.nan,
        waited_s=total("waiting", end=first),
        ran_s=total("running"),
        paused_s=total("paused"),
        stopped_s=total("waiting", begin=first),
        stops=sum(
            after[2] == "waiting" and before[2] != "waiting" for before, after in pairwise(periods)
        ),
    )


def _join_periods(
    periods: Sequence[tuple[float, float, str]],
) -> tuple[tuple[float, float, str], ...]:
    """Return the periods with adjacent ones of the same state joined."""
    joined: list[tuple[float, float, str]] = []
    for t0, t1, state in periods:
        if joined and joined[-1][2] == state and joined[-1][1] == t0:
            joined[-1] = (joined[-1][0], t1, state)
        else:
            joined.append((t0, t1, state))
    return tuple(joined)


def _sentence(under: Sequence[JobUnder]) -> str:
    """Return how the job ends, or how much earlier or later under the first of two policies."""
    first = under[0]
    if len(under) == 1:
        return _outcome_clause(first)
    other = under[1]
    if not (math.isfinite(first.finish_s) and math.isfinite(other.finish_s)):
        return "; ".join(_outcome_clause(one) for one in under)
    later_s = first.finish_s - other.finish_s
    if abs(later_s) < _SAME_S:
        return f"Completed at the same time under {first.title} and {other.title}"
    than = "later" if later_s > 0 else "earlier"
    return f"Completed {formatting.duration(abs(later_s))} {than} under {first.title}"


def _outcome_clause(one: JobUnder) -> str:
    """Return the clause on how a job ended under a policy, such as "Refused by FIFO"."""
    if math.isfinite(one.finish_s):
        return f"Completed under {one.title}"
    if one.outcome == "impossible":
        return f"Fits no node of this cluster, so it never starts under {one.title}"
    if one.outcome == "refused":
        return f"Refused by {one.title}"
    if one.outcome == "failed":
        return f"Failed under {one.title}"
    started = "Not finished" if one.started else "Never started"
    return f"{started} under {one.title} by the end of the run"


def _bars(one: JobUnder, submit_s: float, span_s: float) -> str:
    """Return the periods of a life as HTML bars, placed in percent of `span_s`."""
    parts = []
    for t0, t1, state in _visible_periods(one.periods, span_s):
        left, width = 100 * (t0 - submit_s) / span_s, 100 * (t1 - t0) / span_s
        parts.append(f'<i class="{state}" style="left:{left:.3f}%;width:{width:.3f}%"></i>')
    return "".join(parts)


def _visible_periods(
    periods: Sequence[tuple[float, float, str]], span_s: float
) -> Sequence[tuple[float, float, str]]:
    """Return the periods; of more than 400 only the longest, none below 1/2000 of `span_s`."""
    if len(periods) <= _MAX_PERIODS:
        return periods
    lengths = np.array([t1 - t0 for t0, t1, _ in periods])
    least = max(float(np.sort(lengths)[-_MAX_PERIODS]), span_s / 2000)
    return [period for period in periods if period[1] - period[0] >= least]


def _alt(one: JobUnder) -> str:
    """Return the description of a life for screen readers."""
    return (
        f"{one.title}: waited {_time(one.waited_s)}, ran {_time(one.ran_s)}, stopped"
        f" {formatting.plural(one.stops, 'time')}"
    )


def _hatching_note(shown: JobStory) -> str:
    """Return the legend of hatching; "" if nothing is hatched."""
    return " · hatched: restarts" if any(one.paused_s for one in shown.under) else ""


def _time(seconds: float) -> str:
    return formatting.duration(seconds) if seconds else formatting.MISSING


def _done(one: JobUnder, clock: formatting.RunClock) -> str:
    return clock.format(one.finish_s) if math.isfinite(one.finish_s) else _NO_END[one.outcome]


__all__ = ["JobStory", "JobUnder", "life_lines", "story", "table", "window"]
