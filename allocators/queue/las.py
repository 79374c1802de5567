"""Least attained service: Tiresias' queues by GPU-seconds received, for clusters of unknown run
times.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple, cast

from allocators.nesting import SubView
from allocators.placement import WAITING, Placer, mix_param, placement_param, types_param
from allocators.queue.preemption import PriorityPreemption
from allocators.queue.running_index import EVERYBODY, NOBODY, Height, Key, RunningSlot, gpus_of
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
    ParameterError,
    Plan,
    QueueRule,
    Reason,
    Value,
    View,
    inf,
    instant,
    param,
)

_BEFORE, _AMONG, _BEHIND = -1.0, 0.0, 1.0
_TAIL: Final = 1.0
_UNUSED: Final = (
    "las moved no job to a lower queue: no job reached the first threshold; it ran in order of"
    " submission."
)
_STOPPED: Final = 4
"""Length of the key of a job that was demoted and stopped at one decision."""


class Unit(NamedTuple):
    """How service is counted for a demand: limits in seconds at full size, and from which column.

    ``per_s`` is what a second adds to that column.
    """

    limits_s: tuple[float, ...]
    column: str
    per_s: float


class Attained:
    """Order by queue, then by list position or by submission:
    `allocators.queue.running_index.Order`.

    Parameters
    ----------
    limits : tuple of float, GPU-seconds or seconds
        Attained service at which a job leaves the first, second, ... queue; ascending.
    promote_factor : float
        See `allocators.queue.las.Las.promote_factor`.
    seconds : bool
        Whether service is the seconds in which a job held its GPUs, whatever their number.
    by_submission : bool
        Whether jobs stand in a queue as they were submitted, running or not.

    Notes
    -----
    Otherwise each queue is the list of the published simulator: running jobs, then waiting ones. At
    every decision newcomers and demoted jobs are appended; after it the jobs that wait move behind
    those that run, both keeping their order. Here running jobs have heights (decision at which they
    joined, `_BEFORE` jobs that start at that decision, `_AMONG` or `_BEHIND` them, count), and
    waiting jobs have keys: (queue, minus the decision at which it was stopped, its height then),
    those that an outage hit behind the others, or (queue, `_TAIL`, count) if it was not stopped or
    was demoted at that decision.

    The queue of a job is kept, not computed: a job that holds its GPUs crosses its next limit at a
    known instant, and when that has come it is in the next queue. Crossings are kept in a heap per
    queue, where those of jobs stopped meanwhile are void.
    """

    def __init__(
        self,
        limits: tuple[float, ...],
        promote_factor: float,
        *,
        seconds: bool,
        by_submission: bool,
    ) -> None:
        self.limits, self._promote_factor = limits, promote_factor
        self._seconds, self._by_submission = seconds, by_submission
        self.waiting = [0] * (len(limits) + 1)
        self._crossings: list[list[tuple[float, JobId]]] = [[] for _ in limits]
        self._crosses: dict[JobId, dict[int, float]] = {}
        self.promotions: list[tuple[float, JobId, Key]] = []
        self._queue: dict[JobId, int] = {}
        self._from_s: dict[JobId, float] = {}
        self._executed_s: dict[JobId, float] = {}
        self._height: dict[JobId, Height] = {}
        self._begun: dict[JobId, Key] = {}
        self._units: dict[int, Unit] = {}
        self._decision = self._count = 0
        self._punctual = False
        self.demoted_any = False

    # -- the order -------------------------------------------------------------------------------

    def key(self, view: View, job: JobId) -> Key:
        """Return the queue of a job, and its place there."""
        known = queue = self._queue.get(job, 0)
        crosses = self._crosses.pop(job, None)
        if crosses is not None or self._decision == 1:  # it has run, perhaps before this policy
            queue = self._reached(view, job)
        self.waiting[queue] += 1
        if self._by_submission:
            key: Key = (queue, job)
        elif crosses is None:
            self._count += 1
            key = (queue, _TAIL, self._count)
        elif queue != known:  # an outage hit it after its crossing, but before this decision
            key = (queue, _TAIL, self._count + 0.5, crosses[queue - 1], job)
        else:
            key = (queue, *self._stopped(view, job))
        if self._promote_factor and queue:
            patience_s = max(self._promote_factor * self._executed_s.get(job, 0.0), STEP_S)
            heappush(self.promotions, (instant(view.now_s + patience_s), job, key))
        return key

    def position(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return the queue of a job, and its place among the running jobs."""
        del grant
        queue = int(key[0])
        self.waiting[queue] -= 1
        if self._by_submission:
            height: Height = (job,)
        else:
            # A job stopped at this very decision, which leaves it running after all: where it was.
            kept = self._height.get(job) if job in view.grants else None
            if kept is None:
                self._count += 1
                kept = self._decision, _AMONG, self._count
                self._begun[job] = key
            height = self._height[job] = kept
        self._expect(view, job, queue, self._executed_s.get(job, 0.0))
        return key[0], height

    def _stopped(self, view: View, job: JobId) -> tuple[float, ...]:
        """Return the place in its queue of a job that has just stopped."""
        height, now = self._height[job], self._decision
        if job not in view.grants:  # an outage hit it, or it was to begin at this very decision
            return self._begun[job][1:] if height[0] == now else (-now, now + 1, *height)
        if height[0] == now and height[1] != _AMONG:
            return _TAIL, height[2], now
        return -now, *height

    def moved(
        self, view: View, job: JobId, grant: Grant, slot: RunningSlot
    ) -> tuple[float, Height]:
        """Return the same place: service continues as before."""
        del view, job, grant
        return slot.group.tag, slot.height

    def limit(self, group: float, key: Key, now_s: float) -> Height:
        """Return the limit that covers all jobs of later queues, and in its own queue the jobs
        behind it.
        """
        del now_s
        if group != key[0]:
            return EVERYBODY if group > key[0] else NOBODY
        if self._by_submission:
            return key[1:]
        if len(key) == _STOPPED and key[3] == self._decision:
            return self._decision, _BEHIND, key[2]
        return self._decision, _AMONG, inf

    def rank(self, group: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return queue and place: the last of the last queue goes first."""
        del now_s
        return (group, *height)

    def outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Tell whether the job has moved to another queue since it was to be stopped."""
        return self._reached(view, job) != key[0]

    def landed(self, view: View, job: JobId) -> None:
        """Expect the crossings later if the job got its GPUs later than it was decided."""
        if self._punctual:
            return
        queue, crosses = self._queue.get(job, 0), self._crosses[job]
        if queue not in crosses:
            return
        executed_s, limits_s = self.executed_s(view, job), self._unit(view, job).limits_s
        if crosses[queue] < instant(view.now_s + limits_s[queue] - executed_s):
            self._expect(view, job, queue, executed_s)
        else:
            self._punctual = True  # decisions take time always or never

    def left(self, job: JobId, key: Key) -> None:
        """Count the job no longer among the waiting."""
        del job
        self.waiting[int(key[0])] -= 1

    # -- service ---------------------------------------------------------------------------------

    def executed_s(self, view: View, job: JobId) -> float:
        """Return a job's service since its last promotion, as seconds at full size."""
        return self._executed_s_of(view, job, self._unit(view, job))

    def held_s(self, view: View, job: JobId) -> float:
        """Return all service of a job, as seconds at full size."""
        unit = self._unit(view, job)
        return view.one(unit.column, job) / unit.per_s

    def queue(self, job: JobId) -> int:
        """Return the queue of a job, as far as is known; 0 is the first."""
        return self._queue.get(job, 0)

    def begin(self) -> None:
        """Begin another decision."""
        self._decision += 1

    def demoted(self, view: View) -> list[tuple[JobId, float, Height]]:
        """Move running jobs whose crossing has come to the tail of their next queue.

        Returns
        -------
        list of tuples
            Job, group and height. What is due counts as reached: nothing is computed again.
        """
        found, now_s = [], view.now_s
        for queue, crossings in enumerate(self._crossings):
            while crossings and crossings[0][0] <= now_s:
                at_s, job = heappop(crossings)
                if self._is_valid(queue, at_s, job) and self._queue.get(job, 0) == queue:
                    found.append((job, queue + 1.0, self._demote(view, job, queue, at_s)))
        return found

    def promote(self, view: View, job: JobId) -> None:
        """Move a waiting job to the first queue, and restart its count."""
        self._from_s[job] = self.held_s(view, job)
        self._executed_s[job] = 0.0
        self._queue.pop(job, None)

    def forget(self, finished: tuple[JobId, ...]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in finished:
            self._height.pop(job, None)
            self._begun.pop(job, None)
            self._crosses.pop(job, None)
            self._queue.pop(job, None)
            if self._executed_s:
                self._executed_s.pop(job, None)
                self._from_s.pop(job, None)

    def next_crossing_s(self) -> float:
        """Return when a running job leaves a queue for the next while others wait in either."""
        next_s, crosses = inf, self._crosses
        for queue, crossings in enumerate(self._crossings):
            if self.waiting[queue] or self.waiting[queue + 1]:
                while crossings:
                    at_s, job = crossings[0]
                    if job in crosses and crosses[job].get(queue) == at_s:
                        next_s = min(next_s, at_s)
                        break
                    heappop(crossings)
        return next_s

    def _is_valid(self, queue: int, at_s: float, job: JobId) -> bool:
        return job in self._crosses and self._crosses[job].get(queue) == at_s

    def _demote(self, view: View, job: JobId, queue: int, at_s: float) -> Height:
        self._queue[job] = queue + 1
        self.demoted_any = True
        if self._by_submission:
            height: Height = (job,)
        else:
            # Had anybody waited to whom that matters, this would have been decided at the crossing.
            self._count += 1
            height = (self._decision, _BEHIND if at_s == view.now_s else _BEFORE, self._count)
            self._height[job] = height
        return height

    def _expect(self, view: View, job: JobId, queue: int, executed_s: float) -> None:
        """Note when a running job will reach the limits of its queue and of all later ones."""
        crosses: dict[int, float] = {}
        self._crosses[job] = crosses
        if queue == len(self.limits):
            return
        limits_s, now_s = self._unit(view, job).limits_s, view.now_s
        for at in range(queue, len(limits_s)):
            left_s = limits_s[at] - executed_s
            if left_s < inf:
                crosses[at] = at_s = instant(now_s + (left_s if left_s > STEP_S else STEP_S))
                heappush(self._crossings[at], (at_s, job))

    def _reached(self, view: View, job: JobId) -> int:
        """Return the queue of a job: that in which it is known to be, or a later one by service."""
        queue, unit = self._queue.get(job, 0), self._unit(view, job)
        executed_s = self._executed_s[job] = self._executed_s_of(view, job, unit)
        if executed_s:
            executed_s, limits_s = instant(executed_s), unit.limits_s
            while queue < len(limits_s) and instant(limits_s[queue]) <= executed_s:
                queue = self._queue[job] = queue + 1
                self.demoted_any = True
        return queue

    def _executed_s_of(self, view: View, job: JobId, unit: Unit) -> float:
        held_s = view.one(unit.column, job) / unit.per_s
        return held_s - self._from_s.get(job, 0.0) if self._from_s else held_s

    def _unit(self, view: View, job: JobId) -> Unit:
        demand = view.demand(job)
        known = self._units.get(demand.key)
        if known is None:
            known = self._units[demand.key] = _unit_of(demand, self.limits, self._seconds)
        return known


def _unit_of(demand: Demand, limits: tuple[float, ...], seconds: bool) -> Unit:
    gpus = gpus_of(demand)
    if gpus:
        pace = 1 if seconds else gpus
        return Unit(tuple(limit / pace for limit in limits), "served_gpu_s", gpus)
    servers = demand.servers
    cores = demand.replicas * demand.cpus + (servers.replicas * servers.cpus if servers else 0.0)
    if seconds and cores:
        return Unit(limits, "served_cpu_s", cores)
    return Unit((inf,) * len(limits), "served_gpu_s", inf)


@dataclass
class Las(Allocator):
    """Run the jobs that have received the least GPU time, in a few queues: Tiresias' discretised
    two-dimensional LAS.

    Notes
    -----
    Preemptive, blind to run times. Attained service is GPUs x seconds held [1]_, or with
    ``measure = s`` seconds alone. A job begins in the first queue and moves down one when its
    service reaches the limit of its queue. The queues are walked in order, and each job gets its
    gang if it fits; a running job that does not fit any more is stopped. Defaults are those of the
    authors' simulator.

    With ``order = tiresias`` a queue is the list of that simulator: first the jobs that run, then
    those that wait. At a decision newcomers and demoted jobs are appended. After it the jobs that
    wait move behind those that run, both keeping their order: so a stopped job goes before those
    that wait already, and a running job that has just been demoted is stopped for jobs that wait in
    its new queue. Per-job ends are those of the published simulator, but for its whole seconds and
    for its next demotion under GPU time, which it computes without the factor GPUs (see the
    decision record 0014). ``order = arrival`` walks each queue by submission, running or not, as
    the simulators of Lucid and Pollux do.

    Our reading: where GPUs are not all that matters, the last of the last queue is stopped first,
    and as few as needed. A job that an outage evicts stands where a stopped one would. Jobs without
    GPUs attain nothing unless seconds are counted, and stay in the first queue. An upgrade, which
    the published simulator does not know, pays if it saves more than the restart when the job runs
    on for as long as it has run so far; speeds are the nominal ones of the types. With a
    ``promote_factor`` and costly restarts, limits must allow for far more than one restart: else
    large gangs could stop each other for ever without progress.

    ``servers = gpu`` is how the follow-up of AITurbo ran Tiresias (MaoZzzzz/Aiturbo-vGPU): every
    parameter server holds a GPU, which counts as service. Jobs for which there are then too few
    GPUs are refused.

    References
    ----------
    .. [1] J. Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning", NSDI 2019,
    section 3.2; limits, order and the factor (PROMOTEKNOB) as in the simulator
       that the authors published (SymbioticLab/Tiresias).
    """

    thresholds: tuple[float, ...] = param(
        (3250.0, 7200.0),
        title="Thresholds of the queues",
        unit="GPU-s",
        low=1,
        high=1e12,
        help=(
            "Attained service at which a job leaves each queue but the last; seconds if `measure`"
            " is s."
        ),
    )
    measure: str = param(
        "gpu_s",
        title="Measure of service",
        choices=("gpu_s", "s"),
        labels={"gpu_s": "GPUs × seconds", "s": "Seconds"},
        help=(
            "How service is counted. gpu_s: GPUs times seconds held. s: seconds held,"
            " whatever the number of GPUs."
        ),
    )
    order: str = param(
        "tiresias",
        title="Order within a queue",
        choices=("tiresias", "arrival"),
        labels={"tiresias": "Running, stopped, waiting", "arrival": "Submission"},
        help=(
            "Within a queue. tiresias: running jobs, then waiting ones, stopped jobs first."
            " arrival: by submission, running or not."
        ),
    )
    promote_factor: float = param(
        0.0,
        title="Promotion after waiting",
        low=0,
        high=1e6,
        help=(
            "A waiting job returns to the first queue after waiting this many times its"
            " run time since it was last there; 0 = never."
        ),
        was="knob",
    )
    migrate: str = migrate_param()
    backfill: str = backfill_param("first_fit")
    servers: str = param(
        "cpu",
        title="Parameter servers on",
        choices=("cpu", "gpu"),
        labels={"cpu": "CPU cores", "gpu": "A GPU each"},
        help="Where parameter servers run: on cores, or each on a separate GPU.",
    )
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _on_gpus: dict[int, tuple[Demand, Demand]] = field(init=False, repr=False, default_factory=dict)
    _order: Attained = field(init=False, repr=False)
    _preemption: PriorityPreemption = field(init=False, repr=False)
    _orderly: bool = field(init=False, repr=False, default=True)

    card = Card(
        title="LAS (Tiresias)",
        brief="least served first, no run times needed",
        what="Jobs that have received the least GPU time so far run first, in a few queues.",
        cost=("Long-running jobs are stopped for new jobs, even if they are nearly done."),
        limits="Knows no run times. Ignores the cost of preemption, which overheads set.",
        source="Gu et al., Tiresias, NSDI 2019; the authors' simulator",
        certainty=(
            "exact: order, limits and promotion as published; our reading: moves to faster GPU"
            " types, and what is stopped where places matter"
        ),
        goals=("fairness", "short waits"),
        how=(
            "A job's attained service is its GPUs times the seconds for which it held them.",
            (
                "Every job begins in the first queue, and moves to the tail of the next one"
                " when its service reaches the queue's limit."
            ),
            (
                "Queues are served in order; within one, running jobs come first, then stopped"
                " jobs, then other waiting jobs."
            ),
            (
                "Running jobs that no longer fit are stopped: the last of the last queue first,"
                " as few as needed."
            ),
            (
                "Running jobs move to free GPUs of a faster type if that saves more than the"
                " restart costs. No run times are used."
            ),
        ),
    )

    def __post_init__(self) -> None:
        """Prepare empty queues."""
        # In any other order the same policy would have several names, and several results.
        if any(not low < high for low, high in pairwise((0.0, *self.thresholds))):
            told = "/".join(f"{limit:g}" for limit in self.thresholds)
            raise ParameterError(
                f"las: thresholds = {told} GPU-s must be above 0 and each above the one before,"
                " e.g. 3250/7200."
            )
        place = Placer(self.placement, self.types, self.mix)
        self._order = Attained(
            self.thresholds,
            self.promote_factor,
            seconds=self.measure == "s",
            by_submission=self.order == "arrival",
        )
        upgrades = Upgrades(place, self._gain_s) if self.migrate == "upgrade" else None
        self._preemption = PriorityPreemption(
            self._order, place, block=self.backfill == "none", upgrades=upgrades
        )

    @property
    def needs(self) -> Needs:
        """What restarts cost, if jobs are to be moved; else nothing but the public columns."""
        pause = frozenset({"pause"} if self.migrate == "upgrade" else ())
        return Needs(pause, mixes_types=self.mix)

    def remarks(self) -> tuple[str, ...]:
        """Say that only one queue was used, so that the order was that of submission."""
        if self._order.demoted_any or not (self._preemption.begun and self._orderly):
            return ()
        return (_UNUSED,)

    def rule(self) -> QueueRule | None:
        """Return the queues; promotions, servers on GPUs, and places for which a gang may wait,
        have no rule.
        """
        if self.promote_factor or self.servers == "gpu" or self.placement in WAITING:
            return None
        rule = queue_rule(("arrival_s",) if self.order == "arrival" else (), self, self.backfill)
        return rule and replace(
            rule,
            preemption="attained",
            limits=self.thresholds,
            per_gpu=self.measure == "gpu_s",
            unused=_UNUSED,
        )

    def allocate(self, view: View, /) -> Plan:
        """Start what is best, and stop what must go for it."""
        if self.servers == "gpu":
            return self._with_servers_on_gpus(view)
        return self._decide(view)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State the queue of a job, and the jobs before it that hold its GPUs."""
        queue, queues = self._order.queue(job), len(self.thresholds) + 1
        better = self._preemption.better(decided, job)
        new = [one for one in better if one in decided.started]
        values: dict[str, Value] = {
            "queue": queue + 1,
            "queues": queues,
            "received": decided.view.one("served_gpu_s", job) / 3600.0,
        }
        if job in decided.view.grants and new:
            return Reason(
                "a job with less service went first (this one had {received:number} GPU-hours, in"
                " queue {queue:number} of {queues:number})",
                values | {"first": new[0], "of": self._order.queue(new[0]) + 1},
                "job {first:job} (queue {of:number})",
            )
        return behind(
            decided,
            job,
            better,
            "before it in the queues (it was in queue {queue:number} of {queues:number} with"
            " {received:number} GPU-hours)",
            **values,
        )

    def _decide(self, view: View) -> Plan:
        order, preemption, delta = self._order, self._preemption, view.delta
        if delta.evicted or (view.grants and not preemption.begun):
            self._orderly = False  # they go before those that wait; or others decided before
        order.begin()
        preemption.feed(view)
        for job, queue, height in order.demoted(view):
            preemption.worsen(job, queue, height)
        if order.promotions:
            self._promote(view)
        changes = preemption.settle(view)
        order.forget(delta.finished)
        if not preemption.waiting:
            return Plan(changes) if changes else EMPTY
        return Plan(changes, wake_at_s=self._next_s())

    def _with_servers_on_gpus(self, view: View) -> Plan:
        inside = SubView(view, view.delta)
        inside.demand = lambda job: self._moved(view.demand(job))
        hopeless = frozenset(
            job for job in view.delta.arrived if self._is_too_large(view, inside.demand(job))
        )
        if not hopeless:
            return self._decide(cast("View", inside))
        inside.delta = view.delta._replace(
            arrived=tuple(job for job in view.delta.arrived if job not in hopeless)
        )
        return self._decide(cast("View", inside))._replace(refuse=hopeless)

    @staticmethod
    def _is_too_large(view: View, demand: Demand) -> bool:
        pools = view.room.pools
        return gpus_of(demand) > sum(
            [view.cluster.nodes[node].gpus for at in demand.pools for node in pools[at].nodes]
        )

    def _moved(self, demand: Demand) -> Demand:
        known = self._on_gpus.get(demand.key)
        if known is None:
            servers = demand.servers and replace(demand.servers, gpus=1, pools=demand.pools)
            # The demand itself is kept beside it, so that no other takes its number.
            known = self._on_gpus[demand.key] = (
                demand,
                replace(demand, servers=servers if demand.gpus else demand.servers),
            )
        return known[1]

    def _promote(self, view: View) -> None:
        promotions, waiting = self._order.promotions, self._preemption.waiting
        while promotions and promotions[0][0] <= view.now_s:
            _, job, key = heappop(promotions)
            if waiting.get(job) is key:
                self._order.promote(view, job)
                self._preemption.wait(view, job)

    def _next_s(self) -> float:
        """Return when a running job leaves a queue and that matters to others, or a waiting one
        returns to the first.
        """
        promotions, waiting = self._order.promotions, self._preemption.waiting
        while promotions and waiting.get(promotions[0][1]) is not promotions[0][2]:
            heappop(promotions)
        next_s = self._order.next_crossing_s()
        return min(next_s, promotions[0][0]) if promotions else next_s

    def _gain_s(self, view: View, job: JobId, old: Grant, new: Grant) -> float:
        """Return what a move saves a job that runs on for as long as it has run so far."""
        if not view.one("keeps_work", job):
            return 0.0
        share = 1 - speed_of(view, old) / speed_of(view, new)
        return share * self._order.held_s(view, job) - view.estimates.pause_s(job, old, new)
