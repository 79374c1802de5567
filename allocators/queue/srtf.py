"""Shortest remaining time first: running jobs are stopped for jobs that are estimated to need
less.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import nextafter
from typing import Any

from allocators.placement import (
    RUN_TIME,
    WAITING,
    Placer,
    alone,
    mix_param,
    placement_param,
    types_param,
)
from allocators.queue.preemption import PriorityPreemption
from allocators.queue.running_index import (
    EVERYBODY,
    NOBODY,
    Height,
    Key,
    Priorities,
    RunningIndex,
    RunningSlot,
)
from allocators.queue.upgrade import Upgrades, migrate_param, speed_of
from allocators.reasons import behind
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

_UNUSED = "srtf stopped nobody: it only chose the order in which jobs start."
_PATIENCE_S = 1 / 64  # how long after its estimated finish a job that still runs is asked anew
_PAUSE_S = 1.0  # least time from one such question to the next


class Remaining:
    """Order by estimated remaining time, or that times GPUs:
    `allocators.queue.running_index.Order`.

    Parameters
    ----------
    place : Placer
        Where jobs go.
    by_gpus : bool
        Whether times count once per GPU; a job without GPUs counts once.

    Notes
    -----
    Times are counted on a GPU of speed 1, whatever type a job holds or would get: two jobs that
    want the same GPUs are then compared as they would run on them, and a job is not stopped for one
    that would need longer in its place. On a cluster of one type this is remaining work over
    estimated rate. They are rounded to whole microseconds, and include the pause of the start or
    restart that a job would pay. On a GPU of another speed the pause takes as long, so the
    estimated finish is that much too early or late; counted exactly, two jobs could each go before
    the other once it runs.

    The remaining time of a waiting job is constant, that of a running one falls at a constant pace.
    So running jobs of one pace stay in order of their estimated finish, which is their height on
    the group of that pace. A job that did not finish when it was estimated to is asked anew.

    Equal jobs stand as at the decision before, newcomers last, as if a list were sorted anew at
    every decision: a job that has waited since an earlier decision had needed less before and
    stands first, then jobs that ran, then newcomers. Of two that ran, the one with the slower pace
    had needed less; so had a job that an outage has just taken work from, before it stood where it
    stands now. The height of a running job is therefore (finish, plus or minus the instant of its
    start, count), and the key of a waiting job (time, since when it waits), with what `_place` says
    if it ran until then.
    """

    def __init__(self, place: Placer, *, by_gpus: bool) -> None:
        self._place, self._by_gpus = place, by_gpus
        self._whole: dict[int, tuple[Grant, float]] = {}
        self._scale: dict[JobId, tuple[float, float]] = {}
        self._pause_s: dict[JobId, float] = {}
        self._begun: dict[JobId, tuple[float, Height, Key]] = {}
        self._waited: dict[JobId, Key] = {}
        self._count = 0
        self.decided_s = 0.0

    def key(self, view: View, job: JobId) -> Key:
        """Return the estimated remaining time of a job, and its tie-breaker."""
        if job not in self._scale:
            self._scale[job] = self._asked(view, job)
            if job not in view.grants:
                self._note_pause(view, job)
        begun, now_s = self._begun.pop(job, None), view.now_s
        if begun is None:
            need, old = self._left(view, job), self._waited.pop(job, None) if self._waited else None
            if old is None or need < old[0]:
                return need, now_s, inf
            # A job that has lost work since it was stopped stood before those that need as much.
            return old if need == old[0] else (need, -now_s, *old)
        pace, height, key = begun
        if abs(height[1]) == now_s:
            if job not in view.grants:
                return key  # it was to begin at this very decision
            # Of those found running at this decision, each has its place among the others.
            found = key[1:] == (now_s, inf)
            place = (now_s, *_place(pace, height, now_s)) if found else key[1:]
        elif job in view.grants or self._left(view, job) <= instant(height[0] - now_s) * pace:
            place = (now_s, *_place(pace, height, now_s))
        else:
            before = instant(height[0] - self.decided_s) * pace
            place = (now_s, _LOST, before, *_place(pace, height, self.decided_s))
        self._note_pause(view, job)
        return (self._left(view, job), *place)

    def position(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return the pace at which the need falls with this grant, and the estimated finish."""
        scale, weight = self._scale[job]
        pace = _rounded(view.estimates.rate(job, grant) * scale * weight)
        now_s = view.now_s
        self._count += 1
        # That of a waiting job, as `_tie` says, without a call once per start.
        since, count = (
            (-now_s, self._count) if key[1] < now_s else _tie(pace, key, now_s, self._count)
        )
        # A job that starts must stand where it stood while it waited, or two jobs would stop each
        # other for ever: the restart is part of the need and falls at the same pace, although on a
        # faster GPU it takes no less time.
        height = instant(now_s + key[0] / pace), since, count
        self._begun[job] = pace, height, key
        return pace, height

    def moved(
        self, view: View, job: JobId, grant: Grant, slot: RunningSlot
    ) -> tuple[float, Height]:
        """Return pace and finish of a running job on other GPUs, after the pause of the move."""
        place = _place(slot.group.tag, slot.height, view.now_s)
        self._note_pause(view, job, slot.grant, grant)
        return self.position(view, job, grant, (self._left(view, job), view.now_s, *place))

    def limit(self, group: float, key: Key, now_s: float) -> Height:
        """Return the finish beyond which a job needs more than the waiting one."""
        since, count = _tie(group, key, now_s, inf)
        return instant(now_s + key[0] / group), since, count

    def rank(self, group: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return what is needed."""
        need = instant(height[0] - now_s) * group
        return (need, *_place(group, height, now_s))

    def outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Tell whether the job has lost work, or has worked on, since it was to be stopped."""
        return self._left(view, job) != key[0]

    def landed(self, view: View, job: JobId) -> None:
        """Do nothing: the remaining time of a job that began later is computed again when it is
        late.
        """

    def left(self, job: JobId, key: Key) -> None:
        """Keep the place of a job that may go on waiting, of another size."""
        self._waited[job] = key

    def forget(self, finished: tuple[JobId, ...]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in finished:
            self._scale.pop(job, None)
            self._begun.pop(job, None)
            if self._waited:
                self._waited.pop(job, None)
            if self._pause_s:
                self._pause_s.pop(job, None)

    def _left(self, view: View, job: JobId) -> float:
        scale, weight = self._scale[job]
        left_s = view.one("remaining_work", job) * scale
        if self._pause_s:
            left_s += self._pause_s.get(job, 0.0)
        return instant(left_s) * weight

    def _note_pause(
        self, view: View, job: JobId, old: Grant | None = None, new: Grant | None = None
    ) -> None:
        """Keep the pause of a job's next change; without `new`, of a start as requested."""
        if new is None:
            demand = view.demand(job)  # another one than before, if the job has been resized
            new, _ = self._whole.get(demand.key) or self._requested(view, demand)
        pause_s = view.estimates.pause_s(job, old, new)
        if pause_s or job in self._pause_s:
            self._pause_s[job] = pause_s

    def _asked(self, view: View, job: JobId) -> tuple[float, float]:
        """Return seconds on a GPU of speed 1 per unit of work, and how often they count."""
        demand = view.demand(job)
        whole, speed = self._whole.get(demand.key) or self._requested(view, demand)
        rate = view.estimates.rate(job, whole)
        weight = max(view.one("gpus", job), 1.0) if self._by_gpus else 1.0
        return speed / rate if rate > 0 else inf, weight

    def _requested(self, view: View, demand: Demand) -> tuple[Grant, float]:
        # A gang over several types, left by a policy before this one, may have no way of its own.
        whole = alone(view, demand, self._place.ways(view, demand).groups or (demand.pools,))
        self._whole[demand.key] = found = whole, speed_of(view, whole)
        return found


@lru_cache(maxsize=1024)
def _rounded(pace: float) -> float:
    """Return a pace to nine digits, more than 0; there are few, and to look one up costs less."""
    return max(round(pace, 9), 1e-9)


_LOST = -1.0


def _tie(pace: float, key: Key, now_s: float, count: float) -> tuple[Any, ...]:
    """Return the place of a waiting job among running jobs of one pace that need as much."""
    if key[1] < now_s or key[2] == _LOST:
        return -now_s, count  # before those that ran while it waited, or had needed more
    if len(key) == 3:
        return now_s, count  # a newcomer
    if key[2] == 0 and key[3] != pace:
        # It ran until now at another pace: next to those, and by that pace among its like.
        return nextafter(-now_s if key[3] < pace else now_s, 0.0), key[3:]
    return key[4:]  # stopped at this very decision


def _place(pace: float, height: Height, now_s: float) -> tuple[Any, ...]:
    """Return what compares a job with others that ran until now and need as much.

    That is: whether it ran before (0) or has only just been started (-1 if it had waited, 1 if
    not), its pace if it ran, and the rest of its height.
    """
    _, started, count = height
    if started == now_s:
        return 1.0, 0.0, started, count
    if started == -now_s:
        return -1.0, 0.0, started, count
    # As `_tie` puts a job that has changed its pace just now.
    return (0.0, *count) if abs(started) == nextafter(now_s, 0.0) else (0.0, pace, started, count)


class Smallest:
    """Order by GPUs asked for, then by submission: `allocators.queue.running_index.Order`."""

    def key(self, view: View, job: JobId) -> Key:
        """Return the GPUs and the row in the trace."""
        return view.one("gpus", job), job

    def position(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return the same."""
        del view, job, grant
        return key[0], key[1:]

    def moved(
        self, view: View, job: JobId, grant: Grant, slot: RunningSlot
    ) -> tuple[float, Height]:
        """Return the same."""
        del view, job, grant
        return slot.group.tag, slot.height

    def limit(self, group: float, key: Key, now_s: float) -> Height:
        """Return the limit that covers all larger jobs, and later ones of the same size."""
        del now_s
        if group != key[0]:
            return EVERYBODY if group > key[0] else NOBODY
        return key[1:]

    def rank(self, group: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return GPUs and row."""
        del now_s
        return (group, *height)

    def outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Tell that nothing changes."""
        del view, job, key
        return False

    def landed(self, view: View, job: JobId) -> None:
        """Do nothing."""

    def left(self, job: JobId, key: Key) -> None:
        """Do nothing."""


@dataclass
class Srtf(Allocator):
    """Run the jobs that are estimated to need the least time from now, and stop others for them.

    Notes
    -----
    Preemptive. All active jobs are walked by estimated remaining time (``size = time``), by that
    times GPUs (SRSF, ``size = gpu_time``) or by GPUs alone (``size = gpus``); each gets its gang if
    it fits beside those before it, and running jobs stay where they are. Equal jobs stand as at the
    decision before, newcomers last, which is how the simulators of Tiresias and Lucid sort; with
    ``size = gpus`` they stand by submission. The remaining time of a waiting job includes the pause
    of its start, or of its restart if it ran before.

    Our reading of the rest: a job is stopped only for one before it that has no room otherwise, the
    last in order first, and as few as needed; what they leave over is offered to the next in order.
    With one GPU this is SRPT, which minimises the mean completion time [1]_. A job that outlives
    its estimated size is asked anew; the policy wakes itself up for that while others wait.

    An upgrade, our addition, pays if the estimated remaining time there is shorter than here by
    more than the pause.

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
        brief="shortest remaining time first, others are stopped",
        what="The jobs with the least remaining time run; other jobs are stopped for them.",
        cost=("Long jobs are stopped repeatedly and wait while short jobs keep arriving."),
        limits="As good as the run-time estimates. Overheads set the cost of a preemption.",
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
                "From the front, each job gets its GPUs if its whole gang fits beside the jobs"
                " before it."
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
        """Prepare empty queues."""
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
        """Sizes, speeds and restarts; none of them if only GPUs are counted and no job moves."""
        blind = self.size == "gpus" and self.migrate == "never"
        return Needs(frozenset() if blind else RUN_TIME | {"pause"}, mixes_types=self.mix)

    def remarks(self) -> tuple[str, ...]:
        """Say that no running job was stopped or moved."""
        if self._preemption.interfered or not self._preemption.begun:
            return ()
        return (_UNUSED,)

    def allocate(self, view: View, /) -> Plan:
        """Start what is best, and stop what must go for it."""
        preemption, times = self._preemption, self._times
        preemption.feed(view)
        if preemption.waiting and times is not None:
            _ask_anew(view, preemption)
        changes = preemption.settle(view)
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
        return Plan(changes, wake_at_s=max(first + _PATIENCE_S, view.now_s + _PAUSE_S))

    def rule(self) -> QueueRule | None:
        """Return the order by remaining time; other sizes, and places for which a gang may wait,
        have no rule.
        """
        if self.size != "time" or self.placement in WAITING:
            return None
        rule = queue_rule(("run_time_s",), self, self.backfill)
        return rule and replace(rule, preemption="remaining", unused=_UNUSED)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State which jobs with less left hold its GPUs, or which one took them."""
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
        return behind(decided, job, better, ranks[self.size])


def _ask_anew(view: View, preemption: PriorityPreemption) -> None:
    """Ask for the remaining time of running jobs that should have finished by now."""
    for job in _late(preemption.running, view.now_s):
        slot = preemption.running.slots[job]
        rate = view.estimates.rate(job, slot.grant)
        left_s = view.one("remaining_work", job) / rate if rate > 0 else inf
        finish_s = instant(view.now_s + max(left_s, STEP_S))
        preemption.worsen(job, slot.group.tag, (finish_s, *slot.height[1:]))


def _late(running: RunningIndex, now_s: float) -> list[JobId]:
    late = []
    for _, _, members in running.all.values():
        for height, job, _ in members:
            if height[0] > now_s:
                break
            late.append(job)
    return late


def _gain_s(view: View, job: JobId, old: Grant, new: Grant) -> float:
    """Return by how much sooner a job is estimated to finish if it moves."""
    if not view.one("keeps_work", job):
        return 0.0
    here, there = view.estimates.rate(job, old), view.estimates.rate(job, new)
    if not there > 0:
        return 0.0
    work = view.one("remaining_work", job)
    return (work / here if here > 0 else inf) - work / there - view.estimates.pause_s(job, old, new)
