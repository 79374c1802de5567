"""EASY backfilling: first come, first served, but a job may pass if the one at the head does not start later for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf

from allocators._backlog import newly_waiting, only_arrivals
from allocators._ends import Ends
from allocators._reservation import TOLERANCE_S, Reservation, reserve
from allocators._window import Entry, Lane, Window
from allocators.placement import Placer, mix_param, placement_param, types_param
from sim.contract import EMPTY, Cadence, Card, Grant, JobId, Plan, View, param


@dataclass
class Easy:
    """Start jobs in order; behind a head that has no room, start those that end before it can start, or leave it enough.

    Notes
    -----
    Lifka's rule: when the head has no room, running jobs are expected to end as estimated; the instant at which enough of them have ended is its shadow
    time, and GPUs that are then left over are extra. A job behind the head starts now if it has room and either ends by the shadow time or takes extra GPUs
    only. Only the first ``depth`` jobs behind the head are looked at, as Slurm does.

    Ours: on mixed clusters the head is reserved on the type where it could start earliest, the preferred one where equal. Where cores and memory are
    limited, or the placement is ``consolidate``, nodes are reserved instead of a count. With ``estimate=limit`` a job without a time limit counts with its
    believed run time. A limit that is outlived counts twice, as beliefs do. The estimate of a waiting job is made when it first matters, for each type as
    if the job were alone; pauses at the start are not part of it.
    """

    estimate: str = param("belief", choices=("belief", "limit"), help="What run times are taken for: the believed ones, or the time limits of the trace.")
    order: str = param("submit", choices=("submit", "priority"), help="Order of the queue: submission, or priority first and submission within it.")
    depth: int = param(500, unit="jobs", low=0, high=1_000_000, help="How many waiting jobs behind the head are looked at.")
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _place: Placer = field(init=False, repr=False)
    _window: Window = field(init=False, repr=False)
    _ends: Ends = field(init=False, repr=False, default_factory=Ends)
    _head: Entry | None = field(init=False, repr=False, default=None)
    _blocked: Entry | None = field(init=False, repr=False, default=None)
    _promise: Reservation | None = field(init=False, repr=False, default=None)
    _fed: set[int] = field(init=False, repr=False, default_factory=set)
    _begun: bool = field(init=False, repr=False, default=False)
    _started: dict[JobId, Grant | None] = field(init=False, repr=False, default_factory=dict)

    cadence = Cadence()
    card = Card(
        title="EASY backfilling",
        what="First come, first served, but jobs may fill gaps that do not delay the first of the queue.",
        cost="Jobs behind the first one may be delayed by those that pass them.",
        limits="As good as its estimates of run times; never stops a job.",
        source="D. Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995",
        certainty="exact on one GPU type with whole counts; our reading on mixed clusters and where cores or memory are limited",
        goals=("short waits", "baseline"),
    )

    def __post_init__(self) -> None:
        """Prepare an empty queue."""
        self._place = Placer(self.placement, self.types, self.mix)
        self._window = Window(self.depth)

    @property
    def needs(self) -> frozenset[str]:
        """Believed run times."""
        return frozenset({"remaining_work", "rates", "mixed"} if self.mix else {"remaining_work", "rates"})

    def allocate(self, view: View, /) -> Plan:
        """Start the head while it has room, then what may pass it."""
        promise = self._promise
        self._follow_running(view)
        for job in newly_waiting(view.delta):
            self._queue(view, Entry((-view.one("priority", job),) if self.order == "priority" else (), job))
        if self._head is None:
            return EMPTY
        self._started = {}
        stale = not only_arrivals(view.delta) or self._head is not self._blocked or self._promise is not promise
        if stale:
            self._start_heads(view)
        if self._head is not None and self._window.size:
            lanes = self._window.lanes
            self._backfill(view, list(lanes.values()) if stale else [lanes[at] for at in self._fed if at in lanes])
        self._fed.clear()
        return Plan(self._started) if self._started else EMPTY

    # -- what runs ---------------------------------------------------------------------------------------------------------------------------------------

    def _follow_running(self, view: View) -> None:
        delta, ends, now_s = view.delta, self._ends, view.now_s
        if not self._begun:
            self._begun = True
            for job, grant in view.grants.items():
                ends.add(view.room, job, grant, now_s + self._left_s(view, job, grant))
        for job in delta.finished:
            if job in ends and ends.drop(job).at_s != now_s:
                self._promise = None
        for eviction in delta.evicted:
            if eviction.job in ends:
                ends.drop(eviction.job)
        if delta.evicted or delta.nodes:
            self._promise = None
        if ends.order and ends.order[0].at_s <= now_s:
            for late in ends.overdue(now_s):
                self._promise = None
                ends.add(view.room, late.job, late.grant, now_s + self._left_s(view, late.job, late.grant))

    def _left_s(self, view: View, job: JobId, grant: Grant) -> float:
        limit_s = self._limit_s(view, job)
        if limit_s < inf:
            held = view.one("held_gpus", job)
            been_s = view.one("served_gpu_s", job) / held if held else 0.0
            while limit_s <= been_s:
                limit_s *= 2
            return limit_s - been_s
        rate = view.belief.rate(job, grant)
        return view.one("remaining_work", job) / rate if rate > 0 else inf

    def _limit_s(self, view: View, job: JobId) -> float:
        limit_s = view.one("time_limit_s", job) if self.estimate == "limit" else inf
        return limit_s if limit_s > 0 else inf

    def _start(self, view: View, entry: Entry, grant: Grant, end_s: float) -> None:
        self._started[entry.job] = grant
        self._ends.add(view.room, entry.job, grant, end_s)

    # -- what waits --------------------------------------------------------------------------------------------------------------------------------------

    def _queue(self, view: View, entry: Entry) -> None:
        head = self._head
        if head is None:
            self._head = entry
            return
        if entry < head:
            self._head, entry = entry, head
        if not self._window.goes_behind(entry):
            self._enter(view, entry)

    def _enter(self, view: View, entry: Entry) -> None:
        demand, lanes = view.demand(entry.job), self._window.lanes
        lane = lanes.get(id(demand))
        if lane is None:
            lane = lanes[id(demand)] = Lane(demand, self._place.ways(view, demand).groups)
        self._window.add(lane, entry)
        self._fed.add(id(demand))

    def _times_s(self, view: View, lane: Lane, entry: Entry) -> tuple[float, ...]:
        limit_s = self._limit_s(view, entry.job)
        return tuple(limit_s if limit_s < inf else self._place.run_time_s(view, entry.job, at) for at in range(len(lane.groups)))

    def _leave(self, view: View, entry: Entry) -> None:
        window = self._window
        window.remove(entry, window.lanes[id(view.demand(entry.job))])
        following = window.behind() if window.size < self.depth else None
        if following is not None:
            self._enter(view, following)

    def _start_heads(self, view: View) -> None:
        while self._head is not None:
            head = self._head
            grant = self._place(view, view.demand(head.job))
            if grant is None:
                break
            self._start(view, head, grant, view.now_s + self._left_s(view, head.job, grant))
            self._promise = None
            self._head = self._window.first()
            if self._head is None:
                self._head = self._window.behind()
            else:
                self._leave(view, self._head)
        self._blocked = self._head

    # -- what may pass -----------------------------------------------------------------------------------------------------------------------------------

    def _backfill(self, view: View, lanes: list[Lane]) -> None:
        tried = _Pass()
        while True:
            found = self._next(view, lanes, tried)
            if found is None:
                return
            entry, lane, group = found
            if self._try(view, entry, lane, group, tried):
                self._leave(view, entry)
                lanes = list(self._window.lanes.values())

    def _next(self, view: View, lanes: list[Lane], tried: _Pass) -> tuple[Entry, Lane, int] | None:
        """Return the first job in the queue that may pass, with its lane and group."""
        best: tuple[Entry, Lane, int] | None = None
        room, times_s = view.room, partial(self._times_s, view)
        for lane in lanes:
            for group, pools in enumerate(lane.groups):
                if (room.free[pools[0]] if len(pools) == 1 else room.gpus_free(pools)) < lane.gpus or (id(lane.demand), group) in tried.full:
                    continue
                promise = self._promised(view)
                if (id(lane.demand), group) not in tried.only_short and promise.may_spare(lane.gpus, pools) and lane.order[0].job not in tried.barred:
                    entry: Entry | None = lane.order[0]
                else:
                    entry = lane.first_within(group, promise.at_s - view.now_s + TOLERANCE_S, tried.barred, times_s)
                if entry is not None and (best is None or entry < best[0]):
                    best = entry, lane, group
        return best

    def _promised(self, view: View) -> Reservation:
        head = self._head
        assert head is not None
        if self._promise is None or self._promise.job != head.job:
            self._promise = reserve(view, self._place, self._ends, head.job)
        return self._promise

    def _try(self, view: View, entry: Entry, lane: Lane, group: int, tried: _Pass) -> bool:
        grant = self._place.within(view, lane.demand, lane.groups[group])
        if grant is None:
            tried.full.add((id(lane.demand), group))
            return False
        end_s, promise = view.now_s + self._left_s(view, entry.job, grant), self._promised(view)
        if end_s > promise.at_s + TOLERANCE_S and not promise.spares(self._ends.gpus_by_pool(view.room, grant), grant):
            view.room.give(grant)
            if (id(lane.demand), group) in tried.only_short:
                tried.barred.add(entry.job)
            tried.only_short.add((id(lane.demand), group))
            return False
        self._start(view, entry, grant, end_s)
        return True


class _Pass:
    """What one look at the queue has found out: (lane, group) without room, (lane, group) where only short jobs may go, jobs that may not pass."""

    def __init__(self) -> None:
        self.full: set[tuple[int, int]] = set()
        self.only_short: set[tuple[int, int]] = set()
        self.barred: set[JobId] = set()
