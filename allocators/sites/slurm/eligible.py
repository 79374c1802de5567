"""Jobs that may not start yet: before their begin time, or before the jobs that they depend on."""

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


class Condition(NamedTuple):
    """One dependency: its kind, the jobs, and seconds to wait after they started ("after")."""

    kind: str
    jobs: tuple[tuple[int, float], ...] = ()


class IneligibleJob(NamedTuple):
    """A job that is not eligible: its entries, not before when, and what it depends on; of a group
    of `conditions` one is enough if `any_of`.
    """

    entries: tuple[SlurmJob, ...]
    begin_s: float
    conditions: tuple[Condition, ...] = ()
    any_of: bool = False
    name: str = ""


class NeverError(ValueError):
    """A dependency that can never be met, in words."""


def conditions_of(
    text: str, ids: Mapping[str, Sequence[int]], own: str = ""
) -> tuple[tuple[Condition, ...], bool]:
    """Return the dependencies that a text names, and whether one of them is enough; jobs that are
    not known ended well before the trace.

    Parameters
    ----------
    text : str
        As the job was submitted with it.
    ids : mapping
        Id, of an array or one of its tasks, too -> the jobs.
    own : str
        Id of the job itself: ``aftercorr`` waits for the task with its number.

    Raises
    ------
    NeverError
        If it cannot be read, or waits for a failure of a job that is not known.
    """
    found = []
    for part in re.split(r"[,?]", text.strip()):
        match = _PART.fullmatch(part.strip())
        kind = match[1].lower() if match else ""
        if match is None or kind not in _TYPES:
            raise NeverError(f"dependency {part:.40}, which cannot be read: refused")
        jobs: list[tuple[int, float]] = []
        for name in filter(None, match[2].split(":")):
            number, _, minutes = name.partition("+")
            number = number.removesuffix("_*")
            if kind == "aftercorr" and "_" in own:
                task = f"{number}_{own.partition('_')[2]}"
                number = task if task in ids else number
            known = ids.get(number, ids.get(number.partition("_")[0], ()))
            if kind == "afternotok" and not known:
                raise NeverError("dependency on the failure of a job that is not known: refused")
            jobs += [(job, 60.0 * float(minutes or 0)) for job in known]
        found.append(Condition(kind, tuple(jobs)))
    return tuple(found), "?" in text


class Waitlist:
    """Jobs that are not eligible yet."""

    def __init__(self) -> None:
        self.held: dict[int, IneligibleJob] = {}
        self._started: dict[int, float] = {}
        self._ended: dict[int, bool] = {}
        """Job -> whether it ended well."""
        self._named: dict[tuple[str, str], set[int]] = {}
        self._name_of: dict[int, tuple[str, str]] = {}

    def submitted(self, job: int, user: str, name: str) -> None:
        """Note a job, for those that wait for all others of its name."""
        self._named.setdefault((user, name), set()).add(job)
        self._name_of[job] = user, name

    def started(self, job: int, now_s: float) -> None:
        """Note a start."""
        self._started.setdefault(job, now_s)

    def ended(self, job: int, *, well: bool = True) -> None:
        """Note an end."""
        self._ended[job] = well
        name = self._name_of.pop(job, None)
        if name is not None:
            self._named[name].discard(job)

    def never(self) -> list[int]:
        """Return the jobs whose dependencies can no longer be met, and drop them."""
        found = []
        for job, one in list(self.held.items()):
            lost = [self._is_lost(condition) for condition in one.conditions]
            if lost and (all(lost) if one.any_of else any(lost)):
                del self.held[job]
                found.append(job)
        return found

    def _is_lost(self, condition: Condition) -> bool:
        wrong = {"afterok": False, "aftercorr": False, "afternotok": True}.get(condition.kind)
        return wrong is not None and any(
            self._ended.get(job, not wrong) is wrong for job, _ in condition.jobs
        )

    def release(self, now_s: float) -> Iterator[tuple[SlurmJob, ...]]:
        """Take out and yield the jobs that are eligible now."""
        for job, one in list(self.held.items()):
            if not self.why(now_s, job):
                del self.held[job]
                yield one.entries

    def why(self, now_s: float, job: int) -> str:
        """Return why a job is not eligible, as ``squeue`` says it; "" = it is."""
        one = self.held[job]
        if one.begin_s > now_s:
            return "BeginTime"
        if not one.conditions:
            return ""
        met = [self._is_met(now_s, one, condition) for condition in one.conditions]
        return "" if (any(met) if one.any_of else all(met)) else "Dependency"

    def wake_s(self, now_s: float) -> float:
        """Return when the clock alone makes a job eligible; inf = never."""
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
