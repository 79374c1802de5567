"""Collection of a policy's statements on waits during a replay of a run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

from sim.contract import Allocator, Decided, JobId, Plan, Reason, View, instant

MAX_STATEMENTS: Final = 50_000
"""Maximum number of statements of one run."""
NOT_ASKED: Final = "the policy made its next decision at {next:instant}, and none before"
_FIRST_S: Final = 60.0
_OFTEN: Final = 64
"""Frequency of questions about single jobs, relative to all jobs."""
_ALL_OF: Final = 8
"""First waits of a job, with questions about each."""


class Statement(NamedTuple):
    """Statement of a policy on a waiting job at one decision.

    Parameters
    ----------
    job : int
        Row of the trace.
    t_s, since_s : float, seconds
        Time of the statement, and start of the wait.
    reason : Reason
        The reason.
    """

    job: JobId
    t_s: float
    since_s: float
    reason: Reason


@dataclass
class Witness:
    """Asks an allocator after its decisions why jobs wait.

    It asks at the start of a wait, and again each time the wait has doubled, or grown by a 64th if
    only some jobs are of interest. For jobs that wait very often it asks only about the first
    waits, then the 16th, 32nd, 64th, and so on.

    Parameters
    ----------
    jobs : collection of int or None
        Rows of the jobs; None = all.
    said : list of Statement
        The recorded statements.
    """

    jobs: Collection[JobId] | None = None
    said: list[Statement] = field(default_factory=list)
    _allocator: Allocator | None = None
    _since_s: dict[JobId, float] = field(default_factory=dict)
    _waits_of: dict[JobId, int] = field(default_factory=dict)
    _due: list[tuple[float, JobId, float]] = field(default_factory=list)

    def bind(self, allocator: Allocator) -> Witness:
        """Set the allocator that is asked, for one run; return self."""
        self._allocator = allocator
        return self

    def __call__(self, view: View, plan: Plan) -> None:
        """Record the statements on one decision."""
        delta, now_s = view.delta, view.now_s
        for job in delta.arrived:
            self._arrives(view, job)
        for eviction in delta.evicted:
            self._waits(eviction.job, now_s)
        for job in (*delta.finished, *plan.refuse):
            self._since_s.pop(job, None)
        for job, grant in plan.changes.items():
            if grant is None:
                self._waits(job, now_s)
            else:
                self._since_s.pop(job, None)
        if self._due and self._due[0][0] <= now_s:
            self._ask(Decided(view, plan.changes, plan.refuse))

    def _arrives(self, view: View, job: JobId) -> None:
        """Note the start of a job's first wait.

        If the policy made no decision since the job's arrival, this is recorded as the reason.
        """
        now_s, since_s = view.now_s, instant(view.one("arrival_s", job))
        if since_s < now_s and (self.jobs is None or job in self.jobs):
            # The policy made no decision since the arrival: its cadence is the reason.
            reason = Reason(NOT_ASKED, {"next": now_s})
            self.said.append(Statement(job, since_s, since_s, reason))
        self._waits(job, now_s)

    def _waits(self, job: JobId, now_s: float) -> None:
        """Note the start of a wait, and schedule a question about it.

        Ignores jobs not asked for. Jobs that wait very often get a question for some waits only.
        """
        if self.jobs is not None and job not in self.jobs:
            return
        self._since_s[job] = now_s
        count = self._waits_of[job] = self._waits_of.get(job, 0) + 1
        if count <= _ALL_OF or not count & (count - 1):
            heappush(self._due, (now_s, job, now_s))

    def _ask(self, decided: Decided) -> None:
        """Ask the allocator about all waits that are due; record reasons, schedule questions.

        Waits that have ended are skipped; recording stops at `MAX_STATEMENTS`.
        """
        due, now_s, allocator = self._due, decided.view.now_s, self._allocator
        assert allocator is not None, "a witness is of one run"
        while due and due[0][0] <= now_s and len(self.said) < MAX_STATEMENTS:
            _, job, since_s = heappop(due)
            if self._since_s.get(job) != since_s:
                continue
            reason = allocator.explain(decided, job)
            if reason is not None:
                self.said.append(Statement(job, now_s, since_s, reason))
            often = 1 if self.jobs is None else _OFTEN
            heappush(due, (now_s + max(now_s - since_s, _FIRST_S) / often, job, since_s))
