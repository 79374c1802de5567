"""SRTF: jobs with the shortest estimated remaining time run first and preempt others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import nextafter
from typing import Any

from allocators.placement import (
    RUN_TIME_NEEDS,
    WAITING_PLACEMENTS,
    Placer,
    empty_cluster_grant,
    mix_param,
    placement_param,
    types_param,
)
from allocators.queue.preemption import PriorityPreemption
from allocators.queue.running_index import (
    MAX_PRIORITY_LIMIT,
    MIN_PRIORITY_LIMIT,
    Height,
    Key,
    Priorities,
    RunningIndex,
    RunningSlot,
)
from allocators.queue.upgrade import Upgrades, migrate_param, slowest_speed
from allocators.reasons import outranked_reason
from allocators.toolkit import backfill_param, queue_rule
from sim.contract import (
    EMPTY,
    STEP_S,
    Allocator,
    Card,
    Decided,
    Demand,
    Grant,
    JobId,
    Needs,
    Plan,
    QueueRule,
    Reason,
    View,
    inf,
    instant,
    param,
)

_UNUSED = "SRTF stopped no jobs: it only chose their start order."
_LATE_S = 1 / 64  # time after its estimated finish when a job is estimated again
_MIN_WAKE_S = 1.0  # shortest time between two such wake-ups


class Remaining:
    """Priorities by estimated remaining time, or by remaining time times GPUs.

    Implements `allocators.queue.running_index.Priorities`.

    Parameters
    ----------
    place : Placer
        Places the jobs.
    by_gpus : bool
        Whether times are multiplied by GPUs; a job without GPUs counts once.

    Notes
    -----
    Times are those on a GPU of speed 1, whatever type a job holds: jobs that compete for the same
    GPUs are compared as they would run on them, and no job is preempted for one that would need
    longer in its place. On a cluster of one type this is remaining work over estimated rate. Times
    are rounded to microseconds and include the pause of the next start or restart. On a GPU of
    another speed the pause takes as long, so the estimated finish is slightly wrong; an exact count
    would let two jobs preempt each other forever.

    The remaining time of a waiting job is constant; that of a running one falls at a constant pace.
    So running jobs of one pace stay sorted by estimated finish, which is their height in the group
    of that pace. A job that did not finish in time is estimated again.

    Equal jobs keep the order of the previous decision, newcomers last, as if a list were sorted at
    every decision: first jobs that have waited since an earlier decision, then jobs that ran, then
    newcomers. Of two that ran, the one with the slower pace goes first. A job that has just lost
    work by an outage keeps the place that it had before. The height of a running job is therefore
    (finish, plus or minus the time of its start, count); the key of a waiting job is (remaining
    time, start of its wait), followed by `_order_among_equals` if it ran until then.
    """

    def __init__(self, place: Placer, *, by_gpus: bool) -> None:
        self._order_among_equals, self._by_gpus = place, by_gpus
        self._empty_grants: dict[int, tuple[Grant, float]] = {}
        self._scale: dict[JobId, tuple[float, float]] = {}
        self._pause_s: dict[JobId, float] = {}
        self._starts: dict[JobId, tuple[float, Height, Key]] = {}
        self._waited: dict[JobId, Key] = {}
        self._count = 0
        self.decided_s = 0.0

    def key(self, view: View, job: JobId) -> Key:
        """Return (remaining time, tie-breakers...) of a job that begins to wait.

        Also records its scale if it is new, and the pause of its next start.
        """
        if job not in self._scale:
            self._scale[job] = self._scale_and_weight(view, job)
            if job not in view.grants:
                self._note_pause(view, job)
        start, now_s = self._starts.pop(job, None), view.now_s
        if start is None:
            need, old = (
                self._remaining_s(view, job),
                self._waited.pop(job, None) if self._waited else None,
            )
            if old is None or need < old[0]:
                return need, now_s, inf
            # A job that has lost work since it was stopped goes before those that need as much.
            return old if need == old[0] else (need, -now_s, *old)
        pace, height, key = start
        if abs(height[1]) == now_s:
            if job not in view.grants:
                return key  # its start was decided at this instant
            # Jobs that were running before this decision keep their order.
            ran_until_now = key[1:] == (now_s, inf)
            place = (now_s, *_order_among_equals(pace, height, now_s)) if ran_until_now else key[1:]
        elif (
            job in view.grants or self._remaining_s(view, job) <= instant(height[0] - now_s) * pace
        ):
            place = (now_s, *_order_among_equals(pace, height, now_s))
        else:
            before = instant(height[0] - self.decided_s) * pace
            place = (now_s, _LOST, before, *_order_among_equals(pace, height, self.decided_s))
        self._note_pause(view, job)
        return (self._remaining_s(view, job), *place)

    def position(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return pace and (estimated finish, tie-breakers) of a job that starts; record them."""
        scale, weight = self._scale[job]
        pace = _round_pace(view.estimates.rate(job, grant) * scale * weight)
        now_s = view.now_s
        self._count += 1
        # Inlined from `_tie_key` for waiting jobs, to save a call per start.
        since, count = (
            (-now_s, self._count) if key[1] < now_s else _tie_key(pace, key, now_s, self._count)
        )
        # A job that starts must keep its rank, or two jobs would preempt each other forever. So
        # the pause counts at the same pace, although on a faster GPU it takes no less time.
        height = instant(now_s + key[0] / pace), since, count
        self._starts[job] = pace, height, key
        return pace, height

    def move_position(
        self, view: View, job: JobId, grant: Grant, slot: RunningSlot
    ) -> tuple[float, Height]:
        """Return pace and height of a running job after a move, including the pause of the move."""
        place = _order_among_equals(slot.group.tag, slot.height, view.now_s)
        self._note_pause(view, job, slot.grant, grant)
        return self.position(view, job, grant, (self._remaining_s(view, job), view.now_s, *place))

    def limit(self, group: float, key: Key, now_s: float) -> Height:
        """Return the finish beyond which a running job needs more time than the waiting one."""
        since, count = _tie_key(group, key, now_s, inf)
        return instant(now_s + key[0] / group), since, count

    def rank(self, group: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return the remaining time of a running job and its tie-breakers; larger is worse."""
        need = instant(height[0] - now_s) * group
        return (need, *_order_among_equals(group, height, now_s))

    def is_outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Return True if the remaining time of a preempted job has changed."""
        return self._remaining_s(view, job) != key[0]

    def confirm_start(self, view: View, job: JobId) -> None:
        """Do nothing: a late start only makes the estimated finish late, which is updated."""

    def stop_waiting(self, job: JobId, key: Key) -> None:
        """Store the key of a job that will wait anew with another size."""
        self._waited[job] = key

    def forget(self, finished: tuple[JobId, ...]) -> None:
        """Delete the records of finished jobs."""
        for job in finished:
            self._scale.pop(job, None)
            self._starts.pop(job, None)
            if self._waited:
                self._waited.pop(job, None)
            if self._pause_s:
                self._pause_s.pop(job, None)

    def _remaining_s(self, view: View, job: JobId) -> float:
        """Return the remaining time of a job, with its next pause, times its weight."""
        scale, weight = self._scale[job]
        left_s = view.one("remaining_work", job) * scale
        if self._pause_s:
            left_s += self._pause_s.get(job, 0.0)
        return instant(left_s) * weight

    def _note_pause(
        self, view: View, job: JobId, old: Grant | None = None, new: Grant | None = None
    ) -> None:
        """Record the pause of a job's next change; without `new`, of its start."""
        if new is None:
            demand = view.demand(job)  # changed if the job was resized
            new, _ = self._empty_grants.get(demand.key) or self._empty_grant_and_speed(view, demand)
        pause_s = view.estimates.pause_s(job, old, new)
        if pause_s or job in self._pause_s:
            self._pause_s[job] = pause_s

    def _scale_and_weight(self, view: View, job: JobId) -> tuple[float, float]:
        """Return seconds on a GPU of speed 1 per unit of work, inf if none, and the weight."""
        demand = view.demand(job)
        whole, speed = self._empty_grants.get(demand.key) or self._empty_grant_and_speed(
            view, demand
        )
        rate = view.estimates.rate(job, whole)
        weight = max(view.one("gpus", job), 1.0) if self._by_gpus else 1.0
        return speed / rate if rate > 0 else inf, weight

    def _empty_grant_and_speed(self, view: View, demand: Demand) -> tuple[Grant, float]:
        """Return a demand's grant on an empty cluster and the speed of its slowest type; cached."""
        # A gang over several types, started by an earlier policy, may have no group of pools.
        whole = empty_cluster_grant(
            view, demand, self._order_among_equals.options(view, demand).groups or (demand.pools,)
        )
        self._empty_grants[demand.key] = entry = whole, slowest_speed(view, whole)
        return entry


@lru_cache(maxsize=1024)
def _round_pace(pace: float) -> float:
    """Return a pace rounded to nine digits and above 0; cached because few values occur."""
    return max(round(pace, 9), 1e-9)


_LOST = -1.0


def _tie_key(pace: float, key: Key, now_s: float, count: float) -> tuple[Any, ...]:
    """Return the sort key of a waiting job among running jobs of the same remaining time."""
    if key[1] < now_s or key[2] == _LOST:
        return -now_s, count  # before jobs that ran while it waited
    if len(key) == 3:
        return now_s, count  # a newcomer
    if key[2] == 0 and key[3] != pace:
        # It ran until now at another pace: next to those jobs, sorted by that pace.
        return nextafter(-now_s if key[3] < pace else now_s, 0.0), key[3:]
    return key[4:]  # stopped at this decision


def _order_among_equals(pace: float, height: Height, now_s: float) -> tuple[Any, ...]:
    """Return the sort key of a running job among jobs of the same remaining time.

    It consists of 0 for a job that ran before, -1 for one that waited and has just started, or 1
    for a newcomer; then its pace if it ran, and the rest of its height.
    """
    _, started, count = height
    if started == now_s:
        return 1.0, 0.0, started, count
    if started == -now_s:
        return -1.0, 0.0, started, count
    # `_tie_key` marks a job that has just changed its pace in this way.
    return (0.0, *count) if abs(started) == nextafter(now_s, 0.0) else (0.0, pace, started, count)


class Smallest:
    """Priorities by number of GPUs, then by submission.

    Implements `allocators.queue.running_index.Priorities`.
    """

    def key(self, view: View, job: JobId) -> Key:
        """Return the GPUs and the row in the trace."""
        return view.one("gpus", job), job

    def position(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return the GPUs and the row in the trace as group and height."""
        del view, job, grant
        return key[0], key[1:]

    def move_position(
        self, view: View, job: JobId, grant: Grant, slot: RunningSlot
    ) -> tuple[float, Height]:
        """Return the unchanged group and height."""
        del view, job, grant
        return slot.group.tag, slot.height

    def limit(self, group: float, key: Key, now_s: float) -> Height:
        """Return the height above which jobs of `group` GPUs rank below a waiting job.

        That is all larger jobs, no smaller ones, and of the same size the later ones.
        """
        del now_s
        if group != key[0]:
            return MAX_PRIORITY_LIMIT if group > key[0] else MIN_PRIORITY_LIMIT
        return key[1:]

    def rank(self, group: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return the GPUs and the row in the trace."""
        del now_s
        return (group, *height)

    def is_outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Return False: the size of a job never changes."""
        del view, job, key
        return False

    def confirm_start(self, view: View, job: JobId) -> None:
        """Do nothing: the order does not depend on starts."""

    def stop_waiting(self, job: JobId, key: Key) -> None:
        """Do nothing: no waiting keys are stored."""


@dataclass
class Srtf(Allocator):
    """Run the jobs with the least estimated remaining time and preempt others for them.

    Notes
    -----
    Preemptive. All active jobs are visited by estimated remaining time (``size = time``), by that
    times GPUs (SRSF, ``size = gpu_time``) or by GPUs alone (``size = gpus``). Each gets its gang if
    it fits next to those before it; running jobs keep their nodes. Equal jobs keep the order of the
    previous decision, newcomers last, as in the simulators of Tiresias and Lucid; with
    ``size = gpus`` they are sorted by submission. The remaining time of a waiting job includes the
    pause of its start or restart.

    Our reading of the rest: a job is stopped only for one before it that has no room otherwise, the
    last in order first, and as few as needed; GPUs left over are offered to the next in order. With
    one GPU this is SRPT, which minimizes the mean completion time [1]_. A job that outlives its
    estimate is estimated again; the policy wakes up for that while others wait.

    An upgrade, our addition, is made if it shortens the estimated remaining time by more than the
    pause.

    References
    ----------
    .. [1] L. Schrage, "A proof of the optimality of the shortest remaining processing time
       discipline", Operations Research 16 (1968). SRSF is the name in Gu et al., Tiresias, NSDI
       2019, whose simulator calls the three `shortest`, `shortest-gpu` and `sjf`.
    """

    size: str = param(
        "time",
        title="Size of a job",
        choices=("time", "gpu_time", "gpus"),
        labels={
            "time": "Remaining time",
            "gpu_time": "GPUs × remaining time (SRSF)",
            "gpus": "Fewest GPUs",
        },
        help=(
            "Which job goes first. time: least remaining time. gpu_time: least"
            " remaining time times GPUs (SRSF; CPU jobs: one GPU). gpus: fewest GPUs,"
            " then submission."
        ),
    )
    migrate: str = migrate_param()
    backfill: str = backfill_param("first_fit")
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _times: Remaining | None = field(init=False, repr=False)
    _preemption: PriorityPreemption = field(init=False, repr=False)

    card = Card(
        title="SRTF",
        brief="shortest remaining time first, preempts others",
        what="The jobs with the least remaining time run; other jobs are stopped for them.",
        cost=("Long jobs are stopped repeatedly and wait while short jobs keep arriving."),
        limits="Depends on the accuracy of run-time estimates and of the restart cost.",
        source=(
            "Schrage, Operations Research 16 (1968), for one machine; order and ties of gangs as in"
            " the simulators of Tiresias and Lucid"
        ),
        certainty=(
            "exact where GPUs are all that matters; our reading: what is stopped where places"
            " matter, and moves to faster GPU types"
        ),
        goals=("short waits",),
        how=(
            (
                "All jobs, waiting and running, are sorted by estimated remaining time, pauses of"
                " starts and restarts included."
            ),
            (
                "From the front, each job gets its GPUs if its whole gang fits in what earlier"
                " jobs leave."
            ),
            (
                "A running job is stopped only if a job before it has no room otherwise: last"
                " in order first, as few as needed."
            ),
            "GPUs that remain are offered to the next job in order.",
            (
                "Running jobs move to free GPUs of a faster type if that saves more than the"
                " restart costs."
            ),
        ),
    )

    def __post_init__(self) -> None:
        """Create the priorities and the empty queues."""
        place = Placer(self.placement, self.types, self.mix)
        times = Remaining(place, by_gpus=self.size == "gpu_time")
        self._times = times if self.size != "gpus" else None
        order: Priorities = self._times or Smallest()
        upgrades = Upgrades(place, _gain_s) if self.migrate == "upgrade" else None
        self._preemption = PriorityPreemption(
            order, place, block=self.backfill == "none", upgrades=upgrades
        )

    @property
    def needs(self) -> Needs:
        """Need remaining work, rates and pauses; none if jobs are sorted by GPUs and never move."""
        blind = self.size == "gpus" and self.migrate == "never"
        return Needs(frozenset() if blind else RUN_TIME_NEEDS | {"pause"}, mixes_types=self.mix)

    def remarks(self) -> tuple[str, ...]:
        """Return a note if no running job was stopped or moved."""
        if self._preemption.interfered or not self._preemption.begun:
            return ()
        return (_UNUSED,)

    def allocate(self, view: View, /) -> Plan:
        """Start the jobs with the least remaining time and preempt others for them.

        While jobs wait, it wakes up when a running job outlives its estimate.
        """
        preemption, times = self._preemption, self._times
        preemption.feed(view)
        if preemption.waiting and times is not None:
            _update_late_finishes(view, preemption)
        changes = preemption.allocate(view)
        if times is None:
            return Plan(changes) if changes else EMPTY
        times.decided_s = view.now_s
        if view.delta.finished:
            times.forget(view.delta.finished)
        if not preemption.waiting:
            return Plan(changes) if changes else EMPTY
        first = min(
            [members[0][0][0] for _, _, members in preemption.running.all.values()], default=inf
        )
        return Plan(changes, wake_at_s=max(first + _LATE_S, view.now_s + _MIN_WAKE_S))

    def rule(self) -> QueueRule | None:
        """Return the queue rule by remaining time; None by GPUs alone or if placements wait."""
        if self.size == "gpus" or self.placement in WAITING_PLACEMENTS:
            return None
        key = "run_time_s" if self.size == "time" else "gpu_time_s"
        rule = queue_rule((key,), self, self.backfill)
        return rule and replace(
            rule, preemption="remaining", moves=self.migrate == "upgrade", unused=_UNUSED
        )

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait or a preemption by the jobs with less remaining time."""
        preemption, view = self._preemption, decided.view
        better = preemption.better(decided, job)
        new = [one for one in better if one in decided.started]
        if job in view.grants and new:
            first = new[0]
            values = {"first": first, "gpus": decided.held_gpus(first), "left": inf}
            if self._times is None:
                return Reason("a smaller job arrived", values, "job {first:job} ({gpus:gpus})")
            slot = preemption.running.slots.get(first)
            if slot is None:
                values["left"] = view.one("remaining_work", first) / max(
                    view.estimates.rate(first, decided.grants[first]), 1e-12
                )
            else:
                values["left"] = max(slot.height[0] - view.now_s, 0.0)
            return Reason(
                "a shorter job arrived",
                values,
                "job {first:job} ({gpus:gpus}, {left:duration} left)",
            )
        ranks = {
            "time": "with less time left",
            "gpu_time": "with less GPU time left",
            "gpus": "of fewer GPUs",
        }
        return outranked_reason(decided, job, better, ranks[self.size])


def _update_late_finishes(view: View, preemption: PriorityPreemption) -> None:
    """Set a new estimated finish for running jobs that should have finished by now."""
    for job in _late_jobs(preemption.running, view.now_s):
        slot = preemption.running.slots[job]
        rate = view.estimates.rate(job, slot.grant)
        left_s = view.one("remaining_work", job) / rate if rate > 0 else inf
        finish_s = instant(view.now_s + max(left_s, STEP_S))
        preemption.demote(job, slot.group.tag, (finish_s, *slot.height[1:]))


def _late_jobs(running: RunningIndex, now_s: float) -> list[JobId]:
    """Return the running jobs past their estimated finish."""
    late = []
    for _, _, members in running.all.values():
        for height, job, _ in members:
            if height[0] > now_s:
                break
            late.append(job)
    return late


def _gain_s(view: View, job: JobId, old: Grant, new: Grant) -> float:
    """Return how many seconds earlier a job is estimated to finish after a move."""
    if not view.one("keeps_work", job):
        return 0.0
    here, there = view.estimates.rate(job, old), view.estimates.rate(job, new)
    if not there > 0:
        return 0.0
    work = view.one("remaining_work", job)
    return (work / here if here > 0 else inf) - work / there - view.estimates.pause_s(job, old, new)
