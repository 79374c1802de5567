"""Conservative backfilling: jobs pass others only if they delay no planned start."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, merge
from math import inf
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators.placement import RUN_TIME_NEEDS, Placer, mix_param, placement_param, types_param
from allocators.queue.backfill import (
    Ends,
    Entry,
    RunTimes,
    depth_param,
    order_param,
    run_times_param,
)
from allocators.reasons import queue_reason, room_reason
from allocators.toolkit import newly_waiting
from sim.contract import (
    EMPTY,
    STEP_S,
    Allocator,
    Card,
    Decided,
    Grant,
    JobId,
    Needs,
    Plan,
    Reason,
    View,
    instant,
    later,
)

Held = tuple[tuple[int, int], ...]
"""GPUs by pool, as (pool, GPUs)."""


_MORE_STEPS: Final = 64
"""Smallest number of steps that a profile has room for beyond its own."""


class Slot(NamedTuple):
    """A planned run: start, end, and GPUs by pool."""

    from_s: float
    until_s: float
    gpus: Held


class Profile:
    """Free GPUs of every pool over time, as a step function.

    Parameters
    ----------
    now_s : float, seconds
        Start of the profile.
    free : sequence of int
        Free GPUs of each pool now.
    slots : iterable of Slot
        Planned runs and running jobs.
    """

    def __init__(self, now_s: float, free: Sequence[int], slots: Iterable[Slot]) -> None:
        changes: dict[float, list[int]] = {now_s: list(free)}
        for slot in slots:
            for at_s, sign in ((slot.from_s, -1), (slot.until_s, 1)):
                step = changes.setdefault(max(at_s, now_s), [0] * len(free))
                for pool, gpus in slot.gpus:
                    step[pool] += sign * gpus
        self.may_clash = True
        """Whether a slot was taken without a check that its GPUs are free."""
        times_s = sorted(changes)
        self._set_steps(
            np.array(times_s),
            np.cumsum(np.array([changes[at_s] for at_s in times_s], dtype=np.int64), axis=0).T,
        )

    def _set_steps(self, at_s: NDArray[np.float64], free: NDArray[np.int64]) -> None:
        """Store the steps, with room for as many more; the time behind the last one is inf."""
        steps = self._steps = len(at_s)
        self._at_s = np.full(2 * steps + _MORE_STEPS, inf)
        self._at_s[:steps] = at_s
        self._free = np.zeros((len(free), len(self._at_s)), np.int64)
        self._free[:, :steps] = free

    @property
    def is_possible(self) -> bool:
        """Return True if no GPU is used twice at any time."""
        if self.may_clash:
            self.may_clash = bool(self._free[:, : self._steps].min() < 0)
        return not self.may_clash

    def advance(self, now_s: float) -> None:
        """Begin the profile now; drop earlier steps, and steps without a change if many."""
        first = int(self._at_s[: self._steps].searchsorted(now_s, side="right")) - 1
        if first > 0:
            steps = self._steps - first
            self._at_s[: steps + 1] = self._at_s[first : self._steps + 1]
            self._free[:, :steps] = self._free[:, first : self._steps]
            self._steps = steps
        self._at_s[0] = now_s
        if 2 * self._steps > len(self._at_s):
            free = self._free[:, : self._steps]
            is_change = np.append(True, (free[:, 1:] != free[:, :-1]).any(axis=0))
            self._set_steps(self._at_s[: self._steps][is_change], free[:, is_change])

    def earliest(self, pools: tuple[int, ...], gpus: int, run_s: float) -> Slot | None:
        """Return the first slot with enough free GPUs in these pools for `run_s` s, or None.

        Each pool gives the GPUs that it has free during the whole slot, the first pool first.
        """
        if len(pools) == 1:
            return self._earliest_in(pools[0], gpus, run_s)
        at_s, free = self._at_s[: self._steps], self._free[pools, : self._steps]
        enough = free.sum(axis=0) >= gpus
        too_few_s = np.minimum.accumulate(np.where(enough, inf, at_s)[::-1])[::-1]
        for step in np.flatnonzero(enough & (at_s + run_s <= too_few_s + STEP_S)).tolist():
            from_s = float(at_s[step])
            until_s = instant(from_s + run_s)
            behind = max(int(at_s.searchsorted(until_s)), step + 1)
            held, missing = [], gpus
            for pool, there in zip(pools, free[:, step:behind].min(axis=1).tolist(), strict=True):
                taken = min(max(there, 0), missing)
                missing -= taken
                held.append((pool, taken))
            if not missing and from_s < inf:
                return Slot(from_s, until_s, tuple(held))
        return None

    def _earliest_in(self, pool: int, gpus: int, run_s: float) -> Slot | None:
        """Return the first slot in one pool: the first long enough span with enough GPUs."""
        at_s, lacks = self._at_s, self._free[pool, : self._steps] < gpus
        edges = ((lacks[1:] != lacks[:-1]).nonzero()[0] + 1).tolist()
        if not lacks[0]:
            edges.insert(0, 0)
        edges.append(self._steps)  # not used if the profile ends with too few
        for first, behind in zip(edges[::2], edges[1::2], strict=False):
            from_s = float(at_s[first])
            until_s = instant(from_s + run_s)
            if until_s <= at_s[behind] and from_s < inf:
                return Slot(from_s, until_s, ((pool, gpus),))
        return None

    def take(self, slot: Slot, sign: int = 1) -> None:
        """Subtract the GPUs of a slot; add them back with `sign` -1."""
        first, last = self._step(slot.from_s), self._step(slot.until_s)
        for pool, gpus in slot.gpus:
            self._free[pool, first:last] -= sign * gpus

    def _step(self, at_s: float) -> int:
        """Return the index of the step that begins at a time; insert one if missing."""
        steps, times_s, free = self._steps, self._at_s, self._free
        if at_s <= times_s[0]:
            return 0
        step = int(times_s[:steps].searchsorted(at_s))
        if step == steps or times_s[step] != at_s:
            if steps + 2 > len(times_s):
                self._set_steps(times_s[:steps], free[:, :steps])
                times_s, free = self._at_s, self._free
            times_s[step + 1 : steps + 2] = times_s[step : steps + 1]
            free[:, step + 1 : steps + 1] = free[:, step:steps]
            times_s[step] = at_s
            free[:, step] = free[:, step - 1]
            self._steps = steps + 1
        return step


@dataclass
class Conservative(Allocator):
    """Plan the start of every waiting job in order; a job starts when its plan is due.

    Notes
    -----
    Each newcomer gets the earliest slot of its length between the plans of all jobs before it. When
    a job ends early or nodes return, all plans are tried again in order, each with all others in
    place: a plan moves forward or stays, so no job is delayed by one behind it. When a job runs
    longer than estimated or nodes leave, all plans are made again in order.

    Ours: plans count GPUs by pool; cores, memory and the shape of a gang are checked when a plan is
    due. A job that cannot be placed then keeps its GPUs in the plan and is tried again at the next
    event. Jobs without GPUs start in order as soon as they fit. On mixed clusters a job is planned
    on the type where it starts first, the preferred one in a tie. Only the first ``depth`` jobs
    behind the first one have plans.
    """

    run_times: str = run_times_param()
    order: str = order_param()
    depth: int = depth_param()
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _place: Placer = field(init=False, repr=False)
    _times: RunTimes = field(init=False, repr=False)
    _ends: Ends = field(init=False, repr=False, default_factory=Ends)
    _waiting: list[Entry] = field(init=False, repr=False, default_factory=list)
    _plans: dict[JobId, Slot] = field(init=False, repr=False, default_factory=dict)
    _starts: list[tuple[float, Entry]] = field(init=False, repr=False, default_factory=list)
    _unplanned: list[Entry] = field(init=False, repr=False, default_factory=list)
    _profile: Profile | None = field(init=False, repr=False, default=None)
    _free: list[int] = field(init=False, repr=False, default_factory=list)
    _begun: bool = field(init=False, repr=False, default=False)
    _room_was_freed: bool = field(init=False, repr=False, default=False)
    _ends_earlier: bool = field(init=False, repr=False, default=False)
    _has_backfilled: bool = field(init=False, repr=False, default=False)

    card = Card(
        title="Conservative backfilling",
        brief="fills gaps; never delays a planned start",
        what="Every waiting job has a planned start, and no job behind it may delay that start.",
        cost="Fills fewer gaps than EASY, which protects only the first job.",
        limits="Depends on the accuracy of run-time estimates. Never preempts jobs.",
        source=(
            "Mu'alem and Feitelson, Utilization, predictability, workloads, and user runtime"
            " estimates in scheduling the IBM SP2 with backfilling, IEEE TPDS 12 (2001)"
        ),
        certainty=(
            "exact where GPUs are counted on one type; our reading: how plans move forward,"
            " mixed clusters, places that matter"
        ),
        goals=("short waits",),
        how=(
            "A job that arrives gets the earliest start that all plans before it allow.",
            "It starts at that time, or earlier if a job ends before its estimate.",
            "Then plans move forward in order of the queue; no later job ever moves one back.",
            "If a job outlives its estimate, all plans are made anew in order.",
            "A running job is never stopped.",
        ),
    )

    def __post_init__(self) -> None:
        """Create the placer and the estimated run times."""
        self._place = Placer(self.placement, self.types, self.mix)
        self._times = RunTimes(self._place, by_limit=self.run_times == "limit")

    @property
    def needs(self) -> Needs:
        """Need estimated run times."""
        return Needs(RUN_TIME_NEEDS, mixes_types=self.mix)

    def remarks(self) -> tuple[str, ...]:
        """Return a note if no job passed another."""
        if self._has_backfilled or not self._begun:
            return ()
        return ("Conservative backfilling moved nothing: the schedule is that of FIFO.",)

    def allocate(self, view: View, /) -> Plan:
        """Move plans forward and start the jobs with a due plan.

        If a plan is overdue or plans no longer fit, all are made again.
        """
        self._update_jobs(view)
        if not self._waiting:
            return EMPTY
        profile = self._current_profile(view)
        if self._is_overdue(view.now_s) or not profile.is_possible:
            self._plans.clear()
            profile = self._profile = self._new_profile(view)
            self._room_was_freed = True
        started: dict[JobId, Grant | None] = {}
        self._ends_earlier = False
        if self._room_was_freed:
            # A plan that moves leaves a gap in which an earlier job of the queue may start.
            while self._advance_plans(view, profile, started):
                pass
            self._waiting = [entry for entry in self._waiting if entry[1] not in started]
            self._unplanned = [entry for entry in self._waiting if entry[1] not in self._plans]
            self._starts = [
                (self._plans[entry[1]].from_s, entry)
                for entry in self._waiting
                if entry[1] in self._plans
            ]
            heapify(self._starts)
        else:
            self._start_due(view, profile, started)
        self._room_was_freed = self._ends_earlier
        self._free = list(view.room.free)
        return Plan(started) if started else EMPTY

    def _advance_plans(
        self, view: View, profile: Profile, started: dict[JobId, Grant | None]
    ) -> bool:
        """Try all plans in order once; return True if any moved forward.

        Grants of jobs that start are added to `started`. Stops after `depth` jobs that cannot
        start.
        """
        moved, stuck = False, 0
        for _, job in self._waiting:
            if stuck > self.depth:
                break
            if job in started:
                continue
            plan = self._plans.get(job)
            grant = self._try(view, job, profile)
            if grant is None:
                stuck += 1
            else:
                started[job] = grant
                self._has_backfilled = self._has_backfilled or stuck > 0
            moved |= plan is not None and (
                job not in self._plans or self._plans[job].from_s < plan.from_s
            )
        return moved

    def _start_due(self, view: View, profile: Profile, started: dict[JobId, Grant | None]) -> None:
        """Start jobs with a due plan, and plan jobs without one; other plans cannot move.

        Grants of jobs that start are added to `started`. Stops after `depth` jobs that cannot
        start.
        """
        waiting, plans, starts, unplanned = self._waiting, self._plans, self._starts, []
        due: set[Entry] = set()
        while starts and starts[0][0] <= view.now_s:
            from_s, entry = heappop(starts)
            if self._is_planned(from_s, entry):
                due.add(entry)
        tried, first = [], 0
        for entry in merge(sorted(due), self._unplanned):
            stuck = bisect_left(waiting, entry) - len(started)
            if stuck > self.depth:
                break
            job = entry[1]
            tried.append(entry)
            first += job not in plans
            grant = self._try(view, job, profile)
            if grant is not None:
                started[job] = grant
                self._has_backfilled = self._has_backfilled or stuck > 0
            elif job not in plans:
                unplanned.append(entry)
        self._unplanned[:first] = unplanned
        for entry in due.union(tried):
            if entry[1] in started:
                del waiting[bisect_left(waiting, entry)]
            elif entry[1] in plans:
                heappush(starts, (plans[entry[1]].from_s, entry))

    def _is_planned(self, from_s: float, entry: Entry) -> bool:
        """Return True if a job is still planned to start at a time."""
        plan = self._plans.get(entry[1])
        return plan is not None and plan.from_s == from_s

    def _is_overdue(self, now_s: float) -> bool:
        """Return True if a planned start has passed."""
        starts = self._starts
        while starts and not self._is_planned(*starts[0]):
            heappop(starts)
        return bool(starts) and starts[0][0] < now_s

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the planned start of a job and the number of jobs before it."""
        order = "by priority" if self.order == "priority" else "by submission"
        jobs = [entry[1] for entry in self._waiting]
        ahead = jobs[: jobs.index(job)] if job in jobs else []
        plan = self._plans.get(job)
        if plan is None:
            return queue_reason(decided, job, ahead, order, blocks=False)
        if plan.from_s <= decided.view.now_s:
            return room_reason(decided, job)
        return Reason(
            f"{{ahead:jobs_were}} ahead {order}; it is planned to start at {{start:instant}}",
            {"ahead": len(ahead), "start": plan.from_s},
        )

    # -- what happened ---------------------------------------------------------------------------

    def _update_jobs(self, view: View) -> None:
        """Update running jobs, their ends, and waiting jobs from the events since the last call.

        Records whether resources became free earlier than planned.
        """
        delta, ends = view.delta, self._ends
        if delta.evicted or delta.nodes or delta.resized:
            self._profile, self._room_was_freed = None, True
        if self._profile is not None:
            self._profile.advance(view.now_s)
        if not self._begun:
            self._begun = True
            for job, grant in view.grants.items():
                ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        self._drop_finished(view)
        for eviction in delta.evicted:
            if eviction.job in ends:
                ends.drop(eviction.job)
        for job in delta.resized:
            self._plans.pop(job, None)
            if job in ends:
                ends.drop(job)
                grant = view.grants[job]
                ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        self._extend_overdue(view)
        for job in newly_waiting(delta):
            self._enqueue(view, job)

    def _drop_finished(self, view: View) -> None:
        """Give back the GPUs of finished jobs; record whether one ended before its estimate."""
        now_s, profile = view.now_s, self._profile
        for job in view.delta.finished:
            end_s, _, _, gpus = self._ends.drop(job)
            self._room_was_freed |= end_s != now_s
            if profile is not None:
                for pool, count in gpus:
                    self._free[pool] += count
                if end_s > now_s:
                    profile.take(Slot(now_s, end_s, gpus), -1)

    def _extend_overdue(self, view: View) -> None:
        """Estimate again the ends of running jobs that should have ended by now."""
        now_s = view.now_s
        for _, job, grant, gpus in self._ends.overdue(now_s):
            # It has not ended at this instant, so it cannot end before the next.
            end_s = later(now_s + self._times.remaining_s(view, job, grant), now_s)
            self._ends.add(view.room, job, grant, end_s)
            if self._profile is not None:
                self._profile.take(Slot(now_s, end_s, gpus))
                self._profile.may_clash = True

    def _enqueue(self, view: View, job: JobId) -> None:
        """Insert a job into the queue and drop the plans of all jobs behind it."""
        waiting = self._waiting
        entry = ((-view.one("priority", job),) if self.order == "priority" else (), job)
        at = bisect_left(waiting, entry)
        for _, other in waiting[at:]:
            plan = self._plans.pop(other, None)
            if plan is not None and self._profile is not None:
                self._profile.take(plan, -1)
        waiting.insert(at, entry)
        self._unplanned[bisect_left(self._unplanned, entry) :] = waiting[at:]

    # -- plans -----------------------------------------------------------------------------------

    def _current_profile(self, view: View) -> Profile:
        """Return the profile of the last decision, or a new one if other GPUs are free now.

        So it is with a decision latency, and if other policies share the nodes.
        """
        if self._profile is None or self._free != list(view.room.free):
            self._profile = self._new_profile(view)
        return self._profile

    def _new_profile(self, view: View) -> Profile:
        """Return the free GPUs over time, given running jobs and plans."""
        running = [Slot(-inf, end_s, gpus) for end_s, _, _, gpus in self._ends.order]
        free = list(view.room.free)
        for slot in running:
            for pool, gpus in slot.gpus:
                free[pool] += gpus
        return Profile(view.now_s, free, [*running, *self._plans.values()])

    def _try(self, view: View, job: JobId, profile: Profile) -> Grant | None:
        """Plan a waiting job anew; if the plan is due, start it and return its grant, else None.

        A plan that is not due, or whose nodes are missing, is recorded in the profile. A job
        without GPUs starts without a plan.
        """
        demand, now_s = view.demand(job), view.now_s
        if not demand.gpus:
            return self._start(view, job, self._place(view, demand))
        old = self._plans.pop(job, None)
        if old is not None:
            profile.take(old, -1)
        groups, gpus = self._place.options(view, demand).groups, demand.replicas * demand.gpus
        plan: Slot | None = None
        chosen: tuple[int, ...] = ()
        for at, pools in enumerate(groups):
            slot = profile.earliest(pools, gpus, self._times.waiting_s(view, job, at))
            if slot is not None and (plan is None or slot.from_s < plan.from_s):
                plan, chosen = slot, pools
        if plan is None:
            return None
        if plan.from_s <= now_s:
            grant = self._start(view, job, self._place.place_within(view, demand, chosen))
            if grant is not None:
                end_s, _, _, held = self._ends[job]
                profile.take(Slot(now_s, end_s, held))
                profile.may_clash |= end_s > plan.until_s or held != plan.gpus
                self._ends_earlier |= end_s < plan.until_s
                return grant
        self._plans[job] = plan
        profile.take(plan)
        return None

    def _start(self, view: View, job: JobId, grant: Grant | None) -> Grant | None:
        """Record the estimated end of a job that got a grant; return the grant."""
        if grant is not None:
            self._ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        return grant
