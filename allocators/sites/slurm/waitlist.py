"""Ineligible jobs: before their begin time, or with unmet dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from allocators.sites.slurm.state import SlurmJob

_TYPES: Final = ("afterany", "afterok", "aftercorr", "after", "afternotok", "singleton")
_PART: Final = re.compile(
    r"([a-z]+)((?::\d+(?:_\d+|_\*)?(?:\+\d+)?)*)(?:\([a-z]+\))?", re.IGNORECASE
)
NEVER_MET: Final = "dependency that can never be met: refused"


class Condition(NamedTuple):
    """A dependency: its type, the jobs, and the delay in seconds after a start ("after")."""

    kind: str
    jobs: tuple[tuple[int, float], ...] = ()


class IneligibleJob(NamedTuple):
    """A job before its begin time or with unmet dependencies.

    With `any_of` one met condition is enough, else all must be met.
    """

    entries: tuple[SlurmJob, ...]
    begin_s: float
    conditions: tuple[Condition, ...] = ()
    any_of: bool = False
    name: str = ""


class UnsatisfiableError(ValueError):
    """A dependency that can never be met; its text completes a sentence."""


def conditions_of(
    text: str, ids: Mapping[str, Sequence[int]], own: str = ""
) -> tuple[tuple[Condition, ...], bool]:
    """Parse a dependency; return its conditions, and True if one of them is enough.

    Parameters
    ----------
    text : str
        The dependency of the submission.
    ids : mapping
        Jobs of each id; also of the ids of arrays and array tasks.
    own : str
        Id of the dependent job: ``aftercorr`` waits for the task with the same number.

    Raises
    ------
    UnsatisfiableError
        If it cannot be read, or waits for the failure of a job outside the trace.

    Notes
    -----
    Jobs outside the trace count as completed before it.
    """
    conditions = []
    for part in re.split(r"[,?]", text.strip()):
        match = _PART.fullmatch(part.strip())
        kind = match[1].lower() if match else ""
        if match is None or kind not in _TYPES:
            raise UnsatisfiableError(f"dependency {part:.40}, which cannot be read: refused")
        jobs: list[tuple[int, float]] = []
        for name in filter(None, match[2].split(":")):
            number, _, minutes = name.partition("+")
            number = number.removesuffix("_*")
            if kind == "aftercorr" and "_" in own:
                task = f"{number}_{own.partition('_')[2]}"
                number = task if task in ids else number
            matching_jobs = ids.get(number, ids.get(number.partition("_")[0], ()))
            if kind == "afternotok" and not matching_jobs:
                raise UnsatisfiableError(
                    "dependency on the failure of a job that is not known: refused"
                )
            jobs += [(job, 60.0 * float(minutes or 0)) for job in matching_jobs]
        conditions.append(Condition(kind, tuple(jobs)))
    return tuple(conditions), "?" in text


class Waitlist:
    """Jobs that are not eligible yet, with the state of the jobs they depend on."""

    def __init__(self) -> None:
        self.held: dict[int, IneligibleJob] = {}
        self._started: dict[int, float] = {}
        self._ended: dict[int, bool] = {}
        """Job -> True if it completed, False if it failed."""
        self._named: dict[tuple[str, str], set[int]] = {}
        self._name_of: dict[int, tuple[str, str]] = {}

    def add_submission(self, job: int, user: str, name: str) -> None:
        """Register a job by user and name, for singleton dependencies."""
        self._named.setdefault((user, name), set()).add(job)
        self._name_of[job] = user, name

    def record_start(self, job: int, now_s: float) -> None:
        """Record the first start of a job; later starts are ignored."""
        self._started.setdefault(job, now_s)

    def record_end(self, job: int, *, well: bool = True) -> None:
        """Record the end of a job, and drop its name; `well` is False if it failed."""
        self._ended[job] = well
        if job in self._name_of:
            self._named[self._name_of.pop(job)].discard(job)

    def pop_unsatisfiable(self) -> list[int]:
        """Remove and return the held jobs with dependencies that can never be met.

        They end as failed, so jobs that depend on them may follow.
        """
        unsatisfiable: list[int] = []
        while unmet := [job for job, one in self.held.items() if self.is_unsatisfiable(one)]:
            for job in unmet:
                del self.held[job]
                self.record_end(job, well=False)
            unsatisfiable += unmet
        return unsatisfiable

    def is_unsatisfiable(self, one: IneligibleJob) -> bool:
        """Return True if the dependencies of an ineligible job can never be met."""
        unmet = [self._cannot_be_met(condition) for condition in one.conditions]
        return bool(unmet) and (all(unmet) if one.any_of else any(unmet))

    def _cannot_be_met(self, condition: Condition) -> bool:
        """Return True if a job of a condition ended in the wrong state.

        A failure for ``afterok`` and ``aftercorr``, a success for ``afternotok``.
        """
        wrong = {"afterok": False, "aftercorr": False, "afternotok": True}.get(condition.kind)
        return wrong is not None and any(
            self._ended.get(job, not wrong) is wrong for job, _ in condition.jobs
        )

    def release(self, now_s: float) -> Iterator[tuple[SlurmJob, ...]]:
        """Remove held jobs that are eligible now; yield the entries of each."""
        for job, one in list(self.held.items()):
            if not self.why(now_s, job):
                del self.held[job]
                yield one.entries

    def why(self, now_s: float, job: int) -> str:
        """Return the ``squeue`` reason of an ineligible job; "" if it is eligible."""
        one = self.held[job]
        if one.begin_s > now_s:
            return "BeginTime"
        met = [self._is_met(now_s, one, condition) for condition in one.conditions]
        return "" if (any(met) if one.any_of else all(met)) else "Dependency"

    def wake_s(self, now_s: float) -> float:
        """Return the next time at which the clock makes a job eligible; inf = never.

        A begin time, or a delay after the start of another job.
        """
        due = [one.begin_s for one in self.held.values() if one.begin_s > now_s]
        due += [
            at_s
            for one in self.held.values()
            for condition in one.conditions
            if condition.kind == "after"
            for job, delay_s in condition.jobs
            if (at_s := self._started.get(job, inf) + delay_s) > now_s
        ]
        return min(due, default=inf)

    def _is_met(self, now_s: float, one: IneligibleJob, condition: Condition) -> bool:
        """Return True if a dependency of an ineligible job is met.

        Most types need the end of all its jobs; ``after`` their start and delay; ``singleton`` the
        end of earlier jobs of the user with the same name.
        """
        if condition.kind == "singleton":
            entry = one.entries[0]
            others = self._named.get((entry.user, one.name), set())
            return not any(other < entry.id for other in others)
        if condition.kind == "after":
            return all(
                job in self._ended or self._started.get(job, inf) + delay_s <= now_s
                for job, delay_s in condition.jobs
            )
        return all(job in self._ended for job, _ in condition.jobs)
