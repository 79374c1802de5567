"""LAS: Tiresias' queues by attained GPU time, which need no run times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple, cast

from allocators.inner_policies import SubView
from allocators.placement import WAITING_PLACEMENTS, Placer, mix_param, placement_param, types_param
from allocators.queue.preemption import PriorityPreemption
from allocators.queue.running_index import (
    MAX_PRIORITY_LIMIT,
    MIN_PRIORITY_LIMIT,
    Height,
    Key,
    RunningSlot,
    gang_gpus,
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
"""Length of the key of a job that was demoted and stopped at the same decision."""


class Unit(NamedTuple):
    """How the service of a demand is measured.

    ``limits_s`` are the limits in seconds at full size, ``column`` the job column with the service,
    and ``per_s`` the growth of that column per second.
    """

    limits_s: tuple[float, ...]
    column: str
    per_s: float


class Attained:
    """Priorities by queue of attained service, then by list position or submission.

    Implements `allocators.queue.running_index.Priorities`.

    Parameters
    ----------
    limits : tuple of float, GPU-seconds or seconds
        Attained service at which a job leaves the first, second, ... queue; ascending.
    promote_factor : float
        See `allocators.queue.las.Las.promote_factor`.
    seconds : bool
        Whether service is the seconds with GPUs, independent of their number.
    by_submission : bool
        Whether jobs of a queue are sorted by submission, running or not.

    Notes
    -----
    Without `by_submission` each queue is the list of the published simulator: running jobs, then
    waiting ones. At every decision newcomers and demoted jobs are appended; after it waiting jobs
    move behind running ones, both in stable order. Running jobs have heights (decision at which
    they joined; `_BEFORE`, `_AMONG` or `_BEHIND` the jobs that start at that decision; count).
    Waiting jobs have keys (queue, minus the decision at which the job was stopped, its height
    then), with jobs hit by an outage behind the others, or (queue, `_TAIL`, count) if the job was
    not stopped or was demoted at that decision.

    The queue of a job is stored, not computed: a running job crosses its next limit at a known
    time and is in the next queue from then on. Each queue has a heap of crossings, where those of
    stopped jobs are invalid.
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
        self._start_keys: dict[JobId, Key] = {}
        self._units: dict[int, Unit] = {}
        self._decision = self._count = 0
        self._punctual = False
        self.demoted_any = False

    # -- the order -------------------------------------------------------------------------------

    def key(self, view: View, job: JobId) -> Key:
        """Return (queue, place...) of a job that begins to wait, and count it as waiting there.

        Also advances its queue if it has run, and schedules its promotion.
        """
        stored_queue = queue = self._queue.get(job, 0)
        crosses = self._crosses.pop(job, None)
        if crosses is not None or self._decision == 1:  # it has run, maybe under another policy
            queue = self._advance_queue(view, job)
        self.waiting[queue] += 1
        if self._by_submission:
            key: Key = (queue, job)
        elif crosses is None:
            self._count += 1
            key = (queue, _TAIL, self._count)
        elif queue != stored_queue:  # an outage hit it after its crossing, but before this decision
            key = (queue, _TAIL, self._count + 0.5, crosses[queue - 1], job)
        else:
            key = (queue, *self._place_of_stopped(view, job))
        if self._promote_factor and queue:
            promotion_wait_s = max(self._promote_factor * self._executed_s.get(job, 0.0), STEP_S)
            heappush(self.promotions, (instant(view.now_s + promotion_wait_s), job, key))
        return key

    def position(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, Height]:
        """Return (queue, place) of a job that starts; it no longer counts as waiting.

        Also schedules when it reaches the limits of its queue and of later ones.
        """
        del grant
        queue = int(key[0])
        self.waiting[queue] -= 1
        if self._by_submission:
            height: Height = (job,)
        else:
            # A job that was stopped at this decision but runs on keeps its place.
            height_before = self._height.get(job) if job in view.grants else None
            if height_before is None:
                self._count += 1
                height_before = self._decision, _AMONG, self._count
                self._start_keys[job] = key
            height = self._height[job] = height_before
        self._schedule_crossings(view, job, queue, self._executed_s.get(job, 0.0))
        return key[0], height

    def _place_of_stopped(self, view: View, job: JobId) -> tuple[float, ...]:
        """Return the sort key, in its queue, of a job that has just been stopped or evicted.

        Jobs stopped later go first, evicted ones behind those; one demoted now goes to the tail.
        """
        height, now = self._height[job], self._decision
        if job not in view.grants:  # hit by an outage, or its start was decided at this instant
            return self._start_keys[job][1:] if height[0] == now else (-now, now + 1, *height)
        if height[0] == now and height[1] != _AMONG:
            return _TAIL, height[2], now
        return -now, *height

    def move_position(
        self, view: View, job: JobId, grant: Grant, slot: RunningSlot
    ) -> tuple[float, Height]:
        """Return the unchanged group and height: service continues as before."""
        del view, job, grant
        return slot.group.tag, slot.height

    def limit(self, group: float, key: Key, now_s: float) -> Height:
        """Return the height in a queue above which running jobs rank below a waiting one.

        That is all in later queues, none in earlier ones, and in its own the jobs behind it.
        """
        del now_s
        if group != key[0]:
            return MAX_PRIORITY_LIMIT if group > key[0] else MIN_PRIORITY_LIMIT
        if self._by_submission:
            return key[1:]
        if len(key) == _STOPPED and key[3] == self._decision:
            return self._decision, _BEHIND, key[2]
        return self._decision, _AMONG, inf

    def rank(self, group: float, height: Height, now_s: float) -> tuple[float, ...]:
        """Return (queue, place), so that the last job of the last queue is preempted first."""
        del now_s
        return (group, *height)

    def is_outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Return True if a preempted job has moved to another queue."""
        return self._advance_queue(view, job) != key[0]

    def confirm_start(self, view: View, job: JobId) -> None:
        """Schedule limits again for a job that got its GPUs later than decided."""
        if self._punctual:
            return
        queue, crosses = self._queue.get(job, 0), self._crosses[job]
        if queue not in crosses:
            return
        executed_s, limits_s = self.executed_s(view, job), self._unit(view, job).limits_s
        if crosses[queue] < instant(view.now_s + limits_s[queue] - executed_s):
            self._schedule_crossings(view, job, queue, executed_s)
        else:
            self._punctual = True  # either all decisions take time or none

    def stop_waiting(self, job: JobId, key: Key) -> None:
        """Remove a job from the count of waiting jobs."""
        del job
        self.waiting[int(key[0])] -= 1

    # -- service ---------------------------------------------------------------------------------

    def executed_s(self, view: View, job: JobId) -> float:
        """Return a job's service since its last promotion, in seconds at full size."""
        return self._executed_s_of(view, job, self._unit(view, job))

    def held_s(self, view: View, job: JobId) -> float:
        """Return the whole service of a job in seconds at full size, also before promotions."""
        unit = self._unit(view, job)
        return view.one(unit.column, job) / unit.per_s

    def queue(self, job: JobId) -> int:
        """Return the stored queue index of a job; 0 is the first queue."""
        return self._queue.get(job, 0)

    def begin(self) -> None:
        """Begin another decision."""
        self._decision += 1

    def pop_demotions(self, view: View) -> list[tuple[JobId, float, Height]]:
        """Move running jobs that reached their limit to the tail of the next queue; return them.

        Returns
        -------
        list of tuples
            Job, group and height. A due crossing counts without computing the service again.
        """
        demotions, now_s = [], view.now_s
        for queue, crossings in enumerate(self._crossings):
            while crossings and crossings[0][0] <= now_s:
                at_s, job = heappop(crossings)
                if self._is_valid(queue, at_s, job) and self._queue.get(job, 0) == queue:
                    demotions.append((job, queue + 1.0, self._demote(view, job, queue, at_s)))
        return demotions

    def promote(self, view: View, job: JobId) -> None:
        """Move a waiting job to the first queue and restart its count of service."""
        self._from_s[job] = self.held_s(view, job)
        self._executed_s[job] = 0.0
        self._queue.pop(job, None)

    def forget(self, finished: tuple[JobId, ...]) -> None:
        """Delete the records of finished jobs."""
        for job in finished:
            self._height.pop(job, None)
            self._start_keys.pop(job, None)
            self._crosses.pop(job, None)
            self._queue.pop(job, None)
            if self._executed_s:
                self._executed_s.pop(job, None)
                self._from_s.pop(job, None)

    def next_crossing_s(self) -> float:
        """Return when a running job next changes queue while jobs wait in either queue, or inf."""
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
        """Return True if a crossing still applies to its job."""
        return job in self._crosses and self._crosses[job].get(queue) == at_s

    def _demote(self, view: View, job: JobId, queue: int, at_s: float) -> Height:
        """Move a running job to the tail of the next queue and return its new height."""
        self._queue[job] = queue + 1
        self.demoted_any = True
        if self._by_submission:
            height: Height = (job,)
        else:
            # If a job that is affected had waited, this would have been decided at the crossing.
            self._count += 1
            height = (self._decision, _BEHIND if at_s == view.now_s else _BEFORE, self._count)
            self._height[job] = height
        return height

    def _schedule_crossings(self, view: View, job: JobId, queue: int, executed_s: float) -> None:
        """Schedule when a running job reaches the limits of its queue and all later ones."""
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

    def _advance_queue(self, view: View, job: JobId) -> int:
        """Advance the stored queue of a job by its service and return it."""
        queue, unit = self._queue.get(job, 0), self._unit(view, job)
        executed_s = self._executed_s[job] = self._executed_s_of(view, job, unit)
        if executed_s:
            executed_s, limits_s = instant(executed_s), unit.limits_s
            while queue < len(limits_s) and instant(limits_s[queue]) <= executed_s:
                queue = self._queue[job] = queue + 1
                self.demoted_any = True
        return queue

    def _executed_s_of(self, view: View, job: JobId, unit: Unit) -> float:
        """Return the service of a job since its last promotion, in seconds at full size."""
        held_s = view.one(unit.column, job) / unit.per_s
        return held_s - self._from_s.get(job, 0.0) if self._from_s else held_s

    def _unit(self, view: View, job: JobId) -> Unit:
        """Return the unit of service of a job; cached per demand."""
        demand = view.demand(job)
        unit = self._units.get(demand.key)
        if unit is None:
            unit = self._units[demand.key] = _unit_of(demand, self.limits, self._seconds)
        return unit


def _unit_of(demand: Demand, limits: tuple[float, ...], seconds: bool) -> Unit:
    """Return limits, column and growth per second that measure the service of a demand.

    A demand without GPUs has infinite limits unless seconds count.
    """
    gpus = gang_gpus(demand)
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
    """Run jobs with the least attained GPU time first: Tiresias' discretized 2D-LAS.

    Notes
    -----
    Preemptive, blind to run times. Attained service is GPUs x seconds held [1]_, or with
    ``measure = s`` seconds alone. A job begins in the first queue and moves down one when its
    service reaches the limit of its queue. The queues are walked in order, and each job gets its
    gang if it fits; a running job that no longer fits is stopped. Defaults are those of the
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
    and as few as needed. A job evicted by an outage takes the place of a stopped one. Jobs without
    GPUs attain nothing unless seconds are counted, and stay in the first queue. An upgrade, which
    the published simulator does not know, pays if it saves more than the restart when the job runs
    on for as long as it has run so far; speeds are the nominal ones of the types. With a
    ``promote_factor`` and costly restarts, limits must allow for far more than one restart: else
    large gangs could preempt each other forever without progress.

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
        help="Service at which a job leaves each queue but the last, in the 'Measure of service'.",
    )
    measure: str = param(
        "gpu_s",
        title="Measure of service",
        choices=("gpu_s", "s"),
        labels={"gpu_s": "GPUs × seconds", "s": "Seconds"},
        help="GPUs times seconds held, or seconds held.",
    )
    order: str = param(
        "tiresias",
        title="Order within a queue",
        choices=("tiresias", "arrival"),
        labels={"tiresias": "Running, stopped, waiting", "arrival": "Submission"},
        help=(
            "Running jobs, then stopped ones, then waiting ones; or by submission, running or not."
        ),
    )
    promote_factor: float = param(
        0.0,
        title="Promotion after waiting",
        low=0,
        high=1e6,
        help=(
            "A job returns to the first queue after waiting this many times its run time since"
            " it was there; 0 = never."
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
        help="Where parameter servers run: on cores, or on a GPU each.",
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
        brief="least GPU time received goes first",
        what="Jobs that have received the least GPU time run first, in a few queues.",
        cost=("Long-running jobs are stopped for new jobs, even if they are nearly done."),
        limits="Ignores run times and the cost of a preemption.",
        source="Gu et al., Tiresias, NSDI 2019; the authors' simulator",
        certainty=(
            "exact: order, limits and promotion as published; our reading: moves to faster GPU"
            " types, and what is stopped where places matter"
        ),
        goals=("fairness", "short waits"),
        how=(
            "A job's attained service is the GPU-seconds that it has used.",
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
        """Check the thresholds and create the empty queues."""
        # Another order of thresholds would give one policy several names and results.
        if any(not low < high for low, high in pairwise((0.0, *self.thresholds))):
            thresholds = "/".join(f"{limit:g}" for limit in self.thresholds)
            raise ParameterError(
                f"las: thresholds = {thresholds} GPU-s must be above 0 and each above the one"
                " before, e.g. 3250/7200."
            )
        # Else jobs take turns of the first threshold: a week of one node is a million decisions.
        first = self.thresholds[0] if self.thresholds else inf
        if 0 < self.promote_factor * first < 1:
            raise ParameterError(
                f"las: promote_factor = {self.promote_factor:g} lets jobs swap within seconds, as"
                f" the first threshold is {first:g}. Set promote_factor to 0 or at least"
                f" {ceil(1000 / first) / 1000:g}."
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
        """Need the pause of a restart if jobs may move; otherwise only public columns."""
        pause = frozenset({"pause"} if self.migrate == "upgrade" else ())
        return Needs(pause, mixes_types=self.mix)

    def remarks(self) -> tuple[str, ...]:
        """Return a note if all jobs stayed in the first queue."""
        if self._order.demoted_any or not (self._preemption.begun and self._orderly):
            return ()
        return (_UNUSED,)

    def rule(self) -> QueueRule | None:
        """Return the queue rule; None with promotions, servers on GPUs or waiting placements."""
        if self.promote_factor or self.servers == "gpu" or self.placement in WAITING_PLACEMENTS:
            return None
        rule = queue_rule(("arrival_s",) if self.order == "arrival" else (), self, self.backfill)
        return rule and replace(
            rule,
            preemption="attained",
            limits=self.thresholds,
            per_gpu=self.measure == "gpu_s",
            moves=self.migrate == "upgrade",
            unused=_UNUSED,
        )

    def allocate(self, view: View, /) -> Plan:
        """Start the jobs with the least service and preempt others for them.

        With ``servers=gpu`` every parameter server holds a GPU.
        """
        if self.servers == "gpu":
            return self._with_servers_on_gpus(view)
        return self._decide(view)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait or a preemption by the queue of the job and the jobs before it."""
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
        return outranked_reason(
            decided,
            job,
            better,
            "before it in the queues (it was in queue {queue:number} of {queues:number} with"
            " {received:number} GPU-hours)",
            **values,
        )

    def _decide(self, view: View) -> Plan:
        """Update the queues, demote and promote jobs, and return the plan."""
        order, preemption, delta = self._order, self._preemption, view.delta
        if delta.evicted or (view.grants and not preemption.begun):
            self._orderly = False  # evicted jobs go first, or another policy decided before
        order.begin()
        preemption.feed(view)
        for job, queue, height in order.pop_demotions(view):
            preemption.demote(job, queue, height)
        if order.promotions:
            self._promote(view)
        changes = preemption.allocate(view)
        order.forget(delta.finished)
        if not preemption.waiting:
            return Plan(changes) if changes else EMPTY
        return Plan(changes, wake_at_s=self._next_s())

    def _with_servers_on_gpus(self, view: View) -> Plan:
        """Decide with every parameter server on a GPU; refuse arrivals that are too large."""
        sub_view = SubView(view, view.delta)
        sub_view.demand = lambda job: self._with_gpu_servers(view.demand(job))
        too_large = frozenset(
            job for job in view.delta.arrived if self._is_too_large(view, sub_view.demand(job))
        )
        if not too_large:
            return self._decide(cast("View", sub_view))
        sub_view.delta = view.delta._replace(
            arrived=tuple(job for job in view.delta.arrived if job not in too_large)
        )
        return self._decide(cast("View", sub_view))._replace(refuse=too_large)

    @staticmethod
    def _is_too_large(view: View, demand: Demand) -> bool:
        """Return True if a gang has more GPUs than the nodes that it may use."""
        pools = view.room.pools
        return gang_gpus(demand) > sum(
            [view.cluster.nodes[node].gpus for at in demand.pools for node in pools[at].nodes]
        )

    def _with_gpu_servers(self, demand: Demand) -> Demand:
        """Return the demand with one GPU per server if its workers have GPUs; cached per demand."""
        demands = self._on_gpus.get(demand.key)
        if demands is None:
            servers = demand.servers and replace(demand.servers, gpus=1, pools=demand.pools)
            # The original demand is stored too, so that no other demand reuses its key.
            demands = self._on_gpus[demand.key] = (
                demand,
                replace(demand, servers=servers if demand.gpus else demand.servers),
            )
        return demands[1]

    def _promote(self, view: View) -> None:
        """Move the waiting jobs with a due promotion to the first queue."""
        promotions, waiting = self._order.promotions, self._preemption.waiting
        while promotions and promotions[0][0] <= view.now_s:
            _, job, key = heappop(promotions)
            if waiting.get(job) is key:
                self._order.promote(view, job)
                self._preemption.wait(view, job)

    def _next_s(self) -> float:
        """Return when a queue change or promotion that affects others is next due, or inf."""
        promotions, waiting = self._order.promotions, self._preemption.waiting
        while promotions and waiting.get(promotions[0][1]) is not promotions[0][2]:
            heappop(promotions)
        next_s = self._order.next_crossing_s()
        return min(next_s, promotions[0][0]) if promotions else next_s

    def _gain_s(self, view: View, job: JobId, old: Grant, new: Grant) -> float:
        """Return the seconds that a move saves if the job runs as long again as so far."""
        if not view.one("keeps_work", job):
            return 0.0
        share = 1 - slowest_speed(view, old) / slowest_speed(view, new)
        return share * self._order.held_s(view, job) - view.estimates.pause_s(job, old, new)
