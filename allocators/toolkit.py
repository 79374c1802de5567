"""The public kit of allocators: queues that keep themselves up to date, rounds, and grants in an
order of priority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from allocators.placement import Denials, Patience, Placer
from sim.contract import (
    Delta,
    Demand,
    Gang,
    Grant,
    Ints,
    JobId,
    Part,
    QueueRule,
    View,
    instant,
    param,
)

USUAL_ROUND_S: Final = 360.0


def round_param() -> Any:
    """Declare the parameter ``round_s``."""
    return param(
        USUAL_ROUND_S,
        title="Length of a round",
        unit="s",
        low=10,
        high=86_400,
        help="Length of a round: jobs start, stop and move only between rounds.",
    )


class Aside:
    """Jobs without GPUs: outside the rounds, started in order of id as soon as they have room; jobs
    without room are skipped.
    """

    def __init__(self, place: Placer) -> None:
        self._place = place
        self._lanes: dict[
            int, list[JobId]
        ] = {}  # by demand: where the first has no room, no other has
        self._waiting: set[JobId] = set()
        self._all: set[JobId] = set()
        self._begun = False

    def __contains__(self, job: JobId) -> bool:
        return job in self._all

    def feed(self, view: View) -> None:
        """Take in what happened; at the first call also what runs already."""
        delta = view.delta
        for job in delta.arrived:
            if not view.demand(job).gpus:
                self._all.add(job)
                self._wait(view, job)
        if not self._begun:
            self._begun = True
            self._all.update([job for job in view.grants if not view.demand(job).gpus])
        if self._all:
            for eviction in delta.evicted:
                if eviction.job in self._all:
                    self._wait(view, eviction.job)
            self._all.difference_update(delta.finished)
            self._waiting.difference_update(delta.finished)

    def _wait(self, view: View, job: JobId) -> None:
        self._waiting.add(job)
        heappush(self._lanes.setdefault(view.demand(job).key, []), job)

    def start(self, view: View) -> dict[JobId, Grant | None]:
        """Start what has room."""
        started: dict[JobId, Grant | None] = {}
        heads = [(queue[0], lane) for lane, queue in self._lanes.items()] if self._waiting else []
        heapify(heads)
        while heads:
            job, lane = heappop(heads)
            queue = self._lanes[lane]
            if job in self._waiting:
                grant = self._place(view, view.demand(job))
                if grant is None:
                    continue
                started[job] = grant
                self._waiting.remove(job)
            heappop(queue)
            if queue:
                heappush(heads, (queue[0], lane))
            else:
                del self._lanes[lane]
        return started

    @property
    def running(self) -> int:
        """Number of running jobs, as far as is known."""
        return len(self._all) - len(self._waiting)

    def others(self, ids: Ints) -> Ints:
        """Return the jobs with GPUs among these."""
        return ids[~np.isin(ids, list(self._all))] if self._all else ids

    def only(self, jobs: Iterable[JobId]) -> bool:
        """Tell whether all of these jobs have no GPUs."""
        return all(job in self._all for job in jobs)


class RoundClock:
    """When rounds begin: one after the other as long as a job with GPUs runs, else with the next
    news.

    Parameters
    ----------
    round_s : float, seconds
        Length of a round.

    Attributes
    ----------
    began_s, ends_s : float, seconds
        Begin and end of the round that goes on; inf = none does, before the first -inf.
    idle_s : float, seconds
        Time before the round in which none went on; 0 before the first.
    """

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self.began_s, self.ends_s, self.idle_s = 0.0, -inf, 0.0
        self._over_s: float | None = None

    def is_due(self, view: View, aside: Aside) -> bool:
        """Tell whether a round begins now."""
        return view.now_s >= self.ends_s or aside.only(view.grants)

    def begin(self, now_s: float, *, goes_on: bool) -> None:
        """Begin a round; `goes_on` = another follows it."""
        self.idle_s = 0.0 if self._over_s is None else now_s - self._over_s
        self._over_s = None if goes_on else now_s
        self.began_s, self.ends_s = now_s, instant(now_s + self._round_s) if goes_on else inf


Wants = Callable[[JobId], Sequence[Demand]]
"""What a job would take, the best first; for all but the first nobody else is stopped."""


def settle(
    view: View, place: Placer, order: Sequence[JobId], wants: Wants
) -> dict[JobId, Grant | None]:
    """Return the changes after which the best jobs run.

    Parameters
    ----------
    view : View
        The instant.
    place : Placer
        Chooses nodes.
    order : sequence of int
        All jobs that may run, best first; running jobs that are not named are stopped if they may
        be.
    wants : callable
        Job -> demands.

    Notes
    -----
    A running job that holds what it wants stays where it is. One that wants another size is placed
    anew and keeps what it has where that fails. Otherwise a job goes where there is room; if there
    is none for its first wish, worse jobs are stopped, the worst first, until there is, or none is
    if that would not help. A job stopped so is looked at again at its own place in the order, its
    old nodes first.
    """
    return _Walk(view, place, order, wants).changes


class _Walk:
    def __init__(self, view: View, place: Placer, order: Sequence[JobId], wants: Wants) -> None:
        self._view, self._place, self._wants = view, place, wants
        self.changes: dict[JobId, Grant | None] = {}
        named = set(order)
        self._holding: dict[JobId, Grant] = {}
        for job, grant in view.grants.items():
            if job in named or not view.one("preemptible", job):
                self._holding[job] = grant
            else:
                view.room.give(grant)
                self.changes[job] = None
        self._worst = deque(
            job for job in order if job in self._holding and view.one("preemptible", job)
        )
        self._worse_gpus = sum([_gpus(self._holding[job]) for job in self._worst])
        for job in order:
            if self._worst and self._worst[0] == job:
                self._worst.popleft()
                self._worse_gpus -= _gpus(self._holding[job])
            if job in self._holding:
                self._stay(job, self._holding[job])
            else:
                self._come(job)

    def _stay(self, job: JobId, grant: Grant) -> None:
        first = self._wants(job)[0]
        if matches(grant, first) or not self._view.one("preemptible", job):
            return
        room = self._view.room
        room.give(grant)
        found = self._place(self._view, first)
        if found is None:
            room.take(grant)
        else:
            self._holding[job] = self.changes[job] = found

    def _come(self, job: JobId) -> None:
        wishes = self._wants(job)
        old = self._view.grants.get(job)
        if old is not None and any(
            matches(old, wish) and takes(self._view, old, wish) for wish in wishes
        ):
            self._holding[job] = old
            del self.changes[job]
            return
        found = self._place(self._view, wishes[0]) or self._displace(wishes[0])
        for wish in wishes[1:]:
            found = found or self._place(self._view, wish)
        if found is not None:
            self._holding[job] = self.changes[job] = found

    def _displace(self, demand: Demand) -> Grant | None:
        """Stop as many worse jobs, the worst first, as give a demand a place; none if all together
        do not.
        """
        room = self._view.room
        need = demand.replicas * demand.gpus - room.gpus_free(demand.pools)
        if not self._worst or (demand.gpus and need > self._worse_gpus):
            return None
        given: list[JobId] = []
        while self._worst:
            job = self._worst.pop()
            given.append(job)
            room.give(self._holding[job])
            need -= _gpus(self._holding[job])
            found = self._place(self._view, demand) if need <= 0 or not demand.gpus else None
            if found is not None:
                for victim in given:
                    self._worse_gpus -= _gpus(self._holding.pop(victim))
                    self.changes[victim] = None
                return found
        for job in reversed(given):
            room.take(self._holding[job])
            self._worst.append(job)
        return None


def matches(grant: Grant, demand: Demand) -> bool:
    """Tell whether a grant is of the size and kind that a demand is for."""
    workers, servers = grant.gangs[0]
    return (
        len(grant.gangs) == 1
        and _same(workers, demand)
        and (demand.servers is None if servers is None else _same(servers, demand.servers))
    )


def _same(part: Part, demand: Demand | None) -> bool:
    if demand is None:
        return False
    return (sum(part.count), part.gpus, part.cpus, part.mem_gb) == (
        demand.replicas,
        demand.gpus,
        demand.cpus,
        demand.mem_gb,
    )


def takes(view: View, grant: Grant, demand: Demand) -> bool:
    """Reserve a grant if there is still room for it, role by role."""
    room, (workers, servers) = view.room, grant.gangs[0]
    if not _has_room(view, workers, demand):
        return False
    if servers is not None and demand.servers is not None:
        alone = Grant((Gang(workers),))
        room.take(alone)
        beside = _has_room(view, servers, demand.servers)
        room.give(alone)
        if not beside:
            return False
    room.take(grant)
    return True


def _has_room(view: View, part: Part, demand: Demand) -> bool:
    return all(
        view.room.replicas_that_fit(node, demand) >= count
        for node, count in zip(part.nodes, part.count, strict=True)
    )


def _gpus(grant: Grant) -> int:
    return sum(
        [sum(part.count) * part.gpus for gang in grant.gangs for part in gang if part is not None]
    )


Key = tuple[float, ...]
Entry = tuple[Any, ...]
"""A key and, last, the job."""
KeyOf = Callable[[View, JobId], Key]

_NOBODY: Final[Mapping[JobId, Grant | None]] = MappingProxyType({})


def backfill_param(default: str = "none", *, locked: bool = False) -> Any:
    """Declare the parameter ``backfill``, for queues without preemption also with ``locked``."""
    labels = {"none": "None", "first_fit": "First fit"}
    more = ""
    if locked:
        labels["locked"] = "None, and the first job keeps its place"
        more = " locked: as none, and no later arrival passes the blocked job."
    return param(
        default,
        choices=tuple(labels),
        labels=labels,
        help=(
            "none: the first job without room blocks all jobs behind it. first_fit: jobs behind"
            f" it start if they fit.{more}"
        ),
        was="head",
        were={"none": "block", "first_fit": "skip"},
    )


def backlog(backfill: str, key: KeyOf, patience: Patience | None = None) -> Backlog | Lanes:
    """Return the queue for a value of the parameter ``backfill``.

    Parameters
    ----------
    backfill : str
        "none", "locked" or "first_fit".
    key : callable
        (view, job) -> numbers; smaller goes first, ties go to the lower job id. Asked once, when
        the job begins to wait.
    patience : Patience
        How long jobs wait for the types that they prefer; None = they do not.
    """
    if backfill == "first_fit":
        return Lanes(key, patience)
    return Backlog(key, patience, locked=backfill == "locked")


class Placing(Protocol):
    """A policy with the parameters that say where gangs go."""

    placement: str
    types: str
    mix: bool


def queue_rule(key: tuple[str, ...], policy: Placing, backfill: str) -> QueueRule | None:
    """Return the rule of a policy, unless a gang may mix types.

    Parameters
    ----------
    key : tuple of str
        See `sim.contract.QueueRule`.
    policy : Placing
        Says where gangs go.
    backfill : str
        See `sim.contract.QueueRule`.
    """
    if policy.mix:
        return None
    return QueueRule(key, policy.placement, policy.types, backfill)


def newly_waiting(delta: Delta) -> tuple[JobId, ...]:
    """Return the jobs that began to wait: arrivals, and jobs that lost their grant and are not
    finished.
    """
    if not delta.evicted:
        return delta.arrived
    return (
        *delta.arrived,
        *(eviction.job for eviction in delta.evicted if eviction.job not in delta.finished),
    )


def only_arrivals(delta: Delta) -> bool:
    """Tell whether nothing can have become free: what had no room at the last call has none now."""
    return bool(delta.arrived) and not (
        delta.finished or delta.evicted or delta.nodes or delta.resized
    )


class Backlog:
    """Waiting jobs by falling urgency, of which the first that has no room holds up the others.

    Jobs that come in order, as they do in order of submission, stand in a line; only the others
    need a heap. A job that waits for its preferred type holds up the others as one that has no
    room. Where it is locked, no later arrival goes before it.
    """

    def __init__(
        self, key: KeyOf, patience: Patience | None = None, *, locked: bool = False
    ) -> None:
        self._key, self._patience, self._locked = key, patience, locked
        self._line: deque[Entry] = deque()
        self._heap: list[Entry] = []
        self._stuck = -1
        self.wake_at_s = inf

    def feed(self, view: View) -> None:
        """Take in the jobs that began to wait since the last call."""
        line = self._line
        for job in newly_waiting(view.delta):
            entry = (*self._key(view, job), job)
            if not line or entry > line[-1]:
                line.append(entry)
            else:
                heappush(self._heap, entry)

    def start(self, view: View, place: Placer) -> Mapping[JobId, Grant | None]:
        """Start jobs in order until the first that has no room, or waits until `wake_at_s` for a
        type that it prefers.
        """
        line, heap = self._line, self._heap
        started: dict[JobId, Grant | None] = {}
        while line or heap:
            queued = not heap or (bool(line) and line[0] < heap[0])
            job: JobId = (line[0] if queued else heap[0])[-1]
            if job == self._stuck and only_arrivals(view.delta) and view.now_s < self.wake_at_s:
                return started or _NOBODY
            grant = (
                self._try(view, job, place, self._patience)
                if self._patience
                else place(view, view.demand(job))
            )
            if grant is None:
                if self._locked and job != self._stuck:
                    # Now before all that come later, whatever their keys.
                    entry = line.popleft() if queued else heappop(heap)
                    heappush(heap, (*[-inf] * (len(entry) - 1), job))
                self._stuck = job
                return started or _NOBODY
            started[job] = grant
            if queued:
                line.popleft()
            else:
                heappop(heap)
        self.wake_at_s = inf
        return started or _NOBODY

    def ahead(self, job: JobId) -> list[JobId]:
        """Return the waiting jobs before one, the first of the queue first."""
        entries = sorted([*self._line, *self._heap])
        jobs: list[JobId] = [entry[-1] for entry in entries]
        return jobs[: jobs.index(job)] if job in jobs else []

    def _try(self, view: View, job: JobId, place: Placer, patience: Patience) -> Grant | None:
        until_s = patience.until_s(view, job)
        waits = until_s > view.now_s
        grant = (patience.place if waits else place)(view, view.demand(job))
        if grant is None:  # else the clock of the job that is stuck behind this one stays
            self.wake_at_s = until_s if waits else inf
        return grant


class Lanes:
    """Waiting jobs in order of priority; jobs without room are skipped.

    One queue for each demand: where its first job has no room, no other of that demand has any,
    until something becomes free. Those of a demand that wait for their preferred type stand in a
    queue of their own, with a negative number, until each of them has waited for long enough.
    """

    def __init__(self, key: KeyOf, patience: Patience | None = None) -> None:
        self._key, self._patience = key, patience
        self._lanes: dict[int, list[tuple[Key, JobId]]] = {}
        self._patient: dict[JobId, tuple[Key, int]] = {}
        self._deadlines: list[tuple[float, JobId]] = []
        self._full: set[int] = set()
        self._fed: set[int] = set()
        self._denials = Denials()
        self._held: dict[JobId, Grant] = {}
        self._begun = False

    def feed(self, view: View) -> None:
        """Take in the jobs that began to wait since the last call, and note what others gave
        back.
        """
        delta = view.delta
        if not self._begun:
            self._begun = True
            self._held.update(view.grants)
        if self._deadlines:
            self._lose_patience(view)
        for job in newly_waiting(delta):
            lane, key = view.demand(job).key, self._key(view, job)
            if self._patience and (until_s := self._patience.until_s(view, job)) > view.now_s:
                lane = -lane
                self._patient[job] = key, lane
                heappush(self._deadlines, (until_s, job))
            heappush(self._lanes.setdefault(lane, []), (key, job))
            self._fed.add(lane)
        for job in (*delta.finished, *(eviction.job for eviction in delta.evicted)):
            if job in self._held:
                self._denials.give_back(self._held.pop(job))
        if delta.nodes:
            self._denials.renew(delta.nodes)
        for job in delta.resized:
            if job in self._held:
                self._denials.give_back(self._held[job])
                self._held[job] = view.grants[job]

    def _lose_patience(self, view: View) -> None:
        """Let those take any type that have waited for long enough."""
        lanes, deadlines = self._lanes, self._deadlines
        while deadlines and deadlines[0][0] <= view.now_s:
            job = heappop(deadlines)[1]
            if job not in self._patient:
                continue
            key, lane = self._patient.pop(job)
            lanes[lane].remove((key, job))
            heapify(lanes[lane])
            if not lanes[lane]:
                del lanes[lane]
                self._fed.discard(lane)
            heappush(lanes.setdefault(-lane, []), (key, job))
            self._fed.add(-lane)

    @property
    def wake_at_s(self) -> float:
        """When the next job has waited for long enough for a type that it prefers."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._patient:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else inf

    def start(self, view: View, place: Placer) -> Mapping[JobId, Grant]:
        """Start jobs in order, skipping those without room."""
        lanes, full = self._lanes, self._full
        if not only_arrivals(view.delta):
            full.clear()
            hopeful = list(lanes)
        else:
            hopeful = [lane for lane in self._fed if lane not in full]
        self._fed.clear()
        first = [(*lanes[lane][0], lane) for lane in hopeful]
        heapify(first)
        started: dict[JobId, Grant] = {}
        while first:
            _, job, lane = first[0]
            grant = self._place(view, view.demand(job), place, lane)
            if grant is None:
                full.add(lane)
                heappop(first)
                continue
            started[job] = grant
            queue = lanes[lane]
            heappop(queue)
            if queue:
                heapreplace(first, (*queue[0], lane))
            else:
                del lanes[lane]
                heappop(first)
        if started:
            self._held.update(started)
            for job in started if self._patient else ():
                self._patient.pop(job, None)
        return started

    def ahead(self, job: JobId) -> list[JobId]:
        """Return the waiting jobs before one, the first in order of priority first."""
        jobs = [one for _, one in sorted(entry for lane in self._lanes.values() for entry in lane)]
        return jobs[: jobs.index(job)] if job in jobs else []

    def _place(self, view: View, demand: Demand, place: Placer, lane: int) -> Grant | None:
        ways = place.ways(view, demand)
        if ways.by_mask and lane > 0:
            return place(view, demand)
        for pools in ways.groups if lane > 0 else ways.groups[: ways.preferred]:
            if not self._denials.holds(view, demand, pools):
                grant = place.within(view, demand, pools)
                if grant is not None:
                    return grant
                self._denials.deny(view, demand, pools)
        return None


def none_of(jobs: int) -> str:
    """Begin a sentence on a property that no job has, e.g. "none of the 45 jobs has"."""
    return "the only job has not" if jobs == 1 else f"none of the {jobs:,} jobs has"
