"""Least attained service: Tiresias' queues by GPU-seconds received, for clusters where nobody knows run times."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import cast

from allocators._backlog import head_param
from allocators._inside import SubView
from allocators._ladders import TOLERANCE, Key, gpus_of
from allocators._preempt import Contest
from allocators.placement import Placer, mix_param, placement_param, types_param
from sim.contract import EMPTY, Cadence, Card, Demand, Grant, JobId, ParameterError, Plan, View, inf, param


class Attained:
    """Order by queue, running jobs before waiting ones: `allocators._ladders.Order`.

    Parameters
    ----------
    limits : tuple of float, GPU-seconds
        Attained service at which a job leaves the first, second, ... queue; ascending.
    knob : float
        See `Las.knob`.

    Notes
    -----
    The key of a waiting job is (queue, since when it waits); a running job's ladder is its queue and its height the instant of its start. A job that holds
    its GPUs crosses the next limit at a known instant, so crossings are kept in a heap per queue, where those of jobs stopped meanwhile are void.
    """

    def __init__(self, limits: tuple[float, ...], knob: float) -> None:
        self.limits, self._knob = limits, knob
        self.waiting: Counter[int] = Counter()
        self.crossings: list[list[tuple[float, JobId, float]]] = [[] for _ in limits]
        self.promotions: list[tuple[float, JobId, Key]] = []
        self._from: dict[JobId, float] = {}

    def key(self, view: View, job: JobId) -> Key:
        """Return the queue of a job and since when it waits."""
        queue = self._queue(view, job)
        self.waiting[queue] += 1
        key = (float(queue), view.now_s if view.one("served_gpu_s", job) else view.one("arrival_s", job))
        if self._knob and queue:
            executed_s = self.attained(view, job) / gpus_of(view.demand(job))
            heappush(self.promotions, (key[1] + self._knob * executed_s, job, key))
        return key

    def rung(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, float]:
        """Return the queue of a job, and its start."""
        del grant
        queue = int(key[0])
        self.waiting[queue] -= 1
        self.expect(view, job, queue, view.now_s)
        return key[0], view.now_s

    def limit(self, ladder: float, key: Key, now_s: float) -> float:
        """Return minus infinity for a later queue: all its running jobs are worse."""
        del now_s
        return -inf if ladder > key[0] else inf

    def rank(self, ladder: float, height: float, now_s: float) -> tuple[float, ...]:
        """Return queue and start: of the last queue the latest started goes first."""
        del now_s
        return (ladder, height)

    def outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Tell whether the job has moved to another queue since it was to be stopped."""
        return self._queue(view, job) != key[0]

    def left(self, job: JobId, key: Key) -> None:
        """Count the job no longer among the waiting."""
        del job
        self.waiting[int(key[0])] -= 1

    def expect(self, view: View, job: JobId, queue: int, started_s: float) -> None:
        """Note when a running job will have attained the limit of its queue."""
        gpus = gpus_of(view.demand(job))
        if queue < len(self.limits) and gpus:
            heappush(self.crossings[queue], (view.now_s + (self.limits[queue] - self.attained(view, job)) / gpus, job, started_s))

    def attained(self, view: View, job: JobId) -> float:
        """Return the GPU-seconds that count for the queue of a job: all since its last promotion."""
        return view.one("served_gpu_s", job) - self._from.get(job, 0.0)

    def promote(self, view: View, job: JobId) -> None:
        """Let the count of a waiting job begin anew."""
        self._from[job] = view.one("served_gpu_s", job)

    def forget(self, finished: tuple[JobId, ...]) -> None:
        """Drop what is known of promotions of jobs that are gone."""
        for job in finished if self._from else ():
            self._from.pop(job, None)

    def _queue(self, view: View, job: JobId) -> int:
        return bisect_right(self.limits, self.attained(view, job) + TOLERANCE * gpus_of(view.demand(job)))


@dataclass
class Las:
    """Run the jobs that have received the least GPU time, in a few queues: Tiresias' discretised two-dimensional LAS.

    Notes
    -----
    Preemptive, blind to run times. Attained service is GPUs x seconds held [1]_. A job begins in the first queue and moves down one when its attained service
    reaches the limit of its queue (1 ms early counts as reached). All queues are scanned in order: within a queue first the running jobs by their last start,
    then the waiting ones; each gets its gang if it fits. Defaults are those of the authors' simulator.

    Our reading: since waiting jobs stand behind the running ones of their own queue, a job is only ever stopped for one in a strictly better queue; the latest
    started of the last queue goes first, and as few as needed. Waiting jobs stand in order of the instant at which they began to wait, so a stopped job goes
    behind those that wait already. A demoted job that runs stands before the waiting jobs of its new queue. Jobs without GPUs attain nothing and stay in the
    first queue. With a knob and costly restarts, limits must allow for far more than one restart: large gangs could else take turns for ever without progress.

    ``servers = gpu`` is how the follow-up of AITurbo ran Tiresias (MaoZzzzz/Aiturbo-vGPU): every parameter server holds a GPU, which counts as service. Jobs
    for which there are then too few GPUs are refused.

    References
    ----------
    .. [1] J. Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning", NSDI 2019, section 3.2; limits, order and knob as in the simulator
       that the authors published (SymbioticLab/Tiresias).
    """

    thresholds: tuple[float, ...] = param(
        (3250.0, 7200.0), unit="GPU-s", low=1, high=1e12, help="Attained service at which a job leaves each queue but the last."
    )
    knob: float = param(
        0.0, low=0, high=1e6, help="A waiting job returns to the first queue when it has waited this many times as long as it ran since then; 0 = never."
    )
    head: str = head_param("skip")
    servers: str = param("cpu", choices=("cpu", "gpu"), help="Where parameter servers run: on cores, or each on a GPU of its own.")
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _on_gpus: dict[int, tuple[Demand, Demand]] = field(init=False, repr=False, default_factory=dict)
    _order: Attained = field(init=False, repr=False)
    _contest: Contest = field(init=False, repr=False)

    cadence = Cadence()
    card = Card(
        title="LAS (Tiresias)",
        what="Jobs that have received the least GPU time so far run first, in a few queues.",
        cost="Jobs that have run for long are stopped for newcomers, whatever little they may still need.",
        limits="Knows no run times. Counts stops as free: what they cost is set under overheads.",
        source="Gu et al., Tiresias, NSDI 2019; the authors' simulator",
        certainty="our reading of the order within a queue and of who is stopped; limits and knob as published",
        goals=("short waits", "fairness"),
        how=(
            "A job's attained service is its GPUs times the seconds for which it held them.",
            "Every job begins in the first queue, and moves down one when its service reaches the limit of its queue.",
            "The queues are served in order; within one, running jobs stand before waiting ones.",
            "A job is stopped only for one of a better queue: the latest started of the last queue first, as few as needed.",
            "Nobody is asked for run times.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare empty queues."""
        # In any other order the same policy would have several names, and several results.
        if any(not low < high for low, high in pairwise((0.0, *self.thresholds))):
            told = "/".join(f"{limit:g}" for limit in self.thresholds)
            raise ParameterError(f"las: thresholds = {told} GPU-s must be above 0 and each above the one before, e.g. 3250/7200.")
        self._order = Attained(self.thresholds, self.knob)
        self._contest = Contest(self._order, Placer(self.placement, self.types, self.mix), block=self.head == "block")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing but the public columns."""
        return frozenset({"mixed"}) if self.mix else frozenset()

    def allocate(self, view: View, /) -> Plan:
        """Start what is best, and stop what must go for it."""
        if self.servers == "gpu":
            return self._with_servers_on_gpus(view)
        return self._decide(view)

    def _decide(self, view: View) -> Plan:
        order, contest = self._order, self._contest
        self._demote(view)
        contest.feed(view)
        if order.promotions:
            self._promote(view)
        changes = contest.settle(view)
        order.forget(view.delta.finished)
        if not contest.waiting:
            return Plan(changes) if changes else EMPTY
        return Plan(changes, wake_at_s=self._next_s())

    def _with_servers_on_gpus(self, view: View) -> Plan:
        inside = SubView(view, view.delta)
        inside.demand = lambda job: self._moved(view.demand(job))
        hopeless = frozenset(job for job in view.delta.arrived if self._is_too_large(view, inside.demand(job)))
        if not hopeless:
            return self._decide(cast("View", inside))
        inside.delta = view.delta._replace(arrived=tuple(job for job in view.delta.arrived if job not in hopeless))
        return self._decide(cast("View", inside))._replace(refuse=hopeless)

    @staticmethod
    def _is_too_large(view: View, demand: Demand) -> bool:
        pools = view.room.pools
        return gpus_of(demand) > sum([view.cluster.nodes[node].gpus for at in demand.pools for node in pools[at].nodes])

    def _moved(self, demand: Demand) -> Demand:
        known = self._on_gpus.get(id(demand))
        if known is None:
            servers = demand.servers and demand.servers._replace(gpus=1, pools=demand.pools)
            # The demand itself is kept beside it, so that no other takes its number.
            known = self._on_gpus[id(demand)] = demand, demand._replace(servers=servers if demand.gpus else demand.servers)
        return known[1]

    def _demote(self, view: View) -> None:
        order, contest, due = self._order, self._contest, view.now_s + TOLERANCE
        for queue, crossings in enumerate(order.crossings):
            while crossings and crossings[0][0] <= due:
                _, job, started_s = heappop(crossings)
                if not self._holds(job, queue, started_s) or job not in view.grants:
                    continue
                reached = order.attained(view, job) >= order.limits[queue] - TOLERANCE * gpus_of(view.demand(job))
                if reached:
                    contest.worsen(job, queue + 1.0, started_s)
                order.expect(view, job, queue + reached, started_s)

    def _promote(self, view: View) -> None:
        order, due = self._order, view.now_s + TOLERANCE
        while order.promotions and order.promotions[0][0] <= due:
            _, job, key = heappop(order.promotions)
            if self._contest.waiting.get(job) is key:
                order.promote(view, job)
                self._contest.wait(view, job)

    def _next_s(self) -> float:
        """Return when a running job leaves a queue in which another waits, or a waiting one returns to the first."""
        order, next_s = self._order, inf
        for queue, crossings in enumerate(order.crossings):
            if order.waiting[queue]:
                while crossings and not self._holds(crossings[0][1], queue, crossings[0][2]):
                    heappop(crossings)
                if crossings and crossings[0][0] < next_s:
                    next_s = crossings[0][0]
        while order.promotions and self._contest.waiting.get(order.promotions[0][1]) is not order.promotions[0][2]:
            heappop(order.promotions)
        return min(next_s, order.promotions[0][0]) if order.promotions else next_s

    def _holds(self, job: JobId, queue: int, started_s: float) -> bool:
        seat = self._contest.running.seats.get(job)
        return seat is not None and seat.height == started_s and seat.ladder.tag == queue
