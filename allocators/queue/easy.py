"""EASY backfilling: jobs may pass the head of the queue if they do not delay its start."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Final

from allocators.placement import (
    RUN_TIME_NEEDS,
    WAITING_PLACEMENTS,
    NoFitCache,
    Placer,
    TypeWait,
    mix_param,
    placement_param,
    types_param,
    wait_for_type_param,
)
from allocators.queue.backfill import (
    BackfillScan,
    BackfillWindow,
    Ends,
    Entry,
    Lane,
    Reservation,
    RunTimes,
    depth_param,
    order_param,
    reserve,
    run_times_param,
)
from allocators.reasons import queue_reason, room_reason
from allocators.toolkit import newly_waiting, only_arrivals, queue_rule
from sim.contract import (
    EMPTY,
    Allocator,
    Card,
    Decided,
    Delta,
    Grant,
    JobId,
    Needs,
    Plan,
    QueueRule,
    Reason,
    View,
    instant,
    later,
    param,
)

_UNUSED: Final = "EASY backfilled nothing: the schedule is that of FIFO."


@dataclass
class Easy(Allocator):
    """Start jobs in order; jobs behind a blocked head start if they do not delay it.

    Notes
    -----
    Lifka's rule: when the head has no room, running jobs are expected to end as estimated. The time
    when enough of them have ended is the shadow time, and GPUs left over then are extra. A job
    behind the head starts now if it fits and either ends by the shadow time or uses only extra
    GPUs. Only the first ``depth`` jobs behind the head are considered, as in Slurm.

    Ours: on mixed clusters the head is reserved on the type where it can start earliest, the
    preferred one in a tie. If cores and memory are limited, or the placement is ``consolidate``,
    nodes are reserved instead of a count. With ``run_times=limit`` a job without a time limit
    counts with its estimated run time. A job that outlives its limit or estimate counts with twice
    that. The estimate of a waiting job is made when first needed, for each type as if the job were
    alone, without pauses at the start.

    A head that waits for its preferred type is promised the earlier of two times: when that type
    has room for it, or when another type has after the wait. Jobs behind it that wait for their
    preferred type pass it on that type only.
    """

    run_times: str = run_times_param()
    order: str = order_param()
    depth: int = depth_param()
    spare: bool = param(
        True,
        title="Use leftover GPUs",
        help=(
            "Whether a job may still run when the first job starts, on GPUs that job does not need."
        ),
    )
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    wait_for_type: float = wait_for_type_param()
    _place: Placer = field(init=False, repr=False)
    _type_wait: TypeWait | None = field(init=False, repr=False)
    _deadlines: list[tuple[float, JobId]] = field(init=False, repr=False, default_factory=list)
    _window: BackfillWindow = field(init=False, repr=False)
    _no_fit: NoFitCache = field(init=False, repr=False, default_factory=NoFitCache)
    _ends: Ends = field(init=False, repr=False, default_factory=Ends)
    _head: Entry | None = field(init=False, repr=False, default=None)
    _blocked: Entry | None = field(init=False, repr=False, default=None)
    _promise: Reservation | None = field(init=False, repr=False, default=None)
    _fed: set[int] = field(init=False, repr=False, default_factory=set)
    _times: RunTimes = field(init=False, repr=False)
    _begun: bool = field(init=False, repr=False, default=False)
    _backfilled: bool = field(init=False, repr=False, default=False)
    _took_over: bool = field(init=False, repr=False, default=False)
    _started: dict[JobId, Grant | None] = field(init=False, repr=False, default_factory=dict)

    card = Card(
        title="EASY backfilling",
        brief="fills gaps; never delays the first job",
        what=(
            "First come, first served, but jobs may fill gaps that do not delay the first of the"
            " queue."
        ),
        cost="Jobs behind the first may be delayed by jobs that pass them.",
        limits="Depends on the accuracy of run-time estimates. Never preempts jobs.",
        source="D. Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995",
        certainty=(
            "exact on one GPU type with whole counts; our reading on mixed clusters and where cores"
            " or memory are limited"
        ),
        goals=("short waits",),
        how=(
            "Jobs start in order of submission while there is room.",
            (
                "For the first job without room, the expected ends of running jobs give its"
                " start: the shadow time."
            ),
            "GPUs that will still be free at that time are extra.",
            (
                "A job further back starts now if it ends by the shadow time, or takes extra GPUs"
                " only."
            ),
            "A running job is never stopped.",
        ),
    )

    def __post_init__(self) -> None:
        """Create the empty queue and the estimated run times."""
        self._place = Placer(self.placement, self.types, self.mix)
        self._type_wait = TypeWait.create(self._place, self.wait_for_type)
        self._window = BackfillWindow(self.depth)
        self._times = RunTimes(self._place, by_limit=self.run_times == "limit")

    @property
    def needs(self) -> Needs:
        """Need estimated run times."""
        return Needs(RUN_TIME_NEEDS, mixes_types=self.mix)

    def remarks(self) -> tuple[str, ...]:
        """Return a note if no job passed the head of the queue."""
        if self._backfilled or self._took_over or not self._begun:
            return ()
        return (_UNUSED,)

    def allocate(self, view: View, /) -> Plan:
        """Start the head while it fits, then jobs behind it that do not delay it."""
        promise = self._promise
        self._update_running(view)
        head_may_try = self._end_type_waits(view) if self._deadlines else False
        for job in newly_waiting(view.delta):
            self._queue(
                view, ((-view.one("priority", job),) if self.order == "priority" else (), job)
            )
        if self._head is None:
            return EMPTY
        self._started = {}
        stale = (
            head_may_try
            or not only_arrivals(view.delta)
            or self._head is not self._blocked
            or self._promise is not promise
        )
        if stale:
            self._start_heads(view)
        if self._head is not None and self._window.size:
            lanes, free = self._window.lanes, sum(view.room.free)
            candidate_lanes = [
                lane
                for lane in (
                    lanes.values() if stale else [lanes[at] for at in self._fed if at in lanes]
                )
                if lane.gpus <= free
            ]
            if candidate_lanes:
                self._backfill(view, candidate_lanes)
        self._fed.clear()
        if self._deadlines:
            return Plan(self._started, wake_at_s=self._next_deadline_s())
        return Plan(self._started) if self._started else EMPTY

    def rule(self) -> QueueRule | None:
        """Return the queue rule; None if jobs wait for a type or for nodes."""
        if self.wait_for_type or self.placement in WAITING_PLACEMENTS:
            return None
        key = ("priority",) if self.order == "priority" else ()
        rule = queue_rule(key, self, "reservation")
        return rule and replace(
            rule,
            depth=self.depth,
            spare=self.spare,
            by_limit=self.run_times == "limit",
            unused=_UNUSED,
        )

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the expected start of the head and why the job may not pass it."""
        view, head = decided.view, self._head
        order = "by priority" if self.order == "priority" else "by submission"
        if head is None or head[1] == job:
            first = queue_reason(decided, job, (), order, blocks=True)
            at_s = self._promised_at_s(view, job)
            if at_s == inf:
                return first
            return Reason(
                f"{first.rule}, expected at {{start:instant}}", {**first.values, "start": at_s}
            )
        if decided.free_for(job) < decided.wants(job):
            return queue_reason(decided, job, self._jobs_ahead(job), order, blocks=False)
        if job not in self._window:
            return Reason(
                "only the first {depth:jobs} behind the head of the queue can pass it",
                {"depth": self.depth},
            )
        at_s = self._promised_at_s(view, head[1])
        if at_s == inf:
            return room_reason(decided, job)
        run_s = self._times.waiting_s(view, job)
        return Reason(
            "{free:gpus_were} free, but its {run:duration} would have delayed job {head:job},"
            " which starts at {start:instant}",
            {"free": decided.free_for(job), "run": run_s, "head": head[1], "start": at_s},
        )

    def _promised_at_s(self, view: View, job: JobId) -> float:
        """Return the expected start of a job if it is the head, without storing it; inf = never."""
        if self._promise is not None and self._promise.job == job:
            return self._promise.at_s
        return reserve(view, self._place, self._ends, job, self._type_wait).at_s

    def _jobs_ahead(self, job: JobId) -> list[JobId]:
        """Return the jobs before a job in the queue, the head first."""
        head = [] if self._head is None else [self._head[1]]
        return head + self._window.jobs_before(job)

    # -- running jobs
    # ----------------------------------------------------------------------------------------------

    def _update_running(self, view: View) -> None:
        """Update running jobs and their expected ends; cancel the reservation if they changed."""
        delta, ends, now_s = view.delta, self._ends, view.now_s
        if not self._begun:
            self._begun, self._took_over = True, bool(view.grants)
            for job, grant in view.grants.items():
                ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        for job in delta.finished:
            end = ends.drop(job)
            self._no_fit.record_release(end[2])
            if end[0] != now_s:
                self._promise = None
        if delta.evicted or delta.nodes:
            self._update_losses(delta)
        for job in delta.resized:
            self._update_resized(view, job)
        if ends.order and ends.order[0][0] <= now_s:
            for _, job, grant, _ in ends.overdue(now_s):
                self._promise = None
                # It has not ended at this instant, so it cannot end before the next.
                end_s = later(now_s + self._times.remaining_s(view, job, grant), now_s)
                ends.add(view.room, job, grant, end_s)

    def _update_losses(self, delta: Delta) -> None:
        """Cancel the reservation, remove evicted jobs, and record the freed and changed nodes."""
        self._promise = None
        for eviction in delta.evicted:
            if eviction.job in self._ends:
                self._no_fit.record_release(self._ends.drop(eviction.job)[2])
        self._no_fit.record_nodes(delta.nodes)

    def _update_resized(self, view: View, job: JobId) -> None:
        """Cancel the reservation, and update the end or lane of a resized job."""
        self._promise = None
        if job in self._ends:
            self._no_fit.record_release(self._ends.drop(job)[2])
            grant = view.grants[job]
            self._ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        elif job in self._window:
            self._add_to_window(view, self._window.remove(job))

    def _start(self, view: View, entry: Entry, grant: Grant, end_s: float) -> None:
        """Record the grant and the expected end of a job that starts."""
        self._started[entry[1]] = grant
        self._ends.add(view.room, entry[1], grant, end_s)

    # -- waiting jobs
    # ----------------------------------------------------------------------------------------------

    def _queue(self, view: View, entry: Entry) -> None:
        """Add a waiting job as the head, in the window, or behind it; a later head moves back."""
        head = self._head
        if head is None:
            self._head = entry
            return
        if entry < head:
            self._head, entry = entry, head
        if not self._window.goes_behind(entry):
            self._add_to_window(view, entry)

    def _add_to_window(self, view: View, entry: Entry) -> Lane:
        """Add a waiting job to its lane in the window; return the lane."""
        demand, lanes = view.demand(entry[1]), self._window.lanes
        patient = self._type_wait is not None and self._waits_for_type(view, entry, self._type_wait)
        number = -demand.key if patient else demand.key
        lane = lanes.get(number)
        if lane is None:
            ways = self._place.options(view, demand)
            groups = ways.groups[: ways.preferred] if patient else ways.groups
            limited = not self._place.needs_only_gpus(view, demand)
            lane = lanes[number] = Lane(number, demand, groups, limited=limited)
        self._window.add(lane, entry)
        self._fed.add(number)
        return lane

    def _waits_for_type(self, view: View, entry: Entry, patience: TypeWait) -> bool:
        """Return True if a job still waits for its preferred type; schedule the end of the wait."""
        until_s = patience.until_s(view, entry[1])
        if until_s <= view.now_s:
            return False
        if entry is not self._blocked:
            heappush(self._deadlines, (until_s, entry[1]))
        return True

    def _end_type_waits(self, view: View) -> bool:
        """Let jobs take any type after their wait; return True if the head is one of them."""
        of_head = False
        while self._deadlines and self._deadlines[0][0] <= view.now_s:
            job = heappop(self._deadlines)[1]
            if job in self._window:
                self._add_to_window(view, self._window.remove(job))
            of_head = of_head or (self._head is not None and self._head[1] == job)
        return of_head

    def _next_deadline_s(self) -> float:
        """Return when the next job stops waiting for its preferred type; inf if none waits."""
        head, deadlines = self._head, self._deadlines
        while (
            deadlines
            and deadlines[0][1] not in self._window
            and (not head or deadlines[0][1] != head[1])
        ):
            heappop(deadlines)
        return deadlines[0][0] if deadlines else inf

    def _times_s(self, view: View, lane: Lane, entry: Entry) -> tuple[float, ...]:
        """Return a waiting job's expected run time in each group of its lane, as instants."""
        return tuple(
            instant(self._times.waiting_s(view, entry[1], at)) for at in range(len(lane.groups))
        )

    def _replace_in_window(self, view: View, entry: Entry) -> Lane | None:
        """Remove a job; move the first one behind the window in, and return its lane or None."""
        self._window.remove(entry[1])
        following = self._window.pop_behind()
        return None if following is None else self._add_to_window(view, following)

    def _start_heads(self, view: View) -> None:
        """Start the jobs at the head of the queue until one does not fit; that one is the head."""
        while self._head is not None:
            head = self._head
            place = (
                self._type_wait.place_preferred
                if self._type_wait and self._waits_for_type(view, head, self._type_wait)
                else self._place
            )
            grant = place(view, view.demand(head[1]))
            if grant is None:
                break
            self._start(view, head, grant, self._times.end_s(view, head[1], grant))
            self._promise = None
            self._head = self._window.first()
            if self._head is None:
                self._head = self._window.pop_behind()
            else:
                self._replace_in_window(view, self._head)
        self._blocked = self._head

    # -- backfilling
    # ----------------------------------------------------------------------------------------------

    def _backfill(self, view: View, lanes: list[Lane]) -> None:
        """Start jobs of these lanes that do not delay the head, in queue order."""
        look = BackfillScan(self._head_reservation(view), partial(self._times_s, view))
        for lane in lanes:
            self._enqueue(view, lane, look)
        while look.line:
            entry, group, starts, lane = heappop(look.line)
            look.lined_up.discard(lane.id)
            if (
                starts == look.starts or self._next_candidate(view, lane, look) == (entry, group)
            ) and self._try(view, entry, lane, group, look):
                look.starts += 1
                following = self._replace_in_window(view, entry)
                if following is not None and following is not lane:
                    self._enqueue(view, following, look)
            self._enqueue(view, lane, look)

    def _enqueue(self, view: View, lane: Lane, look: BackfillScan) -> None:
        """Add the first job of a lane that may pass the head to the line of the scan, if any."""
        candidate = (
            self._next_candidate(view, lane, look)
            if lane.order and lane.id not in look.lined_up
            else None
        )
        if candidate is not None:
            heappush(look.line, (*candidate, look.starts, lane))
            look.lined_up.add(lane.id)

    def _next_candidate(
        self, view: View, lane: Lane, look: BackfillScan
    ) -> tuple[Entry, int] | None:
        """Return the first job of a lane that may pass the head, with the group of pools for it.

        None if no job may, or no group has enough free GPUs.
        """
        best: tuple[Entry, int] | None = None
        room, promise = view.room, look.promise
        for group, pools in enumerate(lane.groups):
            if (room.free[pools[0]] if len(pools) == 1 else room.gpus_free(pools)) < lane.gpus:
                continue
            if lane.limited and (
                (lane.id, group) in look.full
                or self._no_fit.is_known_no_fit(view, lane.demand, pools)
            ):
                continue
            if (
                self.spare
                and promise.may_outlast(lane.gpus, pools)
                and (lane.id, group) not in look.only_short
                and lane.order[0][1] not in look.barred
            ):
                entry: Entry | None = lane.order[0]
            else:
                within_s = instant(promise.at_s - view.now_s)
                entry = lane.first_within(group, within_s, look.barred, look.times_s)
            if entry is not None and (best is None or entry < best[0]):
                best = entry, group
        return best

    def _head_reservation(self, view: View) -> Reservation:
        """Return the reservation of the head; make it if missing."""
        head = self._head
        assert head is not None
        if self._promise is None or self._promise.job != head[1]:
            self._promise = reserve(view, self._place, self._ends, head[1], self._type_wait)
        return self._promise

    def _try(self, view: View, entry: Entry, lane: Lane, group: int, look: BackfillScan) -> bool:
        """Start a job if it fits and does not delay the head; return True if it started.

        A failure is recorded in the scan, so that the lane and group, or the job, is not tried
        again.
        """
        grant = self._place.place_within(view, lane.demand, lane.groups[group])
        if grant is None:
            look.full.add((lane.id, group))
            self._no_fit.record_no_fit(view, lane.demand, lane.groups[group])
            return False
        end_s, promise = self._times.end_s(view, entry[1], grant), look.promise
        if end_s > promise.at_s and not (
            self.spare and promise.try_outlast(self._ends.gpus_by_pool(view.room, grant), grant)
        ):
            view.room.give(grant)
            if (lane.id, group) in look.only_short:
                look.barred.add(entry[1])
            look.only_short.add((lane.id, group))
            return False
        self._start(view, entry, grant, end_s)
        self._backfilled = True
        return True
