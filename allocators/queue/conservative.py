"""Conservative backfilling: jobs pass others only if they delay no planned start."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

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
        self._at_s: NDArray[np.float64] = np.array(sorted(changes))
        self._free: NDArray[np.int64] = np.cumsum(
            np.array([changes[at_s] for at_s in self._at_s.tolist()], dtype=np.int64), axis=0
        )

    @property
    def is_possible(self) -> bool:
        """Return True if no GPU is used twice at any time."""
        return bool(self._free.min() >= 0)

    def earliest(self, pools: tuple[int, ...], gpus: int, run_s: float) -> Slot | None:
        """Return the first slot with enough free GPUs in these pools for `run_s` s, or None.

        Each pool gives the GPUs that it has free during the whole slot, the first pool first.
        """
        at_s, free = self._at_s, self._free[:, pools]
        enough = free.sum(axis=1) >= gpus
        too_few_s = np.minimum.accumulate(np.where(enough, inf, at_s)[::-1])[::-1]
        for step in np.flatnonzero(enough & (at_s + run_s <= too_few_s + STEP_S)).tolist():
            from_s = float(at_s[step])
            until_s = instant(from_s + run_s)
            behind = max(int(np.searchsorted(at_s, until_s)), step + 1)
            held, missing = [], gpus
            for pool, there in zip(pools, free[step:behind].min(axis=0).tolist(), strict=True):
                taken = min(max(there, 0), missing)
                missing -= taken
                held.append((pool, taken))
            if not missing and from_s < inf:
                return Slot(from_s, until_s, tuple(held))
        return None

    def take(self, slot: Slot, sign: int = 1) -> None:
        """Subtract the GPUs of a slot; add them back with `sign` -1."""
        first, last = self._step(slot.from_s), self._step(slot.until_s)
        for pool, gpus in slot.gpus:
            self._free[first:last, pool] -= sign * gpus

    def _step(self, at_s: float) -> int:
        """Return the index of the step that begins at a time; insert one if missing."""
        at_s = max(at_s, self._at_s[0])
        step = int(np.searchsorted(self._at_s, at_s))
        if step == len(self._at_s) or self._at_s[step] != at_s:
            self._at_s = np.insert(self._at_s, step, at_s)
            self._free = np.insert(self._free, step, self._free[step - 1], axis=0)
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
        return ("conservative backfilled nothing: the schedule is that of fifo.",)

    def allocate(self, view: View, /) -> Plan:
        """Move plans forward and start the jobs with a due plan.

        If a plan is overdue or plans no longer fit, all are made again.
        """
        self._update_jobs(view)
        if not self._waiting:
            return EMPTY
        profile = self._profile(view)
        overdue = any(slot.from_s < view.now_s for slot in self._plans.values())
        if overdue or not profile.is_possible:
            self._plans.clear()
            profile = self._profile(view)
            self._room_was_freed = True
        started: dict[JobId, Grant | None] = {}
        self._ends_earlier = False
        # A plan that moves leaves a gap in which an earlier job of the queue may start.
        while self._advance_plans(view, profile, started) and self._room_was_freed:
            pass
        self._room_was_freed = self._ends_earlier
        if not started:
            return EMPTY
        self._waiting = [entry for entry in self._waiting if entry[1] not in started]
        return Plan(started)

    def _advance_plans(
        self, view: View, profile: Profile, started: dict[JobId, Grant | None]
    ) -> bool:
        """Try the plans in order once; return True if any moved forward or came due.

        Grants of jobs that start are added to `started`. Stops after `depth` jobs that cannot
        start.
        """
        moved, stuck = False, 0
        for _, job in self._waiting:
            if stuck > self.depth:
                break
            plan = self._plans.get(job)
            due = plan is None or plan.from_s <= view.now_s
            if job in started or not (due or self._room_was_freed):
                stuck += job not in started
                continue
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
        delta, ends, now_s = view.delta, self._ends, view.now_s
        if not self._begun:
            self._begun = True
            for job, grant in view.grants.items():
                ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        self._room_was_freed |= bool(delta.evicted or delta.nodes or delta.resized)
        for job in delta.finished:
            self._room_was_freed |= ends.drop(job)[0] != now_s
        for eviction in delta.evicted:
            if eviction.job in ends:
                ends.drop(eviction.job)
        for job in delta.resized:
            self._plans.pop(job, None)
            if job in ends:
                ends.drop(job)
                grant = view.grants[job]
                ends.add(view.room, job, grant, self._times.end_s(view, job, grant))
        for _, job, grant, _ in ends.overdue(now_s):
            # It has not ended at this instant, so it cannot end before the next.
            end_s = later(now_s + self._times.remaining_s(view, job, grant), now_s)
            ends.add(view.room, job, grant, end_s)
        for job in newly_waiting(delta):
            self._enqueue(view, job)

    def _enqueue(self, view: View, job: JobId) -> None:
        """Insert a job into the queue and drop the plans of all jobs behind it."""
        waiting = self._waiting
        entry = ((-view.one("priority", job),) if self.order == "priority" else (), job)
        at = bisect_left(waiting, entry)
        for _, other in waiting[at:]:
            self._plans.pop(other, None)
        waiting.insert(at, entry)

    # -- plans -----------------------------------------------------------------------------------

    def _profile(self, view: View) -> Profile:
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
        slots = [
            profile.earliest(pools, gpus, self._times.waiting_s(view, job, at))
            for at, pools in enumerate(groups)
        ]
        first = min(
            ((slot.from_s, at) for at, slot in enumerate(slots) if slot is not None), default=None
        )
        if first is None:
            return None
        plan = slots[first[1]]
        assert plan is not None, "the earliest slot exists"
        if plan.from_s <= now_s:
            grant = self._start(view, job, self._place.place_within(view, demand, groups[first[1]]))
            if grant is not None:
                held = self._ends.gpus_by_pool(view.room, grant)
                end_s = self._times.end_s(view, job, grant)
                profile.take(Slot(now_s, end_s, held))
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
