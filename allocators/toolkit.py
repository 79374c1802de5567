"""Shared building blocks of policies: job queues, round clocks and priority allocation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from allocators.placement import NoFitCache, Placer, TypeWait
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

DEFAULT_ROUND_S: Final = 360.0


def round_param() -> Any:
    """Declare the policy parameter ``round_s``."""
    return param(
        DEFAULT_ROUND_S,
        title="Length of a round",
        unit="s",
        low=10,
        high=86_400,
        help="Length of a round: jobs start, stop and move only between rounds.",
    )


class CpuJobs:
    """CPU-only jobs outside the rounds: started by job id, skipping jobs that have no room."""

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
        """Record arrivals, ends and evictions of CPU-only jobs since the last call."""
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
        """Add a job to the waiting queue of its demand."""
        self._waiting.add(job)
        heappush(self._lanes.setdefault(view.demand(job).key, []), job)

    def start(self, view: View) -> dict[JobId, Grant | None]:
        """Reserve nodes for each waiting CPU-only job that fits; return the new grants.

        In order of job id; a job without room blocks only jobs of the same demand.
        """
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
        """Return the number of running CPU-only jobs."""
        return len(self._all) - len(self._waiting)

    def without_cpu_jobs(self, ids: Ints) -> Ints:
        """Return the job ids, CPU-only jobs left out."""
        return ids[~np.isin(ids, list(self._all))] if self._all else ids

    def includes_all(self, jobs: Iterable[JobId]) -> bool:
        """Return True if all of these jobs are CPU-only."""
        return all(job in self._all for job in jobs)


class RoundClock:
    """Start and end of the current round.

    Parameters
    ----------
    round_s : float, seconds
        Length of a round.

    Attributes
    ----------
    began_s, ends_s : float, seconds
        Start and end of the current round. `ends_s` is inf without a round, -inf before the first.
    idle_s : float, seconds
        Time without a round before the current one; 0 before the first.

    Notes
    -----
    Rounds follow each other while a job with GPUs runs; otherwise the next event starts one.
    """

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self.began_s, self.ends_s, self.idle_s = 0.0, -inf, 0.0
        self._over_s: float | None = None

    def is_due(self, view: View, cpu_jobs: CpuJobs) -> bool:
        """Return True if the round is over or no job with GPUs runs, so that one begins now."""
        return view.now_s >= self.ends_s or cpu_jobs.includes_all(view.grants)

    def begin(self, now_s: float, *, goes_on: bool) -> None:
        """Begin a round at `now_s`; it has an end only if another one follows (`goes_on`)."""
        self.idle_s = 0.0 if self._over_s is None else now_s - self._over_s
        self._over_s = None if goes_on else now_s
        self.began_s, self.ends_s = now_s, instant(now_s + self._round_s) if goes_on else inf


DemandsOf = Callable[[JobId], Sequence[Demand]]
"""Job -> acceptable demands, best first. Only the first demand can preempt other jobs."""


def allocate_by_priority(
    view: View, place: Placer, order: Sequence[JobId], wants: DemandsOf
) -> dict[JobId, Grant | None]:
    """Return the grant changes that give the jobs their demands in priority order.

    Parameters
    ----------
    view : View
        The instant.
    place : Placer
        Chooses nodes.
    order : sequence of int
        All jobs that may run, best first. Preemptible running jobs that are missing here are
        stopped.
    wants : callable
        Job -> demands.

    Notes
    -----
    A running job whose grant matches its first demand keeps it. A running job of another size is
    placed again and keeps its grant if that fails. A waiting job takes free nodes. If its first
    demand does not fit, jobs of lower priority are preempted, the lowest first, unless even all of
    them would not suffice. A preempted job is tried again at its own place in the order, on its
    old nodes first.
    """
    return _PriorityPass(view, place, order, wants).changes


class _PriorityPass:
    """One pass over the jobs in priority order; `changes` holds the resulting grants."""

    def __init__(self, view: View, place: Placer, order: Sequence[JobId], wants: DemandsOf) -> None:
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
        self._worse_gpus = sum([_grant_gpus(self._holding[job]) for job in self._worst])
        for job in order:
            if self._worst and self._worst[0] == job:
                self._worst.popleft()
                self._worse_gpus -= _grant_gpus(self._holding[job])
            if job in self._holding:
                self._keep_or_resize(job, self._holding[job])
            else:
                self._start_job(job)

    def _keep_or_resize(self, job: JobId, old: Grant) -> None:
        """Keep a running job's grant, or place it again at its first demand if that differs.

        It keeps the grant if the new size does not fit.
        """
        first = self._wants(job)[0]
        if grant_matches(old, first) or not self._view.one("preemptible", job):
            return
        room = self._view.room
        room.give(old)
        grant = self._place(self._view, first)
        if grant is None:
            room.take(old)
        else:
            self._holding[job] = self.changes[job] = grant

    def _start_job(self, job: JobId) -> None:
        """Place a job without a grant: on its old nodes, on free nodes, or by preemption."""
        demands = self._wants(job)
        old = self._view.grants.get(job)
        if old is not None and any(
            grant_matches(old, demand) and reserve_if_free(self._view, old, demand)
            for demand in demands
        ):
            self._holding[job] = old
            del self.changes[job]
            return
        grant = self._place(self._view, demands[0]) or self._preempt_for(demands[0])
        for demand in demands[1:]:
            grant = grant or self._place(self._view, demand)
        if grant is not None:
            self._holding[job] = self.changes[job] = grant

    def _preempt_for(self, demand: Demand) -> Grant | None:
        """Stop jobs of lower priority, lowest first, until a demand fits; return its grant.

        None, with no job stopped, if it never fits.
        """
        room = self._view.room
        need = demand.replicas * demand.gpus - room.gpus_free(demand.pools)
        if not self._worst or (demand.gpus and need > self._worse_gpus):
            return None
        preempted: list[JobId] = []
        while self._worst:
            job = self._worst.pop()
            preempted.append(job)
            room.give(self._holding[job])
            need -= _grant_gpus(self._holding[job])
            grant = self._place(self._view, demand) if need <= 0 or not demand.gpus else None
            if grant is not None:
                for victim in preempted:
                    self._worse_gpus -= _grant_gpus(self._holding.pop(victim))
                    self.changes[victim] = None
                return grant
        for job in reversed(preempted):
            room.take(self._holding[job])
            self._worst.append(job)
        return None


def grant_matches(grant: Grant, demand: Demand) -> bool:
    """Return True if a grant is one gang with exactly the replicas and resources of a demand."""
    workers, servers = grant.gangs[0]
    return (
        len(grant.gangs) == 1
        and _part_matches(workers, demand)
        and (demand.servers is None if servers is None else _part_matches(servers, demand.servers))
    )


def _part_matches(part: Part, demand: Demand | None) -> bool:
    """Return True if a part has exactly the replicas and resources of a demand."""
    return demand is not None and (sum(part.count), part.gpus, part.cpus, part.mem_gb) == (
        demand.replicas,
        demand.gpus,
        demand.cpus,
        demand.mem_gb,
    )


def reserve_if_free(view: View, grant: Grant, demand: Demand) -> bool:
    """Reserve a grant if its nodes have room for workers and servers; return success."""
    room, (workers, servers) = view.room, grant.gangs[0]
    if not _has_room(view, workers, demand):
        return False
    if servers is not None and demand.servers is not None:
        workers_only = Grant((Gang(workers),))
        room.take(workers_only)
        servers_fit = _has_room(view, servers, demand.servers)
        room.give(workers_only)
        if not servers_fit:
            return False
    room.take(grant)
    return True


def _has_room(view: View, part: Part, demand: Demand) -> bool:
    """Return True if every node of a part has free room for its replicas."""
    return all(
        view.room.replicas_that_fit(node, demand) >= count
        for node, count in zip(part.nodes, part.count, strict=True)
    )


def _grant_gpus(grant: Grant) -> int:
    """Return the number of GPUs in a grant."""
    return sum(
        [sum(part.count) * part.gpus for gang in grant.gangs for part in gang if part is not None]
    )


Key = tuple[float, ...]
Entry = tuple[Any, ...]
"""The numbers of a key, followed by the job."""
KeyFunction = Callable[[View, JobId], Key]

_NO_STARTS: Final[Mapping[JobId, Grant | None]] = MappingProxyType({})


def backfill_param(default: str = "none", *, locked: bool = False) -> Any:
    """Declare the parameter ``backfill``, for queues without preemption also with ``locked``."""
    labels = {"none": "None", "first_fit": "First fit"}
    more = ""
    if locked:
        labels["locked"] = "None, and the first job keeps its place"
        more = " Keeps its place: no later arrival passes a job that had no room."
    return param(
        default,
        choices=tuple(labels),
        labels=labels,
        help=(
            "None: the first job without room blocks all jobs behind it. First fit: jobs behind"
            f" it start if they fit.{more}"
        ),
        was="head",
        were={"none": "block", "first_fit": "skip"},
    )


def make_queue(
    backfill: str, key: KeyFunction, patience: TypeWait | None = None
) -> BlockingQueue | SkippingQueue:
    """Return the job queue for a value of the parameter ``backfill``.

    Parameters
    ----------
    backfill : str
        "none", "locked" or "first_fit".
    key : callable
        (view, job) -> numbers; smaller goes first, ties go to the lower job id. Called once per
        job, when it begins to wait.
    patience : TypeWait
        How long jobs wait for their preferred GPU types; None = they take any type at once.
    """
    return (
        SkippingQueue(key, patience)
        if backfill == "first_fit"
        else BlockingQueue(key, patience, locked=backfill == "locked")
    )


class HasPlacement(Protocol):
    """A policy with the parameters of gang placement."""

    placement: str
    types: str
    mix: bool


def queue_rule(key: tuple[str, ...], policy: HasPlacement, backfill: str) -> QueueRule | None:
    """Return the queue rule of a policy, or None if a gang may mix GPU types.

    Parameters
    ----------
    key : tuple of str
        See `sim.contract.QueueRule`.
    policy : HasPlacement
        The policy with its placement parameters.
    backfill : str
        See `sim.contract.QueueRule`.
    """
    return None if policy.mix else QueueRule(key, policy.placement, policy.types, backfill)


def newly_waiting(delta: Delta) -> tuple[JobId, ...]:
    """Return the jobs that began to wait: arrivals and unfinished evicted jobs."""
    if not delta.evicted:
        return delta.arrived
    return (
        *delta.arrived,
        *(eviction.job for eviction in delta.evicted if eviction.job not in delta.finished),
    )


def only_arrivals(delta: Delta) -> bool:
    """Return True if jobs only arrived, so that no resources became free."""
    return bool(delta.arrived) and not (
        delta.finished or delta.evicted or delta.nodes or delta.resized
    )


class BlockingQueue:
    """Queue that stops at the first job without room, which blocks all later jobs.

    Jobs that arrive in key order go to a deque; only the others need a heap. A job that waits for
    its preferred type blocks like one without room. If `locked`, no later arrival passes the
    blocked job.
    """

    def __init__(
        self, key: KeyFunction, patience: TypeWait | None = None, *, locked: bool = False
    ) -> None:
        self._key, self._type_wait, self._locked = key, patience, locked
        self._line: deque[Entry] = deque()
        self._heap: list[Entry] = []
        self._blocked = -1
        self.wake_at_s = inf

    def feed(self, view: View) -> None:
        """Add the jobs that began to wait since the last call."""
        line = self._line
        for job in newly_waiting(view.delta):
            entry = (*self._key(view, job), job)
            if not line or entry > line[-1]:
                line.append(entry)
            else:
                heappush(self._heap, entry)

    def start(self, view: View, place: Placer) -> Mapping[JobId, Grant | None]:
        """Place jobs in order up to the first without room; return the new grants.

        If that job waits for a preferred type, `wake_at_s` is when its wait ends.
        """
        line, heap = self._line, self._heap
        started: dict[JobId, Grant | None] = {}
        while line or heap:
            queued = not heap or (bool(line) and line[0] < heap[0])
            job: JobId = (line[0] if queued else heap[0])[-1]
            if job == self._blocked and only_arrivals(view.delta) and view.now_s < self.wake_at_s:
                return started or _NO_STARTS
            grant = (
                self._try(view, job, place, self._type_wait)
                if self._type_wait
                else place(view, view.demand(job))
            )
            if grant is None:
                if self._locked and job != self._blocked:
                    # Stays ahead of all later arrivals, whatever their keys.
                    entry = line.popleft() if queued else heappop(heap)
                    heappush(heap, (*[-inf] * (len(entry) - 1), job))
                self._blocked = job
                return started or _NO_STARTS
            started[job] = grant
            if queued:
                line.popleft()
            else:
                heappop(heap)
        self.wake_at_s = inf
        return started or _NO_STARTS

    def ahead(self, job: JobId) -> list[JobId]:
        """Return the waiting jobs before a job, in queue order."""
        entries = sorted([*self._line, *self._heap])
        jobs: list[JobId] = [entry[-1] for entry in entries]
        return jobs[: jobs.index(job)] if job in jobs else []

    def _try(self, view: View, job: JobId, place: Placer, patience: TypeWait) -> Grant | None:
        """Place the first job, only on preferred types while it waits for them; None if no room.

        Without room, `wake_at_s` becomes the end of that wait.
        """
        until_s = patience.until_s(view, job)
        waits = until_s > view.now_s
        grant = (patience.place_preferred if waits else place)(view, view.demand(job))
        if grant is None:  # otherwise the wake-up of the next blocked job stays valid
            self.wake_at_s = until_s if waits else inf
        return grant


class SkippingQueue:
    """Queue in priority order that skips jobs without room.

    Each demand has a lane of its own: if the first job of a lane has no room, none behind it has
    until resources become free. Jobs that wait for their preferred type are in a lane with a
    negative number until their wait ends.
    """

    def __init__(self, key: KeyFunction, patience: TypeWait | None = None) -> None:
        self._key, self._type_wait = key, patience
        self._lanes: dict[int, list[tuple[Key, JobId]]] = {}
        self._patient: dict[JobId, tuple[Key, int]] = {}
        self._deadlines: list[tuple[float, JobId]] = []
        self._full: set[int] = set()
        self._fed: set[int] = set()
        self._no_fit = NoFitCache()
        self._grants: dict[JobId, Grant] = {}
        self._begun = False

    def feed(self, view: View) -> None:
        """Add the jobs that began to wait and record the resources released since the last call.

        A waiting job whose demand changed moves to the lane of its new demand.
        """
        delta = view.delta
        if not self._begun:
            self._begun = True
            self._grants.update(view.grants)
        if self._deadlines:
            self._end_type_waits(view)
        for job in (*newly_waiting(delta), *(self._take_resized(delta) if delta.resized else ())):
            lane, key = view.demand(job).key, self._key(view, job)
            if self._type_wait and (until_s := self._type_wait.until_s(view, job)) > view.now_s:
                lane = -lane
                self._patient[job] = key, lane
                heappush(self._deadlines, (until_s, job))
            heappush(self._lanes.setdefault(lane, []), (key, job))
            self._fed.add(lane)
        for job in (*delta.finished, *(eviction.job for eviction in delta.evicted)):
            if job in self._grants:
                self._no_fit.record_release(self._grants.pop(job))
        if delta.nodes:
            self._no_fit.record_nodes(delta.nodes)
        for job in delta.resized:
            if job in self._grants:
                self._no_fit.record_release(self._grants[job])
                self._grants[job] = view.grants[job]

    def _end_type_waits(self, view: View) -> None:
        """Move jobs to the lane for any type after their wait for a preferred one."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= view.now_s:
            job = heappop(deadlines)[1]
            if job in self._patient:
                key, lane = self._patient.pop(job)
                self._remove((key, job), lane)
                heappush(self._lanes.setdefault(-lane, []), (key, job))
                self._fed.add(-lane)

    def _take_resized(self, delta: Delta) -> list[JobId]:
        """Remove and return the waiting jobs with a new demand."""
        resized = [
            (entry, lane)
            for lane, entries in self._lanes.items()
            for entry in entries
            if entry[1] in delta.resized
        ]
        for entry, lane in resized:
            self._remove(entry, lane)
        return [job for (_, job), _ in resized]

    def _remove(self, entry: tuple[Key, JobId], lane: int) -> None:
        """Take a job out of its lane; an empty lane is dropped."""
        self._lanes[lane].remove(entry)
        heapify(self._lanes[lane])
        if not self._lanes[lane]:
            del self._lanes[lane]
            self._fed.discard(lane)

    @property
    def wake_at_s(self) -> float:
        """Return when the next job stops waiting for its preferred type; inf if none waits."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._patient:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else inf

    def start(self, view: View, place: Placer) -> Mapping[JobId, Grant]:
        """Place jobs in priority order, skipping those without room; return the new grants."""
        lanes, full = self._lanes, self._full
        if not only_arrivals(view.delta):
            full.clear()
            open_lanes = list(lanes)
        else:
            open_lanes = [lane for lane in self._fed if lane not in full]
        self._fed.clear()
        first = [(*lanes[lane][0], lane) for lane in open_lanes]
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
            self._grants.update(started)
            for job in started if self._patient else ():
                self._patient.pop(job, None)
        return started

    def ahead(self, job: JobId) -> list[JobId]:
        """Return the waiting jobs before a job, in priority order."""
        jobs = [one for _, one in sorted(entry for lane in self._lanes.values() for entry in lane)]
        return jobs[: jobs.index(job)] if job in jobs else []

    def _place(self, view: View, demand: Demand, place: Placer, lane: int) -> Grant | None:
        """Reserve nodes for a demand, skipping pools where it is known not to fit, or return None.

        A negative lane uses preferred types only. New failures are recorded.
        """
        ways = place.options(view, demand)
        if ways.by_mask and lane > 0:
            return place(view, demand)
        for pools in ways.groups if lane > 0 else ways.groups[: ways.preferred]:
            if not self._no_fit.is_known_no_fit(view, demand, pools):
                grant = place.place_within(view, demand, pools)
                if grant is not None:
                    return grant
                self._no_fit.record_no_fit(view, demand, pools)
        return None


def none_of_jobs(jobs: int) -> str:
    """Return the beginning of a sentence, such as "none of the 45 jobs has"."""
    return "the only job has not" if jobs == 1 else f"none of the {jobs:,} jobs has"
