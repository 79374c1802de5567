"""One job under one or two policies, as the drawer shows it: what became of it, its
life as one line per policy, why it waited, and the figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from sim.metrics.life import spells
from trainyard import text
from trainyard.views import markup
from trainyard.views.explored import ExploredRuns
from trainyard.what_if.explore import Book
from trainyard.what_if.sentences import request_text

_SAME_S: Final = 60.0
"""Finishes nearer to each other than that are at the same time."""
_STEPS_S: Final = (
    *(60.0 * step for step in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * step for step in (1, 2, 3, 6, 12)),
    *(86_400.0 * step for step in (1, 2, 5, 7, 14, 30, 60, 120, 365, 1000)),
)
_MOST_MARKS: Final = 4
_NO_END: Final = {
    "failed": "failed",
    "refused": "refused",
    "impossible": "fits no node",
    "unfinished": "not finished",
}
_MOST_PERIODS: Final = 400
"""Of one line; shorter ones of longer lives are joined to the one before."""


@dataclass(frozen=True, eq=False)
class JobUnder:
    """What became of a job under one policy.

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
        """Whether it ever held anything."""
        return any(state != "waiting" for *_, state in self.periods)


@dataclass(frozen=True, eq=False)
class JobStory:
    """One job under the policies that are looked at.

    Parameters
    ----------
    title, sentence, submitted : str
        Of the drawer: the job; what the policies mean for it; when it was submitted.
    under : tuple of JobUnder
        By policy, the one that is looked at first.
    submit_s, end_s : float, seconds
        From its submission to its last end under any of these policies.
    """

    title: str
    sentence: str
    submitted: str
    under: tuple[JobUnder, ...]
    submit_s: float
    end_s: float
    clock: text.RunClock


def story(explored: ExploredRuns, job: int) -> JobStory:
    """Return what became of a job, a row of the trace."""
    book = explored.book
    under = tuple(_under(title, one, job) for title, one in explored.books.items())
    submit_s = float(book.result.jobs["submit_s"].iloc[job])
    ends = [one.periods[-1][1] for one in under if one.periods]
    user = str(book.trace.texts("user")[job])
    parts = [f"Job {book.trace.frame['job_id'].iloc[job]}", user, request_text(book.trace, job)]
    return JobStory(
        title=" · ".join(part for part in parts if part),
        sentence=_sentence(under),
        submitted=f"submitted {book.clock.at(submit_s)}",
        under=under,
        submit_s=submit_s,
        end_s=max([submit_s, *ends]),
        clock=book.clock,
    )


def window(submit_s: float, end_s: float) -> tuple[float, float]:
    """Return the part of the run in which a job lived, with a tenth of it on either side."""
    margin_s = 0.1 * max(end_s - submit_s, 60.0)
    return max(submit_s - margin_s, 0.0), end_s + margin_s


def lines(shown: JobStory, colours: Mapping[str, str], *, dark: bool = False) -> str:
    """Return the lives of a job as HTML, one line per policy on a common scale: solid where it
    ran, pale where it waited or was stopped, hatched where it restarted.
    """
    span_s = max(shown.end_s - shown.submit_s, 1.0)
    step_s = next((step for step in _STEPS_S if span_s / step <= _MOST_MARKS), _STEPS_S[-1])
    marks = [step_s * at for at in range(int(span_s / step_s) + 1)]
    rows = "".join(
        f'<div class="ty-life-name">{markup.text(one.title, 40)}</div>'
        f'<div class="ty-life" style="color:{colours[one.title]}" role="img"'
        f' aria-label="{markup.text(_alt(one))}">{_bars(one, shown.submit_s, span_s)}</div>'
        for one in shown.under
    )
    scale = "".join(
        f'<span style="left:{100 * at / span_s:.2f}%">{text.duration(at) if at else "0"}</span>'
        for at in marks
    )
    return _themed(dark) + (
        f'<div class="ty-lives">{rows}<div></div><div class="ty-life-scale">{scale}</div>'
        '<div></div><div class="ty-life-note">after submission · solid: runs · pale: waits or is'
        f" stopped{_hatched(shown)}</div></div></div>"
    )


def table(shown: JobStory, *, dark: bool = False) -> str:
    """Return the figures of a job as an HTML table, one column per policy, the baseline first."""
    columns = shown.under[::-1]
    rows = [
        ("Waited to start", [_time(one.waited_s) for one in columns]),
        ("Ran", [_time(one.ran_s) for one in columns]),
        ("Restarted, moved", [_time(one.paused_s) for one in columns]),
        ("Stopped in between", [_time(one.stopped_s) for one in columns]),
        ("Times stopped", [f"{one.stops:,}" for one in columns]),
        ("Done", [_done(one, shown.clock) for one in columns]),
    ]
    if not any(one.paused_s for one in columns):
        del rows[2]
    return (
        _themed(dark)
        + markup.table(
            ["", *(one.title for one in columns)],
            [[name, *map(markup.text, cells)] for name, cells in rows],
            "ty-job",
        )
        + "</div>"
    )


def _themed(dark: bool) -> str:
    # A drawer stands outside of what tells the style sheet the theme of the page.
    return f'<div style="color-scheme:{"dark" if dark else "light"}">'


def _under(title: str, book: Book, job: int) -> JobUnder:
    row = book.result.jobs.iloc[job]
    periods = _drawn([(one.t0, one.t1, one.state) for one in spells(book.line, job)])
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


def _drawn(
    periods: Sequence[tuple[float, float, str]],
) -> tuple[tuple[float, float, str], ...]:
    """Join neighbours of one state: where and on how many GPUs is not drawn."""
    made: list[tuple[float, float, str]] = []
    for t0, t1, state in periods:
        if made and made[-1][2] == state and made[-1][1] == t0:
            made[-1] = (made[-1][0], t1, state)
        else:
            made.append((t0, t1, state))
    return tuple(made)


def _sentence(under: Sequence[JobUnder]) -> str:
    first = under[0]
    if len(under) == 1:
        return _ended(first)
    other = under[1]
    if not (math.isfinite(first.finish_s) and math.isfinite(other.finish_s)):
        return "; ".join(_ended(one) for one in under)
    later_s = first.finish_s - other.finish_s
    if abs(later_s) < _SAME_S:
        return f"Done at the same time under {first.title} and {other.title}"
    than = "later" if later_s > 0 else "earlier"
    return f"Done {text.duration(abs(later_s))} {than} under {first.title}"


def _ended(one: JobUnder) -> str:
    if math.isfinite(one.finish_s):
        return f"Done under {one.title}"
    if one.outcome == "impossible":
        return f"Fits no node of this cluster, so it never starts under {one.title}"
    if one.outcome == "refused":
        return f"Refused by {one.title}"
    if one.outcome == "failed":
        return f"Failed under {one.title}"
    started = "Not finished" if one.started else "Never started"
    return f"{started} under {one.title} by the end of the run"


def _bars(one: JobUnder, submit_s: float, span_s: float) -> str:
    made = []
    for t0, t1, state in _fewer(one.periods, span_s):
        left, width = 100 * (t0 - submit_s) / span_s, 100 * (t1 - t0) / span_s
        made.append(f'<i class="{state}" style="left:{left:.3f}%;width:{width:.3f}%"></i>')
    return "".join(made)


def _fewer(
    periods: Sequence[tuple[float, float, str]], span_s: float
) -> Sequence[tuple[float, float, str]]:
    """Leave out what is too short to be seen, of lives with very many periods."""
    if len(periods) <= _MOST_PERIODS:
        return periods
    lengths = np.array([t1 - t0 for t0, t1, _ in periods])
    least = max(float(np.sort(lengths)[-_MOST_PERIODS]), span_s / 2000)
    return [period for period in periods if period[1] - period[0] >= least]


def _alt(one: JobUnder) -> str:
    return (
        f"{one.title}: waited {_time(one.waited_s)}, ran {_time(one.ran_s)}, stopped"
        f" {text.plural(one.stops, 'time')}"
    )


def _hatched(shown: JobStory) -> str:
    return " · hatched: restarts" if any(one.paused_s for one in shown.under) else ""


def _time(seconds: float) -> str:
    return text.duration(seconds) if seconds else text.MISSING


def _done(one: JobUnder, clock: text.RunClock) -> str:
    return clock.at(one.finish_s) if math.isfinite(one.finish_s) else _NO_END[one.outcome]


__all__ = ["JobStory", "JobUnder", "lines", "story", "table", "window"]
