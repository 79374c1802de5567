"""EASY backfilling: first come, first served, but a job may pass if the one at the head does not
start later for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Final

from allocators.placement import (
    RUN_TIME,
    WAITING,
    Denials,
    Patience,
    Placer,
    mix_param,
    placement_param,
    types_param,
    wait_for_type_param,
)
from allocators.queue.backfill import (
    BackfillWindow,
    Ends,
    Entry,
    Lane,
    Outlook,
    Reservation,
    RunTimes,
    depth_param,
    order_param,
    reserve,
    run_times_param,
)
from allocators.reasons import in_line, room
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

_UNUSED: Final = "easy backfilled nothing: the schedule is that of fifo."


@dataclass
class Easy(Allocator):
    """Start jobs in order; if the head has no room, start jobs behind it that end before it can
    start, or leave it enough.

    Notes
    -----
    Lifka's rule: when the head has no room, running jobs are expected to end as estimated; the
    instant at which enough of them have ended is its shadow time, and GPUs that are then left over
    are extra. A job behind the head starts now if it has room and either ends by the shadow time or
    takes extra GPUs only. Only the first ``depth`` jobs behind the head are looked at, as Slurm
    does.

    Ours: on mixed clusters the head is reserved on the type where it could start earliest, the
    preferred one where equal. Where cores and memory are limited, or the placement is
    ``consolidate``, nodes are reserved instead of a count. With ``run_times=limit`` a job without a
    time limit counts with its estimated run time. A limit that is outlived counts twice, as
    estimates do. The estimate of a waiting job is made when it first matters, for each type as if
    the job were alone; pauses at the start are not part of it.

    A head that waits for its preferred type is promised the earlier of two instants: when that type
    has room for it, or when, its waiting over, any other has. Those behind it that wait for their
    type pass it on that type only.
    """

    run_times: str = run_times_param()
    order: str = order_param()
    depth: int = depth_param()
    spare: bool = param(
        True,
        title="Use GPUs that the first job leaves over",
        help=(
            "Whether a job that outlasts the expected start of the first job may pass"
            " on GPUs left over then. Otherwise it passes only if it ends before that"
            " start."
        ),
    )
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    wait_for_type: float = wait_for_type_param()
    _place: Placer = field(init=False, repr=False)
    _patience: Patience | None = field(init=False, repr=False)
    _deadlines: list[tuple[float, JobId]] = field(init=False, repr=False, default_factory=list)
    _window: BackfillWindow = field(init=False, repr=False)
    _denials: Denials = field(init=False, repr=False, default_factory=Denials)
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
        brief="small jobs fill gaps, the first keeps its start",
        what=(
            "First come, first served, but jobs may fill gaps that do not delay the first of the"
            " queue."
        ),
        cost="Jobs behind the first may be delayed by jobs that pass them.",
        limits="As good as its estimates of run times; never stops a job.",
        source="D. Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995",
        certainty=(
            "exact on one GPU type with whole counts; our reading on mixed clusters and where cores"
            " or memory are limited"
        ),
        goals=("short waits", "baseline"),
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
        """Prepare an empty queue."""
        self._place = Placer(self.placement, self.types, self.mix)
        self._patience = Patience.of(self._place, self.wait_for_type)
        self._window = BackfillWindow(self.depth)
        self._times = RunTimes(self._place, by_limit=self.run_times == "limit")

    @property
    def needs(self) -> Needs:
        """Estimated run times."""
        return Needs(RUN_TIME, mixes_types=self.mix)

    def remarks(self) -> tuple[str, ...]:
        """Say that no job passed the head of the queue."""
        if self._backfilled or self._took_over or not self._begun:
            return ()
        return (_UNUSED,)

    def allocate(self, view: View, /) -> Plan:
        """Start the head while it has room, then what may pass it."""
        promise = self._promise
        self._follow_running(view)
        head_may_try = self._lose_patience(view) if self._deadlines else False
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
            hopeful = [
                lane
                for lane in (
                    lanes.values() if stale else [lanes[at] for at in self._fed if at in lanes]
                )
                if lane.gpus <= free
            ]
            if hopeful:
                self._backfill(view, hopeful)
        self._fed.clear()
        if self._deadlines:
            return Plan(self._started, wake_at_s=self._next_deadline_s())
        return Plan(self._started) if self._started else EMPTY

    def rule(self) -> QueueRule | None:
        """Return the rule, unless jobs wait for a type, or for nodes."""
        if self.wait_for_type or self.placement in WAITING:
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
        """State when the head of the queue is expected to start, and why no job passes it."""
        view, head = decided.view, self._head
        order = "by priority" if self.order == "priority" else "by submission"
        if head is None or head[1] == job:
            first = in_line(decided, job, (), order, blocks=True)
            at_s = self._promised_at_s(view, job)
            if at_s == inf:
                return first
            return Reason(
                f"{first.rule}, expected at {{start:instant}}", {**first.values, "start": at_s}
            )
        if decided.free_for(job) < decided.wants(job):
            return in_line(decided, job, self._ahead(job), order, blocks=False)
        if job not in self._window:
            return Reason(
                "it was not among the first {depth:jobs} behind the head of the queue, of which"
                " one may pass",
                {"depth": self.depth},
            )
        at_s = self._promised_at_s(view, head[1])
        if at_s == inf:
            return room(decided, job)
        run_s = self._times.waiting_s(view, job)
        return Reason(
            "{free:gpus_were} free, but its {run:duration} would have delayed job {head:job},"
            " which starts at {start:instant}",
            {"free": decided.free_for(job), "run": run_s, "head": head[1], "start": at_s},
        )

    def _promised_at_s(self, view: View, job: JobId) -> float:
        """Return when a job at the head could start, without keeping what is found."""
        if self._promise is not None and self._promise.job == job:
            return self._promise.at_s
        return reserve(view, self._place, self._ends, job, self._patience).at_s

    def _ahead(self, job: JobId) -> list[JobId]:
        head = [] if self._head is None else [self._head[1]]
        return head + self._window.before(job)

    # -- what runs
    # ----------------------------------------------------------------------------------------------

    def _follow_running(self, view: View) -> None:
        delta, ends, now_s = view.delta, self._ends, view.now_s
        if not self._begun:
            self._begun, self._took_over = True, bool(view.grants)
            for job, grant in view.grants.items():
                ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        for job in delta.finished:
            end = ends.drop(job)
            self._denials.give_back(end[2])
            if end[0] != now_s:
                self._promise = None
        if delta.evicted or delta.nodes:
            self._follow_losses(delta)
        for job in delta.resized:
            self._follow_resized(view, job)
        if ends.order and ends.order[0][0] <= now_s:
            for _, job, grant, _ in ends.overdue(now_s):
                self._promise = None
                # It has not ended at this instant, so it cannot end before the next.
                end_s = later(now_s + self._times.left_s(view, job, grant), now_s)
                ends.add(view.room, job, grant, end_s)

    def _follow_losses(self, delta: Delta) -> None:
        self._promise = None
        for eviction in delta.evicted:
            if eviction.job in self._ends:
                self._denials.give_back(self._ends.drop(eviction.job)[2])
        self._denials.renew(delta.nodes)

    def _follow_resized(self, view: View, job: JobId) -> None:
        self._promise = None
        if job in self._ends:
            self._denials.give_back(self._ends.drop(job)[2])
            grant = view.grants[job]
            self._ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        elif job in self._window:
            self._enter(view, self._window.remove(job))

    def _start(self, view: View, entry: Entry, grant: Grant, end_s: float) -> None:
        self._started[entry[1]] = grant
        self._ends.add(view.room, entry[1], grant, end_s)

    # -- what waits
    # ----------------------------------------------------------------------------------------------

    def _queue(self, view: View, entry: Entry) -> None:
        head = self._head
        if head is None:
            self._head = entry
            return
        if entry < head:
            self._head, entry = entry, head
        if not self._window.goes_behind(entry):
            self._enter(view, entry)

    def _enter(self, view: View, entry: Entry) -> Lane:
        demand, lanes = view.demand(entry[1]), self._window.lanes
        patient = self._patience is not None and self._is_patient(view, entry, self._patience)
        number = -demand.key if patient else demand.key
        lane = lanes.get(number)
        if lane is None:
            ways = self._place.ways(view, demand)
            groups = ways.groups[: ways.preferred] if patient else ways.groups
            limited = not self._place.counts(view, demand)
            lane = lanes[number] = Lane(number, demand, groups, limited=limited)
        self._window.add(lane, entry)
        self._fed.add(number)
        return lane

    def _is_patient(self, view: View, entry: Entry, patience: Patience) -> bool:
        """Tell whether a job still waits for its preferred type, and if so note until when."""
        until_s = patience.until_s(view, entry[1])
        if until_s <= view.now_s:
            return False
        if entry is not self._blocked:
            heappush(self._deadlines, (until_s, entry[1]))
        return True

    def _lose_patience(self, view: View) -> bool:
        """Allow jobs that have waited long enough any type; tell whether the head is one."""
        of_head = False
        while self._deadlines and self._deadlines[0][0] <= view.now_s:
            job = heappop(self._deadlines)[1]
            if job in self._window:
                self._enter(view, self._window.remove(job))
            of_head = of_head or (self._head is not None and self._head[1] == job)
        return of_head

    def _next_deadline_s(self) -> float:
        head, deadlines = self._head, self._deadlines
        while (
            deadlines
            and deadlines[0][1] not in self._window
            and (not head or deadlines[0][1] != head[1])
        ):
            heappop(deadlines)
        return deadlines[0][0] if deadlines else inf

    def _times_s(self, view: View, lane: Lane, entry: Entry) -> tuple[float, ...]:
        return tuple(
            instant(self._times.waiting_s(view, entry[1], at)) for at in range(len(lane.groups))
        )

    def _leave(self, view: View, entry: Entry) -> Lane | None:
        """Take a job out of the window, and return the lane of the one that comes in instead."""
        self._window.remove(entry[1])
        following = self._window.behind()
        return None if following is None else self._enter(view, following)

    def _start_heads(self, view: View) -> None:
        while self._head is not None:
            head = self._head
            place = (
                self._patience.place
                if self._patience and self._is_patient(view, head, self._patience)
                else self._place
            )
            grant = place(view, view.demand(head[1]))
            if grant is None:
                break
            self._start(view, head, grant, self._times.end_s(view, head[1], grant))
            self._promise = None
            self._head = self._window.first()
            if self._head is None:
                self._head = self._window.behind()
            else:
                self._leave(view, self._head)
        self._blocked = self._head

    # -- what may pass
    # ----------------------------------------------------------------------------------------------

    def _backfill(self, view: View, lanes: list[Lane]) -> None:
        look = Outlook(self._promised(view), partial(self._times_s, view))
        for lane in lanes:
            self._line_up(view, lane, look)
        while look.line:
            entry, group, starts, lane = heappop(look.line)
            look.lined_up.discard(lane.id)
            if (
                starts == look.starts or self._next(view, lane, look) == (entry, group)
            ) and self._try(view, entry, lane, group, look):
                look.starts += 1
                following = self._leave(view, entry)
                if following is not None and following is not lane:
                    self._line_up(view, following, look)
            self._line_up(view, lane, look)

    def _line_up(self, view: View, lane: Lane, look: Outlook) -> None:
        found = (
            self._next(view, lane, look) if lane.order and lane.id not in look.lined_up else None
        )
        if found is not None:
            heappush(look.line, (*found, look.starts, lane))
            look.lined_up.add(lane.id)

    def _next(self, view: View, lane: Lane, look: Outlook) -> tuple[Entry, int] | None:
        """Return the first job of a lane that may pass, and the group of pools where."""
        best: tuple[Entry, int] | None = None
        room, promise = view.room, look.promise
        for group, pools in enumerate(lane.groups):
            if (room.free[pools[0]] if len(pools) == 1 else room.gpus_free(pools)) < lane.gpus:
                continue
            if lane.limited and (
                (lane.id, group) in look.full or self._denials.holds(view, lane.demand, pools)
            ):
                continue
            if (
                self.spare
                and promise.may_spare(lane.gpus, pools)
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

    def _promised(self, view: View) -> Reservation:
        head = self._head
        assert head is not None
        if self._promise is None or self._promise.job != head[1]:
            self._promise = reserve(view, self._place, self._ends, head[1], self._patience)
        return self._promise

    def _try(self, view: View, entry: Entry, lane: Lane, group: int, look: Outlook) -> bool:
        grant = self._place.within(view, lane.demand, lane.groups[group])
        if grant is None:
            look.full.add((lane.id, group))
            self._denials.deny(view, lane.demand, lane.groups[group])
            return False
        end_s, promise = self._times.end_s(view, entry[1], grant), look.promise
        if end_s > promise.at_s and not (
            self.spare and promise.spares(self._ends.gpus_by_pool(view.room, grant), grant)
        ):
            view.room.give(grant)
            if (lane.id, group) in look.only_short:
                look.barred.add(entry[1])
            look.only_short.add((lane.id, group))
            return False
        self._start(view, entry, grant, end_s)
        self._backfilled = True
        return True
